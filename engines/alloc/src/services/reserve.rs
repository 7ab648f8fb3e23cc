//! Refusals of the OS: what is given up before a call fails, and which listeners are called.
//!
//! ```text
//!   refused ──► release the reserve ──► trim everything ──► listeners ──► try again ──► null, ENOMEM
//!                     ▲
//!                     └── filled again later, by the purger: after 1 s, 2 s … 60 s
//! ```
//!
//! E1  The reserve is large blocks of ours whose every page was written to. Untouched address space would
//!     help against a limit on address space only: an overcommitted system or a memory cgroup has
//!     nothing to give at the moment that counts. Locked (`mlock`) it need not be: what is in swap
//!     can be had, slowly. What is released goes to the pool, resident, and not to the OS.
//! E2  [`out_of_memory`] and listeners run with no lock of ours held. A thread that is in a listener and runs
//!     out of memory again gets null at once: no thread is in a listener twice.
//! E3  A call gives up after [`ROUNDS`] rounds: nothing here can go on for ever.
//! E4  A memory cgroup refuses nothing: it kills when a page is touched. So, where a reserve or a listener
//!     is set, the distance to its limit is looked at each time that 4 MiB of pages which were not
//!     resident have been handed out, and when it is small the same things are done early
//!     ([`Level::Near`]). malloc does not fail there: most of what programs allocate is touched, but
//!     not all.
//! E5  GUARD, under which all of this changes, is taken before every other lock.
//! E6  A reserve that the environment asks for grows with the heap: when pages have been handed out (E4), it is filled to as
//!     many bytes as are in use besides. A program that needs little pays for little. One that the program asks for is
//!     filled at once.
//! E7  At most half of what is available is taken, by MemAvailable and by the group's limit: a reserve larger than the
//!     memory would end the process that it is to save, or another. What is missing is tried again later.
//! E8  The child of a fork has no reserve, unless [`keep_in_children`] was called: it shares its parent's pages until it
//!     writes to them, and most children call `exec` soon.
//!
//! Not here: giving back in good time (`purger`).

use core::ffi::c_void;

use skinflint_base::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use skinflint_base::sys;
use skinflint_pages::{MAX_PAGES, PAGE};

use super::cgroup;
use super::rights;
use super::trim::trim;
use crate::heaps::pool::{TOUCHED, with_pool};
use crate::heaps::slow::{self, LOOK, WATCHED};
use crate::heaps::thread::who_named;
use crate::heaps::{hints, large, tls};
use crate::mechanism::lock::{FORKER, Lock, PURGER, Who};

/// The most tries of a call after the first.
const ROUNDS: u32 = 2;
/// The most parts of the reserve, and the bytes of the smallest.
const PARTS: usize = 16;
const PART_MIN: usize = 64 * 1024;
/// The most listeners.
pub const LISTENERS: usize = 32;
/// Pages handed out between two looks at the cgroup: 4 MiB, whose faults cost fifty times a look.
const LOOK_PAGES: u64 = 1_024;
/// Shortest and longest wait before the reserve is filled again.
const WAIT_NS: (u64, u64) = (1_000_000_000, 60_000_000_000);

/// How short memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Level {
    /// A limit is near (E4). Nothing has failed.
    Near = 1,
    /// The OS refused, and the reserve was released.
    Reserve = 2,
    /// The OS refused, and there was no reserve: only listeners can free memory now.
    Critical = 3,
}

/// A function that is told of pressure: its context, the [`Level`], and the bytes that are wanted (0 if unknown).
pub type Listener = unsafe extern "C" fn(*mut c_void, i32, usize);

/// Guards the parts and the listeners (E5).
pub static GUARD: Lock = Lock::new();
static PART: [AtomicUsize; PARTS] = [const { AtomicUsize::new(0) }; PARTS];
static WANTED: AtomicUsize = AtomicUsize::new(0);
static HELD: AtomicUsize = AtomicUsize::new(0);
/// Whether the reserve grows with the heap (E6), and whether children keep it (E8).
static LAZY: AtomicU32 = AtomicU32::new(0);
static IN_CHILDREN: AtomicU32 = AtomicU32::new(0);
static NEXT_TRY: AtomicU64 = AtomicU64::new(0);
static WAIT: AtomicU64 = AtomicU64::new(0);
static LISTENER: [(AtomicUsize, AtomicUsize); LISTENERS] =
    [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; LISTENERS];
