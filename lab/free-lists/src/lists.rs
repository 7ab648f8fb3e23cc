//! The two-level list: blocks by class within a page, pages by class within the space.
//!
//! ```text
//!   class 3   head ─► page 7 ⇄ page 2 ⇄ page 9          pages that have blocks of the class
//!                       │top      │top     │top
//!                       ▼         ▼        ▼
//!                     block ─► block ─► …               last in, first out, within the page
//! ```
//!
//! L1  A page is in the list of a class exactly if it has a block of the class. It is put in at the head.
//! L2  "The top" of a class is the first block of the head page. `try_top` looks at it and no further; `walk` looks at
//!     all blocks of all pages, in order, and takes the first that is large enough.
//! L3  `Index` knows which classes have pages, after each change; how it finds them changes only the speed (free_lists.F3).
//! L4  A page leaves a class in one step: its blocks are not looked at.
//!
//! Two stores hold the tops and the links of pages: [`Heavy`], descriptors of 56 bytes as in V8 at that time, and
//! [`Light`], of 4 bytes, with the links of a page in its top block (which is touched anyway, when it is taken).
//!
//! Not here: the choice of the class (`strategies`).

use super::list::Block;
use super::memory::{Memory, NONE, PAGE_WORDS, WORD, page_of};
use super::table::Table;

/// The fields of a block, by number of half word.
const SIZE: usize = 0;
const NEXT: usize = 1;
/// Fields of a top block only, and only with `Light`.
const PREV_PAGE: usize = 2;
const NEXT_PAGE: usize = 3;

/// Keeps tops and page links.
pub(crate) trait Store {
    /// Bytes for each class of each page.
    const DESCRIPTOR_BYTES: usize;
    fn new(classes: usize) -> Self;
    fn add_page(&mut self, page: u32);
    fn drop_page(&mut self, page: u32);
    /// Returns the top block of a page; [`NONE`]: it has none.
    fn top(&self, page: u32, class: usize) -> u32;
    /// Sets another top, where there was one.
    fn set_top(&mut self, memory: &Memory, page: u32, class: usize, top: u32);
    /// Sets the first block of a page, and links the page before `head` (a page or [`NONE`]).
    fn link(&mut self, memory: &Memory, page: u32, class: usize, top: u32, head: u32);
    /// Unlinks a page whose last block of the class is gone, or whose blocks all are. Returns the page before and the
    /// page after.
    fn unlink(&mut self, memory: &Memory, page: u32, class: usize) -> (u32, u32);
    fn next_page(&self, memory: &Memory, page: u32, class: usize) -> u32;
    /// Forgets all links and tops; pages stay.
    fn reset(&mut self);
}

/// A descriptor like V8's categories: a pointer to the list, a class, a sum, the top, two links.
#[repr(C)]
#[derive(Clone, Debug, Default)]
struct Category {
    list: u64,
    class: u64,
    available: u64,
    top: u64,
    prev: u64,
    next: u64,
    limit: u64,
}

const _: () = assert!(size_of::<Category>() == 56);

#[derive(Debug)]
pub(crate) struct Heavy {
    classes: usize,
    pages: Vec<Box<[Category]>>,
}

impl Heavy {
    fn of(&self, page: u32, class: usize) -> &Category {
        &self.pages[page as usize][class]
    }

    fn of_mut(&mut self, page: u32, class: usize) -> &mut Category {
        &mut self.pages[page as usize][class]
    }
}

impl Store for Heavy {
    const DESCRIPTOR_BYTES: usize = size_of::<Category>();

    fn new(classes: usize) -> Heavy {
        Heavy {
            classes,
            pages: Vec::new(),
        }
    }

    fn add_page(&mut self, page: u32) {
        let count = self.pages.len().max(page as usize + 1);
        self.pages.resize_with(count, Box::default);
        self.pages[page as usize] = vec![Category::default(); self.classes].into_boxed_slice();
    }

    fn drop_page(&mut self, page: u32) {
        self.pages[page as usize] = Box::default();
    }

    #[inline]
    fn top(&self, page: u32, class: usize) -> u32 {
        self.of(page, class).top as u32
    }

    #[inline]
    fn set_top(&mut self, _: &Memory, page: u32, class: usize, top: u32) {
        self.of_mut(page, class).top = u64::from(top);
    }

    #[inline]
    fn link(&mut self, _: &Memory, page: u32, class: usize, top: u32, head: u32) {
        let category = self.of_mut(page, class);
        category.top = u64::from(top);
        (category.prev, category.next) = (u64::from(NONE), u64::from(head));
        if head != NONE {
            self.of_mut(head, class).prev = u64::from(page);
        }
    }

