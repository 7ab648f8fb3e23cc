//! Several heaps marked together while the program runs: edges between them, new edges, and what ends the marking.
//!
//! ```text
//!   heap A: root ─► a ──────► heap B: b ─► c        begin of {A, B} ─► slices ─► finish: cycles through both go
//!             └───── the edge to c moves here when only the root is traced ─────┘   the barrier of A tells it to both
//! ```
//!
//! S1  Every heap is verified by the second tracer when marking ends, and freed cells are poisoned.
//! S2  Where a test shows that a barrier is needed, its twin without the barrier fails.
//!
//! Not here: one heap (`incremental`), random graphs (`tenants`).

mod heads;

use std::panic::catch_unwind;
use std::rc::Rc;

use skinflint_gc::typed::{
    CrossEdge, Cx, Gc, Handle, HeapView, Locked, Runtime, Slot, Sys, Tenant,
};
use skinflint_gc::{
    Busy, Config, From, Growth, Heap, Incremental, Progress, Reason, World, begin_marking, collect,
    object,
};

use heads::{Head, at, config, edges, head};

fn heaps(count: usize) -> Vec<Rc<Heap>> {
    let world = World::new(config());
    (0..count)
        .map(|number| world.heap(&format!("heap {number}"), usize::MAX))
        .collect()
}

fn objects(heaps: &[Rc<Heap>]) -> Vec<usize> {
    heaps.iter().for_each(|heap| heap.check());
    heaps.iter().map(|heap| heap.holds().objects).collect()
}

/// Root and a in the first heap, b and c in the second; the edge to c moves from b to the root, which is traced.
fn hide(barrier: impl Fn(&Heap, &Heap, &Head, &Head)) {
    let heaps = heaps(2);
    let (first, second) = (&*heaps[0], &*heaps[1]);
    let c = head(second, 3, [None; 2]);
    let b = head(second, 2, [Some(at(c)), None]);
    let a = head(first, 1, [Some(at(b)), None]);
    let root = head(first, 0, [Some(at(a)), None]);
    // SAFETY: live objects of their heaps; edges are written with the barrier that is tested, and those between the
    // heaps have entries.
    unsafe {
        first.root(at(root).cast(), From::Host("test"));
        second.root(at(b).cast(), From::Heap(first.id()));
        second.root(at(c).cast(), From::Heap(first.id()));
        let begun = begin_marking(&[first, second], Reason::Asked, &mut ());
        assert_eq!(begun, Ok(true));
        // The root is told, then the table of the second heap, in which nothing is a root; and the root is followed.
        assert_eq!(first.mark_step(edges(4)), Progress::More);
        root.edges.set([Some(at(a)), Some(at(c))]);
        barrier(first, second, root, c);
        b.edges.set([None; 2]);
        while second.mark_step(edges(1)) == Progress::More {}
        assert_eq!(second.finish_marking(&mut ()), Ok(true));
    }
    assert!(!first.is_marking() && !second.is_marking());
    assert_eq!(objects(&heaps), [2, 2]);
    let [_, Some(hidden)] = root.edges.get() else {
        panic!("it was written");
    };
    // SAFETY: it is led to from a root.
    assert_eq!(unsafe { hidden.as_ref() }.number, 3);
}

#[test]
fn the_barrier_of_the_heap_that_is_written_tells_an_edge_into_another() {
    // SAFETY: they are objects of these heaps, and alive.
    hide(|first, _, _, to| unsafe { first.barrier(at(to).cast()) });
    // SAFETY: as above.
    hide(|first, _, from, _| unsafe { first.changed(at(from).cast()) });
    // The marking is one.
    // SAFETY: as above.
    hide(|_, second, _, to| unsafe { second.barrier(at(to).cast()) });
}

#[test]
fn a_missing_barrier_between_heaps_is_found_by_the_second_tracer() {
    let missing = catch_unwind(|| hide(|_, _, _, _| ())).expect_err("nothing told it");
    let text = missing.downcast_ref::<String>().expect("a text");
    assert!(text.contains("marking missed"), "{text}");
}

