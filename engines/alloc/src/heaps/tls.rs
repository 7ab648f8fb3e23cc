//! One pointer for each thread, without a call: initial-exec thread-local storage.
//!
//! T1  The pointer is null until the thread first allocates, then its [`Heap`] or an entered private one (`private`).
//!     Once the thread's destructors have run it is a marker that is no heap ([`is_ended`]).

use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;

use crate::mechanism::heap::Heap;
use crate::mechanism::lock::{NOBODY, Who};

// Rust's own thread_local needs nightly to be initial-exec, and may register destructors.
global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".balign 8",
    ".globl skinflint_thread_heap",
    ".hidden skinflint_thread_heap",
    ".type skinflint_thread_heap,@object",
    ".size skinflint_thread_heap,8",
    "skinflint_thread_heap:",
    ".zero 8",
    ".popsection",
);

/// Returns this thread's heap. Cost: two loads.
#[inline(always)]
pub fn get() -> *mut Heap {
    let heap: *mut Heap;
    // SAFETY: the symbol is ours, eight bytes in the static TLS block, which every thread has.
    unsafe {
        asm!(
            "mov {heap}, qword ptr [rip + skinflint_thread_heap@GOTTPOFF]",
            "mov {heap}, qword ptr fs:[{heap}]",
            heap = out(reg) heap,
            options(nostack, readonly, preserves_flags),
        );
    }
    heap
}

/// Sets this thread's heap.
#[inline]
pub fn set(heap: *mut Heap) {
    // SAFETY: as in `get`.
    unsafe {
        asm!(
            "mov {offset}, qword ptr [rip + skinflint_thread_heap@GOTTPOFF]",
            "mov qword ptr fs:[{offset}], {heap}",
            offset = out(reg) _,
            heap = in(reg) heap,
            options(nostack, preserves_flags),
        );
    }
}

/// Words up to the end of a heap's `budget`: malloc reads and writes it before any check of the heap.
const MARKER_WORDS: usize = core::mem::offset_of!(Heap, budget) / 8 + 1;

struct Marker(UnsafeCell<[u64; MARKER_WORDS]>);
// SAFETY: only its address and its `budget`, an atomic, are used.
unsafe impl Sync for Marker {}

/// Stands for the heap of a thread whose destructors have run. All zero: its budget is used up, so every
/// call goes the slow way, and no span has it as its owner.
static ENDED: Marker = Marker(UnsafeCell::new([0; MARKER_WORDS]));

/// Reports whether a heap stands for a thread that is ending.
pub fn is_ended(heap: *const Heap) -> bool {
    core::ptr::eq(heap.cast(), ENDED.0.get())
}

/// Makes this thread one whose destructors have run; returns the heap that it had.
pub fn end() -> *mut Heap {
    let last = get();
    set(ENDED.0.get().cast());
    last
}

/// Returns the identity as which this thread takes locks.
pub fn who() -> Who {
    let heap = get();
    // Threads that have ended share one mark for a heap: under that identity, one would take another's lock for its
    // own.
    if heap.is_null() || is_ended(heap) {
        NOBODY
    } else {
        // SAFETY: a thread's heap stays (pool.G4).
        unsafe { (*heap).who() }
    }
}
