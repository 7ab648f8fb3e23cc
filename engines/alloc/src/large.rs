//! Blocks above 32 KiB: runs of pages.
//!
//! ```text
//!   malloc ──► pool: a dirty run of that length, or another, or new pages ──► descriptor at MAP[first]
//!   realloc ──► gives its end back │ takes the free run behind it │ moves its pages by mremap │ copies
//!   free ──► pool, dirty: the next block of its length gets the same pages
//! ```
//!
//! L1  Only MAP[first] leads to a large block's descriptor; the entries behind it are 0.
//! L2  A run whose pages came by mremap is *displaced*: the kernel keeps it apart from its neighbours.
//!     When it is freed it is mapped anew, so that the number of mappings does not grow for ever.
//! L3  A descriptor of ours holds 0 where a span has its reciprocal: an address in it looks misaligned
//!     to the fast path, should it ever get there.
//!
//! Not here: page runs (`pages`), tenants' lists (`tenant`).

use skinflint_base::sync::{AtomicU8, AtomicU32, Ordering};
use skinflint_base::sys;
use skinflint_pages::{PAGE, Pool};

use crate::fault::{self, Fault};
use crate::lock::{NOBODY, Who};
use crate::span::KIND_LARGE;
use crate::state::{OWNER_NONE, at, base, map_entry, with_pool};
use crate::{holes, publish, remote, tls};

/// Pages from which on a move goes through the page tables: a system call, but no copy and no faults of new pages.
/// Where the two cost the same was not measured.
const MOVE_PAGES: u32 = 64;
/// The most displaced runs: each is a mapping of its own, and a process may have 65,530.
const DISPLACED_MAX: u32 = 8_192;

/// The descriptor of a large block; its head is that of every descriptor.
#[repr(C, align(64))]
pub struct Large {
    /// Address of the block.
    pub start: usize,
    /// Pages of the run.
    pub pages: u32,
    no_mul: u32,
    owner: AtomicU32,
    pub(crate) kind: AtomicU8,
    displaced: u8,
    /// Not 0: the block is given up, and not given back yet (`harden::guard`).
    pub held: AtomicU8,
    _free: u8,
    /// Offset of the tenant's heap, or 0.
    pub tenant: u32,
    /// Next block of the tenant.
    pub next: u32,
    /// Previous block of the tenant.
    pub prev: u32,
    /// Next on the list of blocks that could not be given back at once.
    deferred: AtomicU32,
    /// Bytes before the block that belong to it: guard pages.
    pub lead: u32,
    /// Bytes of ours between the block and the guard page behind it.
    pub slack: u32,
    /// Bytes that were requested.
    pub requested: usize,
}

const _: () = assert!(core::mem::size_of::<Large>() == 64);
const _: () = assert!(core::mem::offset_of!(Large, owner) == 16);
const _: () = assert!(core::mem::offset_of!(Large, kind) == 20);

static DEFERRED: AtomicU32 = AtomicU32::new(0);
static DISPLACED: AtomicU32 = AtomicU32::new(0);
/// Pages of live large blocks. Written under the pool's lock, without locked instructions: four of those in a pair of
/// calls were a quarter of its time.
pub static LIVE_PAGES: AtomicU32 = AtomicU32::new(0);
/// Number of live large blocks; see [`LIVE_PAGES`].
pub static LIVE_BLOCKS: AtomicU32 = AtomicU32::new(0);

/// The highest that [`LIVE_PAGES`] has been.
pub static MOST_PAGES: AtomicU32 = AtomicU32::new(0);
/// The highest that [`LIVE_BLOCKS`] has been.
pub static MOST_BLOCKS: AtomicU32 = AtomicU32::new(0);

/// Adds to a count, and to its maximum if it rises. The pool's lock is held.
fn count(live: &AtomicU32, most: &AtomicU32, more: u32) {
    // ORDER: the lock is held; others look, at each by itself.
    let now = live.load(Ordering::Relaxed).wrapping_add(more);
    live.store(now, Ordering::Relaxed); // ORDER: as above
    if now > most.load(Ordering::Relaxed) {
        most.store(now, Ordering::Relaxed); // ORDER: as above
    }
}

/// Counts pages that came, or went (a negative number as it wraps around). The pool's lock is held.
fn count_pages(more: u32) {
    count(&LIVE_PAGES, &MOST_PAGES, more);
}

/// Counts a block of `pages` pages that came. The pool's lock is held.
fn count_block(pages: u32) {
    count_pages(pages);
    count(&LIVE_BLOCKS, &MOST_BLOCKS, 1);
}

/// Counts a block of `pages` pages that went. The pool's lock is held.
fn uncount_block(pages: u32) {
    count_pages(pages.wrapping_neg());
    count(&LIVE_BLOCKS, &MOST_BLOCKS, u32::MAX);
}

/// Returns the identity as which this thread takes locks.
pub fn who() -> Who {
    let heap = tls::get();
    // Threads that have ended share one mark for a heap: under that identity, one would take another's lock for its
    // own.
    if heap.is_null() || crate::thread::is_ended(heap) {
        NOBODY
    } else {
        // SAFETY: a thread's heap stays (state.G4).
        unsafe { (*heap).who() }
    }
}

/// Does what [`who`] does, for a call that is not part of `malloc`: the thread gets a heap first, and so an identity.
pub fn who_named() -> Who {
    if tls::get().is_null() {
        crate::thread::enter();
    }
    who()
}

fn page_of(address: usize) -> u32 {
    ((address - base()) / PAGE) as u32
}

/// Returns a block of `n` bytes at a multiple of `align` (a power of two); null if there is no memory. The second value
/// says whether it is known to be zero.
pub fn malloc(n: usize, align: usize) -> (*mut u8, bool) {
    malloc_as(who(), n, align)
}

