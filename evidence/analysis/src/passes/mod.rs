//! The passes: the head of each file says what it looks for.
//!
//! ```text
//!   act ──► Rounding (slop, clownshoes) · Growth · Churn · Placebo · Phases ──► rows and findings of the report
//! ```
//!
//! R1  Cost per act is O(1) and allocates nothing on the common path; memory is bounded by cells,
//!     sites, live blocks and marks (pass.A3).
//! R2  A finding has the bytes that the allocator that ran really spent. What another would spend is stated only in
//!     words.
//!
//! Not here: the live map (the ledger), totals, sites and sizes (the ledger), names of stacks (views).

pub mod churn;
pub mod clownshoes;
pub mod growth;
pub mod phases;
pub mod placebo;
pub mod rounding;
pub mod slop;
mod slop_class;
mod slop_worth;

mod all;
mod cells;
pub(crate) mod classes;
#[cfg(test)]
mod driver;
mod growth_beside;
mod growth_resting;
mod growth_shape;
mod growth_sum;
mod growth_turns;
#[cfg(test)]
mod limits;
mod phases_exit;
mod phases_family;
#[cfg(test)]
mod phases_judge;
pub(crate) mod phases_rounds;
pub(crate) mod ranking;
mod spread;
pub(crate) mod wording;

pub use all::all;
