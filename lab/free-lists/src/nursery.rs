//! A young generation in front of a trace: which objects reach the space, and who asks for their room there.
//!
//! ```text
//!   Alloc ─► nursery, in order ── full: a scavenge ─┬─ died meanwhile: never seen by the space
//!                                                   ├─ first time: stays, one older
//!                                                   └─ second time, or no room: Alloc { origin: Gc } ─► the space
//!   above a quarter of the nursery ─► the space at once, with its own origin
//! ```
//!
//! A recorded trace of a heap without generations says only who asked for an object. With V8's young generation before
//! it, the space sees what V8's old space sees: what survived two scavenges, by the collector, and what is too large
//! for the nursery, by the program.
//!
//! N1  The nursery holds at most `bytes`. A scavenge keeps at most half of it (V8's semi-space); more is promoted at once.
//! N2  Promoted objects come in the order of their allocation, in a row, at the allocation that did not fit.
//! N3  An object that dies in the nursery is in no step. What is in it at the end never reaches the space.
//! N4  It depends on the trace alone. Where deaths are only known from collections, too much is promoted.
//!
//! Not here: scavenging itself, whose work is told in bytes ([`Figures`]).

use std::collections::{HashSet, VecDeque};

use super::list::Origin;
use super::replay::Step;

/// Bytes of the smallest nursery.
pub const LEAST_BYTES: u64 = 16 << 10;
/// Scavenges that an object must survive before it is promoted.
const PROMOTED_AT: u8 = 2;

/// The work of a nursery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Objects that were allocated in it.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Scavenges.
    pub scavenges: u64,
    /// Bytes that scavenges kept in the nursery.
    pub kept_bytes: u64,
    /// Objects that were promoted.
    pub promoted_objects: u64,
    /// Their bytes.
    pub promoted_bytes: u64,
    /// Objects that were too large for it.
    pub direct_objects: u64,
}

#[derive(Clone, Copy)]
struct Young {
    id: u64,
    bytes: u64,
    age: u8,
}

/// The steps behind a nursery.
pub struct Nursery<I> {
    steps: I,
    capacity: u64,
    used: u64,
    /// In the order of allocation; some have died.
    young: Vec<Young>,
    alive: HashSet<u64>,
    out: VecDeque<Step>,
    figures: Figures,
}

impl<I: Iterator<Item = Step>> Nursery<I> {
    /// Puts a nursery of `bytes` (at least [`LEAST_BYTES`]) before steps.
    pub fn new(steps: I, bytes: u64) -> Nursery<I> {
        Nursery {
            steps,
            capacity: bytes.max(LEAST_BYTES),
            used: 0,
            young: Vec::new(),
            alive: HashSet::new(),
            out: VecDeque::new(),
            figures: Figures::default(),
        }
    }

    /// Returns its work so far.
    pub fn figures(&self) -> Figures {
        self.figures
    }

    /// Passes over the nursery: what is old enough, or has no room in the half that is kept, is promoted.
    fn scavenge(&mut self) {
        self.figures.scavenges += 1;
        self.used = 0;
        let mut kept = Vec::new();
        for mut object in std::mem::take(&mut self.young) {
            if !self.alive.contains(&object.id) {
                continue;
            }
            object.age += 1;
            let fits = self.used + object.bytes <= self.capacity / 2;
            if object.age < PROMOTED_AT && fits {
                self.used += object.bytes;
                self.figures.kept_bytes += object.bytes;
                kept.push(object);
                continue;
            }
            self.alive.remove(&object.id);
            self.figures.promoted_objects += 1;
            self.figures.promoted_bytes += object.bytes;
            self.out.push_back(Step::Alloc {
                id: object.id,
                bytes: object.bytes,
                origin: Origin::Gc,
            });
        }
        self.young = kept;
    }

    fn alloc(&mut self, id: u64, bytes: u64) {
        if self.used + bytes > self.capacity {
            self.scavenge();
        }
        self.used += bytes;
        self.figures.objects += 1;
        self.figures.bytes += bytes;
        self.alive.insert(id);
        self.young.push(Young { id, bytes, age: 0 });
    }
}

impl<I: Iterator<Item = Step>> Iterator for Nursery<I> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.out.pop_front() {
                return Some(step);
            }
            match self.steps.next()? {
                Step::Alloc { id, bytes, .. } if bytes <= self.capacity / 4 => {
                    self.alloc(id, bytes)
                }
                step @ Step::Alloc { .. } => {
                    self.figures.direct_objects += 1;
                    return Some(step);
                }
                Step::Death { id } if self.alive.remove(&id) => {}
                step @ Step::Death { .. } => return Some(step),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    fn alloc(id: u64, bytes: u64) -> Step {
        let origin = Origin::Runtime;
        Step::Alloc { id, bytes, origin }
    }

    #[test]
    fn what_survives_two_scavenges_is_the_collectors() {
        // Four objects of 4 KiB fill it; each fifth is a scavenge.
        let death = |id| Step::Death { id };
        let steps = [
            alloc(0, 4 * KIB),
            alloc(1, 4 * KIB),
            alloc(2, 4 * KIB),
            alloc(3, 4 * KIB),
            death(1),
            death(3),
            alloc(4, 4 * KIB), // 0 and 2 stay, 8 KiB of 16
            alloc(5, 4 * KIB),
            alloc(9, 5 * KIB), // too large: at once
            death(2),
            alloc(6, 4 * KIB), // 0 for the second time; 4 and 5 for the first
            death(0),
            death(4),
        ];
        let mut nursery = Nursery::new(steps.into_iter(), 16 * KIB);
        let seen: Vec<Step> = nursery.by_ref().collect();
        let promoted = Step::Alloc {
            id: 0,
            bytes: 4 * KIB,
            origin: Origin::Gc,
        };
        assert_eq!(seen, [alloc(9, 5 * KIB), promoted, death(0)]);
        let expected = Figures {
            objects: 7,
            bytes: 28 * KIB,
            scavenges: 2,
            kept_bytes: 16 * KIB,
            promoted_objects: 1,
            promoted_bytes: 4 * KIB,
            direct_objects: 1,
        };
        assert_eq!(nursery.figures(), expected);
    }

    #[test]
    fn what_has_no_room_in_the_kept_half_is_promoted_at_once() {
        let steps = (0..5).map(|id| alloc(id, 4 * KIB));
        let mut nursery = Nursery::new(steps, 16 * KIB);
        let ids = nursery.by_ref().map(|step| match step {
            Step::Alloc { id, origin, .. } => (id, origin),
            Step::Death { .. } => unreachable!(),
        });
        assert_eq!(ids.collect::<Vec<_>>(), [(2, Origin::Gc), (3, Origin::Gc)]);
        assert_eq!(nursery.figures().kept_bytes, 8 * KIB);
    }
}
