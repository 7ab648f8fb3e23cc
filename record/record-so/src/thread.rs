//! The state of each thread of the program inside the recorder, and the ring that it owns.
//!
//! ```text
//!   slot i ── SlotHeader + ring (shared)      state i ── ThreadState (private, mapped once)
//!     owner: FREE ─► ACTIVE tid ─► ENDING tid ─(tid is gone)─► ACTIVE other tid
//! ```
//!
//! H1  A state is used only by the thread whose pointer (tls) leads to it, which is the slot's owner.
//! H2  `busy` is 0 outside, INSIDE while the real function runs, RECORDING while the ring is written;
//!     a call that finds it set passes through (O4), except that mapping calls INSIDE are the
//!     allocator's own and are recorded as such.
//! H3  A slot changes hands only when its last owner's kernel thread no longer exists: a thread may
//!     free memory until its very last instruction, and all of it is recorded.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering, compiler_fence};

use skinflint_base::ring::{
    SLOT_ACTIVE, SLOT_ENDING, SLOT_FREE, SLOTS, SLOTS_OFFSET, SlotHeader, owner, ring_offset, tag,
    word,
};
use skinflint_base::sys;
use skinflint_unwind::StackState;

use crate::attach::GENERATION;
use crate::{emit, link, process, real, tls};

/// The thread is outside of the recorder and of the allocator (H2).
const OUTSIDE: u8 = 0;
/// The real function runs (H2).
pub const INSIDE: u8 = 1;
/// The ring is being written (H2).
pub const RECORDING: u8 = 2;
/// The thread is not recorded.
const NEVER: u8 = 3;

/// A thread's state (H1), in zeroed memory; mapped lazily, so that only the pages in use cost memory.
#[repr(C)]
pub struct ThreadState {
    /// One of the values above (H2).
    pub busy: AtomicU8,
    /// The epoch that the caches below belong to.
    pub epoch: u64,
    /// The writer's end of the thread's ring.
    pub ring: emit::Ring,
    /// The newest ticket of this thread.
    pub ticket: AtomicU64,
    /// The session's tick at the last time stamp.
    pub tick: u32,
    /// The position in the ring at which the next time stamp is due at the latest.
    pub time_due: u64,
    /// The thread's own stack: lowest and one past the highest address.
    pub stack_bounds: (u64, u64),
    /// The number of rules that had been made when modules were last looked at.
    pub rules_seen: u64,
    /// The number of frames of the stack as the ring has it.
    pub depth: usize,
    /// The bytes gained since they were last added to the sum of all threads (`turn`).
    pub gained: i64,
    /// The number of marks asked for by signals that came while the thread was busy.
    pub pending_marks: u32,
    /// The attach that it belongs to ([`GENERATION`]).
    pub generation: usize,
    /// What the unwinder remembers.
    pub stack: StackState,
}

/// The most attaches of one process.
const MAX_GENERATIONS: usize = 64;

/// States that stand in for those of threads that are being registered, or cannot be, one for each generation. Only
/// `busy` is ever looked at.
static NOBODIES: [AtomicU8; MAX_GENERATIONS] = [const { AtomicU8::new(NEVER) }; MAX_GENERATIONS];

fn generation() -> usize {
    // ORDER: Relaxed; changed only while no thread records.
    GENERATION.load(Ordering::Relaxed)
}

fn nobody() -> *mut ThreadState {
    let nobody = &NOBODIES[generation() & (MAX_GENERATIONS - 1)];
    core::ptr::from_ref(nobody).cast::<ThreadState>().cast_mut()
}

/// Returns whether a state is of an earlier attach: its ring is no longer read, and may soon be another thread's.
///
/// # Safety
/// `state` is what a thread's pointer holds, and not null.
unsafe fn is_stale(state: *mut ThreadState) -> bool {
    let nobodies = NOBODIES.as_ptr() as usize;
    if (state as usize).wrapping_sub(nobodies) < size_of_val(&NOBODIES) {
        return state != nobody();
    }
    // SAFETY: states are never unmapped.
    unsafe { (*state).generation != generation() }
}

