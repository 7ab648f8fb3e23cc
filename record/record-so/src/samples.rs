//! Sampled recordings: which acquisitions are recorded, and which releases are of them.
//!
//! ```text
//!   malloc(n) ─► budget − n ─┬─ 0 or more: no ticket, no stack, no event        (a subtraction and two comparisons; by the
//!                            │                                                   short way nothing else: hooks/entries.rs)
//!                            └─ below 0, or n >= the rate: an event; the address into the tables
//!   free(p) ─► line of p in table 0 ─► its header says no: no event             (a load and a test)
//!                └─ OVER ─► table 1, of eight times as many lines ─► …
//! ```
//!
//! V1  Samples are points on the line of requested bytes, at exponentially distributed distances whose mean is the rate:
//!     a block of n bytes holds one with probability 1 − e^(−n/rate), whatever was acquired before. A block of the rate
//!     or more is always recorded. So the weight of an event follows from its size (trace FORMAT.md), and none is written.
//!     Nothing counts as one byte.
//! V2  Each thread draws for itself, from a seed of its process: a child of `fork` draws anew, and does not sample in step
//!     with its parent.
//! V3  A release is recorded if its acquisition was (the bits of `skinflint_base::samples`). `realloc` is a release and an
//!     acquisition with a draw of its own; a block that stays because it failed is recorded anew.
//! V4  If no table has room for an address, the acquisition is lost, and counted.
//! V5  The recorder does not count live bytes: the greatest heap is not known, so no snapshot of it is asked for.
//!
//! Not here: lines of addresses (`skinflint_base::samples`), what an event says (stacks.rs), the short way (hooks/entries.rs).

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use skinflint_base::random::{self, Random};
use skinflint_base::ring::{tag, word};
use skinflint_base::samples::{Found, Line, Spread};
use skinflint_base::sys;

use crate::stacks::{self, Caller};
use crate::state::{INSIDE, RECORDING, ThreadState, set_busy};
use crate::usable::usable_size;
use crate::{emit, process, real, tls};

/// Lines of the first table, as a power of two: 64 KiB, of which the pages in use cost memory. At half a mebibyte a
/// sample it has room for some gibibytes of blocks.
pub const FIRST_BITS: u32 = 10;
/// Each table has so many times the lines of the one before, as a power of two.
const STEP_BITS: u32 = 3;
/// Tables: the last has 4 Mi lines. What finds no room in it is lost (V4).
const TABLES: usize = 5;

/// The tables, mapped when they are needed; the first one is there if, and only if, the recording is sampled.
static LINES: [AtomicPtr<Line>; TABLES] = [const { AtomicPtr::new(core::ptr::null_mut()) }; TABLES];
/// States that were begun so far: the seeds of two threads differ.
static BEGUN: AtomicU64 = AtomicU64::new(0);

const fn bits(table: usize) -> u32 {
    FIRST_BITS + STEP_BITS * table as u32
}

/// Returns a table, mapped now if `wanted`.
fn table(index: usize, wanted: bool) -> Option<&'static Line> {
    // ORDER: Acquire; pairs with the Release below: a fresh mapping is zero for whoever sees it.
    let known = LINES[index].load(Ordering::Acquire);
    if !known.is_null() || !wanted {
        // SAFETY: null, or a mapping that is never unmapped; zeroed memory is empty lines.
        return unsafe { known.as_ref() };
    }
    let bytes = size_of::<Line>() << bits(index);
    let fresh = process::map_own(bytes).cast::<Line>();
    // ORDER: Release; as above. Acquire for the one that another thread has mapped meanwhile.
    let none = core::ptr::null_mut();
    let put = LINES[index].compare_exchange(none, fresh, Ordering::Release, Ordering::Acquire);
    let kept = match put {
        Ok(_) => fresh,
        Err(theirs) => {
            // SAFETY: nobody has seen it.
            unsafe { sys::unmap(fresh.cast(), bytes) };
            theirs
        }
    };
    // SAFETY: as above.
    unsafe { kept.as_ref() }
}

/// Begins a recording of the process: sampled if the collector says so. Returns false if there is no memory for the table.
pub fn begin() -> bool {
    if rate() == 0 {
        // A program that is attached to may have been recorded otherwise before. ORDER: Relaxed; one thread.
        LINES[0].store(core::ptr::null_mut(), Ordering::Relaxed);
        return true;
    }
    table(0, true).is_some()
}

/// Returns the mean distance of samples; 0 if everything is recorded.
fn rate() -> u64 {
    // ORDER: Relaxed; it was set before any process had the page.
    process::session().map_or(0, |page| page.sample_bytes.load(Ordering::Relaxed))
}

/// Lets calls of which nothing is recorded take the short way (entries.E2), if the allocator is the C library's.
/// The last step of a beginning: the lines are there.
pub fn begin_short() {
    let rate = rate();
    // ORDER: Relaxed throughout; one thread links. A thread of an earlier attach has a budget that was drawn by another rate.
    let is_glibc = process::header().is_some_and(|one| one.glibc_fast.load(Ordering::Relaxed) != 0);
    let is_first = process::GENERATION.load(Ordering::Relaxed) <= 1;
    if rate > 1 && is_glibc && is_first && real::arena_is_unused() {
        let lines = LINES[0].load(Ordering::Relaxed);
        process::let_pass(rate - 1, lines);
    }
}

/// Ends what `begin_short` began: each call goes the slow way.
pub fn end_short() {
    process::let_pass(0, core::ptr::null_mut());
}

