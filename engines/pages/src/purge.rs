//! Giving pages back to the kernel, many ranges to a call.
//!
//! ```text
//!   add, add, add …  ──►  process_madvise(self, up to 512 ranges, DONTNEED)
//!                              │ stopped at a range, or not known here
//!                              └──► madvise for that range ──► refused: zeroed by hand
//! ```
//!
//! G1  After a flush every range reads as zero, given back or not: a range that the kernel will not take (a program
//!     that has locked its memory) is zeroed with stores, so "clean" is always true.
//! G2  No lock is needed and none is taken. The caller alone uses the ranges meanwhile.
//! G4  Where huge pages are allowed, a range that is a part of one has it split first: otherwise the kernel would take
//!     the range out of the address space, but keep the memory until all of the huge page is gone or memory is short.
//! G3  No descriptor is opened: a program may count on the numbers it will get.
//!
//! Not here: which pages are given back, and when (`claim`, and the caller).

use core::sync::atomic::{AtomicBool, Ordering};

use skinflint_base::{page, sys};

use crate::{HUGE, PAGE, populate};

/// The number of `process_madvise`, and the name by which a process means itself there (Linux 6.14).
const SYS_PROCESS_MADVISE: i64 = 440;
const PIDFD_SELF: i64 = -10_000;

/// The most ranges of one flush: 8 KiB, half of what the kernel takes. From 32 ranges a call on, a page costs a third
/// of what it costs by itself, and hardly less with more (`--example purge_cost`).
const RANGES: usize = 512;

/// Set when the kernel has once answered that it does not know the call, or does not allow it.
static ONE_BY_ONE: AtomicBool = AtomicBool::new(false);

/// Has one range given back to a call, or many; returns what held before. One: where a filter of system calls may end the
/// process at a call that no C library makes.
pub fn one_by_one(is: bool) -> bool {
    ONE_BY_ONE.swap(is, Ordering::Relaxed) // ORDER: a hint
}

/// Set once the process may not call the kernel for this.
static KEEP_ALL: AtomicBool = AtomicBool::new(false);

/// Has nothing given back from now on, only zeroed (G1), and nothing made present ahead: a thread of the process ends at
/// any such call.
pub fn keep_all() {
    populate::forgo();
    KEEP_ALL.store(true, Ordering::Relaxed); // ORDER: the thread that may not call sets it
}

/// Set when the program's heap may lie in huge pages (G4).
static SPLIT: AtomicBool = AtomicBool::new(false);

/// Makes later flushes split huge pages before a part of them is given back (G4).
pub(crate) fn split_huge_pages() {
    // ORDER: set at start; a flush that misses it gives back later what it could have now.
    SPLIT.store(true, Ordering::Relaxed);
}

const EMPTY: libc::iovec = libc::iovec {
    iov_base: core::ptr::null_mut(),
    iov_len: 0,
};

/// Ranges to give back, at most 512.
pub struct Batch {
    ranges: [libc::iovec; RANGES],
    used: usize,
}

// SAFETY: the pointers are addresses for the kernel, and nothing is read through them; a batch may
// be handed to another thread as any list of numbers may.
unsafe impl Send for Batch {}

impl Batch {
    /// Creates a batch with no ranges.
    pub const fn new() -> Batch {
        Batch {
            ranges: [EMPTY; RANGES],
            used: 0,
        }
    }

    /// Reports whether it must be flushed before another range fits.
    pub fn is_full(&self) -> bool {
        self.used == RANGES
    }

    /// Reports whether there is nothing to flush.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Adds a range of whole pages that the caller alone uses until the flush. A range that follows the last one is
    /// joined to it. A full batch is flushed first.
    pub fn add(&mut self, addr: usize, bytes: usize) {
        if let Some(last) = self
            .used
            .checked_sub(1)
            .and_then(|i| self.ranges.get_mut(i))
            && last.iov_base as usize + last.iov_len == addr
        {
            last.iov_len += bytes;
            return;
        }
        if self.is_full() {
            self.flush();
        }
        if let Some(range) = self.ranges.get_mut(self.used) {
            *range = range_of(addr, bytes);
            self.used += 1;
        }
    }

    /// Gives all ranges back; afterwards they read as zero (G1). Returns the number of pages that the kernel really
    /// took.
    pub fn flush(&mut self) -> usize {
        let used = core::mem::take(&mut self.used);
        give_back(self.ranges.get_mut(..used).unwrap_or(&mut []))
    }
}

impl Default for Batch {
    fn default() -> Batch {
        Batch::new()
    }
}

/// Returns a range in the kernel's form.
pub(crate) fn range_of(addr: usize, bytes: usize) -> libc::iovec {
    libc::iovec {
        iov_base: core::ptr::with_exposed_provenance_mut(addr),
        iov_len: bytes,
    }
}

