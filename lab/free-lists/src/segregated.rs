//! Pages that each hold objects of similar size.
//!
//! ```text
//!   object ─► group by size ─► the group's lists ─┬─► none: a whole page, which is the group's from then on
//!                                                 │      holes too small for a page's group go to the group they fit
//!   tight-paged: [..2 KB) [2 KB..]        segregated: [..32] [..64] [..128] [..256] [..2 KB] [more]
//! ```
//!
//! What the study's best strategy leaves unused, found by looking at the free blocks whenever a page was added
//! (2026-11-22, steady:1): about four in five pages were added for objects above 2 KB while 1 to 5 MB of 26 lay free
//! between smaller ones.
//!
//! T1  A page belongs to the group of its first object until it is empty. Objects of a higher group never lie in it,
//!     and objects of a lower one only where none of its own fits: its holes stay usable for its group.
//! T2  `tight-paged` has a class for each size from 16 bytes; descriptors of 4 bytes and a mask make a hundred cheap.
//! T3  A page is added only when all are swept.
//! T4  Within a group the search order may be any strategy's.
//!
//! Not here: lists (`lists`), search orders (`strategies`), our strategy without links between pages (`tight`).

use core::marker::PhantomData;

use super::list::{Block, FreeList, Freed, Origin};
use super::lists::{Light, Lists, Mask};
use super::memory::{Memory, PAGE_WORDS, WORD, page_of};
use super::strategies::FreeListPolicy;

/// The group of an empty page: none.
const EITHER: u8 = u8::MAX;

/// Two groups: below and from 2 KB.
pub(crate) static TWO: [u32; 1] = [2048];
/// Six groups, each of the small ones an eighth to a half of objects.
pub(crate) static SIX: [u32; 5] = [40, 72, 136, 264, 2048];
/// One group: no segregation.
pub(crate) static ONE: [u32; 0] = [];

pub(crate) struct Segregated<P> {
    name: &'static str,
    /// Bytes at which each group but the first begins.
    limits: &'static [u32],
    lists: Vec<Lists<Light, Mask>>,
    /// The group of each page.
    groups: Vec<u8>,
    /// Pages that are free as a whole.
    whole: Vec<u32>,
    order: PhantomData<P>,
}

impl<P: FreeListPolicy> Segregated<P> {
    pub(crate) fn new(name: &'static str, memory: &Memory, limits: &'static [u32]) -> Self {
        let lists = (0..=limits.len()).map(|_| Lists::new(memory, P::TABLE));
        Segregated {
            name,
            limits,
            lists: lists.collect(),
            groups: Vec::new(),
            whole: Vec::new(),
            order: PhantomData,
        }
    }

    fn group(&self, bytes: u32) -> usize {
        self.limits.iter().filter(|limit| bytes >= **limit).count()
    }

    fn block(page: u32) -> Block {
        Block {
            word: page * PAGE_WORDS,
            words: PAGE_WORDS,
        }
    }
}

impl<P: FreeListPolicy> FreeList for Segregated<P> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn add_page(&mut self, page: u32) {
        let count = self.groups.len().max(page as usize + 1);
        self.groups.resize(count, EITHER);
        self.groups[page as usize] = EITHER;
        self.lists.iter_mut().for_each(|lists| lists.add_page(page));
    }

    fn remove_page(&mut self, page: u32) {
        self.lists
            .iter_mut()
            .for_each(|lists| lists.remove_page(page));
        self.whole.retain(|whole| *whole != page);
    }

    fn reset(&mut self) {
        self.lists.iter_mut().for_each(Lists::reset);
        self.whole.clear();
    }

    fn free(&mut self, block: Block, _: Freed) -> Option<Block> {
        let page = page_of(block.word);
        let group = &mut self.groups[page as usize];
        if block.words == PAGE_WORDS {
            *group = EITHER;
            self.whole.push(page);
            return None;
        }
        let own = match *group {
            // Part of a page that no object has claimed yet: treated as the first group's.
            EITHER => 0,
            group => usize::from(group),
        };
        let fits = self.group(block.words * WORD);
        self.lists[own.min(fits)].free(block)
    }

    fn take(&mut self, bytes: u32, origin: Origin) -> Option<Block> {
        let group = self.group(bytes);
        if let Some(block) = P::find(&mut self.lists[group], bytes, origin) {
            return Some(block);
        }
        let page = self.whole.pop()?;
        self.groups[page as usize] = group as u8;
        Some(Self::block(page))
    }

    /// The objects that a block above the first limit serves depend on its page, so no request is certain to succeed.
    fn guaranteed(&self, bytes: u32) -> u32 {
        match self.limits.first() {
            Some(limit) if bytes >= *limit => 0,
            _ => P::guaranteed(bytes),
        }
    }

    fn page_for(&self, bytes: u32) -> Option<u32> {
        let lists = &self.lists[self.group(bytes)];
        P::page_for(lists, bytes).or_else(|| self.whole.last().copied())
    }

    fn blocks(&self) -> Vec<Block> {
        let whole = self.whole.iter().map(|page| Self::block(*page));
        let listed = self.lists.iter().flat_map(Lists::blocks);
        listed.chain(whole).collect()
    }

    fn table_bytes(&self) -> usize {
        let lists: usize = self.lists.iter().map(Lists::table_bytes).sum();
        lists + size_of::<u8>()
    }

    fn limits(&self) -> &'static [u32] {
        self.limits
    }

    fn sweeps_all(&self) -> bool {
        true
    }
}
