//! Slots: which thread owns which ring and which state.
//!
//! ```text
//!   slot i ── SlotHeader + ring (shared)      state i ── ThreadState (private, mapped once)
//!     owner: FREE ─► ACTIVE tid ─► ENDING tid ─(tid is gone)─► ACTIVE other tid
//! ```
//!
//! H3  A slot changes hands only when its last owner's kernel thread no longer exists: a thread may
//!     free memory until its very last instruction, and all of it is recorded.
//!
//! Not here: when a thread asks for a slot (thread.rs), where regions come from (link.rs).

use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

use skinflint_base::ring::{
    SLOT_ACTIVE, SLOT_ENDING, SLOT_FREE, SLOTS, SLOTS_OFFSET, SlotHeader, owner, ring_offset,
};
use skinflint_base::sys;

use crate::ring::{Recorder, Ring};
use crate::state::{NEVER, ThreadState};
use crate::{process, samples, tls};

/// One more than the most attaches of one process; sessions/attach.rs tells it. A power of two. What each leaves stays in the
/// process: 144 KB for a program of five threads, measured on 2026-11-27 (80 of its rings, 64 of states).
const MAX_GENERATIONS: usize = 256;

/// States that stand in for those of threads that are being registered, or cannot be, one for each generation. Only
/// `busy` is ever looked at.
static NOBODIES: [AtomicU8; MAX_GENERATIONS] = [const { AtomicU8::new(NEVER) }; MAX_GENERATIONS];

fn generation() -> usize {
    // ORDER: Relaxed; changed only while no thread records.
    process::GENERATION.load(Ordering::Relaxed)
}

pub fn nobody() -> *mut ThreadState {
    let nobody = &NOBODIES[generation() & (MAX_GENERATIONS - 1)];
    core::ptr::from_ref(nobody).cast::<ThreadState>().cast_mut()
}

/// Returns whether a state is of an earlier attach: its ring is no longer read, and may soon be another thread's.
///
/// # Safety
/// `state` is what a thread's pointer holds, and not null.
pub unsafe fn is_stale(state: *mut ThreadState) -> bool {
    let nobodies = NOBODIES.as_ptr() as usize;
    if (state as usize).wrapping_sub(nobodies) < size_of_val(&NOBODIES) {
        return state != nobody();
    }
    // SAFETY: states are never unmapped.
    unsafe { (*state).generation != generation() }
}

/// Begins another generation: all slots and states are forgotten. Returns whether there was one left. Only while no
/// thread records (`attach`).
pub fn new_generation() -> bool {
    let next = generation() + 1;
    if next >= MAX_GENERATIONS {
        return false;
    }
    process::GENERATION.store(next, Ordering::Relaxed); // ORDER: as in `generation`.
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
pub static LONE: AtomicPtr<ThreadState> = AtomicPtr::new(core::ptr::null_mut());

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

pub fn claim_among_known(look_at_active: bool) -> *mut ThreadState {
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
    // SAFETY: state.H1: the slot is ours.
    unsafe { begin_state(state, slot, header) };
    state
}

/// # Safety
/// The caller owns the slot.
unsafe fn begin_state(state: *mut ThreadState, slot: &Slot, header: &'static SlotHeader) {
    // SAFETY: as the caller promises.
    unsafe {
        let words = slot.ring.load(Ordering::Relaxed).cast(); // ORDER: as above.
        (*state).ring = Ring::over(header, words, Recorder);
        (*state).ticket.store(0, Ordering::Relaxed); // ORDER: Relaxed; own counter.
        (*state).time_due = 0;
        (*state).pending_marks = 0;
        (*state).in_operator = false;
        (*state).generation = generation();
        (*state).depth = 0;
        (*state).first_signal = 0;
        (*state).frames.forget();
        (*state).go.forget();
        (*state).stack.invalidate();
        samples::thread_begins(state);
    }
}

/// Gives the copied state a ring of its own in a child of fork. Returns whether there is one.
///
/// # Safety
/// state.H1, and the process has one thread.
pub unsafe fn take_slot(state: *mut ThreadState) -> bool {
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
