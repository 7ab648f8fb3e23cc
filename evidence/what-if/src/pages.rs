//! Pages of a simulated heap: which of them hold a live block, and which are resident under each purge.
//!
//! ```text
//!   block ──► live += 1, resident in all three        unblock ──► live -= 1 ─ 0 ─► a hole: due after `delay`
//!   run_taken                                         run_freed ─► a free run:      due after `delay`
//!
//!   floor  ≤  resident[holes]  ≤  resident[spans]  ≤  resident[never]
//! ```
//!
//! P1  `floor` is the number of pages with `live > 0`, including direct mappings.
//! P2  `never`: a page is resident from its first block on. `spans`: until its run has been free for the
//!     delay. `holes`: until no block has lived in it for the delay; with a delay of 0 that is the floor.
//! P3  A page is in each queue at most once: memory is bounded by pages, never by events. A page that was used
//!     meanwhile is not purged; one that was left again waits anew.
//! P4  A block covers the pages of its requested bytes. No program touches the rest of its slot; a trace does not
//!     tell that a program may leave parts of a block untouched, too.
//!
//! Not here: the runs and the blocks (`spans.rs`, `chunks.rs`).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The size of a page, bytes.
pub const PAGE: u64 = 4096;

/// Resident pages or bytes, for each of the three ways to give back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Residents {
    /// If nothing is ever given back, except direct mappings.
    pub never: u64,
    /// If whole spans and runs are given back when nothing lives in them.
    pub spans: u64,
    /// If each page is given back when nothing lives in it.
    pub holes: u64,
}

impl Residents {
    /// Adds the same number to each figure.
    fn add(&mut self, n: u64) {
        self.never += n;
        self.spans += n;
        self.holes += n;
    }

    fn sub(&mut self, n: u64) {
        self.never -= n;
        self.spans -= n;
        self.holes -= n;
    }

    /// Combines each figure with the other's by `f`.
    pub(crate) fn with(&self, other: &Residents, f: impl Fn(u64, u64) -> u64) -> Residents {
        Residents {
            never: f(self.never, other.never),
            spans: f(self.spans, other.spans),
            holes: f(self.holes, other.holes),
        }
    }
}

const NEVER: u8 = 1;
const SPANS: u8 = 2;
const HOLES: u8 = 4;
const ALL: u8 = NEVER | SPANS | HOLES;
/// The page is in a run that is taken.
const TAKEN: u8 = 8;
const QUEUED_RUN: u8 = 16;
const QUEUED_HOLE: u8 = 32;

#[derive(Clone, Copy, Default)]
struct Page {
    live: u16,
    state: u8,
    /// The time when the last block left it, and when its run was freed.
    hole_ms: u32,
    run_ms: u32,
}

type Queue = BinaryHeap<Reverse<(u32, u32)>>;

/// The pages of one simulated heap.
pub struct Pages {
    table: Vec<Page>,
    delay_ms: u32,
    now_ms: u32,
    floor: u64,
    resident: Residents,
    due_holes: Queue,
    due_runs: Queue,
}

impl Pages {
    /// Creates a heap without pages; what could be given back is given back after `delay_ms`.
    pub fn new(delay_ms: u32) -> Pages {
        Pages {
            table: Vec::new(),
            delay_ms,
            now_ms: 0,
            floor: 0,
            resident: Residents::default(),
            due_holes: Queue::new(),
            due_runs: Queue::new(),
        }
    }

    /// Returns the pages that hold a live block (P1).
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Returns the resident pages (P2).
    pub fn resident(&self) -> Residents {
        self.resident
    }

    /// Returns the number of live blocks that reach into a page.
    pub fn live(&self, page: u32) -> u16 {
        self.table.get(page as usize).map_or(0, |page| page.live)
    }

    /// Returns the bytes that the tables hold.
    pub fn table_bytes(&self) -> usize {
        self.table.capacity() * size_of::<Page>()
            + (self.due_holes.capacity() + self.due_runs.capacity())
                * size_of::<Reverse<(u32, u32)>>()
    }

    fn at(&mut self, page: u32) -> &mut Page {
        let page = page as usize;
        if page >= self.table.len() {
            self.table.resize(page + 1, Page::default());
        }
        &mut self.table[page]
    }

    /// Notes that a block came. Cost: its pages.
    pub fn block(&mut self, addr: u64, bytes: u64) {
        for page in range(addr, bytes) {
            self.enter(page);
        }
    }

