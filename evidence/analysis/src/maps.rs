//! Mappings by address: what the program mapped itself, and where heap blocks have ever been.
//!
//! ```text
//!   Map/Unmap/Remap ──► intervals  [ start, end ) → stack, by the allocator or not
//!   every block     ──► pages      one bit for 4 KiB of address space, two levels
//! ```
//!
//! I1  Intervals are disjoint and not empty; mapping over one cuts it, as the kernel does.
//! I2  A page's bit is set if a block had a byte on it since the program last mapped or unmapped the page. Allocators
//!     that call the kernel directly map unseen; then only the bits show it.
//!
//! Bounded by the mappings that exist at one time and 64 KiB of bits per 2 GiB in use.
//! Not here: what is resident (`books.rs`), whole pages of a process met alive (`covered.rs`).

use std::collections::BTreeMap;

use skinflint_trace::NodeId;

const PAGE_SHIFT: u32 = 12;
/// Pages in a word, as a power of two.
const WORD_SHIFT: u32 = 6;
/// Pages in a leaf, as a power of two: 2 GiB.
const LEAF_SHIFT: u32 = 19;
/// As on aarch64; x86-64 has a bit less.
const ADDRESS_BITS: u32 = 48;
const LEAVES: usize = 1 << (ADDRESS_BITS - PAGE_SHIFT - LEAF_SHIFT);
const LEAF_WORDS: usize = 1 << (LEAF_SHIFT - WORD_SHIFT);

/// The owner of a mapped interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The stack that mapped it.
    pub node: NodeId,
    /// Whether the call came from inside an allocation function.
    pub by_allocator: bool,
    /// Whether it was `brk` or `sbrk`: the memory is of the data segment.
    pub by_break: bool,
    /// Whether it is an arena whose blocks are recorded (`trace::is_arena`).
    pub arena: bool,
}

/// Intervals mapped through the dynamic linker (I1).
#[derive(Clone, Debug, Default)]
pub struct Intervals {
    by_start: BTreeMap<u64, (u64, Owner)>,
}

impl Intervals {
    /// Records `mmap` of `len` bytes at `addr`.
    pub fn map(&mut self, addr: u64, len: u64, owner: Owner) {
        let end = addr.saturating_add(page_up(len));
        if end > addr {
            self.cut(addr, end);
            self.by_start.insert(addr, (end, owner));
        }
    }

    /// Records `munmap`; returns the owner of the first byte.
    pub fn unmap(&mut self, addr: u64, len: u64) -> Option<Owner> {
        let owner = self.owner(addr);
        self.cut(addr, addr.saturating_add(page_up(len)));
        owner
    }

    /// Returns the owner of the byte at an address.
    pub fn owner(&self, addr: u64) -> Option<Owner> {
        let (_, &(end, owner)) = self.by_start.range(..=addr).next_back()?;
        (addr < end).then_some(owner)
    }

    /// Returns the bytes that the program itself has mapped, by stack.
    pub fn mapped_by_program(&self) -> BTreeMap<NodeId, u64> {
        let mut by_node = BTreeMap::new();
        for (start, (end, owner)) in &self.by_start {
            if !owner.by_allocator {
                *by_node.entry(owner.node).or_default() += end - start;
            }
        }
        by_node
    }

    /// Returns the arenas whose blocks are recorded, by address; those side by side as one.
    pub fn arenas(&self) -> Vec<(u64, u64)> {
        let mut arenas: Vec<(u64, u64)> = Vec::new();
        for (&start, &(end, owner)) in &self.by_start {
            match arenas.last_mut() {
                _ if !owner.arena => {}
                Some(last) if last.1 == start => last.1 = end,
                _ => arenas.push((start, end)),
            }
        }
        arenas
    }

    /// Returns the bytes of the data segment that the program itself took.
    pub fn break_bytes(&self) -> u64 {
        let taken = self.by_start.iter();
        let taken = taken.filter(|(_, (_, owner))| owner.by_break && !owner.by_allocator);
        taken.map(|(start, (end, _))| end - start).sum()
    }

    /// Removes what lies in `start..end`, keeping what sticks out (I1).
    fn cut(&mut self, start: u64, end: u64) {
        if end <= start {
            return;
        }
        if let Some((&left, &(left_end, owner))) = self.by_start.range(..start).next_back()
            && left_end > start
        {
            self.by_start.insert(left, (start, owner));
            if left_end > end {
                self.by_start.insert(end, (left_end, owner));
            }
        }
        while let Some((&inner, &(inner_end, owner))) = self.by_start.range(start..end).next() {
            self.by_start.remove(&inner);
            if inner_end > end {
                self.by_start.insert(end, (inner_end, owner));
            }
        }
    }

    /// Splits `start..end` where the owner changes: (start, end, owner), in order, without gaps.
    pub fn split(&self, start: u64, end: u64) -> Vec<(u64, u64, Option<Owner>)> {
        let mut pieces = Vec::new();
        let first = self
            .by_start
            .range(..=start)
            .next_back()
            .map_or(start, |(&left, _)| left);
        let mut at = start;
        for (&left, &(right, owner)) in self.by_start.range(first..end.max(first)) {
            let (left, right) = (left.max(start), right.min(end));
            if right <= at {
                continue;
            }
            if left > at {
                pieces.push((at, left, None));
            }
            pieces.push((left, right, Some(owner)));
            at = right;
        }
        if at < end {
            pieces.push((at, end, None));
        }
        pieces
    }
}

