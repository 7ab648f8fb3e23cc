//! Slop: what the allocator's rounding costs, by stack and by size.
//!
//! ```text
//!   block  [ requested ........ | slop ]      sum over the live blocks of a stack, of a size
//! ```
//!
//! P1  Slop is usable - requested of the recorded sizes, at the report's instant.
//! P2  What clownshoes.rs flags as really wasted is not counted here: no byte in two findings (`../claims.rs`).
//! P3  A stack is a finding if the slop of its frequent sizes is large in itself and beside what they ask
//!     for; a size is one if it is large over many stacks none of which is. Sizes of which none is frequent
//!     are data of any length: classes cost that much, and there is no size to change.
//! P4  Saved is what the allocator gives less for the change that is told: for requests that are some bytes
//!     smaller the step to the class below, which may be more than the slop (glibc's chunks go by 16); for
//!     several in one block all but the requests themselves, rounded to 8.
//!
//! Not here: the rows by size (`report.sizes`, `counts`), free memory of the allocator.

use rustc_hash::FxHashMap;

use crate::claims::Claim;
use crate::model::{Confidence, Finding, FindingKind, Report};
use crate::pass::{CellBlocks, CellId, CellKey, Context};
use crate::passes::cells::Tally;
use crate::passes::classes::Classes;
use crate::passes::clownshoes::Shoe;
use crate::passes::ranking::push_ranked;
use crate::passes::wording::{bytes, count, percent, thousands};

/// Least slop of a finding: sixteen kernel pages. Less is lost in the noise of any run's peak.
const MIN_BYTES: u64 = 64 * 1024;
/// Least share of what was asked for. Allocators with four classes per doubling average 8 to 11 %
/// over spread sizes for every allocator measured with that many, so only more than that is worth a word.
const MIN_PERCENT: u64 = 12;

/// A size is frequent if it has one of so many parts of its stack's slop.
const FREQUENT: u64 = 8;
/// Requests may lose so many bytes to fit the class below, or one of so many of theirs up to the other: more is
/// not to be had by moving a field.
const TRIM_BYTES: u64 = 16;
const TRIM_PART: u64 = 16;
const TRIM_MOST: u64 = 64;
/// Several are kept in one block up to this size: larger ones are buffers, not elements.
const ELEMENT_MAX: u64 = 1024;

/// Live blocks at the instant, of one stack or one size.
#[derive(Default)]
struct Sum {
    blocks: u64,
    requested: u64,
    slop: u64,
    saved: u64,
    total_saved: u64,
    /// The largest part: its size or node, its usable size, its slop.
    top: (u64, u64, u64),
    parts: Vec<(u64, u32)>,
    claims: Vec<Claim>,
}

impl Sum {
    fn add(&mut self, key: &CellKey, count: &CellBlocks, classes: &Classes) {
        let slop = (key.usable - key.size) * count.at_instant;
        let each = saved_each(key, classes);
        self.blocks += count.at_instant;
        self.requested += key.size * count.at_instant;
        self.slop += slop;
        self.saved += each * count.at_instant;
        self.total_saved += each * count.total;
        self.top = self.top.max_by_slop((key.size, key.usable, slop));
        self.parts.push((slop, key.node.0));
        self.claims.push(Claim {
            key: *key,
            blocks: count.at_instant,
            bytes: each * count.at_instant,
        });
    }

    fn large(&self) -> bool {
        self.slop >= MIN_BYTES && self.slop * 100 >= self.requested * MIN_PERCENT
    }
}

