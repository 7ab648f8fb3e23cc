//! The moments of an analysis's plan: levels, books, looks at what is kept, rows of marks.
//!
//! Not here: when that is (`schedule.rs`), the report (`analyzer`).

use skinflint_trace::{Snapshot, SnapshotCause};

use super::Analyzer;
use crate::block::NO_KEY;
use crate::books::{self, Bounds, Closed};
use crate::facts::{At, microsecond, seconds};
use crate::findings::MarkLevel;
use crate::grows::Births;
use crate::ledger::Ledger;
use crate::model::{Instant, InstantKind};
use crate::pass::Context;
use crate::passes::wording::bytes;
use crate::schedule::Due;
use crate::waste::Wasteful;

/// Pages are those of a time that was asked for if what lived at their reading differs by no more than one part in this
/// many, or so many bytes (schedule.S5).
const APART_PART: u64 = 50;
const APART_BYTES: u64 = 64 << 10;

impl Analyzer {
    /// Does what is due: every event up to the due ticket has been applied (schedule.S1).
    pub(super) fn reach(&mut self, due: Due) {
        match due {
            Due::Level(instant) => self.level(instant),
            Due::Books(instant, snapshot) => {
                let reports_own = instant == self.plan.at;
                let mut at = std::mem::take(&mut self.plan.instants[instant]);
                let mut closed = self.close(&mut at, snapshot, reports_own);
                let past_bytes = at.books.as_mut().map_or(0, books::mapped_past);
                // What is missing does not depend on the moment that was asked for (completeness.V2).
                if matches!(
                    at.kind,
                    InstantKind::Peak | InstantKind::End | InstantKind::Mark
                ) {
                    self.follow(&mut closed, &at, snapshot);
                }
                if at.kind == InstantKind::Peak {
                    self.past_bytes = past_bytes;
                }
                let is_heap_peak = at.kind == InstantKind::HeapPeak;
                self.plan.instants[instant] = at;
                self.booked
                    .push((instant, snapshot, self.ledger.live().usable_bytes));
                // How far they are from the largest live heap is known at the end only: no other moment may have them.
                if !is_heap_peak {
                    self.closed_last = Some((snapshot, instant));
                }
                if reports_own {
                    self.closed = Some(closed);
                }
            }
            Due::Look(snapshot) => {
                // With --at after-free the largest fall is the report's own instant.
                if self.options.at != Some(At::AfterFree) && self.falls.see(&self.ledger) {
                    self.look(snapshot);
                }
                let seen = &self.facts.snapshots[snapshot];
                if self.waste.see(seen, &self.ledger) {
                    self.look_kept(snapshot);
                }
            }
            Due::InUse => self.at_exit = Some(self.ledger.live()),
            Due::MarkRow(mark) => {
                let (live, counts) = (self.ledger.live(), self.ledger.counts());
                let before = std::mem::replace(&mut self.at_mark_before, counts);
                let highest = self.ledger.take_highest();
                let row = &mut self.mark_rows[mark];
                row.live_usable_bytes = live.usable_bytes;
                row.live_blocks = live.blocks;
                row.peak_live_usable_bytes = highest;
                row.allocations = counts.allocations - before.allocations;
                row.requested_bytes = counts.requested_bytes.wrapping_sub(before.requested_bytes);
            }
            Due::At => {
                self.requested_at = self.ledger.counts().requested_bytes;
                self.highest_at = self.ledger.heap_peak().live.usable_bytes;
                self.births = Some(Births::now(&self.ledger));
                let cells = self.ledger.cells();
                self.at_live = Some(cells.counts().map(|count| count.live).collect());
                let mapped = self.ledger.intervals();
                self.at_mapped = mapped.mapped_by_program();
                self.at_places = crate::heaps::places(|addr| mapped.owner(addr));
                let context = Context {
                    cells: cells.keys(),
                    blocks: &[],
                    key: NO_KEY,
                    site: 0,
                    time_ns: self.ledger.now_ns(),
                    ticket: self.last_ticket,
                };
                for pass in &mut self.passes {
                    pass.at_instant(&context);
                }
            }
        }
    }

    /// Follows the pages of a snapshot on which no block was seen.
    fn follow(&mut self, closed: &mut Closed, instant: &Instant, snapshot: usize) {
        let mut unseen = std::mem::take(&mut closed.unseen);
        let books = instant.books.as_ref();
        unseen.resident_bytes = books.map_or(0, |books| books.resident_bytes);
        let seen = &self.facts.snapshots[snapshot];
        let read_ns = seen.time_ns.saturating_add(seen.took_ns);
        self.ledger.follow(unseen, read_ns);
    }

    /// Closes the books of an instant over a snapshot.
    fn close(&self, instant: &mut Instant, snapshot: usize, reports_own: bool) -> Closed {
        let snapshot = &self.facts.snapshots[snapshot];
        let limits = &self.options.limits;
        let bounds = Bounds {
            // This is a large number: stacks of one function are merged when they have names.
            parts: limits.parts.saturating_mul(100),
            pins: if reports_own {
                limits.pins
            } else {
                limits.parts
            },
            keep: reports_own,
        };
        let mut closed = books::close(snapshot, &self.ledger, &self.facts.process, bounds);
        closed.books.skew_ns = skew_ns(snapshot, instant, self.facts.threads.len());
        instant.books = Some(std::mem::take(&mut closed.books));
        instant.fragments = closed.fragments.take();
        closed
    }

