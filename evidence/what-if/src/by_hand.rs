//! Traces made by hand, and what each policy makes of them, worked out on paper.
//!
//! ```text
//!   Script ─► events ─► Simulation ─► WhatIf        expected figures stand in the comments
//! ```
//!
//! H1  Every figure expected here was worked out before the code was run.
//!
//! Not here: random acts (`properties.rs`), parts by themselves (beside each part).

use skinflint_trace::{AllocFn, Event, EventKind, FreeFn, NodeId, ThreadId};

use crate::model::{Model, Size};
use crate::outcome::{Outcome, WhatIf};
use crate::pages::Residents;
use crate::{Options, Policy, Simulation};

/// Writes events; blocks are named by number, which is their address.
#[derive(Default)]
struct Script {
    events: Vec<Event>,
    thread: u32,
    ms: u64,
}

impl Script {
    fn push(&mut self, kind: EventKind) -> &mut Script {
        self.events.push(Event {
            ticket: self.events.len() as u64,
            time_ns: self.ms * 1_000_000,
            thread: ThreadId(self.thread),
            kind,
        });
        self
    }

    fn at(&mut self, ms: u64, thread: u32) -> &mut Script {
        (self.ms, self.thread) = (ms, thread);
        self
    }

    fn get(&mut self, block: u64, size: u64) -> &mut Script {
        self.push(EventKind::Alloc {
            func: AllocFn::Malloc,
            node: NodeId(1),
            addr: block * 16 + 0x1000,
            size,
            usable: size,
        })
    }

    fn free(&mut self, block: u64) -> &mut Script {
        self.push(EventKind::Free {
            func: FreeFn::Free,
            addr: block * 16 + 0x1000,
        })
    }

    fn begin_realloc(&mut self, block: u64) -> &mut Script {
        self.push(EventKind::ReallocRelease {
            addr: block * 16 + 0x1000,
        })
    }

    fn end_realloc(&mut self, block: u64, size: u64) -> &mut Script {
        self.push(EventKind::ReallocAcquire {
            node: NodeId(1),
            addr: block * 16 + 0x1000,
            size,
            usable: size,
        })
    }

    fn run(&self, policies: &[&str], change: impl FnOnce(&mut Options)) -> WhatIf {
        let mut options = Options {
            policies: policies
                .iter()
                .map(|one| Policy::parse(one).expect("a policy"))
                .collect(),
            ..Options::default()
        };
        change(&mut options);
        let mut simulation = Simulation::new(options);
        self.events.iter().for_each(|event| simulation.event(event));
        simulation.finish()
    }

    fn one(&self, policy: &str) -> Outcome {
        self.run(&[policy], |_| ()).policies.remove(0)
    }
}

fn residents(never: u64, spans: u64, holes: u64) -> Residents {
    Residents {
        never,
        spans,
        holes,
    }
}

#[test]
fn one_survivor_and_the_span_that_it_holds() {
    // 128 blocks of 60 bytes, each in 64: two pages. All but the first are freed.
    let mut script = Script::default();
    (0..128).for_each(|block| _ = script.get(block, 60));
    (1..128).for_each(|block| _ = script.free(block));
    let what_if = script.run(&["skinflint:4k:lowest", "skinflint:8k:lowest"], |_| ());
    assert_eq!(
        (
            what_if.at_peak.blocks,
            what_if.at_peak.requested_bytes,
            what_if.at_peak.ticket
        ),
        (128, 7680, 127)
    );
    let low = what_if.after_free.expect("127 frees");
    assert_eq!((low.blocks, low.requested_bytes, low.ticket), (1, 60, 254));
    assert_eq!(what_if.at_end, low);
    assert_eq!(
        (
            what_if.events,
            what_if.acquisitions,
            what_if.average_requested_bytes
        ),
        (255, 128, None)
    );
    for outcome in &what_if.policies {
        assert_eq!(outcome.at_peak.slop_bytes, 512);
        assert_eq!(outcome.at_peak.floor_bytes, 8192);
        assert_eq!(outcome.at_peak.resident, residents(8192, 8192, 8192));
        assert_eq!(outcome.most_resident, residents(8192, 8192, 8192));
        assert_eq!(outcome.average, None);
    }
    let [four, eight] =
        [&what_if.policies[0], &what_if.policies[1]].map(|one| one.after_free.expect("a low"));
    assert_eq!(
        (four.resident, four.held_bytes, four.spans),
        (residents(8192, 4096, 4096), 0, 1)
    );
    assert_eq!(
        (eight.resident, eight.held_bytes, eight.spans),
        (residents(8192, 8192, 4096), 4096, 1)
    );
    assert_eq!((four.slop_bytes, four.floor_bytes), (4, 4096));
}

