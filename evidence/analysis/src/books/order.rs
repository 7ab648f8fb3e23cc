//! The live blocks in the order of their addresses.
//!
//! ```text
//!   addresses   0x55..ab40  0x7f..1210 …     differ in bits 4 to 46 ─► 4 digits of 11 bits
//!   for each digit, the lowest first: count ─► where each value begins ─► move
//! ```
//!
//! O1  The order of blocks at one address is that in which they came: a block whose realloc is under way may have left
//!     its address to another (ledger.G2).
//! O2  Only bits in which addresses differ make digits: blocks of one heap take two or three moves.
//!
//! Comparing took 244 instructions a block in live heaps of up to 2.4 million blocks, and this takes 75 (callgrind, python3
//! building dicts, 2026-11-23). Not here: what the blocks lie on (`closing.rs`).

/// A live block: its address, its cell and its slot in the ledger.
pub(super) type Placing = (u64, u32, u32);

/// The widest digit: the tables of two thousand values stay in the first-level cache.
const DIGIT_BITS: u32 = 11;
const VALUES: usize = 1 << DIGIT_BITS;
/// Fewer blocks than this are sorted by comparing: counting has a fixed cost.
const WORTH: usize = 1024;

/// Sorts blocks by address (O1). Cost: a load and a store for each digit, in memory for as many blocks again.
pub(super) fn by_address(mut blocks: Vec<Placing>) -> Vec<Placing> {
    if blocks.len() < WORTH {
        blocks.sort_by_key(|block| block.0);
        return blocks;
    }
    let first = blocks[0].0;
    let differ = blocks
        .iter()
        .fold(0, |bits, block| bits | (block.0 ^ first));
    let lowest = differ.trailing_zeros();
    let bits = (u64::BITS - differ.leading_zeros()).saturating_sub(lowest);
    let digits = bits.div_ceil(DIGIT_BITS);
    let width = bits.div_ceil(digits.max(1));
    let mut moved = vec![Placing::default(); blocks.len()];
    for digit in 0..digits {
        sort_by_digit(&blocks, &mut moved, lowest + digit * width, width);
        std::mem::swap(&mut blocks, &mut moved);
    }
    blocks
}

/// Moves blocks to `to` in the order of `width` bits of their addresses, and otherwise in the order in which they came.
fn sort_by_digit(from: &[Placing], to: &mut [Placing], shift: u32, width: u32) {
    let mut places = [0usize; VALUES];
    let mask = (1usize << width) - 1;
    // With the second bound in sight the compiler checks no index.
    let value = |block: &Placing| (block.0 >> shift) as usize & mask & (VALUES - 1);
    for block in from {
        places[value(block)] += 1;
    }
    let mut next = 0;
    for place in &mut places {
        next += std::mem::replace(place, next);
    }
    for block in from {
        let place = &mut places[value(block)];
        to[*place] = *block;
        *place += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_base::random::Random;

    fn check(addresses: impl Iterator<Item = u64>) {
        let blocks: Vec<Placing> = addresses.zip(0..).map(|(at, n)| (at, n, !n)).collect();
        let mut expected = blocks.clone();
        expected.sort_by_key(|block| (block.0, block.1));
        assert!(by_address(blocks) == expected);
    }

    /// Against the standard library's sort: few and many blocks, one heap and the whole address space, and addresses
    /// that come more than once.
    #[test]
    fn blocks_ascend_and_equals_stay() {
        for seed in 1..=4 {
            let mut random = Random::new(seed);
            for count in [0, 1, 2, WORTH - 1, WORTH, WORTH + 1, 20_000] {
                let mut draw = |base: u64, range: u64, step: u64| {
                    let all: Vec<u64> = (0..count)
                        .map(|_| base + random.below(range) * step)
                        .collect();
                    check(all.into_iter());
                };
                draw(0x5555_5555_0010, 1 << 20, 16);
                draw(0x7f00_0000_0000, 7, 16);
                draw(8, 1 << 44, 8);
                draw(1, u64::MAX - 1, 1);
            }
        }
        check(std::iter::repeat_n(0x1000, 5000));
        let heaps =
            (0..5000u64).map(|n| [0x5555_0000_0010, 0x7fff_ffff_0000][n as usize % 2] + n / 3 * 16);
        check(heaps.rev());
    }
}
