//! `skinflint check`: memory as a test.
//!
//! ```text
//!   CMD ─► recorded ─┐
//!   TRACE ───────────┴─► report as of the end ─┐
//!   --baseline ─► report ──────────────────────┼─► check ─► text, Markdown, GitHub, SARIF, JUnit, history ─► 0, 3, 4
//!   options, --budgets FILE ─► budgets ────────┘
//! ```
//!
//! C1  What is wrong with budgets is told before the program is started.
//! C2  A program that failed is not held, whatever its memory: 1, if no budget broke.
//! C3  A program whose trace could not be written is not decided, and no wrong use: 4.
//!
//! Not here: verdicts (`check`).

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args as ClapArgs;
use skinflint_check::{Budget, Checked, Kind, Subject, Verdict, file, history};
use skinflint_launch::preflight;
use skinflint_recording::{Analysed, More};
use skinflint_sessions::Outcome;

use crate::options::{NameOptions, PartOptions, RecordOptions, Which};
use crate::{analyse, dropped, recorded};

pub const HELP: &str = "\
Examples:
  skinflint check --peak-live 64MiB --allocations 2M -- ./app input.json
  skinflint check --budgets memory.toml -- python3 test_service.py
  skinflint check --baseline main.sft --peak-live +5% --live-at-end +0 new.sft
  skinflint check --growth-per request=4KiB --stack 'load_*=8MiB' app.sft
  skinflint check --phase 'load *:growth=0' -- ./app
  skinflint check --marked-budgets -- ./gtests
  skinflint check --history memory.jsonl --label 1a2b3c app.sft
  skinflint check --show-history memory.jsonl --html memory.html

A limit is a number (64MiB, 20k) or, with --baseline, a difference (+5%, -10%, +2MiB). docs/check.md
has the figures' definitions and the form of a file of budgets.

Exit status: 0 every budget is held; 3 one is broken; 4 none is broken and one is not decided (the
limit lies within the error of a reading, or the recording is INCOMPLETE or could not be written);
1 no budget is broken and the program failed;
2 wrong use, or the recording could not begin.";

#[derive(ClapArgs, Debug)]
pub struct CheckArgs {
    /// The recording to judge, if no program is run
    #[arg(value_name = "TRACE")]
    pub trace: Option<PathBuf>,

    #[command(flatten)]
    pub limits: Limits,

    /// File of budgets (TOML); options on the command line go before it
    #[arg(long, value_name = "FILE")]
    pub budgets: Option<PathBuf>,

    /// Take budgets from marks of the program, too: "NAME budget FIGURE=LIMIT" (gtest: skinflint_gtest.h)
    #[arg(long)]
    pub marked_budgets: bool,

    /// The recording that +5%, -10% and +2MiB are of
    #[arg(long, value_name = "TRACE")]
    pub baseline: Option<PathBuf>,

    /// Keep the recording of the program in this file [default: it is removed]
    #[arg(short, long, value_name = "FILE", requires = "command")]
    pub output: Option<PathBuf>,

    /// Judge the process of this name, and not the program itself
    #[arg(long, value_name = "NAME", requires = "command")]
    pub process: Option<String>,

    /// Print the verdict as Markdown, or write it to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub markdown: Option<PathBuf>,

    /// Print annotations for GitHub Actions
    #[arg(long, conflicts_with = "json")]
    pub github: bool,

    /// Print the verdict as JSON
    #[arg(long)]
    pub json: bool,

    /// Write the verdict as SARIF 2.1.0, for code scanning
    #[arg(long, value_name = "FILE")]
    pub sarif: Option<PathBuf>,

    /// Write the verdict as JUnit XML, for CI servers
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,

    /// Append the figures to this history (JSON lines)
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,

    /// What the build is called in the history: a commit, a version
    #[arg(long, value_name = "TEXT", requires = "history", default_value = "")]
    pub label: String,

