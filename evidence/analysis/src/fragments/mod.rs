//! Fragmentation by stack: which stacks' live blocks keep free memory resident, page by page.
//!
//! ```text
//!   page      |  4096   |  4096   |  4096   |  4096   |  4096   |      resident pages of the heap
//!   blocks     AAA   A    A    BB            CCCCCCCCCCCCCCC
//!   pinned by  A solely   A and B   nobody    C solely  C solely
//! ```
//!
//! R1  A page's free bytes are shared equally among the blocks that have a byte there, the remainder one
//!     by one from the lowest address up. So the shares add up to the free bytes of all pinned pages,
//!     exactly; with nobody's pages they are all free bytes (asserted in `books.rs` against another
//!     sweep of the same blocks).
//! R2  A page is solely a stack's if no other stack has a byte on it. If the stack's blocks were elsewhere, side by
//!     side, `sole − packed` pages would hold nothing any more: that is exact; whether the allocator then gives them
//!     back is not decided here (`giveback.rs`).
//! R3  Everything is by address, whatever allocator ran; spans only if addresses show them (`layout.rs`).
//! R4  Memory: 16 bytes for a live block while pages are swept, 8 for a pinning one (its age), 88 for a stack. Only
//!     the data of the report's instant are kept until the end.
//! R5  In a process that was not recorded from its birth, what looks free beside blocks may be blocks from before:
//!     nothing is promised of it.
//!
//! Source: charging free bytes to the survivors beside them comes from the fragmentation profile of Google's
//! tcmalloc, which samples, and uses spans instead of pages. Not here: advice (`functions.rs`), whole free pages
//! (`giveback.rs`).

mod ages;
pub(crate) mod functions;
mod layout;
mod sweep;

use std::collections::BTreeMap;

use crate::cells::Cells;
use crate::giveback::Span;
use crate::ledger::Ledger;
use crate::model::{Fragments, Pins};
use ages::Ages;
use layout::{Layout, SpanWalk};
use sweep::Sweep;

/// The size of a kernel page.
pub(crate) const PAGE: u64 = 4096;

/// A live block with its place, from its header to the end of its usable size. Ordered by address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub begin: u64,
    pub end: u64,
    /// The address of the block itself.
    pub addr: u64,
    pub cell: u32,
    /// Its place among [`Ledger::live_at`]'s.
    pub slot: u32,
}

/// The figures of one stack's blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub free_bytes: u64,
    pub sole_free_bytes: u64,
    pub sole_pages: u64,
    pub joint_pages: u64,
    pub blocks: u64,
    pub block_bytes: u64,
    pub live_bytes: u64,
    pub live_blocks: u64,
    pub acquired: u64,
    pub sole_spans: u64,
    pub joint_spans: u64,
}

impl Tally {
    /// Adds what may be added: pages that two of them share stay counted twice.
    fn add(&mut self, other: &Tally) {
        self.free_bytes += other.free_bytes;
        self.sole_free_bytes += other.sole_free_bytes;
        self.sole_pages += other.sole_pages;
        self.joint_pages += other.joint_pages;
        self.blocks += other.blocks;
        self.block_bytes += other.block_bytes;
        self.live_bytes += other.live_bytes;
        self.live_blocks += other.live_blocks;
        self.acquired += other.acquired;
        self.sole_spans += other.sole_spans;
        self.joint_spans += other.joint_spans;
    }

    fn packed_pages(&self) -> u64 {
        self.live_bytes.div_ceil(PAGE)
    }

    fn freed_pages(&self) -> u64 {
        self.sole_pages.saturating_sub(self.packed_pages())
    }

    /// Returns the figures as a row of the report, for a heap with this many resident bytes.
    fn row(&self, node: Option<u32>, stacks: u64, resident_bytes: u64) -> Pins {
        Pins {
            node,
            stacks,
            free_bytes: self.free_bytes,
            sole_free_bytes: self.sole_free_bytes,
            blocks: self.blocks,
            block_bytes: self.block_bytes,
            live_blocks: self.live_blocks,
            live_bytes: self.live_bytes,
            acquired_blocks: self.acquired,
            sole_pages: self.sole_pages,
            joint_pages: self.joint_pages,
            packed_pages: self.packed_pages(),
            freed_pages: self.freed_pages(),
            resident_elsewhere_bytes: resident_bytes.saturating_sub(self.freed_pages() * PAGE),
            age: None,
            sole_spans: self.sole_spans,
            joint_spans: self.joint_spans,
        }
    }
}

