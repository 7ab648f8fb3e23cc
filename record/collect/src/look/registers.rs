//! The registers of a stopped thread, as far as a look wants them: on either processor.
//!
//! ```text
//!   PTRACE_GETREGS (x86-64) │ PTRACE_GETREGSET (aarch64) ─► stack pointer, thread pointer, what may hold pointers
//! ```
//!
//! G1  A register has the number that the trace gives it (`LookRegister`): 0 and on for x86-64, 17 and on for aarch64.
//!
//! Not here: stopping (stop.rs), what the values lead to (scan.rs).

use std::io;

use skinflint_trace::LookRegister;

/// Registers of a thread.
pub(super) struct Registers {
    /// The stack pointer.
    pub stack: u64,
    /// The thread pointer.
    pub thread: u64,
    values: [u64; COUNT],
}

#[cfg(target_arch = "x86_64")]
const COUNT: usize = 16;
#[cfg(target_arch = "x86_64")]
const FIRST: u32 = 0;
#[cfg(target_arch = "aarch64")]
const COUNT: usize = 31;
/// The number of `x0` (G1).
#[cfg(target_arch = "aarch64")]
const FIRST: u32 = 17;

impl Registers {
    /// Reads those of a stopped thread.
    #[cfg(target_arch = "x86_64")]
    pub fn of(tid: u32) -> io::Result<Registers> {
        // SAFETY: all-zero is a valid set of registers.
        let mut all: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: the structure is what the request fills.
        let got = unsafe { libc::ptrace(libc::PTRACE_GETREGS, tid, 0, &raw mut all) };
        if got != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Registers {
            stack: all.rsp,
            thread: all.fs_base,
            values: [
                all.rax, all.rbx, all.rcx, all.rdx, all.rsi, all.rdi, all.rbp, all.rsp, all.r8,
                all.r9, all.r10, all.r11, all.r12, all.r13, all.r14, all.r15,
            ],
        })
    }

    /// Reads those of a stopped thread.
    #[cfg(target_arch = "aarch64")]
    pub fn of(tid: u32) -> io::Result<Registers> {
        const NT_PRSTATUS: usize = 1;
        const NT_ARM_TLS: usize = 0x401;
        fn set<T>(tid: u32, which: usize, into: &mut T) -> io::Result<()> {
            let mut place = libc::iovec {
                iov_base: std::ptr::from_mut(into).cast(),
                iov_len: size_of::<T>(),
            };
            // SAFETY: the kernel writes as many bytes as the place has, at most.
            let got = unsafe { libc::ptrace(libc::PTRACE_GETREGSET, tid, which, &raw mut place) };
            if got == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        }
        // SAFETY: all-zero is a valid set of registers.
        let mut all: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        set(tid, NT_PRSTATUS, &mut all)?;
        let mut thread = 0u64;
        set(tid, NT_ARM_TLS, &mut thread)?;
        Ok(Registers {
            stack: all.sp,
            thread,
            values: all.regs,
        })
    }

    /// Returns those that may hold pointers.
    pub fn told(&self, tid: u32) -> Vec<LookRegister> {
        let register = |(number, value): (usize, &u64)| LookRegister {
            tid,
            number: FIRST + number as u32,
            value: *value,
        };
        self.values.iter().enumerate().map(register).collect()
    }
}