fn page_up(len: u64) -> u64 {
    len.saturating_add(4095) & !4095
}

/// The pages on which blocks have been (I2).
#[derive(Clone, Debug)]
pub struct BlockPages {
    leaves: Vec<Option<Box<[u64; LEAF_WORDS]>>>,
}

impl Default for BlockPages {
    fn default() -> BlockPages {
        BlockPages {
            leaves: vec![None; LEAVES],
        }
    }
}

impl BlockPages {
    /// Notes that a block lies here. Cost on one page: two dependent loads and a test, and a store for a new page; a
    /// larger block costs a store for 64 pages.
    #[inline]
    pub fn touch(&mut self, addr: u64, len: u64) {
        let page = addr >> PAGE_SHIFT;
        let last = addr.saturating_add(len.saturating_sub(1)) >> PAGE_SHIFT;
        if page != last {
            return self.touch_several(page, last);
        }
        let Some(word) = self.word(page) else { return };
        let bit = 1 << (page & 63);
        if *word & bit == 0 {
            *word |= bit;
        }
    }

    #[inline(never)]
    fn touch_several(&mut self, mut page: u64, last: u64) {
        let end = (last + 1).min(1 << (ADDRESS_BITS - PAGE_SHIFT));
        while page < end {
            let to = ((page | 63) + 1).min(end);
            let Some(word) = self.word(page) else { return };
            *word |= bits(page, to);
            page = to;
        }
    }

    #[inline]
    fn word(&mut self, page: u64) -> Option<&mut u64> {
        let leaf = self.leaves.get_mut((page >> LEAF_SHIFT) as usize)?;
        let leaf = leaf.get_or_insert_with(|| Box::new([0; LEAF_WORDS]));
        Some(&mut leaf[(page >> WORD_SHIFT) as usize & (LEAF_WORDS - 1)])
    }

    /// Forgets the pages of a range that the program mapped or unmapped.
    pub fn forget(&mut self, addr: u64, len: u64) {
        let end = addr.saturating_add(page_up(len)) >> PAGE_SHIFT;
        let mut page = (addr >> PAGE_SHIFT) + u64::from(!addr.is_multiple_of(1 << PAGE_SHIFT));
        while page < end {
            let Some(leaf) = self.leaves.get_mut((page >> LEAF_SHIFT) as usize) else {
                return;
            };
            let Some(leaf) = leaf else {
                page = ((page >> LEAF_SHIFT) + 1) << LEAF_SHIFT;
                continue;
            };
            let to = ((page | 63) + 1).min(end);
            leaf[(page >> WORD_SHIFT) as usize & (LEAF_WORDS - 1)] &= !bits(page, to);
            page = to;
        }
    }

    /// Reports whether a block has been on a page of `start..end`.
    pub fn any(&self, start: u64, end: u64) -> bool {
        let (page, end) = (start >> PAGE_SHIFT, end.div_ceil(1 << PAGE_SHIFT));
        page < end && self.next(page, end, true) < end
    }

    /// Returns the end of the run of pages, beginning with that of `start` and going no further than `end`, on all of
    /// which blocks have been, or on none; and which of the two it is.
    pub fn run(&self, start: u64, end: u64) -> (u64, bool) {
        let (page, last) = (start >> PAGE_SHIFT, end.div_ceil(1 << PAGE_SHIFT));
        let first_set = self.next(page, last, true);
        let (to, been) = match first_set == page {
            true => (self.next(page, last, false), true),
            false => (first_set, false),
        };
        ((to << PAGE_SHIFT).min(end), been)
    }

    /// Returns the first page from `page` on whose bit is `set`; `end` if there is none before it.
    fn next(&self, mut page: u64, end: u64, set: bool) -> u64 {
        while page < end {
            match self.leaves.get((page >> LEAF_SHIFT) as usize) {
                Some(Some(leaf)) => {
                    let word = leaf[(page >> WORD_SHIFT) as usize & (LEAF_WORDS - 1)];
                    let wanted = (if set { word } else { !word }) >> (page & 63);
                    if wanted != 0 {
                        return (page + u64::from(wanted.trailing_zeros())).min(end);
                    }
                    page = (page | 63) + 1;
                }
                _ if !set => return page,
                Some(None) => page = ((page >> LEAF_SHIFT) + 1) << LEAF_SHIFT,
                None => return end,
            }
        }
        end
    }
}

