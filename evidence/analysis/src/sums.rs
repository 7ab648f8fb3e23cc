//! The sums that the ledger keeps: what lives, how much lived at most, and what happened so far.
//!
//! ```text
//!   acquire ──► Live += cell      release ──► Live -= cell      Live above HeapPeak ──► HeapPeak
//!           └──► Counts                   └──► Counts
//! ```
//!
//! S1  Damaged events wrap and never panic: a sum that went below 0 comes back to its value with the event that follows.
//!
//! Not here: when something is added (`ledger.rs`), the sums over time (`timeline.rs`).

use crate::block::CellKey;

/// The live blocks at a moment, as sums.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Live {
    /// Number of blocks.
    pub blocks: u64,
    /// Requested bytes.
    pub requested_bytes: u64,
    /// Usable bytes.
    pub usable_bytes: u64,
}

impl Live {
    #[inline]
    pub(crate) fn add(&mut self, key: &CellKey) {
        self.blocks += 1;
        self.requested_bytes = self.requested_bytes.wrapping_add(key.size);
        self.usable_bytes = self.usable_bytes.wrapping_add(key.usable);
    }

    #[inline]
    pub(crate) fn sub(&mut self, key: &CellKey) {
        self.blocks = self.blocks.wrapping_sub(1);
        self.requested_bytes = self.requested_bytes.wrapping_sub(key.size);
        self.usable_bytes = self.usable_bytes.wrapping_sub(key.usable);
    }
}

/// The largest live heap so far, by usable bytes; the first moment of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HeapPeak {
    /// What lived then.
    pub live: Live,
    /// The event that made the peak.
    pub ticket: u64,
    /// The time of the peak, nanoseconds since the start.
    pub time_ns: u64,
    /// Number of events up to and including it.
    pub events: u64,
}

/// The counts over the run so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Number of events.
    pub events: u64,
    /// Blocks acquired, including reallocs.
    pub allocations: u64,
    /// Blocks released, including reallocs.
    pub frees: u64,
    /// Reallocs of a known block.
    pub reallocs: u64,
    /// Requested bytes.
    pub requested_bytes: u64,
    /// Usable bytes.
    pub usable_bytes: u64,
    /// Releases of unknown addresses.
    pub unknown_frees: u64,
    /// Acquisitions at an address that was still live (ledger.G3).
    pub lost_frees: u64,
    /// Reallocs whose beginning or end is missing.
    pub lost_reallocs: u64,
    /// Events that are impossible: address 0, or sizes beyond the address space.
    pub damaged_events: u64,
    /// Calls of `mmap` by the program, and of `brk` and `sbrk` that took memory.
    pub maps: u64,
    /// Bytes mapped by them.
    pub map_bytes: u64,
}
