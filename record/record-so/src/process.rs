//! State that the threads of a process share inside the recorder.
//!
//! ```text
//!   live page (wiped in a child)   epoch: 0 = this process is not linked yet
//!                                         n = linked; another n: modules were unloaded since
//! ```
//!
//! G1  `epoch` is 0 exactly in a process that has not met the collector: before the first event, or
//!     in a fresh child of `fork`. The kernel clears it (`MADV_WIPEONFORK`); we never do.
//! G2  While `MULTI` is 0 only one thread records, and counts tickets in its own state; afterwards
//!     tickets come from `TICKET`, one atomic add each. It is set before a second thread starts.
//! G3  `OFF` is never taken back within a process, unless a debugger attaches to it anew.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use skinflint_base::ring::{
    GAVE_UP_FILTER, GAVE_UP_SILENCE, NotifierPage, ProcessHeader, RECORD_ALL, RECORD_NOTHING,
    SNAPSHOT_EXIT, SNAPSHOT_LOOK, SessionPage,
};
use skinflint_base::samples::Line;
use skinflint_base::sys;

use crate::patience::{LOOK_NS, Patience};
use crate::sites;

/// The live page, which the kernel zeroes in children.
#[repr(C)]
pub struct LivePage {
    /// See G1.
    pub epoch: AtomicU64,
    /// Acquisitions of so many bytes and fewer may take the short way (hooks/entries.rs); 0: none may.
    pub short_below: AtomicU64,
    /// The first lines of samples, for releases that may take the short way; null: none may. Never null for long while the
    /// word above is not 0.
    pub lines: AtomicPtr<Line>,
}

static NOT_LIVE: LivePage = LivePage {
    epoch: AtomicU64::new(0),
    short_below: AtomicU64::new(0),
    lines: AtomicPtr::new(core::ptr::null_mut()),
};
pub static LIVE: AtomicPtr<LivePage> = AtomicPtr::new((&raw const NOT_LIVE).cast_mut());

/// Whether recording is over for this process, or never began (G3).
pub static OFF: AtomicBool = AtomicBool::new(false);
/// Whether recording is over because the collector is silent, or a filter forbids it: whoever waits for room in a ring
/// gives up. Who leaves a program sets `OFF` alone: what was begun is still written, while the collector reads on.
pub static GAVE_UP: AtomicBool = AtomicBool::new(false);
/// Whether more than one thread may record (G2).
pub static MULTI: AtomicBool = AtomicBool::new(false);
/// The newest ticket taken, while `MULTI` (G2).
pub static TICKET: AtomicU64 = AtomicU64::new(0);
/// The session page, once linked.
pub static SESSION: AtomicPtr<SessionPage> = AtomicPtr::new(core::ptr::null_mut());
/// The notifier, once linked; a child of fork keeps its parent's.
pub static NOTIFIER: AtomicPtr<NotifierPage> = AtomicPtr::new(core::ptr::null_mut());
/// The header in the first region, once linked.
pub static HEADER: AtomicPtr<ProcessHeader> = AtomicPtr::new(core::ptr::null_mut());
/// The token that the collector gave this process.
pub static TOKEN: AtomicU64 = AtomicU64::new(0);
/// The id of this process.
pub static PID: AtomicU32 = AtomicU32::new(0);
/// The next epoch to use; it survives in children, so that an epoch is never used twice.
static NEXT_EPOCH: AtomicU64 = AtomicU64::new(1);
/// The bytes that the recorder mapped for itself (rings excluded).
static OWN_BYTES: AtomicUsize = AtomicUsize::new(0);
/// The key whose destructor is called at the end of threads; `u32::MAX` if there is none.
pub static END_KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// The number of attaches so far; slots.rs keeps the states of different attaches apart.
pub static GENERATION: AtomicUsize = AtomicUsize::new(0);

/// Returns the epoch (G1). Cost: two loads.
#[inline(always)]
pub fn epoch() -> u64 {
    // ORDER: Relaxed for both; the page is mapped before the pointer is ever changed, by the only
    // thread there is, and the epoch guards no other data: a thread that sees a new one only
    // forgets its caches.
    let page = LIVE.load(Ordering::Relaxed);
    // SAFETY: the pointer leads to a static or to a page that is never unmapped.
    unsafe { (*page).epoch.load(Ordering::Relaxed) }
}

/// Returns whether this process is a child of fork that has not met the collector yet, and may. Cost: two loads.
#[cold]
pub fn is_new_copy() -> bool {
    // ORDER: Relaxed for both; a child has them from its parent, and one thread.
    let is_of_a_recorded_one = TOKEN.load(Ordering::Relaxed) != 0;
    epoch() == 0 && is_of_a_recorded_one && !OFF.load(Ordering::Relaxed)
}

