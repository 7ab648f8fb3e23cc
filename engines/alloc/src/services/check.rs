//! The invariants, by brute force, at three levels: for tests, and in real programs on demand.
//!
//! ```text
//!   1 counters   every heap's spans, each seen once      ─► pages, empty pages, holes, populations
//!   2 lists      each span on the list of its state, its pages in MAP, all of MAP; the pool's own check
//!   3 bits       F ∩ R empty, `left` within its bounds, clean pages read as zero, free ones are noted
//! ```
//!
//! V1  Every lock is held meanwhile, taken in the order of a fork, so lists and counters stand still, and no bit leaves
//!     F. The fast paths of other threads go on: what they write (D, `left`) is checked only in the caller's own heap
//!     and in heaps without a thread.
//! V2  Nothing is changed, and no page becomes resident: a clean page is read only if it is resident.
//! V3  Nothing is allocated and only a few words are kept on the stack: it runs inside `malloc`.
//!
//! Not here: the pool's invariants (`pages::check`), the decision when to check a real program (`maybe` is called from
//! slow paths and by the purger).

use skinflint_base::sync::{AtomicU32, AtomicU64, Ordering};
use skinflint_base::sys;
use skinflint_pages::{PAGE, Pool};

use super::batch::PURGE_LOCK;
use crate::heaps::large::Large;
use crate::heaps::pool::pool_locked;
use crate::heaps::slow::CHECKED;
use crate::heaps::{changes, fault, fork, pool, tls};
use crate::mechanism::class::{self, MAX_CLASSES};
use crate::mechanism::heap::{Heap, usage};
use crate::mechanism::lock::Who;
use crate::mechanism::map::descriptor;
use crate::mechanism::range::{at, base, limit, offset_of};
use crate::mechanism::span::{self, KIND_CACHED, KIND_LARGE, KIND_SAMPLED, KIND_SMALL, Span};

/// An invariant that does not hold, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken {
    /// The invariant, by its label and in words.
    pub what: &'static str,
    /// Address of the span, block or heap; 0 if it concerns all of them.
    pub at: usize,
}

type Held = Result<(), Broken>;

fn hold(condition: bool, what: &'static str, at: usize) -> Held {
    if condition {
        Ok(())
    } else {
        Err(Broken { what, at })
    }
}

static EVERY: AtomicU32 = AtomicU32::new(1);
static CALLS: AtomicU32 = AtomicU32::new(0);
/// Number of checks made by [`maybe`].
static MADE: AtomicU32 = AtomicU32::new(0);
/// The time before which there is no further check.
static NEXT_NS: AtomicU64 = AtomicU64::new(0);
/// Number of pages taken from the pool that have no descriptor. Code that takes such pages counts them here.
pub static BESIDE: AtomicU32 = AtomicU32::new(0);

/// Sets up checks of the invariants at a level (0 to 3) at every `every`th slow path and at every pass of the purger,
/// but not so often that the program gets less than four fifths of the time. An invariant that does not hold is named
/// on stderr, and the process aborts.
pub fn watch(level: u32, every: u32) {
    // ORDER: set at start.
    EVERY.store(every.max(1), Ordering::Relaxed);
    CHECKED.store(level.min(3), Ordering::Relaxed); // ORDER: as above
}

/// Writes how many checks held, if any were made; for the end of the process.
#[unsafe(link_section = ".text.skinflint_first")]
pub fn say() {
    // ORDER: a statistic.
    let made = MADE.load(Ordering::Relaxed);
    if made > 0 {
        let mut line = fault::Line::new();
        line.add(b"skinflint: check: held ");
        line.add_number(u64::from(made));
        line.add(b" times\n");
        sys::stderr(line.bytes());
    }
}

/// Checks if one is due. To be called where no lock of the engine's is held, and something is watched.
pub(crate) fn maybe() {
    look(None);
}

/// Does what [`maybe`] does, for a thread that has no thread-local storage.
pub(crate) fn maybe_as(who: Who) {
    // ORDER: set at start.
    if CHECKED.load(Ordering::Relaxed) != 0 {
        look(Some(who));
    }
}

