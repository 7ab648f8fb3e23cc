//! Locks of the hand-over, in one place, so that the model checker can put its own there.
//!
//! ```text
//!   as usual      the standard library's
//!   --cfg loom    loom's: `make model-test` tries the orders in which the two threads can meet
//! ```
//!
//! Y1  Nothing else of this crate is shared between threads: a heap is one thread's.
//!
//! Not here: what the locks guard (`handover`).

#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
