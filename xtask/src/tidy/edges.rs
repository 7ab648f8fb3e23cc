//! Edges between crates: a table of those allowed, and the floors, which are the folders.
//!
//! D1  A crate that is not in the table is a fault, and so is a row without a crate: the table is extended on
//!     purpose, not by default. An edge that the table allows and no crate uses is a fault, too.
//! D2  Nothing depends on `record-so`, not even a test: what exports `malloc` is linked into nothing.
//! D3  A crate depends on its own floor and on those below ([`crate::floors`]).
//! D4  Test-only edges are otherwise free, since they do not ship.
//! D5  The table of ARCHITECTURE.md has a row for each crate, with its floor and the crates that it may depend on.
//!
//! Not here: dependencies on crates that are not ours.

use std::collections::BTreeMap;

use crate::floors;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Fault;

const RULE: &str = "edge";
const PREFIX: &str = "skinflint-";
const RECORD_SO: &str = "record-so";

/// Crates, and the crates of ours that each may depend on.
const EDGES: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("sizes", &[]),
    ("pages", &["base"]),
    // `unwind`: the stacks of guarded samples; it neither allocates nor locks.
    ("alloc", &["base", "pages", "sizes", "unwind"]),
    // `reporters` is what a program reports about its own memory. Engines take the trait from it, and nothing else.
    // `procfs`: control groups and their processes, for the command line only (feature "gather").
    ("reporters", &["base", "procfs"]),
    ("reporters-so", &["reporters"]),
    ("gc", &["base", "pages", "reporters"]),
    // `reporters` for the reporter trait only.
    ("cache", &["base", "reporters"]),
    // `reporters`: how many bytes malloc gave.
    ("engines-so", &["cache", "gc", "reporters"]),
    // Reads what `gc` writes, and what browsers write. `view`: figures are said as in every other output.
    ("heap-snapshot", &["view"]),
    // A program that links everything a host of tenants would; not shipped.
    ("document-host", &["base", "gc", "cache", "reporters"]),
    ("malloc-so", &["base", "alloc"]),
    ("unwind", &[]),
    // Frames of an interpreter, read where stacks are captured.
    ("frames", &["base"]),
    // `base`: numbers by seed.
    ("objects", &["base", "framing"]),
    ("framing", &[]),
    ("trace", &["framing"]),
    // What the kernel says of processes, for all that watch them from outside.
    ("procfs", &[]),
    ("symbols", &["trace"]),
    // `base`: hints to the processor and the kernel about tables that are read at random.
    ("analysis", &["base", "trace", "sizes"]),
    // Other layouts of a trace's blocks, fed by the ledger.
    ("what-if", &["base", "trace", "sizes", "analysis"]),
    // The one way to open a trace with all that it came out of, and to a report with names. `view`: figures and
    // functions in what is said of it.
    ("recording", &["trace", "symbols", "analysis", "view"]),
    ("view", &["analysis", "what-if"]),
    // `recording`: the traces that it learns from; `view`: figures are said as in every other output.
    ("fit", &["trace", "sizes", "analysis", "recording", "view"]),
    // `view`: figures and stacks are said as in every other output.
    ("export", &["trace", "analysis", "view", "reporters"]),
    // `export`: the pass that counts lives; `collect`: the recording under way, whose program is asked; `recording`: its
    // events once more.
    (
        "dark-matter",
        &[
            "trace",
            "collect",
            "analysis",
            "recording",
            "view",
            "reporters",
            "export",
        ],
    ),
    ("collect", &["base", "frames", "procfs", "trace"]),
    // What is common to all that start programs on a library of ours.
    ("launch", &["base"]),
    // `base`: what a filter of system calls answers; `unwind`: where a thread of another process is.
    (
        "sessions",
        &["base", "collect", "launch", "procfs", "unwind"],
    ),
    ("record-so", &["base", "frames", "unwind"]),
    ("replay", &[]),
    // Counts calls between a program and the allocator under test; linked into nothing, as the recorder.
    ("probe-so", &["base"]),
    // `view`: figures and the page's look are those of every other output.
    (
        "compare",
        &[
            "base",
            "procfs",
            "trace",
            "launch",
            "recording",
            "view",
            "replay",
        ],
    ),
    // `export`: stacks of two builds are matched as in every other difference.
    ("check", &["analysis", "export", "view"]),
    // `collect`: build ids of files; `reporters`: the sockets, and a page on loopback.
    ("agent", &["collect", "procfs", "reporters"]),
    // The only crate that draws on a terminal by itself. `procfs`: the control group of the program.
    (
        "top",
        &[
            "procfs",
            "trace",
            "symbols",
            "analysis",
            "recording",
            "view",
        ],
    ),
    // `compare`: medians are those of every other comparison; `objects` and `recording`: what is replayed.
    ("free-lists", &["compare", "objects", "recording", "trace"]),
    // `compare`: medians and ratios are those of every other comparison; `view`: figures and the page's look.
    (
        "browser",
        &["compare", "js-options", "launch", "procfs", "view"],
    ),
    // `compare`: the machine, medians, Ctrl-C; `launch`: which parts are there; `view`: figures and the page's look.
    ("experiments", &["compare", "launch", "view"]),
    // Shared with the host, whose workspaces are not this one.
    ("js-options", &[]),
    (
        "cli",
        &[
            "base",
            "sizes",
            "trace",
            "symbols",
            "analysis",
            "what-if",
            "fit",
            "view",
            "collect",
            "launch",
            "sessions",
            "compare",
            "js-options",
            "export",
            "check",
            "dark-matter",
            "top",
            "agent",
            "recording",
            "reporters",
            "heap-snapshot",
            "free-lists",
            "objects",
            "browser",
            "experiments",
        ],
    ),
    // For tests and the fuzzer: nothing that ships depends on it.
    ("damage", &["base", "trace", "analysis", "view"]),
    // For tests: artifacts, what is skipped, and `base`'s numbers by seed.
    ("test-support", &["base"]),
    // The same for models of threads.
    ("interleave", &[]),
    ("xtask", &[]),
];

