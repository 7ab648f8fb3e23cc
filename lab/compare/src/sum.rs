//! Summing up: cells from runs, means over programs, what got better and what got worse.
//!
//! ```text
//!   columns ─► for each measure: values by round, the reference's beside them ─► stats::cell ─► cells
//!   cells of all programs ─► geometric means (overall), distinct ones sorted (changes)
//! ```
//!
//! U1  A column that is not `measured` has no cells, and takes part in no mean.
//! U2  A mean covers only programs where both the allocator and the reference have the figure; their number is given.
//! U3  Only distinct differences are listed as changes.
//!
//! Not here: statistics (stats.rs), doubts (doubt.rs).

use crate::model::{Cell, Change, Column, Measure, Overall, Program, Run, Sure, Verdict};
use crate::stats;

/// Changes are listed only for these of the shown measures: faults and elapsed time follow from them.
const LISTED: [Measure; 6] = [
    Measure::CpuNs,
    Measure::OpNs,
    Measure::PeakBytes,
    Measure::MeanBytes,
    Measure::AfterFreeBytes,
    Measure::FinalBytes,
];

/// Fills in the cells of a program's columns; the first column is the reference's.
pub fn cells(program: &mut Program, rounds: u32, seed: u64) {
    let reference: Option<Vec<Run>> = program
        .columns
        .first()
        .filter(|column| column.verdict == Verdict::Measured)
        .map(|column| column.runs.clone());
    for (at, column) in program.columns.iter_mut().enumerate() {
        if column.verdict != Verdict::Measured {
            continue;
        }
        let measures = Measure::SHOWN.iter().chain(&Measure::AGAINST);
        // The duration of a replay tells nothing: it waits for its order, and idles if told to.
        let is_replay = program.replayed;
        column.cells = measures
            .filter(|measure| !(is_replay && **measure == Measure::ElapsedNs))
            .filter_map(|&measure| {
                let own = by_round(&column.runs, measure, rounds);
                match (at, &reference) {
                    (0, _) => stats::cell(measure, &own, None, seed),
                    (_, Some(runs)) => {
                        let theirs = by_round(runs, measure, rounds);
                        stats::cell(measure, &own, Some(&theirs), seed)
                    }
                    // There is nothing to compare with: the figure stands alone.
                    (_, None) => {
                        let nothing = vec![f64::NAN; own.len()];
                        stats::cell(measure, &own, Some(&nothing), seed)
                    }
                }
            })
            .collect();
        column.typical = typical(&column.runs);
    }
}

/// Returns a figure of each round, NaN where there is none.
fn by_round(runs: &[Run], measure: Measure, rounds: u32) -> Vec<f64> {
    let of_round = |round| {
        let run = runs.iter().find(|run| run.round == round);
        run.and_then(|run| run.figures.get(&measure).copied())
            .unwrap_or(f64::NAN)
    };
    (1..=rounds).map(of_round).collect()
}

/// Returns the run with the median peak.
fn typical(runs: &[Run]) -> Option<usize> {
    let peak = |run: &Run| run.figures.get(&Measure::PeakBytes).copied();
    let mut order: Vec<usize> = (0..runs.len())
        .filter(|at| peak(&runs[*at]).is_some())
        .collect();
    order.sort_by(|a, b| {
        let (a, b) = (peak(&runs[*a]), peak(&runs[*b]));
        a.partial_cmp(&b).unwrap_or(std::cmp::Ordering::Equal)
    });
    order.get(order.len() / 2).copied()
}

/// Returns a column's cell.
pub fn find(column: &Column, measure: Measure) -> Option<&Cell> {
    column.cells.iter().find(|cell| cell.measure == measure)
}

