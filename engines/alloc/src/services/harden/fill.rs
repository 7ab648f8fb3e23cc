//! The fill of freed bytes: written at the free, checked later.
//!
//! ```text
//!   freed ─► zero or the quarantine's byte ─► … ─► unchanged?
//! ```
//!
//! Not here: when blocks are filled (`checks`, `quarantine`).

use core::sync::atomic::compiler_fence;

use skinflint_base::sync::Ordering;

use super::trailer;
use crate::heaps::fault::{self, Fault};
use crate::services::modes::{self, has};

/// Looks for bytes that were changed since the block was freed.
pub fn check_unchanged(p: *mut u8, size: usize, checked: usize, fill: u8) {
    if trailer::is_filled(p as usize, checked, fill) {
        return;
    }
    let at = (0..checked)
        // SAFETY: the block has this many bytes.
        .find(|&i| unsafe { p.add(i).read_volatile() } != fill)
        .unwrap_or(0);
    fault::report_more(Fault::Written, p, |line| {
        line.add(b", byte ");
        line.add_number(at as u64);
        line.add(b" of ");
        line.add_number(size as u64);
    });
    // If the program goes on: as if nothing were wrong.
    // SAFETY: as above.
    unsafe { core::ptr::write_bytes(p, 0, checked) };
}

/// Fills a small block that is about to be free (harden.Y3), and removes its trailer.
pub fn wipe(p: *mut u8, size: usize) {
    if has(modes::ZERO | modes::POISON) {
        // SAFETY: the block is given up, and has this many bytes.
        unsafe { core::ptr::write_bytes(p, 0, size) };
        // The compiler must not think the fill useless.
        compiler_fence(Ordering::SeqCst); // ORDER: of the compiler only. [reason: compiler]
    } else if has(modes::CANARY) {
        trailer::forget(p, size);
    }
}
