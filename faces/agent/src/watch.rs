//! The processes that keep a profile, found by their sockets, and their books, closed again and again.
//!
//! ```text
//!   /proc/net/unix ─► sockets PID.heap of this user ─► "profile", "measure" ─► Taken ─► Board: one line for each process
//! ```
//!
//! W1  Only processes of this user are asked; those of others as well if root wants it (`all_users`).
//! W2  A process is its number and its start: a number that is given again is another process.
//! W3  A process that does not answer in time is asked less and less often, down to once in [`SELDOM`] closings; it holds up the
//!     others by [`PATIENCE`] at most. A stopped one is not asked.
//! W4  What was asked for since the last closing of a process that has ended is lost, and counted (`unclosed`). So is what was asked for
//!     before the first closing of a process that ran when the agent began (`met_running`): an agent before it may have ended
//!     at any moment.
//! W5  At most [`MOST`] processes are watched; how many more there are is said.
//!
//! Not here: HTTP (`serve`), where profiles are sent to (`push`).

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use skinflint_procfs::status;
use skinflint_reporters::endpoint::{self, Answer};

use crate::books::{self, Books};
use crate::heap::Heap;
use crate::labels::{self, Labels};
use crate::modules::{self, Known, Stacks};

/// The longest wait for one answer: a machine may be busy.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most closings between two tries.
const SELDOM: u32 = 32;
/// The most processes.
const MOST: usize = 1_000;

/// Which processes, and what they are labelled with.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Processes of other users, too.
    pub all_users: bool,
    /// The folder of the downward API's files, as a process sees it.
    pub podinfo: PathBuf,
    /// Labels for all of them.
    pub labels: Labels,
}

/// Why there is no profile.
#[derive(Clone, Debug)]
pub enum Untaken {
    /// The process keeps none, or has ended.
    None(String),
    /// It did not answer, or not as it should.
    Failed(String),
}

impl Untaken {
    /// Returns the reason, in words.
    pub fn words(&self) -> &str {
        match self {
            Untaken::None(why) | Untaken::Failed(why) => why,
        }
    }
}

/// A profile that was just taken.
pub struct Taken {
    /// The profile.
    pub heap: Heap,
    /// Its stacks as places in files.
    pub stacks: Stacks,
    /// The books; none: the allocator is of another version.
    pub books: Option<Books>,
}

/// A process.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// Its number.
    pub pid: u32,
    started: u64,
    /// Its labels.
    pub labels: Labels,
    /// Sums of its books: RSS, types in their order, what samples are off; none yet.
    pub closed: Option<(i64, books::Row, i64)>,
    /// Why the last try failed; empty: it did not.
    pub failure: String,
    failures: u32,
    wait: u32,
}

impl Watched {
    /// Returns what names it as long as the machine runs (W2).
    pub fn key(&self) -> (u32, u64) {
        (self.pid, self.started)
    }
}

/// What is known of all processes, and what was counted.
#[derive(Default)]
pub struct Board {
    /// By number.
    pub processes: BTreeMap<u32, Watched>,
    /// Rounds over all processes.
    pub rounds: u64,
    /// Books that were closed.
    pub closings: u64,
    /// Tries without an answer.
    pub failures: u64,
    /// Processes that have ended with something unclosed (W4).
    pub unclosed: u64,
    /// Processes that ran when the agent began (W4).
    pub met_running: u64,
    /// Processes beyond [`MOST`].
    pub beyond: usize,
    /// Requests by HTTP.
    pub requests: u64,
}

/// What the threads share.
pub struct Shared {
    /// Which processes.
    pub scope: Scope,
    /// What is known.
    pub board: Mutex<Board>,
    known: Mutex<Known>,
    /// When this process began, as the kernel tells it of all.
    began_ticks: u64,
}

/// Takes a lock: what a thread that panicked leaves behind is whole, as each change is one assignment.
pub fn locked<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn user() -> u32 {
    // SAFETY: no memory is involved.
    unsafe { libc::geteuid() }
}

/// Returns the socket on which a process's allocator answers.
fn socket_of(pid: u32) -> Result<PathBuf, Untaken> {
    let mut sockets = endpoint::sockets_of(pid).into_iter();
    let found = sockets.find(|socket| !endpoint::is_reporters(socket));
    found.ok_or_else(|| {
        Untaken::None(format!(
            "process {pid} keeps no profile: start it by `skinflint exec --profile`, or with SKINFLINT_PROFILE=on"
        ))
    })
}

/// Returns the start of a process that has not ended, and whether it is stopped.
fn started(pid: u32) -> Option<(u64, bool)> {
    let stat = skinflint_procfs::stat(pid)?;
    let is_stopped = matches!(stat.state, b'T' | b't');
    (!stat.is_dead()).then_some((stat.started_ticks, is_stopped))
}

impl Shared {
    /// Creates it, without any process.
    pub fn new(scope: Scope) -> Shared {
        Shared {
            scope,
            board: Mutex::default(),
            known: Mutex::default(),
            began_ticks: started(std::process::id()).map_or(0, |(start, _)| start),
        }
    }

    /// Returns why a process is none of those that are asked (W1).
    pub fn refusal(&self, pid: u32) -> Option<String> {
        match status::user(pid) {
            None => Some(format!("there is no process {pid}")),
            Some(other) if other != user() && !self.scope.all_users => Some(format!(
                "process {pid} is another user's (user {other}): an agent of that user can read it, or root's with --all-users"
            )),
            Some(_) => None,
        }
    }

