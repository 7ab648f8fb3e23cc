//! Edges as they are told, one by one and with their names, to a listener.
//!
//! ```text
//!   listen(listener, |tracer| trace(object, tracer))
//!      tracer.named("items", …) ─► enter(Field)      tracer.edge(o) ─► edge(Strong, o)      … ─► leave
//! ```
//!
//! T1  A listener hears an edge when it is told: nothing is kept, so an object with ten million edges needs no list.
//! T2  A listening tracer is reached only through the reference that [`listen`] passes on, for as long as that lasts.
//! T3  Kinds of Rust types call [`Tracer::wants_names`] once for each object: four instructions while marking, 38.1
//!     million instead of 36.7 for the whole of `--example marking 20000` (callgrind, 2026-11-22). Names themselves
//!     then cost nothing.
//!
//! Not here: the use of an edge (`write`, `retain`).

use core::ptr::NonNull;

use crate::heap::listener::Listener;
use crate::heap::listener::Segment;
use crate::heap::listener::Strength;
use crate::heap::tracer::Tracer;

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
        // SAFETY: T2: the code that has the tracer got it from `listen`, which holds the listener's only reference.
        self.listener
            .map(|mut listener| unsafe { listener.as_mut() })
    }

    /// Reports whether there is a listener; if so, it has heard of an edge to `object`, if there is one.
    pub(crate) fn heard(&mut self, strength: Strength, object: Option<NonNull<u8>>) -> bool {
        let Some(listener) = self.listener() else {
            return false;
        };
        if let Some(object) = object {
            listener.edge(strength, object);
        }
        true
    }

    /// Reports whether edges are needed by name: a snapshot or a retaining path is being made, and nothing is marked. A
    /// kind's function may check this once and then tell its edges in a slower way.
    #[inline]
    pub fn wants_names(&self) -> bool {
        self.listener.is_some()
    }

    /// Runs `tell`, whose edges are parts of `name`: a field, a property, a variable. Within another name the two are
    /// joined by a dot. Cost: only the call when edges are marked.
    pub fn named(&mut self, name: &str, tell: impl FnOnce(&mut Tracer)) {
        self.within(Segment::Field(name), tell);
    }

    /// Does what [`Tracer::named`] does, for an element of a list: `items[3]`.
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
