//! The spans of a heap: where they come from, and where they go.
//!
//! ```text
//!   new_span ──► an empty span of another class, converted ──► the pool: dirty run, shorter dirty run, clean run
//!   give_span ──► the pool: dirty and clean pages apart
//! ```
//!
//! N1  A span is converted to another class where it lies: with the same pages and the same descriptor, no new entry of
//!     MAP and no lock but the heap's. It must have one of the lengths of its new class, and its descriptor enough
//!     units for its new slots, so a thread that reads it by mistake stays within it.
//! N2  Empty spans that cannot be converted go to the pool before more pages are touched than ever before, and not sooner:
//!     other classes of this heap will need them as they are.
//!
//! Not here: lists (`lists`), the choice of the next span (`heap`), holes in spans (`holes`).

use skinflint_base::sync::Ordering;
use skinflint_pages::OWNER_NONE;

use super::pool::{HOLES, SPARE, with_pool};
use super::{cache, changes, clean, hints, nodes, slow};
use crate::mechanism::class;
use crate::mechanism::heap::{Heap, usage};
use crate::mechanism::range::{at, offset_of};
use crate::mechanism::span::{KIND_SAMPLED, Span, state, units_for};
use crate::mechanism::{publish, remote};

/// Fewest and most pages of empty spans that a heap keeps for itself; between these, it keeps a share of its pages.
/// With half of its pages, from 64 to 1,024, chains of ten sizes in two threads (`pattern glibc-thread`) need 3 % less
/// CPU time, but PHP and Python with a large JSON text 3 and 4 % more memory at their peak, since no other heap can use
/// those pages (`bench/alloc/run.py --quick --only php --only pyjson`, 2026-11-21).
const EMPTY_PAGES: (u32, u32) = (16, 256);
/// The share of its pages, one in this many; see [`EMPTY_PAGES`].
const EMPTY_SHARE: u32 = 16;

/// The pages below which a tenant gets the shortest spans: 256 KiB.
const SMALL_TENANT_PAGES: u32 = 64;

fn least_span(class: usize) -> u32 {
    u32::from(class::get(class).pages[0])
}

impl Heap {
    /// Returns the most pages of empty spans that the heap keeps.
    pub fn empty_pages_max(&self) -> u32 {
        // ORDER: a hint.
        (self.pages.load(Ordering::Relaxed) / EMPTY_SHARE).clamp(EMPTY_PAGES.0, EMPTY_PAGES.1)
    }

    /// Returns the pages that the class's next span should have. The heap's lock is held.
    pub fn wanted_pages(&self, class: usize) -> u32 {
        let turns = self.turns[class].load(Ordering::Relaxed); // ORDER: the lock is held
        class::pages_for(class, self.pages.load(Ordering::Relaxed), turns) // ORDER: as above
    }

    /// Makes a span from pages of the pool; null if the OS refuses. Pages of it that are not resident are clean.
    ///
    /// # Safety
    /// The heap's lock is held by its owner.
    #[unsafe(link_section = ".text.skinflint_first")]
    pub unsafe fn new_span(&self, class: usize) -> *mut Span {
        // SAFETY: as the caller promises.
        let span = unsafe { self.any_span(class) };
        // ORDER: the owner's own, and the lock is held.
        let slice = self.asked.load(Ordering::Relaxed) as usize;
        if !span.is_null()
            && self.usage.load(Ordering::Relaxed) == usage::THREAD // ORDER: as above
            && class::of_slice(slice) == class
            // SAFETY: a span made just now.
            && class::grown(slice, class, u32::from(unsafe { (*span).slots }))
        {
            with_pool(self.holder(), |_| class::earn(slice));
        }
        span
    }

