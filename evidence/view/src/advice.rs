//! The findings on the terminal: what would give memory back, what would allocate less, which stacks hold it.
//!
//! ```text
//!     12.0 MiB  Requests of 1,040 = 1,024 + 16, each given 1,280 (certain)     figure, title
//!               → Make header and payload together round.                      the change
//!               at read_page  src/pager.c:33 ← load  src/pager.c:80            the place
//! ```
//!
//! A1  Largest first within a section, by the figure that is shown.
//! A2  Titles and changes are wrapped, not cut: half of an advice is worthless. Only made-up names reach the bounds.
//! A3  The sections take as many lines as there is room for: first the change of each finding, from the largest down,
//!     then more frames. What is not listed is counted and summed. The first finding, which is the largest, always
//!     has its change.
//! A4  Savings of less than a five-hundredth of resident memory, or of what was ever asked for, are
//!     summed up, not listed.
//! A5  Every finding is in a section: one that promises no saving is listed by the bytes that it is about. Only
//!     blocks that live at exit are a line of text.rs, unless all is asked for.
//! A6  What only grows is reported by its resident bytes, and comes before smaller savings.
//!
//! Not here: the books (text.rs).

use std::cmp::Reverse;
use std::collections::HashMap;

use skinflint_analysis::model::{
    Books, Confidence, Finding, FindingKind, GREW_ONCE, GREW_UNBROKEN, GrowthPolicy, GrowthWhatIf,
    HOLDER_CHANGE, Instant, InstantKind, RELEASED_IN_THE_END, Report,
};

use crate::screen::{Ink, Line, clean, columns, cut_middle, right, wrap};
use crate::stack;
use crate::style::Style;
use crate::units::{bytes, compact, percent};

/// Findings listed that would give memory back, before "and N more".
const SHOWN_FINDINGS: usize = 6;
/// Findings listed that would allocate less.
const SHOWN_LESS: usize = 3;
/// Stacks listed that only grow.
const SHOWN_GROWING: usize = 3;
/// Findings listed without a saving.
const SHOWN_LOOK: usize = 3;
/// Holders listed.
const SHOWN_HOLDERS: usize = 5;
/// Findings listed of one kind among those that give memory back, while there are others.
const OF_ONE_KIND: usize = 3;
/// A finding is worth a line from one part in this many of the whole.
pub(crate) const WORTH: u64 = 500;
/// The number of columns before a title.
const INDENT: usize = 14;

/// The level of detail of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Detail {
    /// The title and the place.
    Line,
    /// The change, too.
    Short,
    /// More frames, too.
    Full,
    /// Everything.
    Whole,
}

struct Section<'a> {
    heading: &'static str,
    findings: Vec<&'a Finding>,
    shown: usize,
    /// The bytes that findings without a saving are about, if that is not what they hold: by place.
    about: HashMap<usize, u64>,
}

impl Section<'_> {
    /// Returns the figure of a finding.
    fn figure(&self, index: usize) -> String {
        match self.about.get(&index) {
            Some(about) => bytes(*about),
            None => figure(self.findings[index]),
        }
    }
}

fn allocates_less(finding: &Finding) -> bool {
    // For buffers that have reached their size, the room that was left counts.
    let rests = finding.kind == FindingKind::Growth && finding.now_bytes > 0;
    let calls = finding.saved_allocations > 0 && !rests;
    finding.saved_bytes == 0 && (finding.saved_cumulative_bytes > 0 || calls)
}

/// Reports whether it is about a stack that only grows, or was seen to grow.
fn grows(finding: &Finding) -> bool {
    finding.kind == FindingKind::Leak && finding.confidence != Confidence::Possible
}

/// Live bytes of stacks: usable, and resident.
struct Levels(HashMap<u32, (u64, u64)>);

impl Levels {
    fn of(report: &Report) -> Levels {
        let row = |site: &skinflint_analysis::model::Site| {
            let given = site.live_usable_bytes;
            let resident = site.live_resident_bytes.unwrap_or(given).min(given);
            (site.node, (given, resident))
        };
        Levels(report.sites.iter().map(row).collect())
    }

