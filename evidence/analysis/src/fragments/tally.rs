//! The tally of one stack's blocks and their pages, and where a block lies.
//!
//! ```text
//!   begin ─ header ─ addr ───── usable ───── end        Placed: on pages of PAGE bytes
//!   Tally: free bytes, sole and joint pages, blocks ──row──► Pins
//! ```
//!
//! Not here: the walks that count (`sweep.rs`, `layout.rs`, `measure.rs`).

use crate::model::Pins;

/// The size of a kernel page.
pub(crate) const PAGE: u64 = 4096;

/// A live block with its place, from its header to the end of its usable size. Ordered by address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub begin: u64,
    pub end: u64,
    /// The address of the block itself.
    pub addr: u64,
    pub cell: u32,
    /// Its place among [`crate::ledger::Ledger::live_at`]'s.
    pub slot: u32,
}

/// The figures of one stack's blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub free_bytes: u64,
    pub sole_free_bytes: u64,
    pub sole_pages: u64,
    pub joint_pages: u64,
    pub blocks: u64,
    pub block_bytes: u64,
    pub live_bytes: u64,
    pub live_blocks: u64,
    pub acquired: u64,
    pub sole_spans: u64,
    pub joint_spans: u64,
}

impl Tally {
    /// Adds what may be added: pages that two of them share stay counted twice.
    pub(super) fn add(&mut self, other: &Tally) {
        self.free_bytes += other.free_bytes;
        self.sole_free_bytes += other.sole_free_bytes;
        self.sole_pages += other.sole_pages;
        self.joint_pages += other.joint_pages;
        self.blocks += other.blocks;
        self.block_bytes += other.block_bytes;
        self.live_bytes += other.live_bytes;
        self.live_blocks += other.live_blocks;
        self.acquired += other.acquired;
        self.sole_spans += other.sole_spans;
        self.joint_spans += other.joint_spans;
    }

    pub(super) fn packed_pages(&self) -> u64 {
        self.live_bytes.div_ceil(PAGE)
    }

    pub(super) fn freed_pages(&self) -> u64 {
        self.sole_pages.saturating_sub(self.packed_pages())
    }

    /// Returns the figures as a row of the report, for a heap with this many resident bytes.
    pub(super) fn row(&self, node: Option<u32>, stacks: u64, resident_bytes: u64) -> Pins {
        Pins {
            node,
            stacks,
            free_bytes: self.free_bytes,
            sole_free_bytes: self.sole_free_bytes,
            blocks: self.blocks,
            block_bytes: self.block_bytes,
            live_blocks: self.live_blocks,
            live_bytes: self.live_bytes,
            acquired_blocks: self.acquired,
            sole_pages: self.sole_pages,
            joint_pages: self.joint_pages,
            packed_pages: self.packed_pages(),
            freed_pages: self.freed_pages(),
            resident_elsewhere_bytes: resident_bytes.saturating_sub(self.freed_pages() * PAGE),
            age: None,
            sole_spans: self.sole_spans,
            joint_spans: self.joint_spans,
        }
    }
}
