//! `skinflint gc`: free-list policies on object traces, or on a program that runs.
//!
//! ```text
//!   .sfo, .sft, --synthetic ─► Source ─┬► trials::advise (--advise)
//!                                      └► trials::measure ─────┐
//!   --live FILE.js ────────────────────► trials::measure_live ─┴─► tables, or --json
//! ```
//!
//! G2  What a trace lacks is reported on stderr before its figures.
//! G3  Wrong policies and sizes are wrong use (status 2), found before a trace is read.
//!
//! Not here: what a policy does, how policies are tried and how figures look (`free_lists`).

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use clap::{Args as ClapArgs, ValueEnum};
use skinflint_free_lists::trials::{self, Failed, Figures, Options, Source};
use skinflint_free_lists::{Compaction, Strategy, SweepOrder};
use skinflint_launch::installed;

use crate::analyse;
use crate::options::bytes;

/// Reports whether an error is of a trace or of a program that ran, and not of the command line.
pub fn is_of_trace(error: &anyhow::Error) -> bool {
    trials::is_of_trace(error) || error.is::<Failed>()
}

pub const HELP: &str = "\
Examples:
  skinflint gc --synthetic steady --synthetic phases:7
  skinflint gc app.sfo --with legacy,many-origin,tight --compact sparse
  skinflint gc app.sft --with all --json        # a malloc trace: blocks as objects
  skinflint gc --synthetic steady:3 -o steady.sfo
  skinflint gc --live app.js --with studied     # the program itself
  skinflint gc app.sfo --nursery 1M             # behind a young generation: who asks, as in V8
  skinflint gc app.sfo --ref tight --save now.json; skinflint gc app.sfo --ref tight --baseline now.json
  skinflint gc app.sfo --advise                 # policy, growth and compaction for this trace

All policies collect at the same events, and nothing but the policy differs. CPU time is without
marking; memory is counted in pages of 256 KiB. The compactor is V8's unless --compact says
otherwise. docs/gc-policies.md explains.";

#[derive(ClapArgs, Debug)]
pub struct GcArgs {
    /// Object traces (.sfo), or traces of skinflint record (.sft), whose blocks stand for objects
    #[arg(value_name = "TRACE", required_unless_present_any = ["synthetic", "list", "live"])]
    pub traces: Vec<PathBuf>,

    /// A trace generated from a seed: steady, phases, independent, maps; may be given several times. PERCENT is the share of
    /// objects that the collector allocates (77)
    #[arg(long, value_name = "SHAPE[:SEED[:PERCENT]]")]
    pub synthetic: Vec<String>,

    /// Run JavaScript programs themselves under each policy, on Boa (`make js` builds it); first without a policy;
    /// each must print the same
    #[arg(long, value_name = "FILE.js", num_args = 1.., conflicts_with_all = ["traces", "synthetic"])]
    pub live: Vec<PathBuf>,

    /// Policies with commas; `studied` are the twelve of the study and ours, `all` is every policy
    #[arg(
        long,
        alias = "policies",
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "studied"
    )]
    pub with: Vec<String>,

    /// The policy that the others are compared with
    #[arg(long = "ref", value_name = "NAME", default_value = "legacy")]
    pub reference: String,

    /// List the policies
    #[arg(long)]
    pub list: bool,

    /// Most bytes of pages: 512M, 2G
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = size)]
    pub heap_limit: usize,

    /// Collect each time the objects have grown to FACTOR times the bytes that lived after the last collection
    #[arg(long, value_name = "FACTOR", default_value_t = 2.0)]
    pub growth: f64,

    /// Pages to evacuate in collections [default: sparse; with --live never]
    #[arg(long, value_name = "WHICH")]
    pub compact: Option<Compact>,

    /// Give kernel pages within free blocks back, as far as they will not be wanted before the next collection
    #[arg(long)]
    pub purge: bool,

    /// The order in which pages are swept
    #[arg(long, value_name = "ORDER", default_value = "emptiest")]
    pub sweep: Sweep,

    /// Put a young generation of BYTES before the trace: what survives two scavenges is the collector's
    #[arg(long, value_name = "BYTES", value_parser = small_size)]
    pub nursery: Option<u64>,

    /// Try five policies with five growths and three compactors, and print those that no other beats in memory and work
    #[arg(long, conflicts_with_all = ["live", "output", "instructions", "save", "baseline", "growth", "compact", "with", "reference"])]
    pub advise: bool,

    /// Save the figures, for --baseline
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,

    /// Print how the figures differ from those that were saved
    #[arg(long, alias = "against", value_name = "FILE", conflicts_with = "json")]
    pub baseline: Option<PathBuf>,

    /// Rounds; times are their medians
    #[arg(long, alias = "rounds", value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub runs: u32,

    /// Objects of a trace that are run, at most [default: 20000000; with --output all]
    #[arg(long, value_name = "N")]
    pub max_objects: Option<u64>,

    /// Count instructions too, by valgrind's callgrind: a minute for each million objects and policy
    #[arg(long)]
    pub instructions: bool,

    /// Write the (only) trace as an object trace, and run nothing
    #[arg(short, long, alias = "write", value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Assert every invariant of lists and pages after each collection; times are worth nothing then
    #[arg(long)]
    pub check: bool,

    /// Print all figures as JSON
    #[arg(long)]
    pub json: bool,

    /// Without the reference (for --instructions, which counts a process)
    #[arg(long, hide = true)]
    pub alone: bool,
}

