//! Small objects of Python (tests/python/objects.py), under each Python that is here.
//!
//! ```text
//!   objects.py ─► record --python-objects ─► replayed: address ─► block ─┬─ each way: line, size, how many live
//!   objects.py, not recorded ─► blocks in use by class, as Python counts ──┴─ of arenas: the same number in each class
//! ```
//!
//! J1  No two blocks live at one address, and each release is of a block that lives: the allocator's own blocks, and those
//!     that it took from malloc, are all told apart.
//!
//! Python's own count is asked in a run of its own: with other functions in its tables it gives none.
//!
//! Not here: arenas by address (frames), the books of an arena (analysis).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use skinflint_symbols::{SymbolOptions, Symbols};
use skinflint_test_support::need;
use skinflint_trace::{EventKind, NodeId, Trace, is_arena};

use crate::report::{list, number, text};
use crate::tool::{Bench, Done, root, run};
use crate::{is_known, pythons, user_frames};

/// The least version whose objects are recorded, as a minor version of 3.
const LEAST: u32 = 8;

/// Returns the Pythons whose objects are recorded. None is a test that did not run, and is counted as such.
pub fn recordable() -> BTreeMap<(u32, u32), PathBuf> {
    let mut all = pythons();
    all.retain(|version, _| version.0 >= LEAST);
    let _ = need::that(
        !all.is_empty(),
        "Python 3.8 or later",
        "apt-get install python3",
    );
    all
}

/// What lived at the end of a trace.
#[derive(Default)]
struct Lived {
    /// Of blocks in arenas, by address: stack, requested and usable bytes.
    objects: BTreeMap<u64, (NodeId, u64, u64)>,
    /// Of other blocks.
    others: BTreeMap<u64, (NodeId, u64, u64)>,
    arenas: BTreeMap<u64, u64>,
    /// Acquisitions where a block lived, and releases of none (J1).
    doubled: u64,
    unknown: u64,
}

impl Lived {
    fn is_of_arena(&self, at: u64) -> bool {
        let last = self.arenas.range(..=at).next_back();
        last.is_some_and(|(_, end)| at < *end)
    }

    fn acquired(&mut self, at: u64, block: (NodeId, u64, u64)) {
        let into = match self.is_of_arena(at) {
            true => &mut self.objects,
            false => &mut self.others,
        };
        self.doubled += u64::from(into.insert(at, block).is_some());
    }

    fn released(&mut self, at: u64) {
        let known = self.objects.remove(&at).or_else(|| self.others.remove(&at));
        self.unknown += u64::from(known.is_none());
    }

    fn of(trace: &Trace) -> Lived {
        let mut lived = Lived::default();
        let mut parked = BTreeMap::new();
        trace.events().for_each(|event| match event.kind {
            EventKind::Alloc {
                node,
                addr,
                size,
                usable,
                ..
            } => lived.acquired(addr, (node, size, usable)),
            EventKind::Free { addr, .. } => lived.released(addr),
            EventKind::ReallocRelease { addr } => {
                let block = lived.objects.remove(&addr);
                let block = block.or_else(|| lived.others.remove(&addr));
                lived.unknown += u64::from(block.is_none());
                // The second half comes before another heap event of the thread (trace::event.E2).
                assert_eq!(parked.insert(event.thread, (addr, block)), None);
            }
            EventKind::ReallocAcquire {
                node,
                addr,
                size,
                usable,
            } => {
                assert!(parked.remove(&event.thread).is_some());
                lived.acquired(addr, (node, size, usable));
            }
            EventKind::ReallocCancel { .. } => {
                if let Some((addr, Some(block))) = parked.remove(&event.thread) {
                    lived.acquired(addr, block);
                }
            }
            EventKind::Map {
                addr, len, flags, ..
            } if is_arena(flags) => {
                lived.arenas.insert(addr, addr + len);
            }
            EventKind::Unmap { addr, .. } => {
                lived.arenas.remove(&addr);
            }
            _ => {}
        });
        lived
    }

    /// Returns the live objects by usable size.
    fn by_class(&self) -> BTreeMap<u64, i64> {
        let mut classes = BTreeMap::new();
        for (_, _, usable) in self.objects.values() {
            *classes.entry(*usable).or_insert(0) += 1;
        }
        classes
    }
}

/// Returns the blocks in use by size, as `sys._debugmallocstats` has printed them.
fn in_use(stats: &str) -> BTreeMap<u64, i64> {
    let rows = stats.lines().filter_map(|line| {
        let words: Result<Vec<i64>, _> = line.split_whitespace().map(str::parse).collect();
        match words.ok()?[..] {
            [_, size, _, used, _] => Some((size as u64, used)),
            _ => None,
        }
    });
    rows.filter(|(_, used)| *used != 0).collect()
}

/// Records the script with small objects.
fn record(bench: &Bench, python: &Path, env: &[(&str, &str)], arguments: &[&str]) -> Done {
    let script = root().join("tests/python/objects.py");
    let command = [python.as_os_str(), script.as_os_str()];
    let arguments = arguments.iter().map(|argument| argument.as_ref());
    let mut command = bench.recording(&["--python-objects"], command.into_iter().chain(arguments));
    command.envs(env.iter().copied());
    let done = run(command);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    done
}

fn line_of(way: &str) -> u32 {
    let script = root().join("tests/python/objects.py");
    let text = std::fs::read_to_string(script).expect("the script");
    let mark = format!("# HOLD {way}");
    let at = text.lines().position(|line| line.ends_with(&mark));
    at.unwrap_or_else(|| panic!("no line for {way}")) as u32 + 1
}

