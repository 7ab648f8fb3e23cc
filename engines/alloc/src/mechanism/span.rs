//! A span: 4 to 64 KiB of blocks of one class, described outside of them.
//!
//! ```text
//!   descriptor (64 bytes for up to 64 slots, in META)               span (in HEAP)
//!   [ page owner class state left … | F0 R0 D0 | F1 R1 D1 | … ]     [ block | block | block | … tail ]
//!     F: free, and in no magazine     R: freed by another thread     D: dead: in F, or in the owner's magazine
//! ```
//!
//! S1  A slot is free exactly if its bit is set in D or R; F is a part of D, and no slot is in F and R. What is in D and in
//!     neither F nor R is in the magazine: a block that goes in and out there costs one bit of one word. What is in D and
//!     R was taken from there by another thread (revoke.V2).
//! S2  F, D and `left` are written only by the thread that owns the span's heap, or under the heap's
//!     lock while no thread owns it. F may be read by others (under the lock, by the purger). One exception: the purger sets
//!     `left` to 1 under the lock (round.O4), without regard to the owner, whose decrement is lost by that or undoes it.
//! S3  `state`, `next`, `prev`, `clean`, `seen` and `visit` are written only under the heap's lock.
//! S4  A bit of R is set once, by the thread that frees the block, or takes it out of a magazine, and cleared only by the
//!     owner (S2), which moves it to F and D.
//! S5  Bits are removed from F only under the heap's lock. So a page, all of whose slots are in F or R, stays free for
//!     as long as that lock is held, whatever thread holds it.
//! S6  `left` counts the frees into F down to the next event. Current: it begins so high that it does not reach 0, unless
//!     the purger set it. An event is due at 0; events count anew, so a wrong `left` costs time, not truth.
//! S7  `nlink` is 0 exactly if the span is not on its heap's notified stack.
//! S8  The bit behind the last slot's is set in D, for good.
//!
//! Meshing needs no more than this: the bits are outside, and MAP may send two page runs to one descriptor.
//!
//! Not here: lists and locks (`heap`), the three words and the operations on them (`bits`).

use skinflint_base::sync::{AtomicU8, AtomicU16, AtomicU32, Ordering};
use skinflint_pages::{OWNER_NONE, PAGE, PAGE_SHIFT};

use super::bits::SlotBits;
use super::class;
use super::entry::{Entry, Overlay, WORDS_AT};
use super::range::base;

/// Kind of a small span's descriptor.
pub const KIND_SMALL: u8 = 2;
/// Kind of a large run's descriptor.
pub const KIND_LARGE: u8 = 3;
/// Kind of the descriptor of a large run that was freed, and that a heap keeps.
pub const KIND_CACHED: u8 = 4;
/// Kind of a small span's descriptor in the heap of samples while a profile is kept: what is freed or resized there goes
/// the slow way, and is looked up among the samples (`services::profile`). No other block is asked.
pub const KIND_SAMPLED: u8 = 5;

/// Reports whether a kind is that of a small span.
#[inline]
pub fn is_small(kind: u8) -> bool {
    kind == KIND_SMALL || kind == KIND_SAMPLED
}

/// The states of a span (S3).
pub mod state {
    /// The span is being made or given back.
    pub const NONE: u8 = 0;
    /// The class allocates from the span.
    pub const CURRENT: u8 = 1;
    /// The span is on the class's list of those with free slots.
    pub const PARTIAL: u8 = 2;
    /// The span is on the class's list of those with no free slots, or so few that they are not worth a visit.
    pub const FULL: u8 = 3;
    /// The span is on the class's list of those without a live block.
    pub const EMPTY: u8 = 4;
}

