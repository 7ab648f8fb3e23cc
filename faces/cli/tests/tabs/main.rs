//! `skinflint tabs` with real browsers: two windows each, and everything that can go wrong in between.
//!
//! ```text
//!   two.har (made by hand: two pages, each of which keeps 32 MiB) ─► skinflint tabs --replay ─► result.json
//! ```
//!
//! B1  Whatever happens, what was measured is in the run's folder, and no process that the tool started is left.
//! B2  Figures are compared with what the pages are made of: 32 MiB for each window that is open.
//! B3  Run by `make tabs-test`, which installs browsers and driver; if anything is missing, the test fails and names
//!     it. With SKINFLINT_LONG=1 also the corpus: 29 pages, 30 windows, two cycles.
//!
//! Not here: the parts (lab/browser), other drivers and recorders (drivers.rs).

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use skinflint_test_support::need;

mod drivers;
#[path = "../whole/signals.rs"]
mod signals;

const SKINFLINT: &str = env!("CARGO_BIN_EXE_skinflint");
const MIB: u64 = 1 << 20;
/// The longest that a browser may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(1_200);

/// Locks out other browsers: they are what is measured.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn here(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/tabs")
        .join(file)
}

fn tabs(folder: &Path, browser: &str, har: &str, more: &[&str]) -> Command {
    let har = here(har);
    let har = har.to_str().expect("plain");
    short(folder, browser, &[&["--replay", har], more].concat())
}

/// Returns the command of a run of some seconds, except for what `more` says.
fn short(folder: &Path, browser: &str, more: &[&str]) -> Command {
    let mut command = Command::new(SKINFLINT);
    command.args(["tabs", "--json", "--browser", browser]);
    let usual = [
        ("--runs", "1"),
        ("--cycles", "1"),
        ("--keep", "2"),
        ("--interval", "0"),
        ("--settle", "0.5"),
        ("--rest", "0.5"),
    ];
    for (option, value) in usual.iter().filter(|(option, _)| !more.contains(option)) {
        command.args([option, value]);
    }
    command.arg("-o").arg(folder.join("out")).args(more);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    signals::heed(&mut command);
    command
}

struct Done {
    status: Option<i32>,
    stdout: String,
    stderr: String,
    pid: u32,
}

/// Waits for the end, up to a bound; the pipes are emptied meanwhile.
fn finish(mut child: Child) -> Done {
    let read = |mut pipe: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = pipe.read_to_string(&mut text);
            text
        })
    };
    let out = read(Box::new(child.stdout.take().expect("piped")));
    let err = read(Box::new(child.stderr.take().expect("piped")));
    let until = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().expect("ours") {
            break status;
        }
        if Instant::now() > until {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(20)); // CLOCK: poll step of a bounded wait
    };
    Done {
        status: status.code(),
        stdout: out.join().expect("read"),
        stderr: err.join().expect("read"),
        pid: child.id(),
    }
}

fn run(mut command: Command) -> Done {
    finish(command.spawn().expect("skinflint"))
}

/// Checks that no process has the mark of that run (B1).
#[track_caller]
fn nothing_left(pid: u32) {
    let mark = format!("SKINFLINT_TABS={pid}-");
    let left: Vec<String> = fs::read_dir("/proc")
        .expect("/proc")
        .flatten()
        .filter(|entry| {
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            environment
                .split(|b| *b == 0)
                .any(|line| line.starts_with(mark.as_bytes()))
        })
        .map(|entry| fs::read_to_string(entry.path().join("comm")).unwrap_or_default())
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

fn run_json(folder: &Path, run: &str) -> Value {
    let file = folder.join("out/runs").join(run).join("run.json");
    let text = fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    serde_json::from_slice(&text).expect("JSON")
}

/// Returns the main process, as soon as the first sample is there.
#[track_caller]
fn main_process(folder: &Path, run: &str) -> i32 {
    let file = folder.join("out/runs").join(run).join("samples.jsonl");
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        let text = fs::read_to_string(&file).unwrap_or_default();
        if let Some((line, _)) = text.split_once('\n') {
            let sample: Value = serde_json::from_str(line).expect("a sample");
            return sample["processes"][0]["pid"].as_i64().expect("a number") as i32;
        }
        std::thread::sleep(Duration::from_millis(20)); // CLOCK: poll step of a bounded wait
    }
    panic!("no sample in {}", file.display());
}

