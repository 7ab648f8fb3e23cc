//! The bytes in use by the allocator's own count, to be compared with the recording.
//!
//! ```text
//!   exit ─► destructors ─► ours: in use? ─► last snapshot ─► in use? ─► the collector: the ledger lies between, or
//!                                                                     something went past the recorder
//! ```
//!
//! I1  It is asked only at an orderly exit, by a thread that is inside no call of the allocator: the answer takes the
//!     allocator's locks, and a thread that holds one of them goes on and releases it.
//! I2  Only the allocator beneath us is asked: the function must be of the same object as its `malloc`.
//! I3  A program with an allocator in front of us is not asked: most of its blocks are never ours. Nor is one that is
//!     linked with another allocator: the two sums would have to be of the same moment.
//!
//! Not here: whether the two agree (the analysis judges that, with the uncertainty of threads' caches).

use core::ffi::{CStr, c_void};

use crate::hooks::exports;
use crate::real::{self, call};
use crate::{sites, thread};

/// Returns the bytes in use, as the allocator reports them; 0 if it cannot be asked. Cost: glibc walks its free
/// lists; jemalloc adds up its arenas.
#[cold]
pub fn in_use_bytes() -> u64 {
    if has_its_own_malloc() || sites::is_hooked() {
        return 0;
    }
    let state = thread::enter();
    if state.is_null() {
        return 0;
    }
    let bytes = asked();
    // SAFETY: of `enter`.
    unsafe { thread::leave(state) };
    bytes
}

/// Returns whether the program has a `malloc` that stands in front of us, or may have one: a guest does not know.
fn has_its_own_malloc() -> bool {
    let ours = exports::malloc as *mut c_void;
    real::startup().is_none() || real::in_front_of_us(c"malloc", ours).is_some()
}

fn asked() -> u64 {
    if real::is_of_the_allocator(real::REAL.mallctl.get()) {
        return by_mallctl().unwrap_or(0);
    }
    if !real::is_of_the_allocator(real::REAL.mallinfo2.get()) {
        return 0;
    }
    // SAFETY: the function of that name returns this structure (I2).
    let info = unsafe { call!(mallinfo2 as Mallinfo2)() };
    (info.uordblks as u64).saturating_add(info.hblkhd as u64)
}

/// Returns what jemalloc counts as allocated, without what threads keep in their caches.
fn by_mallctl() -> Option<u64> {
    let mut epoch = 1_u64;
    let size = size_of::<u64>();
    // SAFETY: `epoch` takes a new value of eight bytes; the old one is not asked for.
    let renewed = unsafe {
        let none = core::ptr::null_mut();
        let value = (&raw mut epoch).cast::<c_void>();
        call!(mallctl as Mallctl)(c"epoch".as_ptr(), none, none.cast(), value, size)
    };
    let allocated = read(c"stats.allocated").filter(|_| renewed == 0)?;
    // 4096 stands for all arenas; older versions have no such figure.
    let cached = read(c"stats.arenas.4096.tcache_bytes").unwrap_or(0);
    Some(allocated.saturating_sub(cached))
}

/// Reads a figure of jemalloc's of a word's size.
fn read(name: &CStr) -> Option<u64> {
    let mut value = 0_usize;
    let mut size = size_of::<usize>();
    // SAFETY: both places are ours; jemalloc writes `size` bytes at most, and refuses a wrong one.
    let result = unsafe {
        let none = core::ptr::null_mut();
        let place = (&raw mut value).cast::<c_void>();
        call!(mallctl as Mallctl)(name.as_ptr(), place, &raw mut size, none, 0)
    };
    (result == 0).then_some(value as u64)
}
