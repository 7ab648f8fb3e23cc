//! Marking while the program runs: barriers, weak cells, guards, bounds, and the record of each collection.
//!
//! ```text
//!   begin ─► slices, and between them a program that hides, moves, makes and drops ─► finish ─► what lives
//! ```
//!
//! S1  Every heap is verified by the second tracer when marking ends, and freed cells are poisoned.
//! S2  Where a test shows that a barrier is needed, its twin without the barrier fails.
//!
//! Not here: random graphs (`graph`, `tenants`).

mod heads;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::rc::Rc;

use skinflint_gc::typed::{Cx, Family, Gc, Handle, Locked, Runtime, Slot, Tenant, Trace, Weak};
use skinflint_gc::{
    Config, Finalize, From, Growth, Heap, Incremental, Progress, Reason, Roots, Tracer, World,
    collect, object,
};

use heads::{Head, at, config, edges, head};

fn heap() -> Rc<Heap> {
    World::new(config()).heap("core", usize::MAX)
}

/// A list from `first` on, and nothing else, is alive.
fn numbers(mut head: &Head) -> Vec<u64> {
    let mut all = vec![head.number];
    while let [Some(next), _] = head.edges.get() {
        // SAFETY: what is led to from a root is alive.
        head = unsafe { next.as_ref() };
        all.push(head.number);
    }
    all
}

/// Root ─► a ─► b ─► c. When only the root is traced, the edge to c moves from b to the root.
fn hide(barrier: impl Fn(&Heap, &Head, &Head)) {
    let heap = heap();
    let c = head(&heap, 3, [None; 2]);
    let b = head(&heap, 2, [Some(at(c)), None]);
    let a = head(&heap, 1, [Some(at(b)), None]);
    let root = head(&heap, 0, [Some(at(a)), None]);
    // SAFETY: a live object of this heap; edges are written with the barrier that is tested.
    unsafe {
        heap.root(at(root).cast(), From::Host("test"));
        assert_eq!(heap.begin_marking(Reason::Asked, &mut ()), Ok(true));
        // The root is told, and followed.
        assert_eq!(heap.mark_step(edges(2)), Progress::More);
        root.edges.set([Some(at(a)), Some(at(c))]);
        barrier(&heap, root, c);
        b.edges.set([None; 2]);
        while heap.mark_step(edges(1)) == Progress::More {}
        assert_eq!(heap.finish_marking(&mut ()), Ok(true));
    }
    assert_eq!(heap.holds().objects, 4);
    heap.check();
    let [_, Some(hidden)] = root.edges.get() else {
        panic!("it was written");
    };
    // SAFETY: it is led to from a root.
    assert_eq!(unsafe { hidden.as_ref() }.number, 3);
}

#[test]
fn either_barrier_finds_what_is_hidden_behind_the_marking() {
    // SAFETY: they are objects of the heap, and alive.
    hide(|heap, _, to| unsafe { heap.barrier(at(to).cast()) });
    // SAFETY: as above.
    hide(|heap, from, _| unsafe { heap.changed(at(from).cast()) });
}

#[test]
fn a_missing_barrier_is_found_by_the_second_tracer() {
    let missing = catch_unwind(|| hide(|_, _, _| ())).expect_err("nothing told it");
    let text = missing.downcast_ref::<String>().expect("a text");
    assert!(text.contains("marking missed"), "{text}");
}

#[test]
fn what_is_made_and_dropped_meanwhile_goes_with_this_collection() {
    let heap = heap();
    let root = head(&heap, 0, [None; 2]);
    // SAFETY: a live object; the barrier is called.
    unsafe {
        heap.root(at(root).cast(), From::Host("test"));
        heap.begin_marking(Reason::Asked, &mut ()).expect("idle");
        heap.mark_step(edges(100));
        for number in 0..1000 {
            let dropped = head(&heap, number, [Some(at(root)), None]);
            if number % 100 == 0 {
                // Its own edge needs no barrier: it is not marked yet.
                let kept = head(&heap, number, [Some(at(dropped)), None]);
                kept.edges.set([Some(at(dropped)), root.edges.get()[0]]);
                root.edges.set([Some(at(kept)), None]);
                heap.barrier(at(kept).cast());
            }
        }
        heap.finish_marking(&mut ()).expect("idle");
    }
    assert_eq!(heap.holds().objects, 1 + 2 * 10);
    heap.check();
}

