//! The allocator's figures, as the C library's reports divide them.
//!
//! ```text
//!   system_bytes = used_bytes + free_bytes            (large blocks among them)
//! ```
//!
//! Not here: counting (`alloc`).

use skinflint_alloc::stats::{Snapshot, snapshot};

/// Sums over the whole process.
#[derive(Default, Clone, Copy)]
pub struct Totals {
    /// Bytes mapped for blocks, in use or not; large blocks included.
    pub system_bytes: usize,
    /// Usable bytes of live blocks; large blocks included.
    pub used_bytes: usize,
    /// Number of live blocks that are runs of pages of their own.
    pub large_blocks: usize,
    /// Usable bytes of the live large blocks.
    pub large_bytes: usize,
    /// The most large blocks at once.
    pub large_blocks_max: usize,
    /// The most bytes in large blocks at once.
    pub large_bytes_max: usize,
    /// Number of free runs of pages.
    pub free_runs: usize,
    /// Resident bytes that `malloc_trim` would give back.
    pub trimmable_bytes: usize,
}

impl Totals {
    /// Returns the bytes that are mapped, and in no live block.
    pub fn free_bytes(&self) -> usize {
        self.system_bytes.saturating_sub(self.used_bytes)
    }
}

/// Returns the figures of this moment; zeroes if there are none (in a signal handler that interrupted the allocator).
pub fn totals() -> Totals {
    let mut figures = Snapshot::new();
    if !snapshot(&mut figures, false) {
        return Totals::default();
    }
    Totals {
        system_bytes: figures.mapped_bytes,
        used_bytes: figures.usable_bytes(),
        large_blocks: figures.large_blocks as usize,
        large_bytes: figures.mapped.large,
        large_blocks_max: figures.large_blocks_max as usize,
        large_bytes_max: figures.large_bytes_max,
        free_runs: figures.free_runs,
        trimmable_bytes: figures.trimmable_bytes,
    }
}
