//! The pool's lists, where there are several nodes.
//!
//! ```text
//!   take ─► lists of the node that is served ─► … nothing left: those of the others
//!   give ─► part by part: lists of the part's node, joined within it
//! ```
//!
//! Not here: which node a page is of (`nodes`).

use skinflint_base::sys;

use crate::Pool;
#[cfg(not(feature = "bench-trees"))]
use crate::index::BySize;
use crate::nodes::{BLOCKS, NODES_MAX};
use crate::pool::{CLEAN, DIRTY, Run};

impl Pool {
    /// Returns the lists that a run on this page is in.
    #[cfg(not(feature = "bench-trees"))]
    #[inline(always)]
    pub(crate) fn buckets(&mut self, state: u8, page: u32) -> &mut BySize {
        if self.nodes.others != 0 {
            return self.of_node(state, self.nodes.of(page));
        }
        if state == DIRTY {
            &mut self.dirty
        } else {
            &mut self.clean
        }
    }

    /// Returns the lists of the node that is served.
    #[cfg(not(feature = "bench-trees"))]
    #[inline(always)]
    pub(crate) fn of_served(&self, state: u8) -> &BySize {
        if self.nodes.others != 0 {
            return self.of_node_seen(state);
        }
        if state == DIRTY {
            &self.dirty
        } else {
            &self.clean
        }
    }

    /// Takes what is another node's: the system has no more.
    #[inline]
    pub(crate) fn take_others(&mut self, pages: u32, align: u32) -> Option<Run> {
        if self.nodes.others == 0 {
            return None;
        }
        self.of_others(|pool| {
            let dirty = pool.take_fitting(DIRTY, pages, align);
            dirty.or_else(|| pool.take_fitting(CLEAN, pages, align))
        })
    }

    /// Tells how many nodes there are, before the region has its place. With more than [`NODES_MAX`], or if there is no
    /// memory to tell them apart, all are one; so they are for the bench's trees.
    #[unsafe(link_section = ".text.skinflint_first")]
    pub fn set_nodes(&mut self, count: u32) {
        let trees = cfg!(feature = "bench-trees");
        if trees || count < 2 || count as usize > NODES_MAX || self.region.base() != 0 {
            return;
        }
        let table = sys::map_private(BLOCKS);
        if !table.is_null() {
            self.nodes.table = table.expose_provenance();
            self.nodes.others = count - 1;
            self.region.whole_pieces();
        }
    }

    /// Has what is taken from now on be of this node, if that can be. One that is not told apart counts as the first.
    #[inline]
    pub fn serve(&mut self, node: u32) {
        let known = node <= self.nodes.others;
        self.nodes.served = if known { node } else { 0 };
    }

    /// Returns the number of nodes that are told apart.
    #[inline]
    pub fn node_count(&self) -> u32 {
        self.nodes.others + 1
    }

    /// Returns the lists of a node, of which there are several.
    #[cfg(not(feature = "bench-trees"))]
    #[cold]
    pub(crate) fn of_node(&mut self, state: u8, node: usize) -> &mut BySize {
        let lists = node.checked_sub(1).and_then(|i| self.others.get_mut(i));
        match (lists, state == DIRTY) {
            (Some(lists), true) => &mut lists.dirty,
            (Some(lists), false) => &mut lists.clean,
            (None, true) => &mut self.dirty,
            (None, false) => &mut self.clean,
        }
    }

    /// Returns the lists of the node that is served, of several.
    #[cfg(not(feature = "bench-trees"))]
    #[cold]
    pub(crate) fn of_node_seen(&self, state: u8) -> &BySize {
        let node = self.nodes.served as usize;
        let lists = node.checked_sub(1).and_then(|i| self.others.get(i));
        match (lists, state == DIRTY) {
            (Some(lists), true) => &lists.dirty,
            (Some(lists), false) => &lists.clean,
            (None, true) => &self.dirty,
            (None, false) => &self.clean,
        }
    }

    /// Inserts pages beside neighbours of their state: those of one node at a time, joined only with what is of it, too
    /// (nodes.M2).
    #[cold]
    #[inline(never)]
    pub(crate) fn insert_by_node(
        &mut self,
        page: u32,
        pages: u32,
        state: u8,
        (left, right): (Option<u32>, Option<u32>),
    ) {
        let (mut at, end) = (page, page + pages);
        while at < end {
            let part = self.nodes.alike(at, end - at);
            let node = self.nodes.of(at);
            let own = |offset: &u32| self.nodes.of(self.at(*offset).page.get()) == node;
            let left = left.filter(|_| at == page).filter(own);
            let right = right.filter(|_| at + part == end).filter(own);
            self.insert_between(at, part, state, (left, right));
            at += part;
        }
    }

    /// Tries the other nodes, one after the other, when the system gives nothing to the one that is served.
    #[cold]
    pub(crate) fn of_others<R>(
        &mut self,
        mut tried: impl FnMut(&mut Pool) -> Option<R>,
    ) -> Option<R> {
        let served = self.nodes.served;
        let others = (0..=self.nodes.others).filter(|&node| node != served);
        let found = others.into_iter().find_map(|node| {
            self.nodes.served = node;
            tried(self)
        });
        self.nodes.served = served;
        found
    }
}
