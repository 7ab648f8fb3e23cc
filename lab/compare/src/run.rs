//! A run: starts the program, measures its memory until it ends, and reports how it ended and what it used.
//!
//! ```text
//!   spawn ─► look ─ wait (pidfd, until the next look) ─► look ─ … ─► ended ─► wait4 ─► what it left is ended too
//!              │        │ limit, idle, Ctrl-C: SIGKILL or SIGTERM
//!              └─► (ms, bytes)
//! ```
//!
//! R1  The program's stdin is a file or nothing, its stdout and stderr are files: no pipe that can fill, no terminal.
//! R2  No wait without a bound: the limit, then SIGKILL to the whole tree.
//! R3  A look is planned on a fixed grid; if one was late the next keeps to the grid, and the gap is in the figures.
//!     Samples are bounded in number, a long run is looked at more rarely; looking takes at most a tenth of a
//!     processor, unless a look takes four intervals.
//! R4  CPU time, faults and moved bytes are those that the kernel reports for the program and for what it and we waited for.
//! R5  The program may not outlive this process: it gets SIGKILL when the thread that started it ends.
//! R6  One run at a time in a process: any other child of it is taken for an orphan of the run (tree.T2).
//!
//! Not here: which program and allocator (rounds.rs), when a program is idle (idle.rs), what follows from samples (figures.rs).

use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use skinflint_procfs::Moved;

use crate::idle::{Activity, IdleWindow};
use crate::model::Point;
use crate::tree::{Held, Tree};

/// Set by a caller that wants everything to end: the run under way is ended, no other is begun.
pub static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Reports whether [`INTERRUPTED`] is set.
pub fn is_interrupted() -> bool {
    // ORDER: Relaxed; a flag that stands alone, read every few milliseconds.
    INTERRUPTED.load(Ordering::Relaxed)
}

/// The number of looks between two searches for new processes.
const LOOKS_A_SEARCH: u64 = 4;
/// The time that processes left behind by the program may go on before they are asked to end, and then made to.
const GRACE: Duration = Duration::from_millis(300);
/// The time that a program has after it was asked to end.
const ENDING: Duration = Duration::from_secs(5);
/// The most intervals of rest after an expensive look.
const MOST_REST: u32 = 3;
/// The number of samples that are kept; at 10 ms this is a quarter of an hour. Then every second one is removed and
/// the interval doubles.
const MOST_SAMPLES: usize = 100_000;

/// The inputs of a run.
#[derive(Clone, Debug)]
pub struct Job {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// Variables added to the environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The file for the program's stdin; nothing if none.
    pub input: Option<PathBuf>,
    /// The folder for its stdout and stderr, as files `out` and `err`.
    pub folder: PathBuf,
    /// The longest time that it may take.
    pub limit: Duration,
    /// The time without work after which it is asked to end; time in which it waits for a processor does not count
    /// (idle.rs).
    pub idle: Option<Duration>,
    /// Time between looks.
    pub interval: Duration,
    /// A library that every process should have loaded; a process that has not is reported. Makes looks more
    /// expensive.
    pub library: Option<String>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It ended by itself.
    Status(i32),
    /// A signal that we did not send ended it.
    Signal(i32),
    /// It was idle, and we asked it to end.
    Idle,
    /// It was not done in time.
    Limit,
    /// [`INTERRUPTED`] was set.
    Interrupted,
}

/// The result of a run.
#[derive(Debug)]
pub struct Done {
    /// Process id that it had.
    pub pid: u32,
    /// How it ended.
    pub ended: Ended,
    /// The time from the start to the end.
    pub elapsed: Duration,
    /// User time.
    pub user_ns: u64,
    /// System time.
    pub system_ns: u64,
    /// Faults served without I/O.
    pub minor_faults: u64,
    /// What calls of `read` and `write` moved; none if the kernel told it of one of the processes only in part.
    pub moved: Option<Moved>,
    /// Memory, by milliseconds since the start.
    pub samples: Vec<Point>,
    /// The life of the process that held most at the peak, milliseconds: what comes after is the end of its wrappers.
    pub main_ended_ms: f64,
    /// The highest high-water mark of the kernel, for a program of one process.
    pub high_water_bytes: Option<u64>,
    /// The most bytes swapped out.
    pub swapped_bytes: u64,
    /// The most processes at a time.
    pub processes: u32,
    /// Processes that it left and that were ended.
    pub left: u32,
    /// The most bytes that processes with [`Job::library`] held at a time.
    pub with_library_bytes: u64,
    /// The most bytes that one process without it held, and its program.
    pub without_library: Option<(u64, String)>,
    /// Digest of its stdout.
    pub output: u64,
    /// Last line on its stderr, without control characters.
    pub said: String,
}