fn short(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or(name)
}

/// A crate of the workspace, as cargo reports it.
struct Package<'a> {
    /// The path of its manifest; tests have none.
    manifest: Option<&'a str>,
    /// The crates of ours that it needs, and whether only tests need them.
    needs: Vec<(&'a str, bool)>,
}

impl Package<'_> {
    fn height(&self) -> Option<usize> {
        floors::height(self.manifest?)
    }
}

fn packages(metadata: &Value) -> Result<BTreeMap<&str, Package<'_>>> {
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata: no \"packages\"")?;
    let ours: Vec<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    let mut all = BTreeMap::new();
    for package in packages {
        let name = package["name"].as_str().context("package with no name")?;
        let needs = package["dependencies"].as_array().into_iter().flatten();
        let needs = needs.filter_map(|one| {
            let target = one["name"].as_str().filter(|name| ours.contains(name))?;
            Some((short(target), one["kind"].as_str() == Some("dev")))
        });
        let one = Package {
            manifest: package["manifest_path"].as_str(),
            needs: needs.collect(),
        };
        all.insert(short(name), one);
    }
    Ok(all)
}

/// Checks `cargo metadata --no-deps` against the table and the floors.
///
/// # Errors
/// If the JSON is not what cargo prints.
pub fn check(metadata: &Value) -> Result<Vec<Fault>> {
    let all = packages(metadata)?;
    let mut faults = Vec::new();
    let mut fault = |name: &str, what: String| {
        faults.push(Fault::new(&format!("{name} (Cargo.toml)"), 0, RULE, what));
    };
    for (name, package) in &all {
        let Some((_, allowed)) = EDGES.iter().find(|(row, _)| row == name) else {
            fault(
                name,
                format!("crate `{name}` is not in the table of edges.rs: add it"),
            );
            continue;
        };
        for (target, test_only) in &package.needs {
            if let Some(what) = judge(name, target, allowed, *test_only) {
                fault(name, what);
            }
            let heights = (package.height(), all.get(target).and_then(Package::height));
            if !test_only && matches!(heights, (Some(own), Some(its)) if its > own) {
                fault(
                    name,
                    format!("`{name}` depends on `{target}`, which is on a floor above it"),
                );
            }
        }
    }
    Ok(faults)
}

/// Finds what the table has and the workspace does not (D1).
///
/// # Errors
/// Those of [`check`].
pub fn check_unused(metadata: &Value) -> Result<Vec<Fault>> {
    let all = packages(metadata)?;
    let mut faults = Vec::new();
    for (name, allowed) in EDGES {
        let Some(package) = all.get(name) else {
            let what = format!("the table has `{name}`, and there is no such crate");
            faults.push(Fault::new("edges.rs", 0, RULE, what));
            continue;
        };
        let is_used = |target: &str| {
            let mut needs = package.needs.iter();
            needs.any(|(one, test_only)| *one == target && !test_only)
        };
        for target in allowed.iter().filter(|target| !is_used(target)) {
            let what = format!("the table lets `{name}` depend on `{target}`, and it does not");
            faults.push(Fault::new("edges.rs", 0, RULE, what));
        }
        let is_outside = package.manifest.is_some() && package.height().is_none();
        if is_outside && *name != "xtask" {
            let what = format!("crate `{name}` lies on no floor");
            faults.push(Fault::new("edges.rs", 0, RULE, what));
        }
    }
    Ok(faults)
}

