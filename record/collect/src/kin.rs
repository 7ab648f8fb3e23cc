//! Processes that came out of recorded ones and never said hello.
//!
//! ```text
//!   notifier: exec, spawn ─► missed[pid] ─ hello of pid ─► nothing is missing
//!   /proc, now and then ─►    │      ─ ended, or its origin does ─► LostProcess, in the trace of its origin
//!   notifier: lost ─────────────────────────────────────────────────────────┘
//! ```
//!
//! J1  A process that says hello after its notice is recorded, and not lost. A hello reaches the drain before it is
//!     answered, so the hello of a process that has ended has been read by now, if there was one.
//! J2  A living process is judged when its origin's trace is closed, and then by what it has mapped: one with the
//!     recorder loaded will say hello, and one that has only its program and its loader mapped is waited for.
//! J3  A forged notice cannot harm us: a notice can only add to a list, which is bounded.
//!
//! Not here: how notices are left (recorder), how a report shows lost processes.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use skinflint_base::ring::{
    NOTICE_EXEC, NOTICE_FREE, NOTICE_LOST, NOTICE_PATH_BYTES, NOTICE_SPAWN, NOTICE_STAYED,
    NOTICE_WHOLE, NOTICE_WITHOUT_US, NotifierPage,
};
use skinflint_trace::{LostKind, LostProcess, LostWhy};

use crate::proc::{self, MapLine};
use crate::process::Process;
use crate::server;

/// The most processes that are missed at a time (J3).
const MOST_MISSED: usize = 4096;
/// The time between two searches of `/proc` for children without a notice, as of programs that make raw system calls.
const SEARCH: Duration = Duration::from_secs(1);
/// How long a missed process is looked at often.
const OFTEN: Duration = Duration::from_millis(500);
/// The age below which a child that was found by searching may still be about to say hello.
const ON_ITS_WAY: Duration = Duration::from_secs(2);

/// A notice that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    kind: u32,
    pid: u32,
    token: u64,
    time_ns: u64,
    path: String,
}

