//! Moments at which a program waits for a snapshot, held for a caller that wants to look, too.
//!
//! ```text
//!   skinflint_mark("x"), exit ─ asks for a snapshot, waits ─► drain ─ watched? ─ no ─► sampler ─► goes on
//!                                                                       │ yes
//!                                                                       └─► Held ─ dropped ─► sampler ─► goes on
//! ```
//!
//! H1  The program's own wait has a bound, [`PATIENCE_MS`] if moments are watched: a [`Held`] that is kept for longer
//!     holds nothing.
//! H2  To drop a [`Held`] lets the program go on; if there is no receiver, it is dropped at once.
//! H3  A mark from outside stops no program: its moment is reported all the same.
//!
//! Not here: what is looked at meanwhile.

use std::sync::mpsc::Sender;

use crate::sampler::Ask;

/// The longest time, in milliseconds, that a program waits at a moment that is watched: reporters have two seconds
/// each, and few take a hundredth of that.
pub const PATIENCE_MS: u32 = 10_000;

/// The moments that are wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Watched {
    /// A mark of this name.
    Mark(String),
    /// An orderly end of any process.
    End,
}

/// A wanted moment that is now; the process waits until this is dropped.
pub struct Held {
    /// Kernel id of the process.
    pub pid: u32,
    /// What lets the process go on; `None`: it does not wait.
    waiting: Option<(Sender<Ask>, Ask)>,
}

impl Held {
    /// Creates a moment at which the process does not wait.
    pub(crate) fn passing(pid: u32) -> Held {
        Held { pid, waiting: None }
    }

    /// Creates a moment at which a process waits until `ask` has been sent and answered.
    pub(crate) fn waiting(pid: u32, sampler: Sender<Ask>, ask: Ask) -> Held {
        let waiting = Some((sampler, ask));
        Held { pid, waiting }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some((sampler, ask)) = self.waiting.take() {
            // If it fails, the session is over, and the program's wait has a bound.
            let _ = sampler.send(ask);
        }
    }
}
