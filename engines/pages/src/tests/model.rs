//! Random acts on the pool and on a model that is a list of pages.
//!
//! ```text
//!   model   page:  used 7 · used 7 · free · claimed · used 9 …       runs: 7 ─► (page, pages)
//! ```
//!
//! M1  What the pool hands out is free in the model; what the model says is used holds its content.
//!
//! Not here: the other tests of `tests`.

use super::*;

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Free,
    Claimed,
    Used(u64),
}

pub(super) struct Model {
    pub(super) pool: Fresh,
    /// Whether the kernel may refuse.
    refusals: bool,
    seed: u64,
    pages: Vec<State>,
    runs: BTreeMap<u64, (u32, u32)>,
    claimed: Vec<Run>,
    next: u64,
    dice: Random,
    tick: u32,
}

impl Model {
    fn new(seed: u64) -> Model {
        Model {
            pool: fresh(seed),
            refusals: false,
            seed,
            pages: Vec::new(),
            runs: BTreeMap::new(),
            claimed: Vec::new(),
            next: 1,
            dice: Random::new(seed),
            tick: 0,
        }
    }

    /// Enters pages that were just handed out: free in the model, zero if they were reported clean; they get their
    /// content.
    fn accept(&mut self, id: u64, page: u32, pages: u32, clean: bool) {
        let end = (page + pages) as usize;
        if self.pages.len() < end {
            self.pages.resize(end, State::Free);
        }
        for at in page..page + pages {
            let seed = self.seed;
            assert_eq!(
                self.pages[at as usize],
                State::Free,
                "page {at}, seed {seed}"
            );
            assert_eq!(self.pool.tag(at), 0, "entry of page {at}, seed {seed}");
            assert!(
                !clean || read(&self.pool, at) == 0,
                "page {at} not zero, seed {seed}"
            );
            write(&self.pool, at, id << 32 | u64::from(at));
            self.pages[at as usize] = State::Used(id);
        }
    }

    fn verify(&self, id: u64, page: u32, pages: u32) {
        for at in page..page + pages {
            let seed = self.seed;
            assert_eq!(
                self.pages[at as usize],
                State::Used(id),
                "page {at}, seed {seed}"
            );
            let content = read(&self.pool, at);
            assert_eq!(content, id << 32 | u64::from(at), "page {at}, seed {seed}");
        }
    }

    fn length(&mut self) -> u32 {
        match self.dice.below(100) {
            0..60 => 1 + self.dice.below(16) as u32,
            60..85 => 1 + self.dice.below(70) as u32,
            85..97 => 1 + self.dice.below(400) as u32,
            _ => 1 + self.dice.below(3_000) as u32,
        }
    }

    fn take(&mut self) {
        let pages = self.length();
        let align = match self.dice.below(4) {
            0 => 1 << self.dice.below(9),
            _ => 1,
        };
        let Some(run) = self.pool.take(pages, align) else {
            assert!(self.refusals, "refused, seed {}", self.seed);
            return;
        };
        assert_eq!(run.pages, pages, "seed {}", self.seed);
        let addr = self.pool.region.page_addr(run.page);
        assert_eq!(addr % (align as usize * PAGE), 0, "seed {}", self.seed);
        let id = self.next;
        self.next += 1;
        self.accept(id, run.page, pages, run.clean);
        self.runs.insert(id, (run.page, pages));
    }

    fn any_run(&mut self) -> Option<u64> {
        let index = self.dice.below(self.runs.len().max(1) as u64) as usize;
        self.runs.keys().nth(index).copied()
    }

    /// Gives a run back, whole or a part of it, dirty or zeroed.
    fn give(&mut self) {
        let Some(id) = self.any_run() else { return };
        let (page, pages) = self.runs[&id];
        self.verify(id, page, pages);
        let part = match self.dice.below(5) {
            0 => 1 + self.dice.below(u64::from(pages)) as u32,
            _ => pages,
        };
        let at_end = self.dice.below(2) == 0;
        let from = if at_end { page + pages - part } else { page };
        let dirty = self.dice.below(8) != 0;
        for at in from..from + part {
            if !dirty {
                write(&self.pool, at, 0);
            }
            self.pages[at as usize] = State::Free;
        }
        self.pool.give(from, part, dirty);
        self.runs.remove(&id);
        if part < pages {
            let rest = if at_end { page } else { page + part };
            self.runs.insert(id, (rest, pages - part));
        }
    }

