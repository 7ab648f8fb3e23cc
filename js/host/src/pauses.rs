//! Lengths of pauses, in a space that does not grow.
//!
//! ```text
//!   ns ──► bucket: 32 to a doubling, so a percentile is at most 1/32 above the true one
//! ```
//!
//! P1  count, sum and longest are exact; the sum of the buckets is the count (asserted in the report).
//! P2  No allocation after `new`: a pause is noted while the heap is at work.
//! P3  Many short pauses close together are as bad as a long one: the worst sum of those that end within 20 ms is kept,
//!     by a clock's milliseconds, 20 in a row.
//!
//! Not here: who measures (`heap`, and `watch` for the stock heap).

use serde::Serialize;

/// Buckets to a doubling.
const STEPS: usize = 32;
/// Pauses from 1 ns to 2^40 ns (18 minutes); longer ones are in the last bucket.
const BUCKETS: usize = 40 * STEPS;

/// Milliseconds looked at together (P3).
const WINDOW: usize = 20;

/// Pauses noted so far.
pub struct Pauses {
    /// Sums of pauses by the millisecond in which they ended, of the last 20, and which of them is the latest.
    recent: [u64; WINDOW],
    latest_ms: u64,
    worst_ns: u64,
    buckets: Box<[u32]>,
    count: u64,
    total_ns: u64,
    longest_ns: u64,
}

/// A summary of pauses, in microseconds.
#[derive(Serialize, Clone, Debug, Default)]
pub struct Summary {
    /// How many.
    pub count: u64,
    /// Half are at most this long (to 3 %).
    pub p50_us: f64,
    /// 99 of 100 are at most this long (to 3 %).
    pub p99_us: f64,
    /// Exactly.
    pub longest_us: f64,
    /// Exactly.
    pub total_us: f64,
    /// The most that pauses took together that ended within 20 ms of the same clock.
    pub worst_20ms_us: f64,
}

impl Default for Pauses {
    fn default() -> Self {
        Pauses {
            recent: [0; WINDOW],
            latest_ms: 0,
            worst_ns: 0,
            buckets: vec![0; BUCKETS].into(),
            count: 0,
            total_ns: 0,
            longest_ns: 0,
        }
    }
}

impl Pauses {
    /// Notes one that ends now, by the same clock (P2, P3).
    pub fn note(&mut self, ns: u64, now_ns: u64) {
        let now_ms = (now_ns / 1_000_000).max(self.latest_ms);
        let passed = (now_ms - self.latest_ms).min(WINDOW as u64);
        for back in 0..passed {
            self.recent[((now_ms - back) % WINDOW as u64) as usize] = 0;
        }
        self.latest_ms = now_ms;
        self.recent[(now_ms % WINDOW as u64) as usize] += ns;
        self.worst_ns = self.worst_ns.max(self.recent.iter().sum());
        let bucket = &mut self.buckets[bucket_of(ns)];
        *bucket = bucket.saturating_add(1);
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(ns);
        self.longest_ns = self.longest_ns.max(ns);
    }

    /// Says what was noted.
    pub fn summary(&self) -> Summary {
        debug_assert_eq!(
            self.buckets.iter().map(|&n| u64::from(n)).sum::<u64>(),
            self.count
        );
        Summary {
            count: self.count,
            p50_us: self.percentile(50) / 1e3,
            p99_us: self.percentile(99) / 1e3,
            longest_us: self.longest_ns as f64 / 1e3,
            total_us: self.total_ns as f64 / 1e3,
            worst_20ms_us: self.worst_ns as f64 / 1e3,
        }
    }

    /// Upper end of the bucket in which the percentile is, in ns; never above the longest.
    fn percentile(&self, percent: u64) -> f64 {
        let wanted = (self.count * percent).div_ceil(100);
        let mut seen = 0;
        for (bucket, &count) in self.buckets.iter().enumerate() {
            seen += u64::from(count);
            if seen >= wanted && seen > 0 {
                return end_of(bucket).min(self.longest_ns as f64);
            }
        }
        self.longest_ns as f64
    }
}

/// The bucket of a length: the position of its top bit, and the five bits after it.
fn bucket_of(ns: u64) -> usize {
    let ns = ns.max(1);
    let top = ns.ilog2() as usize;
    let rest = if top >= 5 {
        ns >> (top - 5)
    } else {
        ns << (5 - top)
    } as usize
        & (STEPS - 1);
    (top * STEPS + rest).min(BUCKETS - 1)
}

/// Longest length that is in a bucket.
fn end_of(bucket: usize) -> f64 {
    let (top, rest) = (bucket / STEPS, bucket % STEPS);
    f64::exp2(top as f64) * (1.0 + (rest + 1) as f64 / STEPS as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_pauses_close_together_add_up() {
        let mut pauses = Pauses::default();
        let ms = 1_000_000;
        // One of 1 ms each 5 ms: at most four within 20 ms.
        for at in 0..100 {
            pauses.note(ms, at * 5 * ms);
        }
        assert_eq!(pauses.summary().worst_20ms_us, 4000.0);
        // After a long time nothing of that counts; ten within a millisecond do.
        for _ in 0..10 {
            pauses.note(ms, 10_000 * ms);
        }
        assert_eq!(pauses.summary().worst_20ms_us, 10_000.0);
        pauses.note(ms, 10_020 * ms);
        assert_eq!(pauses.summary().worst_20ms_us, 10_000.0);
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_list() {
        let mut pauses = Pauses::default();
        // 1 … 1000 µs, shuffled by a step that shares no factor with 1000.
        let mut list: Vec<u64> = (0..1000u64).map(|i| (i * 387 % 1000 + 1) * 1000).collect();
        for &ns in &list {
            pauses.note(ns, 0);
        }
        list.sort_unstable();
        let said = pauses.summary();
        for (percent, value) in [(50, said.p50_us), (99, said.p99_us)] {
            let exact = list[1000 * percent / 100 - 1] as f64 / 1e3;
            assert!(
                value >= exact && value <= exact * 1.04,
                "{value} for {exact}"
            );
        }
        assert_eq!(said.count, 1000);
        assert_eq!(said.longest_us, 1000.0);
        assert_eq!(said.total_us, 500_500.0);
    }

    #[test]
    fn every_length_has_a_bucket_that_ends_behind_it() {
        for ns in (0..200).chain([1 << 20, (1 << 20) + 1, (1 << 39) + 7]) {
            let end = end_of(bucket_of(ns));
            assert!(
                end >= ns as f64 && end <= (ns.max(1) as f64) * 1.04 + 1.0,
                "{ns}: {end}"
            );
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        let none = Pauses::default().summary();
        assert_eq!((none.count, none.longest_us), (0, 0.0));
    }
}