/// A ring through all heaps, each edge with its entry, begun in the first; one object beside it in each.
fn ring(heaps: &[Rc<Heap>], number: u64) -> &Head {
    let first = head(&heaps[0], number, [None; 2]);
    let mut last = first;
    for pair in heaps.windows(2) {
        let next = head(&pair[1], number, [None; 2]);
        last.edges.set([Some(at(next)), None]);
        // SAFETY: a live object of that heap.
        unsafe { pair[1].root(at(next).cast(), From::Heap(pair[0].id())) };
        last = next;
    }
    last.edges.set([Some(at(first)), None]);
    // SAFETY: as above.
    unsafe { heaps[0].root(at(first).cast(), From::Heap(heaps[heaps.len() - 1].id())) };
    first
}

#[test]
fn a_ring_through_three_heaps_goes_with_their_set_and_only_then() {
    let heaps = heaps(4);
    let set: Vec<&Heap> = heaps[..3].iter().map(Rc::as_ref).collect();
    for number in 0..10 {
        ring(&heaps[..3], number);
    }
    let kept = ring(&heaps[..3], 10);
    let outside = ring(&heaps[..3], 11);
    let holder = head(&heaps[3], 0, [Some(at(outside)), None]);
    // SAFETY: live objects; nothing is written while marking is on.
    unsafe {
        set[0].root(at(kept).cast(), From::Host("test"));
        heaps[3].root(at(holder).cast(), From::Host("test"));
        set[0].root(at(outside).cast(), From::Heap(heaps[3].id()));
        for heap in &set {
            assert_eq!(heap.begin_marking(Reason::Asked, &mut ()), Ok(true));
            while heap.mark_step(edges(5)) == Progress::More {}
            assert_eq!(heap.finish_marking(&mut ()), Ok(true));
        }
        assert_eq!(
            objects(&heaps),
            [12, 12, 12, 1],
            "alone, each entry is a root"
        );
        assert_eq!(begin_marking(&set, Reason::Asked, &mut ()), Ok(true));
        assert!(!heaps[3].is_marking());
        while set[2].mark_step(edges(1)) == Progress::More {}
        assert_eq!(set[1].finish_marking(&mut ()), Ok(true));
    }
    assert_eq!(objects(&heaps), [2, 2, 2, 1]);
    let log = set[0].log();
    let last = log.last().expect("some");
    assert_eq!((last.heaps, last.live_cells, last.forced), (3, 2, false));
    assert!(last.slices > 6, "{last:?}");
}

#[test]
fn a_slice_of_a_set_follows_no_more_than_its_budget() {
    let heaps = heaps(5);
    let each: u64 = if cfg!(miri) { 60 } else { 20_000 };
    for heap in &heaps {
        let mut list = head(heap, 0, [None; 2]);
        for number in 1..each {
            list = head(heap, number, [Some(at(list)), None]);
        }
        // SAFETY: a live object.
        unsafe { heap.root(at(list).cast(), From::Host("test")) };
    }
    let set: Vec<&Heap> = heaps.iter().map(Rc::as_ref).collect();
    // SAFETY: nothing is written.
    unsafe {
        assert_eq!(begin_marking(&set, Reason::Asked, &mut ()), Ok(true));
        let mut slices = 0;
        while set[slices as usize % 5].mark_step(edges(20)) == Progress::More {
            slices += 1;
        }
        // An edge to each object, and an entry of each table.
        let all = 5 * each;
        assert!((all / 20..=all / 20 + 2).contains(&slices), "{slices}");
        assert_eq!(set[0].finish_marking(&mut ()), Ok(true));
    }
    assert_eq!(objects(&heaps), [each as usize; 5]);
}

