//! Threads of ours in the program's process.
//!
//! ```text
//!   begin(flags, stack, tid, main) ── clone, all signals blocked ──► main() ── exit of the thread alone
//!                                      its thread block lies at the top of its stack
//! ```
//!
//! V1  It is no thread of the C library's: it is made by `clone`, with its own stack and thread block, all signals
//!     blocked. So `pthread_exit` in `main` still ends the process with the last real thread, and no handler of the
//!     program's ever runs on it.
//! V2  The code that it runs calls nothing that uses thread-local storage, which would lie in the stack.
//! V3  The kernel writes the thread's id to `tid`, and 0 when the stack is no longer in use.
//!
//! Not here: the work of these threads (`purger`; in the drop-in, `endpoint`).

use core::arch::naked_asm;

use skinflint_base::sync::AtomicU32;
use skinflint_base::sys;

/// The flags of what all hidden threads share with the process. Descriptors are left to the caller.
pub const SHARED: i32 = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_SETTLS
    | libc::CLONE_PARENT_SETTID
    | libc::CLONE_CHILD_CLEARTID;

/// Bytes at the top of the stack for the thread block.
const BLOCK: usize = 1024;

/// Begins a thread; reports whether it was made. `more`: further flags of `clone`, such as CLONE_FILES.
///
/// # Safety
/// The stack is a mapping of this many bytes that nothing uses, and stays until `tid` is 0 again (V3). `main` keeps V2.
pub unsafe fn begin(
    more: i32,
    stack: usize,
    stack_bytes: usize,
    tid: &'static AtomicU32,
    main: extern "C" fn(),
) -> bool {
    let block = (stack + stack_bytes - BLOCK) as *mut usize;
    // SAFETY: within the stack, by the caller's promise. A pointer to itself, and whatever a compiler may look for.
    unsafe {
        block.write(block as usize);
        block.add(2).write(block as usize);
    }
    let all: u64 = u64::MAX;
    let mut old: u64 = 0;
    // SAFETY: the masks are ours; nothing uses the stack, as the caller promises.
    unsafe {
        let set = |how: i32, new: *const u64, old: *mut u64| {
            sys::syscall(
                libc::SYS_rt_sigprocmask,
                [how as u64, new as u64, old as u64, 8, 0, 0],
            )
        };
        if set(libc::SIG_BLOCK, &all, &mut old) != 0 {
            return false;
        }
        let made = clone_thread(
            (SHARED | more) as u64,
            (block as usize - 64) & !15,
            tid.as_ptr() as usize,
            block as usize,
            main,
        );
        set(libc::SIG_SETMASK, &old, core::ptr::null_mut());
        made > 0
    }
}

/// Calls `clone(flags, stack, tid, tid, tls)`; the child runs `main` and exits.
#[unsafe(naked)]
unsafe extern "C" fn clone_thread(
    flags: u64,
    stack: usize,
    tid: usize,
    tls: usize,
    main: extern "C" fn(),
) -> i64 {
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "mov x5, x4", // what the child runs
        "mov x4, x2", // where the kernel clears the id at the end
        "mov x8, #220",
        "svc 0",
        "cbz x0, 2f",
        "ret",
        "2:",
        "mov x29, xzr",
        "mov x30, xzr",
        "blr x5",
        "mov x0, xzr",
        "mov x8, #93",
        "svc 0",
        "brk #1",
    );
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "mov r9, r8",   // what the child runs
        "mov r8, rcx",  // thread block
        "mov r10, rdx", // where the kernel clears the id at the end
        "mov eax, 56",
        "syscall",
        "test eax, eax",
        "jz 2f",
        "ret",
        "2:",
        "xor ebp, ebp",
        "call r9",
        "xor edi, edi",
        "mov eax, 60",
        "syscall",
        "ud2",
    )
}
