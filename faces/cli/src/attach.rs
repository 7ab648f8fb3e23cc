//! `skinflint attach` and `detach`: recording a program that is already running.
//!
//! ```text
//!   checks ─► session ─► gdb: dlopen(recorder), skinflint_attach(socket) ─► record … ─► gdb: skinflint_detach() ─► traces
//!                                                 until it ends, Ctrl-C, --for, or `skinflint detach`
//! ```
//!
//! G1  Whatever can be known beforehand is refused before the program is stopped: static programs, other
//!     architectures, missing rights, a recorder that is already loaded.
//! G2  The program is stopped twice, for as long as gdb takes to read its symbols and make four calls.
//! G3  However the recording ends, the program's tables are put back while it lives; if that fails, it is reported,
//!     and the program goes on through functions that only pass calls on.
//!
//! Not here: what happens inside the program (record-so/src/attach.rs), and in gdb (attach.py).

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use skinflint_collect::control::Request;
use skinflint_collect::{Options, Recorded, Session};

use crate::args::{AttachArgs, DetachArgs};
use crate::launch::{self, RECORDER};
use crate::{commands, ctl};

const SCRIPT: &str = include_str!("attach.py");
/// The longest that gdb may take: it reads the symbols of every library.
const GDB_PATIENCE: Duration = Duration::from_secs(120);
/// How often we check whether the recording has ended.
const LOOK: Duration = Duration::from_millis(50);

/// What gdb's script printed.
#[derive(serde::Deserialize, Debug)]
struct Said {
    result: Option<i64>,
    error: Option<String>,
    #[serde(default)]
    why: Option<String>,
}

/// Records a running program until it ends or the recorder leaves it.
///
/// # Errors
/// Whatever keeps the program from being recorded; the program is then as it was.
pub fn attach(args: &AttachArgs) -> Result<u8> {
    let pid = args.pid;
    check(pid)?;
    let recorder = launch::find_library(RECORDER, skinflint_base::env::RECORDER.name())?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let file = match &args.output {
        Some(file) => launch::trace_file(file)?,
        None => PathBuf::from(format!("skinflint.{}.{pid}.sft", plain(name.trim()))),
    };
    let folder = launch::folder_for(Some(&file), None)?;
    let session = Session::start(Options {
        folder,
        file: Some(std::path::absolute(&file)?),
        level: args.level,
        mark_signal: None,
        paused: args.paused,
        attached: true,
        watched: None,
        looks: args.reachable,
    })
    .context("the collector cannot start")?;
    session.child_started(pid);
    launch::install_handlers();
    let begun = Instant::now();
    let entries = in_program(pid, &recorder, "skinflint_attach", &session.socket())?;
    let entries = attached(pid, entries)?;
    session.joined();
    if !args.quiet {
        say!(
            "skinflint: recording {} ({pid}) into {}; {entries} entries lead to the recorder; attached within {:.1} s; \
             Ctrl-C or `skinflint detach {pid}` leaves it",
            name.trim(),
            file.display(),
            begun.elapsed().as_secs_f64()
        );
    }
    let until = args
        .for_s
        .map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    let lives = wait(pid, &session, until);
    if lives && args.reachable {
        // This comes before gdb traces it: a process has one tracer.
        session.look_now();
    }
    if lives {
        let left = in_program(pid, &recorder, "skinflint_detach", &session.socket());
        // The program may have ended meanwhile: then there is nothing to put back.
        match left.or_else(|error| {
            if is_alive(pid) {
                Err(error)
            } else {
                Ok(entries)
            }
        }) {
            Ok(restored) if restored >= 0 && restored < entries => say!(
                "skinflint: {restored} of {entries} entries were put back; the others were in modules that are gone"
            ),
            Ok(restored) if restored >= 0 => {}
            Ok(code) => say!(
                "skinflint: detaching gave {code}; {pid} goes on through the recorder, which passes calls on"
            ),
            Err(error) => say!(
                "skinflint: {error:#}; {pid} goes on through the recorder, which passes calls on"
            ),
        }
    }
    let recorded: Vec<Recorded> = session.finish();
    if !args.quiet {
        for trace in &recorded {
            say!("skinflint: {}", commands::one_line(trace));
            commands::say_looks(trace);
        }
    }
    Ok(0)
}

/// Tells the session that attached to a program to leave it.
///
/// # Errors
/// If there is no such session.
pub fn detach(args: &DetachArgs) -> Result<u8> {
    let found = ctl::session_of(Some(args.pid))?;
    ctl::ask(&found.socket, &Request::Detach)?;
    // Waits until the session has ended: then the program is as it was, and the trace is whole.
    let until = Instant::now() + GDB_PATIENCE;
    while Instant::now() < until {
        if skinflint_collect::control::ask(&found.socket, &Request::Status).is_err() {
            return Ok(0);
        }
        std::thread::sleep(LOOK);
    }
    bail!(
        "{}: still being detached from after {GDB_PATIENCE:?}; skinflint {} says why",
        args.pid,
        found.status.collector
    )
}

/// Waits for the end of the recording. Returns whether the program is still alive.
fn wait(pid: u32, session: &Session, until: Option<Instant>) -> bool {
    loop {
        let alive = is_alive(pid);
        if !alive || session.living() == 0 && session.met() > 0 {
            return alive;
        }
        let over = until.is_some_and(|until| Instant::now() >= until);
        if over || session.is_to_leave() || launch::interrupted() {
            return true;
        }
        launch::pass_on_marks(session);
        std::thread::sleep(LOOK);
    }
}

