//! The stacks behind a line of `skinflint counts`: which code asks for this size.
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

use std::io::Write;

use anyhow::{Result, bail};
use skinflint_analysis::Facts;
use skinflint_analysis::counts::{self, CountsOptions};
use skinflint_analysis::model::Report;
use skinflint_analysis::pass::CellKey;
use skinflint_trace::Trace;
use skinflint_view::{stack, units};

use crate::analyse;
use crate::args::CountsArgs;

/// Stacks printed unless another number is asked for.
const SHOWN: usize = 20;
/// Frames of a stack, innermost first.
const FRAMES: usize = 4;

/// Prints the stacks of the line of this rank, counted from 1.
///
/// # Errors
/// If there is no such line, or names cannot be looked for where the options say.
pub fn stacks(
    args: &CountsArgs,
    rank: usize,
    trace: &Trace,
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
    let mut names = analyse::names(trace, &args.trace, &args.names)?;
    let report = counts::named(shown, &Facts::of(trace).nodes, &mut names);
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
