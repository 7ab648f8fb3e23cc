//! `skinflint gc` on traces whose figures are worked out by hand, and on files that are no traces.
//!
//! ```text
//!   Writer, or a log as text ─► .sfo, .sft ─► skinflint gc --json ─► figures as computed below
//! ```
//!
//! I1  Every figure is computed here, never copied from an output.
//! I2  Every process is waited for within a bound.
//!
//! Not here: policies by themselves (`gc::policy`).

mod objects;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use skinflint_objects::{Info, Origin, Writer};

const PATIENCE: Duration = Duration::from_secs(240);

/// Runs the tool in a folder (I2).
fn tool(folder: &Path, words: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_skinflint"))
        .args(words)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(folder.join("out")).expect("a file"))
        .stderr(std::fs::File::create(folder.join("err")).expect("a file"))
        .spawn()
        .expect("the tool starts");
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if start.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            panic!("skinflint {words:?} took longer than {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(20)); // CLOCK: poll step of a bounded wait
    };
    Output {
        status,
        stdout: std::fs::read(folder.join("out")).expect("a file"),
        stderr: std::fs::read(folder.join("err")).expect("a file"),
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the figures of the only trace.
fn figures(folder: &Path, words: &[&str]) -> Value {
    let output = tool(folder, words);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    json[0].clone()
}

fn row<'a>(figures: &'a Value, policy: &str) -> &'a Value {
    let rows = figures["rows"].as_array().expect("rows");
    let found = rows.iter().find(|row| row["policy"] == policy);
    found.unwrap_or_else(|| panic!("no row of {policy}: {figures}"))
}

/// Writes a hundred objects of 104 bytes, every second of which dies, and one of 200,000.
fn write_sample(path: &Path) {
    let info = Info {
        program: "by hand".into(),
        source: "test".into(),
    };
    let mut writer = Writer::create(path, &info).expect("a file");
    let kind = writer.kind("leaf");
    for _ in 0..100 {
        writer.alloc(104, kind, Origin::Runtime);
    }
    writer.alloc(200_000, kind, Origin::Runtime);
    for id in (0..100).step_by(2) {
        writer.death(id);
    }
    writer.finish().expect("written");
}

#[test]
fn a_trace_worked_out_by_hand() {
    let folder = tempfile::tempdir().expect("a folder");
    write_sample(&folder.path().join("a.sfo"));
    let all = figures(
        folder.path(),
        &[
            "gc",
            "a.sfo",
            "--json",
            "--check",
            "--with",
            "many,tight",
            "--runs",
            "2",
        ],
    );
    assert_eq!(
        (&all["objects"], &all["bytes"]),
        (&100.into(), &10_400.into())
    );
    assert_eq!(
        (&all["peak_live_bytes"], &all["large_objects"]),
        (&10_400.into(), &1.into())
    );
    assert_eq!(all["missing"].as_array().expect("a list").len(), 0);
    for policy in ["legacy", "many", "tight"] {
        let row = row(&all, policy);
        // One page, one area, and the collection at the end.
        assert_eq!(row["committed_peak"], 262_144.0, "{policy}");
        assert_eq!(
            (&row["refills"], &row["collections"]),
            (&1.into(), &1.into()),
            "{policy}"
        );
        // Samples before and after the collection: 10,400 and 5,200 bytes are needed.
        assert_eq!(row["needed_mean"], 7_800.0, "{policy}");
        assert_eq!(row["committed_after"], 262_144.0, "{policy}");
        // 104 bytes each from the page's start: three of the kernel's pages.
        assert_eq!(row["resident_mean"], 12_288.0, "{policy}");
    }
    // Pages of 262,144 bytes with 6 classes of 56 bytes, with 46 of them, and with a byte.
    for (policy, tables) in [("legacy", 336.0), ("many", 2576.0), ("tight", 1.0)] {
        assert_eq!(
            row(&all, policy)["with_tables_mean"],
            262_144.0 + tables,
            "{policy}"
        );
    }
}

