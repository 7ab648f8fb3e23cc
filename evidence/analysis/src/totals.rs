//! The ledger against the allocator's own count of what is in use: two tallies of the same blocks.
//!
//! ```text
//!   allocator:  before ≤ … ≤ after the snapshot at exit        more than the ledger: blocks that no event told of
//!   ledger:     live blocks, each with its header               less: releases that no event told of
//! ```
//!
//! A1  A difference is a contradiction if it exceeds what the allocator counts differently from its callers: what
//!     threads keep in their caches, its own tables, and a part of the whole for what happened between the two
//!     tallies.
//! A3  glibc counts a part of the data segment that others took between two of its own as in use. So what the program
//!     took by `brk` and `sbrk` may be in its count or not.
//! A2  Without the allocator's count, or if the recording does not begin with the process, there is none.

use skinflint_trace::OriginKind;

use crate::missing::{Known, Missing};
use crate::sums::Live;

/// The header that glibc counts with its chunks: a word in front of the block.
const GLIBC_HEADER_BYTES: u64 = 8;
/// The allowance for tables of the allocator, and for blocks that the loader took before the recorder was there.
const LEAST_BYTES: u64 = 1 << 20;
/// A difference below one part in this many of the whole is no contradiction.
const PART: u64 = 50;
/// The most that one thread's cache holds in glibc 2.36 (64 sizes up to 1,032 bytes, seven blocks each).
const CACHE_BYTES: u64 = 256 << 10;
/// The number of threads that a copy's parent may have had; their caches are lost in the copy.
const PARENTS_THREADS: u64 = 64;
/// The most threads that count: a server that starts one for each request has few at a time.
const MOST_THREADS: u64 = 256;

/// Returns how the two tallies contradict each other, if they do (A1). `threads` were seen over the run; `break_bytes` of
/// the data segment are the program's own.
pub(crate) fn contradiction(
    known: &Known<'_>,
    live: &Live,
    threads: usize,
    break_bytes: u64,
) -> Option<Missing> {
    let (before, after) = known.ending?.in_use_bytes?;
    if !known.is_from_birth() {
        return None;
    }
    let is_glibc = known.process.allocator.starts_with("glibc");
    let header = if is_glibc { GLIBC_HEADER_BYTES } else { 0 };
    let own = live
        .usable_bytes
        .saturating_add(live.blocks.saturating_mul(header));
    let is_copy = matches!(&known.process.origin, Some(origin) if origin.how == OriginKind::Fork);
    let parents = if is_copy { PARENTS_THREADS } else { 0 };
    let caches = (threads as u64).min(MOST_THREADS).saturating_add(parents) * CACHE_BYTES;
    let (least, most) = (before.min(after), before.max(after));
    let bound = LEAST_BYTES + caches + own.max(most) / PART;
    let beside = if is_glibc { break_bytes } else { 0 };
    let with_break = own.saturating_add(beside);
    let is_far = with_break.saturating_add(bound) < least || most.saturating_add(bound) < own;
    is_far.then(|| Missing::Totals {
        allocator: known.process.allocator.clone(),
        said_bytes: if own < least { least } else { most },
        known_bytes: if own < least { with_break } else { own },
    })
}

#[cfg(test)]
mod tests {
    use skinflint_trace::{Ending, Origin, ProcessInfo};

    use super::*;
    use crate::missing::tests::known;

    const MIB: u64 = 1 << 20;

    /// What is said of `live` bytes in a thousand blocks where the allocator counts `said`.
    fn judged(
        said: (u64, u64),
        live: u64,
        change: impl FnOnce(&mut ProcessInfo, &mut Ending),
    ) -> Option<(u64, u64)> {
        beside(said, live, 0, change)
    }

