//! The same pool over ordered trees, which the page map replaces.
//!
//! ```text
//!   by size, dirty:   (pages, page) ─► run        best fit, lowest address
//!   by size, clean:   (pages, page) ─► run
//!   by page:          page ─► run                 the neighbours of what is given back
//! ```
//!
//! E1  Dirty before pairs before clean before more heap; joined with equal neighbours; an age list:
//!     as `Pool` does it. The one difference is what a tree is good at, the best fit.
//! E2  A removal gets the place that the insertion returned, so that a tree of links need not search for it again.
//!
//! Not here: memory. These pools answer with numbers of pages and map nothing.

use std::collections::VecDeque;

use intrusive_collections::{Bound, KeyAdapter, RBTree, RBTreeLink, UnsafeRef, intrusive_adapter};
use subms_treap::Treap;

use crate::map::Runs;

/// An ordered map from 64 bits to an index.
pub trait Order {
    /// The place of an entry, for [`Order::remove`] (E2).
    type Place: Copy + Default;
    fn new() -> Self;
    fn insert(&mut self, key: u64, value: u32) -> Self::Place;
    fn remove(&mut self, key: u64, place: Self::Place);
    /// Returns the first entry at this key or after it.
    fn at_least(&self, key: u64) -> Option<(u64, u32)>;
    /// Returns the last entry at this key or before it.
    fn at_most(&self, key: u64) -> Option<(u64, u32)>;
}

/// An entry of a tree.
pub struct Node {
    link: RBTreeLink,
    key: u64,
    value: u32,
}

intrusive_adapter!(NodeAdapter = UnsafeRef<Node>: Node { link => RBTreeLink });

impl<'a> KeyAdapter<'a> for NodeAdapter {
    type Key = u64;
    fn get_key(&self, node: &'a Node) -> u64 {
        node.key
    }
}

/// A red-black tree of links within the nodes, which are reused.
pub struct RedBlack {
    tree: RBTree<NodeAdapter>,
    free: Vec<UnsafeRef<Node>>,
}

impl Order for RedBlack {
    type Place = Option<std::ptr::NonNull<Node>>;

    fn new() -> RedBlack {
        RedBlack {
            tree: RBTree::new(NodeAdapter::new()),
            free: Vec::new(),
        }
    }

    fn insert(&mut self, key: u64, value: u32) -> Self::Place {
        let fresh = Node {
            link: RBTreeLink::new(),
            key,
            value,
        };
        let node = match self.free.pop() {
            Some(node) => {
                let raw = UnsafeRef::into_raw(node);
                // SAFETY: the node came from a box and is in no tree.
                unsafe {
                    raw.write(fresh);
                    UnsafeRef::from_raw(raw)
                }
            }
            None => UnsafeRef::from_box(Box::new(fresh)),
        };
        let place = std::ptr::NonNull::from(&*node);
        self.tree.insert(node);
        Some(place)
    }

    fn remove(&mut self, _key: u64, place: Self::Place) {
        let Some(place) = place else { return };
        // SAFETY: the place is that of a node in this tree (E2).
        let mut cursor = unsafe { self.tree.cursor_mut_from_ptr(place.as_ptr()) };
        self.free.extend(cursor.remove());
    }

    fn at_least(&self, key: u64) -> Option<(u64, u32)> {
        let cursor = self.tree.lower_bound(Bound::Included(&key));
        cursor.get().map(|node| (node.key, node.value))
    }

    fn at_most(&self, key: u64) -> Option<(u64, u32)> {
        let cursor = self.tree.upper_bound(Bound::Included(&key));
        cursor.get().map(|node| (node.key, node.value))
    }
}

impl Drop for RedBlack {
    fn drop(&mut self) {
        let mut cursor = self.tree.front_mut();
        while let Some(node) = cursor.remove() {
            self.free.push(node);
        }
        for node in self.free.drain(..) {
            // SAFETY: each came from a box and is in no tree.
            drop(unsafe { UnsafeRef::into_box(node) });
        }
    }
}

impl Order for Treap<u64, u32> {
    type Place = ();

    fn new() -> Self {
        Treap::new(1)
    }

    fn insert(&mut self, key: u64, value: u32) {
        Treap::insert(self, key, value);
    }

    fn remove(&mut self, key: u64, (): ()) {
        Treap::remove(self, &key);
    }

    fn at_least(&self, key: u64) -> Option<(u64, u32)> {
        self.ceiling(&key).map(|(key, value)| (*key, *value))
    }

    fn at_most(&self, key: u64) -> Option<(u64, u32)> {
        self.floor(&key).map(|(key, value)| (*key, *value))
    }
}

