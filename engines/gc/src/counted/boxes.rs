//! A counted value in memory, and the effects of its counts.
//!
//! ```text
//!   │ strong │ weak │ flags │ index │ vtable │ collector │ value … │     32 bytes before the value
//!                      │       └─ BUFFERED: place among the candidates; NODE: number in the graph; else nothing
//!                      └─ BUFFERED, NODE, TOUCHED, SUSPECT, DEAD
//! ```
//!
//! Y1  BUFFERED and NODE exclude each other, and tell the meaning of `index`.
//! Y2  DEAD: the value was dropped, and is not traced: the box is no node from then on. Only pointers still lead to it
//!     that no code reads: within values that are destroyed with it, within objects that a collection did not reach,
//!     or leaked.
//! Y3  A box holds a count of its collector, which lives as long as any box.
//!
//! cc.Z1, cc.Z2 and cc.Z4, and cycles.V1, cycles.V2, cycles.V4, are kept here as far as counts are concerned.
//!
//! Not here: which boxes are collected (`cycles`).

use core::cell::{Cell, RefCell};
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use super::graph::Graph;
use crate::heap::source::give_number;
use crate::heap::state::Shared;
use crate::heap::sweep::{FAULTS, Fault, text_of};
use crate::heap::tracer::Tracer;
use crate::trace::Trace;

/// The box is among the candidates.
pub(super) const BUFFERED: u32 = 1;
/// The box is in the graph of a collection that is in progress.
pub(super) const NODE: u32 = 2;
/// The box is a node whose count or holders changed since it became one.
pub(super) const TOUCHED: u32 = 4;
/// The box is a node whose count fell: a candidate of the next collection, if it lives.
pub(super) const SUSPECT: u32 = 8;
/// The value was dropped (Y2).
pub(super) const DEAD: u32 = 16;

/// The functions for a type of value.
pub(super) struct VTable {
    pub(super) name: fn() -> &'static str,
    layout: Layout,
    pub(super) drop: unsafe fn(NonNull<Header>),
    /// Tells the value's pointers; `None`: it holds no counted pointer, and is in no cycle.
    pub(super) trace: Option<unsafe fn(NonNull<Header>, &mut Tracer)>,
}

/// The header before each value.
#[repr(C)]
pub(crate) struct Header {
    strong: Cell<u32>,
    weak: Cell<u32>,
    flags: Cell<u32>,
    index: Cell<u32>,
    pub(super) vtable: &'static VTable,
    inner: NonNull<Inner>,
}

#[repr(C)]
pub(super) struct CcBox<T> {
    header: Header,
    pub(super) value: ManuallyDrop<T>,
}

struct VTableOf<T>(T);

impl<T: Trace> VTableOf<T> {
    const VTABLE: &'static VTable = &VTable {
        name: core::any::type_name::<T>,
        layout: Layout::new::<CcBox<T>>(),
        drop: end::<T>,
        trace: if T::EDGES { Some(trace::<T>) } else { None },
    };
}

unsafe fn end<T>(header: NonNull<Header>) {
    let this = header.cast::<CcBox<T>>().as_ptr();
    // SAFETY: the box is of this type, and its value is dropped once (cc.Z1). The header is used meanwhile: only the value
    // is borrowed.
    unsafe { ManuallyDrop::drop(&mut (*this).value) };
}

unsafe fn trace<T: Trace>(header: NonNull<Header>, tracer: &mut Tracer) {
    // SAFETY: the box is of this type, and its value was not dropped.
    unsafe { header.cast::<CcBox<T>>().as_ref() }
        .value
        .trace(tracer);
}

/// Makes a box with one pointer to it.
pub(super) fn make<T: Trace>(inner: &Rc<Inner>, value: T) -> NonNull<CcBox<T>> {
    let layout = Layout::new::<CcBox<T>>();
    // SAFETY: it has a header, at least.
    let Some(at) = NonNull::new(unsafe { alloc(layout) }) else {
        handle_alloc_error(layout);
    };
    let at = at.cast::<CcBox<T>>();
    let header = Header {
        strong: Cell::new(1),
        weak: Cell::new(0),
        flags: Cell::new(0),
        index: Cell::new(0),
        vtable: VTableOf::<T>::VTABLE,
        // SAFETY: Y3: what `into_raw` gives is not null; given back in `free`.
        inner: unsafe { NonNull::new_unchecked(Rc::into_raw(inner.clone()).cast_mut()) },
    };
    let value = ManuallyDrop::new(value);
    // SAFETY: it is ours, aligned and large enough.
    unsafe { at.write(CcBox { header, value }) };
    at
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Idle,
    Build,
    Scan,
    Destroy,
}

