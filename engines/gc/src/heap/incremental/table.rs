//! The settings of incremental marking, and the words for its state.
//!
//! Not here: when marking begins (`trigger`), what a slice does (`marking`).

/// Edges between two looks at the clock: some microseconds.
pub(crate) const CLOCK: u64 = 64;
/// Edges that a part of an object's tracing tells, for kinds that have [`Kind::trace_part`](crate::Kind::trace_part)
/// and no better bound: less than a microsecond, and few parts compared with the marking of what they lead to.
pub const PART_EDGES: usize = 256;
/// Nanoseconds that marking a byte of objects takes, which decides when to begin: 100 ns for an object of 48 bytes that
/// is not in the cache (`--example marking`, see `mark`).
const NS_PER_BYTE: f64 = 2.0;

/// How a heap is marked incrementally.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Incremental {
    /// The longest that a slice may take. `u64::MAX`: the clock is not read.
    pub slice_ns: u64,
    /// The most edges that a slice may follow.
    pub slice_edges: u64,
    /// A slice is due when this many bytes were taken since the last one.
    pub slice_bytes: usize,
    /// Marking begins as early as it is expected to need, but not before this part of the room between live bytes and
    /// the threshold is taken; from 0 to 1.
    pub earliest: f64,
    /// Marking is finished in one go when the heap exceeds the threshold times this.
    pub limit: f64,
}

impl Incremental {
    /// Slices of a millisecond for every 64 KiB: at twenty nanoseconds for an object, marking is ten times as fast as
    /// allocation at its fastest.
    pub const DEFAULT: Incremental = Incremental {
        slice_ns: 1_000_000,
        slice_edges: u64::MAX,
        slice_bytes: 64 << 10,
        earliest: 0.5,
        limit: 1.25,
    };

    /// One edge at each allocation, for finding missing barriers: with [`Config::stress`](crate::Config::stress), where
    /// each nth allocation begins a marking.
    pub const STRESS: Incremental = Incremental {
        slice_ns: u64::MAX,
        slice_edges: 1,
        slice_bytes: 0,
        earliest: 0.5,
        limit: 4.0,
    };

    /// Returns the bytes at which marking begins, and those at which it is finished in one go.
    pub(crate) fn thresholds(&self, threshold: usize, live: usize) -> (usize, usize) {
        let room = threshold.saturating_sub(live);
        let slices = (live as f64 * NS_PER_BYTE / self.slice_ns.max(1) as f64).ceil();
        let wanted = slices * self.slice_bytes as f64;
        let most = room as f64 * (1.0 - self.earliest.clamp(0.0, 1.0));
        let ahead = wanted.min(most) as usize;
        let limit = threshold as f64 * self.limit.max(1.0);
        (threshold - ahead.min(threshold), limit as usize)
    }

    pub(super) fn budget(&self) -> Budget {
        Budget {
            edges: self.slice_edges,
            ns: self.slice_ns,
        }
    }
}

/// The work that a slice may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The most edges to follow. At least one is followed.
    pub edges: u64,
    /// The most nanoseconds; `u64::MAX`: the clock is not read.
    pub ns: u64,
}

/// The state of a marking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// No marking is on.
    Off,
    /// There is more to follow.
    More,
    /// Nothing known is left: the marking may be finished.
    Ready,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn marking_begins_as_early_as_its_slices_need() {
        let table = Incremental::DEFAULT;
        // 10 MiB at two nanoseconds a byte are 20.97 ms: 21 slices of a millisecond, 64 KiB taken between two.
        let (begin, limit) = table.thresholds(64 * MIB, 10 * MIB);
        assert_eq!((begin, limit), (64 * MIB - 21 * (64 << 10), 80 * MIB));
        // 60 MiB would need 126 slices, 7.9 MiB: more than half of the 4 that are left.
        assert_eq!(table.thresholds(64 * MIB, 60 * MIB).0, 62 * MIB);
        // No room, no way ahead; and a slice of nothing is one of a nanosecond.
        assert_eq!(table.thresholds(64 * MIB, 65 * MIB).0, 64 * MIB);
        let endless = Incremental {
            slice_ns: 0,
            ..table
        };
        let (begin, _) = endless.thresholds(64 * MIB, 1);
        assert_eq!(begin, 64 * MIB - 2 * (64 << 10));
    }

    #[test]
    fn tables_beyond_their_bounds_are_cut_to_them() {
        let table = |earliest, limit| Incremental {
            earliest,
            limit,
            ..Incremental::DEFAULT
        };
        assert_eq!(
            table(7.0, 0.5).thresholds(64 * MIB, 60 * MIB),
            (64 * MIB, 64 * MIB)
        );
        assert_eq!(
            table(-1.0, 2.0).thresholds(64 * MIB, 60 * MIB),
            (60 * MIB, 128 * MIB)
        );
    }
}
