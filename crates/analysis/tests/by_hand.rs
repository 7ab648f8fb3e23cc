//! Traces of which every figure was worked out by hand, in the comments beside them.
//!
//! ```text
//!   a dozen events, one snapshot ──► every row of the books, every total, every note
//! ```
//!
//! Not here: random traces (`judge.rs`).

use skinflint_analysis::model::{Books, Confidence, FindingKind, Frame, InstantKind, Report};
use skinflint_analysis::pass::{Act, Context, Pass};
use skinflint_analysis::{AnalysisError, Analyzer, At, Facts, Options, StackNode, Symbolizer};
use skinflint_trace::{
    AllocFn, Ending, Event, EventKind, Exit, FreeFn, Mapping, MappingKind, Mark, NodeId, Origin,
    OriginKind, ProcessInfo, Snapshot, SnapshotCause, ThreadId,
};

/// Node 5 is two frames, one inlined into the other; node 6 has no name.
struct Names;

impl Symbolizer for Names {
    fn frames(&mut self, _pc: u64, node: u32) -> Vec<Frame> {
        let frame = |function: &str, inlined| Frame {
            function: function.into(),
            inlined,
            ..Frame::default()
        };
        match node {
            5 => vec![frame("inner", true), frame("outer", false)],
            6 => Vec::new(),
            _ => vec![frame(&format!("f{node}"), false)],
        }
    }
}

/// A chain 1 ← 2 ← … : each node calls the next.
fn facts() -> Facts {
    Facts {
        process: ProcessInfo {
            allocator: "glibc 2.36".into(),
            ..ProcessInfo::default()
        },
        nodes: (0..8)
            .map(|id: u32| StackNode {
                pc: 0x1000 + u64::from(id),
                parent: id.saturating_sub(1),
            })
            .collect(),
        ..Facts::default()
    }
}

fn event(ticket: u64, kind: EventKind) -> Event {
    Event {
        ticket,
        time_ns: ticket * 1_000_000,
        thread: ThreadId(0),
        kind,
    }
}

fn alloc(ticket: u64, node: u32, addr: u64, size: u64, usable: u64) -> Event {
    let node = NodeId(node);
    event(
        ticket,
        EventKind::Alloc {
            func: AllocFn::Malloc,
            node,
            addr,
            size,
            usable,
        },
    )
}

fn free(ticket: u64, addr: u64) -> Event {
    event(
        ticket,
        EventKind::Free {
            func: FreeFn::Free,
            addr,
        },
    )
}

fn analyse(facts: Facts, options: Options, events: &[Event]) -> Report {
    let mut analyzer = Analyzer::with_passes(facts, options, Vec::new()).unwrap();
    events.iter().for_each(|event| analyzer.event(event));
    analyzer.finish(&mut Names)
}

fn mapping(kind: MappingKind, start: u64, pages: u64, name: &str, rss: u64) -> Mapping {
    Mapping {
        start,
        end: start + pages * 4096,
        kind,
        name: name.into(),
        rss_bytes: rss,
        ..Mapping::default()
    }
}

fn with_runs(mut mapping: Mapping, runs: &[(u64, u64)]) -> Mapping {
    mapping.runs = runs.to_vec();
    mapping.runs_known = true;
    mapping
}

fn snapshot(ticket: u64, cause: SnapshotCause, mappings: Vec<Mapping>) -> Snapshot {
    Snapshot {
        time_ns: ticket * 1_000_000,
        ticket,
        cause,
        took_ns: 500,
        mappings,
    }
}

fn exited() -> Option<Ending> {
    Some(Ending {
        exit: Exit::Exited(0),
        time_ns: 100_000_000,
        ..Ending::default()
    })
}

fn row(books: &Books, id: &str) -> u64 {
    books
        .rows
        .iter()
        .find(|row| row.id == id)
        .unwrap_or_else(|| panic!("no row {id}"))
        .bytes
}

fn assert_closed(books: &Books) {
    let sum: u64 = books.rows.iter().map(|row| row.bytes).sum();
    assert_eq!(sum, books.resident_bytes);
    for row in &books.rows {
        let parts: u64 = row.parts.iter().map(|part| part.bytes).sum();
        assert_eq!(parts, row.bytes, "{}", row.id);
    }
}

const HEAP: u64 = 0x55_0000_0000;
const MAP: u64 = 0x7F_0000_0000;

