//! Pages worked out by hand, and a judge that goes byte by byte.

use skinflint_base::random::Random;
use skinflint_trace::{AllocFn, Event, EventKind, NodeId, ThreadId};

use super::measure::*;
use super::tally::*;
use std::collections::BTreeMap;

use crate::giveback::Span;
use crate::ledger::Ledger;
use crate::model::Fragments;

const BASE: u64 = 0x10_0000;

/// A ledger of blocks (address, stack, bytes), one acquisition a millisecond.
fn ledger(blocks: &[(u64, u32, u64)]) -> Ledger {
    ledger_from(0, blocks)
}

/// The same, the first of them at this time.
fn ledger_from(start_ns: u64, blocks: &[(u64, u32, u64)]) -> Ledger {
    let mut ledger = Ledger::new(16);
    for (ticket, &(addr, node, size)) in (0..).zip(blocks) {
        let event = Event {
            ticket,
            time_ns: start_ns + ticket * 1_000_000,
            thread: ThreadId(0),
            kind: EventKind::Alloc {
                func: AllocFn::Malloc,
                node: NodeId(node),
                addr,
                size,
                usable: size,
            },
        };
        ledger.apply(&event, &mut |_, _| {});
    }
    ledger
}

fn span(start: u64, end: u64) -> Span {
    Span {
        start,
        end,
        piece_end: end,
        top_goes: true,
    }
}

fn placed(ledger: &Ledger) -> Vec<Placed> {
    let usable = |cell| ledger.cells().key(cell).usable;
    let mut all: Vec<Placed> = ledger
        .live_at()
        .map(|(slot, block)| Placed {
            begin: block.addr,
            end: block.addr + usable(block.cell),
            addr: block.addr,
            cell: block.cell.0,
            slot,
        })
        .collect();
    all.sort_by_key(|block| block.addr);
    all
}

fn run(spans: &[Span], blocks: &[(u64, u32, u64)], allocator: &str) -> (Fragments, Kept) {
    let ledger = ledger(blocks);
    let placed = placed(&ledger);
    let what = (100, true);
    let (all, kept) = measure(spans, placed.iter().copied(), (&ledger, 0), allocator, what);
    (all, kept.unwrap())
}

/// (share, sole pages, joint pages, blocks, packed, freed) of a stack.
fn of(all: &Fragments, node: u32) -> (u64, u64, u64, u64, u64, u64) {
    let pin = all.pins.iter().find(|pin| pin.node == Some(node)).unwrap();
    (
        pin.free_bytes,
        pin.sole_pages,
        pin.joint_pages,
        pin.blocks,
        pin.packed_pages,
        pin.freed_pages,
    )
}

#[test]
fn one_block_keeps_its_whole_slab_where_spans_go_back_as_a_whole() {
    let page = |index: u64| BASE + index * PAGE;
    // Two slabs of jemalloc for 192 bytes, 3 pages each: one block on the first page of one, two of two stacks on the
    // other. The seventh page is of no slab.
    let blocks = [
        (page(0) + 192, 1, 192),
        (page(3), 1, 192),
        (page(3) + 21 * 192, 2, 192),
    ];
    let spans = [span(page(0), page(7))];
    let (all, _) = run(&spans, &blocks, "libjemalloc.so.2 5.3.0");
    assert_eq!(
        of(&all, 1),
        (3 * PAGE - 192 + 3 * PAGE / 2 - 192, 3, 3, 2, 1, 2)
    );
    assert_eq!(of(&all, 2), (3 * PAGE / 2 - 192, 0, 3, 1, 1, 0));
    assert_eq!(
        (all.pinned_bytes, all.nobodys_bytes),
        (6 * PAGE - 3 * 192, PAGE)
    );
    assert_eq!((all.pages, all.pinned_pages), (7, 6));
    // An allocator whose spans are not known has pages.
    let (all, _) = run(&spans, &blocks, "");
    assert_eq!(of(&all, 1).1, 1, "the second one reaches over a border");
    assert_eq!((all.pinned_pages, all.nobodys_bytes), (3, 4 * PAGE));
}

