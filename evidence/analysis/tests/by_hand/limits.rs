//! Where a rule begins to hold: the last figure on one side and the first on the other.

use super::*;
use skinflint_analysis::blocks::BlockMap;
use skinflint_analysis::counts::{CountsOptions, concordance};
use skinflint_analysis::pass::{Block, CellId, CellKey};

const K128: u64 = 128 << 10;

fn acquired(ticket: u64, addr: u64, usable: u64) -> Event {
    let kind = EventKind::ReallocAcquire {
        node: NodeId(2),
        addr,
        size: usable,
        usable,
    };
    event(ticket, kind)
}

#[test]
fn small_large_and_huge_of_an_unknown_allocator_begin_at_a_page_and_at_a_mebibyte() {
    let cell = |usable| {
        let key = CellKey {
            node: NodeId(1),
            size: usable,
            usable,
        };
        (key, 1)
    };
    let options = CountsOptions {
        allocator: "libown.so",
        label: "live",
        ..CountsOptions::default()
    };
    let kinds = |usable| {
        let text = concordance([cell(usable)], &options);
        let line = text.lines().last().expect("a line for each size");
        let parts: Vec<_> = line.split(": ").collect();
        parts[1].to_owned()
    };
    assert_eq!([kinds(1), kinds(4095)], ["small", "small"]);
    assert_eq!([kinds(4096), kinds((1 << 20) - 1)], ["large", "large"]);
    assert_eq!([kinds(1 << 20), kinds(1 << 40)], ["huge", "huge"]);
}

#[test]
fn a_map_of_blocks_has_those_that_were_put_in_and_no_others() {
    let mut map = BlockMap::default();
    for addr in [1, 2, HEAP] {
        let block = Block::new(addr, CellId(0), ThreadId(0), 0, 7);
        assert_eq!(map.insert(block), None);
    }
    let mut addrs: Vec<u64> = map.iter().map(|block| block.addr).collect();
    addrs.sort_unstable();
    assert_eq!(addrs, [1, 2, HEAP]);
}

#[test]
fn the_root_of_the_reports_stacks_is_its_own_parent() {
    let report = analyse(
        facts(),
        Options::default(),
        &[alloc(1, 3, HEAP + 0x10, 10, 24)],
    );
    // The empty stack, and 1 ← 2 ← 3.
    let parents: Vec<_> = report.nodes.iter().map(|node| node.parent).collect();
    assert_eq!(parents, [0, 0, 1, 2]);
}

/// Another thread took the address while a realloc was under way, and then the realloc failed.
#[test]
fn a_cancelled_realloc_ends_what_was_put_in_its_place() {
    let events = [
        alloc(0, 1, HEAP + 0x10, 10, 24),
        event(1, EventKind::ReallocRelease { addr: HEAP + 0x10 }),
        alloc(2, 2, HEAP + 0x10, 20, 24),
        event(3, EventKind::ReallocCancel { addr: HEAP + 0x10 }),
        free(4, HEAP + 0x10),
    ];
    let report = analyse(facts(), Options::default(), &events);
    // Acquired: 0 and 2. Released: 2, whose own release was lost, and 4.
    assert_eq!((report.totals.allocations, report.totals.frees), (2, 2));
    assert_eq!(report.completeness.unknown_frees, 0);
    assert!(!report.completeness.complete);
}

#[test]
fn a_realloc_to_an_address_that_no_program_has_is_damage() {
    let with = |addr, usable| {
        let events = [
            alloc(0, 1, HEAP + 0x10, 10, 24),
            event(1, EventKind::ReallocRelease { addr: HEAP + 0x10 }),
            acquired(2, addr, usable),
        ];
        analyse(facts(), Options::default(), &events)
            .totals
            .reallocs
    };
    assert_eq!(with((1 << 48) - 16, 16), 1);
    assert_eq!(with(1 << 48, 16), 0);
    assert_eq!(with(HEAP + 0x20, 1 << 48), 0);
    assert_eq!(with(0, 16), 0);
}

#[test]
fn notes_of_the_plan_are_notes_of_the_report() {
    let options = Options {
        at: Some(At::Peak),
        ..Options::default()
    };
    let report = analyse(facts(), options, &[alloc(1, 1, HEAP + 0x10, 10, 24)]);
    let notes = report.completeness.notes.join("\n");
    assert!(notes.contains("was never sampled"), "{notes}");
}

