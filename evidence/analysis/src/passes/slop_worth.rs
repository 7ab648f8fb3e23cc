//! The worth of slop: when a finding is made, and how much is resident, for all passes over rounding.
//!
//! ```text
//!   slop ──► MIN_BYTES, MIN_PERCENT ──► a finding?      saved ──► resident_part ──► promised
//! ```
//!
//! V1  What is not resident costs no memory (`books/tails.rs`): it is subtracted from what is promised. If more than
//!     half is absent, nothing is promised.
//!
//! Not here: the sums that are measured (slop.rs, slop_class.rs, clownshoes.rs).

use crate::pass::CellBlocks;

/// The least slop of a finding: sixteen kernel pages. Less is lost in the noise of any run's peak.
pub(super) const MIN_BYTES: u64 = 64 * 1024;
/// The least share of requested bytes, in per cent. Allocators with four classes per doubling average 8 to 11 % over
/// spread sizes, for every one that was measured, so only more than that is worth reporting.
pub(super) const MIN_PERCENT: u64 = 12;

/// The size up to which several are kept in one block: larger ones are buffers, not elements.
pub(super) const ELEMENT_MAX: u64 = 1024;

/// Returns the part of a saving that is resident memory (V1).
pub(super) fn resident_part(saved: u64, count: &CellBlocks) -> u64 {
    let there = saved.saturating_sub(count.absent_tail_bytes);
    if there * 2 >= saved { there } else { 0 }
}
