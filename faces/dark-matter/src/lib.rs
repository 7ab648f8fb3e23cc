//! Dark matter: what a program's own memory reporters leave out of its heap, and what two of them claim.
//!
//! ```text
//!   a recording under way ─► Asker ─► the program's reporters, between two marks ─► Taken ─► kept beside its trace
//!   memory report ─► Reported: claims ─┐
//!   recording ─► living: live blocks ──┴─► Dark ─► text, JSON
//! ```
//!
//! M1  Rows add up to the heap of the report that they are of ([`Dark::adds_up`]), and the live blocks are the report's.
//! M2  A report that says which blocks it has measured is compared byte by byte; of one with totals only what is said
//!     is "possible".
//! M3  No input makes this crate panic, and a program that does not answer does not suffer from it.
//!
//! Not here: reporters and their file (`reporters`), the pass that counts lives (`export::lives`), flags (`cli`).

mod asker;
mod dark;
mod kept;
mod living;
mod reported;
mod text;

pub use asker::{Asker, Taken};
pub use dark::{Account, ClaimRow, Dark, LiveBlock, Living, Mode, Row, Twice};
pub use kept::keep;
pub use living::living;
pub use reported::{Claim, Heap, Reported, ReportedError};
pub use text::render;
