//! Threads: beginning, starting, ending; and the frame of the whole run.
//!
//! ```text
//!   main: open ─► stage ─► first epochs ─► its own chunks ─► over ─► [idle] ─► last line ─► exit
//!   START in a script ─► pthread_create on a stack of ours ─► its chunks ─► END ─► joined by the next START
//! ```
//!
//! B1  `Threads` is changed only under its lock. A stack is used again only after its thread was joined.
//! B2  Threads that have no END stay asleep until the process ends, as they did in the recording: their caches live.
//!
//! Not here: mailboxes (stage.rs), operations (player.rs).

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

use skinflint_replay::script::{Fault, HEADER_BYTES, Header};

use crate::feed::{self, Feed};
use crate::line::Line;
use crate::memory::{Memory, STACK_BYTES};
use crate::options::Options;
use crate::player::{CHECKED, NULL, PLAIN, Played, Player};
use crate::points;
use crate::stage::{self, Part, Stage};
use crate::system;

/// The most ended threads that wait to be joined; further ones are left as they are.
const ENDED: usize = 1024;

/// The state of starting and joining (B1).
pub struct Threads {
    lock: AtomicU32,
    inner: UnsafeCell<Inner>,
}

struct Inner {
    stacks: usize,
    ended: [u32; ENDED],
    count: usize,
}

impl Threads {
    /// Creates the state before any thread was started.
    pub fn new() -> Threads {
        let inner = Inner {
            stacks: 0,
            ended: [0; ENDED],
            count: 0,
        };
        Threads {
            lock: AtomicU32::new(0),
            inner: UnsafeCell::new(inner),
        }
    }

    fn locked<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        // ORDER: Acquire; pairs with the Release below.
        while self.lock.swap(1, Ordering::Acquire) != 0 {
            // SAFETY: no memory is passed.
            unsafe { libc::sched_yield() };
        }
        // SAFETY: B1: the lock is ours.
        let result = act(unsafe { &mut *self.inner.get() });
        // ORDER: Release; pairs with the Acquire above.
        self.lock.store(0, Ordering::Release);
        result
    }
}

