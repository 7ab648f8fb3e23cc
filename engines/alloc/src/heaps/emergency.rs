//! Memory for a signal handler that interrupted its own thread's slow path.
//!
//! ```text
//!   range (256 MiB of addresses, mapped at the first need; 1 MiB if that is refused) [ size | block ][ size | block ] …  ──► never used again
//! ```
//!
//! M1  Blocks are taken by one addition and never given out again: a handler that allocates in the middle
//!     of a slow path is about to end the process, as a rule. A free of such a block does nothing.
//! M2  Each block follows 16 bytes that hold its size, so that it can be asked about and moved.
//!
//! Not here: the cases that need it (malloc.A3).

use core::cell::Cell;

use skinflint_base::sync::{AtomicUsize, Ordering};
use skinflint_base::sys;

use crate::mechanism::publish;

/// Bytes that all handlers together can get: addresses, of which only the used ones become memory.
const RANGE_BYTES: usize = 256 << 20;
/// The same where the kernel limits address space.
const SMALL_RANGE_BYTES: usize = 1 << 20;
const HEAD_BYTES: usize = 16;

static RANGE: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static USED: AtomicUsize = AtomicUsize::new(0);

/// Returns the range, and maps it if it is not there; 0 if the OS refuses.
fn range() -> usize {
    let bytes = Cell::new(RANGE_BYTES);
    let make = || {
        let mut fresh = sys::map_private(bytes.get());
        if fresh.is_null() {
            bytes.set(SMALL_RANGE_BYTES);
            fresh = sys::map_private(bytes.get());
        }
        if fresh.is_null() {
            return None;
        }
        // ORDER: set before the range. Two threads that race set the same value, unless the OS refused one of them in
        // between; the smaller value then is right for both.
        BYTES.store(bytes.get(), Ordering::Relaxed);
        Some(fresh as usize)
    };
    // SAFETY: no other thread has seen it.
    let discard = |made: usize| unsafe { sys::unmap(made as *mut u8, bytes.get()) };
    publish::get_or_make(&RANGE, make, discard).unwrap_or(0)
}

/// Returns a zeroed block of `n` bytes at a multiple of `align`, a power of two; null if there is no more room.
pub fn malloc(n: usize, align: usize) -> *mut u8 {
    let align = align.max(16);
    let Some(bytes) = n
        .checked_add(align + HEAD_BYTES + 15)
        .map(|bytes| bytes & !15)
    else {
        return core::ptr::null_mut();
    };
    let range = range();
    // ORDER: set before the range.
    let end = BYTES.load(Ordering::Relaxed);
    if range == 0 || bytes > end {
        return core::ptr::null_mut();
    }
    // ORDER: only the number must be distinct.
    let at = USED.fetch_add(bytes, Ordering::Relaxed);
    if at + bytes > end {
        // ORDER: as above; what is taken back was not in use.
        USED.fetch_sub(bytes, Ordering::Relaxed);
        return core::ptr::null_mut();
    }
    let block = (range + at + HEAD_BYTES).next_multiple_of(align) as *mut u8;
    // SAFETY: within the bytes just taken (M1, M2).
    unsafe { block.sub(HEAD_BYTES).cast::<usize>().write(n) };
    block
}

/// Reports whether an address is a block of the range.
pub fn holds(address: usize) -> bool {
    // ORDER: a thread that has a block got it after the range was set.
    let range = RANGE.load(Ordering::Relaxed);
    // ORDER: set before the range.
    range != 0 && address.wrapping_sub(range) < BYTES.load(Ordering::Relaxed)
}

/// Returns the requested bytes of a block.
///
/// # Safety
/// [`holds`] returned true, and the address is a block's.
pub unsafe fn size(block: *const u8) -> usize {
    // SAFETY: M2.
    unsafe { block.sub(HEAD_BYTES).cast::<usize>().read() }
}

/// Reports whether an address that is not in the heap may nevertheless be freed, with no effect.
#[cold]
#[inline(never)]
pub fn is_nobodys(p: *mut u8) -> bool {
    from_loader(p as usize) || holds(p as usize)
}

/// Reports whether an address lies in the dynamic loader's own data, from which it allocates before there is a
/// `malloc`: such blocks may come to us later, and belong to no allocator.
fn from_loader(address: usize) -> bool {
    // SAFETY: getauxval reads what the kernel left on the stack.
    let loader = unsafe { libc::getauxval(libc::AT_BASE) } as usize;
    // The loader with its data is 230 KiB (glibc 2.36), its first block follows on the same page.
    loader != 0 && address.wrapping_sub(loader) < 1 << 20
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_apart_and_know_their_size_until_there_is_no_more() {
        let mut last = 0;
        let mut count = 0;
        loop {
            let align = 16 << (count % 5);
            let block = malloc((count << 10) + 100, align);
            if block.is_null() {
                break;
            }
            assert_eq!(block as usize % align, 0);
            assert!(block as usize >= last && holds(block as usize));
            // SAFETY: a block of the range, of this many bytes.
            unsafe {
                assert_eq!(size(block), (count << 10) + 100);
                block.write_bytes(1, 100 + count);
            }
            last = block as usize + (count << 10) + 100;
            count += 1;
        }
        assert!(count > 500, "{count}");
        assert!(!holds(&raw const count as usize));
    }

    #[test]
    fn what_the_loader_allocated_is_nobodys_and_nothing_else() {
        let _alone = crate::test_engine::alone();
        // SAFETY: getauxval reads what the kernel left on the stack.
        let loader = unsafe { libc::getauxval(libc::AT_BASE) } as usize;
        assert_ne!(loader, 0, "this program was linked to run without one");
        let is = |address: usize| is_nobodys(address as *mut u8);
        assert!(is(loader) && is(loader + 240_000) && is(loader + (1 << 20) - 1));
        assert!(!is(loader - 1) && !is(loader + (1 << 20)));
        let local = 0;
        assert!(!is(&raw const local as usize));
        assert!(!is(crate::mechanism::range::base()) && !is(1) && !is(usize::MAX));
    }
}
