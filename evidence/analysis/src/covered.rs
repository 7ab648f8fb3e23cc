//! For a process that was not recorded from its birth: which pages are known from end to end.
//!
//! ```text
//!   page     |     4096     |     4096     |     4096     |
//!   blocks    K K  K   K K K  K   ?    K K                     K: acquired since recording began, ?: before
//!             known          not known       not known
//! ```
//!
//! C1  A page is known if blocks that were seen to be acquired have covered all of it, one after the other or side by
//!     side. If none of them lives any more, the page is free: nothing from before the recording is left on it.
//! C2  What is mapped or unmapped is no longer known.
//! C3  If acquisitions were missed at unknown times, no page is known.
//!
//! Cost: two bits for 32 bytes at most, and a look-up for each block; nothing for a process recorded from its birth.
//! Not here: which pages are free (`giveback.rs`), what is promised of them (`findings.rs`).

use rustc_hash::FxHashMap;

const PAGE: u64 = 4096;
/// The bytes of a bit: blocks of all allocators begin at multiples of it.
const GRAIN: u64 = 16;
/// The pages in one word of `whole`.
const WORD: u64 = 64;
/// The bits of a page all of whose blocks were seen.
const WHOLE: [u64; 4] = [u64::MAX; 4];

/// The pages that are known from end to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Covered {
    /// Whether acquisitions were missed at unknown times (C3).
    blind: bool,
    /// By [`WORD`] pages, a bit for each that is known.
    whole: FxHashMap<u64, u64>,
    /// By page, a bit for each [`GRAIN`], while it is not whole.
    partly: FxHashMap<u64, [u64; 4]>,
}

impl Covered {
    /// Creates the table, in which nothing is known yet; nothing will be, if acquisitions were missed at unknown
    /// times (C3).
    pub fn new(blind: bool) -> Covered {
        Covered {
            blind,
            ..Covered::default()
        }
    }

    /// Notes that a block lies here. Cost: a look-up for each of its ends, and for each 64 pages between them.
    pub fn cover(&mut self, addr: u64, usable: u64) {
        if self.blind || usable == 0 {
            return;
        }
        // The last grain is at most shared with the next block's header.
        let (begin, end) = (addr / GRAIN, addr.saturating_add(usable).div_ceil(GRAIN));
        let of_page = PAGE / GRAIN;
        let (first, last) = (begin.div_ceil(of_page), end / of_page);
        if first > last {
            return self.cover_partly(begin / of_page, begin % of_page, end % of_page);
        }
        if begin % of_page != 0 {
            self.cover_partly(first - 1, begin % of_page, of_page);
        }
        if end % of_page != 0 {
            self.cover_partly(last, 0, end % of_page);
        }
        let mut page = first;
        while page < last {
            let (word, bit) = (page / WORD, page % WORD);
            let many = (WORD - bit).min(last - page);
            *self.whole.entry(word).or_default() |= bits(bit, bit + many);
            page += many;
        }
    }

    /// Covers grains `from..to` of a page.
    fn cover_partly(&mut self, page: u64, from: u64, to: u64) {
        if self.is_known(page) {
            return;
        }
        let grains = self.partly.entry(page).or_default();
        for (word, grains) in (0..).zip(grains.iter_mut()) {
            let begin = word * WORD;
            let (from, to) = (from.max(begin), to.min(begin + WORD));
            if from < to {
                *grains |= bits(from - begin, to - begin);
            }
        }
        if *grains == WHOLE {
            self.partly.remove(&page);
            *self.whole.entry(page / WORD).or_default() |= 1 << (page % WORD);
        }
    }

    /// Forgets a range that the program mapped or unmapped (C2).
    pub fn forget(&mut self, addr: u64, len: u64) {
        let (first, end) = (addr / PAGE, addr.saturating_add(len).div_ceil(PAGE));
        let (first_word, last_word) = (first / WORD, end.saturating_sub(1) / WORD);
        let clear = |word: u64, pages: &mut u64| {
            if (first_word..=last_word).contains(&word) {
                let begin = word * WORD;
                let (from, to) = (first.max(begin) - begin, end.min(begin + WORD) - begin);
                *pages &= !bits(from, to);
            }
        };
        if end <= first {
            return;
        }
        let few = end - first <= self.partly.len().max(self.whole.len()) as u64;
        match few {
            true => {
                (first..end).for_each(|page| _ = self.partly.remove(&page));
                for word in first_word..=last_word {
                    if let Some(pages) = self.whole.get_mut(&word) {
                        clear(word, pages);
                    }
                }
            }
            false => {
                self.partly.retain(|page, _| !(first..end).contains(page));
                self.whole
                    .iter_mut()
                    .for_each(|(word, pages)| clear(*word, pages));
            }
        }
    }

    fn is_known(&self, page: u64) -> bool {
        let pages = self.whole.get(&(page / WORD)).copied().unwrap_or(0);
        pages >> (page % WORD) & 1 == 1
    }

    /// Returns the bytes of known pages between two page boundaries.
    pub fn known_bytes(&self, from: u64, to: u64) -> u64 {
        let pages = from / PAGE..to / PAGE;
        pages.filter(|page| self.is_known(*page)).count() as u64 * PAGE
    }
}

/// Returns bits `from..to`, `from < to <= 64`.
fn bits(from: u64, to: u64) -> u64 {
    let below = |bit: u64| match bit {
        64 => u64::MAX,
        bit => (1 << bit) - 1,
    };
    below(to) & !below(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x7F00_0000_0000;

    #[test]
    fn a_page_is_known_once_blocks_have_covered_all_of_it() {
        let mut known = Covered::new(false);
        // Chunks of 1,024 bytes, each with a header of 8 in front of the next one's block.
        let block = |index: u64| BASE + index * 1024;
        for index in [0, 1, 3] {
            known.cover(block(index), 1016);
        }
        assert_eq!(known.known_bytes(BASE, BASE + PAGE), 0, "a gap of 1,024");
        known.cover(block(2), 1016);
        assert_eq!(known.known_bytes(BASE, BASE + PAGE), PAGE);
        known.forget(BASE + 100, 10);
        assert_eq!(known.known_bytes(BASE, BASE + PAGE), 0, "mapped anew");
        let mut blind = Covered::new(true);
        blind.cover(BASE, 9 * PAGE);
        assert_eq!(blind.known_bytes(BASE, BASE + 9 * PAGE), 0);
    }

    #[test]
    fn a_large_block_covers_whole_pages_between_its_ends() {
        let mut known = Covered::new(false);
        known.cover(BASE + 16, 200 * PAGE);
        let of = |known: &Covered| known.known_bytes(BASE, BASE + 300 * PAGE) / PAGE;
        assert_eq!(of(&known), 199, "the first and the last are covered partly");
        known.cover(BASE, 8);
        assert_eq!(of(&known), 200);
        known.forget(BASE + 10 * PAGE, 100 * PAGE);
        assert_eq!(of(&known), 100);
        known.forget(0, u64::MAX);
        assert_eq!(of(&known), 0);
        known.cover(u64::MAX - 5, 100);
    }

    #[test]
    fn pages_that_are_known_in_part_are_forgotten_with_a_long_range() {
        let mut known = Covered::new(false);
        let pages = [BASE, BASE + 1000 * PAGE];
        pages.iter().for_each(|page| known.cover(*page, 2000));
        known.forget(BASE + 500 * PAGE, 1000 * PAGE);
        pages
            .iter()
            .for_each(|page| known.cover(*page + 2000, 2096));
        let of = pages.map(|page| known.known_bytes(page, page + PAGE));
        assert_eq!(of, [PAGE, 0]);
    }
}
