//! The starts of programs: `exec` in all its forms, and `posix_spawn`.
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
//! X3  `system` and `popen` start a shell from inside the C library, unseen; that shell says hello itself.
//!
//! Not here: the notices (notices.rs), which processes are missed (the collector).

use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_void};

use crate::notices;
use crate::real::call;
use skinflint_base::sys;

type Words = *const *const c_char;

/// Makes a call of the exec family, with a notice before it, and one after it if it returns.
///
/// # Safety
/// `path` and `variables` are arguments of that call.
unsafe fn exec(path: *const c_char, variables: Words, go: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: as the caller promises.
    let told = unsafe { notices::exec(path, variables) };
    let result = go();
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
        exec(path, variables, || {
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
        exec(path, core::ptr::null(), || {
            call!(execv as Execv)(path, words)
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
        exec(file, core::ptr::null(), || {
            call!(execvp as Execv)(file, words)
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
        exec(file, variables, || {
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
        exec(core::ptr::null(), variables, || {
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
        exec(path, variables, || {
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

/// Makes a call of `posix_spawn` or `posix_spawnp`, and leaves a notice of the program that was started.
///
/// # Safety
/// `path` and `variables` are arguments of that call.
unsafe fn spawn(
    pid: *mut c_int,
    path: *const c_char,
    variables: Words,
    go: impl FnOnce(*mut c_int) -> c_int,
) -> c_int {
    let time_ns = sys::monotonic_ns();
    let mut own: c_int = 0;
    let result = go(&mut own);
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
        spawn(pid, path, variables, |own| {
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
        spawn(pid, file, variables, |own| {
            call!(posix_spawnp as Spawn)(own, file, actions, attributes, words, variables)
        })
    }
}
