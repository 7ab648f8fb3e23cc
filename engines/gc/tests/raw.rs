//! The unsafe core as a runtime uses it: ephemerons, roots by counting, and what stress modes find.
//!
//! ```text
//!   kinds by hand ─► alloc ─► collect(set, reason, roots) ─► what is left, what is emptied, what is found wrong
//! ```
//!
//! R1  Kinds of this file begin with a [`Head`].
//!
//! Not here: random graphs (`graph`), the stack (`conservative`'s own tests).

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::rc::Rc;

use skinflint_gc::{
    Config, Finalize, From, Heap, Kind, Origin, Pair, Reason, RootId, Roots, Tracer, World, collect,
};

/// An object: counted as reference-counting runtimes do, with two edges and a pair.
#[repr(C)]
struct Head {
    number: u64,
    /// References, from anywhere.
    count: Cell<u32>,
    /// Of them, those that were found in objects.
    inner: Cell<u32>,
    edges: Cell<[Option<NonNull<Head>>; 2]>,
    pair: Pair,
}

unsafe fn trace(object: NonNull<u8>, tracer: &mut Tracer) {
    // SAFETY: R1.
    let head = unsafe { object.cast::<Head>().as_ref() };
    for edge in head.edges.get().into_iter().flatten() {
        tracer.edge(edge.cast());
    }
    tracer.pair(&head.pair);
}

static KIND: Kind = Kind {
    name: || "head",
    bytes: size_of::<Head>(),
    align: align_of::<Head>(),
    trace: Some(trace),
    trace_part: None,
    finalize: None,
    finalize_on: Finalize::Nothing,
    origin: Origin::User,
};

fn config() -> Config {
    Config {
        background: false,
        verify: true,
        poison: true,
        ..Config::default()
    }
}

fn heap(config: Config) -> Rc<Heap> {
    World::new(config).heap("raw", usize::MAX)
}

fn make(heap: &Heap, number: u64) -> NonNull<Head> {
    // SAFETY: it is written at once.
    unsafe {
        let object = heap.alloc(&KIND).expect("memory").cast::<Head>();
        object.write(Head {
            number,
            count: Cell::new(1),
            inner: Cell::new(0),
            edges: Cell::new([None; 2]),
            pair: Pair::default(),
        });
        object
    }
}

fn keep(heap: &Heap, object: NonNull<Head>) -> RootId {
    // SAFETY: it is alive.
    unsafe { heap.root(object.cast(), From::Host("test")) }
}

fn run(heap: &Heap, roots: &mut dyn Roots) {
    // SAFETY: the tests use what they keep.
    unsafe { collect(&[heap], Reason::Asked, roots) }.expect("no tenant is busy");
    heap.check();
}

fn at<'a>(object: NonNull<Head>) -> &'a Head {
    // SAFETY: the tests look at what they keep.
    unsafe { object.as_ref() }
}

#[test]
fn a_value_lives_with_its_key_and_its_holder() {
    let heap = heap(config());
    let [holder, key, value, beyond] = [0, 1, 2, 3].map(|number| make(&heap, number));
    at(holder).pair.key.set(Some(key.cast()));
    at(holder).pair.value.set(Some(value.cast()));
    at(value).edges.set([Some(beyond), None]);
    let (_holder, with_key) = (keep(&heap, holder), keep(&heap, key));
    run(&heap, &mut ());
    assert_eq!(heap.holds().objects, 4);
    assert_eq!(at(beyond).number, 3);
    // SAFETY: ended once.
    unsafe { heap.unroot(with_key) };
    run(&heap, &mut ());
    assert_eq!(heap.holds().objects, 1);
    assert_eq!(at(holder).pair.key.get(), None);
    assert_eq!(at(holder).pair.value.get(), None);
}

#[test]
fn a_value_that_leads_to_its_own_key_does_not_keep_it() {
    let heap = heap(config());
    let [holder, key, value] = [0, 1, 2].map(|number| make(&heap, number));
    at(holder).pair.key.set(Some(key.cast()));
    at(holder).pair.value.set(Some(value.cast()));
    at(value).edges.set([Some(key), None]);
    keep(&heap, holder);
    run(&heap, &mut ());
    assert_eq!(heap.holds().objects, 1);
}

#[test]
fn a_chain_of_pairs_in_either_order() {
    for backwards in [false, true] {
        let heap = heap(config());
        let count = if cfg!(miri) { 20 } else { 300 };
        let links: Vec<_> = (0..count).map(|number| make(&heap, number)).collect();
        let mut holders: Vec<_> = links
            .windows(2)
            .map(|pair| {
                let holder = make(&heap, 1000);
                at(holder).pair.key.set(Some(pair[0].cast()));
                at(holder).pair.value.set(Some(pair[1].cast()));
                keep(&heap, holder);
                holder
            })
            .collect();
        if backwards {
            holders.reverse();
        }
        let first = keep(&heap, links[0]);
        run(&heap, &mut ());
        assert_eq!(heap.holds().objects, 2 * count as usize - 1);
        // SAFETY: ended once.
        unsafe { heap.unroot(first) };
        run(&heap, &mut ());
        assert_eq!(heap.holds().objects, holders.len());
    }
}

