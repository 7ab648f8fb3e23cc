//! Lines put together into trees, as about:memory shows them.
//!
//! ```text
//!   process ─► explicit ─► caches ─► images 12 MB [2]     sum of its leaves; [2]: two lines of one path
//!                       └► heap-unclassified              heap-allocated − lines of kind heap
//!          └─► resident                                   one component: a tree that is a leaf
//! ```
//!
//! H1  A node's amount is the sum of its own lines and of the nodes below it; it is never set otherwise.
//! H2  `explicit/heap-unclassified` is computed if `heap-allocated` is known and the lines have none of their own.
//!     It may be negative: then reporters claim more than there is, and [`Process::overclaimed`] says how much.
//! H3  All lines of a tree have the same units; lines with other units get a tree `NAME (UNITS)` beside it.
//! H4  A path that is both a leaf and a branch keeps its own amount as a leaf `(own)` below it, in trees and files.
//! H5  Nothing recurses deeper than a path has components, and their number has a bound ([`DEEPEST`]).
//!
//! H6  A difference claims nothing: a negative `heap-unclassified` there is a change, not a double count.
//!
//! Not here: how a tree is shown (`text`), files (`file`).

use std::collections::HashMap;

use crate::entry::{ALLOCATED, EXPLICIT, Entry, Kind, UNCLASSIFIED, Units, is_explicit};

/// The most components of a path; what follows stays one name.
pub const DEEPEST: usize = 200;

/// Which of two reports a line was in (`_presence` in the file).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Presence {
    /// In both, or there is only one report.
    #[default]
    Both,
    /// In the first only.
    First,
    /// In the second only.
    Second,
    /// In neither: it is there to balance the other side's tree.
    Balance,
}

impl Presence {
    /// Returns its number in a file; `None` if the file has none for it.
    pub fn number(self) -> Option<u8> {
        [Presence::First, Presence::Second, Presence::Balance]
            .iter()
            .position(|one| *one == self)
            .map(|at| at as u8 + 1)
    }

    /// Returns the presence that a number in a file means.
    pub fn from_number(number: u64) -> Option<Presence> {
        [
            Presence::Both,
            Presence::First,
            Presence::Second,
            Presence::Balance,
        ]
        .into_iter()
        .find(|one| u64::from(one.number().unwrap_or(0)) == number)
    }
}

/// A node with all nodes below it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// The component of the path, with `\` for `/`.
    pub name: String,
    /// The amount (H1), in more than 64 bits: sums of hostile files do not wrap.
    pub amount: i128,
    /// What it counts.
    pub units: Units,
    /// The kind of its first line; `Other` for branches.
    pub kind: Kind,
    /// The number of lines of exactly this path.
    pub lines: u32,
    /// The description of its first line; empty for branches.
    pub description: String,
    /// Which report a leaf of a difference was in.
    pub presence: Presence,
    /// The nodes below it: largest magnitude first, then by name.
    pub kids: Vec<Node>,
}

/// The trees of one process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// `NAME (pid N)`.
    pub name: String,
    /// The trees: `explicit` first, then branches, then single values; each group by name.
    pub trees: Vec<Node>,
    /// Bytes that reporters of the heap claim beyond what there is (H2); 0 otherwise.
    pub overclaimed: u64,
    /// Whether amounts are changes (H6).
    pub is_difference: bool,
}

impl Process {
    /// Returns the node at a path.
    pub fn at(&self, path: &str) -> Option<&Node> {
        let mut parts = path.split('/');
        let first = parts.next()?;
        let mut node = self.trees.iter().find(|tree| tree.name == first)?;
        for part in parts {
            node = node.kids.iter().find(|kid| kid.name == part)?;
        }
        Some(node)
    }

    /// Returns the amount at a path; 0 if there is no node.
    pub fn amount(&self, path: &str) -> i128 {
        self.at(path).map_or(0, |node| node.amount)
    }
}

