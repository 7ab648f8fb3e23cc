//! The table in Markdown, and the list of experiments as text.
//!
//! ```text
//!   sentence ─► machine, versions ─► a part for each author: claim │ figure │ ours │ command │ verdict
//! ```
//!
//! M1  Everything in a cell is escaped: a pipe is no border.
//! M2  Each experiment says when, at which commit and how long it ran.
//!
//! Not here: the page (report_page.rs), figures in words (shown.rs).

use std::fmt::Write as _;

use crate::agreement::{self, Said, Verdict};
use crate::experiment::{Experiment, Table};
use crate::need::Missing;
use crate::outcome::{Outcome, State};
use crate::run::shown as as_typed;
use crate::shown;

/// An experiment, its result, and what its rows say.
#[derive(Debug)]
pub struct Part<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// Its result, if there is one.
    pub outcome: Option<&'a Outcome>,
    /// Its rows.
    pub rows: Vec<Said<'a>>,
}

/// Joins experiments with their results, in the order of the table.
pub fn parts<'a>(table: &'a Table, outcomes: &'a [Outcome]) -> Vec<Part<'a>> {
    let part = |experiment: &'a Experiment| {
        let outcome = outcomes
            .iter()
            .find(|one| one.experiment == experiment.name);
        Part {
            experiment,
            outcome,
            rows: agreement::of(experiment, outcome),
        }
    };
    table.experiments.iter().map(part).collect()
}

/// Returns all verdicts, for the first sentence.
pub fn verdicts(parts: &[Part<'_>]) -> Vec<Verdict> {
    let all = parts.iter().flat_map(|part| &part.rows);
    all.map(|said| said.verdict).collect()
}

/// Returns the authors, in the order of the table.
pub fn authors<'a>(parts: &[Part<'a>]) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    for part in parts {
        let author = part.experiment.of.as_str();
        if !all.contains(&author) {
            all.push(author);
        }
    }
    all
}

/// Returns the command that shows a row's figure, as one would type it.
pub fn command(part: &Part<'_>, said: &Said<'_>) -> String {
    let step = part.experiment.step_of(said.row);
    step.map(|step| as_typed(&step.run)).unwrap_or_default()
}

/// Returns all commands of an experiment, as one would type them.
pub fn commands(experiment: &Experiment) -> String {
    let all: Vec<String> = (experiment.steps.iter())
        .map(|step| as_typed(&step.run))
        .collect();
    all.join("\n")
}

/// Returns when, where and how long an experiment ran.
pub fn when(outcome: &Outcome) -> String {
    let busy = if outcome.machine.was_busy() {
        ", a busy machine"
    } else {
        ""
    };
    let [before, after] = outcome.machine.load;
    match outcome.state {
        State::NotRun => format!("not run, {}, commit {}", outcome.date, outcome.commit),
        _ => format!(
            "{}, commit {}, {:.0} s, load {before:.1} before and {after:.1} after{busy}",
            outcome.date, outcome.commit, outcome.seconds
        ),
    }
}

