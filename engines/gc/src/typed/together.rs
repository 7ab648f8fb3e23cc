//! Pointers between tenants' objects and counted values, and the collection of cycles through both.
//!
//! ```text
//!   object ── Counted ──► box ── Cc ──► box ── Anchor ──► object ── … back to the first
//! ```
//!
//! together.C1 and together.C2 of `counted::together` hold by the types: a [`Counted`] is branded, so it lies in an object, or in a closure
//! that has not ended, and an [`Anchor`] has an entry in its heap's root table.
//!
//! Not here: how such cycles are found (`counted::together`).

use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;
use std::rc::Rc;

use super::cx::{Cx, Foreign};
use super::pointer::{Brand, Gc, Named};
use super::tenant::Runtime;
use crate::counted::{Cc, Cycles, Held, Number};
use crate::heap::kind::Finalize;
use crate::heap::roots::{From, RootId};
use crate::heap::set::Busy;
use crate::heap::source::take_number;
use crate::heap::state::Heap;
use crate::heap::tracer::Tracer;
use crate::heap::trigger::Reason;
use crate::trace::{Family, Trace};

/// A pointer of an object to a counted value.
pub struct Counted<'gc, T: Trace + 'static> {
    held: Held<T>,
    brand: Brand<'gc>,
}

impl<T: Trace> Deref for Counted<'_, T> {
    type Target = Cc<T>;
    fn deref(&self) -> &Cc<T> {
        &self.held
    }
}

// SAFETY: values.J1: as what it consists of.
unsafe impl<T: Trace> Trace for Counted<'_, T> {
    const EDGES: bool = true;
    const FINALIZE: Finalize = Finalize::Mutator;
    const WEAK: bool = false;
    fn trace(&self, tracer: &mut Tracer) {
        self.held.trace(tracer);
    }
}

/// A pointer of a counted value to an object. Anywhere else it acts like a handle.
pub struct Anchor<F: Family> {
    heap: Rc<Heap>,
    /// The number that the entry has, which is no tenant's while the entry is there (source.S5).
    _number: Number,
    id: RootId,
    object: NonNull<u8>,
    to: Named<F>,
}

impl<F: Family> Anchor<F> {
    /// Returns the object.
    ///
    /// # Errors
    /// It is in another tenant's heap.
    pub fn open<'gc>(&self, cx: Cx<'gc>) -> Result<Gc<'gc, F::At<'gc>>, Foreign> {
        if !cx.is_of(&self.heap) {
            return Err(Foreign);
        }
        Ok(Gc::made(self.object.cast()))
    }
}

impl<F: Family> Drop for Anchor<F> {
    fn drop(&mut self) {
        // SAFETY: from `root` of this heap, and ended only here.
        unsafe { self.heap.unroot(self.id) };
    }
}

// SAFETY: values.J1: its entry is told; its object is kept alive by that. The table is its thread's.
unsafe impl<F: Family> Trace for Anchor<F> {
    const EDGES: bool = true;
    const FINALIZE: Finalize = Finalize::Mutator;
    const WEAK: bool = false;
    fn trace(&self, tracer: &mut Tracer) {
        tracer.anchor(self.heap.id(), self.id, self.object);
    }
}

impl<'gc> Cx<'gc> {
    /// Makes a pointer to a counted value of [`Runtime::cycles`], to be put into an object.
    ///
    /// # Errors
    /// The value's collector of cycles is not of this runtime: a collection of that one would not see this pointer.
    pub fn hold<T: Trace>(self, cc: Cc<T>) -> Result<Counted<'gc, T>, Foreign> {
        let held = Held::new(cc, &self.own().world).ok_or(Foreign)?;
        Ok(Counted {
            held,
            brand: PhantomData,
        })
    }

    /// Makes a pointer to an object of the tenant, to be put into a counted value of [`Runtime::cycles`].
    ///
    /// # Errors
    /// The collector of cycles is not of this runtime.
    pub fn anchor<F: Family>(
        self,
        cycles: &Cycles,
        gc: Gc<'gc, F::At<'gc>>,
    ) -> Result<Anchor<F>, Foreign> {
        let heap = self.own();
        let (own, number) = Number::in_world(cycles, &heap.world).ok_or(Foreign)?;
        // SAFETY: pointer.Q1: it is alive, and of this heap.
        let id = unsafe { heap.root(gc.raw(), From::Heap(number)) };
        Ok(Anchor {
            heap: heap.this(),
            _number: own,
            id,
            object: gc.raw(),
            to: PhantomData,
        })
    }
}

impl Runtime {
    /// Returns a collector of counted values that may have edges to and from objects of this runtime's tenants.
    pub fn cycles(&self) -> Cycles {
        let number = take_number();
        Cycles::of(&self.world().0, number)
    }
}

impl Cycles {
    /// Collects all heaps of the runtime and all counted values together: every cycle that nothing outside holds ends,
    /// whatever it goes through. Stops the program for as long as marking everything takes.
    ///
    /// # Errors
    /// A closure of a tenant is running, or a finalizer or destructor asked; or the collector is not of this runtime;
    /// nothing was collected.
    pub fn collect_with(&self, runtime: &Runtime, reason: Reason) -> Result<(), Busy> {
        // SAFETY: no closure runs (it is refused otherwise), so all objects that can be used later are reached from
        // handles and anchors; the world is a runtime's own.
        unsafe { self.collect_with_world(&runtime.world().0, reason) }
    }
}