    /// # Safety
    /// As for [`Heap::new_span`].
    unsafe fn any_span(&self, class: usize) -> *mut Span {
        let least = class::get(class).size.div_ceil(4096);
        // ORDER: as in `steal`. A tenant's population is its own, and small at first.
        let mut pages = match self.usage.load(Ordering::Relaxed) {
            // ORDER: the lock is held (heap.H4).
            usage::TENANT if self.pages.load(Ordering::Relaxed) < SMALL_TENANT_PAGES => {
                least_span(class)
            }
            usage::SAMPLES => least_span(class),
            // ORDER: the lock is held (heap.H4).
            _ => self.wanted_pages(class),
        };
        // SAFETY: as the caller promises.
        unsafe {
            // Spans that this heap keeps for other classes go first (N1, N2).
            if let Some(span) = self.converted(class, pages) {
                return span;
            }
            // ORDER: the lock is held.
            if self.empty_pages.load(Ordering::Relaxed) >= pages
                && SPARE.load(Ordering::Relaxed) < pages
            // ORDER: a hint
            {
                self.flush_empty();
            }
            cache::before_growing(self.holder(), pages);
            let made = self.try_span(class, pages);
            if !made.is_null() || pages == least {
                return made;
            }
            pages = least;
            self.try_span(class, pages)
        }
    }

    /// Returns the classes with empty spans. The heap's lock is held.
    fn classes_with_empty(&self) -> impl Iterator<Item = usize> {
        self.has_empty.iter().enumerate().flat_map(|(i, word)| {
            // ORDER: the lock is held.
            let mut bits = word.load(Ordering::Relaxed);
            core::iter::from_fn(move || {
                let bit = bits.trailing_zeros() as usize;
                bits &= bits.wrapping_sub(1);
                (bit < 64).then_some(i * 64 + bit)
            })
        })
    }

    /// Converts an empty span of another class to one of this class (N1): the longest that is not far longer than
    /// wanted. Cost: a look at one span of each class that has empty ones, and two stores for each 64 slots.
    ///
    /// # Safety
    /// The heap's lock is held by its owner.
    unsafe fn converted(&self, class: usize, wanted: u32) -> Option<*mut Span> {
        // ORDER: the lock is held, throughout.
        if self.empty_pages.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let info = class::get(class);
        let mut best: Option<&Span> = None;
        for other in self.classes_with_empty() {
            let head = self.empty[other].load(Ordering::Relaxed); // ORDER: as above
            // SAFETY: lists hold live descriptors (heap.H3).
            let span = unsafe { &*at::<Span>(head) };
            let pages = span.pages();
            let fits = pages <= 2 * wanted
                && best.is_none_or(|best| best.pages() < pages)
                && info.pages.contains(&(pages as u8))
                && units_for(pages as usize * 4096 / info.size as usize) <= span.units()
                && remote::may_go(&span.nlink);
            if fits {
                best = Some(span);
            }
        }
        let span = best?;
        // SAFETY: it has no live block, is this heap's, and on no list once it is moved.
        unsafe {
            self.move_to(span, state::NONE, false);
            class::repopulate(span.class(), class, span.pages());
            let span = core::ptr::from_ref(span).cast_mut();
            Span::change_class(span, class);
            Some(span)
        }
    }

