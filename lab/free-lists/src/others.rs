//! Strategies that are not a search order over classes.
//!
//! ```text
//!   FullPages   one entry: a fresh page, or the rest of the area; nothing from sweeping
//!   MapSpace    one class, objects of one size; after sweeping the fullest page comes first
//!   Tuned       many or many-fast, by what the last cycle left unused
//! ```
//!
//! R1  `FullPages` holds at most one block. A new one replaces it, and the old one is wasted.
//! R2  `MapSpace` looks at the top only: all its blocks hold at least one object.
//! R3  `Tuned` changes its order at collections only, and not back within the band between `LOW` and `HIGH`.
//!
//! Not here: arenas of one size (`segregated`).

use super::list::{Block, FreeList, Freed, Origin};
use super::lists::{Cached, Heavy, Light, Lists, Mask, Search};
use super::memory::{Memory, PAGE_WORDS, WORD, page_of};
use super::strategies::{FreeListPolicy, Many, ManyFast};
use super::table::{MANY, MIN_BLOCK, Table};

/// A list that holds at most one block (R1).
pub(crate) struct FullPages {
    entry: Option<Block>,
}

impl FullPages {
    pub(crate) fn new() -> FullPages {
        FullPages { entry: None }
    }
}

impl FreeList for FullPages {
    fn name(&self) -> &'static str {
        "full-pages"
    }
    fn add_page(&mut self, _: u32) {}
    fn remove_page(&mut self, page: u32) {
        self.entry = self.entry.filter(|entry| page_of(entry.word) != page);
    }
    fn reset(&mut self) {
        self.entry = None;
    }
    fn free(&mut self, block: Block, why: Freed) -> Option<Block> {
        if why == Freed::Sweep || block.words * WORD < MIN_BLOCK {
            return Some(block);
        }
        self.entry.replace(block)
    }
    fn take(&mut self, bytes: u32, _: Origin) -> Option<Block> {
        let large = |entry: &mut Block| entry.words * WORD >= bytes;
        self.entry.take_if(large)
    }
    fn guaranteed(&self, _: u32) -> u32 {
        0
    }
    fn page_for(&self, bytes: u32) -> Option<u32> {
        let entry = self.entry.filter(|entry| entry.words * WORD >= bytes);
        entry.map(|entry| page_of(entry.word))
    }
    fn blocks(&self) -> Vec<Block> {
        self.entry.into_iter().collect()
    }
    fn table_bytes(&self) -> usize {
        0
    }
}

/// Bytes of the study's one object size, that of V8's hidden classes.
const MAP_BYTES: u32 = 80;

static MAPS: Table = Table {
    name: "map-space",
    min: &[MAP_BYTES],
    class: |_| 0,
};

/// A list with one class, whose top alone is looked at (R2).
pub(crate) struct MapSpace {
    lists: Lists<Heavy, Cached>,
}

impl MapSpace {
    pub(crate) fn new(memory: &Memory) -> MapSpace {
        let lists = Lists::new(memory, &MAPS);
        MapSpace { lists }
    }
}

impl FreeList for MapSpace {
    fn name(&self) -> &'static str {
        "map-space"
    }
    fn add_page(&mut self, page: u32) {
        self.lists.add_page(page);
    }
    fn remove_page(&mut self, page: u32) {
        self.lists.remove_page(page);
    }
    fn reset(&mut self) {
        self.lists.reset();
    }
    fn free(&mut self, block: Block, _: Freed) -> Option<Block> {
        self.lists.free(block)
    }
    fn take(&mut self, bytes: u32, _: Origin) -> Option<Block> {
        self.lists.try_top(0, bytes)
    }
    fn guaranteed(&self, bytes: u32) -> u32 {
        if bytes >= MAP_BYTES { MAP_BYTES } else { 0 }
    }
    fn page_for(&self, _: u32) -> Option<u32> {
        self.lists.head(0)
    }
    fn blocks(&self) -> Vec<Block> {
        self.lists.blocks()
    }
    fn table_bytes(&self) -> usize {
        self.lists.table_bytes()
    }
    fn all_swept(&mut self, live_bytes: &dyn Fn(u32) -> u32) {
        self.lists.sort_pages(live_bytes);
    }
}

/// Unused words of pages when a collection begins, in percent, below which the fast order may go on.
const LOW: u64 = 4;
/// Unused words, in percent, from which on the best fit is needed.
const HIGH: u64 = 8;

/// A list that changes between two orders (R3).
pub(crate) struct Tuned {
    lists: Lists<Light, Mask>,
    pages: u64,
    /// Words in the lists, and words that were too small for them since the last reset.
    kept: u64,
    wasted: u64,
    careful: bool,
}

impl Tuned {
    pub(crate) fn new(memory: &Memory) -> Tuned {
        Tuned {
            lists: Lists::new(memory, &MANY),
            pages: 0,
            kept: 0,
            wasted: 0,
            careful: false,
        }
    }

    #[cfg(test)]
    pub(crate) fn is_careful(&self) -> bool {
        self.careful
    }
}

impl FreeList for Tuned {
    fn name(&self) -> &'static str {
        "tuned"
    }
    fn add_page(&mut self, page: u32) {
        self.pages += 1;
        self.lists.add_page(page);
    }
    fn remove_page(&mut self, page: u32) {
        self.pages -= 1;
        self.lists.remove_page(page);
    }
    fn reset(&mut self) {
        let unused = (self.kept + self.wasted) * 100;
        let all = self.pages * u64::from(PAGE_WORDS);
        self.careful = match self.careful {
            true => unused >= LOW * all,
            false => unused >= HIGH * all,
        };
        (self.kept, self.wasted) = (0, 0);
        self.lists.reset();
    }
    fn free(&mut self, block: Block, _: Freed) -> Option<Block> {
        let wasted = self.lists.free(block);
        match wasted {
            Some(_) => self.wasted += u64::from(block.words),
            None => self.kept += u64::from(block.words),
        }
        wasted
    }
    fn take(&mut self, bytes: u32, origin: Origin) -> Option<Block> {
        let taken = match self.careful {
            true => Many::find(&mut self.lists, bytes, origin),
            false => ManyFast::find(&mut self.lists, bytes, origin),
        };
        self.kept -= taken.map_or(0, |block| u64::from(block.words));
        taken
    }
    fn guaranteed(&self, bytes: u32) -> u32 {
        Many::guaranteed(bytes)
    }
    fn page_for(&self, bytes: u32) -> Option<u32> {
        Many::page_for(&self.lists, bytes)
    }
    fn blocks(&self) -> Vec<Block> {
        self.lists.blocks()
    }
    fn table_bytes(&self) -> usize {
        self.lists.table_bytes()
    }
}
