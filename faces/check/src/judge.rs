//! The judge: figures against limits.
//!
//! ```text
//!   limit of the baseline's low ──── limit of its high
//!        │ held: high of the figure ≤ here │ broken: low of the figure > here │ between: not decided
//! ```

use serde::Serialize;
use skinflint_analysis::model::Report;

use crate::budget::{Budget, Kind, PLAIN, Within};
use crate::culprits::{Culprits, culprits};
use crate::figures::{Range, figure};
use crate::phase;

/// A recording to judge.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// Its report, as of the end, with all pins; with windows if growth or a phase is a budget.
    pub report: &'a Report,
    /// The name of its trace.
    pub trace: &'a str,
}

/// What became of a budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The figure is within the limit.
    Held,
    /// The figure is beyond the limit.
    Broken,
    /// The evidence does not tell.
    Undecided,
}

impl Verdict {
    /// Returns it in words.
    pub fn shown(self) -> &'static str {
        match self {
            Verdict::Held => "held",
            Verdict::Broken => "broken",
            Verdict::Undecided => "not decided",
        }
    }
}

/// A budget, judged.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Judged {
    /// Its name: `peak-live`, `stack load_*`.
    pub name: String,
    /// The figure's meaning.
    pub meaning: &'static str,
    /// Where it was said.
    pub said_by: String,
    /// The limit as it was written.
    pub limit: String,
    /// The figure; `null` if it is not known.
    pub figure: Option<Range>,
    /// The baseline's figure.
    pub baseline: Option<Range>,
    /// The most that is allowed.
    pub allowed: Option<Range>,
    /// What became of it.
    pub verdict: Verdict,
    /// Why it is not decided.
    pub why: Option<String>,
    /// The stacks that broke it; empty if it was held.
    pub culprits: Culprits,
    /// The budget.
    #[serde(skip)]
    pub kind: Kind,
}

/// All budgets, judged.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Checked {
    /// Version of these fields.
    pub schema: u32,
    /// The program's name.
    pub program: String,
    /// Its process id.
    pub pid: u32,
    /// The name of its trace.
    pub trace: String,
    /// How it ended.
    pub ended: String,
    /// Its start, nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// Whether nothing is missing from the recording.
    pub complete: bool,
    /// Events read.
    pub events: u64,
    /// What is missing, one sentence each.
    pub notes: Vec<String>,
    /// The name of the baseline's trace.
    pub baseline: Option<String>,
    /// The verdict on all budgets: broken if one is, else not decided if one is. `null` if there was none: then nothing was
    /// judged.
    pub verdict: Option<Verdict>,
    /// Why the program itself failed, if it did: then nothing is held, whatever the budgets' verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// The budgets: a file's in the order of its lines, then those of the command line by kind.
    pub budgets: Vec<Judged>,
    /// All figures that are known, budgets or not, for a history.
    pub figures: std::collections::BTreeMap<String, Range>,
}

impl Checked {
    /// Returns the answer to all that was asked: of a program that failed nothing is held.
    pub(crate) fn answer(&self) -> &'static str {
        match (self.verdict, &self.failed) {
            (Some(Verdict::Broken), _) => Verdict::Broken.shown(),
            (_, Some(_)) => "failed",
            (Some(verdict), None) => verdict.shown(),
            (None, None) => "no budget",
        }
    }
}

/// Judges budgets.
pub fn check(subject: Subject<'_>, baseline: Option<Subject<'_>>, budgets: &[Budget]) -> Checked {
    let report = subject.report;
    let budgets = &phase::expanded(report, budgets)[..];
    let judged: Vec<Judged> = budgets
        .iter()
        .map(|budget| judge(report, baseline.map(|one| one.report), budget))
        .collect();
    let any = |verdict| judged.iter().any(|one| one.verdict == verdict);
    let verdict = match (any(Verdict::Broken), any(Verdict::Undecided)) {
        (true, _) => Some(Verdict::Broken),
        (_, true) => Some(Verdict::Undecided),
        // Nothing was asked: nothing is held, and nothing is open.
        _ if judged.is_empty() => None,
        _ => Some(Verdict::Held),
    };
    let mut figures = std::collections::BTreeMap::new();
    let asked = budgets.iter().map(|budget| &budget.kind);
    for kind in PLAIN.iter().chain(asked) {
        if let Ok(range) = figure(report, kind) {
            figures.insert(kind.to_string(), range);
        }
    }
    Checked {
        schema: 1,
        program: report.program.name.clone(),
        pid: report.program.pid,
        trace: subject.trace.to_owned(),
        ended: report.program.ended.clone(),
        started_unix_ns: report.program.started_unix_ns,
        complete: report.completeness.complete,
        events: report.completeness.events,
        notes: match report.completeness.complete {
            true => Vec::new(),
            false => report.completeness.notes.clone(),
        },
        baseline: baseline.map(|one| one.trace.to_owned()),
        verdict,
        failed: None,
        budgets: judged,
        figures,
    }
}

