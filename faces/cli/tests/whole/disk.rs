//! A disk that fills up while recording: the program does not notice, the report states what is missing.
//!
//! D1  Same stdout as alone, and the program's status unless that is 0: then 2. The tool prints one line on stderr
//!     that says what happened.
//! D2  The trace is read up to where the disk was full, and is not called complete.

use skinflint_test_support::need;

use crate::report::field;
use crate::tool::{Bench, Done, root, run};

const EVENTS: u64 = 2_000_000;
/// Much less than the trace of that many events.
const ROOM_BYTES: u64 = 256 << 10;

fn build(bench: &Bench) {
    let mut compiler = bench.command("gcc");
    let source = root().join("bench/counted.c");
    compiler.args(["-O2", "-o", "counted"]).arg(source);
    let built = run(compiler);
    assert_eq!(built.status.code(), Some(0), "{}", built.stderr);
}

/// Checks D1 and D2; the trace is `full.sft`.
#[track_caller]
fn survived(bench: &Bench, done: &Done, reason: &str) {
    assert_eq!(done.stdout, format!("done {EVENTS}\n"), "{done:#?}");
    done.says(2, &["full.sft", reason, "the program went on"]);
    assert_eq!(done.stderr.lines().count(), 1, "{done:#?}");
    let size = std::fs::metadata(bench.path("full.sft"))
        .expect("the trace")
        .len();
    assert!(size > 0 && size <= ROOM_BYTES, "{size} bytes");
    let report = bench.report_at("full.sft", "end");
    let complete = field(&report.0, "completeness.complete").as_bool();
    assert_eq!(complete, Some(false));
    let (acquired, released) = report.heap();
    assert!(acquired + released > 1000, "it is read up to there");
    assert!(acquired + released < EVENTS);
    let notes = report.notes().join(" ");
    assert!(
        notes.contains("disk was full") || notes.contains("lost"),
        "{notes}"
    );
    let screen = bench.tool(["report", "full.sft"]);
    assert!(screen.stdout.contains("INCOMPLETE"), "{screen:#?}");
}

#[test]
fn a_limit_on_the_size_of_files() {
    // The limit holds for shared memory as well, so the program gets no rings: it runs unrecorded.
    let bench = Bench::new();
    build(&bench);
    let mut limited = bench.command("prlimit");
    limited
        .arg(format!("--fsize={ROOM_BYTES}"))
        .arg(crate::tool::SKINFLINT)
        .args([
            "record",
            "--quiet",
            "--output",
            "full.sft",
            "--",
            "./counted",
            "count",
            "1000",
        ]);
    let done = run(limited);
    assert_eq!(done.stdout, "done 1000\n", "{done:#?}");
    done.says(0, &["was not recorded", "File too large", "ulimit -f"]);
    assert!(
        !done.stderr.contains("never loaded the recorder"),
        "{done:#?}"
    );
}

#[test]
fn a_full_file_system() {
    // The test above fills the disk for all programs.
    if !need::root("mount") {
        return;
    }
    let bench = Bench::new();
    build(&bench);
    std::fs::create_dir(bench.path("small")).expect("its own folder");
    // The mount is in this command's own name space: it goes with it.
    let script = format!(
        "mount -t tmpfs -o size={ROOM_BYTES} none small && \
         {tool} record --quiet --output small/full.sft -- ./counted count {EVENTS}; \
         status=$?; cp small/full.sft full.sft; exit $status",
        tool = crate::tool::SKINFLINT
    );
    let mut own = bench.command("unshare");
    own.args(["--mount", "sh", "-c", &script]);
    survived(&bench, &run(own), "No space left");
}

/// Runs a shell's line in a folder `small` on a file system of this size, of which `used` bytes are taken. Returns the
/// result, and each file that is there afterwards with its size in bytes.
fn in_little_room(bench: &Bench, size: &str, used: u32, line: &str) -> (Done, Vec<(String, u64)>) {
    std::fs::create_dir(bench.path("small")).expect("its own folder");
    let script = format!(
        "mount -t tmpfs -o size={size} none small && head -c {used} /dev/zero > small/all; {line}; \
         status=$?; stat -c '%n %s' small/* > files; exit $status"
    );
    let mut own = bench.command("unshare");
    own.args(["--mount", "sh", "-c", &script]);
    let done = run(own);
    let files = std::fs::read_to_string(bench.path("files")).expect("the list");
    let files = files.lines().filter_map(|line| {
        let (name, size) = line.rsplit_once(' ')?;
        Some((name.replace("small/", ""), size.parse().ok()?))
    });
    (done, files.filter(|(name, _)| name != "all").collect())
}

