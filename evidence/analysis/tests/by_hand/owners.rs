//! Owners of memory and of acts: mappings that moved or held blocks, copies of files, frees by other threads, times.

use super::*;

/// A granule of 64 KiB that blocks are remembered by (`maps.I2`).
const GRANULE: u64 = 0x7F_5000_0000;

fn map(ticket: u64, node: u32, addr: u64, pages: u64, by_allocator: bool) -> Event {
    let node = NodeId(node);
    let (len, prot, flags) = (pages * 4096, 3, 0x22);
    event(
        ticket,
        EventKind::Map {
            node,
            addr,
            len,
            prot,
            flags,
            by_allocator,
        },
    )
}

fn by(thread: u32, mut event: Event) -> Event {
    event.thread = ThreadId(thread);
    event
}

/// The books at the end, of one snapshot after all events.
fn books(events: &[Event], mappings: Vec<Mapping>) -> Books {
    let mut facts = facts();
    facts.ending = exited();
    facts.snapshots = vec![snapshot(90, SnapshotCause::Exit, mappings)];
    let report = analyse(facts, Options::default(), events);
    let books = report.instants[report.at].books.clone().expect("books");
    assert_closed(&books);
    books
}

fn parts<'a>(books: &'a Books, id: &str) -> Vec<(&'a str, u64)> {
    let row = books.rows.iter().find(|row| row.id == id).expect("a row");
    row.parts
        .iter()
        .map(|part| (part.name.as_str(), part.bytes))
        .collect()
}

fn whole(start: u64, pages: u64) -> Mapping {
    let mapping = mapping(MappingKind::Anon, start, pages, "", pages * 4096);
    with_runs(mapping, &[(start, pages * 4096)])
}

#[test]
fn what_was_moved_is_still_of_who_mapped_it_first() {
    let (old_addr, new_addr) = (MAP, MAP + (1 << 30));
    let events = [
        map(1, 4, old_addr, 4, false),
        event(
            2,
            EventKind::Remap {
                node: NodeId(3),
                old_addr,
                old_len: 4 * 4096,
                new_addr,
                new_len: 8 * 4096,
            },
        ),
    ];
    let moved = books(&events, vec![whole(new_addr, 8)]);
    assert_eq!(parts(&moved, "program-maps"), [("f4", 8 * 4096)]);
    // Of a mapping that no event reported, the stack that moved it is the first that is known.
    let unseen = books(&events[1..], vec![whole(new_addr, 8)]);
    assert_eq!(parts(&unseen, "program-maps"), [("f3", 8 * 4096)]);
}

#[test]
fn private_copies_of_a_files_pages_are_told_apart_from_the_file() {
    let file = |anon_bytes: u64, rss: u64| Mapping {
        anon_bytes,
        ..mapping(MappingKind::File, 0x7F_1000_0000, 10, "/lib/libc.so", rss)
    };
    let copy = "/lib/libc.so [private copy: data, relocations]";
    let both = books(&[], vec![file(2 * 4096, 7 * 4096)]);
    let mut found = parts(&both, "mapped-files");
    found.sort_unstable_by_key(|part| part.1);
    assert_eq!(found, [(copy, 2 * 4096), ("/lib/libc.so", 5 * 4096)]);
    // Copies that are swapped out count nowhere: no more than what is resident is a copy.
    let all = books(&[], vec![file(9 * 4096, 4096)]);
    assert_eq!(row(&all, "mapped-files"), 4096);
    assert!(parts(&all, "mapped-files").contains(&(copy, 4096)));
}

#[test]
fn where_blocks_were_is_free_and_no_mapping_of_the_program() {
    let used = [
        alloc(2, 5, GRANULE + 0x110, 100, 104),
        free(3, GRANULE + 0x110),
    ];
    let unused: [Event; 0] = [];
    let pages = vec![whole(GRANULE, 16)];
    let all = 16 * 4096;
    for (mapped, was_used, id) in [
        (Some(4), false, "program-maps"),
        (Some(4), true, "allocator-free"),
        (None, false, "other-mappings"),
        (None, true, "allocator-free"),
    ] {
        let mut events: Vec<Event> = mapped
            .map(|node| map(1, node, GRANULE, 16, false))
            .into_iter()
            .collect();
        events.extend(if was_used { &used[..] } else { &unused[..] });
        let books = books(&events, pages.clone());
        // The block was on one page; what the others hold is not known.
        let unseen = if was_used { all - 4096 } else { 0 };
        assert_eq!(
            (row(&books, id), row(&books, "heap-unseen")),
            (all - unseen, unseen),
            "mapped by {mapped:?}, used {was_used}"
        );
    }
    // Mapped anew by the program: what was there before is forgotten.
    let mut events = used.to_vec();
    events.push(map(4, 4, GRANULE, 16, false));
    assert_eq!(row(&books(&events, pages), "program-maps"), all);
}

