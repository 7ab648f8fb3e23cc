//! Freed blocks wait here before they are used again, so that a write to one is found.
//!
//! ```text
//!   push ──► [ oldest … newest ] ── more than wanted? ──► oldest: unchanged? ──► really freed
//! ```
//!
//! Q1  A block that waits is live to the engine: its slot is not handed out, its pages are not purged.
//! Q2  A small block is filled with [`FILL`] and has a trailer that says freed; a large one has no pages, and touching
//!     it is a fault (`guard`).
//! Q3  At most [`BLOCKS`] wait, with at most the chosen bytes. Blocks larger than half of that do not wait at all. When
//!     the OS refuses memory, none wait.
//!
//! Not here: which blocks are let in (`checks`), large blocks (`guard`).

use skinflint_base::sync::{AtomicPtr, AtomicUsize, Ordering};
use skinflint_base::sys;

use super::fill::{check_unchanged, wipe};
use super::{guard, trailer};
use crate::heaps::fault::{self, Fault};
use crate::heaps::{free, large, tls};
use crate::mechanism::lock::Lock;
use crate::mechanism::map::descriptor;
use crate::mechanism::range::base;
use crate::mechanism::span::{KIND_SMALL, Span};

/// The most blocks that wait: 512 KiB of addresses, touched as they are used.
const BLOCKS: usize = 65_536;
/// The byte that fills a small block that waits.
const FILL: u8 = 0xDB;

/// Guards the ring below.
pub static LOCK: Lock = Lock::new();
static RING: AtomicPtr<usize> = AtomicPtr::new(core::ptr::null_mut());
/// Number of blocks pushed and popped so far.
static PUSHED: AtomicUsize = AtomicUsize::new(0);
static POPPED: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static BYTES_MAX: AtomicUsize = AtomicUsize::new(0);

/// Makes room for the ring. `false`: the OS refuses.
pub fn begin(bytes: usize) -> bool {
    let ring = sys::map_private(BLOCKS * 8).cast();
    RING.store(ring, Ordering::Relaxed); // ORDER: one thread (harden.Y2)
    BYTES_MAX.store(bytes, Ordering::Relaxed); // ORDER: as above
    !ring.is_null()
}

/// Reports whether a block of `bytes` bytes may wait.
pub fn takes(bytes: usize) -> bool {
    // ORDER: set at start.
    bytes <= BYTES_MAX.load(Ordering::Relaxed) / 2
}

/// Makes a small block wait, whose trailer says freed. `false`: it does not.
pub fn push_small(p: *mut u8, size: usize) -> bool {
    if !takes(size) {
        return false;
    }
    // SAFETY: the block is given up, and has this many bytes.
    unsafe { core::ptr::write_bytes(p, FILL, size - trailer::BYTES) };
    push(p, size)
}

/// Makes a block wait, and really frees the oldest ones if there are too many.
pub fn push(p: *mut u8, bytes: usize) -> bool {
    // A signal handler that interrupts code here does without.
    if !LOCK.lock(tls::who()) {
        return false;
    }
    // ORDER: Relaxed throughout: the lock is held.
    let pushed = PUSHED.load(Ordering::Relaxed);
    let mut leaves = 0;
    if pushed - POPPED.load(Ordering::Relaxed) == BLOCKS {
        leaves = pop();
    }
    // SAFETY: the ring has BLOCKS words, under the lock.
    unsafe { *RING.load(Ordering::Relaxed).add(pushed % BLOCKS) = p as usize };
    PUSHED.store(pushed + 1, Ordering::Relaxed); // ORDER: the lock is held
    BYTES.fetch_add(bytes, Ordering::Relaxed); // ORDER: the lock is held
    LOCK.unlock();
    loop {
        if leaves != 0 {
            leave(leaves as *mut u8);
        }
        // ORDER: a look.
        if BYTES.load(Ordering::Relaxed) <= BYTES_MAX.load(Ordering::Relaxed)
            || !LOCK.lock(tls::who())
        {
            return true;
        }
        leaves = pop();
        LOCK.unlock();
    }
}

/// Really frees all blocks that wait. `false`: none did, or this thread is in here already.
pub fn flush() -> bool {
    let mut any = false;
    // Bounded: what other threads push meanwhile may wait.
    for _ in 0..BLOCKS {
        if !LOCK.lock(tls::who()) {
            break;
        }
        let leaves = pop();
        LOCK.unlock();
        if leaves == 0 {
            break;
        }
        leave(leaves as *mut u8);
        any = true;
    }
    any
}

/// Looks at all small blocks that wait, and leaves them there. A signal handler that interrupted code here does without.
pub fn look() {
    if !LOCK.lock(tls::who()) {
        return;
    }
    // ORDER: Relaxed throughout: the lock is held.
    for at in POPPED.load(Ordering::Relaxed)..PUSHED.load(Ordering::Relaxed) {
        // SAFETY: as in `push`.
        let p = unsafe { *RING.load(Ordering::Relaxed).add(at % BLOCKS) };
        let span = span_of(p);
        // ORDER: as in `bytes_of`.
        if span.kind.load(Ordering::Relaxed) == KIND_SMALL {
            check(p as *mut u8, span.size());
        }
    }
    LOCK.unlock();
}

/// Takes the oldest block; 0 if there is none. Runs under the lock.
fn pop() -> usize {
    // ORDER: Relaxed throughout: the lock is held.
    let popped = POPPED.load(Ordering::Relaxed);
    if popped == PUSHED.load(Ordering::Relaxed) {
        return 0;
    }
    // SAFETY: as in `push`.
    let p = unsafe { *RING.load(Ordering::Relaxed).add(popped % BLOCKS) };
    POPPED.store(popped + 1, Ordering::Relaxed); // ORDER: the lock is held
    BYTES.fetch_sub(bytes_of(p), Ordering::Relaxed); // ORDER: the lock is held
    p
}

fn span_of(p: usize) -> &'static Span {
    // SAFETY: blocks that wait are live (Q1), so below the limit.
    unsafe { &*descriptor(p - base()) }
}

fn bytes_of(p: usize) -> usize {
    let span = span_of(p);
    // ORDER: the kind of a live block's descriptor does not change.
    if span.kind.load(Ordering::Relaxed) == KIND_SMALL {
        span.size()
    } else {
        // SAFETY: Q1.
        unsafe { large::find(p as *mut u8).map_or(0, |large| guard::bytes(large)) }
    }
}

/// Really frees a block.
fn leave(p: *mut u8) {
    let span = span_of(p as usize);
    // ORDER: as in `bytes_of`.
    if span.kind.load(Ordering::Relaxed) != KIND_SMALL {
        // SAFETY: Q1; no other thread has it.
        unsafe { guard::leave(p, true) };
        return;
    }
    let size = span.size();
    check(p, size);
    wipe(p, size);
    // SAFETY: Q1: live until now, and no thread uses it.
    unsafe { free::free_checked(p) };
}

/// Looks for what was written to a small block that waits.
fn check(p: *mut u8, size: usize) {
    let inside = size - trailer::BYTES;
    check_unchanged(p, size, inside, FILL);
    if !trailer::is_freed(p, size) {
        fault::report_more(Fault::Written, p, |line| {
            line.add(b", behind byte ");
            line.add_number(inside as u64);
        });
    }
}
