//! Each strategy on lists of a few blocks, its choice worked out on paper.
//!
//! ```text
//!   blocks (bytes, in the order in which they become free) + request + origin ─► the block that must be taken
//! ```
//!
//! All blocks are of one page, so "the top" of a class is the one that became free last.
//!
//! Not here: many pages, many operations (`model`).

use super::list::{Block, FreeList, Freed, Origin};
use super::memory::{Memory, PAGE_WORDS, WORD};
use super::strategy::Strategy;

fn list(name: &str) -> (Memory, Box<dyn FreeList>) {
    let memory = Memory::reserve(8).expect("address space");
    let strategy = Strategy::by_name(name).expect("a strategy");
    let mut list = (strategy.make)(&memory);
    for page in 1..=3 {
        list.add_page(page);
    }
    (memory, list)
}

/// Frees blocks of so many bytes in page 1, a word apart; what was not kept, in bytes.
fn fill(list: &mut dyn FreeList, blocks: &[u32]) -> Vec<u32> {
    let mut word = PAGE_WORDS;
    let mut lost = Vec::new();
    for bytes in blocks {
        let block = Block {
            word,
            words: bytes / WORD,
        };
        lost.extend(
            list.free(block, Freed::Sweep)
                .map(|block| block.words * WORD),
        );
        word += block.words + 1;
    }
    assert!(word <= 2 * PAGE_WORDS, "the example fits into a page");
    lost
}

/// Classes of every table, from the smallest to the open one.
const LADDER: &[u32] = &[24, 48, 88, 256, 384, 2048, 4096, 16_384, 66_000];

/// Strategy, blocks, request, origin, the block that is taken (bytes; 0: none).
type Case = (&'static str, &'static [u32], u32, Origin, u32);

use Origin::{Gc, GeneratedCode, Runtime};

