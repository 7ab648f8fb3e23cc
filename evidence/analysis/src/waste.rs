//! The most wasteful moment: the snapshot at which the allocator keeps most beyond what lives; and whether a
//! moment lies in the program's exit, when giving back gains nothing.
//!
//! ```text
//!   resident heap  ▁▂▄▆█████████     what mappings hold that the program did not make itself
//!   live           ▁▂▄▆█▇▅▃▂▂▂▂▂
//!                          ▲         resident − live is kept: the moment at which that is most
//! ```
//!
//! O1  It counts from a mebibyte and a fiftieth of resident memory on.
//! O2  Among moments that differ by less than a quarter the first stays, so that few are looked at page by page.
//! O3  A snapshot at exit is no candidate: it is the end.
//! O4  A moment lies in the exit of a program that ended by itself if next to nothing is acquired after it (a
//!     hundredth of what lives at the largest heap) and the program is not steady any more (`steady.rs`): destructors
//!     free, and the kernel takes the pages a moment later. Nor is anything kept for long that is free less than a
//!     tenth of the run (steady.E5) before the end, whatever is acquired meanwhile. A program that was killed did not
//!     exit: that is how daemons end. While the program waits for a snapshot it is not steady.
//! O5  If more has been requested since than half of what was kept, that was taken again, and as much kept later
//!     counts anew: so a program that is steady after its last round is looked at there. Such looks lie a quarter of the
//!     time apart, so that even a long run has few.
//! O6  A quarter of the time later, a sixteenth more is enough: when the last blocks of pages go, what can go back grows
//!     by more than what is kept.
//!
//! Not here: how much of it would really go back, which needs its pages (`giveback.rs`).

use skinflint_trace::{Exit, MappingKind, Snapshot, SnapshotCause};

use crate::facts::{At, Facts};
use crate::falls;
use crate::giveback::GiveBack;
use crate::ledger::Ledger;
use crate::maps::Intervals;
use crate::model::Instant;
use crate::steady::Steady;

const LEAST_BYTES: u64 = 1 << 20;
/// One part in this many of resident memory counts (O1).
const LEAST_PART: u64 = 50;

/// The most that was kept so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waste {
    most: u64,
    /// The time of that moment, and the bytes requested by then.
    seen_ns: u64,
    requested_bytes: u64,
}

/// A moment whose books are closed, and what is needed to judge it at the end.
#[derive(Clone, Debug)]
pub(crate) struct Wasteful {
    pub instant: Instant,
    pub giveback: GiveBack,
    /// Bytes requested until then, over the whole run.
    pub requested_bytes: u64,
    /// The largest live heap until then, usable bytes.
    pub highest_bytes: u64,
}

impl Waste {
    /// Looks at a snapshot whose moment has come; returns whether more is kept than at any before it.
    pub fn see(&mut self, snapshot: &Snapshot, ledger: &Ledger) -> bool {
        if !falls::candidate(snapshot) {
            return false;
        }
        let (heap, resident) = heap_bytes(snapshot, ledger.intervals());
        let kept = heap.saturating_sub(ledger.live().usable_bytes);
        let is_much = kept >= LEAST_BYTES.max(resident / LEAST_PART);
        let is_more = kept > self.most.saturating_add(self.most / 4);
        // What was kept was taken again (O5).
        let requested = ledger.counts().requested_bytes;
        let asked = requested.saturating_sub(self.requested_bytes);
        let is_later = snapshot.time_ns >= self.seen_ns.saturating_add(self.seen_ns / 4);
        // Blocks that go one by one leave whole pages late: what is kept grows by little, and can go back (O6).
        let is_rest = kept > self.most + self.most / 16 && is_later && self.seen_ns > 0;
        let is_anew = kept >= self.most - self.most / 4 && asked >= self.most / 2 && is_later;
        let looks = is_much && (is_more || is_rest || is_anew);
        if looks {
            *self = Waste {
                most: kept.max(self.most),
                seen_ns: snapshot.time_ns,
                requested_bytes: requested,
            };
        }
        looks
    }
}

/// Finds the moment's ticket in a first reading of a trace, for [`crate::Options::most_kept_ticket`].
#[derive(Clone, Debug)]
pub struct WasteSearch<'a> {
    snapshots: &'a [Snapshot],
    next: usize,
    waste: Waste,
    found: Option<u64>,
}

