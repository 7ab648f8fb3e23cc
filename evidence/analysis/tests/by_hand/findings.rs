//! What a report says about the whole run: findings, completeness, errors.

use super::*;

#[test]
fn an_empty_trace_says_why_and_never_that_all_is_well() {
    let mut facts = facts();
    facts.ending = exited();
    let report = analyse(facts, Options::default(), &[]);
    // The recorder was there to the end, and saw no call: that is all that there was.
    assert!(report.completeness.complete);
    assert!(report.completeness.notes[0].starts_with("Nothing was recorded"));
    assert!(report.findings.is_empty());
    assert_eq!(report.instants.len(), 2, "end and heap peak");
    let cut = analyse(super::facts(), Options::default(), &[]);
    assert!(!cut.completeness.complete);
    assert!(cut.completeness.notes[0].starts_with("Nothing was recorded"));
}

#[test]
fn a_whole_trace_has_nothing_missing() {
    let mut facts = facts();
    facts.ending = exited();
    let report = analyse(
        facts,
        Options::default(),
        &[alloc(1, 1, HEAP, 1, 24), free(2, HEAP)],
    );
    assert!(
        report.completeness.complete,
        "{:?}",
        report.completeness.notes
    );
    assert_eq!(report.program.ended, "exit 0");
}

#[test]
fn a_wrong_mark_lists_the_right_ones() {
    let mut facts = facts();
    facts.marks = marks(&[("load", 1), ("serve", 2), ("load", 3)]);
    let options = Options {
        at: Some(At::Mark("sreve".into())),
        ..Options::default()
    };
    let error = Analyzer::new(facts, options).map(|_| ()).unwrap_err();
    let known = vec!["load".to_string(), "serve".to_string()];
    assert_eq!(
        error,
        AnalysisError::NoSuchMark {
            name: "sreve".into(),
            known
        }
    );
    assert!(
        error.to_string().ends_with("one of: load, serve"),
        "{error}"
    );
}

/// f1 takes 128 KiB more before each of four marks, f2 holds 128 KiB all along, f3 gives back.
#[test]
fn growth_between_marks_is_told_from_holding() {
    const K128: u64 = 128 << 10;
    let mut facts = facts();
    facts.marks = marks(&[("round", 10), ("round", 20), ("round", 30), ("round", 40)]);
    facts.ending = exited();
    let mut events = vec![alloc(1, 2, HEAP, K128, K128)];
    for round in 0..4 {
        let at = 2 + round * 10;
        events.push(alloc(at, 1, MAP + round * K128, K128, K128));
        events.push(alloc(at + 1, 3, MAP + (100 + round) * K128, K128, K128));
        if round == 2 {
            // f4 grows once, between the second and the third mark: no trend.
            events.push(alloc(at + 2, 4, MAP + 200 * K128, K128, K128));
        }
        let mark = EventKind::Mark { mark: round as u32 };
        events.push(event(10 + round * 10, mark));
        events.push(free(10 + round * 10 + 1, MAP + (100 + round) * K128));
    }
    let report = analyse(facts, Options::default(), &events);
    let leaks: Vec<_> = report
        .findings
        .iter()
        .filter(|one| one.kind == FindingKind::Leak && one.confidence == Confidence::Likely)
        .collect();
    assert_eq!(leaks.len(), 1, "{leaks:?}");
    // Marks 2 to 4: two steps of 128 KiB.
    assert_eq!(leaks[0].saved_bytes, 2 * K128);
    assert_eq!(leaks[0].now_bytes, 4 * K128);
    let node = report.nodes[leaks[0].node.unwrap() as usize];
    assert_eq!(report.frames[node.frame as usize].function, "f1");
    let exit = report
        .findings
        .iter()
        .find(|one| one.confidence == Confidence::Possible)
        .unwrap();
    assert_eq!(
        (exit.saved_bytes, exit.now_bytes, exit.blocks),
        (0, 6 * K128, 6)
    );
    assert!(exit.what.contains("not a leak by itself"));
    let row = &report.marks[1];
    assert_eq!((row.allocations, row.requested_bytes), (2, 2 * K128));
    assert_eq!((row.live_blocks, row.live_usable_bytes), (4, 4 * K128));
}

/// f1 takes 128 KiB more before each mark: that is promised of rounds of one name, not of stages, nor of one step.
#[test]
fn stages_of_a_program_may_need_more_each() {
    const K128: u64 = 128 << 10;
    let of = |names: &[&str]| {
        let mut facts = facts();
        let at = |number: usize| 10 * number as u64 + 10;
        let named: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(i, name)| (*name, at(i)))
            .collect();
        facts.marks = marks(&named);
        let mut events = Vec::new();
        for round in 0..names.len() {
            let block = MAP + round as u64 * K128;
            events.push(alloc(at(round) - 5, 1, block, K128, K128));
            let mark = EventKind::Mark { mark: round as u32 };
            events.push(event(at(round), mark));
        }
        let report = analyse(facts, Options::default(), &events);
        let held = report
            .findings
            .iter()
            .find(|one| one.title.starts_with("Holds more"));
        held.map(|one| one.saved_bytes)
    };
    assert_eq!(of(&["round", "round", "round"]), Some(2 * K128));
    assert_eq!(of(&["round", "round"]), Some(0));
    assert_eq!(of(&["loaded", "searched", "saved"]), Some(0));
}

