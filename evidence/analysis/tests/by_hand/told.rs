//! The findings of a report: which there are, their order, their words and how certain they are.

use super::advice::{Script, of, under};
use super::*;
use skinflint_analysis::model::{Finding, GrowthWhatIf};

const MIB: u64 = 1 << 20;

/// Functions by node, each with its file.
struct Files(&'static [(u32, &'static str, &'static str)]);

impl Symbolizer for Files {
    fn frames(&mut self, _pc: u64, node: u32) -> Vec<Frame> {
        let known = self.0.iter().find(|(of, ..)| *of == node);
        let (_, function, module) = known.copied().unwrap_or((node, "main", "prog"));
        vec![Frame {
            function: function.into(),
            module: module.into(),
            ..Frame::default()
        }]
    }
}

fn told(facts: Facts, events: &[Event], symbolizer: &mut dyn Symbolizer) -> Report {
    let mut analyzer = Analyzer::new(facts, Options::default()).expect("no mark is asked for");
    events.iter().for_each(|event| analyzer.event(event));
    analyzer.finish(symbolizer)
}

/// A heap of so many mebibytes, all of it resident, seen at the peak.
fn seen(mut facts: Facts, ticket: u64, mib: u64) -> Facts {
    let heap = mapping(MappingKind::Heap, HEAP, mib * 256, "[heap]", mib * MIB);
    let heap = with_runs(heap, &[(HEAP, mib * MIB)]);
    facts.snapshots = vec![snapshot(ticket, SnapshotCause::Peak, vec![heap])];
    facts
}

#[test]
fn findings_of_all_kinds_come_by_what_they_save() {
    // Two functions' blocks are a little too large, and half a mebibyte is free: between the two.
    let mut script = Script::new();
    for (node, blocks) in [(2, 3300), (4, 300)] {
        (0..blocks).for_each(|_| _ = script.alloc(node, 1040, 1280));
    }
    let ticket = script.events.len() as u64;
    script.events.splice(0..0, used(5 * 256));
    let mut facts = seen(under("libjemalloc.so.2"), ticket, 5);
    // It goes on for longer than pages stay that jemalloc gives back by itself.
    facts.ending = Some(Ending {
        time_ns: 60_000_000_000,
        ..Ending::default()
    });
    let report = script.report(facts);
    let first: Vec<FindingKind> = report.findings.iter().map(|one| one.kind).take(3).collect();
    let shoes = FindingKind::Clownshoes;
    assert_eq!(first, [shoes, FindingKind::Retained, shoes]);
    let saved: Vec<u64> = report.findings.iter().map(|one| one.saved_bytes).collect();
    assert!(saved.is_sorted_by(|a, b| a >= b), "{saved:?}");
    assert!(saved[0] > saved[1] && saved[1] > 0, "{saved:?}");
}

#[test]
fn free_pages_of_a_tenth_are_more_than_a_stock() {
    let saved = |live: u64| {
        let [first, second] = used(40 * 256);
        let events = [first, second, alloc(0, 1, HEAP, live, live)];
        let report = told(seen(under("libown.so"), 1, 40), &events, &mut Names);
        let found = of(&report, FindingKind::Retained);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(found[0].now_bytes, 40 * MIB - live);
        found[0].saved_bytes
    };
    assert_eq!(saved(36 * MIB), 4 * MIB);
    assert_eq!(saved(36 * MIB + 4096), 0);
}

#[test]
fn each_allocator_has_its_own_way_to_give_pages_back() {
    let given = |allocator: &str, took_ns| {
        let [first, second] = used(40 * 256);
        let events = [first, second, alloc(0, 1, HEAP, MIB, MIB)];
        let mut facts = seen(under(allocator), 1, 40);
        facts.snapshots[0].took_ns = took_ns;
        let report = told(facts, &events, &mut Names);
        let found = of(&report, FindingKind::Retained)[0];
        (found.change.clone(), found.confidence)
    };
    let change = |allocator| given(allocator, 0).0;
    // What malloc_trim gives back is known to the page, if pages and blocks are of one moment.
    let sure = [("glibc 2.36", 0), ("glibc 2.36", 1), ("libown.so", 0)];
    let sure = sure.map(|(allocator, took_ns)| given(allocator, took_ns).1);
    assert_eq!(
        sure,
        [Confidence::Certain, Confidence::Likely, Confidence::Likely]
    );
    for (allocator, word) in [
        ("glibc 2.36", "Call malloc_trim(0) after"),
        ("libjemalloc.so.2", "MALLOC_CONF="),
        ("libmimalloc.so.2", "MIMALLOC_PURGE_DELAY=0"),
        ("libtcmalloc.so.4", "TCMALLOC_RELEASE_RATE=10"),
        ("libskinflint.so", "SKINFLINT_PURGE=off"),
        ("libown.so", "Use the allocator's own call"),
    ] {
        assert!(change(allocator).contains(word), "{}", change(allocator));
    }
}

/// 40 MiB of a thread's arena, a live block at the bottom; the topmost chunk begins at 30 MiB. The sentence has both.
#[test]
fn ends_of_arenas_are_divided_by_topmost_chunks_if_they_are_known() {
    let told_with = |tops: Option<Vec<(u64, u64)>>| {
        let bytes = 40 * MIB;
        let events = [
            alloc(0, 7, MAP, bytes, bytes),
            free(0, MAP),
            alloc(0, 1, MAP + 16, 1000, 1000),
        ];
        let arena = mapping(MappingKind::Anon, MAP, 40 * 256, "", bytes);
        let arena = with_runs(arena, &[(MAP, bytes)]);
        let mut facts = under("glibc 2.36");
        facts.snapshots = vec![snapshot(1, SnapshotCause::Peak, vec![arena])];
        facts.snapshots[0].tops = tops;
        let report = told(facts, &events, &mut Names);
        let found = of(&report, FindingKind::Retained);
        let rows = found.iter().map(|one| (one.title.clone(), one.now_bytes));
        let words = [found[0].what.clone(), found[0].change.clone()].join(" ");
        (rows.collect::<Vec<_>>(), words)
    };
    let goes = "Free pages that the allocator keeps, without a live byte on them";
    let stays = "Free memory at the ends of threads' arenas, which malloc_trim(0) leaves";
    let open = "Free memory behind the last blocks of threads' arenas";
    let row = |title: &str, bytes| (title.to_owned(), bytes);
    let (rows, words) = told_with(Some(vec![(MAP + 30 * MIB, 10 * MIB)]));
    // The page with the block stays, and the one with the chunk below the topmost one.
    let below = 30 * MIB - 2 * 4096;
    assert_eq!(rows, [row(goes, below), row(stays, 10 * MIB)]);
    let said = "10.0 MiB of the former are the ends of arenas (topmost chunks), which malloc_trim(0) leaves.";
    assert!(words.contains(said), "{words}");
    let (rows, words) = told_with(None);
    assert_eq!(rows, [row(open, 40 * MIB - 4096)]);
    assert!(words.contains("lie behind the last blocks"), "{words}");
    assert!(words.contains("try it"), "{words}");
    let (rows, _) = told_with(Some(Vec::new()));
    assert_eq!(rows, [row(goes, 40 * MIB - 4096)]);
}

#[test]
fn what_is_pinned_is_less_sure_where_pages_were_read_later() {
    let events: Vec<Event> = (0..256)
        .map(|index| alloc(index, 1, HEAP + 16 + index * 32768, 24, 24))
        .collect();
    let sure = |took_ns| {
        let mut facts = seen(facts(), 300, 8);
        facts.snapshots[0].took_ns = took_ns;
        let report = told(facts, &events, &mut Names);
        let found = of(&report, FindingKind::Pinned);
        assert_eq!(found.len(), 1, "{:#?}", report.findings);
        found[0].confidence
    };
    assert_eq!(sure(10_000_000), Confidence::Likely);
    assert_eq!(sure(10_000_001), Confidence::Possible);
}

#[test]
fn the_allocators_own_data_is_what_is_known_of_it() {
    let meaning = |allocator: &str| {
        let events = [alloc(0, 1, HEAP + 16, 100, 104)];
        let report = told(seen(under(allocator), 1, 1), &events, &mut Names);
        let books = report.instants[report.at].books.as_ref().expect("books");
        let row = books.rows.iter().find(|row| row.id == "allocator-metadata");
        row.expect("a row").meaning.clone()
    };
    assert!(meaning("glibc 2.36").starts_with("Chunk headers of glibc"));
    assert!(meaning("libjemalloc.so.2").starts_with("Resident bytes of what the allocator mapped"));
}

#[test]
fn memory_that_the_program_mapped_is_told_by_who_mapped_it() {
    let map = |ticket, node, addr, pages: u64| {
        let kind = EventKind::Map {
            node: NodeId(node),
            addr,
            len: pages * 4096,
            prot: 3,
            flags: 0x22,
            by_allocator: false,
        };
        event(ticket, kind)
    };
    // Of the second nothing is resident.
    let (first, second) = (MAP, MAP + (1 << 30));
    let events = [map(0, 3, first, 512), map(1, 4, second, 512)];
    let whole = mapping(MappingKind::Anon, first, 512, "", 2 * MIB);
    let absent = mapping(MappingKind::Anon, second, 512, "", 0);
    let mut facts = facts();
    let looks = vec![
        with_runs(whole, &[(first, 2 * MIB)]),
        with_runs(absent, &[]),
    ];
    facts.snapshots = vec![snapshot(2, SnapshotCause::Peak, looks)];
    let report = told(facts, &events, &mut Names);
    let found = of(&report, FindingKind::Holder);
    let found: Vec<_> = found
        .iter()
        .map(|one| (&*one.title, one.now_bytes))
        .collect();
    let expected = ("100 % of resident memory, mapped by f3", 2 * MIB);
    assert_eq!(found, [expected]);
}

/// The function that names a stack may lie behind plumbing; whose it is, its own file says.
#[test]
fn a_librarys_own_temporaries_are_out_of_reach_behind_plumbing_too() {
    let churn = |module: &'static str| {
        let mut script = Script::new();
        for _ in 0..100_000 {
            let block = script.alloc(3, 4096, 4104);
            script.free(block);
        }
        let files: &'static [_] = match module {
            "prog" => &[
                (3, "operator new(unsigned long)", "prog"),
                (2, "__tzfile_read", "prog"),
            ],
            _ => &[
                (3, "operator new(unsigned long)", "prog"),
                (2, "__tzfile_read", "libc.so.6"),
            ],
        };
        let report = told(facts(), &script.events, &mut Files(files));
        of(&report, FindingKind::Churn).len()
    };
    assert_eq!([churn("prog"), churn("libc.so.6")], [1, 0]);
}

