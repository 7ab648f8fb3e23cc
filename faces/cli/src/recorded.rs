//! Records a program as the options of `run` and `record` say, and prints what was recorded and what was not.
//!
//! ```text
//!   RecordOptions ─► sessions::record (and an asker beside it) ─► Outcome ─► lines on stderr
//! ```
//!
//! R1  What goes wrong while recording is printed; the program is not to suffer from it.
//!
//! Not here: recording (`sessions`).

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;
use skinflint_analysis::missing::{self, Missing};
use skinflint_collect::Recorded;
use skinflint_dark_matter::Asker;
use skinflint_launch::scripts;
use skinflint_sessions::{Outcome, Program};
use skinflint_trace::LostKind;
use skinflint_view::units::{bytes, plural};

use crate::options::{RecordOptions, Which};

/// Records a program to its end; if the options want its reporters asked, they are, as of `at`. If only the frames of
/// scripts are to be shown, it is made to name them.
///
/// # Errors
/// Whatever keeps the program from being started or recorded.
pub fn record(
    options: &RecordOptions,
    at: &str,
    frames: Which,
) -> Result<(Outcome, Option<Asker>)> {
    let whom = options.dark_matter.as_deref();
    let asker = whom.map(|whom| Asker::new(whom, at, |text| say!("skinflint: {text}")));
    let mut asker = asker.transpose()?;
    let program = Program {
        command: &options.command,
        output: options.output.as_deref(),
        dir: options.dir.as_deref(),
        preload: &options.preload,
        mark_signal: options.mark_signal.as_deref(),
        paused: options.paused,
        watched: asker.as_ref().and_then(Asker::watched),
        looks: options.reachable,
        objects: options.python_objects,
        sample: options.part.sample(),
        bounds: options.part.bounds(),
        profile: options.pprof.clone(),
        level: options.level,
        environment: names_of_scripts(options, frames),
    };
    let mut look = |session: &_, pid| {
        if let Some(asker) = &mut asker {
            asker.look(session, pid);
        }
    };
    let outcome = skinflint_sessions::record(program, &mut look, &|text| {
        if !options.quiet {
            say!("skinflint: {text}");
        }
    })?;
    Ok((outcome, asker))
}

/// Returns what makes a program name the functions of its scripts, if those are to be shown, and says so.
fn names_of_scripts(options: &RecordOptions, frames: Which) -> Vec<(&'static str, OsString)> {
    let program = options.command.first().filter(|_| frames == Which::User);
    let before = std::env::var_os(scripts::VARIABLE);
    let Some(value) = program.and_then(|program| scripts::node_options(program, before)) else {
        return Vec::new();
    };
    if !options.quiet {
        say!(
            "skinflint: {} has {} (--frames user): Node names the functions of its scripts",
            scripts::VARIABLE,
            scripts::OPTIONS
        );
    }
    vec![(scripts::VARIABLE, value)]
}

/// Prints a line for each of the first traces that are not gone again, with what was not recorded.
pub fn say_traces(outcome: &Outcome, gone: &[PathBuf]) {
    const SHOWN: usize = 20;
    // What could not be written is said of all of them at once (`complain`).
    let all = outcome.recorded.iter();
    let written = all.filter(|trace| trace.error.is_none() && !gone.contains(&trace.path));
    let written: Vec<&Recorded> = written.collect();
    for trace in written.iter().take(SHOWN) {
        say!("skinflint: {}", one_line(trace));
        for kept in &trace.kept {
            say!("skinflint: put aside: {}", kept.display());
        }
        for lost in not_recorded(trace) {
            say!("skinflint: {}: {lost}", trace.path.display());
        }
        say_looks(trace);
    }
    if let Some(rest) = written.get(SHOWN..).filter(|rest| !rest.is_empty()) {
        let folder = rest[0].path.parent().unwrap_or(Path::new("."));
        say!(
            "skinflint: … and {} more; `skinflint report {}` has a row for each",
            rest.len(),
            folder.display()
        );
    }
}

/// Prints how long the program was stopped to be looked at, and why a look failed, one line each.
pub fn say_looks(trace: &Recorded) {
    let taken = trace.looks.iter().filter(|look| look.missing.is_empty());
    let longest = taken.clone().map(|look| look.stopped_ns).max();
    if let Some(longest) = longest {
        say!(
            "skinflint: its pointers were read {}; it stood still for {} at most",
            skinflint_view::units::plural(taken.count() as u64, "time"),
            skinflint_view::units::duration(longest)
        );
    }
    let missing = trace.looks.iter().find(|look| !look.missing.is_empty());
    if let Some(look) = missing {
        say!(
            "skinflint: what points where is not known: {}",
            look.missing
        );
    }
}

