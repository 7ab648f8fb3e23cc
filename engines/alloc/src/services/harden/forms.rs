//! What C++ and C23 say when they free: the size of the block, and whether it is an array.
//!
//! ```text
//!   new ─────► [ trailer: One ]        delete(p, n) ─► n as requested? ─► delete(p)
//!   new[] ───► [ trailer: Array ]      delete[](p) ──► Array? then One ─► delete(p) ─► free ─► still Array? told
//! ```
//!
//! O1  A block has the form that the operator gave it; one of malloc has none. Only `One` against `Array` is told: a
//!     library may have a `new` of its own that calls malloc, or a `delete` of its own that calls free.
//! O2  The size is compared where it is known to the byte: small blocks with a whole trailer, large ones with guards,
//!     samples. `new(0)` is a block of one byte.
//!
//! Not here: which operators are this library's (`malloc-so`).

use skinflint_base::sync::Ordering;

use super::checks::{is_bare, span_at};
use super::trailer::{self, Form};
use super::{guard, sampled};
use crate::heaps::fault::{self, Fault};
use crate::heaps::large;
use crate::mechanism::span::{KIND_LARGE, KIND_SMALL, Span};
use crate::services::modes::{self, has};

/// Returns the span of a small block that has a trailer.
fn with_trailer(p: *const u8) -> Option<&'static Span> {
    if !has(modes::CANARY) {
        return None;
    }
    let span = span_at(p)?;
    // ORDER: the kind of a live block's descriptor does not change.
    let small = span.kind.load(Ordering::Relaxed) == KIND_SMALL;
    // An address inside a block is for the free that follows to tell.
    let begins = small
        && span
            .slot_of(p as usize)
            .is_some_and(|slot| span.is_live(slot));
    (begins && !is_bare(span, p)).then_some(span)
}

/// Gives a block that was just allocated its form.
pub fn note(p: *const u8, array: bool) {
    if let Some(span) = with_trailer(p) {
        let form = if array { Form::Array } else { Form::One };
        trailer::set_form(p, span.size(), form);
    }
}

/// Returns the bytes that were requested, where that is known (O2).
fn requested(p: *mut u8) -> Option<usize> {
    if let Some(span) = with_trailer(p) {
        return trailer::form(p, span.size()).map(|(n, _)| n);
    }
    if sampled::is_ours(p as usize) {
        return sampled::usable(p);
    }
    // ORDER: the kind of a live block's descriptor does not change.
    if span_at(p)?.kind.load(Ordering::Relaxed) != KIND_LARGE {
        return None;
    }
    // SAFETY: `p` is in HEAP; a found block is live.
    unsafe {
        let large = large::find(p)?;
        ((*large).lead != 0).then(|| guard::usable(large))
    }
}

/// Compares the size that a free names with the one that was requested. `false`: it was told, and the block stays.
pub fn has_size(p: *mut u8, n: usize) -> bool {
    let Some(asked) = requested(p).filter(|&asked| asked != n.max(1)) else {
        return true;
    };
    fault::report_more(Fault::Size, p, |line| {
        line.add_size(asked);
        line.add(b" and not ");
        line.add_number(n as u64);
    });
    false
}

/// Takes a block of `delete[]` for what `delete` may free. `false`: it is one of `new`, which was told, and it stays.
pub fn leaves_as_array(p: *mut u8) -> bool {
    let Some(span) = with_trailer(p) else {
        return true;
    };
    match trailer::form(p, span.size()) {
        Some((_, Form::One)) => {
            fault::report(Fault::OneAsArray, p);
            false
        }
        Some((_, Form::Array)) => {
            trailer::set_form(p, span.size(), Form::One);
            true
        }
        _ => true,
    }
}
