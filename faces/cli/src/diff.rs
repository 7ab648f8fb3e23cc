//! `skinflint diff`: two runs, or two moments of one.
//!
//! ```text
//!   A.sft B.sft, or A.sft --from --to ─► two reports ─► export::diff ─► text, or --json
//! ```
//!
//! F1  The rows are checked to add up before anything is printed.
//!
//! Not here: how stacks are matched (`export::diff`).

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Error, Result, anyhow, bail};
use clap::{Args as ClapArgs, ValueEnum};
use skinflint_analysis::AnalysisError;
use skinflint_export::diff::{By, Diff};
use skinflint_export::diff_html;
use skinflint_export::diff_text::{Style, render};
use skinflint_recording::More;

use crate::analyse;
use crate::options::NameOptions;

pub const HELP: &str = "\
Examples:
  skinflint diff monday.sft friday.sft
  skinflint diff app.sft --from 'load begin' --to 'load end'
  skinflint diff old.sft new.sft --html diff.html    # and a flame graph of what grew and shrank
  skinflint diff old.sft new.sft --from end --to end --by blocks --json

Stacks are matched by the module and function of each frame, not by address: other builds and
versions of the program and its libraries can be compared. Moments are those of `skinflint report
--at`.";

#[derive(ClapArgs, Debug)]
pub struct DiffArgs {
    /// The trace before
    #[arg(value_name = "A")]
    pub before: PathBuf,

    /// The trace after [default: the same]
    #[arg(value_name = "B")]
    pub after: Option<PathBuf>,

    /// The moment in A [default: peak]
    #[arg(long, value_name = "MOMENT")]
    pub from: Option<String>,

    /// The moment in B [default: peak; end if there is one trace]
    #[arg(long, value_name = "MOMENT")]
    pub to: Option<String>,

    /// The figure by whose difference rows are ordered
    #[arg(long, value_name = "FIGURE", default_value = "bytes")]
    pub by: Figure,

    /// Rows to print; 0 prints all
    #[arg(long, alias = "limit", value_name = "N", default_value_t = 30)]
    pub rows: usize,

    /// Show every frame of every stack
    #[arg(long)]
    pub full_stacks: bool,

    /// Print the difference as JSON (docs/export.md)
    #[arg(long)]
    pub json: bool,

    /// Write one self-contained page, with a flame graph of what grew and shrank
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    #[command(flatten)]
    pub names: NameOptions,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Live bytes given
    Bytes,
    /// Live blocks
    Blocks,
    /// Live bytes given beyond what was asked for
    Slop,
    /// Free bytes on resident pages that live blocks keep
    Pinned,
    /// Blocks acquired over the run
    Allocations,
}

impl Figure {
    fn by(self) -> By {
        match self {
            Figure::Bytes => By::Bytes,
            Figure::Blocks => By::Blocks,
            Figure::Slop => By::Slop,
            Figure::Pinned => By::Pinned,
            Figure::Allocations => By::Allocations,
        }
    }
}

/// Does what was asked. Returns the exit status.
///
/// # Errors
/// Whatever keeps it from being done.
pub fn diff(args: &DiffArgs) -> Result<u8> {
    let (from, to) = moments(args)?;
    let after = args.after.as_ref().unwrap_or(&args.before);
    let analysed = |trace: &Path, at: &str| {
        let more = More {
            all_pins: true,
            ..More::default()
        };
        analyse::analyse_with(&analyse::open(trace)?, &args.names.at(at), more)
    };
    let old = analysed(&args.before, from).map_err(|error| asked_by("--from", error))?;
    let new = analysed(after, to).map_err(|error| asked_by("--to", error))?;
    let (old_name, new_name) = (
        args.before.display().to_string(),
        after.display().to_string(),
    );
    let by = args.by.by();
    let diff = Diff::new((&old.report, &old_name), (&new.report, &new_name), by);
    if let Err(fault) = diff.adds_up() {
        bail!(fault);
    }
    if args.by == Figure::Pinned && !diff.before.pins_known {
        bail!(
            "--by pinned: which pages were resident is not known at both moments; choose moments with a snapshot \
             (peak, end, after-free, most-kept, a mark)"
        );
    }
    let style = Style {
        rows: if args.rows == 0 {
            usize::MAX
        } else {
            args.rows
        },
        frames: if args.full_stacks { 0 } else { 4 },
        by,
    };
    if let Some(file) = &args.html {
        fs::write(file, diff_html::render(&diff, &style))
            .map_err(|error| anyhow!("{}: {error}", file.display()))?;
    }
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        serde_json::to_writer_pretty(&mut out, &diff).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        out.write_all(render(&diff, &style).as_bytes())?;
    }
    out.flush()?;
    for hint in old.hints.iter().chain(&new.hints).take(2) {
        say!("Names: {hint}");
    }
    Ok(0)
}

/// Names the option of this command, not `--at`, in an error about a moment that does not exist.
fn asked_by(option: &str, error: Error) -> Error {
    match error.downcast::<AnalysisError>() {
        Ok(error) => anyhow!("{}", error.to_string().replacen("--at", option, 1)),
        Err(error) => error,
    }
}

/// Returns the two moments.
fn moments(args: &DiffArgs) -> Result<(&str, &str)> {
    let from = args.from.as_deref();
    let to = args.to.as_deref();
    let one = args.after.is_none();
    if one && from.is_none() && to.is_none() {
        bail!(
            "one trace has nothing to be compared with: give a second one, or two moments of this one with \
             --from and --to (a mark, a time, peak, heap-peak, after-free, most-kept, end)"
        );
    }
    let (from, to) = (
        from.unwrap_or("peak"),
        to.unwrap_or(if one { "end" } else { "peak" }),
    );
    if one && from == to {
        bail!("--from {from} --to {to}: the same moment of one trace; name two");
    }
    if one && args.by == Figure::Allocations {
        bail!(
            "--by allocations: two moments of one run have the same allocations over it; use bytes, blocks or slop"
        );
    }
    Ok((from, to))
}