    fn extend(&mut self) {
        let Some(id) = self.any_run() else { return };
        let more = self.length();
        let (page, pages) = self.runs[&id];
        let end = (page + pages) as usize;
        let room = self
            .pages
            .iter()
            .skip(end)
            .take_while(|s| **s == State::Free)
            .count();
        let at_the_end = end + room >= self.pages.len();
        match self.pool.extend(page + pages, more) {
            Some(clean) => {
                self.accept(id, page + pages, more, clean);
                self.runs.insert(id, (page, pages + more));
            }
            // It may give up among many small runs, but then it must have looked at some.
            None => {
                let could = room >= more as usize || at_the_end && !self.refusals;
                assert!(!could || room >= 8, "seed {}", self.seed);
            }
        }
    }

    fn claim(&mut self) {
        let mut out = [Run::default(); 8];
        let room = 1 + self.dice.below(8) as usize;
        let keep = self.dice.below(200) as u32;
        let until = self.tick.saturating_sub(self.dice.below(4) as u32);
        let before = self.pool.dirty_pages;
        let count = self.pool.claim_dirty(until, keep, &mut out[..room]);
        for run in &out[..count] {
            for at in run.page..run.page + run.pages {
                assert_eq!(self.pages[at as usize], State::Free, "seed {}", self.seed);
                self.pages[at as usize] = State::Claimed;
            }
            self.claimed.push(*run);
        }
        assert!(
            self.pool.dirty_pages >= keep.min(before),
            "seed {}",
            self.seed
        );
    }

    fn settle(&mut self) {
        let runs = std::mem::take(&mut self.claimed);
        for run in &runs {
            for at in run.page..run.page + run.pages {
                self.pages[at as usize] = State::Free;
            }
        }
        if self.dice.below(5) == 0 {
            self.pool.unclaim(&runs);
            return;
        }
        let mut batch = crate::purge::Batch::new();
        for run in &runs {
            batch.add(
                self.pool.region.page_addr(run.page),
                run.pages as usize * PAGE,
            );
        }
        batch.flush();
        self.pool.purged(&runs);
    }

    fn check(&self) {
        let held = self.pool.check();
        assert_eq!(held, Ok(()), "seed {}", self.seed);
        let used: u32 = self.runs.values().map(|run| run.1).sum();
        assert_eq!(self.pool.used_pages, used, "seed {}", self.seed);
        assert_eq!(self.pool.lost_pages, 0, "seed {}", self.seed);
    }
}

pub(super) fn run(seed: u64, acts: u32, refusals: bool) -> Model {
    let mut model = Model::new(seed);
    model.refusals = refusals;
    for act in 0..acts {
        // The heap grows and shrinks alternately.
        let swelling = act / 400 % 2 == 0;
        match model.dice.below(20) {
            0..7 => model.take(),
            7..9 if swelling => model.take(),
            7..15 => model.give(),
            15..17 => model.extend(),
            17 => model.claim(),
            18 => model.settle(),
            _ => {
                model.tick += 1;
                model.pool.set_tick(model.tick);
            }
        }
        if act % 32 == 0 {
            model.check();
        }
    }
    model
}

impl Model {
    /// Gives everything back, and checks that it is one piece.
    pub(super) fn close(&mut self) {
        self.settle();
        for (id, (page, pages)) in std::mem::take(&mut self.runs) {
            self.verify(id, page, pages);
            self.pool.give(page, pages, true);
        }
        self.check();
        self.pool.purge(u32::MAX);
        self.check();
        let (all, holes) = (self.pool.known_pages, self.pool.hole_pages);
        assert_eq!(
            (self.pool.clean_pages, self.pool.touched_pages),
            (all - holes, 0)
        );
        let whole = self
            .pool
            .free_at(0)
            .map(|offset| self.pool.at(offset).end());
        assert!(whole == Some(all) || holes > 0, "seed {}", self.seed);
        // All descriptors are free except that run's; the first unit is never given out.
        let units = self.pool.region.meta_used_bytes() / crate::UNIT;
        let free = self.pool.region.free_units();
        assert!(
            free + 2 == units || holes > 0,
            "{free} of {units}, seed {}",
            self.seed
        );
    }
}

#[test]
fn the_pool_does_what_a_list_of_pages_does() {
    for seed in 1..=8 {
        let mut model = run(seed, 4_000, false);
        assert!(
            model.pool.purged_early_total > 0,
            "never purged early, seed {seed}"
        );
        assert!(model.pool.reused_dirty_total > 0 && model.pool.purged_total > 0);
        model.close();
    }
}
