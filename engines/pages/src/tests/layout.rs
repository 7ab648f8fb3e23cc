//! Where runs lie: neighbours, alignments, extensions, ages, holes.
//!
//! ```text
//!   used │ left │ given │ right │ used        each of left and right: used, dirty, clean, claimed
//! ```
//!
//! N1  Each situation is built from a fresh pool, whose first runs lie one after the other.
//!
//! Not here: refusals, random acts.

use skinflint_base::random::Random;

use super::*;
use crate::pool::{CLAIMED, CLEAN, DIRTY};
use crate::purge::Batch;
use crate::{HUGE, os};

const USED: u8 = 0;

/// Brings a run in use into a state; claimed runs come first, while nothing else is dirty.
fn become_state(pool: &mut Pool, page: u32, pages: u32, state: u8) {
    match state {
        USED => {}
        CLEAN => pool.give(page, pages, false),
        DIRTY => pool.give(page, pages, true),
        _ => {
            pool.give(page, pages, true);
            let mut out = [Run::default(); 1];
            assert_eq!(pool.claim_dirty(u32::MAX, 0, &mut out), 1);
            assert_eq!((out[0].page, out[0].pages), (page, pages));
        }
    }
}

#[test]
fn a_run_joins_its_equals_and_nobody_else() {
    let states = [USED, DIRTY, CLEAN, CLAIMED];
    for (left, right) in states.iter().flat_map(|l| states.map(|r| (*l, r))) {
        for given in [DIRTY, CLEAN] {
            for long in [1, 9] {
                let mut pool = fresh(77);
                let guard = take(&mut pool, 2);
                let [a, x, b] = [long, 3, 7].map(|pages| take(&mut pool, pages));
                take(&mut pool, 2);
                assert_eq!((a, x, b), (guard + 2, guard + 2 + long, guard + 5 + long));
                let mut sides = [(left, a, long), (right, b, 7)];
                sides.sort_by_key(|side| side.0 != CLAIMED);
                for (state, page, pages) in sides {
                    become_state(&mut pool, page, pages, state);
                }
                assert_eq!(pool.check(), Ok(()));
                pool.give(x, 3, given == DIRTY);
                assert_eq!(pool.check(), Ok(()), "{left} {given} {right}");
                let first = if left == given { a } else { x };
                let end = if right == given { b + 7 } else { b };
                let expected = Some((first, end - first, given));
                for page in [x, x + 2] {
                    assert_eq!(free_around(&pool, page), expected, "{left} {given} {right}");
                }
                assert_eq!(free_around(&pool, guard), None);
            }
        }
    }
}

#[test]
fn the_ends_of_the_heap_are_ends() {
    let mut pool = fresh(78);
    let all = pool.region.heap_pages();
    let page = take(&mut pool, all);
    assert_eq!((page, pool.region.heap_pages()), (0, all));
    pool.give(all - 4, 4, true);
    pool.give(0, 4, true);
    assert_eq!(free_around(&pool, 0), Some((0, 4, DIRTY)));
    assert_eq!(free_around(&pool, all - 1), Some((all - 4, 4, DIRTY)));
    pool.give(4, all - 8, true);
    assert_eq!(free_around(&pool, all / 2), Some((0, all, DIRTY)));
    assert_eq!(pool.check(), Ok(()));
}

#[test]
fn every_alignment_is_met_and_what_it_skips_stays_free() {
    for log in 0..=17 {
        let mut pool = fresh(100 + log);
        let align = 1u32 << log;
        let mut runs = Vec::new();
        for pages in [1, 3, align, align + 1, 2] {
            take(&mut pool, 1);
            let run = pool.take(pages, align).expect("memory");
            let addr = pool.region.page_addr(run.page);
            assert_eq!(addr % (PAGE << log), 0, "{pages} at {align}");
            runs.push((run.page, pages));
        }
        let used: u32 = runs.iter().map(|run| run.1).sum();
        assert_eq!(pool.used_pages, used + 5);
        assert_eq!(pool.check(), Ok(()));
        for (page, pages) in runs {
            pool.give(page, pages, true);
        }
        // From dirty runs, too.
        let run = pool.take(1, align).expect("memory");
        assert_eq!(pool.region.page_addr(run.page) % (PAGE << log), 0);
        assert!(!run.clean);
        assert_eq!(pool.check(), Ok(()));
    }
}

