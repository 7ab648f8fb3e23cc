//! A variable-size space: pages, the area that is filled, and the handling of the rest.
//!
//! ```text
//!   area [top, limit) ─ too short ─► rest back to the list ─► take ─► sweep a page, take ─► add a page, take
//!                                                                              └ limit reached: sweep all, take
//! ```
//!
//! V1  For each page: allocated + free + wasted = its words. The area counts as allocated, whole. After the area is
//!     given back and all is swept, allocated is what is live ([`VarSpace::check`]).
//! V2  An object's first word is for the space and the client: the object's words (lower half, written here), and 32
//!     bits for the client. So a page can be walked, and an object moved, without its kind.
//! V3  An object stays where it is unless its page is evacuated, which only a space whose objects may move does.
//! V4  An allocation collects nothing. It may sweep pages.
//! V5  `committed` is whole pages, `resident` those pages of the kernel that were ever written to since they were
//!     mapped or purged.
//!
//! Not here: the choice of the block (`strategies`), sweeping and moving (`sweep`).

use core::ptr::NonNull;

use super::list::{Block, FreeList, Freed, Origin};
use super::memory::{Memory, NONE, PAGE_WORDS, WORD, page_of};
use super::strategy::Strategy;
use super::table::PAGE_BYTES;

/// Bytes of the largest object: half a page. A larger one has a mapping of its own, and no policy.
pub const MAX_BYTES: u32 = PAGE_BYTES / 2;
/// Words of the mark bitmap of a page.
pub(crate) const MARK_WORDS: usize = PAGE_WORDS as usize / 64;
/// Words of one of the kernel's pages.
const OS_WORDS: u32 = 512;

/// The pages that are emptied by moving what is left in them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compaction {
    /// None: objects may not move, or it is not worth it.
    #[default]
    Never,
    /// V8's way: pages at least 70 % free, the emptiest first, at most 4 MiB of objects in a collection.
    Sparse,
    /// As many pages as fit, of those that are at least half free.
    Always,
}

/// The order in which pages are swept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SweepOrder {
    /// The emptiest first, so that there is room early: V8's old space.
    #[default]
    Emptiest,
    /// As the pages lie: V8's map space. Only a policy that sorts then knows which page is the fullest.
    Address,
}

/// The settings of a space.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The pages that are evacuated in a collection; anything but `Never` allows objects to move.
    pub compaction: Compaction,
    /// Whether the kernel's pages within free blocks are given back, except those that will be needed before the next
    /// collection.
    pub purge: bool,
    /// The order in which pages are swept.
    pub sweep_order: SweepOrder,
    /// The most bytes of pages.
    pub limit_bytes: usize,
    /// The clock that times sweeping, in nanoseconds; `None`: it is not timed.
    pub clock: Option<fn() -> u64>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            compaction: Compaction::Never,
            purge: false,
            sweep_order: SweepOrder::Emptiest,
            limit_bytes: 1 << 30,
            clock: None,
        }
    }
}

/// The figures of a space: its work, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Bytes of pages.
    pub committed_bytes: usize,
    /// Committed bytes that were written to (V5).
    pub resident_bytes: usize,
    /// Bytes of the list's descriptors; not in the committed bytes.
    pub table_bytes: usize,
    /// Committed bytes in objects, and in the area where it has not been given out yet.
    pub allocated_bytes: usize,
    /// Committed bytes in blocks of the list.
    pub free_bytes: usize,
    /// Committed bytes in holes that the list does not keep.
    pub wasted_bytes: usize,
    /// Number of times that the area was used up.
    pub refills_total: u64,
    /// Number of pages swept.
    pub swept_pages_total: u64,
    /// Nanoseconds of sweeping, by the clock of the settings.
    pub sweeping_ns_total: u64,
    /// Number of pages added.
    pub added_pages_total: u64,
    /// Number of pages given back.
    pub released_pages_total: u64,
    /// Bytes of objects moved.
    pub moved_bytes_total: u64,
    /// Bytes purged.
    pub purged_bytes_total: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) taken: bool,
    pub(crate) swept: bool,
    pub(crate) allocated: u32,
    pub(crate) free: u32,
    pub(crate) wasted: u32,
    /// Marked words in the last collection.
    pub(crate) live: u32,
    /// Pages of the kernel that were not written to (V5): a bit each.
    pub(crate) untouched: u64,
    pub(crate) marks: Box<[u64]>,
}

