//! Ends of blocks that are not resident: what requesting less would not give back.
//!
//! ```text
//!   a block of runs of pages   |■■■■|■■■■|■b■■ s ..|.....u|      b: what a smaller class would give, s: asked for
//!                                              └──────────┘      u: usable; whole pages behind b are given back, if there
//!   a block among others       …■■■■■■■■ s ──── u■■■■■■■■…       every resident byte between s and u
//! ```
//!
//! A1  Only blocks of a page or more count: smaller ones share their pages with others, and what is there is packed.
//! A2  If a usable size is whole pages, a block has them for itself: a page on which the smaller block would end
//!     stays.
//! A3  Pages that were not read count as resident.
//!
//! Not here: which requests could be smaller (the passes over rounding).

use rustc_hash::FxHashMap;

use crate::pass::CellKey;
use crate::passes::classes::Classes;

/// The size of the kernel's pages.
const OS_PAGE: u64 = 4096;

/// Returns, by cell (of those that have such blocks), bytes that its live blocks would not have in a class below, and that are not resident. `blocks`
/// and `resident` must ascend.
pub(super) fn absent(
    blocks: impl Iterator<Item = (u64, u32)>,
    resident: &[(u64, u64)],
    keys: &[CellKey],
    classes: &Classes,
) -> FxHashMap<u32, u64> {
    let mut absent = FxHashMap::default();
    let mut below: FxHashMap<u32, u64> = FxHashMap::default();
    let mut first = 0;
    for (addr, cell) in blocks {
        let key = &keys[cell as usize];
        if key.usable < OS_PAGE || key.usable == key.size {
            continue;
        }
        let alone = key.usable > OS_PAGE && key.usable.is_multiple_of(OS_PAGE);
        let kept = match alone {
            true => *below
                .entry(cell)
                .or_insert_with(|| classes.class_below(key.size).unwrap_or(key.size)),
            false => key.size,
        };
        let tail = key.usable - kept;
        let (from, end) = (addr.saturating_add(kept), addr.saturating_add(key.usable));
        let from = match alone {
            true => from.checked_next_multiple_of(OS_PAGE).unwrap_or(from),
            false => from,
        };
        while first < resident.len() && resident[first].1 <= addr {
            first += 1;
        }
        let there: u64 = resident[first..]
            .iter()
            .take_while(|(start, _)| *start < end)
            .map(|(start, stop)| end.min(*stop).saturating_sub(from.max(*start)))
            .sum();
        let gone: &mut u64 = absent.entry(cell).or_default();
        *gone = gone.saturating_add(tail.saturating_sub(there));
    }
    absent
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_trace::NodeId;

    fn absent_of(size: u64, usable: u64, addr: u64, resident: &[(u64, u64)]) -> u64 {
        let key = CellKey {
            node: NodeId(1),
            size,
            usable,
        };
        let classes = Classes::learn("libjemalloc.so.2", std::iter::empty());
        absent([(addr, 0)].into_iter(), resident, &[key], &classes)
            .get(&0)
            .copied()
            .unwrap_or(0)
    }

    #[test]
    fn whole_pages_behind_the_smaller_block_are_what_it_would_give_back() {
        // 16,384 + 24 are given 20,480: five pages, of which the last has 24 bytes.
        let at = 0x10_0000;
        let pages = |first: u64, last: u64| [(at + first * 4096, at + last * 4096)];
        assert_eq!(absent_of(16_408, 20_480, at, &pages(0, 5)), 0);
        assert_eq!(absent_of(16_408, 20_480, at, &pages(0, 4)), 4096);
        // From the middle of a page on the fifth one holds bytes of the first 16,384 too; the sixth is not there.
        assert_eq!(absent_of(16_408, 20_480, at + 2048, &pages(0, 5)), 4096);
        // Of the sixth the block has the first half.
        assert_eq!(absent_of(16_408, 20_480, at + 2048, &pages(0, 6)), 2048);
    }

    #[test]
    fn among_others_each_resident_byte_counts() {
        let at = 0x10_0000;
        assert_eq!(absent_of(4100, 5120, at, &[(at, at + 8192)]), 0);
        assert_eq!(absent_of(4100, 5120, at, &[(at, at + 4096)]), 1020);
        // Small blocks share their pages, and what is requested whole has no end.
        assert_eq!(absent_of(1025, 1280, at, &[]), 0);
        assert_eq!(absent_of(20_480, 20_480, at, &[]), 0);
    }
}
