//! Many threads near a new peak: what the others hold free goes back before the process holds more.
//!
//! ```text
//!   pool: the most pages in use pass PEAK_LOOK ─► LOOK ─► the next slow path, without a lock ─► sweep
//!   sweep   magazines of all other threads (idle) ─► pages without a live block in every heap (holes)
//! ```
//!
//! T1  Each thread keeps some free blocks of each size that it uses, which is why it needs no lock. Sixty threads kept
//!     14 MB so beside 6 MB of live blocks (stunnel4, which starts a thread for each client).
//! T2  A sweep walks all spans, so it is due only when the peak has risen by a sixteenth since the last: then the walk
//!     costs a small part of what the growth does. From [`THREADS_MIN`] threads on; a few hold little.
//! T3  The system calls are those of the caller's thread. Where there is no purger (`SKINFLINT_PURGE=off`, a filter of system
//!     calls) nothing is done.
//!
//! Not here: what a thread gives up of its own before it takes a span (`heaps::retire`), free runs (`pages::claim`).

use skinflint_base::sync::Ordering;

use super::batch::{PURGE_LOCK, batch};
use super::{holes, idle, purger};
use crate::heaps::pool::{MOST, heaps};
use crate::heaps::retire::{THREADS, THREADS_MIN};
use crate::heaps::slow::PEAK_LOOK;
use crate::heaps::tls;

/// The least growth of the peak between two sweeps, in pages: 512 KiB. And its share of the peak, one in so many.
const GROWTH: (u32, u32) = (128, 16);

/// Sweeps, if that is due. No lock is held.
pub fn look() {
    // ORDER: hints, throughout.
    let most = MOST.load(Ordering::Relaxed);
    if most < PEAK_LOOK.load(Ordering::Relaxed) || THREADS.load(Ordering::Relaxed) < THREADS_MIN {
        return;
    }
    PEAK_LOOK.store(most + GROWTH.0.max(most / GROWTH.1), Ordering::Relaxed); // ORDER: as above
    if !purger::may_be() {
        return;
    }
    let (who, mine) = (tls::who(), tls::get());
    // Another thread that has it purges already.
    if !PURGE_LOCK.try_lock(who) {
        return;
    }
    // SAFETY: the lock is held.
    let batch = unsafe { batch() };
    idle::of_all(who, mine, batch);
    for heap in heaps() {
        holes::walk(heap, who, batch);
    }
    PURGE_LOCK.unlock();
}
