//! Cold live pages: told to the kernel when the program asks for it.
//!
//! ```text
//!   cool() ─► each span, each large block ─► its mark as at the last call? ── no ─► noted anew
//!                                                    └── yes: cold ─► MADV_COLD │ MADV_PAGEOUT
//! ```
//!
//! C1  Cold is what has not changed from one call to the next: the same blocks of the same span are live, and none of it lies
//!     in a magazine or in the span that a class allocates from. The caller chooses the time in between.
//! C2  What cannot be seen: reads and writes of live blocks; a block that was freed and taken again at its place. So large
//!     blocks, of which most of what a program computes with consists, are told only if that is wanted.
//! C3  Contents never change (pages::cold), so the kernel is told with no lock held, and of what may have become another
//!     span's meanwhile: a fault is all that it can cost.
//! C4  One call at a time: two would take each other's marks for their own.
//! C5  The marks take 4 bytes a page of HEAP, from the first call on. No other code pays anything.
//!
//! Not here: free pages (`holes`, `purger`).

use core::sync::atomic::AtomicBool;

use skinflint_base::sync::Ordering;
use skinflint_base::sys;
use skinflint_pages::PAGE;
use skinflint_pages::cold::{Advice, Told};

use crate::heaps::pool::{heaps, with_pool};
use crate::heaps::runs::Large;
use crate::heaps::tls;
use crate::mechanism::class;
use crate::mechanism::guarded::Guarded;
use crate::mechanism::heap::Heap;
use crate::mechanism::lock::Who;
use crate::mechanism::map::map_entry;
use crate::mechanism::publish;
use crate::mechanism::range::{at, base, limit};
use crate::mechanism::span::{KIND_LARGE, Span};
use skinflint_base::sync::AtomicU32;

/// The most spans for which a look holds the lock; each has up to eight ranges of pages.
const CHUNK: usize = 8;
const RANGES_OF_A_SPAN: usize = 8;
/// Pages of the map for which the pool's lock is held.
const STRETCH: u32 = 4_096;

/// Why nothing was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Another call is under way (C4).
    Busy,
    /// The kernel does not know the advice.
    Unknown,
    /// There is no memory for the marks.
    NoMemory,
}

static BUSY: AtomicBool = AtomicBool::new(false);
/// Under the right that BUSY gives.
static MARKS: Guarded<Marks> = Guarded::new(Marks {
    start: core::ptr::null_mut(),
    pages: 0,
});

/// What was seen last of the span or block that begins on a page; 0: nothing, or what is in use.
struct Marks {
    start: *mut u32,
    pages: usize,
}

// SAFETY: a mapping of our own, reached under BUSY.
unsafe impl Send for Marks {}

impl Marks {
    /// Makes room for a mark of each page of HEAP. `false`: no memory; the marks are as they were.
    fn cover(&mut self, pages: usize) -> bool {
        if pages <= self.pages {
            return true;
        }
        let room = pages.next_power_of_two().max(PAGE);
        let start = sys::map_private(room * size_of::<u32>()).cast::<u32>();
        if start.is_null() {
            return false;
        }
        if !self.start.is_null() {
            // SAFETY: two mappings of our own; the new one is longer.
            unsafe {
                start.copy_from_nonoverlapping(self.start, self.pages);
                sys::unmap(self.start.cast(), self.pages * size_of::<u32>());
            }
        }
        (self.start, self.pages) = (start, room);
        true
    }

    /// Notes a mark; reports whether it is the last one, and means something.
    fn same(&mut self, page: u32, mark: u32) -> bool {
        if page as usize >= self.pages {
            return false;
        }
        // SAFETY: within the mapping.
        let last = unsafe { self.start.add(page as usize).replace(mark) };
        mark != 0 && last == mark
    }
}

/// Tells the kernel of all pages that are cold (C1); returns their bytes. `large`: of large blocks, too.
pub fn cool(advice: Advice, large: bool) -> Result<usize, Refusal> {
    // ORDER: Acquire meets the Release below: the marks are the last call's. [reason: handed]
    if BUSY.swap(true, Ordering::Acquire) {
        return Err(Refusal::Busy);
    }
    // SAFETY: BUSY is this call's.
    let result = look(advice, large, unsafe { &mut *MARKS.get() });
    BUSY.store(false, Ordering::Release); // ORDER: as above. [reason: handed]
    result
}

/// Frees the right to call in the child of a fork, where the caller is gone.
pub fn forget() {
    // ORDER: the child has one thread. What the marks hold is at worst a call's of the parent that did not end.
    BUSY.store(false, Ordering::Relaxed);
}

