//! `skinflint fit`: traces in, a profile for the allocator out; and `--show`, which prints one.
//!
//! ```text
//!   TRACE… ─► analysis::fit (twice over the events) ─► sizes::fit::encode ─► app.fit
//!                                                 └──► stderr, or --json on stdout
//! ```
//!
//! F1  The file is whole or does not exist: it is written beside its place and then renamed.
//! F2  What is written has first been read back by the allocator's own reader (`encode` does it).
//! F3  Every error names the file and the next step. A profile that cannot be read is status 1, wrong
//!     use is 2.
//!
//! Not here: what is learned and how (`analysis::fit`), the bytes (`sizes::fit`, FIT.md).

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use skinflint_analysis::fit::{Earned, Outcome, Slop, Span, Survey, Trial};
use skinflint_analysis::ledger::Counts;
use skinflint_analysis::pass::{Act, Context};
use skinflint_recording::Recording;
use skinflint_sizes::fit::{
    self, BUILD_ID_BYTES_MAX, FILE_BYTES_MAX, FLAG_INCOMPLETE, FLAG_SHORT, PROGRAM_BYTES_MAX,
    Profile, SPARE_PAGES_MAX,
};
use skinflint_sizes::spans::{PAGE_BYTES, base_class};
use skinflint_trace::{Damage, Event};
use skinflint_view::units::{bytes, count, duration, percent, plural};

use crate::analyse;
use crate::args::FitArgs;
use crate::commands::{of_inherited, what_is_missing};

/// With fewer acquisitions than this a program has only started: its classes say little.
const SHORT_ACQUISITIONS: u64 = 1000;
/// A shorter run never has 2 s before and 2 s after a moment, which the retained spare needs.
const SHORT_NS: u64 = 4_000_000_000;
/// The number of earned classes that are printed; `--json` has all.
const SHOWN: usize = 12;

/// Something in a file keeps it from being used (F3).
#[derive(Debug)]
pub struct Unfit(String);

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unfit {}

/// Does what was asked. Returns the exit status.
///
/// # Errors
/// Whatever keeps it from being done.
pub fn fit(args: &FitArgs) -> Result<u8> {
    match (&args.show, &args.output) {
        (Some(profile), _) => show(profile, args.json),
        // Many tools take this for stdout; here it would become a file of that name.
        (None, Some(output)) if output.as_os_str() == "-" => {
            bail!("-o -: a profile is a file for later; name one, as in -o app.fit")
        }
        (None, Some(output)) => learn(&args.traces, output, args.json),
        (None, None) => {
            bail!("-o FILE is missing: name the profile to be written, as in -o app.fit")
        }
    }
}

/// One trace and the figures read from it.
struct Source {
    path: PathBuf,
    recording: Recording,
    /// Damage found while its events were read.
    damage: Vec<Damage>,
    counts: Counts,
    outcome: Outcome,
}

impl Source {
    /// Returns the last part of the executable's path; the process's name if the path is not known.
    fn program(&self) -> &str {
        let process = &self.recording.trace.process;
        let exe = process.exe.trim_end_matches(" (deleted)");
        match exe.rsplit('/').next() {
            None | Some("") => &process.name,
            Some(name) => name,
        }
    }

    /// Returns the raw build id of the executable; empty if it is not known.
    fn build_id(&self) -> Vec<u8> {
        let exe = &self.recording.trace.process.exe;
        let mut modules = self.recording.trace.modules.iter();
        let hex = modules
            .find(|module| module.path == *exe)
            .map_or("", |module| module.build_id.as_str());
        let byte = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
        let raw: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(byte).collect();
        raw.filter(|raw| raw.len() <= BUILD_ID_BYTES_MAX)
            .unwrap_or_default()
    }

    fn duration_ns(&self) -> u64 {
        let last = self
            .recording
            .trace
            .rss
            .last()
            .map_or(0, |sample| sample.time_ns);
        self.recording
            .trace
            .ending
            .as_ref()
            .map_or(last, |end| end.time_ns)
    }

    fn missing(&self) -> Vec<String> {
        let mut all = what_is_missing(&self.recording, &self.damage, &self.counts, 0);
        all.extend(of_inherited(&self.recording));
        all
    }
}

