//! How much of a recording is kept.
//!
//! ```text
//!   --keep 10m, --max-size 500M ─► Bounds ─► a new segment each quarter of them (drain/turning.rs) ─► old ones go (segments.rs)
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::triggers::Trigger;

/// By so many nanoseconds the clock that says how old segments are is ahead of the machine's; a test moves it on.
static AHEAD_NS: AtomicU64 = AtomicU64::new(0);

/// Moves the clock of segments on, for tests of days: all recordings of this process are that much older.
#[doc(hidden)]
pub fn move_on(by: Duration) {
    // ORDER: Relaxed; a number by itself.
    AHEAD_NS.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
}

/// Returns the time by the clock of segments.
pub(crate) fn now() -> Instant {
    // ORDER: Relaxed; as above.
    Instant::now() + Duration::from_nanos(AHEAD_NS.load(Ordering::Relaxed))
}

/// The segments that what is kept is divided into: what is kept is a segment more or less.
const PARTS: u32 = 4;

/// What of a recording is kept: its last part.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    /// At least this time.
    pub keep: Option<Duration>,
    /// At most so many bytes of each process's trace.
    pub max_bytes: Option<u64>,
    /// When one of these comes true, what is left then is put aside.
    pub when: Vec<Trigger>,
}

impl Bounds {
    /// Reports whether a segment that began so long ago is to end, with these bytes, of which `first_bytes` say what lived.
    /// A segment that holds less than it begins with is not worth its beginning.
    pub(crate) fn is_due(&self, age: Duration, bytes: u64, first_bytes: u64) -> bool {
        let is_old = self.keep.is_some_and(|keep| age >= keep / PARTS);
        let most = |max: u64| (max / u64::from(PARTS)).max(first_bytes.saturating_mul(2));
        is_old || self.max_bytes.is_some_and(|max| bytes >= most(max))
    }
}

/// How far the writer is with a process's segment.
#[derive(Default)]
pub struct Progress {
    bytes: AtomicU64,
    first_bytes: AtomicU64,
    turning: AtomicBool,
}

impl Progress {
    /// Notes the bytes of the segment.
    pub fn wrote(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed); // ORDER: Relaxed; a figure.
    }

    /// Notes that a new segment was begun, or could not be, with the bytes that say what lived.
    pub fn turned(&self, first_bytes: u64) {
        self.first_bytes.store(first_bytes, Ordering::Relaxed); // ORDER: Relaxed; published below.
        self.wrote(first_bytes);
        // ORDER: Release; pairs with the Acquire in `bytes`: the figures are the new segment's.
        self.turning.store(false, Ordering::Release);
    }

    /// Notes that a new segment is on its way.
    pub fn turns(&self) {
        self.turning.store(true, Ordering::Relaxed); // ORDER: Relaxed; the same thread asks.
    }

    /// Returns the bytes of the segment, and those of its beginning; `None` while a new one is on its way.
    pub fn bytes(&self) -> Option<(u64, u64)> {
        // ORDER: Acquire; pairs with the Release in `turned`.
        if self.turning.load(Ordering::Acquire) {
            return None;
        }
        // ORDER: Relaxed for both; as above.
        let first = self.first_bytes.load(Ordering::Relaxed);
        Some((self.bytes.load(Ordering::Relaxed), first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_ends_by_its_age_or_its_bytes() {
        let second = Duration::from_secs(1);
        let by_time = Bounds {
            keep: Some(8 * second),
            ..Bounds::default()
        };
        assert!(!by_time.is_due(second, u64::MAX, 0));
        assert!(by_time.is_due(2 * second, 0, 0));
        let by_bytes = Bounds {
            max_bytes: Some(4000),
            ..Bounds::default()
        };
        assert!(!by_bytes.is_due(1000 * second, 999, 0));
        assert!(by_bytes.is_due(second, 1000, 0));
        // What lives takes most of it: a segment is as long again as its beginning.
        assert!(!by_bytes.is_due(second, 3999, 2000));
        assert!(by_bytes.is_due(second, 4000, 2000));
        assert!(!Bounds::default().is_due(1000 * second, u64::MAX, 0));
    }

    #[test]
    fn while_a_segment_is_on_its_way_there_are_no_bytes() {
        let progress = Progress::default();
        progress.wrote(7);
        assert_eq!(progress.bytes(), Some((7, 0)));
        progress.turns();
        assert_eq!(progress.bytes(), None);
        progress.turned(5);
        progress.wrote(9);
        assert_eq!(progress.bytes(), Some((9, 5)));
    }
}
