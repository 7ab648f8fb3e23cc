//! The malloc family.

use core::ffi::{c_int, c_void};

use skinflint_base::ring::{tag, word};

use super::exported;
use crate::emit;
use crate::real::call;
use crate::stacks::{self, Caller};
use crate::state::{INSIDE, RECORDING, ThreadState, set_busy};
use crate::thread;
use crate::usable::usable_size;
use crate::{high_water, marks, process, real, samples};

/// Function codes, as `trace::AllocFn`.
pub mod func {
    pub const MALLOC: u8 = 0;
    pub const CALLOC: u8 = 1;
    pub const REALLOC: u8 = 2;
    pub const MEMALIGN: u8 = 3;
    pub const VALLOC: u8 = 4;
    pub const NEW: u8 = 5;
    pub const NEW_ARRAY: u8 = 6;
}

/// Function codes, as `trace::FreeFn`.
pub mod free_func {
    pub const FREE: u8 = 0;
    pub const FREE_SIZED: u8 = 1;
    pub const REALLOC: u8 = 2;
    pub const DELETE: u8 = 3;
    pub const DELETE_ARRAY: u8 = 4;
}

/// Records an acquisition and ends the call.
///
/// # Safety
/// `state` is what `enter` returned.
#[inline(always)]
pub unsafe fn acquired(
    state: *mut ThreadState,
    kind: u8,
    func: u8,
    block: *mut c_void,
    size: usize,
    caller: Caller,
) {
    if state.is_null() {
        return;
    }
    // SAFETY: state.H1; the block was acquired just now.
    unsafe {
        if samples::passes(state, size) {
            return thread::leave(state);
        }
        if samples::are_on(state) {
            samples::acquired(state, func, block, size, caller);
            return thread::leave(state);
        }
        // The second half of a realloc is recorded if the first was.
        if kind == tag::ALLOC && !process::wants_acquisitions() {
            emit::unseen(state);
        } else if !block.is_null() {
            set_busy(state, RECORDING);
            let usable = usable_size(block).max(size as u64);
            high_water::gained(state, usable);
            stacks::acquired(
                state,
                word(kind, func, block as u64),
                size as u64,
                usable,
                caller,
            );
        }
        thread::leave(state);
    }
}

/// `malloc`, the slow way; with registers of its entry.
///
/// # Safety
/// As for the function beneath.
pub unsafe extern "C" fn malloc_recorded(size: usize, sp: u64, bp: u64) -> *mut c_void {
    let state = thread::enter();
    let real = real::REAL.malloc.get();
    if real.is_null() {
        return real::arena_alloc(size);
    }
    // SAFETY: the program's own call.
    unsafe {
        let block = core::mem::transmute::<*mut c_void, real::Malloc>(real)(size);
        acquired(
            state,
            tag::ALLOC,
            func::MALLOC,
            block,
            size,
            Caller { sp, bp },
        );
        block
    }
}

/// `calloc`, the slow way; with registers of its entry.
///
/// # Safety
/// As for the function beneath.
pub unsafe extern "C" fn calloc_recorded(n: usize, each: usize, sp: u64, bp: u64) -> *mut c_void {
    let state = thread::enter();
    let real = real::REAL.calloc.get();
    if real.is_null() {
        return n
            .checked_mul(each)
            .map_or(core::ptr::null_mut(), real::arena_alloc);
    }
    // SAFETY: the program's own call. A product that overflows makes the real function fail.
    unsafe {
        let block = core::mem::transmute::<*mut c_void, real::Calloc>(real)(n, each);
        let size = n.wrapping_mul(each);
        acquired(
            state,
            tag::ALLOC,
            func::CALLOC,
            block,
            size,
            Caller { sp, bp },
        );
        block
    }
}

/// Records a release; the caller then makes the real call and leaves.
///
/// # Safety
/// `state` is what `enter` returned, not null.
#[inline(always)]
pub unsafe fn released(state: *mut ThreadState, kind: u8, func: u8, block: *mut c_void) {
    let what = samples::release(block as u64);
    // SAFETY: state.H1.
    unsafe {
        if what == samples::Release::Other || !process::wants_releases() {
            return;
        }
        if what == samples::Release::Full {
            high_water::loses(state, usable_size(block), kind == tag::FREE);
        }
        set_busy(state, RECORDING);
        emit::short(state, kind, func, block as u64);
        set_busy(state, INSIDE);
    }
}

