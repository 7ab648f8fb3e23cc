//! Runs of free pages in a simulated address space: best fit, the lowest address among equal ones.
//!
//! ```text
//!   take(n) ──► shortest free run of at least n pages, cut at its start │ none: the space grows
//!   give ──► joined with its neighbours; at the end of the space it stays free, the space never shrinks
//! ```
//!
//! R1  `by_start` and `by_len` hold the same runs; no two of them touch.
//! R2  Each page below `end` is either taken or in one free run.
//!
//! Real pools prefer runs that are resident; this one does not know which are. Not here: the content
//! of a run (`spans.rs`).

use std::collections::{BTreeMap, BTreeSet};

/// The free runs of a space.
#[derive(Default)]
pub(crate) struct Runs {
    by_start: BTreeMap<u32, u32>,
    by_len: BTreeSet<(u32, u32)>,
    end: u32,
}

impl Runs {
    /// Takes `pages` pages, and returns the first of them.
    pub(crate) fn take(&mut self, pages: u32) -> u32 {
        match self.by_len.range((pages, 0)..).next() {
            Some(&(len, start)) => {
                self.remove(start, len);
                self.insert(start + pages, len - pages);
                start
            }
            None => self.grow(pages),
        }
    }

    /// Adds new pages, joined to a free run at the end.
    fn grow(&mut self, pages: u32) -> u32 {
        let last = self.by_start.last_key_value();
        let start = match last {
            Some((&start, &len)) if start + len == self.end => {
                self.remove(start, len);
                start
            }
            _ => self.end,
        };
        self.end = start + pages;
        start
    }

    /// Gives pages back.
    pub(crate) fn give(&mut self, mut start: u32, mut pages: u32) {
        if let Some((&before, &len)) = self.by_start.range(..start).next_back()
            && before + len == start
        {
            self.remove(before, len);
            (start, pages) = (before, pages + len);
        }
        if let Some(&len) = self.by_start.get(&(start + pages)) {
            self.remove(start + pages, len);
            pages += len;
        }
        self.insert(start, pages);
    }

    /// Makes the taken run that ends before `next` longer by `more` pages, if they are free or new.
    pub(crate) fn extend(&mut self, next: u32, more: u32) -> bool {
        match self.by_start.get(&next) {
            Some(&len) if len >= more => {
                self.remove(next, len);
                self.insert(next + more, len - more);
                true
            }
            Some(&len) if next + len == self.end => {
                self.remove(next, len);
                self.end = next + more;
                true
            }
            None if next == self.end => {
                self.end += more;
                true
            }
            _ => false,
        }
    }

    fn insert(&mut self, start: u32, pages: u32) {
        if pages > 0 {
            self.by_start.insert(start, pages);
            self.by_len.insert((pages, start));
        }
    }

    fn remove(&mut self, start: u32, pages: u32) {
        self.by_start.remove(&start);
        self.by_len.remove(&(pages, start));
    }

    pub(crate) fn table_bytes(&self) -> usize {
        // These are two trees, each with eight bytes per run in nodes that are about two thirds full.
        self.by_start.len() * 24
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let mut runs = Runs::default();
        assert_eq!([runs.take(4), runs.take(2), runs.take(3)], [0, 4, 6]);
        runs.give(0, 4);
        runs.give(6, 3);
        // Best fit: 3 pages at 6, not the 4 at 0; then the 4; then the rest of them does not do.
        assert_eq!([runs.take(3), runs.take(3), runs.take(2)], [6, 0, 9]);
        // Joined on both sides: 3..11.
        runs.give(4, 2);
        runs.give(9, 2);
        runs.give(6, 3);
        assert_eq!(runs.take(8), 3);
        runs.give(3, 8);
        // The free end is made longer rather than left behind.
        assert_eq!(runs.take(10), 3);
        assert_eq!(runs.take(1), 13);
    }

    #[test]
    fn extending() {
        let mut runs = Runs::default();
        assert_eq!([runs.take(2), runs.take(2)], [0, 2]);
        assert!(!runs.extend(2, 1));
        assert!(runs.extend(4, 3));
        runs.give(2, 5);
        assert!(runs.extend(2, 4));
        assert!(runs.extend(6, 3));
        assert_eq!(runs.take(1), 9);
    }
}