#[test]
fn a_free_is_remote_if_another_thread_acquired_the_block_and_not_if_nobody_here_did() {
    let acquire = |ticket, addr| {
        event(
            ticket,
            EventKind::ReallocAcquire {
                node: NodeId(2),
                addr,
                size: 40,
                usable: 40,
            },
        )
    };
    let release = |ticket, addr| event(ticket, EventKind::ReallocRelease { addr });
    let events = [
        // Inherited: freed, moved, grown in place.
        free(1, HEAP + 0x100),
        release(2, HEAP + 0x200),
        acquire(3, HEAP + 0x800),
        release(4, HEAP + 0x300),
        acquire(5, HEAP + 0x300),
        // Of thread 1, regrown by thread 2; and the same by its owner.
        by(1, alloc(6, 3, HEAP + 0x400, 10, 24)),
        by(2, release(7, HEAP + 0x400)),
        by(2, acquire(8, HEAP + 0x900)),
        by(2, release(9, HEAP + 0x900)),
        by(2, acquire(10, HEAP + 0xA00)),
        // Thread 1's block; its free was lost, as thread 2 finds when it is given the same address.
        by(1, alloc(11, 3, HEAP + 0x500, 10, 24)),
        by(2, alloc(12, 3, HEAP + 0x500, 10, 24)),
    ];
    let mut facts = facts();
    facts.process.origin = Some(Origin {
        how: OriginKind::Fork,
        uid: "u".into(),
        pid: 7,
        fork_ticket: 100,
    });
    let mut analyzer =
        Analyzer::with_passes(facts, Options::default(), Vec::new()).expect("an analyzer");
    for addr in [0x100, 0x200, 0x300] {
        analyzer.inherit(&alloc(0, 1, HEAP + addr, 24, 24));
    }
    events.iter().for_each(|event| analyzer.event(event));
    let report = analyzer.finish(&mut Names);
    assert_eq!(
        report.completeness.unknown_frees, 0,
        "they are known as the parent's"
    );
    let remote: Vec<u64> = report
        .threads
        .iter()
        .map(|thread| thread.remote_frees)
        .collect();
    assert_eq!(remote, [0, 0, 1], "the one realloc of thread 2");
}

#[test]
fn a_sites_first_and_last_are_by_time_where_time_steps_back() {
    let at = |ticket, ms: u64| {
        let mut event = alloc(ticket, 3, HEAP + 0x100 * ticket, 10, 24);
        event.time_ns = ms * 1_000_000;
        event
    };
    // Stamps are of threads (trace::event.E3): the fourth acquisition is stamped before the first.
    let events = [at(1, 50), at(2, 60), at(3, 90), at(4, 40), at(5, 70)];
    let report = analyse(facts(), Options::default(), &events);
    let site = &report.sites[0];
    assert_eq!((site.first_ns, site.last_ns), (40_000_000, 90_000_000));
}

#[test]
fn after_free_needs_a_fall_by_a_fifth_and_no_more() {
    let search = |kept: u64| {
        let mib = 1 << 20;
        let mut events: Vec<Event> = (0..100)
            .map(|n| alloc(n + 1, 3, HEAP + n * mib, mib, mib))
            .collect();
        events.extend((kept..100).map(|n| free(n + 200, HEAP + n * mib)));
        let snapshots = [snapshot(500, SnapshotCause::Periodic, Vec::new())];
        let mut search = skinflint_analysis::falls::FallSearch::new(&snapshots);
        let mut ledger = skinflint_analysis::ledger::Ledger::new(16);
        for event in &events {
            search.before(event.ticket, &ledger);
            ledger.apply(event, &mut |_, _| {});
        }
        search.finish(&ledger)
    };
    assert_eq!(search(100), None);
    assert_eq!(search(81), None, "19 of 100");
    assert_eq!(search(80), Some(500), "20 of 100");
    assert_eq!(search(60), Some(500));
}

#[test]
fn the_peak_is_no_moment_after_everything_was_freed() {
    // An allocator that keeps what was freed: five pages of a thousand more at the end, of which nothing is live.
    let resident =
        |ticket, pages: u64| snapshot(ticket, SnapshotCause::Periodic, vec![whole(MAP, pages)]);
    let events = [
        alloc(1, 3, MAP + 0x10, 3_000_000, 3_000_000),
        free(15, MAP + 0x10),
    ];
    let peak = |pages: u64| {
        let mut facts = facts();
        facts.ending = exited();
        facts.snapshots = vec![resident(10, 1_000), resident(20, pages)];
        let report = analyse(facts, Options::default(), &events);
        let instants = &report.instants;
        let peak = instants.iter().find(|one| one.kind == InstantKind::Peak);
        peak.expect("a peak").time_ns
    };
    assert_eq!(
        peak(1_005),
        10_000_000,
        "within a hundredth of the greatest"
    );
    assert_eq!(peak(2_000), 20_000_000, "twice as much is another peak");
}

