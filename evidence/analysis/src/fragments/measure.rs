//! The measurement: sweeps over pages and spans, ages, and a row for each stack.
//!
//! ```text
//!   spans, blocks ─► sweep (pages) ─► layout (spans) ─► ages ─► Fragments, largest stacks first ─► Kept for functions
//! ```
//!
//! Not here: what a page's figures mean (`mod.rs`), functions (`functions.rs`).

use std::collections::BTreeMap;

use super::ages::Ages;
use super::layout::{Layout, SpanWalk};
use super::sweep::Sweep;
use super::tally::{PAGE, Placed, Tally};
use crate::cells::Cells;
use crate::giveback::Span;
use crate::ledger::Ledger;
use crate::model::Fragments;

/// The data from which functions are computed, once stacks have names.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// By site: the trace's node, and its tally.
    pub(super) sites: Vec<(u32, Tally)>,
    /// Units with blocks of several stacks, one after the other: free bytes, pages, number of stacks, their sites.
    pub(super) shared: Vec<u32>,
    pub(super) ages: Ages,
    /// Whether the recording does not have all of the process's life (fragments.R5).
    pub(super) began_late: bool,
    /// The allocator's layout, if spans are what goes back.
    pub(crate) layout: Option<Layout>,
}

/// Measures fragments over the resident addresses of heaps. `rows` bounds the stacks that are listed; `keep` says
/// whether functions will be wanted; `read_ns` is when the pages were read.
pub(crate) fn measure(
    spans: &[Span],
    blocks: impl Iterator<Item = Placed> + Clone,
    (ledger, read_ns): (&Ledger, u64),
    allocator: &str,
    (rows, keep): (usize, bool),
) -> (Fragments, Option<Kept>) {
    let cells = ledger.cells();
    let mut walk = Layout::of(allocator).map(|layout| SpanWalk::new(layout, spans, cells));
    if let Some(walk) = &mut walk {
        blocks.clone().for_each(|block| walk.lay(&block));
    }
    let is_right = walk.as_mut().is_some_and(SpanWalk::is_right);
    let layout = Layout::of(allocator).filter(|_| is_right);
    let mut sweep = Sweep::new(spans, cells, (ledger.slots(), keep), layout);
    blocks.for_each(|block| sweep.lay(&block));
    let mut swept = sweep.finish();
    count(&mut swept.tallies, &swept.cell_bytes, cells);
    let spans = walk.and_then(|walk| walk.finish(&mut swept.tallies));
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
    let ages = Ages::of(wanted, &swept.tallies, &swept.pins, (ledger, read_ns));
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
        layout,
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
