//! Clownshoes: requests of 2^k + c, or of a size class + c, with a small c.
//!
//! ```text
//!        1,024 ──┐ +16 (a header)
//!        1,040 ──► jemalloc5 gives 1,280: 240 bytes of every block are never used
//! ```
//!
//! W1  A power of two or a class itself is never one: c is at least 1.
//! W2  Wasted bytes are usable - requested, as the allocator that ran gave them. The saving is the difference between
//!     what it gave and what it gives for the base, and may be less. If most of that difference is in use (533 bytes
//!     of 536 given), only the waste counts as saved.
//! W3  A request that costs nothing under the allocator that ran is none, whatever it would cost under another: glibc
//!     gives 1,024 and 1,025 bytes the same chunk. What another allocator would waste is said beside a real one. What is
//!     not resident is subtracted as slop's is, and what saves no resident memory is `Possible`.
//! W4  Only a size at which the stack's requests pile up counts (spread.rs): strings of 1,030 to 1,229 bytes lie
//!     above 1,024 because they are as long as they are, and there is nothing to round.
//! W5  What was added may have to be kept elsewhere, and costs its own bytes there. The saving is certain only if
//!     they are at most an eighth of it.
//!
//! Which c is small: beside a power of two of at least 256, at most an eighth of it. A header that was added to a
//! buffer of 2^k is usually under 64 bytes, but SQLite's page buffers are 4,096 + 272 and cost 752 bytes each in
//! jemalloc, so 64 alone would miss the best-known one. Below 256 every other size is near a class, and tells
//! nothing but for one byte above it, if that costs the next class, as much as slop has to, and next to all of the
//! stack's blocks have it: no type has such a size. Beside a class that is no power of two no program rounds on purpose, so there c is at most 64 and a
//! sixteenth of the class, and the waste must be at least c and a sixteenth of the block.
//!
//! Source: Nethercote, "Clownshoes available in sizes 2^10+1 and up!" (2011).
//! Not here: slop that has another cause (slop.rs), the rows by size (`counts`).

use rustc_hash::FxHashMap;
use skinflint_sizes::Scheme;

use crate::model::Claim;
use crate::model::{Confidence, Finding, FindingKind, Report};
use crate::pass::CellBlocks;
use crate::pass::{CellId, CellKey, Context};
use crate::passes::cells::Tally;
use crate::passes::classes::Classes;
use crate::passes::ranking::push_ranked;
use crate::passes::slop_worth::{MIN_BYTES, resident_part};
use crate::passes::spread::Spreads;
use crate::passes::wording::{bytes, count, thousands};

/// The smallest base: see the head of the file.
pub(crate) const MIN_BASE: u64 = 256;
/// The smallest base of a request of one byte more.
const LEAST_BASE: u64 = 16;
/// The largest extra beside a class.
const SMALL_EXTRA: u64 = 64;
/// The added bytes are many if the saving is less than this many times as large (W5).
const HEAVY: u64 = 8;
/// The waste that a finding needs at the instant: less than a kernel page gives nothing back.
const MIN_NOW_BYTES: u64 = 4096;
/// The waste over the run that is enough, too: memory that was written for nothing, if not kept.
const MIN_CUMULATIVE_BYTES: u64 = 1 << 20;

/// How a request came to be a little too large, as its extra bytes suggest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Cause {
    /// c = 1: a terminator added after rounding.
    Terminator,
    /// c = 4 or 8: a stored size, or one pointer.
    StoredSize,
    /// c a larger multiple of 8: the header of an arena, of a block, of an object.
    Header,
    /// Any other c.
    Odd,
}

impl Cause {
    /// Returns the usual cause of `extra` bytes.
    pub fn of(extra: u64) -> Self {
        match extra {
            1 => Cause::Terminator,
            4 | 8 => Cause::StoredSize,
            n if n.is_multiple_of(8) => Cause::Header,
            _ => Cause::Odd,
        }
    }

