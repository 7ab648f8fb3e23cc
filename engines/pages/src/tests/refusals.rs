//! The kernel refuses the Nth request for memory, once and for ever.
//!
//! ```text
//!   N = 0, 1, 2 … as many as an undisturbed run makes
//! ```
//!
//! F1  A refusal shows as `None` or `false` and nothing else: what was in use keeps its content, the pool's invariants
//!     hold, and when memory can be had again everything works.
//! F2  One test at a time arms refusals.
//!
//! Not here: the reaction of `alloc`.

use std::sync::{Mutex, MutexGuard};

use super::model::run;
use super::*;
use crate::os::faults::{self, FOR_EVER};

static ARMED: Mutex<()> = Mutex::new(());

/// Takes the lock of the tests that arm refusals (F2).
pub(super) fn alone() -> MutexGuard<'static, ()> {
    ARMED
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[test]
fn random_acts_with_each_request_refused() {
    let _alone = alone();
    {
        let seed = 31;
        faults::arm(FOR_EVER, 0);
        run(seed, 1_200, false).close();
        let requests = faults::disarm();
        assert!(requests > 12, "{requests}");
        // The first three requests make the region, which is another test.
        for n in 3..requests {
            for refused in [1, FOR_EVER] {
                faults::arm(n, refused);
                let mut model = run(seed, 1_200, true);
                faults::disarm();
                model.close();
                assert_eq!(model.pool.lost_pages, 0, "request {n}, seed {seed}");
                assert!(model.pool.take(20_000, 1).is_some());
                assert_eq!(model.pool.check(), Ok(()), "request {n}, seed {seed}");
            }
        }
    }
}

fn place(seed: u64) -> Fresh {
    let mut pool = Fresh(Pool::new());
    let options = Options {
        huge_pages: false,
        seed,
        first_heap_bytes: 100_000,
    };
    if pool.region.place(&options) {
        assert_eq!(pool.region.heap_bytes(), 102_400);
        assert!(pool.take(100, 1).is_some());
    }
    pool
}

#[test]
fn a_region_is_placed_as_a_whole_or_not_at_all() {
    let _alone = alone();
    let seed = u64::from(std::process::id()) << 20;
    let usual = place(seed).region.base();
    assert_eq!(usual % (1 << 30), 0);
    for n in 0..3 {
        faults::arm(n, FOR_EVER);
        assert_eq!(place(seed).region.base(), 0);
        faults::disarm();
        // Nothing was left at the addresses of the first pieces.
        assert_eq!(place(seed).region.base(), usual);
        // Refused once, it lies elsewhere.
        faults::arm(n, 1);
        let other = place(seed).region.base();
        faults::disarm();
        assert!(other != 0 && other != usual, "{other:x}");
    }
}

#[test]
fn where_no_base_works_the_kernel_chooses() {
    let _alone = alone();
    // Sixteen bases, then two reservations, are refused; the third one is for 1 GiB.
    for (refused, heap_pages) in [(16, 64 << 18), (17, 4 << 18), (18, 1 << 18)] {
        faults::arm(0, refused);
        let mut pool = place(5);
        faults::disarm();
        let base = pool.region.base();
        assert!(base > 0x7000_0000_0000, "{base:x}");
        let run = pool.take(1_000, 512).expect("memory");
        assert_eq!(pool.region.page_addr(run.page) % (2 << 20), 0);
        write(&pool, run.page + 999, 7);
        pool.give(run.page, 1_000, true);
        assert_eq!(pool.take(heap_pages + 1, 1), None);
        assert_eq!(pool.check(), Ok(()));
        let all = heap_pages.min(1 << 16) - 200;
        assert!(pool.take(all, 1).is_some());
        assert_eq!(pool.check(), Ok(()));
    }
    faults::arm(0, 20);
    assert_eq!(place(5).region.base(), 0);
    faults::disarm();
    // A reservation in which a piece is refused is given up, and the next smaller one made.
    let before = mapped_pages();
    faults::arm(0, 16);
    faults::also(18);
    let mut pool = place(5);
    faults::disarm();
    assert_eq!(pool.take((4 << 18) + 1, 1), None);
    let reserved = mapped_pages() - before;
    assert!(((4 << 18)..(8 << 18)).contains(&reserved), "{reserved}");
}

/// Returns the pages of the process's address space.
fn mapped_pages() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let size = statm.split(' ').next().and_then(|pages| pages.parse().ok());
    size.expect("a number")
}

