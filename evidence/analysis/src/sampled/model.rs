//! The report of a sampled trace.
//!
//! ```text
//!   Sampled ─┬─ live, acquired: Figure       ─┬─ rows of the books, which add up to resident memory
//!            └─ stacks: Stack ─► nodes ─► frames
//! ```
//!
//! R1  The figures of stacks are of all stacks; they add up to `live` and `acquired`, but for rounding.
//!
//! Not here: how it looks (`view`).

use serde::{Deserialize, Serialize};
use skinflint_trace::ProcessInfo;

use super::figure::Figure;
use crate::model::{Frame, Node};

/// The report of a sampled trace at a moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Sampled {
    /// The process.
    pub process: ProcessInfo,
    /// The mean distance of samples, requested bytes.
    pub sample_bytes: u64,
    /// The moment's name.
    pub at: String,
    /// The moment, nanoseconds since the start.
    pub time_ns: u64,
    /// Growth is from this time to the moment, nanoseconds since the start.
    pub middle_ns: u64,
    /// What is missing beside what was not sampled, one sentence each.
    pub missing: Vec<String>,
    /// The events of the trace.
    pub events: u64,
    /// Requested bytes that live at the moment.
    pub live: Figure,
    /// Requested bytes that were acquired up to the moment.
    pub acquired: Figure,
    /// At the end: bytes in use by the allocator's own count, which is exact; `null` if it was not asked.
    pub in_use_bytes: Option<u64>,
    /// Resident memory at the moment, which the rows add up to.
    pub resident_bytes: u64,
    /// The books; empty if there is no snapshot of the moment.
    pub rows: Vec<Row>,
    /// All stacks, those that hold most first.
    pub stacks: Vec<Stack>,
    /// The stack tree: node 0 is the empty stack.
    pub nodes: Vec<Node>,
    /// Frames that nodes name.
    pub frames: Vec<Frame>,
    /// Frames that only pass an allocation on, by index.
    pub plumbing: Vec<u32>,
}

/// A row of the books.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Row {
    /// Stable name: those of a full report, and `live`, `slop`, `heap-rest` and `sampling-difference` of the heap.
    pub id: String,
    /// The name for readers.
    pub label: String,
    /// Bytes; below 0 only in `sampling-difference`.
    pub bytes: i64,
    /// Half of its interval of 95 %, bytes: 0 if it is exact, `null` if there are too few samples.
    pub error_bytes: Option<u64>,
    /// One sentence of definition.
    pub meaning: String,
}

/// A stack.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Stack {
    /// Its node.
    pub node: u32,
    /// Requested bytes of its live blocks.
    pub live: Figure,
    /// Requested bytes that it acquired.
    pub acquired: Figure,
    /// By how much its live bytes grew since the middle of the time; `null` unless that is certain.
    pub growth: Option<Growth>,
    /// Whether it certainly holds a tenth of all live bytes or more.
    pub holds: bool,
}

/// A growth that is above nothing with all of its interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Growth {
    /// Bytes.
    pub bytes: u64,
    /// The lower end of its interval of 95 %.
    pub low: u64,
    /// The upper end.
    pub high: u64,
}
