//! Blocks above 32 KiB: runs of pages.
//!
//! ```text
//!   malloc ──► pool: a dirty run of that length, or another, or new pages ──► descriptor at MAP[first]
//!   realloc ──► stays in its run │ gives its end back │ takes the free run behind it │ moves its pages by mremap │ copies
//!   free ──► pool, dirty: the next block of its length gets the same pages
//! ```
//!
//! L1  Only MAP[first] leads to a large block's descriptor; the entries behind it are 0.
//! L2  A run whose pages came by mremap is *displaced*: the kernel keeps it apart from its neighbours.
//!     When it is freed it is mapped anew, so that the number of mappings does not grow for ever.
//! L3  A descriptor of ours holds 0 where a span has its reciprocal: an address in it looks misaligned
//!     to the fast path, should it ever get there.
//!
//! Not here: page runs (`pages`), how a run is given back (`runs`), tenants (`tenant`).

use skinflint_base::sync::{AtomicUsize, Ordering};
use skinflint_base::{page, sys};
use skinflint_pages::{OWNER_NONE, PAGE};

use super::fault::{self, Fault};
use super::pool::with_pool;
pub use super::runs::Large;
use super::runs::{
    DISPLACED, RAISED, SAMPLED, count_block, count_pages, defer, give, give_clean, page_of,
};
use super::tls::who;
use super::{cache, hints, nodes, runs, slow, tls};
use crate::mechanism::heap::Heap;
use crate::mechanism::lock::Who;
use crate::mechanism::map::map_entry;
use crate::mechanism::publish;
use crate::mechanism::range::{at, base, offset_of};
use crate::mechanism::span::KIND_LARGE;

/// Pages from which on a move goes through the page tables: a system call, but no copy and no faults of new pages.
/// Where the two cost the same was not measured.
const MOVE_PAGES: u32 = 64;
/// Pages from which on a block that raises the most pages in use is looked at once, for what the program touched of it:
/// 256 KiB. The kernel takes some microseconds to answer.
const SPARSE_PAGES: u32 = 64;
/// The most displaced runs: each is a mapping of its own, and a process may have 65,530.
const DISPLACED_MAX: u32 = 8_192;

/// Returns a block of `n` bytes at a multiple of `align` (a power of two); null if there is no memory. The second value
/// says whether it is known to be zero.
pub fn malloc(n: usize, align: usize) -> (*mut u8, bool) {
    let heap = tls::get();
    if !heap.is_null() && !tls::is_ended(heap) {
        // SAFETY: a thread's heap stays (pool.G4).
        if let Some(block) = take_kept(unsafe { &*heap }, n, align) {
            return (block, false);
        }
    }
    malloc_new(n, align)
}

/// Returns a block of `n` bytes at a multiple of `align` of those that this thread's heap keeps; `None`: it has none.
#[inline(always)]
pub fn take_kept(heap: &Heap, n: usize, align: usize) -> Option<*mut u8> {
    if n <= cache::BYTES_MAX && align <= PAGE {
        cache::take(heap, n)
    } else {
        None
    }
}

/// Does what [`malloc`] does, without a look at what the heap keeps.
#[inline(always)]
pub fn malloc_new(n: usize, align: usize) -> (*mut u8, bool) {
    let who = who();
    settle_kept(who);
    // A size that no heap could have is refused below.
    cache::before_growing(who, n.div_ceil(PAGE).min(u32::MAX as usize) as u32);
    malloc_as(who, n, align)
}

/// Gives the pool this thread's longest runs (cache.C2), and has the others counted as kept, before the counts of live blocks
/// change.
fn settle_kept(who: Who) {
    let heap = tls::get();
    if !heap.is_null() && !tls::is_ended(heap) {
        // SAFETY: a thread's heap stays (pool.G4).
        let heap = unsafe { &*heap };
        cache::give_long(heap, who);
        runs::publish_kept(&heap.kept);
    }
}

