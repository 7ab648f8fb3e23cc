//! The estimate of live requested bytes, against the truth, over a hundred seeds.
//!
//! ```text
//!   program (sizes, lifetimes) ──► blocks ──► truth: Σ requested of what is live, kept by the test
//!                                    └──────► snapshot: usable, exactly, minus slop ± error, by samples
//! ```
//!
//! E1  One test in this file: the table of samples is the process's.
//! E2  The seeds are fixed. The mean difference must be within 3 of its own standard errors of 0 (no bias),
//!     the differences must be as large as the stated errors say, and at most four of a hundred may be
//!     beyond three times the stated error (blocks of a byte or two, of which few are sampled, make tails).
//!
//! Not here: what the samples cost.

use skinflint_alloc as alloc;
use skinflint_alloc::stats::{Snapshot, snapshot};
use skinflint_base::random::Random;

/// A part of the usual interval: as many samples of so much less memory.
const DIVISOR: u32 = 64;

/// Blocks with sizes of three kinds, of which two thirds are freed and made anew in an order that is the
/// worst for a table of addresses: the same slots, other sizes.
fn program(seed: u64) -> Vec<(*mut u8, usize)> {
    let mut random = Random::new(seed);
    let size = |random: &mut Random| match random.below(3) {
        0 => 1 + random.below(200) as usize,
        1 => 257 + random.below(32) as usize,
        _ => 1_000 + random.below(3_000) as usize,
    };
    let mut blocks = Vec::new();
    for _ in 0..12_000 {
        let n = size(&mut random);
        // SAFETY: freed below, or by the caller.
        blocks.push((unsafe { alloc::malloc(n) }, n));
    }
    for _ in 0..24_000 {
        let at = random.below(blocks.len() as u64) as usize;
        let n = size(&mut random);
        // SAFETY: a live block of the list, replaced by another.
        unsafe {
            alloc::free(blocks[at].0);
            blocks[at] = (alloc::malloc(n), n);
        }
    }
    blocks
}

fn look() -> Box<Snapshot> {
    let mut figures = Box::new(Snapshot::new());
    assert!(snapshot(&mut figures, false));
    assert!(figures.balanced, "{figures:?}");
    figures
}

#[test]
fn the_stated_error_is_the_true_one() {
    // SAFETY: freed at once.
    unsafe { alloc::free(alloc::malloc(1)) };
    let mut differences = Vec::new();
    for seed in 1..=100u64 {
        // Not by multiples of SplitMix's own step: those would all be one row of numbers.
        alloc::reseed(seed.wrapping_mul(0xd134_2543_de82_ef95), DIVISOR);
        let before = look();
        let blocks = program(seed);
        let truth: usize = blocks.iter().map(|block| block.1).sum();
        let figures = look();
        let asked = figures.requested_total - before.requested_total;
        assert!(asked > truth as u64);
        assert_eq!(
            figures.small_blocks - before.small_blocks,
            blocks.len() as u64,
            "seed {seed}"
        );
        let (requested, error) = figures.live_requested();
        assert!(
            error > 0 && figures.slop.samples > 100,
            "{:?}",
            figures.slop
        );
        assert!(
            error * 20 < truth,
            "an error of more than 5 %: {error} of {truth}"
        );
        differences.push((requested as f64 - truth as f64, error as f64));
        for (block, _) in blocks {
            // SAFETY: live until here.
            unsafe { alloc::free(block) };
        }
        let after = look();
        assert_eq!(after.small_blocks, 0, "seed {seed}");
        assert_eq!(after.slop.samples, 0, "seed {seed}");
    }
    // Where few blocks of a byte or two are sampled, the estimate is low and so is its stated error: the
    // ratios lean to one side although the differences do not. So these are looked at as they are.
    let count = differences.len() as f64;
    let mean = differences.iter().map(|d| d.0).sum::<f64>() / count;
    let square = differences.iter().map(|d| d.0 * d.0).sum::<f64>() / count;
    let stated = differences.iter().map(|d| d.1 * d.1).sum::<f64>() / count;
    let beyond = differences.iter().filter(|d| d.0.abs() > 3.0 * d.1).count();
    let bias = mean / (square / count).sqrt();
    let spread = (square / stated).sqrt();
    println!(
        "bias {bias:.2} standard errors of the mean, true error {spread:.3} of the stated one, {beyond} beyond 3"
    );
    assert!(bias.abs() < 3.0, "{bias}");
    assert!((0.85..1.18).contains(&spread), "{spread}");
    assert!(
        beyond <= 4,
        "{beyond} of {count} beyond three standard errors"
    );
}