/// Roots by counting, as boa_gc has them: an object that has more references than were found in objects is held from
/// outside. Finalizers run before anything is freed, and may keep what they are for.
struct Counted<'a> {
    heap: &'a Heap,
    all: Vec<NonNull<Head>>,
    finalized: Vec<u64>,
    saved: Option<NonNull<Head>>,
}

impl Counted<'_> {
    fn count_inner(&mut self) {
        self.all.clear();
        self.heap
            .each_object(|object, _| self.all.push(object.cast()));
        self.all.iter().for_each(|&object| at(object).inner.set(0));
        for edge in self.all.iter().flat_map(|&o| at(o).edges.get()).flatten() {
            at(edge).inner.set(at(edge).inner.get() + 1);
        }
    }
}

impl Roots for Counted<'_> {
    fn trace(&mut self, tracer: &mut Tracer) {
        for &object in &self.all {
            if at(object).count.get() > at(object).inner.get() {
                tracer.edge(object.cast());
            }
        }
    }

    fn reached(&mut self, tracer: &mut Tracer) -> bool {
        let dead = |object: &&NonNull<Head>| !tracer.is_reached(object.cast());
        let dead: Vec<_> = self.all.iter().filter(dead).copied().collect();
        let dead: Vec<_> = dead
            .into_iter()
            .filter(|object| !self.finalized.contains(&at(*object).number))
            .collect();
        self.finalized
            .extend(dead.iter().map(|object| at(*object).number));
        // The finalizer of number 3 keeps it.
        self.saved = self
            .saved
            .or(dead.iter().copied().find(|object| at(*object).number == 3));
        if let Some(saved) = self.saved {
            tracer.edge(saved.cast());
        }
        !dead.is_empty()
    }
}

#[test]
fn roots_by_counting_and_finalizers_that_resurrect() {
    let heap = heap(config());
    // 0 is held, 0 -> 1; a cycle 2 <-> 3 that nothing holds, 3 -> 4.
    let objects: Vec<_> = (0..5).map(|number| make(&heap, number)).collect();
    let link = |from: usize, to: usize| {
        let [first, _] = at(objects[from]).edges.get();
        at(objects[from]).edges.set([Some(objects[to]), first]);
    };
    for (from, to) in [(0, 1), (2, 3), (3, 2), (3, 4)] {
        link(from, to);
    }
    let mut roots = Counted {
        heap: &heap,
        all: Vec::new(),
        finalized: Vec::new(),
        saved: None,
    };
    roots.count_inner();
    run(&heap, &mut roots);
    roots.finalized.sort_unstable();
    assert_eq!(
        roots.finalized,
        [2, 3, 4],
        "each once, before anything was freed"
    );
    assert_eq!(heap.holds().objects, 5, "3 was saved, and with it 2 and 4");
    roots.saved = None;
    roots.count_inner();
    run(&heap, &mut roots);
    assert_eq!(heap.holds().objects, 2);
    assert_eq!(at(objects[1]).number, 1);
}

#[test]
fn what_was_taken_and_not_filled_is_no_object() {
    thread_local! {
        static ENDS: Cell<u32> = const { Cell::new(0) };
    }
    unsafe fn end(_: NonNull<u8>) {
        ENDS.set(ENDS.get() + 1);
    }
    static ENDING: Kind = Kind {
        name: || "ending",
        bytes: 24,
        align: 8,
        trace: None,
        trace_part: None,
        finalize: Some(end),
        finalize_on: Finalize::Mutator,
        origin: Origin::User,
    };
    let heap = heap(config());
    for made in 1..=3 {
        // SAFETY: these have no contents.
        unsafe { heap.alloc(&ENDING) }.expect("memory");
        heap.check();
        assert_eq!(heap.holds().objects, made);
    }
    run(&heap, &mut ());
    assert_eq!((heap.holds().objects, ENDS.get()), (0, 3));
}

