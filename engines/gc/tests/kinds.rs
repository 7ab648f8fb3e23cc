//! More kinds than a heap's cache has places: kinds that share a place push each other out.
//!
//! ```text
//!   kinds 0 … 199, in turn ──► 64 places ─► nearly every allocation is of a kind that was pushed out
//!                                            └─► its span is half full: the next cell is out of that one
//! ```
//!
//! L1  A walk over all objects meets those that were made, and each of them is written: a cell of a span that no
//!     allocation filled is no object, whatever the cache holds.
//! L2  Which kinds share a place depends on the address at which the program was loaded. With more kinds than places
//!     some do, at any address.
//!
//! Not here: one kind's cells (`cells`), what ends when (`finalizers`).

use std::cell::Cell;
use std::collections::HashSet;
use std::ptr::NonNull;

use skinflint_gc::layout::ARENA_BYTES;
use skinflint_gc::{Config, Finalize, Heap, Kind, Origin, Reason, World, collect};

const MANY: usize = 200;
const ROUNDS: u64 = if cfg!(miri) { 4 } else { 40 };
const WRITTEN: u64 = 0x5eed_0b1e_c700_0000;

thread_local! {
    static ENDED: Cell<u64> = const { Cell::new(0) };
    static UNWRITTEN: Cell<u64> = const { Cell::new(0) };
}

unsafe fn end(object: NonNull<u8>) {
    // SAFETY: objects of these kinds begin with a word; those that were never written are what is looked for, and their
    // pages are the heap's own.
    let word = unsafe { object.cast::<u64>().read() };
    let count = if word & !0xff_ffff == WRITTEN {
        &ENDED
    } else {
        &UNWRITTEN
    };
    count.set(count.get() + 1);
}

const fn kinds() -> [Kind; MANY] {
    let mut kinds = [const {
        Kind {
            name: || "one of many",
            bytes: 0,
            align: 8,
            trace: None,
            trace_part: None,
            finalize: Some(end),
            finalize_on: Finalize::Mutator,
            origin: Origin::User,
        }
    }; MANY];
    let mut at = 0;
    while at < MANY {
        kinds[at].bytes = 16 + 8 * (at % 64);
        at += 1;
    }
    kinds
}

static KINDS: [Kind; MANY] = kinds();

fn world(poison: bool) -> World {
    World::new(Config {
        background: false,
        poison,
        ..Config::default()
    })
}

/// One of each kind, by turns; their addresses.
fn rounds(heap: &Heap) -> HashSet<NonNull<u8>> {
    let mut made = HashSet::new();
    for round in 0..ROUNDS {
        for (at, kind) in KINDS.iter().enumerate() {
            // SAFETY: it is written at once.
            unsafe {
                let object = heap.alloc(kind).expect("memory");
                let number = round * MANY as u64 + at as u64;
                object.cast::<u64>().write(WRITTEN | number);
                assert!(made.insert(object), "two objects in one cell");
            }
        }
    }
    made
}

/// Arenas that so many objects of each kind need, if no cell is wasted.
fn arenas_needed() -> usize {
    let of_kind = |kind: &Kind| (ROUNDS as usize).div_ceil(ARENA_BYTES / kind.bytes);
    KINDS.iter().map(of_kind).sum()
}

#[test]
fn every_cell_that_is_an_object_was_written() {
    for poison in [false, true] {
        let world = world(poison);
        let heap = world.heap("many", usize::MAX);
        let made = rounds(&heap);
        let mut met = HashSet::new();
        heap.each_object(|object, _| assert!(met.insert(object)));
        // Not by `assert_eq`: it would print them all.
        assert!(met == made, "{} met, {} made", met.len(), made.len());
        let holds = heap.holds();
        assert_eq!(holds.objects, made.len());
        assert_eq!(
            holds.held_bytes - holds.head_bytes,
            arenas_needed() * ARENA_BYTES
        );
        heap.check();
    }
}

#[test]
fn finalizers_meet_no_cell_that_was_not_written() {
    let world = world(false);
    let heap = world.heap("many", usize::MAX);
    let made = rounds(&heap);
    // SAFETY: nothing that was made is used any more.
    unsafe { collect(&[&heap], Reason::Asked, &mut ()) }.expect("no tenant is busy");
    heap.check();
    assert_eq!(heap.holds().objects, 0);
    assert_eq!(
        (ENDED.take(), UNWRITTEN.take()),
        (made.len() as u64, 0),
        "ended, and ended without having been made"
    );
}

#[test]
fn single_cells_of_many_kinds_go_back_to_the_last() {
    let world = world(true);
    let heap = world.heap("many", usize::MAX);
    for object in rounds(&heap) {
        // SAFETY: made above, and freed once.
        unsafe { heap.free(object) };
    }
    heap.settle_freed();
    heap.trim_to(0);
    assert_eq!((heap.held_bytes(), heap.chunk_count()), (0, 0));
}
