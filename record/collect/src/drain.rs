//! The drain thread: empties the rings, decodes, builds the stack tree, encodes.
//!
//! U1  A ring is copied out and given back before it is decoded: the program waits at most for the
//!     copy.
//! U2  A process is finished only after it has ended and its rings were drained once more.
//! U3  While much comes in, it sleeps for less than a tick, the shorter the fuller the rings, without
//!     asking to be woken; the recorder need not make system calls.

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use skinflint_base::ring::{RING_WORDS, SLOT_ACTIVE, SLOTS};
use skinflint_base::sys;
use skinflint_procfs::Moved;
use skinflint_procfs::process::{thread_exists, thread_name};
use skinflint_procfs::stat;
use skinflint_trace::{Mark, Module, Thread, ThreadId};

use crate::bounds::Bounds;
use crate::held::{Held, Watched};
use crate::kin::{Kin, ReadNotice};
use crate::memory::{NotifierMemory, Region, SessionMemory};
use crate::modules::Modules;
use crate::output::{Job, Output};
use crate::outside::Profile;
use crate::process::{Process, lock};
use crate::sampler::Ask;
use crate::server;
use crate::stream::{Note, Stream};
use crate::tree::Tree;
use crate::turning::Turning;

mod ending;
mod missed;
mod outside;
mod snapshots;
mod turning;

/// The time between two ticks, and between two looks of an idle collector.
const TICK: Duration = Duration::from_millis(4);
/// The time after which half-full blocks are written, so that a killed collector loses little.
const FLUSH: Duration = Duration::from_secs(1);
/// How long the trace of a process that has ended is kept open for its status. On a busy machine the waiting
/// thread may be late: 40 ms were too few on two loaded cores, and the program's own status was "unknown".
const STATUS_PATIENCE: Duration = Duration::from_secs(2);
/// How long a trace is kept open for children that are being loaded.
const KIN_PATIENCE: Duration = Duration::from_secs(10);
/// The time between two checks whether threads and processes have ended.
const LOOK: Duration = Duration::from_millis(20);

/// How a child of the caller ended, as `wait4` reports it.
#[derive(Clone, Copy, Debug)]
pub struct ChildEnd {
    /// The child's process id.
    pub pid: u32,
    /// The wait status.
    pub status: i32,
    /// The CPU time of the child alone, in nanoseconds, if known.
    pub cpu_ns: Option<u64>,
    /// The high-water mark of its resident memory, in bytes, if known.
    pub max_rss_bytes: Option<u64>,
    /// What its calls moved, those of children that it waited for included.
    pub moved: Option<Moved>,
}

/// A message of another thread to the drain.
pub enum Message {
    /// A process said hello.
    Process {
        /// It.
        process: Arc<Process>,
        /// Whether a recorded process with its pid became another program: this one.
        became: bool,
    },
    /// A process got another region.
    Region(usize, Arc<Region>),
    /// A mark from outside, for all processes; the sender is dropped when all snapshots are taken.
    Mark(String, Option<Sender<()>>),
    /// The same for one, by its index: its profile was fetched for it.
    MarkOf(usize, String, Option<Sender<()>>),
    /// The recording is about to end, and the programs go on: their pointers are looked at now. The sender is dropped
    /// when that is done.
    Look(Sender<()>),
    /// A process that is read from outside is about to end, and waits; the sender is dropped when it was read.
    Ends(u32, Sender<()>),
    /// The recording is about to end, and the programs go on: what is read from outside is read for the last time. The sender
    /// is dropped when that is done.
    Leave(Sender<()>),
    /// How a child of ours ended.
    Child(ChildEnd),
    /// Finish every process, now.
    Stop,
}

/// A ring of a process.
struct Slot {
    region: Arc<Region>,
    index: usize,
    stream: Option<Stream>,
    broken: bool,
}