/// Says which calls may take the short way from now on: acquisitions of up to so many bytes, and releases whose line of
/// `lines` has no bit of theirs. With 0 and null, none.
pub fn let_pass(short_below: u64, lines: *mut Line) {
    // ORDER: Relaxed for the pointer; as in `epoch`.
    let page = LIVE.load(Ordering::Relaxed);
    if page == (&raw const NOT_LIVE).cast_mut() {
        return;
    }
    // ORDER: Relaxed for both words; a thread that has one without the other goes the slow way, and the lines were mapped
    // before they had a sample.
    // SAFETY: as in `epoch`.
    unsafe {
        (*page).lines.store(lines, Ordering::Relaxed);
        (*page).short_below.store(short_below, Ordering::Relaxed);
    }
}

pub fn set_epoch() {
    // ORDER: Relaxed; see `epoch`.
    let next = NEXT_EPOCH.fetch_add(1, Ordering::Relaxed);
    let page = LIVE.load(Ordering::Relaxed);
    // SAFETY: as in `epoch`; NOT_LIVE is never written, `make_live_page` comes first.
    unsafe { (*page).epoch.store(next, Ordering::Relaxed) };
}

pub fn make_live_page() -> bool {
    // ORDER: Relaxed; only the process's first thread comes here.
    if LIVE.load(Ordering::Relaxed) != (&raw const NOT_LIVE).cast_mut() {
        return true;
    }
    let page = sys::map_private(4096);
    const MADV_WIPEONFORK: c_int = 18;
    // SAFETY: the page is ours and fresh.
    if page.is_null() || !unsafe { sys::advise(page, 4096, MADV_WIPEONFORK) } {
        return false;
    }
    // ORDER: Relaxed; as above.
    LIVE.store(page.cast(), Ordering::Relaxed);
    true
}

/// Maps memory for the recorder itself, and counts it; null if the kernel refuses.
pub fn map_own(bytes: usize) -> *mut u8 {
    // ORDER: Relaxed; a counter.
    OWN_BYTES.fetch_add(bytes, Ordering::Relaxed);
    sys::map_private(bytes)
}

/// Begins a new epoch after modules were unloaded: every thread forgets what it knows of code, at its next event.
#[cold]
pub fn new_epoch() {
    if epoch() != 0 {
        set_epoch();
    }
}

/// Shares tickets from now on, as a second thread is about to record. `lone_ticket` is the newest ticket
/// of the thread that was alone.
pub fn go_multi(lone_ticket: u64) {
    // ORDER: Relaxed for the ticket, Release for the flag; a thread that is created afterwards sees
    // both through pthread_create.
    TICKET.store(lone_ticket, Ordering::Relaxed);
    MULTI.store(true, Ordering::Release);
}

/// Returns the header, once linked.
#[inline]
pub fn header() -> Option<&'static ProcessHeader> {
    // ORDER: Acquire; pairs with the Release in `link::begin`.
    let header = HEADER.load(Ordering::Acquire);
    // SAFETY: null, or a mapping that is never unmapped in this process.
    unsafe { header.as_ref() }
}

/// Returns the session page, once linked.
#[inline]
pub fn session() -> Option<&'static SessionPage> {
    // ORDER: Acquire; pairs with the Release in `link::begin`.
    let session = SESSION.load(Ordering::Acquire);
    // SAFETY: null, or a mapping that is never unmapped in this process.
    unsafe { session.as_ref() }
}

/// Returns what is to be recorded now. Cost: two loads, of cache lines that each event's time stamp reads anyway.
#[inline(always)]
fn recording() -> u32 {
    // ORDER: Relaxed for both; see `epoch` for the pointer. A thread that sees a change one event late has that
    // event recorded, or not, as if it had come before the change.
    let session = SESSION.load(Ordering::Relaxed);
    // SAFETY: the caller is between `enter` and `leave`, so the process is linked and the page mapped for good.
    unsafe { (*session).recording.load(Ordering::Relaxed) }
}

/// Returns whether acquisitions are to be recorded; only between `enter` and `leave`.
#[inline(always)]
pub fn wants_acquisitions() -> bool {
    recording() == RECORD_ALL
}

/// Returns whether releases are to be recorded; only between `enter` and `leave`.
#[inline(always)]
pub fn wants_releases() -> bool {
    recording() != RECORD_NOTHING
}

