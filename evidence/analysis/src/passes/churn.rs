//! Churn: which stacks allocate most often, how short-lived the blocks are, and when.
//!
//! ```text
//!   stack 7:  acquire a ; release a ; acquire b ; release b …      a, b: temporaries
//!   marks  :  |-- start-up --|-- mark 0 to 1 --|-- …              the busiest interval by stack
//! ```
//!
//! U1  A temporary is a block released before its stack acquires again, as the ledger counts them in the report's
//!     sites. A regrow is an acquisition of the new block's stack; the old block is no temporary, since the buffer
//!     lives on (growth.rs).
//! U4  If several blocks are in flight, each lives briefly: a block that is released within some hundred acquisitions
//!     of the whole process, in whatever order, has at most that many of its stack beside it. A few that are used
//!     again serve all of them. The ledger counts these, too.
//! U2  Rates are over the time from a stack's first acquisition to its last, and are not given if that is under a
//!     millisecond.
//! U3  Intervals lie between successive marks; before the first is start-up. A stack remembers how
//!     much it did during start-up and in its busiest interval: memory does not grow with marks.
//! U6  A block that a larger one of its stack replaced (growth by hand, growth.G4) is a step of a buffer. Growth is churn
//!     only if the buffers themselves live briefly, and are many: then one that is kept saves their steps, too.
//! U5  Nearly all of a stack's blocks live briefly, and are hundreds of times as many as may live at a time: then the
//!     number of calls saved follows from the trace, to some per cent. For large blocks it is not certain that one is
//!     to be kept.
//!
//! Not here: counting (the ledger's sites: two counts of one thing could differ), growing buffers (growth.rs).

use rustc_hash::FxHashMap;
use skinflint_trace::Mark;

use crate::cells::BRIEF;
use crate::model::{Confidence, Finding, FindingKind, Report, Site};
use crate::pass::{Act, Block, Context, Pass};
use crate::passes::cells::Sites;
use crate::passes::ranking::push_ranked;
use crate::passes::wording::{about, bytes, count, percent, thousands};

/// The allocations that a finding needs: at some 50 ns a pair less than a millisecond is spent with fewer.
const MIN_ALLOCATIONS: u64 = 10_000;
/// The share of temporaries in per cent that a finding needs: from here on one kept buffer serves nearly all.
const MIN_TEMPORARY_PERCENT: u64 = 75;
/// The cost of a pair of malloc and free in CPU, nanoseconds, and the least share of the program's CPU that is worth
/// a change, in per cent: a smaller one would not be noticed.
const PAIR_NS: u64 = 40;
const MIN_CPU_PERCENT: u64 = 1;
/// The share of the run's allocations in per cent, or else the rate, that a finding needs.
const MIN_SHARE_PERCENT: u64 = 1;
const MIN_RATE: f64 = 10_000.0;
/// The buffers that grow, from which on one that is kept saves what a finding needs (U6): each takes some steps.
const MIN_BUFFERS: u64 = 1_000;
/// The share of short-lived blocks from which on the saving is what was counted (U5).
const EXACT_PERCENT: u64 = 95;
/// The size up to which a buffer may live on the machine stack.
const STACK_BUFFER_MAX: u64 = 4096;

/// The pass over churn; see the head of the file.
#[derive(Default)]
pub struct Churn {
    sites: Sites,
    /// Figures by site; empty if there are no marks.
    stats: Vec<Stat>,
    marks: Vec<String>,
    /// The current interval: 0 is start-up; mark i begins interval i + 1.
    interval: u32,
}

/// The intervals in which a stack acquired (U3).
#[derive(Clone, Copy, Default)]
struct Stat {
    interval: u32,
    in_interval: u64,
    start_up: u64,
    busiest: (u64, u32),
}

impl Stat {
    #[inline]
    fn acquire(&mut self, interval: u32) {
        if self.interval != interval {
            self.fold();
            self.interval = interval;
        }
        self.in_interval += 1;
    }

    fn fold(&mut self) {
        if self.interval == 0 {
            self.start_up = self.in_interval;
        }
        if self.in_interval > self.busiest.0 {
            self.busiest = (self.in_interval, self.interval);
        }
        self.in_interval = 0;
    }
}

impl Churn {
    /// Creates the pass. `marks` are the trace's, in order: their names say when.
    pub fn new(marks: &[Mark]) -> Self {
        Self {
            marks: marks.iter().map(|mark| mark.name.clone()).collect(),
            ..Self::default()
        }
    }

    fn acquired(&mut self, context: &Context<'_>, block: &Block) {
        let site = self.sites.of(context, block.cell);
        if site >= self.stats.len() {
            self.stats
                .resize((site + 1).next_power_of_two(), Stat::default());
        }
        self.stats[site].acquire(self.interval);
    }

