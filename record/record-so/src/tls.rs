//! A pointer and a number for each thread, without a call: initial-exec thread-local storage.
//!
//! T1  The pointer is null until the thread's first event, then its [`ThreadState`] for good.
//! T2  The number is the thread's budget of bytes until its next sample (samples.V1): 0 until its first event.

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
    ".globl skinflint_thread_budget",
    ".hidden skinflint_thread_budget",
    ".type skinflint_thread_budget,@object",
    ".size skinflint_thread_budget,8",
    "skinflint_thread_budget:",
    ".zero 8",
    ".popsection",
);

/// Returns this thread's state. Cost: two loads.
#[inline(always)]
pub fn get() -> *mut ThreadState {
    let state: *mut ThreadState;
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as below.
    unsafe {
        asm!(
            "adrp {state}, :gottprel:skinflint_thread_state",
            "ldr {state}, [{state}, :gottprel_lo12:skinflint_thread_state]",
            "mrs {own}, tpidr_el0",
            "ldr {state}, [{own}, {state}]",
            state = out(reg) state,
            own = out(reg) _,
            options(nostack, readonly, preserves_flags),
        );
    }
    #[cfg(target_arch = "x86_64")]
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
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as in `get`.
    unsafe {
        asm!(
            "adrp {offset}, :gottprel:skinflint_thread_state",
            "ldr {offset}, [{offset}, :gottprel_lo12:skinflint_thread_state]",
            "mrs {own}, tpidr_el0",
            "str {state}, [{own}, {offset}]",
            offset = out(reg) _,
            own = out(reg) _,
            state = in(reg) state,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(target_arch = "x86_64")]
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

/// Returns where this thread's budget is (T2); only this thread may use it. Cost: two loads and an addition.
#[inline(always)]
pub fn budget() -> *mut i64 {
    let place: *mut i64;
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as in `get`.
    unsafe {
        asm!(
            "adrp {place}, :gottprel:skinflint_thread_budget",
            "ldr {place}, [{place}, :gottprel_lo12:skinflint_thread_budget]",
            "mrs {own}, tpidr_el0",
            "add {place}, {own}, {place}",
            place = out(reg) place,
            own = out(reg) _,
            options(nostack, readonly, preserves_flags),
        );
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as in `get`; the word at fs:0 is its own address.
    unsafe {
        asm!(
            "mov {place}, qword ptr fs:[0]",
            "add {place}, qword ptr [rip + skinflint_thread_budget@GOTTPOFF]",
            place = out(reg) place,
            options(nostack, readonly),
        );
    }
    place
}
