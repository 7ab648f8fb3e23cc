//! Free runs by the page map and by buckets: what ships.
//!
//! ```text
//!   beside a page ─► its tag in MAP ─► the run        a length ─► its bucket, or the next bit that is set ─► a run
//! ```
//!
//! X1  Each free and each claimed run has its tags (pages.P3); the former are in the bucket of state and length.
//!
//! Not here: what else a run is in (`pool`), the lists of several nodes (`by_node`).

use core::sync::atomic::Ordering;

use crate::buckets::{BUCKETS, bucket_of, is_exact};
use crate::pool::DIRTY;
use crate::{KIND_FREE, Pool};

pub(crate) use crate::buckets::Buckets as BySize;

/// Number of runs that are looked at in a bucket of several lengths before the next bucket is tried. The recorded
/// requests of the bench do as well with 1; it is for alignments, and for many long runs.
const LOOKED_AT: u32 = 8;

impl Pool {
    /// Reports whether there is a dirty run of at least `pages` pages; exact up to 64. Cost: a load or two.
    pub fn has_dirty(&self, pages: u32) -> bool {
        pages > 0 && self.of_served(DIRTY).next(bucket_of(pages)).is_some()
    }

    /// Returns the descriptor of the free or claimed run that begins or ends at this page; any other entry, and any
    /// page beyond HEAP, gives `None`.
    #[inline]
    pub(crate) fn free_tag(&self, page: u32) -> Option<u32> {
        if page >= self.known_pages {
            return None;
        }
        let offset = self.tag(page);
        // ORDER: no partner: the kind of a free run is written under the lock (pages.P6).
        let free = self.at(offset).kind.load(Ordering::Relaxed) == KIND_FREE;
        free.then_some(offset)
    }

    /// Puts a run into the bucket of its state and length.
    #[inline(always)]
    pub(crate) fn link(&mut self, offset: u32) {
        let run = self.at(offset);
        let (state, bucket) = (run.state.get(), bucket_of(run.pages.get()));
        let page = run.page.get();
        let head = self.buckets(state, page).head(bucket);
        let run = self.at(offset);
        run.next.set(head);
        run.previous.set(0);
        if head != 0 {
            self.at(head).previous.set(offset);
        }
        self.buckets(state, page).set_head(bucket, offset);
    }

    /// Takes a run out of its bucket.
    #[inline(always)]
    pub(crate) fn unlink(&mut self, offset: u32) {
        let run = self.at(offset);
        let (next, previous) = (run.next.get(), run.previous.get());
        let (state, bucket) = (run.state.get(), bucket_of(run.pages.get()));
        let page = run.page.get();
        if next != 0 {
            self.at(next).previous.set(previous);
        }
        if previous != 0 {
            self.at(previous).next.set(next);
        } else {
            self.buckets(state, page).set_head(bucket, next);
        }
    }

    /// Writes a run into a descriptor, and both of its tags.
    pub(crate) fn describe(&mut self, offset: u32, page: u32, pages: u32) {
        let run = self.at(offset);
        run.start.set(self.region.page_addr(page));
        run.page.set(page);
        run.pages.set(pages);
        self.set_tag(page, offset);
        self.set_tag(page + pages - 1, offset);
    }

    /// Clears a tag of a free run.
    #[inline]
    pub(crate) fn clear_tag(&self, page: u32) {
        self.set_tag(page, 0);
    }

    /// Its tags are all there is to a new run here.
    #[inline]
    pub(crate) fn enter_page(&mut self, _: u32) {}

    /// Frees the descriptor of a run whose tags are cleared, or about to be.
    pub(crate) fn forget(&mut self, offset: u32) {
        self.region.desc_free(offset, 1);
    }

    /// Finds a run of this state that fits well: in the request's own bucket the shortest of the first few, else the
    /// first of the next bucket. With an alignment, the first few of each bucket are looked at until one is so long
    /// that it must fit.
    pub(crate) fn find(&self, state: u8, pages: u32, align: u32) -> Option<(u32, u32)> {
        let own = bucket_of(pages);
        let sure = pages.saturating_add(align - 1);
        let mut from = own;
        let lists = self.of_served(state);
        while let Some(bucket) = lists.next(from) {
            let head = lists.head(bucket);
            if self.at(head).pages.get() >= sure && (bucket > own || is_exact(bucket)) {
                return Some((head, self.place_in(head, pages, align)?));
            }
            let mut best: Option<(u32, u32)> = None;
            let (mut offset, mut looked) = (head, 0);
            while offset != 0 && looked < LOOKED_AT {
                let length = self.at(offset).pages.get();
                if best.is_none_or(|(other, _)| length < self.at(other).pages.get())
                    && let Some(page) = self.place_in(offset, pages, align)
                {
                    best = Some((offset, page));
                }
                offset = self.at(offset).next.get();
                looked += 1;
            }
            if best.is_some() {
                return best;
            }
            from = bucket + 1;
        }
        None
    }

    /// Returns a dirty run of the request's bucket or of the next lower one; 0: there is none.
    pub(crate) fn longest_dirty(&self, pages: u32) -> u32 {
        let lists = self.of_served(DIRTY);
        let bucket = lists.previous(bucket_of(pages));
        bucket.map_or(0, |bucket| lists.head(bucket))
    }

    /// Returns the dirty run after this one, by buckets downwards; 0: it is the last.
    pub(crate) fn next_shorter_dirty(&self, offset: u32) -> u32 {
        let run = self.at(offset);
        if run.next.get() != 0 {
            return run.next.get();
        }
        let below = bucket_of(run.pages.get()).checked_sub(1);
        let lists = self.of_served(DIRTY);
        let bucket = below.and_then(|below| lists.previous(below));
        bucket.map_or(0, |bucket| lists.head(bucket))
    }

    /// Returns what finds dirty and clean runs, node by node.
    pub(crate) fn each_lists(&self) -> impl Iterator<Item = (&BySize, &BySize)> {
        let others = self.others.iter().map(|lists| (&lists.dirty, &lists.clean));
        core::iter::once((&self.dirty, &self.clean)).chain(others)
    }

    /// Passes every clean run to `visit`: its first page, and its pages; ends with the first error.
    ///
    /// # Errors
    /// The error of `visit`.
    pub fn each_clean<E>(&self, mut visit: impl FnMut(u32, u32) -> Result<(), E>) -> Result<(), E> {
        let lists = self.each_lists().map(|(_, clean)| clean);
        for (list, bucket) in lists.flat_map(|list| (0..BUCKETS).map(move |bucket| (list, bucket)))
        {
            let mut offset = list.head(bucket);
            while offset != 0 {
                let run = self.at(offset);
                visit(run.page.get(), run.pages.get())?;
                offset = run.next.get();
            }
        }
        Ok(())
    }
}
