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
//! Not here: seeds drawn anew (callers ask the clock or the kernel), distributions other than uniform and exponential.

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

/// Returns the natural logarithm of a normal number above 0, to about 1e-15.
#[inline(always)]
pub fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = (bits >> 52) as i64 - 1023;
    let mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    // 2 artanh((m - 1) / (m + 1)), with m in 1..2.
    let y = (mantissa - 1.0) / (mantissa + 1.0);
    let square = y * y;
    let (mut term, mut sum, mut k) = (y, 0.0, 1.0);
    while k < 40.0 {
        sum += term / k;
        term *= square;
        k += 2.0;
    }
    exponent as f64 * core::f64::consts::LN_2 + 2.0 * sum
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

    /// Returns a whole distance from an exponential distribution with this mean, which is below 2^52.
    #[inline]
    pub fn exponential(&mut self, mean: u64) -> u64 {
        let uniform = ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        (-ln(uniform) * mean as f64) as u64
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
    fn distances_are_exponential() {
        let mut random = Random::new(7);
        let mean = 1 << 19;
        let drawn: Vec<u64> = (0..40_000).map(|_| random.exponential(mean)).collect();
        let sum: u64 = drawn.iter().sum();
        let found = sum as f64 / drawn.len() as f64 / mean as f64;
        assert!((0.98..1.02).contains(&found), "{found}");
        for multiple in [0.25, 1.0, 3.0_f64] {
            let beyond = drawn
                .iter()
                .filter(|&&one| one as f64 > multiple * mean as f64);
            let share = beyond.count() as f64 / drawn.len() as f64;
            let sd = (f64::exp(-multiple) / drawn.len() as f64).sqrt();
            assert!(
                (share - f64::exp(-multiple)).abs() < 4.0 * sd,
                "{multiple}: {share}"
            );
        }
    }

    #[test]
    fn the_logarithm_is_the_librarys() {
        for x in [1e-16, 0.3, 0.999_999, 1.0, 2.0, 1e9] {
            assert!(
                (ln(x) - f64::ln(x)).abs() < 1e-13 * (1.0 + f64::ln(x).abs()),
                "{x}"
            );
        }
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
