//! Measures how much freed memory is soon wanted again: what an allocator should keep and not give back.
//!
//! ```text
//!   live bytes   ▂▅█▂▁▂▅▇█▃▂        top: highest of the 2 s before     low: the deepest fall below it
//!                  │ └low │         refilled: highest of the 2 s after
//!                  top    refilled  wanted again = min(top, refilled) - low
//! ```
//!
//! S1  Time is cut into steps of 50 ms; "2 s before" and "after" are 40 whole steps and the part of
//!     the step itself that lies before or after the low. The level at its beginning is part of a step.
//! S2  Each step in which something happened gives one figure; the result is their 95th percentile.
//!     One wave that never comes again does not count, a wave in every second does.
//! S3  Memory: 40 steps, and a histogram of at most 64 bars for each doubling. The result is the
//!     largest figure of its bar, so it is exact if figures repeat, and at most 1.6 % too large.
//!
//! Source: the rule is after demand-based release of free pages (TCMalloc's skip-subrelease, ISMM
//! 2021). Not here: which pages are kept, and for how long: that is the allocator's task.

use std::collections::{BTreeMap, VecDeque};

/// The length of a step.
const STEP_NS: u64 = 50_000_000;
/// The number of steps that are looked back and forth: 2 s. An allocator that keeps memory for less
/// gives back what a loop of a second or so takes again; one that keeps it for more holds what an
/// idle program could spare.
const STEPS: usize = 40;
/// The percentile of the figures that is taken.
const PERCENTILE: u64 = 95;

/// A step that is over.
#[derive(Clone, Copy, Debug)]
struct Past {
    busy: bool,
    high: u64,
    top: u64,
    low: u64,
    /// The highest level after the low, so far.
    refilled: u64,
}

/// Follows the level of live bytes.
#[derive(Clone, Debug)]
pub struct Spare {
    /// The number of the step that is under way.
    step: u64,
    level: u64,
    now: Past,
    /// The last [`STEPS`] steps, the oldest first.
    past: VecDeque<Past>,
    /// The highest level among them.
    past_high: u64,
    bars: BTreeMap<u64, Bar>,
    busy_steps: u64,
}

/// The figures of one bar, which are about the same (S3).
#[derive(Clone, Copy, Debug, Default)]
struct Bar {
    count: u64,
    largest: u64,
}

impl Default for Spare {
    fn default() -> Spare {
        Spare {
            step: 0,
            level: 0,
            now: quiet(0, 0),
            past: VecDeque::with_capacity(STEPS + 1),
            past_high: 0,
            bars: BTreeMap::new(),
            busy_steps: 0,
        }
    }
}

/// Returns a step at whose beginning the level was `level`.
fn quiet(level: u64, past_high: u64) -> Past {
    Past {
        busy: false,
        high: level,
        top: past_high.max(level),
        low: level,
        refilled: level,
    }
}

/// Returns the bar of a figure: its seven leading bits.
fn bar(bytes: u64) -> u64 {
    let shift = (64 - bytes.leading_zeros()).saturating_sub(7);
    (u64::from(shift) << 32) | (bytes >> shift)
}

impl Spare {
    /// Notes that from `time_ns` on, `bytes` bytes live. A time before the last one counts as the last one.
    pub fn level(&mut self, time_ns: u64, bytes: u64) {
        let step = time_ns / STEP_NS;
        if step > self.step {
            self.advance(step);
        }
        self.level = bytes;
        let now = &mut self.now;
        now.busy = true;
        now.high = now.high.max(bytes);
        let top = now.high.max(self.past_high);
        if top - bytes > now.top - now.low {
            (now.top, now.low, now.refilled) = (top, bytes, bytes);
        } else {
            now.refilled = now.refilled.max(bytes);
        }
    }

    fn advance(&mut self, to: u64) {
        // After this many quiet steps every window is over, and more change nothing.
        let enough = 2 * STEPS as u64 + 1;
        for _ in 0..(to - self.step).min(enough) {
            self.close();
        }
        self.step = to;
    }

    fn close(&mut self) {
        for past in &mut self.past {
            past.refilled = past.refilled.max(self.now.high);
        }
        self.past.push_back(self.now);
        if self.past.len() > STEPS
            && let Some(oldest) = self.past.pop_front()
        {
            self.count(&oldest);
        }
        self.past_high = self.past.iter().map(|past| past.high).max().unwrap_or(0);
        self.now = quiet(self.level, self.past_high);
    }

    fn count(&mut self, past: &Past) {
        if past.busy {
            let wanted = past.top.min(past.refilled).saturating_sub(past.low);
            let bar = self.bars.entry(bar(wanted)).or_default();
            bar.count += 1;
            bar.largest = bar.largest.max(wanted);
            self.busy_steps += 1;
        }
    }

