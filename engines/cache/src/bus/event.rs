//! The log of rounds: which listener dropped what, what came back, what it cost.
//!
//! ```text
//!   resident before ─► [listener: dropped, trim, resident] … ─► resident after      came back = before − after
//! ```
//!
//! E1  The rows' `came_back` add up to `before − after`, to the byte: each is the difference of two successive looks.
//! E2  The log is bounded ([`KEPT`]); rounds that left it are counted.
//!
//! Not here: the decision that there is a round (`level`), the round itself (`round`).

use core::fmt;
use std::collections::VecDeque;

use super::level::Level;
use super::listener::Rebuild;

/// Rounds that the log keeps.
pub const KEPT: usize = 256;

/// Where a signal came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Source {
    /// A user asked for it, by a button or a command.
    Button,
    /// The program, before it needs much or after a call of its own failed.
    Program,
    /// The allocator: a limit is near, or it was refused.
    Allocator,
    /// Pressure stall information of the whole system.
    Psi,
    /// Pressure stall information of the process's control group.
    GroupPsi,
    /// The limit of the process's memory control group.
    GroupLimit,
    /// Reclaim in the process's memory control group.
    GroupReclaim,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Source::Button => "button",
            Source::Program => "program",
            Source::Allocator => "allocator",
            Source::Psi => "psi",
            Source::GroupPsi => "group psi",
            Source::GroupLimit => "group limit",
            Source::GroupReclaim => "group reclaim",
        })
    }
}

/// The part of one listener in a round.
#[derive(Clone, Debug)]
pub struct Row {
    /// The listener's name.
    pub listener: String,
    /// Its place in the order of listeners.
    pub rebuild: Rebuild,
    /// Bytes that it says it dropped; no more than were resident then.
    pub dropped_bytes: usize,
    /// Bytes by which resident memory fell from before it to after it and the trim; negative if it rose meanwhile.
    pub came_back_bytes: i64,
    /// Wall time of the listener.
    pub took_ns: u64,
    /// Wall time of the trim after the listener.
    pub trim_ns: u64,
    /// Whether the listener panicked; what it dropped is unknown then.
    pub panicked: bool,
}

/// A round of the bus, as the log has it.
#[derive(Clone, Debug)]
pub struct Event {
    /// Number of the round, from 1.
    pub number: u64,
    /// Milliseconds since the bus started.
    pub at_ms: u64,
    /// The source of the signal.
    pub source: Source,
    /// How short memory was said to be.
    pub level: Level,
    /// Bytes wanted; 0: unknown.
    pub wanted_bytes: usize,
    /// Resident memory of the process before the round (`Rss` of `/proc/self/smaps_rollup`).
    pub before_bytes: usize,
    /// The same after the round.
    pub after_bytes: usize,
    /// One row for each listener that was asked, in that order.
    pub rows: Vec<Row>,
    /// Listeners that were not asked, because enough had come back.
    pub spared: usize,
    /// Wall time of the whole round, the measurements of resident memory included.
    pub took_ns: u64,
}

impl Event {
    /// Returns the bytes by which resident memory fell (E1).
    pub fn came_back_bytes(&self) -> i64 {
        self.before_bytes as i64 - self.after_bytes as i64
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "pressure {} at {}.{:03} s: {} by {}, wanted {}; resident {} -> {} ({:+} bytes) in {:.1} ms",
            self.number,
            self.at_ms / 1_000,
            self.at_ms % 1_000,
            self.level,
            self.source,
            self.wanted_bytes,
            self.before_bytes,
            self.after_bytes,
            -self.came_back_bytes(),
            self.took_ns as f64 / 1e6,
        )?;
        for row in &self.rows {
            write!(
                f,
                "\n  {:<8} {:<24} dropped {:>12}, came back {:>12} bytes, {:.1} ms + trim {:.1} ms{}",
                row.rebuild.to_string(),
                row.listener,
                row.dropped_bytes,
                row.came_back_bytes,
                row.took_ns as f64 / 1e6,
                row.trim_ns as f64 / 1e6,
                if row.panicked { " (panicked)" } else { "" },
            )?;
        }
        if self.spared > 0 {
            write!(f, "\n  {} not asked: enough had come back", self.spared)?;
        }
        Ok(())
    }
}

/// The last rounds, at most [`KEPT`].
#[derive(Debug, Default)]
pub struct Log {
    kept: VecDeque<Event>,
    forgotten: u64,
}

impl Log {
    /// Adds a round.
    pub fn add(&mut self, event: Event) {
        if self.kept.len() == KEPT {
            self.kept.pop_front();
            self.forgotten += 1;
        }
        self.kept.push_back(event);
    }

    /// Returns the rounds that are kept, oldest first.
    pub fn events(&self) -> Vec<Event> {
        self.kept.iter().cloned().collect()
    }

    /// Returns the number of rounds that are not kept any more.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }
}
