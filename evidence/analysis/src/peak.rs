//! The peak: which snapshot it is, for every command that refers to one.
//!
//! ```text
//!   resident  ▁▂▄▆█████████▇       an allocator that keeps what was freed leaves it flat: the plateau
//!   live      ▁▂▄▆█▇▅▃▂▁▁▁▁        the peak is the snapshot of the plateau where both together are most
//! ```
//!
//! K1  The plateau is every snapshot within a fiftieth of the greatest resident memory. It is chance which of them
//!     has a few pages more than the others, and most often it is the last one. Pages of code do not count, nor the
//!     recorder's: a program that ends touches pages of its libraries that it never touched before. In a small program
//!     the plateau is wider, by [`SLACK_BYTES`]: what an allocator writes about blocks that are freed (jemalloc: 144 KiB
//!     for 10,000 of them) is anonymous memory like the heap's, and would be more than a fiftieth.
//! K2  The peak is the one of these with most live usable and resident bytes, added; the first of several. The question
//!     about the peak is what holds the memory, and nothing does after everything was freed; but where as much lives,
//!     the peak is the reading with most pages: the collector may read while the last fiftieth is being written.
//! K3  If the recorder counted what lived, its count is used: it is right to some 16 KiB per thread, and a reading of
//!     the events takes as long as the rest of the analysis.
//! K4  Without a reading of the events the first of the plateau stands for it: memory is filled before it is freed.
//!
//! Not here: the largest live heap, exact to the event (`ledger.rs`); the moment at which most could go
//! back (`waste.rs`).

use rustc_hash::FxHashSet;
use skinflint_trace::{Mapping, MappingKind, Snapshot};

use crate::ledger::Ledger;

/// The plateau reaches down to the greatest resident memory minus one part in this many (K1).
const PART: u64 = 50;
/// The least reach of the plateau, and the part of the greatest resident memory that it is at most (K1). It may be
/// generous: of all snapshots within, the fullest is the peak (K2).
const SLACK_BYTES: u64 = 512 << 10;
const SLACK_PART: u64 = 8;

/// Returns the resident memory of a snapshot, bytes.
pub fn resident_bytes(snapshot: &Snapshot) -> u64 {
    let each = snapshot.mappings.iter().map(|mapping| mapping.rss_bytes);
    each.fold(0, u64::saturating_add)
}

/// Returns the resident memory of a snapshot without the recorder's, and without pages of programs and libraries that
/// were never written (K1).
fn own_bytes(snapshot: &Snapshot) -> u64 {
    let is_code = |one: &&Mapping| one.kind == MappingKind::File && one.perms.contains('x');
    let code: FxHashSet<&str> = snapshot
        .mappings
        .iter()
        .filter(is_code)
        .map(|one| one.name.as_str())
        .collect();
    let each = snapshot.mappings.iter().map(|one| match one.kind {
        MappingKind::Recorder => 0,
        MappingKind::File if code.contains(one.name.as_str()) => one.anon_bytes,
        _ => one.rss_bytes,
    });
    each.fold(0, u64::saturating_add)
}

/// Snapshot of the plateau; they are ordered by ticket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct High {
    ticket: u64,
    index: usize,
    own_bytes: u64,
}

impl High {
    /// Returns what is compared (K2). More bytes were freed than were seen to be taken if `live` is negative.
    fn fullness(&self, live: i128) -> i128 {
        live + i128::from(self.own_bytes)
    }
}

/// Returns the snapshots of the plateau by ticket (K1).
fn plateau(snapshots: &[Snapshot]) -> Vec<High> {
    let own: Vec<u64> = snapshots.iter().map(own_bytes).collect();
    let most = own.iter().copied().max().unwrap_or(0);
    let reach = (most / PART).max(SLACK_BYTES.min(most / SLACK_PART));
    let high = snapshots
        .iter()
        .zip(own)
        .enumerate()
        .filter(|(_, (_, bytes))| *bytes >= most - reach)
        .map(|(index, (one, own_bytes))| High {
            ticket: one.ticket,
            index,
            own_bytes,
        });
    let mut high: Vec<High> = high.collect();
    high.sort_unstable();
    high
}

/// Returns the peak by the recorder's own count (K3), if it counted at each snapshot that it may be.
fn counted(snapshots: &[Snapshot]) -> Option<usize> {
    let mut most: Option<(i128, usize)> = None;
    for one in plateau(snapshots) {
        let fullness = one.fullness(snapshots[one.index].counted_bytes?.into());
        if most.is_none_or(|(found, _)| fullness > found) {
            most = Some((fullness, one.index));
        }
    }
    most.map(|(_, index)| index)
}

/// Returns the peak without a reading of the events (K4): the index of a snapshot.
pub(crate) fn first(snapshots: &[Snapshot]) -> Option<usize> {
    plateau(snapshots).first().map(|one| one.index)
}

/// Finds the peak in a first reading of a trace, for [`crate::Options::peak_snapshot`].
#[derive(Clone, Debug)]
pub struct PeakSearch {
    plateau: Vec<High>,
    next: usize,
    /// The greatest fullness (K2), and the snapshot that had it.
    found: Option<(i128, usize)>,
}

