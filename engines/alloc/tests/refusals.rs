//! The Nth request to the kernel is refused: once, twice, or all from then on.
//!
//! R1  A refused act returns null with ENOMEM and changes nothing; afterwards everything goes on.
//! R2  One thread at a time may have its requests refused: the tests take turns.
//!
//! A program of its own, so that the heap is small and requests reach the kernel. Not here: how the pool handles a
//! refusal (`pages`), real limits.

use skinflint_alloc::check::check_invariants;
use skinflint_alloc::{free, malloc};
use skinflint_pages::os::faults;

#[path = "engine/blocks.rs"]
#[allow(dead_code)] // The other program uses the rest.
mod blocks;
#[path = "engine/numbers.rs"]
mod numbers;

use blocks::{Blocks, size, way};
use numbers::{Numbers, Told, seed};

/// Some work; returns how many acts were refused.
fn work(numbers: &mut Numbers, blocks: &mut Blocks, acts: usize) -> usize {
    let mut refused = 0;
    for step in 0..acts {
        let well = match blocks.any(numbers).filter(|_| step % 3 != 0) {
            Some(block) if step % 3 == 1 => {
                blocks.resize(block.address, block.bytes + size(numbers))
            }
            Some(block) => {
                blocks.end(block.address);
                true
            }
            None => {
                let bytes = size(numbers);
                blocks.begin(bytes, way(numbers), numbers.bits()).is_some()
            }
        };
        refused += usize::from(!well);
    }
    refused
}

/// Takes all the free memory there is, so that any further request has to ask the kernel.
fn exhaust() -> Vec<*mut u8> {
    let mut ballast = Vec::with_capacity(100_000);
    faults::arm(0, faults::FOR_EVER);
    for bytes in [1 << 20, 128 << 10, 36 << 10] {
        loop {
            // SAFETY: freed by the caller.
            let block = unsafe { malloc(bytes) };
            if block.is_null() {
                break;
            }
            ballast.push(block);
        }
    }
    faults::disarm();
    ballast
}

fn give_back(ballast: Vec<*mut u8>) {
    // SAFETY: live blocks.
    ballast.into_iter().for_each(|block| unsafe { free(block) });
}

/// In this order, in one process: a thread that cannot begin needs three mappings for its block only while
/// the page map is small, which it no longer is after the other.
#[test]
fn refusals() {
    a_thread_that_cannot_begin();
    the_nth_request_refused();
}

fn the_nth_request_refused() {
    let seed = seed();
    let _told = Told(seed);
    let mut numbers = Numbers::new(seed);
    // SAFETY: freed at once: this thread's heap is made before anything is refused.
    unsafe { free(malloc(1)) };
    let mut refused = 0;
    for count in [1, 2, faults::FOR_EVER] {
        for nth in 0..12 {
            let mut blocks = Blocks::default();
            let ballast = exhaust();
            check_invariants(3).expect("with nothing left");
            faults::arm(nth, count);
            refused += work(&mut numbers, &mut blocks, 300);
            faults::disarm();
            blocks.check();
            check_invariants(3)
                .unwrap_or_else(|broken| panic!("request {nth}, {count} refused: {broken:x?}"));
            let later = work(&mut numbers, &mut blocks, 100);
            assert_eq!(
                later, 0,
                "request {nth}, {count} refused: acts fail afterwards"
            );
            blocks.clear();
            give_back(ballast);
        }
    }
    assert!(refused > 10, "only {refused} acts were refused");
    check_invariants(3).expect("at the end");
}

/// A thread's first request of all is refused: it has no heap, and gets one later.
fn a_thread_that_cannot_begin() {
    for nth in 0..3 {
        std::thread::spawn(move || {
            let ballast = exhaust();
            faults::arm(nth, faults::FOR_EVER);
            // SAFETY: freed at once.
            let mut block = unsafe { malloc(300 << 20) };
            assert!(block.is_null());
            // SAFETY: this thread's errno.
            assert_eq!(unsafe { *libc::__errno_location() }, libc::ENOMEM);
            faults::disarm();
            // SAFETY: freed at once.
            unsafe {
                block = malloc(100);
                assert!(!block.is_null());
                free(block);
            }
            give_back(ballast);
        })
        .join()
        .expect("goes on");
    }
    check_invariants(3).expect("at the end");
}
