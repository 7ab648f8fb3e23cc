//! High-water marks of the live heap: asks for a snapshot while the live heap is as large as it ever was.
//!
//! ```text
//!   live heap  ▁▂▃▄▅▆▇█▇▅▂▁            resident  ▁▂▃▄▅▆▇█████
//!                      ▲ here, before more than a sixty-fourth of it is released
//! ```
//!
//! A program that fills a heap and destroys it stays as large afterwards: a sampler that looks from time to time may
//! find the resident peak with an empty heap. The recorder sees each byte come and go.
//!
//! U1  Each thread adds what it gained or lost to [`LIVE`] in portions of [`PORTION`] bytes; [`HIGH`] is the greatest
//!     value seen. Usable sizes count, on both sides; if the allocator does not report them, nothing ever falls. The
//!     collector gets the sum with each portion, so that a snapshot says what lived (`counted` of the header).
//! U2  A snapshot is asked for if `LIVE` is about to fall by a [`FALL`]th below `HIGH`, and `HIGH` is by the same part
//!     above what it was at the last snapshot: so a program that grows a thousandfold is stopped at most about 450
//!     times.
//! U3  A height that is a [`GREAT`]th above the last one shown is always waited for: 142 times at most if a heap grows a
//!     thousandfold. Waits for lesser heights together take at most [`ALLOWANCE_NS`] and a [`SHARE`]th of the time
//!     since the process was linked, except for the last of them.
//! U4  Threads that release at the same time wait for the same snapshot: it shows what lived before any of them began,
//!     except for a portion of each.

use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use skinflint_base::ring::COUNTED_FROM;
use skinflint_base::sys;

use crate::state::ThreadState;
use crate::{process, sites, usable};

/// The bytes that a thread gathers before they are added to the sum of all threads (U1).
const PORTION: i64 = 16 << 10;
/// The part of the greatest heap whose release is a fall (U2).
const FALL: i64 = 64;
/// The least gain, in bytes, that counts as a new height.
const LEAST_GAIN: i64 = 128 << 10;
/// The part by which a height is great (U3): the peak that is shown has more than 95 % of the greatest, whatever waits cost.
const GREAT: i64 = 20;
/// The time that waits may take in any case, in nanoseconds (U3).
const ALLOWANCE_NS: u64 = 10_000_000;
/// The part of the process's time that waits may take (U3).
const SHARE: u64 = 64;

static LIVE: AtomicI64 = AtomicI64::new(0);
static HIGH: AtomicI64 = AtomicI64::new(0);
/// The value of `HIGH` when a snapshot was asked for last.
static SHOWN: AtomicI64 = AtomicI64::new(0);
static BEGUN_NS: AtomicU64 = AtomicU64::new(0);
static WAITED_NS: AtomicU64 = AtomicU64::new(0);
/// Whether a thread is asking: one asks at a time.
static IS_ASKING: AtomicBool = AtomicBool::new(false);

/// Begins anew after the process was linked: heights that its parent showed do not count.
pub fn begin() {
    // ORDER: Relaxed throughout; there is one thread.
    SHOWN.store(0, Ordering::Relaxed);
    BEGUN_NS.store(sys::monotonic_ns(), Ordering::Relaxed);
    WAITED_NS.store(0, Ordering::Relaxed);
    IS_ASKING.store(false, Ordering::Relaxed); // ORDER: as above.
    publish(LIVE.load(Ordering::Relaxed)); // ORDER: as above.
}

/// Counts a block that was acquired. Cost: an addition and a comparison.
///
/// # Safety
/// Between `enter` and `leave`.
#[inline(always)]
pub unsafe fn gained(state: *mut ThreadState, bytes: u64) {
    // SAFETY: state.H1.
    unsafe {
        (*state).gained += bytes as i64;
        if (*state).gained >= PORTION {
            rose(state);
        }
    }
}

