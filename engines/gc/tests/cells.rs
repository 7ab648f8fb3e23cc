//! A heap whose client frees objects itself and marks in steps.
//!
//! ```text
//!   a model: addresses that are alive, each filled with a word of its own ─► free some, settle, allocate again ─► the same?
//! ```
//!
//! Freed cells are poisoned, so a cell that is given out twice shows at the next allocation or by its word.
//!
//! Not here: collections (`raw`).

use std::collections::BTreeMap;
use std::ptr::NonNull;

use skinflint_gc::layout::ARENA_BYTES;
use skinflint_gc::{
    Config, Finalize, Heap, Kind, Origin, World, heap_number, is_marked, mark, unmark,
};

const fn kind(bytes: usize) -> Kind {
    Kind {
        name: || "cell",
        bytes,
        align: 8,
        trace: None,
        trace_part: None,
        finalize: None,
        finalize_on: Finalize::Nothing,
        origin: Origin::User,
    }
}

static KINDS: [Kind; 3] = [kind(16), kind(104), kind(2048)];
static PAGES: Kind = kind(0);

fn world() -> World {
    World::new(Config {
        background: false,
        poison: true,
        ..Config::default()
    })
}

/// An object with its number in its first word.
fn object(heap: &Heap, kind: usize, number: u64) -> NonNull<u8> {
    // SAFETY: it is written at once.
    unsafe {
        let object = match KINDS.get(kind) {
            Some(kind) => heap.alloc(kind),
            None => heap.alloc_bytes(&PAGES, 3 * ARENA_BYTES),
        };
        let object = object.expect("memory");
        object.cast::<u64>().write(number);
        object
    }
}

#[test]
fn freed_cells_are_used_again_and_nothing_else_is_touched() {
    let world = world();
    let heap = world.heap("cells", usize::MAX);
    let mut alive: BTreeMap<u64, NonNull<u8>> = BTreeMap::new();
    let mut random = 7_u64;
    let mut most = 0;
    let (count, most_alive, settled) = if cfg!(miri) {
        (100, 40, 30)
    } else {
        (60_000, 500, 400)
    };
    for number in 0..count {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        alive.insert(number, object(&heap, (random >> 33) as usize % 4, number));
        while alive.len() > most_alive {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let from = number - (random >> 33) % (most_alive as u64 + 100).min(number + 1);
            let Some((&old, _)) = alive.range(from..).next() else {
                continue;
            };
            let gone = alive.remove(&old).expect("there");
            // SAFETY: written above, and freed once.
            unsafe {
                assert_eq!(gone.cast::<u64>().read(), old);
                assert_eq!(heap_number(gone), heap.id());
                heap.free(gone);
            }
        }
        if number % settled == settled - 1 {
            heap.settle_freed();
            heap.check();
            let holds = heap.holds();
            assert_eq!(holds.objects, alive.len());
            most = most.max(holds.held_bytes);
        }
    }
    assert!(most < 8 << 20, "{most} bytes for 500 objects");
    for (number, object) in alive {
        // SAFETY: as above.
        unsafe {
            assert_eq!(object.cast::<u64>().read(), number);
            heap.free(object);
        }
    }
    heap.settle_freed();
    heap.trim_to(0);
    assert_eq!((heap.held_bytes(), heap.chunk_count()), (0, 0));
    heap.check();
}

#[test]
#[should_panic(expected = "W2: marked between collections")]
fn a_mark_that_is_left_is_found_by_the_check() {
    let world = world();
    let heap = world.heap("marks", usize::MAX);
    let one = object(&heap, 1, 7);
    heap.check();
    // SAFETY: an object of this heap, which is used by single cells.
    assert!(unsafe { mark(one) });
    heap.check();
}

#[test]
fn what_is_not_marked_is_told_and_marks_are_taken_away() {
    let world = world();
    let heap = world.heap("marks", usize::MAX);
    let count = if cfg!(miri) { 40 } else { 1000 };
    let objects: Vec<_> = (0..count).map(|n| object(&heap, n % 4, n as u64)).collect();
    // SAFETY: objects of this heap, which is used by single cells.
    unsafe {
        for object in objects.iter().step_by(3) {
            assert!(mark(*object) && !mark(*object) && is_marked(*object));
        }
        unmark(objects[3]);
        assert!(!is_marked(objects[3]));
        // A freed one is reported by no object, marked or not.
        heap.free(objects[6]);
        heap.free(objects[7]);
    }
    let expected = |n: &usize| (!n.is_multiple_of(3) || *n == 3) && *n != 7;
    let expected: Vec<_> = (0..count).filter(expected).map(|n| objects[n]).collect();
    let sorted = |mut objects: Vec<NonNull<u8>>| {
        objects.sort();
        objects
    };
    let mut told = Vec::new();
    heap.each_unmarked(|object| told.push(object));
    assert_eq!(sorted(told), sorted(expected.clone()));
    let mut taken = Vec::new();
    heap.take_unmarked(|object| taken.push(object));
    assert_eq!(sorted(taken), sorted(expected));
    // SAFETY: as above.
    assert!(objects.iter().all(|object| unsafe { !is_marked(*object) }));
    heap.settle_freed();
    heap.check();
}