#[test]
fn a_block_that_is_moved_onto_another_ends_that_one() {
    let events = [
        by(1, alloc(1, 3, HEAP + 0x100, 10, 24)),
        alloc(2, 4, HEAP + 0x200, 10, 24),
        event(3, EventKind::ReallocRelease { addr: HEAP + 0x200 }),
        // The free of thread 1's block was lost, and its address is given again.
        event(
            4,
            EventKind::ReallocAcquire {
                node: NodeId(2),
                addr: HEAP + 0x100,
                size: 30,
                usable: 40,
            },
        ),
    ];
    let report = analyse(facts(), Options::default(), &events);
    let totals = &report.totals;
    assert_eq!(
        (totals.allocations, totals.frees, totals.reallocs),
        (3, 2, 1)
    );
    let end = report
        .instants
        .iter()
        .find(|one| one.kind == InstantKind::End)
        .expect("an end");
    assert_eq!((end.live_blocks, end.live_usable_bytes), (1, 40));
    let live: Vec<u64> = report.sites.iter().map(|site| site.end_blocks).collect();
    assert_eq!(live.iter().sum::<u64>(), 1);
}

#[test]
fn what_lies_beyond_a_programs_addresses_is_damage() {
    let limit = 1 << 48;
    for (addr, usable, is_there) in [
        (limit - 0x1000, 0x10, true),
        (limit, 0x10, false),
        (HEAP, limit - 1, true),
        (HEAP, limit, false),
        (0, 0x10, false),
    ] {
        let report = analyse(facts(), Options::default(), &[alloc(1, 3, addr, 1, usable)]);
        assert_eq!(
            report.totals.allocations,
            u64::from(is_there),
            "{addr:x} {usable:x}"
        );
    }
}

/// Two files and shared memory: the program mapped all but a library's code, which the loader did.
#[test]
fn files_and_shared_memory_are_of_the_stacks_that_mapped_them() {
    let (store, table, ring, code) = (MAP, MAP + (1 << 30), MAP + (2 << 30), MAP + (3 << 30));
    let events = [
        map(1, 3, store, 300, false),
        // Two stacks have a file between them: 100 and 200 pages.
        map(2, 4, table, 100, false),
        map(3, 3, table + 100 * 4096, 200, false),
        map(4, 4, ring, 500, false),
        // The allocator's own is not the program's.
        map(5, 3, ring + (1 << 20) * 4, 100, true),
    ];
    let written = Mapping {
        anon_bytes: 20 * 4096,
        ..mapping(MappingKind::File, table, 300, "/var/table", 90 * 4096)
    };
    let mappings = vec![
        mapping(MappingKind::File, store, 300, "/var/store", 200 * 4096),
        written,
        mapping(MappingKind::Shared, ring, 500, "/dev/shm/ring", 400 * 4096),
        mapping(
            MappingKind::Shared,
            ring + (1 << 20) * 4,
            100,
            "",
            50 * 4096,
        ),
        mapping(MappingKind::File, code, 90, "/lib/libc.so", 70 * 4096),
    ];
    let mut facts = facts();
    facts.ending = exited();
    facts.snapshots = vec![snapshot(90, SnapshotCause::Exit, mappings)];
    let report = analyse(facts, Options::default(), &events);
    let books = report.instants[report.at].books.clone().expect("books");
    assert_closed(&books);
    assert_eq!(parts(&books, "mapped-files"), [("/lib/libc.so", 70 * 4096)]);
    // Of 70 pages of the file 23 are the first third, and of 20 copies 6: whole pages, the rest is the last stack's.
    let of_files = [
        ("/var/store", 200 * 4096),
        ("/var/table", 70 * 4096),
        ("/var/table [private copy]", 20 * 4096),
    ];
    assert_eq!(parts(&books, "program-files"), of_files);
    let of_shared = [("/dev/shm/ring", 400 * 4096), ("[anonymous]", 50 * 4096)];
    assert_eq!(parts(&books, "shared"), of_shared);
    // By stack they are what the rows have of stacks (model.M4).
    let mut mapped: Vec<_> = report
        .mappers
        .iter()
        .map(|one| {
            let of = [one.resident_bytes, one.shared_bytes, one.file_bytes];
            of.map(|bytes| bytes.expect("a snapshot") / 4096)
        })
        .collect();
    mapped.sort_unstable();
    assert_eq!(
        mapped,
        [
            [200 + 47 + 14, 0, 200 + 47 + 14],
            [400 + 23 + 6, 400, 23 + 6]
        ]
    );
    // They are the largest holders, and the names say of what.
    let titles: Vec<&str> = report
        .findings
        .iter()
        .filter(|one| one.kind == FindingKind::Holder)
        .map(|one| one.title.as_str())
        .collect();
    let expected = [
        "49 % of resident memory: shared memory ring, mapped by f4",
        "32 % of resident memory: store and 1 more, mapped by f3",
    ];
    assert_eq!(titles, expected);
    // No allocator is made of them.
    assert!(report.own_heaps.is_empty(), "{:?}", report.own_heaps);
}
