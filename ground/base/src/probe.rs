//! The page of counted calls, which answers one question: did the preloaded allocator serve the program at all?
//!
//! ```text
//!   skinflint compare ── makes the file ──► [ used | slot 0 | slot 1 | … ] ◄── a slot for each process image
//!                                                     │
//!                            process id, calls, the file of the `malloc` beneath the probe
//! ```
//!
//! P1  A slot is claimed once, by a constructor, and written by that process image and its forked children only.
//! P2  The file has its full size before a program is started; nothing makes it larger or smaller afterwards.
//! P3  A reader trusts nothing but lengths that it has checked: any process may have written anything.
//! P4  When all slots are taken, the last one is shared: calls are still counted, but not which process made them.
//!
//! Not here: the counting (`probe-so`), and what follows from it (`compare`).

use core::sync::atomic::{AtomicU32, AtomicU64};

/// The number of slots: process images beyond it share the last one (P4).
pub const SLOTS: usize = 256;

/// The longest path that a slot holds, in bytes.
pub const PATH_BYTES: usize = 232;

/// The counts of one process image.
#[repr(C)]
pub struct Slot {
    /// Process id in its own namespace; 0 until the constructor ran.
    pub pid: AtomicU32,
    /// Bytes of `path`; written last.
    pub path_bytes: AtomicU32,
    /// Calls that acquire memory, since the constructor ran.
    pub calls: AtomicU64,
    /// Reserved.
    pub spare: AtomicU64,
    /// Path of the file with the next `malloc` in the loader's order, as the loader names it.
    pub path: core::cell::UnsafeCell<[u8; PATH_BYTES]>,
}

/// The whole file.
#[repr(C)]
pub struct Page {
    /// The number of slots that were asked for; may be more than there are.
    pub used: AtomicU32,
    /// Reserved.
    pub spare: AtomicU32,
    /// The slots.
    pub slots: [Slot; SLOTS],
}

/// The size of the file in bytes.
pub const FILE_BYTES: usize = size_of::<Page>();

const _: () = assert!(size_of::<Slot>() == 256 && FILE_BYTES == 8 + SLOTS * 256);
