//! `skinflint cargo-test`, or `cargo skinflint test`: the tests of Rust packages, each held to its budgets.
//!
//! ```text
//!   cargo test --no-run ─► executables ─► --list ─► tests ─┐
//!   skinflint.toml, Cargo.toml, options ─► budgets ────────┴─► each test with budgets, in a process of its own:
//!                      `skinflint record -- EXECUTABLE TEST --exact` ─► check ─► 0, 3, 4, 1
//! ```
//!
//! G1  A test runs alone in its process: no other test's blocks are in its figures, and none runs beside it.
//! G2  What is wrong with budgets is told before a test is started.
//! G3  A name in a file of budgets that no test has is not decided, unless only some of the tests were asked for.
//! G4  What the harness takes to wait for the test is in no figure (check::harness): it is there in one run and not in the next.
//!
//! Not here: figures, the judge (`check`), which budgets are a test's (`check::suite`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args as ClapArgs;
use serde_json::Value;
use skinflint_check::suite::Suite;
use skinflint_check::{Budget, Checked, Subject, Verdict, harness};
use skinflint_view::units::plural;

use crate::check::{Folder, Limits, analysed, is_of_marks};
use crate::options::NameOptions;

pub const HELP: &str = "\
Examples:
  skinflint cargo-test                              # the same as: cargo skinflint test
  cargo skinflint test                              # budgets of skinflint.toml beside Cargo.toml
  cargo skinflint test --peak-live 1MiB             # the same budget for each test
  cargo skinflint test -p app --release -- cache::  # options of cargo test; tests with this in their name

