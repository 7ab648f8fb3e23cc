//! The phases of one family: which are open, and what those that ended left behind.
//!
//! ```text
//!   begin ─► Open { born: cell → blocks } ─► end ─► Tomb by cell: made, live, by half of the rounds
//!                                                └► Seen by stack: in which rounds it left anything
//! ```
//!
//! Y1  Blocks are counted by cell, rounds by stack: a stack that leaves blocks of many sizes leaves some in each
//!     round, although no single size does.
//! Y2  Spans of births ascend and are disjoint, so that a block belongs to at most one ended phase.
//!
//! Not here: what marks mean (phases.rs), what is a leak (phases_rounds.rs).

use rustc_hash::FxHashMap;

use crate::model::Claim;
use crate::pass::{CellId, Context};
use crate::passes::phases_exit::Kept;
use crate::passes::phases_rounds::{Rounds, Seen, Sum};

/// All phases of one family.
#[derive(Default)]
pub(super) struct Name {
    pub name: String,
    pub rounds: Rounds,
    pub open: Vec<Open>,
    /// Whether two were ever open together.
    overlapped: bool,
    /// Births of the ended phases: from the first to before the last, ascending, disjoint, and the half of the rounds
    /// that they belong to.
    spans: Vec<(u32, u32, u8)>,
    zombies: FxHashMap<CellId, Tomb>,
    /// By node: the rounds that left anything (Y1).
    seen: FxHashMap<u32, Seen>,
}

/// Zombies of one family and cell, by the half of the rounds that they were born in.
#[derive(Clone, Copy, Default)]
struct Tomb {
    made: [u64; 2],
    live: Kept,
    at_instant: u64,
}

/// A phase that is open.
#[derive(Default)]
pub(super) struct Open {
    pub raw: u32,
    first: u32,
    /// Blocks of each cell that were born in it and live.
    pub born: FxHashMap<CellId, u64>,
}

impl Name {
    /// Creates a family with its name and its rounds to come.
    pub fn new(name: String, rounds: Rounds) -> Name {
        Name {
            name,
            rounds,
            ..Name::default()
        }
    }

    /// Returns the half of the rounds that a block of this birth belongs to, if it was born in an ended phase.
    pub fn half_of(&self, birth: u32) -> Option<u8> {
        let after = self.spans.partition_point(|(first, _, _)| *first <= birth);
        let (_, past, half) = self.spans[after.checked_sub(1)?];
        (birth < past).then_some(half)
    }

    /// Returns the open phase that a block of this birth belongs to: if there are several, the one that began last.
    #[inline]
    pub fn open_of(&mut self, birth: u32) -> Option<&mut Open> {
        if self.overlapped && self.half_of(birth).is_some() {
            return None;
        }
        self.open.iter_mut().rfind(|open| birth >= open.first)
    }

    /// Begins a phase: blocks from `first` on belong to it.
    pub fn begin(&mut self, raw: u32, first: u32) {
        self.overlapped |= !self.open.is_empty();
        self.open.push(Open {
            raw,
            first,
            born: FxHashMap::default(),
        });
    }

    /// Ends a phase that is open; returns which cells it left blocks of.
    pub fn end(
        &mut self,
        context: &Context<'_>,
        raw: u32,
        next: u32,
        live_usable: u64,
        stretch: u32,
    ) -> Vec<CellId> {
        let Some(at) = self.open.iter().position(|open| open.raw == raw) else {
            return Vec::new();
        };
        let open = self.open.remove(at);
        // Blocks born since a later phase began belong to that one.
        let past = self.open.get(at).map_or(next, |later| later.first);
        let half = self.rounds.end(live_usable, context.time_ns);
        self.add_span(open.first, past, half);
        let mut cells = Vec::new();
        let mut by_stack: FxHashMap<u32, u64> = FxHashMap::default();
        for (cell, blocks) in open.born.into_iter().filter(|(_, blocks)| *blocks > 0) {
            let tomb = self.zombies.entry(cell).or_default();
            tomb.made[usize::from(half)] += blocks;
            *tomb.live.change(stretch, half) += blocks;
            *by_stack.entry(context.cell(cell).node.0).or_default() += blocks;
            cells.push(cell);
        }
        for (node, blocks) in by_stack {
            let seen = self.seen.entry(node).or_default();
            seen.add(&self.rounds, blocks);
        }
        cells
    }

