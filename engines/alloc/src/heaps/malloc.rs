//! malloc, calloc, realloc, memalign: the fast paths, and the slow path that each leads to.
//!
//! ```text
//!   malloc(n) ── n <= 32 KiB ──► this thread's heap ── budget? ── magazine ──► block
//!                  └ else ► large      └ none ► enter     └ used up ► sample  └ empty ► current span, next span
//! ```
//!
//! A1  A failing call returns null and sets `errno` to ENOMEM; a succeeding one leaves it alone.
//! A2  Every block is aligned to 16 bytes at least, and all of its usable size may be written.
//! A3  A signal handler that interrupts a slow path of its own thread gets memory that is never used
//!     again (`emergency`): it does not wait for ever. Interrupting a fast path and allocating is as
//!     wrong here as with every other allocator.
//!
//! Not here: free (`free`), the C names (`malloc-so`).

use skinflint_base::sync::Ordering;

use super::fault::{self, Fault};
use super::free::free;
use super::large::Large;
use super::pool::POOL_LOCK;
use super::{emergency, large, neighbour, profiled, requests, slow, thread, tls};
use crate::mechanism::branch::branch;
use crate::mechanism::class::{self, SLICES, SMALL_MAX};
use crate::mechanism::grown::MOVES_MAX;
use crate::mechanism::heap::{BUDGET_AT, Heap};
use crate::mechanism::map::{descriptor, descriptor_from};
use crate::mechanism::range::{self, base, fast_limit, limit, meta_and_distance};
use crate::mechanism::span::{KIND_CACHED, KIND_LARGE, KIND_SAMPLED, KIND_SMALL, Span};

/// Allocates `n` bytes. Cost for a small size: 24 instructions, with eleven loads and four stores among them and no
/// locked instruction (callgrind, `pair48`, 2026-11-25).
///
/// # Safety
/// Safe to call in itself; unsafe since the block must be freed by this allocator.
#[inline(always)]
pub unsafe fn malloc(n: usize) -> *mut u8 {
    // 0 wraps around, and goes the other way.
    let slice = n.wrapping_sub(1) >> 4;
    if slice >= SLICES {
        return malloc_unusual(n);
    }
    let heap = tls::heap_or_marker();
    // SAFETY: a thread's heap stays (pool.G4), and is this thread's. A marker's budget is used up (tls.T2).
    unsafe {
        // `budget -= n; if budget < 0`.
        // ORDER: as Relaxed: this thread's own (heap.H1), which other threads look at.
        #[cfg(target_arch = "x86_64")]
        branch!(
            "sub qword ptr [{heap} + {budget}], {n}",
            "js",
            [heap = in(reg) heap, budget = const BUDGET_AT, n = in(reg) n],
            [],
            else {
                // SAFETY: as above.
                return unsafe { malloc_sampled(n, heap) };
            }
        );
        #[cfg(not(target_arch = "x86_64"))]
        if (*heap).spend(n) {
            return malloc_sampled(n, heap);
        }
        let block = Heap::pop_slice(heap, slice);
        if block.is_null() {
            return malloc_slow(n, heap);
        }
        block
    }
}

/// Does what [`malloc`] does, out of line.
///
/// # Safety
/// As for [`malloc`].
#[inline(never)]
#[unsafe(link_section = ".text.skinflint_first")]
pub unsafe extern "C" fn malloc_any(n: usize) -> *mut u8 {
    // SAFETY: as the caller promises.
    unsafe { malloc(n) }
}

/// Allocates where the fast path cannot: the thread has no heap yet, or `n` is 0 or large.
#[cold]
#[inline(never)]
#[unsafe(link_section = ".text.skinflint_first")]
extern "C" fn malloc_unusual(n: usize) -> *mut u8 {
    if n > SMALL_MAX {
        return malloc_large(n, 1).0;
    }
    if tls::get().is_null() && thread::enter().is_null() {
        return fail();
    }
    // SAFETY: now the thread has a heap.
    unsafe { malloc(n.max(1)) }
}

