//! The clock that programs see, and the processor time that the process has used.
//!
//! K1  Both clocks only go forward; with `--clock cpu` a timer's milliseconds are processor time, too, so a
//!     wait for one must do something or end: the host jumps to the next timer instead of sleeping. It looks about on
//!     the way as if time had passed, after ever longer steps: an idle heap is collected in both.
//!
//! Not here: pauses (`pauses`).

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use boa_engine::context::time::{Clock, JsInstant};
use skinflint_js_options::host::cpu_time;

/// A tab's clock; all tabs share one.
pub struct TabClock {
    start: Instant,
    runs: Runs,
    /// Time that was jumped over (K1).
    ahead: Cell<Duration>,
    /// 1 January 1970 to the start.
    epoch: Duration,
}

/// What moves a clock besides jumps.
#[derive(Clone, Copy, PartialEq)]
enum Runs {
    Wall,
    Processor,
    /// Nothing: each look comes at a known time.
    #[cfg(test)]
    Not,
}

impl TabClock {
    /// A clock that starts now, of processor time or of wall time.
    pub fn new(cpu: bool) -> Self {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        TabClock {
            start: Instant::now(),
            runs: if cpu { Runs::Processor } else { Runs::Wall },
            ahead: Cell::new(Duration::ZERO),
            epoch: epoch.unwrap_or_default(),
        }
    }

    /// Since the start.
    pub fn elapsed(&self) -> Duration {
        let base = match self.runs {
            Runs::Wall => self.start.elapsed(),
            Runs::Processor => cpu_time(),
            #[cfg(test)]
            Runs::Not => Duration::ZERO,
        };
        base + self.ahead.get()
    }

    /// Waits, or jumps, until so many milliseconds have passed since the start; while it waits it calls `look` after
    /// each `every`.
    pub fn wait_until(&self, at_ms: u64, every: Duration, mut look: impl FnMut()) {
        let left = || Duration::from_millis(at_ms).saturating_sub(self.elapsed());
        if self.runs != Runs::Wall {
            let (mut step, mut looks) = (every, 0);
            while left() > Duration::ZERO {
                let jump = step.min(left());
                self.ahead.set(self.ahead.get() + jump);
                if left() > Duration::ZERO {
                    look();
                    // 60 of the first length, so that minutes have the same looks on both clocks; a year has 90 in all.
                    looks += 1;
                    step = if looks > 60 { step * 2 } else { step };
                }
            }
            return;
        }
        loop {
            let wait = left();
            if wait <= every {
                return std::thread::sleep(wait);
            }
            std::thread::sleep(every);
            look();
        }
    }
}

impl Clock for TabClock {
    fn now(&self) -> JsInstant {
        let elapsed = self.elapsed();
        JsInstant::new(elapsed.as_secs(), elapsed.subsec_nanos())
    }

    fn system_time_millis(&self) -> i64 {
        i64::try_from((self.epoch + self.elapsed()).as_millis()).unwrap_or(i64::MAX)
    }
}

/// Bytes that the kernel counts as resident; `None` where it does not say.
pub fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the looks of a wait fall, in whole seconds, and where it ends.
    fn looks(until_s: u64) -> (Vec<u64>, Duration) {
        let clock = TabClock {
            runs: Runs::Not,
            ..TabClock::new(true)
        };
        let mut at = Vec::new();
        let look = || at.push(clock.ahead.get().as_secs());
        clock.wait_until(until_s * 1000, Duration::from_secs(1), look);
        (at, clock.ahead.get())
    }

    #[test]
    fn a_clock_of_processor_time_jumps_where_another_sleeps() {
        let (at, end) = looks(100);
        // 61 steps of a second, then doubled: 63, 67, 75, 91.
        let expected: Vec<u64> = (1..=61).chain([63, 67, 75, 91]).collect();
        assert_eq!((at, end), (expected, Duration::from_secs(100)));
        let (at, end) = looks(365 * 86_400);
        assert!(at.len() < 90, "{}", at.len());
        assert_eq!(end, Duration::from_secs(365 * 86_400));
        assert_eq!(looks(1).0, [0u64; 0]);
    }

    #[test]
    fn a_long_wait_looks_about_in_between() {
        let clock = TabClock::new(false);
        let mut looks = 0;
        // The time that is waited for never comes; the third look ends the wait.
        let waits = std::panic::AssertUnwindSafe(|| {
            clock.wait_until(u64::MAX, Duration::from_millis(1), || {
                looks += 1;
                assert!(looks < 3, "enough");
            });
        });
        std::panic::catch_unwind(waits).expect_err("it has looked");
        assert_eq!(looks, 3);
    }

    #[test]
    fn resident_memory_is_seen_to_grow() {
        let before = resident_bytes().expect("Linux says it");
        let mut block = vec![0u8; 32 << 20];
        for page in block.chunks_mut(4096) {
            page[0] = 1;
        }
        let after = resident_bytes().expect("Linux says it");
        assert!(after >= before + (30 << 20), "{before} to {after}");
        assert_eq!(block[4096], 1);
    }
}
