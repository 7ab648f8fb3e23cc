//! Heaps for tenants: what they hold, that they are destroyed whole, and the answer to misuse.
//!
//! ```text
//!   create ──► malloc, realloc, memalign by several threads ──► frees by others ──► holds ──► destroy
//! ```
//!
//! N1  After each destroy the books of the whole allocator are what they were before the heap was created.
//! N2  Tests run in one process and one at a time (a lock): the books are the process's.
//!
//! Not here: the C names (tests/contract).

use std::sync::{Mutex, MutexGuard};

use skinflint_alloc as alloc;
use skinflint_alloc::stats::{Snapshot, snapshot};
use skinflint_alloc::{Holds, Tenant};
use skinflint_base::random::Random;

static ONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn look() -> Box<Snapshot> {
    let mut figures = Box::new(Snapshot::new());
    // SAFETY: freed at once; the allocator exists from then on.
    unsafe { alloc::free(alloc::malloc(1)) };
    assert!(snapshot(&mut figures, false));
    assert!(figures.balanced, "{figures:?}");
    figures
}

fn live(figures: &Snapshot) -> (u64, u64, u64, usize) {
    (
        figures.small_blocks,
        figures.large_blocks,
        figures.tenants,
        figures.usable_bytes(),
    )
}

#[test]
fn what_a_tenant_holds_is_counted_exactly_and_goes_whole() {
    let _alone = alone();
    let before = look();
    let heap = Tenant::create().expect("memory");
    assert_eq!(heap.holds(), Holds::default());
    let (mut blocks, mut bytes, mut asked) = (Vec::new(), 0, 0);
    for n in (1..5_000)
        .chain((32_000..40_000).step_by(97))
        .chain([200_000, 3 << 20])
    {
        let block = heap.malloc(n);
        assert!(!block.is_null());
        // SAFETY: a block of this many bytes.
        let usable = unsafe {
            block.write_bytes(n as u8, n);
            alloc::usable_size(block)
        };
        assert!(usable >= n);
        bytes += usable;
        asked += n as u64;
        blocks.push((block, n));
    }
    let holds = heap.holds();
    assert_eq!((holds.blocks, holds.bytes), (blocks.len(), bytes));
    assert_eq!(holds.requested_bytes, asked);
    assert!(holds.page_bytes >= bytes && holds.page_bytes < bytes * 6 / 5);
    let during = look();
    assert_eq!(during.tenants, before.tenants + 1);
    assert_eq!(during.tenant_blocks as usize, blocks.len());
    assert_eq!(during.tenant_small_bytes + during.tenant_large_bytes, bytes);
    for &(block, n) in &blocks {
        // SAFETY: live, and of this many bytes.
        assert!((0..n).all(|i| unsafe { *block.add(i) } == n as u8), "{n}");
    }
    // Every third is freed, half of them by the plain name.
    for (i, &(block, _)) in blocks.iter().enumerate().filter(|(i, _)| i % 3 == 0) {
        // SAFETY: live, and freed once.
        unsafe {
            bytes -= alloc::usable_size(block);
            if i % 2 == 0 {
                heap.free(block)
            } else {
                alloc::free(block)
            }
        }
    }
    assert_eq!(heap.holds().bytes, bytes);
    // SAFETY: nothing of it is used any more.
    unsafe { heap.destroy() };
    assert_eq!(live(&look()), live(&before));
}

/// Before the first sample nothing is known of the slop of threads' blocks: an eighth of them is stated as the error.
#[test]
fn without_a_sample_the_error_is_an_eighth_of_what_is_not_a_tenants() {
    let _alone = alone();
    // Numbers by which so few bytes are no sample.
    alloc::reseed(3, 1);
    let before = look();
    let heap = Tenant::create().expect("memory");
    // SAFETY: freed below.
    let blocks: Vec<_> = (0..20).map(|_| unsafe { alloc::malloc(1_024) }).collect();
    (0..500).for_each(|n| _ = heap.malloc(n));
    let figures = look();
    assert_eq!(figures.slop.samples, 0);
    let threads = figures.mapped.small - figures.tenant_small_bytes;
    assert!(threads >= 20 * 1_024, "{threads}");
    assert_eq!(figures.live_requested().1, threads / 8);
    let fewer = before.mapped.small - before.tenant_small_bytes;
    assert_eq!(before.live_requested().1, fewer / 8);
    for block in blocks {
        // SAFETY: live, and freed once.
        unsafe { alloc::free(block) };
    }
    // SAFETY: nothing of it is used any more.
    unsafe { heap.destroy() };
}

