//! A scheme: what it gives for a request, and its classes.
//!
//! ```text
//!   size ──usable──► class ──kind──► small, large, huge         classes: the fixed points of `usable`
//! ```
//!
//! Not here: the schemes there are (`schemes.rs`), how one is found (`named.rs`).

use core::fmt;

/// The rounding of one allocator.
#[derive(Clone, Copy)]
pub struct Scheme {
    /// The name by which `--scheme` knows it.
    pub name: &'static str,
    /// What the scheme is, and what was simplified; one or two sentences.
    pub about: &'static str,
    /// The source of its figures.
    pub source: &'static str,
    pub(crate) usable: fn(u64) -> u64,
    pub(crate) small_max: u64,
    pub(crate) large_max: u64,
}

impl fmt::Debug for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheme")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// How an allocator serves a class, in the words of the concordance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ClassKind {
    /// Several blocks to a span.
    Small,
    /// A run of pages inside the allocator's own regions.
    Large,
    /// Memory straight from the system, or a region of its own.
    Huge,
}

impl fmt::Display for ClassKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ClassKind::Small => "small",
            ClassKind::Large => "large",
            ClassKind::Huge => "huge",
        })
    }
}

impl Scheme {
    /// Returns the usable bytes for a request of `size` bytes (sizes.Z1, sizes.Z2). Cost: some arithmetic, or a binary
    /// search of a table of at most 70 entries.
    #[inline]
    pub fn usable(&self, size: u64) -> u64 {
        (self.usable)(size)
    }

    /// Returns how the allocator serves blocks of `usable` bytes.
    pub fn kind(&self, usable: u64) -> ClassKind {
        if usable <= self.small_max {
            ClassKind::Small
        } else if usable <= self.large_max {
            ClassKind::Large
        } else {
            ClassKind::Huge
        }
    }

    /// Returns the classes from the smallest to `limit` bytes, both included.
    pub fn classes(&self, limit: u64) -> impl Iterator<Item = u64> + use<> {
        let usable = self.usable;
        let step = move |class: &u64| {
            let next = usable(class.checked_add(1)?);
            (next > *class).then_some(next)
        };
        core::iter::successors(Some(usable(1)), step).take_while(move |class| *class <= limit)
    }
}
