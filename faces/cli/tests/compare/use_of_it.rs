//! The command line: options that do not go together, and what is reported before anything runs.

use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::tool::{self, Bench};
use crate::{command, compare, made};

#[track_caller]
fn refused(arguments: &[&str], texts: &[&str]) {
    ends_with(2, arguments, texts);
}

#[track_caller]
fn ends_with(status: i32, arguments: &[&str], texts: &[&str]) {
    let bench = Bench::new();
    let done = compare(&bench, arguments);
    done.says(status, texts);
    assert_eq!(done.stdout, "", "{done:#?}");
}

#[test]
fn wrong_use_names_the_option_and_the_next_step() {
    refused(&[], &["nothing to compare", "skinflint compare app.sft"]);
    refused(&["a.sft", "--", "ls"], &["traces and a program"]);
    refused(&["--paced", "1", "--", "ls"], &["--paced is for traces"]);
    refused(&["--input", "x", "a.sft"], &["--input is for programs"]);
    refused(
        &["--ignore-output", "a.sft"],
        &["--ignore-output is for programs"],
    );
    refused(&["--input", "/no/such", "--", "ls"], &["--input /no/such"]);
    refused(&["--timeout", "0", "--", "ls"], &["--timeout 0"]);
    refused(&["--idle=-1", "--", "ls"], &["--idle -1"]);
    refused(&["--idle", "0.01", "--", "ls"], &["0.1 or more"]);
    refused(&["--paced", "nan", "a.sft"], &["--paced NaN"]);
    refused(&["--runs", "0", "--", "ls"], &["--runs"]);
    refused(
        &["--html", "/no/such/folder/a.html", "--", "ls"],
        &["/no/such/folder/a.html"],
    );
    refused(
        &["--with", "glibc,,own", "--", "ls"],
        &["--with: a name is empty"],
    );
    refused(
        &["--json", "-", "--csv", "-", "--", "ls"],
        &["stdout (-) can take one"],
    );
    // As a shell says it.
    ends_with(127, &["--", "no-such-program-here"], &["check the name"]);
    refused(
        &["--ref", "jemaloc", "--", "ls"],
        &["--ref jemaloc", "jemalloc, mimalloc"],
    );
    refused(
        &["--ref", "rpmalloc", "--", "ls"],
        &["--ref rpmalloc", "cargo xtask peers"],
    );
}

#[test]
fn the_reference_comes_first_and_is_added_if_need_be() {
    let bench = Bench::new();
    let bump = made("libbump.so").display().to_string();
    let found = crate::compared(
        &bench,
        &[
            "--runs",
            "1",
            "--with",
            "glibc,skinflint",
            "--ref",
            &bump,
            "--",
            "ls",
        ],
    );
    let names: Vec<&str> = found.json["allocators"]
        .as_array()
        .expect("allocators")
        .iter()
        .map(|allocator| allocator["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, ["libbump.so", "glibc", "skinflint"]);
    assert_eq!(found.json["settings"]["reference"], "libbump.so");
}

#[test]
fn stdin_is_a_file_or_nothing() {
    let bench = Bench::new();
    std::fs::write(bench.path("words"), "one\ntwo\n").expect("written");
    let script = "test \"$(wc -l)\" = 2";
    let with_file = [
        "--runs", "1", "--with", "glibc", "--input", "words", "--", "sh", "-c", script,
    ];
    let found = crate::compared(&bench, &with_file);
    assert!(!found.text.contains("exit status"), "{}", found.text);
    // Our own stdin is not the program's.
    let without = ["--quiet", "--runs", "1", "--with", "glibc", "--", "cat"];
    let done = tool::run_within(command(&bench, &without), b"not for cat", crate::PATIENCE);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
}

/// SIGINT ends the run and what it started; what was measured is shown, and the status says why. It comes twice at
/// once, as from `timeout`, which signals its child and then its group.
#[test]
fn an_interruption_ends_the_program_too() {
    let bench = Bench::new();
    // A time that no other run has.
    let time = format!("600.{}", std::process::id());
    let mut command = command(
        &bench,
        &[
            "--runs",
            "1",
            "--with",
            "glibc",
            "--",
            "sh",
            "-c",
            &format!("sleep {time} & sleep {time}; wait"),
        ],
    );
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("started");
    let sleeps = || {
        let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
        let is_ours = |cmdline: &[u8]| cmdline == format!("sleep\0{time}\0").as_bytes();
        processes
            .filter(|entry| {
                std::fs::read(entry.path().join("cmdline")).is_ok_and(|text| is_ours(&text))
            })
            .count()
    };
    let begun = Instant::now();
    while sleeps() < 2 && begun.elapsed() < crate::PATIENCE {
        std::thread::sleep(Duration::from_millis(5)); // CLOCK: poll step of a bounded wait
    }
    assert_eq!(sleeps(), 2);
    tool::signal(child.id() as i32, libc::SIGINT);
    tool::signal(child.id() as i32, libc::SIGINT);
    let mut text = String::new();
    let mut stdout = child.stdout.take().expect("piped");
    stdout.read_to_string(&mut text).expect("UTF-8");
    let status = child.wait().expect("ended");
    assert_eq!(status.code(), Some(130), "{text}");
    assert!(text.contains("interrupted"), "{text}");
    assert_eq!(sleeps(), 0);
}
