//! Medians, ratios to the reference, and the confidence in them.
//!
//! ```text
//!   rounds:      1   2   3   4   5          draw rounds with repetition, 4,000 times:
//!   reference   r1  r2  r3  r4  r5     ─►   median(drawn a) / median(drawn r) ─► middle 95 % = the interval
//!   allocator   a1  a2  a3  a4  a5
//! ```
//!
//! S1  Whole rounds are drawn: what disturbed a round disturbed both sides of it.
//! S2  "Distinct" needs [`ENOUGH`] rounds, an interval without 1, and a difference above what the measurement can
//!     resolve. An interval from fewer rounds would be too narrow, so there is none.
//! S3  The same input and seed give the same interval.
//! S4  No figure is made up: there is no ratio to 0, no logarithm of 0.
//!
//! Source: the percentile bootstrap after Efron, "Bootstrap Methods: Another Look at the Jackknife", 1979; the
//! geometric mean of ratios after Fleming and Wallace, "How not to lie with statistics", 1986.
//!
//! Not here: taking the figures, warnings about them (doubt.rs).

use crate::model::{Cell, Measure, Sure};
use skinflint_base::random::Random;

/// The number of rounds below which nothing is called distinct. With five, a median's bootstrap can miss the truth in
/// about one case out of ten (it has few values to draw); with three, in one out of four.
pub const ENOUGH: usize = 5;

/// The least relative difference that is called distinct: one that would read as 1.00 is not.
const LEAST: f64 = 0.005;

/// The number of draws of the bootstrap.
const DRAWS: usize = 4_000;

/// Returns the median; `None` if there are no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    median_of_sorted(&sorted)
}

fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len().is_multiple_of(2) {
        Some((sorted[middle - 1] + upper) / 2.0)
    } else {
        Some(upper)
    }
}

/// Returns what a difference must exceed, besides chance: what the measurement itself can resolve.
fn resolution(measure: Measure) -> f64 {
    match measure {
        // Resident memory comes in pages; a few move with the length of the environment.
        _ if measure.is_bytes() => 16.0 * 4096.0,
        // The start of a process, and our noticing its end, vary by this much.
        Measure::ElapsedNs | Measure::CpuNs | Measure::UserNs | Measure::SystemNs => 1e6,
        Measure::MinorFaults => 16.0,
        _ => 0.0,
    }
}

/// Computes the cell of one allocator. Values are in the order of rounds; a round that either lacks is NaN there.
/// `reference` is `None` for the reference itself.
pub fn cell(measure: Measure, own: &[f64], reference: Option<&[f64]>, seed: u64) -> Option<Cell> {
    let known: Vec<f64> = own.iter().copied().filter(|v| v.is_finite()).collect();
    let mid = median(&known)?;
    let lowest = known.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = known.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut cell = Cell {
        measure,
        median: mid,
        lowest,
        highest,
        ratio: None,
        interval: None,
        sure: Sure::Reference,
    };
    let Some(reference) = reference else {
        cell.ratio = Some(1.0);
        return Some(cell);
    };
    let pairs: Vec<(f64, f64)> = own
        .iter()
        .copied()
        .zip(reference.iter().copied())
        .filter(|(a, r)| a.is_finite() && r.is_finite())
        .collect();
    cell.sure = Sure::TooFewRuns;
    let mid_of = |of: fn(&(f64, f64)) -> f64| {
        let values: Vec<f64> = pairs.iter().map(of).collect();
        median(&values)
    };
    let (Some(a), Some(r)) = (mid_of(|p| p.0), mid_of(|p| p.1)) else {
        return Some(cell);
    };
    cell.ratio = (r > 0.0).then(|| a / r);
    if pairs.len() < ENOUGH {
        return Some(cell);
    }
    cell.interval = interval(&pairs, seed);
    let beyond_one = cell
        .interval
        .is_some_and(|(low, high)| low > 1.0 || high < 1.0);
    let is_seen = (a - r).abs() > resolution(measure) && (a / r - 1.0).abs() >= LEAST;
    cell.sure = if beyond_one && is_seen {
        Sure::Distinct
    } else {
        Sure::NotDistinguishable
    };
    Some(cell)
}

/// Returns the middle 95 % of ratios of medians over drawn rounds (S1); `None` if a reference can be 0.
fn interval(pairs: &[(f64, f64)], seed: u64) -> Option<(f64, f64)> {
    let mut numbers = Random::new(seed);
    let mut ratios = Vec::with_capacity(DRAWS);
    let (mut own, mut reference) = (vec![0.0; pairs.len()], vec![0.0; pairs.len()]);
    for _ in 0..DRAWS {
        for at in 0..pairs.len() {
            (own[at], reference[at]) = pairs[numbers.index(pairs.len())];
        }
        own.sort_by(f64::total_cmp);
        reference.sort_by(f64::total_cmp);
        let (a, r) = (median_of_sorted(&own)?, median_of_sorted(&reference)?);
        if r <= 0.0 {
            return None;
        }
        ratios.push(a / r);
    }
    ratios.sort_by(f64::total_cmp);
    let at = |share: f64| ratios[((DRAWS - 1) as f64 * share).round() as usize];
    Some((at(0.025), at(0.975)))
}

/// Returns the geometric mean; `None` if there are no values, or if one is not above 0 (S4).
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|v| !v.is_finite() || *v <= 0.0) {
        return None;
    }
    let sum: f64 = values.iter().map(|value| value.ln()).sum();
    Some((sum / values.len() as f64).exp())
}

