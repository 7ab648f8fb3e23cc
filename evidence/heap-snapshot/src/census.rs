//! Sums by class, and the difference between two snapshots.
//!
//! ```text
//!   (type, number of the name) ─► objects, bytes        strings come last: ─► (type, name) ─► objects, bytes
//! ```
//!
//! C1  Rows sum to the file's nodes. Nodes that are made up ("synthetic") are a row like others.
//! C2  Kinds of nodes whose names are contents, not classes (strings, numbers, functions, code), are one row each.
//!
//! Not here: retained sizes (`dominators`).

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::graph::{Graph, Strings, by_name};

/// A number of objects and their size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sum {
    /// Number of nodes.
    pub objects: u64,
    /// Bytes of the nodes themselves.
    pub bytes: u64,
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.objects += other.objects;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Type and name of a class; the name is empty if it says nothing about the class (C2).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Class {
    /// V8's word for the type: object, hidden, string …
    #[serde(rename = "type")]
    pub kind: String,
    /// The name of the class.
    pub name: String,
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.name.is_empty() {
            return write!(f, "({})", self.kind);
        }
        f.write_str(&skinflint_view::clean(&self.name))
    }
}

/// Sums by class.
#[derive(Debug, Default)]
pub struct Census {
    /// Sums by type and number of the name.
    by_number: FxHashMap<(u8, u32), Sum>,
    /// Sums by name, once names are known.
    pub rows: BTreeMap<Class, Sum>,
    classes: Vec<String>,
}

impl Census {
    pub(crate) fn set_classes(&mut self, classes: &[String]) {
        self.classes = classes.to_vec();
    }

    pub(crate) fn add(&mut self, class: u8, name: u32, bytes: u64) {
        let named = self
            .classes
            .get(usize::from(class))
            .is_some_and(|kind| by_name(kind));
        let key = (class, if named { name } else { 0 });
        self.by_number
            .entry(key)
            .or_default()
            .add(Sum { objects: 1, bytes });
    }

    /// Returns the numbers of the names that are needed, in order.
    pub(crate) fn names(&self) -> Vec<u32> {
        let mut names: Vec<u32> = self.by_number.keys().map(|(_, name)| *name).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    pub(crate) fn name(&mut self, strings: &Strings) -> Result<(), String> {
        for ((class, name), sum) in std::mem::take(&mut self.by_number) {
            let kind = self
                .classes
                .get(usize::from(class))
                .cloned()
                .unwrap_or_default();
            let text = if by_name(&kind) {
                let missing = || {
                    format!(
                        "string {name} of {}; write the snapshot anew",
                        strings.len()
                    )
                };
                strings.get(name).ok_or_else(missing)?
            } else {
                String::new()
            };
            self.rows
                .entry(Class { kind, name: text })
                .or_default()
                .add(sum);
        }
        Ok(())
    }

    /// Returns the sum of all rows.
    pub fn total(&self) -> Sum {
        let mut total = Sum::default();
        self.rows.values().for_each(|sum| total.add(*sum));
        total
    }

    /// Returns the rows, largest first.
    pub fn by_bytes(&self) -> Vec<(&Class, Sum)> {
        let mut rows: Vec<_> = self.rows.iter().map(|(class, sum)| (class, *sum)).collect();
        rows.sort_by(|a, b| {
            b.1.bytes
                .cmp(&a.1.bytes)
                .then(b.1.objects.cmp(&a.1.objects))
                .then(a.0.cmp(b.0))
        });
        rows
    }
}

/// Returns the class of a node.
pub fn class_of(graph: &Graph, node: u32) -> Class {
    let kind = graph.class_of(node).to_owned();
    let name = if by_name(&kind) {
        graph.name_of(node)
    } else {
        String::new()
    };
    Class { kind, name }
}

/// A row of a difference between two snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Change {
    /// In the first file.
    pub before: Sum,
    /// In the second.
    pub after: Sum,
    /// Objects of the second whose ids the first does not have.
    pub new: Sum,
    /// Objects of the first whose ids the second does not have.
    pub gone: Sum,
}

impl Change {
    /// Returns the bytes by which the class grew.
    pub fn grown(&self) -> i128 {
        i128::from(self.after.bytes) - i128::from(self.before.bytes)
    }
}

/// Returns the differences in `after`, by class; classes that grew most come first. An object is the same if it has
/// the same id and class. Cost: sorting the ids of both files.
pub fn diff(before: &Graph, after: &Graph) -> Vec<(Class, Change)> {
    let mut rows: BTreeMap<Class, Change> = BTreeMap::new();
    let sorted = |graph: &Graph| {
        let mut nodes: Vec<u32> = (0..graph.len() as u32).collect();
        nodes.sort_unstable_by_key(|node| graph.id[*node as usize]);
        nodes
    };
    let (old, new) = (sorted(before), sorted(after));
    let id = |graph: &Graph, node: Option<&u32>| node.map(|node| graph.id[*node as usize]);
    let sum = |graph: &Graph, node: u32| Sum {
        objects: 1,
        bytes: graph.bytes[node as usize],
    };
    let (mut a, mut b) = (old.iter().peekable(), new.iter().peekable());
    loop {
        let (x, y) = (id(before, a.peek().copied()), id(after, b.peek().copied()));
        let (was, is) = match (x, y) {
            (None, None) => break,
            (Some(x), Some(y)) if x == y => (a.next(), b.next()),
            (Some(x), Some(y)) if x < y => (a.next(), None),
            (Some(_), None) => (a.next(), None),
            _ => (None, b.next()),
        };
        let was = was.map(|node| (class_of(before, *node), sum(before, *node)));
        let is = is.map(|node| (class_of(after, *node), sum(after, *node)));
        let same = matches!((&was, &is), (Some((x, _)), Some((y, _))) if x == y);
        if let Some((class, sum)) = was {
            let row = rows.entry(class).or_default();
            row.before.add(sum);
            if !same {
                row.gone.add(sum);
            }
        }
        if let Some((class, sum)) = is {
            let row = rows.entry(class).or_default();
            row.after.add(sum);
            if !same {
                row.new.add(sum);
            }
        }
    }
    let mut rows: Vec<_> = rows
        .into_iter()
        .filter(|(_, row)| row.before != row.after || row.new.objects > 0)
        .collect();
    rows.sort_by(|a, b| b.1.grown().cmp(&a.1.grown()).then(a.0.cmp(&b.0)));
    rows
}
