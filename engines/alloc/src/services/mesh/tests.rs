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

/// Meshes all heaps, as if the purger had looked at every span and nothing had happened for some ticks since.
fn mesh_all() {
    changes_taken();
    for heap in heaps() {
        // ORDER: one thread.
        let refills = heap.refills.load(Ordering::Relaxed);
        heap.refills_seen.store(refills, Ordering::Relaxed); // ORDER: as above
        heap.wanted_ns.store(0, Ordering::Relaxed); // ORDER: as above
        heap.mesh_done.store(0, Ordering::Relaxed); // ORDER: as above
    }
    mesh_cold();
}

fn mesh_only(heap: &Heap) {
    for other in heaps() {
        let done = u32::from(!core::ptr::eq(other, heap));
        other.mesh_done.store(done, Ordering::Relaxed); // ORDER: one thread
    }
    changes_taken();
    heap.refills_seen
        .store(heap.refills.load(Ordering::Relaxed), Ordering::Relaxed); // ORDER: as above
    heap.wanted_ns.store(0, Ordering::Relaxed); // ORDER: as above
    mesh_cold();
}

fn changes_taken() {
    let (mut group, end) = (0, ((limit() / PAGE) as u32).div_ceil(changes::GROUP_PAGES));
    while let Some(next) = changes::take_group(group, end, |_, _| ()) {
        group = next;
    }
}

fn mesh_cold() {
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
    let written = written();
    mesh_all();
    // A page that found no partner may find one now.
    let more = self::written() - written;
    assert!(
        more <= written / 100,
        "equal pages are not written again (M3): {more} of {written}"
    );
    want(When::Off);
}

fn written() -> u64 {
    WRITTEN.load(Ordering::Relaxed) // ORDER: one thread
}

/// Frees every so manieth of the blocks.
fn free_some(heap: &Heap, blocks: &mut BTreeMap<usize, Vec<u8>>, every: usize, wiped: bool) {
    let some: Vec<usize> = blocks.keys().copied().step_by(every).collect();
    assert!(heap.lock.lock(heap.who()));
    for block in some {
        let bytes = blocks.remove(&block).expect("taken from there");
        // SAFETY: a block of this heap, of this size, once.
        unsafe {
            if wiped {
                (block as *mut u8).write_bytes(0xee, bytes.len());
            }
            events::to_bits(heap, block as *mut u8);
        }
    }
    heap.lock.unlock();
}

/// A pass that finds a heap nearly as it left it leaves its pages equal: what was merged stays so.
#[test]
fn frees_undo_nothing_unless_the_block_was_wiped() {
    let _alone = alone();
    want(When::On);
    let heap = new();
    let mut blocks = scattered(heap, class::base_class(256), 8_000, 6);
    mesh_only(heap);
    // What found no partner may find one in a group of the first time.
    mesh_only(heap);
    let before = contents(&blocks);
    let first = written();
    free_some(heap, &mut blocks, 40, false);
    mesh_only(heap);
    // Some groups have room for others now, which is worth writing them.
    let after = written();
    println!("{} pages of {} written", after - first, before.0);
    assert!(
        (after - first) * 5 < before.0 as u64,
        "free slots that are equal stay as they are"
    );
    free_some(heap, &mut blocks, 40, true);
    mesh_only(heap);
    let more = written() - after;
    println!(
        "{more} pages of {} written, {} different",
        before.0, before.1
    );
    assert!(0 < more && more < before.0 as u64, "{more} of {}", before.0);
    assert!(
        contents(&blocks).1 <= before.1 * 11 / 10,
        "as few different ones"
    );
    want(When::Off);
}

