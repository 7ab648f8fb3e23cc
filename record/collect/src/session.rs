//! A session, `skinflint run` or `record`: its threads, its folder, its processes.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use skinflint_base::ring::{RECORD_ALL, RECORD_NOTHING, RECORD_RELEASES};
use skinflint_base::{env, sys};
use skinflint_procfs::processes::parent;

use crate::arrivals::Arrivals;
use crate::bounds::Bounds;
use crate::control::{self, Reply, Request, State, Status};
use crate::descent;
pub use crate::drain::ChildEnd;
use crate::drain::{Drain, Message};
use crate::folder;
use crate::go::GoProgram;
use crate::held::{self, Held, Watched};
use crate::linked::Plans;
use crate::memory::{NotifierMemory, SessionMemory};
use crate::output::{Output, Recorded, trace_path};
use crate::process::{Process, lock};
use crate::sample::Sample;
use crate::sampler::{self, Ask};
use crate::served::Errand;
use crate::server::{self, LateSockets, Listener};

mod keeper;
mod meet;

/// The recorder of processes that are read from outside.
pub struct Watcher(Arc<Meeting>);

/// A [`Watcher`] that does not keep the session from ending.
pub struct WeakWatcher(Weak<Meeting>);

impl Watcher {
    /// Lets go of the session.
    pub fn downgrade(&self) -> WeakWatcher {
        WeakWatcher(Arc::downgrade(&self.0))
    }
}

impl WeakWatcher {
    /// Returns the recorder, if the session has not ended.
    pub fn upgrade(&self) -> Option<Watcher> {
        self.0.upgrade().map(Watcher)
    }
}

/// How to record.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder of the traces.
    pub folder: PathBuf,
    /// The name of the program, if processes that it starts get a folder of their own in there: `skinflint-NAME-PID`.
    pub apart: Option<String>,
    /// The name of the trace of the program itself (its last `exec`); others get names of their own.
    pub file: Option<PathBuf>,
    /// The zstd level.
    pub level: i32,
    /// The number of the signal that makes a mark inside the program.
    pub mark_signal: Option<i32>,
    /// Whether nothing is recorded until `start` is requested.
    pub paused: bool,
    /// Whether the program ran before the session and can be left alone again.
    pub attached: bool,
    /// A moment at which the caller wants to look at the program: [`Session::held`].
    pub watched: Option<Watched>,
    /// Whether the program is stopped at marks and at the end, and its pointers are read.
    pub looks: bool,
    /// Whether small objects of Python are recorded as blocks of their own.
    pub objects: bool,
    /// Which acquisitions are recorded; `None`: all.
    pub sample: Option<Sample>,
    /// What of each trace is kept; `None`: all.
    pub bounds: Option<Bounds>,
    /// Whether the program serves its heap profile, which is kept ([`Session::keep_profile`]).
    pub served: bool,
}

/// The longest time, in milliseconds, that a program waits while its pointers are read: a look takes up to twelve
/// seconds, and other programs may be looked at before it.
const LOOK_PATIENCE_MS: u32 = 30_000;

/// The state that the acceptor and the caller share.
struct Meeting {
    options: Options,
    session: Arc<SessionMemory>,
    notifier: Arc<NotifierMemory>,
    output: Output,
    messages: Sender<Message>,
    known: Mutex<Known>,
    stop: AtomicBool,
    /// Whether a detach was requested.
    leave: AtomicBool,
    /// The number of snapshots that were asked for by name.
    snapshots: AtomicU32,
    /// Whether some modules of the program that is attached to do not lead to the recorder yet ([`Session::joined`]).
    joining: AtomicBool,
    /// Nanoseconds since 1970 less monotonic ones, the same for all traces: their times can be compared.
    unix_offset_ns: u64,
    /// What is to be said of profiles that are served, the newest first.
    news: Mutex<Vec<String>>,
    /// Where the threads are asked that fetch these profiles.
    keepers: Mutex<Vec<Sender<Errand>>>,
}

