//! A block and its cell: the words in which the ledger, the passes and the findings talk of memory.
//!
//! ```text
//!   Block { addr, cell, thread, born, serial } ──► CellId ──► CellKey { node, size, usable }
//! ```
//!
//! B1  A block is 24 bytes, whatever it holds: the live map has one of each.
//! B2  A birth is exact to the microsecond for fifty days.
//!
//! Not here: which blocks live (`blocks.rs`, `ledger.rs`), how many a cell has (`cells.rs`).

use skinflint_trace::{NodeId, ThreadId};

/// The stack of blocks that a fork gave to this process: no node of this trace.
pub const INHERITED: NodeId = NodeId(u32::MAX);

/// Index of a cell: one stack asking for one size and being given one usable size.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, PartialOrd, Ord)]
pub struct CellId(pub u32);

/// The key of a cell: what it stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CellKey {
    /// The stack.
    pub node: NodeId,
    /// Requested bytes.
    pub size: u64,
    /// Usable bytes.
    pub usable: u64,
}

/// Stands for no cell: at a mark, and at the end.
pub(crate) const NO_KEY: CellKey = CellKey {
    node: NodeId(0),
    size: 0,
    usable: 0,
};

/// A block, as long as it lives: 24 bytes, because the live map holds one of each (`blocks.rs`).
///
/// ```text
///   addr 64 | cell 32 | born, high 10 · thread 22 | born, low 32 | serial 32
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Its address.
    pub addr: u64,
    /// Its cell: stack, size, usable size ([`crate::pass::Context::cell`]).
    pub cell: CellId,
    /// The thread, and above it the high bits of its birth.
    thread_and_born: u32,
    /// The low bits of its birth.
    born_low: u32,
    /// The number of acquisitions of the process before it, modulo 2^32.
    pub serial: u32,
}

impl Block {
    const THREAD_BITS: u32 = 22;
    /// The thread of a block that the process inherited.
    const NOBODY: u32 = (1 << Block::THREAD_BITS) - 1;
    /// Threads from here on count as one: a damaged trace may name any.
    const LAST_THREAD: u32 = Block::NOBODY - 1;
    /// The latest birth that is distinguished, microseconds since the start: 2^42 are 50.9 days. A birth is kept
    /// whole, not rounded, because an age of microseconds may end days after the start.
    pub const LAST_BIRTH_US: u64 = (1 << 42) - 1;

    /// Creates a block that `thread` acquired at this time, microseconds since the start.
    #[inline]
    pub fn new(addr: u64, cell: CellId, thread: ThreadId, born_us: u64, serial: u32) -> Block {
        let born_us = born_us.min(Block::LAST_BIRTH_US);
        let high = (born_us >> 32) as u32;
        Block {
            addr,
            cell,
            thread_and_born: high << Block::THREAD_BITS | Block::kept(thread),
            born_low: born_us as u32,
            serial,
        }
    }

    /// Creates a block that lived when the process began, and belongs to no thread.
    pub(crate) fn inherited(addr: u64, cell: CellId) -> Block {
        Block {
            addr,
            cell,
            thread_and_born: Block::NOBODY,
            born_low: 0,
            serial: 0,
        }
    }

    #[inline]
    fn kept(thread: ThreadId) -> u32 {
        thread.0.min(Block::LAST_THREAD)
    }

    /// Returns the thread that acquired it; the 4,194,302nd stands for all later ones. Passes never see a block that
    /// the process inherited ([`Block::is_inherited`]).
    #[inline]
    pub fn thread(&self) -> ThreadId {
        ThreadId(self.thread_and_born & Block::NOBODY)
    }

    /// Reports whether this thread acquired it.
    #[inline]
    pub fn is_of(&self, thread: ThreadId) -> bool {
        self.thread_and_born & Block::NOBODY == Block::kept(thread)
    }

    /// Reports whether it lived when the process began.
    #[inline]
    pub fn is_inherited(&self) -> bool {
        self.thread_and_born & Block::NOBODY == Block::NOBODY
    }

    /// Returns when it was acquired, microseconds since the start, exact up to [`Block::LAST_BIRTH_US`].
    #[inline]
    pub fn born_us(&self) -> u64 {
        u64::from(self.thread_and_born >> Block::THREAD_BITS) << 32 | u64::from(self.born_low)
    }

    /// Returns its age in nanoseconds, exact to the microsecond; 0 if clocks of threads disagree.
    #[inline]
    pub fn age_ns(&self, now_ns: u64) -> u64 {
        (now_ns / 1000).saturating_sub(self.born_us()) * 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_US: u64 = 60_000_000;

    #[test]
    fn a_birth_is_exact_for_fifty_days_and_the_thread_stays_what_it_is() {
        let edge = 1 << 32;
        let times = [
            0,
            1,
            edge - 1,
            edge,
            edge + 1,
            72 * MINUTE_US,
            49 * 1440 * MINUTE_US,
        ];
        for born_us in times.into_iter().chain([Block::LAST_BIRTH_US]) {
            for thread in [0, 1, 1 << 20, Block::LAST_THREAD] {
                let block = Block::new(16, CellId(3), ThreadId(thread), born_us, 9);
                assert_eq!(block.born_us(), born_us);
                assert_eq!(block.thread(), ThreadId(thread));
                assert!(block.is_of(ThreadId(thread)) && !block.is_inherited());
                assert_eq!((block.addr, block.cell, block.serial), (16, CellId(3), 9));
                assert_eq!(block.age_ns(born_us * 1000 + 7_999), 7_000);
            }
        }
    }

    #[test]
    fn what_is_beyond_stays_at_the_limit() {
        let all = Block::new(16, CellId(0), ThreadId(u32::MAX), u64::MAX, 0);
        assert_eq!(all.born_us(), Block::LAST_BIRTH_US);
        assert_eq!(all.thread(), ThreadId(Block::LAST_THREAD));
        assert!(all.is_of(ThreadId(u32::MAX)) && !all.is_inherited());
        assert_eq!(all.age_ns(0), 0);
        let nobody = Block::inherited(16, CellId(0));
        assert!(nobody.is_inherited() && !nobody.is_of(ThreadId(u32::MAX)));
        assert_eq!(nobody.born_us(), 0);
    }
}
