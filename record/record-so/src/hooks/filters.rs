//! The installing of filters of system calls: by `prctl`, and by `seccomp`, which has a number only; and the way into the
//! kernel of calls by number that are passed on.
//!
//! Not here: what follows from a filter (filters.rs).

use core::arch::naked_asm;
use core::ffi::c_void;

use skinflint_base::sys;

use crate::{filters, thread};

/// `prctl`; filters of system calls are noted.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn prctl(_option: i32) -> i32 {
    naked_asm!("jmp {passed}", passed = sym passed)
}

/// Makes a call of `prctl` as the C library does, without a frame of ours; except for filters.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn passed() {
    naked_asm!(
        "cmp edi, {SET_SECCOMP}",
        "je {seccomp}",
        "movsxd rdi, edi",
        "mov r10, rcx",
        "mov eax, {PRCTL}",
        "jmp {into_the_kernel}",
        SET_SECCOMP = const libc::PR_SET_SECCOMP,
        PRCTL = const libc::SYS_prctl,
        seccomp = sym set_seccomp,
        into_the_kernel = sym into_the_kernel,
    )
}

/// Makes the system call whose number is in `rax` and whose arguments are where the kernel wants them. Returns as
/// the C library's functions do, to the caller of the function that jumped here.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn into_the_kernel() {
    naked_asm!(
        "syscall",
        "cmp rax, -4095",
        "jae 2f",
        "ret",
        "2:",
        "push rax",
        "call {errno}",
        "pop rcx",
        "neg ecx",
        "mov dword ptr [rax], ecx",
        "mov rax, -1",
        "ret",
        errno = sym libc::__errno_location,
    )
}

/// `prctl(PR_SET_SECCOMP, …)`.
unsafe extern "C" fn set_seccomp(
    option: u64,
    mode: u64,
    filter: *const c_void,
    fourth: u64,
    fifth: u64,
) -> i64 {
    let args = [option, mode, filter as u64, fourth, fifth, 0];
    let is_filter = mode == u64::from(libc::SECCOMP_MODE_FILTER);
    let is_strict = mode == u64::from(libc::SECCOMP_MODE_STRICT);
    // SAFETY: the program's own call.
    unsafe { install(libc::SYS_prctl, args, filter, is_filter, is_strict) }
}

/// `seccomp`, by its number.
pub(super) unsafe extern "C" fn seccomp(operation: u64, flags: u64, filter: *const c_void) -> i64 {
    let args = [operation, flags, filter as u64, 0, 0, 0];
    // The kernel reads 32 bits of it.
    let operation = operation as u32;
    let is_filter = operation == libc::SECCOMP_SET_MODE_FILTER;
    let is_strict = operation == libc::SECCOMP_SET_MODE_STRICT;
    // SAFETY: the program's own call.
    unsafe { install(libc::SYS_seccomp, args, filter, is_filter, is_strict) }
}

/// Lets a child of fork that has recorded nothing yet meet the collector, while it may.
fn meet() {
    let state = thread::enter();
    if !state.is_null() {
        // SAFETY: of `enter`.
        unsafe { thread::leave(state) };
    }
}

/// Makes the program's call. Returns what the C library's function would, and sets `errno` as it would.
unsafe fn install(
    number: i64,
    args: [u64; 6],
    filter: *const c_void,
    is_filter: bool,
    is_strict: bool,
) -> i64 {
    // Without a filter the call only asks what the kernel can do.
    let before = (is_filter && !filter.is_null() || is_strict).then(|| {
        meet();
        filters::before()
    });
    // SAFETY: as the callers promise.
    let result = unsafe { sys::syscall(number, args) };
    if sys::is_error(result) {
        // SAFETY: this thread's own.
        unsafe { *libc::__errno_location() = -result as i32 };
        return -1;
    }
    match before {
        // SAFETY: the kernel has read it.
        Some(before) if is_filter => unsafe { filters::installed(filter.cast(), &before) },
        Some(before) => filters::is_strict(&before),
        None => {}
    }
    result
}
