//! Several processes: a table in a terminal, a page in a browser.
//!
//! ```text
//!   missing, if anything ─► sums and the peak ─► programs ─► processes, largest first, and the rest
//! ```
//!
//! R1  Columns that can be added up end in a sum over all rows, shown or not; columns of peaks, which lie at
//!     different moments, have no sum.
//! R2  What is not shown is a row of its own, "others", with its sums.
//! R3  Names and arguments are data (view.V4): no escapes, no markup. Links of the page are relative.
//!
//! Not here: figures (analysis::processes), reading traces (cli).

use std::fmt::Write as _;

use skinflint_analysis::processes::{Peak, Point, ProcessRow, Processes};

use crate::html::{begin, escape};
use crate::plot::{self, Frame, Size};
use crate::screen::{Ink, Line, clean, columns, cut_middle, left, right, wrap};
use crate::text::passed;
use crate::units::{bytes, count, duration, percent, plural};

/// The part of the table that goes to a terminal.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The number of columns of the terminal.
    pub width: usize,
    /// Whether to use colour.
    pub color: bool,
    /// The most rows of processes, and of programs.
    pub rows: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            width: 100,
            color: false,
            rows: 20,
        }
    }
}

/// An explanation of the sum over all processes, below the table and on the page.
pub const EXPLAINED: &str = "\
At the peak: proportional sizes (PSS) read from all living processes in one go; a page that several of them \
share counts once. Live: usable bytes of blocks in the process that acquired them. Peak RSS: the kernel's \
high-water mark, shared pages whole. Peaks lie at different moments and have no sum.";

/// Renders the report for a terminal.
pub fn render(report: &Processes, options: &Options) -> String {
    let mut out = String::new();
    let mut put = |line: Line| line.write(options.width, options.color, &mut out);
    let totals = &report.totals;
    let whole = match report.missing.len() {
        0 => Line::of(Ink::Good, "complete").with(
            Ink::Plain,
            format!(
                ": {} in {}, {}",
                plural(totals.events, "event"),
                plural(totals.traces, "trace"),
                passed(totals.unrecorded_calls)
            ),
        ),
        n => Line::of(
            Ink::Warn,
            format!("incomplete: {}", plural(n as u64, "reason")),
        ),
    };
    put(Line::of(
        Ink::Strong,
        format!(
            "{} in {}",
            plural_of(totals.processes, "process", "processes"),
            duration(report.duration_ns)
        ),
    )
    .with(Ink::Plain, "  ")
    .with(Ink::Plain, format!("{} CPU", cpu(totals.cpu_ns))));
    put(whole);
    const SAID: usize = 5;
    let unsaid = report.missing.len().saturating_sub(SAID);
    let mut sentences: Vec<String> = report.missing.iter().take(SAID).cloned().collect();
    if unsaid > 0 {
        sentences.push(format!("… and {unsaid} more, all of them in the JSON."));
    }
    for sentence in sentences {
        for line in wrap(&sentence, options.width.saturating_sub(2), 3) {
            put(Line::of(Ink::Warn, format!("  {line}")));
        }
    }
    match &report.peak {
        Some(peak) => {
            for line in wrap(&largest_reading(report, peak), options.width, 3) {
                put(Line::of(Ink::Plain, line));
            }
        }
        None => put(Line::of(
            Ink::Plain,
            "largest reading of all together: not known, no proportional size was read",
        )),
    }
    tables(report, options, &mut out);
    out.push('\n');
    for sentence in report.notes.iter().map(String::as_str).chain([EXPLAINED]) {
        for line in wrap(sentence, options.width, 6) {
            Line::of(Ink::Faint, line).write(options.width, options.color, &mut out);
        }
    }
    out
}

