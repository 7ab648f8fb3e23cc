//! Nodes and edges by number, and paths through them.
//!
//! ```text
//!   node n: class, name, id, bytes; its edges are first[n] .. first[n + 1]      node 0 is the root
//! ```
//!
//! G1  Numbers are checked once ([`Graph::check`]); afterwards each of them is valid.
//!
//! Not here: reading (`read`), dominators.

/// Strings, stored one after the other.
#[derive(Debug, Default)]
pub struct Strings {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Strings {
    pub(crate) fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns one string; `None` if there is none with this number.
    pub fn get(&self, number: u32) -> Option<String> {
        let number = number as usize;
        let end = *self.ends.get(number)?;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(String::from_utf8_lossy(&self.bytes[start..end]).into_owned())
    }
}

/// Stands for no node.
pub const NONE: u32 = u32::MAX;

/// Reports whether the names of a type are classes; names of other types (strings, numbers, functions, code) are
/// contents.
pub(crate) fn by_name(kind: &str) -> bool {
    matches!(
        kind,
        "object" | "native" | "hidden" | "synthetic" | "object shape" | "wasm object"
    )
}

/// Classes of edges that matter for retaining.
#[derive(Clone, Copy, Debug, Default)]
struct EdgeClasses {
    element: u8,
    hidden: u8,
    shortcut: u8,
    weak: u8,
}

/// A snapshot's graph.
#[derive(Debug, Default)]
pub struct Graph {
    /// Type of each node.
    pub class: Vec<u8>,
    /// Number of each node's name.
    pub name: Vec<u32>,
    /// The node's identity in other snapshots of the same program.
    pub id: Vec<u64>,
    /// Bytes of the node alone.
    pub bytes: Vec<u64>,
    /// Nodes of a page that were taken out of it, ascending (V8's `detachedness`).
    pub detached: Vec<u32>,
    /// The ends of the nodes' ranges of edges; the next node's edges begin there.
    ends: Vec<u32>,
    edge_class: Vec<u8>,
    edge_name: Vec<u32>,
    edge_to: Vec<u32>,
    pub(crate) strings: Strings,
    node_classes: Vec<String>,
    edges_of: EdgeClasses,
}

/// An edge of a path, and the node that it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The name of the edge: `.name` or `[number]`; empty for the root.
    pub edge: String,
    /// The node that the edge leads to.
    pub node: u32,
}

impl Graph {
    pub(crate) fn set_classes(&mut self, nodes: &[String], edges: &[String]) {
        self.node_classes = nodes.to_vec();
        let find = |name: &str| {
            let place = edges.iter().position(|class| class == name);
            // There is no such name: no edge is of this class.
            place.map_or(u8::MAX, |place| place.min(254) as u8)
        };
        self.edges_of = EdgeClasses {
            element: find("element"),
            hidden: find("hidden"),
            shortcut: find("shortcut"),
            weak: find("weak"),
        };
    }

    pub(crate) fn add_node(&mut self, class: u8, name: u32, id: u64, bytes: u64, end: u32) {
        self.class.push(class);
        self.name.push(name);
        self.id.push(id);
        self.bytes.push(bytes);
        self.ends.push(end);
    }

    pub(crate) fn add_edge(&mut self, class: u8, name: u32, to: u32) {
        self.edge_class.push(class);
        self.edge_name.push(name);
        self.edge_to.push(to);
    }

    /// Checks the numbers (G1).
    pub(crate) fn check(&self) -> Result<(), String> {
        let strings = self.strings.len();
        let names = self.name.iter().copied();
        let named = |class: &u8| *class != self.edges_of.element && *class != self.edges_of.hidden;
        let edges = self.edge_class.iter().zip(&self.edge_name);
        let edges = edges
            .filter(|(class, _)| named(class))
            .map(|(_, name)| *name);
        match names.chain(edges).find(|name| *name as usize >= strings) {
            Some(name) => Err(format!(
                "string {name} of {strings}; write the snapshot anew"
            )),
            None => Ok(()),
        }
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.class.len()
    }

