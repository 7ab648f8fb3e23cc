//! The tests that prove each crate: reads, checks and shows tests/proofs.toml.
//!
//! ```text
//!   tests/proofs.toml ─► Map ─┬─► check: crates, test targets and Make's targets exist ─► faults of tidy
//!                             ├─► table ─► HACKING.md, between two comments
//!                             └─► quick.rs: what to run
//! ```
//!
//! P1  Every crate of the workspace is in the map once, and only those.
//! P2  Whatever it names exists: a package, its test target, a target of the Makefile, a file.
//! P3  HACKING.md has the table as this file writes it; `cargo xtask proofs --write` puts it there.
//!
//! Not here: how proofs are run (`quick.rs`).

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::tidy::Fault;

/// The path of the map, from the root of the repository.
pub const FILE: &str = "tests/proofs.toml";
const SHOWN_IN: &str = "HACKING.md";
const RULE: &str = "proofs";
const BEGIN: &str = "<!-- tests/proofs.toml, by `cargo xtask proofs --write` -->\n";
const END: &str = "<!-- end of tests/proofs.toml -->\n";

/// The proofs of one crate.
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields)]
pub struct Proofs {
    /// The tests that `quick` runs, cheapest first.
    pub quick: Vec<String>,
    /// Further tests of `make test`.
    #[serde(default)]
    pub test: Vec<String>,
    /// Targets of the Makefile.
    #[serde(default)]
    pub make: Vec<String>,
    /// What its tests need from the machine.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Files and folders outside the crate that belong to it.
    #[serde(default)]
    pub files: Vec<String>,
}

/// The proofs by crate, without the prefix.
pub type Map = BTreeMap<String, Proofs>;

/// Reads the map.
///
/// # Errors
/// If it is missing, or not in this form; the error names the line.
pub fn read(root: &Path) -> Result<Map> {
    let text = std::fs::read_to_string(root.join(FILE)).context(FILE)?;
    toml::from_str(&text).context(FILE)
}

/// Returns the crate's name without our prefix.
pub fn short(package: &str) -> &str {
    package.strip_prefix("skinflint-").unwrap_or(package)
}

/// One proof: a package, and which of its tests. `None` means all of them.
#[derive(Debug, PartialEq, Eq)]
pub struct Proof<'a> {
    /// The package's whole name.
    pub package: &'a str,
    /// `lib`, `bins`, or the name of a test target.
    pub target: Option<&'a str>,
}

impl<'a> Proof<'a> {
    /// Reads `PACKAGE` or `PACKAGE:TARGET`.
    pub fn parse(text: &'a str) -> Proof<'a> {
        match text.split_once(':') {
            Some((package, target)) => Proof {
                package,
                target: Some(target),
            },
            None => Proof {
                package: text,
                target: None,
            },
        }
    }

    /// Returns the features that cargo must be told for it; `Err` says what does not exist.
    pub fn features(&self, metadata: &Value) -> Result<Vec<String>, String> {
        let package = packages(metadata).find(|package| package["name"] == self.package);
        let package = package.ok_or_else(|| format!("no package `{}`", self.package))?;
        let Some(wanted) = self.target else {
            return Ok(Vec::new());
        };
        let kind = match wanted {
            "lib" => "lib",
            "bins" => "bin",
            _ => "test",
        };
        let is_it = |target: &&Value| {
            let kinds = target["kind"].as_array().into_iter().flatten();
            let named = kind != "test" || target["name"] == wanted;
            named && kinds.filter_map(Value::as_str).any(|k| k == kind)
        };
        let target = package["targets"]
            .as_array()
            .into_iter()
            .flatten()
            .find(is_it);
        let target = target.ok_or_else(|| format!("`{}` has no test `{wanted}`", self.package))?;
        let features = target["required-features"].as_array().into_iter().flatten();
        Ok(features
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect())
    }
}

fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().into_iter().flatten()
}

/// Checks P1 to P3 of the repository at `root`.
///
/// # Errors
/// If a file cannot be read.
pub fn check(root: &Path, metadata: &Value) -> Result<Vec<Fault>> {
    let map = match read(root) {
        Ok(map) => map,
        Err(error) => return Ok(vec![fault(format!("{error:#}"))]),
    };
    let makefile = std::fs::read_to_string(root.join("Makefile")).context("Makefile")?;
    let shown = std::fs::read_to_string(root.join(SHOWN_IN)).context(SHOWN_IN)?;
    let mut faults = names(&map, metadata, &makefile, &|file| root.join(file).exists());
    if !shown.contains(&format!("{BEGIN}{}{END}", table(&map))) {
        let what = format!("its table is not that of {FILE}: `cargo xtask proofs --write`");
        faults.push(Fault::new(SHOWN_IN, 0, RULE, what));
    }
    Ok(faults)
}

fn fault(what: String) -> Fault {
    Fault::new(FILE, 0, RULE, what)
}

/// Checks P1 and P2.
fn names(map: &Map, metadata: &Value, makefile: &str, exists: &dyn Fn(&str) -> bool) -> Vec<Fault> {
    let crates: Vec<&str> = packages(metadata)
        .filter_map(|package| package["name"].as_str().map(short))
        .collect();
    let mut faults = Vec::new();
    let missing = crates.iter().filter(|name| !map.contains_key(**name));
    faults.extend(missing.map(|name| fault(format!("crate `{name}` has no proofs: add [{name}]"))));
    for (name, proofs) in map {
        if !crates.contains(&name.as_str()) {
            faults.push(fault(format!("[{name}]: there is no such crate")));
        }
        if proofs.quick.is_empty() {
            faults.push(fault(format!(
                "[{name}]: nothing proves it in `make quick`"
            )));
        }
        for proof in proofs.quick.iter().chain(&proofs.test) {
            if let Err(what) = Proof::parse(proof).features(metadata) {
                faults.push(fault(format!("[{name}]: {what}")));
            }
        }
        for target in &proofs.make {
            let rule = format!("{target}:");
            if !makefile.lines().any(|line| line.starts_with(&rule)) {
                faults.push(fault(format!(
                    "[{name}]: the Makefile has no target `{target}`"
                )));
            }
        }
        let gone = proofs.files.iter().filter(|file| !exists(file));
        faults.extend(gone.map(|file| fault(format!("[{name}]: {file} does not exist"))));
    }
    faults
}

