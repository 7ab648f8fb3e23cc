//! The C library's functions that change what a thread may do: our threads are not there meanwhile.
//!
//! ```text
//!   setuid, unshare, prctl, … ─► the purger leaves, the endpoint leaves ─► real ─► they may come back
//!                              a filter of system calls that punishes what they do: they do not
//! ```
//!
//! C1  The kernel changes the rights of the calling thread alone; the C library makes its own threads follow, and ours
//!     are none of those. A purger that kept root after the program gave it up would be a way back to root for whoever
//!     takes the process over. So it ends before the call, and the next one begins with the program's rights.
//! C2  The kernel refuses some calls to a process of several threads (a new user namespace), and to one whose threads
//!     share a folder (another mount namespace): the program must get the answer that it would get without us.
//! C3  The child of a `vfork` shares our memory and has no thread of ours: its calls go on as they are. It is known by
//!     its pid.
//! C4  The functions may be called in a signal handler: nothing here allocates or takes a lock.
//! C5  The functions go on to those behind ours, which are looked up at the first call: most programs make none. Where
//!     there is none the caller gets ENOSYS.
//!
//! Not here: how the purger leaves (`alloc`), calls that pass the C library by (`alloc::services::rights`).

use core::arch::naked_asm;
use core::ffi::{CStr, c_int, c_long, c_uint, c_ulong, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use skinflint_alloc as alloc;
use skinflint_base::filter::{Call, Verdict, verdict};
use skinflint_base::sys;

use crate::{endpoint, plugins};

/// The process that our threads belong to (C3).
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Notes the process: at the start, and in the child of a fork.
#[unsafe(link_section = ".text.skinflint_first")]
pub fn begin() {
    PROCESS.store(sys::getpid(), Ordering::Relaxed); // ORDER: one thread
}

/// The filter that a call sets.
#[derive(Clone, Copy)]
enum Filter {
    None,
    /// The kernel's own, which ends the process at nearly every call.
    Strict,
    Program(*const libc::sock_fprog),
}

/// What our threads have the kernel do, as a filter sees it: some address, and flags.
const OURS: [Call; 11] = {
    const AT: u64 = 0x7fff_0000_0000;
    const fn call(number: i64, args: [u64; 3]) -> Call {
        let [a, b, c] = args;
        Call {
            number,
            args: [a, b, c, 0, 0, 0],
        }
    }
    [
        call(libc::SYS_clone, [alloc::hidden::SHARED as u64, AT, AT]),
        call(libc::SYS_futex, [AT, libc::FUTEX_WAIT as u64, 1]),
        call(libc::SYS_process_madvise, [u64::MAX, AT, 2]),
        call(libc::SYS_madvise, [AT, 4096, libc::MADV_DONTNEED as u64]),
        call(libc::SYS_membarrier, [0, 0, 0]),
        call(libc::SYS_capget, [AT, AT, 0]),
        call(libc::SYS_prctl, [libc::PR_SET_NAME as u64, AT, 0]),
        call(libc::SYS_clock_gettime, [3, AT, 0]),
        call(libc::SYS_tgkill, [1000, 1000, 0]),
        call(libc::SYS_rt_sigprocmask, [0, AT, AT]),
        call(libc::SYS_getpid, [0; 3]),
    ]
};

/// Reports whether a filter does anything to our calls but let them fail.
///
/// # Safety
/// The kernel has just read the filter.
unsafe fn punishes(program: *const libc::sock_fprog) -> bool {
    // SAFETY: as the caller promises.
    let steps = unsafe {
        let program = &*program;
        core::slice::from_raw_parts(program.filter, usize::from(program.len))
    };
    OURS.iter()
        .any(|call| verdict(steps, call) != Verdict::Passes)
}

/// Has our threads leave, if this is their process; makes the call; lets them come back.
///
/// # Safety
/// `filter` is what the call has the kernel read.
unsafe fn meanwhile(filter: Filter, call: impl FnOnce() -> c_long) -> c_long {
    // ORDER: Relaxed; written when there was one thread.
    if PROCESS.load(Ordering::Relaxed) != sys::getpid() {
        return call();
    }
    alloc::leave();
    endpoint::leave();
    let result = match filter {
        Filter::None => call(),
        Filter::Strict => alloc::filtering(call, || alloc::Punished::All),
        // SAFETY: the kernel has just read it.
        Filter::Program(program) => alloc::filtering(call, || match unsafe { punishes(program) } {
            true => alloc::Punished::Purger,
            false => alloc::Punished::Nothing,
        }),
    };
    // SAFETY: the thread's own variable. What comes next must not change what the program reads.
    let error = unsafe { *libc::__errno_location() };
    endpoint::come_back();
    alloc::come_back();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error };
    result
}

