//! Spans: the layout of allocators that cut runs of pages into blocks of one class.
//!
//! ```text
//!   acquire ─► class ─► bin (heap, class) ─► span by `Order` ─► slot      large ─► a run of its own
//!   release ─► span of the page ─► slot free ─ all free ─► the run goes back
//! ```
//!
//! S1  A span that has a free slot is in its bin's `open`, under the rank with which it was put in, or
//!     is the bin's current one; a full span is in neither.
//! S2  `free` is the number of set bits. A span whose slots are all free is given up at once.
//! S3  `of_page` leads from each page of a span to the span, and from the first page of a large run to [`LARGE`].
//! S4  A block that is freed by another thread goes back to the span that it came from, as in every
//!     allocator with owned spans. Caches of threads are not simulated: they would add to what is held.
//!
//! Not here: classes (`classes.rs`), runs (`runs.rs`), pages (`pages.rs`).

use std::collections::BTreeSet;

use crate::classes::Table;
use crate::layout::{Ask, Layout, Place};
use crate::mesh::{self, Candidate, Mesh};
use crate::pages::{PAGE, Pages};
use crate::policy::{Order, Policy};
use crate::runs::Runs;

const NONE: u32 = u32::MAX;
const LARGE: u32 = u32::MAX - 1;
/// The size from which a large block that grows takes its pages along: the allocator's own bound
/// (`MOVE_PAGES` in engines/alloc/src/heaps/large.rs); other allocators are near it or copy.
const MOVED_BYTES: u64 = 64 * PAGE;

struct Span {
    start: u32,
    pages: u32,
    class: u32,
    bin: u32,
    slots: u32,
    free: u32,
    /// Its rank in `open`; `None` if it is not there.
    rank: Option<u64>,
    /// One bit for each slot: set if it is free.
    bits: Box<[u64]>,
    /// With [`Order::Lifo`]: free slots that were used before, the newest last; `unused` counts those never used.
    stack: Vec<u16>,
    unused: u32,
}

#[derive(Default)]
struct Bin {
    open: BTreeSet<(u64, u32)>,
    /// The span that the next block comes from, or [`NONE`] (not with [`Order::Lowest`], which always searches).
    current: Option<u32>,
}

/// The layout of spans.
pub(crate) struct SpanLayout {
    table: Table,
    order: Order,
    runs: Runs,
    of_page: Vec<u32>,
    spans: Vec<Span>,
    /// Entries of `spans` that are unused.
    gone: Vec<u32>,
    bins: Vec<Bin>,
    /// The bin by heap and class.
    bin_of: Vec<Vec<u32>>,
    /// Counts up as spans open, so that the newest has the lowest rank with [`Order::Lifo`].
    opened: u64,
    /// The bytes of bits and stacks.
    bits_bytes: usize,
    /// The bytes of the descriptors that the allocator would have.
    described_bytes: u64,
}

/// Returns the bytes of a span's descriptor in Skinflint's allocator: 40, and three words for each 64 slots and the one bit
/// behind them (engines/alloc/src/mechanism/span.rs), in lines of 64.
fn described(slots: u32) -> u64 {
    (40 + 24 * u64::from((slots + 1).div_ceil(64))).next_multiple_of(64)
}

/// The bytes of the allocator's map for each page (engines/alloc/src/mechanism/map.rs).
const MAP_ENTRY: u64 = 4;

impl SpanLayout {
    pub(crate) fn new(policy: &Policy, order: Order) -> SpanLayout {
        SpanLayout {
            table: Table::new(&policy.classes, policy.length),
            order,
            runs: Runs::default(),
            of_page: Vec::new(),
            spans: Vec::new(),
            gone: Vec::new(),
            bins: Vec::new(),
            bin_of: Vec::new(),
            opened: 0,
            bits_bytes: 0,
            described_bytes: 0,
        }
    }

    fn bin(&mut self, heap: u32, class: u32) -> u32 {
        let (heap, class) = (heap as usize, class as usize);
        if heap >= self.bin_of.len() {
            self.bin_of.resize(heap + 1, Vec::new());
        }
        let bins = &mut self.bin_of[heap];
        if class >= bins.len() {
            bins.resize(class + 1, NONE);
        }
        if bins[class] == NONE {
            bins[class] = self.bins.len() as u32;
            self.bins.push(Bin::default());
        }
        bins[class]
    }

