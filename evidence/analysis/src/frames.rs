//! The stacks of a report, with names: only those that its rows refer to.
//!
//! ```text
//!   trace's nodes (one per address)  ──► used by a row? keep, with all callers
//!                                    ──► one report node per frame, inlined ones expanded
//! ```
//!
//! F1  Afterwards every node id in the report is one of [`Report::nodes`]; an id that the trace does
//!     not have becomes node 0, the inherited stack becomes a node of its own.
//! F3  The stacks of a process that this one is a copy of begin, outermost, with a frame that says so.
//! F2  Parents come before children: ids are given in ascending order of the trace's, whose parents
//!     come before children too. No recursion: stacks may be 100,000 deep.
//!
//! Not here: finding names (`symbols`).

use rustc_hash::FxHashMap;

use crate::block::INHERITED;
use skinflint_trace::code_of;

use crate::facts::{Shown, StackNode, Symbolizer};
use crate::model::{Frame, Node, Report};

/// The name of the stack under which blocks from before a fork are shown.
const INHERITED_NAME: &str = "[inherited from parent]";

/// The stack trees of a report, before they have names (`facts.rs`).
#[derive(Clone, Copy)]
pub(crate) struct Stacks<'a> {
    pub nodes: &'a [StackNode],
    pub ancestors: &'a [u32],
}

/// The report's node for each of the trace's nodes.
#[derive(Clone, Debug)]
pub(crate) struct Renamed {
    ids: Vec<u32>,
    inherited: u32,
    /// The first node of an ancestor's.
    ancestors_from: u32,
}

impl Renamed {
    /// Returns the report's node; 0 for one that it does not have.
    pub fn of(&self, node: u32) -> u32 {
        match node {
            id if id == INHERITED.0 => self.inherited,
            id => self.ids.get(id as usize).copied().unwrap_or(0),
        }
    }

    /// Reports whether a node of the trace is of what a fork gave.
    pub fn is_inherited(&self, node: u32) -> bool {
        node >= self.ancestors_from
    }
}

/// Renumbers the report's nodes and names them.
pub(crate) fn compact(
    report: &mut Report,
    Stacks { nodes, ancestors }: Stacks<'_>,
    symbolizer: &mut dyn Symbolizer,
) -> Renamed {
    let hidden = Hidden::of(symbolizer, Stacks { nodes, ancestors });
    let used = used_nodes(report, nodes, &hidden);
    let mut names = Names::default();
    let frame = names.frame(Frame::default());
    names.nodes.push(Node { parent: 0, frame });
    let mut new_ids = vec![0u32; nodes.len().max(1)];
    for (index, node) in nodes.iter().enumerate().skip(1) {
        if used[index] {
            let parent = hidden.parent(nodes, index);
            if hidden.hides(node) {
                new_ids[index] = new_ids[parent];
                continue;
            }
            let begins = ancestors.binary_search(&(index as u32)).is_ok();
            let frames = match begins {
                true => vec![inherited_frame()],
                false => symbolizer.frames(node.pc, index as u32),
            };
            new_ids[index] = names.add(new_ids[parent], node.pc, frames);
        }
    }
    let mut inherited = None;
    each_node(report, &mut |id| {
        *id = match *id {
            id if id == INHERITED.0 => {
                *inherited.get_or_insert_with(|| names.add(0, 0, vec![inherited_frame()]))
            }
            id => new_ids.get(id as usize).copied().unwrap_or(0),
        };
    });
    name_parts(report, &names);
    report.nodes = names.nodes;
    report.frames = names.frames;
    Renamed {
        ids: new_ids,
        inherited: inherited.unwrap_or(0),
        ancestors_from: ancestors.first().copied().unwrap_or(INHERITED.0),
    }
}

/// Returns the frame that says that a fork gave what is in it.
fn inherited_frame() -> Frame {
    Frame {
        function: INHERITED_NAME.into(),
        ..Frame::default()
    }
}

/// Returns a node's parent; the root if a damaged trace names none before it.
fn parent(node: &StackNode, index: usize) -> usize {
    if (node.parent as usize) < index {
        node.parent as usize
    } else {
        0
    }
}

/// The frames that are not shown.
///
/// ```text
///   trace    main ─ eval ─ PY a ─ eval ─ PY b ─ list_resize
///   user                   PY a ─        PY b ─ list_resize
/// ```
struct Hidden {
    shown: Shown,
    /// For [`Shown::User`]: by node, the innermost frame of a script from it outwards, the node itself if it is one; 0 if
    /// there is none.
    user: Vec<u32>,
    /// For [`Shown::User`]: by node, whether it is a frame of a script.
    scripts: Vec<bool>,
}

