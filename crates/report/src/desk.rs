//! The socket on which a program answers `skinflint memory`, and the other end.
//!
//! ```text
//!   "measure\n", "measure-blocks\n" ─► "report\n" [ "fault NAME: why\n" … ] "\n" the file of about:memory
//!              └─► "figures\n" the allocator's JSON          (libskinflint.so alone: malloc-so/desk.rs)
//!   "minimize\n" │ "gc\n" │ "cc\n" ─► "done\n" what came of it        anything else ─► "no\n" why
//! ```
//!
//! S1  The socket is in a folder of its user's with mode 0700, and the kernel is asked who connects: nobody but the
//!     user and root is answered. There is no TCP.
//! S2  Requests have a bound in length and time; who does not read his answer is left after [`PATIENCE`].
//! S3  A socket that nobody listens on is replaced; one that answers is an error.
//! S4  The client believes an answer only if the kernel says that it comes from the process that was asked.
//!
//! Not here: what is measured (`registry`), the socket of the drop-in (`malloc-so`).

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::process;
use crate::registry::{Action, Measurement, Registry};
use crate::tree::Presence;

/// Longest wait for a request, and for an answer to be read.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// Longest wait for an answer: several reporters may each take their time.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
/// The request for a measurement that says which blocks each line has measured.
pub const MEASURE_BLOCKS: &str = "measure-blocks";

/// Longest answer, bytes.
const LONGEST_ANSWER: u64 = 1 << 30;

/// Endings of sockets' names: of a program that reports, of the drop-in.
const REPORT: &str = "report";
const HEAP: &str = "heap";

fn user() -> u32 {
    // SAFETY: no memory is involved.
    unsafe { libc::geteuid() }
}

/// Where sockets of this user are: `XDG_RUNTIME_DIR/skinflint`, or `/tmp/skinflint-USER`.
pub fn folder() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(runtime) if runtime.is_absolute() => runtime.join("skinflint"),
        _ => PathBuf::from(format!("/tmp/skinflint-{}", user())),
    }
}

