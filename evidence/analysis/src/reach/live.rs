//! A live block, as far as it matters for what points to it.
//!
//! ```text
//!   addr |■■■■ requested ■■■■|── slop ──|      a word in the requested bytes is the block's, a pointer into them leads to it
//! ```
//!
//! Not here: which blocks live at a look.

use skinflint_trace::NodeId;

/// A live block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Live {
    /// The address of its begin.
    pub addr: u64,
    /// Requested bytes.
    pub size: u64,
    /// Usable bytes.
    pub usable: u64,
    /// The stack that acquired it.
    pub node: NodeId,
    /// The time of its acquisition, microseconds since the start.
    pub born_us: u64,
}
