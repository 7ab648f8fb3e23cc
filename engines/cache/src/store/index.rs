//! From a hash to a slot: open addressing over numbers of slots.
//!
//! ```text
//!   hash ─► place ─► place + 1 ─► … ─► empty            a place holds slot + 1; 0: empty
//! ```
//!
//! I1  A search ends at the first empty place: removal moves later entries back, so there are no tombstones, and a
//!     cache that runs for months does not fill up with them.
//! I2  At most three quarters of the places are used.
//! I3  4 bytes a place, in one block whose size the allocator reports: nothing is guessed (a hash map of the standard
//!     library does not tell its block).
//!
//! Not here: keys, which the caller compares.

use crate::buf::Buf;

/// The places.
#[derive(Debug, Default)]
pub struct Index {
    places: Buf<u32>,
    used: usize,
}

impl Index {
    fn home(&self, hash: u64) -> usize {
        // Low bits choose the sketch's words and the shard takes the top: the middle is left.
        (hash >> 20) as usize & (self.places.len() - 1)
    }

    /// Returns the slot with this hash for which `is` holds.
    pub fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        if self.places.is_empty() {
            return None;
        }
        let mut at = self.home(hash);
        loop {
            match self.places[at] {
                0 => return None,
                slot if is(slot - 1) => return Some(slot - 1),
                _ => at = (at + 1) & (self.places.len() - 1),
            }
        }
    }

    /// Adds a slot that is not in the index. `hash_of` returns the hash of any slot that is, for when the table grows.
    pub fn add(&mut self, hash: u64, slot: u32, hash_of: impl Fn(u32) -> u64) {
        if (self.used + 1) * 4 > self.places.len() * 3 {
            self.resize((self.places.len() * 2).max(16), hash_of);
        }
        self.put(hash, slot);
        self.used += 1;
    }

    fn put(&mut self, hash: u64, slot: u32) {
        let mut at = self.home(hash);
        while self.places[at] != 0 {
            at = (at + 1) & (self.places.len() - 1);
        }
        self.places[at] = slot + 1;
    }

    fn resize(&mut self, places: usize, hash_of: impl Fn(u32) -> u64) {
        let mut old = core::mem::take(&mut self.places);
        self.places = Buf::with_capacity(places);
        self.places.resize(places, 0);
        for slot in old.iter().filter(|slot| **slot != 0) {
            self.put(hash_of(slot - 1), slot - 1);
        }
        old.clear();
    }

    /// Removes a slot.
    pub fn remove(&mut self, hash: u64, slot: u32, hash_of: impl Fn(u32) -> u64) {
        let mask = self.places.len() - 1;
        let mut at = self.home(hash);
        while self.places[at] != slot + 1 {
            debug_assert!(self.places[at] != 0, "a slot that is not in the index");
            at = (at + 1) & mask;
        }
        // Later entries move into the gap, unless their home lies behind it (I1).
        let mut gap = at;
        loop {
            at = (at + 1) & mask;
            let Some(next) = self.places[at].checked_sub(1) else {
                break;
            };
            let home = self.home(hash_of(next));
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(gap) & mask) {
                self.places[gap] = next + 1;
                gap = at;
            }
        }
        self.places[gap] = 0;
        self.used -= 1;
    }

    /// Gives back what the remaining slots do not need.
    pub fn shrink(&mut self, hash_of: impl Fn(u32) -> u64) {
        let places = (self.used * 2).next_power_of_two().max(16);
        if self.used == 0 {
            *self = Index::default();
        } else if places * 2 <= self.places.len() {
            self.resize(places, hash_of);
        }
    }

    /// Returns the bytes of the table by the allocator's count.
    pub fn bytes(&self) -> usize {
        self.places.usable_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_base::random::Random;
    use std::collections::HashMap;

    /// Compares with a map, with hashes that collide on purpose.
    #[test]
    fn it_finds_what_a_map_finds() {
        let (mut index, mut judge) = (Index::default(), HashMap::<u32, u64>::new());
        let mut random = Random::new(42);
        for step in 0..40_000u32 {
            let slot = random.below(700) as u32;
            let hash = u64::from(slot % 90) << 20;
            if judge.remove(&slot).is_some() {
                index.remove(hash, slot, |s| u64::from(s % 90) << 20);
            } else {
                index.add(hash, slot, |s| u64::from(s % 90) << 20);
                judge.insert(slot, hash);
            }
            if step % 1_000 == 0 {
                index.shrink(|s| u64::from(s % 90) << 20);
            }
            if step % 97 == 0 {
                for slot in 0..700u32 {
                    let found = index.find(u64::from(slot % 90) << 20, |s| s == slot);
                    assert_eq!(
                        found.is_some(),
                        judge.contains_key(&slot),
                        "step {step}, slot {slot}"
                    );
                }
            }
        }
    }

    /// Creates an index of `slots` slots; the hash of a slot is that of its number.
    fn of(slots: u32) -> Index {
        let mut index = Index::default();
        (0..slots).for_each(|slot| index.add(hash_of(slot), slot, hash_of));
        index
    }

    fn hash_of(slot: u32) -> u64 {
        u64::from(slot) << 20
    }

    #[test]
    fn three_quarters_of_the_places_are_used_before_there_are_more() {
        for (slots, places) in [(1, 16), (12, 16), (13, 32), (24, 32), (25, 64), (96, 128)] {
            assert_eq!(of(slots).places.len(), places, "{slots} slots");
        }
    }

    #[test]
    fn places_that_are_not_needed_are_given_back_and_others_stay_where_they_are() {
        let mut index = of(97);
        let full = index.bytes();
        assert_eq!(index.places.len(), 256);
        // 97 slots need all places that there are: the block does not even move.
        let block = index.places.as_ptr();
        index.shrink(hash_of);
        assert_eq!((index.places.as_ptr(), index.places.len()), (block, 256));
        for slot in 64..97 {
            index.remove(hash_of(slot), slot, hash_of);
        }
        index.shrink(hash_of);
        assert_eq!(index.places.len(), 128, "twice as many as are used");
        assert!(index.bytes() < full, "{} of {full}", index.bytes());
        let found = |slot| index.find(hash_of(slot), |other| other == slot);
        assert!((0..97).all(|slot| found(slot).is_some() == (slot < 64)));
    }
}
