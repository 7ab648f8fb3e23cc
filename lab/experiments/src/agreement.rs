//! What a figure says to a claim: the median of its runs, the interval in which one more run would lie, and the verdict.
//!
//! ```text
//!   values of n runs ─► median, mean ± t s √(1 + 1/n) ─┐
//!   the post's figure, the rule ───────────────────────┴─► agrees │ differs, why │ not run: what to install
//! ```
//!
//! A1  The interval is a prediction: with 95 % one more run lies in it, if runs are alike and about normal. It is no narrower than half a per cent
//!     either way, which is what pages and moments come to by themselves.
//! A2  One run has no interval. A figure that is the same whenever it is counted has none either: it is exact.
//! A3  Agreement is between the median and the post's figure, by the row's rule. A bar of ours "holds" or "is missed".
//! A4  What did not run is never agreement, nor is what failed.
//!
//! Source: the prediction interval is Student's, for one further observation.
//!
//! Not here: words and pages (table.rs, report_page.rs).

use skinflint_compare::stats;

use crate::experiment::{Experiment, Kind, Row, Rule};
use crate::outcome::{Outcome, State};

/// The narrowest interval, as a part of the median to either side (A1).
const NARROWEST: f64 = 0.005;
/// Student's t for 95 % by degrees of freedom, from 1 on.
const STUDENT: [f64; 10] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
];
/// The same for more of them.
const MANY: f64 = 2.1;

/// What a row says.
#[derive(Clone, Debug)]
pub struct Said<'a> {
    /// The row.
    pub row: &'a Row,
    /// Ours; `None` if there is no figure.
    pub ours: Option<Ours>,
    /// The verdict.
    pub verdict: Verdict,
}

/// Our figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ours {
    /// The median of the runs.
    pub median: f64,
    /// Where one more run would lie.
    pub interval: Option<(f64, f64)>,
    /// Runs, or rounds of the command's own.
    pub runs: u32,
    /// Whether it is the same in each run.
    pub is_exact: bool,
    /// Whether it is a time, and the machine was busy.
    pub is_doubtful: bool,
}

/// A verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As the post says.
    Agrees,
    /// Not as the post says.
    Differs,
    /// A bar of ours holds.
    Holds,
    /// It does not.
    Missed,
    /// There is nothing to compare with.
    Shown,
    /// Something has to be installed.
    NotRun,
    /// A command failed.
    Failed,
    /// There is no result of it.
    Unknown,
}

/// Returns what each row of an experiment says.
pub fn of<'a>(experiment: &'a Experiment, outcome: Option<&Outcome>) -> Vec<Said<'a>> {
    let said = |row: &'a Row| {
        let (ours, verdict) = one(row, outcome);
        Said { row, ours, verdict }
    };
    experiment.rows.iter().map(said).collect()
}

fn one(row: &Row, outcome: Option<&Outcome>) -> (Option<Ours>, Verdict) {
    let Some(outcome) = outcome else {
        return (None, Verdict::Unknown);
    };
    match outcome.state {
        State::NotRun => return (None, Verdict::NotRun),
        State::Failed => return (None, Verdict::Failed),
        State::Ran => {}
    }
    let values = outcome.figure(&row.claim).map(|figure| &figure.values[..]);
    let ours = values.and_then(|values| ours(row, values, outcome));
    (
        ours,
        ours.map_or(Verdict::Unknown, |ours| verdict(row, ours.median)),
    )
}

fn ours(row: &Row, values: &[f64], outcome: &Outcome) -> Option<Ours> {
    Some(Ours {
        median: stats::median(values)?,
        interval: interval(row.kind, values),
        runs: row.rounds.max(values.len() as u32),
        is_exact: row.kind == Kind::Exact,
        is_doubtful: row.kind == Kind::Time && outcome.machine.was_busy(),
    })
}