/// Returns the machine of the results, if they are all of one.
pub fn machine(parts: &[Part<'_>]) -> Option<String> {
    let mut all = parts.iter().filter_map(|part| Some(&part.outcome?.machine));
    let first = all.next()?;
    let is_same =
        all.all(|one| (&one.cpu, one.cpus, &one.kernel) == (&first.cpu, first.cpus, &first.kernel));
    is_same.then(|| {
        format!(
            "{} × {}, {}, Linux {}",
            first.cpus,
            first.cpu,
            skinflint_view::units::bytes(first.memory_bytes),
            first.kernel
        )
    })
}

/// Renders the table.
pub fn markdown(parts: &[Part<'_>]) -> String {
    let mut out = String::from("# Claims, and what our commands show\n\n");
    let _ = writeln!(
        out,
        "{} `skinflint lab report` writes this file; `skinflint lab run NAME` repeats an experiment. An interval in square \
         brackets is where one more run would lie, 19 times in 20.\n",
        shown::sentence(&verdicts(parts))
    );
    if let Some(machine) = machine(parts) {
        let _ = writeln!(out, "Machine: {machine}.\n");
    }
    for author in authors(parts) {
        let _ = writeln!(out, "## {author}\n");
        for part in parts.iter().filter(|part| part.experiment.of == author) {
            experiment(&mut out, part);
        }
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn experiment(out: &mut String, part: &Part<'_>) {
    let experiment = part.experiment;
    let _ = writeln!(out, "### {}\n", experiment.name);
    let _ = writeln!(out, "{} {}\n", experiment.source, experiment.about);
    match part.outcome {
        Some(outcome) => {
            let versions: Vec<String> = (outcome.versions.iter())
                .map(|(name, version)| format!("{name}: {version}"))
                .collect();
            let versions = match versions.is_empty() {
                true => String::new(),
                false => format!("; {}", versions.join("; ")),
            };
            let _ = writeln!(
                out,
                "`skinflint lab run {}`: {}{versions}.\n",
                experiment.name,
                when(outcome)
            );
        }
        None => {
            let _ = writeln!(
                out,
                "`skinflint lab run {}`: there is no result.\n",
                experiment.name
            );
        }
    }
    let times = match experiment.runs {
        1 => String::new(),
        runs => format!("# {runs} times\n"),
    };
    let _ = writeln!(out, "```sh\n{times}{}\n```\n", commands(experiment));
    out.push_str("| claim | the figure | ours | command | verdict |\n|---|---|---|---|---|\n");
    for said in &part.rows {
        let ours = said.ours.as_ref().map(|ours| shown::ours(said.row, ours));
        let _ = writeln!(
            out,
            "| {} | {} | {} | `{}` | {} |",
            cell(&said.row.claim),
            cell(&shown::theirs(said.row)),
            cell(&ours.unwrap_or_else(|| "–".into())),
            cell(&command(part, said)),
            cell(&shown::verdict(said, part.outcome)),
        );
    }
    out.push('\n');
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '`'], " ")
}

/// Renders the list of experiments, with what each would need here.
pub fn list(table: &Table, missing: &dyn Fn(&Experiment) -> Vec<Missing>) -> String {
    let width = table
        .experiments
        .iter()
        .map(|one| one.name.len())
        .max()
        .unwrap_or(0);
    let mut out = String::new();
    for one in &table.experiments {
        let quick = if one.quick { "quick" } else { "" };
        let missing: Vec<String> = (missing(one).into_iter())
            .map(|need| format!("{} ({})", need.name, need.get))
            .collect();
        let needs = match missing.is_empty() {
            true => String::new(),
            false => format!("\n{:width$}  needs {}", "", missing.join(", ")),
        };
        let _ = writeln!(
            out,
            "{:width$}  {:>5} min {quick:5}  {}: {}\n{:width$}  {}{needs}",
            one.name, one.minutes, one.of, one.source, "", one.about
        );
    }
    let quick: Vec<&Experiment> = table.experiments.iter().filter(|one| one.quick).collect();
    let minutes = |of: &[&Experiment]| of.iter().map(|one| one.minutes).sum::<f64>();
    let all: Vec<&Experiment> = table.experiments.iter().collect();
    let _ = writeln!(
        out,
        "\n{} experiments, {:.0} minutes in all; {} quick ones, {:.0} minutes. Builds of the first time are not counted.",
        all.len(),
        minutes(&all),
        quick.len(),
        minutes(&quick).ceil()
    );
    out
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::experiment;
    use crate::outcome::Figure;

    #[test]
    fn each_claim_is_in_the_table_with_its_verdict() {
        let table =
            experiment::table(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).expect("sound");
        let growth = table
            .experiments
            .iter()
            .find(|one| one.name == "growth")
            .expect("there");
        let mut outcome = Outcome::begun("growth", String::new(), "abc".into());
        outcome.state = State::Ran;
        outcome.figures = (growth.rows.iter())
            .map(|row| Figure {
                claim: row.claim.clone(),
                values: vec![row.value.unwrap_or(0.0)],
            })
            .collect();
        let outcomes = [outcome];
        let parts = parts(&table, &outcomes);
        let text = markdown(&parts);
        assert!(text.contains("| 549,756,338,176 bytes, exact |"), "{text}");
        assert!(text.contains("| agrees |"), "{text}");
        for one in &table.experiments {
            assert!(text.contains(&format!("### {}\n", one.name)));
            let rows = one.rows.iter().all(|row| text.contains(&cell(&row.claim)));
            assert!(rows, "{}", one.name);
        }
        let unknown = verdicts(&parts)
            .iter()
            .filter(|one| **one == Verdict::Unknown)
            .count();
        assert_eq!(unknown, verdicts(&parts).len() - growth.rows.len());
        assert!(
            !text.contains("{work}") && !text.contains("{root}"),
            "{text}"
        );
    }

    #[test]
    fn the_list_names_what_is_missing_and_sums_the_minutes() {
        let table =
            experiment::table(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).expect("sound");
        let missing = |_: &Experiment| {
            vec![Missing {
                name: "valgrind".into(),
                get: "get it".into(),
            }]
        };
        let text = list(&table, &missing);
        assert!(text.contains("needs valgrind (get it)"), "{text}");
        assert!(text.contains("quick ones, "), "{text}");
    }
}
