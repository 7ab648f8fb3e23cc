//! Traces made by hand or by chance, compiled, and what the script then is.
//!
//! ```text
//!   events ─► Writer ─► .sft ─► compile ─► script ─┬─ machine: any order that the format allows ─► violations?
//!                                                  └─ skinflint-replay ─► report
//! ```
//!
//! Not here: the player by itself (tests/play), how much memory it all takes (tests/bounded.rs).

mod by_hand;
mod machine;
mod made;
mod orders;
mod touched;
