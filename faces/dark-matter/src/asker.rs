//! Asks a recorded program's own reporters at a moment of its recording.
//!
//! ```text
//!   growth, mark, time, end ─► mark "dark matter N begin" ─► its socket: measure-blocks ─► mark "dark matter N end"
//!                                                                  └─► a memory report, kept until the next one
//! ```
//!
//! A1  What is judged later is what lives at both marks (dark.D1): so the measurement's own blocks are
//!     left out, and what the program did meanwhile is known.
//! A2  While a program grows, the newest measurement is kept; asking takes at most a tenth of the time.
//! A3  At one of the program's own marks, and at its end, the program stands still while it is asked, for ten seconds
//!     at most.
//! A4  Whatever goes wrong is reported when the recording is over; the program does not suffer from it.
//!
//! Not here: what a reporter notes (`reporters::named`), what is dark (dark.rs), where answers are kept (kept.rs).

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use skinflint_analysis::At;
use skinflint_collect::{Held, Session, Watched};
use skinflint_reporters::endpoint::{self, Answer, MEASURE_BLOCKS};
use skinflint_reporters::gathered;

use crate::reported::Reported;

/// How often we check whether a program has opened a socket.
const LOOK: Duration = Duration::from_millis(100);
/// Asking takes one part in this many of the time (A2).
const PAUSE_FACTOR: u32 = 10;

/// Which process is asked.
enum Whom {
    /// A process of the recording that has reporters.
    Own,
    Socket(PathBuf),
    Url(String),
}

/// When it is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
enum When {
    /// When its resident memory has grown by a tenth.
    Largest,
    End,
    Mark(String),
    After(Duration),
}

/// An answer of the program's reporters.
pub struct Taken {
    /// The process that answered.
    pub pid: u32,
    /// The memory report.
    pub json: Vec<u8>,
    /// The memory report, parsed.
    pub reported: Reported,
    /// Reporters that were left out, one line each.
    pub faults: Vec<String>,
    /// The marks before and after.
    pub marks: [String; 2],
}

/// Asks the program's reporters when it is time.
pub struct Asker {
    whom: Whom,
    when: When,
    begun: Instant,
    /// The process that has a socket, and the socket.
    found: Option<(u32, PathBuf)>,
    count: u32,
    /// Resident memory at the last measurement.
    largest_bytes: u64,
    next: Instant,
    taken: Option<Taken>,
    trouble: Option<String>,
    /// Is given what the user should know, in words.
    tell: fn(&str),
}

impl Asker {
    /// Creates an asker. `whom` is a URL, a socket, or nothing; `at` is the moment, as the report has it;
    /// `tell` is given what the user should know meanwhile, in words.
    ///
    /// # Errors
    /// If the moment is known only afterwards, or `whom` is none of the three.
    pub fn new(whom: &str, at: &str, tell: fn(&str)) -> Result<Asker> {
        let when = match At::named(at) {
            None => When::Largest,
            Some(At::End) => When::End,
            Some(At::Mark(name)) => When::Mark(name),
            Some(At::Time(ns)) => When::After(Duration::from_nanos(ns)),
            Some(_) => bail!(
                "--dark-matter --at {at}: that moment is known when the recording is over, and reporters answer while \
                 the program runs; use peak, end, a mark or a time"
            ),
        };
        let whom = match whom {
            "" => Whom::Own,
            url if url.starts_with("http://") => Whom::Url(url.to_owned()),
            path if path.contains('/') => Whom::Socket(PathBuf::from(path)),
            other => bail!(
                "--dark-matter={other}: give the URL of a page of `skinflint memory --page`, the path of a reporters' \
                 socket, or nothing for the program's own"
            ),
        };
        let now = Instant::now();
        Ok(Asker {
            whom,
            when,
            begun: now,
            found: None,
            count: 0,
            largest_bytes: 0,
            next: now,
            taken: None,
            trouble: None,
            tell,
        })
    }

    /// Returns the moments at which the session is to stop the program (A3).
    pub fn watched(&self) -> Option<Watched> {
        match &self.when {
            When::Mark(name) => Some(Watched::Mark(name.clone())),
            When::End => Some(Watched::End),
            When::Largest | When::After(_) => None,
        }
    }

    /// Asks if it is time. `main` is the program that was started.
    pub fn look(&mut self, session: &Session, main: u32) {
        while let Some(held) = session.held() {
            // One answer is enough at a mark; of several ends, the last one with reporters counts.
            if self.when == When::End || self.taken.is_none() {
                self.ask_held(session, main, &held);
            }
        }
        let now = Instant::now();
        if now < self.next {
            return;
        }
        match &self.when {
            When::After(time) if self.taken.is_none() && self.begun.elapsed() >= *time => {
                self.next = now + LOOK;
                self.ask(session, main, None);
            }
            When::Largest => {
                self.next = now + LOOK;
                let who = self.find(session, main, None);
                let Some(bytes) = who.and_then(|(pid, _)| resident_bytes(pid)) else {
                    return;
                };
                if bytes > self.largest_bytes + self.largest_bytes / 10 {
                    self.ask(session, main, None);
                    self.largest_bytes = bytes;
                    self.next = Instant::now() + (now.elapsed() * PAUSE_FACTOR).max(LOOK);
                }
            }
            _ => {}
        }
    }