/// Records a release, and makes it through `real`, whatever its name and further arguments.
///
/// # Safety
/// As for `free`.
#[inline(always)]
pub unsafe fn free_through(block: *mut c_void, func: u8, real: impl FnOnce(*mut c_void)) {
    if block.is_null() {
        return;
    }
    if real::is_of_arena(block) {
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

/// `free`, the slow way.
///
/// # Safety
/// As for the function beneath.
pub unsafe extern "C" fn free_recorded(block: *mut c_void) {
    // SAFETY: the program's own call.
    unsafe { free_through(block, free_func::FREE, |block| call!(free as Free)(block)) }
}

/// `free_sized` of C23, recorded; glibc 2.36 has none, and then `free` is called.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sized(block: *mut c_void, size: usize) {
    let real = real::REAL.free_sized.get();
    // SAFETY: the program's own call; the type is C23's.
    unsafe {
        free_through(block, free_func::FREE_SIZED, |block| {
            if real.is_null() {
                call!(free as Free)(block)
            } else {
                type FreeSized = unsafe extern "C" fn(*mut c_void, usize);
                core::mem::transmute::<*mut c_void, FreeSized>(real)(block, size)
            }
        })
    }
}

/// `free_aligned_sized` of C23; see `free_sized`.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(block: *mut c_void, align: usize, size: usize) {
    let real = real::REAL.free_aligned_sized.get();
    // SAFETY: the program's own call; the type is C23's.
    unsafe {
        free_through(block, free_func::FREE_SIZED, |block| {
            if real.is_null() {
                call!(free as Free)(block)
            } else {
                type FreeAligned = unsafe extern "C" fn(*mut c_void, usize, usize);
                core::mem::transmute::<*mut c_void, FreeAligned>(real)(block, align, size)
            }
        })
    }
}

/// # Safety
/// `old` is of the static arena.
#[cold]
unsafe fn realloc_from_arena(old: *mut c_void, size: usize, caller: Caller) -> *mut c_void {
    // SAFETY: the arena knows the size of what it handed out; the two blocks are distinct.
    unsafe {
        let new = malloc_recorded(size, caller.sp, caller.bp);
        if !new.is_null() {
            let bytes = real::arena_size(old).min(size);
            core::ptr::copy_nonoverlapping(old.cast::<u8>(), new.cast::<u8>(), bytes);
        }
        new
    }
}

/// `realloc`, the slow way; with registers of its entry.
///
/// # Safety
/// As for the function beneath.
pub unsafe extern "C" fn realloc_recorded(
    old: *mut c_void,
    size: usize,
    sp: u64,
    bp: u64,
) -> *mut c_void {
    let caller = Caller { sp, bp };
    if real::is_of_arena(old) {
        // SAFETY: just checked.
        return unsafe { realloc_from_arena(old, size, caller) };
    }
    let state = thread::enter();
    if real::REAL.realloc.get().is_null() {
        return real::arena_alloc(size);
    }
    // SAFETY: the program's own call; state.H1.
    unsafe {
        if state.is_null() {
            return call!(realloc as Realloc)(old, size);
        }
        if old.is_null() {
            let block = call!(realloc as Realloc)(old, size);
            acquired(state, tag::ALLOC, func::REALLOC, block, size, caller);
            return block;
        }
        if samples::are_on(state) {
            return realloc_sampled(state, old, size, caller);
        }
        if !process::wants_acquisitions() {
            return realloc_while_stopped(state, old, size, caller);
        }
        released(state, tag::REALLOC_RELEASE, 0, old);
        let block = call!(realloc as Realloc)(old, size);
        if !block.is_null() {
            acquired(
                state,
                tag::REALLOC_ACQUIRE,
                func::REALLOC,
                block,
                size,
                caller,
            );
            return block;
        }
        set_busy(state, RECORDING);
        emit::short(state, tag::REALLOC_CANCEL, 0, old as u64);
        if size == 0 {
            // glibc and most others release the block and return null: no failure.
            emit::short(state, tag::FREE, free_func::REALLOC, old as u64);
        }
        thread::leave(state);
        block
    }
}

/// Records what `realloc` does to samples: a release and an acquisition with a draw of its own (samples.V3).
///
/// # Safety
/// As for `realloc`; `state` is what `enter` returned, sampled; `old` is a live block.
#[inline(never)]
unsafe fn realloc_sampled(
    state: *mut ThreadState,
    old: *mut c_void,
    size: usize,
    caller: Caller,
) -> *mut c_void {
    // SAFETY: the program's own call; state.H1.
    unsafe {
        let was = samples::released(state, free_func::REALLOC, old as u64);
        let block = call!(realloc as Realloc)(old, size);
        // Without a size, glibc and most others release the block and return null: no failure.
        if block.is_null() && size != 0 {
            if was {
                samples::lives_on(state, func::REALLOC, old as u64, usable_size(old), caller);
            }
        } else if !samples::passes(state, size) {
            samples::acquired(state, func::REALLOC, block, size, caller);
        }
        thread::leave(state);
        block
    }
}