#[cold]
#[inline(never)]
fn look(who: Option<Who>) {
    // ORDER: a statistic.
    let calls = CALLS.fetch_add(1, Ordering::Relaxed);
    // ORDER: set at start.
    if !calls.is_multiple_of(EVERY.load(Ordering::Relaxed)) && who.is_none() {
        return;
    }
    let begin = sys::monotonic_ns();
    // ORDER: a hint.
    if begin < NEXT_NS.load(Ordering::Relaxed) {
        return;
    }
    // ORDER: set at start.
    let level = CHECKED.load(Ordering::Relaxed);
    let mine = if who.is_some() {
        core::ptr::null_mut()
    } else {
        tls::get()
    };
    if let Err(broken) = check_as(who.unwrap_or_else(fork::who), mine, level) {
        let mut line = fault::Line::new();
        line.add(b"skinflint: check: ");
        line.add(broken.what.as_bytes());
        line.add(b" (at ");
        line.add_hex(broken.at);
        line.add(b")\n");
        sys::stderr(line.bytes());
        // SAFETY: abort does not return.
        unsafe { libc::abort() }
    }
    let end = sys::monotonic_ns();
    NEXT_NS.store(end + 4 * (end - begin), Ordering::Relaxed); // ORDER: a hint
    MADE.fetch_add(1, Ordering::Relaxed); // ORDER: a statistic
}

/// Checks the invariants up to a level, 1 to 3, with every lock held (V1).
///
/// The caller holds no lock of the engine's, and is in no slow path of its own (in a signal handler nothing can be
/// checked).
///
/// # Errors
/// The first invariant that does not hold.
pub fn check_invariants(level: u32) -> Held {
    check_as(fork::who(), tls::get(), level)
}

/// Checks in the name of a taker of locks; `mine` is the heap that it owns.
fn check_as(who: Who, mine: *mut Heap, level: u32) -> Held {
    if base() == 0 || level == 0 {
        return Ok(());
    }
    let _ = PURGE_LOCK.lock(who);
    fork::lock_all(who);
    // SAFETY: the pool's lock is held, and `with_pool` is not entered until it is given back.
    let held = check_all(level, mine, unsafe { pool_locked() });
    fork::unlock_all(who);
    PURGE_LOCK.unlock();
    held
}

/// Sums over all heaps.
struct Sums {
    populations: [u32; MAX_CLASSES],
    pages: u32,
    holes: u32,
}

fn check_all(level: u32, mine: *mut Heap, pool: &Pool) -> Held {
    let mut sums = Sums {
        populations: [0; MAX_CLASSES],
        pages: 0,
        holes: 0,
    };
    for heap in pool::heaps() {
        check_heap(level, heap, mine, &mut sums)?;
    }
    // ORDER: written under locks that are held (V1), here and below.
    let holes = pool::HOLES.load(Ordering::Relaxed);
    hold(
        holes == sums.holes,
        "O2: HOLES is not the sum of the spans' clean pages",
        0,
    )?;
    for class in 0..class::count() {
        let counted = class::population_of(class);
        hold(
            counted == sums.populations[class],
            "H4: a class's population is not the sum of its spans' pages",
            class,
        )?;
    }
    if level >= 2 {
        pool.check().map_err(|what| Broken { what, at: 0 })?;
        check_map(pool, sums.pages)?;
    }
    if level >= 3 {
        return pool.each_clean(|page, pages| zero(base() + page as usize * PAGE, pages));
    }
    Ok(())
}

/// Checks all pages of HEAP by their entries: spans and large blocks are what the pool says is in use.
fn check_map(pool: &Pool, span_pages: u32) -> Held {
    let (mut page, mut small, mut large) = (0, 0, 0);
    let end = (limit() / PAGE) as u32;
    while page < end {
        let address = base() + page as usize * PAGE;
        // SAFETY: below the limit.
        let span = unsafe { &*descriptor(page as usize * PAGE) };
        // ORDER: written under the pool's lock (V1).
        let kind = span.kind.load(Ordering::Relaxed);
        page += match kind {
            KIND_SMALL | KIND_SAMPLED => {
                hold(
                    start(span) == address,
                    "H3: a page leads to a span that begins elsewhere",
                    address,
                )?;
                small += span.pages();
                span.pages()
            }
            KIND_LARGE | KIND_CACHED => {
                let block: *const Large = core::ptr::from_ref(span).cast();
                // A guarded block begins within its run (guard.G1).
                // SAFETY: the kind says what it is.
                let (begin, pages) =
                    unsafe { ((*block).start - (*block).lead as usize, (*block).pages) };
                hold(
                    begin == address,
                    "L1: a page leads to a large block that begins elsewhere",
                    address,
                )?;
                large += pages;
                pages
            }
            _ => 1,
        };
    }
    hold(
        small == span_pages,
        "H3: a span in MAP that is on no list",
        0,
    )?;
    // ORDER: as the code that writes it says.
    let beside = BESIDE.load(Ordering::Relaxed);
    hold(
        small + large + beside == pool.used_pages,
        "P3: pages in use that are in no span and no large block, or the other way round",
        0,
    )
}