#[test]
fn whatever_ends_the_marking_of_one_ends_that_of_all() {
    let mut heaps = heaps(3);
    let roots: Vec<_> = heaps
        .iter()
        .map(|heap| {
            head(heap, 7, [None; 2]);
            let object = at(head(heap, 1, [None; 2])).cast();
            // SAFETY: a live object.
            unsafe { heap.root(object, From::Host("test")) }
        })
        .collect();
    let begin = |heaps: &[Rc<Heap>]| {
        let set: Vec<&Heap> = heaps.iter().map(Rc::as_ref).collect();
        // SAFETY: nothing is written.
        unsafe {
            assert_eq!(begin_marking(&set, Reason::Asked, &mut ()), Ok(true));
            assert_eq!(begin_marking(&set[1..], Reason::Asked, &mut ()), Ok(true));
            set[0].mark_step(edges(4));
        }
        assert!(heaps.iter().all(|heap| heap.is_marking()));
    };
    let off = |heaps: &[Rc<Heap>]| {
        assert!(heaps.iter().all(|heap| heap.progress() == Progress::Off));
        objects(heaps)
    };
    begin(&heaps);
    // What is marked of the third is no more than the rest: it goes with its root.
    // SAFETY: the numbers are these heaps'; nothing is used later that has no root.
    unsafe {
        heaps[2].unroot(roots[2]);
        collect(&[&heaps[2]], Reason::Asked, &mut ()).expect("idle");
    }
    assert_eq!(off(&heaps), [2, 2, 0]);
    begin(&heaps);
    heaps[0].set_incremental(None);
    assert_eq!(off(&heaps), [2, 2, 0]);
    begin(&heaps);
    drop(heaps.remove(1));
    assert_eq!(off(&heaps), [2, 0]);
    // One of them begins alone, then both again: each gives the other up.
    begin(&heaps);
    heaps[0].abandon_marking();
    // SAFETY: nothing is written.
    unsafe {
        let alone = heaps[0].begin_marking(Reason::Asked, &mut ());
        assert_eq!(alone, Ok(true));
        assert!(!heaps[1].is_marking());
    }
    begin(&heaps);
    // SAFETY: what has a root is used later, and nothing else.
    assert_eq!(unsafe { heaps[1].finish_marking(&mut ()) }, Ok(true));
    assert_eq!(off(&heaps), [1, 0]);
    let stranger = World::new(config()).heap("stranger", usize::MAX);
    // SAFETY: it is refused.
    let refused = unsafe { begin_marking(&[&heaps[0], &stranger], Reason::Asked, &mut ()) };
    assert_eq!(refused, Err(Busy::Strangers));
}

object! {
    struct Node<'gc> {
        next: Slot<Gc<'gc, Node<'gc>>>,
        name: Slot<Sys<'gc, String>>,
        cross: Locked<Vec<CrossEdge<'gc, Node<'static>>>>,
        number: u64,
    }
}

object! {
    struct Bag<'gc> { nodes: Locked<Vec<Gc<'gc, Node<'gc>>>> }
}

fn node<'gc>(cx: Cx<'gc>, number: u64) -> Gc<'gc, Node<'gc>> {
    let node = Node {
        next: Slot::new(None),
        name: Slot::new(None),
        cross: Locked::default(),
        number,
    };
    cx.alloc(node).expect("memory")
}

fn named<'gc>(cx: Cx<'gc>, number: u64) -> Gc<'gc, Node<'gc>> {
    let node = node(cx, number);
    let name = cx.alloc_shared(format!("name {number}")).expect("memory");
    node.name.set(cx, Some(name));
    node
}

fn finish(runtime: &Runtime) {
    let mut slices = 0;
    while runtime.mark_step(edges(3)) != Progress::Off {
        slices += 1;
        assert!(slices < 10_000, "marking does not end");
    }
}

/// A tenant with one named node that is kept, and one that is not.
fn tenant(runtime: &Runtime, name: &str) -> (Tenant, Handle<Node<'static>>) {
    let tenant = runtime.tenant(name, usize::MAX);
    let kept = tenant.enter(|cx| {
        named(cx, 0);
        cx.keep(named(cx, 1), "kept")
    });
    (tenant, kept)
}

fn name_of(tenant: &Tenant, kept: &Handle<Node<'static>>) -> String {
    tenant.enter(|cx| {
        let node = kept.open(cx).expect("its own");
        node.name.get().expect("it has one").get().clone()
    })
}

