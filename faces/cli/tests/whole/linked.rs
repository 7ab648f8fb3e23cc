//! Allocators that programs are linked with, and that export no malloc: found by symbol, hooked at their functions.
//!
//! ```text
//!   linked ─► mi_malloc ─ jmp ─► recorder ─► mi_malloc      the program counts for itself, and its head predicts
//! ```
//!
//! L1  The program's own count of blocks and bytes is the report's.
//! L2  What cannot be hooked is told, with the reason, and the program is as it was.
//!
//! Not here: mimalloc and jemalloc themselves (tests/linked), libraries as packages have them (tests/python/wheels.rs).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::programs::recorded;
use crate::report::{Report, number};
use crate::tool::{Bench, root, run, run_within};

/// Returns the live blocks and their usable bytes at the end.
fn live(report: &Report) -> (u64, u64) {
    let sizes = report.list("sizes").iter();
    let rows = sizes.map(|row| {
        let blocks = number(row, "live_blocks");
        (blocks, blocks * number(row, "usable"))
    });
    rows.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

#[test]
fn blocks_of_a_linked_allocator_are_recorded_to_the_byte() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let bench = Bench::new();
    let report = recorded(&bench, "linked");
    report.is_complete();
    assert_eq!(report.text("program.allocator"), "mimalloc (linked)");
    let predicted = [
        (97, 1000, 600),
        (130, 50, 50),
        (200, 10, 0),
        (5000, 10, 0),
        (9000, 10, 10),
        (333, 100, 0),
        (144, 1, 1),
    ];
    for (size, all, live) in predicted {
        assert_eq!(report.blocks_of(size), (all, live), "blocks of {size}");
    }
    assert_eq!(report.some_of(77), (0, 0), "the child's");
    assert_eq!(report.some_of(1 << 41), (0, 0), "refused");
    for (size, usable) in [(97, 128), (130, 192), (9000, 9024), (144, 192)] {
        assert_eq!(number(report.size(size), "usable"), usable, "{size}");
    }
    // L1: beside the C library's own, which are of the sizes that it likes.
    let ours = [97, 130, 9000, 144].map(|size| {
        let row = report.size(size);
        (number(row, "live_blocks"), number(row, "usable"))
    });
    let sum = ours
        .iter()
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.0 * one.1));
    assert_eq!(sum, (661, 600 * 128 + 50 * 192 + 10 * 9024 + 192));
    assert!(live(&report).0 >= 661);
    // Stacks begin at the caller.
    assert_eq!(report.sum_at("load", "allocations"), 1000);
    assert_eq!(report.sum_at("zeroed", "allocations"), 50);
    assert_eq!(report.sum_at("mi_zalloc", "allocations"), 0);
    let counted = "3 calls of mi_heap_destroy were not recorded";
    assert!(
        report.notes().iter().any(|note| note.starts_with(counted)),
        "{:?}",
        report.notes()
    );
    // What it maps is its own, and no heap that cannot be looked into.
    assert_eq!(report.list("own_heaps"), [] as [serde_json::Value; 0]);
    assert_eq!(report.number("completeness.unrecorded_calls"), 0);
}

/// Builds the program with other options, and records it.
fn built(bench: &Bench, name: &str, options: &[&str]) -> (PathBuf, Report) {
    let program = bench.path(name);
    let source = root().join("tests/programs/linked.c");
    let mut gcc = Command::new("gcc");
    gcc.args(["-g", "-O2", "-pthread"]).args(options);
    gcc.arg("-o").arg(&program).arg(source);
    let done = run(gcc);
    assert!(done.status.success(), "{done:#?}");
    let alone = run(bench.command(&program));
    let done = bench.record([&program]);
    assert_eq!(done.stdout, alone.stdout, "{done:#?}");
    assert_eq!(done.status, alone.status, "{done:#?}");
    (program, bench.report())
}

fn has_blocks(report: &Report) -> bool {
    report.some_of(97) == (1000, 600) && report.some_of(333) == (100, 0)
}

/// Position-dependent programs lie low, where less is free near by; `endbr64` stays at the beginning.
#[test]
fn programs_of_other_kinds_are_hooked_too() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let kinds: [&[&str]; 5] = [
        &["-no-pie", "-fno-pie"],
        &["-fcf-protection=full"],
        &["-fno-omit-frame-pointer", "-O0"],
        &["-Os"],
        &["-fstack-protector-all", "-Wl,-z,separate-code"],
    ];
    for options in kinds {
        let bench = Bench::new();
        let (_, report) = built(&bench, "linked", options);
        assert!(has_blocks(&report), "{options:?}: {:?}", report.notes());
        report.is_complete();
    }
}

