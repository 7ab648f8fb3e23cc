//! One pointer for each thread, without a call: initial-exec thread-local storage.
//!
//! T1  The pointer is null until the thread's first event, then its [`ThreadState`] for good.

use core::arch::{asm, global_asm};

use crate::state::ThreadState;

// Rust's own thread_local needs nightly to be initial-exec, and may register destructors.
global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".balign 8",
    ".globl skinflint_thread_state",
    ".hidden skinflint_thread_state",
    ".type skinflint_thread_state,@object",
    ".size skinflint_thread_state,8",
    "skinflint_thread_state:",
    ".zero 8",
    ".popsection",
);

/// Returns this thread's state. Cost: two loads.
#[inline(always)]
pub fn get() -> *mut ThreadState {
    let state: *mut ThreadState;
    // SAFETY: the symbol is ours, eight bytes in the static TLS block, which every thread has.
    unsafe {
        asm!(
            "mov {state}, qword ptr [rip + skinflint_thread_state@GOTTPOFF]",
            "mov {state}, qword ptr fs:[{state}]",
            state = out(reg) state,
            options(nostack, readonly, preserves_flags),
        );
    }
    state
}

/// Sets this thread's state.
#[inline]
pub fn set(state: *mut ThreadState) {
    // SAFETY: as in `get`.
    unsafe {
        asm!(
            "mov {offset}, qword ptr [rip + skinflint_thread_state@GOTTPOFF]",
            "mov qword ptr fs:[{offset}], {state}",
            offset = out(reg) _,
            state = in(reg) state,
            options(nostack, preserves_flags),
        );
    }
}
