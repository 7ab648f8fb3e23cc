//! Small objects of Python: the functions of its object allocator, in front of those that its tables had.
//!
//! ```text
//!   PyObject_Malloc, PyMem_Malloc ─► table ─► ours ─┬─ above 512 bytes ─► the former function, which asks malloc
//!                                                   └─ else the former function; is its block of an arena? ─► recorded
//! ```
//!
//! J1  Each call goes to the function that the table had, with the same arguments, and has its result: the program allocates
//!     as it would without us.
//! J2  A block is recorded where it comes from: of an arena here, any other by the hooks of malloc beneath. Its address
//!     alone decides, so it does not matter which wrappers (debug hooks, tracemalloc) stand before us or behind us.
//! J3  Whoever calls has the lock of its interpreter, so no other thread gets an address of an arena before this one has
//!     written what became of it. The halves of a realloc are written after the call, side by side: the allocator may
//!     call malloc in between, whose realloc is one of this thread, too. Releases are written before the call as ever.
//! J4  A call that malloc will serve leaves no frame of ours on the stack.
//!
//! Not here: putting these functions into the tables (objects.rs), which addresses are of arenas (`skinflint_frames`).

use core::arch::naked_asm;
use core::ffi::c_void;

use skinflint_base::ring::{tag, word};
use skinflint_frames::MOST_BYTES;

use super::malloc::{free_func, func};
use crate::objects::{ARENAS, Table, are_called};
use crate::stacks::{self, Caller};
use crate::state::{INSIDE, RECORDING, ThreadState, set_busy};
use crate::{emit, high_water, process, thread};

type Malloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type Calloc = unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void;
type Realloc = unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void, *mut c_void);

/// Returns our table, in front of a former one.
pub fn in_front_of(former: *mut Table) -> Table {
    Table {
        ctx: former.cast(),
        malloc: malloc as *mut c_void,
        calloc: calloc as *mut c_void,
        realloc: realloc as *mut c_void,
        free: free as *mut c_void,
    }
}

/// Writes an acquisition, of which `kind` is `tag::ALLOC` or `tag::REALLOC_ACQUIRE`.
///
/// # Safety
/// Between `enter` and `leave`, RECORDING; the block is of an arena and was acquired just now.
#[inline(always)]
unsafe fn write(
    state: *mut ThreadState,
    (kind, func): (u8, u8),
    block: *mut c_void,
    size: usize,
    caller: Caller,
) {
    let addr = block as u64;
    // SAFETY: state.H1; the block lives and is of an arena.
    unsafe {
        let told = ARENAS.usable(addr);
        let usable = told.unwrap_or(0).max(size as u64);
        if let Some(told) = told {
            high_water::gained(state, told);
        }
        stacks::acquired(state, word(kind, func, addr), size as u64, usable, caller);
    }
}

/// Records an acquisition, if the block is of an arena (J2).
///
/// # Safety
/// The block was acquired just now by this thread (J3).
#[inline(always)]
unsafe fn acquired(func: u8, block: *mut c_void, size: usize, caller: Caller) {
    if !ARENAS.holds(block as u64) {
        return;
    }
    let state = thread::enter();
    if state.is_null() {
        return;
    }
    // SAFETY: state.H1.
    unsafe {
        if process::wants_acquisitions() {
            set_busy(state, RECORDING);
            write(state, (tag::ALLOC, func), block, size, caller);
        } else {
            emit::unseen(state);
        }
        thread::leave(state);
    }
}

/// Writes a release; the thread is INSIDE before and afterwards.
///
/// # Safety
/// Between `enter` and `leave`; `told` is what the pool said of the block.
#[inline(always)]
unsafe fn write_release(
    state: *mut ThreadState,
    (kind, func): (u8, u8),
    block: *mut c_void,
    told: Option<u64>,
) {
    // SAFETY: state.H1.
    unsafe {
        if !process::wants_releases() {
            return;
        }
        if let Some(told) = told {
            high_water::loses(state, told, kind == tag::FREE);
        }
        set_busy(state, RECORDING);
        emit::short(state, kind, func, block as u64);
        set_busy(state, INSIDE);
    }
}

/// Records the release of a block of an arena.
///
/// # Safety
/// The block lives, and this thread is about to release it.
#[inline(always)]
unsafe fn released(func: u8, block: *mut c_void) {
    let state = thread::enter();
    if state.is_null() {
        return;
    }
    // SAFETY: state.H1; the block lives.
    unsafe {
        let told = ARENAS.usable(block as u64);
        write_release(state, (tag::FREE, func), block, told);
        thread::leave(state);
    }
}

/// `malloc` of a domain.
///
/// # Safety
/// As for the function that the table had.
#[unsafe(naked)]
unsafe extern "C" fn malloc(former: *mut c_void, size: usize) -> *mut c_void {
    naked_asm!(
        "cmp rsi, {most}",
        "ja 2f",
        "mov rdx, rsp",
        "mov rcx, rbp",
        "jmp {recorded}",
        "2: mov rax, [rdi + {malloc}]",
        "mov rdi, [rdi]",
        "jmp rax",
        most = const MOST_BYTES,
        malloc = const core::mem::offset_of!(Table, malloc),
        recorded = sym malloc_recorded,
    )
}

