//! A thread's heap: for each class the span it allocates from, and lists of the other spans.
//!
//! ```text
//!   malloc ◄── magazine ◄─── Current span      exhausted ──► full ──► (an eighth freed) ──► partial ──┐
//!   free ───►  (LIFO)          ▲                                           │ all freed              │
//!     └─ when it is full: the span's bits     └── partial, then empty, then full again,             │
//!                                                 then another heap's, then new ◄───────────────────┘
//! ```
//!
//! H1  A heap is used by one thread (or by the lock's holder, while it has none). Its lock guards the
//!     lists; the fast paths do without (see span.S2 to span.S5).
//! H2  `current` is never null: a class without a span has [`EMPTY_SPAN`], which is never written.
//! H5  A magazine holds blocks whose bit is set in D and not in F, each once, and only the owner touches it. It is
//!     short: a block in it pins its page. It saves the way from the address to the bit and back, which is one long
//!     chain of dependent loads, for blocks that are freed and soon wanted again.
//! H3  Every span of the heap is Current, or on exactly one list by its state.
//! H4  `pages` is the sum of the spans' pages; `empty_pages` that of those on the lists of empty ones.
//! H6  `has_empty` has a bit for each class whose list of empty spans is not empty.
//!
//! Not here: frees (`free`), threads (`thread`), where spans come from (`spans`), giving pages back (`holes`).

use core::cell::Cell;

