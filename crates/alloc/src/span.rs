//! A span: 4 to 64 KiB of blocks of one class, described outside of them.
//!
//! ```text
//!   descriptor (64 bytes for up to 64 slots, in META)            span (in HEAP)
//!   [ start owner class state left … | F0 F1 … | R0 R1 … ]       [ block | block | block | … tail ]
//!     F: bit set = free, the owner's own      R: bit set = freed by another thread
//! ```
//!
//! S1  A slot is free exactly if its bit is set in F or in R. It is never set in both.
//! S2  F, `left`, `cur` and `cur_off` are written only by the thread that owns the span's heap, or under
//!     the heap's lock while no thread owns it. F may be read by others (under the lock, by the purger).
//! S3  `state`, `next`, `prev`, `clean` and `seen` are written only under the heap's lock.
//! S4  A bit of R is set by whoever frees the block, once, and cleared only by the owner (S2), which
//!     moves it to F.
//! S5  Only the span that is Current in its class is allocated from. So a page of any other span, all of
//!     whose slots are free, stays free for as long as the heap's lock is held.
//! S6  `left` counts frees down to the next event. Current: used + 1, so no free reaches 0. Otherwise an
//!     event is due when it reaches 0; events count anew, so a wrong `left` costs time, not truth.
//! S7  `nlink` is 0 exactly if the span is not on its heap's notified stack.
//!
//! Meshing needs no more than this: the bits are outside, and MAP may send two page runs to one descriptor.
//!
//! Not here: lists and locks (`heap`).

use skinflint_base::sync::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use skinflint_pages::PAGE;

use crate::class;

/// Kind of a small span's descriptor.
pub const KIND_SMALL: u8 = 2;
/// Kind of a large run's descriptor.
pub const KIND_LARGE: u8 = 3;

/// Where a span is (S3).
pub mod state {
    /// Being made or given back.
    pub const NONE: u8 = 0;
    /// Allocated from.
    pub const CURRENT: u8 = 1;
    /// On the class's list of spans with free slots.
    pub const PARTIAL: u8 = 2;
    /// On the class's list of spans with no free slots, or so few that they are not worth a visit.
    pub const FULL: u8 = 3;
    /// On the class's list of spans without a live block.
    pub const EMPTY: u8 = 4;
}

/// Offset of the bit words in a descriptor.
const WORDS_AT: usize = 48;

/// The descriptor.
#[repr(C, align(64))]
pub struct Span {
    /// Address of the first page.
    pub start: usize,
    /// Bytes from `start` to the first slot of the current word.
    pub cur_off: AtomicU32,
    /// `ceil(2^32 / size)`; see `class` (C3).
    pub mul: u32,
    /// Low half of the owning heap's address.
    pub owner: AtomicU32,
    /// [`KIND_SMALL`].
    pub kind: AtomicU8,
    /// One of [`state`].
    pub state: AtomicU8,
    /// Class.
    pub class: u8,
    /// Pages.
    pub pages: u8,
    /// Bytes of a slot.
    pub size: u16,
    /// Slots.
    pub slots: u16,
    /// Frees to the next event (S6).
    pub left: AtomicU16,
    /// Current word.
    pub cur: AtomicU8,
    /// The purger's last walk that came by.
    pub visit: AtomicU8,
    /// Pages known to hold nothing: a bit each.
    pub clean: AtomicU16,
    /// Free slots when the purger last looked.
    pub seen: AtomicU16,
    /// Next on the list, circular; offset from META.
    pub next: AtomicU32,
    /// The one before.
    pub prev: AtomicU32,
    /// Next on the notified stack (S7).
    pub nlink: AtomicU32,
    pub(crate) words: [AtomicU64; 2],
}

const _: () = assert!(core::mem::size_of::<Span>() == 64);
const _: () = assert!(core::mem::offset_of!(Span, words) == WORDS_AT);
const _: () = assert!(core::mem::offset_of!(Span, owner) == 16);
const _: () = assert!(core::mem::offset_of!(Span, kind) == 20);

