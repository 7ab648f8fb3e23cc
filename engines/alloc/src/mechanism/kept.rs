//! A heap's own runs: large blocks that its thread freed, kept whole for the next of the same length, or of nearly the same.
//!
//! ```text
//!   bin of a length   [ slot │ slot │ slot │ slot ]      slot   [ pages │ offset of the descriptor │ age ]      0: empty
//!   owner  put ─► an empty slot of the bin ─► take, of so many pages         purger  age ─► older ─► too old: taken out
//! ```
//!
//! X1  A run is in one slot, or in the hands of the thread that took it out by an exchange: the owner or any other.
//! X2  Only the owner puts runs in, and a signal handler that interrupts it. The slots of a bin bound the runs of a length,
//!     [`PAGES_MAX`] the pages of all up to [`BINNED_MAX`], and [`RUN_PAGES_MAX`] those of longer ones.
//! X3  A put makes a run young: what is used again between two walks does not age.
//! X4  Lengths up to 16 pages have a bin each, longer ones share eight to a doubling, those above [`BINNED_MAX`] one: where a
//!     run would lie follows from its length. With one list of eight runs of any length, each free and malloc of `pattern netbuf` looked at most of them, and
//!     30 % found none that fitted.
//! X5  `put - gone` are the runs in slots: the owner's count, and that of all others, so the owner's needs no locked
//!     instruction. Amid a put or a take it is off by that run. A put has none at all: on a free the program's last stores
//!     into the block are under way, and a locked instruction waits for them (a fifth of the time of `pattern netbuf`).
//!
//! The models run this very file (`tests/models.rs`).
//!
//! Not here: which blocks are kept, and what becomes of a run that is taken out (`cache`).

use skinflint_base::sync::{AtomicU32, AtomicU64, Ordering};

/// The most runs of a length. With two, `pattern netbuf 200000` found a run for 74 % of its large blocks.
#[cfg(not(loom))]
pub const WAYS: usize = 4;
/// Bins up to [`RUN_PAGES_MAX`].
#[cfg(not(loom))]
const BINS: usize = binned(BINNED_MAX) + 1;
const _: () = assert!(BINS < 64);
// Few, for the models.
#[cfg(loom)]
pub const WAYS: usize = 2;
#[cfg(loom)]
const BINS: usize = 1;
/// The bin of longer runs, and another, which stays empty: a take looks at two.
const LONG: usize = BINS;
const SLOTS: usize = (BINS + 2) * WAYS;
/// Pages of the longest run whose bin is that of its length: 1 MiB.
pub const BINNED_MAX: u32 = 256;
/// Pages of the longest run, and the most of all that are longer than [`BINNED_MAX`]: 16 MiB.
pub const RUN_PAGES_MAX: u32 = 4_096;
/// The most pages of all other runs together: 2 MiB.
pub const PAGES_MAX: u32 = 512;
/// Number of walks that a run may wait. With two, what is freed at one tick is with the pool within half a second,
/// where it decays.
const WALKS_MAX: u64 = 1;
/// The bits of a slot that hold the age: descriptors begin at multiples of 64.
const AGE: u64 = 63;

/// The runs that a heap keeps (X1).
pub struct Kept {
    slots: [AtomicU64; SLOTS],
    /// What the owner put in, less what it took: pages (the upper half) and runs (X5).
    put: AtomicU64,
    /// What other threads took out.
    gone: AtomicU64,
    /// What was in slots when [`Kept::publish`] was last called.
    published: AtomicU64,
    /// Bins that may have runs: a bit each. A hint of the owner's, for [`Kept::make_room`].
    used: AtomicU64,
    /// Number of times that room was made.
    hand: AtomicU32,
}

fn pages_of(slot: u64) -> u32 {
    (slot >> 32) as u32
}

/// Returns a slot's run as counts have it: its pages, and one.
fn counted(slot: u64) -> u64 {
    u64::from(pages_of(slot)) << 32 | 1
}

fn offset_in(slot: u64) -> u32 {
    (slot & !AGE) as u32
}

/// Returns the bin of a length, which is from 1 to [`RUN_PAGES_MAX`] (X4).
#[inline(always)]
fn bin_of(pages: u32) -> usize {
    if pages > BINNED_MAX {
        return LONG;
    }
    binned(pages)
}

/// Returns the bin of a length up to [`BINNED_MAX`].
#[inline(always)]
const fn binned(pages: u32) -> usize {
    if cfg!(loom) {
        return 0;
    }
    let above = pages - 1;
    let shift = (above | 8).ilog2() - 3;
    (8 * shift + (above >> shift)) as usize
}