    /// Returns the bytes that a finding without a saving is about, if that is not what it holds: for a stack that
    /// only grows the resident ones, for blocks that were never touched the others.
    fn about(&self, finding: &Finding) -> Option<u64> {
        let stacks = finding.node.iter().chain(&finding.more_nodes);
        if finding.stacks > stacks.clone().count() as u64 {
            return None;
        }
        let levels = stacks.filter_map(|node| self.0.get(node));
        let (given, resident) = levels.fold((0u64, 0u64), |sum, level| {
            (sum.0.saturating_add(level.0), sum.1.saturating_add(level.1))
        });
        match finding.kind {
            FindingKind::Untouched => Some(given - resident),
            FindingKind::Leak if given > 0 => Some(resident.min(finding.now_bytes)),
            _ => None,
        }
    }
}

fn sections<'a>(report: &'a Report, style: &Style) -> Vec<Section<'a>> {
    let books = report
        .instants
        .get(report.at)
        .and_then(|one| one.books.as_ref());
    let floor = books.map_or(0, |books| books.resident_bytes / WORTH);
    let mut gives: Vec<_> = report
        .findings
        .iter()
        .filter(|f| f.saved_bytes > 0)
        .collect();
    gives.sort_by_key(|finding| (finding.is_rest(), Reverse(finding.saved_bytes)));
    // Variety: the fourth finding of a kind is listed after all other kinds, if at all.
    let mut of_kind: Vec<(FindingKind, bool)> = Vec::new();
    gives.sort_by_cached_key(|finding| {
        let kind = (finding.kind, finding.node.is_some());
        let before = of_kind.iter().filter(|known| **known == kind).count();
        of_kind.push(kind);
        before >= OF_ONE_KIND || finding.saved_bytes < floor || finding.is_rest()
    });
    let listed = gives.len().min(SHOWN_FINDINGS);
    gives[..listed].sort_by_key(|finding| (finding.is_rest(), Reverse(finding.saved_bytes)));
    let past: fn(&&&Finding, u64) -> bool = |f, floor| f.saved_bytes >= floor && !f.is_rest();
    let worth = gives.iter().filter(|f| past(f, floor)).count();
    let holds = without_saving(report, |f| f.kind == FindingKind::Holder);
    let free = without_saving(report, |f| f.kind == FindingKind::Retained && !may_go(f));
    let (less, less_worth) = allocating_less(report);
    let levels = Levels::of(report);
    let (growing, growing_worth) = growing(report, &levels);
    let (look, look_worth) = to_look_at(report, &levels, style.full_stacks, floor);
    let holds_worth = holds.iter().filter(|f| !f.is_rest()).count();
    let limit = |usual: usize, has: usize, all: usize| {
        if style.full_stacks {
            all
        } else {
            usual.min(has)
        }
    };
    // A6.
    let heaviest = |found: &[&Finding]| {
        found
            .first()
            .map_or(0, |f| levels.about(f).unwrap_or(f.now_bytes))
    };
    let leads = heaviest(&growing) > gives.first().map_or(0, |f| f.saved_bytes);
    let gives = ("What would give memory back", SHOWN_FINDINGS, worth, gives);
    let growing = (
        "What only grows (a leak, unless the program is there to collect it)",
        SHOWN_GROWING,
        growing_worth,
        growing,
    );
    let [first, second] = if leads {
        [growing, gives]
    } else {
        [gives, growing]
    };
    [
        first,
        second,
        (
            "What would allocate less (over the whole run)",
            SHOWN_LESS,
            less_worth,
            less,
        ),
        (
            "Worth a look (how much it would save, the recording cannot tell)",
            SHOWN_LOOK,
            look_worth,
            look,
        ),
        (
            "Who holds it (not waste by itself)",
            SHOWN_HOLDERS,
            holds_worth,
            holds,
        ),
        (
            "Free, and left as it is (no change is advised for it)",
            SHOWN_HOLDERS,
            free.len(),
            free,
        ),
    ]
    .into_iter()
    .filter(|(_, _, _, findings)| !findings.is_empty())
    .map(|(heading, usual, worth, findings)| Section {
        heading,
        shown: limit(usual, worth, findings.len()),
        about: (findings.iter().enumerate())
            .filter(|(_, finding)| finding.saved_bytes == 0)
            .filter_map(|(index, finding)| Some((index, levels.about(finding)?)))
            .collect(),
        findings,
    })
    .collect()
}

