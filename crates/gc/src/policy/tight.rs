//! Ours: the smallest heap at the price of a best fit.
//!
//! ```text
//!   small objects ─► small lists ─┬─► a whole page, which is theirs from then on
//!   large objects ─► large lists ─┘      holes of large pages below `large` go to the small lists
//! ```
//!
//! What the study's best strategy leaves on the table, measured by asking at each added page what was free: a third to
//! a tenth of that was in holes between small objects, and nine of ten pages were added for objects above 2 KB. So:
//!
//! T1  A page is small or large from its first object until it is empty. Large objects never lie in small pages: their
//!     holes stay large. Small objects fill what is too small for a large one anyway.
//! T2  A class for each size from 16 bytes; descriptors of 4 bytes and a mask make a hundred classes cheap.
//! T3  A page is added only when all are swept.
//!
//! Not here: lists (`lists`).

use super::lists::{Light, Lists, Mask};
use super::memory::{Memory, PAGE_WORDS, WORD, page_of};
use super::strategies::best_fit;
use super::table::{MIN_TIGHT, TIGHT};
use super::{Block, FreeList, Freed, Origin};

/// T1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sort {
    /// Empty.
    Either,
    Small,
    Large,
}

pub(crate) struct Tight {
    name: &'static str,
    /// Bytes from which an object is large.
    large: u32,
    small_lists: Lists<Light, Mask>,
    large_lists: Lists<Light, Mask>,
    sorts: Vec<Sort>,
    /// Whole pages.
    whole: Vec<u32>,
}

impl Tight {
    pub(crate) fn new(name: &'static str, memory: &Memory, large: u32) -> Tight {
        Tight {
            name,
            large,
            small_lists: Lists::new(memory, &TIGHT),
            large_lists: Lists::new(memory, &TIGHT),
            sorts: Vec::new(),
            whole: Vec::new(),
        }
    }

    fn take_whole(&mut self, sort: Sort) -> Option<Block> {
        let page = self.whole.pop()?;
        self.sorts[page as usize] = sort;
        Some(Block {
            word: page * PAGE_WORDS,
            words: PAGE_WORDS,
        })
    }
}

impl FreeList for Tight {
    fn name(&self) -> &'static str {
        self.name
    }

    fn add_page(&mut self, page: u32) {
        let count = self.sorts.len().max(page as usize + 1);
        self.sorts.resize(count, Sort::Either);
        self.sorts[page as usize] = Sort::Either;
        self.small_lists.add_page(page);
        self.large_lists.add_page(page);
    }

    fn remove_page(&mut self, page: u32) {
        self.small_lists.remove_page(page);
        self.large_lists.remove_page(page);
        self.whole.retain(|whole| *whole != page);
    }

    fn reset(&mut self) {
        self.small_lists.reset();
        self.large_lists.reset();
        self.whole.clear();
    }

    fn free(&mut self, block: Block, _: Freed) -> Option<Block> {
        let page = page_of(block.word);
        if block.words == PAGE_WORDS {
            self.sorts[page as usize] = Sort::Either;
            self.whole.push(page);
            return None;
        }
        let is_large = self.sorts[page as usize] == Sort::Large && block.words * WORD >= self.large;
        match is_large {
            true => self.large_lists.free(block),
            false => self.small_lists.free(block),
        }
    }

    fn take(&mut self, bytes: u32, _: Origin) -> Option<Block> {
        let (lists, sort) = match bytes >= self.large {
            true => (&mut self.large_lists, Sort::Large),
            false => (&mut self.small_lists, Sort::Small),
        };
        best_fit(lists, &TIGHT, bytes).or_else(|| self.take_whole(sort))
    }

    /// Whom a large block serves depends on its page, so it is sure for nobody.
    fn guaranteed(&self, bytes: u32) -> u32 {
        match bytes {
            0..MIN_TIGHT => 0,
            bytes if bytes >= self.large => 0,
            65_536.. => bytes,
            bytes => TIGHT.min[(TIGHT.class)(bytes)],
        }
    }

    fn page_for(&self, bytes: u32) -> Option<u32> {
        use super::lists::Search;
        let lists = match bytes >= self.large {
            true => &self.large_lists,
            false => &self.small_lists,
        };
        let class = (TIGHT.class)(bytes);
        let above = (class + 1..TIGHT.len()).find_map(|class| lists.head(class));
        let whole = || self.whole.last().copied();
        above.or_else(|| lists.head(class)).or_else(whole)
    }

    fn blocks(&self) -> Vec<Block> {
        let whole = self.whole.iter().map(|page| Block {
            word: page * PAGE_WORDS,
            words: PAGE_WORDS,
        });
        let lists = [&self.small_lists, &self.large_lists];
        let listed = lists.into_iter().flat_map(Lists::blocks);
        listed.chain(whole).collect()
    }

    fn table_bytes(&self) -> usize {
        self.small_lists.table_bytes() + self.large_lists.table_bytes() + size_of::<Sort>()
    }

    fn large_words(&self) -> u32 {
        self.large.div_ceil(WORD)
    }

    fn sweeps_all(&self) -> bool {
        true
    }
}
