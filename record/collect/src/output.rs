//! The writer thread: compresses and writes what the other threads send it.
//!
//! Q1  Jobs of one process are written in the order in which they were sent: nodes before the events
//!     that name them.
//! Q2  A file that cannot be written affects only itself: its jobs are taken and counted (collect.C3).
//! Q3  A process goes on only after its file names it: however the collector ends, and however late the writer thread
//!     is, what was recorded can be told from what was not.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use skinflint_trace::encode::RawBlock;
use skinflint_trace::{
    Code, Ending, Kind, Look, LostKind, LostProcess, LostWhy, Mark, Module, OriginKind, Pointers,
    ProcessInfo, RssSample, Snapshot, Thread, ThreadId, Writer, older_segments,
};

use crate::bounds::{Bounds, Progress};
use crate::segments::{Segments, Turn};

/// The most jobs that may wait; beyond it the drain thread waits, and in the end the program.
const QUEUE: usize = 256;

/// Something to write.
pub enum Job {
    /// Only the last part of the trace is kept.
    Bound(Box<Segments>),
    /// A new segment of it begins.
    Turn(Box<Turn>),
    /// A process begins, with what became of making its file.
    Begin(Box<ProcessInfo>, PathBuf, std::io::Result<Box<Writer>>),
    /// It is of what is read from outside of a process that has another trace.
    Beside,
    /// The file gets another name.
    Rename(PathBuf),
    /// Codes of an interpreter, from this id on.
    Codes(u32, Vec<Code>),
    /// What stacks of a script make.
    Kinds(Vec<Kind>),
    /// Stack nodes from this id on.
    Nodes(u32, Vec<(u32, u64)>),
    /// Events.
    Events(RawBlock),
    /// Modules.
    Modules(Vec<Module>),
    /// A thread, as it is now.
    Thread(ThreadId, Thread),
    /// A mark.
    Mark(u32, Mark),
    /// Samples.
    Rss(Vec<RssSample>),
    /// A snapshot.
    Snapshot(Box<Snapshot>),
    /// A look at the program's pointers, and its words.
    Look(Box<Look>, Vec<Pointers>),
    /// Processes that came out of this one and were not recorded.
    Lost(Vec<LostProcess>),
    /// The end.
    End(Box<Ending>),
}

/// A trace that was written.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Its file.
    pub path: PathBuf,
    /// The process that was recorded.
    pub process: ProcessInfo,
    /// How the recording ended; `None` if the trace was cut.
    pub ending: Option<Ending>,
    /// Size of the file, bytes.
    pub bytes: u64,
    /// Processes that came out of it and were not recorded.
    pub lost: Vec<LostProcess>,
    /// What was put aside of it when a condition came true.
    pub kept: Vec<PathBuf>,
    /// The looks at the program's pointers.
    pub looks: Vec<Look>,
    /// What went wrong with the file, if anything did.
    pub error: Option<String>,
    /// Whether it is of what was read from outside of a process that has another trace: Go's heap beside C's, or a profile
    /// that the program serves.
    pub beside: bool,
}

/// The queue to which the other threads send their jobs.
#[derive(Clone)]
pub struct Output {
    jobs: SyncSender<(usize, Job)>,
    /// The zstd level of the traces.
    level: i32,
}

impl Recorded {
    /// Returns whether not even the file could be made: nothing of the process is in any trace of its own.
    pub fn is_unmade(&self) -> bool {
        self.error.is_some() && self.ending.is_none() && !self.path.exists()
    }
}

impl Output {
    /// Starts the writer thread. It ends when the last `Output` is dropped.
    pub fn start(level: i32) -> std::io::Result<(Output, JoinHandle<Vec<Recorded>>)> {
        let (sender, receiver) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("skinflint-write".into())
            .spawn(move || run(&receiver))?;
        let jobs = sender;
        Ok((Output { jobs, level }, thread))
    }

    /// Makes the file of process `index`, on the caller's thread (Q3). A file that cannot be made is reported at the end.
    pub fn begin(&self, index: usize, process: ProcessInfo, path: PathBuf) {
        let made = Writer::create_with(&path, &process, self.level).map(Box::new);
        self.send(index, Job::Begin(Box::new(process), path, made));
    }

