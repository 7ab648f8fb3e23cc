//! `operator new` and `delete`, for allocators that have their own.
//!
//! V1  If the operators beneath are those of the C++ library, they call `malloc`, which is recorded
//!     there: ours jump straight on and leave no frame (a `bad_alloc` must be able to pass).
//! V2  If they belong to the allocator (jemalloc, tcmalloc, mimalloc preloaded after us), they are
//!     recorded here, through the `nothrow` form; only if that fails the throwing form is jumped to.
//!
//! Not here: operators that the program itself defines. They are found before ours, and call
//! `malloc` in the end.

use core::arch::naked_asm;
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use skinflint_base::loader;
use skinflint_base::ring::tag;

use super::malloc::{acquired, free_func, func, released};
use crate::stacks::Caller;
use crate::state::ThreadState;
use crate::{real, thread};

/// The index into the table of operators that acquire.
#[derive(Clone, Copy)]
#[repr(usize)]
enum New {
    Plain,
    Array,
    PlainNothrow,
    ArrayNothrow,
    PlainAligned,
    ArrayAligned,
    PlainAlignedNothrow,
    ArrayAlignedNothrow,
}

const NEW_NAMES: [&CStr; 8] = [
    c"_Znwm",
    c"_Znam",
    c"_ZnwmRKSt9nothrow_t",
    c"_ZnamRKSt9nothrow_t",
    c"_ZnwmSt11align_val_t",
    c"_ZnamSt11align_val_t",
    c"_ZnwmSt11align_val_tRKSt9nothrow_t",
    c"_ZnamSt11align_val_tRKSt9nothrow_t",
];

const DELETE_NAMES: [&CStr; 12] = [
    c"_ZdlPv",
    c"_ZdaPv",
    c"_ZdlPvm",
    c"_ZdaPvm",
    c"_ZdlPvSt11align_val_t",
    c"_ZdaPvSt11align_val_t",
    c"_ZdlPvmSt11align_val_t",
    c"_ZdaPvmSt11align_val_t",
    c"_ZdlPvRKSt9nothrow_t",
    c"_ZdaPvRKSt9nothrow_t",
    c"_ZdlPvSt11align_val_tRKSt9nothrow_t",
    c"_ZdaPvSt11align_val_tRKSt9nothrow_t",
];

static NEWS: [AtomicPtr<c_void>; 8] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 8];
static DELETES: [AtomicPtr<c_void>; 12] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 12];

const UNKNOWN: u32 = 0;
const LIBRARY: u32 = 1;
const ALLOCATOR: u32 = 2;
static WHOSE: AtomicU32 = AtomicU32::new(UNKNOWN);

/// Finds an operator: after us, or in a C++ library that was loaded only for a plug-in.
fn find(name: &CStr) -> *mut c_void {
    let mut found = real::look_up(name);
    if found.is_null() {
        loader::each_module(&mut |module, path| {
            let file = path.to_bytes().rsplit(|&byte| byte == b'/').next();
            let names: [&[u8]; 3] = [b"libstdc++.so", b"libc++abi.so", b"libc++.so"];
            if file.is_some_and(|file| names.iter().any(|name| file.starts_with(name))) {
                // SAFETY: the module stays loaded while it is shown; plug-ins keep their C++ library.
                found = unsafe { module.function(name) };
            }
            found.is_null()
        });
    }
    found
}

#[cold]
#[inline(never)]
fn whose_slow() -> u32 {
    // ORDER: Relaxed for the pointers, Release for the verdict that publishes them; two threads may
    // both come here, and store the same values.
    for (slot, name) in NEWS.iter().zip(NEW_NAMES) {
        slot.store(find(name), Ordering::Relaxed);
    }
    for (slot, name) in DELETES.iter().zip(DELETE_NAMES) {
        slot.store(find(name), Ordering::Relaxed);
    }
    // ORDER: as said at the head of the function.
    let new = NEWS[New::Plain as usize].load(Ordering::Relaxed);
    let malloc = real::REAL.malloc.get();
    let same = !new.is_null() && real::object_of(new) == real::object_of(malloc);
    let whose = if same { ALLOCATOR } else { LIBRARY };
    // ORDER: as said at the head of the function.
    WHOSE.store(whose, Ordering::Release);
    whose
}

#[inline(always)]
fn whose() -> u32 {
    // ORDER: Acquire; pairs with the Release in `whose_slow`.
    let whose = WHOSE.load(Ordering::Acquire);
    if whose == UNKNOWN {
        whose_slow()
    } else {
        whose
    }
}

/// The function to jump on to, or null if `result` holds the block.
#[repr(C)]
struct Step {
    result: *mut c_void,
    go_on: *mut c_void,
}

