//! Heap snapshots, retaining paths and sums by kind, on graphs that are predicted by hand.
//!
//! ```text
//!   objects ─► Snapshot ─► text ─► serde_json ─► nodes with their edges, by name ─► what was linked
//! ```
//!
//! S1  A parser that shares no code with the writer reads the file; it finds each node's edges by counting.
//!
//! Not here: DevTools (`browser/devtools.mjs`), how much memory and time it takes (`bench/gc/snapshot.py`).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Write};
use std::ptr::NonNull;

use serde_json::Value;
use skinflint_gc::snapshot::{Describe, Node, NodeType, Snapshot, SnapshotError};
use skinflint_gc::typed::{
    CrossEdge, Cx, Gc, Handle, Locked, Opaque, Runtime, Slot, Sys, Tenant, Weak,
};
use skinflint_gc::{
    Busy, Config, Finalize, Growth, Kind, Origin, Pair, Pressure, Reason, Roots, Shortage, Tracer,
    Wanted, World, object,
};

/// A node as the file tells it.
#[derive(Clone, Debug)]
struct Read {
    class: u64,
    name: String,
    id: u64,
    bytes: u64,
    /// Type, name or number, number of the node.
    edges: Vec<(u64, String, usize)>,
}

/// S1.
fn read(text: &[u8]) -> Vec<Read> {
    let file: Value = serde_json::from_slice(text).expect("JSON");
    let numbers = |name: &str| -> Vec<u64> {
        let list = file[name].as_array().expect("a list");
        list.iter().map(|n| n.as_u64().expect("a number")).collect()
    };
    let strings = file["strings"].as_array().expect("strings");
    let string = |n: u64| strings[n as usize].as_str().expect("a string").to_owned();
    let (nodes, edges) = (numbers("nodes"), numbers("edges"));
    let meta = &file["snapshot"];
    assert_eq!(meta["meta"]["node_fields"].as_array().unwrap().len(), 7);
    assert_eq!(meta["node_count"], nodes.len() / 7);
    assert_eq!(meta["edge_count"], edges.len() / 3);
    let mut edges = edges.chunks(3);
    let mut read = Vec::new();
    for node in nodes.chunks(7) {
        assert_eq!(node[5..], [0, 0], "traced by nobody, detached from nothing");
        let edges = edges.by_ref().take(node[4] as usize);
        let edges = edges.map(|edge| {
            assert_eq!(edge[2] % 7, 0, "an edge leads to the beginning of a node");
            let name = match edge[0] {
                1 => format!("[{}]", edge[1]),
                _ => string(edge[1]),
            };
            (edge[0], name, (edge[2] / 7) as usize)
        });
        read.push(Read {
            class: node[0],
            name: string(node[1]),
            id: node[2],
            bytes: node[3],
            edges: edges.collect(),
        });
        let here = read.last().unwrap();
        assert_eq!(here.edges.len() as u64, node[4], "as many edges as it says");
    }
    assert_eq!(edges.count(), 0, "every edge is some node's");
    let mut ids: Vec<u64> = read.iter().map(|node| node.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), read.len(), "ids are different");
    assert!(read.iter().all(|node| node.id <= u64::from(u32::MAX)));
    read
}

fn find<'a>(nodes: &'a [Read], name: &str) -> &'a Read {
    let mut found = nodes.iter().filter(|node| node.name.ends_with(name));
    let one = found
        .next()
        .unwrap_or_else(|| panic!("no {name}: {nodes:#?}"));
    assert!(found.next().is_none(), "two of {name}");
    one
}

/// Names and ends of a node's edges, in order.
fn ends(nodes: &[Read], of: &Read) -> Vec<(u64, String, String)> {
    let short = |name: &str| name.rsplit("::").next().unwrap_or(name).to_owned();
    let edges = of.edges.iter();
    edges
        .map(|(kind, name, to)| (*kind, name.clone(), short(&nodes[*to].name)))
        .collect()
}

fn edge(kind: u64, name: &str, to: &str) -> (u64, String, String) {
    (kind, name.to_owned(), to.to_owned())
}

