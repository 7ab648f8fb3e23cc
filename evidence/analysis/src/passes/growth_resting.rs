//! Buffers that have come to rest: what their last step left unused.
//!
//! ```text
//!   8, 16, 32, 64   the step to 64 was taken with 32 full and one byte more: 33 to 64 are in use
//!                   the allocator gives 48 for 33 to 48, and 64 for 49 to 64: asked for at once, half of them save 16
//! ```
//!
//! E1  A buffer that grew by a factor was full one step before: of its last block, half of what came then is unused
//!     on average. If a stack has many such buffers at rest, of several sizes, reserving would save that; if all have
//!     one size, they may all be full, and only the bound is reported.
//! E2  The saving is what the allocator gives less for the sizes that any fill has: classes round what was not used
//!     for what is reserved, too. Eight fills stand for all.
//!
//! Not here: which blocks are a buffer's (growth.rs), runtimes whose growth is their own (grouping.rs).

use rustc_hash::FxHashMap;

use crate::model::Claim;
use crate::model::{Confidence, Finding, FindingKind, GrowthPolicy, GrowthWhatIf};
use crate::pass::{CellId, Context};
use crate::passes::classes::Classes;
use crate::passes::growth_shape::{Chain, by_factor};
use crate::passes::wording::{bytes, count};

/// The number of buffers at rest from which on their unused ends are averages (E1), and how much these must hold.
const MIN_RESTING: u64 = 16;
const MIN_UNUSED_BYTES: u64 = 64 << 10;
/// Buffers are of several sizes if one in this many is not of the most frequent one (E1).
const VARIED: u64 = 8;
/// The size beyond which the end of a block that was never written has no pages (E1).
const LARGE_BYTES: u64 = 128 << 10;
/// The number of fills that stand for all (E2).
const FILLS: u64 = 8;

/// The buffers that live at the instant.
#[derive(Clone, Default)]
pub(super) struct Resting {
    /// Number of chains that grew by a factor (E1).
    pub blocks: u64,
    held: u64,
    unused_at_most: u64,
    /// The bytes that reserving would save of them, if any fill is equally likely (E2).
    expected: u64,
    steps: u64,
    copied: u64,
    /// Number of blocks of the most frequent size.
    pub alike: u64,
    /// The bytes that chains of any shape request.
    pub all_held: u64,
    /// The bytes that they would request if they doubled.
    pub all_doubled: u64,
    /// Their last blocks by cell: how many, and what is expected to be saved of them.
    cells: FxHashMap<CellId, (u64, u64)>,
}

impl Resting {
    /// The steps of a chain from which on its block's size is that of the moment (growth.G7).
    const MIN_STEPS: u32 = 2;

    /// Adds a chain, with the cell of its last block.
    pub fn add(&mut self, cell: CellId, chain: &Chain, context: &Context<'_>, classes: &Classes) {
        self.all_held = self.all_held.saturating_add(chain.last);
        let doubled = by_factor(chain.first, chain.last, (2, 1)).last;
        self.all_doubled = self.all_doubled.saturating_add(doubled);
        let unused = chain.unused_at_most().filter(|_| chain.last < LARGE_BYTES);
        let usable = context.cell(cell).usable;
        let expected = unused.map_or(0, |unused| expected(chain.last, usable, unused, classes));
        if chain.steps >= Resting::MIN_STEPS {
            let (blocks, saved) = self.cells.entry(cell).or_default();
            *blocks += 1;
            *saved += expected;
        }
        if let Some(unused) = unused {
            self.blocks += 1;
            self.held += chain.last;
            self.unused_at_most += unused;
            self.expected += expected;
            self.steps += u64::from(chain.steps);
            self.copied = self.copied.saturating_add(chain.copied);
        }
    }

    /// Returns its blocks, and what is saved of them if that is promised.
    pub fn claims(&self, context: &Context<'_>, promised: bool) -> Vec<Claim> {
        let claim = |(cell, (blocks, saved)): (&CellId, &(u64, u64))| Claim {
            key: context.cell(*cell),
            blocks: *blocks,
            bytes: if promised { *saved } else { 0 },
        };
        self.cells.iter().map(claim).collect()
    }
}

