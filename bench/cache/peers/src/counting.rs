//! The system's allocator, with every call counted.
//!
//! ```text
//!   alloc, realloc ─► calls, cumulative bytes: requested, given        live: requested, usable; the most of usable
//! ```
//!
//! C1  Counts are exact for one thread; the benches use one.
//!
//! Not here: whose calls they are.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// The allocator.
pub struct Counting;

static ALLOCS: AtomicI64 = AtomicI64::new(0);
static REALLOCS: AtomicI64 = AtomicI64::new(0);
static MOVED: AtomicI64 = AtomicI64::new(0);
static CUMULATIVE: AtomicI64 = AtomicI64::new(0);
static GIVEN: AtomicI64 = AtomicI64::new(0);
static REQUESTED: AtomicI64 = AtomicI64::new(0);
static USABLE: AtomicI64 = AtomicI64::new(0);
static MOST: AtomicI64 = AtomicI64::new(0);

/// Figures at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Calls of alloc.
    pub allocs: i64,
    /// Calls of realloc that got a block.
    pub reallocs: i64,
    /// Of these, those whose block moved.
    pub moved: i64,
    /// Requested by all calls.
    pub cumulative: i64,
    /// Usable bytes of the blocks that all calls gave.
    pub given: i64,
    /// Requested bytes of live blocks.
    pub requested: i64,
    /// Usable bytes of live blocks.
    pub usable: i64,
}

/// The figures now.
pub fn counts() -> Counts {
    // ORDER: one thread (C1).
    Counts {
        allocs: ALLOCS.load(Relaxed),
        reallocs: REALLOCS.load(Relaxed),
        moved: MOVED.load(Relaxed),
        cumulative: CUMULATIVE.load(Relaxed),
        given: GIVEN.load(Relaxed),
        requested: REQUESTED.load(Relaxed), // ORDER: as above
        usable: USABLE.load(Relaxed),       // ORDER: as above
    }
}

/// The most usable bytes since the last call, less what is usable now taken as the new beginning.
pub fn most_since() -> i64 {
    MOST.swap(USABLE.load(Relaxed), Relaxed) // ORDER: one thread
}

/// Counts a block that lives now (1), or no longer (−1); `is_new`: by a call that gave it.
fn lives(block: *mut u8, requested: usize, sign: i64, is_new: bool) {
    if block.is_null() {
        return;
    }
    // SAFETY: a live block of the C library's malloc, which System is.
    let usable = unsafe { libc::malloc_usable_size(block.cast()) } as i64;
    if is_new {
        GIVEN.fetch_add(usable, Relaxed); // ORDER: one thread
    }
    REQUESTED.fetch_add(sign * requested as i64, Relaxed); // ORDER: one thread, here and below
    let now = USABLE.fetch_add(sign * usable, Relaxed) + sign * usable; // ORDER: as above
    MOST.fetch_max(now, Relaxed); // ORDER: as above
}

// SAFETY: all of it is System's work; counting does not touch blocks.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let block = unsafe { System.alloc(layout) };
        ALLOCS.fetch_add(1, Relaxed); // ORDER: one thread
        CUMULATIVE.fetch_add(layout.size() as i64, Relaxed); // ORDER: one thread
        lives(block, layout.size(), 1, true);
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        lives(block, layout.size(), -1, false);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        lives(block, layout.size(), -1, false);
        // SAFETY: as the caller promises.
        let new = unsafe { System.realloc(block, layout, size) };
        match new.is_null() {
            true => lives(block, layout.size(), 1, false),
            false => {
                REALLOCS.fetch_add(1, Relaxed); // ORDER: one thread
                MOVED.fetch_add(i64::from(new != block), Relaxed); // ORDER: one thread
                CUMULATIVE.fetch_add(size as i64, Relaxed); // ORDER: one thread
                lives(new, size, 1, true);
            }
        }
        new
    }
}
