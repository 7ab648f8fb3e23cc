//! The single objects of the process: the address range, the pool of page runs, the list of heaps.
//!
//! ```text
//!   BASE, LIMIT   read by every free         POOL   page runs and descriptors, under POOL_LOCK
//!   HEAPS         every heap ever made       IDLE   heaps without a thread, under POOL_LOCK
//! ```
//!
//! G1  BASE and META change once, from 0, before the first block is handed out.
//! G2  LIMIT only grows, and MAP is mapped for all of it.
//! G3  Order of locks: a heap's, then the pool's. A second heap's lock is only tried.
//! G4  A heap, once made, stays at its address for good, and in HEAPS.
//!
//! Not here: what a heap does (`heap`).

use core::cell::UnsafeCell;

use skinflint_base::sync::{AtomicU32, AtomicUsize, Ordering};
use skinflint_pages::{Header, MAP_SPAN, META_SPAN, Options, Pool};

use crate::heap::Heap;
use crate::lock::{Lock, Who};
use crate::publish;
use crate::span::Span;

struct PoolCell(UnsafeCell<Pool>);
// SAFETY: reached only through `with_pool` and `pool_locked`, under POOL_LOCK.
unsafe impl Sync for PoolCell {}

static POOL: PoolCell = PoolCell(UnsafeCell::new(Pool::new()));
/// The lock of the pool, of IDLE, and of the class table.
pub static POOL_LOCK: Lock = Lock::new();

/// The fields that every free reads: one cache line, reached by one address.
#[repr(C, align(64))]
struct Range {
    /// Address of META: everything that `free` reads lies above it, at distances that fit into an instruction.
    meta: AtomicUsize,
    /// LIMIT, or 0 while every call is to go the slow way.
    fast_limit: AtomicUsize,
    base: AtomicUsize,
    limit: AtomicUsize,
}

/// Offset of `fast_limit` in [`Range`], for assembly.
pub const FAST_LIMIT: usize = core::mem::offset_of!(Range, fast_limit);
/// Bytes from META to BASE.
const TO_BASE: usize = META_SPAN + MAP_SPAN;

// Under its own name and hidden, so that it is reached from the instruction pointer, and not through the
// table of addresses that a crate of its own would take: one load less in every call.
#[unsafe(export_name = "skinflint_range")]
static RANGE: Range = Range {
    meta: AtomicUsize::new(0),
    fast_limit: AtomicUsize::new(0),
    base: AtomicUsize::new(0),
    limit: AtomicUsize::new(0),
};
core::arch::global_asm!(".hidden skinflint_range");

#[inline(always)]
fn range() -> &'static Range {
    let range: *const Range;
    // SAFETY: the address of RANGE.
    unsafe {
        core::arch::asm!(
            "lea {range}, [rip + skinflint_range]",
            range = out(reg) range,
            options(pure, nomem, nostack, preserves_flags),
        );
        &*range
    }
}

static SLOW_MODE: AtomicU32 = AtomicU32::new(0);
static HUGE_PAGES: AtomicU32 = AtomicU32::new(0);
/// Newest heap; they are linked through `next_heap` (G4).
pub static HEAPS: AtomicU32 = AtomicU32::new(0);
/// Newest heap without a thread.
pub static IDLE: AtomicU32 = AtomicU32::new(0);

/// The owner of a descriptor that is not of a small span: no heap has this address.
pub use skinflint_pages::OWNER_NONE;

/// Returns the address of page 0.
#[inline(always)]
pub fn base() -> usize {
    // ORDER: Relaxed: a thread that has a block got it after BASE was set (G1).
    range().base.load(Ordering::Relaxed)
}

/// Returns the address of META.
#[inline(always)]
pub fn meta() -> usize {
    base() - TO_BASE
}

/// Returns [`meta`], and how far an address is from BASE. Cost: three instructions.
#[inline(always)]
pub fn meta_and_distance(address: usize) -> (usize, usize) {
    let (meta, distance): (usize, usize);
    // In assembly: otherwise the range's address is loaded first, for `fast_limit` beside it, and the two constants are
    // subtracted one by one.
    // ORDER: as in `base`.
    // SAFETY: a load of RANGE.
    unsafe {
        core::arch::asm!(
            "mov {meta}, qword ptr [rip + skinflint_range]",
            "lea {distance}, [{address} - {to_base}]",
            "sub {distance}, {meta}",
            meta = out(reg) meta,
            distance = out(reg) distance,
            address = in(reg) address,
            to_base = const TO_BASE,
            options(pure, readonly, nostack),
        );
    }
    (meta, distance)
}

