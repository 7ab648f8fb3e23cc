//! Pointers to objects, and the cells that hold them.
//!
//! ```text
//!   Gc<'gc, T>    to an object of the tenant that was entered        Copy, one word, *gc is the value
//!   Sys<'gc, T>   to an object of the shared heap
//!   Weak<'gc, T>  keeps nothing alive
//!   Slot<P>       a pointer that changes       Locked<T>  a value that changes (as RefCell)
//! ```
//!
//! Q1  A `Gc` or `Sys` of a brand leads to an object that does not end while the brand's closure runs: it was allocated
//!     in it, or read from an object or handle that is reachable.
//! Q2  Brands are invariant, so a pointer belongs to the closure that it came from (F1).
//!
//! Not here: where pointers come from (`tenant`).

use core::cell::{Cell, Ref, RefCell, RefMut};
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use super::tenant::Cx;
use super::trace::{Edge, Family, Pointer, System, Trace};
use crate::kind::Finalize;
use crate::mark::{Tracer, WeakCell};
use crate::world::Shared;

/// A brand, invariant in `'gc` (Q2).
pub(crate) type Brand<'gc> = PhantomData<fn(&'gc ()) -> &'gc ()>;

macro_rules! pointer {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        pub struct $name<'gc, T> {
            object: NonNull<T>,
            brand: Brand<'gc>,
        }

        impl<'gc, T> $name<'gc, T> {
            /// Makes a pointer; the caller ensures Q1.
            pub(crate) fn made(object: NonNull<T>) -> Self {
                $name { object, brand: PhantomData }
            }

            /// Returns the value, for as long as the closure runs.
            pub fn get(self) -> &'gc T
            where
                T: 'gc,
            {
                // SAFETY: Q1.
                unsafe { self.object.as_ref() }
            }

            /// Returns the address of the object, which is the same until its end.
            pub fn address(self) -> usize {
                self.object.as_ptr().addr()
            }

            pub(crate) fn raw(self) -> NonNull<u8> {
                self.object.cast()
            }

            /// Reports whether both lead to the same object.
            pub fn is(self, other: Self) -> bool {
                self.object == other.object
            }
        }

        impl<T> Clone for $name<'_, T> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T> Copy for $name<'_, T> {}

        impl<T> Deref for $name<'_, T> {
            type Target = T;
            #[inline]
            fn deref(&self) -> &T {
                // SAFETY: Q1.
                unsafe { self.object.as_ref() }
            }
        }

        impl<T: core::fmt::Debug> core::fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.object).finish()
            }
        }

        // SAFETY: J1: it is one edge, and has no `Drop`.
        unsafe impl<T> Trace for $name<'_, T> {
            const EDGES: bool = true;
            const FINALIZE: Finalize = Finalize::Nothing;
            #[inline]
            fn trace(&self, tracer: &mut Tracer) {
                tracer.edge(self.object.cast());
            }
        }

        impl<T> Pointer for $name<'_, T> {}

        impl<F: Family> Family for $name<'static, F> {
            type At<'gc> = $name<'gc, F::At<'gc>>;
        }

        // SAFETY: that is what it is.
        unsafe impl<'gc, T> Edge<'gc> for $name<'gc, T> {
            #[inline]
            fn leads_to(self) -> NonNull<u8> {
                self.object.cast()
            }
        }
    };
}

pointer! {
    /// A pointer to an object of the tenant.
    Gc
}

pointer! {
    /// A pointer to an object of the shared heap.
    Sys
}

// SAFETY: F4: the object is the shared heap's.
unsafe impl<T> System for Sys<'_, T> {}

/// A pointer that keeps nothing alive.
pub struct Weak<'gc, T> {
    cell: WeakCell,
    brand: Brand<'gc>,
    to: PhantomData<NonNull<T>>,
}

impl<'gc, T> Weak<'gc, T> {
    /// Creates a weak pointer to the object that `gc` leads to.
    pub fn to(gc: Gc<'gc, T>) -> Weak<'gc, T> {
        Weak {
            cell: WeakCell::new(Some(gc.raw())),
            brand: PhantomData,
            to: PhantomData,
        }
    }

    /// Returns the object, if no collection has found that nothing else leads to it.
    pub fn get(&self) -> Option<Gc<'gc, T>> {
        // Q1: emptied by the collection that does not reach it, and none runs before the closure ends.
        self.cell.get().map(|object| Gc::made(object.cast()))
    }
}

// SAFETY: J1: its edge is told as one that keeps nothing alive, and emptied before the object ends.
unsafe impl<T> Trace for Weak<'_, T> {
    const EDGES: bool = true;
    const FINALIZE: Finalize = Finalize::Nothing;
    fn trace(&self, tracer: &mut Tracer) {
        tracer.weak(&self.cell);
    }
}

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

// SAFETY: J1: what it holds is told.
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
        crate::cc::moved(&*value);
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
        crate::cc::moved(&**self.value);
        // SAFETY: it is not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.value) };
        if T::EDGES && self.world.markings.get() > 0 {
            self.world.written(self.cell);
        }
    }
}

// SAFETY: J1: what it holds is told. While a guard for writing exists its content is unknown: the object is traced
// again after the guard's end (`Tracer::locked`), and marking does not end before (F1). If a guard was leaked, this
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
