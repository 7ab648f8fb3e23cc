//! `skinflint gc --live`: a JavaScript program runs under each policy, its objects in the policies' pages.
//!
//! ```text
//!   FILE.js ─► skinflint-js --json ───────────────────► what it prints and is worth
//!           ├► skinflint-js --json --policy legacy ──► the same? ─► placement ─┐
//!           └► … every policy × rounds, in turn ─────────────────────────────┴─► a row each, as a trace has
//! ```
//!
//! L1  Each run is the same process except for the policy; the engine's objects do not move, so nothing is evacuated,
//!     and options that move or replay are refused ([`check`]).
//! L2  Under every policy the program must print what it prints without one, and have the same result. If it does
//!     not, that is reported: then the figures are of different work, or there is a fault.
//! L3  Times and memory are medians over rounds: a live program may differ a little from itself. If the number of
//!     objects or cycles differs between policies, that is reported. A program that fails ends the command with
//!     status 1 ([`Failed`]): then there is nothing to compare.
//! L4  `all` is the processor time of the whole program, engine included; `mutator` is that without the sweeping that V8
//!     does on other threads and without ends of cycles. Nothing is promoted.
//!
//! Not here: how objects are placed (`shims/boa_gc`), the host (`js/host`).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use super::figures::{Figures, Row, median};
use super::options::Options;
use super::source::shown;
use crate::space::{Compaction, SweepOrder};
use crate::strategy::Strategy;

/// The part of the host's report that we need.
#[derive(Deserialize, Debug)]
struct Report {
    programs: Vec<Program>,
    placements: Vec<Placement>,
}

#[derive(Deserialize, Debug, PartialEq, Eq)]
struct Program {
    failure: Option<Failure>,
    result: Option<String>,
    output: Option<Vec<String>>,
}

#[derive(Deserialize, Debug, PartialEq, Eq)]
struct Failure {
    text: String,
}

#[derive(Deserialize, Debug, Clone, Copy, Default)]
struct Size {
    mean: f64,
    peak: f64,
    after: f64,
}

/// The placement's figures, as the host has them (`js/host/src/heap.rs`).
#[derive(Deserialize, Debug, Clone, Default)]
struct Placement {
    policy: String,
    cpu_ms: f64,
    objects: u64,
    bytes: u64,
    peak_live_bytes: u64,
    outside_objects: u64,
    cycles: u64,
    pages: Size,
    with_tables: Size,
    resident: Size,
    needed: Size,
    wasted: Size,
    refills: u64,
    sweeping_ms: f64,
    background_ms: f64,
    finishing_ms: f64,
    ending_ms: f64,
    longest_end_ms: f64,
}

/// A program did not run to its end.
#[derive(Debug)]
pub struct Failed(String);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

/// Refuses what no live program can do (L1). `writes`: the trace was to be written.
///
/// # Errors
/// If it is asked for.
pub fn check(files: &[PathBuf], options: &Options, writes: bool) -> Result<()> {
    let refused = [
        (
            matches!(
                options.compaction,
                Some(Compaction::Sparse | Compaction::Always)
            ),
            "--compact: objects of a live program do not move; leave it out",
        ),
        (
            options.purge,
            "--purge: it is tried on traces only; leave it out with --live",
        ),
        (
            options.instructions,
            "--instructions: they are counted of replays; record the program with `skinflint js \
             --record-objects` and count on the trace",
        ),
        (
            writes,
            "--output: a live program is recorded by `skinflint js --record-objects FILE`",
        ),
        (
            options.nursery_bytes.is_some() || options.sweep_order != SweepOrder::Emptiest,
            "--nursery, --sweep: they are of replays; record the program with `skinflint js --record-objects`",
        ),
        (
            options.max_objects.is_some(),
            "--max-objects: a live program runs to its end; leave it out with --live",
        ),
    ];
    if let Some((_, text)) = refused.iter().find(|(asked, _)| *asked) {
        bail!("{text}");
    }
    // Finds the first missing file before anything has run.
    for file in files {
        std::fs::File::open(file)
            .with_context(|| format!("{}: cannot be read; name a JavaScript file", shown(file)))?;
    }
    Ok(())
}

/// Runs a program under every policy. `host`: the JavaScript host on our heap.
///
/// # Errors
/// If the host cannot be run, or the program does not run to its end.
pub fn measure(
    host: &Path,
    file: &Path,
    policies: &[Strategy],
    options: &Options,
) -> Result<Figures> {
    let alone = ran(host, file, None, options)?;
    let mut rounds: Vec<Vec<Placement>> = vec![Vec::new(); policies.len()];
    let mut missing = Vec::new();
    for round in 0..options.rounds as usize {
        for turn in 0..policies.len() {
            let index = (turn + round) % policies.len();
            let name = policies[index].name;
            let mut report = ran(host, file, Some(name), options)?;
            if report.programs != alone.programs && missing.is_empty() {
                missing.push(difference(&alone.programs, &report.programs, name));
            }
            let placement = report
                .placements
                .pop()
                .filter(|placed| placed.policy == name);
            let placement = placement.with_context(|| {
                format!(
                    "{}: {} says nothing of {name}; build it anew by `make js`",
                    shown(file),
                    host.display()
                )
            })?;
            rounds[index].push(placement);
        }
    }
    let first = rounds.first().and_then(|runs| runs.first());
    let first = first.cloned().unwrap_or_default();
    ensure!(
        first.objects > 0,
        "{}: no object was placed; run a program that allocates",
        shown(file)
    );
    missing.extend(spread(&rounds));
    let rows = policies.iter().zip(&rounds);
    Ok(Figures {
        trace: shown(file),
        source: "live, on Boa".into(),
        settings: format!("growth {}", options.growth),
        live: true,
        objects: first.objects,
        bytes: first.bytes,
        peak_live_bytes: first.peak_live_bytes,
        large_objects: first.outside_objects,
        missing,
        rows: rows
            .map(|(strategy, runs)| row(strategy.name, runs))
            .collect(),
    })
}