    fn seen(self) -> &'static str {
        match self {
            Cause::Terminator => {
                "One byte too many is usually a terminator added after the size was rounded up"
            }
            Cause::StoredSize => {
                "So few bytes are usually a stored size or a pointer in front of a buffer of round size"
            }
            Cause::Header => {
                "So many bytes are usually the header of an arena, block or object added to a round size"
            }
            Cause::Odd => "What was added to the round size is not plain from its length",
        }
    }

    fn change(self) -> &'static str {
        match self {
            Cause::Terminator => "Count the terminator before rounding up",
            Cause::StoredSize => "Keep the stored size inside the round size, or elsewhere",
            Cause::Header => "Make header and payload together round",
            Cause::Odd => "Ask for the round size",
        }
    }
}

/// A request a little above a round size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shoe {
    /// The round size.
    pub base: u64,
    /// The bytes requested above it.
    pub extra: u64,
}

/// Returns the clownshoes of a run by cell, where requests pile up (W4).
pub(super) fn shoes(
    tally: &Tally<'_>,
    classes: &Classes,
    context: &Context<'_>,
) -> FxHashMap<CellId, Shoe> {
    let spreads = Spreads::of(tally, context);
    let found = tally.counts().filter_map(|(cell, count)| {
        let key = context.cell(cell);
        let shoe = shoe(&key, classes)?;
        let piles = match key.size < MIN_BASE {
            true => {
                let step = key.usable - classes.usable_of(shoe.base);
                let is_much = step.saturating_mul(count.at_instant) >= MIN_BYTES;
                is_much && spreads.is_nearly_all(key.node.0, key.size)
            }
            false => spreads.piles_up(key.node.0, shoe.base, shoe.extra),
        };
        piles.then_some((cell, shoe))
    });
    found.collect()
}

/// Returns whether a request is a little above a round size, and what that costs under the allocator that ran.
fn shoe(key: &CellKey, classes: &Classes) -> Option<Shoe> {
    if !classes.explains(key.size, key.usable) || classes.is_of_an_arena(key.usable) {
        return None;
    }
    let waste = key.usable.saturating_sub(key.size);
    if key.size < MIN_BASE {
        let base = classes.class_below(key.size)?;
        let costs = base >= LEAST_BASE && classes.usable_of(base) < key.usable;
        let one_more = key.size - base == 1 && costs;
        return one_more.then_some(Shoe { base, extra: 1 });
    }
    let power = 1u64 << key.size.ilog2();
    let extra = key.size - power;
    if extra == 0 {
        return None;
    }
    if extra <= power / 8 {
        let real = waste >= key.usable / 16 && classes.usable_of(power) < key.usable;
        return real.then_some(Shoe { base: power, extra });
    }
    let base = classes.class_below(key.size)?;
    let extra = key.size - base;
    let small = base >= MIN_BASE && extra <= SMALL_EXTRA.min(base / 16);
    let costly = waste >= extra && waste >= key.usable / 16 && classes.usable_of(base) < key.usable;
    (small && costly).then_some(Shoe { base, extra })
}

/// The clownshoes of one stack and cause.
#[derive(Default)]
struct Group {
    rows: Vec<(CellKey, Shoe, CellBlocks)>,
    now_wasted: u64,
    now_saved: u64,
    /// The bytes of what would be saved that are not resident; and whether that is most of some size.
    now_absent: u64,
    absent: bool,
    /// Whether what was added to some size is itself much beside the saving (W5).
    heavy: bool,
    run_wasted: u64,
    run_saved: u64,
    now_blocks: u64,
    run_blocks: u64,
    claims: Vec<Claim>,
}

