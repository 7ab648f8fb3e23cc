//! The address layout: META, MAP and HEAP, mapped piece by piece.
//!
//! ```text
//!   base - 1.5 GiB          base - 512 MiB        base
//!   META [mapped │ … ]      MAP [mapped │ … ]     HEAP [mapped, grown in pieces │ not mapped … ]
//! ```
//!
//! R1  META and MAP lie at fixed distances before HEAP, so one number, the base, gives all three.
//! R2  Nothing is reserved that is not mapped: the size of the process stays what it uses, and limits on address space
//!     or commitment count only what is needed. The exception is an address space in which none of our bases is free:
//!     there a reservation is made, and pieces are mapped over it.
//! R3  MAP is mapped before the piece of HEAP that needs it (pages.P1).
//!
//! Not here: descriptors (`units`); which pages are in use (`pool`).

use core::sync::atomic::AtomicU32;

use crate::os::{self, Refusal};
use skinflint_base::page;

use crate::{HUGE, MAP_SPAN, MAX_PAGES, META_SPAN, PAGE, PAGE_SHIFT, UNIT};
use skinflint_base::random::Random;

/// Bases lie in this range: above what the kernel gives to programs at fixed addresses and Go's heap, below what it
/// gives to libraries and stacks, and far from the shadows of the sanitizers.
const LOWEST: usize = 0x1200_0000_0000;
const STEPS: u64 = (0x2200_0000_0000 - LOWEST as u64) >> 30;
const STEP: usize = 1 << 30;

/// Number of bases that are tried before a reservation. In an address space with other mappings, one is nearly always
/// enough; where no base works, the kernel answers each in a microsecond.
const TRIES: u32 = 16;

/// Sizes of reserved heaps, largest first, where none of our bases is free.
const RESERVED_HEAPS: [usize; 4] = [64 << 30, 4 << 30, 1 << 30, 256 << 20];
const RESERVED_ALIGN: usize = HUGE;

/// Pieces of META and MAP double with what is mapped, between these.
const PIECE_MIN: usize = 64 << 10;
const PIECE_MAX: usize = 4 << 20;

/// Pieces of HEAP are an eighth of what is mapped, between these.
const HEAP_PIECE_MIN: usize = 1 << 20;
const HEAP_PIECE_MAX: usize = 64 << 20;
/// Bytes of HEAP for which a byte of META is mapped ahead: room for a span's descriptor and a free run's on each page.
/// Once a limit on the address space is reached META cannot grow, and without descriptors free pages are of no use
/// (tests/contract/limit.c: only 25 of 64 MiB could be taken again in other sizes).
const HEAP_PER_META: usize = 32;

/// The first jump over a foreign mapping that lies at the end of HEAP; jumps double.
const JUMP: usize = 64 << 20;

/// Units of the longest descriptors whose free ones are kept in a list of their own; longer ones are cut when they are
/// freed.
pub(crate) const UNITS_LISTED: usize = 32;

/// Units of a page.
pub(crate) const PAGE_UNITS: usize = PAGE / UNIT;

/// The parts of META that are given out and those that are not.
pub(crate) struct Units {
    /// Bytes that were ever given out; behind them is the room.
    pub(crate) used: usize,
    pub(crate) reserve: u32,
    pub(crate) free: [u32; UNITS_LISTED],
    pub(crate) singles: u32,
    pub(crate) listed: u32,
    /// Offset of the bitmap of empty pages, 0 until there was one.
    pub(crate) empty_map: u32,
    pub(crate) empty_pages: u32,
}

impl Units {
    pub(crate) const fn new() -> Units {
        Units {
            used: 0,
            reserve: 0,
            free: [0; UNITS_LISTED],
            singles: 0,
            listed: 0,
            empty_map: 0,
            empty_pages: 0,
        }
    }

    pub(crate) fn empty_units(&self) -> usize {
        self.empty_pages as usize * PAGE_UNITS
    }
}

