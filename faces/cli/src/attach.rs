//! `skinflint attach` and `detach`: recording a program that is already running.
//!
//! ```text
//!   PID ─► sessions::attach ─► … ─► one line for each trace
//! ```
//!
//! Not here: how it is attached to, and left (`sessions::attach`).

use std::path::PathBuf;

use anyhow::Result;
use clap::Args as ClapArgs;
use skinflint_collect::ProfileUrl;
use skinflint_sessions::attach::{self as sessions, News, Target};

use crate::options::PartOptions;
use crate::recorded;

pub const HELP: &str = "\
Examples:
  skinflint attach 4711 -o app.sft              # Ctrl-C, or skinflint detach 4711, leaves it
  skinflint attach $(pidof redis-server) --for 60
  skinflint attach 4711 --sample --keep 10m     # for days: a sample, and of it the last ten minutes

Blocks from before are unknown. This needs the rights of a debugger (the program's user, or root).
One thread of the program stands still for some milliseconds at the beginning and at the end; a
system call in which it waits goes on. The program may be in a container: nothing has to be there.
Of a statically linked program the heap profile alone can be had: of Go, or what --pprof names.
Allocators that a program contains without exporting them are not recorded. The recorder stays loaded afterwards, and does nothing.";

pub const DETACH_HELP: &str = "\
Examples:
  skinflint detach 4711                         # when it returns, the trace is whole";

#[derive(ClapArgs, Debug)]
pub struct AttachArgs {
    /// The program's process id
    #[arg(value_name = "PID")]
    pub pid: u32,

    /// File for the trace [default: skinflint.NAME.PID.sft]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Detach after this many seconds
    #[arg(long = "for", value_name = "SECONDS", value_parser = positive)]
    pub for_s: Option<f64>,

    /// Record nothing until `skinflint ctl start`
    #[arg(long)]
    pub paused: bool,

    /// Find leaks: at marks and on detaching, stop the program and read its pointers; the report then lists, of the blocks
    /// acquired meanwhile, those that nothing points to and those that only a cycle keeps
    #[arg(long, conflicts_with_all = ["sample", "keep", "max_size", "when"])]
    pub reachable: bool,

    /// Keep the heap profile that the program serves as pprof, too, in a trace beside the other: fetched at marks, as memory
    /// grows, every 2 s and before it is left. URL: http://HOST:PORT, and a path if it is not /debug/pprof/heap; no TLS
    #[arg(long, value_name = "URL", value_parser = ProfileUrl::parse, conflicts_with_all = ["keep", "max_size", "when"])]
    pub pprof: Option<ProfileUrl>,

    #[command(flatten)]
    pub part: PartOptions,

    /// Compression level of the trace, 1 (fast) to 19 (small)
    #[arg(long, value_name = "LEVEL", default_value_t = 1,
          value_parser = clap::value_parser!(i32).range(1..=19))]
    pub level: i32,

    /// Write nothing of our own to stderr, except errors
    #[arg(short, long)]
    pub quiet: bool,
}

/// Parses a number of seconds that can be waited for.
fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..1e9).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds, from 0 to 1000000000".into()),
    }
}

#[derive(ClapArgs, Debug)]
pub struct DetachArgs {
    /// The program's process id
    #[arg(value_name = "PID")]
    pub pid: u32,
}

/// Records a running program until it ends or the recorder leaves it.
///
/// # Errors
/// Whatever keeps the program from being recorded; the program is then as it was.
pub fn attach(args: &AttachArgs) -> Result<u8> {
    let target = Target {
        pid: args.pid,
        output: args.output.as_deref(),
        for_s: args.for_s,
        paused: args.paused,
        looks: args.reachable,
        sample: args.part.sample(),
        bounds: args.part.bounds(),
        profile: args.pprof.clone(),
        level: args.level,
    };
    let recorded = sessions::attach(&target, &|news| match news {
        News::Begun(_) | News::Left(_) if args.quiet => {}
        News::Begun(what) | News::Left(what) => say!("skinflint: {what}"),
        News::Trouble(what) => say!("skinflint: {what}"),
    })?;
    if !args.quiet {
        for trace in &recorded {
            say!("skinflint: {}", recorded::one_line(trace));
            recorded::say_looks(trace);
        }
    }
    Ok(0)
}

/// Tells the session that attached to a program to leave it.
///
/// # Errors
/// If there is no such session.
pub fn detach(args: &DetachArgs) -> Result<u8> {
    sessions::detach(args.pid)?;
    Ok(0)
}
