//! Growth: chains of blocks that one buffer went through.
//!
//! ```text
//!   realloc:   a ─► a' ─► a'' ─► free                       one Act::Regrow for each arrow
//!   by hand:   acquire b (larger than a) ; release a        same stack, same thread, and a released
//!              acquire c (larger than b) ; release b        before that stack acquires again
//! ```
//!
//! G1  A block is in at most one chain of each kind; a chain ends with its block or with the run. A
//!     realloc that shrinks ends it, too.
//! G2  A chain belongs to the stack of its first growth.
//! G3  `allocated` is the sum of what was asked for, the first block's included; `anew` counts only
//!     the blocks whose usable size differs from the one before.
//! G4  By hand, a chain is reported from three steps on; two buffers grown in turns by one stack are
//!     not recognised, nor is a first block that another stack acquired (the chain begins one later).
//!
//! Idea: Nethercote, "Please grow your buffers exponentially".
//! Not here: the shape of a chain (growth_shape.rs).

use rustc_hash::FxHashMap;
use skinflint_trace::ThreadId;

use crate::model::{Confidence, Finding, FindingKind, Growth, GrowthPattern, Report};
use crate::pass::{Act, Block, CellId, Context, Pass};
use crate::passes::cells::{Sites, slot};
use crate::passes::growth_shape::{Chain, by_factor};
use crate::passes::ranking::push_ranked;
use crate::passes::wording::{bytes, count, percent};

/// A finding needs this many steps a chain: fewer copies are no loss.
const MIN_STEPS_PER_CHAIN: u64 = 16;
/// And this much more allocated than doubling would.
const MIN_SAVED_BYTES: u64 = 64 * 1024;
/// Fewest steps of a chain by hand (G4).
const MIN_HAND_STEPS: u32 = 3;

/// See the head of the file.
#[derive(Default)]
pub struct GrowthPass {
    /// A bit by cell: whether any block of it came out of a regrow, which spares most releases the
    /// map. 32 KiB for 256 thousand cells: it stays in the cache.
    regrown: Vec<u64>,
    /// Stacks of chains.
    sites: Sites,
    /// Chains of realloc by the serial of their block.
    chains: FxHashMap<u32, (u32, Chain)>,
    hands: Vec<Hand>,
    /// Chains by hand by site: the serial that each has come to.
    hand_chains: FxHashMap<u32, (u32, Chain)>,
    sums: FxHashMap<(u32, bool), Sum>,
}

/// The last two blocks of a stack. Small, as every act touches one: 40 bytes.
#[derive(Clone, Copy, Default)]
struct Hand {
    current: Link,
    previous: Link,
    /// `hand_chains` has one of this site.
    chained: bool,
}

#[derive(Clone, Copy, Default, PartialEq)]
struct Link {
    serial: u32,
    cell: CellId,
    thread: ThreadId,
    live: bool,
}

/// All chains of a stack, of one kind.
#[derive(Clone, Copy, Default)]
struct Sum {
    chains: u64,
    steps: u64,
    in_place: u64,
    largest: u64,
    allocated: u64,
    anew: u64,
    doubling: (u64, u64),
    half: u64,
    /// Steps of chains that are just enough, fixed, exponential.
    votes: [u64; 3],
    irregular: u64,
    fixed: (u64, u64),
    ln_factor: f64,
}

impl Sum {
    fn add(&mut self, chain: &Chain) {
        let steps = u64::from(chain.steps);
        self.chains += 1;
        self.steps += steps;
        self.in_place += u64::from(chain.in_place);
        self.largest = self.largest.max(chain.last);
        self.allocated = self.allocated.saturating_add(chain.allocated);
        self.anew = self.anew.saturating_add(chain.anew);
        let (doubled, doublings) = by_factor(chain.first, chain.last, (2, 1));
        self.doubling = (
            self.doubling.0.saturating_add(doubled),
            self.doubling.1 + doublings,
        );
        self.half = self
            .half
            .saturating_add(by_factor(chain.first, chain.last, (3, 2)).0);
        match chain.pattern() {
            GrowthPattern::JustEnough => self.votes[0] += steps,
            GrowthPattern::FixedStep(step) => {
                self.votes[1] += steps;
                self.fixed = self.fixed.max((steps, step));
            }
            GrowthPattern::Exponential(factor) => {
                self.votes[2] += steps;
                self.ln_factor += factor.ln() * steps as f64;
            }
            GrowthPattern::Irregular => self.irregular += steps,
        }
    }

