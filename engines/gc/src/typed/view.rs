//! A heap as safe code sees it: figures, and nothing that changes what is alive.
//!
//! ```text
//!   tenant.heap(), runtime.shared() ─► HeapView: limits, thresholds, the log, rows
//!   tenant.set_limit(…), tenant.poll() … ─► when, and how far             tenant.raw_heap() ─► Heap, for unsafe code
//! ```
//!
//! V1  No method tells the collector anything of an object, nor sets or clears a mark: the core's [`Heap`] has methods
//!     that do, for runtimes with pointers of their own.
//!
//! Not here: what the figures mean (`counts`, `trigger`).

use crate::heap::counts::{Holds, SweepCounts};
use crate::heap::incremental::Progress;
use crate::heap::state::Heap;
use crate::heap::trigger::{Collection, Reason};

/// A look at a heap (V1).
#[derive(Clone, Copy)]
pub struct HeapView<'a>(&'a Heap);

impl<'a> HeapView<'a> {
    pub(super) fn of(heap: &'a Heap) -> HeapView<'a> {
        HeapView(heap)
    }

    /// Returns the heap's name, for reports.
    pub fn name(self) -> &'a str {
        self.0.name()
    }

    /// Returns the heap's number, which no other heap of the process has while anything of this one is left.
    pub fn id(self) -> u32 {
        self.0.id()
    }

    /// Returns why a collection is due, if one is. Cost: a load.
    pub fn due(self) -> Option<Reason> {
        self.0.due()
    }

    /// Returns the last collections, oldest first; at most [`LOG`](crate::trigger::LOG).
    pub fn log(self) -> Vec<Collection> {
        self.0.log()
    }

    /// Returns the number of collections so far.
    pub fn collections(self) -> u64 {
        self.0.collections()
    }

    /// Returns what was swept where, until now, including what the sweeper has done since the last call.
    pub fn sweep_counts(self) -> SweepCounts {
        self.0.sweep_counts()
    }

    /// Returns the number of handles, and of edges from other heaps.
    pub fn root_count(self) -> usize {
        self.0.root_count()
    }

    /// Reports whether it is being marked in slices.
    pub fn is_marking(self) -> bool {
        self.0.is_marking()
    }

    /// Returns the state of the marking.
    pub fn progress(self) -> Progress {
        self.0.progress()
    }

    /// Returns what the heap holds. Everything is swept first.
    ///
    /// # Panics
    /// A finalizer of this heap calls it.
    pub fn holds(self) -> Holds {
        self.0.holds()
    }

    /// Checks the invariants of lists, bits and counts, by brute force. Everything is swept first.
    ///
    /// # Panics
    /// An invariant does not hold, which the message names; or a finalizer of this heap calls it.
    pub fn check(self) {
        self.0.check();
    }

    /// Returns the bytes of arenas in use and of heads. Nothing is swept for it.
    pub fn held_bytes(self) -> usize {
        self.0.held_bytes()
    }
}
