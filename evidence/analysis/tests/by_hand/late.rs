//! Recordings of a part of a process's life: what a finding may promise there, and what the report says about it.

use super::advice::of;
use super::*;

const MIB: u64 = 1 << 20;
const ATTACHED: &str = "recorded from a moment of its life on (attached): …";
const PAUSED: &str =
    "7 acquisitions were not recorded, because recording was stopped or had not begun; …";

fn noted(note: &str) -> Facts {
    let mut facts = facts();
    facts.ending = Some(Ending {
        notes: vec![note.into()],
        ..Ending::default()
    });
    facts
}

/// A heap of eight mebibytes, all of it resident, at its peak.
fn with_heap(mut facts: Facts, ticket: u64) -> Facts {
    let mut heap = mapping(MappingKind::Heap, HEAP, 2048, "[heap]", 8 * MIB);
    heap.huge_bytes = Some(0);
    let look = with_runs(heap, &[(HEAP, 8 * MIB)]);
    facts.snapshots = vec![snapshot(ticket, SnapshotCause::Peak, vec![look])];
    facts
}

/// Blocks of 1,016 bytes side by side over the first four mebibytes, all released again but the last; the other four
/// mebibytes had blocks before the recording, or had none.
#[test]
fn free_pages_are_promised_where_their_blocks_were_seen() {
    let addr = |index: u64| HEAP + 16 + index * 1024;
    let mut events: Vec<Event> = (0..4096)
        .map(|index| alloc(index, 1, addr(index), 1016, 1016))
        .collect();
    events.extend((0..4095).map(|index| free(4096 + index, addr(index))));
    let told = |facts: Facts| {
        let report = analyse(with_heap(facts, 9000), Options::default(), &events);
        let retained = of(&report, FindingKind::Retained);
        assert_eq!(retained.len(), 1, "{retained:#?}");
        let one = retained[0];
        (one.saved_bytes, one.confidence, one.title.clone())
    };
    // The last block is on the pages 1023 and 1024; nothing shows what is behind them.
    let (saved, _, title) = told(facts());
    assert_eq!(saved, 1023 * 4096);
    // Of the first page 16 bytes are before the first block.
    let (saved, confidence, same) = told(noted(ATTACHED));
    assert_eq!((saved, confidence), (1022 * 4096, Confidence::Possible));
    assert_eq!(same, title);
    let (saved, confidence, other) = told(noted(PAUSED));
    assert_eq!((saved, confidence), (0, Confidence::Possible));
    assert!(
        other.contains("or of blocks from before the recording"),
        "{other}"
    );
}

/// 400,000 blocks from before, and a few that come and go on one page: nothing is free that is known.
#[test]
fn memory_from_before_the_recording_is_not_offered_as_free() {
    for note in [ATTACHED, PAUSED] {
        let mut events = vec![alloc(0, 1, HEAP + MIB, 1000, 1000)];
        for round in 0..300 {
            events.push(free(1 + 2 * round, HEAP + MIB));
            events.push(alloc(2 + 2 * round, 1, HEAP + MIB, 1000, 1000));
        }
        let report = analyse(with_heap(noted(note), 700), Options::default(), &events);
        let promised: u64 = report.findings.iter().map(|one| one.saved_bytes).sum();
        assert_eq!(promised, 0, "{:#?}", report.findings);
        let retained = of(&report, FindingKind::Retained);
        assert!(
            !retained[0].change.contains("malloc_trim"),
            "{:#?}",
            retained[0]
        );
        let books = report.instants[report.at].books.as_ref().unwrap();
        let free = books.rows.iter().find(|row| row.id == "allocator-free");
        assert_eq!(free.unwrap().label, "free, or not recorded");
    }
}

/// One block in 32 KiB lives: beside it blocks from before the recording may be.
#[test]
fn what_seems_pinned_is_not_promised_where_blocks_may_be_unknown() {
    let events: Vec<Event> = (0..256)
        .map(|index| alloc(index, 1, HEAP + 16 + index * 32768, 24, 24))
        .collect();
    let pinned = |facts: Facts| {
        let report = analyse(with_heap(facts, 300), Options::default(), &events);
        let all = of(&report, FindingKind::Pinned);
        assert_eq!(all.len(), 1, "{:#?}", report.findings);
        all[0].saved_bytes
    };
    // 256 pages, of which chunks of 32 bytes would fill two.
    assert_eq!(pinned(facts()), 254 * 4096);
    assert_eq!(pinned(noted(ATTACHED)), 0);
}

