//! `skinflint-fleet-cluster`: Ballista's scheduler and executors, for a fleet that one machine is too small for.
//!
//! ```text
//!   skinflint-fleet --engine ballista://HOST:PORT ─► scheduler ◄─ executor, executor, …: each asks it for work
//!                                         rows ◄──────────────────┘
//! ```
//!
//! K1  Both are Ballista's own, from its published crates; here are their words and limits alone.
//! K2  Nothing is encrypted, and whoever reaches a port may read: without `--listen` both listen on loopback only.
//!
//! Not here: what is asked (fleet/program).

mod args;
mod executor;
mod scheduler;

use std::io::Read;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use crate::args::{Args, Command};

/// Stack of a thread: plans are walked by recursion.
const STACK_BYTES: usize = 32 * 1024 * 1024;

fn main() -> ExitCode {
    let args = Args::parse();
    if args.until_eof {
        std::thread::spawn(end_with_stdin);
    }
    match run(&args.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("skinflint-fleet-cluster: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(STACK_BYTES)
        .build()?;
    match command {
        Command::Scheduler(words) => runtime.block_on(scheduler::run(words)),
        Command::Executor(words) => runtime.block_on(executor::run(words)),
    }
}

/// Ends the process when whoever started it is gone.
fn end_with_stdin() {
    let mut sink = [0; 64];
    while matches!(std::io::stdin().read(&mut sink), Ok(read) if read > 0) {}
    std::process::exit(0);
}