/// Builds trees from lines in any order.
#[derive(Default)]
pub struct Builder {
    processes: Vec<Growing>,
    by_name: HashMap<String, usize>,
    /// The process of the last line: most lines have the same process as the line before.
    last: usize,
    is_difference: bool,
}

struct Growing {
    name: String,
    nodes: Vec<Twig>,
    /// The trees by name and units (H3).
    roots: HashMap<(String, Units), usize>,
    /// The sum of the explicit lines of kind heap.
    heap: i128,
    allocated: Option<i128>,
    /// The description of `heap-allocated`, also used for `heap-unclassified`.
    said: String,
    has_unclassified: bool,
    is_difference: bool,
}

struct Twig {
    own: i128,
    lines: u32,
    kind: Kind,
    units: Units,
    presence: Presence,
    description: String,
    kids: HashMap<Box<str>, usize>,
}

impl Twig {
    fn new(units: Units) -> Twig {
        Twig {
            own: 0,
            lines: 0,
            kind: Kind::Other,
            units,
            presence: Presence::Both,
            description: String::new(),
            kids: HashMap::new(),
        }
    }
}

impl Builder {
    /// Creates a builder without lines.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Creates a builder for lines that are changes (H6).
    pub fn of_difference() -> Builder {
        Builder {
            is_difference: true,
            ..Builder::default()
        }
    }

    /// Adds a line.
    pub fn add(&mut self, entry: &Entry<'_>, presence: Presence) {
        let same = |process: &Growing| process.name == entry.process;
        if !self.processes.get(self.last).is_some_and(same) {
            self.last = match self.by_name.get(entry.process) {
                Some(at) => *at,
                None => {
                    self.processes.push(Growing::new(entry.process));
                    let at = self.processes.len() - 1;
                    self.by_name.insert(entry.process.to_owned(), at);
                    at
                }
            };
        }
        self.processes[self.last].is_difference |= self.is_difference;
        self.processes[self.last].add(entry, presence);
    }

    /// Returns the trees of all processes, by name, the one with the most explicit (or else resident) memory first.
    pub fn finish(self) -> Vec<Process> {
        let mut processes: Vec<Process> = self.processes.into_iter().map(Growing::finish).collect();
        let rank = |process: &Process| {
            let amount = |path| process.amount(path).unsigned_abs();
            (amount(EXPLICIT), amount("resident"))
        };
        processes.sort_by(|a, b| rank(b).cmp(&rank(a)).then_with(|| a.name.cmp(&b.name)));
        processes
    }
}

/// Returns the trees of these lines.
pub fn trees<'a>(lines: impl Iterator<Item = Entry<'a>>) -> Vec<Process> {
    let mut builder = Builder::new();
    lines.for_each(|line| builder.add(&line, Presence::Both));
    builder.finish()
}

impl Growing {
    fn new(name: &str) -> Growing {
        Growing {
            name: name.to_owned(),
            nodes: Vec::new(),
            roots: HashMap::new(),
            heap: 0,
            allocated: None,
            said: String::new(),
            has_unclassified: false,
            // As `diff` names processes, here and in files.
            is_difference: name.contains("pid NNN"),
        }
    }

    fn add(&mut self, entry: &Entry<'_>, presence: Presence) {
        let amount = i128::from(entry.amount);
        if entry.path == ALLOCATED {
            *self.allocated.get_or_insert(0) += amount;
            self.said = entry.description.to_owned();
        }
        if entry.path == UNCLASSIFIED {
            self.has_unclassified = true;
        } else if is_explicit(entry.path) && entry.kind == Kind::Heap {
            self.heap += amount;
        }
        self.is_difference |= presence != Presence::Both;
        let node = self.place(entry.path, entry.units);
        let twig = &mut self.nodes[node];
        if twig.lines == 0 {
            twig.kind = entry.kind;
            twig.description = entry.description.to_owned();
            twig.presence = presence;
        } else if twig.presence != presence {
            twig.presence = Presence::Both;
        }
        twig.own += amount;
        twig.lines = twig.lines.saturating_add(1);
    }

