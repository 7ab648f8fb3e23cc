//! Random acts on many threads, while memory is given back and processes are forked.
//!
//! ```text
//!   thread ─► acts on its own blocks ──┬─► some blocks to the next thread, which frees them
//!                                      └─► ends, its blocks live on: another thread frees them
//!   meanwhile: trim, the purger (forced), check_invariants(3), forks whose children check all contents
//! ```
//!
//! T1  Each block is in one thread's record at a time.
//!
//! Not here: one fault each (`seams`).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use skinflint_alloc::check::check_invariants;
use skinflint_alloc::{check, free, malloc, trim};

use crate::blocks::{Block, Blocks, size, way};
use crate::numbers::{Numbers, Told, seed};

/// One act. `heavy` bytes are not passed.
pub fn act(numbers: &mut Numbers, blocks: &mut Blocks, heavy: usize) {
    let full = blocks.bytes > heavy || blocks.len() > 4_000;
    let choice = numbers.index(100);
    if choice < 50 && !full || blocks.len() == 0 {
        let (bytes, way, key) = (size(numbers), way(numbers), numbers.bits());
        assert!(
            blocks.begin(bytes, way, key).is_some(),
            "no memory for {bytes} bytes"
        );
        return;
    }
    let Some(block) = blocks.any(numbers) else {
        return;
    };
    if choice < 60 {
        let bytes = match numbers.index(3) {
            0 => size(numbers),
            1 => block.bytes + 1 + numbers.index(block.bytes),
            _ => 1 + numbers.index(block.bytes),
        };
        let bytes = if full {
            bytes.min(block.bytes)
        } else {
            bytes.min(4 << 20)
        };
        assert!(
            blocks.resize(block.address, bytes),
            "no memory for {bytes} bytes"
        );
    } else {
        blocks.end(block.address);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|error| error.into_inner())
}

/// Blocks on their way from one thread to another.
static MAIL: Mutex<Vec<Block>> = Mutex::new(Vec::new());

/// One thread's life.
fn live(seed: u64, acts: usize, heavy: usize) {
    let mut numbers = Numbers::new(seed);
    let mut blocks = Blocks::default();
    for step in 0..acts {
        act(&mut numbers, &mut blocks, heavy);
        if step % 16 == 0
            && let Some(block) = blocks.any(&mut numbers)
        {
            blocks.remove(block.address);
            lock(&MAIL).push(block);
        }
        if step % 64 == 1 {
            let mail = core::mem::take(&mut *lock(&MAIL));
            for block in mail {
                block.check(block.bytes);
                // SAFETY: a live block, in nobody's books.
                unsafe { free(block.address as *mut u8) };
            }
        }
        if step % 997 == 0 {
            blocks.check();
        }
    }
    blocks.check();
    // Half of the blocks outlive the thread.
    while blocks.len() > 0 {
        let Some(block) = blocks.any(&mut numbers) else {
            break;
        };
        if numbers.index(2) == 0 {
            blocks.end(block.address);
        } else {
            blocks.remove(block.address);
            lock(&MAIL).push(block);
        }
    }
}

#[test]
fn one_thread_at_random() {
    let seed = seed();
    let _told = Told(seed);
    let mut numbers = Numbers::new(seed);
    let mut blocks = Blocks::default();
    for step in 0..20_000 {
        act(&mut numbers, &mut blocks, 24 << 20);
        if step % 2_000 == 0 {
            check_invariants(3).unwrap_or_else(|broken| panic!("step {step}: {broken:x?}"));
            trim();
            blocks.check();
        }
    }
    blocks.clear();
    check_invariants(3).expect("at the end");
}

