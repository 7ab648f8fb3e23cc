//! The report in less than 64 KiB of JSON: for a machine that reads a verdict, not 70,000 stacks.
//!
//! ```text
//!   Report ──► verdict · books · the largest findings, stacks and functions, each stack as lines of text
//!          └─► too long? half as many of each, until it fits
//! ```
//!
//! B1  It is never longer than [`MOST_BYTES`], whatever the names and the number of the program's functions.
//! B2  What is left out is counted, in `left_out`.
//! B3  Every figure is the report's own; its name is that of the report's field.
//!
//! Not here: the whole report (`json.rs`).

use serde::Serialize;
use skinflint_analysis::model::{
    BookPart, BookRow, Books, Completeness, Confidence, Finding, FindingKind, GrowthWhatIf,
    Instant, OwnHeap, Program, Report, Totals,
};

use crate::stack;
use crate::units;

/// The most bytes that a brief report has.
pub const MOST_BYTES: usize = 64 << 10;
/// The most findings, stacks and functions.
const MOST: usize = 12;
/// The most frames of a stack.
const FRAMES: usize = 10;
/// The most characters of a frame, a title, an argument.
const TEXT: usize = 160;
/// The most parts of a row of the books.
const PARTS: usize = 4;
/// The most notes, and characters of a note.
const NOTES: (usize, usize) = (8, 400);

/// The output of `skinflint report --json --brief`: at most 64 KiB. Figures are those of the whole report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Brief {
    /// As in `Report`.
    pub schema: u32,
    /// As in `Report`.
    pub analysed_by: String,
    /// Sentences: how complete the trace is, where resident memory is, what could go back, which stacks hold
    /// most.
    pub verdict: Vec<String>,
    /// The process, with its first arguments.
    pub program: Program,
    /// How complete the trace is, with the first notes.
    pub completeness: Completeness,
    /// Counts over the whole run.
    pub totals: Totals,
    /// The moment that the report is about, with its books and the largest parts of their rows.
    pub instant: Instant,
    /// The other moments, without books.
    pub elsewhere: Vec<BriefInstant>,
    /// Heaps inside the program whose blocks are not seen.
    pub own_heaps: Vec<OwnHeap>,
    /// What to change, largest saving first.
    pub findings: Vec<BriefFinding>,
    /// Stacks that hold most at the moment.
    pub stacks: Vec<BriefStack>,
    /// Functions with all that they call, without those that pass nearly all on to another of them.
    pub through: Vec<BriefThrough>,
    /// What only the whole report has.
    pub left_out: LeftOut,
}

/// A moment in a brief report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BriefInstant {
    /// As in `Instant`.
    pub label: String,
    /// Nanoseconds since the start.
    pub time_ns: u64,
    /// Resident memory, if a snapshot was taken.
    pub resident_bytes: Option<u64>,
    /// Bytes given for live blocks.
    pub live_usable_bytes: u64,
}

/// A finding in a brief report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BriefFinding {
    /// What kind.
    pub kind: FindingKind,
    /// One line.
    pub title: String,
    /// What was seen.
    pub what: String,
    /// The change to make.
    pub change: String,
    /// As in `Finding`.
    pub now_bytes: u64,
    /// As in `Finding`.
    pub saved_bytes: u64,
    /// As in `Finding`.
    pub saved_cumulative_bytes: u64,
    /// As in `Finding`.
    pub saved_allocations: u64,
    /// As in `Finding`.
    pub blocks: u64,
    /// How sure.
    pub confidence: Confidence,
    /// Stacks of the finding in all.
    pub stacks: u64,
    /// As in `Finding`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth_what_if: Option<GrowthWhatIf>,
    /// The largest stack: function and place, innermost first, without frames that only pass an allocation
    /// on.
    pub frames: Vec<String>,
}

/// A stack in a brief report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BriefStack {
    /// Resident bytes of its live blocks and mappings; bytes given for blocks if there is no snapshot.
    pub held_bytes: u64,
    /// Of these, bytes that it mapped itself.
    pub mapped_bytes: u64,
    /// Live blocks.
    pub live_blocks: u64,
    /// As in `BriefFinding`.
    pub frames: Vec<String>,
}

