//! The contents of a snapshot, as tables for a terminal and as JSON.
//!
//! ```text
//!   FILE ─► read ─► sums by class │ dominators: retainers │ a path from the root │ differences ─► Table: text, JSON
//! ```
//!
//! T1  Every table says what its shares refer to, and what was left out of it.
//! T2  Names are data: characters that a terminal would obey are replaced.
//!
//! Not here: reading and sums (read.rs, census.rs), where it is printed (`cli`).

use std::path::Path;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use skinflint_view::{clean, units};

use crate::census::{Census, Class, Sum};
use crate::dominators::Dominators;
use crate::graph::{Graph, NONE};
use crate::read::{Snapshot, Want, read_file};

/// A table, in both forms.
pub struct Table {
    /// For a terminal.
    pub text: String,
    /// For programs.
    pub json: Value,
}

/// Returns objects and bytes by class.
///
/// # Errors
/// If the snapshot cannot be read.
pub fn sums(file: &Path, limit: usize) -> Result<Table> {
    let census = read_file(file, Want::Census)?.census;
    Ok(Table {
        text: sums_text(&census, limit),
        json: sums_json(&census),
    })
}

fn sums_text(census: &Census, limit: usize) -> String {
    let total = census.total();
    let rows = census.by_bytes();
    let mut text = format!("{:>12} {:>6} {:>12}  class\n", "bytes", "%", "objects");
    for (class, sum) in rows.iter().take(limit) {
        let share = units::percent(sum.bytes, total.bytes);
        text += &line(
            &units::bytes(sum.bytes),
            &share,
            sum.objects,
            &class.to_string(),
        );
    }
    text += &rest(limit, rows.len(), "classes");
    text += &line(
        &units::bytes(total.bytes),
        "100%",
        total.objects,
        "all; shares are of its bytes",
    );
    text
}

fn sums_json(census: &Census) -> Value {
    let row = |class: &Class, sum: &Sum| json!({"type": class.kind, "name": class.name, "objects": sum.objects, "bytes": sum.bytes});
    let rows = census.by_bytes();
    json!({
        "total": census.total(),
        "classes": rows.iter().map(|(class, sum)| row(class, sum)).collect::<Vec<_>>(),
    })
}

/// Returns the objects that alone keep most alive, and those that they are kept by.
///
/// # Errors
/// If the snapshot cannot be read.
pub fn retained(file: &Path, limit: usize) -> Result<Table> {
    let Snapshot { graph, .. } = read_file(file, Want::Graph)?;
    let dominators = Dominators::of(&graph);
    let total = graph.total_bytes();
    let nodes = dominators.largest(&graph, limit);
    let all = dominators.idom.iter().filter(|idom| **idom != NONE).count();
    let lost = graph.len() - all;
    let lost_bytes = total.saturating_sub(dominators.retained.first().copied().unwrap_or(0));
    let mut text = format!(
        "{:>12} {:>6} {:>12}  object, and what it is kept by\n",
        "retained", "%", "itself"
    );
    let mut rows = Vec::new();
    for &node in &nodes {
        let at = node as usize;
        let (kept, own) = (dominators.retained[at], graph.bytes[at]);
        let (share, by) = (units::percent(kept, total), dominators.idom[at]);
        text += &format!(
            "{:>12} {share:>6} {:>12}  {}  <- {}\n",
            units::bytes(kept),
            units::bytes(own),
            called(&graph, node),
            called(&graph, by)
        );
        let mut row = node_json(&graph, node);
        row["retained"] = json!(kept);
        row["kept_by"] = node_json(&graph, by);
        rows.push(row);
    }
    text += &rest(limit, all, "nodes");
    text += &format!(
        "Shares are of all {}. Nothing leads to {} objects of {}.\n",
        units::bytes(total),
        units::count(lost as u64),
        units::bytes(lost_bytes)
    );
    let json = json!({"total_bytes": total, "unreachable": {"objects": lost, "bytes": lost_bytes}, "objects": rows});
    Ok(Table { text, json })
}