#[test]
fn a_tenant_that_is_made_meanwhile_joins() {
    let runtime = Runtime::new(config());
    let (first, kept) = tenant(&runtime, "first");
    assert_eq!(runtime.begin_all(Reason::Asked), Ok(true));
    while runtime.mark_step(edges(1)) == Progress::More && !first.heap().is_marking() {}
    // Its edges into the shared heap have no entries.
    let (second, new) = tenant(&runtime, "second");
    assert!(second.heap().is_marking());
    finish(&runtime);
    assert_eq!(second.heap().log().last().expect("one").heaps, 3);
    assert_eq!(name_of(&first, &kept), "name 1");
    assert_eq!(name_of(&second, &new), "name 1");
    let objects = |heap: HeapView<'_>| heap.holds().objects;
    // And the name that was written into a node that was dropped.
    assert_eq!(objects(runtime.shared()), 2 + 1);
    assert_eq!([objects(first.heap()), objects(second.heap())], [1, 1]);
    runtime.shared().check();
    runtime.collect_all(Reason::Asked).expect("at rest");
    assert_eq!(objects(runtime.shared()), 2);
    // From one heap on: it was the only one of its marking.
    let runtime = Runtime::new(config());
    assert_eq!(runtime.begin_all(Reason::Asked), Ok(true));
    let (only, kept) = tenant(&runtime, "only");
    finish(&runtime);
    assert_eq!(name_of(&only, &kept), "name 1");
    assert_eq!(objects(runtime.shared()), 1 + 1);
}

#[test]
fn a_ring_through_tenants_goes_in_slices_while_they_are_used() {
    let runtime = Runtime::new(config());
    let (first, kept) = tenant(&runtime, "first");
    let (second, other) = tenant(&runtime, "second");
    // Each holds the other, and is held by the host until marking has begun.
    first.enter(|cx| {
        let node = kept.open(cx).expect("its own");
        node.cross
            .borrow_mut(cx)
            .push(cx.cross_edge(&other).expect("of this runtime"));
    });
    second.enter(|cx| {
        let node = other.open(cx).expect("its own");
        node.cross
            .borrow_mut(cx)
            .push(cx.cross_edge(&kept).expect("of this runtime"));
    });
    drop((kept, other));
    assert_eq!(runtime.begin_all(Reason::Asked), Ok(true));
    // An edge between tenants that is made meanwhile: the node that it leads to has nothing else, and the one that
    // it lies in is reached by a handle that is new.
    let late: Handle<Node<'static>> = second.enter(|cx| cx.keep(node(cx, 20), "late"));
    let holder: Handle<Node<'static>> = first.enter(|cx| {
        let holder = node(cx, 10);
        holder
            .cross
            .borrow_mut(cx)
            .push(cx.cross_edge(&late).expect("of this runtime"));
        cx.keep(holder, "holder")
    });
    drop(late);
    let mut rounds = 0;
    while runtime.mark_step(edges(3)) != Progress::Off {
        first.enter(|cx| drop(cx.keep::<Node<'static>>(node(cx, rounds), "short")));
        rounds += 1;
        assert!(rounds < 1000);
    }
    assert_eq!(
        runtime.rows().iter().map(|row| row.collections).max(),
        Some(1)
    );
    // At most what was kept for a moment while marking went on.
    assert!(first.heap().holds().objects as u64 <= 1 + rounds);
    assert_eq!(second.heap().holds().objects, 1);
    first.enter(|cx| {
        let holder = holder.open(cx).expect("its own");
        second.enter(|cx| {
            let late = holder.cross.borrow()[0].open(cx).expect("its own").number;
            assert_eq!(late, 20);
        });
    });
    runtime.collect_all(Reason::Asked).expect("at rest");
    assert_eq!(first.heap().holds().objects, 1);
    assert_eq!(runtime.shared().holds().objects, 0);
}

/// An edge between tenants ends when its object is swept, the object that it leads to perhaps long before: no later
/// collection of that one's heap, and no snapshot, may take the edge's entry for a root.
#[test]
fn the_entries_of_what_ended_together_are_no_roots_later() {
    let after = |collect: fn(&Runtime), holder_is_swept_first: bool| {
        let runtime = Runtime::new(config());
        let (first, kept) = tenant(&runtime, "first");
        let (second, other) = tenant(&runtime, "second");
        first.enter(|cx| {
            let node = kept.open(cx).expect("its own");
            node.cross
                .borrow_mut(cx)
                .push(cx.cross_edge(&other).expect("of this runtime"));
        });
        drop((kept, other));
        assert_eq!(second.heap().root_count(), 1);
        collect(&runtime);
        assert_eq!(second.heap().root_count(), 0);
        if holder_is_swept_first {
            first.heap().check();
        }
        assert_eq!(second.heap().holds().objects, 0);
        // Where the node was.
        let new: Handle<Node<'static>> = second.enter(|cx| {
            (0..50).for_each(|number| drop(cx.keep::<Node<'static>>(node(cx, number), "short")));
            cx.keep(named(cx, 1), "new")
        });
        second.collect().expect("at rest");
        assert_eq!(second.heap().holds().objects, 1);
        assert_eq!(second.paths(&[]).expect("at rest").len(), 0);
        assert_eq!(name_of(&second, &new), "name 1");
        // The edge's end is that of its entry, and of no other's.
        first.heap().check();
        assert_eq!(second.heap().root_count(), 1);
        runtime.collect_all(Reason::Asked).expect("at rest");
        assert_eq!(second.heap().holds().objects, 1);
    };
    let at_once = |runtime: &Runtime| runtime.collect_all(Reason::Asked).expect("at rest");
    let sliced = |runtime: &Runtime| {
        assert_eq!(runtime.begin_all(Reason::Asked), Ok(true));
        finish(runtime);
    };
    for swept in [false, true] {
        after(at_once, swept);
        after(sliced, swept);
    }
}

/// What is written into an object whose arena the sweeper may have, while another heap is marked: nothing is asked of
/// that arena. (Under Miri a look at its bits is a race.)
#[test]
fn a_write_beside_the_sweeper_looks_at_nothing_that_it_has() {
    let runtime = Runtime::new(Config::default());
    let (marked, _kept) = tenant(&runtime, "marked");
    let (swept, other) = tenant(&runtime, "swept");
    let holder: Handle<Bag<'static>> = swept.enter(|cx| {
        let bag = || {
            cx.alloc(Bag {
                nodes: Locked::default(),
            })
            .expect("memory")
        };
        (0..5).for_each(|_| assert!(bag().nodes.borrow().is_empty()));
        cx.keep(bag(), "bag")
    });
    // SAFETY: typed objects, written with barriers.
    let begun = unsafe { marked.raw_heap().begin_marking(Reason::Asked, &mut ()) };
    assert_eq!(begun, Ok(true));
    swept.collect().expect("at rest");
    swept.enter(|cx| {
        let bag = holder.open(cx).expect("its own");
        let node = other.open(cx).expect("its own");
        (0..20).for_each(|_| bag.nodes.borrow_mut(cx).push(node));
    });
    while marked.mark_step(edges(3)) != Progress::Off {}
    swept.collect().expect("at rest");
    assert_eq!(swept.heap().holds().objects, 2);
}

