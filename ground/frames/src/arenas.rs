//! Arenas of CPython's object allocator, by address: which blocks are its own, and how large they are.
//!
//! ```text
//!   address ─► leaf (1 GiB) ─► granule (256 KiB) ─► [ low: an arena ends in it | … | high: an arena begins in it ]
//!   arena  [ pool | pool | … ]   pool: 16 KiB in arenas of 1 MiB, else 4 KiB; a header, which has the size class, and blocks
//! ```
//!
//! A1  A granule has at most one arena's end and one arena's begin, since no arena is smaller than one. From the same
//!     function the runtime gets pieces of its stack of frames, of other sizes: these are no arenas.
//! A2  An address of an arena is in the table from before its first block is handed out until after its last one was
//!     taken back: then reading its pool's header is no fault.
//! A3  Whoever adds or removes an arena has the lock of the interpreter that it belongs to. Two interpreters with locks of
//!     their own write other words, and whoever asks about a block of its own finds what its own thread's past wrote.
//!
//! Cost of a question: two loads that depend on each other. Not here: calls of the allocator (the recorder).

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// The bytes of a granule: the smallest arena of all versions.
const GRANULE: u64 = 256 << 10;
const GRANULES: usize = 4096;
const LEAF: u64 = GRANULE * GRANULES as u64;
/// As many leaves as an address space of 47 bits has.
const LEAVES: usize = 1 << 17;

/// Arenas from this size on have large pools.
const LARGE_ARENA: u64 = 1 << 20;
const LARGE_POOL: u64 = 16 << 10;
const SMALL_POOL: u64 = 4 << 10;
/// From a pool to the number of its size class.
const POOL_CLASS: u64 = 36;
/// The step between size classes.
const CLASS_STEP: u64 = 16;

/// The largest block that the allocator hands out from an arena; a larger one is `malloc`'s.
pub const MOST_BYTES: usize = 512;

/// A granule: how many of its first bytes, and how many of its last, are an arena's.
struct Granule {
    low: AtomicU32,
    high: AtomicU32,
}

/// The granules of 1 GiB; all-zero memory is one without arenas.
pub struct Leaf([Granule; GRANULES]);

/// The arenas of a process.
pub struct Arenas {
    leaves: [AtomicPtr<Leaf>; LEAVES],
    pool: AtomicU32,
}

impl Default for Arenas {
    fn default() -> Arenas {
        Arenas::new()
    }
}

impl Arenas {
    /// Creates a table without arenas: zeroed memory, of which little is ever touched.
    pub const fn new() -> Arenas {
        Arenas {
            leaves: [const { AtomicPtr::new(core::ptr::null_mut()) }; LEAVES],
            pool: AtomicU32::new(0),
        }
    }

    /// Reports whether an arena has this size: one of two, and of those the one that arenas before it had.
    pub fn may_be(&self, bytes: u64) -> bool {
        let pool = match bytes {
            LARGE_ARENA => LARGE_POOL as u32,
            GRANULE => SMALL_POOL as u32,
            _ => return false,
        };
        // ORDER: Relaxed; a constant of the process, and A3.
        matches!(self.pool.load(Ordering::Relaxed), known if known == 0 || known == pool)
    }

    /// Adds an arena that was mapped just now. `map` returns zeroed memory for a leaf, or null. Returns whether its blocks
    /// will be told from others.
    pub fn add(&self, start: u64, bytes: u64, map: impl Fn() -> *mut Leaf) -> bool {
        if !self.may_be(bytes) || start.checked_add(bytes).is_none() {
            return false;
        }
        let pool = match bytes {
            LARGE_ARENA => LARGE_POOL as u32,
            _ => SMALL_POOL as u32,
        };
        let last = start + bytes - 1;
        // Both leaves first: an arena is in the table as a whole, or not at all.
        if self.make_leaf(start, &map).is_none() || self.make_leaf(last, &map).is_none() {
            return false;
        }
        self.pool.store(pool, Ordering::Relaxed); // ORDER: as above.
        self.set(start, bytes, true);
        true
    }

