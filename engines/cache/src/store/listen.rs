//! How a listener learns of entries that go.
//!
//! ```text
//!   get, insert, remove, expire, release ─► entries that went, each with its way ─► told(key, value, why) ─► dropped
//! ```
//!
//! L1  Each way is counted in one of the statistics' sums (store.X4): see [`Why`].
//!
//! Not here: when it is called (`mod`), which way an entry goes (`shard`).

/// The way in which an entry went.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Why {
    /// It was never in: it is too large, or the entries that it would have displaced were asked for more often. Counted
    /// as refused.
    Refused,
    /// Others displaced it. Counted as evicted.
    Displaced,
    /// Another value came for its key. Counted as evicted.
    Replaced,
    /// It was not used for the idle time. Counted as expired.
    Idle,
    /// Its lifetime was over. Counted as expired.
    Old,
    /// Its memory was wanted: by pressure, a budget, or the program for all. Counted as released.
    Released,
    /// The program removed it. Counted as removed.
    Removed,
}

/// What is called for each entry that went, if anything is.
pub(super) type Told<K, V> = Option<Box<dyn Fn(&K, &V, Why) + Send + Sync>>;
