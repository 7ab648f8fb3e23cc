//! The addresses of sampled blocks: a release asks whether it is of one, and nearly always it is not.
//!
//! ```text
//!   address ─► spread ─┬─► line [ header | address | address | … ]       header: bits of its addresses · OVER · changes
//!                      └─► bit of the header: 0, no such address here
//! ```
//!
//! M1  The bit of an address is set in the header of its line as long as the line holds the address: who releases a block,
//!     and so knows of its acquisition, finds it. A bit that is set without an address costs a look at the line.
//! M2  A line that had no room says so for good (`OVER`), with all bits set: the address may be in the next table. So who
//!     finds the bit of an address clear in the lower half of the header need not look further; the recorder's short way
//!     does just that (record-so, hooks/entries.rs).
//! M3  No lock, and no loop without a bound but a compare-and-swap that fails because another thread's succeeded: a fork
//!     finds a line in any state, of which the child makes sense (an address without its bit is a place lost).
//! M4  An address is put once before it is taken: the allocator gives a block to one caller at a time. A block that is
//!     released unseen may leave its address here, and the next block there is then taken for a sample at its release.
//!
//! Rejected: a filter of one bit for each of 64 Ki hashes in front (ddprof's lost 6 % of the samples, since two addresses
//! shared a bit and one cleared it); one open table that grows (readers meet it half moved, or a lock is held over a fork).
//!
//! Not here: where the lines are, and how many (the recorder's samples.rs).

use crate::random;
use crate::sync::{AtomicU64, Ordering};

/// The addresses that a line has room for.
#[cfg(not(loom))]
const PLACES: usize = 7;
#[cfg(loom)]
const PLACES: usize = 2;

/// Bits of the header: the lower half are those of addresses.
const BITS: u64 = (1 << 32) - 1;
const OVER: u64 = 1 << 32;
/// One change of the header. They wrap after 2^31, while a thread looks at two words of one line.
const CHANGE: u64 = 1 << 33;

/// An address, spread over all bits: the upper ones choose a line, five in the middle the bit in its header.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    addr: u64,
    hash: u64,
}

impl Spread {
    /// Spreads an address.
    #[inline(always)]
    pub fn of(addr: u64) -> Spread {
        Spread {
            addr,
            hash: addr.wrapping_mul(random::STEP),
        }
    }

    /// Returns its line, of 2^`bits`.
    #[inline(always)]
    pub fn line(self, bits: u32) -> usize {
        (self.hash >> (64 - bits)) as usize
    }

    #[inline(always)]
    fn bit(self) -> u64 {
        1 << (self.hash >> 32 & 31)
    }
}

/// Some of the addresses: those whose spread leads here. Zeroed memory is an empty line.
#[repr(C, align(64))]
pub struct Line {
    header: AtomicU64,
    places: [AtomicU64; PLACES],
}

/// What a line knows of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// It was here, and is no more.
    Taken,
    /// It is nowhere.
    Nowhere,
    /// It is not here, and may be in the next table (M2).
    Elsewhere,
}