/// Makes orphans of what we start come to this process (R4); repeated calls do no harm.
fn become_reaper() {
    // SAFETY: no memory is involved. Without it orphans' time would be missing, no more.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// Runs a job to its end, whatever the end is.
///
/// # Errors
/// If it cannot be started, or its files cannot be made.
pub fn run(job: &Job) -> io::Result<Done> {
    let out = job.folder.join("out");
    let err = job.folder.join("err");
    let mut command = prepared(job, &out, &err)?;
    become_reaper();
    let begun = Instant::now();
    let mut child = command.spawn()?;
    let mut watch = Watch::new(job, &child, begun);
    let ended = watch.until_end(&mut child);
    let elapsed = begun.elapsed();
    let mut usage = Usage::default();
    let status = reap(child.id(), &mut usage);
    let left = end_the_rest(&mut watch.tree, &mut usage);
    // std must know it as well, so that it does not wait for a process id that may belong to another process by now.
    let _ = child.try_wait();
    let ended = match (ended, status) {
        (Some(ended), _) => ended,
        (None, Some(status)) if libc::WIFSIGNALED(status) => Ended::Signal(libc::WTERMSIG(status)),
        (None, Some(status)) => Ended::Status(libc::WEXITSTATUS(status)),
        (None, None) => return Err(io::Error::other("the program's end was lost")),
    };
    Ok(Done {
        pid: child.id(),
        ended,
        elapsed,
        user_ns: usage.user_ns,
        system_ns: usage.system_ns,
        minor_faults: usage.minor_faults,
        moved: (!usage.is_moved_unknown).then_some(usage.moved),
        samples: std::mem::take(&mut watch.samples),
        main_ended_ms: watch.main.2,
        high_water_bytes: watch.high_water_bytes,
        swapped_bytes: watch.swapped_bytes,
        processes: watch.processes,
        left,
        with_library_bytes: watch.with_library_bytes,
        without_library: watch.without_library.take(),
        output: digest(&out)?,
        said: last_line(&err),
    })
}

fn prepared(job: &Job, out: &Path, err: &Path) -> io::Result<Command> {
    let Some((program, arguments)) = job.command.split_first() else {
        return Err(io::Error::other("no program given"));
    };
    let input = match &job.input {
        Some(path) => Stdio::from(File::open(path)?),
        None => Stdio::null(),
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(job.environment.iter().map(|(name, value)| (name, value)))
        .stdin(input)
        .stdout(File::create(out)?)
        .stderr(File::create(err)?)
        .process_group(0);
    // SAFETY: one system call, which is all that may be done between fork and exec (R5).
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    Ok(command)
}

/// A program under way.
struct Watch<'a> {
    job: &'a Job,
    begun: Instant,
    tree: Tree,
    interval: Duration,
    /// The highest memory so far, the process that held most of it then, and when that process was last seen.
    main: (u64, u32, f64),
    pidfd: i32,
    samples: Vec<Point>,
    high_water_bytes: Option<u64>,
    swapped_bytes: u64,
    processes: u32,
    with_library_bytes: u64,
    without_library: Option<(u64, String)>,
    idle: Option<IdleWindow>,
}

impl Watch<'_> {
    fn new<'a>(job: &'a Job, child: &Child, begun: Instant) -> Watch<'a> {
        // SAFETY: no memory is involved. Should the kernel refuse, ends are noticed at the next look.
        let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) } as i32;
        Watch {
            job,
            begun,
            tree: Tree::new(child.id()),
            interval: job.interval,
            main: (0, child.id(), 0.0),
            pidfd,
            samples: Vec::new(),
            high_water_bytes: None,
            swapped_bytes: 0,
            processes: 0,
            with_library_bytes: 0,
            without_library: None,
            idle: job.idle.map(IdleWindow::new),
        }
    }

    /// Looks until the program has ended. Returns `None` if it ended by itself.
    fn until_end(&mut self, child: &mut Child) -> Option<Ended> {
        let mut planned = self.begun;
        let mut looks = 0_u64;
        loop {
            let before = thread_cpu();
            if looks.is_multiple_of(LOOKS_A_SEARCH) {
                self.tree.look();
            }
            self.sample();
            looks += 1;
            // Looking takes at most a tenth of a processor, but rests no more than some intervals.
            let cost = thread_cpu() - before;
            let rest = (cost * 9).min(self.interval * MOST_REST);
            let now = Instant::now();
            while planned < now + rest.max(Duration::from_nanos(1)) {
                planned += self.interval;
            }
            if self.wait(planned - now, child.id()) {
                return None;
            }
            if let Some(ended) = self.must_end() {
                self.end(ended, child.id());
                return Some(ended);
            }
        }
    }

    fn sample(&mut self) {
        let held: Held = self.tree.held(self.interval);
        if held.processes == 0 {
            return;
        }
        if let Some(library) = &self.job.library {
            let (with, without) = self.tree.with_and_without(library);
            self.with_library_bytes = self.with_library_bytes.max(with);
            self.without_library = self.without_library.take().max(without);
        }
        let at = self.begun.elapsed().as_secs_f64() * 1e3;
        self.samples.push((at, held.rss_bytes));
        let (peak, main, _) = self.main;
        match held.largest {
            Some((_, largest)) if held.rss_bytes > peak => {
                self.main = (held.rss_bytes, largest, at);
            }
            _ if self.tree.is_alive(main) => self.main.2 = at,
            _ => {}
        }
        if self.samples.len() >= MOST_SAMPLES {
            thin(&mut self.samples);
            self.interval *= 2;
        }
        self.swapped_bytes = self.swapped_bytes.max(held.swap_bytes);
        self.processes = self.processes.max(held.processes);
        self.high_water_bytes = self.high_water_bytes.max(held.high_water_bytes);
    }

    /// Waits for the next look; returns whether the program has ended meanwhile.
    fn wait(&self, time: Duration, pid: u32) -> bool {
        let mut polled = libc::pollfd {
            fd: self.pidfd,
            events: libc::POLLIN,
            revents: 0,
        };
        let time = libc::timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        // SAFETY: both are ours; a descriptor below 0 is left out, and the time is waited for.
        let ready = unsafe { libc::ppoll(&mut polled, 1, &time, std::ptr::null()) };
        ready > 0 || (self.pidfd < 0 && has_ended(pid))
    }

    /// Reports whether the run is over although the program is not.
    fn must_end(&mut self) -> Option<Ended> {
        if is_interrupted() {
            return Some(Ended::Interrupted);
        }
        if self.begun.elapsed() > self.job.limit {
            return Some(Ended::Limit);
        }
        let window = self.idle.as_mut()?;
        let now = self.begun.elapsed();
        if !window.is_due(now) {
            return None;
        }
        // A child that works and is not known yet would otherwise be missed.
        self.tree.look();
        let seen = Activity::of(self.tree.members(), self.tree.cpu());
        window.was_idle(now, seen).then_some(Ended::Idle)
    }

    /// Ends the program; also its children, if it is not asked politely.
    fn end(&mut self, ended: Ended, pid: u32) {
        if ended == Ended::Idle {
            // SAFETY: no memory is involved; the program has not been waited for.
            unsafe { libc::kill(pid as i32, libc::SIGTERM) };
            let begun = Instant::now();
            while begun.elapsed() < ENDING && !is_interrupted() {
                if self.wait(Duration::from_millis(20), pid) {
                    return;
                }
            }
        }
        let begun = Instant::now();
        while begun.elapsed() < ENDING {
            self.tree.look();
            self.tree.signal(libc::SIGKILL);
            if self.wait(Duration::from_millis(10), pid) {
                return;
            }
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if self.pidfd >= 0 {
            // SAFETY: the descriptor is ours.
            unsafe { libc::close(self.pidfd) };
        }
    }
}

