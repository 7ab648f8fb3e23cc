//! Tests of the pass: buffers that grow by realloc, by copies and in turns, and what is advised.

use super::*;
use crate::passes::driver::{Driver, glibc, mozjemalloc_2011};

const MIB: u64 = 1 << 20;

/// One buffer through these sizes by realloc at stack 7, then released.
fn realloc(usable: fn(u64) -> u64, sizes: impl IntoIterator<Item = u64>) -> Report {
    let mut driver = Driver::new(GrowthPass::new("glibc 2.36"), usable);
    let mut sizes = sizes.into_iter();
    let mut block = driver.alloc(7, sizes.next().expect("a first size"));
    for size in sizes {
        block = driver.regrow(block, 7, size);
    }
    driver.free(block);
    driver.finish()
}

/// The same by allocating, copying, releasing.
fn by_hand(sizes: impl IntoIterator<Item = u64>) -> Report {
    let mut driver = Driver::new(GrowthPass::new("glibc 2.36"), glibc);
    let mut sizes = sizes.into_iter();
    let mut block = driver.alloc(7, sizes.next().expect("a first size"));
    for size in sizes {
        let larger = driver.alloc(7, size);
        driver.free(block);
        block = larger;
    }
    driver.free(block);
    driver.finish()
}

fn iterate(first: u64, last: u64, next: fn(u64) -> u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(first), move |size| Some(next(*size)))
        .take_while(move |size| *size <= last)
}

#[test]
fn the_three_sums_of_the_post() {
    // A byte at a time, each step a new block: 1 + 2 + … + 1,048,576.
    let report = realloc(mozjemalloc_2011, 1..=MIB);
    assert_eq!(report.growth[0].allocated_bytes, 549_756_338_176);
    assert_eq!(report.growth[0].pattern, GrowthPattern::JustEnough);
    // The same with the allocator's rounding: only a step into another class allocates. From
    // 4 KiB on the classes are 4096·(1 + 2 + … + 256) = 134,742,016; below lie 2 + 4 + 8, 16 to
    // 512 by 16 (16·528 = 8,448), 1,024 and 2,048.
    assert_eq!(
        report.growth[0].anew_usable_bytes,
        134_742_016 + 14 + 8_448 + 3_072
    );
    let above = realloc(mozjemalloc_2011, 4096..=MIB);
    assert_eq!(above.growth[0].anew_usable_bytes, 134_742_016);
    // Doubling: 4 KiB + 8 KiB + … + 1 MiB, as done, and as the comparison of a buffer that is not.
    let doubled = realloc(mozjemalloc_2011, iterate(4096, MIB, |n| n * 2));
    assert_eq!(doubled.growth[0].allocated_bytes, 2_093_056);
    assert_eq!(doubled.growth[0].anew_usable_bytes, 2_093_056);
    assert_eq!(above.growth[0].doubling_bytes, 2_093_056);
}

#[test]
fn four_vectors_side_by_side_and_only_two_are_findings() {
    let doubling = realloc(glibc, iterate(64, MIB, |n| n * 2));
    assert!(
        matches!(doubling.growth[0].pattern, GrowthPattern::Exponential(f) if (f - 2.0).abs() < 1e-9)
    );
    assert!(doubling.findings.is_empty());
    let half = realloc(glibc, iterate(64, MIB, |n| n + n / 2));
    assert!(
        matches!(half.growth[0].pattern, GrowthPattern::Exponential(f) if (f - 1.5).abs() < 0.01)
    );
    assert!(half.findings.is_empty());
    let one = realloc(glibc, iterate(8, 80_000, |n| n + 8));
    assert_eq!(one.growth[0].pattern, GrowthPattern::JustEnough);
    // 8·(1 + … + 10,000) = 400,040,000. Chunks go by 16: each other step moves, from 24, 40 … 79,992
    // bytes: 4,999 copies of 40,008 on average. Doubling copies 8·(2^14 - 1) = 131,064.
    assert_eq!(one.growth[0].allocated_bytes, 400_040_000);
    assert_eq!(one.growth[0].copied_bytes, 4_999 * 40_008);
    assert_eq!(
        one.findings[0].saved_cumulative_bytes,
        4_999 * 40_008 - 131_064
    );
    assert_eq!(one.findings[0].saved_allocations, 9_999 - 14);
    assert!(one.findings[0].title.contains("4,999 of 9,999 steps"));
    let page = realloc(glibc, iterate(4096, MIB, |n| n + 4096));
    assert_eq!(page.growth[0].pattern, GrowthPattern::FixedStep(4096));
    assert_eq!(page.findings.len(), 1);
    assert_eq!(page.findings[0].confidence, Confidence::Certain);
    assert_eq!((page.growth[0].chains, page.growth[0].steps), (1, 255));
}

#[test]
fn steps_that_all_stay_in_place_are_calls() {
    // 80 bytes more at each step, and room behind the block each time.
    let roomy = |_: u64| 4 * MIB;
    let report = realloc(roomy, iterate(80, 16_000 * 80, |n| n + 80));
    let [found] = &report.findings[..] else {
        panic!("{:#?}", report.findings);
    };
    let wanted = "Grows by 80 bytes each time in 15,999 calls of realloc, up to 1.22 MiB";
    assert_eq!(found.title, wanted);
    // 80 · 2^14 is the first size that is large enough.
    assert_eq!(found.saved_allocations, 15_999 - 14);
    assert_eq!((found.saved_cumulative_bytes, found.blocks), (0, 15_999));
    // As often as others of its length, it is not worth a line.
    let few = realloc(roomy, iterate(80, 9_000 * 80, |n| n + 80));
    assert!(few.findings.is_empty());
}

