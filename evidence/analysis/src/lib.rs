//! The analysis: events in, one [`model::Report`] out. Pure: no input, no output, no clock.
//!
//! ```text
//!   Facts ─────────────┐
//!   parent's events ─► Analyzer ─► Ledger ─► acts ─► passes
//!   events ──────────► │  └─ schedule: at each instant, Books from snapshot × live blocks
//!   Symbolizer ──────► finish ─► Report
//! ```
//!
//! L1  One pass over the events, in ticket order, on one thread; memory is bounded by live blocks,
//!     cells (stack, size, usable size), stacks and mappings, never by events.
//! L2  Every number of the report is computed here or in a pass from what was recorded; what is
//!     missing is stated in `Report::completeness` or in the notes of the books.
//!
//! Not here: reading a trace (`trace`), names of functions (`symbols`), text (`view`).
mod ahead;
pub mod analyzer;
pub mod block;
pub mod blocks;
pub mod books;
pub mod cells;
pub mod claims;
pub mod completeness;
pub mod counts;
mod covered;
pub mod facts;
pub mod falls;
mod findings;
mod fragments;
mod frames;
pub mod giveback;
mod grouping;
mod grows;
mod heaps;
pub mod held;
pub mod interpreters;
mod known;
pub mod ledger;
#[cfg(test)]
mod made;
mod makers;
mod mappers;
pub mod maps;
mod merging;
pub mod missing;
pub mod model;
mod notes;
mod owner;
pub mod pass;
pub mod passes;
pub mod peak;
pub mod plumbing;
pub mod processes;
pub mod qualified;
pub mod reach;
mod remedies;
pub mod sampled;
mod schedule;
mod steady;
mod sums;
mod through;
mod timeline;
mod together;
mod totals;
mod unseen;
pub mod waste;
mod windows;

pub use analyzer::Analyzer;
pub use facts::{
    AnalysisError, At, Facts, Limits, Options, Shown, StackNode, Symbolizer, WindowLimits, stacks,
};
