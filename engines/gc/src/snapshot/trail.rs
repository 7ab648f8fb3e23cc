//! The name of the place at which an edge is told.
//!
//! ```text
//!   enter(Field "items") ─► enter(Index 3) ─► "items[3]"      … ─► leave
//! ```
//!
//! Not here: the use of names (`write`, `retain`).

use crate::heap::listener::Segment;

/// The number of elements whose number is a part of their edge's name; the others have the number alone.
const NAMED_ELEMENTS: usize = 256;

/// The name that edges have at the present place.
#[derive(Default)]
pub(crate) struct Trail {
    path: String,
    /// Lengths of `path` before each part.
    parts: Vec<usize>,
    /// The element that has no name of its own, and the part that stands for it.
    element: Option<(usize, usize)>,
}

/// The name of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name<'a> {
    Text(&'a str),
    Index(usize),
    /// No name was given.
    Nothing,
}

impl Trail {
    pub(crate) fn enter(&mut self, segment: Segment<'_>) {
        self.parts.push(self.path.len());
        match segment {
            Segment::Field(name) => {
                if !self.path.is_empty() {
                    self.path.push('.');
                }
                self.path.push_str(name);
            }
            Segment::Index(index) if index < NAMED_ELEMENTS => {
                use core::fmt::Write as _;
                // Writing to a string does not fail.
                let _ = write!(self.path, "[{index}]");
            }
            Segment::Index(index) => {
                self.element = self.element.or(Some((index, self.parts.len())));
            }
        }
    }

    pub(crate) fn leave(&mut self) {
        if self
            .element
            .is_some_and(|(_, part)| part == self.parts.len())
        {
            self.element = None;
        }
        if let Some(length) = self.parts.pop() {
            self.path.truncate(length);
        }
    }

    pub(crate) fn name(&self) -> Name<'_> {
        match self.element {
            Some((index, _)) => Name::Index(index),
            None if self.path.is_empty() => Name::Nothing,
            None => Name::Text(&self.path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_joined_and_far_elements_have_their_number() {
        let mut trail = Trail::default();
        assert_eq!(trail.name(), Name::Nothing);
        trail.enter(Segment::Field("items"));
        trail.enter(Segment::Index(255));
        trail.enter(Segment::Field("left"));
        assert_eq!(trail.name(), Name::Text("items[255].left"));
        trail.leave();
        trail.leave();
        trail.enter(Segment::Index(256));
        trail.enter(Segment::Field("left"));
        assert_eq!(trail.name(), Name::Index(256));
        trail.leave();
        trail.leave();
        assert_eq!(trail.name(), Name::Text("items"));
    }
}
