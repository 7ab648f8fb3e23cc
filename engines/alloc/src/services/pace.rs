//! How long the purger pauses: on a busy machine it may take 1 % of one processor, and no more.
//!
//! ```text
//!   a part that took t     ─► paid for 100 t later
//!   not paid for yet       ─► a pause until it is      unless a processor is free, or the heap stands still
//! ```
//!
//! P1  What takes t on the processor is paid for by 100 t of time. The next part begins when all is paid for. Debts outlast
//!     the purger's life.
//! P2  Once the heap stands still (no page became free in the last tick) the purger settles: if no more than [`SLACK_NS`]
//!     is owed then, it does what is left, round after round, and pays afterwards. So a heap of any size is at rest a few
//!     ticks after the last free, and a program that frees again finds the debt, and waits as P1 says.
//! P3  Where a processor is free, nothing is to be paid for. That is known once the purger has run for [`PROOF_NS`] without
//!     a wait: a shorter time may be the credit that schedulers give to a thread that has slept, half a scheduling period,
//!     12 ms at most. It holds for [`TRUST_NS`], and until a part has waited. While none has waited the purger goes on,
//!     and it pays for the time if the proof fails.
//! P4  However much is owed, every [`TRY_NS`] a part is tried: only so a free processor is found. It is paid for, too.
//! P5  A part has waited if its time by the clock is a quarter more than its time on the processor, and half a
//!     millisecond: less is an interrupt.
//!
//! Why not by a scheduling class: a thread in SCHED_IDLE gets hardly any time on a busy machine, and it would have to
//! take heaps' locks, for which the program would then wait; an unprivileged thread may enter that class and not leave
//! it; and services are often run with a filter that kills at `sched_setscheduler` (`SystemCallFilter=~@resources`).
//!
//! Not here: the clocks (`purger`).

/// The time that pays for a part, as a multiple of what it took.
const SHARE: u64 = 100;
/// The time without a wait after which a processor is known to be free.
const PROOF_NS: u64 = 16_000_000;
/// For how long it is known.
const TRUST_NS: u64 = 2_000_000_000;
/// The longest pause, and what may be owed when the purger settles.
const TRY_NS: u64 = 2_000_000_000;
const SLACK_NS: u64 = 2_000_000_000;
/// The least wait that is one.
const WAIT_NS: u64 = 500_000;

/// A part of the purger's work, by the clocks.
pub struct Part {
    /// When it ended.
    pub now_ns: u64,
    /// Its time on the processor.
    pub cpu_ns: u64,
    /// Its time by the clock.
    pub wall_ns: u64,
}

/// What was spent lately, and what is known of the processor.
#[derive(Default)]
pub struct Pace {
    /// When all is paid for.
    paid_ns: u64,
    /// What was spent since the last pause, and `paid_ns` then.
    stretch_ns: u64,
    before_ns: u64,
    trusted_ns: u64,
    tried_ns: u64,
    settling: bool,
}

impl Pace {
    /// Begins a life of the purger's, with the debts of the last.
    pub fn new(paid_ns: u64) -> Pace {
        Pace {
            paid_ns,
            ..Pace::default()
        }
    }

    /// Returns when all is paid for.
    pub fn paid_ns(&self) -> u64 {
        self.paid_ns
    }

    /// Notes the end of a pause, and whether the heap stood still in it. Returns how long it has to go on: a tick at most, as
    /// long as the purger may settle.
    pub fn wake(&mut self, now_ns: u64, still: bool, tick_ns: u64) -> u64 {
        self.stretch_ns = 0;
        self.before_ns = self.paid_ns;
        let owing = self.paid_ns.saturating_sub(now_ns);
        self.settling = still && (self.settling || owing <= SLACK_NS);
        if self.is_free(now_ns) || owing == 0 {
            return 0;
        }
        // P4.
        let wait = (self.tried_ns + TRY_NS).saturating_sub(now_ns).min(owing);
        if wait == 0 {
            self.tried_ns = now_ns;
        }
        pause(owing, wait, tick_ns)
    }

