//! Free memory on pages that live blocks pin, on the terminal: how much, by which functions, and how far from packed.
//!
//! ```text
//!   free: 41.0 MiB on 10,512 pages that live blocks pin, 3.2 MiB on pages without a live byte; …
//!       share      blocks  own pages  would free     shared  median age
//!    41.0 MiB       3,100      9,800    38.1 MiB        712      12.3 s  parse_header
//! ```
//!
//! P1  The shares of the functions listed and of the others add up to the pinned bytes.
//! P2  Nothing is printed if less than a fiftieth of the heap's pages is pinned free memory, unless all is asked for.
//! P3  On a short screen the table is left out first, then the whole section: findings come first.
//!
//! Not here: advice (`advice.rs`).

use skinflint_analysis::model::{Fragments, Pins, Report};

use crate::screen::{Ink, Line, columns, right, wrap};
use crate::stack;
use crate::units::{bytes, count, duration, plural};

/// The number of functions listed; the second one if all is asked for.
const SHOWN: usize = 3;
const SHOWN_FULL: usize = 25;
/// The section is worth a line from one part in this many of the heap's resident bytes (P2).
const WORTH: u64 = 50;

/// Adds the section of the report's instant in at most `room` lines (P3); `None` means any length.
pub(crate) fn section(report: &Report, room: Option<usize>, width: usize, lines: &mut Vec<Line>) {
    let full = room.is_none();
    let at = report.instants.get(report.at);
    let Some(all) = at.and_then(|instant| instant.fragments.as_ref()) else {
        return;
    };
    if all.pages == 0 || (!full && all.pinned_bytes < all.resident_bytes / WORTH) {
        return;
    }
    let text = wrap(&totals(all), width - 2, 5);
    let left = room.map_or(Some(usize::MAX), |room| room.checked_sub(text.len()));
    let Some(left) = left else {
        return;
    };
    for piece in text {
        lines.push(Line::of(Ink::Plain, format!("  {piece}")));
    }
    // The table needs lines for a heading and the others.
    if left < SHOWN + 2 {
        return;
    }
    let rows = if all.functions.is_empty() {
        &all.pins
    } else {
        &all.functions
    };
    let shown = rows.len().min(if full { SHOWN_FULL } else { SHOWN });
    let narrow = width < NARROW;
    let heading = HEADINGS.map(|(name, room)| (name.to_owned(), room));
    lines.push(Line::of(Ink::Faint, row_of(&heading, narrow).trim_end()));
    for row in &rows[..shown] {
        let figures = row_of(&cells(row), narrow);
        let room = width.saturating_sub(columns(&figures)).max(8);
        let place = row.node.map(|node| named(report, node, room));
        let line = Line::of(Ink::Plain, figures);
        lines.push(line.with(Ink::Faint, place.unwrap_or_default()));
    }
    let listed: u64 = rows[..shown].iter().map(|row| row.free_bytes).sum();
    let rest = all.pinned_bytes.saturating_sub(listed);
    if rest > 0 {
        let text = format!("  {}  others", right(&bytes(rest), HEADINGS[0].1));
        lines.push(Line::of(Ink::Faint, text));
    }
}

fn totals(all: &Fragments) -> String {
    let mut text = format!(
        "free in the heap's pages: {} on {} that live blocks pin, {} on {} without a live byte; side by \
         side the live blocks would fill {} instead of {}",
        bytes(all.pinned_bytes),
        plural(all.partial_pages, "page"),
        bytes(all.nobodys_bytes),
        plural(all.pages.saturating_sub(all.pinned_pages), "page"),
        count(all.packed_pages),
        plural(all.pinned_pages, "page"),
    );
    if let Some(spans) = &all.spans {
        text += &format!(
            "; in {} of {}",
            plural(spans.spans, "span"),
            spans.layout.split(':').next().unwrap_or_default()
        );
    }
    if all.unread_bytes > 0 {
        text += &format!("; pages not read: {} free", bytes(all.unread_bytes));
    }
    text
}

/// The columns and their widths; a narrow screen shows only the first ones.
const HEADINGS: [(&str, usize); 6] = [
    ("share", 10),
    ("blocks", 10),
    ("own pages", 9),
    ("would free", 10),
    ("shared", 9),
    ("median age", 10),
];
/// The width below which the last two columns are left out.
const NARROW: usize = 90;

fn cells(row: &Pins) -> [(String, usize); 6] {
    let texts = [
        bytes(row.free_bytes),
        count(row.blocks),
        count(row.sole_pages),
        bytes(row.freed_pages * 4096),
        count(row.joint_pages),
        row.age.map_or("–".into(), |age| duration(age.median_ns)),
    ];
    let mut at = 0;
    texts.map(|text| {
        at += 1;
        (text, HEADINGS[at - 1].1)
    })
}

fn row_of(cells: &[(String, usize)], narrow: bool) -> String {
    let shown = if narrow { 4 } else { cells.len() };
    let mut line = String::from("  ");
    for (text, room) in &cells[..shown] {
        line += &right(text, *room);
        line += "  ";
    }
    line
}

/// Returns the function that names a stack, in so many columns.
fn named(report: &Report, node: u32, room: usize) -> String {
    match stack::telling(report, node).first() {
        Some(frame) => stack::fitted(&frame.function, room),
        None => "(no stack)".into(),
    }
}
