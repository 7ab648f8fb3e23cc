//! The source of chunks, shared by all heaps that were made with it.
//!
//! ```text
//!   heap A ─┐ take            ┌──► ready: empty, still resident ──┐ more than `high`
//!   heap B ─┤ ◄───────────────┤                                   ▼
//!   heap C ─┘ give ──────────►┘            purged, back in the page pool, until `low` are left
//! ```
//!
//! S1  At most `taken / 16` empty chunks stay resident after a give; when there are more, they are given back until
//!     `taken / 32` are left. A heap itself keeps what it will need again (chunks.U3); this is for tenants that come
//!     and go.
//! S2  [`Source::shrink`] keeps none.
//! S3  A heap holds its source by reference count, so memory outlives every heap that lies in it.
//! S4  A refusal of the kernel is a result, and changes nothing.
//! S5  Heaps have numbers of the process, so that two heaps have two numbers, whatever their sources, worlds and
//!     threads: no collection takes an object of another world for one of its own. The owner of a chunk can be found
//!     without looking at the chunk. A collector of counted values has one, too. A number is used again only when no
//!     entry of a root table has it that something may be opened by: a heap's edges end with its objects, and each
//!     anchor keeps its collector's number.
//!
//! Not here: pages within a chunk (`chunks`), the system calls (`backing`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use core::ptr::NonNull;

use crate::heap::address::{CHUNK_BYTES, Chunk};
#[cfg(not(miri))]
use crate::heap::backing::Backing;
#[cfg(miri)]
use crate::heap::backing_miri::Backing;

/// Empty chunks that are kept: this many, and one for this many that are taken. A quarter was tried: with every second
/// of twenty tenants closed, 60 % of the memory of all stayed resident, where half was used (2026-11-21).
const HIGH: (usize, usize) = (0, 16);
const LOW: (usize, usize) = (0, 32);

/// Whether a heap, or a collector of counted values, has the number (S5).
static NUMBERS: Mutex<Vec<bool>> = Mutex::new(Vec::new());

fn numbers() -> MutexGuard<'static, Vec<bool>> {
    // No code under the lock unwinds half-way.
    NUMBERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the least number that no heap has (S5).
pub(crate) fn take_number() -> u32 {
    let mut numbers = numbers();
    let unused = numbers.iter().position(|taken| !taken);
    let number = unused.unwrap_or(numbers.len());
    match numbers.get_mut(number) {
        Some(taken) => *taken = true,
        None => numbers.push(true),
    }
    number as u32
}

/// Takes a number back, since nothing is left of its heap.
pub(crate) fn give_number(number: u32) {
    if let Some(taken) = numbers().get_mut(number as usize) {
        *taken = false;
    }
}

/// A provider of chunks. Clones are the same provider.
#[derive(Clone)]
pub struct Source(Arc<Mutex<Inner>>);

struct Inner {
    backing: Backing,
    ready: Vec<Chunk>,
    counts: SourceCounts,
}

/// Counts of a source so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// Megabytes that heaps have.
    pub taken: usize,
    /// The most megabytes that heaps have had.
    pub taken_max: usize,
    /// Empty megabytes that are kept resident.
    pub ready: usize,
    /// Number of takes that were met from `ready`.
    pub reused_total: u64,
    /// Megabytes given back to the system so far.
    pub released_total: u64,
    /// Bytes of single free arenas given back within chunks.
    pub purged_bytes_total: u64,
    /// Number of takes that the kernel refused.
    pub refused_total: u64,
    /// Bytes of the page pool's own tables.
    pub metadata_bytes: usize,
}

