//! The purger: when there is one, what it leaves, and that it goes.
//!
//! ```text
//!   a little freed, or not allowed ──► no thread of ours
//!   much freed ──► a thread named skinflint ──► every free page is clean ──► no thread any more
//! ```
//!
//! I1  A program that frees little never sees it, nor one that has not allowed it.
//! I2  Once it has begun it ends by itself, and then nothing is left that a trim would give back. What live blocks hold
//!     is untouched.
//! I3  It begins again when there is work again.
//!
//! One test: the purger is the process's. Not here: how fast it is, what it keeps for what will be wanted soon.

use std::time::{Duration, Instant};

use skinflint_alloc::stats::{Snapshot, snapshot};
use skinflint_alloc::{allow_purger, check, free, malloc};

/// Of a wait that ends in a failure.
const PATIENCE: Duration = Duration::from_secs(60);

fn look() -> Box<Snapshot> {
    let mut figures = Box::new(Snapshot::new());
    assert!(snapshot(&mut figures, true));
    assert!(figures.balanced, "{figures:?}");
    figures
}

/// Threads of this process that have the purger's name.
fn purgers() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").expect("this process");
    let names = threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    names.filter(|name| name == "skinflint\n").count()
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now(); // CLOCK: a bounded wait, and its bound ends it
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}: {:?}", look());
        std::thread::sleep(Duration::from_millis(2)); // CLOCK: poll step of a bounded wait
    }
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

#[test]
fn the_purger_comes_when_there_is_work_and_goes_when_it_is_done() {
    check::hasten_purger(1);
    end(blocks(3));
    assert_eq!((purgers(), look().events.purger_passes), (0, 0), "a little");
    allow_purger(false);
    end(blocks(600));
    assert_eq!((purgers(), look().events.purger_passes), (0, 0), "no leave");
    allow_purger(true);

    let mut passes = 0;
    for round in 0..3 {
        let kept = blocks(60);
        end(blocks(600));
        until("a pass", || look().events.purger_passes > passes);
        until("its end", || purgers() == 0);
        let figures = look();
        passes = figures.events.purger_passes;
        assert_eq!(figures.resident.dirty, 0, "round {round}: {figures:?}");
        assert!(figures.events.purged_pages > 1_000, "{figures:?}");
        for (index, &(block, bytes)) in kept.iter().enumerate() {
            // SAFETY: a live block of this many bytes.
            assert!((0..bytes).all(|i| unsafe { *block.add(i) } == index as u8));
        }
        end(kept);
    }
    check::check_invariants(3).expect("at the end");
}
