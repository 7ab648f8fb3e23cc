//! A collection of a variable-size space: marks in, free blocks out, and moving what is left in sparse pages.
//!
//! ```text
//!   begin ─► the client marks ─► end: empty pages go, sparse ones are evacuated, the others wait to be swept
//!                                            sweep_next: one page, in the settings' order ─► holes ─► the list
//! ```
//!
//! W1  `begin` sweeps what the last collection left, since its marks are about to be lost. The time of that, and of
//!     `end`, is the end-of-cycle latency.
//! W2  Between `begin` and `end` nothing is allocated. An object that is not marked at `end` is gone.
//! W3  One empty page is kept, as V8 does: it is about to be needed.
//! W4  Evacuation moves the marked objects of a page by allocating them anew for the origin `Gc`. It stops where that
//!     fails: the page is then swept like the others, and its objects that were moved are garbage.
//!
//! Not here: marking, which the client does.

use core::ptr::NonNull;

use super::list::{Block, Freed, Origin};
use super::memory::{PAGE_WORDS, WORD, page_of};
use super::space::{Compaction, SweepOrder, VarSpace};

/// Free words of a page that make it sparse (70 %, V8's figure), and those for `Always`.
const SPARSE: u32 = PAGE_WORDS / 10 * 7;
const HALF: u32 = PAGE_WORDS / 2;
/// The most words of objects that one collection moves (V8's figure); `Always`: eight times that.
const MOVED: u32 = (4 << 20) / WORD;

impl VarSpace {
    /// Begins a collection: the list is empty from now on, and no object is marked.
    pub fn begin(&mut self) {
        self.finish_sweep();
        self.retire_all();
        self.list.reset();
        for page in self.pages.iter_mut().filter(|page| page.taken) {
            page.marks.fill(0);
            page.live = 0;
        }
    }

    /// Marks an object; `false`: it was marked already. Cost: a few loads and two stores.
    #[inline]
    pub fn mark(&mut self, word: u32) -> bool {
        let words = self.memory.get(word, 0);
        let page = &mut self.pages[page_of(word) as usize];
        let at = (word % PAGE_WORDS) as usize;
        let bit = 1u64 << (at % 64);
        if page.marks[at / 64] & bit != 0 {
            return false;
        }
        page.marks[at / 64] |= bit;
        page.live += words;
        true
    }

    /// Ends the marking. `moved` gets the old and the new word of each object that was moved. `wanted_bytes`: what will
    /// be allocated before the next collection (for purging). Returns the live bytes.
    pub fn end(&mut self, wanted_bytes: usize, moved: &mut dyn FnMut(u32, u32)) -> usize {
        let mut kept_empty = false;
        let mut waiting = Vec::new();
        let mut live = 0;
        for number in self.taken_pages() {
            let page = &mut self.pages[number as usize];
            live += page.live as usize * WORD as usize;
            if page.live == 0 && core::mem::replace(&mut kept_empty, true) {
                self.release(number);
                continue;
            }
            // Pages that are not swept count as allocated, so that space.V1 holds.
            (page.allocated, page.free, page.wasted) = (PAGE_WORDS, 0, 0);
            page.swept = false;
            waiting.push(number);
        }
        // The first to be swept is taken from the end.
        match self.settings.sweep_order {
            SweepOrder::Emptiest => {
                waiting.sort_by_key(|number| core::cmp::Reverse(self.pages[*number as usize].live));
            }
            SweepOrder::Address => waiting.reverse(),
        }
        let sparse = self.choose(&waiting);
        waiting.retain(|number| !sparse.contains(number));
        self.unswept = waiting;
        for number in sparse {
            self.evacuate(number, moved);
        }
        if self.settings.purge {
            self.finish_sweep();
            self.purge(wanted_bytes);
        }
        live
    }

    /// Returns the pages to evacuate, the emptiest first.
    fn choose(&self, waiting: &[u32]) -> Vec<u32> {
        let (least, most) = match self.settings.compaction {
            Compaction::Never => return Vec::new(),
            Compaction::Sparse => (SPARSE, MOVED),
            Compaction::Always => (HALF, 8 * MOVED),
        };
        let live = |number: &u32| self.pages[*number as usize].live;
        let sparse = |number: &u32| PAGE_WORDS - live(number) >= least && live(number) > 0;
        let mut chosen: Vec<u32> = waiting.iter().copied().filter(sparse).collect();
        chosen.sort_by_key(|number| (live(number), *number));
        let mut sum = 0;
        chosen.retain(|number| {
            sum += live(number);
            sum <= most
        });
        // A single page would only change places with a fresh one.
        if chosen.len() < 2 {
            chosen.clear();
        }
        chosen
    }

    /// Evacuates a page (W4).
    fn evacuate(&mut self, number: u32, moved: &mut dyn FnMut(u32, u32)) {
        let objects: Vec<u32> = self.marked(number).collect();
        for (index, from) in objects.iter().enumerate() {
            let words = self.memory.get(*from, 0);
            let Some(to) = self.alloc(words * WORD, Origin::Gc) else {
                // Objects that were moved are garbage here; the rest stays.
                for gone in &objects[..index] {
                    self.unmark(*gone);
                }
                self.unswept.push(number);
                return;
            };
            // SAFETY: space.V2: both have this many words, one is marked and the other new, so they are apart.
            unsafe {
                let from = self.memory.at(*from).as_ptr();
                core::ptr::copy_nonoverlapping(from, to.as_ptr(), (words * WORD) as usize);
            }
            self.figures.moved_bytes_total += u64::from(words * WORD);
            moved(*from, self.word_of(to));
        }
        self.release(number);
    }