/// Starts the thread that plays this part.
///
/// # Errors
/// If it was started before, or the system has no more threads.
pub fn start(stage: &'static Stage, number: u32) -> Result<(), &'static str> {
    let part = stage.part(number);
    // ORDER: AcqRel; only against a second start.
    if part.started.swap(1, Ordering::AcqRel) != 0 {
        return Err("a thread is started twice");
    }
    let stack = stage.threads.locked(|inner| {
        if inner.count == 0 {
            inner.stacks += 1;
            return inner.stacks - 1;
        }
        inner.count -= 1;
        let ended = stage.part(inner.ended[inner.count]);
        // SAFETY: stage.H2: it has ended, so handle and stack are ours to read; it is joined once.
        unsafe {
            libc::pthread_join(*ended.handle.get(), core::ptr::null_mut());
            *ended.stack.get()
        }
    });
    // ORDER: Relaxed; a count, for `look` in stage.rs.
    stage.alive.fetch_add(1, Ordering::Relaxed);
    // SAFETY: a structure that the next call fills.
    let mut attributes: libc::pthread_attr_t = unsafe { core::mem::zeroed() };
    // SAFETY: the stack is no other thread's (B1); attributes and handle outlive the calls; `run` takes a part.
    let error = unsafe {
        *part.stack.get() = stack;
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setstack(
            &mut attributes,
            stage.memory.stack(stack).cast(),
            STACK_BYTES,
        );
        libc::pthread_create(
            part.handle.get(),
            &attributes,
            run,
            core::ptr::from_ref(part) as *mut c_void,
        )
    };
    match error {
        0 => Ok(()),
        _ => Err("the system gives no more threads: raise the limit (ulimit -u)"),
    }
}

/// Runs a started thread, from its beginning to its end.
extern "C" fn run(part: *mut c_void) -> *mut c_void {
    // SAFETY: `start` passes a part, which lives for ever.
    let part: &'static Part = unsafe { &*part.cast() };
    let stage = Stage::the();
    if !play_all(stage, part) {
        // The thread has no END: it sleeps until the process ends (B2).
        loop {
            // SAFETY: no memory is passed.
            unsafe { libc::pause() };
        }
    }
    // ORDER: Relaxed; a count, for `look` in stage.rs.
    stage.alive.fetch_sub(1, Ordering::Relaxed);
    let number = stage.number(part);
    stage.threads.locked(|inner| {
        if inner.count < ENDED {
            inner.ended[inner.count] = number;
            inner.count += 1;
        }
    });
    core::ptr::null_mut()
}

/// Plays a part's chunks until the script is over (`false`) or the thread ends (`true`).
fn play_all(stage: &'static Stage, part: &'static Part) -> bool {
    // SAFETY: stage.H2: the tally is this thread's.
    let mut player = Player::new(stage, stage.number(part), unsafe { &mut *part.tally.get() });
    let mut taken = 0_u32;
    while let Some(chunk) = stage.take(part, taken) {
        taken = taken.wrapping_add(1);
        let played = match (stage.options.null, stage.options.check) {
            (true, _) => player.play::<NULL>(&chunk),
            (_, true) => player.play::<CHECKED>(&chunk),
            _ => player.play::<PLAIN>(&chunk),
        };
        if let Played::Wrong(word, what) = played {
            stage.fail(2, chunk.offset + word as u64 * 4, what.as_bytes());
        }
        // The main thread's end is the process's; nothing comes after it.
        let ends =
            matches!(played, Played::Ended) && !core::ptr::eq(part, stage.part(stage.header.main));
        feed::done(stage, chunk.epoch);
        if ends {
            return true;
        }
    }
    false
}

fn open(options: &Options) -> (i32, i32) {
    let script = options.script.to_bytes();
    let report_fd = match options.report.to_bytes() {
        b"-" => 1,
        _ => system::open(
            options.report,
            libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC,
        ),
    };
    if report_fd < 0 {
        let mut text = [0; 128];
        let why = system::error_text(system::error(), &mut text);
        stage::fail(options.report.to_bytes(), -1, 2, u64::MAX, why);
    }
    let fd = match script {
        b"-" => 0,
        _ => system::open(options.script, libc::O_RDONLY),
    };
    if fd < 0 {
        let mut text = [0; 128];
        let why = system::error_text(system::error(), &mut text);
        stage::fail(script, report_fd, 2, u64::MAX, why);
    }
    (fd, report_fd)
}

fn read_header(options: &Options, fd: i32, report_fd: i32) -> Header {
    let script = options.script.to_bytes();
    let mut bytes = [0; HEADER_BYTES];
    match system::read_full(fd, &mut bytes) {
        Ok(HEADER_BYTES) => {}
        Ok(len) => stage::fail(
            script,
            report_fd,
            2,
            len as u64,
            b"ends within the header of a script",
        ),
        Err(number) => {
            let mut text = [0; 128];
            stage::fail(
                script,
                report_fd,
                2,
                0,
                system::error_text(number, &mut text),
            )
        }
    }
    match Header::from_bytes(&bytes) {
        Ok(header) => header,
        Err(Fault { at, what }) => stage::fail(script, report_fd, 2, at as u64, what.as_bytes()),
    }
}

/// Performs the whole run; returns the exit status: 0, or 1 if the order was violated.
pub fn perform(options: Options) -> c_int {
    let (fd, report_fd) = open(&options);
    let header = read_header(&options, fd, report_fd);
    let memory = Memory::new(
        size_of::<Stage>(),
        header.threads as usize,
        size_of::<Part>(),
    );
    let memory = match memory {
        Ok(memory) => memory,
        Err(_) => {
            let what = b"no address space for the table of blocks (300 MiB, mostly untouched): lift ulimit -v and -f";
            stage::fail(options.script.to_bytes(), report_fd, 2, u64::MAX, what)
        }
    };
    let stage = Stage::install(
        memory,
        options,
        header,
        report_fd,
        Feed::new(fd, HEADER_BYTES as u64),
    );
    let mut line = Line::object(b"begin");
    line.number(b"report_version", 1);
    line.text(b"replayer", env!("CARGO_PKG_VERSION").as_bytes());
    line.number(
        b"script_version",
        u64::from(skinflint_replay::script::MAJOR),
    );
    // SAFETY: no memory is passed.
    line.number(b"pid", unsafe { libc::getpid() } as u64);
    line.text(b"trace", &header.uid);
    line.number(b"threads", u64::from(header.threads));
    line.number(b"ops", header.ops);
    line.number(b"peak_live_bytes", header.peak_live_bytes);
    line.number(b"recorded_ns", header.recorded_ns);
    line.flag(b"null", options.null);
    line.number(b"paced_milli", options.paced_milli);
    line.number(b"own_fd", memory.fd as u64);
    line.close_to(report_fd);
    let now_ns = system::now_ns();
    // ORDER: Relaxed; before any other thread exists.
    stage.begun_ns.store(now_ns, Ordering::Relaxed);
    // ORDER: Relaxed; before any other thread exists.
    stage.schedule_ns.store(now_ns, Ordering::Relaxed);
    let part = stage.part(header.main);
    // ORDER: Relaxed; before any other thread exists.
    part.started.store(1, Ordering::Relaxed);
    feed::advance(stage);
    play_all(stage, part);
    finish(stage)
}

fn finish(stage: &'static Stage) -> c_int {
    // ORDER: Relaxed; set by this thread.
    let wall_ns = system::now_ns() - stage.begun_ns.load(Ordering::Relaxed);
    let (user_ns, system_ns) = system::process_cpu_ns();
    if stage.options.idle_ms != 0 {
        system::sleep_until(system::now_ns() + stage.options.idle_ms * 1_000_000);
        points::say(
            stage,
            b"idle",
            stage.sum().block_ops(),
            stage.header.recorded_ns,
            true,
            None,
        );
    }
    let sum = stage.sum();
    let mut line = Line::object(b"end");
    sum.say(&mut line);
    line.number(b"wall_ns", wall_ns);
    // SAFETY: feed.E2: the script is over, no thread feeds.
    line.number(b"feed_ns", unsafe { (*stage.feed.get()).spent_ns });
    // ORDER: Relaxed; all is quiet.
    line.number(b"late_ns", stage.late_ns.load(Ordering::Relaxed));
    line.number(b"user_ns", user_ns);
    line.number(b"system_ns", system_ns);
    line.number(b"slots", u64::from(sum.top_slot) + 1);
    line.number(b"own_bytes", stage.memory.held_bytes());
    let violations = sum.order_violations + sum.double_uses + sum.overwritten;
    // ORDER: Relaxed; all is quiet.
    let first = stage.first_violation.load(Ordering::Relaxed);
    if first != u64::MAX {
        line.number(b"first_violation_recorded_ms", first >> 32);
        line.number(b"first_violation_slot", first & 0xffff_ffff);
    }
    if !line.close_to(stage.report_fd) {
        stage.fail(2, u64::MAX, b"the report cannot be written");
    }
    c_int::from(violations != 0)
}
