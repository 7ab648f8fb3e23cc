//! The report at the end: as text on stderr, or as JSON on stdout.
//!
//! Y1  The JSON has everything that the text has; figures that a heap does not tell are null (heap.H1).
//! Y2  What was read at one instant is in the memory of the next: so tables of JSON are kept as text. Taken apart, those of 150 tabs
//!     were 0.6 MB.
//!
//! Not here: the log of collections as they happen (`heap`).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Serialize, Serializer};
use serde_json::Value;
use skinflint_js_options::host::{self, Outcome};

use crate::beside::Counts;
use crate::heap::{Event, Freed, Left, Placement, Row, Slices};
use crate::pauses::Summary;
use crate::tab::Failure;

/// A program and what became of it.
#[derive(Serialize, Debug)]
pub struct ProgramRow {
    /// Its tab, from 1.
    pub tab: usize,
    /// Its file.
    pub file: String,
    /// Null if it ran to its end.
    pub failure: Option<Failure>,
    /// What its last statement was worth, if that is no object.
    pub result: Option<String>,
    /// Processor time of its tab in ms, collections in it included.
    pub cpu_ms: f64,
    /// What it printed; null if that went to stdout.
    pub output: Option<Vec<String>>,
    /// Lines that were not kept.
    pub output_cut: usize,
}

/// Memory at one instant, after a full collection.
#[derive(Serialize, Debug)]
pub struct Instant {
    /// When.
    pub at: &'static str,
    /// Tabs that are open.
    pub tabs: usize,
    /// What the kernel counts.
    pub rss_bytes: Option<u64>,
    /// Bytes of the engine's own objects in all tenants.
    pub system_bytes: Option<usize>,
    /// Bytes of the programs' objects in all tenants.
    pub user_bytes: Option<usize>,
    /// Bytes that are out of the allocator, by what was asked for; the heap's objects are in none of them.
    pub outside_bytes: Option<usize>,
    /// What the allocator says of itself at this instant (docs/malloc.md).
    #[serde(serialize_with = "as_tree")]
    pub allocator: Option<Box<str>>,
    /// The heaps' chunks by the arenas in use, and what keeps those that one arena keeps (docs/js.md).
    #[serde(serialize_with = "as_tree")]
    pub chunks: Option<Box<str>>,
}

/// The tree of a text that was kept (Y2); null if it is none.
fn tree(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

fn as_tree<S: Serializer>(text: &Option<Box<str>>, to: S) -> Result<S::Ok, S::Error> {
    text.as_deref().map(tree).serialize(to)
}

/// The report of a run.
#[derive(Serialize, Debug)]
pub struct Report {
    /// `stock` or `skinflint`.
    pub heap: &'static str,
    /// `system` or `skinflint`.
    pub malloc: &'static str,
    /// The engine's version.
    pub boa: &'static str,
    /// Whether system objects were apart; null where there is no such thing.
    pub separate: Option<bool>,
    /// In the order of the tabs.
    pub programs: Vec<ProgramRow>,
    /// In the order of time.
    pub memory: Vec<Instant>,
    /// How the policy placed objects, in the order of the tabs; empty without --policy.
    pub placements: Vec<Placement>,
    /// By phase: open, then, close; collections for the measurements are apart, as measure.
    pub pauses: Option<BTreeMap<String, Summary>>,
    /// The same pauses by processor time of the engine's thread: what a busy machine does not lengthen.
    pub pauses_cpu: Option<BTreeMap<String, Summary>>,
    /// Collections that could not be timed (stock heap only).
    pub untimed: u64,
    /// How often each reason led to a collection; slices of one are not counted.
    pub reasons: BTreeMap<String, u64>,
    /// Who freed objects while programs ran (phases open and then).
    pub freed: Option<Freed>,
    /// Blocks outside of the heap that ended objects held, by the thread that freed them, over the whole run.
    pub outside_freed: Option<Counts>,
    /// Work at allocations that counts as no pause.
    pub slices: Option<Slices>,
    /// Share freed outside pauses, 0 to 1.
    pub share_outside_pauses: Option<f64>,
    /// Tenants when all tabs were open.
    pub tenants: Vec<Row>,
    /// Tenants whose end left objects alive.
    pub left: Vec<Left>,
    /// The log, if it was asked for.
    pub events: Vec<Event>,
    /// Events that were not kept.
    pub events_cut: u64,
    /// Processor time of the whole process in ms.
    pub cpu_ms: f64,
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64)
}

