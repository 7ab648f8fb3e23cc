//! Free memory that an allocator keeps and could give back when asked: how much it is.
//!
//! ```text
//!   page    |  4096  |  4096  |  4096  |  4096  |
//!   blocks   LLL                  LL L                   L: live, with its header
//!            pinned   whole    pinned    whole          "whole": no live byte on it
//! ```
//!
//! B1  Only resident pages of heap mappings whose pages were read count; so `whole + tops + pinned` is never more
//!     than the free memory of the books, except for closing.K3.
//! B2  glibc keeps the first bytes of a free chunk, where its links are: a page that a free chunk
//!     begins on stays. Of topmost chunks `malloc_trim` gives back the one at the end of the data segment, without its first
//!     page, and none else: neither those of threads' arenas nor one that the data segment goes on behind.
//! B3  In a process that was not recorded from its birth a page is known to be free only if it is known from end to
//!     end (`covered.rs`): what else looks free may be blocks from before the recording.
//! B4  If the trace has the topmost chunks, `tops` is what of them stays, and all other free memory is judged as what
//!     lies between blocks. If it has none (before trace 1.4, and of a glibc that is not known), `tops` is what lies
//!     behind the last live blocks of arenas: it may be a topmost chunk, or a block in a thread's cache lies there, which is
//!     in use to glibc, and what is below it goes back (of 178 MiB behind the last blocks of a mariadbd 52 were topmost
//!     chunks).
//! B5  Where addresses show an allocator's spans (`fragments/layout.rs`), a page of a span with a live block on it is
//!     none that goes back, though no live byte is on it: the span goes as a whole. The blocks keep it, and the
//!     fragments have it as theirs.
//!
//! bench/trim.py checks the figure against `malloc_trim(0)` itself: it is exact except for pages with blocks in thread
//! caches, which look free to us and live to glibc. Not here: what pins the rest (`fragments/`), what to do about it
//! (`findings.rs`).

use crate::covered::Covered;

const PAGE: u64 = 4096;
/// The bytes of a free chunk of glibc that stay: its six words, minus the one shared with the block before.
const GLIBC_CHUNK_LEFT: u64 = 40;
/// The bytes of the data segment's topmost chunk that stay, and the least size of a chunk: one in a thread's cache, or a
/// live one, is right below a topmost chunk.
const GLIBC_TOP_LEFT: u64 = 33;
const GLIBC_LEAST_CHUNK: u64 = 32;

/// A topmost chunk of glibc.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Top {
    pub start: u64,
    pub end: u64,
    /// Whether `malloc_trim` gives it back: it is the end of the data segment.
    pub goes: bool,
}

/// The allocator's way to give memory back, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way<'a> {
    /// Whole pages go.
    Pages,
    /// glibc's, with its topmost chunks by address if they are known (B4).
    Glibc(Option<&'a [Top]>),
}

/// Resident addresses of a heap mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub start: u64,
    pub end: u64,
    /// The end of the part of the mapping that one owner has, resident or not.
    pub piece_end: u64,
    /// Whether memory behind the last block is given back, if topmost chunks are not known (B4).
    pub top_goes: bool,
}

/// A live block, from its header to the end of its usable size; or the span that it keeps (B5).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub begin: u64,
    pub end: u64,
}

/// The free memory, by what becomes of it when the allocator is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GiveBack {
    /// Bytes on pages without a live byte, which the allocator can give back when asked.
    pub whole_bytes: u64,
    /// The bytes of these known to be free (B3): all of them in a process recorded from its birth.
    pub known_bytes: u64,
    /// The bytes of whole pages that lie in the topmost chunk at the end of the data segment; 0 if it is not known (B4).
    pub top_bytes: u64,
    /// Bytes of topmost chunks that stay, or may stay (B4).
    pub tops_bytes: u64,
    /// Whether topmost chunks are known (B4).
    pub tops_known: bool,
}