/// Returns the findings of a sort that promise nothing, by the bytes that they are about.
fn without_saving(report: &Report, wanted: fn(&Finding) -> bool) -> Vec<&Finding> {
    let all = report.findings.iter();
    let all = all.filter(|f| f.saved_bytes == 0 && !allocates_less(f) && f.now_bytes > 0);
    let mut found: Vec<_> = all.filter(|f| wanted(f)).collect();
    found.sort_by_key(|finding| (finding.is_rest(), Reverse(finding.now_bytes)));
    found
}

/// Returns whether free memory may go back, by an amount that the recording cannot tell.
fn may_go(finding: &Finding) -> bool {
    finding.confidence == Confidence::Possible
}

/// Returns findings that would allocate less, and how many of them are worth a line.
fn allocating_less(report: &Report) -> (Vec<&Finding>, usize) {
    let all = report.findings.iter();
    let mut less: Vec<_> = all.filter(|f| allocates_less(f)).collect();
    let floor = report.totals.requested_bytes / WORTH;
    // Calls alone: churn, and buffers that grew in place.
    let calls = |f: &Finding| f.kind == FindingKind::Churn || f.saved_cumulative_bytes == 0;
    let felt = |f: &&Finding| calls(f) || f.saved_cumulative_bytes >= floor;
    // What is not worth a line goes last, whatever its measure; bytes come before counts: the two have no common
    // measure.
    less.sort_by_key(|f| {
        let counts = calls(f);
        let copied = if counts { 0 } else { f.saved_cumulative_bytes };
        (
            !felt(f),
            counts,
            Reverse(copied),
            Reverse(f.saved_allocations),
        )
    });
    let worth = less.iter().filter(|f| felt(f)).count();
    (less, worth)
}

/// Returns stacks that only grow, and how many of them are worth a line.
fn growing<'a>(report: &'a Report, levels: &Levels) -> (Vec<&'a Finding>, usize) {
    let all = report.findings.iter();
    let of = |f: &&Finding| f.saved_bytes == 0 && !allocates_less(f) && f.now_bytes > 0 && grows(f);
    let mut found: Vec<_> = all.filter(of).collect();
    found.sort_by_cached_key(|f| (f.is_rest(), Reverse(levels.about(f).unwrap_or(f.now_bytes))));
    let worth = found.iter().filter(|f| !f.is_rest()).count();
    (found, worth)
}

/// Returns findings without a saving that are in no other section (A5), and how many of them are worth a line.
fn to_look_at<'a>(
    report: &'a Report,
    levels: &Levels,
    all: bool,
    floor: u64,
) -> (Vec<&'a Finding>, usize) {
    let of = |f: &&Finding| {
        f.saved_bytes == 0
            && !allocates_less(f)
            && match f.kind {
                FindingKind::Holder => false,
                FindingKind::Retained => may_go(f),
                FindingKind::Leak => {
                    let told =
                        [RELEASED_IN_THE_END, GREW_UNBROKEN, GREW_ONCE].contains(&f.title.as_str());
                    told || (all && !grows(f))
                }
                _ => true,
            }
    };
    let about = |f: &Finding| levels.about(f).unwrap_or(f.now_bytes);
    let mut found: Vec<_> = report.findings.iter().filter(of).collect();
    found.sort_by_cached_key(|f| (f.is_rest(), Reverse(about(f))));
    let worth = found
        .iter()
        .filter(|f| about(f) >= floor.max(1) && !f.is_rest());
    let worth = worth.count();
    (found, worth)
}

/// Returns the free memory that the allocator keeps.
pub(crate) fn kept(books: &Books) -> u64 {
    let free = books.rows.iter().find(|row| row.id == "allocator-free");
    free.map_or(0, |row| row.bytes)
}

