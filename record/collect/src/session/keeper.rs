//! The thread that fetches the heap profile that a program serves.
//!
//! ```text
//!   first profile ─► a trace of its own ─┬─ memory has grown by a tenth, or two seconds have passed ─► profile, snapshot
//!                                        ├─ a mark ─► profile ─► the drain makes the mark
//!                                        └─ the program waits at its end, or is left ─► the last profile
//! ```
//!
//! J1  Fetching takes at most a twentieth of the time, but for marks and the end: a profile costs the program as well.
//! J2  A program that does not listen yet is asked again; what else goes wrong is said once, and asked again all the same.
//! J3  The trace begins with the first profile, which tells the distance of samples. Without one there is no trace, and why is
//!     said at the end.
//!
//! Not here: HTTP and profiles (served/).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use skinflint_procfs::{Status, stat};
use skinflint_trace::SnapshotCause;

use super::{Meeting, Session, spawn};
use crate::drain::Message;
use crate::process::{Process, lock};
use crate::sampler::Ask;
use crate::served::{Errand, Profile, ProfileUrl, Trouble};

/// The time between two looks at the program's memory.
const LOOK: Duration = Duration::from_millis(50);
/// The time after which a profile is fetched when nothing else asks for it.
const PERIOD: Duration = Duration::from_secs(2);
/// The time between two tries while nothing listens.
const AGAIN: Duration = Duration::from_millis(100);
/// The pause after a profile is this many times its cost (J1).
const PAUSE_FACTOR: u32 = 20;
/// The longest that an answer may take; at the end, where the program waits for it; and the least pause.
const PATIENCE: Duration = Duration::from_secs(5);
const LAST_PATIENCE: Duration = Duration::from_secs(2);
const LEAST_PAUSE: Duration = Duration::from_millis(100);

impl Session {
    /// Keeps the heap profile that a process serves. `is_beside`: its blocks are recorded, too, and the profile gets a trace
    /// beside that.
    ///
    /// # Errors
    /// If there is no thread for it.
    pub fn keep_profile(&self, pid: u32, url: ProfileUrl, is_beside: bool) -> std::io::Result<()> {
        let (asks, asked) = channel();
        lock(&self.meeting.keepers).push(asks.clone());
        let mut keeper = Keeper {
            meeting: Arc::clone(&self.meeting),
            sampler: self.asks.clone(),
            pid,
            url,
            is_beside,
            asks,
            process: None,
            seen_bytes: 0,
            next: Instant::now(),
            next_hasty: Instant::now(),
            wrong: String::new(),
            failures: 0,
            said: String::new(),
        };
        let thread = spawn("profile", move || keeper.run(&asked))?;
        lock(&self.keepers).push(thread);
        Ok(())
    }

    /// Returns what is to be said of a profile that cannot be had, once.
    pub fn profile_news(&self) -> Option<String> {
        lock(&self.meeting.news).pop()
    }

    /// Waits for the threads, which end with the session.
    pub(super) fn end_keepers(&self) {
        let all = std::mem::take(&mut *lock(&self.keepers));
        for keeper in all {
            let _ = keeper.join();
        }
    }
}

struct Keeper {
    meeting: Arc<Meeting>,
    sampler: Sender<Ask>,
    pid: u32,
    url: ProfileUrl,
    is_beside: bool,
    /// For the process, which others reach the thread by.
    asks: Sender<Errand>,
    /// The process, once there was a profile (J3).
    process: Option<Arc<Process>>,
    /// Its resident memory when the last was fetched.
    seen_bytes: u64,
    next: Instant,
    next_hasty: Instant,
    /// What went wrong last, how often one after another, and what of it was said (J2).
    wrong: String,
    failures: u32,
    said: String,
}