/// Two stacks of one function.
#[test]
fn buffers_of_one_function_are_summed_up_with_what_doubling_would_do() {
    let parse = Files(&[(2, "parse", "prog"), (3, "parse", "prog")]);
    let growth = |stacks: &[(u32, u64)]| {
        let mut script = Script::new();
        for &(node, step) in stacks {
            for _ in 0..20 {
                let mut addr = script.alloc(node, step, step);
                for size in (2 * step..=60 * step).step_by(step as usize) {
                    let to = script.fresh(size);
                    script.realloc(node, addr, to, size);
                    addr = to;
                }
            }
        }
        let mut facts = facts();
        // Neither stack is within the other.
        facts.nodes[3].parent = 1;
        let report = told(facts, &script.events, &mut Files(parse.0));
        let found: Vec<Finding> = of(&report, FindingKind::Growth)
            .into_iter()
            .cloned()
            .collect();
        assert_eq!(found.len(), 1, "{found:#?}");
        found[0].growth_what_if.expect("another policy")
    };
    let (one, other) = (growth(&[(2, 1000)]), growth(&[(3, 1200)]));
    let both = growth(&[(2, 1000), (3, 1200)]);
    // Twenty buffers of 60 steps hold 60 of them; doubling would hold 64.
    assert_eq!(
        (one.held_bytes, one.then_held_bytes),
        (1_200_000, 1_280_000)
    );
    let mut sum = GrowthWhatIf { ..one };
    sum.copied_bytes += other.copied_bytes;
    sum.then_copied_bytes += other.then_copied_bytes;
    sum.held_bytes += other.held_bytes;
    sum.then_held_bytes += other.then_held_bytes;
    assert_eq!(both, sum);
}