const CASES: &[Case] = &[
    // Surplus first: 40 bytes begin with small (256 to 2047), whose top is 384.
    ("legacy", LADDER, 40, Runtime, 384),
    // 300 begin with medium, 3000 with large, 20000 walk huge.
    ("legacy", LADDER, 300, Runtime, 4096),
    ("legacy", LADDER, 3000, Runtime, 16_384),
    ("legacy", LADDER, 20_000, Runtime, 66_000),
    ("legacy", LADDER, 70_000, Runtime, 0),
    // Huge is walked, not only its top.
    ("legacy", &[70_008, 66_000], 70_000, Runtime, 70_008),
    // The last resort of a tiniest request: the top of tiny, then of tiniest, one look each.
    ("legacy", &[24, 48, 88], 40, Runtime, 88),
    ("legacy", &[24, 48], 40, Runtime, 48),
    ("legacy", &[48, 24], 40, Runtime, 0),
    // 300 has small as its own class: by its top, and then it is over.
    ("legacy", &[384, 256], 300, Runtime, 0),
    ("legacy", &[256, 384], 300, Runtime, 384),
    // 256 to 2055 are one class: the top is 2048.
    ("legacy-more-smalls", LADDER, 40, Runtime, 2048),
    ("legacy-more-smalls", LADDER, 300, Runtime, 4096),
    // The small classes come last, and exactly.
    ("legacy-more-smalls", &[24, 48, 88], 40, Runtime, 48),
    ("legacy-more-smalls", &[24], 40, Runtime, 0),
    // The largest first.
    ("fast-alloc", LADDER, 40, Runtime, 66_000),
    ("fast-alloc", &[2048, 4096], 40, Runtime, 4096),
    ("fast-alloc", &[66_000, 16_384], 20_000, Runtime, 66_000),
    // No walk: 70008 is behind 66000.
    ("fast-alloc", &[70_008, 66_000], 70_000, Runtime, 0),
    // Best fit by class: 40 find 48; 300 fail at the top of 256 and find 384.
    ("many", LADDER, 40, Runtime, 48),
    ("many", LADDER, 24, Runtime, 24),
    ("many", LADDER, 300, Runtime, 384),
    ("many", LADDER, 65_000, Runtime, 66_000),
    ("many", LADDER, 70_000, Runtime, 0),
    ("many", &[70_008, 66_000], 70_000, Runtime, 70_008),
    // 2 KB of surplus; for tiny requests then 256 bytes; exactly at last.
    ("many-fast", LADDER, 40, Runtime, 2048),
    ("many-fast", LADDER, 300, Runtime, 4096),
    ("many-fast", &[24, 48, 88, 256, 384], 40, Runtime, 256),
    ("many-fast", &[24, 48, 88], 40, Runtime, 48),
    ("many-fast", &[256, 384, 2048], 300, Runtime, 384),
    // 1152 + 1920 = 3072: that class is the first.
    ("many-fast", &[2048, 3072], 1152, Runtime, 3072),
    ("many-fast", &[70_008, 66_000], 70_000, Runtime, 70_008),
    // 32 to 47 is one class, 256 to 511 another, whose top is 384.
    ("half-many", LADDER, 40, Runtime, 48),
    ("half-many", LADDER, 300, Runtime, 384),
    ("half-many", &[40, 32], 40, Runtime, 0),
    ("half-many-fast", LADDER, 40, Runtime, 2048),
    ("half-many-fast", LADDER, 300, Runtime, 4096),
    ("half-many-fast", &[24, 48, 88, 256, 384], 40, Runtime, 384),
    ("more-1k", LADDER, 40, Runtime, 48),
    ("more-1k", LADDER, 300, Runtime, 384),
    // 2048 to 3071: the top is too small.
    ("more-1k", LADDER, 3000, Runtime, 4096),
    ("more-2k", LADDER, 40, Runtime, 48),
    ("more-2k", LADDER, 3000, Runtime, 4096),
    // 2048 to 4095 is one class here: 3072 hides 4000.
    ("more-2k", &[4000, 3072, 66_000], 3500, Runtime, 66_000),
    ("more-2k-fast", LADDER, 40, Runtime, 2048),
    // The class of 300 + 2048, and one more.
    ("more-2k-fast", LADDER, 300, Runtime, 4096),
    ("more-2k-fast", &[384, 2048], 300, Runtime, 384),
    // The collector fits, the others are in a hurry.
    ("many-origin", LADDER, 40, Gc, 48),
    ("many-origin", LADDER, 40, Runtime, 2048),
    ("many-origin", LADDER, 40, GeneratedCode, 2048),
    // First fit, the last one first.
    ("single-list", LADDER, 40, Runtime, 66_000),
    ("single-list", &[384, 24, 48], 88, Runtime, 384),
    // The top only.
    ("map-space", &[160, 80], 80, Runtime, 80),
    ("map-space", &[160, 80], 160, Runtime, 0),
    // In a hurry until there is waste.
    ("tuned", LADDER, 40, Runtime, 2048),
    // 16 bytes are enough; a page of small objects has no room for large ones.
    ("tight", &[16, 48], 16, Runtime, 16),
    ("tight", LADDER, 40, Runtime, 48),
    ("tight", LADDER, 300, Runtime, 384),
    ("tight-mixed", LADDER, 3000, Runtime, 4096),
];

#[test]
fn every_choice_is_the_one_on_paper() {
    for (name, blocks, request, origin, expected) in CASES {
        let (_memory, mut list) = list(name);
        fill(list.as_mut(), blocks);
        let taken = list
            .take(*request, *origin)
            .map_or(0, |block| block.words * WORD);
        assert_eq!(
            taken, *expected,
            "{name}: {request} bytes out of {blocks:?}"
        );
    }
}

#[test]
fn every_strategy_of_the_study_is_worked_out() {
    for strategy in Strategy::all().iter().filter(|strategy| strategy.studied) {
        let has = CASES.iter().any(|case| case.0 == strategy.name);
        assert!(has || strategy.name == "full-pages", "{}", strategy.name);
    }
    assert_eq!(
        Strategy::all()
            .iter()
            .filter(|strategy| strategy.studied)
            .count(),
        12
    );
}

