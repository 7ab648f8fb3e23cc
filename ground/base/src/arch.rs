//! What a processor's own instructions are needed for, one function for each: all else of this crate is the same on
//! every processor.
//!
//! ```text
//!   x86-64    syscall, rax: rdi rsi rdx r10 r8 r9      fs:[0]         rsp
//!   aarch64   svc 0,   x8:  x0 x1 x2 x3 x4 x5          tpidr_el0      sp
//! ```
//!
//! A1  No function here changes memory, `errno` or a flag that its caller could miss; a system call does what it does.
//! A2  Each function exists for both processors with the same signature; another processor does not compile.
//!
//! Not here: registers of frames (unwind), restartable sequences and the allocator's fast path (alloc).

use core::arch::asm;

/// What a filter of system calls sees as the architecture: `AUDIT_ARCH_X86_64`.
#[cfg(target_arch = "x86_64")]
pub const AUDIT_ARCH: u32 = 0xc000_003e;
/// What a filter of system calls sees as the architecture: `AUDIT_ARCH_AARCH64`.
#[cfg(target_arch = "aarch64")]
pub const AUDIT_ARCH: u32 = 0xc000_00b7;

/// Makes a system call with up to six arguments, and returns its result (sys.S1).
///
/// # Safety
/// The arguments must be right for the call; pointers among them must be valid for what the kernel
/// does with them.
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn syscall(number: i64, args: [u64; 6]) -> i64 {
    let result: i64;
    // SAFETY: the caller answers for the call itself; the registers are those of the x86-64 ABI,
    // and the two that the kernel overwrites are declared.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Makes a system call with up to six arguments, and returns its result (sys.S1).
///
/// # Safety
/// The arguments must be right for the call; pointers among them must be valid for what the kernel
/// does with them.
#[cfg(target_arch = "aarch64")]
#[inline]
pub unsafe fn syscall(number: i64, args: [u64; 6]) -> i64 {
    let result: i64;
    // SAFETY: the caller answers for the call itself; the registers are those of the kernel's convention, which
    // keeps all but x0.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] as i64 => result,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            in("x5") args[5],
            options(nostack),
        );
    }
    result
}

/// Returns a number that no other thread that runs has: the thread pointer.
#[inline(always)]
pub fn thread_pointer() -> usize {
    let own;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: A1: the thread block begins with its own address (the ABI of thread-local storage).
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) own, options(nostack, readonly, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: A1: reads a register.
    unsafe {
        asm!("mrs {}, tpidr_el0", out(reg) own, options(nostack, nomem, preserves_flags));
    }
    own
}

/// Returns the stack pointer.
#[inline(always)]
pub fn stack_pointer() -> usize {
    let here;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: A1: reads a register.
    unsafe {
        asm!("mov {}, rsp", out(reg) here, options(nostack, nomem, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: A1: reads a register.
    unsafe {
        asm!("mov {}, sp", out(reg) here, options(nostack, nomem, preserves_flags));
    }
    here
}

/// Text of assembly: calls `{before}` after `$prepare`, with the three arguments that a function may have kept over the call,
/// and jumps to what it returned, as if the caller had called that.
#[cfg(target_arch = "aarch64")]
#[doc(hidden)]
#[macro_export]
macro_rules! jump_to_what_before_returns {
    ($prepare:literal) => {
        concat!(
            "stp x29, x30, [sp, #-48]!\n",
            "stp x0, x1, [sp, #16]\n",
            "str x2, [sp, #32]\n",
            $prepare,
            "\n",
            "bl {before}\n",
            "mov x9, x0\n",
            "ldp x0, x1, [sp, #16]\n",
            "ldr x2, [sp, #32]\n",
            "ldp x29, x30, [sp], #48\n",
            "br x9\n",
        )
    };
}

/// Text of assembly: jumps to what the program means by a name, through the global offset table.
#[cfg(target_arch = "aarch64")]
#[doc(hidden)]
#[macro_export]
macro_rules! jump_as_meant {
    ($name:literal) => {
        concat!(
            "adrp x9, :got:",
            $name,
            "\nldr x9, [x9, :got_lo12:",
            $name,
            "]\nbr x9\n"
        )
    };
}

/// Text of assembly: jumps to what the program means by a name, through the global offset table.
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
#[macro_export]
macro_rules! jump_as_meant {
    ($name:literal) => {
        concat!("jmp qword ptr [rip + ", $name, "@GOTPCREL]")
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_differ_and_stacks_are_where_they_are() {
        let own = thread_pointer();
        assert_eq!(own, thread_pointer());
        let other = std::thread::spawn(thread_pointer).join().expect("ends");
        assert_ne!(own, other);
        let local = 0u8;
        let at = &raw const local as usize;
        assert!(stack_pointer().abs_diff(at) < 1 << 16);
    }
}