#[test]
fn realloc_calloc_and_alignment_keep_what_they_promise() {
    let _alone = alone();
    let before = look();
    let heap = Tenant::create().expect("memory");
    let mut block = core::ptr::null_mut();
    let (mut have, mut n) = (0usize, 1usize);
    while n < 4 << 20 {
        // SAFETY: the heap's own block; bytes below `have` were written.
        unsafe {
            block = heap.realloc(block, n);
            assert!(!block.is_null());
            assert!((0..have).all(|i| *block.add(i) == i as u8), "{have} to {n}");
            for i in have..n {
                *block.add(i) = i as u8;
            }
        }
        have = n;
        n = n * 5 / 4 + 1;
    }
    while n > 3 {
        n = n * 3 / 5;
        // SAFETY: as above.
        unsafe {
            block = heap.realloc(block, n);
            assert!((0..n).all(|i| *block.add(i) == i as u8), "down to {n}");
        }
    }
    assert_eq!(heap.holds().blocks, 1);
    for align in (4..22).map(|shift| 1usize << shift) {
        for n in [1, align - 1, align, align + 1] {
            assert_eq!(heap.memalign(align, n) as usize % align, 0, "{align} {n}");
        }
    }
    let zero = heap.calloc(3, 70_000);
    // SAFETY: a block of this many bytes.
    assert!((0..210_000).all(|i| unsafe { *zero.add(i) } == 0));
    assert!(heap.calloc(usize::MAX, 2).is_null());
    assert!(heap.malloc(usize::MAX).is_null());
    assert!(heap.memalign(1 << 63, 1).is_null());
    assert!(heap.memalign(16, usize::MAX).is_null());
    // SAFETY: nothing of it is used any more.
    unsafe {
        assert!(heap.realloc(block, 0).is_null());
        heap.destroy();
    }
    assert_eq!(live(&look()), live(&before));
}

#[test]
fn a_plain_realloc_takes_a_block_out_of_its_heap() {
    let _alone = alone();
    let heap = Tenant::create().expect("memory");
    for n in [100, 300_000] {
        let block = heap.malloc(n);
        // SAFETY: a block of this many bytes, resized and freed.
        unsafe {
            block.write_bytes(7, n);
            let moved = alloc::realloc(block, 8 << 20);
            assert!((0..n).all(|i| *moved.add(i) == 7));
            let inside = heap.holds().blocks;
            alloc::free(moved);
            assert_eq!(heap.holds().blocks, 0, "{inside}");
        }
    }
    // SAFETY: nothing of it is used any more.
    unsafe { heap.destroy() };
}

#[test]
fn many_threads_use_one_heap_and_free_each_other_s_blocks() {
    let _alone = alone();
    let before = look();
    for round in 0..4 {
        let heap = Tenant::create().expect("memory");
        let shared: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let shared = &shared;
                scope.spawn(move || {
                    let mut random = Random::new(round * 31 + thread + 1);
                    for _ in 0..6_000 {
                        let seed = random.bits();
                        let n = 1 + (seed >> 33) as usize % 2_000 * (1 + (seed >> 60) as usize * 3);
                        let block = heap.malloc(n);
                        // SAFETY: a block of this many bytes.
                        unsafe { block.write_bytes(n as u8, n) };
                        let mut list = shared.lock().expect("no panic");
                        list.push((block as usize, n));
                        if list.len() > 500 {
                            let at = (seed >> 20) as usize % list.len();
                            let (block, n) = list.swap_remove(at);
                            drop(list);
                            let block = block as *mut u8;
                            // SAFETY: live, of this many bytes, and freed once.
                            unsafe {
                                assert!((0..n).all(|i| *block.add(i) == n as u8));
                                if seed & 1 << 40 == 0 {
                                    heap.free(block)
                                } else {
                                    alloc::free(block)
                                }
                            }
                        }
                        if seed >> 54 == 0 {
                            alloc::trim();
                        }
                    }
                });
            }
        });
        let left = shared.into_inner().expect("no panic");
        assert_eq!(heap.holds().blocks, left.len());
        for (block, n) in left {
            // SAFETY: live, and of this many bytes.
            assert!((0..n).all(|i| unsafe { *(block as *mut u8).add(i) } == n as u8));
        }
        // SAFETY: nothing of it is used any more.
        unsafe { heap.destroy() };
    }
    assert_eq!(live(&look()), live(&before));
}

