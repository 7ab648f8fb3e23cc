//! Edges as they are told, one by one and with their names, to somebody who listens.
//!
//! ```text
//!   listen(listener, |tracer| trace(object, tracer))
//!      tracer.named("items", …) ─► enter(Field)      tracer.edge(o) ─► edge(Strong, o)      … ─► leave
//! ```
//!
//! T1  A listener hears an edge when it is told: nothing is kept, so an object with ten million edges needs no list.
//! T2  A listening tracer is reached only through the reference that [`listen`] hands on, for as long as that lasts.
//! T3  Kinds of Rust types ask [`Tracer::wants_names`] once for each object: four instructions while marking, 38.1
//!     million instead of 36.7 for the whole of `--example marking 20000` (callgrind, 2026-11-22). Names themselves
//!     cost nothing then.
//!
//! Not here: what is made of an edge (`write`, `retain`).

use core::ptr::NonNull;

use crate::mark::Tracer;

/// How an edge holds what it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strength {
    /// It keeps it alive.
    Strong,
    /// It keeps nothing alive.
    Weak,
    /// The key of a pair: as a weak one.
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

/// Elements whose number is a part of their edge's name; the others have the number alone.
const NAMED_ELEMENTS: usize = 256;

/// The name that edges have where the telling is.
#[derive(Default)]
pub(crate) struct Trail {
    path: String,
    /// Lengths of `path` before each part.
    parts: Vec<usize>,
    /// The element that has no name of its own, and the part that says so.
    element: Option<(usize, usize)>,
}

/// What an edge is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name<'a> {
    Text(&'a str),
    Index(usize),
    /// Nobody said.
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

/// Hears edges.
pub(crate) trait Listener {
    /// Whether [`Listener::enter`] is of use.
    fn wants_names(&self) -> bool {
        false
    }
    /// What is told from here on is a part of this.
    fn enter(&mut self, _segment: Segment<'_>) {}
    /// The end of the innermost part.
    fn leave(&mut self) {}
    /// An edge.
    fn edge(&mut self, strength: Strength, object: NonNull<u8>);
}

/// Runs `act` with a tracer whose edges `listener` hears. `act` does not exchange the tracer for another (T2).
pub(crate) fn listen<'a>(listener: &'a mut (dyn Listener + 'a), act: impl FnOnce(&mut Tracer)) {
    let listener = NonNull::from(listener);
    // SAFETY: only the lifetime changes; T2: the tracer ends in this function, before what it points at.
    let listener = unsafe {
        core::mem::transmute::<NonNull<dyn Listener + 'a>, NonNull<dyn Listener + 'static>>(
            listener,
        )
    };
    let mut tracer = Tracer::marking(Vec::new(), Some(0));
    tracer.listener = Some(listener);
    act(&mut tracer);
}

impl Tracer {
    fn listener(&mut self) -> Option<&mut dyn Listener> {
        // SAFETY: T2: whoever has the tracer has it from `listen`, which holds the listener's only reference.
        self.listener
            .map(|mut listener| unsafe { listener.as_mut() })
    }

    /// Whether somebody listens; if so, he has heard of an edge to `object`, if there is one.
    pub(crate) fn heard(&mut self, strength: Strength, object: Option<NonNull<u8>>) -> bool {
        let Some(listener) = self.listener() else {
            return false;
        };
        if let Some(object) = object {
            listener.edge(strength, object);
        }
        true
    }

    /// Whether edges are asked for by name: a snapshot or a retaining path is made, and nothing is marked. A kind's
    /// function may look at this once and tell its edges in a slower way then.
    #[inline]
    pub fn wants_names(&self) -> bool {
        self.listener.is_some()
    }

    /// Has `tell` tell edges that are parts of `name`: a field, a property, a variable. Within another name the two
    /// are joined by a dot. Cost: nothing but the call when edges are marked.
    pub fn named(&mut self, name: &str, tell: impl FnOnce(&mut Tracer)) {
        self.within(Segment::Field(name), tell);
    }

    /// The same for an element of a list: `items[3]`.
    pub fn numbered(&mut self, index: usize, tell: impl FnOnce(&mut Tracer)) {
        self.within(Segment::Index(index), tell);
    }

    fn within(&mut self, segment: Segment<'_>, tell: impl FnOnce(&mut Tracer)) {
        let named = match self.listener() {
            Some(listener) if listener.wants_names() => {
                listener.enter(segment);
                true
            }
            _ => false,
        };
        tell(self);
        if named && let Some(listener) = self.listener() {
            listener.leave();
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
