//! `skinflint what-if`: a trace's blocks under other policies, without running anything.
//!
//! ```text
//!   TRACE… ─► trace::Events ─► what-if ─► WhatIf ─► text, or --json
//! ```
//!
//! W1  What is missing from a trace is reported on stderr before its figures, as by `skinflint counts`.
//! W2  A wrong policy is wrong use (status 2), found before any trace is read.
//!
//! Not here: what is simulated (`what-if`), how it looks (`view::what_if`).

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args as ClapArgs;
use serde::Serialize;
use skinflint_recording::Progress as _;
use skinflint_view::what_if::{EXPLAINED, render};
use skinflint_what_if::touched::Survey;
use skinflint_what_if::{Policy, WhatIf};

use crate::analyse::{self, Bar};

pub const HELP: &str = "\
Examples:
  skinflint what-if app.sft
  skinflint what-if app.sft --with glibc,skinflint,jemalloc5:64k:fullest
  skinflint what-if app.sft --delay 500 --json | jq '.[0].policies[] | [.policy, .after_free.held_bytes]'

A policy is a name, or CLASSES:LENGTH:ORDER[:threads]: size classes, length of spans, which free
slot is taken, whether each thread has a heap of its own. A wrong policy prints the valid ones.";

#[derive(ClapArgs, Debug)]
pub struct WhatIfArgs {
    /// The traces
    #[arg(value_name = "TRACE", required = true)]
    pub traces: Vec<PathBuf>,

    /// Policies to simulate, with commas [default: every policy that has a name]
    #[arg(long, alias = "policy", value_name = "A,B", value_delimiter = ',')]
    pub with: Vec<String>,

    /// Milliseconds that pages lie unused before they are given back
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub delay: u32,

    /// Print the figures as JSON: an array with an element for each trace
    #[arg(long)]
    pub json: bool,
}

/// A trace and its figures.
#[derive(Serialize)]
struct Simulated {
    trace: String,
    program: String,
    allocator: String,
    /// What the reader must know is missing, one sentence each.
    missing: Vec<String>,
    #[serde(flatten)]
    what_if: WhatIf,
}

/// Does what was asked. Returns the exit status.
///
/// # Errors
/// Whatever keeps it from being done.
pub fn what_if(args: &WhatIfArgs) -> Result<u8> {
    let parse = |text: &String| {
        Policy::parse(text.trim()).map_err(|error| anyhow::anyhow!("--with: {error}"))
    };
    let policies: Vec<Policy> = match args.with.as_slice() {
        [] => Policy::all(),
        given => given.iter().map(parse).collect::<Result<_>>()?,
    };
    let json = args.json.then_some(Path::new("-"));
    each(&args.traces, &policies, args.delay, json)
}

/// Does what `skinflint compare --what-if` asks for: all named policies; JSON goes to a file, `-` is stdout.
///
/// # Errors
/// Whatever keeps it from being done.
pub fn instead(traces: &[PathBuf], json: Option<&Path>) -> Result<u8> {
    each(traces, &Policy::all(), 0, json)
}

fn each(traces: &[PathBuf], policies: &[Policy], delay_ms: u32, json: Option<&Path>) -> Result<u8> {
    let to_stdout = json.is_some_and(|path| path.as_os_str() == "-");
    let mut all = Vec::new();
    for path in traces {
        let simulated = simulate(path, policies, delay_ms)?;
        for missing in &simulated.missing {
            say!("skinflint: {}: {missing}", path.display());
        }
        if !to_stdout {
            let label = format!("{} ({})", simulated.trace, simulated.allocator);
            let gap = if all.is_empty() { "" } else { "\n" };
            let text = render(&simulated.what_if, &label);
            let mut out = io::stdout().lock();
            out.write_all(gap.as_bytes())?;
            out.write_all(text.as_bytes())?;
            out.flush()?;
        }
        all.push(simulated);
    }
    if !to_stdout {
        let mut out = io::stdout().lock();
        write!(out, "\n{EXPLAINED}")?;
        out.flush()?;
    }
    if let Some(path) = json {
        let mut text = serde_json::to_vec_pretty(&all)?;
        text.push(b'\n');
        if to_stdout {
            let mut out = io::stdout().lock();
            out.write_all(&text)?;
            out.flush()?;
        } else {
            std::fs::write(path, text).with_context(|| {
                format!(
                    "{}: cannot be written; name another file with --json",
                    path.display()
                )
            })?;
        }
    }
    Ok(0)
}

fn simulate(path: &Path, policies: &[Policy], delay_ms: u32) -> Result<Simulated> {
    let recording = analyse::open(path)?;
    let trace = &recording.trace;
    // Large blocks take a pass of their own where the trace has snapshots.
    let passes = 1 + u64::from(Survey::is_worthwhile(&trace.snapshots));
    let bar = Bar::default();
    bar.begin(passes * trace.event_count());
    let ran = skinflint_what_if::run(trace, policies.to_vec(), delay_ms, |events| {
        bar.step(events)
    });
    bar.end();
    let mut missing = recording.incomplete(ran.what_if.acquisitions > 0);
    missing.extend(recording.left_out());
    Ok(Simulated {
        trace: path.display().to_string(),
        program: trace.process.exe.clone(),
        allocator: trace.process.allocator.clone(),
        missing,
        what_if: ran.what_if,
    })
}
