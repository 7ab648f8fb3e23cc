//! The report of a recording: `skinflint report --json`.
//!
//! ```text
//!   sites, fragments.pins ─► stacks     books.rows ─► books     findings     program, completeness ─► process
//! ```
//!
//! J1  A report of a newer schema is refused; fields that are not known are left alone.
//! J2  A site's stack is named by its innermost frame that is not among `plumbing`.
//! J3  A finding is of the stack of its `node`; its further stacks are not listed again, so that bytes count once.
//!
//! Not here: reports on several processes, and of sampled recordings.

use std::collections::HashSet;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::seen::{Found, Held, Seen};

/// The schema of reports that is known (J1).
const SCHEMA: u64 = 1;

/// Reads a report.
///
/// # Errors
/// If it is none, or of a schema that is not known.
pub(super) fn read(bytes: &[u8]) -> Result<Seen> {
    let report: Value = serde_json::from_slice(bytes).context("a damaged report")?;
    match report["schema"].as_u64() {
        Some(SCHEMA) if report["sites"].is_array() => {}
        Some(other) if other != SCHEMA => {
            bail!("a report of schema {other}; this program knows {SCHEMA}")
        }
        _ => bail!(
            "JSON, but not what `skinflint report --json` prints of one recording of every event"
        ),
    }
    let program = &report["program"];
    let started = number(&program["started_unix_ns"]) / 1_000_000_000;
    let instant = &report["instants"][number(&report["at"]) as usize];
    let books = &instant["books"];
    let mut seen = Seen {
        program: text(&program["name"]),
        pid: number(&program["pid"]).cast_unsigned(),
        started,
        t: started,
        // Begun minutes count: a recording of seconds is one.
        minutes: number(&program["duration_ns"]) / 60_000_000_000 + 1,
        system: text(&program["system"]),
        sample_bytes: 1,
        lost: number(&report["completeness"]["lost_events"])
            + number(&report["completeness"]["unread_events"]),
        resident: number(&books["resident_bytes"]),
        books: list(&books["rows"])
            .map(|row| (text(&row["id"]), number(&row["bytes"])))
            .collect(),
        ..Seen::default()
    };
    let stacks = Stacks::new(&report, &mut seen)?;
    for site in list(&report["sites"]) {
        let live = number(&site["live_requested_bytes"]);
        let held = stacks.entry(&mut seen, &site["node"])?;
        held.samples += number(&site["allocations"]);
        held.alloc_bytes += number(&site["requested_bytes"]);
        held.alloc_blocks += number(&site["allocations"]);
        held.live_bytes += live;
        held.live_blocks += number(&site["live_blocks"]);
        held.slop += (number(&site["live_usable_bytes"]) - live).max(0);
    }
    for pins in list(&instant["fragments"]["pins"]) {
        stacks.entry(&mut seen, &pins["node"])?.pinned += number(&pins["free_bytes"]);
    }
    for finding in list(&report["findings"]) {
        let stack = match &finding["node"] {
            Value::Null => 0,
            node => crate::id::stack(&stacks.frames(node)?),
        };
        // A stack that a finding names is a row, even if it holds nothing.
        if stack != 0 {
            stacks.entry(&mut seen, &finding["node"])?;
        }
        seen.findings.push(Found {
            kind: text(&finding["kind"]),
            stack,
            title: text(&finding["title"]),
            change: text(&finding["change"]),
            confidence: text(&finding["confidence"]),
            now: number(&finding["now_bytes"]),
            saved: number(&finding["saved_bytes"]),
        });
    }
    Ok(seen)
}

/// The tree of stacks, with the ids of its frames.
struct Stacks {
    /// Parent and frame of each node.
    nodes: Vec<(usize, usize)>,
    /// The id of each frame.
    ids: Vec<i64>,
    plumbing: HashSet<usize>,
}

impl Stacks {
    fn new(report: &Value, seen: &mut Seen) -> Result<Self> {
        let ids = list(&report["frames"]).map(|frame| {
            let (file, line) = (text(&frame["file"]), number(&frame["line"]));
            seen.frame(
                &text(&frame["module"]),
                &text(&frame["function"]),
                &file,
                line,
            )
        });
        let ids: Vec<i64> = ids.collect();
        let node = |node: &Value| {
            (
                number(&node["parent"]) as usize,
                number(&node["frame"]) as usize,
            )
        };
        let nodes: Vec<(usize, usize)> = list(&report["nodes"]).map(node).collect();
        let is_tree = nodes
            .iter()
            .enumerate()
            .all(|(at, (parent, _))| *parent < at.max(1));
        if !is_tree {
            bail!("a damaged report: a stack's caller comes after it");
        }
        let plumbing = list(&report["plumbing"])
            .map(|frame| number(frame) as usize)
            .collect();
        Ok(Stacks {
            nodes,
            ids,
            plumbing,
        })
    }

    /// Returns the frames of a node as indices, innermost first.
    fn indices(&self, node: &Value) -> Result<Vec<usize>> {
        let mut at = node
            .as_u64()
            .context("a damaged report: a stack that is no number")? as usize;
        let mut indices = Vec::new();
        while at != 0 {
            let (parent, frame) = *self
                .nodes
                .get(at)
                .context("a damaged report: no such stack")?;
            indices.push(frame);
            at = parent;
        }
        Ok(indices)
    }

