//! What a purged page costs, by how many ranges go into one call.
//!
//! ```text
//!   cargo run --release -p skinflint-pages --example purge_cost
//!
//!   every second page of 16 MiB, touched ─► Batch, flushed at each N ranges ─► CPU ns a page
//! ```
//!
//! X1  Thread CPU time, median of rounds; the pages are touched before the clock starts, and the cost of touching them
//!     again stands beside it.
//!
//! Not here: which pages are worth it.

use skinflint_base::sys;
use skinflint_pages::PAGE;
use skinflint_pages::purge::Batch;

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

fn touch(start: *mut u8) {
    for page in (0..PAGES).step_by(2) {
        // SAFETY: within the mapping.
        unsafe { start.add(page * PAGE).write_volatile(1) };
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() {
    let start = sys::map_private(PAGES * PAGE);
    assert!(!start.is_null(), "the kernel refuses 16 MiB");
    // SAFETY: the mapping is ours; huge pages would be split at the first purge.
    unsafe { sys::advise(start, PAGES * PAGE, libc::MADV_NOHUGEPAGE) };
    touch(start);
    println!("ranges a call   ns a page   ns to touch it again");
    for ranges in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512] {
        let (mut purged, mut touched) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let (mut batch, mut added) = (Batch::new(), 0);
            let begin = thread_ns();
            for page in (0..PAGES).step_by(2) {
                batch.add(start as usize + page * PAGE, PAGE);
                added += 1;
                if added % ranges == 0 {
                    batch.flush();
                }
            }
            batch.flush();
            let middle = thread_ns();
            touch(start);
            purged.push((middle - begin) * 2.0 / PAGES as f64);
            touched.push((thread_ns() - middle) * 2.0 / PAGES as f64);
        }
        println!(
            "{ranges:13} {:11.0} {:22.0}",
            median(purged),
            median(touched)
        );
    }
}
