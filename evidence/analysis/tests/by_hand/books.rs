//! The books of a snapshot: every row to the byte.

use skinflint_base::random::Random;

use super::*;

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
        // The kernel merged the program's four pages with two pages that no event reported.
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
        // Nothing is swapped, and nobody said what is huge.
        let beside = books.beside.iter();
        let beside: Vec<_> = beside.map(|row| (row.id.as_str(), row.bytes)).collect();
        assert_eq!(beside, [("swapped", 0)]);
    }
    // By stack it is the row: four pages mapped, of which three are resident.
    let mappers = report.mappers.iter();
    let mapped: Vec<_> = mappers
        .map(|one| (one.mapped_bytes, one.resident_bytes))
        .collect();
    assert_eq!(mapped, [(4 * 4096, Some(3 * 4096))]);
    let skews: Vec<_> = report
        .instants
        .iter()
        .filter_map(|one| Some(one.books.as_ref()?.skew_ns))
        .collect();
    // The program waited at exit; the last event was at 5 ms, the exit at 100 ms.
    assert_eq!(skews, [0, 0]);
}

/// closing.K3: pages of zeros are listed but not resident; and the other way about.
#[test]
fn pages_and_rss_that_disagree() {
    let [first, second] = used(2);
    let events = [first, second, alloc(1, 3, HEAP + 0x10, 4000, 4008)];
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

/// closing.K4: without pages, live bytes count as far as `Rss` reaches.
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
    for (allocator, metadata, unseen) in [("glibc 2.36", 16, 4096), ("libjemalloc.so.2", 4096, 0)] {
        let mut facts = facts();
        facts.process.allocator = allocator.into();
        facts.snapshots = vec![snapshot(1, SnapshotCause::Peak, mappings.clone())];
        let report = analyse(facts, Options::default(), &events);
        let books = report.instants[report.at].books.as_ref().unwrap();
        assert_closed(books);
        assert_eq!(row(books, "live"), 200_000);
        assert_eq!(row(books, "slop"), 49 * 4096 - 16 - 200_000);
        assert_eq!(row(books, "allocator-metadata"), metadata, "{allocator}");
        // What another allocator has before its block.
        assert_eq!(
            row(books, "allocator-free"),
            16 - metadata % 4096,
            "{allocator}"
        );
        assert_eq!(row(books, "heap-unseen"), unseen, "{allocator}");
    }
}

