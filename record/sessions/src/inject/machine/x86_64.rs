//! x86-64: the registers of a stopped thread, and what they are for a call.
//!
//! ```text
//!   rdi rsi rdx rcx r8 r9 = arguments    [rsp] = a breakpoint in the program's own code    rip = the function
//! ```
//!
//! X1  A call leaves the red zone of the interrupted function alone, and finds the stack aligned as a caller does it.
//! X2  `orig_rax` is -1 during calls: to the kernel they are no interrupted system call. What is put back at the end has
//!     it again, and the kernel then restarts the call as after any stop. A few calls fail with EINTR instead
//!     (signal(7), "stop signals"): those are begun again here.

use std::io;

use skinflint_unwind::Frame;

/// The registers of a thread that is stopped.
#[derive(Clone)]
pub(crate) struct Registers(libc::user_regs_struct);

/// Why nothing can be called on this architecture.
pub(crate) const REFUSAL: Option<&str> = None;

/// Why registers could not be read.
pub(crate) enum Unreadable {
    /// The thread runs 32-bit code.
    Narrow,
    Error(io::Error),
}

const NT_PRSTATUS: usize = 1;
const NT_X86_XSTATE: usize = 0x202;
const NT_X86_SHSTK: usize = 0x204;
/// The bytes that a function may use below its stack pointer, and more than that (X1).
const RED_ZONE: u64 = 512;
/// `EFLAGS` as a function expects them: direction up, no trap, no alignment check.
const PLAIN_FLAGS: u64 = 0x202;
const USER_CODE_64: u64 = 0x33;

/// System calls that end with EINTR after a stop, though no signal was handled (X2), and can be begun again.
/// Those of sockets do so if a timeout is set for them; `connect` is not among them, since it cannot be begun again.
const NOT_RESTARTED: [i64; 19] = [
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_io_uring_enter,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
];

/// Moves a set of registers in or out. Returns the bytes that the kernel moved.
fn regset(request: libc::c_uint, tid: u32, kind: usize, bytes: &mut [u8]) -> io::Result<usize> {
    let mut vector = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: the kernel moves at most as many bytes as the vector says, all of which are ours.
    let result = unsafe { libc::ptrace(request as _, tid, kind, &raw mut vector) };
    match result {
        0 => Ok(vector.iov_len),
        _ => Err(io::Error::last_os_error()),
    }
}

const GET: libc::c_uint = 0x4204;
const SET: libc::c_uint = 0x4205;
const WORDS: usize = size_of::<libc::user_regs_struct>() / 8;

impl Registers {
    pub(crate) fn of(tid: u32) -> Result<Registers, Unreadable> {
        let mut bytes = [0u8; WORDS * 8];
        let got = regset(GET, tid, NT_PRSTATUS, &mut bytes).map_err(Unreadable::Error)?;
        // SAFETY: plain numbers, of the same size.
        let registers: libc::user_regs_struct = unsafe { std::mem::transmute(bytes) };
        match got == bytes.len() && registers.cs == USER_CODE_64 {
            true => Ok(Registers(registers)),
            false => Err(Unreadable::Narrow),
        }
    }

    pub(crate) fn set(&self, tid: u32) -> io::Result<()> {
        // SAFETY: plain numbers, of the same size.
        let mut bytes: [u8; WORDS * 8] = unsafe { std::mem::transmute(self.0) };
        regset(SET, tid, NT_PRSTATUS, &mut bytes).map(drop)
    }

    pub(crate) fn frame(&self) -> Frame {
        Frame {
            pc: self.0.rip,
            sp: self.0.rsp,
            bp: self.0.rbp,
            is_exact: true,
        }
    }

    /// Whether it has what the C library keeps for each thread.
    pub(crate) fn has_thread(&self) -> bool {
        self.0.fs_base != 0
    }

    /// Returns the top of the stack that is free for a call (X1).
    pub(crate) fn free_stack(&self) -> u64 {
        self.0.rsp.wrapping_sub(RED_ZONE) & !63
    }

    /// Returns the registers at the entry of a function, and the address of the word that must hold where it returns to.
    pub(crate) fn for_call(
        &self,
        function: u64,
        arguments: &[u64],
        stack: u64,
    ) -> (Registers, u64) {
        let mut registers = self.0;
        let places = [
            &mut registers.rdi,
            &mut registers.rsi,
            &mut registers.rdx,
            &mut registers.rcx,
            &mut registers.r8,
            &mut registers.r9,
        ];
        for (place, argument) in places.into_iter().zip(arguments) {
            *place = *argument;
        }
        registers.rax = 0;
        registers.orig_rax = u64::MAX;
        registers.rbp = 0;
        registers.eflags = PLAIN_FLAGS;
        registers.rip = function;
        registers.rsp = (stack & !15) - 8;
        (Registers(registers), registers.rsp)
    }

    pub(crate) fn result(&self) -> u64 {
        self.0.rax
    }

    pub(crate) fn pc(&self) -> u64 {
        self.0.rip
    }

    /// Whether the thread has run into the breakpoint at this address.
    pub(crate) fn is_stopped_by(&self, breakpoint: u64) -> bool {
        self.0.rip == breakpoint + 1
    }

    /// Whether the thread was stopped in a system call that the kernel does not restart (X2).
    pub(crate) fn gives_up_a_call(&self) -> bool {
        let failed = self.0.rax as i64 == -i64::from(libc::EINTR);
        failed && NOT_RESTARTED.contains(&(self.0.orig_rax as i64))
    }

    /// Begins the interrupted system call again: its arguments are still there.
    pub(crate) fn begin_again(&mut self) {
        self.0.rax = self.0.orig_rax;
        self.0.rip -= 2;
    }
}

/// The other registers: floating point and vectors, in the size that this processor has.
pub(crate) struct Vectors(Vec<u8>);

impl Vectors {
    pub(crate) fn of(tid: u32) -> io::Result<Vectors> {
        let mut bytes = vec![0; 64 << 10];
        let got = regset(GET, tid, NT_X86_XSTATE, &mut bytes)?;
        bytes.truncate(got);
        Ok(Vectors(bytes))
    }

    pub(crate) fn set(&mut self, tid: u32) -> io::Result<()> {
        regset(SET, tid, NT_X86_XSTATE, &mut self.0).map(drop)
    }
}

/// Whether the processor keeps a second stack of return addresses for the thread: a call that was not made by an
/// instruction does not return then.
pub(crate) fn has_shadow_stack(tid: u32) -> bool {
    let mut pointer = [0u8; 8];
    regset(GET, tid, NT_X86_SHSTK, &mut pointer).is_ok_and(|got| got == 8)
}

/// Finds an instruction, or a byte of one, that stops who runs into it.
pub(crate) fn breakpoint(code: &[u8]) -> Option<usize> {
    code.iter().position(|byte| *byte == 0xcc)
}