/// Allocates when the budget is used up: a sample is due, or the thread has no heap yet or no more, or every call is
/// checked. `n` was taken off the budget, and is at most [`SMALL_MAX`].
///
/// # Safety
/// The heap is this thread's, or a marker ([`tls`]).
#[cold]
#[inline(never)]
#[unsafe(link_section = ".text.skinflint_first")]
pub unsafe extern "C" fn malloc_sampled(n: usize, heap: *mut Heap) -> *mut u8 {
    let n = n.max(1);
    if tls::is_none(heap) {
        return malloc_unusual(n);
    }
    if let Some(hardening) = slow::hardening() {
        // SAFETY: the heap is this thread's, or stands for one that ends.
        return unsafe { (hardening.malloc)(heap, n) };
    }
    if tls::is_ended(heap) {
        requests::elsewhere(n as u64);
        return thread::with_borrowed(|heap| {
            // SAFETY: the heap is borrowed for this call.
            unsafe { small(core::ptr::from_ref(heap).cast_mut(), n) }
        });
    }
    // SAFETY: a thread's heap stays (pool.G4).
    if let Some(block) = (slow::paths().sampled)(unsafe { &*heap }, n) {
        return block;
    }
    // SAFETY: the heap is this thread's.
    unsafe { small(heap, n) }
}

/// Allocates from a heap, without budget and checks; `n` is from 1 to [`SMALL_MAX`].
///
/// # Safety
/// The heap is this thread's.
pub unsafe fn small(heap: *mut Heap, n: usize) -> *mut u8 {
    let class = class::of_slice((n - 1) >> 4);
    // SAFETY: as the caller promises.
    unsafe {
        let block = (*heap).pop_block(class);
        if block.is_null() {
            return malloc_slow(n, heap);
        }
        block
    }
}

/// Allocates like [`small`], at a multiple of a power of two up to a page; `n` must be a multiple of that power. Spans
/// begin on pages, and the base class of a multiple of a power of two is one too; an earned class need not be.
///
/// # Safety
/// As for [`small`].
pub unsafe fn small_aligned(heap: *mut Heap, n: usize) -> *mut u8 {
    // SAFETY: as the caller promises.
    unsafe { small_of(heap, class::base_class(n), n) }
}

/// Allocates from a class of a heap, without budget and checks.
///
/// # Safety
/// The heap is this thread's.
#[unsafe(link_section = ".text.skinflint_first")]
unsafe fn small_of(heap: *mut Heap, class: usize, n: usize) -> *mut u8 {
    // SAFETY: as the caller promises.
    unsafe {
        let block = (*heap).pop_block(class);
        if !block.is_null() {
            return block;
        }
        let mut round = 0;
        loop {
            let made = (*heap).refill(class);
            slow::look();
            match made {
                None => return in_handler(n, 16),
                // The same case, further down: the slow path had let go of the heap.
                Some(block) if block.is_null() && POOL_LOCK.is_held_by((*heap).who()) => {
                    return in_handler(n, 16);
                }
                Some(block) if !block.is_null() => return block,
                Some(_) if slow::out_of_memory(n, &mut round) => {}
                Some(_) => return fail(),
            }
        }
    }
}

/// Allocates when the magazine is empty. `n` was taken off the budget, and is at most [`SMALL_MAX`].
///
/// # Safety
/// The heap is this thread's, or a marker if `n` is 0: only then may a marker's budget not be used up.
#[cold]
#[inline(never)]
#[unsafe(link_section = ".text.skinflint_first")]
pub unsafe extern "C" fn malloc_slow(n: usize, heap: *mut Heap) -> *mut u8 {
    if n == 0 {
        return malloc_unusual(n);
    }
    let slice = (n - 1) >> 4;
    let class = class::of_slice(slice);
    // SAFETY: a thread's heap stays (pool.G4), and is this thread's (span.S2).
    unsafe {
        // ORDER: the owner's own (heap.H1).
        (*heap).asked.store(slice as u32, Ordering::Relaxed);
        slow::check();
        small_of(heap, class, n)
    }
}

