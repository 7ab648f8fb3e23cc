//! Bytes as the running allocator counts them, the same as in memory reports.
//!
//! ```text
//!   value ──► HeapBytes ──► its blocks ──► usable(block) ──► its allocator    (all in skinflint_reporters::size)
//! ```
//!
//! U1  A block counts with its usable bytes and not with the requested ones: `len * size_of` misses a tenth or more,
//!     and just where it hurts.
//! U2  The answer comes from the allocator that gave the block. Those behind malloc and `skinflint_alloc` are found by
//!     themselves; other allocators are named by [`measure_by`]; for those that are not, the requested bytes count.
//! U3  Blocks reached twice (two `Arc`s of one value) are counted twice: the caller knows what is shared.
//!
//! Not here: how bytes are measured; a bound by other figures than the reported ones would be no bound.

pub(crate) use skinflint_reporters::size::owned;
pub use skinflint_reporters::size::{
    HeapBytes, Usable, arc_bytes, measure_as_asked, measure_by, usable,
};
