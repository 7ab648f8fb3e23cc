//! Runs of pages: taken, given back, extended where they are.
//!
//! ```text
//!   take ──► a dirty run that fits ──► a dirty and a clean neighbour together ──► a clean run
//!                                                 ──► more heap ──► purge all, and look again
//!   give ──► joined with equal neighbours, into the bucket of its length; dirty ones also at the
//!            young end of the list by age
//! ```
//!
//! L1  Free runs are in the bucket of their state and length; dirty ones also in the age list, whose
//!     ticks never fall from its old end to its young one.
//! L2  `used + dirty + clean + claimed + holes + lost` pages are all pages of HEAP that the pool
//!     knows.
//! L3  A joined run has the age of the larger part: a single page now and then does not keep a large old run from
//!     ageing, nor does an old page cause a large young run to be purged.
//!
//! Not here: where a run of a length, or beside a page, is found (`index`); the fields' links beyond these and `claim`; the users of runs (`alloc`).

use core::cell::Cell;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::index::BySize;
use crate::nodes::Nodes;
#[cfg(not(feature = "bench-trees"))]
use crate::nodes::{Lists, NODES_MAX};
use crate::{KIND_FREE, MAX_PAGES, PAGE, PAGE_SHIFT, Region, UNIT, purge};

/// Number of dirty runs that are looked at, longest first, for one that fits together with its neighbour.
const PAIRS_LOOKED_AT: u32 = 16;

/// For a pair to be taken, the dirty run must be at least the whole divided by this.
const PAIR_SHARE: u32 = 4;

/// Number of successive free runs that `extend` may go through.
const CHAIN: usize = 8;

/// Units kept (units.U1): one for every second page in use, which is the most islands that they can become, and a few more,
/// since a take may split twice and a claim once. They are mapped, not touched.
const KEPT: u32 = 6;
/// The most units kept: 4 MiB of descriptors, for 512 MiB in use.
const KEPT_MAX: u32 = 1 << 16;

/// A run of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The number of its first page.
    pub page: u32,
    /// The number of its pages.
    pub pages: u32,
    /// Whether all of it reads as zero.
    pub clean: bool,
}

/// Dirty pages that may lie unused while the touched pages reach a new maximum. Compared with no such purge, 64 lower
/// the most pages of sqlite by 16 %, of perl by 5 %, of python by 3 %, of redis and cc1plus by less than 1 %; at most a
/// tenth of the pages taken are purged for it. With 256, perl and python need 2 % more; with 16, half a percent less
/// (`cargo bench -p skinflint-pages -- slack`).
pub(crate) const SLACK_PAGES: u32 = 64;

/// The states of a free run.
pub(crate) const DIRTY: u8 = 1;
pub(crate) const CLEAN: u8 = 2;
pub(crate) const CLAIMED: u8 = 3;

/// The descriptor of a free run: a [`crate::Header`] and fields of its own.
#[repr(C, align(64))]
pub(crate) struct FreeRun {
    pub(crate) start: Cell<usize>,
    /// Next and previous run of the bucket; in trees the subtrees of shorter and of longer runs.
    pub(crate) next: Cell<u32>,
    pub(crate) previous: Cell<u32>,
    owner: AtomicU32,
    pub(crate) kind: AtomicU8,
    pub(crate) state: Cell<u8>,
    /// Colours in the trees by length and by page.
    #[cfg(feature = "bench-trees")]
    pub(crate) red: [Cell<bool>; 2],
    #[cfg(not(feature = "bench-trees"))]
    _gap: [u8; 2],
    pub(crate) page: Cell<u32>,
    pub(crate) pages: Cell<u32>,
    /// Next younger and next older run of the age list.
    pub(crate) younger: Cell<u32>,
    pub(crate) older: Cell<u32>,
    /// The tick at which it became dirty.
    pub(crate) tick: Cell<u32>,
    /// The parent in the tree by length, and the links of the tree by page.
    #[cfg(feature = "bench-trees")]
    pub(crate) size_parent: Cell<u32>,
    #[cfg(feature = "bench-trees")]
    pub(crate) page_links: [Cell<u32>; 3],
}

const _: () = assert!(size_of::<FreeRun>() == UNIT);
const _: () = assert!(core::mem::offset_of!(FreeRun, owner) == 16);
const _: () = assert!(core::mem::offset_of!(FreeRun, kind) == 20);

impl FreeRun {
    /// Returns the page after the last.
    pub(crate) fn end(&self) -> u32 {
        self.page.get() + self.pages.get()
    }
}

