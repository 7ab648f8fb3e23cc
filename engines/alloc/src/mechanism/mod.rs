//! The mechanism: what heaps are made of. No locks are taken here but those that callers name, and nothing is decided.
//!
//! ```text
//!   range, map ◄── span (bits, entry) ◄── heap (magazine, section) ◄── lists
//!   class: sizes           lock, publish, remote, changed, starter
//! ```
//!
//! It has no state but what every call reads: the range of addresses ([`range`]), the size classes ([`class`]), and where
//! a thread's sections are armed ([`section`]). The models run [`bits`], [`changed`], [`kept`], [`lock`], [`magazine`],
//! [`publish`], [`remote`] and [`starter`] as they are.
//!
//! Not here: when something is allocated, freed or given back (`heaps`, `services`).

pub mod bits;
pub mod branch;
pub mod changed;
pub mod class;
#[cfg(all(feature = "counted", not(test)))]
pub mod counted;
pub mod entry;
pub mod grown;
pub mod guarded;
pub mod heap;
pub mod kept;
pub mod lists;
pub mod lock;
pub mod magazine;
pub mod map;
pub mod publish;
pub mod range;
pub mod remote;
pub mod section;
pub mod span;
pub mod starter;
