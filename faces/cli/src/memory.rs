//! `skinflint memory`: where a process's memory is, by its own reporters, its allocator and the kernel.
//!
//! ```text
//!   PID ─┬─ socket PID.report ─► a file of about:memory ─┐
//!        ├─ socket PID.heap ───► figures + /proc/PID ────┼─► lines ─► tree │ difference │ JSON │ OpenMetrics │ file
//!        └─ none ──────────────► /proc/PID ──────────────┤
//!   FILE, URL ───────────────────────────────────────────┘
//! ```
//!
//! M1  What is not known is reported as such and never shown as 0: a process without a socket has no heap rows, and a
//!     line on stderr says how to get them.
//! M2  A process that ends while it is measured is an error; nothing is shown of a frame that was cut short.
//! M3  A reporter that was left out is named on stderr, whatever the output is.
//! M4  Text of a process or a file reaches the screen without characters that would drive it (`text::plain`).
//! M5  An option that would do nothing is refused.
//!
//! Not here: what a line or a tree is (`report`).

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args as ClapArgs;
use skinflint_reporters::diff::{Diff, Side};
use skinflint_reporters::endpoint::{self, Answer};
use skinflint_reporters::file::ReadError;
use skinflint_reporters::named::Note;
use skinflint_reporters::page::{Backend, Page, Shown};
use skinflint_reporters::process::NoFigures;
use skinflint_reporters::store::Store;
use skinflint_reporters::text::{self, Style};
use skinflint_reporters::tree::{Builder, Presence};
use skinflint_reporters::{Action, Entry, file, heap, json, openmetrics, process};

pub const HELP: &str = "\
Examples:
  skinflint memory 4711
  skinflint memory 4711 --watch=5               # until it ends, or Ctrl-C
  skinflint memory 4711 --save before.json.gz   # Firefox's about:memory opens it
  skinflint memory 4711 --diff before.json.gz   # what has changed since
  skinflint memory 4711 --page                  # the same in a browser, with buttons and a timeline
  skinflint memory 4711 --openmetrics           # for a collector of Prometheus
  skinflint memory                              # who can be asked