#[test]
fn pairs_are_followed_in_slices_and_emptied_at_the_end() {
    let heap = heap();
    let root = head(&heap, 0, [None; 2]);
    // SAFETY: live objects, written with barriers.
    unsafe {
        heap.root(at(root).cast(), From::Host("test"));
        // A chain of pairs: each value is the key of the next; then one whose key is not reached.
        let holders: Vec<&Head> = (0..50).map(|n| head(&heap, 100 + n, [None; 2])).collect();
        let keys: Vec<&Head> = (0..51).map(|n| head(&heap, n, [None; 2])).collect();
        for (number, holder) in holders.iter().enumerate().rev() {
            holder.edges.set(root.edges.get());
            root.edges.set([Some(at(holder)), None]);
            holder.pair.key.set(Some(at(keys[number]).cast()));
            holder.pair.value.set(Some(at(keys[number + 1]).cast()));
        }
        let cut = 30;
        let lost = head(&heap, 7, [None; 2]);
        holders[cut].pair.key.set(Some(at(lost).cast()));
        root.edges.set([root.edges.get()[0], Some(at(keys[0]))]);
        heap.begin_marking(Reason::Asked, &mut ()).expect("idle");
        let mut slices = 0;
        while heap.mark_step(edges(3)) == Progress::More {
            slices += 1;
            heap.check();
        }
        assert!(slices > 30, "{slices}");
        assert_eq!(heap.finish_marking(&mut ()), Ok(true));
        // The root, the holders, and the keys before the cut.
        assert_eq!(heap.holds().objects, 1 + 50 + cut + 1);
        for (number, holder) in holders.iter().enumerate() {
            assert_eq!(holder.pair.key.get().is_some(), number < cut);
            assert_eq!(holder.pair.value.get().is_some(), number < cut);
        }
    }
    heap.check();
}

#[test]
fn roots_of_the_client_are_asked_for_at_the_end_again() {
    struct Changing(Vec<NonNull<Head>>, u32);
    impl Roots for Changing {
        fn trace(&mut self, tracer: &mut Tracer) {
            self.1 += 1;
            self.0.iter().for_each(|root| tracer.edge(root.cast()));
        }
    }
    let heap = heap();
    let first = head(&heap, 1, [None; 2]);
    let mut roots = Changing(vec![at(first)], 0);
    // SAFETY: the roots tell all that is used later.
    unsafe {
        heap.begin_marking(Reason::Asked, &mut roots).expect("idle");
        heap.mark_step(edges(10));
        let second = head(&heap, 2, [Some(at(first)), None]);
        let third = head(&heap, 3, [Some(at(second)), None]);
        roots.0 = vec![at(third)];
        heap.finish_marking(&mut roots).expect("idle");
        assert_eq!(numbers(third), [3, 2, 1]);
    }
    // At the beginning, at the end, and for the second tracer.
    assert_eq!(roots.1, 3);
    assert_eq!(heap.holds().objects, 3);
}

#[test]
fn a_slice_follows_no_more_than_its_budget() {
    let heap = World::new(Config {
        background: false,
        ..Config::default()
    })
    .heap("large", usize::MAX);
    let count = if cfg!(miri) { 300 } else { 100_000 };
    let mut list = head(&heap, 0, [None; 2]);
    for number in 1..count {
        list = head(&heap, number, [Some(at(list)), None]);
    }
    // SAFETY: a live object; nothing is written.
    unsafe {
        heap.root(at(list).cast(), From::Host("test"));
        heap.begin_marking(Reason::Asked, &mut ()).expect("idle");
        let mut slices = 0;
        while heap.mark_step(edges(100)) == Progress::More {
            slices += 1;
        }
        // An edge to each object, and the entry of the root.
        assert!(
            slices >= count / 100 && slices <= count / 100 + 2,
            "{slices}"
        );
        heap.finish_marking(&mut ()).expect("idle");
        let log = heap.log();
        let last = log.last().expect("one");
        assert_eq!(last.live_cells, count);
        // Begin, each slice (the last one found nothing more), finish.
        assert_eq!(u64::from(last.slices), 1 + slices + 1 + 1);
        assert!(last.longest_ns <= last.pause_ns && !last.forced);
    }
}

