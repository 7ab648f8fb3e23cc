//! The judge: a second, dumber ledger that keeps every event and recomputes everything from the
//! start for each question, compared with the real one on seeded random traces.
//!
//! ```text
//!   seed ──► events (threads, reallocs with other threads between, cancels, marks, remote frees)
//!              ├─► Analyzer ─► Report
//!              └─► Judge: BTreeMap, replayed to any ticket        figures equal, all of them
//! ```
//!
//! J1  The judge shares no code with the ledger but the types of events and of the report.
//! J2  A failure prints its seed; the same seed gives the same trace.

use std::collections::BTreeMap;

use skinflint_analysis::model::{Frame, InstantKind, Report, WindowEdge};
use skinflint_analysis::{Analyzer, At, Facts, Options, StackNode, Symbolizer, WindowLimits};
use skinflint_base::random::Random;
use skinflint_trace::{
    AllocFn, Event, EventKind, FreeFn, Mapping, MappingKind, Mark, NodeId, Snapshot, SnapshotCause,
    ThreadId,
};

/// Names a node by its number, so that a report's stack can be told.
struct ByNumber;

impl Symbolizer for ByNumber {
    fn frames(&mut self, _pc: u64, node: u32) -> Vec<Frame> {
        vec![Frame {
            function: format!("f{node}"),
            ..Frame::default()
        }]
    }
}

/// What will become of a realloc under way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Fails,
    Stays,
    Moves,
}

const NODES: u32 = 12;
const THREADS: u32 = 4;

/// A legal trace: no address twice, releases before acquisitions (trace::event.E1, trace::event.E2).
fn trace(seed: u64, count: u64) -> (Vec<Event>, Vec<Mark>) {
    let mut random = Random::new(seed);
    let mut live: Vec<u64> = Vec::new();
    let mut free: Vec<u64> = (1..400).map(|slot| 0x10_0000 + slot * 0x400).collect();
    let mut parked: Vec<Option<(u64, Outcome)>> = vec![None; THREADS as usize];
    let (mut events, mut marks) = (Vec::new(), Vec::new());
    let mut time_ns = 0;
    // Phases of growth and of shrinking, so that the heap peak lies in the middle.
    for ticket in 0..count {
        let growing = (ticket / 300) % 2 == 0;
        let thread = random.below(u64::from(THREADS)) as usize;
        time_ns += random.below(3000);
        let node = NodeId(random.below(u64::from(NODES)) as u32);
        let size = [0u64, 1, 24, 24, 24, 100, 1000][random.below(7) as usize];
        let usable = size.max(24).next_multiple_of(16) + 8 * random.below(2);
        let kind = match (parked[thread].take(), random.below(20)) {
            (Some((old, Outcome::Fails)), _) => {
                live.push(old);
                EventKind::ReallocCancel { addr: old }
            }
            (Some((old, outcome)), _) => {
                let pick = random.below(free.len().max(1) as u64) as usize;
                let moved = outcome == Outcome::Moves && !free.is_empty();
                let addr = if moved { free.swap_remove(pick) } else { old };
                live.push(addr);
                EventKind::ReallocAcquire {
                    node,
                    addr,
                    size,
                    usable,
                }
            }
            (None, 0) if marks.len() < 60 => {
                let name = format!("mark {}", marks.len());
                marks.push(Mark {
                    name,
                    time_ns,
                    ticket,
                    thread: None,
                });
                EventKind::Mark {
                    mark: marks.len() as u32 - 1,
                }
            }
            (None, 1) => EventKind::Free {
                func: FreeFn::Free,
                addr: 0xDEAD_0000 + ticket,
            },
            (None, 2..6) if !live.is_empty() => {
                let addr = live.swap_remove(random.below(live.len() as u64) as usize);
                let outcome =
                    [Outcome::Fails, Outcome::Stays, Outcome::Moves][random.below(3) as usize];
                if outcome == Outcome::Moves {
                    // From here on another thread may take the address (trace::event.E2).
                    free.push(addr);
                }
                parked[thread] = Some((addr, outcome));
                EventKind::ReallocRelease { addr }
            }
            (None, dice) if dice < (if growing { 10 } else { 16 }) && !live.is_empty() => {
                let addr = live.swap_remove(random.below(live.len() as u64) as usize);
                free.push(addr);
                EventKind::Free {
                    func: FreeFn::Free,
                    addr,
                }
            }
            (None, _) if !free.is_empty() => {
                let addr = free.swap_remove(random.below(free.len() as u64) as usize);
                live.push(addr);
                EventKind::Alloc {
                    func: AllocFn::Malloc,
                    node,
                    addr,
                    size,
                    usable,
                }
            }
            (None, _) => EventKind::Fork { child: 1 },
        };
        events.push(Event {
            ticket,
            time_ns,
            thread: ThreadId(thread as u32),
            kind,
        });
    }
    (events, marks)
}

