//! Values that may lie in a heap or in a counted box: how they tell their edges.
//!
//! Not here: pointers (`typed`, `counted`).

mod object;
mod std_types;
mod values;

pub use values::{Edge, Family, FieldParts, Opaque, OpaqueSend, Pointer, System, Trace};

pub(crate) use values::KindOf;
