//! Finds processes that came out of recorded ones without a notice: by raw system calls, by `system` and `popen`, as
//! copies that make no heap call, and behind programs that are not recorded themselves.
//!
//! ```text
//!   /proc/loadavg: the newest pid ─► those given since ─► young ─┬─ not kin, a thread, gone ─► forgotten
//!   (one read each 20 ms)                                        ├─ the recorder, no notifier ─► waited for
//!                                                                └─ a copy, a program without the recorder ─► missed
//! ```
//!
//! L1  A process is kin if one of its ancestors is recorded or missed, or if it has the notifier mapped and none of
//!     the rings: only copies have that. A child of vfork has the rings mapped, too, and is no copy yet.
//! L2  The cost is one system call each 20 ms while no process is born, eight for each newborn, and four or more at
//!     each look at one that stays, whose looks become as rare as one a second.
//!
//! Not here: what becomes of those that are found (find.rs).

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use skinflint_procfs::process::link;
use skinflint_procfs::processes::parent;
use skinflint_procfs::stat::age;
use skinflint_procfs::{About, MapLine, about, climb, maps, pids};

use super::missed::{INNER, is_being_loaded};
use crate::mappings::is_recorder;
use crate::process::Process;

/// The most newborn pids that are looked at one by one; beyond them all of `/proc` is read.
const MOST_NEWBORN: u32 = 512;
/// The most young processes at a time.
const MOST_YOUNG: usize = 4096;
/// The most generations up to a recorded process.
pub(super) const MOST_GENERATIONS: usize = 64;
/// The bounds of the time between two looks at a young process: a tenth of its age.
const OFTEN: Duration = Duration::from_millis(15);
const SELDOM: Duration = Duration::from_secs(1);
/// The time between two looks at the programs of recorded processes, of which one may have become another unnoticed.
const PROGRAMS: Duration = Duration::from_millis(200);
/// The largest number for which a process in a PID namespace of its own is searched for.
const SMALL: u32 = 2048;
/// How much later a process may seem to have begun than it did: the kernel gives its start in steps of 10 ms.
const STEP: Duration = Duration::from_millis(30);

/// A process that is neither recorded nor missed.
struct Young {
    since: Instant,
    next_look: Instant,
    /// Whether it has the recorder loaded: it may say hello.
    with_recorder: bool,
}

/// The newborn processes, and what is known of them.
pub(super) struct Search {
    /// The inode of the session's notifier.
    notifier: u64,
    newest: Option<File>,
    last: u32,
    young: HashMap<u32, Young>,
    next_programs: Option<Instant>,
}

/// The state of a young process.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Is {
    /// Gone, a thread, or nothing of ours.
    Nothing,
    /// It may yet become anything; `true`: it has the recorder.
    Open(bool),
    /// A copy of a recorded process.
    Copy,
    /// A program without the recorder.
    Dark,
}

impl Search {
    pub(super) fn new(notifier: u64) -> Search {
        let newest = File::open("/proc/loadavg").ok();
        Search {
            notifier,
            // From now on: the program is started when we are ready, perhaps before the first search.
            last: newest.as_ref().and_then(newest_pid).unwrap_or(0),
            newest,
            young: HashMap::new(),
            next_programs: None,
        }
    }

    /// Adds a process to the young ones.
    pub(super) fn add(&mut self, pid: u32) {
        let now = Instant::now();
        if pid != 0 && pid & INNER == 0 && self.young.len() < MOST_YOUNG {
            self.young.entry(pid).or_insert(Young {
                since: now,
                next_look: now,
                with_recorder: false,
            });
        }
    }

    /// Returns the number of young processes that have the recorder.
    pub(super) fn with_recorder(&self) -> usize {
        self.young
            .values()
            .filter(|young| young.with_recorder)
            .count()
    }

    /// Returns the young processes that are to be looked at now.
    pub(super) fn due(&self, now: Instant) -> Vec<u32> {
        let due = self
            .young
            .iter()
            .filter(|(_, young)| young.next_look <= now);
        due.map(|(&pid, _)| pid).collect()
    }

    /// Notes what a young process is now. Only one that may yet become anything stays among them.
    pub(super) fn note(&mut self, pid: u32, is: &Is, now: Instant) {
        let Is::Open(with_recorder) = *is else {
            self.young.remove(&pid);
            return;
        };
        if let Some(young) = self.young.get_mut(&pid) {
            young.with_recorder = with_recorder;
            young.next_look = now + ((now - young.since) / 10).clamp(OFTEN, SELDOM);
        }
    }

