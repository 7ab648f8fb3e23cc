//! Random acts under every policy, judged by a second, dumber implementation.
//!
//! ```text
//!   seed ─► acts ─► Model ─── places ──► a map of live blocks: no two overlap, none is lost
//!                     └────── counters ► the pages of those blocks, counted anew: the floor
//! ```
//!
//! R1  The judge keeps whole blocks in a map and knows nothing of spans, chunks or bits.
//! R2  A seed that fails is printed and repeats the failure.
//!
//! Not here: figures worked out by hand (`by_hand.rs`).

use std::collections::{BTreeMap, BTreeSet};

use skinflint_base::random::Random;

use crate::model::{Model, Size};
use crate::pages::PAGE;
use crate::policy::Policy;

fn whole(size: u64) -> Size {
    Size {
        asked: size,
        touched: size,
    }
}

/// Draws a size: mostly small, some middling, few large; none of them a mapping of its own for all policies.
fn size(random: &mut Random) -> u64 {
    match random.below(100) {
        0..=59 => 1 + random.below(200),
        60..=89 => 1 + random.below(6000),
        90..=98 => 1 + random.below(60_000),
        _ => 1 + random.below(600_000),
    }
}

/// The judge: live blocks by number.
#[derive(Default)]
struct Judge(BTreeMap<u32, u64>);

impl Judge {
    fn check(&self, model: &Model, seed: u64) {
        let name = &model.policy.name;
        let mut by_place = BTreeMap::new();
        let mut direct_pages = 0;
        for (block, size) in &self.0 {
            let place = model.place_of(*block);
            if place.is_direct() {
                direct_pages += size.div_ceil(PAGE);
                continue;
            }
            let twice = by_place.insert(place.0, *size);
            assert_eq!(
                twice, None,
                "{name}, seed {seed}: two blocks at {}",
                place.0
            );
        }
        let mut floor = BTreeSet::new();
        let mut free_from = 0;
        for (place, size) in &by_place {
            assert!(
                *place >= free_from,
                "{name}, seed {seed}: blocks overlap at {place}"
            );
            free_from = place + size;
            floor.extend(place / PAGE..free_from.div_ceil(PAGE));
        }
        let requested: u64 = self.0.values().sum();
        model.check(requested, requested);
        let figures_floor = model.floor_pages();
        assert_eq!(
            figures_floor,
            floor.len() as u64 + direct_pages,
            "{name}, seed {seed}"
        );
    }
}

fn random_acts(policy: &Policy, delay_ms: u32, seed: u64) {
    let mut random = Random::new(seed);
    let mut model = Model::new(policy.clone(), delay_ms);
    let mut judge = Judge::default();
    let mut spare: Vec<u32> = (0..3000).rev().collect();
    let mut now_ms = 0;
    for act in 0..8000u32 {
        // Grows, shrinks to nearly nothing, and grows again.
        let growing = (act / 2000).is_multiple_of(2);
        let dice = random.below(16);
        let live: u64 = judge.0.len() as u64;
        let pick = random.below(live.max(1)) as usize;
        if dice == 15 && live > 0 {
            let (&block, &old) = judge.0.iter().nth(pick).expect("live");
            let new = if random.below(2) == 0 {
                size(&mut random)
            } else {
                old + random.below(old + 64)
            };
            model.regrown(block, whole(old), whole(new), random.below(3) as u32);
            judge.0.insert(block, new);
        } else if (dice < if growing { 10 } else { 3 } || live == 0) && !spare.is_empty() {
            let block = spare.pop().expect("not empty");
            let size = size(&mut random);
            model.came(block, whole(size), random.below(3) as u32);
            judge.0.insert(block, size);
        } else if live > 0 {
            let (&block, &size) = judge.0.iter().nth(pick).expect("live");
            model.went(block, whole(size));
            judge.0.remove(&block);
            spare.push(block);
        }
        if random.below(8) == 0 {
            now_ms += random.below(40) as u32;
            model.lasted(1, judge.0.values().sum(), now_ms);
        }
        if act.is_multiple_of(512) {
            judge.check(&model, seed);
        }
    }
    for (block, size) in std::mem::take(&mut judge.0) {
        model.went(block, whole(size));
    }
    judge.check(&model, seed);
    model.lasted(1, 0, now_ms + 100_000);
    // Nothing lives: all that can be given back is.
    let end = model.finish(0, 0, 1, 1);
    assert_eq!(
        (
            end.at_end.slop_bytes,
            end.at_end.floor_bytes,
            end.at_end.spans
        ),
        (0, 0, 0)
    );
    // Chunks that glibc keeps may pin its top.
    if policy.order.is_some() {
        assert_eq!(end.at_end.resident.spans, 0, "{}, seed {seed}", policy.name);
    }
    assert_eq!(end.at_end.resident.holes, 0, "{}, seed {seed}", policy.name);
}

#[test]
fn named_policies_keep_their_books() {
    for policy in Policy::all() {
        for (seed, delay_ms) in [(1, 0), (2, 300)] {
            random_acts(&policy, delay_ms, seed);
        }
    }
}

#[test]
fn parts_put_together_keep_their_books() {
    let mut seed = 10;
    for classes in ["go", "exact16", "mozjemalloc-2011", "skinflint+earned"] {
        for length in ["4k", "share", "notail"] {
            for order in ["lowest", "lifo", "fullest"] {
                seed += 1;
                let threads = if seed % 2 == 0 { ":threads" } else { "" };
                let text = format!("{classes}:{length}:{order}{threads}");
                let policy = Policy::parse(&text).expect("a policy");
                random_acts(&policy, (seed % 3) as u32 * 100, seed);
            }
        }
    }
}

/// For blocks of one size the slots are all alike: every order holds the same at the peak.
#[test]
fn orders_differ_after_frees_only() {
    let figures = |order: &str| {
        let mut model = Model::new(
            Policy::parse(&format!("jemalloc5:16k:{order}")).expect("known"),
            0,
        );
        (0..5000).for_each(|block| model.came(block, whole(48), 0));
        model.floor_pages()
    };
    let lowest = figures("lowest");
    // 16 KiB hold 341 blocks of 48 bytes; 14 spans of 4 pages and one with 226: 3 pages.
    assert_eq!(lowest, 14 * 4 + 3);
    assert_eq!([figures("lifo"), figures("fullest")], [lowest; 2]);
}
