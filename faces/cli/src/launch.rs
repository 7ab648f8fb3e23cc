//! Starting the program with the recorder in front of its allocator, and waiting for it.
//!
//! ```text
//!   skinflint (collector's threads) ── spawn ──► program          signals to us go on to it
//! ```
//!
//! I1  The program's stdin, stdout, stderr, working folder, signal dispositions and exit status are
//!     what they would be without us.
//! I2  INT and QUIT typed at the terminal reach the program by themselves: we only do not die of them. If they are
//!     sent to us alone, we pass them on, as we do TERM and HUP. USR1 marks. After the program has ended, any of them
//!     ends the wait for the processes that it left running.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use skinflint_collect::{ChildEnd, Options, Recorded, Session};
use skinflint_compare::signals;

use crate::args::RecordOptions;
use crate::asked::Asker;
use crate::preflight;

/// Name of the recorder's library.
pub const RECORDER: &str = "libskinflint_record.so";

/// The result of recording.
pub struct Outcome {
    /// The program's wait status.
    pub status: i32,
    /// The program's process id.
    pub pid: u32,
    /// The traces, in the order in which the processes began.
    pub recorded: Vec<Recorded>,
    /// Why the recorder of a process was given no shared memory, if that happened.
    pub refused: Option<String>,
}

impl Outcome {
    /// Returns the exit status: the program's own, 128 + n for signal n; 2 if that would be 0 and a trace could not
    /// be written, for callers that check only the status.
    pub fn exit_code(&self) -> u8 {
        match self.status & 0x7f {
            0 if self.status >> 8 & 0xff == 0 && self.unwritten().next().is_some() => 2,
            0 => (self.status >> 8 & 0xff) as u8,
            signal => 128u8.wrapping_add(signal as u8),
        }
    }

    /// Returns the traces that could not be written, whole or in part.
    pub fn unwritten(&self) -> impl Iterator<Item = &Recorded> {
        self.recorded.iter().filter(|trace| trace.error.is_some())
    }
}

static CHILD: AtomicU32 = AtomicU32::new(0);
static MARKS: AtomicUsize = AtomicUsize::new(0);
static INTERRUPTS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid structure to a handler with SA_SIGINFO.
    let from_terminal = unsafe { (*info).si_code } == libc::SI_KERNEL;
    // ORDER: Relaxed throughout; flags and counts that stand alone.
    let child = CHILD.load(Ordering::Relaxed);
    match signal {
        libc::SIGUSR1 => {
            // ORDER: Relaxed; as above.
            MARKS.fetch_add(1, Ordering::Relaxed);
        }
        libc::SIGXFSZ => {}
        // A key on the terminal has reached the program too.
        libc::SIGINT | libc::SIGQUIT if from_terminal && child != 0 => {}
        _ if child != 0 => {
            // SAFETY: no memory is involved; the child has not been waited for while CHILD is set.
            unsafe { libc::kill(child as i32, signal) };
        }
        _ => {
            // ORDER: Relaxed; as above.
            INTERRUPTS.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Installs handlers instead of ignoring signals: in the program a handler is back to the default after `exec` (I1).
pub fn install_handlers() {
    let signals = [
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGHUP,
        libc::SIGUSR1,
        libc::SIGXFSZ,
    ];
    let flags = libc::SA_RESTART | libc::SA_SIGINFO;
    // SAFETY: the handler only touches atomics and calls `kill`.
    unsafe { signals::handle(&signals, on_signal as *const () as usize, flags) }
        .expect("these can be handled");
}

/// Finds one of our libraries: named by the environment, beside this program, or in `../lib/skinflint`.
///
/// # Errors
/// If the library is in none of these places.
pub fn find_library(library: &str, variable: &str) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        let path = PathBuf::from(path);
        return std::fs::canonicalize(&path)
            .with_context(|| format!("{}: named by {variable}, but not there", path.display()));
    }
    let own = std::env::current_exe().context("the path of this program cannot be found")?;
    let own = own.canonicalize().unwrap_or(own);
    let folder = own.parent().unwrap_or(Path::new("/"));
    let places = [
        folder.join(library),
        folder.join("../lib/skinflint").join(library),
    ];
    places
        .iter()
        .find_map(|place| std::fs::canonicalize(place).ok())
        .with_context(|| {
            format!(
                "{library} is neither in {} nor in ../lib/skinflint; build it with \
             `cargo build --release`, or name it by {variable}",
                folder.display()
            )
        })
}

