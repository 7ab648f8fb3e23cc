//! The figures of policies on a trace or a program.
//!
//! Not here: how they look (`tables`).

use serde::{Deserialize, Serialize};
use skinflint_compare::stats;

/// The figures of one policy on one trace, in bytes and milliseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    /// The policy's name.
    pub policy: String,
    /// CPU time of the mutator's allocations, with its share of lazy sweeping.
    pub mutator_ms: f64,
    /// CPU time of the collector's allocations (promotion).
    pub promotion_ms: f64,
    /// All CPU time except that of marking.
    pub total_ms: f64,
    /// Instructions of all of that, if they were counted.
    pub instructions: Option<u64>,
    /// Mean bytes of pages over samples.
    pub committed_mean: f64,
    /// The largest number of bytes of pages.
    pub committed_peak: f64,
    /// Mean bytes of pages right after a collection.
    pub committed_after: f64,
    /// Mean bytes of pages and the list's descriptors.
    pub with_tables_mean: f64,
    /// Mean bytes of kernel pages that were written to and not purged.
    pub resident_mean: f64,
    /// Mean bytes that no policy can do without: objects that no collection has found dead.
    pub needed_mean: f64,
    /// Mean bytes of holes that are in no list.
    pub wasted_mean: f64,
    /// CPU time of sweeping, on whatever thread.
    pub sweeping_ms: f64,
    /// Mean CPU time from the beginning of a collection until allocation can go on, without marking.
    pub latency_mean_ms: f64,
    /// The longest such time.
    pub latency_max_ms: f64,
    /// Number of collections.
    pub collections: u64,
    /// How often an area was used up.
    pub refills: u64,
    /// Bytes of objects moved.
    pub moved_bytes: u64,
    /// Bytes purged.
    pub purged_bytes: u64,
    /// Bytes of objects marked, over all collections; 0 of a program that ran itself.
    #[serde(default)]
    pub marked_bytes: u64,
    /// Pages swept; 0 of a program that ran itself.
    #[serde(default)]
    pub swept_pages: u64,
}

/// A trace and its figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// The trace's name.
    pub trace: String,
    /// How it was made.
    pub source: String,
    /// What decides the figures besides the trace: growth, compaction and so on.
    #[serde(default)]
    pub settings: String,
    /// Whether the program itself ran: then times are of the whole program.
    pub live: bool,
    /// Number of objects that were run.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The most bytes that lived at once.
    pub peak_live_bytes: u64,
    /// Number of objects above half a page, which no policy places.
    pub large_objects: u64,
    /// What is missing, one sentence each.
    pub missing: Vec<String>,
    /// One row for each policy, the reference first.
    pub rows: Vec<Row>,
}

/// Returns the median; NaN of nothing.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    stats::median(&values.collect::<Vec<f64>>()).unwrap_or(f64::NAN)
}