    /// Notes that a block went.
    pub fn unblock(&mut self, addr: u64, bytes: u64) {
        for page in range(addr, bytes) {
            self.leave(page);
        }
    }

    /// Notes that a block has another size at the same address. Cost: the pages between the two ends.
    pub fn resize(&mut self, addr: u64, old: u64, new: u64) {
        let (old, new) = (range(addr, old).end, range(addr, new).end);
        (old..new).for_each(|page| self.enter(page));
        (new..old).for_each(|page| self.leave(page));
    }

    fn enter(&mut self, page: u32) {
        let one = self.at(page);
        one.live = one.live.saturating_add(1);
        let (first, missing) = (one.live == 1, ALL & !one.state);
        one.state |= ALL;
        self.floor += u64::from(first);
        self.count(missing, true);
    }

    fn leave(&mut self, page: u32) {
        let (now_ms, delay_ms) = (self.now_ms, self.delay_ms);
        let one = self.at(page);
        one.live = one.live.saturating_sub(1);
        if one.live > 0 {
            return;
        }
        one.hole_ms = now_ms;
        let queued = one.state & QUEUED_HOLE != 0;
        one.state |= QUEUED_HOLE;
        self.floor -= 1;
        if delay_ms == 0 {
            self.clear(page, HOLES | QUEUED_HOLE);
        } else if !queued {
            self.due_holes
                .push(Reverse((now_ms.saturating_add(delay_ms), page)));
        }
    }

    fn count(&mut self, which: u8, up: bool) {
        for (bit, figure) in [
            (NEVER, &mut self.resident.never),
            (SPANS, &mut self.resident.spans),
            (HOLES, &mut self.resident.holes),
        ] {
            if which & bit != 0 {
                *figure = if up { *figure + 1 } else { *figure - 1 };
            }
        }
    }

    fn clear(&mut self, page: u32, bits: u8) {
        let one = self.at(page);
        let had = one.state & bits;
        one.state &= !bits;
        self.count(had, false);
    }

    /// Notes that a run of pages is in use from now on.
    pub fn run_taken(&mut self, first: u32, pages: u32) {
        for page in first..first + pages {
            self.at(page).state |= TAKEN;
        }
    }

    /// Notes that a run of pages, or a part of one, is free; no live block lies in it.
    pub fn run_freed(&mut self, first: u32, pages: u32) {
        let (now_ms, delay_ms) = (self.now_ms, self.delay_ms);
        for page in first..first + pages {
            let one = self.at(page);
            one.state &= !TAKEN;
            one.run_ms = now_ms;
            if one.state & SPANS == 0 {
                continue;
            }
            if delay_ms == 0 {
                self.clear(page, SPANS);
            } else if one.state & QUEUED_RUN == 0 {
                one.state |= QUEUED_RUN;
                self.due_runs
                    .push(Reverse((now_ms.saturating_add(delay_ms), page)));
            }
        }
    }

    /// Notes that the pages of a block that has left went elsewhere (`mremap`): here they are no longer resident
    /// under any purge.
    pub fn moved_away(&mut self, addr: u64, bytes: u64) {
        for page in range(addr, bytes) {
            if self.live(page) == 0 {
                self.clear(page, ALL);
            }
        }
    }

    /// Notes that a direct mapping came.
    pub fn direct(&mut self, pages: u64) {
        self.floor += pages;
        self.resident.add(pages);
    }

    /// Notes that a direct mapping went, and its pages with it.
    pub fn undirect(&mut self, pages: u64) {
        self.floor -= pages;
        self.resident.sub(pages);
    }

    /// Moves the time on: purges what is due (P3). Holes come first: each run is full of them, and the order of the
    /// figures holds.
    pub fn advance(&mut self, now_ms: u32) {
        self.now_ms = self.now_ms.max(now_ms);
        while let Some(&Reverse((due, page))) = self.due_holes.peek()
            && due <= self.now_ms
        {
            self.due_holes.pop();
            let one = self.table[page as usize];
            let again = one.hole_ms.saturating_add(self.delay_ms);
            if one.live > 0 {
                self.at(page).state &= !QUEUED_HOLE;
            } else if again > self.now_ms {
                self.due_holes.push(Reverse((again, page)));
            } else {
                self.clear(page, HOLES | QUEUED_HOLE);
            }
        }
        while let Some(&Reverse((due, page))) = self.due_runs.peek()
            && due <= self.now_ms
        {
            self.due_runs.pop();
            let one = self.table[page as usize];
            let again = one.run_ms.saturating_add(self.delay_ms);
            if one.state & TAKEN != 0 {
                self.at(page).state &= !QUEUED_RUN;
            } else if again > self.now_ms {
                self.due_runs.push(Reverse((again, page)));
            } else {
                self.clear(page, SPANS | QUEUED_RUN);
            }
        }
    }

