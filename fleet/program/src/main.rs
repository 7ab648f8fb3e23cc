//! `skinflint-fleet`: what `skinflint fleet` runs.
//!
//! ```text
//!   words ─► run ─► exit status: 0; 1 if it failed; 2 for wrong use
//! ```
//!
//! Not here: everything (lib.rs).

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use skinflint_fleet::args::Args;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let mut out = std::io::BufWriter::new(std::io::stdout());
    let done = skinflint_fleet::run::run(&args, &mut out).and_then(|()| Ok(out.flush()?));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "skinflint fleet: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Reports whether the reader closed the pipe that was written to (`| head`).
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = |cause: &(dyn std::error::Error + 'static)| {
        cause
            .downcast_ref::<std::io::Error>()
            .map(std::io::Error::kind)
    };
    error
        .chain()
        .any(|cause| io(cause) == Some(std::io::ErrorKind::BrokenPipe))
}
