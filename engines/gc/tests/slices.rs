//! Marking in slices to its end: what each slice must do, and what no slice may leave to the pause that ends the
//! marking.
//!
//! ```text
//!   begin ─► slice ─► … ─► Ready: everything that is known was followed ─► finish: nothing is left to be traced
//! ```
//!
//! S1  Every heap of the core is verified by the second tracer when marking ends, and freed cells are poisoned.
//!
//! Not here: barriers, bounds, what is recorded (`incremental`); several heaps (`together`); objects in parts (`parts`).

mod heads;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::rc::Rc;

use skinflint_gc::typed::{Cx, Family, Gc, Handle, Locked, Runtime, Trace};
use skinflint_gc::{Budget, Config, Finalize, From, Heap, Kind, Progress, Reason, Tracer, World};

use heads::{Head, at, config, edges, head, head_of};

thread_local! {
    /// Numbers of the heads that were traced.
    static TRACED: RefCell<BTreeSet<u64>> = RefCell::default();
}

unsafe fn noted(object: NonNull<u8>, tracer: &mut Tracer) {
    // SAFETY: objects of the kind are heads.
    unsafe {
        let number = object.cast::<Head>().as_ref().number;
        TRACED.with_borrow_mut(|traced| traced.insert(number));
        heads::trace(object, tracer);
    }
}

static NOTED: Kind = Kind {
    trace: Some(noted),
    ..heads::KIND
};

/// A heap of which the list 0 ─► 1 ─► … is marked; slices of this budget until it is ready.
fn slices_of_a_list(count: u64, budget: Budget) -> u64 {
    let heap = World::new(config()).heap("core", usize::MAX);
    let mut list = head(&heap, 0, [None; 2]);
    for number in 1..count {
        list = head(&heap, number, [Some(at(list)), None]);
    }
    let mut slices = 1;
    // SAFETY: a live object; nothing is written.
    unsafe {
        heap.root(at(list).cast(), From::Host("test"));
        heap.begin_marking(Reason::Asked, &mut ()).expect("idle");
        while heap.mark_step(budget) == Progress::More {
            slices += 1;
            assert!(slices < 10 * count, "slices that do nothing");
        }
        heap.finish_marking(&mut ()).expect("idle");
    }
    assert_eq!(heap.holds().objects as u64, count);
    slices
}

#[test]
fn a_slice_of_no_edges_follows_one_all_the_same() {
    // The root's entry, an edge to each, and a look that finds nothing more.
    assert_eq!(slices_of_a_list(20, edges(1)), 22);
    assert_eq!(slices_of_a_list(20, edges(0)), 22);
}

#[test]
fn a_chain_of_pairs_is_followed_to_its_end_before_marking_is_ready() {
    const PAIRS: u64 = 12;
    let heap = World::new(config()).heap("core", usize::MAX);
    let made = |number| head_of(&NOTED, &heap, number, [None; 2]);
    let root = made(0);
    let keys: Vec<&Head> = (0..=PAIRS).map(|number| made(100 + number)).collect();
    // Told in the worst order: the holder that the chain begins with is the last of the list, so that each look at all
    // of them finds one value.
    for number in 0..PAIRS as usize {
        let holder = made(200 + number as u64);
        holder.pair.key.set(Some(at(keys[number]).cast()));
        holder.pair.value.set(Some(at(keys[number + 1]).cast()));
        holder.edges.set(root.edges.get());
        root.edges.set([Some(at(holder)), None]);
    }
    root.edges.set([root.edges.get()[0], Some(at(keys[0]))]);
    let all: BTreeSet<u64> = (0..1)
        .chain(100..=100 + PAIRS)
        .chain(200..200 + PAIRS)
        .collect();
    // SAFETY: live objects; nothing is written while marking is on.
    unsafe {
        heap.root(at(root).cast(), From::Host("test"));
        heap.begin_marking(Reason::Asked, &mut ()).expect("idle");
        while heap.mark_step(edges(1)) == Progress::More {}
        assert_eq!(TRACED.take(), all, "the rest is left to the last pause");
        heap.finish_marking(&mut ()).expect("idle");
    }
    assert_eq!(heap.holds().objects, all.len());
    heap.check();
}

/// A tree of heads, each of which leads to two that were made later, and a mark stack of one entry: all right children
/// are marked, and their arenas put off.
fn tree_with_a_stack_of_one<'a>(count: usize) -> (Rc<Heap>, &'a Head) {
    let world = World::new(Config {
        mark_stack: Some(1),
        ..config()
    });
    let heap = world.heap("core", usize::MAX);
    let all: Vec<&Head> = (0..count)
        .map(|number| head(&heap, number as u64, [None; 2]))
        .collect();
    for (number, parent) in all.iter().enumerate() {
        let child = |nth: usize| all.get(2 * number + nth).map(|child| at(child));
        parent.edges.set([child(1), child(2)]);
    }
    (heap, all[0])
}

#[test]
fn what_overflows_the_mark_stack_is_traced_by_slices_and_so_is_what_overflows_later() {
    // More than 64 of an arena's 85 cells, in several of them.
    let count = if cfg!(miri) { 170 } else { 1700 };
    let (heap, root) = tree_with_a_stack_of_one(count);
    // SAFETY: live objects; edges are written with the barrier.
    unsafe {
        heap.root(at(root).cast(), From::Host("test"));
        heap.begin_marking(Reason::Asked, &mut ()).expect("idle");
        while heap.mark_step(edges(7)) == Progress::More {}
        // All that was put off is traced; now the second of two edges is, in the same chunk.
        let below = [1, 2].map(|number| at(head(&heap, number, [None; 2])));
        let new = below.map(|below| at(head(&heap, 3, [Some(below), None])));
        root.edges.set(new.map(Some));
        new.iter().for_each(|new| heap.barrier(new.cast()));
        while heap.mark_step(edges(7)) == Progress::More {}
        heap.finish_marking(&mut ()).expect("idle");
    }
    let log = heap.log();
    let last = log.last().expect("one");
    assert!(last.overflows as usize > count / 4, "{}", last.overflows);
    assert_eq!(heap.holds().objects, count + 4);
    heap.check();
}

