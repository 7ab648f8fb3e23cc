//! Reports as OpenMetrics text, for Prometheus.
//!
//! ```text
//!   # TYPE skinflint_memory_bytes gauge
//!   skinflint_memory_bytes{process="viewer",pid="42",path="explicit/caches",kind="heap"} 5
//!   # EOF
//! ```
//!
//! O1  There is one family for each unit, and a sample for each leaf of a tree: sums in a query count nothing twice.
//! O2  No sample occurs twice: lines of one path are added up.
//! O3  A label holds any text, escaped; the text ends with `# EOF`, without which it counts as cut.
//! O4  The name and the id of a process are labels of their own: a query over restarts leaves the id out.
//! O5  There are at most so many series of each family as was said, over all times that one [`Series`] is asked, and
//!     one `(others)` more for each process and kind: the largest of the first time have series of their own, then new
//!     ones while there is room. What has none is in `(others)`, so sums stay whole. A series is never given up for
//!     another: a collector would store it as two.
//!
//! The format: OpenMetrics 1.0.0. Not here: HTTP (metrics_page.rs).

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use crate::entry::{Kind, Units};
use crate::tree::{Node, Process};

/// The path of what has no series of its own.
const OTHERS: &str = "(others)";

const FAMILIES: [(Units, &str, &str, &str, &str); 4] = [
    (
        Units::Bytes,
        "skinflint_memory_bytes",
        "gauge",
        "bytes",
        "Memory by the paths of the memory report.",
    ),
    (
        Units::Count,
        "skinflint_memory_things",
        "gauge",
        "",
        "Things that there are, by the paths of the memory report.",
    ),
    (
        Units::Cumulative,
        "skinflint_memory_events",
        "counter",
        "",
        "Events since the start of the process.",
    ),
    (
        Units::Percent,
        "skinflint_memory_ratio",
        "gauge",
        "ratio",
        "Parts of a whole, 1 being all of it.",
    ),
];

/// The series that have been shown, so that there are never more of them than was said (O5).
pub struct Series {
    most: usize,
    /// The samples of each family that have series of their own, by their labels.
    admitted: [HashSet<String>; FAMILIES.len()],
}

/// A leaf on its way to a sample.
struct Sample {
    process: usize,
    kind: Kind,
    labels: String,
    amount: i128,
}

impl Series {
    /// Creates a set without series, with room for so many of each family.
    pub fn new(most: usize) -> Series {
        Series {
            most,
            admitted: Default::default(),
        }
    }

    /// Returns the text of all processes.
    pub fn render(&mut self, processes: &[Process]) -> String {
        let mut out = String::new();
        for (at, (units, family, kind, unit, help)) in FAMILIES.into_iter().enumerate() {
            let mut samples = Vec::new();
            for (number, process) in processes.iter().enumerate() {
                for tree in process.trees.iter().filter(|tree| tree.units == units) {
                    leaves(tree, &mut Vec::new(), (number, &process.name), &mut samples);
                }
            }
            if samples.is_empty() {
                continue;
            }
            // Writing to a String cannot fail.
            let _ = writeln!(out, "# TYPE {family} {kind}");
            if !unit.is_empty() {
                let _ = writeln!(out, "# UNIT {family} {unit}");
            }
            let _ = writeln!(out, "# HELP {family} {help}");
            for sample in self.bounded(at, samples, processes) {
                write(units, family, &sample, &mut out);
            }
        }
        out += "# EOF\n";
        out
    }

    /// Returns the samples that have series of their own, and the sums of the others (O5).
    fn bounded(
        &mut self,
        family: usize,
        samples: Vec<Sample>,
        processes: &[Process],
    ) -> Vec<Sample> {
        let admitted = &mut self.admitted[family];
        let new = samples
            .iter()
            .filter(|sample| !admitted.contains(&sample.labels));
        let mut new: Vec<&Sample> = new.collect();
        new.sort_by_key(|sample| Reverse(sample.amount.unsigned_abs()));
        let room = self.most.saturating_sub(admitted.len());
        admitted.extend(
            new.into_iter()
                .take(room)
                .map(|sample| sample.labels.clone()),
        );
        let mut others: BTreeMap<(usize, u8), Sample> = BTreeMap::new();
        let mut shown = Vec::new();
        for sample in samples {
            if admitted.contains(&sample.labels) {
                shown.push(sample);
                continue;
            }
            let (process, kind) = (sample.process, sample.kind);
            let sum = others
                .entry((process, kind as u8))
                .or_insert_with(|| Sample {
                    labels: labels(&processes[process].name, OTHERS, kind),
                    amount: 0,
                    ..sample
                });
            sum.amount = sum.amount.saturating_add(sample.amount);
        }
        shown.extend(others.into_values());
        shown
    }
}

