//! Requested bytes: exactly, over all time; and by samples, for live blocks.
//!
//! ```text
//!   malloc(n): budget -= n ──below 0──► take: draws where the next sample lies ──► block: a block among
//!                                                                                 the sampled ones
//!   TABLE  [ address │ requested ] … ──► live ones ──► slop = Σ slop_i / p_i  ± √Σ slop_i² (1 - p_i) / p_i²
//! ```
//!
//! The usable bytes of live blocks are known exactly, from the bits. So only their slop is estimated, not their
//! requested bytes: the error is that of a few per cent of the whole.
//!
//! Q1  Samples are points on the line of requested bytes, at exponentially distributed distances with mean
//!     [`interval`]. So a block of n bytes is a sample with p = 1 - exp(-n / interval), independently of
//!     all others and of any pattern in the requests, and what is divided by p is right on average
//!     (Horvitz and Thompson). The formula for its variance is exact, too.
//! Q2  Sampled blocks come from one heap of their own, used under its lock like a tenant's. So every
//!     block there has been through [`block`], and an entry of TABLE whose block was freed can never be
//!     taken for the next block at that address: that one has a younger entry.
//! Q3  `requested - budget` is what was requested from a heap, to the byte: a request moves `budget`, and code that
//!     moves it by anything else moves `requested` by the same amount. Not counted: what a `realloc` in place adds.
//!     Small blocks with an alignment above 16 are counted, but not sampled: their slop is unknown, and it counts as
//!     requested.
//! Q4  TABLE is full at most until the next sample: then dead entries are removed, and if that is not enough the
//!     interval doubles and each entry stays with the probability that makes Q1 true for the new one.
//! Q5  TABLE is under the lock of the heap of samples.
//! Q6  A profile draws points of its own kind: at its rate, where that is shorter. The heap keeps the distance by which its
//!     next point was drawn, so whatever changes meanwhile, the block that it meets has a known p; and each of the two takes
//!     of those blocks as many, by chance, as its own p says. So the estimate is the same with and without a profile.
//!
//! Large blocks have their requested size in their descriptor; tenants' blocks are not sampled.
//!
//! Not here: the totals (`stats`), the profile (`profile`).

use skinflint_base::random::{self, ln};
use skinflint_base::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::heaps::requests::set_budget;
use crate::heaps::{pool, spare, tls};
use crate::mechanism::guarded::Guarded;
use crate::mechanism::heap::{Heap, usage};
use crate::mechanism::map::descriptor;
use crate::mechanism::range::{at, base, limit, offset_of};
use crate::mechanism::span::{KIND_SAMPLED, Span, is_small};
use crate::mechanism::{class, publish};

/// Requested bytes between two samples of a heap, on average. Sampled blocks lie in spans of their own, so a program
/// that has just begun pays a page for nearly each: at 512 KiB about half a per cent of the peak of an idle python, at
/// this distance within the noise; the error of the estimate doubles, to less than 1 % of 100 MB.
const SAMPLE_BYTES: i64 = 2 * 1024 * 1024;

/// Number of entries: 64 KiB of the library's zero pages, of which the first is touched at the first sample.
const ENTRIES: usize = 4_096;
/// Entries that a clean-up must leave free: else the next clean-up would be due after a few samples.
const ROOM: usize = ENTRIES / 4;
/// The most samples of one small request, of which even the second is rare.
const POINTS_MAX: u32 = 64;

#[derive(Clone, Copy)]
struct Entry {
    address: usize,
    requested: u32,
    /// Order of the samples: a later one has a higher number.
    number: u32,
}

struct Table {
    entries: [Entry; ENTRIES],
    used: usize,
    number: u32,
}

/// Reached only under the lock of the heap of samples (Q5).
static TABLE: Guarded<Table> = Guarded::new(Table {
    entries: [Entry {
        address: 0,
        requested: 0,
        number: 0,
    }; ENTRIES],
    used: 0,
    number: 0,
});
/// Offset of the heap of samples; 0 before the first.
static SAMPLES: AtomicUsize = AtomicUsize::new(0);
/// The interval is [`SAMPLE_BYTES`] doubled this many times. Only grows.
static SHIFT: AtomicU32 = AtomicU32::new(0);
/// Bytes between two points of the profile; 0: there is none (Q6).
static PROFILE_RATE: AtomicU32 = AtomicU32::new(0);
/// The mark of a heap whose next point was drawn at the profile's rate, which are the other bits.
const BY_PROFILE: u32 = 1 << 31;
/// In tests, the seed of the next heap's numbers, and a divisor of the interval.
static SEED: AtomicU64 = AtomicU64::new(0);
static DIVISOR: AtomicU32 = AtomicU32::new(1);

