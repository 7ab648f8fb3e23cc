//! What is left of things that should be gone, and what retains it.
//!
//! ```text
//!   FILE ─► nodes that V8 marks as detached ─┐
//!   BEFORE, AFTER ─► classes that grew ─► a new object of each ─┴─► shortest path from the root ─► Table
//! ```
//!
//! K1  Only what the root leads to is told: the rest is garbage that no collection has found.
//! K2  An object is new if the earlier snapshot has none of its number; V8 keeps numbers from one to the next of a session.
//!
//! Not here: sums and differences (census.rs), which retain alone (dominators.rs).

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use skinflint_view::{clean, units};

use crate::census::{self, Class, class_of};
use crate::graph::{Graph, NONE};
use crate::read::{Snapshot, Want, read_file};
use crate::tables::{Table, called, node_json, rest};

/// Returns what was taken out of its page and lives on, by class, each with what retains its first object. V8 marks
/// such nodes.
///
/// # Errors
/// If the snapshot cannot be read.
pub fn detached(file: &Path, limit: usize) -> Result<Table> {
    let Snapshot { graph, .. } = read_file(file, Want::Graph)?;
    let parents = graph.parents();
    let mut classes: BTreeMap<String, (u64, u64, u32)> = BTreeMap::new();
    for node in graph
        .detached
        .iter()
        .copied()
        .filter(|node| is_alive(&parents, *node))
    {
        let name = graph.name_of(node);
        let (objects, bytes, _) = classes.entry(name).or_insert((0, 0, node));
        *objects += 1;
        *bytes += graph.bytes[node as usize];
    }
    let mut rows: Vec<_> = classes.into_iter().collect();
    rows.sort_by(|(a, x), (b, y)| y.0.cmp(&x.0).then_with(|| a.cmp(b)));
    let mut text = match rows.is_empty() {
        true => "  nothing that was taken out of its page lives on\n".to_owned(),
        false => String::new(),
    };
    let mut told = Vec::new();
    for (at, (name, (objects, bytes, first))) in rows.iter().enumerate() {
        let path = retained(&graph, &parents, *first);
        if at < limit {
            text += &format!(
                "  detached {}  {}, {}; what retains the first:\n{}",
                clean(name),
                units::plural(*objects, "object"),
                units::bytes(*bytes),
                path.text
            );
        }
        told.push(json!({"class": name, "objects": objects, "bytes": bytes, "path": path.json}));
    }
    text += &rest(limit, rows.len(), "kinds of detached objects");
    Ok(Table {
        text,
        json: json!({"detached": told}),
    })
}

/// Returns what differs in a later snapshot of the same program: what grew, what is new, what is gone. Of the first `paths`
/// classes that grew, also what retains one of their new objects.
///
/// # Errors
/// If a snapshot cannot be read.
pub fn diff(before: &Path, after: &Path, limit: usize, paths: usize) -> Result<Table> {
    let want = |paths| if paths > 0 { Want::Graph } else { Want::Nodes };
    let old = read_file(before, Want::Nodes)?;
    let new = read_file(after, want(paths))?;
    let rows = census::diff(&old.graph, &new.graph);
    let (was, is) = (old.census.total(), new.census.total());
    let grown: i128 = rows.iter().map(|(_, row)| row.grown()).sum();
    if grown != i128::from(is.bytes) - i128::from(was.bytes) {
        bail!(
            "{}: rows do not add up to the totals; please report it",
            after.display()
        );
    }
    let mut text = format!(
        "{:>14} {:>10} {:>10} {:>10}  class\n",
        "bytes", "objects", "new", "gone"
    );
    for (class, row) in rows.iter().take(limit) {
        let objects = i128::from(row.after.objects) - i128::from(row.before.objects);
        text += &format!(
            "{:>+14} {objects:>+10} {:>10} {:>10}  {class}\n",
            row.grown(),
            row.new.objects,
            row.gone.objects
        );
    }
    text += &rest(limit, rows.len(), "classes that changed");
    let objects = i128::from(is.objects) - i128::from(was.objects);
    text += &format!(
        "{grown:>+14} {objects:>+10} {:>21}  all: {} before, {} after\n",
        "",
        units::bytes(was.bytes),
        units::bytes(is.bytes)
    );
    let classes = rows.iter().filter(|(_, row)| row.grown() > 0);
    let classes: Vec<&Class> = classes.take(paths).map(|(class, _)| class).collect();
    let retained = new_ones(&old.graph, &new.graph, &classes);
    text += &retained.text;
    let json_rows: Vec<Value> = rows
        .iter()
        .map(|(class, row)| json!({"type": class.kind, "name": class.name, "before": row.before, "after": row.after, "new": row.new, "gone": row.gone}))
        .collect();
    Ok(Table {
        text,
        json: json!({"before": was, "after": is, "classes": json_rows, "retained": retained.json}),
    })
}

