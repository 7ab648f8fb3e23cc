//! A process that has not said hello: what is seen of it while it lives, and whether it is lost when it has ended.
//!
//! Not here: which processes are missed, and in whose trace they are named (kin.rs); why one has no recorder
//! (reasons.rs).

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use skinflint_base::sys;
use skinflint_procfs::process::{link, thread_name};
use skinflint_procfs::{MapLine, maps, rollup, stat, status};
use skinflint_trace::{LostKind, LostWhy};

use super::reasons::{found_in_path, why_by_file, why_by_process};
use crate::mappings::is_recorder;
use crate::process::Process;
use crate::server;

/// The times between two looks at a missed process: a twentieth of the time that it has been missed, within these
/// bounds. The kernel keeps its high-water mark, but no longer than it lives.
const OFTEN: Duration = Duration::from_millis(20);
const SELDOM: Duration = Duration::from_millis(250);
/// Reading the memory of a copy may take one part in this many of the time of one processor.
const READING_PART: u32 = 20;
/// The least memory of its own with which a copy without a heap call is lost even if it becomes another program (kin.J4).
pub(super) const MUCH_BYTES: u64 = 1 << 20;
/// How long a shell is looked for, whose number is not known.
pub(super) const SHELL: Duration = Duration::from_millis(100);
/// Added to the number of a process that only its own PID namespace has, as far as can be known; no number of the
/// kernel's is as large (its limit is 2^22).
pub(super) const INNER: u32 = 1 << 31;

/// How a missed process is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    /// By a notice of the program that it was about to become.
    Announced,
    /// By searching: it ran a program without the recorder.
    Found,
    /// By searching: it is a copy of its origin, and has made no heap call yet.
    Quiet,
    /// By a notice of its own: a copy that cannot be recorded.
    Unreachable,
    /// By a notice of its own: a copy that is about to say hello.
    Meeting,
    /// By a notice of its parent: a shell without the recorder, whose number is not known. If it is found by searching
    /// within [`SHELL`], it is that one.
    Shell,
}

/// A process that has not said hello.
pub(super) struct Missed {
    /// The index of the process whose trace will report it.
    pub(super) origin: usize,
    /// The number of that process; 0 if its trace is closed.
    pub(super) origin_pid: u32,
    pub(super) what: LostKind,
    pub(super) how: How,
    pub(super) time_ns: u64,
    pub(super) path: String,
    pub(super) without_us: bool,
    pub(super) pidfd: Option<OwnedFd>,
    /// Whether it was gone already at the last look.
    pub(super) gone: bool,
    /// Whether a filter of system calls has ended it.
    pub(super) is_filtered: bool,
    /// Of a shell: the number under which searching has found it.
    pub(super) found_as: Option<u32>,
    pub(super) exe: String,
    /// Of a quiet copy: the name that it gave itself, as it was last seen.
    pub(super) comm: String,
    pub(super) why: LostWhy,
    /// The largest resident memory seen; of a quiet copy the largest memory of its own.
    pub(super) most_bytes: Option<u64>,
    /// The looks that found a program without the recorder.
    pub(super) dark_looks: u32,
    pub(super) since: Instant,
    pub(super) next_look: Instant,
}

/// A recorded process that lives.
pub struct Living<'a> {
    /// Its token.
    pub token: u64,
    /// The process.
    pub process: &'a Process,
}

/// News about a missed process.
pub(super) struct Missing {
    pub(super) origin: usize,
    pub(super) what: LostKind,
    pub(super) how: How,
    pub(super) time_ns: u64,
    pub(super) path: String,
    pub(super) without_us: bool,
    /// Whether a filter of system calls keeps it from saying hello.
    pub(super) is_kept_away: bool,
}

