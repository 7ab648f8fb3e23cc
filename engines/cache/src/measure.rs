//! Bytes as the allocator that runs counts them: the same that memory reports count.
//!
//! ```text
//!   value ──► HeapBytes ──► its blocks ──► usable(block) ──► who gave it            (all in skinflint_report::size)
//! ```
//!
//! U1  A block counts what may be used of it and not what was asked for: `len * size_of` misses a tenth or more,
//!     and just where it hurts.
//! U2  The answer comes from the allocator that gave the block: malloc's and `skinflint_alloc`'s are found by
//!     themselves, others say how they are asked, by [`measure_by`]; of those that do not, what was asked for counts.
//! U3  Blocks reached twice (two `Arc`s of one value) are counted twice: whoever counts knows what is shared.
//!
//! Not here: how it is done, since a bound that is kept by other figures than are reported would be none.

pub(crate) use skinflint_report::size::owned;
pub use skinflint_report::size::{
    HeapBytes, Usable, arc_bytes, measure_as_asked, measure_by, usable,
};
