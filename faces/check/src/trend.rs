//! Trends: the steps in a history, and the history as text.
//!
//! ```text
//!   figures of builds ─► median of up to five before │ after ─► more than 1 % and three times the noise ─► Step
//! ```
//!
//! D1  A figure of an interval counts by its middle; a step inside the interval is none.
//! D2  Noise is the median distance between neighbours: a series that jumps to and fro has no step of that size.
//! D3  Entries that are INCOMPLETE, or of a program that failed, are left out and counted.
//!
//! Where the idea comes from: the checkpoints of Are We Slim Yet, compared build by build.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::budget::{Kind, PLAIN};
use crate::history::Entry;
use crate::text::plain;

/// The builds on each side of a step that are looked at.
const BESIDE: usize = 5;
/// The least step, in thousandths of the level before.
const LEAST_THOUSANDTHS: u64 = 10;
/// The least step, in medians of the distance between neighbours.
const LEAST_NOISE: u64 = 3;

/// A step in a series.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The index of the first build at the new level.
    pub at: usize,
    /// The level before.
    pub before: u64,
    /// The level from then on.
    pub after: u64,
}

/// Finds the steps of a series; `spread` is the half width of its figures' intervals.
pub fn steps(series: &[u64], spread: u64) -> Vec<Step> {
    let mut found: Vec<Step> = Vec::new();
    let noise = noise(series);
    let mut from = 0;
    for at in 1..series.len() {
        let Some(step) = step_at(series, from, at) else {
            continue;
        };
        let size = step.before.abs_diff(step.after);
        let least = (step.before / 1000 * LEAST_THOUSANDTHS)
            .max(step.before * LEAST_THOUSANDTHS / 1000)
            .max(noise.saturating_mul(LEAST_NOISE))
            .max(2 * spread);
        if size == 0 || size < least {
            continue;
        }
        // The medians see a step some builds before it; it lies where the series itself jumps.
        let jump = series[at - 1].abs_diff(series[at]);
        if jump * 2 < size {
            continue;
        }
        found.push(step);
        from = at;
    }
    found
}

fn step_at(series: &[u64], from: usize, at: usize) -> Option<Step> {
    let before = median(&series[at.saturating_sub(BESIDE).max(from)..at])?;
    let after = median(&series[at..series.len().min(at + BESIDE)])?;
    Some(Step { at, before, after })
}

/// Returns the median distance between neighbours (D2).
fn noise(series: &[u64]) -> u64 {
    let distances: Vec<u64> = series
        .windows(2)
        .map(|pair| pair[0].abs_diff(pair[1]))
        .collect();
    // Of one or two distances, the step itself would be the noise.
    match distances.len() {
        0..=3 => 0,
        _ => median(&distances).unwrap_or(0),
    }
}

fn median(values: &[u64]) -> Option<u64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

/// A figure of a program over its builds.
pub(crate) struct Series<'a> {
    /// The figure's name.
    pub name: &'a str,
    /// What it counts.
    pub kind: Kind,
    /// The builds that count (D3).
    entries: Vec<&'a Entry>,
    /// Its value in each of them.
    pub values: Vec<u64>,
    /// The half width of the widest interval.
    spread: u64,
}

impl Series<'_> {
    /// Returns the steps.
    pub fn steps(&self) -> Vec<Step> {
        steps(&self.values, self.spread)
    }

    /// Returns what a build is called.
    pub fn label(&self, at: usize) -> &str {
        &self.entries[at].label
    }
}

/// Returns the programs of a history, each with its entries.
pub(crate) fn programs(entries: &[Entry]) -> Vec<(&str, Vec<&Entry>)> {
    let names: BTreeSet<&str> = entries.iter().map(|one| &one.program[..]).collect();
    let of = |name| entries.iter().filter(|one| one.program == name).collect();
    names.into_iter().map(|name| (name, of(name))).collect()
}

/// Returns how many checks there are, from which to which, and what is left out.
pub(crate) fn summary(own: &[&Entry]) -> String {
    let builds = skinflint_view::units::plural(own.len() as u64, "check");
    let (first, last) = (&own[0].label, &own[own.len() - 1].label);
    let mut text = format!("{builds}, {} to {}", named(first), named(last));
    let failed = own.iter().filter(|one| one.failed).count();
    let cut = own.iter().filter(|one| !one.failed && !one.complete);
    for (why, count) in [("FAILED", failed), ("INCOMPLETE", cut.count())] {
        if count > 0 {
            let _ = write!(text, "\n  {count} {why}, left out");
        }
    }
    text
}

/// Returns the figures of a program's entries, in the order of budgets.
pub(crate) fn series<'a>(own: &[&'a Entry]) -> Vec<Series<'a>> {
    let names: BTreeSet<&'a String> = own.iter().flat_map(|one| one.figures.keys()).collect();
    let mut names: Vec<&String> = names.into_iter().collect();
    names.sort_by_key(|name| (order(name), *name));
    let all = names.into_iter().map(|name| one_series(own, name));
    all.filter(|series| !series.values.is_empty()).collect()
}

fn one_series<'a>(own: &[&'a Entry], name: &'a str) -> Series<'a> {
    let plain_kind = PLAIN.iter().find(|kind| kind.name() == name);
    let mut series = Series {
        name,
        kind: plain_kind.cloned().unwrap_or(Kind::Stack(String::new())),
        entries: Vec::new(),
        values: Vec::new(),
        spread: 0,
    };
    for entry in own.iter().filter(|one| one.complete && !one.failed) {
        if let Some(range) = entry.figures.get(name) {
            let spread = range.high.saturating_sub(range.low) / 2;
            series.entries.push(entry);
            series.values.push(range.low + spread);
            series.spread = series.spread.max(spread);
        }
    }
    series
}

