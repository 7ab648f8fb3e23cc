//! The pass that exports add: lifetimes, largest moments and spans of a few events, worked out by hand.
//!
//! ```text
//!   us      0         1000      2000      3000      4000
//!   a (1)   100 ──────────────► free
//!   b (1)             50 ───────────────► realloc 80 ─────► (lives on)
//!   c (2)                       10 ► free
//! ```
//!
//! Y1  Every figure is worked out from the picture.

use skinflint_analysis::model::Frame;
use skinflint_analysis::{Analyzer, Facts, Options, StackNode, Symbolizer};
use skinflint_export::lives::Span;
use skinflint_export::{Lives, LivesPass};
use skinflint_trace::{AllocFn, Ending, Event, EventKind, FreeFn, NodeId, ThreadId};

struct Nameless;

impl Symbolizer for Nameless {
    fn frames(&mut self, _pc: u64, _node: u32) -> Vec<Frame> {
        Vec::new()
    }
}

fn alloc(node: u32, addr: u64, size: u64) -> EventKind {
    let (func, usable) = (AllocFn::Malloc, size + 8);
    EventKind::Alloc {
        func,
        node: NodeId(node),
        addr,
        size,
        usable,
    }
}

fn free(addr: u64) -> EventKind {
    EventKind::Free {
        func: FreeFn::Free,
        addr,
    }
}

fn lives(with_spans: bool, events: &[(u64, EventKind)]) -> Lives {
    let end_ns = 4_000_000;
    let node = |pc| StackNode { pc, parent: 0 };
    let facts = Facts {
        ending: Some(Ending {
            time_ns: end_ns,
            events: events.len() as u64,
            ..Ending::default()
        }),
        nodes: vec![StackNode::default(), node(0x10), node(0x20)],
        ..Facts::default()
    };
    let (pass, found) = LivesPass::new(with_spans, end_ns);
    let mut analyzer = Analyzer::new(facts, Options::default()).unwrap();
    analyzer.add_pass(Box::new(pass));
    for (ticket, (us, kind)) in events.iter().enumerate() {
        analyzer.event(&Event {
            ticket: ticket as u64 + 1,
            time_ns: us * 1000,
            thread: ThreadId(0),
            kind: *kind,
        });
    }
    let report = analyzer.finish(&mut Nameless);
    let lives = found.lock().unwrap().clone();
    assert_eq!(lives.sites.len(), report.sites.len());
    for (site, lives) in report.sites.iter().zip(&lives.sites) {
        // The report's node 1 is trace node 1 here: both are given in ascending order.
        assert_eq!(site.node, lives.trace_node);
    }
    lives
}

fn picture() -> Vec<(u64, EventKind)> {
    let (node, addr) = (NodeId(1), 0x3000);
    vec![
        (0, alloc(1, 0x1000, 100)),
        (1000, alloc(1, 0x2000, 50)),
        (2000, free(0x1000)),
        (2000, alloc(2, 0x1000, 10)),
        (2500, free(0x1000)),
        (3000, EventKind::ReallocRelease { addr: 0x2000 }),
        (
            3000,
            EventKind::ReallocAcquire {
                node,
                addr,
                size: 80,
                usable: 88,
            },
        ),
        (4000, EventKind::Mark { mark: 0 }),
    ]
}

#[test]
fn lifetimes_and_largest_moments() {
    let lives = lives(false, &picture());
    let of = |node| {
        lives
            .sites
            .iter()
            .find(|one| one.trace_node == node)
            .unwrap()
    };
    // a 2000, b 2000 until it is grown, then 1000 until the last event.
    assert_eq!(of(1).lifetime_us, 5000);
    assert_eq!((of(1).max_bytes, of(1).max_blocks), (150, 2));
    assert_eq!(
        (of(2).lifetime_us, of(2).max_bytes, of(2).max_blocks),
        (500, 10, 1)
    );
    assert!(lives.spans.is_empty());
}

#[test]
fn bytes_by_birth_and_death() {
    let lives = lives(true, &picture());
    // A bin is 40 us of the 4000.
    assert_eq!(lives.bin_ns, 40_000);
    let mut spans = lives.spans.clone();
    spans.sort_by_key(|span| (lives.sites[span.site as usize].trace_node, span.born));
    let seen: Vec<(u32, u32, Option<u32>, u64)> = spans
        .iter()
        .map(|span: &Span| {
            (
                lives.sites[span.site as usize].trace_node,
                span.born,
                span.died,
                span.usable_bytes,
            )
        })
        .collect();
    let wanted = [
        (1, 0, Some(50), 108),
        (1, 25, Some(75), 58),
        (1, 75, None, 88),
        (2, 50, Some(62), 18),
    ];
    assert_eq!(seen, wanted);
}

/// Checks lifetimes after hours: microseconds since the start pass 2^32 after 71 minutes.
#[test]
fn lifetimes_are_those_of_the_blocks_after_hours_too() {
    let (hours, second) = (10 * 3_600_000_000, 1_000_000);
    let free_after = |us| (hours + us, free(0x1000));
    let late = [
        (hours, alloc(1, 0x1000, 100)),
        free_after(60 * second),
        (hours + 61 * second, alloc(1, 0x1000, 100)),
        free_after(61 * second + 3),
    ];
    assert_eq!(lives(false, &late).sites[0].lifetime_us, 60 * second + 3);
}