unsafe extern "C" fn malloc_recorded(
    former: *const Table,
    size: usize,
    sp: u64,
    bp: u64,
) -> *mut c_void {
    are_called();
    // SAFETY: the program's own call (J1).
    unsafe {
        let next = core::mem::transmute::<*mut c_void, Malloc>((*former).malloc);
        let block = next((*former).ctx, size);
        acquired(func::MALLOC, block, size, Caller { sp, bp });
        block
    }
}

/// `calloc` of a domain.
///
/// # Safety
/// As for the function that the table had.
#[unsafe(naked)]
unsafe extern "C" fn calloc(former: *mut c_void, n: usize, each: usize) -> *mut c_void {
    naked_asm!(
        "mov r9, rdx",
        "mov rax, rsi",
        "mul rdx",
        "mov rdx, r9",
        "jo 2f",
        "cmp rax, {most}",
        "ja 2f",
        "mov rcx, rsp",
        "mov r8, rbp",
        "jmp {recorded}",
        "2: mov rax, [rdi + {calloc}]",
        "mov rdi, [rdi]",
        "jmp rax",
        most = const MOST_BYTES,
        calloc = const core::mem::offset_of!(Table, calloc),
        recorded = sym calloc_recorded,
    )
}

unsafe extern "C" fn calloc_recorded(
    former: *const Table,
    n: usize,
    each: usize,
    sp: u64,
    bp: u64,
) -> *mut c_void {
    are_called();
    // SAFETY: the program's own call (J1); the product is small.
    unsafe {
        let next = core::mem::transmute::<*mut c_void, Calloc>((*former).calloc);
        let block = next((*former).ctx, n, each);
        acquired(func::CALLOC, block, n.wrapping_mul(each), Caller { sp, bp });
        block
    }
}

/// The block, or the function to go on to.
#[repr(C)]
struct Step {
    block: *mut c_void,
    go_on: *mut c_void,
}

/// `realloc` of a domain.
///
/// # Safety
/// As for the function that the table had.
#[unsafe(naked)]
unsafe extern "C" fn realloc(former: *mut c_void, block: *mut c_void, size: usize) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "lea rcx, [rsp + 24]",
        "mov r8, rbp",
        "call {step}",
        "test rdx, rdx",
        "jnz 2f",
        "add rsp, 24",
        ".cfi_remember_state",
        ".cfi_adjust_cfa_offset -24",
        "ret",
        "2:",
        ".cfi_restore_state",
        "mov rax, rdx",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "mov rdi, [rdi]",
        "jmp rax",
        ".cfi_endproc",
        step = sym realloc_step,
    )
}

unsafe extern "C" fn realloc_step(
    former: *const Table,
    old: *mut c_void,
    size: usize,
    sp: u64,
    bp: u64,
) -> Step {
    are_called();
    let caller = Caller { sp, bp };
    // SAFETY: the program's own call (J1).
    unsafe {
        let go_on = Step {
            block: core::ptr::null_mut(),
            go_on: (*former).realloc,
        };
        let is_of_arena = ARENAS.holds(old as u64);
        // A block of malloc's stays one, however small it becomes.
        if !is_of_arena && (!old.is_null() || size > MOST_BYTES) {
            return go_on;
        }
        if is_of_arena && size > MOST_BYTES {
            // If malloc has no memory, the block lives on unknown.
            released(free_func::REALLOC, old);
            return go_on;
        }
        let told = match is_of_arena {
            true => ARENAS.usable(old as u64),
            false => None,
        };
        let next = core::mem::transmute::<*mut c_void, Realloc>((*former).realloc);
        let block = next((*former).ctx, old, size);
        if !is_of_arena {
            acquired(func::REALLOC, block, size, caller);
        } else if !block.is_null() {
            regrown((old, told), block, size, caller);
        }
        Step {
            block,
            go_on: core::ptr::null_mut(),
        }
    }
}

/// Records that a block of an arena has become another one, or has another size (J3).
///
/// # Safety
/// The old block was released just now, and the new one acquired, by this thread.
unsafe fn regrown(
    (old, told): (*mut c_void, Option<u64>),
    block: *mut c_void,
    size: usize,
    caller: Caller,
) {
    let state = thread::enter();
    if state.is_null() {
        return;
    }
    let wanted = process::wants_acquisitions();
    // Without an arena to be had, malloc has served it, and was recorded.
    let is_pair = wanted && ARENAS.holds(block as u64);
    let kind = match is_pair {
        true => (tag::REALLOC_RELEASE, 0),
        false => (tag::FREE, free_func::REALLOC),
    };
    // SAFETY: state.H1.
    unsafe {
        write_release(state, kind, old, told);
        if is_pair {
            set_busy(state, RECORDING);
            let what = (tag::REALLOC_ACQUIRE, func::REALLOC);
            write(state, what, block, size, caller);
        } else if !wanted {
            emit::unseen(state);
        }
        thread::leave(state);
    }
}

/// `free` of a domain.
///
/// # Safety
/// As for the function that the table had.
unsafe extern "C" fn free(former: *mut c_void, block: *mut c_void) {
    // SAFETY: the program's own call (J1); our tables have former ones as contexts.
    unsafe {
        let former = former.cast::<Table>();
        if ARENAS.holds(block as u64) {
            released(free_func::FREE, block);
        }
        let next = core::mem::transmute::<*mut c_void, Free>((*former).free);
        next((*former).ctx, block);
    }
}