/// Returns a path as `LD_PRELOAD` can name it.
///
/// # Errors
/// If it cannot name it.
pub fn preloadable(path: &Path) -> Result<&OsStr> {
    let shown = path.to_string_lossy();
    if shown.contains(':') || shown.contains(' ') {
        bail!("{shown}: LD_PRELOAD cannot name a path with spaces or colons; move it elsewhere");
    }
    Ok(path.as_os_str())
}

fn preload_list(recorder: &Path, preload: &[OsString]) -> Result<OsString> {
    let mut list = preloadable(recorder)?.to_owned();
    let inherited = std::env::var_os("LD_PRELOAD").filter(|value| !value.is_empty());
    for library in preload {
        list.push(":");
        list.push(asked_for(library)?);
    }
    if let Some(inherited) = inherited {
        list.push(":");
        list.push(inherited);
    }
    Ok(list)
}

/// Resolves a library of `--preload`. The loader ignores what it does not find, and the program would run without it:
/// so a path must exist, and our own allocator's name alone is enough for it. The loader looks other names up.
fn asked_for(library: &OsStr) -> Result<OsString> {
    let path = Path::new(library);
    if path.as_os_str() == "libskinflint.so" {
        let own = find_library("libskinflint.so", skinflint_base::env::ALLOCATOR.name())?;
        return Ok(preloadable(&own)?.to_owned());
    }
    let many = library.to_string_lossy().contains([':', ' ']);
    if !many && library.as_encoded_bytes().contains(&b'/') {
        std::fs::metadata(path)
            .with_context(|| format!("--preload {}: it cannot be loaded", path.display()))?;
    }
    Ok(library.to_owned())
}

fn signal_number(name: &str) -> Result<i32> {
    const NAMES: [(&str, i32); 8] = [
        ("USR1", libc::SIGUSR1),
        ("USR2", libc::SIGUSR2),
        ("WINCH", libc::SIGWINCH),
        ("URG", libc::SIGURG),
        ("CONT", libc::SIGCONT),
        ("IO", libc::SIGIO),
        ("PWR", libc::SIGPWR),
        ("HUP", libc::SIGHUP),
    ];
    let plain = name.trim_start_matches("SIG");
    if let Some((_, number)) = NAMES.iter().find(|(known, _)| *known == plain) {
        return Ok(*number);
    }
    match name.parse::<i32>() {
        Ok(number) if (1..=64).contains(&number) && ![9, 11, 19].contains(&number) => Ok(number),
        _ => {
            let known: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
            bail!(
                "--mark-signal {name}: not a signal that can mark; use {} or a number",
                known.join(", ")
            )
        }
    }
}

fn folder_of(options: &RecordOptions) -> Result<PathBuf> {
    folder_for(options.output.as_deref(), options.dir.as_deref())
}

/// Returns the folder for traces: the one named, or that of the file, or the current one.
///
/// # Errors
/// If nothing can be written there.
pub fn folder_for(output: Option<&Path>, dir: Option<&Path>) -> Result<PathBuf> {
    let beside = output
        .and_then(|file| file.parent())
        .filter(|p| !p.as_os_str().is_empty());
    let folder = match (dir, beside) {
        (Some(folder), _) => folder.to_owned(),
        (None, Some(folder)) => folder.to_owned(),
        (None, None) => std::env::current_dir().context("the current folder cannot be found")?,
    };
    let option = if dir.is_none() && output.is_some() {
        "--output"
    } else {
        "--dir"
    };
    let probe = folder.join(format!(".skinflint-{}", std::process::id()));
    std::fs::write(&probe, b"").with_context(|| {
        format!(
            "{}: traces cannot be written here; choose another folder with {option}",
            folder.display()
        )
    })?;
    let _ = std::fs::remove_file(&probe);
    std::path::absolute(&folder).context("the folder's path")
}

/// Checks the file that `--output` names: a new one, or one that may be replaced. It must not be a device or a
/// folder: the trace is renamed to this name.
pub fn trace_file(path: &Path) -> Result<PathBuf> {
    if let Ok(meta) = std::fs::symlink_metadata(path)
        && !meta.is_file()
    {
        bail!(
            "{}: is there and is no plain file; name a file of its own with --output",
            path.display()
        );
    }
    Ok(std::path::absolute(path)?)
}

