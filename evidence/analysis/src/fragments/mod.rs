//! Fragmentation by stack: which stacks' live blocks keep free memory resident, page by page.
//!
//! ```text
//!   page      |  4096   |  4096   |  4096   |  4096   |  4096   |      resident pages of the heap
//!   blocks     AAA   A    A    BB            CCCCCCCCCCCCCCC
//!   pinned by  A solely   A and B   no stack  C solely  C solely
//! ```
//!
//! R1  A page's free bytes are shared equally among the blocks that have a byte there, the remainder one
//!     by one from the lowest address up. So the shares add up to the free bytes of all pinned pages,
//!     exactly; with the unpinned bytes they are all free bytes (asserted in `books/closing.rs` against another
//!     sweep of the same blocks).
//! R2  A page is solely a stack's if no other stack has a byte on it. If the stack's blocks were elsewhere, side by
//!     side, `sole − packed` pages would hold nothing any more: that is exact; whether the allocator then gives them
//!     back is not decided here (`giveback.rs`).
//! R3  Everything is by address, whatever allocator ran; spans only if addresses show them (`layout.rs`). Where they do,
//!     a span is to these figures what a page is elsewhere: the allocator gives it back as a whole, so that one block
//!     keeps the pages of its span on which nothing lives.
//! R4  Memory: 16 bytes for a live block while pages are swept, 8 for a pinning one (its age), 88 for a stack. Only
//!     the data of the report's instant are kept until the end.
//! R5  In a process that was not recorded from its birth, what looks free beside blocks may be blocks from before:
//!     nothing is promised of it.
//!
//! Source: charging free bytes to the survivors beside them comes from the fragmentation profile of Google's
//! tcmalloc, which samples, and uses spans instead of pages. Not here: advice (`functions.rs`), whole free pages
//! (`giveback.rs`).

mod ages;
pub(crate) mod functions;
mod layout;
mod measure;
mod sweep;
mod tally;

pub(crate) use layout::Layout;
pub(crate) use measure::{Kept, measure};
pub(crate) use tally::Placed;

#[cfg(test)]
mod tests;
