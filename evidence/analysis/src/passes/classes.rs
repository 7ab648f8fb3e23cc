//! The size classes of the allocator that ran, learned from what it gave.
//!
//! ```text
//!   recorded (size, usable) ──► {usable} ─┐
//!   scheme of the allocator, if known ────┴──► usable_of(n), class_below(n), packed(n)
//! ```
//!
//! C1  A recorded usable size is a class; nothing overrules it.
//! C2  `usable_of(n) >= n`. Without a scheme it is the smallest class that was seen at or above `n`, which may be too
//!     large and so never promises too much.
//! C3  A step down is counted by what is given before and after: glibc's chunks come in steps of 16 bytes, so a
//!     request of 32 that becomes one of 24 frees 16 and not the 8 that were unused.
//! C4  jemalloc keeps 128 bytes for each slab, which is the fewest pages that blocks of a class fill: sixteen blocks
//!     of 1,280 share what four of 1,024 do. So a smaller class may cost a part of what it saves.
//!
//! C5  A size is not why more was given than its class and a page: an alignment that was asked for, too, is. p7zip asks for
//!     5 MiB at a multiple of 2 MiB, which glibc makes 6 MiB of: no size would have been given less.
//!
//! C6  Objects of an arena whose blocks are recorded (Python's, of up to 512 bytes) come in steps of 16 bytes without a head:
//!     sizes that glibc never gives. They are no classes of its, and no class of its is below them.
//!
//! Not here: rounding of allocators that did not run ([`skinflint_sizes::Scheme`] as it is).

use skinflint_sizes::Scheme;

/// The bytes that glibc keeps before a block.
const GLIBC_HEAD: u64 = 8;
/// The bytes that jemalloc keeps for an extent (its `edata_t`), and the pages that extents are made of (C4).
const JEMALLOC_SLAB_HEAD: u64 = 128;
const PAGE: u64 = 4096;
/// The largest block of an arena (C6).
const ARENA_MOST: u64 = 512;

/// The size classes of an allocator; see the head of the file.
pub(crate) struct Classes {
    seen: Vec<u64>,
    scheme: Option<&'static Scheme>,
    head: u64,
    /// The bytes that it keeps for each slab.
    slab_head: u64,
}

impl Classes {
    /// Learns the classes from the usable sizes of a trace; `allocator` is its recorded name.
    pub fn learn(allocator: &str, usable: impl Iterator<Item = u64>) -> Self {
        let scheme = Scheme::for_allocator(allocator);
        let glibc = scheme.is_some_and(|scheme| scheme.name == "glibc");
        let mut seen: Vec<u64> = usable.collect();
        seen.sort_unstable();
        seen.dedup();
        seen.retain(|usable| !(glibc && is_of_an_arena(*usable)));
        Self {
            seen,
            scheme,
            head: if glibc { GLIBC_HEAD } else { 0 },
            slab_head: match scheme.is_some_and(|scheme| scheme.name == "jemalloc5") {
                true => JEMALLOC_SLAB_HEAD,
                false => 0,
            },
        }
    }

    /// Returns what the allocator would give for `size` bytes (C2).
    pub fn usable_of(&self, size: u64) -> u64 {
        if let Some(scheme) = self.scheme {
            return scheme.usable(size);
        }
        let at = self.seen.partition_point(|class| *class < size);
        self.seen.get(at).copied().unwrap_or(size)
    }

    /// Reports whether a block was given by an arena's allocator (C6), as far as its size tells.
    pub fn is_of_an_arena(&self, usable: u64) -> bool {
        self.head == GLIBC_HEAD && is_of_an_arena(usable)
    }

    /// Reports whether the allocator would give as much for the size alone (C5). Without a scheme that is not known, and taken for so.
    pub fn explains(&self, size: u64, usable: u64) -> bool {
        self.scheme
            .is_none_or(|scheme| usable <= scheme.usable(size).saturating_add(PAGE))
    }

