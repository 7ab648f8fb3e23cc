//! Heaps that one thread goes in and out of, so that blocks which die together lie together.
//!
//! ```text
//!   Place::new ─► a heap beside the thread's own      enter ─► malloc takes from it      guard dropped ─► from the one before
//!   Place dropped ─► drained, cooled, idle: its empty spans go to the pool, the heap to the next thread
//! ```
//!
//! A thread that serves many clients (tabs, requests, documents) in turns has blocks of all of them on each page of its
//! heap; when all but one have ended, each page is pinned by the one. With a place for each they share no span.
//!
//! L1  Only the thread that made a place uses its heap: `Place` and `Inside` are neither Send nor Sync. Entered or not,
//!     it counts as a heap with a thread; so no heap steals from it, and what is freed while another place is entered
//!     goes the way of other threads' frees, until it is entered again or dropped.
//! L2  A thread's own heap stays its own while a place is entered: `Inside` leads back to it, and the end of the thread
//!     gives it back.
//! L3  In the child of a fork only the heap that was entered is still the thread's; places made before the fork do
//!     nothing there (`FORKS`), and blocks in them may still be freed.
//! L4  A place that is dropped while it is entered is left as it is: its heap stays the thread's until the thread ends.
//!
//! Cost: two stores each to enter and to leave, and a lock if other threads have freed. A place costs 12 KiB of
//! metadata, the entries of its magazines, and for each class in use a page or two that is not full.
//!
//! Not here: heaps that several threads use, destroyed whole (`tenant`).

use core::cell::Cell;
use core::marker::PhantomData;

use skinflint_base::sync::{AtomicU32, Ordering};

use crate::heap::Heap;
use crate::{free, thread, tls};

/// Number of forks from the first process down to this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Counts the fork, in its child.
pub(crate) fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed); // ORDER: the child has one thread
}

fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed) // ORDER: written when there is one thread
}

/// A heap beside the thread's own. Blocks that are allocated while it is entered lie in it.
///
/// Blocks outlive their place: they may be used and freed after it was dropped.
pub struct Place {
    heap: *mut Heap,
    entered: Cell<u32>,
    forks: u32,
    not_send: PhantomData<*mut ()>,
}

/// A guard: the thread allocates from a place until it is dropped.
#[must_use = "the place is left at once"]
pub struct Inside<'a> {
    place: Option<&'a Place>,
    before: *mut Heap,
}

impl Place {
    /// Creates a place. `None`: there is no memory, or the thread is ending.
    pub fn new() -> Option<Place> {
        // The thread's own heap comes first, for `thread::ended` (L2).
        let mut own = tls::get();
        if own.is_null() {
            own = thread::enter();
        }
        if own.is_null() || thread::is_ended(own) {
            return None;
        }
        let heap = thread::adopt();
        (!heap.is_null()).then_some(Place {
            heap,
            entered: Cell::new(0),
            forks: forks(),
            not_send: PhantomData,
        })
    }

    /// Makes this thread allocate from the place. Places may be entered within each other, and one more than once.
    ///
    /// Guards must be dropped in the reverse order, as they are when each is a variable of its own block.
    pub fn enter(&self) -> Inside<'_> {
        let before = tls::get();
        if self.forks != forks() || before.is_null() || thread::is_ended(before) {
            return Inside {
                place: None,
                before,
            };
        }
        // SAFETY: heaps stay (state.G4).
        let heap = unsafe { &*self.heap };
        // ORDER: a look; frees that come later wait for the next time (L1).
        if heap.notified.load(Ordering::Relaxed) != 0 && heap.lock.try_lock(heap.who()) {
            // SAFETY: this thread owns the heap (L1), and has its lock.
            unsafe { free::drain(heap) };
            heap.lock.unlock();
        }
        self.entered.set(self.entered.get() + 1);
        tls::set(self.heap);
        Inside {
            place: Some(self),
            before,
        }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        place.entered.set(place.entered.get() - 1);
        // L3; and a thread whose destructors have run has no heap to go back to.
        if place.forks == forks() && !thread::is_ended(tls::get()) {
            tls::set(self.before);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // L3, L4.
        if self.forks == forks() && self.entered.get() == 0 {
            thread::leave_cold(self.heap);
        }
    }
}