/// Everything that goes into the file and onto the screen.
struct Learned {
    sources: Vec<Source>,
    earned: Vec<Earned>,
    spans: Vec<Span>,
    spare_bytes: u64,
    flags: u8,
}

fn learn(traces: &[PathBuf], output: &Path, json: bool) -> Result<u8> {
    let mut sources = open(traces)?;
    let mut survey = Survey::default();
    for source in &mut sources {
        survey.begin_trace();
        source.each_act(|context, act| survey.act(context, act));
    }
    let earned = survey.earned();
    let sizes: Vec<u16> = earned.iter().map(|one| one.size).collect();
    let mut trial = Trial::new(&sizes);
    for source in &mut sources {
        trial.begin_trace();
        source.each_act(|context, act| trial.act(context, act));
        source.outcome = trial.end_trace();
    }
    if let Some(source) = sources.first()
        && sources
            .iter()
            .all(|source| source.outcome.acquisitions == 0)
    {
        let file = source.path.display();
        let text = format!(
            "{file}: nothing was recorded, so there is nothing to learn; `skinflint report {file}` says \
             why that may be"
        );
        return Err(Unfit(text).into());
    }
    let spare_bytes = sources
        .iter()
        .map(|source| source.outcome.spare_bytes)
        .max();
    let mut learned = Learned {
        flags: 0,
        spans: trial.spans(),
        spare_bytes: spare_bytes.unwrap_or(0),
        earned,
        sources,
    };
    learned.flags = learned.judge();
    let file = encode(&learned)?;
    write_whole(output, &file)?;
    if json {
        print_json(&learned.as_json(output))?;
    } else {
        learned.say(output, file.len());
    }
    Ok(0)
}

impl Source {
    /// Reads all acts of the trace in order, and keeps what was damaged.
    fn each_act(&mut self, mut act: impl FnMut(&Context<'_>, &Act)) {
        // What a copy (`fork`) began with has no acts here: its sizes are counted where they were acquired.
        let mut ledger = self.recording.ledger(16);
        let bar = analyse::progress(self.recording.trace.event_count());
        let each = |event: &Event| ledger.apply(event, &mut act);
        self.damage = self.recording.events(each, |events| bar.inc(events));
        self.counts = ledger.counts();
        bar.finish_and_clear();
    }
}

/// Opens all traces: they must be of one program.
fn open(traces: &[PathBuf]) -> Result<Vec<Source>> {
    let mut sources: Vec<Source> = Vec::new();
    for path in traces {
        let source = Source {
            path: path.clone(),
            recording: analyse::open(path)?,
            damage: Vec::new(),
            counts: Counts::default(),
            outcome: Outcome::default(),
        };
        if let Some(first) = sources.first()
            && first.program() != source.program()
        {
            bail!(
                "{} is of {} and {} of {}: a profile is for one program; fit each by itself",
                first.path.display(),
                first.program(),
                path.display(),
                source.program()
            );
        }
        sources.push(source);
    }
    // The newest comes last: the profile has its build id.
    sources.sort_by_key(|source| source.recording.trace.process.started_unix_ns);
    Ok(sources)
}

impl Learned {
    fn acquisitions(&self) -> u64 {
        self.sources
            .iter()
            .map(|one| one.outcome.acquisitions)
            .sum()
    }

    fn events(&self) -> u64 {
        self.sources
            .iter()
            .map(|one| one.recording.trace.event_count())
            .sum()
    }

    fn longest_ns(&self) -> u64 {
        let longest = self.sources.iter().map(Source::duration_ns).max();
        longest.unwrap_or(0)
    }

    fn started(&self, of: fn(&[Source]) -> Option<&Source>) -> u64 {
        of(&self.sources).map_or(0, |one| one.recording.trace.process.started_unix_ns)
    }

    fn judge(&self) -> u8 {
        let incomplete = self.sources.iter().any(|one| !one.missing().is_empty());
        let short = self.acquisitions() < SHORT_ACQUISITIONS || self.longest_ns() < SHORT_NS;
        (u8::from(incomplete) * FLAG_INCOMPLETE) | (u8::from(short) * FLAG_SHORT)
    }