fn signal(pid: i32, signal: &str) {
    let done = Command::new("kill")
        .args([signal, &pid.to_string()])
        .status();
    assert!(done.expect("kill").success());
}

/// Tests two windows with 32 MiB each: figures, files, and nothing left running.
#[track_caller]
fn two_windows(browser: &str) {
    let _alone = alone();
    let label = browser.replace('/', "-");
    let folder = tempfile::tempdir().expect("room");
    let done = run(tabs(folder.path(), browser, "two.har", &[]));
    assert_eq!(done.status, Some(0), "{}\n{}", done.stderr, done.stdout);
    nothing_left(done.pid);
    let series: Value = serde_json::from_str(&done.stdout).expect("JSON");
    let run = &series["runs"][0];
    assert_eq!(run["ended"], "complete");
    let loads = run["loads"].as_array().expect("loads");
    assert_eq!(loads.len(), 2);
    assert!(
        loads.iter().all(|load| load["failed"].is_null()),
        "{loads:?}"
    );
    let at = |name: &str| {
        let all = run["checkpoints"].as_array().expect("checkpoints");
        let found = all.iter().find(|c| c["name"] == name);
        found
            .unwrap_or_else(|| panic!("no {name}: {all:?}"))
            .clone()
    };
    let pss = |name: &str| at(name)["pss"].as_u64().expect("a number");
    // B2: both stay open: 64 MiB above the start; after the close one of them.
    assert!(pss("tabs-open") >= pss("start") + 64 * MIB, "{run:#}");
    // In Chromium, a page that opens windows cannot request a collection.
    if browser != "chromium/page" {
        assert!(
            pss("tabs-closed-gc") + 24 * MIB <= pss("tabs-open-gc"),
            "{run:#}"
        );
    }
    assert_eq!(run["subject"]["label"], label.as_str());
    for checkpoint in run["checkpoints"].as_array().expect("checkpoints") {
        let of = |key: &str| checkpoint[key].as_u64().expect("a number");
        assert!(0 < of("uss") && of("uss") <= of("pss") && of("pss") <= of("rss"));
        assert!(of("uss") <= of("awsy") && of("awsy") <= of("rss"));
        assert!(run["figures"]["peak_pss"].as_u64() >= Some(of("pss")));
    }
    // What was outside was refused at once, and is named.
    let outside = run["outside"].as_object().expect("hosts");
    assert!(outside.contains_key("elsewhere.example:443"), "{outside:?}");
    assert_eq!(run["left_over"], serde_json::json!([]));
    for file in ["index.html", "index.png", "result.json"] {
        assert!(
            folder
                .path()
                .join("out")
                .join(file)
                .metadata()
                .expect(file)
                .len()
                > 1000
        );
    }
    // A second time, nothing is run again.
    let again = self::run(tabs(folder.path(), browser, "two.har", &[]));
    assert!(again.stderr.contains("done before"), "{}", again.stderr);
    // Another plan does not mix with it.
    let other = self::run(tabs(folder.path(), browser, "two.har", &["--cycles", "2"]));
    assert_eq!(other.status, Some(2), "{}", other.stderr);
}

#[test]
fn two_windows_in_chromium() {
    two_windows("chromium");
}

#[test]
fn two_windows_in_firefox() {
    two_windows("firefox");
}