#[test]
fn a_collection_gives_the_marking_up_and_so_does_the_end() {
    let heap = heap();
    let root = head(&heap, 0, [None; 2]);
    // SAFETY: a live object; nothing is written.
    unsafe {
        let id = heap.root(at(root).cast(), From::Host("test"));
        for number in 0..100 {
            head(&heap, number, [Some(at(root)), None]);
        }
        heap.begin_marking(Reason::Asked, &mut ()).expect("idle");
        heap.mark_step(edges(1));
        heap.unroot(id);
        collect(&[&heap], Reason::Asked, &mut ()).expect("idle");
        assert_eq!(heap.progress(), Progress::Off);
        assert_eq!(heap.finish_marking(&mut ()), Ok(false));
        assert_eq!(
            heap.holds().objects,
            0,
            "what was marked before is no more than the rest"
        );
        heap.check();
        head(&heap, 1, [None; 2]);
        heap.begin_marking(Reason::Asked, &mut ()).expect("idle");
        heap.abandon_marking();
        heap.check();
        heap.begin_marking(Reason::Asked, &mut ()).expect("idle");
    }
    drop(heap);
}

/// Nodes of a list that grows.
const MANY: usize = if cfg!(miri) { 20 } else { 200 };

object! {
    struct Node<'gc> {
        next: Slot<Gc<'gc, Node<'gc>>>,
        list: Locked<Vec<Gc<'gc, Node<'gc>>>>,
        weak: Locked<Vec<Weak<'gc, Node<'gc>>>>,
        boxed: Vec<Locked<Vec<Gc<'gc, Node<'gc>>>>>,
        number: u64,
    }
}

fn node<'gc>(cx: Cx<'gc>, number: u64) -> Gc<'gc, Node<'gc>> {
    cx.alloc(Node {
        next: Slot::new(None),
        list: Locked::default(),
        weak: Locked::default(),
        boxed: vec![Locked::default(), Locked::default()],
        number,
    })
    .expect("memory")
}

/// Miri takes a second for what takes a hundred microseconds.
const fn times(times: u64) -> u64 {
    if cfg!(miri) { 1 + times / 8 } else { times }
}

/// Marked by so many edges at each allocation, begun at each eighth.
fn stressed(slice_edges: u64) -> (Runtime, Tenant, Handle<Node<'static>>) {
    let runtime = Runtime::new(Config {
        incremental: Some(Incremental {
            slice_edges,
            ..Incremental::STRESS
        }),
        ..Config::stress(8)
    });
    let tenant = runtime.tenant("stressed", usize::MAX);
    let root = tenant.enter(|cx| cx.keep(node(cx, 0), "root"));
    (runtime, tenant, root)
}

