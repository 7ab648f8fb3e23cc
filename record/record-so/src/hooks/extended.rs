//! jemalloc's own functions beside malloc: `mallocx`, `rallocx`, `xallocx`, `dallocx`, `sdallocx`.
//!
//! X1  They are not exported: a program may check whether `mallocx` exists to find out whether it runs on jemalloc.
//!     If jemalloc is loaded at the start, the entries for its functions in the tables of all modules lead here
//!     instead (`attach.rs`).
//! X2  Sizes come from `sallocx`, so that `malloc` may be another allocator's.

use core::ffi::{c_int, c_void};

use skinflint_base::ring::{tag, word};

use super::malloc::{free_func, func};
use crate::emit;
use crate::real::call;
use crate::real::{self, REAL};
use crate::stacks::{self, Caller};
use crate::state::{INSIDE, RECORDING, ThreadState, set_busy};
use crate::thread;
use crate::{high_water, process, samples};

/// Defines a function that jumps to `$recorded` with the stack pointer and the frame pointer of its entry as two
/// further arguments (hooks.N1), under a name that is not exported (X1).
macro_rules! entry {
    ($name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?, $sp:tt, $bp:tt, $recorded:path) => {
        #[doc = concat!("`", stringify!($name), "`, recorded.")]
        ///
        /// # Safety
        /// As for the function beneath.
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) $(-> $result)? {
            skinflint_unwind::with_registers!($sp, $bp, $recorded)
        }
    };
}

/// Returns whether all of the functions exist; if one does not, none is replaced.
pub fn are_there() -> bool {
    let all = [
        &REAL.mallocx,
        &REAL.rallocx,
        &REAL.xallocx,
        &REAL.dallocx,
        &REAL.sdallocx,
        &REAL.sallocx,
    ];
    all.iter().all(|one| !one.get().is_null())
}

/// Returns the usable size of a live block (X2).
///
/// # Safety
/// The functions exist, and `block` is a live block of theirs.
unsafe fn usable_size(block: *mut c_void) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { call!(sallocx as Sallocx)(block, 0) as u64 }
}

/// Records that a block was acquired; the state stays entered.
///
/// # Safety
/// Between `enter` and `leave`; the block was acquired just now.
unsafe fn acquired(
    state: *mut ThreadState,
    kind: u8,
    func: u8,
    block: *mut c_void,
    size: usize,
    caller: Caller,
) {
    // SAFETY: as the caller promises; state.H1.
    unsafe {
        if samples::passes(state, size) {
            return;
        }
        if samples::are_on(state) {
            return samples::acquired(state, func, block, size, caller);
        }
        if kind == tag::ALLOC && !process::wants_acquisitions() {
            return emit::unseen(state);
        }
        let usable = usable_size(block).max(size as u64);
        high_water::gained(state, usable);
        set_busy(state, RECORDING);
        stacks::acquired(
            state,
            word(kind, func, block as u64),
            size as u64,
            usable,
            caller,
        );
        set_busy(state, INSIDE);
    }
}

/// Records that a block is about to be released.
///
/// # Safety
/// Between `enter` and `leave`.
unsafe fn released(state: *mut ThreadState, kind: u8, func: u8, block: *mut c_void) {
    // SAFETY: as the caller promises; state.H1.
    unsafe {
        if samples::are_on(state) {
            samples::released(state, func, block as u64);
            return;
        }
        if !process::wants_releases() {
            return;
        }
        high_water::loses(state, usable_size(block), kind == tag::FREE);
        set_busy(state, RECORDING);
        emit::short(state, kind, func, block as u64);
        set_busy(state, INSIDE);
    }
}

unsafe extern "C" fn mallocx_recorded(size: usize, flags: c_int, sp: u64, bp: u64) -> *mut c_void {
    let state = thread::enter();
    // SAFETY: the program's own call; state.H1.
    unsafe {
        let block = call!(mallocx as Mallocx)(size, flags);
        if !state.is_null() {
            if !block.is_null() {
                acquired(
                    state,
                    tag::ALLOC,
                    func::MALLOC,
                    block,
                    size,
                    Caller { sp, bp },
                );
            }
            thread::leave(state);
        }
        block
    }
}
entry!(mallocx(size: usize, flags: c_int) -> *mut c_void, "rdx", "rcx", mallocx_recorded);