    fn unmark(&mut self, word: u32) {
        let words = self.memory.get(word, 0);
        let page = &mut self.pages[page_of(word) as usize];
        let at = (word % PAGE_WORDS) as usize;
        page.marks[at / 64] &= !(1 << (at % 64));
        page.live -= words;
    }

    /// Returns the words at which marked objects of a page begin.
    fn marked(&self, number: u32) -> impl Iterator<Item = u32> {
        let marks = self.pages[number as usize].marks.iter().enumerate();
        marks.flat_map(move |(index, bits)| {
            let mut bits = *bits;
            core::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros())?;
                bits &= bits - 1;
                Some(number * PAGE_WORDS + index as u32 * 64 + bit)
            })
        })
    }

    /// Sweeps the next page; `false`: none is left.
    pub fn sweep_next(&mut self) -> bool {
        let Some(number) = self.unswept.pop() else {
            return false;
        };
        let start = self.settings.clock.map(|clock| clock());
        self.sweep(number);
        if self.unswept.is_empty() {
            let pages = &self.pages;
            let live_bytes = |number: u32| pages[number as usize].live * WORD;
            self.list.all_swept(&live_bytes);
        }
        if let (Some(clock), Some(start)) = (self.settings.clock, start) {
            self.figures.sweeping_ns_total += clock().saturating_sub(start);
        }
        true
    }

    /// Sweeps all pages that are left.
    pub fn finish_sweep(&mut self) {
        while self.sweep_next() {}
    }

    /// Sweeps a page. Cost: a look at 4 KiB of marks, and at the first word of each live object.
    fn sweep(&mut self, number: u32) {
        self.figures.swept_pages_total += 1;
        let start = number * PAGE_WORDS;
        let marks = core::mem::take(&mut self.pages[number as usize].marks);
        let page = &mut self.pages[number as usize];
        page.allocated = page.live;
        page.swept = true;
        let mut hole = start;
        for (index, bits) in marks.iter().enumerate() {
            let mut bits = *bits;
            while bits != 0 {
                let word = start + index as u32 * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                if word > hole {
                    self.free(
                        Block {
                            word: hole,
                            words: word - hole,
                        },
                        Freed::Sweep,
                    );
                }
                hole = word + self.memory.get(word, 0);
            }
        }
        let end = start + PAGE_WORDS;
        if end > hole {
            self.free(
                Block {
                    word: hole,
                    words: end - hole,
                },
                Freed::Sweep,
            );
        }
        let page = &mut self.pages[number as usize];
        page.marks = marks;
    }

    /// Gives whole pages of the kernel within free blocks back, those of the emptiest pages first, as far as more is
    /// free than will be needed.
    fn purge(&mut self, wanted_bytes: usize) {
        let mut blocks = self.list.blocks();
        let live = |block: &Block| self.pages[page_of(block.word) as usize].live;
        blocks.sort_by_key(|block| (core::cmp::Reverse(live(block)), block.word));
        let mut keep = wanted_bytes;
        for block in blocks {
            let bytes = block.words as usize * WORD as usize;
            if keep >= bytes {
                keep -= bytes;
                continue;
            }
            keep = 0;
            // The list's own words stay as they are.
            let (word, words) = (block.word + 2, block.words - 2);
            let purged = self.memory.purge(word, words);
            if purged > 0 {
                let first = word.next_multiple_of(512);
                let count = (purged / 4096) as u32;
                let page = &mut self.pages[page_of(word) as usize];
                let mask = (u64::MAX >> (64 - count)) << (first % PAGE_WORDS / 512);
                let dirty = mask & !page.untouched;
                page.untouched |= mask;
                self.figures.purged_bytes_total += u64::from(dirty.count_ones()) * 4096;
            }
        }
    }

    /// Asserts that every marked object of a swept page lies outside all free blocks. Cost: a look at everything.
    ///
    /// # Panics
    /// A marked object lies in a free block.
    pub fn check_marked(&self) {
        let mut blocks = self.list.blocks();
        blocks.sort_unstable();
        for number in self.taken_pages() {
            if !self.pages[number as usize].swept {
                continue;
            }
            for word in self.marked(number) {
                let after = blocks.partition_point(|block| block.word <= word);
                let before = after.checked_sub(1).map(|at| blocks[at]);
                let apart = before.is_none_or(|block| block.word + block.words <= word);
                assert!(apart, "F1: a marked object at {word} lies in {before:?}");
            }
        }
    }

    /// Passes the address of each marked object to `each`, for clients that walk.
    pub fn each_marked(&self, each: &mut dyn FnMut(NonNull<u8>)) {
        for number in self.taken_pages() {
            self.marked(number)
                .for_each(|word| each(self.memory.at(word)));
        }
    }
}
