//! Bounds of the passes' rules: the last figure on one side and the first on the other.

use super::driver::{Driver, glibc, jemalloc5, marks};
use super::growth::GrowthPass;
use super::phases::Phases;
use super::placebo::Placebo;
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
    // 558 the 33 are less, and none is found.
    let found = |usable: fn(u64) -> u64| {
        let found = shoes("libown.so", usable, &[(1, 512, 1), (1, 525, 1000)]);
        assert!(
            found
                .iter()
                .all(|one| one.confidence != Confidence::Possible)
        );
        found.len()
    };
    assert_eq!(found(|size| if size == 525 { 561 } else { size }), 1);
    assert_eq!(found(|size| if size == 525 { 560 } else { size }), 1);
    assert_eq!(found(|size| if size == 525 { 558 } else { size }), 0);
}

#[test]
fn what_is_kept_elsewhere_costs_its_own_bytes() {
    // 1,024 + 32 save 256, of which 32 are an eighth; 40 are more.
    let of = |size| shoes("libjemalloc.so.2", jemalloc5, &[(1, size, 1000)])[0].confidence;
    assert_eq!(of(1056), Confidence::Certain);
    assert_eq!(of(1064), Confidence::Likely);
}

#[test]
fn a_type_may_need_all_of_its_bytes() {
    let of = |size| {
        let mut driver = Driver::new(Rounding::new("glibc 2.36"), glibc);
        (0..10_000).for_each(|_| driver.keep(1, size));
        let mut found = driver.finish().findings;
        assert_eq!(found.len(), 1, "{found:#?}");
        found.remove(0)
    };
    // 64 are given 72 in 80, and 56 were in 64; 25 = 24 + 1 are given 40 in 48, and 24 were in 32.
    let (of_type, computed) = (of(64), of(25));
    assert_eq!((of_type.saved_bytes, of_type.now_bytes), (0, 160_000));
    assert_eq!(of_type.saved_cumulative_bytes, 0);
    let told = "If 8 bytes of each can go (padding, a member of a smaller type), the rest fits the class below, and 156 KiB are saved.";
    assert!(of_type.change.starts_with(told), "{}", of_type.change);
    assert_eq!(
        (computed.saved_bytes, computed.now_bytes),
        (160_000, 150_000)
    );
    assert_eq!(computed.kind, FindingKind::Clownshoes);
    assert_eq!(of_type.confidence, Confidence::Likely);
    assert_eq!(computed.confidence, Confidence::Certain);
}

/// Buffers of a stack that grow by so many bytes to so many, and whether by hand.
fn grown(usable: fn(u64) -> u64, (from, step, to): (u64, u64, u64), by_hand: bool) -> Finding {
    let mut driver = Driver::new(GrowthPass::new("glibc 2.36"), usable);
    for _ in 0..100 {
        let mut block = driver.alloc(7, from);
        for size in (from + step..=to).step_by(step as usize) {
            block = match by_hand {
                false => driver.regrow(block, 7, size),
                true => {
                    let larger = driver.alloc(7, size);
                    driver.free(block);
                    larger
                }
            };
        }
        driver.free(block);
    }
    let mut found = driver.finish().findings;
    assert_eq!(found.len(), 1, "{found:#?}");
    found.remove(0)
}

#[test]
fn what_doubling_copies_is_little() {
    let of = |usable, sizes| grown(usable, sizes, false).confidence;
    // By 1,000 to 15,000: 1 + 2 + … + 14 = 105 are copied, by doubling 1 + 2 + 4 + 8 = 15: a seventh. To 14,000 it is 15
    // of 91.
    let exact: fn(u64) -> u64 = |size| size;
    assert_eq!(of(exact, (1000, 1000, 15_000)), Confidence::Certain);
    assert_eq!(of(exact, (1000, 1000, 14_000)), Confidence::Likely);
}

#[test]
fn long_chains_by_hand_are_growth() {
    // Doubling copies 10 + 20 of 280, or of 255.
    let of = |to| grown(glibc, (10_000, 1000, to), true).confidence;
    assert_eq!(of(26_000), Confidence::Certain, "16 steps");
    assert_eq!(of(25_000), Confidence::Likely, "15 steps");
}

#[test]
fn a_buffer_on_its_way_is_not_made() {
    // Ten stay at 4,096; others grow through that size, or are made at it.
    let of = |grows: bool| {
        let mut driver = Driver::new(Placebo::new(), glibc);
        (0..10).for_each(|_| driver.keep(1, 4096));
        for _ in 0..1000 {
            let block = match grows {
                true => {
                    let small = driver.alloc(1, 2048);
                    driver.regrow(small, 1, 4096)
                }
                false => driver.alloc(1, 4096),
            };
            driver.free(block);
        }
        driver.finish().findings.len()
    };
    assert_eq!((of(true), of(false)), (0, 1));
}