    /// Removes an arena that is about to be unmapped.
    pub fn remove(&self, start: u64, bytes: u64) {
        // Another piece, beside an arena in one granule, must not take the arena with it.
        if self.holds(start) {
            self.set(start, bytes, false);
        }
    }

    /// Returns whether a block is of an arena. Cost: two loads that depend on each other.
    #[inline(always)]
    pub fn holds(&self, block: u64) -> bool {
        let Some(granule) = self.granule(block) else {
            return false;
        };
        let at = block % GRANULE;
        // ORDER: Relaxed for both; A3.
        let low = u64::from(granule.low.load(Ordering::Relaxed));
        let high = u64::from(granule.high.load(Ordering::Relaxed));
        at < low || at >= GRANULE - high
    }

    /// Returns the usable bytes of a block of an arena, as its pool says; `None` if the pool says nothing that can be.
    ///
    /// # Safety
    /// [`Arenas::holds`] the block, which lives.
    #[inline(always)]
    pub unsafe fn usable(&self, block: u64) -> Option<u64> {
        // ORDER: Relaxed; stored before the first arena's first block.
        let pool = u64::from(self.pool.load(Ordering::Relaxed));
        let header = block & !pool.wrapping_sub(1);
        if !self.holds(header) {
            return None;
        }
        // SAFETY: the address is of an arena, which is mapped (A2), and so is the header: pools do not reach beyond.
        let class = u64::from(unsafe { ((header + POOL_CLASS) as *const u32).read() });
        (class < MOST_BYTES as u64 / CLASS_STEP).then_some((class + 1) * CLASS_STEP)
    }

    #[inline(always)]
    fn granule(&self, at: u64) -> Option<&Granule> {
        let leaf = self.leaves.get((at / LEAF) as usize)?;
        // ORDER: Acquire; pairs with the Release in `make_leaf`: the leaf's memory is zeroed.
        let leaf = leaf.load(Ordering::Acquire);
        // SAFETY: null, or a leaf that is never unmapped.
        let leaf = unsafe { leaf.as_ref() }?;
        leaf.0.get((at % LEAF / GRANULE) as usize)
    }

    fn make_leaf(&self, at: u64, map: impl Fn() -> *mut Leaf) -> Option<()> {
        let slot = self.leaves.get((at / LEAF) as usize)?;
        // ORDER: Acquire, as in `granule`.
        if slot.load(Ordering::Acquire).is_null() {
            let leaf = map();
            if leaf.is_null() {
                return None;
            }
            // Of two interpreters that come here at once, one has mapped a leaf in vain.
            // ORDER: Release publishes the zeroed leaf to `granule`; Relaxed, as nothing is read on failure.
            let none = core::ptr::null_mut();
            let _ = slot.compare_exchange(none, leaf, Ordering::Release, Ordering::Relaxed);
        }
        Some(())
    }

