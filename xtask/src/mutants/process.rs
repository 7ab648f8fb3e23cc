//! A test in a process of its own, under limits.
//!
//! L1  The limit is processor time, which the kernel measures (RLIMIT_CPU): another program's work does not use it
//!     up.
//! L2  A process that waits is ended, too, but only waiting counts: seconds in which no thread of its group could
//!     run. A thread that could run but was given no processor is not waiting, however busy the machine is.
//! L3  Whatever the test started in its group is gone when this returns.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The time that a test may wait, beside twice the length of its plain run, which bounds how long that run waited.
const PATIENCE: Duration = Duration::from_secs(20);
/// The interval between looks at a process.
const LOOK: Duration = Duration::from_secs(1);
/// The limit of resident memory; no test needs more.
const MEMORY_KIB: u64 = 6 << 20;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    Passed,
    Failed,
    /// It used up its processor time.
    Limit,
    /// It waited too long.
    Still,
    Memory,
}

/// How the run ended, and what it took.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub end: End,
    pub cpu: Duration,
    pub wall: Duration,
}

/// The limits of a test.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub cpu: Duration,
    pub plain_wall: Duration,
}

impl Limits {
    /// Returns the limits for a run without a mutant.
    pub fn plain() -> Limits {
        Limits {
            cpu: Duration::from_secs(900),
            plain_wall: Duration::from_secs(60),
        }
    }

    /// Returns the limits for a mutant, from the run without one: `least` and ten times its processor time.
    pub fn beside(plain: &Run, least: Duration) -> Limits {
        Limits {
            cpu: least + plain.cpu * 10,
            plain_wall: plain.wall,
        }
    }
}

/// Runs `binary` with `arguments` in `folder`.
///
/// # Errors
/// If the program cannot be started or watched.
pub fn run(
    binary: &Path,
    arguments: &[&str],
    folder: &Path,
    environment: &[(&str, String)],
    limits: Limits,
) -> Result<Run> {
    let seconds = limits.cpu.as_secs_f64().ceil() as u64;
    let mut command = Command::new(binary);
    command
        .args(arguments)
        .current_dir(folder)
        .env("CARGO_MANIFEST_DIR", folder)
        .env("RUST_BACKTRACE", "0")
        .env_remove("MUTANT")
        .env_remove("MUTANT_REACH")
        .envs(
            environment
                .iter()
                .map(|(name, value)| (*name, value.as_str())),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    // SAFETY: `setrlimit` and `prctl` are safe to call after fork, and touch nothing of ours.
    unsafe {
        command.pre_exec(move || {
            let limit = libc::rlimit {
                rlim_cur: seconds,
                rlim_max: seconds + 2,
            };
            let done = libc::setrlimit(libc::RLIMIT_CPU, &limit);
            // When this program ends, the kernel ends what it runs.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // Without it, core files of mutants that abort would fill the disk.
            let none = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            libc::setrlimit(libc::RLIMIT_CORE, &none);
            if done == 0 {
                Ok(())
            } else {
                Err(std::io::Error::last_os_error())
            }
        });
    }
    let begun = Instant::now();
    let child = command
        .spawn()
        .with_context(|| format!("{} cannot be started", binary.display()))?;
    let group = child.id() as libc::pid_t;
    let ended = watch(group, begun, limits);
    // SAFETY: a group that we made; what is left of it is ended (L3). If none is left, nothing happens.
    unsafe { libc::kill(-group, libc::SIGKILL) };
    ended
}

fn watch(group: libc::pid_t, begun: Instant, limits: Limits) -> Result<Run> {
    let (mut cut, mut waited) = (None, Duration::ZERO);
    let mut looked = Instant::now();
    let mut pause = Duration::from_micros(500);
    loop {
        let mut status = 0;
        // SAFETY: all zeros is a valid `rusage`.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: our own child, waited for here alone; both pointers are to locals.
        let done = unsafe { libc::wait4(group, &mut status, libc::WNOHANG, &mut usage) };
        if done < 0 {
            bail!("wait4: {}", std::io::Error::last_os_error());
        }
        if done == group {
            let cpu = of(usage.ru_utime) + of(usage.ru_stime);
            let end = match cut {
                Some(end) => end,
                None if status == 0 => End::Passed,
                None if libc::WTERMSIG(status) == libc::SIGXCPU || cpu >= limits.cpu => End::Limit,
                None => End::Failed,
            };
            return Ok(Run {
                end,
                cpu,
                wall: begun.elapsed(),
            });
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
        if looked.elapsed() < LOOK || cut.is_some() {
            continue;
        }
        looked = Instant::now();
        let (can_run, resident_kib) = of_group(group);
        waited += if can_run { Duration::ZERO } else { LOOK };
        if resident_kib > MEMORY_KIB {
            cut = Some(End::Memory);
        } else if waited > PATIENCE + limits.plain_wall * 2 {
            cut = Some(End::Still);
        }
        if cut.is_some() {
            // SAFETY: the group of our own child, which has not been waited for yet.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
    }
}

fn of(time: libc::timeval) -> Duration {
    Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000)
}

/// Reports whether a thread of a group runs or could run, and the resident KiB of its processes.
fn of_group(group: libc::pid_t) -> (bool, u64) {
    let (mut can_run, mut pages) = (false, 0_u64);
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(fields) = fields(&process.path()) else {
            continue;
        };
        // Fields from the state on: 2 is the group, 21 the resident pages.
        if fields.get(2).and_then(|field| field.parse().ok()) != Some(group) {
            continue;
        }
        pages += fields
            .get(21)
            .and_then(|field| field.parse::<u64>().ok())
            .unwrap_or(0);
        let threads = std::fs::read_dir(process.path().join("task"));
        let states = threads
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|thread| fields_of(&thread));
        can_run |= { states }.any(|fields| fields[0] == "R" || fields[0] == "D");
    }
    (can_run, pages * 4)
}

