//! Memory over a run: for each of five figures a mean, a peak, and a mean right after collections.
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
    /// The largest of the samples.
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

/// The samples so far.
#[derive(Default)]
pub(crate) struct Samples {
    count: u64,
    after_count: u64,
    sums: [Sum; 5],
}

/// The figures of all samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sizes {
    pub(crate) committed: Size,
    pub(crate) with_tables: Size,
    pub(crate) resident: Size,
    pub(crate) needed: Size,
    pub(crate) wasted: Size,
}

impl Samples {
    /// Adds a sample. `after`: right after a collection.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_over_their_own_samples() {
        let mut samples = Samples::default();
        assert_eq!(samples.sizes().needed, Size::default(), "none yet");
        let figures = |committed| Figures {
            committed_bytes: committed,
            table_bytes: 1,
            ..Figures::default()
        };
        samples.add(&figures(10), 4, false);
        let none_after = samples.sizes().committed;
        assert_eq!((none_after.mean, none_after.after), (10.0, 0.0));
        samples.add(&figures(20), 8, true);
        samples.add(&figures(60), 0, true);
        let sizes = samples.sizes();
        let size = |mean, peak, after| Size { mean, peak, after };
        assert_eq!(sizes.committed, size(30.0, 60, 40.0));
        assert_eq!(sizes.with_tables, size(31.0, 61, 41.0));
        assert_eq!(sizes.needed, size(4.0, 8, 4.0));
    }
}
