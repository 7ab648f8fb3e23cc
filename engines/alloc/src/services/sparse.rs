//! Large blocks of which the program touched a part only: what they did not hold is no peak.
//!
//! ```text
//!   a large block that raised the peak of the pages in use ─► free ─► settle: how much is resident? (mincore)
//!       three quarters or more ─► kept, or to the pool, as any other
//!       less ─► given back to the system at once; the peak falls by what was never touched
//! ```
//!
//! Q1  The pool counts every page that it hands out as touched, and gives free pages back to the system before that count
//!     passes its highest. A table of 20 MiB of which a program writes 2 would leave it 18 MiB of room for
//!     free pages that lie resident: more than the program ever held. clustalo's peak was 1.6 of glibc's so.
//! Q2  Only a block that raised the highest count is looked at, and once: a program at its peak pays nothing for it.
//! Q3  The system calls are those of the caller's thread, while it holds no lock; the block is its own (large.L1). Where
//!     there is no purger (`SKINFLINT_PURGE=off`, a filter of system calls) nothing is asked.
//! Q4  A look and the pages that come anew after it cost some microseconds, and a program that takes a long buffer, writes
//!     little to it and frees it would pay that each time: the count falls with each free, so each malloc raises it. So
//!     some slack is left (a 64th of the peak), and looks beyond it are paid from a credit, by the length of the block. What
//!     the program touches of such blocks earns the next looks, and each round of the purger earns some. A pair of 400 KiB with
//!     one page written took 25 µs, and takes 0.02 (`pattern pair400k`, 2026-11-26).
//!
//! Not here: which blocks raised it (`heaps::large`), the count (`pages::claim`), the credit (`credit`).

use skinflint_base::sys;
use skinflint_pages::PAGE;

use super::{credit, purger};

/// Pages asked about in one call, and the most calls for a block: of a longer one they are spread over it.
const ASKED: usize = 1_024;
const CALLS: usize = credit::ASKED_MOST as usize / ASKED;

/// Gives the pages of a block back to the system if a quarter of them, or more, was never touched. Returns how many were
/// not; 0: the block is as it was.
///
/// # Safety
/// The pages are a block of the caller's, which nothing uses any more.
pub unsafe fn settle(start: usize, pages: u32) -> u32 {
    if !purger::may_be() || !credit::pay(pages) {
        return 0;
    }
    // SAFETY: as the caller promises.
    unsafe { settle_now(start, pages) }
}

/// Does what [`settle`] does, whether or not there is a purger.
unsafe fn settle_now(start: usize, pages: u32) -> u32 {
    let untouched = untouched(start, pages as usize);
    credit::touched(pages.saturating_sub(untouched as u32));
    if untouched * 4 < u64::from(pages) {
        return 0;
    }
    let block = core::ptr::with_exposed_provenance_mut(start);
    // SAFETY: as the caller promises: private memory of ours, whose contents nothing reads any more.
    if !unsafe { sys::advise(block, pages as usize * PAGE, libc::MADV_DONTNEED) } {
        return 0;
    }
    untouched as u32
}

/// Returns how many of these pages are not resident, of a long block by a sample.
fn untouched(start: usize, pages: usize) -> u64 {
    let mut seen = [0u8; ASKED];
    let (mut asked, mut absent) = (0u64, 0u64);
    let step = pages.div_ceil(CALLS).max(ASKED);
    for first in (0..pages).step_by(step) {
        let count = ASKED.min(pages - first);
        if !sys::resident(start + first * PAGE, &mut seen[..count]) {
            return 0;
        }
        asked += count as u64;
        absent += seen[..count].iter().filter(|&&page| page & 1 == 0).count() as u64;
    }
    absent * pages as u64 / asked.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_was_written_to_stays_and_one_that_was_hardly_goes() {
        for (pages, written, left) in [
            (512, 512, true),
            (512, 400, true),
            (512, 100, false),
            (40_000, 100, false),
        ] {
            let start = sys::map_private(pages * PAGE) as usize;
            assert_ne!(start, 0);
            for page in 0..written {
                let at = core::ptr::with_exposed_provenance_mut::<u8>(start + page * PAGE);
                // SAFETY: mapped above.
                unsafe { at.write(1) };
            }
            // SAFETY: the test's own.
            let absent = unsafe { settle_now(start, pages as u32) };
            let first = core::ptr::with_exposed_provenance_mut::<u8>(start);
            // SAFETY: mapped above.
            assert_eq!(unsafe { first.read() } == 1, left, "{pages} {written}");
            let exact = (pages - written) as u32;
            // Of a long block only a sample is asked about.
            let near = absent.abs_diff(exact) <= pages as u32 / 16;
            assert!(
                if left { absent == 0 } else { near },
                "{pages} {written}: {absent}"
            );
            // SAFETY: mapped above, used no more.
            unsafe { libc::munmap(first.cast(), pages * PAGE) };
        }
    }
}
