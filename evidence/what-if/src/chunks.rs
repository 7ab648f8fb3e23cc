//! Chunks: the layout of allocators that split and join blocks in one heap, as glibc's does.
//!
//! ```text
//!   0 [ chunk | free | chunk | chunk | free | … | chunk ) top ─────► end, in pages; trimmed from the top
//!   best fit, the lowest of equal ones; neighbours joined at once; mmap from a threshold that rises
//! ```
//!
//! K1  `by_start` and `by_len` hold the same free chunks; no two of them touch, and none touches `top`.
//! K2  Chunks are multiples of 16 with 8 bytes of header, at least 32; a block begins 8 bytes behind its chunk's
//!     start, so that blocks are separated by their headers.
//! K3  `kept` holds chunks that are freed and not joined: thread-cache bins of [`CACHED_MAX`] each, and fast bins
//!     until they are consolidated: by a large request, a large free chunk, or before the heap would grow. They pin the
//!     top, as they really do.
//! K4  Purging whole spans means trimming here: pages above the top go back when there are more than the trim
//!     threshold. Purging each page is what `malloc_trim(0)` would do all the time.
//!
//! Simplified: one arena and one thread cache; a remainder of 16 bytes is kept as free, where glibc leaves it with
//! the block; free chunks of one size are taken by address, not by age.
//! Source: glibc 2.36, malloc/malloc.c (thresholds: M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, both dynamic).
//! Not here: pages (`pages.rs`).

use std::collections::{BTreeMap, BTreeSet};

use crate::layout::{Ask, Layout, Place};
use crate::pages::{PAGE, Pages};

const STEP: u64 = 16;
const HEADER: u64 = 8;
const CHUNK_MIN: u64 = 32;
const MMAP_BYTES: u64 = 128 << 10;
/// The most bytes that the threshold rises to.
const MMAP_BYTES_MAX: u64 = 32 << 20;
/// The bytes left above the top when it is trimmed, and requested beyond need when the heap grows.
const TOP_PAD: u64 = 128 << 10;

/// The largest chunk that thread caches keep, and how many of each size.
const CACHED_BYTES: u64 = 1040;
const CACHED_MAX: usize = 7;
/// The largest chunk of fast bins.
const FAST_BYTES: u64 = 128;
/// A request or a free chunk from these sizes on consolidates the fast bins.
const LARGE_REQUEST: u64 = 1024;
const LARGE_FREE: u64 = 64 << 10;

/// Freed chunks of one size that are not joined yet (K3), the newest last.
#[derive(Clone, Default)]
struct Kept {
    cached: Vec<u64>,
    fast: Vec<u64>,
}

/// The layout of chunks.
pub(crate) struct ChunkLayout {
    /// Kept chunks by chunk size in sixteenths.
    kept: Vec<Kept>,
    /// Number of chunks in fast bins.
    fast: usize,
    by_start: BTreeMap<u64, u64>,
    by_len: BTreeSet<(u64, u64)>,
    top: u64,
    /// The first page that is not the heap's.
    end: u32,
    mmap_bytes: u64,
}

fn chunk(size: u64) -> u64 {
    (size + HEADER).next_multiple_of(STEP).max(CHUNK_MIN)
}

fn mapped(size: u64) -> u64 {
    (chunk(size) + HEADER).next_multiple_of(PAGE)
}

impl ChunkLayout {
    pub(crate) fn new() -> ChunkLayout {
        ChunkLayout {
            kept: vec![Kept::default(); (CACHED_BYTES / STEP) as usize + 1],
            fast: 0,
            by_start: BTreeMap::new(),
            by_len: BTreeSet::new(),
            top: 0,
            end: 0,
            mmap_bytes: MMAP_BYTES,
        }
    }

    fn insert(&mut self, start: u64, len: u64) {
        if len > 0 {
            self.by_start.insert(start, len);
            self.by_len.insert((len, start));
        }
    }