    /// Reports whether the next part may be followed by others at once: then a longer one costs fewer pauses.
    pub fn is_free(&self, now_ns: u64) -> bool {
        self.settling || now_ns < self.trusted_ns
    }

    /// Notes a part. Returns the pause that comes next; `None`: the next part may follow at once. `done`: it was the last
    /// of its round.
    pub fn after(&mut self, part: &Part, done: bool, tick_ns: u64) -> Option<u64> {
        let now_ns = part.now_ns;
        self.stretch_ns += part.cpu_ns;
        self.paid_ns = self.paid_ns.max(now_ns) + SHARE * part.cpu_ns;
        let waited = part.wall_ns > part.cpu_ns + (part.cpu_ns / 4).max(WAIT_NS);
        if waited {
            self.trusted_ns = 0;
        } else if self.stretch_ns >= PROOF_NS {
            self.trusted_ns = now_ns + TRUST_NS;
        }
        if now_ns < self.trusted_ns {
            self.paid_ns = self.before_ns;
        }
        if !done && (self.is_free(now_ns) || !waited) {
            return None;
        }
        if self.is_free(now_ns) {
            return Some(tick_ns);
        }
        self.tried_ns = now_ns;
        let owing = self.paid_ns - now_ns;
        // A tick may be longer than any try.
        Some(pause(
            owing,
            owing.clamp(tick_ns, TRY_NS.max(tick_ns)),
            tick_ns,
        ))
    }
}