    /// Draw a history and name its steps, and do nothing else
    #[arg(long, value_name = "FILE", conflicts_with_all = ["trace", "command", "history"])]
    pub show_history: Option<PathBuf>,

    /// Draw the history as one self-contained page, too
    #[arg(long, value_name = "FILE", requires = "show_history")]
    pub html: Option<PathBuf>,

    #[command(flatten)]
    pub names: NameOptions,

    /// The program to run and judge, and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(ClapArgs, Debug)]
pub struct Limits {
    /// Bytes of live blocks when they were most
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    pub peak_live: Option<String>,

    /// Live blocks then
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    pub peak_blocks: Option<String>,

    /// Slop then: bytes given beyond those asked for
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    pub peak_slop: Option<String>,

    /// Largest resident memory, which is known to the error of its reading
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    pub peak_rss: Option<String>,

    /// Bytes of blocks that live at the end
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    pub live_at_end: Option<String>,

    /// Blocks that live at the end
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    pub blocks_at_end: Option<String>,

    /// Slop at the end
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    pub slop_at_end: Option<String>,

    /// Free bytes that live blocks keep resident at the end
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    pub pinned_at_end: Option<String>,

    /// Blocks acquired over the run
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    pub allocations: Option<String>,

    /// Bytes that the program's calls of read took, from files, pipes and terminals
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    pub bytes_read: Option<String>,

    /// Bytes that it gave to calls of write
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    pub bytes_written: Option<String>,

    /// Live bytes, when all live bytes were most, of stacks with a function that contains PATTERN (with a *: that is of
    /// its form); may be given several times
    #[arg(long, value_name = "PATTERN=BYTES")]
    pub stack: Vec<String>,

    /// Live bytes that each interval between two marks MARK adds, the first left out; may be given several times
    #[arg(long, value_name = "MARK[=BYTES]")]
    pub growth_per: Vec<String>,

