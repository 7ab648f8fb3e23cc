//! The live map: address to block.
//!
//! ```text
//!   slot = high half of (addr × odd constant) × capacity       linear probing, no tombstones
//!   [ . | B | B | . | . | B | … ]   24 bytes a slot; 40 % to 60 % full: 40 to 60 bytes a live block
//! ```
//!
//! B1  A slot is empty when its address is 0; no block has address 0 ([`BlockMap::insert`] refuses).
//! B2  Between a block's home slot and its slot there is no empty slot (wrapping round).
//! B3  `len` ≤ 60 % of the capacity, so that every probe meets an empty slot.
//!
//! Capacity is not a power of two and grows by one half: a table of 10 million blocks that doubles
//! would hold 800 MB just after growing. At most 60 % is used, because gaps are closed by walking the
//! run: with 72 % (33 to 50 bytes per block) a trace of 10 million events took 3 % more CPU time if the
//! live map was larger than the cache, and 6 % more if it was not (churn and sqlite3, medians of 3,
//! alternated, a shared machine, 2026-11-21). Not here: what a block means (`ledger.rs`).

use skinflint_base::hints;
use skinflint_trace::ThreadId;

use crate::pass::{Block, CellId};

const FIRST_CAPACITY: usize = 1024;

#[inline]
fn empty() -> Block {
    Block::new(0, CellId(0), ThreadId(0), 0, 0)
}

/// Live blocks by address.
#[derive(Clone, Debug)]
pub struct BlockMap {
    slots: Vec<Block>,
    len: usize,
    /// The value that `len` must not exceed (B3).
    full: usize,
}

impl Default for BlockMap {
    fn default() -> BlockMap {
        BlockMap::with_capacity(FIRST_CAPACITY)
    }
}

impl BlockMap {
    fn with_capacity(capacity: usize) -> BlockMap {
        let mut slots = Vec::with_capacity(capacity);
        hints::prefer_huge_pages(slots.as_ptr(), capacity * size_of::<Block>());
        slots.resize(capacity, empty());
        BlockMap {
            slots,
            len: 0,
            full: capacity / 5 * 3,
        }
    }

    /// Returns the number of live blocks.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Reports whether no block lives.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes that the table holds.
    pub fn table_bytes(&self) -> usize {
        self.slots.len() * size_of::<Block>()
    }

