//! Heap snapshots in Chrome's format, streamed; and the paths that keep an object alive.
//!
//! ```text
//!   heaps ─► Still: swept, nothing moves ─► Numbering: a number for each object, from bits
//!                                              │
//!      pass 1 count edges ── pass 2 a line for each node ── pass 3 a line for each edge ── strings
//!                                              └──────────► the client's stream
//!   root ""  ─┬─► "(GC roots)" ─┬─► "(client roots)" ─► objects
//!             │                 └─► "(edges from tab 7)", a heap that is not in the snapshot ─► objects
//!             ├─► tenant "tab 1" ── its handles, by name ─► objects ─► objects …
//!             └─► tenant "tab 2"                                 └─► "(outside: shared)"
//! ```
//!
//! H1  The graph is never in memory: a number follows from an object's address ([`number`]), and the objects tell their
//!     edges anew in each pass. Only four bytes for each arena, names within a budget ([`names`]), and a buffer are
//!     kept.
//! H2  Every allocated object is a node, whether a root leads to it or not; the sizes of nodes sum to the bytes of
//!     cells that the heaps hold ([`Holds::cell_bytes`](crate::Holds)) and the bytes outside that the client told.
//! H3  Objects tell the same edges in each pass; a client that does not is noticed ([`SnapshotError::Changed`]).
//! H4  A number (`id`) is an object's place: it stays the same from snapshot to snapshot for as long as the object
//!     lives, and another object may have it afterwards. Two objects have two numbers, in heaps within 32 GiB of
//!     addresses.
//! H5  While a snapshot is written no collection is done: it is refused ([`Busy::Collecting`]).
//!
//! The format is that of V8's heap profiler (node 20, Chromium): DevTools, Memory, Load.
//!
//! Not here: reading such files (`skinflint heap`), sums by kind ([`census`](crate::census)).

pub(crate) mod names;
pub(crate) mod number;
pub(crate) mod out;
pub(crate) mod retain;
pub(crate) mod tell;
mod write;

use core::ptr::NonNull;
use std::io::{self, Write};

use crate::collect::{Busy, Roots};
use crate::heap::Heap;
use crate::kind::{Kind, Origin};
use crate::mark::Tracer;

/// The type of a node in DevTools, with V8's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NodeType {
    /// An object of the runtime's own; DevTools sums these up as "(system)".
    Hidden = 0,
    /// The elements of a list.
    Array = 1,
    /// A string; its name is its text.
    String = 2,
    /// An object of the program; its name is its class.
    Object = 3,
    /// Compiled code.
    Code = 4,
    /// A function.
    Closure = 5,
    /// A regular expression.
    RegExp = 6,
    /// A number in a box.
    Number = 7,
    /// An object of the host.
    Native = 8,
    /// A node that is no object, but made up for the graph.
    Synthetic = 9,
    /// A string of two others.
    ConcatenatedString = 10,
    /// A part of another string.
    SlicedString = 11,
    /// A symbol.
    Symbol = 12,
    /// An integer of any size.
    BigInt = 13,
    /// The layout of objects: maps, hidden classes.
    ObjectShape = 14,
}

/// The description of an object; its kind fills it in before [`Describe::node`] sees it.
#[derive(Debug)]
pub struct Node<'a> {
    /// Its type: [`NodeType::Object`] for the user's kinds, [`NodeType::Hidden`] for the system's.
    pub class: NodeType,
    /// Bytes that it holds outside of the heap (buffers of malloc), added to its size. The default is 0.
    pub outside_bytes: u64,
    name: &'a mut String,
    named: bool,
}

impl Node<'_> {
    /// Sets another name than the kind's. Names that many objects share cost least.
    pub fn name(&mut self, name: &str) {
        self.name.clear();
        self.name.push_str(name);
        self.named = true;
    }
}

/// What a client knows of its objects beyond their kinds: for runtimes whose objects carry their own type.
///
/// ```
/// use core::ptr::NonNull;
/// use skinflint_gc::{Kind, Tracer, World, Config};
/// use skinflint_gc::snapshot::{Describe, Node, NodeType, Snapshot};
///
/// struct ByTag;
/// // SAFETY: no edges are told here.
/// unsafe impl Describe for ByTag {
///     fn node(&mut self, object: NonNull<u8>, _kind: &'static Kind, node: &mut Node<'_>) {
///         // SAFETY: every kind of this runtime begins with a tag.
///         match unsafe { object.cast::<u32>().read() } {
///             1 => { node.class = NodeType::String; node.name("a string") }
///             _ => node.name("Record"),
///         }
///     }
/// }
///
/// let world = World::new(Config::default());
/// let heap = world.heap("tab 1", usize::MAX);
/// let mut file = Vec::new();
/// let written = Snapshot::of(&[&heap]).describe(&mut ByTag).write(&mut file).unwrap();
/// assert_eq!((written.objects, written.bytes), (0, file.len() as u64));
/// ```
///
/// # Safety
/// The edges that [`Describe::edges`] tells are first bytes of objects of the same world, and it keeps the tracer where
/// it is.
pub unsafe trait Describe {
    /// Describes an object. Called twice for some objects; it gives the same each time.
    fn node(&mut self, _object: NonNull<u8>, _kind: &'static Kind, _node: &mut Node<'_>) {}