/// Firefox's own report shows it: Marionette kept each closed window with all of its document.
#[test]
fn the_driver_of_firefox_keeps_no_closed_windows() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("room");
    let done = run(tabs(
        folder.path(),
        "firefox",
        "two.har",
        &["--cycles", "4"],
    ));
    assert_eq!(done.status, Some(0), "{}", done.stderr);
    let run = run_json(folder.path(), "firefox-1");
    let loads = run["loads"].as_array().expect("loads");
    assert!(
        loads.len() == 8 && loads.iter().all(|load| load["failed"].is_null()),
        "{loads:?}"
    );
    // There is a report; the window that was closed last may not have been collected yet.
    assert!(
        run["zombies"]["ghost_windows"].is_u64(),
        "{}, {}",
        run["notes"],
        run["reports"]
    );
    let detached = run["zombies"]["detached"].as_object().expect("by address");
    let windows = detached.values().map(|of| of["windows"].as_u64());
    assert!(windows.flatten().sum::<u64>() <= 2, "{detached:?}");
}

#[test]
fn a_signal_ends_it_in_order() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("room");
    let long = ["--settle", "200"];
    let child = tabs(folder.path(), "chromium", "two.har", &long)
        .spawn()
        .expect("skinflint");
    main_process(folder.path(), "chromium-1");
    signal(child.id() as i32, "-INT");
    let done = finish(child);
    assert_eq!(done.status, Some(130), "{}", done.stderr);
    nothing_left(done.pid);
    let run = run_json(folder.path(), "chromium-1");
    assert_eq!(
        (&run["complete"], &run["ended"]),
        (&false.into(), &"interrupted".into())
    );
    assert!(run["figures"]["samples"].as_u64() >= Some(1), "{run:#}");
}

#[track_caller]
fn after_a_crash(browser: &str) {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("room");
    let more = ["--settle", "3", "--runs", "2"];
    let child = tabs(folder.path(), browser, "two.har", &more)
        .spawn()
        .expect("skinflint");
    signal(
        main_process(folder.path(), &format!("{browser}-1")),
        "-KILL",
    );
    let done = finish(child);
    assert_eq!(done.status, Some(1), "{}", done.stderr);
    nothing_left(done.pid);
    let first = run_json(folder.path(), &format!("{browser}-1"));
    let how = first["ended"].as_str().expect("words");
    assert!(
        how.contains("ended by itself") && how.contains("browser.log"),
        "{how}"
    );
    assert_eq!(
        run_json(folder.path(), &format!("{browser}-2"))["complete"],
        true,
        "{}",
        done.stderr
    );
}

#[test]
fn after_a_crash_of_chromium_the_rest_goes_on() {
    after_a_crash("chromium");
}

#[test]
fn after_a_crash_of_firefox_the_rest_goes_on() {
    after_a_crash("firefox");
}

#[track_caller]
fn a_page_that_hangs(browser: &str) {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("room");
    let plan = folder.path().join("plan.toml");
    // A page that hangs does not answer Firefox's memory report: each forced collection would wait its three minutes.
    let gc = browser != "firefox";
    fs::write(&plan, format!("name = \"hang\"\ngc = {gc}\n")).expect("room");
    // Time enough for the other two pages on a busy machine.
    let more = ["--load-timeout", "15", "--keep", "3"];
    let mut command = tabs(folder.path(), browser, "hang.har", &more);
    command.arg("--plan").arg(&plan);
    let done = run(command);
    nothing_left(done.pid);
    assert_eq!(done.status, Some(0), "{}", done.stderr);
    let run = run_json(folder.path(), &format!("{browser}-1"));
    let failed: Vec<bool> = run["loads"]
        .as_array()
        .expect("loads")
        .iter()
        .map(|load| !load["failed"].is_null())
        .collect();
    assert_eq!(failed, [false, true, false], "{run:#}");
}

#[test]
fn a_page_that_hangs_is_a_failed_load_in_chromium() {
    a_page_that_hangs("chromium");
}

#[test]
fn a_page_that_hangs_is_a_failed_load_in_firefox() {
    a_page_that_hangs("firefox");
}