impl Kept {
    /// Creates an empty cache; so is one of zeroes.
    #[cfg(any(loom, test))]
    #[allow(dead_code)] // by the models
    pub fn new() -> Kept {
        Kept {
            slots: core::array::from_fn(|_| AtomicU64::new(0)),
            put: AtomicU64::new(0),
            gone: AtomicU64::new(0),
            published: AtomicU64::new(0),
            used: AtomicU64::new(0),
            hand: AtomicU32::new(0),
        }
    }

    /// Takes a run of so many pages, or of up to an eighth more, as the size classes of small blocks have it; returns its
    /// offset and its pages. Only the owner calls this. Cost: a load for each of eight slots at most, and an exchange if
    /// there is one.
    #[inline(always)]
    pub fn take(&self, pages: u32) -> Option<(u32, u32)> {
        let first = bin_of(pages) * WAYS;
        for slot in self.slots.get(first..first + 2 * WAYS)? {
            // ORDER: a look; the exchange orders.
            let value = slot.load(Ordering::Relaxed);
            let has = pages_of(value);
            // Shorter ones wrap around.
            if has.wrapping_sub(pages) <= pages / 8 && take_out(slot, value) {
                add(&self.put, counted(value).wrapping_neg());
                return Some((offset_in(value), has));
            }
        }
        None
    }

    /// Keeps a run of at most [`RUN_PAGES_MAX`] pages; `false`: there is no room, or was none for a moment. Only the owner
    /// calls this (X2).
    #[inline(always)]
    pub fn put(&self, offset: u32, pages: u32) -> bool {
        debug_assert!(u64::from(offset) & AGE == 0);
        if self.pages() + pages as i32 > PAGES_MAX as i32 && !self.has_room(pages) {
            return false;
        }
        let value = u64::from(pages) << 32 | u64::from(offset);
        let bin = bin_of(pages);
        for slot in self.slots_of(bin) {
            // ORDER: a look: others only take out.
            if slot.load(Ordering::Relaxed) == 0 && fill(slot, value) {
                add(&self.put, counted(value));
                let used = self.used.load(Ordering::Relaxed); // ORDER: see `make_room`
                self.used.store(used | 1 << bin, Ordering::Relaxed); // ORDER: as above
                return true;
            }
        }
        false
    }

    /// Reports whether there is room for so many pages more, where there may be long runs among those that are there.
    #[cold]
    #[inline(never)]
    fn has_room(&self, pages: u32) -> bool {
        // ORDER: a look.
        let slots = self.bin(RUN_PAGES_MAX).iter();
        let long: u32 = slots
            .map(|slot| pages_of(slot.load(Ordering::Relaxed)))
            .sum(); // ORDER: as above
        if pages > BINNED_MAX {
            long + pages <= RUN_PAGES_MAX
        } else {
            self.pages() - long as i32 + pages as i32 <= PAGES_MAX as i32
        }
    }

    /// Takes out a run, to make room for one of so many pages; returns its offset. `None`: there is none. Only the owner
    /// calls this. Cost: a look at the bin, or at the next one that has a run.
    #[cold]
    pub fn make_room(&self, pages: u32) -> Option<u32> {
        let hand = self.hand.load(Ordering::Relaxed).wrapping_add(1); // ORDER: the owner's own
        self.hand.store(hand, Ordering::Relaxed); // ORDER: as above
        let bin = self.bin(pages);
        // ORDER: a look, as in `take`.
        if pages > BINNED_MAX || bin.iter().all(|slot| slot.load(Ordering::Relaxed) != 0) {
            return self.take_one(bin, hand as usize);
        }
        for _ in 0..BINS {
            // ORDER: the owner's own, as above; a signal handler that comes between may cost a bit.
            let used = self.used.load(Ordering::Relaxed) & ((1 << LONG) - 1);
            let from = hand as usize % BINS;
            let above = used >> from;
            let next = if above != 0 {
                from as u32 + above.trailing_zeros()
            } else {
                used.trailing_zeros()
            };
            let first = next as usize * WAYS;
            let Some(bin) = self.slots.get(first..first + WAYS) else {
                break;
            };
            if let Some(offset) = self.take_one(bin, hand as usize) {
                return Some(offset);
            }
            self.used.store(used & !(1 << next), Ordering::Relaxed); // ORDER: as above
        }
        self.take_one(&self.slots[..LONG * WAYS], 0)
    }