Of any process of yours it is shown what is resident, by the kernel's word. A program started by `skinflint
exec --memory` also tells what its heap holds; one that links the reporters tells everything. Files are
Firefox's (about:memory, version 1). [2] behind a name: two lines of that path; [+] and [-]: only in the
second or first of two reports.";

#[derive(ClapArgs, Debug)]
pub struct MemoryArgs {
    /// A process, the URL of its page, or a file of about:memory [default: lists who can be asked]
    #[arg(value_name = "PID|URL|FILE")]
    pub what: Option<String>,

    /// Show what has changed since this file
    #[arg(long, value_name = "FILE", requires = "what")]
    pub diff: Option<PathBuf>,

    /// Show it again every so many seconds, until the process ends
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "2",
          value_parser = seconds, requires = "what", conflicts_with_all = ["save"])]
    pub watch: Option<f64>,

    /// Serve a page on 127.0.0.1 and print its address, until Ctrl-C; 0 is any port
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "0",
          requires = "what",
          conflicts_with_all = ["watch", "save", "json", "openmetrics", "diff", "threshold", "exact"])]
    pub page: Option<u16>,

    /// Put rows together that are less than this part of their tree; 0 shows all
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent, requires = "what",
          conflicts_with_all = ["json", "openmetrics", "save"])]
    pub threshold: f64,

    /// Bytes instead of MB
    #[arg(long, requires = "what", conflicts_with_all = ["json", "openmetrics", "save"])]
    pub exact: bool,

    /// Print the trees as JSON, a line for each time
    #[arg(long, conflicts_with_all = ["openmetrics"])]
    pub json: bool,

    /// Print OpenMetrics text, for Prometheus, once
    #[arg(long, requires = "what", conflicts_with_all = ["diff", "watch"])]
    pub openmetrics: bool,

    /// Write a file of about:memory instead; gzipped if it ends in .gz; `-` is stdout, not gzipped
    #[arg(long, value_name = "FILE", requires = "what", conflicts_with_all = ["json", "openmetrics"])]
    pub save: Option<PathBuf>,

    /// Also ask which blocks each line has measured, for `skinflint dark-matter`
    #[arg(long, requires = "save")]
    pub blocks: bool,

    /// Before: have the program give back what it can have again
    #[arg(long, requires = "what")]
    pub minimize: bool,

    /// Before: have it collect garbage
    #[arg(long, requires = "what")]
    pub gc: bool,

    /// Before: have it collect cycles
    #[arg(long, requires = "what")]
    pub cc: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds, from 0.1 to 86400".into()),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("a percentage, from 0 to 100".into()),
    }
}

/// What is looked at.
enum Target {
    Pid(u32),
    Url(String),
    File(PathBuf),
}

impl Target {
    fn of(text: &str) -> Result<Target> {
        if text.starts_with("http://") {
            return Ok(Target::Url(text.to_owned()));
        }
        match text.parse::<u32>() {
            Ok(0) => bail!("0 is no process; `skinflint memory` lists who can be asked"),
            Ok(pid) => Ok(Target::Pid(pid)),
            Err(_) if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
                bail!("{text} is no process: numbers of processes are smaller")
            }
            Err(_) => Ok(Target::File(PathBuf::from(text))),
        }
    }
}

/// Lines, and the notes to print beside them.
#[derive(Default)]
struct Gathered {
    lines: Store,
    notes: Vec<String>,
}

/// Does what was asked. Returns the exit status.
///
/// # Errors
/// Whatever keeps it from being done.
pub fn memory(args: &MemoryArgs) -> Result<u8> {
    let Some(what) = &args.what else {
        return list(args.json);
    };
    let target = Target::of(what)?;
    if let (Target::File(path), Some(_)) = (&target, args.watch) {
        bail!(
            "--watch: {} does not change: give a process's number, or the URL of its page",
            path.display()
        );
    }
    act(args, &target)?;
    if let Some(port) = args.page {
        return page(port, &target);
    }
    let Some(every) = args.watch else {
        let gathered = gather(&target, args.blocks)?;
        gathered
            .notes
            .iter()
            .for_each(|note| say!("skinflint: {}", text::plain(note)));
        return show(args, &gathered);
    };
    watch(args, &target, Duration::from_secs_f64(every))
}

/// Measures and shows again and again (M2).
fn watch(args: &MemoryArgs, target: &Target, every: Duration) -> Result<u8> {
    let mut said: Vec<String> = Vec::new();
    let mut first = true;
    loop {
        let gathered = match gather(target, false) {
            Err(error) if !first && ended(&error) => {
                say!("skinflint: the process has ended");
                return Ok(0);
            }
            other => other?,
        };
        if !args.json && !args.openmetrics && io::stdout().is_terminal() {
            // Moves the cursor home and clears what is below: less flicker than clearing everything.
            print_all("\x1b[H\x1b[J")?;
        } else if !first && !args.json {
            print_all("\n")?;
        }
        show(args, &gathered)?;
        for note in gathered.notes {
            if !said.contains(&note) {
                say!("skinflint: {}", text::plain(&note));
                said.push(note);
            }
        }
        first = false;
        std::thread::sleep(every);
    }
}

fn ended(error: &anyhow::Error) -> bool {
    let gone = error.downcast_ref::<NoFigures>();
    matches!(gone, Some(NoFigures::Gone | NoFigures::Empty))
}

/// Reports whether the file or process is at fault, and not the command line.
pub fn is_of_subject(error: &anyhow::Error) -> bool {
    error.is::<NoFigures>() || error.is::<ReadError>()
}

/// Returns our stdout as a file that can be closed.
fn stdout() -> io::Result<File> {
    Ok(io::stdout().as_fd().try_clone_to_owned()?.into())
}

fn print_all(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Makes the program do what was asked for, and prints the result.
fn act(args: &MemoryArgs, target: &Target) -> Result<()> {
    let wanted = [
        (args.minimize, Action::Minimize),
        (args.gc, Action::Gc),
        (args.cc, Action::Cc),
    ];
    for (_, action) in wanted.into_iter().filter(|(wanted, _)| *wanted) {
        let name = action.name();
        let Target::Pid(pid) = target else {
            bail!("--{name} is for a process: give its number");
        };
        let said = done(*pid, action)?;
        said.lines()
            .for_each(|line| say!("{name}: {}", text::plain(line)));
    }
    Ok(())
}

/// Makes a process do an action, and returns the result.
fn done(pid: u32, action: Action) -> Result<String> {
    let name = action.name();
    let sockets = endpoint::sockets_of(pid);
    let Some(socket) = sockets.first() else {
        bail!("--{name}: process {pid} cannot be asked: {HOW}");
    };
    let answer = endpoint::ask(socket, pid, name)
        .with_context(|| format!("{}: --{name}", socket.display()))?;
    match answer {
        Answer::Done(said) => Ok(said.trim_end().to_owned()),
        Answer::No(said) => bail!("--{name}: process {pid}: {}", text::plain(&said)),
        _ => bail!("--{name}: process {pid} gave another answer than was asked for"),
    }
}

const HOW: &str = "start it with `skinflint exec --memory -- CMD`, or have it link the reporters";

fn gather(target: &Target, with_blocks: bool) -> Result<Gathered> {
    match target {
        Target::Pid(pid) => of_process(*pid, with_blocks),
        Target::Url(url) => of_url(url, with_blocks),
        Target::File(path) => {
            let mut gathered = Gathered::default();
            let file = open(path)?;
            file::read_with_blocks(file, |entry, _, blocks| gathered.keep(entry, blocks))
                .with_context(|| path.display().to_string())?;
            Ok(gathered)
        }
    }
}

impl Gathered {
    fn keep(&mut self, entry: &Entry<'_>, blocks: &[Note]) {
        // If memory runs out, the sums show it by the missing lines; there is no better place.
        let _ = self.lines.push(entry) && self.lines.name_blocks(blocks);
    }
}

fn open(path: &Path) -> Result<File> {
    if path.is_dir() {
        bail!("{}: a folder, and no file of about:memory", path.display());
    }
    File::open(path).with_context(|| {
        format!(
            "{}: cannot be opened; give a process's number, a URL or a file",
            path.display()
        )
    })
}

fn read_file(path: &Path, each: impl FnMut(&Entry<'_>, Presence)) -> Result<()> {
    file::read(open(path)?, each).with_context(|| path.display().to_string())?;
    Ok(())
}

fn of_process(pid: u32, with_blocks: bool) -> Result<Gathered> {
    let named = || format!("process {pid}");
    let title = process::title(pid).with_context(named)?;
    let mut gathered = Gathered::default();
    let mut allocator = None;
    for socket in endpoint::sockets_of(pid) {
        // The drop-in has no reporters, so it has none that could name blocks.
        let request = match with_blocks && endpoint::is_reporters(&socket) {
            true => endpoint::MEASURE_BLOCKS,
            false => "measure",
        };
        match endpoint::ask(&socket, pid, request) {
            Ok(Answer::Report { faults, json }) => {
                gathered.notes.extend(faults);
                file::read_with_blocks(&json[..], |entry, _, blocks| gathered.keep(entry, blocks))
                    .with_context(|| format!("{}: its answer", socket.display()))?;
                return Ok(gathered);
            }
            Ok(Answer::Figures(text)) => {
                allocator = heap::from_text(&title, &text, &mut gathered.lines);
                if allocator.is_some() {
                    break;
                }
                let shown = socket.display();
                gathered
                    .notes
                    .push(format!("{shown}: an answer of another version; ignored"));
            }
            Ok(Answer::No(said)) => gathered.notes.push(said),
            Ok(Answer::Done(_)) => {}
            // It may have ended, or closed its socket: /proc says which.
            Err(error) => gathered
                .notes
                .push(format!("{}: {error}", socket.display())),
        }
    }
    if allocator.is_none() {
        let note =
            format!("only what the kernel says of process {pid} is known; for its heap, {HOW}");
        gathered.notes.push(note);
    }
    process::of(pid, &title, allocator.as_ref(), &mut gathered.lines).with_context(named)?;
    Ok(gathered)
}

/// Reads the page at an address: what it saves is requested with curl, as debug files are.
fn of_url(url: &str, with_blocks: bool) -> Result<Gathered> {
    let more = if with_blocks { "blocks=1" } else { "fresh=1" };
    let json = saved_by(url, more)?;
    let mut gathered = Gathered::default();
    file::read_with_blocks(&json[..], |entry, _, blocks| gathered.keep(entry, blocks))
        .with_context(|| "what the page saves".to_owned())?;
    Ok(gathered)
}

/// Returns what a page saves when it is asked in this way.
///
/// # Errors
/// If there is no curl, or no page.
pub fn saved_by(url: &str, more: &str) -> Result<Vec<u8>> {
    let (page, query) = url.split_once('?').unwrap_or((url, ""));
    let asked = format!("{}/save?{query}&{more}", page.trim_end_matches('/'));
    let done = Command::new("curl")
        // The page's address is a key, and the list of processes shows a command's arguments to every user.
        .args([
            "--config",
            "-",
            "--silent",
            "--show-error",
            "--fail",
            "--noproxy",
            "*",
            "--max-time",
            "60",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .and_then(|mut curl| {
            let quoted = asked
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', " ");
            // If curl has ended, its status says why.
            let _ = curl
                .stdin
                .take()
                .map(|mut stdin| writeln!(stdin, "url = \"{quoted}\""));
            curl.wait_with_output()
        })
        .context("curl is needed to ask a URL: apt-get install curl")?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        bail!(
            "{page}: {}; is the program still running, and the address whole, with its token?",
            text::plain(said.trim())
        );
    }
    Ok(done.stdout)
}

/// Lists the processes that can be asked.
fn list(as_json: bool) -> Result<u8> {
    endpoint::clear_stale();
    // The process may have ended since.
    let titled = |(pid, socket): (u32, PathBuf)| Some((pid, process::title(pid).ok()?, socket));
    let found: Vec<(u32, String, PathBuf)> = endpoint::listening()
        .into_iter()
        .filter_map(titled)
        .collect();
    if as_json {
        let one = |(pid, title, socket): &(u32, String, PathBuf)| serde_json::json!({ "pid": pid, "process": title, "socket": socket.to_string_lossy() });
        let all: Vec<serde_json::Value> = found.iter().map(one).collect();
        print_all(&format!(
            "{}\n",
            serde_json::json!({ "version": 1, "listening": all })
        ))?;
        return Ok(0);
    }
    if found.is_empty() {
        say!("skinflint: nobody can be asked; {HOW}");
        return Ok(0);
    }
    let mut out = String::new();
    for (pid, title, socket) in found {
        let socket = text::plain(&socket.to_string_lossy());
        out += &format!("{pid}\t{}\t{socket}\n", text::plain(&title));
    }
    print_all(&out)?;
    Ok(0)
}

/// Shows the trees, or those of the difference.
fn show(args: &MemoryArgs, gathered: &Gathered) -> Result<u8> {
    let mut differing: Option<Diff> = None;
    if let Some(first) = &args.diff {
        let mut diff = Diff::new();
        read_file(first, |entry, _| diff.add(Side::First, entry))?;
        gathered
            .lines
            .iter()
            .for_each(|entry| diff.add(Side::Second, &entry));
        differing = Some(diff);
    }
    let mut lines = Store::new();
    let mut presences = Vec::new();
    if let Some(diff) = differing {
        diff.each(|entry, presence| {
            presences.push(presence);
            // As above.
            let _ = lines.push(entry);
        });
    }
    let lines = if args.diff.is_some() {
        &lines
    } else {
        &gathered.lines
    };
    let presences = presences
        .into_iter()
        .chain(std::iter::repeat(Presence::Both));
    let both = lines.iter().zip(presences);
    if let Some(path) = &args.save {
        let of = |line: usize| match args.diff {
            None => lines.blocks(line),
            Some(_) => &[],
        };
        let all: Vec<(Entry<'_>, Presence, &[Note])> = both
            .enumerate()
            .map(|(line, (entry, presence))| (entry, presence, of(line)))
            .collect();
        let process = "(no process)";
        let saved = match path.as_os_str() == "-" {
            true => stdout().and_then(|out| file::save_into(out, process, all.into_iter())),
            false => file::save_with_blocks(path, process, all.into_iter()),
        };
        saved.with_context(|| format!("{}: cannot be written", path.display()))?;
        return Ok(0);
    }
    let mut builder = match args.diff {
        Some(_) => Builder::of_difference(),
        None => Builder::new(),
    };
    both.for_each(|(entry, presence)| builder.add(&entry, presence));
    let processes = builder.finish();
    let text = if args.json {
        format!("{}\n", json::render(&processes, &gathered.notes))
    } else if args.openmetrics {
        openmetrics::render(&processes)
    } else if processes.is_empty() {
        match args.diff {
            Some(_) => "nothing has changed\n".to_owned(),
            None => "no reports\n".to_owned(),
        }
    } else {
        let style = Style {
            threshold_percent: args.threshold,
            exact: args.exact,
        };
        text::render(&processes, style)
    };
    print_all(&text)?;
    Ok(0)
}

/// A process as the subject of the page.
struct Subject(u32);

impl Backend for Subject {
    fn measure(&mut self, with_blocks: bool) -> Result<Shown, String> {
        let Gathered { lines, notes } =
            of_process(self.0, with_blocks).map_err(|error| format!("{error:#}"))?;
        Ok(Shown { lines, notes })
    }

    fn act(&mut self, action: Action) -> Result<String, String> {
        done(self.0, action).map_err(|error| format!("{error:#}"))
    }
}

/// Serves the page until Ctrl-C.
fn page(port: u16, target: &Target) -> Result<u8> {
    let Target::Pid(pid) = target else {
        bail!("--page is for a process: give its number");
    };
    process::title(*pid).with_context(|| format!("process {pid}"))?;
    let mut page = Page::open(port, Subject(*pid))
        .with_context(|| format!("--page: port {port} of 127.0.0.1 cannot be listened on"))?;
    print_all(&format!("{}\n", page.url()))?;
    loop {
        page.serve_one()?;
    }
}
