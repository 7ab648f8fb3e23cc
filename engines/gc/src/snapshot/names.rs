//! Names by number, in bounded memory.
//!
//! ```text
//!   name ─► known? its number : room? kept, a new number : a new number, and the name is written in a later pass
//! ```
//!
//! The format has its strings last, and everything before refers to them by number.
//!
//! S1  What is kept stays within the budget. Beyond it each use of a new name has a number of its own (loose): a string
//!     may be there twice.
//! S2  Once one name was loose no further name is kept. So asking for the same names in the same order again tells of
//!     each whether it was loose, and the loose ones come in the order of their numbers.
//!
//! Not here: the passes (`write`).

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

/// Bytes that a name takes beside its text: an end, and an entry of the map with its share of free entries.
const ENTRY_BYTES: usize = 32;

pub(crate) struct Names {
    texts: String,
    ends: Vec<usize>,
    by_hash: HashMap<u64, u32, BuildHasherDefault<DefaultHasher>>,
    budget: usize,
    loose: u64,
}

/// A name's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    Kept(u32),
    /// The name is not kept (S1).
    Loose(u64),
}

impl Number {
    pub(crate) fn get(self) -> u64 {
        match self {
            Number::Kept(number) => u64::from(number),
            Number::Loose(number) => number,
        }
    }
}

impl Names {
    /// Creates an empty table. `budget`: in bytes.
    pub(crate) fn new(budget: usize) -> Names {
        Names {
            texts: String::new(),
            ends: Vec::new(),
            by_hash: HashMap::default(),
            budget,
            loose: 0,
        }
    }

    /// Returns the number of a name. Cost: a hash of the text, a comparison.
    pub(crate) fn number(&mut self, text: &str) -> Number {
        let hash = self.by_hash.hasher().hash_one(text);
        if let Some(&number) = self.by_hash.get(&hash) {
            if self.text(number) == text {
                return Number::Kept(number);
            }
            // Another name has the same hash: treated as if there were no room.
            return self.a_loose_one();
        }
        let bytes = self.texts.len() + text.len() + (self.ends.len() + 1) * ENTRY_BYTES;
        if self.loose > 0 || bytes > self.budget {
            return self.a_loose_one();
        }
        let number = self.ends.len() as u32;
        self.texts.push_str(text);
        self.ends.push(self.texts.len());
        self.by_hash.insert(hash, number);
        Number::Kept(number)
    }

    fn a_loose_one(&mut self) -> Number {
        let number = self.ends.len() as u64 + self.loose;
        self.loose += 1;
        Number::Loose(number)
    }

    fn text(&self, number: u32) -> &str {
        let number = number as usize;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.texts[start..self.ends[number]]
    }

    /// Returns the names that are kept, in the order of their numbers.
    pub(crate) fn kept(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len() as u32).map(|number| self.text(number))
    }

    pub(crate) fn loose(&self) -> u64 {
        self.loose
    }

    /// Begins the second round, in which the same names are asked for once more (S2).
    pub(crate) fn again(&mut self) {
        self.loose = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number_as_long_as_there_is_room_and_loose_ones_come_again_in_order() {
        let asked: Vec<String> = (0..50).map(|n| format!("name {}", (n * 7) % 20)).collect();
        let mut names = Names::new(10 * (ENTRY_BYTES + 7));
        let first: Vec<Number> = asked.iter().map(|name| names.number(name)).collect();
        let kept: Vec<String> = names.kept().map(str::to_owned).collect();
        assert!(kept.len() >= 10 && kept.len() < 20, "{}", kept.len());
        let loose: Vec<u64> = first
            .iter()
            .filter(|number| matches!(number, Number::Loose(_)))
            .map(|number| number.get())
            .collect();
        let from = kept.len() as u64;
        assert!(loose.iter().copied().eq(from..from + names.loose()));
        for (name, number) in asked.iter().zip(&first) {
            if let Number::Kept(number) = *number {
                assert_eq!(*name, kept[number as usize]);
            }
        }
        names.again();
        let second: Vec<Number> = asked.iter().map(|name| names.number(name)).collect();
        assert_eq!(first, second);
    }

    #[test]
    fn after_one_that_is_too_long_no_shorter_one_is_kept() {
        let mut names = Names::new(2 * ENTRY_BYTES + 20);
        assert_eq!(names.number("first"), Number::Kept(0));
        let long = "a name of more bytes than are left";
        for _ in 0..2 {
            assert_eq!(names.number(long), Number::Loose(1));
            assert_eq!(names.number("short"), Number::Loose(2), "S2");
            assert_eq!(names.number("first"), Number::Kept(0));
            names.again();
        }
    }
}
