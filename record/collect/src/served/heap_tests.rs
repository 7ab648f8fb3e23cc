//! Profiles one after another, and the samples that came and went.

use super::*;
use crate::go::Change;
use crate::served::profile::tests::of_go;

fn profile(live_blocks: u64, all_blocks: u64) -> Profile {
    const SIZE: u64 = 40_960;
    // As Go scales: 13.3 blocks for each sample.
    let of = |samples: u64| {
        let scale = 1.0 / (1.0 - (-(SIZE as f64) / f64::from(512 << 10)).exp());
        let blocks = samples as f64 * scale;
        [blocks as u64, (blocks * SIZE as f64) as u64]
    };
    Profile::read(&of_go(of(live_blocks), of(all_blocks), SIZE)).expect("a heap profile")
}

fn counts(batch: &Batch) -> (usize, usize) {
    let came = batch
        .changes
        .iter()
        .filter(|one| matches!(one, Change::Acquired(..)))
        .count();
    (came, batch.changes.len() - came)
}

#[test]
fn estimates_are_taken_back_to_the_samples_that_they_are_of() {
    let mut heap = ServedHeap::default();
    let first = heap.take(&profile(3, 5), 100);
    assert_eq!(
        (counts(&first), first.first_ticket, first.stacks.len()),
        ((5, 2), 1, 1)
    );
    assert_eq!(heap.newest_ticket(), 7);
    // Two went, one came and stays, and one came and went.
    let second = heap.take(&profile(2, 7), 200);
    assert_eq!(
        (counts(&second), second.first_ticket, second.stacks.len()),
        ((2, 3), 8, 0)
    );
    let sizes: Vec<u64> = second
        .changes
        .iter()
        .filter_map(|one| match one {
            Change::Acquired(0, _, size) => Some(*size),
            _ => None,
        })
        .collect();
    assert_eq!(sizes, [40_960, 40_960]);
    // The stack is not in the profile any more.
    let gone = heap.take(&Profile::default(), 300);
    assert_eq!(counts(&gone), (0, 2));
    // A profile of another moment takes nothing back.
    assert_eq!(counts(&heap.take(&Profile::default(), 400)), (0, 0));
}

#[test]
fn of_what_lives_alone_growth_is_what_came() {
    let of = |live: u64| (live, None);
    let mut now = counts_of(Counts::default(), of(5));
    assert_eq!(
        now,
        Counts {
            allocated: 5,
            freed: 0
        }
    );
    now = counts_of(now, of(3));
    assert_eq!(
        now,
        Counts {
            allocated: 5,
            freed: 2
        }
    );
    now = counts_of(now, of(6));
    assert_eq!(
        now,
        Counts {
            allocated: 8,
            freed: 2
        }
    );
}

#[test]
fn without_a_label_a_block_is_the_mean_and_of_nothing_it_has_no_size() {
    let sample = |live_blocks, live_bytes, all, block_bytes| Sample {
        stack: Vec::new(),
        figures: Figures {
            live_blocks,
            live_bytes,
            all,
        },
        block_bytes,
    };
    assert_eq!(size_of(&sample(3, 96, None, None)), 32);
    assert_eq!(size_of(&sample(0, 0, Some((2, 50)), None)), 25);
    assert_eq!(size_of(&sample(3, 96, None, Some(48))), 48);
    assert_eq!(size_of(&sample(0, 0, None, None)), 0);
    let figures = Figures {
        live_blocks: 3,
        live_bytes: 96,
        all: None,
    };
    assert_eq!(
        samples_of(&figures, 32, 1),
        (3, None),
        "every block is a sample"
    );
}
