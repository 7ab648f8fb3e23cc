//! Our strategy: best fit from 16 bytes, separate pages from 2 KB, and a list that is cheap to push to and to take
//! from.
//!
//! ```text
//!   block (words, page's group) ─► small or large ─► class ─► heads[class] ─► block ─► block      last in, first out
//!                                        mask: a bit for each class that has blocks        (words, next) in one word
//! ```
//!
//! The same lists with tops and links for each page (`tight-paged`) made a replay take 1.15 times the instructions:
//! every push and every take copies the links of a page from one block to another. The links let a page leave a class
//! in one step; but the space removes a page only when the collector has forgotten all blocks, or when nothing of it
//! was swept, so that it has none. So pages are not linked here, and removing one that has blocks is the slow case
//! (N4).
//!
//! N1  A class holds the blocks of `least_of(class)` words up to the next class's minimum: each size up to 248 bytes, then
//!     four classes for each doubling, the last one open. A bit of the mask is set exactly if its class has blocks.
//! N2  A page belongs to the group of its first object until it is empty. Blocks of a large page that are too small for
//!     large objects are in the small list; the large list has only blocks of [`LARGE_WORDS`] and more, of large pages.
//! N3  A request is served by the first block that fits among the first [`LOOK`] of its own class, else by the top of the
//!     next class upwards. In the last class all blocks are looked at.
//! N4  A page's `LISTED` bit is set if a block of it was pushed since the last reset; without it removal looks at no list.
//!
//! Not here: pages linked by class (`lists`), more groups (`segregated`).

use super::list::{Block, FreeList, Freed, Origin};
use super::memory::{Memory, NONE, PAGE_WORDS, WORD, page_of};

/// Words from which on an object goes to the pages for large objects: 2 KB.
const LARGE_WORDS: u32 = 2048 / WORD;
/// Number of classes: the bits of a mask.
const CLASSES: usize = 64;
const LAST: usize = CLASSES - 1;
/// Words of the smallest block: an object has two.
const LEAST: u32 = 2;
/// The most blocks of the request's own class that are looked at. Up to 248 bytes the first one fits.
const LOOK: u32 = 8;

/// Flags of a page: its group, whether an object has decided that, and N4.
const LARGE: u8 = 1;
const TAKEN: u8 = 2;
const LISTED: u8 = 4;

/// Bytes at which the second group begins, for the space.
static LIMITS: [u32; 1] = [LARGE_WORDS * WORD];

/// Returns the class of a block (N1). Cost: a comparison and a subtraction up to 248 bytes; above, some shifts.
#[inline]
fn class_of(words: u32) -> usize {
    if words < 32 {
        return words as usize - LEAST as usize;
    }
    let log = words.ilog2();
    let class = 30 + (log - 5) * 4 + (words >> (log - 2) & 3);
    (class as usize).min(LAST)
}

/// Returns the words of the smallest block of a class.
const fn least_of(class: usize) -> u32 {
    if class < 30 {
        return class as u32 + LEAST;
    }
    let step = class as u32 - 30;
    (4 + step % 4) << (step / 4 + 3)
}

/// Blocks by class.
struct Stacks {
    mask: u64,
    heads: [u32; CLASSES],
}

impl Stacks {
    const EMPTY: Stacks = Stacks {
        mask: 0,
        heads: [NONE; CLASSES],
    };

    /// Puts a block in. Cost: one load, three stores.
    #[inline]
    fn push(&mut self, memory: &Memory, block: Block) {
        let class = class_of(block.words);
        memory.set_pair(block.word, (block.words, self.heads[class]));
        self.heads[class] = block.word;
        self.mask |= 1 << class;
    }

    /// Makes `next` the top of a class.
    #[inline]
    fn set_head(&mut self, class: usize, next: u32) {
        self.heads[class] = next;
        if next == NONE {
            self.mask &= !(1 << class);
        }
    }

    /// Takes a block for a request (N3). Cost up to 248 bytes: a search of the mask, two loads, two stores.
    #[inline]
    fn take(&mut self, memory: &Memory, words: u32) -> Option<Block> {
        let own = class_of(words);
        let mut rest = self.mask & u64::MAX << own;
        while rest != 0 {
            let class = rest.trailing_zeros() as usize;
            let word = self.heads[class];
            let (size, next) = memory.pair(word);
            if size >= words {
                self.set_head(class, next);
                return Some(Block { word, words: size });
            }
            if let Some(block) = self.take_below(memory, class, words) {
                return Some(block);
            }
            rest &= rest - 1;
        }
        None
    }

