//! Snapshots that a program asks for, and waits for.
//!
//! ```text
//!   header: asked, cause ─┬─ the heap is about to fall ─► sampler
//!                         ├─ a mark, watched for ─► the caller looks first ─► sampler
//!                         └─ its end ─► what is read of it from outside ─► sampler
//! ```
//!
//! Not here: taking them (sampler.rs).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use skinflint_base::ring::{SNAPSHOT_EXIT, SNAPSHOT_LOOK};
use skinflint_trace::SnapshotCause;

use super::{Draining, outside};
use crate::held::{Held, Watched};
use crate::process::Process;
use crate::sampler::Ask;

impl Draining {
    /// Hands requests of the program on to the sampler. `besides`: what is read from outside of recorded processes.
    pub(super) fn answer_snapshots(
        &mut self,
        sampler: &Sender<Ask>,
        watched: Option<&(Watched, Sender<Held>)>,
        besides: &[Arc<Process>],
    ) {
        let header = self.process.first.header();
        // ORDER: Acquire; pairs with the recorder's AcqRel: the heap's greatest size came before it.
        let asked = header.high_water_asked.load(Ordering::Acquire);
        if asked != self.high_water_asked {
            self.high_water_asked = asked;
            let _ = sampler.send(Ask::HighWater(Arc::clone(&self.process), asked));
        }
        // ORDER: Acquire; pairs with the recorder's AcqRel: the cause was written before.
        let asked = header.snapshot_asked.load(Ordering::Acquire);
        if asked == self.snapshots_asked {
            return;
        }
        // ORDER: Relaxed; published by the number.
        let cause = header.snapshot_cause.load(Ordering::Relaxed);
        if cause == SNAPSHOT_LOOK {
            self.snapshots_asked = asked;
            let _ = sampler.send(Ask::Look(Arc::clone(&self.process), asked, None));
            return;
        }
        let newest = self.newest_mark.as_ref();
        let held = match watched {
            Some((Watched::End, held)) => (cause == SNAPSHOT_EXIT).then_some(held),
            Some((Watched::Mark(name), held)) if cause != SNAPSHOT_EXIT => match newest {
                Some((index, newest)) if *index == cause => (newest == name).then_some(held),
                Some((index, _)) if *index > cause => None,
                // The mark's name is still in the ring, and comes with the next pass.
                _ => return,
            },
            _ => None,
        };
        self.snapshots_asked = asked;
        self.exit_asked |= cause == SNAPSHOT_EXIT;
        let cause = match cause {
            SNAPSHOT_EXIT => SnapshotCause::Exit,
            mark => SnapshotCause::Mark(mark),
        };
        let is_exit = cause == SnapshotCause::Exit;
        let ask = Ask::Snapshot(Arc::clone(&self.process), cause, asked, None);
        let own = |beside: &&Arc<Process>| beside.pid == self.process.pid;
        if let Some(beside) = besides
            .iter()
            .find(own)
            .filter(|_| is_exit && held.is_none())
        {
            return outside::before_its_end(beside, sampler, ask);
        }
        let _ = match held {
            // If it is not received, it is dropped, and the request goes on (held.H2).
            Some(held) => {
                drop(held.send(Held::waiting(self.process.pid, sampler.clone(), ask)));
                Ok(())
            }
            None => sampler.send(ask),
        };
    }
}