/// Checks the rows of ARCHITECTURE.md, ``| floor | [`crate`](floor/crate/…) | … | `a`, `b` |``, against the table (D5).
pub fn check_document(text: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut seen = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let (Some(floor), Some(link), Some(needs)) = (cells.first(), cells.get(1), cells.get(3))
        else {
            continue;
        };
        let Some((name, path)) = link
            .strip_prefix("[`")
            .and_then(|link| link.split_once("`]("))
        else {
            continue;
        };
        if !floors::FLOORS.contains(floor) {
            continue;
        }
        seen.push(name);
        let mut fault =
            |what: String| faults.push(Fault::new("ARCHITECTURE.md", index + 1, RULE, what));
        if !path.starts_with(&format!("{floor}/{name}/")) {
            fault(format!("`{name}` does not lie in {floor}/{name}"));
        }
        let Some((_, allowed)) = EDGES.iter().find(|(row, _)| *row == name) else {
            fault(format!("there is no crate `{name}`"));
            continue;
        };
        let mut said: Vec<&str> = needs.split('`').skip(1).step_by(2).collect();
        let mut allowed = allowed.to_vec();
        said.sort_unstable();
        allowed.sort_unstable();
        if said != allowed && !needs.starts_with("all but") {
            fault(format!(
                "`{name}` may depend on {allowed:?}, and its row says {said:?}"
            ));
        }
    }
    let missing = EDGES.iter().map(|(name, _)| *name);
    let missing = missing.filter(|name| *name != "xtask" && !seen.contains(name));
    faults.extend(missing.map(|name| {
        let what = format!("the table of crates has no row for `{name}`");
        Fault::new("ARCHITECTURE.md", 0, RULE, what)
    }));
    faults
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
    fn a_floor_above_fires_whatever_the_table_says() {
        let placed = |analysis: &str, trace: &str| {
            json!({"packages": [
                {"name": "skinflint-analysis", "manifest_path": analysis,
                 "dependencies": [{"name": "skinflint-trace", "kind": null}]},
                {"name": "skinflint-trace", "manifest_path": trace, "dependencies": []},
            ]})
        };
        let ground = "/r/ground/trace/Cargo.toml";
        let down = placed("/r/evidence/analysis/Cargo.toml", ground);
        assert!(check(&down).unwrap().is_empty());
        let up = placed("/r/ground/analysis/Cargo.toml", "/r/lab/trace/Cargo.toml");
        assert_eq!(check(&up).unwrap().len(), 1);
        let outside = placed("/r/attic/analysis/Cargo.toml", ground);
        let said = check_unused(&outside).unwrap();
        assert!(said.iter().any(|fault| fault.what.contains("no floor")));
    }

    #[test]
    fn an_edge_that_is_not_used_fires() {
        let said = check_unused(&workspace(
            "skinflint-symbols",
            "skinflint-trace",
            json!("dev"),
        ));
        let said = said.unwrap();
        let told = |what: &str| said.iter().any(|fault| fault.what.contains(what));
        assert!(told("lets `symbols` depend on `trace`"));
        assert!(told("the table has `view`"));
        let used = check_unused(&workspace(
            "skinflint-symbols",
            "skinflint-trace",
            json!(null),
        ));
        let used = used.unwrap();
        assert!(
            !used
                .iter()
                .any(|fault| fault.what.contains("lets `symbols`"))
        );
    }

    #[test]
    fn a_document_that_says_otherwise_fires() {
        let said = |row: &str| {
            let faults = check_document(row);
            let in_row = faults.into_iter().filter(|fault| fault.line > 0);
            in_row
                .map(|fault| fault.what)
                .collect::<Vec<_>>()
                .join("; ")
        };
        let row = |floor: &str, needs: &str| {
            said(&format!(
                "| {floor} | [`pages`](engines/pages/src/lib.rs) | runs | {needs} |"
            ))
        };
        assert_eq!(row("engines", "`base`"), "");
        assert!(row("ground", "`base`").contains("does not lie in ground/pages"));
        assert!(row("engines", "nothing of ours").contains("may depend on [\"base\"]"));
        assert!(row("engines", "`base`, `sizes`").contains("its row says"));
        assert!(
            said("| lab | [`attic`](lab/attic/src/lib.rs) | old | nothing |")
                .contains("no crate `attic`")
        );
        let missing = check_document("");
        assert!(
            missing
                .iter()
                .any(|fault| fault.what.contains("no row for `base`"))
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
