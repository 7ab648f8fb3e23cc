//! `skinflint compare`: which allocator serves a program, or a trace, best?
//!
//! ```text
//!   options ─► allocators found ─► compare::compare ─► table (stdout), --json, --csv, --html
//!                                        └─► progress (stderr)
//! ```
//!
//! P1  Errors of the command line are reported before anything runs, and so are files that cannot be written.
//! P2  Ctrl-C ends the run under way; what was measured until then is still shown. Only a second one, half a second
//!     later or more, ends us at once.
//! P3  Exit status: 0 if anything was measured, 1 if nothing was or a trace cannot be read, 2 for wrong use, 130 if
//!     interrupted.
//!
//! Not here: everything that measures (crate `compare`).

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use indicatif::{ProgressBar, ProgressStyle};
use skinflint_compare::chosen::{self, Chosen};
use skinflint_compare::folder::Folder;
use skinflint_compare::model::{Comparison, Settings, Verdict};
use skinflint_compare::peers::SearchPaths;
use skinflint_compare::rounds::{News, Subject};
use skinflint_compare::{Request, csv, interrupts, json, report_page, subjects, table};
use skinflint_launch::{installed, preflight};
use skinflint_view::units;

use crate::{analyse, what_if};

pub const HELP: &str = "\
Examples:
  skinflint compare -- ./app --input big.json
  skinflint compare --with glibc,skinflint,jemalloc --runs 10 --html app.html -- ./app
  skinflint compare app.sft                      # a trace of skinflint record: no program needed
  skinflint compare --paced 1 --idle 5 a.sft b.sft
  skinflint compare --idle 3 -- sh load.sh       # a server is ended when it has been idle for 3 s

Allocators by name: glibc, skinflint, jemalloc, mimalloc (mimalloc2, mimalloc3), tcmalloc,
gperftools, snmalloc, rpmalloc; own is what the program is linked with; or a path. `cargo xtask
peers` builds them from their authors' sources. docs/compare.md says what each figure means.";

#[derive(ClapArgs, Clone, Debug)]
pub struct CompareArgs {
    /// Traces to replay
    #[arg(value_name = "TRACE")]
    pub traces: Vec<PathBuf>,

    /// Allocators, with commas: names or paths [default: all that are found]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub with: Vec<String>,

    /// The allocator that ratios refer to
    #[arg(long = "ref", value_name = "NAME", default_value = "glibc")]
    pub reference: String,

    /// Rounds; in each, every allocator runs once. Below 5 nothing is called distinct
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,

    /// Limit of one run [default: ten times the reference's time, at least 60]
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<f64>,

    /// End a program that has had no work for this long; a replay waits this long at its end
    #[arg(long, value_name = "SECONDS")]
    pub idle: Option<f64>,

    /// Replay in recorded time, SPEED times as fast (1: as recorded), so that allocators purge while idle
    #[arg(long, value_name = "SPEED")]
    pub paced: Option<f64>,

    /// File for the program's stdin [default: nothing]
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,

    /// Do not compare what the program writes to stdout
    #[arg(long)]
    pub ignore_output: bool,

    /// Print everything as JSON, or write it to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub json: Option<PathBuf>,

    /// Write each run's figures as CSV; - is stdout
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Write one self-contained page, with memory over time
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Simulate other layouts of the traces' blocks instead, without running anything: the same as
    /// `skinflint what-if`, which has more options
    #[arg(long, conflicts_with_all = ["with", "timeout", "idle", "paced", "csv", "html", "command"])]
    pub what_if: bool,

    /// Seed of the intervals' random draws
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Show no progress
    #[arg(short, long)]
    pub quiet: bool,