#[test]
fn the_biggest_fall_is_taken_and_not_the_last_one() {
    // 3,000, down to 1,000, up to 2,500, down to 0: 3,000 below the peak before it. Then 600, 650 and 600
    // again, a small fall; then 10,000, a new peak with no fall behind it.
    let mut script = Script::default();
    script.get(0, 1000).get(1, 2000).free(1).get(2, 1500);
    script
        .free(2)
        .free(0)
        .get(3, 600)
        .get(4, 50)
        .free(4)
        .get(5, 9400);
    let what_if = script.run(&["exact16:4k:lowest"], |_| ());
    let low = what_if.after_free.expect("falls");
    // After free(0) nothing lives: a fall of 3,000.
    assert_eq!((low.ticket, low.requested_bytes), (5, 0));
    assert_eq!(
        (
            what_if.at_peak.requested_bytes,
            what_if.at_end.requested_bytes
        ),
        (10_000, 10_000)
    );
    let end = what_if.policies[0].at_end;
    // 9,400 need three pages; 600 one. 9,400 is in a span of 16-byte multiples: 9,408; 600 in 608.
    assert_eq!((end.floor_bytes, end.slop_bytes), (16_384, 16));
}

const CELL: Size = Size {
    asked: 64,
    touched: 64,
};

#[test]
fn of_equal_falls_the_last_counts_and_of_equal_peaks_the_first() {
    let mut script = Script::default();
    script.get(0, 1000).free(0).get(1, 1000).free(1).get(2, 500);
    let what_if = script.run(&["exact16:4k:lowest"], |_| ());
    assert_eq!(what_if.at_peak.ticket, 0);
    assert_eq!(what_if.after_free.expect("falls").ticket, 3);
}

/// Three spans of 64 slots, all full; then one slot free in the third, two in the second, three in the
/// first, in this order.
fn holed(order: &str) -> Model {
    let policy = Policy::parse(&format!("skinflint:4k:{order}")).expect("a policy");
    let mut model = Model::new(policy, 0);
    (0..192).for_each(|block| model.came(block, CELL, 0));
    [140, 70, 71, 3, 9, 5]
        .into_iter()
        .for_each(|block| model.went(block, CELL));
    model
}

#[test]
fn orders_choose_as_they_say() {
    let took = |order| {
        let mut model = holed(order);
        let next = |block| {
            model.came(block, CELL, 0);
            model.place_of(block).0 / 64
        };
        (200..206).map(next).collect::<Vec<_>>()
    };
    assert_eq!(took("lowest"), [3, 5, 9, 70, 71, 140]);
    // The fewest free slots first; each span is used up.
    assert_eq!(took("fullest"), [140, 70, 71, 3, 5, 9]);
    // The span that opened last first; in it what was freed last.
    assert_eq!(took("lifo"), [5, 9, 3, 71, 70, 140]);
}

#[test]
fn lowest_turns_back_to_a_lower_span_and_fullest_does_not() {
    let next_two = |order| {
        let mut model = holed(order);
        // Fullest and lowest both take 140 first if it is the only one: fill the others.
        (200..206).for_each(|block| model.came(block, CELL, 0));
        model.went(150, CELL);
        model.went(151, CELL);
        model.came(300, CELL, 0);
        model.went(7, CELL);
        model.came(301, CELL, 0);
        [300, 301].map(|block| model.place_of(block).0 / 64)
    };
    assert_eq!(next_two("lowest"), [150, 7]);
    assert_eq!(next_two("fullest"), [150, 151]);
}

