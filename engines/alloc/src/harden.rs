//! Checks beyond those that are always there; off unless asked for.
//!
//! ```text
//!   malloc ── budget below 0 ──► malloc ──┬─ one in N ──► sampled: a block between guard pages
//!                                         ├─ large ─────► guard: ends flush at a guard page
//!                                         └─ small ─────► trailer behind what was requested
//!   free ──── LIMIT is 0 ──────► before_free ──► trailer whole? ──► quarantine ──► unchanged? ──► zero ──► free
//! ```
//!
//! Y1  No code here is reached while everything is off: the budgets of heaps and LIMIT, which the fast paths read
//!     anyway, lead here. So it costs nothing.
//! Y2  The checks are chosen once, while there is only one thread. Small blocks from before that ([`Early`]) and those
//!     of tenants have no trailer, and are accepted as they are.
//! Y3  With `poison` or `zero` every free slot is zero: what is freed is filled with zero, and pages that
//!     come from the kernel are zero. So a slot that is not zero when it is handed out was written to.
//! Y4  `canary` claims a block by changing its trailer in one step: of two threads that free it, one finds it freed.
//! Y5  Locks here are taken before any other, and none of them while holding another.
//!
//! Not here: the checks that are always made (free.F1).

mod guard;
mod handler;
mod quarantine;
mod sampled;
mod stacks;
mod trailer;

use core::sync::atomic::compiler_fence;

use skinflint_base::sync::{AtomicU32, AtomicU64, Ordering};
use skinflint_base::sys;

use crate::class::SMALL_MAX;
use crate::fault::{self, Fault};
use crate::free::owner_of;
use crate::heap::{Heap, usage};
use crate::large;
use crate::lock::Who;
use crate::span::{KIND_LARGE, KIND_SMALL, Span};
use crate::state::{self, base, descriptor, limit};
use crate::{api, sample, thread, tls};

/// The checks that can be chosen.
pub mod mode {
    /// One in N blocks stands between guard pages.
    pub const SAMPLE: u32 = 1;
    /// Large blocks stand between guard pages.
    pub const GUARD: u32 = 2;
    /// Small blocks have a trailer.
    pub const CANARY: u32 = 4;
    /// Freed blocks are filled with zero.
    pub const ZERO: u32 = 8;
    /// Like `ZERO`, and checked when the block is handed out again, with a pattern in it.
    pub const POISON: u32 = 16;
    /// Freed blocks wait before they are used again.
    pub const QUARANTINE: u32 = 32;
    /// All checks.
    pub const ALL: u32 = 63;
    /// The checks that look at every free.
    pub(super) const EVERY_FREE: u32 = ALL & !SAMPLE;
}

/// The byte that fills fresh blocks when poisoned: an odd address that is not canonical, and no number that is likely
/// by chance.
const FRESH: u8 = 0xAA;

static MODE: AtomicU32 = AtomicU32::new(0);
/// Set once a tenant's memory went back as it was: from then on slots that are not zero prove nothing (Y3).
static UNCLEAN: AtomicU32 = AtomicU32::new(0);

/// Small blocks from before the checks began: a bit for each 16 bytes of the first MiB.
struct Early([AtomicU64; EARLY_BYTES / 16 / 64]);
const EARLY_BYTES: usize = 1 << 20;
static EARLY: Early = Early([const { AtomicU64::new(0) }; EARLY_BYTES / 16 / 64]);

fn has(checks: u32) -> bool {
    // ORDER: set at start (Y2).
    MODE.load(Ordering::Relaxed) & checks != 0
}

/// Reports whether every malloc goes the slow way.
#[inline]
pub fn is_on() -> bool {
    has(mode::ALL)
}

