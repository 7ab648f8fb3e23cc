//! Call stacks of the running thread, cheaply enough for every `malloc`.
//!
//! ```text
//!  capture ──► unwind the new frames only ──► RuleCache (pc ► 32-bit rule, one load)
//!                │                            │ miss
//!                │                            └──► Finder (pc ► module) ► cfi (rows of .eh_frame)
//!                └── meets a remembered frame ──► every word outside of it still holds (loads only):
//!                                                 all older frames are proved equal
//! ```
//!
//! U1  Nothing here allocates, locks, formats, touches `errno` or a thread-local. One exception:
//!     without `_dl_find_object` (glibc before 2.35) a rule miss calls `dl_iterate_phdr`.
//! U2  Loads from the thread's own stack lie within `[sp, hi)` of that capture, which is mapped by
//!     definition; any other stack is read by a system call that fails instead of faulting, and code outside of
//!     modules is read only after the kernel was asked whether it can be.
//! U3  Nothing is written to the program's stack.
//! U4  All-zero memory is a valid `RuleCache` and a valid `StackState`.
//! U5  A frame is reported as kept only if every word that it and the frames outside of it depend on
//!     still holds the same value, and the walk reached it with the same registers, `rbp` included
//!     where anything outside depends on it.
//!
//! On aarch64 `capture` is whole.rs: it walks to the end, and compares afterwards.
//!
//! Not here: symbols, the stack tree, when modules change (the caller reports it), reentry (the
//! caller owns the `&mut StackState`; a signal handler that interrupts a capture must not capture).

#![cfg_attr(not(test), no_std)]
// The verified cache is not used there: a capture walks the whole stack (whole.rs).
#![cfg_attr(target_arch = "aarch64", allow(dead_code))]

mod arch;
#[cfg(target_arch = "x86_64")]
mod capture;
mod cfi;
mod elsewhere;
mod entry;
mod expr;
mod find;
mod foreign;
mod foreign_walk;
mod generated;
#[cfg(target_arch = "x86_64")]
mod lazy;
mod made;
mod reader;
mod rule;
mod state;
mod step;
#[cfg(target_arch = "aarch64")]
mod whole;

#[cfg(target_arch = "x86_64")]
pub use capture::{capture, capture_to};
pub use elsewhere::{Frame, Tables};
pub use find::{DlFindObject, FindObjectFn, Finder};
pub use made::{Made, MadeFn};
pub use rule::RuleCache;
pub use state::{Capture, Fresh, MAX_FRAMES, Registers, Sink, StackBounds, StackState, Stats};
pub use step::End;
#[cfg(target_arch = "aarch64")]
pub use whole::{capture, capture_to};
