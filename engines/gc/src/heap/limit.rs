//! A heap's limit: what counts towards it, and what happens when it is reached.
//!
//! ```text
//!   arenas and heads held  ─┐
//!   the client's bytes     ─┴─► more than the limit? ─► OutOfMemory ─► due: Shortage (trigger.T6)
//! ```
//!
//! B1  The client's bytes count as if the heap held them. While they and what is held exceed the limit every allocation
//!     is refused, even of a cell in a page that is already held.
//! B2  A request that even an empty heap could not meet is refused without making a collection due.
//!
//! Not here: collecting before the limit is reached (trigger.T5), the pages (chunks.U5).

use crate::heap::shortage::OutOfMemory;
use crate::heap::shortage::Shortage;
use crate::heap::state::Heap;

impl Heap {
    #[cold]
    pub(crate) fn out_of_memory(&self, bytes: usize, shortage: Shortage) -> OutOfMemory {
        let chunks = self.chunks.borrow();
        // A request for which no collection can make room causes none.
        let in_vain = matches!(shortage, Shortage::Size | Shortage::Still);
        if !in_vain && !chunks.is_beyond(bytes) {
            self.triggers.refused(self.world.config.clock.wall_ns());
        }
        OutOfMemory {
            heap: self.name().to_owned(),
            bytes,
            shortage,
            held_bytes: chunks.held_bytes(),
            client_bytes: self.triggers.client_bytes.get(),
        }
    }

    /// Counts `change` more bytes (or fewer) that objects of this heap hold outside of it. They count towards the
    /// thresholds and towards the limit. It cannot fail, since the client has the memory already; it returns whether
    /// the heap is now over its limit: until it is below, each allocation is refused, and a collection is due. A client
    /// that would rather ask first adds the bytes, looks at the result, and takes them back. Cost: some twenty
    /// instructions.
    pub fn client_bytes(&self, change: isize) -> bool {
        self.triggers.client(change);
        let chunks = self.chunks.borrow();
        let was = chunks.is_over();
        chunks.set_client(self.triggers.client_bytes.get());
        let over = chunks.is_over();
        drop(chunks);
        if over && !was && !self.collecting.get() {
            // From here on every allocation checks the limit.
            self.retire();
            self.triggers.refused(self.world.config.clock.wall_ns());
        }
        over
    }

    /// Sets another limit. What is held beyond it is kept; nothing more is taken.
    pub fn set_limit(&self, bytes: usize) {
        self.chunks.borrow_mut().set_limit(bytes);
        self.triggers.set_room(bytes);
        if self.chunks.borrow().is_over() && !self.collecting.get() {
            self.retire();
        }
    }
}