/// Describes the moment at which most was read. Of one process there is no sum to speak of.
fn largest_reading(report: &Processes, peak: &Peak) -> String {
    let at = duration(peak.time_ns);
    let (read, live) = (bytes(peak.pss_bytes), bytes(peak.live_bytes));
    if let [only] = &report.processes[..] {
        let mark = only.peak_rss_bytes.filter(|mark| *mark > peak.pss_bytes);
        let mark = mark.map_or_else(String::new, |mark| {
            format!(" (the kernel's high-water mark: {})", bytes(mark))
        });
        return format!(
            "largest reading: {read}{mark} at {at}; live blocks then: {live}, resident or not"
        );
    }
    format!(
        "largest reading of all together: {read}{} at {at}, {}; live blocks in all: {live}, resident or not",
        alone(report, peak.pss_bytes),
        plural_of(peak.processes, "process", "processes"),
    )
}

/// Returns what to add where one process held more, between two readings, than all together in the largest one.
fn alone(report: &Processes, read_bytes: u64) -> String {
    let marks = report.processes.iter().filter_map(|row| row.peak_rss_bytes);
    match marks.max() {
        Some(most) if most > read_bytes => {
            format!(" (one alone had {})", bytes(most))
        }
        _ => String::new(),
    }
}

fn plural_of(n: u64, one: &str, many: &str) -> String {
    match n {
        1 => format!("1 {one}"),
        n => format!("{} {many}", count(n)),
    }
}

fn tables(report: &Processes, options: &Options, out: &mut String) {
    let totals = &report.totals;
    let whole = report.peak.map_or(0, |peak| peak.pss_bytes);
    let mut rows = vec![words(&[
        "by program",
        "processes",
        "events",
        "CPU",
        "most live",
        "most RSS",
        "at the peak",
    ])];
    for program in report.programs.iter().take(options.rows) {
        rows.push(vec![
            program.name.clone(),
            count(program.processes),
            count(program.events),
            cpu(program.cpu_ns),
            bytes(program.largest_live_bytes),
            bytes(program.largest_rss_bytes),
            share(program.pss_at_peak_bytes, whole),
        ]);
    }
    let rest = report.programs.get(options.rows..).unwrap_or_default();
    if !rest.is_empty() {
        rows.push(vec![
            plural(rest.len() as u64, "other"),
            count(rest.iter().map(|p| p.processes).sum()),
            count(rest.iter().map(|p| p.events).sum()),
            cpu(rest.iter().map(|p| p.cpu_ns).sum()),
            String::new(),
            String::new(),
            share(rest.iter().map(|p| p.pss_at_peak_bytes).sum(), whole),
        ]);
    }
    rows.push(vec![
        "sum".into(),
        count(totals.processes),
        count(totals.events),
        cpu(totals.cpu_ns),
        String::new(),
        String::new(),
        bytes(whole),
    ]);
    table(out, &rows, 16, options);
    let (shown, others) = largest(report, options.rows);
    let mut rows = vec![words(&[
        "process",
        "pid",
        "parent",
        "events",
        "peak live",
        "peak RSS",
        "at the peak",
        "ended",
    ])];
    for index in shown {
        let row = &report.processes[index];
        rows.push(vec![
            called(row),
            row.pid.to_string(),
            row.ppid.to_string(),
            count(row.events),
            bytes(row.peak_live_bytes),
            row.peak_rss_bytes.map_or_else(|| "–".into(), bytes),
            match row.was_read {
                true => share(row.pss_at_peak_bytes, whole),
                false => "–".into(),
            },
            row.ended.clone(),
        ]);
    }
    if !others.is_empty() {
        let of = |figure: fn(&ProcessRow) -> u64| -> u64 {
            others.iter().map(|i| figure(&report.processes[*i])).sum()
        };
        rows.push(vec![
            plural(others.len() as u64, "other"),
            String::new(),
            String::new(),
            count(of(|row| row.events)),
            String::new(),
            String::new(),
            share(of(|row| row.pss_at_peak_bytes), whole),
            String::new(),
        ]);
    }
    rows.push(vec![
        "sum".into(),
        String::new(),
        String::new(),
        count(totals.events),
        String::new(),
        String::new(),
        bytes(whole),
        String::new(),
    ]);
    table(out, &rows, 20, options);
}

