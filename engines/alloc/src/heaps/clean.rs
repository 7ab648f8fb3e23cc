//! Pages of spans that hold nothing and are not resident: their number.
//!
//! ```text
//!   the purger drops a page ─► a bit of `clean`, HOLES + 1     blocks are taken from the span ─► no bit, HOLES - bits
//! ```
//!
//! Not here: which pages are dropped (`holes`).

use skinflint_base::sync::{AtomicU32, AtomicU64, Ordering};

use super::changes;
use crate::mechanism::span::Span;

/// Pages inside spans that hold nothing and are not resident (holes.O2).
pub static HOLES: AtomicU32 = AtomicU32::new(0);

/// Number of pages purged inside spans that the span's next use took back: each is a fault if it is touched.
pub static RETAKEN: AtomicU64 = AtomicU64::new(0);

/// Forgets which pages of a span are clean, because blocks will be taken from it; returns them. The purger is to look at
/// it again (changes.J2).
///
/// # Safety
/// The heap's lock is held.
#[unsafe(link_section = ".text.skinflint_first")]
pub unsafe fn forget_clean(span: &Span) -> u16 {
    // ORDER: the lock is held (span.S3).
    let clean = span.clean.load(Ordering::Relaxed);
    if clean != 0 {
        HOLES.fetch_sub(clean.count_ones(), Ordering::Relaxed); // ORDER: a statistic
        RETAKEN.fetch_add(u64::from(clean.count_ones()), Ordering::Relaxed); // ORDER: a statistic
        span.clean.store(0, Ordering::Relaxed); // ORDER: as above
        changes::note(span);
    }
    clean
}
