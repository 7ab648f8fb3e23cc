//! Ballista's executor, with our limits.
//!
//! ```text
//!   a folder for results ─► asks the scheduler for work ─► "ready on ADDRESS:PORT" on stdout ─► reads, computes
//! ```
//!
//! X1  Its memory is bounded: what does not fit is spilled to its folder.
//! X2  Results of a question are removed after [`KEPT_SECONDS`], the folder at its end.
//!
//! Not here: which part it gets (scheduler.rs).

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ballista_core::config::TaskSchedulingPolicy;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_executor::health::ExecutorHealth;

use crate::args::ExecutorArgs;

/// Seconds for which a question's results are kept for whoever fetches them.
const KEPT_SECONDS: u64 = 600;
/// Seconds for which it tries to reach the scheduler.
const REACH_SECONDS: u16 = 30;
/// How often it looks whether the scheduler has answered for the first time.
const LOOK: Duration = Duration::from_millis(50);

/// Runs until it is ended.
///
/// # Errors
/// If it cannot listen there, or the scheduler is not there.
pub async fn run(args: &ExecutorArgs) -> Result<()> {
    let Some((host, port)) = args.scheduler.rsplit_once(':') else {
        bail!("`{}`: wanted is HOST:PORT", args.scheduler);
    };
    let port: u16 = port
        .parse()
        .with_context(|| format!("`{}`: wanted is HOST:PORT", args.scheduler))?;
    let address = free(args.listen)?;
    let own = match &args.work {
        Some(folder) => {
            std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
            None
        }
        None => Some(tempfile::tempdir()?),
    };
    let folder = own.as_ref().map(|own| own.path().to_owned());
    let folder = args.work.clone().or(folder).unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let health = ExecutorHealth::new();
    let config = ExecutorProcessConfig {
        bind_host: host_of(address),
        port: address.port(),
        scheduler_host: host.to_owned(),
        scheduler_port: port,
        scheduler_connect_timeout_seconds: REACH_SECONDS,
        vcores: args.cores.map_or(processors, usize::from),
        task_scheduling_policy: TaskSchedulingPolicy::PullStaged,
        work_dir: Some(folder.display().to_string()),
        memory_pool_size: Some(u64::from(args.memory) * 1024 * 1024),
        job_data_ttl_seconds: KEPT_SECONDS,
        job_data_clean_up_interval_seconds: KEPT_SECONDS / 10,
        health: health.clone(),
        ..ExecutorProcessConfig::default()
    };
    tokio::spawn(tell(health, address));
    Ok(start_executor_process(Arc::new(config)).await?)
}

/// Returns an address with a port: Ballista's executor tells others the port that it was given, so 0 will not do.
fn free(listen: SocketAddr) -> Result<SocketAddr> {
    let probe = TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    Ok(probe.local_addr()?)
}

/// Returns an address's host as it stands before a colon and a port.
fn host_of(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

/// Says that it is ready, once the scheduler has answered.
async fn tell(health: ExecutorHealth, address: SocketAddr) {
    while !health.is_ready() {
        tokio::time::sleep(LOOK).await;
    }
    let mut out = std::io::stdout();
    let _ = writeln!(out, "ready on {address}").and_then(|()| out.flush());
}
