//! The kernel's page: 4 KiB on x86-64, and 4, 16 or 64 KiB on aarch64, as its kernel was built.
//!
//! ```text
//!   our page   │0│1│2│3│4│5│6│7│   4 KiB: what bits, books and maps count
//!   the kernel's   └───────┘           what is mapped, given back, asked about and closed
//!              └─┘         └─┘  edges of a range: the kernel is not asked about them
//! ```
//!
//! P1  A page of ours is [`LEAST`] bytes on every machine; a page of the kernel's is a power of two, and not smaller.
//! P2  Whoever gives memory back asks for the part of a range that is whole pages of the kernel's ([`inside`]): it rounds
//!     a length up, and would take bytes behind the range.
//! P3  The size is asked for once, from what the kernel gave the process, without a lock or a system call.
//!
//! Not here: huge pages (`hints`).

use core::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a page of ours, and of the smallest page that a kernel has.
pub const LEAST: usize = 4096;

/// 0 before it was asked for.
static KERNEL: AtomicUsize = AtomicUsize::new(0);

/// Returns the bytes of a page of the kernel's. Cost: a load and a comparison.
#[inline]
pub fn kernel() -> usize {
    // ORDER: Relaxed: all threads that ask get the same number.
    let known = KERNEL.load(Ordering::Relaxed);
    if known == 0 { asked() } else { known }
}

#[cold]
#[unsafe(link_section = ".text.skinflint_first")]
fn asked() -> usize {
    // SAFETY: reads what the kernel gave the process; it is there from the start, and this key always is.
    let bytes = unsafe { libc::getauxval(libc::AT_PAGESZ) } as usize;
    let bytes = if bytes.is_power_of_two() {
        bytes.max(LEAST)
    } else {
        LEAST
    };
    KERNEL.store(bytes, Ordering::Relaxed); // ORDER: as above
    bytes
}

/// Has the process behave as under a kernel with larger pages. For tests: the true kernel's pages are smaller, so what is
/// whole pages for the one is so for the other.
#[doc(hidden)]
pub fn pretend(bytes: usize) {
    assert!(bytes.is_power_of_two() && bytes >= LEAST);
    KERNEL.store(bytes, Ordering::Relaxed); // ORDER: set before there are threads
}

/// Reports whether the kernel's page is larger than ours.
#[inline]
pub fn is_larger() -> bool {
    kernel() > LEAST
}

/// Reports whether a range is whole pages of the kernel's.
#[inline]
pub fn is_whole(start: usize, bytes: usize) -> bool {
    (start | bytes) & (kernel() - 1) == 0
}

/// Returns the part of a range that is whole pages of the kernel's, as start and bytes (P2).
pub fn inside(start: usize, bytes: usize) -> (usize, usize) {
    let page = kernel();
    let Some(first) = start.checked_next_multiple_of(page) else {
        return (start, 0);
    };
    let end = start.saturating_add(bytes) & !(page - 1);
    (first, end.saturating_sub(first))
}

/// Returns the pages of the kernel's that hold a range, as start and bytes.
pub fn around(start: usize, bytes: usize) -> (usize, usize) {
    let page = kernel();
    let first = start & !(page - 1);
    (first, (start + bytes - first).next_multiple_of(page))
}

/// Rounds a number of bytes up to whole pages of the kernel's; `None` if that overflows.
pub fn up(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(kernel())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test: the size belongs to the process.
    #[test]
    fn ranges_by_hand() {
        // SAFETY: asks for a number.
        let true_one = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        assert_eq!(kernel(), true_one);
        for page in [4096, 16384, 65536]
            .into_iter()
            .filter(|page| *page >= true_one)
        {
            pretend(page);
            assert_eq!(is_larger(), page > LEAST);
            assert_eq!(inside(page, 2 * page), (page, 2 * page));
            assert_eq!(inside(page - 1, 2 * page), (page, page));
            assert_eq!(inside(page + 1, page).1, 0);
            assert_eq!(inside(page + 1, 2 * page - 1), (2 * page, page));
            assert_eq!(inside(usize::MAX, 1).1, 0);
            assert_eq!(around(page + 1, 1), (page, page));
            assert_eq!(around(page - 1, 2), (0, 2 * page));
            assert!(is_whole(page, page) && !is_whole(page, page + 1));
            assert_eq!(
                (up(1), up(page), up(usize::MAX)),
                (Some(page), Some(page), None)
            );
        }
        pretend(true_one);
    }
}