/// Threads that come and go, beside a trimmer, a checker and the purger.
#[test]
fn many_threads_at_random() {
    let seed = seed();
    let _told = Told(seed);
    check::hasten_purger(1);
    let done = AtomicBool::new(false);
    let lives = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0_u32;
            // ORDER: a flag that stands alone.
            while !done.load(Ordering::Relaxed) {
                round += 1;
                match round % 4 {
                    0 => _ = trim(),
                    1 => check::start_purger(),
                    _ => std::thread::sleep(std::time::Duration::from_micros(300)), // CLOCK: one of the ways to let others run; nothing waits for it
                }
                check_invariants(1 + round % 3).unwrap_or_else(|broken| {
                    eprintln!("round {round}: {broken:x?}; SKINFLINT_SEED={seed}");
                    std::process::abort()
                });
            }
        });
        let workers: Vec<_> = (0..3)
            .map(|worker| {
                let lives = &lives;
                scope.spawn(move || {
                    for life in 0..6 {
                        let seed = seed ^ (worker << 32) ^ (life << 40);
                        // A thread of its own for each life.
                        std::thread::scope(|scope| {
                            scope
                                .spawn(move || live(seed, 1_500, 6 << 20))
                                .join()
                                .expect("lives");
                        });
                        lives.fetch_add(1, Ordering::Relaxed); // ORDER: a statistic
                    }
                })
            })
            .collect();
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, Ordering::Relaxed); // ORDER: as above
        ended.into_iter().for_each(|worker| worker.expect("works"));
    });
    assert_eq!(lives.load(Ordering::Relaxed), 18); // ORDER: after the joins
    let mail = core::mem::take(&mut *lock(&MAIL));
    for block in mail {
        block.check(block.bytes);
        // SAFETY: a live block, in nobody's books.
        unsafe { free(block.address as *mut u8) };
    }
    assert!(check::purger_passes() > 0, "the purger never ran");
    check_invariants(3).expect("at the end");
}

/// The child's part: every block of the parent is there, and it can go on. Its answer is its exit status.
fn in_child(blocks: &mut Blocks, seed: u64) -> i32 {
    let well = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        check_invariants(3).unwrap_or_else(|broken| panic!("in the child: {broken:x?}"));
        blocks.check();
        let mut numbers = Numbers::new(seed);
        (0..600).for_each(|_| act(&mut numbers, blocks, 8 << 20));
        trim();
        blocks.clear();
        check_invariants(3).unwrap_or_else(|broken| panic!("in the child, later: {broken:x?}"));
    }));
    i32::from(well.is_err())
}

/// Forks while other threads allocate: the child has every block with its content, and a whole engine.
#[test]
fn forks_in_the_middle() {
    let seed = seed();
    let _told = Told(seed);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let done = &done;
            scope.spawn(move || {
                let mut round = 0_u64;
                // ORDER: a flag that stands alone.
                while !done.load(Ordering::Relaxed) {
                    round += 1;
                    live(seed ^ worker ^ (round << 8), 200, 2 << 20);
                }
            });
        }
        let mut numbers = Numbers::new(seed);
        let mut blocks = Blocks::default();
        let mut failed = Vec::new();
        for round in 0..25 {
            (0..200).for_each(|_| act(&mut numbers, &mut blocks, 4 << 20));
            let theirs = numbers.bits();
            // SAFETY: the engine has had its handlers registered; the child ends by `_exit`.
            let child = unsafe {
                let child = libc::fork();
                if child == 0 {
                    libc::alarm(60);
                    libc::_exit(in_child(&mut blocks, theirs));
                }
                child
            };
            assert!(child > 0);
            let mut status = 0;
            // SAFETY: our own child.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            if status != 0 {
                failed.push((round, status));
            }
        }
        blocks.clear();
        done.store(true, Ordering::Relaxed); // ORDER: as above
        assert!(failed.is_empty(), "children (round, status): {failed:?}");
    });
}

/// Ten thousand threads that each leave a live block: their heaps are used again.
#[test]
fn short_lives_share_heaps() {
    let before = check::heaps();
    let mut left = Vec::new();
    for _ in 0..2_500 {
        let four: Vec<_> = (0..4)
            // SAFETY: freed below.
            .map(|_| std::thread::spawn(|| unsafe { malloc(700) } as usize))
            .collect();
        left.extend(four.into_iter().map(|thread| thread.join().expect("ends")));
    }
    let more = check::heaps() - before;
    // SAFETY: live blocks.
    left.iter()
        .for_each(|&block| unsafe { free(block as *mut u8) });
    assert!(more <= 40, "{more} new heaps for four threads at a time");
    check_invariants(3).expect("at the end");
}
