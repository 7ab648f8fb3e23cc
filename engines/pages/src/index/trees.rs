//! Free runs in ordered trees, in place of the page map's tags and of buckets: for a bench, never in what ships.
//!
//! ```text
//!   by length, dirty and clean:  (pages, page) ─► run      best fit, lowest address
//!   by page:                     page ─► run               the neighbours of what is given back
//! ```
//!
//! jemalloc kept its free runs so until 2008. The links lie in the runs' descriptors, so that nothing is allocated; the
//! trees are as quick as we can make them: a run that only grows or shrinks keeps its place in the tree by page, since
//! that does not change the order of runs.
//!
//! T1  Each free and each claimed run is in the tree by page, and has no tag in MAP; each free one is in the tree by
//!     length of its state.
//! T2  Keys are unique: no two runs begin at one page.
//! T3  A link is a descriptor's offset; 0: none.
//!
//! Not here: how a tree keeps its shape (`red_black`, `treap`).

#[cfg(not(feature = "bench-treap"))]
use super::red_black as shape;
#[cfg(feature = "bench-treap")]
use super::treap as shape;

use super::tree_nodes::Nodes;
use crate::pool::{DIRTY, FreeRun};
use crate::{Pool, Region};

fn run_at(region: &Region, offset: u32) -> &FreeRun {
    // SAFETY: pages.P2 and T3, as `Pool::at`.
    unsafe { &*region.at::<FreeRun>(offset) }
}

/// Where the links of a tree are in a descriptor.
macro_rules! nodes {
    ($(#[$about:meta])* $name:ident, $red:literal, |$run:ident| $left:expr, $right:expr, $parent:expr, $key:expr) => {
        $(#[$about])*
        struct $name<'a>(&'a Region);

        impl Nodes for $name<'_> {
            #[inline]
            fn left(&self, at: u32) -> u32 {
                let $run = run_at(self.0, at);
                $left.get()
            }
            #[inline]
            fn right(&self, at: u32) -> u32 {
                let $run = run_at(self.0, at);
                $right.get()
            }
            #[inline]
            fn parent(&self, at: u32) -> u32 {
                let $run = run_at(self.0, at);
                $parent.get()
            }
            #[inline]
            fn set_left(&self, at: u32, to: u32) {
                let $run = run_at(self.0, at);
                $left.set(to);
            }
            #[inline]
            fn set_right(&self, at: u32, to: u32) {
                let $run = run_at(self.0, at);
                $right.set(to);
            }
            #[inline]
            fn set_parent(&self, at: u32, to: u32) {
                let $run = run_at(self.0, at);
                $parent.set(to);
            }
            #[inline]
            fn key(&self, at: u32) -> u64 {
                let $run = run_at(self.0, at);
                $key
            }
            #[cfg(not(feature = "bench-treap"))]
            #[inline]
            fn is_red(&self, at: u32) -> bool {
                run_at(self.0, at).red[$red].get()
            }
            #[cfg(not(feature = "bench-treap"))]
            #[inline]
            fn set_red(&self, at: u32, red: bool) {
                run_at(self.0, at).red[$red].set(red);
            }
        }
    };
}

nodes! {
    /// Nodes of a tree by length.
    Lengths, 0, |run| run.next, run.previous, run.size_parent,
    u64::from(run.pages.get()) << 32 | u64::from(run.page.get())
}

nodes! {
    /// Nodes of the tree by page.
    Places, 1, |run| run.page_links[0], run.page_links[1], run.page_links[2],
    u64::from(run.page.get())
}

/// Returns the first node whose key is at least this; 0: there is none.
#[inline]
fn at_least(nodes: &impl Nodes, root: u32, key: u64) -> u32 {
    let (mut at, mut found) = (root, 0);
    while at != 0 {
        if nodes.key(at) >= key {
            found = at;
            at = nodes.left(at);
        } else {
            at = nodes.right(at);
        }
    }
    found
}

/// Returns the last node whose key is at most this; 0: there is none.
#[inline]
fn at_most(nodes: &impl Nodes, root: u32, key: u64) -> u32 {
    let (mut at, mut found) = (root, 0);
    while at != 0 {
        if nodes.key(at) <= key {
            found = at;
            at = nodes.right(at);
        } else {
            at = nodes.left(at);
        }
    }
    found
}

/// Returns the node after this one; 0: it is the last.
fn after(nodes: &impl Nodes, mut at: u32) -> u32 {
    if nodes.right(at) != 0 {
        at = nodes.right(at);
        while nodes.left(at) != 0 {
            at = nodes.left(at);
        }
        return at;
    }
    let mut parent = nodes.parent(at);
    while parent != 0 && nodes.right(parent) == at {
        (at, parent) = (parent, nodes.parent(parent));
    }
    parent
}

/// Returns the node before this one; 0: it is the first.
fn before(nodes: &impl Nodes, mut at: u32) -> u32 {
    if nodes.left(at) != 0 {
        at = nodes.left(at);
        while nodes.right(at) != 0 {
            at = nodes.right(at);
        }
        return at;
    }
    let mut parent = nodes.parent(at);
    while parent != 0 && nodes.left(parent) == at {
        (at, parent) = (parent, nodes.parent(parent));
    }
    parent
}

impl Pool {
    /// Reports whether there is a dirty run of at least `pages` pages.
    pub fn has_dirty(&self, pages: u32) -> bool {
        let nodes = Lengths(&self.region);
        pages > 0 && at_least(&nodes, self.dirty.root, u64::from(pages) << 32) != 0
    }