fn fields_of(entry: &std::fs::DirEntry) -> Option<Vec<String>> {
    fields(&entry.path())
}

/// Returns the fields of `/proc/…/stat` behind the name.
fn fields(folder: &Path) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limits: Limits) -> Run {
        run(
            Path::new("/bin/sh"),
            &["-c", script],
            Path::new("/"),
            &[],
            limits,
        )
        .expect("run")
    }

    #[test]
    fn ends_are_told_apart() {
        let plain = Limits::plain();
        assert_eq!(shell("exit 0", plain).end, End::Passed);
        assert_eq!(shell("exit 3", plain).end, End::Failed);
        assert_eq!(shell("kill -SEGV $$", plain).end, End::Failed);
        assert_eq!(
            shell("test -z \"$MUTANT$MUTANT_REACH\"", plain).end,
            End::Passed
        );
        let short = Limits {
            cpu: Duration::from_secs(1),
            plain_wall: Duration::ZERO,
        };
        let spun = shell("while :; do :; done", short);
        assert_eq!(spun.end, End::Limit);
        assert!(spun.cpu * 2 > short.cpu);
    }

    #[test]
    fn what_a_test_leaves_behind_is_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}", file.display());
        assert_eq!(shell(&script, Limits::plain()).end, End::Passed);
        let pid = std::fs::read_to_string(file).expect("a pid");
        let path = Path::new("/proc").join(pid.trim());
        let gone = || fields(&path).is_none_or(|fields| fields[0] == "Z");
        while !gone() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn who_can_run_is_told_from_who_waits() {
        let mut waiting = Command::new("sleep")
            .arg("1000")
            .process_group(0)
            .spawn()
            .expect("sleep");
        let group = waiting.id() as libc::pid_t;
        // It first has to come to rest: it runs while it begins.
        while of_group(group).0 {
            std::thread::yield_now();
        }
        let mut spinning = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .process_group(0)
            .spawn()
            .expect("sh");
        assert!(of_group(spinning.id() as libc::pid_t).0);
        for child in [&mut waiting, &mut spinning] {
            child.kill().expect("killed");
            child.wait().expect("gone");
        }
    }
}
