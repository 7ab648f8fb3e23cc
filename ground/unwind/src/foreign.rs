//! Reads of a stack that may end anywhere: our own memory, by a system call.
//!
//! ```text
//!   load(addr) ──► in the window? ──► the copy
//!                      │ no
//!                      └──► process_vm_readv(ourselves, 4 KiB from addr) ──► the window
//! ```
//!
//! W1  There is never a direct load, so an unmapped address is an answer and not a fault.
//! W2  At most `MAX_REFILLS` system calls in one capture.
//! W3  `errno` stays as it is: the system calls are our own instructions.
//! Not here: deciding which stack is foreign (capture.rs).

use crate::arch::{SYS_GETPID, SYS_PROCESS_VM_READV, syscall};

const WINDOW_BYTES: usize = 4096;
const OS_PAGE: u64 = 4096;
const MAX_REFILLS: u32 = 16;

/// A copy of a piece of stack. All-zero memory is a valid, empty window (unwind.U4).
#[repr(C)]
pub(crate) struct Window {
    at: u64,
    len: u64,
    refills: u32,
    /// Not 0 if the kernel refused the system call itself (seccomp): it is not tried again.
    refused: u32,
    bytes: [u8; WINDOW_BYTES],
}

/// A `struct iovec`.
#[repr(C)]
struct Piece {
    at: u64,
    len: u64,
}

impl Window {
    /// Forgets the copy, which is stale as soon as the program has run on.
    pub(crate) fn start(&mut self) {
        self.len = 0;
        self.refills = 0;
    }

    /// Returns the word at `addr`; `None` if it cannot be read, or after too many refills (W2).
    pub(crate) fn load(&mut self, addr: u64) -> Option<u64> {
        if let Some(word) = self.peek(addr) {
            return Some(word);
        }
        self.refill(addr)?;
        self.peek(addr)
    }

    fn peek(&self, addr: u64) -> Option<u64> {
        let from = addr.checked_sub(self.at)?;
        if from.checked_add(8)? > self.len {
            return None;
        }
        let bytes = self.bytes.get(from as usize..)?.first_chunk::<8>()?;
        Some(u64::from_le_bytes(*bytes))
    }

    #[cold]
    fn refill(&mut self, addr: u64) -> Option<()> {
        self.len = 0;
        if self.refills >= MAX_REFILLS || self.refused != 0 {
            return None;
        }
        self.refills += 1;
        let end = addr.checked_add(WINDOW_BYTES as u64)?;
        // The kernel promises partial results only between pieces, so a piece ends with its page.
        let middle = (addr & !(OS_PAGE - 1)) + OS_PAGE;
        let remote = [
            Piece {
                at: addr,
                len: middle - addr,
            },
            Piece {
                at: middle,
                len: end - middle,
            },
        ];
        let local = [Piece {
            at: self.bytes.as_mut_ptr() as u64,
            len: WINDOW_BYTES as u64,
        }];
        // SAFETY: W1: the kernel writes at most WINDOW_BYTES to our own buffer and checks the rest.
        let got = unsafe {
            let pid = syscall([SYS_GETPID, 0, 0, 0, 0, 0, 0]) as u64;
            let (l, r) = (local.as_ptr() as u64, remote.as_ptr() as u64);
            syscall([SYS_PROCESS_VM_READV, pid, l, 1, r, 2, 0])
        };
        if got < 0 {
            let error = -got as i32;
            // Any error but EFAULT and ENOMEM means that the call will never work.
            self.refused = u32::from(error != libc::EFAULT && error != libc::ENOMEM);
            return None;
        }
        self.at = addr;
        self.len = (got as u64).min(WINDOW_BYTES as u64);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> Box<Window> {
        Box::new(Window {
            at: 0,
            len: 0,
            refills: 0,
            refused: 0,
            bytes: [0; WINDOW_BYTES],
        })
    }

    #[test]
    fn reads_up_to_the_last_mapped_byte_and_not_beyond() {
        // SAFETY: a fresh mapping of two pages, of which the second is taken away again.
        let map = unsafe {
            let p = libc::mmap(core::ptr::null_mut(), 8192, 3, 0x22, -1, 0);
            assert_ne!(p, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(p.add(4096), 4096, 0), 0);
            p.cast::<u64>()
        };
        // SAFETY: the last word of the first page.
        unsafe { map.add(511).write(0xfeed) };
        let mut w = window();
        // SAFETY: reads errno.
        unsafe { *libc::__errno_location() = 77 };
        assert_eq!(w.load(map as u64 + 4088), Some(0xfeed));
        assert_eq!(w.load(map as u64 + 4089), None, "straddles the end");
        assert_eq!(w.load(map as u64 + 4096), None);
        assert_eq!(w.load(16), None);
        assert_eq!(w.load(u64::MAX - 3), None);
        assert_eq!(w.refused, 0, "a fault is no refusal");
        // SAFETY: reads errno.
        assert_eq!(unsafe { *libc::__errno_location() }, 77, "W3");
    }

    #[test]
    fn gives_up_after_its_bound() {
        let pages = vec![1u64; 512 * 64];
        let mut w = window();
        let reads = (0..64).take_while(|i| w.load(&raw const pages[i * 512 + 1] as u64).is_some());
        assert!(reads.count() <= MAX_REFILLS as usize + 1);
        w.start();
        assert_eq!(w.load(pages.as_ptr() as u64), Some(1));
    }
}
