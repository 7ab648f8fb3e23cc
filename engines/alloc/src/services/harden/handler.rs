//! The handler of SIGSEGV and SIGBUS: put in front of the program's, which still sees what is not ours.
//!
//! ```text
//!   install ──► ours in front of the one that was there        pass_on ──► the program's, or the default action
//! ```
//!
//! H1  Installed only where there are guard pages of ours.
//! H2  A handler that the program installs later is put behind ours again, at the next sample: it sees what it would
//!     have seen.
//!
//! Not here: what ours does (`report`).

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;

use skinflint_base::sync::{AtomicU32, AtomicUsize, Ordering};
use skinflint_base::sys;

/// A handler that is told of the fault.
pub type Action = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// The handlers that were installed before ours: address and flags, by signal.
static BEFORE: [(AtomicUsize, AtomicU32); 2] =
    [const { (AtomicUsize::new(libc::SIG_DFL), AtomicU32::new(0)) }; 2];

/// Our handler; 0: it is not installed.
static OURS: AtomicUsize = AtomicUsize::new(0);

fn current(signal: c_int) -> Option<libc::sigaction> {
    let mut action = MaybeUninit::uninit();
    // SAFETY: only asks; the answer is written if the result is 0.
    unsafe {
        (libc::sigaction(signal, core::ptr::null(), action.as_mut_ptr()) == 0)
            .then(|| action.assume_init())
    }
}

/// Puts our handler in front of the one that is there.
pub fn install(ours: Action) {
    OURS.store(ours as usize, Ordering::Relaxed); // ORDER: set at start, always to the same
    stay();
}

/// Checks that our handler is still in front, and puts it there again if not (H2).
pub fn stay() {
    // ORDER: set at start.
    let ours = OURS.load(Ordering::Relaxed);
    if ours == 0 {
        return;
    }
    for (signal, before) in SIGNALS.into_iter().zip(&BEFORE) {
        let Some(mut action) = current(signal) else {
            continue;
        };
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

/// Runs the program's handler, or the default action.
///
/// # Safety
/// The arguments are those of our handler, which is running; `code` is in `info`.
pub unsafe fn pass_on(
    signal: c_int,
    code: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
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