/// Two program maps and a mapped file, a heap of four pages of which the first, second and fourth
/// are resident.
fn program() -> (Vec<Event>, Vec<Mapping>) {
    let map = |ticket, addr, pages: u64, by_allocator| {
        event(
            ticket,
            EventKind::Map {
                node: NodeId(4),
                addr,
                len: pages * 4096,
                prot: 3,
                flags: 0x22,
                by_allocator,
            },
        )
    };
    let events = vec![
        map(0, MAP, 4, false),
        // Page 0 of the heap.
        alloc(1, 3, HEAP + 0x10, 100, 104),
        // From page 1, of which 0x2000 - 0x1F00 = 256 bytes are resident, over page 2 (which is
        // not) into page 3: 4096 + 512 asked, so 0x1F00 + 4608 = 0x3100: 256 resident there too.
        alloc(2, 5, HEAP + 0x1F00, 4608, 4616),
        // Page 2 alone: not resident at all.
        free(3, HEAP + 0x10),
        alloc(4, 3, HEAP + 0x20, 24, 24),
        alloc(5, 6, HEAP + 0x3800, 16, 24),
    ];
    let mappings = vec![
        with_runs(
            mapping(MappingKind::Heap, HEAP, 4, "[heap]", 3 * 4096),
            &[(HEAP, 2 * 4096), (HEAP + 3 * 4096, 4096)],
        ),
        // The kernel merged the program's four pages with two pages that nobody was seen to map.
        with_runs(
            mapping(MappingKind::Anon, MAP, 6, "", 5 * 4096),
            &[(MAP, 3 * 4096), (MAP + 4 * 4096, 2 * 4096)],
        ),
        Mapping {
            anon_bytes: 4096,
            ..mapping(
                MappingKind::File,
                0x7F_1000_0000,
                10,
                "/lib/libc.so",
                7 * 4096,
            )
        },
        mapping(MappingKind::Stack, 0x7F_F000_0000, 33, "[stack]", 2 * 4096),
        mapping(MappingKind::Shared, 0x7F_2000_0000, 8, "/memfd:x", 4096),
        mapping(
            MappingKind::Recorder,
            0x7F_3000_0000,
            8,
            "skinflint ring",
            8 * 4096,
        ),
        mapping(MappingKind::Other, 0x7F_4000_0000, 2, "[vdso]", 4096),
    ];
    (events, mappings)
}

#[test]
fn the_books_to_the_byte() {
    let (events, mappings) = program();
    let mut facts = facts();
    facts.ending = exited();
    facts.snapshots = vec![snapshot(5, SnapshotCause::Exit, mappings)];
    let report = analyse(facts, Options::default(), &events);
    assert_eq!(report.instants[report.at].kind, InstantKind::Peak);
    for instant in report
        .instants
        .iter()
        .filter(|one| one.kind != InstantKind::HeapPeak)
    {
        let books = instant.books.as_ref().unwrap();
        assert_closed(books);
        // 3 heap, 5 anonymous, 7 file, 2 stack, 1 shared, 8 recorder, 1 other.
        assert_eq!(books.resident_bytes, 27 * 4096);
        // 24 and 16 whole; of 4608 256 on page 1 and 256 on page 3.
        assert_eq!(row(books, "live"), 24 + 16 + 512);
        // 8 of the large block and 8 of the last.
        assert_eq!(row(books, "slop"), 16);
        // Three blocks, 8 bytes each before them.
        assert_eq!(row(books, "allocator-metadata"), 24);
        assert_eq!(row(books, "allocator-free"), 3 * 4096 - 552 - 16 - 24);
        assert_eq!(row(books, "program-maps"), 3 * 4096);
        assert_eq!(row(books, "other-mappings"), 3 * 4096);
        assert_eq!(row(books, "mapped-files"), 7 * 4096);
        assert_eq!(row(books, "stacks"), 2 * 4096);
        assert_eq!(row(books, "shared"), 4096);
        assert_eq!(row(books, "recorder"), 8 * 4096);
        assert_eq!(row(books, "unclassified"), 0);
        assert_eq!(books.live_not_resident_bytes, 4608 - 512);
        let live = &books.rows[0];
        let parts: Vec<_> = live
            .parts
            .iter()
            .map(|part| (part.name.as_str(), part.bytes))
            .collect();
        assert_eq!(parts, [("inner", 512), ("f3", 24), ("0x1006", 16)]);
        let maps = books
            .rows
            .iter()
            .find(|row| row.id == "program-maps")
            .unwrap();
        assert_eq!(maps.parts[0].name, "f4");
    }
    let skews: Vec<_> = report
        .instants
        .iter()
        .filter_map(|one| Some(one.books.as_ref()?.skew_ns))
        .collect();
    // The program waited at exit; the last event was at 5 ms, the exit at 100 ms.
    assert_eq!(skews, [0, 0]);
}

