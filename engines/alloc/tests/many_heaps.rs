//! As many heaps as there are numbers for walks: each walk must still tell which spans it has seen.
//!
//! A program of its own, since the number of heaps matters, and heaps are never unmade.
//!
//! Not here: anything else.

use std::sync::Barrier;

use skinflint_alloc::{check::check_invariants, free, malloc, trim};

/// Numbers that a walk may have (`holes`).
const HEAPS: usize = 255;
const BLOCKS: usize = 96;

/// Blocks of a page each, all written to.
fn fill() -> Vec<usize> {
    let page = || {
        // SAFETY: a block of a page, freed once or never.
        unsafe {
            let block = malloc(4096);
            block.write_bytes(1, 4096);
            block as usize
        }
    };
    (0..BLOCKS).map(|_| page()).collect()
}

/// Frees one block in eight; returns their addresses.
fn litter(blocks: &[usize], round: usize) -> Vec<usize> {
    let freed: Vec<_> = blocks.iter().copied().skip(round).step_by(8).collect();
    // SAFETY: live blocks.
    freed
        .iter()
        .for_each(|&block| unsafe { free(block as *mut u8) });
    freed
}

fn resident(address: usize) -> bool {
    let mut answer = 0u8;
    // SAFETY: one page, one byte.
    let failed = unsafe { libc::mincore(address as *mut libc::c_void, 4096, &raw mut answer) };
    failed == 0 && answer & 1 != 0
}

#[test]
fn every_trim_reaches_every_heap() {
    static MEET: Barrier = Barrier::new(HEAPS);
    static FREED: std::sync::Mutex<Vec<usize>> = std::sync::Mutex::new(Vec::new());
    let others: Vec<_> = (1..HEAPS)
        .map(|_| {
            std::thread::Builder::new()
                .stack_size(64 << 10)
                .spawn(|| {
                    let blocks = fill();
                    for round in 0..3 {
                        let freed = litter(&blocks, round);
                        FREED.lock().expect("no panic").extend(freed);
                        MEET.wait();
                        MEET.wait();
                    }
                })
                .expect("a thread")
        })
        .collect();
    // SAFETY: freed at once: this thread's heap is the last.
    unsafe { free(malloc(1)) };
    for round in 0..3 {
        MEET.wait();
        trim();
        let freed = core::mem::take(&mut *FREED.lock().expect("no panic"));
        let left = freed.iter().filter(|&&page| resident(page)).count();
        // Each thread's current span, and its magazine, are its own.
        assert!(
            left * 2 <= freed.len(),
            "round {round}: {left} of {} pages stay",
            freed.len()
        );
        check_invariants(3).expect("after a trim");
        MEET.wait();
    }
    for other in others {
        other.join().expect("ends");
    }
}