    /// Returns the node of a path, and makes it if need be.
    fn place(&mut self, path: &str, units: Units) -> usize {
        let mut parts = path.splitn(DEEPEST, '/');
        let root = parts.next().unwrap_or("");
        let mut at = match self.roots.get(&(root.to_owned(), units)) {
            Some(at) => *at,
            None => {
                self.nodes.push(Twig::new(units));
                let at = self.nodes.len() - 1;
                self.roots.insert((root.to_owned(), units), at);
                at
            }
        };
        for part in parts {
            at = match self.nodes[at].kids.get(part) {
                Some(kid) => *kid,
                None => {
                    self.nodes.push(Twig::new(units));
                    let kid = self.nodes.len() - 1;
                    self.nodes[at].kids.insert(part.into(), kid);
                    kid
                }
            };
        }
        at
    }

    fn finish(mut self) -> Process {
        let mut overclaimed = 0;
        if let Some(allocated) = self.allocated.filter(|_| !self.has_unclassified) {
            let rest = allocated - self.heap;
            let node = self.place(UNCLASSIFIED, Units::Bytes);
            let twig = &mut self.nodes[node];
            twig.own = rest;
            twig.lines = 1;
            twig.kind = Kind::Heap;
            twig.description = format!(
                "Live blocks that no reporter covers: heap-allocated ({}) less what reporters claim.",
                self.said.trim_end_matches('.')
            );
            overclaimed = match self.is_difference {
                true => 0,
                false => u64::try_from(-rest).unwrap_or(0),
            };
        }
        let mut counted: HashMap<&str, u32> = HashMap::new();
        for (root, _) in self.roots.keys() {
            *counted.entry(root).or_default() += 1;
        }
        let mut trees: Vec<Node> = self
            .roots
            .iter()
            .map(|((root, units), at)| {
                // H3.
                let alone = counted.get(root.as_str()) == Some(&1) || *units == Units::Bytes;
                let name = match alone {
                    true => root.clone(),
                    false => format!("{root} ({})", units_name(*units)),
                };
                self.node(name, *at)
            })
            .collect();
        let order = |tree: &Node| (tree.name != EXPLICIT, tree.kids.is_empty());
        trees.sort_by(|a, b| order(a).cmp(&order(b)).then_with(|| a.name.cmp(&b.name)));
        Process {
            name: self.name,
            trees,
            overclaimed,
            is_difference: self.is_difference,
        }
    }

    /// Builds a node and all nodes below it (H1, H4).
    fn node(&self, name: String, at: usize) -> Node {
        let twig = &self.nodes[at];
        let mut kids: Vec<Node> = twig
            .kids
            .iter()
            .map(|(name, kid)| self.node(name.as_ref().to_owned(), *kid))
            .collect();
        let leaf = |name: String, lines| Node {
            name,
            amount: twig.own,
            units: twig.units,
            kind: twig.kind,
            lines,
            description: twig.description.clone(),
            presence: twig.presence,
            kids: Vec::new(),
        };
        if kids.is_empty() {
            return leaf(name, twig.lines);
        }
        if twig.lines > 0 {
            kids.push(leaf(OWN.to_owned(), twig.lines));
        }
        kids.sort_by(|a, b| {
            let larger = b.amount.unsigned_abs().cmp(&a.amount.unsigned_abs());
            larger.then_with(|| a.name.cmp(&b.name))
        });
        Node {
            name,
            amount: kids.iter().map(|kid| kid.amount).sum(),
            units: twig.units,
            kind: Kind::Other,
            lines: 0,
            description: String::new(),
            presence: Presence::Both,
            kids,
        }
    }
}

/// The name of a branch's own amount (H4).
pub(crate) const OWN: &str = "(own)";