/// The symbols may be in a file of their own, found by build id below the process's root: here as the file itself says.
#[test]
fn a_stripped_program_is_left_alone() {
    let bench = Bench::new();
    let (_, report) = built(&bench, "linked", &["-s"]);
    assert!(!has_blocks(&report));
    assert!(report.text("program.allocator").starts_with("glibc"));
}

#[test]
fn what_cannot_be_hooked_is_told_with_the_reason() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let bench = Bench::new();
    // Local functions: as after optimisation of the whole program.
    let (program, _) = built(&bench, "linked", &[]);
    localize(&program);
    let done = bench.record([&program]);
    assert!(done.status.success(), "{done:#?}");
    let report = bench.report();
    assert!(!has_blocks(&report));
    let told = report.notes().iter().any(|note| {
        note.contains("blocks of mimalloc, which the program is linked with, are not recorded")
            && note.contains("(LTO)")
    });
    assert!(told, "{:#?}", report.notes());
    let shown = bench.tool(["report", "main.sft"]);
    assert!(
        shown.stdout.contains("blocks of mimalloc"),
        "{}",
        shown.stdout
    );
}

fn localize(program: &Path) {
    let mut objcopy = Command::new("objcopy");
    objcopy
        .args(["--wildcard", "--localize-symbol=mi_*"])
        .arg(program);
    let done = run(objcopy);
    assert!(
        done.status.success(),
        "objcopy, of the package binutils: {done:#?}"
    );
}

/// Programs of Rust on the crates mimalloc and tikv-jemallocator: what lives at the end, by their own statistics (L1). The
/// crates compile C for a minute.
#[test]
fn allocators_that_crates_bring_are_exact_by_their_own_statistics() {
    if !cfg!(target_arch = "x86_64") || std::env::var_os("SKINFLINT_LONG").is_none() {
        return;
    }
    let target = root().join("target/linked");
    let mut cargo = Command::new("cargo");
    cargo.args([
        "build",
        "--release",
        "--locked",
        "--quiet",
        "--manifest-path",
    ]);
    cargo.arg(root().join("tests/linked/Cargo.toml"));
    cargo.arg("--target-dir").arg(&target);
    let built = run_within(cargo, b"", Duration::from_secs(1200));
    assert!(built.status.success(), "{built:#?}");
    for (name, allocator) in [("on_mimalloc", "mimalloc"), ("on_jemalloc", "jemalloc")] {
        let bench = Bench::new();
        let program = target.join("release").join(name);
        let done = bench.record([&program]);
        assert!(done.status.success(), "{done:#?}");
        let report = bench.report_at("main.sft", "end");
        report.is_complete();
        assert_eq!(
            report.text("program.allocator"),
            format!("{allocator} ({name})")
        );
        // The C library's own blocks are its own: those that a function of its files asked for.
        let own = report.sites().iter().filter(|site| {
            let frames = report.frames(number(site, "node"));
            frames.first().is_some_and(|frame| frame.1 == name)
        });
        let sum = own.fold((0, 0), |sum, site| {
            let (blocks, bytes) = (number(site, "end_blocks"), number(site, "end_usable_bytes"));
            (sum.0 + blocks, sum.1 + bytes)
        });
        let said = format!("blocks {} bytes {}\n", sum.0, sum.1);
        assert_eq!(done.stdout, said, "{name}");
        assert!(sum.0 > 1000, "{name}: {sum:?}");
        assert_eq!(report.list("own_heaps"), [] as [serde_json::Value; 0]);
    }
}

/// Opens the library that is named, lets it work, and closes it; again as often as is said. Without a name: it is linked with it.
const HOST: &str = r#"
#include <dlfcn.h>
#include <stdlib.h>
int run_linked(void);
#ifdef OPENS
int main(int count, char **names)
{
    for (int times = atoi(names[2]); times > 0; times--) {
        void *library = dlopen(names[1], RTLD_NOW | RTLD_LOCAL);
        int (*run)(void) = library ? (int (*)(void))dlsym(library, "run_linked") : 0;
        if (!run || run() != 0 || dlclose(library) != 0)
            return 1;
    }
    return count != 3;
}
#else
int main(void) { return run_linked(); }
#endif
"#;

fn compiled(options: &[&str], from: &Path, to: &Path) {
    let mut gcc = Command::new("gcc");
    gcc.args(["-g", "-O2", "-pthread"]).arg(from).args(options);
    gcc.arg("-o").arg(to);
    let done = run(gcc);
    assert!(done.status.success(), "{done:#?}");
}