    fn interval_name(&self, interval: u32) -> String {
        match interval
            .checked_sub(1)
            .and_then(|i| self.marks.get(i as usize))
        {
            Some(mark) => format!("after mark '{mark}'"),
            None => "during start-up".to_owned(),
        }
    }
}

impl Pass for Churn {
    /// The ledger's sites have everything except "when".
    fn sees_acts(&self) -> bool {
        !self.marks.is_empty()
    }

    #[inline]
    fn act(&mut self, context: &Context<'_>, act: &Act) {
        match act {
            Act::Acquire { block, .. } | Act::Regrow { new: block, .. } => {
                self.acquired(context, block)
            }
            Act::Release { .. } => {}
            Act::Mark { mark } => self.interval = mark.saturating_add(1),
        }
    }

    fn finish(mut self: Box<Self>, context: &Context<'_>, report: &mut Report) {
        for stat in &mut self.stats {
            stat.fold();
        }
        let total = report.sites.iter().map(|site| site.allocations).sum();
        let mut suspects: FxHashMap<u32, Suspect<'_>> = FxHashMap::default();
        let cpu_ns = report.program.cpu_ns.unwrap_or(0);
        // Growth has finished before (all.rs).
        let by_hand = report.growth.iter().filter(|row| row.by_hand);
        let steps: FxHashMap<u32, u64> = by_hand.map(|row| (row.node, row.steps)).collect();
        for site in &report.sites {
            let steps = steps.get(&site.node).copied().unwrap_or(0);
            if !is_churn(site, total, cpu_ns) || is_growth(site, steps) {
                continue;
            }
            suspects.insert(
                site.node,
                Suspect {
                    site,
                    steps,
                    sizes: (u64::MAX, 0),
                    when: None,
                },
            );
        }
        for key in context.cells {
            if let Some(suspect) = suspects.get_mut(&key.node.0) {
                suspect.sizes = (suspect.sizes.0.min(key.size), suspect.sizes.1.max(key.size));
            }
        }
        for (site, stat) in self.stats.iter().enumerate().take(self.sites.len()) {
            if let Some(suspect) = suspects.get_mut(&self.sites.node(site).0) {
                suspect.when = Some(*stat);
            }
        }
        let findings = suspects
            .values()
            .map(|suspect| self.finding(suspect, total))
            .collect();
        push_ranked(report, findings);
    }
}

/// A stack that is a finding.
struct Suspect<'a> {
    site: &'a Site,
    /// Its blocks that a larger one replaced (U6).
    steps: u64,
    /// The smallest and the largest request.
    sizes: (u64, u64),
    when: Option<Stat>,
}

fn is_churn(site: &Site, total: u64, cpu_ns: u64) -> bool {
    let short = short_lived(site);
    let temporary = short * 100 >= site.allocations * MIN_TEMPORARY_PERCENT;
    let often = site.allocations * 100 >= total * MIN_SHARE_PERCENT
        || rate(site).is_some_and(|rate| rate >= MIN_RATE);
    let felt = short.saturating_mul(PAIR_NS) >= cpu_ns / 100 * MIN_CPU_PERCENT;
    site.allocations >= MIN_ALLOCATIONS && temporary && often && felt
}

/// Reports whether what a stack makes and releases are steps of buffers, which are few or stay (U6).
fn is_growth(site: &Site, steps: u64) -> bool {
    let buffers = site.allocations.saturating_sub(steps);
    let brief = short_lived(site).saturating_sub(steps);
    steps > 0 && (buffers < MIN_BUFFERS || brief * 100 < buffers * MIN_TEMPORARY_PERCENT)
}

/// Reports whether one block serves a stack; otherwise some are in flight at a time (U4).
fn one_serves(site: &Site) -> bool {
    site.temporaries * 100 >= site.allocations * MIN_TEMPORARY_PERCENT
}

/// Returns the blocks that need not have been made: temporaries, or all that lived briefly if temporaries are few
/// (U1, U4).
fn short_lived(site: &Site) -> u64 {
    match one_serves(site) {
        true => site.temporaries,
        false => site.brief,
    }
}

/// Reports whether the calls that are saved are counted rather than estimated (U5).
fn is_exact(site: &Site, largest: u64) -> bool {
    let short = short_lived(site);
    let all = short * 100 >= site.allocations * EXACT_PERCENT;
    all && short >= u64::from(BRIEF) * 100 && largest <= STACK_BUFFER_MAX
}