/// Allocates a large block; the second value says whether it is known to be zero.
pub fn malloc_large(n: usize, align: usize) -> (*mut u8, bool) {
    if n > isize::MAX as usize {
        return (fail(), false);
    }
    let mut heap = tls::get();
    if heap.is_null() {
        if thread::enter().is_null() {
            return (fail(), false);
        }
        heap = tls::get();
    }
    let ended = tls::is_ended(heap);
    if ended {
        requests::elsewhere(n as u64);
    } else {
        // SAFETY: a thread's heap stays (pool.G4).
        let this = unsafe { &*heap };
        requests::count(this, n);
    }
    if slow::watched()
        && let Some(made) = malloc_large_watched(n, align)
    {
        return made;
    }
    // SAFETY: the heap is this thread's, unless it stands for one that ends.
    unsafe { malloc_large_from(heap, ended, n, align) }
}

/// Allocates a large block where the hardening or a profile is on. `None`: it goes without guards.
#[cold]
#[inline(never)]
fn malloc_large_watched(n: usize, align: usize) -> Option<(*mut u8, bool)> {
    if let Some(hardening) = slow::hardening() {
        return (hardening.malloc_large)(n, align);
    }
    let heap = tls::get();
    // SAFETY: as for the caller, which has seen to it that there is a heap.
    let made = unsafe { malloc_large_from(heap, tls::is_ended(heap), n, align) };
    profiled::large(made.0, n);
    Some(made)
}

/// Allocates a large block that is counted.
///
/// # Safety
/// The heap is this thread's, unless `ended`.
#[inline(always)]
unsafe fn malloc_large_from(
    heap: *mut Heap,
    ended: bool,
    n: usize,
    align: usize,
) -> (*mut u8, bool) {
    // SAFETY: a thread's heap stays (pool.G4).
    if !ended && let Some(block) = unsafe { large::take_kept(&*heap, n, align) } {
        slow::look();
        return (block, false);
    }
    let mut round = 0;
    loop {
        let made = large::malloc_new(n, align);
        if !made.0.is_null() {
            slow::look();
            return made;
        }
        if POOL_LOCK.is_held_by(tls::who()) {
            return (in_handler(n, align), true);
        }
        if !slow::out_of_memory(n, &mut round) {
            return (fail(), false);
        }
    }
}

/// Sets errno and returns null (A1).
#[cold]
#[inline(never)]
pub fn fail() -> *mut u8 {
    // SAFETY: the thread's own errno.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    core::ptr::null_mut()
}

/// Allocates for a signal handler that interrupted this thread's own slow path (A3).
#[cold]
fn in_handler(n: usize, align: usize) -> *mut u8 {
    let block = emergency::malloc(n, align);
    if block.is_null() { fail() } else { block }
}

/// Allocates `count * n` bytes of zeroes.
///
/// # Safety
/// As for [`malloc`].
#[inline]
pub unsafe fn calloc(count: usize, n: usize) -> *mut u8 {
    let Some(bytes) = count.checked_mul(n) else {
        return fail();
    };
    if bytes > SMALL_MAX {
        let (block, zero) = malloc_large(bytes, 1);
        if !zero && !block.is_null() {
            // SAFETY: the block has this many bytes.
            unsafe { core::ptr::write_bytes(block, 0, bytes) };
        }
        return block;
    }
    // SAFETY: as the caller promises; the block has this many bytes.
    unsafe {
        let block = malloc(bytes);
        if !block.is_null() {
            core::ptr::write_bytes(block, 0, bytes);
        }
        block
    }
}

/// Allocates `n` bytes at a multiple of `align`, a power of two.
///
/// # Safety
/// As for [`malloc`].
pub unsafe fn memalign(align: usize, n: usize) -> *mut u8 {
    debug_assert!(align.is_power_of_two());
    if n > isize::MAX as usize || align > isize::MAX as usize {
        return fail();
    }
    if slow::watched()
        && let Some(block) = memalign_watched(align, n)
    {
        return block;
    }
    if align <= 16 {
        // SAFETY: as the caller promises.
        return unsafe { malloc(n) };
    }
    let rounded = n.max(1).next_multiple_of(align);
    if align <= 4096 && rounded <= SMALL_MAX && !range::slow_mode() {
        let heap = tls::get();
        if heap.is_null() && thread::enter().is_null() {
            return fail();
        }
        let heap = tls::get();
        if !tls::is_ended(heap) {
            // SAFETY: the heap is this thread's.
            return unsafe {
                requests::count(&*heap, n);
                small_aligned(heap, rounded)
            };
        }
    }
    malloc_large(n.max(1), align).0
}

