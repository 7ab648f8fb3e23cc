//! The spans of Go's heap: what its pages are for, and where its samples lie.
//!
//! ```text
//!   runtime.mheap_ ─► allspans ─► [ … start, pages … | counts, class, state, size of a block, end | specials ]
//!   specials ─► [ next | offset, kind | bucket ]  of a sample: its address and its bucket
//! ```
//!
//! S1  Layouts differ by version, and none is believed: the list of spans is the first three words of the heap (address, length,
//!     room) that lead to spans, and of the layouts of a span the one counts that all spans in use agree with. A special is a
//!     sample's if the word where its bucket would be is the address of a known bucket.
//! S2  The program runs meanwhile. A span that is read while it changes is left out by the same checks.
//!
//! Not here: what is counted of a bucket (buckets.rs).

use rustc_hash::{FxHashMap, FxHashSet};

use super::binary::GoProgram;
use crate::remote::{Remote, words};

/// Go's page, and the arena that it takes from the kernel at once, bytes.
const PAGE: u64 = 8192;
pub(super) const ARENA: u64 = 64 << 20;
/// The words of a span that are read.
const SPAN_WORDS: usize = 20;
/// The places of a span's first address and its pages, in words.
const START: usize = 3;
const PAGES: usize = 4;
/// The words behind which counts, class and state of a span lie, by layout: 1.18, 1.19 and 1.22 on; 1.20; 1.21.
const LAYOUTS: [usize; 3] = [11, 12, 13];
/// The most spans, and the most specials of a span.
const MOST_SPANS: u64 = 1 << 24;
const MOST_SPECIALS: usize = 1 << 16;
/// The spans by which a list is judged.
const TRIED: usize = 16;

/// What a span is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Use {
    /// Blocks.
    Heap,
    /// Stacks of goroutines, and what the collector works with.
    Manual,
}

/// A span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Span {
    start: u64,
    bytes: u64,
    usage: Use,
    /// Bytes of blocks that were made and not swept.
    used: u64,
    specials: u64,
}

/// The heap as it was read last.
#[derive(Default)]
pub(super) struct Seen {
    /// Addresses of spans that are not of blocks: from and to, by address.
    pub(super) manual: Vec<(u64, u64)>,
    /// The arenas that spans lie in, by address.
    pub(super) arenas: Vec<u64>,
    /// Bytes of blocks that were made and not swept.
    pub(super) used: u64,
    /// The samples by bucket.
    pub(super) samples: FxHashMap<u64, Vec<u64>>,
}

/// The list of all spans of a process.
pub(super) struct Spans {
    process: Remote,
    /// Where the list's three words lie.
    list: Option<u64>,
}

impl Spans {
    pub(super) fn new(process: Remote) -> Spans {
        Spans {
            process,
            list: None,
        }
    }

    /// Reads all spans; `None` if they are not found, or not understood (S1).
    pub(super) fn read(
        &mut self,
        program: &GoProgram,
        bias: u64,
        buckets: &FxHashSet<u64>,
    ) -> Option<Seen> {
        let list = match self.list {
            Some(list) => list,
            None => self.find(program, bias)?,
        };
        self.list = Some(list);
        let raw = self.all(list)?;
        let spans = understood(&raw)?;
        let mut seen = Seen::default();
        for span in &spans {
            match span.usage {
                Use::Heap => seen.used += span.used,
                Use::Manual => seen.manual.push((span.start, span.start + span.bytes)),
            }
            let first = span.start / ARENA;
            seen.arenas
                .extend((first..=(span.start + span.bytes - 1) / ARENA).map(|one| one * ARENA));
        }
        seen.arenas.sort_unstable();
        seen.arenas.dedup();
        seen.manual.sort_unstable();
        for span in spans.iter().filter(|one| one.usage == Use::Heap) {
            self.samples(span, buckets, &mut seen.samples);
        }
        Some(seen)
    }

