//! One terminal screen: how complete the trace is, where resident memory is, what would give it back.
//!
//! ```text
//!   program · completeness · books (a table whose rows add up) · findings · totals · files
//! ```
//!
//! T1  Completeness comes before any figure.
//! T2  The books' last row is their sum; where it is not the resident memory, that is said.
//! T3  The screen is at most `Style::height` lines unless full stacks are asked for: findings lose
//!     detail from the smallest up, and what is left out is counted.
//! T4  Nothing recorded is said to be that; it is never good news.
//!
//! Not here: widths and inks (screen.rs), which frames matter (stack.rs).

use skinflint_analysis::model::{
    Books, Completeness, Confidence, Finding, Instant, InstantKind, Program, Report,
};

use crate::screen::{Ink, Line, bar, columns, cut_middle, left, right, wrap};
use crate::stack;
use crate::units::{bytes, count, duration, percent};

/// Findings shown in each list before "and N more".
const SHOWN_FINDINGS: usize = 8;
/// Holders shown.
const SHOWN_HOLDERS: usize = 4;

/// How the screen is to look.
#[derive(Clone, Debug)]
pub struct Style {
    /// Columns; used between 60 and 200.
    pub width: usize,
    /// Lines to keep to where possible; at least the fixed parts are always printed.
    pub height: usize,
    /// Whether to use colour.
    pub color: bool,
    /// Show every frame of every finding, and every finding, at whatever length.
    pub full_stacks: bool,
    /// Where the trace is.
    pub trace: Option<String>,
    /// Where the HTML report is.
    pub html: Option<String>,
}

impl Default for Style {
    fn default() -> Self {
        Style {
            width: 100,
            height: 50,
            color: false,
            full_stacks: false,
            trace: None,
            html: None,
        }
    }
}

/// Renders the screen; every line ends in `\n` and is at most the width wide.
pub fn render(report: &Report, style: &Style) -> String {
    let width = style.width.clamp(60, 200);
    let mut lines = vec![program_line(&report.program)];
    completeness(&report.completeness, width, &mut lines);
    if nothing_recorded(report) {
        empty(width, &mut lines);
        files(report, style, width, &mut lines);
    } else {
        books(report, width, &mut lines);
        let mut foot = tail(report, width);
        files(report, style, width, &mut foot);
        let room = style.height.saturating_sub(lines.len() + foot.len());
        findings(report, style, width, room, &mut lines);
        lines.extend(foot);
    }
    let mut out = String::new();
    for line in &lines {
        line.write(width, style.color, &mut out);
    }
    out
}

fn nothing_recorded(report: &Report) -> bool {
    report.completeness.events == 0 && report.totals.allocations == 0 && report.totals.maps == 0
}

fn program_line(program: &Program) -> Line {
    let name = if program.name.is_empty() {
        "(unnamed program)"
    } else {
        &program.name
    };
    let mut rest = format!("  pid {} · {}", program.pid, duration(program.duration_ns));
    if !program.ended.is_empty() {
        rest += &format!(" · ended: {}", program.ended);
    }
    if !program.allocator.is_empty() {
        rest += &format!(" · {}", program.allocator);
    }
    if let Some(origin) = &program.origin {
        rest += &format!(" · {origin}");
    }
    Line::of(Ink::Strong, name).with(Ink::Plain, rest)
}

fn completeness(c: &Completeness, width: usize, lines: &mut Vec<Line>) {
    let events = format!("{} events", count(c.events));
    if c.complete {
        lines.push(
            Line::of(Ink::Good, "complete").with(Ink::Plain, format!(": {events}, none lost")),
        );
    } else {
        let mut text = format!(": {events} read, ");
        text += &match c.lost_events {
            0 => "no lost ones counted, but something is missing".to_owned(),
            lost => format!("{} lost: every figure below may be too small", count(lost)),
        };
        lines.push(Line::of(Ink::Warn, "INCOMPLETE").with(Ink::Plain, text));
    }
    let mut also = Vec::new();
    if c.truncated_stacks > 0 {
        also.push(format!(
            "{} stacks lack their outermost frames",
            count(c.truncated_stacks)
        ));
    }
    if c.unknown_frees > 0 {
        also.push(format!(
            "{} releases of blocks from before recording",
            count(c.unknown_frees)
        ));
    }
    also.extend(c.notes.iter().cloned());
    let shown = if c.complete { 3 } else { 5 };
    for note in also.iter().take(shown) {
        for piece in wrap(note, width - 2, 2) {
            lines.push(Line::of(Ink::Faint, format!("  {piece}")));
        }
    }
    if also.len() > shown {
        lines.push(Line::of(
            Ink::Faint,
            format!("  … and {} more notes: see --json", also.len() - shown),
        ));
    }
}

