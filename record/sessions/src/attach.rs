//! Records a program that runs already, and leaves it as it was.
//!
//! ```text
//!   checks ─► session ─► in it: dlopen(recorder), skinflint_attach(socket) ─► record … ─► skinflint_detach() ─► traces
//!                                                 until it ends, Ctrl-C, --for, or `skinflint detach`
//! ```
//!
//! G1  Whatever can be known beforehand is refused before the program is stopped: static programs, other
//!     architectures, missing rights, a recorder that is already loaded.
//! G2  One thread of the program is stopped twice, for as long as a few calls take.
//! G3  However the recording ends, the program's tables are put back while it lives; if that fails, it is reported,
//!     and the program goes on through functions that only pass calls on.
//!
//! G4  A program in other namespaces needs nothing inside of them: the library is handed over as memory, and the
//!     collector listens in its network.
//!
//! Not here: what happens inside the program (record-so/src/attach.rs), and how it is made to call that (inject.rs).

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use skinflint_collect::control::{self, Request};
use skinflint_collect::{
    Bounds, GoProgram, Options, ProfileUrl, Recorded, Sample, Session, plain_name,
};
use skinflint_launch::installed;
use skinflint_procfs::maps::maps_text;
use skinflint_procfs::process::thread_name;
use skinflint_procfs::status::WHO_MAY;
use skinflint_procfs::{stat, status};

use crate::inject::{Answer, Asked, in_program};
use crate::{files, signals, under_way};

/// The longest that the program's own part may take when it is attached to: it meets the collector within five seconds.
const ATTACHING: Duration = Duration::from_secs(15);
/// The same when it is left: the last snapshot may be late, and with `--reachable` its pointers are read.
const LEAVING: Duration = Duration::from_secs(70);
/// The longest wait for another `skinflint` to leave a program.
const DETACHING: Duration = Duration::from_secs(120);
/// How often we check whether the recording has ended.
const LOOK: Duration = Duration::from_millis(50);

/// The running program to be recorded, and how.
pub struct Target<'a> {
    /// Its process id.
    pub pid: u32,
    /// The file for its trace, if it is to have another name than `skinflint.NAME.PID.sft`.
    pub output: Option<&'a Path>,
    /// After how many seconds it is left.
    pub for_s: Option<f64>,
    /// Whether nothing is recorded until a control socket says so.
    pub paused: bool,
    /// Whether its pointers are read at marks and when it is left.
    pub looks: bool,
    /// Which acquisitions are recorded; `None`: all.
    pub sample: Option<Sample>,
    /// What of the trace is kept; `None`: all.
    pub bounds: Option<Bounds>,
    /// Where it serves its heap profile, if that is to be kept.
    pub profile: Option<ProfileUrl>,
    /// Compression level of the trace.
    pub level: i32,
}

