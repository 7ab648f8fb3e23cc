//! `skinflint gc`: object traces under free-list policies.
//!
//! ```text
//!   .sfo, .sft, --synthetic ─► source ─► Script ─┬─► legacy     ─► Run ─┐
//!                                                ├─► many       ─► Run ─┼─► tables: three tables, better and worse
//!                                                └─► … × rounds ─► Run ─┘        --json
//!   --live FILE.js ─► live: the program itself under each policy ──► a row each ─┘
//! ```
//!
//! G1  Ratios refer to legacy, which runs whether it was asked for or not. Times are medians over rounds, whose order
//!     rotates; memory is the same in every round (asserted), since all collect at the same events. A live program
//!     runs itself (`live`, L3): its memory is a median, too.
//! G2  What a trace lacks is reported on stderr before its figures.
//! G3  Wrong policies and sizes are wrong use (status 2), found before a trace is read.
//!
//! Not here: what a policy does (`gc::policy`), formats (`objects`, `trace`), how it looks (`tables`).

mod live;
mod source;
mod tables;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args as ClapArgs, ValueEnum};
use serde::{Deserialize, Serialize};
use skinflint_gc::policy::replay::{Plan, Run, run};
use skinflint_gc::policy::{Compaction, Settings, Strategy};
use skinflint_objects::Law;
use skinflint_objects::synthetic::Shape;

/// Reports whether an error is of a trace or of a program that ran, and not of the command line.
pub fn is_of_trace(error: &anyhow::Error) -> bool {
    source::is_of_trace(error) || error.is::<live::Failed>()
}

pub const HELP: &str = "\
Examples:
  skinflint gc --synthetic steady --synthetic phases:7
  skinflint gc app.sfo --policies legacy,many-origin,tight --compact sparse
  skinflint gc app.sft --policies all --json    # a malloc trace: blocks as objects
  skinflint gc --synthetic steady:3 --write steady.sfo
  skinflint gc --live app.js --policies studied # the program itself, its objects in each policy's pages

All policies collect at the same events, and nothing but the policy differs. CPU time without marking; memory is
pages of 256 KiB. The compactor is V8's unless --compact says otherwise. docs/gc-policies.md explains.";

#[derive(ClapArgs, Debug)]
pub struct GcArgs {
    /// Object traces (.sfo), or traces of skinflint record (.sft), whose blocks stand for objects
    #[arg(value_name = "TRACE", required_unless_present_any = ["synthetic", "list", "live"])]
    pub traces: Vec<PathBuf>,

    /// A made-up trace by seed: steady, phases, independent; may be given several times. PERCENT is the share of
    /// objects that the collector allocates (77)
    #[arg(long, value_name = "SHAPE[:SEED[:PERCENT]]")]
    pub synthetic: Vec<String>,

    /// Run JavaScript programs themselves under each policy, on Boa (`make js` builds it); without one first, and what they
    /// print must be the same
    #[arg(long, value_name = "FILE.js", num_args = 1.., conflicts_with_all = ["traces", "synthetic"])]
    pub live: Vec<PathBuf>,

    /// Policies with commas; `studied` are the twelve of the study and ours, `all` all there are
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "studied"
    )]
    pub policies: Vec<String>,

    /// List the policies
    #[arg(long)]
    pub list: bool,

    /// Most bytes of pages: 512M, 2G
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = size)]
    pub heap_limit: usize,

    /// A collection comes when so many times what lived has been allocated
    #[arg(long, value_name = "FACTOR", default_value_t = 2.0)]
    pub growth: f64,

    /// Which pages are evacuated in collections [default: sparse; with --live never]
    #[arg(long, value_name = "WHICH")]
    pub compact: Option<Compact>,

    /// Give kernel pages within free blocks back, as far as they will not be wanted before the next collection
    #[arg(long)]
    pub purge: bool,

    /// Rounds; times are their medians
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub rounds: u32,

    /// Objects of a trace that are run, at most [default: 20000000; with --write all]
    #[arg(long, value_name = "N")]
    pub max_objects: Option<u64>,

    /// Count instructions too, by valgrind's callgrind: a minute for each million objects and policy
    #[arg(long)]
    pub instructions: bool,

    /// Write the (only) trace as an object trace, and run nothing
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,

    /// Assert every invariant of lists and pages after each collection; times are worth nothing then
    #[arg(long)]
    pub check: bool,

    /// Print all figures as JSON
    #[arg(long)]
    pub json: bool,

    /// Without legacy (for --instructions, which counts a process)
    #[arg(long, hide = true)]
    pub alone: bool,
}

