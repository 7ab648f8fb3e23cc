//! Memory as a test: budgets, held against the report on a recording.
//!
//! ```text
//!   --peak-live 64MiB, FILE.toml ─► Budget ─┐
//!   Report ─► Figures ──────────────────────┼─► judge ─► Judged: held, broken, not decided ─► text, Markdown, GitHub,
//!   baseline's Report ─► Figures ───────────┘      └─► culprits: the stacks that broke it      SARIF, JUnit, history
//! ```
//!
//! K1  A figure is an interval. Counts of events and sums over them are exact; resident memory is known to the error of its
//!     reading. A limit inside the interval is not decided: never held, never broken.
//! K2  Nothing of an INCOMPLETE recording is held. What can only be larger than what was seen (allocations, resident
//!     memory) may still be broken.
//! K3  The verdict is a function of reports and budgets: no clock, no order of a hash map. Culprits of equal weight are
//!     ordered by name.
//! K4  Every format has every budget's verdict; what is not decided is a failure in formats that know only two answers.
//! K5  A line of a history is written by one call, under a lock; a line that was cut is left out and counted.
//!
//! Not here: recording, opening traces (`recording`), arguments (`cli`).

pub mod budget;
mod culprits;
pub mod figures;
pub mod file;
mod github;
pub mod harness;
pub mod history;
mod judge;
mod junit;
mod limit;
mod markdown;
mod pattern;
pub mod phase;
mod sarif;
pub mod suite;
mod text;
mod trend;
mod trend_page;

pub use budget::{Budget, Kind};
pub use culprits::Culprit;
pub use github::render as github;
pub use judge::{Checked, Judged, Subject, Verdict, check};
pub use junit::render as junit;
pub use limit::Limit;
pub use markdown::render as markdown;
pub use sarif::render as sarif;
pub use text::render as text;
pub use trend::{Step, render as trend, steps};
pub use trend_page::render as trend_page;