impl<'a> WasteSearch<'a> {
    /// Creates a search over these snapshots, which are ordered by ticket.
    pub fn new(snapshots: &'a [Snapshot]) -> WasteSearch<'a> {
        WasteSearch {
            snapshots,
            next: 0,
            waste: Waste::default(),
            found: None,
        }
    }

    /// Looks at the snapshots before the event with this ticket; the ledger has seen the events before it.
    pub fn before(&mut self, ticket: u64, ledger: &Ledger) {
        while let Some(snapshot) = self.snapshots.get(self.next)
            && ticket > snapshot.ticket
        {
            self.next += 1;
            if self.waste.see(snapshot, ledger) {
                self.found = Some(snapshot.ticket);
            }
        }
    }

    /// Returns the ticket, if the allocator ever kept so much (O1).
    pub fn finish(mut self, ledger: &Ledger) -> Option<u64> {
        self.before(u64::MAX, ledger);
        self.found
    }
}

/// Returns the resident bytes of mappings that may be the allocator's, and of all.
fn heap_bytes(snapshot: &Snapshot, maps: &Intervals) -> (u64, u64) {
    let (mut heap, mut resident) = (0u64, 0u64);
    for mapping in &snapshot.mappings {
        resident = resident.saturating_add(mapping.rss_bytes);
        let is_heap = matches!(mapping.kind, MappingKind::Heap | MappingKind::Anon);
        if is_heap && mapping.rss_bytes > 0 {
            let pieces = maps.split(mapping.start, mapping.end);
            let own = pieces
                .iter()
                .filter(|(_, _, owner)| owner.is_some_and(|one| !one.by_allocator));
            // A program that maps memory by itself usually fills it.
            let own = own.map(|(start, end, _)| end - start).sum();
            heap = heap.saturating_add(mapping.rss_bytes.saturating_sub(own));
        }
    }
    (heap, resident)
}

/// Reports whether the reader named the moment, and the program does not clear up after it: given what is live there and at
/// the end. Such a moment is no exit, however soon the program ends: a quick machine must not change what is told of it.
pub(crate) fn is_asked_for(at: Option<&At>, (then_bytes, end_bytes): (u64, u64)) -> bool {
    matches!(at, Some(At::Mark(_) | At::Time(_))) && end_bytes > then_bytes / 2
}

/// Reports whether a moment lies in the program's exit (O4): given the bytes requested after it, the peak, and its
/// time.
pub(crate) fn is_in_exit(
    facts: &Facts,
    (later_bytes, peak_bytes): (u64, u64),
    time_ns: u64,
    steady: &Steady<'_>,
) -> bool {
    // The program waited while the snapshot was read: that is not steady.
    let waited = |one: &&Snapshot| one.time_ns == time_ns && is_waited_for(&one.cause);
    let snapshots = facts.snapshots.iter().filter(waited);
    let reading_ns = snapshots.map(|one| one.took_ns).max().unwrap_or(0);
    // What is free now was free since then (steady.E7).
    let since_ns = steady.level_since(time_ns);
    let time_ns = match since_ns < time_ns {
        true => since_ns,
        false => time_ns.saturating_add(reading_ns),
    };
    let by_itself = matches!(
        facts.ending.as_ref().map(|one| one.exit),
        Some(Exit::Exited(_))
    );
    let clears_up = later_bytes <= peak_bytes / 100 && !steady.is_steady_after(time_ns);
    by_itself && (clears_up || steady.ends_after(time_ns))
}

/// Reports whether the program waits while a snapshot of this cause is read.
fn is_waited_for(cause: &SnapshotCause) -> bool {
    matches!(cause, SnapshotCause::Mark(_) | SnapshotCause::Exit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::Owner;
    use crate::model::Timeline;
    use skinflint_trace::{
        AllocFn, Ending, Event, EventKind, Mapping, NodeId, SnapshotCause, ThreadId,
    };

    const MIB: u64 = 1 << 20;

    fn snapshot(cause: SnapshotCause, heap: u64) -> Snapshot {
        let mapping = |start, kind, rss_bytes| Mapping {
            start,
            end: start + 64 * MIB,
            kind,
            rss_bytes,
            ..Mapping::default()
        };
        Snapshot {
            time_ns: 0,
            ticket: 0,
            cause,
            took_ns: 0,
            counted_bytes: None,
            tops: None,
            mappings: vec![
                mapping(64 * MIB, MappingKind::Heap, heap),
                mapping(256 * MIB, MappingKind::File, 8 * MIB),
            ],
        }
    }

    #[test]
    fn a_moment_that_was_asked_for_is_no_exit_unless_the_program_clears_up() {
        let mark = At::Mark("counted".into());
        assert!(is_asked_for(Some(&mark), (1_000, 501)));
        assert!(!is_asked_for(Some(&mark), (1_000, 500)), "half is freed");
        assert!(is_asked_for(Some(&At::Time(7)), (0, 1)));
        assert!(!is_asked_for(Some(&At::End), (1_000, 1_000)));
        assert!(!is_asked_for(None, (1_000, 1_000)));
    }

    #[test]
    fn more_is_kept_from_a_mebibyte_on_and_by_a_quarter() {
        let (mut waste, ledger) = (Waste::default(), Ledger::new(16));
        let mut see = |bytes| waste.see(&snapshot(SnapshotCause::Periodic, bytes), &ledger);
        let seen = [MIB - 1, MIB, MIB + MIB / 4, MIB + MIB / 4 + 1, 2 * MIB].map(&mut see);
        assert_eq!(seen, [false, true, false, true, true]);
        let mut waste = Waste::default();
        assert!(!waste.see(&snapshot(SnapshotCause::Exit, 9 * MIB), &ledger));
    }

    #[test]
    fn a_little_more_counts_a_quarter_of_the_time_later() {
        const SECOND: u64 = 1_000_000_000;
        let (mut waste, ledger) = (Waste::default(), Ledger::new(16));
        let mut see = |time_ns, bytes| {
            let one = Snapshot {
                time_ns,
                ..snapshot(SnapshotCause::Periodic, bytes)
            };
            waste.see(&one, &ledger)
        };
        assert!(see(4 * SECOND, 16 * MIB));
        assert!(!see(5 * SECOND - 1, 19 * MIB), "too soon");
        assert!(!see(5 * SECOND, 17 * MIB), "no more than a sixteenth");
        assert!(see(5 * SECOND, 17 * MIB + 1));
    }

    #[test]
    fn as_much_counts_anew_once_it_was_taken_again() {
        const SECOND: u64 = 1_000_000_000;
        let mut ledger = Ledger::new(16);
        let mut waste = Waste::default();
        let at = |time_ns| Snapshot {
            time_ns,
            ..snapshot(SnapshotCause::Periodic, 8 * MIB)
        };
        assert!(waste.see(&at(4 * SECOND), &ledger));
        assert!(
            !waste.see(&at(9 * SECOND), &ledger),
            "nothing was asked for"
        );
        let event = |ticket, kind| Event {
            ticket,
            time_ns: 9 * SECOND,
            thread: ThreadId(0),
            kind,
        };
        let func = AllocFn::Malloc;
        let (node, addr, size) = (NodeId(1), 64 * MIB, 4 * MIB);
        let usable = size;
        let taken = event(
            0,
            EventKind::Alloc {
                func,
                node,
                addr,
                size,
                usable,
            },
        );
        ledger.apply(&taken, &mut |_, _| {});
        let func = skinflint_trace::FreeFn::Free;
        ledger.apply(&event(1, EventKind::Free { func, addr }), &mut |_, _| {});
        assert!(!waste.see(&at(5 * SECOND - 1), &ledger), "too soon");
        assert!(waste.see(&at(5 * SECOND), &ledger));
    }

    #[test]
    fn what_the_program_mapped_is_not_kept_by_the_allocator() {
        let seen = snapshot(SnapshotCause::Periodic, 10 * MIB);
        let mut maps = Intervals::default();
        assert_eq!(heap_bytes(&seen, &maps), (10 * MIB, 18 * MIB));
        let owner = |by_allocator| Owner {
            node: NodeId(1),
            by_allocator,
            by_break: false,
            arena: false,
        };
        maps.map(64 * MIB, 4 * MIB, owner(false));
        maps.map(72 * MIB, 2 * MIB, owner(true));
        assert_eq!(heap_bytes(&seen, &maps), (6 * MIB, 18 * MIB));
    }

    #[test]
    fn an_exit_is_the_last_part_of_a_run_that_ended_by_itself() {
        const MS: u64 = 1_000_000;
        // 2 s at a level of 10,000, all of it let go of at once.
        let falls_at = |n: usize| Timeline {
            heap_t_ns: (1..=200).map(|n| n * 10 * MS).collect(),
            live_usable_bytes: [vec![10_000; n], vec![0; 200 - n]].concat(),
            ..Timeline::default()
        };
        let ended = |exit| Facts {
            ending: Some(Ending {
                exit,
                ..Ending::default()
            }),
            ..Facts::default()
        };
        let own = ended(Exit::Exited(1));
        let judged = |facts: &Facts, later, left_ms: u64| {
            let line = falls_at(200 - left_ms as usize / 10);
            let steady = Steady::of(facts, &line, 2000 * MS);
            is_in_exit(facts, (later, 10_000), (2000 - left_ms) * MS, &steady)
        };
        // A span is a tenth: 200 ms.
        assert!(judged(&own, 100, 150));
        assert!(judged(&own, 101, 150), "less than a span is left");
        assert!(!judged(&own, 101, 210), "it goes on acquiring");
        assert!(!judged(&own, 0, 390), "it idles");
        let line = falls_at(160);
        let steady = Steady::of(&own, &line, 2000 * MS);
        assert!(
            !is_in_exit(&own, (0, 10_000), 1990 * MS, &steady),
            "it has idled"
        );
        // A program that waits for a snapshot does not idle.
        let marked = |cause, took_ms: u64| {
            let mut seen = snapshot(cause, 10 * MIB);
            (seen.time_ns, seen.took_ns) = ((2000 - 390) * MS, took_ms * MS);
            let mut facts = ended(Exit::Exited(0));
            facts.snapshots.push(seen);
            judged(&facts, 0, 390)
        };
        assert!(marked(SnapshotCause::Mark(0), 200), "190 ms are left");
        assert!(!marked(SnapshotCause::Mark(0), 100));
        assert!(!marked(SnapshotCause::Periodic, 200), "it ran meanwhile");
        for other in [Exit::Signal(9), Exit::Exec, Exit::Unknown] {
            assert!(!judged(&ended(other), 0, 0));
        }
        assert!(!judged(&Facts::default(), 0, 0));
    }
}
