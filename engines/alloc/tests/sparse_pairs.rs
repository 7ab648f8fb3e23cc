//! A long buffer of which a program touches little, taken and freed again and again: its pages stay (`services::sparse`).
//!
//! One test: the count of page faults is the thread's, and the peak the process's.

use skinflint_alloc::{allow_purger, free, malloc};

/// Page faults of this thread so far.
fn faults() -> i64 {
    // SAFETY: all zero is a value of it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is ours.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    assert_eq!(result, 0);
    usage.ru_minflt
}

#[test]
fn a_buffer_of_which_little_is_touched_costs_no_fault_each_time() {
    const PAIRS: i64 = 5_000;
    allow_purger(true);
    for bytes in [300 << 10, 400 << 10, 2 << 20, 5 << 20, 40 << 20] {
        let before = faults();
        for _ in 0..PAIRS {
            // SAFETY: written within its size, freed once.
            unsafe {
                let block = malloc(bytes);
                assert!(!block.is_null());
                block.write(1);
                free(block);
            }
        }
        // The looks that the credit pays for, and what the purger gives back meanwhile.
        let more = faults() - before;
        assert!(more < PAIRS / 10, "{bytes}: {more} faults in {PAIRS} pairs");
    }
}
