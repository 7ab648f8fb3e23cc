//! The verdict of a phase's rounds on a stack: does it leave blocks behind each time, or does it have a store that
//! is full?
//!
//! ```text
//!   rounds       1  2  3  4  5  6  7  8        what was left behind and lives at the end, by half of the rounds
//!   leak         ■  ■  ■  ■  ■  ■  ■  ■        both halves left some, and the first half's live
//!   cache        .  .  .  .  ■  ■  ■  ■        the first half's are gone
//!   filled once  ■  ■  .  .  .  .  .  .        the second half left none
//! ```
//!
//! R1  A leak needs [`MIN_REPEATS`] rounds; most of what they leave is left for good, of the first half as well as of
//!     the second. Nearly each round leaves something; or a part of them does, equally in each eighth of the rounds.
//!     Live memory rose from end mark to end mark, or over all rounds by most of what was left.
//! R2  One round proves nothing: what is loaded in a phase is usually meant to stay. Nor do a few rounds, if the
//!     program goes on with what they left for longer than they took; nor a few phases of different names, which are
//!     stages of a start; nor a store that is bounded. Such findings save nothing.
//! R3  What a finding saves and holds is counted once, over all phases.
//! R4  Rounds are counted by stack, whatever the sizes of its blocks. Left is what lived before the program's exit
//!     (phases_exit.rs): what destructors release then was released by no round.
//! R5  A leak is certain if no block of all that were left was released before the exit, each eighth of the rounds
//!     left as much as the others, live memory rose from mark to mark as often as it left something, and the rounds are
//!     what the program does: they take half of the time from the first one's end to the end of the run. A store with
//!     a bound would have released some; what is loaded piece by piece is used afterwards. Whether it is all that the
//!     rounds leave is decided in `together.rs`.
//!
//! Not here: counting (phases.rs).

use crate::model::{Confidence, Finding, FindingKind, Zombie};
use crate::model::{Leaving, Print};
use crate::passes::wording::{bytes, count, thousands};

/// The bytes that a finding needs: less than a kernel page gives nothing back.
const MIN_BYTES: u64 = 4096;
/// The number of repetitions from which growth can be called steady.
const MIN_REPEATS: u64 = 4;
/// The number of phases of different names from which they are rounds, and not stages (R2).
const MIN_MIXED: u64 = 16;
/// The number of rounds that left something from which a part of the rounds can be called steady: fewer are in one
/// place by chance.
const MIN_SPARSE: u64 = 32;
/// The number of parts of the rounds.
const PARTS: usize = 8;

/// The rounds in which a stack left anything.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    rounds: u64,
    by_part: [u32; PARTS],
    /// All blocks, and the fewest and the most of a round.
    blocks: u64,
    fewest: u64,
    most: u64,
    /// The sum of the blocks, weighted by round; see [`Print`].
    print: u64,
}

impl Seen {
    /// Notes that the stack left `blocks` blocks in the round that has just ended.
    pub fn add(&mut self, rounds: &Rounds, blocks: u64) {
        self.fewest = match self.rounds {
            0 => blocks,
            _ => self.fewest.min(blocks),
        };
        self.most = self.most.max(blocks);
        self.blocks += blocks;
        let own = weight(rounds.ended).wrapping_mul(blocks);
        self.print = self.print.wrapping_add(own);
        self.rounds += 1;
        let part = (rounds.ended - 1) * PARTS as u64 / rounds.planned.max(1);
        let part = &mut self.by_part[(part as usize).min(PARTS - 1)];
        *part = part.saturating_add(1);
    }

    /// Returns what distinguishes it from other stacks, over `ended` rounds.
    fn print(&self, ended: u64) -> Print {
        Print {
            sum: self.print,
            blocks: self.blocks,
            steady: self.fewest == self.most && self.rounds == ended,
        }
    }

    /// Reports whether each part of the rounds has at least half and at most twice its share.
    fn is_even(&self) -> bool {
        let share = |one: &u32| u64::from(*one) * PARTS as u64;
        let fair = |one| share(one) * 2 >= self.rounds && share(one) <= self.rounds * 2;
        self.rounds >= MIN_SPARSE && self.by_part.iter().all(fair)
    }
}

