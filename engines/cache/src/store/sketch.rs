//! The frequency sketch: how often a key was asked for lately, whether or not it is in the cache.
//!
//! ```text
//!   hash ─► 4 counters of 4 bits in 4 words ─► the least of them        every 2 × words additions: all halved
//! ```
//!
//! S1  An estimate is never below the truth since the last halving (capped at 15), and seldom above.
//! S2  16 to 32 bytes for each entry that the cache can hold. The table doubles with the cache and keeps its counts:
//!     the word of a key is chosen by low bits of its hash, so a table twice as long has each word twice.
//!
//! Source: TinyLFU (Einziger, Friedman and Manes, 2017).
//!
//! Not here: which entries are admitted (`shard`).

use crate::buf::Buf;

/// Additions for each word until all counters are halved. With 4 `shift` of bench/cache falls from 64 to 60 of 100
/// hits, and nothing else gains (`cargo xtask bench cache`, 2026-11-22).
const SAMPLE: usize = 2;

/// The counters of requests.
#[derive(Debug, Default)]
pub struct Sketch {
    words: Buf<u64>,
    additions: usize,
}

fn mixed(hash: u64, row: u64) -> u64 {
    let mixed = hash
        .wrapping_add(row.wrapping_mul(0x9E37_79B9_7F4A_7C15))
        .wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed ^ (mixed >> 31)
}

impl Sketch {
    /// Returns the word and the shift of a row's counter.
    fn place(&self, hash: u64, row: u64) -> (usize, u32) {
        let index = mixed(hash, row) as usize & (self.words.len() - 1);
        (index, ((hash >> 60) as u32 & 3) * 16 + row as u32 * 4)
    }

    /// Makes room for `entries` entries, two words for each; the table at least doubles, or stays.
    pub fn reserve(&mut self, entries: usize) {
        let words = Sketch::words_for(entries);
        if self.words.is_empty() {
            self.words.resize(words, 0);
        }
        while self.words.len() < words {
            let half = self.words.len();
            self.words.resize(2 * half, 0);
            let (low, high) = self.words.split_at_mut(half);
            high.copy_from_slice(low);
        }
    }

    /// Counts a request.
    pub fn add(&mut self, hash: u64) {
        if self.words.is_empty() {
            return;
        }
        let least = u64::from(self.count(hash));
        if least == 15 {
            return;
        }
        // Only the least counters: the others were raised by other keys (S1).
        for row in 0..4 {
            let (index, shift) = self.place(hash, row);
            let word = &mut self.words[index];
            if *word >> shift & 15 == least {
                *word += 1 << shift;
            }
        }
        self.additions += 1;
        if self.additions >= SAMPLE * self.words.len() {
            self.halve();
        }
    }

    fn halve(&mut self) {
        for word in self.words.iter_mut() {
            *word = *word >> 1 & 0x7777_7777_7777_7777;
        }
        self.additions /= 2;
    }

    /// Returns the number of recent requests.
    pub fn count(&self, hash: u64) -> u8 {
        if self.words.is_empty() {
            return 0;
        }
        (0..4)
            .map(|row| {
                let (index, shift) = self.place(hash, row);
                (self.words[index] >> shift & 15) as u8
            })
            .min()
            .unwrap_or(0)
    }

    /// Returns the bytes that [`Sketch::shrink`] would give back.
    pub fn excess(&self, entries: usize) -> usize {
        let wanted = Sketch::words_for(entries);
        self.words.len().saturating_sub(wanted) * size_of::<u64>()
    }

    fn words_for(entries: usize) -> usize {
        (2 * entries).next_power_of_two().max(16)
    }

    /// Gives back what `entries` entries do not need: two words become one, with the greater of their counts (S1).
    pub fn shrink(&mut self, entries: usize) {
        let wanted = Sketch::words_for(entries);
        while self.words.len() >= 2 * wanted {
            let half = self.words.len() / 2;
            let (low, high) = self.words.split_at_mut(half);
            for (low, high) in low.iter_mut().zip(high) {
                let greater = |shift: u32| (*low >> shift & 15).max(*high >> shift & 15) << shift;
                *low = (0..16).map(|at| greater(at * 4)).sum();
            }
            self.words.truncate(half);
            self.words.shrink_to_fit();
        }
    }

    /// Forgets all counts, and frees the memory.
    pub fn forget(&mut self) {
        *self = Sketch::default();
    }

    /// Returns the bytes of the table by the allocator's count.
    pub fn bytes(&self) -> usize {
        self.words.usable_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_never_below_the_truth_and_seldom_above() {
        let mut sketch = Sketch::default();
        sketch.reserve(1_000);
        let hash = |key: u64| mixed(key, 9);
        for key in 0..500u64 {
            for _ in 0..key % 8 {
                sketch.add(hash(key));
            }
        }
        let over = (0..500).filter(|key| {
            let (count, truth) = (u64::from(sketch.count(hash(*key))), key % 8);
            assert!(count >= truth, "{key}: {count} < {truth}");
            count > truth
        });
        assert!(over.count() < 25);
        // After doubling, every count is as it was.
        let before: Vec<u8> = (0..500).map(|key| sketch.count(hash(key))).collect();
        sketch.reserve(4_000);
        assert_eq!(
            before,
            (0..500)
                .map(|key| sketch.count(hash(key)))
                .collect::<Vec<_>>()
        );
        // After shrinking, none is below what it was.
        sketch.shrink(500);
        assert!(sketch.bytes() <= 8_400);
        assert!(
            before
                .iter()
                .zip(0..)
                .all(|(count, key)| sketch.count(hash(key)) >= *count)
        );
    }

    #[test]
    fn what_was_long_ago_fades() {
        let mut sketch = Sketch::default();
        sketch.reserve(16);
        for _ in 0..15 {
            sketch.add(7);
        }
        for key in 0..4_000u64 {
            sketch.add(mixed(key, 3));
        }
        assert!(sketch.count(7) < 15);
    }

    /// If many keys shared few words, all of them would seem to be asked for often.
    #[test]
    fn keys_are_spread_over_all_words_in_each_row() {
        let mut sketch = Sketch::default();
        sketch.reserve(32);
        assert_eq!(sketch.words.len(), 64);
        for row in 0..4 {
            let mut keys = [0u32; 64];
            for key in 1..=64_000u64 {
                // Not by `mixed`, which is under test.
                let hash = key.wrapping_mul(0xD6E8_FEB8_6659_FD93);
                keys[sketch.place(hash ^ hash >> 29, row).0] += 1;
            }
            assert!(
                keys.iter().all(|count| (700..1_300).contains(count)),
                "row {row}: {keys:?}"
            );
        }
    }
}
