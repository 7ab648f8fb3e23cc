//! Slop: what the allocator's rounding costs, by stack and by size.
//!
//! ```text
//!   block  [ requested ........ | slop ]      sum over the live blocks of a stack, of a size
//! ```
//!
//! P1  Slop is usable - requested of the recorded sizes, at the report's instant.
//! P2  What clownshoes.rs flags as really wasted is not counted here: no byte in two findings (`../claims.rs`).
//! P3  A size is the stack's to change if three quarters of its live blocks have it: a struct, or a constant. Others
//!     are data of any length: classes cost that much, and there is no size to change. Such a stack is a finding if
//!     its slop is large in itself and beside what it requests; a size is a finding if its slop is large over many
//!     stacks, none of which is a finding.
//! P4  The saving is what the allocator gives less for the change that is advised: for requests that are some bytes
//!     smaller the step to the class below, which may be more than the slop (glibc's chunks come in steps of 16); for
//!     several in one block everything except the requests themselves, rounded to 8. If a few bytes too many cost a
//!     step that is large beside the request, that counts, too, however little is unused: glibc's 80 need 96, and 72
//!     need 80.
//! P5  What is not resident costs no memory (`books/tails.rs`): it is subtracted from what is promised and from what
//!     is there. If more than half is absent, nothing is promised.
//! P6  A size that is a multiple of four may be that of a type whose members are all in use, and half of all types
//!     lie just above a class: no trace shows that one of them could be smaller. So what the change would save is
//!     stated in words, and nothing is promised, nor is it certain that there is a change to make. Any other size is
//!     a length that was computed, and what lies above the class was added to it.
//!
//! Not here: large blocks of many sizes that share a class (slop_class.rs); whether the owner of a stack chose its
//! size or a library did (`../owner.rs`); the rows by size (`report.sizes`, `counts`), free memory of the allocator.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::model::Claim;
use crate::model::{Confidence, Finding, FindingKind, Report};
use crate::pass::{CellBlocks, CellId, CellKey, Context};
use crate::passes::cells::Tally;
use crate::passes::classes::Classes;
use crate::passes::clownshoes::Shoe;
use crate::passes::ranking::push_ranked;
use crate::passes::slop_class;
use crate::passes::slop_worth::{ELEMENT_MAX, MIN_BYTES, MIN_PERCENT, resident_part};
use crate::passes::wording::{bytes, count, percent, thousands};

/// A size is its stack's own if this many of four of its live blocks have it (P3).
const OWN_OF_FOUR: u64 = 3;
/// Few bytes too many are at most one part in this many of a request (P4).
const FEW_PART: u64 = 8;
/// The bytes that requests may lose to fit the class below, or the part of theirs up to the other: more cannot be
/// gained by moving a field.
const TRIM_BYTES: u64 = 16;
const TRIM_PART: u64 = 16;
const TRIM_MOST: u64 = 64;
/// A type with a number in it has a size that is a multiple of this many bytes (P6).
const TYPE_BYTES: u64 = 4;
/// Live blocks at the instant, of one stack or one size.
#[derive(Default)]
struct Sum {
    blocks: u64,
    requested: u64,
    slop: u64,
    /// The bytes that the change would save, and how many of these are promised (P6).
    would: u64,
    saved: u64,
    /// The slop, or the cost of the step if few bytes cause it.
    stepped: u64,
    total_saved: u64,
    /// The largest part: its size or node, its usable size, its slop.
    top: (u64, u64, u64),
    parts: Vec<(u64, u32)>,
    claims: Vec<Claim>,
}

