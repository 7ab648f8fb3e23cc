//! `export --anonymize`: no name of the program is left in any format, and no figure is lost.
//!
//! ```text
//!   trace ─► report --json ─► all names      trace ─► export --anonymize ─► words of the file      in common: none
//! ```
//!
//! N1  The words of a file are compared whole, and keys of JSON are none of them: `main` is a part of `isMainThread`,
//!     and a program may be called as a key is. Names that say most, paths and arguments, are looked for anywhere.

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

/// Returns the words of more than three letters of a text.
fn words(text: &str) -> BTreeSet<&str> {
    let is_inside = |c: char| c.is_alphanumeric() || c == '_';
    let words = text.split(|c| !is_inside(c));
    words.filter(|word| word.len() > 3).collect()
}

/// Adds the texts of a JSON value, and not its keys: those are the format's.
fn texts(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => {
            out.push_str(text);
            out.push('\n');
        }
        Value::Array(all) => all.iter().for_each(|one| texts(one, out)),
        Value::Object(all) => all.values().for_each(|one| texts(one, out)),
        _ => {}
    }
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

/// Returns a file's content, unpacked if it is packed.
fn content(bench: &Bench, file: &str) -> Vec<u8> {
    let bytes = std::fs::read(bench.path(file)).expect("the file");
    match bytes.starts_with(&[0x1f, 0x8b]) {
        true => unpacked(bench, file),
        false => bytes,
    }
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
    // Rows of the books have labels of ours, in words that a program may use as well ("thread stacks").
    let mut labels = String::new();
    for instant in report["instants"].as_array().into_iter().flatten() {
        for rows in ["rows", "beside"].map(|rows| &instant["books"][rows]) {
            for row in rows.as_array().into_iter().flatten() {
                texts(&row["id"], &mut labels);
                texts(&row["label"], &mut labels);
            }
        }
    }
    let ours = words(&labels);
    for format in FORMATS {
        let bytes = {
            exported(&bench, format, format, &["--anonymize"]);
            content(&bench, format)
        };
        let text = String::from_utf8_lossy(&bytes);
        let mut said = String::new();
        match serde_json::from_slice::<Value>(&bytes) {
            Ok(json) => texts(&json, &mut said),
            Err(_) => said = text.clone().into_owned(),
        }
        let used = words(&said);
        for name in &names {
            for word in words(name).difference(&ours) {
                assert!(!used.contains(word), "{format}: {word} of {name}");
            }
            assert!(
                name.len() < 8 || !text.contains(name.as_str()),
                "{format}: {name}"
            );
        }
        let plain = {
            exported(&bench, format, "plain", &[]);
            content(&bench, "plain")
        };
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
    let mut text = String::from_utf8(content(&bench, "one.folded")).expect("text");
    for (hash, name) in map.as_object().expect("hashes") {
        text = text.replace(hash.as_str(), name.as_str().expect("a name"));
    }
    let mut back: Vec<&str> = text.lines().collect();
    exported(&bench, "folded", "plain.folded", &[]);
    let plain = String::from_utf8(content(&bench, "plain.folded")).expect("text");
    let mut plain: Vec<&str> = plain.lines().collect();
    back.sort_unstable();
    plain.sort_unstable();
    assert_eq!(back, plain);
    // Another export has another key, and a map that is there is not written over.
    exported(&bench, "folded", "two.folded", &["--anonymize"]);
    assert_ne!(content(&bench, "one.folded"), content(&bench, "two.folded"));
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
