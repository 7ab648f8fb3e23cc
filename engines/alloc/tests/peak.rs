//! Many threads that each hold free blocks of many sizes, one after another: what the first ones hold goes back before the later ones
//! raise the peak (`services::peak`), and pages of a span that were never touched are no peak (`heaps::clean`).
//!
//! ```text
//!   thread 1   32 sizes, 16 KiB of each ─► freed ─► waits      thread 2   the same ─► waits      … thread 48
//! ```
//!
//! One test: the peak is the process's.

use std::sync::mpsc::channel;

use skinflint_alloc::check::check_invariants;
use skinflint_alloc::{free, malloc};

const THREADS: usize = 48;
/// Bytes of each size that a thread has at a time, and its sizes.
const EACH: usize = 16 << 10;
const SIZES: std::ops::RangeInclusive<usize> = 1..=32;
/// A thread's stack, its heap's own data, and what it may keep: 223 KiB; without the sweeps 298.
const EACH_KB: usize = 260;

fn peak_kb() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").expect("this process");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let words = line.and_then(|line| line.split_whitespace().next());
    words.and_then(|word| word.parse().ok()).expect("a number")
}

/// Allocates and writes blocks of one size, and frees them.
fn use_size(size: usize) {
    let blocks: Vec<*mut u8> = (0..EACH.div_ceil(size))
        .map(|_| {
            // SAFETY: any size may be asked for.
            let block = unsafe { malloc(size) };
            assert!(!block.is_null());
            // SAFETY: a live block of this size.
            unsafe { block.write_bytes(1, size) };
            block
        })
        .collect();
    for block in blocks {
        // SAFETY: its own block, freed once.
        unsafe { free(block) };
    }
}

#[test]
fn what_threads_hold_free_goes_before_others_raise_the_peak() {
    let before_kb = peak_kb();
    std::thread::scope(|scope| {
        // Dropped with this closure, also if it panics: then the threads end.
        let mut ends = Vec::new();
        for _ in 0..THREADS {
            let (done, wait) = channel();
            let (end, ended) = channel::<()>();
            let run = move || {
                SIZES.for_each(|step| use_size(step * 192));
                done.send(()).expect("the test waits");
                let _ = ended.recv();
            };
            let thread = std::thread::Builder::new().stack_size(64 << 10);
            thread.spawn_scoped(scope, run).expect("a thread");
            ends.push(end);
            wait.recv().expect("a thread that has freed");
        }
    });
    check_invariants(3).expect("at the end");
    let each_kb = (peak_kb() - before_kb) / THREADS;
    assert!(each_kb < EACH_KB, "{each_kb} KiB a thread");
}