fn check_heap(level: u32, heap: &Heap, mine: *mut Heap, sums: &mut Sums) -> Held {
    // ORDER: the locks are held (V1).
    let still = heap.usage.load(Ordering::Relaxed) != usage::THREAD
        && heap.orphan.load(Ordering::Relaxed) == 0 // ORDER: as above
        || core::ptr::eq(heap, mine.cast_const());
    let (mut pages, mut empty_pages) = (0, 0);
    let mut seen = |span: &Span, sums: &mut Sums| -> Held {
        let count = span.pages();
        pages += count;
        // ORDER: the locks are held (V1).
        if span.state.load(Ordering::Relaxed) == span::state::EMPTY {
            empty_pages += count;
        }
        sums.populations[span.class()] += count;
        sums.holes += span.clean.load(Ordering::Relaxed).count_ones(); // ORDER: as above
        check_span(level, heap, still, span)
    };
    for class in 0..class::count() {
        let current = heap.current(class);
        if !Heap::is_none(current) {
            // SAFETY: the current span of a class is live (heap.H3).
            let span = unsafe { &*current };
            // ORDER: the locks are held (V1).
            let state = span.state.load(Ordering::Relaxed);
            hold(
                state == span::state::CURRENT,
                "H3: a class's current span is not Current",
                start(span),
            )?;
            hold(
                span.class() == class,
                "H2: a current span of another class",
                start(span),
            )?;
            seen(span, sums)?;
        }
        let lists = [
            (&heap.partial[class], span::state::PARTIAL),
            (&heap.full[class], span::state::FULL),
            (&heap.empty[class], span::state::EMPTY),
        ];
        for (list, state) in lists {
            each(list, |span| {
                // ORDER: the locks are held (V1).
                let is = span.state.load(Ordering::Relaxed);
                hold(
                    is == state,
                    "H3: a span on another state's list",
                    start(span),
                )?;
                hold(
                    span.class() == class,
                    "H3: a span on another class's list",
                    start(span),
                )?;
                seen(span, sums)
            })?;
        }
    }
    let address = core::ptr::from_ref(heap) as usize;
    // ORDER: the locks are held (V1), below too.
    hold(
        heap.pages.load(Ordering::Relaxed) == pages,
        "H4: a heap's pages miscounted",
        address,
    )?;
    let counted = heap.empty_pages.load(Ordering::Relaxed); // ORDER: as above
    hold(
        counted == empty_pages,
        "H4: a heap's empty pages miscounted",
        address,
    )?;
    let mut has_empty = heap
        .has_empty
        .each_ref()
        .map(|word| word.load(Ordering::Relaxed)); // ORDER: as above
    for (class, list) in heap.empty.iter().enumerate() {
        let is = u64::from(list.load(Ordering::Relaxed) != 0); // ORDER: as above
        has_empty[class / 64] ^= is << (class % 64);
    }
    hold(
        has_empty == [0; MAX_CLASSES / 64],
        "H6: a bit that is not what its list of empty spans says",
        address,
    )?;
    sums.pages += pages;
    Ok(())
}

/// Passes every span of a list, whose links must match, to `visit`.
fn each(list: &AtomicU32, mut visit: impl FnMut(&Span) -> Held) -> Held {
    // ORDER: the heap's lock is held, throughout.
    let head = list.load(Ordering::Relaxed);
    let mut next = head;
    while next != 0 {
        // SAFETY: lists hold offsets of live descriptors (heap.H3).
        let span = unsafe { &*at::<Span>(next) };
        visit(span)?;
        let after = span.next.load(Ordering::Relaxed); // ORDER: as above
        hold(after != 0, "H3: a list that does not close", start(span))?;
        // SAFETY: as above.
        let back = unsafe { &*at::<Span>(after) }.prev.load(Ordering::Relaxed); // ORDER: as above
        hold(back == next, "H3: a list's links do not match", start(span))?;
        next = after;
        if next == head {
            break;
        }
    }
    Ok(())
}

fn start(span: &Span) -> usize {
    span.start()
}

