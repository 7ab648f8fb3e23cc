//! For tests of this crate that use the engine, which a process has one of.
//!
//! ```text
//!   test ─► alone() ─► own(), new(): a heap of its own ─► …                     one test at a time, and no purger
//!   test ─► in_child("its::name", act) ─► itself, as a child: act ─► status, and what stood on stderr
//! ```
//!
//! N1  A test that uses heaps, the pool or a count of the process holds the guard of `alone`, so that what is counted is its own.
//!
//! Not here: tests from outside (`tests/`).

use std::process::Command;
use std::sync::{Mutex, MutexGuard};

use crate::heaps::{pool, thread};
use crate::mechanism::heap::Heap;
use crate::mechanism::lock;
use crate::services::purger;

static ONE: Mutex<()> = Mutex::new(());

/// Waits until no other test uses the engine (N1), and maps the range.
pub fn alone() -> MutexGuard<'static, ()> {
    let guard = ONE.lock().unwrap_or_else(|error| error.into_inner());
    purger::allow(false);
    assert!(pool::start(lock::NOBODY));
    guard
}

/// A thread's heap, though no thread uses it: the caller's until it leaves it.
pub fn own() -> &'static Heap {
    // SAFETY: heaps stay (pool.G4).
    unsafe { &*thread::adopt() }
}

/// A heap without a thread, which has no span yet, and which no thread will have.
pub fn new() -> &'static Heap {
    // SAFETY: heaps stay (pool.G4).
    unsafe { &*pool::new_heap(lock::NOBODY) }
}

/// Has `act` done by a child, which is the test of this name and nothing else: how it ended, and what it said on stderr.
/// `None` in the child itself, if it comes back.
pub fn in_child(name: &str, act: impl FnOnce()) -> Option<(std::process::ExitStatus, String)> {
    const CHILD: &str = "SKINFLINT_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        act();
        return None;
    }
    let itself = std::env::current_exe().expect("this test");
    let child = Command::new(itself)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&child.stderr).into_owned();
    Some((child.status, said))
}
