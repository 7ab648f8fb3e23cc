//! `skinflint export`: a trace in the format of another tool.
//!
//! ```text
//!   TRACE ─► trace ─► analysis (+ symbols, + LivesPass) ─► export::FORMAT ─► FILE, or FILE.gz
//! ```
//!
//! E1  An option that a format has no use for is wrong use (status 2), and is never ignored.
//! E2  What is missing from a trace is reported on stderr, and in the file if the format has a place for it.
//!
//! Not here: the formats (`export`).

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use anyhow::{Context as _, Result, bail};
use clap::{Args as ClapArgs, ValueEnum};
use skinflint_export::{
    LivesPass, Source, Value, anonymous, dhat, file, firefox, folded, heaptrack, memory_report,
    pprof, speedscope,
};
use skinflint_recording::{More, Recording};
use skinflint_view::units;

use crate::analyse;
use crate::options::NameOptions;

pub const HELP: &str = "\
Examples:
  skinflint export app.sft --format pprof -o app.pb.gz     # go tool pprof -http=: app.pb.gz
  skinflint export app.sft --format dhat -o dhat.json      # dh_view.html of Valgrind
  skinflint export app.sft --format folded --value alloc_space -o app.folded
  skinflint export app.sft --format firefox -o app.json.gz # profiler.firefox.com
  skinflint export app.sft --format memory-report --at end -o memory-report.json.gz  # about:memory
  skinflint export app.sft --format heaptrack -o app.heaptrack.gz
  skinflint export app.sft --format pprof --anonymize -o for-others.pb.gz

docs/export.md says what each format holds, and what it cannot hold. A name that ends in .gz is
compressed.";

#[derive(ClapArgs, Debug)]
pub struct ExportArgs {
    /// The trace
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// The format
    #[arg(long, value_name = "FORMAT")]
    pub format: Format,

    /// The file to write; - is stdout
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    /// The moment at which memory in use is counted: peak, end, heap-peak, after-free, most-kept, the name of a
    /// mark, or a time after the start [default: peak]; not for dhat, heaptrack and firefox, which are of the whole run
    #[arg(long, value_name = "MOMENT")]
    pub at: Option<String>,

    /// For folded: inuse_space, inuse_objects, inuse_slop, alloc_space, alloc_objects
    /// [default: inuse_space]
    #[arg(long, value_name = "VALUE")]
    pub value: Option<String>,

    /// Replace all names (functions, files, modules, commands, arguments, paths, marks) by hashes under a key that is
    /// drawn anew and thrown away; figures stay
    #[arg(long)]
    pub anonymize: bool,

    /// With --anonymize: also write which hash is which name, to a new file that only you can read
    #[arg(long, value_name = "FILE", requires = "anonymize")]
    pub name_map: Option<PathBuf>,

    #[command(flatten)]
    pub names: NameOptions,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// profile.proto, gzipped: allocated and in use, blocks and bytes, and slop
    Pprof,
    /// JSON version 2 of Valgrind's DHAT: lifetimes, largest moments
    Dhat,
    /// A line for each stack, with one --value
    Folded,
    /// speedscope's JSON: a profile for each value
    Speedscope,
    /// Firefox Profiler: native allocations over time
    Firefox,
    /// memory-report.json of about:memory: the heap by stack, and where resident memory is
    MemoryReport,
    /// heaptrack's text, version 3: every event
    Heaptrack,
    /// The whole report, as `skinflint report --json` has it
    Json,
    /// A table with a row for each stack (in builds with --features parquet)
    Parquet,
}

impl Format {
    /// Reports whether the file is of the whole run, and not of a moment.
    fn is_of_run(self) -> bool {
        matches!(self, Format::Dhat | Format::Heaptrack | Format::Firefox)
    }

    fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Does what was asked. Returns the exit status.
///
/// # Errors
/// Whatever keeps it from being done.
pub fn export(args: &ExportArgs) -> Result<u8> {
    let value = checked(args)?;
    let recording = analyse::open(&args.trace)?;
    let trace = &recording.trace;
    let at = args.at.as_deref().unwrap_or("peak");
    let duration_ns = trace.ending.as_ref().map_or(0, |ending| ending.time_ns);
    let sampled_ns = trace.rss.last().map_or(0, |sample| sample.time_ns);
    let with_spans = args.format == Format::Firefox;
    let (pass, found) = LivesPass::new(with_spans, duration_ns.max(sampled_ns));
    let options = args.names.at(at);
    let more = More {
        pass: Some(Box::new(pass)),
        ..More::default()
    };
    let analysed = analyse::analyse_with(&recording, &options, more)?;
    let lives = std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner));
    let source = Source {
        report: &analysed.report,
        lives: &lives,
    };
    let mut names = anonymous::Names::default();
    let hashed = args.anonymize.then(|| {
        (
            names.report(source.report),
            names.modules(&trace.process.exe, &trace.modules),
        )
    });
    let (shown, loaded) = match &hashed {
        Some((report, modules)) => (
            Source { report, ..source },
            pprof::Loaded { exe: "", modules },
        ),
        None => (
            source,
            pprof::Loaded {
                exe: &trace.process.exe,
                modules: &trace.modules,
            },
        ),
    };
    to_file(
        &args.output,
        &args.trace,
        args.format != Format::Pprof,
        &mut |out| write(args, value, &recording, (shown, loaded), out),
    )?;
    if let Some(path) = &args.name_map {
        write_map(path, &names)?;
    }
    for hint in analysed.hints.iter().take(3) {
        say!("Names: {hint}");
    }
    say_what(args, source);
    Ok(0)
}

