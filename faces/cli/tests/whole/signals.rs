//! Signals that reach the programs under test, however the tests themselves were started.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes a command heed the signals that the process running the tests may ignore (`nohup make test`, a job of a
/// script): what is ignored stays so through `exec`, and the tests send these signals.
pub fn heed(command: &mut Command) {
    // SAFETY: between fork and exec only `signal` is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
}
