//! All memory of the replayer: one memfd, mapped once.
//!
//! ```text
//!   offset 0 ─ stage │ parts (threads) │ buffers │ stacks │ scratch │ slots ─────────► (sparse: up to 64 GiB of addresses)
//! ```
//!
//! A1  The mapping lives as long as the process; each area is handed out once, so references into it are `'static`.
//! A2  Its pages come into being when they are touched and are counted by the kernel: `st_blocks` of the memfd is
//!     what the replayer holds, to the page, and any program can read it through /proc/PID/fd while the script is
//!     replayed.
//! A3  Fresh memory is zero.
//!
//! Not here: the content of the areas (stage.rs, slots.rs, threads.rs, points.rs).

use core::ffi::c_int;

use skinflint_replay::script::{LEAD, MAX_PAYLOAD_BYTES};

use crate::slots::Slot;

/// The size of a thread's stack, with the page that guards its lower end.
pub const STACK_BYTES: usize = 256 << 10;
const PAGE: usize = 4096;
/// The room after a buffer, so that what looks ahead (`AHEAD` of player.rs, two words more) stays inside.
const SLACK: usize = PAGE;
/// The address space for slots as binary logarithms, in the order in which they are tried: 32 bits of slots, then
/// what a limited address space (`ulimit -v`, valgrind) may still have.
const SLOTS_LOG2: [u32; 4] = [36, 33, 30, 28];

/// The mapping and its areas.
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
    slots_log2: u32,
}

/// The address space for counting pages (points.rs): an eighth of that for slots, which is room for 14 million groups
/// of 2 MiB with a block in them, or for 58,000 in the smallest.
const SCRATCH_SHIFT: u32 = 3;

fn map(fd: c_int, whole: usize) -> Result<*mut u8, c_int> {
    // SAFETY: no memory is passed.
    if unsafe { libc::ftruncate(fd, whole as i64) } != 0 {
        return Err(crate::system::error());
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
    // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing.
    let base = unsafe { libc::mmap(core::ptr::null_mut(), whole, protection, flags, fd, 0) };
    match base {
        libc::MAP_FAILED => Err(crate::system::error()),
        _ => Ok(base.cast()),
    }
}

const fn pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE)
}

impl Memory {
    /// Maps areas for a stage, for this many threads of this many bytes each, and for everything else.
    ///
    /// # Errors
    /// The kernel's error number.
    pub fn new(stage_bytes: usize, threads: usize, part_bytes: usize) -> Result<Memory, c_int> {
        // SAFETY: a C string; no memory is passed.
        let fd = unsafe { libc::memfd_create(c"skinflint-replay".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(crate::system::error());
        }
        let parts = pages(stage_bytes);
        let buffers = parts + pages(threads * part_bytes);
        let stacks = buffers + LEAD as usize * (MAX_PAYLOAD_BYTES + SLACK);
        let scratch = stacks + threads * STACK_BYTES;
        let mut error = 0;
        for slots_log2 in SLOTS_LOG2 {
            let slots = scratch + (1 << (slots_log2 - SCRATCH_SHIFT));
            let whole = slots + (1 << slots_log2);
            match map(fd, whole) {
                Ok(base) => {
                    return Ok(Memory {
                        base,
                        fd,
                        parts,
                        buffers,
                        stacks,
                        scratch,
                        slots,
                        slots_log2,
                    });
                }
                Err(number) => error = number,
            }
        }
        Err(error)
    }

    fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: offsets are those of `new`, inside the mapping (A1).
        unsafe { self.base.add(offset) }
    }

    /// Returns the address of the stage.
    pub fn stage(&self) -> *mut u8 {
        self.at(0)
    }

    /// Returns the address of the threads' parts.
    pub fn parts(&self) -> *mut u8 {
        self.at(self.parts)
    }

    /// Returns the buffer of this epoch.
    pub fn buffer(&self, epoch: u32) -> *mut u8 {
        self.at(self.buffers + (epoch % LEAD) as usize * (MAX_PAYLOAD_BYTES + SLACK))
    }

    /// Returns the address of this stack; its lowest page is made inaccessible.
    pub fn stack(&self, number: usize) -> *mut u8 {
        let stack = self.at(self.stacks + number * STACK_BYTES);
        // SAFETY: a page of ours that no thread uses yet (A1).
        unsafe { libc::mprotect(stack.cast(), PAGE, libc::PROT_NONE) };
        stack
    }

    /// Returns the address of the area where pages are counted.
    pub fn scratch(&self) -> *mut u8 {
        self.at(self.scratch)
    }

    /// Returns the size of that area in bytes.
    pub fn scratch_bytes(&self) -> usize {
        self.slots - self.scratch
    }

    /// Gives the pages of the scratch area back: it reads as zero again.
    pub fn drop_scratch(&self) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: no memory is passed; no references into the scratch area exist now.
        unsafe {
            libc::fallocate(
                self.fd,
                mode,
                self.scratch as i64,
                (self.slots - self.scratch) as i64,
            )
        };
    }

    /// Returns the address of the slots.
    pub fn slots(&self) -> *mut u8 {
        self.at(self.slots)
    }

    /// Returns the mask that a slot's number is cut with, so that it is one of the table.
    pub fn slot_mask(&self) -> u32 {
        ((1_u64 << self.slots_log2) / size_of::<Slot>() as u64 - 1) as u32
    }

    /// Makes the pages of these slots exist, all at once, so that the player does not fault on them one by one.
    pub fn populate(&self, slots: core::ops::Range<u32>) {
        let (start, end) = (
            slots.start as usize * size_of::<Slot>(),
            slots.end as usize * size_of::<Slot>(),
        );
        // SAFETY: pages of the table, which only come into being (A1); an old kernel refuses, and nothing is lost.
        unsafe {
            let at = self.slots().add(start & !(PAGE - 1));
            libc::madvise(
                at.cast(),
                end - (start & !(PAGE - 1)),
                libc::MADV_POPULATE_WRITE,
            );
        }
    }

    /// Returns the bytes of the mapping that exist (A2).
    pub fn held_bytes(&self) -> u64 {
        // SAFETY: a structure of integers, for which zeros are values.
        let mut stat: libc::stat = unsafe { core::mem::zeroed() };
        // SAFETY: the result is written to a local.
        unsafe { libc::fstat(self.fd, &mut stat) };
        stat.st_blocks as u64 * 512
    }
}
