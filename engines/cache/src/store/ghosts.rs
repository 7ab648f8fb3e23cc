//! Ghosts: keys whose entries went lately for want of room.
//!
//! ```text
//!   an entry is displaced, refused or released ─► tag at the place of its hash
//!   a key comes in ─► is its tag there? ─► taken out: with more room the lookup before would have hit
//! ```
//!
//! U1  A key is taken for one that was there only if low bits of both hashes and sixteen others are equal: once in 65,536
//!     times for each place. The sketch said so of one key in a hundred, and of each key that is looked up twice before it
//!     comes in; a budget gave everything to the member of which it did.
//! U2  As many keys are remembered as fit into all that is allowed, however little of it the shard has: a key that went
//!     longer ago than that would not be there with all of the room, either. Were it as many as fit into what the shard
//!     has, a small member would forget sooner than a large one, save less, and become smaller.
//! U3  2 bytes a place, a 64th of what is allowed at most; the table doubles as keys go. A later key takes the place of an
//!     earlier one. The place is chosen by low bits, so a table twice as long has each tag twice.
//!
//! Not here: who asks (`shard`, `budget`), frequencies (`sketch`).

use crate::buf::Buf;

const LEAST: usize = 16;

/// The tags; 0: none.
#[derive(Debug, Default)]
pub struct Ghosts {
    tags: Buf<u16>,
    /// Keys noted since the table has this length.
    noted: usize,
}

fn tag(hash: u64) -> u16 {
    ((hash >> 40) as u16).max(1)
}

/// Returns the number of places for a shard that may have `allowed` bytes, `each` for an entry (U2, U3).
pub fn places(allowed: usize, each: usize) -> usize {
    let wanted = (allowed / each.max(1)).next_power_of_two();
    let most = (allowed / 64 / size_of::<u16>() + 1).next_power_of_two() / 2;
    wanted.min(most).max(LEAST)
}

impl Ghosts {
    fn place(&self, hash: u64) -> usize {
        hash as usize & (self.tags.len() - 1)
    }

    /// Makes room for what goes: the table doubles, up to `most` places, when half as many keys were noted as it has.
    pub fn reserve(&mut self, most: usize) {
        let length = self.tags.len();
        if length == 0 {
            self.tags.resize(LEAST, 0);
        } else if self.noted * 2 >= length && length * 2 <= most {
            self.tags.resize(2 * length, 0);
            let (low, high) = self.tags.split_at_mut(length);
            high.copy_from_slice(low);
            self.noted = 0;
        }
    }

    /// Notes a key that went.
    pub fn note(&mut self, hash: u64) {
        if !self.tags.is_empty() {
            let place = self.place(hash);
            self.tags[place] = tag(hash);
            self.noted += 1;
        }
    }

    /// Takes a key out; `true`: it was there.
    pub fn take(&mut self, hash: u64) -> bool {
        if self.tags.is_empty() {
            return false;
        }
        let place = self.place(hash);
        let was_there = self.tags[place] == tag(hash);
        if was_there {
            self.tags[place] = 0;
        }
        was_there
    }

    /// Gives back what is more than `most` places: of two tags one stays.
    pub fn shrink(&mut self, most: usize) {
        while self.tags.len() > most.max(LEAST) {
            let half = self.tags.len() / 2;
            let (low, high) = self.tags.split_at_mut(half);
            for (low, high) in low.iter_mut().zip(high) {
                *low = if *high == 0 { *low } else { *high };
            }
            self.tags.truncate(half);
            self.tags.shrink_to_fit();
        }
    }

    /// Forgets all keys, and frees the memory.
    pub fn forget(&mut self) {
        *self = Ghosts::default();
    }

    /// Returns the bytes of the table by the allocator's count.
    pub fn bytes(&self) -> usize {
        self.tags.usable_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hash whose halves both depend on the key.
    fn hash(key: u64) -> u64 {
        let mixed = (key + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        mixed ^ mixed >> 29
    }

    #[test]
    fn places_are_for_all_that_is_allowed_and_a_64th_of_it() {
        assert_eq!(places(1 << 20, 4_096), 256);
        assert_eq!(places((1 << 20) + 4_096, 4_096), 512);
        assert_eq!(places(1 << 20, 100), 8_192, "a 64th: 16 KiB");
        assert_eq!((places(0, 0), places(10, 1)), (LEAST, LEAST));
    }

    #[test]
    fn what_went_is_there_once_and_nothing_else_is() {
        let mut ghosts = Ghosts::default();
        ghosts.note(hash(1));
        assert!(!ghosts.take(hash(1)), "no entry has come yet");
        for key in 0..100_000 {
            ghosts.reserve(1 << 10);
            ghosts.note(hash(key));
        }
        assert_eq!(
            ghosts.bytes(),
            Buf::<u16>::with_capacity(1 << 10).usable_bytes()
        );
        let there = |keys: core::ops::Range<u64>, ghosts: &mut Ghosts| {
            keys.filter(|key| ghosts.take(hash(*key))).count()
        };
        // Of 65,536 that were not noted, each has one chance in as many.
        assert!(there(200_000..265_536, &mut ghosts) < 10);
        let last = there(99_500..100_000, &mut ghosts);
        assert!((350..500).contains(&last), "{last}: some share a place");
        assert_eq!(there(99_500..100_000, &mut ghosts), 0, "taken out");
    }

    #[test]
    fn a_table_that_grows_or_shrinks_knows_what_it_knew() {
        let mut ghosts = Ghosts::default();
        ghosts.tags.resize(64, 0);
        (0..32).for_each(|key| ghosts.note(hash(key)));
        let is_known =
            |ghosts: &Ghosts, key: u64| ghosts.tags[ghosts.place(hash(key))] == tag(hash(key));
        let known: Vec<u64> = (0..32).filter(|key| is_known(&ghosts, *key)).collect();
        assert!(known.len() > 16);
        ghosts.reserve(64);
        assert_eq!(ghosts.tags.len(), 64, "no more than is allowed");
        ghosts.reserve(128);
        assert_eq!(ghosts.tags.len(), 128);
        assert!(known.iter().all(|key| is_known(&ghosts, *key)));
        ghosts.shrink(64);
        assert_eq!(ghosts.tags.len(), 64);
        assert!(known.iter().all(|key| ghosts.take(hash(*key))));
        ghosts.forget();
        assert_eq!(ghosts.bytes(), 0);
    }
}
