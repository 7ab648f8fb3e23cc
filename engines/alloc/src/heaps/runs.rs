//! The runs of pages that large blocks are, as the pool's lock guards them: descriptors, counts, and giving back.
//!
//! ```text
//!   give ──► MAP[first] cleared, descriptor and pages to the pool, a hint        defer ──► the next holder of the pool
//! ```
//!
//! Not here: what a program asks for (`large`).

use skinflint_base::sync::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use skinflint_pages::{PAGE, Pool};

use super::hints;
use crate::mechanism::kept::Kept;
use crate::mechanism::range::{at, base};
use crate::mechanism::span::KIND_CACHED;
use crate::mechanism::{publish, remote};

/// The descriptor of a large block; its head is that of every descriptor.
#[repr(C, align(64))]
pub struct Large {
    /// Address of the block.
    pub start: usize,
    /// Pages of the run.
    pub pages: u32,
    /// Where a span has its reciprocal: 0 (large.L3).
    pub no_mul: u32,
    /// No heap.
    pub owner: AtomicU32,
    /// `KIND_LARGE`.
    pub kind: AtomicU8,
    /// Whether its pages came from elsewhere (large.L2).
    pub displaced: u8,
    /// Not 0: the block is given up, and not given back yet (`harden::guard`).
    pub held: AtomicU8,
    /// What its free has to do besides: [`RAISED`], [`SAMPLED`].
    pub marks: u8,
    /// Offset of the tenant's heap, or 0.
    pub tenant: u32,
    /// Next block of the tenant.
    pub next: u32,
    /// Previous block of the tenant.
    pub prev: u32,
    /// Next on the list of blocks that could not be given back at once.
    deferred: AtomicU32,
    /// Bytes before the block that belong to it: guard pages.
    pub lead: u32,
    /// Bytes of ours between the block and the guard page behind it.
    pub slack: u32,
    /// Bytes that were requested.
    pub requested: AtomicUsize,
}

const _: () = assert!(core::mem::size_of::<Large>() == 64);
const _: () = assert!(core::mem::offset_of!(Large, owner) == 16);
const _: () = assert!(core::mem::offset_of!(Large, kind) == 20);

/// The pages in use reached a new maximum with it, and its first free asks what it touched (`services::sparse`).
pub const RAISED: u8 = 1;
/// It is a sample of the profile (`services::profile`).
pub const SAMPLED: u8 = 2;

static DEFERRED: AtomicU32 = AtomicU32::new(0);

/// Displaced runs (large.L2).
pub static DISPLACED: AtomicU32 = AtomicU32::new(0);

/// Pages of live large blocks. Written under the pool's lock, without locked instructions: four of those in a pair of
/// calls were a quarter of its time.
pub static LIVE_PAGES: AtomicU32 = AtomicU32::new(0);

/// Number of live large blocks; see [`LIVE_PAGES`].
pub static LIVE_BLOCKS: AtomicU32 = AtomicU32::new(0);

/// The highest that [`LIVE_PAGES`] has been.
pub static MOST_PAGES: AtomicU32 = AtomicU32::new(0);

/// The highest that [`LIVE_BLOCKS`] has been.
pub static MOST_BLOCKS: AtomicU32 = AtomicU32::new(0);

/// Pages (the upper half) and number of the runs that were kept and are on their way to the pool; part of the counts of live
/// ones, as those in heaps' slots are.
static LEAVING: AtomicU64 = AtomicU64::new(0);

/// The same of those in heaps' slots, as of each heap's last [`publish_kept`]. Not at each put and take: a locked instruction
/// on a word of all threads.
static PUBLISHED: AtomicU64 = AtomicU64::new(0);

/// Counts a kept run that was taken out for the pool.
pub fn count_leaving(pages: u32) {
    // ORDER: a statistic.
    LEAVING.fetch_add(u64::from(pages) << 32 | 1, Ordering::Relaxed);
}

/// Counts a kept run that went to the pool, after it has gone: it was not live once more.
fn count_given(pages: u32) {
    // ORDER: as above.
    LEAVING.fetch_sub(u64::from(pages) << 32 | 1, Ordering::Relaxed);
}

/// Has what a heap keeps counted as kept, and not as live, in the maxima of live blocks. A heap's own thread calls it before
/// a block comes from the pool, the purger at its walks.
pub fn publish_kept(kept: &Kept) {
    if kept.held() != kept.published() {
        PUBLISHED.fetch_add(kept.publish(), Ordering::Relaxed); // ORDER: a statistic
    }
}

/// Returns the runs that are on their way to the pool, as [`LEAVING`] has them.
#[cfg(test)]
pub fn leaving() -> u64 {
    LEAVING.load(Ordering::Relaxed) // ORDER: a statistic
}

/// Returns the pages and the number of the runs that are kept, by what was published.
fn kept_now() -> u64 {
    // ORDER: statistics, which wrap around only in the child of a fork (fork.W6).
    let leaving = LEAVING.load(Ordering::Relaxed);
    leaving.wrapping_add(PUBLISHED.load(Ordering::Relaxed)) // ORDER: as above
}

/// Raises the maxima of live blocks, after a block was taken from this heap's runs. Of other heaps' runs those count as live
/// that were kept since they were last published: within a walk of the purger's.
#[inline]
pub fn count_taken(kept: &Kept) {
    let own = kept.held().wrapping_sub(kept.published());
    let all = kept_now().wrapping_add(own);
    let live = |count: &AtomicU32| count.load(Ordering::Relaxed); // ORDER: as above
    raise(
        &MOST_PAGES,
        live(&LIVE_PAGES).wrapping_sub((all >> 32) as u32),
    );
    raise(&MOST_BLOCKS, live(&LIVE_BLOCKS).wrapping_sub(all as u32));
}

