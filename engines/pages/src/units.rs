//! Descriptors: units of META, given out, taken back, and purged when whole pages of them are free.
//!
//! ```text
//!   META  [ 0 | descriptors, thread heaps … used │ room: mapped, never used │ not mapped ]
//!   free, by units:   1 ─► d ─► d      2 ─► d      …      32            empty pages: a bitmap
//!   given out:        the list of that length ─► a longer one, cut ─► an empty page, cut
//!                                                                  ─► room ─► META grows
//! ```
//!
//! U1  `reserve` units are for runs that are given back (pages.P7): `desc_alloc` grows META, or fails, before it uses them.
//! U2  Descriptors and thread heaps start as zero, and a free descriptor stays kind 0, owner 0 (pages.P2).
//! U3  A unit is in a list, in an empty page, in the room, or given out. An empty page reads as zero
//!     and is in memory again only when it is cut.
//!
//! Not here: the addresses of META and its growth (`region`).

use core::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use skinflint_base::sys;

use crate::purge;
use crate::region::{PAGE_UNITS, UNITS_LISTED};
use crate::{Header, KIND_NONE, META_SPAN, PAGE, Region, UNIT};

/// Bytes of the bitmap of empty pages.
const EMPTY_BYTES: usize = META_SPAN / PAGE / 8;

/// Fewer free units than this are not searched for empty pages: at most 64 KiB would come back.
const WORTH_PURGING: u32 = 16 * PAGE_UNITS as u32;

impl Region {
    /// Returns a zeroed descriptor of `units` units, as an offset from META, never 0. One that was freed with as many
    /// units is used again. `None`: the kernel refused.
    #[unsafe(link_section = ".text.skinflint_first")]
    pub fn desc_alloc(&mut self, units: u32) -> Option<u32> {
        if units == 0 || self.base() == 0 {
            return None;
        }
        let wanted = units as usize;
        let spare = self.room() + self.units.empty_units() + self.units.singles as usize;
        if (units > 1 || spare > self.units.reserve as usize)
            && let Some(offset) = self.pop(units)
        {
            return Some(offset);
        }
        let all = wanted + self.units.reserve as usize;
        if let Some(offset) = self.cut_longer(units) {
            zero(self.meta() + offset as usize, wanted * UNIT);
            return Some(offset);
        }
        if wanted <= PAGE_UNITS && self.units.empty_pages > 0 && self.ensure(0, all) {
            return self.cut_empty(units);
        }
        if !self.ensure(wanted, all) {
            return None;
        }
        Some(self.bump(wanted * UNIT))
    }

    /// Takes back what [`Region::desc_alloc`] gave. The caller no longer uses it, and no entry of
    /// MAP leads to it.
    pub fn desc_free(&mut self, offset: u32, units: u32) {
        let mut offset = offset;
        let mut left = units;
        while left > 0 {
            let part = left.min(UNITS_LISTED as u32);
            self.push(offset, part);
            offset += part * UNIT as u32;
            left -= part;
        }
    }

    /// Returns zeroed metadata that is no descriptor and is never freed. `align` is a power of two of at least 64
    /// bytes. `None`: the kernel refused.
    #[unsafe(link_section = ".text.skinflint_first")]
    pub fn meta_alloc(&mut self, bytes: usize, align: usize) -> Option<u32> {
        let possible = bytes <= META_SPAN && align <= META_SPAN && align.is_power_of_two();
        if self.base() == 0 || !possible {
            return None;
        }
        let gap = self.units.used.next_multiple_of(align.max(UNIT)) - self.units.used;
        let units = (gap + bytes).div_ceil(UNIT);
        if !self.ensure(units, units + self.units.reserve as usize) {
            return None;
        }
        if gap > 0 {
            let unused = self.bump(gap);
            self.desc_free(unused, (gap / UNIT) as u32);
        }
        Some(self.bump(bytes.next_multiple_of(UNIT)))
    }

    /// Gives pages of META that hold nothing but free descriptors back to the kernel; returns how many it took. Cost: a
    /// visit to each free descriptor, and 2 bytes for each page of META meanwhile. For a trim, or when thousands of
    /// descriptors have become free.
    pub fn purge_meta(&mut self) -> usize {
        if self.units.listed < WORTH_PURGING || !self.has_empty_map() {
            return 0;
        }
        let pages = self.units.used / PAGE;
        let counts = sys::map_private(pages.max(1) * size_of::<u16>());
        if counts.is_null() {
            return 0;
        }
        let scratch = Counts {
            start: counts.cast(),
            pages,
        };
        self.count_free(&scratch);
        self.keep_unless_empty(&scratch);
        let taken = self.purge_empty(&scratch);
        // SAFETY: mapped above, and nothing uses `scratch` after this.
        unsafe { sys::unmap(counts, pages.max(1) * size_of::<u16>()) };
        taken
    }

    /// Sets how many units are kept for runs that are given back, after ensuring that they exist.
    #[inline]
    pub(crate) fn keep(&mut self, units: u32) -> bool {
        if !self.ensure(0, units as usize) {
            return false;
        }
        self.units.reserve = units;
        true
    }

