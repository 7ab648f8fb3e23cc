//! The pool against a plain model, with contents; refusals of the kernel at each point.
//!
//! ```text
//!   seed ─► take, give, extend, claim, purge … ─┬─► the pool, its pages written and read back
//!                                               └─► one state for each page, in a Vec
//! ```
//!
//! T1  Every page in use holds the number of its run and its own; a page reported as clean is read as zero before it is
//!     written to; after each few acts the pool is checked by brute force.
//! T2  The seed is in the message of each assertion.
//!
//! Not here: buckets and purges by themselves (beside their code).

use std::collections::BTreeMap;

use crate::{Options, PAGE, Pool, Run};
use skinflint_base::random::Random;

mod layout;
mod model;
#[cfg(not(feature = "bench-trees"))]
mod nodes;
mod refusals;
mod units;

/// The pool of a test, which releases its memory when it is dropped.
struct Fresh(Pool);

impl Drop for Fresh {
    fn drop(&mut self) {
        // SAFETY: the test has no references left.
        unsafe { self.0.region.release() };
    }
}

impl std::ops::Deref for Fresh {
    type Target = Pool;
    fn deref(&self) -> &Pool {
        &self.0
    }
}

impl std::ops::DerefMut for Fresh {
    fn deref_mut(&mut self) -> &mut Pool {
        &mut self.0
    }
}

/// Creates a pool whose address differs between tests that run at the same time.
fn fresh(seed: u64) -> Fresh {
    let mut pool = Pool::new();
    let process = u64::from(std::process::id()) << 32;
    let placed = pool.region.place(&Options {
        huge_pages: false,
        seed: seed ^ process,
        first_heap_bytes: 1 << 20,
    });
    assert!(placed, "no place for a region");
    Fresh(pool)
}

fn word(pool: &Pool, page: u32) -> *mut u64 {
    // The middle of a page: neither end is touched by chance.
    (pool.region.page_addr(page) + PAGE / 2) as *mut u64
}

fn read(pool: &Pool, page: u32) -> u64 {
    // SAFETY: pages of HEAP are mapped.
    unsafe { word(pool, page).read_volatile() }
}

fn write(pool: &Pool, page: u32, value: u64) {
    // SAFETY: the test has taken the page.
    unsafe { word(pool, page).write_volatile(value) }
}

/// Takes a run with no alignment.
fn take(pool: &mut Pool, pages: u32) -> u32 {
    pool.take(pages, 1).expect("memory").page
}

/// Returns the free run that covers a page: first page, pages, state. Searches in both directions.
fn free_around(pool: &Pool, page: u32) -> Option<(u32, u32, u8)> {
    let first = (0..=page).rev().find_map(|at| pool.free_tag(at))?;
    let run = pool.at(first);
    (run.end() > page).then(|| (run.page.get(), run.pages.get(), run.state.get()))
}
