//! The verdict as text for a terminal.
//!
//! ```text
//!   BROKEN  app  pid 7 · complete: 30 events
//!     broken       peak-live    1,000 B of 900 B allowed: 100 B more
//!                  600 B  at load (src/load.c:12) ← main (src/main.c:3)
//! ```
//!
//! T1  Names, figures and advice are never cut away; long lines are the reader's terminal's to wrap.
//! T2  What the program chose (names, marks) has no control characters.

use std::fmt::Write;

pub(crate) use skinflint_view::clean as plain;
use skinflint_view::units::{percent, plural};

use crate::budget::{Kind, PLAIN};
use crate::culprits::Culprit;
use crate::figures::Range;
use crate::judge::{Checked, Judged, Verdict};

/// Returns the verdict as text.
pub fn render(checked: &Checked) -> String {
    let mut out = String::new();
    let verdict = checked.answer().to_uppercase();
    let _ = writeln!(out, "{verdict}  {}", head(checked));
    if let Some(failed) = &checked.failed {
        let _ = writeln!(out, "  {}", plain(failed));
    }
    for note in &checked.notes {
        let _ = writeln!(out, "  missing: {}", plain(note));
    }
    if let Some(baseline) = &checked.baseline {
        let _ = writeln!(out, "  baseline: {}", plain(baseline));
    }
    for (name, figure) in unasked(checked) {
        let _ = writeln!(out, "  {name:<16} {figure}");
    }
    for one in &checked.budgets {
        let _ = writeln!(
            out,
            "  {:<12} {}  {}",
            one.verdict.shown(),
            plain(&one.name),
            summary(one)
        );
        for culprit in &one.culprits.largest {
            let _ = writeln!(out, "      {}", plain(&blame(one, culprit)));
        }
        if let Some(others) = others(one) {
            let _ = writeln!(out, "      {others}");
        }
    }
    out
}

/// Returns the figures, in words, of a check that had no budget; else none, as budgets have theirs.
pub(crate) fn unasked(checked: &Checked) -> Vec<(String, String)> {
    if !checked.budgets.is_empty() {
        return Vec::new();
    }
    let known = PLAIN.iter().filter_map(|kind| {
        let name = kind.to_string();
        let figure = checked.figures.get(&name)?;
        Some((name, of_kind(kind, *figure)))
    });
    known.collect()
}

/// Describes the recording in a line.
pub(crate) fn head(checked: &Checked) -> String {
    let events = plural(checked.events, "event");
    let complete = match checked.complete {
        true => format!("complete: {events}"),
        false => format!("INCOMPLETE: {events} read"),
    };
    format!(
        "{}  pid {} · ended: {} · {complete}",
        plain(&checked.program),
        checked.pid,
        plain(&checked.ended)
    )
}

/// Describes what became of a budget in a sentence, without its name.
pub(crate) fn summary(one: &Judged) -> String {
    let Some(figure) = one.figure else {
        return plain(one.why.as_deref().unwrap_or_default());
    };
    let mut text = shown(one, figure);
    if let Some(allowed) = one.allowed {
        let _ = write!(text, " of {} allowed", shown(one, allowed));
        if let Some(before) = one.baseline.filter(|_| one.limit.starts_with(['+', '-'])) {
            let _ = write!(text, " ({} of {})", one.limit, shown(one, before));
        }
        if one.verdict == Verdict::Broken {
            let over = figure.low.saturating_sub(allowed.high);
            let _ = write!(text, ": {} more", one.kind.shown(over));
            if allowed.high > 0 {
                let _ = write!(text, " ({})", percent(over, allowed.high));
            }
        }
    }
    if let Some(why) = &one.why {
        let _ = write!(text, "; {}", plain(why));
    }
    text
}

fn shown(one: &Judged, range: Range) -> String {
    of_kind(&one.kind, range)
}

/// Returns a figure as text: one value, or the interval.
fn of_kind(kind: &Kind, range: Range) -> String {
    match range.is_exact() {
        true => kind.shown(range.low),
        false => format!("{} to {}", kind.shown(range.low), kind.shown(range.high)),
    }
}

/// Describes a stack and what it has of the figure.
pub(crate) fn blame(one: &Judged, culprit: &Culprit) -> String {
    let mut text = match culprit.before {
        None => one.kind.shown(culprit.value),
        Some(before) => format!(
            "+{} (from {} to {})",
            one.kind.shown(culprit.weight()),
            one.kind.shown(before),
            one.kind.shown(culprit.value)
        ),
    };
    let _ = write!(text, "  by {}", culprit.function);
    if let (Some(file), Some(line)) = (&culprit.file, culprit.line) {
        let _ = write!(text, " ({file}:{line})");
    }
    // What lies within it is told before what calls it.
    let begins = culprit
        .frames
        .first()
        .filter(|first| first.starts_with(&culprit.function));
    match begins {
        Some(first) if culprit.line.is_none() => {
            let _ = write!(text, "{}", &first[culprit.function.len()..]);
        }
        Some(_) => {}
        None => {
            let _ = write!(text, ": {}", culprit.frames.join(" ← "));
        }
    }
    if begins.is_some() {
        for frame in &culprit.frames[1..] {
            let _ = write!(text, " ← {frame}");
        }
    }
    if culprit.stacks > 1 {
        let _ = write!(text, " and {}", plural(culprit.stacks - 1, "other stack"));
    }
    text
}

