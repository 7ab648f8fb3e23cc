//! The interval after which a heap is collected though no threshold is reached and it is never idle.
//!
//! ```text
//!   collection ─ first look … looks, and something is taken now and then … ─ `interval` has passed ─► collect
//!                                       └─ freed under 5 %? twice as long, up to ten minutes     growth? anew
//! ```
//!
//! N1  The time is that of the looks, by the host's clock, from the first look after a collection on; the number of
//!     collections says which look that is.
//! N2  A collection that frees little doubles the interval, so that a program which holds much and takes a little all
//!     the time is not marked for nothing; a collection for growth says that times have changed.
//! N3  A heap that rests is collected after its idle time, unless collections of the timer's freed little before and less
//!     than a twentieth of what lives was taken since the last: then that time is doubled, too. Else a program that takes
//!     an object each half minute would be marked each half minute.
//!
//! The reason: a page that has grown, and then only blinks a cursor, takes ten objects a second. No threshold is
//! reached for hours, and the heap is never idle (`trigger`: Idle).
//!
//! Not here: when a look is taken (`timer`), what was taken since (`trigger`).

/// An interval is doubled up to this length (N2), unless the table's own is longer.
const MOST_NS: u64 = 600 * 1_000_000_000;

/// A collection that frees less than one part in this many frees little (N2).
const LITTLE: usize = 20;

/// How long a heap has not been collected, and for how long it may go on so.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interval {
    doublings: u32,
    /// The first look after the last collection: its time, and the number of collections then.
    since: Option<(u64, u64)>,
}

impl Interval {
    /// Looks at the clock: reports whether the interval has passed since the first look after the last collection.
    /// `first_ns` is its length before it is doubled, `collections` the number of collections so far.
    pub fn has_passed(&mut self, now_ns: u64, first_ns: u64, collections: u64) -> bool {
        match self.since {
            Some((since_ns, then)) if then == collections => {
                now_ns.saturating_sub(since_ns) >= self.length_ns(first_ns)
            }
            _ => {
                self.since = Some((now_ns, collections));
                false
            }
        }
    }

    /// Reports whether a heap that has rested for `idle_ns` is to be collected (N3). `taken` since the last collection,
    /// `live` after it: in one unit, whichever.
    pub fn is_rest_enough(
        &mut self,
        now_ns: u64,
        idle_ns: u64,
        collections: u64,
        (taken, live): (u64, u64),
    ) -> bool {
        let much = taken.saturating_mul(LITTLE as u64) >= live;
        much || self.doublings == 0 || self.has_passed(now_ns, idle_ns, collections)
    }

    /// Returns its present length, in nanoseconds.
    pub fn length_ns(&self, first_ns: u64) -> u64 {
        let doubled = first_ns.saturating_mul(1 << self.doublings.min(32));
        doubled.min(MOST_NS.max(first_ns))
    }

    /// Notes a collection that a timer's look had found due, and that left `after` of `before` bytes.
    pub fn collected(&mut self, before: usize, after: usize) {
        let freed = before.saturating_sub(after);
        if freed < before.div_ceil(LITTLE) {
            self.doublings = self.doublings.saturating_add(1);
        }
    }

    /// Begins anew, since a collection was done for growth.
    pub fn begin_anew(&mut self) {
        self.doublings = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const FIRST: u64 = 20 * SECOND;

    #[test]
    fn it_passes_once_between_two_collections() {
        let mut interval = Interval::default();
        assert!(
            !interval.has_passed(100 * SECOND, FIRST, 7),
            "the first look"
        );
        assert!(!interval.has_passed(120 * SECOND - 1, FIRST, 7));
        assert!(interval.has_passed(120 * SECOND, FIRST, 7));
        // Until it is collected, which may be refused.
        assert!(interval.has_passed(121 * SECOND, FIRST, 7));
        assert!(!interval.has_passed(121 * SECOND, FIRST, 8), "the next");
        assert!(!interval.has_passed(141 * SECOND - 1, FIRST, 8));
        assert!(interval.has_passed(141 * SECOND, FIRST, 8));
        // A clock that goes back, against its contract, makes nothing due.
        assert!(!interval.has_passed(0, FIRST, 8));
        assert!(!Interval::default().has_passed(u64::MAX, u64::MAX, 0));
    }

    #[test]
    fn a_rest_is_enough_unless_it_was_in_vain_before_and_little_was_taken() {
        let mut interval = Interval::default();
        let mut enough =
            |now: u64, taken| interval.is_rest_enough(now * SECOND, FIRST, 3, (taken, 1000));
        assert!(enough(100, 0));
        interval.has_passed(100 * SECOND, FIRST, 3);
        interval.collected(1000, 1000);
        let mut enough =
            |now: u64, taken| interval.is_rest_enough(now * SECOND, FIRST, 3, (taken, 1000));
        assert!(!enough(139, 49) && enough(139, 50));
        assert!(enough(140, 0));
        interval.begin_anew();
        assert!(interval.is_rest_enough(101 * SECOND, FIRST, 3, (0, 1000)));
    }

    #[test]
    fn it_doubles_while_little_is_freed_up_to_ten_minutes() {
        let mut interval = Interval::default();
        let mut lengths = Vec::new();
        for _ in 0..7 {
            lengths.push(interval.length_ns(FIRST) / SECOND);
            interval.collected(1000, 951);
        }
        assert_eq!(lengths, [20, 40, 80, 160, 320, 600, 600]);
        interval.collected(1000, 950);
        assert_eq!(
            interval.length_ns(FIRST),
            600 * SECOND,
            "a twentieth is enough to stay"
        );
        interval.begin_anew();
        interval.collected(1000, 950);
        assert_eq!(interval.length_ns(FIRST), FIRST);
        // Nothing there, nothing freed: as good as all.
        interval.collected(0, 0);
        assert_eq!(interval.length_ns(FIRST), FIRST);
        // A table's own length may be longer than ten minutes, and is not doubled then; or endless.
        interval.collected(1000, 1000);
        assert_eq!(interval.length_ns(700 * SECOND), 700 * SECOND);
        assert_eq!(interval.length_ns(u64::MAX), u64::MAX);
        for _ in 0..100 {
            interval.collected(1000, 1000);
        }
        assert_eq!(interval.length_ns(1), 1 << 32, "and no shift is too wide");
    }
}
