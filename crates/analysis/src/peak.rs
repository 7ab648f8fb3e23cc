//! The peak: which snapshot is meant by it, for every command that speaks of one.
//!
//! ```text
//!   resident  ▁▂▄▆█████████▇       an allocator that keeps what was freed leaves it flat: the plateau
//!   live      ▁▂▄▆█▇▅▃▂▁▁▁▁        the peak is the snapshot of the plateau with most live bytes
//! ```
//!
//! K1  The plateau is every snapshot within a fiftieth of the greatest resident memory. Which of them has
//!     a few pages more than the others is chance, and most often it is the last one.
//! K2  Of those the one with most live bytes given; the first of several. What is asked about the peak is
//!     what holds the memory, and nothing does after everything was freed.
//! K3  Without a reading of the events the first of the plateau stands for it: memory is filled before it is
//!     freed.
//!
//! Not here: the largest live heap, exact to the event (`ledger.rs`); the moment at which most could go
//! back (`waste.rs`).

use skinflint_trace::Snapshot;

use crate::ledger::Ledger;

/// The plateau reaches down to the greatest resident memory less this part of it (K1).
const PART: u64 = 50;

/// Resident memory of a snapshot, bytes.
pub fn resident_bytes(snapshot: &Snapshot) -> u64 {
    let each = snapshot.mappings.iter().map(|mapping| mapping.rss_bytes);
    each.fold(0, u64::saturating_add)
}

/// The snapshots of the plateau by ticket: (ticket, index) (K1).
fn plateau(snapshots: &[Snapshot]) -> Vec<(u64, usize)> {
    let most = snapshots.iter().map(resident_bytes).max().unwrap_or(0);
    let is_high = |one: &Snapshot| resident_bytes(one) >= most - most / PART;
    let high = snapshots
        .iter()
        .enumerate()
        .filter(|(_, one)| is_high(one))
        .map(|(index, one)| (one.ticket, index));
    let mut high: Vec<(u64, usize)> = high.collect();
    high.sort_unstable();
    high
}

/// The peak without a reading of the events (K3): the index of a snapshot.
pub(crate) fn first(snapshots: &[Snapshot]) -> Option<usize> {
    plateau(snapshots).first().map(|(_, index)| *index)
}

/// Finds the peak in a first reading of a trace, for [`crate::Options::peak_snapshot`].
#[derive(Clone, Debug)]
pub struct PeakSearch {
    plateau: Vec<(u64, usize)>,
    next: usize,
    /// Live bytes given, and the snapshot that had them.
    found: Option<(u64, usize)>,
}

impl PeakSearch {
    /// Over these snapshots.
    pub fn new(snapshots: &[Snapshot]) -> PeakSearch {
        PeakSearch {
            plateau: plateau(snapshots),
            next: 0,
            found: None,
        }
    }

    /// Whether events must be read to tell: several snapshots are of the plateau.
    pub fn is_open(&self) -> bool {
        self.plateau.len() > 1
    }

    /// An event with this ticket comes next; the ledger has seen those before it. `false` once nothing
    /// more can be learned.
    #[inline]
    pub fn before(&mut self, ticket: u64, ledger: &Ledger) -> bool {
        while let Some(&(at, index)) = self.plateau.get(self.next) {
            if ticket <= at {
                return true;
            }
            self.next += 1;
            let live = ledger.live().usable_bytes;
            if self.found.is_none_or(|(most, _)| live > most) {
                self.found = Some((live, index));
            }
        }
        false
    }

    /// The index of the snapshot, if there is any.
    pub fn finish(mut self, ledger: &Ledger) -> Option<usize> {
        self.before(u64::MAX, ledger);
        self.found.map(|(_, index)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_trace::{
        AllocFn, Event, EventKind, FreeFn, Mapping, NodeId, SnapshotCause, ThreadId,
    };

    /// Resident bytes and ticket of each.
    fn snapshots(all: &[(u64, u64)]) -> Vec<Snapshot> {
        let one = |&(rss_bytes, ticket): &(u64, u64)| Snapshot {
            time_ns: ticket,
            ticket,
            cause: SnapshotCause::Periodic,
            took_ns: 0,
            mappings: vec![Mapping {
                rss_bytes,
                ..Mapping::default()
            }],
        };
        all.iter().map(one).collect()
    }

    /// Two blocks come at tickets 1 and 2, and both go, at 3 and 4.
    fn found(snapshots: &[Snapshot]) -> Option<usize> {
        let (mut ledger, mut search) = (Ledger::new(16), PeakSearch::new(snapshots));
        for ticket in 1..=4u64 {
            let addr = [0x1000, 0x2000, 0x2000, 0x1000][ticket as usize - 1];
            let acquired = EventKind::Alloc {
                func: AllocFn::Malloc,
                node: NodeId(1),
                addr,
                size: 100,
                usable: 104,
            };
            let func = FreeFn::Free;
            let kind = if ticket <= 2 {
                acquired
            } else {
                EventKind::Free { func, addr }
            };
            search.before(ticket, &ledger);
            let event = Event {
                ticket,
                time_ns: ticket,
                thread: ThreadId(0),
                kind,
            };
            ledger.apply(&event, &mut |_, _| {});
        }
        search.finish(&ledger)
    }

    #[test]
    fn the_fullest_of_the_plateau_is_the_peak() {
        // 980 is a fiftieth below 1,000; at ticket 2 two blocks live, later fewer.
        let all = snapshots(&[(500, 1), (980, 2), (990, 3), (1000, 4)]);
        assert_eq!(found(&all), Some(1));
        assert_eq!(first(&all), Some(1));
    }

    #[test]
    fn what_lies_below_the_plateau_is_none_however_full() {
        let all = snapshots(&[(979, 2), (990, 3), (1000, 4)]);
        assert_eq!(found(&all), Some(1));
    }

    #[test]
    fn the_first_of_equals_and_the_only_one() {
        assert_eq!(found(&snapshots(&[(1000, 1), (1000, 3)])), Some(0));
        assert_eq!(found(&snapshots(&[(7, 9)])), Some(0));
        assert!(!PeakSearch::new(&snapshots(&[(7, 9), (3, 10)])).is_open());
        assert_eq!(found(&[]), None);
    }

    #[test]
    fn a_search_ends_with_the_plateau() {
        let all = snapshots(&[(1000, 5), (1000, 6), (10, 90)]);
        let (mut search, ledger) = (PeakSearch::new(&all), Ledger::new(16));
        assert!(search.is_open());
        let more: Vec<bool> = [5, 6, 7]
            .map(|ticket| search.before(ticket, &ledger))
            .into();
        assert_eq!(more, [true, true, false]);
    }
}
