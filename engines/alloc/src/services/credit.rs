//! What looks at large blocks may cost: a slack that needs none, and a credit that is spent and earned (sparse.Q4).
//!
//! ```text
//!   a block raised the peak, and is freed ─► within the slack? ─► no look
//!                                              │ no
//!                                              ▼
//!                                            credit ─► a look        ▲ earned: touched pages, rounds of the purger
//! ```
//!
//! Not here: the look (`sparse`).

use skinflint_base::sync::{AtomicU32, Ordering};

use crate::heaps::pool::MOST;

/// The slack that is left: a share of the peak, or 512 KiB.
const SLACK: (u32, u32) = (64, 128);
/// Pages of which a look costs 1 of the credit, touched pages that earn 1, what a round of the purger earns, and the most
/// that there is: a look at 256 KiB and its page that comes anew take about 10 µs, so what each round earns
/// buys looks for a hundredth of the time.
const ASKED_FOR_ONE: u32 = 64;
const TOUCHED_FOR_ONE: u32 = 8;
const ROUND: u32 = 256;
const CREDIT_MAX: u32 = 4 * ROUND;
/// The most pages of a block that are asked about, whatever its length.
pub const ASKED_MOST: u32 = 16_384;

static LEFT: AtomicU32 = AtomicU32::new(0);
static CREDIT: AtomicU32 = AtomicU32::new(CREDIT_MAX);

/// Reports whether a block of so many pages is to be looked at, and pays for it (sparse.Q4).
pub fn pay(pages: u32) -> bool {
    // ORDER: figures and hints, here and below.
    let most = MOST.load(Ordering::Relaxed);
    let left = LEFT.load(Ordering::Relaxed).saturating_add(pages);
    if left <= SLACK.1.max(most / SLACK.0) {
        LEFT.store(left, Ordering::Relaxed); // ORDER: as above
        return false;
    }
    // A program that tries how much it may have takes gigabytes, touches none and
    // frees them: the peak that they left let lrzip keep 72 MiB of free pages beside its next buffers.
    let price = pages.min(ASKED_MOST).div_ceil(ASKED_FOR_ONE);
    let pay = |credit: u32| credit.checked_sub(price);
    let (ok, err) = (Ordering::Relaxed, Ordering::Relaxed); // ORDER: as above
    CREDIT.fetch_update(ok, err, pay).is_ok()
}

/// Earns what `pages` touched pages of a block that was looked at are worth.
pub fn touched(pages: u32) {
    earn(pages / TOUCHED_FOR_ONE);
}

fn earn(more: u32) {
    let add = |credit: u32| Some(credit.saturating_add(more).min(CREDIT_MAX));
    let (ok, err) = (Ordering::Relaxed, Ordering::Relaxed); // ORDER: a figure
    let _ = CREDIT.fetch_update(ok, err, add);
}

/// Earns what a round of the purger does, and forgets half of the slack: what lay free behind it has gone back.
pub fn round() {
    earn(ROUND);
    // ORDER: a figure.
    LEFT.store(LEFT.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
}