#[test]
fn chains_by_hand_have_the_same_figures() {
    let page = by_hand(iterate(4096, MIB, |n| n + 4096));
    assert!(page.growth[0].by_hand);
    assert_eq!(page.growth[0].pattern, GrowthPattern::FixedStep(4096));
    assert_eq!((page.growth[0].chains, page.growth[0].steps), (1, 255));
    assert_eq!(page.growth[0].allocated_bytes, 134_742_016);
    assert_eq!(page.findings.len(), 1);
    let doubling = by_hand(iterate(64, MIB, |n| n * 2));
    assert!(matches!(
        doubling.growth[0].pattern,
        GrowthPattern::Exponential(_)
    ));
    assert!(doubling.findings.is_empty());
}

/// `a = [a, x]` of numbers of 8 bytes: a temporary of the new length, the buffer made as long, the temporary gone.
fn there_and_back(beside: impl Fn(u64) -> bool) -> Report {
    let mut d = Driver::new(GrowthPass::new("glibc 2.36"), |size| {
        size.next_multiple_of(1 << 20)
    });
    let mut buffer = d.alloc(7, 8);
    for elements in 2..=10_000u64 {
        let temporary = beside(elements).then(|| d.alloc(3, elements * 8));
        buffer = d.regrow(buffer, 7, elements * 8);
        if let Some(temporary) = temporary {
            d.free(temporary);
        }
    }
    d.finish()
}

#[test]
fn a_copy_there_and_back_is_growth_even_where_the_buffer_stays() {
    let report = there_and_back(|_| true);
    // 2 · 8 · (2 + 3 + … + 10,000), and not one step moved.
    assert_eq!(
        report.growth[0].copied_bytes,
        16 * (10_000 * 10_001 / 2 - 1)
    );
    assert_eq!(report.growth[0].in_place_steps, 9_999);
    let found = &report.findings[0];
    assert_eq!(found.confidence, Confidence::Likely);
    assert!(found.what.contains("there and back"), "{}", found.what);
    assert!(found.change.contains("[a, x]"), "{}", found.change);
    assert_eq!(found.node, Some(7));
    // In place, and nothing beside it: nothing is copied.
    assert!(there_and_back(|_| false).findings.is_empty());
    // A few are something else.
    assert_eq!(there_and_back(|n| n % 3 == 0).growth[0].copied_bytes, 0);
}

/// Two buffers that grow in step, as columns of a table do: neither is the other's temporary.
#[test]
fn buffers_that_grow_side_by_side_are_no_copies_of_each_other() {
    let mut d = Driver::new(GrowthPass::new("glibc 2.36"), |size| {
        size.next_multiple_of(1 << 20)
    });
    let (mut one, mut two) = (d.alloc(7, 8), d.alloc(8, 8));
    for elements in 2..=10_000u64 {
        one = d.regrow(one, 7, elements * 8);
        two = d.regrow(two, 8, elements * 8);
    }
    d.free(one);
    d.free(two);
    let report = d.finish();
    assert!(report.growth.iter().all(|row| row.copied_bytes == 0));
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
}

#[test]
fn two_buffers_one_after_the_other_are_two_chains() {
    let mut d = Driver::new(GrowthPass::new("glibc 2.36"), glibc);
    for _ in 0..2 {
        let mut block = d.alloc(7, 100);
        for size in [200, 400, 800] {
            let larger = d.alloc(7, size);
            d.free(block);
            block = larger;
        }
        d.free(block);
    }
    let report = d.finish();
    assert_eq!((report.growth[0].chains, report.growth[0].steps), (2, 6));
    assert_eq!(report.growth[0].allocated_bytes, 2 * 1500);
    assert_eq!(report.growth[0].largest_bytes, 800);
}

#[test]
fn what_is_no_chain_by_hand() {
    let mut driver = Driver::new(GrowthPass::new("glibc 2.36"), glibc);
    // Rising sizes, each released before the next is acquired.
    (1..100).for_each(|i| {
        let block = driver.alloc(1, 100 * i);
        driver.free(block);
    });
    // Rising sizes, all kept.
    (1..100).for_each(|i| driver.keep(2, 100 * i));
    // A queue of blocks of any size: the oldest of three is released.
    let mut queue = std::collections::VecDeque::new();
    (1..100u64).for_each(|i| {
        queue.push_back(driver.alloc(3, 100 + i * 37 % 90));
        if queue.len() == 3 {
            let oldest = queue.pop_front().expect("three");
            driver.free(oldest);
        }
    });
    // Another thread releases.
    let mut last = driver.alloc(4, 1);
    (1..100).for_each(|i| {
        let next = driver.alloc(4, 100 * i);
        driver.thread = ThreadId(1);
        driver.free(last);
        driver.thread = ThreadId(0);
        last = next;
    });
    assert!(driver.finish().growth.is_empty());
}

#[test]
fn a_shrink_ends_a_chain_and_the_end_of_the_run_does_too() {
    let mut driver = Driver::new(GrowthPass::new("glibc 2.36"), glibc);
    let mut block = driver.alloc(1, 100);
    for size in [200, 400, 800, 50, 100, 200] {
        block = driver.regrow(block, 1, size);
    }
    let report = driver.finish();
    assert_eq!((report.growth[0].chains, report.growth[0].steps), (2, 5));
    assert_eq!(report.growth[0].allocated_bytes, 1500 + 350);
    assert_eq!(report.growth[0].largest_bytes, 800);
}