    /// Takes a block below the top of a class, which is too short.
    #[cold]
    fn take_below(&mut self, memory: &Memory, class: usize, words: u32) -> Option<Block> {
        let look = if class == LAST { u32::MAX } else { LOOK };
        let mut before = self.heads[class];
        let (_, mut word) = memory.pair(before);
        let mut looked = 1;
        while word != NONE && looked < look {
            let (size, next) = memory.pair(word);
            if size >= words {
                let (kept, _) = memory.pair(before);
                memory.set_pair(before, (kept, next));
                return Some(Block { word, words: size });
            }
            (before, word) = (word, next);
            looked += 1;
        }
        None
    }

    /// Returns all blocks of a class.
    fn each<'a>(&self, memory: &'a Memory, class: usize) -> impl Iterator<Item = Block> + 'a {
        let mut at = self.heads[class];
        core::iter::from_fn(move || {
            if at == NONE {
                return None;
            }
            let (words, next) = memory.pair(at);
            let block = Block { word: at, words };
            at = next;
            Some(block)
        })
    }

    /// Forgets the blocks of a page (N4); the order of the others stays. Cost: a look at all blocks.
    fn forget(&mut self, memory: &Memory, page: u32) {
        let mut mask = self.mask;
        while mask != 0 {
            let class = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            let kept = self.each(memory, class);
            let kept: Vec<Block> = kept.filter(|block| page_of(block.word) != page).collect();
            self.set_head(class, NONE);
            for block in kept.into_iter().rev() {
                self.push(memory, block);
            }
        }
    }
}

/// The strategy `tight`.
pub(crate) struct Tight {
    memory: Memory,
    small: Stacks,
    large: Stacks,
    /// Flags, by page.
    pages: Vec<u8>,
    /// Pages that are free as a whole.
    whole: Vec<u32>,
}

impl Tight {
    pub(crate) fn new(memory: &Memory) -> Tight {
        Tight {
            memory: memory.clone(),
            small: Stacks::EMPTY,
            large: Stacks::EMPTY,
            pages: Vec::new(),
            whole: Vec::new(),
        }
    }

    fn page(page: u32) -> Block {
        Block {
            word: page * PAGE_WORDS,
            words: PAGE_WORDS,
        }
    }
}

