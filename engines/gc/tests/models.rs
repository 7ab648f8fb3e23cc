//! What threads of the garbage-collected heap share: each step, taken by a few threads in every order.
//!
//! ```text
//!   handover.rs  stop.rs ──(the very files)──► here ─┬─ make model-test: all orders     an item is a watched cell
//!                                                    └─ cargo test: real threads
//! ```
//!
//! M1  The thread that has an item writes its cell: two accesses that the hand-over does not order fail.
//! M2  Each item is swept once, by either thread, and none is lost.
//! M3  A sleeper sleeps until it is woken: a lost wake-up is a deadlock, which loom finds.
//! M4  Finalizers that allocate while the sweeper has arenas, heaps that share a sweeper, and an end in the middle are
//!     run as well.
//! M5  No step is defined here: scenarios call the functions of the files above.
//!
//! `make model-test` runs them under loom, in every order with few preemptions; `cargo test` runs the same scenarios some
//! hundred times on real threads (`skinflint_interleave`), which proves no ordering.
//!
//! Not here: what a sweep does.
// The crate uses the rest.
#![allow(dead_code)]

use std::time::Duration;

use skinflint_interleave::{Arc, Watched, check, thread};

#[path = "../src/heap/handover.rs"]
mod handover;
#[path = "../src/heap/stop.rs"]
mod stop;
#[path = "../src/heap/sync.rs"]
mod sync;

use handover::{Handover, WakeQueue};
use stop::Stop;

const PREEMPTIONS: usize = 3;

/// Longer than any test: what ends a rest is the model's clock.
const PERIOD: Duration = Duration::from_secs(3600);

/// An arena: how often it was swept (M1).
type Item = Watched<u32>;

fn sweep(item: &Item) {
    item.with_mut(|times| *times += 1);
}

fn items(count: usize) -> Vec<Arc<Item>> {
    (0..count).map(|_| Arc::new(Watched::new(0))).collect()
}

type Shared = Arc<Handover<Arc<Item>, usize>>;

/// As the sweeper's thread.
fn sweeper(queue: &WakeQueue<Shared>) {
    while let Some(handover) = queue.wait() {
        while let Some((lane, items)) = handover.claim_many(2) {
            items.iter().for_each(|item| sweep(item));
            let count = items.len();
            handover.give(lane, items, count);
        }
    }
}

/// As a heap's thread: one cycle with lazy sweeping beside the sweeper, then everything is looked at.
fn cycle(handover: &Shared, queue: &WakeQueue<Shared>, all: &[Arc<Item>], round: u32) {
    let (first, second) = all.split_at(all.len() / 2);
    // As marking does: everything is touched, so nothing may be in flight.
    for item in all {
        item.with(|times| assert_eq!(*times, round));
    }
    handover.offer(0, first.to_vec());
    handover.offer(1, second.to_vec());
    queue.push(handover.clone());
    let mut own = 0;
    let mut got = handover.take_done(1).len();
    if let Some(item) = handover.claim(1) {
        sweep(&item);
        own += 1;
    }
    for lane in 0..2 {
        while let Some(item) = handover.claim(lane) {
            sweep(&item);
            own += 1;
        }
    }
    handover.wait_quiet();
    assert!(handover.is_quiet());
    got += handover.take_done(0).len() + handover.take_done(1).len();
    assert_eq!(own + got, all.len(), "M2");
    assert_eq!(handover.take_sums().iter().sum::<usize>(), got);
    for item in all {
        item.with(|times| assert_eq!(*times, round + 1));
    }
}

#[test]
fn two_cycles_beside_the_sweeper() {
    check(PREEMPTIONS, || {
        let queue = Arc::new(WakeQueue::new());
        let handover: Shared = Arc::new(Handover::new());
        let other = queue.clone();
        let thread = thread::spawn(move || sweeper(&other));
        let all = items(3);
        cycle(&handover, &queue, &all, 0);
        cycle(&handover, &queue, &all, 1);
        queue.close();
        thread.join().expect("the sweeper ends");
    });
}

#[test]
fn what_was_pushed_before_the_end_is_heard() {
    check(PREEMPTIONS, || {
        let queue = Arc::new(WakeQueue::new());
        let handover: Shared = Arc::new(Handover::new());
        let other = queue.clone();
        let thread = thread::spawn(move || sweeper(&other));
        let all = items(2);
        handover.offer(0, all.clone());
        queue.push(handover.clone());
        queue.close();
        thread.join().expect("the sweeper ends");
        assert_eq!(handover.take_done(0).len(), 2);
        for item in &all {
            item.with(|times| assert_eq!(*times, 1));
        }
    });
}

