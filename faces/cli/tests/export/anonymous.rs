//! `export --anonymize`: no name of the program is left in any format, and no figure is lost.
//!
//! ```text
//!   trace ─► report --json ─► all names      trace ─► export --anonymize ─► words of the file      in common: none
//! ```
//!
//! N1  The words of a file are compared whole: a name that is a part of a word of the format (`main`, `isMainThread`)
//!     would be found otherwise. Names that say most, paths and arguments, are looked for anywhere.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::tool::{Bench, program};
use crate::{exported, unpacked};

const FORMATS: [&str; 8] = [
    "pprof",
    "dhat",
    "folded",
    "speedscope",
    "firefox",
    "memory-report",
    "heaptrack",
    "json",
];

/// Words of more than three letters that a format uses itself, and some program as well.
const OF_FORMATS: [&str; 1] = ["main"];

fn words(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| word.len() > 3)
        .collect()
}

/// Returns the names of a recording: functions, files, modules, arguments, paths, marks.
fn names(report: &Value) -> Vec<String> {
    let mut names = Vec::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for frame in report["frames"].as_array().into_iter().flatten() {
        names.extend(["function", "module", "file"].map(|field| text(&frame[field])));
    }
    for mark in report["marks"].as_array().into_iter().flatten() {
        names.push(text(&mark["name"]));
    }
    let program = &report["program"];
    names.extend(["name", "exe", "cwd", "allocator", "system"].map(|field| text(&program[field])));
    names.extend(program["argv"].as_array().into_iter().flatten().map(text));
    names.retain(|name| !name.is_empty());
    names
}

/// Returns the sum of a figure over all stacks.
fn whole(report: &Value, figure: &str) -> u64 {
    let sites = report["sites"].as_array().expect("stacks");
    sites.iter().filter_map(|site| site[figure].as_u64()).sum()
}

#[test]
fn no_name_is_left_in_any_format() {
    let bench = Bench::new();
    let done = bench.record([program("marks"), "--token=hunter2".into()]);
    assert!(done.status.code().is_some(), "{done:#?}");
    let json = bench.tool(["report", "main.sft", "--json"]);
    let report: Value = serde_json::from_str(&json.stdout).expect("a report");
    let names = names(&report);
    assert!(
        names.len() > 20 && names.iter().any(|name| name == "--token=hunter2"),
        "{names:?}"
    );
    for format in FORMATS {
        let bytes = unpacked(&exported(&bench, format, format, &["--anonymize"]));
        let text = String::from_utf8_lossy(&bytes);
        let used = words(&text);
        for name in &names {
            for word in words(name)
                .into_iter()
                .filter(|word| !OF_FORMATS.contains(word))
            {
                assert!(!used.contains(word), "{format}: {word} of {name}");
            }
            assert!(
                name.len() < 8 || !text.contains(name.as_str()),
                "{format}: {name}"
            );
        }
        let plain = unpacked(&exported(&bench, format, "plain", &[]));
        let plain = String::from_utf8_lossy(&plain);
        assert!(
            names
                .iter()
                .any(|name| name.len() >= 8 && plain.contains(name.as_str())),
            "{format}: it finds none anyway"
        );
    }
    let hashed: Value =
        serde_json::from_slice(&std::fs::read(bench.path("json")).expect("it")).expect("a report");
    assert_eq!(hashed["totals"], report["totals"]);
    for figure in ["requested_bytes", "live_usable_bytes", "allocations"] {
        assert_eq!(whole(&hashed, figure), whole(&report, figure), "{figure}");
    }
}

#[test]
fn the_map_leads_back_and_is_the_users_alone() {
    let bench = Bench::new();
    crate::recorded(&bench, "predicted");
    let more = ["--anonymize", "--name-map", "map.json"];
    exported(&bench, "folded", "one.folded", &more);
    let mode = std::fs::metadata(bench.path("map.json"))
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let map: Value =
        serde_json::from_slice(&std::fs::read(bench.path("map.json")).expect("it")).expect("a map");
    let mut text = String::from_utf8(unpacked(&bench.path("one.folded"))).expect("text");
    for (hash, name) in map.as_object().expect("hashes") {
        text = text.replace(hash.as_str(), name.as_str().expect("a name"));
    }
    let mut back: Vec<&str> = text.lines().collect();
    exported(&bench, "folded", "plain.folded", &[]);
    let plain = String::from_utf8(unpacked(&bench.path("plain.folded"))).expect("text");
    let mut plain: Vec<&str> = plain.lines().collect();
    back.sort_unstable();
    plain.sort_unstable();
    assert_eq!(back, plain);
    // Another export has another key, and a map that is there is not written over.
    exported(&bench, "folded", "two.folded", &["--anonymize"]);
    assert_ne!(
        unpacked(&bench.path("one.folded")),
        unpacked(&bench.path("two.folded"))
    );
    let again = bench.tool([
        "export",
        "main.sft",
        "--format",
        "folded",
        "-o",
        "x",
        "--anonymize",
        "--name-map",
        "map.json",
    ]);
    assert!(
        again.shell_status() != 0 && again.stderr.contains("name a file that is not there"),
        "{again:#?}"
    );
    let alone = bench.tool([
        "export",
        "main.sft",
        "--format",
        "folded",
        "-o",
        "x",
        "--name-map",
        "m.json",
    ]);
    assert_eq!(alone.shell_status(), 2, "{alone:#?}");
}
