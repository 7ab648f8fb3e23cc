//! The hand-over of arenas: a heap's thread or the sweeper sweeps an arena, never both.
//!
//! ```text
//!   offer ──► pending ──claim──► swept by the heap's thread
//!   (lane by      │
//!    lane)        └──claim_many──► in flight: the sweeper's alone ──give──► done ──take_done──► the heap's again
//! ```
//!
//! H1  An item is in one place: pending, with one claimer, or done. Claims take it out under the lock, so no two
//!     threads claim it, and everything written before `offer` or `give` is seen by the thread that claims or takes it
//!     next.
//! H2  `in_flight` counts the items that the sweeper has. [`Handover::wait_quiet`] returns when it is 0 and stays 0
//!     until the next `offer`, if nothing is pending.
//! H3  What is pushed is waited for, or was pushed after `close`: there is no lost wake-up.
//! H4  `waiting` is the number of pending items, so that asking whether all is swept costs a lock and two comparisons.
//! H5  What is offered is judged by the `keep` that was set before it: an empty item stays resident, or the sweeper
//!     purges it while it has it.
//!
//! The lock is held for moves between lists, never while anything is swept or finalized. Models: `tests/models.rs`.
//! Rejected: an atomic state in each arena's head, claimed by compare-and-swap. It saves a lock of some 20 ns for an
//! arena whose sweep costs more than that, and would make the sweeper walk heads that the mutator writes.
//!
//! Not here: sweeping itself (`sweep`), the thread (`sweeper`).

use std::collections::VecDeque;

use super::sync::{Condvar, Mutex, MutexGuard};

/// Items on their way between the two threads, and sums `S` about those that were swept.
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
    /// Number of pages of empty items that need not be purged.
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
        // No code under the lock unwinds half-way.
        self.state.lock().unwrap_or_else(|error| error.into_inner())
    }

    /// Sets how many pages of empty items that are offered next stay resident. For the heap's thread.
    pub(crate) fn set_keep(&self, pages: usize) {
        self.lock().keep = pages;
    }

    /// Reports whether an empty item of `pages` pages stays resident, and counts it if so. For the sweeper.
    pub(crate) fn keep(&self, pages: usize) -> bool {
        let mut state = self.lock();
        let left = state.keep.checked_sub(pages);
        state.keep = left.unwrap_or(state.keep);
        left.is_some()
    }

    /// Offers items of a lane, which either thread may sweep. For the heap's thread.
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

    /// Claims one item of a lane, to be swept by the caller. For the heap's thread.
    pub(crate) fn claim(&self, lane: usize) -> Option<T> {
        let mut state = self.lock();
        let item = state.pending.get_mut(lane)?.pop()?;
        state.waiting -= 1;
        Some(item)
    }

    /// Claims up to `most` items of one lane. Each must be given back to that lane. For the sweeper.
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

    /// Gives items back that are swept. For the sweeper.
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

    /// Takes the items of a lane that the sweeper has done. For the heap's thread.
    pub(crate) fn take_done(&self, lane: usize) -> Vec<T> {
        let mut state = self.lock();
        state
            .done
            .get_mut(lane)
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Takes the items of all lanes that the sweeper has done, by lane. For the heap's thread.
    pub(crate) fn take_all_done(&self) -> Vec<Vec<T>> {
        self.lock().done.iter_mut().map(std::mem::take).collect()
    }

    /// Takes the sums since the last time. For the heap's thread.
    pub(crate) fn take_sums(&self) -> Vec<S> {
        std::mem::take(&mut self.lock().sums)
    }

    /// Reports whether nothing is pending and nothing in flight.
    pub(crate) fn is_quiet(&self) -> bool {
        let state = self.lock();
        state.in_flight == 0 && state.waiting == 0
    }

    /// Waits until the sweeper has none of our items. Bounded by what it has claimed. For the heap's thread.
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

/// Wakes the sweeper, and says which heaps have offered items.
pub(crate) struct WakeQueue<H> {
    state: Mutex<Wakes<H>>,
    changed: Condvar,
}

struct Wakes<H> {
    queue: VecDeque<H>,
    closed: bool,
}

impl<H> WakeQueue<H> {
    pub(crate) fn new() -> Self {
        WakeQueue {
            state: Mutex::new(Wakes {
                queue: VecDeque::new(),
                closed: false,
            }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Wakes<H>> {
        self.state.lock().unwrap_or_else(|error| error.into_inner())
    }

    /// Notes that there is something to do for `who`, and wakes the sweeper.
    pub(crate) fn push(&self, who: H) {
        self.lock().queue.push_back(who);
        self.changed.notify_one();
    }

    /// Waits for a heap that was pushed, the oldest first. `None`: the queue is closed, and all that was pushed before
    /// was taken. For the sweeper.
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
                .changed
                .wait(state)
                .unwrap_or_else(|error| error.into_inner());
        }
    }

    /// Closes the queue: what is pushed later is not waited for.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}
