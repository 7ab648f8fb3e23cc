//! The agent: the sampled heap profiles of a machine's processes, for those who scrape and for those who are sent them.
//!
//! ```text
//!   PID.heap … PID.heap ◄─ "profile", "measure" ─ watch ─► books ─► board ─► serve: /debug/pprof/heap, /metrics, /
//!                                                   │
//!                                                   └─► push: pprof, otlp ─► spool ─► Pyroscope, Parca, OTLP
//! ```
//!
//! A1  The agent looks from outside: a process answers what it is asked, and does nothing in between.
//! A2  It ends with its process and leaves nothing behind, but for what waits in a spool on disk.
//! A3  What is lost is counted, and said in the metrics.
//!
//! Not here: the profile itself (`alloc::profile`), the sockets (`reporters`), arguments (`cli`).

mod base64;
mod books;
mod heap;
mod labels;
mod metrics;
mod modules;
mod otlp;
mod pprof;
mod proto;
mod push;
mod serve;
mod spool;
mod values;
mod watch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

pub use labels::Labels;
pub use push::Receiver;
pub use spool::Bounds;
pub use watch::Scope;

/// What an agent is to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The port of 127.0.0.1; 0: any.
    pub port: u16,
    /// The time between two closings.
    pub interval: Duration,
    /// The most series of metrics of the processes.
    pub series: usize,
    /// Which processes.
    pub scope: Scope,
    /// Where profiles are sent to.
    pub receivers: Vec<Receiver>,
    /// The bounds of what waits for each of them.
    pub bounds: Bounds,
}

/// Runs until it is ended; `listening` is told the address.
///
/// # Errors
/// If the port cannot be listened on, or there are no threads.
pub fn run(options: Options, listening: impl FnOnce(&str) -> Result<()>) -> Result<()> {
    let port = options.port;
    let page = serve::Page::open(port, options.series).with_context(|| {
        format!("--port {port}: port {port} of 127.0.0.1 cannot be listened on; does another agent run? One serves a whole machine")
    })?;
    let pusher = Arc::new(push::Pusher::start(&options.receivers, &options.bounds)?);
    listening(&page.url())?;
    let shared = Arc::new(watch::Shared::new(options.scope));
    let (closes, pushes) = (Arc::clone(&shared), Arc::clone(&pusher));
    let closer = move || {
        let mut next = Instant::now();
        loop {
            closes.round(&mut |watched, taken| pushes.add(watched, taken));
            pushes.forget(|pid| watch::locked(&closes.board).processes.contains_key(&pid));
            next += options.interval;
            let now = Instant::now();
            // A round that took longer than an interval does not make the next ones come at once.
            next = next.max(now);
            // CLOCK: the time between two closings.
            std::thread::sleep(next - now);
        }
    };
    let named = std::thread::Builder::new().name("closer".into());
    named
        .spawn(closer)
        .context("there is no thread to close the books")?;
    loop {
        let pusher = Arc::clone(&pusher);
        page.serve_one(&shared, move || pusher.figures())?;
    }
}