fn leaves<'a>(
    node: &'a Node,
    path: &mut Vec<&'a str>,
    (number, process): (usize, &str),
    out: &mut Vec<Sample>,
) {
    path.push(&node.name);
    for kid in &node.kids {
        leaves(kid, path, (number, process), out);
    }
    // A counter does not go below zero; a difference is not a counter.
    if node.kids.is_empty() && (node.units != Units::Cumulative || node.amount >= 0) {
        out.push(Sample {
            process: number,
            kind: node.kind,
            labels: labels(process, &path.join("/"), node.kind),
            amount: node.amount,
        });
    }
    path.pop();
}

fn labels(process: &str, path: &str, kind: Kind) -> String {
    let kind = match kind {
        Kind::Heap => "heap",
        Kind::Nonheap => "nonheap",
        Kind::Other => "other",
    };
    let (name, pid) = name_and_pid(process);
    let (name, path) = (escaped(name), escaped(path));
    format!("{{process=\"{name}\",pid=\"{pid}\",path=\"{path}\",kind=\"{kind}\"}}")
}

fn write(units: Units, family: &str, sample: &Sample, out: &mut String) {
    let Sample { labels, amount, .. } = sample;
    // Writing to a String cannot fail.
    let _ = match units {
        Units::Cumulative => writeln!(out, "{family}_total{labels} {amount}"),
        Units::Percent => writeln!(out, "{family}{labels} {}", *amount as f64 / 10_000.0),
        _ => writeln!(out, "{family}{labels} {amount}"),
    };
}

/// Returns the parts of `NAME (pid N)`; a process with another form of name has no id.
fn name_and_pid(process: &str) -> (&str, &str) {
    let parts = process.rsplit_once(" (pid ");
    let parts = parts.and_then(|(name, rest)| Some((name, rest.strip_suffix(')')?)));
    match parts {
        Some((name, pid)) if !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()) => {
            (name, pid)
        }
        _ => (process, ""),
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // Characters that drive a terminal are replaced: the text may be shown on one (`text::plain`).
            c if c.is_control() && c != '\n' => out.push('\u{fffd}'),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Entry;
    use crate::tree::trees;

    fn process(amounts: &[(&str, i64)]) -> Vec<Process> {
        let line = |(path, amount): &(&'static str, i64)| Entry {
            process: "viewer (pid 42)",
            path,
            kind: Kind::Other,
            units: Units::Bytes,
            amount: *amount,
            description: "",
        };
        let amounts: Vec<(&'static str, i64)> = amounts
            .iter()
            .map(|(path, amount)| (&*String::from(*path).leak(), *amount))
            .collect();
        trees(amounts.iter().map(line))
    }

    /// Returns path and value of each sample.
    fn samples(text: &str) -> Vec<(String, i64)> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let parts = lines.map(|line| {
            let (labels, value) = line.rsplit_once(' ').expect("a value");
            let path = labels
                .split("path=\"")
                .nth(1)
                .and_then(|rest| rest.split('"').next());
            (
                path.expect("a path").to_owned(),
                value.parse().expect("a number"),
            )
        });
        parts.collect()
    }

    #[test]
    fn series_are_few_and_their_sum_is_whole_whatever_comes() {
        let mut series = Series::new(2);
        let first = series.render(&process(&[
            ("t/a", 5),
            ("t/b", -70),
            ("t/c", 6),
            ("t/d", 1),
        ]));
        let pair = |path: &str, value| (path.to_owned(), value);
        // The largest by magnitude, a negative one among them.
        assert_eq!(
            samples(&first),
            [pair("t/b", -70), pair("t/c", 6), pair("(others)", 6)]
        );
        // Others have grown beyond them, and one is gone: its place is given to no other.
        let then = series.render(&process(&[("t/a", 5000), ("t/c", 7), ("t/e", 100)]));
        assert_eq!(samples(&then), [pair("t/c", 7), pair("(others)", 5100)]);
        let back = series.render(&process(&[("t/b", 1)]));
        assert_eq!(samples(&back), [pair("t/b", 1)]);
    }

    #[test]
    fn a_thousand_tenants_over_time_are_no_more_series() {
        let mut series = Series::new(10);
        let mut seen = HashSet::new();
        for round in 0..100 {
            let lines: Vec<(String, i64)> = (0..20)
                .map(|at| (format!("tenants/{}", round * 20 + at), at + 1))
                .collect();
            let lines: Vec<(&str, i64)> = lines
                .iter()
                .map(|(path, amount)| (path.as_str(), *amount))
                .collect();
            let found = samples(&series.render(&process(&lines)));
            assert_eq!(found.iter().map(|(_, value)| value).sum::<i64>(), 210);
            seen.extend(found.into_iter().map(|(path, _)| path));
        }
        assert_eq!(seen.len(), 11);
    }
}