/// The drain's own state of a process.
struct Draining {
    process: Arc<Process>,
    slots: Vec<Slot>,
    tree: Tree,
    modules: Modules,
    threads: Vec<Thread>,
    marks_from_outside: Vec<(u32, String)>,
    snapshots_asked: u32,
    high_water_asked: u32,
    /// Whether the program reported that it was about to end.
    exit_asked: bool,
    /// The newest of the program's own marks that has been decoded: number and name.
    newest_mark: Option<(u32, String)>,
    /// The program's own marks that are not made yet in what is beside it.
    fresh_marks: Vec<String>,
    outside: Option<Stream>,
    events: u64,
    lost: u64,
    truncated: u64,
    notes: Vec<String>,
    child: Option<ChildEnd>,
    exec: bool,
    zombie_status: Option<i32>,
    ended_at: Option<Instant>,
    /// What lives, if the recording is bounded.
    turning: Option<Turning>,
    /// Its heap as it was read from outside.
    profile: Option<Profile>,
}

/// The thread's state.
pub struct Drain {
    session: Arc<SessionMemory>,
    notifier: Arc<NotifierMemory>,
    kin: Kin,
    /// The notices of processes that are not known yet.
    unplaced: Vec<ReadNotice>,
    output: Output,
    sampler: Sender<Ask>,
    watched: Option<(Watched, Sender<Held>)>,
    bounds: Option<Bounds>,
    /// Where processes go that run a statically linked program.
    strays: Sender<u32>,
    living: HashMap<usize, Draining>,
    /// What is read from outside of processes that are recorded, too.
    besides: Vec<Arc<Process>>,
    children: HashMap<u32, ChildEnd>,
    buffer: Vec<u64>,
    next_tick: Instant,
    next_flush: Instant,
    next_look: Instant,
}

impl Drain {
    /// Creates a drain that is ready to run.
    pub fn new(
        session: Arc<SessionMemory>,
        notifier: Arc<NotifierMemory>,
        output: Output,
        sampler: Sender<Ask>,
        watched: Option<(Watched, Sender<Held>)>,
        strays: Sender<u32>,
    ) -> Drain {
        let now = Instant::now();
        let kin = Kin::new(notifier.inode());
        Drain {
            session,
            notifier,
            kin,
            unplaced: Vec::new(),
            output,
            sampler,
            watched,
            bounds: None,
            strays,
            living: HashMap::new(),
            besides: Vec::new(),
            children: HashMap::new(),
            buffer: Vec::with_capacity(RING_WORDS),
            next_tick: now,
            next_flush: now + FLUSH,
            next_look: now,
        }
    }

    /// Keeps the last part of recordings only.
    pub fn bounded(self, bounds: Option<Bounds>) -> Drain {
        Drain { bounds, ..self }
    }

    /// Runs until told to stop, or until every sender is gone.
    pub fn run(mut self, messages: &Receiver<Message>, count: impl Fn(usize)) {
        let mut stop = false;
        while !stop {
            // ORDER: Acquire; a wake after this reading ends the wait below at once.
            let seen = self.notifier.page().wake.load(Ordering::Acquire);
            // Before the messages: a process says hello before it leaves a notice, so its hello is among them.
            self.take_notices();
            loop {
                match messages.try_recv() {
                    Ok(Message::Stop) | Err(TryRecvError::Disconnected) => stop = true,
                    Ok(message) => {
                        self.handle(message);
                        continue;
                    }
                    Err(TryRecvError::Empty) => {}
                }
                break;
            }
            self.place_notices(u64::MAX);
            // The rest of the notices are of processes whose traces are closed.
            self.unplaced.clear();
            let begun = Instant::now();
            let fullest = self.pass();
            self.by_the_clock();
            count(self.running());
            if !stop {
                self.sleep(seen, fullest, begun.elapsed());
            }
        }
        let all: Vec<usize> = self.living.keys().copied().collect();
        for index in all {
            self.finish(index);
        }
    }

