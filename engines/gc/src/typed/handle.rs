//! Pointers that outlive closures: the host's handles, and edges from other tenants' objects.
//!
//! ```text
//!   Handle ──► entry of the heap's root table, from the host        CrossEdge ──► entry from the heap that it lies in
//! ```
//!
//! X1  An edge from a tenant's object to another tenant's is a [`CrossEdge`], which has an entry in the root table
//!     there. When both are collected together it is an edge like any other, so cycles through two heaps end.
//!
//! Not here: root tables (`roots`).

use core::marker::PhantomData;
use core::ptr::NonNull;
use std::rc::Rc;

use super::cx::{Cx, Foreign};
use super::pointer::{Brand, Gc, Named, Sys};
use crate::heap::kind::Finalize;
use crate::heap::roots::{From, RootId};
use crate::heap::state::Heap;
use crate::heap::tracer::Tracer;
use crate::trace::{Family, Trace};

impl<'gc> Cx<'gc> {
    /// Keeps an object alive beyond the closure. `why` appears where the program asks what holds it.
    pub fn keep<F: Family>(self, gc: Gc<'gc, F::At<'gc>>, why: &'static str) -> Handle<F> {
        Handle::made(self.heap, gc.raw(), why)
    }

    /// Keeps an object of the shared heap alive beyond the closure, like [`Cx::keep`].
    pub fn keep_shared<F: Family>(self, sys: Sys<'gc, F::At<'gc>>, why: &'static str) -> Handle<F> {
        Handle::made(self.shared, sys.raw(), why)
    }

    /// Makes an edge to another tenant's object, to be put into an object of this tenant.
    ///
    /// # Errors
    /// That tenant is of another runtime.
    pub fn cross_edge<F: Family>(self, to: &Handle<F>) -> Result<CrossEdge<'gc, F>, Foreign> {
        if !self.is_in(&to.heap.world) {
            return Err(Foreign);
        }
        // SAFETY: the handle keeps it alive.
        let id = unsafe { to.heap.root(to.object, From::Heap(self.heap.id())) };
        Ok(CrossEdge {
            heap: to.heap.clone(),
            id,
            object: to.object,
            brand: PhantomData,
            to: PhantomData,
        })
    }
}

/// Keeps an object alive, from outside of all heaps. A handle that lies in an object of its own tenant (within
/// [`Opaque`](super::Opaque)) keeps its object, and the heap, for as long as that object: for ever, if its object leads
/// back to that one.
pub struct Handle<F: Family> {
    heap: Rc<Heap>,
    id: RootId,
    object: NonNull<u8>,
    why: &'static str,
    to: Named<F>,
}

impl<F: Family> Handle<F> {
    fn made(heap: &Heap, object: NonNull<u8>, why: &'static str) -> Handle<F> {
        // SAFETY: pointer.Q1, or another handle keeps it alive; `heap` is the heap that it lies in.
        let id = unsafe { heap.root(object, From::Host(why)) };
        Handle {
            heap: heap.this(),
            id,
            object,
            why,
            to: PhantomData,
        }
    }

    /// Returns the object.
    ///
    /// # Errors
    /// It is in another tenant's heap.
    pub fn open<'gc>(&self, cx: Cx<'gc>) -> Result<Gc<'gc, F::At<'gc>>, Foreign> {
        open(&self.heap, cx.heap, self.object).map(Gc::made)
    }

    /// Returns the object of the shared heap.
    ///
    /// # Errors
    /// It is in a tenant's heap.
    pub fn open_shared<'gc>(&self, cx: Cx<'gc>) -> Result<Sys<'gc, F::At<'gc>>, Foreign> {
        open(&self.heap, cx.shared, self.object).map(Sys::made)
    }
}

fn open<T>(held: &Rc<Heap>, entered: &Heap, object: NonNull<u8>) -> Result<NonNull<T>, Foreign> {
    if core::ptr::eq(Rc::as_ptr(held), entered) {
        Ok(object.cast())
    } else {
        Err(Foreign)
    }
}

impl<F: Family> Clone for Handle<F> {
    fn clone(&self) -> Self {
        Handle::made(&self.heap, self.object, self.why)
    }
}

impl<F: Family> Drop for Handle<F> {
    fn drop(&mut self) {
        // SAFETY: from `root` of this heap, and ended only here.
        unsafe { self.heap.unroot(self.id) };
    }
}

/// An edge to an object of another tenant (X1). It lies in an object; it is branded, so that none can be kept outside,
/// where it would not be told.
pub struct CrossEdge<'gc, F: Family> {
    heap: Rc<Heap>,
    id: RootId,
    object: NonNull<u8>,
    brand: Brand<'gc>,
    to: Named<F>,
}

impl<F: Family> CrossEdge<'_, F> {
    /// Returns the object, within a closure of its own tenant.
    ///
    /// # Errors
    /// `cx` is of another tenant.
    pub fn open<'to>(&self, cx: Cx<'to>) -> Result<Gc<'to, F::At<'to>>, Foreign> {
        open(&self.heap, cx.heap, self.object).map(Gc::made)
    }
}

// SAFETY: values.J1: it is one edge. Its `Drop` removes the entry and does not look at the object; on the mutator, since
// the table is its heap's.
unsafe impl<F: Family> Trace for CrossEdge<'_, F> {
    const EDGES: bool = true;
    const FINALIZE: Finalize = Finalize::Mutator;
    const WEAK: bool = false;
    fn trace(&self, tracer: &mut Tracer) {
        tracer.edge(self.object);
    }
}

impl<F: Family> Drop for CrossEdge<'_, F> {
    fn drop(&mut self) {
        // SAFETY: from `root` of this heap, and ended only here.
        unsafe { self.heap.unroot(self.id) };
    }
}
