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
//! Not here: when it is needed (`api`, A3).

use skinflint_base::sync::{AtomicUsize, Ordering};
use skinflint_base::sys;

use crate::publish;

/// All that handlers can get: addresses, of which only what is used becomes memory.
const RANGE_BYTES: usize = 256 << 20;
/// The same where the kernel counts addresses.
const SMALL_RANGE_BYTES: usize = 1 << 20;
const HEAD_BYTES: usize = 16;

static RANGE: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static USED: AtomicUsize = AtomicUsize::new(0);

/// The range; 0 if the OS refuses.
fn range() -> usize {
    let range = publish::had(&RANGE);
    if range != 0 {
        return range;
    }
    let mut bytes = RANGE_BYTES;
    let mut fresh = sys::map_private(bytes);
    if fresh.is_null() {
        bytes = SMALL_RANGE_BYTES;
        fresh = sys::map_private(bytes);
    }
    if fresh.is_null() {
        return 0;
    }
    // ORDER: set before the range; two that race set the same but for a refusal in between, and the
    // smaller one then is right for both.
    BYTES.store(bytes, Ordering::Relaxed);
    match publish::once(&RANGE, fresh as usize) {
        Ok(()) => fresh as usize,
        Err(other) => {
            // SAFETY: nobody has seen it.
            unsafe { sys::unmap(fresh, bytes) };
            other
        }
    }
}

/// A zeroed block of `n` bytes at a multiple of `align`, a power of two; null if there is no more.
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
        // ORDER: as above; what is taken back was nobody's.
        USED.fetch_sub(bytes, Ordering::Relaxed);
        return core::ptr::null_mut();
    }
    let block = (range + at + HEAD_BYTES).next_multiple_of(align) as *mut u8;
    // SAFETY: within the bytes just taken (M1, M2).
    unsafe { block.sub(HEAD_BYTES).cast::<usize>().write(n) };
    block
}

/// Whether an address is a block of the range.
pub fn holds(address: usize) -> bool {
    // ORDER: whoever holds a block got it after the range was set.
    let range = RANGE.load(Ordering::Relaxed);
    // ORDER: set before the range.
    range != 0 && address.wrapping_sub(range) < BYTES.load(Ordering::Relaxed)
}

/// Bytes of a block.
///
/// # Safety
/// [`holds`] said yes, and the address is a block's.
pub unsafe fn size(block: *const u8) -> usize {
    // SAFETY: M2.
    unsafe { block.sub(HEAD_BYTES).cast::<usize>().read() }
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
}