#[test]
fn heaps_of_threads_share_no_span_and_are_taken_over() {
    let mut script = Script::default();
    script
        .at(0, 0)
        .get(0, 64)
        .at(0, 1)
        .get(1, 64)
        .at(20, 2)
        .get(2, 64);
    let floor = |policy: &str, ends: Vec<Option<u64>>| {
        let what_if = script.run(&[policy], |options| options.thread_ends_ns = ends);
        what_if.policies[0].at_end.floor_bytes
    };
    assert_eq!(floor("skinflint:4k:lowest", vec![]), 4096);
    assert_eq!(floor("skinflint:4k:lowest:threads", vec![]), 3 * 4096);
    // Thread 1 ended at 10 ms: thread 2 has its heap, and its page.
    assert_eq!(
        floor("skinflint:4k:lowest:threads", vec![None, Some(10_000_000)]),
        2 * 4096
    );
    assert_eq!(
        floor("skinflint:4k:lowest:threads", vec![None, Some(30_000_000)]),
        3 * 4096
    );
}

#[test]
fn averages_are_over_time_and_purges_wait_for_the_delay() {
    let mut script = Script::default();
    script.at(0, 0).get(0, 4096).at(1000, 0).free(0);
    let with = |delay_ms| {
        let what_if = script.run(&["skinflint:4k:lowest"], |options| {
            options.delay_ms = delay_ms;
            options.end_ns = Some(2_000_000_000);
        });
        assert_eq!(what_if.average_requested_bytes, Some(2048));
        assert_eq!(what_if.duration_ns, 2_000_000_000);
        what_if.policies[0].average.expect("two seconds")
    };
    assert_eq!(with(0).resident, residents(4096, 2048, 2048));
    assert_eq!(with(500).resident, residents(4096, 3072, 3072));
    assert_eq!(with(500).floor_bytes, 2048);
    // Of 2 s it was there for 1.8 s; the steps by which time goes on end where the delay does.
    assert_eq!(with(800).resident.holes, 4096 * 18 / 20);
    assert_eq!(with(5000).resident.holes, 4096);
}

#[test]
fn a_low_is_as_idling_leaves_it() {
    let mut script = Script::default();
    script.at(0, 0).get(0, 8192).get(1, 10).free(0);
    script.at(600, 0).get(2, 10);
    let low = |delay_ms| {
        let what_if = script.run(&["exact16:4k:lowest"], |options| {
            options.delay_ms = delay_ms
        });
        assert_eq!(what_if.after_free.expect("a free").time_ns, 0);
        what_if.policies[0].after_free.expect("a free").resident
    };
    assert_eq!(low(0), residents(12_288, 4096, 4096));
    assert_eq!(low(500), residents(12_288, 4096, 4096));
    assert_eq!(low(700), residents(12_288, 12_288, 12_288));
}

#[test]
fn reallocs_grow_in_place_take_their_pages_along_or_copy() {
    // One of 1 MiB at the end of the space grows in place to 2 MiB.
    let mut alone = Script::default();
    alone
        .get(0, 1 << 20)
        .begin_realloc(0)
        .end_realloc(0, 2 << 20);
    let outcome = alone.one("skinflint");
    assert_eq!(outcome.most_resident, residents(2 << 20, 2 << 20, 2 << 20));
    // With a block behind it, it moves with its pages: 2 MiB and a page, never 3 MiB.
    let mut blocked = Script::default();
    blocked
        .get(0, 1 << 20)
        .get(1, 40_000)
        .begin_realloc(0)
        .end_realloc(2, 2 << 20);
    let most = (2 << 20) + 40_960;
    assert_eq!(
        blocked.one("skinflint").most_resident,
        residents(most, most, most)
    );
    // 100,000 bytes are below what is worth moving: the old one's 25 pages are there with the 25 that are copied; then 49.
    let mut copied = Script::default();
    copied
        .get(0, 100_000)
        .get(1, 40_000)
        .begin_realloc(0)
        .end_realloc(2, 200_000);
    assert_eq!(
        copied.one("skinflint").most_resident.holes,
        (25 + 10 + 25) * 4096
    );
    assert_eq!(
        copied.one("skinflint").at_end.resident,
        residents(84 * 4096, 59 * 4096, 59 * 4096)
    );
    // With what the allocator needs, 2 MiB of spares in the high end; 100,000 bytes of the new block are perhaps not written.
    let held = copied.one("skinflint").most_held.expect("known");
    assert_eq!((held.high_bytes - held.low_bytes) >> 20, 2);
    let least = (25 + 10 + 25) * 4096 - 100_000 + (512 << 10);
    assert!((least..least + 4096).contains(&held.low_bytes), "{held:?}");
    // A small one that stays in its class stays where it is.
    let mut small = Script::default();
    small.get(0, 33).begin_realloc(0).end_realloc(0, 48);
    let what_if = small.run(&["skinflint", "glibc"], |_| ());
    assert_eq!(what_if.at_end.requested_bytes, 48);
    assert_eq!(what_if.policies[0].at_end.slop_bytes, 0);
    // glibc: a chunk of 64 bytes holds 56.
    assert_eq!(what_if.policies[1].at_end.slop_bytes, 8);
}

