//! Usable sizes, as the allocator beneath us reports them.
//!
//! ```text
//!   block ─► glibc: the word before it      another allocator: its malloc_usable_size      none of its own: 0
//! ```
//!
//! Z1  Only the allocator that gave a block is asked: a function of another object must not see it.
//!
//! Not here: blocks of jemalloc's own functions (`hooks/extended.rs`), of linked allocators (`hooks/linked.rs`).

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::real::{self, call};
use crate::sites;

const UNKNOWN: u32 = 0;

const BY_HEADER: u32 = 1;

const BY_CALL: u32 = 2;

/// The allocator has no `malloc_usable_size` of its own, and that of another allocator must not see its blocks.
const NOT_AT_ALL: u32 = 3;

static USABLE: AtomicU32 = AtomicU32::new(UNKNOWN);

/// Returns the usable size of a live block. Cost: one load for glibc, a call for other allocators.
///
/// # Safety
/// `block` is a live block of the allocator beneath.
#[inline(always)]
pub unsafe fn usable_size(block: *mut c_void) -> u64 {
    // ORDER: Relaxed; a constant of the process, which the first thread finds out.
    if USABLE.load(Ordering::Relaxed) == BY_HEADER {
        // SAFETY: glibc keeps the chunk's size and flags in the word before the block; bit 1 says
        // that the chunk is a mapping of its own, which has a header of two words.
        let size = unsafe { block.cast::<u64>().sub(1).read() };
        let header = 8 + ((size & 2) << 2);
        return (size & !7) - header;
    }
    // SAFETY: as the caller promises.
    unsafe { usable_size_slow(block) }
}

/// Returns whether the allocator reports usable sizes: known once a block was acquired.
pub fn tells_sizes() -> bool {
    // ORDER: Relaxed; as in `usable_size`.
    let beneath = USABLE.load(Ordering::Relaxed);
    match beneath {
        // A program may be served by the allocator that it is linked with alone.
        UNKNOWN => sites::is_hooked() && sites::tells_sizes(),
        _ => matches!(beneath, BY_HEADER | BY_CALL) && sites::tells_sizes(),
    }
}

#[cold]
#[inline(never)]
unsafe fn usable_size_slow(block: *mut c_void) -> u64 {
    // ORDER: Relaxed; as above.
    let mut how = USABLE.load(Ordering::Relaxed);
    if how == UNKNOWN {
        let asked = real::REAL.malloc_usable_size.get();
        how = if real::glibc_headers() {
            BY_HEADER
        } else if real::is_of_the_allocator(asked) {
            BY_CALL
        } else {
            NOT_AT_ALL
        };
        // ORDER: Relaxed; as above.
        USABLE.store(how, Ordering::Relaxed);
    }
    if how == NOT_AT_ALL {
        return 0;
    }
    // SAFETY: as the caller promises.
    unsafe { call!(malloc_usable_size as UsableSize)(block) as u64 }
}
