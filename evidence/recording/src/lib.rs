//! An opened recording: one trace, the traces that it came out of, and one meaning of its moments for all commands.
//!
//! ```text
//!   a.sft ── fork at 70 ──► b.sft ── fork at 15 ──► c.sft         the recording of c:
//!     events below 70    ──►  events below 15    ──► what c began with ──► c's own events
//! ```
//!
//! R1  A copy (`fork`) began with the live blocks of the process that it was copied from, and so did that process:
//!     the chain is followed to its beginning. A new program (`exec`, spawn) began with nothing.
//! R2  A link that is missing is reported ([`Missing::Ancestor`]), never treated as no link.
//! R3  Samples taken after the process had become a program without a trace are left out: their pages are another
//!     program's.
//! R4  The peak is the same snapshot for every command ([`Recording::peak_snapshot`]).
//! R5  Memory: the traces' own tables; events are read as a stream.
//! R6  Pages read beyond the last event of a cut trace are left out, and the report says so: blocks that lived then were
//!     never written, and their pages would look free.
//!
//! Not here: the file (`trace`), figures (`analysis`), names (`symbols`), bars (`cli`).

mod counted;
mod error;
mod holders;
mod incomplete;
mod kin;
mod names;
mod opened;
mod progress;
mod reach;
mod report;
mod rows;
mod sampled;
mod together;
mod verdict;

pub use counted::Counted;
pub use error::Error;
pub use kin::Kin;
pub use names::Names;
pub use opened::{Ancestor, Heir, Recording, STEP_EVENTS};
pub use progress::{Progress, Silent};
pub use reach::{Found, of as reach_of};
pub use report::{Analysed, More};
pub use rows::{Rows, file_for as rows_file_for};
pub use together::{Named, Several, named, the_trace_of};