    /// Returns the descriptor of the free or claimed run that begins or ends at this page.
    #[inline]
    pub(crate) fn free_tag(&self, page: u32) -> Option<u32> {
        let offset = at_most(&Places(&self.region), self.by_page, u64::from(page));
        if offset == 0 {
            return None;
        }
        let run = self.at(offset);
        (run.page.get() == page || run.end() == page + 1).then_some(offset)
    }

    #[inline]
    fn root(&mut self, state: u8) -> &mut u32 {
        if state == DIRTY {
            &mut self.dirty.root
        } else {
            &mut self.clean.root
        }
    }

    /// Puts a run into the tree by length of its state.
    pub(crate) fn link(&mut self, offset: u32) {
        let state = self.at(offset).state.get();
        let root = *self.root(state);
        *self.root(state) = shape::insert(&Lengths(&self.region), root, offset);
    }

    /// Takes a run out of the tree by length.
    pub(crate) fn unlink(&mut self, offset: u32) {
        let state = self.at(offset).state.get();
        let root = *self.root(state);
        *self.root(state) = shape::remove(&Lengths(&self.region), root, offset);
    }

    /// Writes a run into a descriptor. One that is in the tree by page keeps its place.
    pub(crate) fn describe(&mut self, offset: u32, page: u32, pages: u32) {
        let run = self.at(offset);
        run.start.set(self.region.page_addr(page));
        run.page.set(page);
        run.pages.set(pages);
    }

    /// A free run has no tags here.
    #[inline]
    pub(crate) fn clear_tag(&self, _: u32) {}

    /// Puts a new run into the tree by page.
    pub(crate) fn enter_page(&mut self, offset: u32) {
        self.by_page = shape::insert(&Places(&self.region), self.by_page, offset);
    }

    /// Takes a run out of the tree by page, and frees its descriptor.
    pub(crate) fn forget(&mut self, offset: u32) {
        self.by_page = shape::remove(&Places(&self.region), self.by_page, offset);
        self.region.desc_free(offset, 1);
    }

    /// Finds the shortest run of this state that fits, the lowest of several. With an alignment, those that are long enough
    /// are looked at one after another.
    pub(crate) fn find(&mut self, state: u8, pages: u32, align: u32) -> Option<(u32, u32)> {
        let root = *self.root(state);
        let nodes = Lengths(&self.region);
        let mut offset = at_least(&nodes, root, u64::from(pages) << 32);
        while offset != 0 {
            if let Some(page) = self.place_in(offset, pages, align) {
                return Some((offset, page));
            }
            offset = after(&nodes, offset);
        }
        None
    }

    /// Returns the longest dirty run of at most `pages` pages; 0: there is none.
    pub(crate) fn longest_dirty(&self, pages: u32) -> u32 {
        let key = u64::from(pages) << 32 | u64::from(u32::MAX);
        at_most(&Lengths(&self.region), self.dirty.root, key)
    }

    /// Returns the dirty run before this one, by length; 0: it is the first.
    pub(crate) fn next_shorter_dirty(&self, offset: u32) -> u32 {
        before(&Lengths(&self.region), offset)
    }

    /// Passes every clean run to `visit`: its first page, and its pages; ends with the first error.
    ///
    /// # Errors
    /// The error of `visit`.
    pub fn each_clean<E>(&self, mut visit: impl FnMut(u32, u32) -> Result<(), E>) -> Result<(), E> {
        let nodes = Lengths(&self.region);
        let mut offset = at_least(&nodes, self.clean.root, 0);
        while offset != 0 {
            let run = self.at(offset);
            visit(run.page.get(), run.pages.get())?;
            offset = after(&nodes, offset);
        }
        Ok(())
    }

    /// Checks T1: order, links, shape, and that `runs` runs of `state` are there.
    pub(crate) fn check_by_size(&self, state: u8, runs: u32) -> Result<(), &'static str> {
        let nodes = Lengths(&self.region);
        let root = if state == DIRTY {
            self.dirty.root
        } else {
            self.clean.root
        };
        let found = check_tree(&nodes, root)?;
        let mut offset = at_least(&nodes, root, 0);
        while offset != 0 {
            let run = self.at(offset);
            if run.state.get() != state || self.free_tag(run.page.get()) != Some(offset) {
                return Err("a run in a tree that it does not belong to");
            }
            offset = after(&nodes, offset);
        }
        if found != runs {
            return Err("the tree by length has other runs than that by page");
        }
        check_tree(&Places(&self.region), self.by_page).map(|_| ())
    }
}

/// Checks that keys rise, links match and the shape is as it should be; returns the number of nodes.
fn check_tree(nodes: &impl Nodes, root: u32) -> Result<u32, &'static str> {
    if root != 0 && nodes.parent(root) != 0 {
        return Err("a root with a parent");
    }
    let mut at = at_least(nodes, root, 0);
    let (mut found, mut last) = (0, None);
    while at != 0 {
        if last.is_some_and(|last| last >= nodes.key(at)) {
            return Err("keys of a tree that do not rise");
        }
        for child in [nodes.left(at), nodes.right(at)] {
            if child != 0 && nodes.parent(child) != at {
                return Err("a child that has another parent");
            }
            if child != 0 && !shape::may_be_child(nodes, at, child) {
                return Err("a tree that has lost its shape");
            }
        }
        last = Some(nodes.key(at));
        found += 1;
        at = after(nodes, at);
    }
    Ok(found)
}
