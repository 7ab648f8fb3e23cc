//! A set of 256 bits: cells of an arena, arenas of a chunk.
//!
//! ```text
//!   0          64         128        192        255
//!   │ word 0   │ word 1   │ word 2   │ word 3   │      next(from), run(from, len), gap(from, end)
//! ```
//!
//! B1  Plain words in cells: a set belongs to one thread at a time, and the hand-over says to which.
//!
//! Not here: the meaning of a bit (`layout`).

use core::cell::Cell;

/// Number of bits of a set.
pub(crate) const BITS: usize = 256;
const WORDS: usize = BITS / 64;

/// A set of numbers below 256.
#[repr(C)]
pub(crate) struct Bits([Cell<u64>; WORDS]);

/// Returns the bits `from..to` of one word.
fn mask(from: usize, to: usize) -> u64 {
    let upper = if to >= 64 { u64::MAX } else { (1 << to) - 1 };
    upper & (u64::MAX << from)
}

impl Bits {
    /// Returns the empty set.
    pub(crate) const fn from_zero() -> Bits {
        Bits([const { Cell::new(0) }; WORDS])
    }

    /// Reports whether `bit` is in the set. Cost: a load.
    #[inline]
    pub(crate) fn has(&self, bit: usize) -> bool {
        self.word(bit / 64).get() >> (bit % 64) & 1 != 0
    }

    /// Adds `bit`; reports whether it was new. Cost: a load and a store.
    #[inline]
    pub(crate) fn add(&self, bit: usize) -> bool {
        let word = self.word(bit / 64);
        let old = word.get();
        word.set(old | 1 << (bit % 64));
        old >> (bit % 64) & 1 == 0
    }

    /// Removes `bit`.
    #[inline]
    pub(crate) fn remove(&self, bit: usize) {
        let word = self.word(bit / 64);
        word.set(word.get() & !(1 << (bit % 64)));
    }

    #[inline]
    fn word(&self, index: usize) -> &Cell<u64> {
        &self.0[index % WORDS]
    }

    pub(crate) fn add_range(&self, from: usize, to: usize) {
        self.each_word(from, to, |word, mask| word.set(word.get() | mask));
    }

    pub(crate) fn remove_range(&self, from: usize, to: usize) {
        self.each_word(from, to, |word, mask| word.set(word.get() & !mask));
    }

    fn each_word(&self, from: usize, to: usize, mut act: impl FnMut(&Cell<u64>, u64)) {
        for (index, word) in self.0.iter().enumerate() {
            let start = index * 64;
            if from < start + 64 && to > start {
                act(word, mask(from.saturating_sub(start), to - start));
            }
        }
    }

    pub(crate) fn clear(&self) {
        self.set([0; WORDS]);
    }

    pub(crate) fn words(&self) -> [u64; WORDS] {
        self.0.each_ref().map(Cell::get)
    }

    pub(crate) fn set(&self, words: [u64; WORDS]) {
        for (cell, word) in self.0.iter().zip(words) {
            cell.set(word);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.words().iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Returns the first number in the set, from `from` on.
    #[inline]
    pub(crate) fn next(&self, from: usize) -> Option<usize> {
        next(from, |index| self.word(index).get())
    }

    /// Returns the first number that is not in the set, from `from` on.
    #[inline]
    pub(crate) fn next_absent(&self, from: usize) -> Option<usize> {
        next(from, |index| !self.word(index).get())
    }

    /// Returns the first gap that begins in `from..end`: its first number and the one behind its last.
    #[inline]
    pub(crate) fn gap(&self, from: usize, end: usize) -> Option<(usize, usize)> {
        let first = self.next_absent(from).filter(|&bit| bit < end)?;
        let last = self.next(first).unwrap_or(end).min(end);
        Some((first, last))
    }

    /// Returns the first of `len` neighbours that are all in the set.
    pub(crate) fn run(&self, len: usize) -> Option<usize> {
        let mut from = 0;
        while let Some(first) = self.next(from) {
            let end = self.next_absent(first).unwrap_or(BITS);
            if end - first >= len {
                return Some(first);
            }
            from = end;
        }
        None
    }
}

#[inline]
fn next(from: usize, word: impl Fn(usize) -> u64) -> Option<usize> {
    let mut index = from / 64;
    if index >= WORDS {
        return None;
    }
    let mut bits = word(index) & (u64::MAX << (from % 64));
    while bits == 0 {
        index += 1;
        if index == WORDS {
            return None;
        }
        bits = word(index);
    }
    Some(index * 64 + bits.trailing_zeros() as usize)
}

/// Returns each bit of these words, in order.
pub(crate) fn each(words: [u64; WORDS]) -> impl Iterator<Item = usize> {
    words.into_iter().enumerate().flat_map(|(index, word)| {
        core::iter::successors(Some(word), |w| Some(w & w.wrapping_sub(1)))
            .take_while(|&w| w != 0)
            .map(move |w| index * 64 + w.trailing_zeros() as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Bits {
        Bits::from_zero()
    }

    #[test]
    fn every_range_is_what_a_loop_says() {
        for from in (0..=BITS).step_by(if cfg!(miri) { 13 } else { 1 }) {
            for to in (from..=BITS).step_by(if cfg!(miri) { 61 } else { 1 }) {
                let bits = empty();
                bits.add_range(from, to);
                assert_eq!(bits.count(), to - from, "{from}..{to}");
                assert!((0..BITS).all(|bit| bits.has(bit) == (from..to).contains(&bit)));
                assert_eq!(bits.next(0), (from < to).then_some(from));
                assert_eq!(bits.run(to - from), (from < to).then_some(from));
                assert_eq!(bits.run(to - from + 1), None);
                assert!(each(bits.words()).eq(from..to));
                bits.remove_range(from, to);
                assert_eq!(bits.count(), 0);
            }
        }
    }

    #[test]
    fn gaps_end_where_the_next_begins() {
        let bits = empty();
        assert!(bits.add(3) && !bits.add(3));
        bits.add_range(64, 130);
        assert_eq!(bits.gap(0, 200), Some((0, 3)));
        assert_eq!(bits.gap(3, 200), Some((4, 64)));
        assert_eq!(bits.gap(64, 200), Some((130, 200)));
        assert_eq!(bits.gap(64, 130), None);
        assert_eq!(bits.gap(255, 256), Some((255, 256)));
        bits.add(255);
        assert_eq!(bits.gap(255, 256), None);
        assert_eq!(bits.next(256), None);
    }
}