const DIRTY: usize = 0;
const CLEAN: usize = 1;
const PAIRS_LOOKED_AT: u32 = 16;
const PAIR_SHARE: u32 = 4;
const HEAP_PIECE: u32 = 256;

#[derive(Clone, Copy, Default)]
struct Free<P> {
    page: u32,
    pages: u32,
    state: usize,
    older: u32,
    younger: u32,
    by_size: P,
    by_page: P,
}

impl<P> Free<P> {
    fn end(&self) -> u32 {
        self.page + self.pages
    }
    fn size_key(&self) -> u64 {
        u64::from(self.pages) << 32 | u64::from(self.page)
    }
}

/// A pool over one kind of tree.
pub struct TreePool<O: Order> {
    by_size: [O; 2],
    by_page: O,
    /// Free runs; index 0 is none, and the two ends of the age list.
    runs: Vec<Free<O::Place>>,
    unused: VecDeque<u32>,
    heap_pages: u32,
    touched: u32,
    touched_max: u32,
}

impl<O: Order> TreePool<O> {
    fn run(&mut self, index: u32) -> &mut Free<O::Place> {
        &mut self.runs[index as usize]
    }

    fn link_size(&mut self, index: u32) {
        let run = *self.run(index);
        self.run(index).by_size = self.by_size[run.state].insert(run.size_key(), index);
    }

    fn unlink_size(&mut self, index: u32) {
        let run = *self.run(index);
        self.by_size[run.state].remove(run.size_key(), run.by_size);
    }

    fn age(&mut self, index: u32) {
        let youngest = std::mem::replace(&mut self.run(0).older, index);
        self.run(youngest).younger = index;
        self.run(index).older = youngest;
        self.run(index).younger = 0;
    }

    fn unage(&mut self, index: u32) {
        let Free { older, younger, .. } = *self.run(index);
        self.run(older).younger = younger;
        self.run(younger).older = older;
    }

    /// Puts a run into all of its trees.
    fn add(&mut self, page: u32, pages: u32, state: usize, aged: bool) -> u32 {
        let index = self.unused.pop_back().unwrap_or_else(|| {
            self.runs.push(Free::default());
            self.runs.len() as u32 - 1
        });
        let by_page = self.by_page.insert(u64::from(page), index);
        *self.run(index) = Free {
            page,
            pages,
            state,
            by_page,
            ..Free::default()
        };
        self.link_size(index);
        if aged && state == DIRTY {
            self.age(index);
        }
        index
    }

    fn drop_run(&mut self, index: u32) {
        self.unlink_size(index);
        self.forget(index);
    }

    /// Takes a run out of everything but the tree by size.
    fn forget(&mut self, index: u32) {
        let run = *self.run(index);
        self.by_page.remove(u64::from(run.page), run.by_page);
        if run.state == DIRTY {
            self.unage(index);
        }
        self.unused.push_back(index);
    }

    fn insert(&mut self, page: u32, pages: u32, state: usize) {
        let left = page
            .checked_sub(1)
            .and_then(|before| self.by_page.at_most(u64::from(before)));
        let left = left.map(|(_, index)| index).filter(|&index| {
            let run = &self.runs[index as usize];
            run.end() == page && run.state == state
        });
        let right = self
            .by_page
            .at_least(u64::from(page))
            .map(|(_, index)| index);
        let right = right.filter(|&index| {
            let run = &self.runs[index as usize];
            run.page == page + pages && run.state == state
        });
        let (mut first, mut end) = (page, page + pages);
        if let Some(right) = right {
            end = self.run(right).end();
        }
        if let Some(left) = left {
            first = self.run(left).page;
            self.unlink_size(left);
            if let Some(right) = right {
                self.drop_run(right);
            }
            self.run(left).pages = end - first;
            return self.link_size(left);
        }
        if let Some(right) = right {
            self.unlink_size(right);
            let old = *self.run(right);
            self.by_page.remove(u64::from(old.page), old.by_page);
            let by_page = self.by_page.insert(u64::from(first), right);
            let run = self.run(right);
            (run.page, run.pages, run.by_page) = (first, end - first, by_page);
            return self.link_size(right);
        }
        self.add(first, end - first, state, true);
    }

    /// Takes pages out of a run: all, or its beginning, or its end.
    fn carve(&mut self, index: u32, page: u32, pages: u32) {
        let run = *self.run(index);
        if run.state == CLEAN {
            self.touched += pages;
            self.touched_max = self.touched_max.max(self.touched);
        }
        self.unlink_size(index);
        if run.pages == pages {
            return self.forget(index);
        }
        if page == run.page {
            self.by_page.remove(u64::from(run.page), run.by_page);
            let by_page = self.by_page.insert(u64::from(run.page + pages), index);
            let run = self.run(index);
            (run.page, run.by_page) = (page + pages, by_page);
        }
        self.run(index).pages -= pages;
        self.link_size(index);
    }

