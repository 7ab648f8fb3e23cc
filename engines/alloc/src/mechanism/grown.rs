//! The blocks of a heap that moved because they grew: who grows once more gets room for the next steps.
//!
//! ```text
//!   realloc moves a block ─► its place in the table: the new address      the same block moves again ─► it is there
//! ```
//!
//! R1  It is a memory of a few blocks, and no more: a later block takes the place of an earlier one, and an address may
//!     have had another block since. A wrong answer costs room, not truth.
//! R2  Only the heap's thread reads and writes it.
//!
//! Not here: how much room (`malloc`).

use skinflint_base::sync::{AtomicU32, Ordering};

/// Blocks that are remembered: a program that makes 64 strings in turns finds most of them.
const PLACES: usize = 64;

/// See the module.
#[repr(transparent)]
pub struct Grown([AtomicU32; PLACES]);

impl Grown {
    /// Returns the place of an address, and what stands there for it: 36 of its bits, of which the lowest four are 0.
    fn place(&self, block: *const u8) -> (&AtomicU32, u32) {
        let number = (block.addr() >> 4) as u32;
        // Blocks of one class lie at equal distances, which may be a multiple of any power of two.
        let place = number.wrapping_mul(0x9e37_79b1) >> (32 - PLACES.ilog2());
        (&self.0[place as usize], number)
    }

    /// Reports whether the block moved because it grew. Its place is free then.
    pub fn forget(&self, block: *const u8) -> bool {
        let (place, number) = self.place(block);
        // ORDER: own (R2), here and below.
        let found = place.load(Ordering::Relaxed) == number;
        if found {
            place.store(0, Ordering::Relaxed); // ORDER: as above
        }
        found
    }

    /// Notes that a block has moved to this address because it grew.
    pub fn note(&self, block: *const u8) {
        let (place, number) = self.place(block);
        place.store(number, Ordering::Relaxed); // ORDER: as above
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_grew_is_known_once() {
        let grown = Grown([const { AtomicU32::new(0) }; PLACES]);
        let block = core::ptr::without_provenance::<u8>(0x7f12_3456_7890);
        assert!(!grown.forget(block));
        grown.note(block);
        assert!(!grown.forget(block.wrapping_add(16)));
        assert!(grown.forget(block));
        assert!(!grown.forget(block));
    }

    #[test]
    fn of_blocks_at_equal_distances_most_are_known() {
        for distance in [16, 64, 1_024, 4_096, 4_352] {
            let grown = Grown([const { AtomicU32::new(0) }; PLACES]);
            let block =
                |i: usize| core::ptr::without_provenance::<u8>(0x7f12_3456_0000 + i * distance);
            (0..PLACES / 2).for_each(|i| grown.note(block(i)));
            let known = (0..PLACES / 2).filter(|&i| grown.forget(block(i))).count();
            assert!(known >= PLACES / 4, "{known} at {distance}");
        }
    }
}
