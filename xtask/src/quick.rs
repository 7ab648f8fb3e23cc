//! `cargo xtask quick`: the rules, and the proofs of what changed.
//!
//! ```text
//!   git diff BASE, new files ─► crates ─► fmt ─► tidy ─► clippy -p … ─► cargo test, a package at a time ─► seconds of each
//! ```
//!
//! Q1  What changed is what differs from BASE: commits, the index, the work tree and files that are not added yet.
//!     BASE is the commit at which this branch left origin/main; on main itself, the last commit but one.
//! Q2  A part that fails does not keep the next one from running; exit 1 if one failed.
//! Q3  A change that has no proof here is named: quick never claims more than it ran.
//! Q4  Seconds are printed, and nothing is judged by them.
//!
//! Not here: which tests prove a crate (tests/proofs.toml, by `proofs.rs`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::proofs::{self, Map, Proof};
use crate::tidy;

/// Runs everything that is quick; returns whether all of it held.
///
/// # Errors
/// If git or cargo cannot be run, or there is no such base.
pub fn run(root: &Path, base: Option<&str>) -> Result<bool> {
    let metadata = tidy::workspace_metadata(root)?;
    let map = proofs::read(root)?;
    let base = base_of(root, base)?;
    let changed = changed(root, &base)?;
    let (crates, others) = sorted(&changed, &folders(&metadata)?, &map);
    println!(
        "since {}: {} files of {}",
        &base[..base.len().min(10)],
        changed.len(),
        listed(&crates)
    );
    if !others.is_empty() {
        println!(
            "of no crate, and not proved here (make test): {}",
            listed(&others)
        );
    }
    let mut parts = Parts::default();
    parts.time("fmt", || formatted(root));
    parts.time("tidy", || {
        Ok(crate::tidied(root) == std::process::ExitCode::SUCCESS)
    });
    if !crates.is_empty() {
        let packages = crates
            .iter()
            .flat_map(|name| ["-p".to_owned(), package(name)]);
        let clippy = ["clippy", "--locked", "--all-targets"]
            .map(str::to_owned)
            .into_iter()
            .chain(packages);
        let words = clippy.chain(["--", "-D", "warnings"].map(str::to_owned));
        parts.time("clippy", || cargo(root, words));
    }
    for test in tests(&crates, &map, &metadata)? {
        parts.time(&test.shown(), || cargo(root, test.words()));
    }
    Ok(parts.print())
}

fn package(name: &str) -> String {
    match name {
        "xtask" => name.to_owned(),
        _ => format!("skinflint-{name}"),
    }
}

fn listed(names: &BTreeSet<String>) -> String {
    match names.len() {
        0 => "no crate".to_owned(),
        _ => names
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", "),
    }
}

/// Parts that have run: name, seconds, whether it held.
#[derive(Default)]
struct Parts(Vec<(String, f64, bool)>);

impl Parts {
    fn time(&mut self, name: &str, part: impl FnOnce() -> Result<bool>) {
        println!("== {name}");
        let begun = Instant::now();
        let held = part().unwrap_or_else(|error| {
            println!("{error:#}");
            false
        });
        self.0
            .push((name.to_owned(), begun.elapsed().as_secs_f64(), held));
    }

    /// Prints the table; returns whether all parts held.
    fn print(&self) -> bool {
        println!();
        for (name, seconds, held) in &self.0 {
            println!(
                "{seconds:7.1} s  {:6}  {name}",
                if *held { "held" } else { "FAILED" }
            );
        }
        let all: f64 = self.0.iter().map(|part| part.1).sum();
        let failed = self.0.iter().filter(|part| !part.2).count();
        println!("{all:7.1} s  {} parts, {failed} failed", self.0.len());
        failed == 0
    }
}

fn cargo<W: AsRef<std::ffi::OsStr>>(
    root: &Path,
    words: impl IntoIterator<Item = W>,
) -> Result<bool> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo).args(words).current_dir(root).status();
    Ok(status.context("cannot run cargo")?.success())
}

