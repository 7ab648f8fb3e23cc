//! Starts a program with the recorder in front of its allocator, and waits for it.
//!
//! ```text
//!   skinflint (collector's threads) ── spawn ──► program          signals to us go on to it
//! ```
//!
//! Not here: its status and figures (child.rs), signals (signals.rs).

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use skinflint_collect::{Bounds, ChildEnd, Options, ProfileUrl, Sample, Session, Watched};
use skinflint_launch::{installed, preflight, preload};

use crate::outcome::Outcome;
use crate::outside::Way;
use crate::{child, files, outside, signals};

/// The program to be recorded, and how.
pub struct Program<'a> {
    /// The program and its arguments.
    pub command: &'a [OsString],
    /// The file for its own trace.
    pub output: Option<&'a Path>,
    /// The folder for all traces, if it is not that of `output`.
    pub dir: Option<&'a Path>,
    /// Libraries to be preloaded beneath the recorder.
    pub preload: &'a [OsString],
    /// The signal that makes a mark when the program gets it, by name or number.
    pub mark_signal: Option<&'a str>,
    /// Whether nothing is recorded until a control socket says so.
    pub paused: bool,
    /// The moments at which it is stopped to be asked.
    pub watched: Option<Watched>,
    /// Whether its pointers are read at marks and at its end.
    pub looks: bool,
    /// Whether small objects of Python are recorded as blocks of their own.
    pub objects: bool,
    /// Which acquisitions are recorded; `None`: all.
    pub sample: Option<Sample>,
    /// What of each trace is kept; `None`: all.
    pub bounds: Option<Bounds>,
    /// Compression level of traces.
    pub level: i32,
    /// Where it serves its heap profile, if that is to be kept.
    pub profile: Option<ProfileUrl>,
    /// Variables that it gets beside those that recording needs.
    pub environment: Vec<(&'static str, OsString)>,
}

/// Records a program until it and all that it started have ended. `meanwhile` is called every few milliseconds as long
/// as one of them lives, with the program's id; `tell` gets what the user should know while it waits, in words.
///
/// # Errors
/// Whatever keeps the program from being started or recorded; once it runs, nothing is an error.
pub fn record(
    wanted: Program<'_>,
    meanwhile: &mut dyn FnMut(&Session, u32),
    tell: &dyn Fn(&str),
) -> Result<Outcome> {
    let Some(program) = wanted.command.first() else {
        bail!("no program given; as in: skinflint run -- ls -l");
    };
    let of_a_recorder = [
        (wanted.looks, "--reachable"),
        (wanted.objects, "--python-objects"),
        (wanted.sample.is_some(), "--sample"),
        (!wanted.preload.is_empty(), "--preload"),
        (wanted.bounds.is_some(), "a bounded recording"),
        (wanted.mark_signal.is_some(), "--mark-signal"),
        (wanted.paused, "--paused"),
    ];
    let watched = outside::find(program, &of_a_recorder, wanted.profile.is_some())?;
    // Its pointers are read by another thread of ours, and a program has one tracer.
    let watched = watched.filter(|(_, way)| !matches!(way, Way::End) || !wanted.looks);
    let found = match &watched {
        Some((found, Way::Heap(_) | Way::Profile)) => found.clone(),
        _ => preflight::check(program, &preflight::RECORD)?,
    };
    let recorder = installed::recorder()?;
    let folder = files::folder_for(wanted.output, wanted.dir)?;
    // A folder that was named is the folder of all.
    let apart = wanted.dir.is_none().then(|| name_of(program));
    let mark_signal = wanted.mark_signal.map(signals::number).transpose()?;
    let file = wanted.output.map(files::trace_file).transpose()?;
    let _held = file.as_deref().map(files::Held::take).transpose()?;
    // Before anything is written: a limit of file size is an error of a write then, and no end.
    signals::install_handlers();
    // Pointers are read by stopping all, and a program has one tracer.
    let adopts = !wanted.looks && wanted.bounds.is_none();
    let mut session = Session::start(Options {
        folder,
        apart,
        file,
        level: wanted.level,
        mark_signal,
        paused: wanted.paused,
        attached: false,
        watched: wanted.watched,
        looks: wanted.looks,
        objects: wanted.objects,
        sample: wanted.sample,
        bounds: wanted.bounds,
        served: wanted.profile.is_some(),
    })
    .map_err(files::cannot_start)?;
    let preload = preload::to_record(&recorder, wanted.preload)?;
    let is_outside = matches!(watched, Some((_, Way::Heap(_) | Way::Profile)));
    let ready = |mut command: Command| {
        command.args(&wanted.command[1..]);
        if !is_outside {
            command.env("LD_PRELOAD", &preload);
        }
        command.envs(session.environment());
        command.envs(wanted.environment.iter().cloned());
        command
    };
    let mut own = Command::new(program);
    own.arg0(program);
    let started = match watched {
        Some((_, way)) => outside::start(ready(own), way, session.watcher())
            .map(|(child, thread)| (child, Some(thread))),
        None => start(own, &found, &ready).map(|child| (child, None)),
    };
    let (mut child, watching) =
        started.map_err(|error| preflight::Unstartable::refused(program, &error))?;
    let pid = child.id();
    signals::set_child(Some(pid));
    session.child_started(pid);
    if let Some(strays) = session.take_strays().filter(|_| adopts) {
        outside::adopt(session.watcher(), strays)?;
    }
    if let Some(url) = wanted.profile {
        session.keep_profile(pid, url, !is_outside)?;
    }
    let end = wait(pid, &session, meanwhile, tell);
    signals::set_child(None);
    // It has ended with the program.
    let _ = watching.map(std::thread::JoinHandle::join);
    let _ = child.try_wait();
    session.child_ended(end);
    let stayed = wait_for_the_rest(pid, &session, meanwhile, tell);
    let refused = session.refused();
    let (recorded, news) = session.finish_with_news();
    news.iter().for_each(|news| tell(news));
    Ok(Outcome {
        status: end.status,
        pid,
        stayed,
        refused,
        recorded,
    })
}