#[test]
fn what_is_too_small_is_said_to_be_wasted() {
    for (name, kept) in [
        ("legacy", 24),
        ("many", 24),
        ("fast-alloc", 2040),
        ("map-space", 80),
        ("tight", 16),
    ] {
        let (_memory, mut list) = list(name);
        assert_eq!(fill(list.as_mut(), &[kept, kept - 8]), [kept - 8], "{name}");
    }
}

#[test]
fn full_pages_keeps_the_last_entry_and_nothing_that_was_swept() {
    let (_memory, mut list) = list("full-pages");
    assert_eq!(fill(list.as_mut(), &[66_000]), [66_000]);
    let page = |number| Block {
        word: number * PAGE_WORDS,
        words: PAGE_WORDS,
    };
    assert_eq!(list.free(page(1), Freed::Page), None);
    assert_eq!(list.free(page(2), Freed::Page), Some(page(1)), "R1");
    assert_eq!(list.page_for(40), Some(2));
    assert_eq!(list.take(40, Runtime), Some(page(2)));
    assert_eq!(list.take(40, Runtime), None);
    let rest = Block {
        word: 2 * PAGE_WORDS + 100,
        words: 50,
    };
    assert_eq!(list.free(rest, Freed::Rest), None);
    assert_eq!(list.take(408, Runtime), None);
    assert_eq!(list.take(400, Runtime), Some(rest));
}

#[test]
fn pages_come_last_in_first_out_and_one_that_is_removed_is_gone() {
    let (_memory, mut list) = list("many");
    let at = |page: u32, words| Block {
        word: page * PAGE_WORDS + 8,
        words,
    };
    for page in [1, 2, 3] {
        assert_eq!(list.free(at(page, 6), Freed::Sweep), None);
    }
    // 3 was the last to become non-empty; taking its only block unlinks it.
    assert_eq!(list.take(48, Gc), Some(at(3, 6)));
    list.remove_page(2);
    assert_eq!(list.take(48, Gc), Some(at(1, 6)));
    assert_eq!(list.take(48, Gc), None);
}

#[test]
fn the_map_space_takes_from_the_fullest_page() {
    let (_memory, mut list) = list("map-space");
    for page in [1, 2, 3] {
        list.free(
            Block {
                word: page * PAGE_WORDS,
                words: 10,
            },
            Freed::Sweep,
        );
        list.free(
            Block {
                word: page * PAGE_WORDS + 20,
                words: 10,
            },
            Freed::Sweep,
        );
    }
    list.all_swept(&|page| [0, 500, 900, 100][page as usize]);
    let pages: Vec<u32> = (0..6)
        .filter_map(|_| list.take(80, Runtime))
        .map(|block| block.word / PAGE_WORDS)
        .collect();
    assert_eq!(pages, [2, 2, 1, 1, 3, 3]);
}

#[test]
fn a_page_for_a_request_is_the_worst_fit_of_legacy_and_the_best_of_many() {
    for (name, expected) in [
        ("legacy", 3),
        ("fast-alloc", 3),
        ("many", 2),
        ("many-fast", 2),
        ("more-1k", 2),
    ] {
        let (_memory, mut list) = list(name);
        for (page, bytes) in [(1, 2048), (2, 4096), (3, 66_000)] {
            list.free(
                Block {
                    word: page * PAGE_WORDS,
                    words: bytes / WORD,
                },
                Freed::Sweep,
            );
        }
        assert_eq!(
            list.page_for(2048),
            Some(expected),
            "{name}: a class above its own, or the largest"
        );
        assert_eq!(
            list.page_for(66_000),
            Some(3),
            "{name}: its own class as the last resort"
        );
    }
}

#[test]
fn the_tuned_strategy_changes_its_mind_at_collections_only() {
    let memory = Memory::reserve(8).expect("address space");
    let mut list = super::others::Tuned::new(&memory);
    list.add_page(1);
    let share = |percent: u32| PAGE_WORDS / 100 * percent;
    // Unused when the next collection begins, and what it does then: between 4 and 8 % it stays what it was.
    for (unused, careful) in [(7, false), (9, true), (5, true), (3, false), (7, false)] {
        list.free(
            Block {
                word: PAGE_WORDS,
                words: share(unused) + 10,
            },
            Freed::Sweep,
        );
        list.reset();
        assert_eq!(list.is_careful(), careful, "{unused} %");
    }
}