impl Keeper {
    /// Fetches for as long as the process and the session last.
    fn run(&mut self, asked: &Receiver<Errand>) {
        let status = Status::open(self.pid);
        let resident = || {
            status
                .as_ref()
                .and_then(Status::memory)
                .map(|memory| memory.rss_bytes())
        };
        // Whatever becomes of the program, once.
        self.look(resident().unwrap_or(0));
        while !self.is_over() {
            match asked.recv_timeout(LOOK) {
                Ok(request) => self.answer(request),
                Err(RecvTimeoutError::Timeout) => {
                    let (Some(bytes), now) = (resident(), Instant::now()) else {
                        break;
                    };
                    let has_grown = bytes > self.seen_bytes + self.seen_bytes / 10;
                    // CLOCK: how often a program is asked; nothing is judged by it
                    if now >= self.next || has_grown && now >= self.next_hasty {
                        self.look(bytes);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // What still waits for an answer goes on without one.
        while let Ok(request) = asked.try_recv() {
            if let Errand::Last(goes_on) = request {
                goes_on();
            }
        }
        self.has_none();
    }

    fn is_over(&self) -> bool {
        // ORDER: Relaxed for both; flags, looked at again within a time-out.
        let has_ended = |process: &Arc<Process>| process.ended.load(Ordering::Relaxed);
        self.meeting.stop.load(Ordering::Relaxed)
            || self.process.as_ref().is_some_and(has_ended)
            || stat(self.pid).is_none_or(|stat| stat.wait_status.is_some())
    }

    /// Fetches as memory has grown, or time has passed; a snapshot belongs to it.
    fn look(&mut self, resident_bytes: u64) {
        let has_grown = resident_bytes > self.seen_bytes;
        if !self.fetch(PATIENCE) {
            return;
        }
        self.seen_bytes = resident_bytes;
        if let Some(process) = &self.process {
            let cause = match has_grown {
                true => SnapshotCause::Peak,
                false => SnapshotCause::Periodic,
            };
            self.snapshot(process, cause, None);
        }
    }

    fn snapshot(&self, process: &Arc<Process>, cause: SnapshotCause, waiting: Option<Sender<()>>) {
        if cause == SnapshotCause::Exit {
            process.ends_now();
        }
        let done = process.first.header().snapshot_done.load(Ordering::Relaxed); // ORDER: Relaxed; put back as it is.
        let _ = self
            .sampler
            .send(Ask::Snapshot(Arc::clone(process), cause, done, waiting));
    }

    fn answer(&mut self, request: Errand) {
        match request {
            Errand::Mark(name, waiting) => {
                self.fetch(PATIENCE);
                if let Some(process) = &self.process {
                    self.meeting
                        .send(Message::MarkOf(process.index, name, waiting));
                }
            }
            Errand::Last(goes_on) => {
                self.fetch(LAST_PATIENCE);
                if let Some(process) = &self.process {
                    self.snapshot(process, SnapshotCause::Exit, None);
                }
                goes_on();
            }
            Errand::Leave(waiting) => {
                self.fetch(LAST_PATIENCE);
                if let Some(process) = &self.process {
                    self.snapshot(process, SnapshotCause::Exit, Some(waiting));
                }
            }
        }
    }

    /// Fetches a profile; false if there is none.
    fn fetch(&mut self, patience: Duration) -> bool {
        let begun = Instant::now();
        let fetched = self.url.fetch(patience);
        let cost = begun.elapsed();
        let pause = LEAST_PAUSE.max(cost * PAUSE_FACTOR);
        (self.next, self.next_hasty) = (Instant::now() + PERIOD.max(pause), Instant::now() + pause);
        match fetched {
            Ok(profile) => self.take(&profile),
            Err(trouble) => {
                if matches!(trouble, Trouble::Silent(_)) {
                    self.next = Instant::now() + AGAIN;
                }
                self.say(&trouble);
                return false;
            }
        }
        true
    }

    fn take(&mut self, profile: &Profile) {
        self.wrong.clear();
        self.failures = 0;
        if self.process.is_none() {
            let (url, asks) = (self.url.as_str(), self.asks.clone());
            self.process = self
                .meeting
                .begin_served(self.pid, profile, url, asks, self.is_beside);
        }
        let Some(process) = &self.process else {
            return;
        };
        if let Some(outside) = &process.outside {
            outside.take_profile(profile, &process.first, process.now_ns());
        }
    }

    /// Says what is wrong, once (J2). A program that has served it may be about to end: then it takes a second time.
    fn say(&mut self, trouble: &Trouble) {
        self.failures += 1;
        trouble.words().clone_into(&mut self.wrong);
        let is_sure = self.process.is_none() || self.failures > 1;
        if matches!(trouble, Trouble::Wrong(_)) && is_sure && !self.is_over() {
            self.tell();
        }
    }

    /// Says at the end that there was no profile (J3).
    fn has_none(&mut self) {
        if self.process.is_none() && !self.wrong.is_empty() {
            self.tell();
        }
    }

    fn tell(&mut self) {
        if self.said == self.wrong {
            return;
        }
        self.said.clone_from(&self.wrong);
        let news = format!("--pprof {}: {}", self.url.as_str(), self.said);
        lock(&self.meeting.news).insert(0, news);
    }
}
