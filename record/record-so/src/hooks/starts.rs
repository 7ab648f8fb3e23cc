//! The starts of programs: `exec` in all its forms, `posix_spawn`, `system` and `popen`.
//!
//! ```text
//!   execve(path) ─ notice: about to be PATH ─► real ─ does not come back
//!                                                   └ does: notice: stayed
//! ```
//!
//! X1  A new program that never says hello was not recorded: by the notice the collector knows that it existed,
//!     however short its life.
//! X2  Everything here may run in a child of vfork, on its parent's stack and in its parent's memory: nothing of this
//!     thread's state is touched.
//! X3  `system` and `popen` start a shell from inside the C library, unseen; that shell says hello itself. If the
//!     environment is without the recorder, it cannot, and there is a notice of it without its number.
//!
//! Not here: the notices (notices.rs), which processes are missed (the collector).

use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_void};

use crate::real::call;
use crate::{filters, notices};
use skinflint_base::sys;

type Words = *const *const c_char;

/// Makes a call of the exec family, with a notice before it, and one after it if it returns. `go` gets the variables:
/// null for the program's own.
///
/// # Safety
/// `path` and `variables` are arguments of that call.
unsafe fn exec(path: *const c_char, variables: Words, go: impl FnOnce(Words) -> c_int) -> c_int {
    // SAFETY: as the caller promises.
    let told = unsafe { notices::exec(path, variables) };
    let result = match filters::kills_programs(told) {
        // SAFETY: as the caller promises.
        true => unsafe { filters::with_hidden_address(variables, go) },
        false => go(variables),
    };
    notices::stayed(told);
    result
}

/// `execve`, noticed.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: *const c_char, words: Words, variables: Words) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        exec(path, variables, |variables| {
            call!(execve as Execve)(path, words, variables)
        })
    }
}

/// `execv`, noticed.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, words: Words) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        exec(path, core::ptr::null(), |variables| {
            match variables.is_null() {
                true => call!(execv as Execv)(path, words),
                false => call!(execve as Execve)(path, words, variables),
            }
        })
    }
}

/// `execvp`, noticed.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, words: Words) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        exec(file, core::ptr::null(), |variables| {
            match variables.is_null() {
                true => call!(execvp as Execv)(file, words),
                false => call!(execvpe as Execve)(file, words, variables),
            }
        })
    }
}

/// `execvpe`, noticed.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(file: *const c_char, words: Words, variables: Words) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        exec(file, variables, |variables| {
            call!(execvpe as Execve)(file, words, variables)
        })
    }
}

/// `fexecve`, noticed.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(fd: c_int, words: Words, variables: Words) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        exec(core::ptr::null(), variables, |variables| {
            call!(fexecve as Fexecve)(fd, words, variables)
        })
    }
}

/// `execveat`, noticed.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    folder: c_int,
    path: *const c_char,
    words: Words,
    variables: Words,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        exec(path, variables, |variables| {
            call!(execveat as Execveat)(folder, path, words, variables, flags)
        })
    }
}

/// `execle` with its words in a row: the variables follow the closing null.
unsafe extern "C" fn execle_in_a_row(path: *const c_char, words: Words) -> c_int {
    // SAFETY: the program's own call: words, null, the list of variables.
    unsafe {
        let mut at = words;
        while !(*at).is_null() {
            at = at.add(1);
        }
        execve(path, words, at.add(1).cast::<Words>().read())
    }
}

/// Defines a function of the exec family that takes its words one by one. The words in registers are put on the stack
/// below those that the caller has put there, where the return address was: then all are in a row, for
/// `$row(path, words)`. If that returns, the stack is restored.
macro_rules! one_by_one {
    ($name:ident, $row:path) => {
        #[doc = concat!("`", stringify!($name), "`, noticed.")]
        ///
        /// # Safety
        /// As for the function beneath.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(_path: *const c_char, _first: *const c_char) -> c_int {
            #[cfg(target_arch = "aarch64")]
            naked_asm!(
                "sub sp, sp, #64",
                "str x30, [sp]",
                "stp x1, x2, [sp, #8]",
                "stp x3, x4, [sp, #24]",
                "stp x5, x6, [sp, #40]",
                "str x7, [sp, #56]",
                "add x1, sp, #8",
                "bl {row}",
                "ldr x30, [sp]",
                "add sp, sp, #64",
                "ret",
                row = sym $row,
            );
            #[cfg(target_arch = "x86_64")]
            naked_asm!(
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push rax",
                "call {row}",
                "pop rcx",
                "add rsp, 40",
                "push rcx",
                "ret",
                row = sym $row,
            )
        }
    };
}