/// Builds the library, with the names of its allocator kept from other files as libraries of Rust have them, and returns it
/// with a program that opens it and one that is linked with it.
fn library(bench: &Bench, options: &[&str]) -> [PathBuf; 3] {
    let [library, opens, linked, host] =
        ["liblinked.so", "opens", "linked-with", "host.c"].map(|name| bench.path(name));
    let names = bench.path("names.map");
    std::fs::write(&names, "{ global: run_linked; local: *; };").expect("written");
    std::fs::write(&host, HOST).expect("written");
    let script = format!("-Wl,--version-script={}", names.display());
    let mut all = vec![
        "-shared",
        "-fPIC",
        "-DLIBRARY",
        "-Wl,-soname,liblinked.so",
        &script,
    ];
    all.extend(options);
    compiled(&all, &root().join("tests/programs/linked.c"), &library);
    compiled(&["-DOPENS"], &host, &opens);
    let folder = library.parent().expect("a folder").display().to_string();
    let found = [format!("-L{folder}"), format!("-Wl,-rpath,{folder}")];
    let with = [found[0].as_str(), &found[1], "-l:liblinked.so"];
    compiled(&with, &host, &linked);
    [library, opens, linked]
}

/// A library that is opened, used, closed and opened again, and the same with a program that is linked with it: all blocks are
/// there, those of its constructors, too (L1).
#[test]
fn allocators_of_libraries_are_recorded_from_their_constructors_on() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let bench = Bench::new();
    let [library, opens, linked] = library(&bench, &[]);
    let twice: Vec<std::ffi::OsString> = vec![opens.into(), library.into(), "2".into()];
    for (command, times) in [(twice, 2), (vec![linked.into()], 1)] {
        let mut alone = bench.command(&command[0]);
        alone.args(&command[1..]);
        let alone = run(alone);
        let says = "linked: 668 blocks, 177280 bytes\n".repeat(times as usize);
        assert_eq!(
            (alone.status.code(), alone.stdout.as_str()),
            (Some(0), says.as_str())
        );
        let done = bench.record(&command);
        assert_eq!((&done.stdout, &done.stderr), (&alone.stdout, &alone.stderr));
        assert_eq!(done.status, alone.status);
        let report = bench.report();
        report.is_complete();
        let notes = report.notes();
        let told = "blocks of mimalloc in liblinked.so are recorded, too";
        assert!(notes.contains(&told), "{notes:?}");
        assert!(report.text("program.allocator").starts_with("glibc"));
        let predicted = [
            (55, 7, 7),
            (97, 1000, 600),
            (130, 50, 50),
            (200, 10, 0),
            (9000, 10, 10),
            (333, 100, 0),
            (144, 1, 1),
        ];
        for (size, all, live) in predicted {
            let some = report.some_of(size);
            assert_eq!(
                some,
                (all * times, live * times),
                "blocks of {size}, {command:?}"
            );
        }
        assert_eq!(report.some_of(77), (0, 0), "the child's");
        for (size, usable) in [(55, 64), (97, 128), (9000, 9024)] {
            assert_eq!(number(report.size(size), "usable"), usable, "{size}");
        }
        assert_eq!(report.sum_at("load", "allocations"), 1000 * times);
        assert_eq!(report.sum_at("begins", "allocations"), 7 * times);
        let counted = format!("{} calls of mi_heap_destroy were not recorded", 3 * times);
        assert!(
            notes.iter().any(|note| note.starts_with(&counted)),
            "{notes:?}"
        );
        assert_eq!(report.list("own_heaps"), [] as [serde_json::Value; 0]);
        assert_eq!(report.number("completeness.unrecorded_calls"), 0);
    }
}

/// Stripped of its symbols, the library is as it was, and the first screen says which it is, what it holds, and what to do (L2).
#[test]
fn a_library_whose_allocator_has_no_names_is_told() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let bench = Bench::new();
    let [library, opens, _] = library(&bench, &["-s", "-DSAYS=\"mimalloc: out of memory\""]);
    let program = [opens.as_os_str(), library.as_os_str(), "1".as_ref()];
    let done = bench.record(program);
    assert_eq!(
        done.stdout, "linked: 668 blocks, 177280 bytes\n",
        "{done:#?}"
    );
    let report = bench.report();
    assert_eq!(report.some_of(97), (0, 0));
    let heaps = report.list("own_heaps");
    assert_eq!(heaps.len(), 1, "{heaps:#?}");
    let shown = bench.tool(["report", "main.sft"]);
    let first: Vec<&str> = shown.stdout.lines().take(60).collect();
    let first = first
        .join(" ")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    for words in [
        "blocks of mimalloc in liblinked.so are not recorded: the file is stripped of the symbols",
        "liblinked.so brings an allocator of its own (mimalloc)",
        "use a build of the library that keeps its symbols",
    ] {
        assert!(first.contains(words), "{words}: {first}");
    }
}
