//! The heap over time, in a bounded number of points.
//!
//! ```text
//!   |max|max|max| … |max|      each interval: the largest live heap within it; when the points are
//!   └─ interval ns ─┘          used up, neighbours merge and the interval doubles
//! ```
//!
//! T1  At most `points` intervals, of one length; only the last is open.
//! T2  An interval's figures are all of one moment: the one with most live usable bytes.
//! T3  An interval in which nothing happened carries the level of the one before.
//!
//! Not here: resident memory, which is sampled (`thin_rss` only thins it).

use skinflint_trace::RssSample;

use crate::model::Timeline;
use crate::sums::Live;

/// The first interval, 65 µs: short enough for a program of a few milliseconds.
const FIRST_INTERVAL_NS: u64 = 1 << 16;

#[derive(Clone, Copy, Debug, Default)]
struct Point {
    live: Live,
    allocations: u64,
}

/// The heap curve while it grows.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    closed: Vec<Point>,
    open: Point,
    /// The end of the open interval.
    end_ns: u64,
    interval_ns: u64,
    limit: usize,
}

impl Curve {
    pub(crate) fn new(points: usize) -> Curve {
        Curve {
            closed: Vec::new(),
            open: Point::default(),
            end_ns: FIRST_INTERVAL_NS,
            interval_ns: FIRST_INTERVAL_NS,
            limit: points.max(2),
        }
    }

    /// Moves the time on to `time_ns`, at a level of `live`. Cost: one comparison within an interval.
    #[inline]
    pub(crate) fn advance(&mut self, time_ns: u64, live: &Live) {
        if time_ns >= self.end_ns {
            self.advance_slow(time_ns, live);
        }
    }

    #[cold]
    #[inline(never)]
    fn advance_slow(&mut self, time_ns: u64, live: &Live) {
        while time_ns >= self.end_ns {
            if self.closed.len() + 1 >= self.limit {
                self.halve();
                continue;
            }
            self.closed.push(self.open);
            self.open = Point {
                live: *live,
                allocations: 0,
            };
            self.end_ns = self.end_ns.saturating_add(self.interval_ns);
            if self.end_ns == u64::MAX {
                return;
            }
        }
    }

    /// Doubles the interval (T1). With an odd number of closed points the last one joins the open
    /// interval, whose end stays; with an even number the open interval becomes longer.
    fn halve(&mut self) {
        let odd = if self.closed.len() % 2 == 1 {
            self.closed.pop()
        } else {
            None
        };
        self.closed = self
            .closed
            .chunks(2)
            .map(|pair| merge(pair[0], pair[1]))
            .collect();
        match odd {
            Some(before) => self.open = merge(before, self.open),
            None => self.end_ns = self.end_ns.saturating_add(self.interval_ns),
        }
        self.interval_ns = self.interval_ns.saturating_mul(2);
    }

    /// Notes that a block was acquired; the level is now `live`.
    #[inline]
    pub(crate) fn acquired(&mut self, live: &Live) {
        self.open.allocations += 1;
        if live.usable_bytes > self.open.live.usable_bytes {
            self.open.live = *live;
        }
    }

    /// Returns the acquisitions of the intervals that had ended at a time.
    pub(crate) fn allocations_until(&self, time_ns: u64) -> u64 {
        let whole = time_ns / self.interval_ns;
        let whole = self
            .closed
            .iter()
            .take(usize::try_from(whole).unwrap_or(usize::MAX));
        whole.map(|point| point.allocations).sum()
    }

    /// Sets the level at the start.
    pub(crate) fn start(&mut self, live: &Live) {
        self.open.live = *live;
    }

    /// Returns the curve, as the heap columns of a timeline; the last interval ends at `end_ns`.
    pub(crate) fn finish(mut self, end_ns: u64, live: &Live) -> Timeline {
        self.advance(end_ns, live);
        let mut timeline = Timeline::default();
        let count = self.closed.len() as u64;
        let points = self.closed.iter().chain(std::iter::once(&self.open));
        for (index, point) in (0u64..).zip(points) {
            let end = if index == count {
                end_ns
            } else {
                (index + 1) * self.interval_ns
            };
            timeline.heap_t_ns.push(end);
            timeline
                .live_requested_bytes
                .push(point.live.requested_bytes);
            timeline.live_usable_bytes.push(point.live.usable_bytes);
            timeline.live_blocks.push(point.live.blocks);
            timeline.allocations.push(point.allocations);
        }
        timeline
    }
}

fn merge(a: Point, b: Point) -> Point {
    let live = if b.live.usable_bytes > a.live.usable_bytes {
        b.live
    } else {
        a.live
    };
    Point {
        live,
        allocations: a.allocations + b.allocations,
    }
}