    /// Counts everything again, for tests: what the counters should be (P1, P2).
    #[doc(hidden)]
    pub fn recount(&self) -> (u64, Residents) {
        let having = |bit| {
            self.table
                .iter()
                .filter(|page| page.state & bit != 0)
                .count() as u64
        };
        let live = self.table.iter().filter(|page| page.live > 0).count() as u64;
        let resident = Residents {
            never: having(NEVER),
            spans: having(SPANS),
            holes: having(HOLES),
        };
        (live, resident)
    }
}

/// Returns the pages of `bytes` from `addr` on.
pub(crate) fn range(addr: u64, bytes: u64) -> std::ops::Range<u32> {
    let first = addr / PAGE;
    let end = (addr + bytes).div_ceil(PAGE);
    first as u32..end as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(pages: &Pages) -> (u64, [u64; 3]) {
        let all = pages.resident();
        assert_eq!(pages.recount(), (pages.floor(), all));
        (pages.floor(), [all.never, all.spans, all.holes])
    }

    #[test]
    fn at_once_by_hand() {
        let mut pages = Pages::new(0);
        pages.run_taken(0, 4);
        // 100 bytes across the edge of pages 0 and 1, and all of page 2.
        pages.block(4050, 100);
        pages.block(8192, 4096);
        assert_eq!(figures(&pages), (3, [3, 3, 3]));
        pages.unblock(4050, 100);
        assert_eq!(figures(&pages), (1, [3, 3, 1]));
        pages.unblock(8192, 4096);
        pages.run_freed(0, 4);
        assert_eq!(figures(&pages), (0, [3, 0, 0]));
        // The fourth page was never touched, and is not when it is taken again.
        pages.run_taken(0, 4);
        pages.block(0, 1);
        assert_eq!(figures(&pages), (1, [3, 1, 1]));
    }

    #[test]
    fn a_hole_waits_anew_when_it_was_used_meanwhile() {
        let mut pages = Pages::new(500);
        pages.run_taken(0, 1);
        pages.block(0, 16);
        pages.unblock(0, 16);
        pages.advance(400);
        pages.block(0, 16);
        pages.unblock(0, 16);
        // The first queueing is due at 500, and finds that the page was left again at 400.
        pages.advance(899);
        assert_eq!(figures(&pages), (0, [1, 1, 1]));
        pages.advance(900);
        assert_eq!(figures(&pages), (0, [1, 1, 0]));
        pages.run_freed(0, 1);
        pages.advance(1399);
        assert_eq!(figures(&pages), (0, [1, 1, 0]));
        pages.advance(1400);
        assert_eq!(figures(&pages), (0, [1, 0, 0]));
    }

    #[test]
    fn a_run_taken_again_in_time_is_kept() {
        let mut pages = Pages::new(500);
        pages.run_taken(3, 1);
        pages.block(3 * PAGE, 1);
        pages.unblock(3 * PAGE, 1);
        pages.run_freed(3, 1);
        pages.advance(300);
        pages.run_taken(3, 1);
        pages.advance(1000);
        assert_eq!(figures(&pages), (0, [1, 1, 0]));
    }

    #[test]
    fn resizing_touches_and_leaves_the_difference() {
        let mut pages = Pages::new(0);
        pages.block(PAGE, PAGE);
        pages.resize(PAGE, PAGE, 3 * PAGE);
        assert_eq!(figures(&pages), (3, [3, 3, 3]));
        pages.resize(PAGE, 3 * PAGE, PAGE + 1);
        assert_eq!(figures(&pages), (2, [3, 3, 2]));
        pages.resize(PAGE, PAGE + 1, 1);
        assert_eq!(figures(&pages), (1, [3, 3, 1]));
    }

    #[test]
    fn pages_that_moved_away_are_resident_nowhere() {
        let mut pages = Pages::new(500);
        pages.run_taken(0, 2);
        pages.block(0, 2 * PAGE);
        pages.unblock(0, 2 * PAGE);
        pages.moved_away(0, 2 * PAGE);
        assert_eq!(figures(&pages), (0, [0, 0, 0]));
        pages.run_freed(0, 2);
        pages.advance(5000);
        assert_eq!(figures(&pages), (0, [0, 0, 0]));
    }
}