thread_local! {
    static TOLD: Cell<u32> = const { Cell::new(0) };
}

/// Counts how often its edges are told.
struct Guarded<'gc> {
    list: Locked<Vec<Gc<'gc, u64>>>,
}

// SAFETY: its only field is told, and is what it consists of.
unsafe impl Trace for Guarded<'_> {
    const EDGES: bool = true;
    const FINALIZE: Finalize = <Locked<Vec<Gc<'static, u64>>> as Trace>::FINALIZE;
    fn trace(&self, tracer: &mut Tracer) {
        TOLD.set(TOLD.get() + 1);
        self.list.trace(tracer);
    }
}

impl Family for Guarded<'static> {
    type At<'gc> = Guarded<'gc>;
}

#[test]
fn an_object_whose_guard_has_ended_is_traced_once_more_and_not_in_the_last_pause() {
    // The second tracer would ask it, too.
    let runtime = Runtime::new(Config {
        background: false,
        ..Config::default()
    });
    let tenant = runtime.tenant("a", usize::MAX);
    let kept: Handle<Guarded<'static>> = tenant.enter(|cx| {
        let list = Locked::default();
        cx.keep(cx.alloc(Guarded { list }).expect("memory"), "kept")
    });
    // SAFETY: typed objects, written with barriers.
    unsafe { tenant.raw_heap().begin_marking(Reason::Asked, &mut ()) }.expect("idle");
    tenant.enter(|cx| {
        let object = kept.open(cx).expect("its own");
        let mut guard = object.list.borrow_mut(cx);
        while TOLD.get() == 0 {
            assert_eq!(tenant.mark_step(edges(1)), Progress::More);
        }
        guard.push(cx.alloc(7).expect("memory"));
        drop(guard);
        while tenant.mark_step(edges(1)) == Progress::More {}
        assert_eq!(TOLD.get(), 2, "while it was written, and after that");
    });
    assert_eq!(tenant.heap().progress(), Progress::Ready);
    assert_eq!(tenant.mark_step(edges(1)), Progress::Off);
    assert_eq!(TOLD.get(), 2, "nothing of it was left");
    let first = |cx: Cx<'_>| *kept.open(cx).expect("its own").list.borrow()[0];
    assert_eq!(tenant.enter(first), 7);
}

#[test]
fn nothing_is_marked_while_objects_are_looked_at() {
    let heap = World::new(config()).heap("core", usize::MAX);
    let below = head(&heap, 1, [None; 2]);
    let root = head(&heap, 0, [Some(at(below)), None]);
    // SAFETY: live objects; nothing is written.
    unsafe {
        heap.root(at(root).cast(), From::Host("test"));
        heap.begin_marking(Reason::Asked, &mut ()).expect("idle");
        let mut asked = Vec::new();
        heap.each_object(|_, _| asked.push(heap.mark_step(edges(100))));
        assert_eq!(asked, [Progress::More; 2]);
        assert_eq!(heap.mark_step(edges(100)), Progress::Ready);
        heap.finish_marking(&mut ()).expect("idle");
    }
    // Begin, the one that was not refused, finish.
    assert_eq!(heap.log().last().expect("one").slices, 3);
}

#[cfg(not(miri))]
thread_local! {
    static MARKED: Cell<*const Heap> = const { Cell::new(std::ptr::null()) };
}

#[cfg(not(miri))]
unsafe fn asking(_: NonNull<u8>, _: &mut Tracer) {
    // SAFETY: the heap is there while it is marked.
    let progress = unsafe { (*MARKED.get()).mark_step(edges(1)) };
    panic!("it was answered: {progress:?}");
}

#[cfg(not(miri))]
static ASKING: Kind = Kind {
    trace: Some(asking),
    ..heads::KIND
};

/// What it would be told is half of a slice: the process ends rather than to go on with that.
#[test]
#[cfg(not(miri))]
fn a_trace_function_that_asks_for_a_slice_ends_the_process() {
    const NAME: &str = "a_trace_function_that_asks_for_a_slice_ends_the_process";
    if std::env::var_os("SKINFLINT_TEST_ASKING").is_none() {
        let exe = std::env::current_exe().expect("this test");
        let run = std::process::Command::new(exe)
            .args(["--exact", NAME, "--nocapture"])
            .env("SKINFLINT_TEST_ASKING", "1")
            .output()
            .expect("it starts");
        let text = String::from_utf8_lossy(&run.stderr);
        assert!(
            !run.status.success() && !text.contains("answered"),
            "{text}"
        );
        assert!(
            text.contains("skinflint-gc: a trace function panicked"),
            "{text}"
        );
        return;
    }
    let heap = World::new(Config::default()).heap("core", usize::MAX);
    let root = head_of(&ASKING, &heap, 0, [None; 2]);
    MARKED.set(Rc::as_ptr(&heap));
    // SAFETY: a live object; nothing is written.
    unsafe {
        heap.root(at(root).cast(), From::Host("test"));
        heap.begin_marking(Reason::Asked, &mut ()).expect("idle");
        heap.mark_step(edges(100));
    }
}
