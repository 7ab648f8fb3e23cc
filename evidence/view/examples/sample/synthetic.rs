//! A made-up report about a made-up indexer: seeded, and every sum holds.
//!
//! Y1  The same seed and number of sites give the same report.
//! Y2  Sums over sites equal the instants' and totals' figures (analysis::model.M4), sizes too.
//! Y3  Rows of the books add up to resident memory (analysis::model.M2).
//!
//! Not here: what the findings say (`findings`), anything that is true of a real program.

use skinflint_analysis::model::*;

// By path: the tests include this file from elsewhere.
#[path = "findings.rs"]
mod findings;

use findings::findings;

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;

/// A small generator (xorshift64*): good enough to spread figures, and ours.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) % below.max(1)
    }
}

/// Returns what glibc gives for a request.
fn usable(size: u64) -> u64 {
    (size + 8).next_multiple_of(16).max(32) - 8
}

/// Builds a report with `sites` stacks.
pub fn report(seed: u64, sites: usize) -> Report {
    let mut dice = Dice(seed.max(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut report = Report {
        schema: SCHEMA,
        analysed_by: "0.1.0".into(),
        ..Report::default()
    };
    tree(&mut report, &mut dice, sites.max(8));
    rows(&mut report, &mut dice);
    report.program = program();
    report.completeness = Completeness {
        complete: true,
        events: report.totals.allocations + report.totals.frees,
        truncated_stacks: 12,
        ..Completeness::default()
    };
    report.program.trace_bytes = report.completeness.events * 11 / 10;
    instants(&mut report);
    report.windows = Some(windows(&report));
    timeline(&mut report, &mut dice);
    findings(&mut report);
    mapped(&mut report);
    report.threads = threads(&report);
    report.marks = marks(&report);
    report.verdict = skinflint_view::text::said(&report);
    report
}

/// Adds the row `program-maps` by stack, a heap of its own, and functions with all that they call.
fn mapped(report: &mut Report) {
    let nodes: Vec<u32> = report.sites.iter().take(3).map(|site| site.node).collect();
    let mapper = |(node, mib): (&u32, u64)| Mapper {
        node: *node,
        mapped_bytes: 2 * mib * MIB,
        resident_bytes: Some(mib * MIB),
        ..Mapper::default()
    };
    report.mappers = nodes.iter().zip([14, 7, 3]).map(mapper).collect();
    report.own_heaps = vec![OwnHeap {
        name: "Lua's heap (LuaJIT)".into(),
        bytes: 14 * MIB,
        node: nodes.first().copied(),
        stacks: 1,
        what: "Lua's heap (LuaJIT) holds 14.0 MiB: what is in it is not seen.".into(),
        change: "Ask collectgarbage(\"count\").".into(),
        ..OwnHeap::default()
    }];
    let held = report.held();
    let through = held.iter().take(6).map(|one| Through {
        node: one.node,
        bytes: one.bytes(),
        own_bytes: one.bytes() / 2,
        blocks: one.blocks,
        stacks: 1,
        passes_on: one.node % 2 == 0,
    });
    report.through = through.collect();
    report
        .through
        .sort_by_key(|one| std::cmp::Reverse(one.bytes));
}

fn program() -> Program {
    Program {
        name: "indexer".into(),
        pid: 4711,
        argv: ["indexer", "--threads", "4", "corpus/"]
            .map(String::from)
            .to_vec(),
        exe: "/usr/bin/indexer".into(),
        cwd: "/srv/search".into(),
        allocator: "glibc 2.36".into(),
        system: "Linux 6.1 x86_64".into(),
        recorded_by: "0.1.0".into(),
        started_unix_ns: 1_760_000_000 * SECOND,
        duration_ns: 42 * SECOND + 730_000_000,
        ended: "exit 0".into(),
        origin: None,
        cpu_ns: Some(71 * SECOND),
        max_rss_bytes: Some(420 * MIB),
        read_bytes: Some(7 * MIB),
        written_bytes: Some(MIB),
        recorder_bytes: 9 * MIB / 2,
        trace_bytes: 0,
    }
}

fn tree(report: &mut Report, dice: &mut Dice, sites: usize) {
    const NAMES: [&str; 26] = [
        "main",
        "Indexer::run",
        "Indexer::add_document",
        "Tokenizer::next",
        "parse_html",
        "PostingList::append",
        "PostingList::merge(PostingList const&)",
        "Dictionary::intern(std::string_view)",
        "std::unordered_map<std::string, Term, Hash<std::string>>::emplace(std::string&&)",
        "read_file",
        "decompress_block",
        "Arena::grow",
        "load_config",
        "json::Value::parse",
        "json::Object::insert",
        "LogBuffer::write",
        "ThreadPool::work",
        "Query::compile",
        "Cache::put",
        "normalize_utf8",
        "snapshot::encode",
        "Writer::flush",
        "stem_word",
        "url_decode",
        "StringPool::copy",
        "Ranker::score",
    ];
    let files = [
        "src/indexer.cc",
        "src/postings.cc",
        "src/text/tokenize.cc",
        "src/json.cc",
        "src/pool.cc",
    ];
    let frame = |function: &str, module: &str, file: Option<&str>, line| Frame {
        function: function.into(),
        module: module.into(),
        file: file.map(String::from),
        line,
        inlined: false,
    };
    report.frames.push(frame("_start", "indexer", None, None));
    report.frames.push(frame("malloc", "libc.so.6", None, None));
    report.frames.push(frame(
        "operator new(unsigned long)",
        "libstdc++.so.6",
        None,
        None,
    ));
    for (index, name) in NAMES.iter().enumerate() {
        let mut frame = frame(
            name,
            "indexer",
            Some(files[index % files.len()]),
            Some(20 + index as u32 * 17),
        );
        frame.inlined = index % 7 == 6;
        report.frames.push(frame);
    }
    report.nodes = vec![
        Node::default(),
        Node {
            parent: 0,
            frame: 0,
        },
        Node {
            parent: 1,
            frame: 3,
        },
    ];
    let mut open = vec![2_u32];
    for _ in 0..sites {
        let mut at = open[dice.roll(open.len() as u64) as usize];
        for _ in 0..1 + dice.roll(3) {
            report.nodes.push(Node {
                parent: at,
                frame: 4 + dice.roll(NAMES.len() as u64 - 1) as u32,
            });
            at = report.nodes.len() as u32 - 1;
            open.push(at);
        }
        for frame in [2, 1] {
            report.nodes.push(Node { parent: at, frame });
            at = report.nodes.len() as u32 - 1;
        }
        report.sites.push(Site {
            node: at,
            ..Site::default()
        });
    }
}

/// Fills sites and, from the same draws, sizes and totals: one request size for each site.
fn rows(report: &mut Report, dice: &mut Dice) {
    const SIZES: [u64; 20] = [
        1, 13, 24, 32, 40, 48, 64, 96, 100, 128, 200, 257, 512, 520, 1025, 2048, 4104, 16_400,
        65_552, 1_048_592,
    ];
    let mut sizes = std::collections::BTreeMap::<u64, SizeRow>::new();
    let duration = program().duration_ns;
    for site in &mut report.sites {
        let size =
            SIZES[dice.roll(20) as usize] + if dice.roll(3) == 0 { dice.roll(40) } else { 0 };
        let scale = (3_000_000 / size).clamp(1, 40_000);
        let blocks = 1 + dice.roll(scale) * dice.roll(scale) / scale;
        let (live, peak) = (
            blocks * dice.roll(10) / 10,
            blocks * (5 + dice.roll(5)) / 10,
        );
        let end = live.min(blocks * dice.roll(5) / 10);
        *site = Site {
            node: site.node,
            allocations: blocks,
            requested_bytes: blocks * size,
            usable_bytes: blocks * usable(size),
            temporaries: (blocks - peak.max(live)) * dice.roll(10) / 10,
            live_blocks: live,
            live_requested_bytes: live * size,
            live_usable_bytes: live * usable(size),
            live_resident_bytes: None,
            heap_peak_blocks: peak,
            heap_peak_requested_bytes: peak * size,
            heap_peak_usable_bytes: peak * usable(size),
            end_blocks: end,
            end_requested_bytes: end * size,
            end_usable_bytes: end * usable(size),
            first_ns: dice.roll(duration / 2),
            last_ns: duration / 2 + dice.roll(duration / 2),
            ..Site::default()
        };
        let row = sizes.entry(size).or_insert(SizeRow {
            size,
            usable: usable(size),
            ..SizeRow::default()
        });
        row.live_blocks += live;
        row.live_slop_bytes += live * (usable(size) - size);
        row.allocations += blocks;
        row.slop_bytes += blocks * (usable(size) - size);
        let t = &mut report.totals;
        t.allocations += blocks;
        t.frees += blocks - end;
        t.requested_bytes += blocks * size;
        t.usable_bytes += blocks * usable(size);
        t.temporaries += site.temporaries;
    }
    report.totals.reallocs = report.totals.frees / 9;
    report.totals.maps = 212;
    report.totals.map_bytes = 96 * MIB;
    report.totals.events_per_s = (report.totals.allocations + report.totals.frees) as f64 / 42.73;
    report.sizes = sizes.into_values().collect();
    report
        .sizes
        .sort_by_key(|row| std::cmp::Reverse(row.size * row.live_blocks));
}

fn sum(report: &Report, field: impl Fn(&Site) -> u64) -> u64 {
    report.sites.iter().map(field).sum()
}

/// Returns the live blocks of a site when the index was built.
fn built(site: &Site) -> u64 {
    (site.live_blocks * 7 / 10).min(site.heap_peak_blocks)
}

/// Builds one cell for each site, and an edge at the start and at each instant. A site acquires no
/// more than its level rises by; the rest of its allocations come and go in the first bucket.
fn windows(report: &Report) -> Windows {
    let mut windows = Windows::default();
    let mut order: Vec<(u64, u32)> = (0..)
        .zip(&report.instants)
        .map(|(index, instant)| (instant.time_ns, index))
        .collect();
    order.sort_unstable();
    windows.edges.push(WindowEdge::default());
    for &(time_ns, index) in &order {
        windows.edges.push(WindowEdge {
            time_ns,
            events: report.completeness.events * time_ns / order[order.len() - 1].0,
            instants: vec![index],
        });
    }
    for (site, row) in (0..).zip(&report.sites) {
        windows.cells.push(WindowCell {
            site: Some(site),
            blocks: 1,
            size: row.requested_bytes / row.allocations,
            usable: row.usable_bytes / row.allocations,
            start: 0,
        });
    }
    // Index built, heap peak, peak, end.
    let levels = |site: &Site| {
        [
            0,
            built(site),
            site.heap_peak_blocks,
            site.live_blocks,
            site.end_blocks,
        ]
    };
    for bucket in 0..4 {
        for (cell, site) in (0..).zip(&report.sites) {
            let levels = levels(site);
            let rises: u64 = levels
                .windows(2)
                .map(|pair| pair[1].saturating_sub(pair[0]))
                .sum();
            let passing = if bucket == 0 {
                site.allocations - rises
            } else {
                0
            };
            let (from, to) = (levels[bucket], levels[bucket + 1]);
            let (acquired, released) = (
                passing + to.saturating_sub(from),
                passing + from.saturating_sub(to),
            );
            if acquired > 0 || released > 0 {
                windows.changed_cell.push(cell);
                windows.acquired.push(acquired);
                windows.released.push(released);
            }
        }
        windows.bucket_ends.push(windows.changed_cell.len() as u64);
    }
    windows
}

fn instants(report: &mut Report) {
    let live = [
        sum(report, |s| s.live_blocks),
        sum(report, |s| s.live_requested_bytes),
        sum(report, |s| s.live_usable_bytes),
    ];
    let heap = [
        sum(report, |s| s.heap_peak_blocks),
        sum(report, |s| s.heap_peak_requested_bytes),
        sum(report, |s| s.heap_peak_usable_bytes),
    ];
    let end = [
        sum(report, |s| s.end_blocks),
        sum(report, |s| s.end_requested_bytes),
        sum(report, |s| s.end_usable_bytes),
    ];
    let half = [
        sum(report, built),
        sum(report, |s| built(s) * (s.requested_bytes / s.allocations)),
        sum(report, |s| built(s) * (s.usable_bytes / s.allocations)),
    ];
    let mut add =
        |label: &str, kind, time_ns, [live_blocks, requested, usable]: [u64; 3], books| {
            report.instants.push(Instant {
                label: label.into(),
                kind,
                time_ns,
                ticket: time_ns / 20_000,
                live_blocks,
                live_requested_bytes: requested,
                live_usable_bytes: usable,
                books,
                fragments: None,
            });
        };
    let duration = 42 * SECOND + 730_000_000;
    let top = report
        .sites
        .iter()
        .max_by_key(|site| site.live_usable_bytes)
        .map_or((0, 0), |s| (s.node, s.live_requested_bytes));
    add(
        "peak",
        InstantKind::Peak,
        31 * SECOND,
        live,
        Some(books(live, top)),
    );
    add(
        "end",
        InstantKind::End,
        duration,
        end,
        Some(books(end, (top.0, 0))),
    );
    add("heap-peak", InstantKind::HeapPeak, 30 * SECOND, heap, None);
    add(
        "index built",
        InstantKind::Mark,
        24 * SECOND,
        half,
        Some(books(half, (top.0, 0))),
    );
    report.instants[0].fragments = Some(fragments(report));
}

/// Builds the fragments: each site holds two free bytes for three live ones, a third of its pages alone;
/// the first three sites with pins are listed, and two of their functions.
fn fragments(report: &Report) -> Fragments {
    let free = |bytes: u64| bytes / 3 * 2;
    let row = |site: &Site| {
        let pages = (site.live_usable_bytes + free(site.live_usable_bytes)) / 4096;
        let packed = site.live_usable_bytes.div_ceil(4096);
        Pins {
            node: Some(site.node),
            stacks: 1,
            free_bytes: free(site.live_usable_bytes),
            sole_free_bytes: free(site.live_usable_bytes) / 3,
            blocks: site.live_blocks,
            block_bytes: site.live_usable_bytes,
            live_blocks: site.live_blocks,
            live_bytes: site.live_usable_bytes,
            acquired_blocks: site.allocations,
            sole_pages: pages,
            joint_pages: pages / 4,
            packed_pages: packed,
            freed_pages: pages.saturating_sub(packed),
            resident_elsewhere_bytes: 0,
            age: Some(PinAge {
                median_ns: 12 * SECOND,
                oldest_ns: 30 * SECOND,
                median_acquisitions: 400_000,
                oldest_acquisitions: 900_000,
            }),
            ..Pins::default()
        }
    };
    let mut sites: Vec<&Site> = report.sites.iter().collect();
    sites.sort_by_key(|site| std::cmp::Reverse(site.live_usable_bytes));
    let used = sum(report, |site| site.live_usable_bytes);
    let pinned = sum(report, |site| free(site.live_usable_bytes));
    let mut pins: Vec<Pins> = sites.into_iter().map(row).collect();
    let rest = pins.split_off(pins.len().min(30));
    let others = Pins {
        stacks: rest.len() as u64,
        free_bytes: rest.iter().map(|row| row.free_bytes).sum(),
        blocks: rest.iter().map(|row| row.blocks).sum(),
        ..Pins::default()
    };
    let nobodys = 9 * MIB;
    Fragments {
        resident_bytes: used + pinned + nobodys,
        used_bytes: used,
        free_bytes: pinned + nobodys,
        pinned_bytes: pinned,
        nobodys_bytes: nobodys,
        pages: (used + pinned + nobodys) / 4096,
        pinned_pages: (used + pinned) / 4096,
        partial_pages: (used + pinned) / 4096,
        packed_pages: used.div_ceil(4096),
        class_packed_pages: used.div_ceil(4096) + 40,
        functions: pins.iter().take(12).cloned().collect(),
        pins,
        others,
        spans: Some(HeapSpans {
            layout: "jemalloc: slabs of the small size classes (up to 14 KiB)".into(),
            spans: 12_345,
            resident_bytes: used,
            used_bytes: used / 2,
            blocks: 200_000,
        }),
        ..Fragments::default()
    }
}

fn books([_, requested, usable]: [u64; 3], (node, top): (u32, u64)) -> Books {
    let part = |name: &str, bytes, node| BookPart {
        name: name.into(),
        bytes,
        node,
    };
    let files = 11 * MIB + 40_960;
    let top = top.min(requested);
    let rows = vec![
        row(
            "live",
            "Live, as asked for",
            requested,
            "Bytes that the program asked for and has not released.",
            vec![
                part("PostingList::append", top, Some(node)),
                part("others", requested - top, None),
            ],
        ),
        row(
            "slop",
            "Slop",
            usable - requested,
            "Bytes given beyond what was asked for.",
            vec![],
        ),
        row(
            "allocator-free",
            "Free, kept by malloc",
            requested / 3 + 7777,
            "Resident pages of the heap that hold no live block.",
            vec![],
        ),
        row(
            "allocator-metadata",
            "Allocator's own data",
            requested / 60,
            "Chunk headers, arenas, bins.",
            vec![],
        ),
        row(
            "mapped-files",
            "Mapped files",
            files,
            "Pages of executables, libraries and data files.",
            vec![
                part("/usr/lib/libstdc++.so.6", 2 * MIB, None),
                part("/usr/bin/indexer", 6 * MIB, None),
                part("others", files - 8 * MIB, None),
            ],
        ),
        row(
            "stacks",
            "Thread stacks",
            612 * 1024,
            "Touched pages of the stacks.",
            vec![],
        ),
        row(
            "program-maps",
            "Mapped by the program",
            24 * MIB,
            "Anonymous memory that the program mapped itself.",
            vec![],
        ),
        row("shared", "Shared memory", 0, "Shared mappings.", vec![]),
        row(
            "recorder",
            "The recorder",
            9 * MIB / 2,
            "What the recorder holds inside the program.",
            vec![],
        ),
        row(
            "unclassified",
            "Unclassified",
            388 * 1024,
            "What none of the above explains.",
            vec![],
        ),
    ];
    Books {
        resident_bytes: rows.iter().map(|row: &BookRow| row.bytes).sum(),
        skew_ns: 2_100_000,
        skew_bytes: 0,
        live_not_resident_bytes: 3 * MIB,
        rows,
        beside: beside(),
        notes: vec![
            "Free memory was told from live memory by the pages that pagemap says are resident."
                .into(),
        ],
    }
}

/// Returns what is counted beside the rows that add up.
fn beside() -> Vec<BookRow> {
    vec![
        row("swapped", "swapped out", 5 * MIB, "Not resident.", vec![]),
        row(
            "huge-pages",
            "of it in huge pages",
            16 * MIB,
            "In other rows by owner.",
            vec![],
        ),
    ]
}

fn row(id: &str, label: &str, bytes: u64, meaning: &str, parts: Vec<BookPart>) -> BookRow {
    BookRow {
        id: id.into(),
        label: label.into(),
        bytes,
        meaning: meaning.into(),
        parts,
    }
}

fn timeline(report: &mut Report, dice: &mut Dice) {
    let instants = &report.instants;
    let (peak, heap, end) = (&instants[0], &instants[2], &instants[1]);
    let resident = peak.books.as_ref().map_or(0, |books| books.resident_bytes);
    let t = &mut report.timeline;
    for index in 1..=600_u64 {
        let time = report.program.duration_ns / 600 * index;
        // The curve rises to the largest heap in waves, then falls until the end.
        let share = if time < heap.time_ns {
            time as f64 / heap.time_ns as f64
        } else {
            1.0 - (time - heap.time_ns) as f64 / (report.program.duration_ns - heap.time_ns) as f64
                * (1.0 - end.live_usable_bytes as f64 / heap.live_usable_bytes as f64)
        };
        let wave =
            1.0 - 0.12 * (index as f64 / 11.0).sin().abs() * f64::from(u8::from(index < 420));
        let live = (heap.live_usable_bytes as f64 * share * wave) as u64;
        t.heap_t_ns.push(time);
        t.live_usable_bytes.push(live);
        let ratio = heap.live_requested_bytes as f64 / heap.live_usable_bytes as f64;
        t.live_requested_bytes.push((live as f64 * ratio) as u64);
        t.live_blocks
            .push((heap.live_blocks as f64 * share * wave) as u64);
        t.allocations.push(800 + dice.roll(4000));
        if index % 2 == 0 {
            let anon = (live + live / 5 + 30 * MIB)
                .min(resident.saturating_sub(12 * MIB))
                .max(live);
            t.rss_t_ns.push(time);
            t.anon_bytes.push(anon);
            t.rss_bytes.push(anon + 12 * MIB);
            t.pss_bytes
                .push((index % 10 == 0).then_some(anon + 7 * MIB));
        }
    }
}

/// Adds growth and zombies; `nodes` are five stacks.
fn growth_and_zombies(report: &mut Report, nodes: &[u32]) {
    report.growth = [
        GrowthPattern::FixedStep(4096),
        GrowthPattern::JustEnough,
        GrowthPattern::Exponential(2.0),
        GrowthPattern::Irregular,
    ]
    .into_iter()
    .enumerate()
    .map(|(index, pattern)| Growth {
        node: nodes[index],
        pattern,
        by_hand: index == 1,
        chains: 4 + index as u64,
        steps: 4103,
        in_place_steps: 812,
        largest_bytes: 16 * MIB,
        allocated_bytes: (34_000 * MIB) >> index,
        copied_bytes: (30_000 * MIB) >> index,
        doubling_bytes: 32 * MIB,
        doubling_copied_bytes: 16 * MIB,
        anew_usable_bytes: 40 * MIB,
        one_and_a_half_bytes: 48 * MIB,
    })
    .collect();
    report.zombies = vec![Zombie {
        phase: "load".into(),
        node: nodes[4],
        blocks: 9000,
        requested_bytes: 3 * MIB,
        usable_bytes: 3 * MIB + 90_000,
        end_blocks: 8000,
        end_usable_bytes: 2 * MIB,
    }];
}

fn threads(report: &Report) -> Vec<ThreadRow> {
    let names = ["indexer", "worker-1", "worker-2", "worker-3"];
    let share = |total: u64, index: usize| {
        if index == 0 {
            total - total / 5 * 3
        } else {
            total / 5
        }
    };
    names
        .iter()
        .enumerate()
        .map(|(index, name)| ThreadRow {
            tid: 4711 + index as u32,
            name: (*name).into(),
            started_ns: index as u64 * 90_000_000,
            ended_ns: (index > 0).then_some(40 * SECOND),
            allocations: share(report.totals.allocations, index),
            requested_bytes: share(report.totals.requested_bytes, index),
            remote_frees: 1000 * index as u64,
        })
        .collect()
}

fn marks(report: &Report) -> Vec<MarkRow> {
    let live = report.instants[0].live_usable_bytes;
    [
        ("load begin", 0, 0),
        ("load end", 3, 2),
        ("index built", 24, 7),
    ]
    .into_iter()
    .map(|(name, s, tenths)| MarkRow {
        name: name.into(),
        time_ns: s * SECOND,
        live_usable_bytes: live * tenths / 10,
        live_blocks: 1000 * tenths,
        peak_live_usable_bytes: live * tenths / 10,
        allocations: 90_000 * tenths,
        requested_bytes: 9 * MIB * tenths,
    })
    .collect()
}
