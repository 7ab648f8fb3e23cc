//! Counted pointers.
//!
//! cc.Z1 to cc.Z3 are kept here.
//!
//! Not here: what a count's change causes (`boxes`).

use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

use super::boxes::{CcBox, Header};
use crate::heap::kind::Finalize;
use crate::heap::tracer::Tracer;
use crate::trace::Trace;

/// A counted pointer. It belongs to one thread.
pub struct Cc<T: Trace + 'static> {
    to: NonNull<CcBox<T>>,
    owns: PhantomData<CcBox<T>>,
}

impl<T: Trace> Cc<T> {
    /// Makes a pointer to a new box, which counts it already.
    pub(super) fn made(to: NonNull<CcBox<T>>) -> Cc<T> {
        Cc {
            to,
            owns: PhantomData,
        }
    }

    pub(super) fn header(&self) -> NonNull<Header> {
        self.to.cast()
    }

    pub(super) fn head(&self) -> &Header {
        // SAFETY: cc.Z1: this pointer is counted.
        unsafe { self.to.cast::<Header>().as_ref() }
    }

    /// Reports whether both lead to the same value.
    pub fn is(&self, other: &Cc<T>) -> bool {
        self.to == other.to
    }

    /// Returns the number of pointers to the value, without weak ones.
    pub fn count(&self) -> u32 {
        self.head().strong()
    }

    /// Returns a pointer that keeps nothing alive.
    pub fn downgrade(&self) -> Weak<T> {
        self.head().add_weak();
        Weak { to: self.to }
    }
}

impl<T: Trace> Deref for Cc<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: cc.Z1: the value is dropped when no pointer is left, or only those within destroyed values, which no
        // code can use (cc.Z3).
        unsafe { &(*self.to.as_ptr()).value }
    }
}

impl<T: Trace> Clone for Cc<T> {
    #[inline]
    fn clone(&self) -> Self {
        self.head().add_strong();
        Cc {
            to: self.to,
            owns: PhantomData,
        }
    }
}

impl<T: Trace> Drop for Cc<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: cc.Z1: this pointer was counted, and is no more.
        unsafe { Header::remove_strong(self.header()) };
    }
}

impl<T: Trace + core::fmt::Debug> core::fmt::Debug for Cc<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        (**self).fmt(f)
    }
}

// SAFETY: values.J1: it is one counted pointer, told once; counts are its thread's.
unsafe impl<T: Trace> Trace for Cc<T> {
    const EDGES: bool = true;
    const FINALIZE: Finalize = Finalize::Mutator;
    const WEAK: bool = false;
    fn trace(&self, tracer: &mut Tracer) {
        tracer.counted(self.header().cast());
    }
}

/// A pointer that keeps nothing alive.
pub struct Weak<T: Trace + 'static> {
    to: NonNull<CcBox<T>>,
}

impl<T: Trace> Weak<T> {
    fn head(&self) -> &Header {
        // SAFETY: cc.Z1: boxes stay as long as weak pointers to them.
        unsafe { self.to.cast::<Header>().as_ref() }
    }

    /// Returns the value, if it was not dropped and is not being destroyed.
    pub fn upgrade(&self) -> Option<Cc<T>> {
        self.head().upgrade().then(|| Cc {
            to: self.to,
            owns: PhantomData,
        })
    }
}

impl<T: Trace> Clone for Weak<T> {
    fn clone(&self) -> Self {
        self.head().add_weak();
        Weak { to: self.to }
    }
}

impl<T: Trace> Drop for Weak<T> {
    fn drop(&mut self) {
        // SAFETY: cc.Z1: this pointer was counted, and is no more.
        unsafe { Header::remove_weak(self.to.cast()) };
    }
}

// SAFETY: values.J1: it keeps nothing alive; counts are its thread's.
unsafe impl<T: Trace> Trace for Weak<T> {
    const EDGES: bool = false;
    const FINALIZE: Finalize = Finalize::Mutator;
    fn trace(&self, _: &mut Tracer) {}
}