    /// Looks for the list within the heap's own data, or, of a stripped program, within all data.
    fn find(&self, program: &GoProgram, bias: u64) -> Option<u64> {
        const AT_ONCE: u64 = 1 << 20;
        let within: Vec<(u64, u64)> = match program.heap {
            Some(heap) => vec![heap],
            None => program.writable.clone(),
        };
        for (start, bytes) in within {
            let (mut at, end) = (start.wrapping_add(bias), start.wrapping_add(bias) + bytes);
            while at < end {
                let count = ((end - at).min(AT_ONCE) / 8) as usize;
                let words = self.process.words(at, count).unwrap_or_default();
                let found = words.windows(3).position(|three| self.is_list(three));
                if let Some(index) = found {
                    return Some(at + index as u64 * 8);
                }
                at += AT_ONCE;
            }
        }
        None
    }

    fn is_list(&self, three: &[u64]) -> bool {
        let [at, len, room] = *three else {
            return false;
        };
        let may_be = (4..=MOST_SPANS).contains(&len) && len <= room && room <= MOST_SPANS * 2;
        if !may_be || !at.is_multiple_of(8) || at < 1 << 16 {
            return false;
        }
        let tried = (len as usize).min(TRIED);
        let Some(spans) = self.process.words(at, tried) else {
            return false;
        };
        let mut bytes = vec![0; tried * SPAN_WORDS * 8];
        let read = self.process.read_all(&spans, SPAN_WORDS * 8, &mut bytes);
        read == tried && words(&bytes).chunks_exact(SPAN_WORDS).all(may_be_span)
    }

    /// Reads the words of all spans.
    fn all(&self, list: u64) -> Option<Vec<u64>> {
        let three = self.process.words(list, 3)?;
        let (at, len) = (three[0], three[1].min(MOST_SPANS) as usize);
        let places = self.process.words(at, len)?;
        let mut bytes = vec![0; len * SPAN_WORDS * 8];
        let read = self.process.read_all(&places, SPAN_WORDS * 8, &mut bytes);
        bytes.truncate(read * SPAN_WORDS * 8);
        Some(words(&bytes))
    }

    /// Adds the samples of a span (S1).
    fn samples(&self, span: &Span, buckets: &FxHashSet<u64>, to: &mut FxHashMap<u64, Vec<u64>>) {
        let mut at = span.specials;
        for _ in 0..MOST_SPECIALS {
            if at == 0 {
                return;
            }
            let Some(words) = self.process.words(at, 4) else {
                return;
            };
            // Until 1.23 the offset had two bytes.
            let short = (words[1] & 0xffff, words[2]);
            let long = (words[1], words[3]);
            let sample = [long, short]
                .into_iter()
                .find(|(offset, bucket)| *offset < span.bytes && buckets.contains(bucket));
            if let Some((offset, bucket)) = sample {
                to.entry(bucket).or_default().push(span.start + offset);
            }
            at = words[0];
        }
    }
}

fn may_be_span(words: &[u64]) -> bool {
    let (start, pages) = (words[START], words[PAGES]);
    start != 0 && start < 1 << 48 && start.is_multiple_of(PAGE) && (1..1 << 24).contains(&pages)
}

/// Returns the spans in use; `None` if they are of no known layout (S1).
fn understood(raw: &[u64]) -> Option<Vec<Span>> {
    let spans = || {
        let all = raw.chunks_exact(SPAN_WORDS);
        all.filter(|words| may_be_span(words))
    };
    let read = |layout: usize| spans().filter_map(move |words| span(words, layout));
    let fits = |layout: &usize| {
        let blocks = read(*layout).filter(|one| one.usage == Use::Heap).count();
        // Of another layout, most spans are none.
        let others = spans()
            .filter(|words| words[*layout + 1] >> 24 & 0xff == 1)
            .count();
        (blocks, *layout, others)
    };
    let (blocks, layout, others) = LAYOUTS.iter().map(fits).max()?;
    (blocks > 0 && blocks * 10 >= others * 9).then(|| read(layout).collect())
}

