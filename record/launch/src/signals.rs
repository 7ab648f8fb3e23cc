//! Takes signals as a program that may have been started by `nohup` should.

use std::io;

/// Makes a handler be called for each of these signals, except for those that the process which started us has
/// ignored (`nohup`, a job in the background of a script): they stay ignored, here and in every program that is
/// started from here. `handler` is the address of a function of the kind that `flags` asks for (with `SA_SIGINFO`
/// three arguments, else one).
///
/// Call it before there are other threads, or at least others that change handlers. Cost: two system calls per
/// signal.
///
/// # Safety
/// `handler` must be such a function, and do nothing that is not allowed in a signal handler.
///
/// # Errors
/// If a signal cannot be handled (`SIGKILL`, `SIGSTOP`, no signal at all); those before it are handled.
pub unsafe fn handle(signals: &[i32], handler: usize, flags: i32) -> io::Result<()> {
    for &signal in signals {
        // SAFETY: both structures are ours and live through the calls; what the handler does is the caller's promise.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &mut action) != 0 {
                return Err(io::Error::last_os_error());
            }
            if action.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            action = std::mem::zeroed();
            action.sa_sigaction = handler;
            action.sa_flags = flags;
            if libc::sigaction(signal, &action, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    static CALLS: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn count(_signal: i32) {
        // ORDER: Relaxed; a count that stands alone.
        CALLS.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn what_is_ignored_stays_ignored() {
        let handler = count as *const () as usize;
        // SAFETY: no other test uses these signals, and the handler counts only.
        unsafe {
            libc::signal(libc::SIGURG, libc::SIG_IGN);
            libc::signal(libc::SIGWINCH, libc::SIG_DFL);
            handle(&[libc::SIGURG, libc::SIGWINCH], handler, libc::SA_RESTART).unwrap();
            libc::raise(libc::SIGURG);
            // ORDER: Relaxed, twice: the handler ran on this thread.
            assert_eq!(CALLS.load(Ordering::Relaxed), 0);
            libc::raise(libc::SIGWINCH);
            assert_eq!(CALLS.load(Ordering::Relaxed), 1);
            assert!(handle(&[libc::SIGKILL], handler, 0).is_err());
        }
    }
}