fn units_name(units: Units) -> &'static str {
    match units {
        Units::Bytes => "bytes",
        Units::Count => "count",
        Units::Cumulative => "cumulative",
        Units::Percent => "percent",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line<'a>(process: &'a str, path: &'a str, kind: Kind, amount: i64) -> Entry<'a> {
        let description = "Said.";
        let units = Units::Bytes;
        Entry {
            process,
            path,
            kind,
            units,
            amount,
            description,
        }
    }

    #[test]
    fn a_tree_by_hand() {
        use Kind::{Heap, Nonheap, Other};
        let lines = [
            line("p", "explicit/a/b", Heap, 30),
            line("p", "explicit/a/c", Heap, 10),
            line("p", "explicit/a/b", Heap, 5),
            line("q", "explicit/a/b", Heap, 7),
            line("p", "explicit/m", Nonheap, 20),
            line("p", "heap-allocated", Other, 70),
            line("p", "resident", Other, 200),
        ];
        let all = trees(lines.into_iter());
        assert_eq!(all.len(), 2);
        let p = &all[0];
        assert_eq!((p.name.as_str(), p.overclaimed), ("p", 0));
        // 70 − 45 is unclassified, so explicit is 45 + 20 + 25.
        assert_eq!(p.amount(UNCLASSIFIED), 25);
        assert_eq!(p.amount("explicit"), 90);
        assert_eq!(p.amount("explicit/a"), 45);
        let b = p.at("explicit/a/b").expect("a leaf");
        assert_eq!((b.amount, b.lines, b.kind), (35, 2, Heap));
        let order: Vec<&str> = p.trees.iter().map(|tree| tree.name.as_str()).collect();
        assert_eq!(order, ["explicit", "heap-allocated", "resident"]);
        let kids = &p.trees[0].kids;
        let kids: Vec<&str> = kids.iter().map(|kid| kid.name.as_str()).collect();
        assert_eq!(kids, ["a", "heap-unclassified", "m"]);
        // `heap-allocated` of q is not known: nothing is made up.
        assert_eq!(all[1].at(UNCLASSIFIED), None);
        assert_eq!(all[1].amount("explicit"), 7);
    }

    #[test]
    fn too_much_claimed_is_negative_and_said() {
        let lines = [
            line("p", "explicit/a", Kind::Heap, 100),
            line("p", "heap-allocated", Kind::Other, 70),
        ];
        let all = trees(lines.into_iter());
        assert_eq!(all[0].amount(UNCLASSIFIED), -30);
        assert_eq!((all[0].amount("explicit"), all[0].overclaimed), (70, 30));
    }

    #[test]
    fn what_a_file_says_of_unclassified_is_kept() {
        let lines = [
            line("p", "explicit/a", Kind::Heap, 60),
            line("p", UNCLASSIFIED, Kind::Heap, 3),
            line("p", "heap-allocated", Kind::Other, 70),
        ];
        let all = trees(lines.into_iter());
        assert_eq!(all[0].amount(UNCLASSIFIED), 3);
        assert_eq!(all[0].amount("explicit"), 63);
    }

    #[test]
    fn a_leaf_that_is_a_branch_and_units_that_differ() {
        let mut count = line("p", "things", Kind::Other, 2);
        count.units = Units::Count;
        let lines = [
            line("p", "explicit/a", Kind::Heap, 1),
            line("p", "explicit/a/b", Kind::Heap, 2),
            line("p", "things/x", Kind::Other, 9),
            count,
        ];
        let all = trees(lines.into_iter());
        assert_eq!(all[0].amount("explicit/a"), 3);
        assert_eq!(all[0].amount("explicit/a/(own)"), 1);
        assert_eq!(all[0].amount("things"), 9);
        assert_eq!(all[0].amount("things (count)"), 2);
    }

    #[test]
    fn sums_beyond_64_bits_and_paths_without_end() {
        let deep = format!("explicit{}", "/x".repeat(100_000));
        let mut builder = Builder::new();
        for _ in 0..3 {
            builder.add(&line("p", "n", Kind::Other, i64::MAX), Presence::Both);
            builder.add(&line("p", &deep, Kind::Heap, 1), Presence::Both);
        }
        let all = builder.finish();
        assert_eq!(all[0].amount("n"), 3 * i128::from(i64::MAX));
        assert_eq!(all[0].amount("explicit"), 3);
    }
}
