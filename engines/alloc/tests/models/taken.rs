//! Blocks that another thread takes out of a magazine while its owner goes on.
//!
//! ```text
//!   owner   pop, push (sections) ── slow path: open (lock)       taker   revoke (lock) ─► barrier ─► take, purge (lock)
//! ```
//!
//! M5  A mutex stands for what the kernel does with a restartable section: to a barrier it is one step, and to nothing else.
//!
//! Not here: the sections in assembly, which do what `Bounds::pop` and `Bounds::push` do (`services::idle::tests`).

use skinflint_interleave::{Arc, Mutex, Watched, check, thread};

use super::bits::SlotBits;
use super::lock::Lock;
use super::magazine::Bounds;
use super::{PREEMPTIONS, remote, who};

/// A heap of one span with two blocks, and a magazine with room for both.
struct Small {
    lock: Lock,
    /// A section of the owner's (M5).
    section: Mutex<()>,
    bounds: Bounds<Watched<usize>>,
    room: [Watched<usize>; 2],
    slot_bits: SlotBits,
    blocks: [Watched<u32>; 2],
}

impl Small {
    fn new() -> Arc<Small> {
        let heap = Arc::new(Small {
            lock: Lock::new(),
            section: Mutex::new(()),
            bounds: Bounds::new(),
            room: [0, 1].map(Watched::new),
            slot_bits: SlotBits::none(),
            blocks: [Watched::new(0), Watched::new(0)],
        });
        heap.slot_bits.bury(3);
        // SAFETY: both entries are there, and nobody else is.
        unsafe { heap.bounds.open(heap.entry(0), 2, 2) };
        heap
    }

    fn entry(&self, at: usize) -> *mut Watched<usize> {
        (&raw const self.room[at]).cast_mut()
    }

    fn pop(&self) -> Option<usize> {
        let _section = self.section.lock().expect("no panic");
        // SAFETY: the owner calls; entries are cells that are looked at.
        unsafe { self.bounds.pop(|entry| (*entry).with(|block| *block)) }
    }

    /// The owner's malloc: the magazine, else what is still in it, else what is free.
    fn malloc(&self) -> Option<usize> {
        self.pop().or_else(|| {
            assert!(self.lock.lock(who(0)));
            // SAFETY: the owner has the lock.
            unsafe {
                if self.bounds.reopen(2) == 0 {
                    self.slot_bits.collect();
                    let mut held = 0;
                    while let Some(slot) = self.slot_bits.take() {
                        (*self.entry(held)).with_mut(|block| *block = slot as usize);
                        held += 1;
                    }
                    self.bounds.open(self.entry(0), held, 2);
                }
            }
            self.lock.unlock();
            self.pop()
        })
    }

    /// The owner's free.
    fn free(&self, block: usize) {
        self.slot_bits.bury(1 << block);
        let section = self.section.lock().expect("no panic");
        // SAFETY: the owner calls; entries are cells.
        let kept = unsafe {
            self.bounds
                .push(|entry| (*entry).with_mut(|at| *at = block))
        };
        drop(section);
        if !kept {
            self.slot_bits.give(1 << block);
        }
    }

    /// Another thread's: what is in the magazine, and then the pages of all that is free.
    fn take(&self) {
        assert!(self.lock.lock(who(1)));
        assert!(self.bounds.revoke());
        self.lock.unlock();
        // The barrier.
        drop(self.section.lock().expect("no panic"));
        assert!(self.lock.lock(who(1)));
        if self.bounds.is_revoked() {
            // SAFETY: the lock is held, and the barrier has come.
            unsafe {
                self.bounds.take(|entry| {
                    let block = (*entry).with(|block| *block);
                    assert!(remote::set(&self.slot_bits.remote, 1 << block));
                });
            }
        }
        let free = self.slot_bits.free_bits();
        for block in (0..2).filter(|block| free >> block & 1 != 0) {
            self.blocks[block].with_mut(|content| *content = 0);
        }
        self.lock.unlock();
    }
}

/// The owner takes blocks from its magazine, writes to them and puts them back, while another thread takes all that is in
/// there: no block is lost, none is in two places, and none that the owner has is purged.
///
/// Fails without the barrier, and if `Bounds::take` opens the magazine (magazine.M3), whatever its orderings.
#[test]
fn what_is_in_a_magazine_is_taken_once() {
    check(PREEMPTIONS, || {
        let heap = Small::new();
        let other = heap.clone();
        let taker = thread::spawn(move || other.take());
        let mut hand = Vec::new();
        let use_one = |block: usize| heap.blocks[block].with_mut(|content| *content += 1);
        for _ in 0..2 {
            let block = heap.malloc().expect("one is free");
            use_one(block);
            heap.free(block);
        }
        hand.extend(heap.malloc());
        hand.iter().for_each(|&block| use_one(block));
        taker.join().expect("ends");
        let mut places = hand;
        let (free, held) = (heap.slot_bits.free_bits(), heap.bounds.held());
        // SAFETY: there is one thread.
        places.extend((0..held).map(|at| unsafe { (*heap.entry(at)).with(|block| *block) }));
        places.extend((0..2).filter(|block| free >> block & 1 != 0));
        places.sort_unstable();
        assert_eq!(places, [0, 1], "each in one place");
    });
}