/// Of a heap of so many pages 204 have a block of 64 bytes each, which would fill four.
#[test]
fn what_is_pinned_is_told_from_a_fiftieth_on() {
    let saved = |pages: u64| {
        let pinned = 204;
        let at = |page: u64| HEAP + page * 4096 + 16;
        let mut events: Vec<Event> = (0..pinned).map(|n| alloc(n, 1, at(n), 64, 72)).collect();
        let large = (pages - pinned) * 4096 - 24;
        events.push(alloc(pinned, 2, at(pinned), large, large));
        let heap = mapping(MappingKind::Heap, HEAP, pages, "[heap]", pages * 4096);
        let mut facts = facts();
        let heap = with_runs(heap, &[(HEAP, pages * 4096)]);
        facts.snapshots = vec![snapshot(pinned, SnapshotCause::Peak, vec![heap])];
        let report = told(facts, &events, &mut Names);
        let found = of(&report, FindingKind::Pinned);
        found.iter().map(|one| one.saved_bytes).collect::<Vec<_>>()
    };
    assert_eq!(saved(200 * 50), [200 * 4096]);
    assert_eq!(saved(200 * 50 + 50), []);
}

#[test]
fn what_lives_at_exit_is_told_from_64_kib_on() {
    let told = |bytes| {
        let mut facts = facts();
        facts.ending = exited();
        let report = told(facts, &[alloc(1, 1, HEAP, bytes, bytes)], &mut Names);
        let leaks = of(&report, FindingKind::Leak);
        leaks
            .iter()
            .any(|one| one.title == "1 block still live at exit")
    };
    assert_eq!([told(65_535), told(65_536)], [false, true]);
}

