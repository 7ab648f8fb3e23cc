//! The terminal screen: how complete the trace is, where resident memory is, what would give it back.
//!
//! ```text
//!   program · completeness · verdict · books (a table whose rows add up) · findings · totals · files
//! ```
//!
//! T1  Completeness comes before any figure.
//! T2  The books' last row is their sum; if it is not the resident memory, a line says so.
//! T3  The screen has at most `Style::height` lines unless full stacks are asked for: findings lose detail from the
//!     smallest up, and what is left out is counted.
//! T4  If nothing was recorded, the screen says so; it is never good news.
//!
//! Not here: the findings (advice.rs), widths and inks (screen.rs), which frames matter (stack.rs), what pins free
//! memory (pinned.rs), functions with all that they call (through.rs), the sentence above the table (verdict.rs).

use std::collections::HashMap;

use skinflint_analysis::model::{
    Books, Completeness, Frame, Instant, InstantKind, Program, Report,
};

use crate::advice::{fewest_lines, findings, kept};
use crate::pinned;
use crate::reach;
use crate::screen::{Ink, Line, bar, columns, left, right, wrap};
use crate::stack;
pub use crate::style::Style;
use crate::through;
use crate::units::{bytes, count, duration, percent, plural};
use crate::verdict;

/// A reading this long before the end is not that of the end.
const STALE_NS: u64 = 50_000_000;

/// Renders the screen; every line ends in `
/// ` and is at most as wide as the width.
pub fn render(report: &Report, style: &Style) -> String {
    let width = style.width.clamp(60, 200);
    let mut lines = vec![program_line(&report.program)];
    completeness(&report.completeness, width, &mut lines);
    if nothing_recorded(report) {
        empty(&report.completeness, width, &mut lines);
        files(report, style, width, &mut lines);
    } else {
        let mut foot = tail(report, width);
        files(report, style, width, &mut foot);
        let mut reach = Vec::new();
        reach::section(report, style.full_stacks, width, &mut reach);
        let fewest = foot.len() + reach.len() + fewest_lines(report, style, width);
        let mut table = Vec::new();
        books(report, width, &mut table);
        let taken = lines.len() + table.len() + fewest;
        let room = style.height.saturating_sub(taken);
        lines.extend(verdict(report, style.full_stacks, room, width));
        lines.extend(table);
        let taken = lines.len() + fewest;
        let room = (!style.full_stacks).then(|| style.height.saturating_sub(taken));
        // It gets half of what is left: details of findings and what pins free memory need some lines too.
        let through = through::section(report, room.map(|room| room / 2), width);
        let room = room.map(|room| room - through.len());
        pinned::section(report, room, width, &mut lines);
        lines.extend(reach);
        let taken = lines.len() + foot.len() + through.len();
        let room = style.height.saturating_sub(taken);
        findings(report, style, width, room, &mut lines);
        lines.extend(through);
        lines.extend(foot);
    }
    let mut out = String::new();
    for line in &lines {
        line.write(width, style.color, &mut out);
    }
    out
}

/// Returns the verdict as one text, without regard to a screen; empty without books. It is the report's `verdict`.
pub fn said(report: &Report) -> String {
    verdict::sentence(report, is_near_the_peak(report)).unwrap_or_default()
}

/// Reports whether the report is about a reading near the peak, not about the peak itself.
fn is_near_the_peak(report: &Report) -> bool {
    let chosen = report.instants.get(report.at);
    chosen.is_some_and(|one| above_the_peak(report, one).is_some() || is_passed(report, one))
}

/// Returns the verdict; none where the screen has no room for it (T3).
fn verdict(report: &Report, whole: bool, room: usize, width: usize) -> Vec<Line> {
    let verdict = verdict::lines(report, is_near_the_peak(report), width);
    match whole || verdict.len() <= room {
        true => verdict,
        false => Vec::new(),
    }
}

fn nothing_recorded(report: &Report) -> bool {
    let (c, totals) = (&report.completeness, &report.totals);
    // The recorder was attached to a program that made no call meanwhile: its resident memory is known all the same.
    let was_quiet = c.complete && c.began_late && !report.instants.is_empty();
    c.events == 0 && totals.allocations == 0 && totals.maps == 0 && !was_quiet
}

