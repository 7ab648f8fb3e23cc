//! Figures and verdicts in words, the same in every output.
//!
//! ```text
//!   (PeakBytes, 1.2e7) ─► "11.4 MiB"      Cell ─► "0.92", "~0.99", "0.92?"      Verdict ─► "SIGSEGV in round 2"
//! ```
//!
//! W1  `~` before a ratio means not distinguishable from the reference; `?` after it means too few rounds to tell. A
//!     bare ratio is distinct.
//! W2  Text that comes from programs (stderr, paths) has no control characters.
//!
//! Not here: layout (table.rs, report_page.rs).

use skinflint_view::units;

use crate::model::{Allocator, Cell, Change, Column, Measure, Sure, Verdict};

/// Formats a figure with its unit.
pub fn value(measure: Measure, value: f64) -> String {
    if measure == Measure::OpNs {
        return format!("{value:.1} ns");
    }
    let positive = value.max(0.0).round() as u64;
    if measure.is_bytes() {
        units::bytes(positive)
    } else if measure.is_ns() {
        units::duration(positive)
    } else {
        units::compact(positive)
    }
}

/// Formats a difference with its sign.
pub fn difference(measure: Measure, difference: f64) -> String {
    let sign = if difference < 0.0 { '−' } else { '+' };
    format!("{sign}{}", value(measure, difference.abs()))
}

/// Formats a ratio as in the tables (W1); empty if there is none.
pub fn ratio(cell: &Cell) -> String {
    let Some(ratio) = cell.ratio else {
        return String::new();
    };
    let digits = plain_ratio(ratio);
    match cell.sure {
        Sure::Reference => String::new(),
        Sure::Distinct => digits,
        Sure::NotDistinguishable => format!("~{digits}"),
        Sure::TooFewRuns => format!("{digits}?"),
    }
}

/// Formats three digits, as far as a ratio of measured figures can have them.
pub fn plain_ratio(ratio: f64) -> String {
    if ratio >= 99.5 {
        format!("{ratio:.0}")
    } else if ratio >= 9.95 {
        format!("{ratio:.1}")
    } else {
        format!("{ratio:.2}")
    }
}

/// Formats the interval of a ratio.
pub fn interval(cell: &Cell) -> String {
    let bounds = |(low, high): (f64, f64)| format!("{low:.3} to {high:.3}");
    cell.interval.map_or(String::new(), bounds)
}

/// Returns name and version.
pub fn named(allocator: &Allocator) -> String {
    format!("{} {}", allocator.name, allocator.version)
        .trim_end()
        .to_owned()
}

/// Describes the result of a column, if it was not measured.
pub fn verdict(column: &Column) -> Option<String> {
    let round = |round: &u32| match round {
        0 => "in the check round".to_owned(),
        n => format!("in round {n}"),
    };
    let said = |text: &str| match text {
        "" => String::new(),
        text => format!("; it said: {text}"),
    };
    Some(match &column.verdict {
        Verdict::Measured => return None,
        Verdict::NoEffect { why } => format!("preload had no effect: {why}"),
        Verdict::Crashed {
            signal,
            round: n,
            said: text,
        } => format!("killed by {signal} {}{}", round(n), said(text)),
        Verdict::TimeLimit { limit_ns, round: n } => {
            let limit = units::duration(*limit_ns);
            format!("not done within {limit} {}", round(n))
        }
        Verdict::OtherStatus {
            status,
            reference,
            round: n,
            said: text,
        } => format!(
            "exit status {status} instead of {reference} {}{}",
            round(n),
            said(text)
        ),
        Verdict::OtherOutput { round: n } => {
            format!("output differs from the reference's {}", round(n))
        }
        Verdict::Failed { why } => format!("failed: {why}"),
        Verdict::NotRun => "not reached before the interruption".into(),
    })
}

/// Describes a verdict in two words, for a cell.
pub fn verdict_briefly(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Measured => String::new(),
        Verdict::NoEffect { .. } => "no effect".into(),
        Verdict::Crashed { signal, .. } => signal.clone(),
        Verdict::TimeLimit { .. } => "time limit".into(),
        Verdict::OtherStatus { status, .. } => format!("status {status}"),
        Verdict::OtherOutput { .. } => "other output".into(),
        Verdict::Failed { .. } => "failed".into(),
        Verdict::NotRun => "not run".into(),
    }
}

/// Describes a change in a sentence: `skinflint, after-free RSS: −61.2% (−40.1 MiB)`.
pub fn change(change: &Change, with_program: bool) -> String {
    let program = match with_program {
        true => format!("{}: ", change.program),
        false => String::new(),
    };
    let sign = if change.percent < 0.0 { '−' } else { '+' };
    let decimals = usize::from(change.percent.abs() < 1000.0);
    format!(
        "{program}{}, {}: {sign}{:.decimals$}% ({})",
        change.allocator,
        change.measure.title(),
        change.percent.abs(),
        difference(change.measure, change.difference)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_as_everywhere_else() {
        assert_eq!(value(Measure::PeakBytes, 1_572_864.0), "1.50 MiB");
        assert_eq!(value(Measure::CpuNs, 12_500_000.0), "12.5 ms");
        assert_eq!(value(Measure::OpNs, 23.456), "23.5 ns");
        assert_eq!(value(Measure::MinorFaults, 60_000.0), "60.0 k");
        assert_eq!(difference(Measure::PeakBytes, -1024.0), "−1.00 KiB");
        assert_eq!(plain_ratio(0.918), "0.92");
        assert_eq!(plain_ratio(123.4), "123");
    }

    #[test]
    fn how_sure_shows_in_the_ratio() {
        let mut cell = Cell {
            measure: Measure::PeakBytes,
            median: 1.0,
            lowest: 1.0,
            highest: 1.0,
            ratio: Some(0.92),
            interval: Some((0.9, 0.95)),
            sure: Sure::Distinct,
        };
        assert_eq!(ratio(&cell), "0.92");
        assert_eq!(interval(&cell), "0.900 to 0.950");
        cell.sure = Sure::NotDistinguishable;
        assert_eq!(ratio(&cell), "~0.92");
        cell.sure = Sure::TooFewRuns;
        assert_eq!(ratio(&cell), "0.92?");
        cell.ratio = None;
        assert_eq!(ratio(&cell), "");
    }
}
