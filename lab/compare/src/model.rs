//! The result of a comparison: the one structure behind the table, the CSV, the JSON and the page.
//!
//! ```text
//!   Comparison ─┬─ machine, settings, allocators (versions), missing
//!               ├─ programs ─► columns (one for each allocator) ─► runs ─► samples, figures
//!               │                     └─► check (who served), verdict, cells (medians, ratios, intervals)
//!               └─ overall (geometric means), changes (improvements, regressions), warnings
//! ```
//!
//! M1  Units are in the names: `_bytes`, `_ns`, `_ms`. A figure that was not measured is absent, never 0.
//! M2  Whatever a view shows is in here.
//! M3  A column whose verdict is not `measured` has no cells.
//!
//! Not here: how anything is computed (figures.rs, stats.rs) or shown.

use std::collections::BTreeMap;

use serde::Serialize;

/// Version of this structure; raised when a field changes its meaning or is removed.
pub const SCHEMA: u32 = 1;

/// An allocator that is available here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Allocator {
    /// Its name, the head of its column.
    pub name: String,
    /// Its authors' version, else the package's, else a digest of the file.
    pub version: String,
    /// The library that is preloaded; none for the program's own.
    pub library: Option<String>,
    /// Its source.
    pub source: String,
    /// Variables that it needs in the environment.
    pub environment: BTreeMap<String, String>,
}

/// An allocator that is not available here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// The name that was asked for.
    pub name: String,
    /// What is wrong.
    pub why: String,
    /// What to do.
    pub get: String,
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Machine {
    /// Name of the processor.
    pub cpu: String,
    /// Processors that may be used.
    pub cpus: u64,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// Transparent huge pages: always, madvise or never.
    pub huge_pages: String,
}

/// The settings of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Settings {
    /// Number of rounds.
    pub runs: u32,
    /// Name of the reference.
    pub reference: String,
    /// Limit of one run, seconds; none: ten times what the reference took, at least a minute.
    pub timeout_s: Option<f64>,
    /// Seconds without work after which a program is asked to end, or for which a replay waits at its end.
    pub idle_s: Option<f64>,
    /// The factor by which recorded time is sped up, if it is kept between operations.
    pub paced: Option<f64>,
    /// Milliseconds between samples, as planned.
    pub interval_ms: u64,
    /// Seed of the bootstrap.
    pub seed: u64,
}

/// A whole comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of Skinflint.
    pub skinflint: String,
    /// The time when it began, seconds since 1970.
    pub began_unix_s: u64,
    /// The command line with which Skinflint was called.
    pub command: Vec<String>,
    /// The machine.
    pub machine: Machine,
    /// The settings.
    pub settings: Settings,
    /// The columns, the reference first.
    pub allocators: Vec<Allocator>,
    /// The allocators that were not available.
    pub missing: Vec<Missing>,
    /// The rows.
    pub programs: Vec<Program>,
    /// Geometric means over all programs, if there are several.
    pub overall: Vec<Overall>,
    /// Improvements and regressions that can be distinguished from chance, the largest first.
    pub changes: Vec<Change>,
    /// Reasons to doubt the figures.
    pub warnings: Vec<String>,
    /// Whether it was interrupted.
    pub interrupted: bool,
}

/// A program or trace that was run.
#[derive(Clone, Debug, Serialize)]
pub struct Program {
    /// Short name.
    pub name: String,
    /// Command and arguments, or the trace.
    pub what: Vec<String>,
    /// Whether it is a trace that was replayed.
    pub replayed: bool,
    /// What has to be known about it: lost events, a status that is not 0.
    pub notes: Vec<String>,
    /// One column for each allocator, in the order of [`Comparison::allocators`].
    pub columns: Vec<Column>,
}

