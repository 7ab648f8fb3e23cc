//! The figures of a heap: what it holds, and what was swept in it.
//!
//! Not here: counting them (`client`, `sweeping`).

use crate::heap::sweep::{Fault, Tally};

/// Sweeping that was done outside of pauses and in them, over a heap's life.
#[derive(Clone, Debug, Default)]
pub struct SweepCounts {
    /// Number of objects that ended on the sweeper's thread.
    pub background_cells: u64,
    /// Number of objects that ended when the mutator needed their room, or had nothing to do.
    pub lazy_cells: u64,
    /// Number of objects that ended in a pause, because the next collection came first.
    pub pause_cells: u64,
    /// Number of objects whose finalizers ran, on either thread.
    pub finalized: u64,
    /// Number of finalizers that panicked.
    pub panics: u64,
    /// The first of the panics.
    pub faults: Vec<Fault>,
}

impl SweepCounts {
    pub(super) fn add(&mut self, tally: Tally) {
        self.finalized += tally.finalized;
        self.panics += tally.panics;
        let room = 16usize.saturating_sub(self.faults.len());
        self.faults.extend(tally.faults.into_iter().take(room));
    }
}

/// The bytes of a heap, which add up: `held = heads + cells + free + used_up`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// Bytes of arenas in use, and of heads of chunks.
    pub held_bytes: usize,
    /// Bytes of `held_bytes` in heads.
    pub head_bytes: usize,
    /// Bytes of `held_bytes` in cells and runs that hold an object, or that the mutator is filling.
    pub cell_bytes: usize,
    /// Bytes of `held_bytes` in cells that are free.
    pub free_bytes: usize,
    /// Bytes of `held_bytes` in ends of arenas in which no cell fits.
    pub tail_bytes: usize,
    /// Bytes of free arenas that may be resident; not in `held_bytes`.
    pub dirty_bytes: usize,
    /// Bytes that objects hold outside, as the client says.
    pub client_bytes: usize,
    /// Number of objects.
    pub objects: usize,
}