object! { struct Leaf<'gc> { number: u64, unused: Slot<Gc<'gc, Leaf<'gc>>> } }
object! { struct Names<'gc> { text: String, owner: Slot<Gc<'gc, Document<'gc>>> } }
object! {
    struct Document<'gc> {
        first: Slot<Gc<'gc, Leaf<'gc>>>,
        list: Locked<Vec<(u64, Option<Gc<'gc, Names<'gc>>>)>>,
        watched: Weak<'gc, Leaf<'gc>>,
        shape: Sys<'gc, u64>,
        other: Locked<Vec<CrossEdge<'gc, u32>>>,
    }
}

struct Two {
    runtime: Runtime,
    one: skinflint_gc::typed::Tenant,
    two: skinflint_gc::typed::Tenant,
    _kept: Handle<Document<'static>>,
}

/// Tenant "one" has a document with a leaf, two names in a list of three, and an edge to a number of tenant "two".
fn two_tenants() -> Two {
    let runtime = Runtime::default();
    let one = runtime.tenant("one", usize::MAX);
    let two = runtime.tenant("two \"\\\n", usize::MAX);
    let number = two.enter(|cx| cx.keep(cx.alloc(7u32).unwrap(), "for a moment"));
    let kept = one.enter(|cx| {
        let leaf = Leaf {
            number: 1,
            unused: Slot::new(None),
        };
        let leaf = cx.alloc(leaf).unwrap();
        let document = cx
            .alloc(Document {
                first: Slot::new(Some(leaf)),
                list: Locked::default(),
                watched: Weak::to(leaf),
                shape: cx.alloc_shared(9u64).unwrap(),
                other: Locked::new(vec![cx.cross_edge(&number).expect("of this runtime")]),
            })
            .unwrap();
        let names = || {
            let owner = Slot::new(Some(document));
            let text = "x".to_owned();
            Some(cx.alloc(Names { text, owner }).unwrap())
        };
        let list = vec![(0, names()), (1, None), (2, names())];
        *document.list.borrow_mut(cx) = list;
        assert_eq!((leaf.number, leaf.unused.get().is_none()), (1, true));
        assert_eq!(document.list.borrow()[0].1.unwrap().text, "x");
        cx.keep(document, "the document")
    });
    Two {
        runtime,
        one,
        two,
        _kept: kept,
    }
}

#[test]
fn every_node_and_edge_of_a_whole_runtime_is_the_one_that_was_made() {
    let all = two_tenants();
    let mut text = Vec::new();
    let written = all.runtime.snapshot(&mut text).unwrap();
    let nodes = read(&text);
    assert_eq!(written.bytes, text.len() as u64);
    assert_eq!(written.nodes, nodes.len() as u64);
    // Leaf, Document, two Names, a u64 of the shared heap, a u32 of the other tenant.
    assert_eq!(written.objects, 6);
    let root = &nodes[0];
    assert_eq!((root.class, root.name.as_str()), (9, ""));
    assert_eq!(
        ends(&nodes, root),
        [
            edge(1, "[1]", "(GC roots)"),
            edge(5, "shared", "tenant \"shared\""),
            edge(5, "one", "tenant \"one\""),
            edge(5, "two \"\\\n", "tenant \"two \"\\\n\""),
        ]
    );
    let tenant = find(&nodes, "tenant \"one\"");
    assert_eq!(
        ends(&nodes, tenant),
        [edge(2, "the document", "Document<'_>")]
    );
    // Its handle was dropped, and tenant "one" tells its edge itself.
    assert_eq!(find(&nodes, "tenant \"two \"\\\n\"").edges, []);
    let document = find(&nodes, "Document<'_>");
    assert_eq!(document.class, NodeType::Object as u64);
    assert_eq!(
        ends(&nodes, document),
        [
            edge(2, "first", "Leaf<'_>"),
            edge(2, "list[0].1", "Names<'_>"),
            edge(2, "list[2].1", "Names<'_>"),
            edge(6, "watched", "Leaf<'_>"),
            edge(2, "shape", "u64"),
            edge(2, "other[0]", "u32"),
        ]
    );
    let shared = find(&nodes, "u64");
    assert_eq!((shared.class, shared.bytes), (NodeType::Hidden as u64, 16));
    let names = nodes
        .iter()
        .find(|n| n.name.ends_with("Names<'_>"))
        .unwrap();
    assert_eq!(ends(&nodes, names), [edge(2, "owner", "Document<'_>")]);
    let held: usize = all.runtime.rows().iter().map(|r| r.holds.cell_bytes).sum();
    let told: u64 = nodes.iter().map(|node| node.bytes).sum();
    assert_eq!((told, told), (held as u64, written.cell_bytes));
}

#[test]
fn one_tenant_alone_has_a_node_for_each_heap_beside() {
    let all = two_tenants();
    let mut text = Vec::new();
    let written = all.one.snapshot(&mut text).unwrap();
    let nodes = read(&text);
    assert_eq!(written.objects, 4);
    let document = find(&nodes, "Document<'_>");
    let last: Vec<_> = ends(&nodes, document).split_off(4);
    let outside = [
        edge(2, "shape", "(outside: shared)"),
        edge(2, "other[0]", "(outside: two \"\\\n)"),
    ];
    assert_eq!(last, outside);
    assert_eq!(written.cell_bytes, all.one.heap().holds().cell_bytes as u64);

    let mut text = Vec::new();
    all.two.snapshot(&mut text).unwrap();
    let nodes = read(&text);
    let from = find(&nodes, "(edges from one)");
    assert_eq!(ends(&nodes, from), [edge(1, "[0]", "u32")]);
    let gc_roots = find(&nodes, "(GC roots)");
    assert_eq!(ends(&nodes, gc_roots), [edge(1, "[0]", "(edges from one)")]);
}

#[test]
fn an_object_has_the_same_id_in_the_next_snapshot() {
    let all = two_tenants();
    let ids = |text: &[u8]| -> BTreeMap<u64, String> {
        let nodes = read(text).into_iter().filter(|node| node.bytes > 0);
        nodes.map(|node| (node.id, node.name)).collect()
    };
    let mut text = Vec::new();
    all.runtime.snapshot(&mut text).unwrap();
    let before = ids(&text);
    let more: Handle<u16> = all.one.enter(|cx| cx.keep(cx.alloc(1u16).unwrap(), "more"));
    text.clear();
    all.runtime.snapshot(&mut text).unwrap();
    let after = ids(&text);
    assert_eq!(after.len(), before.len() + 1);
    assert!(before.iter().all(|(id, name)| after.get(id) == Some(name)));
    drop(more);
}

/// Takes so many bytes, and fails then.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        if self.0 == 0 {
            return Err(Error::from(ErrorKind::StorageFull));
        }
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