    /// Returns what the reader should know before relying on the profile, one sentence each.
    fn warnings(&self) -> Vec<String> {
        let mut all = Vec::new();
        for source in &self.sources {
            let missing = source.missing().into_iter();
            all.extend(missing.map(|text| format!("{}: {text}", source.path.display())));
        }
        if self.acquisitions() < SHORT_ACQUISITIONS {
            all.push(format!(
                "only {} were recorded: too few to say much; record real work",
                plural(self.acquisitions(), "acquisition")
            ));
        }
        if self.longest_ns() < SHORT_NS {
            all.push(format!(
                "the longest trace lasted {}: the retained spare looks at 2 s before and after each \
                 moment, and means little for a program that usually runs for longer",
                duration(self.longest_ns())
            ));
        }
        all
    }

    fn say(&self, output: &Path, file_bytes: usize) {
        let program = self.sources.first().map_or("", Source::program);
        say!(
            "{}: {} for {}, learned from {} in {}",
            output.display(),
            bytes(file_bytes as u64),
            shown(program),
            plural(self.events(), "event"),
            plural(self.sources.len() as u64, "trace"),
        );
        for source in &self.sources {
            if self.sources.len() > 1 {
                say!("  {}", source.path.display());
            }
            say!("  slop at peak      {}", slop(&source.outcome.at_peak));
            say!("  slop on average   {}", slop(&source.outcome.on_average));
        }
        self.say_earned();
        let spans: Vec<(u16, u8)> = self
            .spans
            .iter()
            .map(|one| (one.class, one.pages))
            .collect();
        say!("  {}", span_line(&spans));
        say!("  {}", spare_line(self.spare_bytes));
        for warning in self.warnings() {
            say!("  warning: {warning}");
        }
        say!(
            "Use it: SKINFLINT_FIT={} skinflint exec -- {}",
            output.display(),
            shown(program)
        );
    }

    fn say_earned(&self) {
        if self.earned.is_empty() {
            say!("  earned classes: none: no size would save 32 KiB by a class of its own");
            return;
        }
        say!("  earned classes: {}", self.earned.len());
        say!("      size   class before   most live   saves at least");
        let mut earned: Vec<&Earned> = self.earned.iter().collect();
        earned.sort_by_key(|one| std::cmp::Reverse(one.saved_bytes));
        for one in earned.iter().take(SHOWN) {
            say!(
                "  {:>8}   {:>12}   {:>9}   {:>14}",
                count(one.size.into()),
                count(one.base.into()),
                count(one.most_live_blocks),
                bytes(one.saved_bytes)
            );
        }
        if earned.len() > SHOWN {
            say!("  … and {} more (--json has all)", earned.len() - SHOWN);
        }
    }
}

/// Formats slop before and after, with its share of what was asked for.
fn slop(slop: &Slop) -> String {
    format!(
        "{} -> {}   ({} -> {} of {} asked for)",
        bytes(slop.slop_before_bytes),
        bytes(slop.slop_after_bytes),
        percent(slop.slop_before_bytes, slop.requested_bytes),
        percent(slop.slop_after_bytes, slop.requested_bytes),
        bytes(slop.requested_bytes)
    )
}

fn span_line(spans: &[(u16, u8)]) -> String {
    let within = |low: u8, high: u8| {
        let inside = spans
            .iter()
            .filter(|(_, pages)| (low..=high).contains(pages));
        inside.count()
    };
    format!(
        "span lengths: {} of 4 KiB, {} of 8 to 16, {} of 20 to 32, {} of 36 to 64 (classes used: {})",
        within(1, 1),
        within(2, 4),
        within(5, 8),
        within(9, 16),
        spans.len()
    )
}

fn spare_line(spare_bytes: u64) -> String {
    format!(
        "retained spare: {} (freed and wanted again within 2 s)",
        bytes(spare_bytes)
    )
}

/// Returns a name without characters that a terminal would obey.
fn shown(name: &str) -> String {
    let plain = |c: char| if c.is_control() { '?' } else { c };
    match name {
        "" => "an unknown program".to_owned(),
        name => name.chars().map(plain).collect(),
    }
}

fn spare_pages(spare_bytes: u64) -> u32 {
    let pages = spare_bytes.div_ceil(u64::from(PAGE_BYTES));
    pages.min(u64::from(SPARE_PAGES_MAX)) as u32
}

fn encode(learned: &Learned) -> Result<Vec<u8>> {
    let earned: Vec<u16> = learned.earned.iter().map(|one| one.size).collect();
    let spans: Vec<(u16, u8)> = learned
        .spans
        .iter()
        .map(|one| (one.class, one.pages))
        .collect();
    let newest = learned.sources.last();
    let build_id = newest.map(Source::build_id).unwrap_or_default();
    let program = newest.map_or("", Source::program);
    let profile = Profile {
        earned: &earned,
        spans: &spans,
        spare_pages: spare_pages(learned.spare_bytes),
        // No program can be started by a name that is longer than a file name may be.
        program: if program.len() <= PROGRAM_BYTES_MAX {
            program
        } else {
            ""
        },
        build_id: &build_id,
        flags: learned.flags,
        traces: learned.sources.len() as u32,
        events: learned.events(),
        first_unix_ns: learned.started(<[Source]>::first),
        last_unix_ns: learned.started(<[Source]>::last),
    };
    let mut file = vec![0; FILE_BYTES_MAX];
    let len = fit::encode(&profile, &mut file)
        .context("the profile does not pass its own reader: please report it with the traces")?;
    file.truncate(len);
    Ok(file)
}

/// Writes a whole file (F1). What is no regular file (a pipe, /dev/stdout) is written to directly.
fn write_whole(path: &Path, file: &[u8]) -> Result<()> {
    let written = match std::fs::metadata(path) {
        Ok(there) if !there.is_file() => std::fs::write(path, file),
        _ => {
            let mut beside = path.as_os_str().to_owned();
            beside.push(format!(".{}.tmp", std::process::id()));
            let done = std::fs::write(&beside, file).and_then(|()| std::fs::rename(&beside, path));
            done.inspect_err(|_| _ = std::fs::remove_file(&beside))
        }
    };
    written.with_context(|| {
        format!(
            "{}: the profile cannot be written; name another file with -o",
            path.display()
        )
    })
}

/// The JSON of a profile: FIT.md describes its fields.
#[derive(Serialize)]
struct Json<'a> {
    output: String,
    program: &'a str,
    build_id: String,
    flags: Vec<&'static str>,
    events: u64,
    first_unix_ns: u64,
    last_unix_ns: u64,
    spare_bytes: u64,
    earned: Vec<JsonEarned>,
    spans: Vec<JsonSpan>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traces: Option<Vec<JsonTrace>>,
}

