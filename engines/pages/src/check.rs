//! The invariants, by brute force over the page map: for tests, and for level 2 of the checks.
//!
//! ```text
//!   1  every page, by MAP        ─► runs, states, tags, neighbours, pages of each state
//!   2  every list, by its links  ─► the same runs, each in its bucket, as many as in 1
//!   3  the age list              ─► the dirty ones, ticks never falling
//! ```
//!
//! K1  Nothing here is written and nothing is kept, so a check may be made at any moment while the lock is held.
//!
//! Not here: what the caller's own descriptors say about the pages in use.

use crate::Pool;
#[cfg(not(feature = "bench-trees"))]
use crate::buckets::{BUCKETS, bucket_of};
#[cfg(not(feature = "bench-trees"))]
use crate::index::BySize;
use crate::pool::{CLAIMED, CLEAN, DIRTY};

#[derive(Default, PartialEq, Eq)]
struct Tally {
    dirty_runs: u32,
    clean_runs: u32,
    dirty: u32,
    clean: u32,
    claimed: u32,
}

fn hold(condition: bool, what: &'static str) -> Result<(), &'static str> {
    if condition { Ok(()) } else { Err(what) }
}

impl Pool {
    /// Checks pages.P3, pages.P4, pool.L1 and pool.L2. Cost: a load for each page of the heap.
    ///
    /// # Errors
    /// The first thing that does not hold.
    pub fn check(&self) -> Result<(), &'static str> {
        let tally = self.check_map()?;
        #[cfg(feature = "bench-trees")]
        for (state, runs) in [(DIRTY, tally.dirty_runs), (CLEAN, tally.clean_runs)] {
            self.check_by_size(state, runs)?;
        }
        #[cfg(not(feature = "bench-trees"))]
        self.check_all_lists(&tally)?;
        self.check_ages(tally.dirty_runs)?;
        hold(tally.dirty == self.dirty_pages, "dirty pages miscounted")?;
        hold(tally.clean == self.clean_pages, "clean pages miscounted")?;
        hold(
            tally.claimed == self.claimed_pages,
            "claimed pages miscounted",
        )?;
        let touched = self.used_pages + self.dirty_pages + self.claimed_pages;
        hold(touched == self.touched_pages, "touched pages miscounted")?;
        hold(
            self.touched_max >= self.resident(),
            "a maximum below what it is the maximum of",
        )?;
        let sum = touched + self.clean_pages + self.hole_pages + self.lost_pages;
        hold(sum == self.known_pages, "pages do not add up to the heap")
    }

    fn check_map(&self) -> Result<Tally, &'static str> {
        let mut tally = Tally::default();
        let (mut page, mut before) = (0, 0);
        while page < self.known_pages {
            let Some(offset) = self.free_tag(page) else {
                page += 1;
                before = 0;
                continue;
            };
            let run = self.at(offset);
            let (pages, state) = (run.pages.get(), run.state.get());
            hold(
                run.page.get() == page,
                "a free run's tag away from its ends",
            )?;
            hold(
                pages > 0 && run.end() <= self.known_pages,
                "a free run beyond the heap",
            )?;
            #[cfg(not(feature = "bench-trees"))]
            hold(
                self.tag(run.end() - 1) == offset,
                "a free run whose last tag is another's",
            )?;
            let inside = (page + 1)..(run.end() - 1);
            hold(
                inside.into_iter().all(|p| self.tag(p) == 0),
                "a tag inside a free run",
            )?;
            let border = page > 0 && self.nodes.of(page - 1) != self.nodes.of(page);
            hold(
                state == CLAIMED || state != before || border,
                "equal neighbours not joined",
            )?;
            match state {
                DIRTY => {
                    (tally.dirty, tally.dirty_runs) = (tally.dirty + pages, tally.dirty_runs + 1)
                }
                CLEAN => {
                    (tally.clean, tally.clean_runs) = (tally.clean + pages, tally.clean_runs + 1)
                }
                CLAIMED => tally.claimed += pages,
                _ => return Err("a free run in no known state"),
            }
            before = state;
            page = run.end();
        }
        Ok(tally)
    }

    #[cfg(not(feature = "bench-trees"))]
    fn check_all_lists(&self, tally: &Tally) -> Result<(), &'static str> {
        let (mut dirty, mut clean) = (0, 0);
        for (node, (dirties, cleans)) in self.each_lists().enumerate() {
            dirty += self.check_lists(dirties, DIRTY, node, tally.dirty_runs)?;
            clean += self.check_lists(cleans, CLEAN, node, tally.clean_runs)?;
        }
        hold(
            (dirty, clean) == (tally.dirty_runs, tally.clean_runs),
            "fewer runs in lists than in MAP",
        )
    }

    #[cfg(not(feature = "bench-trees"))]
    fn check_lists(
        &self,
        buckets: &BySize,
        state: u8,
        node: usize,
        runs: u32,
    ) -> Result<u32, &'static str> {
        let mut found = 0;
        for bucket in 0..BUCKETS {
            let (mut offset, mut previous) = (buckets.head(bucket), 0);
            let bit = buckets.next(bucket) == Some(bucket);
            hold(bit == (offset != 0), "a bucket's bit and its list differ")?;
            while offset != 0 {
                let run = self.at(offset);
                hold(run.state.get() == state, "a run in a list of another state")?;
                hold(
                    self.nodes.of(run.page.get()) == node && self.nodes.of(run.end() - 1) == node,
                    "a run in a list of another node",
                )?;
                hold(
                    bucket_of(run.pages.get()) == bucket,
                    "a run in another length's bucket",
                )?;
                hold(
                    run.previous.get() == previous,
                    "a bucket's links do not match",
                )?;
                hold(
                    self.free_at(run.page.get()) == Some(offset),
                    "a listed run that MAP does not know",
                )?;
                (previous, offset) = (offset, run.next.get());
                found += 1;
                hold(found <= runs, "more runs in lists than in MAP")?;
            }
        }
        Ok(found)
    }

    fn check_ages(&self, runs: u32) -> Result<(), &'static str> {
        let (mut offset, mut older, mut tick, mut found) = (self.oldest, 0, 0, 0);
        while offset != 0 {
            let run = self.at(offset);
            hold(
                run.state.get() == DIRTY,
                "a run in the age list that is not dirty",
            )?;
            hold(
                run.older.get() == older,
                "the age list's links do not match",
            )?;
            hold(run.tick.get() >= tick, "ticks that fall")?;
            (tick, older, offset) = (run.tick.get(), offset, run.younger.get());
            found += 1;
            hold(found <= runs, "more runs by age than in MAP")?;
        }
        hold(older == self.youngest, "the age list ends elsewhere")?;
        hold(found == runs, "fewer runs by age than in MAP")
    }
}
