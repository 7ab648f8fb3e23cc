//! Heap pages on which no recorded block ever was: a row, never free memory, and above a bound something missing.

use super::*;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
const ATTACHED: &str =
    "recorded from a moment of its life on (attached): blocks from before are not known";

/// A heap of so many resident pages, looked at after the event with this ticket.
fn with_heap(mut facts: Facts, ticket: u64, pages: u64) -> Facts {
    let mut heap = mapping(MappingKind::Heap, HEAP, pages, "[heap]", pages * PAGE);
    heap.huge_bytes = Some(0);
    let heap = with_runs(heap, &[(HEAP, pages * PAGE)]);
    facts.snapshots = vec![snapshot(ticket, SnapshotCause::Peak, vec![heap])];
    facts
}

/// A recording that a signal ended: the allocator was not asked.
fn killed() -> Facts {
    Facts {
        ending: Some(Ending {
            exit: Exit::Signal(15),
            time_ns: 9_000_000_000,
            events: 2,
            ..Ending::default()
        }),
        ..facts()
    }
}

fn rows(report: &Report) -> [u64; 4] {
    let books = report.instants[report.at].books.as_ref().unwrap();
    assert_closed(books);
    [
        "live",
        "allocator-free",
        "heap-unseen",
        "allocator-metadata",
    ]
    .map(|id| row(books, id))
}

/// The sentence that says so, if it is there; it is what makes the recording incomplete.
fn said(report: &Report) -> Option<&String> {
    let mut notes = report.completeness.notes.iter();
    let found = notes.find(|note| note.contains("never held a recorded block"));
    assert_eq!(
        report.completeness.complete,
        found.is_none(),
        "{:?}",
        report.completeness
    );
    found
}

#[test]
fn a_page_is_free_only_where_a_block_was() {
    let events = [
        // Page 0; pages 1 to 3, from the middle of 1 to the first byte of 3; page 5.
        alloc(1, 3, HEAP + 16, 100, 104),
        alloc(2, 3, HEAP + PAGE + 2048, 2048 + PAGE + 1, 2048 + PAGE + 1),
        alloc(3, 3, HEAP + 5 * PAGE, 16, 24),
        free(4, HEAP + PAGE + 2048),
        free(5, HEAP + 5 * PAGE),
    ];
    let report = analyse(with_heap(facts(), 5, 8), Options::default(), &events);
    // Free: page 0 without the block, its header; pages 1, 2, 3 and 5. No block was on 4, 6 and 7.
    assert_eq!(rows(&report), [100, 5 * PAGE - 104 - 8, 3 * PAGE, 8]);
    // Without a recording from birth nothing is told apart.
    let mut late = facts();
    late.ending = Some(Ending {
        notes: vec![ATTACHED.into()],
        ..exited().unwrap()
    });
    let late = analyse(with_heap(late, 5, 8), Options::default(), &events);
    assert_eq!(rows(&late), [100, 8 * PAGE - 104 - 8, 0, 8]);
}

/// 30 MiB that the program got by `brk`, beside a block; a signal ends it.
#[test]
fn heap_got_past_the_recorder_is_missing_and_nothing_is_advised() {
    let events = [alloc(1, 3, HEAP + 16, 3000, 3000), free(2, HEAP + 16)];
    let pages = 30 * MIB / PAGE;
    let report = analyse(with_heap(killed(), 2, pages), Options::default(), &events);
    let all = 30 * MIB;
    assert_eq!(rows(&report), [0, PAGE, all - PAGE, 0]);
    let line = said(&report).expect("it is said");
    assert!(
        line.starts_with("30.0 MiB of the heap's resident pages"),
        "{line}"
    );
    assert!(
        report.findings.iter().all(|one| one.saved_bytes == 0),
        "{:#?}",
        report.findings
    );
    let retained = report
        .findings
        .iter()
        .any(|one| one.kind == FindingKind::Retained);
    assert!(!retained, "{:#?}", report.findings);
    // The same pages after a block was on all of them: free, and complete.
    let used = [
        alloc(1, 3, HEAP + 16, all - 32, all - 32),
        free(2, HEAP + 16),
    ];
    let report = analyse(with_heap(killed(), 2, pages), Options::default(), &used);
    assert_eq!(rows(&report), [0, all, 0, 0]);
    assert_eq!(said(&report), None);
    assert!(
        report
            .findings
            .iter()
            .any(|one| one.kind == FindingKind::Retained)
    );
}