/// The data from which functions are computed, once stacks have names.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// By site: the trace's node, and its tally.
    sites: Vec<(u32, Tally)>,
    /// Pages with blocks of several stacks, one after the other: free bytes, number of stacks, their sites.
    shared: Vec<u32>,
    ages: Ages,
    /// Whether the recording does not have all of the process's life (R5).
    began_late: bool,
}

/// Measures fragments over the resident addresses of heaps. `rows` bounds the stacks that are listed; `keep` says
/// whether functions will be wanted.
pub(crate) fn measure(
    spans: &[Span],
    blocks: impl Iterator<Item = Placed> + Clone,
    ledger: &Ledger,
    allocator: &str,
    (rows, keep): (usize, bool),
) -> (Fragments, Option<Kept>) {
    let cells = ledger.cells();
    let mut sweep = Sweep::new(spans, cells, ledger.slots(), keep);
    blocks.clone().for_each(|block| sweep.lay(&block));
    let mut swept = sweep.finish();
    count(&mut swept.tallies, &swept.cell_bytes, cells);
    let spans = Layout::of(allocator).and_then(|layout| {
        let mut walk = SpanWalk::new(layout, spans, cells);
        blocks.for_each(|block| walk.lay(&block));
        walk.finish(&mut swept.tallies)
    });
    let mut order: Vec<u32> = (0..swept.tallies.len() as u32)
        .filter(|&site| swept.tallies[site as usize].live_bytes > 0)
        .collect();
    order.sort_unstable_by_key(|&site| {
        let tally = &swept.tallies[site as usize];
        let node = cells.sites()[site as usize].node;
        (
            std::cmp::Reverse((tally.free_bytes, tally.live_bytes)),
            node,
        )
    });
    let listed = order.len().min(rows);
    let wanted = if keep { &order[..] } else { &order[..listed] };
    let ages = Ages::of(wanted, &swept.tallies, &swept.pins, ledger);
    let mut all = Fragments {
        resident_bytes: swept.resident_bytes,
        used_bytes: swept.used_bytes,
        free_bytes: swept.resident_bytes - swept.used_bytes,
        pinned_bytes: swept.pinned_bytes,
        nobodys_bytes: swept.resident_bytes - swept.used_bytes - swept.pinned_bytes,
        pages: swept.pages,
        pinned_pages: swept.pinned_pages,
        partial_pages: swept.partial_pages,
        packed_pages: swept.used_bytes.div_ceil(PAGE),
        class_packed_pages: packed_by_class(&swept.cell_bytes, cells),
        spans,
        ..Fragments::default()
    };
    let mut others = Tally::default();
    for (index, &site) in order.iter().enumerate() {
        let tally = &swept.tallies[site as usize];
        if index >= listed {
            others.add(tally);
            continue;
        }
        let node = cells.sites()[site as usize].node.0;
        let mut row = tally.row(Some(node), 1, all.resident_bytes);
        row.age = ages.of_sites(&[site]);
        all.pins.push(row);
    }
    all.others = others.row(None, (order.len() - listed) as u64, all.resident_bytes);
    let kept = keep.then(|| Kept {
        sites: (cells.sites().iter().map(|site| site.node.0))
            .zip(swept.tallies)
            .collect(),
        shared: swept.shared,
        ages,
        began_late: ledger.covered().is_some(),
    });
    (all, kept)
}

/// Adds what cells know: bytes on resident pages, live blocks and blocks ever acquired.
fn count(tallies: &mut [Tally], cell_bytes: &[u64], cells: &Cells) {
    for (count, bytes) in cells.counts().zip(cell_bytes) {
        let tally = &mut tallies[count.site as usize];
        tally.live_bytes += bytes;
        tally.live_blocks += u64::from(count.live);
        tally.acquired += count.ever;
    }
}

/// Returns the pages that the bytes of each usable size would fill by themselves.
fn packed_by_class(cell_bytes: &[u64], cells: &Cells) -> u64 {
    let mut classes: BTreeMap<u64, u64> = BTreeMap::new();
    for (key, &bytes) in cells.keys().iter().zip(cell_bytes) {
        if bytes > 0 {
            *classes.entry(key.usable).or_default() += bytes;
        }
    }
    classes.values().map(|bytes| bytes.div_ceil(PAGE)).sum()
}

#[cfg(test)]
mod tests;
