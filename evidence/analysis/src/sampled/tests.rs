//! Weights, sums and intervals, worked out by hand and drawn by law.
//!
//! Not here: books and stacks of real recordings (the tests of `skinflint`).

use skinflint_base::random::Random;

use super::*;

const RATE: u64 = 512 << 10;

#[test]
fn a_weight_follows_from_the_size() {
    let law = Law::of(RATE);
    assert_eq!(law.probability(RATE), 1.0);
    assert_eq!(law.probability(RATE + 1), 1.0);
    assert!((law.probability(RATE - 1) - (1.0 - (-1.0_f64).exp())).abs() < 1e-5);
    // Nothing counts as one byte, and a byte in half a mebibyte keeps its digits.
    assert_eq!(law.probability(0), law.probability(1));
    let small = law.probability(1) * RATE as f64;
    assert!((small - 1.0).abs() < 1e-5, "{small}");
    assert_eq!(Law::of(0).probability(1), 1.0);
}

#[test]
fn a_sum_is_its_samples_by_their_weights() {
    let law = Law::of(1000);
    let p = 1.0 - (-0.1_f64).exp();
    let mut sum = Sum::default();
    sum.add(law, 100, 100, 10);
    sum.add(law, 2000, 2000, 3);
    let figure = sum.figure();
    assert_eq!(figure.bytes, (1000.0 / p + 6000.0).round() as u64);
    assert_eq!(figure.blocks, (10.0 / p + 3.0).round() as u64);
    assert_eq!(figure.samples, 10);
    let half = 1.96 * (10.0 * (100.0 / p).powi(2) * (1.0 - p)).sqrt();
    assert_eq!(
        figure.high,
        Some((1000.0 / p + 6000.0 + half).round() as u64)
    );
    assert_eq!(
        figure.low,
        Some((1000.0 / p + 6000.0 - half).round() as u64)
    );
}

#[test]
fn few_samples_have_no_interval_and_exact_ones_no_error() {
    let law = Law::of(RATE);
    let of = |size, blocks| {
        let mut sum = Sum::default();
        sum.add(law, size, size, blocks);
        sum.figure()
    };
    let exact = of(RATE, 7);
    assert_eq!((exact.low, exact.high), (Some(7 * RATE), Some(7 * RATE)));
    assert_eq!((of(64, 2).low, of(64, 2).high), (None, None));
    let three = of(64, 3);
    assert!(three.low < Some(three.bytes) && three.high > Some(three.bytes));
    // What was seen was there.
    let large = of(RATE - 1, 3);
    assert!(large.low >= Some(3 * (RATE - 1)), "{large:?}");
}

/// Blocks of many sizes and stacks, drawn as the recorder draws them: of the rows that have an interval, 93 of a hundred
/// or more have the truth in it, and the estimates have no bias.
#[test]
fn nineteen_of_twenty_intervals_hold_the_truth() {
    let mut random = Random::new(23);
    let law = Law::of(64 << 10);
    let (mut rows, mut held, mut bias) = (0u32, 0u32, Vec::new());
    for _run in 0..60 {
        let mut budget = random.exponential(64 << 10) as i64;
        for stack in 0..24_u64 {
            // From 200 KiB to about 12 MiB, in blocks of 16 bytes to 100 KiB.
            let size = [16, 48, 100, 1000, 4096, 20_000, 60_000, 100_000][stack as usize % 8];
            let blocks = (200 << 10 << (stack / 4)) / size;
            let mut sum = Sum::default();
            for _ in 0..blocks {
                if size >= 64 << 10 {
                    sum.add(law, size, size, 1);
                    continue;
                }
                budget -= size as i64;
                if budget < 0 {
                    budget = random.exponential(64 << 10) as i64;
                    sum.add(law, size, size, 1);
                }
            }
            let truth = size * blocks;
            let figure = sum.figure();
            bias.push(sum.estimate() / truth as f64 - 1.0);
            let Some((low, high)) = figure.low.zip(figure.high) else {
                continue;
            };
            rows += 1;
            held += u32::from((low..=high).contains(&truth));
        }
    }
    let share = f64::from(held) / f64::from(rows);
    assert!(share >= 0.93, "{held} of {rows}");
    assert!(
        share <= 0.99,
        "{held} of {rows}: the intervals are too long"
    );
    let mean = bias.iter().sum::<f64>() / bias.len() as f64;
    assert!(mean.abs() < 0.02, "{mean}");
}
