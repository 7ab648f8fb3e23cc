//! Synthetic traces: a measured law of sizes, and assumed lifetimes and phases, all drawn from a seed.
//!
//! ```text
//!   seed ─► size (bands) ─► origin (runs) ─► fate: for good │ with its document │ by itself ─► event
//!                                              clock = bytes allocated so far; deaths wait in a heap by clock
//! ```
//!
//! The sizes are those of the old space of a browser (14.4 million allocations of one long session; published
//! beside the study of V8's free lists, 2019): 79 bytes in the mean; up to 32 bytes 38 %, up to 64 77 %, up to 128
//! 94 %, up to 256 98.2 % of objects; but 33 % of bytes in objects above 256 and 22 % above 2 KB. Everything
//! else is our assumption, in [`Law`]. A result that depends on lifetimes is a result about these.
//!
//! Y1  The same law gives the same trace on every machine: it uses integers, division and square roots only.
//! Y2  Memory is bounded by the number of live objects.
//! Y3  An object dies once, after its allocation; one with [`Fate::ForGood`] never dies.
//!
//! Not here: traces of real programs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::{Event, KindId, Origin};
use skinflint_base::random;

/// How the number of documents changes in the course of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// There are always six; when one closes, another one opens.
    Steady,
    /// The number rises from two to ten and falls again, over and over: live memory falls to a third and rises again.
    Phases,
    /// There are no documents: each object dies by itself.
    Independent,
    /// Objects of one size, [`MAP_BYTES`], as a space of V8's hidden classes (maps) has them; documents come and go as in
    /// [`Shape::Phases`].
    Maps,
}

/// Bytes of each object of [`Shape::Maps`]: V8's hidden class at the time of the study.
pub const MAP_BYTES: u64 = 80;

impl Shape {
    /// All shapes.
    pub const ALL: [Shape; 4] = [
        Shape::Steady,
        Shape::Phases,
        Shape::Independent,
        Shape::Maps,
    ];

    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Shape::Steady => "steady",
            Shape::Phases => "phases",
            Shape::Independent => "independent",
            Shape::Maps => "maps",
        }
    }
}

/// The fate of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It outlives the trace: a twentieth of the objects, until they make up a twentieth of the live bytes.
    ForGood,
    /// It dies when its document closes: half of the objects.
    Document,
    /// It dies by itself, after an exponentially distributed number of bytes allocated: a quarter of the others
    /// with a mean of live / 8, the rest with a mean of live.
    Itself,
}

/// The parameters of a synthetic trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Law {
    /// The seed of everything that is random.
    pub seed: u64,
    /// How documents come and go.
    pub shape: Shape,
    /// Bytes that live, roughly, in the steady state.
    pub live_bytes: u64,
    /// Bytes allocated over the whole trace.
    pub total_bytes: u64,
    /// The objects of 100 that the collector allocates because it promotes them; 1 to 99. The others are the
    /// runtime's (three of five) and compiled code's.
    pub promoted_percent: u32,
}

/// The `promoted_percent` of [`Law::new`]: an assumption, since the study does not give its own figure.
pub const PROMOTED_PERCENT: u32 = 77;

impl Law {
    /// Returns a law with 24 MB live and 240 MB allocated: about ten collections of a heap that doubles.
    pub fn new(shape: Shape, seed: u64) -> Law {
        Law {
            seed,
            shape,
            live_bytes: 24 << 20,
            total_bytes: 240 << 20,
            promoted_percent: PROMOTED_PERCENT,
        }
    }
}

/// Numbers by seed, and the distributions that laws draw from.
#[derive(Clone, Debug)]
pub(crate) struct Random(random::Random);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0.bits()
    }

    /// Returns a number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a number from an exponential distribution with this mean, without a logarithm (Y1): the number of
    /// whole means is geometric, one more with the probability e^-1, and the part of a mean is drawn by rejection.
    fn exponential(&mut self, mean: u64) -> u64 {
        // A share of e^-1 of the draws goes one mean further.
        const E: u64 = 6_786_177_901_268_885_274;
        let mut whole = 0;
        while self.next() < E && whole < 40 {
            whole += 1;
        }
        // Within one mean the density falls by a factor of e: a draw is accepted as often as its density says.
        let part = loop {
            let x = self.unit();
            // 1 - x + x²/2 - x³/6 + x⁴/24 - x⁵/120: e^-x to three digits on [0, 1].
            let density =
                1.0 - x * (1.0 - x / 2.0 * (1.0 - x / 3.0 * (1.0 - x / 4.0 * (1.0 - x / 5.0))));
            if self.unit() < density {
                break x;
            }
        };
        whole * mean + (part * mean as f64) as u64
    }
}

