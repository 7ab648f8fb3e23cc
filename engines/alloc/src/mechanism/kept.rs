//! A heap's own runs: large blocks that its thread freed, kept whole for the next of the same length, or of nearly the same.
//!
//! ```text
//!   slot   [ pages │ offset of the descriptor │ age ]       0: empty
//!   owner  put ─► empty slot ─► take, of so many pages               purger  age ─► older ─► too old: taken out
//! ```
//!
//! X1  A run is in one slot, or in the hands of the thread that took it out by an exchange: the owner or any other.
//! X2  Only the owner puts runs in, and a signal handler that interrupts it. The slots bound the number of runs, and
//!     [`PAGES_MAX`] their pages.
//! X3  A put makes a run young: what is used again between two walks does not age.
//!
//! The models run this very file (`tests/models.rs`).
//!
//! Not here: which blocks are kept, and what becomes of a run that is taken out (`cache`).

use skinflint_base::sync::{AtomicU64, Ordering};

/// The most runs that a heap keeps.
const SLOTS: usize = 8;
/// Pages of the longest run: 1 MiB.
pub const RUN_PAGES_MAX: u32 = 256;
/// The most pages of all runs together: 2 MiB.
pub const PAGES_MAX: u32 = 512;
/// Number of walks that a run may wait. With two, what is freed at one tick is with the pool within half a second,
/// where it decays.
const WALKS_MAX: u64 = 1;
/// The bits of a slot that hold the age: descriptors begin at multiples of 64.
const AGE: u64 = 63;

/// The runs that a heap keeps (X1).
pub struct Kept([AtomicU64; SLOTS]);

fn pages_of(slot: u64) -> u32 {
    (slot >> 32) as u32
}

fn offset_in(slot: u64) -> u32 {
    (slot & !AGE) as u32
}

impl Kept {
    /// Creates an empty cache; so is one of zeroes.
    #[cfg(any(loom, test))]
    #[allow(dead_code)] // by the models
    pub fn new() -> Kept {
        Kept(core::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Takes the shortest run of so many pages, or of up to an eighth more, as the size classes of small blocks have it;
    /// returns its offset and its pages. Only the owner calls this. Cost: a load for each slot, and an exchange if there is
    /// one.
    #[inline]
    pub fn take(&self, pages: u32) -> Option<(u32, u32)> {
        let mut least = pages / 8 + 1;
        let mut best = None;
        for slot in &self.0 {
            // ORDER: a look; the exchange orders.
            let value = slot.load(Ordering::Relaxed);
            // Shorter ones wrap around.
            let more = pages_of(value).wrapping_sub(pages);
            if more < least {
                least = more;
                best = Some((slot, value));
                if more == 0 {
                    break;
                }
            }
        }
        let (slot, value) = best?;
        take_out(slot, value).then_some((offset_in(value), pages + least))
    }

    /// Keeps a run; `false`: there is no room, or was none for a moment. Only the owner calls this (X2).
    #[inline]
    pub fn put(&self, offset: u32, pages: u32) -> bool {
        let mut held = pages;
        let mut empty = None;
        for slot in &self.0 {
            // ORDER: a look: others only take out.
            match slot.load(Ordering::Relaxed) {
                0 => empty = Some(slot),
                value => held += pages_of(value),
            }
        }
        let Some(slot) = empty.filter(|_| held <= PAGES_MAX) else {
            return false;
        };
        debug_assert!(u64::from(offset) & AGE == 0);
        let value = u64::from(pages) << 32 | u64::from(offset);
        fill(slot, value)
    }

    /// Takes out the oldest run, to make room; returns its offset.
    pub fn take_oldest(&self) -> Option<u32> {
        for _ in 0..SLOTS {
            let (mut oldest, mut found) = (0, None);
            for slot in &self.0 {
                // ORDER: a look, as in `take`.
                let value = slot.load(Ordering::Relaxed);
                if value != 0 && value & AGE >= oldest {
                    oldest = value & AGE;
                    found = Some((slot, value));
                }
            }
            let (slot, value) = found?;
            if take_out(slot, value) {
                return Some(offset_in(value));
            }
        }
        None
    }

    /// Returns the pages (the upper half) and the number of the runs in the slots, which others may take out meanwhile.
    pub fn held(&self) -> u64 {
        // ORDER: a look.
        let values = self.0.iter().map(|slot| slot.load(Ordering::Relaxed));
        let full = values.filter(|&value| value != 0);
        full.map(|value| u64::from(pages_of(value)) << 32 | 1).sum()
    }

    /// Ages the runs by one walk; takes out those that are too old, or `every` one, calls `old` with each of them, and
    /// returns how many stay. Any thread may call this.
    pub fn age(&self, every: bool, mut old: impl FnMut(u32)) -> u32 {
        let mut stay = 0;
        for slot in &self.0 {
            // ORDER: a look; the exchanges order.
            let value = slot.load(Ordering::Relaxed);
            if value == 0 {
                continue;
            }
            if every || value & AGE >= WALKS_MAX {
                if take_out(slot, value) {
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
        // By pages, then by runs.
        assert!(kept.put(64, 256) && kept.put(128, 255));
        assert!(!kept.put(192, 2) && kept.put(192, 1) && !kept.put(256, 1));
        assert_eq!(aged(&kept, true), (0, vec![192, 128, 64]));
        assert!((1..=SLOTS as u32).all(|run| kept.put(run * 64, 1)));
        assert!(!kept.put(1_024, 1));
        assert!(kept.take_oldest().is_some() && kept.put(1_024, 1));
    }

    #[test]
    fn a_run_that_is_an_eighth_too_long_serves_too_and_the_shortest_does() {
        let kept = Kept::new();
        assert!(kept.put(64, 19) && kept.put(128, 18) && kept.put(192, 17));
        assert_eq!(kept.take(16), Some((192, 17)));
        assert_eq!(kept.take(16), Some((128, 18)));
        assert_eq!(kept.take(16), None, "three pages of nineteen");
        assert_eq!(kept.take(17), Some((64, 19)));
        assert!(kept.put(64, 8));
        assert_eq!(kept.take(7), None, "less than eight pages have no eighth");
    }

    #[test]
    fn a_run_that_is_not_used_between_two_walks_goes() {
        let kept = Kept::new();
        assert!(kept.put(64, 10) && kept.put(128, 20));
        assert_eq!(aged(&kept, false), (2, vec![]));
        assert_eq!(kept.take(10), Some((64, 10)), "older, and the same");
        assert!(kept.put(64, 10));
        assert_eq!(kept.take_oldest(), Some(128));
        assert!(kept.put(128, 20));
        assert_eq!(aged(&kept, false), (2, vec![]));
        assert!(kept.take(10) == Some((64, 10)) && kept.put(64, 10));
        assert_eq!(aged(&kept, false), (1, vec![128]));
        assert_eq!(aged(&kept, false), (0, vec![64]));
        assert_eq!(aged(&kept, false), (0, vec![]));
    }
}
