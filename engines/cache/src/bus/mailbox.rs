//! A listener whose work only its owner's thread may do: a garbage-collected heap, a window's layout.
//!
//! ```text
//!   bus thread: release ─► ask lies in the box ─► waits, bounded ─► dropped
//!   owner:                      serve(|ask| …) at a safe moment of its own ──┘
//! ```
//!
//! M1  At most one ask lies in the box. An owner that does not answer in time is not waited for beyond [`Ask::until`]
//!     or the box's patience. Its answer, when it comes, is in the resident memory that the next round measures, not in
//!     the row.
//! M2  The owner checks with one load ([`Mailbox::is_asked`]), so it may check often.
//! M3  An owner that waits for the very round that asks it, because one of its allocations was refused, is not waited
//!     for: the ask stays in the box.
//!
//! Not here: waking an owner that sleeps; the program passes a function for that.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use skinflint_base::sync::{AtomicU32, AtomicUsize, Ordering};
use skinflint_base::sys;

use super::listener::{Ask, Listener, Rebuild};

#[derive(Default)]
struct State {
    ask: Option<Ask>,
    answer: Option<usize>,
}

/// A box between the bus and an owner. Any thread may hold it; one thread serves it.
pub struct Mailbox {
    name: String,
    rebuild: Rebuild,
    patience: Duration,
    wake: Box<dyn Fn() + Send + Sync>,
    asked: AtomicU32,
    owner: AtomicU32,
    late: AtomicUsize,
    state: Mutex<State>,
    answered: Condvar,
}

impl Mailbox {
    /// Creates a box whose owner is the calling thread until another one serves it. `wake` runs on the bus's thread
    /// after an ask was put in: to end the owner's sleep.
    pub fn new(
        name: impl Into<String>,
        rebuild: Rebuild,
        patience: Duration,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Mailbox {
        Mailbox {
            name: name.into(),
            rebuild,
            patience,
            wake: Box::new(wake),
            asked: AtomicU32::new(0),
            owner: AtomicU32::new(sys::gettid()),
            late: AtomicUsize::new(0),
            state: Mutex::new(State::default()),
            answered: Condvar::new(),
        }
    }

    /// Reports whether an ask lies in the box. Cost: a load.
    #[inline]
    pub fn is_asked(&self) -> bool {
        // ORDER: a hint; the mutex orders.
        self.asked.load(Ordering::Relaxed) != 0
    }

    /// Answers an ask, if there is one: `act` drops memory, and returns the bytes dropped.
    pub fn serve(&self, act: impl FnOnce(Ask) -> usize) {
        if !self.is_asked() {
            return;
        }
        self.owner.store(sys::gettid(), Ordering::Relaxed); // ORDER: a hint (M3)
        let ask = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            self.asked.store(0, Ordering::Relaxed); // ORDER: as in `is_asked`
            state.ask.take()
        };
        if let Some(ask) = ask {
            let dropped = act(ask);
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.answer = Some(dropped);
            self.answered.notify_all();
        }
    }

    /// Returns the number of asks that the owner did not answer in time.
    pub fn late(&self) -> usize {
        // ORDER: a statistic.
        self.late.load(Ordering::Relaxed)
    }
}

impl Listener for Mailbox {
    fn name(&self) -> &str {
        &self.name
    }

    fn rebuild(&self) -> Rebuild {
        self.rebuild
    }

    fn release(&self, ask: Ask) -> usize {
        // ORDER: a hint: an owner that is not recognised is waited for as long as the patience.
        let in_vain = ask.waiting.contains(&self.owner.load(Ordering::Relaxed));
        let patience = if in_vain {
            Duration::ZERO
        } else {
            self.patience
        };
        let end = ask.until.min(Instant::now() + patience);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.ask = Some(ask);
        state.answer = None;
        self.asked.store(1, Ordering::Relaxed); // ORDER: as in `is_asked`
        drop(state);
        (self.wake)();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(dropped) = state.answer.take() {
                return dropped;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // The ask stays in the box: a late answer still gives memory back.
                self.late.fetch_add(1, Ordering::Relaxed); // ORDER: a statistic
                return 0;
            }
            state = self
                .answered
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}
