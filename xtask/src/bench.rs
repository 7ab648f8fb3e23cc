//! `cargo xtask bench`: builds what a benchmark needs and starts its program.
//!
//! ```text
//!   bench alloc ──► cargo build --release -p skinflint-malloc-so ──► python3 bench/alloc/run.py ARGS
//!   bench gc ──► `make js` unless --no-build ──► python3 bench/gc/run.py ARGS ──► a script for each part
//!   bench cache ──► the allocator ──► python3 bench/cache/run.py ARGS, which builds a workspace of its own
//!   bench suite ──► cargo build --release of the tool and its libraries ──► python3 bench/suite/run.py ARGS
//!   peers ──► python3 bench/alloc/peers.py ──► TARGET/bench/alloc/peers/peers.json and libraries
//! ```
//!
//! B1  The exit status is the benchmark's own: 0 if every bar held, 1 if one was missed, 2 if nothing could be
//!     measured.
//! B2  Options are passed on unchanged: `--help` of the benchmark is their one description.
//!
//! Not here: what is measured and judged (`bench/alloc/`, `bench/suite/`).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Subcommand;

/// The benchmarks.
#[derive(Subcommand)]
pub enum Bench {
    /// The allocator beside its peers: speed, memory, idling, start-up; exit 1 if a bar is missed.
    #[command(disable_help_flag = true)]
    Alloc {
        /// Measure what is already in target/release.
        #[arg(long)]
        no_build: bool,
        /// Passed on: --quick, --only NAME, --json FILE, --allocators A,B, --subject NAME, --rounds N, --help.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// The garbage-collected heap beside gc-arena, Boa's own and node's; exit 1 if a bar is missed.
    #[command(disable_help_flag = true)]
    Gc {
        /// Measure what is already built.
        #[arg(long)]
        no_build: bool,
        /// Passed on: --only NAME, --quick, --json FILE, --help.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// Caches, buffers and arenas beside the usual crates; images and the example host; exit 1 if a bar is missed.
    #[command(disable_help_flag = true)]
    Cache {
        /// Passed on: --no-tests, --target DIR, --selftest, --help.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// Real programs recorded, simulated, replayed and run under every allocator; one dated result.
    #[command(disable_help_flag = true)]
    Suite {
        /// Use what is already in target/release.
        #[arg(long)]
        no_build: bool,
        /// Passed on: --quick, --only A,B, --runs N, --allocators A,B, --results DIR, --help.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
}

/// The packages that the allocator's benchmark measures.
const ALLOC: &[&str] = &["skinflint-malloc-so"];
/// The package that starts the JavaScript hosts, and our allocator, under which finalization is measured; they, and the other collector, are workspaces of their own.
const GC: &[&str] = &["skinflint-cli", "skinflint-malloc-so"];
/// The packages that the suite runs.
const SUITE: &[&str] = &[
    "skinflint-cli",
    "skinflint-record-so",
    "skinflint-malloc-so",
    "skinflint-replay",
    "skinflint-probe-so",
];

/// Runs one benchmark from the root of the repository.
///
/// # Errors
/// If what is measured does not build, or python3 cannot be started.
pub fn run(bench: &Bench, root: &Path) -> Result<ExitCode> {
    let (no_build, options, packages, script) = match bench {
        Bench::Alloc { no_build, options } => (no_build, options, ALLOC, "bench/alloc/run.py"),
        Bench::Gc { no_build, options } => (no_build, options, GC, "bench/gc/run.py"),
        Bench::Cache { options } => (&false, options, ALLOC, "bench/cache/run.py"),
        Bench::Suite { no_build, options } => (no_build, options, SUITE, "bench/suite/run.py"),
    };
    if !no_build && !options.iter().any(|word| word == "--help") {
        build(packages, root)?;
        if matches!(bench, Bench::Gc { .. }) && needs_hosts(options) {
            hosts(root)?;
        }
    }
    let status = Command::new("python3")
        .arg("-B")
        .arg(root.join(script))
        .args(options)
        .env("SKINFLINT_ALLOCATOR", library(root))
        .status()
        .context("cannot run python3: install it")?;
    Ok(ExitCode::from(
        status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(2),
    ))
}

/// Reports whether a part is asked for that runs JavaScript.
fn needs_hosts(options: &[OsString]) -> bool {
    let words: Vec<_> = options.iter().map(|word| word.to_string_lossy()).collect();
    let only = words.iter().enumerate().find_map(|(at, word)| {
        let next = || words.get(at + 1).map(|next| next.to_string());
        word.strip_prefix("--only=")
            .map(str::to_owned)
            .or_else(|| (word == "--only").then(next)?)
    });
    let without = |part: &str| {
        matches!(
            part,
            "trees" | "scheme" | "finalize" | "chunks" | "freelists" | "snapshot"
        )
    };
    only.is_none_or(|parts| !parts.split(',').all(without))
}

/// Builds the JavaScript hosts, as `make js` does.
fn hosts(root: &Path) -> Result<()> {
    let status = Command::new("make")
        .arg("js")
        .current_dir(root)
        .status()
        .context("cannot run make: install it")?;
    if !status.success() {
        bail!("make js: the build failed ({status}): mend that first, or pass --no-build");
    }
    Ok(())
}

/// Builds the other allocators, where both the benchmarks and `skinflint compare` look for them.
///
/// # Errors
/// If python3 cannot be started.
pub fn peers(only: Option<&str>, root: &Path) -> Result<ExitCode> {
    let mut command = Command::new("python3");
    command
        .arg("-B")
        .arg(root.join("bench/alloc/peers.py"))
        .arg("--work")
        .arg(target(root).join("bench/alloc"));
    if let Some(only) = only {
        command.args(["--only", only]);
    }
    let status = command.status().context("cannot run python3: install it")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(2)))
}

/// Returns cargo's target folder: the one that `CARGO_TARGET_DIR` names, if it is set.
fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), |folder| root.join(folder))
}

/// Returns the path where cargo puts the library.
fn library(root: &Path) -> OsString {
    if let Some(given) = std::env::var_os("SKINFLINT_ALLOCATOR") {
        return given;
    }
    target(root)
        .join("release/libskinflint.so")
        .into_os_string()
}

fn build(packages: &[&str], root: &Path) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(&cargo)
        .args(["build", "--release", "--locked"])
        .args(packages.iter().flat_map(|package| ["--package", *package]))
        .current_dir(root)
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        let what = packages.join(", ");
        bail!("{what}: the build failed ({status}): mend that first, or pass --no-build");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_built_for_the_parts_that_run_javascript() {
        let needs =
            |words: &[&str]| needs_hosts(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(needs(&[]) && needs(&["--only", "tabs"]) && needs(&["--only=trees,pause"]));
        assert!(!needs(&["--only", "trees"]) && !needs(&["--quick", "--only=freelists,trees"]));
    }
}
