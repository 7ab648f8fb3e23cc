//! Places: blocks of one lie together, and what is left after its end is little, whoever frees and when.
//!
//! N1  Tests run in one process and one at a time (a lock): the books are the process's.
//! N2  Forks come through `pthread_atfork`, as in a program that has loaded the allocator; a child says by its status
//!     whether all went well, within a minute.
//!
//! Not here: heaps that several threads use (`tenants`).

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

/// N2: `act` in a child, which has to come to its end.
fn in_child(act: impl FnOnce()) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: the three are made for that.
        let registered = unsafe {
            let (before, parent, child) = (
                alloc::fork::prepare,
                alloc::fork::parent,
                alloc::fork::child,
            );
            libc::pthread_atfork(Some(before), Some(parent), Some(child))
        };
        assert_eq!(registered, 0);
    });
    // SAFETY: the child allocates by this allocator only, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: as above.
        unsafe {
            libc::alarm(60);
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
            libc::_exit(i32::from(ended.is_err()));
        }
    }
    let mut status = 0;
    // SAFETY: our own child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "the child's status");
}

/// Drops something of the parent's in a child.
///
/// # Safety
/// In a child nobody uses or drops it again.
unsafe fn drop_here<T>(it: &T) {
    // SAFETY: as the caller promises.
    drop(unsafe { core::ptr::read(it) });
}

/// Blocks whose first and last bytes say whose they are.
struct Marked(u8, Vec<Vec<u8>>);

impl Marked {
    fn new(mark: u8) -> Marked {
        Marked(mark, Vec::new())
    }

    fn grow(&mut self, count: usize) {
        let sizes = (0..count).map(|n| 16 + n * 37 % 900);
        self.1.extend(sizes.map(|size| vec![self.0; size]));
    }

    fn check(&self) {
        let ends = |block: &Vec<u8>| (block[0], block[block.len() - 1]);
        assert!(self.1.iter().all(|block| ends(block) == (self.0, self.0)));
    }
}

fn whole() {
    check_invariants(3).unwrap_or_else(|broken| panic!("{broken:x?}"));
}

/// Two users of one heap: a thread in a place of its own, and this one in `place`.
fn beside_a_thread(place: &Place) {
    let mut mine = Marked::new(3);
    let thread = std::thread::spawn(|| {
        let place = Place::new().expect("memory");
        let _inside = place.enter();
        let mut theirs = Marked::new(4);
        (0..200).for_each(|_| theirs.grow(20));
        theirs.check();
    });
    for _ in 0..200 {
        let _inside = place.enter();
        mine.grow(20);
    }
    thread.join().expect("its blocks are its own");
    mine.check();
}

/// What a child may do with a place of before the fork, and what that place is to it.
#[test]
fn places_of_before_a_fork_do_nothing_in_the_child() {
    let _alone = alone();
    let place = Place::new().expect("memory");
    let mut blocks = Marked::new(1);
    let mut outside = Marked::new(2);
    {
        let _inside = place.enter();
        blocks.grow(5_000);
    }
    outside.grow(5_000);
    for round in 0..4 {
        // With blocks that were freed from outside, and are not drained yet.
        blocks.1.truncate(blocks.1.len() - 100);
        in_child(|| {
            whole();
            blocks.check();
            outside.check();
            if round % 2 == 0 {
                // Heaps that have no thread any more are adopted, that of the old place among them.
                let new: Vec<Place> = (0..4).map(|_| Place::new().expect("memory")).collect();
                drop(place.enter());
                new.iter().for_each(beside_a_thread);
                // SAFETY: not used again.
                unsafe { drop_here(&place) };
                new.iter().for_each(beside_a_thread);
            }
            blocks.grow(1_000);
            outside.grow(1_000);
            blocks.check();
            outside.check();
            // SAFETY: not used again.
            unsafe { drop_here(&blocks) };
            whole();
            // SAFETY: not used again.
            unsafe { drop_here(&outside) };
            alloc::trim();
            whole();
        });
        blocks.check();
        outside.check();
        whole();
        let _inside = place.enter();
        blocks.grow(200);
    }
    drop(place);
    drop(blocks);
    whole();
}

/// A fork in a place: it is where the child's thread allocates from then on, and no other's.
#[test]
fn a_place_that_is_entered_at_a_fork_stays_the_childs_thread() {
    let _alone = alone();
    let (place, other) = (Place::new().expect("memory"), Place::new().expect("memory"));
    let mut blocks = Marked::new(1);
    let inside = place.enter();
    let within = other.enter();
    blocks.grow(3_000);
    in_child(|| {
        whole();
        blocks.grow(500);
        // SAFETY: not used again.
        unsafe { drop_here(&within) };
        // SAFETY: as above.
        unsafe { drop_here(&inside) };
        blocks.grow(500);
        drop(place.enter());
        // SAFETY: as above.
        unsafe { drop_here(&place) };
        // SAFETY: as above.
        unsafe { drop_here(&other) };
        let new = Place::new().expect("memory");
        beside_a_thread(&new);
        // And a child of the child, in a place of its own.
        let entered = new.enter();
        blocks.grow(500);
        in_child(|| {
            whole();
            // SAFETY: not used again.
            unsafe { drop_here(&entered) };
            let again = Place::new().expect("memory");
            beside_a_thread(&again);
            blocks.grow(500);
            blocks.check();
        });
        drop(entered);
        beside_a_thread(&new);
        blocks.check();
        // SAFETY: not used again.
        unsafe { drop_here(&blocks) };
        whole();
    });
    blocks.check();
    drop(blocks);
    drop(within);
    drop(inside);
    whole();
}

/// Forks while another thread goes in and out of its places: the child has none of them, and all of their blocks.
#[test]
fn forks_while_other_threads_change_places() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let _alone = alone();
    let done = AtomicBool::new(false);
    let place = Place::new().expect("memory");
    let mut blocks = Marked::new(1);
    std::thread::scope(|scope| {
        for mark in 10..12 {
            let done = &done;
            scope.spawn(move || {
                // ORDER: a flag that stands alone.
                while !done.load(Ordering::Relaxed) {
                    let places = [Place::new().expect("memory"), Place::new().expect("memory")];
                    let mut theirs = Marked::new(mark);
                    for turn in 0..60 {
                        let _inside = places[turn % 2].enter();
                        theirs.grow(10);
                        theirs.1.swap_remove(turn % theirs.1.len());
                    }
                    theirs.check();
                }
            });
        }
        for _ in 0..20 {
            let inside = place.enter();
            blocks.grow(100);
            in_child(|| {
                whole();
                // SAFETY: not used again.
                unsafe { drop_here(&inside) };
                (0..3).for_each(|_| beside_a_thread(&Place::new().expect("memory")));
                blocks.grow(100);
                blocks.check();
                // SAFETY: not used again.
                unsafe { drop_here(&blocks) };
                whole();
            });
            drop(inside);
        }
        done.store(true, Ordering::Relaxed); // ORDER: as above
    });
    blocks.check();
    whole();
}
