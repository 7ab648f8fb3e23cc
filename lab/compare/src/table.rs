//! The comparison as text: rows are programs, columns are allocators.
//!
//! ```text
//!                 glibc        skinflint      jemalloc
//!   peak RSS
//!     redis       41.2 MiB     38.0 MiB 0.92  44.0 MiB 1.07
//!     sqlite3      9.1 MiB      9.0 MiB ~0.99 10.2 MiB 1.12
//!     geo. mean                          0.96           1.09
//! ```
//!
//! Each cell is the median and its ratio to the reference.
//!
//! L1  Lines are at most as wide as asked for, if one allocator beside the reference fits; more allocators go below,
//!     with the reference again.
//! L2  An allocator that was not measured has its reason in a line of its own; nothing is left out without a word.
//! L3  With one program its name is the heading and the rows are the figures.
//! L4  Between two cells there is a space, whatever they hold.
//!
//! Not here: words (words.rs), other outputs.

use std::fmt::Write as _;

use skinflint_view::units;

use crate::model::{Cell, Change, Comparison, Measure, Program, Verdict};
use crate::words;

/// The number of changes of each kind that are listed.
const CHANGES: usize = 10;
/// The least room for a cell.
const LEAST_CELL: usize = 14;

/// Renders the whole text, with a final line end.
pub fn render(comparison: &Comparison, width: usize) -> String {
    let mut out = String::new();
    head(&mut out, comparison);
    let widths = cell_widths(comparison);
    for columns in blocks(comparison, &widths, width) {
        block(&mut out, comparison, &widths, &columns);
    }
    legend(&mut out, comparison);
    troubles(&mut out, comparison);
    changes(&mut out, comparison);
    section(&mut out, "Doubts", &comparison.warnings, width);
    out
}

fn head(out: &mut String, comparison: &Comparison) {
    let settings = &comparison.settings;
    for program in &comparison.programs {
        let verb = if program.replayed {
            "replayed"
        } else {
            "re-run"
        };
        let _ = writeln!(out, "{}: {verb}: {}", program.name, program.what.join(" "));
        for note in &program.notes {
            let _ = writeln!(out, "  {note}");
        }
    }
    let machine = &comparison.machine;
    let _ = writeln!(
        out,
        "{}, the reference is {}; {} × {}, {}, Linux {}",
        units::plural(u64::from(settings.runs), "round"),
        settings.reference,
        machine.cpus,
        machine.cpu,
        units::bytes(machine.memory_bytes),
        machine.kernel
    );
    let versions: Vec<String> = comparison.allocators.iter().map(words::named).collect();
    let _ = writeln!(out, "{}\n", versions.join(", "));
}

/// A row: its label, and the cell of each column.
struct Row {
    label: String,
    cells: Vec<(String, String)>,
}

/// Returns the columns of each block (L1): the reference and as many others as fit.
fn blocks(comparison: &Comparison, widths: &[usize], width: usize) -> Vec<Vec<usize>> {
    let label = label_width(comparison);
    let mut blocks: Vec<Vec<usize>> = vec![vec![0]];
    let mut used = label + widths[0];
    for (at, &more) in widths.iter().enumerate().skip(1) {
        let is_full = used + more > width && blocks.last().is_some_and(|block| block.len() > 1);
        if is_full {
            blocks.push(vec![0]);
            used = label + widths[0];
        }
        if let Some(block) = blocks.last_mut() {
            block.push(at);
        }
        used += more;
    }
    blocks
}

/// Returns the width of each column: that of its longest cell, and a space before it (L4).
fn cell_widths(comparison: &Comparison) -> Vec<usize> {
    let names = comparison.allocators.iter().enumerate();
    // The reference has no ratios.
    let mut widths: Vec<usize> = names
        .map(|(at, allocator)| {
            let least = if at == 0 { 9 } else { LEAST_CELL };
            allocator.name.chars().count().max(least) + 1
        })
        .collect();
    for row in measures().flat_map(|measure| rows(comparison, measure)) {
        for (at, width) in widths.iter_mut().enumerate() {
            *width = (*width).max(cell(&row, at).chars().count() + 1);
        }
    }
    widths
}

/// Returns the figures, in the order of the rows.
fn measures() -> impl Iterator<Item = Measure> {
    Measure::SHOWN.iter().chain(&Measure::AGAINST).copied()
}

fn label_width(comparison: &Comparison) -> usize {
    let names = comparison.programs.iter().map(|p| p.name.chars().count());
    let longest = match comparison.programs.len() {
        1 => 0,
        _ => names.max().unwrap_or(0).min(24),
    };
    // Two blanks come before the name, and one after it.
    (longest + 3).max(18)
}