/// Returns the acquisitions per second (U2): the steps between the first and the last.
fn rate(site: &Site) -> Option<f64> {
    let ns = site.last_ns.saturating_sub(site.first_ns);
    (ns >= 1_000_000).then(|| (site.allocations - 1) as f64 * 1e9 / ns as f64)
}

impl Churn {
    fn finding(&self, suspect: &Suspect<'_>, total: u64) -> Finding {
        let (site, (min, max)) = (suspect.site, suspect.sizes);
        let sizes = if min >= max {
            format!("of {}", bytes(max))
        } else {
            format!("of {} to {}", bytes(min), bytes(max))
        };
        let short = short_lived(site);
        let share = percent(short, site.allocations);
        let how = match one_serves(site) {
            true => "released before the next is made".to_owned(),
            false => format!("released within {BRIEF} allocations"),
        };
        // This is in proportion: which of a stack's sizes were the temporaries is not kept.
        let avoided = u128::from(site.requested_bytes) * u128::from(short)
            / u128::from(site.allocations.max(1));
        Finding {
            kind: FindingKind::Churn,
            title: format!("Blocks {sizes}, {share} % of them {how}"),
            what: self.what(suspect, total),
            // Buffers that grow are one after the other, each of several blocks.
            change: match one_serves(site) || suspect.steps * 2 >= site.allocations {
                true => change(max),
                false => change_of_several(max),
            },
            saved_cumulative_bytes: u64::try_from(avoided).unwrap_or(u64::MAX),
            saved_allocations: short.saturating_sub(1),
            blocks: site.allocations,
            confidence: match is_exact(site, max) {
                true => Confidence::Certain,
                false => Confidence::Likely,
            },
            node: Some(site.node),
            ..Finding::default()
        }
    }

    fn what(&self, suspect: &Suspect<'_>, total: u64) -> String {
        let site = suspect.site;
        let mut text = format!(
            "{} ({} % of the run's), {} in all; {} released before this stack acquired again.",
            count(site.allocations, "allocation"),
            percent(site.allocations, total),
            bytes(site.requested_bytes),
            thousands(site.temporaries),
        );
        if !one_serves(site) {
            text += &format!(
                " {} were released within {BRIEF} allocations of the process, so that few live at a time.",
                thousands(site.brief)
            );
        }
        if let Some(rate) = rate(site) {
            text += &format!(" About {} a second.", about(rate));
        }
        if let Some(when) = suspect.when {
            text += &format!(
                " {} during start-up; busiest {}, with {}.",
                thousands(when.start_up),
                self.interval_name(when.busiest.1),
                thousands(when.busiest.0),
            );
        }
        text
    }
}

/// Describes what to do about blocks if several are in flight.
fn change_of_several(largest: u64) -> String {
    format!(
        "Keep released blocks in a list and take the next from it: as many of {} as are in flight at a time are enough.",
        bytes(largest)
    )
}

