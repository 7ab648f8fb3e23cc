//! A recording under way, on a terminal: where its memory is, which stacks grow, how much comes and goes.
//!
//! ```text
//!   .sft, growing ─► Feed: blocks, put in order ─► State: ledger, stacks, books ─► Picture ─► screen
//!                                                                                 keys ──────►│
//! ```
//!
//! L1  The program is not asked and not slowed: everything comes out of the trace that the collector writes anyway.
//! L2  Looking takes at most a sixth of the time: the pause after a look is five times what it cost.
//! L3  What is shown is the same on a terminal and as text; only keys need a terminal.
//!
//! Not here: recording (collect), the whole report (analysis).

pub mod feed;
pub mod picture;
mod screen;
pub mod state;

pub use screen::{Options, once, watch};
