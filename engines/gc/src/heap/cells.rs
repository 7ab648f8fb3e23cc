//! Single objects: for clients that know by counts of their own when an object ends, and that mark in steps.
//!
//! ```text
//!   free(object)      allocated bit off, mark off, arena noted ─► settle_freed(): arenas to their lists, empty ones back
//!   mark(object)      mark bit on; was it off?
//!   take_unmarked()   tells every object whose mark bit is off; all marks off
//! ```
//!
//! F1  A heap is used either in this way or with [`collect`](crate::collect) and marking in slices, not both: marks
//!     that a client set in steps would count as reached.
//! F2  The client runs what must run before it frees: kinds of such a heap have no finalizer.
//!     The functions that would harm such a heap check that it is neither being marked nor swept, and panic otherwise.
//! F3  A freed cell is not used again before [`Heap::settle_freed`], unless the span that is being filled reaches it.
//!
//! Not here: when an object ends.

use core::ptr::NonNull;

use crate::heap::address::{Arena, Chunk};
use crate::heap::bits::each;
use crate::heap::state::Heap;
use crate::heap::sweep::POISON;

/// Returns the number of the heap that an object lies in. Cost: a load.
///
/// # Safety
/// It is an object of some heap.
#[inline]
pub unsafe fn heap_number(object: NonNull<u8>) -> u32 {
    Chunk::of(object).head().heap.get()
}

/// Marks an object; reports whether it was not marked before. Cost: two loads, a multiplication, a store.
///
/// # Safety
/// It is an object of a heap that is used by single cells (F1).
#[inline]
pub unsafe fn mark(object: NonNull<u8>) -> bool {
    let arena = Arena::of(object);
    arena
        .head()
        .marks
        .add(arena.cell_of(object.as_ptr().addr()))
}

/// Removes an object's mark.
///
/// # Safety
/// As [`mark`].
#[inline]
pub unsafe fn unmark(object: NonNull<u8>) {
    let arena = Arena::of(object);
    arena
        .head()
        .marks
        .remove(arena.cell_of(object.as_ptr().addr()));
}

/// Reports whether an object is marked.
///
/// # Safety
/// As [`mark`].
#[inline]
pub unsafe fn is_marked(object: NonNull<u8>) -> bool {
    let arena = Arena::of(object);
    arena
        .head()
        .marks
        .has(arena.cell_of(object.as_ptr().addr()))
}

impl Heap {
    /// Panics unless marks and arenas are the client's at this moment (F1).
    fn must_be_used_by_cells(&self) {
        let others = self.is_marking() || self.sweeping.get() || self.collecting.get();
        assert!(
            !others && !self.is_finalizing(),
            "a heap that is being marked, collected or swept has no cells to be looked at one by one"
        );
    }

    /// Ends one object at once.
    ///
    /// # Safety
    /// It is an object of this heap, and nothing uses it afterwards. (F1, F2)
    pub unsafe fn free(&self, object: NonNull<u8>) {
        let arena = Arena::of(object);
        let head = arena.head();
        let cell = arena.cell_of(object.as_ptr().addr());
        debug_assert!(head.allocated.has(cell), "freed twice");
        head.allocated.remove(cell);
        head.marks.remove(cell);
        let bytes = arena.object_bytes();
        self.triggers.freed(bytes);
        if self.world.config.poison {
            // SAFETY: the cell, or run, is free and whole.
            unsafe { object.as_ptr().write_bytes(POISON, bytes) };
        }
    }

    /// Puts arenas with freed cells on the lists where they belong, and gives the empty ones back to their chunks.
    /// Returns the number of arenas that became free. Cost: a look at the head of each arena.
    ///
    /// # Panics
    /// The heap is being marked, collected or swept (F1).
    pub fn settle_freed(&self) -> usize {
        self.must_be_used_by_cells();
        self.retire();
        let mut freed = 0;
        for space in self.spaces() {
            for arena in space.take_all() {
                let head = arena.head();
                head.scan.set(0);
                head.live.set(head.allocated.count() as u16);
                if head.live.get() > 0 {
                    space.place(arena);
                } else {
                    freed += head.pages.get() as usize;
                    self.chunks.borrow_mut().free(arena);
                }
            }
        }
        freed
    }

    /// Gives back free memory except `keep_bytes`. Returns the bytes of arenas given back.
    pub fn trim_to(&self, keep_bytes: usize) -> usize {
        let mut chunks = self.chunks.borrow_mut();
        chunks.set_reserve(keep_bytes);
        if self.still.get() {
            return 0;
        }
        chunks.trim(keep_bytes)
    }

    /// Passes every object that is not marked to `visit`, in no order, and removes all marks. `visit` may not allocate
    /// here. Cost: a look at the head of each arena, and what `visit` does.
    ///
    /// # Panics
    /// The heap is being marked, collected or swept (F1).
    pub fn take_unmarked(&self, mut visit: impl FnMut(NonNull<u8>)) {
        self.must_be_used_by_cells();
        self.retire();
        for chunk in self.chunks.borrow().all() {
            for arena in chunk.arenas() {
                let head = arena.head();
                let (marks, allocated) = (head.marks.words(), head.allocated.words());
                head.marks.clear();
                let unmarked = core::array::from_fn(|word| allocated[word] & !marks[word]);
                for cell in each(unmarked) {
                    visit(arena.cell(cell));
                }
            }
        }
    }

    /// Passes every object that is not marked to `visit`, in no order, and keeps the marks. Otherwise like
    /// [`Heap::take_unmarked`].
    ///
    /// # Panics
    /// The heap is being marked, collected or swept (F1).
    pub fn each_unmarked(&self, mut visit: impl FnMut(NonNull<u8>)) {
        self.must_be_used_by_cells();
        self.retire();
        for chunk in self.chunks.borrow().all() {
            for arena in chunk.arenas() {
                let head = arena.head();
                let (marks, allocated) = (head.marks.words(), head.allocated.words());
                let unmarked = core::array::from_fn(|word| allocated[word] & !marks[word]);
                for cell in each(unmarked) {
                    visit(arena.cell(cell));
                }
            }
        }
    }

    /// Returns the heap's chunks, in megabytes.
    pub fn chunk_count(&self) -> usize {
        let chunks = self.chunks.borrow();
        chunks
            .all()
            .map(|chunk| chunk.head().slots.get() as usize)
            .sum()
    }

    /// Returns the bytes of arenas in use and of heads.
    pub fn held_bytes(&self) -> usize {
        self.chunks.borrow().held_bytes()
    }
}
