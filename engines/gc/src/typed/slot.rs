//! The cells that hold pointers to objects, with their write barrier (typed.F5).
//!
//! ```text
//!   Slot<P>    a pointer that changes       Locked<T>  a value that changes (as RefCell)
//! ```
//!
//! L1  The barrier of a [`Slot`] is that of its pointer's heap, which is the caller's, by the brand. A [`Locked`] has no
//!     brand of its own, so its barrier asks the object that it lies in, or the objects that it leads to; the [`Cx`]
//!     that is passed may be of another tenant or runtime. It only bounds the guard's life: a closure is running.
//! L2  A guard that is leaked locks its value for ever: no safe code reads it again, and it is dropped with its object
//!     at the latest. So the value is told by no trace any more, and what only it leads to ends.
//!
//! Not here: the barrier of the core (`incremental`), pointers themselves (`pointer`).

use core::cell::{Cell, Ref, RefCell, RefMut};
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

use super::cx::Cx;
use crate::counted::moved;
use crate::heap::address::Chunk;
use crate::heap::incremental::{find_marked, writes_are_watched};
use crate::heap::kind::Finalize;
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
    const WEAK: bool = P::WEAK;
    #[inline]
    fn trace(&self, tracer: &mut Tracer) {
        P::trace_if(self.0.get().as_ref(), tracer);
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
    /// Borrows the value to write it. While its heap is marked incrementally, the object that it lies in is traced
    /// again after the guard's end (or, where it lies in no object itself, what it holds is). `cx` may be of any tenant
    /// (L1). A guard that is leaked (`mem::forget`) leaves the value locked, and what only the value leads to ends (L2).
    ///
    /// # Panics
    /// The value is being read or written.
    pub fn borrow_mut<'a, 'gc: 'a>(&'a self, cx: Cx<'gc>) -> LockedMut<'a, T> {
        let _ = cx;
        let value = self.0.borrow_mut();
        moved(&*value);
        LockedMut {
            value: ManuallyDrop::new(value),
            cell: self,
        }
    }
}

/// A guard with which the value of a [`Locked`] is written.
pub struct LockedMut<'a, T: Trace> {
    value: ManuallyDrop<RefMut<'a, T>>,
    cell: &'a Locked<T>,
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
    /// Runs the write barrier. Cost while nothing of the thread is collected in slices: a load and a branch.
    fn drop(&mut self) {
        let watched = T::EDGES && writes_are_watched();
        if watched {
            moved(&**self.value);
        }
        // SAFETY: it is not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.value) };
        if watched {
            written(self.cell);
        }
    }
}

// SAFETY: values.J1: what it holds is told. While a guard for writing exists its content is unknown: the object is traced
// again after the guard's end (`Tracer::locked`), and marking does not end before (typed.F1). If a guard was leaked, what
// the value holds is told no more, and used no more (L2). Weak cells that are written into it later, wherever it lies,
// are found since its object is noted for its type (incremental.I3).
unsafe impl<T: Trace> Trace for Locked<T> {
    const EDGES: bool = T::EDGES;
    const FINALIZE: Finalize = T::FINALIZE;
    const PARTS: bool = T::PARTS;
    const WEAK: bool = T::WEAK;
    fn trace(&self, tracer: &mut Tracer) {
        if T::WEAK {
            tracer.may_get_weak();
        }
        match self.0.try_borrow() {
            Ok(value) => value.trace(tracer),
            Err(_) => tracer.locked(),
        }
    }
    fn trace_part(&self, from: usize, tracer: &mut Tracer) -> Option<usize> {
        if T::WEAK {
            tracer.may_get_weak();
        }
        match self.0.try_borrow() {
            Ok(value) => value.trace_part(from, tracer),
            Err(_) => {
                tracer.locked();
                None
            }
        }
    }
    fn name_edges(&self, tracer: &mut Tracer) {
        // L2: a value that is locked where names are asked for is locked for ever.
        if let Ok(value) = self.0.try_borrow() {
            value.name_edges(tracer);
        }
    }
}

// SAFETY: as the value that it holds.
unsafe impl<T: System> System for Locked<T> {}

impl<F: Family> Family for Locked<F> {
    type At<'gc> = Locked<F::At<'gc>>;
}

/// Notes that a part of an object, or of what an object owns, was written (typed cells): tells what it holds now to the
/// heaps that are marked, of whatever world (L1).
#[cold]
fn written<T: Trace>(part: &T) {
    let addr = core::ptr::from_ref(part).addr();
    let in_object = find_marked(|world| {
        let owner = world.owner_of(addr)?;
        // The barrier of the object's own heap. Where that heap is not marked the sweeper may have the object's arena,
        // and its bits must not be looked at (incremental.I5).
        if let Some(heap) = world.heap(owner).filter(|heap| heap.is_marking())
            && let Some(object) = world.object_at(addr)
        {
            // SAFETY: it is an object of this heap, and alive, since a part of it was just written.
            unsafe { heap.changed(object) };
        }
        Some(())
    });
    if in_object.is_some() || find_marked(|_| Some(())).is_none() {
        return;
    }
    let mut listing = Tracer::listing();
    part.trace(&mut listing);
    for edge in listing.take_listed().edges {
        let number = Chunk::of(edge).head().heap.get();
        find_marked(|world| {
            // SAFETY: pointer.Q1: it is an object, and alive, of the heap that has this number (source.S5).
            world.heap(number).map(|heap| unsafe { heap.barrier(edge) })
        });
    }
}