/// Returns the changes that are advised: what each gives back is worth a word.
pub(crate) fn changes<'a>(
    report: &'a Report,
    books: &Books,
) -> impl Iterator<Item = &'a Finding> + Clone + use<'a> {
    let floor = (books.resident_bytes / WORTH).max(1);
    let all = report.findings.iter();
    all.filter(move |one| one.saved_bytes >= floor && !one.is_rest())
}

/// Explains why nothing is advised where much is free: that may surprise.
fn free_and_no_advice(report: &Report) -> Option<String> {
    let books = report.instants.get(report.at)?.books.as_ref()?;
    let (free, resident) = (kept(books), books.resident_bytes);
    let is_little = free.saturating_mul(10) < resident || free == 0;
    if is_little || changes(report, books).next().is_some() {
        return None;
    }
    Some(format!(
        "No change is advised, though {} of resident memory ({}) are free at this moment: giving memory back is \
         advised only where it was seen to stay free for a while, and lies on pages without a live block. Ask for \
         another moment with --at, or record for longer, while the program rests. What another allocator would hold \
         shows skinflint compare.",
        bytes(free),
        percent(free, resident),
    ))
}

fn nothing_to_change(report: &Report) -> String {
    free_and_no_advice(report).unwrap_or_else(|| {
        "No pass found anything to change. That covers the passes that ran, not all waste.".into()
    })
}

/// Returns the fewest lines that the sections take.
pub(crate) fn fewest_lines(report: &Report, style: &Style, width: usize) -> usize {
    let sections = sections(report, style);
    let detail = least(&sections, Detail::Line);
    blocks(report, &sections, &detail, width).len().max(2)
}

/// Adds the sections, in `room` lines if possible.
pub(crate) fn findings(
    report: &Report,
    style: &Style,
    width: usize,
    room: usize,
    lines: &mut Vec<Line>,
) {
    let sections = sections(report, style);
    if sections.is_empty() {
        lines.push(Line::default());
        let pieces = wrap(&nothing_to_change(report), width, usize::MAX);
        lines.extend(pieces.into_iter().map(|piece| Line::of(Ink::Plain, piece)));
        return;
    }
    let mut unsaid = Vec::new();
    if let Some(why) = free_and_no_advice(report) {
        unsaid.push(Line::default());
        let pieces = wrap(&why, width, usize::MAX).into_iter();
        unsaid.extend(pieces.map(|piece| Line::of(Ink::Plain, piece)));
    }
    let room = room.saturating_sub(unsaid.len());
    let count_of =
        |detail: &[Vec<Detail>]| -> usize { blocks(report, &sections, detail, width).len() };
    let start = if style.full_stacks {
        Detail::Whole
    } else {
        Detail::Line
    };
    let mut detail = least(&sections, start);
    if !style.full_stacks {
        for level in [Detail::Short, Detail::Full] {
            upgrade(&mut detail, level, |detail| count_of(detail) <= room);
        }
    }
    lines.extend(blocks(report, &sections, &detail, width));
    lines.extend(unsaid);
}