    fn remove(&mut self, start: u64, len: u64) {
        self.by_start.remove(&start);
        self.by_len.remove(&(len, start));
    }

    /// Takes a chunk of this size that was kept.
    fn take_kept(&mut self, chunk: u64) -> Option<u64> {
        let kept = self.kept.get_mut((chunk / STEP) as usize)?;
        if let Some(start) = kept.cached.pop() {
            return Some(start);
        }
        let start = kept.fast.pop()?;
        self.fast -= 1;
        Some(start)
    }

    /// Keeps a freed chunk as it is, if it is to be kept; returns whether it was.
    fn keep(&mut self, start: u64, chunk: u64) -> bool {
        let Some(kept) = self.kept.get_mut((chunk / STEP) as usize) else {
            return false;
        };
        if kept.cached.len() < CACHED_MAX {
            kept.cached.push(start);
        } else if chunk <= FAST_BYTES {
            kept.fast.push(start);
            self.fast += 1;
        } else {
            return false;
        }
        true
    }

    /// Joins the chunks in the fast bins.
    fn consolidate(&mut self, pages: &mut Pages) {
        if self.fast == 0 {
            return;
        }
        self.fast = 0;
        for step in 0..=(FAST_BYTES / STEP) as usize {
            for start in std::mem::take(&mut self.kept[step].fast) {
                self.give(start, step as u64 * STEP, pages);
            }
        }
    }

    /// Returns the bytes between the top and the end.
    fn above(&self) -> u64 {
        u64::from(self.end) * PAGE - self.top
    }

    /// Takes the shortest free chunk that does, the lowest of equal ones.
    fn take_free(&mut self, need: u64) -> Option<u64> {
        let &(len, start) = self.by_len.range((need, 0)..).next()?;
        self.remove(start, len);
        self.insert(start + need, len - need);
        Some(start)
    }

    /// Moves the top up, and the end with it.
    fn raise(&mut self, by: u64, pages: &mut Pages) {
        self.top += by;
        if self.top > u64::from(self.end) * PAGE {
            let end = (self.top + TOP_PAD).div_ceil(PAGE) as u32;
            pages.run_taken(self.end, end - self.end);
            self.end = end;
        }
    }

    /// Frees `len` bytes from `start` (K1), and trims (K4).
    fn give(&mut self, mut start: u64, mut len: u64, pages: &mut Pages) {
        if let Some((&before, &there)) = self.by_start.range(..start).next_back()
            && before + there == start
        {
            self.remove(before, there);
            (start, len) = (before, len + there);
        }
        if let Some(&there) = self.by_start.get(&(start + len)) {
            self.remove(start + len, there);
            len += there;
        }
        let large = len >= LARGE_FREE;
        if start + len < self.top {
            self.insert(start, len);
        } else {
            self.top = start;
        }
        if large {
            self.consolidate(pages);
        }
        self.trim(pages);
    }

    /// Gives back what lies above the top, if it is more than the threshold (K4).
    fn trim(&mut self, pages: &mut Pages) {
        let trim = match self.mmap_bytes {
            MMAP_BYTES => MMAP_BYTES,
            risen => 2 * risen,
        };
        let end = (self.top + TOP_PAD).div_ceil(PAGE) as u32;
        if self.above() >= trim && end < self.end {
            pages.run_freed(end, self.end - end);
            self.end = end;
        }
    }
}

impl Layout for ChunkLayout {
    fn acquire(&mut self, ask: Ask, pages: &mut Pages) -> Place {
        let need = chunk(ask.size);
        if let Some(start) = self.take_kept(need) {
            return Place(start + HEADER);
        }
        if need >= LARGE_REQUEST {
            self.consolidate(pages);
        }
        if let Some(start) = self.take_free(need) {
            return Place(start + HEADER);
        }
        // The heap grows only when nothing that was freed does, fast bins among it.
        if need + CHUNK_MIN > self.above() && self.fast > 0 {
            self.consolidate(pages);
            if let Some(start) = self.take_free(need) {
                return Place(start + HEADER);
            }
        }
        if need >= self.mmap_bytes && need > self.above() {
            return Place::DIRECT;
        }
        let start = self.top;
        self.raise(need, pages);
        Place(start + HEADER)
    }

