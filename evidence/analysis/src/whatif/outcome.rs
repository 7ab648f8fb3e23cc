//! What a simulation found: plain data, as `--json` prints it.
//!
//! ```text
//!   WhatIf ─┬─ levels: live bytes at the peak, after the biggest free, at the end (the same for all)
//!           └─ policies ─► Outcome: Figures at each of those, most resident, averages over time
//! ```
//!
//! O1  Bytes of pages are multiples of 4,096. At each moment
//!     `floor ≤ resident.holes ≤ resident.spans ≤ resident.never` and `touched ≤ floor` (checked in the tests).
//! O2  What could not be known is `null`, never 0.
//!
//! Not here: text (`view`), how it is found (`model.rs`, `mod.rs`).

use serde::Serialize;

use super::mesh::Mesh;
use super::pages::Residents;

/// Version of this form.
pub const SCHEMA: u32 = 1;

/// What lived at a moment, under any policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Level {
    /// Since the start, nanoseconds.
    pub time_ns: u64,
    /// The event that made it so.
    pub ticket: u64,
    /// Live blocks.
    pub blocks: u64,
    /// Bytes that they asked for.
    pub requested_bytes: u64,
    /// Bytes of those that count as touched: less where snapshots saw large blocks partly resident.
    pub touched_bytes: u64,
}

/// What a policy held at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Figures {
    /// Usable bytes beyond those asked for.
    pub slop_bytes: u64,
    /// Pages that hold a live block, at this policy's addresses.
    pub floor_bytes: u64,
    /// Resident bytes, by what is given back.
    pub resident: Residents,
    /// Resident in spans and runs that are held by survivors (with purging of whole spans), beyond the
    /// floor: what purging 4 KiB pages would give back.
    pub held_bytes: u64,
    /// Spans with a live block; 0 for a policy without spans.
    pub spans: u64,
    /// Meshing, for policies with spans; `null` at the peak, where it is not looked for.
    pub mesh: Option<Mesh>,
    /// The event after which `mesh` was found: an earlier one than the moment's where looking again
    /// would have cost more than it could tell.
    pub mesh_ticket: Option<u64>,
}

/// Averages over time, each state weighed by how long it lasted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Average {
    /// Usable bytes beyond those asked for.
    pub slop_bytes: u64,
    /// Pages that hold a live block.
    pub floor_bytes: u64,
    /// Resident bytes, by what is given back.
    pub resident: Residents,
}

/// A policy, and what became of the trace under it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Outcome {
    /// Its name.
    pub policy: String,
    /// What it is; empty for one that was put together.
    pub about: String,
    /// When most bytes lived.
    pub at_peak: Figures,
    /// After the biggest free; `null` if nothing was ever freed.
    pub after_free: Option<Figures>,
    /// After the last event.
    pub at_end: Figures,
    /// The most that was resident at any moment, by what is given back.
    pub most_resident: Residents,
    /// Over the run; `null` if the trace has no time.
    pub average: Option<Average>,
}

/// What a trace would have been under other policies.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct WhatIf {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Events that were seen.
    pub events: u64,
    /// Blocks acquired, reallocs included.
    pub acquisitions: u64,
    /// Releases of blocks whose acquisition is not in the trace: not simulated.
    pub unknown_releases: u64,
    /// Events that cannot be, and releases that were lost: see the report of the trace.
    pub faults: u64,
    /// How long the trace lasted.
    pub duration_ns: u64,
    /// How long pages lie unused before they are given back, where they are.
    pub delay_ms: u32,
    /// The moment with most bytes asked for, the first of several.
    pub at_peak: Level,
    /// The lowest moment after the peak before it, of the biggest such fall; the last of several.
    pub after_free: Option<Level>,
    /// After the last event.
    pub at_end: Level,
    /// Bytes asked for that lived, on average over time.
    pub average_requested_bytes: Option<u64>,
    /// One for each policy, in the order asked for.
    pub policies: Vec<Outcome>,
    /// The most that all tables of the simulation held.
    pub table_bytes: u64,
}