impl Group {
    fn add(&mut self, key: CellKey, shoe: Shoe, count: CellBlocks, classes: &Classes) {
        let waste = key.usable.saturating_sub(key.size);
        let then = classes.usable_of(shoe.base);
        let less = key.usable.saturating_sub(then);
        let saved = if waste * 2 >= less { less } else { waste };
        let now = saved * count.at_instant;
        let own = |usable| classes.own(usable, count.at_instant);
        let more = own(then).saturating_sub(own(key.usable));
        let there = resident_part(now, &count).saturating_sub(more);
        self.now_wasted += waste * count.at_instant;
        self.now_saved += there;
        self.now_absent += count.absent_tail_bytes.min(now);
        self.absent |= there == 0 && now > 0;
        self.heavy |= shoe.extra * HEAVY > saved;
        self.run_wasted += waste * count.total;
        self.run_saved += saved * count.total;
        self.now_blocks += count.at_instant;
        self.run_blocks += count.total;
        self.claims.push(Claim {
            key,
            blocks: count.at_instant,
            bytes: there,
        });
        self.rows.push((key, shoe, count));
    }

    fn matters(&self) -> bool {
        self.now_wasted >= MIN_NOW_BYTES || self.run_wasted >= MIN_CUMULATIVE_BYTES
    }
}

/// The allocators in wide use to compare with (W3): what a reader calls each, and its size scheme.
const OTHERS: [(&str, &str); 3] = [
    ("jemalloc", "jemalloc5"),
    ("mimalloc", "mimalloc"),
    ("tcmalloc", "tcmalloc"),
];

/// Returns which other allocator would waste the most on a request, and how many bytes.
fn elsewhere(size: u64) -> (&'static str, u64) {
    let waste = |(name, scheme): (&'static str, &str)| {
        let usable = Scheme::by_name(scheme).map_or(size, |scheme| scheme.usable(size));
        (name, usable.saturating_sub(size))
    };
    // The first of equals is taken, so that the text does not depend on the order of iteration.
    OTHERS
        .into_iter()
        .map(waste)
        .rev()
        .max_by_key(|(_, waste)| *waste)
        .unwrap_or(("", 0))
}

/// Adds the findings. `tally` has seen everything.
pub(super) fn finish(
    tally: &Tally<'_>,
    shoes: &FxHashMap<CellId, Shoe>,
    classes: &Classes,
    context: &Context<'_>,
    report: &mut Report,
) {
    let mut groups: FxHashMap<(u32, Cause), Group> = FxHashMap::default();
    for (cell, count) in tally.counts() {
        let key = context.cell(cell);
        if let Some(&shoe) = shoes.get(&cell) {
            let group = (key.node.0, Cause::of(shoe.extra));
            groups
                .entry(group)
                .or_default()
                .add(key, shoe, count, classes);
        }
    }
    let big = groups.into_iter().filter(|(_, group)| group.matters());
    let findings = big.map(|((node, cause), group)| finding(node, cause, group));
    push_ranked(report, findings.collect());
}

fn finding(node: u32, cause: Cause, mut group: Group) -> Finding {
    group.rows.sort_by_key(|(key, _, count)| {
        let waste = elsewhere(key.size)
            .1
            .max(key.usable - key.size.min(key.usable));
        std::cmp::Reverse((waste * count.at_instant.max(1), count.total, key.size))
    });
    let (key, shoe, _) = group.rows[0];
    let (other, other_waste) = elsewhere(key.size);
    let title = format!(
        "Requests of {} = {} + {}, each given {}",
        thousands(key.size),
        thousands(shoe.base),
        thousands(shoe.extra),
        thousands(key.usable)
    );
    Finding {
        kind: FindingKind::Clownshoes,
        title,
        what: what(cause, &group, other, other_waste),
        change: change(cause, key, shoe),
        now_bytes: group.now_wasted,
        saved_bytes: group.now_saved,
        saved_cumulative_bytes: group.run_saved,
        saved_allocations: 0,
        blocks: group.now_blocks,
        confidence: match (group.absent, group.heavy) {
            (true, _) => Confidence::Possible,
            (false, false) => Confidence::Certain,
            (false, true) => Confidence::Likely,
        },
        node: Some(node),
        claims: group.claims,
        ..Finding::default()
    }
}

