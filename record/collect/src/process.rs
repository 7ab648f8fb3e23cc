//! A recorded process, which the collector's threads share.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use skinflint_base::ring::{COUNTED_FROM, SLOTS};
use skinflint_procfs::Memory;
use skinflint_procfs::process::threads;
use skinflint_procfs::status;
use skinflint_trace::ProcessInfo;

use crate::libraries::Library;
use crate::linked::Plan;
use crate::memory::Region;
use crate::outside::Outside;

/// Locks a mutex, even after a thread of ours panicked: the data are plain and stay usable.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process, as drain, sampler and acceptor share it.
pub struct Process {
    /// The index in the session, the key of everything about the process.
    pub index: usize,
    /// The kernel's process id.
    pub pid: u32,
    /// Its process ids in its PID namespaces, ours first, its own last; empty if they could not be read.
    pub numbers: Vec<u32>,
    /// The token that it was given when it said hello: the process and copies of it show it.
    pub token: u64,
    /// The monotonic time of its start, in nanoseconds.
    pub start_ns: u64,
    /// The facts for the trace's first block.
    pub info: ProcessInfo,
    /// A descriptor that becomes readable when the process has ended.
    pub pidfd: Option<OwnedFd>,
    /// The regions with its rings; the first holds the header. The list only grows.
    pub regions: Mutex<Vec<Arc<Region>>>,
    /// The first region, without a lock.
    pub first: Arc<Region>,
    /// The recorder's own mappings (address, bytes).
    pub own: Mutex<Vec<(u64, u64)>>,
    /// The stacks of threads (low, high).
    pub stacks: Mutex<Vec<(u64, u64)>>,
    /// The newest reading of its memory.
    pub memory: Mutex<Memory>,
    /// The CPU time at the last exit snapshot, in nanoseconds.
    pub cpu_ns: AtomicU64,
    /// The resident bytes of the recorder in the process, at the last snapshot.
    pub recorder_bytes: AtomicU64,
    /// Whether nothing more will come from it.
    pub ended: AtomicBool,
    /// Whether it, or the process that it was forked from, ran before recording began.
    pub attached: bool,
    /// The plan for the allocators that it is linked with.
    pub linked: Arc<Plan>,
    /// The libraries that bring allocators, in the order in which they came; of a copy its parent's, too.
    pub libraries: Mutex<Vec<Library>>,
    /// Its heap, if that is read from outside.
    pub outside: Option<Outside>,
    /// Whether this is what is read from outside of a process that a recorder is in, too: another [`Process`] of its id.
    pub beside: bool,
}

impl Process {
    /// Returns the newest ticket that any thread has published.
    pub fn newest_ticket(&self) -> u64 {
        let regions = lock(&self.regions);
        let slots = regions
            .iter()
            .flat_map(|region| (0..SLOTS).map(move |i| region.slot(i)));
        // ORDER: Acquire; pairs with no particular store, and the result is only a bound: what was
        // published before is counted.
        slots
            .map(|slot| slot.ticket.load(Ordering::Acquire))
            .max()
            .unwrap_or(0)
    }

    /// Reads its heap, if that is done from outside: what has happened until now has a ticket afterwards.
    pub fn read_outside(&self) {
        if let Some(outside) = &self.outside {
            outside.read(&self.first, self.now_ns());
        }
    }

    /// Notes that its last snapshot is asked for now, by us.
    pub fn ends_now(&self) {
        // ORDER: Relaxed; read by the sampler when it answers, and its queue orders them.
        self.first
            .header()
            .asked_ns
            .store(skinflint_base::sys::monotonic_ns(), Ordering::Relaxed);
    }

    /// Notes the bytes in use at its end, as its own runtime counts them, if it is read from outside.
    pub fn count_in_use(&self) {
        if let Some(outside) = &self.outside {
            let (header, bytes) = (self.first.header(), outside.in_use());
            // ORDER: Relaxed for both; read after the process has ended.
            header.in_use_before.store(bytes, Ordering::Relaxed);
            header.in_use_after.store(bytes, Ordering::Relaxed);
        }
    }

    /// Returns the live usable bytes as its recorder counts them, if it does.
    pub fn counted_bytes(&self) -> Option<i64> {
        // ORDER: Relaxed; a rough figure.
        let counted = self.first.header().counted.load(Ordering::Relaxed);
        (counted != 0).then(|| counted.wrapping_sub(COUNTED_FROM) as i64)
    }

    /// Returns its process id as the process itself sees it: another one in a PID namespace of its own.
    pub fn own_pid(&self) -> u32 {
        self.numbers.last().copied().unwrap_or(self.pid)
    }

    /// Returns the id that we see of one of its threads, which the thread itself sees as `own`.
    pub fn thread_here(&self, own: u32) -> u32 {
        if self.numbers.len() < 2 {
            return own;
        }
        // A thread that is gone meanwhile has no name either way.
        let is_it = |tid: &u32| status::numbers(*tid).last() == Some(&own);
        threads(self.pid).into_iter().find(is_it).unwrap_or(own)
    }

    /// Returns the monotonic nanoseconds since its start.
    pub fn now_ns(&self) -> u64 {
        skinflint_base::sys::monotonic_ns().saturating_sub(self.start_ns)
    }
}