/// An estimate from the samples: the live small blocks of threads.
#[derive(Clone, Copy, Default, Debug)]
pub struct Estimate {
    /// Number of live samples.
    pub samples: u32,
    /// Bytes between two samples, on average.
    pub interval_bytes: u64,
    /// Slop of all live blocks.
    pub slop_bytes: u64,
    /// Standard error of the slop.
    pub error_bytes: u64,
}

/// Returns the bytes between two samples, on average.
pub fn interval() -> u64 {
    // ORDER: a number by itself.
    interval_at(SHIFT.load(Ordering::Relaxed))
}

fn interval_at(shift: u32) -> u64 {
    // ORDER: set before the first block, in tests only.
    let first = SAMPLE_BYTES as u64 / u64::from(DIVISOR.load(Ordering::Relaxed));
    first << shift.min(32)
}

/// Sets, for tests of the estimate, other random numbers for this thread from now on, and a shorter interval for all.
#[doc(hidden)]
pub fn reseed(seed: u64, divisor: u32) {
    DIVISOR.store(divisor.max(1), Ordering::Relaxed); // ORDER: tests say so before they allocate
    SEED.store(seed, Ordering::Relaxed); // ORDER: as above
    // SAFETY: a thread's heap stays (pool.G4).
    if let Some(heap) = unsafe { tls::get().as_ref() } {
        // ORDER: this thread's own (heap.H1). The interval that was drawn ends here.
        let budget = heap.budget.swap(0, Ordering::Relaxed);
        heap.requested
            .fetch_add(budget.wrapping_neg() as u64, Ordering::Relaxed); // ORDER: as above (Q3)
        heap.random.store(0, Ordering::Relaxed); // ORDER: as above
    }
}

/// Handles a budget that a small request has used up. `true`: the request is a sample (Q1).
#[unsafe(link_section = ".text.skinflint_first")]
pub fn take(heap: &Heap) -> bool {
    let mut due = false;
    // ORDER: this thread's own, throughout (heap.H1).
    let mut left = heap.budget.load(Ordering::Relaxed);
    let mut begun = heap.random.load(Ordering::Relaxed) != 0; // ORDER: as above
    for _ in 0..POINTS_MAX {
        if left >= 0 {
            break;
        }
        // The first budget is 0: it only shows that nothing was drawn yet.
        due |= begun && counts(heap);
        begun = true;
        left += draw(heap);
    }
    set_budget(heap, left.max(0));
    due
}

/// Handles a budget that a request of `n` bytes has used up; returns its block if it is a sample.
#[cfg(not(feature = "profile"))]
#[unsafe(link_section = ".text.skinflint_first")]
pub fn serve(heap: &Heap, n: usize) -> Option<*mut u8> {
    if take(heap) { block(n) } else { None }
}

/// Sets the rate of the profile, 0 for none; the next points of threads are drawn by it when their present ones are met (Q6).
pub(super) fn set_profile_rate(rate: u32) {
    debug_assert!(rate & BY_PROFILE == 0);
    PROFILE_RATE.store(rate, Ordering::Relaxed); // ORDER: a number by itself (Q6)
}

/// Returns the rate of the profile; 0: there is none.
pub(super) fn profile_rate() -> u32 {
    PROFILE_RATE.load(Ordering::Relaxed) // ORDER: a number by itself
}

/// Makes the heap of samples one whose frees are asked about, from its first span on.
pub(super) fn watch_frees() {
    let offset = publish::had(&SAMPLES) as u32;
    if offset == 0 {
        return;
    }
    // SAFETY: heaps stay (pool.G4).
    let heap = unsafe { &*at::<Heap>(offset) };
    if heap.lock.lock(tls::who()) {
        // SAFETY: the lock is held.
        unsafe { heap.each_span(|span| span.kind.store(KIND_SAMPLED, Ordering::Relaxed)) }; // ORDER: under the lock
        heap.lock.unlock();
    }
}

