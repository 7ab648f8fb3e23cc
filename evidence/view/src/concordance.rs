//! The stacks behind a line of the concordance, as text.
//!
//! ```text
//!   ( 3 ) 205920: small: 24 -> 32 ( 8 ), from 58 stacks
//!    120000 (58.3%)  parse_header  src/parse.c:33 ← load  src/load.c:80 ← main
//!   others 85920 (41.7%): 57 further stacks
//! ```
//!
//! C1  The figures of the stacks and of the others add up to the line.
//!
//! Not here: the lines (`analysis::counts`), which frames are informative (stack.rs).

use std::fmt::Write as _;

use skinflint_analysis::counts::CountsRow;
use skinflint_analysis::model::{Frame, Report};

use crate::{stack, units};

/// Frames of a stack, innermost first.
const FRAMES: usize = 4;

/// A line whose stacks are shown.
pub struct Line<'a> {
    /// Its rank, counted from 1.
    pub rank: usize,
    /// Its sizes.
    pub row: &'a CountsRow,
    /// The number of all its stacks.
    pub stacks: usize,
    /// The sum over all its stacks.
    pub total: u64,
    /// Whether figures are bytes of slop, and not blocks.
    pub by_slop: bool,
}

/// Returns the stacks of a line: those of the report, which `analysis::counts::named` made, and the sum of the others.
pub fn render(report: &Report, line: &Line<'_>) -> String {
    let Line { rank, total, .. } = line;
    let unit = if line.by_slop { " bytes of slop" } else { "" };
    let mut text = format!(
        "({rank:>2} ) {total}{unit}: {} -> {} ({} ), from {}\n",
        line.row.size,
        line.row.usable,
        line.row.slop(),
        units::plural(line.stacks as u64, "stack")
    );
    let counts = || report.sites.iter().map(|site| site.allocations);
    let width = counts().next().map_or(1, |count| count.to_string().len());
    for site in &report.sites {
        let share = units::percent(site.allocations, *total);
        let _ = writeln!(
            text,
            "  {:>width$} ({share:>6})  {}",
            site.allocations,
            frames(report, site.node)
        );
    }
    let shown = report.sites.len();
    if shown < line.stacks {
        let rest = total - counts().sum::<u64>();
        let share = units::percent(rest, *total);
        let further = units::plural((line.stacks - shown) as u64, "further stack");
        let _ = writeln!(text, "others {rest} ({share}): {further}");
    }
    text
}

/// Returns the informative frames, innermost first.
pub(crate) fn frames(report: &Report, node: u32) -> String {
    let frames = stack::telling(report, node);
    let text = |frame: &&Frame| {
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

#[cfg(test)]
mod tests {
    use skinflint_analysis::model::Site;

    use super::*;

    #[test]
    fn stacks_and_others_add_up_to_the_line() {
        let site = |allocations| Site {
            allocations,
            ..Site::default()
        };
        let report = Report {
            sites: vec![site(60), site(9)],
            ..Report::default()
        };
        let row = CountsRow {
            size: 24,
            usable: 32,
            count: 100,
        };
        let line = Line {
            rank: 3,
            row: &row,
            stacks: 4,
            total: 100,
            by_slop: false,
        };
        assert_eq!(
            render(&report, &line),
            "( 3 ) 100: 24 -> 32 (8 ), from 4 stacks\n  60 ( 60.0%)  (no stack)\n   9 (  9.0%)  (no stack)\n\
             others 31 (31.0%): 2 further stacks\n"
        );
    }
}
