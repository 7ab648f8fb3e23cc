//! What the collector knows of a sort of object.
//!
//! ```text
//!   Kind { name, bytes, align, trace, finalize on …, origin }      one constant per sort of object
//!      ▲
//!      └── each arena holds cells of one kind and points at it: an object needs no header
//! ```
//!
//! K1  A kind is a constant: heaps know it by its address. Two equal ones at two addresses are two kinds, and
//!     do no harm.
//! K2  Finalizers run on the threads that the kind allows and on no other, once for each object.
//!
//! Not here: kinds of Rust types (`typed::trace`).

use core::ptr::NonNull;

use crate::mark::Tracer;

/// Where an object's end may be dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finalize {
    /// Nothing needs to be done.
    Nothing,
    /// On any thread: it touches nothing but what the object owns.
    Any,
    /// Only on the thread that the heap belongs to.
    Mutator,
}

impl Finalize {
    /// The stricter of the two: what holds for a whole made of parts.
    pub const fn and(self, other: Finalize) -> Finalize {
        if self as u8 >= other as u8 {
            self
        } else {
            other
        }
    }
}

/// Whom an object belongs to. The two never share a chunk: one long-lived system object would keep a
/// megabyte that held a tab's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The program that runs in the runtime.
    User,
    /// The runtime itself.
    System,
}

impl Origin {
    /// Both.
    pub const ALL: [Origin; 2] = [Origin::User, Origin::System];

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// Tells the edges of an object to the tracer.
pub type TraceFn = unsafe fn(NonNull<u8>, &mut Tracer);
/// Tells some edges of an object, from the place that the last call returned on (at first 0), and returns where to go on;
/// `None`: all were told. What a place means is the kind's.
pub type TracePartFn = unsafe fn(NonNull<u8>, usize, &mut Tracer) -> Option<usize>;
/// Ends an object. Its cell is used again afterwards.
pub type FinalizeFn = unsafe fn(NonNull<u8>);

/// A sort of object.
///
/// The functions are called with the address of an object of this kind, and with nothing else. `trace` must tell
/// every edge, `trace_part` over all its parts the same; they must neither allocate in a heap nor unwind, and may be called any number of times. `finalize`
/// must not follow edges to other objects of a heap: they may be gone. It may allocate if it runs on the
/// mutator, and it may panic, which is contained and reported if the program unwinds.
#[derive(Debug)]
pub struct Kind {
    /// For reports; a function, since the names of types are not yet constants.
    pub name: fn() -> &'static str,
    /// Bytes of an object; 0: each allocation says ([`Heap::alloc_bytes`](crate::Heap::alloc_bytes)).
    pub bytes: usize,
    /// Alignment, a power of two up to 4096.
    pub align: usize,
    /// `None`: it has no edges.
    pub trace: Option<TraceFn>,
    /// For objects of so many edges that telling them all is a pause of its own: the same in parts of some hundred
    /// ([`PART_EDGES`](crate::PART_EDGES)), where marking is incremental. Elsewhere, and with names, `trace` is asked.
    ///
    /// The program runs on between two parts. An edge that is written meanwhile has its barrier like any other, and
    /// so has one that only moves within the object: it may move to where the telling has been. A place beyond the
    /// object's present end is no error, but the end. Weak cells and pairs are told like edges; an object that has
    /// some is traced whole when marking ends.
    pub trace_part: Option<TracePartFn>,
    /// `None`: nothing is to be done at its end.
    pub finalize: Option<FinalizeFn>,
    /// Where `finalize` may run. Without one it is [`Finalize::Nothing`], whatever stands here.
    pub finalize_on: Finalize,
    /// Whose it is.
    pub origin: Origin,
}

impl Kind {
    /// Where its objects may be swept.
    pub fn swept_on(&self) -> Finalize {
        if self.finalize.is_none() {
            Finalize::Nothing
        } else {
            self.finalize_on
        }
    }
}
