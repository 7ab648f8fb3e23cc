//! Slots: the live blocks, by the numbers that the script gives them.
//!
//! ```text
//!   slot: [ address 8 | count 23 bits, live 1 bit, size 40 bits ]      16 bytes
//! ```
//!
//! S1  Numbers are cut to the table by `Memory::slot_mask` before they are used; the table exists where it was touched.
//! S2  `address` is stored before `state` with Release, and read after it: a thread that sees a count sees the block.
//! S3  Every operation on a slot raises its count by one, whatever its result.
//!
//! Not here: what is done to blocks (player.rs).

use core::sync::atomic::{AtomicU64, Ordering};

use skinflint_replay::script::COUNT_BITS;

const SIZE_BITS: u32 = 40;
const LIVE: u64 = 1 << SIZE_BITS;
const COUNT_SHIFT: u32 = SIZE_BITS + 1;
const _: () = assert!(COUNT_SHIFT + COUNT_BITS == 64);
const _: () = assert!(size_of::<Slot>() < 24);

/// A slot with its block.
pub struct Slot {
    address: AtomicU64,
    state: AtomicU64,
}

/// The state of a slot.
#[derive(Clone, Copy)]
pub struct State(u64);

impl State {
    /// Reports whether there is a block.
    #[inline]
    pub fn is_live(self) -> bool {
        self.0 & LIVE != 0
    }

    /// Returns its requested size, at most 2^40 − 1.
    #[inline]
    pub fn size(self) -> u64 {
        self.0 & (LIVE - 1)
    }

    /// Returns the number of operations so far.
    #[inline]
    pub fn count(self) -> u32 {
        (self.0 >> COUNT_SHIFT) as u32
    }

    fn next(self, low: u64) -> u64 {
        (self.0 >> COUNT_SHIFT).wrapping_add(1) << COUNT_SHIFT | low
    }
}

impl Slot {
    /// Returns the present state.
    #[inline]
    pub fn state(&self) -> State {
        // ORDER: Acquire; pairs with the Release in `set` and `clear` of the thread that did the operation before (S2).
        State(self.state.load(Ordering::Acquire))
    }

    /// Returns the block's address; 0 if the allocator gave none.
    #[inline]
    pub fn address(&self) -> u64 {
        // ORDER: Relaxed; read after `state` (S2).
        self.address.load(Ordering::Relaxed)
    }

    /// Notes that there is a block now.
    #[inline]
    pub fn set(&self, before: State, address: u64, size: u64) {
        // ORDER: Relaxed; published by the next line (S2).
        self.address.store(address, Ordering::Relaxed);
        let low = LIVE | size.min(LIVE - 1);
        // ORDER: Release; pairs with the Acquire in `state` (S2).
        self.state.store(before.next(low), Ordering::Release);
    }

    /// Notes that there is no block now.
    #[inline]
    pub fn clear(&self, before: State) {
        // ORDER: Release; pairs with the Acquire in `state`: the free is over when this is seen.
        self.state.store(before.next(0), Ordering::Release);
    }
}
