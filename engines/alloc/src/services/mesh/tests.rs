//! Pages become equal, and no live block changes.
//!
//! E1  Heaps of the test's own, which nothing else touches; sizes that divide a page and sizes that do not.
//!
//! Not here: the kernel's merging (`bench/alloc/mesh.py`).

use std::collections::BTreeMap;

use super::*;
use crate::heaps::events;
use crate::mechanism::lock::PURGER;
use crate::test_engine::{alone, new};

/// Numbers by seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Takes blocks of a class with random bytes, and frees all but one of `every`; returns those that stay, and theirs.
fn scattered(heap: &Heap, class: usize, count: usize, every: u64) -> BTreeMap<usize, Vec<u8>> {
    let size = class::get(class).size as usize;
    let mut numbers = Numbers(0x5eed_0000_0000_0001 + size as u64);
    assert!(heap.lock.lock(heap.who()));
    // SAFETY: no thread has the heap, and the lock is held.
    let blocks: Vec<usize> = (0..count)
        .map(|_| unsafe { heap.take_locked(class) } as usize)
        .collect();
    let mut kept = BTreeMap::new();
    for block in blocks {
        let bytes: Vec<u8> = (0..size).map(|_| numbers.next() as u8).collect();
        // SAFETY: a block of this size.
        unsafe { (block as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), size) };
        if numbers.next().is_multiple_of(every) {
            kept.insert(block, bytes);
        } else {
            // SAFETY: a block of this heap, once.
            unsafe { events::to_bits(heap, block as *mut u8) };
        }
    }
    heap.lock.unlock();
    kept
}

fn bytes_at(address: usize, length: usize) -> &'static [u8] {
    // SAFETY: mapped: pages of a heap.
    unsafe { core::slice::from_raw_parts(address as *const u8, length) }
}

/// The pages of blocks, and how many different contents they have.
fn contents(blocks: &BTreeMap<usize, Vec<u8>>) -> (usize, usize) {
    let mut pages: Vec<usize> = blocks.keys().map(|block| block / PAGE).collect();
    pages.dedup();
    let mut different: Vec<&[u8]> = pages
        .iter()
        .map(|page| bytes_at(page * PAGE, PAGE))
        .collect();
    different.sort_unstable();
    different.dedup();
    (pages.len(), different.len())
}

fn mesh_all() {
    let mut mesh = Mesh::new(PURGER);
    while !mesh.part() {}
}

#[test]
fn scattered_blocks_share_pages_and_stay_as_they_are() {
    let _alone = alone();
    want(When::On);
    let heap = new();
    let sizes = [16, 48, 64, 208, 256, 1024, 1360, 2048];
    let blocks: Vec<_> = sizes
        .iter()
        .map(|&size| {
            (
                size,
                scattered(heap, class::base_class(size), 2_000_000 / size, 8),
            )
        })
        .collect();
    let before: Vec<_> = blocks.iter().map(|(_, blocks)| contents(blocks)).collect();
    mesh_all();
    for ((size, blocks), before) in blocks.iter().zip(before) {
        for (block, bytes) in blocks {
            assert_eq!(bytes_at(*block, bytes.len()), bytes, "{size}");
        }
        let (pages, different) = contents(blocks);
        assert_eq!(before, (pages, pages), "{size}: all pages differed");
        println!("{size}: {pages} pages, {different} different");
        let most = if *size <= 16 { pages } else { pages * 3 / 4 };
        assert!(different <= most, "{size}: {different} of {pages}");
    }
    let written = WRITTEN.load(Ordering::Relaxed); // ORDER: one thread
    mesh_all();
    // ORDER: one thread.
    assert_eq!(
        WRITTEN.load(Ordering::Relaxed),
        written,
        "equal pages are not written again (M3)"
    );
    want(When::Off);
}

#[test]
fn no_slot_is_live_twice_in_a_group() {
    let mut numbers = Numbers(0x5eed_0000_0000_0002);
    let mut pages: Vec<Candidate> = (0..BATCH as u32)
        .map(|page| Candidate {
            mask: [(); WORDS].map(|()| numbers.next() & numbers.next() & numbers.next()),
            page,
            key: page % 3,
            next: 9,
        })
        .collect();
    let none = Group {
        mask: [0; WORDS],
        first: 0,
        members: 0,
    };
    let mut groups = vec![none; BATCH];
    let count = group(&mut pages, &mut groups);
    let mut seen = 0;
    for one in &groups[..count] {
        let (mut all, mut key, mut next) = ([0; WORDS], None, one.first);
        let mut members = 0;
        while let Some(i) = next.checked_sub(1) {
            let page = pages[i as usize];
            assert!(!overlap(&all, &page.mask));
            assert_eq!(*key.get_or_insert(page.key), page.key, "slots lie alike");
            all.iter_mut().zip(page.mask).for_each(|(a, b)| *a |= b);
            (next, members) = (page.next, members + 1);
        }
        assert_eq!((members, all), (one.members, one.mask));
        assert!(members <= MEMBERS as u32);
        seen += members as usize;
    }
    assert_eq!(seen, pages.len(), "each page is in one group");
}

#[test]
fn under_hardening_free_slots_stay_as_they_are() {
    let _alone = alone();
    want(When::On);
    let heap = new();
    let blocks = scattered(heap, class::base_class(256), 2_000, 8);
    let before = contents(&blocks);
    slow::HARDENED.store(1, Ordering::Relaxed); // ORDER: one thread
    mesh_all();
    slow::HARDENED.store(0, Ordering::Relaxed); // ORDER: as above
    assert_eq!(contents(&blocks), before);
    want(When::Off);
}

#[test]
fn a_block_that_is_written_meanwhile_keeps_what_was_written() {
    use std::sync::atomic::{AtomicBool, AtomicU64};
    let _alone = alone();
    want(When::On);
    let heap = new();
    let blocks: Vec<usize> = scattered(heap, class::base_class(256), 2_000, 8)
        .into_keys()
        .collect();
    let over = AtomicBool::new(false);
    let turns = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for turn in 0.. {
                for &block in &blocks {
                    // SAFETY: a live block of this test's, aligned; the meshing reads it in assembly.
                    let word = unsafe { &*(block as *const AtomicU64) };
                    // ORDER: this thread alone writes it, if mesh.M1 holds.
                    let before = word.swap(turn, Ordering::Relaxed);
                    assert!(turn == 0 || before == turn - 1, "{before} in turn {turn}");
                }
                turns.store(turn, Ordering::Relaxed); // ORDER: a count
                // ORDER: a flag that stands alone.
                if over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        // ORDER: a count. A writer that met a fault has ended.
        while !writer.is_finished() && turns.load(Ordering::Relaxed) < 20_000 {
            mesh_all();
        }
        over.store(true, Ordering::Relaxed); // ORDER: a flag that stands alone
    });
    want(When::Off);
}
