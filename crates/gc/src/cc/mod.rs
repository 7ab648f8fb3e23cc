//! Counted natives: where their pointers are told, and the barrier of cells that hold them.
//!
//! Not here yet: the collector of their cycles.

/// Counted pointers that an object tells.
pub(crate) struct Natives;

/// The value of a cell was or will be moved.
pub(crate) fn moved<T: crate::typed::Trace>(_: &T) {}