impl Source {
    /// Creates a provider. It takes address space when the first chunk is taken.
    pub fn new() -> Source {
        Source(Arc::new(Mutex::new(Inner {
            backing: Backing::new(),
            ready: Vec::new(),
            counts: SourceCounts::default(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code under the lock unwinds half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what it has done so far.
    pub fn counts(&self) -> SourceCounts {
        let inner = self.lock();
        SourceCounts {
            ready: inner.ready.len(),
            metadata_bytes: inner.backing.metadata_bytes(),
            ..inner.counts
        }
    }

    /// Takes `slots` megabytes in a row for a heap; the second value says whether they read as zero and are not
    /// resident.
    pub(crate) fn take(&self, slots: u32, heap: u32) -> Option<(Chunk, bool)> {
        let mut inner = self.lock();
        let kept = (slots == 1).then(|| inner.ready.pop()).flatten();
        let got = match kept {
            Some(chunk) => {
                inner.counts.reused_total += 1;
                inner.backing.set_owner(chunk, heap);
                (chunk, false)
            }
            None => match inner.backing.take(slots, heap) {
                Some(chunk) => (chunk, true),
                None => {
                    inner.counts.refused_total += 1;
                    return None;
                }
            },
        };
        inner.counts.taken += slots as usize;
        inner.counts.taken_max = inner.counts.taken_max.max(inner.counts.taken);
        Some(got)
    }

    /// Takes back a chunk that nothing refers to any more.
    pub(crate) fn give(&self, chunk: Chunk, slots: u32) {
        let mut inner = self.lock();
        inner.counts.taken -= slots as usize;
        if slots > 1 {
            inner.release(chunk, slots);
            return;
        }
        inner.ready.push(chunk);
        let keep = |(base, share): (usize, usize)| base + inner.counts.taken / share;
        if inner.ready.len() > keep(HIGH) {
            let low = keep(LOW);
            inner.release_until(low);
        }
    }

    /// Gives all empty chunks back to the system.
    pub fn shrink(&self) {
        self.lock().release_until(0);
    }

    /// Gives the pages of free arenas back; they read as zero afterwards.
    pub(crate) fn purge(&self, ranges: impl Iterator<Item = (NonNull<u8>, usize)>) {
        let mut inner = self.lock();
        for (start, bytes) in ranges {
            inner.backing.purge(start, bytes);
            inner.counts.purged_bytes_total += bytes as u64;
        }
        inner.backing.flush();
    }

    /// Counts bytes that a caller gave back itself.
    pub(crate) fn count_purged(&self, bytes: u64) {
        self.lock().counts.purged_bytes_total += bytes;
    }

    /// Returns the chunk that an address lies in, if a heap has it, and that heap's number.
    pub(crate) fn find(&self, addr: usize) -> Option<(Chunk, u32)> {
        let inner = self.lock();
        let (chunk, heap) = inner.backing.find(addr)?;
        (!inner.ready.contains(&chunk)).then_some((chunk, heap))
    }
}

impl Default for Source {
    fn default() -> Source {
        Source::new()
    }
}

impl Inner {
    fn release(&mut self, chunk: Chunk, slots: u32) {
        self.backing.give(chunk, slots);
        self.counts.released_total += u64::from(slots);
    }

    fn release_until(&mut self, left: usize) {
        // The oldest first: the youngest is the likeliest to be in a cache.
        let surplus = self.ready.len().saturating_sub(left);
        let old: Vec<Chunk> = self.ready.drain(..surplus).collect();
        for chunk in old {
            self.release(chunk, 1);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.release_until(0);
    }
}

const _: () = assert!(CHUNK_BYTES.is_power_of_two());

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(source: &Source, slots: u32) -> Chunk {
        source.take(slots, 5).expect("memory").0
    }

    #[test]
    fn addresses_are_found_and_only_while_taken() {
        let source = Source::new();
        let (one, three) = (taken(&source, 1), taken(&source, 3));
        for (chunk, slots) in [(one, 1), (three, 3)] {
            let start = chunk.0.as_ptr().addr();
            assert_eq!(start % CHUNK_BYTES, 0);
            for addr in [start, start + 77, start + slots * CHUNK_BYTES - 1] {
                assert_eq!(source.find(addr), Some((chunk, 5)));
            }
            let before = source.find(start - 1);
            assert!(before != Some((chunk, 5)) && source.find(0).is_none());
        }
        source.give(three, 3);
        let inside = three.0.as_ptr().addr() + CHUNK_BYTES;
        assert_eq!(source.find(inside), None);
        // Beside so many that are taken, one is kept.
        let others: Vec<Chunk> = (0..16).map(|_| taken(&source, 1)).collect();
        source.give(one, 1);
        assert_eq!(source.counts().ready, 1);
        assert_eq!(
            source.find(one.0.as_ptr().addr()),
            None,
            "kept, and no arena's"
        );
        assert_eq!(source.find(usize::MAX), None);
        for other in others {
            source.give(other, 1);
        }
    }

    #[test]
    fn empty_chunks_stay_within_their_bound_and_breathing_costs_nothing() {
        let source = Source::new();
        let many = 64;
        let mut chunks: Vec<Chunk> = (0..many).map(|_| taken(&source, 1)).collect();
        // A sixteenth less one comes and goes, again and again.
        let breath = many / 16 - many / 64;
        let mut released = 0;
        for round in 0..10 {
            for chunk in chunks.drain(..breath) {
                source.give(chunk, 1);
            }
            chunks.extend((0..breath).map(|_| taken(&source, 1)));
            let now = source.counts().released_total;
            if round == 0 {
                released = now;
            }
            assert_eq!(
                now, released,
                "round {round} gave back what the next one took"
            );
        }
        while let Some(chunk) = chunks.pop() {
            source.give(chunk, 1);
            let counts = source.counts();
            assert!(counts.ready <= counts.taken / 16, "S1: {counts:?}");
        }
        source.shrink();
        let counts = source.counts();
        assert_eq!((counts.ready, counts.taken), (0, 0));
        assert!(counts.released_total >= many as u64);
    }

    #[test]
    fn a_kept_chunk_is_not_said_to_be_zero() {
        let source = Source::new();
        let (chunk, zero) = source.take(1, 5).expect("memory");
        assert!(zero);
        // SAFETY: the chunk is the test's.
        unsafe { chunk.0.as_ptr().write(1) };
        // Beside so many that are taken, one is kept.
        let others: Vec<Chunk> = (0..16).map(|_| taken(&source, 1)).collect();
        source.give(chunk, 1);
        assert_eq!(source.take(1, 6), Some((chunk, false)));
        assert_eq!(source.find(chunk.0.as_ptr().addr()), Some((chunk, 6)));
        source.give(chunk, 1);
        source.shrink();
        let (again, zero) = source.take(1, 5).expect("memory");
        // SAFETY: the chunk is the test's.
        assert!(zero && unsafe { again.0.as_ptr().read() } == 0);
        source.give(again, 1);
        for other in others {
            source.give(other, 1);
        }
    }
}
