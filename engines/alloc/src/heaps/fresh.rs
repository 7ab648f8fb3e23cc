//! Pages of a span that was never touched, or was purged: made resident a few at a time, not one by one.
//!
//! ```text
//!   current span  [ used ][ used ][ fresh ][ fresh ][ fresh ][ fresh ][ fresh ] …
//!                                  ▲ the magazine's new blocks
//!                                  └───────── one call ──────────┘
//! ```
//!
//! Y1  `Heap::fresh` has a bit for each page of a class's current span that is not known to be resident. A bit too many
//!     costs a call, one too few a fault; correctness depends on neither.
//! Y2  Only for classes of small blocks with many pages, so that pages that are made resident and never used are few
//!     beside those in use: at most three pages for the current span of each class.
//!
//! Not here: which pages are clean (`holes`), the call (`pages::populate`).

use skinflint_base::sync::Ordering;
use skinflint_pages::{PAGE, populate};

use super::clean;
use crate::mechanism::class;
use crate::mechanism::heap::Heap;
use crate::mechanism::span::Span;

/// Pages of one call. As a fault a page costs 1.45 µs, as one of four 1.07, of eight 0.91, of sixteen 0.83 (`cargo run
/// --release -p skinflint-pages --example fault_cost`, 2026-11-21); but a page that is made resident too early is
/// resident for nothing, in each class that has many pages.
const AT_ONCE: u32 = 4;
/// Bytes of the largest blocks: most pages of larger blocks may never be touched.
const BLOCK_MAX: u32 = 2_048;
/// Fewest pages of the class, over all heaps, for which this is done.
const LEAST_PAGES: u32 = 64;

impl Heap {
    /// Notes pages of a class's current span that are not resident.
    ///
    /// The heap's lock is held by its owner.
    pub fn note_fresh(&self, class: usize, pages: u16) {
        let suits =
            class::get(class).size <= BLOCK_MAX && class::population_of(class) >= LEAST_PAGES;
        // ORDER: the lock is held, here and below.
        self.fresh[class].store(if suits { pages } else { 0 }, Ordering::Relaxed);
    }

    /// Makes the first fresh page resident, with those behind it, of the blocks of the current span from one address to
    /// before another, which are about to be used.
    ///
    /// The heap's lock is held by its owner.
    pub fn freshen(&self, class: usize, span: &Span, from: usize, to: usize) {
        let fresh = u32::from(self.fresh[class].load(Ordering::Relaxed)); // ORDER: as above
        let start = span.start();
        let (first, last) = ((from - start) / PAGE, (to - 1 - start) / PAGE);
        let wanted = fresh & ((2u32 << last) - (1 << first));
        if wanted == 0 {
            return;
        }
        let page = wanted.trailing_zeros();
        let run = (!(fresh >> page)).trailing_zeros();
        let pages = run.min(AT_ONCE).min(span.pages() - page);
        let left = fresh & !(((1 << pages) - 1) << page);
        self.fresh[class].store(left as u16, Ordering::Relaxed); // ORDER: as above
        if pages > 1 {
            let from = start + page as usize * PAGE;
            populate::populate(from, pages as usize);
            // SAFETY: the lock is held, and resident they are clean no more (holes.O2).
            unsafe { clean::forget_clean(self, span, from, from + pages as usize * PAGE) };
        }
    }
}
