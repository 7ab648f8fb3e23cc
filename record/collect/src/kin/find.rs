//! Processes that the search finds: kin without the recorder are missed.
//!
//! Not here: which processes are looked at, and what they are (search.rs); what becomes of missed ones (kin.rs).

use std::time::Instant;

use skinflint_procfs::process::link;
use skinflint_procfs::processes::parent;
use skinflint_procfs::{About, about, climb};
use skinflint_trace::LostKind;

use super::Kin;
use super::missed::{How, Living, Missing, file};
use super::search::{Is, MOST_GENERATIONS};
use crate::process::Process;

impl Kin {
    /// Finds processes that came out of recorded ones without a notice (search.L1).
    pub(super) fn find(&mut self, living: &[Living<'_>]) {
        self.search.add_newborn();
        let asked: Vec<&Process> = living
            .iter()
            .map(|living| living.process)
            .filter(|process| !process.attached)
            .collect();
        // With no recorded process left, what is young has no kin, and is forgotten when it is looked at.
        let now = Instant::now();
        if self.search.is_time_for_programs(now) {
            self.find_other_programs(&asked, living);
        }
        for pid in self.search.due(now) {
            let is_known = self.missed.contains_key(&pid)
                || living.iter().any(|living| living.process.pid == pid);
            let is = match about(pid) {
                Some(about) if !is_known && about.tgid == pid => {
                    self.place(pid, &about, &asked, living)
                }
                _ => Is::Nothing,
            };
            self.search.note(pid, &is, now);
        }
    }

    /// Looks at a young process, and notes it as missed if it is a copy, or a program without the recorder.
    fn place(&mut self, pid: u32, about: &About, asked: &[&Process], living: &[Living<'_>]) -> Is {
        // Taken first: what it becomes afterwards says hello later.
        let time_ns = skinflint_base::sys::monotonic_ns();
        let ancestor = self.ancestor(about.ppid, asked);
        let is = self.search.look_at(pid, ancestor.is_some());
        let exe = link(pid, "exe");
        let (what, how) = match is {
            Is::Copy => (LostKind::Copy, How::Quiet),
            Is::Dark => (LostKind::Program, How::Found),
            _ => return is,
        };
        // A copy whose parent has ended is a child of another process by now; its program is still its origin's.
        let origin = ancestor.flatten().or_else(|| {
            let same = asked
                .iter()
                .filter(|process| file(&process.info.exe) == file(&exe));
            same.max_by_key(|process| process.start_ns)
                .map(|process| process.index)
        });
        let Some(origin) = origin.filter(|_| !exe.is_empty()) else {
            return Is::Open(false);
        };
        let is_of_it = |process: &&Process| process.index == origin && process.pid == about.ppid;
        let may_be_shell = how == How::Found && asked.iter().any(is_of_it);
        let missing = Missing {
            origin,
            what,
            how,
            time_ns,
            path: exe,
            without_us: false,
            is_kept_away: false,
        };
        self.miss(pid, missing, living);
        if may_be_shell {
            self.is_found(origin, pid);
        }
        is
    }

    /// Returns the index of the nearest recorded ancestor, which may be that of a missed one; `Some(None)` if only we
    /// are its ancestor, `None` if it is a stranger.
    fn ancestor(&self, ppid: u32, asked: &[&Process]) -> Option<Option<usize>> {
        let is_known = |pid| {
            if let Some(process) = asked.iter().find(|process| process.pid == pid) {
                return Some(Some(process.index));
            }
            if let Some(missed) = self.missed.get(&pid) {
                return Some(Some(missed.origin));
            }
            (pid == std::process::id()).then_some(None)
        };
        climb(ppid, MOST_GENERATIONS, is_known, parent)
    }

    /// Finds programs in the place of recorded ones, which left no notice.
    fn find_other_programs(&mut self, asked: &[&Process], living: &[Living<'_>]) {
        for process in asked {
            let exe = link(process.pid, "exe");
            let is_new = !exe.is_empty() && file(&exe) != file(&process.info.exe);
            if is_new
                && !self.missed.contains_key(&process.pid)
                && self.search.look_at(process.pid, true) == Is::Dark
            {
                let missing = Missing {
                    origin: process.index,
                    what: LostKind::Exec,
                    how: How::Found,
                    time_ns: skinflint_base::sys::monotonic_ns(),
                    path: exe,
                    without_us: false,
                    is_kept_away: false,
                };
                self.miss(process.pid, missing, living);
            }
        }
    }
}
