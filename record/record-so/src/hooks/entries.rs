//! The entries of `malloc`, `calloc`, `realloc`, `reallocarray` and `free`: of a sampled recording nearly every call ends here.
//!
//! ```text
//!   malloc(n) ─► n below the rate? ─► this thread's budget − n ─┬─ 0 or more ─► jump to the real malloc
//!                    └─ no, or not now ──────────┐              └─ below 0: undone
//!   free(p)   ─► line of p: its bit?             ├─► the slow entry (malloc.rs), as if nothing had been
//!                    ├─ set, or no lines now ────┘           │
//!                    └─ not set ─► jump to the real free     └─► an event, or none
//! ```
//!
//! E1  A call that ends here is one that the slow entry would pass on without an event (samples.V1, samples.V3); it counts the same
//!     bytes. What the two words of the live page say is in `process::LivePage`.
//! E2  Nothing says that the thread is inside of the allocator (state.H2) meanwhile, so this is for an allocator that calls
//!     none of our functions: the C library's (samples::begin_short).
//! E3  No flag, register or word of the stack that a caller may rely on is changed: each jump leaves the stack as it was, and
//!     the arguments where they were. The budget is changed by one instruction, so that a signal's handler may come between.
//!
//! Costs, in instructions: `malloc` 8, `calloc` 11, `realloc` 19, `free` 14.
//!
//! Rejected: *the budget in the thread's state* (two loads and two tests more, for a thread without one); *a pair of `malloc`
//! and `free` through the slow entries* (102 instructions, 2026-11-27).
//!
//! Not here: calls of other functions, and aarch64, where all calls go the slow way.

use core::ffi::c_void;

use super::exported;
use super::malloc::{calloc_recorded, free_recorded, malloc_recorded, realloc_recorded};
use crate::real;

#[cfg(target_arch = "aarch64")]
exported!(malloc(size: usize) -> *mut c_void, "rsi", "rdx", malloc_recorded);
#[cfg(target_arch = "aarch64")]
exported!(calloc(n: usize, each: usize) -> *mut c_void, "rdx", "rcx", calloc_recorded);
#[cfg(target_arch = "aarch64")]
exported!(realloc(old: *mut c_void, size: usize) -> *mut c_void, "rdx", "rcx", realloc_recorded);

/// `free`, recorded.
///
/// # Safety
/// As for the function beneath.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: the program's own call.
    unsafe { free_recorded(block) }
}

unsafe extern "C" fn reallocarray_recorded(
    old: *mut c_void,
    n: usize,
    each: usize,
    sp: u64,
    bp: u64,
) -> *mut c_void {
    match n.checked_mul(each) {
        Some(size) => match real::in_front_of_us(c"realloc", realloc as *mut c_void) {
            // SAFETY: the program's own call.
            None => unsafe { realloc_recorded(old, size, sp, bp) },
            // glibc's `reallocarray` calls `realloc` by its name, which leads to the program's.
            // SAFETY: as above; the name has this type.
            Some(theirs) => unsafe {
                core::mem::transmute::<*mut c_void, real::Realloc>(theirs)(old, size)
            },
        },
        None => {
            // SAFETY: this thread's errno.
            unsafe { *libc::__errno_location() = libc::ENOMEM };
            core::ptr::null_mut()
        }
    }
}
exported!(
    reallocarray(old: *mut c_void, n: usize, each: usize) -> *mut c_void,
    "rcx", "r8", reallocarray_recorded
);

#[cfg(target_arch = "x86_64")]
pub use short::{calloc, free, malloc, realloc};

#[cfg(target_arch = "x86_64")]
mod short {
    use core::arch::naked_asm;
    use core::mem::offset_of;

    use skinflint_base::random;
    use skinflint_base::samples::Line;

    use super::*;
    use crate::process::{LIVE, LivePage};
    use crate::real::{REAL, Table};
    use crate::samples;

    /// By so much the spread of an address is shifted to be the offset of its line, and what is masked out of it then.
    const LINE_SHIFT: u32 = 64 - samples::FIRST_BITS - size_of::<Line>().trailing_zeros();
    const LINE_MASK: usize = size_of::<Line>() * ((1 << samples::FIRST_BITS) - 1);
    const _: () = assert!(LINE_MASK <= i32::MAX as usize);

