//! `cargo xtask`: the project's checks of itself.
//!
//! ```text
//!   cargo xtask tidy ──► git ls-files ──► text rules, Rust rules, links ─┐
//!                   └──► cargo metadata ──► crate edges ─────────────────┴──► file:line: [rule] what
//!   cargo xtask quick ──► git ──► crates that changed ──► tests/proofs.toml ──► fmt, tidy, clippy, their tests
//!   cargo xtask proofs ──► tests/proofs.toml ──► the table in HACKING.md
//!   cargo xtask skipped ──► target/skipped.txt ──► which tests did not run here, and why
//!   cargo xtask bench ──► builds ──► bench/…/run.py ──► tables, bars
//!   cargo xtask peers ──► bench/alloc/peers.py ──► other allocators, for `skinflint compare`
//!   cargo xtask mutants ──► a copy of the sources with faults put in ──► which of them the tests notice
//! ```
//!
//! X1  Exit 0: no fault. Exit 1: faults, all of them listed on stdout. Exit 2: the check itself could not be made (no
//!     git, no cargo), and stderr has the reason.
//!
//! Not here: formatting and lints (`make check` calls rustfmt and clippy), what benchmarks measure (`bench/`).

mod bench;
mod floors;
mod mutants;
mod proofs;
mod quick;
mod skipped;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Checks of the Skinflint repository.
#[derive(Parser)]
#[command(name = "cargo xtask", after_help = "Example: cargo xtask tidy")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lists every breach of the project's rules, with file, line and rule; exit 1 if there is one.
    Tidy {
        /// The repository to check.
        #[arg(long, default_value = ".")]
        root: PathBuf,
    },
    /// Formatting, the rules, lints and tests of what changed; exit 1 if a part failed.
    Quick {
        /// Changes are counted from where HEAD left this; without it origin/main, or on main itself the commit before.
        #[arg(long, value_name = "REV")]
        base: Option<String>,
    },
    /// Checks which tests prove which crate (tests/proofs.toml), as `tidy` does.
    Proofs {
        /// Puts the table into HACKING.md.
        #[arg(long)]
        write: bool,
    },
    /// Lists the tests that were skipped since the list was begun, and counts them.
    Skipped {
        /// Begins the list anew instead.
        #[arg(long)]
        forget: bool,
    },
    /// Runs a benchmark and judges its bars; exit 1 if one is missed.
    Bench {
        #[command(subcommand)]
        bench: bench::Bench,
    },
    /// Builds other allocators from the packages that carry their sources, for `skinflint compare` and the benchmarks.
    Peers {
        /// Only these, with commas: jemalloc, mimalloc2, mimalloc3, snmalloc, rpmalloc, tcmalloc.
        #[arg(long, value_name = "A,B")]
        only: Option<String>,
    },
    /// Puts faults into a copy of a crate, drawn by seed, and says which of them its tests notice; exit 1 below the bar.
    Mutants(mutants::Options),
}

fn main() -> ExitCode {
    match Args::parse().command {
        Command::Tidy { root } => tidied(&root),
        Command::Quick { base } => match quick::run(Path::new("."), base.as_deref()) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::from(1),
            Err(error) => failed("quick", &error),
        },
        Command::Proofs { write: false } => tidied(Path::new(".")),
        Command::Proofs { write: true } => done("proofs", proofs::write(Path::new("."))),
        Command::Skipped { forget: true } => done("skipped", skipped::forget(Path::new("."))),
        Command::Skipped { forget: false } => done("skipped", skipped::print(Path::new("."))),
        Command::Bench { bench } => bench::run(&bench, Path::new(".")).unwrap_or_else(|error| {
            eprintln!("bench: {error:#}");
            ExitCode::from(2)
        }),
        Command::Mutants(options) => {
            mutants::run(&options, Path::new(".")).unwrap_or_else(|error| {
                eprintln!("mutants: {error:#}");
                ExitCode::from(2)
            })
        }
        Command::Peers { only } => {
            bench::peers(only.as_deref(), Path::new(".")).unwrap_or_else(|error| {
                eprintln!("peers: {error:#}");
                ExitCode::from(2)
            })
        }
    }
}

fn failed(what: &str, error: &anyhow::Error) -> ExitCode {
    eprintln!("{what}: {error:#}");
    ExitCode::from(2)
}

fn done(what: &str, outcome: anyhow::Result<()>) -> ExitCode {
    outcome.map_or_else(|error| failed(what, &error), |()| ExitCode::SUCCESS)
}

fn tidied(root: &Path) -> ExitCode {
    match tidy::run(root) {
        Ok(faults) if faults.is_empty() => ExitCode::SUCCESS,
        Ok(faults) => {
            for fault in &faults {
                println!("{fault}");
            }
            eprintln!(
                "tidy: {} faults; each line names the rule it breaks",
                faults.len()
            );
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("tidy: {error:#}");
            ExitCode::from(2)
        }
    }
}
