//! Meshing: pairs of spans of one class whose live blocks lie in different slots could share their pages.
//!
//! ```text
//!   span A  [x..x....]   disjoint: B's blocks are copied to their own slots of A's pages, and B's addresses
//!   span B  [.x....x.]   are mapped there; a page in which both had a block is saved
//! ```
//!
//! M1  A span is in at most one pair, and only with one of the same class and length.
//! M2  The saving is the pages in which both spans of a pair hold live blocks: pages in which only one does would
//!     have been purged in the other anyway. So this adds up with 4 KiB purges and never counts twice.
//! M3  Cost: spans are shuffled (a fixed seed, so that the same trace gives the same result), and each of the first
//!     half of a class is tried against [`PROBES`] of the second half: at most `PROBES / 2` looks for each span, each
//!     a few words. The result is what a real mesher could find with that work, not the optimum.
//!
//! Source: the idea, and the probing, are those of Mesh (Powers, Tench, Berger and McGregor, 2019). Not here: when it
//! is requested (`model.rs`).

use skinflint_base::random::Random;

use crate::pages::{PAGE, Pages};

/// The number of spans of the other half that each is tried against, as in Mesh.
pub(crate) const PROBES: usize = 64;

/// The savings of meshing at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Mesh {
    /// Number of spans with a live and a free slot: those that could be meshed at all.
    pub candidates: u64,
    /// Number of pairs found.
    pub pairs: u64,
    /// Bytes of pages that the pairs would share, beyond what 4 KiB purges give back (M2).
    pub saved_bytes: u64,
}

/// A span that may be meshed.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    pub class: u32,
    pub start: u32,
    pub pages: u32,
    pub slots: u32,
    pub live: u32,
}

impl Candidate {
    fn kind(&self) -> (u32, u32) {
        (self.class, self.pages)
    }
}

/// Finds pairs (M3). `bits` has a bit for each free slot of a span.
pub(crate) fn probe<'a>(
    all: Vec<(usize, Candidate)>,
    pages: &Pages,
    bits: impl Fn(usize) -> &'a [u64],
) -> Mesh {
    let mut open: Vec<_> = all
        .into_iter()
        .filter(|(_, one)| one.live > 0 && one.live < one.slots)
        .collect();
    let mut mesh = Mesh {
        candidates: open.len() as u64,
        ..Mesh::default()
    };
    shuffle(&mut open);
    // The sort is stable, so each group stays shuffled.
    open.sort_by_key(|(_, one)| one.kind());
    for group in open.chunk_by(|a, b| a.1.kind() == b.1.kind()) {
        let (left, right) = group.split_at(group.len() / 2);
        let mut taken = (vec![false; left.len()], vec![false; right.len()]);
        for round in 0..PROBES.min(right.len()) {
            for (at, (a, one)) in left.iter().enumerate() {
                let to = (at + round) % right.len();
                let (b, other) = &right[to];
                if taken.0[at] || taken.1[to] || one.live + other.live > one.slots {
                    continue;
                }
                if disjoint(bits(*a), bits(*b), one.slots) {
                    (taken.0[at], taken.1[to]) = (true, true);
                    mesh.pairs += 1;
                    mesh.saved_bytes += shared(one, other, pages) * PAGE;
                }
            }
        }
    }
    mesh
}

/// Reports whether no slot lives in both.
fn disjoint(a: &[u64], b: &[u64], slots: u32) -> bool {
    a.iter().zip(b).enumerate().all(|(word, (a, b))| {
        let left = slots - word as u32 * 64;
        let mask = if left >= 64 { !0 } else { (1u64 << left) - 1 };
        !a & !b & mask == 0
    })
}

/// Returns the pages in which both hold a live block.
fn shared(one: &Candidate, other: &Candidate, pages: &Pages) -> u64 {
    let both = |at: &u32| pages.live(one.start + at) > 0 && pages.live(other.start + at) > 0;
    (0..one.pages).filter(both).count() as u64
}

