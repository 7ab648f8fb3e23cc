//! Places: blocks of one lie together, and what is left after its end is little, whoever frees and when.
//!
//! N1  Tests run in one process and one at a time (a lock): the books are the process's.
//!
//! Not here: heaps that several threads use (`tenants`), forks (`places_fork`).

use std::sync::{Mutex, MutexGuard};

use skinflint_alloc as alloc;
use skinflint_alloc::stats::{Snapshot, snapshot};
use skinflint_alloc::{Place, check::check_invariants};

#[global_allocator]
static MALLOC: alloc::Skinflint = alloc::Skinflint;

static ONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// What spans hold without a live block in it, after a trim.
fn pinned() -> usize {
    alloc::trim();
    let mut figures = Box::new(Snapshot::new());
    assert!(snapshot(&mut figures, true));
    assert!(figures.balanced, "{figures:?}");
    figures.resident.in_spans
}

/// A tab's part of a turn: small strings of several sizes, and some that end at once.
fn turn(blocks: &mut Vec<Box<[u8]>>) {
    for at in 0..20 {
        let sizes = [24, 40, 88, 120, 200];
        blocks.push(vec![1; sizes[at % sizes.len()]].into_boxed_slice());
        drop(vec![2u8; sizes[(at + 2) % sizes.len()]]);
    }
}

type Tab = (Option<Place>, Vec<Box<[u8]>>);

const TABS: usize = 50;
const TURNS: usize = 40;

/// Tabs that grow side by side, each with a place or without; all but one end. What that pins.
fn all_but_one(with_places: bool) -> usize {
    let before = pinned();
    let mut tabs: Vec<Tab> = (0..TABS)
        .map(|_| {
            (
                with_places.then(|| Place::new().expect("memory")),
                Vec::new(),
            )
        })
        .collect();
    for _ in 0..TURNS {
        for (place, blocks) in &mut tabs {
            let _inside = place.as_ref().map(Place::enter);
            turn(blocks);
        }
    }
    let kept = tabs.swap_remove(TABS / 2);
    for (place, blocks) in tabs {
        let inside = place.as_ref().map(Place::enter);
        drop(blocks);
        drop(inside);
    }
    check_invariants(2).expect("whole");
    let pins = pinned().saturating_sub(before);
    drop(kept);
    pins
}

#[test]
fn who_stays_does_not_pin_the_pages_of_those_who_left() {
    let _alone = alone();
    let together = all_but_one(false);
    let apart = all_but_one(true);
    // The one that stays has 75 KB; side by side its blocks lie on a page for each turn and size.
    assert!(together > 300 << 10, "{together}");
    assert!(
        apart < 100 << 10 && apart * 4 < together,
        "{apart} against {together}"
    );
}

#[test]
fn blocks_outlive_their_place_and_are_freed_from_anywhere() {
    let _alone = alone();
    let before = pinned();
    let place = Place::new().expect("memory");
    let inside = place.enter();
    let mut blocks: Vec<Vec<u8>> = (0..10_000).map(|n| vec![7; 16 + n % 500]).collect();
    drop(inside);
    // From outside the place, from another thread, and after its end; a third each.
    drop(blocks.drain(..3_000));
    let others = blocks.split_off(3_500);
    std::thread::spawn(move || drop(others))
        .join()
        .expect("no panic");
    drop(place.enter());
    check_invariants(2).expect("whole");
    drop(place);
    assert!(
        blocks
            .iter()
            .all(|block| block.iter().all(|&byte| byte == 7))
    );
    drop(blocks);
    check_invariants(2).expect("whole");
    let after = pinned();
    assert!(after < before + (64 << 10), "{before} to {after}");
}

#[test]
fn places_are_left_in_the_order_of_their_guards() {
    let _alone = alone();
    let (one, other) = (Place::new().expect("memory"), Place::new().expect("memory"));
    {
        let _one = one.enter();
        let kept = vec![1u8; 100];
        {
            let _other = other.enter();
            let _again = one.enter();
            drop(kept);
        }
        drop(vec![1u8; 100]);
    }
    // A place that is dropped while it is entered stays the thread's.
    std::thread::spawn(|| {
        let place = Place::new().expect("memory");
        std::mem::forget(place.enter());
        drop(place);
        drop(vec![1u8; 5000]);
    })
    .join()
    .expect("no panic");
    check_invariants(2).expect("whole");
    let mut heaps = Vec::new();
    heaps.resize_with(20, || Place::new().expect("memory"));
    heaps
        .iter()
        .for_each(|place| drop((place.enter(), vec![0u8; 64])));
    check_invariants(2).expect("whole");
}