/// Wakes the collector if it sleeps. Cost: one load, and a system call if it sleeps.
#[inline]
pub fn wake_collector(session: &SessionPage) {
    // ORDER: Relaxed; a wake that is missed costs one tick of the collector, which wakes by itself.
    if session.sleeping.load(Ordering::Relaxed) != 0 {
        notify_collector();
    }
}

/// Returns the notifier, once linked.
#[inline]
pub fn notifier() -> Option<&'static NotifierPage> {
    // ORDER: Acquire; pairs with the Release in `link::begin`.
    let notifier = NOTIFIER.load(Ordering::Acquire);
    // SAFETY: null, or a mapping that is never unmapped in this process.
    unsafe { notifier.as_ref() }
}

/// Wakes the collector, whether it sleeps or not.
pub fn notify_collector() {
    if let Some(notifier) = notifier() {
        notifier.wake.fetch_add(1, Ordering::Relaxed); // ORDER: Relaxed; the futex call orders it for the sleeper.
        sys::futex_wake(&notifier.wake);
    }
}

/// Stops recording in this process.
#[cold]
pub fn give_up() {
    // ORDER: Relaxed; flags that stand alone.
    OFF.store(true, Ordering::Relaxed);
    GAVE_UP.store(true, Ordering::Relaxed); // ORDER: as above.
    if let Some(header) = header() {
        header.gave_up.store(GAVE_UP_SILENCE, Ordering::Relaxed); // ORDER: as above.
    }
    // Every thread's next event goes the slow way, and there finds `OFF`.
    new_epoch();
}

/// Stops recording in this process: a filter of system calls would end it at its next event.
#[cold]
pub fn stop_for_a_filter() {
    give_up();
    if let Some(header) = header() {
        header.gave_up.store(GAVE_UP_FILTER, Ordering::Relaxed); // ORDER: Relaxed; as in `give_up`.
    }
}

/// Shows the collector the bytes that the recorder holds.
pub fn publish_own_bytes() {
    if let Some(header) = header() {
        // ORDER: Relaxed; counters.
        let bytes = OWN_BYTES.load(Ordering::Relaxed) as u64;
        header.recorder_bytes.store(bytes, Ordering::Relaxed);
        sites::publish(header);
    }
}

/// Asks for a snapshot of the greatest live heap, and waits for it, within bounds (record_so.O1).
#[cold]
pub fn high_water_snapshot() {
    // ORDER: Relaxed; only a flag.
    if OFF.load(Ordering::Relaxed) {
        return;
    }
    if let Some(header) = header() {
        // ORDER: AcqRel; what the heap was is older than the number.
        let wanted = header.high_water_asked.fetch_add(1, Ordering::AcqRel) + 1;
        wait_for(&header.high_water_done, wanted, HIGH_WATER_WAIT_NS);
    }
}

/// Waits for the snapshot that another thread has asked for by [`high_water_snapshot`], if it is still to be taken.
#[cold]
pub fn same_high_water_snapshot() {
    // ORDER: Relaxed; only a flag.
    if !OFF.load(Ordering::Relaxed)
        && let Some(header) = header()
    {
        // ORDER: Acquire; as for the answer.
        let wanted = header.high_water_asked.load(Ordering::Acquire);
        wait_for(&header.high_water_done, wanted, HIGH_WATER_WAIT_NS);
    }
}

/// The longest time for which a thread waits for a snapshot of the greatest live heap: it may be about to answer a request.
const HIGH_WATER_WAIT_NS: u64 = 2_000_000_000;

/// The longest time for which a thread waits for a snapshot of a mark or of its end. On a busy machine the collector is
/// late, and a program that has gone on is read in the middle of something else.
const SNAPSHOT_WAIT_NS: u64 = 10_000_000_000;

/// The longest wait if the collector asks for more patience: a bound, since the word is in shared memory.
const LONGEST_WAIT_NS: u64 = 60_000_000_000;

/// Asks for a snapshot and waits for it, within bounds (record_so.O1). What the caller keeps in registers is put on the stack
/// first: a look at the program's pointers meanwhile finds all of them from there on, and none of ours.
#[unsafe(naked)]
pub extern "C" fn snapshot(cause: u32) {
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-96]!",
        "stp x19, x20, [sp, #16]",
        "stp x21, x22, [sp, #32]",
        "stp x23, x24, [sp, #48]",
        "stp x25, x26, [sp, #64]",
        "stp x27, x28, [sp, #80]",
        "mov x1, sp",
        "bl {asked}",
        // All others are as they were: callees keep them.
        "ldp x29, x30, [sp], #96",
        "ret",
        asked = sym snapshot_asked,
    );
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov rsi, rsp",
        "sub rsp, 8",
        "call {asked}",
        // All six registers are as they were: callees keep them.
        "add rsp, 56",
        "ret",
        asked = sym snapshot_asked,
    )
}

