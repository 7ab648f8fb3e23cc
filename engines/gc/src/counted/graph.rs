//! The graph of a collection of cycles: nodes and edges, and which of them are alive.
//!
//! Not here: what nodes stand for (`boxes`), how the graph is built and judged (`cycles`).

use core::ptr::NonNull;

pub(crate) struct Node<H> {
    /// What it stands for; `None`: that has ended (cycles.V4).
    pub(super) header: Option<NonNull<H>>,
    /// Number of edges of nodes that lead to it.
    pub(super) inner: u32,
    /// The end of its own edges in the list; they begin where those of the node before it end.
    pub(super) end: u32,
}

const _: () = assert!(size_of::<Node<u8>>() == 16);

/// The graph of a collection: nodes and edges.
pub(crate) struct Graph<H> {
    pub(super) nodes: Vec<Node<H>>,
    pub(super) alive: Vec<bool>,
    pub(super) edges: Vec<u32>,
    /// Nodes that are alive, whose edges were not looked at yet.
    open: Vec<u32>,
    /// The next node of the phase.
    pub(super) next: usize,
}

// Not derived: a graph needs no default of what its nodes stand for.
impl<H> Default for Graph<H> {
    fn default() -> Graph<H> {
        Graph {
            nodes: Vec::new(),
            alive: Vec::new(),
            edges: Vec::new(),
            open: Vec::new(),
            next: 0,
        }
    }
}

impl<H> Graph<H> {
    fn edges_of(&self, node: usize) -> core::ops::Range<usize> {
        let from = match node {
            0 => 0,
            _ => self.nodes[node - 1].end as usize,
        };
        from..self.nodes[node].end as usize
    }

    pub(super) fn live(&mut self, node: usize) -> bool {
        let new = !core::mem::replace(&mut self.alive[node], true);
        if new {
            self.open.push(node as u32);
        }
        new
    }

    /// Follows the edges of an open node; returns the node, and the units of work.
    pub(super) fn follow(&mut self) -> Option<(usize, u64)> {
        let node = self.open.pop()? as usize;
        let edges = self.edges_of(node);
        let units = edges.len() as u64 + 1;
        for edge in edges {
            let to = self.edges[edge] as usize;
            self.live(to);
        }
        Some((node, units))
    }
}