#[test]
fn it_ends_where_no_closure_of_any_tenant_runs() {
    let runtime = Runtime::new(config());
    let (first, kept) = tenant(&runtime, "first");
    let (second, other) = tenant(&runtime, "second");
    assert_eq!(runtime.begin_all(Reason::Asked), Ok(true));
    second.enter(|_| {
        while runtime.mark_step(edges(1)) == Progress::More {}
        assert_eq!(first.mark_step(edges(1)), Progress::Ready);
        // SAFETY: it is refused.
        let ended = unsafe { first.raw_heap().finish_marking(&mut ()) };
        assert_eq!(ended, Err(Busy::Entered));
        // New in a heap that no closure is in.
        first.enter(|cx| {
            let node = kept.open(cx).expect("its own");
            node.next.set(cx, Some(named(cx, 5)));
        });
        assert_eq!(runtime.mark_step(edges(0)), Progress::More);
    });
    finish(&runtime);
    assert_eq!(first.heap().holds().objects, 2);
    let names = [name_of(&first, &kept), name_of(&second, &other)];
    assert_eq!(names, ["name 1", "name 1"]);
    assert_eq!(runtime.shared().holds().objects, 3);
}

/// What the heaps of a runtime may hold before something is due.
fn small(floor: usize, slice: u64) -> Config {
    Config {
        growth: Growth {
            floor_bytes: floor,
            ..Growth::TIGHT
        },
        incremental: Some(Incremental {
            slice_edges: slice,
            slice_bytes: 2048,
            ..Incremental::STRESS
        }),
        ..config()
    }
}