/// The sizes up to 256, as a cumulative table of weights.
struct Bands {
    sizes: Vec<(u64, u64)>,
    total: u64,
}

/// The first and last size of a band, its share of all objects (of 1000), and by how much smaller sizes are likelier:
/// 0: all alike, 1: by 1/s, 2: by 1/s².
const BANDS: [(u64, u64, u64, u32); 4] = [
    (16, 32, 380, 0),
    (40, 64, 390, 1),
    (72, 128, 170, 2),
    (136, 256, 42, 2),
];
/// The objects of 1000 with sizes from 264 to 2048.
const MIDDLE: u64 = 16;
/// The objects of 1000 with sizes above 2 KB.
const LARGE: u64 = 2;
const LARGEST: f64 = 131_072.0;

impl Bands {
    fn new() -> Bands {
        let mut sizes = Vec::new();
        let mut total = 0;
        for (first, last, share, power) in BANDS {
            let of = |size: u64| 1_000_000_000 / size.pow(power);
            let whole: u64 = (first..=last).step_by(8).map(of).sum();
            for size in (first..=last).step_by(8) {
                total += (u128::from(of(size)) * u128::from(share) * 1_000_000 / u128::from(whole))
                    as u64;
                sizes.push((total, size));
            }
        }
        Bands { sizes, total }
    }

    fn draw(&self, random: &mut Random) -> u64 {
        let band = random.below(1000);
        if band < LARGE {
            return inverse(random.unit(), 2048.0, LARGEST);
        }
        if band < LARGE + MIDDLE {
            let unit = random.unit();
            // Half of them by 1/x², half by 1/x³: 544 bytes in the mean.
            return match random.below(2) {
                0 => inverse(unit, 256.0, 2048.0),
                _ => inverse_square(unit, 256.0, 2048.0),
            };
        }
        let draw = random.below(self.total);
        let at = self.sizes.partition_point(|(until, _)| *until <= draw);
        self.sizes[at.min(self.sizes.len() - 1)].1
    }
}

/// Rounds up to a word, since objects are whole words.
fn words(bytes: f64) -> u64 {
    (bytes as u64 + 8) & !7
}

/// Returns a size drawn with a density of 1/x².
fn inverse(unit: f64, low: f64, high: f64) -> u64 {
    words(1.0 / (1.0 / low - unit * (1.0 / low - 1.0 / high)).max(1.0 / high))
}

/// Returns a size drawn with a density of 1/x³.
fn inverse_square(unit: f64, low: f64, high: f64) -> u64 {
    let (low, high) = (1.0 / (low * low), 1.0 / (high * high));
    words((1.0 / (low - unit * (low - high)).max(high)).sqrt())
}

struct Document {
    objects: Vec<u64>,
    closes_at: u64,
}

/// An endless supply of sizes by the measured law alone, for benchmarks.
pub struct Sizes {
    bands: Bands,
    random: Random,
}

impl Sizes {
    /// Creates a supply of sizes from a seed.
    pub fn new(seed: u64) -> Sizes {
        Sizes {
            bands: Bands::new(),
            random: Random(random::Random::new(seed)),
        }
    }
}

impl Iterator for Sizes {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        Some(self.bands.draw(&mut self.random))
    }
}

/// A synthetic trace: an iterator of its events.
pub struct Synthetic {
    law: Law,
    bands: Bands,
    random: Random,
    clock: u64,
    next_id: u64,
    for_good_bytes: u64,
    /// The objects that die by themselves, by the clock of their death.
    dying: BinaryHeap<Reverse<(u64, u64)>>,
    documents: Vec<Document>,
    /// The document that allocates, and the number of objects that it will still allocate.
    active: usize,
    active_left: u64,
    origin: Origin,
    origin_left: u64,
    /// The deaths of a closed document that are not returned yet.
    closing: Vec<u64>,
}

/// The names of the kinds that a synthetic trace uses.
pub const KINDS: [&str; 1] = ["synthetic"];