#[test]
fn the_picture_at_the_head() {
    let page = |index: u64| BASE + index * PAGE;
    // Page 0: two of A; page 1: one of A, one of B; page 2: nobody's; pages 3 and 4: C, from the
    // middle of one to the middle of the other.
    let blocks = [
        (page(0) + 16, 1, 300),
        (page(0) + 2048, 1, 100),
        (page(1), 1, 96),
        (page(1) + 3000, 2, 95),
        (page(3) + 1000, 3, 5000),
    ];
    let (all, _) = run(&[span(page(0), page(5))], &blocks, "");
    // Page 0: 4,096 − 400 = 3,696 to A. Page 1: 4,096 − 191 = 3,905, 1,953 to A, whose block comes
    // first, and 1,952 to B. Page 3: 1,000 and page 4: 4,096 − 1,904 = 2,192 to C.
    assert_eq!(of(&all, 1), (3696 + 1953, 1, 1, 3, 1, 0));
    assert_eq!(of(&all, 2), (1952, 0, 1, 1, 1, 0));
    assert_eq!(of(&all, 3), (3192, 2, 0, 1, 2, 0));
    assert_eq!(all.pinned_bytes, 3696 + 3905 + 3192);
    assert_eq!(all.nobodys_bytes, 4096);
    assert_eq!(all.free_bytes, all.pinned_bytes + all.nobodys_bytes);
    assert_eq!(all.used_bytes, 400 + 191 + 5000);
    assert_eq!((all.pages, all.pinned_pages, all.partial_pages), (5, 4, 4));
    // 5,591 bytes: two pages. By class: one each for 300, 100, 96 and 95, two for 5,000.
    assert_eq!((all.packed_pages, all.class_packed_pages), (2, 6));
    // Blocks came a millisecond apart; the last event was at 4 ms, the fifth acquisition.
    let age = all
        .pins
        .iter()
        .find(|pin| pin.node == Some(1))
        .unwrap()
        .age
        .unwrap();
    assert_eq!((age.median_ns, age.oldest_ns), (3_000_000, 4_000_000));
    assert_eq!((age.median_acquisitions, age.oldest_acquisitions), (4, 5));
}

/// Microseconds since the start pass 2^32 after 71 minutes.
#[test]
fn ages_are_those_of_the_blocks_after_hours_too() {
    let ten_hours = 36_000_000_000_000;
    let blocks = [(BASE, 1, 100), (BASE + 200, 1, 100), (BASE + 400, 1, 100)];
    let ledger = ledger_from(ten_hours, &blocks);
    let placed = placed(&ledger);
    let spans = [span(BASE, BASE + PAGE)];
    let (all, _) = measure(
        &spans,
        placed.iter().copied(),
        (&ledger, 0),
        "",
        (100, true),
    );
    let age = all.pins[0].age.unwrap();
    // A millisecond apart, the last of them now.
    assert_eq!((age.median_ns, age.oldest_ns), (1_000_000, 2_000_000));
}

/// Blocks came at 0, 1 and 2 ms; pages were read ten seconds later.
#[test]
fn blocks_grow_older_while_a_program_rests() {
    let ledger = ledger(&[(BASE, 1, 100), (BASE + 200, 1, 100), (BASE + 400, 1, 100)]);
    let placed = placed(&ledger);
    let spans = [span(BASE, BASE + PAGE)];
    let read = (&ledger, 10_002_000_000);
    let (all, _) = measure(&spans, placed.iter().copied(), read, "", (100, true));
    let age = all.pins[0].age.unwrap();
    assert_eq!(
        (age.median_ns, age.oldest_ns),
        (10_001_000_000, 10_002_000_000)
    );
}

#[test]
fn what_is_freed_if_a_stack_lay_elsewhere() {
    // A block of 64 bytes on each of ten pages, and on the tenth another stack's.
    let mut blocks: Vec<_> = (0..10).map(|page| (BASE + page * PAGE, 1, 64)).collect();
    blocks.push((BASE + 9 * PAGE + 512, 2, 64));
    let (all, _) = run(&[span(BASE, BASE + 10 * PAGE)], &blocks, "");
    // Nine pages are its own, and its 640 bytes fill one.
    let share = 9 * 4032 + 3968 / 2;
    assert_eq!(of(&all, 1), (share, 9, 1, 10, 1, 8));
    assert_eq!(all.pins[0].resident_elsewhere_bytes, 2 * PAGE);
    assert_eq!(of(&all, 2), (1984, 0, 1, 1, 1, 0));
}