A file of budgets:
  [test.\"*\"]
  peak-live = \"1 MiB\"
  [test.\"cache::tests::forgets\"]
  allocations = 200

Options of ours go first; all others are those of cargo test, and after -- come names. A test runs in a process of its own;
the test harness is in its figures.

Exit status: 0 every budget is held; 3 one is broken; 1 none is broken and a test or the build failed; 4 none is
broken and one is not decided; 2 wrong use.";

/// The file of budgets that lies beside a `Cargo.toml`.
const FILE: &str = "skinflint.toml";

#[derive(ClapArgs, Debug)]
pub struct CargoTestArgs {
    #[command(flatten)]
    pub limits: Limits,

    /// File of budgets by test [default: skinflint.toml beside the package's Cargo.toml, else [package.metadata.skinflint] in
    /// it]; options on the command line go before it
    #[arg(long, value_name = "FILE")]
    pub budgets: Option<PathBuf>,

    /// Print the verdicts as JSON: an array
    #[arg(long)]
    pub json: bool,

    /// Print only what is not held
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,

    #[command(flatten)]
    pub names: NameOptions,

    /// Options of cargo test; after --, names of tests or parts of them
    #[arg(
        value_name = "CARGO OPTIONS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub cargo: Vec<OsString>,
}

/// A test, or a whole executable that has a harness of its own.
struct Test {
    executable: PathBuf,
    package: PathBuf,
    /// What is printed before its name: that of the target.
    target: String,
    name: String,
    is_whole: bool,
    budgets: Vec<Budget>,
}

/// An executable of tests.
struct Executable {
    path: PathBuf,
    manifest: PathBuf,
    target: String,
}

/// Counts of what became of tests.
#[derive(Default)]
struct Tally {
    held: u64,
    broken: u64,
    failed: u64,
    undecided: u64,
}

impl Tally {
    /// Counts a test; returns whether all that was asked of it is so.
    fn count(&mut self, checked: &Checked) -> bool {
        let to = match (checked.verdict, &checked.failed) {
            (Some(Verdict::Broken), _) => &mut self.broken,
            (_, Some(_)) => &mut self.failed,
            (Some(Verdict::Held), None) => &mut self.held,
            (Some(Verdict::Undecided) | None, None) => &mut self.undecided,
        };
        *to += 1;
        checked.verdict == Some(Verdict::Held) && checked.failed.is_none()
    }

    fn status(&self) -> u8 {
        match self {
            Tally { broken: 1.., .. } => 3,
            Tally { failed: 1.., .. } => 1,
            Tally { undecided: 1.., .. } => 4,
            _ => 0,
        }
    }
}

/// Does what was asked. Returns the exit status.
///
/// # Errors
/// Whatever keeps it from being done.
pub fn cargo_test(args: &CargoTestArgs) -> Result<u8> {
    let own = args.limits.budgets().map_err(|why| anyhow!(why))?;
    if let Some(one) = own.iter().find(|one| one.limit.is_relative()) {
        bail!(
            "{}: there is no baseline here; give a limit by itself, such as 64MiB",
            one.said_by
        );
    }
    let named = match &args.budgets {
        Some(path) => Some(
            suite_of(path)?
                .with_context(|| format!("--budgets {}: there is no such file", path.display()))?,
        ),
        None => None,
    };
    let (cargo, filters) = split(&args.cargo, std::env::args_os());
    let Some(executables) = built(&cargo)? else {
        return Ok(1);
    };
    let mut tests = Vec::new();
    let mut unbound = 0;
    let mut tally = Tally::default();
    let mut by_package: BTreeMap<PathBuf, Vec<Executable>> = BTreeMap::new();
    for one in executables {
        by_package
            .entry(one.manifest.clone())
            .or_default()
            .push(one);
    }
    let mut all = Vec::new();
    for (manifest, executables) in by_package {
        let suite = match &named {
            Some(suite) => suite.clone(),
            None => beside(&manifest)?,
        };
        let mut names = Vec::new();
        for executable in &executables {
            for mut test in listed(executable)? {
                names.push((test.target.clone(), test.name.clone()));
                test.budgets = suite.budgets(&test.target, &test.name);
                test.budgets
                    .retain(|one| own.iter().all(|own| own.kind != one.kind));
                test.budgets.extend(own.iter().cloned());
                match filters.is_empty() || filters.iter().any(|part| test.name.contains(part)) {
                    true if test.budgets.is_empty() => unbound += 1,
                    true => tests.push(test),
                    false => {}
                }
            }
        }
        if named.is_none() {
            tally.undecided += misspelt(&suite, &names, &cargo, &filters);
        }
        all.extend(names);
    }
    if let Some(suite) = &named {
        tally.undecided += misspelt(suite, &all, &cargo, &filters);
    }
    if tests.is_empty() && tally.undecided == 0 {
        bail!(
            "no test has a budget ({}): give one such as --peak-live 1MiB, or write {FILE} beside Cargo.toml",
            plural(unbound, "test")
        );
    }
    let verdicts = held(args, &tests, &mut tally)?;
    told(args, &verdicts, &tally, unbound)?;
    Ok(tally.status())
}

/// Says which names of a suite no test has, and returns how many those are (G3).
fn misspelt(
    suite: &Suite,
    names: &[(String, String)],
    cargo: &[OsString],
    filters: &[String],
) -> u64 {
    const SOME: [&str; 7] = [
        "--lib",
        "--bin",
        "--bins",
        "--test",
        "--example",
        "--examples",
        "--doc",
    ];
    let is_some = |word: &OsString| {
        let word = word.to_string_lossy();
        SOME.contains(&word.split('=').next().unwrap_or_default())
    };
    if !filters.is_empty() || cargo.iter().any(is_some) {
        return 0;
    }
    let unknown = suite.unknown(names);
    for name in &unknown {
        say!("skinflint: budgets of {name:?}: no test is called so");
    }
    unknown.len() as u64
}

/// Splits the words for cargo from the names of tests. Clap keeps a `--` in the middle and swallows one at the begin: how
/// many words follow it is seen in all words of the command.
fn split(words: &[OsString], all: impl Iterator<Item = OsString>) -> (Vec<OsString>, Vec<String>) {
    let after = all.skip_while(|word| word != "--").skip(1).count();
    let at = words.len() - after.min(words.len());
    let (cargo, names) = words.split_at(at);
    let cargo = match cargo.split_last() {
        Some((last, rest)) if last == "--" => rest,
        _ => cargo,
    };
    let names = names.iter().map(|name| name.to_string_lossy().into_owned());
    (cargo.to_vec(), names.collect())
}

/// Builds the tests; `None` if they do not build, of which cargo has told.
fn built(words: &[OsString]) -> Result<Option<Vec<Executable>>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(&cargo);
    command
        .args([
            "test",
            "--no-run",
            "--message-format=json-render-diagnostics",
        ])
        .args(words)
        .stderr(Stdio::inherit());
    let done = command
        .output()
        .with_context(|| format!("{}: it cannot be started; install Rust", cargo.display()))?;
    if !done.status.success() {
        say!("skinflint: the tests do not build: nothing is held");
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&done.stdout);
    Ok(Some(text.lines().filter_map(executable).collect()))
}

/// Reads a line of cargo's.
fn executable(line: &str) -> Option<Executable> {
    let line: Value = serde_json::from_str(line).ok()?;
    if line["reason"] != "compiler-artifact" || line["profile"]["test"] != true {
        return None;
    }
    Some(Executable {
        path: line["executable"].as_str()?.into(),
        manifest: line["manifest_path"].as_str()?.into(),
        target: line["target"]["name"].as_str()?.to_owned(),
    })
}

/// Returns the budgets that lie beside a manifest, or in it.
fn beside(manifest: &Path) -> Result<Suite> {
    if let Some(suite) = suite_of(&manifest.with_file_name(FILE))? {
        return Ok(suite);
    }
    let text = std::fs::read_to_string(manifest)
        .with_context(|| format!("{}: it cannot be read", manifest.display()))?;
    let suite = Suite::of_manifest(&text, manifest).map_err(|why| anyhow!(why))?;
    Ok(suite.unwrap_or_default())
}

/// Reads a file of budgets; `None` if it is not there.
fn suite_of(path: &Path) -> Result<Option<Suite>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(error).with_context(|| format!("{}: it cannot be read", path.display()));
        }
    };
    let suite = Suite::read(&text, path).map_err(|why| anyhow!(why))?;
    if let Some(one) = suite.relative() {
        bail!(
            "{}: {}: there is no baseline here; give a limit by itself",
            one.said_by,
            one.kind
        );
    }
    Ok(Some(suite))
}

