//! What the rounds of a phase say of a stack: does it leave blocks behind each time, or has it a store that is
//! full?
//!
//! ```text
//!   rounds       1  2  3  4  5  6  7  8        what was left behind and lives at the end, by half of the rounds
//!   leak         ■  ■  ■  ■  ■  ■  ■  ■        both halves left some, and the first half's live
//!   cache        .  .  .  .  ■  ■  ■  ■        the first half's are gone
//!   filled once  ■  ■  .  .  .  .  .  .        the second half left none
//! ```
//!
//! R1  A leak needs [`MIN_REPEATS`] rounds; nearly each leaves something, most of it for good, of the first half
//!     as well as of the second, and live memory rose from end mark to end mark.
//! R2  One round proves nothing: what is loaded in a phase is as a rule meant to stay. Nor does a store that is
//!     bounded. Such findings save nothing.
//! R3  What a finding saves and holds is counted once, over all phases.
//!
//! Not here: counting (phases.rs).

use crate::model::{Confidence, Finding, FindingKind, Zombie};
use crate::passes::wording::{bytes, count, thousands};

/// A finding needs this much: less than a kernel page gives nothing back.
const MIN_BYTES: u64 = 4096;
/// Repetitions from which growth can be called steady.
const MIN_REPEATS: u64 = 4;

/// Zombies of one family and stack.
#[derive(Clone, Copy, Default)]
pub(super) struct Sum {
    pub blocks: u64,
    pub requested: u64,
    pub usable: u64,
    pub end_blocks: u64,
    pub end_usable: u64,
    pub now_blocks: u64,
    pub now_usable: u64,
    /// By the half of the rounds: blocks that were left behind, and those of them that live at the end.
    pub made: [u64; 2],
    pub left: [u64; 2],
    /// Most rounds that any one cell of the stack left something of.
    pub instances: u64,
}

impl Sum {
    pub fn row(&self, phase: &str, node: u32) -> Zombie {
        Zombie {
            phase: phase.to_owned(),
            node,
            blocks: self.blocks,
            requested_bytes: self.requested,
            usable_bytes: self.usable,
            end_blocks: self.end_blocks,
            end_usable_bytes: self.end_usable,
        }
    }
}

/// The ended phases of a family.
#[derive(Clone, Copy, Default)]
pub(super) struct Rounds {
    /// How many there will be: end marks of the trace.
    planned: u64,
    ended: u64,
    /// Live bytes given at the first end mark, and at the last.
    first_end: u64,
    last_end: u64,
    rises: u64,
}

impl Rounds {
    /// Of so many rounds that there will be.
    pub fn of(planned: u64) -> Self {
        Self {
            planned,
            ..Self::default()
        }
    }

    /// One more will be.
    pub fn plan(&mut self) {
        self.planned += 1;
    }

    /// How many there will be.
    pub fn planned(&self) -> u64 {
        self.planned
    }

    /// One ends; says of which half of the rounds it is.
    pub fn end(&mut self, live_usable: u64) -> u8 {
        if self.ended == 0 {
            self.first_end = live_usable;
        } else {
            self.rises += u64::from(live_usable > self.last_end);
        }
        self.last_end = live_usable;
        self.ended += 1;
        u8::from(self.ended * 2 > self.planned)
    }

    /// R1.
    fn is_leak(&self, sum: &Sum) -> bool {
        self.ended >= MIN_REPEATS
            && sum.instances * 4 >= self.ended * 3
            && sum.end_blocks * 4 >= sum.blocks * 3
            && sum.left[0] * 4 >= sum.made[0] * 3
            && sum.made[1] * 2 >= sum.made[0]
            && self.rises * 4 >= (self.ended - 1) * 3
    }

    /// R2.
    fn is_bounded(&self, sum: &Sum) -> bool {
        let [made, left] = [sum.made, sum.left];
        // Of the first half a smaller share lives than of the second: the oldest go first.
        let oldest_go = left[0] * made[1] * 4 <= left[1] * made[0] * 3;
        self.ended < 2 || oldest_go || made[1] * 4 < made[0]
    }
}

