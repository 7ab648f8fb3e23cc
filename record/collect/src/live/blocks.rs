//! The live blocks of a process, in 24 bytes each.
//!
//! ```text
//!   entry = address 48, thread 16 │ size 48, thread 13, function 3 │ node 32, slop 32        open addressing, by address
//! ```
//!
//! B1  An entry whose first word is 0 is free; between an entry and the place of its address's hash no place is.
//! B2  At most three quarters of the table are used, so a search ends.

use skinflint_base::ring::ADDRESS;
use skinflint_trace::AllocFn;

const FIRST_SLOTS: usize = 1 << 10;
const SIZE: u64 = ADDRESS;

/// A live block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Where it lies; not 0, and of 48 bits.
    pub addr: u64,
    /// The thread that acquired it.
    pub thread: u32,
    /// By which function.
    pub func: AllocFn,
    /// Requested bytes; of 48 bits.
    pub size: u64,
    /// Usable bytes; what is 4 GiB or more beyond the requested ones counts as that.
    pub usable: u64,
    /// Its stack.
    pub node: u32,
}

type Entry = [u64; 3];

fn pack(block: &Block) -> Entry {
    let slop = u32::try_from(block.usable.saturating_sub(block.size)).unwrap_or(u32::MAX);
    let thread = u64::from(block.thread);
    [
        block.addr << 16 | thread & 0xffff,
        (block.size & SIZE) << 16 | (thread >> 16 & 0x1fff) << 3 | block.func as u64,
        u64::from(block.node) << 32 | u64::from(slop),
    ]
}

fn unpack(entry: &Entry) -> Block {
    let size = entry[1] >> 16;
    let func = match entry[1] & 7 {
        1 => AllocFn::Calloc,
        2 => AllocFn::Realloc,
        3 => AllocFn::Memalign,
        4 => AllocFn::Valloc,
        5 => AllocFn::New,
        6 => AllocFn::NewArray,
        _ => AllocFn::Malloc,
    };
    Block {
        addr: entry[0] >> 16,
        thread: (entry[0] & 0xffff | (entry[1] >> 3 & 0x1fff) << 16) as u32,
        func,
        size,
        usable: size + (entry[2] & 0xffff_ffff),
        node: (entry[2] >> 32) as u32,
    }
}

/// A table of blocks.
pub struct Blocks {
    table: Vec<Entry>,
    used: usize,
    /// Requested bytes of all.
    bytes: u64,
}

impl Blocks {
    /// Creates an empty table.
    pub fn new() -> Blocks {
        Blocks {
            table: vec![[0; 3]; FIRST_SLOTS],
            used: 0,
            bytes: 0,
        }
    }

    /// Returns the number of blocks, and their requested bytes.
    pub fn sums(&self) -> (u64, u64) {
        (self.used as u64, self.bytes)
    }

    /// Returns all blocks, by thread and address.
    pub fn sorted(&self) -> Vec<Block> {
        let used = self.table.iter().filter(|entry| entry[0] != 0);
        let mut all: Vec<Block> = used.map(unpack).collect();
        all.sort_unstable_by_key(|block| (block.thread, block.addr));
        all
    }

    fn home(&self, addr: u64) -> usize {
        (addr.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (self.table.len() - 1)
    }

    /// Returns the place of an address, or the free one where it would be. Cost: about one cache miss.
    fn place(&self, addr: u64) -> usize {
        let mut at = self.home(addr);
        while self.table[at][0] != 0 && self.table[at][0] >> 16 != addr {
            at = (at + 1) & (self.table.len() - 1);
        }
        at
    }

    /// Adds a block; one that was there, whose release was lost, is gone.
    pub fn insert(&mut self, block: &Block) {
        if block.addr == 0 || block.addr > ADDRESS || block.size > SIZE {
            return;
        }
        let at = self.place(block.addr);
        match self.table[at][0] {
            0 => self.used += 1,
            _ => self.bytes -= unpack(&self.table[at]).size,
        }
        self.bytes += block.size;
        self.table[at] = pack(block);
        if self.used * 4 > self.table.len() * 3 {
            self.grow();
        }
    }

    fn grow(&mut self) {
        let bigger = vec![[0; 3]; self.table.len() * 2];
        for entry in std::mem::replace(&mut self.table, bigger) {
            if entry[0] != 0 {
                let at = self.place(entry[0] >> 16);
                self.table[at] = entry;
            }
        }
    }

    /// Returns the requested bytes of the block at an address.
    pub fn size(&self, addr: u64) -> Option<u64> {
        let entry = &self.table[self.place(addr)];
        (entry[0] != 0).then(|| unpack(entry).size)
    }

    /// Removes the block at an address.
    pub fn remove(&mut self, addr: u64) -> Option<Block> {
        let mut hole = self.place(addr);
        if self.table[hole][0] == 0 {
            return None;
        }
        let block = unpack(&self.table[hole]);
        self.used -= 1;
        self.bytes -= block.size;
        // What would not be found behind a free place moves into it (B1).
        let mask = self.table.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let entry = self.table[at];
            if entry[0] == 0 {
                break;
            }
            let distance = at.wrapping_sub(self.home(entry[0] >> 16)) & mask;
            if distance >= at.wrapping_sub(hole) & mask {
                self.table[hole] = entry;
                hole = at;
            }
        }
        self.table[hole] = [0; 3];
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_base::random::Random;
    use std::collections::BTreeMap;

    #[test]
    fn the_same_as_a_plain_map() {
        let (mut blocks, mut model) = (Blocks::new(), BTreeMap::new());
        let mut random = Random::new(0x5eed_0001);
        for turn in 0..300_000u64 {
            let bits = random.bits();
            // Few addresses, far apart and side by side, so that places collide and wrap.
            let addr = (bits & 0xfff) * 16 + ((bits >> 12 & 3) << 44) + 16;
            if bits >> 60 < 8 {
                let size = bits >> 20 & 0xffff_ffff;
                let block = Block {
                    addr,
                    thread: (bits >> 33) as u32 & 0x1fff_ffff,
                    func: AllocFn::NewArray,
                    size,
                    usable: size + turn % 5,
                    node: (bits >> 16) as u32,
                };
                blocks.insert(&block);
                model.insert(addr, block);
            } else {
                assert_eq!(blocks.remove(addr), model.remove(&addr));
            }
        }
        let mut expected: Vec<Block> = model.into_values().collect();
        expected.sort_by_key(|block| (block.thread, block.addr));
        assert!(expected.len() > 1000);
        let bytes = expected.iter().map(|block| block.size).sum();
        assert_eq!(blocks.sums(), (expected.len() as u64, bytes));
        assert_eq!(blocks.sorted(), expected);
    }

    #[test]
    fn what_no_block_can_be_is_left_out() {
        let mut blocks = Blocks::new();
        let block = Block {
            addr: 0,
            thread: 0,
            func: AllocFn::Malloc,
            size: 1,
            usable: 1,
            node: 0,
        };
        blocks.insert(&block);
        blocks.insert(&Block {
            addr: 1 << 48,
            ..block
        });
        blocks.insert(&Block {
            addr: 16,
            size: 1 << 48,
            ..block
        });
        assert_eq!(blocks.sums(), (0, 0));
        assert_eq!(blocks.remove(16), None);
    }
}
