//! The page on which counted calls meet whoever wants to know: did the allocator that was preloaded serve at all?
//!
//! ```text
//!   skinflint compare ── makes the file ──► [ used | slot 0 | slot 1 | … ] ◄── a slot for each process image
//!                                                     │
//!                            process id, calls, file that `malloc` beneath the probe is in
//! ```
//!
//! P1  A slot is claimed once, by a constructor, and written by that process image and its forked children only.
//! P2  The file has its full size before a program is started; nobody makes it larger or smaller.
//! P3  A reader believes nothing but lengths that it has checked: any process may have written anything.
//! P4  When all slots are taken the last one is shared: calls are counted still, by whom is not known.
//!
//! Not here: counting (`probe-so`), what follows from it (`compare`).

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Process images that have a slot of their own.
pub const SLOTS: usize = 256;

/// The longest path that a slot holds, in bytes.
pub const PATH_BYTES: usize = 232;

/// What one process image counted.
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
    /// File of the next `malloc` in the loader's order, as the loader names it.
    pub path: core::cell::UnsafeCell<[u8; PATH_BYTES]>,
}

/// The whole file.
#[repr(C)]
pub struct Page {
    /// Slots that were asked for; may be more than there are.
    pub used: AtomicU32,
    /// Reserved.
    pub spare: AtomicU32,
    /// The slots.
    pub slots: [Slot; SLOTS],
}

/// Bytes of the file.
pub const FILE_BYTES: usize = size_of::<Page>();

const _: () = assert!(size_of::<Slot>() == 256 && FILE_BYTES == 8 + SLOTS * 256);