    #[unsafe(link_section = ".text.skinflint_first")]
    unsafe fn try_span(&self, class: usize, pages: u32) -> *mut Span {
        let info = class::get(class);
        let mut pages = pages;
        let made = with_pool(self.holder(), |pool| {
            nodes::serve(pool);
            if !pool.has_dirty(pages) {
                // A shorter resident run goes before one that is not resident: otherwise dirty runs would be purged for
                // it.
                let mut shorter = info.pages.iter().rev().map(|&p| u32::from(p));
                pages = shorter
                    .find(|&p| p < pages && pool.has_dirty(p))
                    .unwrap_or(pages);
            }
            let slots = pages as usize * 4096 / info.size as usize;
            let units = units_for(slots);
            let offset = pool.region.desc_alloc(units)?;
            // Clean pages raise no peak until blocks are taken from them (clean.K1).
            pool.absent_pages += pages;
            let Some(run) = pool.take(pages, 1) else {
                pool.region.desc_free(offset, units);
                return None;
            };
            if !changes::cover(pool, run.page) {
                pool.give(run.page, pages, !run.clean);
                pool.region.desc_free(offset, units);
                return None;
            }
            let span = at::<Span>(offset);
            // SAFETY: a fresh descriptor of this many units.
            unsafe { Span::init(span, (run.page, pages), class, units, self.id()) };
            // ORDER: the heap's lock is held by its owner; published below.
            if self.usage.load(Ordering::Relaxed) == usage::SAMPLES && slow::profiled() {
                // SAFETY: as above.
                unsafe { (*span).kind.store(KIND_SAMPLED, Ordering::Relaxed) }; // ORDER: as above
            }
            for page in run.page..run.page + pages {
                publish::enter(pool.region.map_entry(page), offset);
            }
            if run.clean {
                // SAFETY: as above: no other thread knows it.
                clean::all_clean(unsafe { &*span });
            }
            Some(span)
        });
        let Some(made) = made.flatten() else {
            return core::ptr::null_mut();
        };
        self.pages.fetch_add(pages, Ordering::Relaxed); // ORDER: a statistic (heap.H4)
        class::population(class, pages as i32);
        made
    }

    /// Gives an empty span's pages to the pool, and hints at those that are dirty.
    ///
    /// # Safety
    /// The heap's lock is held; the span is this heap's, has no live block, is not Current, and is not on
    /// the notified stack.
    pub unsafe fn give_span(&self, span: *mut Span) {
        // SAFETY: a span of this heap.
        let this = unsafe { &*span };
        // SAFETY: as the caller promises.
        unsafe { self.move_to(this, state::NONE, false) };
        let pages = this.pages();
        self.pages.fetch_sub(pages, Ordering::Relaxed); // ORDER: a statistic (heap.H4)
        class::population(this.class(), -(pages as i32));
        let first = this.page();
        let clean = this.clean.load(Ordering::Relaxed); // ORDER: the lock is held (span.S3)
        let units = this.units();
        if clean != 0 {
            HOLES.fetch_sub(clean.count_ones(), Ordering::Relaxed); // ORDER: a statistic
        }
        with_pool(self.holder(), |pool| {
            for page in first..first + pages {
                publish::clear(pool.region.map_entry(page));
            }
            // SAFETY: no entry of the page map leads here now.
            this.owner.store(OWNER_NONE, Ordering::Relaxed); // ORDER: no thread may use its addresses any more
            pool.region.desc_free(offset_of(span), units);
            let mut page = 0;
            while page < pages {
                let is_clean = clean >> page & 1;
                let mut end = page + 1;
                while end < pages && clean >> end & 1 == is_clean {
                    end += 1;
                }
                pool.give(first + page, end - page, is_clean == 0);
                page = end;
            }
        });
        // As for large blocks: what is dirty there the purger is to hear of.
        hints::hint_from(self, pages - clean.count_ones());
    }

    /// Gives every empty span to the pool.
    ///
    /// # Safety
    /// The heap's lock is held.
    pub unsafe fn flush_empty(&self) {
        for class in self.classes_with_empty() {
            loop {
                // ORDER: the lock is held.
                let head = self.empty[class].load(Ordering::Relaxed);
                if head == 0 {
                    break;
                }
                // SAFETY: an empty span of this heap; if it is on the notified stack it is drained first.
                unsafe { self.give_or_wait(at(head)) };
            }
        }
    }

    /// Does what [`Heap::give_span`] does; a span that is still on the notified stack is only put on the list of
    /// partial ones, and given to the pool when the stack is drained.
    ///
    /// # Safety
    /// The heap's lock is held; the span has no live block and is not Current.
    pub unsafe fn give_or_wait(&self, span: *mut Span) {
        // SAFETY: as the caller promises.
        unsafe {
            if remote::may_go(&(*span).nlink) {
                self.give_span(span);
            } else {
                self.move_to(&*span, state::PARTIAL, true);
            }
        }
    }
}
