//! Finds which of some objects are garbage: those whose handles all lie in others of them, and that nothing alive
//! leads to.
//!
//! ```text
//!   suspects ─► each counts its edges at their ends ─► handles > edges: one is outside ─► alive
//!                                                                          │ and all it leads to
//!            ◄──────────────────────────── what is left is garbage ◄───────┘
//! ```
//!
//! J1  Any set of objects may be suspected, whatever was changed since they were chosen: the answer depends only on
//!     the counts and edges at the moment of asking, and nothing runs meanwhile.
//! J2  What is not suspected is considered alive. So garbage that hangs on a dead object outside of the set is found
//!     when both are suspected.
//! J3  The work is that of the suspects and of the ephemerons on them; the edges of other objects are not looked at.
//! J4  A pair's value is followed when the pair and the key are alive (weak.W2).
//!
//! Source: examining a subset by counts comes from CPython's collector (N. Schemenauer, 2000) and from trial deletion
//! (Lins 1990; Bacon and Rajan 2001).
//!
//! Not here: the choice of suspects (`collect`), how garbage ends (`ending`).

use crate::object::{DOOMED, ENDED, Erased, LISTED, QUEUED, SUSPECT, WEAKLY, head};
use crate::trace::Tracer;

/// Reports whether an object can be suspected: not if it is already ending.
pub(crate) fn can_be_suspected(object: Erased) -> bool {
    // SAFETY: the caller walks cells that are not free, or free with a head (tenant.N1).
    !unsafe { head(object) }.has(QUEUED | DOOMED | ENDED)
}

/// Returns those of `suspects` that are garbage; they are doomed from now on. `pairs` has every ephemeron on any of
/// them.
pub(crate) fn garbage_of(mut suspects: Vec<Erased>, pairs: &[&[Erased]]) -> Vec<Erased> {
    for &object in &suspects {
        // SAFETY: suspects have not ended, and nothing ends meanwhile (J1).
        unsafe { head(object) }.suspect();
    }
    for &object in &suspects {
        // SAFETY: J1, object.H3.
        unsafe { (head(object).vtable.count)(object) };
    }
    let mut reached = Reached {
        tracer: Tracer::new(),
        pairs: Vec::new(),
    };
    for &pair in pairs.iter().copied().flatten() {
        reached.add_open(pair);
    }
    for &object in &suspects {
        // SAFETY: J1.
        let head = unsafe { head(object) };
        if head.has(SUSPECT) && !head.is_explained() {
            reached.tracer.tell(object);
            reached.follow();
        }
    }
    reached.follow_pairs();
    suspects.retain(|&object| {
        // SAFETY: J1.
        let head = unsafe { head(object) };
        let garbage = head.has(SUSPECT);
        if garbage {
            head.clear(SUSPECT | WEAKLY);
            head.set(DOOMED);
        }
        garbage
    });
    suspects
}

struct Reached {
    tracer: Tracer,
    /// Ephemerons that are alive, and whose keys perhaps are not.
    pairs: Vec<Erased>,
}

impl Reached {
    /// Adds an ephemeron that is no suspect, and so alive, but whose key is a suspect: its value is alive only if the
    /// key is, so its edges are counted like a suspect's.
    fn add_open(&mut self, pair: Erased) {
        // SAFETY: those on the list are not free (tenant.N2).
        let head = unsafe { head(pair) };
        if head.has(SUSPECT | QUEUED | DOOMED | ENDED) {
            return;
        }
        let Some(fns) = head.vtable.pair else {
            return;
        };
        // SAFETY: it has not ended; weak.W1.
        let open = unsafe { (fns.key)(pair).is_some_and(|key| self::head(key).has(SUSPECT)) };
        if open {
            // SAFETY: J1, object.H3.
            unsafe { (head.vtable.count)(pair) };
            self.pairs.push(pair);
        }
    }

    /// Follows all edges that were reported, among suspects.
    fn follow(&mut self) {
        while let Some(object) = self.tracer.stack.pop() {
            // SAFETY: edges lead to objects whose cells are not free (object.H1).
            let head = unsafe { head(object) };
            if !head.has(SUSPECT) {
                continue;
            }
            head.clear(SUSPECT);
            if head.vtable.pair.is_some() {
                self.pairs.push(object);
            } else {
                // SAFETY: J1, object.H3.
                unsafe { (head.vtable.trace)(object, &mut self.tracer) };
            }
        }
    }

    /// Follows values whose keys are alive, until no round finds one (J4).
    fn follow_pairs(&mut self) {
        loop {
            let before = self.pairs.len();
            for pair in core::mem::take(&mut self.pairs) {
                // SAFETY: J1: the pair is alive.
                let Some(fns) = unsafe { head(pair) }.vtable.pair else {
                    continue;
                };
                // SAFETY: J1; weak.W1: its key has not ended.
                let open = unsafe { (fns.key)(pair).is_some_and(|key| head(key).has(SUSPECT)) };
                if open {
                    self.pairs.push(pair);
                } else {
                    // SAFETY: J1.
                    unsafe { (fns.trace_value)(pair, &mut self.tracer) };
                    self.follow();
                }
            }
            // New pairs may have come, so that there are equally many as before.
            if self.pairs.is_empty() || self.pairs.len() == before {
                let settled = self.pairs.iter().all(|&pair| {
                    // SAFETY: as above.
                    let key = unsafe { head(pair).vtable.pair.and_then(|fns| (fns.key)(pair)) };
                    // SAFETY: as above.
                    key.is_some_and(|key| unsafe { head(key) }.has(SUSPECT))
                });
                if settled {
                    return;
                }
            }
        }
    }
}

/// Makes the ephemerons of a list whose keys are garbage lose them, and removes them from the list. Returns those
/// that are alive: their values are to be ended. Those that are garbage themselves keep their value until they end.
pub(crate) fn take_dead_pairs(pairs: &mut Vec<Erased>) -> Vec<Erased> {
    let mut dead = Vec::new();
    pairs.retain(|&pair| {
        // SAFETY: those on the list are not free (tenant.N2).
        let head = unsafe { head(pair) };
        if head.has(ENDED) {
            return true;
        }
        let Some(fns) = head.vtable.pair else {
            return true;
        };
        // SAFETY: it has not ended; a key that is there has not been freed (weak.W1).
        let key = unsafe { (fns.key)(pair) };
        // SAFETY: as above.
        let gone = key.is_some_and(|key| unsafe { self::head(key) }.has(DOOMED));
        if gone {
            head.clear(LISTED);
            // SAFETY: it has not ended.
            unsafe { (fns.lose_key)(pair) };
            if !head.has(DOOMED | QUEUED) {
                dead.push(pair);
            }
        }
        !gone
    });
    dead
}
