//! Pointers to objects.
//!
//! ```text
//!   Gc<'gc, T>    to an object of the tenant that was entered        Copy, one word, *gc is the value
//!   Sys<'gc, T>   to an object of the shared heap
//!   Weak<'gc, T>  keeps nothing alive
//! ```
//!
//! Q1  A `Gc` or `Sys` of a brand leads to an object that does not end while the brand's closure runs: it was allocated
//!     in it, or read from an object or handle that is reachable.
//! Q2  Brands are invariant, so a pointer belongs to the closure that it came from (typed.F1).
//!
//! Not here: where pointers come from (`cx`), the cells that hold them (`slot`).

use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

use crate::heap::kind::Finalize;
use crate::heap::tracer::Tracer;
use crate::heap::weak::WeakCell;
use crate::trace::{Edge, Family, Pointer, System, Trace};

/// A brand, invariant in `'gc` (Q2).
pub(crate) type Brand<'gc> = PhantomData<fn(&'gc ()) -> &'gc ()>;

/// The name of the family that an object is of, invariant (typed.F8). It is Send and Sync, whatever `F` is: who has it
/// is neither, by the heap that lies beside it.
pub(crate) type Named<F> = PhantomData<fn(F) -> F>;

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

        // SAFETY: values.J1: it is one edge, and has no `Drop`.
        unsafe impl<T> Trace for $name<'_, T> {
            const EDGES: bool = true;
            const FINALIZE: Finalize = Finalize::Nothing;
            const WEAK: bool = false;
            #[inline]
            fn trace(&self, tracer: &mut Tracer) {
                tracer.edge(self.object.cast());
            }
            #[inline]
            fn trace_if(value: Option<&Self>, tracer: &mut Tracer) {
                tracer.edge_if(value.map(|value| value.object.cast()));
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

// SAFETY: typed.F4: the object is the shared heap's.
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

// SAFETY: values.J1: its edge is told as one that keeps nothing alive, and emptied before the object ends.
unsafe impl<T> Trace for Weak<'_, T> {
    const EDGES: bool = true;
    const FINALIZE: Finalize = Finalize::Nothing;
    const WEAK: bool = true;
    fn trace(&self, tracer: &mut Tracer) {
        tracer.weak(&self.cell);
    }
}