/// The descriptor of a span.
#[repr(C, align(64))]
pub struct Span {
    /// Low half of the first page's address, which `free` subtracts. See `page`.
    low: u32,
    /// Number of frees until the next event (S6).
    pub left: AtomicU32,
    /// Offset from META of the next span on the list, which is circular.
    pub next: AtomicU32,
    /// `ceil(2^32 / size)`; see `class` (class.C3).
    pub mul: u32,
    /// Low half of the owning heap's address.
    pub owner: AtomicU32,
    /// What the descriptor describes: [`KIND_SMALL`] or [`KIND_SAMPLED`], a small span.
    pub kind: AtomicU8,
    /// State of the span: a number of [`state`].
    pub state: AtomicU8,
    /// Offset in a heap of the class's magazine: [`class::magazine_of`].
    magazine: u16,
    /// The bits of the first page's number above the twenty in `low`.
    high: u8,
    /// The number of pages less one, and above those four bits the units of the descriptor: at most 16 and 7.
    shape: u8,
    /// Number of slots.
    pub slots: u16,
    /// Offset from META of the span before it on the list.
    pub prev: AtomicU32,
    /// Link to the next span on the notified stack (S7).
    pub nlink: AtomicU32,
    /// Pages known to hold nothing and not to be resident: a bit each.
    pub clean: AtomicU16,
    /// Low byte of the number of free slots when the purger last looked.
    pub seen: AtomicU8,
    /// Number of the last walk that visited the span, or of the last round that lets it alone (`holes`).
    pub visit: AtomicU8,
    slot_bits: [SlotBits; 1],
}

/// Offset of the owner in a descriptor, for assembly.
pub const OWNER_AT: usize = core::mem::offset_of!(Span, owner);

const _: () = assert!(core::mem::size_of::<Span>() == 64);
const _: () = assert!(core::mem::offset_of!(Span, slot_bits) == WORDS_AT);
const _: () = assert!(OWNER_AT == 16);
const _: () = assert!(core::mem::offset_of!(Span, kind) == 20);
const _: () = assert!(core::mem::offset_of!(Span, mul) == 12);
// `high` holds the rest of a page's number.
const _: () = assert!(skinflint_pages::MAX_PAGES <= 1 << (32 - PAGE_SHIFT + 8));

/// Returns the words of bits for `slots` slots and one more bit: that of the slot that would begin in the tail, which
/// is always set in D, so that the check for a double free covers it too (S8).
pub const fn words_for(slots: usize) -> usize {
    slots / 64 + 1
}

/// Returns the units of 64 bytes of a descriptor for `slots` slots.
pub const fn units_for(slots: usize) -> u32 {
    (WORDS_AT + core::mem::size_of::<SlotBits>() * words_for(slots)).div_ceil(64) as u32
}

impl Span {
    /// Creates a span without slots.
    pub const fn none() -> Span {
        Span {
            low: 0,
            left: AtomicU32::new(0),
            next: AtomicU32::new(0),
            mul: 0,
            owner: AtomicU32::new(OWNER_NONE),
            kind: AtomicU8::new(0),
            state: AtomicU8::new(state::NONE),
            magazine: 0,
            high: 0,
            shape: 0,
            slots: 0,
            prev: AtomicU32::new(0),
            nlink: AtomicU32::new(0),
            clean: AtomicU16::new(0),
            seen: AtomicU8::new(0),
            visit: AtomicU8::new(0),
            slot_bits: [SlotBits::none()],
        }
    }

    /// Returns the address of the first page.
    #[inline(always)]
    pub fn start(&self) -> usize {
        base() + self.page() as usize * PAGE
    }

    /// Returns the number of the first page.
    #[inline]
    pub fn page(&self) -> u32 {
        let low = self.low.wrapping_sub(base() as u32) >> PAGE_SHIFT;
        u32::from(self.high) << (32 - PAGE_SHIFT) | low
    }

    /// Returns the class.
    #[inline]
    pub fn class(&self) -> usize {
        class::of_magazine(self.magazine)
    }

    /// Returns the bytes of a slot. Cost: two loads.
    #[inline]
    pub fn size(&self) -> usize {
        // SAFETY: spans are made only for existing classes.
        unsafe { class::size_at(self.magazine) }
    }