    /// The program and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Understands `--json FILE`, as it was written before `--json` meant the same in all commands: FILE is then among the
/// traces, and is none by its name.
fn with_old_json(mut args: CompareArgs) -> CompareArgs {
    let is_file = |path: &PathBuf| {
        path.as_os_str() == "-" || path.extension().is_some_and(|end| end == "json")
    };
    if args
        .json
        .as_ref()
        .is_some_and(|path| path.as_os_str() == "-")
        && let Some(at) = args.traces.iter().position(is_file)
    {
        args.json = Some(args.traces.remove(at));
    }
    args
}

/// Milliseconds between two looks at a program's memory.
const INTERVAL_MS: u64 = 10;

/// Compares the allocators and shows the result.
///
/// # Errors
/// Whatever keeps the comparison from being made.
pub fn compare(args: &CompareArgs) -> Result<u8> {
    let args = &with_old_json(args.clone());
    check(args)?;
    if args.what_if {
        return what_if::instead(&args.traces, args.json.as_deref());
    }
    let Chosen {
        allocators,
        missing,
        reference,
    } = chosen::choose(&args.with, &args.reference, &SearchPaths::installed())?;
    let settings = Settings {
        runs: args.runs,
        reference,
        timeout_s: args.timeout,
        idle_s: args.idle,
        paced: args.paced,
        interval_ms: INTERVAL_MS,
        seed: args.seed,
    };
    let probe = installed::probe()?;
    let folder = Folder::new()?;
    interrupts::install_handlers();
    let subjects = subjects(args, folder.path())?;
    let mut progress = Progress::new(&subjects, allocators.len(), args);
    let request = Request {
        subjects,
        allocators,
        missing,
        settings,
        probe,
        folder: folder.path().to_owned(),
        compare_output: !args.ignore_output,
        command: std::env::args_os()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
    };
    let comparison = skinflint_compare::compare(request, &mut |news| progress.tell(&news))?;
    progress.finish();
    show(args, &comparison)?;
    Ok(exit_code(&comparison))
}

/// Refuses options that do not go together (P1).
fn check(args: &CompareArgs) -> Result<()> {
    match (args.traces.is_empty(), args.command.is_empty()) {
        (true, true) => bail!(
            "nothing to compare: give traces, as in: skinflint compare app.sft, or a program after --, as in: skinflint \
             compare -- ./app"
        ),
        (false, false) => {
            bail!("traces and a program in one comparison: compare the one, then the other")
        }
        (false, true) if args.input.is_some() => {
            bail!("--input is for programs: a trace holds what its program did with its input")
        }
        (false, true) if args.ignore_output => {
            bail!("--ignore-output is for programs: a replay has no output")
        }
        (true, false) if args.paced.is_some() => {
            bail!("--paced is for traces: a program runs at its own pace")
        }
        _ => {}
    }
    for trace in &args.traces {
        preflight::refuse_program(trace, "compare")?;
    }
    for (option, seconds) in [("--timeout", args.timeout), ("--idle", args.idle)] {
        if let Some(seconds) = seconds
            && !(seconds > 0.0 && seconds <= 1e6)
        {
            bail!("{option} {seconds}: give seconds above 0, at most 1000000");
        }
    }
    if let Some(seconds) = args.idle
        && seconds < 0.1
        && !args.command.is_empty()
    {
        bail!(
            "--idle {seconds}: give 0.1 or more, since the kernel counts CPU time in steps of 10 ms"
        );
    }
    if let Some(factor) = args.paced
        && !(0.001..=1e6).contains(&factor)
    {
        bail!(
            "--paced {factor}: give 1 for recorded time, 2 for twice as fast; from 0.001 to 1000000"
        );
    }
    if let Some(input) = &args.input {
        fs::File::open(input).with_context(|| format!("--input {}", input.display()))?;
    }
    if args.with.iter().any(String::is_empty) {
        bail!("--with: a name is empty; give names with one comma between, as in: glibc,skinflint")
    }
    let files = || [&args.json, &args.csv, &args.html].into_iter().flatten();
    if files().filter(|path| path.as_os_str() == "-").count() > 1 {
        bail!("stdout (-) can take one of --json, --csv and --html: name files for the others")
    }
    for path in files().filter(|path| path.as_os_str() != "-") {
        writable(path)?;
    }
    Ok(())
}

/// Checks that a file can be written, before an hour of measuring.
fn writable(path: &Path) -> Result<()> {
    fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .with_context(|| format!("{}: cannot be written", path.display()))?;
    Ok(())
}

fn subjects(args: &CompareArgs, folder: &Path) -> Result<Vec<Subject>> {
    if !args.command.is_empty() {
        let input = args.input.as_deref();
        return Ok(vec![subjects::of_program(&args.command, input)?]);
    }
    subjects::of_traces(&analyse::one_each(&args.traces)?, folder, &mut |trace| {
        if !args.quiet {
            say!("skinflint: {}: compiling", trace.display());
        }
    })
}

fn show(args: &CompareArgs, comparison: &Comparison) -> Result<()> {
    let stdout_taken = [&args.json, &args.csv, &args.html]
        .into_iter()
        .flatten()
        .any(|path| path.as_os_str() == "-");
    if let Some(path) = &args.json {
        put(path, &json::render(comparison)?)?;
    }
    if let Some(path) = &args.csv {
        put(path, &csv::render(comparison))?;
    }
    if let Some(path) = &args.html {
        put(path, &report_page::render(comparison))?;
    }
    let text = table::render(comparison, width(stdout_taken));
    if stdout_taken {
        // A closed stderr is no reason to fail.
        let _ = io::stderr().write_all(text.as_bytes());
    } else {
        io::stdout().write_all(text.as_bytes())?;
    }
    if let Some(path) = args.html.as_ref().filter(|path| path.as_os_str() != "-")
        && !args.quiet
    {
        say!("skinflint: the same as a page: {}", path.display());
    }
    Ok(())
}

/// Writes a file, or stdout for `-`.
fn put(path: &Path, text: &str) -> Result<()> {
    if path.as_os_str() == "-" {
        io::stdout().write_all(text.as_bytes())?;
        return Ok(());
    }
    fs::write(path, text).with_context(|| format!("{}: cannot be written", path.display()))
}

fn width(on_stderr: bool) -> usize {
    const DEFAULT: usize = 120;
    const LEAST: usize = 60;
    let columns = std::env::var("COLUMNS").ok();
    let columns = columns.and_then(|text| text.parse().ok());
    let size = match on_stderr {
        true => terminal_size::terminal_size_of(io::stderr()),
        false => terminal_size::terminal_size_of(io::stdout()),
    };
    let seen = size.map(|(width, _)| usize::from(width.0));
    columns.or(seen).unwrap_or(DEFAULT).max(LEAST)
}

fn exit_code(comparison: &Comparison) -> u8 {
    if comparison.interrupted {
        return 130;
    }
    let mut columns = comparison.programs.iter().flat_map(|p| &p.columns);
    u8::from(!columns.any(|column| column.verdict == Verdict::Measured))
}

/// Shows progress on stderr: a bar on a terminal, a line for each round elsewhere.
struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    last: (String, u32),
}