fn judge(report: &Report, baseline: Option<&Report>, budget: &Budget) -> Judged {
    let kind = &budget.kind;
    let found = figure(report, kind);
    let before = baseline.map(|baseline| figure(baseline, kind));
    let known_before = before.clone().and_then(Result::ok);
    let allowed = match (budget.limit.is_relative(), known_before) {
        (false, _) => Some(Range::exact(budget.limit.of(0))),
        (true, Some(before)) => Some(Range {
            low: budget.limit.of(before.low),
            high: budget.limit.of(before.high),
        }),
        (true, None) => None,
    };
    let (verdict, why) = match (&found, allowed) {
        (Err(why), _) => (Verdict::Undecided, Some(why.clone())),
        (_, None) => {
            let why = match before {
                Some(Err(why)) => format!("the baseline has no such figure: {why}"),
                _ => "the limit is of a baseline, and there is none".into(),
            };
            (Verdict::Undecided, Some(why))
        }
        (Ok(figure), Some(allowed)) => compared(*figure, allowed, kind),
    };
    let (verdict, why) = doubted(report, baseline, budget, verdict, why);
    let blamed = match verdict {
        Verdict::Held => Culprits::default(),
        _ if found.is_err() => Culprits::default(),
        _ => {
            let grown = baseline.map(|baseline| culprits(report, Some(baseline), kind));
            // A limit may be broken though no stack grew.
            grown
                .filter(|grown| !grown.largest.is_empty())
                .unwrap_or_else(|| culprits(report, None, kind))
        }
    };
    Judged {
        name: kind.to_string(),
        meaning: kind.meaning(),
        said_by: budget.said_by.clone(),
        limit: budget.limit.shown(kind.is_bytes()),
        figure: found.ok(),
        baseline: known_before,
        allowed,
        verdict,
        why,
        culprits: blamed,
        kind: kind.clone(),
    }
}

/// Compares a figure with what is allowed (check.K1).
fn compared(figure: Range, allowed: Range, kind: &Kind) -> (Verdict, Option<String>) {
    if figure.high <= allowed.low {
        return (Verdict::Held, None);
    }
    if figure.low > allowed.high {
        return (Verdict::Broken, None);
    }
    let limit = match allowed.is_exact() {
        true => kind.shown(allowed.low),
        false => format!(
            "{} to {}, as the baseline's figure is an interval, too,",
            kind.shown(allowed.low),
            kind.shown(allowed.high)
        ),
    };
    let why = format!(
        "the limit of {limit} lies within the reading's error, {} to {}; allow more than {} or less than {}, or take \
         peak-live, which is exact",
        kind.shown(figure.low),
        kind.shown(figure.high),
        kind.shown(figure.high),
        kind.shown(figure.low),
    );
    (Verdict::Undecided, Some(why))
}

