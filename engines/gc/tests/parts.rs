//! Objects of many edges, which are traced in parts while the program changes them.
//!
//! ```text
//!   table ─► [edge | edge | … | edge]          a slice: one part, or one edge of it
//!               ▲ telling is here               between two: an edge moves from there ──► to here
//! ```
//!
//! S1  Every heap is verified by the second tracer, which asks for all edges at once, and freed cells are poisoned.
//! S2  Where a test shows that a barrier is needed, its twin without the barrier fails.
//!
//! Not here: random graphs, whose larger objects are traced edge by edge (`graph`).

use std::cell::{Cell, RefCell};
use std::panic::catch_unwind;
use std::ptr::NonNull;
use std::rc::Rc;

use skinflint_gc::typed::{Gc, Handle, Locked, Runtime, Slot};
use skinflint_gc::{
    Budget, Config, Finalize, From, Heap, Incremental, Kind, Origin, PART_EDGES, Progress, Reason,
    Tracer, World, object,
};

const PART: usize = 100;
const MANY: usize = if cfg!(miri) { 600 } else { 1_000_000 };

/// An object of the core: as many edges as it likes, outside of the heap.
struct Table {
    edges: RefCell<Vec<NonNull<u8>>>,
    /// Its own address, as it was allocated.
    here: NonNull<u8>,
    /// Edges told by the longest call, and calls for a part.
    longest: Cell<usize>,
    parts: Cell<usize>,
}

fn told(table: &Table, from: usize, to: usize, tracer: &mut Tracer) {
    let edges = table.edges.borrow();
    let some = edges.get(from..to.min(edges.len())).unwrap_or_default();
    some.iter().for_each(|edge| tracer.edge(*edge));
    table.longest.set(table.longest.get().max(some.len()));
}

unsafe fn trace(object: NonNull<u8>, tracer: &mut Tracer) {
    // SAFETY: the kind says so.
    told(unsafe { object.cast().as_ref() }, 0, usize::MAX, tracer);
}

unsafe fn trace_part(object: NonNull<u8>, from: usize, tracer: &mut Tracer) -> Option<usize> {
    // SAFETY: the kind says so.
    let table: &Table = unsafe { object.cast().as_ref() };
    told(table, from, from + PART, tracer);
    table.parts.set(table.parts.get() + 1);
    (from + PART < table.edges.borrow().len()).then_some(from + PART)
}

unsafe fn end(object: NonNull<u8>) {
    // SAFETY: the kind says so; it ends once.
    unsafe { object.cast::<Table>().drop_in_place() };
}

static TABLE: Kind = Kind {
    name: || "table",
    bytes: size_of::<Table>(),
    align: align_of::<Table>(),
    trace: Some(trace),
    trace_part: Some(trace_part),
    finalize: Some(end),
    finalize_on: Finalize::Mutator,
    origin: Origin::User,
};

static LEAF: Kind = Kind {
    name: || "leaf",
    bytes: 16,
    align: 8,
    trace: None,
    trace_part: None,
    finalize: None,
    finalize_on: Finalize::Nothing,
    origin: Origin::User,
};

fn config(verify: bool) -> Config {
    Config {
        background: false,
        verify,
        poison: verify,
        ..Config::default()
    }
}

fn leaf(heap: &Heap) -> NonNull<u8> {
    // SAFETY: it has no edges and no finalizer; what is in it is written at once.
    unsafe {
        let leaf = heap.alloc(&LEAF).expect("memory");
        leaf.cast::<[u64; 2]>().write([1; 2]);
        leaf
    }
}

/// A rooted table of so many leaves.
fn table<'a>(count: usize, verify: bool) -> (Rc<Heap>, &'a Table) {
    let heap = World::new(config(verify)).heap("core", usize::MAX);
    let edges = (0..count).map(|_| leaf(&heap)).collect();
    // SAFETY: nothing is collected before it is written and rooted; the tests use it while it is.
    unsafe {
        let object = heap.alloc(&TABLE).expect("memory");
        object.cast::<Table>().write(Table {
            edges: RefCell::new(edges),
            here: object,
            longest: Cell::new(0),
            parts: Cell::new(0),
        });
        heap.root(object, From::Host("test"));
        (heap, object.cast().as_ref())
    }
}

