//! Processes that came out of recorded ones and never said hello.
//!
//! ```text
//!   notifier: exec, spawn ─► missed[pid] ─ hello of pid ─► nothing is missing
//!   /proc: newborn pids ─►    │      ─ ended, or its origin does ─► LostProcess, in the trace of its origin
//!   notifier: lost, meets ──────┘
//! ```
//!
//! J1  A process that says hello after its notice is recorded, and not lost: unless it was seen as another program
//!     before, or one that cannot have loaded the recorder. A hello reaches the drain before it is answered, so the
//!     hello of a process that has ended has been read by now, if there was one.
//! J2  A living process is judged when its origin's trace is closed, and then by what it has mapped: one with the
//!     recorder loaded will say hello, and one that has only its program and its loader mapped is waited for.
//! J3  A forged notice cannot harm us: a notice can only add to a list, which is bounded.
//! J4  A copy that has made no heap call is missed like any other child, and waited for while it lives: its hello may
//!     come yet. When it ends without one, it is named, however short its life and little its memory, up to
//!     [`MOST_QUIET_COPIES`] of one process: the report decides whether anything is missing by it. What it wrote can be
//!     told from what it inherited only while the process that it copies lives: afterwards no other process has the
//!     inherited pages either. A copy that no look falls on is not known.
//! J5  A copy leaves a notice right before its hello: one that ends there, by a filter of system calls or otherwise, is
//!     lost. The hello has the time of the notice.
//!
//! Not here: how notices are left (recorder), how newborn processes are found (find.rs), what is seen of a missed one
//! (missed.rs), how a report shows lost processes.

mod find;
mod missed;
mod reasons;
mod search;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use skinflint_base::ring::{
    NOTICE_EXEC, NOTICE_FILTERED, NOTICE_FREE, NOTICE_LOST, NOTICE_MEETS, NOTICE_PATH_BYTES,
    NOTICE_SPAWN, NOTICE_STAYED, NOTICE_WHOLE, NOTICE_WITHOUT_US, NotifierPage,
};
use skinflint_procfs::{self as procfs, process::link};
use skinflint_trace::{LostKind, LostProcess, LostWhy, MOST_QUIET_COPIES};

use crate::mappings::is_recorder;
use crate::process::Process;
use crate::server;
pub use missed::Living;
use missed::{How, INNER, MUCH_BYTES, Missed, Missing, folder, has_recorder, is_being_loaded};
use reasons::{found_in_path, why_by_file};
use search::Search;

/// The most processes that are missed at a time (J3).
const MOST_MISSED: usize = 4096;
/// A notice that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadNotice {
    kind: u32,
    pid: u32,
    token: u64,
    /// Monotonic nanoseconds, taken before what it tells of happened.
    pub time_ns: u64,
    path: String,
}

/// Takes all whole notices out of the notifier. Returns them, and the number of notices that found no room.
pub fn take_notices(notifier: &NotifierPage) -> (Vec<ReadNotice>, u32) {
    let mut notices = Vec::new();
    for notice in &notifier.notices {
        // ORDER: Acquire; pairs with the recorder's Release: a whole notice's fields are written.
        if notice.state.load(Ordering::Acquire) != NOTICE_WHOLE {
            continue;
        }
        // ORDER: Relaxed for the fields; as said above.
        let mut path = Vec::with_capacity(NOTICE_PATH_BYTES);
        for word in &notice.path {
            path.extend(word.load(Ordering::Relaxed).to_le_bytes()); // ORDER: as said above.
        }
        let end = path.iter().position(|&byte| byte == 0);
        path.truncate(end.unwrap_or(NOTICE_PATH_BYTES));
        notices.push(ReadNotice {
            kind: notice.kind.load(Ordering::Relaxed),
            pid: notice.pid.load(Ordering::Relaxed),
            // ORDER: as said above.
            token: notice.token.load(Ordering::Relaxed),
            time_ns: notice.time_ns.load(Ordering::Relaxed),
            path: String::from_utf8_lossy(&path).into_owned(),
        });
        // ORDER: Release; pairs with the recorder's Acquire: the fields have been read.
        notice.state.store(NOTICE_FREE, Ordering::Release);
    }
    notices.sort_by_key(|notice| notice.time_ns);
    (notices, notifier.missed.swap(0, Ordering::Relaxed)) // ORDER: Relaxed; a counter.
}

