//! malloc in assembly (`whole`) does what malloc does: of each size, in a thread that has no heap, and with none left.
//!
//! ```text
//!   n = 0 … 1,100 ─► whole(n), malloc(n) ─► as many usable bytes, and each block is the caller's alone
//!   threads: whole(n), free    main: a trim, again and again, which takes what is in their magazines
//! ```
//!
//! One test: whether magazines can be taken is decided before the process's first block.

use std::sync::atomic::{AtomicUsize, Ordering};

use skinflint_alloc as alloc;
use skinflint_alloc::whole::{BYTES_MAX, malloc_any, malloc_sampled, malloc_slow};

#[unsafe(naked)]
unsafe extern "C" fn whole(n: usize) -> *mut u8 {
    alloc::malloc_whole!(malloc_any, malloc_sampled, malloc_slow)
}

/// Allocates one block of each size in both ways, fills them, and checks and frees them.
fn each_size() {
    let mut blocks = Vec::new();
    for n in 0..BYTES_MAX + 77 {
        // SAFETY: freed below.
        let pair = unsafe { [whole(n), alloc::malloc(n)] };
        // SAFETY: live blocks.
        let [have, wanted] = pair.map(|p| unsafe { alloc::usable_size(p) });
        assert_eq!(have, wanted, "{n}");
        for p in pair {
            let byte = blocks.len() as u8;
            // SAFETY: all of a block's usable size may be written.
            unsafe { p.write_bytes(byte, have) };
            blocks.push((p, have, byte));
        }
    }
    for (p, have, byte) in blocks {
        // SAFETY: filled above; freed once.
        unsafe {
            let bytes = core::slice::from_raw_parts(p, have);
            assert!(bytes.iter().all(|&b| b == byte), "{have}");
            alloc::free(p);
        }
    }
}

/// Replaces blocks, each of which begins with a number of its own from its birth to its death.
fn replace(seed: u64) {
    let mut blocks = [(core::ptr::null_mut::<u64>(), 0); 24];
    for round in 0..8_000_000 {
        let place = &mut blocks[round % 24];
        let (p, number) = *place;
        let next = seed << 32 | round as u64;
        // SAFETY: a live block or null, freed once; a new one has 16 bytes at least.
        unsafe {
            assert!(p.is_null() || p.read() == number, "given out twice");
            alloc::free(p.cast());
            let new = whole(16 + round % 3 * 32).cast::<u64>();
            new.write(next);
            *place = (new, next);
        }
    }
    for (p, _) in blocks {
        // SAFETY: as above.
        unsafe { alloc::free(p.cast()) };
    }
}

/// A section that the kernel does not begin anew gives a block out that was taken, or hides one.
fn while_magazines_are_taken() {
    let left = AtomicUsize::new(3);
    std::thread::scope(|scope| {
        for seed in 1..=3 {
            let left = &left;
            scope.spawn(move || {
                replace(seed);
                left.fetch_sub(1, Ordering::Relaxed); // ORDER: a flag by itself
            });
        }
        // ORDER: as above.
        while left.load(Ordering::Relaxed) != 0 {
            alloc::trim();
        }
    });
    alloc::check::check_invariants(3).expect("afterwards");
}

#[test]
fn malloc_in_assembly_is_malloc() {
    // SAFETY: null is allowed.
    unsafe { alloc::options::begin(std::ptr::null()) };
    // The first call of a thread, with the one size that takes nothing off the marker's budget.
    for n in [0, 1, 48, BYTES_MAX, BYTES_MAX + 1] {
        let first = move || {
            // SAFETY: a live block, freed once.
            unsafe {
                let p = whole(n);
                assert!(alloc::usable_size(p) >= n.max(1));
                alloc::free(p);
            }
            each_size();
        };
        std::thread::spawn(first).join().expect("a sound thread");
    }
    // Full magazines, empty ones, and the way back.
    for _ in 0..3 {
        each_size();
    }
    let mut held = std::collections::BTreeSet::new();
    for _ in 0..3_000 {
        // SAFETY: freed below.
        let p = unsafe { whole(0) };
        assert!(held.insert(p as usize), "given out twice");
    }
    for p in held {
        // SAFETY: live blocks, freed once each.
        unsafe { alloc::free(p as *mut u8) };
    }
    assert!(
        // SAFETY: safe in itself.
        unsafe { whole(usize::MAX) }.is_null(),
        "more than there is"
    );
    while_magazines_are_taken();
}
