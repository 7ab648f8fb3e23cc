//! What the drain does from outside: marks, and the heap of a process that no recorder is in.
//!
//! ```text
//!   mark ─► a number, an event of a stream of its own ─► a snapshot
//!   batches of a heap ─► codes, nodes, events of another stream
//! ```
//!
//! Not here: reading the heap (outside.rs of the crate).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SendError, Sender};

use skinflint_trace::{Mark, SnapshotCause, Thread, ThreadId};

use super::{Draining, send_block};
use crate::output::{Job, Output};
use crate::outside::{Outside, Profile};
use crate::process::Process;
use crate::sampler::Ask;
use crate::served::Errand;
use crate::stream::Stream;

/// Returns a stream of events that no thread of the process made.
fn stream(threads: &mut Vec<Thread>, process: &Process, name: &str) -> Stream {
    let id = ThreadId(threads.len() as u32);
    threads.push(Thread {
        tid: 0,
        name: name.to_owned(),
        started_ns: process.now_ns(),
        ended_ns: None,
    });
    Stream::new(id, 0)
}

/// Has what is beside a process read for the last time, before the request of the process itself, which waits at its end.
pub(super) fn before_its_end(beside: &Arc<Process>, sampler: &Sender<Ask>, ask: Ask) {
    let Some(keeper) = beside.outside.as_ref().and_then(Outside::keeper) else {
        beside.ends_now();
        // ORDER: Relaxed; put back as it is.
        let done = beside.first.header().snapshot_done.load(Ordering::Relaxed);
        let last = Ask::Snapshot(Arc::clone(beside), SnapshotCause::Exit, done, None);
        let _ = sampler.send(last).and_then(|()| sampler.send(ask));
        return;
    };
    let sampler = sampler.clone();
    let goes_on = move || drop(sampler.send(ask));
    // If the thread is gone, it comes back.
    if let Err(SendError(Errand::Last(goes_on))) = keeper.send(Errand::Last(Box::new(goes_on))) {
        goes_on();
    }
}

impl Draining {
    /// Makes a mark; of a profile that is served, once that has been fetched.
    pub(super) fn mark_or_ask(
        &mut self,
        name: &str,
        output: &Output,
        sampler: &Sender<Ask>,
        waiting: Option<Sender<()>>,
    ) {
        let keeper = self.process.outside.as_ref().and_then(Outside::keeper);
        match keeper {
            Some(keeper) => drop(keeper.send(Errand::Mark(name.to_owned(), waiting))),
            None => self.mark_from_outside(name, output, sampler, waiting),
        }
    }

    /// Has what is read from outside read for the last time, of a process that goes on; a profile is fetched by its thread.
    pub(super) fn leave(&mut self, sampler: &Sender<Ask>, waiting: &Sender<()>) {
        let Some(outside) = &self.process.outside else {
            return;
        };
        if outside.keeper().is_none() {
            self.ends(sampler, waiting.clone());
        }
    }

    /// Reports whether it is a profile that is served.
    pub(super) fn is_served(&self) -> bool {
        let outside = self.process.outside.as_ref();
        outside.is_some_and(|outside| outside.keeper().is_some())
    }

    /// Takes what was read of its heap from outside since the last time.
    pub(super) fn take_outside(&mut self, output: &Output) {
        let Some(outside) = &self.process.outside else {
            return;
        };
        let (threads, tree) = (&mut self.threads, &mut self.tree);
        for batch in outside.take() {
            let profile = self.profile.get_or_insert_with(|| {
                Profile::new(stream(threads, &self.process, "(heap profile)"))
            });
            profile.add(&batch, tree);
            let encoder = &mut profile.stream().encoder;
            if encoder.is_full()
                && let Some(block) = encoder.take()
            {
                send_block(tree, self.process.index, block, output);
            }
        }
    }

    /// Has a process that is read from outside read for the last time; it waits.
    pub(super) fn ends(&mut self, sampler: &Sender<Ask>, waiting: Sender<()>) {
        let header = self.process.first.header();
        self.exit_asked = true;
        self.process.ends_now();
        // ORDER: Relaxed; put back as it is.
        let done = header.snapshot_done.load(Ordering::Relaxed);
        let process = Arc::clone(&self.process);
        let ask = Ask::Snapshot(process, SnapshotCause::Exit, done, Some(waiting));
        let _ = sampler.send(ask);
    }

    pub(super) fn mark_from_outside(
        &mut self,
        name: &str,
        output: &Output,
        sampler: &Sender<Ask>,
        waiting: Option<Sender<()>>,
    ) {
        // What has happened until now comes before the mark.
        self.process.read_outside();
        let header = self.process.first.header();
        // ORDER: Relaxed; hands out numbers, to both sides.
        let index = header.next_mark.fetch_add(1, Ordering::Relaxed);
        let (ticket, time_ns) = (self.process.newest_ticket(), self.process.now_ns());
        let mark = Mark {
            name: name.to_owned(),
            time_ns,
            ticket,
            thread: None,
        };
        output.send(self.process.index, Job::Mark(index, mark));
        self.marks_from_outside.push((index, name.to_owned()));
        let (threads, process) = (&mut self.threads, &self.process);
        let named = || stream(threads, process, "(marks from outside)");
        let stream = self.outside.get_or_insert_with(named);
        stream.time_ns = time_ns;
        stream.outside_mark(index, ticket);
        let cause = SnapshotCause::Mark(index);
        let done = header.snapshot_done.load(Ordering::Relaxed); // ORDER: Relaxed; put back as it is.
        let _ = sampler.send(Ask::Snapshot(
            Arc::clone(&self.process),
            cause,
            done,
            waiting,
        ));
    }
}
