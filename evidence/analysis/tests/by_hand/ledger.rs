//! Counts, instants, forks, stacks, and damaged events.

use super::*;

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
        notes.contains("Handed out again without a release between: 1 block."),
        "{notes}"
    );
    assert!(
        notes.contains("Under way at the end: 1 realloc."),
        "{notes}"
    );
    assert!(!report.completeness.complete);
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

/// What a grandparent and a parent left keeps the stacks that they made it at, below a frame that says so.
#[test]
fn inherited_blocks_keep_their_stacks() {
    let mut analyzer = Analyzer::with_passes(facts(), Options::default(), Vec::new()).unwrap();
    let stacks = |callers: &[u32]| -> Vec<StackNode> {
        let node = |parent: &u32| StackNode {
            pc: 0x2000,
            parent: *parent,
        };
        callers.iter().map(node).collect()
    };
    // Eight nodes are the trace's own: the grandparent's are 8 to 10, the parent's 11 to 13.
    assert_eq!(analyzer.inherit_stacks(&stacks(&[0, 0, 1])), Some(8));
    analyzer.inherit_of_any(&alloc(1, 2, HEAP + 0x10, 10, 24));
    analyzer.inherit_of_any(&alloc(2, 1, HEAP + 0x40, 10, 24));
    analyzer.inherit_fork();
    assert_eq!(analyzer.inherit_stacks(&stacks(&[0, 0, 0])), Some(11));
    analyzer.inherit_of_any(&free(1, HEAP + 0x40));
    analyzer.inherit_of_any(&alloc(2, 2, HEAP + 0x40, 10, 24));
    analyzer.inherit_fork();
    analyzer.event(&alloc(1, 2, HEAP + 0x100, 10, 24));
    let report = analyzer.finish(&mut Names);
    let names = |mut at: u32| {
        let mut names = Vec::new();
        while at != 0 {
            let node = report.nodes[at as usize];
            names.push(report.frames[node.frame as usize].function.as_str());
            at = node.parent;
        }
        names
    };
    let live = report.sites.iter().filter(|site| site.end_blocks > 0);
    let mut live: Vec<_> = live.map(|site| names(site.node)).collect();
    live.sort();
    let parents = "[inherited from parent]";
    let expected = [
        &["f10", "f9", parents][..],
        &["f13", parents],
        &["f2", "f1"],
    ];
    assert_eq!(live, expected);
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

/// analyzer.N2: passes are told of the instant once, between the events before it and those after.
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
        (Some(At::Time(3_500_000)), None, 3, "0.0035 s", 1),
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

/// The largest live heap lies between two snapshots: it has the books of the one with fewer events in between.
#[test]
fn the_largest_live_heap_has_the_pages_of_the_nearest_snapshot() {
    let heap = |rss| vec![mapping(MappingKind::Heap, HEAP, 9, "[heap]", rss)];
    // 24 live at 1, 48 at 2, 72 at 5 and most, 48 at 6, 24 at 7. The snapshot at 9 has no mappings.
    let events = [
        alloc(1, 1, HEAP, 8, 24),
        alloc(2, 1, HEAP + 64, 8, 24),
        alloc(5, 1, HEAP + 128, 8, 24),
        free(6, HEAP),
        free(7, HEAP + 64),
    ];
    // Each snapshot took 500 ns.
    for (later, resident, skew_ns, skew_bytes) in [
        (6, 8192, 1_000_500, -24),
        (7, 8192, 2_000_500, -48),
        (9, 4096, 3_000_500, -24),
    ] {
        let mut facts = facts();
        facts.ending = exited();
        facts.snapshots = vec![
            snapshot(2, SnapshotCause::Periodic, heap(4096)),
            snapshot(5, SnapshotCause::Periodic, vec![]),
            snapshot(later, SnapshotCause::Peak, heap(8192)),
        ];
        let options = Options {
            at: Some(At::HeapPeak),
            heap_peak_ticket: Some(5),
            ..Options::default()
        };
        let report = analyse(facts, options, &events);
        let instant = &report.instants[report.at];
        let books = instant.books.as_ref().expect("books");
        assert_eq!(instant.live_usable_bytes, 72);
        assert_eq!(
            (books.resident_bytes, books.skew_ns, books.skew_bytes),
            (resident, skew_ns, skew_bytes),
            "{later}"
        );
    }
}

/// model.M3: only what rows refer to, callers included, inlined frames expanded, parents first.
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
    assert!(report.completeness.notes.iter().any(|note| {
        note.starts_with("Left out, because of impossible addresses or sizes: 4 events")
    }));
}

/// Inherited blocks live at the start of the windows; the heap peak is the start; nothing else
/// happens between, so the end is the only other edge.
#[test]
fn windows_of_a_fork() {
    let mut facts = facts();
    facts.process.origin = Some(Origin {
        how: OriginKind::Fork,
        uid: "u".into(),
        pid: 7,
        fork_ticket: 100,
    });
    let options = Options {
        windows: Some(WindowLimits::default()),
        ..Options::default()
    };
    let mut analyzer = Analyzer::with_passes(facts, options, Vec::new()).unwrap();
    analyzer.inherit(&alloc(1, 77, HEAP + 0x10, 10, 24));
    analyzer.inherit(&alloc(2, 77, HEAP + 0x40, 20, 40));
    analyzer.event(&free(0, HEAP + 0x40));
    analyzer.event(&alloc(1, 1, HEAP + 0x80, 8, 24));
    let report = analyzer.finish(&mut Names);
    let windows = report.windows.unwrap();
    let edge = |edge: &WindowEdge| (edge.time_ns, edge.events, edge.instants.clone());
    let label = |index: u32| report.instants[index as usize].label.as_str();
    let edges: Vec<_> = windows.edges.iter().map(edge).collect();
    assert_eq!(edges, [(0, 0, vec![1]), (1_000_000, 2, vec![0])]);
    assert_eq!((label(1), label(0)), ("heap-peak", "end"));
    let cell = |cell: &WindowCell| (cell.site.unwrap(), cell.size, cell.usable, cell.start);
    // Both sites hold 24 bytes at the end; the one that acquired them comes first.
    let cells: Vec<_> = windows.cells.iter().map(cell).collect();
    assert_eq!(cells, [(0, 8, 24, 0), (1, 10, 24, 1), (1, 20, 40, 1)]);
    assert_eq!(windows.bucket_ends, [2]);
    assert_eq!(windows.changed_cell, [0, 2]);
    assert_eq!(windows.acquired, [1, 0]);
    assert_eq!(windows.released, [0, 1]);
    assert_eq!(windows.folded_cells, 0);
}
