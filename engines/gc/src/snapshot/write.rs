//! The passes that write a snapshot.
//!
//! ```text
//!   survey: edges, which heaps are outside ─► nodes ─► edges ─► strings ─► (loose names: nodes and edges again, muted)
//! ```
//!
//! W1  Nodes are written in the order of their numbers: made-up ones first, then objects (number.U2); the edges of a
//!     node in the order of the nodes.
//! W2  A made-up node's edges come from tables, an object's from its kind or the client; both go through the same
//!     counting and the same writing, so that the counts are those of what is written.
//!
//! Not here: numbers, names, the stream.

use core::ptr::NonNull;
use std::collections::BTreeSet;
use std::io::Write;

use super::describe::{Describe, Node, NodeType, class_of};
use super::names::Names;
use super::number::{Numbering, Still, each_arena};
use super::out::Out;
use super::outcome::{SnapshotError, Written};
use super::trail::{Name, Trail};
use crate::heap::address::Arena;
use crate::heap::bits::each;
use crate::heap::kind::Kind;
use crate::heap::listen::listen;
use crate::heap::listener::{Listener, Segment, Strength};
use crate::heap::roots::From;
use crate::heap::set::{Busy, Roots};
use crate::heap::state::Heap;

/// Number of fields of a node's line.
const NODE_FIELDS: u64 = 7;
/// Bytes of names that are kept for any heap; for larger heaps, a part of the heap.
const NAME_BYTES: usize = 256 << 10;
const NAME_SHARE: usize = 32;

const META: &str = concat!(
    r#"{"snapshot":{"meta":{"node_fields":["type","name","id","self_size","edge_count","trace_node_id","#,
    r#""detachedness"],"node_types":[["hidden","array","string","object","code","closure","regexp","number","#,
    r#""native","synthetic","concatenated string","sliced string","symbol","bigint","object shape"],"string","#,
    r#""number","number","number","number","number"],"edge_fields":["type","name_or_index","to_node"],"#,
    r#""edge_types":[["context","element","property","internal","hidden","shortcut","weak"],"#,
    r#""string_or_number","node"],"trace_function_info_fields":["function_id","name","script_name","#,
    r#""script_id","line","column"],"trace_node_fields":["id","function_info_index","count","size","#,
    r#""children"],"sample_fields":["timestamp_us","last_assigned_id"],"location_fields":["object_index","#,
    r#""script_id","line","column"]},"node_count":"#
);

/// The types of edges, with V8's numbers.
#[derive(Clone, Copy)]
enum EdgeType {
    Element = 1,
    Property = 2,
    Internal = 3,
    Shortcut = 5,
    Weak = 6,
}

#[derive(Clone, Copy)]
enum Label<'a> {
    Text(&'a str),
    Index(usize),
}

/// Nodes that are no objects, in this order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Made {
    Root,
    GcRoots,
    /// A heap of the set, by its place in it.
    Tenant(usize),
    /// Edges from a heap that is not in the set, by the heap's number.
    From(u32),
    Client,
    /// The objects of a heap that is not in the set.
    Outside(u32),
}

/// Hears a made-up node's edges.
trait Draw {
    fn draw(&mut self, edge: EdgeType, label: Label<'_>, to: u64);
    fn listener(&mut self) -> &mut dyn Listener;
}

/// The part that does not change while a snapshot is written.
struct Graph<'a> {
    heaps: &'a [&'a Heap],
    numbering: Numbering,
    made: Vec<Made>,
}

struct Client<'a> {
    roots: Option<&'a mut dyn Roots>,
    describe: Option<&'a mut dyn Describe>,
}

impl Client<'_> {
    fn tell_edges(
        &mut self,
        object: NonNull<u8>,
        kind: &'static Kind,
        listener: &mut dyn Listener,
    ) {
        if kind.trace.is_none() && self.describe.is_none() {
            return;
        }
        listen(listener, |tracer| {
            let described = self.describe.as_mut();
            if !described.is_some_and(|client| client.edges(object, kind, tracer)) {
                tracer.trace(object);
            }
        });
    }

    fn tell_roots(&mut self, listener: &mut dyn Listener) {
        if let Some(roots) = &mut self.roots {
            listen(listener, |tracer| roots.trace(tracer));
        }
    }
}

/// Counts edges, and notes which heaps are outside.
struct Count<'a> {
    numbering: &'a Numbering,
    edges: u64,
    outside: BTreeSet<u32>,
}

