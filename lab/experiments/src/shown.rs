//! Figures as the posts have them, and verdicts in words.
//!
//! ```text
//!   unit, 549756338176 ─► "549,756,338,176 bytes"     ratio 0.2514 ─► "0.251"     verdict ─► "agrees", "differs: …"
//! ```
//!
//! F1  Exact counts and bytes are written out; the rest has three significant digits.
//!
//! Not here: layout (table.rs, report_page.rs).

use skinflint_view::units;

use crate::agreement::{Ours, Said, Verdict};
use crate::experiment::{Row, Rule, Unit};
use crate::outcome::Outcome;

/// Returns a value with its unit.
pub fn value(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Count => number(value),
        Unit::Bytes => format!("{} bytes", number(value)),
        Unit::Mb => format!("{} MB", three(value / 1e6)),
        Unit::Ratio => three(value),
        Unit::Share => format!("{} %", three(value * 100.0)),
        Unit::Percent => format!("{} %", three(value)),
        Unit::Ms => format!("{} ms", three(value)),
        Unit::S => format!("{} s", three(value)),
    }
}

/// Writes a whole number out, and any other with three digits.
fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 9e15 {
        let sign = if value < 0.0 { "-" } else { "" };
        return format!("{sign}{}", units::count(value.abs() as u64));
    }
    three(value)
}

/// Writes a number with three significant digits.
fn three(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let whole = value.abs().log10().floor() as i32;
    let decimals = (2 - whole).clamp(0, 6) as usize;
    if decimals == 0 {
        return number(value.round());
    }
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Returns our figure with its interval and the number of runs.
pub fn ours(row: &Row, ours: &Ours) -> String {
    let mut text = value(row.unit, ours.median);
    if let Some((low, high)) = ours.interval {
        text += &format!(" [{}, {}]", value(row.unit, low), value(row.unit, high));
    }
    text += &match (ours.is_exact, ours.runs) {
        (true, _) => ", exact".to_owned(),
        (false, 1) => ", n = 1".to_owned(),
        (false, runs) => format!(", n = {runs}"),
    };
    if ours.is_doubtful {
        text += ", busy machine";
    }
    text
}

/// Returns what it is compared with: the post's figure, or the bar.
pub fn theirs(row: &Row) -> String {
    match (row.post.is_empty(), row.value, row.rule) {
        (false, ..) => row.post.clone(),
        (true, Some(bar), Rule::AtMost) => format!("our bar: at most {}", value(row.unit, bar)),
        (true, Some(bar), Rule::AtLeast) => format!("our bar: at least {}", value(row.unit, bar)),
        (true, Some(bar), Rule::Equal | Rule::Within) => {
            format!("predicted: {}", value(row.unit, bar))
        }
        (true, ..) => "–".into(),
    }
}

/// Returns a verdict in words, with the reason where there is one.
pub fn verdict(said: &Said<'_>, outcome: Option<&Outcome>) -> String {
    let why = &said.row.why;
    match said.verdict {
        Verdict::Agrees => "agrees".into(),
        Verdict::Differs if why.is_empty() => "differs; why is not known yet".into(),
        Verdict::Differs => format!("differs: {why}"),
        Verdict::Holds => "holds".into(),
        Verdict::Missed if why.is_empty() => "missed; why is not known yet".into(),
        Verdict::Missed => format!("missed: {why}"),
        Verdict::Shown => "measured".into(),
        Verdict::NotRun => {
            let missing = outcome
                .map(|outcome| &outcome.missing[..])
                .unwrap_or_default();
            let get: Vec<String> = (missing.iter())
                .map(|one| format!("{} ({})", one.name, one.get))
                .collect();
            format!("not run: needs {}", get.join(", "))
        }
        Verdict::Failed => {
            let reason = outcome
                .map(|outcome| outcome.reason.as_str())
                .unwrap_or_default();
            format!(
                "not run: failed: {}",
                reason.chars().take(160).collect::<String>()
            )
        }
        Verdict::Unknown => "not run".into(),
    }
}

/// Returns the sentence that begins every view: how many claims agree, and how many could not be tried.
pub fn sentence(all: &[Verdict]) -> String {
    let count = |of: &[Verdict]| all.iter().filter(|one| of.contains(one)).count();
    let (agree, differ) = (count(&[Verdict::Agrees]), count(&[Verdict::Differs]));
    let (hold, miss) = (count(&[Verdict::Holds]), count(&[Verdict::Missed]));
    let not_run = count(&[Verdict::NotRun, Verdict::Failed, Verdict::Unknown]);
    let shown = count(&[Verdict::Shown]);
    format!(
        "Figures of posts and talks: {agree} of {} agree. Bars and predictions of ours: {hold} of {} hold. \
         Shown beside them: {shown}. Not run: {not_run}.",
        agree + differ,
        hold + miss
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_by_hand() {
        for (unit, of, text) in [
            (Unit::Bytes, 549_756_338_176.0, "549,756,338,176 bytes"),
            (Unit::Count, 909_062.0, "909,062"),
            (Unit::Count, -3.0, "-3"),
            (Unit::Count, 2.5, "2.5"),
            (Unit::Mb, 108_003_328.0, "108 MB"),
            (Unit::Ratio, 0.19434, "0.194"),
            (Unit::Ratio, 1.0, "1"),
            (Unit::Ratio, 2349.0, "2,349"),
            (Unit::Share, 0.953, "95.3 %"),
            (Unit::Share, 0.0, "0 %"),
            (Unit::Percent, 0.04217, "0.0422 %"),
        ] {
            assert_eq!(value(unit, of), text);
        }
    }

    #[test]
    fn the_sentence_counts_each_verdict_once() {
        let all = [
            Verdict::Agrees,
            Verdict::Agrees,
            Verdict::Differs,
            Verdict::Holds,
            Verdict::Shown,
            Verdict::NotRun,
            Verdict::Failed,
        ];
        assert_eq!(
            sentence(&all),
            "Figures of posts and talks: 2 of 3 agree. Bars and predictions of ours: 1 of 1 hold. Shown beside \
             them: 1. Not run: 2."
        );
    }
}
