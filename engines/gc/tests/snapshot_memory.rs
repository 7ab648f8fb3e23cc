//! Counts of what the snapshot writer allocates by malloc, and of what lists of arenas and counted values keep.
//!
//! ```text
//!   objects of 96 bytes, one with an edge to each ─► Snapshot ─► nowhere        the most at once ─► a share of the heap
//!   arenas by the thousand ─► all of them swept ─► shrink                       what is left of their lists
//! ```
//!
//! M1  Only allocations of the test's own thread are counted.
//!
//! Not here: time, resident memory, a million objects (`bench/gc/snapshot.py`). The tests do not run under
//! Miri, where a measurement means nothing.
#![cfg(not(miri))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use skinflint_gc::cc::Cycles;
use skinflint_gc::snapshot::Snapshot;
use skinflint_gc::typed::{Gc, Handle, Locked, Opaque, Runtime};
use skinflint_gc::{Config, Growth, object};

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: it passes everything on.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        NOW.set(NOW.get() + layout.size() as isize);
        PEAK.set(PEAK.get().max(NOW.get()));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.set(NOW.get() - layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

object! { struct Leaf<'gc> { data: [u64; 12], none: Option<Gc<'gc, u64>> } }
object! { struct Wide<'gc> { leaves: Locked<Vec<Gc<'gc, Leaf<'gc>>>> } }

#[test]
fn a_snapshot_takes_a_hundredth_of_the_heap_however_wide_its_objects_are() {
    const OBJECTS: u64 = 200_000;
    let runtime = Runtime::default();
    let tab = runtime.tenant("tab", usize::MAX);
    let kept: Handle<Wide<'static>> = tab.enter(|cx| {
        let wide = cx
            .alloc(Wide {
                leaves: Locked::default(),
            })
            .unwrap();
        for number in 0..OBJECTS {
            let leaf = Leaf {
                data: [number; 12],
                none: None,
            };
            wide.leaves.borrow_mut(cx).push(cx.alloc(leaf).unwrap());
        }
        let first = wide.leaves.borrow()[0];
        assert_eq!((first.data[0], first.none.is_none()), (0, true));
        cx.keep(wide, "all")
    });
    tab.collect().unwrap();
    let held = tab.heap().holds().cell_bytes as isize;
    // SAFETY: it is only looked at.
    let set = [unsafe { tab.raw_heap() }];
    let before = NOW.get();
    PEAK.set(before);
    let written = Snapshot::of(&set).write(&mut std::io::sink()).unwrap();
    let asked = PEAK.get() - before;
    // One edge of the root, one of the tenant, and those of the wide object.
    assert_eq!(written.edges, OBJECTS + 3);
    assert_eq!(NOW.get(), before, "nothing is kept");
    assert!(
        asked > 0 && asked * 100 < held,
        "{asked} bytes beside {held}"
    );
    drop(kept);
}

/// Ends on its heap's thread, and two of it fill an arena.
struct Half([u64; 256]);

impl Drop for Half {
    fn drop(&mut self) {
        assert_eq!(self.0[255], 7);
    }
}

#[test]
fn a_heap_that_was_shrunk_keeps_no_room_for_lists_of_what_it_had() {
    let runtime = Runtime::new(Config {
        background: false,
        // Nothing is due for growth.
        growth: Growth {
            floor_bytes: 1 << 30,
            ..Growth::TENANT
        },
        ..Config::default()
    });
    let tab = runtime.tenant("tab", usize::MAX);
    let round = |arenas: usize| {
        for _ in 0..2 * arenas {
            tab.enter(|cx| cx.alloc(Opaque(Half([7; 256]))).map(drop))
                .unwrap();
        }
        let full = NOW.get();
        tab.collect().unwrap();
        tab.shrink();
        (full, NOW.get())
    };
    let (_, before) = round(1);
    let (full, after) = round(4000);
    assert_eq!(tab.heap().holds().held_bytes, 0);
    // An entry of eight bytes for each arena, once; a collection's record stays.
    assert!(full - before > 8 * 4000, "{before}, then {full}");
    assert!(after - before < 4000, "{before}, then {after}");
}

#[test]
fn a_counted_value_that_has_ended_leaves_nothing() {
    let cycles = Cycles::new();
    let one = || {
        let cc = cycles.cc([7u64; 32]);
        let weak = cc.downgrade();
        drop(cc);
        drop(weak);
        NOW.get()
    };
    // The list of what is being dropped stays.
    let before = one();
    assert!((0..100).all(|_| one() == before), "{before}");
}
