//! Collecting and giving back where nothing is allocated: idle heaps, and pressure.
//!
//! ```text
//!   the host's loop ── tick(now) ──► each heap: nothing taken for `idle_ns`?
//!        ▲                              ├─ something since the last collection ─► due: Idle ─► collected, given back
//!        │ wakes it                     └─ nothing, and free memory is kept    ─► given back
//!        │                              not idle, but long since anything was collected? ─► due: Interval ─► collected
//!   Asker: a thread that calls a closure each period, and touches no heap
//!
//!   pressure(level) ─► Moderate: sweeps, gives back what is free      Critical: collects everything first
//! ```
//!
//! The reason: browsers learned that a heap that grew fast is not looked at again when its page goes quiet, since all
//! triggers are allocations; 20 seconds is Firefox's time.
//!
//! T1  Idle time is measured between two ticks, by the host's clock: without ticks no heap is idle. The same holds for the
//!     interval since the last collection.
//! T2  Memory is given back once after a heap was idle, until something is allocated again.
//! T3  Bytes given back are the sum of the heaps' and their source's own accounts, before less after.
//!
//! Not here: thresholds (`trigger`), giving back during other work (`sweeping`: poll).

use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::heap::address::CHUNK_BYTES;
use crate::heap::set::Busy;
use crate::heap::state::Heap;
use crate::heap::stop::Stop;
use crate::heap::trigger::{IdleAction, Reason};
use crate::heap::world::World;

/// How short memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// What is free is given back; nothing is collected.
    Moderate,
    /// Everything is collected first.
    Critical,
}

/// The effect of pressure, or of idle time.
#[derive(Clone, Debug, Default)]
pub struct Relief {
    /// Bytes that the heaps and their source hold less than before: heads, arenas, free memory that was kept.
    pub returned_bytes: usize,
    /// Names of heaps that were collected. Those that could not be, since closures are running, are collected when
    /// these end.
    pub collected: Vec<String>,
    /// Why some heaps could not be collected.
    pub refused: Option<Busy>,
}

impl Heap {
    /// Sweeps everything and gives back everything that is free; does nothing within a finalizer.
    pub(crate) fn give_back(&self) {
        if !self.collecting.get() && !self.is_finalizing() {
            self.shrink();
            self.triggers.gave_back(self.unused_bytes());
        }
    }
}

impl World {
    /// Returns the bytes that its heaps and its source hold, used or free, and that may be resident.
    pub(crate) fn resident_bytes(&self) -> usize {
        let of_heap = |heap: &Rc<Heap>| {
            let chunks = heap.chunks.borrow();
            chunks.held_bytes() + chunks.dirty_bytes()
        };
        let kept = self.source().counts().ready * CHUNK_BYTES;
        self.heaps().iter().map(of_heap).sum::<usize>() + kept
    }

    /// Handles idle heaps, for the loop of a host, once in some seconds; `now_ns` is from any clock that does not go
    /// back. Gives back what idle heaps keep, and returns those that are due for any reason: the host, which knows
    /// the roots, collects them ([`Heap::advance`]), and calls their [`Heap::shrink`] after it.
    pub fn tick(&self, now_ns: u64) -> Vec<Rc<Heap>> {
        let mut due = Vec::new();
        for heap in self.heaps() {
            match heap.triggers.idle_action(now_ns, heap.unused_bytes()) {
                IdleAction::Collect(reason) => heap.triggers.raise(reason),
                IdleAction::GiveBack => heap.give_back(),
                IdleAction::Nothing => {}
            }
            if heap.due().is_some() {
                due.push(heap);
            }
        }
        due
    }

    /// Gives back what is free at once, because memory is short. Critical: every heap also becomes due for a
    /// collection, which the host does.
    pub fn pressure(&self, level: Pressure) -> Relief {
        let before = self.resident_bytes();
        for heap in self.heaps() {
            if level == Pressure::Critical {
                heap.pressure();
            }
            heap.give_back();
        }
        Relief {
            returned_bytes: before.saturating_sub(self.resident_bytes()),
            ..Relief::default()
        }
    }
}

/// Collects `heap` if that is due, and notes the result. For heaps whose roots are all in tables.
pub(crate) fn collect_due(
    heap: &Heap,
    relief: &mut Relief,
    collect: impl FnOnce(Reason) -> Result<(), Busy>,
) {
    let Some(reason) = heap.due() else { return };
    match collect(reason) {
        Ok(()) => relief.collected.push(heap.name().to_owned()),
        Err(busy) => relief.refused = Some(busy),
    }
}

/// A thread that calls a closure each period, until it is dropped, and does nothing else. The closure wakes the host's
/// loop, which calls `tick`; heaps belong to that loop's thread.
pub struct Asker {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Asker {
    /// Starts the thread. A period of half of [`Growth::idle_ns`](crate::Growth::idle_ns) finds an idle heap at most
    /// half as late again.
    ///
    /// # Errors
    /// The system refused a thread.
    pub fn start(
        period: Duration,
        mut ask: impl FnMut() + Send + 'static,
    ) -> std::io::Result<Asker> {
        let stop = Arc::new(Stop::new());
        let heard = stop.clone();
        let run = move || {
            while !heard.wait(period) {
                ask();
            }
        };
        let thread = std::thread::Builder::new()
            .name("skinflint-ask".to_owned())
            .spawn(run)?;
        Ok(Asker {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Asker {
    /// Waits for a closure that is running.
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // The panic of a closure was printed when it happened.
            let _ = thread.join();
        }
    }
}
