//! The host's dark matter: recorded, asked, and found by stack.
//!
//! ```text
//!   skinflint run --dark-matter --at full ─► document-host --memory [--plant] on libskinflint.so ◄─ view-all
//!   skinflint ctl mark full ─► answered ─► quit ─► skinflint dark-matter … --json
//! ```
//!
//! D1  `skinflint` and the recorder are built when they are needed.
//!
//! Not here: programs in C and Python (faces/cli/tests/dark).

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use skinflint_test_support::artifact;

use super::{folder, has_images, ours};

fn tool() -> Command {
    let mut tool = Command::new(artifact::built("skinflint-cli"));
    tool.env(
        "SKINFLINT_RECORDER",
        artifact::released("skinflint-record-so"),
    );
    tool
}

/// Returns what is found, as the text of `--json`, and what was printed.
fn found(more: &[&str]) -> (String, String) {
    let folder = folder();
    let said = folder.path().join("said");
    let mut tool_command = tool();
    tool_command
        .args([
            "run",
            "--no-html",
            "--dark-matter",
            "--at",
            "full",
            "--preload",
        ])
        .arg(ours())
        .arg("--dir")
        .arg(folder.path())
        .arg("--")
        .arg(env!("CARGO_BIN_EXE_skinflint-document-host"))
        .args(["--memory", "--no-bus", "--documents", "3", "--tenants", "2"])
        .args(more)
        .arg("--shelves")
        .arg(folder.path().join("shelves"))
        .arg("--images")
        .arg(folder.path().join("images"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&said).unwrap());
    let mut running = tool_command.spawn().unwrap();
    let mut stdin = running.stdin.take().unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    let mut line = || lines.next().map(Result::unwrap).unwrap_or_default();
    let read = || std::fs::read_to_string(&said).unwrap_or_default();
    assert_eq!(line(), "ready", "{}", read());
    writeln!(stdin, "view-all").unwrap();
    assert!(line().starts_with("view-all"));
    let pid = running.id().to_string();
    let marked = tool().args(["ctl", &pid, "mark", "full"]).output().unwrap();
    assert!(marked.status.success(), "{marked:?}");
    let begun = Instant::now();
    while !read().contains("has answered --dark-matter") {
        // CLOCK: a bounded wait, and its bound ends it
        assert!(begun.elapsed() < Duration::from_secs(100), "{}", read());
        std::thread::sleep(Duration::from_millis(20));
    }
    writeln!(stdin, "quit").unwrap();
    drop(stdin);
    assert!(running.wait().unwrap().success());
    let said = read();
    let arguments = said
        .lines()
        .find_map(|line| line.split_once("skinflint dark-matter "));
    let (_, arguments) = arguments.unwrap_or_else(|| panic!("no command: {said}"));
    let mut again = Command::new("/bin/sh");
    again.args(["-c", &format!("exec \"$0\" dark-matter {arguments} --json")]);
    let done = again.arg(tool().get_program()).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    (String::from_utf8(done.stdout).unwrap(), said)
}

/// Returns a number of the outermost level, or of `account`: the first of that name.
fn number(json: &str, name: &str) -> i64 {
    let at = json
        .find(&format!("\"{name}\":"))
        .unwrap_or_else(|| panic!("no {name}: {json}"));
    let rest = &json[at + name.len() + 3..];
    let end = rest.find([',', '\n', '}']).unwrap();
    rest[..end].trim().parse().unwrap()
}

/// Returns the line of a table that names a function.
fn line_of<'a>(said: &'a str, table: &str, function: &str) -> &'a str {
    let at = said
        .find(table)
        .unwrap_or_else(|| panic!("no {table}: {said}"));
    let line = said[at..].lines().find(|line| line.contains(function));
    line.unwrap_or_else(|| panic!("no {function}: {said}"))
}

#[test]
fn what_is_planted_is_found_by_stack() {
    if !has_images() {
        return;
    }
    let (json, said) = found(&["--plant"]);
    // 100 blocks of 10,000 bytes, 50 of 20,000, in the allocator's classes.
    let forgotten = line_of(&said, "Unreported, by stack", "forgotten");
    assert!(forgotten.contains(" 100  "), "{forgotten}");
    let shared = line_of(&said, "Claimed twice, by stack", "shared");
    assert!(shared.contains(" 50  "), "{shared}");
    assert!(
        said.contains("explicit/planted/owner and explicit/planted/user"),
        "{said}"
    );
    assert!(
        !said.contains("others:") || said.contains("forgotten"),
        "{said}"
    );
    let dark = number(&json, "dark_bytes");
    assert!(dark >= 1_000_000, "{dark}");
    println!("{said}");
}

#[test]
fn what_nobody_reports_of_the_viewer_is_heap_unclassified() {
    if !has_images() {
        return;
    }
    let (json, said) = found(&[]);
    println!("{said}");
    let (dark, live) = (number(&json, "dark_bytes"), number(&json, "live_bytes"));
    let unclassified = number(&json, "heap_unclassified_bytes");
    // These are mostly records of the garbage-collected heap about itself, and buffers of stdin and stdout.
    assert!(
        dark > 0 && dark < 128 << 10 && dark * 20 < live,
        "{dark} of {live} are dark: {said}"
    );
    // No reporter claims twice, or without addresses; the rest is accounted for (adds_up).
    assert_eq!(number(&json, "claimed_twice_bytes"), 0, "{said}");
    assert_eq!(number(&json, "without_addresses_bytes"), 0, "{said}");
    // The program is idle, on an allocator that counts as the recording does: the same to the byte.
    assert_eq!(number(&json, "recorded_more_bytes"), 0, "{said}");
    assert_eq!(dark, unclassified, "{said}");
}