#[test]
fn only_heaps_that_stand_still_and_spans_without_a_late_free_are_meshed() {
    let _alone = alone();
    want(When::On);
    let heap = new();
    let class = class::base_class(256);
    let mut blocks = scattered(heap, class, 4_000, 8);
    let untouched = written();
    changes_taken();
    let refills = heap.refills.load(Ordering::Relaxed); // ORDER: one thread
    for (seen, wanted_ns, what) in [
        (
            refills - 1,
            0,
            "slow paths took a span since the purger looked",
        ),
        (refills, u64::MAX, "they did shortly before"),
    ] {
        heap.refills_seen.store(seen, Ordering::Relaxed); // ORDER: one thread
        heap.wanted_ns.store(wanted_ns, Ordering::Relaxed); // ORDER: as above
        mesh_cold();
        assert_eq!(written(), untouched, "{what}");
    }
    heap.wanted_ns.store(0, Ordering::Relaxed); // ORDER: as above
    for block in blocks.keys() {
        changes::note(span_of(*block));
    }
    mesh_cold();
    assert_eq!(written(), untouched, "blocks were freed there");
    changes_taken();
    mesh_cold();
    assert_eq!(written(), untouched, "nothing changed since");
    heap.mesh_done.store(0, Ordering::Relaxed); // ORDER: as above
    mesh_cold();
    assert!(written() > untouched);
    free_some(heap, &mut blocks, 1, false);
    want(When::Off);
}

fn span_of(block: usize) -> &'static Span {
    // SAFETY: a live block of a test's.
    unsafe { &*crate::mechanism::map::descriptor(block - base()) }
}

/// Free slots of meshed pages are used last (mesh.M7).
#[test]
fn meshed_spans_are_used_last() {
    let _alone = alone();
    want(When::On);
    let heap = new();
    let class = class::base_class(512);
    let blocks = scattered(heap, class, 4_000, 8);
    mesh_all();
    let is_meshed = |span: &Span| changes::is_meshed(span);
    let (mut marked, mut spans) = (0, Vec::new());
    assert!(heap.lock.lock(heap.who()));
    // SAFETY: the lock is held.
    unsafe {
        heap.each_span(|span| {
            marked += usize::from(is_meshed(span));
            spans.push(offset_of(span));
        });
    }
    assert!(marked * 3 > spans.len() * 2, "{marked} of {}", spans.len());
    // Every other one is as if it had become partial later.
    // SAFETY: live descriptors.
    let span_at = |&offset: &u32| unsafe { &*at::<Span>(offset) };
    spans
        .iter()
        .step_by(2)
        .for_each(|span| changes::set_meshed(span_at(span), false));
    let meshed: Vec<u32> = spans
        .iter()
        .copied()
        .filter(|span| is_meshed(span_at(span)))
        .collect();
    while meshed.iter().all(|span| is_meshed(span_at(span))) {
        // SAFETY: no thread has the heap, and the lock is held.
        unsafe { heap.take_locked(class) };
    }
    // What is left is the current span, and full ones with a slot or two (`Heap::refreed`).
    let partial = |span: &&u32| {
        let state = span_at(span).state.load(Ordering::Relaxed); // ORDER: the lock is held
        state == crate::mechanism::span::state::PARTIAL && !is_meshed(span_at(span))
    };
    assert_eq!(spans.iter().filter(partial).count(), 0);
    heap.lock.unlock();
    drop(blocks);
    want(When::Off);
}

#[test]
fn no_slot_is_live_twice_in_a_group() {
    let mut numbers = Numbers(0x5eed_0000_0000_0002);
    let mut pages: Vec<Candidate> = (0..BATCH as u32)
        .map(|page| Candidate {
            mask: [(); WORDS].map(|()| numbers.next() & numbers.next() & numbers.next()),
            // Some are equal, by twos to fives, whether they are disjoint or not.
            hash: u64::from(page).saturating_sub(BATCH as u64 / 2) / 5,
            page,
            key: page % 3,
            next: 0,
            placed: false,
        })
        .collect();
    let none = Group {
        mask: [0; WORDS],
        first: 0,
        members: 0,
        key: 0,
    };
    let mut groups = vec![none; BATCH];
    let count = group(&mut pages, &mut groups, &mut vec![0; BATCH]);
    let mut seen = 0;
    for one in &groups[..count] {
        let (mut all, mut next) = ([0; WORDS], one.first);
        let mut members = 0;
        while let Some(i) = next.checked_sub(1) {
            let page = pages[i as usize];
            assert!(!overlap(&all, &page.mask));
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