/// Allocates at an alignment where the hardening or a profile is on. `None`: that makes no difference to this request.
#[cold]
#[inline(never)]
fn memalign_watched(align: usize, n: usize) -> Option<*mut u8> {
    if let Some(hardening) = slow::hardening() {
        return (hardening.memalign)(align, n.max(1));
    }
    let rounded = n.max(1).next_multiple_of(align);
    let heap = tls::get();
    if !(32..=4096).contains(&align) || rounded > SMALL_MAX || heap.is_null() || tls::is_ended(heap)
    {
        return None;
    }
    // SAFETY: a thread's heap stays (pool.G4).
    (slow::paths().profile.aligned)(unsafe { &*heap }, n, rounded)
}

/// A descriptor that may be asked about a block.
enum Block {
    Small(&'static Span),
    Large(*mut Large),
    Unknown,
}

fn find(p: *mut u8) -> Block {
    let distance = (p as usize).wrapping_sub(base());
    // Of a hardened process nothing is known here (harden.Y1).
    if distance >= fast_limit() {
        return Block::Unknown;
    }
    // SAFETY: below the limit; MAP leads to descriptors.
    unsafe {
        let span = &*descriptor(distance);
        // ORDER: the kind of a live block's descriptor does not change.
        match span.kind.load(Ordering::Relaxed) {
            KIND_SMALL | KIND_SAMPLED => Block::Small(span),
            KIND_LARGE => large::find(p).map_or(Block::Unknown, Block::Large),
            _ => Block::Unknown,
        }
    }
}

/// Returns what is wrong with resizing what is at an address; `None`: a live block begins there, or it is no address of
/// HEAP. Cost for a small block: what a free looks at, and nothing is changed.
///
/// Without it a block that was freed would be returned in its place, and the next malloc would hand it out once more.
pub fn resize_fault(p: *mut u8) -> Option<Fault> {
    let distance = (p as usize).wrapping_sub(base());
    if distance >= limit() {
        return None;
    }
    // SAFETY: below the limit; MAP leads to descriptors.
    let span = unsafe { &*descriptor(distance) };
    // ORDER: the kind of a live block's descriptor does not change.
    match span.kind.load(Ordering::Relaxed) {
        KIND_SMALL | KIND_SAMPLED => small_fault(span, p),
        // SAFETY: below the limit.
        KIND_LARGE if unsafe { large::find(p) }.is_some() => None,
        KIND_LARGE => Some(Fault::ResizeInside),
        KIND_CACHED => Some(Fault::ResizeFree),
        _ => Some(Fault::ResizeUnknown),
    }
}

#[inline]
fn small_fault(span: &Span, p: *mut u8) -> Option<Fault> {
    match span.slot_at(p as usize) {
        None => Some(Fault::ResizeInside),
        // The slot behind the last is dead, too (span.S8).
        Some(slot) if span.is_live(slot) => None,
        Some(slot) if slot >= span.slots as usize => Some(Fault::ResizeInside),
        Some(_) => Some(Fault::ResizeFree),
    }
}

/// Reports a block that cannot be resized (free.F1), and fails.
#[cold]
#[inline(never)]
fn refuse(p: *mut u8, fault: Fault) -> *mut u8 {
    fault::report(fault, p);
    fail()
}

/// Reports whether an address lies in HEAP, where nothing is a neighbour's (neighbour.N2).
fn is_in_heap(p: *const u8) -> bool {
    (p as usize).wrapping_sub(base()) < limit()
}

/// Returns the bytes of a block that may be used: at least the requested ones. 0 for null and for addresses that are
/// not ours.
///
/// # Safety
/// `p` is null or a live block, or not ours.
pub unsafe fn usable_size(p: *const u8) -> usize {
    match find(p.cast_mut()) {
        Block::Small(span) => span.size(),
        // SAFETY: a live large block.
        Block::Large(large) => unsafe { (*large).pages as usize * 4096 },
        // SAFETY: a block of the range.
        Block::Unknown if emergency::holds(p as usize) => unsafe { emergency::size(p) },
        Block::Unknown => slow::hardening()
            .and_then(|hardening| (hardening.usable)(p))
            .or_else(|| {
                if is_in_heap(p) {
                    None
                } else {
                    neighbour::usable(p)
                }
            })
            .unwrap_or(0),
    }
}

/// Resizes a block, in place where that is possible. `realloc(p, 0)` frees and returns null, as glibc's
/// does; on failure the block is as it was. Cost for a small block that stays: 39 instructions.
///
/// # Safety
/// `p` is null or a live block; it is given up if the call succeeds.
#[inline]
pub unsafe fn realloc(p: *mut u8, n: usize) -> *mut u8 {
    let (meta, distance) = meta_and_distance(p as usize);
    // Null is far above the limit. Of a hardened process nothing is known here (harden.Y1).
    if distance < fast_limit() {
        // SAFETY: below the limit; MAP leads to descriptors.
        let span = unsafe { descriptor_from(meta, distance) };
        // ORDER: the kind of a live block's descriptor does not change.
        if span.kind.load(Ordering::Relaxed) == KIND_SMALL && small_fault(span, p).is_none() {
            let have = span.size();
            return if stays_surely(have, n) {
                p
            } else {
                // SAFETY: as the caller promises.
                unsafe { resize(p, have, n) }
            };
        }
    }
    // SAFETY: as the caller promises.
    unsafe { realloc_unusual(p, n) }
}

/// Reports whether a block that is no smaller than wanted is to be kept where it is: half a block is, for a copy costs more
/// than the slop, which a next growth uses.
#[inline]
fn stays(have: usize, n: usize) -> bool {
    n > have / 2 || have <= 32
}

/// Reports whether a block certainly stays: between half of what it has, and all of that. `n` may be 0, which says no.
#[inline(always)]
fn stays_surely(have: usize, n: usize) -> bool {
    // A larger `n` wraps around. The sizes of classes are even.
    have.wrapping_sub(n) < have / 2
}

/// Resizes what is no small block, or nothing that can be resized.
#[inline(never)]
unsafe fn realloc_unusual(p: *mut u8, n: usize) -> *mut u8 {
    // SAFETY: as for `realloc`, throughout.
    unsafe {
        if p.is_null() {
            return malloc(n);
        }
        let have = match find(p) {
            Block::Small(span) => match small_fault(span, p) {
                // Other small blocks come here only if they do not stay.
                None if n <= span.size() && stays(span.size(), n) && n > 0 => {
                    profiled::stayed(p, n);
                    return p;
                }
                None => span.size(),
                Some(_) if n == 0 => 0,
                Some(fault) => return refuse(p, fault),
            },
            Block::Large(large) if n == 0 || n > isize::MAX as usize => {
                (*large).pages as usize * 4096
            }
            Block::Large(large) if slow::profiled() => return realloc_large_profiled(large, p, n),
            Block::Large(large) => return realloc_large(large, p, n),
            Block::Unknown if n == 0 || n > isize::MAX as usize => 0,
            Block::Unknown if emergency::holds(p as usize) => emergency::size(p),
            Block::Unknown => {
                if let Some(fault) = resize_fault(p) {
                    return refuse(p, fault);
                }
                if let Some(hardening) = slow::hardening()
                    && let Some(new) = (hardening.realloc)(p, n)
                {
                    return new;
                }
                if emergency::is_nobodys(p) {
                    return fail();
                }
                match neighbour::usable(p) {
                    Some(have) => have,
                    None => {
                        fault::report(Fault::Foreign, p);
                        return fail();
                    }
                }
            }
        };
        resize(p, have, n)
    }
}

/// Resizes a block of so many bytes, which is not large.
#[inline(never)]
unsafe fn resize(p: *mut u8, have: usize, n: usize) -> *mut u8 {
    // SAFETY: as for `realloc`.
    unsafe {
        if n == 0 {
            free(p);
            return core::ptr::null_mut();
        }
        if n > isize::MAX as usize {
            return fail();
        }
        if n <= have && stays(have, n) {
            return p;
        }
        // A block that grows beyond the small sizes will probably grow again: see `large::move_to`.
        if n > have {
            grow(p, have, n)
        } else {
            move_block(p, have, n)
        }
    }
}

/// Moves a block that is to have more bytes. One that grows in small steps, and moved three times for that, gets a quarter
/// more than is asked for: of 47 moves to 4 KiB in steps of 16 bytes 16 are left. (From the second move on it would be 15, and
/// the blocks of a program that appends once or twice would stay a quarter too long.)
///
/// # Safety
/// As for [`realloc`].
unsafe fn grow(p: *mut u8, have: usize, n: usize) -> *mut u8 {
    let heap = tls::get();
    if heap.is_null() || tls::is_ended(heap) {
        // SAFETY: as the caller promises.
        return unsafe { move_block(p, have, n) };
    }
    // SAFETY: a thread's heap stays (pool.G4).
    let this = unsafe { &*heap };
    let mut wish = n;
    let moves = this.grown.take(p);
    if moves == MOVES_MAX && n - have <= (have / 4).max(16) {
        let more = (n + n / 4).min(SMALL_MAX).saturating_sub(n);
        // ORDER: this thread's own (heap.H1), here and below.
        let left = this.budget.load(Ordering::Relaxed);
        // A request that may be a sample goes as it is; of others that is counted which the program asked for (sample.Q3).
        if left >= (n + more) as i64 {
            wish += more;
            this.budget.store(left + more as i64, Ordering::Relaxed); // ORDER: as above
        }
    }
    // SAFETY: as the caller promises.
    let new = unsafe { move_block(p, have, wish) };
    this.grown.note(new, moves + 1);
    new
}

unsafe fn move_block(p: *mut u8, have: usize, n: usize) -> *mut u8 {
    // SAFETY: as for `realloc`.
    unsafe {
        let new = malloc(n);
        if !new.is_null() {
            core::ptr::copy_nonoverlapping(p, new, have.min(n));
            free(p);
        }
        new
    }
}

/// Does what [`realloc_large`] does, and tells the profile.
#[cold]
#[inline(never)]
unsafe fn realloc_large_profiled(large: *mut Large, p: *mut u8, n: usize) -> *mut u8 {
    // SAFETY: as for `realloc`.
    unsafe {
        let have = (*large).pages as usize * 4096;
        let sample = profiled::begin(large);
        let new = realloc_large(large, p, n);
        if new.is_null() {
            profiled::cancel(sample, p);
        } else if new == p {
            let same = (*large).pages as usize * 4096 == have;
            profiled::end(sample, p, n, same);
        } else if n > SMALL_MAX && n >= have {
            // What is moved otherwise comes from malloc, which has told.
            profiled::end(None, new, n, false);
        }
        new
    }
}

#[inline(always)]
unsafe fn realloc_large(large: *mut Large, p: *mut u8, n: usize) -> *mut u8 {
    // SAFETY: as for `realloc`.
    unsafe {
        let have = (*large).pages as usize * 4096;
        if n <= SMALL_MAX {
            // An alignment makes large blocks of few bytes, too.
            return if n <= have && n > have / 2 {
                large::requested(p, n);
                p
            } else {
                move_block(p, have, n)
            };
        }
        if large::resize_in_place(large, n) {
            return p;
        }
        if n < have {
            return move_block(p, have, n);
        }
        // An eighth more than requested: untouched pages cost nothing, and the next steps stay in place.
        let mut new = large::move_to(large, n.saturating_add(n / 8).min(isize::MAX as usize));
        if new.is_null() {
            new = large::move_to(large, n);
        }
        let mut round = 0;
        while new.is_null() {
            if !slow::out_of_memory(n, &mut round) {
                return fail();
            }
            new = large::move_to(large, n);
        }
        large::requested(new, n);
        new
    }
}