#[test]
fn a_stream_that_fails_anywhere_is_an_error_and_the_heap_goes_on() {
    let all = two_tenants();
    let mut text = Vec::new();
    let whole = all.runtime.snapshot(&mut text).unwrap().bytes as usize;
    for room in (0..whole)
        .step_by(if cfg!(miri) { 4001 } else { 97 })
        .chain([whole - 1])
    {
        match all.runtime.snapshot(&mut Full(room)) {
            Err(SnapshotError::Out(error)) => assert_eq!(error.kind(), ErrorKind::StorageFull),
            other => panic!("{room} of {whole} bytes: {other:?}"),
        }
    }
    assert_eq!(all.runtime.snapshot(&mut Full(whole)).unwrap().objects, 6);
    all.runtime.collect_all(Reason::Asked).unwrap();
}

/// A stream that calls everything each time that something is written to it.
struct Calls<'a> {
    runtime: &'a Runtime,
    tenant: &'a Tenant,
    handles: Vec<Handle<Leaf<'static>>>,
    refused: usize,
    text: Vec<u8>,
}

impl Write for Calls<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let leaf = |cx: Cx<'_>| {
            let leaf = Leaf {
                number: 1,
                unused: Slot::new(None),
            };
            (cx.alloc(leaf).err(), cx.alloc_shared(1u64).err())
        };
        let refused = self.tenant.enter(leaf);
        let refused = [refused.0, refused.1].map(|e| e.expect("U1").shortage);
        assert_eq!(refused, [Shortage::Still; 2]);
        let large = self.tenant.enter(|cx| cx.alloc([0u64; 4096]).err());
        assert_eq!(large.map(|error| error.shortage), Some(Shortage::Still));
        self.refused += 1;
        assert_eq!((self.tenant.shrink(), self.tenant.trim()), (0, 0));
        self.runtime.shrink();
        self.runtime.pressure(Pressure::Critical);
        self.runtime.tick(u64::MAX);
        assert_eq!(self.tenant.collect(), Err(Busy::Collecting));
        drop((self.handles.pop(), self.handles.last().cloned()));
        self.text.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.write(b"\n").map(drop)
    }
}