#[test]
fn handles_of_heaps_that_are_gone_and_foreign_blocks_are_refused() {
    let _alone = alone();
    alloc::set_policy(alloc::Policy::Ignore);
    let first = Tenant::create().expect("memory");
    // SAFETY: nothing of it is used any more.
    unsafe { first.destroy() };
    let second = Tenant::create().expect("memory");
    assert_ne!(first, second, "the same memory, another tenant");
    assert_eq!(first.to_raw() as u32, second.to_raw() as u32);
    assert!(first.malloc(10).is_null());
    assert_eq!(first.holds(), Holds::default());
    for raw in [
        1,
        64,
        4_096,
        u64::MAX,
        0x1234_5678_9000,
        second.to_raw() + 4_096,
    ] {
        let wrong = Tenant::from_raw(raw).expect("not 0");
        assert!(wrong.malloc(10).is_null(), "{raw:x}");
    }
    let third = Tenant::create().expect("memory");
    let (own, other) = (second.malloc(100), third.malloc(100_000));
    // SAFETY: refused, so nothing is freed.
    unsafe {
        second.free(other);
        third.free(own);
        assert!(third.realloc(own, 500).is_null());
        let plain = alloc::malloc(50);
        second.free(plain);
        assert_eq!((second.holds().blocks, third.holds().blocks), (1, 1));
        alloc::free(plain);
        // What is free is not resized, nor what begins inside of a block.
        assert!(second.realloc(own.add(16), 50).is_null());
        assert!(third.realloc(other.add(4_096), 50_000).is_null());
        second.free(own);
        assert!(second.realloc(own, 90).is_null());
        assert_eq!(second.holds().blocks, 0);
        second.destroy();
        third.destroy();
    }
    alloc::set_policy(alloc::Policy::Abort);
}

/// Each of three that is freed leaves the other two, whichever goes first.
#[test]
fn large_blocks_leave_their_heap_in_any_order() {
    let _alone = alone();
    let before = look();
    let sizes = [100_000, 200_000, 400_000];
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let heap = Tenant::create().expect("memory");
        let blocks = sizes.map(|n| heap.malloc(n));
        let mut left = heap.holds().bytes;
        for (gone, index) in (1..).zip(order) {
            // SAFETY: live, and freed once.
            unsafe {
                left -= alloc::usable_size(blocks[index]);
                heap.free(blocks[index]);
            }
            let holds = heap.holds();
            assert_eq!((holds.blocks, holds.bytes), (3 - gone, left), "{order:?}");
        }
        let last = sizes.map(|n| heap.malloc(n));
        // SAFETY: live; then nothing of the heap is used any more.
        unsafe {
            heap.free(last[order[0]]);
            heap.destroy();
        }
        assert_eq!(live(&look()), live(&before), "{order:?}");
    }
}

/// Runs itself: what is told goes to stderr.
#[test]
fn each_use_of_a_handle_that_is_none_is_told() {
    const CHILD: &str = "SKINFLINT_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        alloc::set_policy(alloc::Policy::Warn);
        let gone = Tenant::create().expect("memory");
        // SAFETY: nothing of it is used any more.
        unsafe { gone.destroy() };
        assert!(gone.malloc(10).is_null());
        for raw in [1, 64, 4_096, u64::MAX] {
            let wrong = Tenant::from_raw(raw).expect("not 0");
            assert!(wrong.malloc(10).is_null(), "{raw:x}");
        }
        return;
    }
    let itself = std::env::current_exe().expect("this test");
    let name = "each_use_of_a_handle_that_is_none_is_told";
    let child = std::process::Command::new(itself)
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{said}");
    let lines = said.lines().filter(|line| line.starts_with("skinflint: "));
    assert_eq!(lines.count(), 5, "{said}");
}

#[test]
fn a_thousand_heaps_use_the_same_memory_again() {
    let _alone = alone();
    let mut mapped = 0;
    for round in 0..1_000 {
        let heap = Tenant::create().expect("memory");
        for n in 1..200 {
            heap.malloc(n * 16);
        }
        heap.malloc(1 << 20);
        // SAFETY: nothing of it is used any more.
        unsafe { heap.destroy() };
        if round == 10 {
            let figures = look();
            mapped = figures.mapped_bytes + figures.metadata_bytes;
        }
    }
    let figures = look();
    assert_eq!(figures.mapped_bytes + figures.metadata_bytes, mapped);
}