    /// Adds births, except for those that ended phases have.
    fn add_span(&mut self, first: u32, past: u32, half: u8) {
        let from = self.spans.partition_point(|(begin, _, _)| *begin < first);
        let to = self.spans.partition_point(|(begin, _, _)| *begin < past);
        let inner = self.spans.split_off(from);
        let (mut at, own) = (first, to - from);
        for (index, span) in inner.into_iter().enumerate() {
            if index < own {
                if at < span.0 {
                    self.spans.push((at, span.0, half));
                }
                at = span.1;
            } else if index == own && at < past {
                self.spans.push((at, past, half));
                at = past;
            }
            self.spans.push(span);
        }
        if at < past {
            self.spans.push((at, past, half));
        }
    }

    /// Counts a zombie that goes, or (regrown) comes back as another cell.
    #[inline]
    pub fn count_zombie(&mut self, cell: CellId, birth: u32, alive: bool, stretch: u32) {
        let Some(half) = self.half_of(birth) else {
            return;
        };
        if let Some(tomb) = self.zombies.get_mut(&cell) {
            let live = tomb.live.change(stretch, half);
            *live = if alive {
                *live + 1
            } else {
                live.saturating_sub(1)
            };
        }
    }

    /// Turns a zombie of one cell into one of the other; returns whether there is such a zombie.
    pub fn regrow(&mut self, birth: u32, old: CellId, new: CellId) -> bool {
        let is_one = self.half_of(birth).is_some() && self.zombies.contains_key(&old);
        if is_one {
            self.zombies.entry(new).or_default();
        }
        is_one
    }

    /// Notes that the report's instant has come.
    pub fn freeze(&mut self) {
        for tomb in self.zombies.values_mut() {
            tomb.at_instant = tomb.live.now().iter().sum();
        }
    }

    /// Returns the blocks that live at the instant, by stack.
    pub fn claims(&self, context: &Context<'_>) -> FxHashMap<u32, Vec<Claim>> {
        let mut claims: FxHashMap<u32, Vec<Claim>> = FxHashMap::default();
        for (cell, tomb) in self.zombies.iter().filter(|(_, tomb)| tomb.at_instant > 0) {
            let key = context.cell(*cell);
            claims.entry(key.node.0).or_default().push(Claim {
                key,
                blocks: tomb.at_instant,
                bytes: tomb.at_instant.saturating_mul(key.usable),
            });
        }
        claims
    }

    /// Returns the sums by stack, at the end of a run that ends in this stretch.
    pub fn by_stack(&self, context: &Context<'_>, stretch: u32) -> FxHashMap<u32, Sum> {
        let mut sums: FxHashMap<u32, Sum> = FxHashMap::default();
        for (cell, tomb) in &self.zombies {
            let key = context.cell(*cell);
            let sum = sums.entry(key.node.0).or_default();
            let left = tomb.live.before_exit(stretch);
            let [made, live] = [tomb.made, tomb.live.now()].map(|half| half[0] + half[1]);
            sum.blocks += made;
            sum.requested += made * key.size;
            sum.usable += made * key.usable;
            sum.end_blocks += live;
            sum.end_usable += live * key.usable;
            sum.now_blocks += tomb.at_instant;
            sum.now_usable += tomb.at_instant * key.usable;
            sum.left_usable += (left[0] + left[1]) * key.usable;
            for (half, left) in left.into_iter().enumerate() {
                sum.made[half] += tomb.made[half];
                sum.left[half] += left;
            }
        }
        sums.retain(|_, sum| sum.blocks > 0 || sum.end_blocks > 0);
        for (node, sum) in &mut sums {
            sum.seen = self.seen.get(node).copied().unwrap_or_default();
        }
        sums
    }
}