#[test]
fn ours_keeps_large_objects_apart() {
    for name in ["tight", "tight-paged"] {
        keeps_large_objects_apart(name);
    }
}

fn keeps_large_objects_apart(name: &str) {
    let (_memory, mut list) = list(name);
    let page = |number| Block {
        word: number * PAGE_WORDS,
        words: PAGE_WORDS,
    };
    list.free(page(1), Freed::Page);
    list.free(page(2), Freed::Page);
    assert_eq!(list.take(40, Gc), Some(page(2)), "small from now on");
    assert_eq!(list.take(5000, Gc), Some(page(1)), "large from now on");
    let hole = |page: u32, bytes: u32| Block {
        word: page * PAGE_WORDS + 64,
        words: bytes / WORD,
    };
    list.free(hole(2, 8192), Freed::Sweep);
    assert_eq!(list.take(5000, Gc), None, "T1: not in a small page");
    list.free(hole(1, 8192), Freed::Sweep);
    assert_eq!(list.page_for(5000), Some(1), "the next class upwards");
    list.free(
        Block {
            word: PAGE_WORDS + 4096,
            words: 100,
        },
        Freed::Sweep,
    );
    assert_eq!(list.take(5000, Gc), Some(hole(1, 8192)));
    let small = list.take(800, Gc).expect("too small for a large object");
    assert_eq!(small.word / PAGE_WORDS, 1);
    // Page 1 is given back, comes again, and is for all: what is freed of it is a small hole.
    list.free(hole(1, 8192), Freed::Sweep);
    list.remove_page(1);
    assert_eq!(list.take(5000, Gc), None, "its holes are gone with it");
    list.add_page(1);
    list.free(hole(1, 8192), Freed::Sweep);
    assert_eq!(list.take(5000, Gc), None, "it is not taken yet");
    assert_eq!(list.page_for(40), Some(1), "last in, first out");
}

#[test]
fn after_nothing_nothing_is_sure_nor_is_it_where_pages_decide() {
    for strategy in Strategy::all() {
        let (_memory, list) = list(strategy.name);
        assert_eq!(list.guaranteed(0), 0, "{}", strategy.name);
    }
    for bytes in [8, 80, 2048, 66_000] {
        let (_memory, list) = list("full-pages");
        assert_eq!(list.guaranteed(bytes), 0, "what is swept is waste");
    }
    let (_memory, list) = list("tight");
    assert_eq!((list.guaranteed(2040), list.guaranteed(2048)), (1792, 0));
}

#[test]
fn each_class_of_a_page_has_a_descriptor() {
    for (name, bytes) in [
        ("legacy", 6 * 56),
        ("many", 46 * 56),
        ("many-light", 46 * 4),
        ("tuned", 46 * 4),
        ("map-space", 56),
        // And a byte for the page's group.
        ("segregated", 6 * 46 * 4 + 1),
        ("tight-paged", 2 * 100 * 4 + 1),
        ("tight", 1),
        ("full-pages", 0),
    ] {
        let (_memory, list) = list(name);
        assert_eq!(list.table_bytes(), bytes, "{name}");
    }
}

#[test]
fn a_page_of_small_objects_is_one_after_a_collection_too() {
    let (_memory, mut list) = list("tight");
    let page = Block {
        word: PAGE_WORDS,
        words: PAGE_WORDS,
    };
    list.free(page, Freed::Page);
    assert_eq!(list.take(40, Gc), Some(page));
    list.reset();
    let hole = Block {
        word: PAGE_WORDS + 64,
        words: 8192 / WORD,
    };
    list.free(hole, Freed::Sweep);
    assert_eq!(list.take(5000, Gc), None, "N2: no hole for large ones");
    assert_eq!(list.take(40, Gc), Some(hole));
}
