//! An object: a head of two words, and the value.
//!
//! ```text
//!   GcBox<T>   │ handles u32 │ state u32 │ &VTable │ value: T …                    a cell of the core, or a run
//!                                  │
//!                                  └─ flags, and the edges that were counted by the examination that runs (`examine`)
//! ```
//!
//! H1  `handles` is the number of `Gc`s that lead to the object, wherever they lie: on stacks, in other objects, in
//!     other heaps. An object whose count is 0 can be reached only by a weak reference.
//! H2  The value is dropped once; from then on `ENDED` is set, and only the head is looked at. The cell is free when
//!     `handles` is 0, too.
//! H3  The vtable is that of the type that the object was made with, whatever its handles were cast to since.
//!
//! Not here: which tenant the cell belongs to (`tenant`), when an object ends (`ending`).

use core::any::TypeId;
use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr::NonNull;
use std::fmt;

use crate::trace::{Trace, Tracer};

/// An object of unknown type: the address of its head.
pub(crate) type Erased = NonNull<Head>;

/// The object waits in the queue of those to be ended or freed.
pub(crate) const QUEUED: u32 = 1 << 31;
/// Weak references to the object may exist: only the collector finds its end.
pub(crate) const WEAKLY: u32 = 1 << 30;
/// The object is being examined, and was not found to be alive yet.
pub(crate) const SUSPECT: u32 = 1 << 29;
/// The object is garbage that waits for its end; only garbage has handles to it.
pub(crate) const DOOMED: u32 = 1 << 28;
/// The object's value is gone (H2).
pub(crate) const ENDED: u32 = 1 << 27;
/// The object's cell lies among the runtime's own objects.
pub(crate) const SYSTEM: u32 = 1 << 26;
/// The object is an ephemeron that a table of its key's tenant knows.
pub(crate) const LISTED: u32 = 1 << 25;
/// The object lies where a policy placed it, not in the tenant's heap (`placed`).
pub(crate) const PLACED: u32 = 1 << 24;
/// The bits that count edges.
const EDGES: u32 = PLACED - 1;

/// The beginning of every object. A free cell has the counts in the same place, and its link where the vtable is.
#[repr(C)]
pub(crate) struct Head {
    handles: Cell<u32>,
    state: Cell<u32>,
    pub(crate) vtable: &'static VTable,
}

impl Head {
    pub(crate) fn new(vtable: &'static VTable, state: u32) -> Head {
        Head {
            handles: Cell::new(1),
            state: Cell::new(state),
            vtable,
        }
    }

    /// Returns the vtable, unless the value has ended: then there may be something else in its place.
    #[inline]
    pub(crate) fn vtable_if_alive(&self) -> Option<&'static VTable> {
        (!self.has(ENDED)).then_some(self.vtable)
    }

    #[inline]
    pub(crate) fn handles(&self) -> u32 {
        self.handles.get()
    }

    /// Counts one more handle. Cost: a load, a branch, a store.
    #[inline]
    pub(crate) fn take_handle(&self) {
        let handles = self.handles.get() + 1;
        if handles > u32::MAX >> 1 {
            too_many();
        }
        self.handles.set(handles);
    }

    /// Counts one handle less; returns whether it was the last. Cost: a load, a store, a branch.
    #[inline]
    #[must_use]
    pub(crate) fn drop_handle(&self) -> bool {
        let handles = self.handles.get().wrapping_sub(1);
        self.handles.set(handles);
        handles == 0
    }

    #[inline]
    pub(crate) fn has(&self, flag: u32) -> bool {
        self.state.get() & flag != 0
    }

    #[inline]
    pub(crate) fn set(&self, flag: u32) {
        self.state.set(self.state.get() | flag);
    }

    #[inline]
    pub(crate) fn clear(&self, flag: u32) {
        self.state.set(self.state.get() & !flag);
    }

    /// Counts an edge, if the object is a suspect. The count stops at its maximum.
    #[inline]
    pub(crate) fn count_edge(&self) {
        let state = self.state.get();
        if state & SUSPECT != 0 && state & EDGES != EDGES {
            self.state.set(state + 1);
        }
    }

    /// Makes the object a suspect without edges.
    #[inline]
    pub(crate) fn suspect(&self) {
        self.state.set(self.state.get() & !EDGES | SUSPECT);
    }

    /// Reports whether suspects hold every handle that exists. A count that has stopped explains nothing.
    #[inline]
    pub(crate) fn is_explained(&self) -> bool {
        let edges = self.state.get() & EDGES;
        edges >= self.handles.get() && edges != EDGES
    }
}