/// Returns what the allocator would give less for a block of `last` bytes, of which at most `unused` are unused (E2).
fn expected(last: u64, usable: u64, unused: u64, classes: &Classes) -> u64 {
    let fill = |part: u64| last - unused * (2 * part + 1) / (2 * FILLS);
    let given = (0..FILLS).map(|part| classes.usable_of(fill(part)).min(usable));
    usable - given.sum::<u64>() / FILLS
}

/// Makes a finding on buffers at rest whose last step left room (E1); also returns whether a saving is promised.
pub(super) fn reserve(node: u32, resting: &Resting) -> Option<(Finding, bool)> {
    if resting.blocks < MIN_RESTING || resting.unused_at_most / 2 < MIN_UNUSED_BYTES {
        return None;
    }
    let varied = resting.alike * VARIED <= resting.blocks * (VARIED - 1);
    let saved = if varied { resting.expected } else { 0 };
    let fill = match varied {
        true => {
            "As their sizes differ, any fill is as likely; what the allocator would give less for these is saved."
        }
        false => {
            "As all of them are of one size, they may also be full, so that no saving is promised."
        }
    };
    let found = Finding {
        kind: FindingKind::Growth,
        title: format!(
            "{} left with room to grow: of {}, at most {} are unused",
            count(resting.blocks, "buffer"),
            bytes(resting.held),
            bytes(resting.unused_at_most),
        ),
        what: format!(
            "{} of this stack live at the instant with {}, each come to by steps of a factor ({} in all). The last step was taken when the block before was full, so at most {} of it are unused. {fill}",
            count(resting.blocks, "buffer"),
            bytes(resting.held),
            count(resting.steps, "step"),
            bytes(resting.unused_at_most),
        ),
        change: "Reserve the final size where it is known before the buffer is filled, or shrink it to fit when it is complete."
            .to_owned(),
        now_bytes: resting.held,
        saved_bytes: saved,
        saved_allocations: resting.steps,
        blocks: resting.blocks,
        confidence: Confidence::Possible,
        node: Some(node),
        growth_what_if: Some(GrowthWhatIf {
            policy: GrowthPolicy::Reserving,
            copied_bytes: resting.copied,
            then_copied_bytes: 0,
            held_bytes: resting.held,
            then_held_bytes: resting.held.saturating_sub(saved),
        }),
        ..Finding::default()
    };
    Some((found, varied))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::driver::{Driver, glibc, jemalloc5};
    use crate::passes::growth::GrowthPass;

    #[test]
    fn what_any_fill_would_be_given_by_hand() {
        let of = |allocator| {
            let classes = Classes::learn(allocator, std::iter::empty());
            let usable = classes.usable_of(2048);
            expected(2048, usable, 1023, &classes)
        };
        // jemalloc gives 1,280, 1,536, 1,792 and 2,048, each for a quarter of the fills: 1,664 on average.
        assert_eq!(of("libjemalloc.so.2"), 384);
        // glibc's classes are 16 apart: half of it.
        assert!(
            (496..=520).contains(&of("glibc 2.36")),
            "{}",
            of("glibc 2.36")
        );
    }

    #[test]
    fn sizes_that_differ_are_promised_by_class() {
        let of = |allocator: &str, usable: fn(u64) -> u64| {
            let mut driver = Driver::new(GrowthPass::new(allocator), usable);
            for buffer in 0..1000u64 {
                // To 1,024 and to 2,048 in turns.
                let mut block = driver.alloc(7, 128);
                for doubled in 1..4 + buffer % 2 {
                    block = driver.regrow(block, 7, 128 << doubled);
                }
            }
            let found = driver.finish().findings;
            assert_eq!(found.len(), 1, "{found:#?}");
            found[0].saved_bytes
        };
        assert_eq!(of("libjemalloc.so.2", jemalloc5), 500 * (384 + 192));
        assert!(of("glibc 2.36", glibc) > 500 * (496 + 240));
    }
}
