//! The slow path of malloc: a magazine is filled, the next span is found.
//!
//! ```text
//!   magazine ◄── current span ◄── partial, empty, full again ◄── another heap's ◄── meshed ◄── new
//! ```
//!
//! A free slot of a meshed page is used last: the first write there costs a page that the kernel had saved (`mesh`).
//!
//! Not here: what a heap is made of (`heap`), where new spans come from (`spans`).

use skinflint_base::sync::{AtomicU32, Ordering};

use super::pool::{IDLE, SPARE, with_pool};
use super::{changes, clean, events, hints, retire, slow};
use crate::mechanism::class;
use crate::mechanism::entry::Entry;
use crate::mechanism::heap::{ENTRIES, Heap, event_of, fill_of, usage};
use crate::mechanism::range::at;
use crate::mechanism::span::{Span, state};
use crate::mechanism::{publish, remote};

/// The most spans of the full list that are looked at before a new span is made.
const FULL_LOOKS: u32 = 16;

/// The most meshed spans that are passed over in a look for a partial one that is not.
const MESHED_LOOKS: u32 = 16;

/// Pages from which on a warm heap is cooled by a heap that needs a span: 1 MiB.
const STEAL_WARM_PAGES: u32 = 256;

/// The most idle heaps that are looked at for a span.
const STEAL_LOOKS: usize = 8;

impl Heap {
    /// Fills a class's magazine, which is empty, from its current span; returns the number of blocks. See [`fill_of`].
    ///
    /// # Safety
    /// The heap's lock is held by its owner.
    #[unsafe(link_section = ".text.skinflint_first")]
    unsafe fn fill(&self, class: usize) -> u32 {
        let bounds = &self.magazine(class).bounds;
        let room = self.room_of(class);
        let mut bottom = bounds.first();
        if bottom.is_null() {
            // ORDER: the owner's own (heap.H5).
            let used = self.entries_used.load(Ordering::Relaxed) as usize;
            let entries = self.entries();
            if entries.is_null() || used + room > ENTRIES {
                return 0;
            }
            self.entries_used
                .store((used + room) as u32, Ordering::Relaxed); // ORDER: as above
            // SAFETY: there is room for ENTRIES.
            bottom = unsafe { entries.add(used) };
        } else {
            // SAFETY: its own room.
            let held = unsafe { bounds.reopen(room) };
            if held > 0 {
                return held as u32;
            }
        }
        let want = fill_of(room as u32);
        // Nothing is pushed meanwhile, by a signal handler of this thread.
        bounds.revoke();
        // The lowest address is to come out first, so it goes in last.
        // SAFETY: the current span of a class is live (heap.H3); entries below `want` are there.
        unsafe {
            let span = &*self.current(class);
            let got = span.grab(want, bottom.add(want as usize));
            if got < want {
                core::ptr::copy(bottom.add((want - got) as usize), bottom, got as usize);
            }
            bounds.open(bottom, got as usize, room);
            if got > 0 {
                let block = |at: *mut Entry| (*at).block as usize;
                let (from, last) = (block(bottom.add(got as usize - 1)), block(bottom));
                clean::forget_clean(self, span, from, last + span.size());
                // ORDER: the lock is held.
                if self.fresh[class].load(Ordering::Relaxed) != 0 {
                    self.freshen(class, span, from, last + span.size());
                }
            }
            got
        }
    }