/// The program mapped 64 MiB by a system call of its own: the recorder did not see it, and a recording
/// from birth is not whole then.
#[test]
fn what_was_mapped_past_the_recorder_is_missing() {
    let report = |facts: Facts, kib: u64| {
        let own = mapping(MappingKind::Anon, MAP, kib / 4, "", kib << 10);
        let heap = mapping(MappingKind::Heap, HEAP, 2560, "[heap]", 10 * MIB);
        let mut facts = facts;
        let looks = vec![
            with_runs(heap, &[(HEAP, 10 * MIB)]),
            with_runs(own, &[(MAP, kib << 10)]),
        ];
        facts.snapshots = vec![snapshot(5, SnapshotCause::Peak, looks)];
        let events = [alloc(0, 1, HEAP + 16, 10 * MIB - 16, 10 * MIB - 16)];
        analyse(facts, Options::default(), &events)
    };
    let born = || Facts {
        ending: exited(),
        ..facts()
    };
    let whole = report(born(), (8 << 10) - 4);
    assert!(whole.completeness.complete, "{:?}", whole.completeness);
    let past = report(born(), 64 << 10);
    assert!(!past.completeness.complete);
    assert!(
        past.completeness.notes[0].starts_with("64.0 MiB of anonymous memory was mapped past"),
        "{:?}",
        past.completeness.notes
    );
    let meaning = |report: &Report| {
        let books = report.instants[report.at].books.as_ref().unwrap();
        let row = books.rows.iter().find(|row| row.id == "other-mappings");
        row.unwrap().meaning.clone()
    };
    assert!(meaning(&whole).contains("the loader's"));
    assert!(!meaning(&past).contains("the loader's"));
    let attached = report(noted(ATTACHED), 64 << 10);
    assert!(
        attached.completeness.complete,
        "{:?}",
        attached.completeness
    );
    let notes = attached.completeness.notes;
    assert!(
        notes.iter().any(|note| note.contains("older mappings")),
        "{notes:?}"
    );
}

/// Attached for a while in which the program made no call, or released a block of its past.
#[test]
fn no_call_while_it_was_recorded_is_no_fault() {
    for events in [vec![], vec![free(1, HEAP)]] {
        let report = analyse(noted(ATTACHED), Options::default(), &events);
        assert!(report.completeness.complete, "{:?}", report.completeness);
        let notes = &report.completeness.notes;
        let said = |note: &String| note.contains("while it was recorded");
        assert!(notes.iter().any(said), "{notes:?}");
        assert!(report.completeness.began_late);
    }
}

/// Calls that came from inside the allocator are counted, and no recording is called whole with "none lost" then.
#[test]
fn calls_that_passed_unrecorded_are_counted() {
    let nested = "4568 calls came from inside the allocator or from signal handlers that interrupted it, and were not \
                  recorded";
    let unrecorded = |note: &str| {
        let events = [alloc(0, 1, HEAP + 16, 8, 24)];
        let report = analyse(noted(note), Options::default(), &events);
        report.completeness.unrecorded_calls
    };
    assert_eq!(unrecorded(nested), 4568);
    assert_eq!(unrecorded(PAUSED), 7);
    assert_eq!(unrecorded("1 call came from inside the allocator …"), 1);
    assert_eq!(unrecorded(ATTACHED), 0);
}

/// Anonymous memory that no event reported is a difference from a tenth of what is resident on.
#[test]
fn a_tenth_that_was_mapped_past_the_recorder_is_missing() {
    let whole = |kib: u64| {
        let rest = (100 << 10) - kib;
        let own = mapping(MappingKind::Anon, MAP, kib / 4, "", kib << 10);
        let heap = mapping(MappingKind::Heap, HEAP, rest / 4, "[heap]", rest << 10);
        let looks = vec![
            with_runs(heap, &[(HEAP, rest << 10)]),
            with_runs(own, &[(MAP, kib << 10)]),
        ];
        let mut facts = facts();
        facts.ending = exited();
        facts.snapshots = vec![snapshot(5, SnapshotCause::Peak, looks)];
        let bytes = (rest << 10) - 16;
        let events = [alloc(0, 1, HEAP + 16, bytes, bytes)];
        let report = analyse(facts, Options::default(), &events);
        let books = report.instants[report.at].books.as_ref().unwrap();
        assert_eq!(books.resident_bytes, 100 * MIB);
        report.completeness.complete
    };
    assert!(!whole(10 << 10));
    assert!(whole((10 << 10) - 4));
}

/// Blocks of 1,016 bytes side by side over four mebibytes, all released again; then the program unmaps the second one.
#[test]
fn what_the_program_unmapped_is_not_known_any_more() {
    let addr = |index: u64| HEAP + 16 + index * 1024;
    let mut events: Vec<Event> = (0..4096)
        .map(|index| alloc(index, 1, addr(index), 1016, 1016))
        .collect();
    events.extend((0..4095).map(|index| free(4096 + index, addr(index))));
    let saved = |events: &[Event]| {
        let facts = with_heap(noted(ATTACHED), 9000);
        let report = analyse(facts, Options::default(), events);
        of(&report, FindingKind::Retained)[0].saved_bytes
    };
    let known = saved(&events);
    let (addr, len) = (HEAP + MIB, MIB);
    events.push(event(
        8191,
        EventKind::Unmap {
            addr,
            len,
            by_allocator: false,
        },
    ));
    assert_eq!(saved(&events), known - MIB);
}