impl PeakSearch {
    /// Creates a search over these snapshots.
    pub fn new(snapshots: &[Snapshot]) -> PeakSearch {
        let found = counted(snapshots);
        PeakSearch {
            plateau: found.map_or_else(|| plateau(snapshots), |_| Vec::new()),
            next: 0,
            found: found.map(|index| (0, index)),
        }
    }

    /// Reports whether events must be read to decide: several snapshots are of the plateau, and what lived then was
    /// not counted.
    pub fn is_open(&self) -> bool {
        self.plateau.len() > 1
    }

    /// Looks at the snapshots before the event with this ticket; the ledger has seen the events before it. Returns
    /// `false` once nothing more can be learned.
    #[inline]
    pub fn before(&mut self, ticket: u64, ledger: &Ledger) -> bool {
        while let Some(&one) = self.plateau.get(self.next) {
            if ticket <= one.ticket {
                return true;
            }
            self.next += 1;
            let fullness = one.fullness(ledger.live().usable_bytes.into());
            if self.found.is_none_or(|(most, _)| fullness > most) {
                self.found = Some((fullness, one.index));
            }
        }
        false
    }

    /// Returns the index of the snapshot, if there is any.
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
            counted_bytes: None,
            tops: None,
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
        // 980 is of the plateau of 1,000; at ticket 2 two blocks live, later fewer.
        let all = snapshots(&[(500, 1), (980, 2), (990, 3), (1000, 4)]);
        assert_eq!(found(&all), Some(1));
        assert_eq!(first(&all), Some(1));
    }

    #[test]
    fn where_as_much_lives_the_reading_with_most_pages_is_the_peak() {
        // One block of 104 bytes lives after tickets 1 and 3; the collector read the first while memory was written.
        let mut all = snapshots(&[(990, 1), (1000, 3)]);
        assert_eq!(found(&all), Some(1));
        for snapshot in &mut all {
            snapshot.counted_bytes = Some(104);
        }
        assert_eq!(found(&all), Some(1));
        // More of it was freed than pages came.
        all[1].counted_bytes = Some(93);
        assert_eq!(found(&all), Some(0));
    }

    #[test]
    fn code_that_is_touched_at_the_end_makes_no_peak() {
        // 30 of 1,030 are pages of a library that only the last snapshot has.
        let mut all = snapshots(&[(970, 1), (1000, 2), (1030, 4)]);
        let code = |rss_bytes, perms: &str| Mapping {
            rss_bytes,
            perms: perms.into(),
            name: "/lib/libc.so.6".into(),
            kind: MappingKind::File,
            ..Mapping::default()
        };
        all[2].mappings[0].rss_bytes = 1000;
        all[2].mappings.extend([code(20, "r-xp"), code(10, "r--p")]);
        assert_eq!(found(&all), Some(1));
        // A file that is no code counts.
        all[2].mappings[1].perms = "r--p".into();
        all[2].mappings[1].rss_bytes = 200;
        assert_eq!(found(&all), Some(2));
    }

    #[test]
    fn what_lies_below_the_plateau_is_none_however_full() {
        let all = snapshots(&[(874, 2), (990, 3), (1000, 4)]);
        assert_eq!(found(&all), Some(1));
    }

    #[test]
    fn the_plateau_reaches_down_by_a_fiftieth_by_half_a_mebibyte_or_by_an_eighth() {
        let reach = |most: u64| {
            let reaches =
                |down: &u64| plateau(&snapshots(&[(most - down, 1), (most, 2)])).len() == 2;
            let steps = [
                most / 50,
                most / 50 + 1,
                SLACK_BYTES,
                SLACK_BYTES + 1,
                most / 8,
                most / 8 + 1,
            ];
            steps.into_iter().filter(reaches).max()
        };
        const MIB: u64 = 1 << 20;
        assert_eq!(reach(100 * MIB), Some(2 * MIB));
        assert_eq!(reach(10 * MIB), Some(SLACK_BYTES));
        assert_eq!(reach(MIB), Some(MIB / 8));
    }

    /// What jemalloc writes as a small program frees its blocks.
    #[test]
    fn tables_that_frees_write_make_no_peak() {
        let kib = |kib: u64| kib << 10;
        let mut all = snapshots(&[(kib(3452), 1), (kib(3596), 2)]);
        all[0].counted_bytes = Some(3_343_488);
        all[1].counted_bytes = Some(82_048);
        assert_eq!(found(&all), Some(0));
    }

    #[test]
    fn what_the_recorder_counted_is_taken_at_its_word() {
        let mut all = snapshots(&[(500, 1), (980, 2), (990, 3), (1000, 4)]);
        for (snapshot, counted) in all.iter_mut().zip([9000, -5, 90, 70]) {
            snapshot.counted_bytes = Some(counted);
        }
        assert!(!PeakSearch::new(&all).is_open());
        assert_eq!(found(&all), Some(2));
        // A snapshot without a count: the events tell.
        all[3].counted_bytes = None;
        assert!(PeakSearch::new(&all).is_open());
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
