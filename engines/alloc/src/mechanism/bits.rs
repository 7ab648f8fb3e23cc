//! Three bit words for 64 slots: which are free, which another thread freed, which are dead.
//!
//! ```text
//!   owner   give: F |= bit ─┐                     take: F &= !bit (under the heap's lock)
//!   freer   remote::set ─► R │ ── free_bits: F | R ──► the purger, with the lock: a page of free slots only is dropped
//! ```
//!
//! B1  F and D are written by the owner alone, without a locked instruction; R by freers, and by the owner's `collect`.
//! B2  A thread that sees a bit in F or R sees all that the program did with the block before it freed it.
//! B3  Bits are removed from F under the heap's lock only, so what its holder saw free stays free while it holds the
//!     lock.
//!
//! The models run this very file (`tests/models.rs`).
//!
//! Not here: spans (`span`), the stack of spans that other threads freed into (`remote`).

use skinflint_base::sync::{AtomicU64, Ordering};

use super::remote;

/// The bits of 64 slots.
#[repr(C)]
pub struct SlotBits {
    /// F: the bits of slots that are free, and in no magazine.
    pub free: AtomicU64,
    /// R: the bits of slots that another thread freed.
    pub remote: AtomicU64,
    /// D: the bits of dead slots, which are free or in the magazine.
    pub dead: AtomicU64,
}

impl SlotBits {
    /// Creates the bits of slots that do not exist.
    #[cfg(not(loom))]
    pub const fn none() -> SlotBits {
        SlotBits {
            free: AtomicU64::new(0),
            remote: AtomicU64::new(0),
            dead: AtomicU64::new(0),
        }
    }

    /// Creates the bits of slots that do not exist.
    #[cfg(loom)]
    pub fn none() -> SlotBits {
        SlotBits {
            free: AtomicU64::new(0),
            remote: AtomicU64::new(0),
            dead: AtomicU64::new(0),
        }
    }

    /// Reports whether a slot is free or in the magazine, as the owner sees it. `free` looks in assembly.
    #[inline(always)]
    #[cfg_attr(loom, allow(dead_code))] // by the models
    pub fn is_dead(&self, bit: u64) -> bool {
        // ORDER: R: a look: no other thread may free a live block, so its own bit stands still. D: own (B1).
        (self.remote.load(Ordering::Relaxed) | self.dead.load(Ordering::Relaxed)) & bit != 0
    }

    /// Marks a block as dead. Only the owner calls this.
    #[inline(always)]
    pub fn bury(&self, bit: u64) {
        let dead = self.dead.load(Ordering::Relaxed); // ORDER: own (B1)
        self.dead.store(dead | bit, Ordering::Relaxed); // ORDER: own (B1)
    }

    /// Makes a dead block live. Only the owner calls this. (On x86-64 it is the last instruction of `section::pop`.)
    #[cfg(not(target_arch = "x86_64"))]
    #[cfg_attr(loom, allow(dead_code))]
    #[inline(always)]
    pub fn revive(&self, bit: u64) {
        let dead = self.dead.load(Ordering::Relaxed); // ORDER: own (B1)
        self.dead.store(dead ^ bit, Ordering::Relaxed); // ORDER: own (B1)
    }

    /// Marks a dead block as free and in no magazine. Only the owner calls this.
    #[inline(always)]
    pub fn give(&self, bit: u64) {
        let free = self.free.load(Ordering::Relaxed); // ORDER: own (B1)
        // ORDER: Release meets the Acquire of `free_bits`: the purger drops a page only after the program's last write
        // to it (B2). [model: a_page_is_dropped_after_its_last_write]
        self.free.store(free | bit, Ordering::Release);
    }

    /// Marks all dead blocks as free, since the magazine is gone. `all`: the bits that slots have. Only the owner calls
    /// this.
    pub fn uncache(&self, all: u64) {
        // Blocks in R may be in D, too (span.S1).
        self.collect();
        let dead = self.dead.load(Ordering::Relaxed) & all; // ORDER: own (B1)
        // ORDER: Release, as in `give`, though the heap's lock is held and its thread gone. [reason: lock]
        self.free.store(dead, Ordering::Release);
    }

    /// Takes the first free slot out of F and D. Only the owner calls this, with the heap's lock (B3).
    #[inline]
    pub fn take(&self) -> Option<u32> {
        let bits = self.free.load(Ordering::Relaxed); // ORDER: own (B1), under the lock (B3)
        if bits == 0 {
            return None;
        }
        self.free.store(bits & (bits - 1), Ordering::Relaxed); // ORDER: as above
        let dead = self.dead.load(Ordering::Relaxed); // ORDER: own (B1)
        let lowest = bits & bits.wrapping_neg();
        self.dead.store(dead & !lowest, Ordering::Relaxed); // ORDER: own (B1)
        Some(bits.trailing_zeros())
    }

    /// Moves what other threads freed to F and D; returns its bits. Only the owner calls this.
    #[inline]
    pub fn collect(&self) -> u64 {
        let freed = remote::collect(&self.remote, &self.free);
        if freed != 0 {
            self.bury(freed);
        }
        freed
    }

    /// Returns the bits of slots in F or R.
    #[inline]
    pub fn free_bits(&self) -> u64 {
        // ORDER: Acquire meets the Release of the frees (B2). [model: a_page_is_dropped_after_its_last_write]
        self.free.load(Ordering::Acquire) | self.remote.load(Ordering::Acquire)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_lay_in_a_magazine_that_is_gone_is_free() {
        let slot_bits = SlotBits::none();
        slot_bits.bury(0b1101);
        slot_bits.give(0b0100);
        assert_eq!(
            slot_bits.free_bits(),
            0b0100,
            "the others are in the magazine"
        );
        slot_bits.uncache(0b0111);
        assert_eq!(slot_bits.free_bits(), 0b0101, "of the slots that there are");
        assert!(slot_bits.is_dead(0b1000) && !slot_bits.is_dead(0b0010));
    }

    #[test]
    fn the_lowest_free_slot_is_taken_and_lives() {
        let slot_bits = SlotBits::none();
        slot_bits.bury(1 << 3 | 1 << 63);
        slot_bits.give(1 << 3 | 1 << 63);
        assert_eq!(slot_bits.take(), Some(3));
        assert!(!slot_bits.is_dead(1 << 3));
        assert_eq!(slot_bits.take(), Some(63));
        assert_eq!((slot_bits.take(), slot_bits.free_bits()), (None, 0));
    }
}
