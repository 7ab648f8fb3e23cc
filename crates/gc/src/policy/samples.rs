//! Memory over a run: one mean, one peak, one mean right after collections, of each of five figures.
//!
//! ```text
//!   every SAMPLE bytes allocated, before a collection, after it ─► add ─► sizes
//! ```
//!
//! U1  All five figures have the same samples, so that they can be subtracted from each other.
//!
//! Not here: when a sample is due (`replay`, `live`).

use super::space::Figures;

/// Bytes allocated between two samples.
pub(crate) const SAMPLE: u64 = 256 << 10;

/// Memory over the samples, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Size {
    /// Mean over the samples.
    pub mean: f64,
    /// The most.
    pub peak: u64,
    /// Mean over the samples right after collections.
    pub after: f64,
}

#[derive(Default)]
struct Sum {
    all: f64,
    peak: u64,
    after: f64,
}

/// Samples so far.
#[derive(Default)]
pub(crate) struct Samples {
    count: u64,
    after_count: u64,
    sums: [Sum; 5],
}

/// What became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sizes {
    pub(crate) committed: Size,
    pub(crate) with_tables: Size,
    pub(crate) resident: Size,
    pub(crate) needed: Size,
    pub(crate) wasted: Size,
}

impl Samples {
    /// One more. `after`: right after a collection.
    pub(crate) fn add(&mut self, figures: &Figures, needed: u64, after: bool) {
        self.count += 1;
        self.after_count += u64::from(after);
        let all = [
            figures.committed_bytes as u64,
            (figures.committed_bytes + figures.table_bytes) as u64,
            figures.resident_bytes as u64,
            needed,
            figures.wasted_bytes as u64,
        ];
        for (sum, bytes) in self.sums.iter_mut().zip(all) {
            sum.all += bytes as f64;
            sum.peak = sum.peak.max(bytes);
            if after {
                sum.after += bytes as f64;
            }
        }
    }

    pub(crate) fn sizes(&self) -> Sizes {
        let [committed, with_tables, resident, needed, wasted] =
            self.sums.each_ref().map(|sum| Size {
                mean: sum.all / self.count.max(1) as f64,
                peak: sum.peak,
                after: sum.after / self.after_count.max(1) as f64,
            });
        Sizes {
            committed,
            with_tables,
            resident,
            needed,
            wasted,
        }
    }
}