fn what(cause: Cause, group: &Group, other: &str, other_waste: u64) -> String {
    let (key, _, _) = group.rows[0];
    let mut text = format!(
        "This stack asks for {} and is given {}: {} unused in each. {} live at the instant waste {}; {} over the run wasted {}.",
        bytes(key.size),
        bytes(key.usable),
        bytes(key.usable.saturating_sub(key.size)),
        count(group.now_blocks, "block"),
        bytes(group.now_wasted),
        count(group.run_blocks, "block"),
        bytes(group.run_wasted),
    );
    if group.rows.len() > 1 {
        let sizes: Vec<String> = group.rows[1..]
            .iter()
            .take(4)
            .map(|(k, _, _)| thousands(k.size))
            .collect();
        let left = group.rows.len() - 1 - sizes.len();
        text += &format!(" The same with {}", sizes.join(", "));
        text += &if left > 0 {
            format!(" and {left} other sizes.")
        } else {
            " bytes.".to_owned()
        };
    }
    if group.now_absent > 0 {
        text += &format!(
            " {} of the waste {} not resident: it costs addresses, and no memory.",
            bytes(group.now_absent),
            if group.now_absent == 1 { "is" } else { "are" },
        );
    }
    text += &format!(" {}.", cause.seen());
    if other_waste > key.usable.saturating_sub(key.size) {
        text += &format!(" {other} would waste {} in each.", bytes(other_waste));
    }
    text
}

