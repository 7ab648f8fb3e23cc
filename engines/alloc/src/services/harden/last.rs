//! The look at exit: damage that no free came to find.
//!
//! ```text
//!   exit ─► each block that waits: unchanged? ─► each live small block: the bytes behind it whole?
//! ```
//!
//! L1  Other threads may still run. The pool's lock keeps every span what it is during the walk; a live block is reported
//!     only if its trailer is whole before and after each of several looks that find the same byte changed: a thread that
//!     frees the block changes its trailer before it touches what lies behind it, and one that gets it writes the trailer last.
//! L2  A block whose trailer is overwritten itself is not reported: it may be one that another thread is about to hand out.
//!
//! Not here: what is found when a block is freed (`checks`); large and sampled blocks that the program keeps.

use skinflint_base::sync::Ordering;
use skinflint_base::sys;

use super::checks::is_bare;
use super::{quarantine, trailer, untouched};
use crate::heaps::fault::{self, Fault};
use crate::heaps::pool::with_pool;
use crate::heaps::tls;
use crate::mechanism::map::descriptor;
use crate::mechanism::range::{base, limit};
use crate::mechanism::span::{KIND_SMALL, Span};
use crate::services::modes::{self, has};

/// The looks that must find the same (L1).
const LOOKS: usize = 4;

/// Tells of sampled blocks that nothing touched again.
pub fn tell_untouched() {
    if has(modes::SAMPLE) {
        untouched::tell(sys::monotonic_ns());
    }
}

/// Looks at all blocks that wait, and at all that the program kept.
#[unsafe(link_section = ".text.skinflint_first")]
pub fn last_look() {
    if has(modes::QUARANTINE) {
        quarantine::look();
    }
    if has(modes::CANARY) {
        // `None`: a signal handler that ends the program amid an allocation does without.
        let _ = with_pool(tls::who(), |_| walk());
    }
}

fn walk() {
    let mut distance = 0;
    while distance < limit() {
        // SAFETY: below the limit; MAP leads to descriptors.
        let span = unsafe { &*descriptor(distance) };
        // ORDER: the pool's lock is held (L1).
        let small = span.kind.load(Ordering::Relaxed) == KIND_SMALL;
        if small && span.start() == base() + distance {
            look_at(span);
        }
        distance += 4096;
    }
}

fn look_at(span: &Span) {
    let size = span.size();
    for slot in 0..span.slots as usize {
        let p = (span.start() + slot * size) as *mut u8;
        if !span.is_live(slot) || is_bare(span, p) {
            continue;
        }
        let Some((n, first)) = trailer::changed(p, size) else {
            continue;
        };
        if (1..LOOKS).all(|_| trailer::changed(p, size) == Some((n, first))) {
            fault::report_more(Fault::Overrun, p, |line| {
                line.add_size(n);
                line.add(b", at byte ");
                line.add_number(first as u64);
                line.add(b", found at exit");
            });
        }
    }
}