impl Synthetic {
    /// Begins a trace.
    pub fn new(law: Law) -> Synthetic {
        Synthetic {
            law,
            bands: Bands::new(),
            random: Random(random::Random::new(law.seed)),
            clock: 0,
            next_id: 0,
            for_good_bytes: 0,
            dying: BinaryHeap::new(),
            documents: Vec::new(),
            active: 0,
            active_left: 0,
            origin: Origin::Runtime,
            origin_left: 0,
            closing: Vec::new(),
        }
    }

    /// Returns the number of documents that there should be now.
    fn wanted(&self) -> usize {
        match self.law.shape {
            Shape::Steady => 6,
            Shape::Independent => 0,
            Shape::Phases | Shape::Maps => {
                // The number goes up and down once while four times the live bytes are allocated.
                let period = (self.law.live_bytes * 4).max(1);
                let at = (self.clock % period * 16 / period) as usize;
                2 + at.min(16 - at)
            }
        }
    }

    fn open(&mut self) {
        // A document lives while half to one and a half times the live bytes are allocated.
        let life = self.law.live_bytes / 2 + self.random.below(self.law.live_bytes.max(1));
        self.documents.push(Document {
            objects: Vec::new(),
            closes_at: self.clock + life,
        });
    }

    /// Opens and closes documents. At most one closes at a time.
    fn documents(&mut self) {
        let wanted = self.wanted();
        while self.documents.len() < wanted {
            self.open();
        }
        let over = self.documents.len() > wanted;
        let due = self
            .documents
            .iter()
            .position(|document| over || document.closes_at <= self.clock);
        if let Some(at) = due {
            self.closing = self.documents.swap_remove(at).objects;
            self.active_left = 0;
        }
    }

    fn origin(&mut self) -> Origin {
        if self.origin_left == 0 {
            // A scavenge promotes many in a row; the others come in between. Runs of 700, 250 and 165 objects in the
            // mean, every second of them the collector's, make `PROMOTED_PERCENT`; for a larger share its runs are
            // longer.
            let percent = u64::from(self.law.promoted_percent.clamp(1, 99));
            let usual = u64::from(PROMOTED_PERCENT);
            let run = |objects: u64| {
                (objects * percent * (100 - usual) / ((100 - percent) * usual)).max(1)
            };
            (self.origin, self.origin_left) = match self.random.below(4) {
                0 | 1 => (Origin::Gc, run(200 + self.random.below(1000))),
                2 => (Origin::Runtime, 1 + self.random.below(500)),
                _ => (Origin::GeneratedCode, 1 + self.random.below(330)),
            };
        }
        self.origin_left -= 1;
        self.origin
    }

    fn fate(&mut self, bytes: u64) -> Fate {
        let draw = self.random.below(20);
        if draw == 0 && self.for_good_bytes + bytes <= self.law.live_bytes / 20 {
            return Fate::ForGood;
        }
        if draw <= 10 && !self.documents.is_empty() {
            return Fate::Document;
        }
        Fate::Itself
    }

    fn alloc(&mut self) -> Event {
        let id = self.next_id;
        self.next_id += 1;
        let bytes = match self.law.shape {
            Shape::Maps => MAP_BYTES,
            _ => self.bands.draw(&mut self.random),
        };
        match self.fate(bytes) {
            Fate::ForGood => self.for_good_bytes += bytes,
            Fate::Document => {
                if self.active_left == 0 {
                    self.active = self.random.below(self.documents.len() as u64) as usize;
                    self.active_left = 100 + self.random.below(20_000);
                }
                self.active_left -= 1;
                let count = self.documents.len();
                self.documents[self.active % count].objects.push(id);
            }
            Fate::Itself => {
                let mean = match self.random.below(4) {
                    0 => self.law.live_bytes / 8,
                    _ => self.law.live_bytes,
                };
                let dies_at = self.clock + self.random.exponential(mean);
                self.dying.push(Reverse((dies_at, id)));
            }
        }
        self.clock += bytes;
        Event::Alloc {
            id,
            bytes,
            kind: KindId(0),
            origin: self.origin(),
        }
    }
}