/// Returns the shortest way from the root to an object: `@ID`, `CLASS` (the first) or `CLASS:N`.
///
/// # Errors
/// If the snapshot cannot be read, or has no such object.
pub fn path(file: &Path, wanted: &str) -> Result<Table> {
    /// The number of steps that are printed at either end of a long path.
    const ENDS: usize = 50;
    let Snapshot { graph, .. } = read_file(file, Want::Graph)?;
    let node = object(&graph, file, wanted)?;
    let Some(steps) = graph.path(&graph.parents(), node) else {
        let text = format!(
            "{}: nothing leads to it; it is garbage that no collection has found\n",
            called(&graph, node)
        );
        return Ok(Table {
            text,
            json: json!({"object": node_json(&graph, node), "path": null}),
        });
    };
    let mut text = String::new();
    for (place, step) in steps.iter().enumerate() {
        let hidden = steps.len().saturating_sub(2 * ENDS);
        if hidden > 0 && place == ENDS {
            text += &format!("  … {} more …\n", units::count(hidden as u64));
        }
        if hidden > 0 && (ENDS..ENDS + hidden).contains(&place) {
            continue;
        }
        let edge = clean(&step.edge);
        let name = called(&graph, step.node);
        text += &format!("{edge:>24}  {name}\n");
    }
    let rows = steps.iter().map(|step| {
        let mut row = node_json(&graph, step.node);
        row["edge"] = json!(step.edge);
        row
    });
    let rows: Vec<Value> = rows.collect();
    Ok(Table {
        text,
        json: json!({"object": node_json(&graph, node), "path": rows}),
    })
}

/// Describes what a list leaves out (T1).
pub(crate) fn rest(shown: usize, all: usize, rows: &str) -> String {
    if shown >= all {
        return String::new();
    }
    format!(
        "… and {} more {rows} (--rows 0 prints all)\n",
        units::count((all - shown) as u64)
    )
}

fn line(bytes: &str, share: &str, objects: u64, what: &str) -> String {
    let objects = units::count(objects);
    format!("{bytes:>12} {share:>6} {objects:>12}  {what}\n")
}

pub(crate) fn node_json(graph: &Graph, node: u32) -> Value {
    let at = node as usize;
    json!({"id": graph.id[at], "type": graph.class_of(node), "name": graph.name_of(node), "bytes": graph.bytes[at]})
}

/// Describes a node in words (T2).
pub(crate) fn called(graph: &Graph, node: u32) -> String {
    const SHOWN: usize = 80;
    let name = graph.name_of(node);
    let name = clean(&name.chars().take(SHOWN).collect::<String>());
    let id = graph.id[node as usize];
    if node == 0 {
        return "(root)".to_owned();
    }
    match graph.class_of(node) {
        "object" | "native" | "synthetic" => format!("{name} @{id}"),
        kind => format!("{kind} {name} @{id}"),
    }
}

/// Returns the node that `@ID`, `CLASS` or `CLASS:N` means.
fn object(graph: &Graph, file: &Path, wanted: &str) -> Result<u32> {
    let shown = file.display();
    if let Some(id) = wanted.strip_prefix('@') {
        let Ok(number) = id.parse() else {
            bail!("--path {wanted}: an id is a number, for instance @4711");
        };
        let Some(node) = graph.by_id(number) else {
            bail!("--path {wanted}: {shown} has no object of this id; --retained prints ids");
        };
        return Ok(node);
    }
    // The name of a class may have colons.
    if let Some(node) = graph.by_class(wanted, 0) {
        return Ok(node);
    }
    let numbered = wanted.rsplit_once(':');
    if let Some((name, n)) = numbered.and_then(|(name, n)| Some((name, n.parse().ok()?))) {
        if let Some(node) = graph.by_class(name, n) {
            return Ok(node);
        }
        if graph.by_class(name, 0).is_some() {
            bail!(
                "--path {wanted}: {shown} has fewer objects of this class; the first is {name}:0"
            );
        }
    }
    bail!(
        "--path {wanted}: {shown} has no object of this class; `skinflint heap {shown}` prints classes"
    )
}