/// Begins the checks. To be called once, while there is only one thread (Y2).
pub fn begin(checks: u32, sample_every: u32, quarantine_bytes: usize) {
    let mut checks = checks;
    if checks & mode::QUARANTINE != 0 {
        // Y4, which a block that waits relies on.
        checks |= mode::CANARY;
    }
    if checks == 0 {
        return;
    }
    if checks & mode::SAMPLE != 0 && !sampled::begin(sample_every) {
        sys::stderr(b"skinflint: no memory for guarded samples: there will be none\n");
        checks &= !mode::SAMPLE;
    }
    if checks & mode::QUARANTINE != 0 && !quarantine::begin(quarantine_bytes) {
        sys::stderr(b"skinflint: no memory for a quarantine: there will be none\n");
        checks &= !mode::QUARANTINE;
    }
    if checks & (mode::SAMPLE | mode::GUARD | mode::QUARANTINE) != 0 {
        handler::install();
    }
    if checks & mode::EVERY_FREE != 0 {
        if !remember_early() {
            sys::stderr(b"skinflint: too late for canary and quarantine: blocks are in use\n");
            checks &= !(mode::CANARY | mode::QUARANTINE);
        }
        state::set_slow_mode();
    }
    // ORDER: one thread (Y2).
    MODE.store(checks, Ordering::Relaxed);
    state::heaps().for_each(new_heap);
}

/// Notes what is live, and fills what is free with zero (Y2, Y3). `false`: there is too much to note.
fn remember_early() -> bool {
    let mut distance = 0;
    while distance < limit() {
        // SAFETY: below the limit.
        let span = unsafe { &*descriptor(distance) };
        // ORDER: one thread (Y2).
        if span.kind.load(Ordering::Relaxed) == KIND_SMALL {
            for slot in 0..span.slots as usize {
                let p = span.start() + slot * span.size();
                if span.is_live(slot) {
                    let Some(word) = EARLY.0.get((p - base()) / 16 / 64) else {
                        return false;
                    };
                    // ORDER: as above.
                    word.fetch_or(1 << ((p - base()) / 16 % 64), Ordering::Relaxed);
                } else if !trailer::is_filled(p, span.size(), 0) {
                    // Read first: what was never touched must stay untouched.
                    // SAFETY: a free slot of the only thread.
                    unsafe { core::ptr::write_bytes(p as *mut u8, 0, span.size()) };
                }
            }
        }
        distance += 4096;
    }
    true
}

/// Returns the early block's bit, if there can be one.
fn early_bit(p: *const u8) -> Option<(&'static AtomicU64, u64)> {
    let granule = (p as usize - base()) / 16;
    Some((EARLY.0.get(granule / 64)?, 1 << (granule % 64)))
}

/// Reports whether a small block carries no trailer (Y2).
fn is_bare(span: &Span, p: *const u8) -> bool {
    // ORDER: set at start; cleared by the thread that frees the block.
    let early = early_bit(p).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0);
    // ORDER: a tenant's heap stays one for as long as it has blocks.
    early || owner_of(span).usage.load(Ordering::Relaxed) == usage::TENANT
}

/// Sends the mallocs of a new heap the slow way, if they are to be checked.
pub fn new_heap(heap: &Heap) {
    if is_on() {
        hold(heap);
    }
}

/// Keeps the budget below 0, and the sum of requested bytes (`requested` less `budget`) as it is.
fn hold(heap: &Heap) {
    // ORDER: this thread's own (heap.H1).
    let budget = heap.budget.load(Ordering::Relaxed);
    let used = (-1i64).wrapping_sub(budget) as u64;
    heap.requested.fetch_add(used, Ordering::Relaxed); // ORDER: a statistic
    heap.budget.store(-1, Ordering::Relaxed); // ORDER: as above
}

/// Notes that tenants' pages were given back without a look at them (Y3). The code that destroys a tenant calls this.
pub fn contents_unknown() {
    // ORDER: before the pages can be handed out, which the pool's lock orders.
    UNCLEAN.store(1, Ordering::Relaxed);
}

/// Allocates from 1 to [`SMALL_MAX`] bytes for a hardened process.
///
/// # Safety
/// The heap is this thread's, or the one that stands for a thread that ends.
#[inline(never)]
pub unsafe fn malloc(heap: *mut Heap, n: usize) -> *mut u8 {
    if !thread::is_ended(heap) {
        // SAFETY: a thread's heap stays (state.G4).
        let this = unsafe { &*heap };
        hold(this);
        if has(mode::SAMPLE)
            && sampled::is_due(this)
            && let Some(block) = sampled::malloc(n, 16)
        {
            return block;
        }
    }
    small(n, 16)
}

