//! A recorded process, as the collector's threads share it.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use skinflint_base::ring::{COUNTED_FROM, SLOTS};
use skinflint_trace::ProcessInfo;

use crate::memory::Region;
use crate::proc::Memory;

/// Locks, also after a thread of ours panicked: the data are plain and stay usable.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What drain, sampler and acceptor share of a process.
pub struct Process {
    /// Index in the session, the key of everything about it.
    pub index: usize,
    /// Kernel id.
    pub pid: u32,
    /// What it was given when it said hello: it, and copies of it, show it.
    pub token: u64,
    /// Monotonic start, nanoseconds.
    pub start_ns: u64,
    /// Facts for the trace's first block.
    pub info: ProcessInfo,
    /// Becomes readable when the process has ended.
    pub pidfd: Option<OwnedFd>,
    /// Rings; the first holds the header. Only ever grows.
    pub regions: Mutex<Vec<Arc<Region>>>,
    /// The first of them, without a lock.
    pub first: Arc<Region>,
    /// The recorder's own mappings (address, bytes).
    pub own: Mutex<Vec<(u64, u64)>>,
    /// Stacks of threads (low, high).
    pub stacks: Mutex<Vec<(u64, u64)>>,
    /// The newest reading of its memory.
    pub memory: Mutex<Memory>,
    /// CPU time at the last exit snapshot, nanoseconds.
    pub cpu_ns: AtomicU64,
    /// Resident bytes of the recorder in it, at the last snapshot.
    pub recorder_bytes: AtomicU64,
    /// Nothing more will come from it.
    pub ended: AtomicBool,
    /// It, or what it was forked from, ran before recording began.
    pub attached: bool,
}

impl Process {
    /// The newest ticket that any thread has published.
    pub fn newest_ticket(&self) -> u64 {
        let regions = lock(&self.regions);
        let slots = regions
            .iter()
            .flat_map(|region| (0..SLOTS).map(move |i| region.slot(i)));
        // ORDER: Acquire; pairs with the Release of `tail` in a sense that is only a bound: what
        // was published before is counted.
        slots
            .map(|slot| slot.ticket.load(Ordering::Acquire))
            .max()
            .unwrap_or(0)
    }

    /// Live bytes given as its recorder counts them, if it does.
    pub fn counted_bytes(&self) -> Option<i64> {
        // ORDER: Relaxed; a figure that is rough anyway.
        let counted = self.first.header().counted.load(Ordering::Relaxed);
        (counted != 0).then(|| counted.wrapping_sub(COUNTED_FROM) as i64)
    }

    /// Its kernel id as it sees that itself: another one in another number space.
    pub fn own_pid(&self) -> u32 {
        let numbers = crate::proc::numbers(self.pid);
        numbers
            .and_then(|numbers| numbers.last().copied())
            .unwrap_or(self.pid)
    }

    /// Monotonic nanoseconds since its start.
    pub fn now_ns(&self) -> u64 {
        skinflint_base::sys::monotonic_ns().saturating_sub(self.start_ns)
    }
}
