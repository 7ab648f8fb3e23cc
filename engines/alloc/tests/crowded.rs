//! More samples than the table has room for: it goes on, and the estimate stays right.
//!
//! ```text
//!   freed as they come ──► the table is cleaned, the interval stays
//!   all live ────────────► the interval doubles, entries go by chance, the estimate holds (sample.Q4)
//! ```
//!
//! C1  One test in this file, with a fixed seed: the table is the process's.
//! C2  The truth must lie within four of the stated errors, when there are thousands of blocks too many, and again when
//!     most of them are gone.
//!
//! Not here: whether the stated error is the true one (`estimate`).

use skinflint_alloc as alloc;
use skinflint_alloc::stats::{Snapshot, snapshot};

/// Bytes between two samples at first: 1 KiB, so that about every second block is one.
const DIVISOR: u32 = 2_048;

fn look() -> Box<Snapshot> {
    let mut figures = Box::new(Snapshot::new());
    assert!(snapshot(&mut figures, false));
    assert!(figures.balanced, "{figures:?}");
    figures
}

#[track_caller]
fn right(figures: &Snapshot, truth: usize) {
    let (requested, error) = figures.live_requested();
    assert!(error > 0 && error < truth / 20, "{:?}", figures.slop);
    assert!(
        requested.abs_diff(truth) < 4 * error,
        "{requested} for {truth}: {:?}",
        figures.slop
    );
}

fn end(blocks: impl IntoIterator<Item = (*mut u8, usize)>) {
    for (block, _) in blocks {
        // SAFETY: a live block of the test.
        unsafe { alloc::free(block) };
    }
}

#[test]
fn a_full_table_is_cleaned_and_else_thinned() {
    // SAFETY: freed at once.
    unsafe { alloc::free(alloc::malloc(1)) };
    alloc::reseed(0x5eed, DIVISOR);
    let first = look().slop.interval_bytes;
    assert_eq!(first, 1_024);
    // Of 20,000 samples, all are dead when room is wanted.
    for n in 0..40_000 {
        // SAFETY: freed at once.
        unsafe { alloc::free(alloc::malloc(500 + n % 400)) };
    }
    assert_eq!(look().slop.interval_bytes, first, "nothing had to go");
    assert_eq!(look().slop.samples, 0);

    // SAFETY: freed below.
    let blocks: Vec<_> = (0..40_000)
        .map(|n| 300 + n * 7 % 900)
        .map(|n| (unsafe { alloc::malloc(n) }, n))
        .collect();
    let truth: usize = blocks.iter().map(|block| block.1).sum();
    let full = look();
    assert!(
        full.slop.samples > 1_000 && full.slop.samples <= 4_096,
        "{:?}",
        full.slop
    );
    // 29 MiB, of which 4,096 samples are one for each 7 KiB.
    let interval = full.slop.interval_bytes;
    assert!([8_192, 16_384].contains(&interval), "{:?}", full.slop);
    right(&full, truth);

    let (gone, stay): (Vec<_>, Vec<_>) = (0..).zip(blocks).partition(|(index, _)| index % 4 != 0);
    end(gone.into_iter().map(|(_, block)| block));
    let less = look();
    assert_eq!(less.slop.interval_bytes, interval, "it only grows");
    assert!(less.slop.samples < full.slop.samples);
    right(&less, stay.iter().map(|(_, block)| block.1).sum());
    end(stay.into_iter().map(|(_, block)| block));
    assert_eq!(look().slop.samples, 0);
}