/// Counts of a collector: its work so far, and what it holds.
#[derive(Clone, Debug, Default)]
pub struct CycleCounts {
    /// Number of boxes that are not freed.
    pub boxes: u64,
    /// Number of values that were not dropped; their boxes are in `boxes`.
    pub values: u64,
    /// Number of values whose count fell, but not to 0, since they were last looked at.
    pub candidates: usize,
    /// Number of collections that reached a verdict.
    pub collections: u64,
    /// Number of nodes that those collections looked at.
    pub nodes: u64,
    /// Number of values that they destroyed.
    pub destroyed: u64,
    /// Number of slices.
    pub slices: u64,
    /// Nanoseconds of the longest slice that had a bound.
    pub longest_ns: u64,
    /// Number of destructors that panicked.
    pub panics: u64,
    /// The first of the panics.
    pub faults: Vec<Fault>,
}

pub(crate) struct Inner {
    pub(super) phase: Cell<Phase>,
    pub(super) candidates: RefCell<Vec<NonNull<Header>>>,
    pub(super) graph: RefCell<Graph<Header>>,
    /// Reused for each node.
    pub(super) tracer: RefCell<Option<Tracer>>,
    pub(super) touched: RefCell<Vec<u32>>,
    /// Values whose count is 0 (cc.Z2).
    pub(super) falling: RefCell<Vec<NonNull<Header>>>,
    pub(super) dropping: Cell<bool>,
    pub(super) stepping: Cell<bool>,
    pub(super) made: Cell<u32>,
    /// Number of candidates that makes a collection due.
    pub(super) threshold: Cell<usize>,
    /// The boxes that objects of garbage-collected heaps hold, and how often (`together`).
    pub(super) held: RefCell<HashMap<NonNull<Header>, u32>>,
    pub(super) counts: RefCell<CycleCounts>,
    /// The world whose heaps may have edges to and from boxes, and the number of the boxes there.
    pub(super) world: Option<(Rc<Shared>, u32)>,
}

impl Inner {
    /// Reports whether a node will be destroyed.
    pub(super) fn is_condemned(&self, node: usize) -> bool {
        self.phase.get() == Phase::Destroy && !self.graph.borrow().alive[node]
    }

    pub(super) fn touched(&self, node: usize) {
        // After the verdict it no longer matters.
        if matches!(self.phase.get(), Phase::Build | Phase::Scan) {
            self.touched.borrow_mut().push(node as u32);
        }
    }

    pub(super) fn freed(&self) {
        self.counts.borrow_mut().boxes -= 1;
    }

    /// Notes that the count of a box fell, but not to 0.
    pub(super) fn suspect(&self, this: NonNull<Header>) {
        // SAFETY: its count is not 0.
        let header = unsafe { this.as_ref() };
        if header.has(NODE) {
            header.set(SUSPECT);
            header.touch();
        } else if !header.has(BUFFERED) {
            self.buffer(this, header);
        }
    }

    pub(super) fn buffer(&self, this: NonNull<Header>, header: &Header) {
        let mut candidates = self.candidates.borrow_mut();
        header.set_index(candidates.len());
        header.set(BUFFERED);
        candidates.push(this);
    }

    pub(super) fn unbuffer(&self, header: &Header) {
        let mut candidates = self.candidates.borrow_mut();
        candidates.swap_remove(header.index());
        if let Some(moved) = candidates.get(header.index()) {
            // SAFETY: a box among the candidates exists (cycles.V4).
            unsafe { moved.as_ref() }.set_index(header.index());
        }
        header.clear(BUFFERED);
    }

    /// Drops the value of a box whose count is 0, at once or, if values are being dropped already, after these (cc.Z2).
    pub(super) fn drop_value_of(&self, this: NonNull<Header>) {
        // SAFETY: nothing frees it before its value is dropped.
        let header = unsafe { this.as_ref() };
        if header.has(BUFFERED) {
            self.unbuffer(header);
        }
        if header.has(NODE) {
            self.graph.borrow_mut().nodes[header.index()].header = None;
            header.clear(NODE | TOUCHED | SUSPECT);
        }
        self.falling.borrow_mut().push(this);
        if self.dropping.replace(true) {
            return;
        }
        loop {
            let next = self.falling.borrow_mut().pop();
            let Some(next) = next else { break };
            // SAFETY: its count is 0, and it is in no other list.
            unsafe { self.end(next) };
        }
        self.dropping.set(false);
    }

    /// Drops a value, and frees the box if no pointer to it is left (cc.Z4).
    pub(super) unsafe fn end(&self, this: NonNull<Header>) {
        // SAFETY: as the caller promises.
        let header = unsafe { this.as_ref() };
        let vtable = header.vtable;
        // SAFETY: cc.Z1.
        let end = AssertUnwindSafe(|| unsafe { (vtable.drop)(this) });
        if let Err(payload) = catch_unwind(end) {
            let mut counts = self.counts.borrow_mut();
            counts.panics += 1;
            if counts.faults.len() < FAULTS {
                counts.faults.push(Fault {
                    kind: (vtable.name)(),
                    message: text_of(payload.as_ref()),
                });
            }
            drop(counts);
            // Dropping a payload of the program's own type may panic again; it is forgotten instead.
            if !payload.is::<String>() && !payload.is::<&str>() {
                std::mem::forget(payload);
            }
        }
        header.set(DEAD);
        self.counts.borrow_mut().values -= 1;
        // SAFETY: its value was dropped.
        unsafe { Header::free_unused(this) };
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some((_, number)) = &self.world {
            give_number(*number);
        }
    }
}