impl Listener for Count<'_> {
    fn edge(&mut self, _strength: Strength, object: NonNull<u8>) {
        self.edges += 1;
        if let Err(heap) = self.numbering.heap_of(object) {
            self.outside.insert(heap);
        }
    }
}

impl Draw for Count<'_> {
    fn draw(&mut self, _edge: EdgeType, _label: Label<'_>, _to: u64) {
        self.edges += 1;
    }

    fn listener(&mut self) -> &mut dyn Listener {
        self
    }
}

impl Graph<'_> {
    fn count(&self) -> Count<'_> {
        Count {
            numbering: &self.numbering,
            edges: 0,
            outside: BTreeSet::new(),
        }
    }

    /// Finds the nodes beside objects; returns the number of all edges of objects.
    fn survey(&mut self, client: &mut Client<'_>) -> u64 {
        let mut count = self.count();
        client.tell_roots(&mut count);
        let mut from = BTreeSet::new();
        for heap in self.heaps {
            for (_, root) in heap.roots.borrow().all() {
                if let From::Heap(id) = root
                    && !self.numbering.has(id)
                {
                    from.insert(id);
                }
            }
        }
        count.edges = 0;
        for heap in self.heaps {
            each_object(heap, |object, kind| {
                client.tell_edges(object, kind, &mut count);
                Ok(())
            })
            .unwrap_or_else(|never: core::convert::Infallible| match never {});
        }
        let Count { edges, outside, .. } = count;
        self.made = vec![Made::Root, Made::GcRoots];
        self.made.extend((0..self.heaps.len()).map(Made::Tenant));
        self.made.extend(from.into_iter().map(Made::From));
        if client.roots.is_some() {
            self.made.push(Made::Client);
        }
        self.made.extend(outside.into_iter().map(Made::Outside));
        edges
    }

    fn made_number(&self, made: Made) -> u64 {
        let place = self.made.iter().position(|other| *other == made);
        place.unwrap_or_default() as u64
    }

    /// Returns the number of an object's node, or of the node that stands for its heap.
    fn number(&self, object: NonNull<u8>) -> u64 {
        match self.numbering.number(object) {
            Ok(number) => self.made.len() as u64 + u64::from(number),
            Err(heap) => self.made_number(Made::Outside(heap)),
        }
    }

    fn name_of_heap(&self, id: u32) -> String {
        let first = self.heaps.first();
        first.map_or_else(String::new, |heap| heap.name_of(id))
    }

    /// Returns the type and the name of a made-up node.
    fn describe(&self, made: Made) -> (NodeType, String) {
        match made {
            Made::Root => (NodeType::Synthetic, String::new()),
            Made::GcRoots => (NodeType::Synthetic, "(GC roots)".to_owned()),
            // DevTools measures distances from roots that are not synthetic.
            Made::Tenant(place) => {
                let name = self.heaps.get(place).map_or("", |heap| heap.name());
                (NodeType::Native, format!("tenant \"{name}\""))
            }
            Made::From(id) => {
                let name = format!("(edges from {})", self.name_of_heap(id));
                (NodeType::Synthetic, name)
            }
            Made::Client => (NodeType::Synthetic, "(client roots)".to_owned()),
            Made::Outside(id) => {
                let name = format!("(outside: {})", self.name_of_heap(id));
                (NodeType::Synthetic, name)
            }
        }
    }

    /// Tells the edges of a made-up node.
    fn draw(&self, made: Made, client: &mut Client<'_>, to: &mut dyn Draw) {
        match made {
            Made::Root => {
                to.draw(EdgeType::Element, Label::Index(1), 1);
                for (place, heap) in self.heaps.iter().enumerate() {
                    let number = self.made_number(Made::Tenant(place));
                    to.draw(EdgeType::Shortcut, Label::Text(heap.name()), number);
                }
            }
            Made::GcRoots => {
                let groups = self.made.iter().enumerate();
                let groups = groups.filter(|(_, m)| matches!(m, Made::From(_) | Made::Client));
                for (index, (number, _)) in groups.enumerate() {
                    to.draw(EdgeType::Element, Label::Index(index), number as u64);
                }
            }
            Made::Tenant(place) => {
                let Some(heap) = self.heaps.get(place) else {
                    return;
                };
                for (object, from) in roots_of(heap) {
                    if let From::Host(why) = from {
                        to.draw(EdgeType::Property, Label::Text(why), self.number(object));
                    }
                }
            }
            Made::From(id) => {
                let roots = self.heaps.iter().flat_map(|heap| roots_of(heap));
                let roots = roots.filter(|(_, from)| *from == From::Heap(id));
                for (index, (object, _)) in roots.enumerate() {
                    to.draw(EdgeType::Element, Label::Index(index), self.number(object));
                }
            }
            Made::Client => client.tell_roots(to.listener()),
            Made::Outside(_) => {}
        }
    }
}