/// Gives ranges of whole pages back. Returns the number of pages that the kernel really took; the others are zeroed
/// (G1).
pub(crate) fn give_back(ranges: &mut [libc::iovec]) -> usize {
    // ORDER: as in `keep_all`.
    if KEEP_ALL.load(Ordering::Relaxed) {
        ranges.iter().for_each(zero);
        return 0;
    }
    // ORDER: as in `split_huge_pages`.
    if SPLIT.load(Ordering::Relaxed) {
        split(ranges);
    }
    if page::is_larger() {
        return give_back_inside(ranges);
    }
    let (mut first, mut taken) = (0, 0);
    while let Some(rest) = ranges.get_mut(first..).filter(|rest| !rest.is_empty()) {
        let done = advise_many(rest, libc::MADV_DONTNEED);
        taken += done;
        let whole = skip(rest, done);
        // The range that stopped the kernel is at the head of what remains.
        if let Some(stopped) = rest.get(whole) {
            taken += advise_one(stopped);
        }
        first += whole + 1;
    }
    taken / PAGE
}

/// Does what [`give_back`] does where a page of the kernel's is several of ours: it gets the whole pages that are in a range,
/// and the edges are zeroed (G1).
#[cold]
fn give_back_inside(ranges: &[libc::iovec]) -> usize {
    let mut taken = 0;
    for range in ranges {
        let (start, bytes) = (range.iov_base as usize, range.iov_len);
        let (first, whole) = page::inside(start, bytes);
        if whole == 0 {
            taken += advise_one(range);
            continue;
        }
        taken += advise_one(&range_of(first, whole));
        for (from, to) in [(start, first), (first + whole, start + bytes)] {
            // SAFETY: the range is the caller's, mapped and writable.
            unsafe {
                range_of(from, 0)
                    .iov_base
                    .cast::<u8>()
                    .write_bytes(0, to - from)
            };
        }
    }
    taken / PAGE
}

/// Splits the huge pages that contain the ranges: the kernel does so for pages that a program calls cold. A
/// refusal does no harm: then the kernel splits them when it needs the memory.
fn split(ranges: &[libc::iovec]) {
    for range in ranges {
        let (start, end) = (
            range.iov_base as usize,
            range.iov_base as usize + range.iov_len,
        );
        for edge in [start, end] {
            let page = if edge == start { start } else { end - PAGE };
            if edge % HUGE != 0 {
                // SAFETY: G2: no other code uses the range; the advice changes no content.
                unsafe { sys::advise(page as *mut u8, PAGE, libc::MADV_COLD) };
            }
        }
    }
}

/// Returns how many ranges the first `done` bytes cover; the range after them loses the part that is done.
pub(crate) fn skip(ranges: &mut [libc::iovec], done: usize) -> usize {
    let (mut done, mut whole) = (done, 0);
    for range in ranges.iter_mut() {
        if done < range.iov_len {
            *range = range_of(range.iov_base as usize + done, range.iov_len - done);
            break;
        }
        done -= range.iov_len;
        whole += 1;
    }
    whole
}

/// Advises about as many ranges as the kernel takes in one call; returns their bytes.
pub(crate) fn advise_many(ranges: &[libc::iovec], advice: i32) -> usize {
    // ORDER: a hint that any thread may learn late; it has no partner.
    if ranges.len() < 2 || ONE_BY_ONE.load(Ordering::Relaxed) {
        return 0;
    }
    // SAFETY: G2: no other code uses the ranges if the advice makes them zero; else their contents stay (cold.D1).
    let result = unsafe {
        sys::syscall(
            SYS_PROCESS_MADVISE,
            [
                PIDFD_SELF as u64,
                ranges.as_ptr() as u64,
                ranges.len() as u64,
                advice as u64,
                0,
                0,
            ],
        )
    };
    if !sys::is_error(result) {
        return result as usize;
    }
    let unknown = [libc::ENOSYS, libc::EBADF, libc::EPERM, libc::EACCES];
    if unknown.iter().any(|&error| result == -i64::from(error)) {
        // ORDER: as above.
        ONE_BY_ONE.store(true, Ordering::Relaxed);
    }
    0
}

/// Gives one range back, by `madvise` or else by zeroing it; returns the bytes that the kernel took.
fn advise_one(range: &libc::iovec) -> usize {
    // SAFETY: G2: no other code uses the range.
    if unsafe { sys::advise(range.iov_base.cast(), range.iov_len, libc::MADV_DONTNEED) } {
        return range.iov_len;
    }
    zero(range);
    0
}