    /// Returns the offset in a heap of the magazine for its blocks.
    #[inline(always)]
    pub fn magazine_offset(&self) -> usize {
        self.magazine as usize
    }

    /// Returns the number of pages.
    #[inline]
    pub fn pages(&self) -> u32 {
        u32::from(self.shape & 15) + 1
    }

    /// Returns the bytes behind the last slot.
    pub fn tail(&self) -> usize {
        self.pages() as usize * PAGE - self.slots as usize * self.size()
    }

    /// Returns the units of the descriptor: [`units_for`] its slots, or more if it once had more slots.
    #[inline]
    pub fn units(&self) -> u32 {
        u32::from(self.shape >> 4)
    }

    /// Returns the number of words of F, which R and D have, too.
    #[inline]
    pub fn words(&self) -> usize {
        words_for(self.slots as usize)
    }

    /// Returns the bits of slots `64 * i` and on.
    ///
    /// # Safety
    /// `i < self.words()`.
    #[inline(always)]
    pub unsafe fn slot_bits(&self, i: usize) -> &SlotBits {
        // SAFETY: the descriptor was allocated with this many words after its header (`units_for`).
        unsafe { &*self.slot_bits.as_ptr().add(i) }
    }

    /// Returns a view of the span in which slots `64 * i` and on are the first: [`Span::slot_bits`] without the
    /// displacement, which then is part of the instruction that reads the bits.
    ///
    /// # Safety
    /// `i < self.words()`; nothing but the bits may be read through the result.
    #[inline(always)]
    pub unsafe fn overlay(&self, i: usize) -> *const Overlay {
        // SAFETY: as in `slot_bits`.
        unsafe {
            core::ptr::from_ref(self)
                .byte_add(i * core::mem::size_of::<SlotBits>())
                .cast()
        }
    }

    /// Returns the bits that slots have in a word of F.
    #[inline]
    fn all_bits(&self, i: usize) -> u64 {
        let left = self.slots as usize - i * 64;
        if left >= 64 {
            u64::MAX
        } else {
            (1 << left) - 1
        }
    }

    /// Fills a descriptor; every slot is free.
    ///
    /// # Safety
    /// The descriptor has `units` units, no fewer than [`units_for`] the slots, and only the caller uses it.
    #[unsafe(link_section = ".text.skinflint_first")]
    pub unsafe fn init(span: *mut Span, run: (u32, u32), class: usize, units: u32, owner: u32) {
        let (page, pages) = run;
        let info = class::get(class);
        let slots = pages as usize * PAGE / info.size as usize;
        // SAFETY: the caller's own descriptor.
        unsafe {
            span.write(Span {
                low: (base() as u32).wrapping_add(page << PAGE_SHIFT),
                high: (page >> (32 - PAGE_SHIFT)) as u8,
                mul: info.mul,
                magazine: class::magazine_of(class),
                shape: (pages - 1) as u8 | (units as u8) << 4,
                slots: slots as u16,
                ..Span::none()
            });
            let this = &*span;
            for i in 0..this.words() {
                let slot_bits = this.slot_bits(i);
                // ORDER: Relaxed throughout: the span is published by the page map's Release in `heap`.
                slot_bits.free.store(this.all_bits(i), Ordering::Relaxed);
                slot_bits.remote.store(0, Ordering::Relaxed); // ORDER: as above
                slot_bits.dead.store(this.all_bits(i), Ordering::Relaxed); // ORDER: as above
            }
            let guard = this.slot_bits(slots / 64);
            let dead = guard.dead.load(Ordering::Relaxed) | 1 << (slots % 64); // ORDER: as above
            guard.dead.store(dead, Ordering::Relaxed); // ORDER: as above
            this.kind.store(KIND_SMALL, Ordering::Relaxed); // ORDER: as above
            // ORDER: Release: `change_class` fills a descriptor that the page map leads to already. [reason: dependency]
            this.owner.store(owner, Ordering::Release);
        }
    }