#[test]
fn the_end_is_a_moment_of_the_run_and_what_follows_is_none() {
    let at = |time_ns| {
        let mut facts = facts();
        facts.ending = exited();
        let options = Options {
            at: Some(At::Time(time_ns)),
            ..Options::default()
        };
        Analyzer::new(facts, options).err()
    };
    assert_eq!(at(100_000_000), None);
    let late = AnalysisError::TimeAfterEnd {
        asked_ns: 100_000_001,
        end_ns: 100_000_000,
    };
    assert_eq!(at(100_000_001), Some(late));
}

/// Counts acts, and says how many there were.
struct Counting(u64);

impl Pass for Counting {
    fn act(&mut self, _: &Context<'_>, _: &Act) {
        self.0 += 1;
    }

    fn finish(self: Box<Self>, _: &Context<'_>, report: &mut Report) {
        report.completeness.notes = vec![format!("{} acts", self.0)];
    }
}

#[test]
fn a_pass_that_is_added_sees_all_acts() {
    let mut analyzer = Analyzer::new(facts(), Options::default()).expect("no mark is asked for");
    analyzer.add_pass(Box::new(Counting(0)));
    let events = [alloc(0, 1, HEAP, 8, 24), free(1, HEAP), free(2, HEAP + 64)];
    events.iter().for_each(|event| analyzer.event(event));
    let report = analyzer.finish(&mut Names);
    assert_eq!(report.completeness.notes[0], "2 acts");
}

#[test]
fn memory_that_was_not_sampled_is_said_to_be_missing() {
    let said = |facts: Facts| {
        let report = told(facts, &[alloc(0, 1, HEAP, 8, 24)], &mut Names);
        let mut notes = report.completeness.notes.into_iter();
        notes.any(|note| note.starts_with("Resident memory was not sampled"))
    };
    assert!(said(facts()));
    assert!(!said(seen(facts(), 0, 1)));
}