#[test]
fn a_stream_may_call_everything_and_is_refused_what_would_move_the_heap() {
    let count = if cfg!(miri) { 1_000 } else { 20_000 };
    let config = Config {
        poison: true,
        background: false,
        ..Config::default()
    };
    let runtime = Runtime::new(config);
    let tenant = runtime.tenant("a", usize::MAX);
    let make = |number, list: &mut Vec<Handle<Leaf<'static>>>| {
        tenant.enter(|cx| {
            let unused = Slot::new(list.last().map(|last| last.open(cx).expect("its own")));
            let leaf = cx.alloc(Leaf { number, unused }).expect("memory");
            list.push(cx.keep(leaf, "leaf"));
        });
    };
    let mut handles = Vec::new();
    (0..count).for_each(|number| make(number, &mut handles));
    let most = tenant.heap().held_bytes();
    // Chunks without an object: the stream could have them given back.
    handles.truncate(count as usize / 20);
    let kept = handles.clone();
    let mut calls = Calls {
        runtime: &runtime,
        tenant: &tenant,
        handles,
        refused: 0,
        text: Vec::new(),
    };
    // Handles are dropped while they are written.
    let written = runtime.snapshot(&mut calls);
    assert!(matches!(written, Err(SnapshotError::Changed) | Ok(_)));
    assert!(calls.refused > 1, "it was called");
    calls.handles.clear();
    calls.text.clear();
    let written = runtime.snapshot(&mut calls).expect("nothing has changed");
    assert_eq!(written.objects, kept.len() as u64);
    read(&calls.text);
    tenant.heap().check();
    assert!(tenant.heap().held_bytes() < most);
    tenant.enter(|cx| {
        cx.alloc(1u64).expect("it is over");
        for (number, leaf) in kept.iter().enumerate() {
            assert_eq!(leaf.open(cx).expect("its own").number, number as u64);
        }
    });
    // Also after a stream that panics.
    struct Panics;
    impl Write for Panics {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            panic!("a stream")
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let panics = std::panic::AssertUnwindSafe(|| drop(runtime.snapshot(&mut Panics)));
    assert!(std::panic::catch_unwind(panics).is_err());
    assert!(tenant.enter(|cx| cx.alloc(1u64).is_ok()), "it is over");
    assert_eq!(runtime.collect_all(Reason::Asked), Ok(()));
}

#[test]
fn none_is_made_while_a_closure_runs() {
    let all = two_tenants();
    let mut text = Vec::new();
    all.one.enter(|_| {
        let refused = all.one.snapshot(&mut text);
        assert!(matches!(refused, Err(SnapshotError::Busy(Busy::Entered))));
        assert_eq!(all.one.census(), Err(Busy::Entered));
        assert_eq!(all.one.paths(&[]), Err(Busy::Entered));
    });
    assert!(text.is_empty());
}

/// An object of a client that knows its objects by a word in them, with an edge, and a pair.
#[repr(C)]
struct Tagged {
    tag: u64,
    next: Cell<Option<NonNull<Tagged>>>,
    pair: Pair,
}

unsafe fn trace_tagged(object: NonNull<u8>, tracer: &mut Tracer) {
    // SAFETY: the only kind of these tests' own heaps.
    let tagged = unsafe { object.cast::<Tagged>().as_ref() };
    if let Some(next) = tagged.next.get() {
        tracer.edge(next.cast());
    }
    tracer.pair(&tagged.pair);
}

