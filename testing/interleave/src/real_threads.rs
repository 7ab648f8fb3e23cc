//! Scenarios on real threads.
//!
//! ```text
//!   check ─► ROUNDS times, on a thread of its own ─► ended? within PATIENCE, or it hangs
//! ```
//!
//! R1  A second thread that enters a cell while it may not fails, and does not touch what is in it.
//!
//! Not here: all orders (`all_orders`).

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// The number of times that a scenario is run.
pub const ROUNDS: usize = 200;

/// How long all rounds of a scenario may take before it counts as hanging. They take milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Runs a scenario [`ROUNDS`] times; preemptions are the kernel's.
///
/// # Panics
/// If a round breaks an assertion, has two threads in a [`Watched`] cell at once, or does not end.
pub fn check(_preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let (ended, end) = channel();
    let rounds = std::thread::spawn(move || {
        for _ in 0..ROUNDS {
            model();
        }
        let _ = ended.send(());
    });
    if end.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
        panic!("it has not ended within {PATIENCE:?}: a wake-up was lost, or a loop does not end");
    }
    if let Err(why) = rounds.join() {
        std::panic::resume_unwind(why);
    }
}

/// A cell: what is modelled must order the accesses to it.
#[derive(Debug)]
pub struct Watched<T> {
    /// The number of readers, or a negative number while a writer is inside.
    inside: AtomicIsize,
    value: UnsafeCell<T>,
}

/// Leaves a cell when dropped, however the access ends.
struct Inside<'a>(&'a AtomicIsize, isize);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // ORDER: Relaxed; the watch adds no ordering, or it would order what it watches.
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl<T> Watched<T> {
    /// Creates a cell that holds `value`.
    pub fn new(value: T) -> Watched<T> {
        Watched {
            inside: AtomicIsize::new(0),
            value: UnsafeCell::new(value),
        }
    }

    fn enter(&self, by: isize) -> Inside<'_> {
        // ORDER: as in `drop`.
        let before = self.inside.fetch_add(by, Ordering::Relaxed);
        let inside = Inside(&self.inside, by);
        let alone = if by < 0 { before == 0 } else { before >= 0 };
        assert!(alone, "two threads have it at once");
        inside
    }

    /// Reads the cell.
    ///
    /// # Panics
    /// If a thread writes it.
    pub fn with<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        let _inside = self.enter(1);
        // SAFETY: R1.
        look(unsafe { &*self.value.get() })
    }

    /// Writes the cell.
    ///
    /// # Panics
    /// If another thread reads or writes it.
    pub fn with_mut<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let _inside = self.enter(-(1 << 32));
        // SAFETY: R1.
        change(unsafe { &mut *self.value.get() })
    }
}

// SAFETY: R1.
unsafe impl<T: Send> Sync for Watched<T> {}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;
    use std::sync::{Arc, Barrier};

    use super::*;

    #[test]
    fn a_scenario_runs_as_often_as_it_says() {
        let runs = Arc::new(Watched::new(0));
        let counted = runs.clone();
        check(0, move || counted.with_mut(|runs| *runs += 1));
        runs.with(|runs| assert_eq!(*runs, ROUNDS));
    }

    #[test]
    #[should_panic(expected = "broken")]
    fn a_round_that_fails_fails_the_check() {
        check(0, || panic!("broken"));
    }

    #[test]
    fn who_meets_a_writer_in_a_cell_fails_and_readers_do_not() {
        let cell = Arc::new(Watched::new(0));
        let meets = |write: bool, other_writes: bool| {
            let (both, other) = (Arc::new(Barrier::new(2)), cell.clone());
            let there = both.clone();
            let thread = std::thread::spawn(move || {
                let stay = || {
                    there.wait();
                    there.wait();
                };
                match other_writes {
                    true => other.with_mut(|_| stay()),
                    false => other.with(|_| stay()),
                }
            });
            both.wait();
            let met = std::panic::catch_unwind(AssertUnwindSafe(|| match write {
                true => cell.with_mut(|_| ()),
                false => cell.with(|_| ()),
            }));
            both.wait();
            thread.join().expect("the first one is right");
            met.is_err()
        };
        assert!(meets(true, true) && meets(true, false) && meets(false, true));
        assert!(!meets(false, false));
        cell.with_mut(|value| *value = 1);
    }
}
