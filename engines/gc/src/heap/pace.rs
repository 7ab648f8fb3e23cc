//! The pace of collections: how far a heap may grow, computed from what collections cost.
//!
//! ```text
//!   this thread's processor time    ├── program ──┤ pause ├──── program ────┤ pause ├─ …
//!                                                 └─ share = pauses / all since the heap's last collection ─┘
//!   share above the target ─► more room ─► fewer collections         below ─► less room ─► less memory
//! ```
//!
//! C1  A collection costs as much as what lives, and the room is how much is allocated for it: pauses over program time
//!     are inversely proportional to the room. So the room is multiplied by (pauses over program) / (the same at the
//!     target).
//! C2  By at most [`STEP`] at a time, and within the table's bounds: one measurement is one sample.
//! C3  All pauses of the world's thread count, for whatever heap: a hundred tenants share the target. Sweeping beside
//!     the program, or lazily by allocations, does not count: it grows with what is allocated, not with the room.
//! C4  Only collections for growth change anything: others have not used the room.
//! C5  Without an adaptive table in the world nothing is measured.
//!
//! The idea is Hertz and others', "Waste not, want not: resource-based garbage collection" (2009). Go's GOGC does the
//! opposite: a fixed room, and a limit of 25 % on the processor time. Rejected: elapsed time, which charges a pause for
//! what other processes do meanwhile.
//!
//! Not here: fixed tables, thresholds (`trigger`).

use core::cell::Cell;

use crate::heap::clock::Clock;

/// The most that the room is multiplied or divided by after a collection (C2): from the least to the most room of
/// [`Growth::ADAPTIVE`](crate::Growth::ADAPTIVE) in three collections.
const STEP: f64 = 2.0;

/// A bound on what collections cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The target: processor time of pauses over all processor time of the heaps' thread, from 0 to 1.
    pub target: f64,
    /// The least factor of live bytes, however little collections cost.
    pub least: f64,
    /// The largest factor, however much they cost.
    pub most: f64,
}

impl Share {
    /// Returns the factor within the bounds, which are above 1 whatever the table says.
    fn within(&self, factor: f64) -> f64 {
        let least = if self.least > 1.05 { self.least } else { 1.05 };
        let most = if self.most > least { self.most } else { least };
        if factor > least {
            factor.min(most)
        } else {
            least
        }
    }

    /// Returns the factor after a collection at `factor` that took `share` of the processor time (C1, C2).
    fn next(&self, factor: f64, share: f64) -> f64 {
        let odds = |share: f64| {
            let share = if share > 0.001 {
                share.min(0.999)
            } else {
                0.001
            };
            share / (1.0 - share)
        };
        let ratio = odds(share) / odds(self.target);
        self.within(1.0 + (factor - 1.0) * ratio.clamp(1.0 / STEP, STEP))
    }
}

/// Processor time of a thread: all of it, and that of pauses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    all_ns: u64,
    paused_ns: u64,
}

/// The processor time of the pauses of a world.
pub(crate) struct Pace {
    clock: Clock,
    on: Cell<bool>,
    paused_ns: Cell<u64>,
    /// The time at which the present pause began.
    began_ns: Cell<Option<u64>>,
}

/// A pause, which ends when it is dropped.
pub(crate) struct Pause<'a>(&'a Pace);

impl Pace {
    pub(crate) fn new(clock: Clock) -> Pace {
        Pace {
            clock,
            on: Cell::new(false),
            paused_ns: Cell::new(0),
            began_ns: Cell::new(None),
        }
    }

    /// Begins to measure (C5).
    pub(crate) fn measure(&self) {
        self.on.set(true);
    }

    pub(crate) fn pause(&self) -> Pause<'_> {
        if self.on.get() {
            self.began_ns.set(Some(self.clock.cpu_ns()));
        }
        Pause(self)
    }

    /// Returns the times until now, including the present pause. `None`: nothing is measured.
    pub(crate) fn spent(&self) -> Option<Spent> {
        self.on.get().then(|| {
            let all_ns = self.clock.cpu_ns();
            let since = self.began_ns.get().map_or(0, |began| all_ns - began);
            Spent {
                all_ns,
                paused_ns: self.paused_ns.get() + since,
            }
        })
    }
}

impl Pace {
    /// Reports whether a pause that is measured is going on.
    pub(crate) fn is_in_pause(&self) -> bool {
        self.began_ns.get().is_some()
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        if let Some(began) = self.0.began_ns.take() {
            let paused = self.0.paused_ns.get() + (self.0.clock.cpu_ns() - began);
            self.0.paused_ns.set(paused);
        }
    }
}

/// The factor of a heap.
pub(crate) struct Pacer {
    factor: Cell<f64>,
    looked: Cell<Option<Spent>>,
}

