//! The inputs of the analysis beside the events, its options, and its errors.
//!
//! ```text
//!   trace ──► Facts ──┐
//!   user  ──► Options ┴─► Analyzer::new ──► Ok, or AnalysisError with the next step
//! ```
//!
//! F1  Facts are complete before the first event: the reader collects them in a first pass over the trace, or from
//!     its index. Snapshots, marks and threads are never discovered while streaming.
//! F2  `nodes[0]` is the empty stack, and a node's parent has a lower index; if a damaged trace breaks this, the node
//!     counts as a child of the empty stack.
//! F3  What a fork gave keeps its stacks: the stack trees of the processes that this one is a copy of follow its own,
//!     each beginning with its empty stack, as long as all have no more than [`MOST_NODES`] nodes.
//!
//! Not here: reading a trace.

use std::fmt;

use skinflint_trace::{
    Ending, Kind, LostKind, LostProcess, Mark, Module, NodeId, ProcessInfo, RssSample, Snapshot,
    Thread, Trace, code_of,
};

use crate::block::INHERITED;
use crate::missing::{Known, Missing};
use crate::model::Frame;

/// The most nodes of all stack trees together (F3): 256 MiB.
const MOST_NODES: usize = 1 << 24;

/// A node of the trace's stack tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StackNode {
    /// Address in the innermost function (a return address, except for the first frame).
    pub pc: u64,
    /// The caller's node.
    pub parent: u32,
}

/// The contents of a trace beside its events (F1).
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The process.
    pub process: ProcessInfo,
    /// Threads, by [`skinflint_trace::ThreadId`].
    pub threads: Vec<Thread>,
    /// Loaded objects.
    pub modules: Vec<Module>,
    /// Named moments.
    pub marks: Vec<Mark>,
    /// Resident memory over time.
    pub rss: Vec<RssSample>,
    /// Resident memory by mapping, by ticket.
    pub snapshots: Vec<Snapshot>,
    /// How the recording ended; `None` if the trace was cut.
    pub ending: Option<Ending>,
    /// What the reader found damaged, one sentence each.
    pub damage: Vec<String>,
    /// Processes that came out of this one and have no trace.
    pub lost: Vec<LostProcess>,
    /// What was not found when the trace was opened.
    pub missing: Vec<Missing>,
    /// The types of the objects in blocks that were looked at.
    pub kinds: Vec<Kind>,
    /// The stack tree (F2), and behind it those of the processes that this one is a copy of (F3).
    pub nodes: Vec<StackNode>,
    /// Where the stack tree of each of those processes begins in `nodes` (F3), ascending.
    pub ancestors: Vec<u32>,
    /// Size of the trace file, bytes.
    pub trace_bytes: u64,
}

impl Facts {
    /// Returns the number of marks that were made before what is kept.
    pub(crate) fn marks_before(&self) -> usize {
        self.process
            .segment
            .as_ref()
            .map_or(0, |one| one.marks as usize)
    }

    /// Returns what this trace knows. Samples of what the process became (`exec`), if that was not recorded, are left
    /// out: their pages are no longer this program's. Cost: a copy of it; the stack tree is the largest part.
    pub fn of(trace: &Trace) -> Facts {
        let became = trace.lost.iter().filter(|lost| lost.what == LostKind::Exec);
        let until_ns = became.map(|lost| lost.time_ns).min().unwrap_or(u64::MAX);
        let is_own = |one: &&Snapshot| one.time_ns.saturating_add(one.took_ns) < until_ns;
        let samples = trace.rss.iter();
        Facts {
            process: trace.process.clone(),
            threads: trace.threads.clone(),
            modules: trace.modules.clone(),
            marks: trace.marks.clone(),
            rss: samples
                .filter(|one| one.time_ns < until_ns)
                .copied()
                .collect(),
            snapshots: trace.snapshots.iter().filter(is_own).cloned().collect(),
            ending: trace.ending.clone(),
            damage: trace.damage.iter().map(ToString::to_string).collect(),
            lost: trace.lost.clone(),
            missing: Vec::new(),
            kinds: trace.kinds.clone(),
            nodes: stacks(trace),
            ancestors: Vec::new(),
            trace_bytes: trace.file_bytes(),
        }
    }

    /// Adds the stack tree of a process that this one is a copy of; returns where it begins, or `None` if there are too
    /// many nodes (F3).
    pub fn add_ancestor(&mut self, stacks: &[StackNode]) -> Option<u32> {
        let first = self.nodes.len();
        if stacks.is_empty() || first + stacks.len() > MOST_NODES {
            return None;
        }
        let first = first as u32;
        self.nodes.extend(stacks.iter().map(|node| StackNode {
            pc: node.pc,
            parent: first.saturating_add(node.parent),
        }));
        self.ancestors.push(first);
        Some(first)
    }

