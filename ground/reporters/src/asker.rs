//! Finding the processes that can be asked, and asking them: the other end of `endpoint`.
//!
//! ```text
//!   /proc/net/unix ─► NUMBER.report, NUMBER.heap ─ connected, the kernel names the listener ─► process, socket
//!   ask(socket, process, request) ─► the answer │ why there is none, in words
//! ```
//!
//! A1  The kernel says which process a socket belongs to. Its name has the process id as the process itself sees it,
//!     which is another one in a PID namespace of its own.
//! A2  An answer is believed only if it comes from the process that was asked.
//! A3  An answer has a bound in bytes and one in time, as a whole; connecting has one, too.
//! A4  A stopped process is not waited for longer than [`STOPPED_PATIENCE`], and the error says that it is stopped.
//!
//! Not here: what is answered (`endpoint`, `malloc-so`).

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::endpoint::{Answer, HEAP, MEASURE_BLOCKS, PATIENCE, PROFILE, REPORT, folder, peer};

/// The longest wait for a whole answer: several reporters may each take their time.
pub const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
/// The longest wait for a process that is stopped.
pub const STOPPED_PATIENCE: Duration = Duration::from_secs(3);
/// The time between two checks whether the process is stopped.
const LOOK: Duration = Duration::from_millis(500);
/// The longest wait for a connection that only asks which process listens.
const GLANCE: Duration = Duration::from_millis(50);

/// Returns the longest answer to a request, in bytes: a million lines of 250; the same and 40 million blocks; words.
fn longest(request: &str) -> usize {
    match request {
        "measure" => 256 << 20,
        MEASURE_BLOCKS => 1 << 30,
        // All rows and samples that the allocator has room for, as text.
        PROFILE => 32 << 20,
        _ => 1 << 20,
    }
}

fn error(kind: ErrorKind, what: String) -> io::Error {
    io::Error::new(kind, what)
}

