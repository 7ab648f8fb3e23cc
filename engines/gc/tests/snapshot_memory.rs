//! What the snapshot writer asks of malloc, counted.
//!
//! ```text
//!   objects of 96 bytes, one with an edge to each ─► Snapshot ─► nowhere        the most it had at once ─► a share of the heap
//! ```
//!
//! M1  One test in this program: what is counted is the thread's own.
//!
//! Not here: time, resident memory, a million objects (`bench/gc/snapshot.py`). Miri has no use for a measurement.
#![cfg(not(miri))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use skinflint_gc::object;
use skinflint_gc::snapshot::Snapshot;
use skinflint_gc::typed::{Gc, Handle, Locked, Runtime};

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
    let set = [tab.heap()];
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
