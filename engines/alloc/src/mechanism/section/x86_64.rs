//! The two sections on x86-64.
//!
//! ```text
//!   71  arm             75  (out of line) nothing to pop        __rseq_cs   [ 0, 0, from 72, length, abort 76 ]
//!   72  the section     76  (out of line) abort: again from 71
//!   74  behind it
//! ```
//!
//! X1  A section is restarted from 71 with its inputs as they were: it writes none of their registers.
//! X2  No call, no system call, no push in a section.
//! X3  Four bytes before the abort stands the signature that the C library registers (0x53053053), as a part of an
//!     instruction that disassemblers know; sections and descriptors lie where tools look for them (`.text.rseq`,
//!     `__rseq_cs`).
//! X4  The store that counts is one addition to `top` in its place: an interrupt comes before it or after it.
//!
//! Cost beside plain code: three instructions to arm, one fewer to move `top`.

use core::arch::asm;

use super::super::entry::{DEAD_AT, Entry};
use super::super::magazine::{BOTTOM_AT, END_AT, TOP_AT};

const BLOCK_AT: usize = core::mem::offset_of!(Entry, block);
const OVERLAY_AT: usize = core::mem::offset_of!(Entry, overlay);
const BIT_AT: usize = core::mem::offset_of!(Entry, bit);
const ENTRY: usize = size_of::<Entry>();

/// Text around the instructions of a section. Numeric labels from 70 on: the assembler takes 0 and 1 for binary numbers.
macro_rules! section {
    ([$($inside:literal),*], [$($behind:literal),*], [$($aside:literal),*]) => {
        concat!(
            ".pushsection __rseq_cs,\"aw\"\n",
            ".balign 32\n",
            "70: .long 0, 0\n",
            ".quad 72f, 74f - 72f, 76f\n",
            ".popsection\n",
            "71: lea {t}, [rip + 70b]\n",
            "mov qword ptr fs:[{at}], {t}\n",
            "72:\n",
            $($inside, "\n",)*
            "74:\n",
            $($behind, "\n",)*
            "79:\n",
            ".pushsection .text.rseq,\"ax\"\n",
            ".byte 0x0f, 0xb9, 0x3d\n",
            ".long 0x53053053\n",
            "76: jmp 71b\n",
            $($aside, "\n",)*
            ".popsection\n",
        )
    };
}

/// Returns where a section is armed (section.E1).
#[inline(always)]
fn armed_at() -> isize {
    let at;
    // SAFETY: a load of a word of ours.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + skinflint_section_at]",
            at = out(reg) at,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    at
}

/// Takes the newest block of a magazine, and makes it live; returns null if there is none.
///
/// # Safety
/// `heap` is this thread's, or a heap whose lock is held; `magazine` is the offset of a magazine in it.
#[inline(always)]
pub unsafe fn pop(heap: *const u8, magazine: usize) -> *mut u8 {
    let block;
    // SAFETY: an entry below `top` has a block of a live span, and its bit is set in D (heap.H5). The one instruction
    // behind the section clears it: D is the owner's own, and an interrupt comes before it or after it.
    unsafe {
        asm!(
            section!(
                [
                    "mov {t}, qword ptr [{heap} + {magazine} + {top}]",
                    "cmp {t}, qword ptr [{heap} + {magazine} + {bottom}]",
                    "jbe 75f",
                    "mov {block}, qword ptr [{t} - {entry} + {block_at}]",
                    "mov {bit}, qword ptr [{t} - {entry} + {bit_at}]",
                    "mov {t}, qword ptr [{t} - {entry} + {overlay_at}]",
                    "sub qword ptr [{heap} + {magazine} + {top}], {entry}"
                ],
                ["xor qword ptr [{t} + {dead}], {bit}"],
                ["75: xor {block:e}, {block:e}", "jmp 79b"]
            ),
            heap = in(reg) heap,
            magazine = in(reg) magazine,
            at = in(reg) armed_at(),
            t = out(reg) _,
            bit = out(reg) _,
            block = out(reg) block,
            top = const TOP_AT,
            bottom = const BOTTOM_AT,
            entry = const ENTRY,
            block_at = const BLOCK_AT,
            bit_at = const BIT_AT,
            overlay_at = const OVERLAY_AT,
            dead = const DEAD_AT,
            options(nostack),
        );
    }
    block
}

/// Puts a dead block into a magazine; `false`: it is full.
///
/// # Safety
/// As for [`pop`]; the block's bit is set in D, and in neither F nor R.
#[inline(always)]
pub unsafe fn push(heap: *const u8, magazine: usize, entry: Entry) -> bool {
    // SAFETY: below `end` there is room for an entry.
    unsafe {
        asm!(
            section!(
                [
                    "mov {t}, qword ptr [{heap} + {magazine} + {top}]",
                    "cmp {t}, qword ptr [{heap} + {magazine} + {end}]",
                    "jae {full}",
                    "mov qword ptr [{t} + {block_at}], {block}",
                    "mov qword ptr [{t} + {overlay_at}], {overlay}",
                    "mov qword ptr [{t} + {bit_at}], {bit}",
                    "add qword ptr [{heap} + {magazine} + {top}], {entry}"
                ],
                [],
                []
            ),
            heap = in(reg) heap,
            magazine = in(reg) magazine,
            at = in(reg) armed_at(),
            block = in(reg) entry.block,
            overlay = in(reg) entry.overlay,
            bit = in(reg) entry.bit,
            t = out(reg) _,
            top = const TOP_AT,
            end = const END_AT,
            entry = const ENTRY,
            block_at = const BLOCK_AT,
            bit_at = const BIT_AT,
            overlay_at = const OVERLAY_AT,
            full = label { return false },
            options(nostack),
        );
    }
    true
}