/// Begins another generation: all slots and states are forgotten. Returns whether there was one left. Only while no
/// thread records (attach.rs).
pub fn new_generation() -> bool {
    let next = generation() + 1;
    if next >= MAX_GENERATIONS {
        return false;
    }
    GENERATION.store(next, Ordering::Relaxed); // ORDER: as in `generation`.
    forget_slots();
    for slot in &TABLE {
        // ORDER: Relaxed; as above. A state may be in use until its thread's next event: it is not given to another.
        slot.state.store(core::ptr::null_mut(), Ordering::Relaxed);
        slot.header.store(core::ptr::null_mut(), Ordering::Relaxed);
    }
    tls::set(core::ptr::null_mut());
    true
}

struct Slot {
    header: AtomicPtr<SlotHeader>,
    ring: AtomicPtr<u64>,
    state: AtomicPtr<ThreadState>,
}

const MAX_SLOTS: usize = 256 * SLOTS;
static TABLE: [Slot; MAX_SLOTS] = [const {
    Slot {
        header: AtomicPtr::new(core::ptr::null_mut()),
        ring: AtomicPtr::new(core::ptr::null_mut()),
        state: AtomicPtr::new(core::ptr::null_mut()),
    }
}; MAX_SLOTS];
static SLOT_COUNT: AtomicUsize = AtomicUsize::new(0);
/// The first thread that recorded in this process, alone until `process::MULTI`.
static LONE: AtomicPtr<ThreadState> = AtomicPtr::new(core::ptr::null_mut());

/// The distance that shared tickets keep from those of a thread that was alone: it may be counting
/// while they begin.
const TICKET_GAP: u64 = 1 << 20;

/// Begins a call. Returns the state, marked INSIDE, or null if the call is to pass straight through.
/// Cost: six loads, three branches, one store.
#[inline(always)]
pub fn enter() -> *mut ThreadState {
    let state = tls::get();
    if !state.is_null() {
        // SAFETY: H1; `nobody` has the byte too.
        unsafe {
            // ORDER: Relaxed; only this thread and its signal handlers look at it.
            if (*state).busy.load(Ordering::Relaxed) == OUTSIDE
                && (*state).epoch == process::epoch()
            {
                (*state).busy.store(INSIDE, Ordering::Relaxed);
                compiler_fence(Ordering::SeqCst);
                return state;
            }
        }
    }
    enter_slow(state)
}

#[cold]
#[inline(never)]
fn enter_slow(state: *mut ThreadState) -> *mut ThreadState {
    // SAFETY: it is what this thread's pointer holds.
    let state = if state.is_null() || unsafe { is_stale(state) } {
        register(true)
    } else {
        state
    };
    // SAFETY: H1; `nobody` has the byte too.
    unsafe {
        // ORDER: Relaxed, as in `enter`.
        match (*state).busy.load(Ordering::Relaxed) {
            OUTSIDE => {}
            NEVER => return core::ptr::null_mut(),
            _ => {
                if let Some(header) = process::header() {
                    header.nested_events.fetch_add(1, Ordering::Relaxed);
                }
                return core::ptr::null_mut();
            }
        }
        // ORDER: Relaxed; a flag.
        if process::OFF.load(Ordering::Relaxed) {
            tls::set(nobody());
            return core::ptr::null_mut();
        }
        // ORDER: Relaxed, as in `enter`.
        (*state).busy.store(RECORDING, Ordering::Relaxed);
        let recorded = catch_up(state);
        // ORDER: Relaxed, as in `enter`.
        (*state).busy.store(INSIDE, Ordering::Relaxed);
        if recorded {
            state
        } else {
            core::ptr::null_mut()
        }
    }
}

/// Brings a state up to the process's epoch: after a fork, or after modules were unloaded.
///
/// # Safety
/// H1.
unsafe fn catch_up(state: *mut ThreadState) -> bool {
    let epoch = process::epoch();
    // SAFETY: H1.
    unsafe {
        if epoch == 0 {
            // A child of fork: this is its only thread, and the state is a copy of its parent's.
            let bounds = (*state).stack_bounds;
            if !process::link() || !take_slot(state) {
                (*state).busy.store(OUTSIDE, Ordering::Relaxed); // ORDER: Relaxed, as in `enter`.
                tls::set(nobody());
                return false;
            }
            (*state).stack_bounds = bounds;
            emit::thread_begins(state);
            // ORDER: Relaxed; one thread.
            LONE.store(state, Ordering::Relaxed);
        }
        (*state).stack.invalidate();
        (*state).epoch = process::epoch();
    }
    true
}

