//! The progress of a long reading, shown by the caller, if at all.
//!
//! ```text
//!   begin(events) ─► step, step … ─► end          a reading; several may follow each other
//! ```

/// A display of how far a reading is.
pub trait Progress {
    /// Begins a reading of this many events.
    fn begin(&self, events: u64);
    /// Notes that this many more events were read.
    fn step(&self, events: u64);
    /// Ends the reading.
    fn end(&self);
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _events: u64) {}
    fn step(&self, _events: u64) {}
    fn end(&self) {}
}