#[test]
fn calls_are_counted_where_nearly_all_blocks_are_brief() {
    let of = |size, kept_of: u32| {
        let mut driver = Driver::new(super::churn::Churn::new(&[]), glibc);
        for one in 0..100_000 {
            let block = driver.alloc(1, size);
            if one % 100 >= kept_of {
                driver.free(block);
            }
        }
        driver.finish().findings[0].confidence
    };
    assert_eq!(of(4096, 5), Confidence::Certain);
    assert_eq!(of(4096, 6), Confidence::Likely);
    assert_eq!(of(4097, 5), Confidence::Likely, "a large buffer");
}

/// Forty requests that leave blocks of two stacks, what happens in each of them, and so many steps of other work after
/// them.
fn left_by(rounds: u32, after: u64, then: impl Fn(&mut Driver, u32)) -> Vec<Finding> {
    let names: Vec<&str> = (0..rounds).flat_map(|_| ["req begin", "req end"]).collect();
    let mut driver = Driver::new(Phases::new(&marks(&names)), glibc);
    for round in 0..rounds {
        driver.mark(2 * round);
        driver.keep(1, 1000);
        then(&mut driver, round);
        driver.mark(2 * round + 1);
    }
    for _ in 0..after {
        let block = driver.alloc(9, 100_000);
        driver.free(block);
    }
    driver.finish().findings
}

#[test]
fn a_leak_is_certain_if_nothing_of_it_was_ever_released() {
    let sure = |found: &[Finding]| found[0].confidence;
    let plain = |rounds, after| sure(&left_by(rounds, after, |_, _| ()));
    assert_eq!(plain(32, 0), Confidence::Certain);
    assert_eq!(plain(31, 0), Confidence::Likely, "few rounds");
    // A round takes three steps, from the first's end 93 in all; the program goes on for as long, or longer.
    assert_eq!(plain(32, 93 / 2), Confidence::Certain);
    assert_eq!(plain(32, 93 / 2 + 2), Confidence::Likely, "it was loaded");
    // A round in three leaves one: live memory rises as often as that.
    let sparse = |every: u64| {
        let names: Vec<&str> = (0..120).flat_map(|_| ["job begin", "job end"]).collect();
        let mut driver = Driver::new(Phases::new(&marks(&names)), |size| size);
        for round in 0..120u64 {
            driver.mark(2 * round as u32);
            let block = driver.alloc(1, 1000);
            if round % every > 0 {
                driver.free(block);
            }
            driver.mark(2 * round as u32 + 1);
        }
        sure(&driver.finish().findings)
    };
    assert_eq!(sparse(3), Confidence::Certain);
    // A later round releases one block of forty.
    let kept = std::cell::Cell::new(None);
    let found = left_by(40, 0, |driver, round| match round {
        5 => kept.set(Some(driver.alloc(1, 1000))),
        30 => driver.free(kept.get().expect("kept")),
        _ => {}
    });
    assert_eq!(
        (found[0].kind, sure(&found)),
        (FindingKind::Leak, Confidence::Likely)
    );
}

#[test]
fn what_live_memory_rose_by_is_of_all_phases() {
    let names: Vec<&str> = (0..64)
        .flat_map(|round| match round % 2 {
            0 => ["load begin", "load end"],
            _ => ["draw begin", "draw end"],
        })
        .collect();
    let mut driver = Driver::new(Phases::new(&marks(&names)), glibc);
    for round in 0..64 {
        driver.mark(2 * round);
        driver.keep(1, 1000);
        driver.mark(2 * round + 1);
    }
    let found = driver.finish().findings;
    let leaving = found[0].leaving.as_ref().expect("a leak");
    // From the first end to the last one 63 phases were over, and 64 left a block.
    assert_eq!((leaving.left_bytes, leaving.rise_bytes), (64_000, 63_000));
}

