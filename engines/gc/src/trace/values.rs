//! The types whose values may lie in a heap.
//!
//! ```text
//!   T: Trace ─► Kind { size, align, trace, finalize on the strictest thread of its parts }     a constant for each T
//! ```
//!
//! J1  `trace` tells every edge that the value has, and `FINALIZE` is the strictest of its parts': a value that is
//!     dropped on another thread consists only of parts that may be.
//! J2  A type whose values hold no edges may be `'static`; a type that is `'static` holds none, since brands are not.
//!
//! Not here: the standard library's types (`std_types`).

use core::marker::PhantomData;
use core::ptr::NonNull;

use crate::heap::address::ARENA_BYTES;
use crate::heap::kind::{Finalize, Kind, Origin};
use crate::heap::tracer::Tracer;

/// A pointer that a [`Slot`](crate::typed::Slot) can hold: [`Gc`](crate::typed::Gc) and [`Sys`](crate::typed::Sys).
#[diagnostic::on_unimplemented(
    message = "a `Slot` holds a `Gc` or a `Sys`, not a `{Self}`",
    note = "what else changes is in a `Locked`: `Locked<Option<Weak<…>>>`, `Locked<Option<CrossEdge<…>>>`"
)]
pub trait Pointer: Trace + Copy {}

/// A value that may lie in a heap. [`object!`](crate::object) implements it.
///
/// # Safety
/// J1; each counted pointer ([`Cc`](crate::cc::Cc)) is told once, not twice; edges that change do so only within
/// [`Slot`](crate::typed::Slot), [`Locked`](crate::typed::Locked) or [`Field`](crate::cc::Field), which have barriers;
/// and its own `Drop`, if it has one, looks at no edge. If `FINALIZE` is not [`Finalize::Mutator`], dropping it on
/// another thread is sound.
#[diagnostic::on_unimplemented(
    message = "a `{Self}` cannot lie in a heap: the collector does not know its edges",
    note = "declare it with `object!`; a value without edges goes in as `Opaque(value)`, or `OpaqueSend(value)` if any \
            thread may drop it; an edge that changes is a `Slot` or in a `Locked`, not in a `Cell` or `RefCell`"
)]
pub unsafe trait Trace {
    /// Whether the value may have edges. `false`: `trace` is never called.
    const EDGES: bool;
    /// The threads on which the value may be dropped.
    const FINALIZE: Finalize;
    /// Whether it may have so many edges that [`trace_part`](Trace::trace_part) is worth its cost.
    const PARTS: bool = false;
    /// Whether the value itself, not what its edges lead to, may have weak edges or pairs. `true` is never wrong: objects
    /// with a [`Locked`](crate::typed::Locked) of such a type are looked at again at the end of marking in slices.
    const WEAK: bool = Self::EDGES;

    /// Tells each edge. It does not panic.
    fn trace(&self, tracer: &mut Tracer);

    /// Tells some hundred edges, from the place that the last call returned, as described at
    /// [`Kind::trace_part`](crate::Kind::trace_part).
    fn trace_part(&self, from: usize, tracer: &mut Tracer) -> Option<usize> {
        let _ = from;
        self.trace(tracer);
        None
    }

    /// Tells each edge of a value that may not be there.
    #[doc(hidden)]
    #[inline]
    fn trace_if(value: Option<&Self>, tracer: &mut Tracer) {
        if let Some(value) = value {
            value.trace(tracer);
        }
    }

    /// Tells the same edges in the same order with names ([`Tracer::named`]), for snapshots and retaining paths.
    fn name_edges(&self, tracer: &mut Tracer) {
        self.trace(tracer);
    }
}

/// A value without edges to a tenant's objects: it may lie in the shared heap.
///
/// # Safety
/// The value has no edges to a tenant's objects.
pub unsafe trait System: Trace {}

/// A pointer to an object, branded with `'gc`.
///
/// # Safety
/// It is such a pointer, and nothing more.
pub unsafe trait Edge<'gc>: Trace + Copy {
    /// Returns the object, for the write barrier.
    fn leads_to(self) -> NonNull<u8>;
}

/// A branded type under a name without a brand, as [`Handle`](crate::typed::Handle) needs it.
/// [`object!`](crate::object) implements it for `Name<'static>`.
pub trait Family: 'static {
    /// The type within a closure.
    type At<'gc>: Trace;
}

/// A value from outside of any heap, dropped on the mutator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Opaque<T>(pub T);

/// A value from outside of any heap that may be dropped on any thread.
///
/// Its `Drop` runs on the sweeper's thread, or on the heap's own within an allocation or whatever else sweeps. So it must
/// not wait for what the program holds over a call into the heap, such as a lock: the heap's thread would wait for itself
/// where the call runs such a `Drop`, and for the sweeper where the call waits until that has ended what it has.
/// Collections do so, the end of a closure that has one due, `tick`, `pressure`, `shrink`, the end of a tenant, and what
/// looks at all objects (`holds`, `rows`, `check`, snapshots, paths). A `Drop` that wants to tell the program something
/// puts it where no lock is held for long: an atomic, a channel.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpaqueSend<T>(pub T);

