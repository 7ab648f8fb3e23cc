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
//! The section is `mechanism/section/x86_64.rs`'s `pop` (x86_64.X1 to x86_64.X4): what changes there changes here. Another
//! architecture has the compiler's code until it has such a macro of its own.
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
