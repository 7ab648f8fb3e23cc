//! The services: what is done beside the calls of the program, and what is asked from outside.
//!
//! ```text
//!   options ─► purger, pace ─► holes, trim ─► batch ─► the OS        reserve ─► cgroup        sample ─► stats ─► stats_text
//!      ├─► names, parent              ├─► mesh     └─► rights       sparse, peak: before a peak rises
//!      └─► harden, fit, check        cold                      table: what heaps call of all this
//! ```
//!
//! Heaps know none of these files: they call through the table (`heaps::slow`).
//!
//! Not here: allocating and freeing (`heaps`).

pub mod batch;
pub mod cgroup;
pub mod check;
pub mod cold;
mod credit;
#[cfg(feature = "fit")]
pub mod fit;
pub mod forms;
pub mod handles;
#[cfg(feature = "harden")]
mod harden;
pub mod hidden;
pub mod holes;
pub mod idle;
pub mod mesh;
pub mod modes;
mod names;
pub mod options;
mod pace;
mod parent;
mod peak;
#[cfg(feature = "profile")]
pub mod profile;
pub mod purger;
pub mod reserve;
pub mod rights;
pub mod sample;
mod sparse;
pub mod stats;
pub mod stats_text;
mod table;
pub mod trim;

/// Tells of sampled blocks that the program kept and did not touch again.
pub fn tell_untouched() {
    #[cfg(feature = "harden")]
    harden::tell_untouched();
}

/// Looks for damage to blocks that no free has found, at exit; without hardening there is nothing to look at.
#[unsafe(link_section = ".text.skinflint_first")]
pub fn last_look() {
    #[cfg(feature = "harden")]
    harden::last_look();
}