/// Returns what retains a new object of each of these classes.
fn new_ones(before: &Graph, after: &Graph, classes: &[&Class]) -> Table {
    let mut table = Table {
        text: String::new(),
        json: json!([]),
    };
    if classes.is_empty() {
        return table;
    }
    let old: HashSet<u64> = before.id.iter().copied().collect();
    let parents = after.parents();
    let mut first: BTreeMap<&Class, u32> = BTreeMap::new();
    for node in 0..after.len() as u32 {
        if old.contains(&after.id[node as usize]) || !is_alive(&parents, node) {
            continue;
        }
        let class = class_of(after, node);
        if let Some(wanted) = classes.iter().find(|wanted| ***wanted == class) {
            first.entry(wanted).or_insert(node);
        }
    }
    let mut rows = Vec::new();
    for class in classes {
        let Some(node) = first.get(class) else {
            continue;
        };
        let path = retained(after, &parents, *node);
        table.text += &format!("a new {class}, and what retains it:\n{}", path.text);
        rows.push(json!({"type": class.kind, "name": class.name, "path": path.json}));
    }
    table.json = Value::Array(rows);
    table
}

fn is_alive(parents: &[u32], node: u32) -> bool {
    parents
        .get(node as usize)
        .is_some_and(|parent| *parent != NONE)
}

/// Returns the shortest path from the root to a node, a step a line.
fn retained(graph: &Graph, parents: &[u32], node: u32) -> Table {
    let steps = graph.path(parents, node).unwrap_or_default();
    let mut text = String::new();
    for step in &steps {
        text += &format!("{:>26}  {}\n", clean(&step.edge), called(graph, step.node));
    }
    let rows = steps.iter().map(|step| {
        let mut row = node_json(graph, step.node);
        row["edge"] = json!(step.edge);
        row
    });
    Table {
        text,
        json: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// root ─a─► 1 <p> (detached) · root ─b─► 2 kept ─list─► 3 <p> (detached) · 4 <p>: detached, and garbage.
    const SNAPSHOT: &str = r#"{"snapshot":{"meta":{
        "node_fields":["type","name","id","self_size","edge_count","detachedness"],
        "node_types":[["hidden","object","native"],"string","number","number","number","number"],
        "edge_fields":["type","name_or_index","to_node"],"edge_types":[["property"],"string_or_number","node"]},
        "node_count":5,"edge_count":3},
        "nodes":[0,0,1,0,2,0, 2,1,3,40,0,2, 1,2,5,16,1,1, 2,1,7,40,0,2, 2,1,9,40,0,2],
        "edges":[0,3,6, 0,4,12, 0,5,18],
        "strings":["","<p>","kept","a","b","list"]}"#;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("written");
        file
    }

    #[test]
    fn detached_nodes_are_told_with_what_retains_them_and_garbage_is_not() {
        let table = detached(file(SNAPSHOT).path(), 9).expect("readable");
        let rows = &table.json["detached"];
        assert_eq!(rows.as_array().map(Vec::len), Some(1), "{rows}");
        assert_eq!(
            (&rows[0]["class"], &rows[0]["objects"], &rows[0]["bytes"]),
            (&json!("<p>"), &json!(2), &json!(80))
        );
        assert!(
            table.text.contains("detached <p>  2 objects, 80 B"),
            "{}",
            table.text
        );
        let none = SNAPSHOT.replace(",2, ", ",1, ").replace(",2]", ",1]");
        let table = detached(file(&none).path(), 9).expect("readable");
        assert!(table.text.contains("nothing"), "{}", table.text);
    }

    #[test]
    fn of_a_class_that_grew_a_new_object_is_told() {
        let before = SNAPSHOT.replace(" 2,1,7,40,0,2,", " 2,1,8,0,0,1,");
        let table = diff(file(&before).path(), file(SNAPSHOT).path(), 9, 5).expect("readable");
        let path = table.json["retained"][0]["path"]
            .as_array()
            .expect("a path")
            .clone();
        let edges: Vec<&str> = path
            .iter()
            .filter_map(|step| step["edge"].as_str())
            .collect();
        assert_eq!(edges, ["", ".b", ".list"], "{}", table.text);
    }
}