    fn set(&self, start: u64, bytes: u64, is_there: bool) {
        let end = start.saturating_add(bytes);
        let mut at = start;
        while at < end {
            let from = at / GRANULE * GRANULE;
            let to = from + GRANULE;
            let Some(granule) = self.granule(at) else {
                return;
            };
            let (word, bytes) = match at > from {
                true => (&granule.high, to - at),
                false => (&granule.low, end.min(to) - from),
            };
            let bytes = if is_there { bytes as u32 } else { 0 };
            word.store(bytes, Ordering::Relaxed); // ORDER: Relaxed; A3.
            at = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_base::random::Random;

    fn leaf() -> *mut Leaf {
        // SAFETY: all-zero memory is a leaf.
        Box::into_raw(unsafe { Box::<Leaf>::new_zeroed().assume_init() })
    }

    fn table() -> Box<Arenas> {
        // SAFETY: all-zero memory is a table without arenas; on the stack it would be too large.
        unsafe { Box::<Arenas>::new_zeroed().assume_init() }
    }

    /// Against a list: arenas at any page, beside each other, across leaves; every edge is asked about.
    #[test]
    fn arenas_behave_as_a_list() {
        for (seed, bytes) in [(1, 1 << 20), (2, 256 << 10), (3, 1 << 20)] {
            let mut random = Random::new(seed);
            let arenas = table();
            let mut list: Vec<u64> = Vec::new();
            // Around the border of two leaves.
            let base = 0x7f00_0000_0000 + LEAF - 8 * (1 << 20);
            for step in 0..3000 {
                if !list.is_empty() && random.below(2) == 0 {
                    let at = list.swap_remove(random.below(list.len() as u64) as usize);
                    arenas.remove(at, bytes);
                } else {
                    let at = base + random.below(16 << 8) * 4096;
                    if list
                        .iter()
                        .all(|one| at + bytes <= *one || one + bytes <= at)
                    {
                        assert!(arenas.add(at, bytes, leaf));
                        list.push(at);
                    }
                }
                let is_in = |at: u64| list.iter().any(|one| (*one..one + bytes).contains(&at));
                let edges = list.iter().flat_map(|one| [*one, one + bytes]);
                let near = edges.flat_map(|edge| [edge - 1, edge, edge + 1]);
                let some = base + random.below(20 << 20);
                for at in near.chain([some, base - 1, base + (30 << 20)]) {
                    assert_eq!(
                        arenas.holds(at),
                        is_in(at),
                        "seed {seed} step {step} {at:x}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_an_arena_is_refused_as_a_whole() {
        let arenas = table();
        let none = || core::ptr::null_mut();
        assert!(!arenas.add(0x7f00_0000_0000, 1 << 20, none));
        assert!(!arenas.add(0x7f00_0000_0000, 64 << 10, leaf));
        assert!(!arenas.add(u64::MAX - 4096, 1 << 20, leaf));
        assert!(!arenas.add(1 << 47, 1 << 20, leaf));
        // The second leaf cannot be had.
        let count = core::cell::Cell::new(0);
        let once = || {
            count.set(count.get() + 1);
            if count.get() == 1 { leaf() } else { none() }
        };
        let across = 0x7e00_0000_0000 + LEAF - 4096;
        assert!(!arenas.add(across, 1 << 20, once));
        assert!(!arenas.holds(across));
        // One process has arenas of one size.
        assert!(arenas.add(0x7f00_0000_0000, 1 << 20, leaf));
        assert!(!arenas.add(0x7f10_0000_0000, 256 << 10, leaf));
        // A piece of the stack of frames beside the arena comes and goes.
        assert!(!arenas.may_be(16 << 10) && !arenas.may_be(256 << 10) && arenas.may_be(1 << 20));
        arenas.remove(0x7f00_0010_0000, 16 << 10);
        arenas.remove(0x7eff_ffff_c000, 16 << 10);
        assert!(arenas.holds(0x7f00_0000_0000) && arenas.holds(0x7f00_000f_ffff));
        assert!(!arenas.holds(u64::MAX) && !arenas.holds(0) && !arenas.holds(1 << 47));
    }

    #[test]
    fn the_pool_of_a_block_says_its_size() {
        for (bytes, pool) in [(1u64 << 20, 16u64 << 10), (256 << 10, 4 << 10)] {
            let mut memory = vec![0u64; (bytes as usize + 4096) / 8];
            // At a page: the first pool begins behind it.
            let arena = (memory.as_mut_ptr() as u64).next_multiple_of(4096);
            let first = arena.next_multiple_of(pool);
            let arenas = table();
            assert!(arenas.add(arena, bytes, leaf));
            for (class, usable) in [
                (0u32, Some(16)),
                (31, Some(512)),
                (32, None),
                (0xffff_ffff, None),
            ] {
                // SAFETY: inside of `memory`.
                unsafe { ((first + POOL_CLASS) as *mut u32).write(class) };
                for block in [first + 48, first + pool - 16] {
                    // SAFETY: the block is of the arena.
                    assert_eq!(unsafe { arenas.usable(block) }, usable, "{class}");
                }
            }
            if first > arena {
                // No pool is there, and what is before the arena is not touched.
                // SAFETY: as above.
                assert_eq!(unsafe { arenas.usable(first - 16) }, None);
            }
        }
    }
}
