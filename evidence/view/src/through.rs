//! Functions with all that they call, on the terminal: what a list of the innermost functions cannot show.
//!
//! ```text
//!   Through whom (with all that each calls: these overlap)
//!     38.0 MiB   36 %  parse_unit  src/parse.c:123 · 58 stacks
//! ```
//!
//! H1  Functions are shown where memory parts: one that passes nine tenths on to another of them is left out, and so
//!     is one that holds nine tenths itself, which "who holds it" has; unless it holds more than all that are shown:
//!     the first line is never about a small part alone.
//! H2  A few lines, fewer on a short screen, none on a shorter one; all of the list if all is asked for.
//!
//! Not here: which function holds what (`analysis::through`), the page's table (page/functions.js).

use skinflint_analysis::model::{Report, Through};

use crate::screen::{Ink, Line, columns, right};
use crate::stack;
use crate::units::{bytes, plural};

/// The number of functions listed.
const SHOWN: usize = 5;
/// The number of lines below which the section is no help.
const FEWEST: usize = 2;
/// The number of columns before a share.
const AMOUNT: usize = 12;

/// Returns the section in at most `room` lines; `None` means any length.
pub(crate) fn section(report: &Report, room: Option<usize>, width: usize) -> Vec<Line> {
    let parts = |one: &&Through| {
        let own = u128::from(one.own_bytes) * 10;
        !one.passes_on && own < u128::from(one.bytes) * 9
    };
    let rows: Vec<&Through> = match room {
        None => report.through.iter().collect(),
        Some(_) => {
            let mut rows: Vec<&Through> = report.through.iter().filter(parts).collect();
            let first = rows.first().map_or(0, |row| row.bytes);
            let own = report
                .through
                .iter()
                .filter(|row| !row.passes_on && !parts(row));
            let heaviest = own.max_by_key(|row| row.bytes);
            if let Some(row) = heaviest.filter(|row| row.bytes > first) {
                rows.insert(0, row);
            }
            rows
        }
    };
    // These are a blank line and the heading.
    let shown = room.map_or(usize::MAX, |room| room.saturating_sub(2).min(SHOWN));
    if rows.is_empty() || shown < FEWEST {
        return Vec::new();
    }
    let whole = report
        .held()
        .iter()
        .fold(0u64, |sum, one| sum.saturating_add(one.bytes()));
    let heading = "Through whom (with all that each calls: these overlap)";
    let mut lines = vec![Line::default(), Line::of(Ink::Strong, heading)];
    lines.extend(
        rows.iter()
            .take(shown)
            .map(|row| line(report, row, whole, width)),
    );
    lines
}

fn line(report: &Report, row: &Through, whole: u64, width: usize) -> Line {
    // To the nearest; what is there never reads as 0 (units.U2).
    let share = match (row.bytes as f64 * 100.0 / whole.max(1) as f64).round() as u64 {
        0 if row.bytes > 0 => "<1".to_owned(),
        share => share.to_string(),
    };
    let figures = format!(
        "{} {}",
        right(&bytes(row.bytes), AMOUNT),
        right(&format!("{share} %"), 6)
    );
    let frame = report.nodes.get(row.node as usize).map(|node| node.frame);
    let frame = frame.and_then(|frame| report.frames.get(frame as usize));
    let stacks = format!(" · {}", plural(row.stacks, "stack"));
    let room = width
        .saturating_sub(columns(&figures) + 2 + columns(&stacks))
        .max(12);
    let (name, place) = match frame {
        None => (String::new(), String::new()),
        Some(frame) => (stack::fitted(&frame.function, room), stack::place(frame)),
    };
    let place = match stack::is_unnamed(&name) {
        true => String::new(),
        false => place,
    };
    // The function is more informative than the place.
    let place = match columns(&name) + 2 + columns(&place) <= room {
        true => place,
        false => String::new(),
    };
    Line::of(Ink::Strong, figures)
        .with(Ink::Plain, format!("  {name}"))
        .with(
            Ink::Faint,
            match place.as_str() {
                "" => stacks,
                place => format!("  {place}{stacks}"),
            },
        )
}