fn program_line(program: &Program) -> Line {
    let name = if program.name.is_empty() {
        "(unnamed program)"
    } else {
        &program.name
    };
    let mut rest = format!("  pid {} · {}", program.pid, duration(program.duration_ns));
    match program.ended.as_str() {
        "" => {}
        "detached" => rest += " · detached: it went on",
        "unknown" => rest += " · ended: its status is not known",
        ended => rest += &format!(" · ended: {ended}"),
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
    let events = plural(c.events, "event");
    let own = format!("{events}, {}", passed(c.unrecorded_calls));
    if c.complete && c.lost_children == 0 {
        lines.push(Line::of(Ink::Good, "complete").with(Ink::Plain, format!(": {own}")));
    } else if c.complete {
        // What this process did is known; what the recording was to show is not.
        let text = format!(": {}; of this one {own}", without_trace(c.lost_children));
        lines.push(Line::of(Ink::Warn, "INCOMPLETE").with(Ink::Plain, text));
    } else {
        let mut text = format!(": {events} read");
        text += &match (c.lost_events, c.unread_events) {
            (0, 0) => "; what is missing:".to_owned(),
            (lost, 0) => format!(
                ", {} lost: every figure below may be too small",
                count(lost)
            ),
            (lost, unread) => format!(
                ", {} lost or not readable: every figure below may be too small",
                count(lost.saturating_add(unread))
            ),
        };
        lines.push(Line::of(Ink::Warn, "INCOMPLETE").with(Ink::Plain, text));
    }
    let mut also = Vec::new();
    if c.truncated_stacks > 0 {
        also.push(format!(
            "without its outermost frames, as unwind information ends there: {}",
            plural(c.truncated_stacks, "stack")
        ));
    }
    if c.unknown_frees > 0 && (c.began_late || c.complete) {
        also.push(format!(
            "of blocks from before recording: {}",
            plural(c.unknown_frees, "release")
        ));
    }
    also.extend(c.notes.iter().cloned());
    // What is missing is said whole: half a sentence of it tells neither what nor what to do.
    let (shown, rows) = if c.complete { (3, 2) } else { (5, 4) };
    for note in also.iter().take(shown) {
        for piece in wrap(note, width - 2, rows) {
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

/// Returns what the headline says of processes that have no trace.
fn without_trace(lost_children: u64) -> String {
    match lost_children {
        1 => "1 process that it started was not recorded".into(),
        n => format!("{} processes that it started were not recorded", count(n)),
    }
}

/// Returns what the headline says of lost calls: where some passed unrecorded, not that none was lost.
pub(crate) fn passed(unrecorded_calls: u64) -> String {
    match unrecorded_calls {
        0 => "none lost".to_owned(),
        calls => format!("and {} passed unrecorded", plural(calls, "call")),
    }
}

fn empty(known: &Completeness, width: usize, lines: &mut Vec<Line>) {
    let unread = known.unread_events;
    lines.push(Line::default());
    if unread > 0 {
        let text = format!(
            "{} recorded, and none of them can be read: the file is damaged. Nothing can be said about this \
             program's memory.",
            format_args!("{} were", plural(unread, "event"))
        );
        lines.extend(
            wrap(&text, width, 8)
                .into_iter()
                .map(|piece| Line::of(Ink::Warn, piece)),
        );
        return;
    }
    lines.push(Line::of(
        Ink::Warn,
        "Nothing was recorded, so nothing can be said about this program's memory.",
    ));
    // Why that is so stands above, and is no property of the program.
    if known.began_late {
        return;
    }
    let why = "It may be that it made no heap call before it ended, or before the recording was cut; \
               that it brings its own allocator and never calls malloc or mmap; that it started \
               another program, which has a trace of its own; or that it is statically linked or \
               setuid, so that LD_PRELOAD cannot reach it.";
    for piece in wrap(why, width, 8) {
        lines.push(Line::of(Ink::Plain, piece));
    }
}

/// Returns the name of an instant in a sentence.
fn instant_name(instant: &Instant, began_late: bool) -> String {
    let at = duration(instant.time_ns);
    match instant.kind {
        InstantKind::Peak => format!("its peak ({at} after the start)"),
        InstantKind::HeapPeak => format!("the largest live heap ({at} after the start)"),
        InstantKind::End => format!("the end ({at} after the start)"),
        InstantKind::Time => format!("{at} after the start"),
        InstantKind::AfterFree => format!("the low after the largest free ({at} after the start)"),
        InstantKind::MostKept if began_late => {
            format!("the moment at which most was free, or not recorded ({at} after the start)")
        }
        InstantKind::MostKept => {
            format!("the moment at which the allocator kept most ({at} after the start)")
        }
        InstantKind::Mark => format!("mark “{}” ({at} after the start)", instant.label),
    }
}

/// Returns the kernel's high-water mark if it is more than a fiftieth above the peak that was read, and half a mebibyte:
/// then the table is not of the peak. That much is within the plateau of which the peak is one reading.
fn above_the_peak(report: &Report, instant: &Instant) -> Option<u64> {
    let read = instant.books.as_ref()?.resident_bytes;
    let mark = report.program.max_rss_bytes?;
    (instant.kind == InstantKind::Peak && mark > read + (read / 50).max(512 << 10)).then_some(mark)
}

/// Reports whether another reading shows more resident memory than that of the peak.
fn is_passed(report: &Report, instant: &Instant) -> bool {
    let resident = |one: &Instant| one.books.as_ref().map(|books| books.resident_bytes);
    let Some(peak) = resident(instant).filter(|_| instant.kind == InstantKind::Peak) else {
        return false;
    };
    let most = report.instants.iter().filter_map(resident).max();
    // Less than is printed is no difference to a reader.
    most.is_some_and(|most| most > peak && bytes(most) != bytes(peak))
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
    let at = duration(instant.time_ns);
    // The peak is not always the largest of the readings (analysis' peak.rs).
    let chosen = "the one with most live and resident bytes together";
    let heading = match above_the_peak(report, instant) {
        Some(mark) => format!(
            "Resident memory at one of the largest readings ({at} after the start: of those {chosen}; the kernel saw \
             {})",
            bytes(mark)
        ),
        None if is_passed(report, instant) => format!(
            "Resident memory near its peak ({at} after the start: of the largest readings {chosen})"
        ),
        None => format!(
            "Resident memory at {}",
            instant_name(instant, report.completeness.began_late)
        ),
    };
    let heading = wrap(&heading, width, 2);
    let heading = heading
        .into_iter()
        .map(|piece| Line::of(Ink::Strong, piece));
    match &instant.books {
        Some(books) => {
            lines.extend(heading);
            table(books, width, lines);
            asides(report, books, width, lines);
        }
        None => {
            lines.extend(heading);
            let text = "not known: no snapshot of the mappings belongs to this instant, so what is free or mapped \
                        then cannot be told; --at peak or --at end may have one.";
            for piece in wrap(text, width - 2, usize::MAX) {
                lines.push(Line::of(Ink::Plain, format!("  {piece}")));
            }
        }
    }
    own_heaps(report, width, lines);
    let heap = format!(
        "live heap then: {}, {} asked for, {} given (slop {})",
        plural(instant.live_blocks, "block"),
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

/// Lists heaps whose blocks are not seen: the largest with how to see them, and one more.
fn own_heaps(report: &Report, width: usize, lines: &mut Vec<Line>) {
    for (index, heap) in report.own_heaps.iter().take(2).enumerate() {
        let ink = if heap.allocator {
            Ink::Warn
        } else {
            Ink::Plain
        };
        for piece in wrap(&heap.what, width - 2, usize::MAX) {
            lines.push(Line::of(ink, format!("  {piece}")));
        }
        if index == 0 {
            for (at, piece) in wrap(&heap.change, width - 4, usize::MAX)
                .into_iter()
                .enumerate()
            {
                let arrow = if at == 0 { "→ " } else { "  " };
                lines.push(Line::of(Ink::Plain, format!("  {arrow}{piece}")));
            }
        }
    }
}

fn table(books: &Books, width: usize, lines: &mut Vec<Line>) {
    let beside_shown = books.beside.iter().filter(|row| row.bytes > 0);
    let label_room = books
        .rows
        .iter()
        .chain(beside_shown)
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
    beside(books, label_room, lines);
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
}

/// Prints what lies across or beyond the rows: one line for each figure that is not 0, or not known.
fn beside(books: &Books, label_room: usize, lines: &mut Vec<Line>) {
    for row in books.beside.iter().filter(|row| row.bytes > 0) {
        let line = Line::of(Ink::Faint, format!("  {}", left(&row.label, label_room)))
            .with(Ink::Faint, right(&bytes(row.bytes), 11));
        lines.push(line.with(
            Ink::Faint,
            right(&percent(row.bytes, books.resident_bytes), 8),
        ));
    }
    let huge = books.beside.iter().any(|row| row.id == "huge-pages");
    if !huge && !books.beside.is_empty() {
        lines.push(Line::of(
            Ink::Faint,
            "  in huge pages: not known (the trace does not say); what they alone make resident looks free",
        ));
    }
}

/// Prints what the table does not show: live blocks without pages, and how near in time the pages were read.
fn asides(report: &Report, books: &Books, width: usize, lines: &mut Vec<Line>) {
    let mut asides = Vec::new();
    // A page at the edge of a block is not worth a line, nor is what libstdc++ keeps for exceptions in each program.
    if books.live_not_resident_bytes >= (64 << 10).max(books.resident_bytes / 100) {
        let mut text = format!(
            "{} of live blocks are not resident",
            bytes(books.live_not_resident_bytes)
        );
        if let Some(frame) = most_absent(report, books.live_not_resident_bytes) {
            let (name, place) = (stack::short_name(&frame.function), stack::place(frame));
            // A function without a name is called by its place.
            text += &match name.starts_with(&format!("{place}+")) {
                true => format!(" (most: {name})"),
                false => format!(" (most: {name} {place})"),
            };
        }
        asides.push(text);
    }
    if let Some(row) = books.rows.iter().find(|row| row.id == "unclassified")
        && row.bytes > 0
    {
        let text = format!(
            "any other row may be larger by the {} unclassified",
            bytes(row.bytes)
        );
        asides.push(text);
    }
    if books.skew_ns > 1_000_000 || books.skew_bytes != 0 {
        let when = duration(books.skew_ns);
        let live = match books.skew_bytes {
            0 => String::new(),
            less @ ..0 => format!(", when {} less lived", bytes(less.unsigned_abs())),
            more => format!(", when {} more lived", bytes(more.unsigned_abs())),
        };
        asides.push(format!("pages read {when} before or after{live}"));
    }
    for piece in wrap(&asides.join(" · "), width - 2, 2) {
        if !asides.is_empty() {
            lines.push(Line::of(Ink::Faint, format!("  {piece}")));
        }
    }
}

/// Returns the function of which more than half of the live bytes are that are not resident.
fn most_absent(report: &Report, whole: u64) -> Option<&Frame> {
    let mut by_function: HashMap<&str, (u64, &Frame)> = HashMap::new();
    for site in &report.sites {
        let there = site.live_resident_bytes.unwrap_or(site.live_usable_bytes);
        let absent = site.live_usable_bytes.saturating_sub(there);
        // Hundreds of thousands of stacks may have a page each.
        if absent <= whole / 1000 {
            continue;
        }
        if let Some(frame) = stack::interesting(report, site.node).first() {
            let entry = by_function.entry(&frame.function).or_insert((0, frame));
            entry.0 = entry.0.saturating_add(absent);
        }
    }
    let most = by_function.into_values().max_by_key(|(bytes, _)| *bytes)?;
    (most.0 > whole / 2).then_some(most.1)
}

/// Prints one line that names the other instants, so that no reader takes this one for the whole story.
fn other_instants(report: &Report, width: usize, lines: &mut Vec<Line>) {
    let others = report
        .instants
        .iter()
        .enumerate()
        .filter(|(index, _)| *index != report.at);
    // A quick look at the mappings found the moment at which most was kept; its pages may say that little was.
    let is_kept = |one: &Instant| {
        one.books
            .as_ref()
            .is_some_and(|books| kept(books) >= 1 << 20)
    };
    let mut others: Vec<&Instant> = others
        .map(|(_, instant)| instant)
        .filter(|one| one.kind != InstantKind::MostKept || is_kept(one))
        .collect();
    let most = report.instants.iter().filter_map(|one| one.books.as_ref());
    let most = most.map(kept).max().unwrap_or(0);
    // The peak is the fullest of the readings that are about as large as the largest (analysis' peak.rs): a reader who sees
    // more at another moment is told what it lacks.
    let shown = report.instants.get(report.at);
    let shown = shown.filter(|one| one.kind == InstantKind::Peak);
    let above = shown.and_then(|one| Some((one, one.books.as_ref()?.resident_bytes)));
    let lacks = |instant: &Instant, resident: u64| {
        above.is_some_and(|(peak, bytes)| {
            resident > bytes && instant.live_usable_bytes < peak.live_usable_bytes
        })
    };
    // What the fullest moment cannot show comes first.
    others.sort_by_key(|instant| instant.kind != InstantKind::MostKept);
    let texts: Vec<String> = others
        .into_iter()
        .map(|instant| match &instant.books {
            Some(books) if instant.kind == InstantKind::MostKept => {
                // Another moment may have more, page by page.
                let what = if kept(books) == most { "most, " } else { "" };
                let (kept, at) = (bytes(kept(books)), duration(instant.time_ns));
                // Blocks from before the recording look like free memory.
                match report.completeness.began_late {
                    true => format!("{what}{kept} free, or not recorded, {at} after the start"),
                    false => format!("the allocator kept {what}{kept} free, {at} after the start"),
                }
            }
            // The end has no reading of its own: it is that of a moment before.
            Some(books) if instant.kind == InstantKind::End && books.skew_ns >= STALE_NS => {
                format!(
                    "{} resident {} before the end",
                    bytes(books.resident_bytes),
                    duration(books.skew_ns)
                )
            }
            Some(books) if lacks(instant, books.resident_bytes) => format!(
                "{} {} resident, less of it live",
                instant.label,
                bytes(books.resident_bytes)
            ),
            Some(books) => format!("{} {} resident", instant.label, bytes(books.resident_bytes)),
            None => format!(
                "{} {} live",
                instant.label,
                bytes(instant.live_usable_bytes)
            ),
        })
        .collect();
    if !texts.is_empty() {
        lines.extend(listed(&texts, width));
    }
}

/// The lines that other moments may take.
const OTHER_LINES: usize = 2;

/// Lists moments on at most [`OTHER_LINES`]; what has no room there is counted, and how to see it is said.
fn listed(texts: &[String], width: usize) -> Vec<Line> {
    let mut lines = vec![String::from("  elsewhere:")];
    for (index, text) in texts.iter().enumerate() {
        let rest = format!(" · and {} more (--json: instants)", texts.len() - index);
        let is_last = lines.len() == OTHER_LINES;
        let line = lines.last_mut().expect("never empty");
        let tail = if is_last && index + 1 < texts.len() {
            columns(&rest)
        } else {
            0
        };
        if columns(line) + columns(text) + 3 + tail <= width {
            *line += if index == 0 { " " } else { " · " };
            *line += text;
        } else if is_last {
            *line += &rest;
            break;
        } else {
            *line += " ·";
            lines.push(format!("    {text}"));
        }
    }
    let lines = lines.into_iter();
    lines.map(|line| Line::of(Ink::Faint, line)).collect()
}

fn tail(report: &Report, width: usize) -> Vec<Line> {
    let t = &report.totals;
    let mut text = format!(
        "Over the run: {} of {} ({} given), {}, {}, {}",
        plural(t.allocations, "allocation"),
        bytes(t.requested_bytes),
        bytes(t.usable_bytes),
        plural(t.frees, "free"),
        plural(t.reallocs, "realloc"),
        plural(t.temporaries, "temporary"),
    );
    if t.maps > 0 {
        text += &format!("; {} of {}", plural(t.maps, "mmap"), bytes(t.map_bytes));
    }
    let end = report
        .instants
        .iter()
        .find(|one| one.kind == InstantKind::End);
    match end.map(|end| (end.live_blocks, bytes(end.live_usable_bytes))) {
        Some((0, _)) => text += "; nothing live at the end",
        Some((blocks, size)) => {
            text += &format!("; live at the end: {} of {size}", plural(blocks, "block"));
        }
        None => {}
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
    // A trace that was cut does not have this figure.
    let mut own = match p.recorder_bytes {
        0 => "What the recorder itself held inside the program is not known, and stands in other rows".to_owned(),
        held => format!(
            "The recorder itself held {} inside the program",
            bytes(held)
        ),
    };
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