/// Returns the mapped bytes of HEAP.
#[inline(always)]
pub fn limit() -> usize {
    // ORDER: Relaxed: a thread that has a block below it got it after LIMIT grew (G2).
    range().limit.load(Ordering::Relaxed)
}

/// Returns [`limit`], or 0 while every free is to go the slow way.
#[inline(always)]
pub fn fast_limit() -> usize {
    // ORDER: as `limit`.
    range().fast_limit.load(Ordering::Relaxed)
}

/// Sends every free the slow way, where more is checked.
pub fn set_slow_mode() {
    // ORDER: set at start, before there are threads.
    SLOW_MODE.store(1, Ordering::Relaxed);
    // ORDER: as above.
    range().fast_limit.store(0, Ordering::Relaxed);
}

/// Lets the kernel back HEAP with huge pages, including what is mapped already.
pub fn allow_huge_pages() {
    // ORDER: set at start.
    HUGE_PAGES.store(1, Ordering::Relaxed);
    if base() != 0 {
        with_pool(crate::lock::NOBODY, |pool| pool.region.allow_huge_pages());
    }
}

/// Reports whether every call goes the slow way.
#[inline]
pub fn slow_mode() -> bool {
    // ORDER: set at start.
    SLOW_MODE.load(Ordering::Relaxed) != 0
}

/// Returns the object at an offset of META.
#[inline(always)]
pub fn at<T>(offset: u32) -> *mut T {
    (meta() + offset as usize) as *mut T
}

/// Returns the offset in META of an object in it.
#[inline(always)]
pub fn offset_of<T>(object: *const T) -> u32 {
    (object as usize - meta()) as u32
}

/// Returns what [`descriptor`] does, from a given META and distance.
///
/// # Safety
/// `distance < limit()`, and `meta` is [`meta()`].
#[inline(always)]
pub unsafe fn descriptor_from<'a>(meta: usize, distance: usize) -> &'a Span {
    // SAFETY: G2: MAP is mapped for every page below LIMIT, and leads to descriptors.
    unsafe {
        let entry = &*((meta + META_SPAN + (distance >> 12) * 4) as *const AtomicU32);
        let offset = publish::found(entry);
        &*((meta + offset as usize) as *const Span)
    }
}

/// Returns the page map's entry for an address of HEAP, given as its distance from BASE.
///
/// # Safety
/// `distance < limit()`.
#[inline(always)]
pub unsafe fn map_entry<'a>(distance: usize) -> &'a AtomicU32 {
    // SAFETY: G2: MAP is mapped for every page below LIMIT.
    unsafe { &*((base() - MAP_SPAN + (distance >> 12) * 4) as *const AtomicU32) }
}

/// Returns the descriptor of the page at a distance from BASE; the dummy where there is none.
///
/// # Safety
/// As for [`map_entry`].
#[inline(always)]
pub unsafe fn descriptor(distance: usize) -> *mut Span {
    // SAFETY: as the caller promises.
    at(publish::found(unsafe { map_entry(distance) }))
}

/// Runs `work` with the pool. `None`: this thread holds its lock already (a signal handler).
pub fn with_pool<R>(who: Who, work: impl FnOnce(&mut Pool) -> R) -> Option<R> {
    if !POOL_LOCK.lock(who) {
        return None;
    }
    // SAFETY: POOL_LOCK is held, so this is the only reference.
    let pool = unsafe { &mut *POOL.0.get() };
    crate::large::take_deferred(pool);
    let result = work(pool);
    publish(pool);
    POOL_LOCK.unlock();
    Some(result)
}

/// Pages of HEAP that are in use or dirty, as of the pool's last use: a heap that is about to grow compares this with
/// the peak, without the pool's lock.
pub static TOUCHED: AtomicU32 = AtomicU32::new(0);

/// Pages that the pool could hand out, as of its last use, without touching more than ever before: a hint.
pub static SPARE: AtomicU32 = AtomicU32::new(0);

/// Returns the pool, for a caller that holds its lock already.
///
/// # Safety
/// POOL_LOCK is held, and there is no other reference.
pub unsafe fn pool_locked() -> &'static mut Pool {
    // SAFETY: as the caller promises.
    unsafe { &mut *POOL.0.get() }
}

