//! What differs from processor to processor: the numbers of registers in tables, where a signal handler's return finds
//! them, how a return address is made a place of code, and a system call.
//!
//! ```text
//!             sp   fp   return address             a signal's registers      code where a handler returns to
//!   x86-64     7    6   above the CFA's word        ucontext at sp           mov $15, %rax; syscall
//!   aarch64   31   29   x30, or where it was saved  ucontext at sp + 128     mov x8, 139; svc 0
//! ```
//!
//! Return addresses of aarch64 may be signed (pointer authentication): the upper bits of what lies in memory are a
//! signature, whose key no unwinder has. They are taken off, whether a table says that the address is signed at that
//! instruction (`DW_CFA_AARCH64_negate_ra_state`) or not.
//!
//! A1  Each item exists for both processors; another processor does not compile.
//! A2  On x86-64 an address stays as it is, and `code_at` is no instruction.
//! A3  No place of code is above 2⁴⁸: the kernel gives higher addresses (52 bits) only to who asks for one by its number.
//!
//! Not here: the steps that are made with them (step.rs).

use core::arch::asm;

#[cfg(target_arch = "x86_64")]
mod own {
    /// The stack pointer's number in unwind tables.
    pub(crate) const SP: u64 = 7;
    /// The frame pointer's.
    pub(crate) const FP: u64 = 6;
    pub(crate) const SYS_GETPID: u64 = 39;
    pub(crate) const SYS_RT_SIGPROCMASK: u64 = 14;
    pub(crate) const SYS_PROCESS_VM_READV: u64 = 310;
    /// Offsets in the `ucontext` of x86-64 Linux, which is a fixed interface of the kernel.
    pub(crate) const UC_FP: u64 = 120;
    pub(crate) const UC_SP: u64 = 160;
    pub(crate) const UC_PC: u64 = 168;
    /// What a handler returns to where the C library has no table for it.
    pub(crate) const SIGRETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];
}

#[cfg(target_arch = "aarch64")]
mod own {
    /// The stack pointer's number in unwind tables.
    pub(crate) const SP: u64 = 31;
    /// The frame pointer's.
    pub(crate) const FP: u64 = 29;
    pub(crate) const SYS_GETPID: u64 = 172;
    pub(crate) const SYS_RT_SIGPROCMASK: u64 = 135;
    pub(crate) const SYS_PROCESS_VM_READV: u64 = 270;
    /// Offsets in the `rt_sigframe` of aarch64 Linux, which is a fixed interface of the kernel: 128 bytes of `siginfo`,
    /// then the `ucontext`, whose registers begin at 184.
    const REGISTERS: u64 = 128 + 184;
    pub(crate) const UC_FP: u64 = REGISTERS + 29 * 8;
    pub(crate) const UC_LR: u64 = REGISTERS + 30 * 8;
    pub(crate) const UC_SP: u64 = REGISTERS + 31 * 8;
    pub(crate) const UC_PC: u64 = REGISTERS + 32 * 8;
    /// What a handler returns to: `mov x8, 139; svc 0`, in the vdso or in a C library that has no table for it.
    pub(crate) const SIGRETURN: [u8; 8] = [0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4];
}

pub(crate) use own::*;

/// Returns the place of code that a return address leads to: without its signature, if it has one (A2, A3).
#[inline(always)]
pub(crate) fn code_at(ra: u64) -> u64 {
    if cfg!(target_arch = "aarch64") {
        ra & ((1 << 48) - 1)
    } else {
        ra
    }
}

/// Returns whether an instruction of a table says that the return address is signed from here on, or is no more:
/// `DW_CFA_AARCH64_negate_ra_state`, or the form that names the pc as well. Neither has operands.
#[inline(always)]
pub(crate) fn is_about_signing(op: u8) -> bool {
    cfg!(target_arch = "aarch64") && (op == 0x2d || op == 0x2c)
}

/// Makes a system call that leaves `errno` alone: `a` is the number and six arguments.
///
/// # Safety
/// As the system call demands.
pub(crate) unsafe fn syscall(a: [u64; 7]) -> i64 {
    let result: i64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the registers are those of the kernel's convention; the caller vouches for the rest.
    unsafe {
        asm!("syscall", inlateout("rax") a[0] as i64 => result, in("rdi") a[1], in("rsi") a[2],
             in("rdx") a[3], in("r10") a[4], in("r8") a[5], in("r9") a[6],
             lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        asm!("svc 0", in("x8") a[0], inlateout("x0") a[1] as i64 => result, in("x1") a[2], in("x2") a[3],
             in("x3") a[4], in("x4") a[5], in("x5") a[6], options(nostack));
    }
    result
}