fn shuffle<T>(all: &mut [T]) {
    let mut random = Random::new(1);
    for at in (1..all.len()).rev() {
        all.swap(at, random.index(at + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two pages of 64-byte slots; `live` are the slots in use.
    fn span(pages: &mut Pages, start: u32, live: &[u32]) -> (Candidate, [u64; 2]) {
        let mut bits = [!0u64; 2];
        for slot in live {
            bits[*slot as usize / 64] &= !(1 << (slot % 64));
            pages.block(u64::from(start) * PAGE + u64::from(*slot) * 64, 64);
        }
        let candidate = Candidate {
            class: 0,
            start,
            pages: 2,
            slots: 128,
            live: live.len() as u32,
        };
        (candidate, bits)
    }

    fn of(spans: &[&[u32]]) -> Mesh {
        let mut pages = Pages::new(0);
        let made: Vec<_> = spans
            .iter()
            .enumerate()
            .map(|(at, live)| span(&mut pages, at as u32 * 2, live))
            .collect();
        let all = made.iter().map(|one| one.0).enumerate().collect();
        probe(all, &pages, |at| &made[at].1)
    }

    fn found(mesh: Mesh) -> (u64, u64, u64) {
        (mesh.candidates, mesh.pairs, mesh.saved_bytes)
    }

    #[test]
    fn by_hand() {
        // Both have a block in both pages: two pages saved.
        assert_eq!(found(of(&[&[0, 64], &[1, 65]])), (2, 1, 8192));
        // One has none in the second page: it would be purged there anyway, one page saved.
        assert_eq!(found(of(&[&[0, 64], &[1]])), (2, 1, 4096));
        // Slot 64 lives in both.
        assert_eq!(found(of(&[&[0, 64], &[1, 64]])), (2, 0, 0));
        // Different pages: a pair, but nothing that purging would not do.
        assert_eq!(found(of(&[&[0], &[64]])), (2, 1, 0));
        // Three that are all disjoint make one pair (M1).
        assert_eq!(found(of(&[&[0], &[1], &[2]])), (3, 1, 4096));
        let full: Vec<u32> = (0..128).collect();
        assert_eq!(found(of(&[&full, &[1]])), (1, 0, 0));
    }

    #[test]
    fn work_is_bounded_and_the_answer_the_same_each_time() {
        let mut pages = Pages::new(0);
        let made: Vec<_> = (0..2000u32)
            .map(|at| span(&mut pages, at * 2, &[at % 128]))
            .collect();
        let looks = std::cell::Cell::new(0usize);
        let run = || {
            let all = made.iter().map(|one| one.0).enumerate().collect();
            probe(all, &pages, |at| {
                looks.set(looks.get() + 1);
                &made[at].1
            })
        };
        let first = run();
        assert!(looks.get() <= made.len() * PROBES, "{}", looks.get());
        assert_eq!(first, run());
        // Two slots in 128 differ for nearly all pairs, so nearly all are found.
        assert!(first.pairs > 990, "{first:?}");
    }

    /// Of each sixteenth of the items about as many lie in each sixteenth afterwards.
    #[test]
    fn a_shuffle_leaves_nothing_near_where_it_was() {
        const PART: usize = 256;
        let mut all: Vec<usize> = (0..16 * PART).collect();
        shuffle(&mut all);
        let mut counts = [[0usize; 16]; 16];
        for (at, item) in all.iter().enumerate() {
            counts[at / PART][item / PART] += 1;
        }
        // 16 each on average, with a standard deviation of 4.
        let counts = counts.as_flattened();
        assert!(counts.iter().all(|count| (1..=36).contains(count)));
        all.sort_unstable();
        assert!(all.into_iter().eq(0..16 * PART));
    }

    #[test]
    fn only_slots_that_are_there_are_compared() {
        // 36 slots in the second word; what is beyond them is in no span.
        let free = [!0u64, (1 << 36) - 1];
        assert!(disjoint(&free, &free, 100));
        let last = [!0u64, (1 << 35) - 1];
        assert!(disjoint(&free, &last, 100));
        assert!(!disjoint(&last, &last, 100));
        assert!(disjoint(&free, &last, 99));
    }
}