#[cold]
extern "C" fn snapshot_asked(cause: u32, stack: u64) {
    // ORDER: Relaxed; only a flag.
    if epoch() == 0 || OFF.load(Ordering::Relaxed) {
        return;
    }
    let (Some(header), Some(session)) = (header(), session()) else {
        return;
    };
    publish_own_bytes();
    // ORDER: Relaxed; the number that `ask_and_wait` raises publishes it.
    header.snapshot_cause.store(cause, Ordering::Relaxed);
    header.look_stack.store(stack, Ordering::Relaxed); // ORDER: as the cause.
    let now = sys::monotonic_ns();
    header.asked_ns.store(now, Ordering::Relaxed); // ORDER: as the cause.
    ask_and_wait(header, session);
    header.look_stack.store(0, Ordering::Relaxed); // ORDER: Relaxed; read while this thread is stopped.
}

/// Asks for the last snapshot, and does not wait: whoever leaves a program keeps no thread of it for that.
#[cold]
pub fn ask_for_the_last_snapshot() {
    if let Some(header) = header() {
        publish_own_bytes();
        // ORDER: Relaxed; the number that is raised below publishes both.
        header
            .snapshot_cause
            .store(SNAPSHOT_EXIT, Ordering::Relaxed);
        header
            .asked_ns
            .store(sys::monotonic_ns(), Ordering::Relaxed); // ORDER: as the cause.
        header.snapshot_asked.fetch_add(1, Ordering::AcqRel); // ORDER: AcqRel; publishes the cause.
        notify_collector();
    }
}

/// Raises the number of snapshots asked for, and waits until this number is done.
fn ask_and_wait(header: &ProcessHeader, session: &SessionPage) {
    // ORDER: AcqRel publishes the cause, Acquire for the answer.
    let wanted = header.snapshot_asked.fetch_add(1, Ordering::AcqRel) + 1;
    // ORDER: Relaxed; a figure, set before the program began.
    let patience_ns = u64::from(session.patience_ms.load(Ordering::Relaxed)) * 1_000_000;
    let longest_ns = SNAPSHOT_WAIT_NS.max(patience_ns.min(LONGEST_WAIT_NS));
    wait_for(&header.snapshot_done, wanted, longest_ns);
}

/// Wakes the collector, and waits until it has raised `answered` to `wanted`: as long as it shows signs of life, for
/// `longest_ns` at most.
fn wait_for(answered: &AtomicU32, wanted: u32, longest_ns: u64) {
    let Some(session) = session() else {
        return;
    };
    let mut patience = Patience::begin(session, &OFF);
    if patience.is_still_silent() {
        return;
    }
    notify_collector();
    let until = sys::monotonic_ns() + longest_ns;
    loop {
        // ORDER: Acquire; pairs with the collector's Release: its snapshot is taken.
        let done = answered.load(Ordering::Acquire);
        if done.wrapping_sub(wanted) < u32::MAX / 2 {
            return;
        }
        let now = sys::monotonic_ns();
        if now >= until || patience.is_over() {
            return;
        }
        sys::futex_wait(answered, done, (until - now).min(LOOK_NS));
    }
}

/// Returns whether the collector looks at pointers.
pub fn is_looked_at() -> bool {
    // ORDER: Relaxed; set before the program began.
    epoch() != 0 && session().is_some_and(|page| page.looks.load(Ordering::Relaxed) != 0)
}

/// The process that has reported that its end begins: a child of fork has an end of its own.
static ENDING: AtomicU32 = AtomicU32::new(0);

/// Asks for a look as the end begins: nothing has been destroyed yet.
#[cold]
pub fn end_begins() {
    // A process that is not recorded has nothing to show, and perhaps a filter that kills at the call below.
    // ORDER: Relaxed; only a flag.
    if epoch() == 0 || OFF.load(Ordering::Relaxed) {
        return;
    }
    let own = sys::getpid();
    // ORDER: Relaxed; it does not matter which thread comes first.
    let is_own = own == PID.load(Ordering::Relaxed);
    if is_own && ENDING.swap(own, Ordering::Relaxed) != own {
        snapshot(SNAPSHOT_LOOK);
    }
}

/// Asks for the last snapshot: the program is about to end in an orderly way.
#[cold]
pub fn at_exit() {
    snapshot(SNAPSHOT_EXIT);
}
