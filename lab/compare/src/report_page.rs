//! The comparison as one HTML file: verdicts, the picture of memory over time, ratios, tables, versions, doubts.
//!
//! ```text
//!   head ─► [ doubts ] ─► for each program: over time, ratios, table ─► all programs ─► changes ─► allocators, machine
//! ```
//!
//! H1  The file makes no request and runs nothing: a content security policy forbids both.
//! H2  All text is escaped; program names, paths and output of programs are data.
//! H3  The same comparison gives the same bytes.
//! H4  Colour never carries meaning alone: a ratio that is distinct is bare, one that is not has a tilde.
//!
//! Not here: the pictures (plot.rs), words (words.rs), the look of our pages (`view`).

use std::fmt::Write as _;

use skinflint_view::html::{begin, escape};
use skinflint_view::plot::{STYLE, color};
use skinflint_view::units;

use crate::model::{Cell, Change, Column, Comparison, Measure, Program, Sure, Verdict};
use crate::{plot, words};

/// The style that this page needs beyond the common one.
const OWN_STYLE: &str = "
.live { fill: var(--line); opacity: .55; } .live-edge { fill: none; stroke: var(--soft); stroke-width: 1; opacity: .8; }
.floor { fill: none; stroke: var(--soft); stroke-width: 1.2; stroke-dasharray: 2 4; }
.floor-mark { fill: var(--card); stroke-width: 1.4; }
.one { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 3 3; }
td .r { display: block; font-size: 12px; color: var(--soft); } td .r.good { color: var(--good); font-weight: 600; }
td .r.bad { color: var(--warn); font-weight: 600; } td .i { display: block; font-size: 11px; color: var(--soft); }
td.failed { color: var(--warn); } .two { display: grid; grid-template-columns: 1fr 1fr; gap: 0 32px; }
@media (max-width: 760px) { .two { grid-template-columns: 1fr; } }
.two ul, ul.plain { margin: 4px 0; padding-left: 18px; } section.doubts { border-color: var(--warn); }
td:first-child { white-space: nowrap; } table.figures td.n { min-width: 86px; }
";

/// Renders the whole file.
pub fn render(comparison: &Comparison) -> String {
    let title = title(comparison);
    let mut out = begin(&title, &[STYLE, OWN_STYLE]);
    head(&mut out, comparison);
    out.push_str("</header>\n<main>\n");
    for program in &comparison.programs {
        one(&mut out, comparison, program);
    }
    if comparison.programs.len() > 1 {
        all(&mut out, comparison);
    }
    changes(&mut out, comparison);
    doubts(&mut out, comparison);
    allocators(&mut out, comparison);
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn title(comparison: &Comparison) -> String {
    let names: Vec<&str> = comparison
        .programs
        .iter()
        .map(|p| p.name.as_str())
        .collect();
    let allocators = units::plural(comparison.allocators.len() as u64, "allocator");
    match names.len() {
        0..=4 => format!("{} under {allocators}", names.join(", ")),
        n => format!("{n} programs under {allocators}"),
    }
}

fn head(out: &mut String, comparison: &Comparison) {
    let (settings, machine) = (&comparison.settings, &comparison.machine);
    let status = match (comparison.interrupted, comparison.warnings.len()) {
        (true, _) => (
            "warn",
            "Interrupted: only what was measured until then is shown.".to_owned(),
        ),
        (false, 0) => ("", "No doubts about the measurement.".to_owned()),
        (false, n) => {
            let count = units::plural(n as u64, "doubt");
            (
                "warn",
                format!("{count} about the measurement, listed below."),
            )
        }
    };
    let _ = write!(
        out,
        "<p class=\"status {}\"><b>{}</b></p>\n<dl class=\"facts\">",
        status.0,
        escape(&status.1)
    );
    let facts = [
        ("Rounds", settings.runs.to_string()),
        ("Reference", settings.reference.clone()),
        (
            "Machine",
            format!(
                "{} × {}, {}",
                machine.cpus,
                machine.cpu,
                units::bytes(machine.memory_bytes)
            ),
        ),
        ("Kernel", machine.kernel.clone()),
        ("Huge pages", machine.huge_pages.clone()),
        ("Date", date(comparison.began_unix_s)),
        ("Skinflint", comparison.skinflint.clone()),
    ];
    for (name, value) in facts {
        if !value.is_empty() {
            let _ = write!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(&value));
        }
    }
    let _ = writeln!(
        out,
        "</dl>\n<p class=\"mono soft\">{}</p>",
        escape(&comparison.command.join(" "))
    );
}

