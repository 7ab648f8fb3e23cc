//! Growth: chains of blocks that one buffer went through, what was copied on the way, and what the last one holds
//! unused.
//!
//! ```text
//!   realloc:   a ─► a' ─► a'' ─► free                       one Act::Regrow for each arrow
//!   by hand:   acquire b ; release a      same stack, same thread, b larger, and the first release since b
//!              acquire d ; release c      another buffer in turn
//!              acquire e ; release b      b is where the first one's chain had come to
//!   there and back:  acquire t ; a ─► a' ; release t       t as large as a', on one thread: `a = [a, x]`
//! ```
//!
//! G1  A block is in at most one chain; a chain ends with its block or with the run. A realloc that shrinks
//!     ends it, too.
//! G2  A chain belongs to the stack of its first growth.
//! G3  `allocated` is the sum of requested bytes, including the first block's; `anew` counts only the blocks whose
//!     usable size differs from the one before; `copied` the blocks that were replaced at another address. A step in
//!     place costs nothing, nor does one of a mapping that the kernel moves.
//! G4  By hand, a chain is reported from three steps on, and a stack only if nearly all of its pairs grow: a queue of
//!     blocks of any size has equally many pairs that shrink. A first block that another stack acquired is not known
//!     (the chain begins one later).
//! G5  The saving is what was copied minus what doubling could copy at most, buffer by buffer. That doubling holds
//!     more than what is needed is stated beside it ([`GrowthWhatIf`]).
//! G6  What buffers at rest have left unused: growth_resting.rs.
//! G7  The blocks at rest of a buffer that grew twice or more have the size of the moment, not one to be changed by
//!     some bytes: they are claimed (`../claims.rs`), by the stack's finding or, if it has none, by no finding.
//!
//! G9  A step by realloc during which a block of the very size to come lives, and ends before the next step, is a copy
//!     into that one and back: `copied` has both, even if the buffer grew in place. That counts if at least
//!     half of a buffer's steps are such; no trace shows what was copied, so it is likely at most.
//! G8  What doubling copies depends on where it begins and whether its steps stay in place, and a buffer that is
//!     requested at once is not copied at all. The saving is certain if all of that is at most a seventh of what was
//!     copied. By hand the chains must be long, too, as no trace shows a copy: scratch buffers that are replaced by
//!     larger ones look the same as often as a record is broken, and of a million sizes fourteen break one.
//!
//! G10  A queue whose entries become longer has the same pairs, and so have temporaries whose sizes rise and fall.
//!     Neither copies anything: growth_turns.rs.
//!
//! G11  Steps in place cost their calls alone. Many of them are a finding, and what it saves is calls: each step found
//!     room behind its block here, which another allocator, or another run, need not have.
//!
//! Source: Nethercote, "Please grow your buffers exponentially". Not here: the shape of a chain (growth_shape.rs);
//! what the last block holds unused (growth_resting.rs); runtimes whose growth is their own (grouping.rs).

use rustc_hash::{FxHashMap, FxHashSet};
use skinflint_trace::ThreadId;

use crate::model::{
    Confidence, Finding, FindingKind, Growth, GrowthPattern, GrowthPolicy, GrowthWhatIf, Report,
};
use crate::pass::{Act, Block, CellId, Context, Pass};
use crate::passes::cells::{Sites, slot};
use crate::passes::classes::Classes;
use crate::passes::growth_beside::Beside;
use crate::passes::growth_resting::{Resting, reserve};
use crate::passes::growth_shape::Chain;
use crate::passes::growth_sum::Sum;
use crate::passes::growth_turns::Turns;
use crate::passes::ranking::push_ranked;
use crate::passes::wording::{bytes, count, percent, thousands};

