//! A difference as text: totals, then one line for each stack, one line for what is left out, and the sum.
//!
//! ```text
//!          bytes      blocks        slop      pinned  change    stack
//!      +1.00 MiB        +100          0   +3.00 KiB  grew      parse ← load ← main
//! ```
//!
//! B1  The lines, `others` included, add up to the line of the sum, figure by figure; figures have three digits, as
//!     everywhere.
//!
//! Not here: what a row is (`diff.rs`).

use std::fmt::Write as _;

use skinflint_view::stack::{fitted, is_plumbing, is_startup};
use skinflint_view::units;

use crate::diff::{By, Change, Diff, Matched, Row, Side};

/// How the difference is shown.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// The number of rows shown.
    pub rows: usize,
    /// The number of frames of a stack shown, innermost first; 0 shows all.
    pub frames: usize,
    /// The figure that rows are ordered by.
    pub by: By,
}

/// Formats a difference: `+1.00 MiB`, `−3.00 KiB`, `0`.
pub(crate) fn signed(before: u64, after: u64, say: fn(u64) -> String) -> String {
    match after.cmp(&before) {
        std::cmp::Ordering::Greater => format!("+{}", say(after - before)),
        std::cmp::Ordering::Less => format!("\u{2212}{}", say(before - after)),
        std::cmp::Ordering::Equal => "0".into(),
    }
}

fn word(change: Change) -> &'static str {
    match change {
        Change::Grew => "grew",
        Change::Shrank => "shrank",
        Change::Appeared => "appeared",
        Change::Vanished => "vanished",
        Change::Same => "same",
    }
}

/// Sums of differences, each direction separately, so that a sum of unsigned figures is exact.
#[derive(Default)]
struct Sum {
    before: [u64; 5],
    after: [u64; 5],
}

const FIGURES: [By; 5] = [By::Bytes, By::Blocks, By::Slop, By::Pinned, By::Allocations];

/// Which columns the table has.
#[derive(Clone, Copy)]
struct Columns {
    /// Two moments of one run have the same allocations over the run.
    runs: bool,
    /// If no page is known, it is not known what is pinned.
    pins: bool,
}

impl Columns {
    fn has(self, by: By) -> bool {
        match by {
            By::Allocations => self.runs,
            By::Pinned => self.pins,
            By::Bytes | By::Blocks | By::Slop => true,
        }
    }
}

fn head(by: By) -> &'static str {
    match by {
        By::Bytes => "bytes",
        By::Blocks => "blocks",
        By::Slop => "slop",
        By::Pinned => "pinned",
        By::Allocations => "allocations",
    }
}

impl Sum {
    fn add(&mut self, row: &Row) {
        for (at, by) in FIGURES.into_iter().enumerate() {
            self.before[at] = self.before[at].saturating_add(by.of(&row.before));
            self.after[at] = self.after[at].saturating_add(by.of(&row.after));
        }
    }

    fn line(&self, columns: Columns, word: &str, stack: &str) -> String {
        let mut line = String::new();
        for (at, by) in FIGURES.into_iter().enumerate() {
            let say = match by {
                By::Bytes | By::Slop | By::Pinned => units::bytes,
                By::Blocks | By::Allocations => units::count,
            };
            if columns.has(by) {
                let _ = write!(line, "{:>12}", signed(self.before[at], self.after[at], say));
            }
        }
        format!("{line}  {word:<8}  {stack}\n")
    }
}

fn said(side: &Side) -> String {
    format!(
        "{} ({} {}, {} at {})",
        side.trace,
        side.program,
        side.pid,
        side.at,
        units::duration(side.time_ns)
    )
}

/// The most columns of a function's name, unless every frame is shown whole.
const NAME: usize = 60;

/// Splits what a row says of a frame: the function, and its module in brackets if there is one.
fn split(frame: &str) -> (&str, &str) {
    match frame.rfind(" (").filter(|_| frame.ends_with(')')) {
        Some(at) if at > 0 => (&frame[..at], &frame[at..]),
        _ => (frame, ""),
    }
}