/// Returns how much of a wait comes at once: looks at whether the heap stands still are a tick apart.
fn pause(owing: u64, wait: u64, tick_ns: u64) -> u64 {
    if owing <= SLACK_NS + tick_ns {
        wait.min(tick_ns)
    } else {
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const TICK_NS: u64 = 250 * MS;

    /// A purger, the time, and what it has spent.
    struct Play {
        pace: Pace,
        now_ns: u64,
        spent_ns: u64,
    }

    impl Play {
        fn new() -> Play {
            Play {
                pace: Pace::new(0),
                now_ns: 1_000 * MS,
                spent_ns: 0,
            }
        }

        fn part(&mut self, cpu_ns: u64, wall_ns: u64, done: bool) -> Option<u64> {
            self.now_ns += wall_ns;
            self.spent_ns += cpu_ns;
            let part = Part {
                now_ns: self.now_ns,
                cpu_ns,
                wall_ns,
            };
            self.pace.after(&part, done, TICK_NS)
        }

        fn wake(&mut self, pause_ns: u64, still: bool) -> u64 {
            self.now_ns += pause_ns;
            self.pace.wake(self.now_ns, still, TICK_NS)
        }
    }

    #[test]
    fn a_tick_may_be_longer_than_any_try() {
        let mut pace = Pace::new(0);
        let hour_ns = 3_600_000_000_000;
        let part = Part {
            now_ns: 5,
            cpu_ns: 1,
            wall_ns: 2 * WAIT_NS,
        };
        assert_eq!(pace.after(&part, true, hour_ns), Some(hour_ns));
    }

    #[test]
    fn a_round_is_paid_for_hundredfold() {
        let mut play = Play::new();
        play.wake(0, false);
        assert_eq!(play.part(MS, MS, true), Some(TICK_NS));
        assert_eq!(play.wake(TICK_NS, false), 0);
        for cpu_ns in [3 * MS, PROOF_NS - 1] {
            let mut pause = play.part(cpu_ns, cpu_ns, true).expect("done");
            let begin = play.now_ns;
            while pause > 0 {
                assert!(pause <= TICK_NS);
                pause = play.wake(pause, false);
            }
            assert_eq!(play.now_ns - begin, 100 * cpu_ns);
        }
    }

    #[test]
    fn where_a_processor_is_free_nothing_is_paid_for() {
        let mut play = Play::new();
        play.wake(0, false);
        for _ in 0..400 {
            assert_eq!(play.part(2 * MS, 2 * MS + 100_000, false), None);
        }
        assert_eq!(play.part(MS, MS, true), Some(TICK_NS));
        assert!(play.pace.paid_ns() < play.now_ns);
        // For as long as that is trusted.
        let until = play.now_ns + TRUST_NS;
        while play.now_ns + TICK_NS < until {
            assert_eq!(play.wake(TICK_NS, false), 0);
            let trusted = play.now_ns + 5 * MS < until;
            let pause = play.part(5 * MS, 5 * MS, true);
            assert_eq!(pause, Some(TICK_NS));
            assert_eq!(play.pace.paid_ns() < play.now_ns, trusted);
        }
    }

    /// Whatever the parts are, on a machine where they wait, the purger takes a hundredth at most while the heap changes.
    #[test]
    fn where_parts_wait_the_whole_stretch_is_paid_for() {
        let mut play = Play::new();
        let begin = play.now_ns;
        for round in 1..50 {
            assert_eq!(play.wake(0, false), 0);
            for _ in 0..round % 7 {
                assert_eq!(play.part(2 * MS, 2 * MS, false), None);
            }
            let cpu_ns = round % 5 * MS;
            let mut pause = play.part(cpu_ns, 2 * cpu_ns + MS, round % 2 == 0);
            while let Some(pause_ns) = pause.filter(|&ns| ns > 0) {
                pause = Some(play.wake(pause_ns, false));
            }
            assert!(play.spent_ns * 100 <= play.now_ns - begin, "round {round}");
        }
    }

    /// A heap that stands still is settled at once, however much there is, and on a busy machine, too; the debt is paid
    /// for before anything else.
    #[test]
    fn a_heap_that_stands_still_is_settled_and_paid_for_afterwards() {
        let mut play = Play::new();
        play.wake(0, false);
        assert_eq!(play.part(2 * MS, 5 * MS, false), Some(TICK_NS));
        assert!(!play.pace.is_free(play.now_ns));
        assert_eq!(play.wake(TICK_NS, true), 0);
        assert!(play.pace.is_free(play.now_ns));
        for _ in 0..200 {
            assert_eq!(play.part(2 * MS, 5 * MS, false), None);
        }
        assert_eq!(play.part(2 * MS, 5 * MS, true), Some(TICK_NS));
        assert_eq!(play.wake(TICK_NS, true), 0, "still: it goes on");
        assert_eq!(play.part(100 * MS, 300 * MS, true), Some(TICK_NS));
        assert_eq!(play.wake(TICK_NS, false), 0, "a part is tried");
        let owing = |play: &Play| play.pace.paid_ns() - play.now_ns;
        assert!(owing(&play) > 45_000 * MS);
        assert_eq!(play.part(MS, 5 * MS, false), Some(TRY_NS));
        // Standing still again does not help before that is paid.
        assert_eq!(play.wake(TRY_NS / 2, true), TRY_NS / 2);
        assert!(!play.pace.is_free(play.now_ns));
        let mut tries = 0;
        while owing(&play) > SLACK_NS + TRY_NS {
            assert_eq!(play.wake(TRY_NS, true), 0);
            tries += 1;
            assert!(play.part(MS, 5 * MS, false).is_some());
        }
        assert!(tries > 20);
        // The debts of the last life count in the next.
        let mut next = Pace::new(play.pace.paid_ns());
        next.wake(play.now_ns, true, TICK_NS);
        let part = Part {
            now_ns: play.now_ns,
            cpu_ns: MS,
            wall_ns: 5 * MS,
        };
        assert!(
            next.after(&part, false, TICK_NS).is_some(),
            "it does not settle"
        );
        let left = owing(&play);
        assert_eq!(play.wake(left, true), 0);
        assert_eq!(
            play.part(50 * MS, 300 * MS, false),
            None,
            "it settles again"
        );
    }

    #[test]
    fn an_interrupt_is_no_wait() {
        for (cpu_ns, wall_ns, waited) in [
            (100_000, 600_000, false),
            (100_000, 600_001, true),
            (8 * MS, 10 * MS, false),
            (8 * MS, 10 * MS + 1, true),
        ] {
            let mut play = Play::new();
            play.wake(0, false);
            assert_eq!(play.part(cpu_ns, wall_ns, false).is_some(), waited);
        }
    }
}