    /// Returns whether it is time to look at the programs of recorded processes; then not again for a while.
    pub(super) fn is_time_for_programs(&mut self, now: Instant) -> bool {
        let is_time = self.next_programs.is_none_or(|next| next <= now);
        if is_time {
            self.next_programs = Some(now + PROGRAMS);
        }
        is_time
    }

    /// Adds the processes that were born since the last call, and threads, which have numbers of the same kind.
    pub(super) fn add_newborn(&mut self) {
        let Some(newest) = self.newest.as_ref().and_then(newest_pid) else {
            return;
        };
        let last = std::mem::replace(&mut self.last, newest);
        if last == 0 || newest == last {
            return;
        }
        if newest > last && newest - last <= MOST_NEWBORN {
            (last + 1..=newest).for_each(|pid| self.add(pid));
            return;
        }
        // Numbers began again from below, or many were given.
        let is_new = |&pid: &u32| age(pid).is_some_and(|age| age < Duration::from_secs(2));
        pids()
            .into_iter()
            .filter(is_new)
            .for_each(|pid| self.add(pid));
    }

    /// Returns what a process is. `is_kin`: whether one of its ancestors is recorded, missed, or us.
    pub(super) fn look_at(&self, pid: u32, is_kin: bool) -> Is {
        let maps = maps(pid);
        if maps.is_empty() {
            // It has ended and was not waited for, or is just beginning.
            return if is_kin { Is::Open(false) } else { Is::Nothing };
        }
        let has = |name: &str| maps.iter().any(|line| line.name.starts_with(name));
        let is_notifier = |line: &MapLine| {
            line.inode == self.notifier && line.name.starts_with("/memfd:skinflint-notifier")
        };
        if maps.iter().any(is_notifier) {
            let shares = has("/memfd:skinflint-region");
            return if shares { Is::Open(false) } else { Is::Copy };
        }
        if !is_kin {
            return Is::Nothing;
        }
        if maps.iter().any(|line| is_recorder(&line.name)) {
            return Is::Open(true);
        }
        match is_being_loaded(&link(pid, "exe"), &maps) {
            true => Is::Open(false),
            false => Is::Dark,
        }
    }
}

/// Returns the number that was given last to a process or thread. Cost: one system call.
fn newest_pid(loadavg: &File) -> Option<u32> {
    let mut text = [0u8; 128];
    let len = loadavg.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..len]).ok()?;
    text.split_ascii_whitespace().nth(4)?.parse().ok()
}

/// Returns our number of `origin`, or of a process that came out of it. `given` is the number that the process has for
/// itself, or with `to_origin` for `origin`. If no such process lives: `given`, or with [`INNER`] if it is no number of ours.
pub(super) fn as_we_see_it(given: u32, origin: &Process, to_origin: bool) -> u32 {
    let is_ours = origin.numbers.len() <= 1;
    if to_origin && is_ours {
        return given;
    }
    let level = to_origin.then(|| origin.numbers.len() - 1);
    let here = about(given);
    let is_it = |about: &About| {
        let number = match level {
            Some(level) => about.numbers.get(level),
            None => about.numbers.last(),
        };
        number == Some(&given) && (about.tgid == origin.pid || is_younger(about.tgid, origin))
    };
    let here = here.filter(is_it).map(|about| about.tgid);
    if let Some(pid) = here {
        return pid;
    }
    // The numbers of a new namespace begin at 1; larger ones are of a process that has ended.
    if is_ours && given > SMALL {
        return given;
    }
    let inside = pids().into_iter().find(|&pid| {
        let about = about(pid).filter(|about| about.numbers.len() > 1 && is_it(about));
        about.is_some() && descends_from(pid, origin.pid)
    });
    match (inside, about(given)) {
        (Some(pid), _) => pid,
        // It has ended.
        (None, None) if is_ours => given,
        (None, _) => given | INNER,
    }
}

/// Returns whether a process began after another one said hello.
fn is_younger(pid: u32, origin: &Process) -> bool {
    let origins = Duration::from_nanos(origin.now_ns());
    age(pid).is_some_and(|age| age <= origins + STEP)
}

fn descends_from(pid: u32, ancestor: u32) -> bool {
    let is_it = |at| (at == ancestor).then_some(());
    climb(pid, MOST_GENERATIONS, is_it, parent).is_some()
}
