//! What C++ and C23 say when they free, checked where it is known: the door to `harden::forms`.
//!
//! A build without hardening knows nothing, and every free is as it should be.
//!
//! Not here: the checks.

#[cfg(feature = "harden")]
use super::harden::forms as checks;
use crate::mechanism::branch::branch;
pub use crate::mechanism::range::FAST_LIMIT;

/// Reports whether every free goes the slow way, where a size and a form may be checked. Cost: one comparison.
#[inline(always)]
pub fn are_checked() -> bool {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a load of the range (range.G2).
    unsafe {
        branch!(
            "cmp qword ptr [rip + skinflint_range + {fast_limit}], 0",
            "je",
            [fast_limit = const FAST_LIMIT],
            [readonly],
            else { return true }
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    if crate::mechanism::range::fast_limit() == 0 {
        return true;
    }
    false
}

/// Notes that a block which was just allocated is of `new[]`, or of `new`.
pub fn note(p: *const u8, array: bool) {
    #[cfg(feature = "harden")]
    checks::note(p, array);
    #[cfg(not(feature = "harden"))]
    let _ = (p, array);
}

/// Compares the size that a free names with the one that was requested. `false`: it was told, and the block stays.
pub fn has_size(p: *mut u8, n: usize) -> bool {
    #[cfg(feature = "harden")]
    return checks::has_size(p, n);
    #[cfg(not(feature = "harden"))]
    {
        let _ = (p, n);
        true
    }
}

/// Takes a block of `delete[]` for what `delete` may free. `false`: it is one of `new`, which was told, and it stays.
pub fn leaves_as_array(p: *mut u8) -> bool {
    #[cfg(feature = "harden")]
    return checks::leaves_as_array(p);
    #[cfg(not(feature = "harden"))]
    {
        let _ = p;
        true
    }
}