#[test]
fn what_can_never_be_met_is_refused() {
    let mut pool = fresh(79);
    for (pages, align) in [
        (0, 1),
        (1, 0),
        (1, 3),
        (crate::MAX_PAGES + 1, 1),
        (u32::MAX, 1),
    ] {
        assert_eq!(pool.take(pages, align), None, "{pages} at {align}");
    }
    assert_eq!(pool.take(crate::MAX_PAGES, 2), None);
    assert_eq!(pool.take(2, 1 << 31), None);
    assert_eq!(pool.extend(0, u32::MAX), None);
    assert_eq!(Pool::new().take(1, 1), None);
    assert_eq!(pool.check(), Ok(()));
}

#[test]
fn what_is_dirty_goes_first_then_pairs_then_what_is_clean() {
    let mut pool = fresh(80);
    let runs = [4, 1, 6, 1, 10].map(|pages| take(&mut pool, pages));
    let after = runs[4] + 10;
    pool.give(runs[0], 4, true);
    pool.give(runs[2], 6, true);
    // The same length, then the shortest that is long enough.
    let exact = pool.take(6, 1).expect("memory");
    assert_eq!((exact.page, exact.clean), (runs[2], false));
    pool.give(exact.page, 6, true);
    let best = pool.take(5, 1).expect("memory");
    assert_eq!((best.page, best.clean), (runs[2], false));
    // A dirty run and the clean one behind it.
    pool.give(runs[4], 10, true);
    let before = pool.touched_pages;
    let pair = pool.take(16, 1).expect("memory");
    assert_eq!((pair.page, pair.clean), (runs[4], false));
    assert_eq!(pool.touched_pages, before + 6);
    // Of two lengths of one bucket it takes the shorter, in whatever order they came.
    for lengths in [[66, 71], [71, 66]] {
        let mut pool = fresh(180);
        let runs = lengths.map(|pages| (take(&mut pool, pages), take(&mut pool, 1)).0);
        runs.iter()
            .zip(lengths)
            .for_each(|(&page, pages)| pool.give(page, pages, true));
        let shorter = runs[usize::from(lengths[0] > lengths[1])];
        assert_eq!(take(&mut pool, 65), shorter);
    }
    // No dirty run is a quarter of this.
    let clean = pool.take(40, 1).expect("memory");
    assert_eq!((clean.page, clean.clean), (after + 6, true));
    assert_eq!(pool.check(), Ok(()));
}

#[test]
fn a_pair_may_also_begin_with_the_clean_run() {
    let mut pool = fresh(81);
    let runs = [8, 4, 1].map(|pages| take(&mut pool, pages));
    let (rest, tail) = (pool.clean_pages, pool.dirty_pages);
    assert_eq!(tail, 0);
    let filler = take(&mut pool, rest);
    pool.give(runs[0], 8, false);
    pool.give(runs[1], 4, true);
    // Both to the last page.
    let whole = pool.take(12, 1).expect("memory");
    assert_eq!((whole.page, whole.clean), (runs[0], false));
    pool.give(runs[0], 8, false);
    pool.give(runs[1], 4, true);
    let pair = pool.take(7, 1).expect("memory");
    assert_eq!((pair.page, pair.clean), (runs[1] - 3, false));
    assert_eq!(free_around(&pool, runs[0]), Some((runs[0], 5, CLEAN)));
    assert_eq!(pool.check(), Ok(()));
    pool.give(filler, rest, true);
}