/// Returns the roots of a heap. The table is not borrowed while one is written: the stream may drop a handle.
fn roots_of(heap: &Heap) -> impl Iterator<Item = (NonNull<u8>, From)> {
    let end = heap.roots.borrow().end();
    (0..end).filter_map(|number| heap.roots.borrow().nth(number))
}

/// Passes each object of a heap to a function, in the order of numbers, until a call fails.
pub(super) fn each_object<E>(
    heap: &Heap,
    mut visit: impl FnMut(NonNull<u8>, &'static Kind) -> Result<(), E>,
) -> Result<(), E> {
    each_arena(heap, |arena| {
        let kind = arena.head().kind.get();
        each(arena.head().allocated.words()).try_for_each(|cell| visit(arena.cell(cell), kind))
    })
}

/// The snapshot that is being written: the stream and the names.
struct Sheet<'w> {
    out: Out<'w>,
    names: Names,
    /// Whether the names that were loose are being written, and nothing else.
    again: bool,
    /// Whether something was written in the present list.
    begun: bool,
}

impl Sheet<'_> {
    fn name(&mut self, text: &str) -> u64 {
        let number = self.names.number(text);
        if self.again && matches!(number, super::names::Number::Loose(_)) {
            self.string(text);
        }
        number.get()
    }

    /// Writes an element of the list of strings.
    fn string(&mut self, text: &str) {
        self.out.mute(false);
        self.comma();
        self.out.aloud(text);
        self.out.mute(self.again);
    }

    fn comma(&mut self) {
        if self.begun {
            self.out.word(",\n");
        }
        self.begun = true;
    }

    fn list(&mut self, name: &str) {
        self.out.word(name);
        self.begun = false;
    }

    fn line(&mut self, numbers: &[u64]) {
        if !self.again {
            self.comma();
        }
        let Some((last, before)) = numbers.split_last() else {
            return;
        };
        before.iter().for_each(|n| self.out.number(*n, b','));
        self.out.last(*last);
    }
}

/// Writes edges.
struct Edges<'e, 'g, 'w> {
    graph: &'e Graph<'g>,
    sheet: &'e mut Sheet<'w>,
    /// Number of edges of the present node.
    count: u64,
    trail: Trail,
}

impl<'e, 'g, 'w> Edges<'e, 'g, 'w> {
    fn new(graph: &'e Graph<'g>, sheet: &'e mut Sheet<'w>) -> Self {
        Edges {
            graph,
            sheet,
            count: 0,
            trail: Trail::default(),
        }
    }
}

impl Listener for Edges<'_, '_, '_> {
    fn wants_names(&self) -> bool {
        true
    }

    fn enter(&mut self, segment: Segment<'_>) {
        self.trail.enter(segment);
    }

    fn leave(&mut self) {
        self.trail.leave();
    }

    fn edge(&mut self, strength: Strength, object: NonNull<u8>) {
        let to = self.graph.number(object);
        let trail = std::mem::take(&mut self.trail);
        match (strength, trail.name()) {
            (Strength::Strong, Name::Text(name)) => {
                self.draw(EdgeType::Property, Label::Text(name), to);
            }
            (Strength::Strong, Name::Index(index)) => {
                self.draw(EdgeType::Element, Label::Index(index), to);
            }
            (Strength::Strong, Name::Nothing) => {
                let index = self.count as usize;
                self.draw(EdgeType::Element, Label::Index(index), to);
            }
            (Strength::Weak, Name::Text(name)) => self.draw(EdgeType::Weak, Label::Text(name), to),
            (Strength::Weak, _) => self.draw(EdgeType::Weak, Label::Text("weak"), to),
            (Strength::Key, _) => self.draw(EdgeType::Weak, Label::Text("key of a pair"), to),
            (Strength::Value, _) => {
                self.draw(EdgeType::Internal, Label::Text("value of a pair"), to);
            }
        }
        self.trail = trail;
    }
}