#[derive(Default)]
struct Known {
    processes: Vec<Met>,
    by_token: HashMap<u64, usize>,
    /// The process id of the program that was started; its trace gets the given name.
    main_pid: Option<u32>,
    /// The index of the newest image of the program: its trace has the given name, or lies beside the folder of others.
    named: Option<usize>,
    /// The folder of all other traces, once there is one.
    apart: Option<PathBuf>,
    /// Why the last caller that got no rings got none.
    refused: Option<String>,
    /// Go programs that call C, by their ids, whose heap is about to be read.
    pending: HashMap<u32, GoProgram>,
    /// The names of traces, each given once: another thread makes the file later, and it may have had two names.
    names: HashSet<PathBuf>,
}

impl Known {
    /// Returns the folder for traces of other processes than the program, and makes it before the first of them.
    fn folder_of_others(&mut self, options: &Options, pid: u32) -> PathBuf {
        let (Some(name), None) = (&options.apart, &self.apart) else {
            return self.apart.as_ref().unwrap_or(&options.folder).clone();
        };
        let program = self.main_pid.or_else(|| descent::started_by_us(pid));
        let program = program.unwrap_or(std::process::id());
        // What cannot be made is complained of as a trace that cannot.
        let folder = folder::for_others(&options.folder, name, program);
        let folder = folder.unwrap_or_else(|_| options.folder.clone());
        self.apart.insert(folder).clone()
    }

    /// Returns whether this is the program itself. It may say hello before `child_started` is called.
    fn is_program(&self, pid: u32) -> bool {
        self.main_pid
            .map_or_else(|| parent(pid) == Some(std::process::id()), |own| own == pid)
    }

    /// Returns a name that no trace of this session has or had, and no file has.
    fn fresh_name(&mut self, folder: &Path, name: &str, pid: u32) -> PathBuf {
        let path = trace_path(folder, name, pid, |path| self.names.contains(path));
        self.names.insert(path.clone());
        path
    }
}

/// A record, kept for as long as the session lasts, of a process that said hello. Its rings are not
/// part of it, and are released when it has ended: a build has thousands of processes.
struct Met {
    index: usize,
    pid: u32,
    uid: String,
    name: String,
    process: Weak<Process>,
    /// Its trace.
    path: PathBuf,
    /// The name that its trace had first, which no other trace gets.
    own_path: PathBuf,
    /// Whether it is what is read from outside of another of these.
    beside: bool,
}

impl Met {
    /// Returns what is known of a process whose trace begins at a path.
    fn of(process: &Arc<Process>, path: PathBuf) -> Met {
        Met {
            index: process.index,
            pid: process.pid,
            uid: process.info.uid.clone(),
            name: process.info.name.clone(),
            process: Arc::downgrade(process),
            own_path: path.clone(),
            path,
            beside: process.beside,
        }
    }

    /// Returns whether it is still being recorded.
    fn is_living(&self) -> bool {
        // ORDER: Relaxed; a flag.
        self.process
            .upgrade()
            .is_some_and(|process| !process.ended.load(Ordering::Relaxed))
    }
}

/// A recording session.
pub struct Session {
    meeting: Arc<Meeting>,
    folder: folder::Folder,
    living: Arc<AtomicUsize>,
    held: Option<Receiver<Held>>,
    more_sockets: Arc<LateSockets>,
    asks: Sender<Ask>,
    keepers: Mutex<Vec<JoinHandle<()>>>,
    strays: Option<Receiver<u32>>,
    acceptor: JoinHandle<()>,
    controller: JoinHandle<()>,
    drain: JoinHandle<()>,
    sampler: JoinHandle<()>,
    writer: JoinHandle<Vec<Recorded>>,
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_nanos() as u64
}

