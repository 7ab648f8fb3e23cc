//! The level of pressure: how short memory is, and when that is worth another round.
//!
//! ```text
//!   signals ──► Gauge ──► round?          Calm ◄─ Near ◄─ High ◄─ Critical     down: a step per calm time
//!                 │                                                            up: at once
//!                 └─ a round that brought little makes the next one of its kind wait, twice as long each time
//! ```
//!
//! L1  A rise is a round, at once. A wait never holds back a signal of a higher level than the last round's.
//! L2  After a round that brought little, signals of its level or below start none for [`PAUSE_MS`], then twice that,
//!     and so on: listeners with nothing to give are not emptied again and again for nothing.
//! L3  The level falls by one step when no signal of it came for the calm time. So a load that goes up and down across
//!     a threshold is one level, and caches are not emptied and filled for ever.
//! L4  Time is passed in, never read here.
//!
//! Not here: where signals come from (`sources`), what a round is (`round`).

use core::fmt;

/// How short memory is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[repr(u8)]
pub enum Level {
    /// Memory is not short.
    Calm = 0,
    /// A limit is near; what is cold and cheap to rebuild may go.
    Near = 1,
    /// Reclaim is under way, or little room is left.
    High = 2,
    /// The next allocation may fail or be the last: everything that can be rebuilt goes.
    Critical = 3,
}

impl Level {
    /// All levels, from calm to critical.
    pub const ALL: [Level; 4] = [Level::Calm, Level::Near, Level::High, Level::Critical];

    /// Returns the level with this number; numbers above the last level give the last.
    pub fn from_number(number: u32) -> Level {
        Level::ALL[(number as usize).min(3)]
    }

    fn below(self) -> Level {
        Level::from_number((self as u32).saturating_sub(1))
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Level::Calm => "calm",
            Level::Near => "near",
            Level::High => "high",
            Level::Critical => "critical",
        })
    }
}

/// Shortest and longest wait after a round that brought little. A round costs a walk over the page tables, some
/// milliseconds for each GiB: at the shortest that is about a hundredth of a core.
pub const PAUSE_MS: (u64, u64) = (250, 32_000);

/// Remembers the level and the last round, and decides whether a signal is worth another round.
#[derive(Clone, Debug)]
pub struct Gauge {
    level: Level,
    calm_ms: u64,
    /// The time of the level's last signal, or the time at which the level was reached from above.
    since_ms: u64,
    last_round: Level,
    not_before_ms: u64,
    pause_ms: u64,
}

impl Gauge {
    /// Creates a gauge at the calm level. `calm_ms`: how long a level lasts after its last signal.
    pub fn new(calm_ms: u64) -> Gauge {
        Gauge {
            level: Level::Calm,
            calm_ms: calm_ms.max(1),
            since_ms: 0,
            last_round: Level::Calm,
            not_before_ms: 0,
            pause_ms: PAUSE_MS.0,
        }
    }

    /// Returns the level.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Takes a signal. `true`: a round should follow (L1, L2).
    pub fn signal(&mut self, level: Level, now_ms: u64) -> bool {
        if level == Level::Calm {
            return false;
        }
        if level >= self.level {
            self.level = level;
            self.since_ms = now_ms;
        }
        level > self.last_round || now_ms >= self.not_before_ms
    }

    /// Records the result of a round. `little`: it brought too little to make the next one worthwhile.
    pub fn round(&mut self, level: Level, little: bool, now_ms: u64) {
        self.last_round = level;
        if little {
            self.not_before_ms = now_ms + self.pause_ms;
            self.pause_ms = (self.pause_ms * 2).min(PAUSE_MS.1);
        } else {
            self.not_before_ms = now_ms;
            self.pause_ms = PAUSE_MS.0;
        }
    }

    /// Lets time pass; returns the new level, if it fell (L3).
    pub fn pass(&mut self, now_ms: u64) -> Option<Level> {
        if self.level == Level::Calm || now_ms < self.since_ms + self.calm_ms {
            return None;
        }
        self.level = self.level.below();
        self.since_ms = now_ms;
        if self.level == Level::Calm {
            self.last_round = Level::Calm;
            self.not_before_ms = now_ms;
            self.pause_ms = PAUSE_MS.0;
        }
        Some(self.level)
    }

    /// Returns the time at which the level will fall, if no signal comes.
    pub fn falls_at_ms(&self) -> Option<u64> {
        (self.level != Level::Calm).then_some(self.since_ms + self.calm_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: u64 = 10_000;

    #[test]
    fn a_rise_is_a_round_and_a_fall_takes_its_time() {
        let mut gauge = Gauge::new(CALM);
        assert!(gauge.signal(Level::Near, 0));
        gauge.round(Level::Near, false, 5);
        assert!(gauge.signal(Level::Critical, 10));
        gauge.round(Level::Critical, false, 20);
        // The level falls 10 s after the signal, not before, and by one step each time.
        assert_eq!(gauge.pass(10_009), None);
        assert_eq!(gauge.pass(10_010), Some(Level::High));
        assert_eq!(gauge.pass(20_009), None);
        assert_eq!(gauge.pass(20_010), Some(Level::Near));
        assert_eq!(gauge.pass(30_010), Some(Level::Calm));
        assert_eq!(gauge.pass(99_999), None);
        assert_eq!(gauge.falls_at_ms(), None);
    }

    #[test]
    fn a_load_across_the_threshold_is_one_level() {
        let mut gauge = Gauge::new(CALM);
        let mut falls = 0;
        for second in 0..600 {
            // Above the threshold for one second of every eight.
            if second % 8 == 0 {
                gauge.signal(Level::Near, second * 1_000);
            }
            falls += u32::from(gauge.pass(second * 1_000 + 500).is_some());
        }
        assert_eq!((falls, gauge.level()), (0, Level::Near));
    }

    #[test]
    fn rounds_that_bring_nothing_become_rare_and_a_higher_level_does_not_wait() {
        let mut gauge = Gauge::new(CALM);
        let mut rounds = Vec::new();
        for now in (0..60_000).step_by(50) {
            if gauge.signal(Level::Near, now) {
                rounds.push(now);
                gauge.round(Level::Near, true, now);
            }
        }
        // The waits are 250, 500, 1,000 … ms.
        assert_eq!(rounds, [0, 250, 750, 1_750, 3_750, 7_750, 15_750, 31_750]);
        assert!(gauge.signal(Level::High, 60_001));
        gauge.round(Level::High, false, 60_002);
        assert!(gauge.signal(Level::High, 60_003), "it brought something");
    }

    #[test]
    fn calm_is_no_signal_and_a_lower_one_keeps_no_higher_level() {
        let mut gauge = Gauge::new(CALM);
        assert!(!gauge.signal(Level::Calm, 0));
        gauge.signal(Level::Critical, 0);
        gauge.signal(Level::Near, 9_000);
        assert_eq!(gauge.pass(10_000), Some(Level::High));
    }
}