fn look(advice: Advice, large: bool, marks: &mut Marks) -> Result<usize, Refusal> {
    let end = (limit() / PAGE) as u32;
    if end == 0 {
        return Ok(0);
    }
    if !advice.is_known(base()) {
        return Err(Refusal::Unknown);
    }
    if !marks.cover(end as usize) {
        return Err(Refusal::NoMemory);
    }
    let mut work = Work {
        who: tls::who(),
        advice,
        marks,
        told: Told::new(),
        bytes: 0,
    };
    for heap in heaps() {
        // ORDER: only distinct numbers are wanted, as in `holes`.
        let visit = (heap.walks.fetch_add(1, Ordering::Relaxed) % 255 + 1) as u8;
        for class in 0..class::count() {
            for list in [&heap.partial[class], &heap.full[class]] {
                work.list(heap, list, visit);
            }
        }
    }
    for first in (0..end).step_by(STRETCH as usize).filter(|_| large) {
        work.large(first, end.min(first + STRETCH));
    }
    work.tell();
    Ok(work.bytes)
}

struct Work<'a> {
    who: Who,
    advice: Advice,
    marks: &'a mut Marks,
    told: Told,
    bytes: usize,
}

impl Work<'_> {
    fn tell(&mut self) {
        self.bytes += self.told.flush(self.advice);
    }

    /// Looks at the spans of a list by rotating it, as `holes` does.
    fn list(&mut self, heap: &Heap, list: &AtomicU32, visit: u8) {
        let mut more = true;
        // ORDER: a look.
        while more && list.load(Ordering::Relaxed) != 0 && heap.lock.lock(self.who) {
            for _ in 0..CHUNK {
                // ORDER: the lock is held, throughout.
                let head = list.load(Ordering::Relaxed);
                // SAFETY: a listed span is live (heap.H3).
                let span = (head != 0).then(|| unsafe { &*at::<Span>(head) });
                let Some(span) = span.filter(|span| span.visit.load(Ordering::Relaxed) != visit)
                else {
                    more = false;
                    break;
                };
                span.visit.store(visit, Ordering::Relaxed); // ORDER: as above
                // ORDER: as above.
                list.store(span.next.load(Ordering::Relaxed), Ordering::Relaxed);
                self.span(span);
            }
            heap.lock.unlock();
            if self.told.is_full(CHUNK * RANGES_OF_A_SPAN) {
                self.tell();
            }
        }
    }

    /// Looks at a span, whose heap's lock is held.
    fn span(&mut self, span: &Span) {
        if !self.marks.same(span.page(), mark_of(span)) {
            return;
        }
        // ORDER: the lock is held (span.S3).
        let gone = span.free_pages() | span.clean.load(Ordering::Relaxed);
        let mut rest = !gone & ((1u32 << span.pages()) - 1) as u16;
        while rest != 0 {
            let first = rest.trailing_zeros();
            let run = (!(rest >> first)).trailing_zeros().min(16 - first);
            let from = span.start() + first as usize * PAGE;
            self.told.add(from, run as usize * PAGE);
            rest &= !((((1u32 << run) - 1) << first) as u16);
        }
    }

    /// Looks at the large blocks that begin on these pages.
    fn large(&mut self, first: u32, end: u32) {
        let mut page = first;
        while page < end {
            let who = self.who;
            with_pool(who, |_| {
                while page < end && !self.told.is_full(1) {
                    // SAFETY: below the limit.
                    let entry = publish::found(unsafe { map_entry(page as usize * PAGE) });
                    // SAFETY: entries lead to descriptors, and the pool's lock is held.
                    let large = unsafe { &*at::<Large>(entry) };
                    // ORDER: the lock is held.
                    if large.kind.load(Ordering::Relaxed) == KIND_LARGE
                        && large.start == base() + page as usize * PAGE
                    {
                        let words = [u64::from(entry), u64::from(large.pages)];
                        if self.marks.same(page, mark(&words)) {
                            self.told.add(large.start, large.pages as usize * PAGE);
                        }
                    }
                    page += 1;
                }
            });
            self.tell();
        }
    }
}

/// Returns the mark of a span: which of its slots are live. 0: a block of it is in a magazine. Its heap's lock is held.
fn mark_of(span: &Span) -> u32 {
    let mut words = [0u64; MOST_WORDS];
    for i in 0..span.words() {
        let (live, cached) = span.live_and_cached(i);
        if cached != 0 {
            return 0;
        }
        words[i] = live;
    }
    words[MOST_WORDS - 1] = span.class() as u64 + 1;
    mark(&words)
}

/// Words of bits of a span, and one more.
const MOST_WORDS: usize = (16 * PAGE / 16) / 64 + 2;

/// Returns a number for words that others will hardly give; never 0.
fn mark(words: &[u64]) -> u32 {
    let hash = words.iter().fold(0u64, |hash, word| {
        (hash ^ word)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(29)
    });
    (hash >> 32) as u32 | 1
}
