//! Frames of Python: programs whose every holder is predicted by hand (tests/python), under each Python that is here.
//!
//! ```text
//!   holders.py ─► record ─► events of a way's size ─► innermost frame of Python ── function and line of "# HOLD way"
//!              └► prints way, size, count ──────────────────────────────────────┘
//! ```
//!
//! H1  Every way's blocks are counted: as many as it says, and each is at its function and line.
//! H2  What is refused has native frames as ever, and the report says why.
//!
//! Not here: tables of lines (symbols), chains made by hand (frames), which versions there should be.

mod java;
mod kinds;
mod objects;
mod others;
#[allow(dead_code)]
#[path = "../whole/report.rs"]
mod report;
#[allow(dead_code)]
#[path = "../whole/tool.rs"]
mod tool;
mod wheels;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use skinflint_symbols::{Frame, SymbolOptions, Symbols};
use skinflint_test_support::need;
use skinflint_trace::{EventKind, NodeId, Trace, code_of};
use tool::{Bench, root, run};

/// Returns the Pythons that are here, by minor version and micro version: by name, or those of pyenv.
fn pythons() -> BTreeMap<(u32, u32), PathBuf> {
    let mut all: Vec<PathBuf> = (9..16)
        .map(|minor| format!("python3.{minor}").into())
        .collect();
    all.push("/usr/bin/python3".into());
    if let Some(root) = said(Command::new("pyenv").arg("root")) {
        let versions = Path::new(&root).join("versions");
        let found = std::fs::read_dir(versions).into_iter().flatten().flatten();
        all.extend(found.map(|version| version.path().join("bin/python3")));
    }
    let mut found = BTreeMap::new();
    for python in all {
        let ask = "import sys; print(*sys.version_info[1:3], sys.executable)";
        let said = said(Command::new(python).args(["-I", "-c", ask]));
        let words: Vec<&str> = said.iter().flat_map(|said| said.splitn(3, ' ')).collect();
        if let [minor, micro, path] = words[..] {
            let number = |word: &str| word.parse().expect("a number");
            let version = (number(minor), number(micro));
            found.entry(version).or_insert_with(|| path.into());
        }
    }
    found
}

fn said(command: &mut Command) -> Option<String> {
    let output = command
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn is_known((minor, micro): (u32, u32)) -> bool {
    (9..=14).contains(&minor) && (minor, micro) != (11, 0)
}

fn holders() -> PathBuf {
    root().join("tests/python/holders.py")
}

/// Returns the line that a way is marked at.
fn line_of(way: &str) -> u32 {
    let text = std::fs::read_to_string(holders()).expect("the script");
    let mark = format!("# HOLD {way}");
    let at = text.lines().position(|line| line.ends_with(&mark));
    at.unwrap_or_else(|| panic!("no line for {way}")) as u32 + 1
}

/// Records the script. Returns what it printed: way, size, count.
fn record(bench: &Bench, python: &Path, malloc: bool) -> Vec<(String, u64, u64)> {
    let mut command = bench.recording(&[], [python.as_os_str(), holders().as_os_str()]);
    if malloc {
        command.env("PYTHONMALLOC", "malloc");
    }
    let ways = printed(command);
    assert!(ways.len() >= 20, "{ways:?}");
    ways
}

/// Runs a command that is to succeed. Returns what its script printed: way, size, count.
fn printed(command: Command) -> Vec<(String, u64, u64)> {
    let done = run(command);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    let parsed = |line: &str| {
        let mut words = line.split(' ');
        let way = words.next()?.to_owned();
        Some((
            way,
            words.next()?.parse().ok()?,
            words.next()?.parse().ok()?,
        ))
    };
    done.stdout.lines().filter_map(parsed).collect()
}

/// Returns the frames of Python on a stack, innermost first.
fn user_frames(trace: &Trace, symbols: &mut Symbols, mut node: NodeId) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some((parent, pc)) = trace.node(node).filter(|_| node.0 != 0) {
        if code_of(pc).is_some() {
            frames.extend(symbols.frames(pc, node.0, true));
        }
        node = parent;
    }
    frames
}

/// Calls `each` with the size of each acquisition, and its frames of Python.
fn each_acquisition(path: &Path, mut each: impl FnMut(u64, &[Frame])) {
    let trace = Trace::open(path).expect("a trace");
    let symbols = Symbols::new(&trace.modules, SymbolOptions::default());
    let mut symbols = symbols.with_codes(&trace.codes);
    trace.events().for_each(|event| {
        if let EventKind::Alloc { node, size, .. } = event.kind
            && size > 10_000
        {
            each(size, &user_frames(&trace, &mut symbols, node));
        }
    });
}

