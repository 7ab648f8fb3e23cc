//! Hints to the processor and to the kernel about memory: they change no byte of it.
//!
//! H1  A prefetch of any address is allowed: one that is not mapped is ignored.
//! H2  Huge pages hold the same bytes: the kernel may ignore the advice, also for what is not mapped.
//!
//! Not here: advice that discards memory (`sys::advise`).

/// Bytes of a huge page of this architecture.
const HUGE: usize = 2 << 20;
const PAGE: usize = 4096;

/// Asks the processor to load the cache line that a value begins on, and does not wait for it. A load would: the
/// processor goes on for some hundred instructions behind one that misses, and no further.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: H1.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(value).cast()) };
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: H1.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{at}]", at = in(reg) core::ptr::from_ref(value), options(nostack, readonly, preserves_flags));
    }
}

/// Asks the kernel for huge pages where a table lies that is read at random, if it is as large as one. Call it before the
/// memory is first written: only pages that come afterwards are huge.
pub fn prefer_huge_pages<T>(start: *const T, bytes: usize) {
    if bytes < HUGE {
        return;
    }
    let Some(first) = (start as usize).checked_next_multiple_of(PAGE) else {
        return;
    };
    let end = (start as usize).saturating_add(bytes) / PAGE * PAGE;
    // SAFETY: H2.
    unsafe {
        crate::sys::advise(
            first as *mut u8,
            end.saturating_sub(first),
            libc::MADV_HUGEPAGE,
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_what_they_are() {
        let mut table: Vec<u64> = Vec::with_capacity(3 * HUGE / 8);
        prefer_huge_pages(table.as_ptr(), 3 * HUGE);
        table.extend(0..3 * HUGE as u64 / 8);
        prefer_huge_pages(table.as_ptr(), 3 * HUGE);
        table.iter().for_each(prefetch);
        assert!(table.iter().copied().eq(0..3 * HUGE as u64 / 8));
        prefer_huge_pages(core::ptr::null::<u64>(), HUGE);
        prefer_huge_pages(usize::MAX as *const u8, HUGE);
    }
}
