//! What ended objects held outside of the heap is freed by another thread: strings, array buffers, tables of maps.
//!
//! ```text
//!   the engine's thread ends an object ─► dealloc ─► hand ─► waiting │ rung when the pause is over ─► [skinflint-free] ─► freed
//!                                                      └─ too many wait, or too small: freed at once
//! ```
//!
//! F1  The engine's objects are dropped where they were made: they count each other, and their strings, without atomics.
//!     What a drop frees is plain memory by then; which thread gives it back makes no difference to it.
//! F2  At most [`MOST`] blocks and [`MOST_BYTES`], or one block that is larger, wait; beyond that the engine's thread frees itself, so that memory which
//!     could be used again does not pile up.
//! F3  The other thread is rung when a pause or slice is over ([`ring`]), not in it. It sleeps while nothing waits.
//! F4  Nothing is allocated where a block is handed over: the list has its room from the start.
//! F5  What waits counts as free: the count that triggers collections (`counted`) is the engine's thread's alone.
//!
//! Not here: which objects end, and when (`shims/boa_gc`).

use std::alloc::Layout;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

/// Blocks that may wait (F2).
pub const MOST: usize = 1 << 12;
/// Bytes that may wait (F2): an eighth of the least that a tab of the engine holds.
pub const MOST_BYTES: usize = 2 << 20;
/// Waiting blocks from which on it is worth to wake the other thread.
const WORTH: usize = 256;

#[derive(Clone, Copy, PartialEq)]
enum Role {
    Other,
    Engine,
    Frees,
}

thread_local! {
    static ROLE: Cell<Role> = const { Cell::new(Role::Other) };
}

struct Block(*mut u8, Layout);

// SAFETY: F1: a block that nothing uses.
unsafe impl Send for Block {}

struct Waiting {
    blocks: Vec<Block>,
    bytes: usize,
    least: usize,
    rung: bool,
}

static WAITING: Mutex<Waiting> = Mutex::new(Waiting {
    blocks: Vec::new(),
    bytes: 0,
    least: usize::MAX,
    rung: false,
});
static CHANGED: Condvar = Condvar::new();

/// By thread: blocks and bytes by the engine's thread, blocks and bytes by the other one.
static COUNTS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// What ended objects held outside of the heap: which thread freed it.
#[derive(Serialize, Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Blocks that the engine's thread freed as it ended objects.
    pub blocks_here: u64,
    /// Their bytes, as asked for.
    pub bytes_here: u64,
    /// Blocks that the other thread freed.
    pub blocks_elsewhere: u64,
    /// Their bytes, as asked for.
    pub bytes_elsewhere: u64,
}

/// Returns the counts so far.
pub fn counts() -> Counts {
    let [blocks_here, bytes_here, blocks_elsewhere, bytes_elsewhere] =
        [0, 1, 2, 3].map(|at| COUNTS[at].load(Ordering::Relaxed)); // ORDER: Relaxed: counts
    Counts {
        blocks_here,
        bytes_here,
        blocks_elsewhere,
        bytes_elsewhere,
    }
}

fn count(at: usize, bytes: usize) {
    // ORDER: Relaxed: counts, and each is written by one thread only: no one operation.
    let add = |at: usize, more: u64| {
        COUNTS[at].store(COUNTS[at].load(Ordering::Relaxed) + more, Ordering::Relaxed);
    };
    add(at, 1);
    add(at + 1, bytes as u64);
}

fn lock() -> MutexGuard<'static, Waiting> {
    // No code under the lock unwinds half-way.
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says that this thread is the engine's; `least`: smaller blocks are freed here, and all of them where it is `None`.
pub fn begin(least: Option<usize>) {
    ROLE.set(Role::Engine);
    let Some(least) = least else { return };
    let started = std::thread::Builder::new()
        .name("skinflint-free".to_owned())
        .spawn(run);
    // Without the thread nothing is handed over.
    if started.is_ok() {
        let room = Vec::with_capacity(MOST);
        let mut waiting = lock();
        waiting.blocks = room;
        waiting.least = least;
    }
}

