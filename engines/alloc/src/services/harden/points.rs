//! Which blocks are guarded samples, where nothing else is checked at malloc: found by requested bytes, chosen by blocks.
//!
//! ```text
//!   malloc(n): budget -= n ──below 0──► point: the next one is drawn ──► accepted with 1 / (N p(n)) ──► a guarded block
//! ```
//!
//! P1  Points lie at exponentially distributed distances with mean N on the line of requested bytes (`sample.Q1`), so a block of
//!     n bytes is met with p(n) = 1 - exp(-n / N), and is a sample with 1 / N, whatever its size and whatever came before.
//!     Thus one malloc in some hundred takes the slow way; counting each one made python3 execute a third more.
//! P2  Below [`LEAST`] the chance of a small block would have to be above 1: then each malloc is counted (`sampled`).
//!
//! Not here: blocks with an alignment, which are counted (`sampled`).

use skinflint_base::sync::Ordering;

use super::sampled;
use crate::heaps::requests::set_budget;
use crate::mechanism::heap::Heap;
use crate::services::modes;
use crate::services::sample::{exponential, probability, uniform};

/// The least N for which points are used (P2).
const LEAST: u32 = 256;
/// The most points in one block: beyond, the rest of its bytes counts for nothing.
const POINTS_MAX: u32 = 256;

/// Reports whether samples are all that is checked, and rare enough.
pub fn are_used() -> bool {
    // ORDER: set at start (harden.Y2).
    let checks = crate::heaps::slow::HARDENED.load(Ordering::Relaxed);
    checks == modes::SAMPLE && sampled::every() >= LEAST
}

/// Begins the points of a heap with its next malloc.
pub fn begin(heap: &Heap) {
    set_budget(heap, 0);
}

/// Handles a budget that a request of `n` bytes has used up. `true`: the request is a sample.
pub fn is_due(heap: &Heap, n: usize) -> bool {
    let every = u64::from(sampled::every());
    // ORDER: this thread's own (heap.H1).
    let mut left = heap.budget.load(Ordering::Relaxed);
    // A budget of exactly nothing was left: it only shows that nothing was drawn yet, or that a point is met.
    for _ in 0..POINTS_MAX {
        if left >= 0 {
            break;
        }
        left += exponential(heap, every).max(1);
    }
    set_budget(heap, left.max(0));
    uniform(heap) * probability(n, every) * every as f64 <= 1.0
}