/// Counts a block that is about to be released, for good or to be acquired anew by `realloc`: then only the whole
/// step counts.
///
/// # Safety
/// As for `gained`.
#[inline(always)]
pub unsafe fn loses(state: *mut ThreadState, bytes: u64, for_good: bool) {
    // SAFETY: state.H1.
    unsafe {
        (*state).gained -= bytes as i64;
        if for_good && (*state).gained <= -PORTION {
            falls(state);
        }
    }
}

/// Adds the thread's portion to the sum of all threads. Returns what lives then, in bytes.
///
/// # Safety
/// As for `gained`.
unsafe fn settle(state: *mut ThreadState) -> i64 {
    // SAFETY: state.H1.
    unsafe {
        let portion = core::mem::take(&mut (*state).gained);
        // ORDER: Relaxed; sums that steer when to look, and guard no data.
        let live = LIVE.fetch_add(portion, Ordering::Relaxed) + portion;
        publish(live);
        live
    }
}

/// Shows the collector what lives, if releases are counted at all.
fn publish(live: i64) {
    if let Some(header) = process::header()
        && usable::tells_sizes()
    {
        // ORDER: Relaxed; two threads may store in the wrong order, and their values are a portion apart.
        header
            .counted
            .store(COUNTED_FROM.wrapping_add_signed(live), Ordering::Relaxed);
        may_not_be_counted();
    }
}

/// Takes the sum back that the collector sees, if releases are not counted any more: an allocator that does not tell sizes was
/// hooked since. A thread that is just showing its sum looks once more itself.
pub fn may_not_be_counted() {
    if let Some(header) = process::header()
        && !sites::tells_sizes()
    {
        header.counted.store(0, Ordering::Relaxed); // ORDER: Relaxed; as in `publish`.
    }
}

#[cold]
#[inline(never)]
unsafe fn rose(state: *mut ThreadState) {
    // SAFETY: as the caller promises.
    let live = unsafe { settle(state) };
    // ORDER: Relaxed; as in `settle`.
    if live > HIGH.load(Ordering::Relaxed) {
        HIGH.fetch_max(live, Ordering::Relaxed);
    }
}

#[cold]
#[inline(never)]
unsafe fn falls(state: *mut ThreadState) {
    // SAFETY: as the caller promises.
    let live = unsafe { settle(state) };
    // ORDER: Relaxed for both; as in `settle`.
    let high = HIGH.load(Ordering::Relaxed);
    let shown = SHOWN.load(Ordering::Relaxed);
    let has_fallen = high - live > high / FALL;
    if has_fallen && high - shown > (shown / FALL).max(LEAST_GAIN) {
        // SAFETY: as the caller promises.
        unsafe { show(state, high) };
    }
}

/// Asks for a snapshot, if there is time left for it (U3).
///
/// # Safety
/// As for `gained`.
unsafe fn show(state: *mut ThreadState, high: i64) {
    let here = &raw const high as u64;
    // SAFETY: state.H1.
    let (low, end) = unsafe { (*state).stack_bounds };
    // A signal's stack, or a fibre's, may have no room for more than a release needs.
    if !(low..end).contains(&here) {
        return;
    }
    // ORDER: Relaxed; a flag that guards the figures below, which only steer when to look.
    if IS_ASKING.swap(true, Ordering::Relaxed) {
        return process::same_high_water_snapshot();
    }
    let before = sys::monotonic_ns();
    // ORDER: Relaxed throughout; as above.
    let age_ns = before.saturating_sub(BEGUN_NS.load(Ordering::Relaxed));
    let waited_ns = WAITED_NS.load(Ordering::Relaxed);
    let shown = SHOWN.load(Ordering::Relaxed); // ORDER: as above.
    if high - shown > shown / GREAT || waited_ns <= ALLOWANCE_NS + age_ns / SHARE {
        process::high_water_snapshot();
        let took_ns = sys::monotonic_ns() - before;
        WAITED_NS.store(waited_ns + took_ns, Ordering::Relaxed); // ORDER: as above.
        SHOWN.store(high, Ordering::Relaxed); // ORDER: as above.
    }
    IS_ASKING.store(false, Ordering::Relaxed); // ORDER: as above.
}