/// Returns the least detail of each finding: for the first one with the change (A3).
fn least(sections: &[Section<'_>], usual: Detail) -> Vec<Vec<Detail>> {
    let all = sections.iter().map(|section| vec![usual; section.shown]);
    let mut detail: Vec<Vec<Detail>> = all.collect();
    if let Some(first) = detail.first_mut().and_then(|section| section.first_mut()) {
        *first = (*first).max(Detail::Short);
    }
    detail
}

/// Raises findings to `level` in order, leaving out those that do not fit.
fn upgrade(detail: &mut [Vec<Detail>], level: Detail, fits: impl Fn(&[Vec<Detail>]) -> bool) {
    for section in 0..detail.len() {
        for index in 0..detail[section].len() {
            if detail[section][index] >= level {
                continue;
            }
            let before = std::mem::replace(&mut detail[section][index], level);
            if !fits(detail) {
                detail[section][index] = before;
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
        for (index, (finding, detail)) in section.findings.iter().zip(detail).enumerate() {
            let figure = section.figure(index);
            one_finding(report, finding, (&figure, *detail), width, &mut lines);
        }
        let beyond = section.findings.iter().skip(section.shown);
        let hidden: u64 = beyond.map(|f| findings_in(f)).sum();
        if hidden > 0 {
            let lead = if section.shown == 0 {
                "nothing of weight;"
            } else {
                "… and"
            };
            let text = format!(
                "  {lead} {hidden} smaller{} (--full-stacks)",
                hidden_sum(section)
            );
            lines.push(Line::of(Ink::Faint, text));
        }
    }
    lines
}

/// Returns how many findings one stands for: a sum of the rest begins with their number, and its stacks are more.
fn findings_in(finding: &Finding) -> u64 {
    let said = finding.title.split_once(" smaller finding");
    let many = said.and_then(|(many, _)| many.replace(',', "").parse().ok());
    many.filter(|_| finding.is_rest()).unwrap_or(1)
}

/// Sums up the findings that are not shown.
fn hidden_sum(section: &Section<'_>) -> String {
    let hidden = section.findings.iter().skip(section.shown);
    let sum = |of: fn(&Finding) -> u64| {
        hidden
            .clone()
            .fold(0u64, |sum, f| sum.saturating_add(of(f)))
    };
    let held = if section.findings.iter().any(|f| allocates_less(f)) {
        0
    } else {
        let hidden = section.findings.iter().enumerate().skip(section.shown);
        hidden.fold(0u64, |sum, (index, f)| {
            let about = section.about.get(&index).copied();
            sum.saturating_add(about.unwrap_or(f.now_bytes))
        })
    };
    match (sum(|f| f.saved_bytes), held) {
        (0, 0) => String::new(),
        (0, held) => format!(", {} in all", bytes(held)),
        (saved, _) => format!(", {} in all", bytes(saved)),
    }
}

fn figure(finding: &Finding) -> String {
    if finding.saved_bytes > 0 {
        bytes(finding.saved_bytes)
    } else if finding.saved_cumulative_bytes > 0 && finding.kind != FindingKind::Churn {
        bytes(finding.saved_cumulative_bytes)
    } else if allocates_less(finding) {
        format!("{} ×", compact(finding.saved_allocations))
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

/// The columns of a title, and of a change, rounded up to a line; and the lines of a title in the list of holders. What the
/// analyser says fits; only names that a program makes up are longer.
const TITLE_COLUMNS: usize = 150;
const SHORT_TITLE_LINES: usize = 2;
const CHANGE_COLUMNS: usize = 700;

/// Adds the title of a finding, with its place behind it as far as there is room.
fn short(
    report: &Report,
    finding: &Finding,
    lead: Line,
    sure: String,
    room: usize,
    lines: &mut Vec<Line>,
) {
    let place = place_of(report, finding).unwrap_or_default();
    let columns_of_title = room.saturating_sub(columns(&sure)).max(20);
    let mut titles = wrap(&finding.title, columns_of_title, SHORT_TITLE_LINES);
    let title = titles.pop().unwrap_or_default();
    let mut lead = lead;
    for piece in titles {
        lines.push(lead.with(Ink::Plain, piece));
        lead = Line::of(Ink::Plain, " ".repeat(INDENT));
    }
    let used = columns(&title) + columns(&sure) + 3;
    let line = lead.with(Ink::Plain, title).with(Ink::Faint, sure);
    lines.push(match room.saturating_sub(used) {
        left if left >= 12 && !place.is_empty() => {
            // If there is no room for all of it, the function is more informative than half a path.
            let name = match columns(&place) <= left {
                true => place.as_str(),
                false => place.split("  ").next().unwrap_or_default(),
            };
            line.with(Ink::Faint, format!(" · {}", stack::fitted(name, left)))
        }
        _ => line,
    });
}

fn one_finding(
    report: &Report,
    finding: &Finding,
    (figure, detail): (&str, Detail),
    width: usize,
    lines: &mut Vec<Line>,
) {
    let pad = " ".repeat(INDENT);
    let room = width - INDENT;
    let holder = finding.kind == FindingKind::Holder;
    let ink = if finding.saved_bytes > 0 {
        Ink::Good
    } else {
        Ink::Strong
    };
    // What a stack holds is counted, not concluded.
    let sure = match holder {
        true => String::new(),
        false => format!(" ({})", confidence(finding.confidence)),
    };
    let amount = right(figure, INDENT - 2);
    let lead = Line::of(ink, amount).with(Ink::Plain, "  ");
    if detail == Detail::Line {
        return short(report, finding, lead, sure, room, lines);
    }
    let bound = |lines| match detail {
        Detail::Whole => usize::MAX - 2,
        _ => lines,
    };
    // A longer one has a name in it that no reader follows to its end.
    let title_lines = match columns(&finding.title) <= TITLE_COLUMNS {
        true => TITLE_COLUMNS,
        false => 1,
    };
    let titles = wrap(&finding.title, room - columns(&sure), bound(title_lines));
    let first = lead.with(Ink::Plain, titles[0].as_str());
    lines.push(first);
    lines.extend(
        titles[1..]
            .iter()
            .map(|piece| Line::of(Ink::Plain, format!("{pad}{piece}"))),
    );
    // At the end of the sentence, not of its first line.
    if let Some(last) = lines.pop() {
        lines.push(last.with(Ink::Faint, sure));
    }
    if detail == Detail::Whole && !finding.what.is_empty() {
        let what = wrap(&finding.what, room, usize::MAX);
        lines.extend(
            what.into_iter()
                .map(|p| Line::of(Ink::Faint, format!("{pad}{p}"))),
        );
    }
    if let Some(other) = finding.growth_what_if.filter(|_| detail == Detail::Whole) {
        let pieces = wrap(&what_if(&other), room, usize::MAX).into_iter();
        lines.extend(pieces.map(|p| Line::of(Ink::Faint, format!("{pad}{p}"))));
    }
    // What is said of every holder is said by the heading.
    let change = match holder && detail != Detail::Whole {
        true => finding
            .change
            .trim_start_matches(HOLDER_CHANGE)
            .trim_start(),
        false => &finding.change,
    };
    if !change.is_empty() {
        let pieces = wrap(change, room - 2, bound(CHANGE_COLUMNS / room + 1));
        for (index, piece) in pieces.into_iter().enumerate() {
            let arrow = if index == 0 { "→ " } else { "  " };
            lines.push(Line::of(Ink::Plain, format!("{pad}{arrow}{piece}")));
        }
    }
    if let Some(moment) = moment(finding).filter(|_| detail != Detail::Whole) {
        let peak = match is_below_the_peak(report, moment) {
            true => ": the peak stays as it is",
            false => "",
        };
        lines.push(Line::of(Ink::Faint, format!("{pad}{moment}{peak}")));
    }
    frames(report, finding, detail, width, lines);
}

/// Returns the moment at which free memory was seen, from the beginning of its finding: "At peak (1.000 s) the
/// allocator …".
pub(crate) fn moment(finding: &Finding) -> Option<&str> {
    let (when, _) = finding.what.split_once(" the allocator (")?;
    let is_moment = finding.kind == FindingKind::Retained && when.starts_with("At ");
    is_moment.then_some(when)
}

/// Reports whether resident memory was more than a fiftieth below the peak at the moment `At LABEL (time)`: what is given
/// back then was not there yet at the peak, or is there again.
pub(crate) fn is_below_the_peak(report: &Report, moment: &str) -> bool {
    let label = moment
        .strip_prefix("At ")
        .and_then(|rest| rest.rsplit_once(" ("));
    let resident = |instant: &Instant| Some(instant.books.as_ref()?.resident_bytes);
    let find = |is: &dyn Fn(&Instant) -> bool| {
        let instant = report.instants.iter().find(|one| is(one));
        instant.and_then(resident)
    };
    let then = label.and_then(|(label, _)| find(&|one| one.label == label));
    let peak = find(&|one| one.kind == InstantKind::Peak);
    then.zip(peak)
        .is_some_and(|(then, peak)| then < peak - peak / 50)
}

/// Describes in a sentence what another policy of growth would do.
fn what_if(other: &GrowthWhatIf) -> String {
    let (with, most) = match other.policy {
        GrowthPolicy::Doubling => ("If it doubled", " at most"),
        GrowthPolicy::Reserving => ("If the size were reserved", ""),
    };
    format!(
        "{with}: {}{most} copied instead of {}, and {} held instead of {}.",
        bytes(other.then_copied_bytes),
        bytes(other.copied_bytes),
        bytes(other.then_held_bytes),
        bytes(other.held_bytes),
    )
}

/// Returns the function that names the finding, and its place; if it has no name, also the first function that has
/// one.
fn place_of(report: &Report, finding: &Finding) -> Option<String> {
    let frames = stack::heading(report, finding.node?);
    let text = |frame: &skinflint_analysis::model::Frame| {
        let name = stack::short_name(&frame.function);
        match stack::place(frame) {
            place if stack::is_unnamed(&name) || place.is_empty() => name,
            place => format!("{name}  {place}"),
        }
    };
    let first = frames.first()?;
    Some(
        match frames.get(1).filter(|_| stack::is_unnamed(&first.function)) {
            Some(next) => format!("{} ← {}", text(first), text(next)),
            None => text(first),
        },
    )
}

fn frames(report: &Report, finding: &Finding, detail: Detail, width: usize, lines: &mut Vec<Line>) {
    let Some(node) = finding.node else { return };
    let whole = detail == Detail::Whole;
    let frames = if whole {
        stack::path(report, node)
    } else {
        stack::heading(report, node)
    };
    let shown = match detail {
        Detail::Line | Detail::Short => 1,
        Detail::Full => 3,
        Detail::Whole => frames.len(),
    };
    let room = width - INDENT - 3;
    let others = finding
        .stacks
        .saturating_sub(1)
        .max(finding.more_nodes.len() as u64);
    let mut more = match others {
        0 => String::new(),
        1 => "  and another stack".to_owned(),
        many => format!("  and {many} other stacks"),
    };
    if stack::is_inherited(report, node) {
        more += "  (before the fork)";
    }
    if shown == 1 {
        let place = place_of(report, finding).unwrap_or_default();
        let place = match place.split_once("  ") {
            // Without room for both, the function says more than half a path.
            Some((name, _)) if columns(&place) + columns(&more) > room => {
                stack::fitted(name, room.saturating_sub(columns(&more)))
            }
            _ => cut_middle(&place, room.saturating_sub(columns(&more))),
        };
        let lead = format!("{}at ", " ".repeat(INDENT));
        lines.push(
            Line::of(Ink::Faint, lead)
                .with(Ink::Plain, place)
                .with(Ink::Faint, more),
        );
        return;
    }
    for (index, frame) in frames.iter().take(shown).enumerate() {
        let mut place = stack::place(frame);
        if whole && frame.inlined {
            place += " (inlined)";
        }
        if stack::is_unnamed(&frame.function) && frame.file.is_none() {
            place.clear();
        }
        let last = index + 1 == shown.min(frames.len()) && !whole;
        let more = if last { more.as_str() } else { "" };
        // The place is cut, and what follows it only where there is no room at all.
        let place = match columns(more) * 2 <= room {
            true => {
                cut_middle(
                    &place,
                    (room / 2).saturating_sub(columns(more)).max(room / 4),
                ) + more
            }
            false => cut_middle(&(place + more), room / 2),
        };
        let name_room = room - columns(&place) - 2;
        let name = match whole {
            true => cut_middle(&clean(&frame.function), name_room),
            false => clean(&stack::fitted(&frame.function, name_room)),
        };
        let lead = if index == 0 { "at " } else { "   " };
        let line =
            Line::of(Ink::Faint, format!("{}{lead}", " ".repeat(INDENT))).with(Ink::Plain, name);
        lines.push(line.with(Ink::Faint, format!("  {place}")));
    }
    if whole && others > 0 {
        let text = format!("{}… and {others} more: see --json", " ".repeat(INDENT));
        lines.push(Line::of(Ink::Faint, text));
    }
}