fn refuse() -> c_int {
    // SAFETY: the thread's own variable.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

/// Returns the function behind ours; null if there is none (C5).
fn behind(name: &CStr, found: &AtomicPtr<c_void>) -> *mut c_void {
    let mut real = found.load(Ordering::Relaxed); // ORDER: Relaxed; code does not change
    if real.is_null() {
        real = plugins::behind(name);
        found.store(real, Ordering::Relaxed); // ORDER: as above
    }
    real
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*) $real:ident $named:literal;)*) => {
        $(
            static $real: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

            $(#[$doc])*
            ///
            /// # Safety
            /// As its manual page says.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
                let real = behind($named, &$real);
                if real.is_null() {
                    return refuse();
                }
                // SAFETY: found under its name, which has this type; the program's own call.
                let call = || unsafe {
                    type Real = unsafe extern "C" fn($($kind),*) -> c_int;
                    c_long::from(core::mem::transmute::<*mut c_void, Real>(real)($($argument),*))
                };
                // SAFETY: no filter.
                unsafe { meanwhile(Filter::None, call) as c_int }
            }
        )*
    };
}

functions! {
    /// `setuid`: see the head of the file.
    setuid(uid: c_uint) SETUID c"setuid";
    /// `seteuid`: see the head of the file.
    seteuid(uid: c_uint) SETEUID c"seteuid";
    /// `setreuid`: see the head of the file.
    setreuid(real: c_uint, effective: c_uint) SETREUID c"setreuid";
    /// `setresuid`: see the head of the file.
    setresuid(real: c_uint, effective: c_uint, saved: c_uint) SETRESUID c"setresuid";
    /// `setgid`: see the head of the file.
    setgid(gid: c_uint) SETGID c"setgid";
    /// `setegid`: see the head of the file.
    setegid(gid: c_uint) SETEGID c"setegid";
    /// `setregid`: see the head of the file.
    setregid(real: c_uint, effective: c_uint) SETREGID c"setregid";
    /// `setresgid`: see the head of the file.
    setresgid(real: c_uint, effective: c_uint, saved: c_uint) SETRESGID c"setresgid";
    /// `setfsuid`: see the head of the file.
    setfsuid(uid: c_uint) SETFSUID c"setfsuid";
    /// `setfsgid`: see the head of the file.
    setfsgid(gid: c_uint) SETFSGID c"setfsgid";
    /// `setgroups`: see the head of the file.
    setgroups(count: usize, groups: *const c_uint) SETGROUPS c"setgroups";
    /// `initgroups`: see the head of the file. It ends in the C library's own `setgroups`.
    initgroups(user: *const core::ffi::c_char, group: c_uint) INITGROUPS c"initgroups";
    /// `capset`: see the head of the file.
    capset(header: *mut c_void, data: *const c_void) CAPSET c"capset";
    /// `unshare`: see the head of the file.
    unshare(flags: c_int) UNSHARE c"unshare";
    /// `setns`: see the head of the file.
    setns(fd: c_int, kind: c_int) SETNS c"setns";
}

static PRCTL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static SYSCALL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Returns the filter that an operation of `prctl` sets; `None` if it does not change what the thread may do.
fn of_prctl(operation: c_int, first: c_ulong, second: c_ulong) -> Option<Filter> {
    match operation {
        libc::PR_SET_SECCOMP if first == libc::SECCOMP_MODE_STRICT as c_ulong => {
            Some(Filter::Strict)
        }
        libc::PR_SET_SECCOMP => Some(Filter::Program(second as *const libc::sock_fprog)),
        // The process may not read the clock any more, as in strict mode.
        libc::PR_SET_TSC if first == libc::PR_TSC_SIGSEGV as c_ulong => Some(Filter::Strict),
        libc::PR_SET_NO_NEW_PRIVS | libc::PR_CAPBSET_DROP | libc::PR_SET_SECUREBITS => {
            Some(Filter::None)
        }
        libc::PR_CAP_AMBIENT if first != libc::PR_CAP_AMBIENT_IS_SET as c_ulong => {
            Some(Filter::None)
        }
        _ => None,
    }
}

