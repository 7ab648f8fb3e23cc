//! The control socket: a running session is told to start, stop, mark, take a snapshot, or report its status.
//!
//! ```text
//!   skinflint ctl ── {"do":"mark","name":"x"}\n ──► <folder of the session>/ctl     (0600: its owner alone)
//!                 ◄── {"ok":true, "status":{…}}\n ──
//! ```
//!
//! E1  One line each way, JSON; a request is [`REQUEST_BYTES`] long at most and comes within [`PATIENCE`].
//! E2  Only the session's own user, and root, can connect: the kernel checks the socket's mode.
//! E3  An answer comes when the request has been done, not when it was received.
//! E4  The program is not disturbed: no signal, no ptrace; and a silent connection holds up only other connections.
//!
//! Not here: what the words do (session.rs).

use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::server;

/// The name of the socket in the session's folder.
const NAME: &str = "ctl";
/// The longest request, in bytes.
pub const REQUEST_BYTES: usize = 4096;
/// The longest answer, in bytes: a build has thousands of processes.
const REPLY_BYTES: u64 = 16 << 20;
/// The longest wait for a request.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// The longest wait for an answer: a snapshot of a large program takes seconds.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);

/// A command to a session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// Record from now on.
    Start,
    /// Record no acquisitions from now on.
    Stop,
    /// Name this moment, in all processes.
    Mark {
        /// The name of the mark.
        name: String,
    },
    /// Read all memory now, as a mark `snapshot N`.
    Snapshot,
    /// Report the status.
    Status,
    /// Leave a program that was running before the session.
    Detach,
}

/// Which events are recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// All events.
    Recording,
    /// Only releases.
    Stopped,
    /// None yet.
    NotBegun,
    /// The program ran before, and not all of its modules lead to the recorder yet.
    Attaching,
}

/// The status of a session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The process id of skinflint.
    pub collector: u32,
    /// Which events it records.
    pub state: State,
    /// Whether the program ran before the session.
    pub attached: bool,
    /// The number of processes that said hello so far.
    pub met: usize,
    /// The processes that are being recorded.
    pub processes: Vec<Process>,
}

/// A living process of a session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Process {
    /// The kernel's process id.
    pub pid: u32,
    /// The name of the process.
    pub name: String,
    /// The file of its trace.
    pub trace: PathBuf,
    /// Resident memory at the newest sample, bytes.
    pub rss_bytes: u64,
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reply {
    /// Whether it was done.
    pub ok: bool,
    /// Why it was not done; empty if it was.
    #[serde(default)]
    pub error: String,
    /// The name of the mark that was set, if one was.
    #[serde(default)]
    pub mark: String,
    /// The present status of the session.
    pub status: Option<Status>,
}

impl Reply {
    pub(crate) fn done(status: Status, mark: &str) -> Reply {
        Reply {
            ok: true,
            error: String::new(),
            mark: mark.to_owned(),
            status: Some(status),
        }
    }

    pub(crate) fn refused(error: String) -> Reply {
        Reply {
            ok: false,
            error,
            mark: String::new(),
            status: None,
        }
    }
}

/// The side that answers requests.
pub(crate) trait Answer {
    /// Does what is asked, and returns the answer.
    fn answer(&self, request: &Request) -> Reply;
}

/// The listening end.
pub(crate) struct ControlSocket(UnixListener);

impl ControlSocket {
    /// Listens in the session's folder, for its owner alone (E2).
    pub(crate) fn open(folder: &Path) -> io::Result<ControlSocket> {
        // Made under another name in a folder of our own: no process can connect before the mode is right.
        let (fresh, path) = (folder.join(".ctl"), folder.join(NAME));
        let listener = UnixListener::bind(&fresh)?;
        std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o600))?;
        std::fs::rename(&fresh, &path)?;
        Ok(ControlSocket(listener))
    }

    /// Answers requests, one after the other, until `is_over` returns true.
    pub(crate) fn serve(&self, who: &impl Answer, is_over: impl Fn() -> bool) {
        use std::os::fd::AsRawFd;
        while !is_over() {
            if !server::poll(&[self.0.as_raw_fd()], 50)[0] {
                continue;
            }
            let Ok((mut stream, _)) = self.0.accept() else {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            };
            let reply = match hear(&mut stream) {
                Ok(request) => who.answer(&request),
                Err(error) => Reply::refused(error),
            };
            // A client that does not read the answer does not need it.
            let _ = stream.set_write_timeout(Some(PATIENCE));
            let _ = say(&mut stream, &reply);
        }
    }
}

