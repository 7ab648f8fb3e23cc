//! `skinflint fleet`: questions to the tables of many machines, by a program of its own, in our place.
//!
//! ```text
//!   skinflint fleet top … ──► skinflint-fleet top …: beside us, in ../lib/skinflint, in the build tree, in PATH
//! ```
//!
//! F1  The engine that answers is larger than all of this program, and needs a newer Rust: it is not built with it. Where
//!     it is missing, one line says how it is built.
//!
//! Not here: what it can be asked (`fleet/program/src/args.rs`).

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args as ClapArgs;
use skinflint_launch::installed;

pub const HELP: &str = "\
Examples:
  skinflint fleet help                       # what it can be asked
  skinflint fleet ingest app.json skinflint.4711.heap
  skinflint fleet top --by stack";

#[derive(ClapArgs, Debug)]
pub struct FleetArgs {
    /// The question and its options, as skinflint-fleet takes them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Becomes the program. Returns only if that fails.
///
/// # Errors
/// If it is not there (F1), or cannot be started.
pub fn fleet(args: &FleetArgs) -> Result<u8> {
    let error = Command::new(installed::fleet()).args(&args.words).exec();
    Err(error).context(
        "skinflint-fleet is not here. In the source folder, run: cargo build --release --locked --manifest-path \
         fleet/Cargo.toml --target-dir target/fleet (it needs Rust 1.94)",
    )
}