impl GiveBack {
    /// Returns the same within the free memory of the books: pages are read at another moment than `Rss`, and a program
    /// that gives memory back in between had more of them (closing.K3).
    pub(crate) fn within(self, free: u64) -> GiveBack {
        let whole_bytes = self.whole_bytes.min(free);
        GiveBack {
            whole_bytes,
            known_bytes: self.known_bytes.min(whole_bytes),
            top_bytes: self.top_bytes.min(whole_bytes),
            tops_bytes: self.tops_bytes.min(free - whole_bytes),
            ..self
        }
    }
}

/// Measures free memory. Spans and extents are ordered by address; spans do not overlap, and extents only if several
/// blocks keep one span (B5).
pub(crate) fn measure(
    spans: &[Span],
    extents: impl Iterator<Item = Extent>,
    way: Way<'_>,
    covered: Option<&Covered>,
) -> GiveBack {
    let mut measuring = Measuring {
        lead: match way {
            Way::Pages => 0,
            Way::Glibc(_) => GLIBC_CHUNK_LEFT,
        },
        tops: match way {
            Way::Pages => None,
            Way::Glibc(tops) => tops,
        },
        covered,
        all: GiveBack::default(),
    };
    measuring.all.tops_known = measuring.tops.is_some();
    measuring.gaps(spans, extents);
    measuring.all
}

struct Measuring<'a> {
    /// The bytes of a free chunk that stay.
    lead: u64,
    tops: Option<&'a [Top]>,
    covered: Option<&'a Covered>,
    all: GiveBack,
}

impl Measuring<'_> {
    /// Finds what lies between blocks, and behind the last ones of arenas.
    fn gaps(&mut self, spans: &[Span], extents: impl Iterator<Item = Extent>) {
        let mut extents = extents.peekable();
        let mut used_to = 0u64;
        for span in spans {
            loop {
                let next = extents.peek().copied();
                let next_begin = next.map_or(u64::MAX, |extent| extent.begin);
                if next_begin > used_to {
                    self.gap(span, used_to, next_begin);
                }
                match next {
                    Some(extent) if extent.begin < span.end => {
                        used_to = used_to.max(extent.end);
                        if extent.end > span.end {
                            break;
                        }
                        extents.next();
                    }
                    _ => break,
                }
            }
        }
    }

    /// Counts the pages of a span between the end of a block and the begin of the next.
    fn gap(&mut self, span: &Span, used_to: u64, next_begin: u64) {
        // Before the mapping's first block there is none of its own, hence no chunk to link.
        let free_from = match used_to {
            0 => 0,
            _ => used_to.saturating_add(self.lead),
        };
        let from = free_from.max(span.start);
        let to = next_begin.min(span.end);
        let Some(tops) = self.tops else {
            return match next_begin >= span.piece_end && !span.top_goes {
                true => self.all.tops_bytes += pages(from, to).map_or(0, |(from, to)| to - from),
                false => self.whole(from, to),
            };
        };
        let after = tops.partition_point(|top| top.end <= used_to.max(span.start));
        let Some(top) = tops.get(after).filter(|top| top.start < to) else {
            return self.whole(from, to);
        };
        self.whole(from, to.min(top.start.saturating_sub(GLIBC_LEAST_CHUNK)));
        let from = span.start.max(used_to);
        match top.goes {
            true => {
                let below = self.all.whole_bytes;
                self.whole(from.max(top.start.saturating_add(GLIBC_TOP_LEFT)), to);
                self.all.top_bytes += self.all.whole_bytes - below;
            }
            // What is resident behind it is the arena's, too.
            false => {
                let stays = pages(from.max(top.start), to);
                self.all.tops_bytes += stays.map_or(0, |(from, to)| to - from);
            }
        }
    }

    /// Counts the pages between two addresses as given back.
    fn whole(&mut self, from: u64, to: u64) {
        let Some((from, to)) = pages(from, to) else {
            return;
        };
        self.all.whole_bytes += to - from;
        let known = self.covered.map(|covered| covered.known_bytes(from, to));
        self.all.known_bytes += known.unwrap_or(to - from);
    }
}