/// The bytes copied beyond what doubling would copy that a finding needs: a tenth of a millisecond.
const MIN_SAVED_BYTES: u64 = 1 << 20;
/// The speed of copying, in bytes per nanosecond of CPU, and the cost of a call; and the least share of the program's
/// CPU that is worth a change, in per cent.
const COPY_BYTES_PER_NS: u64 = 8;
const CALL_NS: u64 = 40;
const MIN_CPU_PERCENT: u64 = 1;
/// The calls beyond doubling's that a finding needs where nothing was copied (G11): as many as churn needs.
const MIN_CALLS: u64 = 10_000;
/// The fewest steps of a chain by hand (G4).
const MIN_HAND_STEPS: u32 = 3;
/// The number of pairs that do not grow from which on a stack may be a queue (G4).
const QUEUE_PAIRS: u32 = 256;
/// By hand, one pair may fail to grow for this many that do (G4).
const GROWING: u32 = 8;
/// The same bound if nothing is in doubt, and the mean steps of a chain (G8).
const SURELY_GROWING: u32 = 64;
const SURE_HAND_STEPS: u64 = 16;
/// The pass over growth; see the head of the file.
#[derive(Default)]
pub struct GrowthPass {
    /// The allocator, as recorded.
    allocator: String,
    /// One bit by cell: whether any block of it is the end of a chain, which spares most releases the map. 32 KiB for
    /// 256 thousand cells: it stays in the cache.
    chained: Vec<u64>,
    /// The stacks of chains.
    sites: Sites,
    /// Chains by the serial of their block.
    chains: FxHashMap<u32, Linked>,
    hands: Vec<Hand>,
    /// The order of the pairs that grow, by site (G10).
    turns: Vec<Turns>,
    sums: FxHashMap<(u32, bool), Sum>,
    /// Steps there and back (G9).
    beside: Beside,
    /// Buffers at rest by stack and kind at the instant.
    resting: FxHashMap<(u32, bool), Resting>,
    frozen: bool,
}

/// A chain, with its owner.
#[derive(Clone, Copy)]
struct Linked {
    site: u32,
    /// The cell of its last block.
    cell: CellId,
    by_hand: bool,
    chain: Chain,
}

/// The last block of a stack, while nothing was released for it. It is small, as every act touches one; its sizes are
/// here because its cell would be a cache miss at each pair.
#[derive(Clone, Copy, Default)]
struct Hand {
    size: u64,
    usable: u64,
    serial: u32,
    cell: CellId,
    thread: ThreadId,
    /// Whether nothing of this stack was released since.
    open: bool,
    /// Pairs of an acquisition and a release: those that grow, and the others.
    grew: u32,
    other: u32,
}

impl Hand {
    /// Reports whether the stack has shown that it grows no buffer (G4): chains of it would never be reported, and
    /// cost a fifth of the pass. A stack whose pairs grow later on is looked at again.
    fn is_queue(&self) -> bool {
        self.other >= QUEUE_PAIRS && self.other > self.grew / 2
    }
}

impl GrowthPass {
    /// Creates an empty pass. `allocator` is its recorded name: [`skinflint_trace::ProcessInfo::allocator`].
    pub fn new(allocator: &str) -> Self {
        Self {
            allocator: allocator.to_owned(),
            ..Self::default()
        }
    }

    #[inline]
    fn is_chained(&self, cell: CellId) -> bool {
        let word = self.chained.get(cell.0 as usize / 64);
        word.is_some_and(|word| word >> (cell.0 % 64) & 1 != 0)
    }

    fn chain(&mut self, cell: CellId, serial: u32, linked: Linked) {
        *slot(&mut self.chained, CellId(cell.0 / 64)) |= 1 << (cell.0 % 64);
        self.chains.insert(serial, Linked { cell, ..linked });
    }

    #[inline]
    fn unchain(&mut self, block: &Block) -> Option<Linked> {
        match !self.chains.is_empty() && self.is_chained(block.cell) {
            true => self.chains.remove(&block.serial),
            false => None,
        }
    }

    fn regrow(&mut self, context: &Context<'_>, old: &Block, new: &Block) {
        let (from, to) = (context.cell(old.cell), context.key);
        let known = self.unchain(old);
        if let Some(hand) = self.hands.get_mut(context.site as usize) {
            // What realloc replaced is no pair by hand.
            hand.open &= hand.serial != old.serial;
        }
        if to.size < from.size {
            // A buffer that grows again afterwards is another chain (G1).
            if let Some(linked) = known {
                self.end(&linked, false);
            }
            return;
        }
        let mut linked = known.unwrap_or_else(|| {
            self.sites.learn(context.site, to.node);
            Linked {
                site: context.site,
                cell: old.cell,
                by_hand: false,
                chain: Chain::new(from.size, from.usable),
            }
        });
        self.beside.regrown(old.serial, new, to.size);
        if to.size > from.size {
            let by_kernel =
                is_glibc_mapping(old.addr, from.usable) && is_glibc_mapping(new.addr, to.usable);
            let moved = old.addr != new.addr && !by_kernel;
            linked.chain.step(to.size, (from.usable, to.usable), !moved);
            if by_kernel {
                linked.chain.moved_by_kernel(from.size);
            }
        }
        self.chain(new.cell, new.serial, linked);
    }