/// f1 takes 128 KiB more in each of four rounds; the ages of its blocks are whole seconds.
#[test]
fn ages_are_seconds_up_to_the_end_of_the_run() {
    const SECOND: u64 = 1_000_000_000;
    let at = |mut event: Event, seconds: u64| {
        event.time_ns = seconds * SECOND;
        event
    };
    let mut facts = facts();
    facts.marks = marks(&[("round", 10), ("round", 20), ("round", 30), ("round", 40)]);
    facts.ending = Some(Ending {
        exit: Exit::Exited(0),
        time_ns: 5_000 * SECOND,
        ..Ending::default()
    });
    let mut events = Vec::new();
    for round in 0..4 {
        let got = alloc(2 + round * 10, 1, MAP + round * K128, K128, K128);
        events.push(at(got, 1_000 * round));
        let mark = EventKind::Mark { mark: round as u32 };
        events.push(at(event(10 + round * 10, mark), 1_000 * round));
    }
    let report = analyse(facts, Options::default(), &events);
    // Born at 0 s, 1,000 s, 2,000 s and 3,000 s: on average at 1,500 s of 5,000 s.
    let said = "Its blocks at the end are 3500.0 s old on average.";
    let what = |one: &skinflint_analysis::model::Finding| one.what.contains(said);
    assert!(report.findings.iter().any(what), "{:#?}", report.findings);
}

/// What the pass over phases says of a stack, the marks do not say again.
#[test]
fn a_stack_that_leaks_in_a_phase_is_found_once() {
    let mut facts = facts();
    let tickets: Vec<u64> = (0..20).map(|mark| 10 + mark * 10).collect();
    facts.marks = tickets
        .iter()
        .enumerate()
        .map(|(index, ticket)| Mark {
            name: ["req begin", "req end"][index % 2].into(),
            time_ns: ticket * 1_000_000,
            ticket: *ticket,
            thread: None,
        })
        .collect();
    let mut events = Vec::new();
    for (index, ticket) in (0u64..).zip(&tickets) {
        let mark = EventKind::Mark { mark: index as u32 };
        events.push(event(*ticket, mark));
        if index % 2 == 0 {
            events.push(alloc(ticket + 1, 1, MAP + index * K128, K128, K128));
        } else {
            // f2 grows between the requests, which only the marks can tell.
            events.push(alloc(ticket + 1, 2, MAP + (100 + index) * K128, K128, K128));
        }
    }
    let mut analyzer = Analyzer::new(facts, Options::default()).expect("no mark is asked for");
    events.iter().for_each(|event| analyzer.event(event));
    let report = analyzer.finish(&mut Names);
    let name = |node: u32| {
        let node = report.nodes[node as usize];
        report.frames[node.frame as usize].function.clone()
    };
    let mut found: Vec<_> = report
        .findings
        .iter()
        .filter(|one| one.kind == FindingKind::Leak && one.confidence == Confidence::Likely)
        .filter_map(|one| one.node.map(name))
        .collect();
    found.sort_unstable();
    assert_eq!(found, ["f1", "f2"], "{:#?}", report.findings);
}

/// The finding on free memory says how far the pages were from the counts, if that is far.
#[test]
fn pages_that_were_read_long_after_the_counts_are_said_to_be() {
    const MIB: u64 = 1 << 20;
    let said = |took_ns| {
        let heap = mapping(MappingKind::Heap, HEAP, 1024, "[heap]", 4 * MIB);
        let heap = with_runs(heap, &[(HEAP, 4 * MIB)]);
        let mut facts = facts();
        facts.snapshots = vec![snapshot(1, SnapshotCause::Peak, vec![heap])];
        facts.snapshots[0].took_ns = took_ns;
        let events = [
            alloc(0, 1, HEAP + 0x10, MIB, MIB + 8),
            alloc(1, 2, HEAP + 2 * MIB, 64, 72),
        ];
        let report = analyse(facts, Options::default(), &events);
        let skew_ns = report.instants[report.at]
            .books
            .as_ref()
            .map_or(0, |books| books.skew_ns);
        let retained = report
            .findings
            .iter()
            .find(|one| one.kind == FindingKind::Retained)
            .expect("3 MiB are free");
        (skew_ns, retained.what.contains("Pages were read up to"))
    };
    assert_eq!(said(10_000_000), (10_000_000, false));
    assert_eq!(said(10_000_001), (10_000_001, true));
}