    /// Sets how far books are from their instants: in live bytes, and the largest live heap's in time. Called when all
    /// levels are known.
    pub(super) fn measure_distances(&mut self) {
        for &(index, snapshot, live_bytes) in &self.booked {
            let instant = &mut self.plan.instants[index];
            let Some(mut books) = instant.books.take() else {
                continue;
            };
            books.skew_bytes = live_bytes.wrapping_sub(instant.live_usable_bytes) as i64;
            if instant.kind == InstantKind::HeapPeak {
                let snapshot = &self.facts.snapshots[snapshot];
                books.skew_ns = skew_ns(snapshot, instant, self.facts.threads.len());
            }
            let larger = live_bytes.max(instant.live_usable_bytes);
            let apart = live_bytes.abs_diff(instant.live_usable_bytes);
            if instant.kind == InstantKind::Time && apart > (larger / APART_PART).max(APART_BYTES) {
                let read_ns = self.facts.snapshots[snapshot].time_ns;
                let note = another_moment(&instant.label, read_ns, larger > live_bytes, apart);
                instant.fragments = None;
                self.plan.notes.push(note);
                if index == self.plan.at {
                    self.closed = None;
                }
                continue;
            }
            instant.books = Some(books);
        }
    }

    /// Notes that the largest fall so far lies before this snapshot.
    #[cold]
    fn look(&mut self, snapshot: usize) {
        let seen = &self.facts.snapshots[snapshot];
        let mut instant = Instant {
            label: "after-free".into(),
            kind: InstantKind::AfterFree,
            time_ns: seen.time_ns,
            ticket: seen.ticket,
            ..Instant::default()
        };
        levels(&mut instant, &self.ledger);
        match self.closed_last.filter(|(of, _)| *of == snapshot) {
            // It belongs to a mark: the same pages and the same blocks.
            Some((_, of)) => {
                let same = &self.plan.instants[of];
                instant.books.clone_from(&same.books);
                instant.fragments.clone_from(&same.fragments);
            }
            None => {
                self.close(&mut instant, snapshot, false);
            }
        }
        if let Some(windows) = &mut self.windows {
            // `finish` puts it behind all that were planned; a fall before this one was smaller.
            let index = self.plan.instants.len();
            windows.forget(index);
            windows.instant(index, instant.time_ns, &mut self.ledger);
        }
        self.after_free = Some(instant);
    }

    /// Notes that more is kept at this snapshot than at any before it.
    #[cold]
    fn look_kept(&mut self, snapshot: usize) {
        let seen = &self.facts.snapshots[snapshot];
        let mut instant = Instant {
            label: "most-kept".into(),
            kind: InstantKind::MostKept,
            time_ns: seen.time_ns,
            ticket: seen.ticket,
            ..Instant::default()
        };
        levels(&mut instant, &self.ledger);
        let mut closed = self.close(&mut instant, snapshot, false);
        self.follow(&mut closed, &instant, snapshot);
        let unplaced = self.unplaced_wasteful();
        if let Some(windows) = &mut self.windows {
            windows.forget(unplaced);
            windows.instant(unplaced, instant.time_ns, &mut self.ledger);
        }
        self.wasteful = Some(Wasteful {
            instant,
            giveback: closed.giveback,
            requested_bytes: self.ledger.counts().requested_bytes,
            highest_bytes: self.ledger.heap_peak().live.usable_bytes,
        });
    }

    /// Returns the number of the most wasteful moment during the run: behind the planned ones and the largest fall's.
    pub(super) fn unplaced_wasteful(&self) -> usize {
        self.plan.instants.len() + 1
    }

    fn level(&mut self, index: usize) {
        if let Some(windows) = &mut self.windows {
            let time_ns = self.plan.instants[index].time_ns;
            windows.instant(index, time_ns, &mut self.ledger);
        }
        levels(&mut self.plan.instants[index], &self.ledger);
        let mark = self
            .plan
            .booked_marks
            .iter()
            .find(|(_, instant)| *instant == index);
        if let Some(&(mark, _)) = mark {
            let cells = self.ledger.cells();
            let mut usable_bytes = vec![0; cells.sites().len()];
            for (key, count) in cells.keys().iter().zip(cells.counts()) {
                usable_bytes[count.site as usize] += u64::from(count.live) * key.usable;
            }
            self.mark_levels.push(MarkLevel { mark, usable_bytes });
        }
    }
}

/// Says that the pages of a time are not known (schedule.S5).
fn another_moment(label: &str, read_ns: u64, less: bool, apart: u64) -> String {
    let read = seconds(microsecond(read_ns));
    format!(
        "--at {label}: pages are not known then. The nearest reading is of {read} s, when {} {} lived: --at {read}s has \
         its figures.",
        bytes(apart),
        if less { "less" } else { "more" },
    )
}

/// Sets how much lives now.
fn levels(instant: &mut Instant, ledger: &Ledger) {
    let live = ledger.live();
    instant.live_blocks = live.blocks;
    instant.live_requested_bytes = live.requested_bytes;
    instant.live_usable_bytes = live.usable_bytes;
}

/// Returns how far a snapshot may be from its instant. At exit the program waited; at a mark its thread did, which is
/// the whole program if it has no other.
fn skew_ns(snapshot: &Snapshot, instant: &Instant, threads: usize) -> u64 {
    let distance = snapshot.time_ns.abs_diff(instant.time_ns);
    match (&snapshot.cause, instant.kind) {
        (SnapshotCause::Exit, InstantKind::End) => 0,
        (SnapshotCause::Mark(_), InstantKind::Mark) if threads == 1 => 0,
        (SnapshotCause::Exit, _) => distance,
        _ => distance.saturating_add(snapshot.took_ns),
    }
}