/// Creates the entry of a page that does not exist, or was just taken.
fn fresh() -> Page {
    Page {
        taken: false,
        swept: true,
        allocated: 0,
        free: 0,
        wasted: 0,
        live: 0,
        untouched: u64::MAX,
        marks: Box::default(),
    }
}

/// The area: words that are given out one after another. `start` is where it began, or up to where it was last
/// accounted for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Area {
    start: u32,
    top: u32,
    limit: u32,
}

/// A variable-size space. Single-threaded.
pub struct VarSpace {
    pub(crate) memory: Memory,
    pub(crate) list: Box<dyn FreeList>,
    /// The areas of the mutator and of the collector (in V8 the collector's threads have areas of their own); two more
    /// for each further group that the strategy separates.
    areas: Vec<Area>,
    limits: &'static [u32],
    /// Number of words from which the first of `limits` holds, so that most objects need one comparison.
    apart_words: u32,
    /// The pages by number; 0 is never used.
    pub(crate) pages: Vec<Page>,
    /// Numbers of pages that were given back.
    vacant: Vec<u32>,
    taken: usize,
    /// Pages not swept yet, the next one last.
    pub(crate) unswept: Vec<u32>,
    pub(crate) settings: Settings,
    pub(crate) figures: Figures,
}

impl VarSpace {
    /// Creates an empty space. `None`: the kernel refused the address space.
    pub fn new(strategy: Strategy, settings: Settings) -> Option<VarSpace> {
        let pages = (settings.limit_bytes / PAGE_BYTES as usize).clamp(1, 1 << 16) as u32;
        let memory = Memory::reserve(pages)?;
        let list = (strategy.make)(&memory);
        Some(VarSpace {
            areas: vec![Area::default(); 2 * (list.limits().len() + 1)],
            limits: list.limits(),
            apart_words: list.limits().first().map_or(u32::MAX, |bytes| bytes / WORD),
            list,
            memory,
            pages: vec![fresh()],
            vacant: Vec::new(),
            taken: 0,
            unswept: Vec::new(),
            settings,
            figures: Figures::default(),
        })
    }

    /// Returns room for an object of `bytes` bytes (8 to [`MAX_BYTES`]; rounded up to words, two at least), or `None`:
    /// the limit is reached though all is swept. The object's first word is V2's; the rest is what it was. Cost: an
    /// addition, a comparison, two stores; every few kilobytes the slow path.
    #[inline]
    pub fn alloc(&mut self, bytes: u32, origin: Origin) -> Option<NonNull<u8>> {
        let words = bytes.div_ceil(WORD).max(2);
        let mut side = usize::from(origin == Origin::Gc);
        if words >= self.apart_words {
            side += self.group(words);
        }
        let mut area = &mut self.areas[side];
        if area.limit - area.top < words {
            self.refill(words, origin, side)?;
            area = &mut self.areas[side];
        }
        let word = area.top;
        area.top += words;
        self.memory.set(word, 0, words);
        Some(self.memory.at(word))
    }

    /// Returns the index of the first area of the group that an object belongs to.
    #[inline]
    fn group(&self, words: u32) -> usize {
        let reached = self.limits.iter().filter(|limit| words * WORD >= **limit);
        2 * reached.count()
    }