#[derive(Clone, Copy)]
struct Held {
    node: u32,
    size: u64,
    usable: u64,
    thread: u32,
    /// How many acquisitions its stack had made with it.
    nth: u64,
}

#[derive(Default, Clone, Debug, PartialEq, Eq)]
struct Sums {
    blocks: u64,
    requested: u64,
    usable: u64,
}

#[derive(Default)]
struct Judge {
    live: BTreeMap<u64, Held>,
    parked: BTreeMap<u32, Option<(u64, Held)>>,
    ever: BTreeMap<u32, Sums>,
    temporaries: BTreeMap<u32, u64>,
    remote: BTreeMap<u32, u64>,
    by_thread: BTreeMap<u32, Sums>,
    frees: u64,
    reallocs: u64,
    unknown: i64,
}

impl Judge {
    fn replay(events: &[Event], up_to: u64) -> Judge {
        let mut judge = Judge::default();
        for event in events.iter().take_while(|event| event.ticket <= up_to) {
            judge.step(event);
        }
        judge
    }

    fn step(&mut self, event: &Event) {
        let thread = event.thread.0;
        match event.kind {
            EventKind::Alloc {
                node,
                addr,
                size,
                usable,
                ..
            } => {
                self.acquire(thread, node.0, addr, size, usable);
            }
            EventKind::Free { addr, .. } => match self.live.remove(&addr) {
                None => self.unknown += 1,
                Some(held) => {
                    self.frees += 1;
                    *self.remote.entry(thread).or_default() += u64::from(held.thread != thread);
                    let last = self.ever[&held.node].blocks == held.nth;
                    *self.temporaries.entry(held.node).or_default() += u64::from(last);
                }
            },
            EventKind::ReallocRelease { addr } => {
                let block = self.live.remove(&addr).map(|held| (addr, held));
                self.unknown += i64::from(block.is_none());
                self.parked.insert(thread, block);
            }
            EventKind::ReallocAcquire {
                node,
                addr,
                size,
                usable,
            } => {
                if let Some(Some((_, old))) = self.parked.remove(&thread) {
                    self.frees += 1;
                    self.reallocs += 1;
                    *self.remote.entry(thread).or_default() += u64::from(old.thread != thread);
                }
                self.acquire(thread, node.0, addr, size, usable);
            }
            EventKind::ReallocCancel { .. } => match self.parked.remove(&thread).unwrap() {
                Some((addr, held)) => _ = self.live.insert(addr, held),
                None => self.unknown -= 1,
            },
            _ => {}
        }
    }

    fn acquire(&mut self, thread: u32, node: u32, addr: u64, size: u64, usable: u64) {
        let of_node = self.ever.entry(node).or_default();
        for sums in [of_node, self.by_thread.entry(thread).or_default()] {
            sums.blocks += 1;
            sums.requested += size;
            sums.usable += usable;
        }
        let nth = self.ever[&node].blocks;
        assert!(
            self.live
                .insert(
                    addr,
                    Held {
                        node,
                        size,
                        usable,
                        thread,
                        nth
                    }
                )
                .is_none()
        );
    }

    fn holding(&self) -> Vec<Held> {
        let parked = self.parked.values().flatten().map(|(_, held)| *held);
        self.live.values().copied().chain(parked).collect()
    }

    fn sums(&self, of: impl Fn(&Held) -> bool) -> Sums {
        let mut sums = Sums::default();
        for held in self.holding().iter().filter(|held| of(held)) {
            sums.blocks += 1;
            sums.requested += held.size;
            sums.usable += held.usable;
        }
        sums
    }
}

fn facts(marks: Vec<Mark>) -> Facts {
    Facts {
        marks,
        nodes: (0..NODES)
            .map(|id| StackNode {
                pc: u64::from(id),
                parent: 0,
            })
            .collect(),
        ..Facts::default()
    }
}

fn analyse(events: &[Event], marks: &[Mark], options: Options) -> Report {
    let mut analyzer = Analyzer::with_passes(facts(marks.to_vec()), options, Vec::new()).unwrap();
    events.iter().for_each(|event| analyzer.event(event));
    analyzer.finish(&mut ByNumber)
}

