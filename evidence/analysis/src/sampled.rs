//! What samples tell: estimates with their errors, of a trace that has some of the acquisitions.
//!
//! ```text
//!   events ─► Ledger ─► cells (stack, size, usable size) × Law (size ─► p) ─► Sum ─► Figure { bytes, low, high }
//!                └─ snapshot ─► books: rows that are exact │ rows of the heap, of which the blocks' are estimates
//! ```
//!
//! P1  The weight of a block follows from its size and the rate (trace FORMAT.md): 1/p blocks, x/p of any figure x, and the
//!     variance of a sum is Σ (x/p)² (1 − p) over its blocks (Horvitz and Thompson). Stacks add up: of sums and of variances.
//! P2  The rows of the books add up to resident memory, to the byte. Mappings are recorded whole, so all rows but those of
//!     blocks are exact; of the heap's resident bytes, what the estimates leave is free memory and the allocator's own, and
//!     what they have too much is a row below nothing: the sampling's difference.
//! P3  A figure of fewer than three samples has no interval, one of fewer than ten that of a Poisson count, of which the
//!     quadratic one would be too short; no interval begins below what was seen itself.
//! P4  A finding is shown if its figure is above its threshold with all of its interval.
//!
//! Not here: figures that need every event (lifetimes, churn, growth by realloc, pinned pages); text (`view`).

mod figure;
mod model;
mod rows;

use rustc_hash::FxHashMap;
use skinflint_trace::{Event, Snapshot};

pub use figure::{Figure, Law, Sum};
pub use model::{Growth, Row, Sampled, Stack};

use crate::facts::{Facts, Symbolizer};
use crate::ledger::Ledger;
use crate::missing;
use crate::pass::{Act, Block};
use crate::{books, counts};

/// Standard errors by which a growth is above nothing: one stack in a thousand grows by three by chance alone.
const CERTAIN: f64 = 3.3;
/// The share of what lives that makes a stack a holder, in per cent.
const HOLDER_PERCENT: u64 = 10;

/// A moment of a trace.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// Its name.
    pub label: String,
    /// Events up to this ticket have happened; `None`: all.
    pub ticket: Option<u64>,
    /// The snapshot of resident memory that is of it.
    pub snapshot: Option<Snapshot>,
}

/// Blocks of a stack that came and went since growth is watched.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    born: Sum,
    died: Sum,
}

/// Reads the events of a sampled trace.
pub struct Reading {
    facts: Facts,
    law: Law,
    moment: Moment,
    ledger: Ledger,
    /// Growth is watched from here on, nanoseconds since the start: the middle of the time up to the moment.
    middle_ns: u64,
    died: FxHashMap<u32, Sum>,
    events: u64,
    time_ns: u64,
    is_past: bool,
}

impl Reading {
    /// Begins to read the trace that these facts are of; `end_ns` is the time of the moment.
    pub fn new(facts: Facts, moment: Moment, end_ns: u64) -> Reading {
        Reading {
            law: Law::of_process(&facts.process),
            facts,
            moment,
            ledger: Ledger::new(16),
            middle_ns: end_ns / 2,
            died: FxHashMap::default(),
            events: 0,
            time_ns: 0,
            is_past: false,
        }
    }

    /// Returns the ledger, and the facts to which stacks of ancestors are added, for what a fork gave.
    pub fn inherits(&mut self) -> (&mut Ledger, &mut Facts) {
        (&mut self.ledger, &mut self.facts)
    }

    /// Takes an event; they come in order. Those after the moment are counted only.
    pub fn event(&mut self, event: &Event) {
        self.events += 1;
        self.is_past |= self.moment.ticket.is_some_and(|last| event.ticket > last);
        if self.is_past {
            return;
        }
        self.time_ns = self.time_ns.max(event.time_ns);
        let (law, middle_ns, died) = (self.law, self.middle_ns, &mut self.died);
        let is_watched = event.time_ns >= middle_ns;
        self.ledger.apply(event, &mut |context, act| {
            let mut gone = |block: &Block| {
                if is_watched && block.born_us().saturating_mul(1000) < middle_ns {
                    let key = context.cell(block.cell);
                    let sum = died.entry(key.node.0).or_default();
                    sum.add(law, key.size, key.size, 1);
                }
            };
            match act {
                Act::Release { block, .. } => gone(block),
                Act::Regrow { old, .. } => gone(old),
                _ => {}
            }
        });
    }

