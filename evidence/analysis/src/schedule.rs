//! The schedule of moments: which ones the report has, and what is done when the stream of events reaches them.
//!
//! ```text
//!   facts.snapshots, facts.marks ──► Plan { instants, due: (ticket, what) by ticket }
//!   event with ticket > due ──► everything up to the due ticket has been seen: do it
//! ```
//!
//! S1  What is due at ticket T is done after the events up to T and before the first one beyond.
//! S2  At most `Limits::mark_books` marks become instants; the rest keep their row and a note says so.
//! S3  Books are closed over the blocks that live at their snapshot's ticket, levels at the instant's.
//! S4  The largest live heap is a moment between two events, of which no snapshot was taken: asked for, it has the
//!     books of the nearest one. Nearest by events, not by time: where nothing is allocated, what is resident stays.
//! S5  A time that was asked for is the reader's: all figures of blocks are of that time. It has the books of the nearest
//!     snapshot if about as much lived then, and otherwise none: a note names the reading's time, which has both. That
//!     time, to the microsecond, is the reading itself: a snapshot's place among the events is its ticket, and the
//!     clock of the events may put others between.
//!
//! Not here: the actions (`analyzer.rs`).

use skinflint_trace::SnapshotCause;

use crate::facts::{AnalysisError, At, Facts, Options, microsecond, seconds};
use crate::falls;
use crate::model::{Instant, InstantKind};
use crate::peak;

/// An action that is due; the order is that of actions due at one ticket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Due {
    /// Note how much lives at this instant.
    Level(usize),
    /// Close this instant's books over this snapshot.
    Books(usize, usize),
    /// Look at this snapshot: the largest fall may lie before it, or most may be kept at it.
    Look(usize),
    /// The allocator's own count was taken here.
    InUse,
    /// Fill the row of this mark.
    MarkRow(usize),
    /// Note the report's own instant.
    At,
}

/// The instants, and what is due when.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub instants: Vec<Instant>,
    /// Index of the report's own instant.
    pub at: usize,
    /// Actions by ticket; what remains at the end is done at the end.
    pub due: Vec<(u64, Due)>,
    /// With `At::Time`: due at the first event later than this, nanoseconds.
    pub at_time_ns: u64,
    /// What the plan leaves out.
    pub notes: Vec<String>,
    /// Marks that are instants: (mark, instant).
    pub booked_marks: Vec<(usize, usize)>,
}

impl Plan {
    pub(crate) fn new(facts: &Facts, options: &Options) -> Result<Plan, AnalysisError> {
        let mut plan = Plan {
            instants: Vec::new(),
            at: 0,
            due: Vec::new(),
            at_time_ns: u64::MAX,
            notes: Vec::new(),
            booked_marks: Vec::new(),
        };
        let peak = plan.add_peak(facts, options);
        let end = plan.add_end(facts);
        plan.add(InstantKind::HeapPeak, "heap-peak", 0, None);
        plan.add_marks(facts, options);
        plan.choose(facts, options, peak, end)?;
        let all = facts.snapshots.iter().enumerate();
        let looks = all.filter(|(_, one)| falls::candidate(one));
        plan.due
            .extend(looks.map(|(index, one)| (one.ticket, Due::Look(index))));
        plan.due.sort_unstable();
        Ok(plan)
    }

    fn add(&mut self, kind: InstantKind, label: &str, time_ns: u64, ticket: Option<u64>) -> usize {
        let index = self.instants.len();
        self.instants.push(Instant {
            label: label.into(),
            kind,
            time_ns,
            ticket: ticket.unwrap_or_default(),
            ..Instant::default()
        });
        if let Some(ticket) = ticket {
            self.due.push((ticket, Due::Level(index)));
        }
        index
    }

    fn add_peak(&mut self, facts: &Facts, options: &Options) -> Option<usize> {
        let known = options.peak_snapshot;
        let known = known.filter(|index| *index < facts.snapshots.len());
        let index = known.or_else(|| peak::first(&facts.snapshots))?;
        let snapshot = &facts.snapshots[index];
        let ticket = Some(snapshot.ticket);
        let instant = self.add(InstantKind::Peak, "peak", snapshot.time_ns, ticket);
        self.due.push((snapshot.ticket, Due::Books(instant, index)));
        Some(instant)
    }

    fn add_end(&mut self, facts: &Facts) -> usize {
        let time_ns = facts.ending.as_ref().map_or(0, |ending| ending.time_ns);
        let instant = self.add(InstantKind::End, "end", time_ns, Some(u64::MAX));
        let exit = facts
            .snapshots
            .iter()
            .rposition(|one| one.cause == SnapshotCause::Exit);
        let last = facts.snapshots.len().checked_sub(1);
        if let Some(index) = exit {
            self.due.push((facts.snapshots[index].ticket, Due::InUse));
        }
        if let Some(index) = exit.or(last) {
            self.due
                .push((facts.snapshots[index].ticket, Due::Books(instant, index)));
        }
        instant
    }