    fn pattern(&self) -> GrowthPattern {
        let [just, fixed, factor] = self.votes;
        let most = just.max(fixed).max(factor);
        if most == 0 || most < self.irregular {
            GrowthPattern::Irregular
        } else if factor == most {
            GrowthPattern::Exponential((self.ln_factor / factor as f64).exp())
        } else if fixed == most {
            GrowthPattern::FixedStep(self.fixed.1)
        } else {
            GrowthPattern::JustEnough
        }
    }
}

impl GrowthPass {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    #[inline]
    fn has_regrown(&self, cell: CellId) -> bool {
        let word = self.regrown.get(cell.0 as usize / 64);
        word.is_some_and(|word| word >> (cell.0 % 64) & 1 != 0)
    }

    fn set_regrown(&mut self, cell: CellId) {
        *slot(&mut self.regrown, CellId(cell.0 / 64)) |= 1 << (cell.0 % 64);
    }

    fn regrow(&mut self, context: &Context<'_>, old: &Block, new: &Block) {
        let (from, to) = (context.cell(old.cell), context.key);
        let known = if self.has_regrown(old.cell) {
            self.chains.remove(&old.serial)
        } else {
            None
        };
        if to.size < from.size {
            // G1: what grows again afterwards is another chain.
            if let Some((site, chain)) = known {
                self.end(site, false, &chain);
            }
            return;
        }
        let (site, mut chain) = known.unwrap_or_else(|| {
            self.sites.learn(context.site, to.node);
            (context.site, Chain::new(from.size, from.usable))
        });
        if to.size > from.size {
            chain.step(to.size, (from.usable, to.usable), old.addr == new.addr);
        }
        self.set_regrown(new.cell);
        self.chains.insert(new.serial, (site, chain));
    }

    #[inline]
    fn acquired(&mut self, context: &Context<'_>, block: &Block) {
        let site = context.site;
        if site as usize >= self.hands.len() {
            self.hands
                .resize((site as usize + 1).next_power_of_two(), Hand::default());
        }
        let hand = &mut self.hands[site as usize];
        hand.previous = hand.current;
        hand.current = Link {
            serial: block.serial,
            cell: block.cell,
            thread: block.thread(),
            live: true,
        };
        if hand.chained {
            self.still_chained(site);
        }
    }

    /// The chain of a site is over unless its block is the one before the new one, and lives.
    #[cold]
    fn still_chained(&mut self, site: u32) {
        let hand = &mut self.hands[site as usize];
        let at = self.hand_chains.get(&site).map(|(at, _)| *at);
        if hand.previous.live && at == Some(hand.previous.serial) {
            return;
        }
        hand.chained = false;
        if let Some((_, chain)) = self.hand_chains.remove(&site) {
            self.end(site, true, &chain);
        }
    }

    #[inline]
    fn released(&mut self, context: &Context<'_>, block: &Block, by: ThreadId) {
        let site = context.site;
        if self.has_regrown(block.cell)
            && let Some((site, chain)) = self.chains.remove(&block.serial)
        {
            self.end(site, false, &chain);
        }
        let Some(hand) = self.hands.get_mut(site as usize) else {
            return;
        };
        if hand.current.live && hand.current.serial == block.serial {
            hand.current.live = false;
        } else if hand.previous.live && hand.previous.serial == block.serial {
            hand.previous.live = false;
            let (old, new) = (hand.previous, hand.current);
            if new.live && old.thread == by && new.thread == by {
                self.step_by_hand(context, site, old, new);
            }
        }
    }