/// The result of a column.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Verdict {
    /// All runs went well.
    Measured,
    /// The preload had no effect.
    NoEffect {
        /// The reason, as far as it can be known.
        why: String,
    },
    /// A signal ended the program.
    Crashed {
        /// The name of the signal.
        signal: String,
        /// The round, 0 for the check.
        round: u32,
        /// The last line on stderr.
        said: String,
    },
    /// The program was not done in time.
    TimeLimit {
        /// The limit, nanoseconds.
        limit_ns: u64,
        /// The round, 0 for the check.
        round: u32,
    },
    /// The program ended with another status than under the reference.
    OtherStatus {
        /// Its status.
        status: i32,
        /// The reference's status.
        reference: i32,
        /// The round, 0 for the check.
        round: u32,
        /// The last line on stderr.
        said: String,
    },
    /// The program wrote another output to stdout than under the reference.
    OtherOutput {
        /// The round, 0 for the check.
        round: u32,
    },
    /// The program could not be run.
    Failed {
        /// The reason.
        why: String,
    },
    /// The program was not reached before the interruption.
    NotRun,
}

/// Which library served the program, counted in a run of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Calls that acquire memory, in all processes.
    pub calls: u64,
    /// Process images in which the calls were counted.
    pub processes: u64,
    /// The file that served most of them.
    pub served_by: String,
}

/// An allocator under one program.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// The allocator's name.
    pub allocator: String,
    /// Its result.
    pub verdict: Verdict,
    /// Which library served, if that was counted.
    pub check: Option<Check>,
    /// The runs, in the order of rounds; also those that failed.
    pub runs: Vec<Run>,
    /// The medians, if it was measured.
    pub cells: Vec<Cell>,
    /// The index into `runs` of the run with the median peak, which is drawn.
    pub typical: Option<usize>,
}

/// A sample: milliseconds since the start, bytes.
pub type Point = (f64, u64);

/// A run of one allocator.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Run {
    /// The round, from 1.
    pub round: u32,
    /// Position within the round, from 1.
    pub position: u32,
    /// Exit status; none if a signal ended it.
    pub status: Option<i32>,
    /// The figures.
    pub figures: BTreeMap<Measure, f64>,
    /// Number of samples that were taken, all of them.
    pub samples: u64,
    /// Longest time between two samples, milliseconds.
    pub worst_gap_ms: f64,
    /// Part of the time that lay in gaps of more than three intervals.
    pub late_share: f64,
    /// Load average of the machine when the run began, if known.
    pub load: Option<f64>,
    /// Nanoseconds that a fixed piece of arithmetic took just before: it shows a clock that drifts.
    pub calibration_ns: u64,
    /// The kernel's high-water mark, if the program is one process and the mark is above all samples.
    pub high_water_bytes: Option<u64>,
    /// Number of processes that the program left and that were ended.
    pub left: u32,
    /// The most processes at one time.
    pub processes: u32,
    /// The most bytes swapped out.
    pub swapped_bytes: u64,
    /// Resident memory over time; at most some hundreds of points, with all extremes.
    pub curve: Vec<Point>,
    /// For a replay: live bytes over time.
    pub live: Vec<Point>,
    /// For a replay: bytes of distinct 4 KiB pages with a live block, if they were counted.
    pub floor: Vec<Point>,
}

/// A figure that is measured. Less is always better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// User and system time of all processes, nanoseconds.
    CpuNs,
    /// The user part of it.
    UserNs,
    /// The system part of it.
    SystemNs,
    /// The time from the start to the end.
    ElapsedNs,
    /// For a replay: time in the allocator for one operation, without the replayer's own cost.
    OpNs,
    /// Highest resident memory.
    PeakBytes,
    /// Mean of resident memory over time.
    MeanBytes,
    /// Lowest level after the peak that held for three samples.
    AfterFreeBytes,
    /// Median of the last tenth of the time; for a replay, its last point.
    FinalBytes,
    /// Bytes that calls of `read` and their kin took.
    ReadBytes,
    /// Bytes given to calls of `write` and their kin.
    WrittenBytes,
    /// Faults served without I/O.
    MinorFaults,
    /// For a replay: live bytes at their peak.
    LiveBytes,
    /// For a replay: distinct 4 KiB pages with a live block, when live bytes were highest.
    FloorPeakBytes,
    /// For a replay: distinct 4 KiB pages with a live block after the deepest fall of live bytes.
    FloorAfterFreeBytes,
    /// For a replay: distinct 4 KiB pages with a live block at the end.
    FloorFinalBytes,
}

