//! Sizes in programs whose blocks are not malloc's: no allocator is asked about a block that it did not give.
//!
//! ```text
//!   vec ─► alloc ─► [ 64 bytes of another owner | the block ]      at its start glibc would look for a header
//! ```
//!
//! Not here: programs whose blocks are malloc's (`size`, `tables`), skinflint_alloc (`cache/tests/global_allocator`).

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use skinflint_reporters::size::{HeapBytes, measure_by, request};

const FRONT: usize = 64;
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Counts, with a header in front of each block. To glibc, the word before a block is the size of an endless chunk.
struct Counting;

fn wider(layout: Layout) -> Layout {
    let front = FRONT.max(layout.align());
    Layout::from_size_align(front + layout.size(), layout.align()).unwrap_or(layout)
}

// SAFETY: blocks are System's, from behind a header of a multiple of the alignment.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the trait demands of the caller; what is written lies in the header.
        unsafe {
            let front = FRONT.max(layout.align());
            let start = System.alloc(wider(layout));
            if start.is_null() {
                return start;
            }
            LIVE.fetch_add(layout.size(), Ordering::Relaxed); // ORDER: Relaxed: a statistic
            let block = start.add(front);
            block.cast::<usize>().sub(1).write(usize::MAX & !0b110);
            block.cast::<usize>().sub(2).write(layout.size());
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed); // ORDER: Relaxed: as above
        // SAFETY: as above.
        unsafe { System.dealloc(block.sub(FRONT.max(layout.align())), wider(layout)) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

unsafe fn by_header(block: *const u8) -> usize {
    // SAFETY: every block of this allocator has its size there.
    unsafe { block.cast::<usize>().sub(2).read() }
}

#[test]
fn blocks_of_another_allocator_count_what_was_asked_for() {
    let all = vec![vec![1u8; 100], vec![2u8; 300], Vec::with_capacity(50_000)];
    let wanted = 3 * 24 + 100 + 300 + 50_000;
    assert_eq!(all.heap_bytes(), wanted);
    assert_eq!(request(1000), 1000);
    assert_eq!(String::from("abc").heap_bytes(), 3);
    let shared: std::sync::Arc<[u8]> = vec![0u8; 100].into();
    assert_eq!(shared.heap_bytes(), 120);
    // The program sets the function: then it is asked.
    // SAFETY: each of its blocks has a header.
    unsafe { measure_by(by_header) };
    assert_eq!(all.heap_bytes(), wanted);
    assert_eq!(request(1000), 1000);
}
