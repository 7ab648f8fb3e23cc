//! The lock of slow paths: one word, a futex, and it knows its holder.
//!
//! ```text
//!   0            free
//!   who          held          (`who` is even: a heap's address, or one of the fixed ids)
//!   who | 1      held, and a thread sleeps
//! ```
//!
//! K1  A thread that finds the lock held by its own identity is a signal handler that interrupted its own slow path:
//!     [`Lock::lock`] reports that instead of waiting for ever. NOBODY and FORKER identify no single thread: many
//!     threads may use them, and they wait for each other.
//! K2  A sleeper that gets the lock keeps the mark, since others may sleep too; so no wake is lost.
//! K3  Nothing sleeps while it holds a lock, except for another lock further down: heap, then pool.
//!
//! Not here: what each lock protects (`heap`, `pool`).

use skinflint_base::sync::{AtomicU32, Ordering};
#[cfg(not(loom))]
use skinflint_base::sys;

/// The identity of a lock's taker: even and not 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Who(pub u32);

/// The identity of the purger.
pub const PURGER: Who = Who(2);
/// The identity of any thread without a heap: one that is ending, or has not allocated yet.
pub const NOBODY: Who = Who(4);
/// The identity of a thread that forks and has no heap.
pub const FORKER: Who = Who(6);

/// The identity of the thread that answers questions from outside.
pub const ASKER: Who = Who(8);

/// Number of looks before a thread sleeps: meant to outlast a slow path that does not call the kernel. Not tuned.
const SPINS: u32 = if cfg!(loom) { 1 } else { 64 };

/// A mutual exclusion; see the head of the file.
#[repr(transparent)]
pub struct Lock(AtomicU32);

impl Lock {
    /// Creates a free lock.
    #[cfg(not(loom))]
    pub const fn new() -> Lock {
        Lock(AtomicU32::new(0))
    }

    /// Creates a free lock.
    #[cfg(loom)]
    pub fn new() -> Lock {
        Lock(AtomicU32::new(0))
    }

