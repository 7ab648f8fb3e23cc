//! A client's description of its objects, beyond their kinds.
//!
//! Not here: how nodes are written (`write`).

use core::ptr::NonNull;

use crate::heap::kind::{Kind, Origin};
use crate::heap::tracer::Tracer;

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
    pub(super) name: &'a mut String,
    pub(super) named: bool,
}

impl Node<'_> {
    /// Sets another name than the kind's. Names that many objects share cost least.
    pub fn name(&mut self, name: &str) {
        self.name.clear();
        self.name.push_str(name);
        self.named = true;
    }
}

/// A client's knowledge of its objects beyond their kinds: for runtimes whose objects carry their own type.
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

/// Returns the type of a kind's nodes, unless the client sets another.
pub(super) fn class_of(kind: &Kind) -> NodeType {
    match kind.origin {
        Origin::User => NodeType::Object,
        Origin::System => NodeType::Hidden,
    }
}
