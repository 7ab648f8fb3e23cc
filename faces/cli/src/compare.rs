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
use std::fs::{self, DirBuilder};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use skinflint_base::env;
use skinflint_compare::model::{Allocator, Comparison, Missing, Settings, Verdict};
use skinflint_compare::peers::{self, Places};
use skinflint_compare::rounds::{Kind, News, Subject};
use skinflint_compare::run::INTERRUPTED;
use skinflint_compare::{Request, csv, json, page, replays, signals, table};

use crate::args::CompareArgs;
use crate::launch::find_library;
use crate::preflight;
use crate::what_if;

/// Milliseconds between two looks at a program's memory.
const INTERVAL_MS: u64 = 10;

/// Compares the allocators and shows the result.
///
/// # Errors
/// Whatever keeps the comparison from being made.
pub fn compare(args: &CompareArgs) -> Result<u8> {
    check(args)?;
    if args.what_if {
        return what_if::instead(&args.traces, args.json.as_deref());
    }
    let places = places();
    let (allocators, missing, reference) = allocators(args, &places)?;
    let settings = Settings {
        runs: args.runs,
        reference,
        timeout_s: args.timeout,
        idle_s: args.idle,
        paced: args.paced,
        interval_ms: INTERVAL_MS,
        seed: args.seed,
    };
    let probe = find_library("libskinflint_probe.so", env::PROBE_LIBRARY.name())?;
    let folder = Folder::new()?;
    install_handlers();
    let subjects = subjects(args, &folder.0)?;
    let mut progress = Progress::new(&subjects, allocators.len(), args);
    let request = Request {
        subjects,
        allocators,
        missing,
        settings,
        probe,
        folder: folder.0.clone(),
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

/// Returns the places where allocators are looked for.
pub fn places() -> Places {
    let skinflint = find_library("libskinflint.so", env::ALLOCATOR.name()).ok();
    let lists = match std::env::var_os(env::PEERS.name()) {
        Some(list) => vec![PathBuf::from(list)],
        None => {
            let own = std::env::current_exe().unwrap_or_default();
            let own = own.canonicalize().unwrap_or(own);
            let folder = own.parent().unwrap_or(Path::new("/"));
            vec![
                folder.join("../bench/alloc/peers/peers.json"),
                folder.join("../lib/skinflint/peers/peers.json"),
            ]
        }
    };
    let lists = lists
        .into_iter()
        .map(|list| list.canonicalize().unwrap_or(list));
    Places::of_system(skinflint, lists.collect())
}

/// Returns the allocators that are there, those that are not, and the reference's name.
fn allocators(
    args: &CompareArgs,
    places: &Places,
) -> Result<(Vec<Allocator>, Vec<Missing>, String)> {
    let mut names: Vec<String> = match args.with.is_empty() {
        true => peers::DEFAULT
            .iter()
            .map(|name| (*name).to_owned())
            .collect(),
        false => args.with.clone(),
    };
    if !names.contains(&args.reference) {
        names.insert(0, args.reference.clone());
    }
    let (mut found, mut missing): (Vec<Allocator>, Vec<Missing>) = (Vec::new(), Vec::new());
    let mut reference = args.reference.clone();
    let mut seen: Vec<&String> = Vec::new();
    for name in &names {
        if seen.contains(&name) {
            continue;
        }
        seen.push(name);
        match places.find(name) {
            Ok(allocator) => {
                if found.iter().any(|other| other.name == allocator.name) {
                    bail!(
                        "--with {name}: another allocator is called {} already; rename the file",
                        allocator.name
                    );
                }
                if *name == args.reference {
                    reference.clone_from(&allocator.name);
                }
                found.push(allocator);
            }
            Err(why) => missing.push(why),
        }
    }
    if let Some(missing) = missing
        .iter()
        .find(|missing| missing.name == args.reference)
    {
        bail!("--ref {}: {}; {}", missing.name, missing.why, missing.get);
    }
    Ok((found, missing, reference))
}

fn subjects(args: &CompareArgs, folder: &Path) -> Result<Vec<Subject>> {
    if let Some(program) = args.command.first() {
        // A program that cannot be started is an error; one that a preload cannot reach is a row.
        preflight::find(program, &preflight::COMPARE)?;
        let unreachable = preflight::check(program, &preflight::COMPARE).err();
        let name = name_of(&args.command);
        return Ok(vec![Subject {
            name,
            what: args
                .command
                .iter()
                .map(|w| w.to_string_lossy().into_owned())
                .collect(),
            notes: Vec::new(),
            kind: Kind::Command {
                command: args.command.clone(),
                input: args.input.clone(),
                unreachable: unreachable.map(|error| format!("{error:#}")),
            },
        }]);
    }
    let replayer = find_library("skinflint-replay", env::REPLAYER.name())?;
    let mut subjects: Vec<Subject> = Vec::new();
    for (number, trace) in args.traces.iter().enumerate() {
        if !args.quiet {
            say!("skinflint: {}: compiling", trace.display());
        }
        let (prepared, notes) = replays::prepare(trace, &replayer, folder, number)?;
        let name = trace.file_stem().unwrap_or(trace.as_os_str());
        let mut name = name.to_string_lossy().into_owned();
        if subjects.iter().any(|other| other.name == name) {
            name = trace.display().to_string();
        }
        subjects.push(Subject {
            name,
            what: vec![trace.display().to_string()],
            notes,
            kind: Kind::Replay(prepared),
        });
    }
    Ok(subjects)
}

/// Returns the name of a program: its file, or the script that an interpreter is given.
fn name_of(command: &[OsString]) -> String {
    const INTERPRETERS: [&str; 8] = [
        "sh", "bash", "dash", "python3", "perl", "ruby", "node", "php",
    ];
    let file = |word: &OsString| {
        let name = Path::new(word).file_name().unwrap_or(word.as_os_str());
        name.to_string_lossy().into_owned()
    };
    let name = command.first().map(&file).unwrap_or_default();
    match command.get(1) {
        Some(script) if INTERPRETERS.contains(&name.as_str()) && Path::new(script).is_file() => {
            file(script)
        }
        _ => name,
    }
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
        put(path, &page::render(comparison))?;
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

/// A folder for the files of runs, removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder> {
        let base = std::env::temp_dir();
        for attempt in 0..100 {
            let path = base.join(format!(
                "skinflint-compare-{}-{attempt}",
                std::process::id()
            ));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Folder(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| {
                        format!(
                            "{}: cannot be made; set TMPDIR to another folder",
                            path.display()
                        )
                    });
                }
            }
        }
        bail!("{}: full of folders of ours; remove them", base.display())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed stays in the system's folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// When the first signal came, in milliseconds of the monotonic clock; 0 before.
static FIRST_SIGNAL_MS: AtomicU64 = AtomicU64::new(0);
/// Signals that come together are one request: `timeout` sends its signal to us and to our group.
const TOGETHER_MS: u64 = 500;

extern "C" fn on_signal(signal: i32) {
    // ORDER: Relaxed; a flag that stands alone, read every few milliseconds.
    INTERRUPTED.store(true, Ordering::Relaxed);
    // SAFETY: the structures are ours, and these calls are allowed in a handler.
    unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now);
        let now_ms = (now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000).max(1);
        // ORDER: Relaxed twice; a number that stands alone, set by the first signal.
        let first =
            FIRST_SIGNAL_MS.compare_exchange(0, now_ms, Ordering::Relaxed, Ordering::Relaxed);
        if first.is_err_and(|first_ms| now_ms >= first_ms + TOGETHER_MS) {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
}

fn install_handlers() {
    let ends = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
    // SAFETY: the handler does only what a handler may. A second Ctrl-C, some time after the first, ends us, and the
    // program with us.
    unsafe { signals::handle(&ends, on_signal as *const () as usize, libc::SA_RESTART) }
        .expect("these can be handled");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_gives_its_name_to_an_interpreter() {
        let name = |words: &[&str]| name_of(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(name(&["/usr/bin/jq", "."]), "jq");
        assert_eq!(name(&["sh", "-c", "exit"]), "sh");
        assert_eq!(name(&["python3", file!()]), "python3");
        assert_eq!(name(&["sh", "/etc/passwd"]), "passwd");
    }
}