    fn step_by_hand(&mut self, context: &Context<'_>, site: u32, old: Link, new: Link) {
        let (from, to) = (context.cell(old.cell), context.cell(new.cell));
        if to.size <= from.size {
            return;
        }
        self.sites.learn(site, context.key.node);
        let (at, chain) = self
            .hand_chains
            .entry(site)
            .or_insert_with(|| (old.serial, Chain::new(from.size, from.usable)));
        chain.step(to.size, (from.usable, to.usable), false);
        *at = new.serial;
        self.hands[site as usize].chained = true;
    }

    fn end(&mut self, site: u32, by_hand: bool, chain: &Chain) {
        let fewest = if by_hand { MIN_HAND_STEPS } else { 1 };
        if chain.steps >= fewest {
            self.sums.entry((site, by_hand)).or_default().add(chain);
        }
    }
}

impl Pass for GrowthPass {
    #[inline]
    fn act(&mut self, context: &Context<'_>, act: &Act) {
        match act {
            Act::Acquire { block, .. } => self.acquired(context, block),
            Act::Release { block, by, .. } => self.released(context, block, *by),
            Act::Regrow { old, new } => self.regrow(context, old, new),
            Act::Mark { .. } => {}
        }
    }

    fn finish(mut self: Box<Self>, _context: &Context<'_>, report: &mut Report) {
        for (site, chain) in std::mem::take(&mut self.chains).into_values() {
            self.end(site, false, &chain);
        }
        for (site, (_, chain)) in std::mem::take(&mut self.hand_chains) {
            self.end(site, true, &chain);
        }
        let mut rows: Vec<(Growth, Sum)> = Vec::with_capacity(self.sums.len());
        for ((site, by_hand), sum) in &self.sums {
            rows.push((row(self.sites.node(*site as usize).0, *by_hand, sum), *sum));
        }
        rows.sort_by_key(|(row, _)| {
            (
                std::cmp::Reverse(row.allocated_bytes),
                row.node,
                row.by_hand,
            )
        });
        let findings = rows
            .iter()
            .filter_map(|(row, sum)| finding(row, sum))
            .collect();
        push_ranked(report, findings);
        report.growth.extend(rows.into_iter().map(|(row, _)| row));
    }
}

fn row(node: u32, by_hand: bool, sum: &Sum) -> Growth {
    Growth {
        node,
        pattern: sum.pattern(),
        by_hand,
        chains: sum.chains,
        steps: sum.steps,
        in_place_steps: sum.in_place,
        largest_bytes: sum.largest,
        allocated_bytes: sum.allocated,
        anew_usable_bytes: sum.anew,
        doubling_bytes: sum.doubling.0,
        one_and_a_half_bytes: sum.half,
    }
}