    /// Returns the bytes wanted again (S2); 0 if nothing ever happened.
    pub fn finish(mut self) -> u64 {
        self.close();
        for past in std::mem::take(&mut self.past) {
            self.count(&past);
        }
        let wanted = (self.busy_steps * PERCENTILE).div_ceil(100);
        let mut seen = 0;
        let reached = self.bars.values().find(|bar| {
            seen += bar.count;
            seen >= wanted
        });
        reached.map_or(0, |bar| bar.largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_base::random::Random;

    const MS: u64 = 1_000_000;

    fn of(levels: &[(u64, u64)]) -> u64 {
        let mut spare = Spare::default();
        levels
            .iter()
            .for_each(|(at, bytes)| spare.level(at * MS, *bytes));
        spare.finish()
    }

    #[test]
    fn by_hand() {
        assert_eq!(of(&[]), 0);
        // Only up: nothing falls. Only down: nothing is wanted again.
        assert_eq!(of(&[(0, 10), (1, 500), (100, 9000)]), 0);
        assert_eq!(of(&[(0, 9000), (1, 500), (100, 10)]), 0);
        // Within one step: from 1,000 to 100 and up to 700: 600 wanted again. Or beyond the top: 900.
        assert_eq!(of(&[(0, 1000), (1, 100), (2, 700)]), 600);
        assert_eq!(of(&[(0, 1000), (1, 100), (2, 5000)]), 900);
        // Up again after 1.9 s; of two busy steps the first says 900, and the second, which begins
        // low, too.
        assert_eq!(of(&[(0, 1000), (1, 100), (1900, 1000)]), 900);
        // Up again after 2.1 s: too late for the one, and the top is too far back for the other.
        assert_eq!(of(&[(0, 1000), (1, 100), (2100, 1000)]), 0);
        // 40 steps on is the last that counts.
        assert_eq!(of(&[(49, 1000), (49, 100), (2049, 1000)]), 900);
        assert_eq!(of(&[(49, 1000), (49, 100), (2050, 1000)]), 0);
    }

    #[test]
    fn a_wave_of_every_second_counts_and_a_single_one_does_not() {
        let wave = |second: u64| [(second * 1000, 1 << 20), (second * 1000 + 100, 0)];
        let waves: Vec<_> = (0..20).flat_map(wave).collect();
        assert_eq!(of(&waves), 1 << 20);
        // A hundred busy steps at a steady 10 bytes, and one wave.
        let mut steady: Vec<_> = (0..100).map(|i| (i * 60, 10)).collect();
        steady.extend([(6000, 1 << 20), (6001, 10), (6002, 1 << 20)]);
        assert_eq!(of(&steady), 0);
    }

    #[test]
    fn a_time_that_goes_back_and_a_year_of_quiet() {
        assert_eq!(of(&[(5000, 1000), (10, 100), (5001, 1000)]), 900);
        assert_eq!(of(&[(0, 1000), (1, 100), (31_536_000_000, 1000)]), 0);
        let mut spare = Spare::default();
        spare.level(u64::MAX, u64::MAX);
        spare.level(0, 0);
        assert_eq!(spare.finish(), 0);
    }

    /// The figure of each busy step as the head of the file has it, with every level at hand.
    fn judge(levels: &[(u64, u64)]) -> u64 {
        let end = levels.last().map_or(0, |last| last.0 / 50);
        let at_start = |step: u64| {
            let before = levels.iter().rfind(|(at, _)| at / 50 < step);
            (step * 50, before.map_or(0, |(_, bytes)| *bytes))
        };
        let within = |step: u64| {
            let own = levels
                .iter()
                .filter(move |(at, _)| at / 50 == step)
                .copied();
            std::iter::once(at_start(step)).chain(own)
        };
        let mut figures = Vec::new();
        for step in 0..=end {
            if within(step).count() == 1 {
                continue;
            }
            let before = (step.saturating_sub(40)..step).flat_map(within);
            let before = before.map(|(_, bytes)| bytes).max().unwrap_or(0);
            let own: Vec<u64> = within(step).map(|(_, bytes)| bytes).collect();
            let top = |i: usize| own[..=i].iter().copied().max().unwrap_or(0).max(before);
            let lowest = (0..own.len()).rev().max_by_key(|i| top(*i) - own[*i]);
            let low = lowest.expect("not empty");
            let after = (step + 1..=step + 40)
                .flat_map(within)
                .map(|(_, bytes)| bytes);
            let refilled = own[low..].iter().copied().chain(after).max().unwrap_or(0);
            figures.push(top(low).min(refilled) - own[low]);
        }
        figures.sort_unstable();
        figures
            .get((figures.len() * 95).div_ceil(100).saturating_sub(1))
            .copied()
            .unwrap_or(0)
    }

    #[test]
    fn the_judge_agrees() {
        let mut random = Random::new(0x5eed_5eed_1234_5678u64);
        let mut next = |limit: u64| random.below(limit);
        let mut positive = 0;
        for round in 0..80 {
            let (gap, high) = (1 + next(120), 1 + next(1 << 30));
            let mut at = next(200);
            let levels: Vec<_> = (0..1 + next(200))
                .map(|_| {
                    at += if next(50) == 0 { next(6000) } else { next(gap) };
                    (at, next(high))
                })
                .collect();
            let (ours, judges) = (of(&levels), judge(&levels));
            // S3.
            let close = ours >= judges && ours - judges <= judges / 60;
            assert!(close, "round {round}: {ours} and {judges}");
            positive += u64::from(ours > 0);
        }
        assert!(positive > 50, "{positive}");
    }
}
