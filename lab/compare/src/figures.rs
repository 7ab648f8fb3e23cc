//! From samples to figures: peak, mean, after free, final; and the curve that is drawn.
//!
//! ```text
//!   bytes │      ╭─╮ peak
//!         │   ╭──╯ │          ╭─ final: the usual level of the last tenth
//!         │ ╭─╯    ╰──╮   ╭───╯
//!         │─╯         ╰───╯ after free: the lowest level after the peak that held
//!         └───────────────────── ms        mean: area / time
//! ```
//!
//! F1  Between two samples memory is taken to be that of the first: the mean is a sum of such steps.
//! F2  A level holds if three samples in a row are not above it: one sample between two calls does not make a low.
//! F3  final, after free, mean ≤ peak. Without a sample there is no figure. Final is a median, since programs end in
//!     pieces (a server stops, its shell goes on for a moment) and the last sample falls anywhere in that.
//! F4  After free and final are taken over the life of the process that held most at the peak: when a server has
//!     ended, its shell holds little, and that is no merit of the allocator.
//! F5  The curve keeps the lowest and the highest sample of each piece of time, so the drawn peak is the peak.
//!
//! Not here: taking samples (run.rs), comparing (stats.rs).

use crate::model::Point;

/// The number of samples in a row that make a level (F2).
const HOLDS: usize = 3;

/// The end is the last tenth of the time, but at least this many samples.
const LEAST_END: usize = 5;

/// The pieces of time of a curve; a curve has at most twice as many points, and the last one.
const PIECES: usize = 300;

/// The figures of one run's memory, bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Levels {
    /// The highest sample.
    pub peak: u64,
    /// Mean over time.
    pub mean: f64,
    /// The lowest level after the peak.
    pub after_free: u64,
    /// The median of the last tenth of the time.
    pub last: u64,
}

/// Computes the figures of samples, which are in the order of time. `end_ms` is when the run ended, `main_ended_ms`
/// the last moment at which the main process was seen (F4). Returns `None` without samples.
pub fn levels(samples: &[Point], end_ms: f64, main_ended_ms: f64) -> Option<Levels> {
    let (top, (_, peak)) = samples.iter().enumerate().max_by_key(|(_, (_, b))| *b)?;
    let of_main = samples.partition_point(|(at, _)| *at <= main_ended_ms);
    let of_main = &samples[..of_main.max(top + 1)];
    let after = &of_main[top..];
    let after_free = after
        .windows(HOLDS.min(after.len()))
        .filter_map(|window| window.iter().map(|(_, bytes)| *bytes).max())
        .min()
        .unwrap_or(*peak);
    Some(Levels {
        peak: *peak,
        mean: mean(samples, end_ms),
        after_free,
        last: last(of_main),
    })
}

fn last(samples: &[Point]) -> u64 {
    let first_ms = samples.first().map_or(0.0, |(at, _)| *at);
    let end_ms = samples.last().map_or(0.0, |(at, _)| *at);
    let from = end_ms - (end_ms - first_ms) / 10.0;
    let in_time = samples.iter().filter(|(at, _)| *at >= from).count();
    let count = in_time.max(LEAST_END).min(samples.len());
    let mut end: Vec<u64> = samples[samples.len() - count..]
        .iter()
        .map(|(_, bytes)| *bytes)
        .collect();
    end.sort_unstable();
    end.get(end.len() / 2).copied().unwrap_or(0)
}

fn mean(samples: &[Point], end_ms: f64) -> f64 {
    let Some((first, _)) = samples.first() else {
        return 0.0;
    };
    let ends = samples[1..].iter().map(|(at, _)| *at).chain([end_ms]);
    let area: f64 = samples
        .iter()
        .zip(ends)
        .map(|((at, bytes), end)| (end - at).max(0.0) * *bytes as f64)
        .sum();
    let span = end_ms - first;
    if span > 0.0 {
        area / span
    } else {
        samples.iter().map(|(_, bytes)| *bytes as f64).sum::<f64>() / samples.len() as f64
    }
}

