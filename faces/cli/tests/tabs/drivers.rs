//! Other drivers: browsers side by side, pages that drive, BiDi, our JavaScript host, and recordings of real recorders.
//!
//! ```text
//!   a server of this test ─┬─► skinflint tabs --record ─► .har ────┐
//!                          └─► wget --warc-file ─────────► .warc.gz ┴─► --replay in Chromium, the server gone
//! ```
//!
//! Y1  A replay is judged by what the page's own script requests, which no other program would request.
//! Y2  The host's memory is compared with what its programs keep.
//!
//! Not here: formats byte by byte (lab/browser).

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::{MIB, alone, nothing_left, run, run_json, short, tabs, two_windows};

#[test]
fn two_windows_by_bidi() {
    two_windows("firefox/bidi");
}

#[test]
fn two_windows_by_a_page_in_chromium() {
    two_windows("chromium/page");
}

#[test]
fn two_windows_by_a_page_in_firefox() {
    two_windows("firefox/page");
}

#[test]
fn two_browsers_side_by_side_are_told_apart() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("room");
    let done = run(tabs(
        folder.path(),
        "chromium,firefox",
        "two.har",
        &["--parallel"],
    ));
    assert_eq!(done.status, Some(0), "{}\n{}", done.stderr, done.stdout);
    nothing_left(done.pid);
    let series: Value = serde_json::from_str(&done.stdout).expect("JSON");
    let runs = series["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 2);
    let when = |run: &Value| {
        let began = run["began_unix_s"].as_u64().expect("a time");
        (
            began,
            began + run["figures"]["real_ms"].as_u64().expect("a time") / 1000,
        )
    };
    // The runs really overlapped.
    let ((a, b), (c, d)) = (when(&runs[0]), when(&runs[1]));
    assert!(a <= d && c <= b, "{:?}", ((a, b), (c, d)));
    for (own, other) in [("chromium", "firefox"), ("firefox", "chromium")] {
        let run = run_json(folder.path(), &format!("{own}-1"));
        assert_eq!(run["beside"], serde_json::json!([other]));
        let samples = folder
            .path()
            .join(format!("out/runs/{own}-1/samples.jsonl"));
        let samples = std::fs::read_to_string(samples).expect("written");
        // Neither run has processes of the other.
        let roles = |name: &str| samples.contains(&format!("\"role\":\"{name}\""));
        assert_eq!(roles("renderer"), own == "chromium");
        assert_eq!(roles("tab"), own == "firefox");
        assert!(
            run["outside"].get("elsewhere.example:443").is_some(),
            "{run:#}"
        );
    }
    assert!(done.stdout.contains("\"beside\""));
}

/// Tests nine tabs of 30 MiB each in our host: loads, zombies and memory; on our heap the memory goes with its tab.
#[test]
fn programs_in_our_host() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("room");
    let program = folder.path().join("kept.js");
    let text = "var kept = []; let left = 10;\n\
                const step = () => { for (let i = 0; i < 3; i++) kept.push('x'.repeat(1 << 20) + i);\n\
                if (--left) setTimeout(step, 1); else print('on stdout, which is not for it'); };\n\
                setTimeout(step, 0);";
    std::fs::write(&program, text).expect("room");
    let bad = folder.path().join("bad.js");
    std::fs::write(&bad, "throw new Error('on purpose');").expect("room");
    let pages = format!("{0},{0},{0}", program.display());
    // Three cycles of three tabs, which run one program.
    let more = [
        "--plan", "programs", "--cycles", "3", "--pages", &pages, "--runs", "1", "--keep", "0",
        "--settle", "2", "--rest", "2",
    ];
    let done = run(short(folder.path(), "js,js/stock", &more));
    assert_eq!(done.status, Some(0), "{}\n{}", done.stderr, done.stdout);
    nothing_left(done.pid);
    for label in ["js", "js-stock"] {
        let run = run_json(folder.path(), &format!("{label}-1"));
        let loads = run["loads"].as_array().expect("loads");
        assert_eq!(loads.len(), 9, "{run:#}");
        assert!(
            loads.iter().all(|load| load["failed"].is_null()),
            "{loads:?}"
        );
        let pss = |name: &str| {
            let all = run["checkpoints"].as_array().expect("checkpoints");
            let found = all.iter().find(|c| c["name"] == name);
            found.unwrap_or_else(|| panic!("no {name}"))["pss"]
                .as_u64()
                .expect("a number")
        };
        assert!(pss("tabs-open") >= pss("start") + 9 * 30 * MIB, "{run:#}");
        // The C library may keep what Boa's own heap frees.
        if label == "js" {
            assert!(
                pss("tabs-closed-gc") + 7 * 30 * MIB <= pss("tabs-open"),
                "{run:#}"
            );
        }
        assert!(
            run["driven_version"]
                .as_str()
                .is_some_and(|v| v.contains("Boa")),
            "{run:#}"
        );
        let left = &run["zombies"]["objects"]["left of closed tabs"];
        // The stock heap cannot know this.
        assert_eq!(left.as_u64(), (label == "js").then_some(0), "{run:#}");
    }
    let out = folder.path().join("bad");
    let more = [
        "--plan",
        "programs",
        "--cycles",
        "2",
        "--pages",
        bad.to_str().expect("plain"),
    ];
    let done = run(short(&out, "js", &more));
    assert_eq!(done.status, Some(0), "{}", done.stderr);
    let run = run_json(&out, "js-1");
    let why = run["loads"][1]["failed"].as_str().expect("failed");
    assert!(why.contains("on purpose"), "{why}");
}