/// Returns the interval in which one more run would lie (A1, A2).
pub fn interval(kind: Kind, values: &[f64]) -> Option<(f64, f64)> {
    if kind == Kind::Exact || values.len() < 2 {
        return None;
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let square = values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>();
    let deviation = (square / (n - 1.0)).sqrt();
    let student = STUDENT.get(values.len() - 2).copied().unwrap_or(MANY);
    let half = (student * deviation * (1.0 + 1.0 / n).sqrt()).max(NARROWEST * mean.abs());
    Some((mean - half, mean + half))
}

fn verdict(row: &Row, ours: f64) -> Verdict {
    let Some(value) = row.value.filter(|_| row.rule != Rule::Shown) else {
        return Verdict::Shown;
    };
    let is_so = match row.rule {
        Rule::Shown => true,
        Rule::Equal => ours == value,
        Rule::Within => (ours - value).abs() <= row.part * value.abs(),
        Rule::AtLeast => ours >= value,
        Rule::AtMost => ours <= value,
    };
    match (row.post.is_empty(), is_so) {
        (false, true) => Verdict::Agrees,
        (false, false) => Verdict::Differs,
        (true, true) => Verdict::Holds,
        (true, false) => Verdict::Missed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Figure;

    fn row(rest: &str) -> Row {
        toml::from_str(&format!("claim = 'c'\nfrom = 'o'\ntake = 'a'\n{rest}")).expect("a row")
    }

    fn outcome(state: State, values: &[f64]) -> Outcome {
        let mut outcome = Outcome::begun("a", String::new(), String::new());
        outcome.state = state;
        outcome.machine.cpus = 2;
        outcome.figures.push(Figure {
            claim: "c".into(),
            values: values.to_vec(),
        });
        outcome
    }

    #[test]
    fn rules_by_hand() {
        let of = |rest: &str, ours: f64| one(&row(rest), Some(&outcome(State::Ran, &[ours]))).1;
        let post = "post = 'p'\nvalue = 100\n";
        assert_eq!(of(&format!("{post}rule = 'equal'"), 100.0), Verdict::Agrees);
        assert_eq!(
            of(&format!("{post}rule = 'equal'"), 100.5),
            Verdict::Differs
        );
        let within = format!("{post}rule = 'within'\npart = 0.1");
        assert_eq!(of(&within, 110.0), Verdict::Agrees);
        assert_eq!(of(&within, 111.0), Verdict::Differs);
        assert_eq!(of("value = 3\nrule = 'at-most'", 3.0), Verdict::Holds);
        assert_eq!(of("value = 3\nrule = 'at-most'", 3.1), Verdict::Missed);
        assert_eq!(of("value = 3\nrule = 'at-least'", 2.9), Verdict::Missed);
        assert_eq!(of("", 7.0), Verdict::Shown);
    }

    #[test]
    fn what_did_not_run_never_agrees() {
        let row = row("post = 'p'\nvalue = 1\nrule = 'equal'");
        let of = |outcome: Option<&Outcome>| one(&row, outcome);
        assert_eq!(of(None), (None, Verdict::Unknown));
        assert_eq!(
            of(Some(&outcome(State::NotRun, &[1.0]))),
            (None, Verdict::NotRun)
        );
        assert_eq!(
            of(Some(&outcome(State::Failed, &[1.0]))),
            (None, Verdict::Failed)
        );
        assert_eq!(
            of(Some(&outcome(State::Ran, &[]))),
            (None, Verdict::Unknown)
        );
    }

    #[test]
    fn intervals_by_hand() {
        // Of 9, 10, 11: s = 1, t(2) = 4.303, √(4/3) = 1.1547: 10 ± 4.969.
        let (low, high) = interval(Kind::Memory, &[9.0, 10.0, 11.0]).expect("three");
        assert!(
            (low - 5.031).abs() < 1e-3 && (high - 14.969).abs() < 1e-3,
            "{low} {high}"
        );
        assert_eq!(interval(Kind::Memory, &[100.0, 100.0]), Some((99.5, 100.5)));
        assert_eq!(interval(Kind::Memory, &[100.0]), None);
        assert_eq!(interval(Kind::Exact, &[1.0, 1.0]), None);
    }

    #[test]
    fn a_time_on_a_busy_machine_is_doubtful_and_memory_is_not() {
        let mut busy = outcome(State::Ran, &[1.0]);
        busy.machine.load = [3.0, 3.0];
        let doubtful = |rest: &str| {
            one(&row(rest), Some(&busy))
                .0
                .expect("a figure")
                .is_doubtful
        };
        assert!(doubtful("kind = 'time'"));
        assert!(!doubtful("kind = 'memory'"));
    }
}