static LISTENING: AtomicU32 = AtomicU32::new(0);
/// Pages handed out when the last look was asked for; [`LOOK`] has the bytes handed out before it.
static SEEN: AtomicU64 = AtomicU64::new(0);

static REFUSALS: AtomicU64 = AtomicU64::new(0);
static RELEASES: AtomicU64 = AtomicU64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);
static FAILURES: AtomicU64 = AtomicU64::new(0);

/// Sets the reserve to `bytes` bytes, 0 for none, and fills it. `false`: not all of it is there yet; filling is tried
/// again later.
pub fn set_reserve(bytes: usize) -> bool {
    let Some(bytes) = bytes.checked_next_multiple_of(PAGE) else {
        return false;
    };
    let who = who_named();
    if !GUARD.lock(who) {
        return false;
    }
    // ORDER: under GUARD, throughout.
    WANTED.store(bytes, Ordering::Relaxed);
    LAZY.store(0, Ordering::Relaxed); // ORDER: as above
    watch();
    if held() > bytes {
        give_parts(who);
    }
    fill(who);
    let there = held() >= bytes;
    GUARD.unlock();
    if !there {
        hints::wanted();
    }
    there
}

/// Asks for a reserve that grows with the heap (E6). To be called at the start, while there is one thread.
pub fn grow_to(bytes: usize) {
    // ORDER: one thread.
    WANTED.store(
        bytes.checked_next_multiple_of(PAGE).unwrap_or(0),
        Ordering::Relaxed,
    );
    LAZY.store(1, Ordering::Relaxed); // ORDER: as above
    watch();
}

/// Has the children of forks keep the reserve (E8).
pub fn keep_in_children() {
    // ORDER: set at start.
    IN_CHILDREN.store(1, Ordering::Relaxed);
}

/// Returns the bytes that the reserve is to have by now.
fn due() -> usize {
    // ORDER: hints outside of GUARD.
    let wanted = WANTED.load(Ordering::Relaxed);
    if LAZY.load(Ordering::Relaxed) == 0 {
        return wanted;
    }
    let in_use = TOUCHED.load(Ordering::Relaxed) as usize * PAGE; // ORDER: as above
    // What there is stays.
    in_use.saturating_sub(held()).min(wanted).max(held())
}

/// Returns the bytes that may be taken now (E7).
fn available() -> usize {
    let group = cgroup::room().map_or(usize::MAX, |room| room.free.saturating_sub(room.margin));
    let machine = cgroup::available().unwrap_or(usize::MAX);
    group.min(machine) / 2
}

/// Returns the bytes that the reserve has now.
pub fn held() -> usize {
    // ORDER: a statistic outside of GUARD.
    HELD.load(Ordering::Relaxed)
}

/// Reports whether a large block is a part of the reserve.
pub fn holds(start: usize) -> bool {
    // ORDER: a statistic.
    PART.iter()
        .any(|part| part.load(Ordering::Relaxed) == start)
}

/// Counts of what was done for want of memory.
pub struct Counts {
    /// Number of times that the OS refused and something was tried.
    pub refusals: u64,
    /// Number of times that the reserve was released.
    pub releases: u64,
    /// Number of times that a listener was called.
    pub calls: u64,
    /// Number of calls that failed.
    pub failures: u64,
}

/// Returns the counts so far.
pub fn counts() -> Counts {
    // ORDER: statistics.
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    Counts {
        refusals: of(&REFUSALS),
        releases: of(&RELEASES),
        calls: of(&CALLS),
        failures: of(&FAILURES),
    }
}

/// Has the pool count what it hands out from now on, if anything would be done about it. GUARD is held.
fn watch() {
    // ORDER: under GUARD; hints outside of it.
    let any = WANTED.load(Ordering::Relaxed) != 0 || LISTENING.load(Ordering::Relaxed) != 0;
    WATCHED.store(u32::from(any), Ordering::Relaxed); // ORDER: as above
}

/// Takes what is missing from the reserve, as far as there is memory. GUARD is held.
fn fill(who: Who) {
    let mut left = due().saturating_sub(held());
    if left > 0 {
        left = left.min(available() & !(PAGE - 1));
    }
    let mut size = left;
    for part in &PART {
        if left == 0 {
            return;
        }
        // ORDER: under GUARD.
        if part.load(Ordering::Relaxed) != 0 {
            continue;
        }
        size = size.min(left);
        let block = loop {
            let (block, _) = large::malloc_as(who, size, PAGE);
            if !block.is_null() {
                break block;
            }
            size = (size / 2).next_multiple_of(PAGE);
            if size < PART_MIN {
                return;
            }
        };
        for page in (0..size).step_by(PAGE) {
            // SAFETY: a page of the block (E1).
            unsafe { block.add(page).write_volatile(1) };
        }
        part.store(block as usize, Ordering::Relaxed); // ORDER: as above
        HELD.fetch_add(size, Ordering::Relaxed); // ORDER: as above
        left -= size;
    }
}

