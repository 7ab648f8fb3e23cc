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

/// Places for blocks: a program that makes 64 strings in turns finds most of them each time.
const PLACES: usize = 256;

/// The most moves that are counted.
pub const MOVES_MAX: u32 = 3;

/// The bits of a place that hold an address; above them are the moves.
const NUMBER: u32 = (1 << 30) - 1;

/// See the module.
#[repr(transparent)]
pub struct Grown([AtomicU32; PLACES]);

impl Grown {
    /// Returns the place of an address, and 30 of its bits, of which the lowest four are left out.
    fn place(&self, block: *const u8) -> (&AtomicU32, u32) {
        let number = (block.addr() >> 4) as u32 & NUMBER;
        // Blocks of one class lie at equal distances. (By one multiplication, some distances meet in few places.)
        let mixed = (number ^ number >> 15).wrapping_mul(0x2c1b_3c6d);
        let mixed = (mixed ^ mixed >> 12).wrapping_mul(0x297a_2d39);
        let place = mixed >> (32 - PLACES.ilog2());
        (&self.0[place as usize], number)
    }

    /// Returns how often the block is known to have moved because it grew, at most [`MOVES_MAX`]. Its place is free then.
    pub fn take(&self, block: *const u8) -> u32 {
        let (place, number) = self.place(block);
        let found = place.load(Ordering::Relaxed); // ORDER: own (R2)
        if found & NUMBER != number {
            return 0;
        }
        place.store(0, Ordering::Relaxed); // ORDER: as above
        found >> NUMBER.count_ones()
    }

    /// Notes that a block has moved to this address because it grew, for the `moves`th time.
    pub fn note(&self, block: *const u8, moves: u32) {
        let (place, number) = self.place(block);
        let moves = moves.min(MOVES_MAX) << NUMBER.count_ones();
        place.store(moves | number, Ordering::Relaxed); // ORDER: own (R2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_grew_is_known_once() {
        let grown = Grown([const { AtomicU32::new(0) }; PLACES]);
        let block = core::ptr::without_provenance::<u8>(0x7f12_3456_7890);
        assert_eq!(grown.take(block), 0);
        for moves in 1..=5 {
            grown.note(block, moves);
            assert_eq!(grown.take(block.wrapping_add(16)), 0);
            assert_eq!(grown.take(block), moves.min(3));
            assert_eq!(grown.take(block), 0);
        }
    }

    #[test]
    fn of_blocks_at_equal_distances_most_are_known() {
        for distance in [16, 64, 1_024, 4_096, 4_352] {
            let grown = Grown([const { AtomicU32::new(0) }; PLACES]);
            let block =
                |i: usize| core::ptr::without_provenance::<u8>(0x7f12_3456_0000 + i * distance);
            (0..PLACES / 2).for_each(|i| grown.note(block(i), 1));
            let known = (0..PLACES / 2)
                .filter(|&i| grown.take(block(i)) == 1)
                .count();
            assert!(known >= PLACES / 4, "{known} at {distance}");
        }
    }
}
