//! The trait of a pool that answers requests, and the crate's own pool behind it.
//!
//! ```text
//!   Runs ◄── MapPool (here)   TreePool (trees)   NoPool (main)
//! ```
//!
//! A1  The pool is told never to purge, so it makes no system call but to grow.
//!
//! Not here: the other pools.

use skinflint_pages::{Options, Pool};

/// The pages that each pool has at the start.
pub const FIRST_PAGES: u32 = 256;

/// A pool that answers requests.
pub trait Runs {
    /// Creates a pool with nothing in use.
    fn new() -> Self;
    /// Takes a run; returns its first page.
    fn take(&mut self, pages: u32) -> u32;
    /// Gives a run, or the end of one, back as dirty.
    fn give(&mut self, page: u32, pages: u32);
    /// Adds the pages from `end` on to the run before them; reports whether it did.
    fn extend(&mut self, end: u32, more: u32) -> bool;
    /// Returns the most pages in use or dirty.
    fn touched_max(&self) -> u32;
    /// Returns the pages of the heap.
    fn heap_pages(&self) -> u32;
    /// Returns the bytes of metadata; `None`: they are those that the pool has on the heap.
    fn metadata_bytes(&self) -> Option<usize>;
}

/// The crate's own pool.
pub struct MapPool(pub Box<Pool>);

impl Drop for MapPool {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the region.
        unsafe { self.0.region.release() };
    }
}

impl Runs for MapPool {
    fn new() -> MapPool {
        let mut pool = Box::new(Pool::new());
        pool.slack_pages = Some(u32::MAX);
        let placed = pool.region.place(&Options {
            huge_pages: false,
            seed: u64::from(std::process::id()),
            first_heap_bytes: FIRST_PAGES as usize * skinflint_pages::PAGE,
        });
        assert!(placed, "the kernel refuses to place a region");
        MapPool(pool)
    }

    fn take(&mut self, pages: u32) -> u32 {
        self.0.take(pages, 1).expect("memory for the heap").page
    }

    fn give(&mut self, page: u32, pages: u32) {
        self.0.give(page, pages, true);
    }

    fn extend(&mut self, end: u32, more: u32) -> bool {
        self.0.extend(end, more).is_some()
    }

    fn touched_max(&self) -> u32 {
        self.0.touched_max
    }

    fn heap_pages(&self) -> u32 {
        self.0.region.heap_pages()
    }

    fn metadata_bytes(&self) -> Option<usize> {
        let map = self.heap_pages() as usize * size_of::<u32>();
        Some(size_of::<Pool>() + map + self.0.region.meta_used_bytes())
    }
}
