//! Which crate may depend on which: the floors of the design, as a table.
//!
//! ```text
//!   ground    base   sizes   unwind
//!   evidence  trace ◄── symbols      trace, sizes ◄── analysis ◄── view
//!   edges     record-so ──► base, unwind      collect ──► base, trace      cli ──► all but record-so
//!             compare ──► evidence, view, replay's script      export ──► trace, analysis, view
//! ```
//!
//! D1  A crate that is not in the table is a fault: the table is extended on purpose, not by default.
//! D2  Nothing depends on `record-so`, not even a test: what exports `malloc` is linked into nothing.
//! D3  Test-only edges are free otherwise, since they do not ship.
//!
//! Not here: dependencies on crates of other people.

use anyhow::{Context, Result};
use serde_json::Value;

use super::Fault;

const RULE: &str = "edge";
const PREFIX: &str = "skinflint-";
const RECORD_SO: &str = "record-so";

/// Crate, and the crates of ours that it may depend on.
const FLOORS: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("sizes", &["base"]),
    ("pages", &["base"]),
    // `unwind`: the stacks of guarded samples; it neither allocates nor locks.
    ("alloc", &["base", "pages", "sizes", "unwind"]),
    // What a program says of its own memory. Engines take the trait from it, and nothing else.
    ("report", &["base"]),
    ("report-so", &["report"]),
    ("gc", &["base", "pages", "report"]),
    // `report` for the reporter trait only.
    ("cache", &["base", "report"]),
    // Reads what `gc` writes, and what browsers write.
    ("snapshot", &[]),
    // A program that links everything a host of tenants would; not shipped.
    ("viewer", &["base", "gc", "cache", "report"]),
    ("malloc-so", &["base", "alloc"]),
    ("unwind", &[]),
    ("objects", &[]),
    ("trace", &[]),
    ("symbols", &["trace"]),
    ("analysis", &["trace", "sizes"]),
    // One way to open a trace with all that it came out of.
    ("recording", &["trace", "analysis"]),
    ("view", &["analysis"]),
    // `view`: figures and stacks are said as in every other output.
    ("export", &["trace", "analysis", "view", "report"]),
    ("collect", &["base", "trace"]),
    ("record-so", &["base", "unwind"]),
    ("replay", &[]),
    // Counts calls between a program and the allocator under test; linked into nothing, as the recorder.
    ("probe-so", &["base"]),
    // `view`: figures and the page's look are those of every other output.
    (
        "compare",
        &[
            "base",
            "sizes",
            "trace",
            "analysis",
            "recording",
            "view",
            "replay",
        ],
    ),
    // The only crate that draws on a terminal by itself.
    (
        "top",
        &["trace", "symbols", "analysis", "recording", "view"],
    ),
    // `compare`: medians and ratios are those of every other comparison; `view`: figures and the page's look.
    ("browser", &["compare", "view"]),
    (
        "cli",
        &[
            "base",
            "sizes",
            "unwind",
            "trace",
            "symbols",
            "analysis",
            "view",
            "collect",
            "compare",
            "export",
            "top",
            "recording",
            "report",
            "snapshot",
            "gc",
            "objects",
            "browser",
        ],
    ),
    // For tests and the fuzzer: nothing that ships depends on it.
    ("damage", &["trace", "analysis", "view"]),
    // For tests: artifacts, and what is skipped.
    ("test-support", &[]),
    // The same for models of threads.
    ("interleave", &[]),
    ("xtask", &[]),
];

fn short(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or(name)
}

/// Checks `cargo metadata --no-deps` against the table.
///
/// # Errors
/// If the JSON is not what cargo prints.
pub fn check(metadata: &Value) -> Result<Vec<Fault>> {
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata: no \"packages\"")?;
    let ours: Vec<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    let mut faults = Vec::new();
    for package in packages {
        let name = package["name"].as_str().context("package with no name")?;
        let file = format!("{} (Cargo.toml)", short(name));
        let Some((_, allowed)) = FLOORS.iter().find(|(floor, _)| *floor == short(name)) else {
            let what = format!("crate `{name}` is on no floor: add it to the table in edges.rs");
            faults.push(Fault::new(&file, 0, RULE, what));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let Some(target) = dependency["name"].as_str().filter(|n| ours.contains(n)) else {
                continue;
            };
            let test_only = dependency["kind"].as_str() == Some("dev");
            if let Some(what) = judge(short(name), short(target), allowed, test_only) {
                faults.push(Fault::new(&file, 0, RULE, what));
            }
        }
    }
    Ok(faults)
}

fn judge(from: &str, to: &str, allowed: &[&str], test_only: bool) -> Option<String> {
    if to == RECORD_SO {
        return Some(format!(
            "`{from}` depends on `{RECORD_SO}`: what exports malloc is linked into nothing"
        ));
    }
    if test_only || allowed.contains(&to) {
        return None;
    }
    Some(format!(
        "`{from}` may not depend on `{to}` (allowed: {allowed:?})"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn workspace(from: &str, to: &str, kind: Value) -> Value {
        json!({"packages": [
            {"name": from, "dependencies": [{"name": to, "kind": kind}, {"name": "libc", "kind": null}]},
            {"name": to, "dependencies": []},
        ]})
    }

    fn faults(from: &str, to: &str, kind: Value) -> usize {
        check(&workspace(from, to, kind)).unwrap().len()
    }

    #[test]
    fn an_allowed_edge_is_silent() {
        assert_eq!(
            faults("skinflint-analysis", "skinflint-trace", json!(null)),
            0
        );
        assert_eq!(faults("skinflint-cli", "skinflint-view", json!(null)), 0);
        assert_eq!(
            faults("skinflint-symbols", "skinflint-trace", json!("build")),
            0
        );
    }

    #[test]
    fn an_edge_upwards_or_sideways_fires() {
        assert_eq!(
            faults("skinflint-trace", "skinflint-analysis", json!(null)),
            1
        );
        assert_eq!(faults("skinflint-view", "skinflint-trace", json!(null)), 1);
        assert_eq!(
            faults("skinflint-base", "skinflint-sizes", json!("build")),
            1
        );
    }

    #[test]
    fn tests_may_look_sideways_but_never_at_the_recorder() {
        assert_eq!(faults("skinflint-view", "skinflint-trace", json!("dev")), 0);
        assert_eq!(
            faults("skinflint-cli", "skinflint-record-so", json!("dev")),
            1
        );
        assert_eq!(
            faults("skinflint-cli", "skinflint-record-so", json!(null)),
            1
        );
    }

    #[test]
    fn a_crate_on_no_floor_fires() {
        assert_eq!(faults("skinflint-attic", "skinflint-base", json!(null)), 1);
    }

    #[test]
    fn what_cargo_does_not_print_is_an_error() {
        assert!(check(&json!({"nothing": 1})).is_err());
    }
}