/// Which pages are evacuated in collections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Compact {
    /// None
    Never,
    /// V8's way: 70 % free or more, 4 MiB of objects at most
    Sparse,
    /// Half free or more, 32 MiB at most
    Always,
}

impl GcArgs {
    fn compact(&self) -> Compact {
        self.compact.unwrap_or(Compact::Sparse)
    }

    fn max_objects(&self) -> u64 {
        self.max_objects.unwrap_or(20_000_000)
    }
}

/// Parses `512M` as bytes.
fn size(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.as_bytes().last().map(u8::to_ascii_uppercase) {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: Option<usize> = digits.parse().ok();
    let bytes = number.and_then(|number| number.checked_mul(1 << shift));
    bytes
        .filter(|bytes| (1 << 18..=16 << 30).contains(bytes))
        .ok_or_else(|| "a number of bytes from 256K to 16G, with K, M or G".into())
}

/// The figures of one policy on one trace, in bytes and milliseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    /// The policy's name.
    pub policy: String,
    /// CPU time of the mutator's allocations, with its share of lazy sweeping.
    pub mutator_ms: f64,
    /// CPU time of the collector's allocations (promotion).
    pub promotion_ms: f64,
    /// All CPU time except that of marking.
    pub total_ms: f64,
    /// Instructions of all of that, if they were counted.
    pub instructions: Option<u64>,
    /// Mean bytes of pages over samples.
    pub committed_mean: f64,
    /// The largest number of bytes of pages.
    pub committed_peak: f64,
    /// Mean bytes of pages right after a collection.
    pub committed_after: f64,
    /// Mean bytes of pages and the list's descriptors.
    pub with_tables_mean: f64,
    /// Mean bytes of kernel pages that were written to and not purged.
    pub resident_mean: f64,
    /// Mean bytes that no policy can do without: objects that no collection has found dead.
    pub needed_mean: f64,
    /// Mean bytes of holes that are in no list.
    pub wasted_mean: f64,
    /// CPU time of sweeping, on whatever thread.
    pub sweeping_ms: f64,
    /// Mean CPU time from the beginning of a collection until allocation can go on, without marking.
    pub latency_mean_ms: f64,
    /// The longest such time.
    pub latency_max_ms: f64,
    /// Number of collections.
    pub collections: u64,
    /// How often an area was used up.
    pub refills: u64,
    /// Bytes of objects moved.
    pub moved_bytes: u64,
    /// Bytes purged.
    pub purged_bytes: u64,
}

/// A trace and its figures.
#[derive(Serialize)]
pub struct Figures {
    /// The trace's name.
    pub trace: String,
    /// How it was made.
    pub source: String,
    /// Whether the program itself ran: then times are of the whole program.
    pub live: bool,
    /// Number of objects that were run.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The most bytes that lived at once.
    pub peak_live_bytes: u64,
    /// Number of objects above half a page, which no policy places.
    pub large_objects: u64,
    /// What is missing, one sentence each.
    pub missing: Vec<String>,
    /// One row for each policy, legacy first.
    pub rows: Vec<Row>,
}

/// Does what was asked. Returns the exit status.
///
/// # Errors
/// Whatever keeps it from being done.
pub fn gc(args: &GcArgs) -> Result<u8> {
    if args.list {
        let mut out = io::stdout().lock();
        for strategy in Strategy::all() {
            writeln!(out, "{:22} {}", strategy.name, strategy.about)?;
        }
        return Ok(0);
    }
    ensure!(
        args.growth >= 1.05 && args.growth <= 20.0,
        "--growth {}: a factor from 1.05 to 20",
        args.growth
    );
    let policies = policies(&args.policies, args.alone)?;
    if !args.live.is_empty() {
        live::check(args)?;
        let measured = |file: &PathBuf| live::measure(file, &policies, args);
        return tell(
            &args.live.iter().map(measured).collect::<Result<Vec<_>>>()?,
            args,
        );
    }
    let sources = sources(args)?;
    if let Some(path) = &args.write {
        let [source] = sources.as_slice() else {
            bail!("--write: one trace at a time; there are {}", sources.len());
        };
        let totals = source.write(path, args.max_objects.unwrap_or(u64::MAX))?;
        say!(
            "skinflint: {}: {} allocations, {} deaths",
            path.display(),
            totals.allocations,
            totals.deaths
        );
        return Ok(0);
    }
    let measured = |source: &source::Source| measure(source, &policies, args);
    tell(
        &sources.iter().map(measured).collect::<Result<Vec<_>>>()?,
        args,
    )
}

