//! `Cc<T>`: counted natives whose cycles are found, alone and together with garbage-collected heaps.
//!
//! ```text
//!   Cycles ──cc(value)──► Cc<T> ──► box │ strong, weak, flags, index │ value │
//!     │                                   │ the count falls, and not to 0
//!     │ candidates ◄──────────────────────┘
//!     ▼ in slices (`cycles`)
//!   build: what candidates lead to, a node for each ─► scan: whose count is more than nodes hold is alive, and what
//!     it leads to ─► destroy: drop the values of the rest
//!
//!   GC object ── Counted<'gc, T> ──► box ── Anchor<F> ──► GC object      cycles through both: `together`
//! ```
//!
//! Z1  A box is freed when its value was dropped, and `strong` and `weak` are 0. Its value is dropped once: when
//!     `strong` falls to 0, or when it is destroyed with a cycle. A [`Weak`] gives no pointer from then on.
//! Z2  Drops do not recurse: values whose counts fall to 0 while a value is dropped wait in a list. A list of ten
//!     million boxes is dropped one by one.
//! Z3  A value is [`Trace`], so it tells each counted pointer that it holds, once; pointers change only in [`Field`]s
//!     and [`Locked`](crate::typed::Locked)s, which report it while a collection is in progress ([`moved`]). A pointer
//!     that is hidden from the trace (in a [`Static`](crate::typed::Static), a `RefCell`) counts as held from outside:
//!     its value may leak, and nothing worse.
//! Z4  A destructor that panics is contained and reported ([`CycleCounts::faults`]); its box is freed.
//!
//! Source of the idea: Bacon and Rajan, "Concurrent cycle collection in reference counted systems" (2001); the separate
//! graph, which makes slices possible, is Firefox's. Rejected: counts and colours in the boxes themselves, which have
//! to be restored before the program may run on.
//!
//! ```
//! use skinflint_gc::{cc::{Cc, Cycles, Field}, counted};
//!
//! counted! { struct Node { next: Field<Option<Cc<Node>>>, name: String } }
//!
//! let cycles = Cycles::new();
//! let a = cycles.cc(Node { next: Field::new(None), name: "a".into() });
//! let b = cycles.cc(Node { next: Field::new(Some(a.clone())), name: "b".into() });
//! *a.next.borrow_mut() = Some(b.clone());
//! drop((a, b));
//! assert_eq!(cycles.counts().boxes, 2);
//! cycles.collect();
//! assert_eq!(cycles.counts().boxes, 0);
//! ```
//!
//! A pointer on another thread does not compile, nor does a destructor that could look at what has ended:
//!
//! ```compile_fail,E0277
//! let cycles = skinflint_gc::cc::Cycles::new();
//! let one = cycles.cc(1u64);
//! std::thread::scope(|scope| { scope.spawn(move || *one); });
//! ```
//!
//! ```compile_fail,E0119
//! # use skinflint_gc::{cc::{Cc, Field}, counted};
//! counted! { struct Node { next: Field<Option<Cc<Node>>> } }
//! impl Drop for Node { fn drop(&mut self) { self.next.borrow(); } }
//! ```
//!
//! Nor does a value that hides its pointers in a cell without a barrier, or one with a pointer into a tenant's heap:
//!
//! ```compile_fail,E0277
//! # use skinflint_gc::cc::{Cc, Cycles};
//! let cycles = Cycles::new();
//! let one = cycles.cc(1u64);
//! cycles.cc(std::cell::Cell::new(Some(one)));
//! ```
//!
//! ```compile_fail,E0521
//! # use skinflint_gc::{cc::Cycles, typed::Runtime};
//! let runtime = Runtime::default();
//! let cycles = runtime.cycles();
//! runtime.tenant("a", usize::MAX).enter(|cx| { cycles.cc(cx.alloc(1u64).unwrap()); });
//! ```
//!
//! Not here: counts that several threads share.

mod boxes;
mod cycles;
mod macros;
mod together;

use core::cell::{Cell, Ref, RefCell, RefMut};
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

pub use cycles::{CycleCounts, Cycles};
pub use together::{Anchor, Counted};

pub(crate) use boxes::Header;

use crate::kind::Finalize;
use crate::mark::Tracer;
use crate::roots::RootId;
use crate::typed::Trace;
use boxes::CcBox;

