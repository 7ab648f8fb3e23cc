//! The recorder behind functions without a context argument, as the hooks of a heap want them.
//!
//! ```text
//!   static INSTALLED ─► Shared        alloc(addr, bytes, kind), death(addr)
//! ```
//!
//! H1  Any thread may call them. A process has one recording at a time.
//! H2  With nothing installed, a call costs a lock and a test. A heap that wants to be fast without a recording keeps
//!     a flag of its own in front of its hooks.
//!
//! Not here: the callers (`gc`, the JavaScript host).

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Origin, Shared};

static INSTALLED: Mutex<Option<Shared>> = Mutex::new(None);

fn installed() -> MutexGuard<'static, Option<Shared>> {
    INSTALLED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the recorder that calls go to from now on. Returns the one before.
pub fn install(recorder: Shared) -> Option<Shared> {
    installed().replace(recorder)
}

/// Removes the recorder: calls do nothing from now on. Returns it; the caller finishes it.
pub fn uninstall() -> Option<Shared> {
    installed().take()
}

/// Records that an object was allocated for the runtime.
pub fn alloc(addr: usize, bytes: usize, kind: &'static str) {
    alloc_from(addr, bytes, kind, Origin::Runtime);
}

/// Records that an object was allocated, and for which part of the program.
pub fn alloc_from(addr: usize, bytes: usize, kind: &'static str, origin: Origin) {
    if let Some(recorder) = &*installed() {
        recorder.alloc_named(addr, bytes, kind, origin);
    }
}

/// Records that the object at this address is dead; its room must not be used again before this returns.
pub fn death(addr: usize) {
    if let Some(recorder) = &*installed() {
        recorder.death(addr);
    }
}

/// Records that a collection ended.
pub fn collection() {
    if let Some(recorder) = &*installed() {
        recorder.collection();
    }
}
