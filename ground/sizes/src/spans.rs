//! Spans: the best number of pages for a run of equal blocks, and what its tail wastes.
//!
//! ```text
//!   span of 9 pages, blocks of 4,368:   [ block | block | … 8 of them … | tail 1,920 ]   5.2 %
//!   span of 16 pages:                   [ block | block | … 15 of them … | tail 16 ]     0.02 %
//! ```
//!
//! S1  A span has 1 to [`SPAN_PAGES_MAX`] pages and holds 1 to [`SLOTS_MAX`] blocks. No function here
//!     divides by zero or panics, whatever it is given.
//! S2  Blocks lie side by side from the start of the span: no header, nothing between them.
//! S3  Only pages that hold a part of a block are ever touched; whole pages in a tail cost
//!     addresses and no memory.
//!
//! Not here: when a span is taken or given back (the allocator), which classes are earned (`fit`).

use crate::schemes::skinflint;

/// Bytes of a page.
pub const PAGE_BYTES: u32 = 4096;
/// The longest span, in pages: 64 KiB. With longer ones, survivors hold most of what could be given
/// back.
pub const SPAN_PAGES_MAX: u32 = 16;
/// The most blocks in a span: each costs two bits in its descriptor, whose size is fixed.
pub const SLOTS_MAX: u32 = 1024;
/// The largest block that lives in a span, in bytes; larger blocks are runs of pages of their own.
pub const SMALL_MAX: u32 = 32 << 10;
/// A class has about this many spans: with 32, one span that is half empty wastes less than 2 % of the
/// class's bytes.
pub const SPANS_PER_CLASS: u64 = 32;
/// The bytes that a tail or rounding must cost before anything is done about it: eight pages.
pub const WORTH_BYTES: u64 = 32 << 10;

/// A tail may be this part of a span (one in sixteen) …
const TAIL_SHARE: u32 = 16;
/// … or this one (one in sixty-four) if the class is earned, or so large that a sixteenth of it would
/// be worth saving.
const TAIL_SHARE_HOT: u32 = 64;

/// Returns the number of blocks of `class` bytes in a span of `pages`.
pub const fn slots(class: u32, pages: u32) -> u32 {
    match class {
        0 => 0,
        _ => pages.saturating_mul(PAGE_BYTES) / class,
    }
}

/// Returns the bytes after the last block of a span.
pub const fn tail_bytes(class: u32, pages: u32) -> u32 {
    pages.saturating_mul(PAGE_BYTES) - slots(class, pages) * class
}

/// Returns the fewest pages that hold a block of `class` bytes.
pub const fn pages_min(class: u32) -> u32 {
    let pages = class.div_ceil(PAGE_BYTES);
    if pages == 0 { 1 } else { pages }
}

/// Returns the most pages that a span of `class` may have: with small blocks, [`SLOTS_MAX`] is the limit.
pub const fn pages_max(class: u32) -> u32 {
    match class.saturating_mul(SLOTS_MAX) / PAGE_BYTES {
        0 => 1,
        pages if pages < SPAN_PAGES_MAX => pages,
        _ => SPAN_PAGES_MAX,
    }
}

/// Returns whether a class may have a span of `pages` (S1).
pub const fn is_span(class: u32, pages: u32) -> bool {
    class > 0 && pages >= pages_min(class) && pages <= pages_max(class)
}

/// Returns the span length, in pages, for a class with at most `live_bytes` live: about a thirty-second
/// of them, then the next longer length with a small enough tail, or else the next shorter one, or else
/// the length that wastes the least. Cost: a few divisions; not for a fast path.
pub fn pages_for(class: u32, live_bytes: u64, earned: bool) -> u32 {
    let most = pages_max(class);
    let least = pages_min(class).min(most);
    let wanted = live_bytes.div_ceil(SPANS_PER_CLASS * u64::from(PAGE_BYTES));
    let wanted = wanted.clamp(u64::from(least), u64::from(most)) as u32;
    let hot = earned || live_bytes / u64::from(TAIL_SHARE) > WORTH_BYTES;
    let share = if hot { TAIL_SHARE_HOT } else { TAIL_SHARE };
    let small_tail = |pages: &u32| tail_bytes(class, *pages) * share <= pages * PAGE_BYTES;
    let longer = (wanted..=most).find(small_tail);
    let shorter = || (least..wanted).rev().find(small_tail);
    longer.or_else(shorter).unwrap_or_else(|| {
        // Compared as fractions; of equal ones `min_by_key` takes the first, which is the shortest.
        let waste =
            |pages: &u32| u64::from(tail_bytes(class, *pages)) * 720_720 / u64::from(*pages);
        (least..=most).min_by_key(waste).unwrap_or(least)
    })
}

/// Returns the bytes of memory that a block of `class` bytes costs in its best span, times 65,536.
fn packed(class: u32) -> u64 {
    let cost = |pages: u32| {
        let slots = u64::from(slots(class, pages).max(1));
        let used = slots * u64::from(class);
        used.next_multiple_of(u64::from(PAGE_BYTES)) * 65_536 / slots
    };
    let most = pages_max(class);
    (pages_min(class).min(most)..=most)
        .map(cost)
        .min()
        .unwrap_or(u64::MAX)
}

