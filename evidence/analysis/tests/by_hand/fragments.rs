//! The pages that blocks pin, from events to findings: a heap whose every page is known.

use super::*;
use skinflint_analysis::falls::FallSearch;
use skinflint_analysis::ledger::Ledger;
use skinflint_analysis::model::Finding;

const PAGES: u64 = 200;
const PAGE: u64 = 4096;

/// Nodes 2 and 3 are one function, called by two.
struct OneFunction;

impl Symbolizer for OneFunction {
    fn frames(&mut self, _pc: u64, node: u32) -> Vec<Frame> {
        let function = match node {
            2 | 3 => "parse".into(),
            other => format!("f{other}"),
        };
        vec![Frame {
            function,
            ..Frame::default()
        }]
    }
}

/// On each of so many pages a block of 64 bytes by each of these stacks; the heap is resident.
fn heap(ranges: &[(u64, &[u32])]) -> (Facts, Vec<Event>) {
    let mut events = Vec::new();
    let mut page = 0;
    for (pages, stacks) in ranges {
        for _ in 0..*pages {
            for (place, &stack) in (0..).zip(*stacks) {
                let addr = HEAP + page * PAGE + 0x10 + place * 0x200;
                events.push(alloc(events.len() as u64, stack, addr, 64, 72));
            }
            page += 1;
        }
    }
    let mapping = mapping(MappingKind::Heap, HEAP, page, "[heap]", page * PAGE);
    let mapping = with_runs(mapping, &[(HEAP, page * PAGE)]);
    let mut facts = facts();
    // Each node is a child of the first, so that no stack is within another.
    for node in facts.nodes.iter_mut().skip(2) {
        node.parent = 1;
    }
    let last = events.len() as u64 - 1;
    facts.snapshots = vec![snapshot(last, SnapshotCause::Peak, vec![mapping])];
    (facts, events)
}

fn report_of(ranges: &[(u64, &[u32])]) -> Report {
    let (facts, events) = heap(ranges);
    let mut analyzer = Analyzer::with_passes(facts, Options::default(), Vec::new()).unwrap();
    events.iter().for_each(|event| analyzer.event(event));
    analyzer.finish(&mut OneFunction)
}

fn report(stacks: &[u32]) -> Report {
    report_of(&[(PAGES, stacks)])
}

fn pinned(report: &Report) -> Vec<&Finding> {
    let of = |one: &&Finding| one.kind == FindingKind::Pinned;
    report.findings.iter().filter(of).collect()
}

#[test]
fn one_stack_alone() {
    let report = report(&[4]);
    let all = report.instants[report.at].fragments.as_ref().unwrap();
    // A block and its header are 80 bytes.
    assert_eq!(all.pinned_bytes, PAGES * (PAGE - 80));
    assert_eq!((all.nobodys_bytes, all.uncounted_bytes), (0, 0));
    // 16,000 bytes fill four pages.
    assert_eq!((all.packed_pages, all.pinned_pages), (4, PAGES));
    let found = pinned(&report);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].now_bytes, PAGES * (PAGE - 80));
    assert_eq!(found[0].saved_bytes, 196 * PAGE);
    assert_eq!((found[0].blocks, found[0].stacks), (200, 1));
    assert_eq!(
        found[0].title,
        "200 blocks of about 80 bytes keep 784 KiB of free memory resident"
    );
    // All that it acquired lives: nothing short-lived came from there.
    assert!(found[0].change.starts_with("These blocks outlive"));
    let asks =
        "Then call malloc_trim(0): by itself glibc gives back nothing that lies between blocks.";
    assert!(found[0].change.ends_with(asks), "{}", found[0].change);
    assert!(
        found[0]
            .what
            .contains("leave the heap at 16.0 KiB instead of 800 KiB")
    );
}

/// On each of 800 pages one block of this size: what is claimed.
fn one_on_each(bytes: u64) -> u64 {
    let page = |n: u64| HEAP + n * PAGE + 0x10;
    let events: Vec<Event> = (0..800)
        .map(|n| alloc(n, 4, page(n), bytes, bytes))
        .collect();
    let heap = mapping(MappingKind::Heap, HEAP, 800, "[heap]", 800 * PAGE);
    let mut facts = facts();
    let heap = with_runs(heap, &[(HEAP, 800 * PAGE)]);
    facts.snapshots = vec![snapshot(799, SnapshotCause::Peak, vec![heap])];
    let report = analyse(facts, Options::default(), &events);
    let all = report.instants[report.at].fragments.as_ref().unwrap();
    assert_eq!(all.pinned_bytes, 800 * (PAGE - bytes - 8));
    pinned(&report).iter().map(|one| one.saved_bytes).sum()
}

/// A header is 8 bytes: 2,040 fill half of a page. Of blocks that fill more, a third of the heap may be free
/// without a fault.
#[test]
fn ordinary_holes_are_no_pins() {
    assert_eq!(one_on_each(2040), 400 * PAGE);
    // 800 × 2,056 bytes fill 402 pages: 398 would go, which is 1.55 MiB.
    assert_eq!(one_on_each(2048), 0);
}