impl Line {
    /// Creates an empty line.
    pub fn new() -> Line {
        Line {
            header: AtomicU64::new(0),
            places: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Puts an address here; false if there is no room, and then it has to go to the next table.
    pub fn put(&self, one: Spread) -> bool {
        let found = self.places.iter().any(|place| {
            // ORDER: Relaxed for both; the header's Release below publishes the place.
            place.load(Ordering::Relaxed) == 0
                && place
                    .compare_exchange(0, one.addr, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
        });
        self.set(if found { one.bit() } else { OVER | BITS });
        found
    }

    /// Sets bits of the header, and counts the change.
    fn set(&self, bits: u64) {
        // ORDER: Relaxed; a first guess.
        let mut before = self.header.load(Ordering::Relaxed);
        loop {
            let after = (before | bits).wrapping_add(CHANGE);
            // ORDER: Release; pairs with the Acquire in `thin`: who sees this change sees the place that was filled
            // before it. [model: samples_model_neighbours]
            match self.header.compare_exchange_weak(
                before,
                after,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => before = now,
            }
        }
    }

    /// Takes an address away, if it is here. Cost: one load and a comparison, if it is nowhere.
    #[inline(always)]
    pub fn take(&self, one: Spread) -> Found {
        // ORDER: Relaxed; the release of a block comes after its acquisition, which set the bit, and the header has one
        // order of changes, each of which keeps it (M1).
        let header = self.header.load(Ordering::Relaxed);
        if header & one.bit() == 0 {
            return Found::Nowhere;
        }
        self.take_slow(one, header)
    }

    #[cold]
    #[inline(never)]
    fn take_slow(&self, one: Spread, header: u64) -> Found {
        let place = self
            .places
            .iter()
            // ORDER: Relaxed; as in `take`: this very thread's block.
            .find(|place| place.load(Ordering::Relaxed) == one.addr);
        if let Some(place) = place {
            // ORDER: Relaxed; nobody else takes this address away, and a place that is seen empty too late is a place lost.
            place.store(0, Ordering::Relaxed);
            self.thin();
            return Found::Taken;
        }
        match header & OVER {
            0 => Found::Nowhere,
            _ => Found::Elsewhere,
        }
    }

    /// Clears the bits that no address here has, unless the line changes meanwhile: then the next release does.
    fn thin(&self) {
        // ORDER: Acquire; pairs with the Release in `set`. A place that is filled and not seen below has its change still
        // to come, and that one sets its bit again, or makes the exchange fail. [model: samples_model_neighbours]
        let before = self.header.load(Ordering::Acquire);
        let mut bits = if before & OVER != 0 { BITS } else { 0 };
        for place in &self.places {
            // ORDER: Relaxed; ordered by the Acquire above.
            let addr = place.load(Ordering::Relaxed);
            if addr != 0 {
                bits |= Spread::of(addr).bit();
            }
        }
        let after = (before & !BITS | bits).wrapping_add(CHANGE);
        // ORDER: Release, so that what `set` published before stays published; Relaxed: a failure costs a bit too many.
        // [model: samples_model_neighbours]
        let _ = self
            .header
            .compare_exchange(before, after, Ordering::Release, Ordering::Relaxed);
    }
}

impl Default for Line {
    fn default() -> Line {
        Line::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::random::Random;

    #[test]
    fn a_line_is_a_cache_line() {
        assert_eq!(size_of::<Line>(), 64);
    }

    #[test]
    fn what_was_put_is_taken_once() {
        let line = Line::new();
        let one = Spread::of(0x7f00_0000_1230);
        assert_eq!(line.take(one), Found::Nowhere);
        assert!(line.put(one));
        assert_eq!(line.take(one), Found::Taken);
        assert_eq!(line.take(one), Found::Nowhere);
        // ORDER: Relaxed; one thread.
        assert_eq!(line.header.load(Ordering::Relaxed) & BITS, 0, "thinned");
    }

    #[test]
    fn a_full_line_says_so_for_good() {
        let line = Line::new();
        let all: Vec<Spread> = (1..=8).map(|n| Spread::of(n * 16)).collect();
        assert!(all[..7].iter().all(|one| line.put(*one)));
        assert!(!line.put(all[7]));
        assert_eq!(line.take(all[7]), Found::Elsewhere);
        assert!(all[..7].iter().all(|one| line.take(*one) == Found::Taken));
        assert_eq!(line.take(all[0]), Found::Elsewhere);
    }

    /// Against a set: some thousand addresses come and go in sixteen lines.
    #[test]
    fn lines_hold_what_a_set_holds() {
        let lines: Vec<Line> = (0..16).map(|_| Line::new()).collect();
        let at = |one: Spread| &lines[one.line(4)];
        let mut random = Random::new(3);
        let (mut all, mut known) = (Vec::new(), HashSet::new());
        for _ in 0..20_000 {
            let addr = 0x7f12_0000_0000 + random.below(4096) * 16;
            if all.len() < 40 && random.below(2) == 0 && !known.contains(&addr) {
                if at(Spread::of(addr)).put(Spread::of(addr)) {
                    all.push(addr);
                    known.insert(addr);
                }
            } else {
                let addr = match all.is_empty() || random.below(2) == 0 {
                    true => addr,
                    false => all.swap_remove(random.index(all.len())),
                };
                all.retain(|one| *one != addr);
                let found = at(Spread::of(addr)).take(Spread::of(addr)) == Found::Taken;
                assert_eq!(found, known.remove(&addr), "{addr:x}");
            }
        }
    }
}
