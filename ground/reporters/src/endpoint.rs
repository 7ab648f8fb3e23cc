//! The socket on which a program answers `skinflint memory`.
//!
//! ```text
//!   "measure\n", "measure-blocks\n" ─► "report\n" [ "fault NAME: why\n" … ] "\n" the file of about:memory
//!              └─► "figures\n" the allocator's JSON ┐        (libskinflint.so alone: malloc-so/endpoint.rs)
//!   "profile\n" ─► "profile\n" its heap profile   ┘
//!   "minimize\n" │ "gc\n" │ "cc\n" ─► "done\n" the results        anything else ─► "no\n" why
//! ```
//!
//! S1  The socket is in a folder of its user with mode 0700, and the kernel is asked which user connects: only the same
//!     user and root are answered. There is no TCP.
//! S2  Requests have a bound in length and time; a client that does not read its answer is left after [`PATIENCE`].
//! S3  A socket without a listener is replaced; one that answers is an error.
//! S4  An endpoint belongs to its process. In the child of a fork it answers no client, and dropping it there leaves the
//!     parent's socket alone; the child may open its own.
//! S5  When an endpoint is dropped, an answer that is under way is finished first, within [`CLOSING`].
//!
//! Not here: the other end (`asker`), what is measured (`registry`), the socket of the drop-in (`malloc-so`).

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

pub use crate::asker::{ask, ask_within, clear_stale, is_reporters, listening, sockets_of};
use crate::busy;
use crate::process;
use crate::quiet;
use crate::registry::{Action, Measurement, Registry};
use crate::tree::Presence;

/// The longest wait for a request, and for an answer to be read.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// The longest wait for an answer that is under way when an endpoint is dropped.
pub const CLOSING: Duration = Duration::from_secs(10);
/// The request for a measurement with the blocks that each line has measured.
pub const MEASURE_BLOCKS: &str = "measure-blocks";
/// The request for the sampled heap profile, which the drop-in alone keeps.
pub const PROFILE: &str = "profile";

/// The endings of sockets' names: of a program that reports, and of the drop-in.
pub(crate) const REPORT: &str = "report";
pub(crate) const HEAP: &str = "heap";

fn user() -> u32 {
    // SAFETY: no memory is involved.
    unsafe { libc::geteuid() }
}

/// Returns the folder of this user's sockets: `XDG_RUNTIME_DIR/skinflint`, or `/tmp/skinflint-USER` if there is no
/// such runtime folder. The drop-in has the same rule.
pub fn folder() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        // A runtime folder that was never made, as under `su` or in a container, does not count.
        Some(runtime) if runtime.is_absolute() && runtime.is_dir() => runtime.join("skinflint"),
        _ => PathBuf::from(format!("/tmp/skinflint-{}", user())),
    }
}

/// Returns the process and user at the other end of a connection.
pub(crate) fn peer(stream: &UnixStream) -> io::Result<libc::ucred> {
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

/// The program's end of the socket, open until this is dropped (S5).
pub struct Endpoint {
    path: PathBuf,
    over: Arc<AtomicBool>,
    listener: Arc<UnixListener>,
    thread: Option<JoinHandle<()>>,
    /// The process that it belongs to (S4).
    pid: u32,
}

impl Endpoint {
    /// Opens the socket of this process in [`folder`], and answers on a thread that takes no signals (`quiet`). The
    /// child of a fork has no endpoint, and may open one.
    ///
    /// # Errors
    /// If the folder is not this user's alone, or the socket cannot be made.
    pub fn open(registry: &'static Registry) -> io::Result<Endpoint> {
        Endpoint::open_in(&folder(), registry)
    }

    /// Opens the socket of this process in another folder.
    ///
    /// # Errors
    /// As for [`Endpoint::open`].
    pub fn open_in(folder: &Path, registry: &'static Registry) -> io::Result<Endpoint> {
        own(folder)?;
        let pid = std::process::id();
        let path = folder.join(format!("{pid}.{REPORT}"));
        let listener = bind(&path).map_err(|error| named(&path, &error))?;
        let (listener, over) = (Arc::new(listener), Arc::new(AtomicBool::new(false)));
        let (listens, is_over) = (Arc::clone(&listener), Arc::clone(&over));
        let serve = move || {
            for stream in listens.incoming() {
                // ORDER: Acquire: meets the Release of `drop`.
                if is_over.load(Ordering::Acquire) {
                    return;
                }
                match stream {
                    // A client that does not read the answer does not need it.
                    Ok(stream) => drop(answer(stream, registry)),
                    Err(_) => std::thread::sleep(Duration::from_millis(50)),
                }
            }
        };
        let thread = match quiet::spawn("skinflint-endpoint", serve) {
            Ok(thread) => Some(thread),
            Err(error) => {
                let _ = std::fs::remove_file(&path);
                return Err(error);
            }
        };
        Ok(Endpoint {
            path,
            over,
            listener,
            thread,
            pid,
        })
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Binds the socket, and replaces one without a listener (S3).
fn bind(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if UnixStream::connect(path).is_ok() {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        other => other,
    }
}

/// Returns an error with the path that it is about.
fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let thread = self.thread.take();
        if self.pid != std::process::id() {
            // S4. The thread is not in this process: to detach it might hit another thread that has its place by now.
            std::mem::forget(thread);
            // SAFETY: the thread that has the other share of the listener is not in this process, so no thread here
            // uses the descriptor; that share is never released, so the listener is not closed again.
            unsafe { libc::close(self.listener.as_raw_fd()) };
            return;
        }
        self.over.store(true, Ordering::Release); // ORDER: Release: meets the Acquire of the thread.
        let _ = std::fs::remove_file(&self.path);
        // Wakes the thread: no connection is accepted any more.
        // SAFETY: no memory is involved; the descriptor is open for as long as the listener lives.
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
        if let Some(thread) = thread
            && !busy::inside()
            && thread.thread().id() != std::thread::current().id()
        {
            // S5.
            busy::wait_until(|| thread.is_finished(), CLOSING);
        }
    }
}

/// Makes the folder, or checks the one that exists (S1).
fn own(folder: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(named(folder, &error));
        }
        _ => {}
    }
    let found = std::fs::symlink_metadata(folder).map_err(|error| named(folder, &error))?;
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
    if used == 0 {
        // The client only wanted to know which process listens.
        return Ok(());
    }
    let request = request[..used].split(|byte| *byte == b'\n').next();
    let request = std::str::from_utf8(request.unwrap_or(&[])).unwrap_or("");
    // Measured before the writer allocates its buffer, which would be in the figures.
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

/// The answer of a process.
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
    /// The sampled heap profile, as text (`alloc::profile`).
    Profile(String),
    /// The action was done; its results.
    Done(String),
    /// The request was refused, and why.
    No(String),
}