/// Takes all whole notices out of the notifier. Returns them, and the number of notices that found no room.
pub fn take_notices(notifier: &NotifierPage) -> (Vec<Told>, u32) {
    let mut told = Vec::new();
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
        told.push(Told {
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
    told.sort_by_key(|told| told.time_ns);
    (told, notifier.missed.swap(0, Ordering::Relaxed)) // ORDER: Relaxed; a counter.
}

/// A process that has not said hello.
struct Missed {
    /// The index of the process whose trace will report it.
    origin: usize,
    what: LostKind,
    time_ns: u64,
    path: String,
    without_us: bool,
    pidfd: Option<OwnedFd>,
    /// Whether it was gone already at the last look.
    gone: bool,
    exe: String,
    why: LostWhy,
    max_rss_bytes: Option<u64>,
    since: Instant,
    next_look: Instant,
}

/// All that is known about missed and lost processes.
#[derive(Default)]
pub struct Kin {
    missed: HashMap<u32, Missed>,
    /// The newest hello of each pid, in monotonic nanoseconds.
    heard: HashMap<u32, u64>,
    searched: Option<Instant>,
    /// The verdicts: the index of the process whose trace gets one, and the lost process.
    lost: Vec<(usize, LostProcess)>,
}

/// A recorded process that lives.
pub struct Living<'a> {
    /// Its token.
    pub token: u64,
    /// The process.
    pub process: &'a Process,
}

impl Kin {
    /// Notes that a process said hello.
    pub fn heard(&mut self, pid: u32, time_ns: u64) {
        self.heard.insert(pid, time_ns);
        if self
            .missed
            .get(&pid)
            .is_some_and(|missed| missed.time_ns <= time_ns)
        {
            self.missed.remove(&pid);
        }
    }

    /// Takes in a notice. `living`: the processes that are being recorded. Returns whether one of them left it.
    pub fn told(&mut self, told: &Told, living: &[Living<'_>]) -> bool {
        let origin = living.iter().find(|living| living.token == told.token);
        if let Some(origin) = origin {
            self.told_by(origin.process, told);
        }
        origin.is_some()
    }

    fn told_by(&mut self, process: &Process, told: &Told) {
        match told.kind & !NOTICE_WITHOUT_US {
            NOTICE_LOST => {
                let pid = as_we_see_it(told.pid, process.pid);
                let lost = LostProcess {
                    what: LostKind::Copy,
                    pid,
                    name: process.info.name.clone(),
                    exe: process.info.exe.clone(),
                    time_ns: told.time_ns.saturating_sub(process.start_ns),
                    why: LostWhy::Unreachable,
                    max_rss_bytes: proc::high_water_bytes(pid),
                };
                self.lost.push((process.index, lost));
            }
            NOTICE_STAYED => {
                self.missed.remove(&as_we_see_it(told.pid, process.pid));
            }
            kind @ (NOTICE_EXEC | NOTICE_SPAWN) => {
                let pid = match kind {
                    // A process in another PID namespace gives the id that it sees itself.
                    NOTICE_EXEC if told.pid == process.own_pid() => process.pid,
                    _ => as_we_see_it(told.pid, process.pid),
                };
                let itself = kind == NOTICE_EXEC && pid == process.pid;
                // Children of an attached program were not asked for.
                if process.attached && !itself {
                    return;
                }
                let what = if itself {
                    LostKind::Exec
                } else {
                    LostKind::Program
                };
                let without_us = told.kind & NOTICE_WITHOUT_US != 0;
                self.miss(
                    pid,
                    process.index,
                    what,
                    told.time_ns,
                    told.path.clone(),
                    without_us,
                );
            }
            _ => {}
        }
    }

    fn miss(
        &mut self,
        pid: u32,
        origin: usize,
        what: LostKind,
        time_ns: u64,
        path: String,
        without_us: bool,
    ) {
        let is_heard = self.heard.get(&pid).is_some_and(|&heard| heard >= time_ns);
        if pid == 0 || is_heard || self.missed.len() >= MOST_MISSED {
            return;
        }
        let missed = Missed {
            origin,
            what,
            time_ns,
            path,
            without_us,
            pidfd: server::pidfd(pid),
            gone: false,
            exe: String::new(),
            why: LostWhy::Unknown,
            max_rss_bytes: None,
            since: Instant::now(),
            next_look: Instant::now(),
        };
        self.missed.insert(pid, missed);
    }

    /// Looks at missed processes, and now and then searches for others. Called about every 20 ms, after all hellos.
    pub fn look(&mut self, living: &[Living<'_>]) {
        let now = Instant::now();
        if self.searched.is_none_or(|last| now - last > SEARCH) {
            self.searched = Some(now);
            self.search(living);
        }
        let mut done = Vec::new();
        for (&pid, missed) in &mut self.missed {
            if missed.gone {
                done.push(pid);
                continue;
            }
            missed.gone = match &missed.pidfd {
                Some(fd) => server::poll(&[fd.as_raw_fd()], 0)[0],
                None => proc::stat(pid).is_none(),
            };
            missed.look_at(pid);
        }
        for pid in done {
            self.judge(pid, living);
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
            !missed.gone && is_being_loaded(&proc::link(pid, "exe"), &proc::maps(pid))
        })
    }

    /// Judges the processes missed from one whose trace will be closed (J2). Returns the lost ones.
    pub fn origin_ends(&mut self, index: usize, living: &[Living<'_>]) -> Vec<LostProcess> {
        let of_it = self
            .missed
            .iter()
            .filter(|(_, missed)| missed.origin == index);
        let pids: Vec<u32> = of_it.map(|(&pid, _)| pid).collect();
        for pid in pids {
            if let Some(missed) = self.missed.get_mut(&pid) {
                missed.look_at(pid);
            }
            if has_recorder(pid) {
                self.missed.remove(&pid);
            } else {
                self.judge(pid, living);
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
        let Some(missed) = self.missed.remove(&pid) else {
            return;
        };
        let origin = living
            .iter()
            .find(|living| living.process.index == missed.origin);
        let start_ns = origin.map_or(missed.time_ns, |living| living.process.start_ns);
        let exe = match missed.exe.as_str() {
            "" => found_in_path(&missed.path),
            seen => seen.to_owned(),
        };
        let file = Path::new(if exe.is_empty() { &missed.path } else { &exe });
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let why = match missed.why {
            LostWhy::Unknown => why_by_file(Path::new(&exe)),
            seen => seen,
        };
        let lost = LostProcess {
            what: missed.what,
            pid,
            name: name.into_owned(),
            time_ns: missed.time_ns.saturating_sub(start_ns),
            why: match why {
                LostWhy::Unknown if missed.without_us => LostWhy::Environment,
                why => why,
            },
            max_rss_bytes: missed.max_rss_bytes,
            exe,
        };
        self.lost.push((missed.origin, lost));
    }

    /// Searches `/proc` for children, and for programs in the place of recorded ones, that left no notice.
    fn search(&mut self, living: &[Living<'_>]) {
        for Living { process, .. } in living.iter().filter(|living| !living.process.attached) {
            let exe = proc::link(process.pid, "exe");
            let is_new = !exe.is_empty() && exe != process.info.exe;
            if is_new && !self.missed.contains_key(&process.pid) && is_dark(process.pid) {
                let time_ns = skinflint_base::sys::monotonic_ns();
                self.miss(
                    process.pid,
                    process.index,
                    LostKind::Exec,
                    time_ns,
                    exe,
                    false,
                );
            }
        }
        let by_pid: HashMap<u32, &Process> = living
            .iter()
            .filter(|living| !living.process.attached)
            .map(|living| (living.process.pid, living.process))
            .collect();
        if by_pid.is_empty() {
            return;
        }
        for pid in proc::all_pids() {
            let known = by_pid.contains_key(&pid) || self.missed.contains_key(&pid);
            let Some(stat) = (!known).then(|| proc::stat(pid)).flatten() else {
                continue;
            };
            if let Some(parent) = by_pid.get(&stat.ppid)
                && is_dark(pid)
            {
                let time_ns = skinflint_base::sys::monotonic_ns();
                let exe = proc::link(pid, "exe");
                self.miss(pid, parent.index, LostKind::Program, time_ns, exe, false);
            }
        }
    }
}

impl Missed {
    /// Reads what will be gone when the process is judged.
    fn look_at(&mut self, pid: u32) {
        // Often at first, for processes that do not live long; later a look now and then is enough, since the kernel
        // keeps the high-water mark.
        let now = Instant::now();
        if self.gone || now < self.next_look {
            return;
        }
        if now - self.since > OFTEN {
            self.next_look = now + SEARCH;
        }
        // These are the old program's figures, as long as the process has not become the new one.
        if has_recorder(pid) {
            return;
        }
        let exe = proc::link(pid, "exe");
        if exe.is_empty() {
            return;
        }
        if exe != self.exe {
            self.why = why_by_process(pid);
            self.exe = exe;
        }
        self.max_rss_bytes = proc::high_water_bytes(pid).or(self.max_rss_bytes);
    }
}

fn has_recorder(pid: u32) -> bool {
    proc::maps(pid)
        .iter()
        .any(|line| proc::is_recorder(&line.name))
}

/// Returns whether a process has only its program and its loader mapped yet: preloaded libraries come right after
/// these, and all other libraries after them (J2).
fn is_being_loaded(exe: &str, maps: &[MapLine]) -> bool {
    let mut files: Vec<&str> = maps.iter().map(|line| line.name.as_str()).collect();
    files.retain(|name| name.starts_with('/') && *name != exe && !name.ends_with("/ld.so.cache"));
    files.dedup();
    let is_loader = |name: &&str| {
        let name = name.rsplit('/').next().unwrap_or_default();
        name.starts_with("ld-") || name.starts_with("ld.so")
    };
    !exe.is_empty() && !files.is_empty() && files.iter().all(is_loader)
}

/// Returns whether a process runs a program without the recorder, and had time to load it.
fn is_dark(pid: u32) -> bool {
    let maps = proc::maps(pid);
    !maps.is_empty()
        && !is_being_loaded(&proc::link(pid, "exe"), &maps)
        && !maps.iter().any(|line| proc::is_recorder(&line.name))
        && proc::age(pid).is_some_and(|age| age > ON_ITS_WAY)
}

/// Returns our id of a process that sees its own id as `pid`, and is `parent` or a child of it; 0 if there is none.
fn as_we_see_it(pid: u32, parent: u32) -> u32 {
    match proc::numbers(pid) {
        // It has ended, or the id is in our namespace.
        None => pid,
        Some(numbers) if numbers.len() == 1 && numbers[0] == pid => pid,
        Some(_) => proc::all_pids()
            .into_iter()
            .find(|&other| {
                proc::numbers(other).is_some_and(|numbers| numbers.last() == Some(&pid))
                    && (other == parent
                        || proc::stat(other).is_some_and(|stat| stat.ppid == parent))
            })
            .unwrap_or(0),
    }
}

/// Returns the path of a program that was asked for by its name alone; the name itself if it is not found.
fn found_in_path(asked: &str) -> String {
    if asked.is_empty() || asked.starts_with('/') {
        return asked.to_owned();
    }
    if asked.contains('/') {
        return String::new();
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders)
        .map(|folder| folder.join(asked))
        .find(|path| path.is_file())
        .map_or_else(String::new, |path| path.to_string_lossy().into_owned())
}

/// Returns why a living process has no recorder.
fn why_by_process(pid: u32) -> LostWhy {
    match why_by_file(Path::new(&format!("/proc/{pid}/exe"))) {
        LostWhy::Unknown => {}
        why => return why,
    }
    let root = |pid: &str| {
        let about = std::fs::metadata(PathBuf::from(format!("/proc/{pid}/root/.")));
        about.map(|about| (about.dev(), about.ino())).ok()
    };
    match (root(&pid.to_string()), root("self")) {
        (Some(its), Some(ours)) if its != ours => LostWhy::Root,
        _ if !proc::environment(pid).is_some_and(|text| has_preload(&text)) => LostWhy::Environment,
        _ => LostWhy::Unknown,
    }
}

fn has_preload(environment: &[u8]) -> bool {
    environment
        .split(|&byte| byte == 0)
        .any(|entry| entry.starts_with(b"LD_PRELOAD="))
}

/// Returns why no library can be preloaded into a program file; `None` if one can be.
fn why_by_file(path: &Path) -> LostWhy {
    let Ok(file) = std::fs::File::open(path) else {
        return LostWhy::Unknown;
    };
    let mut head = [0u8; 4096];
    let got = file.read_at(&mut head, 0).unwrap_or(0);
    let head = &head[..got];
    if is_static(head) == Some(true) {
        return LostWhy::Static;
    }
    const SET_ID: u32 = 0o6000;
    let privileged = file
        .metadata()
        .is_ok_and(|about| about.permissions().mode() & SET_ID != 0)
        || has_capabilities(&file);
    if head.starts_with(b"\x7fELF") && privileged {
        return LostWhy::Privileged;
    }
    LostWhy::Unknown
}

fn has_capabilities(file: &std::fs::File) -> bool {
    let name = c"security.capability";
    // SAFETY: asks for the length alone.
    let bytes =
        unsafe { libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), std::ptr::null_mut(), 0) };
    bytes > 0
}

/// Returns whether an ELF program names no loader; `None` if it is not ELF, or its table lies further on.
fn is_static(head: &[u8]) -> Option<bool> {
    const PT_INTERP: u32 = 3;
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let number = |at: usize, bytes: usize| {
        let mut word = [0u8; 8];
        word[..bytes].copy_from_slice(head.get(at..at + bytes)?);
        Some(u64::from_le_bytes(word) as usize)
    };
    let (table, each, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for index in 0..count {
        let at = table.checked_add(index.checked_mul(each)?)?;
        if number(at, 4)? as u32 == PT_INTERP {
            return Some(false);
        }
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_with_and_without_a_loader() {
        let own = std::env::current_exe().expect("a path");
        assert_eq!(why_by_file(&own), LostWhy::Unknown);
        let mut head = std::fs::read(&own).expect("it");
        head.truncate(4096);
        assert_eq!(is_static(&head), Some(false));
        let table = 64;
        let count = usize::from(head[56]);
        for index in 0..count {
            let at = table + index * 56;
            if head[at] == 3 {
                head[at] = 4;
            }
        }
        assert_eq!(is_static(&head), Some(true));
        assert_eq!(is_static(&head[..100]), None, "cut");
        assert_eq!(is_static(b"#!/bin/sh"), None);
    }

    #[test]
    fn what_has_its_program_and_its_loader_alone_is_being_loaded() {
        let maps = |names: &[&str]| -> Vec<MapLine> {
            let line =
                |name: &&str| MapLine::parse(&format!("1000-2000 r--p 00000000 00:00 1 {name}"));
            names.iter().filter_map(line).collect()
        };
        let loader = "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";
        let begun = maps(&["/bin/x", loader, "[heap]", "[stack]", "[vdso]"]);
        assert!(is_being_loaded("/bin/x", &begun));
        let looking = maps(&["/bin/x", "/etc/ld.so.cache", loader, "[stack]"]);
        assert!(is_being_loaded("/bin/x", &looking));
        let loaded = maps(&["/bin/x", "/usr/lib/libc.so.6", loader, "[stack]"]);
        assert!(!is_being_loaded("/bin/x", &loaded));
        let without_a_loader = maps(&["/bin/x", "[stack]"]);
        assert!(!is_being_loaded("/bin/x", &without_a_loader));
        assert!(!is_being_loaded("", &[]), "it has ended");
    }

    #[test]
    fn what_a_program_misses_is_missed_by_what_it_becomes() {
        let mut kin = Kin::default();
        kin.miss(7, 0, LostKind::Program, 100, "/bin/x".into(), false);
        kin.miss(8, 3, LostKind::Program, 100, "/bin/x".into(), false);
        kin.moves(0, 5);
        let origin = |pid: u32| kin.missed.get(&pid).map(|missed| missed.origin);
        assert_eq!((origin(7), origin(8)), (Some(5), Some(3)));
    }

    #[test]
    fn who_speaks_after_the_notice_is_not_missed() {
        let mut kin = Kin::default();
        kin.miss(7, 0, LostKind::Program, 100, "/bin/x".into(), false);
        kin.heard(7, 50);
        assert!(kin.missed.contains_key(&7), "an older program's hello");
        kin.heard(7, 150);
        assert!(kin.missed.is_empty());
        // A late notice, of a program that has already said hello.
        kin.miss(7, 0, LostKind::Program, 140, "/bin/x".into(), false);
        assert!(kin.missed.is_empty());
        kin.miss(7, 0, LostKind::Program, 160, "/bin/x".into(), false);
        assert_eq!(kin.missed.len(), 1);
    }
}
