//! One pointer for each thread, without a call: initial-exec thread-local storage.
//!
//! T1  The pointer is null until the thread first allocates, then its [`Heap`] or that of an entered place (`place`).
//!     Once the thread's destructors have run it is a marker that is no heap (`thread::is_ended`).

use core::arch::{asm, global_asm};

use crate::heap::Heap;

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
