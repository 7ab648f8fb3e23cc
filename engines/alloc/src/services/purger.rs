//! The thread that gives memory back while the program does nothing.
//!
//! ```text
//!   slow paths ──hint──► wanted() ──► clone ──► tick … tick … nothing left to do ──► gone
//!                                               │
//!                            holes of every heap, free runs older than the decay
//! ```
//!
//! U1  It is no thread of the C library's (`hidden`): the program does not see it, and no handler of the program's ever
//!     runs on it. It calls nothing that uses thread-local storage.
//! U2  There is at most one, and it ends when a few ticks brought nothing: an idle process that is clean
//!     has no thread of ours and spends nothing.
//! U3  PURGE_LOCK is held for every pass, and taken before any other lock: a fork waits for the pass, so
//!     no run is in the purger's hands in the child.
//! U4  A pass that took t is followed by a sleep of at least 100 t: at most 1 % of one processor.
//!
//! Not here: what may be purged (`holes`, `pages`).

use skinflint_base::sync::{AtomicU32, Ordering};
use skinflint_base::sys;

use super::batch::{PURGE_LOCK, batch};
use super::holes;
use super::trim::purge_pool;
use super::{check, hidden, idle, reserve};
use crate::heaps::hints::{START_PAGES, STARTER};
use crate::heaps::pool::{heaps, with_pool};
use crate::mechanism::lock::PURGER;

/// Milliseconds between two passes. With two ticks of decay a program that drops its heap is clean within a few
/// seconds; other values were not compared.
const TICK_MS: u64 = 250;
static TICK_NS: core::sync::atomic::AtomicU64 =
    core::sync::atomic::AtomicU64::new(TICK_MS * 1_000_000);
/// Ticks for which a free run stays as it is: a run that is wanted again within half a second to three quarters costs
/// no fault.
static DECAY_TICKS: AtomicU32 = AtomicU32::new(2);
/// Ticks for which demand is remembered.
const DEMAND_TICKS: usize = 8;
/// Ticks without work after which the purger ends.
const QUIET_TICKS: u32 = 6;
const STACK_BYTES: usize = 64 * 1024;

static ALLOWED: AtomicU32 = AtomicU32::new(1);
static STACK: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);
static TICK: AtomicU32 = AtomicU32::new(1);
static WAKE: AtomicU32 = AtomicU32::new(0);
/// Number of passes made so far.
pub static PASSES: AtomicU32 = AtomicU32::new(0);
/// CPU time of the purger's passes so far.
pub static CPU_NS: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);

/// Sets whether there may be a purger at all.
pub fn allow(allowed: bool) {
    // ORDER: set at start.
    ALLOWED.store(u32::from(allowed), Ordering::Relaxed);
    idle::allow(allowed);
}

/// Sets how long free runs stay as they are, in milliseconds; rounded up to ticks.
pub fn set_decay_ms(decay_ms: u32) {
    let ticks = u64::from(decay_ms).div_ceil(TICK_MS) as u32;
    DECAY_TICKS.store(ticks, Ordering::Relaxed); // ORDER: set at start
}

/// Sets another pace of ticks, for tests; the decay stays the same number of ticks.
pub fn set_tick_ms(tick_ms: u32) {
    // ORDER: set by a test, read at the next look.
    TICK_NS.store(u64::from(tick_ms) * 1_000_000, Ordering::Relaxed);
}

fn tick_ns() -> u64 {
    TICK_NS.load(Ordering::Relaxed) // ORDER: as above
}

fn decay_ticks() -> u32 {
    DECAY_TICKS.load(Ordering::Relaxed) // ORDER: set at start
}

/// Begins a purger, unless another thread is faster, or the last purger is still ending.
#[cold]
#[inline(never)]
pub fn start() {
    // ORDER: set at start.
    if ALLOWED.load(Ordering::Relaxed) == 0 {
        return;
    }
    if !STARTER.begin() {
        return;
    }
    // SAFETY: the right to begin is ours.
    if !unsafe { spawn() } {
        // Not again at every free, but when as many pages have come together once more.
        STARTER.take();
        STARTER.give_back();
    }
}

/// Clones the thread. The caller has the right to begin it (starter.W1).
unsafe fn spawn() -> bool {
    // ORDER: the right guards it.
    let mut stack = STACK.load(Ordering::Relaxed);
    if stack == 0 {
        stack = sys::map_private(STACK_BYTES) as usize;
        if stack == 0 {
            return false;
        }
        STACK.store(stack, Ordering::Relaxed); // ORDER: as above
    }
    // SAFETY: nothing uses the stack (starter.W3); `main` keeps hidden.V2 (U1).
    unsafe { hidden::begin(libc::CLONE_FILES, stack, STACK_BYTES, STARTER.tid(), main) }
}