    #[inline]
    fn unlink(&mut self, _: &Memory, page: u32, class: usize) -> (u32, u32) {
        let category = self.of_mut(page, class);
        category.top = u64::from(NONE);
        let (prev, next) = (category.prev as u32, category.next as u32);
        if prev != NONE {
            self.of_mut(prev, class).next = u64::from(next);
        }
        if next != NONE {
            self.of_mut(next, class).prev = u64::from(prev);
        }
        (prev, next)
    }

    #[inline]
    fn next_page(&self, _: &Memory, page: u32, class: usize) -> u32 {
        self.of(page, class).next as u32
    }

    fn reset(&mut self) {
        for category in self.pages.iter_mut().flat_map(|page| page.iter_mut()) {
            category.top = u64::from(NONE);
        }
    }
}

/// The place of the top block in its page, and a spare field that pads to four bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Top {
    word: u16,
    full: u16,
}

const _: () = assert!(size_of::<Top>() == 4 && PAGE_WORDS < u16::MAX as u32);

const NO_TOP: Top = Top { word: 0, full: 0 };

#[derive(Debug)]
pub(crate) struct Light {
    classes: usize,
    /// The tops of all classes of a page, page after page.
    tops: Vec<Top>,
}

impl Light {
    #[inline]
    fn at(&self, page: u32, class: usize) -> usize {
        page as usize * self.classes + class
    }

    #[inline]
    fn put(&mut self, page: u32, class: usize, top: u32) {
        let at = self.at(page, class);
        self.tops[at] = match top {
            NONE => NO_TOP,
            top => Top {
                word: (top % PAGE_WORDS) as u16,
                full: 1,
            },
        };
    }
}

impl Store for Light {
    const DESCRIPTOR_BYTES: usize = size_of::<Top>();

    fn new(classes: usize) -> Light {
        Light {
            classes,
            tops: Vec::new(),
        }
    }

    fn add_page(&mut self, page: u32) {
        let count = self.tops.len().max((page as usize + 1) * self.classes);
        self.tops.resize(count, NO_TOP);
    }

    fn drop_page(&mut self, _: u32) {}

    #[inline]
    fn top(&self, page: u32, class: usize) -> u32 {
        match self.tops[self.at(page, class)] {
            Top { full: 0, .. } => NONE,
            top => page * PAGE_WORDS + u32::from(top.word),
        }
    }

    #[inline]
    fn set_top(&mut self, memory: &Memory, page: u32, class: usize, top: u32) {
        let old = self.top(page, class);
        memory.set(top, PREV_PAGE, memory.get(old, PREV_PAGE));
        memory.set(top, NEXT_PAGE, memory.get(old, NEXT_PAGE));
        self.put(page, class, top);
    }

    #[inline]
    fn link(&mut self, memory: &Memory, page: u32, class: usize, top: u32, head: u32) {
        memory.set(top, PREV_PAGE, NONE);
        memory.set(top, NEXT_PAGE, head);
        if head != NONE {
            memory.set(self.top(head, class), PREV_PAGE, page);
        }
        self.put(page, class, top);
    }

    #[inline]
    fn unlink(&mut self, memory: &Memory, page: u32, class: usize) -> (u32, u32) {
        let top = self.top(page, class);
        let (prev, next) = (memory.get(top, PREV_PAGE), memory.get(top, NEXT_PAGE));
        if prev != NONE {
            memory.set(self.top(prev, class), NEXT_PAGE, next);
        }
        if next != NONE {
            memory.set(self.top(next, class), PREV_PAGE, prev);
        }
        self.put(page, class, NONE);
        (prev, next)
    }

    #[inline]
    fn next_page(&self, memory: &Memory, page: u32, class: usize) -> u32 {
        memory.get(self.top(page, class), NEXT_PAGE)
    }

    fn reset(&mut self) {
        self.tops.fill(NO_TOP);
    }
}

/// Knows which classes have pages.
pub(crate) trait Index {
    fn new(classes: usize) -> Self;
    fn filled(&mut self, class: usize);
    fn emptied(&mut self, class: usize);
    /// Returns the first class from `from` on that may have pages; the number of classes if none has.
    fn next(&self, from: usize) -> usize;
}

/// An index that knows nothing: each class is looked at.
#[derive(Debug)]
pub(crate) struct Plain;

impl Index for Plain {
    fn new(_: usize) -> Plain {
        Plain
    }
    #[inline]
    fn filled(&mut self, _: usize) {}
    #[inline]
    fn emptied(&mut self, _: usize) {}
    #[inline]
    fn next(&self, from: usize) -> usize {
        from
    }
}

