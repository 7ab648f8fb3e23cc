//! A large block that is freed: checked, and then made to wait, or really freed.
//!
//! ```text
//!   free ─► held once? ─► slack whole? ─► no access, no pages, in the quarantine        else ─► guard::leave
//! ```
//!
//! Not here: how it leaves (`guard`).

use skinflint_base::sync::Ordering;

use super::guard::{admit, dismiss, drop_pages, front, leave, protect, run_of, usable};
use super::{quarantine, trailer};
use crate::heaps::fault::{self, Fault};
use crate::heaps::large::{self, Large};
use crate::services::modes::{self, has};

/// Does what `checks::before_free` does, for a block that may be large.
///
/// # Safety
/// `p` is in HEAP.
pub unsafe fn before_free(p: *mut u8) -> bool {
    // SAFETY: as the caller promises; found blocks are live.
    unsafe {
        let Some(large) = large::find(p) else {
            return true;
        };
        if (*large).tenant != 0 {
            return true;
        }
        // ORDER: one of two threads that free the block wins (guard.G2); what it holds came with the block. [reason: winner]
        if (*large).held.swap(1, Ordering::AcqRel) != 0 {
            fault::report(Fault::Double, p);
            return false;
        }
        let n = usable(large);
        let slack = (*large).slack as usize;
        if let Some(at) = (n..n + slack).find(|&i| *p.add(i) != trailer::fill()) {
            fault::report_more(Fault::Overrun, p, |line| {
                line.add_size(n);
                line.add(b", at byte ");
                line.add_number(at as u64);
            });
        }
        let front = front(large);
        if let Some(before) = (1..=front).find(|&i| *p.sub(i) != trailer::fill()) {
            fault::report_more(Fault::Overrun, p, |line| {
                line.add_size(n);
                line.add(b", ");
                line.add_number(before as u64);
                line.add(b" before its start");
            });
        }
        if has(modes::QUARANTINE) && wait(large, p) {
            return false;
        }
        leave(p, false);
        false
    }
}

/// Makes a block wait, without pages (guard.G2).
unsafe fn wait(large: *mut Large, p: *mut u8) -> bool {
    // SAFETY: a block that was claimed.
    let ((run, bytes), guarded) = unsafe { (run_of(large), (*large).lead != 0) };
    if !quarantine::takes(bytes) || !(guarded || admit()) {
        return false;
    }
    let forbidden = protect(run, bytes, false);
    if forbidden {
        drop_pages(run, bytes);
    }
    if forbidden && quarantine::push(p, bytes) {
        return true;
    }
    if !guarded {
        protect(run, bytes, true);
        dismiss();
    }
    false
}