    /// Growth, peak-live or allocations between the marks "NAME begin" and "NAME end"; may be given several times, NAME
    /// may have a *
    #[arg(long, value_name = "NAME:FIGURE=LIMIT")]
    pub phase: Vec<String>,
}

impl Limits {
    /// Returns the budgets of the command line.
    pub fn budgets(&self) -> Result<Vec<Budget>, String> {
        let plain = [
            (Kind::PeakLive, &self.peak_live),
            (Kind::PeakBlocks, &self.peak_blocks),
            (Kind::PeakSlop, &self.peak_slop),
            (Kind::PeakRss, &self.peak_rss),
            (Kind::LiveAtEnd, &self.live_at_end),
            (Kind::BlocksAtEnd, &self.blocks_at_end),
            (Kind::SlopAtEnd, &self.slop_at_end),
            (Kind::PinnedAtEnd, &self.pinned_at_end),
            (Kind::Allocations, &self.allocations),
            (Kind::BytesRead, &self.bytes_read),
            (Kind::BytesWritten, &self.bytes_written),
        ];
        let given = plain
            .into_iter()
            .filter_map(|(kind, limit)| Some((kind, limit.as_ref()?)));
        given
            .map(|(kind, limit)| Budget::plain(kind, limit))
            .chain(self.stack.iter().map(|text| Budget::stack(text)))
            .chain(self.growth_per.iter().map(|text| Budget::growth(text)))
            .chain(self.phase.iter().map(|text| Budget::phase(text)))
            .collect()
    }
}

/// Does what was asked. Returns the exit status.
///
/// # Errors
/// Whatever keeps it from being done.
pub fn check(args: &CheckArgs) -> Result<u8> {
    if let Some(path) = &args.show_history {
        return show_history(path, args.html.as_deref());
    }
    let (mut budgets, baseline) = asked(args)?;
    let is_with_windows = args.marked_budgets || budgets.iter().any(is_of_marks);
    let before = baseline.as_ref().map(|path| {
        let analysed = analysed(path, &args.names, is_with_windows);
        analysed.map_err(|error| anyhow!("--baseline {}: {error:#}", path.display()))
    });
    let before = before.transpose()?;
    let before = before.as_ref().zip(baseline.as_ref());
    let baseline_name = baseline
        .as_ref()
        .map_or(String::new(), |path| path.display().to_string());
    let before = before.map(|(analysed, _)| Subject {
        report: &analysed.report,
        trace: &baseline_name,
    });
    let run = match &args.trace {
        Some(trace) => Run::of(trace),
        None => match Run::record(args)? {
            Ok(run) => run,
            Err(status) => return Ok(status),
        },
    };
    let after = match analysed(&run.trace, &args.names, is_with_windows) {
        Ok(after) => after,
        // The arguments are right: what is missing is the evidence (C3).
        Err(error) if run.is_fresh => {
            say!("skinflint: nothing is decided: {error:#}");
            return Ok(undecided(run.failed.as_deref()));
        }
        // Whatever is wrong with it, another file is to be named: 2.
        Err(error) => return Err(anyhow!("{error:#}")),
    };
    if args.marked_budgets {
        let mut marked =
            skinflint_check::phase::marked(&after.report).map_err(|why| anyhow!(why))?;
        marked.retain(|one| budgets.iter().all(|own| own.kind != one.kind));
        budgets.extend(marked);
        if budgets.is_empty() {
            say!(
                "skinflint: nothing is decided: no mark of the program is a budget (NAME budget FIGURE=LIMIT)"
            );
            return Ok(undecided(run.failed.as_deref()));
        }
        with_baseline(&budgets, baseline.as_deref())?;
    }
    let subject = Subject {
        report: &after.report,
        trace: &run.name,
    };
    let mut checked = skinflint_check::check(subject, before, &budgets);
    checked.failed.clone_from(&run.failed);
    written(args, &checked, &run)?;
    for hint in after.hints.iter().take(1) {
        say!("Names: {hint}");
    }
    Ok(match checked.verdict {
        Some(Verdict::Broken) => 3,
        _ if run.failed.is_some() => 1,
        Some(Verdict::Undecided) => 4,
        // Without a budget there are figures, and nothing to be decided.
        Some(Verdict::Held) | None => 0,
    })
}

/// Reports whether a budget's stacks are those between marks, which windows have.
pub fn is_of_marks(budget: &Budget) -> bool {
    matches!(budget.kind, Kind::GrowthPer(_) | Kind::Phase(..))
}

/// Returns the exit status of a program that ran and of which there is nothing to judge (C3).
fn undecided(failed: Option<&str>) -> u8 {
    match failed {
        Some(failed) => {
            say!("skinflint: {failed}");
            1
        }
        None => 4,
    }
}

/// Returns the budgets and the baseline that were asked for (C1).
fn asked(args: &CheckArgs) -> Result<(Vec<Budget>, Option<PathBuf>)> {
    match (&args.trace, args.command.is_empty()) {
        (Some(trace), false) => bail!(
            "{} and a program after --: give one of them, a recording that exists or a program to run",
            trace.display()
        ),
        (Some(trace), true) => preflight::refuse_program(trace, "check --peak-live 64MiB")?,
        (None, true) => bail!(
            "nothing to judge: name a recording (app.sft), or a program after -- (skinflint check --peak-live 64MiB -- \
             ./app)"
        ),
        (None, false) => {}
    }
    let own = args.limits.budgets().map_err(|why| anyhow!(why))?;
    let file = match &args.budgets {
        None => file::File::default(),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("--budgets {}: it cannot be read", path.display()))?;
            file::read(&text, path).map_err(|why| anyhow!("--budgets {why}"))?
        }
    };
    let mut budgets = file.budgets;
    budgets.retain(|one| own.iter().all(|own| own.kind != one.kind));
    budgets.extend(own);
    if budgets.is_empty() && args.history.is_none() && !args.marked_budgets {
        bail!(
            "no budget: give one such as --peak-live 64MiB or --allocations 20k, or a file of them with --budgets"
        );
    }
    let baseline = args.baseline.clone().or(file.baseline);
    with_baseline(&budgets, baseline.as_deref())?;
    Ok((budgets, baseline))
}