    /// Reports whether a stack is of what a fork gave.
    pub(crate) fn is_inherited(&self, node: u32) -> bool {
        node == INHERITED.0 || self.ancestors.first().is_some_and(|first| node >= *first)
    }

    /// Returns what is known beside the events, for the list of what is missing.
    pub(crate) fn known(&self, events: u64) -> Known<'_> {
        Known {
            process: &self.process,
            ending: self.ending.as_ref(),
            damage: self.damage.clone(),
            lost: &self.lost,
            missing: &self.missing,
            events,
        }
    }
}

/// Returns the stack tree of a trace.
pub fn stacks(trace: &Trace) -> Vec<StackNode> {
    let node = |id: u32| {
        let (parent, pc) = trace.node(NodeId(id)).unwrap_or((NodeId(0), 0));
        StackNode {
            pc,
            parent: parent.0,
        }
    };
    (0..trace.node_count()).map(node).collect()
}

/// The frames of a stack that a report shows, where a script's interpreter has frames of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Shown {
    /// The script's frames, and native ones inside the innermost of them; where there is none, all.
    User,
    /// Native frames.
    Native,
    /// All frames.
    #[default]
    Both,
}

/// A source of names for addresses.
pub trait Symbolizer {
    /// Returns which frames are shown.
    fn shown(&self) -> Shown {
        Shown::Both
    }

    /// Returns whether an address is in a function of a script, by its number or by its name.
    fn is_script(&mut self, pc: u64, _node: u32) -> bool {
        code_of(pc).is_some()
    }

    /// Returns the frames of one address: the innermost inlined frame first, the function that was really called
    /// last. `node` tells which of several modules that were mapped there one after another is meant, and of which
    /// process ([`Facts::ancestors`]). The result may be empty: the report then shows the address.
    fn frames(&mut self, node_pc: u64, node: u32) -> Vec<Frame>;
}

/// The moment that the report is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum At {
    /// The fullest of the snapshots with the largest resident memory (`peak.rs`).
    Peak,
    /// The end.
    End,
    /// A mark, by name; the last one if several have it.
    Mark(String),
    /// The largest live heap, in usable bytes. It is known only after all events were seen: see
    /// [`Options::heap_peak_ticket`].
    HeapPeak,
    /// This many nanoseconds after the start.
    Time(u64),
    /// After the largest fall of live memory: see [`Options::after_free_ticket`].
    AfterFree,
    /// The moment at which the allocator keeps most beyond what lives: see [`Options::most_kept_ticket`].
    MostKept,
}

impl At {
    /// Returns the moment that a text names; `None` is the peak, if resident memory was sampled.
    pub fn named(text: &str) -> Option<At> {
        match text {
            "peak" => None,
            "end" => Some(At::End),
            "heap-peak" => Some(At::HeapPeak),
            "after-free" => Some(At::AfterFree),
            "most-kept" => Some(At::MostKept),
            text => Some(time(text).map_or_else(|| At::Mark(text.to_owned()), At::Time)),
        }
    }
}

/// Parses `1.5s` or `200ms` as nanoseconds after the start. A mark with the same name cannot be reached by it.
fn time(text: &str) -> Option<u64> {
    let (number, unit_ns) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e6),
        None => (text.strip_suffix('s')?, 1e9),
    };
    let number: f64 = number.trim().parse().ok()?;
    // 0.719876 has no binary fraction: cut off instead of rounded, the nanosecond before would be meant.
    (number.is_finite() && number >= 0.0).then_some((number * unit_ns).round() as u64)
}

/// Returns the whole microsecond that a time lies in, nanoseconds: what a reader is told to type.
pub(crate) fn microsecond(time_ns: u64) -> u64 {
    time_ns - time_ns % 1000
}

/// Writes a time as seconds with all of its digits, and three at least: what is told apart has to look apart.
pub(crate) fn seconds(time_ns: u64) -> String {
    let (whole, rest) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
    let digits = format!("{rest:09}");
    let kept = digits.trim_end_matches('0').len().max(3);
    format!("{whole}.{}", &digits[..kept])
}

/// Bounds on the contents of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Marks that become instants with books.
    pub mark_books: usize,
    /// Points of the heap timeline, and of the resident one.
    pub timeline_points: usize,
    /// Parts of a row of the books, `others` excluded.
    pub parts: usize,
    /// Stacks listed with what they pin, at the report's instant; elsewhere `parts` is the bound.
    pub pins: usize,
    /// Findings of one kind by the ledger; the rest is summed up in one more.
    pub findings_per_kind: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            mark_books: 64,
            timeline_points: 2000,
            parts: 20,
            pins: 200,
            findings_per_kind: 8,
        }
    }
}

/// Bounds on what is kept for windows ([`crate::model::Windows`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowLimits {
    /// Edges, including those of instants; at least twice as many as there may be instants.
    pub edges: usize,
    /// Changes of a cell from one edge to the next; beyond this bound, first edges and then the smallest cells are
    /// merged.
    pub changes: usize,
}

