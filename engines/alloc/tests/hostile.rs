//! Wrong frees, many of them: none crashes the engine, none changes any other block.
//!
//! ```text
//!   pointers:  into blocks │ at free slots │ at tails, holes, free runs, large blocks' insides │ outside
//!   from:      the owner   │ another thread │ a thread without a heap
//! ```
//!
//! X1  The policy is to ignore faults, so that the test can look at what follows: every live block keeps its
//!     content, no address is handed out twice, and the invariants hold. (The line and the abort of the
//!     default are tested on real programs.)
//!
//! A program of its own, since the policy is the process's. Not here: frees of live blocks (a program may
//! free them).

use std::collections::{BTreeMap, BTreeSet};

use skinflint_alloc::check::check_invariants;
use skinflint_alloc::{Policy, free, malloc, realloc, set_policy, trim, usable_size};

#[path = "engine/numbers.rs"]
mod numbers;
use numbers::{Numbers, Told, seed};

/// One after the other: they look at the whole heap.
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn elsewhere(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| scope.spawn(work).join().expect("ends"));
}

/// A block that another thread freed is freed once more by its owner: found, although the owner has not
/// collected it yet. Were it not, it would be handed out twice.
#[test]
fn a_block_freed_elsewhere_and_then_here_is_not_given_out_twice() {
    let _alone = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(|error| error.into_inner());
    set_policy(Policy::Ignore);
    for size in [16, 48, 600, 5_000] {
        // SAFETY: what is freed twice is what is tested; blocks are compared, not used.
        unsafe {
            let blocks: Vec<_> = (0..40).map(|_| malloc(size) as usize).collect();
            let victims: Vec<_> = blocks.iter().copied().step_by(5).collect();
            elsewhere(|| victims.iter().for_each(|&block| free(block as *mut u8)));
            victims.iter().for_each(|&block| free(block as *mut u8));
            check_invariants(3).expect("a double free changes nothing");
            let mut seen: BTreeSet<_> = blocks.iter().copied().collect();
            victims.iter().for_each(|block| assert!(seen.remove(block)));
            for _ in 0..5_000 {
                let block = malloc(size) as usize;
                assert!(
                    seen.insert(block),
                    "{block:#x} of {size} bytes handed out twice"
                );
            }
            seen.iter().for_each(|&block| free(block as *mut u8));
        }
        check_invariants(3).expect("at the end");
    }
}

/// Live blocks: address to length and the byte that they are filled with.
type Live = BTreeMap<usize, (usize, u8)>;

fn check_contents(live: &Live) {
    for (&block, &(length, byte)) in live {
        // SAFETY: a live block.
        let bytes = unsafe { core::slice::from_raw_parts(block as *const u8, length) };
        assert!(
            bytes.iter().all(|&found| found == byte),
            "block {block:#x} of {length} has changed"
        );
        // SAFETY: as above.
        assert!(unsafe { usable_size(block as *const u8) } >= length);
    }
}

/// Frees and resizes what is no live block, `count` times.
fn attack(numbers: &mut Numbers, live: &Live, low: usize, high: usize, count: usize) {
    let targets: Vec<_> = live.keys().copied().collect();
    for _ in 0..count {
        let near = targets
            .get(numbers.index(targets.len().max(1)))
            .copied()
            .unwrap_or(low);
        let wild = match numbers.index(5) {
            0 => low + numbers.index(high - low),
            1 => (low + numbers.index(high - low)) & !15,
            2 => (low + numbers.index(high - low)) & !4095,
            3 => near + 16 * (1 + numbers.index(400)),
            _ => near + 1 + numbers.index(15),
        };
        if live.contains_key(&wild) {
            continue;
        }
        // SAFETY: a wrong free, or realloc, is what is tested.
        unsafe {
            if numbers.below(4) == 0 {
                let moved = realloc(wild as *mut u8, 1 + numbers.index(2_000));
                assert!(moved.is_null(), "{wild:#x} was resized");
            } else {
                free(wild as *mut u8);
            }
        }
    }
}

#[test]
fn wild_frees_change_nothing() {
    let _alone = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(|error| error.into_inner());
    set_policy(Policy::Ignore);
    let seed = seed();
    let _told = Told(seed);
    let mut numbers = Numbers::new(seed);
    let mut live = Live::new();
    let (mut low, mut high) = (usize::MAX, 0);
    for round in 0..60 {
        for _ in 0..300 {
            let length = match numbers.index(10) {
                0 => 1 + numbers.index(300_000),
                1..3 => 1 + numbers.index(32_768),
                _ => 1 + numbers.index(600),
            };
            // SAFETY: filled within its length.
            let block = unsafe { malloc(length) };
            assert!(!block.is_null());
            let byte = numbers.bits() as u8;
            // SAFETY: as above.
            unsafe { block.write_bytes(byte, length) };
            let fresh = live.insert(block as usize, (length, byte)).is_none();
            assert!(fresh, "{block:p} handed out twice");
            low = low.min(block as usize);
            high = high.max(block as usize + length + 65_536);
        }
        let doomed: Vec<_> = live
            .keys()
            .copied()
            .filter(|_| numbers.index(3) == 0)
            .collect();
        for block in doomed {
            live.remove(&block);
            // SAFETY: a live block; or one that has ended, when it is resized to nothing.
            unsafe {
                match numbers.index(2) {
                    0 => free(block as *mut u8),
                    _ => _ = realloc(block as *mut u8, 0),
                }
                // Once more, at once.
                free(block as *mut u8);
            }
        }
        attack(&mut numbers, &live, low, high, 2_000);
        let mut theirs = Numbers::new(numbers.bits());
        elsewhere(|| attack(&mut theirs, &live, low, high, 2_000));
        if round % 7 == 0 {
            trim();
        }
        check_contents(&live);
        check_invariants(3).expect("after wild frees");
    }
    // SAFETY: live blocks.
    live.keys()
        .for_each(|&block| unsafe { free(block as *mut u8) });
    check_invariants(3).expect("at the end");
}
