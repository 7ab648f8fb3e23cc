//! A profile for the allocator, learned from the acts of one or more traces of a program, in two passes.
//!
//! ```text
//!   acts ─► Survey   most live blocks of each multiple of 16   ─► earned classes
//!   acts ─► Trial    the same acts under the new classes       ─► span lengths, slop before and after
//!             └─► Spare (spare.rs)   falls that are filled again ─► retained spare
//!   TRACE… ─► Source (source.rs) ─ both passes ─► Learned (learned.rs) ─► sizes::fit::encode ─► bytes of app.fit
//!                                                                      └─► text.rs, json.rs
//! ```
//!
//! F1  Memory is a few tables of 2,049 entries, whatever the traces hold.
//! F2  A size is earned by what its blocks save at the moment when most of them live, and only if
//!     that is more than `WORTH_BYTES`; with several traces the largest figure counts.
//! F3  There are two passes, because the class of a block depends on what is earned, which is known
//!     only at the end. So every figure of [`Trial`] is exact, to the byte, for what was recorded.
//! F4  Blocks above 32 KiB are rounded to pages before and after; they are in the sums and earn nothing.
//! F5  What is encoded has first been read back by the allocator's own reader (`encode` does it).
//!
//! Source: fitting classes to a program comes from CustoMalloc (Grunwald and Zorn, 1993). Not here:
//! the file's bytes (`skinflint_sizes::fit`, FIT.md), writing it (`cli`), alignment requests (they count as plain
//! ones).

mod error;
mod json;
mod learned;
mod source;
pub mod spare;
mod steps;
mod survey;
mod text;
mod trial;

#[cfg(test)]
mod tests;

pub use error::Error;
pub use json::{Json, profile_json};
pub use learned::{Learned, learn};
pub use survey::{Earned, Survey};
pub use text::profile_text;
pub use trial::{Outcome, Slop, Span, Trial};