/// Ends a call that `enter` let in.
///
/// # Safety
/// `state` is what `enter` returned, not null.
#[inline(always)]
pub unsafe fn leave(state: *mut ThreadState) {
    // ORDER: SeqCst for the compiler alone: it must not move the ring's stores across `busy`.
    compiler_fence(Ordering::SeqCst);
    // SAFETY: H1.
    unsafe {
        // ORDER: Relaxed, as in `enter`.
        (*state).busy.store(OUTSIDE, Ordering::Relaxed);
        if (*state).pending_marks != 0 {
            emit::pending_marks(state);
        }
    }
}

/// Switches between INSIDE and RECORDING.
///
/// # Safety
/// Between `enter` and `leave`.
#[inline(always)]
pub unsafe fn set_busy(state: *mut ThreadState, busy: u8) {
    // ORDER: SeqCst for the compiler alone: it must not move the ring's stores across `busy`.
    compiler_fence(Ordering::SeqCst);
    // SAFETY: H1. ORDER: Relaxed, as in `enter`.
    unsafe { (*state).busy.store(busy, Ordering::Relaxed) };
    compiler_fence(Ordering::SeqCst);
}

/// Begins a mapping call that is the allocator's own. Returns the state, marked RECORDING, if this thread
/// is inside the real allocator, else null. The caller sets it back to INSIDE.
pub fn enter_from_allocator() -> *mut ThreadState {
    let state = tls::get();
    if state.is_null() {
        return state;
    }
    // SAFETY: H1; `nobody` has the byte too.
    unsafe {
        // ORDER: Relaxed, as in `enter`.
        let inside = (*state).busy.load(Ordering::Relaxed) == INSIDE;
        if inside && (*state).epoch == process::epoch() {
            set_busy(state, RECORDING);
            return state;
        }
    }
    core::ptr::null_mut()
}

/// Registers this thread if it is not registered, at a moment when nothing may be allocated: a stack
/// whose bounds the kernel does not know is then unwound with the same care as a foreign one.
pub fn register_without_allocating() {
    if tls::get().is_null() {
        register(false);
    }
}

/// Registers a thread at its first event. Returns its state, or `nobody`.
#[cold]
fn register(may_allocate: bool) -> *mut ThreadState {
    // What happens from here on (pthread_getattr_np may allocate) passes through.
    tls::set(nobody());
    // ORDER: Relaxed; a flag.
    if process::OFF.load(Ordering::Relaxed) || real::is_resolving() {
        if real::is_resolving() {
            tls::set(core::ptr::null_mut());
        }
        return nobody();
    }
    real::resolve();
    if process::epoch() == 0 {
        if !process::link() {
            return nobody();
        }
        crate::hooks::process_begins();
    // ORDER: Relaxed; see G2: the second thread makes it true first.
    } else if !process::MULTI.load(Ordering::Relaxed) {
        before_second_thread();
    }
    let state = claim_slot();
    if state.is_null() {
        if let Some(header) = process::header() {
            // ORDER: Relaxed; a counter.
            header.unserved_threads.fetch_add(1, Ordering::Relaxed);
        }
        return nobody();
    }
    // SAFETY: the slot and so the state are ours (H1).
    unsafe {
        (*state).stack_bounds = own_stack(may_allocate);
        (*state).epoch = process::epoch();
        (*state).stack.invalidate();
        emit::thread_begins(state);
    }
    // ORDER: Relaxed for LONE; read by this thread, or by one that it creates.
    let none = core::ptr::null_mut();
    let _ = LONE.compare_exchange(none, state, Ordering::Relaxed, Ordering::Relaxed);
    hear_of_end(state, may_allocate);
    tls::set(state);
    state
}

