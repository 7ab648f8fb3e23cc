//! The spread of a stack's sizes: whether requests pile up at one size, or happen to lie there.
//!
//! ```text
//!   blocks ▁▁▁▁▁▁█▁▁▁▁▁   piles up: a size that was chosen        ▃▂▃▄▃▂▃▃▂▄▃▃   spread: data of any length
//!              1,040                                                1,030 … 1,229
//! ```
//!
//! L1  A size piles up if it has a quarter of the stack's blocks that are nearly as large: from an eighth of
//!     the round size below it to a quarter of it above.
//! L2  With few equal blocks ([`MANY`]) that proves nothing: there the extra must be so small that chance hits it
//!     once in 64 times.
//!
//! Not here: what a round size is (clownshoes.rs).

use rustc_hash::FxHashMap;

use crate::pass::Context;
use crate::passes::cells::Tally;

/// The number of equal blocks from which on a size was chosen, whatever lies above the round one (L2).
const MANY: u64 = 16;
/// The largest extra that few blocks prove, and its largest share of the round size (L2).
const FEW_EXTRA: u64 = 64;
/// One part in this many of the blocks that are nearly as large (L1).
const SHARE: u64 = 4;

/// The sizes of each stack, ascending, with the blocks over the run up to and including each.
pub(super) struct Spreads {
    stacks: FxHashMap<u32, Vec<(u64, u64)>>,
}

impl Spreads {
    /// Computes the spreads of all that was counted.
    pub fn of(tally: &Tally<'_>, context: &Context<'_>) -> Self {
        let mut stacks: FxHashMap<u32, Vec<(u64, u64)>> = FxHashMap::default();
        for (cell, count) in tally.counts() {
            let key = context.cell(cell);
            let sizes = stacks.entry(key.node.0).or_default();
            sizes.push((key.size, count.total));
        }
        for sizes in stacks.values_mut() {
            sizes.sort_unstable();
            let mut sum = 0;
            for (_, blocks) in sizes.iter_mut() {
                sum += *blocks;
                *blocks = sum;
            }
        }
        Self { stacks }
    }

    /// Reports whether requests of `base + extra` pile up there.
    pub fn piles_up(&self, node: u32, base: u64, extra: u64) -> bool {
        let size = base.saturating_add(extra);
        let here = self.blocks(node, size, size);
        let near = self.blocks(
            node,
            base - base / 8,
            base.saturating_add(base / 4).max(size),
        );
        let few = extra <= FEW_EXTRA && extra <= base / FEW_EXTRA;
        here * SHARE >= near && (here >= MANY || (few && here > 0))
    }

    /// Reports whether three quarters of a stack's blocks have a size (slop.P3).
    pub fn is_nearly_all(&self, node: u32, size: u64) -> bool {
        self.blocks(node, size, size) * 4 >= self.blocks(node, 0, u64::MAX) * 3
    }

    /// Returns the blocks of a stack from one size to another, including both.
    fn blocks(&self, node: u32, from: u64, to: u64) -> u64 {
        let Some(sizes) = self.stacks.get(&node) else {
            return 0;
        };
        let before = |at: usize| at.checked_sub(1).map_or(0, |at| sizes[at].1);
        let first = sizes.partition_point(|(size, _)| *size < from);
        let past = sizes.partition_point(|(size, _)| *size <= to);
        before(past) - before(first)
    }
}
