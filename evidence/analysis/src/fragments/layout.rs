//! Spans, if an address and a size determine them in an allocator's layout.
//!
//! ```text
//!   jemalloc   slab   |b|b|b|b|b|…|b|   as long as the least common multiple of a page and the class
//!   mimalloc   page   |hdr?|b|b|b|…      64 KiB, aligned to it, for blocks up to 16 KiB
//! ```
//!
//! T1  A slab of jemalloc begins on a page and holds blocks of one class from its first byte to its last: its length
//!     is lcm(4096, class), and no two blocks of it lie at the same place in their pages; so the place of one block
//!     in its page says which of the slab's blocks it is, and where the slab begins. (jemalloc 4 and 5, `slab_size`
//!     in its sc.c; classes up to 14 KiB.)
//! T2  A small page of mimalloc is one slice of 64 KiB of an aligned segment (version 2; its types.h).
//! T3  Spans that overlap are not what they were taken for: then none are reported, rather than wrong ones.
//!
//! Other allocators (glibc has no spans; tcmalloc and ours choose lengths that addresses do not show) have only
//! pages. Not here: pages (`sweep.rs`).

use super::tally::{PAGE, Placed, Tally};
use crate::cells::Cells;
use crate::giveback::Span;
use crate::model::HeapSpans;
use crate::pass::CellId;

/// The largest class that jemalloc serves from slabs.
const JEMALLOC_SMALL: u64 = 14 << 10;
/// The largest block on a small page of mimalloc.
const MIMALLOC_SMALL: u64 = 16 << 10;
/// The size of a slice of a segment of mimalloc.
const MIMALLOC_SLICE: u64 = 64 << 10;

/// An allocator whose spans addresses show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    Jemalloc,
    Mimalloc2,
}

impl Layout {
    /// Returns the layout for the name that the recorder gave an allocator: `libjemalloc.so.2 …`.
    pub fn of(allocator: &str) -> Option<Layout> {
        if allocator.starts_with("libjemalloc.so.2") {
            Some(Layout::Jemalloc)
        } else if allocator.starts_with("libmimalloc.so.2") {
            Some(Layout::Mimalloc2)
        } else {
            None
        }
    }

    fn says(self) -> &'static str {
        match self {
            Layout::Jemalloc => "jemalloc: slabs of the small size classes (up to 14 KiB)",
            Layout::Mimalloc2 => "mimalloc 2: pages of 64 KiB (blocks up to 16 KiB)",
        }
    }

    /// Returns the span of a block: where it begins and ends.
    pub fn span(self, addr: u64, usable: u64) -> Option<(u64, u64)> {
        match self {
            Layout::Jemalloc => slab(addr, usable),
            Layout::Mimalloc2 => (usable > 0 && usable <= MIMALLOC_SMALL).then(|| {
                let start = addr / MIMALLOC_SLICE * MIMALLOC_SLICE;
                (start, start + MIMALLOC_SLICE)
            }),
        }
    }
}

/// Finds a slab (T1): the k for which k · class ≡ addr (mod 4096), by the inverse of the class's odd part.
fn slab(addr: u64, class: u64) -> Option<(u64, u64)> {
    if !(8..=JEMALLOC_SMALL).contains(&class) || !class.is_multiple_of(8) {
        return None;
    }
    let shift = class.trailing_zeros().min(PAGE.trailing_zeros());
    let (odd, places) = (class >> shift, PAGE >> shift);
    let place = (addr % PAGE) >> shift;
    if !addr.is_multiple_of(1 << shift) {
        return None;
    }
    // Newton's step doubles the number of correct bits: 3, 6, 12.
    let mut inverse = odd;
    for _ in 0..2 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
    }
    let index = place.wrapping_mul(inverse) % places;
    let start = addr.checked_sub(index * class)?;
    Some((start, start + places * class))
}

/// Walks the blocks of known spans, by address.
pub(super) struct SpanWalk<'a> {
    layout: Layout,
    spans: &'a [Span],
    cells: &'a Cells,
    first: usize,
    /// The current span, and the class of its first block.
    at: (u64, u64),
    class: u64,
    /// By site: the number of the last span that it was seen in.
    seen: Vec<u64>,
    sites: Vec<u32>,
    /// By site: the spans that it has solely and jointly.
    kept: Vec<(u64, u64)>,
    found: HeapSpans,
    wrong: bool,
}

