//! Megabytes from Rust's allocator, for Miri: it has no system calls, and checks which allocation a pointer belongs to.
//!
//! ```text
//!   take(slots) ──► alloc_zeroed(slots MiB, aligned)        find(addr) ──► a map of starts
//! ```
//!
//! A1  It stands in for `backing`: zero at take, found by any address within.
//!
//! Not here: refusals.

use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;

use crate::heap::address::{CHUNK_BYTES, Chunk};

pub(crate) struct Backing {
    /// Start of a chunk ─► chunk, megabytes, owner.
    taken: BTreeMap<usize, (Chunk, u32, u32)>,
}

fn layout(slots: u32) -> Option<Layout> {
    Layout::from_size_align(slots as usize * CHUNK_BYTES, CHUNK_BYTES).ok()
}

impl Backing {
    pub(crate) fn new() -> Backing {
        Backing {
            taken: BTreeMap::new(),
        }
    }

    pub(crate) fn take(&mut self, slots: u32, owner: u32) -> Option<Chunk> {
        // SAFETY: A1: at least a megabyte.
        let start = unsafe { alloc_zeroed(layout(slots)?) };
        let chunk = NonNull::new(start).map(Chunk)?;
        self.taken.insert(start.addr(), (chunk, slots, owner));
        Some(chunk)
    }

    pub(crate) fn give(&mut self, chunk: Chunk, slots: u32) {
        let (chunk, had, _) = self.taken.remove(&chunk.0.as_ptr().addr()).expect("taken");
        assert_eq!(had, slots);
        // SAFETY: A1: from `take`, with the same layout.
        unsafe { dealloc(chunk.0.as_ptr(), layout(slots).expect("was one")) };
    }

    pub(crate) fn purge(&mut self, start: NonNull<u8>, bytes: usize) {
        // SAFETY: only the caller has it, and does not use it.
        unsafe { start.as_ptr().write_bytes(0, bytes) };
    }

    pub(crate) fn flush(&mut self) {}

    pub(crate) fn find(&self, addr: usize) -> Option<(Chunk, u32)> {
        let (&start, &(chunk, slots, owner)) = self.taken.range(..=addr).next_back()?;
        (addr < start + slots as usize * CHUNK_BYTES).then_some((chunk, owner))
    }

    pub(crate) fn set_owner(&mut self, chunk: Chunk, owner: u32) {
        if let Some(taken) = self.taken.get_mut(&chunk.0.as_ptr().addr()) {
            taken.2 = owner;
        }
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        0
    }
}

/// Stands in for that of `backing`.
pub(crate) struct Purger;

impl Purger {
    pub(crate) fn new() -> Purger {
        Purger
    }

    pub(crate) fn add(&mut self, start: NonNull<u8>, bytes: usize) {
        // SAFETY: only the caller has it, and does not use it.
        unsafe { start.as_ptr().write_bytes(0, bytes) };
    }

    pub(crate) fn flush(&mut self) {}
}