/// Returns the bits of pages `from..to` in the word of `from`, which they do not leave.
fn bits(from: u64, to: u64) -> u64 {
    (u64::MAX >> (64 - (to - from))) << (from & 63)
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_base::random::Random;

    fn owner(node: u32) -> Owner {
        Owner {
            node: NodeId(node),
            by_allocator: false,
            by_break: false,
            arena: false,
        }
    }

    #[test]
    fn cutting_keeps_what_sticks_out() {
        let mut map = Intervals::default();
        map.map(0x10000, 0x10000, owner(1));
        map.map(0x14000, 0x1000, owner(2));
        assert_eq!(
            map.split(0xF000, 0x21000),
            vec![
                (0xF000, 0x10000, None),
                (0x10000, 0x14000, Some(owner(1))),
                (0x14000, 0x15000, Some(owner(2))),
                (0x15000, 0x20000, Some(owner(1))),
                (0x20000, 0x21000, None),
            ]
        );
        assert_eq!(
            map.unmap(0x12000, 0x2800),
            Some(owner(1)),
            "length rounds up to pages"
        );
        assert_eq!(map.owner(0x14FFF), None);
        assert_eq!(map.owner(0x15000), Some(owner(1)));
        assert_eq!(map.owner(0x11FFF), Some(owner(1)));
        map.unmap(0, u64::MAX);
        assert_eq!(map.split(0x1000, 0x2000), vec![(0x1000, 0x2000, None)]);
        assert_eq!(map.split(0x1000, 0x1000), vec![]);
    }

    #[test]
    fn intervals_behave_as_an_array_of_pages() {
        for seed in 1..=4u64 {
            let mut random = Random::new(seed);
            let mut next = |bound: u64| random.below(bound);
            let mut map = Intervals::default();
            let mut pages = [None; 64];
            for step in 0..4000u32 {
                let (page, len) = (next(64), next(12));
                let to = (page + len).min(64);
                let value = (next(3) > 0).then(|| owner(step));
                match value {
                    Some(owner) => map.map(page * 4096, (to - page) * 4096, owner),
                    None => _ = map.unmap(page * 4096, (to - page) * 4096),
                }
                pages[page as usize..to as usize].fill(value);
                let mut at = 0;
                for (start, end, owner) in map.split(0, 64 * 4096) {
                    assert_eq!(start, at, "seed {seed}");
                    for page in &pages[start as usize / 4096..end as usize / 4096] {
                        assert_eq!(*page, owner, "seed {seed} step {step}");
                    }
                    at = end;
                }
                assert_eq!(at, 64 * 4096, "seed {seed}");
            }
        }
    }

    #[test]
    fn pages_on_which_blocks_have_been_behave_as_an_array() {
        // Across the border of two leaves and of many words.
        const BASE: u64 = (3 << (LEAF_SHIFT + PAGE_SHIFT)) - 150 * 4096;
        const PAGES: usize = 300;
        for seed in 1..=4u64 {
            let mut random = Random::new(seed);
            let mut next = |bound: u64| random.below(bound);
            let (mut pages, mut model) = (BlockPages::default(), [false; PAGES]);
            for step in 0..3000 {
                let at = next(PAGES as u64 * 4096 - 1);
                let most = if next(2) == 0 { 200 } else { 90 * 4096 };
                let len = 1 + next((PAGES as u64 * 4096 - at).min(most));
                if next(3) > 0 {
                    pages.touch(BASE + at, len);
                    model[at as usize / 4096..=(at + len - 1) as usize / 4096].fill(true);
                } else {
                    let first = at / 4096;
                    pages.forget(BASE + first * 4096, len);
                    let to = (first + len.div_ceil(4096)).min(PAGES as u64);
                    model[first as usize..to as usize].fill(false);
                }
                let (mut from, end) = (0, PAGES as u64 * 4096);
                while from < end {
                    let (to, been) = pages.run(BASE + from, BASE + end);
                    let own = &model[from as usize / 4096..(to - BASE) as usize / 4096];
                    assert!(
                        own.iter().all(|one| *one == been),
                        "seed {seed} step {step}"
                    );
                    assert!(!own.is_empty(), "seed {seed} step {step}");
                    from = to - BASE;
                }
                let any = model.iter().any(|one| *one);
                assert_eq!(pages.any(BASE, BASE + end), any, "seed {seed} step {step}");
            }
        }
    }

    #[test]
    fn pages_beyond_the_address_space_are_no_matter() {
        let mut pages = BlockPages::default();
        pages.touch(u64::MAX, 1);
        pages.touch((1 << ADDRESS_BITS) - 4096, 1 << 40);
        assert_eq!(
            pages.run((1 << ADDRESS_BITS) - 8192, (1 << ADDRESS_BITS) - 4096),
            ((1 << ADDRESS_BITS) - 4096, false)
        );
        assert!(pages.any((1 << ADDRESS_BITS) - 4096, u64::MAX));
        pages.touch(0x7F00_0001_2340, 0);
        assert!(pages.any(0x7F00_0001_2000, 0x7F00_0001_3000));
        assert!(!pages.any(0x7F00_0001_3000, 0x7F00_0001_3000));
        pages.forget(0x7F00_0001_2001, 4096);
        assert!(
            pages.any(0, 0x7F80_0000_0000),
            "the page is not wholly inside"
        );
        pages.forget(0x7F00_0001_2000, 1);
        assert!(!pages.any(0, 0x7F80_0000_0000));
    }
}