impl Header {
    pub(super) fn strong(&self) -> u32 {
        self.strong.get()
    }

    pub(super) fn has(&self, flag: u32) -> bool {
        self.flags.get() & flag != 0
    }

    pub(super) fn set(&self, flags: u32) {
        self.flags.set(self.flags.get() | flags);
    }

    pub(super) fn clear(&self, flags: u32) {
        self.flags.set(self.flags.get() & !flags);
    }

    pub(super) fn index(&self) -> usize {
        self.index.get() as usize
    }

    pub(super) fn set_index(&self, index: usize) {
        self.index.set(index as u32);
    }

    /// Reports whether the box is of this collector.
    pub(super) fn is_of(&self, inner: &Inner) -> bool {
        core::ptr::eq(self.inner.as_ptr(), inner)
    }

    pub(super) fn inner(&self) -> Rc<Inner> {
        // SAFETY: Y3.
        unsafe {
            Rc::increment_strong_count(self.inner.as_ptr());
            Rc::from_raw(self.inner.as_ptr())
        }
    }

    /// Counts one more pointer. Cost: a load, an addition, a store, a load and a branch.
    #[inline]
    pub(super) fn add_strong(&self) {
        let Some(strong) = self.strong.get().checked_add(1) else {
            too_many();
        };
        self.strong.set(strong);
        if self.has(NODE) {
            self.touch();
        }
    }

    pub(super) fn add_weak(&self) {
        let Some(weak) = self.weak.get().checked_add(1) else {
            too_many();
        };
        self.weak.set(weak);
    }

    /// Counts a pointer made from a weak one; reports whether there is a value.
    pub(super) fn upgrade(&self) -> bool {
        if self.strong.get() == 0 || self.has(DEAD) || self.is_condemned() {
            return false;
        }
        self.add_strong();
        true
    }

    /// Reports whether the collection in progress is going to destroy the value.
    pub(super) fn is_condemned(&self) -> bool {
        self.has(NODE) && self.inner().is_condemned(self.index())
    }

    /// Notes that a node's holders or count changed: it lives on in the collection in progress.
    #[cold]
    #[inline(never)]
    pub(super) fn touch(&self) {
        if self.has(NODE) && !self.has(TOUCHED) {
            self.set(TOUCHED);
            self.inner().touched(self.index());
        }
    }

    /// Counts one pointer less. Cost where others are left and it is a candidate already: two loads, a store, two
    /// branches.
    ///
    /// # Safety
    /// It was counted, and is not used any more.
    #[inline]
    pub(super) unsafe fn remove_strong(this: NonNull<Header>) {
        // SAFETY: it was counted.
        let header = unsafe { this.as_ref() };
        let strong = header.strong.get() - 1;
        header.strong.set(strong);
        if strong == 0 || (header.flags.get() & BUFFERED == 0 && header.vtable.trace.is_some()) {
            // SAFETY: as the caller promises.
            unsafe { Header::fell(this) };
        }
    }

    #[inline(never)]
    unsafe fn fell(this: NonNull<Header>) {
        // SAFETY: the box is there: it was counted until now.
        let header = unsafe { this.as_ref() };
        let inner = header.inner();
        if header.has(DEAD) {
            if header.strong.get() == 0 {
                // SAFETY: Y2.
                unsafe { Header::free_unused(this) };
            }
        } else if header.strong.get() > 0 {
            inner.suspect(this);
        } else if !header.is_condemned() {
            inner.drop_value_of(this);
        }
    }

    /// Counts one weak pointer less.
    ///
    /// # Safety
    /// It was counted, and is not used any more.
    pub(super) unsafe fn remove_weak(this: NonNull<Header>) {
        // SAFETY: it was counted.
        let header = unsafe { this.as_ref() };
        header.weak.set(header.weak.get() - 1);
        if header.has(DEAD) {
            // SAFETY: Y2.
            unsafe { Header::free_unused(this) };
        }
    }

    /// Frees the box if its counts are 0 (cc.Z1).
    ///
    /// # Safety
    /// The value was dropped.
    pub(super) unsafe fn free_unused(this: NonNull<Header>) {
        // SAFETY: the box is there.
        let header = unsafe { this.as_ref() };
        if header.strong.get() > 0 || header.weak.get() > 0 {
            return;
        }
        debug_assert!(!header.has(BUFFERED | NODE), "Y1");
        let (inner, layout) = (header.inner, header.vtable.layout);
        // SAFETY: no pointer to it is left; Y3.
        unsafe {
            dealloc(this.cast().as_ptr(), layout);
            inner.as_ref().freed();
            Rc::decrement_strong_count(inner.as_ptr());
        }
    }
}

#[cold]
fn too_many() -> ! {
    skinflint_base::sys::stderr(b"skinflint-gc: more than four billion pointers to one value\n");
    std::process::abort()
}

const _: () = assert!(size_of::<Header>() == 32);