#[test]
fn a_malloc_trace_is_run_as_objects() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = "\
7 1 malloc(24)=#1
7 1 malloc(40)=#2
7 1 realloc(#1,100)=#3
7 1 free(#2)
";
    std::fs::write(folder.path().join("m.log"), log).expect("a file");
    let import = tool(folder.path(), &["import", "m.log", "-o", "m.sft"]);
    assert_eq!(import.status.code(), Some(0), "{}", said(&import));
    let all = figures(folder.path(), &["gc", "m.sft", "--json", "--with", "many"]);
    // 24, 40 and 104 (100 rounded up to words); 104 + 40 at most, since the first one dies before the third lives.
    assert_eq!((&all["objects"], &all["bytes"]), (&3.into(), &168.into()));
    assert_eq!(all["peak_live_bytes"], 144);
    let written = tool(folder.path(), &["gc", "m.sft", "--output", "m.sfo"]);
    assert!(
        said(&written).contains("3 allocations, 2 deaths"),
        "{}",
        said(&written)
    );
    let again = figures(folder.path(), &["gc", "m.sfo", "--json", "--with", "many"]);
    assert_eq!(
        again["rows"][1]["committed_mean"],
        all["rows"][1]["committed_mean"]
    );
    assert_eq!(again["peak_live_bytes"], 144);
    let fewer = ["--output", "n.sfo", "--max-objects", "2"];
    let written = tool(folder.path(), &[&["gc", "m.sft"], &fewer[..]].concat());
    assert!(
        said(&written).contains("2 allocations"),
        "{}",
        said(&written)
    );
    let made = ["gc", "--synthetic", "steady"];
    let written = tool(folder.path(), &[&made[..], &fewer[..]].concat());
    assert!(
        said(&written).contains("2 allocations, 0 deaths"),
        "{}",
        said(&written)
    );
}

#[test]
fn a_synthetic_trace_is_the_same_from_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let written = tool(
        folder.path(),
        &["gc", "--synthetic", "phases:9", "--output", "p.sfo"],
    );
    assert_eq!(written.status.code(), Some(0), "{}", said(&written));
    let words = [
        "--json",
        "--check",
        "--runs",
        "1",
        "--with",
        "many-origin",
        "--max-objects",
        "150000",
    ];
    let from_file = figures(folder.path(), &[&["gc", "p.sfo"], &words[..]].concat());
    let from_seed = figures(
        folder.path(),
        &[&["gc", "--synthetic", "phases:9"], &words[..]].concat(),
    );
    for key in [
        "committed_mean",
        "committed_peak",
        "needed_mean",
        "refills",
        "moved_bytes",
    ] {
        assert_eq!(
            row(&from_file, "many-origin")[key],
            row(&from_seed, "many-origin")[key],
            "{key}"
        );
    }
    assert_eq!(from_file["objects"], 150_000);
    let missing = from_file["missing"][0].as_str().expect("a sentence");
    assert!(missing.contains("first 150000 objects"), "{missing}");
}

#[test]
fn the_text_has_the_three_tables_and_what_changed() {
    let folder = tempfile::tempdir().expect("a folder");
    write_sample(&folder.path().join("a.sfo"));
    let output = tool(folder.path(), &["gc", "a.sfo", "a.sfo"]);
    let text = String::from_utf8(output.stdout.clone()).expect("text");
    for part in [
        "Duration (",
        "Space size (",
        "Collection (",
        "Better and worse",
        "many-origin",
        "full-pages",
        "Medians over 2 traces.",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("NaN"), "{text}");
}

#[test]
fn a_live_program_is_refused_what_only_traces_can_do_before_anything_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    std::fs::write(at.join("a.js"), "1").expect("a file");
    for (more, expected) in [
        (
            &["--compact", "sparse"][..],
            "--compact: objects of a live program do not move",
        ),
        (&["--purge"], "--purge: it is tried on traces only"),
        (
            &["--instructions"],
            "--instructions: they are counted of replays",
        ),
        (
            &["--output", "a.sfo"],
            "--output: a live program is recorded by",
        ),
        (
            &["--max-objects", "5"],
            "--max-objects: a live program runs to its end",
        ),
        (&["--synthetic", "steady"], "cannot be used with"),
        (&["--with", "best"], "there is no `best`"),
        (&["nowhere.js"], "nowhere.js: cannot be read"),
    ] {
        let words = [&["gc", "--live", "a.js"], more].concat();
        let output = tool(at, &words);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{words:?}: {}",
            said(&output)
        );
        assert!(
            said(&output).contains(expected),
            "{words:?}: {}",
            said(&output)
        );
    }
    // A folder that is named but has no host.
    let output = Command::new(env!("CARGO_BIN_EXE_skinflint"))
        .args(["gc", "--live", "a.js"])
        .current_dir(at)
        .env("SKINFLINT_JS", at)
        .output()
        .expect("the tool runs");
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(
        said(&output).contains("skinflint-js: its folder is named by SKINFLINT_JS"),
        "{}",
        said(&output)
    );
}

#[test]
fn wrong_use_and_what_is_no_trace_say_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    write_sample(&at.join("a.sfo"));
    std::fs::write(at.join("text.sfo"), "hello").expect("a file");
    std::fs::write(at.join("empty.sfo"), "").expect("a file");
    let whole = std::fs::read(at.join("a.sfo")).expect("a file");
    std::fs::write(at.join("cut.sfo"), &whole[..whole.len() - 20]).expect("a file");
    for (words, status, expected) in [
        (&["gc"][..], 2, "TRACE"),
        (&["gc", "a.sfo", "--with", "best"], 2, "there is no `best`"),
        (&["gc", "a.sfo", "--growth", "1"], 2, "--growth 1: a factor"),
        (
            &["gc", "a.sfo", "--heap-limit", "1K"],
            2,
            "from 256K to 16G",
        ),
        (&["gc", "--synthetic", "wild"], 2, "--synthetic wild: SHAPE"),
        (
            &["gc", "--synthetic", "steady:1:100"],
            2,
            "a share from 1 to 99",
        ),
        (&["gc", "text.sfo"], 1, "text.sfo is not an object trace"),
        (&["gc", "empty.sfo"], 1, "empty.sfo is not an object trace"),
        (&["gc", "nowhere.sfo"], 1, "cannot read nowhere.sfo"),
        (&["gc", "cut.sfo"], 0, "cut.sfo: at byte"),
    ] {
        let output = tool(at, words);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{words:?}: {}",
            said(&output)
        );
        assert!(
            said(&output).contains(expected),
            "{words:?}: {}",
            said(&output)
        );
    }
}
