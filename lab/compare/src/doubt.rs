//! Doubts: reasons in the measurement itself for not believing it.
//!
//! ```text
//!   runs ─► few? short? sampler late? outliers? swapped? busy machine? clock drifting? other work? ─► sentences
//! ```
//!
//! B1  A doubt names what it is about (program, allocator), the figure that raised it, and what to do.
//! B2  One sentence for each kind and program, however many runs it is about: a list of a hundred is not read.
//! B3  No figure is removed because of a doubt.
//!
//! Not here: intervals (stats.rs).

use skinflint_view::units;

use crate::model::{Column, Comparison, Measure, Program, Run, Verdict};
use crate::stats;

/// The part of the time in late gaps above which the sampler was late.
const LATE: f64 = 0.1;
/// The number of samples below which memory figures rest on little.
const FEW_SAMPLES: u64 = 20;
/// The part of the processors above which other programs made the machine busy.
const BUSY: f64 = 0.5;
/// The number of calls below which it is doubtful that the program uses this malloc at all.
const FEW_CALLS: u64 = 100;
/// The relative change of the clock, or of the reference's CPU time, between first and last rounds.
const DRIFT: f64 = 0.05;
/// The relative difference in counted calls.
const OTHER_WORK: f64 = 0.1;

/// Returns all doubts, the most general first.
pub fn doubts(comparison: &Comparison) -> Vec<String> {
    let mut found = Vec::new();
    let runs = comparison.settings.runs as usize;
    if runs < stats::ENOUGH {
        found.push(format!(
            "{} only: no interval can be given and nothing is called distinct; use --runs {} or more",
            units::plural(runs as u64, "round"),
            stats::ENOUGH
        ));
    }
    if comparison.interrupted {
        found.push("interrupted: only what was measured until then is shown".into());
    }
    let settings = &comparison.settings;
    let is_hasty = settings.paced.is_none() && settings.idle_s.is_none();
    if is_hasty && comparison.programs.iter().any(|program| program.replayed) {
        found.push(
            "replayed as fast as it goes: what an allocator gives back with time is not seen; use --paced 1, or --idle 5"
                .into(),
        );
    }
    found.extend(busy(comparison));
    found.extend(clock(comparison));
    for program in &comparison.programs {
        found.extend(of_program(program));
    }
    found
}

fn all_runs(program: &Program) -> impl Iterator<Item = (&Column, &Run)> {
    let columns = program.columns.iter();
    columns.flat_map(|column| column.runs.iter().map(move |run| (column, run)))
}

fn busy(comparison: &Comparison) -> Option<String> {
    let cpus = comparison.machine.cpus.max(1) as f64;
    let runs = comparison.programs.iter().flat_map(all_runs);
    let loads: Vec<f64> = runs.filter_map(|(_, run)| run.load).collect();
    // The load of the first runs is the machine's without us; later ones include our own.
    let before = *loads.first()?;
    (before > BUSY * cpus).then(|| {
        format!(
            "the machine was busy: load {before:.1} on {cpus} processors before the first round; \
             times are doubtful, memory hardly"
        )
    })
}

/// Reports whether the processor's clock, or other use of it, changed between the first and the last rounds.
fn clock(comparison: &Comparison) -> Option<String> {
    let mut times: Vec<(u32, f64)> = Vec::new();
    for (_, run) in comparison.programs.iter().flat_map(all_runs) {
        if run.calibration_ns > 0 {
            times.push((run.round, run.calibration_ns as f64));
        }
    }
    let change = drift(&times)?;
    (change.abs() > DRIFT).then(|| {
        format!(
            "the processor's speed drifted: a fixed piece of arithmetic took {:+.0}% in the last rounds against the \
             first; fix the clock (performance governor) or use more rounds",
            change * 100.0
        )
    })
}

/// Returns the relative change of the median from the first third of the rounds to the last; `None` below three
/// rounds.
fn drift(values: &[(u32, f64)]) -> Option<f64> {
    let last = values.iter().map(|(round, _)| *round).max()?;
    let third = (last / 3).max(1);
    if last < 3 {
        return None;
    }
    let of = |from: u32, to: u32| {
        let inside = values
            .iter()
            .filter(|(round, _)| (from..=to).contains(round));
        stats::median(&inside.map(|(_, value)| *value).collect::<Vec<_>>())
    };
    let (first, last) = (of(1, third)?, of(last - third + 1, last)?);
    (first > 0.0).then(|| last / first - 1.0)
}