/// Returns the CPU time of this thread.
fn thread_cpu() -> Duration {
    // SAFETY: the structure is ours; the clock is always there.
    unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}

/// Keeps the higher one of each two samples: the peak stays, and no low is made up.
fn thin(samples: &mut Vec<Point>) {
    let kept = samples.chunks(2).filter_map(|pair| {
        let higher = |a: &&Point, b: &&Point| a.1.cmp(&b.1);
        pair.iter().max_by(higher).copied()
    });
    *samples = kept.collect();
}

fn has_ended(pid: u32) -> bool {
    // SAFETY: `info` is ours; WNOWAIT leaves the child to be waited for.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOWAIT | libc::WNOHANG;
        libc::waitid(libc::P_PID, pid, &mut info, options) != 0 || info.si_pid() != 0
    }
}

/// The resources that processes used.
#[derive(Default)]
struct Usage {
    user_ns: u64,
    system_ns: u64,
    minor_faults: u64,
    moved: Moved,
    /// Whether `moved` lacks that of a process.
    is_moved_unknown: bool,
}

impl Usage {
    /// Adds what a process moved, and the children that it waited for.
    fn add_moved(&mut self, moved: Option<Moved>) {
        let known = moved.unwrap_or_default();
        self.is_moved_unknown |= moved.is_none();
        self.moved.read_bytes += known.read_bytes;
        self.moved.written_bytes += known.written_bytes;
    }
}