impl Sum {
    fn add(&mut self, key: &CellKey, count: &CellBlocks, classes: &Classes) {
        let all = (key.usable - key.size) * count.at_instant;
        let slop = all.saturating_sub(count.absent_tail_bytes);
        let each = saved_each(key, classes);
        let would = resident_part(each * count.at_instant, count);
        let promised = !is_of_a_type(key.size);
        let saved = if promised { would } else { 0 };
        self.blocks += count.at_instant;
        self.requested += key.size * count.at_instant;
        self.slop += slop;
        self.would += would;
        self.saved += saved;
        if steps(key, classes) {
            self.stepped += would;
        } else {
            self.stepped += slop;
        }
        self.total_saved += if promised { each * count.total } else { 0 };
        self.top = self.top.max_by_slop((key.size, key.usable, slop));
        // A stack of which nothing lives holds nothing of it.
        if count.at_instant > 0 {
            self.parts.push((slop, key.node.0));
        }
        self.claims.push(Claim {
            key: *key,
            blocks: count.at_instant,
            bytes: saved,
        });
    }

    fn large(&self) -> bool {
        let cost = self.slop.max(self.stepped);
        cost >= MIN_BYTES && cost * 100 >= self.requested * MIN_PERCENT
    }
}

/// Reports whether a type may have this size (P6).
fn is_of_a_type(size: u64) -> bool {
    size.is_multiple_of(TYPE_BYTES)
}

