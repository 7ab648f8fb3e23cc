//! Resident pages of the heap on which no recorded block ever lay: how much of them stays unexplained.
//!
//! ```text
//!   snapshot   |##uu####|uuuuuuuu|      u: resident in the heap, no recorded block up to the snapshot's ticket
//!   later      |##b.####|uuuuuuuu|      b: a block came while the pages were read, and its page was touched first
//!                        └──────┘       what is left: something got this memory past the recorder
//! ```
//!
//! U1  A page that gets a recorded block within a second after its snapshot was taken is explained: the program ran
//!     while its pages were read, and a block's page may be touched before its event comes.
//! U2  What is unmapped is judged at that moment: later blocks there are of another mapping.
//! U3  Of a look no more is unexplained than the books have in their row (closing.K3).
//!
//! Memory: the runs of such pages, for at most [`MOST_LOOKS`] snapshots at a time. Not here: which pages these are
//! (`books/closing.rs`), how much of them makes a recording incomplete (`missing.rs`).

use crate::maps::BlockPages;

/// The time in which a block's event may follow the reading of its page, nanoseconds (U1).
const FOLLOWS_NS: u64 = 1_000_000_000;
/// The most snapshots whose pages are followed at a time; of more, the one with the fewest bytes is given up.
const MOST_LOOKS: usize = 4;

/// Pages without a recorded block in the books of one snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Unseen {
    /// Their addresses, in order: start and end.
    pub ranges: Vec<(u64, u64)>,
    /// What the books have of them, bytes.
    pub bytes: u64,
    /// Resident bytes of the snapshot.
    pub resident_bytes: u64,
}

/// A snapshot that is followed.
#[derive(Clone, Debug)]
struct Look {
    until_ns: u64,
    /// What is left open.
    unseen: Unseen,
    /// Bytes that were judged (U2).
    judged_bytes: u64,
}

/// Pages that stayed unexplained.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Unexplained {
    /// Their bytes.
    pub bytes: u64,
    /// Resident bytes of the process then.
    pub resident_bytes: u64,
}

/// The snapshots that are followed, and what was left of those that were.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looks {
    open: Vec<Look>,
    most: Unexplained,
}

impl Looks {
    /// Follows the pages of a snapshot whose reading ended at `read_ns`.
    pub fn follow(&mut self, unseen: Unseen, read_ns: u64) {
        if unseen.bytes <= self.most.bytes {
            return;
        }
        self.open.push(Look {
            until_ns: read_ns.saturating_add(FOLLOWS_NS),
            unseen,
            judged_bytes: 0,
        });
        if self.open.len() > MOST_LOOKS {
            let least = self.open.iter().enumerate();
            let least = least.min_by_key(|(_, look)| look.unseen.bytes);
            self.open.swap_remove(least.map_or(0, |(index, _)| index));
        }
    }

    /// Reports whether no snapshot is followed.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Judges a range that is about to be forgotten (U2). Cost: a search in each look, and the runs in the range.
    pub fn forget(&mut self, addr: u64, len: u64, pages: &BlockPages) {
        let end = addr.saturating_add(len);
        for look in &mut self.open {
            let ranges = &mut look.unseen.ranges;
            let first = ranges.partition_point(|range| range.1 <= addr);
            let last = ranges.partition_point(|range| range.0 < end);
            if first >= last {
                continue;
            }
            let mut left = Vec::new();
            for &(from, to) in &ranges[first..last] {
                look.judged_bytes += without_block(from.max(addr), to.min(end), pages);
                left.extend((from < addr).then_some((from, addr)));
                left.extend((to > end).then_some((end, to)));
            }
            ranges.splice(first..last, left);
        }
    }

    /// Judges the looks whose time has passed.
    pub fn settle(&mut self, now_ns: u64, pages: &BlockPages) {
        let most = &mut self.most;
        self.open.retain(|look| {
            let is_open = now_ns <= look.until_ns;
            if !is_open {
                *most = (*most).max(judged(look, pages));
            }
            is_open
        });
    }

