//! A finding: a change to make, its evidence, and what it promises.
//!
//! N1  No two findings promise the same bytes of live blocks (`claims.rs`).

use serde::{Deserialize, Serialize};

use super::claim::{Claim, Leaving};

/// The kind of a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// Requests a little above a class or a power of two.
    Clownshoes,
    /// Rounding by the allocator that is not a clownshoe.
    Slop,
    /// A buffer that grows by too little.
    Growth,
    /// Many short-lived blocks.
    Churn,
    /// Buffers kept for reuse that are not used again.
    Placebo,
    /// Memory that only grows, that outlives its phase, or that nothing points to (`--reachable`).
    #[default]
    Leak,
    /// Blocks of a phase or tenant that outlive its end mark.
    Zombie,
    /// Free memory that the allocator keeps.
    Retained,
    /// Free memory that stays resident because live blocks lie on the same pages.
    Pinned,
    /// Requested and never touched, or swapped out. (No trace shows memory that is resident and idle.)
    Untouched,
    /// One stack or mapping that holds a large share: not waste by itself.
    Holder,
}

/// What the change of every holder begins with; behind it may be what the kind of its objects suggests.
pub const HOLDER_CHANGE: &str =
    "Not waste by itself: look here first if the program should hold less.";

/// The certainty of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// The figure follows from the trace alone.
    Certain,
    /// The pattern is plain; the saving is an estimate.
    Likely,
    /// Worth a look.
    #[default]
    Possible,
}

/// A finding: a change to make, with its evidence.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Finding {
    /// Its kind.
    pub kind: FindingKind,
    /// One line: the problem, with its figure.
    pub title: String,
    /// Sentences: the observation.
    pub what: String,
    /// Sentences: the change to make.
    pub change: String,
    /// Bytes of resident or live memory that it holds at the report's instant.
    pub now_bytes: u64,
    /// Bytes that the change would give back at the report's instant.
    pub saved_bytes: u64,
    /// Bytes that the change would save over the run: copied (growth) or allocated (churn and others); 0 if
    /// none.
    pub saved_cumulative_bytes: u64,
    /// Allocations that the change would avoid over the run.
    pub saved_allocations: u64,
    /// Blocks that the finding is about: at the instant, or over the run for growth and churn.
    pub blocks: u64,
    /// Its certainty.
    pub confidence: Confidence,
    /// The stack ([`Report::nodes`]); `null` for the process as a whole.
    pub node: Option<u32>,
    /// Further stacks of the same finding, by bytes; at most 50 of them.
    pub more_nodes: Vec<u32>,
    /// Stacks of the finding in all.
    pub stacks: u64,
    /// The effect of another policy of growth on the buffers that the finding is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth_what_if: Option<GrowthWhatIf>,
    /// The bytes that the text of the change promises if the reader can make it, until findings are put together.
    #[serde(skip)]
    pub would_bytes: u64,
    /// Blocks that rounds leave behind, until findings of one function and of the same rounds are put together.
    #[serde(skip)]
    pub leaving: Option<Leaving>,
    /// The blocks that the saving is of, until all findings are settled (`claims.rs`).
    #[serde(skip)]
    pub claims: Vec<Claim>,
}

/// Buffers as they grew, and as they would have grown under another policy. Bytes copied are of the whole
/// run; bytes held are those requested at the report's instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GrowthWhatIf {
    /// The other policy.
    pub policy: GrowthPolicy,
    /// Bytes that were copied.
    pub copied_bytes: u64,
    /// Bytes that would have been copied at most: where no step stays in place.
    pub then_copied_bytes: u64,
    /// Bytes that these buffers hold.
    pub held_bytes: u64,
    /// Bytes that they would hold.
    pub then_held_bytes: u64,
}

impl GrowthWhatIf {
    /// Adds the figures of more buffers.
    pub fn add(&mut self, other: &GrowthWhatIf) {
        let sum = |into: &mut u64, more: u64| *into = into.saturating_add(more);
        sum(&mut self.copied_bytes, other.copied_bytes);
        sum(&mut self.then_copied_bytes, other.then_copied_bytes);
        sum(&mut self.held_bytes, other.held_bytes);
        sum(&mut self.then_held_bytes, other.then_held_bytes);
    }
}

/// A way in which a buffer could get its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrowthPolicy {
    /// Twice the capacity at each step, from the first size on.
    #[default]
    Doubling,
    /// The program requests the final size before it fills the buffer; if that size is not known, the unused
    /// part is estimated.
    Reserving,
}

/// Title of memory that grew all along and was released before the end: worth a look, and no leak.
pub const RELEASED_IN_THE_END: &str = "Grew all along, and was released before the program ended";

/// The title of a finding on blocks that are born all along while next to nothing is released: a load looks the same.
pub const GREW_UNBROKEN: &str = "Grew all along, as a load does";

/// The title of a finding on growth that ended in the first half of the run: a start, or a load, looks the same.
pub const GREW_ONCE: &str = "Grew for a part of the run, and then no more";

impl Finding {
    /// Reports whether it sums up the smaller findings of its kind: it comes after all others.
    pub fn is_rest(&self) -> bool {
        self.node.is_none() && !self.more_nodes.is_empty()
    }
}
