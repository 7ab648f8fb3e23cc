//! Which spans have changed since the purger looked at them: two bits for each page, in words for 64 pages.
//!
//! ```text
//!   a span changes, its heap's lock held    note:  NEW |= bit, then GROUPS |= group
//!   purger    begin: GROUPS &= !group ─► take: NEW → 0 ─► the heap's lock ─► look at the span ─► nothing to do
//!                                                                                └─► wait: WAITING, GROUPS |= group
//! ```
//!
//! Q1  A span is noted after its change, with its heap's lock held, and the purger takes the bit before it takes that
//!     lock: it sees the change, or finds the bit the next time. So the bit need not be set twice.
//! Q2  The group's bit is set after a span's bit, and taken before it: no bit is set in a group that seems to have none.
//! Q3  WAITING is the purger's own: spans that it has looked at, and is to look at again.
//! Q4  A bit says "look", not what is there: the page may have become another span's meanwhile, or nobody's.
//!
//! The models run this very file (`tests/models.rs`).
//!
//! Not here: which span a page leads to, and where the words lie (`heaps::changes`); what is looked for (`holes`).

use skinflint_base::sync::{AtomicU64, Ordering};

/// Pages of a word.
pub const WORD_PAGES: u32 = 64;
/// Words of a group.
pub const GROUP_WORDS: u32 = 64;

/// The bits of 64 pages.
#[repr(C)]
pub struct Changed {
    new: AtomicU64,
    waiting: AtomicU64,
}

impl Changed {
    /// Creates bits that are not set.
    #[cfg(any(loom, test))]
    #[allow(dead_code)] // by the unit tests
    pub fn none() -> Changed {
        Changed {
            new: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
        }
    }

    /// Notes a span that has changed. The lock of its heap is held (Q1). Cost if it was noted before: one load.
    #[inline]
    pub fn note(&self, bit: u64, groups: &AtomicU64, group: u64) {
        // ORDER: Q1: by the heap's lock, a purger that took the bit and has looked already is seen here.
        // [reason: lock]
        if self.new.load(Ordering::Relaxed) & bit != 0 {
            return;
        }
        self.new.fetch_or(bit, Ordering::Relaxed); // ORDER: published by the exchange below
        // ORDER: Release meets the Acquire of `begin` (Q2). [reason: unshown]
        groups.fetch_or(group, Ordering::Release);
    }

    /// Takes the bits of spans that changed, and those of spans that wait.
    #[inline]
    pub fn take(&self) -> (u64, u64) {
        // ORDER: looks, after `begin`; the heaps' locks order what is found (Q1).
        let new = if self.new.load(Ordering::Relaxed) == 0 {
            0
        } else {
            self.new.swap(0, Ordering::Relaxed) // ORDER: as above
        };
        let waiting = self.waiting.load(Ordering::Relaxed); // ORDER: own (Q3)
        self.waiting.store(0, Ordering::Relaxed); // ORDER: as above
        (new, waiting)
    }

    /// Notes that a span, which was looked at, is to be looked at again.
    #[inline]
    pub fn wait(&self, bit: u64, groups: &AtomicU64, group: u64) {
        let waiting = self.waiting.load(Ordering::Relaxed); // ORDER: own (Q3)
        self.waiting.store(waiting | bit, Ordering::Relaxed); // ORDER: as above
        groups.fetch_or(group, Ordering::Relaxed); // ORDER: own: only the purger takes it
    }

    /// Returns all bits, for the checker.
    pub fn either(&self) -> u64 {
        // ORDER: the locks that order both are held.
        self.new.load(Ordering::Relaxed) | self.waiting.load(Ordering::Relaxed)
    }
}

/// Takes a group's bit; reports whether it was set. The words of the group are to be taken next.
#[inline]
pub fn begin(groups: &AtomicU64, group: u64) -> bool {
    // ORDER: a look: a bit that comes later is found by the next round. Acquire meets the Release of `note` (Q2).
    // [reason: unshown]
    groups.load(Ordering::Relaxed) & group != 0
        && groups.fetch_and(!group, Ordering::Acquire) & group != 0
}
