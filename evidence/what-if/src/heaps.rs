//! The heap of each thread.
//!
//! ```text
//!   thread ──► its heap, if it has one │ the first heap whose thread has ended │ a new heap
//! ```
//!
//! H1  A heap has one thread at a time.
//!
//! Not here: what lies in a heap (`spans.rs`, `chunks.rs`).

use skinflint_trace::ThreadId;

/// Which thread has which heap.
#[derive(Default)]
pub(crate) struct Heaps {
    of: Vec<Option<u32>>,
    /// The thread that has each heap.
    owners: Vec<u32>,
}

impl Heaps {
    /// Returns the heap of a thread; a new thread takes over that of a thread that has ended.
    pub(crate) fn of(&mut self, thread: ThreadId, now_ns: u64, ends: &[Option<u64>]) -> u32 {
        let index = thread.0 as usize;
        if let Some(Some(heap)) = self.of.get(index) {
            return *heap;
        }
        let ended = |owner: &u32| {
            let end = ends.get(*owner as usize).copied().flatten();
            end.is_some_and(|end| end <= now_ns)
        };
        let heap = match self.owners.iter().position(ended) {
            Some(heap) => heap,
            None => {
                self.owners.push(thread.0);
                self.owners.len() - 1
            }
        };
        self.owners[heap] = thread.0;
        if index >= self.of.len() {
            self.of.resize(index + 1, None);
        }
        self.of[index] = Some(heap as u32);
        heap as u32
    }

    /// Returns the number of heaps so far.
    pub(crate) fn count(&self) -> u64 {
        self.owners.len() as u64
    }

    /// Returns the bytes that the table of threads holds.
    pub(crate) fn table_bytes(&self) -> usize {
        self.of.capacity() * 8
    }
}
