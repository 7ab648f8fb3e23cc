//! From a trace to a script for the replayer.
//!
//! ```text
//!   app.sft ─► events by ticket ─► ops of each thread, slots, waits ─► script
//! ```
//!
//! Not here: running it.
