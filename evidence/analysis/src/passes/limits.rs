//! Where the passes' rules begin to hold: the last figure on one side and the first on the other.

use super::driver::{Driver, glibc, jemalloc5, marks};
use super::phases::Phases;
use super::rounding::Rounding;
use super::wording;
use crate::model::{Confidence, Finding, FindingKind};

fn shoes(allocator: &str, usable: fn(u64) -> u64, requests: &[(u32, u64, u64)]) -> Vec<Finding> {
    let mut driver = Driver::new(Rounding::new(allocator), usable);
    for (node, size, blocks) in requests {
        (0..*blocks).for_each(|_| driver.keep(*node, *size));
    }
    let mut found = driver.finish().findings;
    found.retain(|one| one.kind == FindingKind::Clownshoes);
    found
}

#[test]
fn a_sixteenth_that_is_wasted_is_a_real_loss() {
    // 525 = 512 + 13, of 560: 35 are wasted, and 16 · 35 = 560. Of 561 the 36 are more than a sixteenth; of
    // 558 the 33 are less.
    let confidence = |usable: fn(u64) -> u64| {
        let found = shoes("libown.so", usable, &[(1, 512, 1), (1, 525, 1000)]);
        assert_eq!(found.len(), 1, "{found:#?}");
        found[0].confidence
    };
    let certain = Confidence::Certain;
    assert_eq!(
        confidence(|size| if size == 525 { 561 } else { size }),
        certain
    );
    assert_eq!(
        confidence(|size| if size == 525 { 560 } else { size }),
        certain
    );
    assert_ne!(
        confidence(|size| if size == 525 { 558 } else { size }),
        certain
    );
}

#[test]
fn further_sizes_of_a_stack_are_named_up_to_four() {
    let of = |sizes: &[u64]| {
        let requests: Vec<_> = sizes.iter().map(|size| (1, *size, 100)).collect();
        let found = shoes("libjemalloc.so.2", jemalloc5, &requests);
        assert_eq!(found.len(), 1, "{found:#?}");
        // A shorter request saves bytes, and as many requests are made.
        assert_eq!(found[0].saved_allocations, 0);
        found[0].what.clone()
    };
    // A power of two and one byte, which a terminator is.
    let one = of(&[1025]);
    assert!(!one.contains("The same with"), "{one}");
    let two = of(&[1025, 513]);
    assert!(two.contains(" The same with 513 bytes."), "{two}");
    let six = of(&[16_385, 8193, 4097, 2049, 1025, 513, 257]);
    assert!(six.contains(" and 2 other sizes."), "{six}");
}

#[test]
fn every_number_of_bytes_has_words() {
    assert_eq!(wording::bytes(9_999), "9,999 bytes");
    assert_eq!(wording::bytes(999 << 40), "999 TiB");
    // There is no larger unit.
    assert_eq!(wording::bytes(1000 << 40), "1000 TiB");
    assert_eq!(wording::bytes(u64::MAX), "16777216 TiB");
}

/// Ten requests; each leaves `left` blocks of stack 1, of which one of each and then more are freed before a last mark.
fn requests(left: u32, freed: usize) -> FindingKind {
    let mut names: Vec<&str> = (0..10).flat_map(|_| ["req begin", "req end"]).collect();
    names.push("cleared");
    let mut driver = Driver::new(Phases::new(&marks(&names)), glibc);
    let mut kept = Vec::new();
    for request in 0..10 {
        driver.mark(2 * request);
        kept.extend((0..left).map(|_| driver.alloc(1, 4000)));
        driver.mark(2 * request + 1);
    }
    let firsts = (0..left as usize).flat_map(|which| (which..kept.len()).step_by(left as usize));
    let firsts: Vec<_> = firsts.take(freed).map(|at| kept[at]).collect();
    firsts.into_iter().for_each(|block| driver.free(block));
    driver.mark(20);
    let report = driver.finish();
    assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
    report.findings[0].kind
}

#[test]
fn three_of_four_blocks_must_stay_for_a_leak() {
    // Of 40 blocks 30 are three quarters.
    assert_eq!(requests(4, 10), FindingKind::Leak);
    assert_eq!(requests(4, 11), FindingKind::Zombie);
}

#[test]
fn leaks_come_before_what_may_be_a_cache() {
    // Stack 1 leaves 1,000 bytes each time; stack 2 leaves once, and more.
    let names: Vec<&str> = (0..10).flat_map(|_| ["req begin", "req end"]).collect();
    let mut driver = Driver::new(Phases::new(&marks(&names)), glibc);
    for request in 0..10 {
        driver.mark(2 * request);
        driver.keep(1, 1000);
        if request == 0 {
            driver.keep(2, 1 << 20);
        }
        driver.mark(2 * request + 1);
    }
    let kinds: Vec<_> = driver.finish().findings.iter().map(|f| f.kind).collect();
    assert_eq!(kinds, [FindingKind::Leak, FindingKind::Zombie]);
}

#[test]
fn stacks_of_any_number_have_their_churn_counted() {
    let mut driver = Driver::new(super::churn::Churn::new(&marks(&["load"])), glibc);
    driver.mark(0);
    for node in 1..40 {
        for _ in 0..node {
            let block = driver.alloc(node, 100);
            driver.free(block);
        }
    }
    let allocations: u64 = driver.finish().sites.iter().map(|s| s.allocations).sum();
    assert_eq!(allocations, 39 * 40 / 2);
}
