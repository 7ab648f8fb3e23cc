//! The address range: where descriptors, the page map and the pages lie, as every call reads it.
//!
//! ```text
//!   META [ descriptors, heaps ] ── MAP [ an entry for each page ] ── BASE: HEAP [ pages ] ── LIMIT
//! ```
//!
//! G1  BASE and META change once, from 0, before the first block is handed out.
//! G2  LIMIT only grows, and MAP is mapped for all of it.
//!
//! The range, and the table of size classes (`class`), are the only words that this floor keeps for itself: every call
//! reads both, at addresses that are constants of the code.
//!
//! Not here: which pages are in use (`pool`), what a page leads to (`map`).

use skinflint_base::sync::{AtomicU32, AtomicUsize, Ordering};
use skinflint_pages::{MAP_SPAN, META_SPAN};

/// The fields that every free reads: one cache line, reached by one address.
#[repr(C, align(64))]
struct Range {
    /// Address of META: everything that `free` reads lies above it, at distances that fit into an instruction.
    meta: AtomicUsize,
    /// LIMIT, or 0 while every call is to go the slow way.
    fast_limit: AtomicUsize,
    base: AtomicUsize,
    limit: AtomicUsize,
}

/// Offset of `fast_limit` in [`Range`], for assembly.
pub const FAST_LIMIT: usize = core::mem::offset_of!(Range, fast_limit);

/// Bytes from META to BASE.
const TO_BASE: usize = META_SPAN + MAP_SPAN;

// Under its own name and hidden, so that it is reached from the instruction pointer, and not through the
// table of addresses that a crate of its own would take: one load less in every call.
#[unsafe(export_name = "skinflint_range")]
static RANGE: Range = Range {
    meta: AtomicUsize::new(0),
    fast_limit: AtomicUsize::new(0),
    base: AtomicUsize::new(0),
    limit: AtomicUsize::new(0),
};
core::arch::global_asm!(".hidden skinflint_range");

#[inline(always)]
fn range() -> &'static Range {
    #[cfg(not(target_arch = "x86_64"))]
    return &RANGE;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the address of RANGE.
    unsafe {
        let range: *const Range;
        core::arch::asm!(
            "lea {range}, [rip + skinflint_range]",
            range = out(reg) range,
            options(pure, nomem, nostack, preserves_flags),
        );
        &*range
    }
}

static SLOW_MODE: AtomicU32 = AtomicU32::new(0);

/// Returns the address of page 0.
#[inline(always)]
pub fn base() -> usize {
    // ORDER: Relaxed: a thread that has a block got it after BASE was set (G1).
    range().base.load(Ordering::Relaxed)
}

/// Returns the address of META.
#[inline(always)]
pub fn meta() -> usize {
    base() - TO_BASE
}

/// Returns [`meta`], and how far an address is from BASE. Cost: three instructions.
#[inline(always)]
pub fn meta_and_distance(address: usize) -> (usize, usize) {
    #[cfg(not(target_arch = "x86_64"))]
    {
        // ORDER: as in `base`.
        let meta = range().meta.load(Ordering::Relaxed);
        return (meta, address.wrapping_sub(TO_BASE).wrapping_sub(meta));
    }
    #[cfg(target_arch = "x86_64")]
    // In assembly: otherwise the range's address is loaded first, for `fast_limit` beside it, and the two constants are
    // subtracted one by one.
    // ORDER: as in `base`.
    // SAFETY: a load of RANGE.
    unsafe {
        let (meta, distance): (usize, usize);
        core::arch::asm!(
            "mov {meta}, qword ptr [rip + skinflint_range]",
            "lea {distance}, [{address} - {to_base}]",
            "sub {distance}, {meta}",
            meta = out(reg) meta,
            distance = out(reg) distance,
            address = in(reg) address,
            to_base = const TO_BASE,
            options(pure, readonly, nostack),
        );
        (meta, distance)
    }
}

/// Returns the mapped bytes of HEAP.
#[inline(always)]
pub fn limit() -> usize {
    // ORDER: Relaxed: a thread that has a block below it got it after LIMIT grew (G2).
    range().limit.load(Ordering::Relaxed)
}

/// Returns [`limit`], or 0 while every free is to go the slow way.
#[inline(always)]
pub fn fast_limit() -> usize {
    // ORDER: as `limit`.
    range().fast_limit.load(Ordering::Relaxed)
}

/// Sends every free the slow way, where more is checked.
pub fn set_slow_mode() {
    // ORDER: set at start, before there are threads.
    SLOW_MODE.store(1, Ordering::Relaxed);
    // ORDER: as above.
    range().fast_limit.store(0, Ordering::Relaxed);
}

/// Reports whether every call goes the slow way.
#[inline]
pub fn slow_mode() -> bool {
    // ORDER: set at start.
    SLOW_MODE.load(Ordering::Relaxed) != 0
}

/// Returns the object at an offset of META.
#[inline(always)]
pub fn at<T>(offset: u32) -> *mut T {
    (meta() + offset as usize) as *mut T
}

/// Returns the offset in META of an object in it.
#[inline(always)]
pub fn offset_of<T>(object: *const T) -> u32 {
    (object as usize - meta()) as u32
}

/// Sets BASE and META (G1). The lock under which the range is mapped is held.
#[unsafe(link_section = ".text.skinflint_first")]
pub fn set_base(base: usize) {
    // ORDER: G1; the lock's release publishes it to threads that come through it, blocks to the others.
    // [reason: handed]
    range().base.store(base, Ordering::Release);
    range().meta.store(meta(), Ordering::Release); // ORDER: as above
}

/// Raises LIMIT (G2). The pool's lock is held.
#[unsafe(link_section = ".text.skinflint_first")]
pub fn extend(bytes: usize) {
    // ORDER: Release, though readers need none: a thread that has a block below it got it afterwards (G2).
    // [reason: handed]
    range().limit.store(bytes, Ordering::Release);
    if !slow_mode() {
        // ORDER: as above. [reason: handed]
        range().fast_limit.store(bytes, Ordering::Release);
    }
}