fn edges(edges: u64) -> Budget {
    Budget {
        edges,
        ns: u64::MAX,
    }
}

#[test]
fn a_slice_traces_no_more_than_a_part() {
    let (heap, table) = table(MANY, false);
    let most = 10;
    // SAFETY: nothing is written.
    unsafe {
        heap.begin_marking(Reason::Asked, &mut ()).expect("idle");
        let (mut slices, mut before) = (0, 0);
        while heap.mark_step(edges(most)) == Progress::More {
            slices += 1;
            let parts = table.parts.get();
            assert!(parts - before <= most as usize);
            before = parts;
        }
        assert!(slices >= MANY / most as usize, "{slices}");
        heap.finish_marking(&mut ()).expect("idle");
    }
    assert_eq!(table.longest.get(), PART, "never all at once");
    assert_eq!(table.parts.get(), MANY.div_ceil(PART));
    let last = *heap.log().last().expect("one");
    assert_eq!(last.live_cells, MANY as u64 + 1);
    assert_eq!(last.overflows, 0, "the mark stack holds a part");
    heap.check();
}

#[test]
fn what_is_not_told_when_marking_is_finished_early_is_told_then() {
    let (heap, table) = table(10 * PART, true);
    // SAFETY: nothing is written.
    unsafe {
        heap.begin_marking(Reason::Asked, &mut ()).expect("idle");
        heap.mark_step(edges(PART as u64 + 2));
        assert_eq!(heap.progress(), Progress::More);
        heap.finish_marking(&mut ()).expect("idle");
    }
    assert!(heap.log()[0].forced);
    assert_eq!(heap.holds().objects, 10 * PART + 1);
    assert_eq!(table.edges.borrow().len(), 10 * PART);
}

/// After the first part the last edge moves to the place of the first.
fn moves(barrier: impl Fn(&Heap, NonNull<u8>, NonNull<u8>)) {
    let (heap, table) = table(5 * PART, true);
    // SAFETY: edges are written with the barrier that is tested.
    unsafe {
        heap.begin_marking(Reason::Asked, &mut ()).expect("idle");
        while table.parts.get() < 1 {
            heap.mark_step(edges(1));
        }
        let moved = {
            let mut edges = table.edges.borrow_mut();
            edges.swap_remove(0);
            edges[0]
        };
        barrier(&heap, table.here, moved);
        while heap.mark_step(edges(1)) == Progress::More {}
        heap.finish_marking(&mut ()).expect("idle");
    }
    // The one that was overwritten was told before: it goes with the next.
    assert_eq!(heap.holds().objects, 5 * PART + 1);
    heap.check();
}

#[test]
fn an_edge_that_moves_to_where_the_telling_has_been_needs_a_barrier() {
    // SAFETY: they are objects of the heap, and alive.
    moves(|heap, _, moved| unsafe { heap.barrier(moved) });
    // SAFETY: as above.
    moves(|heap, table, _| unsafe { heap.changed(table) });
    let missing = catch_unwind(|| moves(|_, _, _| ())).expect_err("nothing told it");
    let text = missing.downcast_ref::<String>().expect("a text");
    assert!(text.contains("marking missed"), "{text}");
}

#[test]
fn a_table_that_shrinks_meanwhile_ends_where_it_ends() {
    let (heap, table) = table(5 * PART, true);
    // SAFETY: edges are only taken away.
    unsafe {
        heap.begin_marking(Reason::Asked, &mut ()).expect("idle");
        while table.parts.get() < 2 {
            heap.mark_step(edges(1));
        }
        table.edges.borrow_mut().truncate(PART / 2);
        while heap.mark_step(edges(1)) == Progress::More {}
        heap.finish_marking(&mut ()).expect("idle");
    }
    heap.check();
    assert_eq!(heap.holds().objects, 2 * PART + 1);
}