/// The trace's node of a report's node, by the name that [`ByNumber`] gave it.
fn trace_node(report: &Report, node: u32) -> u32 {
    let name = &report.frames[report.nodes[node as usize].frame as usize].function;
    if name.is_empty() {
        0
    } else {
        name[1..].parse().unwrap()
    }
}

/// The ticket at which the live heap was largest: by replaying to every ticket.
fn heap_peak(events: &[Event]) -> (u64, Sums) {
    let mut judge = Judge::default();
    let mut best = (0, Sums::default());
    for event in events {
        judge.step(event);
        let sums = judge.sums(|_| true);
        if sums.usable > best.1.usable {
            best = (event.ticket, sums);
        }
    }
    best
}

fn compare_sites(report: &Report, events: &[Event], at: u64, peak: u64, seed: u64) {
    let end = Judge::replay(events, u64::MAX);
    let (now, peak) = (Judge::replay(events, at), Judge::replay(events, peak));
    assert_eq!(report.sites.len(), end.ever.len(), "seed {seed}");
    for site in &report.sites {
        let node = trace_node(report, site.node);
        let sums = |blocks, requested, usable| Sums {
            blocks,
            requested,
            usable,
        };
        let ever = sums(site.allocations, site.requested_bytes, site.usable_bytes);
        assert_eq!(
            ever, end.ever[&node],
            "seed {seed} node {node}: over the run"
        );
        let live = sums(
            site.live_blocks,
            site.live_requested_bytes,
            site.live_usable_bytes,
        );
        assert_eq!(
            live,
            now.sums(|held| held.node == node),
            "seed {seed} node {node}: live"
        );
        let at_peak = sums(
            site.heap_peak_blocks,
            site.heap_peak_requested_bytes,
            site.heap_peak_usable_bytes,
        );
        assert_eq!(
            at_peak,
            peak.sums(|held| held.node == node),
            "seed {seed} node {node}: peak"
        );
        let at_end = sums(
            site.end_blocks,
            site.end_requested_bytes,
            site.end_usable_bytes,
        );
        assert_eq!(
            at_end,
            end.sums(|held| held.node == node),
            "seed {seed} node {node}: end"
        );
        let temporaries = end.temporaries.get(&node).copied().unwrap_or(0);
        assert_eq!(
            site.temporaries, temporaries,
            "seed {seed} node {node}: temporaries"
        );
    }
}

fn compare_sizes(report: &Report, events: &[Event], at: u64, seed: u64) {
    let now = Judge::replay(events, at);
    for row in &report.sizes {
        let live = now.sums(|held| held.size == row.size);
        assert_eq!(
            row.live_blocks, live.blocks,
            "seed {seed} size {}",
            row.size
        );
        assert_eq!(
            row.live_slop_bytes,
            live.usable - live.requested,
            "seed {seed}"
        );
    }
    let all: u64 = report.sizes.iter().map(|row| row.allocations).sum();
    assert_eq!(all, report.totals.allocations, "seed {seed}");
}

fn compare_threads(report: &Report, end: &Judge, seed: u64) {
    for (id, row) in (0u32..).zip(&report.threads) {
        let did = end.by_thread.get(&id).cloned().unwrap_or_default();
        assert_eq!(
            (row.allocations, row.requested_bytes),
            (did.blocks, did.requested)
        );
        let remote = end.remote.get(&id).copied().unwrap_or(0);
        assert_eq!(row.remote_frees, remote, "seed {seed} thread {id}");
    }
}

