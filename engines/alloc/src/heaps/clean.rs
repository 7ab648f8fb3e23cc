//! Pages of spans that hold nothing and are not resident: their number.
//!
//! ```text
//!   a span of pages never touched ─┐                                blocks are taken from a page
//!   the purger drops a page ───────┴─► a bit of `clean`, HOLES + 1 ─────────► no bit, HOLES - 1 ─► a new peak?
//! ```
//!
//! K1  What the pool has handed out, less HOLES, is what may be resident: its highest is the peak that free pages are given
//!     back for (`pages::claim`). Counted by spans it would have room for pages that were never touched: forty threads
//!     with a page of each of thirty sizes are handed out 34 MB, touch 13, and kept 8 more of free pages (stunnel4).
//!
//! Not here: which pages are dropped (`holes`).

use skinflint_base::sync::{AtomicU64, Ordering};
use skinflint_pages::PAGE;

use super::changes;
use super::pool::{HOLES, MOST, TOUCHED, with_pool};
use crate::mechanism::heap::Heap;
use crate::mechanism::span::Span;

/// Number of such pages that blocks were taken from: each is a fault if it is touched.
pub static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Pages by which the peak is passed before the pool is told of it: its call costs what some ten pages' counts do.
const AT_ONCE: u32 = 16;

/// Notes that no page of a span was touched: it was made of pages that read as zero. The heap's lock is held.
pub fn all_clean(span: &Span) {
    let pages = span.pages();
    HOLES.fetch_add(pages, Ordering::Relaxed); // ORDER: a statistic
    let all = ((1u32 << pages) - 1) as u16;
    span.clean.store(all, Ordering::Relaxed); // ORDER: the lock is held (span.S3)
}

/// Forgets that pages of a span are clean, because blocks from one address to before another were taken from it. The purger
/// is to look at it again (changes.J2).
///
/// # Safety
/// The heap's lock is held, since before they were taken.
#[inline]
pub unsafe fn forget_clean(heap: &Heap, span: &Span, from: usize, to: usize) {
    // ORDER: the lock is held (span.S3).
    let clean = span.clean.load(Ordering::Relaxed);
    if clean != 0 {
        forget(heap, span, clean, (from - span.start(), to - span.start()));
    }
}

#[inline(never)]
#[unsafe(link_section = ".text.skinflint_first")]
fn forget(heap: &Heap, span: &Span, clean: u16, (from, to): (usize, usize)) {
    let (first, last) = (from / PAGE, (to - 1) / PAGE);
    let taken = clean & ((2u32 << last) - (1 << first)) as u16;
    if taken == 0 {
        return;
    }
    span.clean.store(clean & !taken, Ordering::Relaxed); // ORDER: as above
    let pages = taken.count_ones();
    let holes = HOLES.fetch_sub(pages, Ordering::Relaxed) - pages; // ORDER: a statistic
    TAKEN.fetch_add(u64::from(pages), Ordering::Relaxed); // ORDER: a statistic
    changes::note(span);
    // ORDER: hints.
    let resident = TOUCHED.load(Ordering::Relaxed).saturating_sub(holes);
    if resident >= MOST.load(Ordering::Relaxed) + AT_ONCE {
        with_pool(heap.holder(), |_| ()); // K1: it takes down what is absent
    }
}