fn block(out: &mut String, comparison: &Comparison, widths: &[usize], columns: &[usize]) {
    let mut cells = comparison.programs.iter().flat_map(|p| &p.columns);
    if cells.all(|column| column.cells.is_empty()) {
        return;
    }
    let label = label_width(comparison);
    let _ = write!(out, "{:label$}", "");
    for &at in columns {
        let width = widths[at];
        let _ = write!(out, "{:>width$}", comparison.allocators[at].name);
    }
    out.push('\n');
    for measure in measures() {
        let rows = rows(comparison, measure);
        if rows.is_empty() {
            continue;
        }
        if comparison.programs.len() > 1 {
            let _ = writeln!(out, "{}", measure.title());
        }
        for row in rows {
            line(out, &row, widths, columns, label);
        }
    }
    out.push('\n');
}

fn line(out: &mut String, row: &Row, widths: &[usize], columns: &[usize], label: usize) {
    let short: String = row.label.chars().take(label - 1).collect();
    let mut text = format!("{short:label$}");
    for &at in columns {
        let width = widths[at];
        let _ = write!(text, "{:>width$}", cell(row, at));
    }
    let _ = writeln!(out, "{}", text.trim_end());
}

/// Returns the text of a column; only beside the reference is there room for a ratio.
fn cell(row: &Row, at: usize) -> String {
    let (value, ratio) = &row.cells[at];
    match (at, ratio.as_str()) {
        (0, _) => value.clone(),
        (_, ratio) => format!("{value} {ratio:>5}"),
    }
}

/// Returns the rows of one figure; none if no column has it.
fn rows(comparison: &Comparison, measure: Measure) -> Vec<Row> {
    let is_one = comparison.programs.len() == 1;
    let mut rows: Vec<Row> = comparison
        .programs
        .iter()
        .filter(|program| has(program, measure))
        .map(|program| Row {
            label: match is_one {
                true => measure.title().to_owned(),
                false => format!("  {}", program.name),
            },
            cells: program_cells(program, measure),
        })
        .collect();
    if rows.len() > 1 && !Measure::AGAINST.contains(&measure) {
        rows.push(mean_row(comparison, measure));
    }
    rows
}

fn has(program: &Program, measure: Measure) -> bool {
    let mut cells = program.columns.iter().flat_map(|column| &column.cells);
    cells.any(|cell| cell.measure == measure)
}

fn program_cells(program: &Program, measure: Measure) -> Vec<(String, String)> {
    let cell = |cell: &Cell| {
        let ratio = match Measure::AGAINST.contains(&measure) {
            // What memory is measured against is not compared.
            true => String::new(),
            false => words::ratio(cell),
        };
        (words::value(measure, cell.median), ratio)
    };
    program
        .columns
        .iter()
        .map(|column| {
            let found = column.cells.iter().find(|cell| cell.measure == measure);
            match found {
                Some(found) => cell(found),
                None if column.verdict != Verdict::Measured => {
                    (words::verdict_briefly(&column.verdict), String::new())
                }
                None => ("–".into(), String::new()),
            }
        })
        .collect()
}

fn mean_row(comparison: &Comparison, measure: Measure) -> Row {
    let cells = comparison
        .allocators
        .iter()
        .enumerate()
        .map(|(at, allocator)| {
            let mean = comparison
                .overall
                .iter()
                .find(|mean| mean.measure == measure && mean.allocator == allocator.name);
            match mean {
                Some(mean) if at > 0 => (String::new(), words::plain_ratio(mean.ratio)),
                _ => (String::new(), String::new()),
            }
        });
    Row {
        label: "  geometric mean".into(),
        cells: cells.collect(),
    }
}

fn legend(out: &mut String, comparison: &Comparison) {
    let reference = &comparison.settings.reference;
    let few = if (comparison.settings.runs as usize) < crate::stats::ENOUGH {
        "; 0.92?: too few rounds to tell"
    } else {
        ""
    };
    let _ = writeln!(
        out,
        "Medians, and ratios to {reference} (less is better). ~0.99: not distinguishable from {reference} with 95% \
         confidence{few}.\nRSS: anonymous and shared memory of all processes, each page once."
    );
    if comparison.programs.iter().any(|program| program.replayed) {
        let _ = writeln!(
            out,
            "Floor: distinct 4 KiB pages that hold a live block, where this allocator put them. Time per call: without \
             the replayer's own."
        );
    }
}

fn troubles(out: &mut String, comparison: &Comparison) {
    let mut lines = Vec::new();
    for program in &comparison.programs {
        for column in &program.columns {
            if let Some(what) = words::verdict(column) {
                lines.push(match comparison.programs.len() {
                    1 => format!("{}: {what}", column.allocator),
                    _ => format!("{}, {}: {what}", program.name, column.allocator),
                });
            }
        }
    }
    section(out, "Not measured", &lines, usize::MAX);
    let missing: Vec<String> = comparison
        .missing
        .iter()
        .map(|missing| {
            format!(
                "{}: {}; to get it: {}",
                missing.name, missing.why, missing.get
            )
        })
        .collect();
    section(out, "Not here", &missing, usize::MAX);
}