    fn ask_held(&mut self, session: &Session, main: u32, held: &Held) {
        // A process that ends without having had reporters does not matter if others have them.
        self.find(session, main, Some(held.pid));
        let is_other = self.found.as_ref().is_some_and(|(pid, _)| *pid != held.pid);
        if self.when == When::End && is_other && self.taken.is_some() {
            return;
        }
        self.ask(session, main, Some(held.pid));
    }

    /// Finds the process to ask: the preferred one, the program, or any process of the recording.
    fn find(&mut self, session: &Session, main: u32, first: Option<u32>) -> Option<(u32, PathBuf)> {
        match &self.whom {
            Whom::Url(_) => return Some((main, PathBuf::new())),
            Whom::Socket(path) => {
                return path.exists().then(|| (main, path.clone()));
            }
            Whom::Own => {}
        }
        let preferred = first.unwrap_or(main);
        if let Some((pid, socket)) = &self.found
            && *pid == preferred
            && socket.exists()
        {
            return self.found.clone();
        }
        let pids = session.pids();
        let listening = endpoint::listening();
        let of = |pid: u32| {
            listening
                .iter()
                .find(|(other, socket)| *other == pid && endpoint::is_reporters(socket))
        };
        let found = [preferred, main].into_iter().chain(pids).find_map(of);
        self.found = found.cloned();
        self.found.clone()
    }

    fn ask(&mut self, session: &Session, main: u32, first: Option<u32>) {
        match self.try_ask(session, main, first) {
            Ok(taken) => {
                if self.when != When::Largest {
                    (self.tell)(&format!("process {} has answered --dark-matter", taken.pid));
                }
                self.taken = Some(taken);
                self.trouble = None;
            }
            Err(error) => self.trouble = Some(format!("{error:#}")),
        }
    }

    fn try_ask(&mut self, session: &Session, main: u32, first: Option<u32>) -> Result<Taken> {
        let Some((pid, socket)) = self.find(session, main, first) else {
            bail!(NOBODY);
        };
        self.count += 1;
        let marks = ["begin", "end"].map(|edge| format!("dark matter {} {edge}", self.count));
        session.mark_now(&marks[0]).map_err(anyhow::Error::msg)?;
        let (json, faults) = match &self.whom {
            Whom::Own => of_socket(&socket, pid)?,
            Whom::Socket(_) => of_socket(&socket, 0)?,
            Whom::Url(url) => (gathered::saved_by(url, "blocks=1")?, Vec::new()),
        };
        session.mark_now(&marks[1]).map_err(anyhow::Error::msg)?;
        let reported = Reported::read(&json[..]).context("the reporters' answer")?;
        let mut pids = session.pids().into_iter().chain([pid, main]);
        let pid = pids
            .find(|pid| reported.choose_pid(*pid).is_some())
            .with_context(|| {
                format!(
                    "who was asked is not of this recording: {}",
                    reported.processes.join(", ")
                )
            })?;
        Ok(Taken {
            pid,
            json,
            reported,
            faults,
            marks,
        })
    }

    /// Returns what was measured.
    ///
    /// # Errors
    /// If nothing was measured: the reason, in words (A4).
    pub fn finish(self) -> Result<Taken> {
        if let Some(taken) = self.taken {
            if let Some(trouble) = self.trouble {
                (self.tell)(&format!(
                    "--dark-matter: the last answer counts that came: {trouble}"
                ));
            }
            return Ok(taken);
        }
        if let Some(trouble) = self.trouble {
            bail!(trouble);
        }
        match self.when {
            When::Mark(name) => {
                bail!(
                    "the program ended, and there was no mark {name:?} before; --at end, or another mark"
                )
            }
            When::After(time) => bail!(
                "the program ended before it had run for {time:?}; give an earlier moment with --at"
            ),
            When::End => bail!(
                "the program ended in no orderly way, so it could not be asked; give a mark or a time with --at"
            ),
            When::Largest => bail!(NOBODY),
        }
    }
}

const NOBODY: &str = "no process of the program can be asked: none has a reporters' socket open (Endpoint::open, \
                      skinflint_memory_open, skinflint_report.open: docs/memory.md), or it was closed before";

fn resident_bytes(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

/// Takes a measurement with blocks, and returns the reporters that were left out of it.
fn of_socket(socket: &Path, pid: u32) -> Result<(Vec<u8>, Vec<String>)> {
    let shown = || socket.display().to_string();
    match endpoint::ask(socket, pid, MEASURE_BLOCKS).with_context(shown)? {
        Answer::Report { faults, json } => Ok((json, faults)),
        Answer::No(said) => bail!(
            "{}: it cannot say which blocks it has measured ({said}): build it with reporters of this version",
            shown()
        ),
        _ => bail!("{}: it answers, and not with a memory report", shown()),
    }
}