/// Fails if a limit is of a baseline and there is none.
fn with_baseline(budgets: &[Budget], baseline: Option<&Path>) -> Result<()> {
    if let Some(relative) = budgets.iter().find(|one| one.limit.is_relative())
        && baseline.is_none()
    {
        bail!(
            "{}: {} is of a baseline: add --baseline OLD.sft, or give a limit by itself",
            relative.said_by,
            relative.limit.shown(relative.kind.is_bytes())
        );
    }
    Ok(())
}

/// Analyses a trace as of its end.
pub fn analysed(path: &Path, names: &NameOptions, windows: bool) -> Result<Analysed> {
    let more = More {
        windows,
        all_pins: true,
        all_marks: windows,
        ..More::default()
    };
    analyse::analyse_with(&analyse::open(path)?, &names.at("end"), more)
}

/// A recording, and how its program ended.
struct Run {
    trace: PathBuf,
    /// What it is called in outputs.
    name: String,
    /// Whether a program was run for it: its stdout is its own.
    is_fresh: bool,
    /// Why the program itself failed.
    failed: Option<String>,
    /// Removed at the end.
    _folder: Option<Folder>,
}

impl Run {
    fn of(trace: &Path) -> Run {
        Run {
            trace: trace.to_owned(),
            name: trace.display().to_string(),
            is_fresh: false,
            failed: None,
            _folder: None,
        }
    }

    /// Records the program; if nothing of it could be written, the exit status is the error.
    fn record(args: &CheckArgs) -> Result<Result<Run, u8>> {
        let folder = match args.output {
            Some(_) => None,
            None => Some(Folder::new()?),
        };
        let options = RecordOptions {
            output: args.output.clone(),
            dir: folder.as_ref().map(|folder| folder.0.clone()),
            all: false,
            preload: Vec::new(),
            mark_signal: None,
            paused: false,
            dark_matter: None,
            reachable: false,
            python_objects: false,
            pprof: None,
            part: PartOptions::default(),
            level: 1,
            quiet: true,
            command: args.command.clone(),
        };
        let (outcome, _) = recorded::record(&options, "end", Which::Both)?;
        recorded::complain(&outcome, &options, recorded::FOR_CHECK);
        let command = args.command[0].to_string_lossy();
        // A full disk is no failure of the program's.
        let failed = match outcome.own_code() {
            0 => None,
            code => Some(format!(
                "{command} failed (status {code}): a program that fails is not held to have kept its budgets"
            )),
        };
        let mut own = outcome.unwritten();
        if own.any(|one| one.process.pid == outcome.pid && one.is_unmade()) {
            say!("skinflint: nothing is decided: there is no recording of the program");
            return Ok(Err(undecided(failed.as_deref())));
        }
        let trace = chosen(&outcome, args.process.as_deref())?;
        if args.output.is_some() {
            dropped::drop_small(&outcome, dropped::open(&outcome), &options, &[&trace]);
        }
        Ok(Ok(Run {
            trace,
            name: match &args.output {
                Some(path) => path.display().to_string(),
                None => command.into_owned(),
            },
            is_fresh: true,
            failed,
            _folder: folder,
        }))
    }
}