    /// Takes a process's profile, by its socket or by that which is found.
    ///
    /// # Errors
    /// Why there is none.
    pub fn take(&self, pid: u32, socket: Option<&Path>) -> Result<Taken, Untaken> {
        let ended = || Untaken::None(format!("process {pid} has ended, or is about to"));
        let (start, is_stopped) = started(pid).ok_or_else(ended)?;
        if is_stopped {
            let why = format!("process {pid} is stopped; `kill -CONT {pid}` has it go on");
            return Err(Untaken::Failed(why));
        }
        let socket = match socket {
            Some(socket) => socket.to_owned(),
            None => socket_of(pid)?,
        };
        let failed = |why: &dyn std::fmt::Display| match started(pid) {
            Some((now, _)) if now == start => Untaken::Failed(format!("process {pid}: {why}")),
            _ => ended(),
        };
        let ask = |request: &str| {
            let answer = endpoint::ask_within(&socket, pid, request, PATIENCE);
            answer.map_err(|error| match error.kind() {
                // Its sockets go before the process does.
                ErrorKind::ConnectionRefused | ErrorKind::NotFound => ended(),
                _ => failed(&error),
            })
        };
        let text = match ask(endpoint::PROFILE)? {
            Answer::Profile(text) => text,
            Answer::No(said) => return Err(Untaken::None(format!("process {pid}: {said}"))),
            _ => return Err(failed(&"an answer of another version")),
        };
        let heap =
            Heap::read(&text).ok_or_else(|| failed(&"its profile was cut off; try again"))?;
        drop(text);
        let figures = match ask("measure")? {
            Answer::Figures(text) => serde_json::from_str(&text).unwrap_or_default(),
            _ => serde_json::Value::Null,
        };
        let kernel = status::memory(pid).ok_or_else(ended)?;
        let stacks = modules::stacks(pid, &heap, &mut locked(&self.known));
        let books = books::close(&heap, &figures, &kernel);
        Ok(Taken {
            heap,
            stacks,
            books,
        })
    }

    /// Closes the books of all processes, and shows each to `each`. Cost: two answers of each process, one after the other.
    pub fn round(&self, each: &mut dyn FnMut(&Watched, &Taken)) {
        let mut found: BTreeMap<u32, PathBuf> = BTreeMap::new();
        let mut beyond = 0;
        for (pid, socket) in endpoint::listening() {
            if endpoint::is_reporters(&socket) || self.refusal(pid).is_some() {
                continue;
            }
            match found.len() < MOST || found.contains_key(&pid) {
                true => drop(found.insert(pid, socket)),
                false => beyond += 1,
            }
        }
        self.forget(&found, beyond);
        for (pid, socket) in found {
            if let Some(mut watched) = self.due(pid) {
                let taken = self.take(pid, Some(&socket));
                if let Ok(taken) = &taken {
                    each(&watched, taken);
                }
                let is_first = watched.closed.is_none();
                note(&mut watched, &taken);
                let mut board = locked(&self.board);
                match taken {
                    Ok(_) => {
                        board.closings += 1;
                        let was_before = watched.started <= self.began_ticks;
                        board.met_running += u64::from(is_first && was_before);
                    }
                    // It is asked again in the next round: a profile may be started at any time.
                    Err(Untaken::None(_)) if watched.closed.is_none() => continue,
                    Err(_) => board.failures += 1,
                }
                board.processes.insert(pid, watched);
            }
        }
        locked(&self.board).rounds += 1;
    }

    /// Drops the processes that have ended (W2, W4).
    fn forget(&self, found: &BTreeMap<u32, PathBuf>, beyond: usize) {
        let mut board = locked(&self.board);
        let before = board.processes.len();
        board.processes.retain(|pid, watched| {
            let same = started(*pid).is_some_and(|(start, _)| start == watched.started);
            same && (found.contains_key(pid) || watched.closed.is_some())
        });
        board.unclosed += (before - board.processes.len()) as u64;
        board.beyond = beyond;
    }

    /// Returns a process if it is to be asked in this round (W3).
    fn due(&self, pid: u32) -> Option<Watched> {
        let known = locked(&self.board).processes.get(&pid).cloned();
        let labels = || labels::of(pid, &self.scope.podinfo, &self.scope.labels);
        if let Some(mut watched) = known {
            // It may have become another program, which has its number and its start.
            watched.labels = labels();
            if watched.wait > 0 {
                watched.wait -= 1;
                locked(&self.board).processes.insert(pid, watched);
                return None;
            }
            return Some(watched);
        }
        let (start, _) = started(pid)?;
        Some(Watched {
            pid,
            started: start,
            labels: labels(),
            ..Watched::default()
        })
    }
}

/// Notes what came of a try.
fn note(watched: &mut Watched, taken: &Result<Taken, Untaken>) {
    match taken {
        Ok(taken) => {
            let books = taken.books.as_ref();
            watched.closed = books.map(|books| (books.rss_bytes, books.totals(), books.sampling()));
            watched.failure = match books {
                Some(_) => String::new(),
                None => "its allocator is of another version: no books".into(),
            };
            (watched.failures, watched.wait) = (0, 0);
        }
        Err(why) => {
            watched.failure = why.words().to_owned();
            watched.wait = (1 << watched.failures.min(5)).min(SELDOM) - 1;
            watched.failures += 1;
        }
    }
}
