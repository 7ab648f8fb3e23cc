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
use crate::heap::tracer::Tracer;
use crate::trace::Trace;

thread_local! {
    /// Number of this thread's collections between their beginning and their verdict.
    pub(super) static IN_PROGRESS: Cell<u32> = const { Cell::new(0) };
}

/// Notes that the value of a cell was or is going to be moved: what it leads to may get other holders than a collection
/// in progress has seen, and stays alive in it. Cost while there is none: a load and a branch.
#[inline]
pub(crate) fn moved<T: Trace>(value: &T) {
    if T::EDGES && IN_PROGRESS.get() > 0 {
        moved_slow(value);
    }
}

#[cold]
fn moved_slow<T: Trace>(value: &T) {
    let mut tracer = Tracer::listing_counted();
    value.trace(&mut tracer);
    for header in tracer.take_counted().counted {
        // SAFETY: cc.Z3: told pointers are counted, so their boxes are there.
        unsafe { header.cast::<Header>().as_ref() }.touch();
    }
}
