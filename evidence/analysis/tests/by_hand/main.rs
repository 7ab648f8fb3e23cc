//! Traces whose every figure was worked out by hand, in the comments beside them.
//!
//! ```text
//!   a dozen events, one snapshot ──► every row of the books, every total, every note
//! ```
//!
//! B1  An assertion is derived in a comment, or is short enough to be seen at once.
//!
//! Not here: random traces (`judge.rs`).

use skinflint_analysis::model::{
    Books, Confidence, FindingKind, Frame, InstantKind, Report, WindowCell, WindowEdge,
};
use skinflint_analysis::pass::{Act, Context, Pass};
use skinflint_analysis::{
    AnalysisError, Analyzer, At, Facts, Options, StackNode, Symbolizer, WindowLimits,
};
use skinflint_trace::{
    AllocFn, Ending, Event, EventKind, Exit, FreeFn, Mapping, MappingKind, Mark, NodeId, Origin,
    OriginKind, ProcessInfo, Snapshot, SnapshotCause, ThreadId,
};

mod advice;
mod books;
mod findings;
mod fragments;
mod late;
mod ledger;
mod limits;
mod owners;
mod promised;
mod start_up;
mod told;
mod unseen;

const HEAP: u64 = 0x55_0000_0000;
const MAP: u64 = 0x7F_0000_0000;

/// Node 5 is two frames, one inlined into the other; node 6 has no name.
struct Names;

impl Symbolizer for Names {
    fn frames(&mut self, _pc: u64, node: u32) -> Vec<Frame> {
        let frame = |function: &str, inlined| Frame {
            function: function.into(),
            inlined,
            ..Frame::default()
        };
        match node {
            5 => vec![frame("inner", true), frame("outer", false)],
            6 => Vec::new(),
            _ => vec![frame(&format!("f{node}"), false)],
        }
    }
}

/// A chain 1 ← 2 ← … : each node calls the next.
fn facts() -> Facts {
    Facts {
        process: ProcessInfo {
            allocator: "glibc 2.36".into(),
            ..ProcessInfo::default()
        },
        nodes: (0..8)
            .map(|id: u32| StackNode {
                pc: 0x1000 + u64::from(id),
                parent: id.saturating_sub(1),
            })
            .collect(),
        ..Facts::default()
    }
}

fn event(ticket: u64, kind: EventKind) -> Event {
    Event {
        ticket,
        time_ns: ticket * 1_000_000,
        thread: ThreadId(0),
        kind,
    }
}

fn alloc(ticket: u64, node: u32, addr: u64, size: u64, usable: u64) -> Event {
    let node = NodeId(node);
    event(
        ticket,
        EventKind::Alloc {
            func: AllocFn::Malloc,
            node,
            addr,
            size,
            usable,
        },
    )
}

fn free(ticket: u64, addr: u64) -> Event {
    event(
        ticket,
        EventKind::Free {
            func: FreeFn::Free,
            addr,
        },
    )
}

fn analyse(facts: Facts, options: Options, events: &[Event]) -> Report {
    let mut analyzer = Analyzer::with_passes(facts, options, Vec::new()).unwrap();
    events.iter().for_each(|event| analyzer.event(event));
    analyzer.finish(&mut Names)
}

fn mapping(kind: MappingKind, start: u64, pages: u64, name: &str, rss: u64) -> Mapping {
    Mapping {
        start,
        end: start + pages * 4096,
        kind,
        name: name.into(),
        rss_bytes: rss,
        ..Mapping::default()
    }
}

fn with_runs(mut mapping: Mapping, runs: &[(u64, u64)]) -> Mapping {
    mapping.runs = runs.to_vec();
    mapping.runs_known = true;
    mapping
}

fn snapshot(ticket: u64, cause: SnapshotCause, mappings: Vec<Mapping>) -> Snapshot {
    Snapshot {
        time_ns: ticket * 1_000_000,
        ticket,
        cause,
        took_ns: 500,
        counted_bytes: None,
        tops: None,
        mappings,
    }
}

fn exited() -> Option<Ending> {
    Some(Ending {
        exit: Exit::Exited(0),
        time_ns: 100_000_000,
        ..Ending::default()
    })
}

fn row(books: &Books, id: &str) -> u64 {
    books
        .rows
        .iter()
        .find(|row| row.id == id)
        .unwrap_or_else(|| panic!("no row {id}"))
        .bytes
}

/// A block as large as so many pages of the heap, which comes and goes before the first ticket: the pages are free.
fn used(pages: u64) -> [Event; 2] {
    let bytes = pages * 4096;
    [alloc(0, 7, HEAP, bytes, bytes), free(0, HEAP)]
}

fn assert_closed(books: &Books) {
    let sum: u64 = books.rows.iter().map(|row| row.bytes).sum();
    assert_eq!(sum, books.resident_bytes);
    for row in &books.rows {
        let parts: u64 = row.parts.iter().map(|part| part.bytes).sum();
        assert_eq!(parts, row.bytes, "{}", row.id);
    }
    let defects: Vec<&String> = (books.notes.iter())
        .filter(|note| note.starts_with("DEFECT"))
        .collect();
    assert!(defects.is_empty(), "{defects:?}");
}

fn marks(names: &[(&str, u64)]) -> Vec<Mark> {
    names
        .iter()
        .map(|(name, ticket)| Mark {
            name: (*name).into(),
            time_ns: ticket * 1_000_000,
            ticket: *ticket,
            thread: None,
        })
        .collect()
}