/// Reports whether the code of each workspace is formatted: there is a Cargo.lock for each.
fn formatted(root: &Path) -> Result<bool> {
    let locks = git(root, &["ls-files", "Cargo.lock", "*/Cargo.lock"])?;
    let locks = locks.context("git does not list files")?;
    let manifests = locks.lines().filter_map(|lock| lock.strip_suffix(".lock"));
    let mut held = true;
    for manifest in manifests.map(|name| format!("{name}.toml")) {
        held &= cargo(
            root,
            ["fmt", "--all", "--check", "--manifest-path", &manifest],
        )?;
    }
    Ok(held)
}

fn git(root: &Path, words: &[&str]) -> Result<Option<String>> {
    let output = Command::new("git").args(words).current_dir(root).output();
    let output = output.context("cannot run git: install it, or run this inside a clone")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(output.status.success().then_some(said))
}

/// Returns the commit that changes are counted from (Q1).
fn base_of(root: &Path, named: Option<&str>) -> Result<String> {
    let one = |words: &[&str]| {
        Ok::<_, anyhow::Error>(git(root, words)?.map(|text| text.trim().to_owned()))
    };
    if let Some(name) = named {
        let Some(base) = one(&["merge-base", name, "HEAD"])? else {
            bail!(
                "--base {name}: no commit that HEAD has in common with it; name a branch or a commit"
            );
        };
        return Ok(base);
    }
    let head = one(&["rev-parse", "HEAD"])?;
    if let Some(base) = one(&["merge-base", "origin/main", "HEAD"])?
        && Some(&base) != head.as_ref()
    {
        return Ok(base);
    }
    match one(&["rev-parse", "--verify", "--quiet", "HEAD~1"])? {
        Some(base) => Ok(base),
        None => head.context("no commit yet: nothing has changed"),
    }
}

fn changed(root: &Path, base: &str) -> Result<Vec<String>> {
    let differ = git(root, &["diff", "--name-only", "--no-renames", "-z", base])?;
    let new = git(root, &["ls-files", "--others", "--exclude-standard", "-z"])?;
    let (Some(differ), Some(new)) = (differ, new) else {
        bail!("git cannot say what differs from {base}");
    };
    let all = differ.split('\0').chain(new.split('\0'));
    Ok(all
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect())
}

/// Returns each crate's folder, from the root, with a `/` at its end.
fn folders(metadata: &Value) -> Result<Vec<(String, String)>> {
    let root = metadata["workspace_root"]
        .as_str()
        .context("cargo metadata: no root")?;
    let mut out = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().context("package with no name")?;
        let manifest = PathBuf::from(package["manifest_path"].as_str().context("no manifest")?);
        let folder = manifest
            .parent()
            .and_then(|path| path.strip_prefix(root).ok());
        let folder = folder.context("a package outside the workspace")?;
        out.push((
            proofs::short(name).to_owned(),
            format!("{}/", folder.display()),
        ));
    }
    Ok(out)
}

/// Returns the crates of these files, and the files that belong to none (Q3).
fn sorted(
    files: &[String],
    folders: &[(String, String)],
    map: &Map,
) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut crates, mut others) = (BTreeSet::new(), BTreeSet::new());
    for file in files {
        let inside = folders
            .iter()
            .filter(|(_, folder)| file.starts_with(folder));
        let mut found: Vec<&String> = inside.map(|(name, _)| name).collect();
        let owns = |own: &String| {
            file == own
                || file
                    .strip_prefix(own.as_str())
                    .is_some_and(|rest| rest.starts_with('/'))
        };
        found.extend(
            map.iter()
                .filter(|(_, proofs)| proofs.files.iter().any(owns))
                .map(|(name, _)| name),
        );
        if found.is_empty() {
            others.insert(file.clone());
        }
        crates.extend(found.into_iter().cloned());
    }
    (crates, others)
}

/// One run of `cargo test`: targets of one package with the same features.
#[derive(Debug, PartialEq, Eq)]
struct Test {
    package: String,
    features: Vec<String>,
    /// The targets; if empty, all that these features allow.
    targets: Vec<String>,
}

impl Test {
    fn words(&self) -> Vec<String> {
        let mut words = ["test", "--locked", "-p", &self.package]
            .map(str::to_owned)
            .to_vec();
        if !self.features.is_empty() {
            words.extend(["--features".to_owned(), self.features.join(",")]);
        }
        for target in &self.targets {
            match target.as_str() {
                "lib" | "bins" => words.push(format!("--{target}")),
                name => words.extend(["--test".to_owned(), name.to_owned()]),
            }
        }
        words
    }