fn maybe(bytes: Option<usize>) -> String {
    bytes.map_or_else(|| "not told".to_owned(), |bytes| mib(bytes as u64))
}

/// Tenants shown; the others are summed in one row.
const TENANTS_SHOWN: usize = 8;

/// A table of pauses by phase.
fn say_summaries(text: &mut String, title: &str, pauses: Option<&BTreeMap<String, Summary>>) {
    let Some(pauses) = pauses else { return };
    let _ = writeln!(
        text,
        "\n{title:<22}{:>8}{:>12}{:>12}{:>12}{:>16}{:>12}",
        "count", "half below", "99 % below", "longest", "worst 20 ms", "together"
    );
    let ms = |us: f64| us / 1e3;
    for (phase, said) in pauses.iter().filter(|(_, said)| said.count > 0) {
        let _ = writeln!(
            text,
            "{phase:<22}{:>8}{:>12.3}{:>12.3}{:>12.3}{:>16.3}{:>12.1}",
            said.count,
            ms(said.p50_us),
            ms(said.p99_us),
            ms(said.longest_us),
            ms(said.worst_20ms_us),
            ms(said.total_us)
        );
    }
}

impl Report {
    /// The text for people.
    pub fn text(&self) -> String {
        let mut text = format!(
            "skinflint js: heap {}, malloc {}, Boa {}; {:.0} ms of processor time\n",
            self.heap, self.malloc, self.boa, self.cpu_ms
        );
        host::write_programs(&mut text, &self.outcomes(), TENANTS_SHOWN);
        let _ = writeln!(
            text,
            "\n{:<22}{:>6}{:>14}{:>14}{:>14}{:>14}",
            "memory", "tabs", "resident", "engine's", "programs'", "outside"
        );
        for instant in &self.memory {
            let rss = instant.rss_bytes.map_or_else(|| "not told".to_owned(), mib);
            let (system, user) = (maybe(instant.system_bytes), maybe(instant.user_bytes));
            let outside = maybe(instant.outside_bytes);
            let _ = writeln!(
                text,
                "{:<22}{:>6}{rss:>14}{system:>14}{user:>14}{outside:>14}",
                instant.at, instant.tabs
            );
        }
        self.say_placements(&mut text);
        self.say_pauses(&mut text);
        self.say_outside(&mut text);
        self.say_tenants(&mut text);
        for left in &self.left {
            let path = left.path.as_deref().unwrap_or("it is not said by what");
            let (objects, bytes) = (left.objects, left.bytes);
            let _ = writeln!(
                text,
                "{}: {objects} objects ({bytes} bytes) were alive after its end, held by {path}",
                left.name
            );
        }
        text
    }

