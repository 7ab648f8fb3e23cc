//! Private heaps: the blocks of one lie together, and little is left after its end, whichever thread frees them and when.
//!
//! N1  Tests run in one process and one at a time (a lock): the books are the process's.
//!
//! Not here: heaps that several threads use (`tenants`), forks (`private_heaps_fork`).

use std::sync::{Mutex, MutexGuard};

use skinflint_alloc as alloc;
use skinflint_alloc::PrivateHeap;
use skinflint_alloc::check::{check_invariants, own_heap};
use skinflint_alloc::stats::{Snapshot, snapshot};

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

/// A tab's part of a round: small strings of several sizes, and some that end at once.
fn one_round(blocks: &mut Vec<Box<[u8]>>) {
    for at in 0..20 {
        let sizes = [24, 40, 88, 120, 200];
        blocks.push(vec![1; sizes[at % sizes.len()]].into_boxed_slice());
        drop(vec![2u8; sizes[(at + 2) % sizes.len()]]);
    }
}

fn within(heap: Option<&PrivateHeap>, work: impl FnOnce()) {
    match heap {
        Some(heap) => heap.within(work),
        None => work(),
    }
}

type Tab = (Option<PrivateHeap>, Vec<Box<[u8]>>);

const TABS: usize = 50;
const ROUNDS: usize = 40;

/// Tabs that grow side by side, each with a private heap or without; all but one end. What that pins.
fn all_but_one(with_private_heaps: bool) -> usize {
    let before = pinned();
    let mut tabs: Vec<Tab> = (0..TABS)
        .map(|_| {
            (
                with_private_heaps.then(|| PrivateHeap::new().expect("memory")),
                Vec::new(),
            )
        })
        .collect();
    for _ in 0..ROUNDS {
        for (heap, blocks) in &mut tabs {
            within(heap.as_ref(), || one_round(blocks));
        }
    }
    let kept = tabs.swap_remove(TABS / 2);
    for (heap, blocks) in tabs {
        within(heap.as_ref(), || drop(blocks));
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
    // The one that stays has 75 KB; side by side its blocks lie on a page for each round and size.
    assert!(together > 300 << 10, "{together}");
    assert!(
        apart < 100 << 10 && apart * 4 < together,
        "{apart} against {together}"
    );
}

#[test]
fn blocks_outlive_their_private_heap_and_are_freed_from_anywhere() {
    let _alone = alone();
    let before = pinned();
    let heap = PrivateHeap::new().expect("memory");
    let mut blocks: Vec<Vec<u8>> =
        heap.within(|| (0..10_000).map(|n| vec![7; 16 + n % 500]).collect());
    // From outside the private heap, from another thread, and after its end; a third each.
    drop(blocks.drain(..3_000));
    let others = blocks.split_off(3_500);
    std::thread::spawn(move || drop(others))
        .join()
        .expect("no panic");
    heap.within(|| ());
    check_invariants(2).expect("whole");
    drop(heap);
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
fn private_heaps_are_left_in_the_order_in_which_they_were_entered() {
    let _alone = alone();
    let own = own_heap();
    let (one, other) = (
        PrivateHeap::new().expect("memory"),
        PrivateHeap::new().expect("memory"),
    );
    let (first, second) = one.within(|| {
        let first = own_heap();
        let kept = vec![1u8; 100];
        let second = other.within(|| {
            let second = own_heap();
            one.within(|| assert_eq!(own_heap(), first));
            drop(kept);
            assert_eq!(own_heap(), second);
            second
        });
        drop(vec![1u8; 100]);
        assert_eq!(own_heap(), first);
        (first, second)
    });
    assert!(first != second && first != own && second != own);
    assert_eq!(own_heap(), own);
    check_invariants(2).expect("whole");
    let mut heaps = Vec::new();
    heaps.resize_with(20, || PrivateHeap::new().expect("memory"));
    heaps
        .iter()
        .for_each(|heap| heap.within(|| drop(vec![0u8; 64])));
    check_invariants(2).expect("whole");
}

/// Two private heaps are left by a panic, and dropped; then other threads take them, and this one must have neither.
#[test]
fn a_panic_leaves_each_private_heap_behind_it() {
    let _alone = alone();
    let own = own_heap();
    let (one, other) = (
        PrivateHeap::new().expect("memory"),
        PrivateHeap::new().expect("memory"),
    );
    let heaps = [&one, &other].map(|heap| heap.within(own_heap));
    let left = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        one.within(|| {
            let inner = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                other.within(|| std::panic::resume_unwind(Box::new(1)));
            }));
            assert!(inner.is_err());
            assert_eq!(own_heap(), heaps[0], "the outer one is entered still");
            other.within(|| one.within(|| std::panic::resume_unwind(Box::new(2))));
        });
    }));
    assert!(left.is_err());
    assert_eq!(own_heap(), own, "a heap is entered for ever");
    drop((one, other));
    let theirs: Vec<_> = (0..4)
        .map(|_| std::thread::spawn(own_heap))
        .map(|thread| thread.join().expect("no panic"))
        .collect();
    assert!(!theirs.contains(&own), "two threads have one heap");
    check_invariants(2).expect("whole");
}
