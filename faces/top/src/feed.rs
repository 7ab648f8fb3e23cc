//! Events of a growing trace in the order of tickets, over all looks.
//!
//! ```text
//!   Follower::advance ─► waiting (by ticket) ─ older than DELAY ─► State
//! ```
//!
//! F1  A thread's events reach the file within a second (the collector's flush), so an event that is [`DELAY_NS`]
//!     older than the newest event or sample has all of its predecessors.
//! F2  What has waited through [`PATIENT_LOOKS`] looks without any news is handed on; at the end everything is.
//! F3  At most [`WAITING`] events wait: beyond that the oldest are handed on early, and are counted.
//!
//! Not here: what events mean (state.rs).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::path::Path;

use skinflint_trace::{Event, Follower, OpenError, RssSample, Snapshot, Trace};

/// How much newer the newest event must be.
const DELAY_NS: u64 = 1_500_000_000;
/// The number of looks without news after which nothing more is waited for.
const PATIENT_LOOKS: u32 = 3;
/// The most events that wait: 48 bytes each.
const WAITING: usize = 2_000_000;

/// An event that waits; ordered by ticket, then by arrival.
struct Waiting(u64, u64, Event);

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// The news of one look.
#[derive(Default)]
pub struct News {
    /// Samples of resident memory.
    pub rss: Vec<RssSample>,
    /// Snapshots.
    pub snapshots: Vec<Snapshot>,
    /// Whether the recording has ended and everything was handed on.
    pub ended: bool,
    /// The moment up to which everything was handed on, nanoseconds since the trace began.
    pub until_ns: u64,
}

/// A trace that is followed while it grows.
pub struct Feed {
    follower: Follower,
    waiting: BinaryHeap<Reverse<Waiting>>,
    arrived: u64,
    newest_ns: u64,
    idle_looks: u32,
    /// Events handed on before it was certain that nothing was missing before them (F3).
    pub hurried: u64,
}

impl Feed {
    /// Opens a trace.
    ///
    /// # Errors
    /// Those of [`Follower::open`].
    pub fn open(path: &Path) -> Result<Feed, OpenError> {
        Ok(Feed {
            follower: Follower::open(path)?,
            waiting: BinaryHeap::new(),
            arrived: 0,
            newest_ns: 0,
            idle_looks: 0,
            hurried: 0,
        })
    }

    /// Returns what is known beside events.
    pub fn trace(&self) -> &Trace {
        self.follower.trace()
    }

    /// Reads what has arrived, and hands on what is in order.
    ///
    /// # Errors
    /// If the file can no longer be read.
    pub fn look(&mut self, mut each: impl FnMut(&Event)) -> io::Result<News> {
        let before = self.follower.bytes_read();
        let mut events = self.follower.advance()?;
        let (rss, snapshots) = self.follower.take_samples();
        if let Some(newest) = rss.iter().map(|sample| sample.time_ns).max() {
            self.newest_ns = self.newest_ns.max(newest);
        }
        let ending = self.trace().ending.as_ref();
        let (ended, end_ns) = (ending.is_some(), ending.map_or(0, |end| end.time_ns));
        while let Some(event) = events.next_event() {
            self.newest_ns = self.newest_ns.max(event.time_ns);
            self.arrived += 1;
            self.waiting
                .push(Reverse(Waiting(event.ticket, self.arrived, event)));
            if self.waiting.len() > WAITING {
                self.hurried += u64::from(!ended);
                if let Some(Reverse(first)) = self.waiting.pop() {
                    each(&first.2);
                }
            }
        }
        self.idle_looks = match self.follower.bytes_read() == before {
            true => self.idle_looks.saturating_add(1),
            false => 0,
        };
        let all = ended || self.idle_looks >= PATIENT_LOOKS;
        let until = self.newest_ns.saturating_sub(DELAY_NS);
        while let Some(Reverse(first)) = self.waiting.peek() {
            if !all && first.2.time_ns > until {
                break;
            }
            if let Some(Reverse(first)) = self.waiting.pop() {
                each(&first.2);
            }
        }
        Ok(News {
            rss,
            snapshots,
            ended,
            until_ns: if ended { end_ns } else { until },
        })
    }
}