/// Makes tickets shared, before a thread starts (or at its first event, if it started unseen).
pub fn before_second_thread() {
    // ORDER: Relaxed; see G2. The thread that was alone may be counting: hence the gap.
    if !process::MULTI.load(Ordering::Relaxed) {
        process::go_multi(single_ticket() + TICKET_GAP);
    }
}

/// Returns the newest ticket of the thread that is alone.
pub fn single_ticket() -> u64 {
    // ORDER: Relaxed; a count that may be a little old, see `TICKET_GAP`.
    let lone = LONE.load(Ordering::Relaxed);
    if lone.is_null() {
        0
    } else {
        // SAFETY: states are never unmapped; the field is atomic. ORDER: Relaxed; as above.
        unsafe { (*lone).ticket.load(Ordering::Relaxed) }
    }
}

/// Forgets the parent's slots in a child of fork. The states are reused.
pub fn forget_slots() {
    // ORDER: Relaxed; one thread.
    SLOT_COUNT.store(0, Ordering::Relaxed);
    LONE.store(core::ptr::null_mut(), Ordering::Relaxed);
}

/// Adds the slots of a fresh region. Returns whether there was room for them in the table.
pub fn add_region(region: *mut u8) -> bool {
    // ORDER: AcqRel; a thread that sees the new count sees the entries (they are written first, and
    // only by the thread that claimed the range: two threads that add regions get different ranges).
    static CLAIMED: AtomicUsize = AtomicUsize::new(0);
    if SLOT_COUNT.load(Ordering::Acquire) == 0 {
        CLAIMED.store(0, Ordering::Relaxed);
    }
    let first = CLAIMED.fetch_add(SLOTS, Ordering::AcqRel);
    if first + SLOTS > MAX_SLOTS {
        return false;
    }
    for index in 0..SLOTS {
        let slot = &TABLE[first + index];
        // SAFETY: offsets inside the region, by the layout of `ring`.
        unsafe {
            let header = region.add(SLOTS_OFFSET).cast::<SlotHeader>().add(index);
            // ORDER: Relaxed; published by `header` below.
            slot.ring
                .store(region.add(ring_offset(index)).cast(), Ordering::Relaxed);
            // ORDER: Release; pairs with the Acquire of `header` in `claim_among_known`.
            slot.header.store(header, Ordering::Release);
        }
    }
    // ORDER: AcqRel; pairs with the Acquire of the count in `claim_among_known`.
    SLOT_COUNT.fetch_max(first + SLOTS, Ordering::AcqRel);
    true
}

/// Finds a slot for this thread and prepares its state; null if no slot can be had.
fn claim_slot() -> *mut ThreadState {
    for look_at_active in [false, true] {
        let state = claim_among_known(look_at_active);
        if !state.is_null() {
            return state;
        }
    }
    if link::more_slots() {
        claim_among_known(false)
    } else {
        core::ptr::null_mut()
    }
}

