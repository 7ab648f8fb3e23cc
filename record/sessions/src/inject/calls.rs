//! Calls of functions in a thread that is stopped at a fit place, with a stack of their own.
//!
//! ```text
//!   errno is kept ─► mmap: a stack ─► … calls … ─► munmap ─► errno is put back
//!                                       each returns to a breakpoint that is there already: a byte of the program's code
//! ```
//!
//! J1  Of the thread's own stack one word below the red zone is used, for the first call and the last, and put back.
//! J2  Nothing is mapped or written that can be executed: programs that forbid it are recorded, too.
//! J3  After a call that did not come back no other is made; its stack stays mapped.
//!
//! Not here: which functions (load.rs).

use std::time::Duration;

use anyhow::{Result, bail};

use super::machine;
use super::memory::Memory;
use super::modules::Modules;
use super::tracee::{Fault, Stopped};

/// The bytes of the stack for calls: the loader is content with a tenth of it.
const STACK_BYTES: u64 = 256 << 10;
/// The part at its low end that texts are written to.
const TEXT_BYTES: u64 = 16 << 10;
/// The longest time for a call that neither waits for us nor for anybody but other threads.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Functions of the program's C library that are called, and a breakpoint.
pub(super) struct Entries {
    errno: u64,
    mmap: u64,
    munmap: u64,
    syscall: u64,
    breakpoint: u64,
}

impl Entries {
    pub(super) fn of(modules: &Modules, memory: &Memory) -> Option<Entries> {
        let libc = modules.libc()?;
        Some(Entries {
            errno: libc.function("__errno_location")?,
            mmap: libc.function("mmap")?,
            munmap: libc.function("munmap")?,
            syscall: libc.function("syscall")?,
            breakpoint: breakpoint(&libc.code, memory)?,
        })
    }
}

/// Finds a byte in a module's code that stops who runs into it.
fn breakpoint(code: &[(u64, u64)], memory: &Memory) -> Option<u64> {
    const PIECE: u64 = 64 << 10;
    code.iter().find_map(|(low, high)| {
        (*low..*high).step_by(PIECE as usize).find_map(|at| {
            let bytes = memory.bytes(at, PIECE.min(high - at))?;
            machine::breakpoint(&bytes).map(|offset| at + offset as u64)
        })
    })
}

/// Calls in one thread.
pub(super) struct Calls<'a> {
    memory: &'a Memory,
    entries: &'a Entries,
    thread: &'a mut Stopped,
    /// The low end of the stack for calls; 0 as long as there is none.
    stack: u64,
    texts: u64,
    /// Where the thread's `errno` is, and what it was.
    errno: (u64, [u8; 4]),
    has_failed: bool,
}

impl<'a> Calls<'a> {
    /// Prepares a thread for calls.
    ///
    /// # Errors
    /// If a first call does not come back.
    pub(super) fn begin(
        memory: &'a Memory,
        entries: &'a Entries,
        thread: &'a mut Stopped,
    ) -> Result<Calls<'a>> {
        thread.keep()?;
        let mut calls = Calls {
            memory,
            entries,
            thread,
            stack: 0,
            texts: 0,
            errno: (0, [0; 4]),
            has_failed: false,
        };
        let errno = calls.call(entries.errno, &[], PATIENCE)?;
        calls.errno = (errno, calls.memory.array(errno).unwrap_or_default());
        let (rights, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        let arguments = [0, STACK_BYTES, rights as u64, kind as u64, u64::MAX, 0];
        let stack = calls.call(entries.mmap, &arguments, PATIENCE)?;
        if stack > u64::MAX - 4096 || stack == 0 {
            let why = calls.last_error();
            calls.end();
            bail!(
                "it cannot map {} KiB: {why}; it may be at its limit of address space",
                STACK_BYTES >> 10
            );
        }
        calls.stack = stack;
        Ok(calls)
    }