fn publish(pool: &Pool) {
    crate::reserve::handed_out(pool.used_clean_total);
    TOUCHED.store(pool.touched_pages, Ordering::Relaxed); // ORDER: a hint
    let spare = pool.dirty_pages + (pool.touched_max - pool.touched_pages);
    SPARE.store(spare, Ordering::Relaxed); // ORDER: a hint
    let bytes = pool.region.heap_bytes();
    if bytes == limit() {
        return;
    }
    // ORDER: Release, though readers need none: a thread that has a block below it got it afterwards (G2).
    // [reason: handed]
    range().limit.store(bytes, Ordering::Release);
    if !slow_mode() {
        // ORDER: as above. [reason: handed]
        range().fast_limit.store(bytes, Ordering::Release);
    }
}

/// Maps the range, once. `false`: the OS refuses.
#[cold]
pub fn start(who: Who) -> bool {
    with_pool(who, |pool| {
        if base() != 0 {
            return true;
        }
        let options = Options {
            // ORDER: set at start.
            huge_pages: HUGE_PAGES.load(Ordering::Relaxed) != 0,
            seed: seed(),
            first_heap_bytes: 1 << 20,
        };
        if !pool.region.place(&options) {
            return false;
        }
        // ORDER: G1; the lock's release publishes it to threads that come through here, blocks to the others.
        // [reason: handed]
        range().base.store(pool.region.base(), Ordering::Release);
        range().meta.store(meta(), Ordering::Release); // ORDER: as above
        // SAFETY: offset 0 of META is the dummy descriptor, which no other code writes.
        let dummy = unsafe { &*at::<Header>(0) };
        // ORDER: the pool's lock is held.
        dummy.owner.store(OWNER_NONE, Ordering::Relaxed);
        true
    })
    .unwrap_or(false)
}

/// Returns bytes that the kernel drew for this process.
pub fn seed() -> u64 {
    // SAFETY: getauxval reads what the kernel left on the stack; it allocates nothing.
    let random = unsafe { libc::getauxval(libc::AT_RANDOM) } as *const u64;
    if random.is_null() {
        return skinflint_base::sys::monotonic_ns();
    }
    // SAFETY: AT_RANDOM points to sixteen bytes, for as long as the process lives.
    unsafe { random.add(1).read_unaligned() }
}

/// Returns every heap, newest first.
pub fn heaps() -> impl Iterator<Item = &'static Heap> {
    heaps_from(publish::first(&HEAPS))
}

/// Returns every heap from one on, given by its offset, to the oldest.
pub fn heaps_from(first: u32) -> impl Iterator<Item = &'static Heap> {
    let mut next = first;
    core::iter::from_fn(move || {
        if next == 0 {
            return None;
        }
        // SAFETY: G4.
        let heap = unsafe { &*at::<Heap>(next) };
        next = publish::next(&heap.next_heap);
        Some(heap)
    })
}

/// Makes a heap; null if the OS refuses.
pub fn new_heap(who: Who) -> *mut Heap {
    let made = with_pool(who, |pool| {
        let size = core::mem::size_of::<Heap>();
        let mut offset = pool.region.meta_alloc(size, 4096)?;
        if at::<Heap>(offset) as u32 <= OWNER_NONE {
            // Once in four billion addresses the low half is 0, which means "no heap".
            offset = pool.region.meta_alloc(size, 4096)?;
        }
        // SAFETY: fresh zeroed metadata of this size and alignment.
        unsafe { Heap::init(at(offset)) };
        // SAFETY: initialised just now.
        let heap = unsafe { &*at::<Heap>(offset) };
        publish::add(&HEAPS, &heap.next_heap, offset);
        Some(at::<Heap>(offset))
    });
    made.flatten().unwrap_or(core::ptr::null_mut())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::NOBODY;
    use crate::turn::turn;

    /// What others look at without the lock is what the pool had when it was last used.
    #[test]
    fn hints_are_those_of_the_pools_last_use() {
        let _turn = turn();
        for pages in [100, 40] {
            let (block, _) = crate::large::malloc(pages * 4096, 1);
            // SAFETY: a live block.
            unsafe { crate::large::free(block) };
            let pool = with_pool(NOBODY, |pool| {
                let below = pool.touched_max - pool.touched_pages;
                (pool.touched_pages, pool.dirty_pages + below)
            });
            let (touched, spare) = pool.expect("not within itself");
            assert!(spare >= pages as u32);
            assert_eq!(TOUCHED.load(Ordering::Relaxed), touched); // ORDER: one thread
            assert_eq!(SPARE.load(Ordering::Relaxed), spare); // ORDER: as above
        }
        crate::purger::trim();
    }
}
