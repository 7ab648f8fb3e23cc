//! What a simulation says of its tables, against what they really ask for.
//!
//! ```text
//!   a global allocator that counts the bytes of this thread ◄── Simulation ──► WhatIf::table_bytes
//! ```
//!
//! T1  Compared are differences of two simulations: of a policy and none, or of two runs of events. What both have,
//!     or leave out of the figure, is in neither.
//!
//! Not here: what is simulated (`src/by_hand.rs`).

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use skinflint_trace::{AllocFn, Event, EventKind, FreeFn, NodeId, ThreadId};
use skinflint_what_if::{Options, Policy, Simulation};

thread_local! {
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: all is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.set(BYTES.get() + layout.size() as i64);
        // SAFETY: as the trait demands of the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        BYTES.set(BYTES.get() - layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Blocks of one size, and then releases of some of them.
fn events(blocks: u64, size: u64, freed: &dyn Fn(u64) -> bool) -> Vec<Event> {
    let addr = |block: u64| (block + 1) << 28;
    let event = |ticket, kind| Event {
        ticket,
        time_ns: 0,
        thread: ThreadId(0),
        kind,
    };
    let get = |block: u64| {
        let kind = EventKind::Alloc {
            func: AllocFn::Malloc,
            node: NodeId(1),
            addr: addr(block),
            size,
            usable: size,
        };
        event(block, kind)
    };
    let free = |block: u64| {
        let kind = EventKind::Free {
            func: FreeFn::Free,
            addr: addr(block),
        };
        event(blocks + block, kind)
    };
    let gone = (0..blocks).filter(|block| freed(*block));
    (0..blocks).map(get).chain(gone.map(free)).collect()
}

/// Bytes that a simulation holds, and those that it says.
fn simulated(policies: &[&str], events: &[Event]) -> (i64, i64) {
    let policies = policies
        .iter()
        .map(|one| Policy::parse(one).expect("known"));
    let options = Options {
        policies: policies.collect(),
        ..Options::default()
    };
    let before = BYTES.get();
    let mut simulation = Simulation::new(options);
    events.iter().for_each(|event| simulation.event(event));
    let held = BYTES.get() - before;
    (held, simulation.finish().table_bytes as i64)
}

/// Of two differences in bytes, what the second is of the first, in per cent.
fn percent((held, said): (i64, i64), (less_held, less_said): (i64, i64)) -> i64 {
    assert!(held - less_held > 20_000, "{held} and {less_held} bytes");
    (said - less_said) * 100 / (held - less_held)
}

#[test]
fn pages_of_large_blocks_are_tables_to_the_byte() {
    let events = events(20, 40 << 20, &|_| false);
    let part = percent(
        simulated(&["skinflint:4k:lowest"], &events),
        simulated(&[], &events),
    );
    assert!((97..=103).contains(&part), "{part} %");
}

#[test]
fn spans_and_the_order_that_they_are_in_are_tables() {
    // Four to a page, of which each fourth goes: all spans have a free slot.
    let events = events(64_000, 1000, &|block| block % 4 == 0);
    let part = percent(
        simulated(&["skinflint:4k:lowest"], &events),
        simulated(&[], &events),
    );
    assert!((80..=120).contains(&part), "{part} %");
}

#[test]
fn free_runs_are_tables() {
    // As many pages go: each second run of ten, or one long run.
    let with = |freed: &dyn Fn(u64) -> bool| {
        let events = events(8000, 40_000, freed);
        simulated(&["skinflint:4k:lowest"], &events)
    };
    let part = percent(with(&|block| block % 2 == 0), with(&|block| block < 4000));
    assert!((50..=150).contains(&part), "{part} %");
}
