//! What only grows after start-up, and what looks like it: start-up may be most of a run, and much may be in use.

use super::advice::{Script, function, of};
use super::*;
use skinflint_analysis::model::Finding;

/// 30,000 blocks of start-up in 30 ms, and 20,000 rounds of 2 ms: `round` makes what each of them makes.
fn after_start_up(mut round: impl FnMut(&mut Script, usize)) -> Vec<(String, u64, u64)> {
    let mut script = Script::new();
    for _ in 0..30_000 {
        script.alloc(1, 1000, 1000);
    }
    for event in &mut script.events {
        event.time_ns /= 1000;
    }
    for i in 0..20_000 {
        round(&mut script, i);
        let passing = script.alloc(4, 3000, 3000);
        script.free(passing);
    }
    let report = script.report(facts());
    let all = of(&report, FindingKind::Leak).into_iter();
    let grows = all.filter(|one| one.title.starts_with("Only grows"));
    let figures = |one: &Finding| (function(&report, one).to_owned(), one.blocks, one.now_bytes);
    let mut grows: Vec<_> = grows.map(figures).collect();
    grows.sort();
    grows
}

/// Neither start-up nor the blocks in use hide what each round leaves, whether or not they are of the same stack.
#[test]
fn what_only_grows_after_start_up_is_told() {
    let leaks = |node: u32, every: usize, in_use: usize| {
        let mut using = std::collections::VecDeque::new();
        after_start_up(move |script, i| {
            let block = script.alloc(node, 1000, 1000);
            if i % every > 0 {
                using.push_back(block);
            }
            if using.len() > in_use {
                script.free(using.pop_front().unwrap());
            }
        })
    };
    let one = |name: &str, blocks: u64| vec![(name.to_owned(), blocks, blocks * 1000)];
    assert_eq!(leaks(2, 1, 0), one("f2", 20_000));
    // Start-up is born as evenly.
    assert_eq!(leaks(1, 1, 0), one("f1", 50_000));
    assert_eq!(leaks(2, 20, 200), one("f2", 1_000));
    assert_eq!(leaks(1, 20, 200), one("f1", 1_000));
    assert_eq!(leaks(2, 20, 4_000), one("f2", 1_000));
    // What is in use, and nothing else.
    assert_eq!(leaks(2, usize::MAX, 200), []);
    assert_eq!(leaks(2, usize::MAX, 10_000), []);
    assert_eq!(leaks(1, usize::MAX, 10_000), []);
}

/// A table that is filled in the first half of the rounds, in the last half, and a cache whose places are taken by chance.
#[test]
fn what_is_filled_once_or_replaced_by_chance_does_not_only_grow() {
    for half in [0..10_000, 10_000..20_000] {
        let filled = after_start_up(|script, i| {
            if half.contains(&i) {
                script.alloc(2, 1000, 1000);
            }
        });
        assert_eq!(filled, [], "{half:?}");
    }
    for places in [500, 5_000, 10_000] {
        let (mut cache, mut at) = (Vec::new(), 1u64);
        let replaced = after_start_up(|script, _| {
            let block = script.alloc(2, 1000, 1000);
            if cache.len() < places {
                cache.push(block);
                return;
            }
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let place = (at >> 33) as usize % places;
            script.free(std::mem::replace(&mut cache[place], block));
        });
        assert_eq!(replaced, [], "{places} places");
    }
}
