//! The books by themselves.

use std::collections::HashMap;

use skinflint_base::random::{self, Random};

use super::books::{self, Books};
use crate::heaps::slow::Sample;
use crate::services::sample;

fn books() -> Box<Books> {
    let mut books = Box::new(Books::none());
    assert!(books.begin());
    books.rate = 1024;
    books
}

fn sample(address: usize, requested: usize, probability: f64) -> Sample {
    Sample {
        address,
        requested,
        probability,
        stack: 0,
        born_s: 0,
        place: 0,
    }
}

/// Puts and takes in an order that makes long chains of collisions, against a map.
#[test]
fn samples_are_found_until_they_are_taken_out() {
    let mut books = books();
    let mut map = HashMap::new();
    let mut random = Random::new(1);
    for round in 0..200_000 {
        let address = 16 + 16 * random.index(40_000);
        if random.below(2) == 0 && map.len() < 24_000 {
            let new = sample(address, 1 + round % 900, 0.5);
            assert!(books.put(new));
            map.insert(address, new);
        } else {
            assert_eq!(books.take(address), map.remove(&address), "round {round}");
        }
    }
    assert!(map.len() > 10_000, "{}", map.len());
    assert_eq!(books.live.samples, map.len() as u64);
    let bytes: usize = map.values().map(|sample| 2 * sample.requested).sum();
    assert_eq!(books.live.bytes, bytes as f64);
    for (address, sample) in map {
        assert_eq!(books.take(address), Some(sample));
    }
    assert_eq!(books.live, books::Sum::default());
}

/// What programs with few samples touch is little: as many places as they need, a third more to three times as many more.
#[test]
fn places_are_as_many_as_samples_need() {
    let mut books = books();
    for (count, places) in [
        (1, 512),
        (384, 512),
        (385, 2048),
        (1537, 8192),
        (24_576, 32_768),
    ] {
        for address in 1..=count {
            let address = address * 16;
            books.take(address);
            assert!(books.put(sample(address, 100, 0.1)), "{address}");
        }
        assert_eq!(
            (books.samples().len(), books.live.samples),
            (places, count as u64)
        );
    }
}

/// Each sample that stays has the probability of the new rate, and the sums are right on average. Both draws follow from the
/// seed: [`Books::begin`] gives all books of a process the same one, and thinned alike the books would err alike.
#[test]
fn a_full_table_is_thinned_without_bias() {
    const SEEDS: u64 = 64;
    let (mut errors, mut variances) = (0.0, 0.0);
    for seed in 0..SEEDS {
        let mut books = books();
        books.random = random::mix(!seed);
        let mut random = Random::new(seed);
        let mut truth = 0.0;
        for address in 1..60_000usize {
            let n = 1 + random.index(2_000);
            let p = sample::probability(n, books.rate.into());
            truth += n as f64;
            if (random.bits() >> 11) as f64 / (1u64 << 53) as f64 <= p {
                assert!(books.put(sample(address * 16, n, p)));
            }
        }
        assert_eq!(books.refused, 0);
        assert!(books.rate > 1024, "it was full");
        let (error, variance) = (
            books.live.bytes / truth - 1.0,
            books.live.variance / truth / truth,
        );
        assert!(
            error.abs() < 4.0 * variance.sqrt(),
            "seed {seed}: {error} of {variance}"
        );
        errors += error;
        variances += variance;
    }
    let (mean, half_width) = (errors / SEEDS as f64, 4.0 * variances.sqrt() / SEEDS as f64);
    println!("mean error {mean:+.5}, allowed {half_width:.5}");
    assert!(
        half_width < 0.005,
        "a bias of half a percent would be seen: {half_width}"
    );
    assert!(
        mean.abs() < half_width,
        "{mean:+} where {half_width} may be chance"
    );
}

#[test]
fn weights_are_taken_away_exactly() {
    let mut books = books();
    let all: Vec<Sample> = (1..2_000usize)
        .map(|i| sample(i * 16, 1 + i * 7 % 5_000, 1.0 / (1.0 + i as f64 / 3.0)))
        .collect();
    let first = all[0];
    for &sample in &all {
        assert!(books.put(sample));
    }
    for sample in &all[1..] {
        assert_eq!(books.take(sample.address), Some(*sample));
    }
    let left = books.live;
    books.take(first.address);
    assert!(books.put(first));
    assert_eq!(
        (left.samples, left.bytes, left.blocks),
        (1, books.live.bytes, books.live.blocks)
    );
}