    /// Returns the room for the magazines; null if the OS refuses. The heap's lock is held by its owner.
    fn entries(&self) -> *mut Entry {
        // ORDER: the owner's own (heap.H5), here and below.
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

    /// Makes a listed span, which has a free slot in F, the one that its class allocates from.
    ///
    /// # Safety
    /// The heap's lock is held by its owner; the span is on no list, and R was collected.
    #[unsafe(link_section = ".text.skinflint_first")]
    unsafe fn make_current(&self, span: *mut Span) -> *mut Span {
        // SAFETY: a span of this heap.
        let this = unsafe { &*span };
        self.note_fresh(this.class(), this.clean.load(Ordering::Relaxed)); // ORDER: the lock is held (span.S3)
        // ORDER: the lock is held (span.S3); the owner writes (span.S2).
        this.state.store(state::CURRENT, Ordering::Relaxed);
        this.left.store(u32::MAX, Ordering::Relaxed); // ORDER: own (span.S2, span.S6)
        changes::note(this);
        changes::set_meshed(this, false);
        self.mags[this.class()].current.set(span);
        hints::hint_idle(self, this);
        let turns = &self.turns[this.class()];
        let more = turns.load(Ordering::Relaxed).saturating_add(1); // ORDER: the lock is held
        turns.store(more, Ordering::Relaxed); // ORDER: as above
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
        // SAFETY: the current span of a class is live (heap.H3).
        let this = unsafe { &*span };
        this.left
            .store(event_of(this.slots as usize), Ordering::Relaxed); // ORDER: own (span.S2)
        changes::note(this);
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
        // SAFETY: lists hold live descriptors (heap.H3); the owner calls (span.S2).
        unsafe {
            self.move_to(&*span, state::NONE, false);
            (*span).collect();
        }
        Some(span)
    }

    /// Does what [`Heap::pop`] does for the partial list, unless the first spans there are meshed. What became partial since then
    /// is at the end.
    ///
    /// # Safety
    /// The heap's lock is held by its owner.
    #[unsafe(link_section = ".text.skinflint_first")]
    unsafe fn pop_unmeshed(&self, class: usize) -> Option<*mut Span> {
        let list = &self.partial[class];
        for _ in 0..MESHED_LOOKS {
            // ORDER: the lock is held, throughout.
            let head = list.load(Ordering::Relaxed);
            // SAFETY: lists hold live descriptors (heap.H3).
            let first = (head != 0).then(|| unsafe { &*at::<Span>(head) })?;
            if !changes::is_meshed(first) {
                // SAFETY: as the caller promises.
                return unsafe { self.pop(list) };
            }
            let last = first.prev.load(Ordering::Relaxed); // ORDER: as above
            // SAFETY: as above.
            let to = match changes::is_meshed(unsafe { &*at::<Span>(last) }) {
                false => last,
                true => first.next.load(Ordering::Relaxed), // ORDER: as above
            };
            list.store(to, Ordering::Relaxed); // ORDER: as above
        }
        None
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
        // ORDER: the lock is held, here and below.
        let first = list.load(Ordering::Relaxed);
        if first == 0 {
            return None;
        }
        let mut next = first;
        for _ in 0..FULL_LOOKS {
            // SAFETY: lists hold live descriptors (heap.H3).
            let span = unsafe { &*at::<Span>(next) };
            // ORDER: own (span.S2); what other threads freed was drained just now, and the count set by it.
            let untouched = span.left.load(Ordering::Relaxed) == event_of(span.slots as usize);
            if !untouched && span.free_slots() > 0 && !changes::is_meshed(span) {
                list.store(next, Ordering::Relaxed); // ORDER: as above
                // SAFETY: as the caller promises.
                return unsafe { self.pop(list) };
            }
            next = span.next.load(Ordering::Relaxed); // ORDER: as above
            if next == first {
                break;
            }
        }
        list.store(next, Ordering::Relaxed); // ORDER: as above
        None
    }

    /// Takes a block for the class the slow way: fills the magazine from the current span, from what other threads
    /// freed into it, from the next span. Null if the OS refuses; `None` if this thread is in the middle of this
    /// already.
    ///
    /// # Safety
    /// The caller owns the heap.
    #[unsafe(link_section = ".text.skinflint_first")]
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
            // ORDER: a wish; nothing is passed on.
            if self.asked_to_empty.load(Ordering::Relaxed) != 0 {
                self.asked_to_empty.store(0, Ordering::Relaxed); // ORDER: as above
                retire::release_current(self);
                self.purge_entries();
            }
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
                    // There is no room for another magazine.
                    return self.take_one(&*span);
                }
            }
            self.pop_block(class)
        }
    }

    /// Takes a block without a magazine: for heaps that several threads use. Null if the OS refuses.
    ///
    /// # Safety
    /// The heap's lock is held, and it has no thread.
    pub unsafe fn take_locked(&self, class: usize) -> *mut u8 {
        // SAFETY: as the caller promises; the current span of a class is live (heap.H3).
        unsafe {
            let span = &*self.current(class);
            let block = self.take_one(span);
            if !block.is_null() {
                return block;
            }
            if span.collect() > 0 {
                return self.take_one(span);
            }
            let span = self.next_span(class);
            if span.is_null() {
                core::ptr::null_mut()
            } else {
                self.take_one(&*span)
            }
        }
    }

    /// Takes a block of a span of this heap; null if there is none.
    ///
    /// # Safety
    /// The heap's lock is held, and the caller may take from the span (span.S2).
    pub unsafe fn take_one(&self, span: &Span) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe {
            let block = span.take();
            if !block.is_null() {
                clean::forget_clean(self, span, block.addr(), block.addr() + span.size());
            }
            block
        }
    }

    /// Returns the next span for a class that has run out; null if the OS refuses.
    ///
    /// # Safety
    /// The heap's lock is held by its owner.
    #[unsafe(link_section = ".text.skinflint_first")]
    pub unsafe fn next_span(&self, class: usize) -> *mut Span {
        // SAFETY: the owner calls, with the lock.
        unsafe {
            events::drain(self);
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
                .pop_unmeshed(class)
                .or_else(|| self.pop(&self.empty[class]))
                .or_else(|| self.refreed(class))
                .or_else(|| self.steal(class))
                .or_else(|| self.pop(&self.partial[class]));
            if let Some(span) = found {
                return self.make_current(span);
            }
            // ORDER: the lock is held.
            if self.usage.load(Ordering::Relaxed) == usage::THREAD {
                let least = u32::from(class::get(class).pages[0]);
                retire::release_own(self, SPARE.load(Ordering::Relaxed) < least); // ORDER: a hint
            }
            (slow::paths().before_growing)(self);
            let span = self.new_span(class);
            match span.is_null() {
                true => span,
                false => self.make_current(span),
            }
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
        // SAFETY: heaps stay (pool.G4).
        let heap = |offset| unsafe { &*at::<Heap>(offset) };
        let idle =
            publish::walk_changing(&IDLE, STEAL_LOOKS, move |offset| &heap(offset).next_idle);
        for other in idle.map(heap) {
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
                // SAFETY: the heap has no thread, and its lock is held (heap.H1).
                unsafe {
                    retire::settle(other);
                    if much {
                        retire::cool(other, true);
                    }
                    // ORDER: as above.
                    if other.warm.load(Ordering::Relaxed) == 0 {
                        let meshed = || other.pop(&other.partial[class]);
                        found = other.pop_unmeshed(class).or_else(meshed);
                    }
                }
            }
            if let Some(span) = found {
                // SAFETY: popped just now.
                let this = unsafe { &*span };
                remote::hand_over(&this.owner, self.id());
                let pages = this.pages();
                other.pages.fetch_sub(pages, Ordering::Relaxed); // ORDER: a statistic under the locks (heap.H4)
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