/// K3: pages of zeros are listed but not resident; and the other way about.
#[test]
fn pages_and_rss_that_disagree() {
    let events = [alloc(1, 3, HEAP + 0x10, 4000, 4008)];
    let books_with = |rss| {
        let heap = mapping(MappingKind::Heap, HEAP, 2, "[heap]", rss);
        let mut facts = facts();
        facts.snapshots = vec![snapshot(
            1,
            SnapshotCause::Peak,
            vec![with_runs(heap, &[(HEAP, 8192)])],
        )];
        let report = analyse(facts, Options::default(), &events);
        let books = report.instants[report.at].books.clone().unwrap();
        assert_closed(&books);
        books
    };
    let rows = |books: &Books| {
        [
            "live",
            "slop",
            "allocator-metadata",
            "allocator-free",
            "unclassified",
        ]
        .map(|id| row(books, id))
    };
    assert_eq!(rows(&books_with(8192)), [4000, 8, 8, 4176, 0]);
    assert_eq!(rows(&books_with(4096)), [4000, 8, 8, 80, 0]);
    assert_eq!(rows(&books_with(4004)), [4000, 0, 4, 0, 0]);
    assert_eq!(rows(&books_with(100)), [100, 0, 0, 0, 0]);
    assert_eq!(rows(&books_with(10_000)), [4000, 8, 8, 4176, 1808]);
    assert_eq!(rows(&books_with(0)), [0; 5]);
    assert!(
        books_with(4096)
            .notes
            .iter()
            .any(|note| note.starts_with("4096 bytes were listed"))
    );
    assert!(books_with(8192).notes.is_empty());
}

/// K4: without pages, live bytes count as far as `Rss` reaches.
#[test]
fn mappings_whose_pages_were_not_read() {
    let events = [alloc(1, 3, MAP + 0x1000, 6000, 6008)];
    for (rss, live, free) in [(4096, 4096, 0), (8192, 6000, 8192 - 6000 - 8 - 8)] {
        let mut facts = facts();
        let anon = mapping(MappingKind::Anon, MAP, 16, "", rss);
        facts.snapshots = vec![snapshot(1, SnapshotCause::Peak, vec![anon])];
        let report = analyse(facts, Options::default(), &events);
        let books = report.instants[report.at].books.as_ref().unwrap();
        assert_closed(books);
        assert_eq!(
            (row(books, "live"), row(books, "allocator-free")),
            (live, free)
        );
        assert_eq!(books.notes.len(), 1, "{:?}", books.notes);
    }
}

/// A block in a mapping of its own has 16 bytes of header with glibc, none with another allocator.
#[test]
fn metadata_by_allocator() {
    let events = [
        event(
            0,
            EventKind::Map {
                node: NodeId(1),
                addr: MAP + 0x10_0000,
                len: 8192,
                prot: 3,
                flags: 0x22,
                by_allocator: true,
            },
        ),
        alloc(1, 3, MAP + 16, 200_000, 49 * 4096 - 16),
    ];
    let mappings = vec![
        with_runs(
            mapping(MappingKind::Anon, MAP, 49, "", 49 * 4096),
            &[(MAP, 49 * 4096)],
        ),
        with_runs(
            mapping(MappingKind::Anon, MAP + 0x10_0000, 2, "", 4096),
            &[(MAP + 0x10_0000, 4096)],
        ),
    ];
    for (allocator, metadata, free) in [("glibc 2.36", 16, 4096), ("libjemalloc.so.2", 4096, 16)] {
        let mut facts = facts();
        facts.process.allocator = allocator.into();
        facts.snapshots = vec![snapshot(1, SnapshotCause::Peak, mappings.clone())];
        let report = analyse(facts, Options::default(), &events);
        let books = report.instants[report.at].books.as_ref().unwrap();
        assert_closed(books);
        assert_eq!(row(books, "live"), 200_000);
        assert_eq!(row(books, "slop"), 49 * 4096 - 16 - 200_000);
        assert_eq!(row(books, "allocator-metadata"), metadata, "{allocator}");
        assert_eq!(row(books, "allocator-free"), free, "{allocator}");
    }
}