thread_local! {
    /// Number of this thread's collections between their beginning and their verdict.
    static IN_PROGRESS: Cell<u32> = const { Cell::new(0) };
}

/// Counted pointers and anchors that were told.
#[derive(Default)]
pub(crate) struct Natives {
    pub(crate) counted: Vec<NonNull<Header>>,
    /// The heap, the entry of its root table, and the object of each anchor.
    pub(crate) anchors: Vec<(u32, RootId, NonNull<u8>)>,
}

impl Tracer {
    /// Creates a tracer that lists counted pointers and anchors.
    pub(crate) fn listing_natives() -> Tracer {
        let mut tracer = Tracer::listing();
        tracer.natives = Some(Box::default());
        tracer
    }

    fn counted(&mut self, header: NonNull<Header>) {
        if let Some(natives) = &mut self.natives {
            natives.counted.push(header);
        }
    }

    /// Forgets other edges, which do not matter here.
    fn forget_told(&mut self) {
        drop(self.take_told());
    }

    /// Takes what was told since the last time.
    pub(crate) fn take_natives(&mut self) -> Box<Natives> {
        self.natives.take().unwrap_or_default()
    }
}

/// Notes that the value of a cell was or is going to be moved: what it leads to may get other holders than a collection
/// in progress has seen, and stays alive in it. Cost while there is none: a load and a branch.
#[inline]
pub(crate) fn moved<T: Trace>(value: &T) {
    if T::EDGES && IN_PROGRESS.get() > 0 {
        moved_slow(value);
    }
}

#[cold]
fn moved_slow<T: Trace>(value: &T) {
    let mut tracer = Tracer::listing_natives();
    value.trace(&mut tracer);
    for header in tracer.take_natives().counted {
        // SAFETY: Z3: told pointers are counted, so their boxes are there.
        unsafe { header.as_ref() }.touch();
    }
}

/// A counted pointer. It belongs to one thread.
pub struct Cc<T: Trace + 'static> {
    to: NonNull<CcBox<T>>,
    owns: PhantomData<CcBox<T>>,
}

impl<T: Trace> Cc<T> {
    pub(crate) fn header(&self) -> NonNull<Header> {
        self.to.cast()
    }

    fn head(&self) -> &Header {
        // SAFETY: Z1: this pointer is counted.
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
        // SAFETY: Z1: the value is dropped when no pointer is left, or only those within destroyed values, which no
        // code can use (Z3).
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
        // SAFETY: Z1: this pointer was counted, and is no more.
        unsafe { Header::remove_strong(self.header()) };
    }
}

impl<T: Trace + core::fmt::Debug> core::fmt::Debug for Cc<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        (**self).fmt(f)
    }
}

// SAFETY: J1: it is one counted pointer, told once; counts are its thread's.
unsafe impl<T: Trace> Trace for Cc<T> {
    const EDGES: bool = true;
    const FINALIZE: Finalize = Finalize::Mutator;
    fn trace(&self, tracer: &mut Tracer) {
        tracer.counted(self.header());
    }
}

/// A pointer that keeps nothing alive.
pub struct Weak<T: Trace + 'static> {
    to: NonNull<CcBox<T>>,
}

impl<T: Trace> Weak<T> {
    fn head(&self) -> &Header {
        // SAFETY: Z1: boxes stay as long as weak pointers to them.
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
        // SAFETY: Z1: this pointer was counted, and is no more.
        unsafe { Header::remove_weak(self.to.cast()) };
    }
}

// SAFETY: J1: it keeps nothing alive; counts are its thread's.
unsafe impl<T: Trace> Trace for Weak<T> {
    const EDGES: bool = false;
    const FINALIZE: Finalize = Finalize::Mutator;
    fn trace(&self, _: &mut Tracer) {}
}

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

// SAFETY: J1: what it holds is told. While the field is being written it tells nothing: then what it holds counts as
// held from outside, which it is. Finalizers run on its parts' threads.
unsafe impl<T: Trace + 'static> Trace for Field<T> {
    const EDGES: bool = T::EDGES;
    const FINALIZE: Finalize = T::FINALIZE;
    fn trace(&self, tracer: &mut Tracer) {
        if let Ok(value) = self.0.try_borrow() {
            value.trace(tracer);
        }
    }
}