    fn frames(&self, node: &Value) -> Result<Vec<i64>> {
        let indices = self.indices(node)?;
        let frame = |at: usize| {
            self.ids
                .get(at)
                .copied()
                .context("a damaged report: no such frame")
        };
        indices.into_iter().map(frame).collect()
    }

    fn entry<'a>(&self, seen: &'a mut Seen, node: &Value) -> Result<&'a mut Held> {
        let indices = self.indices(node)?;
        let frames = self.frames(node)?;
        let named = indices.iter().position(|at| !self.plumbing.contains(at));
        Ok(seen.stack(&frames, named.and_then(|at| frames.get(at).copied())))
    }
}

fn number(value: &Value) -> i64 {
    match value.as_i64() {
        Some(number) => number,
        // Beyond i64: bytes that no machine has.
        None => value.as_u64().map_or(0, |_| i64::MAX),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Value {
        serde_json::json!({
            "schema": SCHEMA,
            "program": {"name": "web", "pid": 7, "started_unix_ns": 3_600_000_000_000_u64,
                        "duration_ns": 125_000_000_000_u64, "system": "Linux"},
            "completeness": {"lost_events": 2, "unread_events": 3},
            "at": 1,
            "instants": [{}, {
                "books": {"resident_bytes": 1000, "rows": [{"id": "live", "bytes": 600}, {"id": "slop", "bytes": 400}]},
                "fragments": {"pins": [{"node": 3, "free_bytes": 77}]}}],
            "sites": [
                {"node": 3, "allocations": 5, "requested_bytes": 500, "live_blocks": 2, "live_requested_bytes": 200,
                 "live_usable_bytes": 224},
                {"node": 4, "allocations": 1, "requested_bytes": 50, "live_blocks": 1, "live_requested_bytes": 50,
                 "live_usable_bytes": 50}],
            "findings": [
                {"kind": "leak", "title": "a leak", "change": "free it", "confidence": "likely", "now_bytes": 9,
                 "saved_bytes": 8, "node": 3},
                {"kind": "retained", "title": "kept", "now_bytes": 5, "saved_bytes": 4, "node": null}],
            "nodes": [{"parent": 0, "frame": 0}, {"parent": 0, "frame": 0}, {"parent": 1, "frame": 1},
                      {"parent": 2, "frame": 2}, {"parent": 2, "frame": 3}],
            "frames": [
                {"function": "main", "module": "web", "file": "m.c", "line": 1},
                {"function": "serve", "module": "web", "file": null, "line": null},
                {"function": "malloc", "module": "libc.so.6", "file": null, "line": 7},
                {"function": "malloc", "module": "libc.so.6", "file": null, "line": 9}],
            "plumbing": [2, 3],
        })
    }

    fn read_value(report: &Value) -> Result<Seen> {
        read(report.to_string().as_bytes())
    }

    #[test]
    fn every_figure_of_a_report_is_where_it_belongs() {
        let seen = read_value(&report()).unwrap();
        let (main, serve, malloc) = (
            crate::id::frame("web", "main"),
            crate::id::frame("web", "serve"),
            crate::id::frame("libc.so.6", "malloc"),
        );
        // Both sites are one stack: they differ by a line.
        let stack = crate::id::stack(&[malloc, serve, main]);
        let held = Held {
            leaf: serve,
            frames: vec![malloc, serve, main],
            samples: 6,
            alloc_bytes: 550,
            alloc_blocks: 6,
            live_bytes: 250,
            live_blocks: 3,
            variance: 0,
            slop: 24,
            pinned: 77,
        };
        assert_eq!(seen.stacks.into_iter().collect::<Vec<_>>(), [(stack, held)]);
        assert_eq!((seen.t, seen.minutes, seen.pid, seen.lost), (3600, 3, 7, 5));
        assert_eq!(
            seen.resident,
            seen.books.iter().map(|(_, bytes)| bytes).sum::<i64>()
        );
        let found: Vec<_> = seen
            .findings
            .iter()
            .map(|found| (found.kind.as_str(), found.stack, found.saved))
            .collect();
        assert_eq!(found, [("leak", stack, 8), ("retained", 0, 4)]);
    }

    #[test]
    fn what_is_no_report_is_refused_with_a_reason() {
        let mut newer = report();
        newer["schema"] = 2.into();
        let mut circle = report();
        circle["nodes"][2]["parent"] = 4.into();
        let mut beyond = report();
        beyond["sites"][0]["node"] = 99.into();
        for (wrong, said) in [
            (newer, "schema 2"),
            (circle, "caller comes after"),
            (beyond, "no such stack"),
            (serde_json::json!({"a": 1}), "JSON, but not"),
        ] {
            let error = format!("{:#}", read_value(&wrong).unwrap_err());
            assert!(error.contains(said), "{error}");
        }
        let whole = report().to_string();
        for cut in (0..whole.len()).step_by(7) {
            assert!(read(&whole.as_bytes()[..cut]).is_err(), "cut at {cut}");
        }
    }
}