#[test]
fn the_ledger_agrees_with_the_judge() {
    for seed in 1..=12u64 {
        let (events, marks) = trace(seed, 1500);
        let end = Judge::replay(&events, u64::MAX);
        let (peak_ticket, peak) = heap_peak(&events);
        let middle = marks[marks.len() / 2].clone();
        let options = Options {
            at: Some(At::Mark(middle.name.clone())),
            ..Options::default()
        };
        let report = analyse(&events, &marks, options);

        let totals = &report.totals;
        assert_eq!(
            totals.allocations,
            end.ever.values().map(|sums| sums.blocks).sum::<u64>()
        );
        assert_eq!(totals.frees, end.frees, "seed {seed}");
        assert_eq!(totals.reallocs, end.reallocs, "seed {seed}");
        assert!(
            totals.reallocs > 20 && totals.temporaries > 20,
            "seed {seed}: a dull trace"
        );
        assert_eq!(
            report.completeness.unknown_frees as i64, end.unknown,
            "seed {seed}"
        );
        assert_eq!(
            totals.allocations - totals.frees,
            end.holding().len() as u64,
            "seed {seed}: live = acquired - released"
        );
        compare_sites(&report, &events, middle.ticket, peak_ticket, seed);
        compare_sizes(&report, &events, middle.ticket, seed);
        compare_threads(&report, &end, seed);

        for instant in &report.instants {
            let want = match instant.kind {
                InstantKind::HeapPeak => {
                    assert_eq!(instant.ticket, peak_ticket, "seed {seed}");
                    peak.clone()
                }
                _ => Judge::replay(&events, instant.ticket).sums(|_| true),
            };
            let got = Sums {
                blocks: instant.live_blocks,
                requested: instant.live_requested_bytes,
                usable: instant.live_usable_bytes,
            };
            assert_eq!(got, want, "seed {seed} {}", instant.label);
        }
        let most = report.timeline.live_usable_bytes.iter().max().copied();
        assert_eq!(
            most,
            Some(peak.usable),
            "seed {seed}: the timeline has the peak"
        );
        let mut from = 0;
        for (&to, &allocations) in report
            .timeline
            .heap_t_ns
            .iter()
            .zip(&report.timeline.allocations)
        {
            let last = Some(&to) == report.timeline.heap_t_ns.last();
            let inside = events.iter().filter(|event| {
                let acquires = matches!(
                    event.kind,
                    EventKind::Alloc { .. } | EventKind::ReallocAcquire { .. }
                );
                acquires && event.time_ns >= from && (event.time_ns < to || last)
            });
            assert_eq!(
                allocations,
                inside.count() as u64,
                "seed {seed}: timeline up to {to}"
            );
            from = to;
        }
    }
}

#[test]
fn heap_peak_and_time_as_the_instant() {
    for seed in 20..=26u64 {
        let (events, marks) = trace(seed, 1200);
        let (peak_ticket, _) = heap_peak(&events);
        let options = Options {
            at: Some(At::HeapPeak),
            ..Options::default()
        };
        let report = analyse(&events, &marks, options);
        compare_sites(&report, &events, peak_ticket, peak_ticket, seed);
        compare_sizes(&report, &events, peak_ticket, seed);

        let time_ns = events[700].time_ns;
        let options = Options {
            at: Some(At::Time(time_ns)),
            ..Options::default()
        };
        let report = analyse(&events, &marks, options);
        let last = events
            .iter()
            .rfind(|event| event.time_ns <= time_ns)
            .unwrap();
        assert_eq!(
            report.instants[report.at].ticket, last.ticket,
            "seed {seed}"
        );
        compare_sites(&report, &events, last.ticket, peak_ticket, seed);
    }
}

/// The same trace cut at every event: never a panic, and equal to the judge's end.
#[test]
fn a_trace_may_be_cut_anywhere() {
    let (events, marks) = trace(31, 400);
    for cut in 0..events.len() {
        let report = analyse(&events[..cut], &marks, Options::default());
        let judge = Judge::replay(&events[..cut], u64::MAX);
        let end = report
            .instants
            .iter()
            .find(|one| one.kind == InstantKind::End)
            .unwrap();
        assert_eq!(
            end.live_blocks,
            judge.holding().len() as u64,
            "cut at {cut}"
        );
        assert!(
            !report.completeness.complete,
            "cut at {cut}: there is no end mark"
        );
    }
}