/// Tells a step: by how much, at which build, from what to what.
pub(crate) fn told(series: &Series<'_>, step: &Step) -> String {
    let sign = if step.after < step.before { '-' } else { '+' };
    let size = step.before.abs_diff(step.after);
    format!(
        "{sign}{} at {}: {} to {}",
        skinflint_view::units::percent(size, step.before),
        named(series.label(step.at)),
        series.kind.shown(step.before),
        series.kind.shown(step.after)
    )
}

/// Draws a history: a line for each figure of each program, and its steps.
pub fn render(entries: &[Entry], unread: usize, width: usize) -> String {
    let mut out = String::new();
    if unread > 0 {
        let lines = skinflint_view::units::plural(unread as u64, "line");
        let _ = writeln!(out, "{lines} could not be read and are left out.");
    }
    for (program, own) in programs(entries) {
        let _ = writeln!(out, "{}: {}", plain(program), summary(&own));
        for series in series(&own) {
            let values = &series.values;
            let _ = writeln!(
                out,
                "  {:<16} {}  {} … {}",
                plain(series.name),
                sparks(values, width.saturating_sub(48).max(10)),
                series.kind.shown(values[0]),
                series.kind.shown(values[values.len() - 1])
            );
            for step in series.steps() {
                let _ = writeln!(out, "      {}", told(&series, &step));
            }
        }
    }
    out
}

/// Returns the place of a figure in the order of budgets.
fn order(name: &str) -> usize {
    let place = PLAIN.iter().position(|kind| kind.name() == name);
    place.unwrap_or(PLAIN.len())
}

/// Returns what a build is called.
pub(crate) fn named(label: &str) -> String {
    match label.is_empty() {
        true => "(no label)".into(),
        false => plain(label),
    }
}

/// Draws the last of a series, `width` at most, from its least to its most.
fn sparks(series: &[u64], width: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = &series[series.len().saturating_sub(width)..];
    let least = shown.iter().copied().min().unwrap_or(0);
    let most = shown.iter().copied().max().unwrap_or(0);
    let bar = |value: &u64| {
        let height = u128::from(*value - least) * 7;
        let part = height.checked_div(u128::from(most - least)).unwrap_or(0);
        BARS[part as usize]
    };
    shown.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Range;

    /// No step.
    const NONE: [usize; 0] = [];

    fn places(series: &[u64], spread: u64) -> Vec<usize> {
        steps(series, spread).iter().map(|one| one.at).collect()
    }

    #[test]
    fn a_planted_step_is_found_where_it_is() {
        for at in 1..20 {
            let series: Vec<u64> = (0..20)
                .map(|build| if build < at { 100_000 } else { 105_000 })
                .collect();
            let found = steps(&series, 0);
            let step = Step {
                at,
                before: 100_000,
                after: 105_000,
            };
            assert_eq!(found, [step], "planted at {at}");
        }
    }

    #[test]
    fn a_step_among_noise_is_found_and_noise_is_none() {
        // A tenth of a per cent to and fro, the same in every run.
        let noisy = |build: u64| 100_000 + build * 7919 % 100;
        let flat: Vec<u64> = (0..30).map(noisy).collect();
        assert_eq!(places(&flat, 0), NONE);
        let stepped: Vec<u64> = (0..30)
            .map(|build| noisy(build) * if build < 17 { 100 } else { 105 } / 100)
            .collect();
        assert_eq!(places(&stepped, 0), [17]);
        let wild: Vec<u64> = (0..30).map(|build| 100_000 + build % 2 * 8_000).collect();
        assert_eq!(places(&wild, 0), NONE);
    }

    #[test]
    fn steps_up_and_down_are_two() {
        let series = [10_000, 10_000, 10_500, 10_500, 10_500, 10_000, 10_000];
        assert_eq!(places(&series, 0), [2, 5]);
    }

    #[test]
    fn short_series_and_intervals() {
        assert_eq!(places(&[], 0), NONE);
        assert_eq!(places(&[5], 0), NONE);
        assert_eq!(places(&[1000, 1050], 0), [1]);
        assert_eq!(places(&[1000, 1009], 0), NONE);
        // The figures are not known to this (D1).
        assert_eq!(places(&[1000, 1050], 40), NONE);
        assert_eq!(places(&[0, 0, 7, 7], 0), [2]);
    }

    #[test]
    fn a_history_is_drawn_with_its_step() {
        let entry = |build: u64, value: u64, complete: bool| Entry {
            schema: 1,
            label: format!("b{build}"),
            program: "app".into(),
            complete,
            figures: [("peak-live".to_owned(), Range::exact(value))].into(),
            ..Entry::default()
        };
        let mut entries: Vec<Entry> = (0..10)
            .map(|build| entry(build, if build < 6 { 100 << 20 } else { 105 << 20 }, true))
            .collect();
        entries.push(entry(10, 1, false));
        // It held next to nothing before it failed.
        entries.push(Entry {
            failed: true,
            ..entry(11, 1, true)
        });
        let text = render(&entries, 1, 80);
        assert!(text.starts_with("1 line could not be read"), "{text}");
        assert!(
            text.contains(
                "app: 12 checks, b0 to b11\n  1 FAILED, left out\n  1 INCOMPLETE, left out\n"
            ),
            "{text}"
        );
        assert!(text.contains("▁▁▁▁▁▁████  100 MiB … 105 MiB"), "{text}");
        assert!(text.contains("+5.0% at b6: 100 MiB to 105 MiB"), "{text}");
    }
}