/// All that is known about missed and lost processes.
pub struct Kin {
    missed: HashMap<u32, Missed>,
    /// The newest hello of each pid: monotonic nanoseconds, and the program.
    heard: HashMap<u32, (u64, String)>,
    search: Search,
    /// The verdicts: the index of the process whose trace gets one, and the lost process.
    lost: Vec<(usize, LostProcess)>,
    /// The copies without a heap call and with little memory that were named, by the index of the process they copy.
    named: HashMap<usize, usize>,
    /// Programs without a loader that were seen and are not taken yet.
    statics: Vec<u32>,
}

impl Kin {
    /// Creates an empty list. `notifier`: the inode of the session's notifier, which copies of recorded processes have
    /// mapped.
    pub fn new(notifier: u64) -> Kin {
        Kin {
            missed: HashMap::new(),
            heard: HashMap::new(),
            search: Search::new(notifier),
            lost: Vec::new(),
            named: HashMap::new(),
            statics: Vec::new(),
        }
    }

    /// Takes the processes that were seen to run a statically linked program: Go's can be read from outside.
    pub fn take_static(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.statics)
    }

    /// Notes that a process said hello. `living`: the processes that are being recorded, without this one.
    pub fn heard(&mut self, process: &Process, living: &[Living<'_>]) {
        self.missed
            .retain(|_, missed| missed.how != How::Meeting || missed.time_ns != process.start_ns);
        let inner = process.numbers.last().filter(|_| process.numbers.len() > 1);
        for pid in [Some(process.pid), inner.map(|number| number | INNER)] {
            let Some(pid) = pid else { continue };
            self.heard_as(pid, process.start_ns, &process.info.exe, living);
        }
    }

    fn heard_as(&mut self, pid: u32, time_ns: u64, exe: &str, living: &[Living<'_>]) {
        self.heard.insert(pid, (time_ns, exe.to_owned()));
        let Some(missed) = self.missed.get(&pid) else {
            return;
        };
        // A copy is found by a look that may come between the begin of its hello and our reading of it.
        if missed.time_ns > time_ns && missed.how != How::Quiet {
            return;
        }
        if missed.was_dark(exe, &folder(missed.origin, living)) {
            self.judge(pid, living);
        } else {
            self.missed.remove(&pid);
        }
    }

    /// Takes in a notice. `living`: the processes that are being recorded. Returns whether one of them left it.
    pub fn take_in(&mut self, notice: &ReadNotice, living: &[Living<'_>]) -> bool {
        let by_token = living.iter().find(|living| living.token == notice.token);
        // A copy without a heap call has the token of the process that it copies, whose trace may be closed.
        let missed = self.missed.get(&notice.pid);
        let origin = by_token.or_else(|| {
            let index = missed?.origin;
            living.iter().find(|living| living.process.index == index)
        });
        if let Some(origin) = origin {
            self.take_in_from(origin.process, notice, living);
        }
        origin.is_some()
    }

    fn take_in_from(&mut self, process: &Process, notice: &ReadNotice, living: &[Living<'_>]) {
        let kind = notice.kind & !(NOTICE_WITHOUT_US | NOTICE_FILTERED);
        let pid = match kind {
            NOTICE_SPAWN if notice.pid == 0 => self.number_of_a_shell(),
            // A process in another PID namespace gives the id that it sees itself.
            NOTICE_EXEC | NOTICE_STAYED if notice.pid == process.own_pid() => process.pid,
            _ => search::as_we_see_it(notice.pid, process, kind == NOTICE_SPAWN),
        };
        let (what, how) = match kind {
            NOTICE_SPAWN if notice.pid == 0 && !process.attached => (LostKind::Program, How::Shell),
            NOTICE_LOST => (LostKind::Copy, How::Unreachable),
            NOTICE_MEETS => (LostKind::Copy, How::Meeting),
            NOTICE_STAYED => {
                self.missed.remove(&pid);
                // It is what it was, and may be a copy that has made no heap call.
                self.search.add(pid);
                return;
            }
            NOTICE_EXEC if pid == process.pid => (LostKind::Exec, How::Announced),
            // Children of an attached program were not asked for.
            NOTICE_EXEC | NOTICE_SPAWN if process.attached => return,
            NOTICE_EXEC | NOTICE_SPAWN => (LostKind::Program, How::Announced),
            _ => return,
        };
        let missing = Missing {
            origin: process.index,
            what,
            how,
            time_ns: notice.time_ns,
            path: match how {
                How::Unreachable | How::Meeting => process.info.exe.clone(),
                _ => notice.path.clone(),
            },
            without_us: notice.kind & NOTICE_WITHOUT_US != 0,
            is_kept_away: notice.kind & NOTICE_FILTERED != 0,
        };
        self.miss(pid, missing, living);
    }

    /// Returns a number for a shell whose own is not known: from above, where no process has one.
    fn number_of_a_shell(&self) -> u32 {
        let mut free = (0..u32::MAX).rev();
        free.find(|number| !self.missed.contains_key(number))
            .unwrap_or(0)
    }

    /// Notes that a shell which this process was about to start may have been found, under this number. It is forgotten
    /// once that one is lost; whether that one is, is known only when it has ended.
    fn is_found(&mut self, origin: usize, pid: u32) {
        let mut shells = self.missed.values_mut();
        let shell = shells.find(|missed| {
            missed.how == How::Shell && missed.origin == origin && missed.found_as.is_none()
        });
        if let Some(shell) = shell {
            shell.found_as = Some(pid);
        }
    }

    /// Has shells looked for again that were found as a process which is not lost after all: it said hello, or ended
    /// before it was known for what it was.
    fn unfind(&mut self) {
        let found = self.missed.iter().filter_map(|(number, missed)| {
            let pid = missed.found_as?;
            (!self.missed.contains_key(&pid)).then_some(*number)
        });
        let unfound: Vec<u32> = found.collect();
        for number in unfound {
            if let Some(shell) = self.missed.get_mut(&number) {
                shell.found_as = None;
            }
        }
    }

    fn miss(&mut self, pid: u32, missing: Missing, living: &[Living<'_>]) {
        let origin_pid = living
            .iter()
            .find(|living| living.process.index == missing.origin)
            .map_or(0, |living| living.process.pid);
        let Missing {
            origin,
            what,
            how,
            time_ns,
            path,
            without_us,
            is_kept_away,
        } = missing;
        // The number of a process that has ended may have been one of its own namespace.
        let heard = self.heard.get(&pid).max(self.heard.get(&(pid | INNER)));
        let heard = heard.filter(|(heard_ns, _)| *heard_ns >= time_ns && how != How::Unreachable);
        let heard = heard.map(|(_, exe)| exe.clone());
        if pid == 0 || self.missed.len() >= MOST_MISSED {
            return;
        }
        let now = Instant::now();
        let missed = Missed {
            origin,
            origin_pid,
            what,
            how,
            time_ns,
            path,
            without_us,
            pidfd: server::pidfd(pid),
            gone: false,
            is_filtered: false,
            found_as: None,
            exe: String::new(),
            comm: String::new(),
            why: match how {
                How::Unreachable | How::Meeting => LostWhy::Unreachable,
                _ if is_kept_away => LostWhy::Unreachable,
                How::Quiet => LostWhy::Quiet,
                How::Announced | How::Found | How::Shell => LostWhy::Unknown,
            },
            most_bytes: None,
            dark_looks: 0,
            since: now,
            next_look: now,
        };
        if let Some(exe) = heard {
            // The notice is late: what the process has become since has said hello.
            if missed.was_dark(&exe, &folder(origin, living)) {
                self.loses(pid, missed, living);
            }
            return;
        }
        // What it was until now is lost, if it is known to have been something that is not recorded. A copy that is about
        // to say hello reports all that it did.
        let before = self.missed.get(&pid);
        let goes_on = |before: &Missed| how == How::Meeting && before.how == How::Quiet;
        if before
            .is_some_and(|before| before.time_ns < time_ns && before.is_over() && !goes_on(before))
        {
            self.judge(pid, living);
        }
        self.missed.insert(pid, missed);
    }

    /// Looks at missed processes, and searches for others. Called about every 20 ms, after all hellos.
    pub fn look(&mut self, living: &[Living<'_>]) {
        self.find(living);
        self.unfind();
        let (mut done, mut not_missed) = (Vec::new(), Vec::new());
        for (&pid, missed) in &mut self.missed {
            if missed.gone {
                done.push(pid);
                continue;
            }
            missed.note_end(pid);
            let looks = missed.dark_looks;
            if !missed.look_at(pid) {
                not_missed.push(pid);
            }
            if missed.why == LostWhy::Static && looks == 0 && missed.dark_looks == 1 {
                self.statics.push(pid);
            }
        }
        for pid in done {
            self.judge(pid, living);
        }
        for pid in not_missed {
            self.is_another(pid, living);
        }
    }

    /// Notes that a missed process is no longer what was missed. It may have no ancestor by which it would be found again.
    fn is_another(&mut self, pid: u32, living: &[Living<'_>]) {
        let Some(missed) = self.missed.get(&pid) else {
            return;
        };
        let (origin, was_copy) = (missed.origin, missed.how == How::Quiet);
        if missed.is_over() {
            self.judge(pid, living);
        }
        self.missed.remove(&pid);
        self.search.add(pid);
        let (exe, maps) = (link(pid, "exe"), procfs::maps(pid));
        let may_speak =
            is_being_loaded(&exe, &maps) || maps.iter().any(|line| is_recorder(&line.name));
        if was_copy && !may_speak && !maps.is_empty() {
            let missing = Missing {
                origin,
                what: LostKind::Program,
                how: How::Found,
                time_ns: skinflint_base::sys::monotonic_ns(),
                path: exe,
                without_us: false,
                is_kept_away: false,
            };
            self.miss(pid, missing, living);
        }
    }

    /// Notes that a process became another program, which goes on as its children's parent.
    pub fn moves(&mut self, from: usize, to: usize) {
        let of_it = self.missed.values_mut();
        for missed in of_it.filter(|missed| missed.origin == from) {
            missed.origin = to;
        }
    }

    /// Returns whether a process missed from this one is being loaded, and may yet say hello. Cost: their mappings.
    pub fn awaits(&self, index: usize) -> bool {
        let mut of_it = self
            .missed
            .iter()
            .filter(|(_, missed)| missed.origin == index);
        of_it.any(|(&pid, missed)| {
            let is_meeting = || is_being_loaded(&link(pid, "exe"), &procfs::maps(pid));
            !missed.gone && (missed.how == How::Meeting || is_meeting())
        })
    }

    /// Returns whether a living copy of this process has made no heap call yet: the trace stays open for it (J4).
    pub fn has_quiet_copies(&self, index: usize) -> bool {
        let mut all = self.missed.values();
        all.any(|missed| missed.origin == index && missed.how == How::Quiet)
    }

    /// Returns the number of living processes that have the recorder and have not said hello.
    pub fn quiet(&self) -> usize {
        let copies = self
            .missed
            .values()
            .filter(|missed| missed.how == How::Quiet);
        copies.count() + self.search.with_recorder()
    }

    /// Judges the processes missed from one whose trace will be closed (J2). Returns the lost ones.
    pub fn origin_ends(&mut self, index: usize, living: &[Living<'_>]) -> Vec<LostProcess> {
        let of_it = self
            .missed
            .iter()
            .filter(|(_, missed)| missed.origin == index);
        let mut pids: Vec<(bool, u32)> = of_it
            .map(|(&pid, missed)| (missed.how == How::Shell, pid))
            .collect();
        // Shells last: one that was found is lost under its own number.
        pids.sort_unstable();
        for (_, pid) in pids {
            let Some(missed) = self.missed.get_mut(&pid) else {
                continue;
            };
            // A program that is kept away from us has the recorder, and will never say hello.
            let is_silent = match missed.how {
                How::Meeting => false,
                _ => missed.what == LostKind::Copy || missed.why == LostWhy::Unreachable,
            };
            missed.next_look = Instant::now();
            let stays = missed.look_at(pid);
            let may_speak = !is_silent && has_recorder(pid);
            if stays && !may_speak || missed.is_over() {
                self.judge(pid, living);
            } else {
                self.missed.remove(&pid);
            }
        }
        self.take(index)
    }

    /// Takes out the verdicts that belong in the trace of a process.
    pub fn take(&mut self, index: usize) -> Vec<LostProcess> {
        let (of_it, others) = std::mem::take(&mut self.lost)
            .into_iter()
            .partition(|(origin, _)| *origin == index);
        self.lost = others;
        let of_it: Vec<(usize, LostProcess)> = of_it;
        of_it.into_iter().map(|(_, lost)| lost).collect()
    }

    /// Returns the indices of processes whose traces have verdicts to come.
    pub fn have_verdicts(&self) -> Vec<usize> {
        self.lost.iter().map(|&(index, _)| index).collect()
    }

    fn judge(&mut self, pid: u32, living: &[Living<'_>]) {
        let missed = self.missed.remove(&pid);
        if let Some(missed) = missed.filter(Missed::is_lost) {
            self.missed.retain(|_, shell| shell.found_as != Some(pid));
            self.loses(pid, missed, living);
        }
    }

    /// Notes a process as lost: it goes into the trace of its origin.
    fn loses(&mut self, pid: u32, missed: Missed, living: &[Living<'_>]) {
        let origin = living
            .iter()
            .find(|living| living.process.index == missed.origin);
        let start_ns = origin.map_or(missed.time_ns, |living| living.process.start_ns);
        let exe = match missed.exe.as_str() {
            "" => found_in_path(&missed.path, &folder(missed.origin, living)),
            seen => seen.to_owned(),
        };
        let file = Path::new(if exe.is_empty() { &missed.path } else { &exe });
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let name = match origin {
            _ if !missed.comm.is_empty() => missed.comm,
            // A copy has the name of what it copies.
            Some(origin) if missed.what == LostKind::Copy => origin.process.info.name.clone(),
            _ => name.into_owned(),
        };
        let why = match missed.why {
            _ if missed.is_filtered => LostWhy::Filter,
            LostWhy::Unknown => why_by_file(Path::new(&exe)),
            seen => seen,
        };
        let lost = LostProcess {
            what: missed.what,
            pid: if pid & INNER != 0 { 0 } else { pid },
            name,
            time_ns: missed.time_ns.saturating_sub(start_ns),
            why: match why {
                LostWhy::Unknown if missed.without_us => LostWhy::Environment,
                why => why,
            },
            max_rss_bytes: missed.most_bytes,
            exe,
        };
        if missed.how == How::Quiet && lost.max_rss_bytes < Some(MUCH_BYTES) {
            let named = self.named.entry(missed.origin).or_default();
            *named += 1;
            if *named > MOST_QUIET_COPIES {
                return;
            }
        }
        self.lost.push((missed.origin, lost));
    }
}

#[cfg(test)]
#[path = "kin/tests.rs"]
mod tests;