fn change(largest: u64) -> String {
    let size = bytes(largest);
    if largest <= STACK_BUFFER_MAX {
        format!("Use one buffer of {size} again and again: outside the loop, or on the stack.")
    } else {
        format!("Clear the buffer instead of releasing it, and reserve {size} at once.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::driver::{Driver, glibc, marks};

    #[test]
    fn temporaries_are_found_and_kept_blocks_are_not() {
        let mut d = Driver::new(Churn::new(&[]), glibc);
        // 20,000 pairs at stack 1 (an act takes 1 us: 40 ms); 20,000 kept blocks at stack 2.
        for _ in 0..20_000 {
            let block = d.alloc(1, 256);
            d.free(block);
        }
        (0..20_000).for_each(|_| d.keep(2, 256));
        let found = d.finish().findings;
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(found[0].node, Some(1));
        assert_eq!(found[0].blocks, 20_000);
        assert_eq!(found[0].saved_allocations, 19_999);
        assert_eq!(found[0].saved_cumulative_bytes, 20_000 * 256);
        // 19,999 steps of 2 us each.
        assert_eq!(
            found[0].title,
            "Blocks of 256 bytes, 100 % of them released before the next is made"
        );
        assert!(
            found[0].what.contains("About 500,000 a second."),
            "{}",
            found[0].what
        );
        assert!(
            found[0].what.contains("(50 % of the run's)"),
            "{}",
            found[0].what
        );
        assert!(found[0].change.contains("on the stack"));
    }

    /// A ring of so many blocks, of which the oldest goes when another was made; `beside` others are made each time.
    fn ring(many: usize, beside: u32) -> Vec<Finding> {
        let mut d = Driver::new(Churn::new(&[]), glibc);
        let mut ring = std::collections::VecDeque::new();
        for _ in 0..20_000 {
            ring.push_back(d.alloc(1, 64));
            (0..beside).for_each(|_| d.keep(2, 8));
            if ring.len() > many
                && let Some(oldest) = ring.pop_front()
            {
                d.free(oldest);
            }
        }
        d.finish().findings
    }

    #[test]
    fn several_in_flight_are_churn_and_many_that_are_kept_are_not() {
        let found = ring(1, 0);
        assert_eq!(found.len(), 1, "{found:#?}");
        let found = ring(16, 1);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(
            (found[0].node, found[0].saved_allocations),
            (Some(1), 20_000 - 16 - 1)
        );
        assert_eq!(
            found[0].title,
            "Blocks of 64 bytes, 100 % of them released within 256 allocations"
        );
        assert!(found[0].change.contains("in a list"), "{}", found[0].change);
        // The oldest of 256 goes after 256 more, itself counted.
        assert_eq!((ring(255, 0).len(), ring(256, 0).len()), (1, 0));
        assert_eq!((ring(127, 1).len(), ring(128, 1).len()), (1, 0));
    }

    #[test]
    fn growing_buffers_are_not_churn() {
        let mut d = Driver::new(Churn::new(&[]), glibc);
        let mut block = d.alloc(1, 8);
        for i in 0..20_000 {
            block = d.regrow(block, 1, 16 + i);
        }
        d.free(block);
        assert!(d.finish().findings.is_empty());
    }

    /// 20,000 vectors that double from 8 to 1,024 bytes; `kept` of eight are kept.
    fn vectors(kept: u64, many: u64) -> Report {
        let mut d = Driver::new(Both::new(), glibc);
        for vector in 0..many {
            let mut block = d.alloc(1, 8);
            for power in 4..=10 {
                let larger = d.alloc(1, 1 << power);
                d.free(block);
                block = larger;
            }
            if vector % 8 >= kept {
                d.free(block);
            }
        }
        d.finish()
    }

    /// Growth, and then churn, as they run.
    struct Both(Box<dyn Pass>, Box<dyn Pass>);

    impl Both {
        fn new() -> Both {
            let growth = crate::passes::growth::GrowthPass::new("glibc 2.36");
            Both(Box::new(growth), Box::new(Churn::new(&[])))
        }
    }

    impl Pass for Both {
        fn act(&mut self, context: &Context<'_>, act: &Act) {
            self.0.act(context, act);
        }

        fn finish(self: Box<Self>, context: &Context<'_>, report: &mut Report) {
            self.0.finish(context, report);
            self.1.finish(context, report);
        }
    }

    #[test]
    fn steps_of_buffers_that_stay_are_no_churn_and_of_brief_ones_are() {
        let churn = |kept, many| {
            let found = vectors(kept, many).findings.into_iter();
            let mut churn = found.filter(|one| one.kind == FindingKind::Churn);
            churn.next()
        };
        assert!(churn(8, 20_000).is_none());
        assert!(churn(3, 20_000).is_none());
        let brief = churn(2, 20_000).expect("three quarters of them go at once");
        assert_eq!(brief.saved_allocations, 20_000 * 7 + 15_000 - 1);
        assert!(brief.change.contains("one buffer"), "{}", brief.change);
        assert!(churn(0, 10_000).is_some());
        assert!(churn(0, 999).is_none());
    }

    #[test]
    fn start_up_and_the_busiest_interval_are_told() {
        let mut d = Driver::new(Churn::new(&marks(&["ready", "load", "done"])), glibc);
        let mut pairs = |n: u32, mark: Option<u32>| {
            for _ in 0..n {
                let block = d.alloc(1, 10_000);
                d.free(block);
            }
            if let Some(mark) = mark {
                d.mark(mark);
            }
        };
        pairs(100, Some(0));
        pairs(20, Some(1));
        pairs(12_000, Some(2));
        pairs(5, None);
        let found = d.finish().findings;
        assert!(
            found[0]
                .what
                .contains("100 during start-up; busiest after mark 'load', with 12,000."),
            "{}",
            found[0].what
        );
        assert!(found[0].change.contains("reserve"), "{}", found[0].change);
    }

    #[test]
    fn rare_and_slow_allocations_are_left_alone() {
        let mut d = Driver::new(Churn::new(&[]), glibc);
        for _ in 0..9_999 {
            let block = d.alloc(1, 64);
            d.free(block);
        }
        assert!(d.finish().findings.is_empty());
    }

    #[test]
    fn a_millisecond_has_a_rate_and_less_has_none() {
        let site = |last_ns| Site {
            allocations: 11,
            first_ns: 500,
            last_ns,
            ..Site::default()
        };
        assert_eq!(rate(&site(1_000_500)), Some(10_000.0));
        assert_eq!(rate(&site(1_000_499)), None);
    }
}
