//! `skinflint`: where a program's memory goes, and what would give it back.
//!
//! Glue only: the work is done by `collect` (recording), `analysis`, `symbols` and `view`.
//!
//! ```text
//!   check: a program or trace ► check ► held, broken, not decided      cargo-test: the same for each test of a package
//!   fit: traces ► fit ► a profile for the allocator
//!   run = record + report        record: collect      report: trace ► analysis (+ symbols) ► view
//!   export: trace ► analysis (+ symbols) ► export ► a file of another tool's format
//!   compare: a program or traces ► compare (+ probe, replay) ► table, page
//!   heap: a .heapsnapshot ► snapshot ► sums, dominators, paths, differences
//!   tabs: browsers and pages ► browser ► table, picture
//!   lab: the table of experiments ► experiments ► results, table, page
//!   exec: the program itself, on libskinflint.so      js: the JavaScript host itself
//!   fleet: the program skinflint-fleet itself
//! ```
//!
//! Exit status: `run` and `record` pass on the program's (128 + n for signal n); 2 for wrong use or
//! when nothing could be started, 127 if the program is not there, 126 if it is none; 1 when an
//! analysis failed. `check` has its own (check.rs).

/// Prints a message to stderr. A closed stderr is no reason to fail (`eprintln!` would panic).
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

mod agent;
mod analyse;
mod args;
mod attach;
mod cargo_test;
mod check;
mod commands;
mod compare;
mod counted;
mod ctl;
mod dark;
mod diff;
mod doctor;
mod dropped;
mod exec;
mod export;
mod fit;
mod fleet;
mod gc;
mod heap;
mod import;
mod js;
mod lab;
mod memory;
mod objects;
mod options;
mod out_of_memory;
mod processes;
mod record;
mod recorded;
mod report;
mod run;
mod sampled;
mod shell;
mod shown;
mod tabs;
mod top;
#[cfg(test)]
mod vocabulary;
mod what_if;

/// Refused memory is an error like any other, with its next step.
#[global_allocator]
static MEMORY: out_of_memory::Speaking = out_of_memory::Speaking;

use std::process::ExitCode;

use clap::FromArgMatches;

fn main() -> ExitCode {
    outlive_limits_of_files();
    if std::env::args_os().len() < 2 {
        say!("{}", args::BARE);
        return ExitCode::from(2);
    }
    let parsed = args::command()
        .try_get_matches()
        .and_then(|matches| args::Args::from_arg_matches(&matches));
    let args = match parsed {
        Ok(args) => args,
        Err(error) => {
            let code = if error.use_stderr() { 2 } else { 0 };
            // A closed pipe is success.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    match commands::dispatch(args.command) {
        Ok(code) => ExitCode::from(code),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            say!("skinflint: {error:#}");
            ExitCode::from(commands::exit_code(&error))
        }
    }
}

/// Makes a file that becomes larger than `ulimit -f` allows an error with a message, where the signal would end the program without
/// one. Programs that are started from here have the signal as ever: a handler ends with `exec`.
fn outlive_limits_of_files() {
    extern "C" fn nothing(_signal: i32) {}
    let handler = nothing as *const () as usize;
    // SAFETY: the handler does nothing.
    let _ =
        unsafe { skinflint_launch::signals::handle(&[libc::SIGXFSZ], handler, libc::SA_RESTART) };
}

/// Reports whether the reader closed the pipe that we were writing to (`| head`). A JSON writer's error hides that of
/// the pipe from `chain`.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let direct = cause
            .downcast_ref::<std::io::Error>()
            .map(std::io::Error::kind);
        let in_json = || cause.downcast_ref::<serde_json::Error>()?.io_error_kind();
        direct.or_else(in_json) == Some(std::io::ErrorKind::BrokenPipe)
    })
}