/// Returns the interval that the next point of a heap stands for: that by which it was drawn or will be, or the present one,
/// for which [`counts`] thins it.
pub(super) fn drawn_by(heap: &Heap) -> u64 {
    // ORDER: this thread's own; a number by itself.
    if heap.random.load(Ordering::Relaxed) == 0 {
        return to_draw().1;
    }
    let drawn = heap.sample_shift.load(Ordering::Relaxed); // ORDER: as above
    match drawn & BY_PROFILE {
        0 => interval_at(drawn.max(SHIFT.load(Ordering::Relaxed))), // ORDER: as above
        _ => u64::from(drawn & !BY_PROFILE),
    }
}

/// Reports whether a point that was drawn for a shorter interval counts for the present one; those of a profile are thinned
/// elsewhere (`profile::points`).
fn counts(heap: &Heap) -> bool {
    // ORDER: this thread's own; a number by itself.
    let drawn = heap.sample_shift.load(Ordering::Relaxed);
    if drawn & BY_PROFILE != 0 {
        return true;
    }
    let now = SHIFT.load(Ordering::Relaxed); // ORDER: as above
    now <= drawn || random(heap) >> 11 << (now - drawn).min(10) < 1 << 53
}

/// Returns the interval by which a point is drawn now, and what a heap keeps of it.
fn to_draw() -> (u32, u64) {
    // ORDER: numbers by themselves.
    let shift = SHIFT.load(Ordering::Relaxed);
    let rate = profile_rate();
    match interval_at(shift) {
        interval if rate != 0 && u64::from(rate) < interval => (rate | BY_PROFILE, u64::from(rate)),
        interval => (shift, interval),
    }
}

/// Draws the bytes to the next sample.
pub(super) fn draw(heap: &Heap) -> i64 {
    let (drawn, mean) = to_draw();
    heap.sample_shift.store(drawn, Ordering::Relaxed); // ORDER: this thread's own
    exponential(heap, mean)
}

/// Draws a distance from an exponential distribution, by a heap's random numbers.
#[unsafe(link_section = ".text.skinflint_first")]
pub(super) fn exponential(heap: &Heap, mean: u64) -> i64 {
    (-ln(uniform(heap)) * mean as f64) as i64
}

