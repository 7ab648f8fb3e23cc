//! Where two parts of the engine meet: one test for each fault that was found there.
//!
//! Not here: what random acts find (`threads`), refusals of memory (`refusals`).

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use skinflint_alloc::check::check_invariants;
use skinflint_alloc::{calloc, check, fork, free, malloc, realloc, trim, usable_size};
use skinflint_test_support::need;

fn errno() -> i32 {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() }
}

fn clear_errno() {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = 0 };
}

/// Another thread's trim gives this thread's empty spans to the pool. It must not do so under this
/// thread's name: a large malloc would take the pool's lock for its own, and fail.
#[test]
fn a_trim_elsewhere_never_makes_a_malloc_fail() {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // ORDER: a flag that stands alone.
            while !done.load(Ordering::Relaxed) {
                trim();
            }
        });
        // A heap of 16 MiB keeps up to a MiB of empty spans.
        // SAFETY: freed below.
        let live: Vec<_> = (0..4_096).map(|_| unsafe { malloc(4_000) }).collect();
        for round in 0..1_000 {
            // SAFETY: freed below.
            let small: Vec<_> = (0..200).map(|_| unsafe { malloc(4_000) }).collect();
            assert!(small.iter().all(|block| !block.is_null()));
            // SAFETY: live blocks.
            small.iter().for_each(|&block| unsafe { free(block) });
            for _ in 0..200 {
                // SAFETY: freed at once.
                let large = unsafe { malloc(100_000) };
                if large.is_null() {
                    done.store(true, Ordering::Relaxed); // ORDER: as above
                    panic!("round {round}: errno {}", errno());
                }
                // SAFETY: a live block.
                unsafe { free(large) };
            }
        }
        // SAFETY: live blocks.
        live.iter().for_each(|&block| unsafe { free(block) });
        done.store(true, Ordering::Relaxed); // ORDER: as above
    });
}

/// A number of pages that does not fit 32 bits is a refusal, not a small number.
#[test]
fn a_large_block_does_not_shrink_to_a_huge_size() {
    for n in [
        1 << 44,
        (1 << 44) + 20 * 4096,
        1 << 47,
        isize::MAX as usize,
        usize::MAX,
    ] {
        // SAFETY: freed below; written within its size.
        unsafe {
            let block = malloc(100_000);
            block.write_bytes(7, 100_000);
            clear_errno();
            let same = realloc(block, n);
            assert!(same.is_null(), "realloc to {n} bytes gave a block");
            assert_eq!(errno(), libc::ENOMEM);
            assert!(
                usable_size(block) >= 100_000,
                "{n}: the block was cut to {}",
                usable_size(block)
            );
            let bytes = core::slice::from_raw_parts(block, 100_000);
            assert!(bytes.iter().all(|&byte| byte == 7));
            free(block);
        }
    }
    check_invariants(3).expect("after refusals");
}

static MEET: Barrier = Barrier::new(2);
static KEY: AtomicU32 = AtomicU32::new(0);
static FAILED: AtomicU32 = AtomicU32::new(0);

/// Comes again until the last round of destructors; ours have all run by then.
unsafe extern "C" fn last_words(value: *mut libc::c_void) {
    let round = value as usize;
    if round < 4 {
        // ORDER: set before the threads were made.
        let key = KEY.load(Ordering::Relaxed);
        // SAFETY: the key exists.
        unsafe { libc::pthread_setspecific(key, (round + 1) as *const libc::c_void) };
        return;
    }
    MEET.wait();
    for _ in 0..200_000 {
        // SAFETY: freed at once.
        unsafe {
            let block = malloc(50_000);
            if block.is_null() {
                FAILED.fetch_add(1, Ordering::Relaxed); // ORDER: read after a join
            }
            free(block);
        }
    }
    // A heap is borrowed for each call, and given back.
    let before = check::heaps();
    for _ in 0..1_000 {
        // SAFETY: freed at once.
        unsafe { free(malloc(100)) };
    }
    if check::heaps() > before + 100 {
        FAILED.fetch_add(1, Ordering::Relaxed); // ORDER: read after a join
    }
}