/// All runs of a region.
pub struct Pool {
    /// The addresses at which they lie.
    pub region: Region,
    /// What finds runs of the first node, and those of the others.
    pub(crate) dirty: BySize,
    pub(crate) clean: BySize,
    #[cfg(not(feature = "bench-trees"))]
    pub(crate) others: [Lists; NODES_MAX - 1],
    pub(crate) nodes: Nodes,
    /// The root of the tree of all free and claimed runs by page.
    #[cfg(feature = "bench-trees")]
    pub(crate) by_page: u32,
    /// Ends of the age list.
    pub(crate) oldest: u32,
    pub(crate) youngest: u32,
    pub(crate) tick: u32,
    /// Pages of HEAP that are accounted for here.
    pub(crate) known_pages: u32,
    /// Pages taken and not given back.
    pub used_pages: u32,
    /// Pages in use, dirty or being purged: what may be resident.
    pub touched_pages: u32,
    /// Pages in use that are not resident, as the caller knows: holes in what it was given.
    pub absent_pages: u32,
    /// The most that `touched_pages` less `absent_pages` has been.
    pub touched_max: u32,
    /// Pages that are free and hold old content.
    pub dirty_pages: u32,
    /// Pages that are free and zero.
    pub clean_pages: u32,
    /// Pages that [`Pool::claim_dirty`] has handed out.
    pub claimed_pages: u32,
    /// Pages of HEAP that other code has mapped.
    pub hole_pages: u32,
    /// Pages that no descriptor could be had for; see pages.P7.
    pub lost_pages: u32,
    /// Dirty pages beyond which [`Pool::take`] purges before the touched pages reach a new maximum; `None`: 64. (A pool of
    /// zeros takes no room in the file that it is linked into.)
    pub slack_pages: Option<u32>,
    /// Pages that may be dirty in addition, since purged pages were wanted again (claim.C3).
    pub(crate) learned_pages: u32,
    /// Pages purged for the slack since the last time that it learned.
    pub(crate) early_pages: u32,
    /// Pages purged since the start.
    pub purged_total: u64,
    /// Pages of `purged_total` that were purged so that the maximum did not rise.
    pub purged_early_total: u64,
    /// Dirty pages used again.
    pub reused_dirty_total: u64,
    /// Clean pages handed out.
    pub used_clean_total: u64,
    /// Number of times that HEAP grew.
    pub grown: u64,
}

impl Pool {
    /// Creates a pool without addresses; `region.place` gives it some.
    pub const fn new() -> Pool {
        Pool {
            region: Region::new(),
            dirty: BySize::new(),
            clean: BySize::new(),
            #[cfg(not(feature = "bench-trees"))]
            others: [const { Lists::new() }; NODES_MAX - 1],
            nodes: Nodes::new(),
            #[cfg(feature = "bench-trees")]
            by_page: 0,
            oldest: 0,
            youngest: 0,
            tick: 0,
            known_pages: 0,
            used_pages: 0,
            touched_pages: 0,
            absent_pages: 0,
            touched_max: 0,
            dirty_pages: 0,
            clean_pages: 0,
            claimed_pages: 0,
            hole_pages: 0,
            lost_pages: 0,
            slack_pages: None,
            learned_pages: 0,
            early_pages: 0,
            purged_total: 0,
            purged_early_total: 0,
            reused_dirty_total: 0,
            used_clean_total: 0,
            grown: 0,
        }
    }

    /// Takes a run of `pages` whose first page lies at a multiple of `align_pages` (a power of two; 1: anywhere). Its
    /// entries of MAP are all 0. `None`: nothing fits and the kernel refused, or no heap could ever meet the arguments;
    /// nothing has changed then, except that dirty runs may have been purged.
    ///
    /// Cost: two loads to find a run of the same length, and twenty stores.
    #[unsafe(link_section = ".text.skinflint_first")]
    pub fn take(&mut self, pages: u32, align_pages: u32) -> Option<Run> {
        let met = pages > 0 && pages <= MAX_PAGES && align_pages.is_power_of_two();
        if !met || self.region.base() == 0 {
            return None;
        }
        self.absorb();
        if !self.keep_descriptors(pages) {
            return None;
        }
        let run = self
            .take_fitting(DIRTY, pages, align_pages)
            .or_else(|| self.take_pair(pages, align_pages))
            .or_else(|| self.take_fitting(CLEAN, pages, align_pages))
            .or_else(|| self.take_grown(pages, align_pages))
            .or_else(|| self.take_others(pages, align_pages))
            .or_else(|| self.take_purged(pages, align_pages))?;
        self.hold_down();
        Some(run)
    }