    fn fitting(&mut self, state: usize, pages: u32) -> Option<u32> {
        let (_, index) = self.by_size[state].at_least(u64::from(pages) << 32)?;
        let page = self.run(index).page;
        self.carve(index, page, pages);
        Some(page)
    }

    fn pair(&mut self, pages: u32) -> Option<u32> {
        let mut key = u64::from(pages) << 32;
        for _ in 0..PAIRS_LOOKED_AT {
            let (found, index) = self.by_size[DIRTY].at_most(key)?;
            let run = *self.run(index);
            if run.pages < pages.div_ceil(PAIR_SHARE) {
                return None;
            }
            let rest = pages - run.pages;
            let long = |other: &Free<O::Place>| other.state == CLEAN && other.pages >= rest;
            let right = self
                .by_page
                .at_least(u64::from(run.end()))
                .map(|found| found.1);
            let right = right.filter(|&i| {
                let other = &self.runs[i as usize];
                other.page == run.end() && long(other)
            });
            if let Some(right) = right {
                self.carve(index, run.page, run.pages);
                self.carve(right, run.end(), rest);
                return Some(run.page);
            }
            let before = run.page.checked_sub(1);
            let left = before.and_then(|before| self.by_page.at_most(u64::from(before)));
            let left = left.map(|found| found.1).filter(|&i| {
                let other = &self.runs[i as usize];
                other.end() == run.page && long(other)
            });
            if let Some(left) = left {
                self.carve(index, run.page, run.pages);
                self.carve(left, run.page - rest, rest);
                return Some(run.page - rest);
            }
            key = found.checked_sub(1)?;
        }
        None
    }

    fn grow(&mut self, pages: u32) {
        let more = pages.max((self.heap_pages / 8).clamp(HEAP_PIECE, 64 * HEAP_PIECE));
        self.insert(self.heap_pages, more, CLEAN);
        self.heap_pages += more;
    }
}

impl<O: Order> Runs for TreePool<O> {
    fn new() -> Self {
        let mut pool = TreePool {
            by_size: [O::new(), O::new()],
            by_page: O::new(),
            runs: vec![Free::default()],
            unused: VecDeque::new(),
            heap_pages: 0,
            touched: 0,
            touched_max: 0,
        };
        pool.grow(crate::map::FIRST_PAGES);
        pool
    }

    fn take(&mut self, pages: u32) -> u32 {
        let found = self
            .fitting(DIRTY, pages)
            .or_else(|| self.pair(pages))
            .or_else(|| self.fitting(CLEAN, pages));
        if let Some(page) = found {
            return page;
        }
        // As in `Pool`: only what the clean run at the end lacks.
        let last = self
            .by_page
            .at_most(u64::from(self.heap_pages))
            .map(|found| found.1);
        let tail = last.map_or(0, |index| {
            let run = self.run(index);
            if run.state == CLEAN { run.pages } else { 0 }
        });
        let tail_ends =
            last.is_some_and(|index| self.runs[index as usize].end() == self.heap_pages);
        self.grow(pages - if tail_ends { tail.min(pages - 1) } else { 0 });
        self.fitting(CLEAN, pages).unwrap_or(0)
    }

    fn give(&mut self, page: u32, pages: u32) {
        self.insert(page, pages, DIRTY);
    }

    fn extend(&mut self, end: u32, more: u32) -> bool {
        let next = |pool: &Self, at: u32| {
            let (_, index) = pool.by_page.at_least(u64::from(at))?;
            (pool.runs[index as usize].page == at).then_some(index)
        };
        let (mut at, mut reached) = (end, 0);
        while reached < more
            && let Some(index) = next(self, at)
        {
            reached += self.run(index).pages;
            at = self.run(index).end();
        }
        if reached < more {
            if at != self.heap_pages {
                return false;
            }
            self.grow(more - reached);
        }
        let (mut at, stop) = (end, end + more);
        while at < stop {
            let Some(index) = next(self, at) else {
                return false;
            };
            let part = self.run(index).pages.min(stop - at);
            self.carve(index, at, part);
            at += part;
        }
        true
    }

    fn touched_max(&self) -> u32 {
        self.touched_max
    }

    fn heap_pages(&self) -> u32 {
        self.heap_pages
    }

    fn metadata_bytes(&self) -> Option<usize> {
        None
    }
}
