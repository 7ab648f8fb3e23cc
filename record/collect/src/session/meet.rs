//! Processes that enter a session: those that say hello, and those that are read from outside.
//!
//! ```text
//!   hello ─► served? ─► region, plan ─┐
//!   started, no library in it ────────┴─► facts, trace, Process ─► the drain
//! ```
//!
//! Not here: connections (server.rs), what becomes of a process (drain.rs).

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use skinflint_base::ring::{HELLO_MODULE, HELLO_PROCESS, HELLO_REGION, LAYOUT};
use skinflint_base::sys;
use skinflint_procfs::process::{arguments, link};
use skinflint_procfs::processes::parent;
use skinflint_procfs::{stat, status};
use skinflint_trace::{Origin, OriginKind, ProcessInfo};

use super::{Known, Meeting, Met, SNAPSHOT_PATIENCE, Watcher, spawn};
use crate::allocator;
use crate::descent;
use crate::drain::Message;
use crate::folder;
use crate::go::{GoHeap, GoProgram};
use crate::linked::Plans;
use crate::memory::Region;
use crate::names::{process_name, text};
use crate::output::Job;
use crate::outside::Outside;
use crate::process::{Process, lock};
use crate::served::{Errand, Profile};
use crate::server::{self, Caller};
use crate::system::{page_bytes, system};

/// How long a Go program runs before its trace begins: it sets the profile's rate, if it does, when it begins.
const SETTLES: Duration = Duration::from_millis(10);

impl Watcher {
    /// Records a process that runs a Go program, from outside.
    ///
    /// # Errors
    /// If there is no shared memory for it.
    pub fn begin(&self, pid: u32, program: GoProgram) -> io::Result<()> {
        let allocator = format!("Go's heap ({})", program.version);
        let outside = Outside::new(GoHeap::new(pid, program));
        begin(&self.0, pid, allocator, outside, false).map(drop)
    }

    /// Reads a process for the last time; it waits.
    pub fn ends(&self, pid: u32) {
        begin_pending(&self.0, pid);
        let (waiting, done) = channel();
        self.0.send(Message::Ends(pid, waiting));
        let _ = done.recv_timeout(SNAPSHOT_PATIENCE);
    }
}

/// Begins the trace of what is read of a process from outside. `is_beside`: the process has another trace.
fn begin(
    meeting: &Meeting,
    pid: u32,
    allocator: String,
    outside: Outside,
    is_beside: bool,
) -> io::Result<Arc<Process>> {
    let region = Arc::new(Region::create()?);
    // ORDER: Relaxed; no other thread has it yet. It has begun: by us.
    region
        .header()
        .layout
        .store(LAYOUT, std::sync::atomic::Ordering::Relaxed);
    let start_ns = sys::monotonic_ns();
    let mut known = lock(&meeting.known);
    let (mut info, became) = describe(&known, pid, 0, 0);
    info.started_unix_ns = meeting.unix_offset_ns.saturating_add(start_ns);
    info.allocator = allocator;
    info.sample_bytes = outside.rate();
    if is_beside {
        info.origin = None;
    }
    let made = |index, token| Process {
        start_ns,
        outside: Some(outside),
        beside: is_beside,
        ..process(meeting, (index, pid, token), info, &region)
    };
    Ok(match is_beside {
        true => enter_beside(meeting, &mut known, made),
        false => enter(meeting, &mut known, became, made).1,
    })
}

impl Meeting {
    /// Begins the trace of a profile that a process serves.
    pub(super) fn begin_served(
        &self,
        pid: u32,
        profile: &Profile,
        url: &str,
        keeper: Sender<Errand>,
        is_beside: bool,
    ) -> Option<Arc<Process>> {
        let outside = Outside::served(profile.period, keeper);
        let allocator = format!("the profile that it serves ({url})");
        begin(self, pid, allocator, outside, is_beside).ok()
    }

    /// Returns whether a caller gets rings.
    pub(super) fn is_served(&self, uid: u32, caller: &Caller) -> bool {
        served(self, uid, caller)
    }

    /// Answers a caller that is served.
    pub(super) fn meet(self: &Arc<Self>, caller: Caller, plans: &mut Plans) {
        met(self, caller, plans);
    }

