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
use std::sync::mpsc::Sender;

use skinflint_base::sys;
use skinflint_trace::{Mark, SnapshotCause, Thread, ThreadId};

use super::{Draining, send_block};
use crate::output::{Job, Output};
use crate::outside::Profile;
use crate::process::Process;
use crate::sampler::Ask;
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

impl Draining {
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
        // ORDER: Relaxed for both; read by the sampler when it answers, and the queue orders them.
        header
            .asked_ns
            .store(sys::monotonic_ns(), Ordering::Relaxed);
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
