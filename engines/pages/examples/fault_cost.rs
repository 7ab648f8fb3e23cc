//! What a new page costs, by how many are made resident in one call.
//!
//! ```text
//!   cargo run --release -p skinflint-pages --example fault_cost
//!
//!   new pages ─► MADV_POPULATE_WRITE for each N (1: none, a fault each) ─► first write ─► CPU ns a page
//! ```
//!
//! X1  Thread CPU time, median of rounds, each on a mapping of its own; huge pages are off.
//!
//! Not here: which pages are worth it (`alloc`, fresh.rs).

use skinflint_base::sys;
use skinflint_pages::PAGE;

const PAGES: usize = 4_096;
const ROUNDS: usize = 15;

fn thread_ns() -> f64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// Returns the CPU nanoseconds a page, and whether the kernel knew the call.
fn round(at_once: usize) -> (f64, bool) {
    let start = sys::map_private(PAGES * PAGE);
    assert!(!start.is_null(), "no memory");
    let mut known = true;
    // SAFETY: within the mapping, which is ours.
    unsafe {
        sys::advise(start, PAGES * PAGE, libc::MADV_NOHUGEPAGE);
        let before = thread_ns();
        for page in 0..PAGES {
            let at = start.add(page * PAGE);
            if at_once > 1 && page % at_once == 0 {
                known &= sys::advise(at, at_once * PAGE, libc::MADV_POPULATE_WRITE);
            }
            at.write_volatile(1);
        }
        let spent = thread_ns() - before;
        sys::unmap(start, PAGES * PAGE);
        (spent / PAGES as f64, known)
    }
}

fn main() {
    println!("new pages of 4 KiB, median of {ROUNDS} rounds of {PAGES} pages");
    for at_once in [1, 2, 4, 8, 16, 64] {
        let mut rounds: Vec<(f64, bool)> = (0..ROUNDS).map(|_| round(at_once)).collect();
        rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
        let unknown = if rounds.iter().all(|round| round.1) {
            ""
        } else {
            "  (the kernel refused: these are faults)"
        };
        println!(
            "{at_once:>4} at once {:>7.0} ns a page{unknown}",
            rounds[ROUNDS / 2].0
        );
    }
}