/// Zeroes a range by stores (G1).
fn zero(range: &libc::iovec) {
    // SAFETY: the range is the caller's, mapped and writable.
    unsafe { range.iov_base.cast::<u8>().write_bytes(0, range.iov_len) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(pages: usize) -> *mut u8 {
        let start = sys::map_private(pages * PAGE);
        // SAFETY: just mapped.
        unsafe { start.write_bytes(7, pages * PAGE) };
        start
    }

    fn byte(start: *mut u8, page: usize) -> u8 {
        // SAFETY: within the mapping of the test.
        unsafe { start.add(page * PAGE + 100).read() }
    }

    #[test]
    fn what_is_added_reads_as_zero_and_nothing_else_does() {
        let start = memory(2_000);
        let mut batch = Batch::new();
        let mut given = 0;
        for page in (0..2_000).step_by(3) {
            if batch.is_full() {
                given += batch.flush();
            }
            batch.add(start as usize + page * PAGE, PAGE);
        }
        given += batch.flush();
        assert_eq!(given, 667);
        assert!((0..2_000).all(|page| (byte(start, page) == 0) == (page % 3 == 0)));
        // SAFETY: the test is done with it.
        unsafe { sys::unmap(start, 2_000 * PAGE) };
    }

    #[test]
    fn neighbours_are_joined_and_a_full_batch_empties_itself() {
        let start = memory(1_200);
        let mut batch = Batch::new();
        for page in 0..600 {
            batch.add(start as usize + page * PAGE, PAGE);
        }
        assert_eq!(batch.used, 1);
        for page in (601..1_200).step_by(1).filter(|page| page % 2 == 1) {
            batch.add(start as usize + page * PAGE, PAGE);
        }
        assert_eq!(batch.used, 301);
        assert_eq!(batch.flush(), 900);
        assert!(batch.is_empty());
        for page in 0..1_024 {
            batch.add(start as usize + (1_199 - page) * PAGE, PAGE);
        }
        assert!(batch.used <= RANGES && !batch.is_empty());
        // SAFETY: the test is done with it.
        unsafe { sys::unmap(start, 1_200 * PAGE) };
    }

    #[test]
    fn what_is_done_is_taken_off() {
        let ranges =
            || [(1, 2), (5, 1), (9, 3)].map(|(at, pages)| range_of(at * PAGE, pages * PAGE));
        let rest = |done: usize| {
            let mut ranges = ranges();
            let whole = skip(&mut ranges, done * PAGE);
            let rest = ranges
                .get(whole)
                .map(|r| (r.iov_base as usize / PAGE, r.iov_len / PAGE));
            (whole, rest)
        };
        assert_eq!(rest(0), (0, Some((1, 2))));
        assert_eq!(rest(1), (0, Some((2, 1))));
        assert_eq!(rest(2), (1, Some((5, 1))));
        assert_eq!(rest(3), (2, Some((9, 3))));
        assert_eq!(rest(5), (2, Some((11, 1))));
        assert_eq!(rest(6), (3, None));
    }

    #[test]
    fn a_huge_page_is_split_before_a_part_of_it_is_given_back() {
        let splits = || {
            let text = std::fs::read_to_string("/proc/vmstat").expect("a kernel's counters");
            let line = text
                .lines()
                .find(|line| line.starts_with("thp_split_page "));
            line.map(|line| line[15..].parse::<u64>().expect("a number"))
        };
        let Some(before) = splits() else {
            println!("not checked: this kernel has no huge pages");
            return;
        };
        let whole = sys::map_private(3 * HUGE);
        let start = (whole as usize).next_multiple_of(HUGE) as *mut u8;
        let ranges = [range_of(start as usize + 5 * PAGE, 9 * PAGE)];
        // SAFETY: within the mapping of the test.
        let huge = unsafe { sys::advise(start, HUGE, libc::MADV_HUGEPAGE) };
        // SAFETY: as above.
        unsafe { start.write_bytes(7, HUGE) };
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("this process's own");
        if !huge || !maps.contains("AnonHugePages:      2048 kB") {
            println!("not checked: the kernel gave no huge page");
            return;
        }
        split(&ranges);
        assert!(splits() > Some(before), "{before} splits as before");
        assert_eq!(byte(start, 5), 7, "nothing is lost by it");
        // SAFETY: the test is done with it.
        unsafe { sys::unmap(whole, 3 * HUGE) };
    }

    #[test]
    fn locked_pages_are_zeroed_by_hand_and_not_counted() {
        let start = memory(64);
        // SAFETY: a lock on the test's own pages.
        let locked = unsafe { libc::mlock(start.add(20 * PAGE).cast(), 4 * PAGE) };
        assert_eq!(locked, 0, "the limit of locked memory is below 16 KiB");
        let mut batch = Batch::new();
        for (first, pages) in [(0, 8), (10, 1), (18, 4), (30, 2), (21, 1), (40, 20)] {
            batch.add(start as usize + first * PAGE, pages * PAGE);
        }
        // The kernel may give back the first two pages of the third range before it stops.
        let given = batch.flush();
        assert!((31..=33).contains(&given), "{given}");
        let zero = |page: usize| {
            page < 8
                || page == 10
                || (18..22).contains(&page)
                || page == 30
                || page == 31
                || (40..60).contains(&page)
        };
        assert!((0..64).all(|page| (byte(start, page) == 0) == zero(page)));
        // SAFETY: the test is done with it.
        unsafe { sys::unmap(start, 64 * PAGE) };
    }
}