/// Raises a maximum. Two threads at once may lose the lower of two values, or, beside a block that is just counted, note
/// one that is not there yet: a statistic.
#[inline]
fn raise(most: &AtomicU32, now: u32) {
    // ORDER: statistics.
    if now as i32 > most.load(Ordering::Relaxed) as i32 {
        most.store(now, Ordering::Relaxed); // ORDER: as above
    }
}

/// Adds to a count, of which so many are kept, and to its maximum if it rises. The pool's lock is held.
fn count(live: &AtomicU32, most: &AtomicU32, more: u32, kept: u32) {
    // ORDER: the lock is held; others look, at each by itself.
    let now = live.load(Ordering::Relaxed).wrapping_add(more);
    live.store(now, Ordering::Relaxed); // ORDER: as above
    raise(most, now.wrapping_sub(kept));
}

/// Counts pages that came, or went (a negative number as it wraps around). The pool's lock is held.
pub fn count_pages(more: u32) {
    let kept = (kept_now() >> 32) as u32;
    count(&LIVE_PAGES, &MOST_PAGES, more, kept);
}

/// Counts a block of `pages` pages that came. The pool's lock is held.
pub fn count_block(pages: u32) {
    count_pages(pages);
    let kept = kept_now() as u32;
    count(&LIVE_BLOCKS, &MOST_BLOCKS, 1, kept);
}

/// Counts a block of `pages` pages that went. The pool's lock is held.
fn uncount_block(pages: u32) {
    count_pages(pages.wrapping_neg());
    let kept = kept_now() as u32;
    count(&LIVE_BLOCKS, &MOST_BLOCKS, u32::MAX, kept);
}

/// Returns the number of the page of an address.
pub fn page_of(address: usize) -> u32 {
    ((address - base()) / PAGE) as u32
}

/// Gives a block's pages to the pool.
///
/// # Safety
/// The offset is that of a live large block that nothing uses.
pub unsafe fn give(pool: &mut Pool, offset: u32) {
    let large = at::<Large>(offset);
    // SAFETY: as the caller promises.
    let (start, pages, displaced) =
        unsafe { ((*large).start, (*large).pages, (*large).displaced != 0) };
    let page = page_of(start);
    publish::clear(pool.region.map_entry(page));
    // SAFETY: as above.
    let was = unsafe {
        let was = (*large).kind.load(Ordering::Relaxed); // ORDER: no thread may use the address any more
        (*large).kind.store(0, Ordering::Relaxed); // ORDER: as above
        was
    };
    pool.region.desc_free(offset, 1);
    uncount_block(pages);
    // Here and not where it was taken out: it may have waited for the pool (`defer`).
    if was == KIND_CACHED {
        count_given(pages);
    }
    let mut dirty = true;
    if displaced {
        DISPLACED.fetch_sub(1, Ordering::Relaxed); // ORDER: a statistic
        // SAFETY: the range is this block's (large.L2).
        dirty = !unsafe { pool.region.map_anew(start, pages as usize * PAGE) };
    }
    pool.give(page, pages, dirty);
    if dirty {
        hints::hint(pages);
    }
}

/// Keeps a block that a signal handler freed while this thread had the pool: the next holder of the pool gives it back.
pub fn defer(offset: u32) {
    // SAFETY: a live descriptor, given up by its owner.
    let large = unsafe { &*at::<Large>(offset) };
    remote::push(&DEFERRED, &large.deferred, offset, 0);
}

/// Counts the kept runs anew: those in each heap's slots, and those that wait for the pool. No other thread is there.
pub fn recount_kept<'a>(heaps: impl Iterator<Item = &'a Kept>) {
    let mut leaving = 0;
    // ORDER: the child of a fork has one thread, throughout.
    let mut next = DEFERRED.load(Ordering::Relaxed);
    while next != 0 {
        // SAFETY: deferred blocks are live descriptors until they are given.
        let large = unsafe { &*at::<Large>(next) };
        // ORDER: as above.
        if large.kind.load(Ordering::Relaxed) == KIND_CACHED {
            leaving += u64::from(large.pages) << 32 | 1;
        }
        next = remote::below(&large.deferred, 0);
    }
    LEAVING.store(leaving, Ordering::Relaxed); // ORDER: as above
    PUBLISHED.store(0, Ordering::Relaxed); // ORDER: as above
    for kept in heaps {
        kept.recount();
        kept.publish();
        PUBLISHED.fetch_add(kept.published(), Ordering::Relaxed); // ORDER: as above
    }
}

/// Gives back the blocks that [`defer`] kept.
#[inline]
pub fn take_deferred(pool: &mut Pool) {
    // SAFETY: deferred blocks are live descriptors until they are given, and no thread uses them.
    unsafe {
        let link = |offset| &(*at::<Large>(offset)).deferred;
        remote::take_deferred(&DEFERRED, link, |offset| give(pool, offset));
    }
}

/// Does what [`give`] does, for a block whose pages were moved away.
///
/// # Safety
/// As for [`give`].
pub unsafe fn give_clean(pool: &mut Pool, offset: u32) {
    let large = at::<Large>(offset);
    // SAFETY: as for `give`.
    unsafe {
        if (*large).displaced != 0 {
            return give(pool, offset);
        }
        let page = page_of((*large).start);
        publish::clear(pool.region.map_entry(page));
        (*large).kind.store(0, Ordering::Relaxed); // ORDER: no thread may use the address any more
        let pages = (*large).pages;
        pool.region.desc_free(offset, 1);
        pool.give(page, pages, false);
        uncount_block(pages);
    }
}