    /// Makes the report; `damage` is what could not be read.
    pub fn finish(mut self, damage: Vec<String>, symbolizer: &mut dyn Symbolizer) -> Sampled {
        self.ledger.end_inheritance();
        self.facts.damage.extend(damage);
        let by_stack = self.by_stack();
        let live = by_stack.values().map(|one| one.live).sum::<Sum>();
        let acquired = by_stack.values().map(|one| one.acquired).sum::<Sum>();
        let mut shown: Vec<_> = by_stack
            .iter()
            .map(|(node, stack)| (*node, *stack))
            .collect();
        shown.sort_by_key(|(node, stack)| (std::cmp::Reverse(stack.live.bytes()), *node));
        let nodes: Vec<_> = shown
            .iter()
            .map(|(node, stack)| (*node, stack.live.bytes()))
            .collect();
        let named = counts::named(&nodes, &self.facts, symbolizer);
        let mut stacks: Vec<Stack> = Vec::with_capacity(shown.len());
        for ((_, one), site) in shown.iter().zip(&named.sites) {
            stacks.push(Stack {
                node: site.node,
                live: one.live.figure(),
                acquired: one.acquired.figure(),
                growth: one.growth(),
                holds: one
                    .live
                    .figure()
                    .low
                    .is_some_and(|low| low > live.bytes() / 100 * HOLDER_PERCENT),
            });
        }
        let (rows, resident_bytes) = match &self.moment.snapshot {
            Some(snapshot) => {
                let bounds = books::Bounds {
                    parts: 1,
                    pins: 0,
                    keep: false,
                };
                let process = &self.facts.process;
                let closed = books::close(snapshot, &self.ledger, process, bounds);
                let rows = rows::of(&closed, self.ledger.cells().keys(), self.law);
                (rows, closed.books.resident_bytes)
            }
            None => (Vec::new(), 0),
        };
        let known = self.facts.known(self.events);
        let missing = missing::missing(&known, &self.ledger.counts(), self.ledger.parked_blocks());
        let mut missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
        missing.extend(missing::children(&self.facts.lost));
        let is_end = self.moment.ticket.is_none();
        let ending = self.facts.ending.as_ref().filter(|_| is_end);
        Sampled {
            process: self.facts.process.clone(),
            sample_bytes: self.facts.process.sample_bytes,
            at: self.moment.label,
            time_ns: self.moment.snapshot.map_or(self.time_ns, |one| one.time_ns),
            middle_ns: self.middle_ns,
            missing,
            events: self.events,
            live: live.figure(),
            acquired: acquired.figure(),
            in_use_bytes: ending
                .and_then(|end| end.in_use_bytes)
                .map(|one| one.0)
                .filter(|one| *one > 0),
            resident_bytes,
            rows,
            stacks,
            nodes: named.nodes,
            frames: named.frames,
            plumbing: named.plumbing,
        }
    }

    /// Adds up cells by stack.
    fn by_stack(&self) -> FxHashMap<skinflint_trace::NodeId, Counted> {
        let cells = self.ledger.cells();
        let mut by_stack: FxHashMap<_, Counted> = FxHashMap::default();
        for (key, count) in cells.keys().iter().zip(cells.counts()) {
            let stack = by_stack.entry(key.node).or_default();
            stack
                .live
                .add(self.law, key.size, key.size, u64::from(count.live));
            stack.acquired.add(self.law, key.size, key.size, count.ever);
        }
        for block in self.ledger.live_blocks() {
            if !block.is_inherited() && block.born_us().saturating_mul(1000) >= self.middle_ns {
                let key = cells.key(block.cell);
                let stack = by_stack.entry(key.node).or_default();
                stack.change.born.add(self.law, key.size, key.size, 1);
            }
        }
        for (node, died) in &self.died {
            let stack = by_stack.entry(skinflint_trace::NodeId(*node)).or_default();
            stack.change.died = *died;
        }
        by_stack
    }
}

/// What is counted of a stack.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    live: Sum,
    acquired: Sum,
    change: Change,
}

impl Counted {
    /// Returns by how much it grew, if it certainly did (P4).
    fn growth(&self) -> Option<Growth> {
        let Change { born, died } = self.change;
        let grown = born.estimate() - died.estimate();
        let error = (born.variance() + died.variance()).sqrt();
        let is_certain = grown > CERTAIN * error && grown >= 1.0;
        let has_few = (1..3).contains(&born.samples());
        (is_certain && !has_few).then_some(Growth {
            bytes: grown as u64,
            low: (grown - 1.96 * error) as u64,
            high: (grown + 1.96 * error) as u64,
        })
    }
}

#[cfg(test)]
mod tests;
