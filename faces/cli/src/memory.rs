//! `skinflint memory`: where a process's memory is, by its own reporters, its allocator and the kernel.
//!
//! ```text
//!   PID ─┬─ socket PID.report ─► a file of about:memory ─┐
//!        ├─ socket PID.heap ───► figures + /proc/PID ────┼─► lines ─► tree │ difference │ JSON │ OpenMetrics │ file
//!        └─ none ──────────────► /proc/PID ──────────────┤
//!   FILE, URL ───────────────────────────────────────────┤
//!   --cgroup ─► control group + /proc of its processes ───┘
//! ```
//!
//! M1  What is not known is reported as such and never shown as 0: a process without a socket has no heap rows, and a
//!     line on stderr says how to get them.
//! M2  A process that ends while it is measured is an error; nothing is shown of a frame that was cut short.
//! M3  A reporter that was left out is named on stderr, whatever the output is.
//! M4  Text of a process or a file reaches the screen without characters that would drive it (`text::plain`).
//! M5  An option that would do nothing is refused.
//! M6  `--watch` and `--openmetrics=PORT` end with the process, asked or not, and never show another one that got its number.
//!
//! Not here: what a line or a tree is (`report`).

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args as ClapArgs;
use skinflint_reporters::gathered::{self, Gathered, HOW, Life, Subject, Target, gather};
use skinflint_reporters::live_page::LivePage;
use skinflint_reporters::metrics_page::MetricsPage;
use skinflint_reporters::named::Note;
use skinflint_reporters::openmetrics::Series;
use skinflint_reporters::text::{self, Style};
use skinflint_reporters::tree::{Builder, Presence, trees};
use skinflint_reporters::{Action, Entry, endpoint, file, json, process};

pub const HELP: &str = "\
Examples:
  skinflint memory 4711
  skinflint memory 4711 --watch=5               # until it ends, or Ctrl-C
  skinflint memory 4711 --save before.json.gz   # Firefox's about:memory opens it
  skinflint memory 4711 --diff before.json.gz   # what has changed since
  skinflint memory 4711 --page                  # the same in a browser, with buttons and a timeline
  skinflint memory 4711 --openmetrics           # for a collector of Prometheus
  skinflint memory 4711 --openmetrics=9101      # the same at http://127.0.0.1:9101/metrics
  skinflint memory 4711 --cgroup                # the control group that it is in: a container's memory
  skinflint memory --cgroup /system.slice       # a control group by its name, or by its folder
  skinflint memory                              # the processes that can be asked

Of any process of yours it shows the resident memory, as the kernel counts it. A program started
by `skinflint exec --memory` also reports what its heap holds; one that links the reporters
reports everything. Files are Firefox's (about:memory, version 1). [2] behind a name: two lines of
that path; [+] and [-]: only in the second or first of two reports.";

#[derive(ClapArgs, Debug)]
#[command(group(clap::ArgGroup::new("subject").multiple(true)))]
pub struct MemoryArgs {
    /// A process, the URL of its page, or a file of about:memory [default: lists the processes
    /// that can be asked]
    #[arg(value_name = "PID|URL|FILE", group = "subject")]
    pub what: Option<String>,

    /// A control group: its folder, its name as in /proc/PID/cgroup, or a process in it
    /// [default: that of PID, or else our own]
    #[arg(long, value_name = "GROUP", num_args = 0..=1, group = "subject",
          conflicts_with_all = ["page", "blocks", "minimize", "gc", "cc"])]
    pub cgroup: Option<Option<String>>,

    /// Show what has changed since this file
    #[arg(long, value_name = "FILE", requires = "subject")]
    pub diff: Option<PathBuf>,

    /// Show it again every so many seconds, until the process ends
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "2",
          value_parser = seconds, requires = "subject", conflicts_with_all = ["save"])]
    pub watch: Option<f64>,

    /// Serve a page on 127.0.0.1 and print its address, until Ctrl-C; 0 is any port
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "0",
          requires = "subject",
          conflicts_with_all = ["watch", "save", "json", "openmetrics", "diff", "threshold", "exact"])]
    pub page: Option<u16>,

    /// Put rows together that are less than this part of their tree; 0 shows all
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent, requires = "subject",
          conflicts_with_all = ["json", "openmetrics", "save"])]
    pub threshold: f64,

    /// Bytes instead of MiB
    #[arg(long, requires = "subject", conflicts_with_all = ["json", "openmetrics", "save"])]
    pub exact: bool,

    /// Print the trees as JSON, a line for each time
    #[arg(long, conflicts_with_all = ["openmetrics"])]
    pub json: bool,

    /// Print OpenMetrics text, for Prometheus, once; with a port, serve it on 127.0.0.1 until the process ends (0 is any
    /// port): every user of this machine may read it
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, requires = "subject",
          conflicts_with_all = ["diff", "watch", "page"])]
    pub openmetrics: Option<Option<u16>>,

    /// The most series of each unit; what has none is in the path (others) [default: 1000]
    #[arg(long, value_name = "N", requires = "openmetrics", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub series: Option<u32>,

    /// Write a file of about:memory instead; gzipped if it ends in .gz; `-` is stdout, not gzipped
    #[arg(long, value_name = "FILE", requires = "subject", conflicts_with_all = ["json", "openmetrics"])]
    pub save: Option<PathBuf>,

    /// Also ask which blocks each line has measured, for `skinflint dark-matter`
    #[arg(long, requires = "save")]
    pub blocks: bool,

    /// Before: have the program give back what it can rebuild
    #[arg(long, requires = "subject")]
    pub minimize: bool,

    /// Before: have it collect garbage
    #[arg(long, requires = "subject")]
    pub gc: bool,

    /// Before: have it collect cycles
    #[arg(long, requires = "subject")]
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