/// Waits for a child that has ended, and returns its wait status.
fn reap(pid: u32, usage: &mut Usage) -> Option<i32> {
    // SAFETY: both are ours.
    unsafe {
        let mut status = 0;
        let mut used: libc::rusage = std::mem::zeroed();
        // A child that SIGKILL has not ended by now hangs in the kernel: it is not waited for.
        let begun = Instant::now();
        while begun.elapsed() < ENDING {
            // Until it is waited for.
            let moved = has_ended(pid).then(|| skinflint_procfs::moved(pid));
            let waited = libc::wait4(pid as i32, &mut status, libc::WNOHANG, &mut used);
            if waited == pid as i32 {
                usage.add_moved(moved.flatten());
                let ns = |time: libc::timeval| {
                    time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000
                };
                usage.user_ns += ns(used.ru_utime);
                usage.system_ns += ns(used.ru_stime);
                usage.minor_faults += used.ru_minflt as u64;
                return Some(status);
            }
            if waited < 0 {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }
}

/// Ends what the program left: after some grace by SIGTERM, then by SIGKILL. Returns how many had to be ended.
fn end_the_rest(tree: &mut Tree, usage: &mut Usage) -> u32 {
    let begun = Instant::now();
    let mut asked = 0;
    loop {
        tree.forget_root();
        tree.look();
        for pid in tree.members().to_vec() {
            if has_ended(pid) {
                reap(pid, usage);
            }
        }
        tree.look();
        let rest = tree.members().len() as u32;
        if rest == 0 || begun.elapsed() > 2 * GRACE + ENDING {
            return asked;
        }
        if begun.elapsed() > GRACE && asked == 0 {
            asked = rest;
            tree.signal(libc::SIGTERM);
        } else if begun.elapsed() > 2 * GRACE {
            tree.signal(libc::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns a digest of a file's bytes.
fn digest(path: &Path) -> io::Result<u64> {
    let mut hasher = DefaultHasher::new();
    let mut file = File::open(path)?;
    let mut buffer = vec![0_u8; 64 << 10];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(hasher.finish());
        }
        hasher.write(&buffer[..count]);
    }
}

/// Returns the last line of a file that is not empty, shortened, without control characters.
fn last_line(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let tail = &bytes[bytes.len().saturating_sub(4096)..];
    let text = String::from_utf8_lossy(tail);
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    let shown = line.unwrap_or("").chars().filter(|c| !c.is_control());
    shown.take(160).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(folder: &Path, script: &str) -> Job {
        Job {
            command: ["sh", "-c", script].map(OsString::from).to_vec(),
            environment: vec![],
            input: None,
            folder: folder.to_owned(),
            limit: Duration::from_secs(240),
            idle: None,
            interval: Duration::from_millis(5),
            library: None,
        }
    }

    fn done(script: &str, change: impl Fn(&mut Job)) -> Done {
        let _alone = crate::alone();
        let folder = tempfile::tempdir().expect("a folder");
        let mut job = job(folder.path(), script);
        change(&mut job);
        run(&job).expect("run")
    }

    #[test]
    fn what_calls_moved_is_counted_with_the_children() {
        let script =
            "dd if=/dev/zero bs=1000 count=3000 status=none | dd of=/dev/null bs=1000 status=none";
        let idle = done("true", |_| ());
        let busy = done(script, |_| ());
        let (Some(idle), Some(busy)) = (idle.moved, busy.moved) else {
            // A kernel without CONFIG_TASK_IO_ACCOUNTING.
            assert!(!Path::new("/proc/self/io").exists());
            return;
        };
        // Each of both reads and writes all of it. What else is read is libraries' heads.
        let read = busy.read_bytes - idle.read_bytes;
        assert!((6_000_000..6_500_000).contains(&read), "{read}");
        let written = busy.written_bytes - idle.written_bytes;
        assert_eq!(written, 6_000_000);
    }

    #[test]
    fn ends_are_told_apart() {
        assert_eq!(done("exit 3", |_| ()).ended, Ended::Status(3));
        let killed = done("echo oops >&2; kill -SEGV $$", |_| ());
        assert_eq!(killed.ended, Ended::Signal(libc::SIGSEGV));
        assert_eq!(killed.said, "oops");
        // A run that waited for its end would see a status.
        let late = done("sleep 300", |job| job.limit = Duration::from_millis(200));
        assert_eq!(late.ended, Ended::Limit);
    }

    #[test]
    fn a_limit_ends_grandchildren_too() {
        let _alone = crate::alone();
        let folder = tempfile::tempdir().expect("a folder");
        // A time that no other run has.
        let time = format!("300.{}", std::process::id());
        let mut job = job(folder.path(), &format!("sleep {time} & sleep {time}; wait"));
        job.limit = Duration::from_millis(300);
        assert_eq!(run(&job).expect("run").ended, Ended::Limit);
        let living = fs::read_dir("/proc")
            .expect("/proc")
            .flatten()
            .any(|entry| {
                let cmdline = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                cmdline == format!("sleep\0{time}\0").as_bytes()
            });
        assert!(!living);
    }

    #[test]
    fn thinned_samples_keep_the_peak_and_the_order() {
        let mut samples = vec![(0.0, 5), (1.0, 9), (2.0, 7), (3.0, 1), (4.0, 2)];
        thin(&mut samples);
        assert_eq!(samples, [(1.0, 9), (2.0, 7), (4.0, 2)]);
    }

    #[test]
    fn output_is_compared_by_its_bytes() {
        let one = done("echo a", |_| ()).output;
        assert_eq!(one, done("echo a >&1", |_| ()).output);
        assert_ne!(one, done("echo b", |_| ()).output);
    }

    /// The look of a starved program is tested in `idle`, with readings made by hand.
    #[test]
    fn an_idle_program_is_asked_to_end_and_a_busy_one_is_not() {
        let idle = done("trap 'exit 0' TERM; sleep 300 & wait", |job| {
            job.idle = Some(Duration::from_millis(300));
        });
        assert_eq!(idle.ended, Ended::Idle);
        assert!(!idle.samples.is_empty());
        let busy = done("i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done", |job| {
            job.idle = Some(Duration::from_millis(100));
        });
        assert_eq!(busy.ended, Ended::Status(0));
    }
}