/// Returns a small block with its trailer, at a multiple of `align`.
fn small(n: usize, align: usize) -> *mut u8 {
    let behind = if has(mode::CANARY) { trailer::BYTES } else { 0 };
    let all = (n + behind).next_multiple_of(align);
    if all > SMALL_MAX {
        return api::malloc_large(n, align).0;
    }
    let heap = tls::get();
    // SAFETY: the heap is this thread's, or borrowed for this call.
    let from = |heap: *mut Heap| unsafe {
        if align <= 16 {
            api::small(heap, all)
        } else {
            api::small_aligned(heap, all)
        }
    };
    let p = if heap.is_null() || thread::is_ended(heap) {
        thread::with_borrowed(|heap| from(core::ptr::from_ref(heap).cast_mut()))
    } else {
        from(heap)
    };
    let distance = (p as usize).wrapping_sub(base());
    if p.is_null() || distance >= limit() {
        // There is no block, or one for a signal handler (api.A3), whose alignment was not asked for.
        return if p as usize & (align - 1) == 0 {
            p
        } else {
            api::malloc_large(n, align).0
        };
    }
    // SAFETY: below the limit, and a block of ours.
    let size = unsafe { &*descriptor(distance) }.size();
    // ORDER: see `contents_unknown`.
    if has(mode::POISON) && UNCLEAN.load(Ordering::Relaxed) == 0 {
        check_unchanged(p, size, size, 0);
        // SAFETY: the block is ours, and has this many bytes.
        unsafe { core::ptr::write_bytes(p, FRESH, n) };
    }
    if has(mode::CANARY) {
        trailer::put(p, n, size);
    }
    p
}

/// Looks for bytes that were changed since the block was freed.
fn check_unchanged(p: *mut u8, size: usize, checked: usize, fill: u8) {
    if trailer::is_filled(p as usize, checked, fill) {
        return;
    }
    let at = (0..checked)
        // SAFETY: the block has this many bytes.
        .find(|&i| unsafe { p.add(i).read_volatile() } != fill)
        .unwrap_or(0);
    fault::report_more(Fault::Written, p, |line| {
        line.add(b", byte ");
        line.add_number(at as u64);
        line.add(b" of ");
        line.add_number(size as u64);
    });
    // If the program goes on: as if nothing were wrong.
    // SAFETY: as above.
    unsafe { core::ptr::write_bytes(p, 0, checked) };
}

/// Returns a small block at a multiple of `align`, up to a page. `None`: not handled here.
pub fn memalign(align: usize, n: usize) -> Option<*mut u8> {
    let heap = tls::get();
    if !is_on() || heap.is_null() || align > 4096 || n > SMALL_MAX {
        return None;
    }
    if !thread::is_ended(heap) {
        // SAFETY: a thread's heap stays (state.G4).
        let this = unsafe { &*heap };
        sample::large(this, n);
        if has(mode::SAMPLE)
            && sampled::is_due(this)
            && let Some(block) = sampled::malloc(n, align.max(16))
        {
            return Some(block);
        }
    }
    Some(small(n, align.max(16)))
}

/// Allocates a large block with guards, and says whether it is zero. `None`: not handled here.
#[inline]
pub fn malloc_large(n: usize, align: usize) -> Option<(*mut u8, bool)> {
    if has(mode::GUARD) {
        guard::malloc(n, align)
    } else {
        None
    }
}

/// Frees a block that is not in HEAP: a sampled one. `false`: it is not ours.
pub fn free_elsewhere(p: *mut u8) -> bool {
    sampled::is_ours(p as usize) && {
        sampled::free(p);
        true
    }
}

/// Checks a block that is about to be freed. `true`: the caller frees it.
///
/// # Safety
/// `p` is in HEAP.
pub unsafe fn before_free(p: *mut u8) -> bool {
    if !has(mode::EVERY_FREE) {
        return true;
    }
    // SAFETY: below the limit.
    let span = unsafe { &*descriptor(p as usize - base()) };
    // ORDER: the kind of a live block's descriptor does not change.
    match span.kind.load(Ordering::Relaxed) {
        // SAFETY: the descriptor of a small span, given up by its owner.
        KIND_SMALL => unsafe { before_free_small(span, p) },
        // SAFETY: `p` is in HEAP.
        KIND_LARGE => unsafe { guard::before_free(p) },
        _ => true,
    }
}