    /// Makes a span without a live block one of another class; its clean pages stay clean.
    ///
    /// # Safety
    /// The heap's lock is held by its owner; the span is on no list and not on the notified stack; its descriptor has
    /// enough units ([`Span::units`]).
    pub unsafe fn change_class(span: *mut Span, class: usize) {
        // SAFETY: as the caller promises: no thread has a block of it, so no thread looks at it but under the lock, and
        // one that frees an address that is no block finds at worst a wrong bit within the descriptor.
        unsafe {
            let this = &*span;
            let run = (this.page(), this.pages());
            let clean = this.clean.load(Ordering::Relaxed); // ORDER: the lock is held (S3)
            let owner = this.owner.load(Ordering::Relaxed); // ORDER: as above
            let kind = this.kind.load(Ordering::Relaxed); // ORDER: as above
            Span::init(span, run, class, this.units(), owner);
            (*span).kind.store(kind, Ordering::Relaxed); // ORDER: the lock is held (S3)
            (*span).clean.store(clean, Ordering::Relaxed); // ORDER: as above
        }
    }

    /// Takes one free slot out of F; null if there is none.
    ///
    /// # Safety
    /// The caller may write F (S2), and has the heap's lock (S5).
    pub unsafe fn take(&self) -> *mut u8 {
        for i in 0..self.words() {
            // SAFETY: i < words.
            let slot_bits = unsafe { self.slot_bits(i) };
            if let Some(slot) = slot_bits.take() {
                let slot = i * 64 + slot as usize;
                return (self.start() + slot * self.size()) as *mut u8;
            }
        }
        core::ptr::null_mut()
    }

    /// Takes up to `want` free slots out of F, for the magazine (they stay in D), and writes an entry for each
    /// downwards from `end`, the lowest first; returns their number. Cost: 8 instructions a slot, and 15 a run of them.
    ///
    /// # Safety
    /// As for [`Span::take`]; there is room for `want` entries below `end`.
    #[inline]
    pub unsafe fn grab(&self, want: u32, end: *mut Entry) -> u32 {
        let mut left = want;
        let mut at = end;
        let start = self.start();
        let size = self.size();
        for i in 0..self.words() {
            // SAFETY: i < words.
            let slot_bits = unsafe { self.slot_bits(i) };
            // ORDER: own (S2), under the lock (S5).
            let mut bits = slot_bits.free.load(Ordering::Relaxed);
            if bits == 0 {
                continue;
            }
            // SAFETY: i < words.
            let overlay = unsafe { self.overlay(i) };
            let base = start + i * 64 * size;
            // Free slots mostly lie side by side: from one to the next is an addition.
            while bits != 0 && left > 0 {
                let first = bits.trailing_zeros();
                let run = (!(bits >> first)).trailing_zeros().min(left);
                let mut block = base + first as usize * size;
                let mut bit = 1 << first;
                for _ in 0..run {
                    // SAFETY: as the caller promises.
                    unsafe {
                        at = at.sub(1);
                        at.write(Entry::new(block as *mut u8, overlay, bit));
                    }
                    block += size;
                    bit <<= 1;
                }
                bits &= !(u64::MAX >> (64 - run) << first);
                left -= run;
            }
            slot_bits.free.store(bits, Ordering::Relaxed); // ORDER: as above
            if left == 0 {
                break;
            }
        }
        want - left
    }

    /// Puts every slot of D into F: the magazine that held them is gone.
    ///
    /// # Safety
    /// The caller may write F (S2).
    pub unsafe fn uncache(&self) {
        for i in 0..self.words() {
            // SAFETY: i < words.
            unsafe { self.slot_bits(i) }.uncache(self.all_bits(i));
        }
    }