/// Does what [`malloc`] does, under a given identity: it uses no thread-local storage.
pub fn malloc_as(who: Who, n: usize, align: usize) -> (*mut u8, bool) {
    let pages = n.div_ceil(PAGE);
    if pages >= skinflint_pages::MAX_PAGES as usize {
        return (core::ptr::null_mut(), false);
    }
    let align_pages = (align / PAGE).max(1) as u32;
    let made = with_pool(who, |pool| {
        nodes::serve(pool);
        let before = pool.touched_max;
        let offset = pool.region.desc_alloc(1)?;
        let Some(run) = pool.take(pages.max(1) as u32, align_pages) else {
            pool.region.desc_free(offset, 1);
            return None;
        };
        let start = base() + run.page as usize * PAGE;
        let raised = run.clean && run.pages >= SPARSE_PAGES && pool.touched_max > before;
        // SAFETY: a fresh zeroed descriptor of one unit.
        unsafe {
            let large = at::<Large>(offset);
            (*large).start = start;
            (*large).pages = run.pages;
            (*large).no_mul = 0;
            (*large).displaced = 0;
            (*large).tenant = 0;
            (*large).lead = 0;
            (*large).requested.store(n, Ordering::Relaxed); // ORDER: a statistic
            (*large).slack = 0;
            (*large).marks = if raised { RAISED } else { 0 };
            (*large).held.store(0, Ordering::Relaxed); // ORDER: published below
            (*large).owner.store(OWNER_NONE, Ordering::Relaxed); // ORDER: published below
            (*large).kind.store(KIND_LARGE, Ordering::Relaxed); // ORDER: published below
        }
        publish::enter(pool.region.map_entry(run.page), offset);
        count_block(run.pages);
        Some((start as *mut u8, run.clean))
    });
    made.flatten().unwrap_or((core::ptr::null_mut(), false))
}

/// Returns the descriptor of the large block that begins at `p`.
///
/// # Safety
/// `p` is in HEAP.
#[inline(always)]
pub unsafe fn find(p: *mut u8) -> Option<*mut Large> {
    // SAFETY: as the caller promises.
    let offset = publish::found(unsafe { map_entry(p as usize - base()) });
    let large = at::<Large>(offset);
    // SAFETY: MAP leads to descriptors.
    // ORDER: a thread that has the block got it after the descriptor was filled.
    let fits = unsafe {
        (*large).kind.load(Ordering::Relaxed) == KIND_LARGE && (*large).start == p as usize
    };
    fits.then_some(large)
}

/// Frees a large block.
///
/// # Safety
/// As for `free`; `p` is in HEAP.
pub unsafe fn free(p: *mut u8) {
    // SAFETY: as the caller promises; a block that was found is live.
    unsafe {
        if let Some(large) = find(p)
            && (*large).tenant == 0
            && ((*large).marks != 0 && settle(large) || cache::keep(large))
        {
            return;
        }
        free_as(who(), p);
    }
}

/// Handles the marks of a block that is freed: tells the profile of a sample, and gives up a block that raised the most pages
/// in use, if the program touched a part of it only. `false`: it is as it was, without marks.
///
/// # Safety
/// A live block of the caller's and of no tenant's, which nothing uses any more.
#[cold]
unsafe fn settle(large: *mut Large) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        let marks = core::mem::take(&mut (*large).marks);
        if marks & SAMPLED != 0 {
            (slow::paths().profile.freed)((*large).start as *mut u8);
        }
        if marks & RAISED == 0 {
            return false;
        }
        if (*large).displaced != 0 || (*large).lead != 0 || slow::hardening().is_some() {
            return false;
        }
        let untouched = (slow::paths().settle_sparse)((*large).start, (*large).pages);
        if untouched == 0 {
            return false;
        }
        let offset = offset_of(large);
        let given = with_pool(who(), |pool| {
            give_clean(pool, offset);
            pool.forget_peak(untouched);
        });
        if given.is_none() {
            defer(offset);
        }
    }
    true
}

/// Does what [`free`] does, under a given identity.
///
/// # Safety
/// As for [`free`].
pub unsafe fn free_as(who: Who, p: *mut u8) {
    // SAFETY: as the caller promises.
    let Some(large) = (unsafe { find(p) }) else {
        return fault::report(Fault::Misaligned, p);
    };
    // SAFETY: a live descriptor.
    if unsafe { (*large).tenant != 0 && !forget_large(large) } {
        return;
    }
    let offset = offset_of(large);
    // SAFETY: as above; the caller gives the block up.
    let given = with_pool(who, |pool| unsafe { give(pool, offset) });
    if given.is_none() {
        defer(offset);
    }
}