    /// Takes another area, since the present one is too short for `words`.
    #[cold]
    #[inline(never)]
    fn refill(&mut self, words: u32, origin: Origin, side: usize) -> Option<()> {
        let bytes = words * WORD;
        if bytes > MAX_BYTES {
            return None;
        }
        self.figures.refills_total += 1;
        self.retire(side);
        if self.next_area(bytes, origin, side) {
            return Some(());
        }
        while self.sweep_next() {
            if self.next_area(bytes, origin, side) {
                return Some(());
            }
            if !self.list.sweeps_all() {
                break;
            }
        }
        if self.add_page() && self.next_area(bytes, origin, side) {
            return Some(());
        }
        self.finish_sweep();
        self.next_area(bytes, origin, side).then_some(())
    }

    /// Takes a block as the area; reports whether there was one.
    fn next_area(&mut self, bytes: u32, origin: Origin, side: usize) -> bool {
        let Some(block) = self.list.take(bytes, origin) else {
            return false;
        };
        debug_assert!(block.words * WORD >= bytes);
        let page = &mut self.pages[page_of(block.word) as usize];
        page.free -= block.words;
        page.allocated += block.words;
        self.areas[side] = Area {
            start: block.word,
            top: block.word,
            limit: block.word + block.words,
        };
        true
    }

    /// Gives up all areas.
    pub(crate) fn retire_all(&mut self) {
        for side in 0..self.areas.len() {
            self.retire(side);
        }
    }

    /// Gives up an area: its rest becomes free.
    fn retire(&mut self, side: usize) {
        let area = core::mem::take(&mut self.areas[side]);
        if area.limit == NONE {
            return;
        }
        self.touched(area);
        if area.limit > area.top {
            let rest = Block {
                word: area.top,
                words: area.limit - area.top,
            };
            self.pages[page_of(rest.word) as usize].allocated -= rest.words;
            self.free(rest, Freed::Rest);
        }
    }

    /// Notes that what the area has given out was written to (V5).
    fn touched(&mut self, area: Area) {
        // A list writes to the first two words of a block.
        let end = area.top.max(area.start + 1);
        let page = &mut self.pages[page_of(area.start) as usize];
        page.untouched &= !os_mask(area.start, end);
    }

    /// Passes a block to the list and counts what the list does not keep.
    pub(crate) fn free(&mut self, block: Block, why: Freed) {
        let page = &mut self.pages[page_of(block.word) as usize];
        page.free += block.words;
        // The list writes its header.
        page.untouched &= !os_mask(block.word, block.word + 1);
        if let Some(lost) = self.list.free(block, why) {
            let page = &mut self.pages[page_of(lost.word) as usize];
            page.free -= lost.words;
            page.wasted += lost.words;
        }
    }

    /// Adds a page, which is free as a whole; `false`: the limit is reached.
    fn add_page(&mut self) -> bool {
        let number = match self.vacant.pop() {
            Some(number) => number,
            None if self.pages.len() as u32 > self.memory.pages() => return false,
            None => {
                self.pages.push(fresh());
                self.pages.len() as u32 - 1
            }
        };
        let page = &mut self.pages[number as usize];
        *page = fresh();
        page.taken = true;
        page.marks = vec![0; MARK_WORDS].into_boxed_slice();
        self.taken += 1;
        self.figures.added_pages_total += 1;
        self.list.add_page(number);
        let block = Block {
            word: number * PAGE_WORDS,
            words: PAGE_WORDS,
        };
        self.free(block, Freed::Page);
        true
    }

    /// Gives back a page in which nothing lives.
    pub(crate) fn release(&mut self, number: u32) {
        self.list.remove_page(number);
        self.memory.purge(number * PAGE_WORDS, PAGE_WORDS);
        self.pages[number as usize] = fresh();
        self.vacant.push(number);
        self.taken -= 1;
        self.figures.released_pages_total += 1;
    }

