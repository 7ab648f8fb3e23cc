//! Magazines that are taken from threads at work: on real processors, with the kernel's own sections.
//!
//! ```text
//!   threads   malloc, a number of its own into the block, free: the number is still there
//!   another   revoke, barrier, take, again and again           a handler   malloc and free amid either
//! ```
//!
//! W1  Each test is a process of its own, which begins with sections; where the kernel or the C library has none, it
//!     shows that the plain way holds.
//! W2  A block that was given out twice has another number when it is freed; one that was lost keeps its span.
//!
//! Not here: the orders of the words (`tests/models.rs`), how much goes back (`tests/idle_threads.rs`).

use std::sync::atomic::{AtomicBool, AtomicU64};

use super::*;
use crate::heaps::{free, malloc};
use crate::mechanism::lock::ASKER;
use crate::services::batch::PURGE_LOCK;
use crate::services::check::check_invariants;
use crate::services::trim::trim;
use crate::test_engine::{alone, in_child};

const SIZES: [usize; 4] = [48, 200, 1_000, 5_000];

/// A block with a number in it.
fn block(size: usize, number: u64) -> *mut u64 {
    // SAFETY: a block of at least eight bytes, the test's own.
    unsafe {
        let block: *mut u64 = malloc::malloc(size).cast();
        assert!(!block.is_null());
        block.write(number);
        block
    }
}

/// Frees a block; whether its number is what it was.
fn give(block: *mut u64, number: u64) -> bool {
    // SAFETY: a live block, freed once.
    unsafe {
        let same = block.read_volatile() == number;
        free::free(block.cast());
        same
    }
}

/// Takes from every thread, as a trim does.
fn take_from_all() {
    assert!(PURGE_LOCK.lock(ASKER));
    // SAFETY: the lock is held.
    let batch = unsafe { crate::services::batch::batch() };
    of_all(ASKER, core::ptr::null(), batch);
    PURGE_LOCK.unlock();
}

/// What a thread does until it is told to stop; the number of blocks that had another number.
fn work(thread: u64, stop: &AtomicBool) -> usize {
    let (mut held, mut wrong) = (Vec::new(), 0);
    let (mut random, mut number) = (thread + 12_345, thread << 40);
    // ORDER: numbers by themselves.
    while !stop.load(Ordering::Relaxed) {
        // ORDER: numbers by themselves
        for _ in 0..1_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            if random % 2 == 0 && held.len() < 40 || held.is_empty() {
                number += 1;
                held.push((block(SIZES[(random >> 8) as usize % 4], number), number));
            } else {
                let (block, number) = held.swap_remove((random >> 8) as usize % held.len());
                wrong += usize::from(!give(block, number));
            }
        }
    }
    wrong
        + held
            .into_iter()
            .filter(|&(block, number)| !give(block, number))
            .count()
}

/// Pages of all heaps' spans.
fn pages() -> u32 {
    heaps().map(|heap| heap.pages.load(Ordering::Relaxed)).sum() // ORDER: numbers by themselves
}

/// Ends the work of threads when it is dropped.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed); // ORDER: a number by itself
    }
}

/// See it fail: with ENOUGH at half a million, and without the barrier in `take_all`, blocks are given out twice within the
/// first minute.
#[test]
fn threads_at_work_lose_no_block_and_share_none_while_another_takes() {
    const ROUNDS: usize = 4_000;
    const ROUNDS_MAX: usize = 10_000_000;
    const ENOUGH: u64 = 20_000;
    let taken = || TAKEN_BLOCKS.load(Ordering::Relaxed); // ORDER: numbers by themselves
    let name =
        "services::idle::tests::threads_at_work_lose_no_block_and_share_none_while_another_takes";
    let told = in_child(name, || {
        // As in a program that has allocated nothing before: without the range.
        begin(None);
        let _alone = alone();
        allow(true);
        let stop = AtomicBool::new(false);
        let wrong: usize = std::thread::scope(|scope| {
            // Also if a check fails: the scope waits for its threads.
            let end = End(&stop);
            let threads: Vec<_> = (1..=3).map(|thread| (thread, &stop)).collect();
            let threads: Vec<_> = threads
                .into_iter()
                .map(|(thread, stop)| scope.spawn(move || work(thread, stop)))
                .collect();
            for round in 0..ROUNDS_MAX {
                if way() == Way::Asked && round == ROUNDS || taken() >= ENOUGH {
                    break;
                }
                take_from_all();
                if round % 500 == 0 {
                    check_invariants(3).expect("amid the work");
                    trim();
                }
            }
            drop(end);
            threads
                .into_iter()
                .map(|thread| thread.join().expect("ends"))
                .sum()
        });
        assert_eq!(wrong, 0, "blocks in two hands");
        // What the first finds on a stack of notified spans goes with the second.
        trim();
        trim();
        check_invariants(3).expect("at the end");
        assert_eq!(pages(), 0, "blocks were lost");
        let enough = if way() == Way::Taken {
            ENOUGH..u64::MAX
        } else {
            0..1
        };
        assert!(enough.contains(&taken()), "{} blocks", taken());
    });
    if let Some((status, said)) = told {
        assert!(status.success(), "{said}");
    }
}

