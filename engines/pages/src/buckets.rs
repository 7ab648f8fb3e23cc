//! Free runs by length: a list for each bucket, and a bit for each list that is not empty.
//!
//! ```text
//!   pages     1   2   3  …  64 │ 65..71  72..79 … 120..127 │ 128..143 …        2^27
//!   bucket    0   1   2  …  63 │   64      65   …     71   │    72    …         232
//!   bits      0   1   0  …   1 │ …          next set bit: the next longer run
//! ```
//!
//! B1  Exact to 64 pages, then 8 buckets a doubling: in a bucket above a request's own, any run fits.
//! B2  A bit is set if and only if its list is not empty.
//!
//! Not here: the lists' links, which are in the runs' descriptors (`pool`).

/// Pages of the longest run that has a bucket of its own length.
const EXACT: u32 = 64;

/// Number of buckets: 64, and 8 for each doubling to 2^27, which begins one more.
pub(crate) const BUCKETS: usize = 64 + (27 - 6) * 8 + 1;

const WORDS: usize = BUCKETS.div_ceil(64);

/// The lists of the runs of one state.
pub(crate) struct Buckets {
    heads: [u32; BUCKETS],
    bits: [u64; WORDS],
}

/// Returns the bucket of a length of at least one page (B1).
#[inline]
pub(crate) fn bucket_of(pages: u32) -> usize {
    if pages <= EXACT {
        return pages as usize - 1;
    }
    let log = pages.ilog2();
    let eighth = (pages >> (log - 3)) & 7;
    EXACT as usize + (log - 6) as usize * 8 + eighth as usize
}

/// Reports whether all runs of this bucket are equally long.
#[inline]
pub(crate) fn is_exact(bucket: usize) -> bool {
    bucket < EXACT as usize
}

impl Buckets {
    pub(crate) const fn new() -> Buckets {
        Buckets {
            heads: [0; BUCKETS],
            bits: [0; WORDS],
        }
    }

    /// Returns the offset of the first run of a bucket, 0 if there is none.
    #[inline]
    pub(crate) fn head(&self, bucket: usize) -> u32 {
        self.heads.get(bucket).copied().unwrap_or(0)
    }

    /// Sets the first run of a bucket (B2).
    #[inline]
    pub(crate) fn set_head(&mut self, bucket: usize, offset: u32) {
        let mask = 1u64 << (bucket % 64);
        if let (Some(head), Some(word)) =
            (self.heads.get_mut(bucket), self.bits.get_mut(bucket / 64))
        {
            *head = offset;
            *word = if offset == 0 {
                *word & !mask
            } else {
                *word | mask
            };
        }
    }

    /// Returns the first bucket from this one on that is not empty.
    #[inline]
    pub(crate) fn next(&self, from: usize) -> Option<usize> {
        let mut index = from / 64;
        let mut word = self.bits.get(index)? & (!0u64 << (from % 64));
        while word == 0 {
            index += 1;
            word = *self.bits.get(index)?;
        }
        Some(index * 64 + word.trailing_zeros() as usize)
    }

    /// Returns the last bucket up to this one that is not empty.
    #[inline]
    pub(crate) fn previous(&self, upto: usize) -> Option<usize> {
        let mut index = upto / 64;
        let mut word = self.bits.get(index)? & (!0u64 >> (63 - upto % 64));
        while word == 0 {
            index = index.checked_sub(1)?;
            word = *self.bits.get(index)?;
        }
        Some(index * 64 + 63 - word.leading_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_length_has_its_bucket_and_longer_buckets_fit() {
        assert_eq!(bucket_of(1), 0);
        assert_eq!((bucket_of(64), bucket_of(65)), (63, 64));
        assert_eq!(bucket_of(crate::MAX_PAGES), BUCKETS - 1);
        // Shortest and longest run of each bucket, as far as the edges of the buckets are hit.
        let mut edges = [(u32::MAX, 0u32); BUCKETS];
        let near = |log: u32| {
            let step = 1u32 << (log - 5);
            (0..=32).flat_map(move |i| {
                let pages = (1 << log) + i * step;
                [pages - 1, pages, pages + 1]
            })
        };
        for pages in (1..5_000).chain((12..27).flat_map(near)) {
            let (shortest, longest) = &mut edges[bucket_of(pages)];
            *shortest = pages.min(*shortest);
            *longest = pages.max(*longest);
        }
        edges[BUCKETS - 1] = (crate::MAX_PAGES, crate::MAX_PAGES);
        for (bucket, pair) in edges.windows(2).enumerate() {
            assert_eq!(pair[0].1 + 1, pair[1].0, "after bucket {bucket}");
            assert_eq!(is_exact(bucket), pair[0].0 == pair[0].1);
        }
    }

    #[test]
    fn neighbours_are_found_across_words() {
        let mut buckets = Buckets::new();
        assert_eq!(
            (buckets.next(0), buckets.previous(BUCKETS - 1)),
            (None, None)
        );
        for bucket in [3, 63, 64, 130, BUCKETS - 1] {
            buckets.set_head(bucket, 64);
        }
        assert_eq!(buckets.next(0), Some(3));
        assert_eq!(buckets.next(4), Some(63));
        assert_eq!(buckets.next(64), Some(64));
        assert_eq!(buckets.next(131), Some(BUCKETS - 1));
        assert_eq!(buckets.previous(BUCKETS - 2), Some(130));
        assert_eq!(buckets.previous(129), Some(64));
        assert_eq!(buckets.previous(62), Some(3));
        assert_eq!(buckets.previous(2), None);
        buckets.set_head(BUCKETS - 1, 0);
        assert_eq!(buckets.next(131), None);
        assert_eq!(buckets.next(BUCKETS), None);
    }
}