/// Resizes a large block in place, to another large size. `false`: it must move.
///
/// # Safety
/// `large` is a live block of the caller.
pub unsafe fn resize_in_place(large: *mut Large, n: usize) -> bool {
    let pages = n.div_ceil(PAGE);
    if pages >= skinflint_pages::MAX_PAGES as usize {
        return false;
    }
    let want = pages as u32;
    // SAFETY: as the caller promises, throughout; the descriptor changes under the pool's lock, so that a thread that
    // walks the page map under it finds every page in some run.
    unsafe {
        let (start, have) = ((*large).start, (*large).pages);
        // What the run has is enough, and nothing is to be given back: a block that grows keeps the eighth that it got for
        // that when it moved. With the pool's lock for each step of 16 bytes, `pattern realloc16` took twice the time.
        // ORDER: a statistic.
        if want == have || want < have && n >= (*large).requested.load(Ordering::Relaxed) {
            (*large).requested.store(n, Ordering::Relaxed); // ORDER: as above
            return true;
        }
        let page = page_of(start);
        let who = who();
        settle_kept(who);
        if want > have {
            cache::before_growing(who, want - have);
        }
        let done = with_pool(who, |pool| {
            if want > have && pool.extend(page + have, want - have).is_none() {
                return false;
            }
            (*large).pages = want;
            (*large).requested.store(n, Ordering::Relaxed); // ORDER: a statistic
            count_pages(want.wrapping_sub(have));
            if want < have {
                // The end of this block, which it gives up (L2).
                let bytes = (have - want) as usize * PAGE;
                let anew = (*large).displaced != 0
                    && pool.region.map_anew(start + want as usize * PAGE, bytes);
                pool.give(page + want, have - want, !anew);
            }
            true
        });
        if done != Some(true) {
            return false;
        }
        if want < have {
            hints::hint(have - want);
        }
    }
    true
}

/// Notes the requested bytes of a large block, where they are fewer than the call that made it asked for.
///
/// # Safety
/// A live block of the caller.
pub unsafe fn requested(p: *mut u8, n: usize) {
    // SAFETY: as the caller promises.
    if let Some(large) = unsafe { find(p) } {
        // SAFETY: a live descriptor.
        unsafe { (*large).requested.store(n, Ordering::Relaxed) }; // ORDER: a statistic
    }
}

/// Moves a large block to a place with `n` bytes. Null: no memory; the block is as it was.
///
/// # Safety
/// `large` is a live block of the caller; `n` is above its size.
pub unsafe fn move_to(large: *mut Large, n: usize) -> *mut u8 {
    // SAFETY: as the caller promises.
    let (start, pages, tenant) = unsafe { ((*large).start, (*large).pages, (*large).tenant) };
    let (new, _) = malloc(n, PAGE);
    if new.is_null() {
        return new;
    }
    let bytes = pages as usize * PAGE;
    // SAFETY: two blocks of at least this many bytes; the old one is given up.
    unsafe {
        // A tenant's leaves its list by `free`.
        let moved = pages >= MOVE_PAGES
            && tenant == 0
            && may_move()
            && page::is_whole(start | new as usize, bytes);
        if moved && !move_pages(start, new, bytes) {
            // Linux before 6.17 unmaps the new range before it finds that it cannot move the old one, for
            // instance since that consists of two mappings: moved here once, and extended since.
            let whole = with_pool(who(), |pool| pool.region.map_anew(new as usize, bytes));
            if whole != Some(true) {
                // The new range may be no memory: it stays in use, without a user.
                return core::ptr::null_mut();
            }
            core::ptr::copy_nonoverlapping(start as *const u8, new, bytes);
            free(start as *mut u8);
            return new;
        }
        if !moved {
            core::ptr::copy_nonoverlapping(start as *const u8, new, bytes);
            free(start as *mut u8);
            return new;
        }
        if let Some(moved) = find(new) {
            (*moved).displaced = 1;
        }
        DISPLACED.fetch_add(1, Ordering::Relaxed); // ORDER: a statistic
        // Where a filter may punish the question (mincore) the kernel is believed.
        if (slow::paths().may_ask)() && !leaves_mapped(start) {
            let whole = with_pool(who(), |pool| pool.region.map_anew(start, bytes));
            if whole != Some(true) {
                // The old range may be no memory: it stays in use, without a user.
                return new;
            }
        }
        // The old pages went away with the move.
        let offset = offset_of(large);
        with_pool(who(), |pool| give_clean(pool, offset));
    }
    new
}

/// Reports whether one more displaced run is allowed.
fn may_move() -> bool {
    // ORDER: statistics.
    DISPLACED.load(Ordering::Relaxed) < DISPLACED_MAX && LEAVES.load(Ordering::Relaxed) != LOST
}

