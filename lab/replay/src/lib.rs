//! The script: a recorded trace prepared for replaying it, as fast as an allocator can go.
//!
//! ```text
//!   .sft ─► compile (crate compare) ─► script ─► skinflint-replay (this package's program) ─► report
//! ```
//!
//! R1  No dependency and no allocation: the program that plays a script runs on the allocator that is measured.
//!
//! Format: SCRIPT.md beside this crate. Not here: what the program does (main.rs), compiling (crate compare).
#![no_std]

pub mod script;
