//! Threads, children, and the signal that makes a mark.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

use skinflint_base::ring::tag;

use crate::real::call;
use crate::state::{RECORDING, set_busy};
use crate::thread;
use crate::{emit, process};

/// `pthread_create`: from now on tickets are shared (G2). The thread itself is registered at its first event.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut c_void,
    attributes: *const c_void,
    start: *mut c_void,
    argument: *mut c_void,
) -> c_int {
    if process::epoch() != 0 {
        thread::before_second_thread();
    }
    // SAFETY: the program's own call.
    unsafe { call!(pthread_create as PthreadCreate)(thread, attributes, start, argument) }
}

/// `sigaltstack`: the pointer may be kept by the kernel only, so it is noted for looks at pointers.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int {
    let state = thread::enter();
    // SAFETY: the program's own call; H1.
    unsafe {
        let answer = call!(sigaltstack as Sigaltstack)(new, old);
        if !state.is_null() {
            if answer == 0 && !new.is_null() {
                let is_off = (*new).ss_flags & libc::SS_DISABLE != 0;
                let start = if is_off { 0 } else { (*new).ss_sp as u64 };
                // ORDER: Relaxed; read while the thread is stopped.
                (*state)
                    .ring
                    .header()
                    .alternate_stack
                    .store(start, Ordering::Relaxed);
            }
            thread::leave(state);
        }
        answer
    }
}

/// `fork`: the parent records the child's id. The child finds out by itself that it is one (O5).
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> c_int {
    // SAFETY: the program's own call; H1.
    unsafe {
        let child = call!(fork as Fork)();
        if child > 0 {
            let state = thread::enter();
            if !state.is_null() {
                set_busy(state, RECORDING);
                emit::short(state, tag::FORK, 0, child as u64);
                thread::leave(state);
            }
        }
        child
    }
}
