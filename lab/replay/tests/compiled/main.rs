//! Traces made by hand or at random, compiled, and the resulting scripts.
//!
//! ```text
//!   events ─► Writer ─► .sft ─► compile ─► script ─┬─ machine: any order that the format allows ─► violations?
//!                                                  └─ skinflint-replay ─► report
//! ```
//!
//! Not here: the player by itself (tests/play), the memory that all of it takes (tests/bounded.rs).

mod by_hand;
mod machine;
mod made;
mod orders;
mod touched;