    /// Moves what other threads freed from R to F and D; returns the number of blocks.
    ///
    /// # Safety
    /// The caller may write F and D (S2).
    pub unsafe fn collect(&self) -> u32 {
        let mut count = 0;
        for i in 0..self.words() {
            // SAFETY: i < words.
            count += unsafe { self.slot_bits(i) }.collect().count_ones();
        }
        count
    }

    /// Returns the number of free slots, in F or R. Exact while no thread frees.
    pub fn free_slots(&self) -> u32 {
        let mut count = 0;
        for i in 0..self.words() {
            count += self.free_bits(i).count_ones();
        }
        count
    }

    /// Reports whether any slot is in R.
    pub fn has_remote(&self) -> bool {
        // SAFETY: below the words.
        // ORDER: a look; `collect` orders.
        (0..self.words()).any(|i| unsafe { self.slot_bits(i) }.remote.load(Ordering::Relaxed) != 0)
    }

    /// Returns the bits of slots in F or R.
    #[inline]
    pub fn free_bits(&self, i: usize) -> u64 {
        // SAFETY: callers loop over the words.
        unsafe { self.slot_bits(i) }.free_bits()
    }

    /// Returns the bits of a word's slots that are live, and of those in the magazine.
    pub fn live_and_cached(&self, i: usize) -> (u64, u64) {
        // SAFETY: callers loop over the words.
        // ORDER: a look; exact while no thread allocates.
        let dead = unsafe { self.slot_bits(i) }.dead.load(Ordering::Relaxed);
        let all = self.all_bits(i) & !self.free_bits(i);
        (all & !dead, all & dead)
    }

    /// Returns a word of F, and the same words of R and D.
    pub fn bits(&self, i: usize) -> (u64, u64, u64) {
        // SAFETY: callers loop over the words.
        let slot_bits = unsafe { self.slot_bits(i) };
        // ORDER: one after the other, for the checker, while the owner stands still; the blocks themselves are not
        // touched. [reason: look]
        (
            slot_bits.free.load(Ordering::Acquire),
            slot_bits.remote.load(Ordering::Acquire), // ORDER: as above
            slot_bits.dead.load(Ordering::Acquire),   // ORDER: as above
        )
    }

    /// Returns the number of slots that are live or in the magazine.
    pub fn used(&self) -> u32 {
        u32::from(self.slots) - self.free_slots()
    }

    /// Reports whether slots `from..=to` are all free.
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

    /// Returns the pages that hold no live byte: a bit each. Cost: with few slots some instructions for each used slot,
    /// else a load or two for each page.
    pub fn free_pages(&self) -> u16 {
        let size = self.size();
        let slots = self.slots as usize;
        if slots < 64 {
            let mut used = self.all_bits(0) & !self.free_bits(0);
            let mut pages = 0u32;
            while used != 0 {
                let from = used.trailing_zeros() as usize * size;
                used &= used - 1;
                pages |= (2 << ((from + size - 1) / PAGE)) - (1 << (from / PAGE));
            }
            return !pages as u16 & ((1u32 << self.pages()) - 1) as u16;
        }
        let mut pages = 0u16;
        for page in 0..self.pages() as usize {
            let first = page * PAGE / size;
            let last = ((page + 1) * PAGE - 1) / size;
            if first >= slots || self.all_free(first, last.min(slots - 1)) {
                pages |= 1 << page;
            }
        }
        pages
    }