/// Who is at the other end of a connection.
fn peer(stream: &UnixStream) -> io::Result<libc::ucred> {
    let mut who = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut size = std::mem::size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes a `ucred`, whose place and size it is told.
    let done = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &mut size,
        )
    };
    match done {
        0 => Ok(who),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A program's end, open until it is dropped.
pub struct Desk {
    path: PathBuf,
    over: Arc<AtomicBool>,
}

impl Desk {
    /// Opens the socket of this process in [`folder`], and answers on a thread. After a fork the child has none.
    ///
    /// # Errors
    /// If the folder is not this user's alone, or there can be no socket.
    pub fn open(registry: &'static Registry) -> io::Result<Desk> {
        Desk::open_in(&folder(), registry)
    }

    /// The same in another folder.
    ///
    /// # Errors
    /// As of [`Desk::open`].
    pub fn open_in(folder: &Path, registry: &'static Registry) -> io::Result<Desk> {
        own(folder)?;
        let path = folder.join(format!("{}.{REPORT}", std::process::id()));
        let listener = match UnixListener::bind(&path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                // S3.
                if UnixStream::connect(&path).is_ok() {
                    return Err(error);
                }
                std::fs::remove_file(&path)?;
                UnixListener::bind(&path)?
            }
            other => other?,
        };
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        std::thread::Builder::new()
            .name("skinflint-desk".into())
            .spawn(move || {
                for stream in listener.incoming() {
                    // ORDER: Acquire: meets the Release of `drop`.
                    if is_over.load(Ordering::Acquire) {
                        return;
                    }
                    match stream {
                        // Who does not listen to the answer has no need of it.
                        Ok(stream) => drop(answer(stream, registry)),
                        Err(_) => std::thread::sleep(Duration::from_millis(50)),
                    }
                }
            })?;
        Ok(Desk { path, over })
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release); // ORDER: Release: meets the Acquire of the thread.
        // Wakes the thread; if that fails, it waits for a connection that nobody makes.
        let _ = UnixStream::connect(&self.path);
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Makes the folder, or judges the one that is there (S1).
fn own(folder: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = std::fs::symlink_metadata(folder)?;
    if !found.is_dir() || found.uid() != user() || found.mode() & 0o077 != 0 {
        let what = format!(
            "{}: it must be a folder of this user's alone (mode 0700), and no link",
            folder.display()
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(())
}

fn answer(mut stream: UnixStream, registry: &Registry) -> io::Result<()> {
    let who = peer(&stream)?;
    if who.uid != user() && who.uid != 0 {
        return Ok(());
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = [0; 16];
    let mut used = 0;
    while !request[..used].contains(&b'\n') && used < request.len() {
        match stream.read(&mut request[used..])? {
            0 => break,
            bytes => used += bytes,
        }
    }
    let request = request[..used].split(|byte| *byte == b'\n').next();
    let request = std::str::from_utf8(request.unwrap_or(&[])).unwrap_or("");
    // Measured before the writer takes its buffer: it would be in the figures.
    let measured = match request {
        "measure" => Some(registry.measure()),
        MEASURE_BLOCKS => Some(registry.measure_with_blocks()),
        _ => None,
    };
    let mut out = io::BufWriter::new(stream);
    if let Some(measured) = measured {
        return write_measurement(&measured, &mut out);
    }
    let action = Action::ALL.into_iter().find(|one| one.name() == request);
    match action {
        Some(action) if action == Action::Minimize || registry.can(action) => {
            out.write_all(b"done\n")?;
            for done in registry.act(action) {
                let ms = done.took.as_secs_f64() * 1e3;
                writeln!(
                    out,
                    "{}: {} ({ms:.1} ms)",
                    one_line(&done.who),
                    one_line(&done.said)
                )?;
            }
        }
        Some(action) => write!(out, "no\nthe program offers no {}", action.name())?,
        None => out.write_all(b"no\na request is measure, measure-blocks, minimize, gc or cc")?,
    }
    out.flush()
}

fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Writes an answer to `measure`.
fn write_measurement(measured: &Measurement, out: &mut impl Write) -> io::Result<()> {
    out.write_all(b"report\n")?;
    for fault in measured.faults() {
        writeln!(out, "fault {}", one_line(&fault.to_string()))?;
    }
    out.write_all(b"\n")?;
    let title = process::title(0).unwrap_or_else(|_| format!("(pid {})", std::process::id()));
    let lines = measured.lines_with_blocks();
    let lines = lines.map(|(line, blocks)| (line, Presence::Both, blocks));
    crate::file::write_with_blocks(out, &title, lines)?;
    Ok(())
}

/// What a process answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// A file of about:memory, and the reporters that were left out.
    Report {
        /// One line for each.
        faults: Vec<String>,
        /// The file.
        json: Vec<u8>,
    },
    /// The text of `skinflint_stats_json`.
    Figures(String),
    /// It was done; what came of it.
    Done(String),
    /// It was not, and why.
    No(String),
}

/// Sockets of a process, the one that says most first. By the kernel's list, so any folder will do.
pub fn sockets_of(pid: u32) -> Vec<PathBuf> {
    let all = sockets();
    let of = |ending: &str| {
        let name = format!("{pid}.{ending}");
        all.iter()
            .filter(move |path| path.file_name().is_some_and(|found| *found == *name))
            .cloned()
            .collect::<Vec<PathBuf>>()
    };
    [of(REPORT), of(HEAP)].concat()
}

/// Whether a socket, by its name, is that of a program with reporters.
pub fn is_reporters(socket: &Path) -> bool {
    socket.extension().is_some_and(|ending| ending == REPORT)
}

/// Process and socket of all that this user can ask: his own, and root anybody's.
pub fn listening() -> Vec<(u32, PathBuf)> {
    let mut found: Vec<(u32, PathBuf)> = sockets()
        .into_iter()
        .filter_map(|path| {
            let ending = path.extension()?.to_str()?;
            let pid = path.file_stem()?.to_str()?.parse().ok()?;
            ((ending == REPORT || ending == HEAP) && may_ask(&path)).then_some((pid, path))
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Whether its owner would answer, by S1; a socket that cannot be reached is not to be asked either.
fn may_ask(socket: &Path) -> bool {
    let owner = std::fs::metadata(socket).map(|found| found.uid());
    owner.is_ok_and(|owner| user() == 0 || owner == user())
}

fn sockets() -> Vec<PathBuf> {
    let list = std::fs::read("/proc/net/unix").unwrap_or_default();
    let mut found: Vec<PathBuf> = list
        .split(|byte| *byte == b'\n')
        .filter_map(|line| {
            let at = line.windows(2).position(|part| part == b" /")?;
            Some(PathBuf::from(std::ffi::OsStr::from_bytes(&line[at + 1..])))
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Takes away sockets in this user's folder whose processes are gone. Returns how many.
pub fn clear_stale() -> usize {
    let Ok(entries) = std::fs::read_dir(folder()) else {
        return 0;
    };
    let mut cleared = 0;
    for path in entries.flatten().map(|entry| entry.path()) {
        let pid = path
            .file_stem()
            .and_then(|name| name.to_str()?.parse::<u32>().ok());
        let ours = path
            .extension()
            .is_some_and(|ending| ending == REPORT || ending == HEAP);
        if let (Some(pid), true) = (pid, ours)
            && !Path::new(&format!("/proc/{pid}")).exists()
            && std::fs::remove_file(&path).is_ok()
        {
            cleared += 1;
        }
    }
    cleared
}

/// Asks. `pid`: who is to answer (S4); 0 is anybody of this user's, or whom root asks.
///
/// # Errors
/// If nobody answers, the wrong one does, or what comes is no answer.
pub fn ask(socket: &Path, pid: u32, request: &str) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(socket)?;
    let who = peer(&stream)?;
    if pid != 0 && who.pid as u32 != pid {
        let what = format!("process {} answers in the place of {pid}", who.pid);
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{request}\n").as_bytes())?;
    let mut bytes = Vec::new();
    stream.take(LONGEST_ANSWER).read_to_end(&mut bytes)?;
    parse(bytes).ok_or_else(|| {
        let what = "it hung up without an answer: the process ended, or it is another user's";
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

fn parse(bytes: Vec<u8>) -> Option<Answer> {
    let at = bytes.iter().position(|byte| *byte == b'\n')?;
    let (word, rest) = (&bytes[..at], &bytes[at + 1..]);
    let text = || String::from_utf8_lossy(rest).into_owned();
    match word {
        b"figures" => Some(Answer::Figures(text())),
        b"done" => Some(Answer::Done(text())),
        b"no" => Some(Answer::No(text())),
        b"report" => {
            let mut faults = Vec::new();
            let mut rest = rest;
            loop {
                let end = rest.iter().position(|byte| *byte == b'\n')?;
                let line = &rest[..end];
                rest = &rest[end + 1..];
                if line.is_empty() {
                    break;
                }
                let fault = String::from_utf8_lossy(line);
                faults.push(fault.strip_prefix("fault ").unwrap_or(&fault).to_owned());
            }
            let json = rest.to_vec();
            Some(Answer::Report { faults, json })
        }
        _ => None,
    }
}