    /// Sleeps for a time that suits the rings (U3). `fullest`: the words of the fullest ring.
    fn sleep(&self, seen: u32, fullest: usize, took: Duration) {
        let page = self.session.page();
        if fullest > RING_WORDS / 2 {
            return;
        }
        if fullest > RING_WORDS / 64 {
            // The fuller the ring, the shorter the pause: a tenth of a tick for a quarter of a ring, the
            // pass itself included.
            let pause = TICK.mul_f64(0.1 * (RING_WORDS / 4) as f64 / fullest as f64);
            let pause = pause
                .clamp(Duration::from_micros(60), TICK)
                .saturating_sub(took);
            std::thread::sleep(pause);
            return;
        }
        // ORDER: Relaxed; a thread that misses it lets us sleep one tick longer.
        page.sleeping.store(1, Ordering::Relaxed);
        sys::futex_wait(&self.notifier.page().wake, seen, TICK.as_nanos() as u64);
        page.sleeping.store(0, Ordering::Relaxed);
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Process { process, became } => self.begin(process, became),
            Message::Region(index, region) => {
                if let Some(draining) = self.living.get_mut(&index) {
                    draining.add_region(&region);
                }
            }
            Message::Mark(name, waiting) => {
                // Of a profile that is served the mark comes when it was fetched.
                let all = self.living.values_mut();
                for draining in all.filter(|one| !one.is_served()) {
                    let waiting = waiting.clone();
                    draining.mark_from_outside(&name, &self.output, &self.sampler, waiting);
                    if let Some((Watched::Mark(wanted), held)) = &self.watched
                        && *wanted == name
                    {
                        let _ = held.send(Held::passing(draining.process.pid));
                    }
                }
            }
            Message::MarkOf(index, name, waiting) => {
                if let Some(draining) = self.living.get_mut(&index) {
                    draining.mark_from_outside(&name, &self.output, &self.sampler, waiting);
                }
            }
            Message::Leave(waiting) => {
                for draining in self.living.values_mut() {
                    draining.leave(&self.sampler, &waiting);
                }
            }
            Message::Look(waiting) => {
                for draining in self.living.values_mut() {
                    let done = draining
                        .process
                        .first
                        .header()
                        .snapshot_done
                        .load(Ordering::Relaxed); // ORDER: as for marks.
                    let waiting = Some(waiting.clone());
                    let ask = Ask::Look(Arc::clone(&draining.process), done, waiting);
                    let _ = self.sampler.send(ask);
                }
            }
            Message::Ends(pid, waiting) => {
                let draining = self.living.values_mut();
                for draining in draining.filter(|one| one.process.pid == pid) {
                    draining.ends(&self.sampler, waiting.clone());
                }
            }
            Message::Child(end) => {
                self.children.insert(end.pid, end);
                for draining in self
                    .living
                    .values_mut()
                    .filter(|d| d.process.pid == end.pid)
                {
                    draining.child = Some(end);
                }
            }
            Message::Stop => {}
        }
    }

    fn begin(&mut self, process: Arc<Process>, became: bool) {
        // In the order in which they happened: what it was until now may have left its last notice after the notices
        // were taken, and is closed here.
        self.take_notices();
        self.place_notices(process.start_ns);
        if process.beside {
            self.besides.push(Arc::clone(&process));
        } else {
            self.with_kin(|kin, living| kin.heard(&process, living));
        }
        let all = self.living.values();
        let before = all.map(|d| (d.process.pid, d.process.index));
        let before = before.filter(|&(pid, _)| became && pid == process.pid);
        let before = before.map(|(_, index)| index).max();
        let index = process.index;
        let mut draining = Draining {
            slots: Vec::new(),
            tree: Tree::new(),
            modules: Modules::new(),
            threads: Vec::new(),
            marks_from_outside: Vec::new(),
            snapshots_asked: 0,
            high_water_asked: 0,
            exit_asked: false,
            newest_mark: None,
            fresh_marks: Vec::new(),
            outside: None,
            events: 0,
            lost: 0,
            truncated: 0,
            notes: Vec::new(),
            child: self.children.get(&process.pid).copied(),
            exec: false,
            zombie_status: None,
            ended_at: None,
            turning: None,
            profile: None,
            process,
        };
        if let Some(bounds) = &self.bounds {
            draining.tree.keep_sent();
            let process = &draining.process;
            draining.turning = Some(Turning::begin(bounds.clone(), process, &self.output));
        }
        let first = Arc::clone(&draining.process.first);
        draining.add_region(&first);
        let _ = self.sampler.send(Ask::Begin(Arc::clone(&draining.process)));
        self.living.insert(index, draining);
        if let Some(before) = before {
            self.kin.moves(before, index);
            if let Some(draining) = self.living.get_mut(&before) {
                draining.exec = true;
            }
            self.finish(before);
        }
    }

    /// Drains every ring once. Returns the words of the fullest ring.
    fn pass(&mut self) -> usize {
        let mut fullest = 0;
        let mut marks = Vec::new();
        for draining in self.living.values_mut() {
            fullest = fullest.max(draining.pass(&mut self.buffer, &self.output));
            draining.see_memory();
            draining.turn_if_due(&self.output, &self.sampler);
            draining.answer_snapshots(&self.sampler, self.watched.as_ref(), &self.besides);
            let pid = draining.process.pid;
            marks.extend(draining.fresh_marks.drain(..).map(|name| (pid, name)));
        }
        for (pid, name) in marks {
            let all = self.living.values_mut();
            for draining in all.filter(|one| one.process.beside && one.process.pid == pid) {
                draining.mark_or_ask(&name, &self.output, &self.sampler, None);
            }
        }
        fullest
    }

    fn by_the_clock(&mut self) {
        let now = Instant::now();
        if now >= self.next_tick {
            // ORDER: Relaxed; a clock.
            self.session.page().tick.fetch_add(1, Ordering::Relaxed);
            self.next_tick = now + TICK;
        }
        if now >= self.next_flush {
            self.next_flush = now + FLUSH;
            for draining in self.living.values_mut() {
                draining.name_threads();
                draining.modules.complete(draining.process.pid, false);
                draining.flush(&self.output);
            }
        }
        if now >= self.next_look {
            self.next_look = now + LOOK;
            self.look_for_kin();
            self.look_for_ends();
        }
    }

    fn look_for_ends(&mut self) {
        let indices: Vec<usize> = self.living.keys().copied().collect();
        let fds: Vec<i32> = indices
            .iter()
            .map(|index| {
                let pidfd = self.living[index].process.pidfd.as_ref();
                pidfd.map_or(-1, AsRawFd::as_raw_fd)
            })
            .collect();
        let readable = server::poll(&fds, 0);
        for ((index, fd), readable) in indices.into_iter().zip(fds).zip(readable) {
            let Some(draining) = self.living.get_mut(&index) else {
                continue;
            };
            let gone = fd < 0 && stat(draining.process.pid).is_none();
            if !readable && !gone {
                draining.modules.complete(draining.process.pid, false);
                continue;
            }
            let Some(since) = draining.ended_at else {
                // Its last hello may have come since the messages were read: it is closed at the next look.
                draining.ended_at = Some(Instant::now());
                continue;
            };
            // How it ended is known when it was waited for: if we are its parent, the thread that
            // waits is about to tell; else the kernel tells once it is not a zombie any more.
            let ours = draining.process.info.ppid == std::process::id();
            let zombie = stat(draining.process.pid);
            let waited_for = zombie.is_none();
            if !ours && !waited_for {
                // It may never be waited for (a daemon whose new parent does not): a zombie's status is readable too.
                draining.zombie_status = zombie.and_then(|stat| stat.wait_status);
            }
            let has_status = waited_for || draining.zombie_status.is_some();
            let known = draining.child.is_some() || has_status && !ours;
            let may_close = known || since.elapsed() > STATUS_PATIENCE;
            // A child that is being loaded has had no chance to say hello yet.
            let is_awaited = since.elapsed() <= KIN_PATIENCE && self.kin.awaits(index);
            // A copy that has made no heap call yet is named in this trace when it ends without one.
            if may_close && !is_awaited && !self.kin.has_quiet_copies(index) {
                self.finish(index);
            }
        }
    }

    /// Finishes a process that has ended, or whose recording stops: writes the rest and the ending.
    fn finish(&mut self, index: usize) {
        self.take_notices();
        self.place_notices(u64::MAX);
        let lost = self.with_kin(|kin, living| kin.origin_ends(index, living));
        let Some(mut draining) = self.living.remove(&index) else {
            return;
        };
        if !lost.is_empty() {
            self.output.send(index, Job::Lost(lost));
        }
        while draining.pass(&mut self.buffer, &self.output) > 0 {}
        draining.answer_snapshots(&self.sampler, None, &self.besides);
        self.besides.retain(|beside| beside.index != index);
        // ORDER: Relaxed; a flag.
        draining.process.ended.store(true, Ordering::Relaxed);
        let (done, wait) = sync_channel(1);
        if self
            .sampler
            .send(Ask::End(Arc::clone(&draining.process), done))
            .is_ok()
        {
            let _ = wait.recv_timeout(Duration::from_secs(5));
        }
        draining.take_outside(&self.output);
        draining.modules.complete(draining.process.pid, true);
        draining.flush(&self.output);
        let ending = draining.ending();
        self.output.send(index, Job::End(Box::new(ending)));
    }
}

