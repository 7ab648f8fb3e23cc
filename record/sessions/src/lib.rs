//! Recordings: of a program that is started for it, or of one that runs already; and those under way, found again.
//!
//! ```text
//!   CMD ─► record ─┐                              ┌─► Outcome: status, traces
//!                  ├─► collect::Session ─► … end ─┤
//!   PID ─► attach ─┘         ▲                    └─► traces; the program goes on without us
//!                 under_way ─┘ control socket
//! ```
//!
//! R1  The program's stdin, stdout, stderr, working folder, signal dispositions and exit status are what they would be
//!     without us.
//! R2  What can be known beforehand is refused before a program is started or stopped; once it runs, nothing that goes
//!     wrong is an error of its run.
//! R3  One program is recorded by one process at a time: signals are passed on through statics.
//!
//! Not here: what the collector does (`collect`), what is preloaded (`launch`), what is printed (`cli`).

pub mod attach;
mod child;
mod files;
mod inject;
mod outcome;
mod outside;
mod record;
mod signals;
pub mod under_way;

pub use outcome::Outcome;
pub use record::{Program, record};
