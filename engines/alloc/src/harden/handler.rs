//! SIGSEGV and SIGBUS: the block that a fault at a guard page concerns.
//!
//! ```text
//!   fault ──► in the pool of samples, or at a guarded or waiting large block? ──► a story ──► the program's
//!                └ neither ───────────────────────────────────────────────────────────────► handler, or the
//!                                                                                           default action
//! ```
//!
//! H1  Installed only where there are guard pages of ours.
//! H2  A handler that the program installs later is put behind ours again, at the next sample: it sees what it would
//!     have seen.
//! H3  With `warn` and `ignore` the page is opened and the program goes on.
//!
//! Not here: stacks (`stacks`).

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;

use skinflint_base::sync::{AtomicU32, AtomicUsize, Ordering};
use skinflint_base::sys;

use crate::fault::{Policy, policy};

use super::stacks::Story;
use super::{guard, sampled, stacks};

type Action = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// The handlers that were installed before ours: address and flags, by signal.
static BEFORE: [(AtomicUsize, AtomicU32); 2] =
    [const { (AtomicUsize::new(libc::SIG_DFL), AtomicU32::new(0)) }; 2];

fn current(signal: c_int) -> Option<libc::sigaction> {
    let mut action = MaybeUninit::uninit();
    // SAFETY: only asks; the answer is written if the result is 0.
    unsafe {
        (libc::sigaction(signal, core::ptr::null(), action.as_mut_ptr()) == 0)
            .then(|| action.assume_init())
    }
}

/// Puts our handler in front of the one that is there (H2).
pub fn install() {
    for (signal, before) in SIGNALS.into_iter().zip(&BEFORE) {
        let Some(mut action) = current(signal) else {
            continue;
        };
        let ours = on_fault as Action as usize;
        if action.sa_sigaction == ours {
            continue;
        }
        // ORDER: the handler may run with the old flags and the new address for a moment; with both it calls the
        // program's.
        before.1.store(action.sa_flags as u32, Ordering::Relaxed);
        before.0.store(action.sa_sigaction, Ordering::Relaxed); // ORDER: as above
        if action.sa_sigaction == libc::SIG_DFL || action.sa_sigaction == libc::SIG_IGN {
            action.sa_flags = 0;
        }
        action.sa_sigaction = ours;
        action.sa_flags |= libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: a handler of this signature.
        unsafe { libc::sigaction(signal, &action, core::ptr::null_mut()) };
    }
}

/// Checks that our handler is still there, and installs it again if not.
pub fn stay() {
    install();
}

unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: as the kernel promises a handler.
    let (address, code) = unsafe { ((*info).si_addr() as usize, (*info).si_code) };
    // Codes above 0 are the kernel's own: then there is an address.
    if code > 0 && explain(address, is_write(context)) && policy() != Policy::Abort {
        return;
    }
    // SAFETY: as above.
    unsafe { pass_on(signal, code, info, context) };
}

/// Reports whether the access was a write, by the processor's error code.
fn is_write(context: *mut c_void) -> bool {
    let context: *const libc::ucontext_t = context.cast();
    // SAFETY: the kernel's structure.
    let error = unsafe { (&(*context).uc_mcontext.gregs)[libc::REG_ERR as usize] };
    error & 2 != 0
}

/// Reports a fault that concerns one of our blocks, and opens the page (H3). `false`: it concerns none.
fn explain(address: usize, write: bool) -> bool {
    if sampled::is_ours(address) {
        tell(sampled::name_of(address), address, write, |story| {
            sampled::describe(story, address);
        });
        if policy() != Policy::Abort {
            sampled::allow(address);
        }
        return true;
    }
    let Some(near) = guard::near(address) else {
        return false;
    };
    let what: &[u8] = if near.freed {
        b"use after free"
    } else if address < near.start {
        b"access before the start of a block"
    } else {
        b"access behind the end of a block"
    };
    tell(what, address, write, |story| {
        stacks::place(story, address, near.start, near.bytes);
    });
    if policy() != Policy::Abort {
        guard::allow_page(address);
    }
    true
}

fn tell(what: &[u8], address: usize, write: bool, more: impl FnOnce(&mut Story)) {
    if policy() == Policy::Ignore {
        return;
    }
    stacks::tell(|story| {
        story.add(b"skinflint: ");
        story.add(what);
        story.add(if write { b": write to " } else { b": read of " });
        story.add_hex(address);
        story.add(b" by thread ");
        story.add_number(u64::from(sys::gettid()));
        story.add(b"\n");
        more(story);
    });
}

/// Runs the program's handler, or the default action.
unsafe fn pass_on(signal: c_int, code: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let before = &BEFORE[usize::from(signal == libc::SIGBUS)];
    // ORDER: see `install`.
    let (handler, flags) = (
        before.0.load(Ordering::Relaxed),
        before.1.load(Ordering::Relaxed), // ORDER: as above
    );
    if handler != libc::SIG_DFL && handler != libc::SIG_IGN {
        // SAFETY: the program's own, with the signature that its flags say.
        unsafe {
            if flags as c_int & libc::SA_SIGINFO != 0 {
                let handler: Action = core::mem::transmute::<usize, Action>(handler);
                handler(signal, info, context);
            } else {
                let handler: extern "C" fn(c_int) =
                    core::mem::transmute::<usize, extern "C" fn(c_int)>(handler);
                handler(signal);
            }
        }
        return;
    }
    if handler == libc::SIG_IGN && code <= 0 {
        return;
    }
    // SAFETY: zeroes are the default action; the same access, done again, then ends the process.
    unsafe {
        let action: libc::sigaction = core::mem::zeroed();
        libc::sigaction(signal, &action, core::ptr::null_mut());
    }
    if code <= 0 {
        // A process sent it: nothing would be done again.
        // SAFETY: no memory is involved.
        unsafe {
            let (process, thread) = (u64::from(sys::getpid()), u64::from(sys::gettid()));
            sys::syscall(libc::SYS_tgkill, [process, thread, signal as u64, 0, 0, 0])
        };
    }
}
