//! Caches, buffers and arenas beside the usual crates; one line of JSON for each figure.
//!
//! ```text
//!   hits | buffers | arenas ─► {"what": …, "who": …, …}        all blocks counted by a global allocator of our own
//! ```
//!
//! B1  Traces, sizes and contents come from one seed and are the same for all.
//! B2  Bytes are counted beneath all alike: requested, and usable by `malloc_usable_size`, at each call.
//! B3  What was put in is looked at: a cache that gave back another value ends the program.
//!
//! Not here: judging (`run.py`).

mod arenas;
mod buffers;
mod counting;
mod hits;

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;

/// The seed of everything.
pub const SEED: u64 = 20_080_617;

/// The next number of a generator.
pub fn next(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Processor time of this thread, in ns.
pub fn cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a place of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("hits") => hits::run(),
        Some("buffers") => buffers::run(),
        Some("arenas") => arenas::run(),
        _ => {
            eprintln!("usage: skinflint-bench-cache hits | buffers | arenas");
            std::process::exit(2);
        }
    }
}