/// Puts the resident samples into a timeline: all of them, or the one with most resident memory of
/// each run of neighbours, so that no peak is lost.
pub(crate) fn thin_rss(samples: &[RssSample], points: usize, timeline: &mut Timeline) {
    let run = samples.len().div_ceil(points.max(1)).max(1);
    for chunk in samples.chunks(run) {
        let Some(sample) = chunk.iter().max_by_key(|sample| sample.rss_bytes) else {
            continue;
        };
        timeline.rss_t_ns.push(sample.time_ns);
        timeline.rss_bytes.push(sample.rss_bytes);
        timeline.anon_bytes.push(sample.anon_bytes);
        timeline.pss_bytes.push(sample.pss_bytes);
    }
}

impl Timeline {
    /// Returns the acquisitions of the intervals that had ended at a time.
    pub(crate) fn allocations_until(&self, time_ns: u64) -> u64 {
        let intervals = self.heap_t_ns.iter().zip(&self.allocations);
        let whole = intervals.take_while(|(end_ns, _)| **end_ns <= time_ns);
        whole.map(|(_, allocations)| *allocations).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_base::random::Random;

    fn live(usable_bytes: u64) -> Live {
        Live {
            blocks: 1,
            requested_bytes: usable_bytes,
            usable_bytes,
        }
    }

    /// Against all moments kept: of each interval of the result, the maximum by brute force.
    #[test]
    fn points_are_maxima_of_their_intervals() {
        for seed in 1..=6u64 {
            let mut random = Random::new(seed);
            let mut next = |bound: u64| random.below(bound);
            let mut curve = Curve::new(8 + seed as usize);
            let (mut now, mut level) = (0, Live::default());
            let mut moments = vec![(0, 0, 0)];
            for step in 0..500 {
                now += next(if step == 250 { 100_000_000 } else { 50_000 });
                curve.advance(now, &level);
                if next(3) > 0 {
                    level = live(level.usable_bytes + next(1000));
                    curve.acquired(&level);
                    moments.push((now, level.usable_bytes, 1));
                } else {
                    level = live(level.usable_bytes / 2);
                    moments.push((now, level.usable_bytes, 0));
                }
            }
            let result = curve.finish(now, &level);
            assert!(result.heap_t_ns.len() <= 8 + seed as usize);
            assert_eq!(*result.heap_t_ns.last().unwrap(), now);
            let mut from = 0;
            for (index, &to) in result.heap_t_ns.iter().enumerate() {
                let last = index + 1 == result.heap_t_ns.len();
                let carried = moments
                    .iter()
                    .rfind(|moment| moment.0 < from)
                    .map_or(0, |m| m.1);
                let inside = moments
                    .iter()
                    .filter(|moment| moment.0 >= from && (moment.0 < to || last));
                let want = inside
                    .clone()
                    .map(|moment| moment.1)
                    .max()
                    .unwrap_or(0)
                    .max(carried);
                assert_eq!(
                    result.live_usable_bytes[index], want,
                    "seed {seed} point {index}"
                );
                let count: u64 = inside.map(|moment| moment.2).sum();
                assert_eq!(
                    result.allocations[index], count,
                    "seed {seed} point {index}"
                );
                from = to;
            }
        }
    }

    #[test]
    fn thinning_keeps_the_peak() {
        let samples: Vec<_> = (0..10)
            .map(|n| RssSample {
                time_ns: n,
                rss_bytes: (n * 7) % 10,
                ..RssSample::default()
            })
            .collect();
        let mut timeline = Timeline::default();
        thin_rss(&samples, 4, &mut timeline);
        // Runs of three: 0 7 4 | 1 8 5 | 2 9 6 | 3.
        assert_eq!(timeline.rss_bytes, [7, 8, 9, 3]);
        assert_eq!(timeline.rss_t_ns, [1, 4, 7, 9]);
    }

    #[test]
    fn acquisitions_until_a_time_are_those_of_whole_intervals() {
        let mut curve = Curve::new(8);
        for interval in 0..4 {
            curve.advance(interval * FIRST_INTERVAL_NS, &Live::default());
            (0..=interval).for_each(|_| curve.acquired(&live(1)));
        }
        let of = |time_ns| {
            let line = curve.clone().finish(4 * FIRST_INTERVAL_NS - 1, &live(1));
            assert_eq!(
                line.allocations_until(time_ns),
                curve.allocations_until(time_ns)
            );
            curve.allocations_until(time_ns)
        };
        assert_eq!(
            (of(0), of(FIRST_INTERVAL_NS - 1), of(FIRST_INTERVAL_NS)),
            (0, 0, 1)
        );
        assert_eq!(of(3 * FIRST_INTERVAL_NS), 1 + 2 + 3);
    }

    #[test]
    fn a_point_has_all_figures_of_its_moment() {
        let mut curve = Curve::new(4);
        curve.acquired(&Live {
            blocks: 2,
            requested_bytes: 30,
            usable_bytes: 48,
        });
        let line = curve.finish(7, &Live::default());
        assert_eq!((line.heap_t_ns, line.allocations), (vec![7], vec![1]));
        assert_eq!(line.live_blocks, [2]);
        assert_eq!(line.live_requested_bytes, [30]);
        assert_eq!(line.live_usable_bytes, [48]);
    }
}