/// The books of one mapping against a walk over every byte of it.
#[test]
fn the_books_agree_with_a_walk_over_bytes() {
    const START: u64 = 0x7F_0000_0000;
    const PAGES: u64 = 24;
    for seed in 1..=40u64 {
        let mut random = Random::new(seed);
        let resident: Vec<bool> = (0..PAGES).map(|_| random.below(3) > 0).collect();
        let runs: Vec<(u64, u64)> = (0..PAGES)
            .filter(|page| resident[*page as usize])
            .map(|page| (START + page * 4096, 4096))
            .collect();
        let rss_bytes = runs.len() as u64 * 4096;
        // What each byte is: free, header, live, slop; headers end where the block begins.
        let mut bytes = vec![b'f'; (PAGES * 4096) as usize];
        let (mut events, mut at) = (Vec::new(), 16u64);
        let mut asked = 0;
        loop {
            let size = [24, 100, 5000, 20_000][random.below(4) as usize] + random.below(9);
            let usable = (size + 8).next_multiple_of(16) - 8;
            if at + usable > PAGES * 4096 {
                break;
            }
            let here = at as usize;
            bytes[here - 8..here].fill(b'h');
            bytes[here..here + size as usize].fill(b'l');
            bytes[here + size as usize..here + usable as usize].fill(b's');
            asked += size;
            events.push(Event {
                ticket: events.len() as u64,
                time_ns: 0,
                thread: ThreadId(0),
                kind: EventKind::Alloc {
                    func: AllocFn::Malloc,
                    node: NodeId(random.below(u64::from(NODES)) as u32),
                    addr: START + at,
                    size,
                    usable,
                },
            });
            at += usable + 8 + 16 * random.below(300);
        }
        let count = |what: u8| {
            let there = |(index, byte): &(usize, &u8)| **byte == what && resident[index / 4096];
            bytes.iter().enumerate().filter(there).count() as u64
        };
        let mapping = Mapping {
            start: START,
            end: START + PAGES * 4096,
            kind: MappingKind::Anon,
            rss_bytes,
            runs,
            runs_known: true,
            ..Mapping::default()
        };
        let mut facts = facts(Vec::new());
        facts.process.allocator = "glibc 2.36".into();
        facts.snapshots = vec![Snapshot {
            time_ns: 0,
            ticket: u64::MAX - 1,
            cause: SnapshotCause::Exit,
            took_ns: 0,
            counted_bytes: None,
            tops: None,
            mappings: vec![mapping],
        }];
        let mut analyzer = Analyzer::with_passes(facts, Options::default(), Vec::new()).unwrap();
        events.iter().for_each(|event| analyzer.event(event));
        let report = analyzer.finish(&mut ByNumber);
        let books = report.instants[report.at].books.as_ref().unwrap();
        let row = |id: &str| books.rows.iter().find(|row| row.id == id).unwrap().bytes;
        assert_eq!(row("live"), count(b'l'), "seed {seed}");
        assert_eq!(row("slop"), count(b's'), "seed {seed}");
        assert_eq!(row("allocator-metadata"), count(b'h'), "seed {seed}");
        // Where no block was, nothing shows that the page is free.
        let pages = bytes.chunks(4096).zip(&resident);
        let unseen: u64 = pages
            .filter(|(page, there)| **there && !page.iter().any(|byte| matches!(byte, b'l' | b's')))
            .map(|(page, _)| page.iter().filter(|byte| **byte == b'f').count() as u64)
            .sum();
        assert_eq!(row("heap-unseen"), unseen, "seed {seed}");
        assert_eq!(row("allocator-free"), count(b'f') - unseen, "seed {seed}");
        assert_eq!(
            books.live_not_resident_bytes,
            asked - count(b'l'),
            "seed {seed}"
        );
        assert_eq!(books.resident_bytes, rss_bytes, "seed {seed}");
    }
}

/// What the report's windows say at one edge, by the site of the trace (none where it is not told
/// apart) and by cell: live, and acquired so far.
#[derive(Default)]
struct AtEdge {
    sites: BTreeMap<Option<u32>, [Sums; 2]>,
    cells: BTreeMap<(u32, u64, u64), u64>,
}

fn at_edge(report: &Report, edge: usize) -> AtEdge {
    let windows = report.windows.as_ref().unwrap();
    let mut units: Vec<[u64; 2]> = windows.cells.iter().map(|cell| [cell.start, 0]).collect();
    let to = match edge {
        0 => 0,
        edge => windows.bucket_ends[edge - 1] as usize,
    };
    for change in 0..to {
        let [live, ever] = &mut units[windows.changed_cell[change] as usize];
        *live = *live + windows.acquired[change] - windows.released[change];
        *ever += windows.acquired[change];
    }
    let mut at = AtEdge::default();
    for (cell, units) in windows.cells.iter().zip(units) {
        let node = cell
            .site
            .map(|site| trace_node(report, report.sites[site as usize].node));
        for (sums, units) in at.sites.entry(node).or_default().iter_mut().zip(units) {
            sums.blocks += units * cell.blocks;
            sums.requested += units * cell.size;
            sums.usable += units * cell.usable;
        }
        if cell.blocks == 1 && cell.usable > 0 {
            at.cells
                .insert((node.unwrap(), cell.size, cell.usable), units[0]);
        }
    }
    at
}