impl Default for WindowLimits {
    fn default() -> WindowLimits {
        WindowLimits {
            edges: 1024,
            changes: 1 << 20,
        }
    }
}

/// The options of an analysis.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// The moment; `None` is the peak if resident memory was sampled, else the end.
    pub at: Option<At>,
    /// With [`At::HeapPeak`]: the ticket of the `heap-peak` instant from an earlier report on the
    /// same trace. Without it the ledger's own figures are as of the heap peak, and those of the
    /// passes as of the end, which the report says.
    pub heap_peak_ticket: Option<u64>,
    /// The snapshot that is the peak: what [`crate::peak::PeakSearch`] found in a first reading of the trace. Without
    /// it, the first of those that it may be.
    pub peak_snapshot: Option<usize>,
    /// With [`At::AfterFree`]: what [`crate::falls::FallSearch`] found in a first reading of the trace.
    pub after_free_ticket: Option<u64>,
    /// With [`At::MostKept`]: what [`crate::waste::WasteSearch`] found in a first reading of the trace.
    pub most_kept_ticket: Option<u64>,
    /// Bounds.
    pub limits: Limits,
    /// Whether, and within which bounds, figures for any window are kept ([`crate::model::Windows`]):
    /// the page needs them, the text does not.
    pub windows: Option<WindowLimits>,
}

/// The reason why an analysis cannot be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AnalysisError {
    /// No mark has this name.
    NoSuchMark {
        /// The name that was asked for.
        name: String,
        /// The existing names, each once, in order of first appearance.
        known: Vec<String>,
    },
    /// Live memory never fell far with a snapshot behind it.
    NoFall,
    /// The allocator never kept much with a snapshot behind it.
    NothingKept,
    /// The moment lies before what is kept of the recording.
    TimeBefore {
        /// The time that was asked for, nanoseconds since the start.
        asked_ns: u64,
        /// Where what is kept begins, nanoseconds since the start.
        since_ns: u64,
    },
    /// The moment lies after the end of the recording.
    TimeAfterEnd {
        /// The time that was asked for, nanoseconds since the start.
        asked_ns: u64,
        /// The end, nanoseconds since the start.
        end_ns: u64,
    },
}

impl fmt::Display for AnalysisError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnalysisError::NoSuchMark { name, .. } if name.parse::<f64>().is_ok() => write!(
                f,
                "--at {name}: no such mark, and a time needs its unit: {name}s or {name}ms"
            ),
            AnalysisError::NoSuchMark { name, known } if known.is_empty() => write!(
                f,
                "--at {name}: the trace has no marks; use peak, end, heap-peak, after-free or most-kept, or call \
                 skinflint_mark(\"{name}\") in the program"
            ),
            AnalysisError::NoSuchMark { name, known } => write!(
                f,
                "--at {name}: no such mark; use peak, end, heap-peak, after-free, most-kept or one of: {}",
                known.join(", ")
            ),
            AnalysisError::NoFall => write!(
                f,
                "--at after-free: no snapshot follows a fall of live memory by a fifth of its highest \
                 level (and at least a mebibyte); use peak, end or heap-peak, or call skinflint_mark \
                 in the program after its large release and give the mark's name"
            ),
            AnalysisError::NothingKept => f.write_str(
                "--at most-kept: at no snapshot before the end did the allocator keep a fiftieth of resident memory (and \
                 at least a mebibyte) beyond what lived; use peak, end or heap-peak",
            ),
            AnalysisError::TimeBefore { asked_ns, since_ns } => write!(
                f,
                "--at {} s: the recording keeps its last part, from {} s on; give a time in it",
                seconds(*asked_ns),
                seconds(*since_ns)
            ),
            AnalysisError::TimeAfterEnd { asked_ns, end_ns } => write!(
                f,
                "--at {} s: the recording ends at {} s; give a time up to that",
                seconds(*asked_ns),
                seconds(*end_ns)
            ),
        }
    }
}

impl std::error::Error for AnalysisError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_names_a_moment() {
        assert_eq!(At::named("peak"), None);
        assert_eq!(At::named("end"), Some(At::End));
        assert_eq!(At::named("after-free"), Some(At::AfterFree));
        assert_eq!(At::named("most-kept"), Some(At::MostKept));
        assert_eq!(At::named("1.5s"), Some(At::Time(1_500_000_000)));
        assert_eq!(At::named("20ms"), Some(At::Time(20_000_000)));
        for time_ns in [719_876_000, 719_876_543, 35_123_456_789_000, 1_000] {
            let text = format!("{}s", seconds(time_ns));
            assert_eq!(At::named(&text), Some(At::Time(time_ns)), "{text}");
        }
        for mark in ["phases", "s", "-1s", "nans", "load end"] {
            assert_eq!(At::named(mark), Some(At::Mark(mark.into())));
        }
    }
}