fn change(cause: Cause, key: CellKey, shoe: Shoe) -> String {
    let mut text = format!("{}: ask for {} in all.", cause.change(), bytes(shoe.base));
    if key.usable > key.size {
        text += &format!(" Or use all of the {} that are given.", bytes(key.usable));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::driver::{Driver, glibc, jemalloc5};
    use crate::passes::rounding::Rounding;
    use skinflint_trace::NodeId;

    fn run(allocator: &str, usable: fn(u64) -> u64, requests: &[(u32, u64, u64)]) -> Vec<Finding> {
        let mut driver = Driver::new(Rounding::new(allocator), usable);
        for (node, size, blocks) in requests {
            for _ in 0..*blocks {
                driver.alloc(*node, *size);
            }
        }
        driver.finish().findings
    }

    #[test]
    fn a_power_of_two_is_not_flagged_and_its_neighbours_are() {
        let found = run(
            "libjemalloc.so.2",
            jemalloc5,
            &[(1, 1024, 100), (2, 1025, 100), (3, 1040, 100)],
        );
        assert_eq!(found.len(), 2, "{found:#?}");
        // 1025 -> 1280: 255 wasted, 256 saved by asking for 1024; 1040 -> 1280: 240 wasted. A hundred blocks of 1,280 are
        // in 7 slabs, of 1,024 in 25: 18 heads of 128 bytes more.
        let more = 18 * 128;
        assert_eq!(
            (found[0].node, found[0].now_bytes, found[0].saved_bytes),
            (Some(2), 25_500, 25_600 - more)
        );
        assert_eq!(
            (found[1].node, found[1].now_bytes, found[1].saved_bytes),
            (Some(3), 24_000, 25_600 - more)
        );
        assert!(found[0].what.contains("terminator"), "{}", found[0].what);
        assert!(found[1].what.contains("header"), "{}", found[1].what);
        assert!(
            found[1].change.contains("ask for 1,024 bytes in all"),
            "{}",
            found[1].change
        );
        assert_eq!(found[0].confidence, Confidence::Certain);
        assert_eq!(found[0].blocks, 100);
    }

    /// Chunks of 16 bytes: 1,025 bytes and 257 have the chunk of 1,024 and 256, 1,040 the next.
    #[test]
    fn what_costs_nothing_where_it_ran_is_none() {
        let requests = [
            (1, 1024),
            (2, 1025),
            (3, 1040),
            (4, 257),
            (5, 513),
            (6, 4097),
        ];
        let requests = requests.map(|(node, size)| (node, size, 10_000));
        let found = run("glibc 2.36", glibc, &requests);
        assert!(found.is_empty(), "{found:#?}");
        // 1,025 + 255, 1,040 + 240, 257 + 63, 513 + 127, 4,097 + 1,023.
        assert_eq!(run("libjemalloc.so.2", jemalloc5, &requests).len(), 5);
    }

    #[test]
    fn page_buffers_of_sqlite_are_flagged_by_their_272_bytes() {
        let found = run("libjemalloc.so.2", jemalloc5, &[(1, 4368, 1000)]);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].now_bytes, found[0].saved_bytes),
            // 750 slabs more.
            (752_000, 1_024_000 - 750 * 128)
        );
    }

    #[test]
    fn an_unknown_allocator_is_learned_from_what_it_gave() {
        // Powers of two only: 1536 + 8 is no clownshoe (the class below is 1024), 2048 + 8 is.
        let round = |size: u64| size.next_power_of_two();
        let found = run(
            "libown.so",
            round,
            &[(1, 2048, 1), (2, 2056, 10), (3, 1544, 10)],
        );
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(
            (found[0].node, found[0].now_bytes, found[0].saved_bytes),
            (Some(2), 20_400, 20_480)
        );
        assert!(found[0].what.contains("stored size"));
    }

    #[test]
    fn a_class_that_is_no_power_of_two_counts_if_the_waste_is_larger_than_the_extra() {
        let found = run(
            "libjemalloc.so.2",
            jemalloc5,
            &[(1, 1280, 1), (2, 1288, 100), (3, 1400, 100)],
        );
        // 1288 = 1280 + 8 -> 1536: 248 wasted. 1400 is 120 above: plain slop.
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(
            (found[0].node, found[0].now_bytes, found[0].saved_bytes),
            (Some(2), 24_800, 25_600)
        );
    }

    #[test]
    fn the_instant_and_the_run_are_kept_apart() {
        let mut driver = Driver::new(Rounding::new("libjemalloc.so.2"), jemalloc5);
        let blocks: Vec<_> = (0..50).map(|_| driver.alloc(1, 1025)).collect();
        driver.instant();
        blocks.into_iter().for_each(|block| driver.free(block));
        (0..50).for_each(|_| driver.keep(1, 1025));
        let found = driver.finish().findings;
        assert_eq!((found[0].now_bytes, found[0].blocks), (50 * 255, 50));
        assert_eq!(found[0].saved_cumulative_bytes, 100 * 256);
    }

    #[test]
    fn pages_that_are_not_there_are_not_promised() {
        let of = |absent| {
            let mut driver = Driver::new(Rounding::new("libjemalloc.so.2"), jemalloc5);
            (0..100).for_each(|_| driver.keep(1, 16_408));
            driver.absent(1, 16_408, absent);
            let found = driver.finish().findings;
            assert_eq!(found.len(), 1, "{found:#?}");
            (found[0].saved_bytes, found[0].confidence)
        };
        // 16,384 + 24 are given 20,480.
        assert_eq!(of(0), (409_600, Confidence::Certain));
        assert_eq!(of(204_800), (204_800, Confidence::Certain));
        assert_eq!(of(204_801), (0, Confidence::Possible));
    }

    #[test]
    fn causes_by_their_extra_bytes() {
        let classes = Classes::learn("libjemalloc.so.2", std::iter::empty());
        let of = |size| {
            let key = CellKey {
                node: NodeId(1),
                size,
                usable: jemalloc5(size),
            };
            shoe(&key, &classes).map(|s| (s.base, s.extra, Cause::of(s.extra)))
        };
        assert_eq!(of(1024), None);
        assert_eq!(of(1025), Some((1024, 1, Cause::Terminator)));
        assert_eq!(of(4100), Some((4096, 4, Cause::StoredSize)));
        assert_eq!(of(65_544), Some((65_536, 8, Cause::StoredSize)));
        assert_eq!(of(8_216), Some((8192, 24, Cause::Header)));
        assert_eq!(of(2051), Some((2048, 3, Cause::Odd)));
        assert_eq!(of(1023), None);
        assert_eq!(of(129), Some((128, 1, Cause::Terminator)));
        assert_eq!(of(130), None, "below 256 one byte tells, and nothing else");
        assert_eq!(of(0), None);
        assert_eq!(of(u64::MAX), None);
    }
}