/// Renders the map as a table of Markdown.
fn table(map: &Map) -> String {
    let mut out = String::from(
        "| crate | `make quick` | also in `make test` | further | needs |\n|---|---|---|---|---|\n",
    );
    let code = |list: &[String], before: &str| {
        let all = list.iter().map(|name| format!("`{before}{}`", short(name)));
        all.collect::<Vec<_>>().join(", ")
    };
    for (name, proofs) in map {
        let needs = proofs.needs.join(", ");
        let (quick, test) = (code(&proofs.quick, ""), code(&proofs.test, ""));
        let make = code(&proofs.make, "make ");
        out += &format!("| {name} | {quick} | {test} | {make} | {needs} |\n");
    }
    out.replace("|  |", "| |").replace("|  |", "| |")
}

/// Puts the table into HACKING.md (P3).
///
/// # Errors
/// If a file cannot be read or written, or HACKING.md has no place for it.
pub fn write(root: &Path) -> Result<()> {
    let table = table(&read(root)?);
    let path = root.join(SHOWN_IN);
    let text = std::fs::read_to_string(&path).context(SHOWN_IN)?;
    let place = || format!("{SHOWN_IN}: no {} … {}", BEGIN.trim_end(), END.trim_end());
    let (before, rest) = text.split_once(BEGIN).with_context(place)?;
    let (_, after) = rest.split_once(END).with_context(place)?;
    std::fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).context(SHOWN_IN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn metadata() -> Value {
        json!({"packages": [
            {"name": "skinflint-trace", "targets": [
                {"name": "skinflint_trace", "kind": ["lib"]},
                {"name": "damage", "kind": ["test"]},
                {"name": "heavy", "kind": ["test"], "required-features": ["host"]},
                {"name": "bench", "kind": ["example"]},
            ]},
            {"name": "xtask", "targets": [{"name": "xtask", "kind": ["bin"]}]},
        ]})
    }

    fn faults(map: &str) -> Vec<String> {
        let map: Map = toml::from_str(map).expect("a map");
        let found = names(&map, &metadata(), ".PHONY: all\nall: x\n", &|file| {
            file == "tests"
        });
        found.into_iter().map(|fault| fault.what).collect()
    }

    #[test]
    fn what_exists_is_silent() {
        let map = "[trace]\nquick = ['skinflint-trace:lib', 'skinflint-trace:damage', 'xtask']\n\
                   make = ['all']\nfiles = ['tests']\n[xtask]\nquick = ['xtask:bins']\n";
        assert_eq!(faults(map), [""; 0]);
    }

    #[test]
    fn each_name_that_does_not_exist_fires() {
        let rest = "[xtask]\nquick = ['xtask']\n";
        for (map, says) in [
            ("", "crate `trace` has no proofs"),
            ("[trace]\nquick = []\n", "nothing proves it"),
            (
                "[trace]\nquick = ['skinflint-tracer']\n",
                "no package `skinflint-tracer`",
            ),
            (
                "[trace]\nquick = ['skinflint-trace:damages']\n",
                "has no test `damages`",
            ),
            (
                "[trace]\nquick = ['skinflint-trace:bench']\n",
                "has no test `bench`",
            ),
            (
                "[trace]\nquick = ['skinflint-trace:bins']\n",
                "has no test `bins`",
            ),
            (
                "[trace]\nquick = ['xtask']\ntest = ['attic']\n",
                "no package `attic`",
            ),
            (
                "[trace]\nquick = ['xtask']\nmake = ['al']\n",
                "no target `al`",
            ),
            (
                "[trace]\nquick = ['xtask']\nfiles = ['test']\n",
                "test does not exist",
            ),
            (
                "[trace]\nquick = ['xtask']\n[attic]\nquick = ['xtask']\n",
                "no such crate",
            ),
        ] {
            let found = faults(&format!("{map}{rest}"));
            assert_eq!(found.len(), 1, "{map}: {found:?}");
            assert!(found[0].contains(says), "{map}: {found:?}");
        }
        assert!(toml::from_str::<Map>("[trace]\nquick = []\nslow = []\n").is_err());
    }

    #[test]
    fn features_that_a_test_requires_are_told() {
        let features = |proof| Proof::parse(proof).features(&metadata());
        assert_eq!(
            features("skinflint-trace:heavy"),
            Ok(vec!["host".to_owned()])
        );
        assert_eq!(features("skinflint-trace:damage"), Ok(Vec::new()));
    }

    #[test]
    fn the_table_has_a_row_for_each_crate() {
        let map: Map =
            toml::from_str("[b]\nquick = ['skinflint-b:lib']\n[a]\nquick = ['c']\nmake = ['x']\n")
                .expect("a map");
        let rows: Vec<String> = table(&map).lines().skip(2).map(str::to_owned).collect();
        assert_eq!(
            rows,
            ["| a | `c` | | `make x` | |", "| b | `b:lib` | | | |"]
        );
    }
}