#[test]
fn what_rounds_leave_in_proportion_has_the_same_print() {
    let found = left_by(40, 0, |driver, round| {
        for one in 0..1 + round * 7 % 5 {
            driver.keep(2, 100);
            driver.keep(3, 200 + u64::from(round * one));
            driver.keep(3, 900);
        }
        (0..1 + round * 3 % 5).for_each(|_| driver.keep(4, 100));
    });
    let print = |node| {
        let of = found.iter().find(|one| one.node == Some(node));
        let leaving = of.and_then(|one| one.leaving.as_ref()).expect("a leak");
        (leaving.prints[0], leaving.alike * 4 >= leaving.live * 3)
    };
    let [(one, _), (two, object), (three, text), (four, _)] = [1, 2, 3, 4].map(print);
    assert!(one.steady && !two.steady);
    assert_eq!(three.sum, two.sum.wrapping_mul(2));
    assert_eq!(three.blocks, 2 * two.blocks);
    let (a, b) = (
        four.sum.wrapping_mul(two.blocks),
        two.sum.wrapping_mul(four.blocks),
    );
    assert_ne!(a, b, "as many in all, in other rounds");
    assert!(object && !text);
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
    assert_eq!(wording::bytes(1000 << 40), "1,000 TiB");
    assert_eq!(wording::bytes(u64::MAX), "16,777,216 TiB");
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

/// What is promised of a stack that leaves blocks in phases of these names, with so many steps of other work after them.
fn promised(names: &[String], after: u64) -> u64 {
    let edges = names
        .iter()
        .flat_map(|name| [format!("{name} begin"), format!("{name} end")]);
    let edges: Vec<String> = edges.collect();
    let edges: Vec<&str> = edges.iter().map(String::as_str).collect();
    let mut driver = Driver::new(Phases::new(&marks(&edges)), glibc);
    for phase in 0..names.len() as u32 {
        driver.mark(2 * phase);
        (0..10).for_each(|_| driver.keep(1, 1000));
        driver.mark(2 * phase + 1);
    }
    for _ in 0..after {
        let block = driver.alloc(9, 100_000);
        driver.free(block);
    }
    let found = driver.finish().findings;
    assert_eq!(found.len(), 1);
    found[0].saved_bytes
}

#[test]
fn a_few_phases_are_a_start_and_no_rounds() {
    let rounds = |many| -> Vec<String> { (0..many).map(|n| format!("page {n}")).collect() };
    let stages =
        |many: u8| -> Vec<String> { (0..many).map(|n| ((b'a' + n) as char).into()).collect() };
    assert_eq!(promised(&rounds(3), 0), 0);
    assert_eq!(promised(&rounds(4), 0), 40 * 1000);
    assert_eq!(promised(&stages(15), 0), 0);
    assert_eq!(promised(&stages(16), 0), 160 * 1000);
    // A round takes twelve steps: 31 take 360 from the end of the first on. Many prove it, whatever follows.
    assert_eq!(promised(&rounds(31), 180), 310 * 1000);
    assert_eq!(promised(&rounds(31), 182), 0);
    assert_eq!(promised(&rounds(32), 1000), 320 * 1000);
}

#[test]
fn what_a_queue_replaced_is_no_buffer_until_most_pairs_grow() {
    let mut driver = Driver::new(GrowthPass::new("glibc 2.36"), glibc);
    let replace = |driver: &mut Driver, block, size| {
        let next = driver.alloc(7, size);
        driver.free(block);
        next
    };
    // 256 pairs that do not grow; then one buffer, a byte longer each time. A pair that grows counts before it is asked
    // whether the stack is a queue: with the 512th it is none any more.
    let mut block = driver.alloc(7, 1000);
    for _ in 0..256 {
        block = replace(&mut driver, block, 1000);
    }
    for size in 1001..=3100 {
        block = replace(&mut driver, block, size);
    }
    let growth = driver.finish().growth;
    assert_eq!(growth.len(), 1);
    assert_eq!((growth[0].chains, growth[0].steps), (1, 2100 - 511));
}

/// Ten requests, of which the first five leave four blocks each, and the others as many as said.
fn later_ones_leave(later: [u32; 5]) -> FindingKind {
    let found = left_by(10, 0, |driver, round| {
        let many = match round {
            0..5 => 4,
            _ => later[round as usize - 5],
        };
        (0..many).for_each(|_| driver.keep(2, 1000));
    });
    let of = found.iter().find(|one| one.node == Some(2));
    of.expect("a finding").kind
}

#[test]
fn a_leak_of_the_first_half_goes_on_in_the_second() {
    // Of 20 blocks of the first half half as many come again, or one less.
    assert_eq!(later_ones_leave([2; 5]), FindingKind::Leak);
    assert_eq!(later_ones_leave([2, 2, 2, 2, 1]), FindingKind::Zombie);
    assert_eq!(later_ones_leave([4; 5]), FindingKind::Leak);
}

#[test]
fn above_a_class_that_is_no_power_of_two_64_bytes_are_a_few() {
    // jemalloc gives 1,536 for 1,280 and 64 more, or 65.
    let of = |size| {
        shoes(
            "libjemalloc.so.2",
            jemalloc5,
            &[(1, 1280, 1), (2, size, 1000)],
        )
        .len()
    };
    assert_eq!([of(1344), of(1345)], [1, 0]);
    // A sixteenth of 640 are 40.
    let of = |size| {
        shoes(
            "libjemalloc.so.2",
            jemalloc5,
            &[(1, 640, 1), (2, size, 1000)],
        )
        .len()
    };
    assert_eq!([of(680), of(681)], [1, 0]);
}

#[test]
fn what_all_rounds_left_must_stay_and_not_the_first_halfs_alone() {
    // Ten rounds leave four blocks each; of the last three ones eleven are released, or ten.
    let kind = |freed: usize| {
        let mut names: Vec<&str> = (0..10).flat_map(|_| ["req begin", "req end"]).collect();
        names.push("cleared");
        let mut driver = Driver::new(Phases::new(&marks(&names)), glibc);
        let mut kept = Vec::new();
        for request in 0..10 {
            driver.mark(2 * request);
            kept.extend((0..4).map(|_| driver.alloc(1, 4000)));
            driver.mark(2 * request + 1);
        }
        let last = kept.split_off(40 - freed);
        last.into_iter().for_each(|block| driver.free(block));
        driver.mark(20);
        driver.finish().findings[0].kind
    };
    assert_eq!(
        [kind(10), kind(11)],
        [FindingKind::Leak, FindingKind::Zombie]
    );
}

#[test]
fn two_epochs_are_a_suspicion_and_a_block_less_is_none() {
    // Ten are kept. With the 64th acquisition the first epoch ends, in which they came; then eleven live, so that two
    // further ones take 88 each.
    let found = |acquisitions: u32| {
        let mut driver = Driver::new(Placebo::new(), glibc);
        (0..10).for_each(|_| driver.keep(1, 4096));
        for _ in 10..acquisitions {
            let block = driver.alloc(1, 4096);
            driver.free(block);
        }
        driver.finish().findings
    };
    assert_eq!(found(64 + 2 * 88 - 1).len(), 0);
    let suspected = found(64 + 2 * 88);
    assert_eq!(suspected.len(), 1);
    assert_eq!(suspected[0].saved_allocations, 2 * 88);
}

#[test]
fn a_buffer_is_claimed_by_its_finding_or_by_none() {
    // Buffers of 1,000 bytes that grew so many times, and are kept.
    let kept = |buffers: u32, steps: u64| {
        let mut driver = Driver::new(GrowthPass::new("glibc 2.36"), glibc);
        for _ in 0..buffers {
            let mut block = driver.alloc(7, 1000);
            for step in 2..=steps + 1 {
                block = driver.regrow(block, 7, 1000 * step);
            }
        }
        let report = driver.finish();
        let claimed =
            |claims: &[crate::model::Claim]| -> u64 { claims.iter().map(|one| one.blocks).sum() };
        let by_findings = report.findings.iter().map(|one| claimed(&one.claims));
        (by_findings.sum::<u64>(), claimed(&report.in_growth))
    };
    assert_eq!(kept(100, 25), (100, 0));
    assert_eq!(kept(2, 3), (0, 2), "too little for a finding");
}

#[test]
fn what_is_released_beside_a_realloc_is_no_pair() {
    // A buffer that is replaced by larger ones, one that realloc grows, and blocks that go in between.
    let mut driver = Driver::new(GrowthPass::new("glibc 2.36"), glibc);
    let others: Vec<_> = (0..100).map(|_| driver.alloc(7, 100_000)).collect();
    let (mut moved, mut block) = (driver.alloc(7, 1000), driver.alloc(7, 1000));
    for (step, other) in (1..).zip(others) {
        let larger = driver.alloc(7, 1000 + 16 * step);
        driver.free(block);
        block = larger;
        moved = driver.regrow(moved, 7, 1000 + 16 * step);
        driver.free(other);
    }
    let growth = driver.finish().growth;
    let mut rows: Vec<_> = growth.iter().map(|row| (row.by_hand, row.steps)).collect();
    rows.sort_unstable();
    assert_eq!(rows, [(false, 100), (true, 100)]);
}

#[test]
fn sixty_four_phases_may_be_open_at_once() {
    let notes = |many: u32| {
        let names: Vec<String> = (0..many).map(|n| format!("page {n} begin")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut driver = Driver::new(Phases::new(&marks(&names)), glibc);
        (0..many).for_each(|mark| driver.mark(mark));
        let notes = driver.finish().completeness.notes.into_iter();
        let said = notes.filter(|note| note.starts_with("More than 64 phases open at once"));
        said.collect::<Vec<_>>()
    };
    assert_eq!(notes(64), Vec::<String>::new());
    let one = "More than 64 phases open at once: 'page 64' is not followed.";
    assert_eq!(notes(65), [one]);
}

#[test]
fn without_marks_nothing_is_said_of_when() {
    let said = |names: &[&str]| {
        let mut driver = Driver::new(super::churn::Churn::new(&marks(names)), glibc);
        for _ in 0..100_000 {
            let block = driver.alloc(1, 4096);
            driver.free(block);
        }
        driver.finish().findings[0].what.contains("start-up")
    };
    assert_eq!([said(&["load"]), said(&[])], [true, false]);
}

#[test]
fn three_of_four_blocks_of_the_first_half_must_stay_for_a_leak() {
    // Ten rounds leave four blocks each; of the twenty of the first half five are released, or six.
    let kind = |freed: usize| {
        let mut names: Vec<&str> = (0..10).flat_map(|_| ["req begin", "req end"]).collect();
        names.push("cleared");
        let mut driver = Driver::new(Phases::new(&marks(&names)), glibc);
        let mut kept = Vec::new();
        for request in 0..10 {
            driver.mark(2 * request);
            kept.extend((0..4).map(|_| driver.alloc(1, 4000)));
            driver.mark(2 * request + 1);
        }
        kept.truncate(freed);
        kept.into_iter().for_each(|block| driver.free(block));
        driver.mark(20);
        driver.finish().findings[0].kind
    };
    assert_eq!([kind(5), kind(6)], [FindingKind::Leak, FindingKind::Zombie]);
}

#[test]
fn a_quarter_and_two_may_be_live_beside_the_held_ones() {
    // Twenty are kept, and 21 live where an epoch begins; one of 168 acquisitions begins and ends with the first of a
    // burst of seven.
    let found = |burst: u32| {
        let mut driver = Driver::new(Placebo::new(), glibc);
        (0..20).for_each(|_| driver.keep(1, 4096));
        let first = driver.alloc(1, 4096);
        driver.free(first);
        for _ in 0..100 {
            let busy: Vec<_> = (0..burst).map(|_| driver.alloc(1, 4096)).collect();
            busy.into_iter().for_each(|block| driver.free(block));
        }
        driver.finish().findings.len()
    };
    assert_eq!([found(7), found(8)], [1, 0]);
}

#[test]
fn one_byte_above_a_small_class_is_a_clownshoe_if_nearly_all_have_it() {
    let of = |requests: &[(u32, u64, u64)]| {
        let found = shoes("glibc 2.36", glibc, requests);
        found.first().map(|one| {
            (
                one.saved_bytes,
                one.confidence,
                one.title.contains("40 + 1"),
            )
        })
    };
    let told = |blocks: u64| Some((blocks * 16, Confidence::Certain, true));
    assert_eq!(of(&[(1, 41, 4096)]), told(4096));
    assert_eq!(of(&[(1, 41, 4095)]), None, "less than 64 KiB");
    assert_eq!(of(&[(1, 41, 7500), (1, 50, 2500)]), told(7500));
    assert_eq!(of(&[(1, 41, 7499), (1, 50, 2501)]), None, "data");
    // Two bytes above, and a type's size.
    assert_eq!(of(&[(1, 42, 10_000)]), None);
    assert_eq!(of(&[(1, 48, 10_000)]), None);
}

#[test]
fn one_pair_in_sixty_five_that_does_not_grow_leaves_a_doubt() {
    // A hundred buffers of sixteen steps each, and pairs of one size.
    let confidence = |others: u32| {
        let mut driver = Driver::new(GrowthPass::new("glibc 2.36"), glibc);
        for _ in 0..100 {
            let mut block = driver.alloc(7, 10_000);
            for size in (11_000..=26_000).step_by(1000) {
                let larger = driver.alloc(7, size);
                driver.free(block);
                block = larger;
            }
            driver.free(block);
        }
        for _ in 0..others {
            let [one, other] = [0; 2].map(|_| driver.alloc(7, 500));
            driver.free(one);
            driver.free(other);
        }
        let found = driver.finish().findings;
        assert_eq!(found.len(), 1, "{found:#?}");
        found[0].confidence
    };
    assert_eq!(confidence(25), Confidence::Certain, "1,600 pairs grow");
    assert_eq!(confidence(26), Confidence::Likely);
}

#[test]
fn a_few_large_blocks_pile_up_with_64_bytes_more() {
    let of = |extra: u64| shoes("libjemalloc.so.2", jemalloc5, &[(1, (1 << 20) + extra, 10)]).len();
    assert_eq!([of(64), of(65)], [1, 0]);
}
