//! `cargo xtask`: what the project checks about itself.
//!
//! ```text
//!   cargo xtask tidy ──► git ls-files ──► text rules, Rust rules, links ─┐
//!                   └──► cargo metadata ──► crate edges ─────────────────┴──► file:line: [rule] what
//!   cargo xtask bench ──► builds ──► bench/…/run.py ──► tables, bars
//!   cargo xtask peers ──► bench/alloc/peers.py ──► other allocators, for `skinflint compare`
//! ```
//!
//! X1  Exit 0: no fault. Exit 1: faults, all of them listed on stdout. Exit 2: the check itself
//!     could not be made (no git, no cargo), and stderr says why.
//!
//! Not here: formatting and lints (`make check` calls rustfmt and clippy), what benchmarks measure (`bench/`).

mod bench;
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
}

fn main() -> ExitCode {
    match Args::parse().command {
        Command::Tidy { root } => tidied(&root),
        Command::Bench { bench } => bench::run(&bench, Path::new(".")).unwrap_or_else(|error| {
            eprintln!("bench: {error:#}");
            ExitCode::from(2)
        }),
        Command::Peers { only } => {
            bench::peers(only.as_deref(), Path::new(".")).unwrap_or_else(|error| {
                eprintln!("peers: {error:#}");
                ExitCode::from(2)
            })
        }
    }
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