    #[inline]
    fn home(&self, addr: u64) -> usize {
        // This is Fibonacci hashing; the high half of the product spreads over any capacity.
        let hash = (addr ^ (addr >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((u128::from(hash) * self.slots.len() as u128) >> 64) as usize
    }

    #[inline]
    fn next(&self, slot: usize) -> usize {
        if slot + 1 == self.slots.len() {
            0
        } else {
            slot + 1
        }
    }

    /// Inserts a block; returns the one that was at its address. A block with address 0 is refused
    /// and returned (B1). Cost: one multiplication and, at 60 % full, some four slots.
    #[inline]
    pub fn insert(&mut self, block: Block) -> Option<Block> {
        if block.addr == 0 {
            return Some(block);
        }
        if self.len >= self.full {
            self.grow();
        }
        let mut slot = self.home(block.addr);
        loop {
            let there = self.slots[slot];
            if there.addr == 0 {
                self.slots[slot] = block;
                self.len += 1;
                return None;
            }
            if there.addr == block.addr {
                self.slots[slot] = block;
                return Some(there);
            }
            slot = self.next(slot);
        }
    }

    /// Removes a block. Cost: one multiplication and two or three slots.
    #[inline]
    pub fn remove(&mut self, addr: u64) -> Option<Block> {
        self.remove_at(usize::MAX, addr)
    }

    /// Removes a block that was last seen in slot `hint`: without a search if it is still there.
    #[inline(always)]
    pub(crate) fn remove_at(&mut self, hint: usize, addr: u64) -> Option<Block> {
        let slot = match self.slots.get(hint) {
            Some(block) if block.addr == addr && addr != 0 => hint,
            _ => self.find(addr)?,
        };
        let block = self.slots[slot];
        self.close_gap(slot);
        self.len -= 1;
        Some(block)
    }

    /// Returns the block at an address.
    #[inline]
    pub fn get(&self, addr: u64) -> Option<&Block> {
        self.find(addr).map(|slot| &self.slots[slot])
    }

    /// Has the processor fetch where an address would be: see `ahead.rs`.
    #[inline]
    pub(crate) fn fetch(&self, addr: u64) {
        let home = self.home(addr);
        // The next cache line, too: a block or its run often goes on there, and a search that guesses
        // wrong waits for it with nothing else under way.
        let beyond = (home + 2).min(self.slots.len() - 1);
        hints::prefetch(&self.slots[home]);
        hints::prefetch(&self.slots[beyond]);
    }

    /// Returns the block in a slot; an empty slot has one with address 0.
    #[inline]
    pub(crate) fn at(&self, slot: usize) -> &Block {
        &self.slots[slot]
    }

    /// Returns what is in a slot, if there is such a slot.
    #[inline]
    pub(crate) fn at_hint(&self, slot: u32) -> Option<&Block> {
        self.slots.get(slot as usize)
    }

    #[inline]
    pub(crate) fn find(&self, addr: u64) -> Option<usize> {
        if addr == 0 {
            return None;
        }
        let mut slot = self.home(addr);
        loop {
            let there = self.slots[slot].addr;
            if there == addr {
                return Some(slot);
            }
            if there == 0 {
                return None;
            }
            slot = self.next(slot);
        }
    }

    /// Empties a slot and moves later blocks of the run back so that B2 holds again.
    #[inline]
    fn close_gap(&mut self, mut gap: usize) {
        let capacity = self.slots.len();
        let mut slot = gap;
        loop {
            slot = self.next(slot);
            let block = self.slots[slot];
            if block.addr == 0 {
                break;
            }
            let home = self.home(block.addr);
            let from_home = if slot >= home {
                slot - home
            } else {
                slot + capacity - home
            };
            let from_gap = if slot >= gap {
                slot - gap
            } else {
                slot + capacity - gap
            };
            if from_home >= from_gap {
                self.slots[gap] = block;
                gap = slot;
            }
        }
        self.slots[gap] = empty();
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let mut wider = BlockMap::with_capacity(self.slots.len() / 2 * 3);
        for block in self.iter() {
            wider.insert(*block);
        }
        *self = wider;
    }

    /// Returns all live blocks, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Block> {
        self.iter_at().map(|(_, block)| block)
    }

    /// Returns all live blocks, each with its slot.
    pub(crate) fn iter_at(&self) -> impl Iterator<Item = (u32, &Block)> {
        // 2^32 slots would be 96 GiB of table.
        (0..).zip(&self.slots).filter(|(_, block)| block.addr != 0)
    }

    /// Returns the number of slots, including empty ones.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_base::random::Random;
    use std::collections::BTreeMap;

    fn block(addr: u64, serial: u32) -> Block {
        Block::new(addr, CellId(0), ThreadId(0), 0, serial)
    }

    #[test]
    fn a_slot_is_at_most_forty_bytes() {
        assert_eq!(size_of::<Block>(), 24);
    }

    #[test]
    fn address_zero_is_refused() {
        let mut map = BlockMap::default();
        assert_eq!(map.insert(block(0, 7)), Some(block(0, 7)));
        assert!(map.is_empty());
        assert_eq!(map.remove(0), None);
    }

    /// Against a plain map: dense addresses, so that runs are long and wrap round.
    #[test]
    fn behaves_as_a_map() {
        for seed in 1..=8u64 {
            let mut random = Random::new(seed);
            let mut map = BlockMap::with_capacity(16);
            let mut model = BTreeMap::new();
            for serial in 0..60_000u32 {
                let state = random.bits();
                let range = if serial < 30_000 { 4096 } else { 64 };
                let addr = 0x5000_0000 + (state >> 20) % range * 16;
                if state.is_multiple_of(2) {
                    assert_eq!(
                        map.insert(block(addr, serial)),
                        model.insert(addr, block(addr, serial)),
                        "seed {seed}"
                    );
                } else {
                    assert_eq!(map.remove(addr), model.remove(&addr), "seed {seed}");
                }
                assert_eq!(map.len(), model.len(), "seed {seed}");
            }
            let mut all: Vec<_> = map.iter().copied().collect();
            all.sort_by_key(|block| block.addr);
            assert_eq!(all, model.into_values().collect::<Vec<_>>(), "seed {seed}");
        }
    }
}