/// A server of two files, chunked and compressed, on 127.0.0.1, until it is dropped.
struct Served {
    port: u16,
    over: Arc<AtomicBool>,
}

impl Served {
    fn start() -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let over = Arc::new(AtomicBool::new(false));
        let end = over.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // ORDER: Relaxed; a flag that stands alone, stored by `drop`.
                if end.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::spawn(move || answer(stream, port));
            }
        });
        Served { port, over }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // ORDER: Relaxed; partner is the load in `start`.
        self.over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn answer(mut stream: TcpStream, port: u16) {
    let mut lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
    let first = lines.next().and_then(Result::ok).unwrap_or_default();
    // Reads the rest of the head.
    while lines
        .next()
        .and_then(Result::ok)
        .is_some_and(|line| !line.is_empty())
    {}
    let path = first.split(' ').nth(1).unwrap_or("");
    let bytes = match path {
        "/" => {
            let page = format!(
                "<!doctype html><title>recorded</title><script src=\"http://127.0.0.1:{port}/a.js?v=1\"></script><p>here"
            );
            let (a, b) = page.split_at(40);
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
            format!(
                "{head}{:x}\r\n{a}\r\n{:x}\r\n{b}\r\n0\r\n\r\n",
                a.len(),
                b.len()
            )
            .into_bytes()
        }
        "/a.js?v=1" => {
            // The script reports that it has run, by a request of its own.
            let script = format!("fetch('http://127.0.0.1:{port}/ran-' + (6 * 7));");
            let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gz.write_all(script.as_bytes()).expect("room");
            let body = gz.finish().expect("room");
            let mut bytes = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/javascript\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            )
            .into_bytes();
            bytes.extend_from_slice(&body);
            bytes
        }
        _ => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec(),
    };
    let _ = stream.write_all(&bytes);
}

/// Checks Y1: the script of the recorded page has run, and asked the replay for what was not recorded.
#[track_caller]
fn replays(folder: &Path, recording: &Path, port: u16) {
    let more = ["--replay", recording.to_str().expect("plain")];
    let done = run(short(folder, "chromium", &more));
    assert_eq!(done.status, Some(0), "{}", done.stderr);
    nothing_left(done.pid);
    let run = run_json(folder, "chromium-1");
    let loads = run["loads"].as_array().expect("loads");
    assert_eq!(loads.len(), 1);
    assert!(loads[0]["failed"].is_null(), "{loads:?}");
    let missing = run["missing"].as_object().expect("paths");
    let asked = format!("p{port}.127.0.0.1/ran-42");
    assert!(missing.contains_key(&asked), "{asked}: {run:#}");
}

#[test]
fn what_chromium_records_is_replayed() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("room");
    let served = Served::start();
    let har = folder.path().join("own.har");
    let mut command = Command::new(super::SKINFLINT);
    command.args(["tabs", "--record"]).arg(&har);
    command.arg(format!("http://127.0.0.1:{}/", served.port));
    command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let done = run(command);
    assert_eq!(done.status, Some(0), "{}", done.stderr);
    nothing_left(done.pid);
    let port = served.port;
    drop(served);
    let text = std::fs::read_to_string(&har).expect("written");
    let recorded: Value = serde_json::from_str(&text).expect("JSON");
    // What was asked for and was not there may be part of the recording, as a 404; without it, the request is seen.
    let mut less = recorded.clone();
    let entries = less["log"]["entries"].as_array_mut().expect("entries");
    entries.retain(|entry| {
        !entry["request"]["url"]
            .as_str()
            .is_some_and(|url| url.contains("/ran-"))
    });
    std::fs::write(&har, less.to_string()).expect("room");
    replays(folder.path(), &har, port);
}

#[test]
fn what_wget_records_is_replayed() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("room");
    let served = Served::start();
    let done = Command::new("wget")
        .args([
            "--no-verbose",
            "--no-proxy",
            "--compression=gzip",
            "--page-requisites",
            "--tries=1",
        ])
        .args([
            "--timeout=20",
            "--warc-file=own",
            &format!("http://127.0.0.1:{}/", served.port),
        ])
        .current_dir(folder.path())
        .output()
        .expect("wget");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let file = folder.path().join("own.warc.gz");
    assert!(file.metadata().is_ok_and(|meta| meta.len() > 500), "{said}");
    let port = served.port;
    drop(served);
    replays(folder.path(), &file, port);
    // A file cut in the middle is reported, with the file and the byte, and nothing is started.
    let whole = std::fs::read(&file).expect("there");
    let cut = folder.path().join("cut.warc.gz");
    // Nothing would be cut between two members: what is left there is a whole file.
    let half = whole.len() / 2;
    let is_between = whole[half..].starts_with(&[0x1f, 0x8b, 8]);
    let at = if is_between { half + 20 } else { half };
    std::fs::write(&cut, &whole[..at]).expect("room");
    let more = ["--replay", cut.to_str().expect("plain")];
    let done = run(short(&folder.path().join("cut"), "chromium", &more));
    assert_eq!(done.status, Some(2), "{}", done.stderr);
    let place = format!("byte {at} of {at}");
    assert!(
        done.stderr.contains("cut.warc.gz") && done.stderr.contains(&place),
        "{}",
        done.stderr
    );
}