    /// Notes that of process `index` only the last part is kept.
    pub fn bound(&self, index: usize, bounds: Bounds, progress: Arc<Progress>) {
        let segments = Segments::new(bounds, progress, self.level);
        self.send(index, Job::Bound(Box::new(segments)));
    }

    /// Sends a job for process `index`; blocks while too many jobs are waiting.
    pub fn send(&self, index: usize, job: Job) {
        // The receiver lives until the last sender is gone, unless it panicked; then the events are
        // lost, and `Session::finish` says so.
        let _ = self.jobs.send((index, job));
    }
}

struct Trace {
    writer: Option<Box<Writer>>,
    recorded: Recorded,
    /// A name on another file system: the file is copied there when it is complete.
    move_to: Option<PathBuf>,
    /// Its segments, if only the last part is kept.
    segments: Option<Box<Segments>>,
}

fn run(receiver: &Receiver<(usize, Job)>) -> Vec<Recorded> {
    let mut traces: HashMap<usize, Trace> = HashMap::new();
    let mut done = Vec::new();
    for (index, job) in receiver {
        match job {
            Job::Begin(info, path, made) => {
                let trace = begin(*info, path, made);
                tell_origin(&mut traces, &trace);
                traces.insert(index, trace);
            }
            Job::Beside => {
                if let Some(trace) = traces.get_mut(&index) {
                    trace.recorded.beside = true;
                }
            }
            Job::End(ending) => {
                if let Some(trace) = traces.remove(&index) {
                    done.push((index, end(trace, *ending)));
                }
            }
            job => {
                if let Some(trace) = traces.get_mut(&index) {
                    write(trace, job);
                }
            }
        }
    }
    done.extend(traces.into_iter().map(|(index, trace)| (index, cut(trace))));
    done.sort_by_key(|&(index, _)| index);
    done.into_iter().map(|(_, recorded)| recorded).collect()
}

fn begin(process: ProcessInfo, path: PathBuf, made: std::io::Result<Box<Writer>>) -> Trace {
    let error = made.as_ref().err().map(ToString::to_string);
    let recorded = Recorded {
        path,
        process,
        ending: None,
        bytes: 0,
        lost: Vec::new(),
        kept: Vec::new(),
        looks: Vec::new(),
        error,
        beside: false,
    };
    Trace {
        writer: made.ok(),
        recorded,
        move_to: None,
        segments: None,
    }
}

/// Names a process whose trace cannot be made in the trace of the process that it came from.
fn tell_origin(traces: &mut HashMap<usize, Trace>, trace: &Trace) {
    let process = &trace.recorded.process;
    let Some(origin) = process.origin.as_ref().filter(|_| trace.writer.is_none()) else {
        return;
    };
    let mut all = traces.values_mut();
    let Some(before) = all.find(|before| before.recorded.process.uid == origin.uid) else {
        return;
    };
    let began_ns = before.recorded.process.started_unix_ns;
    let lost = LostProcess {
        what: match origin.how {
            OriginKind::Fork => LostKind::Copy,
            OriginKind::Spawn => LostKind::Program,
            OriginKind::Exec => LostKind::Exec,
        },
        pid: process.pid,
        name: process.name.clone(),
        exe: process.exe.clone(),
        time_ns: process.started_unix_ns.saturating_sub(began_ns),
        why: LostWhy::Unwritten,
        max_rss_bytes: None,
    };
    write(before, Job::Lost(vec![lost]));
}

/// Begins a new segment of a trace.
fn turn(trace: &mut Trace, turn: Turn) -> std::io::Result<()> {
    let (Some(segments), Some(writer)) = (&mut trace.segments, &mut trace.writer) else {
        return Ok(());
    };
    let recorded = &trace.recorded;
    let (begun, placed) = segments.turn(&recorded.path, writer, turn, &recorded.lost)?;
    **writer = begun;
    trace.recorded.kept = segments.kept().to_vec();
    placed
}