impl Measure {
    /// The measures that are compared and shown, in this order.
    pub const SHOWN: [Measure; 10] = [
        Measure::CpuNs,
        Measure::OpNs,
        Measure::PeakBytes,
        Measure::MeanBytes,
        Measure::AfterFreeBytes,
        Measure::FinalBytes,
        Measure::ReadBytes,
        Measure::WrittenBytes,
        Measure::MinorFaults,
        Measure::ElapsedNs,
    ];

    /// For a replay: what memory is measured against, shown without a comparison.
    pub const AGAINST: [Measure; 4] = [
        Measure::LiveBytes,
        Measure::FloorPeakBytes,
        Measure::FloorAfterFreeBytes,
        Measure::FloorFinalBytes,
    ];

    /// Returns the title of its line.
    pub fn title(self) -> &'static str {
        match self {
            Measure::CpuNs => "CPU time",
            Measure::UserNs => "user time",
            Measure::SystemNs => "system time",
            Measure::ElapsedNs => "elapsed",
            Measure::OpNs => "time per call",
            Measure::PeakBytes => "peak RSS",
            Measure::MeanBytes => "mean RSS",
            Measure::AfterFreeBytes => "after-free RSS",
            Measure::FinalBytes => "final RSS",
            Measure::ReadBytes => "bytes read",
            Measure::WrittenBytes => "bytes written",
            Measure::MinorFaults => "minor faults",
            Measure::LiveBytes => "live at its peak",
            Measure::FloorPeakBytes => "floor at the peak",
            Measure::FloorAfterFreeBytes => "floor after free",
            Measure::FloorFinalBytes => "floor at the end",
        }
    }

    /// Returns the name of its column in the CSV.
    pub fn column(self) -> &'static str {
        match self {
            Measure::CpuNs => "cpu_ns",
            Measure::UserNs => "user_ns",
            Measure::SystemNs => "system_ns",
            Measure::ElapsedNs => "elapsed_ns",
            Measure::OpNs => "op_ns",
            Measure::PeakBytes => "peak_bytes",
            Measure::MeanBytes => "mean_bytes",
            Measure::AfterFreeBytes => "after_free_bytes",
            Measure::FinalBytes => "final_bytes",
            Measure::ReadBytes => "read_bytes",
            Measure::WrittenBytes => "written_bytes",
            Measure::MinorFaults => "minor_faults",
            Measure::LiveBytes => "live_bytes",
            Measure::FloorPeakBytes => "floor_peak_bytes",
            Measure::FloorAfterFreeBytes => "floor_after_free_bytes",
            Measure::FloorFinalBytes => "floor_final_bytes",
        }
    }

    /// Reports whether it is in bytes.
    pub fn is_bytes(self) -> bool {
        self.column().ends_with("_bytes")
    }

    /// Reports whether it is in nanoseconds.
    pub fn is_ns(self) -> bool {
        self.column().ends_with("_ns")
    }
}

/// The confidence in a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sure {
    /// This is the reference.
    Reference,
    /// The interval does not hold 1.
    Distinct,
    /// The interval holds 1.
    NotDistinguishable,
    /// Fewer runs than an interval needs.
    TooFewRuns,
}

/// A figure of one allocator under one program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// The figure.
    pub measure: Measure,
    /// Median of the runs.
    pub median: f64,
    /// Lowest of the runs.
    pub lowest: f64,
    /// Highest of the runs.
    pub highest: f64,
    /// Ratio of the medians, this to the reference's; none if the reference has none or 0.
    pub ratio: Option<f64>,
    /// 95 % interval of the ratio, if there are enough runs.
    pub interval: Option<(f64, f64)>,
    /// The confidence in the ratio.
    pub sure: Sure,
}

/// A geometric mean of ratios over programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overall {
    /// The figure.
    pub measure: Measure,
    /// The allocator.
    pub allocator: String,
    /// The mean; only over programs in which both it and the reference were measured.
    pub ratio: f64,
    /// The number of these programs.
    pub programs: usize,
}

/// A difference from the reference that can be distinguished from chance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The program.
    pub program: String,
    /// The allocator.
    pub allocator: String,
    /// The figure.
    pub measure: Measure,
    /// Median minus the reference's median.
    pub difference: f64,
    /// The difference in percent of the reference's.
    pub percent: f64,
    /// Whether it is less, which is better.
    pub better: bool,
}