/// Gives the reserve to the pool. GUARD is held.
fn give_parts(who: Who) -> usize {
    for part in &PART {
        // ORDER: under GUARD.
        let block = part.swap(0, Ordering::Relaxed);
        if block != 0 {
            // SAFETY: a live large block of ours.
            unsafe { large::free_as(who, block as *mut u8) };
        }
    }
    // ORDER: as above.
    HELD.swap(0, Ordering::Relaxed)
}

/// Releases the reserve; returns the bytes that this freed.
fn release() -> usize {
    let who = tls::who();
    if held() == 0 || !GUARD.lock(who) {
        return 0;
    }
    let bytes = give_parts(who);
    let now = sys::monotonic_ns();
    // ORDER: under GUARD. Soon after the last release it waits longer; after a long time it waits as at first.
    let wait = WAIT.load(Ordering::Relaxed);
    let long_ago = now > NEXT_TRY.load(Ordering::Relaxed) + WAIT_NS.1; // ORDER: as above
    let wait = if long_ago {
        WAIT_NS.0
    } else {
        (wait * 2).clamp(WAIT_NS.0, WAIT_NS.1)
    };
    WAIT.store(wait, Ordering::Relaxed); // ORDER: as above
    NEXT_TRY.store(now + wait, Ordering::Relaxed); // ORDER: as above
    GUARD.unlock();
    if bytes > 0 {
        RELEASES.fetch_add(1, Ordering::Relaxed); // ORDER: a statistic
        hints::wanted();
    }
    bytes
}

/// Fills the reserve again, if it is time. `true`: some of it is still missing, so that the purger, which calls this,
/// stays. Uses no thread-local storage.
pub fn refill() -> bool {
    if held() >= due() {
        return false;
    }
    let now = sys::monotonic_ns();
    // ORDER: a look; GUARD orders.
    if now < NEXT_TRY.load(Ordering::Relaxed) || !GUARD.try_lock(PURGER) {
        return true;
    }
    // Not where the cgroup's limit is so near that the reserve would be released again.
    let room = cgroup::room();
    // ORDER: under GUARD.
    if room.is_none_or(|room| room.free > room.margin + WANTED.load(Ordering::Relaxed)) {
        fill(PURGER);
    }
    let missing = held() < due();
    if missing {
        let wait = (WAIT.load(Ordering::Relaxed) * 2).clamp(WAIT_NS.0, WAIT_NS.1); // ORDER: as above
        WAIT.store(wait, Ordering::Relaxed); // ORDER: as above
        NEXT_TRY.store(now + wait, Ordering::Relaxed); // ORDER: as above
    }
    GUARD.unlock();
    missing
}

/// Adds a listener. `false`: there are [`LISTENERS`] already.
///
/// It is called on the thread that runs out of memory, with no lock of ours held, perhaps on several threads at once.
/// It may allocate and free, and must return.
pub fn on_pressure(listener: Listener, context: *mut c_void) -> bool {
    if !GUARD.lock(who_named()) {
        return false;
    }
    // ORDER: under GUARD.
    let free = LISTENER
        .iter()
        .find(|slot| slot.0.load(Ordering::Relaxed) == 0);
    if let Some(slot) = free {
        slot.1.store(context as usize, Ordering::Relaxed); // ORDER: as above
        slot.0.store(listener as usize, Ordering::Relaxed); // ORDER: as above
        LISTENING.fetch_add(1, Ordering::Relaxed); // ORDER: a hint outside of GUARD
        watch();
    }
    GUARD.unlock();
    free.is_some()
}

/// Removes a listener. Another thread may still be in it. `false`: it was not added.
pub fn off_pressure(listener: Listener, context: *mut c_void) -> bool {
    if !GUARD.lock(who_named()) {
        return false;
    }
    // ORDER: under GUARD.
    let found = LISTENER.iter().find(|slot| {
        slot.0.load(Ordering::Relaxed) == listener as usize
            && slot.1.load(Ordering::Relaxed) == context as usize // ORDER: as above
    });
    if let Some(slot) = found {
        slot.0.store(0, Ordering::Relaxed); // ORDER: as above
        LISTENING.fetch_sub(1, Ordering::Relaxed); // ORDER: as in `on_pressure`
        watch();
    }
    GUARD.unlock();
    found.is_some()
}