/// Decides about an acquisition: serves it (V2) or returns the function to jump to (V1).
unsafe extern "C" fn new_step(size: usize, align: usize, which: usize, sp: u64, bp: u64) -> Step {
    let aligned = which >= New::PlainAligned as usize;
    // ORDER: Relaxed; published by `whose`.
    if whose() == LIBRARY {
        let go_on = NEWS[which].load(Ordering::Relaxed);
        if !go_on.is_null() {
            return Step {
                result: core::ptr::null_mut(),
                go_on,
            };
        }
        // There is no C++ library anywhere: the caller has only half of one.
        // SAFETY: the program's own call.
        let result = unsafe { real_plain(size, if aligned { align } else { 0 }) };
        return Step {
            result,
            go_on: core::ptr::null_mut(),
        };
    }
    let is_array = which % 2 == 1;
    let nothrow = match (aligned, is_array) {
        (false, false) => New::PlainNothrow,
        (false, true) => New::ArrayNothrow,
        (true, false) => New::PlainAlignedNothrow,
        (true, true) => New::ArrayAlignedNothrow,
    };
    // ORDER: Relaxed; as above.
    let real = NEWS[nothrow as usize].load(Ordering::Relaxed);
    let throwing = NEWS[which].load(Ordering::Relaxed);
    if real.is_null() {
        return Step {
            result: core::ptr::null_mut(),
            go_on: throwing,
        };
    }
    let state = thread::enter();
    // SAFETY: state.H1.
    unsafe { in_operator(state, true) };
    // std::nothrow is an empty object that is never read.
    let token = 0u64;
    // SAFETY: the program's own call, in the form that returns null instead of throwing.
    let block = unsafe {
        if aligned {
            type Aligned = unsafe extern "C" fn(usize, usize, *const u64) -> *mut c_void;
            core::mem::transmute::<*mut c_void, Aligned>(real)(size, align, &raw const token)
        } else {
            type Plain = unsafe extern "C" fn(usize, *const u64) -> *mut c_void;
            core::mem::transmute::<*mut c_void, Plain>(real)(size, &raw const token)
        }
    };
    // SAFETY: as above.
    unsafe { in_operator(state, false) };
    let kind = if is_array { func::NEW_ARRAY } else { func::NEW };
    // SAFETY: `state` comes from `enter`.
    unsafe { acquired(state, tag::ALLOC, kind, block, size, Caller { sp, bp }) };
    let go_on = if block.is_null() {
        throwing
    } else {
        core::ptr::null_mut()
    };
    Step {
        result: block,
        go_on,
    }
}

/// Notes that an operator of the allocator's own runs, or runs no more: jemalloc's `new[]` calls its `new` through the
/// program's tables, and so through our hook; its block is recorded once, by the first hook.
///
/// # Safety
/// `state` is what `enter` returned.
unsafe fn in_operator(state: *mut ThreadState, does: bool) {
    if !state.is_null() {
        // SAFETY: as the caller promises (state.H1).
        unsafe { (*state).in_operator = does };
    }
}

/// # Safety
/// As for `malloc`.
#[cold]
unsafe fn real_plain(size: usize, align: usize) -> *mut c_void {
    // SAFETY: the program's own call.
    unsafe {
        if align == 0 {
            super::entries::malloc(size.max(1))
        } else {
            super::malloc::memalign(align, size.max(1))
        }
    }
}

/// Defines an exported operator: it asks `new_step`, and returns its result, or jumps on with its own
/// arguments. At entry the stack is 8 below a multiple of 16; three pushes and 8 more make it one. On x86-64 it jumps on at
/// once where `new_step` would have it do so (V1): six instructions.
macro_rules! operator_new {
    ($name:ident($($argument:ident: $kind:ty),*), $which:expr) => {
        #[doc = concat!("`", stringify!($name), "`: see V1 and V2.")]
        ///
        /// # Safety
        /// As for the operator beneath.
        #[allow(non_snake_case)]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> *mut c_void {
            #[cfg(target_arch = "aarch64")]
            naked_asm!(
                "stp x29, x30, [sp, #-16]!",
                "add x3, sp, #8",
                "mov x4, x29",
                "stp x0, x1, [sp, #-32]!",
                "str x2, [sp, #16]",
                "mov x2, {which}",
                "bl {step}",
                "cbnz x1, 2f",
                "add sp, sp, #32",
                "ldp x29, x30, [sp], #16",
                "ret",
                "2:",
                "mov x9, x1",
                "ldr x2, [sp, #16]",
                "ldp x0, x1, [sp], #32",
                "ldp x29, x30, [sp], #16",
                "br x9",
                which = const $which as usize,
                step = sym new_step,
            );
            #[cfg(target_arch = "x86_64")]
            naked_asm!(
                "cmp dword ptr [rip + {whose}], {library}",
                "jne 3f",
                "mov rax, qword ptr [rip + {news} + {place}]",
                "test rax, rax",
                "jz 3f",
                "jmp rax",
                "3:",
                "push rdi",
                "push rsi",
                "push rdx",
                "mov edx, {which}",
                "lea rcx, [rsp + 24]",
                "mov r8, rbp",
                "call {step}",
                "mov rcx, rdx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "test rcx, rcx",
                "jnz 2f",
                "ret",
                "2:",
                "jmp rcx",
                whose = sym WHOSE,
                library = const LIBRARY,
                news = sym NEWS,
                place = const 8 * $which as usize,
                which = const $which as usize,
                step = sym new_step,
            )
        }
    };
}