const MANY: &str = "sh -c 'for i in 1 2 3 4 5 6 7 8; do /bin/echo $i; done'";

#[test]
fn a_full_file_system_and_many_processes() {
    // SAFETY: no memory is involved.
    if unsafe { libc::geteuid() } != 0 {
        // Only root may mount; `a_limit_on_the_size_of_files` runs for every user.
        return;
    }
    // There is room for no trace at all, and each of the children would have had one.
    let tool = crate::tool::SKINFLINT;
    for how in [
        "run --no-html --dir small",
        "run --dir small",
        "record --dir small",
        "record --output small/main.sft",
    ] {
        let bench = Bench::new();
        let line = format!("{tool} {how} -- {MANY}");
        let (done, files) = in_little_room(&bench, "8k", 8192, &line);
        assert_eq!(done.stdout, "1\n2\n3\n4\n5\n6\n7\n8\n", "{done:#?}");
        let says = [
            "No space left",
            "8 other traces",
            "the program went on",
            "nothing of it was recorded",
            "--dir",
        ];
        done.says(2, &says);
        assert_eq!(done.stderr.lines().count(), 1, "{done:#?}");
        assert_eq!(done.stderr.matches("small/").count(), 1, "{done:#?}");
        assert_eq!(files, [], "{how}");
    }
}

#[test]
fn a_full_folder_for_temporary_files_decides_nothing() {
    if !need::root("mount") {
        return;
    }
    let tool = crate::tool::SKINFLINT;
    for (program, status) in [("true", 4), ("false", 1)] {
        let bench = Bench::new();
        let line = format!("TMPDIR=$PWD/small {tool} check --peak-live 1GiB -- /bin/{program}");
        let (done, _) = in_little_room(&bench, "8k", 8192, &line);
        let says = [
            "No space left",
            "set TMPDIR, or name a file with --output",
            "nothing is decided",
        ];
        done.says(status, &says);
        assert!(!done.stderr.contains("--dir"), "{done:#?}");
    }
}

#[test]
fn a_file_system_with_room_for_traces_and_for_no_page() {
    if !need::root("mount") {
        return;
    }
    let bench = Bench::new();
    let line = format!("{} run --dir small -- {MANY}", crate::tool::SKINFLINT);
    let (done, files) = in_little_room(&bench, "64k", 8192, &line);
    assert_eq!(done.stdout, "1\n2\n3\n4\n5\n6\n7\n8\n", "{done:#?}");
    done.says(0, &["No space left", "choose another folder with --dir"]);
    assert_eq!(done.stderr.matches("No space left").count(), 1, "{done:#?}");
    // The traces, and the rows of those that might have been dropped.
    assert_eq!(files.len(), 10, "{files:?}");
    for (name, size) in files {
        let is_ours = name.ends_with(".sft") || name.ends_with(".rows");
        assert!(is_ours && size > 0, "{name}: {size} bytes");
    }
}

/// What is written beside a recording fails with a message, too, and not by the signal.
#[test]
fn a_page_beyond_the_limit_on_the_size_of_files() {
    let bench = Bench::new();
    bench.record(["true"]).says(0, &[]);
    let mut limited = bench.command("prlimit");
    limited.arg("--fsize=0").arg(crate::tool::SKINFLINT);
    limited.args(["report", "main.sft", "--html", "page.html"]);
    run(limited).says(2, &["page.html", "File too large"]);
    // A program that is started from here has the signal as ever.
    let mut limited = bench.command("prlimit");
    limited.arg("--fsize=0").arg(crate::tool::SKINFLINT);
    limited.args(["exec", "--", "sh", "-c", "echo text > file"]);
    assert_ne!(run(limited).status.code(), Some(0));
}
