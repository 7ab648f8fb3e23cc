//! A trace that is being written: the blocks that have come since the last call.
//!
//! ```text
//!   file, growing:  [ block | block | block | half a blo…          advance() reads whole blocks and stops before the
//!                     read so far ──────────►│                      rest; each byte is read once
//! ```
//!
//! F1  A block is read when all of it is in the file; an incomplete block is not damage.
//! F2  The events of one call come in the order of tickets. A thread's later block may hold earlier tickets than
//!     another thread's block that came with the call before: a caller that needs the order over several calls must
//!     wait (the collector writes every thread's events at least once a second).
//! F3  Memory: that of an opened trace; samples and snapshots may be taken out.
//!
//! Not here: what a block holds (read.rs).

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::info::{RssSample, Snapshot};
use crate::merge::Events;
use crate::read::{OpenError, Scan, Trace};

/// A trace that is being written, and how far it was read.
pub struct Follower {
    scan: Scan,
    at: u64,
}

impl Follower {
    /// Opens a trace; only its header is read yet.
    ///
    /// # Errors
    /// As [`Trace::open`]; a file whose header is not complete yet is an error, too.
    pub fn open(path: impl AsRef<Path>) -> Result<Follower, OpenError> {
        let (mut scan, at) = Trace::begin(path.as_ref())?;
        scan.is_growing = true;
        Ok(Follower { scan, at })
    }

    /// Reads the blocks that have come since the last call. Returns their events, in the order of tickets (F2).
    ///
    /// # Errors
    /// If the file can no longer be read.
    pub fn advance(&mut self) -> io::Result<Events> {
        self.scan.bytes = self.scan.trace.source_bytes()?;
        self.at = self.scan.run(self.at);
        let mut index = std::mem::take(&mut self.scan.index);
        index.sort_by_key(|entry| entry.first_ticket);
        Ok(self.scan.trace.events_of(Arc::new(index)))
    }

    /// Returns what was read so far. Its own `events()` has no events, and its threads have no names.
    pub fn trace(&self) -> &Trace {
        &self.scan.trace
    }

    /// Takes out the samples and snapshots that were read since they were last taken out (F3).
    pub fn take_samples(&mut self) -> (Vec<RssSample>, Vec<Snapshot>) {
        let trace = &mut self.scan.trace;
        (
            std::mem::take(&mut trace.rss),
            std::mem::take(&mut trace.snapshots),
        )
    }

    /// Returns the bytes of the file that were read.
    pub fn bytes_read(&self) -> u64 {
        self.at
    }
}
