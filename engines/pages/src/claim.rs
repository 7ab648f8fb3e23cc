//! Claims: which pages are purged, and when the pool purges by itself.
//!
//! ```text
//!   age list   oldest ─► run ─► run ─► run ─► youngest
//!              └─ claimed: in no list, tags stay ─┘
//!                     │ the caller purges, with no lock held
//!                     └──► purged: clean, joined with its neighbours
//! ```
//!
//! C1  No search finds a claimed run: neighbours do not join it, `take` does not see it.
//! C2  The touched pages, less those that the caller knows to be absent, pass their old maximum only while at most
//!     `slack_pages` dirty ones lie unused: holes are purged before the resident memory grows.
//! C3  A program that has purged half its maximum for C2 without growing by as much works at its ceiling: what is
//!     purged is wanted again. So `learned_pages` more may lie unused, an eighth of the maximum for each half purged, a
//!     quarter at most; both are gradually forgotten.
//!
//! Not here: the ticks, and the number of dirty pages kept for what is soon wanted (`alloc`).

use core::sync::atomic::Ordering;

use crate::pool::{CLAIMED, CLEAN, DIRTY, SLACK_PAGES};
use crate::purge::{give_back, range_of};
use crate::{KIND_FREE, PAGE, Pool, Run};

/// Fewest pages that are purged at once for C2: each call costs a microsecond besides its pages (`--example
/// purge_cost`).
const AT_LEAST: u32 = 16;

/// Ranges of one call for C2: few, for they lie on the stack of the thread that calls `malloc`, and enough by the same
/// measurement.
const AT_ONCE: usize = 32;

/// C3: the part of the maximum that must have been purged early for one more step, the step, and the most of all steps.
/// 2 threads with 6 buffers each of 40 KB to 4 MB purged four times their maximum; with it they need 56 instead of 76
/// ms of CPU time, and a sixth more at their peak (`pattern large2`). Of the real programs of the bench none purges a
/// fifth of its maximum, so none learns (2026-11-21).
const LEARN: (u32, u32, u32) = (2, 8, 4);

/// The parts that a tick leaves: half of what was purged, 31 parts in 32 of what was learned.
const FORGET: (u32, u32) = (2, 32);

impl Pool {
    /// Takes up to `out.len()` runs that became dirty at `until_tick` or before out of all lists, oldest first, as long
    /// as `keep_pages` dirty ones remain; the last may be a part. Returns their number. Each must be handed to
    /// [`Pool::purged`] once it reads as zero, or to [`Pool::unclaim`].
    pub fn claim_dirty(&mut self, until_tick: u32, keep_pages: u32, out: &mut [Run]) -> usize {
        let mut claimed = 0;
        for slot in out {
            let allowed = self.dirty_pages.saturating_sub(keep_pages);
            let offset = self.oldest;
            if offset == 0 || allowed == 0 || self.at(offset).tick.get() > until_tick {
                break;
            }
            let Some(run) = self.claim(offset, allowed) else {
                break;
            };
            *slot = run;
            claimed += 1;
        }
        claimed
    }

    fn claim(&mut self, offset: u32, at_most: u32) -> Option<Run> {
        let run = self.at(offset);
        let (page, pages) = (run.page.get(), run.pages.get());
        let claimed = if pages <= at_most {
            self.unlink(offset);
            self.unage(offset);
            self.at(offset).state.set(CLAIMED);
            self.count(DIRTY, -i64::from(pages));
            Run {
                page,
                pages,
                clean: true,
            }
        } else {
            let part = self.part_to_claim(page, pages, at_most);
            self.carve(offset, part.page, part.pages);
            if self
                .describe_new(part.page, part.pages, CLAIMED, 0)
                .is_none()
            {
                // It lies beside the rest of the run and needs no descriptor.
                self.insert(part.page, part.pages, DIRTY);
                return None;
            }
            part
        };
        self.count(CLAIMED, i64::from(claimed.pages));
        Some(claimed)
    }

    /// Returns the end of a run, or its beginning if only there it will join a clean one.
    fn part_to_claim(&self, page: u32, pages: u32, part: u32) -> Run {
        let clean = |offset: &u32| self.at(*offset).state.get() == CLEAN;
        let left = page.checked_sub(1).and_then(|before| self.free_tag(before));
        let at_left = left.as_ref().is_some_and(clean)
            && !self.free_tag(page + pages).as_ref().is_some_and(clean);
        let page = if at_left { page } else { page + pages - part };
        Run {
            page,
            pages: part,
            clean: true,
        }
    }

    /// Takes back claimed runs that read as zero now. ([`crate::purge::Batch`] ensures that even where the kernel would
    /// not take the pages.)
    pub fn purged(&mut self, runs: &[Run]) {
        for run in runs {
            if self.forget_claimed(run) {
                self.touched_pages -= run.pages;
                self.purged_total += u64::from(run.pages);
                self.insert(run.page, run.pages, CLEAN);
            }
        }
    }