fn of_program(program: &Program) -> Vec<String> {
    let mut found = Vec::new();
    let name = &program.name;
    if !program.replayed {
        found.extend(sampler(program));
        found.extend(short_peaks(program));
    }
    found.extend(outliers(program));
    let swapped = all_runs(program).map(|(_, run)| run.swapped_bytes).max();
    if let Some(bytes) = swapped.filter(|bytes| *bytes > 0) {
        found.push(format!(
            "{name}: up to {} were swapped out and are missing from resident memory; free memory first",
            units::bytes(bytes)
        ));
    }
    let left = all_runs(program).map(|(_, run)| run.left).max();
    if let Some(left) = left.filter(|left| *left > 0) {
        found.push(format!(
            "{name}: it left {} running, which were ended; what they would have used is not counted",
            units::plural(u64::from(left), "process").replace("processs", "processes")
        ));
    }
    found.extend(reference_drift(program));
    found.extend(calls(program));
    found
}

fn sampler(program: &Program) -> Vec<String> {
    let mut found = Vec::new();
    let measured = || all_runs(program).filter(|(_, run)| run.samples > 0);
    let count = measured().count();
    let late: Vec<&Run> = measured()
        .map(|(_, run)| run)
        .filter(|run| run.late_share > LATE)
        .collect();
    if !late.is_empty() {
        let worst = late.iter().map(|run| run.worst_gap_ms).fold(0.0, f64::max);
        found.push(format!(
            "{}: the sampler was late in {} of {count} runs (longest gap {worst:.0} ms): short peaks may be missing",
            program.name,
            late.len()
        ));
    }
    let none = all_runs(program)
        .filter(|(_, run)| run.samples == 0)
        .count();
    if none > 0 {
        found.push(format!(
            "{}: {} ended before their memory could be looked at; give the program more to do",
            program.name,
            units::plural(none as u64, "run")
        ));
    }
    let few = measured()
        .filter(|(_, run)| run.samples < FEW_SAMPLES)
        .count();
    if few > 0 {
        found.push(format!(
            "{}: {few} of {count} runs gave fewer than {FEW_SAMPLES} samples: mean and after-free RSS rest on little; \
             give the program more to do",
            program.name
        ));
    }
    found
}

/// Reports runs whose peak is the kernel's mark because the samples missed it by far.
fn short_peaks(program: &Program) -> Option<String> {
    let missed = all_runs(program)
        .filter(|(_, run)| {
            let sampled = run.curve.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
            run.high_water_bytes
                .is_some_and(|mark| mark as f64 > sampled as f64 * 1.05)
        })
        .count();
    (missed > 0).then(|| {
        format!(
            "{}: in {missed} runs the peak was too short for the sampler; it is the kernel's high-water mark, mean and \
             curve do not show it",
            program.name
        )
    })
}

fn outliers(program: &Program) -> Option<String> {
    let mut about = Vec::new();
    for column in &program.columns {
        for measure in [Measure::CpuNs, Measure::OpNs, Measure::PeakBytes] {
            let values: Vec<f64> = column
                .runs
                .iter()
                .filter_map(|run| run.figures.get(&measure).copied())
                .collect();
            let far = stats::outliers(&values).len();
            if far > 0 {
                about.push(format!(
                    "{} ({}, {far} of {})",
                    column.allocator,
                    measure.title(),
                    values.len()
                ));
            }
        }
    }
    const NAMED: usize = 3;
    let more = about.len().saturating_sub(NAMED);
    about.truncate(NAMED);
    if more > 0 {
        about.push(format!("and {}", units::plural(more as u64, "more figure")));
    }
    (!about.is_empty()).then(|| {
        format!(
            "{}: rounds far from the others: {}; medians bear them, means would not",
            program.name,
            about.join(", ")
        )
    })
}

fn reference_drift(program: &Program) -> Option<String> {
    let reference = program.columns.first()?;
    let cpu = |run: &Run| Some((run.round, *run.figures.get(&Measure::CpuNs)?));
    let values: Vec<(u32, f64)> = reference.runs.iter().filter_map(cpu).collect();
    let change = drift(&values)?;
    // Below ten milliseconds the start of a process dominates.
    let is_long = values.iter().all(|(_, ns)| *ns > 1e7);
    (is_long && change.abs() > 2.0 * DRIFT).then(|| {
        format!(
            "{}: {} itself took {:+.0}% CPU time in the last rounds against the first",
            program.name,
            reference.allocator,
            change * 100.0
        )
    })
}

