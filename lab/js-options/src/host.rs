//! What each JavaScript host does around its engine: options in, a thread for the engine, failures, report and status out.
//!
//! ```text
//!   argv ─► JsArgs ─► a thread with the engine's stack ─► work ─► Outcome ─► stderr or one line of JSON ─► status
//! ```
//!
//! H1  What stdout did not take makes the run fail (status 2), and is said once; a closed pipe is success, and ends the run.
//!
//! Not here: engines, and what their reports hold (`js/`).

use std::fmt::{Display, Write as _};
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use clap::Parser as _;

use crate::JsArgs;

/// Bytes of the engine's stack: nested calls through its built-in functions take some KiB each. Untouched pages cost nothing.
const STACK_BYTES: usize = 1 << 30;

/// The first failure of stdout (H1).
static LOST: OnceLock<std::io::Error> = OnceLock::new();

/// Runs a host's command line, `work` on a thread with the engine's stack. Status: that of `work`; 2 for wrong use, or if
/// stdout could not be written.
pub fn main(work: impl FnOnce(&JsArgs) -> u8 + Send + 'static) -> ExitCode {
    let args = match JsArgs::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let code = if error.use_stderr() { 2 } else { 0 };
            // A closed pipe is success.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let engine = std::thread::Builder::new()
        .name("engine".to_owned())
        .stack_size(STACK_BYTES);
    let status = match engine.spawn(move || work(&args)) {
        Ok(thread) => thread.join().unwrap_or(2),
        Err(error) => {
            say(&format!(
                "no thread for the engine: {error}; look at `ulimit -v`"
            ));
            2
        }
    };
    let _ = kept(std::io::stdout().flush());
    match LOST.get() {
        Some(error) => {
            say(&format!("stdout: not all was written: {error}"));
            ExitCode::from(2)
        }
        None => ExitCode::from(status),
    }
}

/// Keeps a failure of stdout for the end (H1). Returns whether its reader has gone.
fn kept(done: std::io::Result<()>) -> bool {
    match done {
        Ok(()) => false,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => true,
        Err(error) => {
            let _ = LOST.set(error);
            false
        }
    }
}

/// Writes a line of a program's, to stdout or, where it asked for that, to stderr. A closed pipe ends the process: the rest is not
/// read.
pub fn print(line: &str, to_stderr: bool) {
    let closed = if to_stderr {
        let done = writeln!(std::io::stderr(), "{line}");
        done.is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    } else {
        kept(writeln!(std::io::stdout(), "{line}"))
    };
    if closed {
        std::process::exit(0);
    }
}

/// Says an error of the whole run, and returns its status.
pub fn refused(error: &anyhow::Error) -> u8 {
    say(&format!("{error:#}"));
    2
}

/// What became of a program.
pub struct Outcome<'a> {
    /// Number of its tab, from 1.
    pub tab: usize,
    /// Its file, as it was named.
    pub file: &'a str,
    /// What it ended by, if it failed.
    pub failure: Option<String>,
    /// Its value, as text.
    pub result: Option<&'a str>,
    /// Milliseconds of processor time.
    pub cpu_ms: f64,
}

/// Says the failures and the report, and returns the status: 1 if a program failed, 2 if the report cannot be written.
///
/// `line` is the report as one line of JSON, where that was asked for; else `text` goes to stderr.
pub fn tell<E: Display>(
    outcomes: &[Outcome],
    line: Option<Result<String, E>>,
    text: impl FnOnce() -> String,
) -> u8 {
    let failed = outcomes
        .iter()
        .filter_map(|outcome| Some((outcome, outcome.failure.as_ref()?)));
    let mut status = 0;
    for (outcome, failure) in failed {
        status = 1;
        say(&format!("tab {}: {}: {failure}", outcome.tab, outcome.file));
    }
    match line {
        Some(Ok(line)) => drop(kept(writeln!(std::io::stdout(), "{line}"))),
        Some(Err(error)) => {
            say(&format!("the report cannot be written: {error}"));
            return 2;
        }
        None => drop(write!(std::io::stderr(), "{}", text())),
    }
    status
}

/// Writes a line for each of the first programs, since of many tabs with one program each line would be the same, and one for
/// the rest.
pub fn write_programs(text: &mut String, outcomes: &[Outcome], shown: usize) {
    let failed = outcomes.iter().filter(|row| row.failure.is_some()).count();
    let programs = match outcomes.len() {
        1 => "1 program".to_owned(),
        many => format!("{many} programs"),
    };
    let _ = writeln!(text, "{programs}, {failed} failed");
    for row in outcomes.iter().take(shown) {
        let end = if row.failure.is_some() {
            "failed"
        } else {
            "done"
        };
        let _ = writeln!(
            text,
            "  tab {:<4} {end:<7}{:>9.0} ms CPU  {}  {}",
            row.tab,
            row.cpu_ms,
            row.file,
            row.result.unwrap_or("")
        );
    }
    if let Some(rest @ [_, ..]) = outcomes.get(shown..) {
        let cpu: f64 = rest.iter().map(|row| row.cpu_ms).sum();
        let others = match rest.len() {
            1 => "1 other ".to_owned(),
            many => format!("{many} others"),
        };
        let _ = writeln!(text, "  {others}{cpu:>16.0} ms CPU");
    }
}

/// Returns the processor time of all threads of the process.
pub fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: C's contract: a clock that Linux has, and room for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}

/// Writes a line to stderr.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "skinflint js: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_program_is_not_called_programs() {
        let outcome = |tab, failure: Option<&str>| Outcome {
            tab,
            file: "a.js",
            failure: failure.map(str::to_owned),
            result: None,
            cpu_ms: 2.0,
        };
        let told = |outcomes: &[Outcome]| {
            let mut text = String::new();
            write_programs(&mut text, outcomes, 1);
            text
        };
        let one = told(&[outcome(1, Some("it threw"))]);
        assert!(
            one.starts_with("1 program, 1 failed\n  tab 1    failed "),
            "{one}"
        );
        let two = told(&[outcome(1, None), outcome(2, None)]);
        assert!(two.starts_with("2 programs, 0 failed\n"), "{two}");
        assert!(
            two.ends_with("  1 other                2 ms CPU\n"),
            "{two}"
        );
    }
}
