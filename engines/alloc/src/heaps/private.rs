//! Heaps that one thread goes in and out of, so that blocks which die together lie together.
//!
//! ```text
//!   PrivateHeap::new ─► a heap beside the thread's own    within ─► malloc takes from it ─► and then from the one before
//!   dropped ─► drained, cooled, idle: its empty spans go to the pool, the heap to the next thread
//! ```
//!
//! A thread that serves many clients (tabs, requests, documents) in turns has blocks of all of them on each page of its
//! heap; when all but one have ended, each page is pinned by the one. With a private heap for each they share no span.
//!
//! L1  Only the thread that created a private heap uses it: `PrivateHeap` is neither Send nor Sync. Entered or not, it
//!     counts as a heap with a thread; so no heap steals from it, and what is freed while another one is entered goes the
//!     way of other threads' frees, until it is entered again or dropped.
//! L2  It is entered for the time of a call ([`PrivateHeap::within`]), and left in the reverse order whatever happens in
//!     it, a panic too: so no thread allocates from a private heap that was dropped. With guards, which a caller could
//!     drop in any order, two threads came to one heap.
//! L3  In the child of a fork only the heap that was entered is still the thread's; private heaps created before the fork
//!     do nothing there (`fork::forks`), and blocks in them may still be freed.
//! L4  A thread's own heap stays its own while a private one is entered. A thread that ends in there (`pthread_exit`)
//!     gives back the private one; its own has no user any more, and no harm is done.
//!
//! Cost: two stores each to enter and to leave, and a lock if other threads have freed. A private heap costs 12 KiB of
//! metadata, the entries of its magazines, and for each class in use a page or two that is not full; 4 KiB stay when it has
//! ended (`hollow`).
//!
//! Not here: heaps that several threads use, destroyed whole (`tenant`).

use core::marker::PhantomData;

use skinflint_base::sync::Ordering;

use super::fork::forks;
use super::{events, thread, tls};
use crate::mechanism::heap::Heap;

/// A heap beside the thread's own. Blocks that are allocated while it is entered lie in it.
///
/// Blocks outlive their private heap: they may be used and freed after it was dropped.
pub struct PrivateHeap {
    heap: *mut Heap,
    forks: u32,
    not_send: PhantomData<*mut ()>,
}

/// Leads back to the heap of before, when it is dropped: at the end of [`PrivateHeap::within`], or as a panic goes by.
struct Back {
    before: *mut Heap,
    forks: u32,
}

impl PrivateHeap {
    /// Creates a private heap. `None`: there is no memory, or the thread is ending.
    pub fn new() -> Option<PrivateHeap> {
        // The thread's own heap comes first, for `thread::ended`.
        let mut own = tls::get();
        if own.is_null() {
            own = thread::enter();
        }
        if own.is_null() || tls::is_ended(own) {
            return None;
        }
        let heap = thread::adopt();
        (!heap.is_null()).then_some(PrivateHeap {
            heap,
            forks: forks(),
            not_send: PhantomData,
        })
    }

    /// Runs `work`, during which this thread allocates from the private heap; returns its result. Private heaps may be
    /// entered within each other, and one more than once.
    ///
    /// ```
    /// let heap = skinflint_alloc::PrivateHeap::new().expect("memory");
    /// let text = heap.within(|| String::from("lies in the private heap, if this is the global allocator"));
    /// drop(heap);
    /// assert!(text.starts_with("lies"));
    /// ```
    pub fn within<R>(&self, work: impl FnOnce() -> R) -> R {
        let before = tls::get();
        if self.forks != forks() || before.is_null() || tls::is_ended(before) {
            return work();
        }
        // SAFETY: heaps stay (pool.G4).
        let heap = unsafe { &*self.heap };
        // ORDER: a look; frees that come later wait for the next time (L1).
        if heap.notified.load(Ordering::Relaxed) != 0 && heap.lock.try_lock(heap.who()) {
            // SAFETY: this thread owns the heap (L1), and has its lock.
            unsafe { events::drain(heap) };
            heap.lock.unlock();
        }
        let _back = Back {
            before,
            forks: self.forks,
        };
        tls::set(self.heap);
        work()
    }
}

impl Drop for Back {
    fn drop(&mut self) {
        // L3; and a thread whose destructors have run has no heap to go back to.
        if self.forks == forks() && !tls::is_ended(tls::get()) {
            tls::set(self.before);
        }
    }
}

impl Drop for PrivateHeap {
    fn drop(&mut self) {
        // L3. It is not entered: the call that enters it borrows it (L2).
        if self.forks == forks() {
            thread::leave_cold(self.heap);
        }
    }
}
