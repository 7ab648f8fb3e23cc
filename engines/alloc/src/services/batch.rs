//! The one batch of pages to give back, and the lock under which it is filled.
//!
//! ```text
//!   purger, trim, a heap that grows ──► PURGE_LOCK ──► batch ──► process_madvise
//! ```
//!
//! Not here: what goes into it (`holes`, `trim`).

use skinflint_pages::purge::Batch;

use crate::mechanism::guarded::Guarded;
use crate::mechanism::lock::Lock;

/// Held for every pass (purger.U3).
pub static PURGE_LOCK: Lock = Lock::new();

/// The one batch, reached only under PURGE_LOCK: 8 KiB, which is too much for a program's stack.
static BATCH: Guarded<Batch> = Guarded::new(Batch::new());

/// Returns the batch.
///
/// # Safety
/// PURGE_LOCK is held, and there is no other reference.
pub unsafe fn batch() -> &'static mut Batch {
    // SAFETY: as the caller promises.
    unsafe { &mut *BATCH.get() }
}
