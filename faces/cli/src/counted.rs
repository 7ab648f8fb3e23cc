//! `skinflint counts`: the concordance of sizes, and the stacks behind one of its lines.
//!
//! ```text
//!   TRACE ─► recording: cells ─► analysis::counts ─► lines, or view::concordance ─► the stacks of one
//! ```
//!
//! Not here: the lines (`analysis::counts`), the stacks of a line (`view::concordance`).

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args as ClapArgs, ValueEnum};
use skinflint_analysis::counts::{self, CountsOptions};
use skinflint_analysis::pass::CellKey;
use skinflint_recording::Recording;
use skinflint_sizes::Scheme;
use skinflint_view::{concordance, units};

use crate::analyse::{self, Bar, plain};
use crate::options::NameOptions;

pub const HELP: &str = "\
Examples:
  skinflint counts app.sft
  skinflint counts app.sft --scheme mozjemalloc-2011 --weight slop
  skinflint counts app.sft --at peak
  skinflint counts app.sft --stacks 3            # the stacks behind line 3

A line reads:  ( rank ) count (percent, cumulative percent): kind:  asked -> given ( slop )";

#[derive(ClapArgs, Debug)]
pub struct CountsArgs {
    /// The trace
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// Count the sizes that another allocator would give, instead of those that were given:
    /// mozjemalloc-2011, mozjemalloc, jemalloc5, mimalloc, tcmalloc, go, glibc, skinflint
    #[arg(long, value_name = "SCHEME")]
    pub scheme: Option<String>,

    /// The quantity that percentages are of: count, or slop (count times bytes wasted)
    #[arg(long, value_name = "WHAT", default_value = "count")]
    pub weight: Weight,

    /// The blocks to count: cumulative (all ever acquired), live (at the end), peak, heap-peak, or the
    /// name of a mark
    #[arg(
        long,
        alias = "when",
        value_name = "MOMENT",
        default_value = "cumulative"
    )]
    pub at: String,

    /// Print the stacks of the line with this rank, instead of the lines
    #[arg(long, value_name = "RANK")]
    pub stacks: Option<usize>,

    /// Lines to print, or stacks; 0 prints all [default: all lines, 20 stacks]
    #[arg(long, alias = "limit", value_name = "N")]
    pub rows: Option<usize>,

    #[command(flatten)]
    pub names: NameOptions,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// One for each block
    Count,
    /// The bytes wasted in each block
    Slop,
}

/// Stacks printed unless another number is asked for.
const SHOWN: usize = 20;

/// Does what was asked. Returns the exit status.
///
/// # Errors
/// Whatever keeps it from being done.
pub fn counts(args: &CountsArgs) -> Result<u8> {
    let scheme = match &args.scheme {
        Some(name) => {
            Some(Scheme::by_name(name).map_err(|error| anyhow::anyhow!("--scheme: {error}"))?)
        }
        None => None,
    };
    let recording = analyse::open(&args.trace)?;
    let counted = recording.count_cells(&args.at, &Bar::default());
    let (cells, missing) = counted.map_err(plain)?;
    for missing in missing {
        say!("skinflint: {}: {missing}", args.trace.display());
    }
    let options = CountsOptions {
        scheme,
        allocator: &recording.trace.process.allocator,
        label: &args.at,
        by_slop: args.weight == Weight::Slop,
        limit: args.rows.filter(|rows| *rows > 0),
    };
    let mut out = io::stdout().lock();
    if let Some(rank) = args.stacks {
        return stacks(args, rank, &recording, &cells, &options, &mut out);
    }
    out.write_all(counts::concordance(cells, &options).as_bytes())?;
    out.flush()?;
    Ok(0)
}

/// Prints the stacks of the line of this rank, counted from 1.
fn stacks(
    args: &CountsArgs,
    rank: usize,
    recording: &Recording,
    cells: &[(CellKey, u64)],
    options: &CountsOptions<'_>,
    out: &mut dyn Write,
) -> Result<u8> {
    let lines = counts::rows(cells.iter().copied(), options);
    let Some(line) = rank.checked_sub(1).and_then(|index| lines.get(index)) else {
        bail!(
            "--stacks {rank}: there is no such line; `skinflint counts {}` has {}",
            args.trace.display(),
            units::plural(lines.len() as u64, "line")
        );
    };
    let all = counts::stacks(cells.iter().copied(), options, line);
    let limit = match args.rows {
        None => SHOWN,
        Some(0) => usize::MAX,
        Some(limit) => limit,
    };
    let shown = &all[..all.len().min(limit)];
    let names = args.names.sources();
    let (facts, mut names) = recording.named_stacks(&names).map_err(plain)?;
    let report = counts::named(shown, &facts, &mut names);
    let total: u64 = all.iter().map(|one| one.1).sum();
    let line = concordance::Line {
        rank,
        row: line,
        stacks: all.len(),
        total,
        by_slop: options.by_slop,
    };
    out.write_all(concordance::render(&report, &line).as_bytes())?;
    out.flush()?;
    Ok(0)
}