one_by_one!(execl, execv);
one_by_one!(execlp, execvp);
one_by_one!(execle, execle_in_a_row);

/// `syscall` for `execve`, noticed. Returns as `syscall` does.
///
/// # Safety
/// The arguments of `execve`.
pub(super) unsafe extern "C" fn execve_by_number(
    path: *const c_char,
    words: Words,
    variables: Words,
) -> i64 {
    let go = |variables: Words| {
        let args = [path as u64, words as u64, variables as u64, 0, 0, 0];
        // SAFETY: the program's own call.
        unsafe { by_number(libc::SYS_execve, args) }
    };
    // SAFETY: as the caller promises.
    i64::from(unsafe { exec(path, variables, go) })
}

/// `syscall` for `execveat`, noticed. Returns as `syscall` does.
///
/// # Safety
/// The arguments of `execveat`.
pub(super) unsafe extern "C" fn execveat_by_number(
    folder: c_int,
    path: *const c_char,
    words: Words,
    variables: Words,
    flags: c_int,
) -> i64 {
    let (folder, flags) = (folder as u64, flags as u64);
    let go = |variables: Words| {
        let (path, words, variables) = (path as u64, words as u64, variables as u64);
        let args = [folder, path, words, variables, flags, 0];
        // SAFETY: the program's own call.
        unsafe { by_number(libc::SYS_execveat, args) }
    };
    // SAFETY: as the caller promises.
    i64::from(unsafe { exec(path, variables, go) })
}

/// Makes a system call that does not come back, unless with an error, which is put where the C library has it.
///
/// # Safety
/// The call's own.
unsafe fn by_number(number: i64, args: [u64; 6]) -> c_int {
    // SAFETY: as the caller promises; `errno` is this thread's.
    unsafe {
        let result = sys::syscall(number, args);
        *libc::__errno_location() = -result as c_int;
    }
    -1
}

/// Defines a function that starts a shell from inside the C library: a notice if the shell will be without the
/// recorder, and a jump, since the function beneath may be left by the cancellation of its thread.
macro_rules! shell {
    ($name:ident, $next:ident) => {
        extern "C" fn $next() -> *mut c_void {
            notices::shell();
            crate::real::REAL.$name.get()
        }

        #[doc = concat!("`", stringify!($name), "`, noticed.")]
        ///
        /// # Safety
        /// As for the function beneath.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(_line: *const c_char, _mode: *const c_char) -> *mut c_void {
            #[cfg(target_arch = "aarch64")]
            naked_asm!(
                skinflint_base::jump_to_what_before_returns!(""),
                before = sym $next,
            );
            #[cfg(target_arch = "x86_64")]
            naked_asm!(
                "push rdi",
                "push rsi",
                "sub rsp, 8",
                "call {next}",
                "add rsp, 8",
                "pop rsi",
                "pop rdi",
                "jmp rax",
                next = sym $next,
            )
        }
    };
}

shell!(system, next_system);
shell!(popen, next_popen);

/// Makes a call of `posix_spawn` or `posix_spawnp`, and leaves a notice of the program that was started.
///
/// # Safety
/// `path` and `variables` are arguments of that call.
unsafe fn spawn(
    pid: *mut c_int,
    path: *const c_char,
    variables: Words,
    go: impl FnOnce(*mut c_int, Words) -> c_int,
) -> c_int {
    let time_ns = sys::monotonic_ns();
    let mut own: c_int = 0;
    let result = match filters::kills_programs(0) {
        // SAFETY: as the caller promises.
        true => unsafe { filters::with_hidden_address(variables, |shown| go(&mut own, shown)) },
        false => go(&mut own, variables),
    };
    // SAFETY: as the caller promises; `pid` is null or the program's variable.
    unsafe {
        if result == 0 {
            if !pid.is_null() {
                pid.write(own);
            }
            notices::spawn(own as u32, time_ns, path, variables);
        }
    }
    result
}

/// `posix_spawn`, noticed.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn(
    pid: *mut c_int,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    words: Words,
    variables: Words,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        spawn(pid, path, variables, |own, variables| {
            call!(posix_spawn as Spawn)(own, path, actions, attributes, words, variables)
        })
    }
}

/// `posix_spawnp`, noticed.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawnp(
    pid: *mut c_int,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    words: Words,
    variables: Words,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        spawn(pid, file, variables, |own, variables| {
            call!(posix_spawnp as Spawn)(own, file, actions, attributes, words, variables)
        })
    }
}
