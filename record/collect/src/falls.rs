//! Falls of live memory after which pages are read: what a program freed and does not use is seen then, or not at all.
//!
//! ```text
//!   live    ▁▂▄▆█████▇▅▂▂▂▂▂▂|      frees nearly all, rests, ends
//!   reading     ▲  ▲      ▲  ▲      peaks, the fall, the exit; the period of two seconds is longer than the rest
//! ```
//!
//! F1  Live memory must have fallen below half of its greatest since the last reading, by a mebibyte at least.
//! F2  It is read when the fall has come to rest: from one look to the next it goes on by a 64th at most. A program that
//!     clears up as it exits comes to no rest before its exit, which is read anyway.
//! F3  Such readings lie a quarter of a second apart, and fifty times what one costs: a heap that rises and falls all the
//!     time shows the same each time.
//!
//! Not here: the other reasons for a reading (`sampler.rs`), what is advised (`analysis`' waste.rs).

use std::time::{Duration, Instant};

/// The least fall (F1).
const LEAST_BYTES: i64 = 1 << 20;
/// The fall is at rest if it goes on by one part in this many (F2).
const REST_PART: i64 = 64;
/// The pause after a reading (F3), and how many times its cost it is at least.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_FACTOR: u32 = 50;

/// The live memory of a process since its pages were read last.
#[derive(Clone, Copy, Debug)]
pub struct Falls {
    /// The greatest since then, and that of the last look.
    highest: i64,
    last: i64,
    /// The end of the pause (F3).
    next: Instant,
}

impl Falls {
    /// Creates the state of a process that begins.
    pub fn new(now: Instant) -> Falls {
        Falls {
            highest: 0,
            last: 0,
            next: now,
        }
    }

    /// Looks at what lives now, bytes; returns whether its pages are to be read.
    pub fn look(&mut self, live: i64, now: Instant) -> bool {
        let went_on = self.last - live;
        self.last = live;
        self.highest = self.highest.max(live);
        let fall = self.highest - live;
        fall >= LEAST_BYTES
            && live <= self.highest / 2
            && went_on <= fall / REST_PART
            && now >= self.next
    }

    /// Notes that pages were read while so many bytes lived.
    pub fn read(&mut self, live: i64) {
        self.highest = live;
    }

    /// Notes that the reading was made for a fall, and what it cost.
    pub fn pause(&mut self, now: Instant, cost: Duration) {
        self.next = now + PAUSE.max(cost * PAUSE_FACTOR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: i64 = 1 << 20;
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_fall_by_half_is_read_when_it_has_come_to_rest() {
        let now = Instant::now();
        let mut falls = Falls::new(now);
        let levels = [10, 64, 60, 40, 20, 8, 8, 8].map(|level| level * MIB);
        let reads = levels.map(|live| falls.look(live, now));
        assert_eq!(
            reads,
            [false, false, false, false, false, false, true, true]
        );
        falls.read(8 * MIB);
        assert!(!falls.look(8 * MIB, now), "known by now");
        // Half of it, and the last 64th of the fall.
        falls.look(4 * MIB + MIB / 16, now);
        assert!(!falls.look(4 * MIB + MIB / 16, now), "not half");
        falls.look(4 * MIB, now);
        assert!(falls.look(4 * MIB - MIB / 16, now));
        falls.look(4 * MIB, now);
        assert!(!falls.look(4 * MIB - MIB / 8, now), "it goes on");
    }

    #[test]
    fn less_than_a_mebibyte_is_no_fall() {
        let now = Instant::now();
        let falls = |from: i64| {
            let mut falls = Falls::new(now);
            [from, 0, 0].map(|live| falls.look(live, now))[2]
        };
        assert!(!falls(MIB - 1));
        assert!(falls(MIB));
    }

    #[test]
    fn what_falls_all_the_time_is_read_now_and_then() {
        let now = Instant::now();
        let tooth = |falls: &mut Falls, at| [64, 1, 1].map(|level| falls.look(level * MIB, at))[2];
        let next = |cost: u32| {
            let mut falls = Falls::new(now);
            assert!(tooth(&mut falls, now));
            falls.read(MIB);
            falls.pause(now, MS * cost);
            let mut all = (0..2000).step_by(50);
            all.find(|&ms| tooth(&mut falls, now + MS * ms))
        };
        assert_eq!(
            (next(1), next(5), next(20)),
            (Some(250), Some(250), Some(1000))
        );
    }
}