fn write(trace: &mut Trace, job: Job) {
    let Some(writer) = trace.writer.as_mut() else {
        if let Job::Rename(path) = job {
            // There is no file: this is the name that it would have, in the error as well.
            let recorded = &mut trace.recorded;
            let (was, is) = (
                recorded.path.display().to_string(),
                path.display().to_string(),
            );
            recorded.error = recorded.error.take().map(|error| error.replace(&was, &is));
            recorded.path = path;
        }
        return;
    };
    let result = match job {
        Job::Bound(segments) => {
            trace.segments = Some(segments);
            Ok(())
        }
        Job::Turn(next) => turn(trace, *next),
        Job::Codes(first, codes) => writer.codes(first, &codes),
        Job::Kinds(kinds) => writer.kinds(&kinds),
        Job::Nodes(first, nodes) => writer.nodes(first, &nodes),
        Job::Events(block) => writer.events(block),
        Job::Modules(modules) => writer.modules(&modules),
        Job::Thread(id, thread) => writer.thread(id, &thread),
        Job::Mark(index, mark) => writer.mark(index, &mark),
        Job::Rss(samples) => writer.rss(&samples),
        Job::Snapshot(snapshot) => writer.snapshot(&snapshot),
        Job::Look(look, pointers) => {
            let written: std::io::Result<()> =
                pointers.iter().try_for_each(|one| writer.pointers(one));
            trace.recorded.looks.push((*look).clone());
            written.and_then(|()| writer.look(&look))
        }
        Job::Lost(lost) => {
            let result = writer.lost(&lost);
            trace.recorded.lost.extend(lost);
            result
        }
        Job::Rename(path) => {
            let before = trace.recorded.path.clone();
            let renamed = rename(&mut trace.recorded.path, &mut trace.move_to, path);
            renamed.and(moved(
                trace.segments.as_deref(),
                &before,
                &trace.recorded.path,
            ))
        }
        Job::Begin(..) | Job::Beside | Job::End(..) => Ok(()),
    };
    if let (Some(segments), Some(writer)) = (&mut trace.segments, &trace.writer) {
        segments.wrote(&trace.recorded.path, writer.bytes_written());
    }
    if let Err(error) = result {
        trace
            .recorded
            .error
            .get_or_insert_with(|| error.to_string());
    }
}

/// Renames the older segments after the trace.
fn moved(segments: Option<&Segments>, from: &Path, to: &Path) -> std::io::Result<()> {
    match segments {
        Some(segments) if from != to => segments.renamed(from, to),
        _ => Ok(()),
    }
}

fn rename(path: &mut PathBuf, move_to: &mut Option<PathBuf>, to: PathBuf) -> std::io::Result<()> {
    *move_to = None;
    // Those of a recording that is replaced.
    for older in older_segments(&to) {
        let _ = std::fs::remove_file(older);
    }
    match std::fs::rename(&*path, &to) {
        Ok(()) => *path = to,
        Err(error) if error.kind() == std::io::ErrorKind::CrossesDevices => *move_to = Some(to),
        Err(error) => return Err(not_named(path, &to, &error)),
    }
    Ok(())
}

fn not_named(path: &Path, to: &Path, error: &std::io::Error) -> std::io::Error {
    let (stays, wanted) = (path.display(), to.display());
    std::io::Error::new(
        error.kind(),
        format!("cannot be named {wanted} ({error}) and stays {stays}"),
    )
}

/// Copies a whole trace to its name on another file system.
fn move_over(path: &mut PathBuf, to: PathBuf) -> std::io::Result<()> {
    if let Err(error) = std::fs::copy(&*path, &to) {
        // The copy is not a whole trace.
        let _ = std::fs::remove_file(&to);
        return Err(not_named(path, &to, &error));
    }
    let _ = std::fs::remove_file(&*path);
    *path = to;
    Ok(())
}

/// Moves a trace and its older segments to a name on another file system.
fn move_all(path: &mut PathBuf, to: PathBuf, segments: Option<&Segments>) -> std::io::Result<()> {
    let before = path.clone();
    move_over(path, to)?;
    moved(segments, &before, path)
}

/// Closes a trace whose end was never sent.
fn cut(trace: Trace) -> Recorded {
    let mut recorded = trace.recorded;
    drop(trace.writer);
    if let Some(to) = trace.move_to
        && let Err(error) = move_all(&mut recorded.path, to, trace.segments.as_deref())
    {
        recorded.error.get_or_insert_with(|| error.to_string());
    }
    recorded
}

