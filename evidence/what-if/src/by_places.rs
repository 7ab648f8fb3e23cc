//! Tests of blocks that keep their place: by hand, on a model of its own.
//!
//! ```text
//!   came, went, regrown ─► place and pages      expected figures stand in the comments
//! ```
//!
//! Not here: whole traces (`by_hand.rs`).

use skinflint_sizes::{ClassKind, Scheme};
use skinflint_trace::{AllocFn, Event, EventKind, NodeId, ThreadId};

use crate::classes::Table;
use crate::model::{Model, Size};
use crate::pages::{PAGE, Pages};
use crate::policy::{Classes, Length};
use crate::{Options, Policy, Simulation, WhatIf};

fn size(asked: u64) -> Size {
    Size {
        asked,
        touched: asked,
    }
}

fn model() -> Model {
    Model::new(Policy::parse("skinflint:4k:lowest").expect("a policy"), 0)
}

fn simulated(events: &[(u64, EventKind)], end_ns: u64) -> WhatIf {
    let mut simulation = Simulation::new(Options {
        policies: vec![Policy::parse("skinflint:4k:lowest").expect("a policy")],
        end_ns: Some(end_ns),
        ..Options::default()
    });
    for (ticket, (time_ns, kind)) in (0..).zip(events) {
        simulation.event(&Event {
            ticket,
            time_ns: *time_ns,
            thread: ThreadId(0),
            kind: *kind,
        });
    }
    simulation.finish()
}

fn get(addr: u64, size: u64) -> EventKind {
    EventKind::Alloc {
        func: AllocFn::Malloc,
        node: NodeId(1),
        addr,
        size,
        usable: size,
    }
}

fn regrown(from: u64, to: u64, size: u64) -> [EventKind; 2] {
    let acquired = EventKind::ReallocAcquire {
        node: NodeId(1),
        addr: to,
        size,
        usable: size,
    };
    [EventKind::ReallocRelease { addr: from }, acquired]
}

#[test]
fn a_block_that_keeps_its_class_keeps_its_slot() {
    // 64 blocks of 60 bytes fill a page: a block that had to move would need a second one.
    let mut model = model();
    (0..64).for_each(|block| model.came(block, size(60), 0));
    let before = model.place_of(9);
    model.regrown(9, size(60), size(64), 0);
    assert_eq!(model.place_of(9).0, before.0);
    // 65 bytes are of another class.
    model.regrown(9, size(64), size(65), 0);
    assert_ne!(model.place_of(9).0 / PAGE, before.0 / PAGE);
}

#[test]
fn a_large_block_that_shrinks_stays_and_gives_its_end_back() {
    let mut model = model();
    model.came(0, size(100 * PAGE), 0);
    model.came(1, size(50 * PAGE), 0);
    let before = model.place_of(0);
    model.regrown(0, size(100 * PAGE), size(60 * PAGE), 0);
    assert_eq!(model.place_of(0).0, before.0);
    // 40 pages behind it are free for another.
    model.came(2, size(40 * PAGE), 0);
    assert_eq!(model.place_of(2).0, before.0 + 60 * PAGE);
}

#[test]
fn a_fall_may_be_a_block_that_shrinks() {
    let mut events = vec![(0, get(0x1000, 500_000)), (0, get(0x9_0000, 16))];
    events.extend(regrown(0x1000, 0x1000, 1000).map(|kind| (0, kind)));
    events.push((0, get(0xA_0000, 100)));
    let low = simulated(&events, 0)
        .after_free
        .expect("499,000 bytes fell");
    assert_eq!((low.ticket, low.requested_bytes), (3, 1016));
}

#[test]
fn slop_is_averaged_over_time() {
    // 60 bytes in 64 for the first of four seconds, then 33 in 48 beside it.
    const SECOND: u64 = 1_000_000_000;
    let events = [(0, get(0x1000, 60)), (SECOND, get(0x2000, 33))];
    let what_if = simulated(&events, 4 * SECOND);
    let average = what_if.policies[0].average.expect("four seconds");
    // 4 for 4 s and 15 for 3 s: 61 in 4 s.
    assert_eq!(average.slop_bytes, 61 / 4);
}

#[test]
fn tables_have_the_small_classes_of_a_scheme_and_no_others() {
    for scheme in Scheme::all() {
        let table = Table::new(&Classes::Scheme(scheme), Length::Tiers);
        let mut size = 1;
        while let Some(class) = table.class_of(size) {
            let given = u64::from(table.get(class).size);
            assert!(given >= size && given <= u64::from(skinflint_sizes::spans::SMALL_MAX));
            assert_eq!(scheme.kind(given), ClassKind::Small, "{}", scheme.name);
            size += 1;
        }
        // The next one is too large for this scheme, or for a slot.
        let given = scheme.usable(size);
        assert!(
            scheme.kind(given) != ClassKind::Small
                || given > u64::from(skinflint_sizes::spans::SMALL_MAX),
            "{}: {size}",
            scheme.name
        );
    }
}

#[test]
fn what_pages_take_to_follow_is_counted() {
    let mut pages = Pages::new(0);
    let before = pages.table_bytes();
    pages.run_taken(0, 1000);
    // Each page's live blocks alone are two bytes.
    assert!(pages.table_bytes() >= before + 2000);
}