/// Calls every listener; returns their number. No lock is held (E2).
fn tell(level: Level, wanted: usize) -> u32 {
    // ORDER: a hint.
    if LISTENING.load(Ordering::Relaxed) == 0 {
        return 0;
    }
    let heap = tls::get();
    if heap.is_null() || tls::is_ended(heap) {
        return 0;
    }
    // SAFETY: a thread's heap stays (pool.G4).
    let calling = unsafe { &(*heap).calling };
    // ORDER: this thread's own, throughout.
    if calling.swap(1, Ordering::Relaxed) != 0 {
        return 0;
    }
    let mut listeners = [(0usize, 0usize); LISTENERS];
    if GUARD.lock(tls::who()) {
        for (copy, slot) in listeners.iter_mut().zip(&LISTENER) {
            // ORDER: under GUARD.
            *copy = (
                slot.0.load(Ordering::Relaxed),
                slot.1.load(Ordering::Relaxed),
            );
        }
        GUARD.unlock();
    }
    let mut called = 0;
    for (listener, context) in listeners {
        if listener != 0 {
            // SAFETY: only `on_pressure` writes there, and it wrote a function of this type.
            let listener: Listener = unsafe { core::mem::transmute(listener) };
            // SAFETY: the code that added it promised that it may be called so.
            unsafe { listener(context as *mut c_void, level as i32, wanted) };
            called += 1;
        }
    }
    CALLS.fetch_add(u64::from(called), Ordering::Relaxed); // ORDER: a statistic
    calling.store(0, Ordering::Relaxed); // ORDER: as above
    called
}

/// Reports whether the pool's free pages and the reserve together have `n` bytes.
fn may_help(n: usize) -> bool {
    let free = with_pool(tls::who(), |pool| {
        (pool.dirty_pages + pool.clean_pages + pool.claimed_pages) as usize * PAGE
    });
    n <= free.unwrap_or(0) + held()
}

/// Handles the OS's refusal of a request of `n` bytes. `true`: something may have become free, so the caller tries
/// again. `false`: nothing more can be done. `round` is 0 at first.
pub fn out_of_memory(n: usize, round: &mut u32) -> bool {
    *round += 1;
    // A size that no address space could hold is a mistake and no pressure.
    if n / PAGE >= MAX_PAGES as usize || *round > ROUNDS {
        FAILURES.fetch_add(1, Ordering::Relaxed); // ORDER: a statistic
        return false;
    }
    if *round == 1 {
        REFUSALS.fetch_add(1, Ordering::Relaxed); // ORDER: a statistic
    }
    // What a hardened process keeps only to watch it goes first.
    let relieved = *round == 1 && slow::hardening().is_some_and(|hardening| (hardening.relieve)());
    let released = may_help(n) && release() > 0;
    let trimmed = trim();
    let level = if released {
        Level::Reserve
    } else {
        Level::Critical
    };
    let told = *round == 1 && tell(level, n) > 0;
    // A second round is for memory that other threads took first.
    if relieved || released || told || (trimmed && *round == 1) {
        return true;
    }
    FAILURES.fetch_add(1, Ordering::Relaxed); // ORDER: a statistic
    false
}

/// Counts pages that were not resident and have been handed out, `pages` so far; now and then it makes the next slow
/// path look at the cgroup. The pool's lock is held. Cost: two loads.
pub fn handed_out(pages: u64) {
    // ORDER: hints.
    if LISTENING.load(Ordering::Relaxed) != 0 || WANTED.load(Ordering::Relaxed) != 0 {
        let more = pages.wrapping_sub(SEEN.load(Ordering::Relaxed)); // ORDER: under the pool's lock
        if more >= LOOK_PAGES {
            SEEN.store(pages, Ordering::Relaxed); // ORDER: as above
            LOOK.store(more as usize * PAGE, Ordering::Relaxed); // ORDER: a hint
        }
    }
}

