//! What the drain knows of a process whose recording is bounded.
//!
//! Not here: when a segment begins (drain/turning.rs).

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use crate::bounds::{Bounds, Progress, now};
use crate::live::Live;
use crate::output::Output;
use crate::process::Process;
use crate::triggers::Watch;

/// What is to be put aside when its snapshot has been read.
pub struct Putting {
    /// The condition.
    pub text: String,
    /// Its sender is dropped when the snapshot has been read.
    pub done: Receiver<()>,
    /// When the condition came true.
    pub since: Instant,
}

/// What a process has whose recording is bounded.
pub struct Turning {
    /// What lives.
    pub live: Live,
    /// What is kept.
    pub bounds: Bounds,
    /// How far the writer is.
    pub progress: Arc<Progress>,
    /// When the present segment began, by the clock of segments.
    pub since: Instant,
    /// Its number.
    pub number: u64,
    /// Events of the segments before.
    pub before: u64,
    /// Events that the present one repeats.
    pub repeated: u64,
    /// The conditions.
    pub watches: Vec<Watch>,
    /// When they are looked at next.
    pub next_look: Instant,
    /// The marks that were looked at: those below this number.
    pub marks_seen: u32,
    /// What is about to be put aside.
    pub putting: Option<Putting>,
    /// How often something was.
    pub kept: u32,
}

impl Turning {
    /// Begins with the first segment of a process.
    pub fn begin(bounds: Bounds, process: &Process, output: &Output) -> Turning {
        let progress = Arc::new(Progress::default());
        output.bound(process.index, bounds.clone(), Arc::clone(&progress));
        let watch = |trigger: &_| Watch::new(Clone::clone(trigger), process.pid);
        Turning {
            live: Live::new(),
            watches: bounds.when.iter().map(watch).collect(),
            next_look: Instant::now(),
            marks_seen: 0,
            putting: None,
            kept: 0,
            bounds,
            progress,
            since: now(),
            number: 0,
            before: 0,
            repeated: 0,
        }
    }

    /// Returns the events in the present segment, of all that were decoded.
    pub fn events(&self, decoded: u64) -> u64 {
        decoded - self.before + self.repeated
    }
}
