//! The purger: when it begins, what it leaves dirty, and that it ends.
//!
//! ```text
//!   little freed, or not allowed ────► no thread of ours
//!   much freed ──► one thread more ──► free pages are clean ──► no thread any more
//! ```
//!
//! I1  A program that frees little never has a purger, nor does a program that has not allowed it.
//! I2  A purger that has begun ends by itself, and then less is dirty than would begin another. The contents of live
//!     blocks are unchanged.
//! I3  A purger begins again when there is work again; a free that meets the end of the last purger leaves the begin
//!     to the next free.
//!
//! I4  With nothing to do the purger makes a fixed number of passes, and ends.
//!
//! One test: the purger is the process's. Not here: its speed, the pages that it keeps for requests to come.

use std::time::Duration;

use skinflint_alloc::stats::{Snapshot, snapshot};
use skinflint_alloc::{Tenant, allow_purger, check, free, malloc, realloc, trim};

/// Looks of a wait that ends in a failure: a minute at least.
const TRIES: usize = 30_000;
/// Begins a purger.
const ENOUGH_BYTES: usize = 512 * 1024;
/// Passes without work, after which it ends (`purger`).
const QUIET_PASSES: u64 = 6;

fn look() -> Box<Snapshot> {
    let mut figures = Box::new(Snapshot::new());
    assert!(snapshot(&mut figures, true));
    assert!(figures.balanced, "{figures:?}");
    figures
}

/// Threads of this process.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("this process");
    tasks.count()
}

/// Waits until there are no more threads than these, and little is dirty.
fn until_clean(threads_before: usize) {
    for _ in 0..TRIES {
        let gone = threads() == threads_before;
        if gone && look().resident.dirty <= ENOUGH_BYTES {
            return;
        }
        if gone {
            // I3.
            end(blocks(3));
        }
        std::thread::sleep(Duration::from_millis(2)); // CLOCK: poll step of a bounded wait
    }
    panic!("{:?}", look());
}

/// Waits until there are no more threads than these.
fn until_gone(threads_before: usize) {
    for _ in 0..TRIES {
        if threads() == threads_before {
            return;
        }
        std::thread::sleep(Duration::from_millis(2)); // CLOCK: poll step of a bounded wait
    }
    panic!("a thread too many");
}

/// Small and large blocks, written to.
fn blocks(count: usize) -> Vec<(*mut u8, usize)> {
    let made = (0..count).map(|index| {
        let bytes = [700, 6_000, 90_000][index % 3];
        // SAFETY: freed by the caller; written within its size.
        let block = unsafe {
            let block = malloc(bytes);
            block.write_bytes(index as u8, bytes);
            block
        };
        (block, bytes)
    });
    made.collect()
}

fn end(blocks: Vec<(*mut u8, usize)>) {
    // SAFETY: live blocks of the test.
    blocks
        .into_iter()
        .for_each(|(block, _)| unsafe { free(block) });
}

/// What a tenant had is dirty when it has gone, though no block of it was freed.
fn a_tenant_that_goes_is_work() {
    let first = look().events.purger_passes;
    let heap = Tenant::create().expect("memory");
    for _ in 0..4_000 {
        let block = heap.malloc(700);
        // SAFETY: a block of this many bytes.
        unsafe { block.write_bytes(1, 700) };
    }
    // SAFETY: nothing of it is used any more.
    unsafe { heap.destroy() };
    for _ in 0..TRIES {
        if look().events.purger_passes > first {
            return;
        }
        std::thread::sleep(Duration::from_millis(2)); // CLOCK: poll step of a bounded wait
    }
    panic!(
        "nobody gives back what the tenant had: {:?}",
        look().resident
    );
}

#[test]
fn the_purger_comes_when_there_is_work_and_goes_when_it_is_done() {
    check::hasten_purger(1);
    end(blocks(3));
    let before = threads();
    assert_eq!(look().events.purger_passes, 0, "a little");
    // Of a large block that is cut, what is cut off counts, and no more.
    // SAFETY: freed below.
    let large = unsafe { malloc(2 * ENOUGH_BYTES) };
    // SAFETY: a live block.
    let cut = unsafe { realloc(large, 2 * ENOUGH_BYTES - ENOUGH_BYTES / 2) };
    assert_eq!((cut, threads()), (large, before), "half of what is enough");
    allow_purger(false);
    end(blocks(600));
    assert_eq!(
        (threads(), look().events.purger_passes),
        (before, 0),
        "not allowed"
    );
    allow_purger(true);

    for round in 0..3 {
        let kept = blocks(60);
        let first = look().events;
        end(blocks(600));
        until_clean(before);
        let last = look().events;
        assert!(last.purger_passes > first.purger_passes, "round {round}");
        let purged = last.purged_pages - first.purged_pages;
        assert!(purged > 1_000, "round {round}: {purged}");
        for (index, &(block, bytes)) in kept.iter().enumerate() {
            // SAFETY: a live block of this many bytes.
            assert!((0..bytes).all(|i| unsafe { *block.add(i) } == index as u8));
        }
        end(kept);
        until_clean(before);
    }
    // SAFETY: live.
    unsafe { free(cut) };
    until_clean(before);
    a_tenant_that_goes_is_work();
    until_clean(before);
    allow_purger(false);
    trim();
    until_gone(before);
    let first = look().events.purger_passes;
    trim();
    allow_purger(true);
    check::start_purger();
    until_gone(before);
    let passes = look().events.purger_passes - first;
    // One more if the trim's own hints are enough to be looked at.
    let quiet = QUIET_PASSES..=QUIET_PASSES + 1;
    assert!(quiet.contains(&passes), "{passes} passes");
    check::check_invariants(3).expect("at the end");
}