impl Draw for Edges<'_, '_, '_> {
    fn draw(&mut self, edge: EdgeType, label: Label<'_>, to: u64) {
        self.count += 1;
        let label = match label {
            Label::Text(text) => self.sheet.name(text),
            Label::Index(index) => index as u64,
        };
        self.sheet.line(&[edge as u64, label, to * NODE_FIELDS]);
    }

    fn listener(&mut self) -> &mut dyn Listener {
        self
    }
}

/// Sums of a pass over the nodes, or the edges.
#[derive(Default, PartialEq, Eq)]
struct Shape {
    nodes: u64,
    edges: u64,
    /// Hash of the counts of all nodes, in order (snapshot.H3).
    hash: u64,
}

impl Shape {
    fn add(&mut self, edges: u64) {
        self.nodes += 1;
        self.edges += edges;
        self.hash = (self.hash ^ edges).wrapping_mul(0x0000_0100_0000_01b3);
    }
}

/// Returns the number of an object: an odd number from its place (snapshot.H4).
fn id_of(object: NonNull<u8>) -> u64 {
    ((object.as_ptr().addr() as u64 >> 4) & 0x7fff_ffff) << 1 | 1
}

struct Writer<'g, 'c, 'w> {
    graph: Graph<'g>,
    client: Client<'c>,
    sheet: Sheet<'w>,
    written: Written,
    name: String,
}

impl Writer<'_, '_, '_> {
    fn nodes(&mut self) -> Result<Shape, SnapshotError> {
        let mut shape = Shape::default();
        for (place, &made) in self.graph.made.iter().enumerate() {
            let mut count = self.graph.count();
            self.graph.draw(made, &mut self.client, &mut count);
            let edges = count.edges;
            shape.add(edges);
            let (class, name) = self.graph.describe(made);
            let name = self.sheet.name(&name);
            // Even, and small: no object has such a number.
            let id = place as u64 * 2;
            self.sheet.line(&[class as u64, name, id, 0, edges, 0, 0]);
        }
        let mut last: Option<(*const Kind, u64)> = None;
        for heap in self.graph.heaps {
            each_arena(heap, |arena| {
                self.sheet.out.check().map_err(SnapshotError::Out)?;
                self.nodes_of(arena, &mut last, &mut shape);
                Ok(())
            })?;
        }
        Ok(shape)
    }

    fn nodes_of(&mut self, arena: Arena, last: &mut Option<(*const Kind, u64)>, shape: &mut Shape) {
        let kind = arena.head().kind.get();
        let cell_bytes = arena.object_bytes() as u64;
        let mut count = self.graph.count();
        for cell in each(arena.head().allocated.words()) {
            let object = arena.cell(cell);
            count.edges = 0;
            self.client.tell_edges(object, kind, &mut count);
            shape.add(count.edges);
            let mut node = Node {
                class: class_of(kind),
                outside_bytes: 0,
                name: &mut self.name,
                named: false,
            };
            if let Some(client) = &mut self.client.describe {
                client.node(object, kind, &mut node);
            }
            let (class, outside_bytes) = (node.class, node.outside_bytes);
            let name = match (node.named, *last) {
                (true, _) => self.sheet.name(&self.name),
                // Objects of one kind often come together. A loose name has a number for each use.
                (false, Some((known, name))) if known == core::ptr::from_ref(kind) => name,
                (false, _) => {
                    let number = self.sheet.name((kind.name)());
                    *last = Some((kind, number));
                    number
                }
            };
            if !self.sheet.again {
                self.written.objects += 1;
                self.written.cell_bytes += cell_bytes;
                self.written.outside_bytes += outside_bytes;
            }
            let size = cell_bytes + outside_bytes;
            let id = id_of(object);
            self.sheet
                .line(&[class as u64, name, id, size, count.edges, 0, 0]);
        }
    }

    fn edges(&mut self) -> Result<Shape, SnapshotError> {
        let mut shape = Shape::default();
        let mut edges = Edges::new(&self.graph, &mut self.sheet);
        for &made in &self.graph.made {
            edges.count = 0;
            self.graph.draw(made, &mut self.client, &mut edges);
            shape.add(edges.count);
        }
        for heap in self.graph.heaps {
            each_object(heap, |object, kind| {
                edges.count = 0;
                self.client.tell_edges(object, kind, &mut edges);
                shape.add(edges.count);
                edges.sheet.out.check().map_err(SnapshotError::Out)
            })?;
        }
        Ok(shape)
    }

    /// Writes the list of strings; names that were loose are asked for once more.
    fn strings(&mut self) -> Result<(), SnapshotError> {
        let names = std::mem::replace(&mut self.sheet.names, Names::new(0));
        for name in names.kept() {
            self.sheet.string(name);
        }
        self.written.strings = names.kept().count() as u64 + names.loose();
        let loose = names.loose();
        self.sheet.names = names;
        if loose == 0 {
            return Ok(());
        }
        self.sheet.names.again();
        self.sheet.again = true;
        self.sheet.out.mute(true);
        self.nodes()?;
        self.edges()?;
        self.sheet.again = false;
        self.sheet.out.mute(false);
        if self.sheet.names.loose() != loose {
            return Err(SnapshotError::Changed);
        }
        Ok(())
    }
}