    fn shown(&self) -> String {
        format!("cargo {}", self.words().join(" "))
    }
}

/// Returns the proofs of these crates, each once: a crate's own come first, then those taken from others.
fn tests(crates: &BTreeSet<String>, map: &Map, metadata: &Value) -> Result<Vec<Test>> {
    let mut out: Vec<Test> = Vec::new();
    let most = crates
        .iter()
        .filter_map(|name| map.get(name))
        .map(|proofs| proofs.quick.len())
        .max();
    // The cheapest of each crate come first, then the next ones.
    for place in 0..most.unwrap_or(0) {
        for name in crates {
            let proofs = map
                .get(name)
                .with_context(|| format!("{}: no [{name}]", proofs::FILE))?;
            let Some(proof) = proofs.quick.get(place) else {
                continue;
            };
            let proof = Proof::parse(proof);
            let features = proof.features(metadata).map_err(anyhow::Error::msg)?;
            add(&mut out, &proof, features);
        }
    }
    Ok(out)
}

fn add(tests: &mut Vec<Test>, proof: &Proof<'_>, features: Vec<String>) {
    let known = tests
        .iter_mut()
        .find(|test| test.package == proof.package && test.features == features);
    match (known, proof.target) {
        (Some(known), None) => known.targets.clear(),
        (Some(known), Some(target)) => {
            if !known.targets.is_empty() && !known.targets.iter().any(|name| name == target) {
                known.targets.push(target.to_owned());
            }
        }
        (None, target) => tests.push(Test {
            package: proof.package.to_owned(),
            features,
            targets: target.map(str::to_owned).into_iter().collect(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn map() -> Map {
        toml::from_str(
            "[trace]\nquick = ['skinflint-trace', 'skinflint-cli:whole']\n\
             [cli]\nquick = ['skinflint-cli:heap', 'skinflint-cli:tabs', 'skinflint-cli:whole']\n\
             files = ['tests/programs', 'include/x.h']\n",
        )
        .expect("a map")
    }

    fn metadata() -> Value {
        let test = |name: &str| json!({"name": name, "kind": ["test"]});
        let tabs = json!({"name": "tabs", "kind": ["test"], "required-features": ["browsers"]});
        json!({"workspace_root": "/r", "packages": [
            {"name": "skinflint-trace", "manifest_path": "/r/ground/trace/Cargo.toml", "targets": [test("damage")]},
            {"name": "skinflint-cli", "manifest_path": "/r/faces/cli/Cargo.toml",
             "targets": [test("heap"), test("whole"), tabs]},
        ]})
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn files_belong_to_the_crate_of_their_folder_or_to_one_that_claims_them() {
        let files = [
            "ground/trace/src/lib.rs",
            "tests/programs/a.c",
            "tests/programs.md",
            "ground/tracer/x",
            "include/x.h",
        ];
        let folders = folders(&metadata()).expect("folders");
        let (crates, others) = sorted(&files.map(str::to_owned), &folders, &map());
        assert_eq!(crates, set(&["cli", "trace"]));
        assert_eq!(others, set(&["ground/tracer/x", "tests/programs.md"]));
        let (crates, _) = sorted(&[], &folders, &map());
        assert!(crates.is_empty());
    }

    #[test]
    fn each_proof_is_run_once_and_a_package_at_a_time() {
        let tests = tests(&set(&["cli", "trace"]), &map(), &metadata()).expect("tests");
        let shown: Vec<String> = tests.iter().map(Test::shown).collect();
        assert_eq!(
            shown,
            [
                "cargo test --locked -p skinflint-cli --test heap --test whole",
                "cargo test --locked -p skinflint-trace",
                "cargo test --locked -p skinflint-cli --features browsers --test tabs",
            ]
        );
    }

    #[test]
    fn all_of_a_package_is_not_narrowed_by_a_part_of_it() {
        let mut tests = Vec::new();
        for proof in ["p:a", "p", "p:b"] {
            add(&mut tests, &Proof::parse(proof), Vec::new());
        }
        assert_eq!(tests.len(), 1);
        assert_eq!(tests[0].shown(), "cargo test --locked -p p");
    }
}
