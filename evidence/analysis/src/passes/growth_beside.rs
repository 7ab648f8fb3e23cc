//! Blocks that a buffer grows beside: as large as it becomes, and gone before its next step (growth.G9).
//!
//! ```text
//!   acquire t (S)      last = t
//!   realloc a ─► a'(S) last was as large, and not a: a' grew beside t
//!   release t          ──► a' was copied there and back, it seems
//! ```
//!
//! E1  Steps of one thread are compared; threads whose numbers have the same last bits take the place from each other,
//!     so that a step may be missed, and none is made up.
//! E2  Two buffers that grow in step are no copies of each other: neither is released between its steps.
//!
//! Cost: a few comparisons for each act, in memory that stays in the cache.
//!
//! Not here: how many such steps make a finding (growth_shape.rs).

use skinflint_trace::ThreadId;

use crate::pass::Block;

/// The number of threads that are looked at side by side.
const LANES: usize = 8;

/// The latest of a few threads.
#[derive(Default)]
pub(super) struct Beside {
    lanes: [Lane; LANES],
}

/// The latest of a thread.
#[derive(Clone, Copy, Default)]
struct Lane {
    thread: ThreadId,
    /// What was acquired last, unless it was released: its serial and size.
    last: Option<(u32, u64)>,
    /// The block that a buffer grew beside, and the buffer, by serial.
    pair: Option<(u32, u32)>,
}

impl Beside {
    #[inline]
    fn lane(&mut self, thread: ThreadId) -> &mut Lane {
        let lane = &mut self.lanes[thread.0 as usize % LANES];
        if lane.thread != thread {
            *lane = Lane {
                thread,
                ..Lane::default()
            };
        }
        lane
    }

    /// Takes a new block.
    #[inline]
    pub(super) fn acquired(&mut self, block: &Block, size: u64) {
        self.lane(block.thread()).last = Some((block.serial, size));
    }

    /// Takes a step by realloc: the old block's serial, and the new block.
    #[inline]
    pub(super) fn regrown(&mut self, old: u32, new: &Block, size: u64) {
        let lane = self.lane(new.thread());
        let as_large = lane
            .last
            .filter(|(serial, of)| *serial != old && *of == size);
        lane.pair = as_large.map(|(serial, _)| (serial, new.serial));
        lane.last = Some((new.serial, size));
    }

    /// Takes a release; returns the serial of the buffer that grew beside the block.
    #[inline]
    pub(super) fn released(&mut self, block: &Block, by: ThreadId) -> Option<u32> {
        let lane = self.lane(by);
        if lane.last.is_some_and(|(serial, _)| serial == block.serial) {
            lane.last = None;
        }
        let (_, buffer) = lane.pair.filter(|(serial, _)| *serial == block.serial)?;
        lane.pair = None;
        Some(buffer)
    }
}