/// Records a program until it and all that it started have ended. Meanwhile `asker` asks its reporters.
///
/// # Errors
/// Whatever keeps the program from being started or recorded; once it runs, nothing is an error.
pub fn record(options: &RecordOptions, asker: &mut Option<Asker>) -> Result<Outcome> {
    let Some(program) = options.command.first() else {
        bail!("no program given; as in: skinflint run -- ls -l");
    };
    preflight::check(program, &preflight::RECORD)?;
    let recorder = find_library(RECORDER, skinflint_base::env::RECORDER.name())?;
    let folder = folder_of(options)?;
    let mark_signal = options
        .mark_signal
        .as_deref()
        .map(signal_number)
        .transpose()?;
    let file = options.output.as_deref().map(trace_file).transpose()?;
    let session = Session::start(Options {
        folder,
        file,
        level: options.level,
        mark_signal,
        paused: options.paused,
        attached: false,
        watched: asker.as_ref().and_then(Asker::watched),
        looks: options.reachable,
    })
    .context("the collector cannot start")?;
    let mut command = Command::new(program);
    command.args(&options.command[1..]);
    command.env("LD_PRELOAD", preload_list(&recorder, &options.preload)?);
    command.envs(session.environment());
    command.arg0(program);
    install_handlers();
    let mut child = command
        .spawn()
        .with_context(|| format!("{}: cannot be started", program.to_string_lossy()))?;
    let pid = child.id();
    CHILD.store(pid, Ordering::Relaxed); // ORDER: Relaxed; read by our own signal handler.
    session.child_started(pid);
    let end = wait(pid, &session, asker);
    CHILD.store(0, Ordering::Relaxed); // ORDER: Relaxed; as above.
    let _ = child.try_wait();
    session.child_ended(end);
    wait_for_the_rest(pid, &session, asker, options.quiet);
    Ok(Outcome {
        status: end.status,
        pid,
        refused: session.refused(),
        recorded: session.finish(),
    })
}

/// Reports whether INT, TERM, QUIT or HUP was sent while there was no child to pass it on to.
pub fn interrupted() -> bool {
    INTERRUPTS.load(Ordering::Relaxed) > 0 // ORDER: Relaxed; a count.
}

/// Makes the marks that USR1 asked for since the last call.
pub fn pass_on_marks(session: &Session) {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    // ORDER: Relaxed; counts.
    while MADE.load(Ordering::Relaxed) < MARKS.load(Ordering::Relaxed) {
        let number = MADE.fetch_add(1, Ordering::Relaxed) + 1;
        session.mark(&format!("mark {number}"));
    }
}

/// Waits for the program, and meanwhile makes marks and asks its reporters.
fn wait(pid: u32, session: &Session, asker: &mut Option<Asker>) -> ChildEnd {
    loop {
        // SAFETY: `info` is ours; WNOWAIT leaves the child to be looked at once more below.
        let ended = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let options = libc::WEXITED | libc::WNOWAIT | libc::WNOHANG;
            let result = libc::waitid(libc::P_PID, pid, &mut info, options);
            // While pointers are looked at, the child's stops are reported here, too: another thread of ours is its
            // tracer.
            let ends = [libc::CLD_EXITED, libc::CLD_KILLED, libc::CLD_DUMPED];
            result != 0 || info.si_pid() != 0 && ends.contains(&info.si_code)
        };
        pass_on_marks(session);
        if ended {
            return reap(pid);
        }
        if let Some(asker) = asker {
            asker.look(session, pid);
        }
        poll_child(pid);
    }
}

/// Waits until the child has ended or a signal has come, for 50 ms at most.
fn poll_child(pid: u32) {
    // SAFETY: plain calls; the descriptor is closed again.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0) as i32;
        let mut polled = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        libc::poll(&mut polled, 1, 50);
        if fd >= 0 {
            libc::close(fd);
        }
    }
}

/// Takes the status of a child that has ended, and the resources that it used.
fn reap(pid: u32) -> ChildEnd {
    let alone = own_cpu_of_zombie(pid);
    // SAFETY: all are ours.
    unsafe {
        let mut status = 0;
        let mut usage: libc::rusage = std::mem::zeroed();
        let mut ours: libc::rusage = std::mem::zeroed();
        libc::wait4(pid as i32, &mut status, 0, &mut usage);
        libc::getrusage(libc::RUSAGE_SELF, &mut ours);
        let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
        let whole = (micros(usage.ru_utime) + micros(usage.ru_stime)) * 1000;
        ChildEnd {
            pid,
            status,
            // wait4 also counts the children that the child waited for; then only the coarse figure is its own.
            cpu_ns: match alone {
                Some((coarse, true)) => Some(coarse),
                Some((_, false)) => Some(whole),
                None => None,
            },
            max_rss_bytes: own_high_water(alone, usage.ru_maxrss, ours.ru_maxrss),
        }
    }
}