fn empty(width: usize, lines: &mut Vec<Line>) {
    lines.push(Line::default());
    lines.push(Line::of(
        Ink::Warn,
        "Nothing was recorded, so nothing can be said about this program's memory.",
    ));
    let why = "It may be that the program is statically linked or setuid, so that LD_PRELOAD cannot \
               reach it; that it brings its own allocator and never calls malloc or mmap; that it \
               started another program, which has a trace of its own; or that it ended before its \
               first allocation.";
    for piece in wrap(why, width, 8) {
        lines.push(Line::of(Ink::Plain, piece));
    }
}

/// What an instant is called in a sentence.
fn instant_name(instant: &Instant) -> String {
    let at = duration(instant.time_ns);
    match instant.kind {
        InstantKind::Peak => format!("its peak ({at} after the start)"),
        InstantKind::HeapPeak => format!("the largest live heap ({at} after the start)"),
        InstantKind::End => format!("the end ({at} after the start)"),
        InstantKind::Time => format!("{at} after the start"),
        InstantKind::Mark => format!("mark “{}” ({at} after the start)", instant.label),
    }
}

fn books(report: &Report, width: usize, lines: &mut Vec<Line>) {
    lines.push(Line::default());
    let Some(instant) = report.instants.get(report.at) else {
        lines.push(Line::of(
            Ink::Warn,
            "The report has no instant: no figure belongs to a moment.",
        ));
        return;
    };
    let heading = format!("Resident memory at {}", instant_name(instant));
    match &instant.books {
        Some(books) => {
            lines.push(Line::of(Ink::Strong, heading));
            table(books, width, lines);
        }
        None => {
            lines.push(Line::of(Ink::Strong, heading));
            lines.push(Line::of(
                Ink::Plain,
                "  not known: no snapshot of the mappings belongs to this instant.",
            ));
        }
    }
    let heap = format!(
        "live heap then: {} blocks, {} asked for, {} given (slop {})",
        count(instant.live_blocks),
        bytes(instant.live_requested_bytes),
        bytes(instant.live_usable_bytes),
        bytes(
            instant
                .live_usable_bytes
                .saturating_sub(instant.live_requested_bytes)
        ),
    );
    for piece in wrap(&heap, width - 2, 2) {
        lines.push(Line::of(Ink::Plain, format!("  {piece}")));
    }
    other_instants(report, width, lines);
}

fn table(books: &Books, width: usize, lines: &mut Vec<Line>) {
    let label_room = books
        .rows
        .iter()
        .map(|row| columns(&row.label))
        .max()
        .unwrap_or(0);
    let label_room = label_room.clamp(columns("= resident"), width / 2 - 8);
    let bar_room = width.saturating_sub(label_room + 26).min(60);
    let whole = books.resident_bytes;
    for row in books.rows.iter().filter(|row| row.bytes > 0) {
        let line = Line::of(Ink::Plain, format!("  {}", left(&row.label, label_room)))
            .with(Ink::Plain, right(&bytes(row.bytes), 11))
            .with(Ink::Faint, right(&percent(row.bytes, whole), 8))
            .with(Ink::Bar, format!("  {}", bar(row.bytes, whole, bar_room)));
        lines.push(line);
    }
    let sum: u128 = books.rows.iter().map(|row| u128::from(row.bytes)).sum();
    let line = Line::of(Ink::Strong, format!("  {}", left("= resident", label_room)))
        .with(Ink::Strong, right(&bytes(whole), 11))
        .with(Ink::Faint, right(&percent(whole, whole), 8));
    lines.push(line);
    if sum != u128::from(whole) {
        let text = format!(
            "  The rows add up to {sum} bytes, not {whole}: this is a fault of the analysis, please report it."
        );
        lines.extend(
            wrap(&text, width, 3)
                .into_iter()
                .map(|piece| Line::of(Ink::Warn, piece)),
        );
    }
    let mut asides = Vec::new();
    if books.live_not_resident_bytes > 0 {
        asides.push(format!(
            "{} of live blocks are not resident",
            bytes(books.live_not_resident_bytes)
        ));
    }
    if books.skew_ns > 0 {
        asides.push(format!(
            "snapshot {} from the instant",
            duration(books.skew_ns)
        ));
    }
    if !asides.is_empty() {
        lines.push(Line::of(Ink::Faint, format!("  {}", asides.join(" · "))));
    }
}