/// Until marking has ended so often.
fn cycles(tenant: &Tenant, times: u64, mut act: impl FnMut(Cx<'_>, u64)) {
    let first = tenant.heap().collections();
    let mut round = 0;
    while tenant.heap().collections() < first + times {
        tenant.enter(|cx| act(cx, round));
        round += 1;
        assert!(round < 100_000, "marking does not end");
    }
}

#[test]
fn a_guard_may_be_held_while_marking_goes_on() {
    let (_runtime, tenant, root) = stressed(1);
    let mut held: u64 = 0;
    cycles(&tenant, times(6), |cx, round| {
        let root = root.open(cx).expect("its own");
        let mut list = root.list.borrow_mut(cx);
        let mut boxed = root.boxed[1].borrow_mut(cx);
        for number in 0..20 {
            // Each of them marks, while both guards are held.
            let new = node(cx, round * 100 + number);
            list.push(new);
            boxed.push(node(cx, number));
            held += u64::from(tenant.heap().is_marking());
        }
        if list.len() > MANY {
            list.clear();
            boxed.truncate(3);
        }
    });
    assert!(held > times(100), "{held}");
    tenant.enter(|cx| {
        let root = root.open(cx).expect("its own");
        for (index, node) in root.list.borrow().iter().enumerate() {
            assert_eq!(node.number % 100, index as u64 % 20);
        }
        assert!(root.boxed[1].borrow().iter().all(|node| node.number < 20));
    });
    tenant.collect().expect("at rest");
    tenant.heap().check();
}

#[test]
fn a_locked_value_outside_of_objects_has_its_barrier() {
    let (_runtime, tenant, root) = stressed(6);
    cycles(&tenant, times(6), |cx, round| {
        let root = root.open(cx).expect("its own");
        // On the stack first, then moved into an object.
        let list: Locked<Vec<Gc<'_, Node<'_>>>> = Locked::default();
        list.borrow_mut(cx).push(node(cx, round));
        let first = list.borrow()[0];
        node(cx, 1);
        let kept = Node {
            next: Slot::new(root.next.get()),
            list,
            weak: Locked::default(),
            boxed: Vec::new(),
            number: round,
        };
        let kept = cx.alloc(kept).expect("memory");
        root.next.set(cx, Some(kept));
        // From the one boxed list into the other, past what was traced.
        let moved = core::mem::take(&mut *root.boxed[0].borrow_mut(cx));
        node(cx, 2);
        root.boxed[1].borrow_mut(cx).extend(moved);
        root.boxed[0].borrow_mut(cx).push(first);
        if round % 50 == 49 {
            root.next.set(cx, None);
            root.boxed[1].borrow_mut(cx).clear();
        }
    });
    tenant.enter(|cx| {
        let root = root.open(cx).expect("its own");
        let mut at = root.next.get();
        while let Some(node) = at {
            assert_eq!(node.list.borrow()[0].number, node.number);
            at = node.next.get();
        }
    });
    tenant.heap().check();
}

#[test]
fn weak_pointers_may_move_and_grow_in_number() {
    let (_runtime, tenant, root) = stressed(1);
    let mut most = 0;
    cycles(&tenant, times(8), |cx, round| {
        let root = root.open(cx).expect("its own");
        let node = node(cx, round);
        let mut weak = root.weak.borrow_mut(cx);
        // The vector moves, with the cells in it.
        weak.push(Weak::to(node));
        if round % 3 == 0 {
            root.list.borrow_mut(cx).push(node);
        }
        let alive = weak.iter().filter_map(Weak::get).count();
        assert!(alive >= root.list.borrow().len());
        most = most.max(weak.len() - alive);
    });
    assert!(most as u64 > times(10), "none was ever emptied");
    tenant.collect().expect("at rest");
    tenant.enter(|cx| {
        let root = root.open(cx).expect("its own");
        for (number, weak) in root.weak.borrow().iter().enumerate() {
            let number = number as u64;
            assert_eq!(
                weak.get().map(|node| node.number),
                number.is_multiple_of(3).then_some(number)
            );
        }
    });
}

#[test]
fn a_marking_that_is_overtaken_is_finished_at_once() {
    let (floor, many) = if cfg!(miri) {
        (4096, 60)
    } else {
        (65536, 3000)
    };
    let growth = Growth {
        floor_bytes: floor,
        ..Growth::TIGHT
    };
    let runtime = Runtime::new(Config {
        growth,
        incremental: Some(Incremental {
            slice_edges: 1,
            slice_bytes: 4096,
            limit: 1.1,
            ..Incremental::STRESS
        }),
        ..config()
    });
    let tenant = runtime.tenant("fast", usize::MAX);
    let mut kept: Vec<Handle<Node<'static>>> = Vec::new();
    for number in 0..many {
        kept.push(tenant.enter(|cx| cx.keep(node(cx, number), "kept")));
    }
    let log = tenant.heap().log();
    assert!(log.iter().any(|c| c.forced), "{log:?}");
    for collection in &log {
        assert_eq!(collection.reason, Reason::Growth);
        // trigger.T4, and what one closure took beyond it.
        let limit = collection.before_bytes as f64;
        assert!(limit <= 1.1 * 1.16 * (collection.live_bytes as f64).max(floor as f64) + 9000.0);
        assert!(collection.pause_ns >= collection.longest_ns);
    }
    assert_eq!(tenant.heap().holds().objects as u64, many);
}

#[test]
fn slices_are_spread_and_end_before_the_threshold() {
    let runtime = Runtime::new(Config {
        incremental: Some(Incremental {
            slice_ns: u64::MAX,
            slice_edges: 2000,
            ..Incremental::DEFAULT
        }),
        ..config()
    });
    let tenant = runtime.tenant("calm", usize::MAX);
    let live = if cfg!(miri) { 100 } else { 20_000 };
    let kept: Handle<Node<'static>> = tenant.enter(|cx| {
        let root = node(cx, 0);
        for number in 0..live {
            let next = node(cx, number);
            next.next.set(cx, root.next.get());
            root.next.set(cx, Some(next));
        }
        cx.keep(root, "root")
    });
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    for _ in 0..rounds {
        tenant.enter(|cx| {
            (0..10).for_each(|number| {
                node(cx, number);
            })
        });
    }
    let log = tenant.heap().log();
    if !cfg!(miri) {
        assert!(log.len() > 3);
        let last = log.last().expect("some");
        assert!(last.slices > 10 && !last.forced, "{last:?}");
    }
    drop(kept);
    tenant.collect().expect("at rest");
    assert_eq!(tenant.heap().holds().objects, 0);
}

