//! One unit after the other, with the blocks on it: shares, sole and joint pages. A unit is what an allocator gives back
//! as a whole: a page, or a span where addresses show it (`layout.rs`).
//!
//! ```text
//!   blocks by address ─► lay: first page, full pages, last page; or the block's span
//!                           │ another unit than before
//!                           └─► next: free bytes to holders, the unit's pages to its stacks
//! ```
//!
//! W1  Blocks come by address and do not overlap; if one does (a damaged trace), only what lies behind the one before
//!     counts, as in the books.
//! W2  A byte counts if it lies in one of the resident spans; a block without such a byte does not count at all.
//! W3  A block pins if a unit that it lies on has free bytes; it is counted once, even if it lies on two such pages.
//! W4  The pages of a span are its resident ones, with blocks on them or not: they go back together, or not at all.
//!
//! Cost: for each block one stack's tally and one cell's bytes. Not here: which addresses are heap (`books.rs`).

use super::layout::Layout;
use super::tally::{PAGE, Placed, Tally};
use crate::cells::Cells;
use crate::giveback::Span;
use crate::pass::CellId;

/// The result of the sweep.
pub(super) struct Swept {
    /// Figures by site, still without what cells know.
    pub tallies: Vec<Tally>,
    /// Bytes on resident pages, by cell.
    pub cell_bytes: Vec<u64>,
    /// By slot: whether the block pins (W3).
    pub pins: Bits,
    /// See `Kept::shared`.
    pub shared: Vec<u32>,
    pub resident_bytes: u64,
    pub used_bytes: u64,
    pub pinned_bytes: u64,
    pub pages: u64,
    pub pinned_pages: u64,
    pub partial_pages: u64,
}

/// A set of small numbers.
pub(super) struct Bits(Vec<u64>);

impl Bits {
    fn new(count: usize) -> Bits {
        Bits(vec![0; count.div_ceil(64)])
    }

    /// Inserts a number; returns whether it is new.
    fn insert(&mut self, at: u32) -> bool {
        let Some(word) = self.0.get_mut(at as usize / 64) else {
            return false;
        };
        let bit = 1 << (at % 64);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    pub fn contains(&self, at: u32) -> bool {
        let word = self.0.get(at as usize / 64).copied().unwrap_or(0);
        word >> (at % 64) & 1 == 1
    }
}

/// A block on the current unit.
#[derive(Clone, Copy)]
struct Holder {
    site: u32,
    slot: u32,
    bytes: u64,
}

pub(super) struct Sweep<'a> {
    spans: &'a [Span],
    cells: &'a Cells,
    keep: bool,
    layout: Option<Layout>,
    /// The first resident span that does not end before the current unit.
    first: usize,
    /// The end of the block before (W1).
    at: u64,
    /// The current unit: where it begins and ends.
    unit: (u64, u64),
    holders: Vec<Holder>,
    /// By site: the end of the last unit that it was seen on.
    seen: Vec<u64>,
    /// The sites on the current unit.
    sites: Vec<u32>,
    swept: Swept,
}