#[test]
fn a_full_page_pins_no_free_byte_but_is_somebodys() {
    let blocks = [
        (BASE, 1, 4096),
        (BASE + PAGE, 2, 2048),
        (BASE + PAGE + 2048, 3, 2048),
    ];
    let (all, _) = run(&[span(BASE, BASE + 2 * PAGE)], &blocks, "");
    assert_eq!(of(&all, 1), (0, 1, 0, 0, 1, 0));
    assert_eq!(of(&all, 2), (0, 0, 1, 0, 1, 0));
    assert_eq!(
        (all.free_bytes, all.pinned_pages, all.partial_pages),
        (0, 2, 0)
    );
    assert!(all.pins.iter().all(|pin| pin.age.is_none()));
}

#[test]
fn pages_that_are_not_resident_count_nowhere() {
    // Of a block over four pages the first and the last are resident.
    let resident = [
        span(BASE, BASE + PAGE),
        span(BASE + 3 * PAGE, BASE + 4 * PAGE),
    ];
    let (all, _) = run(&resident, &[(BASE + 96, 1, 4 * PAGE - 192)], "");
    assert_eq!(of(&all, 1), (192, 2, 0, 1, 2, 0));
    assert_eq!((all.used_bytes, all.pages), (2 * PAGE - 192, 2));
    // All four, two of them full.
    let (four, _) = run(
        &[span(BASE, BASE + 4 * PAGE)],
        &[(BASE + 96, 1, 4 * PAGE - 192)],
        "",
    );
    assert_eq!(of(&four, 1), (192, 4, 0, 1, 4, 0));
    assert_eq!((four.pinned_pages, four.partial_pages), (4, 2));
    // And of one that lies between them nothing is.
    let (none, _) = run(&resident, &[(BASE + PAGE + 96, 1, 100)], "");
    assert_eq!((none.pins.len(), none.nobodys_bytes), (0, 2 * PAGE));
}

#[test]
fn of_blocks_that_overlap_each_byte_counts_once() {
    // A damaged trace: the second begins 100 bytes before the first ends, the third lies within it.
    let blocks = [
        (BASE, 1, 1000),
        (BASE + 900, 2, 1000),
        (BASE + 1000, 3, 500),
    ];
    let (all, _) = run(&[span(BASE, BASE + PAGE)], &blocks, "");
    assert_eq!(all.used_bytes, 1900);
    // 2,196 are free, between two of them.
    assert_eq!(of(&all, 1), (1098, 0, 1, 1, 1, 0));
    assert_eq!(of(&all, 2), (1098, 0, 1, 1, 1, 0));
    assert_eq!(all.pins.len(), 2);
}

#[test]
fn what_is_not_listed_is_summed_up() {
    let blocks: Vec<_> = (0..9u64)
        .map(|n| (BASE + n * PAGE, 1 + n as u32, 100 * (n + 1)))
        .collect();
    let ledger = ledger(&blocks);
    let placed = placed(&ledger);
    let spans = [span(BASE, BASE + 9 * PAGE)];
    let (all, kept) = measure(&spans, placed.iter().copied(), (&ledger, 0), "", (3, false));
    assert!(kept.is_none());
    let listed: Vec<_> = all.pins.iter().map(|pin| pin.free_bytes).collect();
    assert_eq!(listed, [3996, 3896, 3796]);
    // 3,696 down to 3,196: six of them, 3,446 on average.
    assert_eq!((all.others.free_bytes, all.others.stacks), (6 * 3446, 6));
    assert_eq!((all.others.node, all.others.age), (None, None));
}