/// Runs the host once.
fn ran(host: &Path, file: &Path, policy: Option<&str>, options: &Options) -> Result<Report> {
    let mut command = Command::new(host);
    command.arg("--json");
    if let Some(policy) = policy {
        let limit = options.limit_bytes.to_string();
        let growth = options.growth.to_string();
        command.args([
            "--policy",
            policy,
            "--policy-growth",
            &growth,
            "--heap-limit",
            &limit,
        ]);
    }
    if options.check {
        command.arg("--verify");
    }
    let done = command
        .arg("--")
        .arg(file)
        .output()
        .with_context(|| format!("{}: cannot be started", host.display()))?;
    let under = policy.map_or_else(String::new, |policy| format!(", policy {policy}"));
    let said = String::from_utf8_lossy(&done.stderr);
    let report: Option<Report> = serde_json::from_slice(&done.stdout).ok();
    let Some(report) = report else {
        let tail: Vec<&str> = said.lines().rev().take(3).collect();
        bail!(
            "{}{under}: no report from {} ({}): {}; if it is older than this program, `make js` builds it anew",
            shown(file),
            host.display(),
            done.status,
            tail.join(" / ")
        );
    };
    if let Some(failure) = report
        .programs
        .iter()
        .find_map(|program| program.failure.as_ref())
    {
        return Err(Failed(format!("{}{under}: {}", shown(file), failure.text)).into());
    }
    Ok(report)
}

/// Describes a difference in one sentence (L2).
fn difference(alone: &[Program], placed: &[Program], policy: &str) -> String {
    let lines = |programs: &[Program]| -> Vec<String> {
        let of = |program: &Program| {
            let printed = program.output.clone().unwrap_or_default();
            printed.into_iter().chain(program.result.clone())
        };
        programs.iter().flat_map(of).collect()
    };
    let (alone, placed) = (lines(alone), lines(placed));
    let at = (0..alone.len().max(placed.len())).find(|&at| alone.get(at) != placed.get(at));
    let at = at.unwrap_or(0);
    let shown = |lines: &[String]| {
        lines
            .get(at)
            .map_or("nothing".into(), |line| format!("{line:?}"))
    };
    format!(
        "it prints something else under {policy} (line {}: {}, without a policy {}); if it prints times, its clock \
         does that, and otherwise the figures are of different work",
        at + 1,
        shown(&placed),
        shown(&alone)
    )
}

/// Describes how the numbers of objects and cycles differ (L3).
fn spread(rounds: &[Vec<Placement>]) -> Option<String> {
    let range = |figure: fn(&Placement) -> u64| {
        let all = rounds.iter().flatten().map(figure);
        (all.clone().min().unwrap_or(0), all.max().unwrap_or(0))
    };
    let (objects, cycles) = (
        range(|placed| placed.objects),
        range(|placed| placed.cycles),
    );
    (objects.0 != objects.1 || cycles.0 != cycles.1).then(|| {
        format!(
            "its runs are not all alike: {} to {} objects, {} to {} cycles",
            objects.0, objects.1, cycles.0, cycles.1
        )
    })
}

/// Computes the row of a policy (L4).
fn row(policy: &str, runs: &[Placement]) -> Row {
    let of = |figure: fn(&Placement) -> f64| median(runs.iter().map(figure));
    let count = |figure: fn(&Placement) -> f64| of(figure).round() as u64;
    Row {
        policy: policy.to_owned(),
        mutator_ms: of(|placed| {
            placed.cpu_ms - placed.background_ms - placed.finishing_ms - placed.ending_ms
        }),
        promotion_ms: 0.0,
        total_ms: of(|placed| placed.cpu_ms),
        instructions: None,
        committed_mean: of(|placed| placed.pages.mean),
        committed_peak: of(|placed| placed.pages.peak),
        committed_after: of(|placed| placed.pages.after),
        with_tables_mean: of(|placed| placed.with_tables.mean),
        resident_mean: of(|placed| placed.resident.mean),
        needed_mean: of(|placed| placed.needed.mean),
        wasted_mean: of(|placed| placed.wasted.mean),
        sweeping_ms: of(|placed| placed.sweeping_ms),
        latency_mean_ms: of(|placed| {
            (placed.finishing_ms + placed.ending_ms) / placed.cycles.max(1) as f64
        }),
        latency_max_ms: of(|placed| placed.longest_end_ms),
        collections: count(|placed| placed.cycles as f64),
        refills: count(|placed| placed.refills as f64),
        ..Row::default()
    }
}
