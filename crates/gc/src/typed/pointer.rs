//! Pointers to objects, and the cells that hold them.
//!
//! ```text
//!   Gc<'gc, T>    to an object of the tenant that was entered        Copy, one word, *gc is the value
//!   Sys<'gc, T>   to an object of the shared heap
//!   Weak<'gc, T>  keeps nothing alive
//!   Slot<P>       a pointer that changes       Locked<T>  a value that changes (as RefCell)
//! ```
//!
//! Q1  A `Gc` or `Sys` of a brand leads to an object that does not end while the brand's closure runs: it was
//!     allocated in it, or read from an object or handle that is reachable.
//! Q2  Brands are invariant, so a pointer is of the closure it came from (F1).
//!
//! Not here: where they come from (`tenant`).

use core::cell::{Cell, Ref, RefCell, RefMut};
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

use super::tenant::Cx;
use super::trace::{Edge, System, Trace};
use crate::kind::Finalize;
use crate::mark::{Tracer, WeakCell};

/// Q2.
pub(crate) type Brand<'gc> = PhantomData<fn(&'gc ()) -> &'gc ()>;

macro_rules! pointer {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        pub struct $name<'gc, T> {
            object: NonNull<T>,
            brand: Brand<'gc>,
        }

        impl<'gc, T> $name<'gc, T> {
            /// Q1 is the caller's.
            pub(crate) fn made(object: NonNull<T>) -> Self {
                $name { object, brand: PhantomData }
            }

            /// The value, for as long as the closure runs.
            pub fn get(self) -> &'gc T
            where
                T: 'gc,
            {
                // SAFETY: Q1.
                unsafe { self.object.as_ref() }
            }

            /// Where the object lies: the same until its end.
            pub fn address(self) -> usize {
                self.object.as_ptr().addr()
            }

            pub(crate) fn raw(self) -> NonNull<u8> {
                self.object.cast()
            }

            /// Whether both lead to the same object.
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

        // SAFETY: that is what it is.
        unsafe impl<'gc, T> Edge<'gc> for $name<'gc, T> {}
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
    /// To what this leads to.
    pub fn to(gc: Gc<'gc, T>) -> Weak<'gc, T> {
        Weak {
            cell: WeakCell::new(Some(gc.raw())),
            brand: PhantomData,
            to: PhantomData,
        }
    }

    /// The object, if no collection has found that nothing else leads to it.
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

impl<P: Copy> Slot<P> {
    /// One that holds `pointer`.
    pub fn new(pointer: Option<P>) -> Slot<P> {
        Slot(Cell::new(pointer))
    }

    /// What it holds.
    #[inline]
    pub fn get(&self) -> Option<P> {
        self.0.get()
    }

    /// Holds another one from now on.
    #[inline]
    pub fn set<'gc>(&self, _cx: Cx<'gc>, pointer: Option<P>)
    where
        P: Edge<'gc>,
    {
        self.0.set(pointer);
    }
}

// SAFETY: J1: what it holds is told.
unsafe impl<P: Trace + Copy> Trace for Slot<P> {
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

// SAFETY: as what it holds.
unsafe impl<P: System + Copy> System for Slot<P> {}

/// A value that changes, checked as it runs.
#[derive(Default)]
pub struct Locked<T>(RefCell<T>);

impl<T> Locked<T> {
    /// One that holds `value`.
    pub fn new(value: T) -> Locked<T> {
        Locked(RefCell::new(value))
    }

    /// To read.
    ///
    /// # Panics
    /// If somebody writes.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.0.borrow()
    }

    /// To write.
    ///
    /// # Panics
    /// If somebody reads or writes.
    pub fn borrow_mut(&self, _cx: Cx<'_>) -> RefMut<'_, T> {
        self.0.borrow_mut()
    }
}

// SAFETY: J1: what it holds is told. A guard cannot outlive the closure (F1); if one was leaked for writing, this
// panics, and the collection with it.
unsafe impl<T: Trace> Trace for Locked<T> {
    const EDGES: bool = T::EDGES;
    const FINALIZE: Finalize = T::FINALIZE;
    fn trace(&self, tracer: &mut Tracer) {
        self.0.borrow().trace(tracer);
    }
    fn name_edges(&self, tracer: &mut Tracer) {
        self.0.borrow().name_edges(tracer);
    }
}

// SAFETY: as what it holds.
unsafe impl<T: System> System for Locked<T> {}