/// Does what was asked. Returns the exit status.
///
/// # Errors
/// Whatever keeps it from being done.
pub fn memory(args: &MemoryArgs) -> Result<u8> {
    let Some(target) = target(args)? else {
        return list(args.json);
    };
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
    if let Some(Some(port)) = args.openmetrics {
        return metrics(port, args, &target);
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

/// Returns what is to be measured; `None`: nothing was named.
fn target(args: &MemoryArgs) -> Result<Option<Target>> {
    match (&args.what, &args.cgroup) {
        (None, None) => Ok(None),
        (Some(what), None) => Target::of(what).map(Some),
        (Some(what), Some(Some(group))) => {
            bail!(
                "{what} and --cgroup {group}: name one of them, or `{what} --cgroup` for the group of a process"
            )
        }
        (Some(what), Some(None)) if what.parse::<u32>().is_err() => {
            bail!(
                "{what} --cgroup: only a process has a control group; give its number, or the group"
            )
        }
        (what, Some(group)) => {
            let own = std::process::id().to_string();
            let named = group.as_ref().or(what.as_ref()).unwrap_or(&own);
            Target::of_group(named).map(Some)
        }
    }
}

/// Measures and shows again and again (M2).
fn watch(args: &MemoryArgs, target: &Target, every: Duration) -> Result<u8> {
    let mut said: Vec<String> = Vec::new();
    let mut first = true;
    let life = Life::of(target);
    loop {
        let gathered = match gather(target, false) {
            Err(error) if !first && gathered::has_ended(&error) => return Ok(ended(target)),
            // Of another process with its number (M6).
            Ok(_) if life.is_over() => return Ok(ended(target)),
            other => other?,
        };
        if !args.json && io::stdout().is_terminal() {
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

/// Says that there is nothing left to measure. Returns the exit status.
fn ended(target: &Target) -> u8 {
    match target {
        Target::Group(_) => say!("skinflint: the control group is gone"),
        _ => say!("skinflint: the process has ended"),
    }
    0
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
        let said = gathered::act(*pid, action)?;
        said.lines()
            .for_each(|line| say!("{name}: {}", text::plain(line)));
    }
    Ok(())
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
        say!("skinflint: no program can be asked; {HOW}");
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
    let differing = args.diff.as_ref().map(|first| gathered.since(first));
    let differing = differing.transpose()?;
    let (lines, presences) = match &differing {
        Some((lines, presences)) => (lines, presences.as_slice()),
        None => (&gathered.lines, [].as_slice()),
    };
    let presences = presences
        .iter()
        .copied()
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
    } else if args.openmetrics.is_some() {
        series(args).render(&processes)
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

fn series(args: &MemoryArgs) -> Series {
    Series::new(args.series.unwrap_or(1000) as usize)
}

/// How often a server looks whether there is anything left to measure.
const LOOK: Duration = Duration::from_secs(1);

/// Serves OpenMetrics until Ctrl-C, or until what is measured has ended.
fn metrics(port: u16, args: &MemoryArgs, target: &Target) -> Result<u8> {
    if let Target::File(path) = target {
        let path = path.display();
        bail!("--openmetrics={port}: {path} does not change; leave the port out");
    }
    let life = Life::of(target);
    gather(target, false)?;
    let mut page = MetricsPage::open(port, series(args)).with_context(|| {
        format!("--openmetrics: port {port} of 127.0.0.1 cannot be listened on")
    })?;
    print_all(&format!("{}\n", page.url()))?;
    loop {
        let measure = || match life.is_over() {
            true => Err(process::NoFigures::Gone.into()),
            false => Ok(trees(gather(target, false)?.lines.iter())),
        };
        let words = |error: &anyhow::Error| format!("{error:#}\n");
        match page.serve_one(LOOK, measure, words)? {
            Some(error) if gathered::has_ended(&error) => return Ok(ended(target)),
            // A collector that has gone away must not keep the server (M6).
            None if life.is_over() => return Ok(ended(target)),
            Some(error) => say!("skinflint: {}", text::plain(&format!("{error:#}"))),
            None => {}
        }
    }
}

/// Serves the page until Ctrl-C.
fn page(port: u16, target: &Target) -> Result<u8> {
    let Target::Pid(pid) = target else {
        bail!("--page is for a process: give its number");
    };
    process::title(*pid).with_context(|| format!("process {pid}"))?;
    let mut page = LivePage::open(port, Subject::of(*pid))
        .with_context(|| format!("--page: port {port} of 127.0.0.1 cannot be listened on"))?;
    print_all(&format!("{}\n", page.url()))?;
    loop {
        page.serve_one()?;
    }
}