#[test]
fn stacks_of_one_function_own_their_pages_together() {
    let report = report(&[2, 3]);
    let all = report.instants[report.at].fragments.as_ref().unwrap();
    let stacks: Vec<_> = all
        .pins
        .iter()
        .map(|pin| (pin.sole_pages, pin.joint_pages))
        .collect();
    assert_eq!(stacks, [(0, PAGES), (0, PAGES)]);
    assert_eq!(all.functions.len(), 1);
    let one = &all.functions[0];
    assert_eq!((one.sole_pages, one.joint_pages, one.stacks), (PAGES, 0, 2));
    // 4,096 − 160 on each, all of it solely its own; 32,000 bytes fill eight pages.
    assert_eq!(one.free_bytes, PAGES * (PAGE - 160));
    assert_eq!(one.sole_free_bytes, one.free_bytes);
    assert_eq!((one.packed_pages, one.freed_pages), (8, 192));
    // Half of the 400 were acquired by the 201st from behind, which is 200 acquisitions old and one more.
    let age = one.age.unwrap();
    assert_eq!(
        (age.median_acquisitions, age.oldest_acquisitions),
        (201, 400)
    );
    let found = pinned(&report);
    assert_eq!((found.len(), found[0].stacks), (1, 2));
    assert_eq!(found[0].saved_bytes, 192 * PAGE);
}

#[test]
fn functions_that_share_their_pages_are_one_finding() {
    let report = report(&[4, 5]);
    let all = report.instants[report.at].fragments.as_ref().unwrap();
    assert_eq!(all.functions.len(), 2);
    assert!(
        all.functions
            .iter()
            .all(|one| (one.sole_pages, one.freed_pages) == (0, 0))
    );
    let found = pinned(&report);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].saved_bytes, 192 * PAGE);
    assert_eq!(found[0].now_bytes, PAGES * (PAGE - 160));
    assert!(
        found[0]
            .title
            .starts_with("400 blocks of 2 functions together")
    );
    assert!(found[0].what.contains("f4 and f5"), "{}", found[0].what);
    assert_eq!((found[0].more_nodes.len(), found[0].stacks), (1, 2));
}

/// What each finding saves, in pages, and of how many stacks it is.
fn saved(report: &Report) -> Vec<(u64, u64)> {
    let of = |one: &&Finding| (one.saved_bytes / PAGE, one.stacks);
    pinned(report).iter().map(of).collect()
}

#[test]
fn who_frees_much_alone_is_told_alone_and_the_rest_together() {
    // 300 pages of f4's; 200 of f5's and f7's.
    let report = report_of(&[(300, &[4]), (200, &[5, 7])]);
    // 300 × 80 bytes are six pages: 294, and all three would free 490, of which that is more than half.
    // The two: 32,000 bytes, eight pages of 200.
    assert_eq!(saved(&report), [(294, 1), (192, 2)]);
}

#[test]
fn who_frees_little_of_what_several_do_is_told_with_them_only() {
    // f4 has 150 pages alone, and 250 with f5; on ten there is f7 as well.
    let report = report_of(&[(150, &[4]), (250, &[4, 5]), (10, &[4, 5, 7])]);
    // Alone f4 frees 150 less nine pages (410 × 80 bytes): less than half of what the two free, which is
    // 400 less fourteen (670 × 80). With f7 it were ten more: not worth another function.
    assert_eq!(saved(&report), [(386, 2)]);
}

#[test]
fn a_fall_is_an_instant_and_the_same_in_both_readings() {
    // Eight blocks of 1 MiB; six go, three come, one goes; a snapshot after each step.
    let block = |n: u64| 0x7F_0000_0000 + n * (1 << 20);
    let mut events: Vec<Event> = (0..8)
        .map(|n| alloc(n, 3, block(n), 1 << 20, 1 << 20))
        .collect();
    events.extend((0..6).map(|n| free(8 + n, block(n))));
    events.extend((0..3).map(|n| alloc(14 + n, 3, block(n), 1 << 20, 1 << 20)));
    events.push(free(17, block(0)));
    let snapshots = |cause: SnapshotCause| {
        let at = |ticket| snapshot(ticket, cause.clone(), Vec::new());
        [7, 13, 16, 17].map(at).to_vec()
    };
    let found = |facts: &Facts| {
        let mut ledger = Ledger::new(16);
        let mut search = FallSearch::new(&facts.snapshots);
        for event in &events {
            search.before(event.ticket, &ledger);
            ledger.apply(event, &mut |_, _| {});
        }
        search.finish(&ledger)
    };
    let mut facts = facts();
    facts.snapshots = snapshots(SnapshotCause::Periodic);
    let report = analyse(facts.clone(), Options::default(), &events);
    let last = report.instants.last().unwrap();
    assert_eq!(
        (last.kind, last.label.as_str()),
        (InstantKind::AfterFree, "after-free")
    );
    // Two of eight blocks are left after the six went.
    assert_eq!((last.ticket, last.live_blocks), (13, 2));
    // Where windows are wanted it is the edge after the fourteen events up to there, and no other.
    let windows = Options {
        windows: Some(WindowLimits::default()),
        ..Options::default()
    };
    let report = analyse(facts.clone(), windows, &events);
    let index = report.instants.len() as u32 - 1;
    let edges = report.windows.expect("asked for").edges;
    let own: Vec<u64> = edges
        .iter()
        .filter(|edge| edge.instants.contains(&index))
        .map(|edge| edge.events)
        .collect();
    assert_eq!(own, [14]);
    assert_eq!(found(&facts), Some(13));
    let at = |after_free_ticket| Options {
        at: Some(At::AfterFree),
        after_free_ticket,
        ..Options::default()
    };
    let report = analyse(facts.clone(), at(Some(13)), &events);
    let own = &report.instants[report.at];
    assert_eq!((own.kind, own.live_blocks), (InstantKind::AfterFree, 2));
    let after = report
        .instants
        .iter()
        .filter(|one| one.kind == InstantKind::AfterFree);
    assert_eq!(after.count(), 1);
    // What exit saw is the end and no moment of its own; and without a fall there is none.
    facts.snapshots = snapshots(SnapshotCause::Exit);
    assert_eq!(found(&facts), None);
    let refused = Analyzer::new(facts, at(None)).err();
    assert_eq!(refused, Some(AnalysisError::NoFall));
}
