//! The right to use a tenant's heap, which a closure has.
//!
//! Not here: where it comes from (`tenant`), handles (`handle`).

use core::ptr::NonNull;
use std::rc::Rc;

use super::pointer::{Brand, Gc, Sys};
use crate::heap::shortage::OutOfMemory;
use crate::heap::state::{Heap, Shared};
use crate::heap::trigger::Reason;
use crate::trace::{KindOf, System, Trace};

/// The right to use a tenant's heap, within a closure.
#[derive(Clone, Copy)]
pub struct Cx<'gc> {
    pub(super) heap: &'gc Heap,
    pub(super) shared: &'gc Heap,
    pub(super) brand: Brand<'gc>,
}

/// The error for what is of another tenant, or of another runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign;

impl std::fmt::Display for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it is of another tenant or runtime than the one that was entered")
    }
}

impl std::error::Error for Foreign {}

impl<'gc> Cx<'gc> {
    /// Allocates an object. Its type may have the brand of this closure and no other (`T: 'gc`: no two closures' brands
    /// outlive each other), so that its edges are this tenant's.
    ///
    /// # Errors
    /// The tenant is at its limit, or the system has no memory. A collection may help, after the closure.
    #[inline]
    pub fn alloc<T: Trace + 'gc>(self, value: T) -> Result<Gc<'gc, T>, OutOfMemory> {
        // SAFETY: `put` writes it at once.
        let object = unsafe { self.heap.alloc(KindOf::<T>::USER) }?;
        Ok(Gc::made(put(object, value)))
    }

    /// Allocates an object of the runtime's own that lives about as long as the tenant: it does not lie among the
    /// user's objects.
    ///
    /// # Errors
    /// As [`Cx::alloc`].
    pub fn alloc_system<T: Trace + 'gc>(self, value: T) -> Result<Gc<'gc, T>, OutOfMemory> {
        // SAFETY: `put` writes it at once.
        let object = unsafe { self.heap.alloc(KindOf::<T>::SYSTEM) }?;
        Ok(Gc::made(put(object, value)))
    }

    /// Allocates an object of the shared heap.
    ///
    /// # Errors
    /// As [`Cx::alloc`], for the shared heap.
    pub fn alloc_shared<T: System + 'gc>(self, value: T) -> Result<Sys<'gc, T>, OutOfMemory> {
        // SAFETY: `put` writes it at once.
        let object = unsafe { self.shared.alloc(KindOf::<T>::SYSTEM) }?;
        Ok(Sys::made(put(object, value)))
    }

    /// Returns its heap.
    pub(crate) fn own(self) -> &'gc Heap {
        self.heap
    }

    /// Reports whether it is for this heap.
    pub(crate) fn is_of(self, heap: &Rc<Heap>) -> bool {
        core::ptr::eq(Rc::as_ptr(heap), self.heap)
    }

    /// Reports whether a world is the one of its heap.
    pub(crate) fn is_in(self, world: &Rc<Shared>) -> bool {
        Rc::ptr_eq(&self.heap.world, world)
    }

    /// Notes that an edge to `target` is written into an object of the tenant.
    #[inline]
    pub(crate) fn barrier(self, target: NonNull<u8>) {
        // SAFETY: pointer.Q1: an edge of this brand leads to an object that is alive.
        unsafe { self.heap.barrier(target) };
    }

    /// Returns why the tenant should be collected, if it should: a long closure may then end. Cost: a load.
    pub fn due(self) -> Option<Reason> {
        self.heap.due()
    }

    /// Counts `change` more bytes (or fewer) that the tenant's objects hold outside of its heap: see
    /// [`Heap::client_bytes`]. Returns whether the tenant is now over its limit, and is refused allocations until it is
    /// not.
    pub fn client_bytes(self, change: isize) -> bool {
        self.heap.client_bytes(change)
    }
}

fn put<T>(object: NonNull<u8>, value: T) -> NonNull<T> {
    let object = object.cast::<T>();
    // SAFETY: alloc.P3: the cell is this thread's, aligned and large enough for the kind.
    unsafe { object.write(value) };
    object
}