#[test]
fn a_run_grows_where_it_is() {
    let mut pool = fresh(82);
    let runs = [4, 4, 4, 1].map(|pages| take(&mut pool, pages));
    assert_eq!(pool.extend(runs[0] + 4, 1), None);
    pool.give(runs[1], 4, true);
    pool.give(runs[2], 4, false);
    assert_eq!(pool.extend(runs[0] + 4, 9), None);
    assert_eq!(pool.check(), Ok(()));
    assert_eq!(pool.extend(runs[0] + 4, 0), Some(true));
    assert_eq!(pool.extend(runs[0] + 4, 3), Some(false));
    assert_eq!(pool.extend(runs[0] + 7, 3), Some(false));
    assert_eq!(pool.extend(runs[0] + 10, 2), Some(true));
    assert_eq!(pool.extend(runs[0] + 12, 1), None);
    assert_eq!(pool.check(), Ok(()));
    // At the end of the heap, with free pages and without.
    let end = runs[3] + 1;
    let grown = pool.grown;
    assert_eq!(pool.extend(end, 5_000), Some(true));
    assert_eq!(pool.grown, grown + 1);
    let rest = pool.known_pages - end - 5_000;
    if rest > 0 {
        assert_eq!(pool.extend(end + 5_000, rest), Some(true));
    }
    let end = pool.known_pages;
    assert_eq!(pool.extend(end, 1), Some(true));
    assert_eq!(pool.check(), Ok(()));
}

#[test]
fn the_oldest_are_claimed_first_and_some_are_kept() {
    let mut pool = fresh(83);
    let mut runs = Vec::new();
    for _ in 0..6 {
        runs.push(take(&mut pool, 10));
        take(&mut pool, 1);
    }
    for (tick, index) in [(1, 3), (2, 0), (2, 5), (4, 1)] {
        pool.set_tick(tick);
        pool.give(runs[index], 10, true);
    }
    let mut out = [Run::default(); 8];
    assert_eq!(pool.claim_dirty(0, 0, &mut out), 0);
    assert_eq!(pool.claim_dirty(3, 0, &mut out[..1]), 1);
    assert_eq!(out[0].page, runs[3]);
    // 30 are left, 23 are to stay: only a part of one may go.
    assert_eq!(pool.claim_dirty(3, 23, &mut out[1..]), 1);
    assert_eq!((out[1].page, out[1].pages), (runs[0] + 3, 7));
    assert_eq!(pool.check(), Ok(()));
    assert_eq!(pool.claim_dirty(3, 0, &mut out[2..]), 2);
    assert_eq!((out[2].page, out[2].pages), (runs[0], 3));
    assert_eq!(
        (out[3].page, pool.dirty_pages, pool.claimed_pages),
        (runs[5], 10, 30)
    );
    // No search finds what is claimed.
    assert!(pool.take(10, 1).is_some_and(|run| run.page == runs[1]));
    let touched = pool.touched_pages;
    pool.purged(&out[..2]);
    pool.unclaim(&out[2..4]);
    assert_eq!(pool.check(), Ok(()));
    assert_eq!((pool.touched_pages, pool.dirty_pages), (touched - 17, 13));
}

#[test]
fn a_run_has_the_age_of_its_larger_part() {
    let mut pool = fresh(84);
    let [large, small, other] = [20, 3, 30].map(|pages| take(&mut pool, pages));
    take(&mut pool, 1);
    let claimable = |pool: &mut Pool, until: u32| {
        let mut out = [Run::default(); 4];
        let count = pool.claim_dirty(until, 0, &mut out);
        pool.unclaim(&out[..count]);
        count
    };
    pool.set_tick(5);
    pool.give(large, 20, true);
    pool.set_tick(9);
    pool.give(small, 3, true);
    let mut out = [Run::default(); 1];
    assert_eq!(pool.claim_dirty(5, 0, &mut out), 1);
    assert_eq!(out[0].pages, 23);
    pool.unclaim(&out);
    // Given back at 9 now, and joined by something larger at 12.
    pool.set_tick(12);
    pool.give(other, 30, true);
    assert_eq!(claimable(&mut pool, 11), 0);
    assert_eq!(claimable(&mut pool, 12), 1);
    assert_eq!(pool.check(), Ok(()));
}

