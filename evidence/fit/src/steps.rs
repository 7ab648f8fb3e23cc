//! Steps of live blocks, by multiples of 16: the effect of each act.
//!
//! ```text
//!   act ─► (the size that went, the size that came)       size ─► sixteenths, up to 32 KiB
//! ```
//!
//! Not here: what is counted of it (`survey.rs`, `trial.rs`).

use skinflint_analysis::pass::{Act, Context};
use skinflint_sizes::spans::SMALL_MAX;

/// The number of multiples of 16 up to 32 KiB, and 0.
pub(crate) const STEPS: usize = SMALL_MAX as usize / 16 + 1;

/// Returns what an act did to the live blocks: the size that went, the size that came.
pub(crate) fn change(context: &Context<'_>, act: &Act) -> (Option<u64>, Option<u64>) {
    match act {
        Act::Acquire { .. } => (None, Some(context.key.size)),
        Act::Release { .. } => (Some(context.key.size), None),
        Act::Regrow { old, .. } => (Some(context.cell(old.cell).size), Some(context.key.size)),
        Act::Mark { .. } => (None, None),
    }
}

/// Returns the multiple of 16 that a small request is rounded to, in sixteenths; `None` for a large one.
pub(crate) fn step(size: u64) -> Option<usize> {
    (size <= u64::from(SMALL_MAX)).then(|| size.max(1).div_ceil(16) as usize)
}
