//! The run cache: what a thread frees it gets back, and what it does not want again the pool has when it is needed.
//!
//! ```text
//!   free ─► kept ─► malloc of as many pages: the same block        trim, a peak that would rise, the end ─► the pool
//! ```
//!
//! N1  One test, in a process of its own without a purger: every page is this thread's.
//!
//! Not here: the slots (`kept` in the engine, `models`), a second free (`hardened`), the purger (`idle`).

use std::ffi::c_void;

use skinflint_alloc::check::check_invariants;
use skinflint_alloc::stats::{Snapshot, snapshot};
use skinflint_alloc::{allow_purger, free, malloc, neighbour, realloc, trim, usable_size};

const KIB: usize = 1 << 10;

fn look() -> Box<Snapshot> {
    let mut figures = Box::new(Snapshot::new());
    assert!(snapshot(&mut figures, true));
    assert!(figures.balanced, "{figures:?}");
    check_invariants(3).expect("whole");
    figures
}

/// A block whose every page was written to.
fn block(bytes: usize) -> usize {
    // SAFETY: written within its size.
    unsafe {
        let block = malloc(bytes);
        assert!(!block.is_null());
        block.write_bytes(7, bytes);
        block as usize
    }
}

fn give(block: usize) {
    // SAFETY: a live block, freed once.
    unsafe { free(block as *mut u8) };
}

fn usable(block: usize) -> usize {
    // SAFETY: only looked up; for what is no live block the answer is 0, or the neighbour's.
    unsafe { usable_size(block as *const u8) }
}

unsafe extern "C" fn no_free(_: *mut c_void) {
    unreachable!("nothing of ours is the neighbour's");
}

unsafe extern "C" fn all_usable(_: *mut c_void) -> usize {
    77
}

#[test]
fn what_is_kept_is_had_again_and_is_in_nobodys_way() {
    allow_purger(false);
    // A kept run that goes to the pool is not live once more: with one block at a time the most is one. (The first is too
    // long to be kept; after it the peak has room, so that the second stays while the third is made.)
    give(block(2048 * KIB));
    trim();
    give(block(100 * KIB));
    let third = block(200 * KIB);
    assert!(trim());
    let one = look();
    assert_eq!((one.large_blocks, one.large_blocks_max), (1, 1));
    assert_eq!(one.large_bytes_max, 2048 * KIB);
    give(third);
    trim();
    let before = look();

    // The same block for as many pages, whatever lies in between; another for more.
    let first = block(400 * KIB);
    let second = block(400 * KIB);
    let other = block(300 * KIB);
    give(first);
    give(other);
    assert_eq!(block(397 * KIB), first, "so many pages");
    assert_eq!(block(300 * KIB), other);
    give(first);
    let kept = look();
    assert_eq!(kept.large_blocks - before.large_blocks, 2);
    assert!(kept.mapped.dirty >= 400 * KIB && kept.resident.dirty >= 400 * KIB);
    assert!(kept.trimmable_bytes >= 400 * KIB);
    give(second);
    give(other);
    let most = (kept.large_blocks_max, kept.large_bytes_max);

    // A trim has all of it.
    assert!(trim());
    let trimmed = look();
    assert_eq!((trimmed.mapped.dirty, trimmed.resident.dirty), (0, 0));
    assert_eq!(trimmed.large_blocks, before.large_blocks);
    assert_eq!((trimmed.large_blocks_max, trimmed.large_bytes_max), most);

    // What would raise the peak is made of what is kept: eight of 256 KiB, and then one of 2 MiB.
    let mut eight: Vec<usize> = (0..8).map(|_| block(256 * KIB)).collect();
    eight.sort_unstable();
    let (low, high) = (eight[0], eight[7] + 256 * KIB);
    assert_eq!(high - low, 2048 * KIB, "side by side");
    // So is what a block grows into: it need not move.
    give(eight.remove(1));
    // SAFETY: a live block.
    let grown = unsafe { realloc(low as *mut u8, 512 * KIB) } as usize;
    assert_eq!(grown, low, "in place");
    eight.iter().for_each(|&block| give(block));
    assert_eq!(block(2048 * KIB), low, "made of the eight");
    give(low);

    // A thread that ends leaves nothing kept: its pages are one with those beside them, and the next to be had.
    let theirs = std::thread::spawn(|| {
        let theirs = block(512 * KIB);
        give(theirs);
        theirs
    });
    let theirs = theirs.join().expect("no panic");
    assert_eq!(theirs, low);
    let mine = block(300 * KIB);
    assert_eq!(mine, theirs);
    give(mine);
    assert_eq!(usable(mine), 0, "free");
    trim();
    assert_eq!(look().mapped.dirty, 0);

    // Another allocator is not asked about our range, whether the run is kept or gone.
    neighbour::is(no_free, all_usable);
    let other = block(300 * KIB);
    give(other);
    assert_eq!(usable(other), 0);
    trim();
    assert_eq!(usable(other), 0);
    assert_eq!(usable(&raw const other as usize), 77, "not ours");
}
