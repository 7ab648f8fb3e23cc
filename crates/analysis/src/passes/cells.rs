//! Tallies by cell, and the sites that cells belong to.
//!
//! ```text
//!   CellId ──► [ live | at the instant | over the run ]        CellId ──► site 0, 1, 2 … (dense)
//! ```
//!
//! T1  `live` of a cell is acquisitions minus releases; it never falls below 0 (a release of a block
//!     that was never seen acquired does not reach a pass).
//! T2  Until [`Tally::freeze`] is called the instant is "now", so a report about the end needs no call.
//! T3  Vectors are as long as the highest cell seen: memory is bounded by cells.
//!
//! Not here: the ledger's own tables, which count the same for the report's sites and sizes.

use rustc_hash::FxHashMap;
use skinflint_trace::NodeId;

use crate::pass::{Act, CellId, Context};

/// Blocks of one cell.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Count {
    /// Live at the report's instant.
    pub at_instant: u64,
    /// Acquired over the run.
    pub total: u64,
}

/// Live and total of a cell: what an act touches, and no more. With 8 bytes the table of a program
/// of 100,000 cells stays in the second-level cache of common machines.
#[derive(Clone, Copy, Default)]
struct Hot {
    live: u32,
    /// Modulo 2^32; the rest is in [`Tally::carried`].
    total: u32,
}

/// Counts of every cell (T1 to T3).
#[derive(Default)]
pub(super) struct Tally {
    hot: Vec<Hot>,
    /// Times that `total` of a cell wrapped.
    carried: FxHashMap<CellId, u64>,
    /// Live at the instant, once it has come.
    frozen: Option<Vec<u32>>,
}

impl Tally {
    /// Counts an act. Cost: one indexed add, two for a regrow.
    #[inline]
    pub fn act(&mut self, act: &Act) {
        match act {
            Act::Acquire { block, .. } => self.acquire(block.cell),
            Act::Release { block, .. } => self.release(block.cell),
            Act::Regrow { old, new } => {
                self.release(old.cell);
                self.acquire(new.cell);
            }
            Act::Mark { .. } => {}
        }
    }

    #[inline]
    fn acquire(&mut self, cell: CellId) {
        let hot = slot(&mut self.hot, cell);
        hot.live = hot.live.saturating_add(1);
        hot.total = hot.total.wrapping_add(1);
        if hot.total == 0 {
            self.carry(cell);
        }
    }

    #[cold]
    fn carry(&mut self, cell: CellId) {
        *self.carried.entry(cell).or_default() += 1;
    }

    #[inline]
    fn release(&mut self, cell: CellId) {
        let hot = slot(&mut self.hot, cell);
        hot.live = hot.live.saturating_sub(1);
    }

    /// The report's instant is now.
    pub fn freeze(&mut self) {
        self.frozen = Some(self.hot.iter().map(|hot| hot.live).collect());
    }

    /// Every cell that was used, once everything has been seen.
    pub fn counts(&self) -> impl Iterator<Item = (CellId, Count)> {
        let total = |i: usize, hot: &Hot| {
            let carried = self.carried.get(&CellId(i as u32)).copied().unwrap_or(0);
            (carried << 32) + u64::from(hot.total)
        };
        let numbered = self
            .hot
            .iter()
            .enumerate()
            .map(move |(i, hot)| (i, hot, total(i, hot)));
        numbered
            .filter(|(_, _, total)| *total > 0)
            .map(|(i, hot, total)| {
                let at_instant = match &self.frozen {
                    // A cell that came later held nothing at the instant.
                    Some(live) => live.get(i).copied().unwrap_or(0),
                    None => hot.live,
                };
                (
                    CellId(i as u32),
                    Count {
                        at_instant: u64::from(at_instant),
                        total,
                    },
                )
            })
    }
}

/// The element of a cell, grown on demand.
#[inline]
pub(super) fn slot<T: Default + Clone>(values: &mut Vec<T>, cell: CellId) -> &mut T {
    let at = cell.0 as usize;
    if at >= values.len() {
        grow(values, at);
    }
    &mut values[at]
}

#[cold]
fn grow<T: Default + Clone>(values: &mut Vec<T>, at: usize) {
    // Doubling: cells appear one by one, and resizing to each in turn would be just-enough growth.
    values.resize((at + 1).next_power_of_two().max(64), T::default());
}

/// Dense numbers for the stacks that acquire, found from a cell with one indexed load.
#[derive(Default)]
pub(super) struct Sites {
    /// Site + 1; 0 is "not looked up yet".
    of_cell: Vec<u32>,
    by_node: FxHashMap<NodeId, u32>,
    nodes: Vec<NodeId>,
}

impl Sites {
    /// The site of a cell.
    #[inline]
    pub fn of(&mut self, context: &Context<'_>, cell: CellId) -> usize {
        let known = *slot(&mut self.of_cell, cell);
        if known != 0 {
            known as usize - 1
        } else {
            self.look_up(context, cell)
        }
    }

    #[cold]
    fn look_up(&mut self, context: &Context<'_>, cell: CellId) -> usize {
        let node = context.cell(cell).node;
        let fresh = self.nodes.len() as u32;
        let site = *self.by_node.entry(node).or_insert(fresh);
        if site == fresh {
            self.nodes.push(node);
        }
        *slot(&mut self.of_cell, cell) = site + 1;
        site as usize
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The stack of a site.
    pub fn node(&self, site: usize) -> NodeId {
        self.nodes[site]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_go_on_beyond_32_bits_and_the_instant_stays() {
        let mut tally = Tally::default();
        let cell = CellId(3);
        tally.acquire(cell);
        tally.acquire(cell);
        tally.freeze();
        tally.release(cell);
        tally.release(cell);
        tally.release(cell);
        tally.acquire(CellId(100_000));
        tally.hot[3].total = u32::MAX;
        tally.acquire(cell);
        tally.acquire(cell);
        let counts: Vec<_> = tally.counts().collect();
        assert_eq!(
            counts[0],
            (
                cell,
                Count {
                    at_instant: 2,
                    total: (1 << 32) + 1
                }
            )
        );
        assert_eq!(
            counts[1],
            (
                CellId(100_000),
                Count {
                    at_instant: 0,
                    total: 1
                }
            )
        );
        assert_eq!(counts.len(), 2);
    }
}
