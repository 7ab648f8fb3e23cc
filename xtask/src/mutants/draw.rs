//! Decides which points are mutated, and in which order, by seed.
//!
//! D1  The same seed over the same points draws the same mutants, on any machine.
//! D2  A draw is a shuffle of all points, of which the first COUNT that compile are taken: a point that does not
//!     compile makes room for the next one and changes none before it.

/// SplitMix64 (Steele, Lea and Flood 2014): enough to shuffle.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Returns all indices below the length of `variants`, shuffled, each with one of its point's variants.
pub fn order(seed: u64, variants: &[usize]) -> Vec<(usize, usize)> {
    let mut random = Random::new(seed);
    let mut order: Vec<usize> = (0..variants.len()).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, random.below(last + 1));
    }
    order
        .into_iter()
        .map(|point| (point, random.below(variants[point])))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::order;

    #[test]
    fn every_point_once_with_a_variant_it_has_and_the_same_for_the_same_seed() {
        let variants = [1, 2, 3, 1, 2, 1, 1, 4];
        for seed in 0..50 {
            let drawn = order(seed, &variants);
            let mut points: Vec<usize> = drawn.iter().map(|&(point, _)| point).collect();
            points.sort_unstable();
            assert_eq!(points, (0..variants.len()).collect::<Vec<_>>());
            assert!(
                drawn
                    .iter()
                    .all(|&(point, variant)| variant < variants[point])
            );
            assert_eq!(drawn, order(seed, &variants));
        }
        assert_ne!(order(1, &variants), order(2, &variants));
    }
}
