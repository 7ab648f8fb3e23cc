//! The verdict: what resident memory is made of, what would go back, and what holds most, in a sentence or two.
//!
//! ```text
//!   38.5 MiB at its peak: 25.9 MiB live blocks, 7.60 MiB free in the allocator, 4.15 MiB mapped files. No change that
//!   gives memory back is advised; the largest holder is sqlite3BtreeInsert (18.0 MiB).
//! ```
//!
//! D1  Each figure is one of the books or of a finding: it stands below again, with what belongs to it.
//! D2  At most three rows are named, the largest, and none up to a fiftieth of resident memory; the recorder's is not the
//!     program's.
//! D3  The saving is that of one finding, the largest: savings of free memory may overlap, so they are not added up.
//!     One that is of a moment below the peak is said to be of a later or earlier moment.
//! D4  Without books there is no verdict.
//! D5  A name that says nothing (`<lambda>`, `(anonymous)`) stands with its file and line.
//!
//! Not here: the books (text.rs), the list of findings (advice.rs).

use std::cmp::Reverse;

use skinflint_analysis::model::{
    BookRow, Books, Finding, FindingKind, Frame, Instant, InstantKind, Report,
};

use crate::advice::{changes, is_below_the_peak, moment};
use crate::screen::{Ink, Line, clean, cut_middle, wrap};
use crate::stack;
use crate::units::bytes;

/// The most lines; only made-up names reach it.
const LINES: usize = 3;
/// The columns of a name.
const NAME: usize = 32;
/// The most rows that are named.
const ROWS: usize = 3;
/// A row is named from one part in this many of resident memory.
const NAMED: u64 = 50;
/// What holds most is named from one part in this many.
const HOLDS: u64 = 10;

/// Returns the verdict in lines of at most `width` columns, a blank one before it; none without books. `is_near` says
/// that the report is about a reading near the peak, not about the peak.
pub(crate) fn lines(report: &Report, is_near: bool, width: usize) -> Vec<Line> {
    let Some(text) = sentence(report, is_near) else {
        return Vec::new();
    };
    let pieces = wrap(&text, width, LINES).into_iter();
    let lines = pieces.map(|piece| Line::of(Ink::Strong, piece));
    std::iter::once(Line::default()).chain(lines).collect()
}

/// Returns the verdict as one text; `None` without books (D4).
pub(crate) fn sentence(report: &Report, is_near: bool) -> Option<String> {
    let instant = report.instants.get(report.at)?;
    let books = instant
        .books
        .as_ref()
        .filter(|books| books.resident_bytes > 0)?;
    let mut text = format!("{} {}", bytes(books.resident_bytes), when(instant, is_near));
    let rows = named(books);
    if !rows.is_empty() {
        text += &format!(": {}", rows.join(", "));
    }
    text += &format!(". {}", saving(report, books));
    if let Some(held) = held(report, books) {
        text += &format!("; the largest holder is {held}");
    }
    Some(text + ".")
}

fn when(instant: &Instant, is_near: bool) -> String {
    match instant.kind {
        InstantKind::Peak if is_near => "near its peak".into(),
        InstantKind::Peak => "at its peak".into(),
        InstantKind::HeapPeak => "with the largest live heap".into(),
        InstantKind::End => "at the end".into(),
        InstantKind::AfterFree => "after the largest free".into(),
        InstantKind::MostKept => "when most was kept".into(),
        InstantKind::Mark => format!("at mark “{}”", instant.label),
        InstantKind::Time => "then".into(),
    }
}

/// Returns the largest rows with their bytes (D2).
fn named(books: &Books) -> Vec<String> {
    let floor = books.resident_bytes / NAMED;
    let mut rows: Vec<&BookRow> = (books.rows.iter())
        .filter(|row| row.bytes > floor && row.id != "recorder")
        .collect();
    rows.sort_by_key(|row| Reverse(row.bytes));
    let rows = rows.into_iter().take(ROWS);
    rows.map(|row| format!("{} {}", bytes(row.bytes), name(row)))
        .collect()
}

/// Returns a row's name for a list, without a comma in it.
fn name(row: &BookRow) -> String {
    let name = match row.id.as_str() {
        // Of a program that was attached to it may also be in blocks from before.
        "allocator-free" if row.label.contains("recorded") => "free or not recorded",
        "allocator-free" => "free in the allocator",
        "arena-free" => "free in Python's arenas",
        "heap-unseen" => "of the heap without a block",
        "slop" => "rounding",
        _ => &row.label,
    };
    cut_middle(&clean(name), NAME)
}

/// Returns what the largest change would give back (D3).
fn saving(report: &Report, books: &Books) -> String {
    let gives = changes(report, books);
    let Some(largest) = gives.clone().max_by_key(|one| one.saved_bytes) else {
        return "No change that gives memory back is advised".into();
    };
    let saved = bytes(largest.saved_bytes);
    let elsewhere = moment(largest).is_some_and(|moment| is_below_the_peak(report, moment));
    match (gives.count(), elsewhere) {
        (1, false) => format!("{saved} can go back"),
        (1, true) => format!("At another moment {saved} can go back"),
        (many, false) => format!("The largest of {many} changes gives back {saved}"),
        (many, true) => {
            format!("The largest of {many} changes gives back {saved}, at another moment")
        }
    }
}

/// Returns the function that holds most, or the heap inside the program that does, with its bytes.
fn held(report: &Report, books: &Books) -> Option<String> {
    let holders = report.findings.iter();
    let holders = holders.filter(|one| one.kind == FindingKind::Holder && one.saved_bytes == 0);
    let most: &Finding = holders.max_by_key(|one| one.now_bytes)?;
    if most.now_bytes < books.resident_bytes / HOLDS {
        return None;
    }
    let heap = report.own_heaps.iter().find(|heap| heap.node == most.node);
    if let Some(heap) = heap.filter(|heap| !heap.name.is_empty()) {
        return Some(format!("{} ({})", heap.name, bytes(most.now_bytes)));
    }
    let frames = stack::heading(report, most.node?);
    let named = frames
        .iter()
        .find(|frame| !stack::is_unnamed(&frame.function));
    let frame = named.or(frames.first())?;
    let function = clean(&stack::fitted(&frame.function, NAME));
    let place = place(frame).map_or(String::new(), |place| format!(" at {place}"));
    Some(format!("{function}{place} ({})", bytes(most.now_bytes)))
}

/// Reports whether a name is one that many functions have; `<T as Trait>::of` is none.
fn is_general(function: &str) -> bool {
    function.starts_with('<') && function.ends_with('>')
        || function.starts_with('(') && function.ends_with(')')
}

/// Returns the file and line of a function whose name other functions have, too: `<listcomp>`, `(anonymous)` (D5).
fn place(frame: &Frame) -> Option<String> {
    if frame.file.is_none() || !is_general(&frame.function) {
        return None;
    }
    let place = stack::place(frame);
    let file = place.rsplit('/').next()?;
    Some(cut_middle(&clean(file), NAME))
}
