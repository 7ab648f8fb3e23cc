//! A listener to edges: a snapshot or a retaining path, which this folder does not know.
//!
//! Not here: how a tracer passes edges on (`listen`).

use core::ptr::NonNull;

/// How an edge holds the object that it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strength {
    /// The edge keeps it alive.
    Strong,
    /// The edge keeps nothing alive.
    Weak,
    /// The key of a pair, like a weak edge.
    Key,
    /// The value of a pair, which is kept alive by holder and key together.
    Value,
}

/// A part of an edge's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Segment<'a> {
    Field(&'a str),
    Index(usize),
}

/// Hears edges.
pub(crate) trait Listener {
    /// Reports whether [`Listener::enter`] is of use.
    fn wants_names(&self) -> bool {
        false
    }
    /// Begins a part: what is told from here on belongs to it.
    fn enter(&mut self, _segment: Segment<'_>) {}
    /// Ends the innermost part.
    fn leave(&mut self) {}
    /// Hears an edge.
    fn edge(&mut self, strength: Strength, object: NonNull<u8>);
}