#[test]
fn an_address_taken_during_a_realloc_is_another_block() {
    let mut script = Script::default();
    script.get(0, 64).begin_realloc(0).at(0, 1).get(0, 128);
    script.at(0, 0).end_realloc(5, 256).at(0, 1).free(0);
    let what_if = script.run(&["skinflint"], |_| ());
    assert_eq!(
        (what_if.at_end.blocks, what_if.at_end.requested_bytes),
        (1, 256)
    );
    assert_eq!((what_if.unknown_releases, what_if.faults), (0, 0));
}

#[test]
fn what_is_missing_is_counted_and_harms_nothing() {
    let mut script = Script::default();
    // Unknown free, unknown realloc, an acquisition at a live address, sizes that cannot be, size 0.
    script
        .free(9)
        .begin_realloc(8)
        .end_realloc(8, 100)
        .get(1, 50)
        .get(1, 70);
    script
        .get(2, 1 << 60)
        .get(3, 0)
        .get(4, (1 << 47) - 4096)
        .free(3);
    let what_if = script.run(&["glibc", "skinflint", "jemalloc", "mimalloc"], |_| ());
    assert_eq!((what_if.unknown_releases, what_if.faults), (2, 2));
    assert_eq!(what_if.at_end.blocks, 3);
    for outcome in &what_if.policies {
        // 2^47 - 4,096 as a mapping of its own (model.M2); 100 and 70 bytes on a page or two.
        let direct = (1u64 << 47) - 4096;
        assert!(
            (1..=2).contains(&((outcome.at_end.floor_bytes - direct) / 4096)),
            "{outcome:?}"
        );
    }
    assert!(what_if.table_bytes < 4 << 20, "{}", what_if.table_bytes);
}

#[test]
fn a_trace_without_events_has_figures_of_nothing() {
    let what_if = Script::default().run(&["skinflint", "glibc"], |_| ());
    assert_eq!((what_if.events, what_if.after_free), (0, None));
    assert_eq!(what_if.policies[0].after_free, None);
    assert_eq!(what_if.policies[1].at_end.resident, residents(0, 0, 0));
}

#[test]
fn meshing_pairs_spans_that_survivors_hold() {
    // Two spans of one page; block 0 survives in the first, block 65 (slot 1) in the second.
    let mut script = Script::default();
    (0..128).for_each(|block| _ = script.get(block, 64));
    (0..128)
        .filter(|block| ![0, 65].contains(block))
        .for_each(|block| _ = script.free(block));
    let low = script.one("skinflint:4k:lowest").after_free.expect("frees");
    let mesh = low.mesh.expect("spans");
    assert_eq!(
        (mesh.candidates, mesh.pairs, mesh.saved_bytes),
        (2, 1, 4096)
    );
    assert_eq!(low.mesh_ticket, Some(253));
    // Slot 0 in both: no pair.
    let mut script = Script::default();
    (0..128).for_each(|block| _ = script.get(block, 64));
    (0..128)
        .filter(|block| ![0, 64].contains(block))
        .for_each(|block| _ = script.free(block));
    let low = script.one("skinflint:4k:lowest").after_free.expect("frees");
    assert_eq!(low.mesh.expect("spans").pairs, 0);
    assert_eq!(script.one("glibc").after_free.expect("frees").mesh, None);
}