#[test]
fn slabs_of_jemalloc() {
    // Two slabs of 48 bytes (three pages each) and one page of 1,024, all resident.
    let (one, two, three) = (BASE, BASE + 3 * PAGE, BASE + 6 * PAGE);
    let blocks = [
        (one, 1, 48),
        (one + 48 * 200, 1, 48),
        (two + 48 * 100, 1, 48),
        (two + 48 * 255, 2, 48),
        (three + 1024, 2, 1024),
        (three + PAGE, 3, 16384),
    ];
    let resident = [span(BASE, BASE + 11 * PAGE)];
    let (all, _) = run(&resident, &blocks, "libjemalloc.so.2 5.3.0");
    let spans = all.spans.clone().unwrap();
    assert_eq!((spans.spans, spans.blocks), (3, 5));
    assert_eq!(
        (spans.resident_bytes, spans.used_bytes),
        (7 * PAGE, 4 * 48 + 1024)
    );
    let of = |node| {
        let pin = all.pins.iter().find(|pin| pin.node == Some(node)).unwrap();
        (pin.sole_spans, pin.joint_spans)
    };
    assert_eq!([of(1), of(2), of(3)], [(1, 1), (1, 1), (0, 0)]);
    // Another class inside the first slab: the layout is not what it was taken for.
    let mut odd = blocks.to_vec();
    odd.push((one + 1024, 4, 1024));
    assert!(
        run(&resident, &odd, "libjemalloc.so.2 5.3.0")
            .0
            .spans
            .is_none()
    );
    assert!(run(&resident, &blocks, "glibc 2.36").0.spans.is_none());
}

/// Byte by byte: which block has it, and of each page which blocks are there.
fn judge(
    resident: &[(u64, u64)],
    blocks: &[(u64, u32, u64)],
) -> BTreeMap<u32, (u64, u64, u64, u64)> {
    let mut stacks: BTreeMap<u32, (u64, u64, u64, u64)> = BTreeMap::new();
    let mut sorted = blocks.to_vec();
    sorted.sort_unstable();
    let mut pinning = std::collections::BTreeSet::new();
    for &(start, end) in resident {
        for page in start / PAGE..end / PAGE {
            let byte = |at: u64| {
                let of = |(addr, _, size): &&(u64, u32, u64)| *addr <= at && at < addr + size;
                sorted.iter().find(of)
            };
            let mut there: Vec<(u64, u32)> = Vec::new();
            let mut free = 0u64;
            for at in page * PAGE..(page + 1) * PAGE {
                match byte(at) {
                    None => free += 1,
                    Some(&(addr, node, _)) if !there.contains(&(addr, node)) => {
                        there.push((addr, node))
                    }
                    Some(_) => {}
                }
            }
            let distinct: std::collections::BTreeSet<u32> = there.iter().map(|one| one.1).collect();
            for &node in &distinct {
                let stack = stacks.entry(node).or_default();
                match distinct.len() {
                    1 => stack.1 += 1,
                    _ => stack.2 += 1,
                }
            }
            for (index, &(addr, node)) in there.iter().enumerate().filter(|_| free > 0) {
                let stack = stacks.entry(node).or_default();
                let many = there.len() as u64;
                stack.0 += free / many + u64::from((index as u64) < free % many);
                stack.3 += u64::from(pinning.insert(addr));
            }
        }
    }
    stacks
}

#[test]
fn like_the_judge_on_seeded_heaps() {
    for seed in 1..=40u64 {
        let mut random = Random::new(seed);
        let mut draw = |below: u64| random.below(below);
        let mut blocks = Vec::new();
        let mut at = BASE + draw(200);
        while at < BASE + 12 * PAGE {
            let size = match draw(12) {
                0 => 3000 + draw(14_000),
                1..4 => 1 + draw(2000),
                _ => 1 + draw(100),
            };
            if draw(3) > 0 {
                blocks.push((at, 1 + draw(5) as u32, size));
            }
            at += size + draw(900);
        }
        let mut resident = Vec::new();
        let mut page = BASE / PAGE;
        while page < BASE / PAGE + 14 {
            let many = 1 + draw(4);
            if draw(4) > 0 {
                resident.push((page * PAGE, (page + many) * PAGE));
            }
            page += many;
        }
        let spans: Vec<Span> = resident
            .iter()
            .map(|&(start, end)| span(start, end))
            .collect();
        let (all, _) = run(&spans, &blocks, "");
        let ours: BTreeMap<u32, _> = all
            .pins
            .iter()
            .map(|pin| {
                let figures = (pin.free_bytes, pin.sole_pages, pin.joint_pages, pin.blocks);
                (pin.node.unwrap(), figures)
            })
            .collect();
        assert_eq!(ours, judge(&resident, &blocks), "seed {seed}");
        let shares: u64 = all.pins.iter().map(|pin| pin.free_bytes).sum();
        assert_eq!(shares, all.pinned_bytes, "seed {seed}");
    }
}