/// Prints what is missing (G2), and the figures.
fn tell(all: &[Figures], args: &GcArgs) -> Result<u8> {
    for figures in all {
        for missing in &figures.missing {
            say!("skinflint: {}: {missing}", figures.trace);
        }
    }
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, all)?;
        writeln!(out)?;
    } else {
        out.write_all(tables::render(all).as_bytes())?;
    }
    out.flush()?;
    Ok(0)
}

fn policies(names: &[String], alone: bool) -> Result<Vec<Strategy>> {
    let mut chosen: Vec<Strategy> = Vec::new();
    let mut add = |strategy: Strategy| {
        if chosen.iter().all(|known| known.name != strategy.name) {
            chosen.push(strategy);
        }
    };
    // G1.
    Strategy::by_name("legacy")
        .filter(|_| !alone)
        .into_iter()
        .for_each(&mut add);
    for name in names {
        match name.trim() {
            // The map space is only for objects of one size.
            "all" => Strategy::all()
                .iter()
                .filter(|s| s.name != "map-space")
                .copied()
                .for_each(&mut add),
            "studied" => {
                Strategy::all()
                    .iter()
                    .filter(|s| s.studied)
                    .copied()
                    .for_each(&mut add);
                Strategy::by_name("tight").into_iter().for_each(&mut add);
            }
            name => match Strategy::by_name(name) {
                Some(strategy) => add(strategy),
                None => {
                    let known: Vec<&str> = Strategy::all().iter().map(|s| s.name).collect();
                    bail!(
                        "--policies: there is no `{name}`; there are studied, all, {}",
                        known.join(", ")
                    );
                }
            },
        }
    }
    Ok(chosen)
}

fn sources(args: &GcArgs) -> Result<Vec<source::Source>> {
    let mut sources: Vec<source::Source> = args
        .traces
        .iter()
        .cloned()
        .map(source::Source::File)
        .collect();
    for text in &args.synthetic {
        let Some(law) = law(text) else {
            bail!(
                "--synthetic {text}: SHAPE[:SEED[:PERCENT]] with steady, phases or independent, a number, and a \
                 share from 1 to 99"
            );
        };
        sources.push(source::Source::Synthetic(law));
    }
    Ok(sources)
}

/// Parses `steady`, `phases:7`, `steady:1:50`.
fn law(text: &str) -> Option<Law> {
    let mut parts = text.split(':');
    let name = parts.next()?;
    let shape = Shape::ALL.into_iter().find(|shape| shape.name() == name)?;
    let mut law = Law::new(shape, 1);
    if let Some(seed) = parts.next() {
        law.seed = seed.parse().ok()?;
    }
    if let Some(percent) = parts.next() {
        law.promoted_percent = percent.parse().ok().filter(|p| (1..=99).contains(p))?;
    }
    parts.next().is_none().then_some(law)
}

fn plan(args: &GcArgs) -> Plan {
    Plan {
        growth: args.growth,
        check: args.check,
        settings: Settings {
            compaction: match args.compact() {
                Compact::Never => Compaction::Never,
                Compact::Sparse => Compaction::Sparse,
                Compact::Always => Compaction::Always,
            },
            purge: args.purge,
            limit_bytes: args.heap_limit,
            ..Settings::default()
        },
        ..Plan::default()
    }
}