/// Connects; waits no longer than `patience` for room in the listener's queue, and the same in each write. By hand:
/// the standard library's `connect` waits for ever.
fn connect(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let mut address = libc::sockaddr_un {
        sun_family: libc::AF_UNIX as libc::sa_family_t,
        sun_path: [0; 108],
    };
    let name = path.as_os_str().as_bytes();
    if name.len() >= address.sun_path.len() || name.contains(&0) {
        return Err(error(
            ErrorKind::InvalidInput,
            format!("{}: too long for the name of a socket", path.display()),
        ));
    }
    for (to, byte) in address.sun_path.iter_mut().zip(name) {
        *to = *byte as libc::c_char;
    }
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and has no other owner.
    let stream = unsafe { UnixStream::from_raw_fd(fd) };
    stream.set_write_timeout(Some(patience))?;
    let size = std::mem::size_of_val(&address) as libc::socklen_t;
    // SAFETY: the kernel reads an address of that size, closed by a zero byte.
    match unsafe { libc::connect(fd, (&raw const address).cast(), size) } {
        0 => Ok(stream),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the process that listens at a socket (A1).
fn listener(socket: &Path) -> io::Result<u32> {
    Ok(peer(&connect(socket, GLANCE)?)?.pid as u32)
}

/// Returns the process id in a socket's name, if it is a name of ours.
fn number(socket: &Path) -> Option<u32> {
    let ending = socket.extension()?;
    let is_ours = ending == REPORT || ending == HEAP;
    socket
        .file_stem()?
        .to_str()?
        .parse()
        .ok()
        .filter(|_| is_ours)
}

/// Returns the sockets of ours in a list of the kernel's. One reading leaves out some that are there while others close
/// (`collect::control`): it is read until three readings in a row add nothing, twenty times at most.
fn sockets(list: &str) -> Vec<PathBuf> {
    let mut found = BTreeSet::new();
    let mut idle = 0;
    for _ in 0..20 {
        let before = found.len();
        found.extend(sockets_in(&std::fs::read(list).unwrap_or_default()));
        idle = if found.len() == before { idle + 1 } else { 0 };
        if idle == 3 {
            break;
        }
    }
    found.into_iter().collect()
}

fn sockets_in(list: &[u8]) -> impl Iterator<Item = PathBuf> {
    let lines = list.split(|byte| *byte == b'\n');
    lines.filter_map(|line| {
        let at = line.windows(2).position(|part| part == b" /")?;
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(&line[at + 1..]));
        number(&path).is_some().then_some(path)
    })
}

/// Returns the sockets of a process, the one that reports most first. They come from the kernel's list, so any folder
/// will do; also those of a process in a container, if the caller may look into it.
pub fn sockets_of(pid: u32) -> Vec<PathBuf> {
    let (named, others): (Vec<PathBuf>, Vec<PathBuf>) = sockets("/proc/net/unix")
        .into_iter()
        .partition(|path| number(path) == Some(pid));
    let is_its = |path: &PathBuf| listener(path).is_ok_and(|who| who == pid);
    // The caller notes processes that cannot be asked.
    let is_not_known = |path: &PathBuf| listener(path).is_err();
    let mut found: Vec<PathBuf> = named.iter().filter(|path| is_its(path)).cloned().collect();
    if found.is_empty() {
        found = others.into_iter().filter(is_its).collect();
    }
    if found.is_empty() && is_elsewhere(pid) {
        let inside = |path: PathBuf| {
            let rest = path.strip_prefix("/").unwrap_or(&path);
            Path::new(&format!("/proc/{pid}/root")).join(rest)
        };
        let there = sockets(&format!("/proc/{pid}/net/unix"));
        found = there.into_iter().map(inside).filter(is_its).collect();
    }
    if found.is_empty() {
        found = named.into_iter().filter(is_not_known).collect();
    }
    found.sort_by_key(|path| !is_reporters(path));
    found
}

/// Returns whether a process sees other files, or another network, than this one.
fn is_elsewhere(pid: u32) -> bool {
    ["mnt", "net"].iter().any(|kind| {
        let of = |who: &str| std::fs::read_link(format!("/proc/{who}/ns/{kind}")).ok();
        of(&pid.to_string()).is_some_and(|there| of("self").is_some_and(|here| here != there))
    })
}

/// Returns whether a socket, by its name, is that of a program with reporters.
pub fn is_reporters(socket: &Path) -> bool {
    socket.extension().is_some_and(|ending| ending == REPORT)
}

/// Returns the process and socket of each process that this user may ask (A1). Connects to each socket.
pub fn listening() -> Vec<(u32, PathBuf)> {
    let mut found: Vec<(u32, PathBuf)> = sockets("/proc/net/unix")
        .into_iter()
        .filter_map(|path| match listener(&path) {
            // 0: the process cannot be seen from here.
            Ok(pid) => (pid != 0).then_some((pid, path)),
            // The process is too busy to accept: its name is all that is known.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Some((number(&path)?, path)),
            Err(_) => None,
        })
        .collect();
    found.sort();
    found
}

/// Removes sockets in this user's folder whose processes are gone and that have no listener. Returns their number.
pub fn clear_stale() -> usize {
    let Ok(entries) = std::fs::read_dir(folder()) else {
        return 0;
    };
    let mut cleared = 0;
    for path in entries.flatten().map(|entry| entry.path()) {
        // The number may be from another namespace: a process that listens is alive, whatever its number.
        let is_stale = number(&path).is_some_and(|pid| {
            !Path::new(&format!("/proc/{pid}")).exists()
                && listener(&path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        });
        if is_stale && std::fs::remove_file(&path).is_ok() {
            cleared += 1;
        }
    }
    cleared
}

/// Asks. `pid`: the process that is to answer (A2); 0 is any process of this user, or any at all if root asks.
///
/// # Errors
/// If no process answers, the wrong one does, or what comes is not an answer.
pub fn ask(socket: &Path, pid: u32, request: &str) -> io::Result<Answer> {
    ask_within(socket, pid, request, ANSWER_PATIENCE)
}

/// Asks as [`ask`] does, with another bound on the time.
///
/// # Errors
/// As for [`ask`].
pub fn ask_within(
    socket: &Path,
    pid: u32,
    request: &str,
    patience: Duration,
) -> io::Result<Answer> {
    let until = Instant::now() + patience;
    let full = |found: io::Error| match found.kind() {
        ErrorKind::WouldBlock => too_late(pid, "it takes no connection"),
        // A process that ends closes the connection: before it takes the request, or with the request unread.
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => hung_up(),
        _ => found,
    };
    let mut stream = connect(socket, PATIENCE).map_err(full)?;
    let who = peer(&stream)?.pid as u32;
    if pid != 0 && who != pid {
        let what = format!("process {who} answers in the place of {pid}");
        return Err(error(ErrorKind::PermissionDenied, what));
    }
    stream
        .write_all(format!("{request}\n").as_bytes())
        .map_err(full)?;
    let bytes = read_answer(&mut stream, who, request, until, patience)?;
    parse(bytes).ok_or_else(hung_up)
}

/// Returns the error for a connection that was closed before an answer came.
fn hung_up() -> io::Error {
    let what = "it hung up without an answer: the process ended, or it is another user's";
    error(ErrorKind::InvalidData, what.into())
}

/// Reads an answer within its bounds (A3, A4).
fn read_answer(
    stream: &mut UnixStream,
    who: u32,
    request: &str,
    until: Instant,
    patience: Duration,
) -> io::Result<Vec<u8>> {
    let longest = longest(request);
    let mut bytes = Vec::new();
    let mut part = vec![0; 64 << 10];
    let mut stopped: Option<Instant> = None;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let what = format!("no whole answer within {} s", patience.as_secs_f64());
            return Err(too_late(who, &what));
        }
        stream.set_read_timeout(Some(left.min(LOOK)))?;
        match stream.read(&mut part) {
            Ok(0) => return Ok(bytes),
            Ok(got) if bytes.len() + got > longest => {
                let what = format!(
                    "an answer of more than {} MiB: it is none of a program's that reports, or one that reports far \
                     too many lines",
                    longest >> 20
                );
                return Err(error(ErrorKind::InvalidData, what));
            }
            Ok(got) => bytes.extend_from_slice(part.get(..got).unwrap_or(&[])),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let since = match is_stopped(who) {
                    true => *stopped.get_or_insert_with(Instant::now),
                    false => {
                        stopped = None;
                        continue;
                    }
                };
                if since.elapsed() >= STOPPED_PATIENCE {
                    return Err(too_late(who, "no answer"));
                }
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Err(hung_up()),
            Err(error) => return Err(error),
        }
    }
}

/// Returns the error for an answer that is late: why it may be, and what can be done.
fn too_late(who: u32, what: &str) -> io::Error {
    let what = match is_stopped(who) {
        true => format!(
            "{what}: process {who} is stopped, by a signal or a debugger; `kill -CONT {who}` has it go on"
        ),
        false => format!("{what}: it hangs, or has more to do than it can; try again"),
    };
    error(ErrorKind::TimedOut, what)
}

/// Returns whether a process is stopped (state T or t of `/proc/PID/stat`).
fn is_stopped(pid: u32) -> bool {
    // Read as bytes, not as text: the process's name may be anything.
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.iter().rposition(|byte| *byte == b')');
    let state = state.and_then(|at| stat.get(at + 2));
    matches!(state, Some(b'T' | b't'))
}

fn parse(bytes: Vec<u8>) -> Option<Answer> {
    let at = bytes.iter().position(|byte| *byte == b'\n')?;
    let (word, rest) = (&bytes[..at], &bytes[at + 1..]);
    let text = || String::from_utf8_lossy(rest).into_owned();
    match word {
        b"figures" => Some(Answer::Figures(text())),
        b"profile" => Some(Answer::Profile(text())),
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