    /// Gives the trace of process `index`, the program, the name that the user asked for.
    pub(super) fn name_trace(&self, known: &mut Known, index: usize) {
        give_name(self, known, index);
    }
}

/// Returns whether a caller gets rings: processes of this user and of root do, and all that descend from a process of
/// this recording, whichever user they have become. A copy shows that by the token that only its parent had; another
/// program by its ancestors.
fn served(meeting: &Meeting, uid: u32, caller: &Caller) -> bool {
    if descent::is_known_user(uid) {
        return true;
    }
    let known = lock(&meeting.known);
    if known.by_token.contains_key(&caller.hello.token) {
        return true;
    }
    let is_ours = |pid| {
        pid == std::process::id()
            || known.main_pid == Some(pid)
            || known.processes.iter().any(|met| met.pid == pid)
    };
    descent::is_from(caller.pid, is_ours)
}

fn met(meeting: &Arc<Meeting>, caller: Caller, plans: &mut Plans) {
    if caller.hello.layout != LAYOUT {
        lock(&meeting.known).refused = Some(format!(
            "its recorder library is of another build (layout {}, this program has {LAYOUT}): build or install both anew",
            caller.hello.layout
        ));
        return caller.refuse(libc::EPROTO);
    }
    let region = match Region::create() {
        Ok(region) => region,
        Err(error) => {
            lock(&meeting.known).refused = Some(format!(
                "no shared memory for it: {error}; look at `ulimit -f`, at `ulimit -v`, and at the room in memory"
            ));
            return caller.refuse(libc::ENOMEM);
        }
    };
    let region = Arc::new(region);
    let token = match caller.hello.kind {
        HELLO_PROCESS => {
            let token = meet_process(meeting, &caller, &region, plans);
            if let Some(program) = plans.go(caller.pid) {
                meet_go(meeting, caller.pid, program, &region);
            }
            token
        }
        HELLO_REGION => {
            let known = lock(&meeting.known);
            let Some(&index) = known.by_token.get(&caller.hello.token) else {
                return caller.refuse(libc::ESRCH);
            };
            let Some(process) = known.processes[index].process.upgrade() else {
                return caller.refuse(libc::ESRCH);
            };
            lock(&process.regions).push(Arc::clone(&region));
            let _ = meeting
                .messages
                .send(Message::Region(index, Arc::clone(&region)));
            caller.hello.token
        }
        HELLO_MODULE => match meet_library(meeting, &caller, &region, plans) {
            Some(number) => number,
            None => return caller.refuse(libc::ENOENT),
        },
        _ => return caller.refuse(libc::EPROTO),
    };
    let fds = [meeting.session.fd(), meeting.notifier.fd(), region.fd()];
    caller.welcome(token, fds);
}

/// Puts the plan for a library into a region, and returns the library's number; `None` if nothing in it is to be hooked.
fn meet_library(
    meeting: &Meeting,
    by: &Caller,
    region: &Arc<Region>,
    plans: &mut Plans,
) -> Option<u64> {
    let process = {
        let known = lock(&meeting.known);
        let index = *known.by_token.get(&by.hello.token)?;
        known.processes[index].process.upgrade()?
    };
    let mut libraries = lock(&process.libraries);
    let library = plans.library(by.pid, by.hello.module, &libraries)?;
    let number = library.number();
    if number.is_some() {
        region.write_plan(&library.plan().hooks);
    }
    libraries.push(library);
    number.map(|number| number as u64)
}

