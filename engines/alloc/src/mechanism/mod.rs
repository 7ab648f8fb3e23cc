//! The mechanism: what heaps are made of. No locks are taken here but those that callers name, and nothing is decided.
//!
//! ```text
//!   range, map ◄── span (bits, entry) ◄── heap ◄── lists     class: sizes     lock, publish, remote, changed, starter
//! ```
//!
//! It has no state but two tables that every call reads: the range of addresses ([`range`]) and the size classes
//! ([`class`]). The models run [`bits`], [`changed`], [`kept`], [`lock`], [`publish`], [`remote`] and [`starter`]
//! as they are.
//!
//! Not here: when something is allocated, freed or given back (`heaps`, `services`).

pub mod bits;
pub mod branch;
pub mod changed;
pub mod class;
pub mod entry;
pub mod guarded;
pub mod heap;
pub mod kept;
pub mod lists;
pub mod lock;
pub mod map;
pub mod publish;
pub mod range;
pub mod remote;
pub mod span;
pub mod starter;
