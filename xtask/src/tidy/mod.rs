//! The rules of the repository, run over every tracked file.
//!
//! ```text
//!   path + text ──► text::check   (every text file: machine paths, hosts, length)
//!               ├─► clocks::check (tests: sleeps, judged clocks)
//!               ├─► rust::check   (*.rs, over source::Source: code and comments told apart)
//!               ├─► orders::check (*.rs of crates with models: what each ordering is proved by)
//!               ├─► links::check  (*.md)
//!               └─► glossary::check (GLOSSARY.md: each word once)
//!   all *.rs    ──► circles::check (files of a crate that name each other in a circle)
//!               ├─► labels::check (invariants: defined once, cited with their file)
//!               └─► safe::check (safe functions of gc and cache: each in the audit)
//!   all *.md    ──► book::check (docs/SUMMARY.md and the chapters; the length of README.md)
//!   workspace   ──► edges::check  (cargo metadata against the table of floors)
//!               └─► proofs::check (cargo metadata against tests/proofs.toml, and that against HACKING.md)
//! ```
//!
//! T1  A rule is a pure function from a path and a text to faults; only this file touches the disk.
//! T2  All faults are reported, sorted by file and line, never only the first.
//! T3  Every rule's own test shows that it fires on a bad sample and stays silent on a good one.
//!
//! Not here: what rustfmt and clippy already check.

mod book;
mod circles;
mod clocks;
mod edges;
mod glossary;
mod labels;
mod links;
mod orders;
mod rust;
mod safe;
mod source;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// One breach of one rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Fault {
    /// The file, relative to the root of the repository.
    pub file: String,
    /// The line, from 1; 0 if the fault concerns the whole file.
    pub line: usize,
    /// The rule's name.
    pub rule: &'static str,
    /// What is wrong and what to do.
    pub what: String,
}

impl Fault {
    pub fn new(file: &str, line: usize, rule: &'static str, what: impl Into<String>) -> Self {
        Fault {
            file: file.to_owned(),
            line,
            rule,
            what: what.into(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault {
            file,
            line,
            rule,
            what,
        } = self;
        write!(f, "{file}:{line}: [{rule}] {what}")
    }
}

/// Checks the repository at `root`.
///
/// # Errors
/// If the list of files or the crate graph cannot be read.
pub fn run(root: &Path) -> Result<Vec<Fault>> {
    let files = tracked_files(root)?;
    let mut faults = Vec::new();
    let models = models(root, &files);
    let none = BTreeSet::new();
    for file in &files {
        // A tracked file that is missing from the work tree is git's business; one that is not UTF-8 is no text.
        let Ok(bytes) = std::fs::read(root.join(file)) else {
            continue;
        };
        let Ok(content) = String::from_utf8(bytes) else {
            continue;
        };
        faults.extend(check_file(root, file, &content));
        if file.ends_with(".rs") {
            let name = file.split('/').nth(1).unwrap_or_default();
            let models = models.get(name).unwrap_or(&none);
            faults.extend(orders::check(file, &content, models));
        }
    }
    let read = |file: &str| std::fs::read_to_string(root.join(file)).ok();
    faults.extend(circles::check(&files, &read));
    faults.extend(labels::check(&files, &read));
    faults.extend(safe::check(&files, &read));
    faults.extend(book::check(&files, &read));
    let metadata = workspace_metadata(root)?;
    faults.extend(edges::check(&metadata)?);
    faults.extend(edges::check_unused(&metadata)?);
    let architecture = std::fs::read_to_string(root.join("ARCHITECTURE.md"));
    faults.extend(edges::check_document(&architecture.unwrap_or_default()));
    faults.extend(crate::proofs::check(root, &metadata)?);
    faults.sort();
    Ok(faults)
}

/// Returns the models of each crate that has any.
fn models(root: &Path, files: &[String]) -> BTreeMap<String, BTreeSet<String>> {
    let mut models: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files {
        let Some(name) = orders::models_of(file) else {
            continue;
        };
        if let Ok(content) = std::fs::read_to_string(root.join(file)) {
            let of_crate = models.entry(name.to_owned()).or_default();
            of_crate.extend(orders::tests(&content));
        }
    }
    models
}

fn check_file(root: &Path, file: &str, content: &str) -> Vec<Fault> {
    let mut faults = text::check(file, content);
    faults.extend(clocks::check(file, content));
    if file.ends_with(".rs") {
        faults.extend(rust::check(file, content));
    }
    if file == "GLOSSARY.md" {
        faults.extend(glossary::check(file, content));
    }
    if file.ends_with(".md") {
        let files = links::Files {
            exists: &|target| root.join(target).exists(),
            read: &|target| std::fs::read_to_string(root.join(target)).ok(),
        };
        faults.extend(links::check(file, content, &files));
    }
    faults
}

/// Returns tracked files and new ones that are not ignored: a fault is to be seen before it is committed.
fn tracked_files(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .context("cannot run git: install it, or run this inside a clone")?;
    if !output.status.success() {
        bail!(
            "git ls-files in {}: {}",
            root.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let list = String::from_utf8_lossy(&output.stdout);
    let files: Vec<String> = list
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    if files.is_empty() {
        bail!("no tracked files in {}: wrong --root?", root.display());
    }
    Ok(files)
}

/// Returns what cargo reports about the packages of the workspace.
///
/// # Errors
/// If cargo cannot be run.
pub fn workspace_metadata(root: &Path) -> Result<serde_json::Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!(
            "cargo metadata: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")
}