object! {
    struct Node<'gc> {
        first: Slot<Gc<'gc, Node<'gc>>>,
        list: Locked<Vec<Gc<'gc, Node<'gc>>>>,
        number: u64,
        boxed: Box<Locked<Vec<Option<Gc<'gc, Node<'gc>>>>>>,
        last: Slot<Gc<'gc, Node<'gc>>>,
    }
}

/// A struct with two lists, each of many parts, and fields before, between and behind them.
#[test]
fn typed_structs_are_traced_in_parts() {
    let runtime = Runtime::new(config(true));
    let tenant = runtime.tenant("a", usize::MAX);
    let each = PART_EDGES * if cfg!(miri) { 2 } else { 20 } + 1;
    let root: Handle<Node<'static>> = tenant.enter(|cx| {
        let node = |number| {
            let node = Node {
                first: Slot::new(None),
                list: Locked::default(),
                number,
                boxed: Box::default(),
                last: Slot::new(None),
            };
            cx.alloc(node).expect("memory")
        };
        let root = node(0);
        root.first.set(cx, Some(node(1)));
        root.last.set(cx, Some(node(2)));
        root.list.borrow_mut(cx).extend((0..each as u64).map(node));
        let others = (0..each as u64).map(|number| Some(node(number)));
        root.boxed.borrow_mut(cx).extend(others);
        cx.keep(root, "root")
    });
    // SAFETY: typed objects, written with barriers; it is not used in any other way.
    let heap = unsafe { tenant.raw_heap() };
    // SAFETY: as above.
    unsafe { heap.begin_marking(Reason::Asked, &mut ()) }.expect("idle");
    let mut slices = 0;
    while tenant.mark_step(edges(1)) == Progress::More {
        slices += 1;
    }
    // The root; each leaf; and the parts but the first, the two lists' last ones included.
    let parts = 2 * each.div_ceil(PART_EDGES) - 1;
    assert!(slices > 2 * each + parts, "{slices}");
    assert_eq!(heap.holds().objects, 2 * each + 3);
    let sum = tenant.enter(|cx| {
        let root = root.open(cx).expect("its own");
        let sum: u64 = root.list.borrow().iter().map(|node| node.number).sum();
        sum + root.number
    });
    assert_eq!(sum, (each as u64 - 1) * each as u64 / 2);
}

object! {
    struct List<'gc> { all: Locked<Vec<Gc<'gc, u64>>> }
}

/// A list while it is changed all over between slices of one edge.
#[test]
fn a_typed_list_that_is_stirred_loses_nothing() {
    let runtime = Runtime::new(Config {
        incremental: Some(Incremental {
            slice_edges: 8,
            ..Incremental::STRESS
        }),
        ..Config::stress(40)
    });
    let tenant = runtime.tenant("a", usize::MAX);
    let count = PART_EDGES + 40;
    let list: Handle<List<'static>> = tenant.enter(|cx| {
        let some = (0..count as u64).map(|number| cx.alloc(number).expect("memory"));
        let all = Locked::new(some.collect());
        cx.keep(cx.alloc(List { all }).expect("memory"), "list")
    });
    for round in 0..if cfg!(miri) { 60 } else { 2_000u64 } {
        tenant.enter(|cx| {
            let list = list.open(cx).expect("its own");
            let new = cx.alloc(round).expect("memory");
            let mut list = list.all.borrow_mut(cx);
            let at = (round as usize * 97) % count;
            list.swap_remove(at);
            list.push(new);
            let at = (round as usize * 31) % count;
            list.swap(at, 0);
        });
    }
    assert!(tenant.heap().collections() > if cfg!(miri) { 0 } else { 8 });
    tenant.collect().expect("at rest");
    assert_eq!(tenant.heap().holds().objects, count + 1);
}
