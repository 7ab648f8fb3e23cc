//! Figures of the whole process, in a process that does nothing else meanwhile.
//!
//! ```text
//!   10 MiB more ─► heap-allocated grows by 10 to 11 MiB        50 MiB touched ─► resident is what smaps says
//! ```
//!
//! W1  There is one test in this file: a second one would run beside it, and its blocks come and go in these figures.
//!
//! Not here: what a measurement itself allocates (`reporters`).

use std::time::Duration;

use skinflint_reporters::{Registry, heap};

/// Creates a registry that gives up no reporter, however slow the machine.
fn patient() -> Registry {
    Registry::with_deadline(Duration::from_secs(600))
}

fn glibc_says_what_a_block_takes() {
    assert_eq!(heap::name(), "glibc", "the tests run on glibc");
    let registry = patient();
    // The first measurement looks up the allocator, and its threads fill the thread caches.
    (0..10).for_each(|_| drop(registry.measure()));
    let before = registry.measure().sum("heap-allocated");
    let block = std::hint::black_box(vec![1u8; 10 << 20]);
    let grown = registry.measure().sum("heap-allocated") - before;
    drop(block);
    assert!((10 << 20..11 << 20).contains(&grown), "{grown}");
}

fn the_tree_of_resident_memory_is_that_of_smaps() {
    let registry = patient();
    let touched = std::hint::black_box(vec![1u8; 50 << 20]);
    let measured = registry.measure();
    assert_eq!(measured.sum("resident-by-kind"), measured.sum("resident"));
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").expect("smaps_rollup");
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let rss = kib.and_then(|kib| kib.parse::<i64>().ok()).expect("Rss") * 1024;
    let resident = measured.sum("resident");
    assert!(
        (resident - rss).abs() * 100 < rss * 2,
        "{resident} and {rss}"
    );
    assert!(measured.sum("resident-by-kind/anonymous") > 50 << 20);
    assert!(measured.sum("resident-by-kind/files") > 1 << 20);
    assert!(measured.sum("resident-by-kind/stacks") > 8 << 10);
    assert!(measured.sum("vsize") > resident);
    assert!(measured.sum("page-faults-soft") > 50 << 8);
    drop(touched);
}

#[test]
fn the_process_alone() {
    glibc_says_what_a_block_takes();
    the_tree_of_resident_memory_is_that_of_smaps();
}