operator_new!(_Znwm(size: usize), New::Plain);
operator_new!(_Znam(size: usize), New::Array);
operator_new!(_ZnwmRKSt9nothrow_t(size: usize, token: *const c_void), New::PlainNothrow);
operator_new!(_ZnamRKSt9nothrow_t(size: usize, token: *const c_void), New::ArrayNothrow);
operator_new!(_ZnwmSt11align_val_t(size: usize, align: usize), New::PlainAligned);
operator_new!(_ZnamSt11align_val_t(size: usize, align: usize), New::ArrayAligned);
operator_new!(
    _ZnwmSt11align_val_tRKSt9nothrow_t(size: usize, align: usize, token: *const c_void),
    New::PlainAlignedNothrow
);
operator_new!(
    _ZnamSt11align_val_tRKSt9nothrow_t(size: usize, align: usize, token: *const c_void),
    New::ArrayAlignedNothrow
);

/// Records a release by operator `index`, and passes its further arguments on.
///
/// # Safety
/// As for the operator beneath.
unsafe extern "C" fn delete(block: *mut c_void, second: usize, third: usize, index: usize) {
    let by_library = whose() == LIBRARY;
    // ORDER: Relaxed; published by `whose`.
    let real = DELETES[index].load(Ordering::Relaxed);
    // SAFETY: the program's own call. Passing more arguments than the function takes is harmless
    // on both processors: they are in registers that the callee may overwrite.
    unsafe {
        if real.is_null() {
            return super::entries::free(block);
        }
        type Delete = unsafe extern "C" fn(*mut c_void, usize, usize);
        let real = core::mem::transmute::<*mut c_void, Delete>(real);
        if by_library {
            return real(block, second, third);
        }
        let func = if index % 2 == 1 {
            free_func::DELETE_ARRAY
        } else {
            free_func::DELETE
        };
        if block.is_null() || real::is_of_arena(block) {
            return;
        }
        let state = thread::enter();
        if state.is_null() {
            return real(block, second, third);
        }
        released(state, tag::FREE, func, block);
        in_operator(state, true);
        real(block, second, third);
        in_operator(state, false);
        thread::leave(state);
    }
}

/// Defines an exported operator: what it is goes to `delete` as the fourth argument. On x86-64 it jumps on at once where
/// `delete` would do so (V1).
macro_rules! operator_delete {
    ($name:ident, $index:literal) => {
        #[doc = concat!("`", stringify!($name), "`: see V1 and V2.")]
        ///
        /// # Safety
        /// As for the operator beneath.
        #[allow(non_snake_case)]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(_block: *mut c_void, _second: usize, _third: usize) {
            #[cfg(target_arch = "aarch64")]
            naked_asm!(
                "mov x3, {index}",
                "b {delete}",
                index = const $index,
                delete = sym delete,
            );
            #[cfg(target_arch = "x86_64")]
            naked_asm!(
                "cmp dword ptr [rip + {whose}], {library}",
                "jne 2f",
                "mov rax, qword ptr [rip + {deletes} + {place}]",
                "test rax, rax",
                "jz 2f",
                "jmp rax",
                "2:",
                "mov ecx, {index}",
                "jmp {delete}",
                whose = sym WHOSE,
                library = const LIBRARY,
                deletes = sym DELETES,
                place = const 8 * $index,
                index = const $index,
                delete = sym delete,
            )
        }
    };
}

operator_delete!(_ZdlPv, 0);
operator_delete!(_ZdaPv, 1);
operator_delete!(_ZdlPvm, 2);
operator_delete!(_ZdaPvm, 3);
operator_delete!(_ZdlPvSt11align_val_t, 4);
operator_delete!(_ZdaPvSt11align_val_t, 5);
operator_delete!(_ZdlPvmSt11align_val_t, 6);
operator_delete!(_ZdaPvmSt11align_val_t, 7);
operator_delete!(_ZdlPvRKSt9nothrow_t, 8);
operator_delete!(_ZdaPvRKSt9nothrow_t, 9);
operator_delete!(_ZdlPvSt11align_val_tRKSt9nothrow_t, 10);
operator_delete!(_ZdaPvSt11align_val_tRKSt9nothrow_t, 11);