impl Iterator for Synthetic {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        if let Some(id) = self.closing.pop() {
            return Some(Event::Death { id });
        }
        if self.clock >= self.law.total_bytes {
            return None;
        }
        if let Some(Reverse((dies_at, id))) = self.dying.peek().copied()
            && dies_at <= self.clock
        {
            self.dying.pop();
            return Some(Event::Death { id });
        }
        if self.law.shape != Shape::Independent {
            self.documents();
            if let Some(id) = self.closing.pop() {
                return Some(Event::Death { id });
            }
        }
        Some(self.alloc())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_published_law() {
        let sizes: Vec<u64> = Sizes::new(1).take(2_000_000).collect();
        let total: u64 = sizes.iter().sum();
        let mean = total as f64 / sizes.len() as f64;
        assert!((77.0..81.0).contains(&mean), "mean {mean}");
        for (limit, share) in [(32, 0.38), (64, 0.77), (128, 0.94), (256, 0.982)] {
            let below = sizes.iter().filter(|size| **size <= limit).count() as f64;
            let got = below / sizes.len() as f64;
            assert!(
                (got - share).abs() < 0.002,
                "up to {limit}: {got}, published {share}"
            );
        }
        for (limit, share) in [(256, 0.33), (2048, 0.22)] {
            let above: u64 = sizes.iter().filter(|size| **size > limit).sum();
            let got = above as f64 / total as f64;
            assert!(
                (got - share).abs() < 0.02,
                "bytes above {limit}: {got}, published {share}"
            );
        }
        assert!(
            sizes
                .iter()
                .all(|size| size % 8 == 0 && (16..=131_072).contains(size))
        );
    }

    #[test]
    fn the_exponential_has_its_mean_and_its_tail() {
        let mut random = Random(random::Random::new(3));
        let draws: Vec<u64> = (0..400_000).map(|_| random.exponential(1 << 20)).collect();
        let mean = draws.iter().sum::<u64>() as f64 / draws.len() as f64 / f64::from(1 << 20);
        assert!((0.99..1.01).contains(&mean), "{mean}");
        for (means, share) in [(1u64, 0.3679), (2, 0.1353), (3, 0.0498)] {
            let beyond = draws.iter().filter(|draw| **draw >= means << 20).count();
            let got = beyond as f64 / draws.len() as f64;
            assert!((got - share).abs() < 0.005, "beyond {means}: {got}");
        }
    }

    #[test]
    fn every_object_dies_once_and_live_bytes_stay_where_they_should() {
        for shape in Shape::ALL {
            let law = Law {
                live_bytes: 2 << 20,
                total_bytes: 30 << 20,
                ..Law::new(shape, 7)
            };
            let mut live = std::collections::HashMap::new();
            let (mut bytes_live, mut most, mut next) = (0, 0, 0);
            for event in Synthetic::new(law) {
                match event {
                    Event::Alloc { id, bytes, .. } => {
                        assert_eq!(id, next, "O1");
                        next += 1;
                        live.insert(id, bytes);
                        bytes_live += bytes;
                    }
                    Event::Death { id } => bytes_live -= live.remove(&id).expect("Y3"),
                    Event::Collection => unreachable!("the law has none"),
                }
                most = most.max(bytes_live);
            }
            let ratio = most as f64 / law.live_bytes as f64;
            assert!((0.6..2.2).contains(&ratio), "{shape:?}: {ratio}");
        }
    }

    #[test]
    fn the_collector_allocates_the_share_that_was_asked_for() {
        for percent in [25, 50, PROMOTED_PERCENT, 90] {
            let law = Law {
                promoted_percent: percent,
                ..Law::new(Shape::Steady, 2)
            };
            let (mut all, mut promoted) = (0u32, 0u32);
            for event in Synthetic::new(law) {
                if let Event::Alloc { origin, .. } = event {
                    all += 1;
                    promoted += u32::from(origin == Origin::Gc);
                }
            }
            let got = f64::from(promoted) / f64::from(all) * 100.0;
            assert!((got - f64::from(percent)).abs() < 1.5, "{percent}: {got}");
        }
    }

    #[test]
    fn the_same_seed_is_the_same_trace_and_another_is_not() {
        let some = |seed| -> Vec<Event> {
            Synthetic::new(Law::new(Shape::Phases, seed))
                .take(50_000)
                .collect()
        };
        assert_eq!(some(1), some(1));
        assert_ne!(some(1), some(2));
    }
}
