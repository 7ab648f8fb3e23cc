//! Sums over sampled blocks, and their intervals.
//!
//! ```text
//!   size ─Law─► p        blocks of one size ─► Sum { exact │ Σ x/p, Σ (x/p)² (1 − p), samples } ─► Figure
//! ```
//!
//! The invariants sampled.P1 and sampled.P3 are those of sampled.rs. Not here: which blocks are in a sum.

use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};
use skinflint_trace::ProcessInfo;

/// How the allocator of a trace of Go's own samples is called.
const GO: &str = "Go's heap";

/// The law by which blocks are samples: a mean distance in requested bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Law {
    sample_bytes: u64,
    /// From this size on every block is one.
    certain_bytes: u64,
}

impl Law {
    /// The law of a rate; 0: every block is there.
    pub fn of(sample_bytes: u64) -> Law {
        Law {
            sample_bytes,
            certain_bytes: sample_bytes,
        }
    }

    /// The law of a process's trace. Go draws for blocks of any size.
    pub fn of_process(process: &ProcessInfo) -> Law {
        let certain_bytes = match process.allocator.starts_with(GO) {
            true => u64::MAX,
            false => process.sample_bytes,
        };
        Law {
            sample_bytes: process.sample_bytes,
            certain_bytes,
        }
    }

    /// Returns the probability with which a block of this size is a sample.
    pub fn probability(self, size: u64) -> f64 {
        let size = size.max(1);
        match size >= self.certain_bytes {
            true => 1.0,
            false => -(-(size as f64) / self.sample_bytes as f64).exp_m1(),
        }
    }
}

/// A sum over sampled blocks.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Sum {
    /// Of blocks that are always recorded.
    exact: f64,
    exact_blocks: f64,
    /// Of samples, weighed.
    weighed: f64,
    weighed_blocks: f64,
    variance: f64,
    /// Of samples, as they are.
    seen: f64,
    samples: u64,
}

impl Sum {
    /// Adds so many blocks of one size, with the bytes that count of each.
    pub fn add(&mut self, law: Law, size: u64, bytes: u64, blocks: u64) {
        let all = bytes as f64 * blocks as f64;
        self.add_some(law, size, all, all * bytes as f64, blocks);
    }

    /// Adds so many blocks of one size: all the bytes that count, and a bound of the sum of their squares.
    pub(super) fn add_some(&mut self, law: Law, size: u64, all: f64, squares: f64, blocks: u64) {
        let p = law.probability(size);
        if p >= 1.0 {
            self.exact += all;
            self.exact_blocks += blocks as f64;
            return;
        }
        self.weighed += all / p;
        self.weighed_blocks += blocks as f64 / p;
        self.variance += squares / p * ((1.0 - p) / p);
        self.seen += all;
        self.samples += blocks;
    }

    /// Returns the estimate.
    pub fn estimate(&self) -> f64 {
        self.exact + self.weighed
    }

    /// Returns the estimate in whole bytes.
    pub fn bytes(&self) -> u64 {
        self.estimate().round() as u64
    }

    /// Returns the variance of the estimate.
    pub fn variance(&self) -> f64 {
        self.variance
    }

    /// Returns the number of samples: blocks that are not always recorded.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns the estimate with its interval (sampled.P3).
    pub fn figure(&self) -> Figure {
        let n = self.samples as f64;
        // Anscombe's root of a Poisson count.
        let counted = |side: f64| ((n + 0.375).sqrt() + side * 0.98).powi(2) - 0.375;
        let ends = match self.samples {
            0 => Some((0.0, 0.0)),
            1 | 2 => None,
            3..10 => Some((
                self.weighed / n * counted(-1.0),
                self.weighed / n * counted(1.0),
            )),
            _ => {
                let half = 1.96 * self.variance.sqrt();
                Some((self.weighed - half, self.weighed + half))
            }
        };
        let whole = |one: f64| (self.exact + one.max(self.seen)).round() as u64;
        Figure {
            bytes: self.bytes(),
            low: ends.map(|(low, _)| whole(low)),
            high: ends.map(|(_, high)| whole(high)),
            blocks: (self.exact_blocks + self.weighed_blocks).round() as u64,
            samples: self.samples,
        }
    }
}

impl Add for Sum {
    type Output = Sum;

    fn add(mut self, other: Sum) -> Sum {
        self += other;
        self
    }
}

impl AddAssign for Sum {
    fn add_assign(&mut self, other: Sum) {
        self.exact += other.exact;
        self.exact_blocks += other.exact_blocks;
        self.weighed += other.weighed;
        self.weighed_blocks += other.weighed_blocks;
        self.variance += other.variance;
        self.seen += other.seen;
        self.samples += other.samples;
    }
}

impl std::iter::Sum for Sum {
    fn sum<I: Iterator<Item = Sum>>(all: I) -> Sum {
        all.fold(Sum::default(), Add::add)
    }
}

/// An estimate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Figure {
    /// Bytes.
    pub bytes: u64,
    /// The lower end of its interval of 95 %; `null` if there are too few samples for one.
    pub low: Option<u64>,
    /// The upper end.
    pub high: Option<u64>,
    /// Blocks that it stands for.
    pub blocks: u64,
    /// Samples behind it; blocks of the rate or more are no samples: all of them are recorded.
    pub samples: u64,
}
