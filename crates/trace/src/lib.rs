//! The trace: a file that holds everything a program did to its memory.
//!
//! Format: FORMAT.md beside this crate.
pub mod event;
pub mod info;

pub use event::{AllocFn, Event, EventKind, FreeFn, NodeId, ThreadId};
pub use info::*;