/// `prctl`: see the head of the file.
///
/// # Safety
/// As its manual page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(
    operation: c_int,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
) -> c_int {
    type Prctl = unsafe extern "C" fn(c_int, c_ulong, c_ulong, c_ulong, c_ulong) -> c_int;
    let real = behind(c"prctl", &PRCTL);
    if real.is_null() {
        return refuse();
    }
    // SAFETY: found under its name, which has this type where arguments are passed in registers; the program's own call.
    let call =
        || unsafe { core::mem::transmute::<*mut c_void, Prctl>(real)(operation, a, b, c, d) };
    match of_prctl(operation, a, b) {
        None => call(),
        // SAFETY: the kernel reads the filter, if it is one.
        Some(filter) => unsafe { meanwhile(filter, || c_long::from(call())) as c_int },
    }
}

/// `syscall`: those that change what a thread may do go through [`changing`], all others straight on. Cost: a dozen
/// instructions.
///
/// # Safety
/// As its manual page says.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall(_number: c_long) -> c_long {
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "cmp x0, {prctl}",
        "b.eq 3f",
        "cmp x0, {unshare}",
        "b.eq 3f",
        "cmp x0, {setns}",
        "b.eq 3f",
        "cmp x0, {seccomp}",
        "b.eq 3f",
        "cmp x0, {landlock}",
        "b.eq 3f",
        "cmp x0, {capset}",
        "b.eq 3f",
        "cmp x0, {first}",
        "b.lo 2f",
        "cmp x0, {last}",
        "b.ls 3f",
        "2:",
        "adrp x9, {real}",
        "ldr x9, [x9, :lo12:{real}]",
        "cbz x9, 3f",
        "br x9",
        "3: b {changing}",
        // From setregid to setfsgid, and setgroups: all that change who a thread is lie there.
        first = const libc::SYS_setregid,
        last = const libc::SYS_setgroups,
        capset = const libc::SYS_capset,
        prctl = const libc::SYS_prctl,
        unshare = const libc::SYS_unshare,
        setns = const libc::SYS_setns,
        seccomp = const libc::SYS_seccomp,
        landlock = const libc::SYS_landlock_restrict_self,
        real = sym SYSCALL,
        changing = sym changing,
    );
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "cmp rdi, {first}",
        "jb 2f",
        "cmp rdi, {prctl}",
        "je {changing}",
        "cmp rdi, {unshare}",
        "je {changing}",
        "cmp rdi, {setns}",
        "je {changing}",
        "cmp rdi, {seccomp}",
        "je {changing}",
        "cmp rdi, {landlock}",
        "je {changing}",
        "cmp rdi, {last}",
        "jbe {changing}",
        "2:",
        "mov rax, qword ptr [rip + {real}]",
        "test rax, rax",
        "jz {changing}",
        "jmp rax",
        first = const libc::SYS_setuid,
        last = const libc::SYS_capset,
        prctl = const libc::SYS_prctl,
        unshare = const libc::SYS_unshare,
        setns = const libc::SYS_setns,
        seccomp = const libc::SYS_seccomp,
        landlock = const libc::SYS_landlock_restrict_self,
        real = sym SYSCALL,
        changing = sym changing,
    )
}

/// Makes a system call that may change what a thread may do, and the first of all, which has the C library's function
/// found for the others.
unsafe extern "C" fn changing(
    number: c_long,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
    e: c_ulong,
    f: c_ulong,
) -> c_long {
    behind(c"syscall", &SYSCALL);
    let changes = match number {
        libc::SYS_prctl => of_prctl(a as c_int, b, c),
        libc::SYS_seccomp => match a as c_uint {
            libc::SECCOMP_SET_MODE_STRICT => Some(Filter::Strict),
            libc::SECCOMP_SET_MODE_FILTER => Some(Filter::Program(c as *const libc::sock_fprog)),
            // The other operations ask.
            _ => None,
        },
        libc::SYS_setuid
        | libc::SYS_setgid
        | libc::SYS_setreuid
        | libc::SYS_setregid
        | libc::SYS_setgroups
        | libc::SYS_setresuid
        | libc::SYS_setresgid
        | libc::SYS_setfsuid
        | libc::SYS_setfsgid
        | libc::SYS_capset
        | libc::SYS_unshare
        | libc::SYS_setns
        | libc::SYS_landlock_restrict_self => Some(Filter::None),
        _ => None,
    };
    // SAFETY: the program's own call.
    let call = || unsafe { sys::syscall(number, [a, b, c, d, e, f]) };
    let result = match changes {
        None => call(),
        // SAFETY: the kernel reads the filter, if it is one.
        Some(filter) => unsafe { meanwhile(filter, call) },
    };
    if sys::is_error(result) {
        // SAFETY: the thread's own variable.
        unsafe { *libc::__errno_location() = -result as c_int };
        return -1;
    }
    result
}
