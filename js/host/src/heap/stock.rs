//! Boa's own heap: one for all tabs, and it tells nothing.
//!
//! O1  Nothing is done to it that Boa itself does not do; what it cannot do is refused ([`refuse`]).
//!
//! Not here: its pauses, which are timed from outside (`watch`).

use std::any::Any;

use anyhow::{Result, bail};

use super::{Freed, Left, Placement, Row, Settings, Slices};
use crate::watch;

/// The name of the heap under the engine.
pub const NAME: &str = "stock";

/// Stands for a tab; there are no tenants here.
pub struct Tenant;

/// Nothing to leave.
pub struct Guard;

impl Tenant {
    /// A tab's name says nothing to this heap.
    pub fn new(_name: &str, _limit: Option<usize>) -> Self {
        Tenant
    }

    /// All tabs are in one heap.
    pub fn enter(&self) -> Guard {
        Guard
    }

    /// There are no limits here.
    pub fn within_limit(&self) -> Result<(), String> {
        Ok(())
    }

    /// Not told (heap.H1).
    pub fn row(&self) -> Option<Row> {
        None
    }

    /// There are no policies here.
    pub fn placement(&self) -> Option<Placement> {
        None
    }

    /// What is left is not told (heap.H1).
    pub fn end(self) -> Option<Left> {
        None
    }
}

/// Not told (heap.H1).
pub fn outside_freed() -> Option<crate::beside::Counts> {
    None
}

/// Not told (heap.H1).
pub fn chunks() -> Option<String> {
    None
}

/// Does what it is given: there is one kind of object here.
pub fn system<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Refuses what this heap cannot do.
pub fn start(settings: &Settings) -> Result<()> {
    let asked = [
        (settings.stress.is_some(), "--stress"),
        (settings.verify, "--verify"),
        (settings.sweep_in_pause, "--sweep-in-pause"),
        (settings.limit_bytes.is_some(), "--heap-limit"),
        (settings.no_separate, "--no-separate"),
        (settings.record.is_some(), "--record-objects"),
        (settings.policy.is_some(), "--policy"),
    ];
    if let Some((_, option)) = asked.iter().find(|(asked, _)| *asked) {
        bail!("{option}: Boa's own heap cannot do that; use --heap skinflint");
    }
    watch::begin();
    Ok(())
}

/// Collects everything.
pub fn collect_all() {
    boa_gc::force_collect();
    watch::end();
}

/// Nothing is done while nothing is allocated.
pub fn idle(_now: std::time::Duration) {}

/// There are no limits here.
pub fn out_of_memory(_payload: &(dyn Any + Send)) -> Option<String> {
    None
}

/// Not told (heap.H1). Everything is freed in pauses, by the source.
pub fn freed() -> Option<Freed> {
    None
}

/// There are none.
pub fn slices() -> Option<Slices> {
    None
}

/// Brings what was noted from outside into the log.
pub fn drain() {
    watch::drain();
}

/// Nothing was recorded.
pub fn finish() -> Result<()> {
    Ok(())
}
