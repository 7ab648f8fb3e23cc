//! The shape of a chain of growing blocks: its figures, and what they tell about how it grows.
//!
//! ```text
//!   1, 2, 4, 8 …      every ratio near 2       Exponential(2.0)
//!   4096, 8192, 12288 every step 4096          FixedStep(4096)
//!   8, 16, 24, 32 …   every step 8             JustEnough (one element at a time)
//!   100, 131, 190 …   steps differ, ratio ≈ 1  JustEnough
//! ```
//!
//! H1  A chain is a few numbers: no list of its sizes is kept.
//! H2  Ratios are judged on steps from 256 bytes on, if there are at least three of these: below, rounding to whole
//!     elements blurs them.
//! H3  A constant step of at most 64 bytes is one element at a time, and just enough; a larger one was chosen by the
//!     program.
//!
//! Not here: which blocks form a chain (growth.rs).

use crate::model::GrowthPattern;

/// The largest constant step that counts as one element (H3): a cache line, few elements are larger.
const ELEMENT_MAX: u64 = 64;
/// The size from which on ratios are not blurred by rounding (H2).
const LATE_FROM: u64 = 256;
/// The fewest steps that have a shape.
const MIN_STEPS: u32 = 3;
/// The mean ratio below which a step is small beside the buffer. The smallest factor in use is 1.125 (CPython's
/// lists), and at that a buffer is still copied eight times as often as by doubling.
const SMALL_RATIO: f64 = 1.15;

/// Factors of growth in use lie between these: a half more, and double the size and one element.
const LEAST_FACTOR: f64 = 1.4;
const MOST_FACTOR: f64 = 2.6;

/// The ratios of new to old size.
#[derive(Clone, Copy, Debug)]
struct Ratios {
    count: u32,
    from: u64,
    min: f64,
    max: f64,
}

impl Default for Ratios {
    fn default() -> Self {
        Self {
            count: 0,
            from: 0,
            min: f64::INFINITY,
            max: 0.0,
        }
    }
}

impl Ratios {
    #[inline]
    fn step(&mut self, old: u64, new: u64) {
        if self.count == 0 {
            self.from = old.max(1);
        }
        let ratio = new as f64 / old.max(1) as f64;
        self.count += 1;
        self.min = self.min.min(ratio);
        self.max = self.max.max(ratio);
    }

    fn pattern(&self, last: u64) -> GrowthPattern {
        let mean = (last as f64 / self.from as f64).powf(1.0 / f64::from(self.count));
        if mean < SMALL_RATIO {
            GrowthPattern::JustEnough
        } else if self.min >= SMALL_RATIO && self.max <= self.min * 1.5 {
            GrowthPattern::Exponential(mean)
        } else {
            GrowthPattern::Irregular
        }
    }
}

/// A chain: the sizes are requested bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chain {
    pub first: u64,
    pub last: u64,
    /// The size before the last step.
    pub before: u64,
    pub steps: u32,
    pub in_place: u32,
    /// Bytes of the blocks that were copied from.
    pub copied: u64,
    pub allocated: u64,
    pub anew: u64,
    /// Steps beside which a block of the new size was made and released, and the bytes that were copied if each of
    /// them was filled and copied back (growth.G9).
    pub beside: u32,
    copied_beside: u64,
    /// The size from which on the kernel moved its blocks, which costs no copy: mappings of their own; 0 if none was
    /// seen.
    moved_from: u64,
    last_step: u64,
    common_step: u64,
    same_steps: u32,
    all: Ratios,
    late: Ratios,
}

impl Chain {
    /// Creates a chain that begins with a block.
    pub fn new(size: u64, usable: u64) -> Self {
        Self {
            first: size,
            last: size,
            allocated: size,
            anew: usable,
            ..Self::default()
        }
    }

    /// Notes that the block grew. `usable` are the usable sizes before and after; in place nothing was copied.
    #[inline]
    pub fn step(&mut self, size: u64, usable: (u64, u64), in_place: bool) {
        let (old, step) = (self.last, size.saturating_sub(self.last));
        self.before = old;
        self.steps = self.steps.saturating_add(1);
        self.in_place += u32::from(in_place);
        if !in_place {
            self.copied = self.copied.saturating_add(old);
        }
        self.allocated = self.allocated.saturating_add(size);
        if usable.0 != usable.1 {
            self.anew = self.anew.saturating_add(usable.1);
        }
        if step == self.last_step {
            self.same_steps += 1;
            self.common_step = step;
        }
        self.last_step = step;
        self.all.step(old, size);
        if old >= LATE_FROM {
            self.late.step(old, size);
        }
        self.last = size;
    }