    /// Takes out a run longer than [`BINNED_MAX`]; returns its offset. Only the owner calls this. Cost if there is none: a load.
    #[inline]
    pub fn take_long(&self) -> Option<u32> {
        // ORDER: the owner's own, as in `make_room`.
        let used = self.used.load(Ordering::Relaxed);
        if used >> LONG == 0 {
            return None;
        }
        let taken = self.take_one(self.slots_of(LONG), 0);
        if taken.is_none() {
            self.used.store(used & !(1 << LONG), Ordering::Relaxed); // ORDER: as above
        }
        taken
    }

    /// Takes out one of several runs, from the n-th on.
    fn take_one(&self, among: &[AtomicU64], n: usize) -> Option<u32> {
        for i in 0..among.len() {
            let slot = &among[(n + i) % among.len()];
            let value = slot.load(Ordering::Relaxed); // ORDER: a look, as in `take`
            if value != 0 && take_out(slot, value) {
                add(&self.put, counted(value).wrapping_neg());
                return Some(offset_in(value));
            }
        }
        None
    }

    #[inline(always)]
    fn bin(&self, pages: u32) -> &[AtomicU64] {
        self.slots_of(bin_of(pages))
    }

    #[inline(always)]
    fn slots_of(&self, bin: usize) -> &[AtomicU64] {
        self.slots.get(bin * WAYS..(bin + 1) * WAYS).unwrap_or(&[])
    }

    /// Returns the pages (the upper half) and the number of the runs in slots (X5).
    #[inline]
    pub fn held(&self) -> u64 {
        // ORDER: a bound.
        let gone = self.gone.load(Ordering::Relaxed);
        self.put.load(Ordering::Relaxed).wrapping_sub(gone) // ORDER: as above
    }

    /// Returns the pages in slots; below zero for a signal handler, if another thread took out what the put below it has not
    /// counted yet.
    #[inline]
    fn pages(&self) -> i32 {
        (self.held() >> 32) as i32
    }

    /// Returns what was in slots at the last [`Kept::publish`].
    #[inline]
    pub fn published(&self) -> u64 {
        self.published.load(Ordering::Relaxed) // ORDER: a statistic
    }

    /// Notes what is in slots; returns by how much that differs from what was noted before, as it wraps around. Any thread may
    /// call this.
    pub fn publish(&self) -> u64 {
        let now = self.held();
        // A store would bring back the page of a hollow heap.
        if now == self.published() {
            return 0;
        }
        // ORDER: a statistic; an exchange, so that each difference is told once.
        now.wrapping_sub(self.published.swap(now, Ordering::Relaxed))
    }

    /// Counts anew, and returns the pages (the upper half) and the number of the runs in the slots. No other thread is there,
    /// and none was left in the middle of a call here.
    pub fn recount(&self) -> u64 {
        // ORDER: one thread.
        let values = self.slots.iter().map(|slot| slot.load(Ordering::Relaxed));
        let full = values.filter(|&value| value != 0);
        let held: u64 = full.map(counted).sum();
        self.gone.store(0, Ordering::Relaxed); // ORDER: as above
        self.put.store(held, Ordering::Relaxed); // ORDER: as above
        held
    }

    /// Ages the runs by one walk; takes out those that are too old, or `every` one, calls `old` with each of them, and
    /// returns how many stay. Any thread may call this. A heap that has none costs two loads.
    pub fn age(&self, every: bool, mut old: impl FnMut(u32)) -> u32 {
        let mut stay = 0;
        if self.pages() == 0 {
            return stay;
        }
        for slot in &self.slots {
            // ORDER: a look; the exchanges order.
            let value = slot.load(Ordering::Relaxed);
            if value == 0 {
                continue;
            }
            if every || value & AGE >= WALKS_MAX {
                if take_out(slot, value) {
                    self.gone.fetch_add(counted(value), Ordering::Relaxed); // ORDER: a bound
                    old(offset_in(value));
                }
                continue;
            }
            let older = value + 1;
            // ORDER: the exchange goes on the release sequence of `put`; the owner may have taken the run meanwhile.
            let _ = slot.compare_exchange(value, older, Ordering::Relaxed, Ordering::Relaxed);
            stay += 1;
        }
        stay
    }
}

/// Adds to a count of the owner's.
#[inline]
#[cfg(any(loom, miri, not(target_arch = "x86_64")))]
fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed); // ORDER: a bound
}