/// Whatever a damaged snapshot says, the books are closed and nothing panics.
#[test]
fn damaged_snapshots_still_close() {
    let mut state = 0x1234_5678_9ABC_DEF1u64;
    let mut random = |bound: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 12) % bound
    };
    let kinds = [
        MappingKind::File,
        MappingKind::Heap,
        MappingKind::Stack,
        MappingKind::Anon,
        MappingKind::Shared,
        MappingKind::Other,
    ];
    for round in 0..400 {
        let mappings = (0..random(8))
            .map(|_| {
                let start = MAP + random(40) * 2048;
                let kind = kinds[random(6) as usize];
                let mut one = mapping(kind, start, random(20), "x", random(100_000));
                one.runs_known = random(4) > 0;
                one.anon_bytes = random(100_000);
                one.runs = (0..random(6))
                    .map(|_| {
                        (
                            MAP + random(50) * 2048,
                            [random(30) * 1024, u64::MAX][usize::from(random(20) == 0)],
                        )
                    })
                    .collect();
                one
            })
            .collect();
        let events: Vec<_> = (0..60)
            .map(|ticket| {
                alloc(
                    ticket,
                    9 * random(2) as u32,
                    MAP + random(10_000) * 8,
                    random(9000),
                    0,
                )
            })
            .collect();
        let mut facts = facts();
        facts.snapshots = vec![snapshot(30, SnapshotCause::Peak, mappings)];
        let report = analyse(facts, Options::default(), &events);
        let books = report.instants[report.at].books.as_ref();
        assert_closed(books.unwrap_or_else(|| panic!("round {round}")));
    }
}

#[test]
fn totals_temporaries_and_remote_frees() {
    let other = |mut event: Event| {
        event.thread = ThreadId(1);
        event
    };
    let events = [
        alloc(0, 1, HEAP + 0x10, 10, 24),
        free(1, HEAP + 0x10), // a temporary of f1
        alloc(2, 1, HEAP + 0x10, 10, 24),
        alloc(3, 1, HEAP + 0x40, 20, 24),
        free(4, HEAP + 0x10),        // f1 has acquired since: none
        other(free(5, HEAP + 0x40)), // a temporary, and remote
        free(6, HEAP + 0x40),        // unknown by now
        event(7, EventKind::ReallocRelease { addr: HEAP + 0x999 }), // unknown
        event(
            8,
            EventKind::ReallocAcquire {
                node: NodeId(2),
                addr: HEAP + 0x80,
                size: 7,
                usable: 24,
            },
        ),
        event(9, EventKind::ReallocRelease { addr: HEAP + 0x80 }),
        event(10, EventKind::ReallocCancel { addr: HEAP + 0x80 }),
        event(11, EventKind::ReallocRelease { addr: HEAP + 0x80 }),
        event(
            12,
            EventKind::ReallocAcquire {
                node: NodeId(2),
                addr: HEAP + 0x80,
                size: 9,
                usable: 24,
            },
        ),
        alloc(13, 3, HEAP + 0x80, 1, 24), // the release of f2's block was lost
        event(14, EventKind::ReallocRelease { addr: HEAP + 0x80 }), // and the trace is cut
    ];
    let report = analyse(facts(), Options::default(), &events);
    let totals = &report.totals;
    // Acquired: 0, 2, 3, 8, 12, 13. Released: 1, 4, 5, 12 (its old half), 13 (lost).
    assert_eq!(
        (totals.allocations, totals.frees, totals.reallocs),
        (6, 5, 1)
    );
    assert_eq!(totals.requested_bytes, 10 + 10 + 20 + 7 + 9 + 1);
    assert_eq!(totals.usable_bytes, 6 * 24);
    // 1, 5, and the lost release of f2's block, which was f2's latest.
    assert_eq!(totals.temporaries, 3);
    assert_eq!(report.completeness.unknown_frees, 2);
    assert_eq!(report.threads[1].remote_frees, 1);
    let end = report
        .instants
        .iter()
        .find(|one| one.kind == InstantKind::End)
        .unwrap();
    assert_eq!((end.live_blocks, end.live_requested_bytes), (1, 1));
    let notes = report.completeness.notes.join("\n");
    assert!(notes.contains("No end mark"), "{notes}");
    assert!(
        notes.contains("1 addresses were handed out again"),
        "{notes}"
    );
    assert!(notes.contains("1 reallocs were under way"), "{notes}");
    assert!(!report.completeness.complete);
}