    /// Returns the numbers of the pages that exist.
    pub(crate) fn taken_pages(&self) -> Vec<u32> {
        let numbers = 1..self.pages.len() as u32;
        numbers
            .filter(|number| self.pages[*number as usize].taken)
            .collect()
    }

    /// Returns what the space holds and has done. Cost: a few additions for each page.
    pub fn figures(&self) -> Figures {
        let mut figures = self.figures;
        figures.committed_bytes = self.taken * PAGE_BYTES as usize;
        figures.table_bytes = self.taken * self.list.table_bytes();
        let bytes = |words: u32| words as usize * WORD as usize;
        for page in self.pages.iter().filter(|page| page.taken) {
            figures.allocated_bytes += bytes(page.allocated);
            figures.free_bytes += bytes(page.free);
            figures.wasted_bytes += bytes(page.wasted);
            figures.resident_bytes += (64 - page.untouched.count_ones() as usize) * 4096;
        }
        for area in self.areas.iter().filter(|area| area.limit != NONE) {
            let page = &self.pages[page_of(area.start) as usize];
            let open = os_mask(area.start, area.top.max(area.start + 1)) & page.untouched;
            figures.resident_bytes += open.count_ones() as usize * 4096;
        }
        figures
    }

    /// Returns the nanoseconds of sweeping so far, by the clock of the settings.
    pub fn sweeping_ns(&self) -> u64 {
        self.figures.sweeping_ns_total
    }

    /// Returns the name of strategy and variant.
    pub fn strategy(&self) -> &'static str {
        self.list.name()
    }

    /// Returns the number of an object's first word, by which a client may identify it in 32 bits.
    #[inline]
    pub fn word_of(&self, object: NonNull<u8>) -> u32 {
        ((object.as_ptr().addr() - self.memory.at(0).as_ptr().addr()) / WORD as usize) as u32
    }

    /// Returns the address of a word.
    #[inline]
    pub fn address(&self, word: u32) -> NonNull<u8> {
        self.memory.at(word)
    }

    /// Asserts V1, that blocks overlap neither each other nor marked objects of swept pages, and that the list holds
    /// what the pages count as free. Cost: a look at everything.
    ///
    /// # Panics
    /// An invariant does not hold.
    pub fn check(&self) {
        let mut blocks = self.list.blocks();
        blocks.sort_unstable();
        for pair in blocks.windows(2) {
            assert!(
                pair[0].word + pair[0].words <= pair[1].word,
                "F1: {pair:?} overlap"
            );
        }
        let mut free = vec![0; self.pages.len()];
        for block in &blocks {
            let last = page_of(block.word + block.words - 1);
            assert_eq!(last, page_of(block.word), "F1: {block:?} is of two pages");
            for area in &self.areas {
                let inside = (area.top..area.limit).contains(&block.word);
                assert!(!inside, "F1: {block:?} is an area's");
            }
            free[last as usize] += block.words;
        }
        for (number, page) in self.pages.iter().enumerate().filter(|(_, page)| page.taken) {
            let listed = free[number];
            assert_eq!(
                listed,
                page.free,
                "V1: page {number} in {}",
                self.strategy()
            );
            let sum = page.allocated + page.free + page.wasted;
            assert_eq!(sum, PAGE_WORDS, "V1: page {number} in {}", self.strategy());
        }
        let in_list: u32 = blocks.iter().map(|block| block.words).sum();
        let in_pages: u32 = self.pages.iter().map(|page| page.free).sum();
        assert_eq!(in_list, in_pages, "V1: a block of a page that is gone");
    }
}

/// Returns the kernel's pages of `[from, to)`, all in one page of the space, as bits.
fn os_mask(from: u32, to: u32) -> u64 {
    let first = from % PAGE_WORDS / OS_WORDS;
    let last = (to.max(from + 1) - 1) % PAGE_WORDS / OS_WORDS;
    (u64::MAX >> (63 - last)) & (u64::MAX << first)
}