/// Returns the number of pages of a range that are resident.
pub(super) fn resident(addr: usize, pages: u32) -> usize {
    let mut seen = vec![0u8; pages as usize];
    // SAFETY: the vector has a byte for each page, and the range is mapped.
    let result = unsafe { libc::mincore(addr as *mut _, pages as usize * PAGE, seen.as_mut_ptr()) };
    assert_eq!(result, 0);
    seen.iter().filter(|byte| **byte & 1 != 0).count()
}

#[test]
fn holes_are_purged_before_the_resident_memory_grows() {
    let mut pool = fresh(85);
    let slack = pool.slack();
    let holes: Vec<u32> = (0..400)
        .map(|_| (take(&mut pool, 1), take(&mut pool, 1)).0)
        .collect();
    for page in 0..800 {
        write(&pool, page, 1);
    }
    for &page in &holes {
        pool.give(page, 1, true);
    }
    let (touched, max) = (pool.touched_pages, pool.touched_max);
    assert_eq!((touched, max), (800, 800));
    let run = pool.take(300, 1).expect("memory");
    assert_eq!(pool.touched_pages, 800);
    for page in run.page..run.page + 300 {
        write(&pool, page, 1);
    }
    assert!(resident(pool.region.base(), pool.known_pages) <= 800);
    // Dirty pages beyond the slack are purged; the rest stays, and the maximum rises.
    let run = pool.take(300, 1).expect("memory");
    assert_eq!(
        (pool.dirty_pages, pool.purged_early_total),
        (slack, u64::from(400 - slack))
    );
    assert_eq!(pool.touched_max, 1_000 + slack);
    assert_eq!(pool.check(), Ok(()));
    // With no limit on what may lie unused, nothing is purged.
    pool.slack_pages = Some(u32::MAX);
    pool.give(run.page, 300, true);
    take(&mut pool, 301);
    assert_eq!(pool.purged_early_total, u64::from(400 - slack));
}

#[test]
fn who_works_at_his_ceiling_is_given_room_and_loses_it_again() {
    let mut pool = fresh(87);
    // Runs of many lengths replace each other: what is free seldom fits, and is purged.
    let mut random = Random::new(87);
    let mut next = |below: u64| random.below(below);
    let mut slots = [Run::default(); 12];
    let mut replace = |pool: &mut Pool| {
        let slot = &mut slots[next(12) as usize];
        if slot.pages > 0 {
            pool.give(slot.page, slot.pages, true);
        }
        *slot = pool.take(10 + next(1_000) as u32, 1).expect("memory");
    };
    (0..1_000).for_each(|_| replace(&mut pool));
    let (early, learned) = (pool.purged_early_total, pool.learned_pages);
    assert!(early > u64::from(pool.touched_max / 2), "{early}");
    assert!(learned > 0 && learned <= pool.touched_max / 4, "{learned}");
    (0..3_000).for_each(|_| replace(&mut pool));
    let more = pool.purged_early_total - early;
    assert!(more < early, "{early}, then {more}");
    assert_eq!(pool.check(), Ok(()));
    for tick in 1..400 {
        pool.set_tick(tick);
    }
    assert_eq!((pool.learned_pages, pool.early_pages), (0, 0));
}

#[test]
fn claimed_runs_go_back_to_the_kernel_in_one_batch() {
    let mut pool = fresh(86);
    let runs: Vec<u32> = (0..50)
        .map(|_| (take(&mut pool, 3), take(&mut pool, 1)).0)
        .collect();
    (0..200).for_each(|page| write(&pool, page, 5));
    assert_eq!(resident(pool.region.base(), 200), 200);
    runs.iter().for_each(|&page| pool.give(page, 3, true));
    let mut out = [Run::default(); 64];
    let count = pool.claim_dirty(0, 0, &mut out);
    assert_eq!(count, 50);
    let mut batch = Batch::new();
    for run in &out[..count] {
        batch.add(pool.region.page_addr(run.page), run.pages as usize * PAGE);
    }
    assert_eq!(batch.flush(), 150);
    assert_eq!(resident(pool.region.base(), 200), 50);
    pool.purged(&out[..count]);
    assert_eq!((pool.touched_pages, pool.dirty_pages), (50, 0));
    assert_eq!(pool.check(), Ok(()));
}