    /// Reports whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.class.is_empty()
    }

    /// Returns the bytes of all nodes.
    pub fn total_bytes(&self) -> u64 {
        self.bytes
            .iter()
            .fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Returns the name of a node's type.
    pub fn class_of(&self, node: u32) -> &str {
        let class = self.class.get(node as usize);
        let name = class.and_then(|class| self.node_classes.get(usize::from(*class)));
        name.map_or("?", String::as_str)
    }

    /// Returns the name of a node.
    pub fn name_of(&self, node: u32) -> String {
        let name = self.name.get(node as usize);
        name.and_then(|name| self.strings.get(*name))
            .unwrap_or_default()
    }

    fn range(&self, node: u32) -> std::ops::Range<usize> {
        let node = node as usize;
        let start = node.checked_sub(1).and_then(|before| self.ends.get(before));
        let end = self.ends.get(node);
        let start = start.map_or(0, |start| *start as usize);
        let end = end.map_or(0, |end| *end as usize).min(self.edge_to.len());
        start.min(end)..end
    }

    /// Returns the nodes to which those edges of a node lead that keep something alive.
    pub fn retained(&self, node: u32) -> impl Iterator<Item = u32> {
        let strong = move |edge: &usize| {
            let class = self.edge_class[*edge];
            class != self.edges_of.weak && (class != self.edges_of.shortcut || node == 0)
        };
        self.range(node)
            .filter(strong)
            .map(|edge| self.edge_to[edge])
    }

    fn edge_label(&self, from: u32, to: u32) -> String {
        let edge = self.range(from).find(|&edge| {
            let class = self.edge_class[edge];
            self.edge_to[edge] == to
                && class != self.edges_of.weak
                && (class != self.edges_of.shortcut || from == 0)
        });
        let Some(edge) = edge else {
            return String::new();
        };
        let (class, name) = (self.edge_class[edge], self.edge_name[edge]);
        if class == self.edges_of.element || class == self.edges_of.hidden {
            return format!("[{name}]");
        }
        format!(".{}", self.strings.get(name).unwrap_or_default())
    }

    /// Returns for each node the one before it on a shortest path from the root; itself for the root, [`NONE`] if
    /// nothing leads to the node.
    pub fn parents(&self) -> Vec<u32> {
        let mut parents = vec![NONE; self.len()];
        let mut frontier = Vec::new();
        if let Some(root) = parents.first_mut() {
            *root = 0;
            frontier.push(0);
        }
        while !frontier.is_empty() {
            for from in std::mem::take(&mut frontier) {
                for to in self.retained(from) {
                    if let Some(parent) = parents.get_mut(to as usize)
                        && *parent == NONE
                    {
                        *parent = from;
                        frontier.push(to);
                    }
                }
            }
        }
        parents
    }

    /// Returns a shortest path from the root; `None` if nothing leads to the node.
    pub fn path(&self, parents: &[u32], to: u32) -> Option<Vec<Step>> {
        let mut steps = Vec::new();
        let mut node = to;
        loop {
            let before = *parents.get(node as usize)?;
            if before == NONE {
                return None;
            }
            let edge = if node == 0 {
                String::new()
            } else {
                self.edge_label(before, node)
            };
            steps.push(Step { edge, node });
            if node == 0 {
                break;
            }
            node = before;
        }
        steps.reverse();
        Some(steps)
    }

    /// Returns the node with an id.
    pub fn by_id(&self, id: u64) -> Option<u32> {
        let place = self.id.iter().position(|other| *other == id)?;
        Some(place as u32)
    }

    /// Returns the nth node (from 0) of a class, in the file's order.
    pub fn by_class(&self, name: &str, n: usize) -> Option<u32> {
        let numbers = 0..self.strings.len() as u32;
        let wanted: Vec<u32> = numbers
            .filter(|number| self.strings.get(*number).as_deref() == Some(name))
            .collect();
        // A function may have the same name as the class that it makes.
        let mut nodes = (0..self.len() as u32).filter(|node| {
            wanted.contains(&self.name[*node as usize]) && by_name(self.class_of(*node))
        });
        nodes.nth(n)
    }
}
