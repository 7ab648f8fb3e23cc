//! What a trace is made of: sizes, lifetimes, origins, kinds, large objects.
//!
//! ```text
//!   Event, Event, … ─► Profile: bands of sizes, spans of lives, a row for each origin and kind
//!                        clock: bytes allocated so far        id ─► birth, bytes, kind, while it lives
//! ```
//!
//! P1  A life is measured in bytes allocated meanwhile, since pauses of the program say nothing about memory. Where the
//!     heap learns of deaths in collections, a life reaches to the collection that found it over.
//! P2  Each object is in exactly one band, one row of an origin and one of a kind; those that do not die are in no span, and
//!     counted as survivors. So rows add up.
//! P3  Large is what no page of the free lists takes: more than [`LARGE_BYTES`]. Large objects are in all other figures, too.
//! P4  A death of an object that was lost with a damaged block is counted, and in no other figure.
//! P5  Memory is bounded by the number of live objects, the kinds, and the fixed tables.
//!
//! Not here: how it looks (`skinflint report x.sfo`).

use rustc_hash::FxHashMap;

use crate::{Event, KindId, Origin};

/// Bytes above which an object is large: half a page of the free lists.
pub const LARGE_BYTES: u64 = 128 << 10;

/// The last size of each band but the last one, which is open.
pub const BANDS: [u64; 9] = [16, 32, 64, 128, 256, 2048, 16 << 10, LARGE_BYTES, 1 << 20];

/// The longest life of each span but the last one, which is open; in bytes allocated meanwhile.
pub const SPANS: [u64; 8] = [
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
    64 << 20,
];

/// Objects, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    /// How many there are.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Sum {
    fn add(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, bytes: u64) {
        self.objects -= 1;
        self.bytes -= bytes;
    }
}

/// Objects of one sort: of a size, an origin, a kind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Group {
    /// All that were allocated.
    pub allocated: Sum,
    /// Objects that were alive when the trace ended.
    pub survivors: Sum,
    /// Objects that died, counted by lifetime: a row for each of [`SPANS`], and one for all longer lives.
    pub lives: [Sum; SPANS.len() + 1],
}

impl Group {
    /// Returns the number of objects that died.
    pub fn deaths(&self) -> u64 {
        self.lives.iter().map(|sum| sum.objects).sum()
    }

    /// Returns the span within which half of the objects had died; `None`: half of them lived on.
    pub fn half_life(&self) -> Option<usize> {
        let half = self.allocated.objects.div_ceil(2).max(1);
        let mut died = 0;
        self.lives.iter().position(|sum| {
            died += sum.objects;
            died >= half
        })
    }
}

/// A living object.
#[derive(Clone, Copy)]
struct Living {
    born: u64,
    bytes: u64,
    kind: u32,
    origin: Origin,
}

/// What a trace is made of.
#[derive(Default)]
pub struct Profile {
    /// All objects.
    pub all: Group,
    /// Objects by size ([`BANDS`] and one more).
    pub bands: [Group; BANDS.len() + 1],
    /// Objects by origin, in the order of [`Origin::ALL`].
    pub origins: [Group; 3],
    /// Objects by kind, in the order of the ids of kinds.
    pub kinds: Vec<Group>,
    /// Large objects (P3).
    pub large: Group,
    /// What lived when most bytes lived.
    pub peak: Sum,
    /// The large objects that lived when most bytes of large objects lived.
    pub large_peak: Sum,
    /// Bytes of the largest object.
    pub largest_bytes: u64,
    /// Collections.
    pub collections: u64,
    /// Deaths of objects whose allocation is not in the trace (P4).
    pub unknown_deaths: u64,
    living: FxHashMap<u64, Living>,
    live: Sum,
    large_live: Sum,
}

/// Most kinds that get a row; the events of any others go to the last one (P5: a damaged trace may claim any number).
const MAX_KINDS: usize = 1 << 16;

impl Profile {
    /// Adds an event.
    pub fn add(&mut self, event: Event) {
        match event {
            Event::Alloc {
                id,
                bytes,
                kind,
                origin,
            } => self.born(id, bytes, kind, origin),
            Event::Death { id } => self.died(id),
            Event::Collection => self.collections += 1,
        }
    }