    /// Calls a function, and waits until it returns.
    ///
    /// # Errors
    /// If it does not come back; no other call can be made then.
    pub(super) fn call(
        &mut self,
        function: u64,
        arguments: &[u64],
        patience: Duration,
    ) -> Result<u64> {
        if self.has_failed {
            bail!("a call before did not come back");
        }
        self.has_failed = true;
        let (is_own, top) = match self.stack {
            0 => (true, self.thread.registers.free_stack()),
            stack => (false, stack + STACK_BYTES - 256),
        };
        let (registers, slot) = self.thread.registers.for_call(function, arguments, top);
        let was: Option<[u8; 8]> = self.memory.array(slot);
        let back = self.entries.breakpoint.to_le_bytes();
        self.memory.write(slot, &back)?;
        let ran = self
            .thread
            .run(&registers, self.entries.breakpoint, patience);
        if let Some(was) = was.filter(|_| is_own) {
            let _ = self.memory.write(slot, &was);
        }
        match ran {
            Ok(registers) => {
                self.has_failed = false;
                Ok(registers.result())
            }
            Err(fault) => bail!("{}", in_words(&fault, patience)),
        }
    }

    /// Makes a system call. Returns what the kernel gave, or its error.
    ///
    /// # Errors
    /// As for `call`; the kernel's error is within the result.
    pub(super) fn system(
        &mut self,
        number: i64,
        arguments: &[u64],
    ) -> Result<Result<u64, std::io::Error>> {
        let mut all = vec![number as u64];
        all.extend(arguments);
        let result = self.call(self.entries.syscall, &all, PATIENCE)?;
        Ok(match result {
            u64::MAX => Err(self.last_error()),
            result => Ok(result),
        })
    }

    fn last_error(&self) -> std::io::Error {
        let number = self
            .memory
            .array(self.errno.0)
            .map_or(0, i32::from_le_bytes);
        std::io::Error::from_raw_os_error(number)
    }

    /// Writes bytes for a call to be given. Returns their address.
    ///
    /// # Errors
    /// If there is no room.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<u64> {
        let at = self.stack + self.texts;
        self.texts += (bytes.len() as u64).next_multiple_of(16);
        if self.stack == 0 || self.texts > TEXT_BYTES {
            bail!("the path is too long");
        }
        self.memory.write(at, bytes)?;
        Ok(at)
    }

    /// Writes a C string.
    ///
    /// # Errors
    /// If there is no room.
    pub(super) fn text(&mut self, text: &[u8]) -> Result<u64> {
        self.bytes(&[text, b"\0"].concat())
    }

    /// Takes everything back but what calls have left on purpose.
    pub(super) fn end(mut self) {
        let stack = std::mem::take(&mut self.stack);
        if stack != 0 && !self.has_failed {
            // What fails leaves 256 KiB mapped.
            let _ = self.call(self.entries.munmap, &[stack, STACK_BYTES], PATIENCE);
        }
        let (at, was) = self.errno;
        if at != 0 {
            let _ = self.memory.write(at, &was);
        }
    }
}

/// Says how a call ended that did not come back.
fn in_words(fault: &Fault, patience: Duration) -> String {
    match fault {
        Fault::Ended => "it ended meanwhile".into(),
        Fault::Late(at) => format!(
            "a call in it did not come back within {patience:?} (it was at {at:#x}) and was given up: another thread may hold \
             a lock for long; its registers were put back; try again"
        ),
        Fault::Signal(libc::SIGSYS, _) => {
            "its filter of system calls (seccomp) forbids what recording needs; its registers \
             were put back; start it with `skinflint record`"
                .into()
        }
        Fault::Signal(signal, at) => {
            format!(
                "a call in it ended in signal {signal} at {at:#x}; its registers were put back; please report it"
            )
        }
        Fault::Kernel(error) => {
            format!("the kernel did not let it be made to call anything: {error}")
        }
    }
}