    /// Returns the largest class below `size`, seen or known; `None` below the smallest.
    pub fn class_below(&self, size: u64) -> Option<u64> {
        let at = self.seen.partition_point(|class| *class < size);
        let seen = at.checked_sub(1).map(|i| self.seen[i]);
        seen.max(self.scheme.and_then(|scheme| scheme_below(scheme, size)))
    }

    /// Returns what the allocator keeps of its own for this many blocks of a class (C4).
    pub fn own(&self, usable: u64, blocks: u64) -> u64 {
        let together = PAGE >> usable.trailing_zeros().min(PAGE.ilog2());
        blocks.div_ceil(together) * self.slab_head
    }

    /// Returns what one block less saves beside its usable bytes, if many are kept in one.
    pub fn head(&self) -> u64 {
        self.head
    }
}

/// Reports whether a usable size is one of an arena's and none of glibc's.
fn is_of_an_arena(usable: u64) -> bool {
    usable <= ARENA_MOST && usable != 0 && usable.is_multiple_of(16)
}

/// Returns the largest class of a scheme below a size. Cost: some sixty look-ups.
fn scheme_below(scheme: &Scheme, size: u64) -> Option<u64> {
    let given = scheme.usable(size);
    // [0, low) is given less than `size` is; nothing from `high` on is.
    let (mut low, mut high) = (0, size);
    while low < high {
        let middle = low + (high - low) / 2;
        match scheme.usable(middle) < given {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    let below = scheme.usable(low.checked_sub(1)?);
    (below < size).then_some(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_below_by_hand() {
        let of = |allocator| Classes::learn(allocator, std::iter::empty());
        // Usable sizes of glibc are 24, 40, 56 …; nothing is below the smallest.
        let glibc = of("glibc 2.36");
        assert_eq!(glibc.class_below(32), Some(24));
        assert_eq!(glibc.class_below(24), None);
        assert_eq!(glibc.class_below(41), Some(40));
        assert_eq!(glibc.head(), 8);
        // 5 MiB, mapped: with its head it takes a page more; 6 MiB are what an alignment of 2 MiB costs (C5).
        assert!(glibc.explains(5 << 20, (5 << 20) + 4096 - 16));
        assert!(!glibc.explains(5 << 20, 6 << 20));
        assert!(of("libown.so").explains(5 << 20, 6 << 20));
        // Sizes of Python's objects are among those that were seen, and are no classes of glibc's.
        let mixed = Classes::learn("glibc 2.36", [24, 48, 56, 64, 512, 528, 1032].into_iter());
        assert_eq!(mixed.class_below(60), Some(56));
        assert_eq!(mixed.class_below(50), Some(40));
        let are = [48, 56, 512, 520, 528].map(|usable| mixed.is_of_an_arena(usable));
        assert_eq!(are, [true, false, true, false, false]);
        assert!(!of("libjemalloc.so.2").is_of_an_arena(48));
        // jemalloc: … 1,024, 1,280; a class itself has the one below it.
        let jemalloc = of("libjemalloc.so.2");
        assert_eq!(jemalloc.class_below(1350), Some(1280));
        assert_eq!(jemalloc.class_below(1280), Some(1024));
        assert_eq!(jemalloc.head(), 0);
        // What was seen is a class, too: one that a size earned.
        let ours = Classes::learn("libskinflint.so", [4368].into_iter());
        assert_eq!(ours.class_below(4400), Some(4368));
        assert_eq!(of("libown.so").class_below(100), None);
        // Slabs of 1, 5 and 1 pages hold 4, 16 and 1 blocks; what is large is one block.
        let own = [1024, 1280, 4096, 20_480].map(|usable| jemalloc.own(usable, 32));
        assert_eq!(own, [8 * 128, 2 * 128, 32 * 128, 32 * 128]);
        assert_eq!(glibc.own(1032, 32), 0);
    }
}