static TAGGED: Kind = Kind {
    name: || "tagged",
    bytes: size_of::<Tagged>(),
    align: align_of::<Tagged>(),
    trace: Some(trace_tagged),
    trace_part: None,
    finalize: None,
    finalize_on: Finalize::Nothing,
    origin: Origin::User,
};

fn tagged(heap: &skinflint_gc::Heap, tag: u64) -> NonNull<Tagged> {
    // SAFETY: it is written at once.
    unsafe {
        let object = heap.alloc(&TAGGED).unwrap().cast::<Tagged>();
        object.write(Tagged {
            tag,
            next: Cell::new(None),
            pair: Pair::default(),
        });
        object
    }
}

struct Told(Vec<NonNull<Tagged>>);

impl Roots for Told {
    fn trace(&mut self, tracer: &mut Tracer) {
        for (index, root) in self.0.iter().enumerate() {
            tracer.named("stack", |tracer| {
                tracer.numbered(index, |tracer| tracer.edge(root.cast()));
            });
        }
    }
}

/// Names each object by its word; every third is a string with a buffer outside.
struct ByTag(String);

// SAFETY: no edges are told here.
unsafe impl Describe for ByTag {
    fn node(&mut self, object: NonNull<u8>, kind: &'static Kind, node: &mut Node<'_>) {
        assert!(std::ptr::eq(kind, &TAGGED));
        // SAFETY: it is of this kind.
        let tag = unsafe { object.cast::<Tagged>().as_ref() }.tag;
        node.name(&format!("{}{tag}", self.0));
        if tag % 3 == 0 {
            node.class = NodeType::String;
            node.outside_bytes = 100;
        }
    }
}

#[test]
fn a_client_names_objects_sizes_and_roots() {
    let world = World::new(Config::default());
    let heap = world.heap("raw", usize::MAX);
    let objects: Vec<_> = (0..4).map(|tag| tagged(&heap, tag)).collect();
    // SAFETY: all of them are objects of this kind.
    let at = |n: usize| unsafe { objects[n].as_ref() };
    at(0).next.set(Some(objects[1]));
    at(0).pair.key.set(Some(objects[2].cast()));
    at(0).pair.value.set(Some(objects[3].cast()));
    let mut roots = Told(vec![objects[0], objects[2]]);
    let mut text = Vec::new();
    let mut names = ByTag("é\u{1}\"\\ \u{2028}".to_owned());
    let set = [&*heap];
    let snapshot = Snapshot::of(&set).describe(&mut names);
    // SAFETY: they are alive.
    let written = unsafe { snapshot.roots(&mut roots) }
        .write(&mut text)
        .unwrap();
    let nodes = read(&text);
    let name = |n: u64| format!("é\u{1}\"\\ \u{2028}{n}");
    let client = find(&nodes, "(client roots)");
    let stack = [edge(2, "stack[0]", &name(0)), edge(2, "stack[1]", &name(2))];
    assert_eq!(ends(&nodes, client), stack);
    let first = find(&nodes, &name(0));
    assert_eq!(
        (first.class, first.bytes),
        (2, size_of::<Tagged>() as u64 + 100)
    );
    assert_eq!(
        ends(&nodes, first),
        [
            edge(1, "[0]", &name(1)),
            edge(6, "key of a pair", &name(2)),
            edge(3, "value of a pair", &name(3)),
        ]
    );
    assert_eq!(written.outside_bytes, 200);
    let told: u64 = nodes.iter().map(|node| node.bytes).sum();
    assert_eq!(told, written.cell_bytes + written.outside_bytes);
    assert_eq!(written.cell_bytes, heap.holds().cell_bytes as u64);
}