    /// Returns what became of the programs.
    pub fn outcomes(&self) -> Vec<Outcome<'_>> {
        let rows = self.programs.iter().map(|row| Outcome {
            tab: row.tab,
            file: &row.file,
            failure: row
                .failure
                .as_ref()
                .map(|failure| failure.text().to_owned()),
            result: row.result.as_deref(),
            cpu_ms: row.cpu_ms,
        });
        rows.collect()
    }

    fn say_placements(&self, text: &mut String) {
        for (tab, placed) in self.placements.iter().enumerate().take(TENANTS_SHOWN) {
            let Placement {
                policy,
                objects,
                cycles,
                refills,
                outside_objects,
                ..
            } = placed;
            let mib = |bytes: f64| mib(bytes as u64);
            let _ = writeln!(
                text,
                "tab {}: {objects} objects placed by {policy}, {outside_objects} elsewhere; {cycles} cycles, {refills} \
                 refills; pages {} in the mean, {} at most; {} needed",
                tab + 1,
                mib(placed.pages.mean),
                mib(placed.pages.peak as f64),
                mib(placed.needed.mean),
            );
        }
        if let Some(rest @ 1..) = self.placements.len().checked_sub(TENANTS_SHOWN) {
            let _ = writeln!(text, "{rest} others placed alike: --json has them");
        }
    }

    fn say_pauses(&self, text: &mut String) {
        let both = [
            ("pauses, ms", &self.pauses),
            ("by processor time", &self.pauses_cpu),
        ];
        for (title, pauses) in both {
            say_summaries(text, title, pauses.as_ref());
        }
        if self.untimed > 0 {
            let _ = writeln!(
                text,
                "{} collections freed nothing and could not be timed",
                self.untimed
            );
        }
        if let Some(slices) = self.slices.filter(|_| self.pauses.is_some()) {
            let (total, longest) = (slices.total_us / 1e3, slices.longest_us / 1e3);
            let _ = writeln!(
                text,
                "objects ended at allocations: {total:.1} ms in all, {longest:.3} ms at most at once"
            );
        }
        if !self.reasons.is_empty() {
            let list: Vec<String> = self
                .reasons
                .iter()
                .map(|(reason, count)| format!("{reason} {count}"))
                .collect();
            let _ = writeln!(text, "collections by reason: {}", list.join(", "));
        }
        if let (Some(freed), Some(share)) = (&self.freed, self.share_outside_pauses) {
            let Freed {
                in_pauses,
                lazily,
                elsewhere,
            } = freed;
            let _ = writeln!(
                text,
                "objects freed: {in_pauses} in pauses, {lazily} at allocations, {elsewhere} by other threads: {:.1} % outside pauses",
                share * 100.0
            );
        }
    }

    fn say_outside(&self, text: &mut String) {
        let told = self
            .memory
            .iter()
            .filter_map(|at| Some((at.at, at.chunks.as_ref()?)));
        for (at, chunks) in told {
            let chunks = tree(chunks);
            let (all, lone) = (&chunks["chunks"], &chunks["lone"]);
            let kept = chunks["kept_by"].as_array().and_then(|rows| rows.first());
            let most = kept.map_or(String::new(), |row| format!(", most by {}", row["kind"]));
            let _ = writeln!(
                text,
                "chunks, {at}: {all}, {lone} of them kept by one arena{most}"
            );
        }
        if let Some(freed) = self
            .outside_freed
            .filter(|freed| freed.blocks_here + freed.blocks_elsewhere > 0)
        {
            let Counts {
                blocks_here,
                bytes_here,
                blocks_elsewhere,
                bytes_elsewhere,
            } = freed;
            let share = bytes_elsewhere as f64 / (bytes_here + bytes_elsewhere).max(1) as f64;
            let _ = writeln!(
                text,
                "what ended objects held: {blocks_here} blocks freed on the engine's thread, {blocks_elsewhere} on another: \
                 {:.1} % of {}",
                share * 100.0,
                mib(bytes_here + bytes_elsewhere)
            );
        }
    }

    fn say_tenants(&self, text: &mut String) {
        if self.tenants.is_empty() {
            return;
        }
        let _ = writeln!(
            text,
            "\n{:<22}{:>12}{:>12}{:>10}{:>8}{:>13}",
            "tenants, all open", "engine's", "program's", "objects", "chunks", "collections"
        );
        let mut line = |row: &Row| {
            let (system, user) = (mib(row.system_bytes as u64), mib(row.user_bytes as u64));
            let _ = writeln!(
                text,
                "{:<22}{system:>12}{user:>12}{:>10}{:>8}{:>13}",
                row.name, row.objects, row.chunks, row.collections
            );
        };
        self.tenants.iter().take(TENANTS_SHOWN).for_each(&mut line);
        if let Some(rest @ [_, ..]) = self.tenants.get(TENANTS_SHOWN..) {
            let mut sum = Row {
                name: format!("{} others", rest.len()),
                ..Row::default()
            };
            for row in rest {
                sum.system_bytes += row.system_bytes;
                sum.user_bytes += row.user_bytes;
                sum.objects += row.objects;
                sum.chunks += row.chunks;
                sum.collections += row.collections;
            }
            line(&sum);
        }
    }
}