/// Prepares a state whose thread begins, and its budget (V2). Called by that thread.
///
/// # Safety
/// state.H1.
pub unsafe fn thread_begins(state: *mut ThreadState) {
    let rate = rate();
    // SAFETY: state.H1.
    unsafe {
        (*state).rate = rate;
        if rate == 0 {
            return;
        }
        // ORDER: Relaxed; a counter, and a word that was set before any process had the page.
        let begun = BEGUN.fetch_add(1, Ordering::Relaxed);
        let given = process::session().map_or(0, |page| page.sample_seed.load(Ordering::Relaxed));
        let seed = match given {
            0 => process::TOKEN.load(Ordering::Relaxed), // ORDER: Relaxed; known before any thread is.
            given => given,
        };
        (*state).random = Random::new(random::mix(seed) ^ random::mix(!begun));
        tls::budget().write((*state).random.exponential(rate) as i64);
    }
}

/// Returns whether an acquisition goes by without an event; counts its bytes (V1). Cost: two comparisons, a subtraction.
///
/// # Safety
/// Between `enter` and `leave`, once for each acquisition.
#[inline(always)]
pub unsafe fn passes(state: *mut ThreadState, size: usize) -> bool {
    // SAFETY: state.H1.
    unsafe {
        if size as u64 >= (*state).rate {
            return false;
        }
        let budget = tls::budget();
        let left = budget.read() - size.max(1) as i64;
        budget.write(left);
        left >= 0 || draw(state)
    }
}

/// Draws the distance of the next sample; false: the acquisition holds one.
///
/// # Safety
/// state.H1, sampled.
#[cold]
#[inline(never)]
unsafe fn draw(state: *mut ThreadState) -> bool {
    // SAFETY: state.H1.
    unsafe {
        let rate = (*state).rate;
        tls::budget().write((*state).random.exponential(rate) as i64);
    }
    false
}

/// Returns whether the thread's recording is sampled.
///
/// # Safety
/// Between `enter` and `leave`.
#[inline(always)]
pub unsafe fn are_on(state: *mut ThreadState) -> bool {
    // SAFETY: state.H1.
    unsafe { (*state).rate != 0 }
}

/// Notes that a block is a sample; false, and counted, if there is no room (V4).
#[cold]
#[inline(never)]
pub fn keep(block: u64) -> bool {
    let one = Spread::of(block);
    for index in 0..TABLES {
        let Some(first) = table(index, true) else {
            break;
        };
        // SAFETY: the line is one of the table's.
        let line = unsafe { &*(&raw const *first).add(one.line(bits(index))) };
        if line.put(one) {
            return true;
        }
    }
    emit::count_lost();
    false
}

/// What the release of a block is of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// Every block is recorded.
    Full,
    /// A sample, which it is no more.
    Sample,
    /// A block whose acquisition was not recorded.
    Other,
}

/// Returns what the release of a block is of (V3). Cost: a load if everything is recorded; else two, and a test.
#[inline(always)]
pub fn release(block: u64) -> Release {
    // ORDER: Acquire for the mapping, as in `table`: a plain load on x86-64.
    let first = LINES[0].load(Ordering::Acquire);
    if first.is_null() {
        return Release::Full;
    }
    let one = Spread::of(block);
    // SAFETY: the line is one of the table's.
    match unsafe { &*first.add(one.line(FIRST_BITS)) }.take(one) {
        Found::Nowhere => Release::Other,
        Found::Taken => Release::Sample,
        Found::Elsewhere => release_elsewhere(one),
    }
}

#[cold]
#[inline(never)]
fn release_elsewhere(one: Spread) -> Release {
    for index in 1..TABLES {
        let Some(first) = table(index, false) else {
            break;
        };
        // SAFETY: the line is one of the table's.
        let line = unsafe { &*(&raw const *first).add(one.line(bits(index))) };
        match line.take(one) {
            Found::Taken => return Release::Sample,
            Found::Nowhere => break,
            Found::Elsewhere => {}
        }
    }
    Release::Other
}

/// Records the acquisition of a sample, if a block was acquired; the state stays entered.
///
/// # Safety
/// Between `enter` and `leave`; null, or acquired just now, and `passes` said no.
#[cold]
#[inline(never)]
pub unsafe fn acquired(
    state: *mut ThreadState,
    func: u8,
    block: *mut c_void,
    size: usize,
    caller: Caller,
) {
    // SAFETY: as the caller promises; state.H1.
    unsafe {
        if !process::wants_acquisitions() {
            emit::unseen(state);
        } else if !block.is_null() && keep(block as u64) {
            set_busy(state, RECORDING);
            let usable = usable_size(block).max(size as u64);
            let first = word(tag::ALLOC, func, block as u64);
            stacks::acquired(state, first, size as u64, usable, caller);
            set_busy(state, INSIDE);
        }
    }
}

/// Records the release of a block, if it is a sample; returns whether it is one.
///
/// # Safety
/// Between `enter` and `leave`; the block lives.
pub unsafe fn released(state: *mut ThreadState, func: u8, block: u64) -> bool {
    if release(block) != Release::Sample || !process::wants_releases() {
        return false;
    }
    // SAFETY: as the caller promises; state.H1.
    unsafe {
        set_busy(state, RECORDING);
        emit::short(state, tag::FREE, func, block);
        set_busy(state, INSIDE);
    }
    true
}

/// Records anew a sample that was recorded as released and lives on, with the function and the stack of the call that failed.
///
/// # Safety
/// Between `enter` and `leave`; the block lives and has so many usable bytes.
#[cold]
#[inline(never)]
pub unsafe fn lives_on(state: *mut ThreadState, func: u8, block: u64, bytes: u64, caller: Caller) {
    if !keep(block) {
        return;
    }
    // SAFETY: as the caller promises; state.H1.
    unsafe {
        set_busy(state, RECORDING);
        let first = word(tag::ALLOC, func, block);
        stacks::acquired(state, first, bytes, bytes, caller);
        set_busy(state, INSIDE);
    }
}
