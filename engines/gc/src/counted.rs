//! Counted values, their pointers, and the collector of their cycles.
//!
//! ```text
//!   together ─► cycles ─► pointer ─► boxes ─► graph            field ─► moved ─► boxes          (─►: names)
//! ```
//!
//! Not here: what all of this promises (`cc`, the same by its public name); tenants' objects (`typed`).

mod boxes;
mod cycles;
mod field;
mod graph;
mod macros;
mod moved;
mod pointer;
mod together;

pub use boxes::CycleCounts;
pub use cycles::Cycles;
pub use field::{Field, FieldMut};
pub use pointer::{Cc, Weak};

pub(crate) use cycles::Number;
pub(crate) use moved::moved;
pub(crate) use together::Held;