fn message(act: impl FnOnce()) -> String {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let caught = catch_unwind(AssertUnwindSafe(act)).expect_err("a fault that is found");
    std::panic::set_hook(hook);
    let text = caught.downcast_ref::<String>().cloned();
    text.or(caught.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default()
}

#[test]
fn a_root_that_was_not_told_is_found_at_the_next_allocation() {
    let heap = heap(Config::stress(1));
    let forgotten = make(&heap, 7);
    for _ in 0..3 {
        // SAFETY: it is written at once; what is forgotten is the point of the test.
        let other = unsafe { heap.alloc_or_collect(&KIND, &mut ()) }.expect("memory");
        // SAFETY: as above.
        unsafe { other.cast::<Head>().write(std::mem::zeroed()) };
    }
    // SAFETY: its arena is still the heap's; the cell is free, and poisoned or used again.
    let number = unsafe { (&raw const (*forgotten.as_ptr()).number).read() };
    assert_ne!(number, 7);
}

#[test]
fn a_write_to_what_has_ended_is_found() {
    let heap = heap(config());
    let kept = make(&heap, 1);
    keep(&heap, kept);
    let ended = make(&heap, 2);
    run(&heap, &mut ());
    // SAFETY: its arena is still the heap's, since the kept one lies in it.
    unsafe { (&raw mut (*ended.as_ptr()).number).write(3) };
    let said = message(|| {
        make(&heap, 4);
    });
    assert!(
        said.contains("was written to") && said.contains("kind head"),
        "{said}"
    );
}

#[test]
fn an_edge_to_what_has_ended_is_found() {
    let heap = heap(config());
    let (kept, ended) = (make(&heap, 1), make(&heap, 2));
    keep(&heap, kept);
    run(&heap, &mut ());
    at(kept).edges.set([Some(ended), None]);
    let said = message(|| run(&heap, &mut ()));
    assert!(said.contains("no object of kind head"), "{said}");
    // And one that leads nowhere at all.
    let nowhere = Box::into_raw(Box::new(0u64));
    at(kept).edges.set([NonNull::new(nowhere.cast()), None]);
    let said = message(|| run(&heap, &mut ()));
    assert!(said.contains("in no heap"), "{said}");
    // SAFETY: from `into_raw`.
    drop(unsafe { Box::from_raw(nowhere) });
}

#[test]
fn a_path_names_what_keeps_an_object() {
    let heap = heap(config());
    let objects: Vec<_> = (0..4).map(|number| make(&heap, number)).collect();
    at(objects[0])
        .edges
        .set([Some(objects[1]), Some(objects[2])]);
    at(objects[2]).edges.set([Some(objects[3]), None]);
    keep(&heap, objects[0]);
    let path = heap.path_to(objects[3].cast()).expect("it is alive");
    let addresses: Vec<_> = path.steps.iter().map(|step| step.address).collect();
    let expected = [0, 2, 3].map(|number: usize| objects[number].as_ptr().addr());
    assert_eq!(addresses, expected);
    assert_eq!(
        path.to_string(),
        "handle \"test\" -> head (raw) -> head (raw) -> head (raw)"
    );
    let lost = make(&heap, 9);
    assert_eq!(heap.path_to(lost.cast()), None);
}

#[test]
fn objects_of_any_size() {
    static BYTES: Kind = Kind {
        name: || "bytes",
        bytes: 0,
        align: 1,
        trace: None,
        trace_part: None,
        finalize: None,
        finalize_on: Finalize::Nothing,
        origin: Origin::User,
    };
    let heap = heap(config());
    let mut kept = Vec::new();
    for bytes in [
        0,
        1,
        4096,
        4097,
        500_000,
        512_000,
        1_023_999,
        1_024_000,
        1_024_001,
        5 << 20,
    ] {
        // SAFETY: bytes need no values; the first and the last are written.
        let object = unsafe { heap.alloc_bytes(&BYTES, bytes) }.expect("memory");
        if bytes > 0 {
            // SAFETY: as above.
            unsafe {
                object.write(1);
                object.add(bytes - 1).write(2);
            }
        }
        // SAFETY: it is alive.
        kept.push((
            unsafe { heap.root(object, From::Host("bytes")) },
            object,
            bytes,
        ));
    }
    run(&heap, &mut ());
    assert_eq!(heap.holds().objects, kept.len());
    for (root, object, bytes) in kept {
        if bytes > 1 {
            // SAFETY: it is kept.
            let ends = unsafe { (object.read(), object.add(bytes - 1).read()) };
            assert_eq!(ends, (1, 2), "{bytes}");
        }
        // SAFETY: ended once.
        unsafe { heap.unroot(root) };
        run(&heap, &mut ());
    }
    heap.shrink();
    assert_eq!(heap.holds().held_bytes, 0);
}

/// The example of a whole client holds what it says.
#[cfg(all(not(miri), target_arch = "x86_64"))]
#[path = "../examples/core.rs"]
#[allow(dead_code)] // Its main.
mod example;

#[cfg(all(not(miri), target_arch = "x86_64"))]
#[test]
fn the_example_of_a_client_runs() {
    example::run();
}