/// Returns the whole pages between two addresses, if there are any.
fn pages(from: u64, to: u64) -> Option<(u64, u64)> {
    let from = from.checked_next_multiple_of(PAGE)?;
    let to = to / PAGE * PAGE;
    (from < to).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x10_0000;

    fn span(pages: u64, top_goes: bool) -> Span {
        let end = BASE + pages * PAGE;
        Span {
            start: BASE,
            end,
            piece_end: end,
            top_goes,
        }
    }

    fn block(offset: u64, len: u64) -> Extent {
        let begin = BASE + offset;
        Extent {
            begin,
            end: begin + len,
        }
    }

    fn run(spans: &[Span], blocks: &[Extent], glibc: bool) -> GiveBack {
        let way = match glibc {
            true => Way::Glibc(None),
            false => Way::Pages,
        };
        measure(spans, blocks.iter().copied(), way, None)
    }

    /// The figures with topmost chunks: given back, staying.
    fn divided(spans: &[Span], blocks: &[Extent], tops: &[Top]) -> (u64, u64) {
        let way = Way::Glibc(Some(tops));
        let got = measure(spans, blocks.iter().copied(), way, None);
        assert!(got.tops_known);
        (got.whole_bytes, got.tops_bytes)
    }

    fn top(offset: u64, len: u64, goes: bool) -> Top {
        let start = BASE + offset;
        Top {
            start,
            end: start + len,
            goes,
        }
    }

    #[test]
    fn pages_between_survivors_are_whole() {
        // Four pages: a block on the first, one on the third.
        let got = run(
            &[span(4, true)],
            &[block(0, 96), block(2 * PAGE, 1096)],
            false,
        );
        assert_eq!((got.whole_bytes, got.tops_bytes), (2 * PAGE, 0));
    }

    #[test]
    fn glibc_keeps_the_page_that_a_free_chunk_begins_on() {
        // The free chunk begins 40 bytes before the end of a page: the links just fit.
        let fits = run(
            &[span(3, true)],
            &[block(0, PAGE - 40), block(2 * PAGE, 64)],
            true,
        );
        assert_eq!(fits.whole_bytes, PAGE);
        let not = run(
            &[span(3, true)],
            &[block(0, PAGE - 39), block(2 * PAGE, 64)],
            true,
        );
        assert_eq!(not.whole_bytes, 0);
    }

    #[test]
    fn what_lies_behind_the_last_block_of_an_arena_stays() {
        let got = run(&[span(4, false)], &[block(0, 64)], true);
        assert_eq!((got.whole_bytes, got.tops_bytes), (0, 3 * PAGE));
        let all = run(&[span(4, true)], &[block(0, 64)], true);
        assert_eq!((all.whole_bytes, all.tops_bytes), (3 * PAGE, 0));
    }

    /// Eight pages of a thread's arena: a live block on the first, one in a cache on the fifth.
    #[test]
    fn free_memory_below_a_topmost_chunk_goes_and_the_chunk_stays() {
        let (spans, blocks) = ([span(8, false)], [block(0, 64)]);
        let above = top(4 * PAGE + 512, 4 * PAGE - 512, false);
        assert_eq!(divided(&spans, &blocks, &[above]), (3 * PAGE, 3 * PAGE));
        // Without topmost chunks all of it may be one.
        let got = run(&spans, &blocks, true);
        assert_eq!((got.whole_bytes, got.tops_bytes), (0, 7 * PAGE));
        // The chunk in use below it has the end of the page before.
        let close = top(4 * PAGE + 16, 4 * PAGE - 16, false);
        assert_eq!(divided(&spans, &blocks, &[close]), (2 * PAGE, 3 * PAGE));
        // An arena with another heap above has its topmost chunk there.
        assert_eq!(divided(&spans, &blocks, &[]), (7 * PAGE, 0));
        let elsewhere = top(64 * PAGE, PAGE, false);
        assert_eq!(divided(&spans, &blocks, &[elsewhere]), (7 * PAGE, 0));
    }

    /// Six pages, a block on the first and one on the third; the topmost chunk has the last two and a half.
    #[test]
    fn of_what_goes_the_topmost_chunks_part_is_told() {
        let (spans, blocks) = ([span(6, true)], [block(0, 64), block(2 * PAGE, 64)]);
        let part = |tops: Option<&[Top]>| {
            let got = measure(&spans, blocks.iter().copied(), Way::Glibc(tops), None);
            (got.whole_bytes, got.top_bytes)
        };
        let end = top(3 * PAGE + 2048, 2 * PAGE + 2048, true);
        assert_eq!(part(Some(&[end])), (3 * PAGE, 2 * PAGE));
        assert_eq!(part(Some(&[])), (4 * PAGE, 0), "elsewhere");
        assert_eq!(part(None), (4 * PAGE, 0), "not known");
    }

    #[test]
    fn the_end_of_the_data_segment_goes_but_for_its_first_page() {
        let (spans, blocks) = ([span(4, true)], [block(0, PAGE - 24)]);
        // Its first word is the last of the block before: 33 bytes of it stay.
        assert_eq!(
            divided(&spans, &blocks, &[top(PAGE - 33, 3 * PAGE + 33, true)]),
            (3 * PAGE, 0)
        );
        assert_eq!(
            divided(&spans, &blocks, &[top(PAGE - 32, 3 * PAGE + 32, true)]),
            (2 * PAGE, 0)
        );
        // Where the program moved the end itself, all of it stays.
        assert_eq!(
            divided(&spans, &blocks, &[top(PAGE - 32, 2 * PAGE, false)]),
            (0, 3 * PAGE)
        );
    }

    /// Free memory is 10 bytes by the kernel's count, whatever the pages had.
    #[test]
    fn parts_are_never_more_than_the_whole() {
        let within = |whole_bytes, known_bytes, tops_bytes| {
            let read = GiveBack {
                whole_bytes,
                known_bytes,
                tops_bytes,
                tops_known: true,
                top_bytes: 11,
            };
            let got = read.within(10);
            assert!(got.tops_known && got.top_bytes == got.whole_bytes);
            (got.whole_bytes, got.known_bytes, got.tops_bytes)
        };
        assert_eq!(within(6, 5, 4), (6, 5, 4));
        assert_eq!(within(6, 5, 5), (6, 5, 4));
        assert_eq!(within(11, 11, 3), (10, 10, 0));
    }

    /// A block that came while pages were read lies in what was a topmost chunk.
    #[test]
    fn a_topmost_chunk_with_blocks_in_it_counts_without_them() {
        let (spans, blocks) = ([span(8, false)], [block(0, 64), block(5 * PAGE + 16, 96)]);
        let stays = top(2 * PAGE, 6 * PAGE, false);
        assert_eq!(divided(&spans, &blocks, &[stays]), (0, 5 * PAGE));
    }

    #[test]
    fn of_a_process_met_alive_pages_are_free_that_are_known_from_end_to_end() {
        let mut covered = Covered::new(false);
        covered.cover(BASE + PAGE, PAGE + 100);
        let blocks = [block(0, 96)];
        let spans = [span(4, true)];
        let got = measure(&spans, blocks.into_iter(), Way::Pages, Some(&covered));
        assert_eq!((got.whole_bytes, got.known_bytes), (3 * PAGE, PAGE));
        let born = run(&spans, &blocks, false);
        assert_eq!((born.whole_bytes, born.known_bytes), (3 * PAGE, 3 * PAGE));
    }

    #[test]
    fn pages_that_are_not_resident_count_nowhere() {
        // Pages 0 and 3 of four are resident; the block lies on page 1 and 2.
        let end = BASE + 4 * PAGE;
        let part = |start, stop| Span {
            start,
            end: stop,
            piece_end: end,
            top_goes: true,
        };
        let spans = [part(BASE, BASE + PAGE), part(BASE + 3 * PAGE, end)];
        let got = run(&spans, &[block(PAGE + 100, PAGE)], false);
        assert_eq!(got.whole_bytes, 2 * PAGE);
    }
}
