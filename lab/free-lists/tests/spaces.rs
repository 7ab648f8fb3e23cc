//! Spaces of policies as their clients see them: kernel pages that are counted, and times that are parts of a whole.
//!
//! ```text
//!   objects of whole kernel pages ─► begin, mark, end ─► figures: resident, purged
//! ```
//!
//! P1  A page of a space is 64 pages of the kernel; a list writes to the first word of each block.
//!
//! Not here: which block is taken (the unit tests).
#![cfg(not(miri))]

use std::time::Duration;

use skinflint_base::sys::thread_cpu_ns;
use skinflint_free_lists::replay::{Plan, Script, Step, run};
use skinflint_free_lists::{Origin, Settings, Strategy, VarSpace};

const OS_PAGE: usize = 4096;

fn many() -> Strategy {
    Strategy::by_name("many").expect("a strategy")
}

fn space(purge: bool) -> VarSpace {
    let settings = Settings {
        purge,
        ..Settings::default()
    };
    VarSpace::new(many(), settings).expect("address space")
}

/// So many objects, by their words.
fn objects(space: &mut VarSpace, count: usize, bytes: u32) -> Vec<u32> {
    let mut object = || {
        let object = space.alloc(bytes, Origin::Runtime).expect("room");
        space.word_of(object)
    };
    (0..count).map(|_| object()).collect()
}

#[test]
fn what_an_open_area_has_given_out_is_resident_and_its_rest_is_not() {
    let mut space = space(false);
    assert_eq!(space.figures().resident_bytes, 0);
    for pages in 1..=5 {
        objects(&mut space, 1, OS_PAGE as u32);
        let figures = space.figures();
        assert_eq!(figures.resident_bytes, pages * OS_PAGE);
        assert_eq!(figures.committed_bytes, 64 * OS_PAGE);
    }
}

/// Keeps the first two and the last of eight objects that fill a page, and lets the 40 kernel pages between them go.
fn collect(space: &mut VarSpace, all: &[u32], wanted_bytes: usize) {
    space.begin();
    for word in [all[0], all[1], all[7]] {
        assert!(space.mark(word));
    }
    let live = space.end(wanted_bytes, &mut |_, _| unreachable!("nothing moves"));
    assert_eq!(live, 3 * 8 * OS_PAGE);
    space.check();
}

#[test]
fn kernel_pages_within_a_hole_go_back_once_as_far_as_they_are_not_wanted() {
    let mut space = space(true);
    let all = objects(&mut space, 8, 8 * OS_PAGE as u32);
    let counted = |space: &VarSpace| {
        let figures = space.figures();
        (
            figures.resident_bytes / OS_PAGE,
            figures.purged_bytes_total as usize / OS_PAGE,
        )
    };
    assert_eq!(counted(&space), (64, 0));
    collect(&mut space, &all, 40 * OS_PAGE);
    assert_eq!(counted(&space), (64, 0), "all of it is wanted");
    collect(&mut space, &all, 40 * OS_PAGE - 1);
    // The hole's first page has the list's words.
    assert_eq!(counted(&space), (64 - 39, 39));
    collect(&mut space, &all, 0);
    assert_eq!(counted(&space), (64 - 39, 39), "they are gone already");
}

#[test]
#[should_panic(expected = "F1: a marked object at")]
fn a_marked_object_in_a_free_block_is_found() {
    let mut space = space(false);
    let all = objects(&mut space, 8, 8 * OS_PAGE as u32);
    collect(&mut space, &all, 0);
    space.finish_sweep();
    space.check_marked();
    // It is gone: a word in the middle of a block.
    space.mark(all[3]);
    space.check_marked();
}

#[test]
fn memory_is_sampled_at_each_quarter_of_a_mebibyte_and_around_collections() {
    const PAGE: f64 = 64.0 * OS_PAGE as f64;
    // Two are a page, and a sample is due.
    let steps = (0..4).map(|id| Step::Alloc {
        id,
        bytes: 32 * OS_PAGE as u64,
        origin: Origin::Runtime,
    });
    let script = Script::new(steps, u64::MAX);
    let ran = run(&script, many(), Plan::default()).expect("it fits");
    // After two, after four, before and after the last collection.
    assert_eq!(ran.collections, 1);
    for size in [ran.committed, ran.resident, ran.needed] {
        assert_eq!(size.mean, (1.0 + 2.0 + 2.0 + 2.0) / 4.0 * PAGE);
        assert_eq!((size.peak as f64, size.after), (2.0 * PAGE, 2.0 * PAGE));
    }
}

#[test]
fn the_times_of_a_run_are_parts_of_the_time_that_it_takes() {
    let steps = (0..2000).map(|id| Step::Alloc {
        id,
        bytes: 4096,
        origin: Origin::ALL[id as usize % 3],
    });
    let script = Script::new(steps, u64::MAX);
    let before = thread_cpu_ns();
    let ran = run(&script, many(), Plan::default()).expect("it fits");
    let whole = Duration::from_nanos(thread_cpu_ns() - before);
    assert!(ran.collections > 1);
    // CLOCK: the parts are differences of the same clock between these two looks, and apart from each other: no machine
    // is so busy that they are more than the whole.
    assert!(ran.total() <= whole, "{ran:?} in {whole:?}");
}