fn run() {
    ROLE.set(Role::Frees);
    let mut mine = Vec::with_capacity(MOST);
    loop {
        let mut waiting = lock();
        while !waiting.rung || waiting.blocks.is_empty() {
            let waited = CHANGED.wait(waiting);
            waiting = waited.unwrap_or_else(PoisonError::into_inner);
        }
        waiting.rung = false;
        waiting.bytes = 0;
        std::mem::swap(&mut waiting.blocks, &mut mine);
        drop(waiting);
        for Block(block, layout) in mine.drain(..) {
            count(2, layout.size());
            // SAFETY: F1: `hand` was given it to be freed, with its layout, and nothing else frees it.
            unsafe { std::alloc::dealloc(block, layout) };
        }
    }
}

/// Reports whether this thread frees what was handed over, which is counted already (F5).
#[inline]
pub fn is_beside() -> bool {
    ROLE.get() == Role::Frees
}

/// Takes a block that the engine's thread frees while it ends an object; otherwise, or where too many wait, `false`: the
/// caller frees it. Cost elsewhere: two loads of thread-locals.
///
/// # Safety
/// Nothing else frees it, and it was allocated by the global allocator with this layout.
#[inline]
pub unsafe fn hand(block: *mut u8, layout: Layout) -> bool {
    ROLE.get() == Role::Engine && !boa_gc::finalizer_safe() && hand_over(block, layout)
}

#[cold]
#[inline(never)]
fn hand_over(block: *mut u8, layout: Layout) -> bool {
    let size = layout.size();
    let mut waiting = lock();
    let fits = waiting.blocks.len() < waiting.blocks.capacity()
        && (waiting.bytes == 0 || waiting.bytes + size <= MOST_BYTES);
    if size < waiting.least || !fits {
        drop(waiting);
        count(0, size);
        return false;
    }
    waiting.blocks.push(Block(block, layout));
    waiting.bytes += size;
    true
}

/// Rings the other thread, if much waits (F3); `all`: if anything does.
pub fn ring(all: bool) {
    let mut waiting = lock();
    let worth = waiting.blocks.len() >= WORTH || waiting.bytes >= MOST_BYTES / 4;
    if worth || (all && !waiting.blocks.is_empty()) {
        waiting.rung = true;
        drop(waiting);
        CHANGED.notify_one();
    }
}

#[cfg(all(test, feature = "ours"))]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_handed_over_while_objects_end_and_within_bounds() {
        begin(Some(100));
        let of = |bytes: usize| Layout::from_size_align(bytes, 8).expect("a layout");
        // SAFETY: nothing is freed: a block that `hand` takes is written to the list, which is emptied below.
        let handed = |bytes: usize| unsafe { hand(std::ptr::null_mut(), of(bytes)) };
        assert!(!handed(1000), "no object ends");
        // Whoever asks for a block of an object that ends comes here.
        let over = |bytes: usize| hand_over(std::ptr::null_mut(), of(bytes));
        let before = counts();
        assert!(!over(99), "too small");
        assert!(over(100) && over(MOST_BYTES - 100));
        assert!(!over(100), "the bytes that may wait");
        lock().blocks.clear();
        lock().bytes = 0;
        assert!(over(MOST_BYTES * 2), "one that is larger than all may be");
        assert!(!over(100));
        lock().blocks.clear();
        lock().bytes = 0;
        let taken = (0..=MOST).filter(|_| over(100)).count();
        assert_eq!(taken, MOST.min(MOST_BYTES / 100));
        // Before the other thread is rung: none of these is a block.
        lock().blocks.clear();
        lock().bytes = 0;
        let after = counts();
        assert!(after.blocks_here > before.blocks_here + 2);
        let layout = of(5000);
        // SAFETY: a block of this layout, handed over once.
        let block = unsafe { std::alloc::alloc(layout) };
        assert!(hand_over(block, layout));
        ring(true);
        // CLOCK: none: it ends when the other thread has freed it, which it is rung for.
        while counts().bytes_elsewhere < 5000 {
            std::thread::yield_now();
        }
        assert!(lock().blocks.is_empty());
        ROLE.set(Role::Other);
    }
}