/// How the region is placed.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Let HEAP be backed by huge pages.
    pub huge_pages: bool,
    /// A number that chooses the base; from the kernel's random bytes, so that addresses cannot be guessed.
    pub seed: u64,
    /// Bytes of HEAP that are mapped at the start.
    pub first_heap_bytes: usize,
}

/// The addresses of META, MAP and HEAP, and how far each is mapped.
pub struct Region {
    base: usize,
    heap_bytes: usize,
    heap_limit_bytes: usize,
    /// Bytes of HEAP up to the first hole.
    unbroken_bytes: usize,
    map_bytes: usize,
    pub(crate) meta_bytes: usize,
    /// The parts of META that are given out.
    pub(crate) units: Units,
    reserved: bool,
    huge_pages: bool,
    /// Whether pieces of HEAP end where a huge page does.
    whole_pieces: bool,
    /// Number of times that a foreign mapping was jumped over.
    pub jumps: u32,
}

/// Rounds `bytes` up to whole pages of the kernel's; `None` if that overflows.
fn whole_pages(bytes: usize) -> Option<usize> {
    page::up(bytes)
}

impl Region {
    /// Creates a region without addresses.
    pub const fn new() -> Region {
        Region {
            base: 0,
            heap_bytes: 0,
            heap_limit_bytes: 0,
            unbroken_bytes: 0,
            map_bytes: 0,
            meta_bytes: 0,
            units: Units::new(),
            reserved: false,
            huge_pages: false,
            whole_pieces: false,
            jumps: 0,
        }
    }

    /// Chooses the base and maps the first pieces. A region that has its addresses keeps them.
    ///
    /// Returns false if the kernel refused everything; nothing is mapped then.
    #[unsafe(link_section = ".text.skinflint_first")]
    pub fn place(&mut self, options: &Options) -> bool {
        if self.base != 0 {
            return true;
        }
        let least = if self.whole_pieces { HUGE } else { PAGE };
        let Some(first) = whole_pages(options.first_heap_bytes.max(least)) else {
            return false;
        };
        self.huge_pages = options.huge_pages;
        if self.huge_pages {
            crate::purge::split_huge_pages();
        }
        let mut random = Random::new(options.seed);
        for _ in 0..TRIES {
            let base = LOWEST + random.below(STEPS) as usize * STEP;
            self.heap_limit_bytes = MAX_PAGES as usize * PAGE;
            if self.place_pieces(base, first) {
                return true;
            }
        }
        self.place_reserved(first)
    }

    fn place_reserved(&mut self, first: usize) -> bool {
        let before = META_SPAN + MAP_SPAN;
        for heap in RESERVED_HEAPS {
            let bytes = before + heap + RESERVED_ALIGN;
            let Some(start) = os::reserve(bytes) else {
                continue;
            };
            let base = (start + before).next_multiple_of(RESERVED_ALIGN);
            self.reserved = true;
            self.heap_limit_bytes = heap;
            if first <= heap && self.place_pieces(base, first) {
                return true;
            }
            os::unplace(start, bytes);
            self.reserved = false;
        }
        false
    }

    /// Maps all of the first pieces, or none.
    #[unsafe(link_section = ".text.skinflint_first")]
    fn place_pieces(&mut self, base: usize, first: usize) -> bool {
        let meta = base - MAP_SPAN - META_SPAN;
        let map = base - MAP_SPAN;
        let map_bytes = (first / PAGE * size_of::<u32>()).next_multiple_of(PIECE_MIN);
        if first > self.heap_limit_bytes {
            return false;
        }
        let pieces = [(meta, PIECE_MIN), (map, map_bytes), (base, first)];
        for (index, &(addr, bytes)) in pieces.iter().enumerate() {
            if os::place_at(addr, bytes, self.reserved).is_err() {
                // In a reservation the caller unmaps the whole of it.
                for &(addr, bytes) in pieces.iter().take(index).filter(|_| !self.reserved) {
                    os::unplace(addr, bytes);
                }
                return false;
            }
        }
        os::advise_huge(meta, PIECE_MIN, false);
        os::advise_huge(map, map_bytes, false);
        os::advise_huge(base, first, self.huge_pages);
        self.base = base;
        self.meta_bytes = PIECE_MIN;
        self.units.used = UNIT;
        self.map_bytes = map_bytes;
        self.heap_bytes = first;
        self.unbroken_bytes = first;
        true
    }