fn end(trace: Trace, ending: Ending) -> Recorded {
    let mut recorded = trace.recorded;
    let Some(mut writer) = trace.writer else {
        return recorded;
    };
    let mut ending = ending;
    if let Err(error) = writer.ending(&ending) {
        recorded.error.get_or_insert_with(|| error.to_string());
    }
    ending.lost_events += writer.events_lost();
    let older = trace.segments.as_ref().map_or(0, |one| one.older_bytes());
    let bytes = writer.bytes_written() + older;
    // What is buffered is written to the file before it is copied.
    drop(writer);
    if let Some(to) = trace.move_to
        && let Err(error) = move_all(&mut recorded.path, to, trace.segments.as_deref())
    {
        recorded.error.get_or_insert_with(|| error.to_string());
    }
    if let Err(error) = keep_perf_map(&recorded.process, &recorded.path) {
        recorded.error.get_or_insert_with(|| error.to_string());
    }
    recorded.bytes = bytes;
    recorded.ending = Some(ending);
    recorded
}

/// The largest map of generated code that is kept, in bytes.
const PERF_MAP_BYTES: u64 = 512 << 20;

/// Copies the map of generated code that a runtime wrote for perf to a file beside the trace, if it was written
/// during this process's life: another process may have the same id later.
fn keep_perf_map(process: &ProcessInfo, trace: &Path) -> std::io::Result<()> {
    use std::io::Read;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    let source = PathBuf::from(format!("/tmp/perf-{}.map", process.pid));
    let opened = std::fs::OpenOptions::new()
        .read(true)
        // Any user can put anything there: links are not followed, and nothing is waited for.
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(source);
    let Ok(file) = opened else { return Ok(()) };
    let about = file.metadata()?;
    let written_ns =
        (about.mtime().max(0) as u64) * 1_000_000_000 + about.mtime_nsec().max(0) as u64;
    // SAFETY: no memory is involved.
    let user = unsafe { libc::geteuid() };
    let ours = about.uid() == user || user == 0;
    // The kernel stamps files with a clock that advances in steps of up to 10 ms.
    let is_older = written_ns + 10_000_000 < process.started_unix_ns;
    if !about.is_file() || !ours || is_older {
        return Ok(());
    }
    let mut copy = std::fs::File::create(trace.with_extension("perf.map"))?;
    std::io::copy(&mut file.take(PERF_MAP_BYTES), &mut copy)?;
    Ok(())
}

/// Returns a name for a trace: `skinflint.NAME.PID.sft`, with a number if there is such a file or `is_given` has it.
pub fn trace_path(
    folder: &Path,
    name: &str,
    pid: u32,
    is_given: impl Fn(&Path) -> bool,
) -> PathBuf {
    let name = plain_name(name);
    let first = folder.join(format!("skinflint.{name}.{pid}.sft"));
    let is_free = |path: &Path| !is_given(path) && !path.exists();
    if is_free(&first) {
        return first;
    }
    (2..10_000)
        .map(|n| folder.join(format!("skinflint.{name}.{pid}.{n}.sft")))
        .find(|path| is_free(path))
        .unwrap_or(first)
}