/// Starts a program; a script that does not say of which interpreter it is, as a shell would.
fn start(
    own: Command,
    found: &Path,
    ready: &dyn Fn(Command) -> Command,
) -> std::io::Result<std::process::Child> {
    ready(own)
        .spawn()
        .or_else(|error| match preflight::is_for_shell(found, &error) {
            true => {
                let mut shell = Command::new("/bin/sh");
                shell.arg(found);
                ready(shell).spawn()
            }
            false => Err(error),
        })
}

/// Returns the name of a program's file.
fn name_of(program: &OsString) -> String {
    let name = Path::new(program).file_name().unwrap_or(program);
    name.to_string_lossy().into_owned()
}

/// Waits for the program, and meanwhile makes marks.
fn wait(
    pid: u32,
    session: &Session,
    meanwhile: &mut dyn FnMut(&Session, u32),
    tell: &dyn Fn(&str),
) -> ChildEnd {
    loop {
        if let Some(news) = session.profile_news() {
            tell(&news);
        }
        let ended = child::has_ended(pid);
        signals::pass_on_marks(session);
        if ended {
            return child::reap(pid);
        }
        meanwhile(session, pid);
        child::poll(pid);
    }
}

/// A process that lives this much longer than the program is what the program was to start. The end of a pipeline is not.
const STAYS: Duration = Duration::from_secs(1);

/// Says which processes are still recorded, and how that ends.
fn still_recorded(stayed: &[u32], living: usize) -> String {
    let (left, they) = match (stayed, living) {
        ([one], _) => (format!("process {one}"), "it goes on"),
        (_, 1) => ("1 process".into(), "it goes on"),
        _ => (format!("{living} processes"), "they go on"),
    };
    let own = std::process::id();
    format!(
        "the program has ended and left {left} running, still recorded; Ctrl-C, or kill {own}, ends the recording ({they})"
    )
}

/// After the program has ended, waits for the processes that it left running, which are recorded to their end. Returns
/// those that stay.
fn wait_for_the_rest(
    pid: u32,
    session: &Session,
    meanwhile: &mut dyn FnMut(&Session, u32),
    tell: &dyn Fn(&str),
) -> Vec<u32> {
    let begun = Instant::now();
    let interrupts = signals::interrupts();
    let mut said = false;
    let mut stayed = Vec::new();
    loop {
        let living = session.living();
        if living == 0 && begun.elapsed() > Duration::from_millis(5) {
            return stayed;
        }
        let is_over = signals::interrupts() != interrupts;
        if !said && (is_over || begun.elapsed() > STAYS) {
            stayed = session.pids();
        }
        if is_over {
            return stayed;
        }
        if living > 0 {
            meanwhile(session, pid);
        }
        if !said && begun.elapsed() > STAYS {
            said = true;
            tell(&still_recorded(&stayed, living));
        }
        std::thread::sleep(Duration::from_millis(3));
    }
}