fn prepared<'g>(heaps: &'g [&'g Heap]) -> Result<(Still<'g>, Numbering), SnapshotError> {
    let strangers = heaps.windows(2).any(|two| {
        !std::rc::Rc::ptr_eq(&two[0].world, &two[1].world) || two[0].id() == two[1].id()
    });
    if strangers {
        return Err(SnapshotError::Busy(Busy::Strangers));
    }
    let still = Still::new(heaps).map_err(SnapshotError::Busy)?;
    let numbering = Numbering::of(heaps).map_err(|_| SnapshotError::TooMany)?;
    Ok((still, numbering))
}

pub(super) fn write<'c>(
    heaps: &[&Heap],
    roots: Option<&'c mut dyn Roots>,
    describe: Option<&'c mut dyn Describe>,
    out: &mut dyn Write,
) -> Result<Written, SnapshotError> {
    let (_still, numbering) = prepared(heaps)?;
    let held: usize = heaps.iter().map(|h| h.chunks.borrow().held_bytes()).sum();
    let mut client = Client { roots, describe };
    let mut graph = Graph {
        heaps,
        numbering,
        made: Vec::new(),
    };
    let of_objects = graph.survey(&mut client);
    let mut of_made = graph.count();
    for &made in &graph.made {
        graph.draw(made, &mut client, &mut of_made);
    }
    let edges = of_objects + of_made.edges;
    let nodes = graph.made.len() as u64 + u64::from(graph.numbering.objects());
    let mut writer = Writer {
        client,
        sheet: Sheet {
            out: Out::new(out),
            names: Names::new(NAME_BYTES.max(held / NAME_SHARE)),
            again: false,
            begun: false,
        },
        graph,
        written: Written::default(),
        name: String::new(),
    };
    writer.sheet.name("<dummy>");
    writer.sheet.out.word(META);
    writer.sheet.out.number(nodes, b',');
    writer.sheet.out.word("\"edge_count\":");
    writer.sheet.out.number(edges, b',');
    writer.sheet.out.word("\"trace_function_count\":0},\n");
    writer.sheet.list("\"nodes\":[");
    let first = writer.nodes()?;
    writer.sheet.list("],\n\"edges\":[");
    let second = writer.edges()?;
    if first != second || first.edges != edges || first.nodes != nodes {
        return Err(SnapshotError::Changed);
    }
    writer.sheet.list(
        "],\n\"trace_function_infos\":[],\n\"trace_tree\":[],\n\"samples\":[],\n\"locations\":[],\n\"strings\":[",
    );
    writer.strings()?;
    writer.sheet.out.word("]}\n");
    let bytes = writer.sheet.out.finish().map_err(SnapshotError::Out)?;
    Ok(Written {
        nodes,
        edges,
        bytes,
        ..writer.written
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_within_thirty_two_gibibytes_have_odd_numbers_of_their_own() {
        let id = |addr: usize| {
            let at = core::ptr::without_provenance_mut(addr);
            id_of(NonNull::new(at).expect("an address"))
        };
        assert_eq!([16, 32, 4096].map(id), [3, 5, 513]);
        assert_eq!(id(1 << 27), (1 << 24) + 1, "no other's");
        assert_eq!(id((1 << 35) - 16), u64::from(u32::MAX));
        assert_eq!(id((1 << 35) + 16), id(16));
    }
}