/// One line that names the other instants, so that nobody takes this one for the whole story.
fn other_instants(report: &Report, width: usize, lines: &mut Vec<Line>) {
    let others = report
        .instants
        .iter()
        .enumerate()
        .filter(|(index, _)| *index != report.at);
    let texts: Vec<String> = others
        .map(|(_, instant)| match &instant.books {
            Some(books) => format!("{} {} resident", instant.label, bytes(books.resident_bytes)),
            None => format!(
                "{} {} live",
                instant.label,
                bytes(instant.live_usable_bytes)
            ),
        })
        .collect();
    let mut line = String::from("  elsewhere:");
    for (index, text) in texts.iter().enumerate() {
        let rest = format!(" · and {} more", texts.len() - index);
        if columns(&line) + columns(text) + columns(&rest) + 3 > width {
            line += &rest;
            break;
        }
        line += if index == 0 { " " } else { " · " };
        line += text;
    }
    if !texts.is_empty() {
        lines.push(Line::of(Ink::Faint, line));
    }
}

/// How much of a finding is shown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Detail {
    /// Its title and the place.
    Line,
    /// The change as well.
    Short,
    /// More of the change and a few frames.
    Full,
    /// Everything.
    Whole,
}

struct Section<'a> {
    heading: &'static str,
    findings: Vec<&'a Finding>,
    shown: usize,
}

fn sections<'a>(report: &'a Report, style: &Style) -> Vec<Section<'a>> {
    let gives = |f: &&Finding| f.saved_bytes > 0;
    let avoids = |f: &&Finding| {
        f.saved_bytes == 0 && (f.saved_cumulative_bytes > 0 || f.saved_allocations > 0)
    };
    let holds = |f: &&Finding| {
        f.saved_bytes == 0 && f.saved_cumulative_bytes == 0 && f.saved_allocations == 0
    };
    let mut gives: Vec<_> = report.findings.iter().filter(gives).collect();
    gives.sort_by_key(|finding| std::cmp::Reverse(finding.saved_bytes));
    let mut avoids: Vec<_> = report.findings.iter().filter(avoids).collect();
    avoids.sort_by_key(|f| std::cmp::Reverse((f.saved_cumulative_bytes, f.saved_allocations)));
    let mut holds: Vec<_> = report.findings.iter().filter(holds).collect();
    holds.sort_by_key(|finding| std::cmp::Reverse(finding.now_bytes));
    let limit = |usual: usize, has: usize| {
        if style.full_stacks {
            has
        } else {
            usual.min(has)
        }
    };
    let left = SHOWN_FINDINGS.saturating_sub(gives.len()).max(3);
    [
        (
            "What would give memory back (savings may overlap)",
            SHOWN_FINDINGS,
            gives,
        ),
        (
            "What would allocate less (over the whole run)",
            left,
            avoids,
        ),
        ("Who holds it (not waste by itself)", SHOWN_HOLDERS, holds),
    ]
    .into_iter()
    .filter(|(_, _, findings)| !findings.is_empty())
    .map(|(heading, usual, findings)| Section {
        heading,
        shown: limit(usual, findings.len()),
        findings,
    })
    .collect()
}

fn findings(report: &Report, style: &Style, width: usize, room: usize, lines: &mut Vec<Line>) {
    let sections = sections(report, style);
    if sections.is_empty() {
        lines.push(Line::default());
        lines.push(Line::of(
            Ink::Plain,
            "No pass found anything to change. That covers the passes that ran, not all waste.",
        ));
        return;
    }
    let count_of =
        |detail: &[Vec<Detail>]| -> usize { blocks(report, &sections, detail, width).len() };
    let start = if style.full_stacks {
        Detail::Whole
    } else {
        Detail::Line
    };
    let mut detail: Vec<Vec<Detail>> = sections.iter().map(|s| vec![start; s.shown]).collect();
    if !style.full_stacks {
        // Largest first: a finding gets its change before the next gets one, and all have it
        // before any gets more frames.
        for level in [Detail::Short, Detail::Full] {
            upgrade(&mut detail, level, |detail| count_of(detail) <= room);
        }
    }
    lines.extend(blocks(report, &sections, &detail, width));
}