    /// Gives a run back, or a part of one, joined with its neighbours. `dirty`: it may hold
    /// something other than zero. Its entries of MAP must be 0, but the first and the last may
    /// still be the caller's.
    ///
    /// Cost: two loads for the neighbours, and some twenty stores.
    pub fn give(&mut self, page: u32, pages: u32, dirty: bool) {
        debug_assert!(pages > 0 && page + pages <= self.known_pages);
        self.used_pages -= pages;
        let state = if dirty { DIRTY } else { CLEAN };
        if !dirty {
            self.touched_pages -= pages;
        }
        self.insert(page, pages, state);
    }

    /// Gives `more` pages to the run that ends at `end_page`, out of the free pages behind it; the heap grows if that
    /// is its end. Their entries of MAP are 0. `Some(true)`: they all read as zero. `None`: there are too few, and
    /// nothing has changed.
    pub fn extend(&mut self, end_page: u32, more: u32) -> Option<bool> {
        if more == 0 {
            return Some(true);
        }
        self.absorb();
        if self.region.base() == 0 || !self.keep_descriptors(more) {
            return None;
        }
        let (mut reached, end) = self.reach(end_page, more);
        if reached < more && end == self.known_pages && self.grow(more - reached) {
            // They are still too few if the new pages lie beyond a hole.
            (reached, _) = self.reach(end_page, more);
        }
        if reached < more {
            return None;
        }
        let clean = self.take_chain(end_page, more);
        self.hold_down();
        Some(clean)
    }

    /// Sets the time, in ticks of the caller's; it never falls.
    pub fn set_tick(&mut self, tick: u32) {
        if tick > self.tick {
            self.tick = tick;
            self.unlearn();
        }
    }

    /// Ensures that what is in use, with `more` pages, can be given back in any parts (pages.P7).
    #[inline]
    fn keep_descriptors(&mut self, more: u32) -> bool {
        let islands = self.used_pages.saturating_add(more) / 2;
        self.region.keep(islands.saturating_add(KEPT).min(KEPT_MAX))
    }

    /// Returns the descriptor at an offset, which must be that of a free run.
    #[inline]
    pub(crate) fn at(&self, offset: u32) -> &FreeRun {
        // SAFETY: pages.P2: descriptors stay mapped. The pool holds the lock (pages.P6), and what other threads
        // may read at any time are atomics; all else are cells, and `Pool` is in one thread's hands.
        unsafe { &*self.region.at::<FreeRun>(offset) }
    }

