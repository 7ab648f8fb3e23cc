//! Slop of large blocks that all fall into one class, whatever their sizes: data, not a size that could be cut.
//!
//! ```text
//!   1,060 … 1,208 (36 sizes)  ──►  1,280 each:  13 % that no request of this stack ever uses
//! ```
//!
//! L1  Three quarters of the stack's live blocks are given one usable size, and most of the bytes they request are in
//!     requests beyond [`ELEMENT_MAX`]: smaller ones have findings of their own, by size (slop.rs).
//! L2  Nothing is promised, since no trace shows that blocks may lie in one, or that a length may be another. The
//!     slop is reported with both ways out.
//!
//! Not here: sizes just above a class, which can be cut (slop.rs, clownshoes.rs).

use rustc_hash::{FxHashMap, FxHashSet};

use crate::model::{Confidence, Finding, FindingKind};
use crate::pass::{CellBlocks, CellKey};
use crate::passes::classes::Classes;
use crate::passes::slop_worth::{ELEMENT_MAX, MIN_BYTES, MIN_PERCENT};
use crate::passes::wording::{bytes, count, percent, thousands};

/// At least this many of four live blocks of a stack are of one class (L1).
const OF_FOUR: u64 = 3;
/// The size of the block in which several are to be kept.
const PAGE_BYTES: u64 = 1 << 20;

/// Live blocks of one stack and one class.
#[derive(Clone, Copy)]
struct Fallen {
    blocks: u64,
    requested: u64,
    slop: u64,
    smallest: u64,
    largest: u64,
}

/// Returns findings for stacks that have none by their sizes. `cells` has all live blocks.
pub(super) fn findings(
    cells: impl Iterator<Item = (CellKey, CellBlocks)>,
    told: &FxHashSet<u32>,
    classes: &Classes,
) -> Vec<Finding> {
    let mut all: FxHashMap<u32, u64> = FxHashMap::default();
    let mut fallen: FxHashMap<(u32, u64), Fallen> = FxHashMap::default();
    for (key, count) in cells.filter(|(key, _)| !told.contains(&key.node.0)) {
        let blocks = count.at_instant;
        if blocks == 0 {
            continue;
        }
        *all.entry(key.node.0).or_default() += blocks;
        let of = fallen.entry((key.node.0, key.usable)).or_insert(Fallen {
            blocks: 0,
            requested: 0,
            slop: 0,
            smallest: u64::MAX,
            largest: 0,
        });
        of.blocks += blocks;
        of.requested = of.requested.saturating_add(key.size.saturating_mul(blocks));
        let slop = (key.usable - key.size).saturating_mul(blocks);
        of.slop += slop.saturating_sub(count.absent_tail_bytes);
        of.smallest = of.smallest.min(key.size);
        of.largest = of.largest.max(key.size);
    }
    let is_one = |((node, _), of): &((u32, u64), Fallen)| {
        let most = of.blocks * 4 >= all.get(node).copied().unwrap_or(0) * OF_FOUR;
        let is_large = of.requested > of.blocks.saturating_mul(ELEMENT_MAX);
        let is_much = of.slop >= MIN_BYTES && of.slop * 100 >= of.requested * MIN_PERCENT;
        most && is_large && is_much
    };
    fallen
        .into_iter()
        .filter(is_one)
        .map(|((node, usable), of)| finding(node, usable, &of, classes))
        .collect()
}

fn finding(node: u32, usable: u64, of: &Fallen, classes: &Classes) -> Finding {
    let sizes = match of.smallest == of.largest {
        true => thousands(of.smallest),
        false => format!("{} to {}", thousands(of.smallest), thousands(of.largest)),
    };
    let near = match classes.class_below(of.smallest) {
        Some(below) => format!("{} or {}", thousands(below), thousands(usable)),
        None => thousands(usable),
    };
    Finding {
        kind: FindingKind::Slop,
        title: format!(
            "Rounded up: requests of {sizes} are given {}, {} % more",
            thousands(usable),
            percent(of.slop, of.requested)
        ),
        what: format!(
            "{} of this stack ask for {}, and {} of what they are given are unused: {} each.",
            count(of.blocks, "live block"),
            bytes(of.requested),
            bytes(of.slop),
            bytes(of.slop / of.blocks)
        ),
        change: format!(
            "Blocks that stay together can lie behind one another in pages of {}; where the length is free to choose, \
             {near} waste nothing. The trace does not show whether either may be done, so nothing is promised.",
            bytes(PAGE_BYTES)
        ),
        now_bytes: of.slop,
        blocks: of.blocks,
        confidence: Confidence::Possible,
        node: Some(node),
        ..Finding::default()
    }
}

#[cfg(test)]
mod tests {
    use crate::model::{Confidence, Report};
    use crate::passes::driver::{Driver, jemalloc5};
    use crate::passes::rounding::Rounding;

    /// So many blocks of each of these sizes live at stack 7.
    fn live(sizes: impl IntoIterator<Item = (u64, usize)>) -> Report {
        let mut driver = Driver::new(Rounding::new("libjemalloc.so.2"), jemalloc5);
        for (size, many) in sizes {
            for _ in 0..many {
                driver.alloc(7, size);
            }
        }
        driver.finish()
    }

    #[test]
    fn lengths_that_share_a_class_are_told_and_nothing_is_promised() {
        let report = live((0..36).map(|n| (1060 + 4 * n, 400)));
        let [found] = &report.findings[..] else {
            panic!("{:#?}", report.findings);
        };
        assert!(
            found
                .title
                .contains("1,060 to 1,200 are given 1,280, 13 % more"),
            "{}",
            found.title
        );
        // 36 sizes with 1,130 on average: 150 each are unused.
        assert_eq!((found.now_bytes, found.saved_bytes), (36 * 400 * 150, 0));
        assert_eq!(
            (found.confidence, found.node),
            (Confidence::Possible, Some(7))
        );
    }

    #[test]
    fn one_length_far_above_a_class_is_told() {
        let report = live([(5400, 1000)]);
        let titles: Vec<_> = report.findings.iter().map(|one| &one.title).collect();
        assert_eq!(
            titles,
            ["Rounded up: requests of 5,400 are given 6,144, 14 % more"]
        );
        assert!(
            report.findings[0]
                .change
                .contains("5,120 or 6,144 waste nothing")
        );
    }

    #[test]
    fn lengths_over_several_classes_small_ones_and_small_shares_are_not() {
        let is_silent = |sizes: &[(u64, usize)]| {
            let found = live(sizes.iter().copied()).findings;
            found
                .iter()
                .all(|one| one.confidence != Confidence::Possible)
        };
        // Four classes a doubling cost 11 % over any lengths.
        let spread: Vec<_> = (0..64).map(|n| (1100 + 48 * n, 100)).collect();
        assert!(is_silent(&spread));
        assert!(is_silent(&[(6000, 1000)]), "2 %");
        assert!(is_silent(&[(5400, 80)]), "58 KiB");
        let small: Vec<_> = (0..8).map(|n| (132 + 2 * n, 4000)).collect();
        assert!(is_silent(&small), "elements");
        assert!(!is_silent(&[(5400, 100)]));
    }
}
