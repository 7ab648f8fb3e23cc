//! Queue or growth: what the order of a stack's pairs tells, where many chains by hand are open at once (growth.G10).
//!
//! ```text
//!   a queue, slowly longer    … 116 116 117 117 118 …   the oldest goes, and what comes is as long as its neighbours
//!   growth in turn            100 100 100 200 200 200   the oldest goes, too; but each began with nothing
//!   growth here and there     300 80 5,000 340 120 …    neighbours are not alike, or it is not the oldest that goes
//! ```
//!
//! R1  A queue or ring whose entries become longer releases its oldest block beside each new one, which is larger:
//!     every pair grows, and nothing is copied. Its chains run through the ring, as many at once as it has places.
//! R2  In a queue the size follows the time, so that a new block differs less from the one made before it than from
//!     the one that goes, a round of the ring older.
//! R3  Buffers that grow in turn by one step have that order as well. They are told apart by their beginning: a buffer
//!     begins with a few steps, not with most of its size; and sizes climb from one round to the next, where those of
//!     a queue climb from each block to the next. What is not told apart so is no finding.
//! R4  Nor is it one if more than a few pairs of such a stack shrink: buffers in turn do not.
//! R5  Where chains end because a smaller block takes their place, time after time, the blocks are temporaries whose
//!     sizes rise for a while and fall: a buffer that has grown lives on or is released, and none shrinks it.
//!
//! Not here: which pairs there are (growth.rs); a few places at once, which have no such order: a ring of those, with
//! entries that become longer, is told as growth, and never as certain.

/// The chains open at once from which on the order is looked at.
const MANY_OPEN: u32 = 4;
/// A stack has a property if all but one in this many of its pairs or chains have it.
const NEARLY: u32 = 8;
/// One pair in this many may shrink (R4).
const RARELY: u32 = 64;
/// Of at least this many chains, fewer than one in this many end by another block in their place (R5).
const MANY_CHAINS: u32 = 8;
const REPLACED: u32 = 4;
/// A buffer that began with nothing has at most so many steps before the first that is seen (R3): another stack may
/// have made the beginning.
const FIRST_STEPS: u64 = 3;

/// The order of a stack's growing pairs.
#[derive(Clone, Copy, Default)]
pub(super) struct Turns {
    /// Serial of the block that the last pair released, and the size of the one that it acquired.
    released: u32,
    acquired_bytes: u64,
    pairs: u32,
    /// Pairs that release a younger block than the pair before.
    oldest: u32,
    /// Of these, those whose new block is like the one before (R2).
    alike: u32,
    /// By how much they climb from one new block to the next in all, and by less than half of a step (R3).
    climbed: i64,
    slowly: i64,
    open: u32,
    most_open: u32,
    began: u32,
    /// Chains that began with nothing (R3).
    from_nothing: u32,
    /// Chains whose last block one that is no larger took the place of (R5).
    replaced: u32,
}

impl Turns {
    /// Takes a pair: a block of `from` bytes was released, one of `to` bytes, which is more, acquired before.
    #[inline]
    pub fn pair(&mut self, serial: u32, from: u64, to: u64) {
        if self.pairs > 0 && serial > self.released {
            let (step, apart) = (to - from, to.abs_diff(self.acquired_bytes));
            self.oldest = self.oldest.saturating_add(1);
            self.alike += u32::from(apart <= step);
            let climbs = to.wrapping_sub(self.acquired_bytes).cast_signed();
            self.climbed = self.climbed.saturating_add(climbs);
            if apart <= step / 2 {
                self.slowly = self.slowly.saturating_add(climbs);
            }
        }
        self.pairs = self.pairs.saturating_add(1);
        (self.released, self.acquired_bytes) = (serial, to);
    }

    /// Takes a new chain, with its first step.
    #[inline]
    pub fn begin(&mut self, from: u64, to: u64) {
        self.open += 1;
        self.most_open = self.most_open.max(self.open);
        self.began = self.began.saturating_add(1);
        self.from_nothing += u32::from(from <= (to - from).saturating_mul(FIRST_STEPS));
    }

    /// Takes the end of a chain; `is_replaced` says whether another block took the place of its last one.
    #[inline]
    pub fn end(&mut self, is_replaced: bool) {
        self.open = self.open.saturating_sub(1);
        self.replaced += u32::from(is_replaced);
    }

    /// Reports whether the stack's blocks are temporaries (R5).
    pub fn are_temporaries(&self) -> bool {
        self.began >= MANY_CHAINS && self.replaced >= self.began / REPLACED
    }

