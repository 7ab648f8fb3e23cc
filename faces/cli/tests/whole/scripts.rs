//! Functions of scripts in JavaScript, by the perf map that Node is made to write.
//!
//! ```text
//!   run --frames user node app.js ─► NODE_OPTIONS ─► map ─► kept beside the trace ─► hold  app.js:3
//! ```
//!
//! Every Node that is here is asked: the one in PATH, and those that `make frames-deps` fetches.
//!
//! J1  Node prints what it prints alone.
//! J2  At least 95 % of the bytes that a function of the script asked for carry its name, file and line.

use std::path::{Path, PathBuf};

use skinflint_test_support::need;

use crate::report::{Report, number, text};
use crate::tool::{Bench, run};

/// `hold` keeps 400 buffers of 20,011 bytes, and `spoil` makes as many that nothing keeps.
const APP: &str = "\
const kept = [];

function hold(count) {
  for (let n = 0; n < count; n++) kept.push(new Uint8Array(20011).fill(1));
}

function spoil(count) {
  let last = 0;
  for (let n = 0; n < count; n++) last += new Uint8Array(20021).fill(1)[7];
  return last;
}

for (let n = 0; n < 20; n++) { hold(20); spoil(20); }
console.log('kept', kept.length, spoil(1), process.env.NODE_OPTIONS === undefined);
";

/// Returns (bytes asked for by stacks with this function, all bytes) of the live blocks of 20,011 bytes.
fn named(report: &Report, function: &str, line: u64) -> (u64, u64) {
    let (mut named, mut all) = (0, 0);
    for site in report.sites() {
        let bytes = number(site, "live_requested_bytes");
        let blocks = number(site, "live_blocks");
        if blocks == 0 || bytes != blocks * 20_011 {
            continue;
        }
        all += bytes;
        let frames = report.list("frames");
        let mut node = number(site, "node");
        while node != 0 {
            let entry = &report.list("nodes")[node as usize];
            let frame = &frames[number(entry, "frame") as usize];
            let is_it = text(frame, "function") == function
                && text(frame, "module") == "[javascript]"
                && frame["file"]
                    .as_str()
                    .is_some_and(|file| file.ends_with("/app.js"))
                && frame["line"].as_u64() == Some(line);
            if is_it {
                named += bytes;
                break;
            }
            node = number(entry, "parent");
        }
    }
    (named, all)
}

/// Returns the programs of Node that are here.
fn nodes() -> Vec<PathBuf> {
    let mut nodes = vec![PathBuf::from("node")];
    let fetched = crate::tool::root().join("target/nodes");
    for major in ["18", "22", "24"] {
        let node = fetched.join(major).join("node_modules/node/bin/node");
        nodes.extend(node.exists().then_some(node));
    }
    nodes
}

#[test]
fn buffers_are_of_the_function_that_made_them() {
    if need::program("node") {
        for node in nodes() {
            buffers_have_their_function(&node);
        }
    }
}

fn buffers_have_their_function(node: &Path) {
    let bench = Bench::new();
    std::fs::write(bench.path("app.js"), APP).expect("written");
    let mut alone = bench.command(node);
    alone.arg(bench.path("app.js"));
    let alone = run(alone);
    assert!(alone.stdout.starts_with("kept 400 1 "), "{alone:#?}");
    let app = bench.path("app.js");
    let options = [
        "run",
        "--frames",
        "user",
        "--no-html",
        "-o",
        "main.sft",
        "--",
    ];
    let command = options
        .iter()
        .map(std::ffi::OsStr::new)
        .chain([node.as_os_str(), app.as_os_str()]);
    let done = bench.tool(command);
    // J1: the script looks, too, whether the variable is set.
    assert_eq!(done.stdout, alone.stdout.replace("true", "false"));
    assert_eq!(done.status.code(), Some(0));
    let said = "skinflint: NODE_OPTIONS has --perf-basic-prof --interpreted-frames-native-stack (--frames user)";
    assert!(done.stderr.contains(said), "{}", done.stderr);
    let report = bench.report_at("main.sft", "heap-peak");
    let (named, all) = named(&report, "hold", 3);
    assert!(all >= 300 * 20_011, "{all}");
    assert!(named * 100 >= all * 95, "{node:?}: {named} of {all}");
    let shown = bench.tool([
        "report",
        "main.sft",
        "--at",
        "heap-peak",
        "--frames",
        "user",
    ]);
    assert!(shown.stdout.contains("hold  "), "{}", shown.stdout);
    assert!(!shown.stdout.contains("node::Start"), "{}", shown.stdout);
}