    /// Returns the time after which a look is to be judged; `u64::MAX` if none is open.
    pub fn until_ns(&self) -> u64 {
        let open = self.open.iter().map(|look| look.until_ns);
        open.min().unwrap_or(u64::MAX)
    }

    /// Returns the most that any look left unexplained, as of now.
    pub fn most(&self, pages: &BlockPages) -> Unexplained {
        let open = self.open.iter().map(|look| judged(look, pages));
        open.fold(self.most, Unexplained::max)
    }
}

fn judged(look: &Look, pages: &BlockPages) -> Unexplained {
    let ranges = look.unseen.ranges.iter();
    let open: u64 = ranges
        .map(|&(from, to)| without_block(from, to, pages))
        .sum();
    Unexplained {
        bytes: look
            .judged_bytes
            .saturating_add(open)
            .min(look.unseen.bytes),
        resident_bytes: look.unseen.resident_bytes,
    }
}

/// Returns the bytes of a range on whose pages no block has been.
fn without_block(mut from: u64, to: u64, pages: &BlockPages) -> u64 {
    let mut bytes = 0;
    while from < to {
        let (end, been) = pages.run(from, to);
        bytes += if been { 0 } else { end - from };
        from = end;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;
    const BASE: u64 = 0x7F00_0000_0000;
    const SECOND: u64 = 1_000_000_000;

    fn look(pages: &[(u64, u64)], bytes: u64) -> Unseen {
        let range = |&(from, to): &(u64, u64)| (BASE + from * PAGE, BASE + to * PAGE);
        Unseen {
            ranges: pages.iter().map(range).collect(),
            bytes,
            resident_bytes: 99 * PAGE,
        }
    }

    #[test]
    fn a_block_that_follows_explains_its_page_for_a_second() {
        let (mut looks, mut pages) = (Looks::default(), BlockPages::default());
        looks.follow(look(&[(0, 4), (8, 10)], 6 * PAGE), 0);
        assert_eq!(looks.most(&pages).bytes, 6 * PAGE);
        pages.touch(BASE + PAGE, 2 * PAGE);
        looks.settle(SECOND, &pages);
        assert_eq!(looks.most(&pages).bytes, 4 * PAGE);
        looks.settle(SECOND + 1, &pages);
        assert!(looks.is_empty());
        pages.touch(BASE + 8 * PAGE, PAGE);
        let most = looks.most(&pages);
        assert_eq!(
            (most.bytes, most.resident_bytes),
            (4 * PAGE, 99 * PAGE),
            "too late"
        );
    }

    #[test]
    fn what_is_unmapped_is_judged_before_other_blocks_come() {
        let (mut looks, mut pages) = (Looks::default(), BlockPages::default());
        looks.follow(look(&[(0, 4), (6, 8)], 6 * PAGE), 0);
        pages.touch(BASE + 2 * PAGE, 16);
        // Pages 1 to 6: page 2 is explained, 1, 3 and 6 are not; 0 and 7 stay open.
        looks.forget(BASE + PAGE, 6 * PAGE, &pages);
        pages.forget(BASE + PAGE, 6 * PAGE);
        pages.touch(BASE, 8 * PAGE);
        assert_eq!(looks.most(&pages).bytes, 3 * PAGE);
    }

    #[test]
    fn no_more_than_the_books_have_is_unexplained() {
        let (mut looks, pages) = (Looks::default(), BlockPages::default());
        looks.follow(look(&[(0, 4)], PAGE), 0);
        assert_eq!(looks.most(&pages).bytes, PAGE);
        (0..9).for_each(|more| looks.follow(look(&[(0, 4)], PAGE + more), 0));
        assert_eq!(looks.open.len(), MOST_LOOKS);
        assert_eq!(looks.most(&pages).bytes, PAGE + 8);
    }
}
