//! What if: the blocks of a trace laid out by other policies than the recorded allocator's, without
//! running anything.
//!
//! ```text
//!   events ─► Ledger ─► acts ─► Simulation ─┬─► Model (policy 1): Layout + Pages ─► Outcome ┐
//!                               moments     └─► Model (policy 2) …                          ├─► WhatIf
//!                               peak, low, end ────────────────────────────────────────────┘
//! ```
//!
//! W1  There is one pass over the events, and one before it by the ledger alone, if snapshots can tell what of large
//!     blocks was touched. Memory is bounded by live blocks (24 bytes and 8 for each policy, beside the ledger's),
//!     spans and pages, never by events.
//! W2  A moment is the same for all policies, since it is one of live bytes: the peak (the first with most requested
//!     bytes), after the biggest free (the lowest moment below a peak, of the largest such difference, the last of
//!     several), the end. Figures of a moment are taken just before the next act that would end it, so that what
//!     idling gives back is seen.
//! W3  The same trace and options give the same result, to the byte.
//! W4  The simulation covers where blocks lie and which pages are given back. It does not cover metadata, caches of
//!     threads, huge pages, or requested alignment.
//!
//! Not here: text (`view`), opening traces (`recording`), real runs (`skinflint compare`).

mod chunks;
mod classes;
mod heaps;
pub mod layout;
pub mod mesh;
mod model;
pub mod outcome;
pub mod pages;
pub mod policy;
mod run;
mod runs;
mod simulation;
mod spans;
pub mod touched;

#[cfg(test)]
mod by_hand;
#[cfg(test)]
mod by_places;
#[cfg(test)]
mod properties;

pub use outcome::WhatIf;
pub use policy::{Policy, UnknownPolicy};
pub use run::{Ran, run};
pub use simulation::{Options, Simulation};