#[test]
fn glibc_s_heap_by_hand() {
    // 100 blocks of 1,000: chunks of 1,008 (1,008 = 63 × 16). 100,800 bytes from the start: 25 pages.
    let mut script = Script::default();
    (0..100).for_each(|block| _ = script.get(block, 1000));
    // All but the last are freed: the top cannot be trimmed, all pages but the last two are holes:
    // the last block lies at 99 × 1,008 + 8 = 99,800 to 100,800: page 24 alone (98,304 to 102,400).
    (0..99).for_each(|block| _ = script.free(block));
    let low = script.one("glibc").after_free.expect("frees");
    assert_eq!(
        (low.resident, low.held_bytes),
        (residents(25 * 4096, 25 * 4096, 4096), 24 * 4096)
    );
    assert_eq!((low.slop_bytes, low.spans), (0, 0));
}

#[test]
fn another_layout_takes_part() {
    /// Bump allocation that never looks back: what a linear allocation area alone would do.
    struct Bump(u64);
    impl crate::layout::Layout for Bump {
        fn acquire(
            &mut self,
            ask: crate::layout::Ask,
            pages: &mut crate::pages::Pages,
        ) -> crate::layout::Place {
            let place = crate::layout::Place(self.0);
            self.0 += ask.size.next_multiple_of(16);
            let (first, end) = (place.0 / 4096, self.0.div_ceil(4096));
            pages.run_taken(first as u32, (end - first) as u32);
            place
        }
        fn release(&mut self, _: crate::layout::Place, _: u64, _: &mut crate::pages::Pages) {}
        fn in_place(
            &mut self,
            _: crate::layout::Place,
            old: u64,
            new: u64,
            _: &mut crate::pages::Pages,
        ) -> bool {
            old.div_ceil(16) == new.div_ceil(16)
        }
        fn usable(&self, _: crate::layout::Place, size: u64) -> u64 {
            size.next_multiple_of(16)
        }
        fn table_bytes(&self) -> usize {
            0
        }
    }
    let mut simulation = Simulation::new(Options {
        policies: vec![],
        ..Options::default()
    });
    let mut policy = Policy::parse("glibc").expect("known");
    policy.name = "bump".into();
    simulation.add(policy, Box::new(Bump(0)));
    let mut script = Script::default();
    // 512 × 16 = 8 KiB; then the same again after all were freed: 16 KiB, of which 8 hold blocks.
    (0..512).for_each(|block| _ = script.get(block, 16));
    (0..512).for_each(|block| _ = script.free(block));
    (0..512).for_each(|block| _ = script.get(block, 16));
    script
        .events
        .iter()
        .for_each(|event| simulation.event(event));
    let outcome = simulation.finish().policies.remove(0);
    assert_eq!(
        (outcome.policy.as_str(), outcome.at_end.resident),
        ("bump", residents(16_384, 16_384, 8192))
    );
}

#[test]
fn a_block_that_was_realloced_is_the_same_block_when_it_goes() {
    let mut script = Script::default();
    script.get(0, 100).get(1, 50);
    script.begin_realloc(0).end_realloc(2, 5000);
    script.begin_realloc(2).end_realloc(3, 300).free(3);
    let what_if = script.run(&["skinflint"], |_| ());
    // What is left: 50 bytes of the other one.
    assert_eq!(
        (what_if.at_end.blocks, what_if.at_end.requested_bytes),
        (1, 50)
    );
    let low = what_if.after_free.expect("two falls");
    assert_eq!((low.blocks, low.requested_bytes), (1, 50));
    assert_eq!(what_if.policies[0].at_end.floor_bytes, 4096);
}

#[test]
fn a_low_ends_with_a_realloc_that_grows() {
    let mut script = Script::default();
    script.at(0, 0).get(0, 8192).get(1, 10).free(0);
    script.at(600, 0).begin_realloc(1).end_realloc(2, 20_000);
    let what_if = script.run(&["exact16:4k:lowest"], |_| ());
    assert_eq!(what_if.after_free.expect("a free").requested_bytes, 10);
    let low = what_if.policies[0].after_free.expect("a free");
    assert_eq!((low.floor_bytes, low.slop_bytes), (4096, 6));
}

#[test]
fn a_nanosecond_is_time() {
    let mut script = Script::default();
    script.get(0, 64);
    let what_if = script.run(&["skinflint"], |options| options.end_ns = Some(1));
    assert_eq!(
        (what_if.duration_ns, what_if.average_requested_bytes),
        (1, Some(64))
    );
    assert_eq!(what_if.policies[0].average.expect("time").floor_bytes, 4096);
}