/// Returns the process's programs, the last one with its arguments.
fn called(row: &ProcessRow) -> String {
    let before = row.images.len().saturating_sub(1);
    let mut text: String = row.images[..before]
        .iter()
        .map(|image| format!("{} → ", image.name))
        .collect();
    let arguments = row.command.split_once(' ').map_or("", |(_, rest)| rest);
    text.push_str(&row.name);
    if !arguments.is_empty() {
        text.push(' ');
        text.push_str(arguments);
    }
    text
}

/// Returns the indices of the `rows` processes with the largest resident memory, and the others.
pub fn largest(report: &Processes, rows: usize) -> (Vec<usize>, Vec<usize>) {
    let mut all: Vec<usize> = (0..report.processes.len()).collect();
    all.sort_by_key(|&index| {
        let row = &report.processes[index];
        std::cmp::Reverse((row.peak_rss_bytes, row.peak_live_bytes))
    });
    let others = all.split_off(rows.min(all.len()));
    (all, others)
}

fn share(part: u64, whole: u64) -> String {
    match part {
        0 => "0 B".into(),
        part => format!("{} {:>6}", bytes(part), percent(part, whole)),
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// Writes a table: the first column takes what the others leave, at least `least` columns. The head and the sum are
/// bold.
fn table(out: &mut String, rows: &[Vec<String>], least: usize, options: &Options) {
    out.push('\n');
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| columns(cell)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let rest: usize = widths[1..].iter().map(|width| width + 2).sum();
    let first = widths[0].min(options.width.saturating_sub(rest).max(least));
    for (index, row) in rows.iter().enumerate() {
        let mut text = left(&row[0], first);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            text += "  ";
            text += &right(&clean(cell), *width);
        }
        let ink = match index {
            0 => Ink::Faint,
            n if n + 1 == rows.len() => Ink::Strong,
            _ => Ink::Plain,
        };
        Line::of(ink, text).write(options.width, options.color, out);
    }
}

/// The most rows of the page's table; the JSON has all.
const PAGE_ROWS: usize = 2_000;

/// Renders the report as one HTML file, which makes no request and runs nothing. `title` is what was recorded.
pub fn page(report: &Processes, title: &str) -> String {
    let mut out = begin(&clean(title), &[plot::STYLE, OWN_STYLE]);
    page_head(&mut out, report);
    out.push_str("</header>\n<main>\n");
    let _ = writeln!(
        out,
        "<section><div class=\"head\"><h2>Memory of all together</h2></div><p class=\"small soft\">{}</p>\
         <div class=\"scroll\">{}</div></section>",
        escape(EXPLAINED),
        picture(report)
    );
    page_programs(&mut out, report);
    page_processes(&mut out, report);
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

const OWN_STYLE: &str = "
.area { fill: var(--c0); opacity: .45; } .edge { fill: none; stroke: var(--c0); }
.peak { stroke: var(--mark); stroke-width: 1; } .tree { color: var(--soft); }
ul.plain { margin: 4px 0; padding-left: 18px; }
";

fn page_head(out: &mut String, report: &Processes) {
    let totals = &report.totals;
    let (class, status) = match report.missing.len() {
        0 => (
            "",
            format!(
                "Complete: {}, {}.",
                plural(totals.events, "event"),
                passed(totals.unrecorded_calls)
            ),
        ),
        n => (
            "warn",
            format!("Incomplete: {}, below.", plural(n as u64, "reason")),
        ),
    };
    let _ = write!(
        out,
        "<p class=\"status {class}\"><b>{}</b></p>\n<dl class=\"facts\">",
        escape(&status)
    );
    let mut facts = vec![
        ("Processes", count(totals.processes)),
        ("Traces", count(totals.traces)),
        ("Time", duration(report.duration_ns)),
        ("CPU", cpu(totals.cpu_ns)),
        ("Blocks", count(totals.blocks)),
        ("Acquired", bytes(totals.acquired_bytes)),
    ];
    if let Some(peak) = &report.peak {
        facts.push(("Peak", bytes(peak.pss_bytes)));
        facts.push(("at", duration(peak.time_ns)));
        facts.push((
            "Live blocks in all, resident or not",
            bytes(peak.live_bytes),
        ));
    }
    for (name, value) in facts {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(&value));
    }
    out.push_str("</dl>\n");
    let said: Vec<&String> = report
        .missing
        .iter()
        .chain(&report.notes)
        .take(40)
        .collect();
    if !said.is_empty() {
        out.push_str("<ul class=\"plain\">");
        for sentence in said {
            let _ = write!(out, "<li>{}</li>", escape(&clean(sentence)));
        }
        out.push_str("</ul>\n");
    }
}

/// Draws the sum over time.
fn picture(report: &Processes) -> String {
    let point = |point: &Point| (point.time_ns as f64 / 1e6, point.pss_bytes);
    let points: Vec<(f64, u64)> = report.timeline.iter().map(point).collect();
    let top = points.iter().map(|point| point.1).max().unwrap_or(0);
    if points.len() < 2 || top == 0 {
        return "<p class=\"soft\">Too few readings for a picture.</p>".into();
    }
    let size = Size {
        width: 960.0,
        height: 240.0,
        left: 66.0,
        right: 20.0,
        top: 12.0,
        bottom: 28.0,
    };
    let frame = Frame::new(size, report.duration_ns as f64 / 1e6, top);
    let mut svg = frame.begin("Memory of all processes over time");
    let _ = write!(
        svg,
        "<path class=\"area\" d=\"{}\"/><path class=\"edge\" d=\"{}\"/>",
        frame.area(&points),
        frame.path(points.iter().copied())
    );
    if let Some(peak) = &report.peak {
        let x = frame.x(peak.time_ns as f64 / 1e6);
        let (top, floor) = (frame.y(f64::MAX), frame.y(0.0));
        let _ = write!(
            svg,
            "<line class=\"peak\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{floor}\"/>"
        );
    }
    svg.push_str("</svg>");
    svg
}

fn heads(out: &mut String, names: &[&str]) {
    out.push_str("<div class=\"scroll\"><table><thead><tr>");
    for (index, name) in names.iter().enumerate() {
        let class = if index == 0 { "" } else { " class=\"n\"" };
        let _ = write!(out, "<th{class}>{name}</th>");
    }
    out.push_str("</tr></thead><tbody>");
}

fn cells(out: &mut String, cells: &[String]) {
    for cell in cells {
        let _ = write!(out, "<td class=\"n\">{}</td>", escape(&clean(cell)));
    }
    out.push_str("</tr>\n");
}

fn page_programs(out: &mut String, report: &Processes) {
    out.push_str("<section><div class=\"head\"><h2>By program</h2></div>");
    heads(
        out,
        &[
            "Program",
            "Processes",
            "Events",
            "Blocks",
            "CPU",
            "Most live",
            "Most RSS",
            "At the peak",
        ],
    );
    let whole = report.peak.map_or(0, |peak| peak.pss_bytes);
    for program in &report.programs {
        let _ = write!(out, "<tr><td>{}</td>", escape(&clean(&program.name)));
        cells(
            out,
            &[
                count(program.processes),
                count(program.events),
                count(program.blocks),
                cpu(program.cpu_ns),
                bytes(program.largest_live_bytes),
                bytes(program.largest_rss_bytes),
                share(program.pss_at_peak_bytes, whole),
            ],
        );
    }
    let totals = &report.totals;
    out.push_str("<tr class=\"sum\"><td>Sum</td>");
    cells(
        out,
        &[
            count(totals.processes),
            count(totals.events),
            count(totals.blocks),
            cpu(totals.cpu_ns),
            String::new(),
            String::new(),
            bytes(whole),
        ],
    );
    out.push_str("</tbody></table></div></section>\n");
}

fn page_processes(out: &mut String, report: &Processes) {
    out.push_str("<section><div class=\"head\"><h2>Processes</h2></div>");
    out.push_str(
        "<p class=\"small soft\">Parents before children. A name with a link leads to the process's own \
         report; the others have one by <span class=\"mono\">skinflint report TRACE</span>.</p>",
    );
    heads(
        out,
        &[
            "Process",
            "Pid",
            "Began",
            "Lived",
            "Events",
            "Peak live",
            "Peak RSS",
            "At the peak",
            "Ended",
        ],
    );
    let whole = report.peak.map_or(0, |peak| peak.pss_bytes);
    for row in report.processes.iter().take(PAGE_ROWS) {
        process_cell(out, row);
        cells(
            out,
            &[
                row.pid.to_string(),
                duration(row.began_ns),
                duration(row.ended_ns.saturating_sub(row.began_ns)),
                count(row.events),
                bytes(row.peak_live_bytes),
                row.peak_rss_bytes.map_or_else(|| "–".into(), bytes),
                if row.was_read {
                    share(row.pss_at_peak_bytes, whole)
                } else {
                    "–".into()
                },
                row.ended.clone(),
            ],
        );
    }
    let rest = report.processes.get(PAGE_ROWS..).unwrap_or_default();
    if !rest.is_empty() {
        let events = rest.iter().map(|row| row.events).sum();
        let at_peak = rest.iter().map(|row| row.pss_at_peak_bytes).sum();
        let _ = write!(
            out,
            "<tr class=\"part\"><td>{} others</td>",
            count(rest.len() as u64)
        );
        let empty = String::new;
        cells(
            out,
            &[
                empty(),
                empty(),
                empty(),
                count(events),
                empty(),
                empty(),
                share(at_peak, whole),
                empty(),
            ],
        );
    }
    out.push_str("</tbody></table></div></section>\n");
}

fn process_cell(out: &mut String, row: &ProcessRow) {
    let indent = "· ".repeat(row.depth.min(12) as usize);
    let _ = write!(
        out,
        "<tr><td class=\"name\"><span class=\"tree\">{indent}</span>"
    );
    for (index, image) in row.images.iter().enumerate() {
        let arrow = if index > 0 { " → " } else { "" };
        let name = escape(&clean(&image.name));
        let _ = match &image.page {
            Some(page) => write!(out, "{arrow}<a href=\"{}\">{name}</a>", escape(&link(page))),
            None => write!(out, "{arrow}{name}"),
        };
    }
    let arguments = row.command.split_once(' ').map_or("", |(_, rest)| rest);
    let shown = cut_middle(&clean(arguments), 120);
    let _ = write!(
        out,
        "<span class=\"mono soft\">{}</span></td>",
        escape(&shown)
    );
}

/// Returns a relative link to a file: any character that is not plain is written as a percent code, so that no name
/// can become a scheme or a query.
fn link(path: &str) -> String {
    let mut out = String::new();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'+' => {
                out.push(char::from(byte));
            }
            byte => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

/// Formats CPU time. Of a process that is not our child the kernel gives ticks of 10 ms, so none of them may be several
/// milliseconds.
fn cpu(cpu_ns: u64) -> String {
    match cpu_ns {
        0 => "–".to_owned(),
        some => duration(some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_analysis::processes::{Image, ProgramRow, Totals};

    fn row(name: &str, pid: u32, rss: u64, at_peak: u64) -> ProcessRow {
        ProcessRow {
            pid,
            name: name.into(),
            command: format!("{name} -c <x>\u{1b}[31m"),
            images: vec![Image {
                trace: format!("{name}.sft"),
                name: name.into(),
                ..Image::default()
            }],
            events: 10,
            peak_rss_bytes: Some(rss),
            pss_at_peak_bytes: at_peak,
            was_read: true,
            ended: "exit 0".into(),
            ..ProcessRow::default()
        }
    }

    fn sample() -> Processes {
        Processes {
            totals: Totals {
                processes: 3,
                traces: 3,
                events: 30,
                ..Totals::default()
            },
            peak: Some(Peak {
                pss_bytes: 3072,
                ..Peak::default()
            }),
            processes: vec![
                row("make", 1, 100, 512),
                row("cc1", 2, 9000, 2048),
                row("as", 3, 50, 512),
            ],
            programs: vec![ProgramRow::default()],
            ..Processes::default()
        }
    }

    #[test]
    fn the_largest_come_first_and_the_rest_is_summed() {
        let options = Options {
            rows: 1,
            ..Options::default()
        };
        let text = render(&sample(), &options);
        assert!(
            text.contains("complete: 30 events in 3 traces, none lost"),
            "{text}"
        );
        let mut some = sample();
        some.totals.unrecorded_calls = 7;
        let said = "complete: 30 events in 3 traces, and 7 calls passed unrecorded";
        assert!(render(&some, &options).contains(said));
        assert!(page(&some, "t").contains("30 events, and 7 calls passed unrecorded."));
        // What one held between two readings is said where the smaller sum stands.
        let alone = "all together: 3.00 KiB (one alone had 8.79 KiB) at 0 ns";
        assert!(text.contains(alone), "{text}");
        let mut all_read = sample();
        all_read.processes[1].peak_rss_bytes = Some(3072);
        assert!(!render(&all_read, &options).contains("one alone had"));
        // One process is not "all together", and not "one alone".
        let mut one = sample();
        one.processes = vec![row("cc1", 2, 9000, 3072)];
        let of_one = render(&one, &options);
        let said = "largest reading: 3.00 KiB (the kernel's high-water mark: 8.79 KiB) at 0 ns; live blocks then: 0 B";
        assert!(of_one.contains(said), "{of_one}");
        assert!(!of_one.contains("alone"), "{of_one}");
        // No figure is cut away on a narrow screen.
        let narrow = Options {
            width: 60,
            ..options
        };
        let shown = render(&one, &narrow);
        assert!(
            shown.contains("live blocks then: 0 B, resident or"),
            "{shown}"
        );
        let rest = text.lines().find(|line| line.starts_with("2 others"));
        let rest = rest.expect("a row for the others");
        // 512 + 512 of 3072; 10 + 10 events.
        assert!(
            rest.contains("1.00 KiB  33.3%") && rest.contains(" 20 "),
            "{rest}"
        );
        assert!(text.contains("cc1 -c <x>"), "{text}");
        assert!(
            !text.contains('\u{1b}') && !text.contains("make -c"),
            "{text}"
        );
        let longest = text.lines().map(columns).max();
        assert!(longest <= Some(100), "{longest:?}");
    }

    #[test]
    fn what_is_missing_comes_first() {
        let mut report = sample();
        report.missing = (0..7).map(|n| format!("trace {n}.")).collect();
        let text = render(&report, &Options::default());
        let second = text.lines().nth(1).expect("lines");
        assert_eq!(second, "incomplete: 7 reasons");
        assert!(text.contains("… and 2 more"), "{text}");
    }

    #[test]
    fn the_page_escapes_and_links_stay_files() {
        let mut report = sample();
        report.processes[1].images[0].page = Some("javascript:alert(1)/x y.html".into());
        let page = page(&report, "a <b>");
        assert!(page.contains("<h1>a &lt;b&gt;</h1>"));
        assert!(page.contains("-c &lt;x&gt;") && !page.contains("<x>"));
        assert!(
            page.contains("href=\"javascript%3Aalert%281%29/x%20y.html\""),
            "{page}"
        );
    }
}
