//! The size classes of the allocator that ran, learned from what it gave.
//!
//! ```text
//!   recorded (size, usable) ──► {usable} ─┐
//!   scheme of the allocator, if known ────┴──► usable_of(n), class_below(n)
//! ```
//!
//! C1  A recorded usable size is a class; nothing overrules it.
//! C2  `usable_of(n) >= n`. Without a scheme it is the smallest class that was seen at or above `n`,
//!     which may be too large and so never promises too much.
//!
//! Not here: rounding of allocators that did not run ([`skinflint_sizes::Scheme`] as it is).

use skinflint_sizes::Scheme;

/// See the head of the file.
pub(super) struct Classes {
    seen: Vec<u64>,
    scheme: Option<&'static Scheme>,
}

impl Classes {
    /// Learns from the usable sizes of a trace; `allocator` as recorded.
    pub fn learn(allocator: &str, usable: impl Iterator<Item = u64>) -> Self {
        let mut seen: Vec<u64> = usable.collect();
        seen.sort_unstable();
        seen.dedup();
        Self {
            seen,
            scheme: Scheme::for_allocator(allocator),
        }
    }

    /// What the allocator would give for `size` bytes (C2).
    pub fn usable_of(&self, size: u64) -> u64 {
        if let Some(scheme) = self.scheme {
            return scheme.usable(size);
        }
        let at = self.seen.partition_point(|class| *class < size);
        self.seen.get(at).copied().unwrap_or(size)
    }

    /// The largest class below `size` that was seen; `None` below the smallest.
    pub fn class_below(&self, size: u64) -> Option<u64> {
        let at = self.seen.partition_point(|class| *class < size);
        at.checked_sub(1).map(|i| self.seen[i])
    }
}