    /// Has pieces of HEAP end where a huge page does, so that no two share one.
    pub(crate) fn whole_pieces(&mut self) {
        self.whole_pieces = true;
    }

    /// Returns the address of HEAP; 0 before [`Region::place`].
    #[inline]
    pub fn base(&self) -> usize {
        self.base
    }

    /// Lets HEAP be backed by huge pages from now on, including what is mapped already.
    pub fn allow_huge_pages(&mut self) {
        self.huge_pages = true;
        crate::purge::split_huge_pages();
        os::advise_huge(self.base, self.unbroken_bytes, true);
    }

    /// Returns how far HEAP is mapped (holes included): the limit below which MAP may be read (pages.P1).
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }

    /// Returns the pages of [`Region::heap_bytes`].
    #[inline]
    pub fn heap_pages(&self) -> u32 {
        (self.heap_bytes >> PAGE_SHIFT) as u32
    }

    /// Returns the address of META.
    #[inline]
    pub fn meta(&self) -> usize {
        self.base - MAP_SPAN - META_SPAN
    }

    /// Returns the bytes of META in use or in use before: what is resident of it, up to a page.
    pub fn meta_used_bytes(&self) -> usize {
        self.units.used
    }

    /// Returns the bytes of META and MAP that are mapped.
    pub fn metadata_mapped_bytes(&self) -> usize {
        self.meta_bytes + self.map_bytes
    }

    /// Returns the mapped bytes of META, and those of MAP.
    pub(crate) fn metadata_bytes(&self) -> (usize, usize) {
        (self.meta_bytes, self.map_bytes)
    }

    /// Returns the address of a page.
    #[inline]
    pub fn page_addr(&self, page: u32) -> usize {
        self.base + ((page as usize) << PAGE_SHIFT)
    }

    /// Returns the entry of a page below [`Region::heap_pages`].
    #[inline]
    pub fn map_entry(&self, page: u32) -> &AtomicU32 {
        debug_assert!(page < self.heap_pages());
        let addr = self.base - MAP_SPAN + page as usize * size_of::<u32>();
        // SAFETY: pages.P1: the entry is mapped, and entries are only ever used as atomics.
        unsafe { &*core::ptr::with_exposed_provenance::<AtomicU32>(addr) }
    }

    /// Returns the descriptor at an offset.
    #[inline]
    pub fn at<T>(&self, offset: u32) -> *mut T {
        core::ptr::with_exposed_provenance_mut(self.meta() + offset as usize)
    }

    /// Maps a range of HEAP anew: its pages go, and so does what separates it from its neighbours in the kernel's list
    /// of mappings (a move by `mremap`). `false`: the kernel refused, or is not asked since other pages of ours share one of
    /// its own; nothing changed.
    ///
    /// # Safety
    /// The range is whole pages of HEAP that nothing uses.
    pub unsafe fn map_anew(&mut self, addr: usize, bytes: usize) -> bool {
        let anew = page::is_whole(addr, bytes) && os::place_at(addr, bytes, true).is_ok();
        if anew && !self.huge_pages {
            os::advise_huge(addr, bytes, false);
        }
        anew
    }

    pub(crate) fn grow_meta(&mut self, need: usize) -> bool {
        let limit = META_SPAN - self.meta_bytes;
        let end = self.meta() + self.meta_bytes;
        let Some(bytes) = grow_piece(end, need, self.meta_bytes, limit, self.reserved) else {
            return false;
        };
        self.meta_bytes += bytes;
        true
    }

    /// Maps MAP for a heap of `heap_bytes` (R3).
    fn grow_map(&mut self, heap_bytes: usize) -> bool {
        let need = (heap_bytes / PAGE * size_of::<u32>()).saturating_sub(self.map_bytes);
        if need == 0 {
            return true;
        }
        let limit = MAP_SPAN - self.map_bytes;
        let end = self.base - MAP_SPAN + self.map_bytes;
        let Some(bytes) = grow_piece(end, need, self.map_bytes, limit, self.reserved) else {
            return false;
        };
        self.map_bytes += bytes;
        true
    }

    /// Maps at least `pages` more at the end of HEAP, or beyond a foreign mapping there. Returns the first of the new
    /// pages and their count; they are zero, and so are their entries. `None`: the kernel refused, and HEAP is as it
    /// was.
    pub(crate) fn grow_heap(&mut self, pages: u32) -> Option<(u32, u32)> {
        let need = whole_pages(pages as usize * PAGE)?;
        let mut at = self.heap_bytes;
        let mut jump = JUMP;
        loop {
            let limit = self.heap_limit_bytes.checked_sub(at)?;
            if need == 0 || need > limit {
                return None;
            }
            let step =
                (self.heap_bytes / 8).clamp(HEAP_PIECE_MIN, HEAP_PIECE_MAX) & !(page::kernel() - 1);
            let step = need.max(step).min(limit);
            let step = if self.huge_pages || self.whole_pieces {
                self.to_huge(at, step, limit)
            } else {
                step
            };
            let mut refusal = self.map_heap(at, step);
            if refusal.is_err() && step > need {
                refusal = self.map_heap(at, need);
            }
            match refusal {
                Ok(bytes) => return Some(self.accept_heap(at, bytes)),
                Err(Refusal::Nothing) => return None,
                Err(Refusal::Taken) => {
                    at = at.checked_add(jump)? & !(JUMP - 1);
                    jump *= 2;
                }
            }
        }
    }

    /// Returns the bytes of a piece that ends where a huge page does.
    fn to_huge(&self, at: usize, bytes: usize, limit: usize) -> usize {
        let end = (self.base + at + bytes).next_multiple_of(HUGE);
        (end - self.base - at).min(limit)
    }

    fn map_heap(&mut self, at: usize, bytes: usize) -> Result<usize, Refusal> {
        let meta_bytes = ((at + bytes) / HEAP_PER_META).min(META_SPAN);
        let more_meta = meta_bytes.saturating_sub(self.meta_bytes);
        if !self.grow_map(at + bytes) || (more_meta > 0 && !self.grow_meta(more_meta)) {
            return Err(Refusal::Nothing);
        }
        os::place_at(self.base + at, bytes, self.reserved)?;
        os::advise_huge(self.base + at, bytes, self.huge_pages);
        Ok(bytes)
    }

    fn accept_heap(&mut self, at: usize, bytes: usize) -> (u32, u32) {
        if at != self.heap_bytes {
            self.jumps += 1;
        } else if self.unbroken_bytes == at {
            self.unbroken_bytes += bytes;
        }
        self.heap_bytes = at + bytes;
        ((at >> PAGE_SHIFT) as u32, (bytes >> PAGE_SHIFT) as u32)
    }

    /// Unmaps the whole region, except HEAP beyond a hole. For tests and benches, which make many.
    ///
    /// # Safety
    /// Nothing refers to memory of the region any more.
    pub unsafe fn release(&mut self) {
        if self.base != 0 {
            os::unplace(self.meta(), self.meta_bytes);
            os::unplace(self.base - MAP_SPAN, self.map_bytes);
            os::unplace(self.base, self.unbroken_bytes);
        }
        *self = Region::new();
    }
}

impl Default for Region {
    fn default() -> Region {
        Region::new()
    }
}

/// Grows a piece of metadata by its usual step, or by just what is needed.
#[unsafe(link_section = ".text.skinflint_first")]
fn grow_piece(
    end: usize,
    need: usize,
    mapped: usize,
    limit: usize,
    reserved: bool,
) -> Option<usize> {
    let need = whole_pages(need)?;
    if need > limit {
        return None;
    }
    let step = mapped.clamp(PIECE_MIN, PIECE_MAX).max(need).min(limit);
    for bytes in [step, need] {
        if os::place_at(end, bytes, reserved).is_ok() {
            os::advise_huge(end, bytes, false);
            return Some(bytes);
        }
    }
    None
}