/// Draws a number from 2^-53 to 1, by a heap's random numbers.
pub(super) fn uniform(heap: &Heap) -> f64 {
    ((random(heap) >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// Returns the next random number of a heap (SplitMix64).
fn random(heap: &Heap) -> u64 {
    // ORDER: this thread's own (heap.H1).
    let mut now = heap.random.load(Ordering::Relaxed);
    if now == 0 {
        let seed = SEED.load(Ordering::Relaxed); // ORDER: set by tests
        now = if seed != 0 {
            seed
        } else {
            pool::seed() ^ (u64::from(heap.id()) << 20)
        } | 1;
    }
    now = now.wrapping_add(random::STEP);
    heap.random.store(now.max(1), Ordering::Relaxed); // ORDER: as above
    random::mix(now)
}

/// Returns exp(-x) for x >= 0.
fn exp_minus(x: f64) -> f64 {
    let (mut x, mut halvings) = (x.min(700.0), 0);
    while x > 1.0 / 64.0 {
        x /= 2.0;
        halvings += 1;
    }
    let mut result =
        1.0 - x * (1.0 - x / 2.0 * (1.0 - x / 3.0 * (1.0 - x / 4.0 * (1.0 - x / 5.0))));
    for _ in 0..halvings {
        result *= result;
    }
    result
}

/// Returns the probability that a block is a sample (Q1).
pub(super) fn probability(requested: usize, interval: u64) -> f64 {
    let x = requested.max(1) as f64 / interval as f64;
    if x < 1.0 / 64.0 {
        // The difference from 1 would lose digits: a byte in 2 GiB would have seven of them.
        return x * (1.0 - x / 2.0 * (1.0 - x / 3.0 * (1.0 - x / 4.0 * (1.0 - x / 5.0))));
    }
    1.0 - exp_minus(x)
}

/// Returns the heap of samples, which is made at the first call.
fn heap_of_samples() -> Option<&'static Heap> {
    let make = || {
        let made = spare::claim(usage::SAMPLES);
        (!made.is_null()).then(|| offset_of(made) as usize)
    };
    // SAFETY: heaps stay (pool.G4); no thread has used this one.
    let discard = |made| spare::release(unsafe { &*at::<Heap>(made as u32) });
    let offset = publish::get_or_make(&SAMPLES, make, discard)? as u32;
    // SAFETY: heaps stay (pool.G4).
    Some(unsafe { &*at::<Heap>(offset) })
}

/// Returns a block for a request that is a sample (Q2). `None`: there is none now, and the request is no sample.
#[cold]
pub(super) fn block(n: usize) -> Option<*mut u8> {
    block_of(n, class::of_slice((n - 1) >> 4), true)
}

/// Returns a block of a class for a request that is a sample, of the estimate or of the profile alone.
#[cold]
pub(super) fn block_of(n: usize, class: usize, for_slop: bool) -> Option<*mut u8> {
    let heap = heap_of_samples()?;
    if !heap.lock.lock(tls::who()) {
        return None;
    }
    // SAFETY: the lock is held, and no thread has the heap; `n` is a small size.
    let block = unsafe { heap.take_locked(class) };
    if for_slop && !block.is_null() {
        // SAFETY: the lock is held (Q5).
        unsafe { note(heap, block as usize, n as u32) };
    }
    heap.lock.unlock();
    (!block.is_null()).then_some(block)
}

/// # Safety
/// The lock of the heap of samples is held.
unsafe fn note(heap: &Heap, address: usize, requested: u32) {
    // SAFETY: Q5.
    let table = unsafe { &mut *TABLE.get() };
    if table.used == ENTRIES {
        table.clean(heap);
        while table.used > ENTRIES - ROOM {
            table.thin(heap);
        }
    }
    table.number = table.number.wrapping_add(1);
    let number = table.number;
    if let Some(entry) = table.entries.get_mut(table.used) {
        *entry = Entry {
            address,
            requested,
            number,
        };
        table.used += 1;
    }
}

impl Table {
    fn live(&self) -> &[Entry] {
        self.entries.get(..self.used).unwrap_or(&[])
    }

    /// Removes dead entries (Q2).
    fn clean(&mut self, heap: &Heap) {
        let entries = self.entries.get_mut(..self.used).unwrap_or(&mut []);
        sort(entries);
        let mut kept = 0;
        for i in 0..entries.len() {
            let Some(&entry) = entries.get(i) else { break };
            let older = entries
                .get(i + 1)
                .is_some_and(|next| next.address == entry.address);
            if !older && is_live(heap, entry.address) {
                if let Some(slot) = entries.get_mut(kept) {
                    *slot = entry;
                }
                kept += 1;
            }
        }
        self.used = kept;
    }

    /// Doubles the interval (Q4).
    fn thin(&mut self, heap: &Heap) {
        // ORDER: only here, under the lock of the samples.
        let shift = SHIFT.load(Ordering::Relaxed);
        let (before, after) = (interval_at(shift), interval_at(shift + 1));
        SHIFT.store(shift + 1, Ordering::Relaxed); // ORDER: as above
        let mut kept = 0;
        for i in 0..self.used {
            let Some(&entry) = self.entries.get(i) else {
                break;
            };
            let stays = probability(entry.requested as usize, after)
                / probability(entry.requested as usize, before);
            // Under the lock only this thread uses the random numbers of the heap of samples.
            if ((random(heap) >> 11) as f64) < stays * (1u64 << 53) as f64 {
                if let Some(slot) = self.entries.get_mut(kept) {
                    *slot = entry;
                }
                kept += 1;
            }
        }
        self.used = kept;
    }
}

/// Sorts by address, then by age. Shellsort, since it needs neither room nor depth.
fn sort(entries: &mut [Entry]) {
    for gap in [1750, 701, 301, 132, 57, 23, 10, 4, 1] {
        for i in gap..entries.len() {
            let mut j = i;
            while j >= gap {
                let (Some(a), Some(b)) = (entries.get(j - gap), entries.get(j)) else {
                    break;
                };
                if (a.address, a.number) <= (b.address, b.number) {
                    break;
                }
                entries.swap(j - gap, j);
                j -= gap;
            }
        }
    }
}

/// Returns the span that a live sample lies in.
fn span_of(heap: &Heap, address: usize) -> Option<&'static Span> {
    let distance = address.wrapping_sub(base());
    if distance >= limit() {
        return None;
    }
    // SAFETY: below the limit; MAP leads to descriptors.
    let span = unsafe { &*descriptor(distance) };
    // ORDER: spans of this heap come and go under its lock, which is held.
    let own = is_small(span.kind.load(Ordering::Relaxed))
        && span.owner.load(Ordering::Relaxed) == heap.id(); // ORDER: as above
    own.then_some(span)
}

fn is_live(heap: &Heap, address: usize) -> bool {
    span_of(heap, address)
        .is_some_and(|span| span.slot_of(address).is_some_and(|slot| span.is_live(slot)))
}

/// Returns what the samples say now.
///
/// # Safety
/// The lock of the heap of samples, if there is one, is held.
pub unsafe fn estimate() -> Estimate {
    let mut result = Estimate {
        interval_bytes: interval(),
        ..Estimate::default()
    };
    let offset = publish::had(&SAMPLES) as u32;
    if offset == 0 {
        return result;
    }
    // SAFETY: heaps stay (pool.G4); Q5.
    let (heap, table) = unsafe { (&*at::<Heap>(offset), &mut *TABLE.get()) };
    table.clean(heap);
    let (mut slop, mut variance) = (0.0, 0.0);
    for entry in table.live() {
        let Some(span) = span_of(heap, entry.address) else {
            continue;
        };
        let p = probability(entry.requested as usize, result.interval_bytes);
        let of_block = f64::from((span.size() as u32).saturating_sub(entry.requested));
        slop += of_block / p;
        variance += of_block * of_block * (1.0 - p) / (p * p);
    }
    result.samples = table.used as u32;
    result.slop_bytes = slop as u64;
    result.error_bytes = root(variance) as u64;
    result
}

/// Returns the square root.
pub(super) fn root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    // First half the exponent, then Newton's method.
    let mut y = f64::from_bits((x.to_bits() >> 1) + (1023 << 51));
    for _ in 0..5 {
        y = (y + x / y) / 2.0;
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heaps::requests::requested_from;

    #[test]
    fn the_functions_are_those_of_the_library() {
        for x in [1e-16, 1.1e-3, 0.3, 0.5, 0.999_999, 1.0, 1.5, 2.0, 7e5] {
            assert!(
                (ln(x) - f64::ln(x)).abs() < 1e-13 * (1.0 + f64::ln(x).abs()),
                "{x}"
            );
            assert!((root(x) / x.sqrt() - 1.0).abs() < 1e-12, "{x}");
        }
        for (n, interval) in [
            (1, 2u64 << 30),
            (1_000, 1 << 19),
            (8_191, 1 << 19),
            (1 << 20, 1 << 19),
        ] {
            let p = -f64::exp_m1(-(n as f64) / interval as f64);
            assert!((probability(n, interval) / p - 1.0).abs() < 1e-9, "{n}");
        }
        for x in [0.0, 1e-9, 3e-5, 0.01, 0.06, 0.5, 3.0, 40.0] {
            assert!((exp_minus(x) / (-x).exp() - 1.0).abs() < 1e-9, "{x}");
        }
    }

    /// Numbers that a heap has drawn since its state was this one: each adds SplitMix's step.
    fn drawn_since(heap: &Heap, before: u64) -> u64 {
        let now = heap.random.load(Ordering::Relaxed); // ORDER: one thread
        let mut state = before;
        (0..1_000)
            .find(|_| {
                let here = state == now;
                state = state.wrapping_add(random::STEP);
                here
            })
            .expect("a bound")
    }

    /// However many points lie in a request, no more than so many are drawn, and the next request is no sample by
    /// what is left of them.
    #[test]
    fn a_request_draws_so_many_points_at_most() {
        let _alone = crate::test_engine::alone();
        let heap = crate::test_engine::new();
        // ORDER: one thread, throughout.
        heap.random.store(1, Ordering::Relaxed);
        heap.budget.store(-1, Ordering::Relaxed); // ORDER: as above
        let begun = requested_from(heap);
        assert!(take(heap), "the first point was drawn before");
        assert_eq!(drawn_since(heap, 1), 1);
        let far = i64::MIN / 2;
        let left = heap.budget.swap(far, Ordering::Relaxed); // ORDER: as above
        heap.requested
            .fetch_add(far.wrapping_sub(left) as u64, Ordering::Relaxed); // ORDER: as above
        let before = heap.random.load(Ordering::Relaxed); // ORDER: as above
        assert!(take(heap));
        assert_eq!(drawn_since(heap, before), u64::from(POINTS_MAX));
        assert_eq!(heap.budget.load(Ordering::Relaxed), 0); // ORDER: as above
        assert_eq!(requested_from(heap), begun, "no byte is counted by it (Q3)");
    }

    /// The first request of a heap only begins the numbers.
    #[test]
    fn a_heap_begins_without_a_sample() {
        let _alone = crate::test_engine::alone();
        let heap = crate::test_engine::new();
        heap.budget.store(-1, Ordering::Relaxed); // ORDER: one thread
        assert!(!take(heap));
        let budget = heap.budget.load(Ordering::Relaxed); // ORDER: as above
        assert!(budget >= 0, "{budget}");
    }

    /// So many live entries of one size, by number.
    fn table(count: usize) -> Box<Table> {
        let none = Entry {
            address: 0,
            requested: 0,
            number: 0,
        };
        let mut table = Box::new(Table {
            entries: [none; ENTRIES],
            used: count,
            number: count as u32,
        });
        for (number, entry) in (1..).zip(&mut table.entries[..count]) {
            (entry.address, entry.requested, entry.number) = (number as usize * 16, 100, number);
        }
        table
    }

    /// About half of what is small stays, each once and as it was.
    #[test]
    fn a_table_is_thinned_by_half() {
        let _alone = crate::test_engine::alone();
        let heap = crate::test_engine::new();
        let shift = SHIFT.load(Ordering::Relaxed); // ORDER: one thread
        for seed in 1..20 {
            heap.random.store(seed, Ordering::Relaxed); // ORDER: as above
            let mut table = table(1_000);
            table.thin(heap);
            assert_eq!(interval(), interval_at(shift + 1));
            SHIFT.store(shift, Ordering::Relaxed); // ORDER: as above
            assert!((400..600).contains(&table.used), "{}", table.used);
            let rises = |pair: &[Entry]| pair[0].number < pair[1].number;
            assert!(table.live().windows(2).all(rises), "seed {seed}");
            let same = |entry: &Entry| entry.address == entry.number as usize * 16;
            assert!(table.live().iter().all(same));
        }
    }

    #[test]
    fn what_is_dead_goes_from_the_table() {
        let _alone = crate::test_engine::alone();
        let heap = crate::test_engine::new();
        let mut table = table(100);
        table.clean(heap);
        assert_eq!(table.used, 0, "none of it is in the heap of samples");
        assert!(table.live().is_empty());
    }

    /// One sample of which all is known: its slop over its probability, and the error by the same.
    #[test]
    fn one_sample_is_estimated_by_its_probability() {
        let name = "services::sample::tests::one_sample_is_estimated_by_its_probability";
        let told = crate::test_engine::in_child(name, || {
            let _alone = crate::test_engine::alone();
            reseed(1, SAMPLE_BYTES as u32 / 4_096);
            let block = block(2_049).expect("memory");
            // SAFETY: no other thread uses the samples.
            let estimate = unsafe { estimate() };
            let p = 1.0 - (-2_049.0 / 4_096.0f64).exp();
            let slop = 2_304.0 - 2_049.0;
            assert_eq!((estimate.samples, estimate.interval_bytes), (1, 4_096));
            assert_eq!(estimate.slop_bytes, (slop / p) as u64);
            assert_eq!(estimate.error_bytes, (slop * (1.0 - p).sqrt() / p) as u64);
            // SAFETY: a live block.
            unsafe { crate::heaps::free::free(block) };
            // SAFETY: as above.
            let estimate = unsafe { self::estimate() };
            assert_eq!(
                (estimate.samples, estimate.slop_bytes, estimate.error_bytes),
                (0, 0, 0)
            );
        });
        if let Some((status, said)) = told {
            assert!(status.success(), "{said}");
        }
    }

    #[test]
    fn entries_are_sorted_by_address_then_age() {
        let mut random = random::Random::new(12_345);
        let mut entries: Vec<Entry> = (0..ENTRIES as u32)
            .map(|number| {
                let address = random.index(1_000);
                Entry {
                    address,
                    requested: 1,
                    number: number ^ 0x55,
                }
            })
            .collect();
        sort(&mut entries);
        let key = |e: &Entry| (e.address, e.number);
        assert!(entries.windows(2).all(|pair| key(&pair[0]) < key(&pair[1])));
    }
}