    /// Takes back claimed runs that were not purged: they are dirty as before, and young.
    pub fn unclaim(&mut self, runs: &[Run]) {
        for run in runs {
            if self.forget_claimed(run) {
                self.insert(run.page, run.pages, DIRTY);
            }
        }
    }

    /// Frees the descriptor of a claimed run, whose tags `insert` clears; `false` if this is none.
    fn forget_claimed(&mut self, run: &Run) -> bool {
        let Some(offset) = self.free_tag(run.page) else {
            debug_assert!(false, "not a claimed run");
            return false;
        };
        let found = self.at(offset);
        // ORDER: no partner: written under the lock that is held (pages.P6).
        let free = found.kind.load(Ordering::Relaxed) == KIND_FREE;
        let same = found.page.get() == run.page && found.pages.get() == run.pages;
        if !free || !same || found.state.get() != CLAIMED {
            debug_assert!(false, "not a claimed run");
            return false;
        }
        self.count(CLAIMED, -i64::from(run.pages));
        self.forget(offset);
        true
    }

    /// Purges as many dirty pages as the touched pages are above their maximum, and no fewer than pay for the call
    /// (C2). The pages taken last are not resident yet, so purging after the take is as good as before it.
    #[inline]
    pub(crate) fn hold_down(&mut self) {
        if self.resident() > self.touched_max {
            self.hold_down_slow();
        }
    }

    /// Takes down how many pages in use are not resident, as the caller knows. If there were more of them the last time, what
    /// has been touched since may be a new maximum (C2).
    #[inline]
    pub fn set_absent(&mut self, pages: u32) {
        self.absent_pages = pages;
        self.hold_down();
    }

    /// Lowers the most pages that were touched: of a run that raised it so many never were. To be called after the run was
    /// given back.
    pub fn forget_peak(&mut self, pages: u32) {
        let most = self.touched_max.saturating_sub(pages);
        self.touched_max = most.max(self.resident());
    }

    /// Returns the pages that may be resident.
    #[inline]
    pub(crate) fn resident(&self) -> u32 {
        self.touched_pages.saturating_sub(self.absent_pages)
    }

    /// Returns the pages that may be touched before there are more than there ever were.
    pub fn below_max(&self) -> u32 {
        self.touched_max.saturating_sub(self.resident())
    }

    /// Returns the dirty pages that may lie unused while the touched pages reach a new maximum.
    #[inline]
    pub(crate) fn slack(&self) -> u32 {
        self.slack_pages.unwrap_or(SLACK_PAGES)
    }

    #[cold]
    #[unsafe(link_section = ".text.skinflint_first")]
    fn hold_down_slow(&mut self) {
        let over = self.resident() - self.touched_max;
        let slack = self.slack().saturating_add(self.learned_pages);
        let spare = self.dirty_pages.saturating_sub(slack);
        if spare > 0 {
            let before = self.purged_total;
            self.purge(over.max(AT_LEAST).min(spare));
            let purged = self.purged_total - before;
            self.purged_early_total += purged;
            self.learn(purged as u32);
        }
        self.touched_max = self.touched_max.max(self.resident());
    }

    /// Counts pages purged early, and learns from them (C3).
    fn learn(&mut self, purged: u32) {
        let (share, step, most) = LEARN;
        self.early_pages += purged;
        if self.early_pages >= (self.touched_max / share).max(self.slack()) {
            self.early_pages = 0;
            let learned = self.learned_pages + self.touched_max / step;
            self.learned_pages = learned.min(self.touched_max / most);
        }
    }

    /// Forgets a part of both, since a tick has passed.
    pub(crate) fn unlearn(&mut self) {
        self.early_pages -= self.early_pages.div_ceil(FORGET.0);
        self.learned_pages -= self.learned_pages.div_ceil(FORGET.1);
    }

    /// Purges this many dirty pages, oldest first, at once and under the lock.
    pub(crate) fn purge(&mut self, pages: u32) {
        let keep = self.dirty_pages.saturating_sub(pages);
        let mut runs = [Run::default(); AT_ONCE];
        loop {
            let count = self.claim_dirty(u32::MAX, keep, &mut runs);
            let Some(claimed) = runs.get(..count).filter(|claimed| !claimed.is_empty()) else {
                break;
            };
            let mut ranges = [range_of(0, 0); AT_ONCE];
            for (range, run) in ranges.iter_mut().zip(claimed) {
                *range = range_of(self.region.page_addr(run.page), run.pages as usize * PAGE);
            }
            give_back(ranges.get_mut(..count).unwrap_or(&mut []));
            self.purged(claimed);
        }
    }
}