    /// Notes that a step from a block of `from` bytes was one of a mapping, which the kernel moves.
    #[inline]
    pub fn moved_by_kernel(&mut self, from: u64) {
        if self.moved_from == 0 || from < self.moved_from {
            self.moved_from = from;
        }
    }

    /// Notes that the last step was taken beside a block as large, which then ended.
    #[inline]
    pub fn there_and_back(&mut self) {
        self.beside = self.beside.saturating_add(1);
        self.copied_beside = self.copied_beside.saturating_add(2 * self.last);
    }

    /// Reports whether the buffer seems to be copied into another block and back at each step: at half of them at
    /// least, and more than once or twice.
    pub fn is_copied_beside(&self) -> bool {
        self.beside >= MIN_STEPS && self.beside >= self.steps / 2
    }

    /// Returns the bytes that were copied, there and back included.
    pub fn copied_at_all(&self) -> u64 {
        match self.is_copied_beside() {
            true => self.copied.saturating_add(self.copied_beside),
            false => self.copied,
        }
    }

    /// Returns what doubling would have taken, under the allocator that ran: blocks that the kernel moves are not
    /// copied.
    pub fn doubled(&self) -> Factored {
        let moved_from = match self.moved_from {
            0 => u64::MAX,
            from => from,
        };
        by_factor_up_to(self.first, self.last, (2, 1), moved_from)
    }

    /// Returns the bytes of the last block that may never have been used: the step to it was taken when the one
    /// before was full. `None` if the buffer does not grow by a factor.
    pub fn unused_at_most(&self) -> Option<u64> {
        let by_factor =
            self.steps >= 2 && self.all.min >= LEAST_FACTOR && self.all.max <= MOST_FACTOR;
        by_factor.then(|| self.last.saturating_sub(self.before + 1))
    }

    /// Returns how it grows.
    pub fn pattern(&self) -> GrowthPattern {
        if self.steps < MIN_STEPS {
            return GrowthPattern::Irregular;
        }
        // Three quarters are enough, not all: a last step is often cut to fit.
        if u64::from(self.same_steps) * 4 >= u64::from(self.steps - 1) * 3 {
            return if self.common_step <= ELEMENT_MAX {
                GrowthPattern::JustEnough
            } else {
                GrowthPattern::FixedStep(self.common_step)
            };
        }
        if self.late.count >= MIN_STEPS {
            self.late.pattern(self.last)
        } else {
            self.all.pattern(self.last)
        }
    }
}

/// The steps and copies by which growth by a factor gets from one size to at least another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Factored {
    /// Requested bytes: `first + first·f + first·f² + …`.
    pub asked: u64,
    pub steps: u64,
    /// Bytes copied if no step stays in place: those of all blocks but the last.
    pub copied: u64,
    /// The last block.
    pub last: u64,
}

/// Computes growth by `factor` (numerator, denominator) from `first` to at least `last` bytes. Saturates.
pub(super) fn by_factor(first: u64, last: u64, factor: (u64, u64)) -> Factored {
    by_factor_up_to(first, last, factor, u64::MAX)
}

