//! The thread that sweeps beside the mutators.
//!
//! ```text
//!   heap ─request(handover)─► [skinflint-gc] ─ claim_many ─ sweep each ─ purge the empty ─ give ─► heap
//! ```
//!
//! R1  It is started with the first heap that uses it and ends with its world.
//! R2  It has a batch at a time, so a heap that waits for it waits for a batch (and its finalizers).
//! R3  A world whose thread cannot be started sweeps on its mutators: nothing else changes.
//!
//! R5  Empty arenas are purged here, except as many as the heap will need before its next collection
//!     (`Handover::keep`): memory goes back while the heap's thread does something else. The arena is still the
//!     sweeper's then; only its heap's thread marks it as free in its chunk.
//! R4  A child of `fork` has no sweeper, and loses what the parent's sweeper had at that moment: heaps must not be used
//!     there, like anything else with threads.
//!
//! Not here: which arenas may come here (`collect`), the protocol (`handover`).

use std::sync::Arc;
use std::thread::JoinHandle;

use crate::heap::address::{ARENA_BYTES, Arena};
#[cfg(not(miri))]
use crate::heap::backing::Purger;
#[cfg(miri)]
use crate::heap::backing_miri::Purger;
use crate::heap::handover::{Handover, WakeQueue};
use crate::heap::sweep::{Tally, sweep};

/// Arenas of a batch: 64 KiB, some ten microseconds without finalizers.
const BATCH: usize = 16;

pub(crate) type Shared = Arc<Handover<Arena, Tally>>;

/// The heap that has offered arenas, and whether freed cells are poisoned.
type Request = (Shared, bool);

pub(crate) struct Sweeper {
    queue: Arc<WakeQueue<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl Sweeper {
    /// Starts the thread; `None`: the system refused (R3).
    pub(crate) fn start() -> Option<Sweeper> {
        let queue = Arc::new(WakeQueue::new());
        let heard = queue.clone();
        let thread = std::thread::Builder::new()
            .name("skinflint-gc".to_owned())
            .spawn(move || run(&heard))
            .ok()?;
        Some(Sweeper {
            queue,
            thread: Some(thread),
        })
    }

    pub(crate) fn request(&self, who: Shared, poison: bool) {
        self.queue.push((who, poison));
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            // The thread does not panic: finalizers are contained (sweep.W3).
            let _ = thread.join();
        }
    }
}

fn run(queue: &WakeQueue<Request>) {
    let mut purger = Purger::new();
    while let Some((handover, poison)) = queue.wait() {
        while let Some((lane, arenas)) = handover.claim_many(BATCH) {
            let mut tally = Tally::default();
            for &arena in &arenas {
                sweep(arena, poison, &mut tally);
                let head = arena.head();
                let pages = head.pages.get() as usize;
                if head.live.get() == 0 && !handover.keep(pages) {
                    head.clean.set(true);
                    purger.add(arena.0, pages * ARENA_BYTES);
                    tally.purged_bytes += (pages * ARENA_BYTES) as u64;
                }
            }
            // R5: before they are given back.
            purger.flush();
            handover.give(lane, arenas, tally);
        }
    }
}
