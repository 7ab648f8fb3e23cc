//! Actions that the user asks for, each done on a thread that can be left behind.
//!
//! ```text
//!   asker ─ spawns ─► worker: [ the action ] ─► what came of it
//!      └─ waits, with a deadline: an action that hangs is named, and not asked again before it has returned
//! ```
//!
//! A1  At most one thread is lost to an action that hangs, and no asker waits for it twice.
//! A2  The panic of an action is its answer, and the next action is asked.
//! A3  After [`Busy::remove`] of an action has returned `true`, it is not running and will not run.
//!
//! Not here: which actions there are, and in which order they are asked (`registry`).

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::busy::{Busy, Entered};
use crate::clock::Clock;
use crate::quiet;
use crate::round::guarded;

type Work = Box<dyn Fn() -> String + Send + Sync>;

/// The outcome of an action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Done {
    /// The name under which the action was added.
    pub who: String,
    /// The result, in the action's own words.
    pub said: String,
    /// How long it took.
    pub took: Duration,
}

/// An action under its name.
pub(crate) struct Doer {
    name: String,
    work: Work,
    /// Whether a worker is inside it (A1).
    pub busy: Busy,
}

impl Doer {
    pub(crate) fn new(name: &str, work: Work) -> Doer {
        Doer {
            name: name.to_owned(),
            work,
            busy: Busy::new(),
        }
    }

    /// Has the action done, and waits for it until the deadline. `None`: it has been removed.
    pub(crate) fn run(self: &Arc<Doer>, deadline: Duration, clock: &Clock) -> Option<Done> {
        let begin = Instant::now();
        let until = clock.now() + deadline;
        let (tell, told) = mpsc::sync_channel(1);
        let doer = Arc::clone(self);
        let work = move || {
            let entered = doer.busy.enter();
            let mut said = String::new();
            if entered == Entered::In {
                let panicked = guarded(|| said = (doer.work)()).is_some();
                if panicked {
                    said = "it panicked".into();
                }
                doer.busy.leave();
            }
            // An asker that waits no more has reported that the action hangs.
            let _ = tell.send((entered, said));
        };
        let said = match quiet::spawn("skinflint-act", work) {
            Err(error) => format!("no thread to do it on: {error}"),
            Ok(thread) => match heard(&told, until, clock) {
                Some((entered, said)) => {
                    // The thread is past its work; what it holds is released before the next measurement.
                    let _ = thread.join();
                    match entered {
                        Entered::In => said,
                        Entered::Busy => {
                            "it still runs since it was last asked for, and was not asked again"
                                .into()
                        }
                        Entered::Removed => return None,
                    }
                }
                None => format!(
                    "it has not come back after {} ms, and still runs",
                    deadline.as_millis()
                ),
            },
        };
        Some(Done {
            who: self.name.clone(),
            said,
            took: begin.elapsed(),
        })
    }
}

/// Returns what a worker sends, if it does so before the deadline.
fn heard<T>(told: &mpsc::Receiver<T>, until: Duration, clock: &Clock) -> Option<T> {
    loop {
        let left = until.saturating_sub(clock.now());
        match told.recv_timeout(clock.sleep(left)) {
            Ok(said) => return Some(said),
            Err(mpsc::RecvTimeoutError::Timeout) if !left.is_zero() => {}
            Err(_) => return None,
        }
    }
}
