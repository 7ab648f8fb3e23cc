//! Watching the collections of Boa's own heap from outside: it has no way to be asked.
//!
//! ```text
//!   collect:  count edges ─► mark ─► finalize ─► mark ─► sweep (drops) ─► back to the allocation
//!             ▲ canary's trace_non_roots     finalizer_safe() is false     ▲ first block acquired after that
//!             └──────────────────────────── the pause ─────────────────────┘
//! ```
//!
//! W1  The canary is the thread's first object, and the heap keeps its objects in the order of their birth: its
//!     `trace_non_roots` is the first thing that a collection calls.
//! W2  While the heap sweeps, `boa_gc::finalizer_safe` is false; sweeping acquires no block, and the
//!     allocation that made the collection does, as soon as it is over.
//! W3  A collection that frees nothing has no end that can be seen: it is counted, and not timed.
//! W4  One thread has a heap. The slots are written by it alone.
//!
//! Only the program `skinflint-js-stock-pauses` has this allocator: scores are those of an untouched one.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use boa_gc::{Finalize, Gc, Trace, Tracer};

const OUTSIDE: u8 = 0;
const TRACING: u8 = 1;
const SWEEPING: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(OUTSIDE);
/// By the clock on the wall, and by the thread's processor time.
static BEGAN_NS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// Collections that could not be timed (W3), and pauses for which there was no slot.
static UNTIMED: AtomicU64 = AtomicU64::new(0);
static USED: AtomicUsize = AtomicUsize::new(0);
/// Room for the pauses between two calls of `drain`; stock Boa makes about a hundred collections a minute.
static SLOTS: [[AtomicU64; 2]; 1 << 14] = [const { [const { AtomicU64::new(0) }; 2] }; 1 << 14];
const CLOCKS: [libc::clockid_t; 2] = [libc::CLOCK_MONOTONIC, libc::CLOCK_THREAD_CPUTIME_ID];

/// The first object (W1).
struct Canary;

impl Finalize for Canary {}

// SAFETY: it holds no other object, so nothing need be traced.
unsafe impl Trace for Canary {
    unsafe fn trace(&self, _tracer: &mut Tracer) {}

    unsafe fn trace_non_roots(&self) {
        // ORDER: Relaxed: one thread (W4).
        if STATE.swap(TRACING, Ordering::Relaxed) != OUTSIDE {
            UNTIMED.fetch_add(1, Ordering::Relaxed); // ORDER: as above
        }
        for (place, clock) in BEGAN_NS.iter().zip(CLOCKS) {
            place.store(now_ns(clock), Ordering::Relaxed); // ORDER: as above
        }
    }

    fn run_finalizer(&self) {}
}

/// Makes the canary. To be called before the thread has any other object (W1). It stays for good: a handle that is
/// dropped when the thread ends may find the heap gone.
pub fn begin() {
    std::mem::forget(Gc::new(Canary));
}

/// A forced collection is over.
pub fn end() {
    // ORDER: Relaxed: one thread (W4).
    if STATE.swap(OUTSIDE, Ordering::Relaxed) == OUTSIDE {
        return;
    }
    let slot = USED.fetch_add(1, Ordering::Relaxed); // ORDER: as above
    let Some(places) = SLOTS.get(slot) else {
        UNTIMED.fetch_add(1, Ordering::Relaxed); // ORDER: as above
        return;
    };
    for ((place, began), clock) in places.iter().zip(&BEGAN_NS).zip(CLOCKS) {
        let pause = now_ns(clock).saturating_sub(began.load(Ordering::Relaxed)); // ORDER: as above
        place.store(pause, Ordering::Relaxed); // ORDER: as above
    }
}

/// Brings the pauses into the log.
pub fn drain() {
    let used = USED.swap(0, Ordering::Relaxed).min(SLOTS.len()); // ORDER: Relaxed: one thread (W4)
    for slot in &SLOTS[..used] {
        // ORDER: as above.
        let [wall, cpu] = slot.each_ref().map(|place| place.load(Ordering::Relaxed));
        crate::heap::note_pause(wall, cpu);
    }
}

/// Collections that were not timed (W3).
pub fn untimed() -> u64 {
    UNTIMED.load(Ordering::Relaxed) // ORDER: Relaxed: one thread (W4)
}

fn now_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: C's contract: a clock that Linux has, and room for the answer.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// The C library's allocator, with an eye on the heap.
pub struct Watch;

impl Watch {
    #[inline]
    fn acquired() {
        // ORDER: Relaxed: one thread (W4).
        if STATE.load(Ordering::Relaxed) == SWEEPING && boa_gc::finalizer_safe() {
            end();
        }
    }

    #[inline]
    fn released() {
        // ORDER: Relaxed: one thread (W4).
        if STATE.load(Ordering::Relaxed) == TRACING && !boa_gc::finalizer_safe() {
            STATE.store(SWEEPING, Ordering::Relaxed); // ORDER: as above
        }
    }
}

// SAFETY: every call is the system allocator's own.
unsafe impl GlobalAlloc for Watch {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::acquired();
        // SAFETY: as the trait demands of the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::acquired();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        Self::released();
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}