/// Returns the tests of an executable that are not ignored. One with a harness of its own is one test, called as its target.
fn listed(executable: &Executable) -> Result<Vec<Test>> {
    let package = executable.manifest.parent().unwrap_or(Path::new("."));
    let test = |name: &str, is_whole| Test {
        executable: executable.path.clone(),
        package: package.to_owned(),
        target: executable.target.clone(),
        name: name.to_owned(),
        is_whole,
        budgets: Vec::new(),
    };
    let list = |more: &[&str]| -> Result<Option<Vec<String>>> {
        let mut command = Command::new(&executable.path);
        command.arg("--list").args(more).stdin(Stdio::null());
        let done = of_package(&mut command, package, &executable.path)
            .output()
            .with_context(|| executable.path.display().to_string())?;
        let text = String::from_utf8_lossy(&done.stdout);
        Ok(names_of(&text).filter(|_| done.status.success()))
    };
    let Some(names) = list(&[])? else {
        return Ok(vec![test(&executable.target, true)]);
    };
    let ignored = list(&["--ignored"])?.unwrap_or_default();
    let wanted = names.iter().filter(|name| !ignored.contains(name));
    Ok(wanted.map(|name| test(name, false)).collect())
}

/// Reads the list of the standard harness: a line for each test, and at the end how many there are. `None` if it is none.
fn names_of(text: &str) -> Option<Vec<String>> {
    let last = text.lines().rfind(|line| !line.is_empty())?;
    let is_end = last.ends_with(" benchmarks") || last.ends_with(" benchmark");
    let tests = text.lines().filter_map(|line| line.strip_suffix(": test"));
    is_end.then(|| tests.map(str::to_owned).collect())
}

/// Sets what cargo sets for a test's process.
fn of_package<'a>(command: &'a mut Command, package: &Path, executable: &Path) -> &'a mut Command {
    let mut libraries: Vec<PathBuf> = executable
        .ancestors()
        .skip(1)
        .take(2)
        .map(PathBuf::from)
        .collect();
    if let Some(had) = std::env::var_os("LD_LIBRARY_PATH") {
        libraries.extend(std::env::split_paths(&had));
    }
    if let Ok(joined) = std::env::join_paths(libraries) {
        command.env("LD_LIBRARY_PATH", joined);
    }
    command
        .current_dir(package)
        .env("CARGO_MANIFEST_DIR", package)
}