/// Returns the child's own high-water mark in bytes, as far as wait4 knows it: a make is not as large as its
/// compilers, and until its exec the child was a copy of ours, whose mark it keeps. Both arguments are in KiB.
fn own_high_water(alone: Option<(u64, bool)>, child: i64, ours: i64) -> Option<u64> {
    let is_own = matches!(alone, Some((_, false))) && child > ours;
    is_own.then_some(child as u64 * 1024)
}

/// Returns the CPU nanoseconds of a process that has ended but was not waited for, in steps of 10 ms; and whether it
/// had children.
fn own_cpu_of_zombie(pid: u32) -> Option<(u64, bool)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    own_cpu(&text)
}

/// Parses the same figures from the text. Children show by their page faults, without which none can begin: their
/// time is 0 ticks if they were quick.
fn own_cpu(text: &str) -> Option<(u64, bool)> {
    let rest = &text[text.rfind(')')? + 1..];
    let fields: Vec<u64> = rest
        .split_ascii_whitespace()
        .skip(7)
        .take(8)
        .flat_map(str::parse)
        .collect();
    let [
        _,
        child_faults,
        _,
        _,
        user,
        system,
        child_user,
        child_system,
    ] = fields[..]
    else {
        return None;
    };
    let had_children = child_faults + child_user + child_system > 0;
    Some(((user + system) * 10_000_000, had_children))
}

/// After the program has ended, waits for the processes that it left running, which are recorded to their end.
fn wait_for_the_rest(pid: u32, session: &Session, asker: &mut Option<Asker>, quiet: bool) {
    let begun = Instant::now();
    let interrupts = INTERRUPTS.load(Ordering::Relaxed); // ORDER: Relaxed; a count.
    let mut said = quiet;
    loop {
        let living = session.living();
        if living == 0 && begun.elapsed() > Duration::from_millis(5) {
            return;
        }
        if INTERRUPTS.load(Ordering::Relaxed) != interrupts {
            return;
        }
        if let Some(asker) = asker.as_mut().filter(|_| living > 0) {
            asker.look(session, pid);
        }
        if !said && begun.elapsed() > Duration::from_secs(1) {
            said = true;
            let plural = if living == 1 { "process" } else { "processes" };
            say!(
                "skinflint: the program has ended and left {living} {plural} running; still \
                 recording (Ctrl-C stops recording, they go on)"
            );
        }
        std::thread::sleep(Duration::from_millis(3));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_by_name_and_number() {
        assert_eq!(signal_number("USR2").ok(), Some(libc::SIGUSR2));
        assert_eq!(signal_number("SIGUSR1").ok(), Some(libc::SIGUSR1));
        assert_eq!(signal_number("34").ok(), Some(34));
        for wrong in ["KILL", "9", "0", "99", ""] {
            assert!(signal_number(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_preload_path_with_spaces_is_refused() {
        assert!(preload_list(Path::new("/a b/x.so"), &[]).is_err());
        let missing = preload_list(Path::new("/a/x.so"), &["/none/b.so".into()]);
        assert!(
            missing
                .unwrap_err()
                .to_string()
                .contains("--preload /none/b.so")
        );
        let list = preload_list(Path::new("/a/x.so"), &["libjemalloc.so.2".into()]).expect("fine");
        assert!(
            list.to_string_lossy()
                .starts_with("/a/x.so:libjemalloc.so.2")
        );
    }

    #[test]
    fn a_quick_child_is_seen_by_its_page_faults() {
        let stat =
            |faults, time| format!("7 (a) b) Z 1 7 7 0 -1 0 90 {faults} 0 0 3 2 {time} 0 20");
        assert_eq!(own_cpu(&stat(0, 0)), Some((50_000_000, false)));
        assert_eq!(own_cpu(&stat(80, 0)), Some((50_000_000, true)));
        assert_eq!(own_cpu(&stat(0, 1)), Some((50_000_000, true)));
        assert_eq!(own_cpu("7 (a) Z 1"), None);
    }

    #[test]
    fn what_the_child_was_before_its_exec_is_not_its_mark() {
        assert_eq!(
            own_high_water(Some((0, false)), 9000, 8000),
            Some(9000 << 10)
        );
        assert_eq!(
            own_high_water(Some((0, false)), 8000, 8000),
            None,
            "a copy of ours"
        );
        assert_eq!(
            own_high_water(Some((0, true)), 9000, 8000),
            None,
            "perhaps its child's"
        );
        assert_eq!(own_high_water(None, 9000, 8000), None);
    }
}