    #[inline]
    fn acquired(&mut self, context: &Context<'_>, block: &Block) {
        let site = context.site as usize;
        if site >= self.hands.len() {
            self.hands
                .resize((site + 1).next_power_of_two(), Hand::default());
        }
        let hand = &mut self.hands[site];
        hand.serial = block.serial;
        hand.cell = block.cell;
        (hand.size, hand.usable) = (context.key.size, context.key.usable);
        hand.thread = block.thread();
        hand.open = true;
        self.beside.acquired(block, context.key.size);
    }

    /// Takes a release. What it is depends on sizes and on what came before, which no processor can guess: so pairs are
    /// counted without a branch, and only what may be of a chain goes on.
    #[inline]
    fn released(&mut self, context: &Context<'_>, block: &Block, by: ThreadId) {
        if let Some(buffer) = self.beside.released(block, by)
            && let Some(linked) = self.chains.get_mut(&buffer)
        {
            linked.chain.there_and_back();
        }
        let known = self.unchain(block);
        let (is_pair, grows, is_queue) = match self.hands.get_mut(context.site as usize) {
            Some(hand) => {
                let is_pair = hand.open
                    & (hand.serial != block.serial)
                    & (hand.thread == by)
                    & block.is_of(by);
                let grows = is_pair & (hand.size > context.key.size);
                hand.open = false;
                hand.grew = hand.grew.saturating_add(u32::from(grows));
                hand.other = hand.other.saturating_add(u32::from(is_pair & !grows));
                (is_pair, grows, hand.is_queue())
            }
            None => (false, false, true),
        };
        match known {
            Some(linked) if !grows => self.end(&linked, is_pair),
            Some(_) => self.pair(context, block, known),
            None if grows & !is_queue => self.pair(context, block, None),
            None if grows => {
                self.turn(context, block);
            }
            None => {}
        }
    }

    /// Counts a block that a larger one followed, for what tells a queue (G10).
    fn turn(&mut self, context: &Context<'_>, old: &Block) -> &mut Turns {
        let to_size = self.hands[context.site as usize].size;
        let turns = slot(&mut self.turns, CellId(context.site));
        turns.pair(old.serial, context.key.size, to_size);
        turns
    }

    /// Takes the release of a block that the stack's last one, which is larger, may have replaced.
    fn pair(&mut self, context: &Context<'_>, old: &Block, known: Option<Linked>) {
        let hand = &self.hands[context.site as usize];
        let from = context.key;
        let (to_size, to_usable) = (hand.size, hand.usable);
        let turns = self.turn(context, old);
        if known.is_none_or(|linked| !linked.by_hand) {
            turns.begin(from.size, to_size);
        }
        let hand = &self.hands[context.site as usize];
        let (cell, serial) = (hand.cell, hand.serial);
        debug_assert_ne!(serial, old.serial);
        let mut linked = known.unwrap_or_else(|| {
            self.sites.learn(context.site, from.node);
            Linked {
                site: context.site,
                cell: old.cell,
                by_hand: true,
                chain: Chain::new(from.size, from.usable),
            }
        });
        linked.by_hand = true;
        linked.chain.step(to_size, (from.usable, to_usable), false);
        self.chain(cell, serial, linked);
    }

    /// Ends a chain; `is_replaced` says whether another block took the place of its last one.
    fn end(&mut self, linked: &Linked, is_replaced: bool) {
        if linked.by_hand {
            slot(&mut self.turns, CellId(linked.site)).end(is_replaced);
        }
        let fewest = if linked.by_hand { MIN_HAND_STEPS } else { 1 };
        if linked.chain.steps >= fewest {
            let sum = self.sums.entry((linked.site, linked.by_hand)).or_default();
            sum.add(&linked.chain);
        }
    }

    /// Reports whether a stack that looks like growth by hand is one (G4, G10).
    fn grows_by_hand(&self, site: u32) -> bool {
        let hand = self.hands.get(site as usize).copied().unwrap_or_default();
        let turns = self.turns.get(site as usize).copied().unwrap_or_default();
        hand.grew / GROWING >= hand.other && !turns.is_queue(hand.other) && !turns.are_temporaries()
    }