#[derive(Serialize)]
struct JsonEarned {
    size: u16,
    base: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    most_live_blocks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    saved_bytes: Option<u64>,
}

#[derive(Serialize)]
struct JsonSpan {
    class: u16,
    pages: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    most_live_bytes: Option<u64>,
}

#[derive(Serialize)]
struct JsonTrace {
    file: String,
    events: u64,
    acquisitions: u64,
    duration_ns: u64,
    incomplete: Vec<String>,
    at_peak: JsonSlop,
    on_average: JsonSlop,
}

#[derive(Serialize)]
struct JsonSlop {
    requested_bytes: u64,
    slop_before_bytes: u64,
    slop_after_bytes: u64,
}

impl From<Slop> for JsonSlop {
    fn from(slop: Slop) -> JsonSlop {
        JsonSlop {
            requested_bytes: slop.requested_bytes,
            slop_before_bytes: slop.slop_before_bytes,
            slop_after_bytes: slop.slop_after_bytes,
        }
    }
}

fn flag_names(flags: u8) -> Vec<&'static str> {
    let names = [(FLAG_INCOMPLETE, "incomplete"), (FLAG_SHORT, "short")];
    let set = names.into_iter().filter(|(flag, _)| flags & flag != 0);
    set.map(|(_, name)| name).collect()
}