#[test]
fn the_shared_heaps_growth_has_all_marked_in_slices() {
    let floor = if cfg!(miri) { 1 << 13 } else { 1 << 16 };
    let runtime = Runtime::new(small(floor, 40));
    let tenants: Vec<Tenant> = (0..3)
        .map(|number| runtime.tenant(&format!("tenant {number}"), usize::MAX))
        .collect();
    let kept: Vec<Handle<Node<'static>>> = tenants
        .iter()
        .map(|tenant| {
            tenant.enter(|cx| {
                let mut list = named(cx, 0);
                for number in 1..20 {
                    let next = named(cx, number);
                    next.next.set(cx, Some(list));
                    list = next;
                }
                cx.keep(list, "list")
            })
        })
        .collect();
    let mut rounds = 0;
    while runtime.shared().collections() < 4 {
        let tenant = &tenants[rounds % 3];
        tenant.enter(|cx| {
            for number in 0..10 {
                cx.alloc_shared(number as u64).expect("memory");
            }
            named(cx, 100);
        });
        rounds += 1;
        assert!(rounds < 100_000, "nothing is collected");
    }
    for collection in runtime.shared().log() {
        assert_eq!((collection.heaps, collection.forced), (4, false));
        assert_eq!(collection.reason, Reason::Growth);
        assert!(collection.slices > 3, "{collection:?}");
    }
    for (tenant, list) in tenants.iter().zip(&kept) {
        tenant.heap().check();
        tenant.enter(|cx| {
            let mut at = list.open(cx).ok();
            let mut left = 20;
            while let Some(node) = at {
                left -= 1;
                assert_eq!(node.number, left);
                assert_eq!(*node.name.get().expect("named"), format!("name {left}"));
                at = node.next.get();
            }
            assert_eq!(left, 0);
        });
    }
}

/// due.D1: the others are not finished in one pause for one that is past its limit. due.D2: nor does a closure of another keep
/// it from being collected.
#[test]
fn one_that_is_past_its_limit_neither_stops_nor_waits_for_the_others() {
    let many: u64 = if cfg!(miri) { 200 } else { 3000 };
    let runtime = Runtime::new(small(1 << 14, 1));
    let large = runtime.tenant("large", usize::MAX);
    let kept: Handle<Node<'static>> = large.enter(|cx| {
        let root = node(cx, 0);
        for number in 0..many {
            let next = node(cx, number);
            next.next.set(cx, root.next.get());
            root.next.set(cx, Some(next));
        }
        cx.keep(root, "list")
    });
    // Many that hold nothing have limits, too.
    let _rest: Vec<Tenant> = (0..40)
        .map(|_| runtime.tenant("idle", usize::MAX))
        .collect();
    let small = runtime.tenant("small", usize::MAX);
    large.collect().expect("at rest");
    assert_eq!(runtime.begin_all(Reason::Asked), Ok(true));
    let round = || {
        small.enter(|cx| {
            for number in 0..20 {
                node(cx, number);
            }
        })
    };
    for _ in 0..many {
        if small.heap().due().is_none() {
            round();
        }
    }
    assert!(small.heap().due().is_some() && small.heap().is_marking());
    let before = small.heap().collections();
    round();
    assert!(small.heap().is_marking(), "a slice was done, and no more");
    assert_eq!(small.heap().collections(), before);
    assert!(large.heap().is_marking());
    // In a closure of another it cannot be finished, and nothing waits for that once nothing is left to follow.
    large.enter(|_| {
        while runtime.mark_step(edges(1000)) == Progress::More {}
        round();
        assert_eq!(small.heap().collections(), before + 1);
        assert_eq!(small.heap().log().last().expect("one").heaps, 1);
    });
    assert!(!large.heap().is_marking(), "it was given up");
    large.collect().expect("at rest");
    assert_eq!(large.heap().holds().objects as u64, 1 + many);
    drop(kept);
    assert_eq!(small.heap().holds().objects, 0);
}