/// The study's cache: for each class the first class from it on that has pages.
#[derive(Debug)]
pub(crate) struct Cached {
    next: Vec<u32>,
}

impl Index for Cached {
    fn new(classes: usize) -> Cached {
        Cached {
            next: vec![classes as u32; classes + 1],
        }
    }

    #[inline]
    fn filled(&mut self, class: usize) {
        let mut at = class;
        while self.next[at] > class as u32 {
            self.next[at] = class as u32;
            if at == 0 {
                break;
            }
            at -= 1;
        }
    }

    #[inline]
    fn emptied(&mut self, class: usize) {
        let after = self.next[class + 1];
        let mut at = class;
        while self.next[at] == class as u32 {
            self.next[at] = after;
            if at == 0 {
                break;
            }
            at -= 1;
        }
    }

    #[inline]
    fn next(&self, from: usize) -> usize {
        self.next[from] as usize
    }
}

/// An index with a bit for each class of a table with up to 128.
#[derive(Debug)]
pub(crate) struct Mask {
    bits: u128,
    classes: usize,
}

/// The same for tables of fewer than 64 classes: a search of one word costs a third of that of two.
#[derive(Debug)]
pub(crate) struct Narrow {
    bits: u64,
    classes: usize,
}

macro_rules! masks {
    ($($name:ident, $most:literal;)*) => {$(
        impl Index for $name {
            fn new(classes: usize) -> $name {
                assert!(classes < $most, "a table with more classes than bits");
                $name { bits: 0, classes }
            }
            #[inline]
            fn filled(&mut self, class: usize) {
                self.bits |= 1 << class;
            }
            #[inline]
            fn emptied(&mut self, class: usize) {
                self.bits &= !(1 << class);
            }
            #[inline]
            fn next(&self, from: usize) -> usize {
                let rest = self.bits >> from;
                if rest == 0 {
                    return self.classes;
                }
                from + rest.trailing_zeros() as usize
            }
        }
    )*};
}

masks! {
    Mask, 128;
    Narrow, 64;
}

/// The view that a strategy has of the lists.
pub(crate) trait Search {
    /// Takes the top of the class, if it is large enough (L2).
    fn try_top(&mut self, class: usize, bytes: u32) -> Option<Block>;
    /// Walks the class and takes the first block that is large enough (L2).
    fn walk(&mut self, class: usize, bytes: u32) -> Option<Block>;
    /// Returns the next class that may have pages (L3).
    fn next(&self, from: usize) -> usize;
    /// Returns the first page of a class.
    fn head(&self, class: usize) -> Option<u32>;

    /// Tries the tops of the classes `from..until`, upwards.
    #[inline]
    fn upwards(&mut self, from: usize, until: usize, bytes: u32) -> Option<Block> {
        let mut class = self.next(from);
        while class < until {
            if let Some(block) = self.try_top(class, bytes) {
                return Some(block);
            }
            class = self.next(class + 1);
        }
        None
    }
}

/// The lists of a space.
#[derive(Debug)]
pub(crate) struct Lists<S, I> {
    memory: Memory,
    table: &'static Table,
    store: S,
    index: I,
    heads: Vec<u32>,
    /// Words of the smallest block.
    least: u32,
}

impl<S: Store, I: Index> Lists<S, I> {
    pub(crate) fn new(memory: &Memory, table: &'static Table) -> Lists<S, I> {
        Lists {
            memory: memory.clone(),
            table,
            store: S::new(table.len()),
            index: I::new(table.len()),
            heads: vec![NONE; table.len()],
            least: table.min[0] / WORD,
        }
    }

    pub(crate) fn add_page(&mut self, page: u32) {
        self.store.add_page(page);
    }

    pub(crate) fn remove_page(&mut self, page: u32) {
        for class in 0..self.heads.len() {
            if self.store.top(page, class) != NONE {
                self.leave(page, class);
            }
        }
        self.store.drop_page(page);
    }

    pub(crate) fn reset(&mut self) {
        self.store.reset();
        for class in 0..self.heads.len() {
            if self.heads[class] != NONE {
                self.heads[class] = NONE;
                self.index.emptied(class);
            }
        }
    }

    fn leave(&mut self, page: u32, class: usize) {
        let (prev, next) = self.store.unlink(&self.memory, page, class);
        if prev == NONE {
            self.heads[class] = next;
            if next == NONE {
                self.index.emptied(class);
            }
        }
    }