fn finding(row: &Growth, sum: &Sum) -> Option<Finding> {
    let how = match row.pattern {
        GrowthPattern::JustEnough => "by just enough".to_owned(),
        GrowthPattern::FixedStep(step) => format!("by {} each time", bytes(step)),
        GrowthPattern::Exponential(_) | GrowthPattern::Irregular => return None,
    };
    let saved = row.allocated_bytes.saturating_sub(row.doubling_bytes);
    if row.steps < MIN_STEPS_PER_CHAIN * row.chains || saved < MIN_SAVED_BYTES {
        return None;
    }
    let means = if row.by_hand {
        "allocating, copying and releasing by hand"
    } else {
        "realloc"
    };
    Some(Finding {
        kind: FindingKind::Growth,
        title: format!(
            "Grows {how}: {}, up to {}",
            count(row.steps, "step"),
            bytes(row.largest_bytes)
        ),
        what: format!(
            "{} grown in {} by {means}, to {} at most: {} asked for, where doubling asks for {} and growth by 1.5 for {}. {} % of the steps stayed in place.",
            count(row.chains, "buffer"),
            count(row.steps, "step"),
            bytes(row.largest_bytes),
            bytes(row.allocated_bytes),
            bytes(row.doubling_bytes),
            bytes(row.one_and_a_half_bytes),
            percent(row.in_place_steps, row.steps),
        ),
        change: format!(
            "Double the capacity at each step (1.5 where memory is tight), or ask for {} at once.",
            bytes(row.largest_bytes)
        ),
        saved_cumulative_bytes: saved,
        saved_allocations: row.steps.saturating_sub(sum.doubling.1),
        blocks: row.steps,
        // Steps in place copy nothing: then only calls are saved, and the bytes were never apart.
        confidence: if row.in_place_steps * 10 >= row.steps * 9 {
            Confidence::Possible
        } else {
            Confidence::Likely
        },
        node: Some(row.node),
        ..Finding::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::driver::{Driver, glibc, mozjemalloc_2011};

    const MIB: u64 = 1 << 20;

    /// One buffer through these sizes by realloc at stack 7, then released.
    fn realloc(usable: fn(u64) -> u64, sizes: impl IntoIterator<Item = u64>) -> Report {
        let mut driver = Driver::new(GrowthPass::new(), usable);
        let mut sizes = sizes.into_iter();
        let mut block = driver.alloc(7, sizes.next().expect("a first size"));
        for size in sizes {
            block = driver.regrow(block, 7, size);
        }
        driver.free(block);
        driver.finish()
    }

    /// The same by allocating, copying, releasing.
    fn by_hand(sizes: impl IntoIterator<Item = u64>) -> Report {
        let mut driver = Driver::new(GrowthPass::new(), glibc);
        let mut sizes = sizes.into_iter();
        let mut block = driver.alloc(7, sizes.next().expect("a first size"));
        for size in sizes {
            let larger = driver.alloc(7, size);
            driver.free(block);
            block = larger;
        }
        driver.free(block);
        driver.finish()
    }

    fn iterate(first: u64, last: u64, next: fn(u64) -> u64) -> impl Iterator<Item = u64> {
        std::iter::successors(Some(first), move |size| Some(next(*size)))
            .take_while(move |size| *size <= last)
    }

    #[test]
    fn the_three_sums_of_the_post() {
        // A byte at a time, each step a new block: 1 + 2 + … + 1,048,576.
        let report = realloc(mozjemalloc_2011, 1..=MIB);
        assert_eq!(report.growth[0].allocated_bytes, 549_756_338_176);
        assert_eq!(report.growth[0].pattern, GrowthPattern::JustEnough);
        // The same with the allocator's rounding: only a step into another class allocates. From
        // 4 KiB on the classes are 4096·(1 + 2 + … + 256) = 134,742,016; below lie 2 + 4 + 8, 16 to
        // 512 by 16 (16·528 = 8,448), 1,024 and 2,048.
        assert_eq!(
            report.growth[0].anew_usable_bytes,
            134_742_016 + 14 + 8_448 + 3_072
        );
        let above = realloc(mozjemalloc_2011, 4096..=MIB);
        assert_eq!(above.growth[0].anew_usable_bytes, 134_742_016);
        // Doubling: 4 KiB + 8 KiB + … + 1 MiB, as done, and as the comparison of a buffer that is not.
        let doubled = realloc(mozjemalloc_2011, iterate(4096, MIB, |n| n * 2));
        assert_eq!(doubled.growth[0].allocated_bytes, 2_093_056);
        assert_eq!(doubled.growth[0].anew_usable_bytes, 2_093_056);
        assert_eq!(above.growth[0].doubling_bytes, 2_093_056);
    }

    #[test]
    fn four_vectors_side_by_side_and_only_two_are_findings() {
        let doubling = realloc(glibc, iterate(64, MIB, |n| n * 2));
        assert!(
            matches!(doubling.growth[0].pattern, GrowthPattern::Exponential(f) if (f - 2.0).abs() < 1e-9)
        );
        assert!(doubling.findings.is_empty());
        let half = realloc(glibc, iterate(64, MIB, |n| n + n / 2));
        assert!(
            matches!(half.growth[0].pattern, GrowthPattern::Exponential(f) if (f - 1.5).abs() < 0.01)
        );
        assert!(half.findings.is_empty());
        let one = realloc(glibc, iterate(8, 80_000, |n| n + 8));
        assert_eq!(one.growth[0].pattern, GrowthPattern::JustEnough);
        // 8·(1 + … + 10,000) = 400,040,000 against 8·(2^15 - 1) = 262,136.
        assert_eq!(one.growth[0].allocated_bytes, 400_040_000);
        assert_eq!(
            one.findings[0].saved_cumulative_bytes,
            400_040_000 - 262_136
        );
        assert_eq!(one.findings[0].saved_allocations, 9_999 - 14);
        let page = realloc(glibc, iterate(4096, MIB, |n| n + 4096));
        assert_eq!(page.growth[0].pattern, GrowthPattern::FixedStep(4096));
        assert_eq!(page.findings.len(), 1);
        assert_eq!(page.findings[0].confidence, Confidence::Likely);
        assert_eq!((page.growth[0].chains, page.growth[0].steps), (1, 255));
    }

    #[test]
    fn chains_by_hand_have_the_same_figures() {
        let page = by_hand(iterate(4096, MIB, |n| n + 4096));
        assert!(page.growth[0].by_hand);
        assert_eq!(page.growth[0].pattern, GrowthPattern::FixedStep(4096));
        assert_eq!((page.growth[0].chains, page.growth[0].steps), (1, 255));
        assert_eq!(page.growth[0].allocated_bytes, 134_742_016);
        assert_eq!(page.findings.len(), 1);
        let doubling = by_hand(iterate(64, MIB, |n| n * 2));
        assert!(matches!(
            doubling.growth[0].pattern,
            GrowthPattern::Exponential(_)
        ));
        assert!(doubling.findings.is_empty());
    }

    #[test]
    fn two_buffers_one_after_the_other_are_two_chains() {
        let mut d = Driver::new(GrowthPass::new(), glibc);
        for _ in 0..2 {
            let mut block = d.alloc(7, 100);
            for size in [200, 400, 800] {
                let larger = d.alloc(7, size);
                d.free(block);
                block = larger;
            }
            d.free(block);
        }
        let report = d.finish();
        assert_eq!((report.growth[0].chains, report.growth[0].steps), (2, 6));
        assert_eq!(report.growth[0].allocated_bytes, 2 * 1500);
        assert_eq!(report.growth[0].largest_bytes, 800);
    }

    #[test]
    fn what_is_no_chain_by_hand() {
        let mut driver = Driver::new(GrowthPass::new(), glibc);
        // Rising sizes, each released before the next is acquired.
        (1..100).for_each(|i| {
            let block = driver.alloc(1, 100 * i);
            driver.free(block);
        });
        // Rising sizes, all kept.
        (1..100).for_each(|i| driver.keep(2, 100 * i));
        // A queue: the oldest of three is released.
        let mut queue = std::collections::VecDeque::new();
        (1..100).for_each(|i| {
            queue.push_back(driver.alloc(3, 100 * i));
            if queue.len() == 3 {
                let oldest = queue.pop_front().expect("three");
                driver.free(oldest);
            }
        });
        // Another thread releases.
        let mut last = driver.alloc(4, 1);
        (1..100).for_each(|i| {
            let next = driver.alloc(4, 100 * i);
            driver.thread = ThreadId(1);
            driver.free(last);
            driver.thread = ThreadId(0);
            last = next;
        });
        assert!(driver.finish().growth.is_empty());
    }

    #[test]
    fn a_shrink_ends_a_chain_and_the_end_of_the_run_does_too() {
        let mut driver = Driver::new(GrowthPass::new(), glibc);
        let mut block = driver.alloc(1, 100);
        for size in [200, 400, 800, 50, 100, 200] {
            block = driver.regrow(block, 1, size);
        }
        let report = driver.finish();
        assert_eq!((report.growth[0].chains, report.growth[0].steps), (2, 5));
        assert_eq!(report.growth[0].allocated_bytes, 1500 + 350);
        assert_eq!(report.growth[0].largest_bytes, 800);
    }
}