/// Returns the geometric means over several programs; none for a single one.
pub fn overall(programs: &[Program]) -> Vec<Overall> {
    let mut means = Vec::new();
    let Some(first) = programs.first().filter(|_| programs.len() > 1) else {
        return means;
    };
    for measure in Measure::SHOWN {
        for (at, column) in first.columns.iter().enumerate() {
            let ratios: Vec<f64> = programs
                .iter()
                .filter_map(|program| find(program.columns.get(at)?, measure)?.ratio)
                .collect();
            if let Some(ratio) = stats::geometric_mean(&ratios) {
                means.push(Overall {
                    measure,
                    allocator: column.allocator.clone(),
                    ratio,
                    programs: ratios.len(),
                });
            }
        }
    }
    means
}

/// Returns the distinct differences, the largest in percent first.
pub fn changes(programs: &[Program]) -> Vec<Change> {
    let mut changes = Vec::new();
    for program in programs {
        let Some(reference) = program.columns.first() else {
            continue;
        };
        for column in &program.columns[1..] {
            let distinct = column
                .cells
                .iter()
                .filter(|cell| cell.sure == Sure::Distinct && LISTED.contains(&cell.measure));
            for cell in distinct {
                let Some(theirs) = find(reference, cell.measure) else {
                    continue;
                };
                let difference = cell.median - theirs.median;
                changes.push(Change {
                    program: program.name.clone(),
                    allocator: column.allocator.clone(),
                    measure: cell.measure,
                    difference,
                    percent: 100.0 * difference / theirs.median,
                    better: difference < 0.0,
                });
            }
        }
    }
    changes.sort_by(|a, b| b.percent.abs().total_cmp(&a.percent.abs()));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn cells_means_and_changes_by_hand() {
        let mib = f64::from(1 << 20);
        let mut programs = vec![
            testing::program("one", &[("glibc", 100.0 * mib), ("lean", 50.0 * mib)]),
            testing::program("two", &[("glibc", 10.0 * mib), ("lean", 20.0 * mib)]),
        ];
        for program in &mut programs {
            cells(program, 5, 1);
        }
        let cell = find(&programs[0].columns[1], Measure::PeakBytes).expect("measured");
        assert_eq!((cell.ratio, cell.sure), (Some(0.5), Sure::Distinct));
        let means = overall(&programs);
        let lean = means
            .iter()
            .find(|mean| mean.allocator == "lean" && mean.measure == Measure::PeakBytes)
            .expect("a mean");
        assert!((lean.ratio - 1.0).abs() < 1e-9);
        assert_eq!(lean.programs, 2);
        assert!(overall(&programs[..1]).is_empty());
        let changes = changes(&programs);
        assert_eq!(changes.len(), 2);
        assert_eq!((changes[0].percent, changes[0].better), (100.0, false));
        assert_eq!(
            (changes[1].percent, changes[1].difference),
            (-50.0, -50.0 * mib)
        );
    }

    #[test]
    fn who_failed_has_no_cells_and_no_part_in_means() {
        let mut program = testing::program("one", &[("glibc", 10.0), ("bad", 10.0)]);
        program.columns[1].verdict = Verdict::OtherOutput { round: 2 };
        cells(&mut program, 5, 1);
        assert!(program.columns[1].cells.is_empty());
        let two = [program.clone(), program];
        assert!(overall(&two).iter().all(|mean| mean.allocator != "bad"));
    }

    #[test]
    fn without_a_reference_figures_stand_alone() {
        let mut program = testing::program("one", &[("glibc", 10.0), ("lean", 10.0)]);
        program.columns[0].verdict = Verdict::OtherOutput { round: 0 };
        cells(&mut program, 5, 1);
        let cell = find(&program.columns[1], Measure::PeakBytes).expect("measured");
        assert_eq!((cell.median, cell.ratio), (10.0, None));
    }

    #[test]
    fn the_typical_run_has_the_median_peak() {
        let mut program = testing::program("one", &[("glibc", 10.0)]);
        for (run, peak) in program.columns[0]
            .runs
            .iter_mut()
            .zip([5.0, 1.0, 3.0, 4.0, 2.0])
        {
            run.figures.insert(Measure::PeakBytes, peak);
        }
        assert_eq!(typical(&program.columns[0].runs), Some(2));
    }
}