#[test]
fn the_heap_goes_on_behind_what_somebody_else_has_mapped() {
    let mut pool = fresh(87);
    let all = pool.region.heap_pages();
    take(&mut pool, all - 10);
    let foreign = pool.region.base() + pool.region.heap_bytes();
    os::place_at(foreign, 8 * PAGE, false).expect("a place for the other mapping");
    assert_eq!(pool.extend(all, 1), None);
    let run = pool.take(500, 1).expect("memory");
    assert!(run.page >= all + 8 && run.clean);
    write(&pool, run.page + 499, 1);
    // SAFETY: mapped by this test.
    let content = unsafe { (foreign as *const u64).read() };
    assert_eq!(
        (content, pool.region.jumps > 0, pool.hole_pages > 0),
        (0, true, true)
    );
    assert_eq!(pool.tag(all + 3), 0);
    assert_eq!(pool.check(), Ok(()));
    // The ten pages before the hole can still be taken, and do not join what lies behind it.
    assert_eq!(free_around(&pool, all - 1), Some((all - 10, 10, CLEAN)));
    assert_eq!(pool.check(), Ok(()));
    os::unplace(foreign, 8 * PAGE);
    let beyond = pool.region.base() + (all as usize) * PAGE;
    // The rest of the heap is behind the hole, where `release` does not reach.
    os::unplace(beyond, pool.region.heap_bytes() - all as usize * PAGE);
}

#[test]
fn an_alignment_is_met_behind_a_hole() {
    let mut pool = fresh(187);
    // The heap ends a little before 256 MiB; a foreign mapping is there, and at 256 MiB as well, so the heap goes on at
    // 384 MiB, where nothing is a multiple of 256.
    let end = (1 << 16) - 10;
    take(&mut pool, end);
    assert_eq!(pool.region.heap_pages(), end);
    let foreign = [end, 1 << 16].map(|page| pool.region.page_addr(page));
    for addr in foreign {
        os::place_at(addr, 8 * PAGE, false).expect("a place for the other mapping");
    }
    let run = pool.take(600, 1 << 16).expect("memory");
    assert_eq!((run.page, run.clean), (2 << 16, true));
    assert_eq!((pool.check(), pool.region.jumps), (Ok(()), 1));
    write(&pool, run.page + 599, 1);
    let last = pool.region.base() + pool.region.heap_bytes();
    os::unplace(foreign[0], last - foreign[0]);
}

#[test]
fn descriptors_are_zero_and_used_again() {
    let mut pool = fresh(88);
    take(&mut pool, 1);
    let region = &mut pool.region;
    let filled = |region: &crate::Region, offset: u32, units: usize| {
        // SAFETY: the descriptor is this test's.
        let bytes = unsafe { std::slice::from_raw_parts_mut(region.at::<u8>(offset), units * 64) };
        let zero = bytes.iter().all(|byte| *byte == 0);
        bytes.fill(0xff);
        zero
    };
    let mut seen = Vec::new();
    for units in 1..=40u32 {
        let offset = region.desc_alloc(units).expect("memory");
        assert!(offset > 0 && offset.is_multiple_of(64));
        assert!(filled(region, offset, units as usize));
        seen.push((offset, units));
    }
    for window in seen.windows(2) {
        assert!(window[0].0 + window[0].1 * 64 <= window[1].0);
    }
    for &(offset, units) in &seen {
        region.desc_free(offset, units);
        // SAFETY: descriptors stay mapped.
        let header = unsafe { &*region.at::<crate::Header>(offset) };
        let kind = header.kind.load(std::sync::atomic::Ordering::SeqCst); // ORDER: [reason: one thread]
        let owner = header.owner.load(std::sync::atomic::Ordering::SeqCst); // ORDER: [reason: one thread]
        assert_eq!((kind, owner), (crate::KIND_NONE, 0));
    }
    let before = region.meta_used_bytes();
    for &(offset, units) in seen.iter().filter(|one| one.1 > 8 && one.1 < 32) {
        assert_eq!(region.desc_alloc(units), Some(offset));
        assert!(filled(region, offset, units as usize));
    }
    // Longer ones are cut, before anything new is mapped.
    for _ in 0..100 {
        let offset = region.desc_alloc(2).expect("memory");
        assert!(filled(region, offset, 2));
    }
    assert_eq!(region.meta_used_bytes(), before);
    let heap = region.meta_alloc(10_000, PAGE).expect("memory");
    assert_eq!(heap as usize % PAGE, 0);
    assert!(filled(region, heap, 10_000 / 64));
    assert_eq!(region.desc_alloc(0), None);
    assert_eq!(region.meta_alloc(64, 3), None);
    assert_eq!(region.meta_alloc(crate::META_SPAN, PAGE), None);
}