/// Returns the samples that are drawn (F5).
pub fn curve(samples: &[Point]) -> Vec<Point> {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
        return Vec::new();
    };
    if samples.len() <= 2 * PIECES {
        return samples.to_vec();
    }
    let width = (last.0 - first.0) / PIECES as f64;
    let mut out: Vec<Point> = Vec::with_capacity(2 * PIECES + 1);
    let mut rest = samples;
    for piece in 1..=PIECES {
        let end = first.0 + width * piece as f64;
        let count = if piece == PIECES {
            rest.len()
        } else {
            rest.partition_point(|(at, _)| *at < end)
        };
        let (inside, after) = rest.split_at(count);
        rest = after;
        let low = inside.iter().min_by_key(|(_, bytes)| *bytes);
        let high = inside.iter().max_by_key(|(_, bytes)| *bytes);
        if let (Some(low), Some(high)) = (low, high) {
            let (one, two) = if low.0 <= high.0 {
                (low, high)
            } else {
                (high, low)
            };
            out.push(*one);
            if two.0 > one.0 {
                out.push(*two);
            }
        }
    }
    if out.last() != Some(last) {
        out.push(*last);
    }
    out
}

/// Measures how even the samples are: the longest gap in milliseconds, and the part of the time that lay in gaps of
/// more than three intervals.
pub fn gaps(samples: &[Point], interval_ms: f64, end_ms: f64) -> (f64, f64) {
    let times = samples.iter().map(|(at, _)| *at);
    let ends = times.clone().skip(1).chain([end_ms]);
    let (mut worst, mut late) = (0.0_f64, 0.0);
    for gap in times.zip(ends).map(|(from, to)| to - from) {
        worst = worst.max(gap);
        if gap > 3.0 * interval_ms {
            late += gap;
        }
    }
    (worst, if end_ms > 0.0 { late / end_ms } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_10_ms(bytes: &[u64]) -> Vec<Point> {
        let points = bytes.iter().enumerate();
        points.map(|(i, b)| (i as f64 * 10.0, *b)).collect()
    }

    #[test]
    fn by_hand() {
        // It rises to 100, falls to 20 for three samples, dips to 5 once, ends at 40, and goes away in pieces.
        let samples = every_10_ms(&[10, 100, 20, 20, 20, 40, 5, 40, 41, 1]);
        let found = levels(&samples, 100.0, 100.0).expect("samples");
        assert_eq!((found.peak, found.after_free, found.last), (100, 20, 40));
        assert_eq!(found.mean, 297.0 / 10.0);
    }

    #[test]
    fn what_comes_after_the_main_process_is_no_low() {
        // A server holds 100, then 60; from 60 ms on only its shell is left.
        let samples = every_10_ms(&[10, 100, 100, 60, 60, 60, 60, 2, 2, 2, 2]);
        let found = levels(&samples, 110.0, 60.0).expect("samples");
        assert_eq!((found.peak, found.after_free, found.last), (100, 60, 60));
        assert_eq!(found.mean, 458.0 / 11.0);
        assert_eq!(
            levels(&samples, 110.0, 110.0).expect("samples").after_free,
            2
        );
    }

    #[test]
    fn who_frees_nothing_has_its_peak_after_free() {
        let samples = every_10_ms(&[1, 2, 3, 4]);
        let found = levels(&samples, 40.0, 40.0).expect("samples");
        assert_eq!((found.peak, found.after_free, found.last), (4, 4, 3));
        assert_eq!(levels(&[], 1.0, 1.0), None);
        let one = levels(&[(0.0, 7)], 0.0, 0.0).expect("one");
        assert_eq!((one.peak, one.mean, one.after_free), (7, 7.0, 7));
    }

    #[test]
    fn uneven_samples_weigh_by_their_time() {
        let found = levels(&[(0.0, 100), (10.0, 0)], 100.0, 100.0).expect("samples");
        assert_eq!(found.mean, 10.0);
        assert_eq!(gaps(&[(0.0, 1), (10.0, 1)], 10.0, 100.0), (90.0, 0.9));
        assert_eq!(gaps(&every_10_ms(&[1; 5]), 10.0, 50.0), (10.0, 0.0));
    }

    #[test]
    fn a_curve_keeps_extremes_and_ends() {
        let mut samples: Vec<Point> = (0..10_000).map(|i| (f64::from(i), 50)).collect();
        samples[4_321].1 = 99;
        samples[7_777].1 = 1;
        let drawn = curve(&samples);
        assert!(drawn.len() <= 2 * PIECES + 1);
        assert!(drawn.contains(&(4_321.0, 99)) && drawn.contains(&(7_777.0, 1)));
        assert_eq!(drawn.first(), samples.first());
        assert_eq!(drawn.last(), samples.last());
        assert!(drawn.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(curve(&samples[..600]).len(), 600);
    }
}