/// Returns which values lie far from the rest: more than five times the median distance from the median, and more
/// than 2 % of it. Fewer than five values have no rest to be far from.
pub fn outliers(values: &[f64]) -> Vec<usize> {
    let Some(mid) = median(values).filter(|_| values.len() >= ENOUGH) else {
        return Vec::new();
    };
    let distances: Vec<f64> = values.iter().map(|value| (value - mid).abs()).collect();
    let usual = median(&distances).unwrap_or(0.0);
    let far = (5.0 * usual).max(0.02 * mid.abs());
    let numbered = distances.iter().enumerate();
    numbered
        .filter(|(_, d)| **d > far)
        .map(|(i, _)| i)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEASURE: Measure = Measure::PeakBytes;
    const MIB: f64 = 1048576.0;

    fn compared(own: &[f64], reference: &[f64]) -> Cell {
        cell(MEASURE, own, Some(reference), 1).expect("values")
    }

    #[test]
    fn medians_by_hand() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        let mean = geometric_mean(&[0.5, 2.0, 1.0]).expect("above 0");
        assert!((mean - 1.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
        assert_eq!(geometric_mean(&[]), None);
    }

    #[test]
    fn a_clear_difference_is_distinct_and_its_interval_holds_the_truth() {
        let reference = [100.0, 101.0, 99.0, 100.0, 102.0].map(|v| v * MIB);
        let own = [80.0, 81.0, 79.0, 80.0, 82.0].map(|v| v * MIB);
        let cell = compared(&own, &reference);
        assert_eq!((cell.sure, cell.ratio), (Sure::Distinct, Some(0.8)));
        let (low, high) = cell.interval.expect("enough");
        assert!(low <= 0.8 && 0.8 <= high && low > 0.75 && high < 0.85);
        assert_eq!(compared(&own, &reference), cell);
    }

    #[test]
    fn what_overlaps_is_not_distinguishable() {
        let reference = [100.0, 120.0, 90.0, 110.0, 95.0].map(|v| v * MIB);
        let own = [105.0, 98.0, 112.0, 91.0, 117.0].map(|v| v * MIB);
        assert_eq!(compared(&own, &reference).sure, Sure::NotDistinguishable);
        // Both sides are the same: a ratio of 1, and no doubt about it, but no difference.
        let same = compared(&reference, &reference);
        assert_eq!(same.interval, Some((1.0, 1.0)));
        assert_eq!(same.sure, Sure::NotDistinguishable);
    }

    #[test]
    fn a_difference_below_the_resolution_is_none() {
        let reference = [MIB; 5];
        let own = [MIB + 8.0 * 4096.0; 5];
        let cell = compared(&own, &reference);
        assert!(cell.interval.expect("enough").0 > 1.0);
        assert_eq!(cell.sure, Sure::NotDistinguishable);
        // Many pages differ, but the ratio reads as 1.00.
        let cell = compared(&[1004.0 * MIB; 5], &[1000.0 * MIB; 5]);
        assert_eq!(cell.sure, Sure::NotDistinguishable);
        let cell = compared(&[1006.0 * MIB; 5], &[1000.0 * MIB; 5]);
        assert_eq!(cell.sure, Sure::Distinct);
    }

    #[test]
    fn few_rounds_give_no_interval() {
        let cell = compared(&[80.0 * MIB; 4], &[100.0 * MIB; 4]);
        assert_eq!((cell.sure, cell.interval), (Sure::TooFewRuns, None));
        assert_eq!(cell.ratio, Some(0.8));
    }

    #[test]
    fn a_missing_round_is_left_out_on_both_sides_and_nothing_is_divided_by_0() {
        let cell = compared(&[f64::NAN, 2.0, 2.0], &[100.0, 1.0, 1.0]);
        assert_eq!((cell.median, cell.ratio), (2.0, Some(2.0)));
        let zero = compared(&[1.0; 5], &[0.0; 5]);
        assert_eq!((zero.ratio, zero.interval), (None, None));
        assert!(super::cell(MEASURE, &[f64::NAN], None, 1).is_none());
    }

    /// Tests with many pairs of samples from the same distribution: about one in twenty is called distinct; a median
    /// of few values makes that a little more, and far more would be a lie.
    #[test]
    fn equals_are_rarely_told_apart() {
        let mut numbers = Random::new(7);
        let draw = |numbers: &mut Random| -> [f64; 7] {
            std::array::from_fn(|_| {
                let sum: f64 = (0..12).map(|_| numbers.index(1 << 20) as f64).sum();
                100.0 * MIB + sum * 4.0
            })
        };
        let tries = 400;
        let wrong = (0..tries)
            .filter(|seed| {
                let (own, reference) = (draw(&mut numbers), draw(&mut numbers));
                let cell = cell(MEASURE, &own, Some(&reference), *seed).expect("values");
                cell.sure == Sure::Distinct
            })
            .count();
        assert!(wrong < tries as usize / 10, "{wrong} of {tries}");
        assert!(wrong > 0, "an interval that is never wrong is too wide");
    }

    #[test]
    fn outliers_are_far_from_the_rest() {
        assert_eq!(outliers(&[10.0, 10.1, 9.9, 10.0, 30.0]), [4]);
        assert!(outliers(&[10.0, 10.1, 9.9, 10.0, 10.15]).is_empty());
        assert!(outliers(&[1.0, 1.0, 9.0]).is_empty());
    }
}

#[cfg(test)]
#[path = "stats_tests.rs"]
mod edges;