/// The name of a family, none of all phases together, and its rounds.
type Family<'a> = (Option<&'a str>, &'a Rounds);

/// The finding of a stack, of its sums by family. The last is that of all phases where there are several.
pub(super) fn finding(node: u32, sums: &[(Family<'_>, Sum)]) -> Option<Finding> {
    let (_, whole) = sums.last()?;
    if whole.end_usable < MIN_BYTES {
        return None;
    }
    // By name first: "in 20 rounds of 'tab'" says more than "in 20 phases".
    let leak = sums.iter().find(|((_, rounds), sum)| rounds.is_leak(sum));
    let (kind, (family, sum)) = match leak {
        Some(of) => (FindingKind::Leak, of),
        None => {
            let most = sums.iter().filter(|((name, _), _)| name.is_some());
            let most = most.max_by_key(|(_, sum)| sum.end_usable);
            (FindingKind::Zombie, most.or(sums.last())?)
        }
    };
    let mut found = match kind {
        FindingKind::Leak => leaks(family, sum),
        _ => outlives(family, sum),
    };
    let all = sums.last().map(|((_, rounds), _)| rounds)?;
    let bounded = kind == FindingKind::Zombie && all.is_bounded(whole);
    found.node = Some(node);
    found.now_bytes = whole.now_usable;
    found.saved_bytes = if bounded { 0 } else { whole.now_usable };
    found.blocks = whole.now_blocks;
    Some(found)
}

/// `12`, `1.5`: how many of something each time.
fn each(part: u64, times: u64) -> String {
    let whole = part / times.max(1);
    let tenths = (part % times.max(1)) * 10 / times.max(1);
    match (whole, tenths) {
        (1, 0) => "1 block".to_owned(),
        (whole, 0) => format!("{} blocks", thousands(whole)),
        (whole, tenths) => format!("{}.{tenths} blocks", thousands(whole)),
    }
}

fn phases_of(name: Option<&str>, rounds: &Rounds) -> String {
    match name {
        Some(name) => format!("{} of '{name}'", count(rounds.ended, "round")),
        None => format!("{} of different names", count(rounds.ended, "phase")),
    }
}

fn leaks((name, rounds): &Family<'_>, sum: &Sum) -> Finding {
    let left = each(sum.end_blocks, rounds.ended);
    let of = phases_of(*name, rounds);
    Finding {
        kind: FindingKind::Leak,
        title: format!("Leaves {left} a round, in {of}"),
        what: format!(
            "About {} each time. {} of this stack were born in {of} and outlived their end mark; {} are live at the end of the run. Live memory at the end marks went from {} to {}.",
            bytes(sum.end_usable / rounds.ended.max(1)),
            count(sum.blocks, "block"),
            count(sum.end_blocks, "block"),
            bytes(rounds.first_end),
            bytes(rounds.last_end),
        ),
        change: "Release these blocks when the round ends, or drop what still refers to them."
            .to_owned(),
        confidence: Confidence::Likely,
        ..Finding::default()
    }
}

fn outlives((name, rounds): &Family<'_>, sum: &Sum) -> Finding {
    let text = name.unwrap_or("a phase");
    let bounded = match rounds.is_bounded(sum) && rounds.ended >= 2 {
        true => {
            " What later rounds left took the place of what earlier ones had: a store with a bound, as it seems."
        }
        false => "",
    };
    Finding {
        kind: FindingKind::Zombie,
        title: format!("Allocated in '{text}', outlives it"),
        what: format!(
            "{} ({}) of this stack were born in {} and lived at the end mark; {} ({}) of them are live at the end of the run.{bounded}",
            count(sum.blocks, "block"),
            bytes(sum.usable),
            phases_of(*name, rounds),
            count(sum.end_blocks, "block"),
            bytes(sum.end_usable),
        ),
        change: format!("Release it when '{text}' ends, or if it is a cache, bound it in bytes."),
        confidence: Confidence::Possible,
        ..Finding::default()
    }
}