fn changes(out: &mut String, comparison: &Comparison) {
    let reference = &comparison.settings.reference;
    for (better, title) in [(true, "Better than"), (false, "Worse than")] {
        let of_kind: Vec<&Change> = comparison
            .changes
            .iter()
            .filter(|change| change.better == better)
            .collect();
        let mut lines: Vec<String> = of_kind
            .iter()
            .take(CHANGES)
            .map(|change| words::change(change, comparison.programs.len() > 1))
            .collect();
        if of_kind.len() > CHANGES {
            lines.push(format!(
                "and {} more (--json lists all)",
                of_kind.len() - CHANGES
            ));
        }
        section(out, &format!("{title} {reference}"), &lines, usize::MAX);
    }
}

/// Adds a heading and its lines, broken at words; nothing if there are no lines.
fn section(out: &mut String, title: &str, lines: &[String], width: usize) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{title}");
    for line in lines {
        let mut length = 0;
        for word in line.split(' ') {
            let more = word.chars().count() + 1;
            if length == 0 {
                let _ = write!(out, "  {word}");
                length = more + 1;
            } else if length + more > width.max(40) {
                let _ = write!(out, "\n    {word}");
                length = more + 3;
            } else {
                let _ = write!(out, " {word}");
                length += more;
            }
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    const MIB: f64 = 1048576.0;

    fn two() -> Comparison {
        testing::comparison(vec![
            testing::program("redis", &[("glibc", 40.0 * MIB), ("lean", 20.0 * MIB)]),
            testing::program("sqlite3", &[("glibc", 10.0 * MIB), ("lean", 20.0 * MIB)]),
        ])
    }

    #[test]
    fn programs_are_rows_and_allocators_columns() {
        let text = render(&two(), 100);
        let expected = "\
                       glibc           lean
peak RSS
  redis             40.0 MiB 20.0 MiB  0.50
  sqlite3           10.0 MiB 20.0 MiB  2.00
  geometric mean                       1.00
";
        assert!(text.contains(expected), "{text}");
        assert!(
            text.contains("\nBetter than glibc\n  redis: lean, peak RSS: −50.0% (−20.0 MiB)\n")
        );
        assert!(
            text.contains("\nWorse than glibc\n  sqlite3: lean, peak RSS: +100.0% (+10.0 MiB)\n")
        );
        assert!(text.contains("glibc 1.2, lean 1.2"));
    }

    #[test]
    fn who_failed_has_a_cell_and_a_line() {
        let mut comparison = two();
        let column = &mut comparison.programs[0].columns[1];
        column.verdict = Verdict::Crashed {
            signal: "SIGSEGV".into(),
            round: 2,
            said: "oops".into(),
        };
        column.cells.clear();
        let text = render(&comparison, 100);
        assert!(
            text.contains("  redis             40.0 MiB  SIGSEGV\n"),
            "{text}"
        );
        assert!(text.contains("redis, lean: killed by SIGSEGV in round 2; it said: oops"));
    }

    #[test]
    fn names_that_differ_at_their_end_are_told_apart() {
        let peaks = [("glibc", MIB), ("lean", MIB)];
        let names = ["skinflint.worker.10001", "skinflint.worker.10002"];
        let text = render(
            &testing::comparison(names.map(|name| testing::program(name, &peaks)).to_vec()),
            100,
        );
        for name in names {
            assert!(text.contains(&format!("\n  {name} ")), "{text}");
        }
    }

    #[test]
    fn no_cell_touches_its_neighbour() {
        let mut comparison = two();
        comparison.programs[0].columns[1].verdict = Verdict::NoEffect {
            why: "static".into(),
        };
        comparison.programs[0].columns[1].cells.clear();
        let text = render(&comparison, 100);
        assert!(text.contains("40.0 MiB no effect\n"), "{text}");
        let mut comparison = two();
        for column in &mut comparison.programs[1].columns {
            column.cells[0].median = 123_456.7;
            column.cells[0].measure = Measure::OpNs;
        }
        let text = render(&comparison, 100);
        assert!(text.contains("123456.7 ns 123456.7 ns  2.00\n"), "{text}");
    }

    #[test]
    fn many_columns_go_below_with_the_reference_again() {
        let peaks: Vec<(&str, f64)> = ["glibc", "a", "b", "c", "d", "e"]
            .map(|name| (name, 10.0 * MIB))
            .to_vec();
        let comparison = testing::comparison(vec![testing::program("one", &peaks)]);
        let text = render(&comparison, 70);
        let heads: Vec<&str> = text
            .lines()
            .filter(|line| line.trim().starts_with("glibc  "))
            .collect();
        assert_eq!(heads.len(), 3, "{text}");
        assert!(text.contains("\npeak RSS  "), "{text}");
        let body = text.lines().filter(|line| line.starts_with("peak"));
        assert!(
            body.map(|line| line.chars().count())
                .all(|length| length <= 70)
        );
    }
}
