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
//!
//! The format: OpenMetrics 1.0.0. Not here: HTTP.

use std::fmt::Write as _;

use crate::entry::{Kind, Units};
use crate::tree::{Node, Process};

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

/// Returns the text of all processes.
pub fn render(processes: &[Process]) -> String {
    let mut out = String::new();
    for (units, family, kind, unit, help) in FAMILIES {
        let mut samples = String::new();
        for process in processes {
            for tree in process.trees.iter().filter(|tree| tree.units == units) {
                let mut path = Vec::new();
                leaves(tree, &mut path, &process.name, family, &mut samples);
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
        out += &samples;
    }
    out += "# EOF\n";
    out
}

fn leaves<'a>(
    node: &'a Node,
    path: &mut Vec<&'a str>,
    process: &str,
    family: &str,
    out: &mut String,
) {
    path.push(&node.name);
    for kid in &node.kids {
        leaves(kid, path, process, family, out);
    }
    if node.kids.is_empty() {
        sample(node, &path.join("/"), process, family, out);
    }
    path.pop();
}

fn sample(node: &Node, path: &str, process: &str, family: &str, out: &mut String) {
    let kind = match node.kind {
        Kind::Heap => "heap",
        Kind::Nonheap => "nonheap",
        Kind::Other => "other",
    };
    let (name, pid) = name_and_pid(process);
    let suffix = match node.units {
        // A counter does not go below zero; a difference is not a counter.
        Units::Cumulative if node.amount < 0 => return,
        Units::Cumulative => "_total",
        _ => "",
    };
    let _ = write!(
        out,
        "{family}{suffix}{{process=\"{}\",pid=\"{pid}\",path=\"{}\",kind=\"{kind}\"}} ",
        escaped(name),
        escaped(path)
    );
    let _ = match node.units {
        Units::Percent => writeln!(out, "{}", node.amount as f64 / 10_000.0),
        _ => writeln!(out, "{}", node.amount),
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