    fn release(&mut self, place: Place, size: u64, pages: &mut Pages) {
        if place.is_direct() {
            if mapped(size) > self.mmap_bytes && mapped(size) <= MMAP_BYTES_MAX {
                self.mmap_bytes = mapped(size);
            }
            return;
        }
        let (start, len) = (place.0 - HEADER, chunk(size));
        if !self.keep(start, len) {
            self.give(start, len, pages);
        }
    }

    fn in_place(&mut self, place: Place, old: u64, new: u64, pages: &mut Pages) -> bool {
        if place.is_direct() {
            return chunk(new) >= MMAP_BYTES;
        }
        let start = place.0 - HEADER;
        let (old, new) = (chunk(old), chunk(new));
        if new <= old {
            if new < old {
                self.give(start + new, old - new, pages);
            }
            return true;
        }
        let next = start + old;
        // The top is used as far as it reaches; the heap does not grow for a realloc.
        if next == self.top && new - old <= self.above() {
            self.raise(new - old, pages);
            return true;
        }
        match self.by_start.get(&next).copied() {
            Some(len) if old + len >= new => {
                self.remove(next, len);
                self.insert(start + new, old + len - new);
                true
            }
            _ => false,
        }
    }

    fn usable(&self, place: Place, size: u64) -> u64 {
        match place.is_direct() {
            true => mapped(size) - 2 * HEADER,
            false => chunk(size) - HEADER,
        }
    }

