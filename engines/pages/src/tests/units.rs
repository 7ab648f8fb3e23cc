//! Descriptors: zero when given out, never twice, and their pages purged when they are free.
//!
//! ```text
//!   seed ─► alloc, free, purge … ─► which units are given out, with content
//! ```
//!
//! D1  A unit is given out once at a time, zero, and keeps what is written there.
//!
//! Not here: the runs that descriptors are for.

use super::layout::resident;
use super::refusals::alone;
use super::*;
use crate::os::faults::{self, FOR_EVER};
use crate::{Region, UNIT};

fn units_of(region: &Region, offset: u32, units: u32) -> &'static mut [u64] {
    let words = units as usize * UNIT / 8;
    // SAFETY: the descriptor is the test's own, and mapped until the end.
    unsafe { std::slice::from_raw_parts_mut(region.at::<u64>(offset), words) }
}

/// Descriptors that are given out: offset, units, number.
type Given = Vec<(u32, u32, u64)>;

fn alloc(region: &mut Region, given: &mut Given, units: u32, seed: u64) {
    let number = given.len() as u64 + 1;
    let offset = region.desc_alloc(units).expect("memory");
    let words = units_of(region, offset, units);
    assert!(offset > 0 && offset.is_multiple_of(64));
    assert!(words.iter().all(|word| *word == 0), "not zero, seed {seed}");
    words.fill(number);
    given.push((offset, units, number));
}

fn free(region: &mut Region, given: &mut Given, index: usize, seed: u64) {
    let (offset, units, number) = given.swap_remove(index);
    let words = units_of(region, offset, units);
    assert!(words.iter().all(|word| *word == number), "seed {seed}");
    region.desc_free(offset, units);
}

fn balance(region: &Region, given: &Given, seed: u64) {
    let out: usize = given.iter().map(|one| one.1 as usize).sum();
    let map = if region.has_been_purged() {
        crate::META_SPAN / PAGE / 8 / UNIT
    } else {
        0
    };
    let all = region.meta_used_bytes() / UNIT;
    assert!(region.lists_counted(), "seed {seed}");
    // The first unit is never given out.
    assert_eq!(out + region.free_units() + map + 1, all, "seed {seed}");
}

#[test]
fn units_are_given_out_once_and_zero() {
    for seed in 1..=6 {
        let (mut pool, mut dice, mut given) = (fresh(seed + 300), Random::new(seed), Given::new());
        let region = &mut pool.region;
        alloc(region, &mut given, 5, seed);
        // A thread heap; the bytes before it, up to the page, are not lost.
        let heap = region.meta_alloc(PAGE, PAGE).expect("memory");
        units_of(region, heap, 64).fill(99);
        given.push((heap, 64, 99));
        balance(region, &given, seed);
        for act in 0..6_000 {
            let filling = act / 1_000 % 2 == 0;
            let draw = dice.below(10);
            if given.is_empty() || draw < if filling { 7 } else { 3 } {
                let units = match dice.below(3) {
                    0 => 1,
                    1 => 1 + dice.below(17) as u32,
                    _ => 1 + dice.below(70) as u32,
                };
                alloc(region, &mut given, units, seed);
            } else {
                let index = dice.below(given.len() as u64) as usize;
                free(region, &mut given, index, seed);
            }
            if act % 97 == 0 {
                region.purge_meta();
            }
            if act % 31 == 0 {
                balance(region, &given, seed);
            }
        }
        while !given.is_empty() {
            free(region, &mut given, 0, seed);
        }
        balance(region, &given, seed);
    }
}

#[test]
fn pages_of_free_descriptors_go_back_and_are_used_again() {
    let (mut pool, mut given) = (fresh(310), Given::new());
    let region = &mut pool.region;
    let (first, units) = (region.meta(), [1, 3, 5, 17, 33]);
    for index in 0..5_000 {
        alloc(region, &mut given, units[index % units.len()], 0);
    }
    let used = region.meta_used_bytes();
    let pages = (used / PAGE) as u32;
    assert_eq!(resident(first, pages), pages as usize);
    // One in a thousand stays.
    let mut index = 0;
    given.retain(|&(offset, units, _)| {
        index += 1;
        let stays = index % 1_000 == 0;
        if !stays {
            region.desc_free(offset, units);
        }
        stays
    });
    let taken = region.purge_meta();
    let stay = resident(first, pages);
    assert!(
        taken + 20 > pages as usize && stay < 20,
        "{taken} of {pages}, {stay} stay"
    );
    assert_eq!(region.purge_meta(), 0);
    balance(region, &given, 0);
    // Nothing new is needed for the same number again, nor for what is kept.
    let mapped = region.metadata_mapped_bytes();
    assert!(region.keep(5_000));
    let before = region.meta_used_bytes();
    for index in 0..3_000 {
        alloc(region, &mut given, units[index % units.len()], 0);
    }
    balance(region, &given, 0);
    assert_eq!(region.meta_used_bytes(), before);
    assert_eq!(region.metadata_mapped_bytes(), mapped);
    for &(offset, units, number) in &given {
        assert!(
            units_of(region, offset, units)
                .iter()
                .all(|word| *word == number)
        );
    }
    assert!(region.desc_alloc_kept().is_some());
}

#[test]
fn what_is_kept_is_for_runs_alone() {
    let _alone = alone();
    let (mut pool, mut given) = (fresh(311), Given::new());
    let region = &mut pool.region;
    for index in 0..150 {
        alloc(region, &mut given, [1, 5, 9][index % 3], 0);
    }
    while !given.is_empty() {
        free(region, &mut given, 0, 0);
    }
    assert!(region.keep(600));
    let room = region.meta_bytes - region.meta_used_bytes();
    let all = room / UNIT + region.free_units();
    faults::arm(0, FOR_EVER);
    let mut others = 0;
    while region.desc_alloc(1).is_some() {
        others += 1;
    }
    assert_eq!(
        (region.desc_alloc(2), region.meta_alloc(64, 64)),
        (None, None)
    );
    assert!(!region.keep(601) && region.keep(600));
    let mut kept = 0;
    while region.desc_alloc_kept().is_some() {
        kept += 1;
    }
    assert_eq!(others + kept, all);
    assert!((600..610).contains(&kept), "{kept}");
    // The same holds when there is no room left, and the free descriptors were used before.
    for unit in 1..=800 {
        region.desc_free(unit * UNIT as u32, 1);
    }
    assert!(region.keep(600));
    let others = std::iter::from_fn(|| region.desc_alloc(1)).count();
    let kept = std::iter::from_fn(|| region.desc_alloc_kept()).count();
    faults::disarm();
    assert_eq!((others, kept), (200, 600));
    assert!(region.desc_alloc(1).is_some());
}
