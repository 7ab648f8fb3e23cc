//! One pointer for each thread, without a call: initial-exec thread-local storage.
//!
//! T1  Until the thread first allocates the pointer leads to a marker that is no heap, then to its [`Heap`] or an entered
//!     private one (`private`), and once the thread's destructors have run to another marker ([`is_ended`]).
//! T2  Markers have a budget that is used up, so every call goes the slow way: malloc needs no test for a heap. No span has
//!     one as its owner: heaps begin on pages, and markers never do.
//! T3  The loader writes the first marker into each thread's block as it makes it: before a library's code may run.

use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;

use crate::mechanism::heap::Heap;
use crate::mechanism::lock::{NOBODY, Who};

// Rust's own thread_local needs nightly to be initial-exec, and may register destructors.
global_asm!(
    ".pushsection .tdata.skinflint,\"awT\",@progbits",
    ".balign 8",
    ".globl skinflint_thread_heap",
    ".hidden skinflint_thread_heap",
    ".type skinflint_thread_heap,@object",
    ".size skinflint_thread_heap,8",
    "skinflint_thread_heap:",
    ".quad skinflint_markers + {none}",
    ".popsection",
    ".hidden skinflint_markers",
    none = const core::mem::offset_of!(Markers, none),
);

/// Returns this thread's heap; null: it has none yet.
#[inline(always)]
pub fn get() -> *mut Heap {
    let heap = heap_or_marker();
    if is_none(heap) {
        core::ptr::null_mut()
    } else {
        heap
    }
}

/// Returns this thread's heap, or a marker (T1). Cost: two loads.
#[inline(always)]
pub fn heap_or_marker() -> *mut Heap {
    let heap: *mut Heap;
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as below.
    unsafe {
        asm!(
            "adrp {heap}, :gottprel:skinflint_thread_heap",
            "ldr {heap}, [{heap}, :gottprel_lo12:skinflint_thread_heap]",
            "mrs {own}, tpidr_el0",
            "ldr {heap}, [{own}, {heap}]",
            heap = out(reg) heap,
            own = out(reg) _,
            options(nostack, readonly, preserves_flags),
        );
    }
    #[cfg(target_arch = "x86_64")]
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
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as in `get`.
    unsafe {
        asm!(
            "adrp {offset}, :gottprel:skinflint_thread_heap",
            "ldr {offset}, [{offset}, :gottprel_lo12:skinflint_thread_heap]",
            "mrs {own}, tpidr_el0",
            "str {heap}, [{own}, {offset}]",
            offset = out(reg) _,
            own = out(reg) _,
            heap = in(reg) heap,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(target_arch = "x86_64")]
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

/// All zero: a budget that is used up.
type Marker = UnsafeCell<[u64; MARKER_WORDS]>;

/// Stand for heaps. Their alignment keeps them off the beginnings of pages (T2).
#[repr(C, align(128))]
struct Markers {
    before: [u64; 8],
    /// Of a thread that has not allocated yet.
    none: Marker,
    between: [u64; 16 - MARKER_WORDS % 16],
    /// Of a thread whose destructors have run.
    ended: Marker,
}
// SAFETY: only the addresses are used, and the `budget`s, which are atomics.
unsafe impl Sync for Markers {}

const _: () = assert!(core::mem::offset_of!(Markers, none) % 128 == 64);
const _: () = assert!(core::mem::offset_of!(Markers, ended) % 128 == 64);

// By name and hidden, as the range is (`range::RANGE`).
#[unsafe(export_name = "skinflint_markers")]
static MARKERS: Markers = Markers {
    before: [0; 8],
    none: UnsafeCell::new([0; MARKER_WORDS]),
    between: [0; 16 - MARKER_WORDS % 16],
    ended: UnsafeCell::new([0; MARKER_WORDS]),
};

/// Reports whether a heap stands for a thread that has none yet.
#[inline(always)]
pub fn is_none(heap: *const Heap) -> bool {
    core::ptr::eq(heap.cast(), MARKERS.none.get())
}

/// Reports whether a heap stands for a thread that is ending.
pub fn is_ended(heap: *const Heap) -> bool {
    core::ptr::eq(heap.cast(), MARKERS.ended.get())
}

/// Makes this thread one whose destructors have run; returns the heap that it had.
pub fn end() -> *mut Heap {
    let last = get();
    set(MARKERS.ended.get().cast());
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
