//! The thread that gives memory back while the program does nothing.
//!
//! ```text
//!   slow paths ──hint──► wanted() ──► clone ──► round … round … nothing left to do ──► gone
//!                                               │
//!                            part ─ part ─ …: spans that changed, free runs older than the decay
//! ```
//!
//! U1  It is no thread of the C library's (`hidden`): the program does not see it, and no handler of the program's ever
//!     runs on it. It calls nothing that uses thread-local storage.
//! U2  There is at most one, and it ends when a few rounds brought nothing, and the net has gone over all pages (round.O6):
//!     an idle process that is clean has no thread of ours and spends nothing.
//! U3  PURGE_LOCK is held for every part of a round, and taken before any other lock: a fork waits for the part, so
//!     no run is in the purger's hands in the child.
//! U4  A round begins at least a tick after the last one ended: what it finds unchanged has been so for a tick.
//!
//! U5  It has the rights that the thread had which began it, and the kernel's calls that change the rights of a thread
//!     would leave it as it is. So it is not there while one of them is made ([`leave`], [`come_back`]; the drop-in calls
//!     them), and it ends by itself as soon as it has a capability that the process's first thread lacks: a call that
//!     passed the C library by. The next purger is begun by a thread of the program's, and has its rights.
//! U6  Where a filter of system calls was set after the start that punishes its calls there is no purger (`rights`): the
//!     process could end at a call that the program itself never makes. There, and where the kernel makes no thread, the
//!     work is done by the threads that allocate, at a slow path
//!     without a lock, a part at a time and once in a tick; while all of them rest, nothing goes back. In the kernel's strict
//!     mode, which forbids even to read the clock, it is done by none.
//!
//! Not here: what may be purged (`holes`, `pages`), and how long the pauses are (`pace`).

use skinflint_base::sync::{AtomicU32, Ordering};
use skinflint_base::sys;
use skinflint_pages::purge::{Batch, one_by_one};

use super::batch::{PURGE_LOCK, batch};
use super::holes::round::Round;
use super::mesh::Mesh;
use super::pace::{Pace, Part};
use super::trim::purge_some;
use super::{check, credit, hidden, idle, reserve, rights};
use crate::heaps::hints::{START_PAGES, STARTER};
use crate::heaps::pool::with_pool;
use crate::heaps::{slow, tls};
use crate::mechanism::guarded::Guarded;
use crate::mechanism::lock::{PURGER, Who};
use crate::mechanism::starter::Starter;

/// Milliseconds between two rounds. With two ticks of decay a program that drops its heap is clean within a few
/// seconds; other values were not compared.
const TICK_MS: u64 = 250;
static TICK_NS: core::sync::atomic::AtomicU64 =
    core::sync::atomic::AtomicU64::new(TICK_MS * 1_000_000);
/// Ticks for which a free run stays as it is: a run that is wanted again within half a second to three quarters costs
/// no fault.
static DECAY_TICKS: AtomicU32 = AtomicU32::new(2);
/// Ticks for which demand is remembered: a second, so that a heap that stands still is at rest within two. With eight, 1,000
/// threads that had freed all they had held 100 KB each until 2.4 s after that, and 28 KB from 1.8 s on with four
/// (`bench/alloc/programs/idle_threads`, 2026-11-25): the pages that they had used again and again while they worked. Eight
/// spared a program that comes back later no fault: what is left alone for so long has decayed before it is wanted again, and
/// is no demand (64 MiB taken and freed every 900, 1,400 and 1,900 ms: the same 134,000 faults in eight rounds).
const DEMAND_TICKS: usize = 4;
/// Rounds without work after which the purger ends.
const QUIET_TICKS: u32 = 6;
/// Spans looked at and pages purged in a part of a round: about a millisecond. While the heap changes that is what the purger
/// does in a tick.
const PART: u32 = 2_048;
/// The same where parts follow each other: up to ten milliseconds, for which a fork may have to wait.
const LONG_PART: u32 = 32_768;
/// The pause between two parts of a stretch, in which whoever waits for the purge lock gets it.
const BREATH_NS: u64 = 20_000;
/// Parts of meshing in a tick, while nothing else is to be done.
const MESH_PARTS: u32 = 4;
const STACK_BYTES: usize = 64 * 1024;

