//! A recording under way, on a terminal: where its memory is, which stacks grow, how much comes and goes.
//!
//! ```text
//!   .sft, growing ─► Feed: blocks, put in order ─► State: ledger, stacks, books ─► Picture ─► screen
//!                                                        control group (group) ──────────►│◄────── keys
//! ```
//!
//! L1  The program is not asked and not slowed: all figures come from the trace that the collector writes anyway,
//!     and from the kernel (the control group).
//! L2  Looking takes at most a sixth of the time: the pause after a look is five times what it cost.
//! L3  A terminal and a text show the same; only keys need a terminal.
//!
//! Not here: recording (collect), the whole report (analysis).

pub mod feed;
pub mod group;
pub mod picture;
mod screen;
pub mod state;

pub use screen::{Options, once, watch};
