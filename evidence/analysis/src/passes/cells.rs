//! Cells with their counts, and the sites that cells belong to.
//!
//! ```text
//!   CellId ──► [ at the instant | over the run ]        CellId ──► site 0, 1, 2 … (dense)
//! ```
//!
//! T1  A cell without an acquired block (only blocks that a fork gave, or that came to nothing) is
//!     not counted.
//! T2  Vectors are as long as the highest cell seen: memory is bounded by cells.
//!
//! Not here: counting (`../cells.rs`).

use rustc_hash::FxHashMap;
use skinflint_trace::NodeId;

use crate::pass::{CellBlocks, CellId, Context};

/// Counts of every cell, as the ledger has them (T1).
pub(super) struct Tally<'a>(pub &'a [CellBlocks]);

impl Tally<'_> {
    /// Returns every cell of which a block was acquired.
    pub fn counts(&self) -> impl Iterator<Item = (CellId, CellBlocks)> {
        let numbered = (0..).map(CellId).zip(self.0.iter().copied());
        numbered.filter(|(_, blocks)| blocks.total > 0)
    }
}

/// Returns the element of a cell, grown on demand.
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
    // The size doubles: cells appear one by one, and resizing to each in turn would be just-enough growth.
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
    /// Returns the site of a cell.
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

    /// Records the stack of a site that the ledger numbered. One table takes its numbers from one of the two.
    pub fn learn(&mut self, site: u32, node: NodeId) {
        let at = site as usize;
        if at >= self.nodes.len() {
            self.nodes.resize((at + 1).next_power_of_two(), NodeId(0));
        }
        self.nodes[at] = node;
    }

    /// Returns the number of sites.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the stack of a site.
    pub fn node(&self, site: usize) -> NodeId {
        self.nodes[site]
    }
}
