//! Moments at which a program waits for a snapshot, held for somebody who wants to look, too.
//!
//! ```text
//!   skinflint_mark("x"), exit ─ asks for a snapshot, waits ─► drain ─ watched? ─ no ─► sampler ─► goes on
//!                                                                       │ yes
//!                                                                       └─► Held ─ dropped ─► sampler ─► goes on
//! ```
//!
//! H1  The program's own wait has a bound, [`PATIENCE_MS`] where moments are watched: holding on for longer holds
//!     nothing.
//! H2  Whoever drops a [`Held`] lets the program go on; if nobody receives any, it is dropped at once.
//! H3  A mark from outside holds nobody: its moment is told all the same.
//!
//! Not here: what is looked at meanwhile.

use std::sync::mpsc::Sender;

use crate::sampler::Ask;

/// Longest that a program waits at a moment that is watched: reporters have two seconds each, and few take a
/// hundredth of that.
pub const PATIENCE_MS: u32 = 10_000;

/// Which moments are wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Watched {
    /// A mark of this name.
    Mark(String),
    /// An orderly end of any process.
    End,
}

/// A moment that is wanted, now.
pub struct Held {
    /// Kernel id of the process.
    pub pid: u32,
    /// What lets it go on; `None`: it did not wait.
    waiting: Option<(Sender<Ask>, Ask)>,
}

impl Held {
    /// A moment that nobody waits at.
    pub(crate) fn passing(pid: u32) -> Held {
        Held { pid, waiting: None }
    }

    /// A process that waits until this has been asked.
    pub(crate) fn waiting(pid: u32, sampler: Sender<Ask>, ask: Ask) -> Held {
        let waiting = Some((sampler, ask));
        Held { pid, waiting }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some((sampler, ask)) = self.waiting.take() {
            // The session is over otherwise, and the program's wait has a bound.
            let _ = sampler.send(ask);
        }
    }
}