    /// Reports whether it is one beyond doubt (G8).
    fn surely_by_hand(&self, site: u32, sum: &Sum) -> bool {
        let hand = self.hands.get(site as usize).copied().unwrap_or_default();
        hand.grew / SURELY_GROWING >= hand.other && sum.steps / SURE_HAND_STEPS >= sum.chains
    }
}

/// Reports whether a block is a mapping of its own under glibc, which realloc moves without copying: its header of 16
/// bytes begins a page, and it ends with one.
fn is_glibc_mapping(addr: u64, usable: u64) -> bool {
    addr % 4096 == 16 && (usable + 16).is_multiple_of(4096)
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

    fn at_instant(&mut self, context: &Context<'_>) {
        let classes = Classes::learn(&self.allocator, context.cells.iter().map(|key| key.usable));
        let mut alike: FxHashMap<(u32, bool, u64), u64> = FxHashMap::default();
        for linked in self.chains.values() {
            let fewest = if linked.by_hand { MIN_HAND_STEPS } else { 1 };
            if linked.chain.steps < fewest && linked.chain.unused_at_most().is_none() {
                continue;
            }
            let kind = (linked.site, linked.by_hand);
            let resting = self.resting.entry(kind).or_default();
            let before = resting.blocks;
            resting.add(linked.cell, &linked.chain, context, &classes);
            if resting.blocks > before {
                let same = alike.entry((kind.0, kind.1, linked.chain.last));
                let same = same.or_default();
                *same += 1;
                resting.alike = resting.alike.max(*same);
            }
        }
        self.frozen = true;
    }

    fn finish(mut self: Box<Self>, context: &Context<'_>, report: &mut Report) {
        if !self.frozen {
            self.at_instant(context);
        }
        for linked in std::mem::take(&mut self.chains).into_values() {
            self.end(&linked, false);
        }
        let cpu_ns = report.program.cpu_ns.unwrap_or(0);
        let mut rows: Vec<Growth> = Vec::with_capacity(self.sums.len());
        let mut findings = Vec::new();
        let mut told: FxHashSet<(u32, bool)> = FxHashSet::default();
        for ((site, by_hand), sum) in &self.sums {
            if *by_hand && !self.grows_by_hand(*site) {
                continue;
            }
            let row = row(self.sites.node(*site as usize).0, *by_hand, sum);
            let none = Resting::default();
            let resting = self.resting.get(&(*site, *by_hand)).unwrap_or(&none);
            let is_sure = sum.beside == 0 && (!by_hand || self.surely_by_hand(*site, sum));
            if let Some(found) = finding(&row, sum, resting, (cpu_ns, is_sure)) {
                told.insert((*site, *by_hand));
                findings.push(Finding {
                    claims: resting.claims(context, false),
                    ..found
                });
            }
            rows.push(row);
        }
        rows.sort_by_key(|row| {
            (
                std::cmp::Reverse(row.allocated_bytes),
                row.node,
                row.by_hand,
            )
        });
        for (kind, resting) in &self.resting {
            let (site, by_hand) = *kind;
            if told.contains(kind) || by_hand && !self.grows_by_hand(site) {
                continue;
            }
            match reserve(self.sites.node(site as usize).0, resting) {
                Some((found, promised)) => findings.push(Finding {
                    claims: resting.claims(context, promised),
                    ..found
                }),
                None => report.in_growth.extend(resting.claims(context, false)),
            }
        }
        push_ranked(report, findings);
        report.growth.extend(rows);
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
        copied_bytes: sum.copied,
        doubling_bytes: sum.doubling.asked,
        doubling_copied_bytes: sum.doubling.copied,
        one_and_a_half_bytes: sum.half,
    }
}

/// Reports whether this many calls beyond doubling's are felt in a program that took this much CPU (G11).
fn are_calls_felt(calls: u64, cpu_ns: u64) -> bool {
    calls >= MIN_CALLS && calls.saturating_mul(CALL_NS) >= cpu_ns / 100 * MIN_CPU_PERCENT
}

/// Reports whether this much copying is felt in a program that took this much CPU.
fn is_felt(saved: u64, calls: u64, cpu_ns: u64) -> bool {
    let ns = (saved / COPY_BYTES_PER_NS).saturating_add(calls.saturating_mul(CALL_NS));
    saved >= MIN_SAVED_BYTES && ns >= cpu_ns / 100 * MIN_CPU_PERCENT
}

