//! The client's side of a heap beside allocation: roots, triggers, figures.
//!
//! Not here: the limit and the client's bytes (`limit`).

use core::cell::Cell;
use core::ptr::NonNull;

use crate::heap::address::ARENA_BYTES;
use crate::heap::counts::{Holds, SweepCounts};
use crate::heap::kind::Kind;
use crate::heap::roots::{From, RootId};
use crate::heap::state::Heap;
use crate::heap::trigger::{Collection, Growth, IdleAction, Reason};

impl Heap {
    /// Returns why a collection is due, if one is. Cost: a load.
    #[inline]
    pub fn due(&self) -> Option<Reason> {
        self.triggers.due()
    }

    /// Makes a collection due, for a timer, if something was allocated since the last one, and either nothing for the
    /// time in the table, or that was longer ago than its interval. `now_ns` is from any clock that does not go back.
    pub fn tick(&self, now_ns: u64) -> Option<Reason> {
        if let IdleAction::Collect(reason) = self.triggers.idle_action(now_ns, self.unused_bytes())
        {
            self.triggers.raise(reason);
        }
        self.due()
    }

    /// Makes a collection due, whatever the thresholds say, because memory is short.
    pub fn pressure(&self) {
        self.triggers.raise(Reason::Pressure);
    }

    /// Sets another table of thresholds; it holds from the next collection on, its floor at once.
    pub fn set_growth(&self, growth: Growth) {
        let pace = &self.world.pace;
        if growth.share.is_some() {
            pace.measure();
        }
        let live = self.triggers.used_bytes.get();
        self.triggers.set_growth(growth, live, pace.spent());
    }

    /// Returns the last collections, oldest first; at most [`LOG`](crate::heap::trigger::LOG).
    pub fn log(&self) -> Vec<Collection> {
        self.triggers.log.borrow().iter().copied().collect()
    }

    /// Returns the number of collections so far.
    pub fn collections(&self) -> u64 {
        self.triggers.collections.get()
    }

    /// Returns what was swept where, until now, including what the sweeper has done since the last call.
    pub fn sweep_counts(&self) -> SweepCounts {
        self.take_sums();
        self.counts.borrow().clone()
    }

    /// Keeps an object alive until [`Heap::unroot`].
    ///
    /// # Safety
    /// It is an object of this heap, and alive.
    pub unsafe fn root(&self, object: NonNull<u8>, from: From) -> RootId {
        if from != From::Heap(self.id) {
            // SAFETY: as the caller promises.
            unsafe { self.barrier(object) };
        }
        self.roots.borrow_mut().add(object, from)
    }

    /// Ends a root; returns its object. `None`: there is none of this number.
    ///
    /// # Safety
    /// The number is of this heap and was not ended before: it may be another root's by now.
    pub unsafe fn unroot(&self, id: RootId) -> Option<NonNull<u8>> {
        self.roots.borrow_mut().remove(id)
    }

    /// Returns the object that a root leads to.
    pub fn rooted(&self, id: RootId) -> Option<NonNull<u8>> {
        self.roots.borrow().get(id)
    }

    /// Returns the number of roots.
    pub fn root_count(&self) -> usize {
        self.roots.borrow().len()
    }

    /// Passes each object, in no order, to `visit` with its kind. Everything is swept first. `visit` may not allocate
    /// in the heap.
    ///
    /// # Panics
    /// A finalizer or a trace function of this heap calls it.
    pub fn each_object(&self, mut visit: impl FnMut(NonNull<u8>, &'static Kind)) {
        self.settle_all();
        // A collection that `visit` asks for is refused, also after it panicked.
        struct Looking<'a>(&'a Cell<bool>);
        impl Drop for Looking<'_> {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }
        self.collecting.set(true);
        let _looking = Looking(&self.collecting);
        for chunk in self.chunks.borrow().all() {
            for arena in chunk.arenas() {
                for cell in crate::heap::bits::each(arena.head().allocated.words()) {
                    visit(arena.cell(cell), arena.head().kind.get());
                }
            }
        }
    }

    /// Returns what the heap holds. Everything is swept first.
    ///
    /// # Panics
    /// A finalizer or a trace function of this heap calls it, or the rows do not add up.
    pub fn holds(&self) -> Holds {
        self.settle_all();
        let chunks = self.chunks.borrow();
        let mut holds = Holds {
            held_bytes: chunks.held_bytes(),
            dirty_bytes: chunks.dirty_bytes(),
            client_bytes: self.triggers.client_bytes.get(),
            ..Holds::default()
        };
        for chunk in chunks.all() {
            holds.head_bytes += crate::heap::layout::HEADS * ARENA_BYTES;
            for arena in chunk.arenas() {
                let objects = arena.head().allocated.count();
                let cells = usize::from(arena.head().cells.get());
                let size = arena.object_bytes();
                holds.objects += objects;
                holds.cell_bytes += objects * size;
                holds.free_bytes += (cells - objects) * size;
                let pages = arena.head().pages.get() as usize;
                holds.tail_bytes += pages * ARENA_BYTES - cells * size;
            }
        }
        let parts = holds.head_bytes + holds.cell_bytes + holds.free_bytes + holds.tail_bytes;
        assert_eq!(parts, holds.held_bytes, "rows add up");
        holds
    }
}
