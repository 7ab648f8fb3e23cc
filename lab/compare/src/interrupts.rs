//! Ends a comparison when its user wants it ended.
//!
//! ```text
//!   Ctrl-C ─► INTERRUPTED ─► the run under way ends, what was measured is shown      Ctrl-C again, later ─► we end at once
//! ```
//!
//! H1  The first signal only sets a flag. Signals that come together with it are one request; a later one ends this
//!     process, and the program that it runs with it.
//!
//! Not here: how a run ends (run.rs).

use std::sync::atomic::{AtomicU64, Ordering};

use skinflint_launch::signals;

use crate::run::INTERRUPTED;

/// When the first signal came, in milliseconds of the monotonic clock; 0 before.
static FIRST_SIGNAL_MS: AtomicU64 = AtomicU64::new(0);
/// Signals that come together are one request: `timeout` sends its signal to us and to our group.
const TOGETHER_MS: u64 = 500;

extern "C" fn on_signal(signal: i32) {
    // ORDER: Relaxed; a flag that stands alone, read every few milliseconds.
    INTERRUPTED.store(true, Ordering::Relaxed);
    // SAFETY: the structures are ours, and these calls are allowed in a handler.
    unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now);
        let now_ms = (now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000).max(1);
        // ORDER: Relaxed twice; a number that stands alone, set by the first signal.
        let first =
            FIRST_SIGNAL_MS.compare_exchange(0, now_ms, Ordering::Relaxed, Ordering::Relaxed);
        if first.is_err_and(|first_ms| now_ms >= first_ms + TOGETHER_MS) {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
}

/// Makes INT, TERM and HUP interrupt the comparison (H1).
///
/// # Panics
/// If the kernel refuses handlers for these signals, which it does not.
pub fn install_handlers() {
    let ends = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
    // SAFETY: the handler does only what a handler may. A second Ctrl-C, some time after the first, ends us, and the
    // program with us.
    unsafe { signals::handle(&ends, on_signal as *const () as usize, libc::SA_RESTART) }
        .expect("these can be handled");
}