/// Returns the trace to judge: of the program itself, or of the one process of a name. Never the largest, which may be
/// another one the next time.
fn chosen(outcome: &Outcome, name: Option<&str>) -> Result<PathBuf> {
    let mut all = outcome.recorded.iter().filter(|one| !one.is_unmade());
    let Some(name) = name else {
        // Of the programs that it was, one after another (`exec`), the last.
        let own = all.rfind(|one| one.process.pid == outcome.pid);
        return Ok(own
            .context("there is no recording of the program: nothing can be judged")?
            .path
            .clone());
    };
    let found: Vec<_> = all.clone().filter(|one| one.process.name == name).collect();
    match &found[..] {
        [one] => Ok(one.path.clone()),
        [] => {
            let mut names: Vec<&str> = all.map(|one| &one.process.name[..]).collect();
            names.sort_unstable();
            names.dedup();
            bail!(
                "--process {name}: no recorded process has this name; there were {}",
                names.join(", ")
            )
        }
        several => bail!(
            "--process {name}: {} processes had this name; record them with `skinflint record --dir FOLDER` and check \
             the trace of one",
            several.len()
        ),
    }
}

/// A folder of our own for a recording that is not kept.
pub struct Folder(pub PathBuf);

impl Folder {
    /// Makes it, for its owner alone.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new() -> Result<Folder> {
        let pid = std::process::id();
        let mut tried = 0;
        loop {
            let path = std::env::temp_dir().join(format!("skinflint-check-{pid}-{tried}"));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Folder(path)),
                // Left by a process of this id that was killed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tried < 100 => {
                    tried += 1;
                }
                Err(error) => {
                    return Err(error).with_context(|| {
                        format!(
                            "{}: no folder for the recording; {}",
                            path.display(),
                            recorded::FOR_CHECK
                        )
                    });
                }
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Prints the verdict and writes the files that were asked for.
fn written(args: &CheckArgs, checked: &Checked, run: &Run) -> Result<()> {
    let put = |option: &str, path: &Path, text: String| {
        std::fs::write(path, text).with_context(|| {
            format!(
                "--{option} {}: it cannot be written; name another file",
                path.display()
            )
        })
    };
    if let Some(path) = &args.sarif {
        put("sarif", path, skinflint_check::sarif(checked))?;
    }
    if let Some(path) = &args.junit {
        put("junit", path, skinflint_check::junit(checked))?;
    }
    let to_screen = args.markdown.as_deref() == Some(Path::new("-"));
    if let Some(path) = args.markdown.as_deref().filter(|_| !to_screen) {
        put("markdown", path, skinflint_check::markdown(checked))?;
    }
    if let Some(path) = &args.history {
        let entry = history::Entry::of(checked, &args.label);
        history::append(path, &entry).with_context(|| {
            format!(
                "--history {}: no line could be appended; name another file",
                path.display()
            )
        })?;
    }
    let mut text = String::new();
    if args.json {
        text = serde_json::to_string_pretty(checked)? + "\n";
    } else {
        if args.github {
            text += &skinflint_check::github(checked);
        }
        if to_screen {
            text += &skinflint_check::markdown(checked);
        }
        if text.is_empty() {
            text = skinflint_check::text(checked);
        }
    }
    // The program's stdout is its own.
    if run.is_fresh {
        io::stderr().lock().write_all(text.as_bytes())?;
    } else {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
    }
    Ok(())
}

/// Draws a history.
fn show_history(path: &Path, html: Option<&Path>) -> Result<u8> {
    let text = std::fs::read_to_string(path).with_context(|| {
        format!(
            "--show-history {}: it cannot be read; name a file that --history wrote",
            path.display()
        )
    })?;
    let (entries, unread) = history::read(&text);
    if entries.is_empty() {
        bail!(
            "--show-history {}: no line of a history is in it ({unread} could not be read); name a file that --history \
             wrote",
            path.display()
        );
    }
    if let Some(page) = html {
        std::fs::write(page, skinflint_check::trend_page(&entries, unread))
            .with_context(|| format!("--html {}", page.display()))?;
    }
    let columns = std::env::var("COLUMNS").ok();
    let columns = columns.and_then(|text| text.parse().ok());
    let seen = terminal_size::terminal_size_of(io::stdout()).map(|(wide, _)| usize::from(wide.0));
    let width = columns.or(seen).unwrap_or(100);
    let text = skinflint_check::trend(&entries, unread, width);
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(0)
}
