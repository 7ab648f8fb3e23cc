//! Starting and ending the purger: there is at most one, and no hint is forgotten.
//!
//! ```text
//!   threads   hint: pages += n ─► enough, and it does not run? ─► begin: running 0 → 1 ─► no stack in use? ─► clone
//!   purger    take … work … ─► end: running → 0 ─► enough meanwhile? ─► running 0 → 1, and on    (else gone)
//!   kernel    tid: set by the clone, 0 once the stack is no longer in use
//! ```
//!
//! W1  The thread that has `running` may begin a purger, or is the purger.
//! W2  Hints and ends are in one order, that of the exchanges of `pages`: the end sees a hint that came before it, and
//!     a hint that comes after it sees that the purger runs no more. A load could be stale on either side, and the hint
//!     forgotten.
//! W3  The stack is the last purger's until `tid` is 0. The check is made by the thread that has `running`: with a
//!     check before that, the whole life of a purger could lie between the check and the exchange, and its last
//!     instructions after it.
//! W4  A hint between the end's exchange and the kernel's 0 begins no purger, but stays: the next hint begins it.
//! W5  While the state is held no purger begins: the holder's add and the look of [`Starter::begin`] are exchanges of the
//!     same word, and so in one order. If the add comes first, the look sees it; if the look does, the holder sees that
//!     one runs.
//!
//! The models run this very file (`tests/models.rs`).
//!
//! Not here: the thread (`purger`), the meaning of hints (`holes`).

use skinflint_base::sync::{AtomicU32, Ordering};

/// The state that hints and the purger share.
pub struct Starter {
    running: AtomicU32,
    pages: AtomicU32,
    /// The kernel's id of the thread while it lives; the kernel writes it (W3).
    tid: AtomicU32,
    /// Number of threads that want no purger just now (W5).
    held: AtomicU32,
}

impl Starter {
    /// Creates the state of a purger that does not run.
    #[cfg(not(loom))]
    pub const fn new() -> Starter {
        Starter {
            running: AtomicU32::new(0),
            pages: AtomicU32::new(0),
            tid: AtomicU32::new(0),
            held: AtomicU32::new(0),
        }
    }

    /// Creates the state of a purger that does not run.
    #[cfg(loom)]
    pub fn new() -> Starter {
        Starter {
            running: AtomicU32::new(0),
            pages: AtomicU32::new(0),
            tid: AtomicU32::new(0),
            held: AtomicU32::new(0),
        }
    }

    /// Reports whether the purger runs, or is about to.
    #[inline]
    pub fn runs(&self) -> bool {
        // ORDER: a look; `begin` and W2 order.
        self.running.load(Ordering::Relaxed) != 0
    }

    /// Adds pages; reports whether there are `enough`, and the purger does not run. Once there are enough it only
    /// looks, until they are taken.
    #[inline]
    pub fn hint(&self, pages: u32, enough: u32) -> bool {
        // ORDER: a look: if it is enough already, the thread that made it so has looked, or the end has.
        let mut now = self.pages.load(Ordering::Relaxed);
        if now < enough {
            // ORDER: Acquire meets the Release in `end` (W2): if that came first, what it wrote before is seen by the
            // look at `running`. [model: a_hint_is_not_forgotten_by_the_purger_that_ends]
            let before = self.pages.fetch_add(pages, Ordering::Acquire);
            now = before.wrapping_add(pages);
        }
        now >= enough && !self.runs()
    }

    /// Takes the pages.
    pub fn take(&self) -> u32 {
        // ORDER: a number; it continues the sequence of `hint`s, as every exchange does.
        self.pages.swap(0, Ordering::Relaxed)
    }

    /// Takes the right to begin a purger. `false`: another thread has it, or the last purger's stack is still in use.
    pub fn begin(&self) -> bool {
        if !self.claim() {
            return false;
        }
        // ORDER: Acquire meets the kernel's write, and its 0 comes after the last use of the stack (W3).
        // [model: one_purger_at_a_time_on_the_stack]
        if self.tid.load(Ordering::Acquire) != 0 || self.is_held() {
            self.give_back();
            return false;
        }
        true
    }

