//! The cells that hold pointers to objects, with their write barrier (typed.F5).
//!
//! ```text
//!   Slot<P>    a pointer that changes       Locked<T>  a value that changes (as RefCell)
//! ```
//!
//! Not here: the barrier of the core (`incremental`), pointers themselves (`pointer`).

use core::cell::{Cell, Ref, RefCell, RefMut};
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use super::cx::Cx;
use crate::counted::moved;
use crate::heap::address::Chunk;
use crate::heap::kind::Finalize;
use crate::heap::state::Shared;
use crate::heap::tracer::Tracer;
use crate::trace::{Edge, Family, Pointer, System, Trace};

/// A pointer, or none, that changes.
pub struct Slot<P>(Cell<Option<P>>);

impl<P> Slot<P> {
    /// Creates a slot that holds `pointer`.
    pub fn new(pointer: Option<P>) -> Slot<P>
    where
        P: Pointer,
    {
        Slot(Cell::new(pointer))
    }
}

impl<P: Copy> Slot<P> {
    /// Returns the pointer that it holds.
    #[inline]
    pub fn get(&self) -> Option<P> {
        self.0.get()
    }

    /// Replaces the pointer. Cost: a store, and a load and a branch for the barrier.
    #[inline]
    pub fn set<'gc>(&self, cx: Cx<'gc>, pointer: Option<P>)
    where
        P: Edge<'gc>,
    {
        if let Some(pointer) = pointer {
            cx.barrier(pointer.leads_to());
        }
        self.0.set(pointer);
    }
}

// SAFETY: values.J1: what it holds is told.
unsafe impl<P: Pointer> Trace for Slot<P> {
    const EDGES: bool = true;
    const FINALIZE: Finalize = Finalize::Nothing;
    #[inline]
    fn trace(&self, tracer: &mut Tracer) {
        if let Some(pointer) = self.0.get() {
            pointer.trace(tracer);
        }
    }
    fn name_edges(&self, tracer: &mut Tracer) {
        if let Some(pointer) = self.0.get() {
            pointer.name_edges(tracer);
        }
    }
}

// SAFETY: as the pointer that it holds.
unsafe impl<P: System + Pointer> System for Slot<P> {}

/// A value that changes, checked at run time.
#[derive(Default)]
pub struct Locked<T>(RefCell<T>);

impl<T> Locked<T> {
    /// Creates a cell that holds `value`.
    pub fn new(value: T) -> Locked<T> {
        Locked(RefCell::new(value))
    }

    /// Borrows the value to read it.
    ///
    /// # Panics
    /// The value is being written.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.0.borrow()
    }
}

impl<T: Trace> Locked<T> {
    /// Borrows the value to write it. While the heap is marked incrementally, the object that it lies in is traced
    /// again after the guard's end (or, where it lies in no object itself, what it holds is).
    ///
    /// # Panics
    /// The value is being read or written.
    pub fn borrow_mut<'a, 'gc: 'a>(&'a self, cx: Cx<'gc>) -> LockedMut<'a, T> {
        let value = self.0.borrow_mut();
        moved(&*value);
        LockedMut {
            value: ManuallyDrop::new(value),
            cell: self,
            world: cx.world(),
        }
    }
}

/// A guard with which the value of a [`Locked`] is written.
pub struct LockedMut<'a, T: Trace> {
    value: ManuallyDrop<RefMut<'a, T>>,
    cell: &'a Locked<T>,
    world: &'a Shared,
}

impl<T: Trace> Deref for LockedMut<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Trace> DerefMut for LockedMut<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: Trace> Drop for LockedMut<'_, T> {
    /// Runs the write barrier. Cost while no heap of the world is marked: a load and a branch.
    fn drop(&mut self) {
        moved(&**self.value);
        // SAFETY: it is not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.value) };
        if T::EDGES && self.world.markings.get() > 0 {
            self.world.written(self.cell);
        }
    }
}

// SAFETY: values.J1: what it holds is told. While a guard for writing exists its content is unknown: the object is traced
// again after the guard's end (`Tracer::locked`), and marking does not end before (typed.F1). If a guard was leaked, this
// panics, and the collection with it.
unsafe impl<T: Trace> Trace for Locked<T> {
    const EDGES: bool = T::EDGES;
    const FINALIZE: Finalize = T::FINALIZE;
    const PARTS: bool = T::PARTS;
    fn trace(&self, tracer: &mut Tracer) {
        match self.0.try_borrow() {
            Ok(value) => value.trace(tracer),
            Err(_) => tracer.locked(),
        }
    }
    fn trace_part(&self, from: usize, tracer: &mut Tracer) -> Option<usize> {
        match self.0.try_borrow() {
            Ok(value) => value.trace_part(from, tracer),
            Err(_) => {
                tracer.locked();
                None
            }
        }
    }
    fn name_edges(&self, tracer: &mut Tracer) {
        self.0.borrow().name_edges(tracer);
    }
}

// SAFETY: as the value that it holds.
unsafe impl<T: System> System for Locked<T> {}

impl<F: Family> Family for Locked<F> {
    type At<'gc> = Locked<F::At<'gc>>;
}

impl Shared {
    /// Notes that a part of an object, or of what an object owns, was written (typed cells): tells what it holds now to
    /// the heaps that are marked.
    #[cold]
    pub(crate) fn written<T: Trace>(&self, part: &T) {
        let addr = core::ptr::from_ref(part).addr();
        if let Some(owner) = self.owner_of(addr) {
            // The barrier of the target's own heap, whichever object was written. Where that heap is not marked the
            // sweeper may have the object's arena, and its bits must not be looked at (incremental.I5).
            if let Some(heap) = self.heap(owner).filter(|heap| heap.is_marking())
                && let Some(object) = self.object_at(addr)
            {
                heap.changed(object);
            }
            return;
        }
        let mut listing = Tracer::listing();
        part.trace(&mut listing);
        for edge in listing.take_listed().edges {
            if let Some(heap) = self.heap(heap_of(edge)) {
                heap.barrier(edge);
            }
        }
    }
}

fn heap_of(object: NonNull<u8>) -> u32 {
    Chunk::of(object).head().heap.get()
}