/// Two heaps of a world have one sweeper: each waits for its own items only, and finds them swept.
#[test]
fn two_heaps_with_one_sweeper() {
    check(PREEMPTIONS, || {
        let queue = Arc::new(WakeQueue::new());
        let other = queue.clone();
        let thread = thread::spawn(move || sweeper(&other));
        let heaps: [Shared; 2] = [Arc::new(Handover::new()), Arc::new(Handover::new())];
        let sets = [items(2), items(1)];
        for (heap, all) in heaps.iter().zip(&sets) {
            heap.offer(0, all.clone());
            queue.push(heap.clone());
        }
        for (heap, all) in heaps.iter().zip(&sets) {
            while let Some(item) = heap.claim(0) {
                sweep(&item);
            }
            heap.wait_quiet();
            for item in all {
                item.with(|times| assert_eq!(*times, 1));
            }
        }
        queue.close();
        thread.join().expect("the sweeper ends");
    });
}

/// What was swept is used again at once, while the rest is still with the sweeper: as an allocation does, which takes
/// over what is done and writes into it.
#[test]
fn an_allocation_takes_over_what_is_done_while_the_rest_is_swept() {
    check(PREEMPTIONS, || {
        let queue = Arc::new(WakeQueue::new());
        let handover: Shared = Arc::new(Handover::new());
        let other = queue.clone();
        let thread = thread::spawn(move || sweeper(&other));
        let all = items(3);
        handover.offer(0, all.clone());
        queue.push(handover.clone());
        let mut mine = Vec::new();
        for _ in 0..2 {
            // Any of them may be with the sweeper still; those that come are the heap's own.
            for item in handover.take_done(0) {
                sweep(&item);
                mine.push(item);
            }
            if handover.is_quiet() {
                break;
            }
            thread::yield_now();
        }
        // First what is pending: the sweeper may claim it as long as it is (handover.H2).
        let pending = std::iter::from_fn(|| handover.claim(0)).count();
        handover.wait_quiet();
        let done: usize = handover.take_all_done().iter().map(Vec::len).sum();
        assert_eq!(mine.len() + pending + done, all.len(), "M2");
        // Twice: by the sweeper, and by the allocation.
        for item in &mine {
            item.with(|times| assert_eq!(*times, 2));
        }
        queue.close();
        thread.join().expect("the sweeper ends");
    });
}

/// The clock ticks, the owner stops: the thread ends, and what it did is seen by the thread that has joined it.
#[test]
fn a_stop_is_heard_whenever_it_comes() {
    check(PREEMPTIONS, || {
        let stop = Arc::new(Stop::new());
        let done = Arc::new(Watched::new(0));
        let (heard, count) = (stop.clone(), done.clone());
        let asker = thread::spawn(move || {
            // As many ticks as there are, and no more.
            while !heard.wait(PERIOD) {
                sweep(&count);
            }
        });
        let ticking = stop.clone();
        let clock = thread::spawn(move || ticking.tick());
        stop.stop();
        asker.join().expect("it ends");
        let times = done.with(|times| *times);
        assert!(times <= 1, "one tick, {times} times");
        clock.join().expect("it ends");
    });
}

#[test]
fn pages_that_are_kept_are_those_of_the_last_offer() {
    check(PREEMPTIONS, || {
        let queue = Arc::new(WakeQueue::new());
        let handover: Shared = Arc::new(Handover::new());
        let other = queue.clone();
        let thread = thread::spawn(move || {
            while let Some(handover) = WakeQueue::<Shared>::wait(&other) {
                while let Some((lane, items)) = handover.claim_many(1) {
                    let kept = items.iter().filter(|_| handover.keep(1)).count();
                    handover.give(lane, items, kept);
                }
            }
        });
        for keep in [1, 0] {
            handover.set_keep(keep);
            handover.offer(0, items(2));
            queue.push(handover.clone());
            while handover.claim(0).is_some() {}
            handover.wait_quiet();
            let kept = handover.take_sums().iter().sum::<usize>();
            assert!(kept <= keep, "{kept} of {keep}");
        }
        queue.close();
        thread.join().expect("the sweeper ends");
    });
}
