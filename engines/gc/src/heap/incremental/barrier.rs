//! The write barriers: how a marking that is on learns of edges that are written meanwhile.
//!
//! ```text
//!   edge written ─► marking_on? ──no──► nothing more                 cost: a load and a branch
//!                        │ yes
//!                        ├─ barrier(target): reached already, or of no heap of the set? ─► else onto the mark stack
//!                        └─ changed(object): reached already? ─► it is traced again
//! ```
//!
//! incremental.I1 is kept here. All heaps of a set share the same marking, so an edge from one heap of the set
//! into another is told by the heap whose object it lies in.
//!
//! Not here: what follows for told edges (`steps`).

use core::ptr::NonNull;

use crate::heap::state::Heap;

impl Heap {
    /// Notes that an edge to `target` was or is about to be written into an object of this
    /// heap. Cost while marking is off: a load and a branch.
    ///
    /// # Safety
    /// It is the first byte of an object of some heap, and alive.
    #[inline]
    pub unsafe fn barrier(&self, target: NonNull<u8>) {
        if self.marking_on.get() {
            self.shade(target);
        }
    }

    #[cold]
    fn shade(&self, target: NonNull<u8>) {
        if let Some(marking) = self.marking.borrow().as_ref() {
            marking.borrow_mut().shade(target);
        }
    }

    /// Notes that the edges of `object`, of this heap, may have
    /// changed.
    ///
    /// # Safety
    /// It is the first byte of an object of this heap, and alive.
    #[inline]
    pub unsafe fn changed(&self, object: NonNull<u8>) {
        if self.marking_on.get() {
            self.trace_again(object);
        }
    }

    #[cold]
    fn trace_again(&self, object: NonNull<u8>) {
        if let Some(marking) = self.marking.borrow().as_ref() {
            marking.borrow_mut().trace_again(object);
        }
    }
}
