//! The checks at malloc and free of a hardened process, in the order in which they are made.
//!
//! ```text
//!   malloc ─► sampled? ─► trailer ─► block        free ─► trailer whole? ─► quarantine? ─► wipe ─► the engine's free
//! ```
//!
//! The invariants are those of the folder (harden.Y1 to harden.Y5).
//!
//! Not here: what is checked in each way (the files beside this one).

use skinflint_base::sync::{AtomicU32, AtomicU64, Ordering};
use skinflint_base::sys;

use super::fill::{check_unchanged, wipe};
use super::trailer::Form;
use super::{
    guard, handler, points, quarantine, report, sampled, stacks, story, trailer, untouched, waiting,
};
use crate::heaps::fault::{self, Fault};
use crate::heaps::requests::hold;
use crate::heaps::slow::{HARDENED, Hardening};
use crate::heaps::{free, large, malloc, pool, requests, thread, tls};
use crate::mechanism::class::SMALL_MAX;
use crate::mechanism::heap::{Heap, owner_of, usage};
use crate::mechanism::lock::Who;
use crate::mechanism::map::descriptor;
use crate::mechanism::range::{self, base, limit};
use crate::mechanism::span::{KIND_LARGE, KIND_SMALL, Span};
use crate::services::modes::{self, has};

/// The functions that the engine's slow paths call while the hardening is on.
pub const PATHS: Hardening = Hardening {
    new_heap,
    malloc: malloc_small,
    malloc_large,
    memalign,
    realloc,
    usable,
    free_elsewhere,
    before_free,
    contents_unknown,
    relieve,
};

/// The byte that fills fresh blocks when poisoned: an odd address that is not canonical, and no number that is likely
/// by chance.
const FRESH: u8 = 0xAA;

/// Set once a tenant's memory went back as it was: from then on slots that are not zero prove nothing (harden.Y3).
static UNCLEAN: AtomicU32 = AtomicU32::new(0);

/// Small blocks from before the checks began: a bit for each 16 bytes of the first MiB.
struct Early([AtomicU64; EARLY_BYTES / 16 / 64]);
const EARLY_BYTES: usize = 1 << 20;
static EARLY: Early = Early([const { AtomicU64::new(0) }; EARLY_BYTES / 16 / 64]);

/// Begins the checks. To be called once, while there is only one thread (harden.Y2).
#[unsafe(link_section = ".text.skinflint_first")]
pub fn begin(checks: u32, sample_every: u32, quarantine_bytes: usize) {
    let mut checks = checks;
    if checks & modes::QUARANTINE != 0 {
        // harden.Y4, which a block that waits relies on.
        checks |= modes::CANARY;
    }
    if checks == 0 {
        return;
    }
    if checks & modes::SAMPLE != 0 && !sampled::begin(sample_every) {
        sys::stderr(b"skinflint: no memory for guarded samples: there will be none\n");
        checks &= !modes::SAMPLE;
    }
    if checks & modes::QUARANTINE != 0 && !quarantine::begin(quarantine_bytes) {
        sys::stderr(b"skinflint: no memory for a quarantine: there will be none\n");
        checks &= !modes::QUARANTINE;
    }
    if checks & (modes::SAMPLE | modes::GUARD | modes::QUARANTINE) != 0 {
        handler::install(report::on_fault);
    }
    if checks & modes::EVERY_FREE != 0 {
        if !remember_early() {
            sys::stderr(b"skinflint: too late for canary and quarantine: blocks are in use\n");
            checks &= !(modes::CANARY | modes::QUARANTINE);
        }
        range::set_slow_mode();
    }
    // ORDER: one thread (harden.Y2).
    HARDENED.store(checks, Ordering::Relaxed);
    pool::heaps().for_each(new_heap);
}