/// Words of bits for so many slots.
pub const fn words_for(slots: usize) -> usize {
    slots.div_ceil(64)
}

/// Units of 64 bytes of a descriptor for so many slots.
pub const fn units_for(slots: usize) -> u32 {
    (WORDS_AT + 16 * words_for(slots)).div_ceil(64) as u32
}

impl Span {
    /// Words of F, and of R.
    #[inline]
    pub fn words(&self) -> usize {
        words_for(self.slots as usize)
    }

    /// A word of F.
    ///
    /// # Safety
    /// `i < self.words()`.
    #[inline(always)]
    pub unsafe fn free_word(&self, i: usize) -> &AtomicU64 {
        // SAFETY: the descriptor was allocated with this many words after its header (`units_for`).
        unsafe { &*self.words.as_ptr().add(i) }
    }

    /// A word of R.
    ///
    /// # Safety
    /// `i < self.words()`.
    #[inline]
    pub unsafe fn remote_word(&self, i: usize) -> &AtomicU64 {
        // SAFETY: as for `free_word`.
        unsafe { &*self.words.as_ptr().add(self.words() + i) }
    }

    /// Bits that slots have in a word of F.
    #[inline]
    fn all_bits(&self, i: usize) -> u64 {
        let left = self.slots as usize - i * 64;
        if left >= 64 {
            u64::MAX
        } else {
            (1 << left) - 1
        }
    }

    /// Fills a zeroed descriptor: every slot free.
    ///
    /// # Safety
    /// The descriptor has [`units_for`] units for the slots, and is nobody else's.
    pub unsafe fn init(span: *mut Span, start: usize, class: usize, pages: u32, owner: u32) {
        let info = class::get(class);
        let slots = pages as usize * PAGE / info.size as usize;
        // SAFETY: the caller's own descriptor.
        unsafe {
            (*span).start = start;
            (*span).mul = info.mul;
            (*span).class = class as u8;
            (*span).pages = pages as u8;
            (*span).size = info.size as u16;
            (*span).slots = slots as u16;
            let this = &*span;
            // ORDER: Relaxed throughout: the span is published by the page map's Release in `heap`.
            this.cur_off.store(0, Ordering::Relaxed);
            this.cur.store(0, Ordering::Relaxed);
            this.left.store(1, Ordering::Relaxed);
            this.clean.store(0, Ordering::Relaxed);
            this.seen.store(0, Ordering::Relaxed);
            this.nlink.store(0, Ordering::Relaxed);
            this.visit.store(0, Ordering::Relaxed);
            for i in 0..this.words() {
                this.free_word(i).store(this.all_bits(i), Ordering::Relaxed);
                this.remote_word(i).store(0, Ordering::Relaxed);
            }
            this.kind.store(KIND_SMALL, Ordering::Relaxed);
            this.owner.store(owner, Ordering::Release);
        }
    }

