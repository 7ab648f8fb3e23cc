//! Samples of a heap by stack and size, as they are counted: counts less those before are events.
//!
//! ```text
//!   counts of a reading ─► so many came, so many went since the last ─► first what went, then what came ─► changes
//! ```
//!
//! N1  No count is ever taken back: of a reading that has less than one before, nothing went.
//! N2  A sample's address is one of those that the caller found, if there is one, else one that nothing has. No address is two
//!     live samples'.
//!
//! Not here: where counts come from (go/, served/).

use rustc_hash::FxHashSet;

/// Where samples are that were not found anywhere: nothing lies there.
const NOWHERE: u64 = 1 << 46;
/// The most samples that one reading hands on; the others are counted with the next.
const MOST_AT_ONCE: u64 = 4 << 20;

/// A change of what lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A sample came: the number of its stack, its address, its bytes.
    Acquired(u32, u64, u64),
    /// It went.
    Released(u64),
    /// Memory of the heap: from here on, so many bytes.
    Mapped(u64, u64),
}

/// What was counted of a stack and a size: samples, from the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Counts {
    pub(crate) allocated: u64,
    pub(crate) freed: u64,
}

/// A stack and a size, as they were counted so far.
#[derive(Default)]
pub(crate) struct Counted {
    stack: u32,
    size: u64,
    counts: Counts,
    live: Vec<u64>,
}

/// Hands on what was counted since the last time: first what went of what lived, then what came, and at last what came and
/// went meanwhile. `found`: addresses at which samples of one of them were found.
pub(crate) fn changes<'a>(
    all: &mut [Counted],
    counts: &[Counts],
    found: impl Fn(usize) -> &'a [u64],
    addresses: &mut Addresses,
    to: &mut Vec<Change>,
) {
    let mut left = MOST_AT_ONCE;
    let mut steps = Vec::with_capacity(counts.len());
    for (index, (counted, now)) in all.iter_mut().zip(counts).enumerate() {
        let step = counted.step(now, &mut left);
        let went = counted.release(step.went, found(index), addresses);
        to.extend(went.iter().map(|at| Change::Released(*at)));
        steps.push((step, went.len() as u64));
    }
    for (index, (counted, (step, gone))) in all.iter_mut().zip(steps).enumerate() {
        let passing = step.went - gone;
        let stays = step.came.saturating_sub(passing);
        for at in counted.acquire(stays, found(index), addresses) {
            to.push(Change::Acquired(counted.stack, at, counted.size));
        }
        for _ in 0..step.came - stays {
            let at = addresses.nowhere();
            to.push(Change::Acquired(counted.stack, at, counted.size));
            to.push(Change::Released(at));
        }
    }
}

/// How many samples came and went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Step {
    came: u64,
    went: u64,
}

impl Counted {
    /// Begins to count samples of a stack, by its number, and of a size.
    pub(crate) fn new(stack: u32, size: u64) -> Counted {
        Counted {
            stack,
            size,
            ..Counted::default()
        }
    }

    /// Returns what was counted of it so far.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Takes what was counted up to `now`; of very much that came, the first. Nothing is taken back.
    fn step(&mut self, now: &Counts, left: &mut u64) -> Step {
        let came = now.allocated.saturating_sub(self.counts.allocated);
        let came = came.min(*left);
        *left -= came;
        let went = now.freed.saturating_sub(self.counts.freed);
        let went = went.min(self.live.len() as u64 + came);
        self.counts.allocated += came;
        self.counts.freed += went;
        Step { came, went }
    }

    /// Releases so many of those that live, those that were not found first.
    fn release(&mut self, went: u64, found: &[u64], addresses: &mut Addresses) -> Vec<u64> {
        let went = (went as usize).min(self.live.len());
        if went == 0 {
            return Vec::new();
        }
        let found: FxHashSet<u64> = found.iter().copied().collect();
        // Samples that were found come last; among both kinds the oldest comes first.
        self.live.sort_by_key(|at| found.contains(at));
        let gone: Vec<u64> = self.live.drain(..went).collect();
        gone.iter().for_each(|at| addresses.give(*at));
        gone
    }

    /// Adds so many that live, at the addresses where they were found.
    fn acquire(&mut self, came: u64, found: &[u64], addresses: &mut Addresses) -> Vec<u64> {
        let mut found = found.iter();
        let mut fresh = Vec::with_capacity(came as usize);
        for _ in 0..came {
            let at = found.find(|at| addresses.take(**at)).copied();
            fresh.push(at.unwrap_or_else(|| addresses.nowhere()));
        }
        self.live.extend_from_slice(&fresh);
        fresh
    }
}

/// The addresses of samples that live (N2).
#[derive(Default)]
pub(crate) struct Addresses {
    taken: FxHashSet<u64>,
    nowhere: u64,
}

impl Addresses {
    /// Takes an address; false if it is another sample's.
    fn take(&mut self, at: u64) -> bool {
        self.taken.insert(at)
    }

    fn nowhere(&mut self) -> u64 {
        self.nowhere += 16;
        NOWHERE + self.nowhere
    }

    fn give(&mut self, at: u64) {
        self.taken.remove(&at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted() -> Counted {
        Counted {
            size: 64,
            stack: 3,
            ..Counted::default()
        }
    }

    #[test]
    fn steps_are_what_was_counted_since_and_nothing_is_taken_back() {
        let (mut counted, mut left) = (counted(), u64::MAX);
        let mut addresses = Addresses::default();
        let mut step = |allocated, freed| {
            let step = counted.step(&Counts { allocated, freed }, &mut left);
            let gone = counted.release(step.went, &[], &mut addresses).len() as u64;
            counted.acquire(step.came - (step.went - gone), &[], &mut addresses);
            (step.came, step.went, counted.live.len())
        };
        assert_eq!(step(2, 0), (2, 0, 2));
        assert_eq!(step(2, 1), (0, 1, 1));
        assert_eq!(step(9, 4), (7, 3, 5), "two came and went");
        // Fewer than before, a reading of another moment; then more freed than there is.
        assert_eq!(step(8, 2), (0, 0, 5));
        assert_eq!(step(9, 99), (0, 5, 0));
        assert_eq!(step(10, 99), (1, 1, 0));
    }

    #[test]
    fn of_very_many_samples_the_rest_comes_later() {
        let (mut counted, mut left) = (counted(), 3);
        let now = Counts {
            allocated: 5,
            freed: 0,
        };
        assert_eq!((counted.step(&now, &mut left).came, left), (3, 0));
        left = 9;
        assert_eq!((counted.step(&now, &mut left).came, left), (2, 7));
    }

    #[test]
    fn a_sample_lies_where_it_was_found_and_no_address_is_two() {
        let (mut one, mut two) = (counted(), counted());
        let mut addresses = Addresses::default();
        assert_eq!(one.acquire(2, &[4096, 8192], &mut addresses), [4096, 8192]);
        // Of another bucket, at an address that is not free yet.
        let at = two.acquire(2, &[4096, 12288], &mut addresses);
        assert_eq!(at[0], 12288);
        assert!(at[1] > NOWHERE);
        // One went: the one that is not there any more.
        assert_eq!(one.release(1, &[4096], &mut addresses), [8192]);
        assert_eq!(one.live, [4096]);
        assert_eq!(two.acquire(1, &[8192], &mut addresses), [8192]);
    }
}