    /// Takes the lock if it is free. `false`: it is not.
    #[inline]
    pub fn try_lock(&self, who: Who) -> bool {
        let taken = self
            .0
            // ORDER: Acquire meets the Release in `unlock`: what the last holder wrote is seen. [model: lock_of_three]
            .compare_exchange(0, who.0, Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
        #[cfg(all(feature = "counted", not(test)))]
        if taken {
            super::counted::taken(core::ptr::from_ref(self).addr());
        }
        taken
    }

    /// Takes the lock. `false`: this thread has it already (K1). Cost uncontended: one compare-exchange.
    #[inline]
    #[must_use]
    pub fn lock(&self, who: Who) -> bool {
        self.try_lock(who) || self.lock_slow(who)
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, who: Who) -> bool {
        for _ in 0..SPINS {
            // ORDER: a look; the exchange below orders.
            let held = self.0.load(Ordering::Relaxed);
            if held & !1 == who.0 && who != NOBODY && who != FORKER {
                return false;
            }
            if held == 0 && self.try_lock(who) {
                return true;
            }
            pause();
        }
        loop {
            // ORDER: a look.
            let held = self.0.load(Ordering::Relaxed);
            if held == 0 {
                // ORDER: Acquire, as in `try_lock`; the mark stays (K2). [model: lock_of_three]
                let taken =
                    self.0
                        .compare_exchange(0, who.0 | 1, Ordering::Acquire, Ordering::Relaxed);
                if taken.is_ok() {
                    return true;
                }
                continue;
            }
            let marked = held & 1 == 1
                // ORDER: the mark carries no data.
                || self.0.compare_exchange(held, held | 1, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            if marked {
                wait(&self.0, held | 1);
            }
        }
    }

    /// Releases the lock.
    #[inline]
    pub fn unlock(&self) {
        // ORDER: Release meets the Acquire in `try_lock` and `lock_slow`. [model: lock_of_three]
        if self.0.swap(0, Ordering::Release) & 1 == 1 {
            wake(&self.0);
        }
    }

    /// Reports whether `who` holds the lock.
    pub fn is_held_by(&self, who: Who) -> bool {
        // ORDER: true only for what this thread stored itself.
        self.0.load(Ordering::Relaxed) & !1 == who.0
    }

    /// Returns the holder's identity: for functions that the holder calls, which take further locks in its name.
    /// `other` if the lock is free (in the child of a fork).
    pub fn holder(&self, other: Who) -> Who {
        // ORDER: the caller knows that it is held, so the half that matters does not change.
        match self.0.load(Ordering::Relaxed) & !1 {
            0 => other,
            who => Who(who),
        }
    }

    /// Makes the lock free, whatever thread held it: in the child of a fork, where the holders are gone.
    pub fn reset(&self) {
        // ORDER: the child has one thread.
        self.0.store(0, Ordering::Relaxed);
    }
}

impl Default for Lock {
    fn default() -> Self {
        Lock::new()
    }
}

#[cfg(not(loom))]
fn pause() {
    core::hint::spin_loop();
}

#[cfg(not(loom))]
fn wait(word: &AtomicU32, expected: u32) {
    // Bounded, so that a wake that a dead thread owed causes only a delay.
    sys::futex_wait(word, expected, 10_000_000);
}

#[cfg(not(loom))]
fn wake(word: &AtomicU32) {
    sys::futex_wake(word);
}

#[cfg(loom)]
fn pause() {
    loom::thread::yield_now();
}

#[cfg(loom)]
loom::lazy_static! {
    /// All sleepers; the mutex makes looking and going to sleep one step, as the kernel does.
    static ref SLEEPERS: (loom::sync::Mutex<()>, loom::sync::Condvar) =
        (loom::sync::Mutex::new(()), loom::sync::Condvar::new());
}

#[cfg(loom)]
fn wait(word: &AtomicU32, expected: u32) {
    let asleep = SLEEPERS.0.lock().expect("no panic");
    // ORDER: the mutex orders it, as the kernel's does.
    if word.load(Ordering::Relaxed) == expected {
        drop(SLEEPERS.1.wait(asleep).expect("no panic"));
    }
}

#[cfg(loom)]
fn wake(_word: &AtomicU32) {
    let _awake = SLEEPERS.0.lock().expect("no panic");
    SLEEPERS.1.notify_all();
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A thread that waits for long sleeps: the kernel says so.
    #[test]
    fn who_waits_sleeps() {
        let lock = Lock::new();
        assert!(lock.lock(Who(64)));
        let id = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                id.store(skinflint_base::sys::gettid(), Ordering::Relaxed); // ORDER: stands alone
                assert!(lock.lock(Who(128)));
                lock.unlock();
            });
            let mut slept = 0;
            // A minute at least, on whatever machine.
            for _ in 0..60_000 {
                let id = id.load(Ordering::Relaxed); // ORDER: as above
                let file = format!("/proc/self/task/{id}/stat");
                let stat = std::fs::read_to_string(file).unwrap_or_default();
                let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
                slept += u32::from(state == Some(b'S'));
                if slept == 20 {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(1)); // CLOCK: poll step of a bounded wait
            }
            lock.unlock();
            assert_eq!(slept, 20, "it spins");
        });
    }

    #[test]
    fn the_holder_is_told_whether_somebody_waits_or_not() {
        let lock = Lock::new();
        assert!(lock.holder(FORKER) == FORKER);
        let heap = Who(64);
        assert!(lock.lock(heap));
        assert!(lock.holder(FORKER) == heap);
        assert!(!lock.lock(heap), "K1");
        lock.0.fetch_or(1, Ordering::Relaxed); // ORDER: one thread
        assert!(lock.holder(FORKER) == heap);
        lock.unlock();
        assert!(lock.try_lock(NOBODY));
    }
}
