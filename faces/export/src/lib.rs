//! Skinflint's results in the formats of other tools; the differences between two runs; and logs of another recorder
//! as traces.
//!
//! ```text
//!   Report + Lives ─► Source ─┬─► pprof, dhat, folded, speedscope, firefox, memory_report, parquet
//!                             └─► heaptrack (and the events once more)
//!   Report, Report ─► diff ─► Diff ─► text, JSON
//!   logalloc text ─► logalloc ─► .sft
//! ```
//!
//! X1  A total in a written file is the report's, to the unit: every writer writes a value for every row
//!     of [`Report::sites`], and no other. What a format cannot hold is stated in the head of its source
//!     file.
//! X2  Rows of a difference add up to the totals of their reports; it can check that (`adds_up`), and the command line
//!     always does.
//! X3  With `anonymous` a written file has figures, and hashes for all names.
//! X4  No input makes this crate panic. An error names the line and the column, or the field.
//!
//! Not here: analysis, names of functions; writers get an open file (file.rs).
//!
//! [`Report::sites`]: skinflint_analysis::model::Report::sites
pub mod anonymous;
pub mod dhat;
pub mod diff;
pub mod diff_html;
pub mod diff_text;
pub mod file;
pub mod firefox;
pub mod folded;
pub mod heaptrack;
pub mod lives;
pub mod log_file;
pub mod logalloc;
mod logalloc_line;
pub mod memory_report;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod pprof;
pub mod source;
pub mod speedscope;

pub use lives::{Lives, LivesPass};
pub use source::{Source, Value};