/// A function with all that it calls, in a brief report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BriefThrough {
    /// The function and its place.
    pub function: String,
    /// As in `Through`.
    pub bytes: u64,
    /// As in `Through`.
    pub own_bytes: u64,
    /// As in `Through`.
    pub blocks: u64,
    /// As in `Through`.
    pub stacks: u64,
}

/// Numbers of rows that are in the whole report and not in the brief one.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct LeftOut {
    /// Findings.
    pub findings: u64,
    /// Stacks.
    pub stacks: u64,
    /// Functions with all that they call.
    pub through: u64,
}

/// Renders the brief report as indented JSON (B1), without a final line end.
///
/// # Errors
/// Those of `json::render`.
pub fn render(report: &Report) -> Result<String, serde_json::Error> {
    let mut most = MOST;
    loop {
        // Names, arguments and notes may be of any length, so texts get shorter too.
        let text = serde_json::to_string_pretty(&brief(report, most, TEXT * most / MOST))?;
        if text.len() <= MOST_BYTES || most == 0 {
            return Ok(text);
        }
        most /= 2;
    }
}

/// Builds a report with `most` elements of each list, and texts of at most `room` characters.
fn brief(report: &Report, most: usize, room: usize) -> Brief {
    let at = report.instants.get(report.at);
    let mut stacks = report.held();
    stacks.sort_by_key(|one| (std::cmp::Reverse(one.bytes()), one.node));
    let through: Vec<_> = report.through.iter().filter(|one| !one.passes_on).collect();
    let past = |all: usize| all.saturating_sub(most) as u64;
    Brief {
        schema: report.schema,
        analysed_by: report.analysed_by.clone(),
        verdict: verdict(report, room),
        program: program(report, room),
        completeness: completeness(report, room),
        totals: report.totals.clone(),
        instant: at.map(|at| instant(at, room)).unwrap_or_default(),
        elsewhere: elsewhere(report, most, room),
        own_heaps: report.own_heaps.iter().take(most.min(4)).cloned().collect(),
        findings: report
            .findings
            .iter()
            .take(most)
            .map(|one| finding(report, one, room))
            .collect(),
        left_out: LeftOut {
            findings: past(report.findings.len()),
            stacks: past(stacks.len()),
            through: past(through.len()),
        },
        stacks: stacks
            .into_iter()
            .take(most)
            .map(|one| BriefStack {
                held_bytes: one.bytes(),
                mapped_bytes: one.mapped_bytes,
                live_blocks: one.blocks,
                frames: frames(report, Some(one.node), room),
            })
            .collect(),
        through: through
            .into_iter()
            .take(most)
            .map(|one| BriefThrough {
                function: function(report, one.node, room),
                bytes: one.bytes,
                own_bytes: one.own_bytes,
                blocks: one.blocks,
                stacks: one.stacks,
            })
            .collect(),
    }
}