/// Returns a number for a round, which is as good as random (the finalizer of SplitMix64).
fn weight(round: u64) -> u64 {
    let mut mixed = round.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// The zombies of one family and stack.
#[derive(Clone, Copy, Default)]
pub(super) struct Sum {
    pub blocks: u64,
    pub requested: u64,
    pub usable: u64,
    pub end_blocks: u64,
    pub end_usable: u64,
    pub now_blocks: u64,
    pub now_usable: u64,
    /// By the half of the rounds: blocks that were left behind, and those of them that lived before the exit (R4).
    pub made: [u64; 2],
    pub left: [u64; 2],
    pub left_usable: u64,
    pub seen: Seen,
}

impl Sum {
    fn left_blocks(&self) -> u64 {
        self.left[0] + self.left[1]
    }

    /// Returns the moment at which what was left still lives.
    fn until(&self) -> &'static str {
        match self.end_blocks < self.left_blocks() {
            true => "lived until the program's exit",
            false => "are live at the end of the run",
        }
    }

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
    /// The number of rounds that there will be: end marks of the trace.
    planned: u64,
    ended: u64,
    /// Live usable bytes at the first end mark, and at the last.
    first_end: u64,
    last_end: u64,
    rises: u64,
    /// The time when the first round ended, and the last.
    first_ns: u64,
    last_ns: u64,
}

impl Rounds {
    /// Creates the rounds of a family that will have `planned`.
    pub fn of(planned: u64) -> Self {
        Self {
            planned,
            ..Self::default()
        }
    }

    /// Plans one more round.
    pub fn plan(&mut self) {
        self.planned += 1;
    }

    /// Returns the number of planned rounds.
    pub fn planned(&self) -> u64 {
        self.planned
    }

    /// Ends a round; returns the half of the rounds that it belongs to.
    pub fn end(&mut self, live_usable: u64, time_ns: u64) -> u8 {
        self.last_ns = time_ns;
        if self.ended == 0 {
            self.first_ns = time_ns;
            self.first_end = live_usable;
        } else {
            self.rises += u64::from(live_usable > self.last_end);
        }
        self.last_end = live_usable;
        self.ended += 1;
        u8::from(self.ended * 2 > self.planned)
    }

    /// Reports whether the sums are a leak (R1).
    fn is_leak(&self, sum: &Sum) -> bool {
        let nearly_each = sum.seen.rounds * 4 >= self.ended * 3;
        self.ended >= MIN_REPEATS
            && (nearly_each || sum.seen.is_even())
            && sum.left_blocks() * 4 >= sum.blocks * 3
            && sum.left[0] * 4 >= sum.made[0] * 3
            && sum.made[1] * 2 >= sum.made[0]
            && self.rose(sum)
    }

    /// Reports whether the rounds are what a program that ended then did: they took half of the time from the first
    /// one's end.
    fn go_on(&self, end_ns: u64) -> bool {
        let took = self.last_ns.saturating_sub(self.first_ns);
        took >= end_ns.saturating_sub(self.first_ns) / 2
    }

    /// Reports whether the rounds prove a leak (R2): rounds of different names or of one, in a run that ended then.
    fn prove(&self, are_mixed: bool, end_ns: u64) -> bool {
        let least = match are_mixed {
            true => MIN_MIXED,
            false => MIN_REPEATS,
        };
        self.ended >= MIN_SPARSE || (self.ended >= least && self.go_on(end_ns))
    }

    /// Reports whether a leak is certain in a run that ended then (R5).
    fn is_sure(&self, sum: &Sum, end_ns: u64) -> bool {
        sum.left == sum.made
            && sum.seen.is_even()
            && self.rises * 4 >= sum.seen.rounds.min(self.ended - 1) * 3
            && self.go_on(end_ns)
    }

    /// Reports whether live memory rose with what a stack left.
    fn rose(&self, sum: &Sum) -> bool {
        let by = self.last_end.saturating_sub(self.first_end);
        self.rises * 4 >= (self.ended - 1) * 3 || by / 3 >= sum.left_usable / 4
    }

    /// Reports whether the store is bounded (R2).
    fn is_bounded(&self, sum: &Sum) -> bool {
        let [made, left] = [sum.made, sum.left];
        // A smaller share of the first half lives than of the second: the oldest go first.
        let oldest_go = left[0] * made[1] * 4 <= left[1] * made[0] * 3;
        self.ended < 2 || oldest_go || made[1] * 4 < made[0]
    }
}

/// The name of a family, `None` for all phases together, and its rounds.
type Family<'a> = (Option<&'a str>, &'a Rounds);