static ALLOWED: AtomicU32 = AtomicU32::new(1);
static STACK: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);
static TICK: AtomicU32 = AtomicU32::new(1);
static WAKE: AtomicU32 = AtomicU32::new(0);
/// Number of rounds made so far.
pub static PASSES: AtomicU32 = AtomicU32::new(0);
/// The time until which the purger's work is paid for (pace.P1).
static PAID_NS: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);
/// Whether there is work, and no thread for it (U6).
static OWED: AtomicU32 = AtomicU32::new(0);
/// The time before which a thread of the program's does none of it.
static OWED_NEXT_NS: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);
/// How far it is; under the right to begin a purger.
static OWED_WORK: Guarded<Option<Work>> = Guarded::new(None);
/// CPU time of the purger's rounds so far.
pub static CPU_NS: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);

/// Sets whether there may be a purger at all. Without one the kernel is called for nothing but memory, and as a C library
/// calls it: whoever turns it off may have a filter that ends the process at all else (rights.R2).
pub fn allow(allowed: bool) {
    // ORDER: set at start.
    ALLOWED.store(u32::from(allowed), Ordering::Relaxed);
    idle::allow(allowed);
    if !allowed {
        one_by_one(true);
    }
}

/// Reports whether there may be a purger: then its system calls may be made.
pub fn may_be() -> bool {
    // ORDER: set at start.
    ALLOWED.load(Ordering::Relaxed) != 0 && !rights::filtered()
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
    if rights::filtered() {
        // Where the process may do nothing no thread does the work either (U6).
        if !rights::confined() {
            owe();
        }
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
        owe();
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
    // ORDER: the last purger's, which is gone.
    let mut pace = Pace::new(PAID_NS.load(Ordering::Relaxed));
    let mut work = Work::new(PURGER);
    let (mut hint, mut quiet) = (0, 0);
    let mut pause = Some(tick_ns());
    STARTER.live(START_PAGES, |starter| {
        if let Some(pause_ns) = pause {
            let last = sleep(pause_ns, starter);
            hint = last.max(hint);
            let owing = pace.wake(sys::monotonic_ns(), last == 0, tick_ns());
            if owing > 0 {
                pause = Some(owing);
                return false;
            }
        } else {
            hint = sleep(BREATH_NS, starter).max(hint);
        }
        if starter.is_held() || !rights::has_no_more_than_the_first_thread() {
            starter.take();
            return true;
        }
        let (begin, cpu) = (sys::monotonic_ns(), sys::thread_cpu_ns());
        let most = if pace.is_free(begin) { LONG_PART } else { PART };
        let done = work.part(most);
        // What the purger's own work hinted at is no sign that the heap moves (pace.P2).
        hint = starter.take().max(hint);
        let now_ns = sys::monotonic_ns();
        let part = Part {
            now_ns,
            cpu_ns: sys::thread_cpu_ns() - cpu,
            wall_ns: now_ns - begin,
        };
        pause = pace.after(&part, done, tick_ns());
        PAID_NS.store(pace.paid_ns(), Ordering::Relaxed); // ORDER: as above
        CPU_NS.fetch_add(part.cpu_ns, Ordering::Relaxed); // ORDER: a statistic
        if !done {
            return false;
        }
        let missing = reserve::refill();
        if work.worked() || missing || core::mem::take(&mut hint) >= START_PAGES {
            quiet = 0;
            // Heaps that stand still while others work.
            work.meshed(false);
            return false;
        }
        quiet += 1;
        // The net goes out while all is quiet: what it brings up is work. What it noted last is looked at before the end.
        if !work.round.cast() {
            quiet = quiet.min(QUIET_TICKS - 3);
        }
        if quiet < QUIET_TICKS || !work.meshed(true) {
            return false;
        }
        quiet = 0;
        work.round.draw_in();
        with_pool(PURGER, |pool| pool.region.purge_meta());
        true
    });
}

/// Ends the purger, if there is one, and keeps others from beginning until [`come_back`] (U5). Returns once the kernel has
/// no thread of it any more; after two seconds it gives up, which only a handler that interrupted a trim can meet, and
/// the purger then ends by itself.
pub fn leave() {
    STARTER.hold();
    // ORDER: the kernel's id, or 0.
    let tid = STARTER.tid().load(Ordering::Relaxed);
    let until = sys::monotonic_ns() + 2_000_000_000;
    while STARTER.lives() && sys::monotonic_ns() < until {
        // It may be about to sleep, so more than one wake may be needed.
        WAKE.fetch_add(1, Ordering::Relaxed); // ORDER: a number to wait on
        sys::futex_wake(&WAKE);
        let now = STARTER.tid().load(Ordering::Relaxed); // ORDER: as above
        sys::futex_wait(STARTER.tid(), now, 1_000_000);
    }
    // The kernel writes its 0 before it takes the thread out of the process.
    while tid != 0 && sys::thread_exists(sys::getpid(), tid) && sys::monotonic_ns() < until {
        core::hint::spin_loop();
    }
}

/// Lets purgers begin again; the next one has the rights of the thread that begins it.
pub fn come_back() {
    STARTER.release();
    // What the purger that left would have done, the next one does.
    start();
}

/// Notes that there is work, for a slow path that holds no lock (U6).
fn owe() {
    OWED.store(1, Ordering::Relaxed); // ORDER: a hint
    slow::LOOK.fetch_max(1, Ordering::Relaxed); // ORDER: as above
}

/// Does a part of the purger's work, if it is owed and a tick has passed; no lock is held (U6). `true`: there is more, for
/// a later look.
pub fn work_owed() -> bool {
    // ORDER: hints; the right to begin a purger orders.
    if OWED.load(Ordering::Relaxed) == 0 || rights::confined() {
        return false;
    }
    if sys::monotonic_ns() < OWED_NEXT_NS.load(Ordering::Relaxed) || !STARTER.begin() {
        return true;
    }
    OWED.store(0, Ordering::Relaxed); // ORDER: as above
    STARTER.take();
    let who = tls::who();
    // SAFETY: the right to begin a purger is this thread's, and there is no other use.
    let work = unsafe { &mut *OWED_WORK.get() }.get_or_insert_with(|| Work::new(who));
    work.go_on_as(who);
    let done = work.part(PART);
    let more = !done || work.worked();
    // ORDER: under the right.
    OWED_NEXT_NS.store(sys::monotonic_ns() + tick_ns(), Ordering::Relaxed);
    STARTER.give_back();
    if more {
        OWED.store(1, Ordering::Relaxed); // ORDER: a hint
    }
    more
}

/// Sleeps, and takes the hints that came by the end.
fn sleep(ns: u64, starter: &Starter) -> u32 {
    // ORDER: a number to wait on.
    sys::futex_wait(&WAKE, WAKE.load(Ordering::Relaxed), ns);
    starter.take()
}

/// What the purger does, and how far it is.
struct Work {
    /// The identity as which it is done.
    who: Who,
    demand: Demand,
    round: Round,
    /// Whether a round is under way, and all but the pool's runs is done.
    begun: bool,
    walked: bool,
    keep: u32,
    /// Pages' worth of blocks that lay in threads' magazines when the round began (idle.J4).
    held: u32,
    mesh: Mesh,
    /// Pages of the pool purged in this round, and those that were dirty at its end.
    purged: u32,
    dirty: u32,
}

impl Work {
    fn new(who: Who) -> Work {
        Work {
            who,
            demand: Demand::default(),
            round: Round::new(who),
            begun: false,
            walked: false,
            keep: 0,
            held: 0,
            mesh: Mesh::new(who),
            purged: 0,
            dirty: 0,
        }
    }

    /// Has the rest done under another identity.
    fn go_on_as(&mut self, who: Who) {
        self.who = who;
        self.round.go_on_as(who);
    }

    /// Does a part of a round: about so many looks at spans, and pages purged. `true`: the round is done.
    fn part(&mut self, most: u32) -> bool {
        if !PURGE_LOCK.lock(self.who) {
            return true;
        }
        // SAFETY: the lock is held.
        let batch = unsafe { batch() };
        if !self.begun {
            self.begin(batch);
        }
        let done = self.walked(most, batch) && self.purge(most, batch);
        PURGE_LOCK.unlock();
        if done {
            self.begun = false;
            check::maybe_as(self.who);
            PASSES.fetch_add(1, Ordering::Relaxed); // ORDER: a statistic
        }
        done
    }

    /// Meshes a batch of pages of heaps that stand still, if that is paid for, or all heaps rest (mesh.M6). `true`: all were
    /// looked at, or nothing is to be done.
    fn meshed(&mut self, rests: bool) -> bool {
        match self.mesh.may(sys::monotonic_ns(), rests) {
            None => return true,
            Some(false) => return false,
            Some(true) => {}
        }
        let cpu = sys::thread_cpu_ns();
        let mut done = self.mesh.part();
        for _ in 1..if rests { MESH_PARTS } else { 1 } {
            if !done {
                sys::futex_wait(&WAKE, WAKE.load(Ordering::Relaxed), BREATH_NS); // ORDER: as in `sleep`
                done = self.mesh.part();
            }
        }
        let cpu_ns = sys::thread_cpu_ns() - cpu;
        Mesh::pay(sys::monotonic_ns(), cpu_ns);
        CPU_NS.fetch_add(cpu_ns, Ordering::Relaxed); // ORDER: a statistic
        if done {
            self.mesh = Mesh::new(self.who);
        }
        done
    }

    fn begin(&mut self, batch: &mut Batch) {
        (self.begun, self.walked, self.purged) = (true, false, 0);
        // ORDER: only this thread counts.
        let tick = TICK.fetch_add(1, Ordering::Relaxed) + 1;
        // Before the round, which then finds the spans of what was taken among those that changed.
        self.held = match self.who == PURGER {
            true => idle::pass(PURGER, tick_ns(), batch),
            // A thread of the program's calls the kernel for nothing but the pages (U6).
            false => 0,
        };
        self.round.begin(batch);
        let keep = with_pool(self.who, |pool| {
            pool.set_tick(tick);
            self.demand.note(pool.reused_dirty_total)
        });
        self.keep = keep.unwrap_or(0);
        credit::round();
    }

    fn walked(&mut self, most: u32, batch: &mut Batch) -> bool {
        self.walked = self.walked || self.round.go_on(most, batch);
        self.walked
    }

    fn purge(&mut self, most: u32, batch: &mut Batch) -> bool {
        // Before that many ticks have passed, nothing can be that old.
        // ORDER: own.
        if let Some(until) = TICK.load(Ordering::Relaxed).checked_sub(decay_ticks()) {
            let before = self.purged;
            while self.purged - before < most {
                let purged = purge_some(self.who, until, self.keep, batch);
                if purged == 0 {
                    self.dirty = with_pool(self.who, |pool| pool.dirty_pages).unwrap_or(0);
                    return true;
                }
                self.purged += purged;
            }
            return false;
        }
        self.dirty = with_pool(self.who, |pool| pool.dirty_pages).unwrap_or(0);
        true
    }

    /// Reports whether the last round had work, or the next will have.
    fn worked(&self) -> bool {
        let walked = self.round.done;
        let walks = walked.purged > 0 || walked.pending > 0;
        walks || self.purged > 0 || self.dirty > 0 || self.held >= START_PAGES
    }

    /// Makes a whole round; reports whether there was work, or will be.
    #[cfg(test)]
    fn whole(&mut self) -> bool {
        while !self.part(PART) {}
        self.worked()
    }
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

/// Forgets the purger in the child of a fork, where it does not run.
pub fn forget() {
    PURGE_LOCK.reset();
    STARTER.reset();
    // SAFETY: the child has one thread; another may have been at work on it.
    unsafe { OWED_WORK.get().write(None) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heaps::{cache, events, large};
    use crate::mechanism::class;
    use crate::services::trim::trim;
    use crate::test_engine::{alone, new};

    #[test]
    fn a_round_had_work_if_any_page_waits_or_went() {
        let _alone = alone();
        trim();
        // Until what was wanted again before this test is forgotten, too.
        let work = &mut Work::new(PURGER);
        (0..=DEMAND_TICKS).for_each(|_| _ = work.whole());
        assert!(!work.whole(), "all is done");

        // A single dirty page: it waits until it is old enough, and goes.
        let (block, _) = large::malloc(1, 1);
        // SAFETY: a block that was made just now.
        unsafe { large::free(block) };
        for tick in 1..=decay_ticks() {
            assert!(work.whole(), "after {tick} ticks");
        }
        assert!(!work.whole(), "and that was all");

        // A single span with a free page: what was wanted just now is let alone, and goes with the next round.
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
        assert!(!work.whole(), "spans were wanted just now");
        assert!(work.whole(), "gone");
        assert!(!work.whole(), "and that was all");
    }

    /// What was wanted again and again until the last free is kept no longer than anybody may wait for it: two seconds,
    /// of which the first tick may have begun just before.
    #[test]
    fn all_is_clean_two_seconds_after_the_last_free_however_much_was_wanted_before() {
        let _alone = alone();
        trim();
        let work = &mut Work::new(PURGER);
        // More than a heap keeps for itself.
        let once = || {
            let blocks = [(); 8].map(|()| large::malloc(2 * cache::BYTES_MAX, 1).0);
            // SAFETY: blocks that were made just now.
            blocks
                .into_iter()
                .for_each(|block| unsafe { large::free(block) });
        };
        let dirty = || with_pool(PURGER, |pool| pool.dirty_pages).expect("free");
        for _ in 0..4 {
            once();
            once();
            work.whole();
        }
        let all = dirty();
        work.whole();
        work.whole();
        assert_eq!(dirty(), all, "it was wanted, and is kept for a while");
        let mut rounds = 2;
        while dirty() > 0 {
            work.whole();
            rounds += 1;
        }
        assert!((rounds + 1) * TICK_MS <= 2_000, "{rounds} rounds");
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
