//! Megabytes from the page pool.
//!
//! ```text
//!   take(slots) ──► Pool::take(256 × slots pages, aligned) ──► MAP: each megabyte's first page ─► chunk
//!   find(addr)  ──► MAP entry of the megabyte ──► descriptor ──► start of the chunk
//! ```
//!
//! A1  All runs of the pool are whole megabytes, so each megabyte's first page has an entry that says what it belongs
//!     to: a chunk, a free run, or 0 for neither.
//! A2  The pool's free runs are clean: what is given back was purged before.
//!
//! Not here: how many empty chunks are kept (`source`); the same for Miri, which has no system calls (`backing_miri`).

use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use skinflint_pages::{Header, Options, PAGE, Pool, purge::Batch};

use crate::heap::address::{CHUNK_BYTES, Chunk};

const PAGES: u32 = (CHUNK_BYTES / PAGE) as u32;
/// The kind of our descriptors; 0 and 1 are the pool's.
const KIND_CHUNK: u8 = 2;

pub(crate) struct Backing {
    pool: Pool,
    batch: Box<Batch>,
}

impl Backing {
    pub(crate) fn new() -> Backing {
        Backing {
            pool: Pool::new(),
            batch: Box::new(Batch::new()),
        }
    }

    /// Takes a run of megabytes that reads as zero, for an owner. `None`: the kernel refused, and nothing changed.
    pub(crate) fn take(&mut self, slots: u32, owner: u32) -> Option<Chunk> {
        let placed = self.pool.region.place(&Options {
            huge_pages: false,
            seed: RandomState::new().build_hasher().finish(),
            first_heap_bytes: CHUNK_BYTES,
        });
        let pages = slots.checked_mul(PAGES).filter(|_| placed)?;
        let descriptor = self.pool.region.desc_alloc(1)?;
        let Some(run) = self.pool.take(pages, PAGES) else {
            self.pool.region.desc_free(descriptor, 1);
            return None;
        };
        debug_assert!(run.clean, "A2");
        let start = self.pool.region.page_addr(run.page);
        // SAFETY: A1: the descriptor was just handed out, and is one unit.
        let header: &mut Header = unsafe { &mut *self.pool.region.at::<Header>(descriptor) };
        header.start = start;
        header.own[0] = owner;
        // ORDER: no partner: the pool and what refers to it are behind the source's lock.
        header.kind.store(KIND_CHUNK, Ordering::Relaxed);
        for slot in 0..slots {
            let entry = self.pool.region.map_entry(run.page + slot * PAGES);
            // ORDER: as above.
            entry.store(descriptor, Ordering::Relaxed);
        }
        NonNull::new(core::ptr::with_exposed_provenance_mut(start)).map(Chunk)
    }

    /// Gives a run back, and purges its content.
    pub(crate) fn give(&mut self, chunk: Chunk, slots: u32) {
        self.purge(chunk.0, slots as usize * CHUNK_BYTES);
        self.flush();
        let region = &self.pool.region;
        let page = ((chunk.0.as_ptr().addr() - region.base()) / PAGE) as u32;
        // ORDER: as in `take`.
        let descriptor = region.map_entry(page).load(Ordering::Relaxed);
        for slot in 0..slots {
            // ORDER: as in `take`.
            let entry = region.map_entry(page + slot * PAGES);
            entry.store(0, Ordering::Relaxed);
        }
        self.pool.region.desc_free(descriptor, 1);
        self.pool.give(page, slots * PAGES, false);
    }

    /// Gives pages back, at the next [`Backing::flush`] at the latest, and keeps their addresses. They read as zero
    /// then. They must not be used meanwhile.
    pub(crate) fn purge(&mut self, start: NonNull<u8>, bytes: usize) {
        self.batch.add(start.as_ptr().addr(), bytes);
    }

    pub(crate) fn flush(&mut self) {
        self.batch.flush();
    }

    /// Returns the descriptor of the megabyte that an address lies in.
    fn header(&self, addr: usize) -> Option<*mut Header> {
        let region = &self.pool.region;
        let offset = addr.checked_sub(region.base())?;
        if region.base() == 0 || offset >= region.heap_bytes() {
            return None;
        }
        let page = (offset / CHUNK_BYTES) as u32 * PAGES;
        // ORDER: as in `take`.
        let descriptor = region.map_entry(page).load(Ordering::Relaxed);
        Some(region.at::<Header>(descriptor))
    }

    /// Returns the chunk that an address lies in, if there is one, and its owner.
    pub(crate) fn find(&self, addr: usize) -> Option<(Chunk, u32)> {
        let header = self.header(addr)?;
        // SAFETY: every entry of MAP is the offset of a descriptor, 0 included, and they are never unmapped.
        let (kind, start, owner) = unsafe { (&(*header).kind, (*header).start, (*header).own[0]) };
        // ORDER: as in `take`.
        let taken = kind.load(Ordering::Relaxed) == KIND_CHUNK;
        let start =
            NonNull::new(core::ptr::with_exposed_provenance_mut(start)).filter(|_| taken)?;
        Some((Chunk(start), owner))
    }

    /// Gives a chunk another owner.
    pub(crate) fn set_owner(&mut self, chunk: Chunk, owner: u32) {
        if let Some(header) = self.header(chunk.0.as_ptr().addr()) {
            // SAFETY: the chunk is taken, so this is its own descriptor, which only this file writes.
            unsafe { (*header).own[0] = owner };
        }
    }

    /// Returns the bytes of the pool's own that may be resident.
    pub(crate) fn metadata_bytes(&self) -> usize {
        self.pool.region.meta_used_bytes()
    }
}

/// Gives pages back that only the caller uses, without the source's lock.
pub(crate) struct Purger(Box<Batch>);

impl Purger {
    pub(crate) fn new() -> Purger {
        Purger(Box::new(Batch::new()))
    }

    /// Does what [`Backing::purge`] does.
    pub(crate) fn add(&mut self, start: NonNull<u8>, bytes: usize) {
        self.0.add(start.as_ptr().addr(), bytes);
    }

    pub(crate) fn flush(&mut self) {
        if !self.0.is_empty() {
            self.0.flush();
        }
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        // SAFETY: the source is dropped after every heap that has chunks of it (source.S3).
        unsafe { self.pool.region.release() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_up_to_the_last_of_the_region_are_asked_about() {
        let mut backing = Backing::new();
        assert!(backing.find(0).is_none() && backing.find(usize::MAX).is_none());
        let chunk = backing.take(1, 5).expect("memory");
        let start = chunk.0.as_ptr().addr();
        assert_eq!(backing.find(start), Some((chunk, 5)));
        let region = &backing.pool.region;
        let (first, end) = (region.base(), region.base() + region.heap_bytes());
        assert!(backing.find(first - 1).is_none());
        assert!(backing.find(end).is_none(), "behind the last megabyte");
        backing.give(chunk, 1);
        assert!(backing.find(start).is_none());
    }
}