    /// Takes a unit out of those that are kept (U1), zero only in kind and owner. `None`: all kept units are used up,
    /// and the kernel refused more.
    #[unsafe(link_section = ".text.skinflint_first")]
    pub(crate) fn desc_alloc_kept(&mut self) -> Option<u32> {
        if let Some(offset) = self.pop_unclean(1) {
            return Some(offset);
        }
        if self.units.empty_pages > 0 {
            return self.cut_empty(1);
        }
        if self.ensure(1, 1) {
            return Some(self.bump(UNIT));
        }
        self.cut_longer(1)
    }

    /// Takes the beginning of the shortest free descriptor that is longer.
    fn cut_longer(&mut self, units: u32) -> Option<u32> {
        let found = (units + 1..=UNITS_LISTED as u32).find(|&units| self.list(units) != 0)?;
        let offset = self.pop_unclean(found)?;
        self.desc_free(offset + units * UNIT as u32, found - units);
        Some(offset)
    }

    /// Ensures that there are `fresh` units at the end of META, and `all` units when free single ones and empty pages
    /// are counted as well.
    #[inline]
    fn ensure(&mut self, fresh: usize, all: usize) -> bool {
        let free = self.units.singles as usize + self.units.empty_units();
        let wanted = fresh.max(all.saturating_sub(free));
        let room = self.room();
        room >= wanted || self.grow_meta((wanted - room) * UNIT)
    }

    /// Returns the units at the end of META that are mapped and were never used.
    #[inline]
    fn room(&self) -> usize {
        (self.meta_bytes - self.units.used) / UNIT
    }

    fn bump(&mut self, bytes: usize) -> u32 {
        let offset = self.units.used;
        self.units.used += bytes;
        offset as u32
    }

    fn list(&self, units: u32) -> u32 {
        let head = self.units.free.get(units as usize - 1);
        head.copied().unwrap_or(0)
    }

    fn push(&mut self, offset: u32, units: u32) {
        let header = self.at::<Header>(offset);
        let Some(head) = self.units.free.get_mut(units as usize - 1) else {
            return;
        };
        // SAFETY: pages.P2: the descriptor is mapped, and the caller gave it back; no other code writes to it, and the link
        // lies beside what others may read.
        // ORDER: no partner: an entry of MAP that leads here now was looked up by mistake (U2).
        unsafe {
            (*header).owner.store(0, Ordering::Relaxed);
            (*header).kind.store(KIND_NONE, Ordering::Relaxed);
            (*header).own = [*head, 0];
        }
        *head = offset;
        self.units.singles += u32::from(units == 1);
        self.units.listed += units;
    }

    fn next_free(&self, offset: u32) -> u32 {
        // SAFETY: as in `push`; the descriptor is in a list, so it is ours.
        unsafe { (*self.at::<Header>(offset)).own[0] }
    }

    /// Takes a free descriptor as it was left, except for kind and owner.
    fn pop_unclean(&mut self, units: u32) -> Option<u32> {
        let offset = self.list(units);
        if offset == 0 {
            return None;
        }
        let next = self.next_free(offset);
        if let Some(head) = self.units.free.get_mut(units as usize - 1) {
            *head = next;
        }
        self.units.singles -= u32::from(units == 1);
        self.units.listed -= units;
        Some(offset)
    }

    fn pop(&mut self, units: u32) -> Option<u32> {
        let offset = self.pop_unclean(units)?;
        zero(self.meta() + offset as usize, units as usize * UNIT);
        Some(offset)
    }

    /// Takes one of the empty pages into use: its first units for the caller, the rest as free descriptors.
    #[cold]
    fn cut_empty(&mut self, units: u32) -> Option<u32> {
        let words = EMPTY_BYTES / size_of::<u64>();
        let (index, word) = (0..words).find_map(|index| {
            let word = self.empty_word(index);
            (word != 0).then_some((index, word))
        })?;
        self.set_empty_word(index, word & (word - 1));
        self.units.empty_pages -= 1;
        let offset = ((index * 64 + word.trailing_zeros() as usize) * PAGE) as u32;
        let rest = PAGE_UNITS as u32 - units;
        self.desc_free(offset + units * UNIT as u32, rest);
        Some(offset)
    }

    fn has_empty_map(&mut self) -> bool {
        if self.units.empty_map == 0 {
            self.units.empty_map = self.meta_alloc(EMPTY_BYTES, UNIT).unwrap_or(0);
        }
        self.units.empty_map != 0
    }

    fn empty_word(&self, index: usize) -> u64 {
        let words = self.at::<u64>(self.units.empty_map);
        // SAFETY: the index is within the bitmap, which is this file's alone.
        unsafe { words.add(index).read() }
    }

    fn set_empty_word(&mut self, index: usize, word: u64) {
        let words = self.at::<u64>(self.units.empty_map);
        // SAFETY: as in `empty_word`.
        unsafe { words.add(index).write(word) }
    }