    fn born(&mut self, id: u64, bytes: u64, kind: KindId, origin: Origin) {
        let living = Living {
            born: self.all.allocated.bytes,
            bytes,
            kind: kind.0.min(MAX_KINDS as u32 - 1),
            origin,
        };
        if self.kinds.len() <= living.kind as usize {
            self.kinds
                .resize_with(living.kind as usize + 1, Group::default);
        }
        self.living.insert(id, living);
        self.live.add(bytes);
        self.largest_bytes = self.largest_bytes.max(bytes);
        if self.live.bytes > self.peak.bytes {
            self.peak = self.live;
        }
        if bytes > LARGE_BYTES {
            self.large_live.add(bytes);
            if self.large_live.bytes > self.large_peak.bytes {
                self.large_peak = self.large_live;
            }
        }
        self.each(living, |group| {
            group.allocated.add(bytes);
            group.survivors.add(bytes);
        });
    }

    fn died(&mut self, id: u64) {
        let Some(living) = self.living.remove(&id) else {
            self.unknown_deaths += 1;
            return;
        };
        self.live.remove(living.bytes);
        if living.bytes > LARGE_BYTES {
            self.large_live.remove(living.bytes);
        }
        let life = self.all.allocated.bytes - living.born - living.bytes;
        let span = SPANS.partition_point(|longest| *longest < life);
        self.each(living, |group| {
            group.lives[span].add(living.bytes);
            group.survivors.remove(living.bytes);
        });
    }

    /// Passes all groups of an object.
    fn each(&mut self, object: Living, mut then: impl FnMut(&mut Group)) {
        then(&mut self.all);
        then(&mut self.bands[BANDS.partition_point(|last| *last < object.bytes)]);
        then(&mut self.origins[object.origin as usize]);
        then(&mut self.kinds[object.kind as usize]);
        if object.bytes > LARGE_BYTES {
            then(&mut self.large);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_worked_out_by_hand() {
        let mut profile = Profile::default();
        let mut alloc = |id, bytes, kind, origin| {
            profile.add(Event::Alloc {
                id,
                bytes,
                kind: KindId(kind),
                origin,
            });
        };
        alloc(0, 16, 0, Origin::Runtime);
        alloc(1, 24, 0, Origin::Gc);
        alloc(2, 200_000, 1, Origin::GeneratedCode);
        profile.add(Event::Death { id: 0 }); // 200,024 bytes after it
        profile.add(Event::Death { id: 2 }); // none after it
        profile.add(Event::Death { id: 7 }); // never allocated here
        profile.add(Event::Collection);
        let sum = |objects, bytes| Sum { objects, bytes };
        assert_eq!(profile.all.allocated, sum(3, 200_040));
        assert_eq!(profile.peak, sum(3, 200_040));
        assert_eq!(profile.all.survivors, sum(1, 24));
        assert_eq!((profile.all.deaths(), profile.unknown_deaths), (2, 1));
        assert_eq!(profile.all.lives[0], sum(1, 200_000), "up to 4 KiB");
        assert_eq!(profile.all.lives[3], sum(1, 16), "up to 256 KiB");
        assert_eq!(profile.bands[0].allocated, sum(1, 16));
        assert_eq!(profile.bands[1].allocated, sum(1, 24));
        assert_eq!(profile.bands[8].allocated, sum(1, 200_000));
        assert_eq!(profile.origins[2].survivors, sum(1, 24));
        assert_eq!(profile.kinds[0].allocated, sum(2, 40));
        assert_eq!(profile.kinds[0].half_life(), Some(3), "one of two");
        assert_eq!(profile.origins[2].half_life(), None, "it lives on");
        assert_eq!(
            (&profile.large, profile.large_peak),
            (&profile.kinds[1], sum(1, 200_000))
        );
        assert_eq!((profile.largest_bytes, profile.collections), (200_000, 1));
    }

    #[test]
    fn rows_add_up() {
        let law = crate::Law {
            total_bytes: 3 << 20,
            live_bytes: 1 << 20,
            ..crate::Law::new(crate::synthetic::Shape::Phases, 3)
        };
        let mut profile = Profile::default();
        crate::Synthetic::new(law).for_each(|event| profile.add(event));
        let total = |groups: &[Group]| {
            let mut total = Group::default();
            for group in groups {
                total.allocated.objects += group.allocated.objects;
                total.allocated.bytes += group.allocated.bytes;
                total.survivors.objects += group.survivors.objects;
                total.survivors.bytes += group.survivors.bytes;
                for (sum, more) in total.lives.iter_mut().zip(&group.lives) {
                    sum.objects += more.objects;
                    sum.bytes += more.bytes;
                }
            }
            total
        };
        assert_eq!(total(&profile.bands), profile.all);
        assert_eq!(total(&profile.origins), profile.all);
        assert_eq!(total(&profile.kinds), profile.all);
        let died = profile.all.deaths() + profile.all.survivors.objects;
        assert_eq!(died, profile.all.allocated.objects);
    }
}
