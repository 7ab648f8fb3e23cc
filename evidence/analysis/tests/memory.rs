//! What the analysis holds for a buffer that passes through very many sizes.
//!
//! ```text
//!   realloc by a word, 250,000 times ──► Analyzer, all passes ──► Report     a global allocator counts: bytes a size
//! ```
//!
//! M1  A size at a stack is a cell, whose counts stay for the whole run; what a pass keeps of it while nothing of it
//!     lives must not.
//!
//! Not here: memory by events and by live blocks (`examples/throughput.rs`).

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use skinflint_analysis::model::Frame;
use skinflint_analysis::{Analyzer, Facts, Options, StackNode, Symbolizer, passes};
use skinflint_trace::{AllocFn, Event, EventKind, NodeId, ThreadId};

thread_local! {
    static BYTES: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

fn grown(by: usize) {
    BYTES.set(BYTES.get().wrapping_add(by));
    PEAK.set(PEAK.get().max(BYTES.get()));
}

// SAFETY: all is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: as the trait demands of the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        BYTES.set(BYTES.get().wrapping_sub(layout.size()));
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    // Large blocks are moved page by page: the old one and the new one are not there at once.
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        BYTES.set(BYTES.get().wrapping_sub(layout.size()));
        grown(size);
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

struct Nameless;

impl Symbolizer for Nameless {
    fn frames(&mut self, _pc: u64, _node: u32) -> Vec<Frame> {
        Vec::new()
    }
}

/// Sizes; just below a power of two, so that tables which double are full.
const SIZES: u64 = 250_000;
/// The most bytes for each: cells, the table that finds them, and the report's own row, of 48. 231 were measured, and
/// 356 when two passes kept an entry for every size (2026-11-27).
const MOST_BYTES: u64 = 250;

#[test]
fn a_size_that_nothing_has_any_more_costs_its_counts() {
    let facts = Facts {
        nodes: vec![
            StackNode { pc: 0, parent: 0 },
            StackNode { pc: 1, parent: 0 },
        ],
        ..Facts::default()
    };
    let options = Options::default();
    let passes = passes::all(&facts, &options);
    let mut analyzer = Analyzer::with_passes(facts, options, passes).expect("default options");
    let mut ticket = 0;
    let (node, addr) = (NodeId(1), 0x5555_0000_0000);
    for step in 1..=SIZES {
        let size = step * 8;
        let usable = (size + 8).next_multiple_of(16).max(32) - 8;
        let func = AllocFn::Malloc;
        let kinds = match step {
            1 => vec![EventKind::Alloc {
                func,
                node,
                addr,
                size,
                usable,
            }],
            _ => vec![
                EventKind::ReallocRelease { addr },
                EventKind::ReallocAcquire {
                    node,
                    addr,
                    size,
                    usable,
                },
            ],
        };
        for kind in kinds {
            ticket += 1;
            analyzer.event(&Event {
                ticket,
                time_ns: ticket * 100,
                thread: ThreadId(0),
                kind,
            });
        }
    }
    let report = analyzer.finish(&mut Nameless);
    assert_eq!(report.sizes.len() as u64, SIZES);
    let each = PEAK.get() as u64 / SIZES;
    println!("{each} bytes for each size");
    assert!(each <= MOST_BYTES, "{each} bytes for each size");
}