/// Checks the options before anything is read (E1).
fn checked(args: &ExportArgs) -> Result<Value> {
    let format = args.format.name();
    if args.at.is_some() && args.format.is_of_run() {
        bail!("--at: {format} holds the whole run; leave it out");
    }
    if cfg!(not(feature = "parquet")) && args.format == Format::Parquet {
        bail!(
            "--format parquet: this build is without it; build with `cargo build --release -p skinflint-cli \
             --features parquet`"
        );
    }
    let names: Vec<&str> = Value::ALL.iter().map(|value| value.name()).collect();
    let Some(name) = &args.value else {
        return Ok(Value::InuseSpace);
    };
    if args.format != Format::Folded {
        bail!("--value: {format} holds all of them; leave it out (only folded holds one)");
    }
    Value::by_name(name).with_context(|| {
        format!(
            "--value {name}: no such value; use one of: {}",
            names.join(", ")
        )
    })
}

/// Writes which hash is which name, to a new file of the user's alone: one that is there may be open to others.
fn write_map(path: &Path, names: &anonymous::Names) -> Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let file = options.open(path);
    let written = file.and_then(|file| {
        let mut out = BufWriter::new(file);
        serde_json::to_writer_pretty(&mut out, names.map())?;
        out.write_all(b"\n")?;
        out.flush()
    });
    written.with_context(|| {
        format!(
            "--name-map {}: cannot be written; name a file that is not there",
            path.display()
        )
    })
}

fn write(
    args: &ExportArgs,
    value: Value,
    recording: &Recording,
    (source, loaded): (Source<'_>, pprof::Loaded<'_>),
    out: &mut (dyn Write + Send),
) -> io::Result<()> {
    let trace = &recording.trace;
    match args.format {
        Format::Pprof => pprof::write(source, loaded, out),
        Format::Json => skinflint_view::json::write(source.report, false, out),
        Format::Dhat => dhat::write(source, out),
        Format::Folded => folded::write(source, value, out),
        Format::Speedscope => speedscope::write(source, out),
        Format::Firefox => firefox::write(source, out),
        Format::MemoryReport => {
            let unique_bytes = memory_report::unique_bytes(source, &trace.snapshots);
            memory_report::write(source, unique_bytes, out)
        }
        Format::Heaptrack => {
            let recorded = heaptrack::Recorded {
                rss: &trace.rss,
                os_page_bytes: trace.process.os_page_bytes,
            };
            let each = |ledger: &mut _, each: &mut dyn FnMut(&mut _, &_)| {
                recording.events_again(ledger, each);
            };
            heaptrack::write(source, &recorded, each, out)
        }
        #[cfg(feature = "parquet")]
        Format::Parquet => skinflint_export::parquet::write(source, out),
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => Err(io::Error::other("refused above")),
    }
}

/// Writes a whole file, or stdout (`export::file`).
fn to_file(
    path: &Path,
    trace: &Path,
    may_pack: bool,
    write: &mut dyn FnMut(&mut (dyn Write + Send)) -> io::Result<()>,
) -> Result<()> {
    let same = |other: &Path| path.canonicalize().ok() == other.canonicalize().ok();
    if path.exists() && same(trace) {
        bail!(
            "--output {}: that is the trace itself; name another file",
            path.display()
        );
    }
    if path.as_os_str() == "-" {
        let mut out = BufWriter::new(io::stdout());
        write(&mut out)?;
        return Ok(out.flush()?);
    }
    file::write_whole(path, may_pack, write).with_context(|| {
        format!(
            "{}: cannot be written; name another file with --output",
            path.display()
        )
    })
}

/// Prints what is in the file, and what is missing (E2).
fn say_what(args: &ExportArgs, source: Source<'_>) {
    let report = source.report;
    let moment = match (args.format.is_of_run(), source.instant()) {
        (false, Some(instant)) => format!(
            "; {} in {} in use as of {}",
            units::bytes(instant.live_requested_bytes),
            units::plural(instant.live_blocks, "block"),
            instant.label
        ),
        _ => String::new(),
    };
    say!(
        "skinflint: {}: {}, {} allocated in {}{moment}",
        args.output.display(),
        units::plural(report.sites.len() as u64, "stack"),
        units::bytes(report.totals.requested_bytes),
        units::plural(report.totals.allocations, "block"),
    );
    if !report.completeness.complete {
        for note in &report.completeness.notes {
            say!("skinflint: {}: {note}", args.trace.display());
        }
    }
    if report
        .sites
        .iter()
        .any(|site| site.allocations == 0 && site.live_blocks + site.end_blocks > 0)
        && args.format.is_of_run()
    {
        say!(
            "skinflint: {}: blocks inherited over a fork are not in the events of a {} file",
            args.trace.display(),
            args.format.name()
        );
    }
}
