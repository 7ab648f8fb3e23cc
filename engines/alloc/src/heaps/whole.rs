//! malloc whole, in assembly: for a function that does nothing else, as the C library's `malloc` and C++'s `operator new`.
//!
//! ```text
//!   malloc_whole!(any, sampled, slow) ─► cmp n ─► heap ─► budget -= n ─► BYTES[n] ─► the section `pop` ─► ret
//!                                          └ any(n)         └ sampled(n, heap)          └ slow(n, heap)
//! ```
//!
//! W1  It does what [`malloc`](super::malloc::malloc) does, which says why. What differs: a request of more than
//!     [`BYTES_MAX`] bytes goes on to `any`, and one of 0 bytes is served like one of 1, but counts as 0.
//! W2  The stack is as at entry throughout, which is all that unwinders need to know. A way out is a jump, with `n` and the
//!     heap where the C calling convention has them.
//!
//! Cost: 20 instructions, where the compiler's code takes 24. What `pop` returns need not be tested, for its way out
//! leaves the function (a block of assembly in a function of the compiler's can have results or ways out, and not both);
//! and the class is found by the byte.
//!
//! The section is `mechanism/section/x86_64.rs`'s `pop` (x86_64.X1 to x86_64.X4): what changes there changes here.
//!
//! aarch64 has a macro of its own, with the same ways out; its section is plain code (`mechanism/section/plain.rs`), and a
//! way out is two branches, since a conditional one reaches a megabyte.
//!
//! Not here: the ways out (`malloc`).

pub use super::malloc::{malloc_any, malloc_sampled, malloc_slow};
pub use crate::mechanism::class::BYTES_MAX;
pub use crate::mechanism::entry::{DEAD_AT, Entry};
pub use crate::mechanism::heap::{BUDGET_AT, Heap};
pub use crate::mechanism::magazine::{BOTTOM_AT, TOP_AT};

/// Offset of an entry's block from the top that it is below.
pub const BLOCK_AT: isize = core::mem::offset_of!(Entry, block) as isize - ENTRY;
/// See [`BLOCK_AT`].
pub const OVERLAY_AT: isize = core::mem::offset_of!(Entry, overlay) as isize - ENTRY;
/// See [`BLOCK_AT`].
pub const BIT_AT: isize = core::mem::offset_of!(Entry, bit) as isize - ENTRY;
/// Bytes of an entry.
pub const ENTRY: isize = size_of::<Entry>() as isize;

/// The body of a naked function of `n: usize` that returns a block (W1). The ways out are functions of the C calling
/// convention: `any(n)`, `sampled(n, heap)` and `slow(n, heap)` (W2).
///
/// A function is naked and exported where it is named, so this is a macro.
#[cfg(target_arch = "x86_64")]
#[macro_export]
#[doc(hidden)]
macro_rules! malloc_whole {
    ($any:path, $sampled:path, $slow:path) => {
        core::arch::naked_asm!(
            ".pushsection __rseq_cs,\"aw\"",
            ".balign 32",
            "70: .long 0, 0",
            ".quad 72f, 74f - 72f, 76f",
            ".popsection",
            ".cfi_startproc",
            "cmp rdi, {bytes_max}",
            "ja {any}",
            "mov rsi, qword ptr [rip + skinflint_thread_heap@GOTTPOFF]",
            "mov rsi, qword ptr fs:[rsi]",
            "sub qword ptr [rsi + {budget}], rdi",
            "js {sampled}",
            "lea rcx, [rip + skinflint_byte_table]",
            "movzx ecx, word ptr [rcx + 2*rdi]",
            "mov rdx, qword ptr [rip + skinflint_section_at]",
            "71: lea r8, [rip + 70b]",
            "mov qword ptr fs:[rdx], r8",
            "72:",
            "mov r8, qword ptr [rsi + rcx + {top}]",
            "cmp r8, qword ptr [rsi + rcx + {bottom}]",
            "jbe {slow}",
            "mov rax, qword ptr [r8 + {block}]",
            "mov r9, qword ptr [r8 + {bit}]",
            "mov r8, qword ptr [r8 + {overlay}]",
            "sub qword ptr [rsi + rcx + {top}], {entry}",
            "74:",
            "xor qword ptr [r8 + {dead}], r9",
            "ret",
            ".cfi_endproc",
            ".pushsection .text.rseq,\"ax\"",
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "76: jmp 71b",
            ".popsection",
            bytes_max = const $crate::whole::BYTES_MAX,
            budget = const $crate::whole::BUDGET_AT,
            top = const $crate::whole::TOP_AT,
            bottom = const $crate::whole::BOTTOM_AT,
            block = const $crate::whole::BLOCK_AT,
            bit = const $crate::whole::BIT_AT,
            overlay = const $crate::whole::OVERLAY_AT,
            entry = const $crate::whole::ENTRY,
            dead = const $crate::whole::DEAD_AT,
            any = sym $any,
            sampled = sym $sampled,
            slow = sym $slow,
        )
    };
}

/// The body of a naked function of `n: usize` that returns a block (W1). The ways out are functions of the C calling
/// convention: `any(n)`, `sampled(n, heap)` and `slow(n, heap)` (W2).
///
/// A function is naked and exported where it is named, so this is a macro.
#[cfg(target_arch = "aarch64")]
#[macro_export]
#[doc(hidden)]
macro_rules! malloc_whole {
    ($any:path, $sampled:path, $slow:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "cmp x0, {bytes_max}",
            "b.hi 71f",
            "adrp x1, :gottprel:skinflint_thread_heap",
            "ldr x1, [x1, :gottprel_lo12:skinflint_thread_heap]",
            "mrs x2, tpidr_el0",
            "ldr x1, [x2, x1]",
            "ldr x3, [x1, {budget}]",
            "subs x3, x3, x0",
            "str x3, [x1, {budget}]",
            "b.mi 72f",
            "adrp x4, skinflint_byte_table",
            "add x4, x4, :lo12:skinflint_byte_table",
            "ldrh w4, [x4, x0, lsl #1]",
            "add x4, x1, x4",
            "ldr x5, [x4, {top}]",
            "ldr x6, [x4, {bottom}]",
            "cmp x5, x6",
            "b.ls 73f",
            "ldur x0, [x5, {block}]",
            "ldur x7, [x5, {bit}]",
            "ldur x8, [x5, {overlay}]",
            "sub x5, x5, {entry}",
            "str x5, [x4, {top}]",
            "ldr x6, [x8, {dead}]",
            "eor x6, x6, x7",
            "str x6, [x8, {dead}]",
            "ret",
            "71: b {any}",
            "72: b {sampled}",
            "73: b {slow}",
            ".cfi_endproc",
            bytes_max = const $crate::whole::BYTES_MAX,
            budget = const $crate::whole::BUDGET_AT,
            top = const $crate::whole::TOP_AT,
            bottom = const $crate::whole::BOTTOM_AT,
            block = const $crate::whole::BLOCK_AT,
            bit = const $crate::whole::BIT_AT,
            overlay = const $crate::whole::OVERLAY_AT,
            entry = const $crate::whole::ENTRY,
            dead = const $crate::whole::DEAD_AT,
            any = sym $any,
            sampled = sym $sampled,
            slow = sym $slow,
        )
    };
}
