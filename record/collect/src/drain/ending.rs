//! The ending of a trace: how the process ended, and what is missing.
//!
//! Not here: when the ending is written (drain.rs), processes that are missing altogether (kin.rs).

use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering;

use skinflint_base::ring::{GAVE_UP_FILTER, SLOTS};
use skinflint_trace::{Ending, Exit, OriginKind};

use super::Draining;
use crate::frames;
use crate::libraries::Library;
use crate::linked;
use crate::process::lock;
use crate::server;
use crate::triggers::Watch;

/// The note on a process that said hello, and has not recorded anything since.
const NEVER_BEGAN: &str = "recording never began: the process met the collector, and had no room for the recorder's \
     descriptors or memory, was kept from them by a filter of system calls, or ended at that moment";

/// Reports whether the process of a pidfd has not ended.
fn lives(pidfd: RawFd) -> bool {
    !server::poll(&[pidfd], 0)[0]
}

impl Draining {
    pub(super) fn ending(&mut self) -> Ending {
        let mut ending = Ending {
            time_ns: self.process.now_ns(),
            ..Ending::default()
        };
        for slot in self.slots.drain(..) {
            if let Some(stream) = slot.stream {
                self.events += stream.events;
                self.lost += stream.lost;
                self.truncated += stream.truncated;
            }
        }
        let profile = self.profile.as_mut().map_or(0, |one| one.stream().events);
        self.events += self.outside.as_ref().map_or(0, |outside| outside.events) + profile;
        self.count_what_is_missing();
        let events = self.events;
        ending.events = self
            .turning
            .as_ref()
            .map_or(events, |one| one.events(events));
        ending.exit = self.exit();
        if !self.has_begun() {
            self.notes.push(NEVER_BEGAN.into());
        } else if self.process.beside {
            self.notes.extend(self.read_before(ending.time_ns));
        } else if matches!(ending.exit, Exit::Exited(_)) && !self.exit_asked {
            self.notes.push(
                "it ended without passing through exit: by a system call of its own, or it became \
                 another program that could not be recorded (environment cleared, static, set-user-id)"
                    .into(),
            );
        }
        if matches!(ending.exit, Exit::Signal(libc::SIGKILL)) {
            self.notes.extend(self.want_of_memory());
        }
        ending.lost_events = self.lost;
        ending.truncated_stacks = self.truncated;
        ending.notes = std::mem::take(&mut self.notes);
        let memory = *lock(&self.process.memory);
        ending.max_rss_bytes = memory.high_water_bytes;
        // ORDER: Relaxed; written by the sampler, which has finished with this process.
        let cpu_ns = self.process.cpu_ns.load(Ordering::Relaxed);
        ending.cpu_ns = (cpu_ns > 0).then_some(cpu_ns);
        ending.recorder_bytes = self.recorder_bytes();
        let header = self.process.first.header();
        let before = header.in_use_before.load(Ordering::Relaxed); // ORDER: as above; the process has ended.
        let after = header.in_use_after.load(Ordering::Relaxed); // ORDER: as above.
        ending.in_use_bytes = (before > 0 && after > 0).then_some((before, after));
        if let Some(child) = self.child {
            ending.cpu_ns = child.cpu_ns.or(ending.cpu_ns);
            ending.read_bytes = child.moved.map(|moved| moved.read_bytes);
            ending.written_bytes = child.moved.map(|moved| moved.written_bytes);
            // The kernel's figure for a child is of all programs that it was, one after another; ours is of this one.
            let origin = self.process.info.origin.as_ref();
            let was_other = origin.is_some_and(|origin| origin.how == OriginKind::Exec);
            ending.max_rss_bytes = match ending.max_rss_bytes {
                own @ Some(_) if was_other => own,
                own => own.max(child.max_rss_bytes),
            };
        }
        ending
    }

    /// Returns what is said of a heap whose last reading is not of its end.
    fn read_before(&self, ended_ns: u64) -> Option<String> {
        const NEAR_NS: u64 = 50_000_000;
        let outside = self.process.outside.as_ref()?;
        let before_ns = ended_ns.saturating_sub(outside.read_ns());
        (before_ns > NEAR_NS).then(|| {
            format!(
                "its heap was read for the last time {:.1} s before its end: what came and went later is not known",
                before_ns as f64 / 1e9
            )
        })
    }

    /// Reports whether the recorder in the process could begin after its hello.
    fn has_begun(&self) -> bool {
        // ORDER: Relaxed; as in `ending`.
        self.process.first.header().layout.load(Ordering::Relaxed) != 0
    }