/// Makes the finding of a stack, from its sums by family. The last is that of all phases if there are several. `at`
/// is the name of the report's moment. The run ended at `end_ns`.
pub(super) fn finding(
    node: u32,
    sums: &[(Family<'_>, Sum)],
    (at, end_ns): (&str, u64),
) -> Option<Finding> {
    let (_, whole) = sums.last()?;
    if whole.left_usable < MIN_BYTES {
        return None;
    }
    // Named phases come first: "in 20 rounds of 'tab'" says more than "in 20 phases". But the bytes are those of all
    // phases: where others have left more than a tenth of them, rounds of one name do not explain the figure.
    let leak = sums.iter().find(|((_, rounds), sum)| rounds.is_leak(sum));
    let all = sums.last().filter(|((_, rounds), sum)| rounds.is_leak(sum));
    let explains = |sum: &Sum| sum.left_usable >= whole.left_usable - whole.left_usable / 10;
    let leak = leak.filter(|(_, sum)| explains(sum)).or(all).or(leak);
    let (kind, (family, sum)) = match leak {
        Some(of) => (FindingKind::Leak, of),
        None => {
            let most = sums.iter().filter(|((name, _), _)| name.is_some());
            let most = most.max_by_key(|(_, sum)| sum.left_usable);
            (FindingKind::Zombie, most.or(sums.last())?)
        }
    };
    let mut found = match kind {
        FindingKind::Leak => leaks(family, sum, end_ns),
        _ => outlives(family, sum, at),
    };
    let ((all_name, all), _) = sums.last()?;
    let promised = match kind {
        FindingKind::Leak => family.1.prove(family.0.is_none(), end_ns),
        _ => all.prove(all_name.is_none(), end_ns) && !all.is_bounded(whole),
    };
    found.node = Some(node);
    found.now_bytes = whole.now_usable;
    found.saved_bytes = if promised { whole.now_usable } else { 0 };
    found.blocks = whole.now_blocks;
    if let Some(leaving) = &mut found.leaving {
        // Live memory also rose by what phases of other names left.
        leaving.left_bytes = whole.left_usable;
    }
    Some(found)
}

/// Formats how many of something there are each time: `12`, `1.5`.
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

/// Describes what rounds leave behind, in a line.
pub(crate) fn leaving_title(leaving: &Leaving) -> String {
    let left = each(leaving.blocks, leaving.rounds);
    format!("Leaves {left} a round, in {}", leaving.of)
}

fn leaks((name, rounds): &Family<'_>, sum: &Sum, end_ns: u64) -> Finding {
    let of = phases_of(*name, rounds);
    let what = format!(
        "About {} each time. {} of this stack were born in {of} and outlived their end mark; {} {}. Live memory at the end marks went from {} to {}.",
        bytes(sum.left_usable / rounds.ended.max(1)),
        count(sum.blocks, "block"),
        count(sum.left_blocks(), "block"),
        sum.until(),
        bytes(rounds.first_end),
        bytes(rounds.last_end),
    );
    let leaving = Leaving {
        rounds: rounds.ended,
        of,
        blocks: sum.left_blocks(),
        rise_bytes: rounds.last_end.saturating_sub(rounds.first_end),
        prints: vec![sum.seen.print(rounds.ended)],
        ..Leaving::default()
    };
    Finding {
        kind: FindingKind::Leak,
        title: leaving_title(&leaving),
        what,
        leaving: Some(leaving),
        change: "Release these blocks when the round ends, or drop what still refers to them."
            .to_owned(),
        confidence: match rounds.is_sure(sum, end_ns) {
            true => Confidence::Certain,
            false => Confidence::Likely,
        },
        ..Finding::default()
    }
}

fn outlives((name, rounds): &Family<'_>, sum: &Sum, at: &str) -> Finding {
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
            "{} of '{text}' still live at '{at}' ({}). {} ({}) of this stack were born in {} and lived at the end mark; {} ({}) of them {}.{bounded}",
            count(sum.now_blocks, "block"),
            bytes(sum.now_usable),
            count(sum.blocks, "block"),
            bytes(sum.usable),
            phases_of(*name, rounds),
            count(sum.left_blocks(), "block"),
            bytes(sum.left_usable),
            sum.until(),
        ),
        change: format!("Release it when '{text}' ends, or if it is a cache, bound it in bytes."),
        confidence: Confidence::Possible,
        ..Finding::default()
    }
}
