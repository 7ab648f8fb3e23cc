//! Scenarios of a few threads, run in two ways from the same text: in all orders, or many times.
//!
//! ```text
//!   check(model) ─┬─ --cfg loom ──► loom: every order in which the threads can meet    `make model-test`
//!                 └─ as usual ────► ROUNDS times on real threads                       `cargo test`
//! ```
//!
//! I1  A scenario uses the threads, locks and cells of this crate only, and takes what it models from the crate under
//!     test: it has no atomics of its own (`cargo xtask tidy` checks this).
//! I2  A [`Watched`] cell fails if two accesses are not ordered: under loom by the orderings, whatever the machine does;
//!     on real threads only if they overlap in time.
//! I3  Every run is bounded: under loom by preemptions, on real threads by rounds, and by [`PATIENCE`] if it hangs.
//!
//! The run on real threads proves no ordering. It shows that a scenario runs at all, and finds mistakes that do not
//! depend on a rare order.
//!
//! Not here: what is modelled (`tests/models.rs` of each crate).

#[cfg(loom)]
mod all_orders;
#[cfg(not(loom))]
mod real_threads;

#[cfg(loom)]
pub use all_orders::{Watched, check};
#[cfg(loom)]
pub use loom::sync::{Arc, Mutex};
#[cfg(loom)]
pub use loom::thread;
#[cfg(not(loom))]
pub use real_threads::{PATIENCE, ROUNDS, Watched, check};
#[cfg(not(loom))]
pub use std::sync::{Arc, Mutex};
#[cfg(not(loom))]
pub use std::thread;