#[test]
fn many_handles_are_told_in_slices() {
    let runtime = Runtime::new(config());
    let tenant = runtime.tenant("handles", usize::MAX);
    let count = if cfg!(miri) { 200 } else { 5000 };
    let mut handles: Vec<Handle<u64>> = tenant.enter(|cx| {
        (0..count)
            .map(|n| cx.keep(cx.alloc(n).expect("memory"), "one"))
            .collect()
    });
    // SAFETY: typed objects, written with barriers; it is not used in any other way.
    let heap = unsafe { tenant.raw_heap() };
    // SAFETY: as above.
    unsafe { heap.begin_marking(Reason::Asked, &mut ()) }.expect("idle");
    let mut slices = 0;
    while tenant.mark_step(edges(50)) == Progress::More {
        slices += 1;
        // Old ones go, new ones come.
        handles.swap_remove(slices % handles.len());
        handles.push(tenant.enter(|cx| cx.keep(cx.alloc(0).expect("memory"), "new")));
        assert!(slices < 100_000);
    }
    assert!(slices as u64 >= count / 50);
    assert_eq!(heap.log().last().expect("ended").heaps, 1);
    let alive =
        |handles: &[Handle<u64>]| tenant.enter(|cx| handles.iter().all(|h| h.open(cx).is_ok()));
    assert!(alive(&handles));
    tenant.collect().expect("at rest");
    assert_eq!(heap.holds().objects as u64, count);
}

#[test]
fn nothing_is_marked_or_ended_where_it_must_not_be() {
    let runtime = Runtime::new(config());
    let tenant = runtime.tenant("a", usize::MAX);
    let kept: Handle<Node<'static>> = tenant.enter(|cx| {
        // SAFETY: typed objects, written with barriers.
        let begun = unsafe { tenant.raw_heap().begin_marking(Reason::Asked, &mut ()) };
        assert_eq!(begun, Ok(true));
        let new = node(cx, 1);
        assert_eq!(
            tenant.mark_step(edges(100)),
            Progress::Ready,
            "it may not end here"
        );
        // SAFETY: it is refused.
        let ended = unsafe { tenant.raw_heap().finish_marking(&mut ()) };
        assert_eq!(ended, Err(skinflint_gc::Busy::Entered));
        cx.keep(new, "kept")
    });
    assert_eq!(tenant.mark_step(edges(100)), Progress::Off);
    assert_eq!(tenant.heap().collections(), 1);
    assert_eq!(tenant.enter(|cx| kept.open(cx).expect("its own").number), 1);
    let closing = AssertUnwindSafe(tenant);
    drop(kept);
    assert!(closing.0.end().is_ok());
}