fn stack(row: &Row, frames: usize) -> String {
    if row.frames.is_empty() {
        return "[no stack]".into();
    }
    let limit = if frames == 0 { usize::MAX } else { frames };
    let dull = |frame: &&String| is_plumbing(split(frame).0) || is_startup(split(frame).0);
    let named = |frame: &str| match frames {
        0 => split(frame).0.to_owned(),
        _ => fitted(split(frame).0, NAME),
    };
    let own: Vec<&String> = row.frames.iter().filter(|frame| !dull(frame)).collect();
    let all: Vec<&String> = row.frames.iter().collect();
    let chosen = if own.is_empty() || frames == 0 {
        all
    } else {
        own
    };
    let mut text = String::new();
    for (at, frame) in chosen.iter().take(limit).enumerate() {
        // The module is printed once.
        let module = if at == 0 { split(frame).1 } else { "" };
        let frame = named(frame) + module;
        let arrow = if at == 0 { "" } else { " \u{2190} " };
        let _ = write!(text, "{arrow}{frame}");
    }
    if chosen.len() > limit {
        text.push_str(" \u{2190} \u{2026}");
    }
    match row.matched {
        Matched::Frames => {}
        Matched::NotInlined => text.push_str("  [matched without inlined frames]"),
        Matched::Named => text.push_str("  [matched by named frames only]"),
    }
    text
}

/// Renders the text.
pub fn render(diff: &Diff, style: &Style) -> String {
    let (before, after) = (&diff.before, &diff.after);
    let mut text = format!("before  {}\nafter   {}\n", said(before), said(after));
    for doubt in &diff.doubts {
        let _ = writeln!(text, "doubt:  {doubt}");
    }
    let (old, new) = (&before.total, &after.total);
    let _ = writeln!(
        text,
        "\nlive    {} in {} \u{2192} {} in {}, slop {} \u{2192} {}",
        units::bytes(old.usable_bytes),
        units::plural(old.blocks, "block"),
        units::bytes(new.usable_bytes),
        units::plural(new.blocks, "block"),
        units::bytes(old.slop_bytes()),
        units::bytes(new.slop_bytes()),
    );
    if before.pins_known {
        let _ = writeln!(
            text,
            "pinned  {} \u{2192} {} free on resident pages that live blocks keep",
            units::bytes(old.pinned_bytes),
            units::bytes(new.pinned_bytes),
        );
    }
    let runs = old.allocations != new.allocations || old.allocated_bytes != new.allocated_bytes;
    if runs {
        let _ = writeln!(
            text,
            "run     {} in {} \u{2192} {} in {}",
            units::bytes(old.allocated_bytes),
            units::plural(old.allocations, "allocation"),
            units::bytes(new.allocated_bytes),
            units::plural(new.allocations, "allocation"),
        );
    }
    let columns = Columns {
        runs,
        pins: before.pins_known,
    };
    text.push('\n');
    for by in FIGURES.into_iter().filter(|by| columns.has(*by)) {
        let _ = write!(text, "{:>12}", head(by));
    }
    text.push_str("  change    stack\n");
    let (mut total, mut others, mut left_out) = (Sum::default(), Sum::default(), 0u64);
    for (index, row) in diff.rows.iter().enumerate() {
        total.add(row);
        if index < style.rows && row.size(style.by) > 0 {
            let mut one = Sum::default();
            one.add(row);
            text += &one.line(columns, word(row.change), &stack(row, style.frames));
        } else {
            others.add(row);
            left_out += 1;
        }
    }
    if left_out > 0 {
        text += &others.line(
            columns,
            "",
            &format!("others: {}", units::plural(left_out, "stack")),
        );
    }
    text += &total.line(columns, "", "sum");
    text
}