/// See above. Without a lock: no other thread writes, and for a signal handler of this one the instruction is a whole.
#[inline]
#[cfg(not(any(loom, miri, not(target_arch = "x86_64"))))]
fn add(count: &AtomicU64, more: u64) {
    // ORDER: as Relaxed.
    // SAFETY: the owner's own count, which its thread alone writes (X5).
    unsafe {
        core::arch::asm!(
            "add qword ptr [{count}], {more}",
            count = in(reg) count.as_ptr(),
            more = in(reg) more,
            options(nostack),
        );
    }
}

/// Fills a slot, if it is still empty: a signal handler that frees in the middle of a put may have filled it (X2).
#[inline]
#[cfg(any(loom, miri, not(target_arch = "x86_64")))]
fn fill(slot: &AtomicU64, value: u64) -> bool {
    // ORDER: Release meets the Acquire of `take_out`: another thread that takes the run out comes after the program's
    // last use of it, and finds its descriptor as it was left. [model: a_kept_run_is_in_one_hand]
    slot.compare_exchange(0, value, Ordering::Release, Ordering::Relaxed)
        .is_ok()
}

/// See above. Without a lock: other threads only empty slots that are full, so nobody but a signal handler of this thread
/// comes between, and for that one the instruction is a whole.
#[inline]
#[cfg(not(any(loom, miri, not(target_arch = "x86_64"))))]
fn fill(slot: &AtomicU64, value: u64) -> bool {
    let found: u64;
    // ORDER: as Release: it is a store behind the stores before it.
    // SAFETY: the slot is ours to write, and empty slots are written by the owner's thread alone (X2).
    unsafe {
        core::arch::asm!(
            "cmpxchg qword ptr [{slot}], {value}",
            slot = in(reg) slot.as_ptr(),
            value = in(reg) value,
            inout("rax") 0u64 => found,
            options(nostack),
        );
    }
    found == 0
}

