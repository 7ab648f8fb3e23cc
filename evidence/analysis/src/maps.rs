//! Which addresses the program mapped itself, and where heap blocks have ever been.
//!
//! ```text
//!   Map/Unmap/Remap ──► intervals  [ start, end ) → stack, by the allocator or not
//!   every block     ──► granules   one bit for 64 KiB of address space, two levels
//! ```
//!
//! I1  Intervals are disjoint and not empty; mapping over one cuts it, as the kernel does.
//! I2  A granule's bit is set if a block began in it since the program last mapped or unmapped all
//!     of it. Allocators that call the kernel directly map unseen; then only the bits show it.
//!
//! Bounded by the mappings that exist at one time and 4 KiB of bits per 2 GiB in use.
//! Not here: what is resident (`books.rs`).

use std::collections::BTreeMap;

use skinflint_trace::NodeId;

const GRANULE_SHIFT: u32 = 16;
const LEAF_SHIFT: u32 = 15;
const ADDRESS_BITS: u32 = 47;
const LEAVES: usize = 1 << (ADDRESS_BITS - GRANULE_SHIFT - LEAF_SHIFT);
const LEAF_WORDS: usize = (1 << LEAF_SHIFT) / 64;

/// The owner of a mapped interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The stack that mapped it.
    pub node: NodeId,
    /// Whether the call came from inside an allocation function.
    pub by_allocator: bool,
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

/// The places where blocks have been (I2).
#[derive(Clone, Debug)]
pub struct Granules {
    leaves: Vec<Option<Box<[u64; LEAF_WORDS]>>>,
}

impl Default for Granules {
    fn default() -> Granules {
        Granules {
            leaves: vec![None; LEAVES],
        }
    }
}

impl Granules {
    /// Notes that a block begins here. Cost: two dependent loads and a test; a store for a new granule.
    #[inline]
    pub fn touch(&mut self, addr: u64) {
        let granule = addr >> GRANULE_SHIFT;
        let Some(leaf) = self.leaves.get_mut((granule >> LEAF_SHIFT) as usize) else {
            return;
        };
        let leaf = leaf.get_or_insert_with(|| Box::new([0; LEAF_WORDS]));
        let word = &mut leaf[(granule as usize >> 6) & (LEAF_WORDS - 1)];
        let bit = 1 << (granule & 63);
        if *word & bit == 0 {
            *word |= bit;
        }
    }

    /// Forgets the granules wholly inside a range that the program mapped or unmapped.
    pub fn forget(&mut self, addr: u64, len: u64) {
        let end = addr.saturating_add(len) >> GRANULE_SHIFT;
        let mut granule = addr.div_ceil(1 << GRANULE_SHIFT);
        while granule < end {
            let Some(leaf) = self.leaves.get_mut((granule >> LEAF_SHIFT) as usize) else {
                return;
            };
            match leaf {
                Some(leaf) => {
                    leaf[(granule as usize >> 6) & (LEAF_WORDS - 1)] &= !(1 << (granule & 63));
                    granule += 1;
                }
                None => granule = ((granule >> LEAF_SHIFT) + 1) << LEAF_SHIFT,
            }
        }
    }

    /// Reports whether a block has begun in a granule wholly inside `start..end`.
    pub fn any_inside(&self, start: u64, end: u64) -> bool {
        self.any(start.div_ceil(1 << GRANULE_SHIFT), end >> GRANULE_SHIFT)
    }

    /// Reports whether a block has begun in a granule that overlaps `start..end`.
    pub fn any_overlapping(&self, start: u64, end: u64) -> bool {
        self.any(start >> GRANULE_SHIFT, end.div_ceil(1 << GRANULE_SHIFT))
    }

    fn any(&self, mut granule: u64, end: u64) -> bool {
        while granule < end {
            match self.leaves.get((granule >> LEAF_SHIFT) as usize) {
                None => return false,
                Some(None) => granule = ((granule >> LEAF_SHIFT) + 1) << LEAF_SHIFT,
                Some(Some(leaf)) => {
                    let word = leaf[(granule as usize >> 6) & (LEAF_WORDS - 1)] >> (granule & 63);
                    if word == 0 {
                        granule = ((granule >> 6) + 1) << 6;
                        continue;
                    }
                    return granule + u64::from(word.trailing_zeros()) < end;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(node: u32) -> Owner {
        Owner {
            node: NodeId(node),
            by_allocator: false,
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
            let mut state = seed.wrapping_mul(0x2545_F491_4F6C_DD1D);
            let mut next = |bound: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 16) % bound
            };
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
    fn granules_know_inside_from_overlapping() {
        let mut bits = Granules::default();
        bits.touch(0x7F00_0001_2340);
        assert!(bits.any_overlapping(0x7F00_0001_0000, 0x7F00_0001_1000));
        assert!(!bits.any_inside(0x7F00_0001_0000, 0x7F00_0001_F000));
        assert!(bits.any_inside(0x7F00_0001_0000, 0x7F00_0002_0000));
        assert!(bits.any_inside(0, 1 << 47));
        bits.forget(0x7F00_0001_0001, 0x20000);
        assert!(
            bits.any_inside(0, 1 << 47),
            "the granule is not wholly inside"
        );
        bits.forget(0x7F00_0001_0000, 0x10000);
        assert!(!bits.any_inside(0, u64::MAX));
        bits.touch(u64::MAX);
    }
}
