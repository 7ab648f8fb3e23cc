//! Making pages that will soon be written to resident, in one call.
//!
//! ```text
//!   4 pages, touched one by one      4 faults
//!   4 pages, populated               1 call, then none
//! ```
//!
//! W1  It is only an optimisation: whatever the kernel answers, the pages are as they were, or resident.
//! W2  A kernel that does not know the call (before 5.14) is asked once; where it may not be called, never ([`forgo`]).
//!
//! Not here: the choice of pages (`alloc`).

use core::sync::atomic::{AtomicBool, Ordering};

use skinflint_base::sys;

use crate::PAGE;

const MADV_POPULATE_WRITE: u64 = 23;

/// Set once no call is to be made (W2).
static IN_VAIN: AtomicBool = AtomicBool::new(false);

/// Makes [`populate`] do nothing from now on: a thread of the process ends at any such call.
pub(crate) fn forgo() {
    IN_VAIN.store(true, Ordering::Relaxed); // ORDER: the thread that may not call sets it
}

/// Makes whole pages present and writable, as if each had been written to. Their content stays. Cost: a system call,
/// and two thirds of a fault for each page.
pub fn populate(addr: usize, pages: usize) {
    // ORDER: a hint that any thread may learn late; it has no partner.
    if IN_VAIN.load(Ordering::Relaxed) {
        return;
    }
    let bytes = (pages * PAGE) as u64;
    // SAFETY: it changes no content (W1), whatever code uses the range.
    let result = unsafe {
        sys::syscall(
            libc::SYS_madvise,
            [addr as u64, bytes, MADV_POPULATE_WRITE, 0, 0, 0],
        )
    };
    if result == -i64::from(libc::EINVAL) {
        IN_VAIN.store(true, Ordering::Relaxed); // ORDER: as above
    }
}