/// Returns a name without what a file's name should not have: of traces, folders and whatever lies beside them.
pub fn plain_name(name: &str) -> String {
    let plain = |c: char| match c {
        c if c.is_alphanumeric() || "._-+".contains(c) => c,
        _ => '_',
    };
    name.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_not_used_twice() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let name = |is_given: fn(&Path) -> bool| trace_path(folder.path(), "a/b c", 7, is_given);
        let first = name(|_| false);
        assert!(first.ends_with("skinflint.a_b_c.7.sft"));
        std::fs::write(&first, b"").expect("write");
        assert!(name(|_| false).ends_with("skinflint.a_b_c.7.2.sft"));
        let second_is_given = |path: &Path| path.ends_with("skinflint.a_b_c.7.2.sft");
        assert!(name(second_is_given).ends_with("skinflint.a_b_c.7.3.sft"));
    }

    /// Tests only where `/dev/shm` is another file system than the folder of temporary files.
    #[test]
    fn a_trace_comes_to_its_name_over_file_systems() {
        let (here, there) = (tempfile::tempdir(), tempfile::tempdir_in("/dev/shm"));
        let (Ok(here), Ok(there)) = (here, there) else {
            return;
        };
        let (first, last) = (here.path().join("a.sft"), there.path().join("b.sft"));
        let (output, thread) = Output::start(1).expect("thread");
        output.begin(0, ProcessInfo::default(), first.clone());
        output.send(0, Job::Rename(last.clone()));
        output.send(0, Job::Rss(vec![RssSample::default()]));
        output.send(0, Job::End(Box::default()));
        drop(output);
        let recorded = thread.join().expect("no panic");
        assert_eq!((&recorded[0].path, &recorded[0].error), (&last, &None));
        let trace = skinflint_trace::Trace::open(&last).expect("the trace");
        assert!(trace.ending.is_some() && trace.rss.len() == 1);
        assert!(!first.exists());
    }

    /// No thread takes jobs here, as while the writer thread waits for a processor.
    #[test]
    fn a_file_names_its_process_before_the_writer_thread_has_run() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("a.sft");
        let (jobs, _waiting) = sync_channel(QUEUE);
        let process = ProcessInfo {
            name: "hold".into(),
            ..ProcessInfo::default()
        };
        Output { jobs, level: 1 }.begin(0, process, path.clone());
        let trace = skinflint_trace::Trace::open(&path).expect("the trace");
        assert_eq!(trace.process.name, "hold");
        assert!(trace.ending.is_none());
    }

    #[test]
    fn a_name_that_cannot_be_had_is_reported() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let first = folder.path().join("a.sft");
        let (output, thread) = Output::start(1).expect("thread");
        output.begin(0, ProcessInfo::default(), first.clone());
        output.send(0, Job::Rename("/no-such-folder/b.sft".into()));
        output.send(0, Job::End(Box::default()));
        drop(output);
        let recorded = thread.join().expect("no panic");
        assert_eq!(recorded[0].path, first);
        let error = recorded[0].error.as_deref().unwrap_or_default();
        assert!(error.contains("/no-such-folder/b.sft"), "{error}");
    }

    #[test]
    fn a_child_whose_file_cannot_be_made_is_named_in_its_parents_trace() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let first = folder.path().join("a.sft");
        let (output, thread) = Output::start(1).expect("thread");
        let parent = ProcessInfo {
            uid: "p".into(),
            started_unix_ns: 100,
            ..ProcessInfo::default()
        };
        let origin = skinflint_trace::Origin {
            how: OriginKind::Fork,
            uid: "p".into(),
            pid: 6,
            fork_ticket: 0,
        };
        let child = ProcessInfo {
            pid: 7,
            name: "hold".into(),
            started_unix_ns: 350,
            origin: Some(origin),
            ..ProcessInfo::default()
        };
        output.begin(0, parent, first.clone());
        let nowhere = PathBuf::from("/proc/no-such-folder/x.sft");
        output.begin(1, child, nowhere);
        output.send(1, Job::End(Box::default()));
        output.send(0, Job::End(Box::default()));
        drop(output);
        thread.join().expect("no panic");
        let trace = skinflint_trace::Trace::open(&first).expect("the trace");
        let lost = &trace.lost;
        assert_eq!(lost.len(), 1);
        assert_eq!(
            (lost[0].what, lost[0].why),
            (LostKind::Copy, LostWhy::Unwritten)
        );
        assert_eq!(
            (lost[0].pid, &*lost[0].name, lost[0].time_ns),
            (7, "hold", 250)
        );
    }

    #[test]
    fn a_file_that_cannot_be_made_is_reported() {
        let (output, thread) = Output::start(1).expect("thread");
        let path = PathBuf::from("/proc/no-such-folder/x.sft");
        output.begin(0, ProcessInfo::default(), path);
        output.send(0, Job::Rss(vec![RssSample::default()]));
        output.send(0, Job::End(Box::default()));
        drop(output);
        let recorded = thread.join().expect("no panic");
        assert!(
            recorded[0]
                .error
                .as_ref()
                .is_some_and(|error| error.contains("no-such-folder"))
        );
    }
}

#[cfg(test)]
#[path = "output_tests.rs"]
mod perf_maps;