/// Does what [`malloc`] does, under a given identity: it uses no thread-local storage.
pub fn malloc_as(who: Who, n: usize, align: usize) -> (*mut u8, bool) {
    let pages = n.div_ceil(PAGE);
    if pages >= skinflint_pages::MAX_PAGES as usize {
        return (core::ptr::null_mut(), false);
    }
    let align_pages = (align / PAGE).max(1) as u32;
    let made = with_pool(who, |pool| {
        let offset = pool.region.desc_alloc(1)?;
        let Some(run) = pool.take(pages.max(1) as u32, align_pages) else {
            pool.region.desc_free(offset, 1);
            return None;
        };
        let start = base() + run.page as usize * PAGE;
        // SAFETY: a fresh zeroed descriptor of one unit.
        unsafe {
            let large = at::<Large>(offset);
            (*large).start = start;
            (*large).pages = run.pages;
            (*large).no_mul = 0;
            (*large).displaced = 0;
            (*large).tenant = 0;
            (*large).lead = 0;
            (*large).requested = n;
            (*large).slack = 0;
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
    // SAFETY: as the caller promises.
    unsafe { free_as(who(), p) }
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
    // SAFETY: as above.
    if unsafe { (*large).tenant != 0 && !crate::tenant::forget_large(large) } {
        return;
    }
    let offset = crate::state::offset_of(large);
    // SAFETY: as above; the caller gives the block up.
    let given = with_pool(who, |pool| unsafe { give(pool, offset) });
    if given.is_none() {
        defer(offset);
    }
}

/// Gives a block's pages to the pool.
///
/// # Safety
/// The offset is that of a live large block that nothing uses.
unsafe fn give(pool: &mut Pool, offset: u32) {
    let large = at::<Large>(offset);
    // SAFETY: as the caller promises.
    let (start, pages, displaced) =
        unsafe { ((*large).start, (*large).pages, (*large).displaced != 0) };
    let page = page_of(start);
    publish::clear(pool.region.map_entry(page));
    // SAFETY: as above.
    unsafe { (*large).kind.store(0, Ordering::Relaxed) }; // ORDER: no thread may use the address any more
    pool.region.desc_free(offset, 1);
    uncount_block(pages);
    let mut dirty = true;
    if displaced {
        DISPLACED.fetch_sub(1, Ordering::Relaxed); // ORDER: a statistic
        // SAFETY: the range is this block's (L2).
        dirty = !unsafe { pool.region.map_anew(start, pages as usize * PAGE) };
    }
    pool.give(page, pages, dirty);
    if dirty {
        holes::hint(pages);
    }
}

/// Keeps a block that a signal handler freed while this thread had the pool: the next holder of the pool gives it back.
fn defer(offset: u32) {
    // SAFETY: a live descriptor, given up by its owner.
    let large = unsafe { &*at::<Large>(offset) };
    remote::push(&DEFERRED, &large.deferred, offset, 0);
}

/// Gives back the blocks that [`defer`] kept.
#[inline]
pub fn take_deferred(pool: &mut Pool) {
    let mut next = remote::take_all(&DEFERRED);
    while next != 0 {
        // SAFETY: deferred blocks are live descriptors until now.
        unsafe {
            let this = next;
            next = remote::below(&(*at::<Large>(this)).deferred, 0);
            give(pool, this);
        }
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
        let page = page_of(start);
        let done = with_pool(who(), |pool| {
            if want > have && pool.extend(page + have, want - have).is_none() {
                return false;
            }
            (*large).pages = want;
            (*large).requested = n;
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
            holes::hint(have - want);
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
        unsafe { (*large).requested = n };
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
        let moved = pages >= MOVE_PAGES && tenant == 0 && may_move();
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
        // The old pages went away with the move.
        let offset = crate::state::offset_of(large);
        with_pool(who(), |pool| give_clean(pool, offset));
    }
    new
}

unsafe fn give_clean(pool: &mut Pool, offset: u32) {
    let large = at::<Large>(offset);
    // SAFETY: as for `give`.
    unsafe {
        if (*large).displaced != 0 {
            return give(pool, offset);
        }
        let page = page_of((*large).start);
        publish::clear(pool.region.map_entry(page));
        (*large).kind.store(0, Ordering::Relaxed); // ORDER: no thread may use the address any more
        let pages = (*large).pages;
        pool.region.desc_free(offset, 1);
        pool.give(page, pages, false);
        uncount_block(pages);
    }
}

/// Reports whether one more displaced run is allowed.
fn may_move() -> bool {
    // ORDER: a statistic.
    DISPLACED.load(Ordering::Relaxed) < DISPLACED_MAX
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::purger::{START_PAGES, STARTER};
    use crate::turn::turn;

    /// Pages that were hinted at while something was done.
    fn hinted(act: impl FnOnce()) -> u32 {
        STARTER.take();
        act();
        STARTER.take()
    }

    #[test]
    fn what_a_block_gives_back_is_hinted_at_to_the_page() {
        let _turn = turn();
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
        let _turn = turn();
        const PAGES: usize = MOVE_PAGES as usize;
        let pool = || with_pool(NOBODY, |pool| (pool.dirty_pages, pool.used_pages)).expect("free");
        let displaced = || DISPLACED.load(Ordering::Relaxed); // ORDER: one thread
        crate::purger::trim();
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
                seen.insert(crate::state::offset_of(large));
                free(move_to(large, (PAGES + 1) * PAGE));
            }
        }
        assert!(seen.len() <= 8, "{} descriptors", seen.len());
    }

    #[test]
    fn no_block_begins_inside_of_another() {
        let _turn = turn();
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
