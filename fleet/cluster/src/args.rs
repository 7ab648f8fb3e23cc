//! The words of `skinflint-fleet-cluster`.
//!
//! ```text
//!   scheduler [--listen] [--lost-after]          executor --scheduler HOST:PORT [--listen] [--cores] [--memory] [--work]
//! ```
//!
//! Not here: what is done (scheduler.rs, executor.rs).

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args as Words, Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  skinflint-fleet-cluster scheduler --listen $SCHEDULER:50050
  skinflint-fleet-cluster executor --scheduler $SCHEDULER:50050 --listen $OWN:50051
  skinflint-fleet --root /shared/fleet --engine ballista://$SCHEDULER:50050 top

The tables have to be at the same path on all of them. Nothing is encrypted and there is no password: use a network that
you trust.";

/// Ballista's scheduler and executors, for a fleet that one machine is too small for.
#[derive(Parser, Debug)]
#[command(name = "skinflint-fleet-cluster", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Args {
    /// End when standard input ends
    #[arg(long, global = true)]
    pub until_eof: bool,

    /// What is run
    #[command(subcommand)]
    pub command: Command,
}

/// What is run.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a scheduler: it plans questions and gives their parts to executors
    Scheduler(SchedulerArgs),
    /// Run an executor: it reads tables and computes
    Executor(ExecutorArgs),
}

/// `scheduler`.
#[derive(Words, Debug)]
pub struct SchedulerArgs {
    /// Where it listens; port 0 for any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:50050")]
    pub listen: SocketAddr,

    /// Seconds without a word after which an executor counts as lost, and its work is given to another one
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(8..=3600))]
    pub lost_after: u64,
}

/// `executor`.
#[derive(Words, Debug)]
pub struct ExecutorArgs {
    /// The scheduler
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:50050")]
    pub scheduler: String,

    /// Where other executors and askers fetch its results; port 0 for any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,

    /// Parts of questions at once [default: the processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub cores: Option<u16>,

    /// Memory that they may hold together, mebibytes; what does not fit is spilled to disk
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(64..))]
    pub memory: u32,

    /// Folder of results under way [default: one of its own, removed at the end]
    #[arg(long, value_name = "FOLDER")]
    pub work: Option<PathBuf>,
}