    /// Returns the span that the bin's next block comes from.
    fn span_for(&mut self, bin: u32, class: u32, pages: &mut Pages) -> u32 {
        let there = &mut self.bins[bin as usize];
        if let Some(current) = there.current {
            return current;
        }
        let first = match self.order {
            Order::Lowest => there.open.first().copied(),
            _ => there.open.pop_first(),
        };
        let span = match first {
            Some((_, span)) => span,
            None => self.new_span(bin, class, pages),
        };
        if self.order == Order::Lowest {
            self.open(span);
        } else {
            self.spans[span as usize].rank = None;
            self.bins[bin as usize].current = Some(span);
        }
        span
    }

    fn new_span(&mut self, bin: u32, class: u32, pages: &mut Pages) -> u32 {
        let size = self.table.get(class).size;
        let length = self.table.pages(class);
        let start = self.runs.take(length);
        pages.run_taken(start, length);
        let slots = (u64::from(length) * PAGE / u64::from(size)) as u32;
        let mut bits = vec![!0u64; slots.div_ceil(64) as usize].into_boxed_slice();
        if !slots.is_multiple_of(64)
            && let Some(last) = bits.last_mut()
        {
            *last = (1 << (slots % 64)) - 1;
        }
        self.bits_bytes += bits.len() * 8;
        self.described_bytes += described(slots);
        let span = Span {
            start,
            pages: length,
            class,
            bin,
            slots,
            free: slots,
            rank: None,
            bits,
            stack: Vec::new(),
            unused: 0,
        };
        let index = match self.gone.pop() {
            Some(index) => {
                self.spans[index as usize] = span;
                index
            }
            None => {
                self.spans.push(span);
                self.spans.len() as u32 - 1
            }
        };
        self.mark(start, length, index);
        index
    }

    fn mark(&mut self, start: u32, pages: u32, with: u32) {
        let end = (start + pages) as usize;
        if end > self.of_page.len() {
            self.of_page.resize(end, NONE);
        }
        self.of_page[start as usize..end].fill(with);
    }

    /// Puts a span with a free slot into its place, or moves it to the right one (S1).
    fn open(&mut self, index: u32) {
        let span = &mut self.spans[index as usize];
        let bin = &mut self.bins[span.bin as usize];
        if bin.current == Some(index) {
            return;
        }
        let rank = match (self.order, span.rank) {
            (Order::Lowest, _) => u64::from(span.start),
            (Order::Fullest, _) => u64::from(span.free) << 32 | u64::from(span.start),
            (Order::Lifo, Some(rank)) => rank,
            (Order::Lifo, None) => {
                self.opened += 1;
                u64::MAX - self.opened
            }
        };
        if span.rank == Some(rank) {
            return;
        }
        if let Some(old) = span.rank.replace(rank) {
            bin.open.remove(&(old, index));
        }
        bin.open.insert((rank, index));
    }

    /// Removes a span from its bin.
    fn close(&mut self, index: u32) {
        let span = &mut self.spans[index as usize];
        let bin = &mut self.bins[span.bin as usize];
        if let Some(rank) = span.rank.take() {
            bin.open.remove(&(rank, index));
        }
        if bin.current == Some(index) {
            bin.current = None;
        }
    }

    fn small(&mut self, ask: Ask, class: u32, pages: &mut Pages) -> Place {
        let bin = self.bin(ask.heap, class);
        let index = self.span_for(bin, class, pages);
        let lifo = self.order == Order::Lifo;
        let span = &mut self.spans[index as usize];
        let slot = if lifo { span.newest() } else { span.lowest() };
        span.bits[slot as usize / 64] &= !(1 << (slot % 64));
        span.free -= 1;
        let full = span.free == 0;
        let start = u64::from(span.start) * PAGE;
        if full {
            self.close(index);
        }
        self.table.came(ask.size, class);
        Place(start + u64::from(slot) * u64::from(self.table.get(class).size))
    }

    fn span_at(&self, place: Place) -> Option<u32> {
        let index = self.of_page[(place.0 / PAGE) as usize];
        (index != LARGE).then_some(index)
    }

    fn give_up(&mut self, index: u32, pages: &mut Pages) {
        self.close(index);
        let span = &mut self.spans[index as usize];
        let (start, length, class) = (span.start, span.pages, span.class);
        self.described_bytes -= described(span.slots);
        let bits = std::mem::take(&mut span.bits);
        self.bits_bytes -= bits.len() * 8;
        // Stacks grow with use; a new span of this entry starts without one.
        span.stack = Vec::new();
        span.slots = 0;
        self.gone.push(index);
        self.mark(start, length, NONE);
        self.table.span_went(class, length);
        self.runs.give(start, length);
        pages.run_freed(start, length);
    }

    fn large_pages(&self, size: u64) -> u32 {
        self.table.large(size).div_ceil(PAGE) as u32
    }
}