/// Computes the same growth if blocks from `moved_from` bytes on are not copied.
fn by_factor_up_to(first: u64, last: u64, factor: (u64, u64), moved_from: u64) -> Factored {
    let mut all = Factored {
        asked: first.max(1),
        last: first.max(1),
        ..Factored::default()
    };
    while all.last < last && all.last < u64::MAX / 4 {
        if all.last < moved_from {
            all.copied = all.copied.saturating_add(all.last);
        }
        all.last = (all.last * factor.0 / factor.1).max(all.last + 1);
        all.asked = all.asked.saturating_add(all.last);
        all.steps += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(sizes: impl IntoIterator<Item = u64>) -> Chain {
        let mut sizes = sizes.into_iter();
        let first = sizes.next().expect("a first size");
        let mut chain = Chain::new(first, first);
        for size in sizes {
            chain.step(size, (chain.last, size), false);
        }
        chain
    }

    fn iterate(first: u64, steps: usize, next: fn(u64) -> u64) -> Chain {
        chain(std::iter::successors(Some(first), |size| Some(next(*size))).take(steps + 1))
    }

    #[test]
    fn four_vectors_side_by_side() {
        let doubling = iterate(8, 20, |n| n * 2).pattern();
        assert!(
            matches!(doubling, GrowthPattern::Exponential(f) if (f - 2.0).abs() < 1e-9),
            "{doubling:?}"
        );
        let half = iterate(8, 30, |n| n + n / 2).pattern();
        assert!(
            matches!(half, GrowthPattern::Exponential(f) if (f - 1.5).abs() < 0.01),
            "{half:?}"
        );
        assert_eq!(
            iterate(8, 1000, |n| n + 8).pattern(),
            GrowthPattern::JustEnough
        );
        assert_eq!(
            iterate(1, 1000, |n| n + 1).pattern(),
            GrowthPattern::JustEnough
        );
        assert_eq!(
            iterate(4096, 100, |n| n + 4096).pattern(),
            GrowthPattern::FixedStep(4096)
        );
        // Few steps: the ratios 2, 1.5, 1.33 look like anything, the steps do not.
        assert_eq!(
            iterate(4096, 3, |n| n + 4096).pattern(),
            GrowthPattern::FixedStep(4096)
        );
    }

    #[test]
    fn uneven_appends_are_just_enough_and_wild_ones_irregular() {
        let appends = chain((0..200u64).map(|i| 300 + 40 * i + (i * i) % 23));
        assert_eq!(appends.pattern(), GrowthPattern::JustEnough);
        assert_eq!(
            chain([300, 310, 2000, 2010, 90_000]).pattern(),
            GrowthPattern::Irregular
        );
        let once_alike = chain([300, 1000, 1700, 5000, 20_000, 21_000, 90_000]);
        assert_eq!(once_alike.pattern(), GrowthPattern::Irregular);
        assert_eq!(
            chain([8, 16]).pattern(),
            GrowthPattern::Irregular,
            "one step has no shape"
        );
        assert_eq!(chain([0, 0, 0, 0, 0]).pattern(), GrowthPattern::JustEnough);
    }

    #[test]
    fn factors_by_hand() {
        // 4 KiB, 8 KiB … 1 MiB: the figure of "Please grow your buffers exponentially".
        let of = |first, last, factor| {
            let all = by_factor(first, last, factor);
            (all.asked, all.steps, all.copied, all.last)
        };
        assert_eq!(
            of(4096, 1 << 20, (2, 1)),
            (2_093_056, 8, 2_093_056 - (1 << 20), 1 << 20)
        );
        assert_eq!(of(1, 8, (2, 1)), (1 + 2 + 4 + 8, 3, 1 + 2 + 4, 8));
        assert_eq!(of(8, 27, (3, 2)), (8 + 12 + 18 + 27, 3, 8 + 12 + 18, 27));
        assert_eq!(of(0, 0, (2, 1)), (1, 0, 0, 1));
        assert!(by_factor(1, u64::MAX, (3, 2)).steps < 200, "ends");
    }

    #[test]
    fn what_the_kernel_moves_doubling_does_not_copy() {
        // By 4,096 to 819,200, from 131,072 on as mappings: doubling copies 4,096 · (1 + 2 + 4 + 8 + 16).
        let mut grown = chain([4096]);
        for pages in 2..=200u64 {
            grown.step(pages * 4096, ((pages - 1) * 4096, pages * 4096), false);
            if pages > 32 {
                grown.moved_by_kernel((pages - 1) * 4096);
            }
        }
        assert_eq!(grown.doubled().copied, 4096 * 31);
        assert_eq!(by_factor(4096, 200 * 4096, (2, 1)).copied, 4096 * 255);
        assert_eq!(grown.doubled().last, 4096 * 256);
    }

    #[test]
    fn what_may_be_unused_by_hand() {
        // 8, 16 … 2,048: the step to 2,048 was taken with 1,024 full and one byte more.
        assert_eq!(iterate(8, 8, |n| n * 2).unused_at_most(), Some(1023));
        assert_eq!(iterate(8, 8, |n| n + 8).unused_at_most(), None);
        assert_eq!(chain([8, 16]).unused_at_most(), None, "one step is no rule");
    }

    #[test]
    fn a_step_of_an_element_is_just_enough_and_a_longer_one_is_a_step() {
        let by = |step: u64| chain((1..=40).map(|n| n * step)).pattern();
        assert_eq!(by(ELEMENT_MAX), GrowthPattern::JustEnough);
        assert_eq!(
            by(ELEMENT_MAX + 1),
            GrowthPattern::FixedStep(ELEMENT_MAX + 1)
        );
    }
}