/// Makes the finding; `is_sure` says whether the buffers are what they look like.
fn finding(
    row: &Growth,
    sum: &Sum,
    resting: &Resting,
    (cpu_ns, is_sure): (u64, bool),
) -> Option<Finding> {
    let how = match row.pattern {
        GrowthPattern::JustEnough => "by just enough".to_owned(),
        GrowthPattern::FixedStep(step) => format!("by {} each time", bytes(step)),
        GrowthPattern::Exponential(_) | GrowthPattern::Irregular => return None,
    };
    let saved = row.copied_bytes.saturating_sub(row.doubling_copied_bytes);
    let moved = (row.steps - row.in_place_steps).max(sum.beside);
    if !is_felt(saved, moved, cpu_ns) {
        let saved = row.steps.saturating_sub(sum.doubling.steps);
        let in_place = !row.by_hand && sum.beside == 0 && are_calls_felt(saved, cpu_ns);
        return in_place.then(|| stayed(row, sum, &how, resting));
    }
    let means = if row.by_hand {
        "allocating, copying and releasing by hand"
    } else {
        "realloc"
    };
    // What stayed in place copied nothing.
    let steps = match moved < row.steps {
        true => format!("{} of {}", thousands(moved), count(row.steps, "step")),
        false => count(row.steps, "step"),
    };
    Some(Finding {
        title: format!(
            "Grows {how}: {} copied in {steps}, up to {}",
            bytes(row.copied_bytes),
            bytes(row.largest_bytes)
        ),
        what: what(row, sum, means),
        change: change(row, sum),
        saved_cumulative_bytes: saved,
        ..about(row, sum, resting, is_sure)
    })
}

/// Returns what all findings on growth have; `is_sure` says whether the buffers are what they look like.
fn about(row: &Growth, sum: &Sum, resting: &Resting, is_sure: bool) -> Finding {
    Finding {
        kind: FindingKind::Growth,
        saved_allocations: row.steps.saturating_sub(sum.doubling.steps),
        blocks: row.steps,
        confidence: match is_sure && sum.is_exact() {
            true => Confidence::Certain,
            false => Confidence::Likely,
        },
        node: Some(row.node),
        growth_what_if: Some(GrowthWhatIf {
            policy: GrowthPolicy::Doubling,
            copied_bytes: row.copied_bytes,
            then_copied_bytes: row.doubling_copied_bytes,
            held_bytes: resting.all_held,
            then_held_bytes: resting.all_doubled,
        }),
        ..Finding::default()
    }
}

/// Makes the finding on steps that stayed in place (G11).
fn stayed(row: &Growth, sum: &Sum, how: &str, resting: &Resting) -> Finding {
    let largest = bytes(row.largest_bytes);
    let moved = row.steps - row.in_place_steps;
    let calls = thousands(row.steps);
    let doubled = count(sum.doubling.steps, "call");
    Finding {
        title: format!("Grows {how} in {calls} calls of realloc, up to {largest}"),
        what: format!(
            "{} grown in {calls} calls; {} moved the block. The others found room behind it, which another allocator or another run may not.",
            count(row.chains, "buffer"),
            thousands(moved)
        ),
        change: format!(
            "Double the capacity at each step ({doubled} instead of {calls}), or ask for {largest} at once."
        ),
        ..about(row, sum, resting, true)
    }
}

fn what(row: &Growth, sum: &Sum, means: &str) -> String {
    let grown = format!(
        "{} grown in {} by {means}, to {} at most",
        count(row.chains, "buffer"),
        count(row.steps, "step"),
        bytes(row.largest_bytes)
    );
    if sum.beside > 0 {
        return format!(
            "{grown}: at {} a second block of the new size was made and released, so that the content seems to be copied there and back, {} in all.",
            count(sum.beside, "step"),
            bytes(row.copied_bytes)
        );
    }
    format!(
        "{grown}: {} % of the steps stayed in place, the others copied {}.",
        percent(row.in_place_steps, row.steps),
        bytes(row.copied_bytes),
    )
}

fn change(row: &Growth, sum: &Sum) -> String {
    let largest = bytes(row.largest_bytes);
    match sum.beside {
        0 => format!(
            "Double the capacity at each step (1.5 where memory is tight), or ask for {largest} at once."
        ),
        _ => format!(
            "Add to the buffer itself instead of making a longer copy (as `a = [a, x]` does): double its capacity when it is full, or ask for {largest} at once."
        ),
    }
}

#[cfg(test)]
mod tests;