fn total<'a>(sums: impl Iterator<Item = &'a Sums>) -> Sums {
    let mut total = Sums::default();
    for one in sums {
        total.blocks += one.blocks;
        total.requested += one.requested;
        total.usable += one.usable;
    }
    total
}

/// Every edge against a replay of all events before it: the process, every stack that is told apart,
/// and every cell that is.
fn compare_windows(report: &Report, events: &[Event], seed: u64) {
    let windows = report.windows.as_ref().unwrap();
    let mut judge = Judge::default();
    let mut seen = 0;
    for (index, edge) in windows.edges.iter().enumerate() {
        for event in &events[seen..edge.events as usize] {
            judge.step(event);
        }
        seen = edge.events as usize;
        let at = at_edge(report, index);
        let context = format!("seed {seed} edge {index}");
        let live = total(at.sites.values().map(|[live, _]| live));
        assert_eq!(live, judge.sums(|_| true), "{context}");
        let ever = total(at.sites.values().map(|[_, ever]| ever));
        assert_eq!(ever, total(judge.ever.values()), "{context}: acquired");
        for (node, [live, ever]) in &at.sites {
            let Some(node) = node else { continue };
            let want = judge.sums(|held| held.node == *node);
            assert_eq!(*live, want, "{context} node {node}");
            let want = judge.ever.get(node).cloned().unwrap_or_default();
            assert_eq!(*ever, want, "{context} node {node}: acquired");
        }
        if windows.folded_cells == 0 {
            let mut want: BTreeMap<(u32, u64, u64), u64> = BTreeMap::new();
            for held in judge.holding() {
                *want.entry((held.node, held.size, held.usable)).or_default() += 1;
            }
            let lives = |(_, blocks): &(&(u32, u64, u64), &u64)| **blocks > 0;
            let got: Vec<_> = at.cells.iter().filter(lives).collect();
            assert_eq!(got, want.iter().collect::<Vec<_>>(), "{context}: cells");
        }
    }
}

/// Windows under limits that force nothing, merging, sizes to be counted together, and stacks; each
/// instant is an edge whatever happens.
#[test]
fn windows_agree_with_the_judge_whatever_was_merged() {
    let limits = |edges, changes| WindowLimits { edges, changes };
    let cases = [
        (WindowLimits::default(), [false, false]),
        (limits(160, 1 << 20), [false, false]),
        (limits(160, 3400), [true, false]),
        (limits(1024, 300), [true, true]),
    ];
    for seed in 40..=42u64 {
        let (events, marks) = trace(seed, 6000);
        let mut edges_before = usize::MAX;
        for (limits, folds) in cases {
            let options = Options {
                at: Some(At::Mark(marks[marks.len() / 2].name.clone())),
                windows: Some(limits),
                ..Options::default()
            };
            let report = analyse(&events, &marks, options);
            let windows = report.windows.as_ref().unwrap();
            compare_windows(&report, &events, seed);
            assert!(windows.edges.len() <= limits.edges + 1, "seed {seed}");
            let stacks = windows.cells.iter().any(|cell| cell.site.is_none());
            let folded = [windows.folded_cells > 0, stacks];
            assert_eq!(folded, folds, "seed {seed} {limits:?}");
            if limits.edges < 1024 && !folds[0] {
                assert!(windows.edges.len() < edges_before, "nothing was merged");
            }
            edges_before = windows.edges.len();
            for (index, instant) in report.instants.iter().enumerate() {
                let its: Vec<_> = windows
                    .edges
                    .iter()
                    .filter(|edge| edge.instants.contains(&(index as u32)))
                    .collect();
                assert_eq!(its.len(), 1, "seed {seed}: {} is one edge", instant.label);
                let before = events.iter().filter(|one| one.ticket <= instant.ticket);
                assert_eq!(its[0].events, before.count() as u64, "{}", instant.label);
            }
            let rising = |a: &WindowEdge, b: &WindowEdge| a.time_ns <= b.time_ns;
            assert!(windows.edges.is_sorted_by(rising), "seed {seed}");
        }
    }
}

/// The figures of windows do not change any other figure of the report.
#[test]
fn a_report_with_windows_is_the_same_report() {
    let (events, marks) = trace(50, 1500);
    let plain = analyse(&events, &marks, Options::default());
    let options = Options {
        windows: Some(WindowLimits::default()),
        ..Options::default()
    };
    let mut with = analyse(&events, &marks, options);
    assert!(with.windows.take().is_some() && plain.windows.is_none());
    assert_eq!(format!("{with:?}"), format!("{plain:?}"));
}