static HANDLED: AtomicU64 = AtomicU64::new(0);
static SPOILT: AtomicU64 = AtomicU64::new(0);

extern "C" fn handler(_: i32) {
    let number = u64::MAX - HANDLED.fetch_add(1, Ordering::Relaxed); // ORDER: numbers by themselves
    let blocks = [block(48, number), block(48, number - 1)];
    let same = give(blocks[0], number) & give(blocks[1], number - 1);
    SPOILT.fetch_add(u64::from(!same), Ordering::Relaxed); // ORDER: numbers by themselves
}

/// A handler that allocates amid a malloc or a free of its thread has blocks of its own.
///
/// See it fail: with sections armed where no kernel looks (without `begin`).
#[test]
fn a_signal_handler_may_allocate_amid_a_fast_path() {
    const SIGNALS: u64 = 100_000;
    let name = "services::idle::tests::a_signal_handler_may_allocate_amid_a_fast_path";
    let told = in_child(name, || {
        let _alone = alone();
        begin(None);
        if way() != Way::Taken {
            return;
        }
        // Filled before the first signal, so that no slow path is met.
        let first = block(48, 0);
        // SAFETY: a handler that only uses the engine and atomics; this thread's name.
        let this = unsafe {
            libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t);
            libc::pthread_self()
        };
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // ORDER: numbers by themselves.
                while HANDLED.load(Ordering::Relaxed) < SIGNALS {
                    // ORDER: numbers by themselves
                    // SAFETY: the thread lives as long as this one.
                    unsafe { libc::pthread_kill(this, libc::SIGUSR1) };
                }
                stop.store(true, Ordering::Relaxed); // ORDER: numbers by themselves
            });
            let (mut number, mut wrong) = (1, 0);
            while !stop.load(Ordering::Relaxed) {
                // ORDER: numbers by themselves
                number += 2;
                let blocks = [block(48, number), block(48, number + 1)];
                wrong +=
                    u64::from(!give(blocks[0], number)) + u64::from(!give(blocks[1], number + 1));
            }
            assert_eq!(
                (wrong, SPOILT.load(Ordering::Relaxed)), // ORDER: numbers by themselves
                (0, 0),
                "blocks in two hands"
            );
        });
        assert!(give(first, 0));
        trim();
        trim();
        assert_eq!(pages(), 0, "blocks were lost");
    });
    if let Some((status, said)) = told {
        assert!(status.success(), "{said}");
    }
}

/// A heap whose thread has no sections is asked, and empties every magazine when it next fills one.
#[test]
fn a_thread_without_sections_is_asked_for_what_it_holds() {
    let _alone = alone();
    let heap = crate::test_engine::own();
    let held = || {
        (0..class::count())
            .map(|class| heap.magazine(class).bounds.held())
            .sum::<usize>()
    };
    let classes = [64, 512].map(class::base_class);
    // SAFETY: the test is the heap's owner; live blocks of it.
    let blocks = classes.map(|class| unsafe { heap.refill(class) }.expect("not within itself"));
    assert!(held() > 30);
    assert_eq!(heap.revocable.load(Ordering::Relaxed), 0); // ORDER: numbers by themselves
    take_from_all();
    assert!(held() > 30, "it is asked, nothing more");
    let other = class::base_class(2_048);
    // SAFETY: as above.
    let last = unsafe { heap.refill(other) }.expect("not within itself");
    assert_eq!(
        held(),
        heap.magazine(other).bounds.held(),
        "the one that was wanted"
    );
    for block in blocks.into_iter().chain([last]) {
        // SAFETY: as above.
        unsafe { crate::heaps::events::to_bits(heap, block) };
    }
    crate::heaps::thread::leave_cold(core::ptr::from_ref(heap).cast_mut());
}
