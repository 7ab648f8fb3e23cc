//! The moment after the largest fall of live memory, which is known only after all events were seen.
//!
//! ```text
//!   live  ▁▂▄▆█▇▃▂▅▃▁      highest level until then − level at a snapshot = fall
//!                ▲     ▲   a snapshot is taken for the moment if its fall beats the last one's by a quarter
//! ```
//!
//! F1  A fall counts from a mebibyte and a fifth of the highest level on: less is no large free.
//! F2  Among falls that differ by less than a quarter the earliest snapshot stays: so at most one in each step of a
//!     quarter is looked at page by page, a few dozen in the longest run.
//! F3  The snapshot at exit is no candidate: it is the end.
//!
//! Not here: when snapshots are taken (`collect`: at marks, at peaks, after falls, else every two seconds at most).

use skinflint_trace::{Snapshot, SnapshotCause};

use crate::ledger::Ledger;

/// The smallest fall that counts, bytes (F1).
const LEAST_BYTES: u64 = 1 << 20;

/// The largest fall so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Falls {
    largest: u64,
}

impl Falls {
    /// Looks at a snapshot whose moment has come; returns whether the largest fall lies before it.
    pub fn see(&mut self, ledger: &Ledger) -> bool {
        let highest = ledger.heap_peak().live.usable_bytes;
        let fall = highest.saturating_sub(ledger.live().usable_bytes);
        let large = fall >= LEAST_BYTES && fall >= highest / 5;
        let larger = fall > self.largest.saturating_add(self.largest / 4);
        if large && larger {
            self.largest = fall;
        }
        large && larger
    }
}

/// Reports whether a snapshot may be the moment (F3).
pub(crate) fn candidate(snapshot: &Snapshot) -> bool {
    snapshot.cause != SnapshotCause::Exit
}

/// Finds the moment's ticket in a first reading of a trace, for [`crate::Options::after_free_ticket`].
#[derive(Clone, Debug)]
pub struct FallSearch {
    /// The tickets of the candidates, ascending.
    tickets: Vec<u64>,
    next: usize,
    falls: Falls,
    found: Option<u64>,
}

impl FallSearch {
    /// Creates a search over these snapshots.
    pub fn new(snapshots: &[Snapshot]) -> FallSearch {
        let of = snapshots.iter().filter(|one| candidate(one));
        let mut tickets: Vec<u64> = of.map(|one| one.ticket).collect();
        tickets.sort_unstable();
        FallSearch {
            tickets,
            next: 0,
            falls: Falls::default(),
            found: None,
        }
    }

    /// Looks at the candidates before the event with this ticket; the ledger has seen the events before it.
    pub fn before(&mut self, ticket: u64, ledger: &Ledger) {
        while let Some(&at) = self.tickets.get(self.next)
            && ticket > at
        {
            self.next += 1;
            if self.falls.see(ledger) {
                self.found = Some(at);
            }
        }
    }

    /// Returns the ticket, if live memory ever fell so far with a snapshot behind it.
    pub fn finish(mut self, ledger: &Ledger) -> Option<u64> {
        self.before(u64::MAX, ledger);
        self.found
    }
}
