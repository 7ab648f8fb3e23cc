//! Policies tried: on traces, or on a program that runs, each beside legacy.
//!
//! ```text
//!   .sfo, .sft, a seed ─► source ─► traces ─┐
//!   FILE.js ─────────────────────── live ───┴─► figures: a row for each policy ─► tables
//! ```
//!
//! Not here: the command line (`skinflint gc`).

mod advise;
mod figures;
mod instructions;
mod options;
mod programs;
mod saved;
mod source;
mod tables;
mod traces;

pub use advise::{Advice, Choice, advise};
pub use figures::{Figures, Row};
pub use options::{Options, policies};
pub use programs::{Failed, check as check_live, measure as measure_live};
pub use saved::{differences, load, save};
pub use source::{Source, is_of_trace};
pub use tables::render;
pub use traces::measure;
