//! The recorder behind functions without a context, as hooks of a heap want them.
//!
//! ```text
//!   static INSTALLED ─► Shared        alloc(addr, bytes, kind), death(addr)
//! ```
//!
//! H1  Any thread may call them; one recording a process at a time.
//! H2  With nothing installed a call is a lock and a test. A heap that is fast without recording keeps a flag of its
//!     own in front of its hooks.
//!
//! Not here: who calls (`gc`, the JavaScript host).

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Origin, Shared};

static INSTALLED: Mutex<Option<Shared>> = Mutex::new(None);

fn installed() -> MutexGuard<'static, Option<Shared>> {
    INSTALLED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on calls go to this recorder. Returns the one before.
pub fn install(recorder: Shared) -> Option<Shared> {
    installed().replace(recorder)
}

/// Calls go nowhere from now on. Returns the recorder, which is to be finished.
pub fn uninstall() -> Option<Shared> {
    installed().take()
}

/// An object came to be, asked for by the runtime.
pub fn alloc(addr: usize, bytes: usize, kind: &'static str) {
    alloc_from(addr, bytes, kind, Origin::Runtime);
}

/// The same with who asked.
pub fn alloc_from(addr: usize, bytes: usize, kind: &'static str, origin: Origin) {
    if let Some(recorder) = &*installed() {
        recorder.alloc_named(addr, bytes, kind, origin);
    }
}

/// The object at this address is dead; its room is not used again before this returns.
pub fn death(addr: usize) {
    if let Some(recorder) = &*installed() {
        recorder.death(addr);
    }
}

/// A collection ended.
pub fn collection() {
    if let Some(recorder) = &*installed() {
        recorder.collection();
    }
}
