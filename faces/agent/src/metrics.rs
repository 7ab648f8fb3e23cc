//! OpenMetrics of the agent itself, and of the books of the processes.
//!
//! ```text
//!   skinflint_agent_…                                        the agent: processes, closings, what is lost, its own cost
//!   skinflint_memory_bytes{process,pid,path="books/slop"}    the processes, with a bound on their series (openmetrics.O5)
//! ```
//!
//! Not here: HTTP (`serve`).

use std::fmt::Write as _;

use skinflint_reporters::openmetrics::Series;
use skinflint_reporters::tree::trees;
use skinflint_reporters::{Entry, Kind, Units};

use crate::books::TYPES;
use crate::watch::Board;

/// A family of metrics: name, whether it only grows, its meaning, and for each set of labels its value.
pub struct Family {
    /// The name, without what all of ours begin with.
    pub name: &'static str,
    /// Whether it only grows.
    pub grows: bool,
    /// A sentence.
    pub help: &'static str,
    /// Labels in braces, or nothing, and the value.
    pub of: Vec<(String, f64)>,
}

/// Returns the families of the agent itself.
fn own(board: &Board) -> Vec<Family> {
    let stat = skinflint_procfs::stat(std::process::id()).unwrap_or_default();
    let memory = skinflint_procfs::status::memory(std::process::id()).unwrap_or_default();
    let silent = board
        .processes
        .values()
        .filter(|one| !one.failure.is_empty());
    let figures = [
        (
            "processes",
            false,
            "Processes that keep a profile.",
            board.processes.len() as f64,
        ),
        (
            "processes_silent",
            false,
            "Those of them that did not answer when they were last asked.",
            silent.count() as f64,
        ),
        (
            "processes_beyond",
            false,
            "Processes that are not watched, for there are too many.",
            board.beyond as f64,
        ),
        (
            "rounds",
            true,
            "Rounds over all processes.",
            board.rounds as f64,
        ),
        (
            "closings",
            true,
            "Books that were closed.",
            board.closings as f64,
        ),
        (
            "failures",
            true,
            "Tries that a process did not answer.",
            board.failures as f64,
        ),
        (
            "unclosed",
            true,
            "Processes that ended after their last closing.",
            board.unclosed as f64,
        ),
        (
            "met_running",
            true,
            "Processes that ran before this agent: what they asked for until its first closing is in no difference.",
            board.met_running as f64,
        ),
        ("requests", true, "Requests by HTTP.", board.requests as f64),
        (
            "cpu_seconds",
            true,
            "Processor time of the agent.",
            stat.own_ticks() as f64 / 100.0,
        ),
        (
            "resident_bytes",
            false,
            "Resident memory of the agent.",
            memory.rss_bytes() as f64,
        ),
    ];
    figures
        .map(|(name, grows, help, value)| Family {
            name,
            grows,
            help,
            of: vec![(String::new(), value)],
        })
        .into()
}

/// Returns the text: the agent's figures, then the processes' books.
pub fn render(board: &Board, more: Vec<Family>, series: &mut Series) -> String {
    let mut out = String::new();
    for Family {
        name,
        grows,
        help,
        of,
    } in own(board).into_iter().chain(more)
    {
        let (kind, total) = if grows {
            ("counter", "_total")
        } else {
            ("gauge", "")
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "# TYPE skinflint_agent_{name} {kind}\n# HELP skinflint_agent_{name} {help}"
        );
        for (labels, value) in of {
            let _ = writeln!(out, "skinflint_agent_{name}{total}{labels} {value}");
        }
    }
    let mut lines = Vec::new();
    for watched in board.processes.values() {
        let Some((rss, totals, sampling)) = &watched.closed else {
            continue;
        };
        let name = watched.labels.get("process").map_or("", |name| name);
        let process = format!("{name} (pid {})", watched.pid);
        for ((kind, _), amount) in TYPES.iter().zip(totals) {
            let kind = kind.trim_end_matches("_space");
            // What was asked for of all time is no part of resident memory.
            let path = if kind == "alloc" {
                "alloc".into()
            } else {
                format!("books/{kind}")
            };
            lines.push((process.clone(), path, *amount));
        }
        lines.push((process.clone(), "resident".into(), *rss));
        lines.push((process, "sampling".into(), *sampling));
    }
    let entries = lines.iter().map(|(process, path, amount)| Entry {
        process,
        path,
        kind: Kind::Other,
        units: Units::Bytes,
        amount: *amount,
        description: "",
    });
    out + &series.render(&trees(entries))
}
