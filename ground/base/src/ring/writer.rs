//! The writer's end of a ring.
//!
//! ```text
//!   begin(n) ─► Cursor ─ put, put ─► end ─► publish          the fast path: nothing shared is read
//!      └─ room_slow ─ pad the lap, look at `head`, or wait_for_room ─ grow
//! ```
//!
//! W1  `pos` is the writer's copy of `tail`; words below `limit` may be written without looking at
//!     anything shared. `limit` is never beyond the end of the lap, the room left by the reader, or
//!     the larger of a quarter of the capacity and a record from the last look.
//! W2  `tail` is published only behind whole records.
//! W3  A wait ends after a bounded time, so a wake that is missed costs time and nothing else.
//!
//! Not here: how to wake and to wait, and when to give up ([`Outside`]); what records say.

use crate::ring::{SlotHeader, tag, word};
use crate::sync::{Ordering, Word};

/// The services that a writer needs from outside, and the bound of its ring: the recorder's is in its
/// `emit.rs`, the tests have their own.
pub trait Outside {
    /// The capacity of a new ring, in words; a power of two.
    const FIRST_CAPACITY: u64;
    /// The largest capacity, in words; a power of two.
    const LAST_CAPACITY: u64;
    /// The longest record, in words; a ring of the first capacity has room for it.
    const RECORD_WORDS: u64;
    /// The state of a wait, kept from one call of `wait` to the next.
    type Patience;

    /// Wakes the reader if it sleeps: much is unread.
    fn wake_reader(&self);
    /// Begins a wait. `None`: there is no reader to wait for.
    fn patience(&self) -> Option<Self::Patience>;
    /// Wakes the reader and waits, for a bounded time (W3), until `slot.head.drained` is no longer
    /// `seen`. Returns false if the writer should give up.
    fn wait(&self, slot: &SlotHeader, seen: u32, patience: &mut Self::Patience) -> bool;
}

/// The writer's end of a ring.
pub struct Writer<O> {
    pos: u64,
    limit: u64,
    words: *const Word,
    mask: u64,
    header: *const SlotHeader,
    outside: O,
}

impl<O: Outside> Writer<O> {
    const BOUNDS: () = assert!(
        O::FIRST_CAPACITY.is_power_of_two()
            && O::LAST_CAPACITY.is_power_of_two()
            && O::RECORD_WORDS <= O::FIRST_CAPACITY
            && O::FIRST_CAPACITY <= O::LAST_CAPACITY
    );

    /// Creates a writer that goes on where the slot's last owner stopped.
    ///
    /// # Safety
    /// The slot is the caller's until the writer is gone (ring.R1); `header` and the `LAST_CAPACITY`
    /// words at `words` live as long.
    pub unsafe fn over(header: &SlotHeader, words: *const Word, outside: O) -> Writer<O> {
        const { Self::BOUNDS };
        // ORDER: Relaxed; the last owner has ended, and the takeover was an Acquire.
        let mut capacity = header.capacity.load(Ordering::Relaxed);
        if capacity == 0 {
            capacity = O::FIRST_CAPACITY;
            // ORDER: Relaxed; published by the next Release of `tail` (ring.R3).
            header.capacity.store(capacity, Ordering::Relaxed);
        }
        let pos = header.tail.load(Ordering::Relaxed); // ORDER: Relaxed; as the capacity.
        Writer {
            pos,
            limit: pos,
            words,
            mask: capacity - 1,
            header,
            outside,
        }
    }

    /// Returns the words written so far.
    #[inline(always)]
    pub fn pos(&self) -> u64 {
        self.pos
    }

    /// Returns the shared half. It outlives the writer, as the caller of `over` promised.
    #[inline(always)]
    pub fn header<'a>(&self) -> &'a SlotHeader {
        // SAFETY: made from a reference that is good until the writer is gone.
        unsafe { &*self.header }
    }

    /// Makes room for `words` words without a seam (ring.R2, W1). `None`: recording is over.
    /// Cost: an addition, a comparison, an address.
    #[inline(always)]
    pub fn begin(&mut self, words: usize) -> Option<Cursor> {
        if self.pos + words as u64 > self.limit && !self.room_slow(words as u64) {
            return None;
        }
        // SAFETY: the mask keeps the index inside the ring.
        let start = unsafe { self.words.add((self.pos & self.mask) as usize) };
        Some(Cursor { start, at: start })
    }

