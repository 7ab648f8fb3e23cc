//! The result of a simulation: plain data, as `--json` prints it.
//!
//! ```text
//!   WhatIf ─┬─ levels: live bytes at the peak, after the biggest free, at the end (the same for all)
//!           └─ policies ─► Outcome: Figures at each of those, most resident, averages over time
//! ```
//!
//! O1  Bytes of pages are multiples of 4,096. At each moment
//!     `floor ≤ resident.holes ≤ resident.spans ≤ resident.never` and `touched ≤ floor` (checked in the tests).
//! O2  What could not be determined is `null`, never 0.
//!
//! Not here: text (`view`), the computation (`model.rs`, `mod.rs`).

use serde::Serialize;

use crate::mesh::Mesh;
use crate::pages::Residents;

/// The version of this form.
pub const SCHEMA: u32 = 1;

/// The live blocks at a moment, the same under every policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Level {
    /// Time since the start, nanoseconds.
    pub time_ns: u64,
    /// The event that made the moment.
    pub ticket: u64,
    /// Live blocks.
    pub blocks: u64,
    /// Bytes that they requested.
    pub requested_bytes: u64,
    /// The bytes of those that count as touched: fewer if snapshots saw large blocks partly resident.
    pub touched_bytes: u64,
    /// The bytes of these that count whole though large, as no snapshot tells: perhaps none of them were touched.
    pub untold_bytes: u64,
}

/// The figures of a policy at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Figures {
    /// Usable bytes beyond those requested.
    pub slop_bytes: u64,
    /// Pages that hold a live block, at this policy's addresses.
    pub floor_bytes: u64,
    /// Resident bytes, by what is given back.
    pub resident: Residents,
    /// Resident bytes in spans and runs that survivors hold (with purging of whole spans), beyond the floor: what
    /// purging 4 KiB pages would give back.
    pub held_bytes: u64,
    /// Spans with a live block; 0 for a policy without spans.
    pub spans: u64,
    /// The savings of meshing, for policies with spans; `null` at the peak, where they are not computed.
    pub mesh: Option<Mesh>,
    /// The event after which `mesh` was found: an earlier one than the moment's if looking again would have cost more
    /// than it could tell.
    pub mesh_ticket: Option<u64>,
}

/// Averages over time, each state weighted by its duration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Average {
    /// Usable bytes beyond those requested.
    pub slop_bytes: u64,
    /// Pages that hold a live block.
    pub floor_bytes: u64,
    /// Resident bytes, by what is given back.
    pub resident: Residents,
}

/// Bytes that are known within an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Held {
    /// The least.
    pub low_bytes: u64,
    /// The most.
    pub high_bytes: u64,
}

/// A policy, and the result for the trace under it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Outcome {
    /// Its name.
    pub policy: String,
    /// A description of the policy; empty for one that was put together.
    pub about: String,
    /// The figures when most bytes lived.
    pub at_peak: Figures,
    /// The figures after the biggest free; `null` if nothing was ever freed.
    pub after_free: Option<Figures>,
    /// The figures after the last event.
    pub at_end: Figures,
    /// The most that was resident at any moment, by what is given back.
    pub most_resident: Residents,
    /// The resident bytes of all that the allocator would hold at its most, with what it needs itself: whole spans and runs are
    /// given back. The least is without what large blocks perhaps had not touched yet, the most with all that the allocator may
    /// keep. `null` for a policy of whose own memory nothing is known.
    pub most_held: Option<Held>,
    /// Averages over the run; `null` if the trace has no time.
    pub average: Option<Average>,
}

/// The results for a trace under other policies.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct WhatIf {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Number of events that were seen.
    pub events: u64,
    /// Blocks acquired, including reallocs.
    pub acquisitions: u64,
    /// Releases of blocks whose acquisition is not in the trace: not simulated.
    pub unknown_releases: u64,
    /// Events that are impossible, and releases that were lost: see the report of the trace.
    pub faults: u64,
    /// The duration of the trace, nanoseconds.
    pub duration_ns: u64,
    /// Heaps that the threads had, one after another: 1 if no two threads allocated at a time.
    pub heaps: u64,
    /// The milliseconds for which pages lie unused before they are given back, if they are.
    pub delay_ms: u32,
    /// The moment with most requested bytes, the first of several.
    pub at_peak: Level,
    /// The lowest moment after the peak before it, for the biggest such fall; the last of several.
    pub after_free: Option<Level>,
    /// The level after the last event.
    pub at_end: Level,
    /// Requested bytes that lived, on average over time.
    pub average_requested_bytes: Option<u64>,
    /// One outcome for each policy, in the order of the request.
    pub policies: Vec<Outcome>,
    /// The most that all tables of the simulation held.
    pub table_bytes: u64,
}
