//! Marking while the program runs, in slices with a bound.
//!
//! ```text
//!   used > begin ─► begin ─► slice ─► slice ─► … ─► Ready ─► finish: client's roots, weak cells ─► sweep as always
//!                              ▲ after a number of bytes taken, or when asked
//!                              └── barrier: an edge that is written is told; so is each new root
//!        used > limit ────────────────────────────────────► finish at once, whatever is left (`forced`)
//! ```
//!
//! I1  Insertion barrier (Dijkstra): while marking is on, an edge that is written into an object is told
//!     ([`Heap::barrier`]), or the object is traced again ([`Heap::changed`]). So when the last slice ends, no marked
//!     and traced object has an edge to one that is neither marked nor waiting.
//! I2  Objects are allocated unmarked: an object that is made and dropped while marking is on goes with this
//!     collection, and the first edges of an object need no barrier. Objects that only the stack leads to are not
//!     marked, so marking is finished where the stack has no pointers, or where the client tells them.
//! I3  Between slices only the address of an object is remembered: what it owns outside may move. Objects that hold
//!     weak cells or pairs are noted, and looked at again at the end.
//! I4  A slice follows a bounded number of edges, and reads the clock after each [`CLOCK`] of them: it takes as long as
//!     its budget, and the time of tracing [`CLOCK`] objects more, or parts of objects where their kind tells its edges
//!     in parts (I8). How long one of these takes depends on the client.
//! I5  Marking begins when everything is swept, and ends before anything is swept again: no object ends while it is on.
//! I6  There is at most one marking of a heap; a collection of the heap, alone or with others, gives it up first. Heaps
//!     that are collected together are marked together, by one marking (`marking`).
//! I7  An object that is changed after it was marked is traced again, up to [`AGAIN`] times; from then on it waits for
//!     the end. Otherwise a list of a million edges that grows at each turn would take all of the marking.
//! I8  An object that is traced in parts is remembered with the place to go on from. The next part comes when
//!     nothing else is left to follow, so the mark stack holds one part of it and not the whole.
//!
//! The source of the idea is Dijkstra, Lamport and others, "On-the-fly garbage collection" (1978). Rejected: a snapshot
//! at the beginning (Yuasa), whose barrier is on what is overwritten: all garbage of the meantime stays for a whole
//! cycle, and each new object is marked; also rejected: allocating objects marked, whose first edges then need a
//! barrier.
//!
//! Files: `marking` the marking that is on, begin and end · `steps` what a slice remembers · `barrier` · `due` what is
//! done when.
//!
//! Not here: the common part of all collections (`collect`), following edges (`mark`).

mod barrier;
mod due;
mod marking;
mod steps;

pub(crate) use marking::Marking;
pub use marking::begin_marking;
pub(crate) use steps::{Note, Steps};

/// Edges between two looks at the clock: some microseconds.
const CLOCK: u64 = 64;
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

    fn budget(&self) -> Budget {
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