impl<'a> Sweep<'a> {
    /// Creates a sweep. `spans` must be ordered by address and disjoint; `slots` is beyond every block's slot; `layout`
    /// is the allocator's, if its spans do not overlap (layout.T3).
    pub fn new(
        spans: &'a [Span],
        cells: &'a Cells,
        (slots, keep): (usize, bool),
        layout: Option<Layout>,
    ) -> Sweep<'a> {
        let sites = cells.sites().len();
        let (mut pages, mut last) = (0, None);
        for span in spans {
            pages += pages_of(span.start, span.end, &mut last);
        }
        Sweep {
            spans,
            cells,
            keep,
            layout,
            first: 0,
            at: 0,
            unit: (0, 0),
            holders: Vec::new(),
            seen: vec![0; sites],
            sites: Vec::new(),
            swept: Swept {
                tallies: vec![Tally::default(); sites],
                cell_bytes: vec![0; cells.keys().len()],
                pins: Bits::new(slots),
                shared: Vec::new(),
                resident_bytes: spans.iter().map(|span| span.end - span.start).sum(),
                used_bytes: 0,
                pinned_bytes: 0,
                pages,
                pinned_pages: 0,
                partial_pages: 0,
            },
        }
    }

    /// Takes a block.
    pub fn lay(&mut self, block: &Placed) {
        let begin = block.begin.max(self.at);
        if block.end <= begin {
            return;
        }
        self.at = block.end;
        let site = self.cells.site_of(CellId(block.cell)) as u32;
        let (first, last) = (begin / PAGE, (block.end - 1) / PAGE);
        let usable = || self.cells.key(CellId(block.cell)).usable;
        let span = (self.layout).and_then(|layout| layout.span(block.addr, usable()));
        let of_block = (site, block.slot);
        let bytes = match span {
            Some(span) => self.lay_on(span, (begin, block.end), of_block),
            None if last > first => {
                let mut bytes = self.lay_on(page(first), (begin, block.end), of_block);
                if last > first + 1 {
                    self.begin(page(first + 1));
                    bytes += self.lay_over((first + 1) * PAGE, last * PAGE, site);
                }
                bytes + self.lay_on(page(last), (begin, block.end), of_block)
            }
            None => self.lay_on(page(first), (begin, block.end), of_block),
        };
        self.swept.cell_bytes[block.cell as usize] += bytes;
        self.swept.used_bytes += bytes;
    }

    /// Takes the part of a block on one unit.
    fn lay_on(
        &mut self,
        unit: (u64, u64),
        (begin, end): (u64, u64),
        (site, slot): (u32, u32),
    ) -> u64 {
        if unit != self.unit {
            self.begin(unit);
        }
        let bytes = self.resident(begin.max(unit.0), end.min(unit.1));
        if bytes > 0 {
            self.holders.push(Holder { site, slot, bytes });
        }
        bytes
    }

    /// Takes pages that one block fills: nothing is free there.
    fn lay_over(&mut self, start: u64, end: u64, site: u32) -> u64 {
        let (mut bytes, mut pages, mut last) = (0, 0, None);
        for span in &self.spans[self.first..] {
            if span.start >= end {
                break;
            }
            let (from, to) = (span.start.max(start), span.end.min(end));
            if from < to {
                bytes += to - from;
                pages += pages_of(from, to, &mut last);
            }
        }
        self.swept.tallies[site as usize].sole_pages += pages;
        self.swept.pinned_pages += pages;
        bytes
    }

    /// Returns the resident bytes between two addresses of the current unit (W2).
    fn resident(&self, start: u64, end: u64) -> u64 {
        // Nearly always the whole unit is resident.
        if let Some(span) = self.spans.get(self.first)
            && span.start <= start
            && span.end >= end
        {
            return end - start;
        }
        let mut bytes = 0;
        for span in &self.spans[self.first..] {
            if span.start >= end {
                break;
            }
            bytes += span.end.min(end).saturating_sub(span.start.max(start));
        }
        bytes
    }

    /// Books the current unit and begins another one.
    fn begin(&mut self, next: (u64, u64)) {
        if !self.holders.is_empty() {
            self.book();
        }
        self.unit = next;
        while let Some(span) = self.spans.get(self.first)
            && span.end <= next.0
        {
            self.first += 1;
        }
    }

    fn book(&mut self) {
        let (start, end) = self.unit;
        let used: u64 = self.holders.iter().map(|holder| holder.bytes).sum();
        let resident = self.resident(start, end);
        let (free, pages) = (resident.saturating_sub(used), resident.div_ceil(PAGE));
        let swept = &mut self.swept;
        swept.pinned_pages += pages;
        swept.pinned_bytes += free;
        swept.partial_pages += if free > 0 { pages } else { 0 };
        let count = self.holders.len() as u64;
        self.sites.clear();
        for (index, holder) in self.holders.drain(..).enumerate() {
            let tally = &mut swept.tallies[holder.site as usize];
            if free > 0 {
                // The free bytes are shared equally (fragments.R1).
                tally.free_bytes += free / count + u64::from((index as u64) < free % count);
                tally.block_bytes += holder.bytes;
                tally.blocks += u64::from(swept.pins.insert(holder.slot));
            }
            let seen = &mut self.seen[holder.site as usize];
            if *seen != end {
                *seen = end;
                self.sites.push(holder.site);
            }
        }
        if let [site] = self.sites[..] {
            let tally = &mut swept.tallies[site as usize];
            tally.sole_pages += pages;
            tally.sole_free_bytes += free;
            return;
        }
        for &site in &self.sites {
            swept.tallies[site as usize].joint_pages += pages;
        }
        if self.keep {
            // These are at most a span's bytes, and as many stacks as it has bytes: all fit.
            swept.shared.push(free as u32);
            swept.shared.push(pages as u32);
            swept.shared.push(self.sites.len() as u32);
            swept.shared.extend_from_slice(&self.sites);
        }
    }

    /// Books the last unit.
    pub fn finish(mut self) -> Swept {
        self.begin((0, 0));
        self.swept
    }
}

/// Returns where a page begins and ends.
fn page(number: u64) -> (u64, u64) {
    let begin = number.saturating_mul(PAGE);
    (begin, begin.saturating_add(PAGE))
}

/// Counts the pages that a range touches, except for the one that the range before ended on.
fn pages_of(start: u64, end: u64, last: &mut Option<u64>) -> u64 {
    let (from, to) = (start / PAGE, end.div_ceil(PAGE));
    let again = u64::from(last.is_some_and(|last| last == from));
    *last = Some(to - 1);
    (to - from).saturating_sub(again)
}
