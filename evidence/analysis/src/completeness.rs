//! The verdict on completeness: the one place that decides it, for every command and view.
//!
//! ```text
//!   Known (the trace beside its events) ─┐
//!   Seen  (what an analysis counted)    ─┴─► judge ─► Verdict: Missing, the weightiest first; empty is complete
//! ```
//!
//! V1  Every view takes its verdict from here, over the same evidence: the events, the books of the peak, of the end and
//!     of marks, and the allocator's own count. A shorter command runs an analysis without passes for it
//!     ([`crate::Analyzer::judge`]).
//! V2  The verdict does not depend on the moment that a report is about.
//! V3  Evidence from pages and totals accuses only a recording of which nothing else is known to be missing: lost events
//!     explain any difference.
//!
//! Not here: the sentences (`missing.rs`), processes without a trace, which take nothing away from this one
//! (missing.M4).

use crate::missing::{self, Known, Missing};
use crate::sums::{Counts, Live};
use crate::totals::contradiction;
use crate::unseen::Unexplained;

/// The evidence of an analysis that has read all events.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub counts: Counts,
    /// Reallocs under way at the end.
    pub parked: u64,
    /// What lived when the allocator was asked what is in use.
    pub live_at_exit: Option<Live>,
    /// Threads over the run.
    pub threads: usize,
    /// Anonymous memory mapped past the recorder at the peak, bytes.
    pub past_bytes: u64,
    /// Bytes of the data segment that the program itself took.
    pub break_bytes: u64,
    /// Heap pages on which no recorded block ever was.
    pub unexplained: Unexplained,
    /// Tickets that the program took and no event has.
    pub missing_tickets: u64,
}

/// The most tickets that are left out where a second thread starts (they become shared then; once in a process).
const TICKET_GAP: u64 = 1 << 20;

/// Finds tickets that the program took and no event has: events that were sent and are not in the trace.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tickets {
    last: u64,
    missing: u64,
    widest: u64,
}

impl Tickets {
    /// Takes the ticket of the next event. Cost: a comparison.
    #[inline]
    pub fn see(&mut self, ticket: u64) {
        if ticket != self.last + 1 {
            return self.see_odd(ticket);
        }
        self.last = ticket;
    }

    #[cold]
    fn see_odd(&mut self, ticket: u64) {
        let gap = ticket.saturating_sub(self.last.saturating_add(1));
        self.missing = self.missing.saturating_add(gap);
        self.widest = self.widest.max(gap);
        // A mark from outside has the ticket of the event before it.
        self.last = self.last.max(ticket).min(u64::MAX - 1);
    }

    /// Returns how many are missing.
    pub fn missing(&self) -> u64 {
        match self.widest {
            // The single thread may have counted on by a little meanwhile.
            gap if gap > TICKET_GAP / 2 && gap <= TICKET_GAP => self.missing - gap,
            _ => self.missing,
        }
    }
}

/// The verdict on a recording: everything that is missing from it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// The missing things, the weightiest first.
    pub missing: Vec<Missing>,
}

impl Verdict {
    /// Reports whether nothing is missing.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }
}

/// Decides what is missing.
pub(crate) fn judge(known: &Known<'_>, seen: &Seen) -> Verdict {
    let mut all = missing::missing(known, &seen.counts, seen.parked);
    let explains = |one: &Missing| !matches!(one, Missing::Acquisitions { .. });
    let is_explained = all.iter().any(explains);
    let is_orphan = all
        .iter()
        .any(|one| matches!(one, Missing::Ancestor { .. }));
    let from_birth = known.is_from_birth();
    let past = seen.past_bytes > 0 && from_birth && !is_orphan;
    let accused = from_birth && !is_explained;
    let unseen = seen.unexplained;
    let own = allowance(
        &known.process.allocator,
        seen.threads,
        unseen.resident_bytes,
    );
    let is_much = unseen.bytes > own;
    let heap = Missing::Heap {
        resident_bytes: unseen.bytes,
    };
    all.splice(0..0, (accused && is_much).then_some(heap));
    let resident_bytes = seen.past_bytes;
    all.splice(0..0, past.then_some(Missing::Mapped { resident_bytes }));
    let live = seen.live_at_exit.filter(|_| accused);
    all.extend(live.and_then(|live| contradiction(known, &live, seen.threads, seen.break_bytes)));
    let said = known.ending.map_or(known.events, |ending| ending.events);
    let surplus = Missing::Surplus {
        events: known.events,
        of: said,
    };
    all.extend((known.events > said && said > 0).then_some(surplus));
    let events = seen.missing_tickets;
    all.extend((events > 0 && !is_explained).then_some(Missing::Tickets { events }));
    Verdict { missing: all }
}

/// The heap memory without a block that an allocator may have for itself, bytes: tables, and lists of blocks that it
/// made and did not hand out. The most of 47 real traces was 436 KiB (node on mimalloc, 6 threads; glibc, jemalloc and
/// ours below 140 KiB), and on tcmalloc, whose page map is 2 MiB of it, 2.49 MiB (2026-11-23). mimalloc 3 has such a map,
/// too: 2.00 MiB in a program with 2 threads (3.3.2, 2026-11-26).
const OWN_BYTES: u64 = 1 << 20;
const WITH_A_MAP_BYTES: u64 = 3 << 20;
/// The bytes that each further thread adds to it: the blocks ahead of its own lists. 64 threads with blocks of all
/// sizes had 3.98 MiB on mimalloc, 3.66 on ours, 1.76 on jemalloc, 2.48 on tcmalloc and nothing on glibc (2026-11-23).
const THREADS_BYTES: u64 = 64 << 10;
/// The most threads that count: a server that starts one for each request has few at a time.
const MOST_THREADS: u64 = 256;
/// The per cent of resident memory that an allocator may have for itself.
const OWN_PERCENT: u64 = 3;

/// Returns the resident heap memory without a block that is the allocator's own.
fn allowance(allocator: &str, threads: usize, resident_bytes: u64) -> u64 {
    let has_a_map = ["tcmalloc", "mimalloc"]
        .iter()
        .any(|of| allocator.contains(of));
    let own = match has_a_map {
        true => WITH_A_MAP_BYTES,
        false => OWN_BYTES,
    };
    let more = (threads as u64).saturating_sub(1).min(MOST_THREADS);
    (own + more * THREADS_BYTES).max(resident_bytes / 100 * OWN_PERCENT)
}

#[cfg(test)]
#[path = "completeness_tests.rs"]
mod tests;
