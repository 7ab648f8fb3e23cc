//! The checks of a hardened process that can be chosen, a bit each.
//!
//! ```text
//!   SKINFLINT_HARDEN=3 ─► SAMPLE | GUARD | CANARY | ZERO ─► slow::HARDENED
//! ```
//!
//! They are here in a build without hardening too, so that a setting is understood and its absence said.
//!
//! Not here: the checks (`harden`).

use skinflint_base::sync::Ordering;

use crate::heaps::slow::HARDENED;

/// Sampling: one in N blocks stands between guard pages.
pub const SAMPLE: u32 = 1;
/// Large blocks stand between guard pages.
pub const GUARD: u32 = 2;
/// Small blocks have a trailer.
pub const CANARY: u32 = 4;
/// Freed blocks are filled with zero.
pub const ZERO: u32 = 8;
/// Like `ZERO`, and checked when the block is handed out again, with a pattern in it.
pub const POISON: u32 = 16;
/// Freed blocks wait before they are used again.
pub const QUARANTINE: u32 = 32;
/// All checks.
pub const ALL: u32 = 63;
/// The checks that look at every free.
pub const EVERY_FREE: u32 = ALL & !SAMPLE;

/// Reports whether any of these checks is on.
pub fn has(checks: u32) -> bool {
    // ORDER: set at start (harden.Y2).
    HARDENED.load(Ordering::Relaxed) & checks != 0
}