    fn exit(&self) -> Exit {
        let from_status = |status: i32| match status & 0x7f {
            0 => Exit::Exited(status >> 8 & 0xff),
            signal => Exit::Signal(signal),
        };
        if self.exec {
            return Exit::Exec;
        }
        if let Some(child) = self.child {
            return from_status(child.status);
        }
        let pidfd = self.process.pidfd.as_ref().map(AsRawFd::as_raw_fd);
        let status = pidfd.and_then(server::exit_status).or(self.zombie_status);
        match status {
            Some(status) => from_status(status),
            None if self.process.attached && pidfd.is_some_and(lives) => Exit::Detached,
            None => Exit::Unknown,
        }
    }

    /// Returns what is said of a process that was killed while the kernel killed for want of memory in its control group.
    fn want_of_memory(&self) -> Option<String> {
        let mut watches = self.turning.iter().flat_map(|turning| &turning.watches);
        let limit = watches.find_map(Watch::limit_of_a_kill)?;
        Some(format!(
            "the kernel killed in its control group for want of memory: {} KiB are the limit",
            limit >> 10
        ))
    }

    fn recorder_bytes(&self) -> u64 {
        // ORDER: Relaxed; as in `ending`.
        let measured = self.process.recorder_bytes.load(Ordering::Relaxed);
        let said = self
            .process
            .first
            .header()
            .recorder_bytes
            .load(Ordering::Relaxed);
        if measured > 0 { measured } else { said }
    }

    fn count_what_is_missing(&mut self) {
        let header = self.process.first.header();
        // ORDER: Relaxed; counters of a process that has ended.
        let lost = header.lost_events.load(Ordering::Relaxed);
        let nested = header.nested_events.load(Ordering::Relaxed);
        let unserved = header.unserved_threads.load(Ordering::Relaxed);
        let gave_up = header.gave_up.load(Ordering::Relaxed); // ORDER: as above.
        self.lost += lost;
        if nested > 0 {
            let (calls, were) = match nested {
                1 => ("call", "was"),
                _ => ("calls", "were"),
            };
            self.notes.push(format!(
                "{nested} {calls} came from inside the allocator or from signal handlers that \
                 interrupted it, and {were} not recorded"
            ));
        }
        if unserved > 0 {
            self.notes.push(format!(
                "{unserved} threads were not recorded: no room for their rings"
            ));
        }
        let filtered = header.filtered_threads.load(Ordering::Relaxed); // ORDER: as above.
        if filtered > 0 {
            self.notes.push(format!(
                "{filtered} threads were not recorded: a filter of system calls would have ended the program"
            ));
        }
        let deep = header.deep_modules.load(Ordering::Relaxed); // ORDER: as above.
        if deep > 0 {
            self.notes.push(format!(
                "{deep} modules were not recorded: opened past the preloaded allocator"
            ));
        }
        self.notes.extend(self.process.linked.notes(header));
        let libraries = lock(&self.process.libraries);
        for note in libraries.iter().flat_map(|one| one.notes(header)) {
            // A library that was closed and opened again came twice.
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        let plans = libraries.iter().map(Library::plan);
        let plans = plans.chain([&*self.process.linked]);
        self.notes.extend(linked::uncounted(plans, header));
        drop(libraries);
        let outside = self.process.outside.as_ref();
        self.notes.extend(
            outside
                .map(|one| one.notes(self.process.info.origin.is_some()))
                .unwrap_or_default(),
        );
        if let Some(note) = frames::note(header) {
            self.notes.push(note);
        }
        if let Some(note) = frames::objects_note(header) {
            self.notes.push(note);
        }
        let regions = lock(&self.process.regions);
        let slots = regions
            .iter()
            .flat_map(|region| (0..SLOTS).map(move |i| region.slot(i)));
        // ORDER: Relaxed; as above.
        let unseen: u64 = slots.map(|slot| slot.unseen.load(Ordering::Relaxed)).sum();
        if self.process.attached {
            self.notes.push(
                "recorded from a moment of its life on (attached): blocks acquired before are unknown; their \
                 memory stands as free, or in other mappings"
                    .into(),
            );
        }
        if unseen > 0 {
            self.notes.push(format!(
                "{unseen} acquisitions were not recorded, because recording was stopped or had not begun; those \
                 blocks are unknown; their memory stands as free, or in other mappings"
            ));
        }
        match gave_up {
            0 => {}
            GAVE_UP_FILTER => self.notes.push(
                "recording stopped early: the program installed a filter of system calls that would have ended it at \
                 a call of the recorder (futex, getpid or gettid)"
                    .into(),
            ),
            _ => self
                .notes
                .push("recording stopped early: the collector did not answer for 5 s".into()),
        }
    }
}