    /// `malloc`, recorded.
    ///
    /// # Safety
    /// As for the function beneath.
    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    pub unsafe extern "C" fn malloc(_size: usize) -> *mut c_void {
        naked_asm!(
            "mov rax, qword ptr [rip + {live}]",
            "lea rdx, [rdi - 1]",
            "cmp rdx, qword ptr [rax + {below}]",
            "jae 3f",
            "mov rax, qword ptr [rip + skinflint_thread_budget@GOTTPOFF]",
            "sub qword ptr fs:[rax], rdi",
            "js 2f",
            "jmp qword ptr [rip + {table} + {place}]",
            "2:",
            "add qword ptr fs:[rax], rdi",
            "3:",
            "mov rsi, rsp",
            "mov rdx, rbp",
            "jmp {slow}",
            live = sym LIVE,
            below = const offset_of!(LivePage, short_below),
            table = sym REAL,
            place = const offset_of!(Table, malloc),
            slow = sym malloc_recorded,
        )
    }

    /// `calloc`, recorded.
    ///
    /// # Safety
    /// As for the function beneath.
    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    pub unsafe extern "C" fn calloc(_n: usize, _each: usize) -> *mut c_void {
        naked_asm!(
            "mov rax, rdi",
            "mul rsi",
            "jo 3f",
            "mov rcx, qword ptr [rip + {live}]",
            "lea rdx, [rax - 1]",
            "cmp rdx, qword ptr [rcx + {below}]",
            "jae 3f",
            "mov rcx, qword ptr [rip + skinflint_thread_budget@GOTTPOFF]",
            "sub qword ptr fs:[rcx], rax",
            "js 2f",
            "jmp qword ptr [rip + {table} + {place}]",
            "2:",
            "add qword ptr fs:[rcx], rax",
            "3:",
            "mov rdx, rsp",
            "mov rcx, rbp",
            "jmp {slow}",
            live = sym LIVE,
            below = const offset_of!(LivePage, short_below),
            table = sym REAL,
            place = const offset_of!(Table, calloc),
            slow = sym calloc_recorded,
        )
    }

    /// `realloc`, recorded.
    ///
    /// # Safety
    /// As for the function beneath.
    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    pub unsafe extern "C" fn realloc(_old: *mut c_void, _size: usize) -> *mut c_void {
        naked_asm!(
            "mov rax, qword ptr [rip + {live}]",
            "lea rdx, [rsi - 1]",
            "cmp rdx, qword ptr [rax + {below}]",
            "jae 3f",
            "mov rcx, qword ptr [rax + {lines}]",
            // Another thread may just be detaching.
            "test rcx, rcx",
            "jz 3f",
            "movabs rax, {step}",
            "imul rax, rdi",
            "mov rdx, rax",
            "shr rdx, {line_shift}",
            "and edx, {line_mask}",
            "mov ecx, dword ptr [rcx + rdx]",
            "shr rax, 32",
            "bt ecx, eax",
            "jc 3f",
            "mov rax, qword ptr [rip + skinflint_thread_budget@GOTTPOFF]",
            "sub qword ptr fs:[rax], rsi",
            "js 2f",
            "jmp qword ptr [rip + {table} + {place}]",
            "2:",
            "add qword ptr fs:[rax], rsi",
            "3:",
            "mov rdx, rsp",
            "mov rcx, rbp",
            "jmp {slow}",
            live = sym LIVE,
            below = const offset_of!(LivePage, short_below),
            lines = const offset_of!(LivePage, lines),
            step = const random::STEP,
            line_shift = const LINE_SHIFT,
            line_mask = const LINE_MASK,
            table = sym REAL,
            place = const offset_of!(Table, realloc),
            slow = sym realloc_recorded,
        )
    }

    /// `free`, recorded.
    ///
    /// # Safety
    /// As for the function beneath.
    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    pub unsafe extern "C" fn free(_block: *mut c_void) {
        naked_asm!(
            "mov rax, qword ptr [rip + {live}]",
            "mov rcx, qword ptr [rax + {lines}]",
            "test rcx, rcx",
            "jz {slow}",
            "movabs rax, {step}",
            "imul rax, rdi",
            "mov rdx, rax",
            "shr rdx, {line_shift}",
            "and edx, {line_mask}",
            "mov ecx, dword ptr [rcx + rdx]",
            "shr rax, 32",
            "bt ecx, eax",
            "jc {slow}",
            "jmp qword ptr [rip + {table} + {place}]",
            live = sym LIVE,
            lines = const offset_of!(LivePage, lines),
            step = const random::STEP,
            line_shift = const LINE_SHIFT,
            line_mask = const LINE_MASK,
            table = sym REAL,
            place = const offset_of!(Table, free),
            slow = sym free_recorded,
        )
    }
}