    fn table_bytes(&self) -> usize {
        // These are two trees, each with 16 bytes per chunk in nodes that are about two thirds full.
        let kept = |kept: &Kept| kept.cached.capacity() + kept.fast.capacity();
        self.by_start.len() * 48 + self.kept.iter().map(kept).sum::<usize>() * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(size: u64) -> Ask {
        Ask { size, heap: 0 }
    }

    #[test]
    fn chunks_by_hand() {
        let (mut heap, mut pages) = (ChunkLayout::new(), Pages::new(0));
        // Too large to be kept. 1,100 bytes: a chunk of 1,120. 1,200: 1,216. 2,000: 2,016.
        let places = [1100, 1200, 2000, 1100].map(|size| heap.acquire(ask(size), &mut pages));
        assert_eq!(places.map(|place| place.0), [8, 1128, 2344, 4360]);
        assert_eq!(heap.usable(places[1], 1200), 1208);
        heap.release(places[1], 1200, &mut pages);
        // 1,216 bytes free at 1,120: 1,100 bytes take 1,120 of them, 96 are left.
        assert_eq!(heap.acquire(ask(1100), &mut pages).0, 1128);
        assert_eq!(heap.by_start, BTreeMap::from([(2240, 96)]));
        // The one behind is joined with the remainder: 96 + 2,016.
        heap.release(places[2], 2000, &mut pages);
        assert_eq!(heap.by_start, BTreeMap::from([(2240, 2112)]));
        // The last one is the top's neighbour, and what is free before it goes to the top, too.
        heap.release(places[3], 1100, &mut pages);
        assert!(heap.by_start.is_empty());
        assert_eq!(heap.top, 2240);
    }

    #[test]
    fn small_chunks_are_kept_and_pin_the_top_until_they_are_consolidated() {
        let (mut heap, mut pages) = (ChunkLayout::new(), Pages::new(0));
        let places: Vec<Place> = (0..8).map(|_| heap.acquire(ask(24), &mut pages)).collect();
        places
            .iter()
            .for_each(|place| heap.release(*place, 24, &mut pages));
        // Seven are cached, the eighth lies in a fast bin. Nothing is joined.
        assert_eq!((heap.top, heap.fast, heap.by_start.len()), (256, 1, 0));
        // The newest of the cache comes first.
        assert_eq!(heap.acquire(ask(24), &mut pages), places[6]);
        // 2,000 bytes consolidate: the eighth is the top's neighbour.
        assert_eq!(heap.acquire(ask(2000), &mut pages).0, 7 * 32 + 8);
        assert_eq!(heap.fast, 0);
    }

    #[test]
    fn what_fast_bins_have_is_joined_before_the_heap_grows() {
        let (mut heap, mut pages) = (ChunkLayout::new(), Pages::new(0));
        // 130 KiB of chunks of 32 bytes, and all but the seven cached ones in a fast bin: no other size takes them.
        let places: Vec<Place> = (0..4160)
            .map(|_| heap.acquire(ask(24), &mut pages))
            .collect();
        let end = heap.end;
        for place in &places {
            heap.release(*place, 24, &mut pages);
        }
        assert_eq!(heap.fast, 4153);
        // Chunks of 64 bytes come from the top until it is used up, then from what is joined.
        let more: Vec<u64> = (0..2000)
            .map(|_| heap.acquire(ask(56), &mut pages).0)
            .collect();
        assert_eq!((heap.fast, heap.end), (0, end));
        assert!(more.iter().skip(40).all(|place| *place < 4160 * 32));
    }

    #[test]
    fn grows_and_shrinks_in_place() {
        let (mut heap, mut pages) = (ChunkLayout::new(), Pages::new(0));
        let [a, b, c] = [1100, 2000, 1100].map(|size| heap.acquire(ask(size), &mut pages));
        assert!(!heap.in_place(a, 1100, 2000, &mut pages));
        heap.release(b, 2000, &mut pages);
        assert!(heap.in_place(a, 1100, 2000, &mut pages));
        // 1,120 + 2,016 = 3,136 bytes; 2,016 are a's now.
        assert_eq!(heap.by_start, BTreeMap::from([(2016, 1120)]));
        assert!(heap.in_place(a, 2000, 1100, &mut pages));
        assert_eq!(heap.by_start, BTreeMap::from([(1120, 2016)]));
        assert!(heap.in_place(c, 1100, 3000, &mut pages));
        assert_eq!(heap.top, 3136 + 3008);
    }

    #[test]
    fn mapped_from_a_threshold_that_rises_and_trimmed_from_the_top() {
        let (mut heap, mut pages) = (ChunkLayout::new(), Pages::new(0));
        let big = heap.acquire(ask(200_000), &mut pages);
        assert!(big.is_direct());
        assert_eq!(heap.usable(big, 200_000), 200_688);
        heap.release(big, 200_000, &mut pages);
        // 200,704 are the threshold now: the same again comes from the heap, whose end is 128 KiB further.
        let again = heap.acquire(ask(200_000), &mut pages);
        assert_eq!(again.0, 8);
        assert_eq!(u64::from(heap.end), (200_016 + TOP_PAD).div_ceil(PAGE));
        pages.block(again.0, 200_000);
        pages.unblock(again.0, 200_000);
        heap.release(again, 200_000, &mut pages);
        // 332 KiB above the top are less than twice 196 KiB, so nothing is trimmed …
        assert_eq!(pages.resident().spans, 49);
        let more = heap.acquire(ask(150_000), &mut pages);
        let most = heap.acquire(ask(190_000), &mut pages);
        pages.block(more.0, 150_000);
        pages.block(most.0, 190_000);
        for (place, size) in [(more, 150_000), (most, 190_000)] {
            pages.unblock(place.0, size);
            heap.release(place, size, &mut pages);
        }
        // … 467 KiB are more: 128 KiB stay.
        assert_eq!(heap.end, 32);
        assert_eq!(pages.resident().spans, 32);
    }
}