/// Runs the purger's thread.
extern "C" fn main() {
    const NAME: &[u8] = b"skinflint\0";
    // SAFETY: the name outlives the call.
    unsafe {
        sys::syscall(
            libc::SYS_prctl,
            [libc::PR_SET_NAME as u64, NAME.as_ptr() as u64, 0, 0, 0, 0],
        )
    };
    let mut demand = Demand::default();
    let mut quiet = 0;
    let mut delay_ns = tick_ns();
    STARTER.live(START_PAGES, |starter| {
        // ORDER: a number to wait on.
        sys::futex_wait(&WAKE, WAKE.load(Ordering::Relaxed), delay_ns);
        let begin = sys::thread_cpu_ns();
        let hint = starter.take();
        let worked = pass(&mut demand);
        let took = sys::thread_cpu_ns() - begin;
        delay_ns = tick_ns().max(took * 100);
        CPU_NS.fetch_add(took, Ordering::Relaxed); // ORDER: a statistic
        let missing = reserve::refill();
        quiet = if worked || missing || hint >= START_PAGES {
            0
        } else {
            quiet + 1
        };
        if quiet < QUIET_TICKS {
            return false;
        }
        quiet = 0;
        with_pool(PURGER, |pool| pool.region.purge_meta());
        true
    });
}

/// How much memory was wanted again lately.
#[derive(Default)]
struct Demand {
    reused_total: u64,
    ticks: [u32; DEMAND_TICKS],
    at: usize,
}

impl Demand {
    /// Notes the pool's count of dirty pages taken again; returns how many pages to keep.
    fn note(&mut self, reused_total: u64) -> u32 {
        let now = reused_total
            .wrapping_sub(self.reused_total)
            .min(u64::from(u32::MAX));
        self.reused_total = reused_total;
        self.ticks[self.at] = now as u32;
        self.at = (self.at + 1) % DEMAND_TICKS;
        self.ticks.iter().copied().max().unwrap_or(0)
    }
}

/// Makes one pass over everything. Returns whether there was work, or will be.
fn pass(demand: &mut Demand) -> bool {
    if !PURGE_LOCK.lock(PURGER) {
        return false;
    }
    // ORDER: only this thread counts.
    let tick = TICK.fetch_add(1, Ordering::Relaxed) + 1;
    // SAFETY: the lock is held.
    let batch = unsafe { batch() };
    let mut purged = 0;
    let mut pending = 0;
    let held = idle::pass(PURGER, tick_ns(), batch);
    for heap in heaps() {
        let walked = holes::walk(heap, PURGER, idle::walk_of(heap), batch);
        purged += walked.purged;
        pending += walked.pending;
    }
    let keep = with_pool(PURGER, |pool| {
        pool.set_tick(tick);
        demand.note(pool.reused_dirty_total)
    });
    // Before that many ticks have passed, nothing can be that old.
    if let Some(until) = tick.checked_sub(decay_ticks()) {
        purged += purge_pool(PURGER, until, keep.unwrap_or(0), batch);
    }
    let dirty = with_pool(PURGER, |pool| pool.dirty_pages).unwrap_or(0);
    PURGE_LOCK.unlock();
    check::maybe_as(PURGER);
    PASSES.fetch_add(1, Ordering::Relaxed); // ORDER: a statistic
    purged > 0 || pending > 0 || dirty > 0 || held >= START_PAGES
}

/// Forgets the purger in the child of a fork, where it does not run.
pub fn forget() {
    PURGE_LOCK.reset();
    STARTER.reset();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heaps::{events, large};
    use crate::mechanism::class;
    use crate::services::trim::trim;
    use crate::test_engine::{alone, new};

    #[test]
    fn a_pass_had_work_if_any_page_waits_or_went() {
        let _alone = alone();
        trim();
        // Until what was wanted again before this test is forgotten, too.
        let demand = &mut Demand::default();
        (0..=DEMAND_TICKS).for_each(|_| _ = pass(demand));
        assert!(!pass(demand), "all is done");

        // A single dirty page: it waits until it is old enough, and goes.
        let (block, _) = large::malloc(1, 1);
        // SAFETY: a block that was made just now.
        unsafe { large::free(block) };
        for tick in 1..=decay_ticks() {
            assert!(pass(demand), "after {tick} ticks");
        }
        assert!(!pass(demand), "and that was all");

        // A single span with a free page: what was wanted just now is let alone, what has changed waits for the next pass.
        let heap = new();
        let class = class::base_class(4_096);
        // SAFETY: no thread has the heap, and the lock is held; a block of it.
        unsafe {
            assert!(heap.lock.lock(heap.who()));
            let blocks = [(); 2].map(|()| heap.take_locked(class));
            let next = heap.next_span(class);
            heap.take_locked(class);
            heap.take_locked(class);
            heap.lock.unlock();
            assert_eq!((*next).slots, 2, "no further page is free");
            events::to_bits(heap, blocks[0]);
        }
        assert!(!pass(demand), "spans were wanted just now");
        assert!(pass(demand), "seen for the first time");
        assert!(pass(demand), "gone");
        assert!(!pass(demand), "and that was all");
    }

    #[test]
    fn as_much_stays_as_was_wanted_in_one_of_the_last_ticks() {
        let mut demand = Demand::default();
        let mut total = u64::MAX - 3;
        demand.note(total);
        for _ in 0..DEMAND_TICKS {
            assert_eq!(demand.note(total) > 0, demand.ticks.contains(&u32::MAX));
        }
        // The count may wrap around.
        for (more, keep) in [(5, 5), (3, 5), (9, 9)] {
            total = total.wrapping_add(more);
            assert_eq!(demand.note(total), keep);
        }
        for tick in 1..DEMAND_TICKS {
            assert_eq!(demand.note(total), 9, "{tick} ticks later");
        }
        assert_eq!(demand.note(total), 0);
    }
}
