//! Slop: what the allocator's rounding costs, by stack and by size.
//!
//! ```text
//!   block  [ requested ........ | slop ]      sum over the live blocks of a stack, of a size
//! ```
//!
//! P1  Slop is usable - requested of the recorded sizes, at the report's instant.
//! P2  What clownshoes.rs flags as really wasted is not counted here: no byte in two findings.
//! P3  A stack is a finding if its slop is large in itself and beside what it asked for; a size is
//!     one if it is large over many stacks none of which is.
//!
//! Not here: the rows by size (`report.sizes`, `counts`), free memory of the allocator.

use rustc_hash::FxHashMap;

use crate::model::{Confidence, Finding, FindingKind, Report};
use crate::pass::Context;
use crate::passes::cells::Tally;
use crate::passes::classes::Classes;
use crate::passes::clownshoes::shoe;
use crate::passes::ranking::push_ranked;
use crate::passes::wording::{bytes, count, percent, thousands};

/// Least slop of a finding: sixteen kernel pages. Less is lost in the noise of any run's peak.
const MIN_BYTES: u64 = 64 * 1024;
/// Least share of what was asked for. Allocators with four classes per doubling average 8 to 11 %
/// over spread sizes for every allocator measured with that many, so only more than that is worth a word.
const MIN_PERCENT: u64 = 12;

/// Live blocks at the instant, of one stack or one size.
#[derive(Default)]
struct Sum {
    blocks: u64,
    requested: u64,
    slop: u64,
    total_slop: u64,
    /// The largest part: its size or node, its usable size, its slop.
    top: (u64, u64, u64),
    parts: Vec<(u64, u32)>,
}

impl Sum {
    fn large(&self) -> bool {
        self.slop >= MIN_BYTES && self.slop * 100 >= self.requested * MIN_PERCENT
    }
}

/// Adds the findings. `tally` has seen everything.
pub(super) fn finish(
    tally: &Tally<'_>,
    classes: &Classes,
    context: &Context<'_>,
    report: &mut Report,
) {
    let plain = |(cell, count)| {
        let key = context.cell(cell);
        let clownshoe = shoe(&key, classes).is_some_and(|shoe| shoe.real);
        (!clownshoe && key.usable > key.size).then_some((key, count))
    };
    let cells: Vec<_> = tally.counts().filter_map(plain).collect();

    let mut stacks: FxHashMap<u32, Sum> = FxHashMap::default();
    for (key, count) in &cells {
        let sum = stacks.entry(key.node.0).or_default();
        let slop = (key.usable - key.size) * count.at_instant;
        sum.blocks += count.at_instant;
        sum.requested += key.size * count.at_instant;
        sum.slop += slop;
        sum.total_slop += (key.usable - key.size) * count.total;
        sum.top = sum.top.max_by_slop((key.size, key.usable, slop));
    }
    stacks.retain(|_, sum| sum.large());

    let mut sizes: FxHashMap<u64, Sum> = FxHashMap::default();
    for (key, count) in cells
        .iter()
        .filter(|(key, _)| !stacks.contains_key(&key.node.0))
    {
        let sum = sizes.entry(key.size).or_default();
        let slop = (key.usable - key.size) * count.at_instant;
        sum.blocks += count.at_instant;
        sum.requested += key.size * count.at_instant;
        sum.slop += slop;
        sum.total_slop += (key.usable - key.size) * count.total;
        sum.top = sum.top.max_by_slop((key.size, key.usable, slop));
        sum.parts.push((slop, key.node.0));
    }
    let by_stack = stacks
        .into_iter()
        .map(|(node, sum)| stack_finding(node, &sum, classes));
    let by_size = sizes
        .into_iter()
        .filter(|(_, sum)| sum.large())
        .map(|(size, sum)| size_finding(size, sum, classes));
    push_ranked(report, by_stack.chain(by_size).collect());
}

trait Largest {
    fn max_by_slop(self, other: Self) -> Self;
}

impl Largest for (u64, u64, u64) {
    fn max_by_slop(self, other: Self) -> Self {
        // Ties to the smaller size, so that the text does not depend on the order of cells.
        if (other.2, std::cmp::Reverse(other.0)) > (self.2, std::cmp::Reverse(self.0)) {
            other
        } else {
            self
        }
    }
}

