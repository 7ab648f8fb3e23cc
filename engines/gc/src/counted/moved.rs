//! The barrier of cells whose values hold counted pointers.
//!
//! ```text
//!   a cell's value leaves or enters ─► a collection of this thread in progress? ──no──► nothing    a load and a branch
//!                                                    │ yes
//!                                                    └─► each counted value that it holds is touched
//! ```
//!
//! Not here: what becomes of values that are touched (cycles.V1).

use core::cell::Cell;

use super::boxes::Header;
use crate::heap::incremental::{unwatch_writes, watch_writes, writes_are_watched};
use crate::heap::tracer::Tracer;
use crate::trace::Trace;

thread_local! {
    /// Number of this thread's collections between their beginning and their verdict.
    static IN_PROGRESS: Cell<u32> = const { Cell::new(0) };
}

/// Notes that a collection begins.
pub(super) fn begun() {
    IN_PROGRESS.set(IN_PROGRESS.get() + 1);
    watch_writes();
}

/// Notes that a collection has its verdict.
pub(super) fn judged() {
    IN_PROGRESS.set(IN_PROGRESS.get() - 1);
    unwatch_writes();
}

/// Notes that the value of a cell was or is going to be moved: what it leads to may get other holders than a collection
/// in progress has seen, and stays alive in it. Cost while there is none: a load and a branch.
#[inline]
pub(crate) fn moved<T: Trace>(value: &T) {
    if T::EDGES && writes_are_watched() {
        moved_slow(value);
    }
}

#[cold]
fn moved_slow<T: Trace>(value: &T) {
    // Heaps that are marked hear of it at the guard's end.
    if IN_PROGRESS.get() == 0 {
        return;
    }
    let mut tracer = Tracer::listing_counted();
    value.trace(&mut tracer);
    for header in tracer.take_counted().counted {
        // SAFETY: cc.Z3: told pointers are counted, so their boxes are there.
        unsafe { header.cast::<Header>().as_ref() }.touch();
    }
}