/// Makes a slot empty, if it holds this still.
#[inline]
fn take_out(slot: &AtomicU64, value: u64) -> bool {
    // ORDER: Acquire meets the Release of `put`. [model: a_kept_run_is_in_one_hand]
    slot.compare_exchange(value, 0, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn aged(kept: &Kept, every: bool) -> (u32, Vec<u32>) {
        let mut old = Vec::new();
        let stay = kept.age(every, |offset| old.push(offset));
        (stay, old)
    }

    #[test]
    fn bins_follow_each_other_and_none_is_wider_than_an_eighth() {
        assert_eq!(
            (bin_of(1), bin_of(16), bin_of(17), bin_of(18)),
            (0, 15, 16, 16)
        );
        let mut first = 1;
        for pages in 2..=BINNED_MAX {
            if bin_of(pages) != bin_of(pages - 1) {
                assert_eq!(bin_of(pages), bin_of(pages - 1) + 1);
                first = pages;
            }
            assert!(8 * (pages - first) <= first, "{pages}");
        }
        assert_eq!(bin_of(BINNED_MAX) + 1, BINS);
        assert_eq!(
            (bin_of(BINNED_MAX + 1), bin_of(RUN_PAGES_MAX)),
            (LONG, LONG)
        );
    }

    /// Long runs and others have room of their own, and make room among themselves.
    #[test]
    fn long_runs_take_no_room_from_others() {
        let kept = Kept::new();
        assert!(kept.put(64, 256) && kept.put(128, 2_000) && kept.put(192, 256));
        assert!(!kept.put(256, 1) && kept.put(256, 2_096) && !kept.put(320, 300));
        assert_eq!(kept.make_room(300), Some(256));
        assert!(kept.put(320, 300));
        let room = kept.make_room(1).expect("a run of 256 pages");
        assert!(room == 64 || room == 192, "{room}");
        assert!(kept.put(384, 1) && !kept.put(448, 256));
        assert_eq!(
            (kept.take(1_900), kept.take(290)),
            (Some((128, 2_000)), Some((320, 300)))
        );
        assert_eq!((kept.take(300), kept.make_room(300)), (None, None));
        assert_eq!(kept.take_long(), None);
        assert!(kept.put(128, 2_000));
        assert_eq!((kept.take_long(), kept.take_long()), (Some(128), None));
        assert!(kept.put(64, RUN_PAGES_MAX) && !kept.put(128, BINNED_MAX + 1));
        assert!(kept.put(128, BINNED_MAX - 1), "beside a page and 256");
    }

    #[test]
    fn runs_are_taken_by_their_length_and_no_more_are_kept_than_there_is_room_for() {
        let kept = Kept::new();
        assert!(kept.put(64, 10) && kept.put(128, 11) && kept.put(192, 10));
        assert_eq!(
            (kept.take(12), kept.take(11), kept.take(11)),
            (None, Some((128, 11)), None)
        );
        let both = [kept.take(10), kept.take(10)];
        assert!(
            both == [Some((64, 10)), Some((192, 10))] || both == [Some((192, 10)), Some((64, 10))]
        );
        assert_eq!(kept.take(10), None);
        // By pages, then by runs of a length.
        assert!(kept.put(64, 256) && kept.put(128, 255));
        assert!(!kept.put(192, 2) && kept.put(192, 1) && !kept.put(256, 1));
        let (stay, mut old) = aged(&kept, true);
        old.sort_unstable();
        assert_eq!((stay, old), (0, vec![64, 128, 192]));
        assert!((1..=WAYS as u32).all(|run| kept.put(run * 64, 1)));
        assert!(!kept.put(1_024, 1) && kept.put(1_088, 2));
        assert!(kept.make_room(1).is_some() && kept.put(1_024, 1));
        assert_eq!(kept.pages(), WAYS as i32 + 2);
    }

    /// Room is made among all runs where it is their pages that are too many, and among those of the length where it is
    /// their number; each run is the one to go once in a turn.
    #[test]
    fn room_is_made_where_it_is_wanted() {
        let kept = Kept::new();
        assert!(kept.put(64, 256) && kept.put(128, 200) && kept.put(192, 50));
        let mut gone: Vec<_> = (0..3).map(|_| kept.make_room(9)).collect();
        gone.sort_unstable();
        assert_eq!(gone, [Some(64), Some(128), Some(192)]);
        assert_eq!((kept.make_room(9), kept.pages()), (None, 0));
        assert!((1..=WAYS as u32).all(|run| kept.put(run * 64, 9)) && kept.put(1_024, 10));
        for run in 0..2 * WAYS as u32 {
            let old = kept.make_room(9).expect("one of nine pages");
            assert!(old != 1_024 && kept.put(old, 9), "{run}");
        }
        let mut gone: Vec<_> = (0..WAYS)
            .map(|_| kept.make_room(9).expect("a run"))
            .collect();
        gone.sort_unstable();
        gone.dedup();
        assert_eq!(gone.len(), WAYS, "each once");
    }

    #[test]
    fn a_run_that_is_an_eighth_too_long_serves_too() {
        let kept = Kept::new();
        assert!(kept.put(64, 19) && kept.put(128, 18) && kept.put(192, 17));
        let both = [kept.take(16), kept.take(16)].map(|run| run.expect("there are two").1);
        assert_eq!(both.iter().sum::<u32>(), 17 + 18);
        assert_eq!(kept.take(16), None, "three pages of nineteen");
        assert_eq!(kept.take(17), Some((64, 19)));
        assert!(kept.put(64, 8));
        assert_eq!(kept.take(7), None, "less than eight pages have no eighth");
    }

    /// What is in slots is what the counts say, whoever took the rest.
    #[test]
    fn pages_are_counted_whoever_takes_them() {
        let kept = Kept::new();
        assert!(kept.put(64, 10) && kept.put(128, 20) && kept.put(192, 30));
        assert_eq!(kept.take(20), Some((128, 20)));
        assert_eq!(aged(&kept, true).0, 0);
        assert_eq!((kept.pages(), kept.recount()), (0, 0));
        assert!(kept.put(64, 10) && kept.put(128, PAGES_MAX - 10 - 256) && kept.put(192, 256));
        assert_eq!(
            (kept.pages(), kept.recount()),
            (PAGES_MAX as i32, u64::from(PAGES_MAX) << 32 | 3)
        );
        assert_eq!(kept.pages(), PAGES_MAX as i32);
    }

    #[test]
    fn a_run_that_is_not_used_between_two_walks_goes() {
        let kept = Kept::new();
        assert!(kept.put(64, 10) && kept.put(128, 20));
        assert_eq!(aged(&kept, false), (2, vec![]));
        assert_eq!(kept.take(10), Some((64, 10)), "older, and the same");
        assert!(kept.put(64, 10));
        assert_eq!(aged(&kept, false), (1, vec![128]));
        assert_eq!(aged(&kept, false), (0, vec![64]));
        assert_eq!(aged(&kept, false), (0, vec![]));
    }
}
