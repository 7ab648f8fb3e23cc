//! Instructions of a policy on a trace, counted by valgrind's callgrind.
//!
//! ```text
//!   this program gc --alone --with POLICY … ─► callgrind: from the entry of `play` to its end, without `mark_all`
//! ```
//!
//! Not here: what is counted (`replay`).

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::options::{Options, word};
use super::source::Source;
use crate::space::SweepOrder;

/// Counts the instructions of one policy on one trace, without marking: it runs this program under callgrind, which
/// counts from the entry of `play` to its end and leaves `mark_all` out.
pub(crate) fn instructions(source: &Source, policy: &str, options: &Options) -> Result<u64> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new("valgrind");
    command
        .args([
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            "--collect-atstart=no",
        ])
        .args([
            // Whole names: of two patterns that begin alike, callgrind sees the first only.
            "--toggle-collect=skinflint_free_lists::replay::Player::play",
            "--toggle-collect=skinflint_free_lists::replay::Player::mark_all",
        ])
        .arg(own)
        .args(["gc", "--json", "--runs", "1", "--alone", "--with", policy])
        .args(["--growth", &options.growth.to_string()])
        .args(["--heap-limit", &options.limit_bytes.to_string()])
        .args(["--max-objects", &options.max_objects().to_string()])
        .args(["--compact", word(options.compaction())])
        .args(options.purge.then_some("--purge"));
    if options.sweep_order == SweepOrder::Address {
        command.args(["--sweep", "address"]);
    }
    if let Some(bytes) = options.nursery_bytes {
        command.args(["--nursery", &bytes.to_string()]);
    }
    source.as_arguments(&mut command);
    let done = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .context("--instructions: cannot run valgrind: install it")?;
    let said = String::from_utf8_lossy(&done.stderr);
    let line = said
        .lines()
        .rev()
        .find_map(|line| line.split_once("Collected : "));
    let counted = line
        .and_then(|(_, digits)| digits.trim().parse().ok())
        .filter(|count| *count > 0);
    counted.with_context(|| {
        let tail: Vec<&str> = said.lines().rev().take(3).collect();
        format!(
            "--instructions: valgrind counted nothing ({}): {}",
            done.status,
            tail.join(" / ")
        )
    })
}