    /// Returns the entry of a page.
    #[inline]
    pub(crate) fn tag(&self, page: u32) -> u32 {
        // ORDER: no partner: entries of free runs are written under the lock that is held (pages.P6).
        self.region.map_entry(page).load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_tag(&self, page: u32, offset: u32) {
        // ORDER: no partner: see `tag`. A thread that reads the entry without the lock does so for a pointer that
        // `alloc` gave out after it had set the entry, or for one that was never given out.
        self.region.map_entry(page).store(offset, Ordering::Relaxed);
    }

    /// Returns the dirty or clean run that begins at this page.
    #[inline]
    pub(crate) fn free_at(&self, page: u32) -> Option<u32> {
        let offset = self.free_tag(page)?;
        let run = self.at(offset);
        (run.page.get() == page && run.state.get() != CLAIMED).then_some(offset)
    }

    /// Puts a run into the age list, on the younger side of `older`, or as the oldest (0).
    fn age_after(&mut self, offset: u32, older: u32) {
        let younger = match older {
            0 => core::mem::replace(&mut self.oldest, offset),
            _ => self.at(older).younger.replace(offset),
        };
        self.at(offset).older.set(older);
        self.at(offset).younger.set(younger);
        match younger {
            0 => self.youngest = offset,
            _ => self.at(younger).older.set(offset),
        }
    }

    pub(crate) fn unage(&mut self, offset: u32) {
        let (older, younger) = (self.at(offset).older.get(), self.at(offset).younger.get());
        match older {
            0 => self.oldest = younger,
            _ => self.at(older).younger.set(younger),
        }
        match younger {
            0 => self.youngest = older,
            _ => self.at(younger).older.set(older),
        }
    }

    /// Returns a descriptor for a run of this state that is in no list yet.
    #[unsafe(link_section = ".text.skinflint_first")]
    pub(crate) fn describe_new(
        &mut self,
        page: u32,
        pages: u32,
        state: u8,
        tick: u32,
    ) -> Option<u32> {
        let offset = self.region.desc_alloc_kept()?;
        let run = self.at(offset);
        run.state.set(state);
        run.tick.set(tick);
        // ORDER: no partner: a pointer into a free run is a mistake whenever it is looked up.
        run.owner.store(crate::OWNER_NONE, Ordering::Relaxed);
        run.kind.store(KIND_FREE, Ordering::Relaxed); // ORDER: as above
        self.describe(offset, page, pages);
        self.enter_page(offset);
        Some(offset)
    }

    pub(crate) fn count(&mut self, state: u8, pages: i64) {
        let count = match state {
            DIRTY => &mut self.dirty_pages,
            CLEAN => &mut self.clean_pages,
            _ => &mut self.claimed_pages,
        };
        *count = (i64::from(*count) + pages) as u32;
    }

    /// Puts pages that are in no run into the free runs, joined with neighbours of their state on both sides.
    #[unsafe(link_section = ".text.skinflint_first")]
    pub(crate) fn insert(&mut self, page: u32, pages: u32, state: u8) {
        let equal = |offset: &u32| self.at(*offset).state.get() == state;
        let left = page.checked_sub(1).and_then(|before| self.free_tag(before));
        let left = left.filter(equal);
        let right = self.free_tag(page + pages).filter(equal);
        if self.nodes.others != 0 {
            return self.insert_by_node(page, pages, state, (left, right));
        }
        self.insert_between(page, pages, state, (left, right));
    }

    /// Puts pages into the free runs, joined with these neighbours.
    #[inline(always)]
    pub(crate) fn insert_between(
        &mut self,
        page: u32,
        pages: u32,
        state: u8,
        (left, right): (Option<u32>, Option<u32>),
    ) {
        self.set_tag(page, 0);
        self.set_tag(page + pages - 1, 0);
        let length = |offset| self.at(offset).pages.get();
        let (kept, gone) = match (left, right) {
            (None, None) => return self.insert_alone(page, pages, state),
            (Some(one), None) | (None, Some(one)) => (one, None),
            (Some(left), Some(right)) if length(left) >= length(right) => (left, Some(right)),
            (Some(left), Some(right)) => (right, Some(left)),
        };
        let first = left.map_or(page, |offset| self.at(offset).page.get());
        let end = right.map_or(page + pages, |offset| self.at(offset).end());
        let kept_pages = self.remove_from_bucket(kept);
        if let Some(gone) = gone {
            self.remove_from_bucket(gone);
            if state == DIRTY {
                self.unage(gone);
            }
            self.forget(gone);
        }
        if state == DIRTY && pages > kept_pages {
            self.unage(kept);
            self.at(kept).tick.set(self.tick);
            self.age_after(kept, self.youngest);
        }
        self.describe(kept, first, end - first);
        self.link(kept);
        self.count(state, i64::from(pages));
    }

    /// Takes a run out of its bucket and clears its tags; returns its length.
    fn remove_from_bucket(&mut self, offset: u32) -> u32 {
        self.unlink(offset);
        let run = self.at(offset);
        self.clear_tag(run.page.get());
        self.clear_tag(run.end() - 1);
        self.at(offset).pages.get()
    }

    /// Takes a free run out of everything: bucket, age list, tags, count. Its descriptor is free again.
    fn remove(&mut self, offset: u32) {
        let pages = self.remove_from_bucket(offset);
        let state = self.at(offset).state.get();
        if state == DIRTY {
            self.unage(offset);
        }
        self.count(state, -i64::from(pages));
        self.forget(offset);
    }

    #[unsafe(link_section = ".text.skinflint_first")]
    fn insert_alone(&mut self, page: u32, pages: u32, state: u8) {
        let Some(offset) = self.describe_new(page, pages, state, self.tick) else {
            return self.insert_without(page, pages, state);
        };
        self.count(state, i64::from(pages));
        self.link(offset);
        if state == DIRTY {
            self.age_after(offset, self.youngest);
        }
    }

    /// Inserts pages without a descriptor, when there is none (pages.P7 says when that can be): a neighbour of the other
    /// state gives its own, and all of it counts as dirty. With no such neighbour the pages go back to the kernel and
    /// are counted as lost.
    #[cold]
    fn insert_without(&mut self, page: u32, pages: u32, state: u8) {
        let left = page.checked_sub(1).and_then(|before| self.free_tag(before));
        let beside = left.or_else(|| self.free_tag(page + pages));
        let beside = beside.filter(|&offset| self.at(offset).state.get() != CLAIMED);
        if let Some(offset) = beside {
            let run = self.at(offset);
            let (first, end) = (run.page.get().min(page), run.end().max(page + pages));
            self.touched_pages += if state == CLEAN {
                pages
            } else {
                run.pages.get()
            };
            self.touched_max = self.touched_max.max(self.resident());
            self.remove(offset);
            return self.insert(first, end - first, DIRTY);
        }
        self.lost_pages += pages;
        if state == DIRTY {
            self.touched_pages -= pages;
            let addr = self.region.page_addr(page);
            purge::give_back(&mut [purge::range_of(addr, pages as usize * PAGE)]);
        }
    }

    /// Takes pages out of a free run. `false`, and nothing has changed: it would have to be split in two, and there is
    /// no descriptor for the second part.
    #[unsafe(link_section = ".text.skinflint_first")]
    pub(crate) fn carve(&mut self, offset: u32, page: u32, pages: u32) -> bool {
        let run = self.at(offset);
        let (first, end, state, tick) =
            (run.page.get(), run.end(), run.state.get(), run.tick.get());
        let (front, back) = (page - first, end - (page + pages));
        if front == 0 && back == 0 {
            self.remove(offset);
            return true;
        }
        if front > 0 && back > 0 {
            let Some(second) = self.describe_new(page + pages, back, state, tick) else {
                return false;
            };
            self.link(second);
            if state == DIRTY {
                self.age_after(second, offset);
            }
        }
        self.unlink(offset);
        if front > 0 {
            if back == 0 {
                self.clear_tag(end - 1);
            }
            self.describe(offset, first, front);
        } else {
            self.clear_tag(first);
            self.describe(offset, page + pages, back);
        }
        self.link(offset);
        self.count(state, -i64::from(pages));
        true
    }

    /// Returns where an aligned run of `pages` would begin in a free run; `None` if it does not fit.
    #[inline]
    pub(crate) fn place_in(&self, offset: u32, pages: u32, align: u32) -> Option<u32> {
        let run = self.at(offset);
        let page = self.aligned(run.page.get(), align)?;
        (page.checked_add(pages)? <= run.end()).then_some(page)
    }

    /// Returns the first page from here on whose address is a multiple of `align` pages.
    #[inline]
    fn aligned(&self, page: u32, align: u32) -> Option<u32> {
        if align == 1 {
            return Some(page);
        }
        let base = self.region.base() >> PAGE_SHIFT;
        let mask = align as usize - 1;
        u32::try_from(((base + page as usize + mask) & !mask) - base).ok()
    }

    #[unsafe(link_section = ".text.skinflint_first")]
    pub(crate) fn take_fitting(&mut self, state: u8, pages: u32, align: u32) -> Option<Run> {
        let (offset, page) = self.find(state, pages, align)?;
        if !self.carve(offset, page, pages) {
            return None;
        }
        self.count_used(state, pages);
        let clean = state == CLEAN;
        Some(Run { page, pages, clean })
    }

    fn count_used(&mut self, state: u8, pages: u32) {
        self.used_pages += pages;
        if state == CLEAN {
            self.touched_pages += pages;
            self.used_clean_total += u64::from(pages);
        } else {
            self.reused_dirty_total += u64::from(pages);
        }
    }

    /// Takes a dirty run and the clean one beside it, if together they are long enough. The dirty part must be a
    /// quarter of the whole: the pages handed out are no longer known to be zero.
    fn take_pair(&mut self, pages: u32, align: u32) -> Option<Run> {
        if align != 1 || self.dirty_pages == 0 {
            return None;
        }
        let mut offset = self.longest_dirty(pages);
        for _ in 0..PAIRS_LOOKED_AT {
            if offset == 0 || self.at(offset).pages.get() < pages.div_ceil(PAIR_SHARE) {
                return None;
            }
            if let Some((beside, page)) = self.pair_at(offset, pages) {
                return self.take_both(offset, beside, page, pages);
            }
            offset = self.next_shorter_dirty(offset);
        }
        None
    }

    /// Returns the clean neighbour that makes a dirty run long enough, and where the two would begin.
    fn pair_at(&self, offset: u32, pages: u32) -> Option<(u32, u32)> {
        let run = self.at(offset);
        let (page, end) = (run.page.get(), run.end());
        let rest = pages.checked_sub(run.pages.get())?;
        let long = |offset: &u32| {
            let run = self.at(*offset);
            run.state.get() == CLEAN && run.pages.get() >= rest
        };
        if let Some(right) = self.free_tag(end).filter(long) {
            return Some((right, page));
        }
        let left = page.checked_sub(1).and_then(|before| self.free_tag(before));
        Some((left.filter(long)?, page - rest))
    }

    /// Takes a dirty run and as much of the clean one beside it as needed. Neither is cut in the middle, so no
    /// descriptor is needed.
    fn take_both(&mut self, dirty: u32, clean: u32, page: u32, pages: u32) -> Option<Run> {
        let (dirty_page, dirty_pages) = (self.at(dirty).page.get(), self.at(dirty).pages.get());
        let rest = pages - dirty_pages;
        let from = if page < dirty_page {
            page
        } else {
            dirty_page + dirty_pages
        };
        self.remove(dirty);
        self.count_used(DIRTY, dirty_pages);
        if rest > 0 {
            self.carve(clean, from, rest);
            self.count_used(CLEAN, rest);
        }
        Some(Run {
            page,
            pages,
            clean: false,
        })
    }

    /// Maps more heap and takes from it. Of `pages` and what alignment may skip, only what the clean run at the end
    /// lacks is mapped.
    fn take_grown(&mut self, pages: u32, align: u32) -> Option<Run> {
        let end = self.known_pages;
        let tail = self
            .free_tag(end.checked_sub(1)?)
            .filter(|&o| self.at(o).state.get() == CLEAN)
            .filter(|&o| self.nodes.of(self.at(o).page.get()) == self.nodes.served as usize);
        let start = tail.map_or(end, |offset| self.at(offset).page.get());
        let wanted_end = self.aligned(start, align)?.checked_add(pages)?;
        if !self.grow(wanted_end.checked_sub(end)?) {
            return None;
        }
        self.take_fitting(CLEAN, pages, align).or_else(|| {
            // The new pages lie beyond a hole.
            let sure = pages.checked_add(align - 1)?;
            if !self.grow(sure) {
                return None;
            }
            self.take_fitting(CLEAN, pages, align)
        })
    }

    /// Makes everything dirty clean, as the last resort, which joins runs that only their state divides, and takes from
    /// it.
    #[cold]
    fn take_purged(&mut self, pages: u32, align: u32) -> Option<Run> {
        if self.dirty_pages == 0 || self.dirty_pages + self.clean_pages < pages {
            return None;
        }
        self.purge(self.dirty_pages);
        self.take_fitting(CLEAN, pages, align)
            .or_else(|| self.take_others(pages, align))
    }

    /// Adds at least `pages` to the heap, as clean pages.
    fn grow(&mut self, pages: u32) -> bool {
        let Some((first, count)) = self.region.grow_heap(pages) else {
            return false;
        };
        self.hole_pages += first - self.known_pages;
        self.known_pages = first + count;
        self.nodes.own(first, count);
        self.insert(first, count, CLEAN);
        self.grown += 1;
        true
    }

    /// Takes over what the region mapped when it was placed.
    #[inline]
    fn absorb(&mut self) {
        let (first, end) = (self.known_pages, self.region.heap_pages());
        if first < end {
            self.known_pages = end;
            self.nodes.own(first, end - first);
            self.insert(first, end - first, CLEAN);
        }
    }

    /// Returns how many free pages follow one another from here on, up to `more`, and where they end.
    fn reach(&self, page: u32, more: u32) -> (u32, u32) {
        let (mut end, mut reached) = (page, 0);
        for _ in 0..CHAIN {
            let Some(offset) = self.free_at(end).filter(|_| reached < more) else {
                break;
            };
            reached += self.at(offset).pages.get();
            end = self.at(offset).end();
        }
        (reached, end)
    }

    /// Takes free pages that follow one another. Each run is cut at its end, if at all, so no descriptor is needed.
    fn take_chain(&mut self, page: u32, more: u32) -> bool {
        let (mut at, end, mut clean) = (page, page + more, true);
        while at < end {
            let Some(offset) = self.free_at(at) else {
                break;
            };
            let run = self.at(offset);
            let (part_end, state) = (run.end().min(end), run.state.get());
            self.carve(offset, at, part_end - at);
            self.count_used(state, part_end - at);
            clean &= state == CLEAN;
            at = part_end;
        }
        clean
    }
}

impl Default for Pool {
    fn default() -> Pool {
        Pool::new()
    }
}
