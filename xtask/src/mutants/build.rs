//! Builds the rewritten crates, and finds the mutants that do not compile.
//!
//! ```text
//!   candidates ──► rewrite ──► cargo build --lib ──► errors ──► the mutants they lie in are dropped ─┐
//!                     ▲────────────────────────────────────────────────────────────────────────────┘
//!              ──► the first COUNT that are left ──► cargo test --no-run ──► binaries
//! ```
//!
//! B1  An error is blamed on the innermost mutant around one of its spans, or on those in the lines it names; an
//!     error that touches none ends the run with the compiler's words, since the copy itself must build.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::copy::Copy;
use super::points::Source;
use super::rewrite::{Edit, Placed, rewrite};

const RUNTIME: &str = include_str!("runtime.rs");

/// A crate whose source is rewritten in part.
pub struct Mutated {
    pub package: String,
    /// The crate's folder, relative to the repository.
    pub dir: PathBuf,
    pub sources: Vec<Source>,
}

/// An executable with tests.
#[derive(Clone, Debug)]
pub struct Binary {
    pub package: String,
    pub target: String,
    pub path: PathBuf,
    /// The folder in which cargo would start it.
    pub folder: PathBuf,
}

/// Writes the crates with these edits, by file.
///
/// # Errors
/// If a file cannot be written.
pub fn write(
    copy: &Copy,
    crates: &[Mutated],
    edits: &BTreeMap<PathBuf, Vec<Edit>>,
) -> Result<BTreeMap<PathBuf, (String, Vec<Placed>)>> {
    let mut written = BTreeMap::new();
    for mutated in crates {
        let src = mutated.dir.join("src");
        copy.put(&src.join("__mutant.rs"), RUNTIME.as_bytes())?;
        for source in &mutated.sources {
            let none = Vec::new();
            let (mut text, placed) =
                rewrite(&source.text, edits.get(&source.file).unwrap_or(&none));
            if [src.join("lib.rs"), src.join("main.rs")].contains(&source.file) {
                text.push_str(
                    "\n#[doc(hidden)]\n#[allow(missing_docs, dead_code)]\nmod __mutant;\n",
                );
            }
            copy.put(&source.file, text.as_bytes())?;
            written.insert(source.file.clone(), (text, placed));
        }
        lend_to_tests(copy, &mutated.dir)?;
    }
    Ok(written)
}

/// Copies the module that asks for mutants to tests that include a source file by `#[path]`.
fn lend_to_tests(copy: &Copy, dir: &Path) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(copy.root.join(dir).join("tests")) else {
        return Ok(());
    };
    for entry in entries {
        let path = entry?.path();
        let (root, up) = if path.is_dir() {
            (path.join("main.rs"), "../../src/")
        } else {
            (path.clone(), "../src/")
        };
        let Ok(text) = std::fs::read_to_string(&root) else {
            continue;
        };
        if text.contains(&format!("#[path = \"{up}")) && !text.contains("__mutant") {
            let module = format!("\n#[path = \"{up}__mutant.rs\"]\nmod __mutant;\n");
            std::fs::write(&root, text + &module)?;
        }
    }
    Ok(())
}

/// Builds only the libraries; returns the numbers of the mutants that do not compile.
///
/// # Errors
/// If there is no cargo, or an error that no mutant is to blame for (B1).
pub fn faulty(
    copy: &Copy,
    packages: &[String],
    features: &[String],
    written: &BTreeMap<PathBuf, (String, Vec<Placed>)>,
) -> Result<BTreeSet<u32>> {
    let mut arguments = vec!["build".to_owned(), "--lib".into(), "--keep-going".into()];
    arguments.extend(features.iter().cloned());
    let (messages, success, words) = cargo(copy, &arguments, packages)?;
    let mut blamed = BTreeSet::new();
    let mut others = String::new();
    for message in &messages {
        let message = &message["message"];
        if message["level"] != "error" {
            continue;
        }
        let spans = message["spans"].as_array().cloned().unwrap_or_default();
        if spans.is_empty() {
            continue;
        }
        let found = blame(&spans, written);
        if found.is_empty() {
            others.push_str(message["rendered"].as_str().unwrap_or(""));
        }
        blamed.extend(found);
    }
    if !success && blamed.is_empty() {
        bail!("the copy does not build, and no mutant is to blame:\n{others}{words}");
    }
    Ok(blamed)
}

fn blame(spans: &[Value], written: &BTreeMap<PathBuf, (String, Vec<Placed>)>) -> BTreeSet<u32> {
    let mut places = Vec::new();
    for span in spans {
        let file = PathBuf::from(span["file_name"].as_str().unwrap_or(""));
        let from = span["byte_start"].as_u64().unwrap_or(0) as usize;
        let to = span["byte_end"].as_u64().unwrap_or(0) as usize;
        if let Some((text, placed)) = written.get(&file) {
            let around = placed
                .iter()
                .filter(|place| place.range.start <= from && to <= place.range.end)
                .min_by_key(|place| place.range.len());
            if let Some(place) = around {
                return BTreeSet::from([place.number]);
            }
            places.push((text, placed, from, to));
        }
    }
    // No mutant is around it: it is one of those inside the lines it names.
    let mut inside = BTreeSet::new();
    for (text, placed, from, to) in places {
        let begin = text[..from].rfind('\n').unwrap_or(0);
        let end = text[to..].find('\n').map_or(text.len(), |more| to + more);
        let within = |place: &&Placed| begin <= place.range.start && place.range.start < end;
        inside.extend(placed.iter().filter(within).map(|place| place.number));
    }
    inside
}

/// Builds the tests of `packages`, or of one of their targets, and returns the executables that hold them.
///
/// # Errors
/// What cargo printed.
pub fn tests(copy: &Copy, packages: &[String], arguments: &[String]) -> Result<Vec<Binary>> {
    let mut all = vec!["test".to_owned(), "--no-run".into()];
    all.extend(arguments.iter().cloned());
    let (messages, success, words) = cargo(copy, &all, packages)?;
    if !success {
        let errors: String = messages
            .iter()
            .filter(|message| message["message"]["level"] == "error")
            .filter_map(|message| message["message"]["rendered"].as_str())
            .collect();
        bail!("the tests of the copy do not build:\n{errors}{words}");
    }
    let mut binaries = Vec::new();
    for message in messages {
        let Some(path) = message["executable"].as_str() else {
            continue;
        };
        if message["profile"]["test"] != true {
            continue;
        }
        let manifest = Path::new(message["manifest_path"].as_str().unwrap_or(""));
        let folder = manifest.parent().unwrap_or(Path::new("")).to_path_buf();
        binaries.push(Binary {
            package: folder
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            target: message["target"]["name"].as_str().unwrap_or("").into(),
            path: path.into(),
            folder,
        });
    }
    Ok(binaries)
}

/// Runs cargo over packages of the copy; returns its messages, whether it succeeded, and what else it printed.
///
/// # Errors
/// If there is no cargo.
pub fn cargo(
    copy: &Copy,
    arguments: &[String],
    packages: &[String],
) -> Result<(Vec<Value>, bool, String)> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(arguments)
        .args(["--locked", "--message-format=json"])
        .args(packages.iter().flat_map(|package| ["-p", package.as_str()]))
        .current_dir(&copy.root)
        .env("CARGO_TARGET_DIR", &copy.target)
        .env_remove("RUSTFLAGS")
        .stdin(Stdio::null())
        .output()
        .context("cargo cannot be started")?;
    let messages = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok((messages, output.status.success(), words))
}