    fn claim(&self) -> bool {
        self.running
            // ORDER: Acquire meets the Release of `give_back` and `end`: what the last holder of the right wrote is
            // seen, the kernel's id above all. [model: one_purger_at_a_time_on_the_stack]
            .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Gives the right back, because there will be no purger for now.
    pub fn give_back(&self) {
        // ORDER: Release meets the Acquire of `claim`. [model: one_purger_at_a_time_on_the_stack]
        self.running.store(0, Ordering::Release);
    }

    /// Ends the purger, unless there is `enough` meanwhile. `true`: it has ended, and must touch nothing more.
    pub fn end(&self, enough: u32) -> bool {
        // A hint that comes after the look below sees it, by that look (W2).
        self.give_back();
        // ORDER: an exchange and not a load, which could be stale; Release meets the Acquire in `hint`.
        // [model: a_hint_is_not_forgotten_by_the_purger_that_ends]
        let now = self.pages.fetch_add(0, Ordering::Release);
        now < enough || self.is_held() || !self.claim()
    }

    /// Keeps purgers from beginning, until [`Starter::release`]. One that runs goes on until it looks (W5).
    pub fn hold(&self) {
        // ORDER: Acquire meets the Release of `is_held`: the claim before it is seen by `lives`; Release for the count of
        // the next one. [model: no_purger_begins_while_it_is_held]
        self.held.fetch_add(1, Ordering::AcqRel);
    }

    /// Lets purgers begin again.
    pub fn release(&self) {
        // ORDER: Release meets the Acquire of `is_held`: what was done while it was held comes before the next purger.
        // [model: no_purger_begins_while_it_is_held]
        self.held.fetch_sub(1, Ordering::Release);
    }

    /// Reports whether a thread wants no purger.
    pub fn is_held(&self) -> bool {
        // ORDER: an exchange and not a load, which could be stale (W5); Release meets the Acquire of `hold`.
        // [model: no_purger_begins_while_it_is_held]
        self.held.fetch_add(0, Ordering::AcqRel) != 0
    }

    /// Reports, to a thread that holds the state, whether a purger still runs or its stack is in use.
    pub fn lives(&self) -> bool {
        // ORDER: after the add of `hold` (W5); Acquire meets the purger's end, and the kernel's 0.
        // [model: no_purger_begins_while_it_is_held]
        self.running.load(Ordering::Acquire) != 0 || self.tid.load(Ordering::Acquire) != 0
    }

    /// Lives the purger's life: calls `pass` until it says that it may end, and there is not `enough` meanwhile. The caller
    /// touches nothing of the purger's afterwards.
    pub fn live(&self, enough: u32, mut pass: impl FnMut(&Starter) -> bool) {
        while !(pass(self) && self.end(enough)) {}
    }

    /// Returns the word to which the kernel writes the thread's id.
    pub fn tid(&self) -> &AtomicU32 {
        &self.tid
    }

    /// Resets the state in the child of a fork, where no purger runs.
    pub fn reset(&self) {
        // ORDER: the child has one thread.
        self.running.store(0, Ordering::Relaxed);
        self.tid.store(0, Ordering::Relaxed); // ORDER: as above
        self.held.store(0, Ordering::Relaxed); // ORDER: as above; the thread that held it is not here
    }

    /// Plays the kernel in a model: the thread is made.
    #[cfg(any(loom, test))]
    #[allow(dead_code)] // by the unit tests
    pub fn made(&self) {
        // ORDER: before the clone returns, in the thread that called it.
        self.tid.store(1, Ordering::Relaxed);
    }

    /// Plays the kernel in a model: the stack is no longer in use.
    #[cfg(any(loom, test))]
    #[allow(dead_code)] // by the unit tests
    pub fn gone(&self) {
        // ORDER: the kernel's write, which comes after all that the thread did. [reason: kernel]
        self.tid.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_child_of_a_fork_may_begin_one_though_the_parents_runs() {
        let starter = Starter::new();
        assert!(starter.begin());
        starter.made();
        assert!(!starter.begin(), "there is one");
        starter.reset();
        assert!(!starter.runs());
        assert!(starter.begin(), "of the parent's nothing is left");
    }

    #[test]
    fn a_stack_that_is_in_use_is_not_begun_on() {
        let starter = Starter::new();
        assert!(starter.begin());
        starter.made();
        assert!(starter.end(1));
        assert!(!starter.begin(), "the kernel has not written its 0");
        assert!(!starter.runs(), "and the right was given back");
        starter.gone();
        assert!(starter.begin());
    }

    #[test]
    fn none_is_begun_while_it_is_held_and_one_that_runs_is_seen() {
        let starter = Starter::new();
        assert!(starter.begin());
        starter.made();
        starter.hold();
        assert!(starter.lives(), "it has not looked yet");
        assert!(!starter.hint(9, 5), "it runs");
        assert!(starter.end(5), "though there is enough to do");
        assert!(starter.lives(), "its stack is in use");
        starter.gone();
        assert!(!starter.lives());
        assert!(starter.hint(1, 5) && !starter.begin());
        starter.hold();
        starter.release();
        assert!(!starter.begin(), "the other holds it still");
        starter.release();
        assert!(starter.hint(1, 5) && starter.begin());
        starter.hold();
        starter.reset();
        assert!(starter.begin(), "in the child of a fork no thread holds it");
    }

    #[test]
    fn hints_add_up_to_enough_until_they_are_taken() {
        let starter = Starter::new();
        assert!(!starter.hint(3, 5));
        assert!(starter.hint(2, 5));
        assert!(starter.hint(9, 5), "enough is enough");
        assert_eq!(starter.take(), 5);
        assert!(!starter.hint(4, 5));
        assert!(starter.begin());
        assert!(!starter.hint(4, 5), "it runs");
        assert!(!starter.end(5), "and goes on with what came meanwhile");
        assert_eq!(starter.take(), 8);
        assert!(starter.end(5));
    }
}