fn say(stream: &mut UnixStream, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Reads a request (E1), or says what is wrong with it.
fn hear(stream: &mut UnixStream) -> Result<Request, String> {
    let until = Instant::now() + PATIENCE;
    let mut line = Vec::new();
    let mut part = [0; 512];
    while !line.contains(&b'\n') {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            return Err(format!("no request within {PATIENCE:?}"));
        }
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(n) => line.extend_from_slice(&part[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(format!("no request within {PATIENCE:?}")),
        }
        if line.len() > REQUEST_BYTES {
            return Err(format!("a request of more than {REQUEST_BYTES} bytes"));
        }
    }
    serde_json::from_slice(line.trim_ascii()).map_err(|error| {
        format!(
            "not a request: {error}; as in {{\"do\":\"status\"}}, with start, stop, mark (and its name), snapshot, \
             status or detach"
        )
    })
}

/// Asks the session behind a socket.
///
/// # Errors
/// If no session answers, or the answer is not JSON of this form.
pub fn ask(socket: &Path, request: &Request) -> io::Result<Reply> {
    if serde_json::to_vec(request)?.len() >= REQUEST_BYTES {
        let text = format!("a request may have {REQUEST_BYTES} bytes: give a shorter name");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    say(&mut stream, request)?;
    let mut line = Vec::new();
    stream.take(REPLY_BYTES).read_to_end(&mut line)?;
    serde_json::from_slice(line.trim_ascii()).map_err(io::Error::other)
}

/// Returns the control sockets of all sessions on this machine, of any user, from the kernel's list.
pub fn sockets() -> Vec<PathBuf> {
    all_of(|| {
        let list = std::fs::read("/proc/net/unix").unwrap_or_default();
        sockets_in(&String::from_utf8_lossy(&list))
    })
}

/// Returns what any of several readings of the list has. The kernel goes on by position from one page of the list to the
/// next: where other sockets close meanwhile, it leaves out some that are there (one reading in 1,200 beside two
/// processes that do nothing else). Three readings in a row that add nothing are enough, and twenty at any rate.
/// `reporters::asker` does the same, and may use nothing from here.
fn all_of(mut reading: impl FnMut() -> Vec<PathBuf>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut idle = 0;
    for _ in 0..20 {
        let before = found.len();
        found.extend(reading());
        found.sort();
        found.dedup();
        idle = if found.len() == before { idle + 1 } else { 0 };
        if idle == 3 {
            break;
        }
    }
    found
}

fn sockets_in(list: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = list
        .lines()
        .filter_map(|line| line.split_once(" /").map(|(_, path)| format!("/{path}")))
        // The kernel has the name under which the socket was made.
        .filter_map(|path| Some(PathBuf::from(path.strip_suffix("/.ctl")?)))
        .filter(|folder| {
            let name = folder.file_name().unwrap_or_default();
            name.to_string_lossy().starts_with("skinflint-")
        })
        .map(|folder| folder.join(NAME))
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    #[test]
    fn what_one_reading_of_the_list_leaves_out_another_has() {
        let path = |name: &str| PathBuf::from(name);
        let lists: [&[&str]; 4] = [&["b"], &[], &["a"], &["b"]];
        let mut readings = lists.iter();
        let found = all_of(|| {
            let list = readings.next().unwrap_or(&lists[3]);
            list.iter().map(|name| path(name)).collect()
        });
        assert_eq!(found, [path("a"), path("b")]);
        let mut readings = 0;
        let none = all_of(|| {
            readings += 1;
            Vec::new()
        });
        assert_eq!((none.len(), readings), (0, 3));
    }

    /// Counts what it hears.
    struct Parrot(AtomicU64);

    impl Answer for Parrot {
        fn answer(&self, request: &Request) -> Reply {
            // ORDER: Relaxed; a counter.
            let number = self.0.fetch_add(1, Ordering::Relaxed) + 1;
            Reply::refused(format!("{number} {request:?}"))
        }
    }

    /// Runs `client` against a socket that is open meanwhile.
    fn with_socket(client: impl FnOnce(&Path)) {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = ControlSocket::open(folder.path()).expect("a socket");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // ORDER: Relaxed; a flag.
            scope.spawn(|| {
                socket.serve(&Parrot(AtomicU64::new(0)), || over.load(Ordering::Relaxed))
            });
            let result =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client(folder.path())));
            over.store(true, Ordering::Relaxed); // ORDER: Relaxed; as above.
            if let Err(panic) = result {
                std::panic::resume_unwind(panic);
            }
        });
    }

    #[test]
    fn requests_and_answers() {
        with_socket(|folder| {
            let socket = folder.join(NAME);
            let mode = std::fs::metadata(&socket).expect("it").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let name = "a \"b\"\n".to_owned();
            let reply = ask(&socket, &Request::Mark { name: name.clone() }).expect("an answer");
            assert_eq!(reply.error, format!("1 {:?}", Request::Mark { name }));
            let reply = ask(&socket, &Request::Status).expect("an answer");
            assert_eq!(reply.error, "2 Status");
        });
    }

    #[test]
    fn nonsense_is_answered_in_words() {
        with_socket(|folder| {
            let long = vec![b'x'; REQUEST_BYTES + 1];
            for (nonsense, answer) in [
                (&b"{\"do\":\"jump\"}\n"[..], "unknown variant `jump`"),
                (b"\xff\xfe\n", "not a request"),
                (b"", "not a request"),
                (&long, "more than 4096 bytes"),
            ] {
                let mut stream = UnixStream::connect(folder.join(NAME)).expect("connects");
                let _ = stream.write_all(nonsense);
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let mut text = String::new();
                stream.read_to_string(&mut text).expect("an answer");
                assert!(text.contains(answer), "{nonsense:?}: {text}");
            }
        });
    }

    #[test]
    fn sockets_by_the_kernels_list() {
        let list = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                    0000: 00000002 00000000 00010000 0001 01 1 /tmp/skinflint-00ff/.ctl\n\
                    0000: 00000002 00000000 00010000 0005 01 2 /tmp/skinflint-00ff/s\n\
                    0000: 00000002 00000000 00010000 0001 01 3 /tmp/other/.ctl\n\
                    0000: 00000003 00000000 00000000 0001 03 4\n\
                    0000: 00000002 00000000 00010000 0001 01 5 /tmp/a b/skinflint-1/.ctl\n";
        let found = sockets_in(list);
        let expected = ["/tmp/a b/skinflint-1/ctl", "/tmp/skinflint-00ff/ctl"];
        assert_eq!(found, expected.map(PathBuf::from));
    }
}
