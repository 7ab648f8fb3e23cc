//! Questions to the tables of a fleet.
//!
//! ```text
//!   words ─► question: SQL, figures of its rows, intervals ─► text or JSON
//!               │ ▲
//!               ▼ │ rows
//!            engine: DataFusion in this process │ another one, on many machines
//! ```
//!
//! Invariant: the SQL of a question runs on DataFusion and on DuckDB, and gives the same rows: sums of whole numbers are
//! the engine's, all that rounds is done here.
//!
//! Not here: the tables (`skinflint-fleet-tables`).

pub mod args;
#[cfg(feature = "ballista")]
pub mod ballista;
pub mod certainty;
pub mod embedded;
pub mod engine;
pub mod engines;
pub mod html;
pub mod names;
pub mod page;
pub mod questions;
pub mod rows;
pub mod run;
pub mod serve;
pub mod session;
pub mod show;