/// Describes in one line what was recorded.
pub fn one_line(trace: &Recorded) -> String {
    let name = format!(
        "{} ({} {})",
        trace.path.display(),
        trace.process.name,
        trace.process.pid
    );
    let Some(ending) = &trace.ending else {
        return format!("{name}: cut");
    };
    let lost = match ending.lost_events {
        0 => String::new(),
        lost => format!(", {} lost", plural(lost, "event")),
    };
    let size = bytes(trace.bytes);
    let events = plural(ending.events, "event");
    format!("{name}: {events}, {size}{lost}")
}

/// Returns the processes that came out of a recorded one and were not recorded, one line each.
fn not_recorded(trace: &Recorded) -> Vec<String> {
    let mut lines = missing::children(&trace.lost);
    let became = trace.lost.iter().filter(|lost| lost.what == LostKind::Exec);
    lines.extend(became.map(|lost| Missing::Program(lost.clone()).to_string()));
    lines
}

/// What to do if a trace or a page cannot be written.
pub const ELSEWHERE: &str = "choose another folder with --dir";
/// The same for `check`, whose traces are not kept.
pub const FOR_CHECK: &str = "set TMPDIR, or name a file with --output";

/// Prints one line for all traces that could not be written: what stopped one stopped the others.
fn complain_of_files(outcome: &Outcome, elsewhere: &str) {
    // The program's own trace says most; a build has thousands of others.
    let own = outcome
        .unwritten()
        .find(|trace| trace.process.pid == outcome.pid);
    let Some(trace) = own.or_else(|| outcome.unwritten().next()) else {
        return;
    };
    let path = trace.path.display();
    let error = trace.error.as_deref().unwrap_or_default();
    // An error of making a file names it.
    let error = error
        .rsplit_once(&format!("{path}: "))
        .map_or(error, |(_, why)| why);
    let others = match outcome.unwritten().count() - 1 {
        0 => String::new(),
        1 => " and 1 other trace".into(),
        n => format!(" and {n} other traces"),
    };
    let lost = trace.ending.as_ref().map_or(0, |ending| ending.lost_events);
    let lost = match lost {
        _ if trace.is_unmade() => "nothing of it was recorded".into(),
        0 => "what was written before can be read".into(),
        lost => format!(
            "{} lost, what was written before can be read",
            plural(lost, "event")
        ),
    };
    say!(
        "skinflint: {path}{others}: {error}; the program went on, {lost}. Make room there, or \
         {elsewhere}"
    );
}

/// The signal that a filter of system calls ends a program by (Linux on x86-64).
const SIGSYS: i32 = 31;

/// Prints what went wrong while recording; the program is not to suffer from it.
pub fn complain(outcome: &Outcome, options: &RecordOptions, elsewhere: &str) {
    complain_of_files(outcome, elsewhere);
    if let Some(reason) = &outcome.refused {
        say!("skinflint: a process or thread was not recorded: {reason}");
    }
    if !outcome.recorded.is_empty() || outcome.refused.is_some() {
        return;
    }
    let program = options.command[0].to_string_lossy();
    match outcome.status & 0x7f {
        0 => say!(
            "skinflint: nothing was recorded: {program} never loaded the recorder. It may be a script \
             or wrapper for a statically linked or set-user-id program, or it clears its environment \
             (LD_PRELOAD); name the program itself after --. On a machine so busy that skinflint did not answer it \
             for five seconds, it went on without: try again"
        ),
        SIGSYS => say!(
            "skinflint: nothing was recorded: a filter of system calls ended {program} (SIGSYS) before it reached the \
             collector, perhaps at the recorder's first call. Let the filter answer socket, connect, setsockopt, \
             sendto, recvmsg and madvise with an error instead, or start skinflint behind it"
        ),
        signal => say!(
            "skinflint: nothing was recorded: {program} was killed by signal {signal} before it reached \
             the recorder. If it does not die so without skinflint, please report it; \
             --preload libraries are loaded before the program and may be the cause"
        ),
    }
}