fn measure(source: &source::Source, policies: &[Strategy], args: &GcArgs) -> Result<Figures> {
    let read = source.read(args.max_objects())?;
    let script = &read.script;
    ensure!(
        !script.is_empty(),
        "{}: no objects in it; record a run that allocates",
        source.name()
    );
    let mut runs: Vec<Vec<Run>> = vec![Vec::new(); policies.len()];
    for round in 0..args.rounds as usize {
        for turn in 0..policies.len() {
            let index = (turn + round) % policies.len();
            let strategy = policies[index];
            let ran = run(script, strategy, plan(args))
                .with_context(|| format!("{}: policy {}", source.name(), strategy.name))?;
            runs[index].push(ran);
        }
    }
    let mut rows = Vec::new();
    for (strategy, runs) in policies.iter().zip(&runs) {
        let mut row = row(strategy.name, runs);
        if args.instructions {
            row.instructions = Some(instructions(source, strategy.name, args)?);
        }
        rows.push(row);
    }
    Ok(Figures {
        trace: source.name(),
        source: read.source,
        live: false,
        objects: script.objects,
        bytes: script.bytes,
        peak_live_bytes: script.peak_live_bytes,
        large_objects: script.large_objects,
        missing: read.missing,
        rows,
    })
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => (values[count / 2 - 1] + values[count / 2]) / 2.0,
    }
}

fn row(policy: &str, runs: &[Run]) -> Row {
    let Some(first) = runs.first() else {
        return Row::default();
    };
    for run in runs {
        assert_eq!(
            run.committed, first.committed,
            "G1: memory differs between rounds of {policy}"
        );
    }
    let ms = |time: fn(&Run) -> std::time::Duration| {
        median(runs.iter().map(|run| time(run).as_secs_f64() * 1e3))
    };
    Row {
        policy: policy.to_owned(),
        mutator_ms: ms(|run| run.mutator),
        promotion_ms: ms(|run| run.promotion),
        total_ms: ms(Run::total),
        instructions: None,
        committed_mean: first.committed.mean,
        committed_peak: first.committed.peak as f64,
        committed_after: first.committed.after,
        with_tables_mean: first.with_tables.mean,
        resident_mean: first.resident.mean,
        needed_mean: first.needed.mean,
        wasted_mean: first.wasted.mean,
        sweeping_ms: ms(|run| run.sweeping),
        latency_mean_ms: ms(|run| run.finishing + run.ending) / first.collections.max(1) as f64,
        latency_max_ms: ms(|run| run.latency_max),
        collections: first.collections,
        refills: first.figures.refills_total,
        moved_bytes: first.figures.moved_bytes_total,
        purged_bytes: first.figures.purged_bytes_total,
    }
}

/// Counts the instructions of one policy on one trace, without marking: it runs this program under callgrind, which
/// counts from the entry of `play` to its end and leaves `mark_all` out.
fn instructions(source: &source::Source, policy: &str, args: &GcArgs) -> Result<u64> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new("valgrind");
    command
        .args([
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            "--collect-atstart=no",
        ])
        .args([
            "--toggle-collect=*policy*replay*play*",
            "--toggle-collect=*policy*replay*mark_all*",
        ])
        .arg(own)
        .args([
            "gc",
            "--json",
            "--rounds",
            "1",
            "--alone",
            "--policies",
            policy,
        ])
        .args(["--growth", &args.growth.to_string()])
        .args(["--heap-limit", &args.heap_limit.to_string()])
        .args(["--max-objects", &args.max_objects().to_string()])
        .args([
            "--compact",
            args.compact()
                .to_possible_value()
                .map_or("sparse".into(), |v| v.get_name().to_owned())
                .as_str(),
        ])
        .args(args.purge.then_some("--purge"));
    source.as_arguments(&mut command);
    let done = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .context("--instructions: cannot run valgrind: install it")?;
    let said = String::from_utf8_lossy(&done.stderr);
    let line = said
        .lines()
        .rev()
        .find_map(|line| line.split_once("Collected : "));
    let counted = line
        .and_then(|(_, digits)| digits.trim().parse().ok())
        .filter(|count| *count > 0);
    counted.with_context(|| {
        let tail: Vec<&str> = said.lines().rev().take(3).collect();
        format!(
            "--instructions: valgrind counted nothing ({}): {}",
            done.status,
            tail.join(" / ")
        )
    })
}

/// Formats a path for an error.
pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string()
}
