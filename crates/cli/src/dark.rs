//! `skinflint dark-matter`: what a program's own memory reporters leave out, and what two of them claim.
//!
//! ```text
//!   TRACE ─► report (stacks, instant) ─► ledger up to the instant ─► live blocks ┐
//!   memory-report.json[.gz] ─► claims ───────────────────────────────────────────┴─► export::dark
//! ```
//!
//! K1  The rows are asked whether they add up, and the live blocks whether they are the report's, before
//!     anything is printed.
//!
//! Not here: what is dark (`export::dark`), how a memory report is read (`export::reported`).

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use anyhow::{Context as _, Result, bail};
use clap::Args as ClapArgs;
use flate2::bufread::MultiGzDecoder;
use skinflint_analysis::ledger::Ledger;
use skinflint_analysis::model::Report;
use skinflint_export::dark::{Dark, LiveBlock};
use skinflint_export::dark_text::render;
use skinflint_export::reported::Reported;
use skinflint_export::{Lives, LivesPass};
use skinflint_trace::Trace;

use crate::analyse;
use crate::args::NameOptions;

pub const HELP: &str = "\
Examples:
  skinflint dark-matter app.sft memory-report.json.gz
  skinflint dark-matter app.sft report.json --at 'memory report' --json

The memory report is Firefox's (about:memory, version 1), of the moment that --at names. With totals
only it is known how much no reporter covers, and stacks are \"possible\". A report whose
entries list the addresses they have measured (\"blocks\", \"ranges\": docs/export.md) is compared byte by byte.";

/// A memory report larger than this is none.
const LARGEST_REPORT: u64 = 1 << 30;

#[derive(ClapArgs, Debug)]
pub struct DarkArgs {
    /// The trace
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// The memory report: JSON, or gzipped
    #[arg(value_name = "REPORT")]
    pub report: PathBuf,

    /// The moment at which the memory report was made: peak, end, heap-peak, after-free, the name of a
    /// mark, or a time after the start
    #[arg(long, value_name = "MOMENT", default_value = "end")]
    pub at: String,

    /// The process in the memory report [default: the one with the trace's process id, or the only one]
    #[arg(long, value_name = "NAME")]
    pub process: Option<String>,

    /// Lines of each table; 0 prints all
    #[arg(long, value_name = "N", default_value_t = 25)]
    pub limit: usize,

    /// Print everything as JSON (docs/export.md)
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub names: NameOptions,
}

/// Does what was asked. The status to end with.
///
/// # Errors
/// Whatever keeps it from being done.
pub fn dark(args: &DarkArgs) -> Result<u8> {
    let named = || args.report.display().to_string();
    let json = read(&args.report)?;
    let reported = Reported::read(&json).with_context(named)?;
    let trace = analyse::open(&args.trace)?;
    let process = reported
        .choose(args.process.as_deref(), trace.process.pid)
        .with_context(named)?;
    let heap = reported.heap(process);
    let (pass, found) = LivesPass::new(false, 0);
    let options = args.names.at(&args.at);
    let more = analyse::More {
        pass: Some(Box::new(pass)),
        ..analyse::More::default()
    };
    let analysed = analyse::analyse_with(&trace, &args.trace, &options, more)?;
    let lives = std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner));
    let report = &analysed.report;
    let blocks = live_blocks(&trace, &args.trace, report, &lives)?;
    let dark = Dark::new(report, &heap, &blocks);
    if let Err(fault) = dark.adds_up() {
        bail!(fault);
    }
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        serde_json::to_writer_pretty(&mut out, &dark).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        let rows = if args.limit == 0 {
            usize::MAX
        } else {
            args.limit
        };
        out.write_all(render(&dark, report, rows, 5).as_bytes())?;
    }
    out.flush()?;
    for note in &report.completeness.notes {
        if !report.completeness.complete {
            say!("skinflint: {}: {note}", args.trace.display());
        }
    }
    for hint in analysed.hints.iter().take(2) {
        say!("Names: {hint}");
    }
    Ok(0)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let failed = || {
        format!(
            "{}: cannot be read; check the name and that it is whole",
            path.display()
        )
    };
    let mut file = BufReader::new(File::open(path).with_context(failed)?);
    let packed = file
        .fill_buf()
        .with_context(failed)?
        .starts_with(&[0x1f, 0x8b]);
    let mut json = Vec::new();
    let read = match packed {
        true => MultiGzDecoder::new(file)
            .take(LARGEST_REPORT)
            .read_to_end(&mut json),
        false => file.take(LARGEST_REPORT).read_to_end(&mut json),
    };
    let read = read.with_context(failed)?;
    if read as u64 == LARGEST_REPORT {
        bail!(
            "{}: more than {LARGEST_REPORT} bytes: this is no memory report",
            path.display()
        );
    }
    Ok(json)
}

/// The live blocks at the report's instant (K1).
fn live_blocks(
    trace: &Trace,
    path: &Path,
    report: &Report,
    lives: &Lives,
) -> Result<Vec<LiveBlock>> {
    let instant = report
        .instants
        .get(report.at)
        .context("the report has no moment")?;
    let mut ledger = Ledger::new(16);
    analyse::events_again(trace, path, &mut ledger, &mut |ledger, event| {
        if event.ticket <= instant.ticket {
            ledger.apply(event, &mut |_, _| {});
        }
    });
    let places = lives.sites.iter().enumerate();
    let site_of: std::collections::HashMap<u32, u32> = places
        .map(|(site, lives)| (lives.trace_node, site as u32))
        .collect();
    let block = |block: &skinflint_analysis::pass::Block| {
        let key = ledger.cells().key(block.cell);
        let site = *site_of.get(&key.node.0)?;
        Some(LiveBlock {
            addr: block.addr,
            usable_bytes: key.usable,
            site,
        })
    };
    let blocks: Vec<LiveBlock> = ledger.live_blocks().filter_map(block).collect();
    let bytes = blocks
        .iter()
        .map(|block| block.usable_bytes)
        .fold(0, u64::saturating_add);
    if (blocks.len() as u64, bytes) != (instant.live_blocks, instant.live_usable_bytes) {
        bail!(
            "the live blocks at {} were {} with {} bytes at the first reading and {} with {bytes} at the second: \
             did the trace change meanwhile?",
            instant.label,
            instant.live_blocks,
            instant.live_usable_bytes,
            blocks.len()
        );
    }
    Ok(blocks)
}
