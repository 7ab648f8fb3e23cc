//! Ballista's scheduler, with our limits.
//!
//! ```text
//!   listen ─► "listening on ADDRESS:PORT" on stdout ─► plans; executors come and ask for work (pull)
//! ```
//!
//! S1  Executors ask, and are not called: an executor needs one open port, and one that was frozen is back as soon as it
//!     asks again.
//! S2  Ballista's own limit for a lost executor is three minutes. An idle executor asks twenty times a second and one with
//!     all its cores at work every five seconds, so 20 s without a word are long.
//!
//! Not here: what executors do (executor.rs).

use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, Result};
use ballista_core::config::TaskSchedulingPolicy;
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::{create_scheduler, start_grpc_service_with_listener};
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};

use crate::args::SchedulerArgs;

/// How many times within the limit it looks for lost executors.
const LOOKS: u64 = 4;

/// Runs until it is ended.
///
/// # Errors
/// If it cannot listen there.
pub async fn run(args: &SchedulerArgs) -> Result<()> {
    let listener = tokio::net::TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    let address = listener.local_addr()?;
    let config = SchedulerConfig {
        bind_host: address.ip().to_string(),
        external_host: address.ip().to_string(),
        bind_port: address.port(),
        scheduling_policy: TaskSchedulingPolicy::PullStaged,
        executor_timeout_seconds: args.lost_after,
        expire_dead_executor_interval_seconds: args.lost_after / LOOKS,
        no_executors_grace_period_seconds: args.lost_after,
        ..SchedulerConfig::default()
    };
    let cluster = BallistaCluster::new_from_config(&config).await?;
    let scheduler =
        create_scheduler::<LogicalPlanNode, PhysicalPlanNode>(cluster, Arc::new(config)).await?;
    let mut out = std::io::stdout();
    writeln!(out, "listening on {address}")?;
    out.flush()?;
    Ok(start_grpc_service_with_listener(listener, scheduler).await?)
}