/// Looks at the cgroup, and acts if its limit is near; no lock is held. The caller has seen that it is time.
#[cold]
#[inline(never)]
pub fn look() {
    // ORDER: one thread looks.
    let touched = LOOK.swap(0, Ordering::Relaxed);
    // 1: only the purger's work was due (purger.U6).
    if touched <= 1 || rights::confined() {
        return;
    }
    // The pages that were handed out may not be touched yet, and as many are handed out before the next look.
    if cgroup::room().is_none_or(|room| room.free > room.margin + 2 * touched) {
        grow();
        return;
    }
    release();
    tell(Level::Near, 0);
    // Last: the block that is being allocated is new memory, and will be touched, while what the
    // listeners freed lies in the pool and counts.
    trim();
}

/// Fills a reserve that grows with the heap (E6).
fn grow() {
    let who = tls::who();
    // ORDER: hints, until GUARD is held.
    let later = sys::monotonic_ns() < NEXT_TRY.load(Ordering::Relaxed);
    if !later && held() < due() && GUARD.lock(who) {
        fill(who);
        GUARD.unlock();
    }
}

/// Clears, in the child of a fork, the mark of being in a listener: its only thread is in none. Its reserve goes (E8).
pub fn forget() {
    GUARD.reset();
    // ORDER: one thread.
    if IN_CHILDREN.load(Ordering::Relaxed) == 0 && WANTED.swap(0, Ordering::Relaxed) != 0 {
        give_parts(FORKER);
        watch();
    }
    // SAFETY: a thread's heap stays (pool.G4).
    if let Some(heap) = unsafe { tls::get().as_ref() } {
        heap.calling.store(0, Ordering::Relaxed); // ORDER: one thread
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_engine::alone;

    /// Whether the next slow path looks, after so many pages more.
    fn looks_after(pages: u64) -> bool {
        // ORDER: one thread, throughout.
        LOOK.store(0, Ordering::Relaxed);
        handed_out(SEEN.load(Ordering::Relaxed) + pages); // ORDER: as above
        let due = LOOK.swap(0, Ordering::Relaxed); // ORDER: as above
        assert!(due == 0 || due == pages as usize * PAGE, "{due}");
        due != 0
    }

    #[test]
    fn a_reserve_or_a_listener_is_enough_for_a_look_and_so_are_four_mib() {
        let _alone = alone();
        assert!(!looks_after(LOOK_PAGES), "no thread would know what to do");
        // ORDER: one thread.
        WANTED.store(1 << 20, Ordering::Relaxed);
        assert!(!looks_after(LOOK_PAGES - 1) && looks_after(LOOK_PAGES));
        LISTENING.store(1, Ordering::Relaxed); // ORDER: as above
        assert!(looks_after(2 * LOOK_PAGES));
        WANTED.store(0, Ordering::Relaxed); // ORDER: as above
        assert!(!looks_after(LOOK_PAGES - 1) && looks_after(LOOK_PAGES));
        LISTENING.store(0, Ordering::Relaxed); // ORDER: as above
        // As it was: the pool says how many pages there were in truth.
        SEEN.store(0, Ordering::Relaxed); // ORDER: as above
    }

    /// What was released is filled again after a second, and later each time that it did not last.
    #[test]
    fn the_reserve_comes_back_later_each_time() {
        let _alone = alone();
        const BYTES: usize = 1 << 20;
        // ORDER: one thread, throughout.
        let wait_s = || WAIT.load(Ordering::Relaxed) / 1_000_000_000;
        assert!(set_reserve(BYTES) && held() == BYTES);
        assert!(!refill(), "all is there");
        assert_eq!((release(), held()), (BYTES, 0));
        assert_eq!(wait_s(), 1);
        assert!(refill(), "not yet");
        assert_eq!(held(), 0);
        for wait in [2, 4, 8, 16, 32, 60, 60] {
            NEXT_TRY.store(0, Ordering::Relaxed); // ORDER: as above
            assert!(!refill(), "its time has come");
            assert_eq!(held(), BYTES);
            // As if it had been filled just now.
            NEXT_TRY.store(sys::monotonic_ns(), Ordering::Relaxed); // ORDER: as above
            assert_eq!((release(), wait_s()), (BYTES, wait));
        }
        NEXT_TRY.store(0, Ordering::Relaxed); // ORDER: as above
        assert!(!refill());
        // After a long time it is as at first, where the machine has run for so long.
        NEXT_TRY.store(0, Ordering::Relaxed); // ORDER: as above
        let long_ago = sys::monotonic_ns() > WAIT_NS.1;
        release();
        assert_eq!(wait_s(), if long_ago { 1 } else { 60 });
        assert!(set_reserve(0));
        assert!(!refill(), "none is wanted");
        assert_eq!(release(), 0);
    }

    /// A reserve of the environment's is no larger than what is in use besides, nor than half of what is available; the
    /// child of a fork has none.
    #[test]
    fn a_reserve_grows_with_the_heap() {
        let _alone = alone();
        let in_use = || TOUCHED.load(Ordering::Relaxed) as usize * PAGE; // ORDER: one thread
        trim();
        let (other, _) = large::malloc(1 << 20, 1);
        NEXT_TRY.store(0, Ordering::Relaxed); // ORDER: as above
        grow_to(1 << 40);
        assert_eq!(held(), 0, "nothing at the start");
        let before = in_use();
        grow();
        let most = cgroup::available().expect("a kernel's estimate");
        assert!(
            (1..=before).contains(&held()) && held() <= most,
            "{}",
            held()
        );
        let (first, held_first) = (in_use(), held());
        let (block, _) = large::malloc(1 << 20, 1);
        assert!(in_use() > first);
        grow();
        assert!(held() > held_first, "it grows with the heap");
        grow();
        assert!(held() <= in_use() - held());
        forget();
        assert_eq!((held(), due()), (0, 0), "as in the child of a fork");
        // SAFETY: live blocks.
        [block, other]
            .into_iter()
            .for_each(|block| unsafe { large::free(block) });
        assert!(set_reserve(0));
        trim();
    }

    unsafe extern "C" fn count(calls: *mut c_void, _: i32, _: usize) {
        // SAFETY: the test's own count.
        unsafe { *calls.cast::<u32>() += 1 };
    }

    /// Listeners are told by threads that have a heap, and not within themselves.
    #[test]
    fn who_cannot_call_a_listener_calls_none() {
        let _alone = alone();
        let mut calls = 0u32;
        assert_eq!(tell(Level::Near, 0), 0, "there is none");
        let mine = tls::get();
        tls::set(core::ptr::null_mut());
        LISTENING.store(1, Ordering::Relaxed); // ORDER: one thread
        assert_eq!(tell(Level::Near, 0), 0, "a thread without a heap");
        LISTENING.store(0, Ordering::Relaxed); // ORDER: as above
        let heap = crate::test_engine::new();
        tls::set(core::ptr::from_ref(heap).cast_mut());
        let context = (&raw mut calls).cast();
        assert!(on_pressure(count, context));
        assert_eq!(tell(Level::Near, 0), 1);
        heap.calling.store(1, Ordering::Relaxed); // ORDER: as above
        assert_eq!(tell(Level::Near, 0), 0, "it is in a listener");
        heap.calling.store(0, Ordering::Relaxed); // ORDER: as above
        assert_eq!(tell(Level::Near, 0), 1);
        assert!(off_pressure(count, context));
        tls::set(mine);
        assert_eq!(calls, 2);
    }

    #[test]
    fn a_look_that_is_due_is_had_once() {
        let _alone = alone();
        LOOK.store(1, Ordering::Relaxed); // ORDER: one thread
        look();
        assert_eq!(LOOK.load(Ordering::Relaxed), 0); // ORDER: as above
    }

    /// A refusal is worth another try if a trim brought something, and no further one.
    #[test]
    fn what_a_trim_frees_is_worth_one_more_try() {
        let _alone = alone();
        const WANTED_BYTES: usize = 1 << 30;
        while trim() {}
        let before = counts();
        let counted = |refusals, failures| {
            let now = counts();
            assert_eq!(now.refusals - before.refusals, refusals);
            assert_eq!(now.failures - before.failures, failures);
        };
        let mut round = 0;
        assert!(!out_of_memory(WANTED_BYTES, &mut round), "nothing is there");
        counted(1, 1);
        let dirty = || {
            let (block, _) = large::malloc(100_000, 1);
            // SAFETY: a block of this many bytes, freed at once.
            unsafe {
                block.write_bytes(1, 100_000);
                large::free(block);
            }
        };
        dirty();
        let mut round = 0;
        assert!(out_of_memory(WANTED_BYTES, &mut round));
        counted(2, 1);
        // In between others may have freed: theirs is the second try.
        dirty();
        assert!(!out_of_memory(WANTED_BYTES, &mut round), "{round}");
        counted(2, 2);
        assert!(!out_of_memory(WANTED_BYTES, &mut round), "{round}");
        counted(2, 3);
        let mut round = 0;
        dirty();
        assert!(!out_of_memory(1 << 50, &mut round), "no address space");
        counted(2, 4);
        while trim() {}
    }
}