/// The order in which pages are swept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sweep {
    /// The emptiest page first: V8's old space
    Emptiest,
    /// As they lie: V8's map space
    Address,
}

/// Pages to evacuate in collections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compact {
    /// None
    Never,
    /// V8's way: 70 % free or more, 4 MiB of objects at most
    Sparse,
    /// Half free or more, 32 MiB at most
    Always,
}

impl GcArgs {
    fn options(&self) -> Options {
        Options {
            growth: self.growth,
            limit_bytes: self.heap_limit,
            compaction: self.compact.map(|which| match which {
                Compact::Never => Compaction::Never,
                Compact::Sparse => Compaction::Sparse,
                Compact::Always => Compaction::Always,
            }),
            purge: self.purge,
            sweep_order: match self.sweep {
                Sweep::Emptiest => SweepOrder::Emptiest,
                Sweep::Address => SweepOrder::Address,
            },
            nursery_bytes: self.nursery,
            rounds: self.runs,
            max_objects: self.max_objects,
            instructions: self.instructions,
            check: self.check,
        }
    }

    fn sources(&self) -> Result<Vec<Source>> {
        let traces = analyse::one_each(&self.traces)?;
        let mut sources: Vec<Source> = traces.into_iter().map(Source::File).collect();
        for text in &self.synthetic {
            let Some(source) = Source::synthetic(text) else {
                bail!(
                    "--synthetic {text}: SHAPE[:SEED[:PERCENT]] with steady, phases, independent or maps, a number, and a \
                     share from 1 to 99"
                );
            };
            sources.push(source);
        }
        Ok(sources)
    }
}

/// Parses `512M` as bytes of a heap.
fn size(text: &str) -> Result<usize, String> {
    let bytes = bytes(text).filter(|bytes| (1 << 18..=16 << 30).contains(bytes));
    bytes.ok_or_else(|| "a number of bytes from 256K to 16G, with K, M or G".into())
}

/// Parses `1M` as bytes of a nursery.
fn small_size(text: &str) -> Result<u64, String> {
    let bytes = bytes(text).filter(|bytes| (16 << 10..=1 << 30).contains(bytes));
    bytes
        .map(|bytes| bytes as u64)
        .ok_or_else(|| "a number of bytes from 16K to 1G, with K, M or G".into())
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
    let reference = (!args.alone).then_some(args.reference.as_str());
    let policies = trials::policies(&args.with, reference)?;
    let options = args.options();
    if !args.live.is_empty() {
        trials::check_live(&args.live, &options, args.output.is_some())?;
        let host = installed::js_host("skinflint-js")?;
        let measured = |file: &PathBuf| trials::measure_live(&host, file, &policies, &options);
        return tell(
            &args.live.iter().map(measured).collect::<Result<Vec<_>>>()?,
            args,
        );
    }
    let sources = args.sources()?;
    if let Some(path) = &args.output {
        let [source] = sources.as_slice() else {
            bail!("--output: one trace at a time; there are {}", sources.len());
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
    if args.advise {
        return advise(&sources, &options, args.json);
    }
    let measured = |source: &Source| trials::measure(source, &policies, &options);
    tell(
        &sources.iter().map(measured).collect::<Result<Vec<_>>>()?,
        args,
    )
}

/// Advises on each trace.
fn advise(sources: &[Source], options: &Options, as_json: bool) -> Result<u8> {
    let all = sources.iter().map(|source| trials::advise(source, options));
    let all = all.collect::<Result<Vec<_>>>()?;
    for advice in &all {
        for missing in &advice.missing {
            say!("skinflint: {}: {missing}", advice.trace);
        }
    }
    let mut out = io::stdout().lock();
    if as_json {
        serde_json::to_writer_pretty(&mut out, &all)?;
        writeln!(out)?;
    } else {
        let texts: Vec<String> = all.iter().map(trials::Advice::render).collect();
        out.write_all(texts.join("\n").as_bytes())?;
    }
    out.flush()?;
    Ok(0)
}

/// Prints what is missing (G2), and the figures, or how they differ from saved ones.
fn tell(all: &[Figures], args: &GcArgs) -> Result<u8> {
    // Read before it is written: both may be one file.
    let before = args.baseline.as_deref().map(trials::load).transpose()?;
    if let Some(path) = &args.save {
        trials::save(all, path)?;
    }
    for figures in all {
        for missing in &figures.missing {
            say!("skinflint: {}: {missing}", figures.trace);
        }
    }
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, all)?;
        writeln!(out)?;
    } else if let Some(before) = before {
        out.write_all(trials::differences(&before, all)?.as_bytes())?;
    } else {
        out.write_all(trials::render(all).as_bytes())?;
    }
    out.flush()?;
    Ok(0)
}