impl Span {
    fn lowest(&self) -> u32 {
        let word = self.bits.iter().position(|word| *word != 0).unwrap_or(0);
        word as u32 * 64 + self.bits[word].trailing_zeros()
    }

    fn newest(&mut self) -> u32 {
        match self.stack.pop() {
            Some(slot) => u32::from(slot),
            None => {
                self.unused += 1;
                self.unused - 1
            }
        }
    }
}

impl Layout for SpanLayout {
    fn acquire(&mut self, ask: Ask, pages: &mut Pages) -> Place {
        if let Some(class) = self.table.class_of(ask.size) {
            return self.small(ask, class, pages);
        }
        let length = self.large_pages(ask.size);
        let start = self.runs.take(length);
        pages.run_taken(start, length);
        self.mark(start, 1, LARGE);
        Place(u64::from(start) * PAGE)
    }

    fn release(&mut self, place: Place, size: u64, pages: &mut Pages) {
        if place.is_direct() {
            return;
        }
        let Some(index) = self.span_at(place) else {
            let (start, length) = ((place.0 / PAGE) as u32, self.large_pages(size));
            self.mark(start, 1, NONE);
            self.runs.give(start, length);
            return pages.run_freed(start, length);
        };
        let lifo = self.order == Order::Lifo;
        let span = &mut self.spans[index as usize];
        let class = span.class;
        let class_bytes = u64::from(self.table.get(class).size);
        let slot = (place.0 - u64::from(span.start) * PAGE) / class_bytes;
        span.bits[slot as usize / 64] |= 1 << (slot % 64);
        span.free += 1;
        if lifo {
            span.stack.push(slot as u16);
        }
        self.table.went(size, class);
        if self.spans[index as usize].free == self.spans[index as usize].slots {
            self.give_up(index, pages);
        } else {
            self.open(index);
        }
    }

    fn in_place(&mut self, place: Place, old: u64, new: u64, pages: &mut Pages) -> bool {
        if place.is_direct() {
            // Spans have no mapping of their own.
            return false;
        }
        if let Some(index) = self.span_at(place) {
            let class = self.spans[index as usize].class;
            let stays = self.table.class_of(new) == Some(class);
            if stays {
                self.table.went(old, class);
                self.table.came(new, class);
            }
            return stays;
        }
        if self.table.class_of(new).is_some() {
            return false;
        }
        let start = (place.0 / PAGE) as u32;
        let (old, new) = (self.large_pages(old), self.large_pages(new));
        if new <= old {
            if new < old {
                self.runs.give(start + new, old - new);
                // The model has not left these pages yet: it leaves them with the block's new size.
                pages.run_freed(start + new, old - new);
            }
            return true;
        }
        let extended = self.runs.extend(start + old, new - old);
        if extended {
            pages.run_taken(start + old, new - old);
        }
        extended
    }

    fn moves_pages(&self, old: u64, new: u64) -> bool {
        self.table.class_of(old).is_none() && old >= MOVED_BYTES && new >= MOVED_BYTES
    }

    fn usable(&self, place: Place, size: u64) -> u64 {
        if place.is_direct() {
            return size.next_multiple_of(PAGE);
        }
        match self.span_at(place) {
            Some(index) => u64::from(self.table.get(self.spans[index as usize].class).size),
            None => self.table.large(size),
        }
    }

    fn spans(&self) -> u64 {
        (self.spans.len() - self.gone.len()) as u64
    }

    fn descriptor_bytes(&self) -> u64 {
        self.described_bytes + self.of_page.len() as u64 * MAP_ENTRY
    }

    fn mesh(&self, pages: &Pages) -> Option<Mesh> {
        let candidate = |span: &Span| Candidate {
            class: span.class,
            start: span.start,
            pages: span.pages,
            slots: span.slots,
            live: span.slots - span.free,
        };
        let live = self
            .spans
            .iter()
            .enumerate()
            .filter(|(_, span)| span.slots > 0);
        let all: Vec<_> = live.map(|(index, span)| (index, candidate(span))).collect();
        Some(mesh::probe(all, pages, |index| &self.spans[index].bits))
    }

    fn mesh_work(&self) -> u64 {
        self.spans() * mesh::PROBES as u64 / 2
    }

    fn table_bytes(&self) -> usize {
        self.table.table_bytes()
            + self.runs.table_bytes()
            + self.of_page.capacity() * 4
            + self.spans.capacity() * (size_of::<Span>() + 24)
            + self.bits_bytes
            + self.bins.capacity() * size_of::<Bin>()
            + self
                .bin_of
                .iter()
                .map(|bins| bins.capacity() * 4)
                .sum::<usize>()
    }
}