/// Notes what is live, and fills what is free with zero (harden.Y2, harden.Y3). `false`: there is too much to note.
fn remember_early() -> bool {
    let mut distance = 0;
    while distance < limit() {
        // SAFETY: below the limit.
        let span = unsafe { &*descriptor(distance) };
        // ORDER: one thread (harden.Y2).
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

/// Reports whether a small block carries no trailer (harden.Y2).
pub fn is_bare(span: &Span, p: *const u8) -> bool {
    // ORDER: set at start; cleared by the thread that frees the block.
    let early = early_bit(p).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0);
    // ORDER: a tenant's heap stays one for as long as it has blocks.
    early || owner_of(span).usage.load(Ordering::Relaxed) == usage::TENANT
}

/// Sends the mallocs of a new heap the slow way, if they are to be checked.
fn new_heap(heap: &Heap) {
    if points::are_used() {
        points::begin(heap);
    } else if has(modes::ALL) {
        hold(heap);
    }
}

/// Notes that tenants' pages were given back without a look at them (harden.Y3). The code that destroys a tenant calls this.
fn contents_unknown() {
    // ORDER: before the pages can be handed out, which the pool's lock orders.
    UNCLEAN.store(1, Ordering::Relaxed);
}

/// Allocates from 1 to [`SMALL_MAX`] bytes for a hardened process.
///
/// # Safety
/// The heap is this thread's, or the one that stands for a thread that ends.
#[inline(never)]
unsafe fn malloc_small(heap: *mut Heap, n: usize) -> *mut u8 {
    if !tls::is_ended(heap) {
        // SAFETY: a thread's heap stays (pool.G4).
        let this = unsafe { &*heap };
        if points::are_used() {
            if points::is_due(this, n)
                && let Some(block) = sampled::malloc(n, 16)
            {
                untouched::ask(sys::monotonic_ns());
                return block;
            }
            // SAFETY: the heap is this thread's.
            return unsafe { malloc::small(heap, n) };
        }
        hold(this);
        if has(modes::SAMPLE)
            && sampled::is_due(this)
            && let Some(block) = sampled::malloc(n, 16)
        {
            untouched::ask(sys::monotonic_ns());
            return block;
        }
    }
    small(n, 16)
}

/// Returns a small block with its trailer, at a multiple of `align`.
fn small(n: usize, align: usize) -> *mut u8 {
    let behind = if has(modes::CANARY) {
        trailer::BYTES
    } else {
        0
    };
    let all = (n + behind).next_multiple_of(align);
    if all > SMALL_MAX {
        return malloc::malloc_large(n, align).0;
    }
    let heap = tls::get();
    // SAFETY: the heap is this thread's, or borrowed for this call.
    let from = |heap: *mut Heap| unsafe {
        if align <= 16 {
            malloc::small(heap, all)
        } else {
            malloc::small_aligned(heap, all)
        }
    };
    let p = if heap.is_null() || tls::is_ended(heap) {
        thread::with_borrowed(|heap| from(core::ptr::from_ref(heap).cast_mut()))
    } else {
        from(heap)
    };
    let distance = (p as usize).wrapping_sub(base());
    if p.is_null() || distance >= limit() {
        // There is no block, or one for a signal handler (malloc.A3), whose alignment was not asked for.
        return if p as usize & (align - 1) == 0 {
            p
        } else {
            malloc::malloc_large(n, align).0
        };
    }
    // SAFETY: below the limit, and a block of ours.
    let size = unsafe { &*descriptor(distance) }.size();
    // ORDER: see `contents_unknown`.
    if has(modes::POISON) && UNCLEAN.load(Ordering::Relaxed) == 0 {
        check_unchanged(p, size, size, 0);
        // SAFETY: the block is ours, and has this many bytes.
        unsafe { core::ptr::write_bytes(p, FRESH, n) };
    }
    if has(modes::CANARY) {
        trailer::put(p, n, size);
    }
    p
}

/// Returns a small block at a multiple of `align`, up to a page. `None`: not handled here.
fn memalign(align: usize, n: usize) -> Option<*mut u8> {
    let heap = tls::get();
    if !has(modes::ALL) || heap.is_null() || align > 4096 || n > SMALL_MAX {
        return None;
    }
    if !tls::is_ended(heap) {
        // SAFETY: a thread's heap stays (pool.G4).
        let this = unsafe { &*heap };
        requests::count(this, n);
        if has(modes::SAMPLE)
            && sampled::is_due(this)
            && let Some(block) = sampled::malloc(n, align.max(16))
        {
            untouched::ask(sys::monotonic_ns());
            return Some(block);
        }
    }
    Some(small(n, align.max(16)))
}

/// Allocates a large block with guards, and says whether it is zero. `None`: not handled here.
#[inline]
fn malloc_large(n: usize, align: usize) -> Option<(*mut u8, bool)> {
    if has(modes::GUARD) {
        guard::malloc(n, align)
    } else {
        None
    }
}

/// Frees a block that is not in HEAP: a sampled one. `false`: it is not ours.
fn free_elsewhere(p: *mut u8) -> bool {
    sampled::is_ours(p as usize) && {
        sampled::free(p);
        true
    }
}

/// Checks a block that is about to be freed. `true`: the caller frees it.
///
/// # Safety
/// `p` is in HEAP.
unsafe fn before_free(p: *mut u8) -> bool {
    if !has(modes::EVERY_FREE) {
        return true;
    }
    // SAFETY: below the limit.
    let span = unsafe { &*descriptor(p as usize - base()) };
    // ORDER: the kind of a live block's descriptor does not change.
    match span.kind.load(Ordering::Relaxed) {
        // SAFETY: the descriptor of a small span, given up by its owner.
        KIND_SMALL => unsafe { before_free_small(span, p) },
        // SAFETY: `p` is in HEAP.
        KIND_LARGE => unsafe { waiting::before_free(p) },
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
    if !has(modes::CANARY) {
        wipe(p, size);
        return true;
    }
    if let Some((_, Form::Array)) = trailer::form(p, size) {
        fault::report(Fault::ArrayAsOne, p);
        return false;
    }
    match trailer::claim(p, size) {
        trailer::Claim::Whole => {}
        trailer::Claim::Freed => {
            fault::report(Fault::Double, p);
            return false;
        }
        trailer::Claim::Damaged(n, at) => fault::report_more(Fault::Overrun, p, |line| {
            if let Some(n) = n {
                line.add_size(n);
            }
            line.add(b", at byte ");
            line.add_number(at as u64);
        }),
    }
    if has(modes::QUARANTINE) && quarantine::push_small(p, size) {
        return false;
    }
    wipe(p, size);
    true
}

/// Returns the descriptor of what lies at an address. `None`: it is not in HEAP.
pub fn span_at(p: *const u8) -> Option<&'static Span> {
    let distance = (p as usize).wrapping_sub(base());
    // SAFETY: below the limit.
    (distance < limit()).then(|| unsafe { &*descriptor(distance) })
}

/// Returns the usable bytes of a block: exactly the requested ones, where those are known. `None`: it is not ours.
fn usable(p: *const u8) -> Option<usize> {
    if sampled::is_ours(p as usize) {
        return sampled::usable(p);
    }
    let span = span_at(p)?;
    // ORDER: the kind of a live block's descriptor does not change.
    match span.kind.load(Ordering::Relaxed) {
        KIND_SMALL if has(modes::CANARY) && !is_bare(span, p) => {
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
unsafe fn realloc(p: *mut u8, n: usize) -> Option<*mut u8> {
    if let Some(fault) = resize_fault(p) {
        fault::report(fault, p);
        return Some(malloc::fail());
    }
    let have = usable(p)?;
    // SAFETY: as the caller promises.
    unsafe {
        let new = malloc::malloc(n);
        if !new.is_null() {
            core::ptr::copy_nonoverlapping(p, new, have.min(n));
            free::free(p);
        }
        Some(new)
    }
}

/// Returns what is wrong with resizing a block that the engine takes for live: it waits, or is a sample that was freed.
fn resize_fault(p: *mut u8) -> Option<Fault> {
    if sampled::is_ours(p as usize) {
        return sampled::resize_fault(p);
    }
    let span = span_at(p)?;
    // ORDER: the kind of a live block's descriptor does not change.
    let waits = match span.kind.load(Ordering::Relaxed) {
        KIND_SMALL => has(modes::CANARY) && !is_bare(span, p) && trailer::is_freed(p, span.size()),
        // SAFETY: `p` is in HEAP; a found block is live to the engine.
        // ORDER: a look; no thread writes it while the block is live.
        KIND_LARGE => unsafe {
            large::find(p).is_some_and(|large| (*large).held.load(Ordering::Relaxed) != 0)
        },
        _ => false,
    };
    waits.then_some(Fault::ResizeFree)
}

/// Really frees the blocks that wait, when the OS refuses. `false`: no block waited.
fn relieve() -> bool {
    has(modes::QUARANTINE) && quarantine::flush()
}

/// Prepares for a fork (harden.Y5).
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
    story::forget();
}