/// What to do about requests of one size that are given much more.
fn trim(size: u64, usable: u64, below: Option<u64>) -> String {
    let fit = match below {
        Some(class) if size - class <= class / 2 => format!(
            "Make them {} smaller: requests of {} fit the class below. Or keep",
            bytes(size - class),
            thousands(class)
        ),
        _ => "Keep".to_owned(),
    };
    format!(
        "{fit} several in one block of {} or more (an array, an arena).",
        bytes(usable * 8)
    )
}

fn stack_finding(node: u32, sum: &Sum, classes: &Classes) -> Finding {
    let (size, usable, part) = sum.top;
    let below = classes.class_below(size);
    Finding {
        kind: FindingKind::Slop,
        title: format!(
            "Rounded up: requests of {} are given {}, {} % more",
            thousands(size),
            thousands(usable),
            percent(usable - size, size)
        ),
        what: format!(
            "{} of this stack ask for {} and are given {}. The largest part: requests of {} are given {} ({} of slop).",
            count(sum.blocks, "live block"),
            bytes(sum.requested),
            bytes(sum.requested + sum.slop),
            bytes(size),
            bytes(usable),
            bytes(part),
        ),
        change: trim(size, usable, below),
        now_bytes: sum.slop,
        saved_bytes: sum.slop,
        saved_cumulative_bytes: sum.total_slop,
        blocks: sum.blocks,
        confidence: Confidence::Possible,
        node: Some(node),
        ..Finding::default()
    }
}

fn size_finding(size: u64, mut sum: Sum, classes: &Classes) -> Finding {
    sum.parts
        .sort_unstable_by_key(|(slop, node)| (std::cmp::Reverse(*slop), *node));
    let nodes: Vec<u32> = sum.parts.iter().map(|(_, node)| *node).collect();
    Finding {
        kind: FindingKind::Slop,
        title: format!(
            "Rounded up: requests of {} are given {}, from {}",
            bytes(size),
            thousands(sum.top.1),
            count(nodes.len() as u64, "stack")
        ),
        what: format!(
            "{} of {} are given {} each. No single stack holds much of it.",
            count(sum.blocks, "live block"),
            bytes(size),
            bytes(sum.top.1)
        ),
        change: trim(size, sum.top.1, classes.class_below(size)),
        stacks: nodes.len() as u64,
        now_bytes: sum.slop,
        saved_bytes: sum.slop,
        saved_cumulative_bytes: sum.total_slop,
        blocks: sum.blocks,
        confidence: Confidence::Possible,
        node: nodes.first().copied(),
        more_nodes: nodes.into_iter().skip(1).take(50).collect(),
        ..Finding::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::driver::{Driver, jemalloc5};
    use crate::passes::rounding::Rounding;

    #[test]
    fn slop_is_found_by_stack_and_by_size_and_clownshoes_are_left_out() {
        let mut driver = Driver::new(Rounding::new("libjemalloc.so.2"), jemalloc5);
        // 1400 -> 1536: 136 of slop, 9.7 %: too small a share. 1350 -> 1536: 186, 14 %.
        (0..1000).for_each(|_| driver.keep(1, 1400));
        (0..1000).for_each(|_| driver.keep(2, 1350));
        // 17 -> 32: 15 of slop in each of 8,000 blocks from 80 stacks: 120,000 bytes.
        (0..8000u32).for_each(|i| driver.keep(100 + i % 80, 17));
        // 1025 is clownshoes' business.
        (0..1000).for_each(|_| driver.keep(3, 1025));
        let found = driver.finish().findings;
        let found: Vec<_> = found
            .into_iter()
            .filter(|f| f.kind == FindingKind::Slop)
            .collect();
        assert_eq!(found.len(), 2, "{found:#?}");
        assert_eq!(
            (found[0].node, found[0].now_bytes, found[0].blocks),
            (Some(2), 186_000, 1000)
        );
        assert_eq!((found[1].now_bytes, found[1].blocks), (120_000, 8000));
        assert_eq!(found[1].more_nodes.len(), 50);
        assert!(
            found[1]
                .title
                .contains("17 bytes are given 32, from 80 stacks"),
            "{}",
            found[1].title
        );
    }

    #[test]
    fn what_was_released_before_the_instant_does_not_count() {
        let mut driver = Driver::new(Rounding::new("libjemalloc.so.2"), jemalloc5);
        let blocks: Vec<_> = (0..1000).map(|_| driver.alloc(2, 1350)).collect();
        blocks.into_iter().for_each(|block| driver.free(block));
        driver.instant();
        (0..1000).for_each(|_| driver.keep(2, 1350));
        assert!(driver.finish().findings.is_empty());
    }
}
