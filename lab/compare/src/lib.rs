//! Runs one program, or one recorded trace, under several allocators: which one serves it best, and how certain is
//! that?
//!
//! ```text
//!   CMD ───────────────► run ◄── peers (names ─► libraries)
//!   app.sft ─► compile ─► script ─► skinflint-replay ─► run      A B C A B C … (a round: every allocator once)
//!                                     │
//!                     samples of RSS, CPU time, how it ended
//!                                     ▼
//!                 stats ─► model::Comparison ─► table, csv, json, page
//! ```
//!
//! C1  An allocator that is missing, crashes, hangs, changes the output or never served is a row with the reason; the
//!     others go on.
//! C2  Every output names the version of each allocator, the machine and the command.
//! C3  A figure that cannot be distinguished from the reference's is marked so, and is no win.
//!
//! Not here: what the replayer does (`replay`), flags and files (`cli`).

pub mod chosen;
mod compare;
pub mod compile;
pub mod csv;
pub mod doubt;
pub mod figures;
pub mod folder;
mod idle;
pub mod interrupts;
pub mod json;
pub mod machine;
pub mod model;
pub mod peers;
pub mod plot;
pub mod probe;
pub mod replays;
pub mod report_page;
pub mod rounds;
pub mod run;
pub mod stats;
pub mod subjects;
pub mod sum;
pub mod table;
#[cfg(test)]
mod testing;
mod tree;
pub mod words;

pub use compare::{Request, compare};

/// Locks out other tests that start processes: one run at a time in a process (run.R6).
#[cfg(test)]
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