impl Session {
    /// Starts a session and its threads.
    ///
    /// # Errors
    /// If the folder for the socket, or the shared memory, cannot be made.
    pub fn start(options: Options) -> io::Result<Session> {
        let folder = folder::Folder::make()?;
        let listener = Listener::bind(&folder.0.join("s"))?;
        let session = Arc::new(SessionMemory::create()?);
        let notifier = Arc::new(NotifierMemory::create()?);
        // ORDER: Relaxed; no other thread or process has the page yet.
        session
            .page()
            .collector_pid
            .store(std::process::id(), Ordering::Relaxed);
        if options.paused {
            // ORDER: Relaxed; as above.
            session
                .page()
                .recording
                .store(RECORD_NOTHING, Ordering::Relaxed);
        }
        if options.watched.is_some() {
            // ORDER: Relaxed; as above.
            session
                .page()
                .patience_ms
                .store(held::PATIENCE_MS, Ordering::Relaxed);
        }
        if options.objects {
            session.page().objects.store(1, Ordering::Relaxed); // ORDER: Relaxed; as above.
        }
        if let Some(sample) = options.sample {
            sample.put(session.page());
        }
        if options.looks {
            let page = session.page();
            // ORDER: Relaxed for both; as above.
            page.looks.store(1, Ordering::Relaxed);
            page.patience_ms.store(LOOK_PATIENCE_MS, Ordering::Relaxed);
        }
        let (output, writer) = Output::start(options.level)?;
        let (asks, asked) = channel();
        let (messages, received) = channel();
        let living = Arc::new(AtomicUsize::new(0));
        let meeting = Arc::new(Meeting {
            joining: AtomicBool::new(options.attached),
            options,
            session: Arc::clone(&session),
            notifier: Arc::clone(&notifier),
            output: output.clone(),
            messages,
            known: Mutex::default(),
            stop: AtomicBool::new(false),
            leave: AtomicBool::new(false),
            snapshots: AtomicU32::new(0),
            unix_offset_ns: unix_ns().saturating_sub(sys::monotonic_ns()),
            news: Mutex::default(),
            keepers: Mutex::default(),
        });
        let (to, looks) = (output.clone(), meeting.options.looks);
        let sample = move || sampler::run(&asked, &to, looks);
        let sampler = spawn("sample", sample)?;
        let (watched, held) = match meeting.options.watched.clone() {
            Some(watched) => {
                let (to, from) = channel();
                (Some((watched, to)), Some(from))
            }
            None => (None, None),
        };
        let (to_strays, strays) = channel();
        let drain = Drain::new(session, notifier, output, asks.clone(), watched, to_strays);
        let drain = drain.bounded(meeting.options.bounds.clone());
        let count = Arc::clone(&living);
        // ORDER: Relaxed; a figure for a caller that waits.
        let drain = spawn("drain", move || {
            drain.run(&received, |n| count.store(n, Ordering::Relaxed))
        })?;
        let door = Arc::clone(&meeting);
        let more_sockets = listener.late_sockets();
        let acceptor = spawn("accept", move || accept(&door, listener))?;
        let (control, door) = (
            control::ControlSocket::open(&folder.0)?,
            Arc::clone(&meeting),
        );
        let controller = spawn("control", move || {
            // ORDER: Relaxed; see `Session::finish`.
            control.serve(&*door, || door.stop.load(Ordering::Relaxed))
        })?;
        Ok(Session {
            meeting,
            folder,
            living,
            held,
            more_sockets,
            asks,
            keepers: Mutex::default(),
            strays: Some(strays),
            acceptor,
            controller,
            drain,
            sampler,
            writer,
        })
    }

    /// Returns the recorder of processes that are read from outside.
    pub fn watcher(&self) -> Watcher {
        Watcher(Arc::clone(&self.meeting))
    }

    /// Takes the queue of processes that run a statically linked program. It ends with the session.
    pub fn take_strays(&mut self) -> Option<Receiver<u32>> {
        self.strays.take()
    }