/// Returns the folder in which a process works, or worked when it began.
pub(super) fn folder(index: usize, living: &[Living<'_>]) -> String {
    let mut all = living.iter();
    let Some(origin) = all.find(|living| living.process.index == index) else {
        return String::new();
    };
    match link(origin.process.pid, "cwd") {
        gone if gone.is_empty() => origin.process.info.cwd.clone(),
        now => now,
    }
}

impl Missed {
    /// Reads whether the process has ended, and whether by a filter.
    pub(super) fn note_end(&mut self, pid: u32) {
        let pidfd = self.pidfd.as_ref().map(AsRawFd::as_raw_fd);
        self.gone = match pidfd {
            Some(fd) => server::poll(&[fd], 0)[0],
            None if self.how == How::Shell => {
                self.found_as.is_none() && self.since.elapsed() > SHELL
            }
            None => stat(pid).is_none(),
        };
        if self.gone {
            let status = pidfd.and_then(server::exit_status);
            let status = status.or_else(|| stat(pid)?.wait_status);
            self.is_filtered = status.is_some_and(|status| status & 0x7f == libc::SIGSYS);
        }
    }

    /// Reads what will be gone when the process is judged. Returns false if it is no longer what was missed.
    pub(super) fn look_at(&mut self, pid: u32) -> bool {
        let now = Instant::now();
        if self.gone || now < self.next_look {
            return true;
        }
        self.next_look = now + ((now - self.since) / 20).clamp(OFTEN, SELDOM);
        match self.how {
            How::Unreachable | How::Meeting => {
                self.most_bytes = high_water_bytes(pid).max(self.most_bytes)
            }
            How::Quiet => return self.look_at_copy(pid),
            How::Shell => {}
            How::Announced | How::Found => {
                let (exe, maps) = (link(pid, "exe"), maps(pid));
                // These are the old program's figures, as long as the process has not become the new one.
                if maps.iter().any(|line| is_recorder(&line.name)) {
                    return self.how == How::Announced;
                }
                // What is seen of a program that is being loaded, and may yet say hello, would hide what was before it.
                let is_known = !exe.is_empty() && !is_being_loaded(&exe, &maps);
                if !is_known || exe != link(pid, "exe") {
                    return true;
                }
                if file(&exe) != file(&self.exe) {
                    self.why = why_by_process(pid);
                    self.exe = exe;
                    self.dark_looks = 0;
                }
                self.dark_looks += 1;
                self.most_bytes = high_water_bytes(pid).max(self.most_bytes);
            }
        }
        true
    }

    /// Reads the memory that a copy has for itself: pages that it, or the process that it copies, wrote since.
    fn look_at_copy(&mut self, pid: u32) -> bool {
        let exe = link(pid, "exe");
        if !exe.is_empty() && file(&exe) != file(&self.path) {
            return false;
        }
        if let Some(name) = thread_name(pid, pid) {
            self.comm = name;
        }
        // What reading costs is processor time: on a busy machine a reading lasts long and costs no more.
        let begun_ns = sys::thread_cpu_ns();
        let own_bytes = private_dirty_bytes(pid);
        // Asked afterwards: had the origin ended before, inherited pages would be among these. A process that ends gives
        // its memory up first, and is a zombie only later.
        let lives = stat(self.origin_pid).is_some_and(|origin| !origin.is_dead());
        if lives && high_water_bytes(self.origin_pid).is_some() {
            self.most_bytes = own_bytes.max(self.most_bytes);
        }
        let cost_ns = sys::thread_cpu_ns().saturating_sub(begun_ns);
        let pause = Duration::from_nanos(cost_ns) * READING_PART;
        self.next_look = self.next_look.max(Instant::now() + pause);
        true
    }

    /// Returns whether it is lost if it ends without a hello: what was found by searching may have been about to load
    /// the recorder, unless it was seen twice, or cannot load it.
    pub(super) fn is_lost(&self) -> bool {
        match self.how {
            _ if self.is_filtered => true,
            How::Announced | How::Unreachable | How::Meeting | How::Shell | How::Quiet => true,
            How::Found => {
                self.dark_looks >= 2 || matches!(self.why, LostWhy::Static | LostWhy::Privileged)
            }
        }
    }

    /// Returns whether what it has been until now is lost, even if it becomes a program that says hello.
    pub(super) fn is_over(&self) -> bool {
        match self.how {
            How::Announced | How::Meeting | How::Shell => false,
            How::Quiet => self.most_bytes >= Some(MUCH_BYTES),
            How::Found | How::Unreachable => self.is_lost(),
        }
    }

    /// Returns whether it was a program without the recorder before it became the one at `exe`, which said hello.
    /// `folder`: where its origin worked.
    pub(super) fn was_dark(&self, exe: &str, folder: &str) -> bool {
        if self.how != How::Announced {
            // A copy that says hello reports all that it did.
            return self.how == How::Found && file(&self.exe) != file(exe) && self.is_lost();
        }
        if !self.exe.is_empty() {
            return file(&self.exe) != file(exe);
        }
        let asked = found_in_path(&self.path, folder);
        let Ok(file) = std::fs::canonicalize(&asked) else {
            return false;
        };
        if file == Path::new(exe) {
            return false;
        }
        // A script is run by another program, which says hello.
        self.without_us || matches!(why_by_file(&file), LostWhy::Static | LostWhy::Privileged)
    }
}

/// Returns the file that a program was started from, which may have been replaced since.
pub(super) fn file(exe: &str) -> &str {
    exe.strip_suffix(" (deleted)").unwrap_or(exe)
}

/// Reads the largest resident memory of a process so far.
fn high_water_bytes(pid: u32) -> Option<u64> {
    status::memory(pid)?.high_water_bytes
}

/// Reads the memory that a process has written and no other has mapped.
fn private_dirty_bytes(pid: u32) -> Option<u64> {
    rollup(pid)?.private_dirty_bytes
}

pub(super) fn has_recorder(pid: u32) -> bool {
    maps(pid).iter().any(|line| is_recorder(&line.name))
}

/// Returns whether a process has only its program and its loader mapped yet: preloaded libraries come right after
/// these, and all other libraries after them (kin.J2).
pub(super) fn is_being_loaded(exe: &str, maps: &[MapLine]) -> bool {
    let mut files: Vec<&str> = maps.iter().map(|line| line.name.as_str()).collect();
    files.retain(|name| name.starts_with('/') && *name != exe && !name.ends_with("/ld.so.cache"));
    files.dedup();
    let is_loader = |name: &&str| {
        let name = name.rsplit('/').next().unwrap_or_default();
        name.starts_with("ld-") || name.starts_with("ld.so")
    };
    !exe.is_empty() && !files.is_empty() && files.iter().all(is_loader)
}
