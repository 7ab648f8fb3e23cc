//! The worlds of this thread in which a heap is being marked.
//!
//! ```text
//!   thread ─► first ─► Shared ─next_marked─► Shared ─► null          null: no barrier has anything to do
//! ```
//!
//! A cell that is written lies in an object, or in memory that an object owns, or in neither; nothing at hand tells of
//! which world that is, and the right of the caller ([`Cx`](crate::typed::Cx)) may be another world's. So the barrier
//! of such cells asks all of them.
//!
//! D1  A world is on the list of its thread exactly while its `markings` is not 0. Then a heap of it is being marked,
//!     which holds a count of the world: the list leads to no world that is gone. (A heap gives its marking up before
//!     it is dropped.)
//!
//! D2  Collections of counted values that are in progress want to hear of the same writes (`counted::moved`): one number
//!     of both is what a write looks at.
//!
//! Rejected: a list of counted pointers, whose destructor runs at the thread's end, perhaps before that of a runtime
//! that is in a thread-local variable, too.
//!
//! Not here: what the barrier does in each of them (`barrier`, `typed::slot`).

use core::cell::Cell;

use crate::heap::state::Shared;

thread_local! {
    static FIRST: Cell<*const Shared> = const { Cell::new(core::ptr::null()) };
    /// Number of worlds on the list, and of collections of counted values that are in progress (D2).
    static WATCHES: Cell<u32> = const { Cell::new(0) };
}

/// Reports whether anything on this thread has to hear of writes to cells (D2). Cost: a load.
#[inline]
pub(crate) fn writes_are_watched() -> bool {
    WATCHES.get() > 0
}

/// Counts one more that has to hear of them.
pub(crate) fn watch_writes() {
    WATCHES.set(WATCHES.get() + 1);
}

/// Counts one fewer.
pub(crate) fn unwatch_writes() {
    WATCHES.set(WATCHES.get() - 1);
}

/// Returns the first value that `find` gives for a world in which a heap is being marked.
pub(crate) fn find_marked<R>(mut find: impl FnMut(&Shared) -> Option<R>) -> Option<R> {
    let mut next = FIRST.get();
    // SAFETY: D1; `find` has shared access only, and begins or ends no marking (it looks up numbers and notes edges).
    while let Some(world) = unsafe { next.as_ref() } {
        if let Some(found) = find(world) {
            return Some(found);
        }
        next = world.next_marked.get();
    }
    None
}

impl Shared {
    /// Counts one more heap that is being marked.
    pub(super) fn marks_one_more(&self) {
        let on = self.markings.get();
        self.markings.set(on + 1);
        if on == 0 {
            watch_writes();
            self.next_marked.set(FIRST.replace(self));
        }
    }

    /// Counts `heaps` fewer that are being marked.
    pub(super) fn marks_fewer(&self, heaps: u32) {
        let on = self.markings.get() - heaps;
        self.markings.set(on);
        if on > 0 || heaps == 0 {
            return;
        }
        unwatch_writes();
        let after = self.next_marked.replace(core::ptr::null());
        if core::ptr::eq(FIRST.get(), self) {
            FIRST.set(after);
            return;
        }
        let before = find_marked(|world| {
            core::ptr::eq(world.next_marked.get(), self).then(|| core::ptr::from_ref(world))
        });
        // SAFETY: D1, and it is another world than this one.
        if let Some(before) = before.and_then(|world| unsafe { world.as_ref() }) {
            before.next_marked.set(after);
        }
    }
}