/// Ten mebibytes go, all but a page of them resident when they are looked at.
#[test]
fn the_largest_fall_has_books_of_its_own() {
    let events = [
        alloc(0, 1, HEAP, 10 * MIB, 10 * MIB),
        alloc(1, 1, HEAP + 10 * MIB, 100, 104),
        free(2, HEAP),
        alloc(3, 1, HEAP + 64, 100, 104),
    ];
    let mut facts = seen(facts(), 2, 11);
    facts.snapshots[0].cause = SnapshotCause::Periodic;
    let mappings = facts.snapshots[0].mappings.clone();
    facts
        .snapshots
        .insert(0, snapshot(1, SnapshotCause::Peak, mappings.clone()));
    // The end has the last one, and the fall the one before.
    facts
        .snapshots
        .push(snapshot(3, SnapshotCause::Periodic, mappings));
    let report = told(facts, &events, &mut Names);
    let fall = report.instants.iter();
    let mut fall = fall.filter(|one| one.kind == InstantKind::AfterFree);
    let books = fall
        .next()
        .and_then(|one| one.books.as_ref())
        .expect("books");
    assert_closed(books);
    assert_eq!((books.resident_bytes, row(books, "live")), (11 * MIB, 100));
}

#[test]
fn figures_of_passes_are_of_the_end_where_the_largest_heap_is_not_known_before() {
    let said = |ticket| {
        let options = Options {
            at: Some(At::HeapPeak),
            heap_peak_ticket: ticket,
            ..Options::default()
        };
        let report = analyse(facts(), options, &[alloc(0, 1, HEAP, 8, 24)]);
        let mut notes = report.completeness.notes.into_iter();
        notes.any(|note| note.contains("are as of the largest live heap"))
    };
    assert!(said(None));
    assert!(!said(Some(0)));
}

#[test]
fn a_realloc_that_fails_and_names_its_block_is_no_fault() {
    let whole = |cancelled| {
        let events = [
            alloc(0, 1, HEAP + 16, 10, 24),
            event(1, EventKind::ReallocRelease { addr: HEAP + 16 }),
            event(2, EventKind::ReallocCancel { addr: cancelled }),
        ];
        let mut facts = facts();
        facts.ending = exited();
        let report = analyse(facts, Options::default(), &events);
        assert_eq!(report.sites[0].end_blocks, 1);
        report.completeness.complete
    };
    assert!(whole(HEAP + 16));
    assert!(!whole(HEAP + 32));
}

#[test]
fn a_moment_after_the_last_event_is_as_that_left_it() {
    let options = Options {
        at: Some(At::Time(50_000_000)),
        ..Options::default()
    };
    let mut facts = facts();
    facts.ending = exited();
    let events = [alloc(1, 1, HEAP, 100, 104), alloc(2, 1, HEAP + 112, 8, 24)];
    let report = analyse(facts, options, &events);
    let at = &report.instants[report.at];
    assert_eq!((at.kind, at.live_blocks), (InstantKind::Time, 2));
    assert_eq!((at.live_requested_bytes, at.live_usable_bytes), (108, 128));
}

#[test]
fn a_mark_beyond_the_limit_has_figures_if_it_is_asked_for() {
    let report = |limit: usize| {
        let mut facts = facts();
        facts.marks = marks(&[("one", 2), ("two", 4), ("three", 6)]);
        let mut options = Options {
            at: Some(At::Mark("two".into())),
            ..Options::default()
        };
        options.limits.mark_books = limit;
        let events: Vec<Event> = (0..4)
            .map(|n| alloc(2 * n, 1, HEAP + n * 64, 8, 24))
            .collect();
        let report = analyse(facts, options, &events);
        let at = &report.instants[report.at];
        assert_eq!((at.label.as_str(), at.live_blocks), ("two", 3));
        let mut notes = report.completeness.notes.into_iter();
        notes.any(|note| note.starts_with("3 marks: only the first"))
    };
    assert_eq!([1, 2, 3].map(report), [true, true, false]);
}