/// Sums up the stacks that are not listed.
pub(crate) fn others(one: &Judged) -> Option<String> {
    let rest = &one.culprits;
    (rest.other_stacks > 0).then(|| {
        format!(
            "{}  by {}",
            one.kind.shown(rest.other_weight),
            plural(rest.other_stacks, "other")
        )
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::figures::tests::report;
    use crate::judge::tests::budget;
    use crate::judge::{Subject, check};

    /// A verdict with a held budget, a broken one and one that is not decided.
    pub(crate) fn checked() -> Checked {
        let mut report = report();
        report.frames[1].function = "load<a|b> & \"c\"\n%".into();
        let subject = Subject {
            report: &report,
            trace: "app.sft",
        };
        let budgets = [
            budget(Kind::Allocations, "17"),
            budget(Kind::PeakLive, "900"),
            budget(Kind::PeakRss, "9MiB"),
        ];
        check(subject, None, &budgets)
    }

    #[test]
    fn a_screen_by_hand() {
        let text = render(&checked());
        let expected = "BROKEN  app  pid 0 · ended: exit 0 · complete: 30 events\n  \
            held         allocations  17 of 17 allowed\n  \
            broken       peak-live  1000 B of 900 B allowed: 100 B more (11.1%)\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("600 B  by load"), "{text}");
        assert!(
            text.contains("% (src/load.c:12) ← main (src/main.c:12)\n"),
            "{text}"
        );
        assert!(
            text.contains("by main (src/main.c:12): parse (app) ← main"),
            "{text}"
        );
        assert!(
            text.contains("  not decided  peak-rss  8.00 MiB to 10.8 MiB of 9.00 MiB allowed; "),
            "{text}"
        );
        assert!(!text.contains('\r') && text.lines().all(|line| !line.contains('\u{1b}')));
    }

    #[test]
    fn without_a_budget_there_are_figures_and_no_verdict() {
        let report = report();
        let subject = Subject {
            report: &report,
            trace: "app.sft",
        };
        let mut checked = check(subject, None, &[]);
        let text = render(&checked);
        assert!(text.starts_with("NO BUDGET  app  pid 0"), "{text}");
        let figures = "\n  peak-live        1000 B\n  peak-blocks      9\n";
        assert!(text.contains(figures), "{text}");
        assert!(
            text.contains("  peak-rss         8.00 MiB to 10.8 MiB\n"),
            "{text}"
        );
        assert!(text.contains("  allocations      17\n"), "{text}");
        let markdown = crate::markdown(&checked);
        assert!(
            markdown.contains("\n| figure | |\n|---|---|\n| peak-live | 1000 B |\n"),
            "{markdown}"
        );
        let json = serde_json::to_value(&checked).unwrap();
        assert!(json["verdict"].is_null(), "{json}");
        // That the program failed is said all the same.
        checked.failed = Some("app failed (status 9)".into());
        assert!(render(&checked).starts_with("FAILED  app"));
    }

    #[test]
    fn of_a_program_that_failed_no_format_says_that_it_is_held() {
        let report = report();
        let subject = Subject {
            report: &report,
            trace: "app.sft",
        };
        let mut checked = check(subject, None, &[budget(Kind::Allocations, "17")]);
        assert!(render(&checked).starts_with("HELD  app"));
        checked.failed = Some("app failed (status 9)".into());
        let text = render(&checked);
        assert!(
            text.starts_with("FAILED  app") && text.contains("\n  app failed (status 9)\n"),
            "{text}"
        );
        let markdown = crate::markdown(&checked);
        assert!(markdown.starts_with("### Memory: failed\n"), "{markdown}");
        let github = crate::github(&checked);
        assert!(
            github.starts_with("::error title=the program failed::app failed (status 9)\n"),
            "{github}"
        );
        let junit = crate::junit(&checked);
        assert!(
            junit.contains("tests=\"2\" failures=\"0\" errors=\"1\""),
            "{junit}"
        );
        assert!(
            junit.contains("<error type=\"failed\" message=\"app failed (status 9)\"/>"),
            "{junit}"
        );
        let sarif = crate::sarif(&checked);
        assert!(sarif.contains("app failed (status 9)"), "{sarif}");
        // What broke is said first.
        let mut broken = check(subject, None, &[budget(Kind::Allocations, "16")]);
        broken.failed = checked.failed;
        assert!(render(&broken).starts_with("BROKEN  app"));
    }

    #[test]
    fn an_incomplete_recording_says_what_is_missing() {
        let mut report = report();
        report.completeness.complete = false;
        report.completeness.notes = vec!["3 events were lost.".into()];
        let subject = Subject {
            report: &report,
            trace: "t",
        };
        let text = render(&check(subject, None, &[budget(Kind::PeakLive, "1GiB")]));
        assert!(
            text.starts_with("NOT DECIDED") && text.contains("INCOMPLETE: 30 events read"),
            "{text}"
        );
        assert!(text.contains("missing: 3 events were lost."), "{text}");
    }
}