/// Raises findings to `level` in order, up to the first that does not fit.
fn upgrade(detail: &mut [Vec<Detail>], level: Detail, fits: impl Fn(&[Vec<Detail>]) -> bool) {
    for section in 0..detail.len() {
        for index in 0..detail[section].len() {
            let before = std::mem::replace(&mut detail[section][index], level);
            if !fits(detail) {
                detail[section][index] = before;
                return;
            }
        }
    }
}

fn blocks(
    report: &Report,
    sections: &[Section<'_>],
    detail: &[Vec<Detail>],
    width: usize,
) -> Vec<Line> {
    let mut lines = Vec::new();
    for (section, detail) in sections.iter().zip(detail) {
        lines.push(Line::default());
        lines.push(Line::of(Ink::Strong, section.heading));
        for (finding, detail) in section.findings.iter().zip(detail) {
            one_finding(report, finding, *detail, width, &mut lines);
        }
        let hidden = section.findings.len() - section.shown;
        if hidden > 0 {
            lines.push(Line::of(
                Ink::Faint,
                format!(
                    "  … and {hidden} more: {} See the HTML report.",
                    hidden_sum(section)
                ),
            ));
        }
    }
    lines
}

/// What the findings that are not shown come to.
fn hidden_sum(section: &Section<'_>) -> String {
    let hidden = section.findings.iter().skip(section.shown);
    let saved: u64 = hidden
        .clone()
        .fold(0, |sum, f| sum.saturating_add(f.saved_bytes));
    let held: u64 = hidden
        .clone()
        .fold(0, |sum, f| sum.saturating_add(f.now_bytes));
    match (saved, held) {
        (0, 0) => String::new(),
        (0, held) => format!("{} in all.", bytes(held)),
        (saved, _) => format!("{} in all.", bytes(saved)),
    }
}

fn figure(finding: &Finding) -> String {
    if finding.saved_bytes > 0 {
        bytes(finding.saved_bytes)
    } else if finding.saved_cumulative_bytes > 0 {
        bytes(finding.saved_cumulative_bytes)
    } else if finding.saved_allocations > 0 {
        format!("{} allocs", count(finding.saved_allocations))
    } else {
        bytes(finding.now_bytes)
    }
}

fn confidence(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Certain => "certain",
        Confidence::Likely => "likely",
        Confidence::Possible => "possible",
    }
}

fn one_finding(
    report: &Report,
    finding: &Finding,
    detail: Detail,
    width: usize,
    lines: &mut Vec<Line>,
) {
    const INDENT: usize = 14;
    let pad = " ".repeat(INDENT);
    let room = width - INDENT;
    let ink = if finding.saved_bytes > 0 {
        Ink::Good
    } else {
        Ink::Strong
    };
    let sure = format!(" ({})", confidence(finding.confidence));
    let lead = |line: Line| line.with(Ink::Plain, "  ");
    let amount = right(&figure(finding), INDENT - 2);
    if detail == Detail::Line {
        let place = first_frame(report, finding)
            .map(|name| format!(" — {name}"))
            .unwrap_or_default();
        let title = cut_middle(&finding.title, room.saturating_sub(columns(&sure)).max(20));
        let line = lead(Line::of(ink, amount)).with(Ink::Plain, title);
        lines.push(line.with(Ink::Faint, sure).with(Ink::Faint, place));
        return;
    }
    let limit = match detail {
        Detail::Line | Detail::Short => 1,
        Detail::Full => 2,
        Detail::Whole => usize::MAX,
    };
    let mut titles = wrap(&finding.title, room - columns(&sure), limit).into_iter();
    let first = lead(Line::of(ink, amount)).with(Ink::Plain, titles.next().unwrap_or_default());
    lines.push(first.with(Ink::Faint, sure));
    lines.extend(titles.map(|piece| Line::of(Ink::Plain, format!("{pad}{piece}"))));
    if detail == Detail::Whole && !finding.what.is_empty() {
        lines.extend(
            wrap(&finding.what, room, limit)
                .into_iter()
                .map(|p| Line::of(Ink::Faint, format!("{pad}{p}"))),
        );
    }
    if !finding.change.is_empty() {
        for (index, piece) in wrap(&finding.change, room - 2, limit)
            .into_iter()
            .enumerate()
        {
            let arrow = if index == 0 { "→ " } else { "  " };
            lines.push(Line::of(Ink::Plain, format!("{pad}{arrow}{piece}")));
        }
    }
    frames(report, finding, detail, width, lines);
}