    /// Tells the object's edges, preferably with their names ([`Tracer::named`]), and returns `true`; `false`: the
    /// kind's own function tells them. Called three times; it tells the same each time.
    fn edges(&mut self, _object: NonNull<u8>, _kind: &'static Kind, _tracer: &mut Tracer) -> bool {
        false
    }
}

/// Why there is no snapshot, or only a part of one.
#[derive(Debug)]
pub enum SnapshotError {
    /// A snapshot cannot be made now. Nothing was written.
    Busy(Busy),
    /// The stream failed; what was written is cut off.
    Out(io::Error),
    /// There are more than 2^32 objects. Nothing was written.
    TooMany,
    /// Objects told other edges than a moment before (H3); the written text is not a snapshot.
    Changed,
}

impl std::fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SnapshotError::Busy(busy) => write!(f, "no snapshot can be made now: {busy}"),
            SnapshotError::Out(error) => write!(f, "the snapshot is cut off: {error}"),
            SnapshotError::TooMany => f.write_str(
                "the heaps hold more than 4,294,967,295 objects; make a snapshot of each tenant",
            ),
            SnapshotError::Changed => f.write_str(
                "the snapshot is not to be used: an object told other edges than a moment before; \
                 trace functions may not depend on anything but their object",
            ),
        }
    }
}

impl std::error::Error for SnapshotError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SnapshotError::Busy(busy) => Some(busy),
            SnapshotError::Out(error) => Some(error),
            SnapshotError::TooMany | SnapshotError::Changed => None,
        }
    }
}

/// The figures of a snapshot that was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Number of nodes that are objects.
    pub objects: u64,
    /// Number of all nodes.
    pub nodes: u64,
    /// Number of all edges.
    pub edges: u64,
    /// Bytes of the objects' cells, which is what the heaps hold in objects (H2).
    pub cell_bytes: u64,
    /// Bytes outside that the client told. The sizes of all nodes sum to both together.
    pub outside_bytes: u64,
    /// Number of strings, including those that are there twice because there was no room to remember them.
    pub strings: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// A snapshot about to be written.
///
/// Cost: three walks over the objects and their edges; about a second for a million objects with three edges each.
/// Memory: a thousandth of the heaps, and at most `max(256 KiB, heap / 32)` for names (H1). Threads: the heaps' own.
///
/// It shows everything that is allocated: collect before, if garbage is not wanted
/// ([`Tenant::snapshot`](crate::typed::Tenant) does).
pub struct Snapshot<'a> {
    heaps: &'a [&'a Heap],
    roots: Option<&'a mut dyn Roots>,
    describe: Option<&'a mut dyn Describe>,
}

impl<'a> Snapshot<'a> {
    /// Prepares a snapshot of one heap, or of several of one world.
    pub fn of(heaps: &'a [&'a Heap]) -> Snapshot<'a> {
        Snapshot {
            heaps,
            roots: None,
            describe: None,
        }
    }

    /// Adds roots of the client's own, under "(client roots)".
    ///
    /// # Safety
    /// They are first bytes of live objects of the same world, the same each time, and `roots` keeps the tracer where
    /// it is.
    pub unsafe fn roots(self, roots: &'a mut dyn Roots) -> Snapshot<'a> {
        Snapshot {
            roots: Some(roots),
            ..self
        }
    }

    /// Adds what the client knows of its objects.
    pub fn describe(self, describe: &'a mut dyn Describe) -> Snapshot<'a> {
        Snapshot {
            describe: Some(describe),
            ..self
        }
    }

    /// Writes the snapshot, buffered.
    ///
    /// # Errors
    /// A closure or finalizer of these heaps is running, they are of different worlds, or the stream fails.
    pub fn write(self, out: &mut dyn Write) -> Result<Written, SnapshotError> {
        write::write(self.heaps, self.roots, self.describe, out)
    }
}

/// Returns the type of a kind's nodes, unless the client sets another.
fn class_of(kind: &Kind) -> NodeType {
    match kind.origin {
        Origin::User => NodeType::Object,
        Origin::System => NodeType::Hidden,
    }
}