/// Runs and judges the tests, one after another.
fn held(args: &CargoTestArgs, tests: &[Test], tally: &mut Tally) -> Result<Vec<Checked>> {
    let mut verdicts = Vec::new();
    for test in tests {
        let folder = Folder::new()?;
        let trace = folder.0.join("test.sft");
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["record", "--quiet", "-o"])
            .arg(&trace)
            .arg("--")
            .arg(&test.executable);
        if !test.is_whole {
            command.args([&test.name[..], "--exact", "--test-threads=1", "--nocapture"]);
        }
        let done = of_package(&mut command, &test.package, &test.executable)
            .stdin(Stdio::null())
            .output()?;
        let output = || {
            let out = String::from_utf8_lossy(&done.stdout);
            format!("{out}{}", String::from_utf8_lossy(&done.stderr))
        };
        let is_with_windows = test.budgets.iter().any(is_of_marks);
        let mut after = analysed(&trace, &args.names, is_with_windows)
            .map_err(|error| anyhow!("{}: {error:#}\n{}", test.name, output()))?;
        if !test.is_whole {
            harness::leave_out_waiting(&mut after.report);
        }
        let name = format!("{}: {}", test.target, test.name);
        let subject = Subject {
            report: &after.report,
            trace: &name,
        };
        let mut checked = skinflint_check::check(subject, None, &test.budgets);
        checked.program = name.clone();
        if !done.status.success() {
            checked.failed = Some(format!("the test failed ({})", done.status));
        }
        let is_held = tally.count(&checked);
        if !(args.json || args.quiet && is_held) {
            let mut out = io::stdout().lock();
            out.write_all(skinflint_check::text(&checked).as_bytes())?;
            if checked.failed.is_some() {
                for line in output().trim_end().lines() {
                    writeln!(out, "    {}", skinflint_view::clean(line))?;
                }
            }
        }
        verdicts.push(checked);
    }
    Ok(verdicts)
}

/// Prints what is to be known of all tests together.
fn told(args: &CargoTestArgs, verdicts: &[Checked], tally: &Tally, unbound: u64) -> Result<()> {
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, verdicts)?;
        writeln!(out)?;
        return Ok(());
    }
    writeln!(
        out,
        "{} held, {} broken, {} failed, {} not decided; {} without a budget, not run",
        plural(tally.held, "test"),
        tally.broken,
        tally.failed,
        tally.undecided,
        unbound
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(words: &str, all: &str) -> (Vec<String>, Vec<String>) {
        let words: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
        let all = all.split_whitespace().map(OsString::from);
        let (cargo, names) = split(&words, all);
        let cargo = cargo.iter().map(|word| word.to_string_lossy().into_owned());
        (cargo.collect(), names)
    }

    #[test]
    fn names_are_what_follows_two_dashes_kept_or_not() {
        let of = |words: &[&str]| {
            words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>()
        };
        let kept = told("-p a -- x y", "skinflint cargo-test -p a -- x y");
        assert_eq!(kept, (of(&["-p", "a"]), of(&["x", "y"])));
        let lost = told("x", "skinflint cargo-test --json -- x");
        assert_eq!(lost, (of(&[]), of(&["x"])));
        assert_eq!(
            told("--lib", "skinflint cargo-test --lib"),
            (of(&["--lib"]), of(&[]))
        );
    }

    #[test]
    fn a_list_is_the_standard_harness_own() {
        let text = "a::b: test\nc: benchmark\n\n1 test, 1 benchmark\n";
        assert_eq!(names_of(text), Some(vec!["a::b".to_owned()]));
        assert_eq!(names_of("0 tests, 0 benchmarks\n"), Some(Vec::new()));
        assert_eq!(names_of("a: test\n"), None);
        assert_eq!(names_of(""), None);
    }

    #[test]
    fn executables_of_tests_are_told_by_cargo() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/w/Cargo.toml","target":{"name":"a"},
            "profile":{"test":true},"executable":"/w/target/debug/deps/a-1"}"#;
        let found = executable(line).expect("one");
        assert_eq!(
            (found.target.as_str(), found.path.as_path()),
            ("a", Path::new("/w/target/debug/deps/a-1"))
        );
        assert!(executable(&line.replace("true", "false")).is_none());
        assert!(executable("Compiling a").is_none());
    }
}
