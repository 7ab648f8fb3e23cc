//! A counted value in memory, and the effects of its counts.
//!
//! ```text
//!   │ strong │ weak │ flags │ index │ ways │ collector │ value … │     32 bytes before the value
//!                      │       └─ BUFFERED: place among the candidates; NODE: number in the graph; else nothing
//!                      └─ BUFFERED, NODE, TOUCHED, SUSPECT, DEAD
//! ```
//!
//! Y1  BUFFERED and NODE exclude each other, and tell the meaning of `index`.
//! Y2  DEAD: the value was dropped. Only pointers within values that are destroyed with it still lead to it.
//! Y3  A box holds a count of its collector, which lives as long as any box.
//!
//! Not here: which boxes are collected (`cycles`).

use core::cell::Cell;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::rc::Rc;

use super::cycles::Inner;
use crate::mark::Tracer;
use crate::typed::Trace;

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
pub(super) struct Ways {
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
    pub(super) ways: &'static Ways,
    inner: NonNull<Inner>,
}

#[repr(C)]
pub(super) struct CcBox<T> {
    header: Header,
    pub(super) value: ManuallyDrop<T>,
}

struct WaysOf<T>(T);

impl<T: Trace> WaysOf<T> {
    const WAYS: &'static Ways = &Ways {
        name: core::any::type_name::<T>,
        layout: Layout::new::<CcBox<T>>(),
        drop: end::<T>,
        trace: if T::EDGES { Some(trace::<T>) } else { None },
    };
}

unsafe fn end<T>(header: NonNull<Header>) {
    let this = header.cast::<CcBox<T>>().as_ptr();
    // SAFETY: the box is of this type, and its value is dropped once (Z1). The header is used meanwhile: only the value
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
        ways: WaysOf::<T>::WAYS,
        // SAFETY: Y3: what `into_raw` gives is not null; given back in `free`.
        inner: unsafe { NonNull::new_unchecked(Rc::into_raw(inner.clone()).cast_mut()) },
    };
    let value = ManuallyDrop::new(value);
    // SAFETY: it is ours, aligned and large enough.
    unsafe { at.write(CcBox { header, value }) };
    at
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
        if strong == 0 || (header.flags.get() & BUFFERED == 0 && header.ways.trace.is_some()) {
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

    /// Frees the box if its counts are 0 (Z1).
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
        let (inner, layout) = (header.inner, header.ways.layout);
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
