//! Sizes of tables, compared with the requests that they really make.
//!
//! ```text
//!   a global allocator that notes the last request of this thread ◄── HashMap::with_capacity
//! ```
//!
//! Not here: containers with known addresses (size.rs).

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::{HashMap, HashSet, VecDeque};

use skinflint_reporters::published::Published;
use skinflint_reporters::size::{HeapBytes, request};
use skinflint_reporters::{Registry, Sink};

thread_local! {
    static LAST: Cell<usize> = const { Cell::new(0) };
}

struct Noting;

// SAFETY: all is passed on to the system's allocator.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LAST.set(layout.size());
        // SAFETY: as the trait demands of the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static NOTING: Noting = Noting;

#[track_caller]
fn same(made: &impl HeapBytes, asked: usize, what: &str) {
    // glibc gives a block of 16 bytes more where the rest of a free chunk is too small to be one.
    let (made, wanted) = (made.heap_bytes(), request(asked));
    assert!(
        matches!(made.abs_diff(wanted), 0 | 16),
        "{what}: {made}, {wanted}"
    );
}

#[test]
fn what_a_table_asks_for_is_what_is_measured() {
    for capacity in (1..70).chain([100, 500, 1000, 5000]) {
        LAST.set(0);
        let map: HashMap<u64, [u64; 3]> = HashMap::with_capacity(capacity);
        same(&map, LAST.get(), &format!("map {capacity}"));
        LAST.set(0);
        let set: HashSet<u32> = HashSet::with_capacity(capacity);
        same(&set, LAST.get(), &format!("set {capacity}"));
        LAST.set(0);
        let deque: VecDeque<u64> = VecDeque::with_capacity(capacity);
        same(&deque, LAST.get(), &format!("deque {capacity}"));
    }
}

#[test]
fn what_another_thread_published() {
    let registry = Registry::new();
    let published = std::sync::Arc::new(Published::new("tab 1"));
    let _kept = registry.add_shared("tab 1", published.clone());
    assert!(
        registry.measure_reporters().faults()[0]
            .what
            .contains("nothing yet")
    );
    let publish = |bytes: usize| {
        let published = published.clone();
        let work = move || {
            published.publish(|out: &mut Sink<'_>| {
                out.nonheap("explicit/tab", bytes, "Of a thread.");
            });
        };
        std::thread::spawn(work).join().expect("published");
    };
    publish(100);
    publish(4096);
    let measured = registry.measure();
    assert!(measured.faults().is_empty(), "{:?}", measured.faults());
    assert_eq!(measured.sum("explicit/tab"), 4096);
    assert!(
        measured
            .lines()
            .any(|line| line.path == "published-age-ms/tab 1")
    );
    publish(usize::MAX - 5);
    assert!(registry.measure().faults()[0].what.contains("negative"));
}
