//! The tables of a fleet: what many machines' stacks hold, waste and pin, as Parquet that any engine reads.
//!
//! ```text
//!   law ─► generate ─┐                                       merge: minutes ─► hours ─► days
//!   reports, heap profiles, pprof ─► ingest ─┴─► rows ─► files ─► ROOT/TABLE/day=D/service=S/HH-m-NAME.parquet
//!                                                    └► sums: of each day, for questions
//! ```
//!
//! Invariant: every row says for which minutes it stands, and levels are kept as byte-minutes in whole numbers. So sums
//! over rows do not change when rows are merged, and no engine can round them.
//!
//! Not here: questions and the engine that answers them (`skinflint-fleet`).

pub mod clock;
pub mod files;
pub mod generate;
pub mod id;
pub mod ingest;
pub mod law;
pub mod merge;
pub mod rows;
pub mod schema;
mod sum_files;
pub mod sums;