    /// Takes over what a cursor has written. The reader does not see it before [`Writer::publish`].
    #[inline(always)]
    pub fn end(&mut self, cursor: Cursor) {
        // SAFETY: both point into the ring, `at` behind `start`.
        self.pos += unsafe { cursor.at.offset_from(cursor.start) } as u64;
    }

    #[cold]
    #[inline(never)]
    fn room_slow(&mut self, words: u64) -> bool {
        let header = self.header();
        self.publish();
        loop {
            let capacity = self.mask + 1;
            let lap_end = (self.pos | self.mask) + 1;
            // ORDER: Acquire; pairs with the Release of `head` in `Unread::give_back`: words below
            // it have been read. [model: ring_model_a_full_ring]
            let head = header.head.words.load(Ordering::Acquire);
            let seam = self.pos + words > lap_end;
            let wanted = if seam { lap_end } else { self.pos + words };
            if wanted > head + capacity {
                if !self.wait_for_room(wanted) {
                    return false;
                }
                continue;
            }
            if seam {
                // SAFETY: the words up to the end of the lap are free, as just checked; a reader
                // skips the number of words that the first one says.
                unsafe {
                    let at = self.words.add((self.pos & self.mask) as usize);
                    (*at).write(word(tag::PAD, 0, lap_end - self.pos));
                }
                self.pos = lap_end;
                self.publish();
                continue;
            }
            if self.pos - head >= capacity / 4 {
                self.outside.wake_reader();
            }
            let next_look = self.pos + (capacity / 4).max(O::RECORD_WORDS);
            self.limit = lap_end.min(head + capacity).min(next_look);
            return true;
        }
    }

    /// Waits until the reader has read enough; a ring that was full grows once it is empty (ring.R3).
    fn wait_for_room(&mut self, wanted: u64) -> bool {
        let header = self.header();
        let Some(mut patience) = self.outside.patience() else {
            return false;
        };
        let may_grow = self.mask + 1 < O::LAST_CAPACITY;
        loop {
            // ORDER: Acquire for both; they pair with the Releases in `Unread::give_back`. `drained`
            // is raised after `head` was stored, so a wait on a value read before `head` cannot
            // sleep through the change. The reader's load of the capacity must lie before our change
            // of it; ring_model_growth passes without this Acquire too, since loom never shows a
            // load a store that is still to come. [reason: unshown]
            let drained = header.head.drained.load(Ordering::Acquire);
            let head = header.head.words.load(Ordering::Acquire); // ORDER: as above
            if may_grow && head == self.pos {
                self.mask = self.mask * 2 + 1;
                // ORDER: Relaxed; published by the next Release of `tail` (ring.R3). ring_model: growth.
                header.capacity.store(self.mask + 1, Ordering::Relaxed);
                return true;
            }
            if !may_grow && wanted <= head + self.mask + 1 {
                return true;
            }
            // ORDER: Relaxed; `Unread::give_back` looks at it after it has stored `head`; a wake
            // that is missed costs one time-out (W3).
            header.waiting.store(1, Ordering::Relaxed);
            if !self.outside.wait(header, drained, &mut patience) {
                return false;
            }
        }
    }

    /// Shows the reader everything up to here. Cost: a plain store.
    #[inline(always)]
    pub fn publish(&self) {
        // ORDER: Release; pairs with the Acquire in `ring::unread`: a reader that sees `tail` sees the
        // words below it, and the capacity they were written with. [model: ring_model_publication]
        self.header().tail.store(self.pos, Ordering::Release);
    }
}

/// The place at which words are written: a pointer in a register. The compiler must assume that a
/// store to the ring may change the writer's state, and would load the position again for each word.
#[derive(Clone, Copy)]
pub struct Cursor {
    start: *const Word,
    at: *const Word,
}

impl Cursor {
    /// Writes a word. Cost: a store, an addition.
    ///
    /// # Safety
    /// The word is one of those for which `begin` made room.
    #[inline(always)]
    pub unsafe fn put(&mut self, value: u64) {
        // SAFETY: W1: the word is inside the ring and free.
        unsafe {
            (*self.at).write(value);
            self.at = self.at.add(1);
        }
    }
}