/// What the allocator keeps is a finding with advice for that allocator; holders save nothing.
#[test]
fn retained_memory_and_holders() {
    const MIB: u64 = 1 << 20;
    let heap = mapping(MappingKind::Heap, HEAP, 1024, "[heap]", 4 * MIB);
    let mut facts = facts();
    facts.snapshots = vec![snapshot(
        1,
        SnapshotCause::Peak,
        vec![with_runs(heap, &[(HEAP, 4 * MIB)])],
    )];
    let events = [
        alloc(0, 1, HEAP + 0x10, MIB, MIB + 8),
        alloc(1, 2, HEAP + 2 * MIB, 64, 72),
    ];
    let report = analyse(facts, Options::default(), &events);
    let kinds: Vec<_> = report
        .findings
        .iter()
        .map(|one| (one.kind, one.saved_bytes))
        .collect();
    // Between the blocks: the first ends at 1 MiB + 24, and 40 bytes of the free chunk stay, so from the
    // next page to the page on which the second one's header begins. Behind the second: all but its page.
    let free = (MIB - 2 * 4096) + (2 * MIB - 4096);
    assert_eq!(
        kinds,
        [(FindingKind::Retained, free), (FindingKind::Holder, 0)]
    );
    assert!(report.findings[0].change.contains("malloc_trim"));
    assert_eq!(report.findings[1].now_bytes, MIB + 8);
}

/// findings.D1: what does not fit is counted.
#[test]
fn nothing_is_dropped_in_silence() {
    let mut facts = facts();
    facts.nodes = vec![StackNode::default(); 16];
    let events: Vec<_> = (0..12)
        .map(|n| {
            alloc(
                n,
                n as u32 + 1,
                HEAP + n * 0x2_0000,
                0x1_0000 + n,
                0x1_0000 + n,
            )
        })
        .collect();
    let report = analyse(facts, Options::default(), &events);
    let holders: Vec<_> = report
        .findings
        .iter()
        .filter(|one| one.kind == FindingKind::Holder)
        .collect();
    assert_eq!(holders.len(), 9);
    assert!(holders[8].is_rest());
    assert_eq!(
        holders[8].title,
        "4 smaller findings of holder, from 4 stacks"
    );
    assert_eq!(holders[8].more_nodes.len(), 4);
}

/// Large blocks of which nothing is resident.
#[test]
fn untouched_blocks() {
    const MIB: u64 = 1 << 20;
    let heap = mapping(MappingKind::Anon, MAP, 1024, "", 8192);
    let mut facts = facts();
    facts.snapshots = vec![snapshot(
        1,
        SnapshotCause::Peak,
        vec![with_runs(heap, &[(MAP, 8192)])],
    )];
    let events = [alloc(0, 2, MAP + 0x10, 2 * MIB, 2 * MIB)];
    let report = analyse(facts, Options::default(), &events);
    let found = report
        .findings
        .iter()
        .find(|one| one.kind == FindingKind::Untouched)
        .unwrap();
    // Of two pages the block has all but the first 16 bytes.
    assert_eq!(
        (found.now_bytes, found.saved_bytes, found.blocks),
        (8176, 0, 1)
    );
    let books = report.instants[report.at].books.as_ref().unwrap();
    assert_eq!(books.live_not_resident_bytes, 2 * MIB - 8176);
}

/// Buffers of a connection, of which one page is used: what is seen of a large block is seen of these, too.
#[test]
fn untouched_pages_of_many_smaller_blocks() {
    const PAGES: u64 = 12;
    let absent_of = |size: u64| {
        let blocks = 200;
        let len = blocks * PAGES * 4096;
        let heap = mapping(MappingKind::Anon, MAP, len >> 12, "", blocks * 4096);
        let runs: Vec<_> = (0..blocks)
            .map(|n| (MAP + n * PAGES * 4096, 4096))
            .collect();
        let mut facts = facts();
        let seen = vec![with_runs(heap, &runs)];
        facts.snapshots = vec![snapshot(blocks, SnapshotCause::Peak, seen)];
        let events: Vec<_> = (0..blocks)
            .map(|n| alloc(n, 2, MAP + n * PAGES * 4096, size, size))
            .collect();
        let report = analyse(facts, Options::default(), &events);
        let found = report.findings.into_iter();
        let mut untouched = found.filter(|one| one.kind == FindingKind::Untouched);
        untouched.next().map(|one| (one.now_bytes, one.blocks))
    };
    assert_eq!(absent_of(PAGES * 4096), Some((200 * 4096, 200)));
    // Of two pages one is not there; of less no whole page may be the block's own.
    assert_eq!(absent_of(2 * 4096), None, "800 KiB are too few");
    assert_eq!(absent_of(4 * 4096), Some((200 * 4096, 200)));
}
