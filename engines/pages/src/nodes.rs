//! Memory nodes: free runs apart by node, so that what a node's processors use stays theirs.
//!
//! ```text
//!   HEAP   │ 2 MiB of node 0 │ of node 0 │ of node 1 │ of node 0 │ …          NODE_OF: a byte for each
//!   serve(1); take ──► dirty, clean runs of node 1 ──► more heap, node 1's from then on ──► any node's
//! ```
//!
//! M1  The kernel decides on which node a page lies when the page is first touched: on that of the processor that does so.
//!     This file only notes for which node the heap grew there: the thread that gets a run from the pool touches it.
//! M2  Runs of different nodes are not joined (pages.P4 holds within a node), and a run that is given back goes to the
//!     lists of each node that it has pages of.
//! M3  With one node there is one list of each state, as if this file were not there: a comparison for each use of the
//!     lists.
//!
//! Not here: taking and giving by node (`by_node`); how many nodes there are, and on which a thread runs (`alloc`); a lock
//! for each node: there is one for all.

#[cfg(not(feature = "bench-trees"))]
use crate::index::BySize;
use crate::{HUGE, MAX_PAGES, PAGE};

/// The most nodes that are told apart; threads on others count as on the first.
pub const NODES_MAX: usize = 8;

/// Pages that belong to one node together.
const BLOCK: u32 = (HUGE / PAGE) as u32;
pub(crate) const BLOCKS: usize = (MAX_PAGES / BLOCK) as usize;

/// The free runs of a node.
#[cfg(not(feature = "bench-trees"))]
pub(crate) struct Lists {
    pub(crate) dirty: BySize,
    pub(crate) clean: BySize,
}

#[cfg(not(feature = "bench-trees"))]
impl Lists {
    pub(crate) const fn new() -> Lists {
        Lists {
            dirty: BySize::new(),
            clean: BySize::new(),
        }
    }
}

/// The nodes of a pool.
pub(crate) struct Nodes {
    /// How many there are beside the first.
    pub(crate) others: u32,
    /// The node that is served.
    pub(crate) served: u32,
    /// Address of a byte for each block: one more than its node; 0: no node's yet.
    pub(crate) table: usize,
}

impl Nodes {
    pub(crate) const fn new() -> Nodes {
        Nodes {
            others: 0,
            served: 0,
            table: 0,
        }
    }

    fn entry(&self, page: u32) -> *mut u8 {
        debug_assert!(page < MAX_PAGES && self.table != 0);
        core::ptr::with_exposed_provenance_mut(self.table + (page / BLOCK) as usize)
    }

    /// Returns the node of a page.
    #[inline]
    pub(crate) fn of(&self, page: u32) -> usize {
        if self.others == 0 {
            return 0;
        }
        // SAFETY: the table has a byte for each block, and is the pool's.
        usize::from(unsafe { self.entry(page).read() }.saturating_sub(1))
    }

    /// Notes that these pages are the served node's, unless they are another's.
    pub(crate) fn own(&self, page: u32, pages: u32) {
        if self.others == 0 {
            return;
        }
        let blocks = page / BLOCK..(page + pages).div_ceil(BLOCK);
        for entry in blocks.map(|block| self.entry(block * BLOCK)) {
            // SAFETY: as in `of`.
            unsafe {
                if entry.read() == 0 {
                    entry.write(self.served as u8 + 1);
                }
            }
        }
    }

    /// Returns how many of these pages, from the first on, are of its node.
    pub(crate) fn alike(&self, page: u32, pages: u32) -> u32 {
        let node = self.of(page);
        let mut end = page.saturating_add(1).next_multiple_of(BLOCK);
        while end < page + pages && self.of(end) == node {
            end += BLOCK;
        }
        end.min(page + pages) - page
    }
}