    /// Returns the variables that the program must have in its environment, beside `LD_PRELOAD`.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut variables = vec![(env::SOCKET.name(), self.folder.0.join("s").into_os_string())];
        if let Some(signal) = self.meeting.options.mark_signal {
            variables.push((env::MARK_SIGNAL.name(), signal.to_string().into()));
        }
        variables
    }

    /// Notes that the program has been started: its trace gets the name in [`Options::file`].
    pub fn child_started(&self, pid: u32) {
        let mut known = lock(&self.meeting.known);
        known.main_pid = Some(pid);
        // It may have said hello already.
        let newest = known
            .processes
            .iter()
            .rev()
            .find(|p| p.pid == pid && !p.beside)
            .map(|p| p.index);
        if let Some(index) = newest {
            self.meeting.name_trace(&mut known, index);
        }
    }

    /// Notes that a child has been waited for.
    pub fn child_ended(&self, end: ChildEnd) {
        let _ = self.meeting.messages.send(Message::Child(end));
        self.wake();
    }

    /// Marks this moment in every process.
    pub fn mark(&self, name: &str) {
        self.meeting.ask_for_mark(name, None);
    }

    /// Marks this moment in every process, and waits until the marks are set and memory has been read.
    ///
    /// # Errors
    /// If it takes longer than the patience for it, in words for the user.
    pub fn mark_now(&self, name: &str) -> Result<(), String> {
        let reply = self.meeting.mark(name);
        if reply.ok { Ok(()) } else { Err(reply.error) }
    }

    /// Looks at the programs' pointers, as at the end, and waits for it: the programs go on and are about to be left.
    pub fn look_now(&self) {
        let (waiting, done) = channel();
        self.meeting.send(Message::Look(waiting));
        // It ends when all senders are dropped, or with patience: what is not read by then is missing from the trace.
        let _ = done.recv_timeout(Duration::from_millis(u64::from(LOOK_PATIENCE_MS)));
    }

    /// Reads what is read from outside for the last time, and waits for it: the programs go on and are about to be left.
    pub fn leave_now(&self) {
        let (waiting, done) = channel();
        self.meeting.ask_keepers(|| Errand::Leave(waiting.clone()));
        self.meeting.send(Message::Leave(waiting));
        // As for a look.
        let _ = done.recv_timeout(SNAPSHOT_PATIENCE);
    }

    /// Returns the next moment that was watched for, if one has come. Its process waits while the result is kept,
    /// within bounds.
    pub fn held(&self) -> Option<Held> {
        self.held.as_ref()?.try_recv().ok()
    }

    /// Returns the ids of the processes that are being recorded, oldest first.
    pub fn pids(&self) -> Vec<u32> {
        let known = lock(&self.meeting.known);
        let own = known.processes.iter().filter(|met| !met.beside);
        let living = own.filter(|met| met.is_living());
        living.map(|met| met.pid).collect()
    }

    fn wake(&self) {
        self.meeting.wake();
    }

    /// Returns the path of the session's socket: a program that is attached to finds the collector there.
    pub fn socket(&self) -> PathBuf {
        self.folder.0.join("s")
    }

    /// Waits until the last snapshot of a program that was left has been taken, within bounds.
    pub fn settle(&self) {
        let is_settled = || {
            let known = lock(&self.meeting.known);
            let mut living = known
                .processes
                .iter()
                .filter_map(|met| met.process.upgrade());
            living.all(|process| {
                let header = process.first.header();
                // ORDER: Acquire for both; the sampler's Release, when the snapshot is in the trace's queue.
                let asked = header.snapshot_asked.load(Ordering::Acquire);
                let done = header.snapshot_done.load(Ordering::Acquire);
                // ORDER: Relaxed; a flag.
                asked == done || process.ended.load(Ordering::Relaxed)
            })
        };
        let until = Instant::now() + SNAPSHOT_PATIENCE;
        // CLOCK: a bounded wait, and its bound ends it
        while !is_settled() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2)); // CLOCK: poll step of a bounded wait
        }
    }

    /// Returns where one more socket comes in: a program in another network namespace finds the collector there, by the
    /// abstract name that [`Session::socket`] is.
    pub fn late_sockets(&self) -> Arc<LateSockets> {
        Arc::clone(&self.more_sockets)
    }

    /// Notes that all modules of the program that was attached to lead to the recorder: until this is called, the
    /// status says that the session is attaching.
    pub fn joined(&self) {
        self.meeting.joining.store(false, Ordering::Relaxed); // ORDER: Relaxed; a flag.
    }

    /// Returns whether a detach was requested.
    pub fn is_to_leave(&self) -> bool {
        self.meeting.leave.load(Ordering::Relaxed) // ORDER: Relaxed; a flag.
    }

    /// Returns the number of processes that are still being recorded.
    pub fn living(&self) -> usize {
        self.living.load(Ordering::Relaxed) // ORDER: Relaxed; a figure.
    }

    /// Returns why a process, or a thread of one, was turned away last, if any was.
    pub fn refused(&self) -> Option<String> {
        lock(&self.meeting.known).refused.clone()
    }

    /// Returns the number of processes that said hello so far.
    pub fn met(&self) -> usize {
        lock(&self.meeting.known).processes.len()
    }

    /// As `finish`; with what is still to be said of profiles that could not be had.
    pub fn finish_with_news(self) -> (Vec<Recorded>, Vec<String>) {
        let meeting = Arc::clone(&self.meeting);
        // ORDER: Relaxed; looked at within a poll's time-out.
        meeting.stop.store(true, Ordering::Relaxed);
        self.end_keepers();
        let news = std::mem::take(&mut *lock(&meeting.news));
        drop(meeting);
        (self.finish(), news)
    }

    /// Stops recording and closes the files. Programs that still run go on unrecorded.
    pub fn finish(self) -> Vec<Recorded> {
        // ORDER: Relaxed; looked at within a poll's time-out.
        self.meeting.stop.store(true, Ordering::Relaxed);
        self.end_keepers();
        let _ = self.meeting.messages.send(Message::Stop);
        self.wake();
        let Session {
            meeting,
            folder,
            held,
            asks,
            acceptor,
            controller,
            drain,
            sampler,
            writer,
            ..
        } = self;
        // A moment that was not received holds a sender to the sampler.
        drop((held, asks));
        let _ = acceptor.join();
        let _ = controller.join();
        let _ = drain.join();
        let others = lock(&meeting.known).apart.take();
        drop(meeting);
        let _ = sampler.join();
        drop(folder);
        let recorded = writer.join().unwrap_or_default();
        if let Some(others) = others {
            // It stays if there is anything in it; no trace could be made otherwise.
            let _ = std::fs::remove_dir(others);
        }
        recorded
    }
}