    /// Reports whether the stack's blocks are a queue's (R1). `shrank` is the number of its pairs that do not grow.
    pub fn is_queue(&self, shrank: u32) -> bool {
        let nearly = |part: u32, of: u32| part >= of - of / NEARLY;
        if self.most_open < MANY_OPEN || !nearly(self.oldest, self.pairs) {
            return false;
        }
        let in_turn = nearly(self.from_nothing, self.began) && self.slowly <= self.climbed / 2;
        shrank > self.pairs / RARELY || nearly(self.alike, self.oldest) && !in_turn
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::model::{Confidence, Report};
    use crate::passes::driver::{Driver, glibc};
    use crate::passes::growth::GrowthPass;

    /// 60,000 entries through a ring of `places`; `size` says how long each is. `first` releases before it acquires.
    fn ring(places: usize, first: bool, size: fn(u64) -> u64) -> Report {
        let mut d = Driver::new(GrowthPass::new("glibc 2.36"), glibc);
        let mut ring = VecDeque::new();
        for entry in 0..60_000u64 {
            let full = ring.len() == places;
            if full && first {
                let oldest = ring.pop_front().expect("full");
                d.free(oldest);
            }
            ring.push_back(d.alloc(7, size(entry)));
            if full && !first {
                let oldest = ring.pop_front().expect("full");
                d.free(oldest);
            }
        }
        d.finish()
    }

    #[test]
    fn a_ring_of_entries_that_get_longer_does_not_grow() {
        type Entries = (&'static str, fn(u64) -> u64);
        let sizes: [Entries; 5] = [
            ("smoothly", |entry| 100 + entry / 60),
            ("round by round", |entry| 100 + entry / 1000 * 10),
            ("with noise", |entry| 100 + entry / 60 + entry * 7919 % 8),
            ("fast", |entry| 100 + entry / 6),
            ("of any length", |entry| 100 + entry * 7919 % 900),
        ];
        for (words, size) in sizes {
            for (places, first) in [(1000, false), (1000, true), (100, false), (5, false)] {
                let report = ring(places, first, size);
                assert!(
                    report.findings.is_empty(),
                    "{words}, {places} places, released first: {first}: {:#?}",
                    report.findings
                );
            }
        }
    }

    /// Fifty buffers in turn: `step` says by how much one grows in a round.
    fn buffers(first: u64, step: fn(usize, u64) -> u64) -> Report {
        let mut d = Driver::new(GrowthPass::new("glibc 2.36"), glibc);
        let mut all: Vec<_> = (0..50).map(|_| (first, d.alloc(7, first))).collect();
        for round in 0..300u64 {
            for (which, (size, block)) in all.iter_mut().enumerate() {
                *size += step(which, round);
                let larger = d.alloc(7, *size);
                d.free(*block);
                *block = larger;
            }
        }
        d.finish()
    }

    #[test]
    fn buffers_that_grow_in_turn_are_no_queue() {
        let even = buffers(100, |_, _| 100);
        assert_eq!(even.findings.len(), 1, "{:#?}", even.findings);
        assert_eq!(even.findings[0].confidence, Confidence::Certain);
        // About as much each time.
        let texts = buffers(41, |which, round| {
            40 + (which as u64 * 7919 + round * 104_729) % 7
        });
        assert_eq!(texts.findings.len(), 1, "{:#?}", texts.findings);
        // Each by a step of its own, whatever it began with.
        let uneven = buffers(2000, |which, _| 40 + which as u64 * 37 % 50 * 8);
        assert_eq!(uneven.findings.len(), 1, "{:#?}", uneven.findings);
    }

    #[test]
    fn temporaries_whose_sizes_rise_and_fall_are_no_buffers() {
        let mut d = Driver::new(GrowthPass::new("glibc 2.36"), glibc);
        // Each goes after the next is made, as a loop's variable does: 22 rise, and then one is small again.
        let mut last = d.alloc(7, 700);
        for at in 1..20_000u64 {
            let next = d.alloc(7, 700 + at * 37 % 800);
            d.free(last);
            last = next;
        }
        let report = d.finish();
        assert!(report.findings.is_empty(), "{:#?}", report.findings);
        // One buffer after the other, each released when it is full.
        let mut d = Driver::new(GrowthPass::new("glibc 2.36"), glibc);
        for _ in 0..900 {
            let mut last = d.alloc(7, 700);
            for step in 1..22u64 {
                let next = d.alloc(7, 700 + step * 37);
                d.free(last);
                last = next;
            }
            d.free(last);
        }
        assert_eq!(d.finish().findings.len(), 1);
    }

    #[test]
    fn few_chains_have_no_order() {
        let mut turns = Turns::default();
        let pairs = |turns: &mut Turns| {
            (1..=100).for_each(|serial| turns.pair(serial, 1000, 1010));
            turns.is_queue(0)
        };
        (1..MANY_OPEN).for_each(|_| turns.begin(1000, 1010));
        assert!(!pairs(&mut turns));
        turns.end(false);
        turns.begin(1000, 1010);
        assert!(!pairs(&mut turns), "one of them ended");
        turns.begin(1000, 1010);
        assert!(turns.is_queue(0));
    }
}