/// Returns a text of at most `room` characters; one that is longer ends in an ellipsis.
pub(crate) fn cut(text: &str, room: usize) -> String {
    match text.char_indices().nth(room) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

fn program(report: &Report, room: usize) -> Program {
    let own = &report.program;
    Program {
        name: cut(&own.name, room),
        argv: own.argv.iter().take(20).map(|one| cut(one, room)).collect(),
        exe: cut(&own.exe, 4 * room),
        cwd: cut(&own.cwd, 4 * room),
        ..own.clone()
    }
}

fn completeness(report: &Report, room: usize) -> Completeness {
    let own = &report.completeness;
    let notes = own.notes.iter().take(NOTES.0);
    Completeness {
        notes: notes.map(|note| cut(note, NOTES.1.min(4 * room))).collect(),
        ..own.clone()
    }
}

fn instant(at: &Instant, room: usize) -> Instant {
    let part = |part: &BookPart| BookPart {
        name: cut(&part.name, room),
        bytes: part.bytes,
        // It would be a node of the whole report's tree, which is not here.
        node: None,
    };
    let row = |row: &BookRow| BookRow {
        id: row.id.clone(),
        label: row.label.clone(),
        bytes: row.bytes,
        meaning: row.meaning.clone(),
        parts: row.parts.iter().take(PARTS).map(part).collect(),
    };
    let notes = |notes: &[String]| {
        let some = notes.iter().take(NOTES.0);
        some.map(|note| cut(note, NOTES.1.min(4 * room))).collect()
    };
    let short = |books: &Books| Books {
        resident_bytes: books.resident_bytes,
        skew_ns: books.skew_ns,
        skew_bytes: books.skew_bytes,
        live_not_resident_bytes: books.live_not_resident_bytes,
        rows: books.rows.iter().map(row).collect(),
        beside: books.beside.iter().map(row).collect(),
        notes: notes(&books.notes),
    };
    Instant {
        label: cut(&at.label, room),
        kind: at.kind,
        time_ns: at.time_ns,
        ticket: at.ticket,
        live_blocks: at.live_blocks,
        live_requested_bytes: at.live_requested_bytes,
        live_usable_bytes: at.live_usable_bytes,
        books: at.books.as_ref().map(short),
        fragments: None,
    }
}

fn elsewhere(report: &Report, most: usize, room: usize) -> Vec<BriefInstant> {
    let others = report.instants.iter().enumerate();
    let others = others.filter(|(index, _)| *index != report.at);
    let one = |(_, at): (usize, &Instant)| BriefInstant {
        label: cut(&at.label, room),
        time_ns: at.time_ns,
        resident_bytes: at.books.as_ref().map(|books| books.resident_bytes),
        live_usable_bytes: at.live_usable_bytes,
    };
    others.take(most).map(one).collect()
}

fn finding(report: &Report, own: &Finding, room: usize) -> BriefFinding {
    BriefFinding {
        kind: own.kind,
        title: cut(&own.title, room),
        what: cut(&own.what, 5 * room),
        change: cut(&own.change, 5 * room),
        now_bytes: own.now_bytes,
        saved_bytes: own.saved_bytes,
        saved_cumulative_bytes: own.saved_cumulative_bytes,
        saved_allocations: own.saved_allocations,
        blocks: own.blocks,
        confidence: own.confidence,
        stacks: own.stacks,
        growth_what_if: own.growth_what_if,
        frames: frames(report, own.node, room),
    }
}

fn frame_text(frame: &skinflint_analysis::model::Frame, room: usize) -> String {
    let name = stack::fitted(&frame.function, room);
    match stack::place(frame) {
        place if place.is_empty() || stack::is_unnamed(&name) => name,
        place => format!("{name}  {}", cut(&place, room)),
    }
}

fn frames(report: &Report, node: Option<u32>, room: usize) -> Vec<String> {
    let Some(node) = node else {
        return Vec::new();
    };
    let frames = stack::heading(report, node);
    let mut texts: Vec<String> = frames
        .iter()
        .take(FRAMES)
        .map(|frame| frame_text(frame, room))
        .collect();
    if frames.len() > FRAMES {
        texts.push(format!("… {} more", frames.len() - FRAMES));
    }
    texts
}

fn function(report: &Report, node: u32, room: usize) -> String {
    let frame = report.nodes.get(node as usize).map(|node| node.frame);
    let frame = frame.and_then(|frame| report.frames.get(frame as usize));
    frame.map_or_else(String::new, |frame| frame_text(frame, room))
}

/// Returns the sentences of the verdict, most important first.
fn verdict(report: &Report, room: usize) -> Vec<String> {
    let mut said = Vec::new();
    if !report.completeness.complete {
        let lost = report.completeness.lost_events;
        said.push(match lost {
            0 => "INCOMPLETE: something is missing, see completeness.notes.".to_owned(),
            lost => format!(
                "INCOMPLETE: {} lost; figures may be too small.",
                units::plural(lost, "event")
            ),
        });
    }
    match report.completeness.lost_children {
        0 => {}
        1 => said.push("INCOMPLETE: 1 process that it started was not recorded.".to_owned()),
        lost => said.push(format!(
            "INCOMPLETE: {lost} processes that it started were not recorded."
        )),
    }
    let at = report.instants.get(report.at);
    match at.and_then(|at| at.books.as_ref().map(|books| (at, books))) {
        Some((at, books)) => {
            let mut rows: Vec<_> = books.rows.iter().filter(|row| row.bytes > 0).collect();
            rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
            let rows: Vec<String> = rows
                .iter()
                .take(4)
                .map(|row| format!("{} {}", units::bytes(row.bytes), row.label))
                .collect();
            said.push(format!(
                "{} resident at {}: {}.",
                units::bytes(books.resident_bytes),
                cut(&at.label, room),
                rows.join(", ")
            ));
        }
        None => said.push(
            "What is resident at this moment is not known: no snapshot belongs to it.".into(),
        ),
    }
    said.extend(
        report
            .own_heaps
            .iter()
            .take(2)
            .map(|heap| heap.what.clone()),
    );
    let best = report
        .findings
        .iter()
        .find(|one| one.saved_bytes > 0 && !one.is_rest());
    said.push(match best {
        Some(best) => format!(
            "{} could go back by one change: {}.",
            units::bytes(best.saved_bytes),
            cut(&best.title, room)
        ),
        None => "No finding would give memory back.".to_owned(),
    });
    let holder = report
        .findings
        .iter()
        .filter(|one| one.kind == FindingKind::Holder);
    if let Some(holder) = holder.max_by_key(|one| one.now_bytes) {
        let names = frames(report, holder.node, room);
        said.push(format!(
            "{} holds most: {} ({}).",
            names.first().map_or("One stack", String::as_str),
            units::bytes(holder.now_bytes),
            cut(&holder.title, room)
        ));
    }
    if let Some(one) = report.through.iter().find(|one| !one.passes_on) {
        said.push(format!(
            "{} holds {} with all that it calls.",
            function(report, one.node, room),
            units::bytes(one.bytes)
        ));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_analysis::model::{Frame, Node, Site, Through};

    /// Builds a report with `many` elements of everything and names of `long` characters.
    fn large(many: u32, long: usize) -> Report {
        let name = |index: u32| format!("{index}{}", "ns::deep<\u{e9}>".repeat(long / 10));
        let mut report = Report {
            nodes: vec![Node::default()],
            frames: vec![Frame::default()],
            ..Report::default()
        };
        for index in 0..many {
            report.frames.push(Frame {
                function: name(index),
                file: Some(name(index)),
                ..Frame::default()
            });
            report.nodes.push(Node {
                parent: index,
                frame: index + 1,
            });
            report.sites.push(Site {
                node: index + 1,
                live_blocks: 1,
                live_usable_bytes: u64::from(index) + 1,
                ..Site::default()
            });
            report.findings.push(Finding {
                title: name(index),
                what: name(index),
                change: name(index),
                saved_bytes: u64::from(many - index),
                node: Some(index + 1),
                ..Finding::default()
            });
            report.through.push(Through {
                node: index + 1,
                bytes: 1,
                ..Through::default()
            });
        }
        report.program.argv = vec![name(0); many as usize];
        report.completeness.notes = vec![name(0); many as usize];
        let part = BookPart {
            name: name(0),
            bytes: 1,
            node: Some(1),
        };
        let row = BookRow {
            parts: vec![part; many as usize],
            ..BookRow::default()
        };
        report.instants = vec![
            Instant {
                label: name(0),
                ..Instant::default()
            };
            many.max(1) as usize
        ];
        report.instants[0].books = Some(Books {
            rows: vec![row; 11],
            notes: vec![name(0); many as usize],
            ..Books::default()
        });
        report
    }

    #[test]
    fn it_fits_whatever_the_program_calls_its_functions() {
        for (many, long) in [(0, 0), (3, 10), (200, 50), (200, 400), (5, 20_000)] {
            let text = render(&large(many, long)).expect("writes");
            assert!(text.len() <= MOST_BYTES, "{many} {long}: {}", text.len());
        }
    }

    #[test]
    fn what_is_left_out_is_counted_and_the_largest_stay() {
        let report = large(30, 10);
        let text = render(&report).expect("writes");
        let value: serde_json::Value = serde_json::from_str(&text).expect("reads");
        for list in ["findings", "stacks", "through"] {
            let listed = value[list].as_array().expect("a list").len() as u64;
            assert_eq!(
                listed + value["left_out"][list].as_u64().expect("a number"),
                30,
                "{list}"
            );
            assert!(listed >= 5, "{list}");
        }
        assert_eq!(value["stacks"][0]["held_bytes"], 30);
        let verdict = value["verdict"].as_array().expect("a list");
        assert!(verdict.iter().any(|one| {
            one.as_str()
                .is_some_and(|one| one.contains("could go back"))
        }));
    }
}