/// The longest wait for the snapshots of a mark.
const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(10);

impl Meeting {
    fn send(&self, message: Message) {
        let _ = self.messages.send(message);
        self.wake();
    }

    fn wake(&self) {
        let page = self.notifier.page();
        // ORDER: Release; pairs with the drain's Acquire: it finds what was sent.
        page.wake.fetch_add(1, Ordering::Release);
        sys::futex_wake(&page.wake);
    }

    fn ask_for_mark(&self, name: &str, waiting: Option<Sender<()>>) {
        self.ask_keepers(|| Errand::Mark(name.to_owned(), waiting.clone()));
        self.send(Message::Mark(name.to_owned(), waiting));
    }

    fn ask_keepers(&self, request: impl Fn() -> Errand) {
        for keeper in lock(&self.keepers).iter() {
            let _ = keeper.send(request());
        }
    }

    fn state(&self) -> State {
        // ORDER: Relaxed; only the controller changes it.
        match self.session.page().recording.load(Ordering::Relaxed) {
            RECORD_ALL => State::Recording,
            RECORD_RELEASES => State::Stopped,
            _ => State::NotBegun,
        }
    }

    fn set_state(&self, to: u32) {
        // ORDER: Relaxed; see `process::wants_acquisitions` of the recorder.
        self.session.page().recording.store(to, Ordering::Relaxed);
    }