use skinflint_base::sync::{AtomicI64, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::class::{self, MAX_CLASSES};
use crate::lock::{Lock, Who};
use crate::span::{Span, Window, state};
use crate::state::{at, with_pool};
use crate::{free, harden, holes, publish, remote};

/// Requested bytes between two samples of a heap, on average. Sampled blocks lie in spans of their own, so a program
/// that has just begun pays a page for nearly each: at 512 KiB about half a per cent of the peak of an idle python, at
/// this distance within the noise; the error of the estimate doubles, to less than 1 % of 100 MB.
pub const SAMPLE_BYTES: i64 = 2 * 1024 * 1024;
/// The most spans of the full list that are looked at before a new span is made.
const FULL_LOOKS: u32 = 16;

/// Pages from which on a warm heap is cooled by a heap that needs a span: 1 MiB.
const STEAL_WARM_PAGES: u32 = 256;

/// The span of classes that have none: no free slot, never written (H2).
pub static EMPTY_SPAN: Span = Span::none();

/// The uses of a heap.
pub mod usage {
    /// Unused: it waits for a thread.
    pub const IDLE: u32 = 0;
    /// A thread's.
    pub const THREAD: u32 = 1;
    /// A tenant's, under the lock (`tenant`).
    pub const TENANT: u32 = 2;
    /// Unused: it was a tenant's, holds nothing, and waits for the next tenant.
    pub const SPARE: u32 = 3;
    /// The heap of the sampled blocks of all threads, under the lock (`sample`).
    pub const SAMPLES: u32 = 4;
}

/// A block in a magazine.
#[repr(C)]
pub struct Entry {
    /// Its address.
    pub block: *mut u8,
    /// The window with its bits.
    window: *const Window,
    /// Its bit there. It is an atomic, so that the compiler loads it first, and then changes the word of D in its
    /// place.
    bit: AtomicU64,
}

impl Entry {
    /// Creates an entry from its fields.
    #[inline(always)]
    pub fn new(block: *mut u8, window: *const Window, bit: u64) -> Entry {
        Entry {
            block,
            window,
            bit: AtomicU64::new(bit),
        }
    }
}

/// A class's magazine, and the span that fills it (H5). The fields are cells and not atomics, which the compiler loads
/// into a register before it compares: an instruction each.
#[repr(C, align(32))]
pub struct Magazine {
    /// One past the newest entry.
    pub top: Cell<*mut Entry>,
    /// The oldest entry.
    bottom: Cell<*mut Entry>,
    /// One past the last entry that there is room for.
    pub end: Cell<*mut Entry>,
    current: Cell<*mut Span>,
}

const _: () = assert!(core::mem::size_of::<Magazine>() == 1 << class::MAGAZINE_SHIFT);
const _: () = assert!(core::mem::offset_of!(Heap, mags) == 0);

/// Offset of the budget in a heap, for assembly.
pub const BUDGET_AT: usize = core::mem::offset_of!(Heap, budget);

/// Returns the number of blocks that a refill brings. A free that finds the magazine full goes to the bits, which costs
/// as much, so no room need be left for it; but half of a short magazine is left, or large blocks would always go that
/// way.
pub fn fill_of(room: u32) -> u32 {
    if room >= 16 { room } else { room.div_ceil(2) }
}

/// Begins a new cache line.
#[repr(align(64))]
struct Line;

/// A heap. What its thread writes at every call, what the lock guards, and what other threads push to are on separate
/// cache lines: on one line, each push made the owner's next malloc wait.
#[repr(C, align(64))]
pub struct Heap {
    mags: [Magazine; MAX_CLASSES],
    /// Bytes to request until the next sample (`sample`).
    pub budget: AtomicI64,
    /// Requested bytes up to the last sample, in whole budgets.
    pub requested: AtomicU64,
    /// State of the random numbers of `sample`; 0 before the first.
    pub random: AtomicU64,
    /// Pages that may have become reclaimable and were not reported yet (`holes`).
    pub hinted: AtomicU32,
    /// Number of spans taken by slow paths: by it the purger knows what is in demand.
    pub refills: AtomicU32,
    /// Slice of the request that came to a slow path last: the size for which a class grows (`class::grown`).
    pub asked: AtomicU32,
    /// Number of walks so far (`holes`).
    pub walks: AtomicU32,
    /// Pages at which to search for holes again (`holes`).
    pub search_at: AtomicU32,
    /// Blocks until the next guarded one (`harden`).
    pub sample_left: AtomicU32,
    /// Rounds of thread destructors seen (`thread`).
    pub exit_rounds: AtomicU32,
    /// Halvings of the sampling rate at the time of the last draw (`sample`).
    pub sample_shift: AtomicU32,
    /// Whether its thread is calling listeners (`reserve`).
    pub calling: AtomicU32,
    guarded: Line,
    /// Guards the lists (H1).
    pub lock: Lock,
    /// One of [`usage`].
    pub usage: AtomicU32,
    /// Offset of the next in the list of all heaps.
    pub next_heap: AtomicU32,
    /// Offset of the next in the list of idle heaps.
    pub next_idle: AtomicU32,
    /// Pages of all spans (H4).
    pub pages: AtomicU32,
    /// Pages of empty spans (H4).
    pub empty_pages: AtomicU32,
    /// `refills` when the purger last looked.
    pub refills_seen: AtomicU32,
    /// Not 0: its thread is not in this child of a fork, and left magazines (fork.W3).
    pub orphan: AtomicU32,
    /// Offset of a tenant's newest large block.
    pub large: AtomicU32,
    /// Number of tenants that have had this heap: tells the handle of an earlier one (`tenant`).
    pub serial: AtomicU32,
    /// Walks for which the heap still keeps its magazines although it has no thread (thread.D4).
    pub warm: AtomicU32,
    pushed: Line,
    /// Offset from META of the newest span on the notified stack.
    pub notified: AtomicU32,
    lists: Line,
    /// Partial spans by class.
    pub partial: [AtomicU32; MAX_CLASSES],
    /// Full spans by class.
    pub full: [AtomicU32; MAX_CLASSES],
    /// Empty spans by class.
    pub empty: [AtomicU32; MAX_CLASSES],
    /// Classes with empty spans: a bit each (H6).
    pub has_empty: [AtomicU64; MAX_CLASSES / 64],
    /// Pages of each class's current span that are not resident yet (fresh.Y1).
    pub fresh: [AtomicU16; MAX_CLASSES],
    /// Number of entries handed out to magazines.
    entries_used: AtomicU32,
    /// Room for the magazines ([`ENTRIES`]), mapped when the first of them is filled: tenants never fill one.
    entries: AtomicPtr<Entry>,
}

/// A tenant costs this much metadata: META holds 1 GiB, of which each heap keeps a part for good.
const _: () = assert!(core::mem::size_of::<Heap>() <= 12 * 1024);

/// Entries of all magazines of a heap together: more than any number of sizes in use needs. Pages of them that no class
/// uses are never touched.
const ENTRIES: usize = MAX_CLASSES * 16;

/// They begin on a page and fill the last one, so that their pages can be given back without other data.
const _: () = assert!((ENTRIES * core::mem::size_of::<Entry>()).is_multiple_of(4096));

const _: () = {
    let (mut size, mut wanted) = (16, 0);
    while size <= 16 * MAX_CLASSES as u32 {
        wanted += magazine_entries(size) as usize;
        size += 16;
    }
    assert!(wanted <= ENTRIES);
};

/// Returns the number of entries of a class's magazine: the blocks that 16 KiB hold, from 4 to 32. Instructions
/// (callgrind, 2026-11-21) with 8 KiB from 3 on, 16 KiB from 4 on, 32 KiB from 6 on: 74.6, 67.5, 59.6 million for 2,000
/// random blocks of 1 to 31 KiB (`pattern rand2k 200000`), 201, 190, 181 for chains of ten sizes (`pattern glibc-simple
/// 2000`). Blocks in magazines pin their pages: 15 real programs need 0.6 % more at their peak with 32 KiB than with 8,
/// less than half of that with 16.
pub const fn magazine_entries(size: u32) -> u32 {
    match 16_384 / size {
        0..4 => 4,
        hold @ 4..32 => hold,
        _ => 32,
    }
}

/// Returns the frees into a full span of `slots` slots until it is partial. An eighth: with fewer frees a visit yields
/// little, with more, slots stay unused (they are looked for again before the heap grows, see `refreed`).
pub fn event_of(slots: usize) -> u32 {
    (slots as u32 / 8).max(1)
}

// SAFETY: the cells are those of the magazines, which only the owner touches, or the lock's holder while there is no
// owner (H1, H5); a new owner took the lock first. Everything else is atomic.
unsafe impl Sync for Heap {}

/// Returns the span that stands for none.
#[inline(always)]
fn no_span() -> *mut Span {
    &raw const EMPTY_SPAN as *mut Span
}

impl Heap {
    /// Makes a heap in zeroed memory.
    ///
    /// # Safety
    /// `heap` is the caller's, of this size and alignment.
    pub unsafe fn init(heap: *mut Heap) {
        // SAFETY: zeroes are valid for every field.
        let this = unsafe { &*heap };
        for magazine in &this.mags {
            magazine.current.set(no_span());
        }
        harden::new_heap(this);
    }

    /// Returns what spans of this heap carry as their owner.
    #[inline(always)]
    pub fn id(&self) -> u32 {
        core::ptr::from_ref(self) as usize as u32
    }

    /// Returns the identity as which its thread takes locks.
    #[inline]
    pub fn who(&self) -> Who {
        Who(self.id())
    }

    /// Returns the identity as which the thread that has this heap's lock takes further ones: the purger and other
    /// holders are not the owner, which may have the pool's lock at the same moment.
    pub fn holder(&self) -> Who {
        self.lock.holder(self.who())
    }

    /// Returns a class's magazine.
    #[inline(always)]
    pub fn magazine(&self, class: usize) -> &Magazine {
        debug_assert!(class < MAX_CLASSES);
        // SAFETY: classes are below MAX_CLASSES (class.C1, class.C2).
        unsafe { self.mags.get_unchecked(class) }
    }

    /// Returns the span that a class allocates from (H2).
    #[inline]
    pub fn current(&self, class: usize) -> *mut Span {
        self.magazine(class).current.get()
    }

    /// Leaves the class without a current span.
    pub fn clear_current(&self, class: usize) {
        self.mags[class].current.set(no_span());
    }

    /// Takes the newest block of a class's magazine; `None`: it is empty. Cost: five loads, two stores.
    ///
    /// # Safety
    /// The caller owns the heap.
    #[inline(always)]
    pub unsafe fn pop_block(&self, class: usize) -> Option<*mut u8> {
        // SAFETY: as the caller promises.
        unsafe { Heap::pop_from(self.magazine(class)) }
    }

    /// Does what [`Heap::pop_block`] does, for a slice of the class.
    ///
    /// # Safety
    /// The caller owns the heap; the slice is below `SLICES`.
    #[inline(always)]
    pub unsafe fn pop_slice(&self, slice: usize) -> Option<*mut u8> {
        let offset = class::magazine_of_slice(slice);
        // SAFETY: TABLE holds offsets of magazines (class.C2).
        unsafe { Heap::pop_from(Heap::magazine_at(self, offset)) }
    }

    /// Returns the magazine at an offset ([`class::magazine_of`]).
    ///
    /// # Safety
    /// `heap` is a heap; the offset is that of a class.
    #[inline(always)]
    pub unsafe fn magazine_at<'a>(heap: *const Heap, offset: usize) -> &'a Magazine {
        // SAFETY: a heap begins with its magazines.
        unsafe { &*heap.byte_add(offset).cast::<Magazine>() }
    }

    #[inline(always)]
    unsafe fn pop_from(magazine: &Magazine) -> Option<*mut u8> {
        let top = magazine.top.get();
        if top == magazine.bottom.get() {
            return None;
        }
        // SAFETY: H5: there is an entry below `top`, and its words are those of a live span.
        unsafe {
            let entry = top.sub(1);
            magazine.top.set(entry);
            let word = &(*(*entry).window).trio.dead;
            let bit = (*entry).bit.load(Ordering::Relaxed); // ORDER: the owner's own (H5)
            // The bit is set (H5).
            word.store(word.load(Ordering::Relaxed) ^ bit, Ordering::Relaxed); // ORDER: own (span.S2)
            Some((*entry).block)
        }
    }

    /// Fills a class's magazine, which is empty, from its current span; returns the number of blocks. See [`fill_of`].
    ///
    /// # Safety
    /// The heap's lock is held by its owner.
    unsafe fn fill(&self, class: usize) -> u32 {
        let magazine = self.magazine(class);
        let mut bottom = magazine.bottom.get();
        if bottom.is_null() {
            let room = magazine_entries(class::get(class).size);
            // ORDER: the owner's own (H5).
            let used = self.entries_used.load(Ordering::Relaxed);
            let entries = self.entries();
            if entries.is_null() || (used + room) as usize > ENTRIES {
                return 0;
            }
            self.entries_used.store(used + room, Ordering::Relaxed); // ORDER: as above
            // SAFETY: there is room for ENTRIES.
            bottom = unsafe { entries.add(used as usize) };
            magazine.bottom.set(bottom);
            magazine.top.set(bottom);
            // SAFETY: as above.
            magazine.end.set(unsafe { bottom.add(room as usize) });
        }
        // SAFETY: both point into `entries`.
        let room = unsafe { magazine.end.get().offset_from(bottom) } as u32;
        let want = fill_of(room);
        // The lowest address is to come out first, so it goes in last.
        // SAFETY: the current span of a class is live (H3); entries below `want` are there.
        unsafe {
            let span = &*self.current(class);
            holes::forget_clean(span);
            let got = span.grab(want, bottom.add(want as usize));
            if got < want {
                core::ptr::copy(bottom.add((want - got) as usize), bottom, got as usize);
            }
            magazine.top.set(bottom.add(got as usize));
            // ORDER: the lock is held.
            if self.fresh[class].load(Ordering::Relaxed) != 0 && got > 0 {
                let block = |at: *mut Entry| (*at).block as usize;
                let (from, to) = (block(bottom.add(got as usize - 1)), block(bottom));
                self.freshen(class, span, from, to + span.size());
            }
            got
        }
    }

    /// Returns the room for the magazines; null if the OS refuses. The heap's lock is held by its owner.
    fn entries(&self) -> *mut Entry {
        // ORDER: the owner's own (H5), here and below.
        let have = self.entries.load(Ordering::Relaxed);
        if !have.is_null() {
            return have;
        }
        let bytes = ENTRIES * core::mem::size_of::<Entry>();
        let made = with_pool(self.holder(), |pool| pool.region.meta_alloc(bytes, 4096)).flatten();
        let entries = made.map_or(core::ptr::null_mut(), at::<Entry>);
        self.entries.store(entries, Ordering::Relaxed); // ORDER: as above
        entries
    }

    /// Gives back the pages of its magazines' entries. They read as zero afterwards, but no code reads them so: a
    /// magazine is filled before it is read (H5).
    ///
    /// # Safety
    /// The heap's lock is held, it has no thread, and its magazines are empty.
    pub unsafe fn purge_entries(&self) {
        // ORDER: as in `entries`.
        let entries = self.entries.load(Ordering::Relaxed) as usize;
        if entries == 0 {
            return;
        }
        let bytes = ENTRIES * core::mem::size_of::<Entry>();
        // SAFETY: pages of META with nothing else in them (`entries`); no code reads what they hold (see above).
        unsafe { skinflint_base::sys::advise(entries as *mut u8, bytes, libc::MADV_DONTNEED) };
    }

    /// Empties every magazine into the spans.
    ///
    /// # Safety
    /// The caller owns the heap, or has its lock while it has no thread.
    pub unsafe fn empty_magazines(&self) {
        for class in 0..class::count() {
            // SAFETY: as the caller promises.
            while let Some(block) = unsafe { self.pop_block(class) } {
                // SAFETY: a block of this heap, whose bit is in none of F, R and D now.
                unsafe { free::to_bits(self, block) };
            }
        }
    }

    /// Forgets the magazines of a thread that is gone without having emptied them; their blocks are
    /// found by their bits.
    ///
    /// # Safety
    /// The heap's lock is held, and it has no thread.
    pub unsafe fn forget_magazines(&self) {
        for class in 0..class::count() {
            let magazine = self.magazine(class);
            magazine.top.set(magazine.bottom.get());
            let current = self.current(class);
            if !Heap::is_none(current) {
                // SAFETY: the current span of a class is live (H3).
                unsafe { (*current).uncache() };
            }
            for list in [&self.partial[class], &self.full[class]] {
                // ORDER: the lock is held.
                let head = list.load(Ordering::Relaxed);
                let mut next = head;
                while next != 0 {
                    // SAFETY: lists hold live descriptors (H3); the heap has no thread (span.S2).
                    let span = unsafe { &*at::<Span>(next) };
                    // SAFETY: as above.
                    unsafe { span.uncache() };
                    span.left.store(1, Ordering::Relaxed); // ORDER: as above
                    next = span.next.load(Ordering::Relaxed); // ORDER: as above
                    if next == head {
                        break;
                    }
                }
            }
        }
    }

    /// Reports whether a span is the one that stands for none.
    pub fn is_none(span: *mut Span) -> bool {
        span == no_span()
    }

    /// Makes a listed span, which has a free slot in F, the one that its class allocates from.
    ///
    /// # Safety
    /// The heap's lock is held by its owner; the span is on no list, and R was collected.
    unsafe fn make_current(&self, span: *mut Span) -> *mut Span {
        // SAFETY: a span of this heap.
        let this = unsafe { &*span };
        // SAFETY: the lock is held.
        let clean = unsafe { holes::forget_clean(this) };
        self.note_fresh(this.class(), clean);
        // ORDER: the lock is held (span.S3); the owner writes (span.S2).
        this.state.store(state::CURRENT, Ordering::Relaxed);
        this.left.store(u32::MAX, Ordering::Relaxed); // ORDER: own (span.S2, span.S6)
        self.mags[this.class()].current.set(span);
        let refills = self.refills.load(Ordering::Relaxed); // ORDER: the lock is held
        self.refills
            .store(refills.wrapping_add(1), Ordering::Relaxed); // ORDER: a statistic
        span
    }

    /// Puts the class's span, which has no free slot left, on the full list.
    ///
    /// # Safety
    /// The heap's lock is held by its owner.
    unsafe fn retire_current(&self, class: usize) {
        let span = self.current(class);
        if Heap::is_none(span) {
            return;
        }
        // SAFETY: the current span of a class is live (H3).
        let this = unsafe { &*span };
        this.left
            .store(event_of(this.slots as usize), Ordering::Relaxed); // ORDER: own (span.S2)
        self.clear_current(class);
        this.state.store(state::NONE, Ordering::Relaxed); // ORDER: the lock is held (span.S3)
        // SAFETY: it is Current no more, and on no list.
        unsafe { self.move_to(this, state::FULL, true) };
    }

    /// Takes the first span off a list, and collects its remote frees; `None`: the list is empty.
    ///
    /// # Safety
    /// The heap's lock is held by its owner.
    unsafe fn pop(&self, list: &AtomicU32) -> Option<*mut Span> {
        // ORDER: the lock is held.
        let head = list.load(Ordering::Relaxed);
        if head == 0 {
            return None;
        }
        let span = at::<Span>(head);
        // SAFETY: lists hold live descriptors (H3); the owner calls (span.S2).
        unsafe {
            self.move_to(&*span, state::NONE, false);
            (*span).collect();
        }
        Some(span)
    }

    /// Takes a span of the full list that has free slots after all: looks at a few, and goes on from there the next
    /// time.
    ///
    /// # Safety
    /// The heap's lock is held by its owner.
    unsafe fn refreed(&self, class: usize) -> Option<*mut Span> {
        let list = &self.full[class];
        let info = class::get(class);
        if event_of(info.pages[3] as usize * 4096 / info.size as usize) == 1 {
            // None has: with the first free it left the list. (In a fork's child one may have, whose blocks lay in the
            // magazine of a thread that is gone; it is found with its next free.)
            return None;
        }
        for _ in 0..FULL_LOOKS {
            // ORDER: the lock is held.
            let head = list.load(Ordering::Relaxed);
            if head == 0 {
                return None;
            }
            // SAFETY: lists hold live descriptors (H3).
            let span = unsafe { &*at::<Span>(head) };
            // ORDER: own (span.S2); what other threads freed was drained just now, and the count set by it.
            let untouched = span.left.load(Ordering::Relaxed) == event_of(span.slots as usize);
            if !untouched && span.free_slots() > 0 {
                // SAFETY: as the caller promises.
                return unsafe { self.pop(list) };
            }
            // ORDER: as above.
            list.store(span.next.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        None
    }

    /// Takes a block for the class the slow way: fills the magazine from the current span, from what other threads
    /// freed into it, from the next span. Null if the OS refuses; `None` if this thread is in the middle of this
    /// already.
    ///
    /// # Safety
    /// The caller owns the heap.
    pub unsafe fn refill(&self, class: usize) -> Option<*mut u8> {
        if !self.lock.lock(self.who()) {
            return None;
        }
        // SAFETY: as the caller promises, with the lock.
        let block = unsafe { self.refill_locked(class) };
        self.lock.unlock();
        Some(block)
    }

    /// # Safety
    /// The heap's lock is held by its owner.
    unsafe fn refill_locked(&self, class: usize) -> *mut u8 {
        // SAFETY: as the caller promises, throughout.
        unsafe {
            let span = &*self.current(class);
            let mut got = self.fill(class);
            if got == 0 && span.collect() > 0 {
                got = self.fill(class);
            }
            if got == 0 {
                let span = self.next_span(class);
                if span.is_null() {
                    return span.cast();
                }
                if self.fill(class) == 0 {
                    // There is no room for another magazine: blocks are taken one by one.
                    return (*span).take();
                }
            }
            self.pop_block(class).unwrap_or(core::ptr::null_mut())
        }
    }

    /// Takes a block without a magazine: for heaps that several threads use. Null if the OS refuses.
    ///
    /// # Safety
    /// The heap's lock is held, and it has no thread.
    pub unsafe fn take_locked(&self, class: usize) -> *mut u8 {
        // SAFETY: as the caller promises; the current span of a class is live (H3).
        unsafe {
            let span = &*self.current(class);
            // The purger may have purged pages since the last block (holes.O2).
            holes::forget_clean(span);
            let block = span.take();
            if !block.is_null() {
                return block;
            }
            if span.collect() > 0 {
                return span.take();
            }
            let span = self.next_span(class);
            if span.is_null() {
                core::ptr::null_mut()
            } else {
                (*span).take()
            }
        }
    }

    /// Returns the next span for a class that has run out; null if the OS refuses.
    ///
    /// # Safety
    /// The heap's lock is held by its owner.
    pub unsafe fn next_span(&self, class: usize) -> *mut Span {
        // SAFETY: the owner calls, with the lock.
        unsafe {
            free::drain(self);
            // Collects what came back since the caller looked: retired with free slots, and with a countdown that says
            // it has none, the span would be passed over by `refreed`; if they are all of its slots no event would
            // follow.
            let span = self.current(class);
            if (*span).free_slots() > 0 {
                (*span).collect();
                return span;
            }
            self.retire_current(class);
            let found = self
                .pop(&self.partial[class])
                .or_else(|| self.pop(&self.empty[class]))
                .or_else(|| self.refreed(class))
                .or_else(|| self.steal(class));
            if let Some(span) = found {
                return self.make_current(span);
            }
            holes::before_growing(self);
            let (span, clean) = self.new_span(class);
            if span.is_null() {
                return span;
            }
            self.make_current(span);
            if clean {
                self.note_fresh(class, u16::MAX);
            }
            span
        }
    }

    /// Takes a partial span from a heap that has no thread.
    ///
    /// # Safety
    /// The heap's lock is held by its owner.
    unsafe fn steal(&self, class: usize) -> Option<*mut Span> {
        // A tenant's spans hold no blocks of other heaps.
        // ORDER: written before the heap was handed out.
        if self.usage.load(Ordering::Relaxed) >= usage::TENANT {
            return None;
        }
        // A hint: the list is read without the pool's lock, so the walk is bounded, and what it finds is checked
        // under the other heap's lock.
        let mut next = publish::first(&crate::state::IDLE);
        for _ in 0..8 {
            if next == 0 {
                return None;
            }
            // SAFETY: heaps stay (state.G4).
            let other = unsafe { &*at::<Heap>(next) };
            next = publish::next_of_changing(&other.next_idle);
            // ORDER: a look.
            if other.partial[class].load(Ordering::Relaxed) == 0
                || !other.lock.try_lock(self.holder())
            {
                continue;
            }
            let mut found = None;
            // ORDER: the lock is held; adoption takes it too.
            if other.usage.load(Ordering::Relaxed) == usage::IDLE {
                // A warm heap's magazines may hold blocks of the span, so they must be emptied first; a small heap has
                // little to gain.
                let much = other.pages.load(Ordering::Relaxed) >= STEAL_WARM_PAGES; // ORDER: as above
                // SAFETY: the heap has no thread, and its lock is held (H1).
                unsafe {
                    crate::fork::settle(other);
                    if much {
                        crate::thread::cool(other, true);
                    }
                    // ORDER: as above.
                    if other.warm.load(Ordering::Relaxed) == 0 {
                        found = other.pop(&other.partial[class]);
                    }
                }
            }
            if let Some(span) = found {
                // SAFETY: popped just now.
                let this = unsafe { &*span };
                remote::hand_over(&this.owner, self.id());
                let pages = this.pages();
                other.pages.fetch_sub(pages, Ordering::Relaxed); // ORDER: a statistic under the locks (H4)
                self.pages.fetch_add(pages, Ordering::Relaxed); // ORDER: as above
            }
            other.lock.unlock();
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