    /// Returns the slot of an address in the span's pages; `None`: its distance is no multiple of the size. The slot
    /// may be the one behind the last (S8).
    #[inline(always)]
    pub fn slot_at(&self, address: usize) -> Option<usize> {
        // Both are within 64 KiB of each other, so the low halves are enough.
        #[cfg(not(target_arch = "x86_64"))]
        let (within, slot) = {
            let product = u64::from((address as u32).wrapping_sub(self.low)) * u64::from(self.mul);
            (product as u32, (product >> 32) as usize)
        };
        #[cfg(target_arch = "x86_64")]
        let (within, slot): (u32, usize);
        #[cfg(target_arch = "x86_64")]
        // `(address as u32).wrapping_sub(self.low) * u64::from(self.mul)` in assembly: the product comes in two halves, of
        // which each is wanted by itself. The compiler multiplies 64 bits by 64, and then takes them apart.
        // SAFETY: two loads of the descriptor.
        unsafe {
            core::arch::asm!(
                "mov eax, {address:e}",
                "sub eax, dword ptr [{span} + {low}]",
                "mul dword ptr [{span} + {mul}]",
                address = in(reg) address,
                span = in(reg) self,
                low = const core::mem::offset_of!(Span, low),
                mul = const core::mem::offset_of!(Span, mul),
                out("eax") within,
                out("rdx") slot,
                options(pure, readonly, nostack),
            );
        }
        // class.C3: the low half shows whether it is a multiple.
        if within >= self.mul {
            return None;
        }
        Some(slot)
    }

    /// Returns the slot of an address in the span's pages; `None`: no block begins there.
    #[inline]
    pub fn slot_of(&self, address: usize) -> Option<usize> {
        self.slot_at(address)
            .filter(|slot| *slot < self.slots as usize)
    }

    /// Reports whether the block in a slot is live: whether its bit is in neither D nor R (S1).
    ///
    /// The slot may be the one behind the last, which is not (S8).
    #[inline]
    pub fn is_live(&self, slot: usize) -> bool {
        // SAFETY: slots are below `slots`, or the one behind.
        !unsafe { self.slot_bits(slot / 64) }.is_dead(1 << (slot % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Room([u64; 128]);

    #[test]
    fn the_lowest_free_slots_are_grabbed_whatever_lies_between_them() {
        let mut room = Room([0; 128]);
        let span = room.0.as_mut_ptr().cast::<Span>();
        let class = class::base_class(48);
        // SAFETY: the test's own room, which is long enough; here and below.
        let this = unsafe {
            Span::init(span, (5, 3), class, units_for(256), 0);
            &*span
        };
        let patterns = [
            0,
            1,
            1 << 63,
            1 << 63 | 1,
            u64::MAX,
            u64::MAX >> 1,
            0x5555 << 20,
            0xF00F_7E01,
        ];
        for (pattern, want) in patterns
            .iter()
            .flat_map(|p| [1, 3, 7, 32].map(|want| (p, want)))
        {
            let word = |i: usize| pattern.rotate_left(i as u32 * 5);
            let mut slots = Vec::new();
            for i in 0..4 {
                // SAFETY: there are five words.
                // ORDER: one thread.
                unsafe { this.slot_bits(i) }
                    .free
                    .store(word(i), Ordering::Relaxed);
                slots.extend((i * 64..i * 64 + 64).filter(|slot| word(i) >> (slot % 64) & 1 == 1));
            }
            slots.truncate(want);
            let mut entries = [const {
                Entry {
                    block: core::ptr::null_mut(),
                    overlay: core::ptr::null(),
                    bit: 0,
                }
            }; 32];
            let end = entries.as_mut_ptr_range().end;
            // SAFETY: nobody else has the span, and there is room for 32.
            let got = unsafe { this.grab(want as u32, end) };
            assert_eq!(got as usize, slots.len());
            for (entry, slot) in entries.iter().rev().zip(&slots) {
                assert_eq!(entry.block as usize, this.start() + slot * 48);
                // SAFETY: as above.
                assert!(core::ptr::eq(entry.overlay, unsafe {
                    this.overlay(slot / 64)
                }));
                assert_eq!(entry.bit, 1 << (slot % 64));
            }
            for i in 0..4 {
                let gone = slots
                    .iter()
                    .filter(|&slot| slot / 64 == i)
                    .fold(0, |bits, slot| bits | 1 << (slot % 64));
                assert_eq!(this.bits(i).0, word(i) & !gone, "{pattern:x} {want}");
            }
        }
    }
}