impl Hidden {
    fn of(symbolizer: &mut dyn Symbolizer, Stacks { nodes, ancestors }: Stacks<'_>) -> Hidden {
        let shown = symbolizer.shown();
        let (mut user, mut scripts) = (Vec::new(), Vec::new());
        if shown == Shown::User {
            user.resize(nodes.len(), 0);
            scripts.resize(nodes.len(), false);
            for (index, node) in nodes.iter().enumerate().skip(1) {
                // What a fork gave begins with a frame that says so, which stays.
                let begins = ancestors.binary_search(&(index as u32)).is_ok();
                scripts[index] = !begins && symbolizer.is_script(node.pc, index as u32);
                user[index] = match begins || scripts[index] {
                    true => index as u32,
                    false => user[parent(node, index)],
                };
            }
        }
        Hidden {
            shown,
            user,
            scripts,
        }
    }

    fn hides(&self, node: &StackNode) -> bool {
        self.shown == Shown::Native && code_of(node.pc).is_some()
    }

    /// Returns the node whose frame comes next outwards.
    fn parent(&self, nodes: &[StackNode], index: usize) -> usize {
        let up = parent(&nodes[index], index);
        match self.scripts.get(index) {
            Some(true) => self.user[up] as usize,
            _ => up,
        }
    }
}

fn used_nodes(report: &mut Report, nodes: &[StackNode], hidden: &Hidden) -> Vec<bool> {
    let mut used = vec![false; nodes.len()];
    each_node(report, &mut |id| {
        if let Some(flag) = used.get_mut(*id as usize) {
            *flag = true;
        }
    });
    // The loop goes from the last to the first: a child is always seen before its parent.
    for index in (1..nodes.len()).rev() {
        if used[index] {
            used[hidden.parent(nodes, index)] = true;
        }
    }
    used
}

/// Visits every place in a report that names a node. A new place must be added here, or it would
/// keep the trace's id.
fn each_node(report: &mut Report, visit: &mut dyn FnMut(&mut u32)) {
    report
        .sites
        .iter_mut()
        .for_each(|site| visit(&mut site.node));
    report
        .mappers
        .iter_mut()
        .for_each(|mapper| visit(&mut mapper.node));
    report
        .growth
        .iter_mut()
        .for_each(|growth| visit(&mut growth.node));
    report
        .zombies
        .iter_mut()
        .for_each(|zombie| visit(&mut zombie.node));
    let unreached = report.reach.iter_mut().flat_map(|reach| &mut reach.rows);
    unreached
        .filter_map(|row| row.node.as_mut())
        .for_each(&mut *visit);
    for finding in &mut report.findings {
        finding.node.iter_mut().for_each(&mut *visit);
        finding.more_nodes.iter_mut().for_each(&mut *visit);
    }
    for instant in &mut report.instants {
        let rows = instant.books.iter_mut().flat_map(|books| &mut books.rows);
        for part in rows.flat_map(|row| &mut row.parts) {
            part.node.iter_mut().for_each(&mut *visit);
        }
        // Functions come later, with the report's own ids.
        let pins = instant.fragments.iter_mut().flat_map(|all| &mut all.pins);
        pins.flat_map(|pin| &mut pin.node).for_each(&mut *visit);
    }
}

#[derive(Default)]
struct Names {
    nodes: Vec<Node>,
    frames: Vec<Frame>,
    known: FxHashMap<Frame, u32>,
}

impl Names {
    fn frame(&mut self, frame: Frame) -> u32 {
        if let Some(&index) = self.known.get(&frame) {
            return index;
        }
        let index = self.frames.len() as u32;
        self.frames.push(frame.clone());
        self.known.insert(frame, index);
        index
    }

    /// Adds the frames of one address, given innermost first; returns the innermost one's node.
    fn add(&mut self, parent: u32, pc: u64, mut frames: Vec<Frame>) -> u32 {
        if frames.is_empty() {
            frames.push(Frame {
                function: format!("{pc:#x}"),
                ..Frame::default()
            });
        }
        let mut parent = parent;
        for frame in frames.into_iter().rev() {
            let frame = self.frame(frame);
            self.nodes.push(Node { parent, frame });
            parent = self.nodes.len() as u32 - 1;
        }
        parent
    }
}

/// Names parts that are stacks by their innermost function; a file has its own name, whoever mapped it.
fn name_parts(report: &mut Report, names: &Names) {
    for books in report
        .instants
        .iter_mut()
        .filter_map(|instant| instant.books.as_mut())
    {
        let parts = books.rows.iter_mut().flat_map(|row| row.parts.iter_mut());
        for part in parts.filter(|part| part.name.is_empty()) {
            let Some(node) = part.node.and_then(|id| names.nodes.get(id as usize)) else {
                continue;
            };
            let function = &names.frames[node.frame as usize].function;
            part.name = if function.is_empty() {
                "[no stack]".into()
            } else {
                function.clone()
            };
        }
    }
}