#[test]
fn names_beyond_the_budget_are_written_all_the_same() {
    let world = World::new(Config::default());
    let heap = world.heap("raw", usize::MAX);
    let (count, long) = if cfg!(miri) { (280, 20) } else { (20_000, 2) };
    let objects: Vec<_> = (0..count).map(|tag| tagged(&heap, tag)).collect();
    let mut names = ByTag("a name of its own, much longer than the object, ".repeat(long));
    let mut text = Vec::new();
    let mut roots = Told(objects.clone());
    let set = [&*heap];
    let snapshot = Snapshot::of(&set).describe(&mut names);
    // SAFETY: they are alive.
    let written = unsafe { snapshot.roots(&mut roots) }
        .write(&mut text)
        .unwrap();
    assert!(written.strings > count);
    let nodes = read(&text);
    for (tag, node) in nodes.iter().skip(4).enumerate() {
        assert_eq!(node.name, format!("{}{tag}", names.0));
    }
    let client = find(&nodes, "(client roots)");
    assert_eq!(client.edges[255].1, "stack[255]");
    assert_eq!(client.edges[256], (1, "[256]".to_owned(), 4 + 256));
}

#[test]
fn an_object_that_tells_other_edges_each_time_is_found_out() {
    struct Fickle(u64);
    // SAFETY: the edge leads to the object itself.
    unsafe impl Describe for Fickle {
        fn edges(&mut self, at: NonNull<u8>, _: &'static Kind, tracer: &mut Tracer) -> bool {
            self.0 += 1;
            (0..self.0).for_each(|_| tracer.edge(at));
            true
        }
    }
    let world = World::new(Config::default());
    let heap = world.heap("raw", usize::MAX);
    tagged(&heap, 1);
    let mut text = Vec::new();
    let set = [&*heap];
    let changed = Snapshot::of(&set).describe(&mut Fickle(0)).write(&mut text);
    assert!(
        matches!(changed, Err(SnapshotError::Changed)),
        "{changed:?}"
    );
}

#[test]
fn a_wide_object_and_a_long_list_have_paths() {
    let runtime = Runtime::default();
    let tab = runtime.tenant("tab", usize::MAX);
    let length = if cfg!(miri) { 600 } else { 100_000 };
    let kept: Handle<Leaf<'static>> = tab.enter(|cx| {
        let mut list: Option<Gc<'_, Leaf<'_>>> = None;
        for number in 0..length {
            let unused = Slot::new(list);
            list = Some(cx.alloc(Leaf { number, unused }).unwrap());
        }
        cx.keep(list.unwrap(), "list")
    });
    let kind = std::any::type_name::<Leaf<'static>>();
    let asked = [
        Wanted::Nth(kind, 0),
        Wanted::Nearest(kind),
        Wanted::Nth(kind, length as usize),
        Wanted::Nearest("nothing"),
        Wanted::Object(NonNull::dangling()),
    ];
    let paths = tab.paths(&asked).unwrap();
    let first = paths[0].as_ref().unwrap();
    assert_eq!(first.steps.len(), length as usize);
    assert_eq!(first.root, "handle \"list\"");
    assert!(first.steps[1..].iter().all(|step| step.edge == "unused"));
    assert!(
        first
            .to_string()
            .contains(&format!("… {} more …", length - 24)),
        "{first}"
    );
    assert_eq!(paths[1].as_ref().unwrap().steps.len(), 1);
    assert_eq!(paths[2..], [None, None, None]);
    drop(kept);
    // Garbage that no collection has found: nothing leads there.
    assert_eq!(tab.paths(&asked[..1]).unwrap(), [None]);
}

#[test]
fn a_path_leads_through_two_tenants_by_name() {
    let all = two_tenants();
    let asked = [Wanted::Nearest("u32")];
    let path = all.runtime.paths(&asked).unwrap().remove(0).unwrap();
    assert_eq!(path.root, "handle \"the document\"");
    assert_eq!(path.steps[1].edge, "other[0]");
    assert_eq!(path.steps[1].heap, "two \"\\\n");
    let alone = all.two.paths(&asked).unwrap().remove(0).unwrap();
    assert_eq!(alone.root, "an edge from heap \"one\"");
}