/// Checks what lived of each way that the script has printed.
#[track_caller]
fn ways_lived(trace: &Trace, lived: &Lived, stdout: &str, is_named: bool) {
    let symbols = Symbols::new(&trace.modules, SymbolOptions::default());
    let mut symbols = symbols.with_codes(&trace.codes);
    let mut is_at = BTreeMap::new();
    let mut ways = 0;
    for row in stdout.lines() {
        let words: Vec<&str> = row.split(' ').collect();
        let [way, size, count] = words[..] else {
            continue;
        };
        let [size, count] = [size, count].map(|word| word.parse::<u64>().expect("a number"));
        let blocks = lived.objects.values().filter(|block| block.1 == size);
        let mut own = 0;
        for (node, _, usable) in blocks {
            assert_eq!(*usable, size.next_multiple_of(16), "{way}");
            let here = is_at.entry((*node, way)).or_insert_with(|| {
                let frames = user_frames(trace, &mut symbols, *node);
                let inner = frames.iter().find(|frame| !frame.function.contains('<'));
                let is_its = |frame: &skinflint_symbols::Frame| {
                    frame
                        .file
                        .as_deref()
                        .is_some_and(|file| file.ends_with("objects.py"))
                        && frame.line == Some(line_of(way))
                };
                !is_named || frames.iter().any(is_its) && inner.is_some()
            });
            own += u64::from(*here);
        }
        // Others may have blocks of this size: where there are no frames, they cannot be told apart.
        match is_named {
            true => assert_eq!(own, count, "{way}"),
            false => assert!((count..count + 200).contains(&own), "{way}: {own}"),
        }
        ways += 1;
    }
    assert_eq!(ways, 5, "{stdout}");
}

#[test]
fn every_small_object_is_a_block_of_its_line() {
    for (version, python) in recordable() {
        println!("Python 3.{version:?}");
        let bench = Bench::new();
        let done = record(&bench, &python, &[], &[]);
        let trace = Trace::open(bench.path("main.sft")).expect("a trace");
        let lived = Lived::of(&trace);
        assert_eq!((lived.doubled, lived.unknown), (0, 0), "J1");
        ways_lived(&trace, &lived, &done.stdout, is_known(version));
        let mut plain = bench.command(&python);
        plain.arg(root().join("tests/python/objects.py"));
        let plain = run(plain);
        assert_eq!(plain.stdout, done.stdout);
        let (ours, theirs) = (lived.by_class(), in_use(&plain.stderr));
        assert!(theirs.len() > 20, "{}", plain.stderr);
        // Hashes of texts, and so tables of dictionaries, are not the same in two runs.
        for (size, used) in &theirs {
            let found = ours.get(size).copied().unwrap_or(0);
            let differ = (found - used).unsigned_abs();
            assert!(differ <= 100, "{size}: {found}, not {used}");
        }
    }
}

/// The allocator with wrappers in front of ours and behind ours, and without arenas.
#[test]
fn wrappers_and_other_allocators_are_borne() {
    let pythons = recordable();
    let known: Vec<_> = pythons.iter().collect();
    // The oldest and the newest.
    let ends = known
        .first()
        .into_iter()
        .chain(known.last().filter(|_| known.len() > 1));
    for (version, python) in ends {
        for (name, value) in [
            ("PYTHONMALLOC", "debug"),
            ("PYTHONMALLOC", "pymalloc"),
            ("PYTHONMALLOC", "malloc"),
            ("PYTHONDEVMODE", "1"),
            ("PYTHONTRACEMALLOC", "3"),
            ("PYTHONPROFILEIMPORTTIME", "1"),
        ] {
            println!("Python 3.{version:?}, {name}={value}");
            let bench = Bench::new();
            record(&bench, python, &[(name, value)], &["end", "fork"]);
            let trace = Trace::open(bench.path("main.sft")).expect("a trace");
            let lived = Lived::of(&trace);
            // Objects that were made before the debug hooks were there are not known.
            let before = if value == "malloc" { 0 } else { 16 };
            assert!(
                lived.doubled == 0 && lived.unknown <= before,
                "{}",
                lived.unknown
            );
        }
    }
}

/// The books of a run, and its child's.
#[test]
fn the_books_divide_arenas() {
    let pythons = pythons();
    let known = pythons.iter().find(|(version, _)| is_known(**version));
    if !need::that(
        known.is_some(),
        "Python 3.11, 3.12 or 3.13",
        "apt-get install python3.11",
    ) {
        return;
    }
    let (_, python) = known.expect("one");
    let bench = Bench::new();
    record(&bench, python, &[], &["end", "fork"]);
    let report = bench.report_at("main.sft", "peak");
    let at = number(&report.0, "at") as usize;
    let books = &list(&report.0, "instants")[at]["books"];
    let rows = list(books, "rows");
    let bytes = |id: &str| {
        let row = rows.iter().find(|row| text(row, "id") == id);
        number(
            row.unwrap_or_else(|| panic!("no row {id}: {rows:#?}")),
            "bytes",
        )
    };
    let sum: u64 = rows.iter().map(|row| number(row, "bytes")).sum();
    assert_eq!(sum, number(books, "resident_bytes"));
    // 100,000 of 280 bytes at the peak, beside 5,000 each of 200 and 224, 2,500 of 248 and 20,000 of 264.
    let planted = 100_000 * 280 + 5_000 * (200 + 224) + 2_500 * 248 + 20_000 * 264;
    assert!(bytes("live") > planted, "{rows:#?}");
    assert!(bytes("arena-free") < planted / 4, "{rows:#?}");
    let heap = bytes("allocator-free") + bytes("heap-unseen");
    assert!(heap < planted / 4, "{rows:#?}");
    // No allocator would have to hold them.
    let what_if = bench.tool(["what-if", "main.sft", "--with", "glibc"]);
    assert!(
        what_if.stderr.contains("without --python-objects"),
        "{what_if:#?}"
    );
}