    /// Makes a mark, and waits until the snapshots have been taken.
    fn mark(&self, name: &str) -> Reply {
        let (waiting, done) = channel();
        self.ask_for_mark(name, Some(waiting));
        match done.recv_timeout(SNAPSHOT_PATIENCE) {
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => Reply::refused(format!(
                "the mark {name:?} is set, but reading the memory takes longer than {SNAPSHOT_PATIENCE:?}; its \
                 figures come when they come"
            )),
            _ => Reply::done(self.status(), name),
        }
    }

    fn status(&self) -> Status {
        let known = lock(&self.known);
        let own = known.processes.iter().filter(|met| !met.beside);
        let living = own.filter(|met| met.is_living());
        let process = |met: &Met| {
            let process = met.process.upgrade();
            control::Process {
                pid: met.pid,
                name: met.name.clone(),
                trace: met.path.clone(),
                rss_bytes: process.map_or(0, |process| lock(&process.memory).rss_bytes()),
            }
        };
        Status {
            collector: std::process::id(),
            // ORDER: Relaxed; a flag.
            state: match self.joining.load(Ordering::Relaxed) {
                true => State::Attaching,
                false => self.state(),
            },
            attached: self.options.attached,
            met: known.processes.len(),
            processes: living.map(process).collect(),
        }
    }
}

impl control::Answer for Meeting {
    fn answer(&self, request: &Request) -> Reply {
        match (request, self.state()) {
            (Request::Status, _) => Reply::done(self.status(), ""),
            (Request::Start, State::Recording) => Reply::refused("it is recording already".into()),
            (Request::Start, _) => {
                self.set_state(RECORD_ALL);
                self.mark("recording started")
            }
            (Request::Stop, State::Recording) => {
                // Events on their way are still recorded; the mark comes after them.
                self.set_state(RECORD_RELEASES);
                self.mark("recording stopped")
            }
            (Request::Stop, _) => Reply::refused("it is not recording; start it first".into()),
            (Request::Mark { name }, _) if name.trim().is_empty() => {
                Reply::refused("a mark needs a name".into())
            }
            (Request::Mark { name }, _) => self.mark(name),
            (Request::Snapshot, _) => {
                // ORDER: Relaxed; a counter, and requests are answered one after the other.
                let before = self.snapshots.fetch_add(1, Ordering::Relaxed);
                self.mark(&format!("snapshot {}", before + 1))
            }
            (Request::Detach, _) if !self.options.attached => Reply::refused(
                "the program was started by skinflint, which records it to its end; `stop` stops recording".into(),
            ),
            (Request::Detach, _) => {
                self.leave.store(true, Ordering::Relaxed); // ORDER: Relaxed; a flag.
                Reply::done(self.status(), "")
            }
        }
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(format!("skinflint-{name}"))
        .spawn(body)
}

/// The most connections that are accepted between two rounds of answers.
const MOST_AT_ONCE: usize = 128;

fn accept(meeting: &Arc<Meeting>, mut listener: Listener) {
    let mut arrivals = Arrivals::default();
    let mut callers = Vec::new();
    let mut plans = Plans::default();
    // ORDER: Relaxed; see `Session::finish`.
    while !meeting.stop.load(Ordering::Relaxed) {
        let mut fds = listener.fds();
        fds.extend(arrivals.fds());
        let ready = server::poll(&fds, 50);
        let count = listener.count();
        if ready[count] {
            listener.take_late();
        }
        for which in (0..count).filter(|&which| ready[which]) {
            for _ in 0..MOST_AT_ONCE {
                match listener.accept(which) {
                    Ok(Some(arrival)) => {
                        let is_stranger = !descent::is_known_user(arrival.uid);
                        callers.extend(arrivals.add(arrival, is_stranger));
                    }
                    Ok(None) => break,
                    // For example, no descriptors are left: the callers wait meanwhile, and give up after 5 s.
                    Err(_) => {
                        std::thread::sleep(Duration::from_millis(20));
                        break;
                    }
                }
            }
        }
        callers.extend(arrivals.hear());
        for (uid, caller) in callers.drain(..) {
            match meeting.is_served(uid, &caller) {
                true => meeting.meet(*caller, &mut plans),
                false => caller.refuse(libc::EPERM),
            }
        }
    }
}