/// Whether moves leave the old range mapped, as they are asked to: not known before the first one.
static LEAVES: AtomicUsize = AtomicUsize::new(0);
const KEPT: usize = 1;
const LOST: usize = 2;

/// Reports whether the range from which the first pages were moved is still mapped; later ones are as that was. qemu's
/// emulation of a process (7.2) forgets it: the next use of it was a fault. Cost: a system call, once.
fn leaves_mapped(start: usize) -> bool {
    // ORDER: threads that meet here find the same.
    let known = LEAVES.load(Ordering::Relaxed);
    if known != 0 {
        return known == KEPT;
    }
    let found = match sys::resident(start, &mut [0]) {
        true => KEPT,
        false => LOST,
    };
    LEAVES.store(found, Ordering::Relaxed); // ORDER: as above
    found == KEPT
}

/// Moves pages by the page tables; the old range stays mapped, without pages.
unsafe fn move_pages(from: usize, to: *mut u8, bytes: usize) -> bool {
    const DONTUNMAP: i32 = 4;
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | DONTUNMAP;
    // SAFETY: both ranges are whole blocks of the caller, and do not overlap.
    let result = unsafe {
        sys::syscall(
            libc::SYS_mremap,
            [
                from as u64,
                bytes as u64,
                bytes as u64,
                flags as u64,
                to as u64,
                0,
            ],
        )
    };
    result == to as i64
}

/// Puts a new large block on its tenant's list. Null is allowed.
///
/// # Safety
/// A live large block that no thread has yet; the heap's lock is held.
pub unsafe fn adopt_large(heap: &Heap, p: *mut u8) {
    if p.is_null() {
        return;
    }
    // SAFETY: as the caller promises; the list holds live descriptors.
    unsafe {
        let Some(large) = find(p) else { return };
        // ORDER: the lock is held.
        let first = heap.large.load(Ordering::Relaxed);
        (*large).tenant = offset_of(heap);
        (*large).next = first;
        (*large).prev = 0;
        if first != 0 {
            (*at::<Large>(first)).prev = offset_of(large);
        }
        heap.large.store(offset_of(large), Ordering::Relaxed); // ORDER: as above
    }
}

