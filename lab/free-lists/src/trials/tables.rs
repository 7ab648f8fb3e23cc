//! The three tables, and what got better and worse; ratios are to the first policy.
//!
//! ```text
//!   duration      mutator, promotion, all: ms and ratio to the reference
//!   space size    mean, peak, after collections; with descriptors; resident
//!   collection    sweeping, end-of-cycle latency, bytes moved
//! ```
//!
//! T1  With several traces every figure is the median over traces, and so is, independently, its ratio; so a ratio in
//!     a table need not be the ratio of two figures in it.
//! T2  "Better" and "worse" begin where a figure differs from the reference's by more than times vary: 5 % of CPU time, 0.5 %
//!     of memory and instructions.
//!
//! Not here: JSON (the rows themselves).

use std::fmt::Write as _;

use super::figures::{Figures, Row, median};

const MIB: f64 = 1_048_576.0;

type Figure = fn(&Row) -> f64;

/// A figure with its name for the list and its threshold (T2). More is always worse.
const JUDGED: &[(&str, Figure, f64)] = &[
    ("mutator time", |row| row.mutator_ms, 0.05),
    ("promotion time", |row| row.promotion_ms, 0.05),
    (
        "instructions",
        |row| row.instructions.map_or(f64::NAN, |count| count as f64),
        0.005,
    ),
    ("pages, mean", |row| row.committed_mean, 0.005),
    ("pages, peak", |row| row.committed_peak, 0.005),
    ("pages and descriptors", |row| row.with_tables_mean, 0.005),
    ("sweeping", |row| row.sweeping_ms, 0.05),
    ("longest end of cycle", |row| row.latency_max_ms, 0.05),
];

/// Renders all tables as text.
pub fn render(all: &[Figures]) -> String {
    let mut out = String::new();
    heading(&mut out, all);
    let Some(first) = all.first() else {
        return out;
    };
    let counted = first.rows.iter().any(|row| row.instructions.is_some());
    // A program that ran itself promotes and moves nothing.
    let live = all.iter().all(|figures| figures.live);
    let mut duration: Vec<Column> = vec![Column("mutator ms", |row| row.mutator_ms, 1.0, 1, true)];
    if !live {
        duration.push(Column("promotion ms", |row| row.promotion_ms, 1.0, 1, true));
    }
    duration.push(Column("all ms", |row| row.total_ms, 1.0, 1, true));
    if counted {
        duration.push(Column(
            "M instr.",
            |row| row.instructions.map_or(f64::NAN, |n| n as f64),
            1e6,
            1,
            true,
        ));
    }
    duration.push(Column("refills", |row| row.refills as f64, 1.0, 0, false));
    let reference = first
        .rows
        .first()
        .map_or("legacy", |row| row.policy.as_str());
    let what = match live {
        true => "CPU time of the whole program, engine and collector included",
        false => "CPU time without marking",
    };
    table(
        &mut out,
        &format!("Duration ({what}; × {reference})"),
        all,
        &duration,
    );
    table(
        &mut out,
        &format!("Space size (MiB; mean over samples; × {reference})"),
        all,
        &[
            Column("pages", |row| row.committed_mean, MIB, 2, true),
            Column("peak", |row| row.committed_peak, MIB, 2, true),
            Column("after gc", |row| row.committed_after, MIB, 2, true),
            Column("+ tables", |row| row.with_tables_mean, MIB, 2, true),
            Column("resident", |row| row.resident_mean, MIB, 2, true),
            Column("wasted", |row| row.wasted_mean, MIB, 2, false),
        ],
    );
    let moved = [
        Column("moved MiB", |row| row.moved_bytes as f64, MIB, 1, false),
        Column("purged MiB", |row| row.purged_bytes as f64, MIB, 1, false),
    ];
    let mut collection = vec![
        Column("sweeping ms", |row| row.sweeping_ms, 1.0, 1, true),
        Column("end of cycle", |row| row.latency_mean_ms, 1.0, 2, true),
        Column("longest", |row| row.latency_max_ms, 1.0, 2, true),
    ];
    collection.extend(moved.into_iter().filter(|_| !live));
    table(
        &mut out,
        &format!("Collection (CPU time without marking; × {reference})"),
        all,
        &collection,
    );
    changes(&mut out, all, reference);
    out
}

fn heading(out: &mut String, all: &[Figures]) {
    for figures in all {
        let _ = writeln!(
            out,
            "{} ({}): {} objects, {:.1} MiB, at most {:.1} MiB alive, {} collections; needed in the mean {:.2} MiB",
            figures.trace,
            figures.source,
            figures.objects,
            figures.bytes as f64 / MIB,
            figures.peak_live_bytes as f64 / MIB,
            figures.rows.first().map_or(0, |row| row.collections),
            figures.rows.first().map_or(0.0, |row| row.needed_mean) / MIB,
        );
    }
    if all.len() > 1 {
        let _ = writeln!(out, "Medians over {} traces.", all.len());
    }
}