/// Reports few calls, or numbers of calls that differ from those under the reference.
fn calls(program: &Program) -> Vec<String> {
    let mut found = Vec::new();
    let counted = |column: &Column| column.check.as_ref().map(|check| check.calls);
    let is_measured = |column: &&Column| column.verdict == Verdict::Measured;
    let columns = || program.columns.iter().filter(is_measured);
    if let Some(few) = columns()
        .filter_map(counted)
        .min()
        .filter(|c| *c < FEW_CALLS)
    {
        found.push(format!(
            "{}: only {} counted: it may have an allocator inside, and these figures be those of that one",
            program.name,
            units::plural(few, "call")
        ));
    }
    let Some(usual) = program.columns.first().and_then(counted) else {
        return found;
    };
    let other: Vec<String> = columns()
        .filter_map(|column| {
            let calls = counted(column)?;
            let differs = calls.abs_diff(usual) as f64 > OTHER_WORK * usual as f64;
            differs.then(|| format!("{} {}", column.allocator, units::count(calls)))
        })
        .collect();
    if !other.is_empty() && usual >= FEW_CALLS {
        found.push(format!(
            "{}: not the same work: {} calls under the reference, but {}",
            program.name,
            units::count(usual),
            other.join(", ")
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn said(change: impl Fn(&mut Comparison)) -> Vec<String> {
        let program = testing::program("app", &[("glibc", 1e8), ("lean", 5e7)]);
        let mut comparison = testing::comparison(vec![program]);
        comparison.machine.cpus = 2;
        change(&mut comparison);
        doubts(&comparison)
    }

    #[track_caller]
    fn one(change: impl Fn(&mut Comparison), expected: &str) {
        let found = said(change);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(expected), "{found:?}");
    }

    fn lean(comparison: &mut Comparison) -> &mut Column {
        &mut comparison.programs[0].columns[1]
    }

    #[test]
    fn a_good_measurement_raises_no_doubt() {
        assert_eq!(said(|_| ()), [""; 0]);
    }

    #[test]
    fn each_doubt_by_itself() {
        one(|c| c.settings.runs = 3, "3 rounds only");
        one(|c| c.interrupted = true, "interrupted");
        one(|c| c.programs[0].replayed = true, "--paced 1");
        one(|c| lean(c).runs[2].late_share = 0.2, "late in 1 of 10 runs");
        one(|c| lean(c).runs[2].samples = 3, "fewer than 20 samples");
        one(|c| lean(c).runs[2].samples = 0, "1 run ended before");
        one(|c| lean(c).runs[0].swapped_bytes = 4096, "swapped out");
        one(|c| lean(c).runs[0].left = 2, "left 2 processes");
        one(|c| lean(c).runs[0].left = 1, "left 1 process running");
        one(
            |c| lean(c).runs[0].high_water_bytes = Some(60_000_000),
            "high-water mark",
        );
        one(
            |c| {
                lean(c).runs[4].figures.insert(Measure::PeakBytes, 9e7);
            },
            "lean (peak RSS, 1 of 5)",
        );
        one(
            |c| c.programs[0].columns[0].runs[0].load = Some(1.5),
            "the machine was busy: load 1.5",
        );
        one(
            |c| lean(c).check.as_mut().expect("checked").calls = 2000,
            "not the same work",
        );
        one(
            |c| {
                for column in &mut c.programs[0].columns {
                    column.check.as_mut().expect("checked").calls = 7;
                }
            },
            "only 7 calls",
        );
    }

    #[test]
    fn drifts_are_seen_between_first_and_last_rounds() {
        let slower = |c: &mut Comparison| {
            for column in &mut c.programs[0].columns {
                for run in &mut column.runs {
                    run.calibration_ns = if run.round < 4 { 1000 } else { 1200 };
                }
            }
        };
        one(slower, "+20%");
        let reference = |c: &mut Comparison| {
            for run in &mut c.programs[0].columns[0].runs {
                let ns = 1e9 + f64::from(run.round) * 6e7;
                run.figures.insert(Measure::CpuNs, ns);
            }
        };
        one(reference, "glibc itself took +23% CPU time");
        assert_eq!(drift(&[(1, 1.0), (2, 2.0)]), None);
    }
}