impl<'a> SpanWalk<'a> {
    /// Creates a walk; `spans` are the resident addresses.
    pub fn new(layout: Layout, spans: &'a [Span], cells: &'a Cells) -> SpanWalk<'a> {
        let sites = cells.sites().len();
        SpanWalk {
            layout,
            spans,
            cells,
            first: 0,
            at: (0, 0),
            class: 0,
            seen: vec![0; sites],
            sites: Vec::new(),
            kept: vec![(0, 0); sites],
            found: HeapSpans {
                layout: layout.says().into(),
                ..HeapSpans::default()
            },
            wrong: false,
        }
    }

    /// Takes a block.
    pub fn lay(&mut self, block: &Placed) {
        let cell = CellId(block.cell);
        let usable = self.cells.key(cell).usable;
        // Blocks of a span come one after the other.
        let same = block.addr < self.at.1 && usable == self.class;
        if !same && !self.another(block.addr, usable) {
            return;
        }
        self.found.blocks += 1;
        self.found.used_bytes += self.resident(block.addr, block.addr + usable);
        let site = self.cells.site_of(cell);
        if self.seen[site] != self.found.spans {
            self.seen[site] = self.found.spans;
            self.sites.push(site as u32);
        }
    }

    /// Goes to the span of a block, if it has one.
    fn another(&mut self, addr: u64, usable: u64) -> bool {
        let span = self.layout.span(addr, usable);
        // Neither the next span nor a block that is in none may lie in the last one (T3).
        let begins = span.map_or(addr, |span| span.0);
        let inside = span == Some(self.at);
        self.wrong |= !inside && begins < self.at.1;
        let Some(span) = span else {
            return false;
        };
        if !inside {
            self.book();
            self.begin(span);
        }
        self.class = usable;
        true
    }

    fn begin(&mut self, span: (u64, u64)) {
        self.at = span;
        self.found.spans += 1;
        while let Some(resident) = self.spans.get(self.first)
            && resident.end <= span.0
        {
            self.first += 1;
        }
    }

    fn resident(&self, start: u64, end: u64) -> u64 {
        let mut bytes = 0;
        for span in &self.spans[self.first..] {
            if span.start <= start && span.end >= end {
                return end - start;
            }
            if span.start >= end {
                break;
            }
            bytes += span.end.min(end).saturating_sub(span.start.max(start));
        }
        bytes
    }

    fn book(&mut self) {
        if self.sites.is_empty() {
            return;
        }
        let (start, end) = self.at;
        self.found.resident_bytes += self.resident(start, end);
        let sole = self.sites.len() == 1;
        for site in self.sites.drain(..) {
            let kept = &mut self.kept[site as usize];
            kept.0 += u64::from(sole);
            kept.1 += u64::from(!sole);
        }
    }

    /// Goes to the end; reports whether the spans are what they were taken for (T3).
    pub fn is_right(&mut self) -> bool {
        self.book();
        !self.wrong && self.found.spans > 0
    }

    /// Returns what was found, and sets each site's spans; `None` if spans overlap (T3).
    pub fn finish(mut self, tallies: &mut [Tally]) -> Option<HeapSpans> {
        if !self.is_right() {
            return None;
        }
        for (tally, (sole, joint)) in tallies.iter_mut().zip(self.kept) {
            tally.sole_spans = sole;
            tally.joint_spans = joint;
        }
        Some(self.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// jemalloc's classes: sixteens to 128, then four for each doubling.
    fn classes() -> Vec<u64> {
        let mut all = vec![8, 16, 32, 48, 64, 80, 96, 112, 128];
        for power in 7..14u32 {
            all.extend((5..9).map(|quarter| (1u64 << power) / 4 * quarter));
        }
        all.retain(|class| *class <= JEMALLOC_SMALL);
        all
    }

    #[test]
    fn every_block_of_every_slab_tells_where_its_slab_begins() {
        let classes = classes();
        assert_eq!((classes.len(), classes.last()), (36, Some(&14336)));
        for class in classes {
            // As jemalloc finds it: the first number of pages that the class divides.
            let pages = (1..)
                .find(|pages| (pages * PAGE).is_multiple_of(class))
                .unwrap();
            let start = 0x7F00_0012_3000;
            for index in 0..pages * PAGE / class {
                assert_eq!(
                    slab(start + index * class, class),
                    Some((start, start + pages * PAGE)),
                    "block {index} of {class}"
                );
            }
        }
    }

    #[test]
    fn what_no_slab_holds_has_none() {
        assert_eq!(slab(0x7F00_0000_0010, 16384), None);
        assert_eq!(slab(0x7F00_0000_0008, 48), None);
        assert_eq!(slab(0x7F00_0000_0010, 0), None);
    }
}