/// Removes a large block from its tenant's list. `false`: a signal handler interrupted a call of its thread with this
/// very heap; the block stays where it is until the heap is destroyed.
///
/// # Safety
/// A live block of a tenant.
pub unsafe fn forget_large(large: *mut Large) -> bool {
    // SAFETY: as the caller promises; heaps stay (pool.G4).
    unsafe {
        let heap = &*at::<Heap>((*large).tenant);
        if !heap.lock.lock(who()) {
            return false;
        }
        let (next, prev) = ((*large).next, (*large).prev);
        if prev == 0 {
            // ORDER: the lock is held.
            heap.large.store(next, Ordering::Relaxed);
        } else {
            (*at::<Large>(prev)).next = next;
        }
        if next != 0 {
            (*at::<Large>(next)).prev = prev;
        }
        (*large).tenant = 0;
        heap.lock.unlock();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heaps::hints::{START_PAGES, STARTER};
    use crate::heaps::pool::POOL_LOCK;
    use crate::heaps::thread;
    use crate::mechanism::lock::NOBODY;
    use crate::services::trim::trim;
    use crate::test_engine::alone;

    /// Pages that were hinted at while something was done.
    fn hinted(act: impl FnOnce()) -> u32 {
        STARTER.take();
        act();
        STARTER.take()
    }

    #[test]
    fn what_a_block_gives_back_is_hinted_at_to_the_page() {
        let _alone = alone();
        let (block, _) = malloc(100 * PAGE, 1);
        // SAFETY: a live block.
        let large = || unsafe { find(block) }.expect("it is there");
        let resized = |pages: usize| {
            let large = large();
            // SAFETY: as above.
            hinted(|| assert!(unsafe { resize_in_place(large, pages * PAGE) }))
        };
        assert_eq!(resized(90), 10);
        assert_eq!(resized(90), 0);
        assert_eq!(resized(99), 0, "what was behind it is free still");
        assert_eq!(resized(60), 39);
        // SAFETY: a live block, freed once.
        assert_eq!(hinted(|| unsafe { free(block) }), 60);
        // Of more no sum is kept.
        const { assert!(60 < START_PAGES) };
    }

    /// A block that moves takes its pages along: the old ones are clean, the old descriptor is free.
    #[test]
    fn a_block_that_moved_leaves_nothing_dirty_and_no_descriptor() {
        let _alone = alone();
        const PAGES: usize = MOVE_PAGES as usize;
        let pool = || with_pool(NOBODY, |pool| (pool.dirty_pages, pool.used_pages)).expect("free");
        let displaced = || DISPLACED.load(Ordering::Relaxed); // ORDER: one thread
        trim();
        let before = (pool(), displaced());
        let (mut block, _) = malloc(PAGES * PAGE, 1);
        for step in 1..10 {
            // SAFETY: a live block of this many bytes.
            unsafe {
                let large = find(block).expect("it is there");
                (0..PAGES).for_each(|page| block.add(page * PAGE).write(page as u8 + step));
                block = move_to(large, (PAGES + usize::from(step)) * PAGE);
                let stays =
                    (0..PAGES).all(|page| block.add(page * PAGE).read() == page as u8 + step);
                assert!(!block.is_null() && stays, "step {step}");
            }
            assert_eq!(displaced(), before.1 + 1, "step {step}");
            assert_eq!(pool().0, before.0.0, "step {step}: dirty");
        }
        // SAFETY: a live block.
        unsafe { free(block) };
        assert_eq!((displaced(), pool().1), (before.1, before.0.1));

        // Blocks that move once each: their descriptors are used again.
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..40 {
            let (block, _) = malloc(PAGES * PAGE, 1);
            // SAFETY: a live block, which is moved and freed.
            unsafe {
                let large = find(block).expect("it is there");
                seen.insert(offset_of(large));
                free(move_to(large, (PAGES + 1) * PAGE));
            }
        }
        assert!(seen.len() <= 8, "{} descriptors", seen.len());
    }

    /// What the kernel says of the first move counts for all: where a range is lost, blocks are copied from then on.
    #[test]
    fn a_range_that_a_move_has_lost_ends_all_moves() {
        let _alone = alone();
        let before = LEAVES.swap(0, Ordering::Relaxed); // ORDER: one thread
        let (block, _) = malloc(PAGE, PAGE);
        assert!(leaves_mapped(block as usize) && may_move());
        // Nothing is ever mapped at the bottom; what is known is not asked again.
        assert!(leaves_mapped(PAGE));
        LEAVES.store(0, Ordering::Relaxed); // ORDER: as above
        assert!(!leaves_mapped(PAGE) && !may_move());
        assert!(!leaves_mapped(block as usize));
        LEAVES.store(before, Ordering::Relaxed); // ORDER: as above
        // SAFETY: a live block, freed once.
        unsafe { free(block) };
    }

    /// Steps within a run need no pool: neither those within a page, nor those into what the block got when it moved.
    #[test]
    fn a_block_that_grows_within_its_run_takes_no_lock() {
        let _alone = alone();
        const PAGES: usize = 40;
        // A thread without a heap would wait for itself (lock.K1).
        if tls::get().is_null() {
            thread::enter();
        }
        let (block, _) = malloc(PAGES * PAGE, 1);
        // SAFETY: a live block.
        let large = unsafe { find(block) }.expect("it is there");
        // SAFETY: as above.
        let resized = |n: usize| unsafe { resize_in_place(large, n) };
        // SAFETY: as above.
        unsafe { requested(block, 36 * PAGE) };
        assert!(POOL_LOCK.lock(who()));
        let within = [36 * PAGE, 37 * PAGE + 16, PAGES * PAGE].map(resized);
        let smaller = [PAGES * PAGE - 16, 36 * PAGE].map(resized);
        let longer = resized(PAGES * PAGE + 1);
        POOL_LOCK.unlock();
        assert_eq!((within, longer), ([true; 3], false));
        assert_eq!(smaller, [true, false], "pages of its end are given back");
        // SAFETY: as above.
        let pages = || unsafe { (*large).pages };
        assert_eq!(pages(), PAGES as u32);
        assert!(resized(36 * PAGE) && pages() == 36);
        // SAFETY: as above, freed once.
        unsafe { free(block) };
    }

    #[test]
    fn no_block_begins_inside_of_another() {
        let _alone = alone();
        let (block, _) = malloc(3 * PAGE, 1);
        // SAFETY: addresses of HEAP.
        unsafe {
            assert!(find(block).is_some());
            for inside in [1, 16, PAGE, 2 * PAGE, 3 * PAGE - 1] {
                assert!(find(block.add(inside)).is_none(), "{inside}");
            }
            free(block);
            assert!(find(block).is_none());
        }
    }
}