/// Returns what the scheme `skinflint` gives for a request without earned classes; above 32 KiB whole pages.
pub fn base_class(size: u64) -> u64 {
    skinflint(size)
}

/// Returns whether `size` is a class of the scheme `skinflint` without being earned.
pub fn is_base_class(size: u32) -> bool {
    (1..=SMALL_MAX).contains(&size) && skinflint(u64::from(size)) == u64::from(size)
}

/// Returns the bytes of memory that `blocks` live blocks of `size` bytes save with a class of their own:
/// less than the slop, since the tails of odd spans cost something too. 0 for a size that cannot be
/// earned, and if the tails use up all of it (30,000 bytes: two fit where two of 30,720 fit).
pub fn saved_by_earning(size: u32, blocks: u64) -> u64 {
    if size == 0 || size > SMALL_MAX || is_base_class(size) {
        return 0;
    }
    let base = skinflint(u64::from(size)) as u32;
    let each = packed(base).saturating_sub(packed(size));
    ((u128::from(each) * u128::from(blocks)) >> 16) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        // 65,536 / 4,368 = 15.004; 36,864 / 4,368 = 8.44.
        assert_eq!((slots(4368, 16), tail_bytes(4368, 16)), (15, 16));
        assert_eq!((slots(4368, 9), tail_bytes(4368, 9)), (8, 1920));
        assert_eq!((pages_min(1), pages_min(4096), pages_min(4097)), (1, 1, 2));
        assert!(is_span(4097, 2) && !is_span(4097, 1) && !is_span(64, 17) && !is_span(0, 1));
        // 300 blocks: 40,950 B a span, 10 pages. Tails of 1,648, 1,376, 1,104 are above a 64th; 832
        // in 13 pages is a 64th exactly.
        assert_eq!(pages_for(4368, 300 * 4368, true), 13);
        // 120 blocks: 16,380 B, 4 pages. Not hot, so a 16th will do, which 9 pages have; earned, a 64th.
        assert_eq!(pages_for(4368, 120 * 4368, false), 9);
        assert_eq!(pages_for(4368, 120 * 4368, true), 13);
        // Not earned and small: a 16th will do, and 3 pages hold 5 blocks of 2,304 with 768 left.
        assert_eq!(pages_for(2304, 2304, false), 3);
        // 30,720: two fit into 15 pages; 16 would have a tail of a page.
        assert_eq!(pages_for(30_720, 200 * 30_720, false), 15);
        assert_eq!(pages_for(16, 0, false), 1);
        assert_eq!(pages_for(16, 64 << 10, false), 1);
        assert_eq!(pages_for(16, (128 << 10) + 1, false), 2);
        // 1,024 blocks of 16 bytes fill 4 pages, and more is not allowed; a class of 64 bytes may have 16 pages.
        assert_eq!(pages_for(16, u64::MAX, false), 4);
        assert_eq!((pages_max(16), pages_max(48), pages_max(64)), (4, 12, 16));
        assert!(is_span(16, 4) && !is_span(16, 5));
        assert_eq!(pages_for(32_768, 1, false), 8);
        // No length has a tail below a 64th: 2 blocks of 24,592 in 13 pages leave 4,064 (7.6 %).
        assert_eq!(pages_for(24_592, 24_592, true), 13);
    }

    #[test]
    fn a_class_that_tails_eat_is_not_worth_earning() {
        assert_eq!(saved_by_earning(30_000, 1000), 0);
        assert_eq!(saved_by_earning(24_592, 1000), 0);
        // 4,608 in 9 pages has no tail; 15 of 4,368 share 65,536 bytes: 4,369.07. 1,000 save 238,933.
        assert_eq!(saved_by_earning(4368, 1000), 238_933);
        // Sizes that are classes already, and sizes that cannot be.
        for size in [0, 16, 256, 288, 4608, 32_768, 32_784, u32::MAX] {
            assert_eq!(saved_by_earning(size, 1000), 0, "{size}");
        }
    }

    #[test]
    fn every_class_has_a_span_and_no_tail_is_large() {
        for class in 1..=SMALL_MAX {
            for (live, earned) in [
                (0, false),
                (1 << 19, true),
                (1 << 19, false),
                (1 << 30, true),
            ] {
                let pages = pages_for(class, live, earned);
                assert!(is_span(class, pages), "{class}: {pages}");
                // Classes are multiples of 16; below, even one page holds more blocks than may be.
                let slots = slots(class, pages);
                assert!(
                    slots >= 1 && (slots <= SLOTS_MAX || class < 4),
                    "{class}: {pages}"
                );
            }
            if is_base_class(class) {
                let pages = pages_for(class, 1 << 30, false);
                let tail = tail_bytes(class, pages);
                assert!(
                    tail * 64 <= pages * PAGE_BYTES,
                    "{class}: {tail} of {pages}"
                );
            }
        }
    }

    #[test]
    fn nothing_panics_on_what_is_no_class() {
        for class in [0, SMALL_MAX + 1, 70_000, u32::MAX] {
            for pages in [0, 1, 16, 17, 1 << 20, u32::MAX] {
                let _ = (slots(class, pages), is_span(class, pages));
                let _ = tail_bytes(class, pages);
            }
            let _ = (
                pages_for(class, u64::MAX, true),
                saved_by_earning(class, u64::MAX),
            );
        }
    }
}
