//! What lies where, told run by run: for statistics.
//!
//! ```text
//!   free_run(page) ──► dirty │ clean │ being purged, and how long │ none begins here
//! ```
//!
//! W1  Nothing is written, and the lock is held, so a walk from page 0 that goes on behind each run (the
//!     caller knows how long those in use are) meets every page once.
//!
//! Not here: whether it is all as it should be (`check`), runs in use (`alloc`).

use crate::pool::{CLEAN, DIRTY};
use crate::{Pool, Region};

/// What a free run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Free {
    /// May be resident, content unknown.
    Dirty,
    /// Zero, and not resident.
    Clean,
    /// Being purged at this moment.
    Claimed,
}

impl Pool {
    /// The free run that begins at a page, and its pages.
    pub fn free_run(&self, page: u32) -> Option<(Free, u32)> {
        let run = self.at(self.free_tag(page)?);
        if run.page.get() != page {
            return None;
        }
        let kind = match run.state.get() {
            DIRTY => Free::Dirty,
            CLEAN => Free::Clean,
            _ => Free::Claimed,
        };
        Some((kind, run.pages.get()))
    }

    /// Pages of HEAP that a walk meets.
    pub fn pages(&self) -> u32 {
        self.known_pages
    }
}

impl Region {
    /// The mapped parts of META and of MAP: address and bytes.
    pub fn metadata(&self) -> [(usize, usize); 2] {
        let (meta, map) = self.metadata_bytes();
        [(self.meta(), meta), (self.base() - crate::MAP_SPAN, map)]
    }
}