/// Reports whether few bytes too many cost a step to the next class (P4).
fn steps(key: &CellKey, classes: &Classes) -> bool {
    let below = trimmed(key.size, classes);
    below.is_some_and(|below| (key.size - below) * FEW_PART <= key.size)
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
        let clownshoe = shoes.contains_key(&cell);
        let plain = !clownshoe && key.usable > key.size && !classes.is_of_an_arena(key.usable);
        (plain && is_to_change(&key, classes)).then_some((key, count))
    };
    let cells: Vec<_> = tally.counts().filter_map(plain).collect();
    let own = Own::of(tally, context);
    let mut stacks: FxHashMap<u32, Sum> = FxHashMap::default();
    for (key, count) in &cells {
        if own.is_size_of_stack(key) {
            stacks
                .entry(key.node.0)
                .or_default()
                .add(key, count, classes);
        }
    }
    stacks.retain(|_, sum| sum.large());

    let mut sizes: FxHashMap<u64, Sum> = FxHashMap::default();
    for (key, count) in &cells {
        if !stacks.contains_key(&key.node.0) && own.is_size_of_stack(key) {
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
    let found: Vec<Finding> = by_stack.chain(by_size).collect();
    // A stack whose blocks are clownshoes has already been reported.
    let shoes = shoes.keys().map(|cell| context.cell(*cell).node.0);
    let told: FxHashSet<u32> = found
        .iter()
        .filter_map(|one| one.node)
        .chain(shoes)
        .collect();
    let live = tally
        .counts()
        .map(|(cell, count)| (context.cell(cell), count));
    let fallen = slop_class::findings(live, &told, classes);
    push_ranked(report, found.into_iter().chain(fallen).collect());
}

/// Live blocks by stack, and by stack and size: an allocator may answer one size in several ways.
struct Own {
    stacks: FxHashMap<u32, u64>,
    sizes: FxHashMap<(u32, u64), u64>,
}

impl Own {
    fn of(tally: &Tally<'_>, context: &Context<'_>) -> Self {
        let (mut stacks, mut sizes) = (FxHashMap::default(), FxHashMap::default());
        // Thousands of sizes that a buffer passes through live no more: none of them needs an entry.
        let live = tally.counts().filter(|(_, count)| count.at_instant > 0);
        for (cell, count) in live {
            let key = context.cell(cell);
            *stacks.entry(key.node.0).or_default() += count.at_instant;
            *sizes.entry((key.node.0, key.size)).or_default() += count.at_instant;
        }
        Self { stacks, sizes }
    }

    /// Reports whether the size is the stack's own (P3).
    fn is_size_of_stack(&self, key: &CellKey) -> bool {
        let of = self.sizes.get(&(key.node.0, key.size)).copied();
        let all = self.stacks.get(&key.node.0).copied();
        of.unwrap_or(0) * 4 >= all.unwrap_or(0) * OWN_OF_FOUR
    }
}

trait Largest {
    fn max_by_slop(self, other: Self) -> Self;
}

impl Largest for (u64, u64, u64) {
    fn max_by_slop(self, other: Self) -> Self {
        // Ties go to the smaller size, so that the text does not depend on the order of cells.
        if (other.2, std::cmp::Reverse(other.0)) > (self.2, std::cmp::Reverse(self.0)) {
            other
        } else {
            self
        }
    }
}

/// Returns the class that requests of a size could be cut down to (P4).
fn trimmed(size: u64, classes: &Classes) -> Option<u64> {
    let below = classes.class_below(size)?;
    let most = TRIM_BYTES.max((size / TRIM_PART).min(TRIM_MOST));
    (size - below <= most && below >= size / 2).then_some(below)
}

/// Reports whether there is a change to make: a size that can be cut down, or one to be kept with others.
fn is_to_change(key: &CellKey, classes: &Classes) -> bool {
    let explained = classes.explains(key.size, key.usable);
    key.size <= ELEMENT_MAX || explained && trimmed(key.size, classes).is_some()
}

/// Returns what the change saves of each block (P4).
fn saved_each(key: &CellKey, classes: &Classes) -> u64 {
    match trimmed(key.size, classes) {
        Some(below) => key.usable - below,
        None => (key.usable + classes.head()).saturating_sub(key.size.next_multiple_of(8)),
    }
}

/// Describes what to do about requests of one size that are given much more.
fn trim((size, usable): (u64, u64), would: u64, classes: &Classes) -> String {
    if size == 0 {
        return "Do not ask for nothing: where there is no element, a null pointer or an empty value needs no block."
            .into();
    }
    let fit = match trimmed(size, classes) {
        Some(class) if is_of_a_type(size) => format!(
            "If {} of each can go (padding, a member of a smaller type), the rest fits the class below, and {} are \
             saved. Or keep",
            bytes(size - class),
            bytes(would)
        ),
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
    // One size loses a field: the arithmetic is all that is needed.
    let certain = trimmed(size, classes).is_some_and(|below| size - below <= TRIM_BYTES)
        && part * 10 >= sum.slop * 9
        && !is_of_a_type(size);
    Finding {
        kind: FindingKind::Slop,
        title: match size {
            0 => format!(
                "Rounded up: requests of 0 bytes cost {} each",
                thousands(usable + classes.head())
            ),
            size => format!(
                "Rounded up: requests of {} are given {}, {} % more",
                thousands(size),
                thousands(usable),
                percent(usable - size, size)
            ),
        },
        what: format!(
            "{} of this stack ask for {} and are given {}. The largest part: requests of {} are given {} ({} of slop).",
            count(sum.blocks, "live block"),
            bytes(sum.requested),
            bytes(sum.requested + sum.slop),
            bytes(size),
            bytes(usable),
            bytes(part),
        ),
        change: trim((size, usable), sum.would, classes),
        would_bytes: sum.would,
        now_bytes: sum.slop.max(sum.would),
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
        change: trim((size, sum.top.1), sum.would, classes),
        would_bytes: sum.would,
        stacks: nodes.len() as u64,
        now_bytes: sum.slop.max(sum.would),
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
    use crate::passes::driver::{Driver, glibc, jemalloc5};
    use crate::passes::rounding::Rounding;

    #[test]
    fn slop_is_found_by_stack_and_by_size_and_clownshoes_are_left_out() {
        let mut driver = Driver::new(Rounding::new("libjemalloc.so.2"), jemalloc5);
        // 1400 -> 1536: 136 of slop, 9.7 %: too small a share. 168 -> 192: 24, 14 %, and 160 (8 bytes less) are
        // given 32 less. 10,800 -> 12,288 is a buffer, with nothing to cut and no element: slop_class.rs tells of it.
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
        assert_eq!(found.len(), 3, "{found:#?}");
        assert_eq!(
            (found[2].node, found[2].saved_bytes),
            (Some(2), 0),
            "{found:#?}"
        );
        // 16 fit the class below: 16 bytes less each. What is promised comes first.
        assert_eq!((found[0].now_bytes, found[0].blocks), (128_000, 8000));
        assert_eq!(found[0].more_nodes.len(), 50);
        assert!(
            found[0]
                .title
                .contains("17 bytes are given 32, from 80 stacks"),
            "{}",
            found[0].title
        );
        assert_eq!(
            (found[2].node, found[2].now_bytes, found[2].blocks),
            (Some(2), 160_000, 5000)
        );
    }

    #[test]
    fn stacks_of_which_nothing_lives_are_not_counted() {
        let mut driver = Driver::new(Rounding::new("libjemalloc.so.2"), jemalloc5);
        (0..8000u32).for_each(|i| driver.keep(100 + i % 80, 17));
        for stack in 500..900 {
            let gone = driver.alloc(stack, 17);
            driver.free(gone);
        }
        let found = driver.finish().findings;
        assert_eq!((found[0].stacks, found[0].blocks), (80, 8000));
        assert!(
            found[0].title.ends_with("from 80 stacks"),
            "{}",
            found[0].title
        );
    }

    #[test]
    fn of_requests_of_nothing_the_cost_is_told_and_that_none_need_be_made() {
        let found = slop_of("glibc 2.36", glibc, &[(1, 0, 20_000)]);
        let [one] = &found[..] else {
            panic!("{found:#?}");
        };
        // 24 usable bytes behind a header of 8.
        assert_eq!(one.title, "Rounded up: requests of 0 bytes cost 32 each");
        assert!(
            one.change.starts_with("Do not ask for nothing"),
            "{}",
            one.change
        );
        assert_eq!(one.now_bytes, 20_000 * 32);
    }

    /// Slop findings of a run under an allocator: (stack, size, blocks).
    fn slop_of(
        allocator: &str,
        usable: fn(u64) -> u64,
        requests: &[(u32, u64, u64)],
    ) -> Vec<Finding> {
        let mut driver = Driver::new(Rounding::new(allocator), usable);
        for (node, size, blocks) in requests {
            (0..*blocks).for_each(|_| driver.keep(*node, *size));
        }
        let mut found = driver.finish().findings;
        found.retain(|one| one.kind == FindingKind::Slop);
        found
    }

    #[test]
    fn few_bytes_that_cost_a_chunk_count_by_the_chunk() {
        // 80 are given 88 in 96; 72 are in 80. 144 = 136 + 8 lose 16 of 144, 11 %: too small a share.
        let found = slop_of("glibc 2.36", glibc, &[(1, 80, 10_000), (2, 144, 10_000)]);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!((found[0].node, found[0].now_bytes), (Some(1), 160_000));
        assert!(
            found[0].change.contains("If 8 bytes of each can go"),
            "{}",
            found[0].change
        );
        // Of 84 twelve are over: no few bytes, and little slop. 88 fill theirs.
        let found = slop_of("glibc 2.36", glibc, &[(1, 84, 10_000), (2, 88, 10_000)]);
        assert_eq!(found.len(), 0, "{found:#?}");
    }

    #[test]
    fn a_size_is_the_stacks_own_if_three_quarters_of_its_blocks_have_it() {
        let of = |others| {
            let found = slop_of("glibc 2.36", glibc, &[(1, 64, 9000), (1, 500, others)]);
            found.len()
        };
        assert_eq!((of(0), of(3000), of(3001)), (1, 1, 0));
        // Thirty sizes, of which each could be cut by some bytes.
        let sizes: Vec<_> = (5..35).map(|lines| (1, lines * 120, 3000)).collect();
        assert_eq!(slop_of("libjemalloc.so.2", jemalloc5, &sizes).len(), 0);
    }

    #[test]
    fn what_is_not_resident_is_not_promised() {
        let of = |absent| {
            let mut driver = Driver::new(Rounding::new("libjemalloc.so.2"), jemalloc5);
            (0..100_100).for_each(|_| driver.keep(1, 161));
            driver.absent(1, 161, absent);
            let found = driver.finish().findings;
            found.first().map_or(0, |one| one.saved_bytes)
        };
        assert_eq!(of(0), 100_100 * 32);
        assert_eq!(of(1_000_000), 100_100 * 32 - 1_000_000);
        assert_eq!(of(100_100 * 16 + 1), 0);
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