fn hex(raw: &[u8]) -> String {
    raw.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Learned {
    fn as_json(&self, output: &Path) -> Json<'_> {
        let newest = self.sources.last();
        let trace = |source: &Source| JsonTrace {
            file: source.path.display().to_string(),
            events: source.recording.trace.event_count(),
            acquisitions: source.outcome.acquisitions,
            duration_ns: source.duration_ns(),
            incomplete: source.missing(),
            at_peak: source.outcome.at_peak.into(),
            on_average: source.outcome.on_average.into(),
        };
        let earned = |one: &Earned| JsonEarned {
            size: one.size,
            base: one.base,
            most_live_blocks: Some(one.most_live_blocks),
            saved_bytes: Some(one.saved_bytes),
        };
        let span = |one: &Span| JsonSpan {
            class: one.class,
            pages: one.pages,
            most_live_bytes: Some(one.most_live_bytes),
        };
        Json {
            output: output.display().to_string(),
            program: newest.map_or("", Source::program),
            build_id: hex(&newest.map(Source::build_id).unwrap_or_default()),
            flags: flag_names(self.flags),
            events: self.events(),
            first_unix_ns: self.started(<[Source]>::first),
            last_unix_ns: self.started(<[Source]>::last),
            spare_bytes: u64::from(spare_pages(self.spare_bytes)) * u64::from(PAGE_BYTES),
            earned: self.earned.iter().map(earned).collect(),
            spans: self.spans.iter().map(span).collect(),
            traces: Some(self.sources.iter().map(trace).collect()),
        }
    }
}

fn print_json(json: &Json<'_>) -> Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, json).map_err(io::Error::from)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

fn show(path: &Path, json: bool) -> Result<u8> {
    let file = read_small(path)?;
    let view = fit::parse(&file).map_err(|error| {
        let next = match error {
            fit::FitError::NotAProfile => "give a file that `skinflint fit TRACE -o FILE` wrote",
            _ => "write it again with `skinflint fit TRACE -o FILE`",
        };
        Unfit(format!("{}: {error}; {next}", path.display()))
    })?;
    let earned: Vec<u16> = view.earned().collect();
    let spans: Vec<(u16, u8)> = view.spans().collect();
    let spare_bytes = u64::from(view.spare_pages()) * u64::from(PAGE_BYTES);
    let base = |size: u16| base_class(size.into()) as u16;
    if json {
        let earned = earned.iter().map(|size| JsonEarned {
            size: *size,
            base: base(*size),
            most_live_blocks: None,
            saved_bytes: None,
        });
        let spans = spans.iter().map(|(class, pages)| JsonSpan {
            class: *class,
            pages: *pages,
            most_live_bytes: None,
        });
        print_json(&Json {
            output: path.display().to_string(),
            program: view.program(),
            build_id: hex(view.build_id()),
            flags: flag_names(view.flags()),
            events: view.events(),
            first_unix_ns: view.first_unix_ns(),
            last_unix_ns: view.last_unix_ns(),
            spare_bytes,
            earned: earned.collect(),
            spans: spans.collect(),
            traces: None,
        })?;
        return Ok(0);
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{}: {}", path.display(), bytes(file.len() as u64))?;
    writeln!(out, "  program: {}", shown(view.program()))?;
    if !view.build_id().is_empty() {
        writeln!(out, "  build id: {}", hex(view.build_id()))?;
    }
    let traces = plural(view.traces().into(), "trace");
    writeln!(
        out,
        "  learned from {} in {traces}",
        plural(view.events(), "event")
    )?;
    for flag in flag_names(view.flags()) {
        writeln!(out, "  warning: what it was learned from was {flag}")?;
    }
    writeln!(out, "  earned classes: {}", earned.len())?;
    for size in &earned {
        writeln!(
            out,
            "  {:>8} instead of {:>6}",
            count((*size).into()),
            count(base(*size).into())
        )?;
    }
    writeln!(out, "  {}", span_line(&spans))?;
    for (class, pages) in &spans {
        let span = u64::from(*pages) * u64::from(PAGE_BYTES);
        writeln!(
            out,
            "  {:>8} in spans of {:>9}",
            count((*class).into()),
            bytes(span)
        )?;
    }
    writeln!(out, "  {}", spare_line(spare_bytes))?;
    out.flush()?;
    Ok(0)
}

/// Reads a file that cannot be longer than a profile; one more byte shows that it is.
fn read_small(path: &Path) -> Result<Vec<u8>> {
    use std::io::Read;
    let next = "check the name, and that you may read it";
    let refused =
        |error: io::Error| Unfit(format!("cannot read {}: {error}; {next}", path.display()));
    let file = std::fs::File::open(path).map_err(refused)?;
    let mut read = Vec::new();
    let limit = FILE_BYTES_MAX as u64 + 1;
    file.take(limit).read_to_end(&mut read).map_err(refused)?;
    Ok(read)
}