/// Returns the UTC date and time of seconds since 1970: the inverse of Hinnant's days_from_civil.
pub fn date(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    // Days since 0000-03-01: years end with February, so a leap day is a year's last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (second / 3_600, second % 3_600 / 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

fn section(out: &mut String, class: &str, title: &str, said: &str) {
    let _ = write!(
        out,
        "<section class=\"{class}\">\n<div class=\"head\"><h2>{}</h2></div>\n",
        escape(title)
    );
    if !said.is_empty() {
        let _ = writeln!(out, "<p class=\"small soft\">{}</p>", escape(said));
    }
}

fn list(out: &mut String, items: &[String]) {
    out.push_str("<ul class=\"plain\">");
    for item in items {
        let _ = write!(out, "<li>{}</li>", escape(item));
    }
    out.push_str("</ul>\n");
}

/// Renders one program: over time, ratios, figures, failures.
fn one(out: &mut String, comparison: &Comparison, program: &Program) {
    let verb = if program.replayed {
        "Replayed"
    } else {
        "Re-run"
    };
    section(
        out,
        "",
        &program.name,
        &format!("{verb}: {}", program.what.join(" ")),
    );
    if !program.notes.is_empty() {
        list(out, &program.notes);
    }
    let failures: Vec<String> = program
        .columns
        .iter()
        .filter_map(|column| Some(format!("{}: {}", column.allocator, words::verdict(column)?)))
        .collect();
    if !failures.is_empty() {
        out.push_str("<h3>Not measured</h3>");
        list(out, &failures);
    }
    if let Some(svg) = plot::over_time(program) {
        let what = match program.replayed {
            true => {
                "Anonymous and shared memory, the replayer's tables taken off, by the recording's clock. Area: live bytes as \
                 asked for. Dotted, and circles: distinct 4 KiB pages that hold a live block, where each allocator put them."
            }
            false => {
                "Anonymous and shared memory of all processes, each page once. Of each allocator the run with the median peak."
            }
        };
        let _ = writeln!(
            out,
            "<h3>Resident memory over time</h3><p class=\"small soft\">{what}</p><div class=\"scroll\">{svg}</div>"
        );
    }
    if let Some(svg) = plot::ratios(comparison, program) {
        let reference = escape(&comparison.settings.reference);
        let _ = writeln!(
            out,
            "<h3>Ratios to {reference}, with 95% intervals</h3><p class=\"small soft\">Less is better. Hollow: not \
             distinguishable from {reference}. Logarithmic; each figure has a scale of its own.</p><div \
             class=\"scroll\">{svg}</div>"
        );
    }
    figures(out, comparison, program);
    out.push_str("</section>\n");
}

/// Renders a table whose rows are figures and whose columns are allocators.
fn figures(out: &mut String, comparison: &Comparison, program: &Program) {
    out.push_str("<h3>Figures</h3><div class=\"scroll\"><table class=\"figures\"><thead><tr><th>Median of the rounds</th>");
    names(out, comparison);
    out.push_str("</tr></thead><tbody>");
    for measure in Measure::SHOWN.into_iter().chain(Measure::AGAINST) {
        let mut cells = program.columns.iter().flat_map(|column| &column.cells);
        if !cells.any(|cell| cell.measure == measure) {
            continue;
        }
        let _ = write!(out, "<tr><td>{}</td>", measure.title());
        for column in &program.columns {
            cell_of(out, column, measure, true);
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>\n");
}

fn names(out: &mut String, comparison: &Comparison) {
    for (at, allocator) in comparison.allocators.iter().enumerate() {
        let _ = write!(
            out,
            "<th class=\"n\"><i class=\"chip\" style=\"background:{}\"></i>{}</th>",
            color(at),
            escape(&allocator.name)
        );
    }
}

fn cell_of(out: &mut String, column: &Column, measure: Measure, with_interval: bool) {
    let Some(cell) = column.cells.iter().find(|cell| cell.measure == measure) else {
        let (class, text) = match column.verdict {
            Verdict::Measured => ("n", "–".to_owned()),
            _ => ("n failed", words::verdict_briefly(&column.verdict)),
        };
        let _ = write!(out, "<td class=\"{class}\">{}</td>", escape(&text));
        return;
    };
    let _ = write!(
        out,
        "<td class=\"n\">{}",
        words::value(measure, cell.median)
    );
    let ratio = words::ratio(cell);
    if !ratio.is_empty() && !Measure::AGAINST.contains(&measure) {
        let _ = write!(out, "<span class=\"r {}\">{ratio}</span>", tone(cell));
        if with_interval && cell.interval.is_some() {
            let _ = write!(out, "<span class=\"i\">{}</span>", words::interval(cell));
        }
    }
    out.push_str("</td>");
}

fn tone(cell: &Cell) -> &'static str {
    match (cell.sure, cell.ratio) {
        (Sure::Distinct, Some(ratio)) if ratio < 1.0 => "good",
        (Sure::Distinct, Some(_)) => "bad",
        _ => "",
    }
}

/// Renders a table for each figure, whose rows are programs and whose columns are allocators.
fn all(out: &mut String, comparison: &Comparison) {
    let said = format!(
        "Median, and ratio to {}; the last row is the geometric mean of the ratios.",
        comparison.settings.reference
    );
    section(out, "", "All programs", &said);
    for measure in Measure::SHOWN {
        let with: Vec<&Program> = comparison
            .programs
            .iter()
            .filter(|program| {
                let mut cells = program.columns.iter().flat_map(|column| &column.cells);
                cells.any(|cell| cell.measure == measure)
            })
            .collect();
        if with.len() < 2 {
            continue;
        }
        let _ = write!(
            out,
            "<h3>{}</h3><div class=\"scroll\"><table><thead><tr><th>Program</th>",
            measure.title()
        );
        names(out, comparison);
        out.push_str("</tr></thead><tbody>");
        for program in with {
            let _ = write!(out, "<tr><td class=\"name\">{}</td>", escape(&program.name));
            for column in &program.columns {
                cell_of(out, column, measure, false);
            }
            out.push_str("</tr>");
        }
        out.push_str("<tr class=\"sum\"><td>Geometric mean</td>");
        for allocator in &comparison.allocators {
            let mut means = comparison.overall.iter();
            let mean = means.find(|m| m.measure == measure && m.allocator == allocator.name);
            let text = mean.map_or(String::new(), |mean| words::plain_ratio(mean.ratio));
            let _ = write!(out, "<td class=\"n\">{text}</td>");
        }
        out.push_str("</tr></tbody></table></div>\n");
    }
    out.push_str("</section>\n");
}

fn changes(out: &mut String, comparison: &Comparison) {
    let reference = &comparison.settings.reference;
    let few = (comparison.settings.runs as usize) < crate::stats::ENOUGH;
    let said = match (comparison.changes.is_empty(), few) {
        (true, true) => "Too few rounds to call anything distinct.",
        (true, false) => "Nothing can be told from chance.",
        _ => "Differences whose 95% interval does not hold 1, the largest first.",
    };
    section(out, "", &format!("Better and worse than {reference}"), said);
    out.push_str("<div class=\"two\">");
    for (better, title) in [(true, "Better"), (false, "Worse")] {
        let of_kind = comparison.changes.iter().filter(|c| c.better == better);
        let lines: Vec<String> = of_kind
            .map(|change: &Change| words::change(change, comparison.programs.len() > 1))
            .collect();
        let _ = write!(out, "<div><h3>{title} ({})</h3>", lines.len());
        list(out, &lines);
        out.push_str("</div>");
    }
    out.push_str("</div></section>\n");
}

fn doubts(out: &mut String, comparison: &Comparison) {
    if comparison.warnings.is_empty() {
        return;
    }
    section(
        out,
        "doubts",
        "Doubts",
        "What in the measurement itself speaks against believing it.",
    );
    list(out, &comparison.warnings);
    out.push_str("</section>\n");
}

fn allocators(out: &mut String, comparison: &Comparison) {
    section(
        out,
        "",
        "Allocators",
        "Calls that acquire memory were counted in a run of their own, which is not measured.",
    );
    out.push_str(
        "<div class=\"scroll\"><table><thead><tr><th>Name</th><th>Version</th><th>From</th><th>Library</th>",
    );
    for program in &comparison.programs {
        let _ = write!(out, "<th class=\"n\">Calls, {}</th>", escape(&program.name));
    }
    out.push_str("</tr></thead><tbody>");
    for (at, allocator) in comparison.allocators.iter().enumerate() {
        let _ = write!(
            out,
            "<tr><td><i class=\"chip\" style=\"background:{}\"></i>{}</td><td>{}</td><td>{}</td><td class=\"name mono\">{}</td>",
            color(at),
            escape(&allocator.name),
            escape(&allocator.version),
            escape(&allocator.source),
            escape(allocator.library.as_deref().unwrap_or("none"))
        );
        for program in &comparison.programs {
            let check = program
                .columns
                .get(at)
                .and_then(|column| column.check.as_ref());
            let calls = check.map_or("–".into(), |check| units::count(check.calls));
            let _ = write!(out, "<td class=\"n\">{calls}</td>");
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>\n");
    if !comparison.missing.is_empty() {
        out.push_str("<h3>Not here</h3>");
        let lines: Vec<String> = comparison
            .missing
            .iter()
            .map(|missing| {
                format!(
                    "{}: {}; to get it: {}",
                    missing.name, missing.why, missing.get
                )
            })
            .collect();
        list(out, &lines);
    }
    out.push_str("</section>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn dates_by_hand() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_800_000_000), "2027-01-15 08:00 UTC");
    }

    #[test]
    fn the_page_runs_nothing_fetches_nothing_and_escapes_everything() {
        let mut program = testing::program("<script>", &[("glibc", 4e7), ("\"lean\"", 2e7)]);
        program.what = vec!["<img src=x onerror=alert(1)>".into()];
        program.notes = vec!["</section>".into()];
        let mut comparison = testing::comparison(vec![program]);
        comparison.warnings = vec!["<b>doubt</b>".into()];
        comparison.command = vec!["<i>".into()];
        let page = render(&comparison);
        for forbidden in [
            "<script", "<img", "<b>doubt", "<i>", "http://", "https://", "url(", "@import",
        ] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        assert!(page.contains("default-src 'none'"));
        assert!(page.contains("&lt;script&gt;"));
        assert_eq!(
            page.matches("<section").count(),
            page.matches("</section>").count()
        );
        assert_eq!(page, render(&comparison));
    }

    #[test]
    fn failures_means_and_changes_are_on_it() {
        let mut programs = vec![
            testing::program("one", &[("glibc", 4e7), ("lean", 2e7)]),
            testing::program("two", &[("glibc", 4e7), ("lean", 8e7)]),
            testing::program("three", &[("glibc", 4e7), ("lean", 8e7)]),
        ];
        programs[2].columns[1].verdict = Verdict::TimeLimit {
            limit_ns: 60_000_000_000,
            round: 1,
        };
        let page = render(&testing::comparison(programs));
        assert!(page.contains("lean: not done within 1 min 00 s in round 1"));
        assert!(
            page.contains("Geometric mean</td><td class=\"n\">1.00</td><td class=\"n\">1.00</td>")
        );
        assert!(page.contains("one: lean, peak RSS: −50.0%"));
    }
}
