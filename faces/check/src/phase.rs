//! Budgets of phases: figures of what happened between `NAME begin` and `NAME end`, a test for instance.
//!
//! ```text
//!   marks ─► "cache begin" · "cache budget growth=4KiB" · "cache end" ─┬─► Phase { begin, end }, rounds of a name together
//!                                                                     └─► Budget, if --marked-budgets
//! ```
//!
//! P1  Figures are differences to the phase's begin, exact to the event. A phase is of the whole process: what other
//!     threads did meanwhile is counted with it.
//! P2  Of several rounds of a name the worst counts; growth leaves out the first if there are others, as it warms up.
//! P3  A pattern (`*`) stands for each phase that it matches. One that matches none, and a phase that never ended, have no
//!     figure.
//!
//! Not here: what outlives its phase by stack (`analysis::passes::phases`).

use skinflint_analysis::model::{MarkRow, Report};

use crate::budget::{Budget, Kind, Within, of_phase};
use crate::pattern::matches;

/// A round of a phase: indices into [`Report::marks`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Round {
    /// Its `begin`.
    pub begin: usize,
    /// Its `end`.
    pub end: usize,
}

impl Round {
    /// Returns its figure.
    fn figure(self, marks: &[MarkRow], within: Within) -> u64 {
        let before = marks[self.begin].live_usable_bytes;
        let inside = &marks[self.begin + 1..=self.end];
        match within {
            Within::Growth => marks[self.end].live_usable_bytes.saturating_sub(before),
            Within::PeakLive => {
                let highest = inside.iter().map(|mark| mark.peak_live_usable_bytes).max();
                highest.unwrap_or(before).saturating_sub(before)
            }
            Within::Allocations => inside
                .iter()
                .fold(0, |sum, mark| sum.saturating_add(mark.allocations)),
        }
    }
}

/// Splits the name of a mark into that of its phase and what it does to it.
fn parsed(mark: &str) -> Option<(&str, bool)> {
    let (name, what) = mark.rsplit_once(' ')?;
    match what {
        "begin" | "start" => Some((name, true)),
        "end" | "stop" => Some((name, false)),
        _ => None,
    }
}

/// Returns the rounds of a phase that ended.
fn rounds(report: &Report, phase: &str) -> Vec<Round> {
    let mut open = None;
    let mut found = Vec::new();
    for (index, mark) in report.marks.iter().enumerate() {
        match parsed(&mark.name) {
            Some((name, true)) if name == phase => open = open.or(Some(index)),
            Some((name, false)) if name == phase => {
                found.extend(open.take().map(|begin| Round { begin, end: index }))
            }
            _ => {}
        }
    }
    found
}

/// Returns the worst round of a phase, and its figure (P2).
pub(crate) fn worst(report: &Report, phase: &str, within: Within) -> Result<(Round, u64), String> {
    let mut rounds = rounds(report, phase);
    if within == Within::Growth && rounds.len() > 1 {
        rounds.remove(0);
    }
    let figures = rounds
        .into_iter()
        .map(|round| (round, round.figure(&report.marks, within)));
    // The first of several.
    let worst = figures.reduce(|worst, next| if next.1 > worst.1 { next } else { worst });
    worst.ok_or_else(|| match began(report, phase) {
        true => format!("the phase {phase:?} began and never ended"),
        false => format!(
            "no phase {phase:?}: marks called \"{phase} begin\" and \"{phase} end\" make one (this recording has: {})",
            shown(&names(report))
        ),
    })
}

fn began(report: &Report, phase: &str) -> bool {
    let mut marks = report.marks.iter().filter_map(|mark| parsed(&mark.name));
    marks.any(|mark| mark == (phase, true))
}

/// Returns the names of all phases, in the order of their first begin.
fn names(report: &Report) -> Vec<&str> {
    let mut names = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for (name, begins) in report.marks.iter().filter_map(|mark| parsed(&mark.name)) {
        if begins && seen.insert(name) {
            names.push(name);
        }
    }
    names
}

fn shown(names: &[&str]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names[..names.len().min(8)].join(", "),
    }
}

/// Puts a budget for each phase that a pattern matches in the place of the pattern's (P3).
pub(crate) fn expanded(report: &Report, budgets: &[Budget]) -> Vec<Budget> {
    let mut all: Vec<Budget> = Vec::new();
    for budget in budgets {
        let Kind::Phase(pattern, within) = &budget.kind else {
            all.push(budget.clone());
            continue;
        };
        let before = all.len();
        if pattern.contains('*') {
            let names = names(report).into_iter();
            let matching = names
                .filter(|name| matches(pattern, name))
                .map(|name| Budget {
                    kind: Kind::Phase(name.to_owned(), *within),
                    ..budget.clone()
                });
            // What is said of a phase by its name goes before what is said of many.
            all.extend(matching.filter(|one| budgets.iter().all(|other| other.kind != one.kind)));
        }
        if all.len() == before {
            all.push(budget.clone());
        }
    }
    all
}

