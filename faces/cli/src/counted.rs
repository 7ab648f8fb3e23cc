//! `skinflint counts`: the concordance of sizes, and the stacks behind one of its lines.
//!
//! ```text
//!   ( 3 ) 205920: small: 24 -> 32 ( 8 ), from 58 stacks
//!    120000 (58.3%)  parse_header  src/parse.c:33 ← load  src/load.c:80 ← main
//!   others 85920 (41.7%): 57 further stacks
//! ```
//!
//! C1  The figures of the stacks and of the others add up to the line.
//!
//! Not here: the lines (`analysis::counts`), which frames are informative (`view::stack`).

use std::io::{self, Write};

use anyhow::{Result, bail};
use skinflint_analysis::Facts;
use skinflint_analysis::counts::{self, CountsOptions};
use skinflint_analysis::model::Report;
use skinflint_analysis::pass::CellKey;
use skinflint_recording::{Names, Recording};
use skinflint_sizes::Scheme;
use skinflint_view::{stack, units};

use crate::analyse::{self, Bar, plain};
use crate::args::{CountsArgs, Weight};

/// Stacks printed unless another number is asked for.
const SHOWN: usize = 20;
/// Frames of a stack, innermost first.
const FRAMES: usize = 4;

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
    let counted = recording.count_cells(&args.when, &Bar::default());
    let (cells, missing) = counted.map_err(plain)?;
    for missing in missing {
        say!("skinflint: {}: {missing}", args.trace.display());
    }
    let options = CountsOptions {
        scheme,
        allocator: &recording.trace.process.allocator,
        label: &args.when,
        by_slop: args.weight == Weight::Slop,
        limit: args.limit.filter(|limit| *limit > 0),
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
    let limit = match args.limit {
        None => SHOWN,
        Some(0) => usize::MAX,
        Some(limit) => limit,
    };
    let shown = &all[..all.len().min(limit)];
    let names = args.names.sources();
    let mut names = Names(recording.symbols(&names).map_err(plain)?);
    let report = counts::named(shown, &Facts::of(&recording.trace).nodes, &mut names);
    let total: u64 = all.iter().map(|one| one.1).sum();
    let unit = if options.by_slop {
        " bytes of slop"
    } else {
        ""
    };
    writeln!(
        out,
        "({rank:>2} ) {total}{unit}: {} -> {} ({} ), from {}",
        line.size,
        line.usable,
        line.slop(),
        units::plural(all.len() as u64, "stack")
    )?;
    let width = shown.first().map_or(1, |one| one.1.to_string().len());
    for (site, (_, count)) in report.sites.iter().zip(shown) {
        let share = units::percent(*count, total);
        writeln!(
            out,
            "  {count:>width$} ({share:>6})  {}",
            said(&report, site.node)
        )?;
    }
    if shown.len() < all.len() {
        let rest: u64 = all[shown.len()..].iter().map(|one| one.1).sum();
        let share = units::percent(rest, total);
        let further = units::plural((all.len() - shown.len()) as u64, "further stack");
        writeln!(out, "others {rest} ({share}): {further}")?;
    }
    out.flush()?;
    Ok(0)
}

/// Returns the informative frames, innermost first.
fn said(report: &Report, node: u32) -> String {
    let frames = stack::telling(report, node);
    let text = |frame: &&skinflint_analysis::model::Frame| {
        let name = stack::short_name(&frame.function);
        match stack::place(frame) {
            place if place.is_empty() || stack::is_unnamed(&name) => name,
            place => format!("{name}  {place}"),
        }
    };
    let mut texts: Vec<String> = frames.iter().take(FRAMES).map(text).collect();
    if frames.len() > FRAMES {
        texts.push("…".into());
    }
    match texts.is_empty() {
        true => "(no stack)".into(),
        false => texts.join(" ← "),
    }
}
