//! Memory held by each stack at the report's instant: its live blocks, and what it mapped itself.
//!
//! ```text
//!   sites    live, as far as it is resident ──┐
//!   mappers  resident                       ──┴─► one row for each stack
//! ```
//!
//! H1  A stack has one row, whether it has blocks, mappings or both.
//!
//! Not here: sums over functions (`through.rs`).

use std::collections::BTreeMap;

use crate::model::Report;

/// The memory that one stack holds at the report's instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HeldBy {
    /// The stack.
    pub node: u32,
    /// Number of live blocks.
    pub blocks: u64,
    /// Resident bytes of these blocks; usable bytes if there is no snapshot.
    pub live_bytes: u64,
    /// Resident bytes that it mapped itself.
    pub mapped_bytes: u64,
    /// Of these, bytes of shared memory.
    pub shared_bytes: u64,
    /// Of these, bytes of files.
    pub file_bytes: u64,
}

impl HeldBy {
    /// Returns the bytes of blocks and mappings together.
    pub fn bytes(&self) -> u64 {
        self.live_bytes.saturating_add(self.mapped_bytes)
    }

    /// Returns the anonymous memory that it mapped, bytes.
    pub fn anonymous_bytes(&self) -> u64 {
        let backed = self.shared_bytes.saturating_add(self.file_bytes);
        self.mapped_bytes.saturating_sub(backed)
    }

    /// Returns the bytes in which a heap of the program's may be: files are none.
    pub fn heap_bytes(&self) -> u64 {
        self.bytes().saturating_sub(self.file_bytes)
    }
}

impl Report {
    /// Returns what each stack holds at the instant, by stack, without those that hold nothing.
    pub fn held(&self) -> Vec<HeldBy> {
        let mut held: BTreeMap<u32, HeldBy> = BTreeMap::new();
        for site in &self.sites {
            let one = held.entry(site.node).or_default();
            let bytes = site.live_resident_bytes.unwrap_or(site.live_usable_bytes);
            one.live_bytes = one.live_bytes.saturating_add(bytes);
            one.blocks += site.live_blocks;
        }
        for mapper in &self.mappers {
            let one = held.entry(mapper.node).or_default();
            let bytes = mapper.resident_bytes.unwrap_or(0);
            one.mapped_bytes = one.mapped_bytes.saturating_add(bytes);
            let (shared, files) = (
                mapper.shared_bytes.unwrap_or(0),
                mapper.file_bytes.unwrap_or(0),
            );
            one.shared_bytes = one.shared_bytes.saturating_add(shared);
            one.file_bytes = one.file_bytes.saturating_add(files);
        }
        let named = |(node, one)| HeldBy { node, ..one };
        let all = held.into_iter().map(named);
        all.filter(|one| one.bytes() > 0).collect()
    }
}
