//! The blocks of a finding, until all findings are settled: their cells, and the rounds that left them.
//!
//! ```text
//!   Finding ──► claims: Claim (cell, blocks, bytes saved)        each block is promised once (`../claims.rs`)
//!           └─► leaving: Leaving ──► prints: Print               what the same rounds left (`../together.rs`)
//! ```
//!
//! M1  None of it is in the JSON of a report.
//!
//! Not here: which finding has a block that two of them claim.

use rustc_hash::FxHashMap;

use crate::block::CellKey;

/// The number of stacks of one function that are compared with others'.
const MOST_PRINTS: usize = 16;

/// The blocks that rounds leave behind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Leaving {
    /// The number of rounds.
    pub rounds: u64,
    /// The rounds, in words.
    pub of: String,
    /// Blocks that all of them left.
    pub blocks: u64,
    /// Number of those blocks that live at the instant.
    pub live: u64,
    /// Number of those live blocks that have the most frequent size.
    pub alike: u64,
    /// Usable bytes of what all rounds left.
    pub left_bytes: u64,
    /// The bytes by which live memory rose from the first round's end to the last one's.
    pub rise_bytes: u64,
    /// How many blocks each round left, for each stack (`together.rs`).
    pub prints: Vec<Print>,
}

impl Leaving {
    /// Counts the sizes of the blocks that live.
    pub(crate) fn count_sizes(&mut self, claims: &[Claim]) {
        let mut sizes: FxHashMap<u64, u64> = FxHashMap::default();
        for claim in claims {
            *sizes.entry(claim.key.size).or_default() += claim.blocks;
        }
        self.live = sizes.values().sum();
        self.alike = sizes.values().copied().max().unwrap_or(0);
    }

    /// Adds what the same rounds left elsewhere.
    pub(crate) fn add(&mut self, other: &Leaving) {
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.left_bytes = self.left_bytes.saturating_add(other.left_bytes);
        self.live = self.live.saturating_add(other.live);
        self.alike = self.alike.saturating_add(other.alike);
        let room = MOST_PRINTS.saturating_sub(self.prints.len());
        self.prints.extend(other.prints.iter().take(room));
    }
}

/// A sum over rounds of the blocks that a stack left in each, weighted by a number of the round: for stacks that
/// leave blocks in a fixed ratio, these sums have the ratio of their blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Print {
    /// The sum, modulo 2^64.
    pub sum: u64,
    /// The number of all blocks.
    pub blocks: u64,
    /// Whether each round left equally many: then any other such stack is in proportion, and it proves nothing.
    pub steady: bool,
}

/// Blocks of one cell that a finding is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Stack, size and usable size of these blocks: the node is the trace's own.
    pub key: CellKey,
    /// The number of these blocks among those that live at the report's instant.
    pub blocks: u64,
    /// The bytes that the finding saves of them.
    pub bytes: u64,
}