    /// Puts a block in; returns it if it is too small to be kept.
    #[inline]
    pub(crate) fn free(&mut self, block: Block) -> Option<Block> {
        if block.words < self.least {
            return Some(block);
        }
        let class = (self.table.class)(block.words * WORD);
        let page = page_of(block.word);
        let top = self.store.top(page, class);
        self.memory.set(block.word, SIZE, block.words);
        self.memory.set(block.word, NEXT, top);
        if top == NONE {
            let head = self.heads[class];
            self.store.link(&self.memory, page, class, block.word, head);
            self.heads[class] = page;
            if head == NONE {
                self.index.filled(class);
            }
        } else {
            self.store.set_top(&self.memory, page, class, block.word);
        }
        None
    }

    /// Takes the top block of a page.
    #[inline]
    fn pop(&mut self, page: u32, class: usize, top: u32) {
        match self.memory.get(top, NEXT) {
            NONE => self.leave(page, class),
            next => self.store.set_top(&self.memory, page, class, next),
        }
    }

    /// Puts the page with the largest `key` at the head of each class, and so on downwards.
    pub(crate) fn sort_pages(&mut self, key: &dyn Fn(u32) -> u32) {
        for class in 0..self.heads.len() {
            let mut pages = Vec::new();
            let mut page = self.heads[class];
            while page != NONE {
                pages.push((page, self.store.top(page, class)));
                page = self.store.next_page(&self.memory, page, class);
            }
            for (page, _) in &pages {
                self.leave(*page, class);
            }
            // Each page is put in at the head, so the fullest comes last.
            pages.sort_by_key(|(page, _)| (key(*page), core::cmp::Reverse(*page)));
            for (page, top) in pages {
                let head = self.heads[class];
                self.store.link(&self.memory, page, class, top, head);
                self.heads[class] = page;
                if head == NONE {
                    self.index.filled(class);
                }
            }
        }
    }

    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut all = Vec::new();
        for class in 0..self.heads.len() {
            let mut page = self.heads[class];
            while page != NONE {
                let mut word = self.store.top(page, class);
                while word != NONE {
                    let words = self.memory.get(word, SIZE);
                    assert_eq!((self.table.class)(words * WORD), class, "L1");
                    assert_eq!(page_of(word), page, "L1");
                    all.push(Block { word, words });
                    word = self.memory.get(word, NEXT);
                }
                page = self.store.next_page(&self.memory, page, class);
            }
            let skipped = self.index.next(class) > class;
            assert!(!skipped || self.heads[class] == NONE, "L3: class {class}");
        }
        all
    }

    pub(crate) fn table_bytes(&self) -> usize {
        S::DESCRIPTOR_BYTES * self.heads.len()
    }
}

impl<S: Store, I: Index> Search for Lists<S, I> {
    #[inline]
    fn try_top(&mut self, class: usize, bytes: u32) -> Option<Block> {
        let page = self.heads[class];
        if page == NONE {
            return None;
        }
        let word = self.store.top(page, class);
        let words = self.memory.get(word, SIZE);
        if words * WORD < bytes {
            return None;
        }
        self.pop(page, class, word);
        Some(Block { word, words })
    }

    fn walk(&mut self, class: usize, bytes: u32) -> Option<Block> {
        let mut page = self.heads[class];
        while page != NONE {
            let mut before = NONE;
            let mut word = self.store.top(page, class);
            while word != NONE {
                let words = self.memory.get(word, SIZE);
                if words * WORD >= bytes {
                    if before == NONE {
                        self.pop(page, class, word);
                    } else {
                        let next = self.memory.get(word, NEXT);
                        self.memory.set(before, NEXT, next);
                    }
                    return Some(Block { word, words });
                }
                before = word;
                word = self.memory.get(word, NEXT);
            }
            page = self.store.next_page(&self.memory, page, class);
        }
        None
    }

    #[inline]
    fn next(&self, from: usize) -> usize {
        self.index.next(from)
    }

    fn head(&self, class: usize) -> Option<u32> {
        match self.heads[class] {
            NONE => None,
            page => Some(page),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_know_the_next_class() {
        fn walk<I: Index>(classes: usize) -> Vec<usize> {
            let mut index = I::new(classes);
            let mut seen = Vec::new();
            for class in [3, 0, 45, 30] {
                index.filled(class);
            }
            index.emptied(30);
            let mut class = index.next(0);
            while class < classes {
                seen.push(class);
                class = index.next(class + 1);
            }
            seen
        }
        assert_eq!(walk::<Narrow>(46), [0, 3, 45]);
        assert_eq!(walk::<Mask>(46), [0, 3, 45]);
        assert_eq!(walk::<Cached>(46), [0, 3, 45]);
    }
}