/// Two threads whose heaps are gone are not the same thread: neither may take the other's lock for its own.
#[test]
fn threads_after_their_end_do_not_fail_each_other() {
    let mut key = 0;
    // SAFETY: the key is ours.
    assert_eq!(
        // SAFETY: `key` is ours, and the destructor is a function.
        unsafe { libc::pthread_key_create(&mut key, Some(last_words)) },
        0
    );
    KEY.store(key, Ordering::Relaxed); // ORDER: published by the threads' start
    let threads: Vec<_> = (0..2)
        .map(|_| {
            std::thread::spawn(move || {
                // SAFETY: a thread with a heap; the key exists.
                unsafe {
                    free(malloc(10));
                    libc::pthread_setspecific(key, core::ptr::without_provenance(1));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("ends");
    }
    // ORDER: after the joins. (A join returns when the kernel has seen the thread's end.)
    assert_eq!(FAILED.load(Ordering::Relaxed), 0, "mallocs that failed");
}

/// Two threads without heaps fork at once: one after the other, not under one name.
#[test]
fn forks_of_threads_without_heaps_take_turns() {
    static INSIDE: AtomicU32 = AtomicU32::new(0);
    // So that there are heaps to lock.
    // SAFETY: freed at once.
    unsafe { free(malloc(1)) };
    let threads: Vec<_> = (0..2)
        .map(|_| {
            std::thread::spawn(|| {
                for _ in 0..2_000 {
                    // SAFETY: as `pthread_atfork` would call them.
                    unsafe { fork::prepare() };
                    // ORDER: no matter which; the count is what is looked at.
                    let others = INSIDE.fetch_add(1, Ordering::SeqCst);
                    std::thread::yield_now();
                    INSIDE.fetch_sub(1, Ordering::SeqCst); // ORDER: as above
                    // SAFETY: as above.
                    unsafe { fork::parent() };
                    assert_eq!(others, 0, "two threads hold all locks");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("one at a time");
    }
}

fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
    maps.lines().count()
}

/// Blocks whose pages came by `mremap`, then grown in place, moved again, cut and freed: contents stay, and
/// the number of mappings does not grow with the number of moves.
#[test]
fn moved_blocks_keep_their_contents_and_leave_no_mappings() {
    const MIB: usize = 1 << 20;
    let pattern = |i: usize| (i / 4096 * 31 + i) as u8;
    let round = |blocker_bytes: usize| {
        // SAFETY: each block is used within its size, and freed once.
        unsafe {
            let mut block = malloc(MIB);
            let mut have = MIB;
            (0..have)
                .step_by(509)
                .for_each(|i| block.add(i).write(pattern(i)));
            for step in 0..6 {
                // What lies behind the block is in use every other time: it must move.
                let blocker = if step % 2 == 0 {
                    calloc(1, blocker_bytes)
                } else {
                    core::ptr::null_mut()
                };
                let n = have + MIB + 4096;
                block = realloc(block, n);
                assert!(!block.is_null());
                (0..have)
                    .step_by(509)
                    .for_each(|i| assert_eq!(block.add(i).read(), pattern(i), "byte {i}"));
                (0..n)
                    .step_by(509)
                    .for_each(|i| block.add(i).write(pattern(i)));
                have = n;
                free(blocker);
            }
            have = have / 2 + 4096;
            block = realloc(block, have);
            (0..have)
                .step_by(509)
                .for_each(|i| assert_eq!(block.add(i).read(), pattern(i), "byte {i}"));
            free(block);
        }
    };
    (0..20).for_each(|i| round(i * 200_000 + 40_000));
    let before = mappings();
    (0..200).for_each(|i| round(i * 20_000 + 40_000));
    check_invariants(3).expect("after moves");
    let after = mappings();
    assert!(after <= before + 40, "{before} mappings, then {after}");
}

/// Spans that are empty serve another size where they lie, before the pool is asked: it has a run that would fit.
///
/// What is empty may go to the pool at any moment that this thread does not run in, so one try of several must hold; each
/// is checked for its contents.
#[test]
fn an_empty_span_serves_another_size() {
    const TRIES: usize = 20;
    let most = (0..TRIES).map(|_| blocks_in_turned_spans()).max();
    assert!(
        most >= Some(8),
        "{most:?} of 60 in the best of {TRIES} tries"
    );
}

/// How many of 60 new blocks of one size lie where spans of another have just become empty.
fn blocks_in_turned_spans() -> usize {
    const PAGE: usize = 4096;
    // Both fill spans of three pages, and of six.
    let (first, second) = (3_072, 1_536);
    // SAFETY: freed below.
    let take = |size| unsafe { malloc(size) } as usize;
    let large = take(100 * PAGE);
    // Few enough for the heap to keep them.
    let old: Vec<_> = (0..20).map(|_| take(first)).collect();
    // SAFETY: live blocks, here and below.
    let free_all = |blocks: &[usize]| unsafe {
        blocks.iter().for_each(|&block| free(block as *mut u8));
    };
    free_all(&old);
    free_all(&[large]);
    let pages: std::collections::HashSet<_> = old.iter().map(|block| block / PAGE).collect();
    let new: Vec<_> = (0..60).map(|_| take(second)).collect();
    for (i, &block) in new.iter().enumerate() {
        // SAFETY: a live block of this length.
        unsafe { (block as *mut u8).write_bytes(i as u8, second) };
    }
    let is_there = |block: &&usize| pages.contains(&(**block / PAGE));
    let there = new.iter().filter(is_there).count();
    check_invariants(3).expect("a turned span is one as any other");
    for (i, &block) in new.iter().enumerate() {
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(block as *const u8, second) };
        assert!(bytes.iter().all(|&byte| byte == i as u8), "block {i}");
    }
    free_all(&new);
    check_invariants(3).expect("and may be given back");
    there
}

/// A class that has many pages gets new ones a few at a time, with the magazine's new blocks: they are there before
/// anybody has written to them.
#[test]
fn new_pages_of_a_large_class_come_four_at_a_time() {
    const BLOCKS: usize = 16 << 10;
    const POPULATE_WRITE: i32 = 23;
    let mut page = std::mem::MaybeUninit::<[u8; 8192]>::uninit();
    let whole = (page.as_mut_ptr() as usize).next_multiple_of(4096);
    // SAFETY: a page of our own; its content stays.
    let populates = unsafe { libc::madvise(whole as *mut libc::c_void, 4096, POPULATE_WRITE) } == 0;
    if !need::that(
        populates,
        "MADV_POPULATE_WRITE",
        "run on Linux 5.14 or later",
    ) {
        return;
    }
    // SAFETY: freed below.
    let blocks: Vec<_> = (0..BLOCKS).map(|_| unsafe { malloc(1_000) }).collect();
    let resident = blocks.iter().filter(|&&block| {
        let mut answer = 0u8;
        let page = block as usize & !4095;
        // SAFETY: one page, one byte.
        let failed = unsafe { libc::mincore(page as *mut libc::c_void, 4096, &raw mut answer) };
        failed == 0 && answer & 1 != 0
    });
    let count = resident.count();
    // SAFETY: live blocks.
    blocks.iter().for_each(|&block| unsafe { free(block) });
    assert!(count > BLOCKS / 2, "{count} of {BLOCKS}");
}