#[cold]
#[inline(never)]
fn too_many() -> ! {
    panic!("an object has too many handles to count")
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.get();
        f.debug_struct("Head")
            .field("handles", &self.handles.get())
            .field("edges", &(state & EDGES))
            .field("flags", &format_args!("{:#x}", state & !EDGES))
            .finish_non_exhaustive()
    }
}

/// The box that a `Gc` leads to. It is opaque, for code that keeps handles as addresses
/// ([`Gc::into_raw`](crate::Gc::into_raw)).
#[derive(Debug)]
#[repr(C)]
pub struct GcBox<T: Trace + ?Sized + 'static> {
    pub(crate) head: Head,
    pub(crate) value: T,
}

type TraceFn = unsafe fn(Erased, &mut Tracer);
type ObjectFn = unsafe fn(Erased);

/// The collector's knowledge of an object's type.
pub(crate) struct VTable {
    /// Reports the edges.
    pub(crate) trace: TraceFn,
    /// Counts the edges at their ends.
    pub(crate) count: ObjectFn,
    /// Runs the finalizers of the value and of what it contains.
    pub(crate) finalize: ObjectFn,
    /// Drops the value.
    pub(crate) drop: ObjectFn,
    pub(crate) type_id: TypeId,
    /// Bytes of the whole box.
    pub(crate) bytes: usize,
    pub(crate) align: usize,
    /// The functions of an ephemeron, if it is one.
    pub(crate) pair: Option<&'static PairFns>,
    pub(crate) name: fn() -> &'static str,
}

/// The additional functions of an ephemeron.
pub(crate) struct PairFns {
    /// Returns its key, if it was not lost.
    pub(crate) key: unsafe fn(Erased) -> Option<Erased>,
    /// Reports the edges of its value.
    pub(crate) trace_value: TraceFn,
    /// Forgets its key.
    pub(crate) lose_key: ObjectFn,
    /// Drops its value.
    pub(crate) drop_value: ObjectFn,
}

/// The functions of a type, found by its name.
pub(crate) struct Of<T>(PhantomData<T>);

impl<T: Trace + 'static> Of<T> {
    /// # Safety
    /// The object must be a `GcBox<T>` that has not ended.
    unsafe fn value<'a>(object: Erased) -> &'a T {
        // SAFETY: as the caller promises.
        unsafe { &(*object.cast::<GcBox<T>>().as_ptr()).value }
    }

    /// # Safety
    /// Those of [`Of::value`].
    unsafe fn trace(object: Erased, tracer: &mut Tracer) {
        // SAFETY: as the caller promises; types report what they contain.
        unsafe { Self::value(object).trace(tracer) };
    }

    /// # Safety
    /// Those of [`Of::value`].
    unsafe fn count(object: Erased) {
        // SAFETY: as above.
        unsafe { Self::value(object).trace_non_roots() };
    }

    /// # Safety
    /// Those of [`Of::value`].
    unsafe fn finalize(object: Erased) {
        // SAFETY: as above.
        unsafe { Self::value(object) }.run_finalizer();
    }

    /// # Safety
    /// Those of [`Of::value`]; the object ends with this call (H2).
    unsafe fn drop(object: Erased) {
        // SAFETY: as the caller promises.
        unsafe { core::ptr::drop_in_place(&raw mut (*object.cast::<GcBox<T>>().as_ptr()).value) };
    }

    pub(crate) const fn vtable(pair: Option<&'static PairFns>) -> VTable {
        VTable {
            trace: Self::trace,
            count: Self::count,
            finalize: Self::finalize,
            drop: Self::drop,
            type_id: TypeId::of::<T>(),
            bytes: size_of::<GcBox<T>>(),
            align: align_of::<GcBox<T>>(),
            pair,
            name: core::any::type_name::<T>,
        }
    }

    pub(crate) const PLAIN: &'static VTable = &Self::vtable(None);
}

/// Returns the head of an object.
///
/// # Safety
/// The object's cell must not be free.
#[inline]
pub(crate) unsafe fn head<'a>(object: Erased) -> &'a Head {
    // SAFETY: as the caller promises: cells that are not free begin with a head.
    unsafe { object.as_ref() }
}
