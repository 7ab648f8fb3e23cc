//! How much of the free memory that an allocator keeps it could give back when asked.
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
//!     begins on stays. It never gives back the topmost chunk of a thread's arena. What lies behind
//!     the last live block (`tops`) may be that chunk; or a block in a thread's cache lies there,
//!     which is in use to glibc, and what is below it goes back: the trace does not tell (of 178 MiB
//!     behind the last blocks of a mariadbd 52 were topmost chunks).
//!
//! B3  In a process that was not recorded from its birth a page is known to be free only if it is known from end to
//!     end (`covered.rs`): what else looks free may be blocks from before the recording.
//!
//! bench/trim.py checks the figure against `malloc_trim(0)` itself: it is exact except for blocks in thread caches,
//! which look free to us and live to glibc. Not here: what pins the rest (`fragments/`), what to do about it
//! (`findings.rs`).

use crate::covered::Covered;

const PAGE: u64 = 4096;
/// The bytes of a free chunk of glibc that stay: its six words, minus the one shared with the block before.
const GLIBC_CHUNK_LEFT: u64 = 40;

/// Resident addresses of a heap mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub start: u64,
    pub end: u64,
    /// The end of the part of the mapping that one owner has, resident or not.
    pub piece_end: u64,
    /// Whether memory behind the last block is given back (B2).
    pub top_goes: bool,
}

/// A live block, from its header to the end of its usable size.
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
    /// Bytes behind the last blocks of arenas (B2).
    pub tops_bytes: u64,
}

/// Measures free memory. Spans and extents are ordered by address, and neither overlap among themselves.
pub(crate) fn measure(
    spans: &[Span],
    extents: impl Iterator<Item = Extent>,
    glibc: bool,
    covered: Option<&Covered>,
) -> GiveBack {
    let lead = if glibc { GLIBC_CHUNK_LEFT } else { 0 };
    gaps(spans, extents, lead, covered)
}

/// Finds whole pages between blocks, and behind the last ones of arenas.
fn gaps(
    spans: &[Span],
    extents: impl Iterator<Item = Extent>,
    lead: u64,
    covered: Option<&Covered>,
) -> GiveBack {
    let mut all = GiveBack::default();
    let mut extents = extents.peekable();
    let mut used_to = 0u64;
    for span in spans {
        loop {
            let next = extents.peek().copied();
            let next_begin = next.map_or(u64::MAX, |extent| extent.begin);
            // Before the mapping's first block there is none of its own, hence no chunk to link.
            let free_from = if used_to == 0 {
                0
            } else {
                used_to.saturating_add(lead)
            };
            let from = free_from.max(span.start).next_multiple_of(PAGE);
            let to = next_begin.min(span.end) / PAGE * PAGE;
            if next_begin > used_to {
                let bytes = to.saturating_sub(from);
                if next_begin >= span.piece_end && !span.top_goes {
                    all.tops_bytes += bytes;
                } else if bytes > 0 {
                    all.whole_bytes += bytes;
                    let known = covered.map(|covered| covered.known_bytes(from, to));
                    all.known_bytes += known.unwrap_or(bytes);
                }
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
    all
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
        measure(spans, blocks.iter().copied(), glibc, None)
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

    #[test]
    fn of_a_process_met_alive_pages_are_free_that_are_known_from_end_to_end() {
        let mut covered = Covered::new(false);
        covered.cover(BASE + PAGE, PAGE + 100);
        let blocks = [block(0, 96)];
        let spans = [span(4, true)];
        let got = measure(&spans, blocks.into_iter(), false, Some(&covered));
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