fn check_span(level: u32, heap: &Heap, still: bool, span: &Span) -> Held {
    let at = start(span);
    // ORDER: written under locks that are held (V1), here and below.
    hold(
        span.owner.load(Ordering::Relaxed) == heap.id(),
        "H3: a span of another heap on a list",
        at,
    )?;
    let current = span.state.load(Ordering::Relaxed) == span::state::CURRENT; // ORDER: as above
    let clean = span.clean.load(Ordering::Relaxed); // ORDER: as above
    if level >= 2 {
        for page in 0..span.pages() as usize {
            let distance = at - base() + page * PAGE;
            // SAFETY: pages of a span are below the limit.
            let found = offset_of(unsafe { descriptor(distance) });
            hold(
                found == offset_of(span),
                "H3: a page of a span that leads elsewhere",
                at,
            )?;
        }
    }
    if level < 3 {
        return Ok(());
    }
    // ORDER: as above.
    check_bits(span, heap.takes.load(Ordering::Relaxed) > 0)?;
    if still {
        check_left(span, current)?;
    }
    let free = span.free_pages();
    hold(clean & !free == 0, "O1: a clean page with a live block", at)?;
    if still && free & !clean != 0 {
        check_noted(span)?;
    }
    for page in (0..16).filter(|page| clean >> page & 1 != 0) {
        zero(at + page * PAGE, 1)?;
    }
    Ok(())
}

/// Checks span.S1: no slot is in F and R, nor in D and R unless magazines of the heap were `taken`; all of F is in D, and none
/// beyond the last slot in any, but for the mark behind it (span.S8).
fn check_bits(span: &Span, taken: bool) -> Held {
    let slots = span.slots as usize;
    for i in 0..span.words() {
        let (free, remote, dead) = span.bits(i);
        hold(
            free & remote == 0 && (taken || dead & remote == 0),
            "S1: a slot in both D and R (or the program freed it twice)",
            start(span),
        )?;
        hold(
            free & !dead == 0,
            "S1: a slot in F and not in D",
            start(span),
        )?;
        let slots_here = slots - (i * 64).min(slots);
        let beyond = if slots_here >= 64 {
            0
        } else {
            u64::MAX << slots_here
        };
        let mark = if slots / 64 == i {
            1 << (slots % 64)
        } else {
            0
        };
        hold(
            (free | remote) & beyond == 0,
            "S1: a bit beyond the last slot",
            start(span),
        )?;
        hold(
            dead & beyond == mark,
            "S8: no mark behind the last slot, or more",
            start(span),
        )?;
    }
    Ok(())
}

/// Checks span.S6: each span that is not Current and has a live block has its next event before the last of those blocks is
/// in F, or waits to be looked at. (In the child of a fork the event may be one late, fork.W1.)
fn check_left(span: &Span, current: bool) -> Held {
    let free: u32 = (0..span.words()).map(|i| span.bits(i).0.count_ones()).sum();
    let used = u32::from(span.slots) - free;
    // ORDER: no thread writes it now (V1).
    let left = span.left.load(Ordering::Relaxed);
    if current {
        return hold(
            left > u32::MAX / 2 || left <= 1,
            "S6: a Current span whose countdown is neither without an end nor the purger's",
            start(span),
        );
    }
    // ORDER: as above.
    let listed = matches!(
        span.state.load(Ordering::Relaxed),
        span::state::PARTIAL | span::state::FULL
    );
    // ORDER: as above.
    if !listed || used == 0 || span.nlink.load(Ordering::Relaxed) != 0 {
        return Ok(());
    }
    hold(
        left <= used + 1,
        "S6: no event before the last block is free",
        start(span),
    )
}

/// Checks changes.J2: a span with free pages that are resident is noted. What other threads freed is told by its own way
/// (changes.J3), and empty spans are on a list.
fn check_noted(span: &Span) -> Held {
    // ORDER: written under locks that are held (V1).
    let listed = span.state.load(Ordering::Relaxed) != span::state::EMPTY;
    // ORDER: as above.
    if !listed || span.has_remote() || span.nlink.load(Ordering::Relaxed) != 0 {
        return Ok(());
    }
    hold(
        changes::is_noted(span.page()),
        "J2: a span with free pages that the purger is not to look at",
        start(span),
    )
}

/// Reports whether pages read as zero, without making any of them resident (V2).
fn zero(address: usize, pages: u32) -> Held {
    const AT_ONCE: usize = 64;
    let mut first = 0;
    while first < pages as usize {
        let count = (pages as usize - first).min(AT_ONCE);
        let from = address + first * PAGE;
        let mut resident = [0u8; AT_ONCE];
        hold(
            sys::resident(from, &mut resident[..count]),
            "G2: pages of HEAP that are not mapped",
            from,
        )?;
        for page in (0..count).filter(|&page| resident[page] & 1 != 0) {
            let words = (from + page * PAGE) as *const u64;
            for i in 0..PAGE / 8 {
                // SAFETY: a page of HEAP that holds nothing.
                let word = unsafe { words.add(i).read_volatile() };
                hold(
                    word == 0,
                    "O1: a clean page that is not zero (or was written after its free)",
                    from + page * PAGE,
                )?;
            }
        }
        first += count;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