/// A root that is marked and traced before `act` runs in the same closure; then marking ends.
fn after_marking(
    act: impl for<'gc> Fn(&Tenant, Cx<'gc>, Gc<'gc, Node<'gc>>),
) -> (Tenant, Handle<Node<'static>>) {
    let runtime = Runtime::new(config());
    let tenant = runtime.tenant("a", usize::MAX);
    let root = tenant.enter(|cx| cx.keep(node(cx, 0), "root"));
    // SAFETY: typed objects, written with barriers.
    unsafe { tenant.raw_heap().begin_marking(Reason::Asked, &mut ()) }.expect("idle");
    tenant.enter(|cx| {
        while tenant.mark_step(edges(10)) == Progress::More {}
        assert_eq!(tenant.heap().progress(), Progress::Ready);
        act(&tenant, cx, root.open(cx).expect("its own"));
    });
    while tenant.mark_step(edges(10)) != Progress::Off {}
    tenant.heap().check();
    (tenant, root)
}

#[test]
fn each_way_to_write_an_edge_has_its_barrier() {
    let (tenant, root) = after_marking(|_, cx, root| root.next.set(cx, Some(node(cx, 1))));
    let next = |cx: Cx<'_>| {
        root.open(cx)
            .expect("its own")
            .next
            .get()
            .expect("written")
            .number
    };
    assert_eq!(tenant.enter(next), 1);
    let (tenant, root) = after_marking(|tenant, cx, root| {
        let mut list = root.list.borrow_mut(cx);
        list.push(node(cx, 2));
        assert_eq!(
            tenant.heap().progress(),
            Progress::Ready,
            "the guard is not dropped yet"
        );
        drop(list);
        assert_eq!(tenant.heap().progress(), Progress::More);
    });
    let first = |cx: Cx<'_>| root.open(cx).expect("its own").list.borrow()[0].number;
    assert_eq!(tenant.enter(first), 2);
    let (tenant, root) =
        after_marking(|_, cx, root| root.boxed[1].borrow_mut(cx).push(node(cx, 3)));
    let boxed = |cx: Cx<'_>| root.open(cx).expect("its own").boxed[1].borrow()[0].number;
    assert_eq!(tenant.enter(boxed), 3);
    let kept = Cell::new(None);
    let (tenant, _root) =
        after_marking(|_, cx, _| kept.set(Some(cx.keep::<Node<'static>>(node(cx, 4), "new"))));
    let kept = kept.take().expect("kept");
    assert_eq!(tenant.enter(|cx| kept.open(cx).expect("its own").number), 4);
}

/// What a trace function that panics did not tell is unknown: the process ends rather than to free what may be used.
#[test]
#[cfg(not(miri))]
fn a_trace_function_that_panics_ends_the_process() {
    const NAME: &str = "a_trace_function_that_panics_ends_the_process";
    if std::env::var_os("SKINFLINT_TEST_PANIC").is_none() {
        let exe = std::env::current_exe().expect("this test");
        let run = std::process::Command::new(exe)
            .args(["--exact", NAME, "--nocapture"])
            .env("SKINFLINT_TEST_PANIC", "1")
            .output()
            .expect("it starts");
        let text = String::from_utf8_lossy(&run.stderr);
        assert!(!run.status.success());
        assert!(
            text.contains("skinflint-gc: a trace function panicked"),
            "{text}"
        );
        return;
    }
    struct Panics;
    // SAFETY: it has no edges, and breaks the promise not to panic, which is what is tested.
    unsafe impl Trace for Panics {
        const EDGES: bool = true;
        const FINALIZE: Finalize = Finalize::Nothing;
        fn trace(&self, _: &mut Tracer) {
            panic!("no edges are told");
        }
    }
    impl Family for Panics {
        type At<'gc> = Panics;
    }
    let runtime = Runtime::default();
    let tenant = runtime.tenant("a", usize::MAX);
    let _kept: Handle<Panics> =
        tenant.enter(|cx| cx.keep(cx.alloc(Panics).expect("memory"), "root"));
    let _ = tenant.collect();
}