#[test]
fn a_full_disk_ends_the_run_and_keeps_what_was_written() {
    if !need::root("mount") {
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().expect("room");
    // Files of this process and its children end at that size, as on a full disk; the browser's own files are in
    // TMPDIR.
    let small = folder.path().join("small");
    fs::create_dir(&small).expect("room");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(&small)
        .status();
    assert!(mounted.expect("mount").success());
    let more = ["--settle", "60", "--sample", "50"];
    let done = run(tabs(&small, "chromium", "two.har", &more));
    let samples = fs::read_to_string(small.join("out/runs/chromium-1/samples.jsonl"));
    let unmounted = Command::new("umount").arg(&small).status();
    nothing_left(done.pid);
    assert!(unmounted.expect("umount").success());
    assert_ne!(done.status, Some(0));
    let said = &done.stderr;
    assert!(
        said.contains("No space left") && said.contains("out"),
        "{said}"
    );
    assert!(samples.expect("kept").lines().count() > 3);
}

#[test]
fn wrong_use_is_named() {
    let folder = tempfile::tempdir().expect("room");
    for (more, word) in [
        (&["--browser", "opera"][..], "chromium, firefox, webkit"),
        (&["--plan", "none"], "cycle, scale, slim, shared"),
        (&["--with", "glibc"], "allocator of its own"),
        (&["--replay", "/none.har"], "/none.har"),
        (
            &["--browser", "chromium,chromium/page", "--parallel"],
            "chromium and chromium-page are the same program",
        ),
        (&["--browser", "js/v8"], "js/stock"),
        (&["--browser", "js"], "--plan programs"),
    ] {
        let mut command = Command::new(SKINFLINT);
        command.args(["tabs", "--browser", "chromium", "-o"]);
        if more[0] == "--browser" {
            command = Command::new(SKINFLINT);
            command.args(["tabs", "-o"]);
        }
        command
            .arg(folder.path().join(word.len().to_string()))
            .args(more);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let done = run(command);
        assert_eq!(done.status, Some(2), "{more:?}: {}", done.stderr);
        assert!(done.stderr.contains(word), "{more:?}: {}", done.stderr);
    }
}

/// Runs the corpus at a sixth of its length, in both; half an hour.
#[test]
fn the_corpus_when_there_is_time() {
    if std::env::var_os("SKINFLINT_LONG").is_none() {
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().expect("room");
    let mut command = Command::new(SKINFLINT);
    command.args([
        "tabs", "--json", "--runs", "1", "--cycles", "2", "--rest", "60", "-o",
    ]);
    command.arg(folder.path().join("out"));
    command.stdout(Stdio::piped()).stderr(Stdio::inherit());
    let done = command.output().expect("skinflint");
    let series: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert!(done.status.success());
    for run in series["runs"].as_array().expect("runs") {
        let loads = run["loads"].as_array().expect("loads");
        let failed: Vec<&Value> = loads.iter().filter(|l| !l["failed"].is_null()).collect();
        assert_eq!((loads.len(), failed.len()), (58, 0), "{failed:?}");
    }
}

#[test]
fn a_condition_that_is_met_fails_and_tells_what_is_left() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("room");
    let conditions = [
        "--fail-if=left - start > 24 * 1MiB",
        "--fail-if=left > one * 100",
        "--fail-if=ghosts > 0",
    ];
    let done = run(tabs(folder.path(), "chromium", "two.har", &conditions));
    assert_eq!(done.status, Some(3), "{}\n{}", done.stderr, done.stdout);
    let told: Value = serde_json::from_str(&done.stdout).expect("JSON");
    let verdicts: Vec<&Value> = (0..3).map(|at| &told["conditions"][at]["is_met"]).collect();
    // One window of 32 MiB is left open; Chromium has no ghosts to count.
    assert_eq!(
        verdicts,
        [&Value::Bool(true), &Value::Bool(false), &Value::Null]
    );
    let snapshot = folder
        .path()
        .join("out/runs/chromium-1/left-1.heapsnapshot");
    let read = Command::new(SKINFLINT)
        .args(["heap", "--detached", "--json"])
        .arg(snapshot)
        .output();
    let read = read.expect("skinflint");
    assert!(read.status.success(), "{read:?}");
    let wrong = run(tabs(
        folder.path(),
        "chromium",
        "two.har",
        &["--fail-if=lefd > 0"],
    ));
    assert_eq!(wrong.status, Some(2), "{}", wrong.stderr);
    assert!(wrong.stderr.contains("there are left"), "{}", wrong.stderr);
}