#[test]
fn what_a_report_is_asked_for_does_not_decide_what_is_missing() {
    let events = [alloc(1, 3, HEAP + 16, 3000, 3000), free(2, HEAP + 16)];
    for at in [
        None,
        Some(At::End),
        Some(At::Time(500_000)),
        Some(At::HeapPeak),
    ] {
        let options = Options {
            at,
            ..Options::default()
        };
        let report = analyse(with_heap(killed(), 2, 7680), options, &events);
        assert!(said(&report).is_some());
    }
    let facts = with_heap(killed(), 2, 7680);
    let mut analyzer = Analyzer::with_passes(facts, Options::default(), Vec::new()).unwrap();
    events.iter().for_each(|event| analyzer.event(event));
    assert_eq!(analyzer.judge().missing.len(), 1);
}

/// While pages are read the program goes on: a block's page is there before its event.
#[test]
fn blocks_that_come_while_pages_are_read_explain_them() {
    let of = |ms: u64| {
        let size = 20 * MIB - 32;
        let later = Event {
            time_ns: ms * 1_000_000,
            ..alloc(3, 3, HEAP + 4096, size, size)
        };
        let events = [
            alloc(1, 3, HEAP + 16, 3000, 3000),
            free(2, HEAP + 16),
            later,
        ];
        let mut facts = with_heap(killed(), 2, 20 * MIB / PAGE);
        facts.ending.as_mut().unwrap().events = 3;
        let report = analyse(facts, Options::default(), &events);
        assert_eq!(rows(&report)[2], 20 * MIB - PAGE);
        said(&report).is_some()
    };
    assert_eq!([1002, 1003].map(of), [false, true]);
}

#[test]
fn the_rest_of_a_huge_page_is_no_unknown_memory() {
    let base = HEAP.next_multiple_of(2 * MIB);
    let of = |huge_bytes, resident: u64, at: u64| {
        let mut heap = mapping(MappingKind::Heap, base, 4 * MIB / PAGE, "[heap]", resident);
        heap.huge_bytes = huge_bytes;
        let mut facts = facts();
        let look = vec![with_runs(heap, &[(base, resident)])];
        facts.snapshots = vec![snapshot(1, SnapshotCause::Peak, look)];
        let events = [alloc(1, 3, base + at, 100, 100)];
        rows(&analyse(facts, Options::default(), &events))[2]
    };
    // One block in the first of two huge pages: the second is somebody's.
    assert_eq!(of(Some(4 * MIB), 4 * MIB, 16), 2 * MIB);
    assert_eq!(of(Some(2 * MIB), 2 * MIB, MIB + 16), 0);
    assert_eq!(
        of(None, 2 * MIB, MIB + 16),
        0,
        "an older trace does not say"
    );
    assert_eq!(of(Some(0), 2 * MIB, MIB + 16), 2 * MIB - PAGE);
    assert_eq!(
        of(Some(2 * MIB), 2 * MIB - PAGE, MIB + 16),
        2 * MIB - 2 * PAGE,
        "not whole"
    );
}

/// A page that was read and never written is listed, and is no memory.
#[test]
fn pages_of_zeros_are_taken_from_what_no_block_was_on() {
    let heap = mapping(MappingKind::Heap, HEAP, 8, "[heap]", 3 * PAGE);
    let mut facts = facts();
    let look = vec![with_runs(heap, &[(HEAP, 8 * PAGE)])];
    facts.snapshots = vec![snapshot(2, SnapshotCause::Peak, look)];
    let events = [
        alloc(1, 3, HEAP + PAGE + 16, 100, 100),
        free(2, HEAP + PAGE + 16),
    ];
    let report = analyse(facts, Options::default(), &events);
    assert_eq!(rows(&report), [0, PAGE, 2 * PAGE, 0]);
}

#[test]
fn pages_that_a_parents_blocks_were_on_are_free_in_its_copy() {
    let mut facts = with_heap(killed(), 1, 2560);
    facts.process.origin = Some(Origin {
        how: OriginKind::Fork,
        uid: "1".into(),
        pid: 7,
        fork_ticket: 9,
    });
    facts.ending.as_mut().unwrap().events = 1;
    let mut analyzer = Analyzer::with_passes(facts, Options::default(), Vec::new()).unwrap();
    let all = 10 * MIB;
    analyzer.inherit(&alloc(1, 3, HEAP + 16, all - 16, all - 16));
    analyzer.inherit(&free(2, HEAP + 16));
    analyzer.event(&alloc(1, 3, HEAP + 16, 100, 104));
    let report = analyzer.finish(&mut Names);
    assert_eq!(rows(&report), [100, all - 104 - 8, 0, 8]);
    assert_eq!(said(&report), None);
}
