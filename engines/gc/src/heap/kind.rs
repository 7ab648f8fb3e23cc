//! Kinds: the collector's knowledge of a sort of object.
//!
//! ```text
//!   Kind { name, bytes, align, trace, finalize on …, origin }      one constant per sort of object
//!      ▲
//!      └── each arena holds cells of one kind and points at it: an object needs no header
//! ```
//!
//! K1  A kind is a constant: heaps know it by its address. Two equal constants at two addresses are two kinds, which
//!     does no harm.
//! K2  Finalizers run only on the threads that the kind allows, once for each object.
//!
//! Not here: kinds of Rust types (`trace`).

use core::ptr::NonNull;

use crate::heap::tracer::Tracer;

/// The threads on which an object may be finalized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finalize {
    /// Nothing needs to be done.
    Nothing,
    /// Any thread: the finalizer touches only what the object owns.
    Any,
    /// Only the thread that the heap belongs to.
    Mutator,
}

impl Finalize {
    /// Returns the stricter of the two, which holds for a whole made of parts.
    pub const fn and(self, other: Finalize) -> Finalize {
        if self as u8 >= other as u8 {
            self
        } else {
            other
        }
    }
}

/// The owner of an object. Objects of different origin never share a chunk: one long-lived system object would keep a
/// megabyte that held a tab's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The program that runs in the runtime.
    User,
    /// The runtime itself.
    System,
}

impl Origin {
    /// Both origins.
    pub const ALL: [Origin; 2] = [Origin::User, Origin::System];

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// Tells the edges of an object to the tracer.
pub type TraceFn = unsafe fn(NonNull<u8>, &mut Tracer);
/// Tells some edges of an object, from the place that the last call returned (at first 0), and returns where to go on;
/// `None`: all were told. The kind defines what a place means.
pub type TracePartFn = unsafe fn(NonNull<u8>, usize, &mut Tracer) -> Option<usize>;
/// Ends an object. Its cell is reused afterwards.
pub type FinalizeFn = unsafe fn(NonNull<u8>);

/// A sort of object.
///
/// The functions are called only with the address of an object of this kind. `trace` must tell every edge, and
/// `trace_part` over all its parts the same edges; they must neither allocate in a heap nor unwind, and may be called
/// any number of times. `finalize` must not follow edges to other objects of a heap: they may be gone. It may allocate
/// if it runs on the mutator, and it may panic, which is contained and reported if the program unwinds.
#[derive(Debug)]
pub struct Kind {
    /// Returns the name for reports; a function, since the names of types are not yet constants.
    pub name: fn() -> &'static str,
    /// Bytes of an object; 0: each allocation gives them ([`Heap::alloc_bytes`](crate::Heap::alloc_bytes)).
    pub bytes: usize,
    /// Alignment, a power of two up to 4096.
    pub align: usize,
    /// Tells the edges; `None`: there are none.
    pub trace: Option<TraceFn>,
    /// Tells the edges in parts of some hundred ([`PART_EDGES`](crate::PART_EDGES)), where marking is incremental: for
    /// objects with so many edges that telling all of them is a pause of its own. Elsewhere, and with names, `trace` is
    /// called.
    ///
    /// The program runs between two parts. An edge that is written meanwhile needs its barrier like any other, and so
    /// does one that only moves within the object: it may move to where the telling has been. A place beyond the
    /// object's present end is no error, but the end. Weak cells and pairs are told like edges; an object that has some
    /// is traced whole when marking ends.
    pub trace_part: Option<TracePartFn>,
    /// Runs at the object's end; `None`: nothing needs to be done.
    pub finalize: Option<FinalizeFn>,
    /// The threads on which `finalize` may run. Without `finalize` this counts as [`Finalize::Nothing`], whatever its
    /// value.
    pub finalize_on: Finalize,
    /// The owner of the objects.
    pub origin: Origin,
}

impl Kind {
    /// Returns the threads on which its objects may be swept.
    pub fn swept_on(&self) -> Finalize {
        if self.finalize.is_none() {
            Finalize::Nothing
        } else {
            self.finalize_on
        }
    }
}