    /// Counts the free units of each page.
    fn count_free(&self, counts: &Counts) {
        for units in 1..=UNITS_LISTED as u32 {
            let mut offset = self.list(units);
            while offset != 0 {
                for (page, part) in parts(offset, units) {
                    counts.add(page, part);
                }
                offset = self.next_free(offset);
            }
        }
    }

    /// Takes descriptors in empty pages out of the lists; one that extends beyond such a page is cut.
    fn keep_unless_empty(&mut self, counts: &Counts) {
        for units in 1..=UNITS_LISTED as u32 {
            let Some(head) = self.units.free.get_mut(units as usize - 1) else {
                break;
            };
            // Parts are shorter: they go into lists that were visited before.
            let mut offset = core::mem::take(head);
            while offset != 0 {
                let next = self.next_free(offset);
                self.units.listed -= units;
                self.units.singles -= u32::from(units == 1);
                let mut at = offset;
                if parts(offset, units).any(|(page, _)| counts.empty(page)) {
                    for (page, part) in parts(offset, units) {
                        if !counts.empty(page) {
                            self.push(at, part);
                        }
                        at += part * UNIT as u32;
                    }
                } else {
                    self.push(at, units);
                }
                offset = next;
            }
        }
    }

    /// Purges the empty pages and marks them in the bitmap.
    fn purge_empty(&mut self, counts: &Counts) -> usize {
        const AT_ONCE: usize = 32;
        let mut ranges = [purge::range_of(0, 0); AT_ONCE];
        let (mut used, mut taken) = (0, 0);
        for page in (0..counts.pages).filter(|&page| counts.empty(page)) {
            let (index, bit) = (page / 64, 1u64 << (page % 64));
            self.set_empty_word(index, self.empty_word(index) | bit);
            self.units.empty_pages += 1;
            if let Some(range) = ranges.get_mut(used) {
                *range = purge::range_of(self.meta() + page * PAGE, PAGE);
                used += 1;
            }
            if used == AT_ONCE {
                taken += purge::give_back(&mut ranges);
                used = 0;
            }
        }
        taken + purge::give_back(ranges.get_mut(..used).unwrap_or(&mut []))
    }

    /// Returns the units that are free in lists and empty pages; for checks of U3.
    #[cfg(test)]
    pub(crate) fn free_units(&self) -> usize {
        self.units.listed as usize + self.units.empty_units()
    }

    /// Reports whether the counts of what is in lists are right.
    #[cfg(test)]
    pub(crate) fn lists_counted(&self) -> bool {
        let length = |units: u32| {
            let next = |offset: &u32| Some(self.next_free(*offset));
            core::iter::successors(Some(self.list(units)), next).take_while(|offset| *offset != 0)
        };
        let listed: u32 = (1..=UNITS_LISTED as u32)
            .map(|units| units * length(units).count() as u32)
            .sum();
        (self.units.singles, self.units.listed) == (length(1).count() as u32, listed)
    }

    /// Reports whether the bitmap of empty pages exists.
    #[cfg(test)]
    pub(crate) fn has_been_purged(&self) -> bool {
        self.units.empty_map != 0
    }
}

/// Returns the pages that a descriptor lies in, and how many of its units lie in each.
fn parts(offset: u32, units: u32) -> impl Iterator<Item = (usize, u32)> {
    let first = offset as usize / PAGE;
    let here = (PAGE - offset as usize % PAGE) / UNIT;
    let here = units.min(here as u32);
    let rest = units - here;
    [(first, here), (first + 1, rest)]
        .into_iter()
        .filter(|part| part.1 > 0)
}

/// The free units of each page of META, while they are counted.
struct Counts {
    start: *const AtomicU16,
    pages: usize,
}

impl Counts {
    /// Returns the count of a page; `None` if it is not wholly below what is used.
    fn count(&self, page: usize) -> Option<&AtomicU16> {
        // SAFETY: the array has an entry for each page, and outlives this.
        (page < self.pages).then(|| unsafe { &*self.start.add(page) })
    }

    fn add(&self, page: usize, units: u32) {
        if let Some(count) = self.count(page) {
            // ORDER: no partner: the array is this thread's.
            count.fetch_add(units as u16, Ordering::Relaxed);
        }
    }

    fn empty(&self, page: usize) -> bool {
        // ORDER: as in `add`.
        self.count(page)
            .is_some_and(|count| count.load(Ordering::Relaxed) == PAGE_UNITS as u16)
    }
}

/// Zeroes words of META, as atomics: a pointer that the program should not have freed may make another thread read a
/// header at this moment (pages.P2).
fn zero(addr: usize, bytes: usize) {
    let words = core::ptr::with_exposed_provenance::<AtomicU64>(addr);
    for index in 0..bytes / size_of::<u64>() {
        // SAFETY: the range is mapped and aligned to 64 bytes, and belongs to the caller.
        // ORDER: no partner: a thread that gets a descriptor gets it through the lock of the pool.
        unsafe { (*words.add(index)).store(0, Ordering::Relaxed) };
    }
}
