//! The runs of HEAP, listed one by one: for statistics.
//!
//! ```text
//!   free_run(page) ──► dirty │ clean │ being purged, and its pages │ none begins here
//! ```
//!
//! W1  Nothing is written, and the lock is held, so a walk from page 0 that goes on behind each run (the caller knows
//!     the lengths of those in use) visits every page once.
//!
//! Not here: checks of it all (`check`), runs in use (`alloc`).

use crate::pool::{CLEAN, DIRTY};
use crate::{Pool, Region};

/// The state of a free run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Free {
    /// It may be resident; its content is unknown.
    Dirty,
    /// It is zero and not resident.
    Clean,
    /// It is being purged at this moment.
    Claimed,
}

impl Pool {
    /// Returns the free run that begins at a page, and its pages.
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

    /// Returns the number of pages of HEAP that a walk visits.
    pub fn pages(&self) -> u32 {
        self.known_pages
    }
}

impl Region {
    /// Returns the mapped parts of META and of MAP: address and bytes.
    pub fn metadata(&self) -> [(usize, usize); 2] {
        let (meta, map) = self.metadata_bytes();
        [(self.meta(), meta), (self.base() - crate::MAP_SPAN, map)]
    }
}