impl Progress {
    fn new(subjects: &[Subject], allocators: usize, args: &CompareArgs) -> Progress {
        let steps = subjects.len() * allocators * (args.runs as usize + 1);
        if !args.quiet {
            let plural = |count: usize, one| units::plural(count as u64, one);
            say!(
                "skinflint: {} to come: a check round and {} of {} under {}",
                plural(steps, "run"),
                plural(args.runs as usize, "round"),
                plural(subjects.len(), "program"),
                plural(allocators, "allocator"),
            );
        }
        let bar = (io::stderr().is_terminal() && !args.quiet).then(|| {
            let bar = ProgressBar::new(steps as u64);
            let style =
                ProgressStyle::with_template("{bar:30} {elapsed} of about {duration}  {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        Progress {
            bar,
            quiet: args.quiet,
            last: (String::new(), 0),
        }
    }

    fn tell(&mut self, news: &News<'_>) {
        let round = match news.round {
            0 => "check round".to_owned(),
            n => format!("round {n} of {}", news.rounds),
        };
        if let Some(bar) = &self.bar {
            bar.inc(1);
            bar.set_message(format!("{}: {round}: {}", news.subject, news.allocator));
            return;
        }
        let now = (news.subject.to_owned(), news.round + 1);
        if !self.quiet && now != self.last {
            say!("skinflint: {}: {round}", news.subject);
            self.last = now;
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
