//! The single objects of the process: the pool of page runs, and the list of heaps.
//!
//! ```text
//!   POOL    page runs and descriptors, under POOL_LOCK
//!   HEAPS   every heap ever made       IDLE   heaps without a thread, under POOL_LOCK
//! ```
//!
//! G3  Order of locks: a heap's, then the pool's. A second heap's lock is only tried.
//! G4  A heap, once made, stays at its address for good, and in HEAPS.
//!
//! Not here: the address range (`range`), what a heap does (`heap`).

use skinflint_base::sync::{AtomicU32, Ordering};
use skinflint_pages::{Header, OWNER_NONE, Options, Pool};

use super::{nodes, retire, runs, slow};
use crate::mechanism::guarded::Guarded;
use crate::mechanism::heap::Heap;
use crate::mechanism::lock::{self, Lock, Who};
use crate::mechanism::publish;
use crate::mechanism::range::{self, at, base, limit};
use crate::mechanism::section;

/// Reached only through [`with_pool`] and [`pool_locked`], under POOL_LOCK.
static POOL: Guarded<Pool> = Guarded::new(Pool::new());
/// The lock of the pool, of IDLE, and of the class table.
pub static POOL_LOCK: Lock = Lock::new();

static HUGE_PAGES: AtomicU32 = AtomicU32::new(0);
/// Newest heap; they are linked through `next_heap` (G4).
pub static HEAPS: AtomicU32 = AtomicU32::new(0);
/// Newest heap without a thread.
pub static IDLE: AtomicU32 = AtomicU32::new(0);

/// Lets the kernel back HEAP with huge pages, including what is mapped already.
pub fn allow_huge_pages() {
    // ORDER: set at start.
    HUGE_PAGES.store(1, Ordering::Relaxed);
    if base() != 0 {
        with_pool(lock::NOBODY, |pool| pool.region.allow_huge_pages());
    }
}

/// Runs `work` with the pool. `None`: this thread holds its lock already (a signal handler).
#[unsafe(link_section = ".text.skinflint_first")]
pub fn with_pool<R>(who: Who, work: impl FnOnce(&mut Pool) -> R) -> Option<R> {
    if !POOL_LOCK.lock(who) {
        return None;
    }
    // SAFETY: POOL_LOCK is held, so this is the only reference.
    let pool = unsafe { &mut *POOL.get() };
    runs::take_deferred(pool);
    pool.set_absent(HOLES.load(Ordering::Relaxed)); // ORDER: a hint
    let result = work(pool);
    publish(pool);
    POOL_LOCK.unlock();
    Some(result)
}

/// Pages of HEAP that are in use or dirty, as of the pool's last use: a heap that is about to grow compares this with
/// the peak, without the pool's lock.
pub static TOUCHED: AtomicU32 = AtomicU32::new(0);

/// Pages inside spans that hold nothing and are not resident (holes.O2).
pub static HOLES: AtomicU32 = AtomicU32::new(0);

/// The most pages that may have been resident, as of the pool's last use (clean.K1): a hint.
pub static MOST: AtomicU32 = AtomicU32::new(0);

/// Pages that the pool could hand out, as of its last use, without touching more than ever before: a hint.
pub static SPARE: AtomicU32 = AtomicU32::new(0);

/// Returns the pool, for a caller that holds its lock already.
///
/// # Safety
/// POOL_LOCK is held, and there is no other reference.
pub unsafe fn pool_locked() -> &'static mut Pool {
    // SAFETY: as the caller promises.
    unsafe { &mut *POOL.get() }
}

fn publish(pool: &Pool) {
    slow::handed_out(pool.used_clean_total);
    TOUCHED.store(pool.touched_pages, Ordering::Relaxed); // ORDER: a hint
    MOST.store(pool.touched_max, Ordering::Relaxed); // ORDER: a hint
    // ORDER: hints.
    if pool.touched_max >= slow::PEAK_LOOK.load(Ordering::Relaxed)
        && retire::THREADS.load(Ordering::Relaxed) >= retire::THREADS_MIN
    {
        slow::LOOK.fetch_max(1, Ordering::Relaxed); // ORDER: a hint
    }
    let spare = pool.dirty_pages + pool.below_max();
    SPARE.store(spare, Ordering::Relaxed); // ORDER: a hint
    let bytes = pool.region.heap_bytes();
    if bytes == limit() {
        return;
    }
    range::extend(bytes);
}

/// Maps the range, once. `false`: the OS refuses.
#[cold]
#[unsafe(link_section = ".text.skinflint_first")]
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
        pool.set_nodes(nodes::count());
        if !pool.region.place(&options) {
            return false;
        }
        // SAFETY: without the range there is no heap, and the pool's lock is held.
        unsafe { section::start() };
        range::set_base(pool.region.base());
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
    // SAFETY: G4.
    let heap = |offset| unsafe { &*at::<Heap>(offset) };
    publish::walk(first, move |offset| &heap(offset).next_heap).map(heap)
}

/// Makes a heap; null if the OS refuses.
#[unsafe(link_section = ".text.skinflint_first")]
pub fn new_heap(who: Who) -> *mut Heap {
    let made = with_pool(who, |pool| {
        // Whole pages, which may go without what others have (`hollow`).
        let size = core::mem::size_of::<Heap>().next_multiple_of(4096);
        let mut offset = pool.region.meta_alloc(size, 4096)?;
        if at::<Heap>(offset) as u32 <= OWNER_NONE {
            // Once in four billion addresses the low half is 0, which means "no heap".
            offset = pool.region.meta_alloc(size, 4096)?;
        }
        // SAFETY: fresh zeroed metadata of this size and alignment.
        unsafe { Heap::init(at(offset)) };
        // SAFETY: initialised just now.
        let heap = unsafe { &*at::<Heap>(offset) };
        if let Some(hardening) = slow::hardening() {
            (hardening.new_heap)(heap);
        }
        publish::add(&HEAPS, &heap.next_heap, offset);
        Some(at::<Heap>(offset))
    });
    made.flatten().unwrap_or(core::ptr::null_mut())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_engine::alone;
    use lock::NOBODY;

    /// What others look at without the lock is what the pool had when it was last used.
    #[test]
    fn hints_are_those_of_the_pools_last_use() {
        let _alone = alone();
        for pages in [100, 40] {
            let (block, _) = crate::heaps::large::malloc(pages * 4096, 1);
            // SAFETY: a live block.
            unsafe { crate::heaps::large::free(block) };
            let pool = with_pool(NOBODY, |pool| {
                (pool.touched_pages, pool.dirty_pages + pool.below_max())
            });
            let (touched, spare) = pool.expect("not within itself");
            assert!(spare >= pages as u32);
            assert_eq!(TOUCHED.load(Ordering::Relaxed), touched); // ORDER: one thread
            assert_eq!(SPARE.load(Ordering::Relaxed), spare); // ORDER: as above
        }
        crate::services::trim::trim();
    }
}
