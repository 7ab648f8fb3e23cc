//! The jobs that a tab has still to do: promise reactions, timers, futures.
//!
//! ```text
//!   engine ──enqueue──► reactions ─┐
//!   setTimeout ───────► timers ────┼──► tab: one timer, then all reactions, then futures polled once
//!   import(), registries► futures ─┘
//! ```
//!
//! Q1  Reactions are run to the last before the next timer, in the order in which they came (ECMA-262 9.5).
//! Q2  Timers run in the order of their time; those of the same time in the order in which they were set.
//! Q3  Futures are kept from turn to turn: the engine has one for each `FinalizationRegistry`, which waits for
//!     the collector, and a registry whose future is dropped never calls back again.
//!
//! Not here: the turn itself (`tab`).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use boa_engine::job::{
    GenericJob, IntervalJob, Job, JobExecutor, NativeAsyncJob, PromiseJob, TimeoutJob,
};
use boa_engine::object::builtins::JsFunction;
use boa_engine::{Context, JsResult, JsValue};

/// A call that waits for its time.
pub enum Timed {
    /// `setTimeout`, `setInterval`: function, arguments, interval in ms if it comes again.
    Call(JsFunction, Vec<JsValue>, Option<u64>),
    /// The engine's own.
    Once(TimeoutJob),
    /// The engine's own, again and again.
    Again(IntervalJob),
}

/// A reaction.
pub enum Reaction {
    /// Of a promise.
    Promise(PromiseJob),
    /// Of anything else.
    Generic(GenericJob),
}

impl Reaction {
    /// Does it.
    pub fn call(self, context: &mut Context) -> JsResult<JsValue> {
        match self {
            Reaction::Promise(job) => job.call(context),
            Reaction::Generic(job) => job.call(context),
        }
    }
}

/// A tab's queues.
#[derive(Default)]
pub struct Jobs {
    reactions: RefCell<VecDeque<Reaction>>,
    futures: RefCell<VecDeque<NativeAsyncJob>>,
    /// By time in ms and number (Q2).
    timers: RefCell<BTreeMap<(u64, u64), Timed>>,
    last: Cell<u64>,
}

impl Jobs {
    /// Sets a timer; its number, from 1.
    pub fn set(&self, at_ms: u64, timed: Timed) -> u64 {
        let number = self.last.get() + 1;
        self.last.set(number);
        self.timers.borrow_mut().insert((at_ms, number), timed);
        number
    }

    /// Sets an interval's next time; the number stays.
    pub fn set_again(&self, at_ms: u64, number: u64, timed: Timed) {
        self.timers.borrow_mut().insert((at_ms, number), timed);
    }

    /// Takes a timer back. An unknown number is no fault, as in browsers.
    pub fn unset(&self, number: u64) {
        self.timers.borrow_mut().retain(|key, _| key.1 != number);
    }

    /// Returns when the next timer is due, if there is one.
    pub fn next_ms(&self) -> Option<u64> {
        self.timers.borrow().keys().next().map(|key| key.0)
    }

    /// The next timer, if it is due.
    pub fn due(&self, now_ms: u64) -> Option<(u64, Timed)> {
        let mut timers = self.timers.borrow_mut();
        let (&(at, number), _) = timers.iter().next()?;
        if at > now_ms {
            return None;
        }
        let timed = timers.remove(&(at, number))?;
        Some((number, timed))
    }

    /// The next reaction.
    pub fn reaction(&self) -> Option<Reaction> {
        self.reactions.borrow_mut().pop_front()
    }

    /// The next future that is not polled yet.
    pub fn future(&self) -> Option<NativeAsyncJob> {
        self.futures.borrow_mut().pop_front()
    }

    /// Forgets everything, so that nothing of the tab is held.
    pub fn clear(&self) {
        // Taken out first: what is dropped may be asked for its queue.
        let reactions = std::mem::take(&mut *self.reactions.borrow_mut());
        let futures = std::mem::take(&mut *self.futures.borrow_mut());
        let timers = std::mem::take(&mut *self.timers.borrow_mut());
        drop((reactions, futures, timers));
    }
}

impl JobExecutor for Jobs {
    fn enqueue_job(self: Rc<Self>, job: Job, context: &mut Context) {
        let now = context.clock().now().millis_since_epoch();
        match job {
            Job::PromiseJob(job) => self
                .reactions
                .borrow_mut()
                .push_back(Reaction::Promise(job)),
            Job::GenericJob(job) => self
                .reactions
                .borrow_mut()
                .push_back(Reaction::Generic(job)),
            Job::AsyncJob(job) | Job::FinalizationRegistryCleanupJob(job) => {
                self.futures.borrow_mut().push_back(job);
            }
            Job::TimeoutJob(job) => {
                self.set(now + job.timeout().as_millis(), Timed::Once(job));
            }
            Job::IntervalJob(job) => {
                self.set(now + job.interval().as_millis(), Timed::Again(job));
            }
            // The engine may get kinds that we do not know; none exists in the version that is pinned.
            _ => {}
        }
    }

    /// The tab takes the turns; the engine itself never calls this.
    fn run_jobs(self: Rc<Self>, context: &mut Context) -> JsResult<()> {
        while let Some(reaction) = self.reaction() {
            reaction.call(context)?;
        }
        Ok(())
    }
}
