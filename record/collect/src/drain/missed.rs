//! The drain's questions to `kin`: the processes that never said hello.
//!
//! Not here: which processes are missed, and which are lost (kin.rs).

use super::Drain;
use crate::kin::{Kin, Living, take_notices};
use crate::output::Job;

impl Drain {
    /// Calls `with` what is known of missed processes, and the processes that are being recorded.
    pub(super) fn with_kin<R>(&mut self, with: impl FnOnce(&mut Kin, &[Living<'_>]) -> R) -> R {
        let own = self.living.values().filter(|one| !one.process.beside);
        let living = own.map(|draining| Living {
            token: draining.process.token,
            process: &draining.process,
        });
        let living: Vec<Living<'_>> = living.collect();
        with(&mut self.kin, &living)
    }

    /// Returns the number of processes that are waited for: those that run and are recorded or may yet be; if none
    /// runs, those whose traces are still open.
    pub(super) fn running(&self) -> usize {
        let recorded = self.living.values().filter(|one| one.ended_at.is_none());
        match recorded.count() + self.kin.quiet() {
            0 => self.living.len(),
            running => running,
        }
    }

    /// Takes what processes have left in the notifier.
    pub(super) fn take_notices(&mut self) {
        let (notices, _) = take_notices(self.notifier.page());
        self.unplaced.extend(notices);
    }

    /// Gives the notices from before `until_ns` to what is known of missed processes; those of unknown processes stay.
    pub(super) fn place_notices(&mut self, until_ns: u64) {
        let mut all = std::mem::take(&mut self.unplaced);
        if all.is_empty() {
            return;
        }
        // The hello of the process that left the notice may still wait to be read.
        self.with_kin(|kin, living| {
            all.retain(|notice| notice.time_ns > until_ns || !kin.take_in(notice, living));
        });
        self.unplaced = all;
    }

    /// Looks for processes that came out of recorded ones and never said hello; writes what is known about them.
    pub(super) fn look_for_kin(&mut self) {
        self.with_kin(Kin::look);
        for pid in self.kin.take_static() {
            // The receiver is gone if programs of Go are not read from outside.
            let _ = self.strays.send(pid);
        }
        for index in self.kin.have_verdicts() {
            let lost = self.kin.take(index);
            if !lost.is_empty() {
                self.output.send(index, Job::Lost(lost));
            }
        }
    }
}