    fn add_marks(&mut self, facts: &Facts, options: &Options) {
        // Of marks before what is kept nothing is known.
        let kept = facts.marks.iter().enumerate().skip(facts.marks_before());
        for (index, mark) in kept.clone() {
            self.due.push((mark.ticket, Due::MarkRow(index)));
        }
        let limit = options.limits.mark_books;
        let wanted = match &options.at {
            Some(At::Mark(name)) => facts.marks.iter().rposition(|mark| mark.name == *name),
            _ => None,
        };
        for (index, mark) in kept {
            if index >= limit && Some(index) != wanted {
                continue;
            }
            let instant = self.add(
                InstantKind::Mark,
                &mark.name,
                mark.time_ns,
                Some(mark.ticket),
            );
            self.booked_marks.push((index, instant));
            let cause = SnapshotCause::Mark(index as u32);
            if let Some(found) = facts.snapshots.iter().position(|one| one.cause == cause) {
                self.due
                    .push((facts.snapshots[found].ticket, Due::Books(instant, found)));
            }
        }
        if facts.marks.len() > limit {
            self.notes.push(format!(
                "{} marks: only the first {limit} have figures of their own by stack and by page; \
                 use --at NAME for another.",
                facts.marks.len()
            ));
        }
    }

    /// Decides which moment the report is about.
    fn choose(
        &mut self,
        facts: &Facts,
        options: &Options,
        peak: Option<usize>,
        end: usize,
    ) -> Result<(), AnalysisError> {
        let heap_peak = end + 1;
        self.at = match &options.at {
            None => peak.unwrap_or(end),
            Some(At::End) => end,
            Some(At::Peak) => {
                if peak.is_none() {
                    self.notes.push(
                        "Resident memory was never sampled, so its peak is not known: the report \
                         is as of the end."
                            .into(),
                    );
                }
                peak.unwrap_or(end)
            }
            Some(At::HeapPeak) => {
                let ticket = options.heap_peak_ticket.unwrap_or(u64::MAX);
                self.at = heap_peak;
                self.due.push((ticket, Due::At));
                if options.heap_peak_ticket.is_some() {
                    self.book_nearest(facts, ticket);
                }
                return Ok(());
            }
            Some(At::Mark(name)) => self.find_mark(facts, name)?,
            Some(At::AfterFree) => {
                let found = (
                    InstantKind::AfterFree,
                    "after-free",
                    options.after_free_ticket,
                );
                self.snapshot(facts, found).ok_or(AnalysisError::NoFall)?
            }
            Some(At::MostKept) => {
                let found = (InstantKind::MostKept, "most-kept", options.most_kept_ticket);
                self.snapshot(facts, found)
                    .ok_or(AnalysisError::NothingKept)?
            }
            Some(At::Time(time_ns)) => return self.at_time(facts, *time_ns),
        };
        self.due.push((self.instants[self.at].ticket, Due::At));
        Ok(())
    }

    /// Closes the report's own books over the snapshot with the fewest events between it and this ticket (S4).
    fn book_nearest(&mut self, facts: &Facts, ticket: u64) {
        let all = facts.snapshots.iter().enumerate();
        let with_pages = all.filter(|(_, one)| !one.mappings.is_empty());
        let nearest = with_pages.min_by_key(|(_, one)| one.ticket.abs_diff(ticket));
        if let Some((index, one)) = nearest {
            self.due.push((one.ticket, Due::Books(self.at, index)));
        }
    }

    fn find_mark(&self, facts: &Facts, name: &str) -> Result<usize, AnalysisError> {
        let found = self
            .booked_marks
            .iter()
            .rfind(|(mark, _)| facts.marks[*mark].name == name);
        if let Some((_, instant)) = found {
            return Ok(*instant);
        }
        let mut known: Vec<String> = Vec::new();
        for mark in &facts.marks {
            // The list is bounded: a long one does not help to find a misspelt name.
            if known.len() < 100 && !known.contains(&mark.name) {
                known.push(mark.name.clone());
            }
        }
        Err(AnalysisError::NoSuchMark {
            name: name.into(),
            known,
        })
    }

    /// Adds the snapshot that a first reading of the trace found for a moment.
    fn snapshot(
        &mut self,
        facts: &Facts,
        (kind, label, wanted): (InstantKind, &str, Option<u64>),
    ) -> Option<usize> {
        let found = facts
            .snapshots
            .iter()
            .position(|one| Some(one.ticket) == wanted && falls::candidate(one))?;
        let one = &facts.snapshots[found];
        let instant = self.add(kind, label, one.time_ns, Some(one.ticket));
        self.due.push((one.ticket, Due::Books(instant, found)));
        Some(instant)
    }

    fn at_time(&mut self, facts: &Facts, time_ns: u64) -> Result<(), AnalysisError> {
        let all = facts.snapshots.iter().enumerate();
        let with_pages = all.filter(|(_, one)| !one.mappings.is_empty());
        let nearest = with_pages.min_by_key(|(_, one)| one.time_ns.abs_diff(time_ns));
        let label = format!("{} s", seconds(time_ns));
        if let Some((index, one)) = nearest
            && microsecond(one.time_ns) == microsecond(time_ns)
        {
            self.at = self.add(InstantKind::Time, &label, one.time_ns, Some(one.ticket));
            self.due.push((one.ticket, Due::Books(self.at, index)));
            self.due.push((one.ticket, Due::At));
            return Ok(());
        }
        if let Some(segment) = &facts.process.segment
            && time_ns < segment.since_ns
        {
            let since_ns = segment.since_ns;
            return Err(AnalysisError::TimeBefore {
                asked_ns: time_ns,
                since_ns,
            });
        }
        if let Some(ending) = &facts.ending
            && time_ns > ending.time_ns
        {
            let end_ns = ending.time_ns;
            return Err(AnalysisError::TimeAfterEnd {
                asked_ns: time_ns,
                end_ns,
            });
        }
        self.at = self.add(InstantKind::Time, &label, time_ns, None);
        self.at_time_ns = time_ns;
        if let Some((index, one)) = nearest {
            self.due.push((one.ticket, Due::Books(self.at, index)));
        }
        Ok(())
    }
}
