//! The malloc family of C, by all its names.
//!
//! ```text
//!   malloc  __libc_malloc                 ─► alloc::malloc
//!   memalign  aligned_alloc  …  pvalloc   ─► alignment rounded up ─► alloc::memalign
//! ```
//!
//! F1  Only what the engine leaves to its caller is done here: rounding alignments, checking products, rounding to
//!     pages, `posix_memalign`'s way to fail. The rest is one jump.
//! F2  `errno` is ENOMEM after each failure and untouched otherwise; `posix_memalign` never touches it (its manual says
//!     so; glibc's sets ENOMEM nevertheless).
//! F3  The size that C23's `free_sized` passes is compared by a hardened process only: the engine knows the block.
//!
//! The functions that only differ in name have the same body, so that the compiler makes one of them.
//!
//! Not here: C++ (operators.rs), figures (reports.rs).

use core::ffi::c_int;

use skinflint_alloc as alloc;
use skinflint_alloc::whole;

use crate::plugins;

/// Bytes of one page: the alignment of `valloc`.
const PAGE: usize = 4096;

/// The alignment of `malloc`.
const MALLOC_ALIGN: usize = 16;

/// The thread's `errno`, which is restored when the value is dropped.
struct KeepErrno(c_int);

impl KeepErrno {
    fn new() -> KeepErrno {
        // SAFETY: this thread's errno.
        KeepErrno(unsafe { *libc::__errno_location() })
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        fail(self.0);
    }
}

/// Sets `errno` and returns null.
#[cold]
fn fail(error: c_int) -> *mut u8 {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = error };
    core::ptr::null_mut()
}

/// Defines functions of several names with the same arguments and the same body.
macro_rules! exported {
    ($name:ident $($more:ident)*: $($signature_and_body:tt)*) => {
        exported!(@one $name $($signature_and_body)*);
        exported!($($more)*: $($signature_and_body)*);
    };
    (: $($signature_and_body:tt)*) => {};
    (@one $name:ident $arguments:tt $(-> $result:ty)? $body:block) => {
        #[doc = concat!("`", stringify!($name), "`, see its manual page.")]
        ///
        /// # Safety
        /// As its manual page says.
        #[unsafe(no_mangle)]
        #[unsafe(link_section = ".text.skinflint_first")]
        pub unsafe extern "C" fn $name $arguments $(-> $result)? $body
    };
}

/// `malloc`, see its manual page.
///
/// # Safety
/// As its manual page says.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[unsafe(link_section = ".text.skinflint_first")]
pub unsafe extern "C" fn malloc(size: usize) -> *mut u8 {
    alloc::malloc_whole!(whole::malloc_any, whole::malloc_sampled, whole::malloc_slow)
}

exported! { __libc_malloc: (size: usize) -> *mut u8 {
    // SAFETY: as the caller promises.
    unsafe { whole::malloc_any(size) }
}}

exported! { free cfree __libc_free __libc_cfree: (block: *mut u8) {
    // SAFETY: as the caller promises.
    unsafe { alloc::free(block) }
}}

exported! { free_sized: (block: *mut u8, size: usize) {
    // SAFETY: as the caller promises.
    unsafe { free_of_size(block, size) }
}}

exported! { free_aligned_sized: (block: *mut u8, _align: usize, size: usize) {
    // SAFETY: as the caller promises.
    unsafe { free_of_size(block, size) }
}}

/// Frees a block of so many bytes (F3).
///
/// # Safety
/// As for `free`.
#[inline]
unsafe fn free_of_size(block: *mut u8, size: usize) {
    if alloc::forms::are_checked() && !alloc::forms::has_size(block, size) {
        return;
    }
    // SAFETY: as the caller promises.
    unsafe { alloc::free(block) }
}

exported! { calloc __libc_calloc: (count: usize, each: usize) -> *mut u8 {
    // SAFETY: as the caller promises.
    unsafe { alloc::calloc(count, each) }
}}

exported! { realloc __libc_realloc: (block: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: as the caller promises.
    unsafe { alloc::realloc(block, size) }
}}

exported! {
reallocarray __libc_reallocarray: (block: *mut u8, count: usize, each: usize) -> *mut u8 {
    match count.checked_mul(each) {
        Some(size) => match plugins::realloc_in_front() {
            // SAFETY: as the caller promises.
            None => unsafe { alloc::realloc(block, size) },
            // SAFETY: as above; glibc's calls `realloc` by its name, and means the program's.
            Some(theirs) => unsafe { theirs(block, size) },
        },
        None => fail(libc::ENOMEM),
    }
}}

/// Returns a block at a multiple of `align`, which is rounded up to a power of two, as glibc does.
///
/// # Safety
/// As for `malloc`.
#[inline]
pub unsafe fn aligned(align: usize, size: usize) -> *mut u8 {
    // SAFETY: as the caller promises.
    unsafe {
        if align <= MALLOC_ALIGN {
            return alloc::malloc(size);
        }
        match align.checked_next_power_of_two() {
            Some(align) => alloc::memalign(align, size),
            // The one alignment that glibc refuses.
            None => fail(libc::EINVAL),
        }
    }
}

exported! {
memalign __libc_memalign aligned_alloc: (align: usize, size: usize) -> *mut u8 {
    // SAFETY: as the caller promises.
    unsafe { aligned(align, size) }
}}

exported! { valloc __libc_valloc: (size: usize) -> *mut u8 {
    // SAFETY: as the caller promises.
    unsafe { alloc::memalign(PAGE, size) }
}}

exported! { pvalloc __libc_pvalloc: (size: usize) -> *mut u8 {
    match size.checked_next_multiple_of(PAGE) {
        // SAFETY: as the caller promises.
        Some(whole) => unsafe { alloc::memalign(PAGE, whole) },
        None => fail(libc::ENOMEM),
    }
}}

exported! {
posix_memalign __posix_memalign: (out: *mut *mut u8, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() || align < size_of::<*mut u8>() {
        return libc::EINVAL;
    }
    let _errno = KeepErrno::new();
    // SAFETY: as the caller promises; `out` is written on success only.
    unsafe {
        let block = aligned(align, size);
        if block.is_null() {
            return libc::ENOMEM;
        }
        out.write(block);
    }
    0
}}

exported! { malloc_usable_size: (block: *mut u8) -> usize {
    // SAFETY: as the caller promises.
    unsafe { alloc::usable_size(block) }
}}