/// News for the user while a program is attached to, in words.
pub enum News<'a> {
    /// The recording has begun.
    Begun(&'a str),
    /// The program has been left.
    Left(&'a str),
    /// The program is not quite as it was.
    Trouble(&'a str),
}

/// Records a running program until it ends or the recorder leaves it. Returns its traces.
///
/// # Errors
/// Whatever keeps the program from being recorded; the program is then as it was.
pub fn attach(args: &Target<'_>, tell: &dyn Fn(News<'_>)) -> Result<Vec<Recorded>> {
    let pid = args.pid;
    let way = way(args)?;
    if let Some(url) = &args.profile {
        // Before anything is done to the program.
        url.ask()
            .map_err(|why| anyhow!("--pprof {}: {why}", url.as_str()))?;
    }
    let name = thread_name(pid, pid).unwrap_or_default();
    let file = match args.output {
        Some(file) => files::trace_file(file)?,
        None => PathBuf::from(format!("skinflint.{}.{pid}.sft", plain_name(name.trim()))),
    };
    let folder = files::folder_for(Some(&file), None)?;
    let path = std::path::absolute(&file)?;
    let _held = files::Held::take(&path)?;
    // Before anything is written: a limit of file size is an error of a write then, and no end.
    signals::install_handlers();
    let session = Session::start(Options {
        folder,
        apart: Some(name.trim().to_owned()),
        file: Some(path),
        level: args.level,
        mark_signal: None,
        paused: args.paused,
        attached: true,
        watched: None,
        looks: args.looks,
        objects: false,
        sample: args.sample,
        bounds: args.bounds.clone(),
        served: args.profile.is_some(),
    })
    .map_err(files::cannot_start)?;
    session.child_started(pid);
    if !matches!(way, Way::Recorder) {
        return from_outside(args, way, session, (name.trim(), &file), tell);
    }
    let recorder = installed::recorder()?;
    let late_sockets = session.late_sockets();
    let answer = in_program(&Asked {
        pid,
        library: &recorder,
        function: "skinflint_attach",
        socket: &session.socket(),
        patience: ATTACHING,
        elsewhere: has_other_network(pid).then_some(&late_sockets),
    })?;
    let entries = attached(pid, answer.result)?;
    session.joined();
    if let Some(url) = &args.profile {
        session.keep_profile(pid, url.clone(), true)?;
    }
    tell(News::Begun(&format!(
        "recording {} ({pid}) into {}; {entries} entries lead to the recorder; {}; Ctrl-C or `skinflint detach {pid}` \
         leaves it",
        name.trim(),
        file.display(),
        stood_still(answer.stood_still)
    )));
    let until = args
        .for_s
        .map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    let lives = wait(pid, &session, until);
    if lives {
        session.leave_now();
    }
    if lives && args.looks {
        // This comes before it is made to leave: a process has one tracer.
        session.look_now();
    }
    if lives {
        match leave(pid, &recorder, &session, entries) {
            Ok(Some(stood)) => {
                session.settle();
                tell(News::Left(&format!("left {pid}; {}", stood_still(stood))));
            }
            Ok(None) => {}
            Err(trouble) => tell(News::Trouble(&trouble)),
        }
    }
    let (recorded, news) = session.finish_with_news();
    news.iter().for_each(|news| tell(News::Trouble(news)));
    Ok(recorded)
}

/// How a running program is recorded.
enum Way {
    /// By a recorder that is put into it.
    Recorder,
    /// None can be: its heap is read from outside.
    Heap(Box<GoProgram>),
    /// None can be: the profile that it serves is all that there is.
    Profile,
}

/// Finds out how a program can be recorded (G1).
fn way(args: &Target<'_>) -> Result<Way> {
    let Err(why) = check(args.pid) else {
        return Ok(Way::Recorder);
    };
    // What is left is of a process that has memory and may be looked at.
    let is_there = maps_text(args.pid).is_some_and(|maps| !maps.is_empty());
    let exe = PathBuf::from(format!("/proc/{}/exe", args.pid));
    let way = match (GoProgram::of(&exe), &args.profile) {
        _ if !is_there => return Err(why),
        (_, Some(_)) => Way::Profile,
        (Some(Ok(program)), None) if !program.calls_c() => Way::Heap(Box::new(program)),
        _ => return Err(why),
    };
    let of_a_recorder = [
        (args.looks, "--reachable"),
        (args.sample.is_some(), "--sample"),
        (args.bounds.is_some(), "a bounded recording"),
        (args.paused, "--paused"),
    ];
    if let Some((_, option)) = of_a_recorder.iter().find(|(is_wanted, _)| *is_wanted) {
        bail!(
            "{}: no recorder can be put into it, so its heap profile is read from outside, and {option} has nothing to do; \
             leave it out",
            args.pid
        );
    }
    Ok(way)
}

/// Records a running program from outside until it ends or is left.
fn from_outside(
    args: &Target<'_>,
    way: Way,
    session: Session,
    (name, file): (&str, &Path),
    tell: &dyn Fn(News<'_>),
) -> Result<Vec<Recorded>> {
    let pid = args.pid;
    match (way, &args.profile) {
        (Way::Heap(program), _) => session.watcher().begin(pid, *program)?,
        (_, Some(url)) => session.keep_profile(pid, url.clone(), false)?,
        _ => {}
    }
    session.joined();
    tell(News::Begun(&format!(
        "recording the heap profile of {name} ({pid}) from outside into {}; Ctrl-C or `skinflint detach {pid}` leaves it",
        file.display()
    )));
    let until = args
        .for_s
        .map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    if wait(pid, &session, until) {
        session.leave_now();
    }
    let (recorded, news) = session.finish_with_news();
    news.iter().for_each(|news| tell(News::Trouble(news)));
    Ok(recorded)
}

/// Says how long the program was kept from running.
fn stood_still(time: Duration) -> String {
    format!(
        "one thread stood still for {:.1} ms",
        time.as_secs_f64() * 1e3
    )
}

/// Whether a process is in a network namespace other than ours: there are no abstract names of ours in it.
fn has_other_network(pid: u32) -> bool {
    let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
    of(&pid.to_string()) != of("self")
}

/// Has a program leave the recorder (G3). Returns how long it stood still, or what is not as it was, in words.
fn leave(
    pid: u32,
    recorder: &Path,
    session: &Session,
    entries: i64,
) -> Result<Option<Duration>, String> {
    let left = in_program(&Asked {
        pid,
        library: recorder,
        function: "skinflint_detach",
        socket: &session.socket(),
        patience: LEAVING,
        elsewhere: None,
    });
    match left {
        Ok(Answer { result, .. }) if result >= 0 && result < entries => Err(format!(
            "{result} of {entries} entries were put back; the others were in modules that are gone"
        )),
        Ok(Answer {
            result,
            stood_still,
        }) if result >= 0 => Ok(Some(stood_still)),
        // The program may have ended meanwhile: then there is nothing to put back.
        Err(_) if !is_alive(pid) => Ok(None),
        Ok(Answer { result, .. }) => Err(format!(
            "detaching gave {result}; {pid} goes on through the recorder, which passes calls on"
        )),
        Err(error) => Err(format!(
            "{error:#}; {pid} goes on through the recorder, which passes calls on"
        )),
    }
}

/// Tells the session that attached to a program to leave it.
///
/// # Errors
/// If there is no such session.
pub fn detach(pid: u32) -> Result<()> {
    let found = under_way::session_of(Some(pid))?;
    under_way::ask(&found.socket, &Request::Detach)?;
    // Waits until the session has ended: then the program is as it was, and the trace is whole.
    let until = Instant::now() + DETACHING;
    while Instant::now() < until {
        if control::ask(&found.socket, &Request::Status).is_err() {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
    bail!(
        "{pid}: still being detached from after {:?}; skinflint {} says why",
        DETACHING,
        found.status.collector
    )
}

/// Waits for the end of the recording. Returns whether the program is still alive.
fn wait(pid: u32, session: &Session, until: Option<Instant>) -> bool {
    loop {
        let alive = is_alive(pid);
        // Not `living`, which is counted by a thread that may not have come to it yet.
        if !alive || session.pids().is_empty() && session.met() > 0 {
            return alive;
        }
        let over = until.is_some_and(|until| Instant::now() >= until);
        if over || session.is_to_leave() || signals::interrupts() > 0 {
            return true;
        }
        signals::pass_on_marks(session);
        std::thread::sleep(LOOK);
    }
}

/// Reports whether a process still has memory: it has not ended, and is not a zombie.
fn is_alive(pid: u32) -> bool {
    maps_text(pid).is_some_and(|maps| !maps.is_empty())
}

/// Turns a negative answer of `skinflint_attach` into an error.
fn attached(pid: u32, code: i64) -> Result<i64> {
    match code {
        1.. => Ok(code),
        0 => bail!(
            "{pid}: no module calls an allocator through its tables: it is linked with -Bsymbolic or -static-pie, or \
             brings an allocator of its own; start it by `skinflint record` to see what there is"
        ),
        -1 | -5 => bail!("{pid}: is being recorded already; `skinflint ctl {pid} status`"),
        -2 => bail!("the socket's path is too long: set TMPDIR to a shorter folder"),
        -3 => bail!(
            "{pid}: the recorder in it cannot reach the collector: it has no descriptor left, no memory, or a rule of the \
             system (SELinux, AppArmor, Landlock) keeps it from sockets; start it with `skinflint record`"
        ),
        -4 => bail!(
            "{pid}: was attached to 255 times since it started, which is the most: what each left stays in it; restart it"
        ),
        code => bail!("{pid}: the recorder answered {code}"),
    }
}

/// Checks what can be known before the program is stopped (G1).
fn check(pid: u32) -> Result<()> {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    if !folder.exists() {
        bail!("{pid}: no such process");
    }
    if stat::stat(pid).is_some_and(|stat| stat.is_dead()) {
        bail!("{pid}: has ended, and its parent has not asked for its status yet (a zombie)");
    }
    let maps = std::fs::read_to_string(folder.join("maps")).map_err(|error| {
        anyhow::anyhow!("{pid}: its memory cannot be looked at: {error}; {WHO_MAY}")
    })?;
    if maps.is_empty() {
        bail!("{pid}: has no memory of its own (a kernel thread, or a process that has ended)");
    }
    if is_narrow(&folder) {
        bail!("{pid}: runs 32-bit code; the recorder is a 64-bit library, and there is no other");
    }
    let has = |library: &str| maps.lines().any(|line| line.contains(library));
    if has("/ld-musl-") {
        bail!("{pid}: its C library is musl; the recorder is a library for glibc");
    }
    if !has("/libc.so.6") && !has("/libc-2.") {
        bail!(
            "{pid}: has no glibc (statically linked, or another C library), so nothing can be loaded into it; only a \
             new build can be recorded"
        );
    }
    if let Some(tracer) = status::tracer(pid) {
        bail!("{pid}: process {tracer} (a debugger, strace) is tracing it; end that first");
    }
    Ok(())
}

/// Whether the program of a process is a 32-bit one.
fn is_narrow(folder: &Path) -> bool {
    use std::io::Read;
    let mut head = [0; 5];
    let read =
        std::fs::File::open(folder.join("exe")).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head == *b"\x7fELF\x01"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_32_bits_are_known_by_their_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let is = |head: &[u8]| {
            std::fs::write(folder.path().join("exe"), head).expect("written");
            is_narrow(folder.path())
        };
        assert!(is(b"\x7fELF\x01\x01\x01"));
        assert!(!is(b"\x7fELF\x02\x01\x01"));
        assert!(!is(b"\x7fELF") && !is_narrow(Path::new("/nowhere")));
    }
}
