//! The write barriers: how a marking that is on learns of edges that are written meanwhile.
//!
//! ```text
//!   edge written ─► marking_on? ──no──► nothing more                 cost: a load and a branch
//!                        │ yes
//!                        ├─ barrier(target): reached already, or of no heap of the set? ─► else onto the mark stack
//!                        └─ changed(object): reached already? ─► it is traced again
//! ```
//!
//! I1 of `incremental` is kept here. All heaps of a set share the same marking, so an edge from one heap of the set
//! into another is told by the heap whose object it lies in.
//!
//! Not here: what follows for told edges (`steps`).

use core::ptr::NonNull;

use crate::heap::Heap;
use crate::layout::Chunk;
use crate::mark::Tracer;
use crate::typed::Trace;
use crate::world::Shared;

fn heap_of(object: NonNull<u8>) -> u32 {
    Chunk::of(object).head().heap.get()
}

impl Heap {
    /// Notes that an edge to `target` was or is about to be written into an object of this
    /// heap. Cost while marking is off: a load and a branch.
    #[inline]
    pub fn barrier(&self, target: NonNull<u8>) {
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
    #[inline]
    pub fn changed(&self, object: NonNull<u8>) {
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

impl Shared {
    /// Notes that a part of an object, or of what an object owns, was written (typed cells): tells what it holds now to
    /// the heaps that are marked.
    #[cold]
    pub(crate) fn written<T: Trace>(&self, part: &T) {
        let addr = core::ptr::from_ref(part).addr();
        if let Some(owner) = self.owner_of(addr) {
            // The barrier of the target's own heap, whichever object was written. Where that heap is not marked the
            // sweeper may have the object's arena, and its bits must not be looked at (I5).
            if let Some(heap) = self.heap(owner).filter(|heap| heap.is_marking())
                && let Some(object) = self.object_at(addr)
            {
                heap.changed(object);
            }
            return;
        }
        let mut listing = Tracer::listing();
        part.trace(&mut listing);
        for edge in listing.take_told().edges {
            if let Some(heap) = self.heap(heap_of(edge)) {
                heap.barrier(edge);
            }
        }
    }
}
