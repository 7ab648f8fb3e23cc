//! Beside the recorder: both libraries preloaded, in either order.
//!
//! ```text
//!   program ─► recorder ─► skinflint          program ─► skinflint      (recorder sees no call)
//! ```
//!
//! B1  In front, the recorder sees every block, and the usable sizes are our allocator's.
//! B2  Behind, it sees none; the program runs all the same.

use crate::library::{contract, library};
use crate::report::number;
use crate::tool::{Bench, expected, program, recorder, run, run_within};

#[test]
fn the_recorder_in_front() {
    for name in [
        "family",
        "operators",
        "threads",
        "forks",
        "exceptions",
        "dl",
    ] {
        let bench = Bench::new();
        let library = library().display().to_string();
        let done = run(bench.recording(&["--preload", &library], [program(name)]));
        assert_eq!((done.shell_status(), &*done.stderr), (0, ""), "{name}");
        assert_eq!(done.stdout, expected(name), "{name}");
        let report = bench.report();
        report.is_complete();
        let allocator = report.text("program.allocator");
        assert!(allocator.starts_with("libskinflint.so"), "{allocator}");
    }
}

#[test]
fn recorded_usable_sizes_are_ours() {
    let bench = Bench::new();
    let ours = library().display().to_string();
    let alone = run(crate::library::on_ours(bench.command(program("usable"))));
    let done = run(bench.recording(&["--preload", &ours], [program("usable")]));
    assert_eq!(done.stdout, alone.stdout);
    let report = bench.report();
    let mut seen = 0;
    for line in alone.stdout.lines() {
        let (size, usable) = line.split_once(' ').expect("SIZE USABLE");
        let row = report.size(size.parse().expect("a size"));
        assert_eq!(number(row, "usable").to_string(), usable, "{size}");
        seen += 1;
    }
    assert_eq!(seen, 17);
}

/// Tests `skinflint record -- skinflint exec -- CMD`: exec keeps the recorder in front.
#[test]
fn recorded_by_way_of_exec() {
    let bench = Bench::new();
    let tool = crate::tool::SKINFLINT.to_owned();
    let target = program("family").display().to_string();
    let mut command = bench.recording(&[], [tool.as_str(), "exec", "--", &target]);
    command.env("SKINFLINT_ALLOCATOR", library());
    let done = run(command);
    assert_eq!(done.stdout, expected("family"), "{done:#?}");
    let traces = bench.traces();
    let on_ours = traces.iter().any(|trace| {
        let report = bench.report_at(trace, "end");
        report.text("program.name") == "family"
            && report
                .text("program.allocator")
                .starts_with("libskinflint.so")
    });
    assert!(on_ours, "{traces:?}");
}

#[test]
fn the_recorder_behind() {
    for path in [
        program("family"),
        contract("operators"),
        contract("forking"),
    ] {
        let bench = Bench::new();
        let alone = run_within(bench.command(&path), b"", crate::library::PATIENCE);
        let mut command = bench.command(&path);
        let list = format!("{}:{}", library().display(), recorder().display());
        command.env("LD_PRELOAD", list);
        let done = run_within(command, b"", crate::library::PATIENCE);
        assert_eq!((done.shell_status(), &*done.stderr), (0, ""), "{path:?}");
        assert_eq!(done.stdout, alone.stdout, "{path:?}");
    }
}

/// Tests modules that are bound past us, and a program with its own allocator: each block goes back where it came
/// from.
#[test]
fn programs_that_go_past_us() {
    for (name, argument) in [("deep", None), ("deep", Some("name")), ("ownheap", None)] {
        let bench = Bench::new();
        let command = || {
            let mut command = bench.command(program(name));
            command.args(argument);
            command.env(
                "LD_LIBRARY_PATH",
                program(name)
                    .parent()
                    .expect("a folder")
                    .display()
                    .to_string(),
            );
            command
        };
        let alone = run(command());
        assert_eq!(alone.stdout, expected(name), "{alone:#?}");
        let done = run(crate::library::on_ours(command()));
        assert_eq!((done.shell_status(), &*done.stderr), (0, ""), "{name}");
        assert_eq!(done.stdout, alone.stdout, "{name}");
    }
}
