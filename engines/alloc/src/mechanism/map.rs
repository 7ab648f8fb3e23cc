//! The page map: which descriptor a page leads to.
//!
//! ```text
//!   address ─► distance from BASE ─► MAP[distance / 4096] ─► offset in META ─► span, large block, or the dummy
//! ```
//!
//! Not here: the range (`range`), how an entry is written and read beside other threads (`publish`).

use skinflint_base::sync::AtomicU32;
use skinflint_pages::{MAP_SPAN, META_SPAN};

use super::publish;
use super::range::{at, base};
use super::span::Span;

/// Returns what [`descriptor`] does, from a given META and distance.
///
/// # Safety
/// `distance < limit()`, and `meta` is [`meta()`].
#[inline(always)]
pub unsafe fn descriptor_from<'a>(meta: usize, distance: usize) -> &'a Span {
    // SAFETY: range.G2: MAP is mapped for every page below LIMIT, and leads to descriptors.
    unsafe {
        let entry = &*((meta + META_SPAN + (distance >> 12) * 4) as *const AtomicU32);
        let offset = publish::found(entry);
        &*((meta + offset as usize) as *const Span)
    }
}

/// Returns the page map's entry for an address of HEAP, given as its distance from BASE.
///
/// # Safety
/// `distance < limit()`.
#[inline(always)]
pub unsafe fn map_entry<'a>(distance: usize) -> &'a AtomicU32 {
    // SAFETY: range.G2: MAP is mapped for every page below LIMIT.
    unsafe { &*((base() - MAP_SPAN + (distance >> 12) * 4) as *const AtomicU32) }
}

/// Returns the descriptor of the page at a distance from BASE; the dummy where there is none.
///
/// # Safety
/// As for [`map_entry`].
#[inline(always)]
pub unsafe fn descriptor(distance: usize) -> *mut Span {
    // SAFETY: as the caller promises.
    at(publish::found(unsafe { map_entry(distance) }))
}