/// Whatever a damaged snapshot says, the books are closed and nothing panics.
#[test]
fn damaged_snapshots_still_close() {
    let mut random = Random::new(0x1234_5678_9ABC_DEF1u64);
    let mut random = |bound: u64| random.below(bound);
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

/// A pool that the program mapped and hands out through its own malloc: its pages are heap once a block was there.
#[test]
fn a_program_map_with_a_live_block_is_heap() {
    let map = EventKind::Map {
        node: NodeId(4),
        addr: MAP,
        len: 4 * 4096,
        prot: 3,
        flags: 0x22,
        by_allocator: false,
    };
    for released in [false, true] {
        let mut events = vec![event(0, map), alloc(1, 1, MAP + 0x100, 64, 72)];
        if released {
            events.push(free(2, MAP + 0x100));
        }
        let anon = mapping(MappingKind::Anon, MAP, 4, "", 4096);
        let mut facts = facts();
        facts.snapshots = vec![snapshot(
            2,
            SnapshotCause::Peak,
            vec![with_runs(anon, &[(MAP, 4096)])],
        )];
        let report = analyse(facts, Options::default(), &events);
        let books = report.instants[report.at].books.as_ref().unwrap();
        assert_closed(books);
        let rows = [
            "live",
            "slop",
            "allocator-metadata",
            "allocator-free",
            "program-maps",
        ]
        .map(|id| row(books, id));
        let want = if released {
            [0, 0, 0, 4096, 0]
        } else {
            [64, 8, 8, 4016, 0]
        };
        assert_eq!(rows, want, "released: {released}");
    }
}

/// Eight pages of the data segment: glibc's block on the first, the program's own four, glibc's next block behind them.
#[test]
fn what_the_program_took_by_brk_is_its_own() {
    let taken = |flags, by_allocator| EventKind::Map {
        node: NodeId(4),
        addr: HEAP + 4096,
        len: 4 * 4096,
        prot: 3,
        flags,
        by_allocator,
    };
    let rows_of = |kind| {
        let events = [
            alloc(0, 1, HEAP + 16, 1000, 1000),
            event(1, kind),
            alloc(2, 1, HEAP + 5 * 4096 + 16, 1000, 1000),
        ];
        let heap = mapping(MappingKind::Heap, HEAP, 8, "[heap]", 6 * 4096);
        let heap = with_runs(heap, &[(HEAP, 6 * 4096)]);
        let mut facts = facts();
        facts.snapshots = vec![snapshot(2, SnapshotCause::Peak, vec![heap])];
        let report = analyse(facts, Options::default(), &events);
        let books = report.instants[report.at].books.as_ref().unwrap();
        assert_closed(books);
        let rows = ["live", "program-maps", "heap-unseen"].map(|id| row(books, id));
        (rows, report.totals.maps)
    };
    assert_eq!(rows_of(taken(0x20, false)), ([2000, 4 * 4096, 0], 1));
    // An allocator's brk, and a mapping that lies there by a damaged trace.
    assert_eq!(rows_of(taken(0x20, true)), ([2000, 0, 4 * 4096], 0));
    assert_eq!(rows_of(taken(0x22, false)), ([2000, 0, 4 * 4096], 1));
}

/// An arena of four pages, three of them resident, beside a page that the program mapped, in one mapping of the kernel's.
#[test]
fn an_arena_is_its_objects_and_what_python_keeps_free() {
    let map = |ticket, addr, pages: u64, arena: bool| {
        let kind = EventKind::Map {
            node: NodeId(4),
            addr,
            len: pages * 4096,
            prot: 3,
            flags: if arena { 0x8000_0022 } else { 0x22 },
            by_allocator: arena,
        };
        event(ticket, kind)
    };
    let rows_of = |more: &[Event]| {
        let mut events = vec![
            map(0, MAP, 4, true),
            map(1, MAP + 4 * 4096, 1, false),
            // Objects stand side by side: there is no header between them.
            alloc(2, 3, MAP + 48, 41, 48),
            alloc(3, 3, MAP + 96, 48, 48),
            // On the page that is not resident.
            alloc(4, 3, MAP + 2 * 4096, 512, 512),
            // Of malloc: it has one.
            alloc(5, 3, HEAP + 16, 24, 24),
        ];
        events.extend_from_slice(more);
        let anon = mapping(MappingKind::Anon, MAP, 5, "", 4 * 4096);
        let heap = mapping(MappingKind::Heap, HEAP, 1, "[heap]", 4096);
        let mut facts = facts();
        facts.process.allocator = "glibc 2.36".into();
        facts.snapshots = vec![snapshot(
            events.len() as u64,
            SnapshotCause::Peak,
            vec![
                with_runs(anon, &[(MAP, 2 * 4096), (MAP + 3 * 4096, 2 * 4096)]),
                with_runs(heap, &[(HEAP, 4096)]),
            ],
        )];
        let report = analyse(facts, Options::default(), &events);
        let books = report.instants[report.at].books.as_ref().unwrap();
        assert_closed(books);
        // The program itself mapped one page, and in the last case the arena's four, too.
        let mapped: u64 = report.mappers.iter().map(|one| one.mapped_bytes).sum();
        assert_eq!(mapped, if more.len() < 6 { 4096 } else { 5 * 4096 });
        let rows = [
            "live",
            "slop",
            "allocator-metadata",
            "allocator-free",
            "arena-free",
            "program-maps",
        ];
        rows.map(|id| {
            books
                .rows
                .iter()
                .find(|row| row.id == id)
                .map(|row| row.bytes)
        })
    };
    let some = |bytes: [u64; 6]| bytes.map(Some);
    let arena = 3 * 4096;
    let of_heap = 4096 - 24 - 8;
    assert_eq!(
        rows_of(&[]),
        some([41 + 48 + 24, 7, 8, of_heap, arena - 96, 4096])
    );
    // Nothing lives in it, and it is as large.
    let freed = [MAP + 48, MAP + 96, MAP + 2 * 4096];
    let freed: Vec<Event> = (6..).zip(freed).map(|(at, addr)| free(at, addr)).collect();
    assert_eq!(rows_of(&freed), some([24, 0, 8, of_heap, arena, 4096]));
    // What lies there later is no arena: a block has a header, and a program without arenas has no such row.
    let gone = EventKind::Unmap {
        addr: MAP,
        len: 4 * 4096,
        by_allocator: false,
    };
    let mut later = freed;
    later.extend([
        event(9, gone),
        map(10, MAP, 4, false),
        alloc(11, 3, MAP + 48, 48, 48),
    ]);
    let [live, _, headers, _, arenas, _] = rows_of(&later);
    assert_eq!((live, headers, arenas), (Some(72), Some(16), None));
}