// SAFETY: J2.
unsafe impl<T: 'static> Trace for Opaque<T> {
    const EDGES: bool = false;
    const FINALIZE: Finalize = if core::mem::needs_drop::<T>() {
        Finalize::Mutator
    } else {
        Finalize::Nothing
    };
    fn trace(&self, _: &mut Tracer) {}
}

// SAFETY: J2.
unsafe impl<T: 'static> System for Opaque<T> {}

// SAFETY: J2; it may be sent to where it is dropped.
unsafe impl<T: 'static + Send> Trace for OpaqueSend<T> {
    const EDGES: bool = false;
    const FINALIZE: Finalize = Finalize::Any;
    fn trace(&self, _: &mut Tracer) {}
}

// SAFETY: J2.
unsafe impl<T: 'static + Send> System for OpaqueSend<T> {}

impl<T: 'static> Family for Opaque<T> {
    type At<'gc> = Opaque<T>;
}

impl<T: 'static + Send> Family for OpaqueSend<T> {
    type At<'gc> = OpaqueSend<T>;
}

/// Encodes places in a struct: the place in a field, times the number of fields, plus the field's number.
#[doc(hidden)]
pub struct FieldParts {
    fields: usize,
    /// Number of fields asked for so far.
    asked: usize,
    /// Where the telling continues: a field, and a place in it.
    first: usize,
    inner: usize,
}

impl FieldParts {
    /// Decodes the place where a part begins.
    pub fn from(place: usize, fields: &[&str]) -> FieldParts {
        let count = fields.len().max(1);
        FieldParts {
            fields: count,
            asked: 0,
            first: place % count,
            inner: place / count,
        }
    }

    /// Returns where the telling of the next field continues; `None`: it was told before.
    #[allow(clippy::should_implement_trait)] // An iterator would end with the first that is not told.
    pub fn next(&mut self) -> Option<usize> {
        let field = self.asked;
        self.asked += 1;
        match field.cmp(&self.first) {
            core::cmp::Ordering::Less => None,
            core::cmp::Ordering::Equal => Some(self.inner),
            core::cmp::Ordering::Greater => Some(0),
        }
    }

    /// Returns the place in the struct for a place in the field that was asked for last.
    pub fn place(&self, inner: usize) -> usize {
        inner * self.fields + self.asked - 1
    }
}

/// The kinds of a type: user's and system's.
pub(crate) struct KindOf<T>(PhantomData<T>);

impl<T: Trace> KindOf<T> {
    pub(crate) const USER: &'static Kind = &kind::<T>(Origin::User);
    pub(crate) const SYSTEM: &'static Kind = &kind::<T>(Origin::System);
}

const fn kind<T: Trace>(origin: Origin) -> Kind {
    assert!(
        align_of::<T>() <= ARENA_BYTES,
        "an alignment of more than 4096 bytes is not met"
    );
    Kind {
        name: core::any::type_name::<T>,
        bytes: if size_of::<T>() == 0 {
            1
        } else {
            size_of::<T>()
        },
        align: align_of::<T>(),
        trace: if T::EDGES { Some(trace::<T>) } else { None },
        trace_part: if T::EDGES && T::PARTS {
            Some(trace_part::<T>)
        } else {
            None
        },
        finalize: if core::mem::needs_drop::<T>() {
            Some(end::<T>)
        } else {
            None
        },
        finalize_on: T::FINALIZE,
        origin,
    }
}

unsafe fn trace<T: Trace>(object: NonNull<u8>, tracer: &mut Tracer) {
    // SAFETY: objects of this kind are values of `T` (kind.K1).
    let value = unsafe { object.cast::<T>().as_ref() };
    if tracer.wants_names() {
        name_edges(value, tracer);
    } else {
        value.trace(tracer);
    }
}

/// Names edges. Apart from `trace`, which would set up its larger stack frame for each object otherwise.
#[cold]
#[inline(never)]
fn name_edges<T: Trace>(value: &T, tracer: &mut Tracer) {
    value.name_edges(tracer);
}

unsafe fn trace_part<T: Trace>(
    object: NonNull<u8>,
    from: usize,
    tracer: &mut Tracer,
) -> Option<usize> {
    // SAFETY: as above.
    unsafe { object.cast::<T>().as_ref() }.trace_part(from, tracer)
}

unsafe fn end<T>(object: NonNull<u8>) {
    // SAFETY: as above; it ends once (gc.G1), on a thread that J1 allows.
    unsafe { object.cast::<T>().drop_in_place() };
}
