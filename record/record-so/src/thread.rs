//! Threads of the program in the recorder: their first event, each call's begin and end, and their own end.
//!
//! ```text
//!   call ─► enter ─► state, INSIDE ─► … ─► leave
//!             └─ first event of the thread: a slot (slots.rs), its stack's bounds, a THREAD record
//!             └─ first event of the process: it meets the collector (begin.rs)
//! ```
//!
//! The invariants state.H1 and state.H2 are those of state.rs, slots.H3 that of slots.rs.
//! Not here: what is written (emit.rs, stacks.rs, marks.rs).

use core::ffi::{c_int, c_void};
use core::sync::atomic::{Ordering, compiler_fence};

use skinflint_base::ring::{SLOT_ENDING, owner, tag, word};
use skinflint_base::sys;

use crate::bounds::own_stack;
use crate::slots::{LONE, claim_among_known, is_stale, nobody, single_ticket, take_slot};
use crate::state::{INSIDE, NEVER, OUTSIDE, RECORDING, ThreadState, set_busy};
use crate::{begin, emit, filters, link, marks, process, real, stacks, tls};

/// The distance that shared tickets keep from those of a thread that was alone: it may be counting
/// while they begin.
const TICKET_GAP: u64 = 1 << 20;

/// Begins a call. Returns the state, marked INSIDE, or null if the call is to pass straight through.
/// Cost: six loads, three branches, one store.
#[inline(always)]
pub fn enter() -> *mut ThreadState {
    let state = tls::get();
    if !state.is_null() {
        // SAFETY: state.H1; `nobody` has the byte too.
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
    // SAFETY: state.H1; `nobody` has the byte too.
    unsafe {
        // ORDER: Relaxed, as in `enter`.
        match (*state).busy.load(Ordering::Relaxed) {
            OUTSIDE => {}
            NEVER => return core::ptr::null_mut(),
            _ => {
                if let Some(header) = process::header()
                    && !(*state).in_operator
                {
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
/// state.H1.
unsafe fn catch_up(state: *mut ThreadState) -> bool {
    let epoch = process::epoch();
    // SAFETY: state.H1.
    unsafe {
        if epoch == 0 {
            // A child of fork: this is its only thread, and the state is a copy of its parent's.
            let bounds = (*state).stack_bounds;
            if !begin::begin() || !take_slot(state) {
                (*state).busy.store(OUTSIDE, Ordering::Relaxed); // ORDER: Relaxed, as in `enter`.
                tls::set(nobody());
                return false;
            }
            (*state).stack_bounds = bounds;
            stacks::thread_begins(state);
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
    // SAFETY: state.H1.
    unsafe {
        // ORDER: Relaxed, as in `enter`.
        (*state).busy.store(OUTSIDE, Ordering::Relaxed);
        if (*state).pending_marks != 0 {
            pending_marks(state);
        }
    }
}

/// Begins a mapping call that is the allocator's own. Returns the state, marked RECORDING, if this thread
/// is inside the real allocator, else null. The caller sets it back to INSIDE.
pub fn enter_from_allocator() -> *mut ThreadState {
    let state = tls::get();
    if state.is_null() {
        return state;
    }
    // SAFETY: state.H1; `nobody` has the byte too.
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
        if !begin::begin() {
            return nobody();
        }
        process_begins();
    // ORDER: Relaxed; see process.G2: the second thread makes it true first.
    } else if !process::MULTI.load(Ordering::Relaxed) {
        before_second_thread();
    }
    let state = match filters::may_add_threads() {
        true => claim_slot(),
        false => core::ptr::null_mut(),
    };
    if state.is_null() {
        if let Some(header) = process::header() {
            let counter = match filters::may_add_threads() && filters::may_meet() {
                true => &header.unserved_threads,
                false => &header.filtered_threads,
            };
            counter.fetch_add(1, Ordering::Relaxed); // ORDER: Relaxed; a counter.
        }
        return nobody();
    }
    // SAFETY: the slot and so the state are ours (state.H1).
    unsafe {
        (*state).stack_bounds = own_stack(may_allocate);
        (*state).epoch = process::epoch();
        (*state).stack.invalidate();
        stacks::thread_begins(state);
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
    // ORDER: Relaxed; see process.G2. The thread that was alone may be counting: hence the gap.
    if !process::MULTI.load(Ordering::Relaxed) {
        process::go_multi(single_ticket() + TICKET_GAP);
    }
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

/// Sets up what is needed once, at the first event of a process, or when a debugger attaches.
#[cold]
pub fn process_begins() {
    let mut key: libc::pthread_key_t = 0;
    // A program that is attached to again has the key. ORDER: Relaxed; set before any thread is registered.
    if process::END_KEY.load(Ordering::Relaxed) == u32::MAX {
        // SAFETY: the destructor has the type that pthreads wants.
        let made = unsafe { libc::pthread_key_create(&mut key, Some(thread_ends)) };
        if made == 0 {
            process::END_KEY.store(key, Ordering::Relaxed); // ORDER: as above.
        }
    }
    // ORDER: Relaxed; one thread.
    let signal = link::MARK_SIGNAL.load(Ordering::Relaxed);
    if signal != 0 {
        install_mark_signal(signal);
    }
}

/// Installs the handler of the mark signal, unless the program handles it already.
fn install_mark_signal(signal: c_int) {
    // SAFETY: the handler only touches this thread's state, as a signal may.
    unsafe {
        let mut old: libc::sigaction = core::mem::zeroed();
        if libc::sigaction(signal, core::ptr::null(), &mut old) != 0
            || old.sa_sigaction != libc::SIG_DFL
        {
            return;
        }
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_mark_signal as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, &action, core::ptr::null_mut());
    }
}

unsafe extern "C" fn on_mark_signal(_signal: c_int) {
    let state = tls::get();
    if state.is_null() {
        // A thread without events has no ring; its first event would be this mark.
        let state = enter();
        if !state.is_null() {
            // SAFETY: of `enter`.
            unsafe {
                marks::signal_mark(state);
                leave(state);
            }
        }
        return;
    }
    // SAFETY: state.H1; `nobody` has the byte too, and `enter` refuses it.
    unsafe {
        // ORDER: Relaxed; this thread's own byte, and we are its signal handler.
        match (*state).busy.load(Ordering::Relaxed) {
            INSIDE | RECORDING => (*state).pending_marks += 1,
            _ => {
                let entered = enter();
                if !entered.is_null() {
                    marks::signal_mark(entered);
                    leave(entered);
                }
            }
        }
    }
}

/// Writes marks that a signal asked for while the thread was busy.
///
/// # Safety
/// state.H1, OUTSIDE.
#[cold]
#[inline(never)]
unsafe fn pending_marks(state: *mut ThreadState) {
    // SAFETY: state.H1.
    unsafe {
        while (*state).pending_marks != 0 {
            (*state).pending_marks -= 1;
            let entered = enter();
            if entered.is_null() {
                return;
            }
            marks::signal_mark(entered);
            set_busy(entered, OUTSIDE);
        }
    }
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

/// The destructor of the key: the thread will end soon, but may still free memory (slots.H3).
pub unsafe extern "C" fn thread_ends(state: *mut c_void) {
    let state = state.cast::<ThreadState>();
    if state.is_null() || state != tls::get() || process::epoch() == 0 {
        return;
    }
    let mut name = [0u64; 2];
    // SAFETY: state.H1; the kernel writes at most 16 bytes, with their zero.
    unsafe {
        let at = name.as_mut_ptr() as u64;
        if filters::may_add_threads() {
            sys::syscall(libc::SYS_prctl, [libc::PR_GET_NAME as u64, at, 0, 0, 0, 0]);
        }
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