/// Records `realloc` while recording is stopped: it releases a block that may be known, and acquires one unseen.
///
/// # Safety
/// As for `realloc`; `state` is what `enter` returned, not null.
#[cold]
#[inline(never)]
unsafe fn realloc_while_stopped(
    state: *mut ThreadState,
    old: *mut c_void,
    size: usize,
    caller: Caller,
) -> *mut c_void {
    // SAFETY: the program's own call; state.H1.
    unsafe {
        released(state, tag::FREE, free_func::REALLOC, old);
        let block = call!(realloc as Realloc)(old, size);
        if block.is_null() && size != 0 && process::wants_releases() {
            // It failed and the block lives on. It may not have been known before: from now on it is.
            set_busy(state, RECORDING);
            let bytes = usable_size(old);
            stacks::acquired(
                state,
                word(tag::ALLOC, func::REALLOC, old as u64),
                bytes,
                bytes,
                caller,
            );
        } else {
            emit::unseen(state);
        }
        thread::leave(state);
        block
    }
}

unsafe extern "C" fn memalign_recorded(align: usize, size: usize, sp: u64, bp: u64) -> *mut c_void {
    let state = thread::enter();
    // SAFETY: the program's own call.
    unsafe {
        let block = call!(memalign as Memalign)(align, size);
        acquired(
            state,
            tag::ALLOC,
            func::MEMALIGN,
            block,
            size,
            Caller { sp, bp },
        );
        block
    }
}
exported!(memalign(align: usize, size: usize) -> *mut c_void, "rdx", "rcx", memalign_recorded);

unsafe extern "C" fn aligned_alloc_recorded(
    align: usize,
    size: usize,
    sp: u64,
    bp: u64,
) -> *mut c_void {
    let state = thread::enter();
    // SAFETY: the program's own call.
    unsafe {
        let block = call!(aligned_alloc as Memalign)(align, size);
        acquired(
            state,
            tag::ALLOC,
            func::MEMALIGN,
            block,
            size,
            Caller { sp, bp },
        );
        block
    }
}
exported!(
    aligned_alloc(align: usize, size: usize) -> *mut c_void,
    "rdx", "rcx", aligned_alloc_recorded
);

unsafe extern "C" fn posix_memalign_recorded(
    out: *mut *mut c_void,
    align: usize,
    size: usize,
    sp: u64,
    bp: u64,
) -> c_int {
    let state = thread::enter();
    // SAFETY: the program's own call; on success `out` holds the block.
    unsafe {
        let result = call!(posix_memalign as PosixMemalign)(out, align, size);
        let block = if result == 0 {
            out.read()
        } else {
            core::ptr::null_mut()
        };
        acquired(
            state,
            tag::ALLOC,
            func::MEMALIGN,
            block,
            size,
            Caller { sp, bp },
        );
        result
    }
}
exported!(
    posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int,
    "rcx", "r8", posix_memalign_recorded
);

unsafe extern "C" fn valloc_recorded(size: usize, sp: u64, bp: u64) -> *mut c_void {
    let state = thread::enter();
    // SAFETY: the program's own call.
    unsafe {
        let block = call!(valloc as Malloc)(size);
        acquired(
            state,
            tag::ALLOC,
            func::VALLOC,
            block,
            size,
            Caller { sp, bp },
        );
        block
    }
}
exported!(valloc(size: usize) -> *mut c_void, "rsi", "rdx", valloc_recorded);

unsafe extern "C" fn pvalloc_recorded(size: usize, sp: u64, bp: u64) -> *mut c_void {
    let state = thread::enter();
    // SAFETY: the program's own call.
    unsafe {
        let block = call!(pvalloc as Malloc)(size);
        acquired(
            state,
            tag::ALLOC,
            func::VALLOC,
            block,
            size,
            Caller { sp, bp },
        );
        block
    }
}
exported!(pvalloc(size: usize) -> *mut c_void, "rsi", "rdx", pvalloc_recorded);

/// `malloc_usable_size`: returns the real one's answer, or the size of a block of the arena.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    if block.is_null() {
        return 0;
    }
    // SAFETY: the program's own call.
    unsafe {
        if real::is_of_arena(block) {
            return real::arena_size(block);
        }
        call!(malloc_usable_size as UsableSize)(block)
    }
}

/// Returns the function of this name behind us: a program that asks its allocator for figures finds us first. Null
/// if there is none.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_beneath(name: *const core::ffi::c_char) -> *mut c_void {
    // SAFETY: as the caller promises.
    let found = real::look_up(unsafe { core::ffi::CStr::from_ptr(name) });
    // Keeps the call from becoming a jump: the loader looks at the caller, which must be this library.
    core::hint::black_box(found)
}

/// `skinflint_mark(name)`: names this moment in the recording. Thread-safe; about a millisecond,
/// since it waits for a snapshot (the first 256 marks do). No effect for null, or if not recorded.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_mark(name: *const core::ffi::c_char) {
    if name.is_null() {
        return;
    }
    let state = thread::enter();
    if state.is_null() {
        return;
    }
    // SAFETY: as the caller promises; state.H1.
    unsafe {
        marks::mark(state, core::ffi::CStr::from_ptr(name).to_bytes());
        thread::leave(state);
    }
    process::publish_own_bytes();
}