/// Records the change of a block from one size to another around the call that makes it. From the call's result,
/// `becomes` returns where the block is now and its new size; `None` if the block is as it was.
///
/// # Safety
/// `state` is what `enter` returned, not null; `old` is a live block.
unsafe fn regrown<T: Copy>(
    state: *mut ThreadState,
    old: *mut c_void,
    caller: Caller,
    step: impl FnOnce() -> T,
    becomes: impl FnOnce(T) -> Option<(*mut c_void, usize)>,
) -> T {
    // SAFETY: as the caller promises; state.H1.
    unsafe {
        if samples::are_on(state) {
            return regrown_sampled(state, old, caller, step, becomes);
        }
        let is_recorded = process::wants_acquisitions();
        if is_recorded {
            released(state, tag::REALLOC_RELEASE, 0, old);
        } else {
            released(state, tag::FREE, free_func::REALLOC, old);
        }
        let before = usable_size(old);
        let answer = step();
        match becomes(answer) {
            Some((new, now)) if is_recorded => {
                acquired(state, tag::REALLOC_ACQUIRE, func::REALLOC, new, now, caller);
            }
            Some((new, now)) => acquired(state, tag::ALLOC, func::REALLOC, new, now, caller),
            None if is_recorded => {
                high_water::gained(state, before);
                set_busy(state, RECORDING);
                emit::short(state, tag::REALLOC_CANCEL, 0, old as u64);
                set_busy(state, INSIDE);
            }
            // The block lives on, and its release was recorded: it is recorded anew, though nothing else is now.
            None if process::wants_releases() => {
                high_water::gained(state, before);
                set_busy(state, RECORDING);
                stacks::acquired(
                    state,
                    word(tag::ALLOC, func::REALLOC, old as u64),
                    before,
                    before,
                    caller,
                );
                set_busy(state, INSIDE);
            }
            None => {}
        }
        thread::leave(state);
        answer
    }
}

/// The same in a sampled recording: a release and an acquisition (samples.V3).
///
/// # Safety
/// As for [`regrown`].
unsafe fn regrown_sampled<T: Copy>(
    state: *mut ThreadState,
    old: *mut c_void,
    caller: Caller,
    step: impl FnOnce() -> T,
    becomes: impl FnOnce(T) -> Option<(*mut c_void, usize)>,
) -> T {
    // SAFETY: as the caller promises; state.H1.
    unsafe {
        let was = samples::released(state, free_func::REALLOC, old as u64);
        let answer = step();
        match becomes(answer) {
            Some((new, now)) => acquired(state, tag::ALLOC, func::REALLOC, new, now, caller),
            None if was => {
                samples::lives_on(state, func::REALLOC, old as u64, usable_size(old), caller)
            }
            None => {}
        }
        thread::leave(state);
        answer
    }
}

unsafe extern "C" fn rallocx_recorded(
    old: *mut c_void,
    size: usize,
    flags: c_int,
    sp: u64,
    bp: u64,
) -> *mut c_void {
    let state = thread::enter();
    // SAFETY: the program's own call; state.H1.
    unsafe {
        if state.is_null() {
            return call!(rallocx as Rallocx)(old, size, flags);
        }
        regrown(
            state,
            old,
            Caller { sp, bp },
            || call!(rallocx as Rallocx)(old, size, flags),
            |new| (!new.is_null()).then_some((new, size)),
        )
    }
}
entry!(rallocx(old: *mut c_void, size: usize, flags: c_int) -> *mut c_void, "rcx", "r8", rallocx_recorded);

unsafe extern "C" fn xallocx_recorded(
    block: *mut c_void,
    size: usize,
    extra: usize,
    flags: c_int,
    sp: u64,
    bp: u64,
) -> usize {
    let state = thread::enter();
    // SAFETY: the program's own call; state.H1.
    unsafe {
        if state.is_null() {
            return call!(xallocx as Xallocx)(block, size, extra, flags);
        }
        let before = usable_size(block) as usize;
        regrown(
            state,
            block,
            Caller { sp, bp },
            || call!(xallocx as Xallocx)(block, size, extra, flags),
            // The block stays at its address, and keeps its size if there is no room.
            |now| (now != before).then_some((block, size.min(now))),
        )
    }
}
entry!(xallocx(block: *mut c_void, size: usize, extra: usize, flags: c_int) -> usize, "r8", "r9", xallocx_recorded);

/// `dallocx`, recorded.
///
/// # Safety
/// As for the function beneath.
pub unsafe extern "C" fn dallocx(block: *mut c_void, flags: c_int) {
    // SAFETY: the program's own call.
    unsafe {
        release(block, free_func::FREE, |block| {
            call!(dallocx as Dallocx)(block, flags)
        })
    }
}

/// `sdallocx`, recorded.
///
/// # Safety
/// As for the function beneath.
pub unsafe extern "C" fn sdallocx(block: *mut c_void, size: usize, flags: c_int) {
    // SAFETY: the program's own call.
    unsafe {
        release(block, free_func::FREE_SIZED, |block| {
            call!(sdallocx as Sdallocx)(block, size, flags)
        });
    }
}

/// Records a release, and makes it through `real`.
///
/// # Safety
/// As for `dallocx`.
unsafe fn release(block: *mut c_void, func: u8, real: impl FnOnce(*mut c_void)) {
    if block.is_null() || real::is_of_arena(block) {
        return;
    }
    let state = thread::enter();
    // SAFETY: state.H1.
    unsafe {
        if state.is_null() {
            return real(block);
        }
        released(state, tag::FREE, func, block);
        real(block);
        thread::leave(state);
    }
}
