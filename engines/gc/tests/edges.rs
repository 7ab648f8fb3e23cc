//! A heap of the core at the edges of single calls: how much a poll sweeps, when pages alone make a collection due, when an
//! empty chunk goes.
//!
//! ```text
//!   N arenas, runs, chunks ─► one more call ─► what is counted: cells swept, why a collection is due, megabytes taken
//! ```
//!
//! E1  Nothing runs beside the test, so every figure is exact.
//!
//! Not here: thresholds by themselves (`trigger`'s own tests), resident memory (`shrinking`).

use std::ptr::NonNull;
use std::rc::Rc;

use skinflint_gc::layout::{ARENA_BYTES, MAX_CELL_BYTES};
use skinflint_gc::{
    Config, Finalize, Growth, Heap, Kind, Origin, Reason, Shortage, World, collect,
};

const fn kind(bytes: usize) -> Kind {
    Kind {
        name: || "bytes",
        bytes,
        align: 8,
        trace: None,
        trace_part: None,
        finalize: None,
        finalize_on: Finalize::Nothing,
        origin: Origin::User,
    }
}

/// Two of these fill an arena.
static HALF: Kind = kind(MAX_CELL_BYTES);
static SMALL: Kind = kind(16);
static PAGES: Kind = kind(0);

fn heap(limit_bytes: usize) -> (World, Rc<Heap>) {
    let world = World::new(Config {
        background: false,
        // Nothing is due for growth.
        growth: Growth {
            floor_bytes: 1 << 30,
            ..Growth::TENANT
        },
        ..Config::default()
    });
    let heap = world.heap("edges", limit_bytes);
    (world, heap)
}

/// An object of whole pages.
fn run(heap: &Heap, pages: usize) -> NonNull<u8> {
    // SAFETY: bytes need no values.
    unsafe { heap.alloc_bytes(&PAGES, pages * ARENA_BYTES) }.expect("memory")
}

/// Whether there is room for a cell.
fn cell(heap: &Heap, kind: &'static Kind) -> Result<(), Shortage> {
    // SAFETY: bytes need no values.
    let cell = unsafe { heap.alloc(kind) };
    cell.map(drop).map_err(|error| error.shortage)
}

/// All that there is is garbage, and nothing of it swept.
fn end_all(heap: &Heap) {
    // SAFETY: nothing is used later.
    unsafe { collect(&[heap], Reason::Asked, &mut ()) }.expect("idle");
    assert_eq!(heap.sweep_counts().lazy_cells, 0);
}

#[test]
fn an_allocation_sweeps_nothing_of_other_kinds() {
    let (_world, heap) = heap(usize::MAX);
    assert_eq!((0..400).try_for_each(|_| cell(&heap, &HALF)), Ok(()));
    end_all(&heap);
    assert_eq!(cell(&heap, &SMALL), Ok(()));
    assert_eq!(heap.sweep_counts().lazy_cells, 0);
    assert_eq!(cell(&heap, &HALF), Ok(()));
    let swept = heap.sweep_counts().lazy_cells;
    assert!(swept > 0 && swept <= 2 * 8, "{swept}");
}

#[test]
fn a_run_sweeps_as_many_dead_ones_as_it_has_pages() {
    let (_world, heap) = heap(usize::MAX);
    for _ in 0..8 {
        run(&heap, 3);
    }
    heap.check();
    end_all(&heap);
    for (pages, swept) in [(3, 1), (7, 4), (1, 5)] {
        run(&heap, pages);
        assert_eq!(heap.sweep_counts().lazy_cells, swept, "{pages} pages");
    }
    heap.check();
}

#[test]
fn the_last_byte_of_a_limit_can_be_had_and_none_beyond_it() {
    // The heads of a chunk, and an arena.
    let all = 7 * ARENA_BYTES;
    let (_world, heap) = heap(all);
    assert_eq!(cell(&heap, &HALF), Ok(()));
    assert_eq!(heap.held_bytes(), all);
    // There is room for another in the same arena, and it is refused as long as the client has a byte.
    assert!(!heap.client_bytes(0) && heap.client_bytes(1));
    assert_eq!(cell(&heap, &HALF), Err(Shortage::Limit));
    assert!(!heap.client_bytes(-1));
    assert_eq!(cell(&heap, &HALF), Ok(()));
    assert_eq!(cell(&heap, &HALF), Err(Shortage::Limit), "another arena");
    heap.check();
}

#[test]
fn a_poll_sweeps_sixty_four_arenas_and_the_next_one_the_next() {
    let (_world, heap) = heap(usize::MAX);
    assert_eq!((0..2 * 200).try_for_each(|_| cell(&heap, &HALF)), Ok(()));
    end_all(&heap);
    for (swept, all) in [(128, false), (256, false), (384, false), (400, true)] {
        assert_eq!(heap.poll(), all);
        assert_eq!(heap.sweep_counts().lazy_cells, swept);
    }
    assert_eq!(heap.sweep_counts().pause_cells, 0);
    heap.check();
}

#[test]
fn runs_whose_chunks_come_near_to_the_limit_make_a_collection_due() {
    // A run that fills a chunk takes a megabyte with the heads, of which 24 KiB count as pages only. Seven of these are
    // more than seven eighths of the limit, and their own bytes are not.
    let (_world, heap) = heap((8 << 20) - (32 << 10));
    for _ in 0..6 {
        run(&heap, 250);
        assert_eq!(heap.due(), None);
    }
    run(&heap, 250);
    assert_eq!(
        (heap.due(), heap.held_bytes()),
        (Some(Reason::Growth), 7 << 20)
    );
}

#[test]
fn a_chunk_goes_with_the_last_that_was_in_it_unless_its_room_will_be_wanted() {
    let (world, heap) = heap(usize::MAX);
    let taken = || (world.source().counts().taken, heap.chunk_count());
    let free = |object| {
        // SAFETY: it is this heap's, and freed once.
        unsafe { heap.free(object) };
        heap.settle_freed()
    };
    let (one, two) = (run(&heap, 3), run(&heap, 5));
    assert_eq!((free(one), taken()), (3, (1, 1)), "it has another one");
    assert_eq!((free(two), taken()), (5, (0, 0)));
    let again = run(&heap, 3);
    heap.trim_to(1 << 20);
    assert_eq!((free(again), taken()), (3, (1, 1)), "a megabyte is wanted");
    assert_eq!(heap.trim_to(0), 3 * ARENA_BYTES);
    assert_eq!(taken(), (0, 0));
    heap.check();
}
