//! Parts of counted values that change.
//!
//! Not here: the barrier itself (`moved`).

use core::cell::{Ref, RefCell, RefMut};
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

use super::moved::moved;
use crate::heap::kind::Finalize;
use crate::heap::tracer::Tracer;
use crate::trace::Trace;

/// A part of a counted value that changes, checked at run time (like `RefCell`).
#[derive(Default)]
pub struct Field<T>(RefCell<T>);

impl<T> Field<T> {
    /// Creates a field that holds `value`.
    pub fn new(value: T) -> Field<T> {
        Field(RefCell::new(value))
    }

    /// Borrows the value to read it.
    ///
    /// # Panics
    /// The field is being written.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.0.borrow()
    }
}

impl<T: Trace> Field<T> {
    /// Borrows the value to write it. Cost while no collection is in progress: two loads and branches beside
    /// `RefCell`'s; while one is, a look at all that it holds, twice.
    ///
    /// # Panics
    /// The field is being read or written.
    pub fn borrow_mut(&self) -> FieldMut<'_, T> {
        let value = self.0.borrow_mut();
        moved(&*value);
        FieldMut(ManuallyDrop::new(value))
    }

    /// Replaces the value; returns the old one.
    ///
    /// # Panics
    /// The field is being read or written.
    pub fn replace(&self, value: T) -> T {
        core::mem::replace(&mut *self.borrow_mut(), value)
    }
}

/// A guard with which the value of a [`Field`] is written.
pub struct FieldMut<'a, T: Trace>(ManuallyDrop<RefMut<'a, T>>);

impl<T: Trace> Deref for FieldMut<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Trace> DerefMut for FieldMut<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: Trace> Drop for FieldMut<'_, T> {
    fn drop(&mut self) {
        moved(&**self.0);
        // SAFETY: it is not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

// SAFETY: values.J1: what it holds is told. While the field is being written it tells nothing: then what it holds counts as
// held from outside, which it is. Finalizers run on its parts' threads.
unsafe impl<T: Trace + 'static> Trace for Field<T> {
    const EDGES: bool = T::EDGES;
    const FINALIZE: Finalize = T::FINALIZE;
    const WEAK: bool = T::WEAK;
    fn trace(&self, tracer: &mut Tracer) {
        if let Ok(value) = self.0.try_borrow() {
            value.trace(tracer);
        }
    }
}
