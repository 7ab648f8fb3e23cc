//! The part of the report about pointers to live blocks.
//!
//! R1  `certain`, `likely` and `unreached` add up to the live blocks of the moment; `rows` and `others` to `unreached`.
//!
//! Not here: how it is computed (`reach`).

use serde::{Deserialize, Serialize};

/// Reachability of live blocks at a moment. It is conservative: a word that looks like a pointer is one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Reachability {
    /// `end`, or the mark's name.
    pub label: String,
    /// Whether this is the end: of the program, before its last destructors, or of the recording.
    pub at_end: bool,
    /// The time at which the program was stopped, nanoseconds since the start.
    pub time_ns: u64,
    /// Its place in the order of events.
    pub ticket: u64,
    /// Duration of the stop, nanoseconds.
    pub stopped_ns: u64,
    /// Threads that were stopped.
    pub threads: u32,
    /// Bytes that were read.
    pub scanned_bytes: u64,
    /// Words among them that may be pointers.
    pub words: u64,
    /// Why there is no verdict; empty if there is one. With a verdict the sums below add up to all live
    /// blocks; without one they are 0.
    pub missing: String,
    /// Blocks that roots lead to along pointers to the beginnings of blocks.
    pub certain: ReachSum,
    /// Other blocks that roots lead to, by a pointer into a block or a tagged pointer.
    pub likely: ReachSum,
    /// Blocks that no root leads to: the sum over `rows` and `others`.
    pub unreached: ReachSum,
    /// The unreached blocks by stack, largest first; at most 200.
    pub rows: Vec<UnreachedRow>,
    /// The sum of the rows that are not listed.
    pub others: ReachSum,
    /// Number of rows that are not listed.
    pub other_rows: u64,
}

/// Blocks, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReachSum {
    /// Blocks.
    pub blocks: u64,
    /// Bytes requested for them.
    pub requested_bytes: u64,
    /// Bytes given for them.
    pub usable_bytes: u64,
}

/// Graphs of unreached blocks whose first block one stack acquired.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UnreachedRow {
    /// The stack.
    pub node: Option<u32>,
    /// Whether the first blocks point to each other (or to their own beginning); else nothing points to them.
    pub cycle: bool,
    /// Number of graphs, each with a block that nothing points to, or a cycle, at its head.
    pub graphs: u64,
    /// Their first blocks: those that nothing points to, or those of the cycles.
    pub own: ReachSum,
    /// All blocks of the graphs, the first ones included; each block is in one graph.
    pub all: ReachSum,
    /// The address of one of the first blocks.
    pub example: u64,
}