    /// The same where the program itself took a part of the data segment.
    fn beside(
        said: (u64, u64),
        live: u64,
        taken: u64,
        change: impl FnOnce(&mut ProcessInfo, &mut Ending),
    ) -> Option<(u64, u64)> {
        let mut process = ProcessInfo {
            allocator: "glibc 2.36".into(),
            ..ProcessInfo::default()
        };
        let mut ending = Ending {
            in_use_bytes: Some(said),
            ..Ending::default()
        };
        change(&mut process, &mut ending);
        let known = known(&process, Some(&ending), 1000);
        let live = Live {
            blocks: 1000,
            requested_bytes: live,
            usable_bytes: live,
        };
        match contradiction(&known, &live, 2, taken)? {
            Missing::Totals {
                said_bytes,
                known_bytes,
                ..
            } => Some((said_bytes, known_bytes)),
            other => panic!("{other:?}"),
        }
    }

    fn as_it_is(_: &mut ProcessInfo, _: &mut Ending) {}

    #[test]
    fn both_directions_beyond_what_caches_hold_are_contradictions() {
        let header = 8000;
        assert_eq!(judged((20 * MIB, 20 * MIB), 20 * MIB, as_it_is), None);
        // A mebibyte, two caches and a fiftieth: 1.9 MiB.
        assert_eq!(
            judged((22 * MIB, 22 * MIB), 20 * MIB + MIB / 8, as_it_is),
            None
        );
        let unseen = judged((40 * MIB, 40 * MIB), 20 * MIB, as_it_is);
        assert_eq!(unseen, Some((40 * MIB, 20 * MIB + header)));
        let released = judged((20 * MIB, 20 * MIB), 40 * MIB, as_it_is);
        assert_eq!(released, Some((20 * MIB, 40 * MIB + header)));
        // Other threads went on between the two tallies: the ledger lies between them.
        assert_eq!(judged((20 * MIB, 60 * MIB), 40 * MIB, as_it_is), None);
        assert_eq!(judged((60 * MIB, 20 * MIB), 40 * MIB, as_it_is), None);
    }

    #[test]
    fn what_the_program_took_of_the_data_segment_may_be_in_glibcs_count() {
        let seen = |said, taken| beside((said, said), 20 * MIB, taken, as_it_is);
        assert!(seen(28 * MIB, 0).is_some());
        assert_eq!(seen(28 * MIB, 8 * MIB), None);
        assert_eq!(seen(20 * MIB, 8 * MIB), None, "glibc took nothing after it");
        let more = Some((38 * MIB, 28 * MIB + 8000));
        assert_eq!(seen(38 * MIB, 8 * MIB), more, "ten are of nobody");
        assert!(seen(10 * MIB, 8 * MIB).is_some(), "releases are missing");
        let jemalloc = |process: &mut ProcessInfo, _: &mut Ending| {
            process.allocator = "libjemalloc.so.2".into();
        };
        let said = (28 * MIB, 28 * MIB);
        assert!(beside(said, 20 * MIB, 8 * MIB, jemalloc).is_some());
    }

    #[test]
    fn nothing_is_judged_that_cannot_be() {
        let far = (90 * MIB, 90 * MIB);
        assert!(judged(far, MIB, as_it_is).is_some());
        assert_eq!(
            judged(far, MIB, |_, ending| ending.in_use_bytes = None),
            None
        );
        let attached = |_: &mut ProcessInfo, ending: &mut Ending| {
            ending
                .notes
                .push("recorded from a moment of its life on (attached): …".into());
        };
        assert_eq!(judged(far, MIB, attached), None);
        // The caches of a parent's threads are lost in its copy.
        let copy = |process: &mut ProcessInfo, _: &mut Ending| {
            process.origin = Some(Origin {
                how: OriginKind::Fork,
                uid: String::new(),
                pid: 1,
                fork_ticket: 0,
            });
        };
        assert_eq!(judged((16 * MIB, 16 * MIB), MIB, copy), None);
        assert!(judged(far, MIB, copy).is_some());
    }
}
