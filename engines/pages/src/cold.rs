//! Telling the kernel that pages in use are not needed soon.
//!
//! ```text
//!   ranges ──► process_madvise(self, up to 512 ranges, COLD │ PAGEOUT)
//!                   └── stopped at a range, or not known here ──► madvise for that range ──► refused: not counted
//! ```
//!
//! D1  Contents never change, whoever uses the pages meanwhile: no lock is needed.
//! D2  As for purges, one range goes to a call where a filter may punish other calls (`purge::one_by_one`).
//!
//! Not here: which pages are cold (`alloc`), pages that are not in use (`purge`).

use skinflint_base::sys;

use crate::PAGE;
use crate::purge::{advise_many, range_of, skip};

/// What the kernel is to do with cold pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Take them first when memory is short.
    Cold,
    /// Write them to swap now.
    PageOut,
}

impl Advice {
    fn number(self) -> i32 {
        match self {
            Advice::Cold => libc::MADV_COLD,
            Advice::PageOut => libc::MADV_PAGEOUT,
        }
    }

    /// Reports whether the kernel knows it (Linux 5.4). `addr`: any page of ours.
    pub fn is_known(self, addr: usize) -> bool {
        // SAFETY: no page is named.
        unsafe { sys::advise(addr as *mut u8, 0, self.number()) }
    }
}

/// The most ranges of one call, which lie on the caller's stack: 1 KiB.
const RANGES: usize = 64;

/// Ranges of pages to tell of, at most 64.
pub struct Told {
    ranges: [libc::iovec; RANGES],
    used: usize,
}

impl Told {
    /// Creates one without ranges.
    pub fn new() -> Told {
        Told {
            ranges: [range_of(0, 0); RANGES],
            used: 0,
        }
    }

    /// Reports whether so many further ranges might not fit.
    pub fn is_full(&self, more: usize) -> bool {
        self.used + more > RANGES
    }

    /// Adds whole pages of HEAP, joined to the last range if they follow it. There is room.
    pub fn add(&mut self, addr: usize, bytes: usize) {
        let before = self.used.checked_sub(1);
        if let Some(last) = before.and_then(|last| self.ranges.get_mut(last))
            && last.iov_base as usize + last.iov_len == addr
        {
            last.iov_len += bytes;
        } else if let Some(range) = self.ranges.get_mut(self.used) {
            *range = range_of(addr, bytes);
            self.used += 1;
        }
    }

    /// Tells the kernel of all ranges, and forgets them. Returns the bytes that it took the advice for: not those that the
    /// program has locked.
    pub fn flush(&mut self, advice: Advice) -> usize {
        let used = core::mem::take(&mut self.used);
        let ranges = self.ranges.get_mut(..used).unwrap_or(&mut []);
        let (mut first, mut taken) = (0, 0);
        while let Some(rest) = ranges.get_mut(first..).filter(|rest| !rest.is_empty()) {
            let done = advise_many(rest, advice.number());
            taken += done;
            let whole = skip(rest, done);
            if let Some(stopped) = rest.get(whole) {
                // SAFETY: D1.
                let told = unsafe {
                    sys::advise(stopped.iov_base.cast(), stopped.iov_len, advice.number())
                };
                taken += if told { stopped.iov_len } else { 0 };
            }
            first += whole + 1;
        }
        taken
    }
}

impl Default for Told {
    fn default() -> Told {
        Told::new()
    }
}

const _: () = assert!(RANGES * size_of::<libc::iovec>() < PAGE);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_stay_and_locked_pages_are_not_counted() {
        let start = sys::map_private(64 * PAGE);
        // SAFETY: just mapped; locks on the test's own pages.
        unsafe {
            start.write_bytes(7, 64 * PAGE);
            assert_eq!(libc::mlock(start.add(20 * PAGE).cast(), 4 * PAGE), 0);
        }
        for advice in [Advice::Cold, Advice::PageOut] {
            if !advice.is_known(start as usize) {
                println!("not checked: the kernel does not know {advice:?}");
                continue;
            }
            let mut told = Told::new();
            for (first, pages) in [(0, 4), (4, 4), (10, 1), (18, 8), (40, 20)] {
                told.add(start as usize + first * PAGE, pages * PAGE);
            }
            assert_eq!(told.used, 4, "the first two are one");
            let taken = told.flush(advice) / PAGE;
            // Before the locked ones the kernel may take two.
            assert!((29..=31).contains(&taken), "{taken}");
            assert_eq!(told.flush(advice), 0);
            // SAFETY: within the mapping.
            assert!((0..64 * PAGE).all(|at| unsafe { start.add(at).read() } == 7));
        }
        // SAFETY: the test is done with it.
        unsafe { sys::unmap(start, 64 * PAGE) };
    }
}