/// Adds the findings. `tally` has seen everything.
pub(super) fn finish(
    tally: &Tally<'_>,
    shoes: &FxHashMap<CellId, Shoe>,
    classes: &Classes,
    context: &Context<'_>,
    report: &mut Report,
) {
    let plain = |(cell, count): (CellId, CellBlocks)| {
        let key = context.cell(cell);
        let clownshoe = shoes.get(&cell).is_some_and(|shoe| shoe.real);
        let plain = !clownshoe && key.usable > key.size;
        (plain && is_to_change(&key, classes)).then_some((key, count))
    };
    let cells: Vec<_> = tally.counts().filter_map(plain).collect();
    let slop = |key: &CellKey, count: &CellBlocks| (key.usable - key.size) * count.at_instant;

    let mut whole: FxHashMap<u32, u64> = FxHashMap::default();
    for (key, count) in &cells {
        *whole.entry(key.node.0).or_default() += slop(key, count);
    }
    let mut stacks: FxHashMap<u32, Sum> = FxHashMap::default();
    for (key, count) in &cells {
        // P3.
        if slop(key, count) * FREQUENT >= whole[&key.node.0] {
            stacks
                .entry(key.node.0)
                .or_default()
                .add(key, count, classes);
        }
    }
    stacks.retain(|_, sum| sum.large());

    let mut sizes: FxHashMap<u64, Sum> = FxHashMap::default();
    for (key, count) in &cells {
        if !stacks.contains_key(&key.node.0) && slop(key, count) * FREQUENT >= whole[&key.node.0] {
            sizes.entry(key.size).or_default().add(key, count, classes);
        }
    }
    let by_stack = stacks
        .into_iter()
        .map(|(node, sum)| stack_finding(node, sum, classes));
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

/// The class that requests of a size could be cut down to (P4).
fn trimmed(size: u64, classes: &Classes) -> Option<u64> {
    let below = classes.class_below(size)?;
    let most = TRIM_BYTES.max((size / TRIM_PART).min(TRIM_MOST));
    (size - below <= most && below >= size / 2).then_some(below)
}

/// Whether there is a change to make: a size that can be cut down, or one to be kept with others.
fn is_to_change(key: &CellKey, classes: &Classes) -> bool {
    key.size <= ELEMENT_MAX || trimmed(key.size, classes).is_some()
}

/// What the change saves of each block (P4).
fn saved_each(key: &CellKey, classes: &Classes) -> u64 {
    match trimmed(key.size, classes) {
        Some(below) => key.usable - below,
        None => (key.usable + classes.head()).saturating_sub(key.size.next_multiple_of(8)),
    }
}

/// What to do about requests of one size that are given much more.
fn trim(size: u64, usable: u64, classes: &Classes) -> String {
    let fit = match trimmed(size, classes) {
        Some(class) => format!(
            "Make them {} smaller: requests of {} fit the class below. Or keep",
            bytes(size - class),
            thousands(class)
        ),
        _ => "Keep".to_owned(),
    };
    format!(
        "{fit} several in one block of {} or more (an array, an arena).",
        bytes((usable * 8).max(64 << 10))
    )
}

fn stack_finding(node: u32, sum: Sum, classes: &Classes) -> Finding {
    let (size, usable, part) = sum.top;
    // One size that loses a field: the arithmetic is all there is to it.
    let certain = trimmed(size, classes).is_some_and(|below| size - below <= TRIM_BYTES)
        && part * 10 >= sum.slop * 9;
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
        change: trim(size, usable, classes),
        now_bytes: sum.slop.max(sum.saved),
        saved_bytes: sum.saved,
        saved_cumulative_bytes: sum.total_saved,
        blocks: sum.blocks,
        confidence: match certain {
            true => Confidence::Certain,
            false => Confidence::Likely,
        },
        node: Some(node),
        claims: sum.claims,
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
        change: trim(size, sum.top.1, classes),
        stacks: nodes.len() as u64,
        now_bytes: sum.slop.max(sum.saved),
        saved_bytes: sum.saved,
        saved_cumulative_bytes: sum.total_saved,
        blocks: sum.blocks,
        confidence: Confidence::Likely,
        node: nodes.first().copied(),
        more_nodes: nodes.into_iter().skip(1).take(50).collect(),
        claims: sum.claims,
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
        // 1400 -> 1536: 136 of slop, 9.7 %: too small a share. 168 -> 192: 24, 14 %, and 160 (8 bytes less) are
        // given 32 less. 10,800 -> 12,288 is a buffer, with nothing to cut and no element.
        (0..1000).for_each(|_| driver.keep(1, 1400));
        (0..5000).for_each(|_| driver.keep(2, 168));
        (0..1000).for_each(|_| driver.keep(4, 10_800));
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
            (Some(2), 160_000, 5000)
        );
        // 16 fit the class below: 16 bytes less each.
        assert_eq!((found[1].now_bytes, found[1].blocks), (128_000, 8000));
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