fn claim_among_known(look_at_active: bool) -> *mut ThreadState {
    // ORDER: Acquire; pairs with `add_region`.
    let count = SLOT_COUNT.load(Ordering::Acquire).min(MAX_SLOTS);
    let (pid, tid) = (process::PID.load(Ordering::Relaxed), sys::gettid());
    for slot in &TABLE[..count] {
        let header = slot.header.load(Ordering::Acquire);
        if header.is_null() {
            continue;
        }
        // SAFETY: regions stay mapped as long as the process lives.
        let header = unsafe { &*header };
        // ORDER: Acquire/AcqRel; the new owner continues where the old one, whose thread has ended,
        // left `tail`.
        let seen = header.owner.load(Ordering::Acquire);
        let (state, old_tid) = ((seen >> 32) as u32, seen as u32);
        let may_take = match state {
            SLOT_FREE => true,
            SLOT_ENDING => old_tid == tid || !sys::thread_exists(pid, old_tid),
            _ => look_at_active && (old_tid == tid || !sys::thread_exists(pid, old_tid)),
        };
        let ours = owner(SLOT_ACTIVE, tid);
        // ORDER: AcqRel; as said at `owner` above; a lost race needs no order.
        if may_take
            && header
                .owner
                .compare_exchange(seen, ours, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        {
            return ready_state(slot, header);
        }
    }
    core::ptr::null_mut()
}

/// Returns the state that belongs to a slot, mapped at its first use.
fn ready_state(slot: &Slot, header: &'static SlotHeader) -> *mut ThreadState {
    // ORDER: Relaxed; only the slot's owner comes here.
    let mut state = slot.state.load(Ordering::Relaxed);
    if state.is_null() {
        state = process::map_own(size_of::<ThreadState>()).cast();
        slot.state.store(state, Ordering::Relaxed);
        process::publish_own_bytes();
    }
    if state.is_null() {
        // ORDER: Release; gives the slot back.
        header.owner.store(0, Ordering::Release);
        return state;
    }
    // SAFETY: H1: the slot is ours.
    unsafe { begin_state(state, slot, header) };
    state
}

/// # Safety
/// The caller owns the slot.
unsafe fn begin_state(state: *mut ThreadState, slot: &Slot, header: &'static SlotHeader) {
    // SAFETY: as the caller promises.
    unsafe {
        let words = slot.ring.load(Ordering::Relaxed).cast(); // ORDER: as above.
        (*state).ring = emit::Ring::over(header, words, emit::Recorder);
        (*state).ticket.store(0, Ordering::Relaxed); // ORDER: Relaxed; own counter.
        (*state).time_due = 0;
        (*state).pending_marks = 0;
        (*state).generation = generation();
        (*state).depth = 0;
        (*state).stack.invalidate();
    }
}

/// Gives the copied state a ring of its own in a child of fork. Returns whether there is one.
///
/// # Safety
/// H1, and the process has one thread.
unsafe fn take_slot(state: *mut ThreadState) -> bool {
    let slot = &TABLE[0];
    let header = slot.header.load(Ordering::Acquire); // ORDER: Acquire; pairs with `add_region`.
    if header.is_null() {
        return false;
    }
    // SAFETY: the region is mapped; there is one thread.
    unsafe {
        let header = &*header;
        // The state that belonged to slot 0 in the parent may be another thread's: keep both.
        let displaced = slot.state.swap(state, Ordering::Relaxed); // ORDER: Relaxed; one thread.
        if displaced != state {
            for other in TABLE.iter().skip(1) {
                if other.state.load(Ordering::Relaxed) == state {
                    other.state.store(displaced, Ordering::Relaxed);
                    break;
                }
            }
        }
        // ORDER: Release; the collector sees the slot as it was before, empty.
        header
            .owner
            .store(owner(SLOT_ACTIVE, sys::gettid()), Ordering::Release);
        begin_state(state, slot, header);
    }
    true
}

/// Registers a destructor for the end of the thread.
fn hear_of_end(state: *mut ThreadState, may_allocate: bool) {
    /// Keys whose values lie in the thread's own descriptor (glibc): setting one needs no memory.
    const WITHOUT_MEMORY: u32 = 32;
    // ORDER: Relaxed; set once, before any thread is registered.
    let key = process::END_KEY.load(Ordering::Relaxed);
    if key < WITHOUT_MEMORY || may_allocate && key != u32::MAX {
        // SAFETY: the key is ours. What the C library allocates passes through (the pointer is still `nobody`).
        unsafe { libc::pthread_setspecific(key, state.cast::<c_void>()) };
    }
}

/// The destructor of the key: the thread will end soon, but may still free memory (H3).
pub unsafe extern "C" fn thread_ends(state: *mut c_void) {
    let state = state.cast::<ThreadState>();
    if state.is_null() || state != tls::get() || process::epoch() == 0 {
        return;
    }
    let mut name = [0u64; 2];
    // SAFETY: H1; the kernel writes at most 16 bytes, with their zero.
    unsafe {
        let at = name.as_mut_ptr() as u64;
        sys::syscall(libc::SYS_prctl, [libc::PR_GET_NAME as u64, at, 0, 0, 0, 0]);
        let bytes = name
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .take_while(|&b| b != 0)
            .count();
        // ORDER: Relaxed, as in `enter`; a destructor runs outside of every call of ours.
        if (*state).busy.load(Ordering::Relaxed) == OUTSIDE {
            set_busy(state, RECORDING);
            emit::note(state, word(tag::NAME, bytes as u8, 0), &name);
            set_busy(state, OUTSIDE);
        }
        // ORDER: Release; pairs with the takeover's Acquire.
        let header = (*state).ring.header();
        header
            .owner
            .store(owner(SLOT_ENDING, sys::gettid()), Ordering::Release);
    }
}

unsafe extern "C" {
    static __libc_stack_end: *const c_void;
}

/// Returns the bounds of the calling thread's own stack; (0, 0) if they cannot be known.
fn own_stack(may_allocate: bool) -> (u64, u64) {
    // ORDER: Relaxed; set by `process::link` before any registration.
    if process::PID.load(Ordering::Relaxed) == sys::gettid() {
        // SAFETY: the loader sets it before anything runs.
        let end = unsafe { __libc_stack_end } as u64;
        return (end.saturating_sub(main_stack_limit()), end);
    }
    let own: u64;
    let here: u64;
    // SAFETY: reads the thread pointer and the stack pointer.
    unsafe {
        core::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) own, options(nostack, readonly));
        core::arch::asm!("mov {}, rsp", out(reg) here, options(nostack, nomem));
    }
    match mapping_around(here) {
        // glibc puts the thread's descriptor at the top of its stack.
        Some((low, high)) if low < own && own <= high => (low, own),
        _ if may_allocate => stack_by_attributes(),
        _ => (0, 0),
    }
}