impl FreeList for Tight {
    fn name(&self) -> &'static str {
        "tight"
    }

    fn add_page(&mut self, page: u32) {
        let count = self.pages.len().max(page as usize + 1);
        self.pages.resize(count, 0);
        self.pages[page as usize] = 0;
    }

    fn remove_page(&mut self, page: u32) {
        if self.pages[page as usize] & LISTED != 0 {
            self.small.forget(&self.memory, page);
            self.large.forget(&self.memory, page);
        }
        self.pages[page as usize] = 0;
        self.whole.retain(|whole| *whole != page);
    }

    fn reset(&mut self) {
        (self.small, self.large) = (Stacks::EMPTY, Stacks::EMPTY);
        self.pages.iter_mut().for_each(|flags| *flags &= !LISTED);
        self.whole.clear();
    }

    #[inline]
    fn free(&mut self, block: Block, _: Freed) -> Option<Block> {
        if block.words < LEAST {
            return Some(block);
        }
        let page = page_of(block.word);
        let flags = &mut self.pages[page as usize];
        if block.words == PAGE_WORDS {
            *flags = 0;
            self.whole.push(page);
            return None;
        }
        *flags |= LISTED;
        let stacks = match *flags & LARGE != 0 && block.words >= LARGE_WORDS {
            true => &mut self.large,
            false => &mut self.small,
        };
        stacks.push(&self.memory, block);
        None
    }

    fn take(&mut self, bytes: u32, _: Origin) -> Option<Block> {
        let words = (bytes / WORD).max(LEAST);
        let large = words >= LARGE_WORDS;
        let stacks = match large {
            true => &mut self.large,
            false => &mut self.small,
        };
        if let Some(block) = stacks.take(&self.memory, words) {
            return Some(block);
        }
        let page = self.whole.pop()?;
        self.pages[page as usize] |= TAKEN | if large { LARGE } else { 0 };
        Some(Self::page(page))
    }

    /// The objects that a block from 2 KB on serves depend on its page, so no request is certain to succeed.
    fn guaranteed(&self, bytes: u32) -> u32 {
        match bytes / WORD {
            0..LEAST | LARGE_WORDS.. => 0,
            words => least_of(class_of(words)) * WORD,
        }
    }

    fn page_for(&self, bytes: u32) -> Option<u32> {
        let words = (bytes / WORD).max(LEAST);
        let stacks = match words >= LARGE_WORDS {
            true => &self.large,
            false => &self.small,
        };
        let own = class_of(words);
        // Tried in turn: the next class upwards; the class itself, whose top may be too short; a whole page.
        let above = stacks.mask & (u64::MAX << own) & !(1 << own);
        let class = match above {
            0 => own,
            above => above.trailing_zeros() as usize,
        };
        match stacks.heads[class] {
            NONE => self.whole.last().copied(),
            word => Some(page_of(word)),
        }
    }

    fn blocks(&self) -> Vec<Block> {
        let mut all: Vec<Block> = self.whole.iter().map(|page| Self::page(*page)).collect();
        for (stacks, large) in [(&self.small, false), (&self.large, true)] {
            for class in 0..CLASSES {
                let listed = stacks.mask & 1 << class != 0;
                assert_eq!(listed, stacks.heads[class] != NONE, "N1: class {class}");
                for block in stacks.each(&self.memory, class) {
                    let flags = self.pages[page_of(block.word) as usize];
                    assert_eq!(class_of(block.words), class, "N1: {block:?}");
                    assert!(flags & LISTED != 0, "N4: {block:?}");
                    let apart = flags & LARGE != 0 && block.words >= LARGE_WORDS;
                    assert_eq!(apart, large, "N2: {block:?}");
                    all.push(block);
                }
            }
        }
        all
    }

    fn table_bytes(&self) -> usize {
        size_of::<u8>()
    }

    fn limits(&self) -> &'static [u32] {
        &LIMITS
    }

    fn sweeps_all(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_base::random::Random;

    #[test]
    fn every_size_is_in_the_class_that_its_minimum_says() {
        assert_eq!((least_of(0), least_of(30), least_of(LAST)), (2, 32, 10_240));
        for words in LEAST..=PAGE_WORDS {
            let class = class_of(words);
            assert!(least_of(class) <= words, "N1: {words} words in {class}");
            assert!(
                class == LAST || words < least_of(class + 1),
                "N1: {words} words in {class}"
            );
        }
    }

    /// Vectors instead of links: the judge of N3.
    #[derive(Default)]
    struct Dumb(Vec<Vec<Block>>);

    impl Dumb {
        fn take(&mut self, words: u32) -> Option<Block> {
            for class in class_of(words)..CLASSES {
                let blocks = &mut self.0[class];
                let look = if class == LAST {
                    usize::MAX
                } else {
                    LOOK as usize
                };
                let fits = |block: &&Block| block.words >= words;
                let found = blocks.iter().rev().take(look).find(fits).copied();
                if let Some(found) = found {
                    blocks.retain(|block| *block != found);
                    return Some(found);
                }
            }
            None
        }
    }

    #[test]
    fn blocks_are_those_that_vectors_give() {
        let memory = Memory::reserve(400).expect("address space");
        let mut stacks = Stacks::EMPTY;
        let mut dumb = Dumb(vec![Vec::new(); CLASSES]);
        let mut random = Random::new(9);
        let mut below = |bound: u64| random.below(bound);
        let (mut at, mut taken, mut missed, mut deep) = (PAGE_WORDS, 0, 0, 0);
        for step in 0..60_000 {
            // Sizes of every magnitude, so that classes above 248 bytes fill too.
            let bits = 2 + below(14);
            let words = LEAST + below(1 << bits) as u32;
            if below(2) == 0 && at + words < 400 * PAGE_WORDS {
                let block = Block { word: at, words };
                at += words;
                stacks.push(&memory, block);
                dumb.0[class_of(words)].push(block);
            } else if step % 5000 == 4999 {
                let page = 1 + below(u64::from(at / PAGE_WORDS)) as u32;
                stacks.forget(&memory, page);
                let elsewhere = |block: &Block| page_of(block.word) != page;
                dumb.0
                    .iter_mut()
                    .for_each(|blocks| blocks.retain(elsewhere));
            } else {
                let top = stacks.heads[class_of(words)];
                let got = stacks.take(&memory, words);
                assert_eq!(got, dumb.take(words), "N3: step {step}, {words} words");
                taken += u32::from(got.is_some());
                missed += u32::from(got.is_none());
                let below_top = |block: Block| {
                    top != NONE && block.word != top && class_of(block.words) == class_of(words)
                };
                deep += u32::from(got.is_some_and(below_top));
                // What was taken comes back, so that there is always something.
                if let Some(block) = got
                    && below(4) > 0
                {
                    stacks.push(&memory, block);
                    dumb.0[class_of(block.words)].push(block);
                }
            }
        }
        let counted = (taken > 1000, missed > 10, deep > 10);
        assert_eq!(counted, (true, true, true), "{taken}, {missed}, {deep}");
    }
}