/// Four mebibytes live when pages are read at 1 ms; then a block of this size is acquired, at 2 ms; 3 ms are asked for.
#[test]
fn pages_are_those_of_a_time_only_if_about_as_much_lived() {
    let told = |bytes: u64| {
        let options = Options {
            at: Some(At::Time(3_000_000)),
            ..Options::default()
        };
        let mut facts = facts();
        facts.ending = exited();
        let heap = mapping(MappingKind::Heap, HEAP, 1024, "[heap]", 2 << 20);
        facts.snapshots = vec![snapshot(1, SnapshotCause::Peak, vec![heap])];
        let events = [
            alloc(1, 1, HEAP, 4 << 20, 4 << 20),
            alloc(2, 1, HEAP + (8 << 20), bytes, bytes),
        ];
        let report = analyse(facts, options, &events);
        let at = &report.instants[report.at];
        assert_eq!((at.kind, at.live_blocks), (InstantKind::Time, 2));
        let said =
            "--at 0.003 s: pages are not known then. The nearest reading is of 0.001 s, when";
        let mut notes = report.completeness.notes.into_iter();
        let note = notes.find_map(|note| Some(note.strip_prefix(said)?.to_owned()));
        (at.books.is_some(), note.unwrap_or_default())
    };
    // A fiftieth of both.
    assert_eq!(told(85_598), (true, String::new()));
    let less = " 83.6 KiB less lived: --at 0.001s has its figures.".to_owned();
    assert_eq!(told(85_600), (false, less));
}

/// Asks for a time without pages, and then for the one that the note names. Before and after the reading, at the same
/// millisecond, more lives; of two events at its very time one comes before it and one after.
#[test]
fn the_time_that_is_named_has_pages() {
    let told = |at: At| {
        let mut facts = facts();
        facts.ending = exited();
        let heap = mapping(MappingKind::Heap, HEAP, 1024, "[heap]", 2 << 20);
        let mut read = snapshot(2, SnapshotCause::Peak, vec![heap]);
        read.time_ns = 1_000_234_567;
        facts.ending.as_mut().unwrap().time_ns = 2_000_000_000;
        facts.snapshots = vec![read];
        let mut events = [
            alloc(1, 1, HEAP, 4 << 20, 4 << 20),
            alloc(2, 1, HEAP + (8 << 20), 4 << 20, 4 << 20),
            free(3, HEAP),
        ];
        for (event, time_ns) in events.iter_mut().zip([0, 1_000_234_567, 1_000_234_567]) {
            event.time_ns = time_ns;
        }
        let options = Options {
            at: Some(at),
            ..Options::default()
        };
        let report = analyse(facts, options, &events);
        let at = &report.instants[report.at];
        let figures = (at.live_blocks, at.books.is_some(), at.label.clone());
        let mut notes = report.completeness.notes.into_iter();
        let note = notes.find(|note| note.contains("pages are not known then"));
        let named = note.map(|note| {
            let (_, named) = note.rsplit_once(": --at ").unwrap();
            named.strip_suffix(" has its figures.").unwrap().to_owned()
        });
        (figures, named)
    };
    for asked in ["1s", "1.0001s", "1.00025s", "1.0005s"] {
        let (figures, named) = told(At::named(asked).unwrap());
        let label = match asked {
            "1s" => "1.000 s".to_owned(),
            _ => asked.replace('s', " s"),
        };
        assert_eq!(figures, (1, false, label), "{asked}");
        let named = named.unwrap();
        assert_eq!(named, "1.000234s");
        let reached = told(At::named(&named).unwrap());
        assert_eq!(reached, ((2, true, "1.000234 s".into()), None), "{asked}");
    }
}

#[test]
fn a_time_after_the_end_is_told_apart_from_it() {
    let late = AnalysisError::TimeAfterEnd {
        asked_ns: 1_044_000_000,
        end_ns: 1_043_732_106,
    };
    assert_eq!(
        late.to_string(),
        "--at 1.044 s: the recording ends at 1.043732106 s; give a time up to that"
    );
}