/// Reports whether a process still has memory: it has not ended, and is not a zombie.
fn is_alive(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/maps")).is_ok_and(|maps| !maps.is_empty())
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
            "{pid}: the recorder in it cannot reach the collector: another network or mount namespace (a container), \
             a seccomp filter, or no memory; run skinflint where the program runs"
        ),
        -4 => {
            bail!("{pid}: was attached to more often than the recorder can tell apart; restart it")
        }
        code => bail!("{pid}: the recorder answered {code}"),
    }
}

/// Returns a name that a file can have.
fn plain(name: &str) -> String {
    let plain = |c: char| {
        if c.is_alphanumeric() || "._-+".contains(c) {
            c
        } else {
            '_'
        }
    };
    name.chars().map(plain).collect()
}

/// Checks what can be known before the program is stopped (G1).
fn check(pid: u32) -> Result<()> {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    if !folder.exists() {
        bail!("{pid}: no such process");
    }
    let maps = std::fs::read_to_string(folder.join("maps")).map_err(|error| {
        anyhow::anyhow!("{pid}: its memory cannot be looked at: {error}; be its user, or root")
    })?;
    if maps.is_empty() {
        bail!("{pid}: has no memory of its own (a kernel thread, or a process that has ended)");
    }
    let has = |library: &str| maps.lines().any(|line| line.contains(library));
    if !has("/libc.so.6") && !has("/libc-2.") {
        bail!(
            "{pid}: has no glibc (statically linked, or another C library), so nothing can be loaded into it; only a \
             new build can be recorded"
        );
    }
    let status = std::fs::read_to_string(folder.join("status")).unwrap_or_default();
    let tracer = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"));
    if let Some(tracer) = tracer.map(str::trim).filter(|tracer| *tracer != "0") {
        bail!("{pid}: process {tracer} (a debugger, strace) is tracing it; end that first");
    }
    Ok(())
}

/// Makes the program call one of the recorder's two functions, and returns the result.
fn in_program(pid: u32, recorder: &Path, function: &str, socket: &Path) -> Result<i64> {
    // The recorder must be found under its name in the program's view of the file system, and by the user that it
    // runs as.
    let asked = serde_json::json!({
        "pid": pid,
        "library": recorder,
        "call": function,
        "socket": socket,
    });
    let mut script = tempfile::Builder::new()
        .prefix("skinflint-")
        .suffix(".py")
        .tempfile()
        .context(
            "no file for gdb's script can be made; set TMPDIR to a folder that can be written",
        )?;
    script.write_all(SCRIPT.as_bytes())?;
    let mut child = Command::new("gdb")
        .args(["-nx", "-q", "-batch", "-x"])
        .arg(script.path())
        .env("SKINFLINT_ATTACH", asked.to_string())
        .env_remove("LD_PRELOAD")
        .env_remove("DEBUGINFOD_URLS")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("gdb cannot be started: attaching needs it (apt-get install gdb)")?;
    let said = read_within(&mut child, GDB_PATIENCE)?;
    let line = said
        .lines()
        .find_map(|line| line.strip_prefix("skinflint:"));
    let Some(line) = line else {
        let tail: Vec<&str> = said.lines().rev().take(4).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        bail!(
            "gdb did not do it (it needs Python, as Debian's has): {}",
            tail.join(" / ")
        );
    };
    let said: Said = serde_json::from_str(line).context("gdb's script said what is no JSON")?;
    match (said.result, said.error) {
        (Some(result), _) => Ok(result),
        (None, error) => bail!("{}", refusal(pid, error.as_deref(), said.why.as_deref())),
    }
}

/// Reads all that gdb prints; gdb is killed when its time is over.
fn read_within(child: &mut std::process::Child, patience: Duration) -> Result<String> {
    use std::io::Read;
    let collect = |stream: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(mut stream) = stream {
                let _ = stream.read_to_end(&mut text);
            }
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let out = collect(child.stdout.take().map(|out| Box::new(out) as _));
    let errors = collect(child.stderr.take().map(|err| Box::new(err) as _));
    let until = Instant::now() + patience;
    while child.try_wait()?.is_none() {
        if Instant::now() > until {
            let _ = child.kill();
            let _ = child.wait();
            bail!(
                "gdb was not done within {patience:?} and was ended; if the program stands still, a call in it waits \
                 for a lock: look at it with gdb"
            );
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let text = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
    let errors = text(errors);
    Ok(errors + &text(out))
}

/// Describes what went wrong in gdb, with the next step.
fn refusal(pid: u32, error: Option<&str>, why: Option<&str>) -> String {
    let why = why.unwrap_or_default().trim();
    match error {
        Some("attach") => {
            let scope =
                std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
            let hint = match scope.trim() {
                "" | "0" => "be its user, or root".to_owned(),
                scope => format!(
                    "kernel.yama.ptrace_scope is {scope}: be root, or have root set it to 0"
                ),
            };
            format!("{pid}: gdb may not attach: {why}; {hint}")
        }
        Some("no_dlopen") => format!(
            "{pid}: has no dlopen that gdb can find: statically linked, or a glibc before 2.34"
        ),
        Some("dlopen") => format!(
            "{pid}: cannot load the recorder: {why}; it must be able to read the file (its user, its container)"
        ),
        Some("busy") => format!(
            "{pid}: each of its threads is in the allocator or the loader whenever it is stopped (the last: {why}); \
             try again when it does less"
        ),
        Some("fault") => {
            format!("{pid}: a call in it did not come back ({why}); its registers were put back")
        }
        Some(other) => format!("{pid}: gdb: {other} {why}"),
        None => format!("{pid}: gdb's script said nothing"),
    }
}
