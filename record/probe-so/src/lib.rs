//! `libskinflint_probe.so`: shows whether a preloaded allocator serves a program. It counts calls and passes them on.
//!
//! ```text
//!   LD_PRELOAD=libskinflint_probe.so:liballocator.so
//!
//!   program ──malloc, calloc, …──► count ──► the next malloc in the loader's order (free never passes here)
//!                                    │
//!                                    └──► slot of this process in the file that SKINFLINT_PROBE names
//! ```
//!
//! Q1  Only calls that acquire are counted; blocks are the next allocator's own, so `free` need not be known here.
//!     Only the outermost call is counted: an `operator new` of the C++ library calls malloc, and that call is
//!     counted; one of the allocator is counted itself, and the allocator's calls of its own functions are not.
//! Q2  Calls before the constructor are not counted: they are the loader's, which calls a preloaded `malloc` even in
//!     programs that never do.
//! Q3  A call of a function that cannot be resolved yet, because `dlsym` itself asks for memory, gets null: glibc then
//!     uses a static buffer.
//! Q4  `operator new` may throw: its hooks are no longer on the stack then, since they leave by a jump.
//! Q5  A result is what the next function returns, unchanged; `errno` is what it leaves.
//!
//! Not here: what follows from the counts (`compare`). Nothing is measured while this library is loaded.
#![no_std]

mod slot;

use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Aborts: a panic has no way out of a program's `malloc`.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    skinflint_base::sys::stderr(b"skinflint probe: internal error; please report it\n");
    // SAFETY: abort does not return.
    unsafe { libc::abort() }
}

/// The number of threads that are resolving a name (Q3). `dlsym` is called a few times in a process's life.
static RESOLVING: AtomicU32 = AtomicU32::new(0);

/// Returns the next function of a name, or null. `name` ends with a zero byte.
#[inline]
fn next(cache: &AtomicPtr<c_void>, name: &'static [u8]) -> *mut c_void {
    // ORDER: Relaxed; the pointer leads to code, and publishes nothing else.
    let found = cache.load(Ordering::Relaxed);
    if found.is_null() {
        next_slow(cache, name)
    } else {
        found
    }
}

#[cold]
fn next_slow(cache: &AtomicPtr<c_void>, name: &'static [u8]) -> *mut c_void {
    // ORDER: Relaxed; a thread sees its own addition. Another thread's look-up makes this one return null only if
    // many threads make the first call of a name at once, long after the constructor resolved the common names.
    if RESOLVING.fetch_add(1, Ordering::Relaxed) > 8 {
        // ORDER: Relaxed; as above.
        RESOLVING.fetch_sub(1, Ordering::Relaxed);
        return core::ptr::null_mut();
    }
    // SAFETY: the name ends with a zero byte; `dlsym` may come back here for memory (Q3).
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast::<c_char>()) };
    // ORDER: Relaxed; as in `next`.
    cache.store(found, Ordering::Relaxed);
    // ORDER: Relaxed; as above.
    RESOLVING.fetch_sub(1, Ordering::Relaxed);
    found
}

/// Defines functions that count, then call the next function of the same name. None takes more than three words, so
/// the fourth register of the ABI can hold the address that the call came from (Q1).
macro_rules! counted {
    ($($name:ident by $real:ident, or $failed:expr;)*) => {
        $(
            unsafe extern "C" fn $real(a: usize, b: usize, c: usize, from: usize) -> usize {
                static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
                slot::count_from(from);
                let function = next(&NEXT, concat!(stringify!($name), "\0").as_bytes());
                if function.is_null() {
                    return $failed;
                }
                // SAFETY: the function that the loader found by this name takes words and returns one; words that it
                // does not take are in registers that it does not read, and the rest are the caller's (Q5).
                unsafe {
                    let function: unsafe extern "C" fn(usize, usize, usize) -> usize =
                        core::mem::transmute(function);
                    function(a, b, c)
                }
            }

            /// Counts the call and passes it on.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            extern "C" fn $name() {
                #[cfg(target_arch = "aarch64")]
                core::arch::naked_asm!("mov x3, x30", "b {real}", real = sym $real);
                #[cfg(target_arch = "x86_64")]
                core::arch::naked_asm!("mov rcx, [rsp]", "jmp {real}", real = sym $real)
            }
        )*
    };
}

counted! {
    malloc by malloc_from, or 0;
    calloc by calloc_from, or 0;
    realloc by realloc_from, or 0;
    memalign by memalign_from, or 0;
    aligned_alloc by aligned_alloc_from, or 0;
    posix_memalign by posix_memalign_from, or libc::ENOMEM as usize;
}

/// Defines an `operator new` with three arguments at most: it is counted if it is the allocator's own (Q1), then left
/// by a jump (Q4).
macro_rules! counted_new {
    ($($name:ident by $find:ident;)*) => {
        $(
            /// Returns the next function of this name, or `malloc` if there is none.
            extern "C" fn $find(from: usize) -> *mut c_void {
                static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
                let function = next(&NEXT, concat!(stringify!($name), "\0").as_bytes());
                if function.is_null() {
                    return malloc as *mut c_void;
                }
                // SAFETY: the loader found it.
                let passed_on = || unsafe { slot::leads_elsewhere(function as usize) };
                if slot::is_of_the_server(function as usize) && !passed_on() {
                    slot::count_from(from);
                }
                function
            }

            /// Counts the call and passes it on.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            extern "C" fn $name() {
                #[cfg(target_arch = "aarch64")]
                core::arch::naked_asm!(
                    skinflint_base::jump_to_what_before_returns!("mov x0, x30"),
                    before = sym $find,
                );
                #[cfg(target_arch = "x86_64")]
                core::arch::naked_asm!(
                    "push rdi",
                    "push rsi",
                    "push rdx",
                    "mov rdi, [rsp + 24]",
                    "call {find}",
                    "pop rdx",
                    "pop rsi",
                    "pop rdi",
                    "jmp rax",
                    find = sym $find,
                )
            }
        )*
    };
}

counted_new! {
    _Znwm by next_new;
    _Znam by next_new_array;
    _ZnwmRKSt9nothrow_t by next_new_nothrow;
    _ZnamRKSt9nothrow_t by next_new_array_nothrow;
    _ZnwmSt11align_val_t by next_new_aligned;
    _ZnamSt11align_val_t by next_new_array_aligned;
    _ZnwmSt11align_val_tRKSt9nothrow_t by next_new_aligned_nothrow;
    _ZnamSt11align_val_tRKSt9nothrow_t by next_new_array_aligned_nothrow;
}