/// A column: heading, figure, divisor, digits, and whether its ratio is shown.
struct Column(&'static str, Figure, f64, usize, bool);

/// Returns the median of a row's figure, and the median of its ratio (T1).
fn medians(all: &[Figures], index: usize, figure: Figure) -> (f64, f64) {
    let rows = || {
        all.iter()
            .filter_map(|figures| Some((figures.rows.get(index)?, figures.rows.first()?)))
    };
    let value = median(rows().map(|(row, _)| figure(row)));
    let ratio = median(rows().map(|(row, legacy)| figure(row) / figure(legacy)));
    (value, ratio)
}

fn table(out: &mut String, title: &str, all: &[Figures], columns: &[Column]) {
    let _ = writeln!(out, "\n{title}");
    let _ = write!(out, "{:22}", "");
    for Column(name, _, _, _, ratio) in columns {
        let _ = match ratio {
            true => write!(out, "{name:>13}{:>8}", "×"),
            false => write!(out, "{name:>13}"),
        };
    }
    let _ = writeln!(out);
    let rows = all.first().map_or(&[][..], |figures| &figures.rows);
    for (index, row) in rows.iter().enumerate() {
        let _ = write!(out, "{:22}", row.policy);
        for Column(_, figure, unit, digits, with_ratio) in columns {
            let (value, ratio) = medians(all, index, *figure);
            let _ = write!(out, "{:13.digits$}", value / unit);
            if *with_ratio {
                // A figure that is 0 under legacy has no ratio.
                let _ = match ratio.is_finite() {
                    true => write!(out, "{ratio:8.3}"),
                    false => write!(out, "{:>8}", "–"),
                };
            }
        }
        let _ = writeln!(out);
    }
}

fn changes(out: &mut String, all: &[Figures], reference: &str) {
    let _ = writeln!(out, "\nBetter and worse than {reference}");
    let rows = all.first().map_or(&[][..], |figures| &figures.rows);
    for (index, row) in rows.iter().enumerate().skip(1) {
        let (mut better, mut worse) = (Vec::new(), Vec::new());
        for (name, figure, threshold) in JUDGED {
            let (_, ratio) = medians(all, index, *figure);
            let change = ratio - 1.0;
            if change < -threshold {
                better.push(format!("{name} −{:.1} %", -change * 100.0));
            } else if change > *threshold {
                worse.push(format!("{name} +{:.1} %", change * 100.0));
            }
        }
        let or_nothing = |list: Vec<String>| match list.is_empty() {
            true => "nothing".to_owned(),
            false => list.join(", "),
        };
        let _ = writeln!(out, "{:22}better: {}", row.policy, or_nothing(better));
        let _ = writeln!(out, "{:22}worse:  {}", "", or_nothing(worse));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(policy: &str, committed: f64, mutator: f64) -> Row {
        Row {
            policy: policy.into(),
            committed_mean: committed * MIB,
            mutator_ms: mutator,
            ..Row::default()
        }
    }

    fn figures(rows: Vec<Row>) -> Figures {
        Figures {
            trace: "a".into(),
            source: "by hand".into(),
            settings: String::new(),
            live: false,
            objects: 3,
            bytes: 96,
            peak_live_bytes: 64,
            large_objects: 0,
            missing: Vec::new(),
            rows,
        }
    }

    #[test]
    fn ratios_are_medians_over_traces_and_changes_have_thresholds() {
        let all = [
            figures(vec![row("legacy", 10.0, 100.0), row("many", 9.0, 104.0)]),
            figures(vec![row("legacy", 20.0, 100.0), row("many", 19.0, 110.0)]),
            figures(vec![row("legacy", 30.0, 100.0), row("many", 28.8, 103.0)]),
        ];
        // 0.9, 0.95, 0.96.
        assert_eq!(
            medians(&all, 1, |row| row.committed_mean),
            (19.0 * MIB, 0.95)
        );
        let text = render(&all);
        assert!(text.contains("better: pages, mean −5.0 %\n"), "{text}");
        // 1.04 is within what times vary.
        assert!(text.contains("worse:  nothing"), "{text}");
        assert!(text.contains("Medians over 3 traces."), "{text}");
    }

    #[test]
    fn what_is_nothing_under_legacy_has_no_ratio() {
        let all = [figures(vec![
            row("legacy", 10.0, 0.0),
            row("many", 9.0, 0.0),
        ])];
        let text = render(&all);
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