#[test]
fn sums_by_kind_are_those_of_the_cells_and_differences_have_signs() {
    let all = two_tenants();
    let before = all.runtime.census().unwrap();
    let held: usize = all.runtime.rows().iter().map(|r| r.holds.cell_bytes).sum();
    assert_eq!(before.total().bytes, held as u64);
    assert_eq!(before.total().objects, 6);
    let more: Handle<Opaque<[u8; 5000]>> = all.two.enter(|cx| {
        let big = cx.alloc(Opaque([0u8; 5000])).unwrap();
        cx.keep(big, "a large one")
    });
    let after = all.runtime.census().unwrap();
    let diff = before.diff(&after);
    assert_eq!(diff.rows.len(), 1);
    let (class, old, new) = &diff.rows[0];
    assert_eq!((class.heap.as_str(), class.system), ("two \"\\\n", false));
    // Two pages.
    assert_eq!((old.bytes, new.bytes, new.objects), (0, 8192, 1));
    assert!(diff.to_string().contains("+8192"), "{diff}");
    assert!(after.diff(&before).to_string().contains("-8192"));
    for text in [after.json(), diff.json()] {
        let json: Value = serde_json::from_str(&text).expect(&text);
        assert!(text.contains("two \\\"\\\\"), "{text}");
        assert!(json["rows"].as_array().is_some_and(|rows| !rows.is_empty()));
    }
    let json: Value = serde_json::from_str(&after.json()).unwrap();
    assert_eq!(json["bytes"], held as u64 + 8192);
    assert_eq!(before.diff(&before).rows, []);
    drop(more);
}

object! { system struct Atom<'gc> { same: Option<Sys<'gc, Atom<'gc>>>, number: u64 } }

#[test]
fn chunks_are_told_by_their_arenas_and_by_what_keeps_the_last_one() {
    let runtime = Runtime::new(Config {
        growth: Growth {
            floor_bytes: usize::MAX,
            ..Growth::TENANT
        },
        ..Config::default()
    });
    let tab = runtime.tenant("tab", usize::MAX);
    // Two chunks of objects with pages of their own, two in each, and a third with one; all but one object go.
    let kept: Handle<Opaque<[u8; 400_000]>> = tab.enter(|cx| {
        let all = (0..5).map(|_| cx.alloc(Opaque([0u8; 400_000])).unwrap());
        let all: Vec<_> = all.collect();
        cx.keep(all[4], "large")
    });
    let one: Handle<u64> = tab.enter(|cx| cx.keep(cx.alloc(7u64).unwrap(), "small"));
    runtime.tenant("other", usize::MAX).enter(|cx| {
        cx.alloc_shared(Atom {
            same: None,
            number: 1,
        })
        .unwrap();
    });
    let before = tab.chunks().unwrap();
    assert_eq!(before.total(), 3);
    assert_eq!(before.rows[&("tab".to_owned(), false)][4], 3, "{before}");
    tab.collect().unwrap();
    tab.shrink();
    let after = tab.chunks().unwrap();
    assert_eq!((after.total(), after.lone_total), (2, 2), "{after}");
    let row = after.by_arenas(Some(false));
    assert_eq!((row[1], row[4]), (1, 1), "{after}");
    let rows = after.by_lone();
    assert!(
        rows.iter()
            .all(|(_, lone)| lone.chunks == 1 && lone.objects.objects == 1)
    );
    assert!(rows.iter().any(|(class, _)| class.kind == "u64"), "{after}");
    let all = runtime.chunks().unwrap();
    assert_eq!(all.by_arenas(Some(true))[1], 1, "{all}");
    assert_eq!(
        all.by_lone()
            .iter()
            .filter(|(class, _)| class.system)
            .count(),
        1
    );
    let json: Value = serde_json::from_str(&all.json()).expect("JSON");
    assert_eq!((&json["chunks"], &json["lone"]), (&3.into(), &3.into()));
    assert_eq!(json["kept_by"].as_array().map(Vec::len), Some(3));
    assert!(all.to_string().contains("system snapshot::Atom"), "{all}");
    drop((kept, one));
    // A huge object has its chunk for itself.
    let huge: Handle<Opaque<[u64; 150_000]>> =
        tab.enter(|cx| cx.keep(cx.alloc(vec_of_words()).unwrap(), "huge"));
    let chunks = tab.chunks().unwrap();
    assert_eq!(chunks.by_arenas(None)[6], 1, "{chunks}");
    drop(huge);
}

/// More than a megabyte, without passing over the stack more than once.
fn vec_of_words() -> Opaque<[u64; 150_000]> {
    Opaque([1; 150_000])
}
