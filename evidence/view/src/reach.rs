//! Unreached blocks, on the terminal.
//!
//! ```text
//!   nothing points to 300 blocks (1.2 MiB) at the end; only cycles keep 20 (3 KiB); 1,000 blocks are held
//!      1.2 MiB      300  nothing   make_node ← build
//! ```
//!
//! R1  What was looked at is printed even if all is held: only then is no news good news.
//! R2  If there is no verdict, the reason is printed instead.
//!
//! Not here: advice (advice.rs), paths (the cli's `--who-holds`).

use skinflint_analysis::model::{ReachSum, Reachability, Report, UnreachedRow};

use crate::screen::{Ink, Line, columns, cut_middle, right, wrap};
use crate::stack;
use crate::units::{bytes, count, duration, plural};

/// The number of rows shown; the second one if all is asked for.
const SHOWN: usize = 3;
const SHOWN_FULL: usize = 200;

/// Adds the section: at most five lines more than the sentence, or of any length if `full`.
pub(crate) fn section(report: &Report, full: bool, width: usize, lines: &mut Vec<Line>) {
    let Some(reach) = &report.reach else { return };
    lines.push(Line::default());
    let heading = format!("Pointers at {}", moment(reach));
    lines.push(Line::of(Ink::Strong, heading));
    let limit = if full { 20 } else { 4 };
    for piece in wrap(&sentence(reach), width - 2, limit) {
        lines.push(Line::of(Ink::Plain, format!("  {piece}")));
    }
    let shown = reach.rows.len().min(if full { SHOWN_FULL } else { SHOWN });
    for row in &reach.rows[..shown] {
        lines.push(line(report, row, width));
    }
    let mut others = reach.others;
    for row in &reach.rows[shown..] {
        others.blocks += row.all.blocks;
        others.usable_bytes += row.all.usable_bytes;
    }
    if others.blocks > 0 {
        let text = format!(
            "{}{}  others",
            right(&bytes(others.usable_bytes), 13),
            right(&count(others.blocks), 10)
        );
        lines.push(Line::of(Ink::Faint, text));
    }
}

/// Renders only this section, in full.
pub fn render(report: &Report, width: usize, color: bool) -> String {
    let width = width.clamp(60, 200);
    let mut lines = Vec::new();
    section(report, true, width, &mut lines);
    let mut out = String::new();
    for line in lines.iter().skip(1) {
        line.write(width, color, &mut out);
    }
    out
}

fn moment(reach: &Reachability) -> String {
    match reach.at_end {
        true => "the end".into(),
        false => format!("mark “{}”", reach.label),
    }
}

fn sum(sum: ReachSum) -> String {
    format!(
        "{} of {}",
        plural(sum.blocks, "block"),
        bytes(sum.usable_bytes)
    )
}

fn sentence(reach: &Reachability) -> String {
    if !reach.missing.is_empty() {
        return format!("not known: {}.", reach.missing);
    }
    let kind = |cycle: bool| {
        let rows = reach.rows.iter().filter(|row| row.cycle == cycle);
        rows.fold(ReachSum::default(), |sum, row| ReachSum {
            blocks: sum.blocks + row.all.blocks,
            usable_bytes: sum.usable_bytes.saturating_add(row.all.usable_bytes),
            ..sum
        })
    };
    let (nothing, cycles) = (kind(false), kind(true));
    let mut text = match (nothing.blocks, cycles.blocks) {
        (0, 0) => "every live block is held".to_owned(),
        (_, 0) => format!(
            "nothing points to {}, what only these hold included",
            sum(nothing)
        ),
        (0, _) => format!(
            "only cycles keep {}, what only these hold included",
            sum(cycles)
        ),
        _ => format!(
            "nothing points to {}; only cycles keep {}; what only these hold is included",
            sum(nothing),
            sum(cycles)
        ),
    };
    text += &format!("; roots lead to {}", sum(reach.certain));
    if reach.likely.blocks > 0 {
        text += &format!(
            ", and by pointers into blocks or tagged ones to {}",
            sum(reach.likely)
        );
    }
    text += &format!(
        ". The program stood still for {} ({}, {} read).",
        duration(reach.stopped_ns),
        plural(u64::from(reach.threads), "thread"),
        bytes(reach.scanned_bytes)
    );
    text
}

fn line(report: &Report, row: &UnreachedRow, width: usize) -> Line {
    let kind = if row.cycle {
        "  cycle    "
    } else {
        "  nothing  "
    };
    let figures = format!(
        "{}{}{kind}",
        right(&bytes(row.all.usable_bytes), 13),
        right(&count(row.all.blocks), 10)
    );
    let names: Vec<String> = row
        .node
        .map(|node| stack::telling(report, node))
        .unwrap_or_default()
        .iter()
        .take(3)
        .map(|frame| stack::short_name(&frame.function))
        .collect();
    let place = match names.is_empty() {
        true => "(no stack)".to_owned(),
        false => names.join(" ← "),
    };
    let room = width.saturating_sub(columns(&figures)).max(8);
    Line::of(Ink::Plain, figures).with(Ink::Faint, cut_middle(&place, room))
}