#[test]
fn an_empty_trace_says_why_and_never_that_all_is_well() {
    let mut facts = facts();
    facts.ending = exited();
    let report = analyse(facts, Options::default(), &[]);
    assert!(!report.completeness.complete);
    assert!(report.completeness.notes[0].starts_with("Nothing was recorded"));
    assert!(report.findings.is_empty());
    assert_eq!(report.instants.len(), 2, "end and heap peak");
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

fn marks(names: &[(&str, u64)]) -> Vec<Mark> {
    names
        .iter()
        .map(|(name, ticket)| Mark {
            name: (*name).into(),
            time_ns: ticket * 1_000_000,
            ticket: *ticket,
            thread: None,
        })
        .collect()
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

/// What a fork left is live, is nobody's acquisition, and no pass ever sees it.
#[test]
fn inherited_blocks() {
    struct Watch(std::sync::Arc<std::sync::Mutex<Vec<String>>>);
    impl Pass for Watch {
        fn act(&mut self, _context: &Context<'_>, act: &Act) {
            let name = match act {
                Act::Acquire { .. } => "acquire",
                Act::Release { .. } => "release",
                Act::Regrow { .. } => "regrow",
                Act::Mark { .. } => "mark",
            };
            self.0.lock().unwrap().push(name.into());
        }
        fn finish(self: Box<Self>, _context: &Context<'_>, report: &mut Report) {
            assert_eq!(report.totals.allocations, 2);
        }
    }
    let mut facts = facts();
    facts.process.origin = Some(Origin {
        how: OriginKind::Fork,
        uid: "u".into(),
        pid: 7,
        fork_ticket: 100,
    });
    let seen = std::sync::Arc::default();
    let pass = Box::new(Watch(std::sync::Arc::clone(&seen)));
    let mut analyzer = Analyzer::with_passes(facts, Options::default(), vec![pass]).unwrap();
    for parents in [
        alloc(1, 77, HEAP + 0x10, 10, 24),
        alloc(2, 78, HEAP + 0x40, 20, 24),
        alloc(3, 78, HEAP + 0x70, 30, 40),
        free(4, HEAP + 0x40),
        event(5, EventKind::ReallocRelease { addr: HEAP + 0x70 }), // under way at the fork
        alloc(100, 78, HEAP + 0x200, 1000, 1000),                  // after it
    ] {
        analyzer.inherit(&parents);
    }
    analyzer.event(&free(0, HEAP + 0x10));
    analyzer.event(&alloc(1, 1, HEAP + 0x10, 5, 24));
    analyzer.event(&event(2, EventKind::ReallocRelease { addr: HEAP + 0x70 }));
    let grown = EventKind::ReallocAcquire {
        node: NodeId(1),
        addr: HEAP + 0x300,
        size: 50,
        usable: 56,
    };
    analyzer.event(&event(3, grown));
    let report = analyzer.finish(&mut Names);
    assert_eq!(*seen.lock().unwrap(), ["acquire", "acquire"]);
    let end = report
        .instants
        .iter()
        .find(|one| one.kind == InstantKind::End)
        .unwrap();
    assert_eq!(
        (
            end.live_blocks,
            end.live_requested_bytes,
            end.live_usable_bytes
        ),
        (2, 55, 80)
    );
    assert_eq!(report.completeness.unknown_frees, 0);
    let inherited = report
        .sites
        .iter()
        .find(|site| {
            let node = report.nodes[site.node as usize];
            report.frames[node.frame as usize].function == "[inherited from parent]"
        })
        .unwrap();
    // At the largest live heap (24 + 56) its blocks are gone; none was acquired.
    assert_eq!(
        (
            inherited.allocations,
            inherited.heap_peak_blocks,
            inherited.end_blocks
        ),
        (0, 0, 0)
    );
    assert_eq!(
        report
            .sites
            .iter()
            .map(|site| site.allocations)
            .sum::<u64>(),
        2
    );
}

/// The largest live heap may be what the parent left.
#[test]
fn a_fork_that_only_releases_peaks_at_its_start() {
    let mut facts = facts();
    facts.process.origin = Some(Origin {
        how: OriginKind::Fork,
        uid: "u".into(),
        pid: 7,
        fork_ticket: 100,
    });
    let mut analyzer = Analyzer::with_passes(facts, Options::default(), Vec::new()).unwrap();
    analyzer.inherit(&alloc(1, 77, HEAP + 0x10, 10, 24));
    analyzer.inherit(&alloc(2, 77, HEAP + 0x40, 20, 40));
    analyzer.event(&free(0, HEAP + 0x40));
    analyzer.event(&alloc(1, 1, HEAP + 0x80, 8, 24));
    let report = analyzer.finish(&mut Names);
    let peak = report
        .instants
        .iter()
        .find(|one| one.kind == InstantKind::HeapPeak)
        .unwrap();
    assert_eq!(
        (
            peak.live_blocks,
            peak.live_requested_bytes,
            peak.live_usable_bytes
        ),
        (2, 30, 64)
    );
    let blocks: u64 = report.sites.iter().map(|site| site.heap_peak_blocks).sum();
    assert_eq!(blocks, 2);
    assert_eq!(report.timeline.live_usable_bytes[0], 64);
}

/// A realloc under way at the snapshot: the old block is still there, and in the books.
#[test]
fn a_parked_block_is_in_the_books() {
    let events = [
        alloc(0, 1, HEAP + 0x10, 100, 104),
        event(1, EventKind::ReallocRelease { addr: HEAP + 0x10 }),
        event(2, EventKind::ReallocRelease { addr: HEAP + 0x10 }), // of another thread: unknown
        event(3, EventKind::ReallocCancel { addr: HEAP + 0x10 }),
        event(4, EventKind::ReallocCancel { addr: HEAP + 0x10 }),
    ]
    .map(|mut event| {
        event.thread = ThreadId(u32::from(event.ticket == 2 || event.ticket == 3));
        event
    });
    let heap = mapping(MappingKind::Heap, HEAP, 1, "[heap]", 4096);
    let mut facts = facts();
    facts.snapshots = vec![snapshot(
        1,
        SnapshotCause::Peak,
        vec![with_runs(heap, &[(HEAP, 4096)])],
    )];
    let report = analyse(facts, Options::default(), &events);
    let books = report.instants[report.at].books.as_ref().unwrap();
    assert_closed(books);
    assert_eq!((row(books, "live"), row(books, "slop")), (100, 4));
    // The unknown one was not released after all, and the known one lives on.
    assert_eq!(report.completeness.unknown_frees, 0);
    let end = report
        .instants
        .iter()
        .find(|one| one.kind == InstantKind::End)
        .unwrap();
    assert_eq!(
        (end.live_blocks, report.totals.frees, report.totals.reallocs),
        (1, 0, 0)
    );
}

/// N2: passes are told of the instant once, between the events before it and those after.
#[test]
fn passes_are_told_of_the_instant_once() {
    #[derive(Clone, Default)]
    struct Watch(std::sync::Arc<std::sync::Mutex<Vec<u64>>>);
    impl Pass for Watch {
        fn act(&mut self, _context: &Context<'_>, _act: &Act) {}
        fn at_instant(&mut self, context: &Context<'_>) {
            self.0.lock().unwrap().push(context.ticket);
        }
        fn finish(self: Box<Self>, _context: &Context<'_>, _report: &mut Report) {}
    }
    // Live: 24 at 1, 48 at 2, 24 at 3, 0 at 6; a snapshot at 2 (larger) and one at 4.
    let events = [
        alloc(1, 1, HEAP, 8, 24),
        alloc(2, 1, HEAP + 64, 8, 24),
        free(3, HEAP),
        event(5, EventKind::Mark { mark: 0 }),
        free(6, HEAP + 64),
    ];
    let heap = |rss| vec![mapping(MappingKind::Heap, HEAP, 9, "[heap]", rss)];
    let cases = [
        (None, None, 2, "peak", 2),
        (Some(At::Peak), None, 2, "peak", 2),
        (Some(At::End), None, 6, "end", 0),
        (Some(At::Mark("m".into())), None, 5, "m", 1),
        (Some(At::Time(3_500_000)), None, 3, "0.004 s", 1),
        (Some(At::Time(99_000_000)), None, 6, "0.099 s", 0),
        (Some(At::HeapPeak), None, 6, "heap-peak", 2),
        (Some(At::HeapPeak), Some(2), 2, "heap-peak", 2),
    ];
    for (at, heap_peak_ticket, ticket, label, live) in cases {
        let mut facts = facts();
        facts.ending = exited();
        facts.marks = marks(&[("m", 5)]);
        facts.snapshots = vec![
            snapshot(2, SnapshotCause::Peak, heap(8192)),
            snapshot(4, SnapshotCause::Periodic, heap(4096)),
        ];
        let watch = Watch::default();
        let options = Options {
            at: at.clone(),
            heap_peak_ticket,
            ..Options::default()
        };
        let passes: Vec<Box<dyn Pass>> = vec![Box::new(watch.clone())];
        let mut analyzer = Analyzer::with_passes(facts, options, passes).unwrap();
        events.iter().for_each(|event| analyzer.event(event));
        let report = analyzer.finish(&mut Names);
        assert_eq!(*watch.0.lock().unwrap(), [ticket], "{at:?}");
        let instant = &report.instants[report.at];
        assert_eq!(instant.label, label);
        assert_eq!(instant.live_blocks, live, "{at:?}");
        assert_eq!(report.sites[0].live_blocks, live, "{at:?}");
    }
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
    // 4 MiB less 1 MiB + 64 live, 16 slop, two headers of 8.
    let free = 3 * MIB - 64 - 16 - 16;
    assert_eq!(
        kinds,
        [(FindingKind::Retained, free), (FindingKind::Holder, 0)]
    );
    assert!(report.findings[0].change.contains("malloc_trim"));
    assert_eq!(report.findings[1].now_bytes, MIB + 8);
}

/// D1: what does not fit is counted.
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
    assert_eq!(holders.len(), 8);
    assert!(
        holders[7].what.contains("And 4 more"),
        "{}",
        holders[7].what
    );
    assert_eq!(holders[7].more_nodes.len(), 4);
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

/// M3: only what rows refer to, callers included, inlined frames expanded, parents first.
#[test]
fn stacks_are_compacted() {
    let events = [alloc(0, 5, HEAP, 8, 24), alloc(1, 2, HEAP + 0x40, 8, 24)];
    let report = analyse(facts(), Options::default(), &events);
    let path = |mut node: u32| {
        let mut names = Vec::new();
        while node != 0 {
            let entry = report.nodes[node as usize];
            assert!(entry.parent < node, "parents come first");
            names.push(report.frames[entry.frame as usize].function.as_str());
            node = entry.parent;
        }
        names.join(" ")
    };
    let stacks: Vec<_> = report.sites.iter().map(|site| path(site.node)).collect();
    assert!(
        stacks.contains(&"inner outer f4 f3 f2 f1".to_string()),
        "{stacks:?}"
    );
    assert!(stacks.contains(&"f2 f1".to_string()), "{stacks:?}");
    // The root, f1 to f4, outer, inner.
    assert_eq!(report.nodes.len(), 7);
}

#[test]
fn a_stack_of_a_hundred_thousand_frames() {
    let mut facts = facts();
    facts.nodes = (0..100_001)
        .map(|id: u32| StackNode {
            pc: u64::from(id),
            parent: id.saturating_sub(1),
        })
        .collect();
    let report = analyse(facts, Options::default(), &[alloc(0, 100_000, HEAP, 8, 24)]);
    assert!(report.nodes.len() > 100_000);
}

/// Addresses, sizes, threads and nodes beyond all reason.
#[test]
fn damaged_events_do_no_harm() {
    let mut events = vec![
        alloc(0, 1, 0, 8, 24),
        alloc(1, 1, u64::MAX, 8, 24),
        alloc(2, 1, HEAP, u64::MAX, u64::MAX),
        alloc(3, u32::MAX - 1, HEAP, 8, 0),
        event(4, EventKind::ReallocCancel { addr: 5 }),
        event(
            5,
            EventKind::ReallocAcquire {
                node: NodeId(1),
                addr: 0,
                size: 0,
                usable: 0,
            },
        ),
        event(
            6,
            EventKind::Unmap {
                addr: u64::MAX,
                len: u64::MAX,
                by_allocator: false,
            },
        ),
        event(7, EventKind::Mark { mark: u32::MAX }),
    ];
    events.push(Event {
        thread: ThreadId(u32::MAX - 7),
        ..alloc(8, 1, HEAP + 64, 8, 24)
    });
    let report = analyse(facts(), Options::default(), &events);
    assert_eq!(report.totals.allocations, 2);
    assert!(
        report
            .completeness
            .notes
            .iter()
            .any(|note| note.starts_with("4 events name"))
    );
}