#[test]
fn the_heap_does_not_grow_beyond_its_map() {
    let _alone = alone();
    let mut pool = fresh(93);
    // The first piece of MAP is for 16,384 pages.
    take(&mut pool, 16_000);
    assert!(pool.region.keep(20_000));
    let heap = pool.region.heap_pages();
    // Its next piece is refused, at the usual size and at the least, for a large piece of HEAP and a small one.
    faults::arm(0, 4);
    assert_eq!(pool.take(1_000, 1), None);
    assert_eq!(faults::disarm(), 4);
    assert_eq!((pool.region.heap_pages(), pool.check()), (heap, Ok(())));
    assert!(pool.take(1_000, 1).is_some());
    assert_eq!(pool.check(), Ok(()));
}

#[test]
fn a_range_that_is_mapped_anew_is_zero() {
    let _alone = alone();
    let mut pool = fresh(94);
    let page = take(&mut pool, 4);
    (page..page + 4).for_each(|page| write(&pool, page, 9));
    let addr = pool.region.page_addr(page + 1);
    faults::arm(0, 1);
    // SAFETY: the pages are the test's own.
    assert!(!unsafe { pool.region.map_anew(addr, 2 * PAGE) });
    faults::disarm();
    assert_eq!(read(&pool, page + 1), 9);
    // SAFETY: as above.
    assert!(unsafe { pool.region.map_anew(addr, 2 * PAGE) });
    let now = [0, 1, 2, 3].map(|index| read(&pool, page + index));
    assert_eq!(now, [9, 0, 0, 9]);
    super::layout::one_plain_mapping(&pool);
    pool.give(page, 4, true);
    assert_eq!(pool.check(), Ok(()));
}

#[test]
fn what_is_mapped_is_all_used_before_anything_is_refused() {
    let _alone = alone();
    let mut pool = fresh(90);
    let all = pool.region.heap_pages();
    // Dirty and clean alternate: no run is long.
    take(&mut pool, all);
    for page in (0..all).step_by(4) {
        pool.give(page, 2, true);
    }
    for page in (2..all).step_by(4) {
        pool.give(page, 2, false);
    }
    faults::arm(0, FOR_EVER);
    assert_eq!(pool.take(all + 1, 1), None);
    assert_eq!(pool.check(), Ok(()));
    let run = pool.take(all, 1);
    faults::disarm();
    assert_eq!(
        run,
        Some(Run {
            page: 0,
            pages: all,
            clean: true
        })
    );
    assert_eq!(pool.check(), Ok(()));
}

#[test]
fn any_parts_can_be_given_back_while_the_kernel_refuses() {
    let _alone = alone();
    let mut pool = fresh(92);
    let first = take(&mut pool, 8_000);
    faults::arm(0, FOR_EVER);
    for page in (first..first + 8_000).step_by(2) {
        pool.give(page, 1, true);
    }
    assert_eq!(
        (pool.check(), pool.lost_pages, pool.dirty_pages),
        (Ok(()), 0, 4_000)
    );
    pool.purge(u32::MAX);
    for page in (first..first + 8_000).skip(1).step_by(2) {
        pool.give(page, 1, true);
    }
    faults::disarm();
    // Clean ones that gave their descriptors count as dirty.
    assert_eq!((pool.check(), pool.lost_pages), (Ok(()), 0));
    assert!(pool.dirty_pages >= 4_000 && pool.used_pages == 0);
}

#[test]
fn what_no_descriptor_is_left_for_is_counted_and_purged() {
    let _alone = alone();
    let mut pool = fresh(91);
    let first = take(&mut pool, 8_000);
    (first..first + 8_000).for_each(|page| write(&pool, page, 3));
    let [beside, _] = [10, 1].map(|pages| take(&mut pool, pages));
    pool.give(beside, 10, false);
    faults::arm(0, FOR_EVER);
    // No use of the pool can lead to this; the heap would have to be much larger.
    while pool.region.desc_alloc_kept().is_some() {}
    for page in (first..first + 8_000).step_by(4) {
        pool.give(page, 1, true);
        assert_eq!(read(&pool, page), 0);
    }
    let lost = pool.lost_pages;
    assert_eq!((pool.check(), lost), (Ok(()), 2_000));
    // Beside a run of the other state the two become one.
    let (clean, dirty) = (pool.clean_pages, pool.dirty_pages);
    pool.give(first + 7_999, 1, true);
    assert_eq!(
        (pool.clean_pages, pool.dirty_pages),
        (clean - 10, dirty + 11)
    );
    pool.give(first + 7_998, 1, false);
    assert_eq!(
        (pool.clean_pages, pool.dirty_pages),
        (clean - 10, dirty + 12)
    );
    assert_eq!(pool.check(), Ok(()));
    // What the program can do in this state, it can still do.
    assert_eq!(pool.take(5_000, 1), None);
    faults::disarm();
    assert!(pool.take(5_000, 1).is_some());
    assert_eq!((pool.check(), pool.lost_pages), (Ok(()), lost));
}