/// Returns the budgets that a program marked: `NAME budget FIGURE=LIMIT`, each once; the last of several counts.
///
/// # Errors
/// The mark, and what is wrong.
pub fn marked(report: &Report) -> Result<Vec<Budget>, String> {
    let mut budgets: Vec<Budget> = Vec::new();
    for mark in &report.marks {
        let Some((name, figures)) = mark.name.rsplit_once(" budget ") else {
            continue;
        };
        let said_by = format!("mark {:?}", mark.name);
        let wrong = |why: String| format!("{said_by}: {why}");
        for figure in figures.split([' ', ',']).filter(|one| !one.is_empty()) {
            let budget = of_phase(name, figure, &said_by).map_err(wrong)?;
            budgets.retain(|one| one.kind != budget.kind);
            budgets.push(budget);
        }
    }
    Ok(budgets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::report;

    /// Marks: name, live bytes, most live bytes since the one before, allocations since.
    fn with(marks: &[(&str, u64, u64, u64)]) -> Report {
        let marks = marks
            .iter()
            .map(|&(name, live, peak, allocations)| MarkRow {
                name: name.into(),
                live_usable_bytes: live,
                peak_live_usable_bytes: peak,
                allocations,
                ..MarkRow::default()
            });
        Report {
            marks: marks.collect(),
            ..report()
        }
    }

    fn value(report: &Report, phase: &str, within: Within) -> u64 {
        worst(report, phase, within).unwrap().1
    }

    #[test]
    fn figures_are_beyond_the_begin_and_marks_inside_do_not_cut_them() {
        let report = with(&[
            ("a begin", 100, 900, 5),
            ("b begin", 150, 400, 2),
            ("b end", 120, 300, 3),
            ("a end", 110, 130, 4),
        ]);
        assert_eq!(value(&report, "a", Within::Growth), 10);
        assert_eq!(value(&report, "a", Within::PeakLive), 300);
        assert_eq!(value(&report, "a", Within::Allocations), 9);
        // What shrinks has not grown.
        assert_eq!(value(&report, "b", Within::Growth), 0);
        assert_eq!(value(&report, "b", Within::PeakLive), 150);
    }

    #[test]
    fn the_worst_round_counts_and_the_first_warms_up() {
        let report = with(&[
            ("a begin", 0, 0, 0),
            ("a end", 500, 500, 9),
            ("a begin", 500, 500, 0),
            ("a end", 510, 520, 1),
            ("a begin", 510, 510, 0),
            ("a end", 530, 600, 2),
        ]);
        assert_eq!(value(&report, "a", Within::Growth), 20);
        assert_eq!(value(&report, "a", Within::Allocations), 9);
        assert_eq!(value(&report, "a", Within::PeakLive), 500);
    }

    #[test]
    fn what_never_ended_or_is_not_there_has_no_figure() {
        let report = with(&[
            ("a begin", 0, 0, 0),
            ("b begin", 0, 0, 0),
            ("b end", 1, 1, 1),
        ]);
        let why = |phase: &str| worst(&report, phase, Within::Growth).unwrap_err();
        assert!(why("a").contains("never ended"));
        assert!(
            why("c").contains("(this recording has: a, b)"),
            "{}",
            why("c")
        );
    }

    #[test]
    fn patterns_stand_for_each_phase_and_names_go_before() {
        let report = with(&[
            ("x.a begin", 0, 0, 0),
            ("x.a end", 1, 1, 1),
            ("x.b begin", 0, 0, 0),
        ]);
        let told = |budgets: &[Budget]| -> Vec<String> {
            let all = expanded(&report, budgets);
            all.iter()
                .map(|one| format!("{} {}", one.kind, one.limit))
                .collect()
        };
        let budget = |phase: &str, limit: &str| of_phase(phase, limit, "here").unwrap();
        assert_eq!(
            told(&[budget("x.*", "growth=0"), budget("x.b", "growth=9")]),
            ["phase x.a growth 0", "phase x.b growth 9"]
        );
        assert_eq!(told(&[budget("y*", "growth=0")]), ["phase y* growth 0"]);
    }

    #[test]
    fn budgets_are_read_from_marks() {
        let report = with(&[
            ("a begin", 0, 0, 0),
            ("a budget growth=4KiB peak-live=1MiB", 0, 0, 0),
            ("a budget growth=5KiB", 0, 0, 0),
        ]);
        let all = marked(&report).unwrap();
        let told: Vec<String> = all
            .iter()
            .map(|one| format!("{} {}", one.kind, one.limit))
            .collect();
        assert_eq!(told, ["phase a peak-live 1048576", "phase a growth 5120"]);
        let why = marked(&with(&[("a budget grow=1", 0, 0, 0)])).unwrap_err();
        assert!(
            why.contains("\"a budget grow=1\"") && why.contains("peak-live"),
            "{why}"
        );
        let why = marked(&with(&[("a budget growth=much", 0, 0, 0)])).unwrap_err();
        assert!(why.contains("no limit"), "{why}");
    }
}
