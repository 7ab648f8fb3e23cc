//! `skinflint import`: a log of another recorder as a trace.
//!
//! ```text
//!   LOG, or LOG.gz ─► which process? ─► export::logalloc ─► .sft
//! ```
//!
//! I1  A log that cannot be read leaves no trace behind, and the error names line and column.
//! I2  The log is read twice: first for its processes, so that nothing is written before the process is known.
//!
//! Not here: the format (`export::logalloc`), the file (`export::log_file`).

use std::io::BufRead;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args as ClapArgs;
use skinflint_export::log_file;
use skinflint_export::logalloc::{self, Imported, LogError};
use skinflint_trace::Writer;
use skinflint_view::units;

pub const HELP: &str = "\
Examples:
  skinflint import malloc.log -o app.sft        # of MALLOC_LOG=/path/malloc.log firefox
  skinflint import log.gz --pid 2 -o tab.sft
  skinflint compare app.sft                     # replays it on several allocators

Such a log has no stacks, no usable sizes and no times; reports on it leave out what needs them.";

#[derive(ClapArgs, Debug)]
pub struct ImportArgs {
    /// The log: text, or gzipped
    #[arg(value_name = "LOG")]
    pub log: PathBuf,

    /// The trace to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    /// The process, where the log has several
    #[arg(long, value_name = "PID")]
    pub pid: Option<u64>,
}

/// Does what was asked. Returns the exit status.
///
/// # Errors
/// Whatever keeps it from being done.
pub fn import(args: &ImportArgs) -> Result<u8> {
    let named = || args.log.display().to_string();
    let mut log = open(&args.log)?;
    let there = logalloc::processes(&mut log).with_context(named)?;
    let pid = logalloc::choose(&there, args.pid).with_context(named)?;
    let same = args.log.canonicalize().ok();
    if args.output.exists() && same == args.output.canonicalize().ok() {
        bail!(
            "--output {}: that is the log itself; name another file",
            args.output.display()
        );
    }
    let existed = args.output.exists();
    let writer = Writer::create(&args.output, &log_file::process(&args.log, pid))
        .with_context(|| "name another file with --output")?;
    let done = logalloc::import(&mut open(&args.log)?, pid, writer);
    if done.is_err() && !existed {
        let _ = std::fs::remove_file(&args.output);
    }
    said(args, &done.with_context(named)?);
    Ok(0)
}

fn said(args: &ImportArgs, done: &Imported) {
    say!(
        "skinflint: {}: {} of {} of process {}",
        args.output.display(),
        units::plural(done.events, "event"),
        units::plural(done.threads, "thread"),
        done.pid
    );
    if done.cut {
        say!(
            "skinflint: {}: cut within its last line, which is left out",
            args.log.display()
        );
    }
}

/// Reports whether an error is of the log, and not of the command line.
pub fn is_of_log(error: &anyhow::Error) -> bool {
    error.downcast_ref::<LogError>().is_some_and(|error| {
        matches!(
            error,
            LogError::Malformed { .. } | LogError::Empty | LogError::Read(_)
        )
    })
}

fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    log_file::open(path).with_context(|| {
        format!(
            "{}: cannot be read; check the name and that you may read it",
            path.display()
        )
    })
}