    /// Takes the lowest free slot of the current word. Cost: four loads, three stores, two branches.
    ///
    /// # Safety
    /// The caller owns the heap (S2), and the span is Current.
    #[inline(always)]
    pub unsafe fn take(&self) -> *mut u8 {
        // SAFETY: `cur` is a word of this span (S2).
        let word = unsafe { self.free_word(self.cur.load(Ordering::Relaxed) as usize) }; // ORDER: own (S2)
        // ORDER: written by this thread only (S2).
        let bits = word.load(Ordering::Relaxed);
        if bits == 0 {
            return core::ptr::null_mut();
        }
        // ORDER: as above; the purger does not look at Current spans (S5).
        word.store(bits & (bits - 1), Ordering::Relaxed);
        // ORDER: own (S2).
        self.left.store(
            self.left.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
        let slot = bits.trailing_zeros();
        // ORDER: own (S2).
        let offset = self.cur_off.load(Ordering::Relaxed) + slot * u32::from(self.size);
        (self.start + offset as usize) as *mut u8
    }

    /// Moves to a word with a free slot, if there is one; words before the current one too.
    ///
    /// # Safety
    /// As for [`Span::take`].
    pub unsafe fn next_word(&self) -> bool {
        let words = self.words();
        for i in 0..words {
            // SAFETY: i < words.
            // ORDER: own (S2).
            if unsafe { self.free_word(i) }.load(Ordering::Relaxed) != 0 {
                self.set_word(i);
                return true;
            }
        }
        false
    }

    fn set_word(&self, i: usize) {
        // ORDER: own (S2).
        self.cur.store(i as u8, Ordering::Relaxed);
        // ORDER: own (S2).
        self.cur_off
            .store(i as u32 * 64 * u32::from(self.size), Ordering::Relaxed);
    }

    /// Moves what other threads freed from R to F; returns how many blocks that were.
    ///
    /// # Safety
    /// The caller may write F (S2).
    pub unsafe fn collect(&self) -> u32 {
        let mut count = 0;
        for i in 0..self.words() {
            // SAFETY: i < words.
            let remote = unsafe { self.remote_word(i) };
            // ORDER: a look; the swap orders.
            if remote.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // ORDER: Acquire meets the Release of `free_remote`: what the freeing thread did with the
            // block comes before its next use (model: remote).
            let freed = remote.swap(0, Ordering::Acquire);
            count += freed.count_ones();
            // SAFETY: i < words.
            let own = unsafe { self.free_word(i) };
            // ORDER: own (S2).
            own.store(own.load(Ordering::Relaxed) | freed, Ordering::Relaxed);
        }
        count
    }

    /// Free slots, F and R together. Exact when nobody frees meanwhile.
    pub fn free_slots(&self) -> u32 {
        let mut count = 0;
        for i in 0..self.words() {
            count += self.free_bits(i).count_ones();
        }
        count
    }

    /// Bits of free slots in a word, F and R together.
    #[inline]
    pub fn free_bits(&self, i: usize) -> u64 {
        // SAFETY: callers loop over the words.
        // ORDER: Acquire meets the Release of the frees: a page found free is no longer written to.
        unsafe {
            self.free_word(i).load(Ordering::Acquire) | self.remote_word(i).load(Ordering::Acquire)
        }
    }

    /// Bits of live blocks in a word.
    pub fn live_bits(&self, i: usize) -> u64 {
        self.all_bits(i) & !self.free_bits(i)
    }

    /// Used slots.
    pub fn used(&self) -> u32 {
        u32::from(self.slots) - self.free_slots()
    }

    /// Whether slots `from..=to` are all free.
    fn all_free(&self, from: usize, to: usize) -> bool {
        let mut slot = from;
        while slot <= to {
            let word = slot / 64;
            let low = slot % 64;
            let high = if to / 64 == word { to % 64 } else { 63 };
            let mask = (u64::MAX >> (63 - high)) & (u64::MAX << low);
            if self.free_bits(word) & mask != mask {
                return false;
            }
            slot = (word + 1) * 64;
        }
        true
    }

    /// The pages that hold no live byte: a bit each. Cost: a load or two for each page.
    pub fn free_pages(&self) -> u16 {
        let size = self.size as usize;
        let slots = self.slots as usize;
        let mut pages = 0u16;
        for page in 0..self.pages as usize {
            let first = page * PAGE / size;
            let last = ((page + 1) * PAGE - 1) / size;
            if first >= slots || self.all_free(first, last.min(slots - 1)) {
                pages |= 1 << page;
            }
        }
        pages
    }

    /// Slot of an address in the span; `None`: no block begins there.
    #[inline(always)]
    pub fn slot_of(&self, address: usize) -> Option<usize> {
        let offset = (address - self.start) as u64;
        let product = offset * u64::from(self.mul);
        let slot = (product >> 32) as usize;
        // C3: the low half tells multiples.
        if product as u32 >= self.mul || slot >= self.slots as usize {
            return None;
        }
        Some(slot)
    }

    /// Whether the block in a slot is live.
    pub fn is_live(&self, slot: usize) -> bool {
        self.free_bits(slot / 64) >> (slot % 64) & 1 == 0
    }
}