fn main_stack_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is ours.
    unsafe {
        let at = &raw mut limit as u64;
        sys::syscall(
            libc::SYS_prlimit64,
            [0, libc::RLIMIT_STACK as u64, 0, at, 0, 0],
        );
    }
    // The kernel keeps at least 128 MiB below the stack free of mappings.
    limit.rlim_cur.clamp(64 << 10, 128 << 20)
}

/// `struct procmap_query` of Linux 6.11.
#[repr(C)]
#[derive(Default)]
struct MapQuery {
    size: u64,
    flags: u64,
    addr: u64,
    start: u64,
    end: u64,
    rest: [u64; 8],
}

/// Returns the mapping around an address, by one ioctl; `None` before Linux 6.11.
fn mapping_around(addr: u64) -> Option<(u64, u64)> {
    const PROCMAP_QUERY: u64 = 0xc068_6611;
    let mut query = MapQuery {
        size: size_of::<MapQuery>() as u64,
        addr,
        ..MapQuery::default()
    };
    // SAFETY: a C string; the query is ours and of the size that it says.
    unsafe {
        let dir = libc::AT_FDCWD as u64;
        let path = c"/proc/self/maps".as_ptr() as u64;
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
        let fd = sys::syscall(libc::SYS_openat, [dir, path, flags, 0, 0, 0]);
        if sys::is_error(fd) {
            return None;
        }
        let at = &raw mut query as u64;
        let result = sys::syscall(libc::SYS_ioctl, [fd as u64, PROCMAP_QUERY, at, 0, 0, 0]);
        sys::close(fd as i32);
        (result == 0).then_some((query.start, query.end))
    }
}

fn stack_by_attributes() -> (u64, u64) {
    // SAFETY: the attributes are initialised by the first call and destroyed by the last. What they
    // allocate passes through.
    unsafe {
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return (0, 0);
        }
        let mut low: *mut c_void = core::ptr::null_mut();
        let mut bytes = 0usize;
        let result = libc::pthread_attr_getstack(&attributes, &mut low, &mut bytes);
        libc::pthread_attr_destroy(&mut attributes);
        if result == 0 {
            (low as u64, low as u64 + bytes as u64)
        } else {
            (0, 0)
        }
    }
}

/// Returns whether usable sizes can be read from glibc's chunk headers: its `malloc` is the one beneath us.
pub fn glibc_headers() -> bool {
    real::object_of(real::REAL.malloc.get())
        .to_bytes()
        .ends_with(b"/libc.so.6")
}
