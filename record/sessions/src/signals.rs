//! Passes signals on to the program that is recorded, and counts those that are for us.
//!
//! ```text
//!   INT, QUIT typed ─► the program has them, too     sent to us, TERM, HUP ─► the program     USR1 ─► a mark
//! ```
//!
//! G1  INT and QUIT typed at the terminal reach the program by themselves: we only do not die of them. If they are
//!     sent to us alone, we pass them on, as we do TERM and HUP. USR1 marks. After the program has ended, any of them
//!     ends the wait for the processes that it left running.
//! G2  Handlers are back to the default in the program after its `exec`, so its dispositions are what they would be
//!     without us.
//! G3  No signal is lost between our start and the moment when we know the program's pid, which a program that has
//!     started can be well past on a busy machine: what comes then is kept, and passed on as soon as the pid is known.
//!
//! Not here: what is ignored stays so (`launch::signals`).

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use anyhow::{Result, bail};
use skinflint_collect::Session;
use skinflint_launch::signals;

static CHILD: AtomicU32 = AtomicU32::new(0);
static MARKS: AtomicUsize = AtomicUsize::new(0);
static INTERRUPTS: AtomicUsize = AtomicUsize::new(0);
/// Signals that came while no child was known, a bit each (G3).
static EARLY: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid structure to a handler with SA_SIGINFO.
    let from_terminal = unsafe { (*info).si_code } == libc::SI_KERNEL;
    match signal {
        libc::SIGUSR1 => {
            // ORDER: Relaxed; as above.
            MARKS.fetch_add(1, Ordering::Relaxed);
        }
        libc::SIGXFSZ => {}
        _ => pass_on(signal, from_terminal),
    }
}

/// Sends a signal on to the program, or keeps it until there is one (G1, G3).
fn pass_on(signal: i32, from_terminal: bool) {
    let bit = 1 << signal;
    // ORDER: SeqCst with `set_child`: either we see its pid, or it sees our bit. Whoever clears the bit passes it on.
    EARLY.fetch_or(bit, Ordering::SeqCst);
    let child = CHILD.load(Ordering::SeqCst);
    if child == 0 {
        // ORDER: Relaxed; a count.
        INTERRUPTS.fetch_add(1, Ordering::Relaxed);
    } else if EARLY.fetch_and(!bit, Ordering::SeqCst) & bit != 0 {
        let typed = from_terminal && [libc::SIGINT, libc::SIGQUIT].contains(&signal);
        // A key on the terminal has reached the program too.
        if !typed {
            // SAFETY: no memory is involved; the child has not been waited for while CHILD is set.
            unsafe { libc::kill(child as i32, signal) };
        }
    }
}

/// Installs handlers instead of ignoring signals: in the program a handler is back to the default after `exec` (G2).
pub(crate) fn install_handlers() {
    let signals = [
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGHUP,
        libc::SIGUSR1,
        libc::SIGXFSZ,
    ];
    let flags = libc::SA_RESTART | libc::SA_SIGINFO;
    // SAFETY: the handler only touches atomics and calls `kill`.
    unsafe { signals::handle(&signals, on_signal as *const () as usize, flags) }
        .expect("these can be handled");
}

/// Sets the process that signals go on to, and passes on those that came before (G3); `None` once it has been waited
/// for.
pub(crate) fn set_child(pid: Option<u32>) {
    // ORDER: SeqCst with `pass_on`.
    CHILD.store(pid.unwrap_or(0), Ordering::SeqCst);
    let Some(pid) = pid else { return };
    // ORDER: as above.
    let early = EARLY.swap(0, Ordering::SeqCst);
    for signal in (1..64).filter(|signal| early & (1 << signal) != 0) {
        // SAFETY: no memory is involved; the child has not been waited for.
        unsafe { libc::kill(pid as i32, signal) };
    }
}

/// Returns how many signals came that there was no child to pass on to.
pub(crate) fn interrupts() -> usize {
    INTERRUPTS.load(Ordering::Relaxed) // ORDER: Relaxed; a count.
}

/// Makes the marks that USR1 asked for since the last call.
pub(crate) fn pass_on_marks(session: &Session) {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    // ORDER: Relaxed; counts.
    while MADE.load(Ordering::Relaxed) < MARKS.load(Ordering::Relaxed) {
        let number = MADE.fetch_add(1, Ordering::Relaxed) + 1;
        session.mark(&format!("mark {number}"));
    }
}

/// Returns the signal that a program is to make a mark by, from its name or number.
pub(crate) fn number(name: &str) -> Result<i32> {
    const NAMES: [(&str, i32); 8] = [
        ("USR1", libc::SIGUSR1),
        ("USR2", libc::SIGUSR2),
        ("WINCH", libc::SIGWINCH),
        ("URG", libc::SIGURG),
        ("CONT", libc::SIGCONT),
        ("IO", libc::SIGIO),
        ("PWR", libc::SIGPWR),
        ("HUP", libc::SIGHUP),
    ];
    let plain = name.trim_start_matches("SIG");
    if let Some((_, number)) = NAMES.iter().find(|(known, _)| *known == plain) {
        return Ok(*number);
    }
    match name.parse::<i32>() {
        Ok(number) if (1..=64).contains(&number) && ![9, 11, 19].contains(&number) => Ok(number),
        _ => {
            let known: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
            bail!(
                "--mark-signal {name}: not a signal that can mark; use {} or a number",
                known.join(", ")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_by_name_and_number() {
        assert_eq!(number("USR2").ok(), Some(libc::SIGUSR2));
        assert_eq!(number("SIGUSR1").ok(), Some(libc::SIGUSR1));
        assert_eq!(number("34").ok(), Some(34));
        for wrong in ["KILL", "9", "0", "99", ""] {
            assert!(number(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_signal_before_the_pid_is_known_reaches_the_program() {
        use std::os::unix::process::ExitStatusExt;
        use std::process::{Command, Stdio};
        install_handlers();
        // It ends with its stdin at the latest, so a signal that is lost fails the test and does not hang it.
        let mut program = Command::new("cat")
            .stdin(Stdio::piped())
            .spawn()
            .expect("cat starts");
        // SAFETY: our handler takes it, in this thread, before `raise` returns.
        unsafe { libc::raise(libc::SIGTERM) };
        set_child(Some(program.id()));
        let status = program.wait().expect("waited for");
        set_child(None);
        assert_eq!(status.signal(), Some(libc::SIGTERM), "{status}");
    }
}
