//! Chooses the slot that a block goes into: one that the same thread freed last, if there is any.
//!
//! ```text
//!   thread's list (newest last) ─► orphans of ended threads ─► another thread's oldest ─► a new one
//! ```
//!
//! P1  A slot taken from another thread is one of its oldest, so that its release is likely epochs ago and no thread
//!     waits.
//! P2  A new slot is taken only if no free one was found in a bounded search, so there are about as many slots as
//!     blocks that ever lived at one time.
//!
//! Not here: the blocks themselves (ledger.rs).

use std::collections::VecDeque;

use super::ledger::Slots;

/// The number of slots that change hands at a time.
const BATCH: usize = 64;
/// The number of lists searched before a new slot is taken.
const LOOKS: usize = 64;

/// All free slots.
pub struct Pool {
    lists: Vec<VecDeque<u32>>,
    orphans: Vec<u32>,
    free: u64,
    next: u32,
    donor: usize,
}

/// The pool, as one thread sees it.
pub struct OfThread<'a> {
    pool: &'a mut Pool,
    thread: usize,
}

impl Pool {
    /// Creates a pool for this many threads.
    pub fn new(threads: usize) -> Pool {
        Pool {
            lists: vec![VecDeque::new(); threads],
            orphans: Vec::new(),
            free: 0,
            next: 0,
            donor: 0,
        }
    }

    /// Returns the pool as this thread sees it.
    pub fn of(&mut self, thread: u32) -> OfThread<'_> {
        OfThread {
            pool: self,
            thread: thread as usize,
        }
    }

    /// Notes that the thread takes no more slots.
    pub fn end_thread(&mut self, thread: u32) {
        let list = std::mem::take(&mut self.lists[thread as usize]);
        self.orphans.extend(list);
    }

    /// Returns the next slot that was never used.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Returns the most slots in use at one time.
    pub fn most(&self) -> u64 {
        u64::from(self.next)
    }

    fn steal(&mut self, thread: usize) -> Option<u32> {
        if let Some(slot) = self.orphans.pop() {
            return Some(slot);
        }
        for _ in 0..LOOKS.min(self.lists.len()) {
            self.donor = (self.donor + 1) % self.lists.len();
            if !self.lists[self.donor].is_empty() {
                let count = BATCH.min(self.lists[self.donor].len());
                let batch: Vec<u32> = self.lists[self.donor].drain(..count).collect();
                self.lists[thread].extend(batch);
                return self.lists[thread].pop_back();
            }
        }
        None
    }
}

impl Slots for OfThread<'_> {
    fn take(&mut self) -> u32 {
        let pool = &mut *self.pool;
        let mut found = pool.lists[self.thread].pop_back();
        if found.is_none() && pool.free > 0 {
            found = pool.steal(self.thread);
        }
        match found {
            Some(slot) => {
                pool.free -= 1;
                slot
            }
            None => {
                let slot = pool.next;
                pool.next = pool.next.saturating_add(1);
                slot
            }
        }
    }

    fn give(&mut self, slot: u32) {
        self.pool.free += 1;
        self.pool.lists[self.thread].push_back(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_the_same_thread_comes_first() {
        let mut pool = Pool::new(2);
        let taken: Vec<u32> = (0..3).map(|_| pool.of(0).take()).collect();
        assert_eq!(taken, [0, 1, 2]);
        pool.of(0).give(1);
        pool.of(0).give(0);
        assert_eq!(
            (pool.of(0).take(), pool.of(0).take(), pool.of(0).take()),
            (0, 1, 3)
        );
    }

    #[test]
    fn a_thread_that_only_frees_feeds_one_that_only_acquires() {
        let mut pool = Pool::new(2);
        for _ in 0..10_000 {
            let slot = pool.of(0).take();
            pool.of(1).give(slot);
        }
        assert_eq!(pool.most(), 1);
        let taken: Vec<u32> = (0..100).map(|_| pool.of(0).take()).collect();
        taken.iter().for_each(|&slot| pool.of(1).give(slot));
        assert_eq!(
            pool.of(0).take(),
            taken[BATCH - 1],
            "of the oldest batch, the newest"
        );
    }

    #[test]
    fn slots_of_an_ended_thread_are_used_again() {
        let mut pool = Pool::new(2);
        let slot = pool.of(0).take();
        pool.of(0).give(slot);
        pool.end_thread(0);
        assert_eq!(pool.of(1).take(), slot);
    }
}
