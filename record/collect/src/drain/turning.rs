//! Segments of a recording that is bounded: when the next one begins, and with what.
//!
//! ```text
//!   by its age or bytes ─► flush: all that was decoded is in the segment ─► what lives ─► Turn ─► the writer
//! ```
//!
//! T1  All events that were decoded are in the segment before, and the list of what lives has them: what lives is of exactly this moment.
//! T2  What is put aside has the mark of its condition, and the snapshot of that mark if it is read within a bound.
//! T3  There is one new segment under way at a time.
//!
//! Not here: what lives (live.rs), files (segments.rs).

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use skinflint_trace::{Ending, Exit, Segment};

use super::Draining;
use crate::bounds::now;
use crate::output::{Job, Output};
use crate::process::lock;
use crate::sampler::Ask;
use crate::segments::Turn;
use crate::triggers::{PUT_ASIDE, Seen};
use crate::turning::Putting;

/// The time between two looks at conditions: some small files each.
const LOOK: Duration = Duration::from_millis(50);
/// How long a snapshot is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most that is put aside of a process; what comes later takes the place of the last.
const MOST_KEPT: u32 = 4;

impl Draining {
    /// Takes what the last pass decoded.
    pub(super) fn see_memory(&mut self) {
        let Some(turning) = &mut self.turning else {
            return;
        };
        let streams = self
            .slots
            .iter_mut()
            .filter_map(|slot| slot.stream.as_mut());
        for kept in streams.filter_map(|stream| stream.kept.as_mut()) {
            turning.live.take(kept);
        }
        turning.live.pass();
    }

    /// Begins a new segment if it is time to, or if a condition has come true.
    pub(super) fn turn_if_due(&mut self, output: &Output, sampler: &Sender<Ask>) {
        if let Some(text) = self.has_come_true() {
            let (waiting, done) = channel();
            self.mark_from_outside(
                &format!("{PUT_ASIDE}{text}"),
                output,
                sampler,
                Some(waiting),
            );
            if let Some(turning) = &mut self.turning {
                turning.putting = Some(Putting {
                    text,
                    done,
                    since: Instant::now(),
                });
            }
        }
        let Some(turning) = &mut self.turning else {
            return;
        };
        if let Some(putting) = &turning.putting {
            let is_read = putting.done.try_recv() == Err(TryRecvError::Disconnected);
            let may_turn = turning.progress.bytes().is_some();
            if may_turn && (is_read || putting.since.elapsed() > PATIENCE) {
                let text = turning.putting.take().map(|one| one.text);
                turning.kept += 1;
                self.turn(output, text);
            }
            return;
        }
        let bytes = turning.progress.bytes();
        let age = now().saturating_duration_since(turning.since);
        let is_due = |(bytes, first)| turning.bounds.is_due(age, bytes, first);
        if bytes.is_some_and(is_due) {
            self.turn(output, None);
        }
    }

    /// Looks at the conditions; returns one that has come true.
    fn has_come_true(&mut self) -> Option<String> {
        let turning = self.turning.as_mut()?;
        let now = Instant::now();
        if turning.watches.is_empty() || turning.putting.is_some() || now < turning.next_look {
            return None;
        }
        turning.next_look = now + LOOK;
        let rss_bytes = lock(&self.process.memory).rss_bytes();
        let marks = self.marks_from_outside.iter().chain(&self.newest_mark);
        let marks = marks.filter(|(index, _)| *index >= turning.marks_seen);
        let names: Vec<Option<&str>> = marks.clone().map(|(_, name)| Some(&**name)).collect();
        turning.marks_seen = marks
            .map(|(index, _)| index + 1)
            .max()
            .unwrap_or(turning.marks_seen);
        let mut come = None;
        for watch in &mut turning.watches {
            for mark in names.iter().copied().chain([None]) {
                let text = watch.look(&Seen { rss_bytes, mark }, now);
                come = come.or(text.map(str::to_owned));
            }
        }
        come
    }

    /// Begins a new segment; `kept` is the condition for which the segments so far are put aside.
    fn turn(&mut self, output: &Output, kept: Option<String>) {
        self.flush(output);
        let decoded = self.decoded();
        let note = match &kept {
            Some(text) => format!("put aside when {text} came true"),
            None => "a segment: the recording goes on in the next one".to_owned(),
        };
        let mut ending = Ending {
            exit: Exit::Detached,
            time_ns: self.process.now_ns(),
            lost_events: self.lost_so_far(),
            notes: vec![note],
            ..Ending::default()
        };
        let header = self.process.first.header();
        // ORDER: Relaxed; hands out numbers.
        let marks = header.next_mark.load(Ordering::Relaxed);
        let Some(turning) = &mut self.turning else {
            return;
        };
        ending.events = turning.events(decoded);
        let beginning = turning.live.beginning(ending.time_ns);
        turning.number += 1;
        turning.before = decoded;
        turning.repeated = beginning.events;
        turning.since = now();
        let mut process = self.process.info.clone();
        process.segment = Some(Segment {
            number: turning.number,
            follows: false,
            since_ns: ending.time_ns,
            ticket: self.process.newest_ticket(),
            events: beginning.events,
            blocks: beginning.live,
            bytes: beginning.live_bytes,
            acquired: beginning.acquired,
            acquired_bytes: beginning.acquired_bytes,
            marks,
        });
        let turn = Turn {
            ending,
            process,
            codes: self.tree.codes.all(),
            nodes: self.tree.sent().to_vec(),
            kinds: self.tree.kinds.sent(),
            modules: self.modules.sent().to_vec(),
            threads: self.threads.clone(),
            blocks: beginning.blocks,
            kept: kept.map(|_| format!("kept-{}", turning.kept.min(MOST_KEPT))),
        };
        turning.progress.turns();
        output.send(self.process.index, Job::Turn(Box::new(turn)));
    }

    /// Returns the number of events decoded so far.
    fn decoded(&self) -> u64 {
        let streams = self.slots.iter().filter_map(|slot| slot.stream.as_ref());
        let streams = streams.chain(&self.outside);
        self.events + streams.map(|stream| stream.events).sum::<u64>()
    }

    /// Returns the number of events lost so far.
    fn lost_so_far(&self) -> u64 {
        let streams = self.slots.iter().filter_map(|slot| slot.stream.as_ref());
        // ORDER: Relaxed; a counter.
        let said = self
            .process
            .first
            .header()
            .lost_events
            .load(Ordering::Relaxed);
        self.lost + said + streams.map(|stream| stream.lost).sum::<u64>()
    }
}
