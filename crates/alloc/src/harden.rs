//! Checks beyond those that are always there; off unless asked for.
//!
//! Not here: what is always checked (`free`, F1).

/// A block for a hardened process; `None` where nothing is asked for.
#[inline]
pub fn malloc(_n: usize) -> Option<*mut u8> {
    None
}

/// A large block for a hardened process.
#[inline]
pub fn malloc_large(_n: usize, _align: usize) -> Option<*mut u8> {
    None
}

/// Checks a block that is about to be freed. `true`: free it.
///
/// # Safety
/// `p` is in HEAP.
pub unsafe fn before_free(_p: *mut u8) -> bool {
    true
}

/// Usable bytes of a small block.
#[inline]
pub fn usable(_p: *const u8, size: usize) -> usize {
    size
}

/// Whether a large block has nothing around it that must move with it.
#[inline]
pub fn is_plain(_p: *const u8) -> bool {
    true
}
