//! Who sweeps an arena: a heap's thread or the sweeper, never both.
//!
//! ```text
//!   offer ──► pending ──claim──► swept by the heap's thread
//!   (lane by      │
//!    lane)        └──claim_many──► in flight: the sweeper's alone ──give──► done ──take_done──► the heap's again
//! ```
//!
//! H1  An item is in one place: pending, with one claimer, or done. Claims take it out under the lock, so no two
//!     claim it, and everything written before `offer` or `give` is seen by who claims or takes it next.
//! H2  `in_flight` counts the items that the sweeper has. [`Handover::wait_quiet`] returns when it is 0 and stays 0
//!     until the next `offer`, if nothing is pending.
//! H3  A bell that was rung is heard, or was rung after `close`: no lost wake-up.
//! H4  `waiting` is the number of pending items, so that asking whether all is swept costs a lock and two comparisons.
//! H5  What is offered is judged by the `keep` that was set before it: an empty item stays resident or is purged by the
//!     sweeper while it has it.
//!
//! The lock is held for moves within lists, never while anything is swept or finalized. Models: `tests/models.rs`.
//! Rejected: an atomic state in each arena's head, claimed by compare-and-swap. It saves a lock of some 20 ns for
//! an arena whose sweep costs more than that, and would have the sweeper walk heads that the mutator writes.
//!
//! Not here: what sweeping is (`sweep`), the thread (`sweeper`).

use std::collections::VecDeque;

use crate::sync::{Condvar, Mutex, MutexGuard};

/// Items on their way between the two, and sums `S` about those that were swept.
pub(crate) struct Handover<T, S> {
    state: Mutex<State<T, S>>,
    quiet: Condvar,
}

struct State<T, S> {
    pending: Vec<Vec<T>>,
    done: Vec<Vec<T>>,
    waiting: usize,
    in_flight: usize,
    sums: Vec<S>,
    /// Pages of empty items that need not be purged.
    keep: usize,
}

impl<T, S> Handover<T, S> {
    pub(crate) fn new() -> Self {
        Handover {
            state: Mutex::new(State {
                pending: Vec::new(),
                done: Vec::new(),
                waiting: 0,
                in_flight: 0,
                sums: Vec::new(),
                keep: 0,
            }),
            quiet: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T, S>> {
        // Nothing under the lock unwinds half-way.
        self.state.lock().unwrap_or_else(|error| error.into_inner())
    }

    /// The heap's thread: of the items that are offered next, pages of empty ones that are to stay resident.
    pub(crate) fn set_keep(&self, pages: usize) {
        self.lock().keep = pages;
    }

    /// The sweeper: whether an empty item of so many pages stays resident. It is counted then.
    pub(crate) fn keep(&self, pages: usize) -> bool {
        let mut state = self.lock();
        let left = state.keep.checked_sub(pages);
        state.keep = left.unwrap_or(state.keep);
        left.is_some()
    }

    /// The heap's thread: these may be swept by anybody.
    pub(crate) fn offer(&self, lane: usize, items: Vec<T>) {
        let mut state = self.lock();
        let lanes = state.pending.len().max(lane + 1);
        state.pending.resize_with(lanes, Vec::new);
        state.done.resize_with(lanes, Vec::new);
        state.waiting += items.len();
        if let Some(pending) = state.pending.get_mut(lane) {
            pending.extend(items);
        }
    }

    /// The heap's thread: one of a lane, to be swept by itself.
    pub(crate) fn claim(&self, lane: usize) -> Option<T> {
        let mut state = self.lock();
        let item = state.pending.get_mut(lane)?.pop()?;
        state.waiting -= 1;
        Some(item)
    }

    /// The sweeper: up to `most` of some lane. Each is to be given back to that lane.
    pub(crate) fn claim_many(&self, most: usize) -> Option<(usize, Vec<T>)> {
        let mut state = self.lock();
        if state.waiting == 0 {
            return None;
        }
        let lane = state.pending.iter().position(|items| !items.is_empty())?;
        let pending = state.pending.get_mut(lane)?;
        let items = pending.split_off(pending.len().saturating_sub(most));
        state.waiting -= items.len();
        state.in_flight += items.len();
        Some((lane, items))
    }

    /// The sweeper: they are swept.
    pub(crate) fn give(&self, lane: usize, items: Vec<T>, sum: S) {
        let mut state = self.lock();
        state.in_flight -= items.len();
        if let Some(done) = state.done.get_mut(lane) {
            done.extend(items);
        }
        state.sums.push(sum);
        if state.in_flight == 0 {
            self.quiet.notify_all();
        }
    }

    /// The heap's thread: what the sweeper has done of a lane.
    pub(crate) fn take_done(&self, lane: usize) -> Vec<T> {
        let mut state = self.lock();
        state
            .done
            .get_mut(lane)
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// The heap's thread: what the sweeper has done of all lanes, by lane.
    pub(crate) fn take_all_done(&self) -> Vec<Vec<T>> {
        self.lock().done.iter_mut().map(std::mem::take).collect()
    }

    /// The heap's thread: the sums since the last time.
    pub(crate) fn take_sums(&self) -> Vec<S> {
        std::mem::take(&mut self.lock().sums)
    }

    /// Whether nothing is pending and nothing in flight.
    pub(crate) fn is_quiet(&self) -> bool {
        let state = self.lock();
        state.in_flight == 0 && state.waiting == 0
    }

    /// The heap's thread: waits until the sweeper has nothing of ours. Bounded by what it has claimed.
    pub(crate) fn wait_quiet(&self) {
        let mut state = self.lock();
        while state.in_flight > 0 {
            state = self
                .quiet
                .wait(state)
                .unwrap_or_else(|error| error.into_inner());
        }
    }
}

/// Wakes the sweeper: who has offered something.
pub(crate) struct Bell<H> {
    state: Mutex<Rung<H>>,
    rung: Condvar,
}

struct Rung<H> {
    queue: VecDeque<H>,
    closed: bool,
}

impl<H> Bell<H> {
    pub(crate) fn new() -> Self {
        Bell {
            state: Mutex::new(Rung {
                queue: VecDeque::new(),
                closed: false,
            }),
            rung: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Rung<H>> {
        self.state.lock().unwrap_or_else(|error| error.into_inner())
    }

    /// There is something to do for this one.
    pub(crate) fn ring(&self, who: H) {
        self.lock().queue.push_back(who);
        self.rung.notify_one();
    }

    /// The sweeper: who rang. `None`: closed, and all who rang before were heard.
    pub(crate) fn wait(&self) -> Option<H> {
        let mut state = self.lock();
        loop {
            if let Some(who) = state.queue.pop_front() {
                return Some(who);
            }
            if state.closed {
                return None;
            }
            state = self
                .rung
                .wait(state)
                .unwrap_or_else(|error| error.into_inner());
        }
    }

    /// No more will ring.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.rung.notify_all();
    }
}