/// Reads a span. Behind the word of the layout are: blocks made 16, class 8, state 8; then the size of a block, the end of
/// the last, a lock, the specials.
fn span(words: &[u64], layout: usize) -> Option<Span> {
    const IN_USE: u64 = 1;
    const MANUAL: u64 = 2;
    const CLASSES: u64 = 68 * 2;
    let counts = words[layout + 1];
    let (made, class, state) = (counts & 0xffff, counts >> 16 & 0xff, counts >> 24 & 0xff);
    let (start, bytes) = (words[START], words[PAGES] * PAGE);
    let (size, limit) = (words[layout + 2], words[layout + 3]);
    let usage = match state {
        IN_USE => {
            let is_inside = limit > start && limit <= start + bytes;
            let fits = size > 0 && size <= bytes && made * size <= bytes && class < CLASSES;
            (is_inside && fits).then_some(Use::Heap)?
        }
        MANUAL => Use::Manual,
        _ => return None,
    };
    Some(Span {
        start,
        bytes,
        usage,
        used: made * size,
        specials: match usage {
            Use::Heap => words[layout + 5],
            Use::Manual => 0,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0xfe84_8000_0000;

    fn raw(layout: usize, index: u64, state: u64, specials: u64) -> Vec<u64> {
        let mut words = vec![0; SPAN_WORDS];
        let start = AT + index * PAGE;
        (words[START], words[PAGES]) = (start, 1);
        words[layout + 1] = 5 | 4 << 16 | state << 24;
        (words[layout + 2], words[layout + 3]) = (64, start + 128 * 64);
        words[layout + 5] = specials;
        words
    }

    #[test]
    fn of_the_layouts_the_one_counts_that_spans_agree_with() {
        for layout in LAYOUTS {
            let all: Vec<u64> = (0..9)
                .flat_map(|index| raw(layout, index, [1, 1, 2, 0][index as usize % 4], 0))
                .collect();
            let spans = understood(&all).expect("understood");
            let of = |usage| spans.iter().filter(|one| one.usage == usage).count();
            assert_eq!((of(Use::Heap), of(Use::Manual)), (5, 2), "{layout}");
            assert_eq!(spans[0].used, 5 * 64);
        }
        let none: Vec<u64> = (0..9).flat_map(|index| raw(14, index, 1, 0)).collect();
        assert!(understood(&none).is_none());
        assert!(understood(&[]).is_none());
    }

    #[test]
    fn samples_of_both_layouts_of_specials_are_found() {
        let process = Remote {
            pid: std::process::id(),
        };
        let buckets: FxHashSet<u64> = [0x7000, 0x8000].into_iter().collect();
        // A finalizer, a sample of 1.24 on, one of before.
        let old = [0u64, 640 | 2 << 16, 0x8000, 77];
        let new = [old.as_ptr() as u64, 64, 4, 0x7000];
        let other = [new.as_ptr() as u64, 128, 2, 0x9000];
        let span = Span {
            start: AT,
            bytes: PAGE,
            usage: Use::Heap,
            used: 0,
            specials: other.as_ptr() as u64,
        };
        let mut found = FxHashMap::default();
        Spans::new(process).samples(&span, &buckets, &mut found);
        assert_eq!(found.remove(&0x7000), Some(vec![AT + 64]));
        assert_eq!(found.remove(&0x8000), Some(vec![AT + 640]));
        assert!(found.is_empty());
    }

    #[test]
    fn the_list_is_found_within_the_heaps_data() {
        let process = Remote {
            pid: std::process::id(),
        };
        let spans: Vec<Vec<u64>> = (0..5).map(|index| raw(11, index, 1, 0)).collect();
        let list: Vec<u64> = spans.iter().map(|one| one.as_ptr() as u64).collect();
        let heap = [3, 9, 9, 9, 0, list.as_ptr() as u64, 5, 8, 1, 2];
        let program = GoProgram {
            heap: Some((heap.as_ptr() as u64, size_of_val(&heap) as u64)),
            ..GoProgram::default()
        };
        let mut read = Spans::new(process);
        let seen = read
            .read(&program, 0, &FxHashSet::default())
            .expect("found");
        assert_eq!(read.list, Some(heap.as_ptr() as u64 + 5 * 8));
        assert_eq!(
            (seen.used, seen.arenas),
            (5 * 5 * 64, vec![AT / ARENA * ARENA])
        );
    }
}
