//! The installing of filters of system calls: by `prctl`, and by `seccomp`, which has a number only; and the way on of
//! calls of `prctl` and `syscall` that are passed on.
//!
//! P1  A call goes on to the function behind ours, as any other does: an allocator may stand there that has threads of
//!     its own follow the program's rights. Before the functions are known (real.L2), it goes to the kernel.
//! P2  A call that is passed on leaves no frame of ours: a child that shares its parent's stack returns through it.
//!
//! Not here: what follows from a filter (filters.rs).

use core::arch::naked_asm;
use core::ffi::c_void;
use core::mem::offset_of;

use skinflint_base::sys;

use crate::real::{Prctl, REAL, Syscall, Table};
use crate::{filters, thread};

/// `prctl`; filters of system calls are noted.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn prctl(_option: i32) -> i32 {
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "cmp w0, {SET_SECCOMP}",
        "b.eq 3f",
        "adrp x9, {table}",
        "add x9, x9, :lo12:{table}",
        "ldr x9, [x9, {place}]",
        "cbz x9, 2f",
        "br x9",
        "2:",
        "sxtw x0, w0",
        "mov x8, {PRCTL}",
        "b {into_the_kernel}",
        "3: b {seccomp}",
        SET_SECCOMP = const libc::PR_SET_SECCOMP,
        PRCTL = const libc::SYS_prctl,
        seccomp = sym set_seccomp::<false>,
        table = sym REAL,
        place = const offset_of!(Table, prctl),
        into_the_kernel = sym into_the_kernel,
    );
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "cmp edi, {SET_SECCOMP}",
        "je {seccomp}",
        "mov rax, qword ptr [rip + {table} + {place}]",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "movsxd rdi, edi",
        "mov r10, rcx",
        "mov eax, {PRCTL}",
        "jmp {into_the_kernel}",
        SET_SECCOMP = const libc::PR_SET_SECCOMP,
        PRCTL = const libc::SYS_prctl,
        seccomp = sym set_seccomp::<false>,
        table = sym REAL,
        place = const offset_of!(Table, prctl),
        into_the_kernel = sym into_the_kernel,
    )
}

/// Passes a call of `syscall` on (P1, P2), with the registers and the stack as the program set them.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn passed() {
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "adrp x9, {table}",
        "add x9, x9, :lo12:{table}",
        "ldr x9, [x9, {place}]",
        "cbz x9, 2f",
        "br x9",
        "2:",
        "mov x8, x0",
        "mov x0, x1",
        "mov x1, x2",
        "mov x2, x3",
        "mov x3, x4",
        "mov x4, x5",
        "mov x5, x6",
        "b {into_the_kernel}",
        table = sym REAL,
        place = const offset_of!(Table, syscall),
        into_the_kernel = sym into_the_kernel,
    );
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "mov rax, qword ptr [rip + {table} + {place}]",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "jmp {into_the_kernel}",
        table = sym REAL,
        place = const offset_of!(Table, syscall),
        into_the_kernel = sym into_the_kernel,
    )
}

/// Makes the system call whose number is in `rax` (aarch64: `x8`) and whose arguments are where the kernel wants them. Returns as
/// the C library's functions do, to the caller of the function that jumped here.
#[unsafe(naked)]
unsafe extern "C" fn into_the_kernel() {
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "svc 0",
        "cmn x0, #4095",
        "b.cs 2f",
        "ret",
        "2:",
        "stp x29, x30, [sp, #-32]!",
        "str x0, [sp, #16]",
        "bl {errno}",
        "ldr x1, [sp, #16]",
        "neg w1, w1",
        "str w1, [x0]",
        "mov x0, #-1",
        "ldp x29, x30, [sp], #32",
        "ret",
        errno = sym libc::__errno_location,
    );
    #[cfg(target_arch = "x86_64")]
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

/// `prctl(PR_SET_SECCOMP, …)`, by its name or by its number.
pub(super) unsafe extern "C" fn set_seccomp<const BY_NUMBER: bool>(
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
    unsafe {
        install(filter, is_filter, is_strict, || match BY_NUMBER {
            true => by_number(libc::SYS_prctl, args),
            false => by_name(args),
        })
    }
}

/// `seccomp`, by its number.
pub(super) unsafe extern "C" fn seccomp(operation: u64, flags: u64, filter: *const c_void) -> i64 {
    let args = [operation, flags, filter as u64, 0, 0, 0];
    // The kernel reads 32 bits of it.
    let operation = operation as u32;
    let is_filter = operation == libc::SECCOMP_SET_MODE_FILTER;
    let is_strict = operation == libc::SECCOMP_SET_MODE_STRICT;
    // SAFETY: the program's own call.
    unsafe {
        install(filter, is_filter, is_strict, || {
            by_number(libc::SYS_seccomp, args)
        })
    }
}

/// Calls the `prctl` behind ours (P1).
///
/// # Safety
/// The program's own call.
unsafe fn by_name(args: [u64; 6]) -> i64 {
    let next = REAL.prctl.if_resolved();
    if next.is_null() {
        // SAFETY: as the caller promises.
        return unsafe { to_the_kernel(libc::SYS_prctl, args) };
    }
    let [option, a, b, c, d, _] = args;
    // SAFETY: found under its name, which has this type; as the caller promises.
    unsafe {
        let next = core::mem::transmute::<*mut c_void, Prctl>(next);
        i64::from(next(option as i32, a, b, c, d))
    }
}

/// Calls the `syscall` behind ours (P1).
///
/// # Safety
/// The program's own call.
unsafe fn by_number(number: i64, args: [u64; 6]) -> i64 {
    let next = REAL.syscall.if_resolved();
    if next.is_null() {
        // SAFETY: as the caller promises.
        return unsafe { to_the_kernel(number, args) };
    }
    let [a, b, c, d, e, f] = args;
    // SAFETY: found under its name, which has this type; as the caller promises.
    unsafe {
        let next = core::mem::transmute::<*mut c_void, Syscall>(next);
        next(number, a, b, c, d, e, f)
    }
}

/// Makes a system call, and sets `errno` as the C library would.
///
/// # Safety
/// The program's own call.
unsafe fn to_the_kernel(number: i64, args: [u64; 6]) -> i64 {
    // SAFETY: as the caller promises.
    let result = unsafe { sys::syscall(number, args) };
    if sys::is_error(result) {
        // SAFETY: this thread's own.
        unsafe { *libc::__errno_location() = -result as i32 };
        return -1;
    }
    result
}

/// Lets a child of fork that has recorded nothing yet meet the collector, while it may.
fn meet() {
    let state = thread::enter();
    if !state.is_null() {
        // SAFETY: of `enter`.
        unsafe { thread::leave(state) };
    }
}

/// Makes the program's call, which returns as the C library's functions do, and notes the filter that it installs.
///
/// # Safety
/// `filter` is what the call has the kernel read.
unsafe fn install(
    filter: *const c_void,
    is_filter: bool,
    is_strict: bool,
    call: impl FnOnce() -> i64,
) -> i64 {
    // Without a filter the call only asks what the kernel can do.
    let before = (is_filter && !filter.is_null() || is_strict).then(|| {
        meet();
        filters::before()
    });
    let result = call();
    match before {
        _ if result == -1 => {}
        // SAFETY: the kernel has read it.
        Some(before) if is_filter => unsafe { filters::installed(filter.cast(), &before) },
        Some(before) => filters::is_strict(&before),
        None => {}
    }
    result
}