/// Returns the function that a way is in: what follows the last dot that is no class's is not its own name's.
fn is_in(frame: &Frame, way: &str, minor: u32) -> bool {
    // Before 3.11 a code has its own name alone; the line is each way's own.
    if minor <= 10 {
        return !frame.function.contains('.');
    }
    let function = frame.function.split(".<locals>").next().unwrap_or_default();
    let names: &[&str] = match way {
        "finally" => &["catches"],
        "awaited_later" => &["awaited"],
        // Before 3.12 a comprehension is a function of its own, and so is a lambda.
        "Store" => &["Store", "Store.<listcomp>"],
        "wrapper" => &["decorated"],
        other => &[other],
    };
    names.contains(&function)
}

/// Reports whether a frame is of what imports modules, which may happen to ask for the bytes of a way (3.14 does).
fn is_an_imports(frame: &Frame) -> bool {
    let file = frame.file.as_deref().unwrap_or_default();
    file.starts_with("<frozen importlib")
}

#[track_caller]
fn all_ways_are_named(trace: &Path, ways: &[(String, u64, u64)], minor: u32) {
    let mut right: BTreeMap<u64, u64> = BTreeMap::new();
    let mut wrong: Vec<String> = Vec::new();
    each_acquisition(trace, |size, frames| {
        let Some((way, ..)) = ways.iter().find(|(_, of, _)| *of == size) else {
            return;
        };
        let frame = frames.first();
        if frame.is_some_and(|frame| is_in(frame, way, minor) && frame.line == Some(line_of(way))) {
            *right.entry(size).or_default() += 1;
        } else if !frame.is_some_and(is_an_imports) {
            wrong.push(format!("{way}, line {}: {frame:?}", line_of(way)));
        }
    });
    for (way, size, count) in ways {
        let found = right.get(size).copied().unwrap_or(0);
        assert_eq!(found, *count, "{way}: {:#?}", &wrong[..wrong.len().min(8)]);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The text of a stack in the middle: the callers up to the module, in the order in which they called.
#[track_caller]
fn callers_are_in_order(trace: &Path) {
    let mut seen = [0; 3];
    each_acquisition(trace, |size, frames| {
        let names: Vec<&str> = frames.iter().map(|frame| frame.function.as_str()).collect();
        match size {
            10_102 => {
                // At depth d there are d calls of deep: none is missing, none doubled.
                assert!(names.len() > 2 && names[..names.len() - 2].iter().all(|n| *n == "deep"));
                assert_eq!(names[names.len() - 2..], ["main", "<module>"]);
                seen[0] = seen[0].max(names.len() - 2);
            }
            10_112 => {
                assert_eq!(names[names.len() - 2..], ["main", "<module>"]);
                assert!(names[..names.len() - 2].iter().all(|n| *n == "deep_in_c"));
                seen[1] = seen[1].max(names.len() - 2);
            }
            10_032 => {
                assert_eq!(names, ["generated_inside", "delegated", "main", "<module>"]);
                seen[2] += 1;
            }
            _ => {}
        }
    });
    assert_eq!(seen, [901, 40, 40]);
}

/// Codes at addresses that were used before are told apart: each made function has a line, or a name, of its own.
#[track_caller]
fn reused_codes_are_told_apart(trace: &Path) {
    let mut lines = Vec::new();
    each_acquisition(trace, |size, frames| {
        if size == 10_262 {
            let frame = frames.first().expect("a frame");
            assert_eq!(
                (&*frame.function, frame.file.as_deref()),
                ("again", Some("again.py"))
            );
            lines.push(frame.line.expect("a line"));
        }
    });
    assert_eq!(lines, (1..=40).collect::<Vec<u32>>());
    let mut names = Vec::new();
    each_acquisition(trace, |size, frames| {
        if size == 10_272 {
            names.push(
                frames
                    .first()
                    .map_or("", |frame| frame.function.as_str())
                    .to_owned(),
            );
        }
    });
    let wanted: Vec<String> = (0..40).map(|number| format!("again_{number}")).collect();
    assert_eq!(names, wanted);
}

#[test]
fn every_holder_has_its_function_and_line() {
    let pythons = pythons();
    let known = pythons.iter().filter(|(version, _)| is_known(**version));
    let known: Vec<_> = known.collect();
    if !need::that(
        !known.is_empty(),
        "Python 3.9 to 3.14",
        "apt-get install python3.11",
    ) {
        return;
    }
    for (version, python) in known {
        println!("Python 3.{version:?}");
        let bench = Bench::new();
        for malloc in [false, true] {
            let ways = record(&bench, python, malloc);
            let trace = bench.path("main.sft");
            all_ways_are_named(&trace, &ways, version.0);
            callers_are_in_order(&trace);
            reused_codes_are_told_apart(&trace);
            the_child_has_its_own(&bench);
        }
    }
}

/// The child of fork has a trace of its own, whose frames were copied anew.
#[track_caller]
fn the_child_has_its_own(bench: &Bench) {
    let folders = std::fs::read_dir(bench.path("")).expect("the bench");
    let folders = folders.flatten().filter(|entry| entry.path().is_dir());
    let inside = folders.flat_map(|folder| std::fs::read_dir(folder.path()).expect("a folder"));
    let traces = inside.flatten().map(|entry| entry.path());
    let traces: Vec<_> = traces
        .filter(|path| path.extension().is_some_and(|e| e == "sft"))
        .collect();
    let mut count = 0;
    for trace in &traces {
        each_acquisition(trace, |size, frames| {
            if size == 10_242 {
                let names: Vec<&str> = frames.iter().map(|frame| &*frame.function).collect();
                assert_eq!(names, ["in_child", "main", "<module>"]);
                assert_eq!(frames[0].line, Some(line_of("in_child")));
                count += 1;
            }
        });
        std::fs::remove_file(trace).expect("removed");
    }
    assert_eq!(count, 40, "{traces:?}");
}

#[test]
fn reports_and_exports_name_the_users_line() {
    let pythons = pythons();
    let Some((_, python)) = pythons.iter().find(|(version, _)| is_known(**version)) else {
        assert!(!need::that(
            false,
            "Python 3.9 to 3.14",
            "apt-get install python3.11"
        ));
        return;
    };
    let bench = Bench::new();
    record(&bench, python, false);
    let line = format!("holders.py:{}", line_of("plain"));
    let text = bench.tool(["report", "main.sft", "--full-stacks"]).stdout;
    assert!(
        text.lines()
            .any(|row| row.contains("plain") && row.contains(&line)),
        "{text}"
    );
    for (frames, user, native) in [
        ("user", true, false),
        ("native", false, true),
        ("both", true, true),
    ] {
        let text = bench
            .tool(["report", "main.sft", "--full-stacks", "--frames", frames])
            .stdout;
        assert_eq!(text.contains(&line), user, "{frames}: {text}");
        assert_eq!(
            text.contains("_PyEval_EvalFrameDefault"),
            native,
            "{frames}: {text}"
        );
    }
    for format in ["speedscope", "folded"] {
        let done = bench.tool(["export", "--format", format, "-o", "out", "main.sft"]);
        assert_eq!(done.status.code(), Some(0), "{done:#?}");
        let written = std::fs::read_to_string(bench.path("out")).expect("text");
        assert!(written.contains("generated_inside"), "{format}");
    }
}

#[test]
fn what_is_not_known_is_refused_aloud() {
    let pythons = pythons();
    let unknown = pythons.iter().find(|(version, _)| !is_known(**version));
    if !need::that(
        unknown.is_some(),
        "a Python before 3.9 or after 3.14",
        "pyenv install 3.8",
    ) {
        return;
    }
    let (_, python) = unknown.expect("one");
    let bench = Bench::new();
    let program = "held = [bytearray(100_000) for _ in range(99)]; print(len(held))";
    let done = bench.record([python.as_os_str(), "-c".as_ref(), program.as_ref()]);
    assert_eq!((done.status.code(), done.stdout.trim()), (Some(0), "99"));
    let trace = Trace::open(bench.path("main.sft")).expect("a trace");
    assert!(trace.codes.is_empty());
    assert!((0..trace.node_count()).all(|id| {
        trace
            .node(NodeId(id))
            .is_none_or(|(_, pc)| code_of(pc).is_none())
    }));
    let text = bench.tool(["report", "main.sft"]).stdout;
    assert!(text.contains("native frames only: Python"), "{text}");
}

/// Programs that are no Python, though they say so, run on, and lose nothing but frames.
#[test]
fn chains_that_contradict_their_version_end_the_reading_and_not_the_program() {
    let bench = Bench::new();
    let program = bench.path("wrong");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-rdynamic", "-o"]).arg(&program);
    cc.arg(root().join("tests/python/wrong.c"));
    assert_eq!(said(&mut cc).as_deref(), Some(""));
    let said = [
        ("frame", 0, "Python 3.11.2: a frame's address was none"),
        ("code", 0, "Python 3.11.2: a frame's code was none"),
        ("late", 2048, "Python 3.11.2: a frame's code was none"),
        ("right", 4096, ""),
    ];
    for (how, count, note) in said {
        let done = bench.record([program.as_os_str(), how.as_ref()]);
        assert_eq!(
            (done.status.code(), done.stdout.as_str()),
            (Some(0), "alive\n"),
            "{how}"
        );
        let trace = Trace::open(bench.path("main.sft")).expect("a trace");
        let symbols = Symbols::new(&trace.modules, SymbolOptions::default());
        let mut symbols = symbols.with_codes(&trace.codes);
        let (mut named, mut all) = (0, 0);
        trace.events().for_each(|event| {
            if let EventKind::Alloc { node, size, .. } = event.kind
                && (5000..5000 + 4096).contains(&size)
            {
                let frames = user_frames(&trace, &mut symbols, node);
                named += u32::from(matches!(&frames[..], [frame] if frame.function == "made"));
                assert!(frames.is_empty() || frames.len() == 1);
                all += 1;
            }
        });
        assert_eq!((named, all), (count, 4096), "{how}");
        let text = bench.tool(["report", "main.sft"]).stdout;
        assert!(text.contains(note), "{how}: {text}");
        assert_eq!(
            text.contains("native frames only"),
            !note.is_empty(),
            "{text}"
        );
    }
}