impl Draining {
    fn add_region(&mut self, region: &Arc<Region>) {
        self.slots.extend((0..SLOTS).map(|index| Slot {
            region: Arc::clone(region),
            index,
            stream: None,
            broken: false,
        }));
    }

    fn pass(&mut self, buffer: &mut Vec<u64>, output: &Output) -> usize {
        let mut fullest = 0;
        self.take_outside(output);
        for at in 0..self.slots.len() {
            let mut words = 0;
            // Twice: words after the end of the lap come with the second.
            for _ in 0..2 {
                let slot = &mut self.slots[at];
                if slot.broken {
                    break;
                }
                buffer.clear();
                match slot.region.take(slot.index, buffer) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(_) => {
                        self.break_slot(at, "the positions of a ring contradict each other");
                        break;
                    }
                }
                words += buffer.len();
                self.decode(at, buffer, output);
            }
            fullest = fullest.max(words);
        }
        self.tree.kinds.look(self.process.pid);
        fullest
    }

    fn break_slot(&mut self, at: usize, why: &str) {
        self.slots[at].broken = true;
        self.notes
            .push(format!("a thread's ring was dropped: {why}"));
    }

    fn decode(&mut self, at: usize, words: &[u64], output: &Output) {
        let mut notes = Vec::new();
        let mut rest = words;
        while !rest.is_empty() {
            let len = match self.slots[at].stream.as_mut() {
                Some(stream) => {
                    let modules = &self.modules;
                    let known = |pc| modules.knows(pc);
                    stream.record(rest, &mut self.tree, known, &mut notes)
                }
                None => {
                    // Only a THREAD record makes sense here; a scratch stream reads it.
                    let mut scratch = Stream::new(ThreadId(0), self.process.start_ns);
                    scratch.record(rest, &mut self.tree, |_| true, &mut notes)
                }
            };
            if len == 0 {
                self.break_slot(at, "it holds words that are no record");
                break;
            }
            rest = &rest[len..];
            for note in notes.drain(..) {
                self.noted(at, note, output);
            }
            if self.slots[at]
                .stream
                .as_ref()
                .is_some_and(|s| s.encoder.is_full())
            {
                self.flush_stream(at, output);
            }
        }
    }

    fn noted(&mut self, at: usize, note: Note, output: &Output) {
        match note {
            Note::Thread {
                tid,
                stack,
                time_ns,
            } => self.new_thread(at, tid, stack, time_ns, output),
            Note::Mark {
                index,
                name,
                ticket,
                time_ns,
            } => {
                self.newest_mark = Some((index, name.clone()));
                self.fresh_marks.push(name.clone());
                let thread = self.slots[at].stream.as_ref().map(|stream| stream.thread);
                let mark = Mark {
                    name,
                    time_ns,
                    ticket,
                    thread,
                };
                output.send(self.process.index, Job::Mark(index, mark));
            }
            Note::Module {
                start,
                end,
                bias,
                build_id,
                path,
            } => {
                let path = match path.as_str() {
                    "" => self.process.info.exe.clone(),
                    vdso if vdso.starts_with("linux-vdso") => "[vdso]".into(),
                    _ => path,
                };
                self.modules.add(Module {
                    start,
                    end,
                    bias,
                    path,
                    build_id,
                    first_node: 0,
                });
            }
            Note::ModuleGone(start) => {
                let next = self.tree.next_id();
                if let Some((start, end)) = self.modules.remove(start, next) {
                    self.tree.forget_code(start, end);
                }
            }
            Note::Name(name) => {
                if let Some(stream) = &self.slots[at].stream {
                    self.threads[stream.thread.0 as usize].name = name;
                }
            }
            Note::Own(start, bytes) => lock(&self.process.own).push((start, bytes)),
            Note::UnknownCode(_) => self.modules.note_unknown(),
        }
    }

    fn new_thread(
        &mut self,
        at: usize,
        tid: u32,
        stack: (u64, u64),
        time_ns: u64,
        output: &Output,
    ) {
        self.end_thread(at, output);
        let id = ThreadId(self.threads.len() as u32);
        let tid = self.process.thread_here(tid);
        let started_ns = time_ns.saturating_sub(self.process.start_ns);
        let name = thread_name(self.process.pid, tid).unwrap_or_default();
        self.threads.push(Thread {
            tid,
            name,
            started_ns,
            ended_ns: None,
        });
        output.send(
            self.process.index,
            Job::Thread(id, self.threads[id.0 as usize].clone()),
        );
        if stack.0 < stack.1 {
            let mut stacks = lock(&self.process.stacks);
            stacks.retain(|known| *known != stack);
            stacks.push(stack);
        }
        let mut stream = Stream::new(id, self.process.start_ns);
        stream.time_ns = started_ns;
        stream.kept = self.turning.as_ref().map(|_| Vec::new());
        self.slots[at].stream = Some(stream);
    }

    /// Writes what is left of the thread of a slot, which has ended.
    fn end_thread(&mut self, at: usize, output: &Output) {
        self.flush_stream(at, output);
        let Some(stream) = self.slots[at].stream.take() else {
            return;
        };
        if let (Some(turning), Some(mut kept)) = (&mut self.turning, stream.kept) {
            turning.live.take(&mut kept);
        }
        self.events += stream.events;
        self.lost += stream.lost;
        self.truncated += stream.truncated;
        let thread = &mut self.threads[stream.thread.0 as usize];
        thread.ended_ns.get_or_insert(stream.time_ns);
        output.send(
            self.process.index,
            Job::Thread(stream.thread, thread.clone()),
        );
    }

    /// Writes modules before the events whose stacks run through them, so that the readable part of a cut
    /// trace has names.
    fn flush_modules(&mut self, output: &Output) {
        let modules = self.modules.take_fresh();
        if !modules.is_empty() {
            output.send(self.process.index, Job::Modules(modules));
        }
    }

    fn flush_stream(&mut self, at: usize, output: &Output) {
        self.flush_modules(output);
        let Some(stream) = self.slots[at].stream.as_mut() else {
            return;
        };
        if let Some(block) = stream.encoder.take() {
            send_block(&mut self.tree, self.process.index, block, output);
        }
    }

    /// Reads the names and ends of threads.
    fn name_threads(&mut self) {
        for slot in &self.slots {
            let Some(stream) = &slot.stream else { continue };
            let header = slot.region.slot(slot.index);
            let thread = &mut self.threads[stream.thread.0 as usize];
            // ORDER: Acquire; pairs with the recorder's Release when a thread ends: its name is in the
            // ring then, and the kernel's name of the slot's next thread is not this thread's.
            let active = header.owner.load(Ordering::Acquire) >> 32 == u64::from(SLOT_ACTIVE);
            if active && let Some(name) = thread_name(self.process.pid, thread.tid) {
                thread.name = name;
            }
            if !active && !thread_exists(self.process.pid, thread.tid) {
                thread.ended_ns.get_or_insert(stream.time_ns);
            }
        }
    }

    fn flush(&mut self, output: &Output) {
        let index = self.process.index;
        self.flush_modules(output);
        for at in 0..self.slots.len() {
            self.flush_stream(at, output);
            if let Some(stream) = &self.slots[at].stream {
                let thread = self.threads[stream.thread.0 as usize].clone();
                output.send(index, Job::Thread(stream.thread, thread));
            }
        }
        let profile = self.profile.as_mut().map(Profile::stream);
        for outside in self.outside.as_mut().into_iter().chain(profile) {
            if let Some(block) = outside.encoder.take() {
                send_block(&mut self.tree, index, block, output);
            }
        }
        let kinds = self.tree.kinds.take_fresh();
        if !kinds.is_empty() {
            output.send(index, Job::Kinds(kinds));
        }
    }
}

/// Hands over a block, after the nodes that it may name (output.Q1).
fn send_block(
    tree: &mut Tree,
    index: usize,
    block: skinflint_trace::encode::RawBlock,
    output: &Output,
) {
    if let Some((first, codes)) = tree.codes.take_fresh() {
        output.send(index, Job::Codes(first, codes));
    }
    if let Some((first, nodes)) = tree.take_fresh() {
        output.send(index, Job::Nodes(first, nodes));
    }
    output.send(index, Job::Events(block));
}