/// Tells the recorder in a Go program that calls C where Go passes to it, and has Go's heap read from outside, beside what the
/// recorder sees: the blocks of C. A bounded recording has none of that. The program waits meanwhile, before Go's runtime begins.
fn meet_go(meeting: &Arc<Meeting>, pid: u32, program: GoProgram, region: &Region) {
    if let Some(crossing) = program.crossing(pid) {
        let words = &region.header().crossing;
        for (to, word) in words.iter().zip(crossing.encode()) {
            // ORDER: Relaxed; it is read when the answer has come.
            to.store(word, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let options = &meeting.options;
    if options.bounds.is_some() || options.paused || options.served {
        return;
    }
    if !options.attached {
        program.switch_on(pid);
    }
    lock(&meeting.known).pending.insert(pid, program);
    let weak = Arc::downgrade(meeting);
    let settles = move || {
        std::thread::sleep(SETTLES); // CLOCK: the end of the process does not wait for it
        if let Some(meeting) = weak.upgrade() {
            begin_pending(&meeting, pid);
        }
    };
    // Without a thread it begins at the end.
    let _ = spawn("settles", settles);
}

/// Begins to read the heap of a Go program that calls C, unless that has begun.
fn begin_pending(meeting: &Meeting, pid: u32) {
    let Some(program) = lock(&meeting.known).pending.remove(&pid) else {
        return;
    };
    if stat(pid).is_none_or(|stat| stat.is_dead()) {
        return;
    }
    let allocator = format!("Go's heap ({})", program.version);
    let outside = Outside::new(GoHeap::new(pid, program));
    // Without shared memory for it the recording is what it would be of any other program.
    let _ = begin(meeting, pid, allocator, outside, true);
}

fn meet_process(meeting: &Meeting, by: &Caller, region: &Arc<Region>, plans: &mut Plans) -> u64 {
    let linked = plans.give(by.pid, region);
    let mut known = lock(&meeting.known);
    let (pid, hello) = (by.pid, &by.hello);
    let (mut info, became) = describe(&known, pid, hello.token, hello.fork_ticket);
    info.sample_bytes = meeting.options.sample.map_or(0, |sample| sample.bytes);
    info.started_unix_ns = meeting.unix_offset_ns.saturating_add(hello.time_ns);
    info.allocator_path = text(&hello.allocator_path);
    info.allocator = allocator::name(pid, &info.allocator_path, &text(&hello.libc_version));
    if !meeting.options.attached {
        linked.name_in(&mut info);
    }
    // A copy has its parent's libraries, hooked as they are there.
    let parent = known.by_token.get(&hello.token);
    let parent = parent.and_then(|&index| known.processes[index].process.upgrade());
    let libraries = parent.map_or_else(Vec::new, |parent| lock(&parent.libraries).clone());
    let made = |index, token| Process {
        start_ns: hello.time_ns,
        linked,
        libraries: Mutex::new(libraries),
        ..process(meeting, (index, pid, token), info, region)
    };
    enter(meeting, &mut known, became, made).0
}

/// Returns a process of which nothing but its facts is known.
fn process(
    meeting: &Meeting,
    (index, pid, token): (usize, u32, u64),
    info: ProcessInfo,
    region: &Arc<Region>,
) -> Process {
    Process {
        index,
        pid,
        // It waits for the answer, so it is there to be read.
        numbers: status::numbers(pid),
        token,
        start_ns: 0,
        info,
        pidfd: server::pidfd(pid),
        regions: Mutex::new(vec![Arc::clone(region)]),
        first: Arc::clone(region),
        own: Mutex::default(),
        stacks: Mutex::default(),
        memory: Mutex::default(),
        cpu_ns: 0.into(),
        recorder_bytes: 0.into(),
        ended: false.into(),
        attached: meeting.options.attached,
        linked: Arc::default(),
        libraries: Mutex::default(),
        outside: None,
        beside: false,
    }
}

/// Hands a process over to the drain, which takes it before any notice that comes later.
fn hand_over(meeting: &Meeting, process: &Arc<Process>, became: bool) {
    let process = Arc::clone(process);
    // Without a drain the recording is over.
    let _ = meeting.messages.send(Message::Process { process, became });
}

/// Begins the trace of what is read from outside of a process that has a trace: beside that, with `heap` in its name.
fn enter_beside(
    meeting: &Meeting,
    known: &mut Known,
    made: impl FnOnce(usize, u64) -> Process,
) -> Arc<Process> {
    let index = known.processes.len();
    let process = Arc::new(made(index, folder::random() | 1));
    let (pid, info) = (process.pid, &process.info);
    let own = known.processes.iter().rev();
    let own = own.filter(|met| met.pid == pid && !met.beside);
    let own = own.map(|met| met.path.clone()).next();
    let named = meeting
        .options
        .file
        .clone()
        .filter(|_| known.is_program(pid));
    let path = match named.or(own) {
        Some(own) => own.with_extension("heap.sft"),
        None => known.fresh_name(&meeting.options.folder, &info.name, pid),
    };
    known.names.insert(path.clone());
    meeting.output.begin(index, info.clone(), path.clone());
    meeting.output.send(index, Job::Beside);
    known.processes.push(Met::of(&process, path));
    hand_over(meeting, &process, false);
    process
}

/// Begins the trace of a process, and hands it to the drain. Returns its token, and the process.
fn enter(
    meeting: &Meeting,
    known: &mut Known,
    became: bool,
    made: impl FnOnce(usize, u64) -> Process,
) -> (u64, Arc<Process>) {
    let index = known.processes.len();
    let token = folder::random() | 1;
    let process = Arc::new(made(index, token));
    let (pid, info) = (process.pid, &process.info);
    let is_program = known.is_program(pid);
    let folder = match is_program {
        true => meeting.options.folder.clone(),
        false => known.folder_of_others(&meeting.options, pid),
    };
    let path = known.fresh_name(&folder, &info.name, pid);
    meeting.output.begin(index, info.clone(), path.clone());
    known.by_token.insert(token, index);
    known.processes.push(Met::of(&process, path));
    if is_program {
        give_name(meeting, known, index);
    }
    hand_over(meeting, &process, became);
    (token, process)
}

/// Gives the trace of process `index`, the program, the name that the user asked for; the trace that had its place
/// before (of what the program was until its `exec`) goes to the others.
fn give_name(meeting: &Meeting, known: &mut Known, index: usize) {
    let options = &meeting.options;
    let was = known.named.replace(index).filter(|was| *was != index);
    if let Some(was) = was
        && (options.file.is_some() || options.apart.is_some())
    {
        let pid = known.processes[was].pid;
        let folder = known.folder_of_others(options, pid);
        let own = &known.processes[was].own_path;
        let path = match own.parent() == Some(&folder) {
            true => own.clone(),
            false => known.fresh_name(&folder, &known.processes[was].name.clone(), pid),
        };
        known.processes[was].path.clone_from(&path);
        meeting.output.send(was, Job::Rename(path));
    }
    if let Some(file) = &options.file {
        known.processes[index].path.clone_from(file);
        meeting.output.send(index, Job::Rename(file.clone()));
    }
}

/// Reads the facts about a process that has just said hello and waits for the answer. Returns them, and
/// whether it was another program before.
fn describe(known: &Known, pid: u32, parent_token: u64, fork_ticket: u64) -> (ProcessInfo, bool) {
    let ppid = parent(pid).unwrap_or(0);
    let before = known
        .processes
        .iter()
        .rev()
        .find(|process| process.pid == pid && !process.beside);
    let forked = known
        .by_token
        .get(&parent_token)
        .map(|&index| &known.processes[index]);
    let spawned = known
        .processes
        .iter()
        .rev()
        .find(|process| process.pid == ppid && !process.beside);
    let origin = |how, process: &Met, fork_ticket| Origin {
        how,
        uid: process.uid.clone(),
        pid: process.pid,
        fork_ticket,
    };
    let was_it = before.filter(|process| forked.is_none_or(|parent| parent.pid != process.pid));
    // If the pid was reused, it belonged to a process that has ended.
    let became = was_it.filter(|process| process.is_living());
    let origin = match (forked, became, spawned) {
        (Some(parent), ..) => Some(origin(OriginKind::Fork, parent, fork_ticket)),
        (None, Some(process), _) => Some(origin(OriginKind::Exec, process, 0)),
        (None, None, Some(parent)) => Some(origin(OriginKind::Spawn, parent, 0)),
        (None, None, None) => None,
    };
    let exe = link(pid, "exe");
    let argv = arguments(pid);
    let info = ProcessInfo {
        uid: format!("{:016x}", folder::random()),
        pid,
        ppid,
        name: process_name(pid, &argv, &exe),
        exe,
        argv,
        cwd: link(pid, "cwd"),
        started_unix_ns: 0,
        recorder_version: env!("CARGO_PKG_VERSION").into(),
        system: system(),
        allocator: String::new(),
        allocator_path: String::new(),
        os_page_bytes: page_bytes(),
        origin,
        sample_bytes: 0,
        segment: None,
    };
    (info, became.is_some())
}
