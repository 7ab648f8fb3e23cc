//! Numbers that look random and follow from a seed: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
//! number generators", 2014).
//!
//! ```text
//!   seed ─► + STEP ─► mix ─► a number
//!             └─► + STEP ─► mix ─► the next one
//! ```
//!
//! N1  The same seed gives the same numbers, on every machine and for ever: committed figures depend on it.
//! N2  It is one addition, two multiplications and three shifts; nothing is secret about it.
//!
//! Not here: seeds drawn anew (callers ask the clock or the kernel), distributions other than uniform.

/// The increment of the state.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the number of a state: a bijection in which each bit of the state changes about half of the result's.
#[inline]
pub const fn mix(state: u64) -> u64 {
    let mut z = state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A generator of numbers. Every seed is as good as another.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator that begins at a seed.
    pub const fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the seed with which another generator gives the numbers that are still to come.
    #[inline]
    pub const fn seed(&self) -> u64 {
        self.0
    }

    /// Returns the next 64 bits.
    #[inline]
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// Returns a number below `bound`; 0 if that is 0. The remainder of a division, so that bounds near 2^64 are not
    /// drawn from evenly.
    #[inline]
    pub const fn below(&mut self, bound: u64) -> u64 {
        let bits = self.bits();
        if bound == 0 { 0 } else { bits % bound }
    }

    /// Returns an index into `len` things; 0 if there are none.
    #[inline]
    pub const fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_algorithm() {
        let mut random = Random::new(1_234_567);
        let drawn: [u64; 3] = std::array::from_fn(|_| random.bits());
        assert_eq!(
            drawn,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn bounds_are_kept() {
        let mut random = Random::new(1);
        let mut seen = [0; 7];
        for _ in 0..7_000 {
            seen[random.index(7)] += 1;
        }
        assert!(seen.iter().all(|count| (800..1200).contains(count)));
        assert_eq!((random.below(0), random.index(0)), (0, 0));
    }
}