/// Holds if the heap is one mapping and wants no huge pages.
pub(super) fn one_plain_mapping(pool: &Pool) {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
    let base = format!("{:x}-", pool.region.base());
    let of_heap = maps.split_once(&base).expect("the heap's mapping").1;
    let line = |word: &str| of_heap.lines().find(|line| line.starts_with(word));
    let known = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
    let flags = line("VmFlags").expect("flags");
    assert!(flags.contains(" nh") || !known, "{flags}");
    let size = line("Size").expect("a size");
    let expected = format!(" {} kB", pool.region.heap_bytes() / 1024);
    assert!(size.contains(&expected), "{size}, not {expected}");
}

#[test]
fn the_heap_wants_no_huge_pages_and_is_one_mapping_however_often_it_grows() {
    let mut pool = fresh(89);
    for _ in 0..4 {
        take(&mut pool, 1_000);
    }
    assert!(pool.grown > 1);
    one_plain_mapping(&pool);
}

/// Returns the bytes of HEAP that lie in huge pages.
fn huge_bytes(pool: &Pool) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
    let base = format!("{:x}-", pool.region.base());
    let of_heap = maps.split_once(&base).expect("the heap's mapping").1;
    let line = of_heap
        .lines()
        .find_map(|line| line.strip_prefix("AnonHugePages:"));
    let kb = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
    kb.map_or(0, |kb| kb.parse::<usize>().expect("a number") << 10)
}

#[test]
fn a_heap_placed_in_huge_pages_has_them_split_before_a_part_goes() {
    let mut pool = Fresh(Pool::new());
    let placed = pool.region.place(&Options {
        huge_pages: true,
        seed: 91 ^ u64::from(std::process::id()) << 32,
        first_heap_bytes: 8 << 20,
    });
    assert!(placed, "no place for a region");
    let page = take(&mut pool, 1_536);
    for at in 0..1_536 {
        write(&pool, page + at, u64::from(at));
    }
    let before = huge_bytes(&pool);
    if before == 0 {
        println!("not checked: the kernel gave no huge page");
        return;
    }
    let splits = || {
        let text = std::fs::read_to_string("/proc/vmstat").expect("a kernel's counters");
        let mut lines = text.lines();
        let count = lines.find_map(|line| line.strip_prefix("thp_split_page "));
        count.map_or(0, |count| count.parse::<u64>().expect("a number"))
    };
    let earlier = splits();
    // A part of each, so that each is split.
    for block in [0, 512, 1_024] {
        pool.give(page + block + 100, 8, true);
    }
    pool.purge(24);
    assert_eq!(pool.purged_total, 24);
    // Without a split the kernel divides only the mapping, and keeps the memory.
    let split = splits() - earlier;
    assert!(split >= before as u64 / HUGE as u64, "{split}");
    assert_eq!(read(&pool, page + 99), 99);
    assert_eq!(read(&pool, page + 104), 0);
    assert_eq!(read(&pool, page + 108), 108);
}