unsafe fn before_free_small(span: &Span, p: *mut u8) -> bool {
    let size = span.size();
    let Some(slot) = span.slot_of(p as usize) else {
        fault::report(Fault::Misaligned, p);
        return false;
    };
    if !span.is_live(slot) {
        fault::report(Fault::Double, p);
        return false;
    }
    if is_bare(span, p) {
        if let Some((word, bit)) = early_bit(p) {
            word.fetch_and(!bit, Ordering::Relaxed); // ORDER: the block's own bit
        }
        wipe(p, size);
        return true;
    }
    if !has(mode::CANARY) {
        wipe(p, size);
        return true;
    }
    match trailer::claim(p, size) {
        trailer::Claim::Whole => {}
        trailer::Claim::Freed => {
            fault::report(Fault::Double, p);
            return false;
        }
        trailer::Claim::Damaged(n, at) => fault::report_more(Fault::Overrun, p, |line| {
            if let Some(n) = n {
                line.add(b", of ");
                line.add_number(n as u64);
                line.add(b" bytes");
            }
            line.add(b", at byte ");
            line.add_number(at as u64);
        }),
    }
    if has(mode::QUARANTINE) && quarantine::push_small(p, size) {
        return false;
    }
    wipe(p, size);
    true
}

/// Fills a small block that is about to be free (Y3), and removes its trailer.
fn wipe(p: *mut u8, size: usize) {
    if has(mode::ZERO | mode::POISON) {
        // SAFETY: the block is given up, and has this many bytes.
        unsafe { core::ptr::write_bytes(p, 0, size) };
        // The compiler must not think the fill useless.
        compiler_fence(Ordering::SeqCst); // ORDER: of the compiler only. [reason: compiler]
    } else if has(mode::CANARY) {
        trailer::forget(p, size);
    }
}

/// Returns the usable bytes of a block: exactly the requested ones, where those are known. `None`: it is not ours.
pub fn usable(p: *const u8) -> Option<usize> {
    if sampled::is_ours(p as usize) {
        return sampled::usable(p);
    }
    let distance = (p as usize).wrapping_sub(base());
    if distance >= limit() {
        return None;
    }
    // SAFETY: below the limit.
    let span = unsafe { &*descriptor(distance) };
    // ORDER: the kind of a live block's descriptor does not change.
    match span.kind.load(Ordering::Relaxed) {
        KIND_SMALL if has(mode::CANARY) && !is_bare(span, p) => {
            Some(trailer::requested(p, span.size()))
        }
        KIND_SMALL => Some(span.size()),
        // SAFETY: `p` is in HEAP.
        KIND_LARGE => unsafe { large::find(p.cast_mut()).map(|large| guard::usable(large)) },
        _ => None,
    }
}

/// Resizes a block by moving it, so that old addresses of it become invalid. `None`: it is not ours.
///
/// # Safety
/// As for `realloc`; `n` is not 0.
pub unsafe fn realloc(p: *mut u8, n: usize) -> Option<*mut u8> {
    let have = usable(p)?;
    // SAFETY: as the caller promises.
    unsafe {
        let new = api::malloc(n);
        if !new.is_null() {
            core::ptr::copy_nonoverlapping(p, new, have.min(n));
            crate::free::free(p);
        }
        Some(new)
    }
}

/// Really frees the blocks that wait, when the OS refuses. `false`: no block waited.
pub fn relieve() -> bool {
    has(mode::QUARANTINE) && quarantine::flush()
}

/// Prepares for a fork (Y5).
pub fn before_fork(who: Who) {
    let _ = quarantine::LOCK.lock(who);
    let _ = sampled::LOCK.lock(who);
}

/// Runs after a fork, in the parent.
pub fn after_fork(who: Who) {
    for lock in [&sampled::LOCK, &quarantine::LOCK] {
        if lock.is_held_by(who) {
            lock.unlock();
        }
    }
}

/// Runs after a fork, in the child.
pub fn in_child() {
    sampled::LOCK.reset();
    quarantine::LOCK.reset();
    stacks::forget();
}