impl Pacer {
    pub(crate) fn new() -> Pacer {
        Pacer {
            factor: Cell::new(1.5),
            looked: Cell::new(None),
        }
    }

    pub(crate) fn factor(&self) -> f64 {
        self.factor.get()
    }

    /// Begins anew, with this factor.
    pub(crate) fn begin(&self, share: &Share, factor: f64, spent: Option<Spent>) {
        self.factor.set(share.within(factor));
        self.looked.set(spent);
    }

    /// Adjusts the factor after a collection; `grown`: it was for growth (C4). Returns the share that pauses took since
    /// the last collection.
    pub(crate) fn collected(&self, share: &Share, spent: Spent, grown: bool) -> Option<f64> {
        let before = self.looked.replace(Some(spent))?;
        let all = spent.all_ns.saturating_sub(before.all_ns);
        let paused = spent.paused_ns.saturating_sub(before.paused_ns);
        if all == 0 {
            return None;
        }
        let measured = paused as f64 / all as f64;
        if grown {
            self.factor.set(share.next(self.factor.get(), measured));
        }
        Some(measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::trigger::Growth;

    fn adaptive() -> Share {
        Growth::ADAPTIVE.share.expect("it is")
    }

    /// A program of which marking what lives takes `mark_ns`, and filling the room of a factor of 2 takes `fill_ns`.
    fn run(mark_ns: u64, fill_ns: u64, collections: u32) -> (f64, f64) {
        let (share, pacer) = (adaptive(), Pacer::new());
        let mut spent = Spent::default();
        pacer.begin(&share, Growth::ADAPTIVE.factor, Some(spent));
        let mut last = 0.0;
        for _ in 0..collections {
            spent.all_ns += (fill_ns as f64 * (pacer.factor() - 1.0)) as u64 + mark_ns;
            spent.paused_ns += mark_ns;
            last = pacer.collected(&share, spent, true).expect("measured");
        }
        (pacer.factor(), last)
    }

    #[test]
    fn the_room_is_what_the_target_pays_for() {
        // A ninth of the program's time is the target: the room that is found is 9 × 1 / 18 of that of 2.
        let (factor, share) = run(1_000_000, 18_000_000, 20);
        assert!((factor - 1.5).abs() < 0.001, "{factor}");
        assert!((share - 0.1).abs() < 0.001, "{share}");
        let (factor, share) = run(1_000_000, 36_000_000, 20);
        assert!((factor - 1.25).abs() < 0.001, "{factor}");
        assert!((share - 0.1).abs() < 0.001, "{share}");
    }

    #[test]
    fn bounds_hold_and_are_reached_in_few_steps() {
        assert_eq!(run(1_000_000, 100_000, 1).0, 2.0, "from 1.5 in one");
        assert_eq!(run(1, 1_000_000_000, 2).0, 1.15, "in two");
        assert_eq!(run(1, 1_000_000_000, 1).0, 1.25, "and not in one");
        let share = adaptive();
        let mut factor = share.least;
        let steps = (0..).take_while(|_| {
            factor = share.next(factor, 0.99);
            factor < share.most
        });
        assert_eq!(steps.count(), 2, "the third arrives");
    }

    #[test]
    fn no_table_and_no_clock_leads_outside_of_the_bounds() {
        let odd = [0.0, -1.0, 1.0, 7.0, f64::NAN, f64::INFINITY];
        for least in odd {
            for most in odd {
                for target in odd {
                    let share = Share {
                        target,
                        least,
                        most,
                    };
                    for measured in odd {
                        let factor = share.next(1.5, measured);
                        assert!(factor >= 1.05, "{share:?} {measured}: {factor}");
                    }
                }
            }
        }
        let (share, pacer) = (adaptive(), Pacer::new());
        let at = |all_ns| Spent {
            all_ns,
            paused_ns: 0,
        };
        assert_eq!(pacer.collected(&share, at(5), true), None, "the first look");
        assert_eq!(pacer.collected(&share, at(5), true), None, "no time");
        assert_eq!(pacer.collected(&share, at(3), true), None, "backwards");
        assert_eq!(pacer.factor(), 1.5);
    }

    #[test]
    fn what_was_asked_for_changes_nothing_but_counts_from_there() {
        let (share, pacer) = (adaptive(), Pacer::new());
        pacer.begin(&share, 1.5, Some(Spent::default()));
        let spent = Spent {
            all_ns: 100,
            paused_ns: 90,
        };
        assert_eq!(pacer.collected(&share, spent, false), Some(0.9));
        assert_eq!(pacer.factor(), 1.5);
        let spent = Spent {
            all_ns: 200,
            paused_ns: 100,
        };
        assert_eq!(pacer.collected(&share, spent, true), Some(0.1));
        assert!((pacer.factor() - 1.5).abs() < 1e-9);
    }
}
