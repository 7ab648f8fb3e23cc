//! `skinflint agent`: the profiles of this machine's processes, by HTTP.
//!
//! ```text
//!   options ─► skinflint_agent::run ─► its address on stdout, then until it is ended
//! ```
//!
//! Not here: all of it (`skinflint_agent`).

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args as ClapArgs;
use skinflint_agent::{Bounds, Labels, Options, Receiver, Scope};

pub const HELP: &str = "\
Examples:
  skinflint agent                           # http://127.0.0.1:9479/ lists what has a profile
  skinflint exec --profile -- ./server      # a process that has one
  go tool pprof 'http://127.0.0.1:9479/debug/pprof/heap?pid=4711'
  go tool pprof 'http://127.0.0.1:9479/debug/pprof/books?unit=web.service'
  curl -s http://127.0.0.1:9479/metrics     # for Prometheus
  skinflint agent --push pyroscope=http://localhost:4040 --spool /var/spool/skinflint

One agent serves a machine, or a user's processes on it. It needs no root for processes of its own
user. It listens on 127.0.0.1 only; every user of the machine may read it: names of files and
amounts, neither contents nor addresses.";

#[derive(ClapArgs, Debug)]
pub struct AgentArgs {
    /// The port of 127.0.0.1; 0 is any
    #[arg(long, value_name = "PORT", default_value_t = 9479)]
    pub port: u16,

    /// The time between two closings of all books
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub interval: u64,

    /// The most series of metrics of the processes; what has none is in the path (others)
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub series: u32,

    /// A label for all processes; can be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    pub label: Vec<(String, String)>,

    /// The folder of Kubernetes' downward API, as the processes see it
    #[arg(long, value_name = "FOLDER", default_value = "/etc/podinfo")]
    pub podinfo: PathBuf,

    /// Send the profiles of each closing to pyroscope=URL, parca=URL or otlp=URL (http only); can be given several times
    #[arg(long, value_name = "FORM=URL", value_parser = Receiver::parse)]
    pub push: Vec<Receiver>,

    /// Keep on disk what waits to be sent, so that a kill loses nothing [default: in memory]
    #[arg(long, value_name = "FOLDER", requires = "push")]
    pub spool: Option<PathBuf>,

    /// The most that waits for a receiver, in MiB; the oldest is dropped, and counted
    #[arg(long, value_name = "MIB", requires = "push", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub spool_size: u64,

    /// The greatest age of what waits
    #[arg(long, value_name = "SECONDS", requires = "push", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..=604_800))]
    pub spool_age: u64,

    /// As root: the processes of all users
    #[arg(long)]
    pub all_users: bool,
}

fn label(text: &str) -> Result<(String, String), String> {
    let is_name = |name: &str| {
        let mut letters = name
            .bytes()
            .map(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        !name.is_empty() && letters.all(|letter| letter)
    };
    match text.split_once('=') {
        Some((name, value)) if is_name(name) && !value.is_empty() => {
            Ok((name.into(), value.into()))
        }
        _ => Err("NAME=VALUE, the name of letters, digits and _".into()),
    }
}

/// Runs the agent until it is ended.
///
/// # Errors
/// Whatever keeps it from running.
pub fn agent(args: &AgentArgs) -> Result<u8> {
    let options = Options {
        port: args.port,
        interval: Duration::from_secs(args.interval),
        series: args.series as usize,
        scope: Scope {
            all_users: args.all_users,
            podinfo: args.podinfo.clone(),
            labels: args.label.iter().cloned().collect::<Labels>(),
        },
        receivers: args.push.clone(),
        bounds: Bounds {
            folder: args.spool.clone(),
            most_bytes: args.spool_size << 20,
            most_age_s: args.spool_age,
        },
    };
    skinflint_agent::run(options, |url| {
        let mut out = std::io::stdout();
        let said = writeln!(out, "{url}").and_then(|()| out.flush());
        said.context("the address cannot be printed")
    })?;
    Ok(0)
}