/// Takes back what an INCOMPLETE recording cannot tell (check.K2).
fn doubted(
    report: &Report,
    baseline: Option<&Report>,
    budget: &Budget,
    verdict: Verdict,
    why: Option<String>,
) -> (Verdict, Option<String>) {
    let only_grows = matches!(
        budget.kind,
        Kind::Allocations | Kind::PeakRss | Kind::Phase(_, Within::Allocations)
    );
    let complete = report.completeness.complete;
    let kept = verdict == Verdict::Broken && only_grows;
    if !complete && verdict != Verdict::Undecided && !kept {
        let why = "the recording is INCOMPLETE: what is missing may change the figure".to_owned();
        return (Verdict::Undecided, Some(why));
    }
    let is_of = budget.limit.is_relative();
    let doubtful = is_of && baseline.is_some_and(|baseline| !baseline.completeness.complete);
    if doubtful && verdict != Verdict::Undecided {
        let why = "the baseline is INCOMPLETE: record it again".to_owned();
        return (Verdict::Undecided, Some(why));
    }
    (verdict, why)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::figures::tests::report;
    use crate::limit::Limit;

    pub(crate) fn budget(kind: Kind, limit: &str) -> Budget {
        Budget {
            said_by: format!("--{}", kind.name()),
            kind,
            limit: Limit::parse(limit).unwrap(),
        }
    }

    fn verdict(report: &Report, baseline: Option<&Report>, kind: Kind, limit: &str) -> Judged {
        let subject = |report| Subject { report, trace: "t" };
        let all = [budget(kind, limit)];
        let mut checked = check(subject(report), baseline.map(subject), &all);
        checked.budgets.remove(0)
    }

    #[test]
    fn the_limit_itself_is_allowed_and_one_more_is_not() {
        let report = report();
        let all = [
            (Kind::PeakLive, 1000),
            (Kind::PeakBlocks, 9),
            (Kind::PeakSlop, 50),
            (Kind::LiveAtEnd, 150),
            (Kind::BlocksAtEnd, 3),
            (Kind::SlopAtEnd, 10),
            (Kind::PinnedAtEnd, 4000),
            (Kind::Allocations, 17),
            (Kind::Stack("load".into()), 600),
            (Kind::GrowthPer("round".into()), 26),
        ];
        for (kind, value) in all {
            let held = verdict(&report, None, kind.clone(), &value.to_string());
            assert_eq!(held.verdict, Verdict::Held, "{held:?}");
            assert!(held.culprits.largest.is_empty());
            let broken = verdict(&report, None, kind, &(value - 1).to_string());
            assert_eq!(broken.verdict, Verdict::Broken, "{broken:?}");
        }
    }

    #[test]
    fn a_limit_within_the_error_is_not_decided() {
        let report = report();
        let told = |limit: &str| verdict(&report, None, Kind::PeakRss, limit);
        assert_eq!(told("11MiB").verdict, Verdict::Held);
        assert_eq!(told("7MiB").verdict, Verdict::Broken);
        assert!(!told("7MiB").culprits.largest.is_empty());
        let open = told("9MiB");
        assert_eq!(open.verdict, Verdict::Undecided);
        let why = open.why.unwrap();
        assert!(
            why.contains("8.00 MiB to 10.8 MiB") && why.contains("9.00 MiB"),
            "{why}"
        );
        // The ends of the interval: the least is broken only if it is above.
        assert_eq!(told("8MiB").verdict, Verdict::Undecided);
        assert_eq!(told("11008KiB").verdict, Verdict::Held);
        assert_eq!(told("11007KiB").verdict, Verdict::Undecided);
    }

    #[test]
    fn limits_of_a_baseline() {
        let (now, mut before) = (report(), report());
        before.instants[2].live_usable_bytes = 950;
        before.sites[0].heap_peak_usable_bytes = 550;
        let told = |limit: &str| verdict(&now, Some(&before), Kind::PeakLive, limit);
        assert_eq!(told("+50").verdict, Verdict::Held);
        assert_eq!(told("+6%").verdict, Verdict::Held);
        let broken = told("+5%");
        assert_eq!(broken.verdict, Verdict::Broken);
        assert_eq!(broken.allowed, Some(Range::exact(997)));
        assert_eq!(broken.culprits.largest[0].weight(), 50);
        let none = verdict(&now, None, Kind::PeakLive, "+5%");
        assert_eq!(none.verdict, Verdict::Undecided);
        // An interval against an interval: its limit is one, too.
        let same = verdict(&now, Some(&now.clone()), Kind::PeakRss, "+0%");
        assert_eq!(same.verdict, Verdict::Undecided);
        let far = verdict(&now, Some(&now.clone()), Kind::PeakRss, "+50%");
        assert_eq!(far.verdict, Verdict::Held);
    }

    #[test]
    fn nothing_of_an_incomplete_recording_is_held() {
        let mut report = report();
        report.completeness.complete = false;
        let told = |kind, limit: &str| verdict(&report, None, kind, limit).verdict;
        for kind in PLAIN {
            assert_eq!(told(kind, "1TiB"), Verdict::Undecided);
        }
        assert_eq!(told(Kind::Allocations, "1"), Verdict::Broken);
        assert_eq!(told(Kind::PeakRss, "1"), Verdict::Broken);
        assert_eq!(told(Kind::PeakLive, "1"), Verdict::Undecided);
    }

    #[test]
    fn an_incomplete_baseline_decides_nothing() {
        let (now, mut before) = (report(), report());
        before.completeness.complete = false;
        let told = |limit: &str| verdict(&now, Some(&before), Kind::PeakLive, limit);
        assert_eq!(told("+5%").verdict, Verdict::Undecided);
        assert!(told("+5%").why.unwrap().contains("baseline is INCOMPLETE"));
        assert_eq!(told("1000").verdict, Verdict::Held);
    }

    #[test]
    fn one_broken_budget_breaks_all_and_none_is_not_held() {
        let report = report();
        let subject = Subject {
            report: &report,
            trace: "t",
        };
        let told = |all: &[Budget]| check(subject, None, all).verdict;
        let (held, broken, open) = (
            budget(Kind::PeakLive, "1000"),
            budget(Kind::PeakLive, "999"),
            budget(Kind::PeakRss, "9MiB"),
        );
        assert_eq!(told(std::slice::from_ref(&held)), Some(Verdict::Held));
        let both = told(&[held.clone(), open.clone()]);
        assert_eq!(both, Some(Verdict::Undecided));
        assert_eq!(told(&[held, open, broken]), Some(Verdict::Broken));
        assert_eq!(told(&[]), None);
    }

    #[test]
    fn all_figures_are_kept_for_a_history() {
        let report = report();
        let subject = Subject {
            report: &report,
            trace: "t",
        };
        let checked = check(subject, None, &[budget(Kind::Stack("load".into()), "1")]);
        assert_eq!(checked.figures.len(), PLAIN.len() + 1);
        assert_eq!(checked.figures["stack load"], Range::exact(600));
    }
}
