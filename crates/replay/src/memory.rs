//! All memory of the replayer: one memfd, mapped once.
//!
//! ```text
//!   offset 0 ─ stage │ parts (threads) │ buffers │ stacks │ scratch │ slots ───────────► (sparse, 64 GiB and more)
//! ```
//!
//! A1  The mapping lives as long as the process; each area is handed out once, so references into it are `'static`.
//! A2  Its pages come into being when they are touched and are counted by the kernel: `st_blocks` of the memfd is what
//!     the replayer holds, to the page, and anybody can read it through /proc/PID/fd while the script is played.
//! A3  Fresh memory is zero.
//!
//! Not here: what lies in the areas (stage.rs, slots.rs, threads.rs, points.rs).

use core::ffi::c_int;

use skinflint_replay::script::{LEAD, MAX_PAYLOAD_BYTES};

use crate::slots::SLOTS_BYTES;

/// Bytes of a thread's stack, with the page that guards its lower end.
pub const STACK_BYTES: usize = 256 << 10;
const PAGE: usize = 4096;
/// Bytes after a buffer, so that what looks ahead stays inside.
const SLACK: usize = PAGE;
/// Address space for counting pages (points.rs).
pub const SCRATCH_BYTES: usize = 16 << 30;

/// The mapping.
#[derive(Clone, Copy)]
pub struct Memory {
    base: *mut u8,
    /// The memfd.
    pub fd: c_int,
    parts: usize,
    buffers: usize,
    stacks: usize,
    scratch: usize,
    slots: usize,
}

const fn pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE)
}

impl Memory {
    /// Maps areas for a stage, so many threads of so many bytes each, and everything else.
    ///
    /// # Errors
    /// The error number of the kernel.
    pub fn new(stage_bytes: usize, threads: usize, part_bytes: usize) -> Result<Memory, c_int> {
        let parts = pages(stage_bytes);
        let buffers = parts + pages(threads * part_bytes);
        let stacks = buffers + LEAD as usize * (MAX_PAYLOAD_BYTES + SLACK);
        let scratch = stacks + threads * STACK_BYTES;
        let slots = scratch + SCRATCH_BYTES;
        let whole = slots + SLOTS_BYTES;
        // SAFETY: a C string; no memory is passed.
        let fd = unsafe { libc::memfd_create(c"skinflint-replay".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: no memory is passed.
        if fd < 0 || unsafe { libc::ftruncate(fd, whole as i64) } != 0 {
            return Err(crate::system::error());
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing.
        let base = unsafe { libc::mmap(core::ptr::null_mut(), whole, protection, flags, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(crate::system::error());
        }
        Ok(Memory {
            base: base.cast(),
            fd,
            parts,
            buffers,
            stacks,
            scratch,
            slots,
        })
    }

    fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: offsets are those of `new`, inside the mapping (A1).
        unsafe { self.base.add(offset) }
    }

    /// Where the stage lies.
    pub fn stage(&self) -> *mut u8 {
        self.at(0)
    }

    /// Where the threads' parts lie.
    pub fn parts(&self) -> *mut u8 {
        self.at(self.parts)
    }

    /// The buffer of this epoch.
    pub fn buffer(&self, epoch: u32) -> *mut u8 {
        self.at(self.buffers + (epoch % LEAD) as usize * (MAX_PAYLOAD_BYTES + SLACK))
    }

    /// Where this stack lies; its lowest page is made inaccessible.
    pub fn stack(&self, number: usize) -> *mut u8 {
        let stack = self.at(self.stacks + number * STACK_BYTES);
        // SAFETY: a page of ours that nobody uses yet (A1).
        unsafe { libc::mprotect(stack.cast(), PAGE, libc::PROT_NONE) };
        stack
    }

    /// Where pages are counted.
    pub fn scratch(&self) -> *mut u8 {
        self.at(self.scratch)
    }

    /// Gives the pages of the scratch area back: it reads as zero again.
    pub fn drop_scratch(&self) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: no memory is passed; nobody holds references into the scratch area now.
        unsafe { libc::fallocate(self.fd, mode, self.scratch as i64, SCRATCH_BYTES as i64) };
    }

    /// Where the slots lie.
    pub fn slots(&self) -> *mut u8 {
        self.at(self.slots)
    }

    /// Bytes that exist of all this (A2).
    pub fn held_bytes(&self) -> u64 {
        // SAFETY: a structure of integers, for which zeros are values.
        let mut stat: libc::stat = unsafe { core::mem::zeroed() };
        // SAFETY: the result is written to a local.
        unsafe { libc::fstat(self.fd, &mut stat) };
        stat.st_blocks as u64 * 512
    }
}
