//! Mapping memory at chosen addresses, and the kernel's refusals.
//!
//! ```text
//!   place_at ──► mmap, at this address or not at all
//!      └── refused()   in tests: the Nth request is refused, once or for ever
//! ```
//!
//! O1  A refusal is a result, never a fault: each caller says what holds after one (pages.P8).
//!
//! Not here: giving pages back (`purge`).

use skinflint_base::sys;

/// Why memory was not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A mapping of other code lies there.
    Taken,
    /// The kernel has no memory, or allows none.
    Nothing,
}

const FLAGS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// Calls `mmap` once; returns the address it gave, or the error number.
fn mmap(addr: usize, bytes: usize, prot: i32, flags: i32) -> Result<usize, i64> {
    if refused() {
        return Err(i64::from(libc::ENOMEM));
    }
    // SAFETY: either the kernel may not replace a mapping at this address, or (MAP_FIXED) the
    // address lies in a reservation that is ours alone and not in use yet.
    let result = unsafe {
        sys::syscall(
            libc::SYS_mmap,
            [
                addr as u64,
                bytes as u64,
                prot as u64,
                flags as u64,
                u64::MAX,
                0,
            ],
        )
    };
    if sys::is_error(result) {
        Err(-result)
    } else {
        Ok(result as usize)
    }
}

/// Maps zeroed memory at this address and nowhere else. `reserved`: within a reservation made by [`reserve`], which it
/// replaces there.
///
/// # Errors
/// Other code has mapped something there, or the kernel refuses; nothing is mapped then.
pub fn place_at(addr: usize, bytes: usize, reserved: bool) -> Result<(), Refusal> {
    let fixed = if reserved {
        libc::MAP_FIXED
    } else {
        libc::MAP_FIXED_NOREPLACE
    };
    match mmap(
        addr,
        bytes,
        libc::PROT_READ | libc::PROT_WRITE,
        FLAGS | fixed,
    ) {
        Ok(placed) if placed == addr => Ok(()),
        // Before Linux 4.17 the kernel does not know the flag, and the address is only a wish.
        Ok(placed) => {
            unplace(placed, bytes);
            Err(Refusal::Taken)
        }
        Err(error) if error == i64::from(libc::EEXIST) => Err(Refusal::Taken),
        Err(_) => Err(Refusal::Nothing),
    }
}

/// Reserves address space that no other mapping gets, at an address of the kernel's choice. It holds no memory.
pub fn reserve(bytes: usize) -> Option<usize> {
    let flags = FLAGS | libc::MAP_NORESERVE;
    mmap(0, bytes, libc::PROT_NONE, flags).ok()
}

/// Unmaps what this file mapped here.
pub(crate) fn unplace(addr: usize, bytes: usize) {
    // SAFETY: callers pass ranges that they have mapped and that nothing refers to.
    unsafe { sys::unmap(addr as *mut u8, bytes) };
}

/// Advises the kernel never to back a range by huge pages, or to do so. A kernel that supports neither refuses, which
/// does no harm.
pub fn advise_huge(addr: usize, bytes: usize, huge: bool) {
    let advice = if huge {
        libc::MADV_HUGEPAGE
    } else {
        libc::MADV_NOHUGEPAGE
    };
    // SAFETY: the range is ours, and the advice changes no content.
    unsafe { sys::advise(addr as *mut u8, bytes, advice) };
}

#[cfg(not(any(test, feature = "faults")))]
#[inline(always)]
fn refused() -> bool {
    false
}

#[cfg(any(test, feature = "faults"))]
use faults::refused;

/// Refusals on demand, for tests.
#[cfg(any(test, feature = "faults"))]
pub mod faults {
    use core::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};
    use skinflint_base::sys;

    static THREAD: AtomicU32 = AtomicU32::new(0);
    static ASKED: AtomicI64 = AtomicI64::new(0);
    static FIRST: AtomicI64 = AtomicI64::new(0);
    static COUNT: AtomicI64 = AtomicI64::new(0);
    static ONE_MORE: AtomicI64 = AtomicI64::new(-1);

    /// The number of refusals for all requests.
    pub const FOR_EVER: i64 = i64::MAX;

    /// Lets the first `granted` requests for memory that this thread makes from now on through and refuses the next
    /// `refused`. Only one thread at a time may do so.
    pub fn arm(granted: i64, refused: i64) {
        // ORDER: only the thread that arms looks at the rest, so no partner is needed.
        THREAD.store(sys::gettid(), Relaxed);
        ASKED.store(0, Relaxed);
        FIRST.store(granted, Relaxed);
        COUNT.store(refused, Relaxed);
        ONE_MORE.store(-1, Relaxed);
    }

    /// Refuses one more request: the one before which `granted` were made, whatever their results.
    pub fn also(granted: i64) {
        // ORDER: as in `arm`.
        ONE_MORE.store(granted, Relaxed);
    }

    /// Ends the refusals. Returns the number of requests since [`arm`].
    pub fn disarm() -> i64 {
        // ORDER: as in `arm`.
        THREAD.store(0, Relaxed);
        ASKED.load(Relaxed)
    }

    pub(super) fn refused() -> bool {
        // ORDER: as in `arm`; the word holds this thread's own id only if it armed.
        if THREAD.load(Relaxed) != sys::gettid() {
            return false;
        }
        // ORDER: as in `arm`.
        let asked = ASKED.fetch_add(1, Relaxed);
        let later = asked - FIRST.load(Relaxed);
        // ORDER: as in `arm`.
        later >= 0 && later < COUNT.load(Relaxed) || asked == ONE_MORE.load(Relaxed)
    }
}