fn first_frame(report: &Report, finding: &Finding) -> Option<String> {
    let frames = stack::interesting(report, finding.node?);
    frames.first().map(|frame| {
        format!(
            "{} {}",
            stack::short_name(&frame.function),
            stack::place(frame)
        )
    })
}

fn frames(report: &Report, finding: &Finding, detail: Detail, width: usize, lines: &mut Vec<Line>) {
    const INDENT: usize = 14;
    let Some(node) = finding.node else { return };
    let whole = detail == Detail::Whole;
    let frames = if whole {
        stack::path(report, node)
    } else {
        stack::interesting(report, node)
    };
    let shown = match detail {
        Detail::Line | Detail::Short => 1,
        Detail::Full => 3,
        Detail::Whole => frames.len(),
    };
    let room = width - INDENT - 3;
    let others = finding.more_nodes.len();
    for (index, frame) in frames.iter().take(shown).enumerate() {
        let name = if whole {
            frame.function.clone()
        } else {
            stack::short_name(&frame.function)
        };
        let mut place = stack::place(frame);
        if whole && frame.inlined {
            place += " (inlined)";
        }
        if index + 1 == shown && !whole {
            let rest = frames.len().saturating_sub(shown);
            if detail == Detail::Full && rest > 0 {
                place += &format!("  +{rest} frames");
            }
            if others > 0 {
                place += &format!("  +{others} stacks");
            }
        }
        let place = cut_middle(&place, room / 2);
        let name = left(&name, (room - columns(&place) - 2).min(columns(&name)));
        let lead = format!(
            "{}{}",
            " ".repeat(INDENT),
            if index == 0 { "at " } else { "   " }
        );
        lines.push(
            Line::of(Ink::Faint, lead)
                .with(Ink::Plain, name)
                .with(Ink::Faint, format!("  {place}")),
        );
    }
    if whole && others > 0 {
        let text = format!(
            "{}… and {others} more stacks: see --json",
            " ".repeat(INDENT)
        );
        lines.push(Line::of(Ink::Faint, text));
    }
}

fn tail(report: &Report, width: usize) -> Vec<Line> {
    let t = &report.totals;
    let mut text = format!(
        "Over the run: {} allocations of {} ({} given), {} frees, {} reallocs, {} temporaries",
        count(t.allocations),
        bytes(t.requested_bytes),
        bytes(t.usable_bytes),
        count(t.frees),
        count(t.reallocs),
        count(t.temporaries),
    );
    if t.maps > 0 {
        text += &format!("; {} mmaps of {}", count(t.maps), bytes(t.map_bytes));
    }
    text.push('.');
    let mut lines = vec![Line::default()];
    lines.extend(
        wrap(&text, width, 3)
            .into_iter()
            .map(|piece| Line::of(Ink::Plain, piece)),
    );
    lines
}

fn files(report: &Report, style: &Style, width: usize, lines: &mut Vec<Line>) {
    let p = &report.program;
    let mut own = format!(
        "The recorder itself held {} inside the program",
        bytes(p.recorder_bytes)
    );
    if p.trace_bytes > 0 {
        own += &format!("; the trace is {}", bytes(p.trace_bytes));
        if report.completeness.events > 0 {
            own += &format!(
                " ({:.2} bytes an event)",
                p.trace_bytes as f64 / report.completeness.events as f64
            );
        }
    }
    own.push('.');
    lines.extend(
        wrap(&own, width, 2)
            .into_iter()
            .map(|piece| Line::of(Ink::Faint, piece)),
    );
    for (label, path) in [("trace  ", &style.trace), ("report ", &style.html)] {
        let Some(path) = path else { continue };
        // A path is copied and pasted, so it is broken over lines rather than shortened.
        for (index, piece) in wrap(path, width - 7, usize::MAX).into_iter().enumerate() {
            lines.push(
                Line::of(Ink::Faint, if index == 0 { label } else { "       " })
                    .with(Ink::Plain, piece),
            );
        }
    }
}
